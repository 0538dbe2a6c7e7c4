//! The value networks as an evaluator of tree search: no policy is needed, since the values of what plays lead to say which are good.

use super::network::Evaluator;
use crate::backgammon::{Backgammon, Outcome, Plays, Position, State};
use crate::game::Game;
use crate::search::mcts::{self, Answer};

/// Points by which a play's prior falls to 1/e of a better one's.
const SHARPNESS: f32 = 0.06;

/// Values and priors from value networks: a decision is worth its best play, and a play's prior falls with what it gives away.
#[derive(Debug)]
pub struct Leaves {
    evaluator: Evaluator,
    plays: Plays,
    positions: Vec<Position>,
    outcomes: Vec<Outcome>,
    values: Vec<f32>,
    logits: Vec<f32>,
    ends: Vec<u32>,
}

impl Leaves {
    /// Of these networks.
    pub fn new(evaluator: Evaluator) -> Self {
        let (positions, outcomes) = (Vec::with_capacity(1 << 14), Vec::with_capacity(1 << 14));
        let (values, logits, ends) =
            (Vec::with_capacity(1 << 10), Vec::with_capacity(1 << 14), Vec::with_capacity(1 << 10));
        Self { evaluator, plays: Plays::default(), positions, outcomes, values, logits, ends }
    }
}

impl mcts::Evaluator<Backgammon> for Leaves {
    fn evaluate(&mut self, states: &[State]) -> Answer<'_> {
        self.positions.clear();
        self.ends.clear();
        for state in states {
            if state.dice[0] == 0 {
                self.positions.push(state.position);
            } else {
                self.plays.find(state.position, state.dice);
                self.positions.extend(self.plays.iter().map(|play| play.result(state.position)));
            }
            self.ends.push(self.positions.len() as u32);
        }
        self.outcomes.resize(self.positions.len(), Outcome::default());
        self.evaluator.evaluate(&self.positions, &mut self.outcomes);
        self.values.clear();
        self.logits.clear();
        let mut begin = 0;
        for (state, &end) in states.iter().zip(&self.ends) {
            let outcomes = self.outcomes[begin..end as usize].iter();
            begin = end as usize;
            if state.dice[0] == 0 {
                self.values.extend(outcomes.map(|outcome| outcome.equity()));
                // A number that nobody reads keeps rows and ends together.
                self.logits.push(0.0);
            } else {
                // After a play it is the opponent's turn.
                self.values.push(outcomes.clone().map(|outcome| -outcome.equity()).fold(f32::NEG_INFINITY, f32::max));
                self.logits.extend(outcomes.map(|outcome| -outcome.equity() / SHARPNESS));
            }
        }
        Answer::actions(&self.values, &self.logits, &self.ends)
    }

    fn exact(&self, state: &State) -> Option<f32> {
        Backgammon::exact(state)
    }
}
