//! When a run saves, and what its loop keeps in a checkpoint.
//!
//! A checkpoint is due after the first iteration, by count, by time, and when an evaluation is the best so far. The first one is not
//! forced to the disk, which would take longer than many a run: a kill leaves it whole, a loss of power may not. A state
//! with the best evaluation so far that comes before a checkpoint is due waits in memory, and is written with the next one.
//!
//! Invariant: what was sampled up to a checkpoint's step is in the run's files before the checkpoint has its name, unless
//! a file takes longer than [`SETTLE`] to write.

use super::checkpoint::Mark;
use super::judge::Standing;
use super::{CheckpointSettings, Checkpoints, Run, Solved};
use crate::algo::{Parts, part};
use crate::data::Episodes;
use operant_base::telemetry::EventKind;
use operant_base::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// As long as nothing was evaluated, a mean return is better if it is so by this share of the best one.
const GAIN: f64 = 0.01;
/// How long a checkpoint waits for the files of samples.
const SETTLE: Duration = Duration::from_secs(1);
/// Largest state that waits in memory, in bytes.
const PEAK_BYTES: usize = 64 << 20;
/// Most of a run's CPU time that goes into copies of states.
const PEAK_SHARE: f64 = 0.05;

/// How a run stands with its checkpoints.
#[derive(Default)]
pub(super) struct Saves {
    /// Iterations and seconds at the last checkpoint.
    last: (u64, f64),
    /// What is noted about the best checkpoint.
    pub(super) best: Option<Mark>,
    /// A better state that came after the last checkpoint.
    peak: Option<Peak>,
    /// CPU seconds that went into copies of states.
    peak_s: f64,
    /// Size of a checkpoint.
    bytes: usize,
    /// Why the last checkpoint could not be written.
    pub(super) failure: Option<String>,
}

struct Peak {
    steps: u64,
    mark: Mark,
    parts: Parts,
}

/// Whether a state with this mark is better than one with that: by their evaluations or, where there are none, by their mean
/// returns and a share of the other's.
fn beats(one: &Mark, other: &Mark, gain: f64) -> bool {
    match (one.evaluation, other.evaluation) {
        (Some(one), Some(other)) => one.beats(&other),
        (None, None) => {
            one.mean_return.zip(other.mean_return).is_some_and(|(one, other)| one > other + gain * other.abs())
        }
        // The first evaluation takes the place of returns of training; without evaluations from now on it is the reverse.
        _ => true,
    }
}

/// What a checkpoint keeps for the loop.
#[derive(Serialize, Deserialize)]
struct Kept {
    seconds: f64,
    cpu_seconds: f64,
    solved_step: Option<u64>,
    solved_s: Option<f64>,
    solved_return: Option<f64>,
    /// Absent from checkpoints of runs that knew no evaluations on the way.
    #[serde(default)]
    solved_evaluated: bool,
    #[serde(default)]
    eval: Standing,
    episodes: Vec<f64>,
    /// What people see in place of episodes, and the algorithm's own score; absent from older checkpoints.
    #[serde(default)]
    numbers: BTreeMap<String, f64>,
    #[serde(default)]
    score: Option<f64>,
}

impl Kept {
    fn read(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|_| damaged())
    }
}

fn damaged() -> Error {
    Error::Saved("checkpoint's run.json does not fit this run; take another".into())
}

/// Whether the env had counted as solved at a checkpoint, by its `run.json`.
pub(super) fn was_solved(bytes: &[u8]) -> Result<bool> {
    Ok(Kept::read(bytes)?.solved_step.is_some())
}

