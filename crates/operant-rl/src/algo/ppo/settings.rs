//! The `[ppo]` table: every setting with its meaning, its default and the rule that it keeps.

use super::super::curiosity::Curiosity;
use operant_base::{Error, Result};
use operant_nn::ops::PpoCoefficients;
use operant_nn::{Method, Schedule};
use serde::{Deserialize, Serialize};

/// The `[ppo]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// T, steps of each env between updates.
    pub num_steps: usize,
    /// Samples of a minibatch; divides num_envs · num_steps.
    pub minibatch_size: usize,
    /// Passes over a rollout.
    pub update_epochs: u32,
    /// Step size of the optimiser.
    pub learning_rate: f64,
    /// Lower the learning rate in a straight line to 0 at the end of the run.
    pub anneal_lr: bool,
    /// Discount.
    pub gamma: f64,
    /// λ of generalised advantage estimation.
    pub gae_lambda: f64,
    /// Normalise advantages in every minibatch.
    pub norm_adv: bool,
    /// Least standard deviation that they are divided by: noise about nothing is not made as loud as news.
    pub adv_std_floor: f64,
    /// How far the ratio of probabilities may leave 1 before it stops paying.
    pub clip_coef: f64,
    /// Lower clip_coef in a straight line to 0 at the end of the run.
    pub anneal_clip: bool,
    /// Clip values around the old ones too.
    pub clip_vloss: bool,
    /// Weight of the entropy.
    pub ent_coef: f64,
    /// Lower ent_coef in a straight line to 0 at the end of the run.
    pub anneal_ent: bool,
    /// Biases of the first policy's logits, heads side by side, so that it seldom does what is seldom right; 0 where there is no number.
    pub first_logits: Vec<f64>,
    /// Of each head of choices in turn: the share of its largest entropy below which it is pushed back; 0, or no number, for none.
    pub ent_floors: Vec<f64>,
    /// Weight of what entropies lack to their floors, in nats.
    pub ent_floor_coef: f64,
    /// Of each head of choices in turn: the least probability f of a legal action while the run plays, p′ = (1 − n·f)·p + f for n
    /// of them, at most 1/(2n); 0, or no number, for none. The policy that is saved acts without.
    pub prob_floors: Vec<f64>,
    /// Weight of the value loss.
    pub vf_coef: f64,
    /// Iterations at the beginning that teach the critic's own layers alone, so that the policy's first steps follow values.
    pub value_warmup: u32,
    /// Gradients longer than this are shortened to it; 0 for no limit.
    pub max_grad_norm: f64,
    /// No further epoch once the policy has moved this far; 0 for no limit.
    pub target_kl: f64,
    /// adam or muon.
    pub optimizer: OptimizerName,
    /// Added to the root of Adam's second moment.
    pub adam_eps: f64,
    /// Give observations mean 0 and variance 1 by running statistics.
    pub normalize_obs: bool,
    /// Divide rewards by the running standard deviation of the discounted return.
    pub normalize_reward: bool,
    /// Learn values of mean 0 and variance 1, and rescale the last layer as returns change (PopArt).
    pub popart: bool,
    /// A reward for what is new: none, rnd or icm.
    pub curiosity: Curiosity,
    /// Weight of that reward, in units of its standard deviation.
    pub curiosity_coef: f64,
    /// On a GPU: play the next rollout while this one is learned from, with the policy from before that, one iteration old.
    pub overlap: bool,
}

/// Keys that lower a number over the env steps of the whole run.
pub(super) const SCHEDULES: [&str; 3] = ["anneal_lr", "anneal_clip", "anneal_ent"];

/// Keys that a run may change on the way.
pub(super) const MAY_CHANGE: &[&str] = &[
    "minibatch_size",
    "update_epochs",
    "learning_rate",
    "anneal_lr",
    "gamma",
    "gae_lambda",
    "norm_adv",
    "adv_std_floor",
    "clip_coef",
    "anneal_clip",
    "clip_vloss",
    "ent_coef",
    "prob_floors",
    "ent_floors",
    "ent_floor_coef",
    "anneal_ent",
    "vf_coef",
    "max_grad_norm",
    "target_kl",
    "adam_eps",
    "curiosity_coef",
    "overlap",
];

/// Which optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerName {
    /// Adam.
    Adam,
    /// Muon for matrices, Adam for the rest.
    Muon,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            num_steps: 32,
            minibatch_size: 256,
            update_epochs: 4,
            learning_rate: 2.5e-3,
            anneal_lr: true,
            gamma: 0.99,
            gae_lambda: 0.95,
            norm_adv: true,
            adv_std_floor: 0.0,
            clip_coef: 0.2,
            anneal_clip: false,
            clip_vloss: true,
            ent_coef: 0.01,
            anneal_ent: false,
            first_logits: Vec::new(),
            ent_floors: Vec::new(),
            ent_floor_coef: 0.1,
            prob_floors: Vec::new(),
            vf_coef: 0.5,
            value_warmup: 0,
            max_grad_norm: 0.5,
            target_kl: 0.0,
            optimizer: OptimizerName::Adam,
            adam_eps: 1e-5,
            normalize_obs: false,
            normalize_reward: false,
            popart: false,
            curiosity: Curiosity::None,
            curiosity_coef: 0.1,
            overlap: false,
        }
    }
}

