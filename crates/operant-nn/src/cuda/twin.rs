//! What runs an op on a GPU: kernels of the texts in `ops/`, with their numbers. An op names its own in [`Op::twin`](crate::op::Op).
//!
//! Every kernel takes [`Args`], and its grid has the group as first axis: a group is one network on its own rows.

use super::formula::{Formula, Read};
use crate::op::{Act, MAX_INPUTS, MAX_OUTPUTS, Types};
use operant_device::cuda::{DevicePtr, Params};
use operant_lanes::CUDA_PRELUDE;

/// Threads of most kernels.
pub(crate) const THREADS: usize = 256;
/// Warps of a block, for kernels with a warp per item.
const WARPS: usize = THREADS / 32;
/// Numbers of a kernel.
const NUMBERS: usize = 24;
/// The number of a kernel that says how many numbers a pixel of its first input has, where that may be four though it has fewer channels.
pub(crate) const PIXELS: usize = 22;
/// The number by which kernels that add up parts tell whether these are few.
const FEW: usize = 6;

/// How kernels wait for those before them.
pub(crate) const EARLY: &str = include_str!("ops/early.cu");

/// A text of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Text {
    /// What plans do between ops.
    Between,
    /// Number by number, or nearly so.
    Elementwise,
    /// What kernels that a plan prints have in common.
    Chains,
    /// Over the places of a row.
    Places,
    /// Norms.
    Norm,
    /// Convolutions and linear layers of any kind.
    Products,
    /// Those of stride 1, whose pixels fit into tiles.
    Patches,
    /// The same of bf16 numbers.
    Octets,
    /// What lies between products, of bf16 numbers eight at a time.
    Narrow,
    /// Softmax and its losses.
    Rows,
    /// Self-attention.
    Attention,
    /// Layers with a state.
    Recurrent,
    /// Actions under a policy.
    Policies,
}

impl Text {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Between,
        Self::Elementwise,
        Self::Chains,
        Self::Places,
        Self::Norm,
        Self::Products,
        Self::Patches,
        Self::Octets,
        Self::Narrow,
        Self::Rows,
        Self::Attention,
        Self::Recurrent,
        Self::Policies,
    ];

    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Between => "plan-between",
            Self::Elementwise => "plan-elementwise",
            Self::Chains => "plan-chains",
            Self::Places => "plan-places",
            Self::Norm => "plan-norm",
            Self::Products => "plan-products",
            Self::Patches => "plan-patches",
            Self::Octets => "plan-octets",
            Self::Narrow => "plan-narrow",
            Self::Rows => "plan-rows",
            Self::Attention => "plan-attention",
            Self::Recurrent => "plan-recurrent",
            Self::Policies => "plan-policies",
        }
    }

    /// The whole text for numbers of a form.
    pub fn source(self, form: Form) -> String {
        let (vectors, tiles) = (include_str!("ops/vectors.cu"), include_str!("ops/tiles.cu"));
        let (mma, blending) = (include_str!("ops/mma.cu"), include_str!("ops/blending.cu"));
        let layers = super::recurrent::sizes();
        let before = match self {
            Self::Elementwise => vec![blending],
            Self::Chains => vec![vectors],
            Self::Products => vec![mma],
            Self::Recurrent => vec![mma, &layers],
            Self::Patches => vec![mma, tiles],
            Self::Octets => vec!["#define TILE 256\n", vectors, tiles],
            Self::Narrow => vec![vectors, blending],
            _ => vec![],
        };
        let body = match self {
            Self::Between => include_str!("ops/between.cu"),
            Self::Elementwise => include_str!("ops/elementwise.cu"),
            Self::Chains => include_str!("ops/chain.cu"),
            Self::Places => include_str!("ops/places.cu"),
            Self::Norm => include_str!("ops/norm.cu"),
            Self::Products => include_str!("ops/products.cu"),
            Self::Patches => include_str!("ops/patches.cu"),
            Self::Octets => include_str!("ops/octets.cu"),
            Self::Narrow => include_str!("ops/narrow.cu"),
            Self::Rows => include_str!("ops/rows.cu"),
            Self::Attention => include_str!("ops/attention.cu"),
            Self::Recurrent => include_str!("ops/recurrent.cu"),
            Self::Policies => include_str!("ops/policies.cu"),
        };
        // Printed kernels say of each tensor what it holds.
        let narrow = u8::from(form == Form::Bf16 || self == Self::Chains);
        let (bytes, exact) = (size_of::<Args>(), u8::from(form == Form::F32));
        let sizes = format!(
            "#define ARGS_BYTES {bytes}\n#define INPUTS {MAX_INPUTS}\n#define EXACT {exact}\n#define NARROW {narrow}\n"
        );
        [CUDA_PRELUDE, "\n", &sizes, EARLY, include_str!("ops/plan.cu"), &before.concat(), body].concat()
    }

    /// Whether it has kernels for this form.
    pub fn serves(self, form: Form) -> bool {
        match self {
            Self::Octets | Self::Narrow => form == Form::Bf16,
            Self::Patches | Self::Rows | Self::Recurrent | Self::Policies => form != Form::Bf16,
            _ => true,
        }
    }
}

