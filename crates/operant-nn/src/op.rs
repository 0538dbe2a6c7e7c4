//! What an op is: shapes, a forward body, a backward body, and the cases that its gradient is checked on.
//!
//! An op sees a tile: some rows of every tensor that has a batch axis, and all of those that have none (parameters,
//! statistics over the batch). It never allocates and never fails: shapes were settled when the graph was built.

use super::check::{Case, Random};
use super::cuda::Twin;
use super::real::{Compute, PackSet, Real, Room, Scratch};
use operant_base::Result;
#[cfg(all(feature = "check", not(test)))]
use operant_lanes::Double;
use operant_lanes::{Backend, Kernel, Simd, Vectors};
use std::fmt::Debug;

/// Most inputs of an op.
pub const MAX_INPUTS: usize = 16;
/// Most outputs of an op.
pub const MAX_OUTPUTS: usize = 4;

/// Whether a tensor has a row per sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A row per sample.
    Rows,
    /// A row of integers per sample; has no gradient.
    Ints,
    /// One for the whole batch: parameters, buffers and statistics.
    Whole,
}

/// Kind and shape of a tensor; the batch axis is not part of the shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Whether there is a row per sample.
    pub kind: Kind,
    /// Axes after the batch axis.
    pub shape: Vec<usize>,
}

impl Type {
    /// A row of this shape per sample.
    pub fn rows(shape: impl Into<Vec<usize>>) -> Self {
        Self { kind: Kind::Rows, shape: shape.into() }
    }

    /// A row of integers per sample.
    pub fn ints(shape: impl Into<Vec<usize>>) -> Self {
        Self { kind: Kind::Ints, shape: shape.into() }
    }

    /// One for the whole batch.
    pub fn whole(shape: impl Into<Vec<usize>>) -> Self {
        Self { kind: Kind::Whole, shape: shape.into() }
    }

    /// Numbers per row, or in all if there are no rows.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it holds no number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut axes: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        if self.kind != Kind::Whole {
            axes.insert(0, "B".into());
        }
        write!(f, "[{}]{}", axes.join(", "), if self.kind == Kind::Ints { " of integers" } else { "" })
    }
}

/// What the backward body reads besides gradients; the rest is forgotten as soon as possible. Inputs without rows are
/// always there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// Bit i: input i.
    pub inputs: u32,
    /// Bit i: output i.
    pub outputs: u32,
}

/// Which body reads a packed matrix. It is there for no other: an op lists one that both read twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBy {
    /// By the forward body.
    Forward,
    /// By the backward body.
    Backward,
    /// By the backward body where the gradient of the first input is wanted: that of a network's input seldom is.
    FirstGradient,
    /// By neither: it keeps the place of a matrix in the list.
    Nobody,
}

/// A matrix that products read, packed from an input without rows after every change of it:
/// `B[(o, p, q), j] = source[offset + o·strides[0] + p·strides[1] + q·strides[2] + j·strides[3]]`.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// Which input.
    pub input: usize,
    /// Lengths of o, p, q and j; products see p and q as one axis.
    pub lens: [usize; 4],
    /// Strides of o, p, q and j.
    pub strides: [isize; 4],
    /// Where `B[0, 0]` is.
    pub offset: usize,
    /// Which body reads it.
    pub read_by: ReadBy,
    /// In f32 whatever the plan's precision: for matrices too small to gain from less.
    pub exact: bool,
    /// For a left operand of words (see [`Compute::words`]): of 32 terms, 0, 16, 1, 17 and so on.
    pub words: bool,
}

impl Packing {
    /// A linear weight `[n, k]` as the right operand of `X·Wᵀ`.
    pub fn transposed(input: usize, n: usize, k: usize) -> Self {
        Self {
            input,
            lens: [1, k, 1, n],
            strides: [0, 1, 0, k as isize],
            offset: 0,
            read_by: ReadBy::Forward,
            exact: false,
            words: false,
        }
    }

    /// The same matrix with its terms in the order of words; it has one axis of terms, whole chunks of 32.
    pub(super) fn in_words(&self) -> Self {
        let ([_, k, _, n], [_, row, _, col]) = (self.lens, self.strides);
        Self { lens: [k / 32, 16, 2, n], strides: [32 * row, row, 16 * row, col], ..*self }
    }

    /// A linear weight `[n, k]` as the right operand of `dY·W`.
    pub fn straight(input: usize, n: usize, k: usize) -> Self {
        Self {
            input,
            lens: [1, n, 1, k],
            strides: [0, k as isize, 0, 1],
            offset: 0,
            read_by: ReadBy::Backward,
            exact: false,
            words: false,
        }
    }
}

