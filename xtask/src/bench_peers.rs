//! `cargo xtask bench-peers`: Operant beside other libraries, in one run on one machine. `env` compares environments,
//! `nn` networks, `ppo` training; what all need is here.
//!
//! Every measurement is its own process on one thread. Repeats are interleaved, so that a busy minute falls on every
//! library, and the best repeat counts.

use crate::process::{cargo, execute, find_program, target, write};
use crate::{Failure, bench_envs, bench_nets, bench_ppo, unknown};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is compared: the first word, environments where there is none.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    match words.split_first() {
        Some((first, rest)) if first == "env" => bench_envs::run(rest),
        Some((first, rest)) if first == "nn" => bench_nets::run(rest),
        Some((first, rest)) if first == "ppo" => bench_ppo::run(rest),
        Some((first, _)) if !first.starts_with('-') => {
            Err(Failure::Usage(unknown("comparison", first, ["env", "nn", "ppo"].into_iter())))
        }
        _ => bench_envs::run(words),
    }
}

pub(crate) struct Settings {
    pub(crate) seconds: f64,
    pub(crate) reps: usize,
    /// Places in the list of libraries.
    pub(crate) libraries: Vec<usize>,
    /// Places in the list of what else can be chosen: networks, recipes.
    pub(crate) choices: Vec<usize>,
    pub(crate) json: Option<PathBuf>,
}

/// What the flags of a comparison may say.
pub(crate) struct Flags<'a> {
    pub(crate) libraries: &'a [&'a str],
    /// Of a repeat, where nothing is said.
    pub(crate) seconds: f64,
    /// What else can be chosen: the flag, what one is called, all of them.
    pub(crate) choice: Option<(&'a str, &'a str, &'a [&'a str])>,
}

pub(crate) fn parse(words: &[String], allowed: &Flags<'_>) -> Result<Settings, Failure> {
    let (choice_flag, choice_kind, choices) = allowed.choice.unwrap_or_default();
    let mut settings = Settings {
        seconds: allowed.seconds,
        reps: 3,
        libraries: (0..allowed.libraries.len()).collect(),
        choices: (0..choices.len()).collect(),
        json: None,
    };
    let mut flags = vec!["--seconds", "--reps", "--only", "--json"];
    flags.extend(allowed.choice.map(|_| choice_flag));
    let mut words = words.iter();
    while let Some(flag) = words.next() {
        if !flags.contains(&flag.as_str()) {
            return Err(Failure::Usage(unknown("flag", flag, flags.iter().copied())));
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
            "--only" => settings.libraries = places("library", value, allowed.libraries)?,
            _ => settings.choices = places(choice_kind, value, choices)?,
        }
    }
    Ok(settings)
}

/// Where the names of a list with commas are in `known`.
fn places(kind: &str, names: &str, known: &[&str]) -> Result<Vec<usize>, Failure> {
    let place = |name: &str| {
        let found = known.iter().position(|&known| known == name);
        found.ok_or_else(|| Failure::Usage(unknown(kind, name, known.iter().copied())))
    };
    names.split(',').map(place).collect()
}

/// Builds the release command line and says where it is.
pub(crate) fn build_ours() -> Result<PathBuf, String> {
    execute(&mut cargo(&["build", "--release", "--package", "operant-cli"]))?;
    Ok(target().join("release").join(format!("operant{}", std::env::consts::EXE_SUFFIX)))
}

/// The CPU to measure on, where processes can be pinned.
pub(crate) fn measuring_cpu() -> Option<usize> {
    find_program("taskset").and_then(|_| last_cpu())
}

/// The last CPU that this process may use: the first ones serve interrupts.
fn last_cpu() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    allowed.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// A command on one CPU and with one thread in every library that reads these variables.
pub(crate) fn pinned(program: &Path, cpu: Option<usize>) -> Command {
    let mut command = match cpu {
        Some(cpu) => {
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", &cpu.to_string()]).arg(program);
            command
        }
        None => Command::new(program),
    };
    for name in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"] {
        command.env(name, "1");
    }
    command.env("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false").env("JAX_PLATFORMS", "cpu");
    command
}

