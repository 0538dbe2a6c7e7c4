//! What a name on the command line stands for: a run, or a batch of runs with several seeds.

use crate::history::History;
use crate::output::{Failure, warn};
use crate::run_folder::{RunFolder, Status};
use crate::seeds::{Batch, Plan};
use operant::config::Table;
use operant::run::in_use;
use std::path::{Path, PathBuf};

/// A batch's folder.
#[derive(Clone, Debug)]
pub(crate) struct BatchFolder {
    pub(crate) path: PathBuf,
    pub(crate) id: String,
    /// Seeds that it is to have.
    pub(crate) seeds: u64,
    /// Runs that have begun, each with its seed, in the order of seeds.
    pub(crate) runs: Vec<(u64, RunFolder)>,
}

impl BatchFolder {
    /// The batch in a folder; an error if none of its runs has begun.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Failure> {
        let batch = Self::look(path)?;
        if batch.runs.is_empty() {
            let shown = batch.path.display();
            return Err(Failure::Run(format!(
                "{shown} holds a batch of which no run has begun; operant train --resume {shown} trains it"
            )));
        }
        let (begun, seeds) = (batch.runs.len() as u64, batch.seeds);
        if begun < seeds {
            let shown = batch.path.display();
            warn(&format!(
                "{shown} has {begun} of its {seeds} seeds; the others have not begun, or their folders are gone"
            ));
        }
        Ok(batch)
    }

    /// The same as it is now, also before its first run.
    pub(crate) fn look(path: PathBuf) -> Result<Self, Failure> {
        let plan = Plan::read(&path, &Table::new())?;
        let runs = (0..plan.seeds).filter_map(|number| {
            let (folder, config) = plan.run(&path, number);
            RunFolder::is_run(&folder).then(|| (config.settings.seed, RunFolder::new(folder)))
        });
        let (runs, id) = (runs.collect(), RunFolder::new(path.clone()).id);
        Ok(Self { path, id, seeds: plan.seeds, runs })
    }

    /// All batches below a folder that have begun, by their names; what can't be read is left out.
    pub(crate) fn all(folder: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let batches = entries.filter(|path| Batch::is_in(path) && !RunFolder::is_run(path));
        let begun = batches.filter_map(|path| Self::look(path).ok()).filter(|batch| !batch.runs.is_empty());
        let mut all: Vec<Self> = begun.collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Its runs, named by both folders as lists of runs have them.
    pub(crate) fn named(&self) -> Vec<RunFolder> {
        let named = |run: &RunFolder| RunFolder { id: format!("{}/{}", self.id, run.id), path: run.path.clone() };
        self.folders().map(named).collect()
    }

    pub(crate) fn folders(&self) -> impl Iterator<Item = &RunFolder> {
        self.runs.iter().map(|(_, folder)| folder)
    }

    /// Whether one of its runs goes on, or the process that trains them is between two of them.
    pub(crate) fn goes_on(&self) -> bool {
        in_use(&self.path) || self.folders().any(|folder| folder.status() == Status::Running)
    }

    /// How its runs stand: `finished`, or `2 finished, 1 running, 3 not begun`.
    pub(crate) fn status(&self) -> String {
        let mut counts: Vec<(&str, u64)> = Vec::new();
        let not_begun = self.seeds.saturating_sub(self.runs.len() as u64);
        let begun = self.folders().map(|folder| (folder.status().name(), 1));
        for (name, count) in begun.chain((not_begun > 0).then_some(("not begun", not_begun))) {
            match counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known += count,
                None => counts.push((name, count)),
            }
        }
        match &counts[..] {
            [(only, _)] => (*only).to_owned(),
            several => several.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", "),
        }
    }

    /// Metrics of each run, at most about `limit` samples.
    pub(crate) fn histories(&self, limit: usize) -> Result<Vec<History>, Failure> {
        self.folders().map(|folder| folder.history(limit)).collect()
    }
}

/// A run, or a batch of them.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Run(RunFolder),
    Batch(BatchFolder),
}

impl Found {
    /// The run or the batch of this path, or of this name below `folder`.
    pub(crate) fn find(name: &str, folder: &Path) -> Result<Self, Failure> {
        for path in [PathBuf::from(name), folder.join(name)] {
            if RunFolder::is_run(&path) {
                return Ok(Self::Run(RunFolder::new(path)));
            }
            if Batch::is_in(&path) {
                return BatchFolder::open(path).map(Self::Batch);
            }
        }
        RunFolder::find(name, folder).map(Self::Run)
    }

    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Run(run) => &run.id,
            Self::Batch(batch) => &batch.id,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Run(run) => &run.path,
            Self::Batch(batch) => &batch.path,
        }
    }

    /// The run, or all of the batch.
    pub(crate) fn folders(&self) -> Vec<&RunFolder> {
        match self {
            Self::Run(run) => vec![run],
            Self::Batch(batch) => batch.folders().collect(),
        }
    }

    /// The runs with their seeds, where there are several.
    pub(crate) fn seeded(&self) -> Vec<(Option<u64>, &RunFolder)> {
        match self {
            Self::Run(run) => vec![(None, run)],
            Self::Batch(batch) => batch.runs.iter().map(|(seed, folder)| (Some(*seed), folder)).collect(),
        }
    }

    pub(crate) fn status(&self) -> String {
        match self {
            Self::Run(run) => run.status().name().to_owned(),
            Self::Batch(batch) => batch.status(),
        }
    }
}
