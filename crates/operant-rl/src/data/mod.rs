//! What envs write and learners read: columns of a rollout, minibatches, replay, running statistics.

mod batch;
mod episodes;
mod replay;
mod rollout;
mod running;
mod shuffle;
mod sum_tree;

pub use batch::{Batch, Order};
pub use episodes::Episodes;
pub use replay::{Experience, Replay, ReplayShape, SampleDraws, Samples};
pub use rollout::{ActionColumn, Rollout, Shape};
pub use running::{ReturnScale, Running};
pub use shuffle::Shuffle;
pub use sum_tree::SumTree;
