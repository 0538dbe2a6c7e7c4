//! `operant train --seeds K`: the same run with K seeds in one process, one after another or on a GPU side by side, and one summary of them.
//!
//! Invariant: a batch's folder says all that is needed to go on with it, from before its first run begins.

use crate::format;
use crate::interrupt::Interrupt;
use crate::output::{Failure, print, shell};
use crate::spread::Spread;
use operant::CATALOGUE;
use operant::config::{self, Table, Value};
use operant::run::{BATCH as FILE, BatchLock, Checkpoints, Config, End, Run, Start, Summary, replace_file};
use operant::telemetry::Sink;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// Most runs side by side on a GPU: it has as many queues unless told otherwise, and more streams wait for each other.
const MOST_AT_ONCE: u64 = 8;

/// What the file of a batch says: the same run with several seeds, each in a folder of its own below the batch's.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) seeds: u64,
}

impl Plan {
    /// Of the batch in a folder, with settings that replace those that it had.
    pub(crate) fn read(folder: &Path, over: &Table) -> Result<Self, Failure> {
        let path = folder.join(FILE);
        let damaged = |why: &str| Failure::Run(format!("{}: {why}; train again in another folder", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| damaged(&error.to_string()))?;
        let table = config::parse(&text, &path.display().to_string()).map_err(|error| damaged(&error.to_string()))?;
        let seeds = table.get("seeds").and_then(Value::as_integer).and_then(|seeds| u64::try_from(seeds).ok());
        let settings = table.get("run").and_then(Value::as_table).cloned();
        let (Some(seeds), Some(mut settings)) = (seeds, settings) else {
            return Err(damaged("wanted seeds and [run]"));
        };
        config::merge(&mut settings, over.clone());
        Ok(Self { config: Config::from_table(&CATALOGUE, settings)?, seeds })
    }

    fn text(&self) -> Result<String, Failure> {
        let settings = config::parse(&self.config.to_text(), FILE)?;
        let seeds = i64::try_from(self.seeds).map_err(|_| Failure::Usage("--seeds: wanted fewer".into()))?;
        let table =
            Table::from_iter([("seeds".to_owned(), Value::Integer(seeds)), ("run".to_owned(), Value::Table(settings))]);
        Ok(table.to_string())
    }
}

/// A batch that this process trains.
pub(crate) struct Batch {
    folder: PathBuf,
    plan: Plan,
    /// Held as long as the batch goes on.
    _lock: BatchLock,
}

impl Batch {
    /// Whether a folder holds a batch.
    pub(crate) fn is_in(folder: &Path) -> bool {
        folder.join(FILE).is_file()
    }

    /// A new batch, whose first seed is that of the settings.
    pub(crate) fn new(folder: PathBuf, config: Config, seeds: u64) -> Result<Self, Failure> {
        BatchLock::check_free(&folder)?;
        let plan = Plan { config, seeds };
        for number in 0..seeds {
            Run::check_free(&plan.run(&folder, number).0)?;
        }
        let lock = BatchLock::begin(&folder, &plan.text()?)?;
        Ok(Self { folder, plan, _lock: lock })
    }

    /// The batch in a folder, with settings that replace those that it had.
    pub(crate) fn open(folder: &Path, over: &Table) -> Result<Self, Failure> {
        let plan = Plan::read(folder, over)?;
        let lock = BatchLock::hold(folder)?;
        if !over.is_empty() {
            replace_file(&folder.join(FILE), plan.text()?.as_bytes())?;
        }
        Ok(Self { folder: folder.to_owned(), plan, _lock: lock })
    }
}

impl Plan {
    /// How many of its runs go on side by side: one alone leaves most of a GPU idle, but has all threads of a CPU, if that steps the envs.
    fn at_once(&self) -> u64 {
        let on_gpu = self.config.settings.device.starts_with("cuda") && !self.config.stages_envs().unwrap_or(false);
        if on_gpu { self.seeds.min(MOST_AT_ONCE) } else { 1 }
    }

