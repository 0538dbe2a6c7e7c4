//! Crates and rooms in dependency order: each uses only those before it. And unsafe code stays where it belongs.

use std::path::{Path, PathBuf};

/// The crates below this one, lowest first, as in ARCHITECTURE.md, each with those that it may use.
const CRATES: [(&str, &[&str]); 11] = [
    ("operant-base", &[]),
    ("operant-lanes", &["operant-base"]),
    ("operant-device", &["operant-base", "operant-lanes"]),
    ("operant-nn", &["operant-base", "operant-lanes", "operant-device"]),
    ("operant-env", &["operant-base", "operant-lanes", "operant-device"]),
    ("operant-rl", &["operant-base", "operant-lanes", "operant-device", "operant-nn", "operant-env"]),
    // Workloads, none of which knows another.
    ("operant-envs", &["operant-base", "operant-lanes", "operant-env"]),
    ("operant-field", &["operant-base", "operant-lanes", "operant-device", "operant-nn"]),
    ("operant-growth", &["operant-base", "operant-lanes", "operant-device", "operant-nn", "operant-env"]),
    ("operant-cubes", &["operant-base", "operant-lanes", "operant-device", "operant-nn", "operant-env", "operant-rl"]),
    ("operant-games", &["operant-base", "operant-lanes", "operant-device", "operant-nn", "operant-env", "operant-rl"]),
];
/// Crates that every workload may use.
const SHARED: usize = 6;
/// Words that only workloads know, and the files of shared crates that still do.
const WORKLOADS: [&str; 9] =
    ["growth", "backgammon", "connect4", "cube2", "cube3", "davi", "alphazero", "twenty48", "\"td\""];
const KNOWING: [&str; 3] =
    ["operant-base/config/aliases.rs", "operant-base/telemetry/cut.rs", "operant-base/telemetry/event.rs"];
/// The rooms of `operant-rl`, lowest first.
const ROOMS: [&str; 3] = ["data", "algo", "run"];
/// Largest number of lines of a crate's sources, and those that still have more.
const LINES: usize = 20_000;
const LARGER: [&str; 1] = ["operant-nn"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "cu") {
            found.push(path);
        }
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The sources of a crate, by their paths below its `src`.
fn of(name: &str) -> Vec<(String, String)> {
    let root = crates().join(name).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    let relative = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
    found.iter().map(|path| (relative(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// The sources of the whole engine, by their paths below `crates`.
fn all() -> Vec<(String, String)> {
    let names = CRATES.iter().map(|(name, _)| *name).chain(["operant"]);
    names.flat_map(|name| of(name).into_iter().map(move |(path, text)| (format!("{name}/{path}"), text))).collect()
}

fn room(path: &str) -> &str {
    path.split('/').next().unwrap().trim_end_matches(".rs")
}

#[test]
fn crates_use_only_those_below() {
    for (name, uses) in CRATES {
        let manifest = std::fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let needed = manifest.split("[dev-dependencies]").next().unwrap();
        let ours = needed.lines().filter_map(|line| line.split_once(".workspace").map(|(name, _)| name));
        let mut ours: Vec<&str> = ours.filter(|name| name.starts_with("operant")).collect();
        let mut wanted = uses.to_vec();
        ours.sort();
        wanted.sort();
        assert_eq!(ours, wanted, "{name}: give what it uses a place in CRATES and in ARCHITECTURE.md");
    }
}

#[test]
fn rooms_use_only_lower_rooms() {
    let rank = |name: &str| ROOMS.iter().position(|room| *room == name);
    let (mut files, mut uses) = (0, 0);
    for (path, text) in of("operant-rl") {
        if ["lib.rs", "catalogue.rs"].contains(&path.as_str()) {
            continue;
        }
        let own = rank(room(&path))
            .unwrap_or_else(|| panic!("{path}: give its room a place in ROOMS and in ARCHITECTURE.md"));
        files += 1;
        for (at, _) in text.match_indices("crate::") {
            let used = &text[at + 7..];
            // `crate::{a::…, b}` names several rooms: every word in the braces is looked at.
            let used = if used.starts_with('{') {
                &used[..used.find('}').unwrap()]
            } else {
                used.split([':', ';', '(', ' ']).next().unwrap()
            };
            for name in used.split(|c: char| !c.is_alphanumeric() && c != '_') {
                if let Some(other) = rank(name) {
                    uses += 1;
                    assert!(other <= own, "{path} uses crate::{name}, a room above its own");
                }
            }
        }
    }
    assert!(files > 20 && uses > 20, "the test reads the sources ({files} files, {uses} uses)");
}

/// A word of code; comments may name a workload as an example.
fn is_said(text: &str, word: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.match_indices(word).map(move |(at, _)| (line, at))).any(|(line, at)| {
        let beside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !beside(line[..at].chars().next_back()) && !beside(line[at + word.len()..].chars().next())
    })
}

#[test]
fn shared_crates_know_no_workload() {
    let mut knowing = Vec::new();
    for (name, _) in &CRATES[..SHARED] {
        for (path, text) in of(name) {
            if WORKLOADS.iter().any(|word| is_said(&text, word)) {
                knowing.push(format!("{name}/{path}"));
            }
        }
    }
    knowing.sort();
    assert_eq!(knowing, KNOWING, "what belongs to one workload is for its own crate");
}

#[test]
fn crates_stay_small() {
    for (name, _) in CRATES {
        let lines: usize = of(name).iter().map(|(_, text)| text.lines().count()).sum();
        assert!(
            lines <= LINES || LARGER.contains(&name),
            "{name} has {lines} lines, more than {LINES}: split it by meaning"
        );
        assert!(lines > LINES || !LARGER.contains(&name), "{name} is no longer larger: take it out of LARGER");
    }
}

#[test]
fn unsafe_code_stays_in_its_places() {
    for (path, text) in all() {
        // A plan's executor hands out parts of one arena; what it relies on is held by `operant-nn/src/plan/random_graphs.rs`.
        // The ring views a mapped file as atomic words.
        let files = [
            "operant-lanes/dispatch.rs",
            "operant-lanes/tiles.rs",
            "operant-nn/plan/run.rs",
            "operant-base/telemetry/ring.rs",
        ];
        let folders = ["operant-device/", "operant-lanes/avx"];
        let allowed = folders.iter().any(|folder| path.starts_with(folder)) || files.contains(&path.as_str());
        assert!(allowed || !text.contains("allow(unsafe_code)"), "{path} allows unsafe code");
    }
}

#[test]
fn files_stay_readable() {
    for (path, text) in all() {
        assert!(text.lines().count() <= 800, "{path} has more than 800 lines: split it by meaning");
    }
}
