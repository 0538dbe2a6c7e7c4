//! Who values the states that a search meets.

use crate::env::game::Game;

/// What an evaluator says of a batch of states.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// `[rows]` points that are still to come, as each state's player counts them.
    pub values: &'a [f32],
    /// `[rows, POLICY]` logits, read for decisions alone; empty if all actions are alike.
    pub logits: &'a [f32],
}

impl Answer<'_> {
    /// What it says of some of the states, side by side.
    pub fn rows<G: Game>(self, first: usize, count: usize) -> Self {
        let logits = match self.logits {
            [] => &[],
            all => &all[first * G::POLICY..][..count * G::POLICY],
        };
        Self { values: &self.values[first..first + count], logits }
    }
}

/// Who values states and proposes actions.
pub trait Evaluator<G: Game> {
    /// Values a batch of states, decisions and states before chance.
    fn evaluate(&mut self, states: &[G::State]) -> Answer<'_>;
    /// Points still to come that are known exactly, as the state's player counts them: such a state is never looked beyond.
    fn exact(&self, state: &G::State) -> Option<f32> {
        let _ = state;
        None
    }
}

/// Says 0 of everything, and that all actions are alike.
#[derive(Clone, Debug, Default)]
pub struct Null {
    values: Vec<f32>,
}

impl<G: Game> Evaluator<G> for Null {
    fn evaluate(&mut self, states: &[G::State]) -> Answer<'_> {
        self.values.resize(states.len(), 0.0);
        Answer { values: &self.values, logits: &[] }
    }
}
