//! `cargo xtask bench-peers env`: Operant's environments beside those of other libraries. The unit is steps per
//! CPU-second of the process.

use crate::bench_peers::{Flags, build_ours, conditions, field, measuring_cpu, parse, pinned, publish};
use crate::env_table::{Cell, Table};
use crate::process::{capture, read, root};
use crate::venv::Venv;
use crate::{Failure, setup};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const TASKS: [&str; 4] = ["CartPole", "MountainCar", "Pendulum", "Acrobot"];
pub(crate) const NUM_ENVS: [usize; 4] = [1, 64, 1024, 8192];

struct Library {
    name: &'static str,
    title: &'static str,
    home: Home,
}

/// Where a library is measured.
enum Home {
    /// The release build of the command line.
    Native,
    /// `.venv`, which has Gymnasium and our wheel.
    Ours,
    /// An environment of its own: peers want different versions of the same packages.
    Own(&'static [&'static str]),
    /// As `Own`, and its C is compiled by `xtask/peers/build_pufferlib.py`.
    Built(&'static [&'static str]),
}

const LIBRARIES: &[Library] = &[
    Library { name: "operant", title: "Operant, native", home: Home::Native },
    Library { name: "operant-py", title: "Operant, Python", home: Home::Ours },
    Library {
        name: "pufferlib",
        title: "PufferLib (C), Python",
        home: Home::Built(&["numpy<2", "gym==0.23.0", "gymnasium==0.29.1", "setuptools<80", "wheel"]),
    },
    Library { name: "gymnasium-vector", title: "Gymnasium NumPy vector", home: Home::Ours },
    Library { name: "gymnasium-sync", title: "Gymnasium SyncVectorEnv", home: Home::Ours },
    Library { name: "envpool", title: "EnvPool", home: Home::Own(&["envpool>=1"]) },
    Library { name: "gymnax", title: "gymnax (jit, scan)", home: Home::Own(&["gymnax>=0.0.9", "six"]) },
];

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let names: Vec<&str> = LIBRARIES.iter().map(|library| library.name).collect();
    let settings = parse(words, &Flags { libraries: &names, seconds: 0.5, choice: None })?;
    let mut notes = Vec::new();
    let mut ready = Vec::new();
    for library in settings.libraries.iter().map(|&index| &LIBRARIES[index]) {
        println!("== {}", library.name);
        match prepare(library) {
            Ok(bench) => ready.push((library, bench)),
            Err(reason) => {
                println!("not installed: {reason}");
                notes.push(format!("{}: not installed: {reason}", library.title));
            }
        }
    }
    let cpu = measuring_cpu();
    let mut table = Table::new(&TASKS, &ready.iter().map(|(library, _)| library.title).collect::<Vec<_>>());
    let (mut versions, mut failures) = (BTreeSet::new(), BTreeSet::new());
    let mut machine = None;
    for rep in 1..=settings.reps {
        for (t, task) in TASKS.iter().enumerate() {
            eprintln!("repeat {rep}/{}, {task}", settings.reps);
            for (l, (_, bench)) in ready.iter().enumerate() {
                for line in bench.measure(task, settings.seconds, cpu) {
                    match line {
                        Line::Version(version) => _ = versions.insert(version),
                        Line::Machine(text) => machine = Some(text),
                        Line::Row(n, cell) => table.offer(t, l, n, cell),
                        Line::Fail(what, reason) => {
                            // One note for each library and reason, with the first place where it failed.
                            if failures.insert((l, reason.clone())) {
                                notes.push(format!("{}, {task}{what}: {reason}", ready[l].0.title));
                            }
                        }
                    }
                }
            }
        }
    }
    let conditions = conditions(&settings, cpu, machine, versions);
    publish(&settings, &table.text(&conditions, &notes), &table.json(&conditions, &notes))
}

