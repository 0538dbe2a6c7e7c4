//! Backgammon by learned values: the networks, and players that look one or two rolls ahead with them.

mod network;

pub use network::{BackgammonFile, BackgammonNet, Evaluator, Kind, Weights};
