//! Checkpoints: a folder of parts with a manifest of checksums, written beside and renamed, so that a run killed at any
//! moment leaves the last one whole.
//!
//! `ckpt/step-000000086016/` holds the parts and `manifest.json`; `ckpt/best` names the one with the best evaluation;
//! `ckpt/aside/` holds those that a run left behind when it last went on from an older one; while they are moved there,
//! `ckpt/branch` names the one that it goes on from, and later ones are no longer listed.

use super::folder::not_one_run;
use super::{BATCH, Score};
use crate::algo::Parts;
use operant_base::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

const MANIFEST: &str = "manifest.json";
const PREFIX: &str = "step-";
const ASIDE: &str = "aside";
/// Where checkpoints gather that will be [`ASIDE`] when all are there.
const ASIDE_NEXT: &str = "aside.new";
const BRANCH: &str = "branch";

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    /// Of this layout.
    version: u32,
    step: u64,
    mean_return: Option<f64>,
    /// What an evaluation of its weights came to, if there was one.
    #[serde(default)]
    evaluation: Option<Score>,
    /// Whether it was the best of its run when it was saved.
    #[serde(default)]
    is_best: bool,
    /// Size and checksum of every part.
    parts: BTreeMap<String, (u64, String)>,
}

/// What is noted about a checkpoint, and how it is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    /// Mean return over the last episodes, or the score of an algorithm that plays none.
    pub mean_return: Option<f64>,
    /// What an evaluation of its weights came to.
    pub evaluation: Option<Score>,
    /// Whether it is the best so far.
    pub is_best: bool,
    /// Whether to wait until the disk has it.
    pub synced: bool,
}

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
}

/// Held while files of a run are written that must be whole.
static WRITING: Mutex<()> = Mutex::new(());

fn writing() -> MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no checkpoint or small file is being written, for `limit` at most; none is begun as long as the guard lives. For a process
/// that is about to end.
pub fn pause_writing(limit: Duration) -> Option<MutexGuard<'static, ()>> {
    let deadline = Instant::now() + limit;
    loop {
        match WRITING.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// FNV-1a, 64 bits: tells damaged bytes from whole ones; it guards against accidents, not against malice.
fn checksum(bytes: &[u8]) -> String {
    let fold = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Io(format!("can't {what} {}: {error}; check that the folder exists and has room", path.display()))
}

fn write_file(path: &Path, bytes: &[u8], synced: bool) -> Result<()> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        if synced { file.sync_all() } else { Ok(()) }
    };
    write().map_err(|error| cannot("write", path, &error))
}

/// Makes names of a folder's files last; some file systems can't, and then a rename is as good as they get.
fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(path) {
        let _ = folder.sync_all();
    }
}

/// Replaces a small file whole.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let _whole = writing();
    replace(path, bytes, true)
}

fn replace(path: &Path, bytes: &[u8], synced: bool) -> Result<()> {
    let beside = path.with_extension(format!("{}.part", std::process::id()));
    let rename = || fs::rename(&beside, path).map_err(|error| cannot("write", path, &error));
    write_file(&beside, bytes, synced).and_then(|()| rename()).inspect_err(|_| drop(fs::remove_file(&beside)))?;
    if synced {
        path.parent().into_iter().for_each(sync_folder);
    }
    Ok(())
}

impl Checkpoints {
    /// Those of a run folder, of which the newest `keep` and the best stay.
    pub fn new(run: &Path, keep: usize) -> Self {
        Self { folder: run.join("ckpt"), keep: keep.max(1) }
    }

    /// Where a checkpoint lies.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Names, oldest first.
    pub fn list(&self) -> Vec<String> {
        let mut names = self.held();
        if let Some(branch) = self.branch() {
            names.retain(|name| *name <= branch);
        }
        names
    }

    /// Names of all that are there, also of those about to be set aside.
    fn held(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter(|name| name.starts_with(PREFIX) && !name.ends_with(".part")).collect();
        names.sort_unstable();
        names
    }

