//! Search over learned values: greedy walks, beams and weighted A*, each in batches, so that a network sees many states at
//! once.
//!
//! A puzzle says what follows a state ([`Puzzle`](crate::puzzle::Puzzle)), [`Values`] how far states are from solved. A
//! solution is checked by its moves alone: wrong values make it longer or absent, never wrong.

mod astar;
mod beam;
mod greedy;
mod held_out;
mod value_net;

pub use astar::{AstarSettings, astar};
pub use beam::beam;
pub use greedy::greedy;
pub use held_out::{HeldOut, held_out_of};
pub use value_net::{Evaluator, PuzzleName, ValueFile, ValueNet};

/// Estimates of how many moves states are from solved.
pub trait Values<S> {
    /// Writes one estimate per state.
    fn values(&mut self, states: &[S], out: &mut Vec<f32>);
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// Moves that solve the state, if the search came to an end.
    pub moves: Option<Vec<u8>>,
    /// States whose successors were looked at.
    pub expanded: usize,
}

/// A state that a search met, and how it came there.
#[derive(Clone, Copy, Debug)]
struct Met<S> {
    state: S,
    /// Number of the state before it; its own for the first.
    before: u32,
    by: u8,
}

/// The moves from the first state to number `last`.
fn path<S>(met: &[Met<S>], mut last: usize) -> Vec<u8> {
    let mut moves = Vec::new();
    while met[last].before as usize != last {
        moves.push(met[last].by);
        last = met[last].before as usize;
    }
    moves.reverse();
    moves
}
