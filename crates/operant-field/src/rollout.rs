//! Realisations of an operator over time: M copies of a field, each with its own noise, one application per step.
//!
//! Invariant: realisation m at time t depends on (operator, weights' seed, first field, m, t), not on which other realisations
//! are rolled out beside it, on how many threads, or on what was rolled out before.

use super::operator::{Network, Operator, Update};
use operant_base::Result;
use operant_nn::ops::KEY_WORDS;
use operant_nn::{Feed, Options, Params, Plan, Precision};
use std::ops::Range;

/// What is done to a field after each step.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct After {
    /// Each channel is brought to mean 0 and standard deviation 1.
    pub normalise: bool,
    /// Numbers are kept within ± this, if it is above 0.
    pub clamp: f32,
}

/// An operator at work.
#[derive(Debug)]
pub struct Rollout {
    operator: Operator,
    update: Update,
    after: After,
    network: Network,
    params: Params,
    plan: Plan,
    /// [M, H, W, C]
    state: Vec<f32>,
    /// [M, 4]
    keys: Vec<i32>,
    /// [M, 1]
    scales: Vec<f32>,
    t: u32,
    steps: u32,
}

impl Rollout {
    /// Realisations of `operator` with weights and noise of `seed`, from one field `[H, W, C]`, for `steps` steps.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        operator: &Operator,
        update: Update,
        after: After,
        seed: u64,
        realisations: Range<u32>,
        steps: u32,
        first: &[f32],
        options: &Options,
    ) -> Result<Self> {
        let network = operator.network()?;
        let params = network.params(seed, first)?;
        let rows = realisations.len();
        let plan = Plan::inference(&network.graph, &[network.output], rows, options)?;
        let keys = realisations.flat_map(|m| [seed as i32, (seed >> 32) as i32, m as i32, 0]).collect();
        let scales = vec![0.0; rows];
        let state = first.repeat(rows);
        let operator = operator.clone();
        Ok(Self { operator, update, after, network, params, plan, state, keys, scales, t: 0, steps })
    }

    /// Begins again from these fields `[M, H, W, C]`, at time t.
    pub fn reset(&mut self, fields: &[f32], t: u32) {
        self.state.copy_from_slice(fields);
        self.t = t;
    }

    /// Fields as they are now, `[M, H, W, C]`.
    pub fn state(&self) -> &[f32] {
        &self.state
    }

    /// Steps made.
    pub fn time(&self) -> u32 {
        self.t
    }

    /// Realisations.
    pub fn rows(&self) -> usize {
        self.scales.len()
    }

    /// The precision that products run in, and why if it is not the one asked for.
    pub fn precision(&self) -> (Precision, Option<&'static str>) {
        self.plan.precision()
    }

    /// Products and sums of one realisation's step.
    pub fn flops(&self) -> u64 {
        self.plan.flops_per_row()
    }

    /// O(x) of fields `[M, H, W, C]` at the present time, without a step.
    pub fn apply(&mut self, fields: &[f32]) -> &[f32] {
        self.keys.iter_mut().skip(KEY_WORDS - 1).step_by(KEY_WORDS).for_each(|word| *word = self.t as i32);
        self.scales.fill(self.operator.schedule.scale(self.operator.noise_scale, self.t, self.steps));
        let feeds = [Feed::Real(fields), Feed::Ints(&self.keys), Feed::Real(&self.scales)];
        self.plan.forward(&self.params, self.scales.len(), &feeds);
        self.plan.output(self.network.output)
    }

    /// One step of all realisations.
    pub fn step(&mut self) {
        let state = std::mem::take(&mut self.state);
        self.apply(&state);
        self.state = state;
        let (keep, take) = self.update.coefficients();
        let output = self.plan.output(self.network.output);
        if keep == 0.0 {
            // Not 0·x: a field that is not finite would stay so.
            self.state.iter_mut().zip(output).for_each(|(x, o)| *x = take * o);
        } else {
            self.state.iter_mut().zip(output).for_each(|(x, o)| *x = keep * *x + take * o);
        }
        if self.after.normalise {
            let (len, channels) = (self.operator.field_len(), self.operator.channels);
            self.state.chunks_exact_mut(len).for_each(|field| normalise(field, channels));
        }
        if self.after.clamp > 0.0 {
            let most = self.after.clamp;
            self.state.iter_mut().for_each(|x| *x = x.clamp(-most, most));
        }
        self.t += 1;
    }

    /// Notes the time of each op from now on, for [`Rollout::profile`].
    pub fn set_timed(&mut self, timed: bool) {
        self.plan.set_timed(timed);
    }

    /// Time by op.
    pub fn profile(&self) -> operant_nn::Profile {
        self.plan.profile()
    }
}

/// Brings every channel of `[H, W, C]` to mean 0 and standard deviation 1; a constant one to 0.
pub(super) fn normalise(field: &mut [f32], channels: usize) {
    let n = (field.len() / channels) as f64;
    for c in 0..channels {
        let values = |field: &[f32]| field.iter().skip(c).step_by(channels).map(|&x| f64::from(x)).collect::<Vec<_>>();
        let values = values(field);
        let mean = values.iter().sum::<f64>() / n;
        let std = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        let scale = if std > 1e-12 { 1.0 / std } else { 0.0 };
        for (to, x) in field.iter_mut().skip(c).step_by(channels).zip(values) {
            *to = ((x - mean) * scale) as f32;
        }
    }
}