/// The value of a key in one flat JSON object that holds no escapes, without its quotes.
pub(crate) fn field<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{key}\":"))?;
    let rest = rest.trim_start();
    match rest.strip_prefix('"') {
        Some(text) => text.split('"').next(),
        None => rest.split([',', '}']).next().map(str::trim),
    }
}

/// Under what a table was measured.
pub(crate) type Conditions = Vec<(&'static str, String)>;

pub(crate) fn conditions(
    settings: &Settings,
    cpu: Option<usize>,
    machine: Option<String>,
    versions: BTreeSet<String>,
) -> Conditions {
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
    conditions
}

/// Prints the table and writes it as JSON where that was asked for.
pub(crate) fn publish(settings: &Settings, text: &str, json: &str) -> Result<(), Failure> {
    println!("\n{text}");
    match &settings.json {
        Some(path) => Ok(write(path, json)?),
        None => Ok(()),
    }
}

/// The conditions as lines above a table.
pub(crate) fn header(conditions: &[(&str, String)]) -> String {
    conditions.iter().fold(String::new(), |mut text, (name, value)| {
        _ = writeln!(text, "{:<14} {value}", format!("{name}:"));
        text
    })
}

/// A table as one JSON object; the rows are JSON already.
pub(crate) fn json_document(conditions: &[(&str, String)], rows: &[String], notes: &[String]) -> String {
    let conditions: Vec<String> =
        conditions.iter().map(|(name, value)| format!("    {}: {}", quoted(name), quoted(value))).collect();
    let notes: Vec<String> = notes.iter().map(|note| format!("    {}", quoted(note))).collect();
    let list = |lines: &[String], open, close| match lines {
        [] => format!("{open}{close}"),
        _ => format!("{open}\n{}\n  {close}", lines.join(",\n")),
    };
    format!(
        "{{\n  \"conditions\": {},\n  \"rows\": {},\n  \"notes\": {}\n}}\n",
        list(&conditions, '{', '}'),
        list(rows, '[', ']'),
        list(&notes, '[', ']')
    )
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if u32::from(c) < 0x20 => _ = write!(quoted, "\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

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
    fn reads_flags() {
        let choice = Some(("--nets", "network", &["x", "y"][..]));
        let flags = Flags { libraries: &["a", "b", "c"], seconds: 0.5, choice };
        let parsed = parse(&words("--reps 2 --only c,a --nets y --seconds 0.25"), &flags);
        let settings = parsed.unwrap_or_else(|_| panic!("refused"));
        assert_eq!((settings.reps, settings.seconds), (2, 0.25));
        assert_eq!((settings.libraries, settings.choices), (vec![2, 0], vec![1]));
        let parsed = parse(&[], &flags).unwrap_or_else(|_| panic!("refused"));
        assert_eq!((parsed.libraries, parsed.choices, parsed.seconds), (vec![0, 1, 2], vec![0, 1], 0.5));
    }

    #[test]
    fn refuses_flags() {
        let refused = |text: &str, nets: &[&str]| {
            let choice = (!nets.is_empty()).then_some(("--nets", "network", nets));
            match parse(&words(text), &Flags { libraries: &["torch"], seconds: 0.5, choice }) {
                Err(Failure::Usage(message)) => message,
                _ => panic!("{text} was taken"),
            }
        };
        assert!(refused("--only torhc", &["x"]).contains("did you mean \"torch\"?"));
        assert!(refused("--nets y", &["x"]).contains("unknown network \"y\""));
        assert!(refused("--nets y", &[]).contains("unknown flag \"--nets\""));
        assert!(refused("--reps 0", &["x"]).contains("wanted 1..=100"));
        assert!(refused("--json", &["x"]).contains("wants a value"));
    }

    #[test]
    fn knows_its_comparisons() {
        let Err(Failure::Usage(message)) = run(&words("mn")) else { panic!("taken") };
        assert!(message.contains("did you mean \"nn\"?"), "{message}");
    }
}
