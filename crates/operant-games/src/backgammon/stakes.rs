//! What a game is played for: a match or money, the score, the cube.

use super::position::Points;
use operant_base::{Error, Result};

/// Largest cube.
pub const LARGEST_CUBE: u16 = 4096;
/// Longest match.
pub const LONGEST_MATCH: u16 = 64;

/// How a session stands while a game goes on. Players are 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stakes {
    /// Points that win the match; 0 for money.
    pub length: u16,
    /// Points so far.
    pub scores: [u16; 2],
    /// Whether this is the Crawford game, the first one after a player came within a point of the match: nobody may double.
    pub crawford: bool,
    /// For money: gammons and backgammons count once while the cube was not turned.
    pub jacoby: bool,
    /// 1, 2, 4 …
    pub cube: u16,
    /// Whose cube it is; nobody's while it is in the middle.
    pub owner: Option<u8>,
}

impl Default for Stakes {
    /// For money, all gammons counted.
    fn default() -> Self {
        Self::money(false)
    }
}

impl Stakes {
    /// The first game for money.
    pub fn money(jacoby: bool) -> Self {
        Self { length: 0, scores: [0; 2], crawford: false, jacoby, cube: 1, owner: None }
    }

    /// The first game of a match. A match to one point is decided by one game: its only game has no cube.
    pub fn match_to(length: u16) -> Result<Self> {
        match length {
            1..=LONGEST_MATCH => Ok(Self { length, crawford: length == 1, ..Self::money(false) }),
            _ => Err(Error::Invalid(format!("a match to {length} points: wanted 1..={LONGEST_MATCH}"))),
        }
    }

    /// Whether the match can be such a one: scores below its length, a cube that doubling leads to.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Invalid(what));
        let Self { length, scores, cube, .. } = *self;
        if length > LONGEST_MATCH {
            return wrong(format!("a match to {length} points: wanted at most {LONGEST_MATCH}"));
        }
        if length > 0 && scores.iter().any(|&score| score >= length) {
            let [one, two] = scores;
            return wrong(format!(
                "a score of {one} to {two} in a match to {length}: it is over; wanted one that goes on"
            ));
        }
        if !cube.is_power_of_two() || cube > LARGEST_CUBE || (cube > 1) != self.owner.is_some() {
            let owner = self.owner.map_or("nobody".into(), |owner| format!("player {owner}"));
            return wrong(format!(
                "a cube of {cube} that {owner} owns: wanted 1 in the middle, or 2 to {LARGEST_CUBE} owned"
            ));
        }
        let close = scores.iter().any(|&score| length.checked_sub(1) == Some(score));
        if self.crawford && (!close || cube > 1) {
            let [one, two] = scores;
            return wrong(format!(
                "a Crawford game at {one} to {two} in a match to {length} with a cube of {cube}: wanted a player one point \
                 away, and a cube of 1"
            ));
        }
        Ok(())
    }

    /// Points that a player still needs; `None` for money.
    pub fn away(&self, player: u8) -> Option<u16> {
        (self.length > 0).then(|| self.length.saturating_sub(self.scores[usize::from(player)]))
    }

    /// Whether the rules let a player double before the roll.
    pub fn may_double(&self, player: u8) -> bool {
        !self.crawford && self.owner.is_none_or(|owner| owner == player) && self.cube < LARGEST_CUBE
    }

    /// Whether a cube of this size does nothing more for a player: winning with it wins the match already.
    pub fn is_dead(&self, player: u8, cube: u16) -> bool {
        self.away(player).is_some_and(|away| cube >= away)
    }

    /// The same after a double that was taken, whose taker owns the cube.
    pub fn doubled(&self, taker: u8) -> Self {
        Self { cube: 2 * self.cube, owner: Some(taker), ..*self }
    }

    /// Points that a game is worth to its winner.
    pub fn points(&self, won: Points) -> u16 {
        let once = self.length == 0 && self.jacoby && self.owner.is_none();
        if once { 1 } else { self.cube * won as u16 }
    }

    /// The next game after one that gave a player so many points; `None` if that won the match.
    pub fn next(&self, winner: u8, points: u16) -> Option<Self> {
        let mut scores = self.scores;
        let score = &mut scores[usize::from(winner)];
        *score = score.saturating_add(points);
        if self.length > 0 && *score >= self.length {
            return None;
        }
        let close = |scores: [u16; 2]| self.length > 0 && scores.iter().any(|&score| score + 1 == self.length);
        Some(Self { scores, crawford: close(scores) && !close(self.scores), cube: 1, owner: None, ..*self })
    }
}
