//! Several choices at once: heads that did not matter are taken out of what is learned, and each head's entropy is watched.

use operant_base::telemetry::Metric;
use operant_env::{ActionSpace, Heads, Spec};
use operant_lanes::Backend;
use operant_nn::dist::Factored;

/// Sums of one rollout.
pub(super) struct HeadWatch {
    heads: Heads,
    /// Sum of entropies and count of samples, per head.
    entropies: Vec<(f64, u32)>,
}

impl HeadWatch {
    /// For actions whose heads have names, in envs with masks.
    pub(super) fn new(spec: &Spec) -> Option<Self> {
        match &spec.action {
            ActionSpace::MultiDiscrete(heads) if spec.masked && !heads.names().is_empty() => {
                Some(Self { entropies: vec![(0.0, 0); heads.len()], heads: heads.clone() })
            }
            _ => None,
        }
    }

    /// What is reported.
    pub(super) fn metrics(&self) -> impl Iterator<Item = Metric> {
        let named =
            |name: &&str| Metric::rare(format!("entropy/{name}"), "entropy of a head where it matters, in nats");
        self.heads.names().iter().map(named).map(|metric| Metric { rare: false, ..metric })
    }

    /// Rows `[N]` of logits and the actions drawn from them: in the masks, heads that do not matter for what the first head
    /// chose are left with the action that was taken, which makes it certain; log-probabilities become those of the rest.
    pub(super) fn look(&mut self, logits: &[f32], legal: &mut [u8], actions: &[i32], log_prob: &mut [f32]) {
        let (count, width) = (self.heads.len(), self.heads.iter().sum());
        for (legal, actions) in legal.chunks_exact_mut(width).zip(actions.chunks_exact(count)) {
            let mut rest = legal;
            for (head, &size) in self.heads.iter().enumerate() {
                let (legal, after) = rest.split_at_mut(size);
                if !self.heads.matters(actions[0] as usize, head) {
                    legal.fill(0);
                    legal[actions[head] as usize] = 1;
                }
                rest = after;
            }
        }
        let dist = Factored::checked(logits, &self.heads, Some(legal), Backend::fast());
        dist.log_prob(actions, log_prob);
        for (row, actions) in actions.chunks_exact(count).enumerate() {
            for (head, (sum, samples)) in self.entropies.iter_mut().enumerate() {
                if self.heads.matters(actions[0] as usize, head) {
                    (*sum, *samples) = (*sum + f64::from(dist.head_entropy(row, head)), *samples + 1);
                }
            }
        }
    }

    /// Means since the last call; NaN for heads that never mattered.
    pub(super) fn take_means(&mut self) -> impl Iterator<Item = f64> {
        self.entropies.iter_mut().map(|(sum, count)| std::mem::take(sum) / f64::from(std::mem::take(count)))
    }
}
