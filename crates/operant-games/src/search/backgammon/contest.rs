//! Games between two players: points per game with its standard error.

use crate::backgammon::{Backgammon, Points, Record, Stakes, Turn};
use crate::search::versus::{Pairing, Played, Player, between, from_start, play};
use operant_base::Result;

/// The mean, and its standard error: no number for one pair. Each two games have the same dice and count as one: they are not
/// independent.
pub fn mean_of_pairs(points: &[f64]) -> (f64, f64) {
    let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64;
    let pairs: Vec<f64> = points.chunks(2).map(mean).collect();
    let (n, center) = (pairs.len() as f64, mean(&pairs));
    let squares: f64 = pairs.iter().map(|x| (x - center) * (x - center)).sum();
    (mean(points), (squares / (n - 1.0) / n).sqrt())
}

/// Points of games, as the first player has them.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Per game: 1 to 3, or below 0 if lost.
    pub points: Vec<i8>,
}

impl Score {
    /// Points per game.
    pub fn mean(&self) -> f64 {
        self.mean_and_error().0
    }

    /// Its standard error.
    pub fn standard_error(&self) -> f64 {
        self.mean_and_error().1
    }

    fn mean_and_error(&self) -> (f64, f64) {
        mean_of_pairs(&self.points.iter().map(|&points| f64::from(points)).collect::<Vec<_>>())
    }

    /// Share of games with at least so many points won, and lost.
    pub fn shares(&self, least: Points) -> [f64; 2] {
        let least = least as i8;
        let share = |holds: &dyn Fn(i8) -> bool| {
            self.points.iter().filter(|&&points| holds(points)).count() as f64 / self.points.len() as f64
        };
        [share(&|points| points >= least), share(&|points| points <= -least)]
    }
}

/// A game as a record; `seat` is the place of the player who comes first in it.
fn record(played: &Played<Backgammon>, seat: usize) -> Record {
    let turns = played.turns.iter().map(|(state, play)| Turn { dice: state.dice, play: *play }).collect();
    // The one who decides first is player 0 of the game.
    Record { first: seat, turns, ..Record::default() }
}

/// Games as a session for money without a cube.
fn session(played: &[Played<Backgammon>], pairings: &[Pairing<Backgammon>]) -> Vec<Record> {
    let mut stakes = Stakes::default();
    let games = played.iter().zip(pairings).map(|(played, pairing)| {
        let record = Record { stakes, ..record(played, pairing.seat) };
        stakes = record.result().and_then(|won| stakes.next(won.player, won.points)).unwrap_or(stakes);
        record
    });
    games.collect()
}

/// So many games between two players, who take turns to begin; each two games have the same dice.
pub fn contest(
    one: &mut dyn Player<Backgammon>,
    two: &mut dyn Player<Backgammon>,
    games: usize,
    seed: u64,
) -> Result<(Score, Vec<Record>)> {
    let pairings = from_start::<Backgammon>(games);
    let played = between(one, two, &pairings, seed)?;
    let points = played.iter().map(|played| played.points as i8).collect();
    Ok((Score { points }, session(&played, &pairings)))
}

/// So many games of a player against itself, all with dice of their own.
pub fn alone(player: &mut dyn Player<Backgammon>, games: usize, seed: u64) -> Result<Vec<Record>> {
    let mut pairings = from_start::<Backgammon>(games);
    pairings.iter_mut().zip(0..).for_each(|(pairing, number)| pairing.luck = number);
    let played = play(&pairings, seed, &mut |_, states, rngs, out| player.choose(states, rngs, out))?;
    Ok(session(&played, &pairings))
}
