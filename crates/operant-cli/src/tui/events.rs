//! What happened: the run's life cycle and its alerts, newest at the bottom.

use super::Data;
use super::view::View;
use super::widgets::DIM;
use crate::format::duration;
use crate::output::grouped;
use operant::telemetry::{Event, EventKind, unix_time};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};
use std::collections::BTreeSet;

fn style(kind: EventKind) -> Style {
    match kind {
        EventKind::Alert(_) | EventKind::Diverged | EventKind::SinkFailed => Style::new().fg(Color::Red),
        EventKind::Stopped => Style::new().fg(Color::Yellow),
        EventKind::Solved | EventKind::Finished | EventKind::Cleared(_) => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

/// A kind's name, without what follows a slash.
fn group(event: &Event) -> String {
    let name = event.kind.to_string();
    name.split('/').next().unwrap_or_default().to_owned()
}

/// The kind after this one among those that there are, in the order of their names; none after the last.
pub(super) fn next_kind(data: &Data, now: Option<&str>) -> Option<String> {
    let kinds: BTreeSet<String> = data.events.iter().map(group).collect();
    kinds.into_iter().find(|kind| now.is_none_or(|now| kind.as_str() > now))
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, view: &View) {
    let alerts = data.events.iter().filter(|event| matches!(event.kind, EventKind::Alert(_))).count();
    let shown = |event: &&Event| view.only.as_ref().is_none_or(|only| group(event) == *only);
    let events: Vec<&Event> = data.events.iter().filter(shown).collect();
    let title = match &view.only {
        None => format!(" events: {}, of these alerts: {alerts} ", events.len()),
        Some(only) => format!(" events of kind {only}: {} of {} ", events.len(), data.events.len()),
    };
    let block = Block::bordered().title(title);
    if events.is_empty() {
        return frame.render_widget(Paragraph::new("nothing yet").centered().block(block), area);
    }
    let visible = usize::from(area.height.saturating_sub(2)).max(1);
    let last = events.len().saturating_sub(view.scroll).max(visible.min(events.len()));
    let now = unix_time();
    let lines = events[last.saturating_sub(visible)..last].iter().map(|event| {
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
