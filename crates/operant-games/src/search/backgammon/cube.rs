//! What a game is worth with the cube, from its five outcome probabilities.
//!
//! R. Janowski, "Take-points in money games" (1993): with a dead cube, which nobody turns again, the worth is a straight line from a certain
//! loss to a certain win. With a live cube, turned exactly when the opponent is indifferent between taking and dropping, it is bent at those
//! points, since between them the game can be cashed. The truth lies between: a share of the live cube's worth, the cube's efficiency, and
//! the rest of the dead one's. For money that gives his formulas, such as `p(W + L + x/2) − L` for the cube's owner. In a match the same lines
//! end at chances to win the match ([`MatchEquity`]) in place of points, and indifference is found cube by cube from the one that is dead.
//!
//! Worths are points for money, chances to win the match in a match; [`Cubeful::equity`] makes both comparable. Invariant: the worths of both
//! players sum to 0 for money, to 1 in a match.

use super::match_equity::MatchEquity;
use crate::backgammon::{LARGEST_CUBE, Outcome, Points, Position, Side, Stakes, ending};

/// The cube's efficiency in usual positions: Janowski estimates 0.6 to 0.8.
pub const EFFICIENCY: f64 = 0.68;
/// Worths that differ by less are equal.
const EQUAL: f64 = 1e-9;

/// The cube's efficiency in a position before the roll: none if the opponent is certain to bear off in the next roll, since nobody turns
/// the cube again.
pub fn efficiency(position: Position) -> f64 {
    // Against a checker that is certain to be borne off, only who bears off in one roll wins.
    let mut last = [0; 26];
    last[1] = 1;
    let waiting = Side::new(&last).expect("a checker");
    let certain = ending(Position { mover: position.other, other: waiting }).is_some_and(|win| win > 0.99999);
    if certain && !position.contact() { 0.0 } else { EFFICIENCY }
}

/// What is best to do before the roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Doubling gives away more than it gains.
    NoDouble,
    /// The same, because playing on for a gammon is worth more than what the opponent would give up.
    TooGood,
    /// The opponent should take.
    DoubleTake,
    /// The opponent should drop.
    DoubleDrop,
}

impl Advice {
    /// As people say it.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoDouble => "no double",
            Self::TooGood => "too good to double",
            Self::DoubleTake => "double, take",
            Self::DoubleDrop => "double, pass",
        }
    }
}

/// Worths of what can be done with the cube, for the player on roll.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubeChoice {
    /// Without a double.
    pub no_double: f64,
    /// Doubled and taken.
    pub take: f64,
    /// Doubled and dropped.
    pub drop: f64,
    /// What follows from these.
    pub advice: Advice,
}

impl CubeChoice {
    fn new(no_double: f64, take: f64, drop: f64) -> Self {
        let advice = if take.min(drop) >= no_double - EQUAL {
            if take <= drop + EQUAL { Advice::DoubleTake } else { Advice::DoubleDrop }
        } else if no_double > drop {
            Advice::TooGood
        } else {
            Advice::NoDouble
        };
        Self { no_double, take, drop, advice }
    }

    /// Whether to double.
    pub fn doubles(&self) -> bool {
        matches!(self.advice, Advice::DoubleTake | Advice::DoubleDrop)
    }

    /// Whether the opponent should take.
    pub fn takes(&self) -> bool {
        self.take <= self.drop + EQUAL
    }

    /// What the best choice is worth.
    pub fn best(&self) -> f64 {
        self.no_double.max(self.take.min(self.drop))
    }
}

/// A player's chances and stakes.
#[derive(Clone, Copy, Debug)]
pub struct Cubeful<'a> {
    table: &'a MatchEquity,
    stakes: Stakes,
    player: u8,
    /// Chance that the player wins.
    win: f64,
    /// Shares of single games, gammons and backgammons among wins, and among losses.
    won: [f64; 3],
    lost: [f64; 3],
    efficiency: f64,
}

/// Shares of a part of games that end single, with a gammon, with a backgammon.
fn shares(all: f32, gammons: f32, backgammons: f32) -> [f64; 3] {
    let [all, gammons, backgammons] = [all, gammons, backgammons].map(f64::from);
    if all <= 0.0 {
        return [1.0, 0.0, 0.0];
    }
    let gammons = (gammons / all).clamp(0.0, 1.0);
    let backgammons = (backgammons / all).clamp(0.0, gammons);
    [1.0 - gammons, gammons - backgammons, backgammons]
}

const KINDS: [Points; 3] = [Points::Single, Points::Gammon, Points::Backgammon];

