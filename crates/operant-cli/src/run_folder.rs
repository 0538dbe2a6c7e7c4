//! A run's folder: finding it, and reading what is in it however its run ended.

use crate::history::History;
use crate::output::Failure;
use crate::seeds::Batch;
use operant::config::{self, Table, Value};
use operant::run::{Checkpoints, Config, RUN_FILES};
use operant::telemetry::{Event, EventKind, RingReader};
use serde_json::Map;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Where runs are kept unless the user says otherwise.
pub(crate) const RUNS: &str = "runs";

/// Bytes at the end of a file that hold at least one whole sample.
const TAIL: u64 = 64 * 1024;

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Running,
    Finished,
    Stopped,
    Diverged,
    Crashed,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Diverged => "diverged",
            Self::Crashed => "crashed",
        }
    }
}

/// The file that a path names: itself, or this part of the last checkpoint of a run, given by its folder or by its name below runs/.
pub(crate) fn part_file(path: &Path, part: &str, wanted: &str) -> Result<PathBuf, Failure> {
    let below = Path::new(RUNS).join(path);
    let path = if path.exists() || !below.exists() { path } else { &below };
    if !path.is_dir() {
        return match path.is_file() {
            true => Ok(path.to_owned()),
            false => Err(Failure::Usage(format!("{}: no such file or folder; wanted {wanted}", path.display()))),
        };
    }
    let checkpoints = Checkpoints::new(path, 1);
    let name = checkpoints.pick(None)?;
    let file = checkpoints.path(&name).join(part);
    match file.is_file() {
        true => Ok(file),
        false => Err(Failure::Usage(format!("{} has no {part} in {name}; wanted {wanted}", path.display()))),
    }
}

/// Refuses a run whose envs Python brought, which no command can make, and says the line of Python that does what was asked for.
pub(crate) fn refuse_brought(config: &Config, folder: &Path, line: impl FnOnce() -> String) -> Result<(), Failure> {
    match config.is_brought() {
        true => Err(Failure::Usage(format!(
            "{} was trained on {}, an env that was brought from Python and is only there; in Python: {}",
            folder.display(),
            config.env,
            line()
        ))),
        false => Ok(()),
    }
}

/// A folder with a run in it.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder {
    pub(crate) path: PathBuf,
    pub(crate) id: String,
}

impl RunFolder {
    pub(crate) fn new(path: PathBuf) -> Self {
        let named = path.canonicalize().unwrap_or_else(|_| path.clone());
        let id =
            named.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        Self { path, id }
    }

    /// Whether a folder holds a run.
    pub(crate) fn is_run(path: &Path) -> bool {
        RUN_FILES.iter().any(|sign| path.join(sign).is_file())
    }

