//! What envs write and learners read: columns of a rollout, minibatches, running statistics.

mod batch;
mod episodes;
mod rollout;
mod running;
mod shuffle;

pub use batch::{Batch, Order};
pub use episodes::Episodes;
pub use rollout::{ActionColumn, Rollout, Shape};
pub use running::{ReturnScale, Running};
pub use shuffle::Shuffle;
