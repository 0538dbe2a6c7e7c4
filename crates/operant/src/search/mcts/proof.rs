//! What follows from values that are known (M. Winands, Y. Björnsson and J. Saito, "Monte-Carlo tree search solver", 2008): a decision with
//! an action that nothing can be better than, or whose actions are all known; chance whose outcomes are all known.
//!
//! Invariant: a node of [`Kind::Known`] has its exact value as its own and as its mean.

use super::Mcts;
use crate::env::game::Game;
use crate::search::tree::{Kind, NONE};
use std::ops::Range;

impl<G: Game> Mcts<G> {
    /// Points of a child that are known.
    fn known(&self, edge: usize) -> Option<f32> {
        let child = self.tree.child[edge] as usize;
        (child != NONE as usize && self.tree.kinds[child] == Kind::Known).then(|| self.tree.values[child])
    }

    /// Most or least points that a player can have, as it counts them.
    fn bound(&self, sign: f32, most: bool) -> Option<f32> {
        let [low, high] = G::RANGE?;
        Some(if (sign > 0.0) == most { sign * high } else { sign * low })
    }

    /// Where an edge leads to a known value: gives the edge that value for its mean, and tells what is known of its node then. Simulations
    /// under way in the part `others` of the paths keep what they added.
    pub(super) fn proof(&mut self, node: u32, edge: usize, others: Range<usize>) -> Option<f32> {
        let value = self.known(edge).filter(|_| self.settings.proofs)?;
        let under_way = self.path[others].iter().filter(|(_, other, _)| *other as usize == edge);
        let (count, added) = under_way.fold((0.0, 0.0), |(n, sum), (_, _, added)| (n + 1.0, sum + added));
        self.tree.edge_sums[edge] = (self.tree.edge_visits[edge] - count) * value + added;
        match self.tree.kinds[node as usize] {
            Kind::Chance => self.proof_of_chance(node),
            _ => self.proof_of_decision(node),
        }
    }

    fn proof_of_chance(&self, node: u32) -> Option<f32> {
        let mut sum = 0.0;
        for edge in self.tree.edges_of(node) {
            let chance = self.tree.prior[edge];
            if chance > 0.0 {
                sum += chance * self.known(edge)?;
            }
        }
        Some(sum)
    }

    fn proof_of_decision(&self, node: u32) -> Option<f32> {
        let sign = self.tree.signs[node as usize];
        let most = self.bound(sign, true);
        let (mut best, mut all) = (f32::NEG_INFINITY, true);
        for edge in self.tree.edges_of(node) {
            match self.known(edge) {
                Some(value) => best = best.max(sign * value),
                None => all = false,
            }
        }
        (all || most.is_some_and(|most| best >= most)).then_some(sign * best)
    }

    /// A node whose value follows from others'.
    pub(super) fn make_known(&mut self, node: u32, value: f32) {
        let at = node as usize;
        self.tree.sums[at] = value * self.tree.visits[at];
        if node == 0 {
            // It keeps what the evaluator said, and stays a decision that is looked at edge by edge.
            return self.prove_root(value);
        }
        self.tree.values[at] = value;
        self.tree.kinds[at] = Kind::Known;
    }

    /// Nothing is left to search for, unless a schedule of simulations is to be kept.
    pub(super) fn prove_root(&mut self, value: f32) {
        self.proven = Some(value);
        if self.settings.gumbel == 0 {
            self.target = 0;
        }
    }

    /// Visits of the root's actions, without those that are known to be worse than others.
    pub(super) fn weigh(&self, out: &mut Vec<f32>) {
        out.clear();
        let range = self.tree.edges_of(0);
        out.extend_from_slice(&self.tree.edge_visits[range.clone()]);
        let sign = self.tree.signs[0];
        let least = self.bound(sign, false);
        let stands = |edge: usize| match (self.proven, self.known(edge)) {
            (Some(best), Some(value)) => value == best,
            (Some(_), None) => false,
            (None, Some(value)) => least.is_none_or(|least| sign * value > least),
            (None, None) => true,
        };
        if range.clone().any(|edge| stands(edge) && self.tree.edge_visits[edge] > 0.0) {
            out.iter_mut().zip(range).filter(|(_, edge)| !stands(*edge)).for_each(|(visits, _)| *visits = 0.0);
        }
    }
}
