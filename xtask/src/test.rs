//! `cargo xtask test`: everything that must hold, in stages. A stage that fails does not keep later ones from
//! running, and the last line is the count: `N passed, N failed, N skipped`.

use crate::process::{cargo, execute, root, target, watch};
use crate::tally::Tally;
use crate::venv::Venv;
use crate::{Failure, setup, unknown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Exit code of pytest when no test has a name that matches.
const PYTEST_NONE_COLLECTED: i32 = 5;

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let (flags, filters): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.starts_with('-'));
    if let Some(flag) = flags.iter().find(|flag| **flag != "--peers") {
        return Err(Failure::Usage(unknown("flag", flag, std::iter::once("--peers"))));
    }
    let filters: Vec<&str> = filters.into_iter().map(String::as_str).collect();
    let mut stages = Stages::default();

    let python = stages.run("setup", || {
        let venv = setup::packages()?;
        let wheel = setup::wheel(&venv)?;
        setup::install(&venv, &wheel)?;
        Ok((Tally::default(), Python { venv, wheel }))
    });
    if filters.is_empty() {
        stages.run("cargo fmt", || Ok((Tally::default(), execute(&mut cargo(&["fmt", "--all", "--check"]))?)));
        stages.run("cargo clippy", || {
            let words = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            Ok((Tally::default(), execute(&mut cargo(&words))?))
        });
    }
    if filters.is_empty() {
        stages.run("the engine as other CPUs have it", || {
            let words = ["check", "--package", "operant", "--all-targets", "--target-dir"];
            let mut check = cargo(&words);
            check.arg(target().join("portable")).env("RUSTFLAGS", "--cfg operant_portable -D warnings");
            Ok((Tally::default(), execute(&mut check)?))
        });
    }
    stages.run("cargo test", || {
        let words = ["test", "--workspace", "--no-fail-fast", "--"];
        let mut test = cargo(&words);
        if let Some(python) = &python {
            // Where the tests find the compiler of kernels.
            test.env("VIRTUAL_ENV", python.venv.folder());
        }
        count(test.args(&filters), Tally::of_cargo, &[0])
    });
    if filters.is_empty() && Command::new("chromium").arg("--version").output().is_ok() {
        stages.run("pages in a browser", || {
            let words = ["test", "--workspace", "--test", "serving", "--", "--ignored"];
            count(&mut cargo(&words), Tally::of_cargo, &[0])
        });
    }
    match &python {
        Some(python) => {
            if filters.is_empty() {
                stages.run("wheel in a clean environment", || Ok((Tally::default(), smoke(&python.wheel)?)));
            }
            stages.run("pytest", || pytest(&python.venv, "crates/operant-py/tests", &filters));
            if !flags.is_empty() {
                stages.run("pytest, peers", || {
                    let venv = setup::peers()?;
                    setup::install(&venv, &python.wheel)?;
                    pytest(&venv, "crates/operant-py/tests/peers", &filters)
                });
            }
        }
        None => println!("the Python stages need the wheel: not run"),
    }
    stages.close()
}

/// What the Python stages work with.
struct Python {
    venv: Venv,
    wheel: PathBuf,
}

/// Installs the wheel and what it depends on where nothing else is, and steps an env there.
fn smoke(wheel: &Path) -> Result<(), String> {
    let venv = Venv::fresh(".venv-clean")?;
    venv.pip(&[wheel])?;
    // Isolated, and away from the root: only what is installed can be imported.
    execute(venv.python().arg("-I").arg(root().join("xtask/smoke.py")).current_dir(venv.folder()))
}

fn pytest(venv: &Venv, folder: &str, filters: &[&str]) -> Result<(Tally, ()), String> {
    let mut command = venv.python();
    command.args(["-m", "pytest", "-ra", "--color=no"]).arg(folder);
    // Peer tests run only when their own folder is asked for.
    if !folder.ends_with("/peers") {
        command.arg(format!("--ignore={folder}/peers"));
    }
    // Where tests that compare with the command line find it.
    command.env("CARGO_TARGET_DIR", target());
    if filters.is_empty() {
        return count(&mut command, Tally::of_pytest, &[0]);
    }
    count(command.arg("-k").arg(filters.join(" or ")), Tally::of_pytest, &[0, PYTEST_NONE_COLLECTED])
}

/// Runs a command that counts tests; the counts survive its failure.
pub(crate) fn count(
    command: &mut Command,
    read: fn(&str) -> Option<Tally>,
    good: &[i32],
) -> Result<(Tally, ()), String> {
    let mut tally = Tally::default();
    let code = watch(command, |line| tally += read(line).unwrap_or_default())?;
    // A failure without a failed test (a compile error, say) must still show in the count.
    if !code.is_some_and(|code| good.contains(&code)) {
        tally.failed = tally.failed.max(1);
    }
    Ok((tally, ()))
}

struct Stage {
    name: &'static str,
    seconds: f64,
    tally: Tally,
    error: Option<String>,
}

#[derive(Default)]
struct Stages(Vec<Stage>);

impl Stages {
    /// Runs one stage. An error counts as one failure.
    fn run<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<(Tally, T), String>) -> Option<T> {
        println!("\n== {name}");
        let start = Instant::now();
        let (tally, value, error) = match work() {
            Ok((tally, value)) => (tally, Some(value), None),
            Err(error) => {
                println!("error: {error}");
                (Tally { failed: 1, ..Tally::default() }, None, Some(error))
            }
        };
        self.0.push(Stage { name, seconds: start.elapsed().as_secs_f64(), tally, error });
        value
    }

    /// Prints the summary, the count on its last line.
    fn close(self) -> Result<(), Failure> {
        println!("\n{:<34} {:>8}  result", "stage", "seconds");
        let mut total = Tally::default();
        for Stage { name, seconds, tally, error } in &self.0 {
            let result = match error {
                Some(error) => format!("failed: {error}"),
                None if *tally == Tally::default() => "ok".to_owned(),
                None => tally.to_string(),
            };
            println!("{name:<34} {seconds:>8.1}  {result}");
            total += *tally;
        }
        println!("{total}");
        if total.failed == 0 { Ok(()) } else { Err(Failure::Told) }
    }
}