    /// The checkpoint that a run goes on from whose later ones are not all set aside yet.
    fn branch(&self) -> Option<String> {
        let name = fs::read_to_string(self.folder.join(BRANCH)).ok()?;
        name.starts_with(PREFIX).then_some(name)
    }

    /// Env steps at the checkpoint of this name.
    pub fn steps_of(name: &str) -> u64 {
        name.trim_start_matches(PREFIX).parse().unwrap_or(0)
    }

    /// Name of the best checkpoint, if it is still there.
    pub fn best(&self) -> Option<String> {
        let name = fs::read_to_string(self.folder.join("best")).ok()?;
        self.list().into_iter().find(|held| held == name.trim())
    }

    /// Writes a checkpoint, and takes away those that need not stay; the best so far always does.
    pub fn save(&self, step: u64, mark: Mark, parts: &Parts) -> Result<String> {
        let _whole = writing();
        let name = format!("{PREFIX}{step:012}");
        let beside = self.folder.join(format!("{name}.{}.part", std::process::id()));
        // Not the run's own folder: if that is gone, nothing is to be kept there.
        for folder in [&self.folder, &beside] {
            match fs::create_dir(folder) {
                Err(error) if !folder.is_dir() => return Err(cannot("make", folder, &error)),
                _ => {}
            }
        }
        let written = self.write(&beside, &name, step, mark, parts);
        if written.is_err() {
            // What was written in part is of no use to anyone.
            let _ = fs::remove_dir_all(&beside);
        }
        written?;
        if mark.is_best {
            replace(&self.folder.join("best"), name.as_bytes(), mark.synced)?;
        }
        self.thin_out(&name);
        Ok(name)
    }

    fn write(&self, beside: &Path, name: &str, step: u64, mark: Mark, parts: &Parts) -> Result<()> {
        let Mark { mean_return, evaluation, is_best, synced } = mark;
        let mut manifest = Manifest { version: 1, step, mean_return, evaluation, is_best, parts: BTreeMap::new() };
        for (part, bytes) in parts {
            write_file(&beside.join(part), bytes, synced)?;
            manifest.parts.insert(part.clone(), (bytes.len() as u64, checksum(bytes)));
        }
        let text = serde_json::to_vec_pretty(&manifest).expect("names and numbers are JSON");
        write_file(&beside.join(MANIFEST), &text, synced)?;
        if synced {
            sync_folder(beside);
        }
        let target = self.folder.join(name);
        // A run that was resumed from an older checkpoint comes by here again: the one of that name steps aside first, and
        // goes only when the new one is in place.
        let aside = self.folder.join(format!("{name}.old.{}.part", std::process::id()));
        let replaced = target.exists();
        if replaced {
            fs::rename(&target, &aside).map_err(|error| cannot("replace", &target, &error))?;
        }
        fs::rename(beside, &target).map_err(|error| cannot("write", &target, &error))?;
        if synced {
            sync_folder(&self.folder);
        }
        if replaced {
            let _ = fs::remove_dir_all(&aside);
        }
        Ok(())
    }

    /// Moves the checkpoints after `name` to `aside/`, in place of what is there, and gives their names: from now on the
    /// run goes on from `name`, also if it is killed before it saves again or before all are moved.
    pub fn set_aside_after(&self, name: &str) -> Result<Vec<String>> {
        let _whole = writing();
        let mut later = self.list();
        later.retain(|held| held.as_str() > name);
        if !later.is_empty() {
            replace(&self.folder.join(BRANCH), name.as_bytes(), true)?;
            self.move_aside(name)?;
        }
        Ok(later)
    }

    /// Ends what [`Checkpoints::set_aside_after`] began, from wherever it was cut off.
    fn move_aside(&self, branch: &str) -> Result<()> {
        let (next, aside) = (self.folder.join(ASIDE_NEXT), self.folder.join(ASIDE));
        let mut later = self.held();
        later.retain(|held| held.as_str() > branch);
        if !later.is_empty() && !next.is_dir() {
            fs::create_dir(&next).map_err(|error| cannot("make", &next, &error))?;
        }
        for held in &later {
            let from = self.folder.join(held);
            fs::rename(&from, next.join(held)).map_err(|error| cannot("move", &from, &error))?;
        }
        if next.is_dir() {
            // Most runs have none.
            let _ = fs::remove_dir_all(&aside);
            fs::rename(&next, &aside).map_err(|error| cannot("move", &next, &error))?;
        }
        sync_folder(&self.folder);
        let branch = self.folder.join(BRANCH);
        fs::remove_file(&branch).map_err(|error| cannot("remove", &branch, &error))
    }