/// Larger coefficients are mistakes, and leave f32.
const MOST: f64 = 1e30;

/// Without a row of zeros.
fn short(x: f64) -> String {
    if x.abs() >= 1e9 { format!("{x:e}") } else { x.to_string() }
}

/// What is wanted in place of `x`, which may be too large.
fn at_most(x: f64, otherwise: &str) -> String {
    if x > MOST { format!("at most {MOST:e}") } else { otherwise.to_owned() }
}

/// Beyond this a choice would never be made.
const MOST_LOGIT: f64 = 20.0;

/// A clip of 0 would let nothing be learned: what is annealed stays above this share.
const LEAST_FACTOR: f32 = 1e-3;

impl Settings {
    /// Factors of the clip and of the entropy's weight after so many steps.
    pub(super) fn factors(&self, steps: u64, total_steps: u64) -> [f32; 2] {
        let left = Schedule::Linear { from: 1.0, to: 0.0 }.at(steps, total_steps);
        let factor = |anneal: bool| if anneal { left.max(LEAST_FACTOR) } else { 1.0 };
        [factor(self.anneal_clip), factor(self.anneal_ent)]
    }

    /// Coefficients of the loss, before [`factors`](Self::factors).
    pub(super) fn coefficients(&self) -> PpoCoefficients {
        PpoCoefficients {
            clip: self.clip_coef as f32,
            value: self.vf_coef as f32,
            entropy: self.ent_coef as f32,
            clip_value: self.clip_vloss,
        }
    }

    pub(super) fn check(&self, num_envs: usize) -> Result<()> {
        let rule = |holds: bool, key: &str, got: &dyn std::fmt::Display, wanted: &str| {
            if holds { Ok(()) } else { Err(Error::Invalid(format!("ppo.{key} = {got}: wanted {wanted}"))) }
        };
        let fraction = |x: f64| (0.0..=1.0).contains(&x);
        let positive = |key: &str, x: f64| rule(x > 0.0 && x <= MOST, key, &short(x), &at_most(x, "more than 0"));
        let not_negative =
            |key: &str, x: f64, wanted: &str| rule((0.0..=MOST).contains(&x), key, &short(x), &at_most(x, wanted));
        rule((1..=1 << 20).contains(&self.num_steps), "num_steps", &self.num_steps, "1..=1048576")?;
        rule(self.update_epochs >= 1, "update_epochs", &self.update_epochs, "at least 1")?;
        positive("learning_rate", self.learning_rate)?;
        rule(fraction(self.gamma), "gamma", &self.gamma, "0 to 1")?;
        rule(fraction(self.gae_lambda), "gae_lambda", &self.gae_lambda, "0 to 1")?;
        positive("clip_coef", self.clip_coef)?;
        not_negative("ent_coef", self.ent_coef, "0 or more")?;
        not_negative("vf_coef", self.vf_coef, "0 or more")?;
        let finite = self.first_logits.iter().all(|logit| logit.abs() <= MOST_LOGIT);
        rule(finite, "first_logits", &format!("{:?}", self.first_logits), "numbers of -20 to 20")?;
        not_negative("adv_std_floor", self.adv_std_floor, "0 or more")?;
        not_negative("ent_floor_coef", self.ent_floor_coef, "0 or more")?;
        for (key, floors) in [("ent_floors", &self.ent_floors), ("prob_floors", &self.prob_floors)] {
            let fine = floors.iter().all(|floor| (0.0..1.0).contains(floor));
            rule(fine, key, &format!("{floors:?}"), "numbers of 0 or more and less than 1, one per head")?;
        }
        not_negative("max_grad_norm", self.max_grad_norm, "0 (no limit) or more")?;
        not_negative("target_kl", self.target_kl, "0 (no limit) or more")?;
        not_negative("curiosity_coef", self.curiosity_coef, "0 or more")?;
        positive("adam_eps", self.adam_eps)?;
        let samples = num_envs.saturating_mul(self.num_steps);
        if samples > u32::MAX as usize {
            return Err(Error::Invalid(format!("num_envs*num_steps = {samples}: wanted fewer than 2^32 samples")));
        }
        rule(self.minibatch_size >= 1, "minibatch_size", &self.minibatch_size, "at least 1")?;
        if !samples.is_multiple_of(self.minibatch_size) {
            let size = self.minibatch_size;
            return Err(Error::Invalid(format!(
                "ppo.minibatch_size {size} does not divide num_envs*num_steps = {samples}"
            )));
        }
        Ok(())
    }

    pub(super) fn method(&self) -> Method {
        let (beta1, beta2, eps) = (0.9, 0.999, self.adam_eps);
        match self.optimizer {
            OptimizerName::Adam => Method::Adam { beta1, beta2, eps },
            OptimizerName::Muon => match Method::MUON {
                Method::Muon { momentum, scale, .. } => {
                    Method::Muon { momentum, weight_decay: 0.0, scale, beta1, beta2, eps }
                }
                other => other,
            },
        }
    }
}
