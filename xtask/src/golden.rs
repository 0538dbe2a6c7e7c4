//! `cargo xtask golden`: the golden data, made again by Gymnasium's own code.

use crate::process::{execute, read, root};
use crate::{Failure, no_words, setup};
use std::collections::BTreeMap;
use std::path::Path;

const FOLDER: &str = "crates/operant/tests/golden";

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    no_words("golden", words)?;
    let venv = setup::packages()?;
    let folder = root().join(FOLDER);
    let before = contents(&folder)?;
    execute(venv.python().arg(folder.join("generate.py")).arg("--out").arg(&folder))?;
    let after = contents(&folder)?;
    let mut changes = 0;
    for name in before.keys().chain(after.keys().filter(|name| !before.contains_key(*name))) {
        let what = match (before.get(name), after.get(name)) {
            (None, _) => "added",
            (_, None) => "removed",
            (Some(old), Some(new)) if old != new => "changed",
            _ => continue,
        };
        println!("{what}: {FOLDER}/{name}");
        changes += 1;
    }
    if changes == 0 {
        println!("no file changed ({} files in {FOLDER})", after.len());
    }
    Ok(())
}

/// The files of a folder by name.
fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    files.map(|entry| Ok((entry.file_name().to_string_lossy().into_owned(), read(&entry.path())?))).collect()
}
