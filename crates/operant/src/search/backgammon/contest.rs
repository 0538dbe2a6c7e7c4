//! Games between two players: points per game with its standard error.

use super::player::Player;
use crate::env::backgammon::{Plays, Points, Position, Record, Turn, roll};
use crate::error::Result;
use crate::lanes::rng::HostRng;

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

/// What decides a game but the plays.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Which player begins.
    pub first: usize,
    /// Seed of dice.
    pub seed: u64,
    /// Games of another number have other dice.
    pub number: u32,
}

/// One game, in which `choose` is told whose turn it is and chooses among the plays of a roll.
pub fn play_game(
    setup: Setup,
    plays: &mut Plays,
    mut choose: impl FnMut(usize, Position, [u8; 2], &Plays, &mut HostRng) -> Result<usize>,
) -> Result<Record> {
    let Setup { first, seed, number } = setup;
    let mut record = Record { first, turns: Vec::new() };
    let mut position = Position::START;
    for turn in 0.. {
        let mut rng = HostRng::new(seed, number, 0, turn);
        let dice = roll(&mut rng, turn == 0);
        plays.find(position, dice);
        let play = plays[choose((first + turn as usize) % 2, position, dice, plays, &mut rng)?];
        record.turns.push(Turn { dice, play });
        position = play.result(position);
        if position.lost().is_some() {
            break;
        }
    }
    Ok(record)
}

/// So many games between two players, who take turns to begin; each two games have the same dice. `watch` sees every game.
pub fn contest(
    one: &mut dyn Player,
    two: &mut dyn Player,
    games: usize,
    seed: u64,
    watch: &mut dyn FnMut(&Record),
) -> Result<Score> {
    let mut score = Score::default();
    let mut plays = Plays::default();
    for game in 0..games {
        let setup = Setup { first: game % 2, seed, number: (game / 2) as u32 };
        let record = play_game(setup, &mut plays, |player, position, dice, plays, rng| match player {
            0 => one.choose(position, dice, plays, rng),
            _ => two.choose(position, dice, plays, rng),
        })?;
        let (winner, points) = record.result().expect("a game is played to its end");
        score.points.push(if winner == 0 { points as i8 } else { -(points as i8) });
        watch(&record);
    }
    Ok(score)
}
