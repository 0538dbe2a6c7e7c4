//! Which states are kept from a learner, so that it can be tested on them.
//!
//! Orbits are chosen by a hash of what a network sees of their representative. Those close to the solved state never are: they lie on
//! the shortest ways of all others, are too few to be guessed from their like, and a learner without them learns wrong values of
//! everything behind them.

use crate::puzzle::Puzzle;
use std::collections::HashSet;

/// Tells states that are held out from the others.
#[derive(Clone, Debug)]
pub struct HeldOut<S> {
    millionths: u32,
    /// Representatives that are close to the solved state.
    near: HashSet<S>,
}

impl<S: Copy + Eq + std::hash::Hash> HeldOut<S> {
    /// A share of the orbits that are more than `beyond` moves from solved.
    pub fn new<P: Puzzle<State = S>>(puzzle: &P, share: f64, beyond: u32) -> Self {
        let millionths = (share * 1e6).round() as u32;
        // Of states, not of representatives: where inversion is a symmetry, an orbit need not follow the representative before it.
        let mut seen = HashSet::new();
        if millionths > 0 {
            let mut last = vec![puzzle.solved()];
            seen.extend(&last);
            for _ in 0..beyond {
                let next = last.iter().flat_map(|&state| (0..puzzle.moves()).map(move |m| puzzle.turned(state, m)));
                last = next.filter(|&state| seen.insert(state)).collect();
            }
        }
        let near = seen.into_iter().map(|state| puzzle.representative(state)).collect();
        Self { millionths, near }
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.millionths == 0
    }

    /// Whether the orbit of a representative, of which a network sees these entries, is held out.
    pub fn holds(&self, representative: S, entries: &[i32]) -> bool {
        chosen(entries, self.millionths) && !self.near.contains(&representative)
    }
}

/// The same for envs, whose states are words.
pub fn held_out_of<P: Puzzle>(puzzle: P, share: f64, beyond: u32) -> operant_env::HeldOut {
    let held_out = HeldOut::new(&puzzle, share, beyond);
    let mut entries = vec![0; puzzle.features().shown];
    let columns = puzzle.words(puzzle.solved()).as_ref().len();
    let holds = move |words: &[i32]| {
        let representative = puzzle.representative(puzzle.state(words));
        puzzle.encode(representative, &mut entries);
        held_out.holds(representative, &entries)
    };
    operant_env::HeldOut { columns, holds: Box::new(holds) }
}

/// Whether an orbit is among so many millionths of all.
fn chosen(entries: &[i32], millionths: u32) -> bool {
    // FNV-1a over the entries, then the finaliser of MurmurHash3, so that shares are even.
    let mut hash = entries.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &entry| {
        (hash ^ u64::from(entry as u32)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (hash ^ (hash >> 33)) % 1_000_000 < u64::from(millionths)
}
