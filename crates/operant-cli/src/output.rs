//! How verbs talk: text for people, JSON for machines, one line for what went wrong.

use operant::Error;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Why a verb failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Words that make no sense: exit code 2.
    Usage(String),
    /// Work that could not be done: exit code 1.
    Run(String),
}

impl Failure {
    /// The same, said of one of several.
    pub(crate) fn of(self, whom: &str) -> Self {
        match self {
            Self::Usage(text) => Self::Usage(format!("{whom}: {text}")),
            Self::Run(text) => Self::Run(format!("{whom}: {text}")),
        }
    }
}

impl From<Error> for Failure {
    /// An engine error that reaches a verb before its work begins is about the words given to it, unless it is about files or a GPU.
    fn from(error: Error) -> Self {
        match error {
            Error::Io(text)
            | Error::Saved(text)
            | Error::Diverged(text)
            | Error::Device(text)
            | Error::DeviceFault(text) => Self::Run(text),
            other => Self::Usage(other.to_string()),
        }
    }
}

/// Prints to standard output. A reader that went away (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Run(format!("standard output: {error}"))),
        _ => Ok(()),
    }
}

/// Writes a file that the user named, whole or not at all: beside it first. A link stays one, what is no file (a pipe, a device) is written to as it is,
/// and so is a file in a folder where nothing can be made.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    put_whole(path, bytes).map_err(|error| {
        Failure::Run(format!("can't write {}: {error}; name a file that you may write", path.display()))
    })
}

fn put_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, bytes);
    }
    let led_to = |to: PathBuf| path.parent().unwrap_or(Path::new("")).join(to);
    let target = path.canonicalize().or_else(|_| path.read_link().map(led_to)).unwrap_or_else(|_| path.to_owned());
    let permissions = match std::fs::OpenOptions::new().write(true).open(&target) {
        Ok(file) => Some(file.metadata()?.permissions()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let beside = target.with_extension(format!("{}.part", std::process::id()));
    let done = std::fs::write(&beside, bytes)
        .and_then(|()| permissions.clone().map_or(Ok(()), |mode| std::fs::set_permissions(&beside, mode)))
        .and_then(|()| std::fs::rename(&beside, &target));
    match done {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && permissions.is_some() => {
            std::fs::write(&target, bytes)
        }
        Err(error) => {
            let _ = std::fs::remove_file(&beside);
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

/// Says what went wrong and gives the exit code.
pub(crate) fn fail(message: &str, code: u8) -> ExitCode {
    // Standard error may be closed too; there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "error: {message}");
    ExitCode::from(code)
}

/// Says what went wrong without being fatal.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(std::io::stderr(), "warning: {message}");
}

/// A path as a shell takes it: in quotes where that is needed.
pub(crate) fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "_-./+=:,@%".contains(c);
    // A word that begins with a dash would be an option.
    let text = if text.starts_with('-') { format!("./{text}") } else { text };
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The largest number that may be written `2e6`.
const MOST_WRITTEN: f64 = 9.2e18;

/// A whole number that may be written `2e6`.
pub(crate) fn count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let float = text.parse::<f64>().ok();
    if float.is_some_and(|x| x < 0.0) {
        return Err(format!("{text} is negative: wanted 0 or more"));
    }
    let number = text.parse::<u64>().ok();
    if number.is_none() && float.is_some_and(|x| x > MOST_WRITTEN) {
        return Err(format!("{text} is too large: wanted at most {MOST_WRITTEN:e}"));
    }
    let number = number.or_else(|| float.filter(|x| x.fract() == 0.0).map(|x| x as u64));
    let number = number.ok_or_else(|| format!("\"{text}\" is not a whole number, such as 2000000 or 2e6"))?;
    T::try_from(number).map_err(|_| format!("{text} is too large"))
}

/// A whole number of at least 1, which may be written so.
pub(crate) fn at_least_one(text: &str) -> Result<u64, String> {
    match count(text) {
        Ok(0) => Err("0: wanted 1 or more".into()),
        Err(_) if text.parse::<f64>().is_ok_and(|x| x < 0.0) => Err(format!("{text} is negative: wanted 1 or more")),
        other => other,
    }
}

/// A whole number with thousands separated, as people read it.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 { format!("-{text}") } else { text }
}

/// Where files are named that nothing would read.
pub(crate) const NO_TASK_DATA: &str = "--task-data names files of growth's tasks cifar10 and bytes, and this has none of them; leave it out, or say --set env.task=cifar10 \
     or --set env.task=bytes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_can_be_typed_as_shown() {
        let shown = |path: &str| shell(Path::new(path));
        assert_eq!(shown("runs/ppo-cartpole-1-1"), "runs/ppo-cartpole-1-1");
        assert_eq!(shown("my runs/a"), "'my runs/a'");
        assert_eq!(shown("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shown("~/a"), "'~/a'");
        assert_eq!(shown("-a"), "./-a");
        assert_eq!(shown("läufe/1"), "läufe/1");
    }

    #[test]
    fn whole_numbers_are_read_and_others_refused() {
        assert_eq!((count::<u64>("2e6"), count::<u64>("18446744073709551615")), (Ok(2_000_000), Ok(u64::MAX)));
        assert_eq!(count::<u64>("-3"), Err("-3 is negative: wanted 0 or more".into()));
        assert_eq!(count::<u64>("1.5"), Err("\"1.5\" is not a whole number, such as 2000000 or 2e6".into()));
        assert_eq!(count::<u8>("256"), Err("256 is too large".into()));
        assert_eq!(count::<u64>("1e30"), Err("1e30 is too large: wanted at most 9.2e18".into()));
        assert_eq!(count::<u64>("inf"), Err("inf is too large: wanted at most 9.2e18".into()));
        assert_eq!(
            (at_least_one("1e3"), at_least_one("-1")),
            (Ok(1000), Err("-1 is negative: wanted 1 or more".into()))
        );
        assert_eq!(at_least_one("0"), Err("0: wanted 1 or more".into()));
    }

    #[test]
    fn groups_thousands() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(grouped(-1000.0), "-1,000");
    }
}
