//! Operant: reinforcement learning and simulation at the speed of the hardware.
//!
//! - [`config`], [`error`], [`telemetry`]: settings as typed tables; one error type, with suggestions; metrics, events and where they go
//! - [`lanes`]: straight-line code written once, run on 1, 8 or 16 lanes or printed as C
//! - [`device`]: worker threads, matrix products, GPUs, allocation counting, the machine
//! - [`nn`]: networks: graphs, plans, ops, optimisers, distributions
//! - [`field`]: fields under stochastic neural operators, and datasets of them
//! - [`data`]: rollouts, minibatches, replay, running statistics
//! - [`env`](mod@env): environments, the registry, the vector env
//! - [`search`]: walks, beams and A* over learned values; tree search over games
//! - [`algo`]: algorithms, each one file
//! - [`run`]: the loop: settings, run folder, checkpoints, evaluation
//!
//! All of them are crates of their own (`operant-base`, `operant-lanes`, …), which this one brings together; [`CATALOGUE`] lists their
//! envs and algorithms.
//!
//! ```
//! use operant::env::{self, Actions, Options, RowBuf, Seeds};
//!
//! let mut envs = env::find("CartPole-v1")?.build(&[], &Options::new(1024))?;
//! let mut row = RowBuf::new(envs.spec(), envs.num_envs());
//! envs.reset(Seeds::One(0), None, row.row());
//! envs.step(Actions::I32(&[1; 1024]), row.row());
//! assert_eq!(row.reward, [1.0; 1024]);
//! # Ok::<(), operant::Error>(())
//! ```

pub mod algo;
mod catalogue;
pub mod env;
pub mod run;
pub mod search;

pub use catalogue::CATALOGUE;
pub use operant_env::params;
pub use operant_rl::{Catalogue, Shipped, data};

pub use operant_base::{Error, Result, config, error, telemetry};
pub use operant_device as device;
pub use operant_field as field;
pub use operant_lanes as lanes;
pub use operant_lanes::columns;
pub use operant_nn as nn;

/// The env in CONTRIBUTING.md, compiled and checked with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../CONTRIBUTING.md")]
pub struct Contributing;
