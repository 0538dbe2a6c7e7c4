//! What an env is, as data: names, spaces, limits. One place feeds the command line, Python, the docs and the tests.

use super::{MOST, Place, Unfit};
use operant_base::{Error, Result};

/// One number of an observation or of a continuous action.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// What it is, with its unit where it has one.
    pub name: String,
    /// Smallest value; may be −∞.
    pub low: f32,
    /// Largest value; may be ∞.
    pub high: f32,
    /// Whether it is the number of one of many entries, and no amount.
    pub entry: bool,
}

impl Channel {
    /// A channel between two bounds.
    pub fn new(name: impl Into<String>, low: f32, high: f32) -> Self {
        Self { name: name.into(), low, high, entry: false }
    }

    /// The number of one of so many entries.
    pub fn entry(name: impl Into<String>, entries: usize) -> Self {
        Self { entry: true, ..Self::new(name, 0.0, (entries - 1) as f32) }
    }

    /// A channel between −`high` and `high`.
    pub fn symmetric(name: impl Into<String>, high: f32) -> Self {
        Self::new(name, -high, high)
    }
}

/// What an agent may do.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionSpace {
    /// One choice of 0..n.
    Discrete(usize),
    /// Several choices, the i-th of 0..n\[i\].
    MultiDiscrete(Heads),
    /// Real numbers; an env clips what lies outside.
    Box(Vec<Channel>),
}

/// Several choices made at once: how many each has, their names, and which of them matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heads {
    sizes: Vec<usize>,
    names: &'static [&'static str],
    matter: &'static [u32],
}

impl Heads {
    /// Heads of these sizes by name. Where the first head chose i, only those matter whose bits are set in `matter[i]` (head k
    /// is bit k): an env is promised to look at no others, and a learner gives them neither credit nor blame.
    pub fn causal(sizes: Vec<usize>, names: &'static [&'static str], matter: &'static [u32]) -> Self {
        assert!(
            sizes.len() == names.len() && sizes.first() == Some(&matter.len()),
            "a name per head, a word per choice"
        );
        Self { sizes, names, matter }
    }

    /// Names of heads; none where they have none.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Whether a head matters where the first head chose `first`.
    pub fn matters(&self, first: usize, head: usize) -> bool {
        self.matter.get(first).is_none_or(|heads| heads >> head & 1 == 1)
    }
}

impl From<Vec<usize>> for Heads {
    /// Heads without names that always matter.
    fn from(sizes: Vec<usize>) -> Self {
        Self { sizes, names: &[], matter: &[] }
    }
}

impl std::ops::Deref for Heads {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.sizes
    }
}

impl ActionSpace {
    /// Numbers per action.
    pub fn dims(&self) -> usize {
        match self {
            Self::Discrete(_) => 1,
            Self::MultiDiscrete(choices) => choices.len(),
            Self::Box(channels) => channels.len(),
        }
    }

    /// Entries of an action mask: all choices of all dimensions, one after another; none for real numbers.
    pub fn choices(&self) -> usize {
        match self {
            Self::Discrete(n) => *n,
            Self::MultiDiscrete(choices) => choices.iter().sum(),
            Self::Box(_) => 0,
        }
    }
}

/// What an env is. It may depend on the env's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Short name: lower case, the name of its file and config.
    pub name: &'static str,
    /// Gymnasium's id, or `operant/…` where Gymnasium has none.
    pub id: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Where its rules come from.
    pub reference: &'static str,
    /// Observation, one channel per number.
    pub observation: Vec<Channel>,
    /// Action.
    pub action: ActionSpace,
    /// Whether some actions may be illegal in some states: then `legal` rows are written.
    pub masked: bool,
    /// Steps after which an episode is truncated.
    pub time_limit: Option<u32>,
    /// Mean return over 100 episodes that counts as solved.
    pub solved_at: Option<f32>,
    /// Frames per second of its picture; 0 if it draws none.
    pub render_fps: u32,
}

impl Spec {
    /// Whether a parameter that was set leaves everything that callers know as it was (the time limit is theirs).
    pub fn check_unchanged(&self, changed: &Spec, param: &str) -> Result<()> {
        if (Spec { time_limit: self.time_limit, ..changed.clone() }) == *self {
            Ok(())
        } else {
            Err(Error::Invalid(format!(
                "parameter {param} changes the spec of {}; build a new vector env with it",
                self.name
            )))
        }
    }

    /// What is wrong with a number of such an env that nothing can be learned from.
    pub fn complaint(&self, unfit: &Unfit) -> String {
        let Unfit { step, env, place, value } = unfit;
        let of = |j: &usize| self.observation.get(*j).map_or(String::new(), |channel| format!(" ({})", channel.name));
        let (what, next) = match place {
            Place::Reward => ("the reward".into(), "step"),
            Place::Observation(j) => (format!("observation {j}{}", of(j)), "reset, step or observe"),
            Place::LastObservation(j) => (format!("last observation {j}{}", of(j)), "step or observe"),
        };
        format!(
            "{}: {what} of env {env} is {value} at step {step}; wanted a finite number of at most {MOST:e} in size; mend the env's {next}",
            self.name
        )
    }

    /// Bytes of a legal row: one per choice if the spec is masked, else none.
    pub fn legal_width(&self) -> usize {
        if self.masked { self.action.choices() } else { 0 }
    }
}
