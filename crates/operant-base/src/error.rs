//! One error type for every edge of the engine. A message says what, got, wanted and the next step.

use std::fmt;
use std::path::Path;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by kind; the text is for the user as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A name that is not in a list: env, parameter, state column.
    Unknown(String),
    /// A value that breaks a stated rule.
    Invalid(String),
    /// Actions of the wrong shape, kind or range.
    Action(String),
    /// Saved bytes that do not fit or are damaged.
    Saved(String),
    /// A file or folder that cannot be read or written.
    Io(String),
    /// Envs that could not be stepped.
    Env(String),
    /// A GPU, or a library for it, that is missing or failed.
    Device(String),
    /// A kernel that broke its GPU's context: nothing in this process can use that GPU any more.
    DeviceFault(String),
    /// Training that met a number that is not finite.
    Diverged(String),
}

impl Error {
    /// `unknown <what> "<got>"; did you mean "<nearest>"? (<next step>)`.
    pub fn unknown<'a>(what: &str, got: &str, known: impl IntoIterator<Item = &'a str>, next_step: &str) -> Self {
        match nearest(got, known) {
            Some(near) => Self::Unknown(format!("unknown {what} \"{got}\"; did you mean \"{near}\"? ({next_step})")),
            None => Self::Unknown(format!("unknown {what} \"{got}\" ({next_step})")),
        }
    }

    /// `cannot <do> <path>: <what the system says>`.
    pub fn io(action: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::Io(format!("cannot {action} {}: {error}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unknown(text)
        | Self::Invalid(text)
        | Self::Action(text)
        | Self::Saved(text)
        | Self::Io(text)
        | Self::Env(text)
        | Self::Device(text)
        | Self::DeviceFault(text)
        | Self::Diverged(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Error {}

/// The known name with the fewest edits from `got`, if that is few enough to be a typing mistake.
pub fn nearest<'a>(got: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let got = got.to_lowercase();
    known
        .into_iter()
        .map(|name| (edits(&got, &name.to_lowercase()), name))
        .min_by_key(|&(edits, _)| edits)
        .filter(|&(edits, name)| edits <= 1 + name.chars().count().max(got.chars().count()).saturating_sub(1) / 3)
        .map(|(_, name)| name)
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let best = substituted.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_nearest_name() {
        let known = ["cartpole", "mountaincar", "pendulum"];
        let message = Error::unknown("env", "cartpol", known, "operant list").to_string();
        assert_eq!(message, "unknown env \"cartpol\"; did you mean \"cartpole\"? (operant list)");
        assert_eq!(nearest("Pendlum", known), Some("pendulum"));
        assert_eq!(nearest("zzzzzzzzzz", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!((nearest("pop", ["ppo", "dqn"]), nearest("foo", ["ppo", "dqn"])), (Some("ppo"), None));
    }
}