    /// Where one of its runs is, with its settings.
    pub(crate) fn run(&self, folder: &Path, number: u64) -> (PathBuf, Config) {
        let mut config = self.config.clone();
        config.settings.seed = config.settings.seed.wrapping_add(number);
        (folder.join(format!("seed-{}", config.settings.seed)), config)
    }
}

/// What a run left that has come to its end, if it has.
fn finished(folder: &Path, over: &Table) -> Option<Summary> {
    Run::is_over(&CATALOGUE, folder, None, over).ok()??;
    serde_json::from_slice(&std::fs::read(folder.join("final.json")).ok()?).ok()
}

/// What became of one run of a batch.
struct Outcome {
    seed: u64,
    folder: PathBuf,
    summary: Summary,
    end: End,
}

impl Outcome {
    fn line(&self) -> String {
        let Self { seed, folder, summary, .. } = self;
        let shown = |x: Option<f64>| x.map_or("none".into(), |x| format!("{x:.2}"));
        let told = match summary.numbers.is_empty() {
            true => format!(
                "{}, mean return {}, evaluation {}",
                if summary.solved { "solved" } else { "not solved" },
                shown(summary.mean_return),
                shown(summary.eval_return)
            ),
            false => format::numbers(&summary.numbers),
        };
        let (steps, wall_s) = (summary.steps, summary.wall_s);
        format!("seed {seed}: {told}, {steps} steps in {wall_s:.2} s, {}\n", folder.display())
    }
}

/// Trains one run of a batch, or what is left of it.
fn train(
    batch: &Batch,
    number: u64,
    over: &Table,
    sinks: &(impl Fn(u64) -> Vec<Box<dyn Sink>> + Sync),
    interrupt: &Interrupt,
) -> Result<Outcome, Failure> {
    let (folder, config) = batch.plan.run(&batch.folder, number);
    let (seed, at_once) = (config.settings.seed, batch.plan.at_once());
    if let Some(summary) = finished(&folder, over) {
        return Ok(Outcome { seed, folder, summary, end: End::Finished });
    }
    let failed = |error: operant::Error| Failure::Run(format!("seed {seed}: {error}"));
    // Side by side, one of them shows how far they are.
    let sinks = if at_once == 1 || number == 0 { sinks(config.settings.steps) } else { Vec::new() };
    let start = Start { folder: folder.clone(), sinks, started: Instant::now(), at_once: at_once as usize };
    let mut run = match Checkpoints::new(&folder, 1).list().is_empty() {
        true => Run::start(config, start).map_err(failed)?,
        false => Run::resume_with(&CATALOGUE, None, over.clone(), start).map_err(failed)?,
    };
    match at_once {
        1 => interrupt.run_in(&folder),
        _ => interrupt.also_in(&folder),
    }
    let stop = interrupt.flag();
    let ended = run.go(|| stop.load(Ordering::Relaxed)).and_then(|end| Ok((run.finish(&end)?.0, end)));
    if at_once > 1 {
        interrupt.out_of(&folder);
    }
    let (summary, end) = ended.map_err(failed)?;
    Ok(Outcome { seed, folder, summary, end })
}

/// Does pieces of work by number, so many side by side, and tells of each in the order of numbers; none is begun after `tell` breaks.
fn in_order<T: Send>(
    count: u64,
    at_once: u64,
    work: impl Fn(u64) -> T + Sync,
    mut tell: impl FnMut(T) -> ControlFlow<()>,
) {
    if at_once == 1 {
        let _ = (0..count).try_for_each(|number| tell(work(number)));
        return;
    }
    let next = AtomicU64::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(count) {
            let (next, work, sender) = (&next, &work, sender.clone());
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || sender.send((number, work(number))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut early, mut told) = (BTreeMap::new(), 0);
        for (number, result) in receiver {
            early.insert(number, result);
            while let Some(result) = early.remove(&told) {
                told += 1;
                if tell(result).is_break() {
                    next.store(count, Ordering::Relaxed);
                }
            }
        }
    });
}

