//! What envs write and learners read: columns of a rollout, minibatches, replay, running statistics, stores on disk;
//! points that fill a cube, Fourier transforms.

mod batch;
mod codec;
mod episodes;
pub mod fft;
mod replay;
mod rollout;
mod running;
pub mod shards;
mod shuffle;
mod sobol;
mod sum_tree;
mod unfit;

pub use batch::{Batch, Order};
pub use codec::Codec;
pub use episodes::Episodes;
pub use replay::{Experience, Replay, ReplayShape, SampleDraws, Samples};
pub use rollout::{ActionColumn, Rollout, Shape};
pub use running::{ReturnScale, Running};
pub use shuffle::Shuffle;
pub(crate) use sobol::mix;
pub use sobol::{Evenness, Sobol};
pub use sum_tree::SumTree;
pub use unfit::{MOST, Place, Unfit, first_unfit};
