//! Who values the states that a search meets.

use crate::game::Game;

/// What an evaluator proposes of a batch's decisions.
#[derive(Clone, Copy, Debug)]
enum Logits<'a> {
    /// All actions are alike.
    Alike,
    /// `[rows, POLICY]` outputs of a policy head.
    Outputs(&'a [f32]),
    /// One per action, in the order of [`Game::actions`], row after row from `begin` on; `ends[row]` is where a row's end.
    Actions { logits: &'a [f32], begin: u32, ends: &'a [u32] },
}

/// What an evaluator proposes of one decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Proposed<'a> {
    Alike,
    Outputs(&'a [f32]),
    Actions(&'a [f32]),
}

/// What an evaluator says of a batch of states.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// `[rows]` points that are still to come, as each state's player counts them.
    pub(super) values: &'a [f32],
    logits: Logits<'a>,
}

impl<'a> Answer<'a> {
    /// Values `[rows]`, points that are still to come, as each state's player counts them; all actions are alike.
    pub fn values(values: &'a [f32]) -> Self {
        Self { values, logits: Logits::Alike }
    }

    /// Values, and outputs of a policy head `[rows, POLICY]`, read for decisions alone.
    pub fn outputs(values: &'a [f32], logits: &'a [f32]) -> Self {
        Self { values, logits: Logits::Outputs(logits) }
    }

    /// Values, and a logit per action in the order of [`Game::actions`], row after row; `ends[row]` is where a row's end.
    pub fn actions(values: &'a [f32], logits: &'a [f32], ends: &'a [u32]) -> Self {
        Self { values, logits: Logits::Actions { logits, begin: 0, ends } }
    }

    /// What it says of some of the states, side by side.
    pub fn rows<G: Game>(self, first: usize, count: usize) -> Self {
        let logits = match self.logits {
            Logits::Alike => Logits::Alike,
            Logits::Outputs(all) => Logits::Outputs(&all[first * G::POLICY..][..count * G::POLICY]),
            Logits::Actions { logits, begin, ends } => {
                let begin = if first == 0 { begin } else { ends[first - 1] };
                Logits::Actions { logits, begin, ends: &ends[first..first + count] }
            }
        };
        Self { values: &self.values[first..first + count], logits }
    }

    /// What it proposes of one state.
    pub(super) fn proposed<G: Game>(self, row: usize) -> Proposed<'a> {
        match self.logits {
            Logits::Alike => Proposed::Alike,
            Logits::Outputs(all) => Proposed::Outputs(&all[row * G::POLICY..][..G::POLICY]),
            Logits::Actions { logits, begin, ends } => {
                let begin = if row == 0 { begin } else { ends[row - 1] };
                Proposed::Actions(&logits[begin as usize..ends[row] as usize])
            }
        }
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
        Answer::values(&self.values)
    }
}
