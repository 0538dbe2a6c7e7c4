//! What happened: the run's life cycle, its alerts and what grew, newest at the bottom; all of it, or what a filter leaves.

use super::Data;
use super::view::View;
use super::widgets::DIM;
use crate::format::duration;
use crate::growth_log;
use crate::output::grouped;
use operant::telemetry::{Event, EventKind, Severity, unix_time};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};
use std::collections::BTreeSet;

/// Which events are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// The kind that is shown alone, by its name before a slash.
    kind: Option<String>,
    /// The least severity.
    least: Severity,
    /// The env that is shown alone.
    env: Option<usize>,
}

impl Filter {
    fn keeps(&self, event: &Event) -> bool {
        self.kind.as_ref().is_none_or(|kind| group(event) == *kind)
            && event.kind.severity() >= self.least
            && (self.env.is_none() || env(event) == self.env)
    }

    /// On to the next kind of those that there are, in the order of their names; all after the last.
    pub(super) fn next_kind(&mut self, data: &Data) {
        let kinds: BTreeSet<String> = data.events.iter().map(group).collect();
        self.kind = kinds.into_iter().find(|kind| self.kind.as_ref().is_none_or(|now| kind > now));
    }

    /// On to what is more severe; all after errors.
    pub(super) fn next_severity(&mut self) {
        self.least = Severity::ALL.into_iter().find(|severity| *severity > self.least).unwrap_or_default();
    }

    /// On to the next env of those that events tell of; all after the last.
    pub(super) fn next_env(&mut self, data: &Data) {
        let envs: BTreeSet<usize> = data.events.iter().filter_map(env).collect();
        self.env = envs.into_iter().find(|env| self.env.is_none_or(|now| *env > now));
    }

    /// What it leaves, in words; nothing where it leaves all.
    fn words(&self) -> String {
        let kind = self.kind.iter().map(|kind| format!("of kind {kind}"));
        let least = (self.least > Severity::Info).then(|| format!("from {} on", self.least.name()));
        let env = self.env.map(|env| format!("of env {env}"));
        kind.chain(least).chain(env).collect::<Vec<_>>().join(", ")
    }
}

/// The env that an event tells of.
fn env(event: &Event) -> Option<usize> {
    growth_log::of_env(&event.text).map(|(env, _)| env)
}

fn style(kind: EventKind) -> Style {
    match kind {
        EventKind::Alert(_) | EventKind::Diverged | EventKind::SinkFailed => Style::new().fg(Color::Red),
        EventKind::Stopped | EventKind::Rollback | EventKind::GradientAnomaly => Style::new().fg(Color::Yellow),
        EventKind::Solved | EventKind::Finished | EventKind::Cleared(_) => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

/// A kind's name, without what follows a slash.
fn group(event: &Event) -> String {
    let name = event.kind.to_string();
    name.split('/').next().unwrap_or_default().to_owned()
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, view: &View) {
    let alerts = data.events.iter().filter(|event| matches!(event.kind, EventKind::Alert(_))).count();
    let events: Vec<&Event> = data.events.iter().filter(|event| view.filter.keeps(event)).collect();
    let words = view.filter.words();
    let title = if words.is_empty() {
        format!(" events: {}, of these alerts: {alerts} ", events.len())
    } else {
        format!(" events {words}: {} of {} ", events.len(), data.events.len())
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
