//! What networks are trained with: parameters in one flat vector, their initialisation, optimisers and distributions.

mod init;
mod params;
mod saved;

pub use init::Init;
pub use params::{ALIGN, ParamSpec, Params};
pub use saved::Metadata;
