//! Games between two players: points per game with its standard error.

use crate::env::backgammon::{Backgammon, Points, Record, Turn};
use crate::error::Result;
use crate::search::versus::{Played, Player, between, from_start, play};

/// Points of games, as the first player has them.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Per game: 1 to 3, or below 0 if lost.
    pub points: Vec<i8>,
}

impl Score {
    /// Points per game.
    pub fn mean(&self) -> f64 {
        self.points.iter().map(|&points| f64::from(points)).sum::<f64>() / self.points.len() as f64
    }

    /// Its standard error. Two games with the same dice count as one: they are not independent.
    pub fn standard_error(&self) -> f64 {
        let pairs: Vec<f64> = self
            .points
            .chunks(2)
            .map(|pair| pair.iter().map(|&points| f64::from(points)).sum::<f64>() / pair.len() as f64)
            .collect();
        let n = pairs.len() as f64;
        let mean = pairs.iter().sum::<f64>() / n;
        let squares: f64 = pairs.iter().map(|x| (x - mean) * (x - mean)).sum();
        (squares / (n - 1.0).max(1.0) / n).sqrt()
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
    Record { first: seat, turns }
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
    let records = played.iter().zip(&pairings).map(|(played, pairing)| record(played, pairing.seat)).collect();
    Ok((Score { points }, records))
}

/// So many games of a player against itself, all with dice of their own.
pub fn alone(player: &mut dyn Player<Backgammon>, games: usize, seed: u64) -> Result<Vec<Record>> {
    let mut pairings = from_start::<Backgammon>(games);
    pairings.iter_mut().zip(0..).for_each(|(pairing, number)| pairing.luck = number);
    let played = play(&pairings, seed, &mut |_, states, rngs, out| player.choose(states, rngs, out))?;
    Ok(played.iter().zip(&pairings).map(|(played, pairing)| record(played, pairing.seat)).collect())
}
