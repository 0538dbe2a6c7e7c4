//! Chances to win a match by score, computed by the program: N. Zadeh, "On doubling in tournament backgammon" (1977), goes from
//! short scores to long ones, where each game is even, a fixed share of wins are gammons, and the cube is used as well as can be. Here
//! [`Cubeful`] says what such a game is worth, so that the table agrees with the decisions that are made by it.

use super::cube::{Cubeful, EFFICIENCY};
use crate::backgammon::{LONGEST_MATCH, Outcome, Stakes};
use std::sync::LazyLock;

/// Share of wins that are gammons, and of those that are backgammons, in games between good players.
const GAMMONS: f32 = 0.26;
const BACKGAMMONS: f32 = 0.01;

const SIZE: usize = LONGEST_MATCH as usize + 1;

/// Chances to win a match, by the points that both players need.
#[derive(Debug)]
pub struct MatchEquity {
    /// `[own, opponent's]`, for the first; with one point to go, of the Crawford game.
    before: Vec<[f64; SIZE]>,
    /// After the Crawford game: for the one who needs one point, by what the other needs.
    after: [f64; SIZE],
}

impl MatchEquity {
    /// The table, computed at the first call.
    pub fn get() -> &'static Self {
        static TABLE: LazyLock<MatchEquity> = LazyLock::new(MatchEquity::build);
        &TABLE
    }

    fn build() -> Self {
        let mut table = Self { before: vec![[0.5; SIZE]; SIZE], after: [0.5; SIZE] };
        for away in 2..SIZE {
            table.after[away] = table.even_game([1, away], false);
        }
        for away in 2..SIZE {
            table.before[1][away] = table.even_game([1, away], true);
            table.before[away][1] = 1.0 - table.before[1][away];
        }
        for own in 2..SIZE {
            for other in 2..own {
                table.before[own][other] = table.even_game([own, other], false);
                table.before[other][own] = 1.0 - table.before[own][other];
            }
        }
        table
    }

    /// The first player's chance at the beginning of a game, where either is as likely to be on roll.
    fn even_game(&self, away: [usize; 2], crawford: bool) -> f64 {
        let scores = away.map(|away| LONGEST_MATCH - away as u16);
        let stakes = Stakes { length: LONGEST_MATCH, scores, crawford, ..Stakes::money(false) };
        let (gammon, backgammon) = (0.5 * GAMMONS, 0.5 * GAMMONS * BACKGAMMONS);
        let even = Outcome::from_array([0.5, gammon, backgammon, gammon, backgammon]);
        let [one, two] = [0, 1].map(|player| Cubeful::with_table(self, even, stakes, player, EFFICIENCY).on_roll());
        0.5 * (one + 1.0 - two)
    }

    /// A player's chance to win the match when a game with these stakes begins.
    pub fn chance(&self, stakes: &Stakes, player: u8) -> f64 {
        let away = [player, 1 - player].map(|player| usize::from(stakes.away(player).unwrap_or(1)));
        match away {
            [0, _] => 1.0,
            [_, 0] => 0.0,
            [1, other] if !stakes.crawford => self.after[other],
            [own, 1] if !stakes.crawford => 1.0 - self.after[own],
            [own, other] => self.before[own][other],
        }
    }

    /// The chance of a player who needs `own` points against one who needs `other`, before the Crawford game or in it. Panics beyond the longest match.
    pub fn before_crawford(&self, own: usize, other: usize) -> f64 {
        self.before[own][other]
    }

    /// The chance of a player who needs one point against one who needs `other`, after the Crawford game. Panics beyond the longest match.
    pub fn after_crawford(&self, other: usize) -> f64 {
        self.after[other]
    }
}
