//! How lucky the rolls of a game were, so that a result can be told from the dice that made it.
//!
//! The luck of a roll is what the best play of it is worth, less the mean of that over all rolls, each weighted by its chance. Whatever the
//! values are, the luck of a roll is 0 on average in every position, so a result less the luck of all rolls has the mean of the result; the
//! better the values are, the less of its spread is left (a control variate, as GNU Backgammon has it for rollouts and luck-adjusted
//! results).
//!
//! Invariant: what a roll is worth depends on the state before it and on the dice alone, never on the play that was made: with the play made
//! for the roll that came, and the best plays for the others, errors would count as bad luck. One evaluator judges the rolls of both players.

use super::best_plays::BestPlays;
use super::cube::{Cubeful, efficiency};
use super::network::Evaluator;
use crate::backgammon::{Decision, Match, Outcome, Position, ROLLS, Record, chances};
use operant_base::Result;

/// Judges rolls by values one roll ahead.
#[derive(Debug)]
pub struct Luck {
    best_plays: BestPlays,
}

impl Luck {
    /// By these values.
    pub fn new(evaluator: Evaluator) -> Self {
        Self { best_plays: BestPlays::new(evaluator) }
    }

    /// Points without a cube that each of [`ROLLS`] is luckier than the mean, for the player on roll. The first turn of a game has no
    /// doubles: there they have a luck too, but no chance and no part in the mean.
    pub fn of_rolls(&mut self, position: Position, first_turn: bool) -> [f64; ROLLS.len()] {
        self.beyond_the_mean(position, first_turn, |_, theirs| -f64::from(theirs.equity()))
    }

    /// The same at a state's score and with its cube, as parts of the match in a match. The best play of a roll is the one with the most
    /// points without a cube there too: the mean stays 0 whatever is taken for the best.
    pub fn of_rolls_in(&mut self, state: &Match) -> [f64; ROLLS.len()] {
        let Match { stakes, board, .. } = *state;
        self.beyond_the_mean(board.position, board.first, |after, theirs| {
            // Nobody turns the cube of a game that is over.
            let efficiency = if after.lost().is_some() { 0.0 } else { efficiency(after) };
            let theirs = Cubeful::new(theirs, stakes, 1 - board.player, efficiency);
            theirs.to_other(theirs.on_roll())
        })
    }

    /// `worth` says what a position is worth to who played to it, from how games end for the other.
    fn beyond_the_mean(
        &mut self,
        position: Position,
        first_turn: bool,
        worth: impl Fn(Position, Outcome) -> f64,
    ) -> [f64; ROLLS.len()] {
        let (mut worths, mut roll) = ([0.0; ROLLS.len()], 0);
        self.best_plays.of_rolls(&[position], |after, theirs| {
            worths[roll] = worth(after, theirs);
            roll += 1;
        });
        let chances = chances(first_turn).map(f64::from);
        let weighted: f64 = worths.iter().zip(chances).map(|(worth, chance)| worth * chance).sum();
        // The chances are rounded to f32: their sum is not quite 1.
        let mean = weighted / chances.iter().sum::<f64>();
        worths.map(|worth| worth - mean)
    }

    /// Luck of all rolls of a game for player 0 of it, in points; in a match in parts of the match. An error where the cube was turned
    /// against the rules.
    pub fn of_game(&mut self, game: &Record) -> Result<f64> {
        let mut sum = 0.0;
        for (state, decision) in game.decided()?.0 {
            if !matches!(decision, Decision::Play(_)) {
                continue;
            }
            let board = state.board;
            let of_rolls = match game.with_cube {
                true => self.of_rolls_in(&state),
                false => self.of_rolls(board.position, board.first),
            };
            let roll =
                ROLLS.iter().position(|&dice| dice == board.dice).expect("dice are a roll, the larger one first");
            sum += if board.player == 0 { of_rolls[roll] } else { -of_rolls[roll] };
        }
        Ok(sum)
    }
}

/// [`Luck::of_game`] of each game, shared among so many threads; the same numbers for any number of them.
pub fn luck_of_games(evaluator: &Evaluator, games: &[Record], threads: usize) -> Result<Vec<f64>> {
    let each = games.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (games.chunks(each))
            .map(|games| {
                let mut luck = Luck::new(evaluator.fork());
                scope.spawn(move || games.iter().map(|game| luck.of_game(game)).collect::<Result<Vec<f64>>>())
            })
            .collect();
        let mut all = Vec::with_capacity(games.len());
        for part in parts {
            all.extend(part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}
