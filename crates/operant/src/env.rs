//! Environments: what one is, how many are stepped together, and the list of all that come with the engine.

pub use operant_cubes::{Cube2, Cube3, cube, puzzle};
pub use operant_env::*;
pub use operant_envs::{Acrobot, CartPole, GridWorld, MountainCar, MountainCarContinuous, Pendulum, probe};
pub use operant_games::{backgammon, connect4, game, twenty48};
pub use operant_growth::{self as growth, Growth};

use crate::CATALOGUE;
use operant_base::Result;

/// Every env, in the order in which they are listed.
pub fn all() -> impl Iterator<Item = &'static Entry> + Clone {
    CATALOGUE.envs()
}

/// Envs of the list with parameters that choose other code: whatever looks at every env's code looks at these too.
pub static VARIANTS: &[Entry] = operant_cubes::VARIANTS;

/// The env of this short name or id.
pub fn find(name: &str) -> Result<&'static Entry> {
    CATALOGUE.env(name)
}