    /// Has `best` name a checkpoint that is there, and notes in its manifest what came of an evaluation since.
    pub(super) fn name_best(&self, name: &str, mark: Mark) -> Result<()> {
        let _whole = writing();
        let mut manifest = self.manifest(name).map_err(|reason| self.damaged(name, &reason))?;
        (manifest.is_best, manifest.evaluation) = (true, mark.evaluation);
        let text = serde_json::to_vec_pretty(&manifest).expect("names and numbers are JSON");
        replace(&self.path(name).join(MANIFEST), &text, mark.synced)?;
        replace(&self.folder.join("best"), name.as_bytes(), mark.synced)
    }

    /// Has `best` name the newest checkpoint that was the best when it was saved, and gives what is noted about it: a process
    /// may have been killed before it wrote the name, and the one that is named may have been set aside.
    pub fn mend_best(&self) -> Option<Mark> {
        let _whole = writing();
        let (named, names) = (self.best(), self.list());
        let newest = names.into_iter().rev().find(|name| self.manifest(name).is_ok_and(|manifest| manifest.is_best));
        if let Some(newest) = newest.as_ref().filter(|newest| Some(*newest) != named.as_ref()) {
            // Where nothing can be written the next checkpoint will say so.
            let _ = replace(&self.folder.join("best"), newest.as_bytes(), true);
        }
        let Manifest { mean_return, evaluation, .. } = self.manifest(&newest.or(named)?).ok()?;
        Some(Mark { mean_return, evaluation, is_best: true, synced: true })
    }

