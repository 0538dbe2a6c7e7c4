//! `cargo xtask test`: everything that must hold, in stages. A stage that fails does not keep later ones from
//! running, and the last line is the count: `N passed, N failed, N skipped`.

use crate::process::{ENGINE, cargo, execute, root, target, watch};
use crate::tally::Tally;
use crate::venv::Venv;
use crate::{Failure, setup, unknown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Exit code of pytest when no test has a name that matches.
const PYTEST_NONE_COLLECTED: i32 = 5;
/// Tests of the Python package.
const TESTS: &str = "crates/operant-py/tests";

/// Python tests that need large packages, in a folder and an environment of their own.
struct More {
    flag: &'static str,
    stage: &'static str,
    folder: &'static str,
    packages: fn() -> Result<Venv, String>,
    /// The variable that names the page of documentation whose table the tests write, and that page.
    table: Option<(&'static str, &'static str)>,
}

const MORE: [More; 2] = [
    More { flag: "--peers", stage: "pytest, peers", folder: "peers", packages: setup::peers, table: None },
    More {
        flag: "--ecosystem",
        stage: "pytest, ecosystem",
        folder: "ecosystem",
        packages: setup::ecosystem,
        table: Some(("OPERANT_ECOSYSTEM_TABLE", "docs/ecosystem.md")),
    },
];

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let (flags, filters): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.starts_with('-'));
    if let Some(flag) = flags.iter().find(|flag| MORE.iter().all(|more| more.flag != **flag)) {
        return Err(Failure::Usage(unknown("flag", flag, MORE.iter().map(|more| more.flag))));
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
            let mut check = cargo(&["check", "--all-targets"]);
            check.args(ENGINE.iter().flat_map(|name| ["--package", name]));
            check
                .arg("--target-dir")
                .arg(target().join("portable"))
                .env("RUSTFLAGS", "--cfg operant_portable -D warnings");
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
            stages.run("pytest", || {
                let mut command = pytest(&python.venv, TESTS);
                // Their tests run only when they are asked for.
                command.args(MORE.iter().map(|more| format!("--ignore={TESTS}/{}", more.folder)));
                count_pytest(command, &filters)
            });
            for more in MORE.iter().filter(|more| flags.iter().any(|flag| *flag == more.flag)) {
                stages.run(more.stage, || {
                    let venv = (more.packages)()?;
                    setup::install(&venv, &python.wheel)?;
                    let mut command = pytest(&venv, &format!("{TESTS}/{}", more.folder));
                    if let (Some((variable, page)), true) = (more.table, filters.is_empty()) {
                        command.env(variable, root().join(page));
                    }
                    count_pytest(command, &filters)
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

/// The oldest release of Gymnasium that `pyproject.toml` allows.
const OLDEST_GYMNASIUM: &str = "gymnasium==1.1.1";

/// Installs the wheel and what it depends on where nothing else is, and steps an env there: with the newest Gymnasium and the oldest.
pub(crate) fn smoke(wheel: &Path) -> Result<(), String> {
    let venv = Venv::fresh(".venv-clean")?;
    venv.pip(&[wheel])?;
    // Isolated, and away from the root: only what is installed can be imported.
    let step = || execute(venv.python().arg("-I").arg(root().join("xtask/smoke.py")).current_dir(venv.folder()));
    step()?;
    venv.pip(&[Path::new(OLDEST_GYMNASIUM)])?;
    step()
}

fn pytest(venv: &Venv, folder: &str) -> Command {
    let mut command = venv.python();
    command.args(["-m", "pytest", "-ra", "--color=no"]).arg(folder);
    // Where tests that compare with the command line find it.
    command.env("CARGO_TARGET_DIR", target());
    command
}

fn count_pytest(mut command: Command, filters: &[&str]) -> Result<(Tally, ()), String> {
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