/// What kernels read and multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// f32, and products of its accuracy.
    F32,
    /// f32, rounded to TF32 where it is multiplied.
    Tf32,
    /// Tensors of several axes beside the rows hold bf16; all others, statistics and sums hold f32.
    Bf16,
}

/// A tensor as kernels see it: `Tensor` of `plan.cu`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Tensor {
    pub(crate) at: DevicePtr,
    /// Numbers from one group's part to the next.
    pub(crate) stride: u32,
    /// Which index tells a group's part.
    pub(crate) of: u32,
}

/// The argument of every kernel: `Args` of `plan.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Args {
    pub(crate) x: [Tensor; MAX_INPUTS],
    pub(crate) y: [Tensor; MAX_OUTPUTS],
    pub(crate) dy: [Tensor; MAX_OUTPUTS],
    pub(crate) dx: [Tensor; MAX_INPUTS],
    pub(crate) scratch: Tensor,
    pub(crate) index: [DevicePtr; 4],
    pub(crate) rows: DevicePtr,
    pub(crate) skip: DevicePtr,
    pub(crate) blocks: u32,
    pub(crate) add: u32,
    pub(crate) numbers: [i32; NUMBERS],
    pub(crate) factors: [f32; 4],
}

impl Params for Args {}

/// A kernel to be launched.
#[derive(Clone, Debug)]
pub struct Launch {
    pub(crate) text: Text,
    pub(crate) kernel: String,
    /// Blocks of a group.
    pub(crate) blocks: usize,
    pub(crate) threads: usize,
    /// Bytes of shared memory that the text leaves open.
    pub(crate) shared: usize,
    pub(crate) numbers: [i32; NUMBERS],
    pub(crate) factors: [f32; 4],
    /// Bit i: it makes the gradient of input i. It is left out where none of these is wanted.
    pub(crate) makes: u32,
}

impl Launch {
    /// So many blocks of a group.
    pub fn blocks(text: Text, kernel: impl Into<String>, blocks: usize) -> Self {
        Self {
            text,
            kernel: kernel.into(),
            blocks: blocks.max(1),
            threads: THREADS,
            shared: 0,
            numbers: [0; NUMBERS],
            factors: [0.0; 4],
            makes: !0,
        }
    }

    /// Threads that go through so many numbers, a few each.
    pub fn each(text: Text, kernel: impl Into<String>, count: usize) -> Self {
        Self::blocks(text, kernel, count.div_ceil(4 * THREADS))
    }

    /// A warp for each of so many items.
    pub fn warps(text: Text, kernel: impl Into<String>, count: usize) -> Self {
        Self::blocks(text, kernel, count.div_ceil(WARPS))
    }

    /// With these numbers.
    pub fn numbers<const N: usize>(mut self, numbers: [usize; N]) -> Self {
        self.numbers.iter_mut().zip(numbers).for_each(|(to, from)| *to = from as i32);
        self
    }

    /// With these factors.
    pub fn factors<const N: usize>(mut self, factors: [f32; N]) -> Self {
        self.factors[..N].copy_from_slice(&factors);
        self
    }

