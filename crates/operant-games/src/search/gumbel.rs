//! Sequential halving with Gumbel noise at the root, and values completed for actions that were not tried (Danihelka et al., "Policy
//! improvement by planning with Gumbel", ICLR 2022).

use operant_lanes::rng::HostRng;

/// Visits beyond which the search's values outweigh logits, and by how much.
const C_VISIT: f32 = 50.0;
const C_SCALE: f32 = 1.0;

/// Draws Gumbel noise for so many actions.
pub(super) fn noise(out: &mut Vec<f32>, actions: usize, rng: &mut HostRng) {
    out.clear();
    // 1 − u lies in (0, 1]; at 1 the noise would be infinite.
    let draw = |rng: &mut HostRng| -(-(1.0 - rng.unit()).min(1.0 - f32::EPSILON).ln()).ln();
    out.extend((0..actions).map(|_| draw(rng)));
}

/// For each simulation, the visits of the actions that it may take: rounds in which half of the actions drop out.
pub(super) fn schedule(out: &mut Vec<u32>, actions: usize, simulations: usize) {
    out.clear();
    if actions <= 1 {
        out.extend(0..simulations as u32);
        return;
    }
    let rounds = actions.next_power_of_two().ilog2().max(1) as usize;
    let (mut left, mut visits) = (actions, 0_u32);
    while out.len() < simulations {
        let extra = (simulations / (rounds * left)).max(1);
        for _ in 0..extra {
            for _ in 0..left {
                if out.len() < simulations {
                    out.push(visits);
                }
            }
            visits += 1;
        }
        left = (left / 2).max(2);
    }
}

/// What a search knows of its root.
pub(super) struct Root<'a> {
    pub(super) prior: &'a [f32],
    pub(super) visits: &'a [f32],
    pub(super) sums: &'a [f32],
    /// The root's own evaluation, as player 0 counts points.
    pub(super) value: f32,
    pub(super) sign: f32,
    pub(super) low: f32,
    pub(super) width: f32,
}

impl Root<'_> {
    /// Adds σ(completed value) to logits: the mean of an action that was tried, else the mixed value of the root.
    pub(super) fn add_completed(&self, logits: &mut [f32]) {
        let (mut tried, mut weighed, mut total, mut most) = (0.0, 0.0, 0.0, 0.0_f32);
        for ((&p, &n), &sum) in self.prior.iter().zip(self.visits).zip(self.sums) {
            if n > 0.0 {
                tried += p;
                weighed += p * sum / n;
                total += n;
                most = most.max(n);
            }
        }
        let mixed = match tried > 0.0 {
            true => (self.value + total * weighed / tried) / (1.0 + total),
            false => self.value,
        };
        let scale = (C_VISIT + most) * C_SCALE;
        for ((logit, &n), &sum) in logits.iter_mut().zip(self.visits).zip(self.sums) {
            let value = if n > 0.0 { sum / n } else { mixed };
            let better = (value - self.low) / self.width;
            *logit += scale * if self.sign > 0.0 { better } else { 1.0 - better };
        }
    }
}
