//! Networks on a GPU: stacks of linear layers with an activation between them, by cuBLASLt and the kernels of `layers.cu`.
//!
//! - `layout`: where parameters lie on the GPU, and how they come there from [`Params`](super::Params)
//! - `layers`: the kernels around matrix products
//! - `descent`: Adam over parameters of any layout
//! - `mlp`: forward, backward and Adam over buffers made once
//! - `twin`, `products`, `octets`, `recurrent`: kernels of the ops that plans run ([`CudaPlan`](super::CudaPlan)); their texts in `ops/`
//! - `formula`: ops that go number by number, of which plans print their own kernels
//!
//! Several networks of the same hidden sizes (a policy and its value) go side by side as one. Sums have a fixed order: the same
//! numbers give the same bits on the same GPU.

mod descent;
mod formula;
mod layers;
mod layout;
mod mlp;
mod octets;
mod products;
mod recurrent;
mod twin;

pub use descent::Descent;
pub use formula::{Formula, Read};
pub(crate) use formula::{literal, with_names};
pub use layers::{Adam, Layers, NUMBERS, layers_source};
pub use layout::{Layout, pitch_of};
pub use mlp::operands_of;
pub use mlp::{Mlp, Pass, Sums, Workspace};
pub(crate) use products::Products;
pub(crate) use recurrent::RecurrentLayer;
pub(crate) use twin::{
    Args, COLLAPSE, EARLY, PIXELS, THREADS, Tensor, act_number, activation, collapse, column_sums, vector_twin,
};
pub use twin::{Form, Launch, Text, Twin};
