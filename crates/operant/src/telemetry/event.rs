//! What happens in a run besides numbers: its life cycle, and alerts.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::alerts::Rule;

/// The kind of an event; its name is what files hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The run began.
    Started,
    /// The run went on from a checkpoint.
    Resumed,
    /// A checkpoint was saved.
    Checkpoint,
    /// The env counts as solved.
    Solved,
    /// The run was stopped before its end.
    Stopped,
    /// The run came to its end.
    Finished,
    /// A number that must be finite was not; the run stopped.
    Diverged,
    /// A rule about metrics began to hold.
    Alert(Rule),
    /// A rule about metrics holds no longer.
    Cleared(Rule),
    /// A sink failed; the run goes on without it.
    SinkFailed,
    /// A seed of a growing network went from one stage of its life to another.
    Lifecycle,
    /// A host network was set back to its last good weights.
    Rollback,
    /// An episode of growth ended: what grew, and what it reached.
    Outcome,
    /// Anything else worth a line.
    Note,
}

impl EventKind {
    const PLAIN: [(Self, &str); 12] = [
        (Self::Started, "started"),
        (Self::Resumed, "resumed"),
        (Self::Checkpoint, "checkpoint"),
        (Self::Solved, "solved"),
        (Self::Stopped, "stopped"),
        (Self::Finished, "finished"),
        (Self::Diverged, "diverged"),
        (Self::SinkFailed, "sink_failed"),
        (Self::Lifecycle, "lifecycle"),
        (Self::Rollback, "rollback"),
        (Self::Outcome, "outcome"),
        (Self::Note, "note"),
    ];

    /// The kind of this name, as [`EventKind`] displays it.
    pub fn parse(name: &str) -> Option<Self> {
        match name.split_once('/') {
            Some(("alert", rule)) => Rule::parse(rule).map(Self::Alert),
            Some(("cleared", rule)) => Rule::parse(rule).map(Self::Cleared),
            _ => Self::PLAIN.iter().find(|(_, plain)| *plain == name).map(|(kind, _)| *kind),
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alert(rule) => write!(f, "alert/{}", rule.name()),
            Self::Cleared(rule) => write!(f, "cleared/{}", rule.name()),
            plain => f.write_str(Self::PLAIN.iter().find(|(kind, _)| kind == plain).map_or("note", |(_, name)| name)),
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What kind of thing.
    pub kind: EventKind,
    /// Env steps done when it happened.
    pub step: u64,
    /// When, in seconds since 1970.
    pub unix_time: f64,
    /// What people read.
    pub text: String,
}

impl Event {
    /// An event that happens now.
    pub fn now(kind: EventKind, step: u64, text: impl Into<String>) -> Self {
        Self { kind, step, unix_time: unix_time(), text: text.into() }
    }
}

/// Seconds since 1970.
pub fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let rules = Rule::ALL.into_iter().flat_map(|rule| [EventKind::Alert(rule), EventKind::Cleared(rule)]);
        let kinds: Vec<EventKind> = EventKind::PLAIN.into_iter().map(|(kind, _)| kind).chain(rules).collect();
        for kind in kinds {
            assert_eq!(EventKind::parse(&kind.to_string()), Some(kind));
        }
        assert_eq!(EventKind::parse("alert/boredom"), None);
        assert_eq!(EventKind::parse(""), None);
    }
}
