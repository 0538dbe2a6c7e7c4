//! What may begin in a folder: one run, or one batch of runs, but never one where the other lies.

use super::{Checkpoints, Lock, Run, replace_file};
use operant_base::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file that makes a folder that of a batch: how many seeds, and the settings of the first.
pub const BATCH: &str = "batch.toml";
/// Files that make a folder that of a run.
pub const RUN_FILES: [&str; 3] = ["run.toml", "live.ring", "metrics.jsonl"];
/// Time in which a process that only looks whether a folder is in use gives it back.
const LOOK: Duration = Duration::from_millis(100);

/// A batch's folder, in which no other process runs as long as this lives.
pub struct BatchLock {
    _lock: Lock,
}

impl BatchLock {
    /// Makes a batch's folder with its settings; refuses one in which something lies.
    pub fn begin(folder: &Path, settings: &str) -> Result<Self> {
        Self::check_free(folder)?;
        std::fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, &error))?;
        let held = Self::hold(folder)?;
        // Again, now that no other process can come between.
        Self::check_free(folder)?;
        replace_file(&folder.join(BATCH), settings.as_bytes())?;
        Ok(held)
    }

    /// Refuses a folder in which a batch or a run lies.
    pub fn check_free(folder: &Path) -> Result<()> {
        let shown = folder.display();
        if folder.join(BATCH).exists() {
            return Err(Error::Invalid(format!(
                "{shown} holds a batch already: operant train --resume {shown} goes on with it; or name another folder"
            )));
        }
        match RUN_FILES.iter().find(|name| folder.join(name).exists()) {
            Some(name) => Err(Error::Invalid(format!(
                "{shown} holds a run ({name}), which a batch of several seeds would hide; name another folder for the batch"
            ))),
            None => Ok(()),
        }
    }

    /// Holds the folder of a batch that goes on.
    pub fn hold(folder: &Path) -> Result<Self> {
        let begun = Instant::now();
        loop {
            match Lock::take(folder) {
                Ok(lock) => return Ok(Self { _lock: lock }),
                Err(error) if begun.elapsed() > LOOK => return Err(error),
                Err(_) => std::thread::sleep(LOOK / 10),
            }
        }
    }
}

/// Whether a process runs in a folder now; false where the file system has no locks.
pub fn in_use(folder: &Path) -> bool {
    let file = std::fs::File::open(folder.join("run.lock"));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}

impl Run {
    /// Whether a new run can begin in a folder: one that never came to a checkpoint is in nobody's way, a batch is.
    pub fn check_free(folder: &Path) -> Result<()> {
        check_no_batch(folder)?;
        if folder.join("run.toml").exists() && !Checkpoints::new(folder, 1).list().is_empty() {
            let folder = folder.display();
            return Err(Error::Invalid(format!("{folder} holds a run already; resume it or name another folder")));
        }
        Ok(())
    }

    /// The same for a run that is no seed of a batch: those have the folders in a batch's folder to themselves.
    pub fn check_free_alone(folder: &Path) -> Result<()> {
        Self::check_free(folder)?;
        if !folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seed-")) {
            return Ok(());
        }
        match std::path::absolute(folder).ok().as_deref().and_then(Path::parent) {
            Some(above) if above.join(BATCH).exists() => Err(Error::Invalid(format!(
                "{} lies in {}, which holds a batch ({BATCH}) and would take the run for one of its seeds; name another folder",
                folder.display(),
                above.display()
            ))),
            _ => Ok(()),
        }
    }
}

/// Runs of a batch that a message names.
const NAMED: usize = 4;

/// Says of a batch's folder that one run is wanted, and which ones there are.
pub(super) fn not_one_run(folder: &Path) -> String {
    let shown = folder.display();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let seed_of = |path: &Path| path.file_name()?.to_str()?.strip_prefix("seed-")?.parse::<u64>().ok();
    let begun = |path: &Path| RUN_FILES.iter().any(|name| path.join(name).exists());
    let runs = entries.map(|entry| entry.path()).filter(|path| begun(path));
    let mut runs: Vec<(u64, PathBuf)> = runs.filter_map(|path| Some((seed_of(&path)?, path))).collect();
    runs.sort();
    let names: Vec<String> = runs.iter().take(NAMED).map(|(_, path)| path.display().to_string()).collect();
    let more = match runs.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match names.is_empty() {
        true => format!(
            "{shown} holds a batch of runs ({BATCH}), none of which has begun; operant train --resume {shown} trains it"
        ),
        false => format!(
            "{shown} holds a batch of runs ({BATCH}); name one of them: {}{more} (operant runs --dir {shown})",
            names.join(", ")
        ),
    }
}

/// Refuses a folder with a batch in it for what belongs to one run.
pub fn check_no_batch(folder: &Path) -> Result<()> {
    if !folder.join(BATCH).exists() {
        return Ok(());
    }
    let shown = folder.display();
    Err(Error::Invalid(format!(
        "{shown} holds a batch of runs ({BATCH}), which a single run there would hide; name another folder, or go on with \
         the batch: operant train --resume {shown}"
    )))
}
