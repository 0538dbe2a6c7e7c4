//! Evaluations on the way: episodes of the weights as they are, which `best` and `solved` follow.
//!
//! - A look plays `eval.episodes` episodes with the most probable actions. By `eval.every = auto` it comes as soon as all
//!   evaluations so far and one more like the last take at most 3 % of the env steps of training; by a number, after so many.
//! - When the mean of the last 100 episodes of training reaches the goal, or a look does, the goal is checked: a look, and
//!   if the goal is within two of its standard errors, 100 episodes. The env is solved if their mean reaches the goal.
//! - After a check that failed, training goes on for as many env steps as the check took, or an eighth of that for envs in
//!   lanes, whose steps take little time compared with learning. Each time it is at least twice as many, until checks take 3 % too.
//!
//! Until the first look, `best` follows the returns of training.
//!
//! Where a GPU learns and the CPU plays, an env step of an evaluation counts as [`STEP_ON_CPU`].
//!
//! Invariant: all of this follows from env steps and returns, never from time, so that a run repeats and goes on exactly;
//! and nothing of it touches the envs, the random numbers or the weights of training.

use super::checkpoint::Mark;
use super::config::Every;
use super::eval::{Evaluation, Quota, Stage, build_envs, side_by_side};
use super::{Config, Run};
use crate::algo::Policy;
use operant_base::telemetry::EventKind;
use operant_base::{Error, Result};
use operant_device::{CpuPool, Device};
use operant_env::{self as env, VecEnv};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Episodes that say whether an env is solved, and of the evaluation at the end of a run.
pub(super) const EPISODES: usize = 100;
/// One in so many env steps of training is one of an evaluation at most: 3 %.
const STEPS_PER_STEP: u64 = 33;
/// What an env step on the CPU counts as in a run that learns on a GPU, where steps of training take so much less time.
const STEP_ON_CPU: u64 = 16;
/// What part of a check's env steps training takes at first after one that failed, for envs in lanes.
const QUICK: u64 = 8;
/// Standard errors that a look may be below the goal.
const IN_SIGHT: f64 = 2.0;
/// Steps of an episode after which it counts as endless, where no time limit says so: this, and a hundred times the mean
/// length in training.
const ENDLESS: (u64, f64) = (10_000, 100.0);

/// Makes envs like those of a run, so many side by side, with same-step auto-reset.
pub type MakeEnvs = Box<dyn Fn(usize) -> Result<Box<dyn VecEnv>> + Send>;

/// What an evaluation came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Mean return.
    pub mean: f64,
    /// Its standard error; 0 of a single episode.
    pub error: f64,
    /// Episodes.
    pub episodes: usize,
}

impl Score {
    fn of(evaluation: &Evaluation) -> Self {
        Self { mean: evaluation.mean(), error: evaluation.error(), episodes: evaluation.returns.len() }
    }

    /// Whether these weights are the better ones: by what their return is at least, and where that is the same by more episodes.
    pub(super) fn beats(&self, other: &Self) -> bool {
        let least = |score: &Self| (score.mean - score.error, score.episodes);
        least(self) > least(other)
    }
}

/// Where the envs of evaluations come from.
enum Envs {
    /// From the registry.
    Registered,
    /// From who brought those of training; so many at once.
    Brought(MakeEnvs, usize),
    /// There are none: `best` and `solved` follow training.
    None,
}

/// How a run stands with its evaluations, as a checkpoint keeps it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Standing {
    /// Env steps that evaluations took on the way.
    pub(super) spent: u64,
    /// Env steps of training at the last look, and what that took.
    at: u64,
    cost: u64,
    /// Env steps of training to be done after a check that failed, and when the next may come.
    wait: u64,
    check_at: u64,
    /// Bits of the last mean return and of its error, and its episodes.
    last: Option<(u64, u64, usize)>,
}

impl Standing {
    /// What the last evaluation came to.
    pub(super) fn score(&self) -> Option<Score> {
        let (mean, error, episodes) = self.last?;
        Some(Score { mean: f64::from_bits(mean), error: f64::from_bits(error), episodes })
    }
}