/// Input and output types of a node.
#[derive(Clone, Debug)]
pub struct Types {
    /// One per input.
    pub x: Vec<Type>,
    /// One per output.
    pub y: Vec<Type>,
}

/// Where random numbers of a run come from: the same for any tile, thread and device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Draws {
    /// Seed of the plan.
    pub seed: u64,
    /// Counts runs.
    pub run: u32,
    /// Tells nodes apart.
    pub node: u32,
}

/// A tile on its way forward.
#[derive(Debug)]
pub struct Forward<'a, R> {
    /// Rows of this tile.
    pub rows: usize,
    /// Place of the first one in the batch.
    pub first_row: usize,
    /// Rows of the batch.
    pub total_rows: usize,
    /// Whether gradients will be asked for: dropout drops, batch norm uses the batch.
    pub training: bool,
    /// Types of inputs and outputs.
    pub types: &'a Types,
    /// Inputs `[rows, …]`; empty for integers.
    pub x: [&'a [R]; MAX_INPUTS],
    /// Integer inputs.
    pub ints: [&'a [i32]; MAX_INPUTS],
    /// Outputs to be overwritten. Those without rows hold sums over the batch: add to them. An output that nobody reads
    /// is empty.
    pub y: [&'a mut [R]; MAX_OUTPUTS],
    /// What [`Op::packings`] asked for.
    pub packed: PackSet<'a, R>,
    /// As long as [`Op::scratch`] says.
    pub room: Room<'a, R>,
    /// Instructions and precision.
    pub compute: Compute,
    /// Randomness.
    pub draws: Draws,
}

/// A tile on its way back.
#[derive(Debug)]
pub struct Backward<'a, R> {
    /// Rows of this tile.
    pub rows: usize,
    /// Place of the first one in the batch.
    pub first_row: usize,
    /// Rows of the batch.
    pub total_rows: usize,
    /// Types of inputs and outputs.
    pub types: &'a Types,
    /// Inputs that [`Op::needs`] names; others are empty.
    pub x: [&'a [R]; MAX_INPUTS],
    /// Integer inputs.
    pub ints: [&'a [i32]; MAX_INPUTS],
    /// Outputs that [`Op::needs`] names; others are empty.
    pub y: [&'a [R]; MAX_OUTPUTS],
    /// Gradients of outputs; empty where the loss does not depend on one.
    pub dy: [&'a [R]; MAX_OUTPUTS],
    /// Gradients of inputs; empty where none is wanted. Those with rows are to be overwritten, or added to where
    /// `add` says so; those without rows are added to, or overwritten where `begin` says so.
    pub dx: [&'a mut [R]; MAX_INPUTS],
    /// Bit i: add to `dx[i]`, which has rows. Only for ops that say [`Op::adds`].
    pub add: u32,
    /// Bit i: overwrite `dx[i]`, which has no rows: it holds nothing yet. Only for inputs that [`Op::begins`] names.
    pub begin: u32,
    /// What [`Op::packings`] asked for.
    pub packed: PackSet<'a, R>,
    /// As long as [`Op::scratch`] says.
    pub room: Room<'a, R>,
    /// Instructions and precision.
    pub compute: Compute,
    /// Randomness: the same as forward.
    pub draws: Draws,
}

/// Activations that other ops can apply to their output while it is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// None.
    #[default]
    Identity,
    /// max(x, 0).
    Relu,
    /// Hyperbolic tangent.
    Tanh,
    /// 1/(1+e⁻ˣ).
    Sigmoid,
    /// x·Φ(x).
    Gelu,
    /// x·sigmoid(x).
    Silu,
}

/// An operation on tensors. One file in `ops/`: this trait, and a method on [`Graph`](super::Graph) that builds it.
pub trait Op: Debug + Send + Sync + Sized + 'static {
    /// In lower case, for messages and plans.
    const NAME: &'static str;

    /// Types of the outputs, or what is wrong with the inputs (the graph adds the names).
    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String>;

    /// What the backward body reads.
    fn needs(&self, types: &Types) -> Needs;

    /// Products times two, per row.
    fn flops(&self, _: &Types) -> u64 {
        0
    }

    /// Packed matrices, in the order in which the bodies ask for them.
    fn packings(&self, _: &Types) -> Vec<Packing> {
        Vec::new()
    }

    /// Scratch of both bodies for a tile of so many rows.
    fn scratch<R: Real>(&self, _: &Types, _rows: usize, _: Compute) -> Scratch {
        Scratch::default()
    }

    /// Rows that a tile has at least, if the batch has them: for ops that go through the same weights many times.
    fn least_rows(&self, _: &Types) -> usize {
        1
    }

    /// The output is the input with another shape.
    fn is_view(&self) -> bool {
        false
    }

    /// The output is the first input, number by number, and only gradients differ: nothing needs to be copied.
    fn passes(&self) -> bool {
        false
    }

    /// The output is the sum of two inputs of one shape.
    fn is_sum(&self) -> bool {
        false
    }

    /// The backward body can add to the gradients of inputs with rows.
    fn adds(&self) -> bool {
        false
    }

    /// Bit i: the backward body can overwrite the gradient of input i, which has no rows. Others are cleared before, which takes as
    /// long as a pass over them: it counts where weights are many and rows few.
    fn begins(&self, _: &Types) -> u32 {
        0
    }

    /// Whether gradients flow to an input. Where they do not (targets, masks), none is asked for.
    fn differentiable(&self, _input: usize) -> bool {
        true
    }

    /// Whether the bodies read an input in such a plan. Where they do not, it is empty, and is not computed for them.
    fn reads(&self, _input: usize, _training: bool) -> bool {
        true
    }

    /// This op with an activation at its end, if it can.
    fn fuse(&self, _: Act, _training: bool) -> Option<Self> {
        None
    }

    /// The activation, for an op that is nothing else.
    fn activation(&self) -> Option<Act> {
        None
    }

    /// The activation of a fully connected layer with a bias: such layers become one op where they follow each other.
    fn layer(&self) -> Option<Act> {
        None
    }

    /// What runs it on a GPU, for up to `rows` rows; `None` where nothing does, and then a plan there says so.
    fn twin(&self, _: &Types, _rows: usize) -> Option<Twin> {
        None
    }

    /// Computes a tile.
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>);

    /// Computes gradients of a tile.
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>);

    /// Changes buffers (inputs without rows that are not trained) once after a run: running statistics.
    /// `x` are the inputs, `total_rows` the rows of the batch; gives the number of the buffer among the inputs and its
    /// new values through `write`.
    fn update(&self, _: &Types, _x: &[&[f32]], _total_rows: usize, _write: &mut dyn FnMut(usize, &[f32])) {}

    /// What its gradient, its f32 kernels and its tiles are checked on.
    fn cases(random: &mut Random) -> Vec<Case>;
}

/// [`Op`] behind a pointer.
pub trait DynOp: Debug + Send + Sync {
    /// See [`Op::NAME`].
    fn name(&self) -> &'static str;
    /// See [`Op::outputs`].
    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String>;
    /// See [`Op::needs`].
    fn needs(&self, types: &Types) -> Needs;
    /// See [`Op::flops`].
    fn flops(&self, types: &Types) -> u64;
    /// See [`Op::packings`].
    fn packings(&self, types: &Types) -> Vec<Packing>;
    /// See [`Op::scratch`].
    fn scratch_f32(&self, types: &Types, rows: usize, compute: Compute) -> Scratch;
    /// See [`Op::scratch`].
    #[cfg(feature = "check")]
    fn scratch_f64(&self, types: &Types, rows: usize, compute: Compute) -> Scratch;
    /// See [`Op::least_rows`].
    fn least_rows(&self, types: &Types) -> usize;
    /// See [`Op::is_view`].
    fn is_view(&self) -> bool;
    /// See [`Op::passes`].
    fn passes(&self) -> bool;
    /// See [`Op::is_sum`].
    fn is_sum(&self) -> bool;
    /// See [`Op::adds`].
    fn adds(&self) -> bool;
    /// See [`Op::begins`].
    fn begins(&self, types: &Types) -> u32;
    /// See [`Op::differentiable`].
    fn differentiable(&self, input: usize) -> bool;
    /// See [`Op::reads`].
    fn reads(&self, input: usize, training: bool) -> bool;
    /// See [`Op::fuse`].
    fn fuse(&self, act: Act, training: bool) -> Option<std::sync::Arc<dyn DynOp>>;
    /// See [`Op::activation`].
    fn activation(&self) -> Option<Act>;
    /// See [`Op::layer`].
    fn layer(&self) -> Option<Act>;
    /// See [`Op::twin`].
    fn twin(&self, types: &Types, rows: usize) -> Option<Twin>;
    /// See [`Op::forward`].
    fn forward_f32(&self, backend: Backend, c: &mut Forward<f32>);
    /// See [`Op::forward`].
    #[cfg(feature = "check")]
    fn forward_f64(&self, c: &mut Forward<f64>);
    /// See [`Op::backward`].
    fn backward_f32(&self, backend: Backend, c: &mut Backward<f32>);
    /// See [`Op::backward`].
    #[cfg(feature = "check")]
    fn backward_f64(&self, c: &mut Backward<f64>);
    /// See [`Op::update`].
    fn update(&self, types: &Types, x: &[&[f32]], total_rows: usize, write: &mut dyn FnMut(usize, &[f32]));
}

/// Unit tests compile this crate once more, without the ops in f64: checks are in `tests/ops.rs`.
#[cfg(all(feature = "check", test))]
fn no_f64() -> ! {
    panic!("ops in f64 are not compiled for unit tests")
}

struct RunForward<'a, 'b, 'c, O>(&'a O, &'b mut Forward<'c, f32>);
impl<O: Op> Kernel for RunForward<'_, '_, '_, O> {
    type Out = ();
    type Home = O;
    const PORTABLE: bool = !cfg!(all(test, target_arch = "x86_64", not(operant_portable)));
    #[inline(always)]
    fn run<L: Simd>(self) {
        self.0.forward::<f32, L>(self.1);
    }
}