impl Run {
    /// Writes a checkpoint if one is due. A full disk costs a checkpoint, not the run: the next one may find room. A folder
    /// that is gone ends the run, of which nothing would be left.
    pub(super) fn save_if_due(&mut self) -> Result<()> {
        let first = self.iterations == 1 && self.checkpoints.list().is_empty();
        if !first && !self.is_due() {
            self.keep_peak();
            return Ok(());
        }
        let before = self.saves.last;
        if let Err(error) = self.write_checkpoint(!first) {
            let (steps, text) = (self.algorithm.steps(), error.to_string());
            if self.is_gone() {
                self.board.event(EventKind::Stopped, steps, text);
                return Err(error);
            }
            self.board.event(EventKind::Note, steps, format!("no checkpoint: {text}"));
            (self.saves.last, self.saves.failure) = ((self.iterations, self.seconds()), Some(text));
        }
        if first {
            // The others come as if there had been none.
            self.saves.last = before;
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        let CheckpointSettings { every, every_s, improved_s, .. } = self.config.checkpoint;
        let (iterations, seconds) = (self.iterations - self.saves.last.0, self.seconds() - self.saves.last.1);
        let passed = |least: f64| least > 0.0 && seconds >= least;
        let better = || self.saves.peak.is_some() || self.has_improved();
        (every > 0 && iterations >= every) || passed(every_s) || (passed(improved_s) && better())
    }

    /// What the best checkpoint is chosen by, if it counts now: an evaluation of these weights, the mean return of enough
    /// episodes as long as nothing was evaluated, or the algorithm's own score. Games against itself say nothing of how well
    /// a network plays.
    fn standing(&self) -> Option<Mark> {
        let noted = Mark { mean_return: self.mean_return(), evaluation: self.judge.fresh(), ..Mark::default() };
        // The best may have been evaluated at the end of a run that now goes on.
        let evaluated = self.saves.best.is_some_and(|best| best.evaluation.is_some());
        if self.judge.has_judged() || self.judge.judges() && evaluated {
            return noted.evaluation.is_some().then_some(noted);
        }
        let counts = self.report.episodes.is_full() && !self.report.preparing && self.plays();
        (self.report.score.is_some() || counts).then_some(noted)
    }

    /// The algorithm's own score, or the mean return of the last episodes.
    fn mean_return(&self) -> Option<f64> {
        let episodes = &self.report.episodes;
        self.report.score.or_else(|| (episodes.count() > 0).then(|| episodes.mean_return()))
    }

    /// Whether that is the best so far, by a margin.
    fn has_improved(&self) -> bool {
        let best = self.saves.peak.as_ref().map(|peak| peak.mark).or(self.saves.best);
        self.standing().is_some_and(|now| best.is_none_or(|best| beats(&now, &best, GAIN)))
    }

    /// Copies a state that is the best so far, if one may be copied: the next iteration may be worse.
    fn keep_peak(&mut self) {
        let wanted = self.config.checkpoint.improved_s > 0.0 && self.saves.bytes <= PEAK_BYTES;
        if !wanted || !self.has_improved() {
            return;
        }
        // Not the wall's clock, by which another process could make one copy look as long as many.
        let begun = self.cpu_seconds();
        if self.saves.peak_s > PEAK_SHARE * begun {
            return;
        }
        let (steps, Some(mark)) = (self.algorithm.steps(), self.standing()) else { return };
        // What cannot be copied now is told when it is to be saved.
        if let Ok(parts) = self.state() {
            // The last checkpoint may have been smaller: replay grows.
            self.saves.bytes = parts.values().map(Vec::len).sum();
            if self.saves.bytes <= PEAK_BYTES {
                self.saves.peak = Some(Peak { steps, mark, parts });
            }
        }
        self.saves.peak_s += self.cpu_seconds() - begun;
    }

    /// Writes a checkpoint.
    pub fn save(&mut self) -> Result<String> {
        self.write_checkpoint(true)
    }

    /// Writes the checkpoint of a run that ends; without it the run has failed.
    pub(super) fn save_last(&mut self) -> Result<String> {
        let error = match self.save() {
            Ok(name) => return Ok(name),
            Err(error) => error,
        };
        let steps = self.algorithm.steps();
        let text = format!("{steps} steps are done, but their checkpoint could not be written");
        self.board.event(EventKind::Stopped, steps, text.as_str());
        if self.is_gone() {
            return Err(error);
        }
        let way = self.config.way_to_resume(&self.folder);
        let next = match self.checkpoints.list().last() {
            Some(name) => format!("{name} is kept: make room, then {way} goes on from there"),
            None => "there is none before it: make room, then start the run again".into(),
        };
        Err(Error::Io(format!("{text}: {error}; {next}")))
    }

    /// What is left of a run that a fault has stopped, and how to go on.
    pub(super) fn way_back(&self) -> String {
        match self.checkpoints.list().last() {
            Some(name) => {
                let (path, way) = (self.checkpoints.path(name), self.config.way_to_resume(&self.folder));
                format!("{} is kept: {way} goes on from there", path.display())
            }
            None => "the run came to no checkpoint: start it again".into(),
        }
    }

    /// Whether someone took the run's folder away.
    fn is_gone(&self) -> bool {
        !self.folder.join("run.toml").exists()
    }

    /// Everything needed to go on from here.
    fn state(&self) -> Result<Parts> {
        let kept = Kept {
            seconds: self.seconds(),
            cpu_seconds: self.cpu_seconds(),
            solved_step: self.solved.map(|solved| solved.step),
            solved_s: self.solved.map(|solved| solved.seconds),
            solved_return: self.solved.map(|solved| solved.mean_return),
            solved_evaluated: self.solved.is_some_and(|solved| solved.evaluated),
            eval: self.judge.standing.clone(),
            episodes: self.report.episodes.to_numbers(),
            numbers: self.numbers(),
            score: self.report.score,
        };
        let mut parts = self.algorithm.save()?;
        parts.insert("run.json".into(), serde_json::to_vec(&kept).expect("numbers are JSON"));
        parts.insert("run.toml".into(), self.config.to_text().into_bytes());
        Ok(parts)
    }

    fn write_checkpoint(&mut self, synced: bool) -> Result<String> {
        let steps = self.algorithm.steps();
        let late = self.board.settle(SETTLE).join(", ");
        if !late.is_empty() {
            let text = format!("{late} did not write its samples within {} s; checkpoints go on", SETTLE.as_secs());
            self.board.event(EventKind::Note, steps, text);
        }
        let standing = self.standing();
        let beaten = |peak: &mut Peak| standing.is_none_or(|now| beats(&peak.mark, &now, 0.0));
        if let Some(peak) = self.saves.peak.take_if(beaten) {
            let mark = Mark { is_best: true, synced, ..peak.mark };
            if let Err(error) = self.put(peak.steps, mark, &peak.parts) {
                self.saves.peak = Some(peak);
                return Err(error);
            }
        }
        let is_best = standing.is_some_and(|now| self.saves.best.is_none_or(|best| beats(&now, &best, 0.0)));
        let noted = Mark { mean_return: self.mean_return(), evaluation: self.judge.fresh(), is_best, synced };
        // Written once more as it was resumed: what is noted of the best stays.
        let names_this = |best: &String| Checkpoints::steps_of(best) == steps;
        let again = self
            .saves
            .best
            .filter(|_| self.iterations == 0 && self.checkpoints.best().is_some_and(|best| names_this(&best)));
        let noted = again.unwrap_or(noted);
        let parts = self.state()?;
        let name = self.put(steps, noted, &parts)?;
        self.saves.last = (self.iterations, self.seconds());
        (self.saves.peak, self.saves.failure) = (None, None);
        Ok(name)
    }

    /// Writes the last checkpoint once more, with what its evaluation has shown.
    pub(super) fn save_again(&mut self, name: &str) {
        let is_best = self.checkpoints.best().as_deref() == Some(name);
        let mark = Mark { mean_return: self.mean_return(), evaluation: self.judge.fresh(), is_best, synced: true };
        let steps = self.algorithm.steps();
        let saved = self.state().and_then(|parts| self.checkpoints.save(steps, mark, &parts));
        if let Err(error) = saved {
            self.board.event(EventKind::Note, steps, format!("{name} does not say that the env is solved: {error}"));
        }
    }

    fn put(&mut self, steps: u64, mark: Mark, parts: &Parts) -> Result<String> {
        let saved = self.checkpoints.save(steps, mark, parts);
        let name = saved.map_err(|error| if self.is_gone() { self.gone() } else { error })?;
        self.saves.bytes = parts.values().map(Vec::len).sum();
        if mark.is_best {
            self.saves.best = Some(mark);
        }
        let text = if mark.is_best { format!("{name}, best") } else { name.clone() };
        self.board.event(EventKind::Checkpoint, steps, text);
        Ok(name)
    }

    fn gone(&self) -> Error {
        let folder = self.folder.display();
        Error::Io(format!("{folder} is gone: removed or moved while its run went on, which ends here; start it again"))
    }

    pub(super) fn restore(&mut self, parts: &Parts) -> Result<()> {
        let kept = Kept::read(part(parts, "run.json")?)?;
        self.report.episodes = Episodes::from_numbers(&kept.episodes).ok_or_else(damaged)?;
        for (metric, value) in self.algorithm.metrics().iter().zip(&mut self.report.values) {
            *value = kept.numbers.get(metric.name).copied().unwrap_or(f64::NAN);
        }
        self.report.score = kept.score;
        self.before = (kept.seconds, kept.cpu_seconds);
        self.looked = (kept.seconds, operant_device::cpu_seconds());
        self.saves.last = (0, kept.seconds);
        self.saves.best = self.checkpoints.mend_best();
        self.saves.bytes = parts.values().map(Vec::len).sum();
        self.solved = (|| {
            let (step, seconds, mean_return) = (kept.solved_step?, kept.solved_s?, kept.solved_return?);
            Some(Solved { step, seconds, mean_return, evaluated: kept.solved_evaluated })
        })();
        self.judge.standing = kept.eval;
        self.show_evaluation();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn what_a_checkpoint_keeps_reads_back_with_all_its_bits(episodes in proptest::collection::vec(any::<f64>(), 200)) {
            let kept = Kept {
                seconds: episodes[0],
                cpu_seconds: episodes[1],
                solved_step: Some(1),
                solved_s: Some(episodes[2]),
                solved_return: Some(episodes[3]),
                solved_evaluated: true,
                eval: Default::default(),
                numbers: BTreeMap::from([("games".to_owned(), episodes[4])]),
                score: Some(episodes[5]),
                episodes,
            };
            let read = Kept::read(&serde_json::to_vec(&kept).unwrap()).unwrap();
            let bits = |kept: &Kept| -> Vec<u64> {
                let solved = [kept.solved_s.unwrap(), kept.solved_return.unwrap()];
                let first = [kept.seconds, kept.cpu_seconds, solved[0], solved[1], kept.numbers["games"], kept.score.unwrap()];
                first.iter().chain(&kept.episodes).map(|x| x.to_bits()).collect()
            };
            prop_assert_eq!(bits(&read), bits(&kept));
        }
    }
}
