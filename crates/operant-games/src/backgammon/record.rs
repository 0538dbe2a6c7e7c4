//! Games as they were played.

use super::match_play::{Decision, Match, Won};
use super::plays::{Play, Plays};
use super::position::Position;
use super::stakes::Stakes;
use operant_base::Result;

/// A turn: the roll and its play.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// The roll.
    pub dice: [u8; 2],
    /// What was played.
    pub play: Play,
}

/// A double by the player of a turn, before the roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubled {
    /// Number of the turn; one beyond the last if the double was dropped.
    pub turn: usize,
    /// Whether it was taken.
    pub taken: bool,
}

/// A game from the opening position on; players take turns.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Record {
    /// What it was played for.
    pub stakes: Stakes,
    /// Whether there was a cube that could be turned.
    pub with_cube: bool,
    /// Which of the two players began.
    pub first: usize,
    /// All turns.
    pub turns: Vec<Turn>,
    /// All doubles, in their order.
    pub doubles: Vec<Doubled>,
}

impl Record {
    /// Each turn with the position before it, and the position at the end.
    pub fn positions(&self) -> (Vec<Position>, Position) {
        let mut position = Position::START;
        let mut before = Vec::with_capacity(self.turns.len());
        for turn in &self.turns {
            before.push(position);
            position = turn.play.result(position);
        }
        (before, position)
    }

    /// Every state in which something was decided, with that decision, and the last state; an error where the cube was turned against the
    /// rules.
    pub fn decided(&self) -> Result<(Vec<(Match, Decision)>, Match)> {
        let mut state = Match::begin(self.stakes, self.first as u8);
        let (mut all, mut doubles) = (Vec::new(), self.doubles.iter().peekable());
        let mut decide = |state: &mut Match, decision: Decision| {
            all.push((*state, decision));
            *state = state.after(decision)?;
            Ok(())
        };
        for turn in 0..=self.turns.len() {
            while let Some(doubled) = doubles.next_if(|doubled| doubled.turn == turn) {
                decide(&mut state, Decision::Double)?;
                decide(&mut state, if doubled.taken { Decision::Take } else { Decision::Drop })?;
            }
            if let Some(Turn { dice, play }) = self.turns.get(turn) {
                if self.with_cube && state.who().is_some() {
                    decide(&mut state, Decision::Roll)?;
                }
                state = state.without_double().rolled(*dice)?;
                decide(&mut state, Decision::Play(*play))?;
            }
        }
        Ok((all, state))
    }

    /// Who won what, if the game is at its end.
    pub fn result(&self) -> Option<Won> {
        self.decided().ok()?.1.won()
    }

    /// Turns with a choice of plays.
    pub fn decisions(&self) -> usize {
        let mut plays = Plays::default();
        let positions = self.positions().0;
        let with_choice = positions.into_iter().zip(&self.turns).filter(|(position, turn)| {
            plays.find(*position, turn.dice);
            plays.len() > 1
        });
        with_choice.count()
    }
}
