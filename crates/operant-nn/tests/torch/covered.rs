//! Which golden case holds each op, or what holds an op of which PyTorch has nothing alike.

/// What an op is held to beside its gradient check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held<'a> {
    /// A file of `tests/golden_nn/` and a case in it, whose plan runs the op.
    Golden(&'a str, &'a str),
    /// Why there is no such case, and the tests that hold it instead.
    Otherwise(&'a str),
}

use Held::{Golden, Otherwise};

const DENSE: &str = "dense.safetensors";
const IMAGE: &str = "image.safetensors";
const SEQUENCE: &str = "sequence.safetensors";

/// The op that is another look at its input's numbers: no step of a plan runs it.
pub(crate) const VIEW: &str = "Reshape";

/// Every op of [`operant_nn::ops::OPS`] once, by its type.
pub(crate) const COVERED: &[(&str, Held)] = &[
    ("Activation", Golden(DENSE, "gelu")),
    ("Arithmetic", Golden(DENSE, "sub")),
    ("Scale", Golden(DENSE, "scale")),
    ("Attention", Golden(SEQUENCE, "attention_causal_masked")),
    ("BatchNorm", Golden(IMAGE, "batch_norm")),
    ("BatchStatistics", Golden(IMAGE, "batch_norm_features")),
    ("Bias", Golden(DENSE, "bias")),
    ("Expand", Golden(DENSE, "expand")),
    ("Blend", Golden(DENSE, "blend_gate")),
    ("Broadcast", Golden(DENSE, "broadcast_mul")),
    ("Categorical", Golden(DENSE, "categorical_masked")),
    ("Clip", Golden(DENSE, "clip")),
    ("Conv", Golden(IMAGE, "conv")),
    ("Detach", Golden(DENSE, "detach")),
    ("Dropout", Otherwise("draws by its own counters: unit tests of dropout.rs hold its share and mean")),
    ("Noise", Otherwise("draws by its own counters: unit tests of dropout.rs hold its moments")),
    ("Dueling", Golden(DENSE, "dueling_atoms")),
    ("Embedding", Golden(DENSE, "embedding")),
    ("EmbeddingSum", Golden(DENSE, "embedding_sum")),
    ("EntropyFloor", Golden(DENSE, "entropy_floor")),
    ("ProbabilityFloor", Golden(DENSE, "probability_floor")),
    ("Gather", Golden(DENSE, "gather_many")),
    ("Gaussian", Golden(DENSE, "gaussian")),
    ("SquashedGaussian", Golden(DENSE, "squashed")),
    ("Graft", Golden(DENSE, "graft_pooled")),
    ("Valve", Golden(DENSE, "valve_closed")),
    ("GroupNorm", Golden(IMAGE, "group_norm")),
    ("Gru", Golden(SEQUENCE, "gru_cell")),
    ("KeyedDropout", Otherwise("draws by coordinates of its rows: tests/field.rs holds its share and mean")),
    ("KeyedNoise", Otherwise("draws by coordinates of its rows: tests/field.rs holds its laws and its spectrum")),
    ("LayerNorm", Golden(IMAGE, "layer_norm")),
    ("Linear", Golden(DENSE, "linear")),
    ("CrossEntropy", Golden(DENSE, "cross_entropy_smooth")),
    ("KlDivergence", Golden(DENSE, "kl")),
    ("PointwiseLoss", Golden(DENSE, "huber")),
    ("QuantileLoss", Golden(DENSE, "quantile_levels")),
    ("Lstm", Golden(SEQUENCE, "lstm_cell")),
    ("MinGru", Golden(SEQUENCE, "min_gru_True")),
    (
        "MixedNoise",
        Otherwise("draws by coordinates of its rows: tests/field.rs holds its law to that of noise before a product"),
    ),
    ("GlobalPool", Golden(IMAGE, "global_max_pool")),
    ("Pool", Golden(IMAGE, "average_pool_inside_321")),
    ("PpoCategorical", Golden(DENSE, "ppo_heads")),
    ("PpoGaussian", Golden(DENSE, "ppo_gaussian")),
    ("Reduce", Golden(DENSE, "max_axes")),
    ("Concat", Golden(DENSE, "concat_axis")),
    ("Reshape", Golden(DENSE, "reshape")),
    ("Slice", Golden(DENSE, "slice_axis")),
    ("Softmax", Golden(DENSE, "log_softmax_masked")),
    ("Spectral", Golden(SEQUENCE, "spectral_8x10")),
    ("ScaleChannels", Golden(IMAGE, "squeeze_excite")),
    ("Tower", Golden(DENSE, "tower")),
    ("Function", Golden(DENSE, "softplus")),
    ("Upsample", Golden(IMAGE, "upsample_bilinear")),
];

impl Held<'static> {
    /// What holds the op of this type.
    pub(crate) fn by(op: &str) -> Self {
        let found = COVERED.iter().find(|(name, _)| *name == op);
        found
            .unwrap_or_else(|| panic!("{op} is not in tests/torch/covered.rs: name its golden case, or what holds it"))
            .1
    }
}
