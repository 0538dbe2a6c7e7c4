//! The first screen: the return over time, and every other metric as a small graph.

use super::Data;
use super::view::View;
use super::widgets::{chart, line_panel, panel};
use crate::format::{number, with_unit};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

/// Metrics in the order in which one looks at them; others follow.
const ORDER: [&str; 15] = [
    "sps",
    "eval/return",
    "loss/policy",
    "loss/value",
    "loss/td",
    "td_error",
    "q",
    "epsilon",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "explained_variance",
    "value",
    "learning_rate",
    "grad_norm",
];
/// Metrics that are shown elsewhere or as part of others.
const ELSEWHERE: [&str; 14] = [
    "return",
    "episodes",
    "cpu",
    "rss",
    "time/",
    "eval/",
    "gpu/",
    "value/",
    "gradient/",
    "epochs",
    "entropy/",
    "reward/",
    "op/",
    "slot/",
];
/// Metrics that may have the large graph, with its title; the first that is known has it.
const HEADLINES: [(&str, &str); 2] = [("return", "mean return"), ("solve_rate", "share of test scrambles solved")];
/// Columns of the narrowest panel.
const PANEL_WIDTH: u16 = 27;
/// Rows of the lowest panel.
const PANEL_HEIGHT: u16 = 3;

/// Panels: name, newest value as text, metric of the graph.
fn panels(data: &Data) -> Vec<(String, String, String)> {
    let known = |name: &&str| data.history.column(name).is_some();
    let mut names: Vec<&str> = ORDER.iter().copied().filter(|name| known(name) || *name == "value").collect();
    let shown_elsewhere =
        |name: &str| ELSEWHERE.iter().any(|other| name == *other || (other.ends_with('/') && name.starts_with(other)));
    let others = data.history.names().iter().map(String::as_str);
    names.extend(others.filter(|name| !ORDER.contains(name) && !shown_elsewhere(name)));
    let last = |name: &str| data.history.last(name);
    names
        .into_iter()
        .filter_map(|name| {
            if name == "value" {
                let (low, high) = (last("value/min"), last("value/max"));
                let mean = last("value/mean").or(low)?;
                let text = match low.zip(high) {
                    Some((low, high)) => format!("{} … {}", number(low), number(high)),
                    None => number(mean),
                };
                let graph = if last("value/mean").is_some() { "value/mean" } else { "value/min" };
                return Some((name.to_owned(), text, graph.to_owned()));
            }
            let text = with_unit(last(name).unwrap_or(f64::NAN), data.unit(name));
            Some((name.to_owned(), text, name.to_owned()))
        })
        .collect()
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, view: &View) {
    let window = data.history.window(view.range());
    let panels = panels(data);
    let columns = (area.width / PANEL_WIDTH).clamp(1, 5);
    let rows = (panels.len() as u16).div_ceil(columns);
    let as_lines = columns == 1 || area.height < 8 + 2 * PANEL_HEIGHT;
    let top_height = if as_lines {
        area.height.saturating_sub(panels.len() as u16).clamp(area.height.min(6), area.height.min(12))
    } else {
        let wanted = rows * PANEL_HEIGHT;
        area.height.saturating_sub(wanted).clamp(area.height.min(8), area.height * 3 / 5)
    };
    let [top, bottom] = Layout::vertical([Constraint::Length(top_height), Constraint::Min(0)]).areas(area);
    // Where no episodes are played, the first number that a run is judged by.
    let headline = HEADLINES.iter().find(|(name, _)| data.history.last(name).is_some()).unwrap_or(&HEADLINES[0]);
    let points = data.history.points(headline.0, window.clone(), 2 * usize::from(top.width));
    chart(frame, top, headline.1, &[(String::new(), points)]);
    if as_lines {
        let lines = Layout::vertical((0..bottom.height).map(|_| Constraint::Length(1))).split(bottom);
        for ((name, value, metric), line) in panels.iter().zip(lines.iter()) {
            let points = data.history.points(metric, window.clone(), usize::from(line.width.saturating_sub(39)));
            line_panel(frame, *line, name, value, &points);
        }
        return;
    }
    let fitting = (bottom.height / PANEL_HEIGHT).min(rows).max(1);
    let lines = Layout::vertical((0..fitting).map(|_| Constraint::Fill(1))).split(bottom);
    let cells = lines.iter().flat_map(|line| {
        let cells = Layout::horizontal((0..columns).map(|_| Constraint::Fill(1))).split(*line);
        cells.iter().copied().collect::<Vec<_>>()
    });
    for ((name, value, metric), cell) in panels.iter().zip(cells) {
        let points = data.history.points(metric, window.clone(), usize::from(cell.width.saturating_sub(2)));
        panel(frame, cell, name, value, &points);
    }
}