    /// Ends what a killed process began: gives a checkpoint its name back that was about to be replaced, and sets aside what
    /// was about to be. Only for who holds the run's lock.
    pub fn recover(&self) -> Result<()> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Ok(()) };
        for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let target = name.split_once(".old.").filter(|_| name.ends_with(".part")).map(|(name, _)| self.path(name));
            if let Some(target) = target.filter(|target| !target.exists()) {
                let _ = fs::rename(self.folder.join(&name), target);
            }
        }
        let _whole = writing();
        self.branch().map_or(Ok(()), |branch| self.move_aside(&branch))
    }

    /// Takes away what is older than needed, and what is beyond `newest`: a run that was resumed from an older checkpoint
    /// has left that future behind.
    fn thin_out(&self, newest: &str) {
        let (names, best) = (self.list(), self.best());
        // Not there: the folder was taken away since it was written, which the next write will tell.
        let Some(at) = names.iter().position(|name| name == newest) else { return };
        let old = (at + 1).saturating_sub(self.keep);
        let gone = names[..old].iter().filter(|name| Some(*name) != best.as_ref()).chain(&names[at + 1..]);
        for name in gone {
            let _ = fs::remove_dir_all(self.folder.join(name));
        }
        // Leftovers of processes that were killed while writing.
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let own = format!("{}.part", std::process::id());
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.to_string_lossy().ends_with(".part") && !path.to_string_lossy().ends_with(&own) {
                let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            }
        }
    }

    /// Reads a checkpoint and checks every part; a damaged one is refused by name, with the one before it.
    pub fn load(&self, name: &str) -> Result<Parts> {
        self.read(name, |_| true).map_err(|reason| self.damaged(name, &reason))
    }

    /// Reads one part of a checkpoint; of the others, which may be large, only the sizes are checked.
    pub fn load_part(&self, name: &str, part: &str) -> Result<Vec<u8>> {
        let mut parts = self.read(name, |held| held == part).map_err(|reason| self.damaged(name, &reason))?;
        parts.remove(part).ok_or_else(|| self.damaged(name, &format!("it has no {part}")))
    }

    fn damaged(&self, name: &str, reason: &str) -> Error {
        let names = self.list();
        let whole = |other: &&String| other.as_str() < name && self.read(other, |_| true).is_ok();
        let next = match names.iter().rev().find(whole) {
            Some(before) => format!("the one before it is whole: --checkpoint {before}"),
            None => "there is no whole one before it; start again".into(),
        };
        Error::Saved(format!("checkpoint {} is damaged: {reason}; {next}", self.path(name).display()))
    }

    fn manifest(&self, name: &str) -> Result<Manifest, String> {
        let text = fs::read(self.path(name).join(MANIFEST)).map_err(|error| format!("{MANIFEST}: {error}"))?;
        serde_json::from_slice(&text).map_err(|error| format!("{MANIFEST}: {error}"))
    }

    fn read(&self, name: &str, wanted: impl Fn(&str) -> bool) -> Result<Parts, String> {
        let folder = self.path(name);
        let manifest = self.manifest(name)?;
        if manifest.version != 1 {
            return Err(format!("{MANIFEST}: layout {}, wanted 1", manifest.version));
        }
        let mut parts = Parts::new();
        for (part, (size, sum)) in manifest.parts {
            let path = folder.join(&part);
            let held = fs::metadata(&path).map_err(|error| format!("{part}: {error}"))?.len();
            if held != size {
                return Err(format!("{part} has {held} bytes, wanted {size}"));
            }
            if !wanted(&part) {
                continue;
            }
            let bytes = fs::read(path).map_err(|error| format!("{part}: {error}"))?;
            if checksum(&bytes) != sum {
                return Err(format!("{part} has another checksum than {MANIFEST} says"));
            }
            parts.insert(part, bytes);
        }
        Ok(parts)
    }

    fn none_held(&self) -> Error {
        let run = self.folder.parent().unwrap_or(&self.folder);
        let shown = run.display();
        Error::Saved(match () {
            () if !run.exists() => format!("there is no folder {shown}; name a run's folder (operant runs)"),
            () if run.join(BATCH).exists() => not_one_run(run),
            () => format!("{} holds no checkpoint; start the run again", self.folder.display()),
        })
    }

    /// The name of a checkpoint: the one given, `best`, or the newest (`last`).
    pub fn pick(&self, name: Option<&str>) -> Result<String> {
        let names = self.list();
        match name {
            Some("best") => self.best().ok_or_else(|| {
                Error::Saved(format!(
                    "{} has no best yet; name another or leave --checkpoint out",
                    self.folder.display()
                ))
            }),
            None | Some("last") => names.into_iter().next_back().ok_or_else(|| self.none_held()),
            Some(name) if names.iter().any(|held| held == name) => Ok(name.to_owned()),
            Some(name) => {
                Err(Error::unknown("checkpoint", name, names.iter().map(String::as_str), "see the ckpt folder"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("operant-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn parts(text: &str) -> Parts {
        Parts::from([("a.bin".into(), text.as_bytes().to_vec()), ("b.bin".into(), vec![7; 100])])
    }

    fn mark(is_best: bool) -> Mark {
        Mark { is_best, synced: true, ..Mark::default() }
    }

    #[test]
    fn newest_and_best_stay() {
        let run = folder("checkpoints");
        let checkpoints = Checkpoints::new(&run, 2);
        for (step, best) in [(10, false), (20, true), (30, false), (40, false), (50, false)] {
            checkpoints.save(step, mark(best), &parts(&step.to_string())).unwrap();
        }
        assert_eq!(checkpoints.list(), ["step-000000000020", "step-000000000040", "step-000000000050"]);
        assert_eq!(checkpoints.pick(Some("best")).unwrap(), "step-000000000020");
        assert_eq!(checkpoints.pick(None).unwrap(), "step-000000000050");
        assert_eq!(checkpoints.pick(Some("last")).unwrap(), "step-000000000050");
        assert_eq!(checkpoints.load("step-000000000050").unwrap(), parts("50"));
        // Written again, as after a resume.
        checkpoints.save(50, mark(false), &parts("again")).unwrap();
        assert_eq!(checkpoints.load("step-000000000050").unwrap(), parts("again"));
        let message = checkpoints.pick(Some("step-00000000005")).unwrap_err().to_string();
        assert!(message.contains("did you mean"), "{message}");
        fs::remove_dir_all(&run).unwrap();
    }

    /// Between a checkpoint's writing and the look for old ones somebody may move the run.
    #[test]
    fn a_folder_that_is_gone_is_not_thinned_out() {
        let run = folder("checkpoints-gone");
        let checkpoints = Checkpoints::new(&run, 2);
        checkpoints.save(10, mark(false), &parts("10")).unwrap();
        // Of a checkpoint that is not there no other is newer or older.
        checkpoints.thin_out("step-000000000005");
        assert_eq!(checkpoints.list(), ["step-000000000010"]);
        fs::remove_dir_all(&run).unwrap();
        checkpoints.thin_out("step-000000000010");
    }

    /// A run that goes on from an older checkpoint leaves the later ones behind: what it saves is the newest, and stays.
    #[test]
    fn going_on_from_an_older_one_leaves_the_later_ones() {
        let run = folder("older");
        let checkpoints = Checkpoints::new(&run, 2);
        (1..=4).for_each(|step| drop(checkpoints.save(10 * step, mark(step == 1), &parts("old")).unwrap()));
        let name = checkpoints.save(15, mark(false), &parts("new")).unwrap();
        assert_eq!(checkpoints.list(), ["step-000000000010", "step-000000000015"]);
        assert_eq!((checkpoints.pick(None).unwrap(), checkpoints.load(&name).unwrap()), (name.clone(), parts("new")));
        let only = Checkpoints::new(&run, 1);
        let name = only.save(5, mark(false), &parts("newest")).unwrap();
        assert_eq!((only.pick(None).unwrap(), only.load(&name).unwrap()), (name.clone(), parts("newest")));
        fs::remove_dir_all(&run).unwrap();
    }

    /// What a run left behind is out of the way at once, and the best is one that it still has.
    #[test]
    fn later_ones_are_set_aside() {
        let run = folder("aside");
        let checkpoints = Checkpoints::new(&run, 9);
        for (step, best) in [(10, true), (20, false), (30, true), (40, false)] {
            let mark = Mark { mean_return: Some(step as f64), ..mark(best) };
            checkpoints.save(step, mark, &parts("x")).unwrap();
        }
        let mended = || checkpoints.mend_best().and_then(|mark| mark.mean_return);
        assert_eq!((checkpoints.best().as_deref(), mended()), (Some("step-000000000030"), Some(30.0)));
        assert_eq!(checkpoints.set_aside_after("step-000000000040").unwrap(), [""; 0]);
        let later = checkpoints.set_aside_after("step-000000000020").unwrap();
        assert_eq!(later, ["step-000000000030", "step-000000000040"]);
        assert_eq!(checkpoints.pick(None).unwrap(), "step-000000000020");
        assert!(later.iter().all(|name| run.join("ckpt/aside").join(name).join("a.bin").exists()));
        assert_eq!((checkpoints.best(), mended()), (None, Some(10.0)));
        assert_eq!(checkpoints.best().as_deref(), Some("step-000000000010"));
        checkpoints.save(50, mark(false), &parts("x")).unwrap();
        assert_eq!(checkpoints.set_aside_after("step-000000000020").unwrap(), ["step-000000000050"]);
        assert!(!run.join("ckpt/aside/step-000000000030").exists(), "one branch is kept aside");
        fs::remove_dir_all(&run).unwrap();
    }

    /// What is named best later holds from then on, and so does what its evaluation came to.
    #[test]
    fn an_evaluation_names_the_best() {
        let run = folder("named");
        let checkpoints = Checkpoints::new(&run, 9);
        (1..=3).for_each(|step| drop(checkpoints.save(10 * step, mark(step == 1), &parts("x")).unwrap()));
        assert_eq!(checkpoints.mend_best().and_then(|mark| mark.evaluation), None);
        let evaluation = Some(Score { mean: 0.1, error: 0.3, episodes: 7 });
        checkpoints.name_best("step-000000000020", Mark { evaluation, ..mark(true) }).unwrap();
        assert_eq!(checkpoints.mend_best().and_then(|mark| mark.evaluation), evaluation);
        assert_eq!(checkpoints.best().as_deref(), Some("step-000000000020"));
        assert_eq!(checkpoints.load("step-000000000020").unwrap(), parts("x"));
        assert!(checkpoints.name_best("step-000000000040", mark(true)).is_err());
        fs::remove_dir_all(&run).unwrap();
    }

    #[test]
    fn a_folder_that_is_gone_is_not_made_again_and_half_a_replacement_is_undone() {
        let run = folder("gone");
        let checkpoints = Checkpoints::new(&run, 2);
        checkpoints.save(1, mark(false), &parts("x")).unwrap();
        fs::rename(run.join("ckpt/step-000000000001"), run.join("ckpt/step-000000000001.old.7.part")).unwrap();
        checkpoints.recover().unwrap();
        assert_eq!(checkpoints.load("step-000000000001").unwrap(), parts("x"));
        fs::remove_dir_all(&run).unwrap();
        let message = checkpoints.save(2, mark(false), &parts("x")).unwrap_err().to_string();
        assert!(message.starts_with("can't make ") && !run.exists(), "{message}");
    }

    #[test]
    fn damage_is_named_and_the_one_before_is_offered() {
        let run = folder("damage");
        let checkpoints = Checkpoints::new(&run, 3);
        (1..=2).for_each(|step| drop(checkpoints.save(step, mark(false), &parts("whole")).unwrap()));
        let newest = checkpoints.path("step-000000000002");
        fs::write(newest.join("a.bin"), "whale").unwrap();
        let message = checkpoints.load("step-000000000002").unwrap_err().to_string();
        assert!(message.contains("step-000000000002 is damaged: a.bin has another checksum"), "{message}");
        assert!(message.ends_with("the one before it is whole: --checkpoint step-000000000001"), "{message}");
        fs::write(newest.join("a.bin"), "who").unwrap();
        assert!(checkpoints.load("step-000000000002").unwrap_err().to_string().contains("3 bytes, wanted 5"));
        fs::remove_file(newest.join("a.bin")).unwrap();
        assert!(checkpoints.load("step-000000000002").unwrap_err().to_string().contains("a.bin: "));
        fs::write(checkpoints.path("step-000000000001").join(MANIFEST), "{").unwrap();
        assert!(checkpoints.load("step-000000000002").unwrap_err().to_string().ends_with("start again"));
        fs::remove_dir_all(&run).unwrap();
    }

    #[test]
    fn nothing_is_written_while_writing_is_paused() {
        let run = folder("paused");
        let checkpoints = Checkpoints::new(&run, 3);
        let paused = pause_writing(Duration::from_secs(60)).unwrap();
        assert!(pause_writing(Duration::ZERO).is_none());
        let saver = std::thread::spawn(move || checkpoints.save(1, mark(true), &parts("x")).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!run.join("ckpt").exists(), "{run:?}");
        drop(paused);
        assert_eq!(saver.join().unwrap(), Checkpoints::new(&run, 3).best().unwrap());
        fs::remove_dir_all(&run).unwrap();
    }

    #[test]
    fn a_part_written_folder_is_no_checkpoint() {
        let run = folder("part");
        let checkpoints = Checkpoints::new(&run, 3);
        fs::create_dir_all(run.join("ckpt/step-000000000009.1.part")).unwrap();
        assert!(checkpoints.list().is_empty());
        let message = checkpoints.pick(None).unwrap_err().to_string();
        assert!(message.contains("holds no checkpoint"), "{message}");
        checkpoints.save(1, mark(false), &parts("x")).unwrap();
        assert!(!run.join("ckpt/step-000000000009.1.part").exists());
        fs::remove_dir_all(&run).unwrap();
    }
}
