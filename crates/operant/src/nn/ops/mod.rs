//! Ops, one file each. The list below feeds the tests: an op that is not in it fails them, and so does one whose gradient is
//! wrong.

macro_rules! ops {
    ($($module:ident: $($op:ident),+;)+) => {
        $(mod $module;)+
        $(pub use $module::{$($op),+};)+

        /// Every op: its file, its type, and the check that it must pass.
        pub const OPS: &[OpEntry] =
            &[$($(OpEntry { file: stringify!($module), name: stringify!($op), check: super::check::op::<$op> },)+)+];
    };
}

/// An op in the list.
#[derive(Clone, Copy, Debug)]
pub struct OpEntry {
    /// File in `nn/ops/`, without its ending.
    pub file: &'static str,
    /// Name of the type.
    pub name: &'static str,
    /// Holds it to its cases.
    pub check: fn() -> Result<(), String>,
}

ops! {
    activation: Activation;
    arithmetic: Arithmetic, Scale;
    batch_norm: BatchNorm, BatchStatistics;
    conv: Conv;
    group_norm: GroupNorm;
    layer_norm: LayerNorm;
    linear: Linear;
    pool: GlobalPool, Pool;
    reduce: Reduce;
    squeeze_excite: ScaleChannels;
    upsample: Upsample;
}

pub use conv::Conv2d;
pub use group_norm::NormOptions;
pub use pool::Pooling;
