//! Rewards for what is new, for envs whose own rewards are rare: random network distillation (Burda et al.,
//! arXiv:1810.12894) and the intrinsic curiosity module (Pathak et al., arXiv:1705.05363).
//!
//! Both are a network with an error per transition: the error is the bonus, and training lowers it where the agent has
//! been. Transitions lie in a rollout as they are read here: row t + 1 of observations is N rows after row t.

use super::policy::Head;
use super::train_and_step::first_bad_op;
use crate::data::{ActionColumn, ReturnScale, Rollout};
use operant_base::{Error, Result};
use operant_nn::nets::mlp;
use operant_nn::{Act, Feed, Graph, Method, Node, Optimizer, Options, Params, Plan, Precision, Wanted};
use serde::{Deserialize, Serialize};

/// Which bonus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Curiosity {
    /// None.
    None,
    /// Random network distillation: how badly a network predicts a random one's view of the next observation.
    Rnd,
    /// Intrinsic curiosity: how badly the next observation's features are predicted from the last one's and the action.
    Icm,
}

/// Size of features and of hidden layers.
const FEATURES: usize = 64;
/// Weight of the forward model's error against the inverse model's (Pathak et al.).
const FORWARD_SHARE: f32 = 0.2;
/// Bonuses are limited to this many standard deviations.
const LIMIT: f32 = 5.0;
/// Discount of the return by whose spread bonuses are scaled.
const GAMMA: f32 = 0.99;
const LEARNING_RATE: f32 = 1e-3;

/// A network whose error is a bonus.
pub(super) struct Bonus {
    kind: Curiosity,
    params: Params,
    optimizer: Optimizer,
    plan: Plan,
    error: Node,
    head: Head,
    scale: ReturnScale,
    /// `[T, N]` bonuses of the last rollout.
    bonus: Vec<f32>,
    /// `[rows, ΣA]` one-hot actions or `[rows, A]` numbers, and 0 where an episode ended: its next row is another's first.
    actions: Vec<f32>,
    weight: Vec<f32>,
}

/// The error per transition, and the loss.
fn graph(kind: Curiosity, obs: usize, head: &Head) -> Result<(Graph, Node, Node)> {
    let mut g = Graph::new();
    let (before, after) = (g.input("obs", [obs]), g.input("next_obs", [obs]));
    let width = match head {
        Head::Choices(heads) => heads.iter().sum(),
        Head::Gaussian(dims) => *dims,
    };
    let (action, weight) = (g.input("action", [width]), g.input("weight", [1]));
    let sizes = [FEATURES, FEATURES];
    let (error, loss) = match kind {
        Curiosity::Icm => {
            // One encoder for both observations: side by side as two steps of one sequence.
            let both = g.concat(&[before, after])?;
            let both = g.reshape(both, [2, obs])?;
            let features = mlp(&mut g, "encoder", both, &sizes, Act::Relu, 1.0)?;
            let features = g.reshape(features, [2 * FEATURES])?;
            let pair = g.split(features, &[FEATURES, FEATURES])?;
            let guess = mlp(&mut g, "inverse", features, &[FEATURES, width], Act::Relu, 1.0)?;
            let inverse = match head {
                Head::Gaussian(_) => g.mse_loss(guess, action)?,
                Head::Choices(heads) => {
                    let (guesses, taken) = (g.split(guess, heads)?, g.split(action, heads)?);
                    let mut sum: Option<Node> = None;
                    for (guess, taken) in guesses.into_iter().zip(taken) {
                        let one = g.soft_cross_entropy(guess, taken, None)?;
                        sum = Some(sum.map_or(Ok(one), |sum| g.add(sum, one))?);
                    }
                    sum.ok_or_else(|| Error::Invalid("no actions to predict".into()))?
                }
            };
            let (known, target) = (g.detach(pair[0])?, g.detach(pair[1])?);
            let known = g.concat(&[known, action])?;
            let predicted = mlp(&mut g, "forward", known, &sizes, Act::Relu, 1.0)?;
            let error = g.mse_loss(predicted, target)?;
            let (a, b) = (g.scale(inverse, 1.0 - FORWARD_SHARE)?, g.scale(error, FORWARD_SHARE)?);
            (error, g.add(a, b)?)
        }
        _ => {
            let target = mlp(&mut g, "target", after, &sizes, Act::Relu, 1.0)?;
            let target = g.detach(target)?;
            let predicted = mlp(&mut g, "predictor", after, &[FEATURES, FEATURES, FEATURES], Act::Relu, 1.0)?;
            let error = g.mse_loss(predicted, target)?;
            (error, error)
        }
    };
    let error = g.mul(error, weight)?;
    let loss = g.mul(loss, weight)?;
    Ok((g, error, loss))
}

