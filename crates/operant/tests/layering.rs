//! Rooms in dependency order: a module uses only those before it. And unsafe code stays where it belongs.

use std::path::{Path, PathBuf};

/// Lowest first, as in ARCHITECTURE.md; rooms that do not exist yet have their place.
const ROOMS: [&str; 11] =
    ["error", "config", "telemetry", "lanes", "device", "nn", "data", "env", "search", "algo", "run"];

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

fn all() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    let relative = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
    found.iter().map(|path| (relative(path), std::fs::read_to_string(path).unwrap())).collect()
}

fn room(path: &str) -> &str {
    path.split('/').next().unwrap().trim_end_matches(".rs")
}

#[test]
fn rooms_use_only_lower_rooms() {
    let rank = |name: &str| ROOMS.iter().position(|room| *room == name);
    let (mut files, mut uses) = (0, 0);
    for (path, text) in all() {
        if path == "lib.rs" {
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
    assert!(files > 20 && uses > 30, "the test reads the sources ({files} files, {uses} uses)");
}

#[test]
fn unsafe_code_stays_in_its_places() {
    for (path, text) in all() {
        // A plan's executor hands out parts of one arena; what it relies on is held by `nn/plan/random_graphs.rs`.
        // The ring views a mapped file as atomic words.
        let files = ["lanes/dispatch.rs", "lanes/tiles.rs", "nn/plan/run.rs", "telemetry/ring.rs"];
        let allowed = path.starts_with("device/") || path.starts_with("lanes/avx") || files.contains(&path.as_str());
        assert!(allowed || !text.contains("allow(unsafe_code)"), "{path} allows unsafe code");
    }
}

#[test]
fn files_stay_readable() {
    for (path, text) in all() {
        assert!(text.lines().count() <= 800, "{path} has more than 800 lines: split it by meaning");
    }
}
