//! Tree search over games, the networks that it asks, and players.

pub mod backgammon;
pub mod connect4_solver;
pub mod game_net;
mod gumbel;
pub mod mcts;
pub mod policy;
pub mod tree;
pub mod versus;
