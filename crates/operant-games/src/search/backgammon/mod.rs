//! Backgammon by learned values: the networks, players that look one to three rolls ahead with them, games between players and
//! how lucky they were; and what the cube and the score make of values.

mod best_plays;
mod contest;
mod cube;
mod cube_player;
mod leaves;
mod luck;
mod match_equity;
mod network;
mod player;

pub use contest::{Score, alone, contest, mean_of_pairs};
pub use cube::{Advice, CubeChoice, Cubeful, EFFICIENCY, efficiency};
pub use cube_player::{CubePlayer, JudgedPlay, Values, WithCube, cubeful, play_session};
pub use leaves::Leaves;
pub use luck::{Luck, luck_of_games};
pub use match_equity::MatchEquity;
pub use network::{BackgammonFile, BackgammonNet, Evaluator, Kind, Weights, stacked};
pub use player::{ByValue, Depth, Judged, RuleOfThumb};

/// Four networks of `operant train td backgammon --threads 1`, seeds 1 to 4, by `operant backgammon stack`; docs/results.md says how well they play.
pub const SHIPPED: &[u8] = include_bytes!("../../../../../models/backgammon.safetensors");