/// Who evaluates a run.
pub(super) struct Judge {
    envs: Envs,
    /// Whether `best` and `solved` follow evaluations.
    on: bool,
    pool: Arc<CpuPool>,
    /// Where the envs of evaluations are stepped.
    device: Device,
    /// What an env step of an evaluation counts as.
    weight: u64,
    pub(super) standing: Standing,
    /// Whether steps of the env take little time compared with those of learning.
    quick: bool,
    /// Of the weights as they are now.
    fresh: Option<Score>,
    /// The goal was reached just now.
    reached: Option<Score>,
    /// Env steps of the last evaluation of [`EPISODES`].
    full_cost: u64,
    /// For looks.
    stage: Option<Stage>,
    /// Notes that a run makes once: there are no evaluations, and one had no end.
    noted_none: bool,
    noted_endless: bool,
}

impl Judge {
    /// `plays` says that the algorithm plays episodes of which the return is what counts.
    pub(super) fn new(config: &Config, plays: bool, pool: Arc<CpuPool>) -> Result<Self> {
        let entry = config.registered().ok();
        let there = config.envs_work_on_gpu()?;
        let learns_there = config.settings.device.starts_with("cuda") && !there;
        Ok(Self {
            quick: entry.is_some_and(|entry| entry.door() == env::Door::Lanes),
            envs: if entry.is_some() && plays { Envs::Registered } else { Envs::None },
            on: plays && config.eval.every != Every::Steps(0),
            pool,
            device: if there { Device::named(&config.settings.device)? } else { Device::Cpu },
            weight: if learns_there { STEP_ON_CPU } else { 1 },
            standing: Standing::default(),
            fresh: None,
            reached: None,
            full_cost: 0,
            stage: None,
            noted_none: false,
            noted_endless: false,
        })
    }

    /// The same for the settings that a run goes on with.
    pub(super) fn moved(&self, config: &Config, plays: bool, pool: Arc<CpuPool>) -> Result<Self> {
        Ok(Self { standing: self.standing.clone(), ..Self::new(config, plays, pool)? })
    }

    /// Whether `best` and `solved` follow evaluations.
    pub(super) fn judges(&self) -> bool {
        self.on && !matches!(self.envs, Envs::None)
    }

    /// Whether there was an evaluation. From then on returns of training do not count.
    pub(super) fn has_judged(&self) -> bool {
        self.judges() && self.standing.last.is_some()
    }

    /// What the weights are worth that the last iteration ended with, if they were evaluated.
    pub(super) fn fresh(&self) -> Option<Score> {
        self.fresh.filter(|_| self.judges())
    }

    /// Forgets what is known of the weights, which are others from now on.
    pub(super) fn forget(&mut self) {
        self.fresh = None;
    }

    /// What reached the goal just now.
    pub(super) fn take_reached(&mut self) -> Option<Score> {
        self.reached.take()
    }

    /// Whether a look is due after so many env steps of training.
    fn is_due(&self, config: &Config, steps: u64, mean_length: f64) -> bool {
        let Standing { spent, at, cost, .. } = self.standing;
        match config.eval.every {
            Every::Steps(every) => steps >= at + every,
            // How much one takes is not known before an episode has ended.
            Every::Auto if mean_length.is_nan() => false,
            Every::Auto => {
                let next = cost.max((config.eval.episodes as f64 * mean_length).ceil() as u64);
                (spent + next) * self.weight * STEPS_PER_STEP <= steps
            }
        }
    }

    fn build(&self, config: &Config, policy: &Policy, episodes: usize) -> Result<Stage> {
        // Another run of this process may have named other files.
        config.use_task_data();
        let envs = match &self.envs {
            Envs::Brought(make, most) => make(episodes.min(*most))?,
            _ => build_envs(config.registered()?, &config.params(), side_by_side(episodes), &self.device, &self.pool)?,
        };
        Stage::new(policy, envs, &Device::Cpu, Arc::clone(&self.pool))
    }

    /// Plays so many episodes with a policy; nothing if they have no end. Also says how many env steps that took.
    fn play(
        &mut self,
        config: &Config,
        policy: &Policy,
        episodes: usize,
        mean_length: f64,
    ) -> Result<(Option<Score>, u64)> {
        // Envs that users make may be dear to make: one set of them plays all evaluations.
        let kept = episodes == config.eval.episodes || matches!(self.envs, Envs::Brought(..));
        let mut stage = match self.stage.take_if(|_| kept) {
            Some(stage) => stage,
            None => self.build(config, policy, episodes)?,
        };
        let in_turn = episodes.div_ceil(stage.num_envs()) as u64;
        let longest = ENDLESS.0 + (ENDLESS.1 * mean_length.max(0.0)) as u64;
        let quota = Quota {
            episodes,
            seed: config.settings.seed,
            deterministic: true,
            most_steps: stage.spec().time_limit.is_none().then_some(in_turn * longest),
        };
        let (evaluation, cost) = stage.play(policy, &quota, None)?;
        if kept {
            self.stage = Some(stage);
        }
        Ok(((evaluation.returns.len() == episodes).then(|| Score::of(&evaluation)), cost))
    }