    /// For gradients of these inputs, as bits.
    pub fn makes(self, makes: u32) -> Self {
        Self { makes, ..self }
    }

    /// With blocks of so many threads.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// With so many bytes of shared memory a block.
    pub fn shared(self, shared: usize) -> Self {
        Self { shared, ..self }
    }
}

/// The kernels of an op.
#[derive(Clone, Debug, Default)]
pub struct Twin {
    /// What is computed number by number; launches are for the rest.
    pub(crate) formula: Option<Formula>,
    pub(crate) forward: Vec<Launch>,
    pub(crate) backward: Vec<Launch>,
    /// Numbers that a group's launches of one pass share.
    pub(crate) scratch: usize,
    /// Whether launches forward need it too, in a plan without a way back.
    pub(crate) scratch_forward: bool,
    /// Bit i: launches backward can add to the gradient of input i where the op itself on a CPU can't.
    pub(crate) adds: u32,
    /// Whether launches can read the first input as pixels of four numbers ([`PIXELS`]).
    pub(crate) pixels: bool,
    /// Kernels for bf16 ([`Form::Bf16`]) where they are others than these.
    pub(crate) narrow: Option<Box<Twin>>,
    /// The same in more and smaller blocks, for a part of the graph ([`Graph::under`](crate::Graph)) that few groups may have.
    pub(crate) partly: Option<Box<Twin>>,
    /// The same for GPUs whose blocks have at least so many bytes of shared memory, the most last.
    pub(crate) roomy: Vec<(usize, Twin)>,
}

impl Twin {
    /// These, forward and backward.
    pub fn new(forward: impl Into<Vec<Launch>>, backward: impl Into<Vec<Launch>>) -> Self {
        let (forward, backward) = (forward.into(), backward.into());
        Self { forward, backward, ..Self::default() }
    }

    /// Number by number, with launches backward for inputs whose gradients are not.
    pub fn by_number(formula: Formula, backward: impl Into<Vec<Launch>>) -> Self {
        Self { formula: Some(formula), backward: backward.into(), ..Self::default() }
    }

    /// With others for bf16, if there are any.
    pub fn or_narrow(self, narrow: Option<Self>) -> Self {
        Self { narrow: narrow.map(Box::new), ..self }
    }

    /// With others for a part of the graph.
    pub(crate) fn or_partly(self, partly: Self) -> Self {
        Self { partly: Some(Box::new(partly)), ..self }
    }

    /// With others for GPUs with so much shared memory of a block.
    pub(crate) fn or_roomy(mut self, shared: usize, roomy: Self) -> Self {
        self.roomy.push((shared, roomy));
        self
    }

    /// Those for bf16, if `narrow`, for blocks of so much shared memory, and for a part of the graph, if `partly`.
    pub(crate) fn chosen(self, narrow: bool, partly: bool, shared: usize) -> Self {
        let mut twin = match self.narrow {
            Some(other) if narrow => *other,
            _ => self,
        };
        if let Some(most) = twin.roomy.iter().rposition(|(least, _)| *least <= shared) {
            twin = twin.roomy.swap_remove(most).1;
        }
        match twin.partly {
            Some(other) if partly => *other,
            _ => twin,
        }
    }

    /// `kernel`_forward and `kernel`_backward over rows of so many bf16 numbers, eight at a time, where they are whole octets.
    pub fn octets(kernel: &str, rows: usize, numbers: [usize; 2]) -> Option<Self> {
        let [_, len] = numbers;
        let one = |pass: &str| Launch::each(Text::Narrow, format!("{kernel}_{pass}"), rows * len / 8).numbers(numbers);
        len.is_multiple_of(8).then(|| Self::new([one("forward")], [one("backward")]))
    }

    /// With launches backward that can add to these inputs' gradients, as bits.
    pub(crate) fn adds(self, adds: u32) -> Self {
        Self { adds, ..self }
    }

    /// With so many numbers of scratch memory for a group.
    pub fn scratch(self, scratch: usize) -> Self {
        Self { scratch, ..self }
    }

    /// With scratch memory for launches forward of a plan without a way back, or not.
    pub(crate) fn scratch_forward(self, scratch_forward: bool) -> Self {
        Self { scratch_forward, ..self }
    }

