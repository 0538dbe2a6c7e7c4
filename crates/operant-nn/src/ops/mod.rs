//! Ops, one file each. The list below feeds the tests: an op that is not in it fails them, and so does one whose gradient is
//! wrong.

macro_rules! ops {
    ($($module:ident: $($op:ident),+;)+) => {
        $(mod $module;)+
        $(pub use $module::{$($op),+};)+

        /// Every op: its file, its type, and the check that it must pass.
        pub const OPS: &[OpEntry] =
            &[$($(OpEntry {
                file: stringify!($module),
                name: stringify!($op),
                label: <$op as super::op::Op>::NAME,
                #[cfg(all(feature = "check", not(test)))]
                check: super::check::op::<$op>,
                #[cfg(all(feature = "check", not(test)))]
                served: super::check::cuda::served::<$op>,
                #[cfg(all(feature = "check", not(test)))]
                check_cuda: super::check::cuda::op::<$op>,
            },)+)+];
    };
}

/// An op in the list.
#[derive(Clone, Copy, Debug)]
pub struct OpEntry {
    /// File in `nn/ops/`, without its ending.
    pub file: &'static str,
    /// Name of the type.
    pub name: &'static str,
    /// What steps of a plan and messages call it.
    pub label: &'static str,
    /// Holds it to its cases.
    #[cfg(all(feature = "check", not(test)))]
    pub check: fn() -> Result<(), String>,
    /// Which of its cases have kernels on a GPU.
    #[cfg(all(feature = "check", not(test)))]
    pub served: fn() -> Result<super::check::cuda::Served, String>,
    /// Holds its kernels to its cases.
    #[cfg(all(feature = "check", not(test)))]
    pub check_cuda: fn(&std::sync::Arc<operant_device::cuda::Gpu>) -> Result<(), String>,
}

ops! {
    activation: Activation;
    arithmetic: Arithmetic, Scale;
    attention: Attention;
    batch_norm: BatchNorm, BatchStatistics;
    bias: Bias, Expand;
    blend: Blend;
    broadcast: Broadcast;
    categorical: Categorical;
    clip: Clip;
    conv: Conv;
    detach: Detach;
    dropout: Dropout, Noise;
    dueling: Dueling;
    embedding: Embedding;
    embedding_sum: EmbeddingSum;
    floors: EntropyFloor, ProbabilityFloor;
    gather: Gather;
    gaussian: Gaussian, SquashedGaussian;
    graft: Graft, Valve;
    group_norm: GroupNorm;
    gru: Gru;
    keyed_noise: KeyedDropout, KeyedNoise;
    layer_norm: LayerNorm;
    linear: Linear;
    loss_cross_entropy: CrossEntropy, KlDivergence;
    loss_pointwise: PointwiseLoss;
    loss_quantile: QuantileLoss;
    lstm: Lstm;
    mingru: MinGru;
    mixed_noise: MixedNoise;
    pool: GlobalPool, Pool;
    ppo_loss: PpoCategorical, PpoGaussian;
    reduce: Reduce;
    shape: Concat, Reshape, Slice;
    softmax: Softmax;
    spectral: Spectral;
    squeeze_excite: ScaleChannels;
    tower: Tower;
    unary: Function;
    upsample: Upsample;
}

pub use conv::Conv2d;
pub use floors::raise_to_floors;
pub use group_norm::NormOptions;
pub use keyed_noise::{KEY_WORDS, NoiseLaw};
pub use loss_pointwise::Cost;
pub use mixed_noise::{MOST_MIXED, noise_factor};
pub use pool::Pooling;
pub use ppo_loss::{PPO_STATISTICS, PpoCoefficients, PpoTargets};
pub(crate) use tower::MOST_LAYERS;