    /// Keeps what an evaluation of the weights as they are came to.
    fn note(&mut self, score: Score) {
        self.fresh = Some(score);
        self.standing.last = Some((score.mean.to_bits(), score.error.to_bits(), score.episodes));
    }

    /// Says when the goal may be checked again.
    fn put_off(&mut self, steps: u64, cost: u64) {
        let cost = cost * self.weight;
        let least = if self.quick { cost / QUICK } else { cost };
        let standing = &mut self.standing;
        standing.wait = (2 * standing.wait).max(least).min(cost * STEPS_PER_STEP);
        standing.check_at = steps + standing.wait;
    }
}

impl Run {
    /// Has evaluations play in envs that these make, `most` of them at once, where the env is not in the registry.
    pub fn evaluate_in(&mut self, make: MakeEnvs, most: usize) {
        if matches!(self.judge.envs, Envs::None) && self.plays() {
            self.judge.envs = Envs::Brought(make, most.max(1));
        }
    }

    /// Whether returns of episodes say how good the weights are; algorithms with numbers of their own are judged by those.
    pub(super) fn plays(&self) -> bool {
        !self.algorithm.metrics().iter().any(|metric| metric.headline)
    }

    /// Evaluates the weights that an iteration ended with, if that is due.
    pub(super) fn judge(&mut self, steps: u64) -> Result<()> {
        self.judge.fresh = None;
        if !self.judge.on || self.report.preparing {
            return Ok(());
        }
        if !self.judge.judges() {
            self.tell_no_evaluations(steps, "these envs can't be made a second time; bring a function that makes envs");
            return Ok(());
        }
        let episodes = &self.report.episodes;
        let mean_length = episodes.mean_length();
        let goal = self.spec.solved_at.map(f64::from).filter(|_| self.solved.is_none());
        let may_check = goal.filter(|_| steps >= self.judge.standing.check_at);
        let in_training = may_check.filter(|&goal| episodes.is_full() && episodes.mean_return() >= goal);
        let is_due = self.judge.is_due(&self.config, steps, mean_length);
        if !is_due && in_training.is_none() {
            return Ok(());
        }
        let policy = self.algorithm.policy()?;
        let count = self.config.eval.episodes;
        let (look, cost) = match self.judge.play(&self.config, &policy, count, mean_length) {
            Err(Error::Invalid(reason)) => {
                self.judge.envs = Envs::None;
                self.tell_no_evaluations(steps, &reason);
                return Ok(());
            }
            played => played?,
        };
        let standing = &mut self.judge.standing;
        standing.spent += cost;
        (standing.at, standing.cost) = (steps, cost);
        match look {
            Some(look) => self.judge.note(look),
            None => self.tell_endless(steps, count),
        }
        let reached = |look: &Score| may_check.filter(|&goal| look.mean >= goal);
        if let Some(goal) = in_training.or_else(|| look.as_ref().and_then(reached)) {
            self.check(&policy, goal, (look, cost), mean_length)?;
        }
        Ok(())
    }

    /// Plays the episodes that say whether a goal is reached, unless a look says that it is far.
    fn check(&mut self, policy: &Policy, goal: f64, look: (Option<Score>, u64), mean_length: f64) -> Result<()> {
        let (mut score, mut cost) = look;
        let steps = self.algorithm.steps();
        let in_sight = score.is_some_and(|look| look.mean + IN_SIGHT * look.error >= goal);
        if in_sight && score.is_some_and(|look| look.episodes < EPISODES) {
            let (full, more) = match self.judge.play(&self.config, policy, EPISODES, mean_length) {
                // There is room for a look, but not for so many envs.
                Err(Error::Invalid(reason)) => {
                    self.judge.put_off(steps, cost);
                    self.tell_no_check(steps, &reason);
                    return Ok(());
                }
                played => played?,
            };
            self.judge.standing.spent += more;
            self.judge.full_cost = more;
            (score, cost) = (full.or(score), cost + more);
            if let Some(full) = full {
                self.judge.note(full);
            }
        }
        let reached = score.filter(|score| score.episodes >= EPISODES && score.mean >= goal);
        self.judge.reached = reached;
        if reached.is_none() {
            self.judge.put_off(steps, cost);
            if let Some(Score { mean, error, episodes }) = score {
                let text = format!(
                    "evaluation {mean:.1} ± {error:.1} over {episodes} episodes is below the goal of {goal}; training goes on"
                );
                self.board.event(EventKind::Note, steps, text);
            }
        }
        Ok(())
    }