/// Trains what is left of a batch: runs that are finished stay as they are, others go on from their last checkpoint.
pub(crate) fn run(
    batch: &Batch,
    over: &Table,
    json: bool,
    sinks: impl Fn(u64) -> Vec<Box<dyn Sink>> + Sync,
    interrupt: &Interrupt,
) -> Result<End, Failure> {
    let mut done: Vec<(u64, PathBuf, Summary)> = Vec::new();
    let (mut last, mut failure) = (End::Finished, None);
    let stop = interrupt.flag();
    // A run that would begin after the user asked to stop is left for later.
    let work =
        |number| (number == 0 || !stop.load(Ordering::Relaxed)).then(|| train(batch, number, over, &sinks, interrupt));
    in_order(batch.plan.seeds, batch.plan.at_once(), work, |outcome| {
        match outcome {
            None => {
                last = End::Stopped;
                return ControlFlow::Break(());
            }
            Some(Err(error)) => {
                failure.get_or_insert(error);
                return ControlFlow::Break(());
            }
            Some(Ok(outcome)) => {
                if !json && let Err(error) = print(&outcome.line()) {
                    failure.get_or_insert(error);
                    return ControlFlow::Break(());
                }
                if outcome.end == End::Stopped {
                    last = End::Stopped;
                }
                done.push((outcome.seed, outcome.folder, outcome.summary));
            }
        }
        if last == End::Stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let spread = |of: fn(&Summary) -> Option<f64>| Spread::of(done.iter().map(|(.., summary)| of(summary)));
    let solved = done.iter().filter(|(.., summary)| summary.solved).count();
    let numbers: BTreeSet<&String> = done.iter().flat_map(|(.., summary)| summary.numbers.keys()).collect();
    let of_number = |name: &String| Spread::of(done.iter().map(|(.., summary)| summary.numbers.get(name).copied()));
    if json {
        let runs: Vec<_> = done
            .iter()
            .map(|(seed, folder, summary)| json!({ "seed": seed, "run": folder.display().to_string(), "summary": summary }))
            .collect();
        let object = json!({
            "runs": runs, "solved": solved,
            "mean_return": Spread::json(spread(|summary| summary.mean_return)),
            "eval_return": Spread::json(spread(|summary| summary.eval_return)),
            "solved_s": Spread::json(spread(|summary| summary.solved_s)),
            "solved_step": Spread::json(spread(|summary| summary.solved_step.map(|step| step as f64))),
            "numbers": numbers.iter().map(|name| (name.to_string(), Spread::json(of_number(name)))).collect::<serde_json::Map<_, _>>(),
        });
        print(&format!("{object}\n"))?;
        return Ok(last);
    }
    let told = match numbers.is_empty() {
        true => format!(
            "{solved} of {} seeds solved; mean return {}, evaluation {}, seconds to solved {}",
            done.len(),
            Spread::shown(spread(|summary| summary.mean_return)),
            Spread::shown(spread(|summary| summary.eval_return)),
            Spread::shown(spread(|summary| summary.solved_s)),
        ),
        false => {
            let all = numbers.iter().map(|name| format!("{name} {}", Spread::shown(of_number(name))));
            format!("{} seeds: {}", done.len(), all.collect::<Vec<_>>().join(", "))
        }
    };
    print(&format!("{told} (mean ± standard error)\n"))?;
    let folder = shell(&batch.folder);
    print(&match last {
        End::Stopped => format!(
            "stopped with {} of {} seeds begun\nnext: operant train --resume {folder}\n",
            done.len(),
            batch.plan.seeds
        ),
        _ => format!("next: operant report {folder} · operant compare {folder} OTHER · operant runs --dir {folder}\n"),
    })?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_side_by_side_is_told_in_order_and_none_begins_after_a_break() {
        for at_once in [1, 3] {
            let begun = AtomicU64::new(0);
            let mut told = Vec::new();
            // The first of three takes longest.
            let work = |number| {
                begun.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(if number == 0 { 30 } else { 1 }));
                number
            };
            in_order(5, at_once, work, |number| {
                told.push(number);
                ControlFlow::Continue(())
            });
            assert_eq!(told, [0, 1, 2, 3, 4]);
            begun.store(0, Ordering::Relaxed);
            in_order(
                100,
                at_once,
                work,
                |number| if number == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) },
            );
            assert!(begun.load(Ordering::Relaxed) < 100);
        }
    }
}
