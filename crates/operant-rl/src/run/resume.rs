//! Going on with a run: from its newest checkpoint or an older one, with the settings that it had or with some that changed.
//!
//! Invariant: from the moment that a run is resumed from an older checkpoint, that is its newest: what came later is set
//! aside before the first step.

use super::folder::not_one_run;
use super::saving::was_solved;
use super::{Checkpoints, Config, Lock, Run, Start, Until, build_algorithm, build_env_among, build_pool, replace_file};
use crate::Catalogue;
use operant_base::config::{self, Table};
use operant_base::telemetry::{EventKind, cut_back};
use operant_base::{Error, Result};
use operant_device::CpuPool;
use operant_env::VecEnv;
use std::path::Path;
use std::sync::Arc;

impl Run {
    /// Goes on from a checkpoint of the run in `start.folder`: the named one, or the newest.
    pub fn resume(catalogue: &'static Catalogue, checkpoint: Option<&str>, start: Start) -> Result<Self> {
        Self::resume_with(catalogue, checkpoint, Table::new(), start)
    }

    /// The same with settings that replace those of `run.toml`, such as more `steps`.
    pub fn resume_with(
        catalogue: &'static Catalogue,
        checkpoint: Option<&str>,
        over: Table,
        start: Start,
    ) -> Result<Self> {
        let at_once = start.at_once;
        Self::resume_over(catalogue, checkpoint, over, start, |config, pool| build_env_among(config, pool, at_once))
    }

    /// The same over envs that the caller builds. Those that save no state begin new episodes.
    pub fn resume_over(
        catalogue: &'static Catalogue,
        checkpoint: Option<&str>,
        over: Table,
        start: Start,
        build: impl FnOnce(&Config, &Arc<CpuPool>) -> Result<Box<dyn VecEnv>>,
    ) -> Result<Self> {
        Self::config_of(catalogue, &start.folder)?;
        let lock = Lock::take(&start.folder)?;
        sweep(&start.folder)?;
        let (name, mut config, _) = find(catalogue, &start.folder, checkpoint, &over)?;
        let step = Checkpoints::steps_of(&name);
        let parts = Checkpoints::new(&start.folder, 1).load(&name)?;
        let then = parts.get("run.toml").and_then(|text| std::str::from_utf8(text).ok());
        let then = then.and_then(|text| Config::from_text(catalogue, text, "run.toml").ok());
        let listed = config.changed.clone();
        let changes = then.map_or(Ok(None), |then| config.note_change(&then, step, &over, &name))?;
        config.check_changes_ahead(step, &name)?;
        let now = config.at(step)?;
        let pool = build_pool(&now);
        let env = build(&now, &pool)?;
        let (spec, saves_state) = (env.spec().clone(), env.saves_state());
        let mut algorithm = build_algorithm(&now, env, Arc::clone(&pool))?;
        algorithm.load(&parts)?;
        if over.get("steps").is_some() && algorithm.steps() >= config.settings.steps {
            let (steps, done) = (config.settings.steps, algorithm.steps());
            return Err(Error::Invalid(format!("steps = {steps}: {name} has {done} already; name a larger number")));
        }
        let left = Checkpoints::new(&start.folder, config.checkpoint.keep).set_aside_after(&name)?;
        if !left.is_empty() {
            // Results of an end that is no longer one.
            let _ = std::fs::remove_file(start.folder.join("final.json"));
        }
        if !over.is_empty() || listed != config.changed {
            replace_file(&start.folder.join("run.toml"), config.to_text().as_bytes())?;
        }
        // What cannot be taken back is there twice, which is no reason not to go on.
        let twice = cut_back(&start.folder, algorithm.steps()).err();
        let mut run = Self::new(config, spec, algorithm, pool, start, lock)?;
        run.restore(&parts)?;
        for note in changes.into_iter().chain(twice.map(|error| error.to_string())) {
            run.board.event(EventKind::Note, run.algorithm.steps(), note);
        }
        let aside = match &left[..] {
            [] => String::new(),
            [one] => format!("; later checkpoint {one} set aside (ckpt/aside)"),
            more => format!("; later checkpoints {} set aside (ckpt/aside)", more.join(", ")),
        };
        let anew = if saves_state { "" } else { "; new episodes begin, since these envs have no state that is saved" };
        run.board.event(EventKind::Resumed, run.algorithm.steps(), format!("from {name}{aside}{anew}"));
        Ok(run)
    }

    /// Env steps of the run in a folder, if it has come to its end there, results and all, and would do nothing if resumed so.
    pub fn is_over(
        catalogue: &'static Catalogue,
        folder: &Path,
        checkpoint: Option<&str>,
        over: &Table,
    ) -> Result<Option<u64>> {
        if !folder.join("final.json").exists() {
            return Ok(None);
        }
        let (name, config, was_solved) = find(catalogue, folder, checkpoint, over)?;
        let steps = Checkpoints::steps_of(&name);
        let solved = config.settings.until == Until::Solved && was_solved;
        Ok((solved || steps >= config.settings.steps).then_some(steps))
    }

    /// The settings of the run in a folder.
    pub fn config_of(catalogue: &'static Catalogue, folder: &Path) -> Result<Config> {
        Self::config_with(catalogue, folder, &Table::new())
    }

    /// The same with `over` laid on them.
    fn config_with(catalogue: &'static Catalogue, folder: &Path, over: &Table) -> Result<Config> {
        let path = folder.join("run.toml");
        if !path.exists() && folder.join(super::BATCH).exists() {
            return Err(Error::Invalid(not_one_run(folder)));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Error::Io(format!("can't read {}: {error}; name a run's folder (operant runs)", path.display()))
        })?;
        let mut table = config::parse(&text, &path.display().to_string())?;
        config::merge(&mut table, over.clone());
        Config::from_table(catalogue, table)
    }
}

/// The checkpoint to go on from, the settings to do so with, and whether the env had counted as solved there.
fn find(
    catalogue: &'static Catalogue,
    folder: &Path,
    checkpoint: Option<&str>,
    over: &Table,
) -> Result<(String, Config, bool)> {
    let mut config = Run::config_with(catalogue, folder, over)?;
    let checkpoints = Checkpoints::new(folder, config.checkpoint.keep);
    let name = checkpoints.pick(checkpoint)?;
    let was_solved = was_solved(&checkpoints.load_part(&name, "run.json")?)?;
    // Who asks a run that ended as solved for more steps wants it to do them.
    if over.contains_key("steps") && !over.contains_key("until") && was_solved {
        config.settings.until = Until::Steps;
    }
    Ok((name, config, was_solved))
}

/// Takes away what processes left half written that were killed in a run's folder. Only for who holds its lock.
fn sweep(folder: &Path) -> Result<()> {
    Checkpoints::new(folder, 1).recover()?;
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // `run.<process>.part`, `live.ring.<process>.new`.
        let beside = name.strip_suffix(".part").or(name.strip_suffix(".new")).and_then(|name| name.rsplit_once('.'));
        let of_process = beside.is_some_and(|(_, process)| process.parse::<u32>().is_ok());
        if of_process || name == "metrics.jsonl.part" {
            let _ = std::fs::remove_file(&path);
        }
    }
    Ok(())
}
