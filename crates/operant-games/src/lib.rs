//! Games of two players, and 2048: their rules, search, players, and what learns them.
//!
//! A game is ordinary Rust ([`game::Game`]); as an env its opponent plays at random. [`search::mcts`] searches games with a
//! network's values and policies; [`alphazero`] learns those by self-play, [`td`] learns backgammon's values by temporal differences.

pub mod alphazero;
pub mod backgammon;
mod boards;
pub mod connect4;
pub mod game;
pub mod search;
mod solo;
pub mod td;
pub mod twenty48;

use operant_env::Entry;
use operant_rl::algo;
use solo::Solo;

/// Games as envs.
pub static ENVS: &[Entry] = &[
    Entry::host::<Solo<connect4::Connect4>>(),
    Entry::host::<Solo<twenty48::Twenty48>>(),
    Entry::host::<Solo<backgammon::Backgammon>>(),
];

/// What learns games.
pub static ALGORITHMS: &[algo::Entry] = &[td::ENTRY, alphazero::ENTRY];
