//! A normal number through tanh: actions in (−1, 1) (Haarnoja et al., "Soft actor-critic", 2018, appendix C).

use super::gaussian::Values;
use super::{DiagGaussian, Draws, scalar};
use operant_base::Result;
use operant_lanes::{Backend, Float};

/// `tanh(x)` for normal x. "Raw" is x: keep it where log-probabilities are asked for later, since tanh forgets large ones.
#[derive(Clone, Copy, Debug)]
pub struct SquashedGaussian<'a>(DiagGaussian<'a>);

impl<'a> SquashedGaussian<'a> {
    /// Means of x `[rows, dims]`; log standard deviations one per mean, or one per dimension.
    pub fn new(mean: &'a [f32], log_std: &'a [f32], dims: usize, backend: Backend) -> Result<Self> {
        DiagGaussian::new(mean, log_std, dims, backend).map(Self)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.0.rows()
    }

    /// Draws x and actions, `[rows, dims]`, and tells the actions' log-densities, `[rows]`.
    pub fn sample(&self, draws: Draws, raw: &mut [f32], actions: &mut [f32], log_probs: &mut [f32]) {
        self.0.sample_squashed(draws, Some(raw), Some(actions), log_probs);
    }

    /// tanh of the mean: the median, and what evaluation plays; the densest point has no closed form.
    pub fn mode(&self, actions: &mut [f32]) {
        let mean = self.0.mean();
        assert_eq!(actions.len(), mean.len(), "one number per row and dimension");
        for (action, &mean) in actions.iter_mut().zip(mean) {
            *action = scalar(mean).tanh().get();
        }
    }

    /// Log-densities of the actions tanh(raw), `[rows]`.
    pub fn log_prob_raw(&self, raw: &[f32], out: &mut [f32]) {
        self.0.log_prob_of(raw, Values::Raw, out);
    }

    /// Log-densities of actions, `[rows]`, by atanh: for |action| close to 1 few digits of x are left.
    pub fn log_prob(&self, actions: &[f32], out: &mut [f32]) {
        self.0.log_prob_of(actions, Values::Squashed, out);
    }

    /// An unbiased estimate of the entropy in nats, `[rows]`: −log density of one sample. There is no closed form.
    pub fn entropy_estimate(&self, draws: Draws, out: &mut [f32]) {
        self.0.sample_squashed(draws, None, None, out);
        out.iter_mut().for_each(|x| *x = -*x);
    }

    /// Kullback–Leibler divergence in nats, `[rows]`: that of x, because tanh is one to one. Panics if the shapes differ.
    pub fn kl(&self, other: &SquashedGaussian<'_>, out: &mut [f32]) {
        self.0.kl(&other.0, out);
    }
}
