//! What happened: the run's life cycle and its alerts, newest at the bottom.

use super::Data;
use super::view::View;
use super::widgets::DIM;
use crate::format::duration;
use crate::output::grouped;
use operant::telemetry::{EventKind, unix_time};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

fn style(kind: EventKind) -> Style {
    match kind {
        EventKind::Alert(_) | EventKind::Diverged | EventKind::SinkFailed => Style::new().fg(Color::Red),
        EventKind::Stopped => Style::new().fg(Color::Yellow),
        EventKind::Solved | EventKind::Finished | EventKind::Cleared(_) => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, view: &View) {
    let alerts = data.events.iter().filter(|event| matches!(event.kind, EventKind::Alert(_))).count();
    let block = Block::bordered().title(format!(" events: {}, of these alerts: {alerts} ", data.events.len()));
    if data.events.is_empty() {
        return frame.render_widget(Paragraph::new("nothing yet").centered().block(block), area);
    }
    let visible = usize::from(area.height.saturating_sub(2)).max(1);
    let last = data.events.len().saturating_sub(view.scroll).max(visible.min(data.events.len()));
    let now = unix_time();
    let lines = data.events[last.saturating_sub(visible)..last].iter().map(|event| {
        let age = format!("{:>9} ago ", duration((now - event.unix_time).max(0.0)));
        Line::from(vec![
            Span::styled(age, DIM),
            Span::raw(format!("{:>13}  ", grouped(event.step as f64))),
            Span::styled(format!("{:24} ", event.kind.to_string()), style(event.kind)),
            Span::raw(event.text.clone()),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}
