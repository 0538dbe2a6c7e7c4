//! Fields under stochastic neural operators: the state is `[C, H, W]`, a step is one application, there is no policy.
//!
//! [`Space`] is sampled, an [`Operator`] is planned as a network, a [`Rollout`] applies it to realisations of a first field
//! ([`initial`]), and [`features`] describe what came out. Everything is a function of a key and of coordinates.

mod any;
pub mod cuda;
pub mod features;
pub mod initial;
mod initial_models;
mod operator;
mod rollout;
mod space;
mod uafno;

pub use any::{AnyRollout, STEPS_AT_ONCE};
pub use operator::{Network, Norm, Operator, Schedule, Update};
pub use rollout::{After, Rollout};
pub use space::{Architecture, Map, NAMES, Parameter, Space, UAFNO_NAMES};
pub use uafno::{Afno, MOST_MODES};
