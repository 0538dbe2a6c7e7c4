//! A game with the cube, as part of a match or for money: who decides what, and what follows.
//!
//! A turn is: double or roll (where the cube may be turned and can matter), take or drop, the dice, a play. A state is a small value that is
//! copied, never changed.

use super::game::State;
use super::plays::{Play, Plays};
use super::position::{Points, Position};
use super::stakes::Stakes;
use operant_base::{Error, Result};

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The player on roll doubles or rolls.
    Cube,
    /// The opponent takes or drops.
    Offered,
    /// The dice.
    Roll,
    /// The player on roll plays them.
    Play,
    /// The game is over.
    Over(Won),
}

/// How a game ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Won {
    /// By whom.
    pub player: u8,
    /// What the winner gets, the cube included.
    pub points: u16,
    /// By how much; `None` for a double that was dropped.
    pub by: Option<Points>,
}

/// Something that a player decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Leave the cube alone.
    Roll,
    /// Offer the cube at twice its value.
    Double,
    /// Play on for that, and own the cube.
    Take,
    /// Give up the game for what the cube was.
    Drop,
    /// Play the dice.
    Play(Play),
}

/// A game under way, with what it is played for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// Score and cube.
    pub stakes: Stakes,
    /// The board as the player on roll sees it, the dice, and who is on roll.
    pub board: State,
    /// What comes next.
    pub phase: Phase,
}

impl Match {
    /// A game that this player begins, by the rule of the opening roll without a cube.
    pub fn begin(stakes: Stakes, first: u8) -> Self {
        let board = State { position: Position::START, dice: [0; 2], player: first, first: true };
        Self { stakes, board, phase: Phase::Roll }
    }

    /// A game in the midst of which a player is about to roll, or has these dice to play.
    pub fn at(stakes: Stakes, position: Position, player: u8, dice: Option<[u8; 2]>) -> Self {
        let board = State { position, dice: dice.unwrap_or_default(), player, first: false };
        let state = Self { stakes, board, phase: Phase::Play };
        if dice.is_some() { state } else { state.before_the_roll() }
    }

    fn before_the_roll(self) -> Self {
        Self { phase: if self.can_double() { Phase::Cube } else { Phase::Roll }, ..self }
    }

    /// Whether the player on roll may double and it can matter: not with a dead cube.
    pub fn can_double(&self) -> bool {
        let Self { stakes, board, .. } = self;
        !board.first && stakes.may_double(board.player) && !stakes.is_dead(board.player, stakes.cube)
    }

    /// The same, with the dice next where a double was possible.
    pub(super) fn without_double(self) -> Self {
        Self { phase: if self.phase == Phase::Cube { Phase::Roll } else { self.phase }, ..self }
    }

    /// Who decides; `None` before the dice and when the game is over.
    pub fn who(&self) -> Option<u8> {
        match self.phase {
            Phase::Cube | Phase::Play => Some(self.board.player),
            Phase::Offered => Some(1 - self.board.player),
            Phase::Roll | Phase::Over(_) => None,
        }
    }

    /// Replaces `out` by all that can be decided; nothing where nobody decides.
    pub fn decisions(&self, plays: &mut Plays, out: &mut Vec<Decision>) {
        out.clear();
        match self.phase {
            Phase::Cube => out.extend([Decision::Roll, Decision::Double]),
            Phase::Offered => out.extend([Decision::Take, Decision::Drop]),
            Phase::Play => {
                plays.find(self.board.position, self.board.dice);
                out.extend(plays.iter().map(|&play| Decision::Play(play)));
            }
            Phase::Roll | Phase::Over(_) => {}
        }
    }

    /// The state after a decision of the one who decides. A play must be one of those that are found; a double may also be one that the rules
    /// allow although it can't matter.
    pub fn after(&self, decision: Decision) -> Result<Self> {
        let Self { stakes, board, phase } = *self;
        let won = |player, points, by| Self { phase: Phase::Over(Won { player, points, by }), ..*self };
        Ok(match (phase, decision) {
            (Phase::Cube, Decision::Roll) => Self { phase: Phase::Roll, ..*self },
            // Before a roll that nothing is asked of, a file may have a double that does not matter.
            (Phase::Cube | Phase::Roll, Decision::Double)
                if !board.first && stakes.may_double(board.player) && (phase == Phase::Cube) == self.can_double() =>
            {
                Self { phase: Phase::Offered, ..*self }
            }
            (Phase::Offered, Decision::Take) => {
                Self { stakes: stakes.doubled(1 - board.player), phase: Phase::Roll, ..*self }
            }
            (Phase::Offered, Decision::Drop) => won(board.player, stakes.cube, None),
            (Phase::Play, Decision::Play(play)) => {
                let position = play.result(board.position);
                let after = State { position, dice: [0; 2], player: 1 - board.player, first: false };
                match position.lost() {
                    Some(by) => Self { board: after, ..won(board.player, stakes.points(by), Some(by)) },
                    None => Self { board: after, ..*self }.before_the_roll(),
                }
            }
            (phase, decision) => {
                let decision = match decision {
                    Decision::Roll => "roll",
                    Decision::Double => "double",
                    Decision::Take => "take",
                    Decision::Drop => "drop",
                    Decision::Play(_) => "play",
                };
                return Err(Error::Invalid(format!("{decision} now: {}", wanted(phase))));
            }
        })
    }

    /// The state after the dice, which come before a play.
    pub fn rolled(&self, dice: [u8; 2]) -> Result<Self> {
        if self.phase != Phase::Roll {
            return Err(Error::Invalid(format!("dice now: {}", wanted(self.phase))));
        }
        if dice.iter().any(|die| !(1..=6).contains(die)) || self.board.first && dice[0] == dice[1] {
            let more = if self.board.first { " that differ, for who begins throws the higher one" } else { "" };
            return Err(Error::Invalid(format!("dice {dice:?}: wanted two numbers from 1 to 6{more}")));
        }
        let dice = [dice[0].max(dice[1]), dice[0].min(dice[1])];
        Ok(Self { board: State { dice, ..self.board }, phase: Phase::Play, ..*self })
    }

    /// How the game ended, if it did.
    pub fn won(&self) -> Option<Won> {
        match self.phase {
            Phase::Over(won) => Some(won),
            _ => None,
        }
    }

    /// What the next game is played for; `None` while this one goes on, and when it won the match.
    pub fn next_stakes(&self) -> Option<Stakes> {
        self.won().and_then(|won| self.stakes.next(won.player, won.points))
    }
}

fn wanted(phase: Phase) -> &'static str {
    match phase {
        Phase::Cube => "wanted a double or a roll",
        Phase::Offered => "wanted a take or a drop",
        Phase::Roll => "wanted the dice first; no double is possible here",
        Phase::Play => "wanted a play of the dice",
        Phase::Over(_) => "the game is over; begin the next one",
    }
}
