//! Fields under stochastic neural operators: the state is `[C, H, W]`, a step is one application, there is no policy.
//!
//! [`Space`] is sampled, an [`Operator`] is planned as a network, a [`Rollout`] applies it to realisations of a first field
//! ([`initial`]), and [`features`] describe what came out. Everything is a function of a key and of coordinates.
//! [`collect`] makes a dataset of many operators in a store of Zarr arrays ([`shards`]).

mod any;
mod codec;
pub mod collect;
pub mod cuda;
pub mod features;
pub mod fft;
pub mod initial;
mod initial_models;
mod operator;
mod rollout;
pub mod shards;
mod sobol;
mod space;
mod uafno;

pub use any::{AnyRollout, STEPS_AT_ONCE};
pub use codec::Codec;
pub use operator::{Network, Norm, Operator, Schedule, Update};
pub use rollout::{After, Rollout};
pub(crate) use sobol::mix;
pub use sobol::{Evenness, Sobol};
pub use space::{Architecture, Map, NAMES, Parameter, Space, UAFNO_NAMES};
pub use uafno::{Afno, MOST_MODES};
