//! The `[dqn]` table: every setting with its meaning, its default and the rule that it keeps.

use super::super::curriculum;
use operant_base::{Error, Result};
use operant_nn::Method;
use serde::{Deserialize, Serialize};

/// The `[dqn]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Steps of each env in an iteration, after which numbers are reported; learning goes on all the while.
    pub num_steps: usize,
    /// Steps of all envs together that replay holds.
    pub buffer_size: usize,
    /// Samples of a minibatch.
    pub batch_size: usize,
    /// Samples learned per env step.
    pub replay_ratio: f64,
    /// Env steps before the first is learned.
    pub learning_starts: u64,
    /// Step size of the optimiser.
    pub learning_rate: f64,
    /// Lower the learning rate in a straight line to 0 at the end of the run.
    pub anneal_lr: bool,
    /// Updates over which the learning rate rises from 0 at first.
    pub warmup_updates: u64,
    /// Discount.
    pub gamma: f64,
    /// Share of the network that the target network takes over at its update: 1 copies it.
    pub tau: f64,
    /// Updates of the network between those of the target network.
    pub target_network_frequency: u64,
    /// Share of random actions at first.
    pub start_e: f64,
    /// Share of random actions in the end.
    pub end_e: f64,
    /// Share of the run over which the one becomes the other.
    pub exploration_fraction: f64,
    /// Most steps for which a random action is held: 1 draws anew in every step; longer stretches, of which n steps come in proportion to
    /// 1/n², get further.
    pub explore_steps: u32,
    /// Most steps of a window: rewards of so many steps are seen, then values are trusted.
    pub n_step: usize,
    /// End windows before an action that is not the best known, which returns behind it would be less for (Watkins, "Learning from delayed
    /// rewards", 1989).
    pub cut_explored: bool,
    /// Choose the action at a window's end by the network and value it by the target network.
    pub double_q: bool,
    /// Separate heads for the value of the state and for advantages of actions.
    pub dueling: bool,
    /// Explore by noise in the weights of heads; random actions end when learning starts.
    pub noisy: bool,
    /// Quantiles of the return that are learned of each action; 0 for its mean alone.
    pub quantiles: usize,
    /// Draw samples by how wrong they were.
    pub prioritized_replay: bool,
    /// How much: 0 not at all, 1 in proportion.
    pub prioritized_replay_alpha: f64,
    /// How much of the bias of that weights take back, rising in a straight line to 1 at the end of the run.
    pub prioritized_replay_beta: f64,
    /// Added to errors, so that every sample has a chance.
    pub prioritized_replay_eps: f64,
    /// What an error costs: huber or mse.
    pub loss: LossName,
    /// Where Huber's parabola ends, also that of quantiles.
    pub huber_delta: f64,
    /// Gradients longer than this are shortened to it; 0 for no limit.
    pub max_grad_norm: f64,
    /// adam or adamw.
    pub optimizer: OptimizerName,
    /// Added to the root of Adam's second moment.
    pub adam_eps: f64,
    /// Decay of weights, of adamw alone.
    pub weight_decay: f64,
    /// Give observations mean 0 and variance 1 by running statistics.
    pub normalize_obs: bool,
    /// Share of a puzzle's states that are never learned from (cube2, cube3); with env.symmetry, whole orbits at a time.
    pub held_out: f64,
    /// Moves from solved within which no state is held out: all others' values rest on those.
    pub held_out_beyond: u32,
    /// Stages over one parameter of the env.
    pub curriculum: curriculum::Settings,
}

/// Keys that a run may change on the way.
pub(super) const MAY_CHANGE: &[&str] = &[
    "batch_size",
    "replay_ratio",
    "learning_starts",
    "learning_rate",
    "anneal_lr",
    "warmup_updates",
    "gamma",
    "tau",
    "target_network_frequency",
    "start_e",
    "end_e",
    "exploration_fraction",
    "double_q",
    "prioritized_replay_beta",
    "prioritized_replay_eps",
    "loss",
    "huber_delta",
    "max_grad_norm",
    "adam_eps",
    "weight_decay",
];

/// What an error costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossName {
    /// Half its square up to a limit, from there on in proportion.
    Huber,
    /// Its square.
    Mse,
}

/// Which optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerName {
    /// Adam.
    Adam,
    /// Adam with decay of weights.
    Adamw,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            num_steps: 32,
            buffer_size: 100_000,
            batch_size: 128,
            replay_ratio: 8.0,
            learning_starts: 5_000,
            learning_rate: 1e-3,
            anneal_lr: false,
            warmup_updates: 0,
            gamma: 0.99,
            tau: 1.0,
            target_network_frequency: 250,
            start_e: 1.0,
            end_e: 0.05,
            exploration_fraction: 0.2,
            explore_steps: 1,
            n_step: 3,
            cut_explored: false,
            double_q: true,
            dueling: true,
            noisy: false,
            quantiles: 0,
            prioritized_replay: false,
            prioritized_replay_alpha: 0.6,
            prioritized_replay_beta: 0.4,
            prioritized_replay_eps: 1e-6,
            loss: LossName::Huber,
            huber_delta: 1.0,
            max_grad_norm: 10.0,
            optimizer: OptimizerName::Adam,
            adam_eps: 1e-8,
            weight_decay: 0.01,
            normalize_obs: false,
            held_out: 0.0,
            held_out_beyond: 5,
            curriculum: curriculum::Settings::default(),
        }
    }
}

