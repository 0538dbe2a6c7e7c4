//! `cargo xtask golden`: the golden data, made again by Gymnasium's own code; `golden nn`: by PyTorch's.

use crate::process::{execute, read, root};
use crate::{Failure, setup, unknown};
use std::collections::BTreeMap;
use std::path::Path;

const ENVS: &str = "crates/operant/tests/golden";
const NETWORKS: &str = "crates/operant-nn/tests/golden_nn";

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => changes(ENVS, |folder| {
            let venv = setup::packages()?;
            execute(venv.python().arg(folder.join("generate.py")).arg("--out").arg(folder))
        }),
        ["nn"] => changes(NETWORKS, |folder| {
            let venv = setup::peers()?;
            let mut scripts = contents(folder)?.into_keys().filter(|name| name.ends_with(".py"));
            // Sums on several threads have other last bits.
            scripts.try_for_each(|name| {
                println!("== {name}");
                execute(venv.python().env("OMP_NUM_THREADS", "1").arg(folder.join(name)))
            })
        }),
        [word, ..] => Err(Failure::Usage(unknown("golden data", word, ["nn"].into_iter()))),
    }
}

/// Makes data again, and tells which files are others now.
fn changes(name: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), Failure> {
    let folder = root().join(name);
    let before = contents(&folder)?;
    make(&folder)?;
    let after = contents(&folder)?;
    let mut changes = 0;
    for file in before.keys().chain(after.keys().filter(|file| !before.contains_key(*file))) {
        let what = match (before.get(file), after.get(file)) {
            (None, _) => "added",
            (_, None) => "removed",
            (Some(old), Some(new)) if old != new => "changed",
            _ => continue,
        };
        println!("{what}: {name}/{file}");
        changes += 1;
    }
    if changes == 0 {
        println!("no file changed ({} files in {name})", after.len());
    }
    Ok(())
}

/// The files of a folder by name.
fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    files.map(|entry| Ok((entry.file_name().to_string_lossy().into_owned(), read(&entry.path())?))).collect()
}
