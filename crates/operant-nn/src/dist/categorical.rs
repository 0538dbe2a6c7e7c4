//! One choice of 0..A per row.

use super::{Draws, Factored};
use operant_base::Result;
use operant_lanes::Backend;

/// Choices by logits `[rows, A]`: [`Factored`] with one head. An action that is masked, or whose logit is −∞, has probability 0.
#[derive(Clone, Copy, Debug)]
pub struct Categorical<'a> {
    logits: &'a [f32],
    actions: usize,
    legal: Option<&'a [u8]>,
    backend: Backend,
}

impl<'a> Categorical<'a> {
    /// Logits and, where some actions are illegal, a mask of the same shape (0 is illegal). An error names the first row
    /// without a legal action.
    pub fn new(logits: &'a [f32], actions: usize, legal: Option<&'a [u8]>, backend: Backend) -> Result<Self> {
        Factored::new(logits, &[actions], legal, backend)?;
        Ok(Self { logits, actions, legal, backend })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.logits.len() / self.actions
    }

    /// Draws actions, `[rows]`, and tells their log-probabilities, `[rows]`. A probability is resolved to 2⁻²⁴.
    pub fn sample(&self, draws: Draws, actions: &mut [i32], log_probs: &mut [f32]) {
        self.one_head().sample(draws, actions, log_probs);
    }

    /// The most probable action, the first of several.
    pub fn mode(&self, actions: &mut [i32]) {
        self.one_head().mode(actions);
    }

    /// Log-probabilities of actions: −∞ for what is masked or no action at all.
    pub fn log_prob(&self, actions: &[i32], out: &mut [f32]) {
        self.one_head().log_prob(actions, out);
    }

    /// Entropy in nats.
    pub fn entropy(&self, out: &mut [f32]) {
        self.one_head().entropy(out);
    }

    /// Kullback–Leibler divergence from this to `other` in nats: ∞ where `other` masks what this does not. Panics if the shapes
    /// differ.
    pub fn kl(&self, other: &Categorical<'_>, out: &mut [f32]) {
        self.one_head().kl(&other.one_head(), out);
    }

    fn one_head(&self) -> Factored<'_> {
        Factored::checked(self.logits, std::slice::from_ref(&self.actions), self.legal, self.backend)
    }
}