    /// All runs below a folder, oldest first. The default folder need not be there: nothing was trained yet.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>, Failure> {
        if folder == Path::new(RUNS) && !folder.exists() {
            return Ok(Vec::new());
        }
        let unreadable = |error| {
            let next = "name the folder with --dir, or train: operant train ppo cartpole";
            Failure::Run(format!("cannot list runs in {}: {error}; {next}", folder.display()))
        };
        let mut runs = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if Self::is_run(&path) {
                runs.push(Self::new(path));
            } else if Batch::is_in(&path) {
                runs.extend(Self::of_batch(&path));
            }
        }
        runs.sort_by(|a, b| a.started().total_cmp(&b.started()).then_with(|| a.id.cmp(&b.id)));
        Ok(runs)
    }

    /// The runs of a batch, named by both folders, so that [`RunFolder::find`] finds them.
    fn of_batch(folder: &Path) -> impl Iterator<Item = Self> {
        let batch = Self::new(folder.to_owned()).id;
        let runs = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let named = move |run: Self| Self { id: format!("{batch}/{}", run.id), ..run };
        runs.filter(|path| Self::is_run(path)).map(move |path| named(Self::new(path)))
    }

    /// The run of this path, or of this name below `folder`.
    pub(crate) fn find(name: &str, folder: &Path) -> Result<Self, Failure> {
        for path in [PathBuf::from(name), folder.join(name)] {
            if Self::is_run(&path) {
                return Ok(Self::new(path));
            }
        }
        if Path::new(name).is_dir() {
            return Err(Failure::Run(format!(
                "{name} holds no run: none of {} is there; operant runs lists runs",
                RUN_FILES.join(", ")
            )));
        }
        let known = Self::all(folder).unwrap_or_default();
        let names = known.iter().map(|run| run.id.as_str());
        Err(Failure::Run(operant::Error::unknown("run", name, names, "operant runs").to_string()))
    }

    /// The run that began last.
    pub(crate) fn latest(folder: &Path) -> Result<Self, Failure> {
        Self::all(folder)?.pop().ok_or_else(|| {
            let folder = folder.display();
            Failure::Run(format!("no run in {folder}; name a run's folder, or train: operant train ppo cartpole"))
        })
    }

    /// The ring, if there is one that can be read.
    pub(crate) fn ring(&self) -> Option<RingReader> {
        RingReader::open(&self.path.join("live.ring")).ok()
    }

    /// When the run began, in seconds since 1970; 0 if nothing says so.
    pub(crate) fn started(&self) -> f64 {
        let modified = |name: &str| {
            let time = std::fs::metadata(self.path.join(name)).ok()?.modified().ok()?;
            Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
        };
        // The settings are written once; the ring's own clock counts from a resume.
        modified("run.toml").or_else(|| self.ring().map(|ring| ring.header().started)).unwrap_or(0.0)
    }

    /// The resolved settings.
    pub(crate) fn config(&self) -> Result<Table, Failure> {
        let path = self.path.join("run.toml");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::Run(format!("cannot read {}: {error}; is it a run's folder?", path.display())))?;
        config::parse(&text, &path.display().to_string()).map_err(|error| Failure::Run(error.to_string()))
    }

    /// What `final.json` says, if it is there and whole.
    pub(crate) fn results(&self) -> Option<Map<String, serde_json::Value>> {
        let text = std::fs::read(self.path.join("final.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Metrics over time, at most about `limit` samples.
    pub(crate) fn history(&self, limit: usize) -> Result<History, Failure> {
        History::read(&self.path.join("metrics.jsonl"), limit)
    }

    /// The newest sample in `metrics.jsonl`, from the end of the file.
    pub(crate) fn last_sample(&self) -> Option<Map<String, serde_json::Value>> {
        let mut file = File::open(self.path.join("metrics.jsonl")).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail).ok()?;
        String::from_utf8_lossy(&tail).lines().rev().find_map(|line| serde_json::from_str(line).ok())
    }

    /// Events so far; lines that cannot be read are passed over.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.events_since(&mut 0).0
    }

    /// Events of whole lines behind the first `read` bytes of their file, which it moves on; and whether that file became shorter since, so
    /// that these are all there are.
    pub(crate) fn events_since(&self, read: &mut u64) -> (Vec<Event>, bool) {
        let parse = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).ok()?;
            let text = |key: &str| value[key].as_str();
            Some(Event {
                kind: EventKind::parse(text("kind")?).unwrap_or(EventKind::Note),
                step: value["step"].as_u64()?,
                unix_time: value["time"].as_f64()?,
                text: text("text").unwrap_or_default().to_owned(),
            })
        };
        let Ok(mut file) = File::open(self.path.join("events.jsonl")) else { return (Vec::new(), false) };
        let again = file.metadata().is_ok_and(|about| about.len() < *read);
        if again {
            *read = 0;
        }
        let mut bytes = Vec::new();
        if file.seek(SeekFrom::Start(*read)).and_then(|_| file.read_to_end(&mut bytes)).is_err() {
            return (Vec::new(), again);
        }
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
        *read += bytes.len() as u64;
        (String::from_utf8_lossy(&bytes).lines().filter_map(parse).collect(), again)
    }

    /// How the run stands.
    pub(crate) fn status(&self) -> Status {
        let ring = self.ring();
        let finished = ring.as_ref().is_none_or(RingReader::finished);
        if ring.is_some_and(|ring| ring.alive()) {
            return Status::Running;
        }
        let ends = |event: &Event| match event.kind {
            EventKind::Started | EventKind::Resumed => Some(None),
            EventKind::Stopped => Some(Some(Status::Stopped)),
            EventKind::Finished => Some(Some(Status::Finished)),
            EventKind::Diverged => Some(Some(Status::Diverged)),
            _ => None,
        };
        let last = self.events().iter().rev().find_map(ends).flatten();
        let without_event = if finished && self.results().is_some() { Status::Finished } else { Status::Crashed };
        last.unwrap_or(without_event)
    }
}

/// Settings as dotted names with their values, in the order of the file.
pub(crate) fn flat(table: &Table) -> Vec<(String, String)> {
    fn walk(table: &Table, prefix: &str, found: &mut Vec<(String, String)>) {
        for (key, value) in table {
            match value {
                Value::Table(inner) => walk(inner, &format!("{prefix}{key}."), found),
                Value::String(text) => found.push((format!("{prefix}{key}"), text.clone())),
                other => found.push((format!("{prefix}{key}"), other.to_string())),
            }
        }
    }
    let mut found = Vec::new();
    walk(table, "", &mut found);
    found
}

/// A setting by its dotted name.
pub(crate) fn setting(table: &Table, name: &str) -> Option<String> {
    flat(table).into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The env's name: `env.name`, or plain `env`.
pub(crate) fn env_name(table: &Table) -> Option<String> {
    setting(table, "env.name").or_else(|| setting(table, "env"))
}