impl Bonus {
    /// For rollouts of a shape, read `rows` transitions at a time; nothing for no curiosity.
    pub(super) fn new(
        kind: Curiosity,
        rollout: &Rollout,
        head: &Head,
        rows: usize,
        seed: u64,
        options: &Options,
    ) -> Result<Option<Self>> {
        if kind == Curiosity::None {
            return Ok(None);
        }
        let (graph, error, loss) = graph(kind, rollout.shape.obs, head)?;
        let params = graph.params(seed ^ 0x6375_7269_6f75_7300)?;
        let wanted = Wanted { outputs: vec![error], losses: vec![(loss, 1.0)], ..Wanted::default() };
        // Its loss is not scaled, as f16 needs.
        let precision = if options.precision == Precision::F16 { Precision::F32 } else { options.precision };
        let plan = Plan::new(&graph, &wanted, rows, &Options { precision, ..options.clone() })?;
        let width = graph.shape(graph.inputs()[2]).iter().product::<usize>();
        Ok(Some(Self {
            kind,
            optimizer: Optimizer::new(Method::default(), &params, None, options.backend)?.on(&options.pool),
            params,
            plan,
            error,
            head: head.clone(),
            scale: ReturnScale::new(rollout.shape.envs),
            bonus: vec![0.0; rollout.samples()],
            actions: vec![0.0; rows * width],
            weight: vec![0.0; rows],
        }))
    }

    /// Adds `coefficient` times the scaled bonus of every transition to its reward, and learns from all of them. Gives the
    /// mean error before scaling, or the end of a message if it was not finite.
    pub(super) fn reward(&mut self, rollout: &mut Rollout, coefficient: f32) -> Result<f64, String> {
        let (rows, samples, n) = (self.plan.max_rows(), rollout.samples(), rollout.shape.envs);
        let mut sum = 0.0;
        for first in (0..samples).step_by(rows) {
            let count = rows.min(samples - first);
            self.stage(rollout, first, count);
            let obs = rollout.shape.obs;
            let feeds = [
                Feed::Real(&rollout.obs[first * obs..]),
                Feed::Real(&rollout.obs[(first + n) * obs..]),
                Feed::Real(&self.actions),
                Feed::Real(&self.weight),
            ];
            let (params, optimizer) = (&mut self.params, &mut self.optimizer);
            let (outcome, step) = self.plan.learn(params, count, &feeds, optimizer, LEARNING_RATE, 1.0);
            self.bonus[first..first + count].copy_from_slice(self.plan.output(self.error));
            if !(outcome.finite && step.finite) {
                return Err(first_bad_op(&mut self.plan, &self.params, count, &feeds));
            }
            sum += self.plan.output(self.error).iter().map(|&x| f64::from(x)).sum::<f64>();
        }
        for (bonus, reward) in self.bonus.chunks_exact_mut(n).zip(rollout.reward.chunks_exact_mut(n)) {
            // What is new does not end with an episode (Burda et al.).
            self.scale.scale(bonus, |_| false, GAMMA, LIMIT);
            reward.iter_mut().zip(bonus).for_each(|(reward, bonus)| *reward += coefficient * *bonus);
        }
        Ok(sum / samples as f64)
    }

    /// The plan that runs the network.
    pub(super) fn plan_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// Actions as numbers, and which transitions count.
    fn stage(&mut self, rollout: &Rollout, first: usize, count: usize) {
        for (i, weight) in self.weight[..count].iter_mut().enumerate() {
            let ended = rollout.terminated[first + i] | rollout.truncated[first + i] != 0;
            // Random distillation looks only at the next row, which is seen all the same.
            *weight = if ended && self.kind == Curiosity::Icm { 0.0 } else { 1.0 };
        }
        match (&self.head, &rollout.actions) {
            (Head::Choices(heads), ActionColumn::Choices(actions)) => {
                let width = heads.iter().sum::<usize>();
                for (i, row) in self.actions.chunks_exact_mut(width).take(count).enumerate() {
                    row.fill(0.0);
                    let mut at = 0;
                    for (head, &size) in heads.iter().enumerate() {
                        row[at + actions[(first + i) * heads.len() + head] as usize] = 1.0;
                        at += size;
                    }
                }
            }
            (Head::Gaussian(dims), ActionColumn::Numbers(actions)) => {
                self.actions[..count * dims].copy_from_slice(&actions[first * dims..(first + count) * dims]);
            }
            _ => unreachable!("actions are of the head's kind"),
        }
    }

    /// Weights, optimiser and scale, as bytes of a checkpoint's parts.
    pub(super) fn save(&self) -> [(&'static str, Vec<u8>); 3] {
        let scale = self.scale.to_numbers().iter().flat_map(|x| x.to_le_bytes()).collect();
        [
            ("curiosity.safetensors", self.params.to_bytes(&Default::default())),
            ("curiosity_optimizer.safetensors", self.optimizer.to_bytes()),
            ("curiosity_scale.bin", scale),
        ]
    }

    /// Takes back [`Bonus::save`].
    pub(super) fn load(&mut self, parts: &super::Parts) -> Result<()> {
        self.params.from_bytes(super::part(parts, "curiosity.safetensors")?)?;
        self.optimizer.from_bytes(super::part(parts, "curiosity_optimizer.safetensors")?)?;
        let bytes = super::part(parts, "curiosity_scale.bin")?.as_chunks::<8>().0;
        let numbers: Vec<f64> = bytes.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        self.scale = ReturnScale::from_numbers(&numbers, self.scale.num_envs())
            .ok_or_else(|| Error::Saved("checkpoint's curiosity_scale.bin does not fit this run".into()))?;
        Ok(())
    }
}
