//! Backgammon by learned values: the networks, players that look one or two rolls ahead with them, and games between players.

mod contest;
mod leaves;
mod network;
mod player;

pub use contest::{Score, alone, contest};
pub use leaves::Leaves;
pub use network::{BackgammonFile, BackgammonNet, Evaluator, Kind, Weights};
pub use player::{ByValue, Depth, Judged, RuleOfThumb};
