//! `cargo xtask bench-peers`: Operant's environments beside those of other libraries, in one run on one machine.
//!
//! Every measurement is its own process on one thread. Repeats are interleaved, so that a busy minute falls on every
//! library, and the best repeat counts. The unit is steps per CPU-second of the process.

use crate::process::{capture, cargo, execute, find_program, read, root, target, write};
use crate::table::{Cell, Table};
use crate::venv::Venv;
use crate::{Failure, setup, unknown};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

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

struct Settings {
    seconds: f64,
    reps: usize,
    libraries: Vec<&'static Library>,
    json: Option<PathBuf>,
}

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let settings = parse(words)?;
    let mut notes = Vec::new();
    let mut ready = Vec::new();
    for library in &settings.libraries {
        println!("== {}", library.name);
        match prepare(library) {
            Ok(bench) => ready.push((*library, bench)),
            Err(reason) => {
                println!("not installed: {reason}");
                notes.push(format!("{}: not installed: {reason}", library.title));
            }
        }
    }
    let cpu = if find_program("taskset").is_some() { last_cpu() } else { None };
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
    let pinned = cpu.map_or("not pinned".to_owned(), |cpu| format!("pinned to CPU {cpu}"));
    let machine = machine.unwrap_or_else(|| format!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    let mut conditions = vec![
        ("machine", machine),
        ("measured", format!("best of {} interleaved repeats of {} s", settings.reps, settings.seconds)),
        ("threads", format!("1, {pinned}")),
        ("versions", versions.into_iter().collect::<Vec<_>>().join(", ")),
    ];
    if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
        let load = load.split(' ').next().unwrap_or_default().to_owned();
        conditions.push(("load average", format!("{load} at the end")));
    }
    println!("\n{}", table.text(&conditions, &notes));
    if let Some(path) = &settings.json {
        write(path, table.json(&conditions, &notes))?;
    }
    Ok(())
}

fn parse(words: &[String]) -> Result<Settings, Failure> {
    let mut settings = Settings { seconds: 0.5, reps: 3, libraries: LIBRARIES.iter().collect(), json: None };
    let mut words = words.iter();
    while let Some(flag) = words.next() {
        let flags = ["--seconds", "--reps", "--only", "--json"];
        if !flags.contains(&flag.as_str()) {
            return Err(Failure::Usage(unknown("flag", flag, flags.into_iter())));
        }
        let value = words.next().ok_or_else(|| Failure::Usage(format!("{flag} wants a value")))?;
        let wrong = |wanted| Failure::Usage(format!("{flag} {value}: wanted {wanted}"));
        match flag.as_str() {
            "--seconds" => {
                let seconds = value.parse().ok().filter(|s: &f64| *s > 0.0 && *s <= 3600.0);
                settings.seconds = seconds.ok_or_else(|| wrong("more than 0 and at most 3600"))?;
            }
            "--reps" => {
                let reps = value.parse().ok().filter(|r| (1..=100).contains(r));
                settings.reps = reps.ok_or_else(|| wrong("1..=100"))?;
            }
            "--json" => settings.json = Some(PathBuf::from(value)),
            _ => settings.libraries = value.split(',').map(library).collect::<Result<_, _>>()?,
        }
    }
    Ok(settings)
}

fn library(name: &str) -> Result<&'static Library, Failure> {
    let known = LIBRARIES.iter().map(|library| library.name);
    let found = LIBRARIES.iter().find(|library| library.name == name);
    found.ok_or_else(|| Failure::Usage(unknown("library", name, known)))
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
        Home::Native => {
            execute(&mut cargo(&["build", "--release", "--package", "operant-cli"]))?;
            Ok(Bench::Native(target().join("release").join(format!("operant{}", std::env::consts::EXE_SUFFIX))))
        }
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

/// The value of a key in one flat JSON object that holds no escapes, without its quotes.
fn field<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{key}\":"))?;
    let rest = rest.trim_start();
    match rest.strip_prefix('"') {
        Some(text) => text.split('"').next(),
        None => rest.split([',', '}']).next().map(str::trim),
    }
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

/// A command on one CPU and with one thread in every library that reads these variables.
fn pinned(program: &Path, cpu: Option<usize>) -> Command {
    let mut command = match cpu {
        Some(cpu) => {
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", &cpu.to_string()]).arg(program);
            command
        }
        None => Command::new(program),
    };
    for name in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
        command.env(name, "1");
    }
    command.env("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false").env("JAX_PLATFORMS", "cpu");
    command
}

/// The last CPU that this process may use: the first ones serve interrupts.
fn last_cpu() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    allowed.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields() {
        let json = r#"{"env":"cartpole","steps_per_cpu_s": 3.5e8,"machine":"a, b","last":1}"#;
        assert_eq!(field(json, "env"), Some("cartpole"));
        assert_eq!(field(json, "steps_per_cpu_s"), Some("3.5e8"));
        assert_eq!(field(json, "machine"), Some("a, b"));
        assert_eq!(field(json, "last"), Some("1"));
        assert_eq!(field(json, "steps_per_s"), None);
    }

    #[test]
    fn reads_rows_and_passes_over_the_rest() {
        assert!(matches!(line("row\t64\t1e6\t9e5\t64.0"), Some(Line::Row(64, cell)) if cell.per_cpu_s == 1e6));
        assert!(matches!(line("fail\t64\tno such env"), Some(Line::Fail(at, _)) if at == " at 64"));
        assert!(line("Gym has been unmaintained since 2022").is_none());
    }
}
