//! Networks: a graph of layers, planned once, run forward and backward without an allocation.
//!
//! [`Graph`] says what is computed, [`Plan`] how: order, fusion, tiles, memory. [`Params`] hold the weights in PyTorch's
//! names and layouts. Ops are one file each in `ops/`, written once for f32 on wide registers and for f64, in which
//! [`check`] compares their gradients with finite differences.

mod action_value;
pub mod channels;
pub mod check;
pub mod cuda;
pub mod dist;
pub mod elementwise;
mod graph;
pub mod grow;
mod init;
mod lane_rows;
mod long_rows;
pub mod nets;
pub mod noise;
mod op;
pub mod ops;
mod optim;
mod params;
mod plan;
mod precision;
mod real;
mod recurrent;
mod saved;

pub use graph::{Graph, Node};
pub use init::Init;
pub use op::{
    Act, Backward, Draws, DynOp, Forward, Kind, MAX_INPUTS, MAX_OUTPUTS, Needs, Op, Packing, ReadBy, Type, Types,
};
pub use optim::{Ema, LossScale, Method, MuonScale, Optimizer, Schedule, StepReport};
pub use params::{ALIGN, ParamSpec, Params};
pub use plan::{
    CudaPlan, Feed, Gradients, Networks, OpTime, Options, Outcome, Plan, Profile, Setup, Shared, SharedWeights,
    StepName, Wanted,
};
pub use precision::{Precision, peak_gflops};
pub use real::{Compute, Left, Outer, PackPart, PackSet, Packed, PackedMut, Real, Room, Scratch, Start, View};
pub use recurrent::{Cell, HasCases, Memory, Part, Recurrence, Recurrent, StepBackward, StepForward};
pub use saved::Metadata;
pub use saved::{metadata as saved_metadata, read_file, write_file};
