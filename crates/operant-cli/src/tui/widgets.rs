//! Pieces that screens share: line charts, panels with a small graph, colours.

use crate::format::number;
use crate::run_folder::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Sparkline};

/// For what is not the matter.
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// Colours of lines in one chart.
pub(super) const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Blue, Color::Red];

/// For what the eye should find.
pub(super) fn accent() -> Style {
    Style::new().fg(Color::Cyan)
}

pub(super) fn status_style(status: Status) -> Style {
    Style::new().fg(match status {
        Status::Running => Color::Green,
        Status::Finished => Color::Cyan,
        Status::Stopped => Color::Yellow,
        Status::Diverged | Status::Crashed => Color::Red,
    })
}

/// A line of a chart: its name and points.
pub(super) type Series = (String, Vec<(f64, f64)>);

/// Smallest and largest of finite numbers, a little apart; 0 to 1 if there are none.
pub(super) fn bounds(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return [0.0, 1.0];
    }
    let margin = if high > low { 0.03 * (high - low) } else { 0.05 * high.abs().max(1e-9) };
    [low - margin, high + margin]
}

/// Lines over steps, with their newest values in the title.
pub(super) fn chart(frame: &mut Frame<'_>, area: Rect, title: &str, series: &[Series]) {
    let mut spans = vec![Span::raw(format!(" {title} "))];
    for (i, (name, points)) in series.iter().enumerate() {
        let newest = points.last().map_or(f64::NAN, |point| point.1);
        let gap = if name.is_empty() { "" } else { " " };
        let style = Style::new().fg(COLOURS[i % COLOURS.len()]);
        spans.push(Span::styled(format!("{name}{gap}{} ", number(newest)), style));
    }
    let block = Block::bordered().title(Line::from(spans));
    let all = || series.iter().flat_map(|(_, points)| points);
    if all().next().is_none() {
        frame.render_widget(Paragraph::new("not known yet").centered().style(DIM).block(block), area);
        return;
    }
    let (first, last) =
        all().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), point| (a.min(point.0), b.max(point.0)));
    let y = bounds(all().map(|point| point.1));
    let datasets = series.iter().enumerate().map(|(i, (_, points))| {
        let style = Style::new().fg(COLOURS[i % COLOURS.len()]);
        Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).style(style).data(points)
    });
    let label = |value: f64| Span::styled(number(value), DIM);
    let x_axis = Axis::default().bounds([first, last.max(first + 1.0)]).labels([label(first), label(last)]).style(DIM);
    let y_axis = Axis::default().bounds(y).labels([label(y[0]), label(y[1])]).style(DIM);
    let chart = Chart::new(datasets.collect()).block(block).x_axis(x_axis).y_axis(y_axis).legend_position(None);
    frame.render_widget(chart, area);
}

/// Heights of bars for a graph: the smallest value is 1, the largest `top`.
pub(super) fn heights(points: &[(f64, f64)], top: u64) -> Vec<u64> {
    let (low, high) = points
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), point| (low.min(point.1), high.max(point.1)));
    // Means of equal numbers differ by rounding; that is no movement.
    let moves = high - low > 1e-9 * high.abs().max(low.abs());
    let height = |value: f64| if moves { (value - low) / (high - low) } else { 0.5 };
    points.iter().map(|point| 1 + (height(point.1) * (top - 1) as f64).round() as u64).collect()
}

/// A framed graph of one metric with its newest value in the title.
pub(super) fn panel(frame: &mut Frame<'_>, area: Rect, name: &str, value: &str, points: &[(f64, f64)]) {
    let title = Line::from(vec![
        Span::raw(format!(" {name} ")),
        Span::styled(format!("{value} "), accent().add_modifier(Modifier::BOLD)),
    ]);
    let block = Block::bordered().title(title);
    let bars = heights(points, 64);
    frame.render_widget(Sparkline::default().block(block).data(&bars).max(64).style(accent()), area);
}

/// The same on one line, where there is little room.
pub(super) fn line_panel(frame: &mut Frame<'_>, area: Rect, name: &str, value: &str, points: &[(f64, f64)]) {
    let [label, number, graph] =
        Layout::horizontal([Constraint::Length(19), Constraint::Length(20), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(name), label);
    frame.render_widget(Paragraph::new(value).style(accent()), number);
    let bars = heights(points, 8);
    frame.render_widget(Sparkline::default().data(&bars).max(8).style(DIM), graph);
}
