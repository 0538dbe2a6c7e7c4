//! A teacher: who judges positions before the network can. Games are played as it would play them, and the network learns what it says.

use crate::backgammon::{Backgammon, OUTCOMES, Outcome, Plays, Position, State};
use crate::game::Game;
use crate::search::backgammon::{BackgammonFile, Evaluator};
use operant_base::Result;
use operant_nn::Options;

/// Most value heads of a game.
pub(super) const MOST_HEADS: usize = 8;

/// Targets of value heads.
pub(super) type HeadTargets = [f32; MOST_HEADS];

/// What an action is worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// Points that it leads to, as the one who chooses counts them.
    pub(super) points: f32,
    /// Heads as the one who chooses sees what the action leads to.
    pub(super) own: HeadTargets,
    /// The same as the state after the action has them.
    pub(super) after: HeadTargets,
}

/// Judges decisions, many at once.
pub(super) trait Teacher<G: Game>: Send {
    /// Replaces `judged` by all actions of all decisions, in the order that the game finds them; `ends` says where those of each end.
    fn judge(&mut self, states: &[G::State], judged: &mut Vec<Judged>, ends: &mut Vec<usize>);
    /// The same for another thread.
    fn fork(&self) -> Box<dyn Teacher<G>>;
}

/// Makes a teacher of the bytes of a file.
pub(super) type MakeTeacher<G> = fn(&[u8], &Options) -> Result<Box<dyn Teacher<G>>>;

/// The value networks of td, one roll ahead.
struct ByValues {
    evaluator: Evaluator,
    plays: Plays,
    positions: Vec<Position>,
    outcomes: Vec<Outcome>,
}

/// Positions that are valued together, about: a table's games have some twenty plays each.
const USUAL_POSITIONS: usize = 1 << 12;

impl ByValues {
    fn new(evaluator: Evaluator) -> Self {
        let (positions, outcomes) = (Vec::with_capacity(USUAL_POSITIONS), Vec::with_capacity(USUAL_POSITIONS));
        Self { evaluator, plays: Plays::default(), positions, outcomes }
    }
}

/// A teacher of backgammon: networks of `operant train td backgammon`.
pub(super) fn of_backgammon(bytes: &[u8], options: &Options) -> Result<Box<dyn Teacher<Backgammon>>> {
    let (net, weights) = BackgammonFile::from_bytes(bytes)?;
    Ok(Box::new(ByValues::new(Evaluator::new(&net, &weights, options)?)))
}

fn heads(outcome: Outcome) -> HeadTargets {
    let mut heads = [0.0; MOST_HEADS];
    heads[..OUTCOMES].copy_from_slice(&outcome.to_array());
    heads
}

impl Teacher<Backgammon> for ByValues {
    fn judge(&mut self, states: &[State], judged: &mut Vec<Judged>, ends: &mut Vec<usize>) {
        self.positions.clear();
        ends.clear();
        for state in states {
            self.plays.find(state.position, state.dice);
            self.positions.extend(self.plays.iter().map(|play| play.result(state.position)));
            ends.push(self.positions.len());
        }
        self.outcomes.resize(self.positions.len(), Outcome::default());
        self.evaluator.evaluate(&self.positions, &mut self.outcomes);
        judged.clear();
        // After a play it is the opponent's turn.
        judged.extend(self.outcomes.iter().map(|outcome| Judged {
            points: -outcome.equity(),
            own: heads(outcome.swapped()),
            after: heads(*outcome),
        }));
    }

    fn fork(&self) -> Box<dyn Teacher<Backgammon>> {
        Box::new(Self::new(self.evaluator.fork()))
    }
}
