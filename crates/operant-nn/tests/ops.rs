//! Every op in the list passes the checks and is held to PyTorch where it has the like, and every file of ops is in the list.

mod torch;

use operant_nn::ops::OPS;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use torch::Golden;
use torch::covered::{COVERED, Held};

#[test]
fn every_op_passes_its_checks() {
    let wanted = std::env::var("OPERANT_OP").ok();
    let chosen = |name: &str| wanted.as_deref().is_none_or(|wanted| name.eq_ignore_ascii_case(wanted));
    assert!(OPS.iter().any(|entry| chosen(entry.name)), "OPERANT_OP={wanted:?}: no op has this name");
    let failures: Vec<String> = OPS
        .iter()
        .filter(|entry| chosen(entry.name))
        .filter_map(|entry| (entry.check)().err().map(|error| format!("{}: {error}", entry.name)))
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Files of Rust under a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn every_op_is_in_the_list() {
    let mut found = BTreeSet::new();
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let made = text.lines().filter(|line| line.starts_with("impl")).filter_map(|line| line.split_once(" Op for "));
        found.extend(made.map(|(_, name)| name.split([' ', '<']).next().unwrap().to_owned()));
    }
    // The layer of any cell; those of each are in the list.
    assert!(found.remove("Recurrent"));
    found.extend(["Lstm", "Gru"].map(str::to_owned));
    let listed: BTreeSet<String> = OPS.iter().map(|entry| entry.name.to_owned()).collect();
    assert_eq!(found, listed);
}

#[test]
fn every_file_of_ops_is_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "mod")
        .collect();
    let listed: BTreeSet<String> = OPS.iter().map(|entry| entry.file.to_owned()).collect();
    assert_eq!(files, listed);
}

/// That a case runs the op which it is said to hold, [`Golden::check`] sees to.
#[test]
fn every_op_has_a_golden_case_or_a_reason() {
    let ops: Vec<&str> = OPS.iter().map(|entry| entry.name).collect();
    let listed: BTreeSet<&str> = COVERED.iter().map(|(op, _)| *op).collect();
    assert_eq!((listed.len(), listed), (COVERED.len(), ops.into_iter().collect()));
    for (op, held) in COVERED {
        if let Held::Golden(file, case) = held {
            let cases = Golden::open(file).cases();
            assert!(cases.iter().any(|found| found == case), "{op}: no case {case} in {file}");
        }
    }
}
