//! The process: CPU, memory, GPU where there is one, the viewer's own losses, and the run's settings.

use super::Data;
use super::view::View;
use super::widgets::{DIM, chart};
use crate::format::{duration, with_unit};
use crate::run_folder::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, view: &View) {
    let wide = area.width >= 90;
    let [left, right] = if wide {
        Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(area)
    } else {
        Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(area)
    };
    let metrics: Vec<&str> = ["cpu", "rss"]
        .into_iter()
        .filter(|name| data.history.column(name).is_some())
        .chain(data.group("gpu/"))
        .collect();
    let [facts, charts] = Layout::vertical([Constraint::Length(5), Constraint::Min(0)]).areas(left);
    let newest = metrics
        .iter()
        .map(|name| format!("{} {}", name, with_unit(data.history.last(name).unwrap_or(f64::NAN), data.unit(name))));
    let pid = data.pid.map_or("not known".to_owned(), |pid| pid.to_string());
    let sign = if data.status == Status::Running {
        format!(" · last sign of life {} ago", duration(data.silence))
    } else {
        String::new()
    };
    let lines = vec![
        Line::from(format!("process {pid}{sign}")),
        Line::from(newest.collect::<Vec<_>>().join(" · ")),
        Line::from(format!("{} samples kept · {} missed", data.history.len(), data.missed)),
    ];
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" process ")), facts);
    let window = data.history.window(view.range());
    let rows = Layout::vertical(metrics.iter().map(|_| Constraint::Fill(1))).split(charts);
    for (name, row) in metrics.iter().zip(rows.iter()) {
        let mut points = data.history.points(name, window.clone(), 2 * usize::from(row.width));
        let title = if *name == "rss" { "memory in MiB" } else { name };
        if *name == "rss" {
            points.iter_mut().for_each(|point| point.1 /= 1024.0 * 1024.0);
        }
        chart(frame, *row, title, &[(String::new(), points)]);
    }
    let visible = usize::from(right.height.saturating_sub(2));
    let skip = view.scroll.min(data.settings.len().saturating_sub(visible));
    let settings = data
        .settings
        .iter()
        .skip(skip)
        .map(|(name, value)| Line::from(vec![Span::styled(format!("{name} "), DIM), Span::raw(value.clone())]));
    frame.render_widget(
        Paragraph::new(settings.collect::<Vec<_>>()).block(Block::bordered().title(" settings ")),
        right,
    );
}