/// Larger coefficients are mistakes, and leave f32.
const MOST: f64 = 1e30;

impl Settings {
    pub(super) fn check(&self) -> Result<()> {
        let rule = |holds: bool, key: &str, got: &dyn std::fmt::Display, wanted: &str| {
            if holds { Ok(()) } else { Err(Error::Invalid(format!("dqn.{key} = {got}: wanted {wanted}"))) }
        };
        let fraction = |x: f64| (0.0..=1.0).contains(&x);
        let positive = |x: f64| x > 0.0 && x <= MOST;
        let not_negative = |x: f64| (0.0..=MOST).contains(&x);
        rule((1..=1 << 20).contains(&self.num_steps), "num_steps", &self.num_steps, "1..=1048576")?;
        rule((1..=1 << 20).contains(&self.batch_size), "batch_size", &self.batch_size, "1..=1048576")?;
        rule((1..=1 << 16).contains(&self.n_step), "n_step", &self.n_step, "1..=65536")?;
        rule((1..=1000).contains(&self.explore_steps), "explore_steps", &self.explore_steps, "1..=1000")?;
        rule(self.quantiles <= 1 << 12, "quantiles", &self.quantiles, "0 (none) to 4096")?;
        let ratio = self.replay_ratio;
        rule(ratio > 0.0 && ratio <= 1e6, "replay_ratio", &ratio, "more than 0, at most 1e6")?;
        rule(positive(self.learning_rate), "learning_rate", &self.learning_rate, "more than 0")?;
        rule(fraction(self.gamma), "gamma", &self.gamma, "0 to 1")?;
        rule(self.tau > 0.0 && self.tau <= 1.0, "tau", &self.tau, "more than 0, up to 1")?;
        let every = self.target_network_frequency;
        rule(every >= 1, "target_network_frequency", &every, "at least 1")?;
        rule(fraction(self.start_e), "start_e", &self.start_e, "0 to 1")?;
        rule(fraction(self.end_e), "end_e", &self.end_e, "0 to 1")?;
        rule(fraction(self.exploration_fraction), "exploration_fraction", &self.exploration_fraction, "0 to 1")?;
        let (alpha, beta) = (self.prioritized_replay_alpha, self.prioritized_replay_beta);
        rule(fraction(alpha), "prioritized_replay_alpha", &alpha, "0 to 1")?;
        rule(fraction(beta), "prioritized_replay_beta", &beta, "0 to 1")?;
        let eps = self.prioritized_replay_eps;
        rule(positive(eps) && eps as f32 > 0.0, "prioritized_replay_eps", &eps, "more than 0")?;
        rule((0.0..=0.9).contains(&self.held_out), "held_out", &self.held_out, "0 to 0.9")?;
        rule((0..=6).contains(&self.held_out_beyond), "held_out_beyond", &self.held_out_beyond, "0..=6")?;
        rule(positive(self.huber_delta), "huber_delta", &self.huber_delta, "more than 0")?;
        rule(not_negative(self.max_grad_norm), "max_grad_norm", &self.max_grad_norm, "0 (no limit) or more")?;
        rule(positive(self.adam_eps), "adam_eps", &self.adam_eps, "more than 0")?;
        rule(not_negative(self.weight_decay), "weight_decay", &self.weight_decay, "0 or more")
    }

    /// A number that goes from one to another over a share of the run.
    pub(super) fn along(from: f64, to: f64, share: f64, steps: u64, total_steps: u64) -> f64 {
        let progress = steps as f64 / (share * total_steps as f64).max(1.0);
        from + (to - from) * progress.min(1.0)
    }

    /// The share of random actions after so many env steps.
    pub(super) fn epsilon(&self, steps: u64, total_steps: u64) -> f64 {
        match self.noisy {
            true if steps < self.learning_starts => 1.0,
            true => 0.0,
            false => Self::along(self.start_e, self.end_e, self.exploration_fraction, steps, total_steps),
        }
    }

    /// The step size after so many env steps and updates.
    pub(super) fn learning_rate(&self, steps: u64, total_steps: u64, updates: u64) -> f32 {
        let end = if self.anneal_lr { 0.0 } else { self.learning_rate };
        let rate = Self::along(self.learning_rate, end, 1.0, steps, total_steps);
        let risen = (updates + 1) as f64 / self.warmup_updates.max(1) as f64;
        (rate * risen.min(1.0)) as f32
    }

    pub(super) fn method(&self) -> Method {
        let (beta1, beta2, eps) = (0.9, 0.999, self.adam_eps);
        match self.optimizer {
            OptimizerName::Adam => Method::Adam { beta1, beta2, eps },
            OptimizerName::Adamw => Method::AdamW { beta1, beta2, eps, weight_decay: self.weight_decay },
        }
    }
}
