//! Backgammon by the rules of the U.S. Backgammon Federation: a turn is a roll and a play of it. [`Match`] adds the cube and the score.

mod bearoff;
mod game;
mod inputs;
mod mat;
mod match_id;
mod match_play;
mod notation;
mod outcome;
mod picture;
mod plays;
mod position;
mod record;
mod sgf;
mod stakes;

pub use bearoff::{Bearoff, ending};
pub use game::{Backgammon, State};
pub use inputs::{CONTACT_INPUTS, RACE_INPUTS, contact_inputs, race_inputs};
pub use mat::{from_mat, to_mat};
pub use match_id::MatchId;
pub use match_play::{Decision, Match, Phase, Won};
pub use outcome::{OUTCOMES, Outcome};
pub use picture::draw;
pub use plays::{Play, Plays};
pub use position::{BAR, CHECKERS, Points, Position, Side};
pub use record::{Doubled, Record, Turn};
pub use sgf::to_sgf;
pub use stakes::{LARGEST_CUBE, LONGEST_MATCH, Stakes};

use operant_lanes::rng::HostRng;

/// A roll; in the first turn of a game, for which each player throws one die, no double.
pub fn roll(rng: &mut HostRng, first_turn: bool) -> [u8; 2] {
    let a = rng.below(6) as u8;
    let b = if first_turn { (a + 1 + rng.below(5) as u8) % 6 } else { rng.below(6) as u8 };
    [a + 1, b + 1]
}

/// Rolls that differ: chance's outcomes in every turn but the first.
pub const ROLLS: [[u8; 2]; 21] = rolls();

const fn rolls() -> [[u8; 2]; 21] {
    let mut rolls = [[0; 2]; 21];
    let (mut large, mut at) = (1, 0);
    while large <= 6 {
        let mut small = 1;
        while small <= large {
            rolls[at] = [large, small];
            at += 1;
            small += 1;
        }
        large += 1;
    }
    rolls
}

/// Numbers that [`observe`] writes: 98 for each side.
pub const OBSERVATION: usize = 2 * SIDE;
const SIDE: usize = 24 * 4 + 2;

/// Chances of [`ROLLS`]; a double has half the chance of another roll, and none in the first turn, for which each player throws one die.
pub fn chances(first_turn: bool) -> [f32; 21] {
    ROLLS.map(|[a, b]| match (a == b, first_turn) {
        (true, true) => 0.0,
        (true, false) => 1.0 / 36.0,
        (false, true) => 2.0 / 30.0,
        (false, false) => 2.0 / 36.0,
    })
}

/// Writes what the mover sees (G. Tesauro, TD-Gammon, 1995): per side and point one number each for a checker at least, two, three, and half of
/// those beyond; half of those on the bar, and the share of those borne off.
pub fn observe(position: Position, out: &mut [f32]) {
    for (side, out) in [position.mover, position.other].into_iter().zip(out.chunks_exact_mut(SIDE)) {
        observe_side(side, out);
    }
}

fn observe_side(side: Side, out: &mut [f32]) {
    for (point, out) in (1..BAR).zip(out.chunks_exact_mut(4)) {
        let count = f32::from(side.count(point));
        out.copy_from_slice(&[
            count.min(1.0),
            (count - 1.0).clamp(0.0, 1.0),
            (count - 2.0).clamp(0.0, 1.0),
            (count - 3.0).max(0.0) / 2.0,
        ]);
    }
    out[SIDE - 2] = f32::from(side.count(BAR)) / 2.0;
    out[SIDE - 1] = f32::from(side.off()) / 15.0;
}