struct RunBackward<'a, 'b, 'c, O>(&'a O, &'b mut Backward<'c, f32>);
impl<O: Op> Kernel for RunBackward<'_, '_, '_, O> {
    type Out = ();
    type Home = O;
    const PORTABLE: bool = !cfg!(all(test, target_arch = "x86_64", not(operant_portable)));
    #[inline(always)]
    fn run<L: Simd>(self) {
        self.0.backward::<f32, L>(self.1);
    }
}

impl<O: Op> DynOp for O {
    fn name(&self) -> &'static str {
        O::NAME
    }
    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        Op::outputs(self, x)
    }
    fn needs(&self, types: &Types) -> Needs {
        Op::needs(self, types)
    }
    fn flops(&self, types: &Types) -> u64 {
        Op::flops(self, types)
    }
    fn packings(&self, types: &Types) -> Vec<Packing> {
        Op::packings(self, types)
    }
    fn scratch_f32(&self, types: &Types, rows: usize, compute: Compute) -> Scratch {
        self.scratch::<f32>(types, rows, compute)
    }
    #[cfg(all(feature = "check", not(test)))]
    fn scratch_f64(&self, types: &Types, rows: usize, compute: Compute) -> Scratch {
        self.scratch::<f64>(types, rows, compute)
    }
    #[cfg(all(feature = "check", test))]
    fn scratch_f64(&self, _: &Types, _: usize, _: Compute) -> Scratch {
        no_f64()
    }
    fn least_rows(&self, types: &Types) -> usize {
        Op::least_rows(self, types)
    }
    fn is_view(&self) -> bool {
        Op::is_view(self)
    }
    fn passes(&self) -> bool {
        Op::passes(self)
    }
    fn is_sum(&self) -> bool {
        Op::is_sum(self)
    }
    fn adds(&self) -> bool {
        Op::adds(self)
    }
    fn begins(&self, types: &Types) -> u32 {
        Op::begins(self, types)
    }
    fn differentiable(&self, input: usize) -> bool {
        Op::differentiable(self, input)
    }
    fn reads(&self, input: usize, training: bool) -> bool {
        Op::reads(self, input, training)
    }
    fn fuse(&self, act: Act, training: bool) -> Option<std::sync::Arc<dyn DynOp>> {
        Op::fuse(self, act, training).map(|op| std::sync::Arc::new(op) as _)
    }
    fn activation(&self) -> Option<Act> {
        Op::activation(self)
    }
    fn layer(&self) -> Option<Act> {
        Op::layer(self)
    }
    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        Op::twin(self, types, rows)
    }
    fn forward_f32(&self, backend: Backend, c: &mut Forward<f32>) {
        backend.run_fast(RunForward(self, c));
    }
    #[cfg(all(feature = "check", not(test)))]
    fn forward_f64(&self, c: &mut Forward<f64>) {
        self.forward::<f64, Double>(c);
    }
    #[cfg(all(feature = "check", test))]
    fn forward_f64(&self, _: &mut Forward<f64>) {
        no_f64()
    }
    fn backward_f32(&self, backend: Backend, c: &mut Backward<f32>) {
        backend.run_fast(RunBackward(self, c));
    }
    #[cfg(all(feature = "check", not(test)))]
    fn backward_f64(&self, c: &mut Backward<f64>) {
        self.backward::<f64, Double>(c);
    }
    #[cfg(all(feature = "check", test))]
    fn backward_f64(&self, _: &mut Backward<f64>) {
        no_f64()
    }
    fn update(&self, types: &Types, x: &[&[f32]], total_rows: usize, write: &mut dyn FnMut(usize, &[f32])) {
        Op::update(self, types, x, total_rows, write);
    }
}
