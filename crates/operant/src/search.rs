//! Search over learned values of puzzles, and over trees of games.

pub use operant_cubes::search::*;
pub use operant_games::search::*;
