//! What networks are trained with: parameters in one flat vector, their initialisation, optimisers and distributions.

mod init;
mod optim;
mod params;
mod saved;

pub use init::Init;
pub use optim::{Ema, LossScale, Method, MuonScale, Optimizer, Schedule, StepReport};
pub use params::{ALIGN, ParamSpec, Params};
pub use saved::Metadata;