    fn tell_no_evaluations(&mut self, steps: u64, reason: &str) {
        if !std::mem::replace(&mut self.judge.noted_none, true) {
            let text = format!("best and solved follow returns of training, since there are no evaluations: {reason}");
            self.board.event(EventKind::Note, steps, text);
        }
    }

    fn tell_no_check(&mut self, steps: u64, reason: &str) {
        if !std::mem::replace(&mut self.judge.noted_none, true) {
            let text = format!("whether the env is solved can't be checked over {EPISODES} episodes: {reason}");
            self.board.event(EventKind::Note, steps, text);
        }
    }

    fn tell_endless(&mut self, steps: u64, episodes: usize) {
        if !std::mem::replace(&mut self.judge.noted_endless, true) {
            let text = format!("an evaluation was cut off: the most probable actions did not end {episodes} episodes");
            self.board.event(EventKind::Note, steps, text);
        }
    }

    /// Evaluates the weights that a run ends with, where there are envs for it in the registry.
    pub(super) fn judge_last(&mut self) -> Result<Option<Score>> {
        let registered = self.config.registered().is_ok();
        if let Some(score) = self.judge.fresh.filter(|score| registered && score.episodes >= EPISODES) {
            return Ok(Some(score));
        }
        let policy = match self.algorithm.policy() {
            _ if !registered => return Ok(None),
            Err(Error::Invalid(_)) => return Ok(None),
            policy => policy?,
        };
        let mean_length = self.report.episodes.mean_length();
        let (score, cost) = match self.judge.play(&self.config, &policy, EPISODES, mean_length) {
            // No room for its envs, say: what was trained is saved and counts.
            Err(Error::Invalid(reason)) => {
                let text = format!("no evaluation at the end: {reason}");
                self.board.event(EventKind::Note, self.algorithm.steps(), text);
                return Ok(None);
            }
            played => played?,
        };
        self.judge.full_cost = cost;
        match score {
            Some(score) if self.judge.judges() => self.judge.note(score),
            _ => self.judge.fresh = score.or(self.judge.fresh),
        }
        Ok(score)
    }

    /// Has `best` name the last checkpoint if that is better by the same episodes than the one that it names.
    pub(super) fn settle_best(&mut self, last: &str, score: Score) -> Result<()> {
        if !self.judge.judges() {
            return Ok(());
        }
        let known = self.saves.best.and_then(|mark| mark.evaluation);
        let (name, judged) = match self.checkpoints.best().filter(|best| best != last) {
            Some(best) => {
                let judged = self.judge_again(&best, known, score.episodes)?;
                let enough = judged.is_some_and(|judged| judged.episodes >= score.episodes);
                // What only a few episodes say of it has to be clearly better.
                let holds = judged.filter(|judged| judged.mean - if enough { 0.0 } else { judged.error } >= score.mean);
                holds.map_or((last.to_owned(), score), |judged| (best, judged))
            }
            None => (last.to_owned(), score),
        };
        let mark = Mark { evaluation: Some(judged), is_best: true, synced: true, ..Mark::default() };
        if let Err(error) = self.checkpoints.name_best(&name, mark) {
            self.board.event(EventKind::Note, self.algorithm.steps(), format!("best is not settled: {error}"));
            return Ok(());
        }
        self.saves.best = Some(mark);
        Ok(())
    }

    /// What a checkpoint is worth by as many episodes as another, where that does not take long; else what is known.
    fn judge_again(&mut self, name: &str, known: Option<Score>, episodes: usize) -> Result<Option<Score>> {
        let share = self.judge.full_cost * self.judge.weight * STEPS_PER_STEP <= self.algorithm.steps();
        if known.is_some_and(|known| known.episodes >= episodes) || !(self.judge.quick || share) {
            return Ok(known);
        }
        let file = self.checkpoints.load_part(name, "policy.safetensors");
        // One that can't be read any more is no best one.
        let Ok(policy) = file.and_then(|bytes| Policy::from_bytes(&bytes)) else { return Ok(None) };
        match self.judge.play(&self.config, &policy, episodes, self.report.episodes.mean_length()) {
            Err(Error::Invalid(_)) => Ok(known),
            played => Ok(played?.0),
        }
    }
}