/// A library that is ready to be measured.
enum Bench {
    Native(PathBuf),
    Python { venv: Venv, name: &'static str, modules: Option<PathBuf> },
}

enum Line {
    Version(String),
    Machine(String),
    /// Number of envs and what was measured there.
    Row(usize, Cell),
    /// Where and why.
    Fail(String, String),
}

fn prepare(library: &Library) -> Result<Bench, String> {
    let own = |packages: &[&str]| {
        let venv = Venv::open(&format!(".venv-peers-{}", library.name))?;
        venv.once("packages", packages.join("\n").as_bytes(), || venv.pip(packages))?;
        Ok::<Venv, String>(venv)
    };
    let python = |venv, modules| Bench::Python { venv, name: library.name, modules };
    match library.home {
        Home::Native => Ok(Bench::Native(build_ours()?)),
        Home::Ours => {
            let venv = setup::packages()?;
            if library.name == "operant-py" {
                setup::install(&venv, &setup::wheel(&venv)?)?;
            }
            Ok(python(venv, None))
        }
        Home::Own(packages) => Ok(python(own(packages)?, None)),
        Home::Built(packages) => {
            let venv = own(packages)?;
            let script = root().join("xtask/peers/build_pufferlib.py");
            let modules = venv.folder().join("pufferlib");
            venv.once("build", &read(&script)?, || {
                println!("$ build_pufferlib.py");
                capture(venv.python().arg(&script).arg(&modules)).map(drop)
            })?;
            Ok(python(venv, Some(modules)))
        }
    }
}

impl Bench {
    /// One repeat of one task at every number of envs.
    fn measure(&self, task: &str, seconds: f64, cpu: Option<usize>) -> Vec<Line> {
        match self {
            Self::Native(program) => {
                NUM_ENVS.into_iter().flat_map(|n| native(program, task, n, seconds, cpu)).collect()
            }
            Self::Python { venv, name, modules } => {
                let mut command = pinned(&venv.program("python"), cpu);
                venv.activate(&mut command);
                if let Some(modules) = modules {
                    command.env("PYTHONPATH", modules);
                }
                let envs = NUM_ENVS.map(|n| n.to_string()).join(",");
                command.arg(root().join("xtask/peers/bench_envs.py")).args([name, task, "--envs", &envs]);
                // PufferLib leaves a link in the folder that it is imported in.
                command.args(["--seconds", &seconds.to_string()]).current_dir(venv.folder());
                match capture(&mut command) {
                    Ok(text) => text.lines().filter_map(line).collect(),
                    Err(reason) => vec![Line::Fail(String::new(), reason)],
                }
            }
        }
    }
}

fn native(program: &Path, task: &str, n: usize, seconds: f64, cpu: Option<usize>) -> Vec<Line> {
    let mut command = pinned(program, cpu);
    command.args(["bench", "env", &task.to_lowercase(), "--threads", "1", "--json"]);
    command.args(["--num-envs", &n.to_string(), "--seconds", &seconds.to_string()]);
    let text = match capture(&mut command) {
        Ok(text) => text,
        Err(reason) => return vec![Line::Fail(format!(" at {n}"), reason)],
    };
    let number = |key| field(&text, key).and_then(|value| value.parse::<f64>().ok());
    let (Some(per_cpu_s), Some(per_s)) = (number("steps_per_cpu_s"), number("steps_per_s")) else {
        return vec![Line::Fail(format!(" at {n}"), format!("no steps_per_cpu_s in {}", text.trim()))];
    };
    let cell = Cell { per_cpu_s, per_s, us_per_call: n as f64 * 1e6 / per_cpu_s };
    let machine = field(&text, "machine").map(|machine| Line::Machine(machine.to_owned()));
    machine.into_iter().chain([Line::Row(n, cell)]).collect()
}

/// A line of `bench_envs.py`. Libraries print lines of their own between ours; those are passed over.
fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split('\t').collect();
    match words[..] {
        ["version", version] => Some(Line::Version(version.to_owned())),
        ["row", n, per_cpu_s, per_s, us_per_call] => {
            let cell = Cell {
                per_cpu_s: per_cpu_s.parse().ok()?,
                per_s: per_s.parse().ok()?,
                us_per_call: us_per_call.parse().ok()?,
            };
            Some(Line::Row(n.parse().ok()?, cell))
        }
        ["fail", n, reason] => Some(Line::Fail(format!(" at {n}"), reason.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rows_and_passes_over_the_rest() {
        assert!(matches!(line("row\t64\t1e6\t9e5\t64.0"), Some(Line::Row(64, cell)) if cell.per_cpu_s == 1e6));
        assert!(matches!(line("fail\t64\tno such env"), Some(Line::Fail(at, _)) if at == " at 64"));
        assert!(line("Gym has been unmaintained since 2022").is_none());
    }
}
