//! How verbs talk: text for people, JSON for machines, one line for what went wrong.

use operant::Error;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Why a verb failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Words that make no sense: exit code 2.
    Usage(String),
    /// Work that could not be done: exit code 1.
    Run(String),
}

impl From<Error> for Failure {
    /// An engine error that reaches a verb before its work begins is about the words given to it, unless it is about files or a GPU.
    fn from(error: Error) -> Self {
        match error {
            Error::Io(text) | Error::Saved(text) | Error::Diverged(text) | Error::Device(text) => Self::Run(text),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_thousands() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(grouped(-1000.0), "-1,000");
    }
}
