//! When a run saves, and what its loop keeps in a checkpoint.
//!
//! A checkpoint is due after the first iteration, by count, by time, and when the return has improved. The first one is not
//! forced to the disk, which would take longer than many a run: a kill leaves it whole, a loss of power may not.

use super::checkpoint::Mark;
use super::{CheckpointSettings, Run, Solved};
use crate::algo::{Parts, part};
use crate::data::Episodes;
use crate::device;
use crate::error::{Error, Result};
use crate::telemetry::EventKind;
use serde::{Deserialize, Serialize};

/// A mean return is better if it is so by this share of the best one.
const GAIN: f64 = 0.01;

/// What a checkpoint keeps for the loop.
#[derive(Serialize, Deserialize)]
struct Kept {
    seconds: f64,
    cpu_seconds: f64,
    best: Option<f64>,
    solved_step: Option<u64>,
    solved_s: Option<f64>,
    solved_return: Option<f64>,
    episodes: Vec<f64>,
}

impl Run {
    /// Writes a checkpoint if one is due. A full disk costs a checkpoint, not the run: the next one may find room.
    pub(super) fn save_if_due(&mut self) {
        let first = self.iterations == 1 && self.checkpoints.list().is_empty();
        if !first && !self.is_due() {
            return;
        }
        let before = self.saved;
        if let Err(error) = self.write_checkpoint(!first) {
            let (steps, text) = (self.algorithm.steps(), error.to_string());
            self.board.event(EventKind::Note, steps, format!("no checkpoint: {text}"));
            (self.saved, self.save_failure) = ((self.iterations, self.seconds()), Some(text));
        }
        if first {
            // The others come as if there had been none.
            self.saved = before;
        }
    }

    fn is_due(&self) -> bool {
        let CheckpointSettings { every, every_s, improved_s, .. } = self.config.checkpoint;
        let (iterations, seconds) = (self.iterations - self.saved.0, self.seconds() - self.saved.1);
        let passed = |least: f64| least > 0.0 && seconds >= least;
        let gain = |best: f64| best + GAIN * best.abs();
        let episodes = &self.report.episodes;
        let improved = || episodes.is_full() && self.best.is_none_or(|best| episodes.mean_return() > gain(best));
        (every > 0 && iterations >= every) || passed(every_s) || (passed(improved_s) && improved())
    }

    /// Writes a checkpoint.
    pub fn save(&mut self) -> Result<String> {
        self.write_checkpoint(true)
    }

    fn write_checkpoint(&mut self, synced: bool) -> Result<String> {
        let steps = self.algorithm.steps();
        let episodes = &self.report.episodes;
        let mean = (episodes.count() > 0).then(|| episodes.mean_return());
        let is_best = episodes.is_full() && mean.is_some_and(|mean| self.best.is_none_or(|best| mean > best));
        let best = if is_best { mean } else { self.best };
        let seconds = self.seconds();
        let kept = Kept {
            seconds,
            cpu_seconds: self.cpu_seconds(),
            best,
            solved_step: self.solved.map(|solved| solved.step),
            solved_s: self.solved.map(|solved| solved.seconds),
            solved_return: self.solved.map(|solved| solved.mean_return),
            episodes: episodes.to_numbers(),
        };
        let mut parts = self.algorithm.save()?;
        parts.insert("run.json".into(), serde_json::to_vec(&kept).expect("numbers are JSON"));
        parts.insert("run.toml".into(), self.config.to_text().into_bytes());
        let name = self.checkpoints.save(steps, Mark { mean_return: mean, is_best, synced }, &parts)?;
        (self.saved, self.save_failure, self.best) = ((self.iterations, seconds), None, best);
        self.board.event(EventKind::Checkpoint, steps, if is_best { format!("{name}, best") } else { name.clone() });
        Ok(name)
    }

    pub(super) fn restore(&mut self, parts: &Parts) -> Result<()> {
        let damaged = || Error::Saved("checkpoint's run.json does not fit this run; take another".into());
        let kept: Kept = serde_json::from_slice(part(parts, "run.json")?).map_err(|_| damaged())?;
        self.report.episodes = Episodes::from_numbers(&kept.episodes).ok_or_else(damaged)?;
        self.before = (kept.seconds, kept.cpu_seconds);
        self.saved = (0, kept.seconds);
        self.looked = (kept.seconds, device::cpu_seconds());
        self.best = kept.best;
        self.solved = (|| {
            let (step, seconds, mean_return) = (kept.solved_step?, kept.solved_s?, kept.solved_return?);
            Some(Solved { step, seconds, mean_return })
        })();
        Ok(())
    }
}
