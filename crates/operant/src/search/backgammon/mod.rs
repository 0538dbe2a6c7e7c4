//! Backgammon by learned values: the networks, players that look one or two rolls ahead with them, and games between players.

mod contest;
mod network;
mod player;

pub use contest::{Score, Setup, contest, play_game};
pub use network::{BackgammonFile, BackgammonNet, Evaluator, Kind, Weights};
pub use player::{ByValue, Depth, Judged, Player, Random, RuleOfThumb};
