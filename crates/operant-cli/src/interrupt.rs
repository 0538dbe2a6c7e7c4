//! Ctrl-C, SIGTERM and SIGHUP while a run goes on: the first asks it to stop after its iteration, the second ends it at once.
//!
//! Invariant: the process never ends while a checkpoint or a small file of the run is being written.

use crate::output::{Failure, shell};
use crate::run_folder::{RUNS, RunFolder};
use operant::run::{Checkpoints, pause_writing};
use operant::telemetry::{Event, EventKind, append_event};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Signals closer than this are one: `timeout` sends two, to the process and to its group.
const SAME: Duration = Duration::from_millis(100);
/// How long the end waits for a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a shell expects of a process that Ctrl-C ended.
const EXIT_CODE: i32 = 130;

/// What the user has asked for so far.
pub(crate) struct Interrupt {
    stop: Arc<AtomicBool>,
    folders: Arc<Mutex<Vec<PathBuf>>>,
}

impl Interrupt {
    /// Listens from now on; `silent` where another part of the program has the screen.
    pub(crate) fn listen(silent: bool) -> Result<Self, Failure> {
        let (stop, folders) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let own = Self { stop: Arc::clone(&stop), folders: Arc::clone(&folders) };
        let mut first = None;
        let handler = move || {
            // A run that the monitor's screen was asked to stop has been asked once.
            let asked = stop.swap(true, Ordering::Relaxed);
            let now = Instant::now();
            let first = *first.get_or_insert(now);
            let folders: Vec<PathBuf> = folders.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match &folders[..] {
                [_, ..] if !asked => say(&stopping(&folders), silent),
                [_, ..] if first != now && now - first < SAME => {}
                folders => {
                    let _whole = pause_writing(PATIENCE);
                    folders.iter().for_each(|folder| note(folder));
                    if !folders.is_empty() {
                        say(&stopped(folders), silent);
                    }
                    std::process::exit(EXIT_CODE);
                }
            }
        };
        ctrlc::set_handler(handler).map_err(|error| Failure::Run(format!("can't listen for Ctrl-C: {error}")))?;
        Ok(own)
    }

    /// Whether to stop, for others to set too.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Notes that a run goes on in this folder, and in no other; before, there is nothing to save.
    pub(crate) fn run_in(&self, folder: &Path) {
        *self.folders.lock().unwrap_or_else(PoisonError::into_inner) = vec![folder.to_owned()];
    }

    /// Notes that a run goes on in this folder too.
    pub(crate) fn also_in(&self, folder: &Path) {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).push(folder.to_owned());
    }

    /// Notes that no run goes on in this folder any more.
    pub(crate) fn out_of(&self, folder: &Path) {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| other != folder);
    }
}

/// Notes in the run's events that it was stopped, for who looks at it later.
fn note(folder: &Path) {
    let told = RunFolder::find(&folder.display().to_string(), Path::new(RUNS)).ok().and_then(|run| run.last_sample());
    let step = told.and_then(|sample| sample.get("step")?.as_u64()).unwrap_or(0);
    // There is nobody left to tell of a disk that does not take it.
    let _ = append_event(folder, &Event::now(EventKind::Stopped, step, "at once, by a second signal"));
}

fn last_checkpoint(folder: &Path) -> Option<String> {
    Checkpoints::new(folder, 1).list().pop()
}

fn stopping(folders: &[PathBuf]) -> String {
    let kept = match folders {
        [folder] => {
            last_checkpoint(folder).map_or("there is no checkpoint yet".into(), |name| format!("{name} is kept"))
        }
        several => format!("the last checkpoints of {} runs are kept", several.len()),
    };
    format!("stopping after this iteration; Ctrl-C again stops at once ({kept})")
}

fn stopped(folders: &[PathBuf]) -> String {
    let [folder] = folders else {
        let batch = folders.first().and_then(|folder| folder.parent()).unwrap_or(Path::new("."));
        return format!("stopped at once: last checkpoints are kept\nnext: operant train --resume {}", shell(batch));
    };
    match last_checkpoint(folder) {
        Some(name) => format!("stopped at once: {name} is kept\nnext: operant train --resume {}", shell(folder)),
        None => "stopped at once, before the first checkpoint".into(),
    }
}

/// Says it in place of the progress line, which is drawn again below.
fn say(text: &str, silent: bool) {
    if silent {
        return;
    }
    let mut out = std::io::stderr();
    let clear = if out.is_terminal() { "\r\x1b[K" } else { "" };
    // Standard error may be closed; there is nobody left to tell.
    let _ = out.write_all(format!("{clear}{text}\n").as_bytes());
}
