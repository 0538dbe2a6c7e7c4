//! What networks are trained with: parameters in one flat vector, their initialisation, optimisers and distributions.

mod aligned;
mod dist;
mod init;
mod lane_io;
mod optim;
mod params;
mod saved;

pub use aligned::AlignedVec;
pub use dist::{Categorical, CausalMask, DiagGaussian, Draws, Factored, SquashedGaussian};
pub use init::Init;
pub use optim::{Ema, LossScale, Method, MuonScale, Optimizer, Schedule, StepReport};
pub use params::{ALIGN, ParamSpec, Params};
pub use saved::Metadata;
