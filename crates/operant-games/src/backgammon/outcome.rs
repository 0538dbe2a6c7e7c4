//! How a game may end, as five cumulative probabilities, and what that is worth.

use super::position::{Points, Position};

/// Outcomes that are predicted.
pub const OUTCOMES: usize = 5;

/// Probabilities for the player whose turn it is, before the roll. Each includes what is more: a gammon is a win, a backgammon is a gammon.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Outcome {
    /// Wins.
    pub win: f32,
    /// Wins a gammon or a backgammon.
    pub win_gammon: f32,
    /// Wins a backgammon.
    pub win_backgammon: f32,
    /// Loses a gammon or a backgammon.
    pub lose_gammon: f32,
    /// Loses a backgammon.
    pub lose_backgammon: f32,
}

impl Outcome {
    /// A game that is lost by so much.
    pub fn lost(points: Points) -> Self {
        let at_least = |least: Points| f32::from(u8::from(points as u8 >= least as u8));
        Self { lose_gammon: at_least(Points::Gammon), lose_backgammon: at_least(Points::Backgammon), ..Self::default() }
    }

    /// From the five numbers in the order of the fields.
    #[inline]
    pub fn from_array([win, win_gammon, win_backgammon, lose_gammon, lose_backgammon]: [f32; OUTCOMES]) -> Self {
        Self { win, win_gammon, win_backgammon, lose_gammon, lose_backgammon }
    }

    /// The five numbers in the order of the fields.
    #[inline]
    pub fn to_array(self) -> [f32; OUTCOMES] {
        [self.win, self.win_gammon, self.win_backgammon, self.lose_gammon, self.lose_backgammon]
    }

    /// The same for the opponent.
    #[inline]
    pub fn swapped(self) -> Self {
        Self {
            win: 1.0 - self.win,
            win_gammon: self.lose_gammon,
            win_backgammon: self.lose_backgammon,
            lose_gammon: self.win_gammon,
            lose_backgammon: self.win_backgammon,
        }
    }

    /// Expected points without a cube: `(2w − 1) + (wg − lg) + (wbg − lbg)`.
    #[inline]
    pub fn equity(self) -> f32 {
        2.0 * self.win - 1.0 + self.win_gammon - self.lose_gammon + self.win_backgammon - self.lose_backgammon
    }

    /// `self + share · (other − self)`.
    #[inline]
    pub fn mixed(self, other: Self, share: f32) -> Self {
        let (a, b) = (self.to_array(), other.to_array());
        Self::from_array(std::array::from_fn(|i| a[i] + share * (b[i] - a[i])))
    }

    /// What the rules leave of an estimate for a position: no gammon against a side that has borne off a checker, and no part larger than
    /// what it is part of.
    #[inline]
    pub fn within_rules(self, position: Position) -> Self {
        let can = |borne_off: u8| if borne_off == 0 { 1.0 } else { 0.0 };
        let (can_win, can_lose) = (can(position.other.off()), can(position.mover.off()));
        let win_gammon = self.win_gammon.min(self.win) * can_win;
        let lose_gammon = self.lose_gammon.min(1.0 - self.win) * can_lose;
        Self {
            win: self.win,
            win_gammon,
            win_backgammon: self.win_backgammon.min(win_gammon),
            lose_gammon,
            lose_backgammon: self.lose_backgammon.min(lose_gammon),
        }
    }
}
