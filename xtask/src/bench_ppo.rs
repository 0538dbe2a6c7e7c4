//! `cargo xtask bench-peers ppo`: `operant bench ppo cartpole` beside JAX, PyTorch and PufferLib. The unit is env steps of
//! whole iterations per CPU-second of the process.

use crate::bench_peers::{Flags, build_ours, conditions, field, measuring_cpu, parse, pinned, publish};
use crate::ppo_table::{Cell, Table};
use crate::process::{capture, read, root};
use crate::venv::Venv;
use crate::{Failure, setup};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const RECIPES: [&str; 2] = ["purejaxrl", "puffer"];
/// Iterations take up to half a second.
const SECONDS: f64 = 3.0;

struct Library {
    name: &'static str,
    title: &'static str,
    home: Home,
}

/// Where a library is measured.
enum Home {
    /// The release build of the command line, at a precision.
    Native(&'static str),
    /// An environment of its own, the one that `bench-peers env` has for the same library.
    Gymnax(&'static [&'static str]),
    /// `.venv-peers`, which `cargo xtask test --peers` shares.
    Torch,
    /// An environment with torch, where PufferLib's C is compiled by `xtask/peers/build_pufferlib_trainer.py`.
    Puffer(&'static [&'static str]),
}

const LIBRARIES: &[Library] = &[
    Library { name: "operant", title: "Operant, f32", home: Home::Native("f32") },
    Library { name: "operant-bf16", title: "Operant, bf16", home: Home::Native("bf16") },
    Library { name: "jax", title: "JAX, PureJaxRL style", home: Home::Gymnax(&["gymnax>=0.0.9", "six"]) },
    Library { name: "torch", title: "PyTorch, CleanRL style", home: Home::Torch },
    Library {
        name: "pufferlib",
        title: "PufferLib",
        home: Home::Puffer(&[
            "numpy<2",
            "gym==0.23.0",
            "gymnasium==0.29.1",
            "setuptools<80",
            "wheel",
            "torch",
            "psutil",
            "rich",
            "rich_argparse",
            "heavyball",
        ]),
    },
];

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let names: Vec<&str> = LIBRARIES.iter().map(|library| library.name).collect();
    let flags = Flags { libraries: &names, seconds: SECONDS, choice: Some(("--recipes", "recipe", &RECIPES)) };
    let settings = parse(words, &flags)?;
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
    let recipes: Vec<&str> = settings.choices.iter().map(|&choice| RECIPES[choice]).collect();
    let titles: Vec<&str> = ready.iter().map(|(library, _)| library.title).collect();
    let ours: Vec<bool> = ready.iter().map(|(library, _)| matches!(library.home, Home::Native(_))).collect();
    let mut table = Table::new(&recipes, &titles, ours);
    let (mut versions, mut failures) = (BTreeSet::new(), BTreeSet::new());
    let mut machine = None;
    for rep in 1..=settings.reps {
        for (r, recipe) in recipes.iter().enumerate() {
            eprintln!("repeat {rep}/{}, {recipe}", settings.reps);
            for (l, (library, bench)) in ready.iter().enumerate() {
                for line in bench.measure(recipe, settings.seconds, cpu) {
                    match line {
                        Line::Version(version) => _ = versions.insert(version),
                        Line::Machine(text) => machine = Some(text),
                        Line::Row(cell) => table.offer(r, l, cell),
                        Line::Fail(reason) => {
                            // A failure is the same in every repeat.
                            if failures.insert((l, reason.clone())) {
                                notes.push(format!("{}, {recipe}: {reason}", library.title));
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
    Native(PathBuf, &'static str),
    Python { venv: Venv, name: &'static str, modules: Option<PathBuf> },
}

#[derive(Debug, PartialEq)]
enum Line {
    Version(String),
    Machine(String),
    Row(Cell),
    Fail(String),
}

fn prepare(library: &Library) -> Result<Bench, String> {
    let own = |name: &str, packages: &[&str]| {
        let venv = Venv::open(name)?;
        venv.once("packages", packages.join("\n").as_bytes(), || venv.pip(packages))?;
        Ok::<Venv, String>(venv)
    };
    let python = |venv, modules| Bench::Python { venv, name: library.name, modules };
    match library.home {
        Home::Native(precision) => Ok(Bench::Native(build_ours()?, precision)),
        Home::Gymnax(packages) => Ok(python(own(".venv-peers-gymnax", packages)?, None)),
        Home::Torch => Ok(python(setup::peers()?, None)),
        Home::Puffer(packages) => {
            let venv = own(".venv-peers-pufferlib-ppo", packages)?;
            let script = root().join("xtask/peers/build_pufferlib_trainer.py");
            let modules = venv.folder().join("pufferlib");
            venv.once("build", &read(&script)?, || {
                println!("$ build_pufferlib_trainer.py");
                capture(venv.python().arg(&script).arg(&modules)).map(drop)
            })?;
            Ok(python(venv, Some(modules)))
        }
    }
}

impl Bench {
    /// One repeat of one recipe.
    fn measure(&self, recipe: &str, seconds: f64, cpu: Option<usize>) -> Vec<Line> {
        match self {
            Self::Native(program, precision) => native(program, recipe, precision, seconds, cpu),
            Self::Python { venv, name, modules } => {
                let mut command = pinned(&venv.program("python"), cpu);
                venv.activate(&mut command);
                if let Some(modules) = modules {
                    command.env("PYTHONPATH", modules);
                }
                command.arg(root().join("xtask/peers/bench_ppo.py")).args([name, recipe]);
                // PufferLib leaves a link in the folder that it is imported in.
                command.args(["--seconds", &seconds.to_string()]).current_dir(venv.folder());
                match capture(&mut command) {
                    Ok(text) => text.lines().filter_map(line).collect(),
                    Err(reason) => vec![Line::Fail(reason)],
                }
            }
        }
    }
}

fn native(program: &Path, recipe: &str, precision: &str, seconds: f64, cpu: Option<usize>) -> Vec<Line> {
    let mut command = pinned(program, cpu);
    command.args(["bench", "ppo", "cartpole", "--threads", "1", "--json", "--no-solve", "--recipe", recipe]);
    command.args(["--precision", precision, "--seconds", &seconds.to_string()]);
    match capture(&mut command) {
        Ok(text) => ours(&text, precision),
        Err(reason) => vec![Line::Fail(reason)],
    }
}

/// What `operant bench ppo --json` said.
fn ours(json: &str, precision: &str) -> Vec<Line> {
    let machine = field(json, "machine").map(|text| Line::Machine(text.to_owned()));
    let number = |key| field(json, key).and_then(|value| value.parse::<f64>().ok());
    let line = match (number("sps_per_cpu_s"), number("sps")) {
        (Some(per_cpu_s), Some(per_s)) => Line::Row(Cell { per_cpu_s, per_s, way: precision.to_owned() }),
        _ => Line::Fail(format!("no sps_per_cpu_s in {}", json.trim())),
    };
    machine.into_iter().chain([line]).collect()
}

/// A line of `bench_ppo.py`. Libraries print lines of their own between ours; those are passed over.
fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split('\t').collect();
    match words[..] {
        ["version", version] => Some(Line::Version(version.to_owned())),
        ["row", per_cpu_s, per_s, way] => Some(Line::Row(Cell {
            per_cpu_s: per_cpu_s.parse().ok()?,
            per_s: per_s.parse().ok()?,
            way: way.to_owned(),
        })),
        ["fail", reason] => Some(Line::Fail(reason.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rows_and_passes_over_the_rest() {
        let cell = Cell { per_cpu_s: 131_000.5, per_s: 1e5, way: "one jit".to_owned() };
        assert_eq!(line("row\t131000.5\t1e5\tone jit"), Some(Line::Row(cell)));
        assert_eq!(line("fail\tno module"), Some(Line::Fail("no module".to_owned())));
        assert_eq!(line("WARNING: no GPU found"), None);
        assert_eq!(line("row\tfast\t1\t-"), None);
    }

    #[test]
    fn reads_ours() {
        let json = r#"{"recipe":"puffer","sps":90.0,"sps_per_cpu_s":100.0,"solved_s":null,"machine":"a CPU"}"#;
        let cell = Cell { per_cpu_s: 100.0, per_s: 90.0, way: "bf16".to_owned() };
        assert_eq!(ours(json, "bf16"), [Line::Machine("a CPU".to_owned()), Line::Row(cell)]);
        assert!(matches!(&ours("{}", "f32")[..], [Line::Fail(reason)] if reason.contains("sps_per_cpu_s")));
    }
}
