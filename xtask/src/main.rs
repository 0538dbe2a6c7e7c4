//! `cargo xtask <verb>`: set up, test and measure Operant. One file per verb, standard library only, so that the
//! first run compiles in about a second.

mod bench_envs;
mod bench_nets;
mod bench_peers;
mod bench_ppo;
mod dist;
mod env_table;
mod golden;
mod gpu;
mod net_table;
mod ppo_table;
mod process;
mod setup;
mod soak;
mod tally;
mod test;
mod timings;
mod venv;

use std::process::ExitCode;

/// Why a verb failed.
#[derive(Debug)]
enum Failure {
    /// Words that make no sense: exit code 2.
    Usage(String),
    /// Work that could not be done: exit code 1.
    Work(String),
    /// Work that could not be done and has been told: exit code 1.
    Told,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Work(message)
    }
}

struct Verb {
    name: &'static str,
    words: &'static str,
    does: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

const VERBS: &[Verb] = &[
    Verb {
        name: "setup",
        words: "",
        does: "create .venv, install the build and test packages, build the wheel and install it",
        run: setup::run,
    },
    Verb {
        name: "test",
        words: "[--peers] [--ecosystem] [filter...]",
        does: "set up, then format, lints, Rust tests, the wheel in a clean environment, Python tests; \
               --peers adds the tests that need torch and other large packages; \
               --ecosystem adds real uses together with other libraries, and writes the table in docs/ecosystem.md; \
               with filters, only the tests whose names contain one of them",
        run: test::run,
    },
    Verb {
        name: "bench-peers",
        words: "[env|nn|ppo] [--seconds S] [--reps R] [--only lib,...] [--nets net,...] [--recipes recipe,...] [--json FILE]",
        does: "measure Operant beside other libraries and print one table: env, its environments; \
               nn, its networks beside PyTorch, candle and burn (--nets takes some of them); \
               ppo, its training beside JAX, PyTorch and PufferLib (--recipes takes purejaxrl or puffer)",
        run: bench_peers::run,
    },
    Verb {
        name: "soak",
        words: "[--minutes M]",
        does: "train CartPole at full speed (10 minutes) while 20 viewers come and go, and check memory, events and speed",
        run: soak::run,
    },
    Verb {
        name: "gpu",
        words: "[--quick] [--json FILE] [--build DIR | --prebuilt DIR]",
        does: "run the tests and measurements that need an NVIDIA GPU, with a verdict per target; \
               --build only fills a folder with programs, to be run where there is no Rust: DIR/xtask gpu --prebuilt DIR",
        run: gpu::run,
    },
    Verb {
        name: "timings",
        words: "[release|tests] [--json FILE]",
        does: "measure how long builds take from nothing and after one file was changed: of the program, and of all tests",
        run: timings::run,
    },
    Verb {
        name: "dist",
        words: "[--out DIR]",
        does: "build what users install without a compiler: a wheel, and an archive of the command with install.sh; on Linux for \
               glibc 2.17; then try both where nothing else is",
        run: dist::run,
    },
    Verb {
        name: "golden",
        words: "[nn]",
        does: "regenerate the golden data from Gymnasium, or of networks (nn) from PyTorch in .venv-peers, and say which files \
               changed",
        run: golden::run,
    },
    Verb { name: "help", words: "", does: "show this list", run: help },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = match words.split_first() {
        None => ("help", &[][..]),
        Some((first, _)) if matches!(first.as_str(), "-h" | "--help") => ("help", &[][..]),
        Some((first, rest)) => (first.as_str(), rest),
    };
    let result = match VERBS.iter().find(|verb| verb.name == name) {
        Some(verb) => (verb.run)(rest),
        None => Err(Failure::Usage(unknown("verb", name, VERBS.iter().map(|verb| verb.name)))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("error: {message} (cargo xtask help)");
            ExitCode::from(2)
        }
        Err(Failure::Work(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(1)
        }
        Err(Failure::Told) => ExitCode::from(1),
    }
}

fn help(words: &[String]) -> Result<(), Failure> {
    no_words("help", words)?;
    println!("cargo xtask <verb>\n");
    for Verb { name, words, does, .. } in VERBS {
        println!("  {}\n      {does}", format!("{name} {words}").trim_end());
    }
    Ok(())
}

/// Refuses words given to a verb that takes none.
fn no_words(verb: &str, words: &[String]) -> Result<(), Failure> {
    match words.first() {
        None => Ok(()),
        Some(word) => Err(Failure::Usage(format!("{verb} takes no arguments, got \"{word}\""))),
    }
}

/// The message for a word that is none of `known`.
fn unknown<'a>(kind: &str, got: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = known.min_by_key(|name| distance(got, name)).expect("every list of words has one");
    format!("unknown {kind} \"{got}\"; did you mean \"{nearest}\"?")
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("test", "test"), 0);
        assert_eq!(distance("tets", "test"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("golde", "golden"), 1);
    }

    #[test]
    fn names_the_nearest_verb() {
        let message = unknown("verb", "setpu", VERBS.iter().map(|verb| verb.name));
        assert_eq!(message, "unknown verb \"setpu\"; did you mean \"setup\"?");
    }
}
