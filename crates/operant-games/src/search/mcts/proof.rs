//! What follows from values that are known (M. Winands, Y. Björnsson and J. Saito, "Monte-Carlo tree search solver", 2008): a decision with
//! an action that nothing can be better than, or whose actions are all known; chance whose outcomes are all known.
//!
//! A proof has a distance: the decisions until the end of the game, where the winner takes the shortest way that the tree knows and the
//! loser the longest. Invariant: a node of [`Kind::Known`] has its exact value as its own and as its mean.

use super::Mcts;
use crate::game::Game;
use crate::search::tree::{FAR, Kind, NONE};
use std::cmp::Ordering;
use std::ops::Range;

impl<G: Game> Mcts<G> {
    /// Points of a child that are known.
    pub(super) fn known(&self, edge: usize) -> Option<f32> {
        let child = self.tree.child[edge] as usize;
        (child != NONE as usize && self.tree.kinds[child] == Kind::Known).then(|| self.tree.values[child])
    }

    /// Most or least points that a node's player can still have, as it counts them.
    pub(super) fn bound(&self, node: u32, most: bool) -> Option<f32> {
        let [low, high] = G::bounds(&self.tree.states[node as usize])?;
        let sign = self.tree.signs[node as usize];
        Some(if (sign > 0.0) == most { sign * high } else { sign * low })
    }

    /// What a value is to a node's player: a win, a loss, or neither. Points without a range have neither.
    pub(super) fn outlook(&self, node: u32, value: f32) -> Ordering {
        let Some([low, high]) = G::RANGE else { return Ordering::Equal };
        let ahead = self.tree.signs[node as usize] * (value - f32::midpoint(low, high));
        ahead.partial_cmp(&0.0).unwrap_or(Ordering::Equal)
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
        let most = self.bound(node, true);
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
        self.tree.distances[at] = self.distance(node, value);
        self.tree.values[at] = value;
        self.tree.kinds[at] = Kind::Known;
    }

    /// Decisions from a node to the end of the game, if this is its value.
    fn distance(&self, node: u32, value: f32) -> u16 {
        let chance = self.tree.kinds[node as usize] == Kind::Chance;
        let counts = |&edge: &usize| match (chance, self.known(edge)) {
            (true, _) => self.tree.prior[edge] > 0.0,
            (false, known) => known == Some(value),
        };
        let children = self.tree.edges_of(node).filter(counts).map(|edge| self.tree.child[edge] as usize);
        let distances = children.map(|child| self.tree.distances[child]);
        if chance {
            return distances.max().unwrap_or(FAR);
        }
        let next = if self.outlook(node, value) == Ordering::Greater { distances.min() } else { distances.max() };
        next.map_or(FAR, |next| (next + 1).min(FAR))
    }

    /// Nothing is left to search for, but the shortest way there.
    pub(super) fn prove_root(&mut self, value: f32) {
        if self.proven.is_none() {
            self.proven = Some(value);
            self.target = 0;
            self.find_shortest(value);
        }
    }

    /// Whether an action of the root may be taken, by what is known: of a proven root one that nothing is better than, else any but those that
    /// lose as much as can be lost.
    fn stands(&self, action: usize) -> bool {
        if self.proven.is_some() {
            return self.stands[action];
        }
        let known = self.known(self.tree.edges_of(0).start + action);
        known.zip(self.bound(0, false)).is_none_or(|(value, least)| self.tree.signs[0] * value > least)
    }

    /// Visits of the root's actions, without those that are known to be worse than others. A proof needs no visits.
    pub(super) fn weigh(&self, out: &mut Vec<f32>) {
        out.clear();
        out.extend_from_slice(&self.tree.edge_visits[self.tree.edges_of(0)]);
        if self.proven.is_some() {
            out.iter_mut().for_each(|visits| *visits = visits.max(1.0));
        }
        self.drop_fallen(out);
    }

    /// Sets what actions weigh that may not be taken to 0, unless nothing would be left.
    fn drop_fallen(&self, weights: &mut [f32]) {
        if (0..weights.len()).any(|action| weights[action] > 0.0 && self.stands(action)) {
            (0..weights.len()).filter(|&action| !self.stands(action)).for_each(|action| weights[action] = 0.0);
        }
    }

    /// Shares of actions that may be taken; bits of shares stay where all may.
    pub(super) fn share_among_standing(&self, shares: &mut [f32]) {
        if (0..shares.len()).all(|action| self.stands(action)) {
            return;
        }
        self.drop_fallen(shares);
        let total: f32 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= total);
    }

    /// Leaves scores to actions that sequential halving may end with: the most visited ones, or those that a proof names.
    pub(super) fn keep_finalists(&self, scores: &mut [f32]) {
        let visits = self.visits();
        let standing = (0..scores.len()).filter(|&action| self.stands(action));
        let most = match self.proven {
            Some(_) => 0.0,
            None => standing.map(|action| visits[action]).fold(0.0, f32::max),
        };
        for (action, score) in scores.iter_mut().enumerate() {
            if visits[action] < most || !self.stands(action) {
                *score = f32::NEG_INFINITY;
            }
        }
    }
}
