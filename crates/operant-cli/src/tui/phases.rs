//! Where the time of an iteration goes: collecting, learning, all else.

use super::Data;
use super::view::View;
use super::widgets::{COLOURS, Series, chart};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, view: &View) {
    let window = data.history.window(view.range());
    let phases: Vec<&str> = data.group("time/").collect();
    let [top, bottom] = Layout::vertical([Constraint::Length(phases.len() as u16 + 2), Constraint::Min(0)]).areas(area);
    let bar_width = usize::from(area.width.saturating_sub(34)).max(1);
    let lines = phases.iter().enumerate().map(|(i, name)| {
        let values = data.history.column(name).unwrap_or_default();
        let known: Vec<f64> = window.clone().map(|i| values[i]).filter(|value| value.is_finite()).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let full = ((mean * bar_width as f64).round().max(0.0) as usize).min(bar_width);
        let newest = data.history.last(name).unwrap_or(f64::NAN);
        Line::from(vec![
            Span::raw(format!("{:10} {:5.1} %  ", name.trim_start_matches("time/"), 100.0 * mean)),
            Span::styled("█".repeat(full), Style::new().fg(COLOURS[i % COLOURS.len()])),
            Span::raw(format!("{} now {:5.1} %", "░".repeat(bar_width - full), 100.0 * newest)),
        ])
    });
    let block = Block::bordered().title(" share of time, mean over the range ");
    let text = if phases.is_empty() { vec![Line::from("not reported by this run")] } else { lines.collect() };
    frame.render_widget(Paragraph::new(text).block(block), top);
    let limit = 2 * usize::from(area.width);
    let series: Vec<Series> = phases
        .iter()
        .map(|name| {
            let mut points = data.history.points(name, window.clone(), limit);
            points.iter_mut().for_each(|point| point.1 *= 100.0);
            (name.trim_start_matches("time/").to_owned(), points)
        })
        .collect();
    chart(frame, bottom, "% of time", &series);
}
