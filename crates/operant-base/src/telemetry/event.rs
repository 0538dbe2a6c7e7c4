//! What happens in a run besides numbers: its life cycle, and alerts.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::alerts::Rule;

/// How much an event matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    #[default]
    Info,
    /// Worth a look.
    Warning,
    /// Something is broken.
    Error,
}

impl Severity {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Error];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

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
    /// What the seeds of a growing network are worth, when one of them is kept or taken out.
    Worth,
    /// The gradient of a seed became far smaller or larger than that of its host.
    GradientAnomaly,
    /// An episode of growth ended: what grew, and what it reached.
    Outcome,
    /// Anything else worth a line.
    Note,
}

impl EventKind {
    const PLAIN: [(Self, &str); 14] = [
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
        (Self::Worth, "worth"),
        (Self::GradientAnomaly, "gradient_anomaly"),
        (Self::Outcome, "outcome"),
        (Self::Note, "note"),
    ];

    /// Names of kinds without what follows a slash.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::PLAIN.into_iter().map(|(_, name)| name).chain(["alert", "cleared"])
    }

    /// How much events of this kind matter.
    pub fn severity(self) -> Severity {
        match self {
            Self::Diverged | Self::SinkFailed | Self::Alert(Rule::NonFinite) => Severity::Error,
            Self::Alert(_) | Self::Stopped | Self::Rollback | Self::GradientAnomaly => Severity::Warning,
            _ => Severity::Info,
        }
    }

    /// What it is about: the run, its alerts, or what grows.
    pub fn topic(self) -> &'static str {
        match self {
            Self::Alert(_) | Self::Cleared(_) => "alerts",
            Self::Lifecycle | Self::Rollback | Self::Worth | Self::GradientAnomaly | Self::Outcome => "growth",
            _ => "run",
        }
    }

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
    fn kinds_say_how_much_they_matter() {
        let names: Vec<&str> = EventKind::names().collect();
        for rule in Rule::ALL {
            assert!(EventKind::Alert(rule).severity() >= Severity::Warning, "{}", rule.name());
            assert_eq!(EventKind::Cleared(rule).severity(), Severity::Info);
        }
        assert!(EventKind::Diverged.severity() > EventKind::Rollback.severity());
        assert!(names.contains(&"alert") && names.contains(&"worth") && EventKind::Worth.topic() == "growth");
        assert_eq!((EventKind::Started.topic(), EventKind::Cleared(Rule::KlBlowUp).topic()), ("run", "alerts"));
        assert!(Severity::ALL.is_sorted());
    }

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