    /// `kernel`_forward and `kernel`_backward over the numbers of `rows` rows, with the same numbers.
    pub fn each<const N: usize>(kernel: &str, count: usize, numbers: [usize; N], factors: [f32; 1]) -> Self {
        let one = |pass: &str| {
            Launch::each(Text::Elementwise, format!("{kernel}_{pass}"), count).numbers(numbers).factors(factors)
        };
        Self::new([one("forward")], [one("backward")])
    }
}

/// The number of an activation in `plan.cu`.
pub(crate) fn act_number(act: Act) -> usize {
    match act {
        Act::Identity => 0,
        Act::Relu => 1,
        Act::Tanh => 2,
        Act::Sigmoid => 3,
        Act::Gelu => 4,
        Act::Silu => 5,
    }
}

/// An activation number by number; `narrow` as exact as bf16 tells.
pub(crate) fn activation(act: Act, narrow: bool) -> Formula {
    let (value, slope) = match act {
        Act::Identity => return Formula::new("x0").gradient("dy"),
        Act::Relu => return Formula::new("relu(x0)").gradient("times(dy, y > 0.0f ? 1.0f : 0.0f)"),
        Act::Tanh => ("tanhf(x0)", "fmaf(-y, y, 1.0f)"),
        Act::Sigmoid => ("logistic(x0)", "times(y, minus(1.0f, y))"),
        Act::Gelu if narrow => ("narrow_gelu(x0)", "narrow_gelu_slope(x0)"),
        Act::Gelu => ("gelu(x0)", "gelu_slope(x0)"),
        Act::Silu => ("silu(x0)", "silu_slope(x0)"),
    };
    Formula::new(value).gradient(format!("times(dy, {slope})"))
}

/// Places whose columns one block adds up.
const CHUNK: usize = 512;

/// Sums over all rows and places of `[rows·places, channels]` gradients, for input `to`.
pub(crate) fn column_sums(rows: usize, places: usize, channels: usize, to: usize) -> (Vec<Launch>, usize) {
    let parts = (rows * places).div_ceil(CHUNK);
    let sums = Launch::blocks(Text::Places, "columns", parts).numbers([places, channels, CHUNK]);
    let collapse = collapse(channels, [places, CHUNK], [to, to], channels);
    (vec![sums.makes(1 << to), collapse.makes(1 << to)], parts * channels)
}

/// The kernel that adds up parts.
pub(crate) const COLLAPSE: &str = "plan_collapse";

/// Adds up parts of `len` numbers in the scratch memory, one for every `chunk` of `places` a row: those before `before` for the
/// first of two inputs, the others for the second.
pub(crate) fn collapse(len: usize, units: [usize; 2], to: [usize; 2], before: usize) -> Launch {
    sums_of(Launch::blocks(Text::Between, COLLAPSE, len.div_ceil(32)), len, units, to, before)
}

/// The same where parts are few: a thread for each number.
pub(crate) fn collapse_few(len: usize, units: [usize; 2], to: [usize; 2], before: usize) -> Launch {
    let mut launch = sums_of(Launch::blocks(Text::Between, COLLAPSE, len.div_ceil(THREADS)), len, units, to, before);
    launch.numbers[FEW] = 1;
    launch
}

fn sums_of(launch: Launch, len: usize, [places, chunk]: [usize; 2], to: [usize; 2], before: usize) -> Launch {
    launch.numbers([len, places, chunk, to[0], to[1], before]).makes(1 << to[0] | 1 << to[1])
}

/// A vector of each row at all of its places: kind 0 adds it, 1 multiplies by it.
pub(crate) fn vector_twin(kind: usize, types: &Types, rows: usize) -> Twin {
    let (len, n) = (types.x[0].len(), types.x[1].len());
    let formula = match kind {
        0 => Formula::new("plus(x0, x1)").gradient("dy"),
        _ => Formula::new("times(x0, x1)").gradient("times(dy, x1)"),
    };
    let vector = Launch::blocks(Text::Places, "vector_gradient", rows).numbers([len / n, n, kind]);
    Twin::by_number(formula.reads([Read::Each, Read::Row(n)]), [vector.makes(0b10)])
}
