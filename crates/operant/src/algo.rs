//! Algorithms, and what all of them are to a run.

pub use operant_cubes::{PolicyValues, Rewards, davi};
pub use operant_games::{alphazero, td};
pub use operant_rl::algo::{
    ActionsMut, Actor, Algorithm, Build, Curiosity, CurriculumSettings, EncoderName, Ended, Entry, GpuActor,
    GpuSetting, Head, MemoryName, NetworkSettings, OBS_LIMIT, Parts, Phase, Policy, Report, dqn, normaliser_of, part,
    ppo,
};

use crate::CATALOGUE;
use operant_base::Result;

/// Every algorithm.
pub fn all() -> impl Iterator<Item = &'static Entry> + Clone {
    CATALOGUE.algorithms()
}

/// The algorithm of this name.
pub fn find(name: &str) -> Result<&'static Entry> {
    CATALOGUE.algorithm(name)
}
