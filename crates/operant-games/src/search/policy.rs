//! What outputs of a policy head mean for actions, and how they learn it: the same for those who search and those who learn.
//!
//! An action that two outputs speak for is two choices: the first, then the second among those that go with it. Its logit is that of the
//! first plus the log-probability of the second, so its prior is the product of both choices' probabilities; each is learned by its own
//! cross-entropy, of which a batch has one, drawn. Invariant: what is learned from, on average over draws, is −Σ share · ln prior.

use crate::game::Game;
use operant_lanes::rng::HostRng;

/// Writes logits of actions: `softmax` of them is the prior. `sums` is room for [`Game::POLICY`] numbers, all 0 before and after.
pub fn action_logits<G: Game>(
    state: &G::State,
    actions: &[G::Action],
    outputs: &[f32],
    sums: &mut [f32],
    out: &mut [f32],
) {
    let mut most = f32::NEG_INFINITY;
    for action in actions {
        if let (_, Some(second)) = G::policy_index(state, action) {
            most = most.max(outputs[second]);
        }
    }
    for (action, out) in actions.iter().zip(&mut *out) {
        let (first, second) = G::policy_index(state, action);
        *out = outputs[first];
        if let Some(second) = second {
            sums[first] += (outputs[second] - most).exp();
        }
    }
    if most == f32::NEG_INFINITY {
        return;
    }
    for (action, out) in actions.iter().zip(out) {
        if let (first, Some(second)) = G::policy_index(state, action) {
            // A sum that is too small to be told from 0 is one of outputs far below all others.
            *out += outputs[second] - most - sums[first].max(f32::MIN_POSITIVE).ln();
        }
    }
    actions.iter().for_each(|action| sums[G::policy_index(state, action).0] = 0.0);
}

/// A choice that a row of a batch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Every action has one output.
    Only,
    /// Actions have two outputs: the first.
    First,
    /// The second, where the first is this.
    Second(usize),
}

/// Outputs of an action, and its share of the policy.
pub type Share = ((usize, Option<usize>), f32);

impl Choice {
    /// Draws a choice to learn from, where shares sum to 1.
    pub fn draw(shares: &[Share], rng: &mut HostRng) -> Self {
        if shares.iter().all(|((_, second), _)| second.is_none()) {
            return Self::Only;
        }
        if rng.below(2) == 0 {
            return Self::First;
        }
        let mut left = rng.unit();
        for ((first, _), share) in shares {
            left -= share;
            if left < 0.0 {
                return Self::Second(*first);
            }
        }
        // Rounding may leave a little: the last that has a share.
        let last = shares.iter().rfind(|(_, share)| *share > 0.0);
        last.map_or(Self::First, |((first, _), _)| Self::Second(*first))
    }

    /// Which output of an action this choice is about, if it is about the action.
    pub fn output(self, (first, second): (usize, Option<usize>)) -> Option<usize> {
        match self {
            Self::Only | Self::First => Some(first),
            Self::Second(of) => second.filter(|_| first == of),
        }
    }

    /// Adds the target of a policy head for this choice. Where there are two, either is drawn half of the time and counts twice.
    pub fn add_target(self, shares: &[Share], target: &mut [f32]) {
        let own = shares.iter().filter(|(outputs, _)| self.output(*outputs).is_some());
        let total: f32 = own.clone().map(|(_, share)| share).sum();
        let weight = if self == Self::Only { 1.0 } else { 2.0 };
        if total > 0.0 {
            for (outputs, share) in own {
                target[self.output(*outputs).expect("looked for above")] += weight * share / total;
            }
        }
    }
}
