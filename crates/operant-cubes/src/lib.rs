//! Cubes of 2×2×2 and 3×3×3: envs over lanes, puzzles for search, and what learns and solves them.

pub mod cube;
mod cube2;
mod cube3;
pub mod davi;
mod policy_values;
pub mod puzzle;
pub mod search;
pub mod solver;

pub use cube2::Cube2;
pub use cube3::Cube3;
pub use policy_values::{PolicyValues, Rewards};

use operant_env::Entry;
use operant_rl::algo;

/// The cubes.
pub static ENVS: &[Entry] = &[Entry::views::<Cube2>(), Entry::views::<Cube3>()];

/// Cubes with parameters that choose other code: whatever looks at every env's code looks at these too.
pub static VARIANTS: &[Entry] = &[
    Entry::views::<Cube2>().with(&[("symmetry", 1.0), ("half_turns", 1.0)]),
    Entry::views::<Cube2>().with(&[("view", 1.0)]),
    Entry::views::<Cube2>().with(&[("view", 2.0), ("symmetry", 1.0)]),
    Entry::views::<Cube3>().with(&[("view", 1.0), ("half_turns", 1.0)]),
];

/// What learns cubes alone.
pub static ALGORITHMS: &[algo::Entry] = &[davi::ENTRY];
