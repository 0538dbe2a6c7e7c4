//! Reinforcement learning over envs: columns of data, algorithms, and the loop that every run goes through.
//!
//! - [`data`]: rollouts, minibatches, replay, running statistics
//! - [`algo`]: what an algorithm is, the policy that they share, PPO and DQN
//! - [`run`]: settings, run folder, checkpoints, evaluation
//!
//! Envs and algorithms are listed in a [`Catalogue`], which whoever starts a run brings along.

pub mod algo;
mod catalogue;
pub mod data;
pub mod run;

pub use catalogue::{Catalogue, Shipped};