impl<'a> Cubeful<'a> {
    /// For a player with these chances; the cube's efficiency is that of the position.
    pub fn new(outcome: Outcome, stakes: Stakes, player: u8, efficiency: f64) -> Cubeful<'static> {
        Cubeful::with_table(MatchEquity::get(), outcome, stakes, player, efficiency)
    }

    /// The same with another table, for who makes one.
    pub(super) fn with_table(
        table: &'a MatchEquity,
        outcome: Outcome,
        stakes: Stakes,
        player: u8,
        efficiency: f64,
    ) -> Self {
        let won = shares(outcome.win, outcome.win_gammon, outcome.win_backgammon);
        let lost = shares(1.0 - outcome.win, outcome.lose_gammon, outcome.lose_backgammon);
        Self { table, stakes, player, win: f64::from(outcome.win), won, lost, efficiency }
    }

    /// Worth to one of the players of so many points to someone.
    fn worth(&self, to: u8, winner: u8, points: u16) -> f64 {
        if self.stakes.length == 0 {
            return if to == winner { f64::from(points) } else { -f64::from(points) };
        }
        let to_winner = match self.stakes.next(winner, points) {
            None => 1.0,
            Some(next) => self.table.chance(&next, winner),
        };
        if to == winner { to_winner } else { 1.0 - to_winner }
    }

    /// Worth to one of the players of a game that someone wins with this cube, gammons in their shares.
    fn end(&self, to: u8, winner: u8, cube: u16) -> f64 {
        // A cube of 1 was not turned.
        let stakes = Stakes { cube, owner: (cube > 1).then_some(0), ..self.stakes };
        let shares = if winner == self.player { self.won } else { self.lost };
        KINDS.iter().zip(shares).map(|(&by, share)| share * self.worth(to, winner, stakes.points(by))).sum()
    }

    /// Whether a player can still turn a cube of this size that it has access to.
    fn is_live(&self, player: u8, cube: u16) -> bool {
        !self.stakes.crawford && cube < LARGEST_CUBE && !self.stakes.is_dead(player, cube)
    }

    /// The chance of a player at which the other one is indifferent between dropping a double of a live cube and taking it.
    fn cash(&self, player: u8, cube: u16) -> f64 {
        let other = 1 - player;
        let (drop, win) = (self.worth(player, player, cube), self.end(player, player, 2 * cube));
        // From where the taker, who owns the cube then, would cash in turn.
        let (from, low) = match self.is_live(other, 2 * cube) {
            true => (1.0 - self.cash(other, 2 * cube), self.worth(player, other, 2 * cube)),
            false => (0.0, self.end(player, other, 2 * cube)),
        };
        if win - low < EQUAL {
            return 1.0;
        }
        (from + (1.0 - from) * (drop - low) / (win - low)).clamp(0.0, 1.0)
    }

    /// Worth with the cube as these stakes have it, before anybody turns it.
    fn value(&self, stakes: Stakes) -> f64 {
        let (me, other, cube) = (self.player, 1 - self.player, stakes.cube);
        let (low, high) = (self.end(me, other, cube), self.end(me, me, cube));
        let dead = low + self.win * (high - low);
        let can_turn = |player: u8| stakes.owner.is_none_or(|owner| owner == player) && self.is_live(player, cube);
        let mine = can_turn(me).then(|| (self.cash(me, cube), self.worth(me, me, cube)));
        let theirs = can_turn(other).then(|| (1.0 - self.cash(other, cube), self.worth(me, other, cube)));
        let (from, to) = (theirs.unwrap_or((0.0, low)), mine.unwrap_or((1.0, high)));
        let between = |a: (f64, f64), b: (f64, f64)| match b.0 - a.0 {
            width if width < EQUAL => b.1,
            width => a.1 + (self.win - a.0) / width * (b.1 - a.1),
        };
        let live = if self.win < from.0 {
            between((0.0, low), from)
        } else if self.win > to.0 {
            between(to, (1.0, high))
        } else {
            between(from, to)
        };
        // Once doubled, nobody needs the cube any more: to double gives nothing away, so nobody waits, and the cube is as good as live.
        let last = stakes.length > 0 && [me, other].iter().all(|&player| stakes.is_dead(player, 2 * cube));
        let efficiency = if last && self.efficiency > 0.0 { 1.0 } else { self.efficiency };
        efficiency * live + (1.0 - efficiency) * dead
    }

    /// Worth before anybody turns the cube.
    pub fn no_double(&self) -> f64 {
        self.value(self.stakes)
    }

    /// Worths of the player's choices, who is on roll, as if a double were allowed.
    pub fn choice(&self) -> CubeChoice {
        let (me, other) = (self.player, 1 - self.player);
        let take = self.value(self.stakes.doubled(other));
        CubeChoice::new(self.no_double(), take, self.worth(me, me, self.stakes.cube))
    }

    /// Whether the player, on roll, can turn the cube.
    pub fn can_double(&self) -> bool {
        self.stakes.may_double(self.player) && self.is_live(self.player, self.stakes.cube)
    }

    /// Worth to the player, on roll, if the cube is handled best.
    pub fn on_roll(&self) -> f64 {
        if self.can_double() { self.choice().best() } else { self.no_double() }
    }

    /// What a worth to the player is to the opponent.
    pub fn to_other(&self, worth: f64) -> f64 {
        if self.stakes.length == 0 { -worth } else { 1.0 - worth }
    }

    /// A worth in units of the cube as it is: 1 for a single game won, −1 for one lost.
    pub fn equity(&self, worth: f64) -> f64 {
        let (me, other, cube) = (self.player, 1 - self.player, self.stakes.cube);
        let (high, low) = (self.worth(me, me, cube), self.worth(me, other, cube));
        (2.0 * worth - high - low) / (high - low).max(EQUAL)
    }
}
