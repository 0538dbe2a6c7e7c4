//! The loop: settings, run folder, checkpoints, evaluation.

pub use operant_cubes::solver as cubes;
pub use operant_rl::run::*;
