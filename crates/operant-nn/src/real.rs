//! The element type of a plan: f32, which runs on wide registers, or f64, its twin for finite differences.
//!
//! Ops are written once over `R: Real` and lanes `L: Vectors<R>`. What differs by precision is here: how the left
//! operand of a product is staged, how weights are packed, and which kernel multiplies them.

use super::elementwise::{Plus, update};
use super::op::{Backward, DynOp, Forward, Types};
use super::precision::{Precision, round_to_f16};
use operant_device::gemm::{self, Product, Strips, amx};
use operant_lanes::{Backend, Kernel, Simd};
use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// How a product begins.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a, R> {
    /// From nothing.
    Zero,
    /// From the same row of values everywhere.
    Bias(&'a [R]),
    /// From what the output holds.
    Add,
}

/// Instructions and precision of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Compute {
    /// Instruction set of kernels.
    pub backend: Backend,
    /// What products read.
    pub precision: Precision,
}

impl Compute {
    /// The same in f32 on registers, if `exact`.
    #[inline(always)]
    pub fn or_exact(self, exact: bool) -> Self {
        if exact { Self { precision: Precision::F32, backend: self.backend.without_tiles() } } else { self }
    }

    /// Whether products run on tiles.
    #[inline(always)]
    pub fn tiles(self) -> bool {
        match self.precision {
            Precision::F32 | Precision::Tf32 => self.backend.tiles(),
            Precision::Bf16 => true,
            Precision::F16 => false,
        }
    }

    /// Whether products of so many terms and columns take f32 apart for tiles: where those are filled.
    #[inline(always)]
    fn thirds(self, terms: usize, columns: usize) -> bool {
        self.precision != Precision::Bf16 && self.tiles() && terms >= 64 && columns >= 64
    }

    /// The same for a product over rows, where taking apart and turning both operands costs as much as multiplying: it pays for many
    /// sums, and for so few columns that the parts stay in the nearest cache.
    #[inline(always)]
    pub(super) fn thirds_of(self, shape: &Outer) -> bool {
        let (m, n) = (shape.m, shape.n);
        let many = m.is_multiple_of(16) && n.is_multiple_of(16) && m.min(n) >= 96;
        (many || amx::few_columns(m, n)) && self.thirds(m, n)
    }

    /// Whether ops may keep two bf16 numbers in a word, one register's width apart: on tiles and registers of 16.
    #[inline(always)]
    pub fn words(self) -> bool {
        self.precision == Precision::Bf16 && self.backend.width() == 16
    }
}

/// The left operand of a product, staged in the plan's precision.
#[derive(Clone, Copy, Debug)]
pub enum Left<'a, R> {
    /// Elements as they are.
    Real(&'a [R]),
    /// bf16 bits.
    Half(&'a [u16]),
}

impl<'a, R> Left<'a, R> {
    /// The operand from an element on.
    #[inline(always)]
    pub fn from(self, first: usize) -> Self {
        match self {
            Self::Real(data) => Self::Real(&data[first..]),
            Self::Half(data) => Self::Half(&data[first..]),
        }
    }
}

/// Weights as products read them.
#[derive(Clone, Copy, Debug)]
pub enum Packed<'a, R> {
    /// Panels of elements.
    Real(&'a [R]),
    /// bf16 tiles: for a left operand in bf16 of rounded weights, for one of elements of their three parts.
    Half(&'a [u16]),
}

/// Where one packed matrix begins and ends among all.
#[derive(Clone, Copy, Debug, Default)]
pub struct PackPart {
    pub(super) real: (usize, usize),
    pub(super) half: (usize, usize),
}

/// The packed matrices of a node.
#[derive(Clone, Copy, Debug)]
pub struct PackSet<'a, R> {
    pub(super) real: &'a [R],
    pub(super) half: &'a [u16],
    pub(super) parts: &'a [PackPart],
}

impl<'a, R> PackSet<'a, R> {
    /// Matrix number `i` of [`Op::packings`](super::Op::packings).
    #[inline(always)]
    pub fn get(&self, i: usize) -> Packed<'a, R> {
        let PackPart { real, half } = self.parts[i];
        if half.1 > half.0 {
            Packed::Half(&self.half[half.0..half.1])
        } else {
            Packed::Real(&self.real[real.0..real.1])
        }
    }
}

/// A left operand in memory: `rows` rows of `cols` numbers, `stride` apart.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Number of rows.
    pub rows: usize,
    /// Numbers per row.
    pub cols: usize,
    /// From one row to the next.
    pub stride: usize,
}

impl View {
    /// Rows that touch each other.
    pub fn dense(rows: usize, cols: usize) -> Self {
        Self { rows, cols, stride: cols }
    }
}

/// `C[i, j] = Σ_r A[r, i]·B[r, j]`, or added to C: how weight gradients are made.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    /// To what C holds, instead of to nothing.
    pub add: bool,
    /// Rows summed over.
    pub rows: usize,
    /// Columns of A, rows of C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Row strides.
    pub a_row: usize,
    /// Row stride of B.
    pub b_row: usize,
    /// Row stride of C.
    pub c_row: usize,
}

impl Outer {
    fn init(&self) -> gemm::Init<'static> {
        if self.add { gemm::Init::Accumulate } else { gemm::Init::Zero }
    }
}

/// f32 or f64, and what a network needs of them.
pub trait Real:
    Copy
    + Default
    + Debug
    + PartialOrd
    + PartialEq
    + Send
    + Sync
    + AddAssign
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// Nearest value.
    fn of(x: f64) -> Self;
    /// As f64.
    fn wide(self) -> f64;
    /// Neither infinite nor NaN.
    fn finite(self) -> bool;
    /// Square root.
    fn root(self) -> Self;
    /// These numbers, if they are f32, for kernels of that type alone.
    fn singles(_: &[Self]) -> Option<&[f32]> {
        None
    }
    /// The same, to be written.
    fn singles_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }

    /// Elements and bf16 words that [`Real::left`] may need for an operand.
    fn left_scratch(compute: Compute, view: View) -> Scratch;
    /// Row stride of the staged operand.
    fn left_stride(compute: Compute, view: View) -> usize;
    /// Stages a left operand.
    fn left<'a>(compute: Compute, view: View, data: &'a [Self], room: Room<'a, Self>) -> Left<'a, Self>;
    /// Whether products read bf16 tiles: then the terms of a sum must lie together in a left operand.
    fn tiled(compute: Compute) -> bool;
    /// Whether [`Real::left`] gives the data itself.
    fn in_place(compute: Compute) -> bool;
    /// Scratch of a left operand of `len` elements that is staged in pieces.
    fn pieces_scratch(compute: Compute, len: usize) -> Scratch;
    /// Stages a piece from element `at` on. May write up to 31 zeros past its end, so pieces come in order.
    fn stage_piece(compute: Compute, piece: &[Self], at: usize, room: &mut Room<Self>);
    /// Stages the transpose of `view` from element `at` on, `stride` from one of its rows to the next. Only where [`Real::tiled`].
    fn stage_transposed(compute: Compute, view: View, data: &[Self], stride: usize, at: usize, room: &mut Room<Self>);
    /// Multiplies a staged operand by packed weights. The strides of `b` are those of the packing.
    fn product(compute: Compute, p: &Product, a: Left<Self>, b: Packed<Self>, start: Start<Self>, c: &mut [Self]);
    /// [`Real::product`] for every strip. With `relu`, negative results may be replaced by zeros: tells whether they were.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn product_strips(
        compute: Compute,
        p: &Product,
        strips: Strips,
        a: Left<Self>,
        b: Packed<Self>,
        start: Start<Self>,
        _relu: bool,
        c: &mut [Self],
    ) -> bool {
        for strip in 0..strips.count {
            Self::product(compute, p, a.from(strip * strips.a), b, start, &mut c[strip * strips.c..]);
        }
        false
    }
    /// A product of operands that are not weights; B is row-major as `p` says. Always in the element type.
    fn product_plain(compute: Compute, p: &Product, a: &[Self], b: &[Self], start: Start<Self>, c: &mut [Self]);
    /// Scratch of [`Real::outer`].
    fn outer_scratch(compute: Compute, shape: Outer) -> Scratch;
    /// A product over rows.
    fn outer(compute: Compute, shape: Outer, a: &[Self], b: &[Self], room: Room<Self>, c: &mut [Self]);
    /// Words of two bf16 numbers, kept in elements, as left operand. Only where [`Compute::words`].
    fn halves(words: &[Self]) -> &[u16];
    /// [`Real::outer`] for an A of words, and a B of words or elements. Only where [`Compute::words`].
    fn outer_words(shape: Outer, a: &[Self], b: Left<Self>, room: Room<Self>, c: &mut [Self]);
    /// Elements and bf16 words of packed weights.
    fn packed_len(compute: Compute, k_outer: usize, k_inner: usize, n: usize) -> Scratch;
    /// Packs the row-major `[k_outer·k_inner, n]` matrix that `row` and `col` strides describe.
    #[allow(clippy::too_many_arguments)]
    fn pack(
        compute: Compute,
        k_outer: usize,
        k_inner: usize,
        n: usize,
        source: &[Self],
        row: usize,
        col: usize,
        out: PackedMut<Self>,
    );

    /// `to += from`.
    fn add_to(compute: Compute, from: &[Self], to: &mut [Self]);

    /// See [`Op::scratch`](super::Op::scratch).
    fn scratch(op: &dyn DynOp, types: &Types, rows: usize, compute: Compute) -> Scratch;
    /// Runs an op forward on the lanes of `compute`.
    fn forward(op: &dyn DynOp, compute: Compute, c: &mut Forward<Self>);
    /// Runs an op backward.
    fn backward(op: &dyn DynOp, compute: Compute, c: &mut Backward<Self>);
}

/// Lengths of scratch memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scratch {
    /// Elements.
    pub real: usize,
    /// bf16 words.
    pub half: usize,
}

impl Scratch {
    /// Elements only.
    pub fn real(real: usize) -> Self {
        Self { real, half: 0 }
    }

    /// One after the other.
    pub fn and(self, other: Self) -> Self {
        Self { real: self.real + other.real, half: self.half + other.half }
    }

    /// The larger of each.
    pub fn or(self, other: Self) -> Self {
        Self { real: self.real.max(other.real), half: self.half.max(other.half) }
    }
}

/// Scratch memory of one step.
#[derive(Debug)]
pub struct Room<'a, R> {
    /// Elements.
    pub real: &'a mut [R],
    /// bf16 words.
    pub half: &'a mut [u16],
}

impl<'a, R> Room<'a, R> {
    /// The same memory for a shorter time.
    #[inline(always)]
    pub fn again(&mut self) -> Room<'_, R> {
        Room { real: self.real, half: self.half }
    }

    /// Fills a stretch of both kinds, as far as they reach, with zeros.
    #[inline(always)]
    pub fn clear(&mut self, at: usize, len: usize)
    where
        R: Copy + Default,
    {
        if !self.real.is_empty() {
            self.real[at..][..len].fill(R::default());
        }
        if !self.half.is_empty() {
            self.half[at..][..len].fill(0);
        }
    }

    /// Takes a piece off the front.
    #[inline(always)]
    pub fn take(&mut self, size: Scratch) -> Room<'a, R> {
        let (real, rest) = std::mem::take(&mut self.real).split_at_mut(size.real);
        self.real = rest;
        let (half, rest) = std::mem::take(&mut self.half).split_at_mut(size.half);
        self.half = rest;
        Room { real, half }
    }
}

/// Where packed weights go.
#[derive(Debug)]
pub struct PackedMut<'a, R> {
    /// Panels of elements.
    pub real: &'a mut [R],
    /// bf16 tiles.
    pub half: &'a mut [u16],
}

/// bf16 rows begin at multiples of this many words, which AMX reads at once.
const CHUNK: usize = 32;

impl Real for f32 {
    fn of(x: f64) -> Self {
        x as f32
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn finite(self) -> bool {
        self.is_finite()
    }
    fn root(self) -> Self {
        self.sqrt()
    }
    #[inline]
    fn singles(x: &[f32]) -> Option<&[f32]> {
        Some(x)
    }
    #[inline]
    fn singles_mut(x: &mut [f32]) -> Option<&mut [f32]> {
        Some(x)
    }

    fn left_scratch(compute: Compute, view: View) -> Scratch {
        match compute.precision {
            Precision::F32 | Precision::Tf32 => Scratch::default(),
            Precision::F16 => Scratch::real(view.rows * view.cols),
            // One chunk more: the last row is read in whole chunks from any column on.
            Precision::Bf16 => Scratch { real: 0, half: view.rows * view.cols.next_multiple_of(CHUNK) + CHUNK },
        }
    }

    #[inline]
    fn left_stride(compute: Compute, view: View) -> usize {
        match compute.precision {
            Precision::F32 | Precision::Tf32 => view.stride,
            Precision::F16 => view.cols,
            Precision::Bf16 => view.cols.next_multiple_of(CHUNK),
        }
    }

    fn left<'a>(compute: Compute, view: View, data: &'a [f32], room: Room<'a, f32>) -> Left<'a, f32> {
        match compute.precision {
            Precision::F32 | Precision::Tf32 => Left::Real(data),
            Precision::F16 => {
                for (row, out) in room.real.chunks_exact_mut(view.cols.max(1)).take(view.rows).enumerate() {
                    round_to_f16(compute.backend, &data[row * view.stride..][..view.cols], out);
                }
                Left::Real(room.real)
            }
            Precision::Bf16 => {
                let stride = view.cols.next_multiple_of(CHUNK);
                let half = &mut room.half[..view.rows * stride + CHUNK];
                half[view.rows * stride..].fill(0);
                amx::rows_to_bf16(view.rows, view.cols, data, view.stride, half, stride);
                Left::Half(half)
            }
        }
    }

    #[inline]
    fn tiled(compute: Compute) -> bool {
        compute.precision == Precision::Bf16
    }

    #[inline]
    fn in_place(compute: Compute) -> bool {
        matches!(compute.precision, Precision::F32 | Precision::Tf32)
    }

    fn pieces_scratch(compute: Compute, len: usize) -> Scratch {
        match compute.precision {
            Precision::F32 | Precision::Tf32 | Precision::F16 => Scratch::real(len),
            // Pieces are written and operands read in whole chunks.
            Precision::Bf16 => Scratch { real: 0, half: len + 2 * CHUNK },
        }
    }

    fn stage_piece(compute: Compute, piece: &[f32], at: usize, room: &mut Room<f32>) {
        match compute.precision {
            Precision::F32 | Precision::Tf32 => room.real[at..][..piece.len()].copy_from_slice(piece),
            Precision::F16 => round_to_f16(compute.backend, piece, &mut room.real[at..][..piece.len()]),
            Precision::Bf16 => amx::rows_to_bf16(1, piece.len(), piece, 0, &mut room.half[at..], 0),
        }
    }

    fn stage_transposed(_: Compute, view: View, data: &[f32], stride: usize, at: usize, room: &mut Room<f32>) {
        amx::transpose_to_bf16(view.rows, view.cols, data, view.stride, &mut room.half[at..], stride);
    }

    #[inline]
    fn product(compute: Compute, p: &Product, a: Left<f32>, b: Packed<f32>, start: Start<f32>, c: &mut [f32]) {
        let init = init(start);
        match (a, b) {
            (Left::Real(a), Packed::Real(b)) => gemm::product_packed(compute.backend, p, a, b, init, c),
            (Left::Half(a), Packed::Half(b)) => amx::product(p, a, b, init, c),
            (Left::Real(a), Packed::Half(b)) => amx::product_thirds(p, a, b, init, c),
            _ => unreachable!("operands are staged in the plan's one precision"),
        }
    }

    fn product_strips(
        compute: Compute,
        p: &Product,
        strips: Strips,
        a: Left<f32>,
        b: Packed<f32>,
        start: Start<f32>,
        relu: bool,
        c: &mut [f32],
    ) -> bool {
        let init = init(start);
        match (a, b) {
            (Left::Real(a), Packed::Real(b)) => gemm::product_strips(compute.backend, p, strips, a, b, init, relu, c),
            (Left::Half(a), Packed::Half(b)) => {
                for strip in 0..strips.count {
                    amx::product(p, &a[strip * strips.a..], b, init, &mut c[strip * strips.c..]);
                }
                false
            }
            (Left::Real(a), Packed::Half(b)) => {
                for strip in 0..strips.count {
                    amx::product_thirds(p, &a[strip * strips.a..], b, init, &mut c[strip * strips.c..]);
                }
                false
            }
            _ => unreachable!("operands are staged in the plan's one precision"),
        }
    }

    #[inline]
    fn product_plain(compute: Compute, p: &Product, a: &[f32], b: &[f32], start: Start<f32>, c: &mut [f32]) {
        gemm::product(compute.backend, p, a, b, init(start), c);
    }

    fn outer_scratch(compute: Compute, shape: Outer) -> Scratch {
        let rows = shape.rows.next_multiple_of(CHUNK);
        match compute.precision {
            _ if compute.thirds_of(&shape) => Scratch { real: 0, half: amx::outer_room(shape.m, shape.n) },
            Precision::F32 | Precision::Tf32 => Scratch::default(),
            Precision::F16 => Scratch::real(shape.rows * (shape.m + shape.n)),
            Precision::Bf16 => {
                Scratch { real: 0, half: shape.m * rows + CHUNK + amx::packed_len(1, shape.rows, shape.n) }
            }
        }
    }

    fn outer(compute: Compute, s: Outer, a: &[f32], b: &[f32], room: Room<f32>, c: &mut [f32]) {
        let mut p = Product {
            m: s.m,
            n: s.n,
            outer: 1,
            inner: s.rows,
            a_row: 1,
            a_outer: 0,
            a_inner: s.a_row,
            b_outer: 0,
            b_inner: s.b_row,
            c_row: s.c_row,
        };
        match compute.precision {
            _ if compute.thirds_of(&s) => {
                amx::outer_thirds(s.add, s.rows, (s.m, s.n), (a, s.a_row), (b, s.b_row), room.half, (c, s.c_row));
            }
            Precision::F32 | Precision::Tf32 => gemm::product(compute.backend, &p, a, b, s.init(), c),
            Precision::F16 => {
                let (left, right) = room.real.split_at_mut(s.rows * s.m);
                for row in 0..s.rows {
                    round_to_f16(compute.backend, &a[row * s.a_row..][..s.m], &mut left[row * s.m..][..s.m]);
                    round_to_f16(compute.backend, &b[row * s.b_row..][..s.n], &mut right[row * s.n..][..s.n]);
                }
                (p.a_inner, p.b_inner) = (s.m, s.n);
                gemm::product(compute.backend, &p, left, right, s.init(), c);
            }
            Precision::Bf16 => {
                let stride = s.rows.next_multiple_of(CHUNK);
                let (left, right) = room.half.split_at_mut(s.m * stride + CHUNK);
                left[s.m * stride..].fill(0);
                amx::transpose_to_bf16(s.rows, s.m, a, s.a_row, left, stride);
                amx::pack(1, s.rows, s.n, b, 0, s.b_row, 1, right);
                amx::product(&product_of_rows(&s, stride), left, right, s.init(), c);
            }
        }
    }

    #[inline]
    fn halves(words: &[f32]) -> &[u16] {
        amx::halves(words)
    }

    fn outer_words(s: Outer, a: &[f32], b: Left<f32>, room: Room<f32>, c: &mut [f32]) {
        let stride = s.rows.next_multiple_of(CHUNK);
        let p = product_of_rows(&s, stride);
        let (left, right) = room.half.split_at_mut(s.m * stride + CHUNK);
        left[s.m * stride..].fill(0);
        amx::transpose_words(s.rows, s.m, amx::halves(a), left, stride);
        match b {
            Left::Half(b) => amx::pack_words(s.rows, s.n, b, right),
            Left::Real(b) => amx::pack(1, s.rows, s.n, b, 0, s.b_row, 1, right),
        }
        amx::product(&p, left, right, s.init(), c);
    }

    fn packed_len(compute: Compute, k_outer: usize, k_inner: usize, n: usize) -> Scratch {
        match compute.precision {
            _ if compute.thirds(k_inner, n) => Scratch { real: 0, half: amx::thirds_len(k_outer, k_inner, n) },
            Precision::F32 | Precision::Tf32 | Precision::F16 => Scratch::real(gemm::packed_len(k_outer * k_inner, n)),
            Precision::Bf16 => Scratch { real: 0, half: amx::packed_len(k_outer, k_inner, n) },
        }
    }

    fn pack(
        compute: Compute,
        k_outer: usize,
        k_inner: usize,
        n: usize,
        source: &[f32],
        row: usize,
        col: usize,
        out: PackedMut<f32>,
    ) {
        match compute.precision {
            _ if compute.thirds(k_inner, n) => {
                amx::pack_thirds(k_outer, k_inner, n, source, k_inner * row, row, col, out.half);
            }
            Precision::F32 | Precision::Tf32 => {
                gemm::pack(compute.backend, k_outer * k_inner, n, source, row, col, out.real)
            }
            Precision::F16 => {
                gemm::pack(compute.backend, k_outer * k_inner, n, source, row, col, out.real);
                super::precision::round_to_f16_in_place(compute.backend, out.real);
            }
            Precision::Bf16 => amx::pack(k_outer, k_inner, n, source, k_inner * row, row, col, out.half),
        }
    }

    fn add_to(compute: Compute, from: &[f32], to: &mut [f32]) {
        compute.backend.run_fast(AddKernel { from, to });
    }

    fn scratch(op: &dyn DynOp, types: &Types, rows: usize, compute: Compute) -> Scratch {
        op.scratch_f32(types, rows, compute)
    }
    fn forward(op: &dyn DynOp, compute: Compute, c: &mut Forward<f32>) {
        op.forward_f32(compute.backend, c);
    }
    fn backward(op: &dyn DynOp, compute: Compute, c: &mut Backward<f32>) {
        op.backward_f32(compute.backend, c);
    }
}

struct AddKernel<'a> {
    from: &'a [f32],
    to: &'a mut [f32],
}

impl Kernel for AddKernel<'_> {
    type Out = ();
    type Home = Self;
    #[inline(always)]
    fn run<L: Simd>(self) {
        update::<f32, L, _>(Plus, self.from, self.to);
    }
}

/// The product of a transposed A, whose rows are `stride` apart, and B.
fn product_of_rows(s: &Outer, stride: usize) -> Product {
    Product {
        m: s.m,
        n: s.n,
        outer: 1,
        inner: s.rows,
        a_row: stride,
        a_outer: 0,
        a_inner: 1,
        b_outer: 0,
        b_inner: s.b_row,
        c_row: s.c_row,
    }
}

fn init(start: Start<'_, f32>) -> gemm::Init<'_> {
    match start {
        Start::Zero => gemm::Init::Zero,
        Start::Bias(bias) => gemm::Init::Bias(bias),
        Start::Add => gemm::Init::Accumulate,
    }
}

/// Plain loops: nothing here is fast, everything is easy to believe.
#[cfg(feature = "check")]
impl Real for f64 {
    fn of(x: f64) -> Self {
        x
    }
    fn wide(self) -> f64 {
        self
    }
    fn finite(self) -> bool {
        self.is_finite()
    }
    fn root(self) -> Self {
        self.sqrt()
    }

    fn left_scratch(_: Compute, _: View) -> Scratch {
        Scratch::default()
    }
    fn left_stride(_: Compute, view: View) -> usize {
        view.stride
    }
    fn left<'a>(_: Compute, _: View, data: &'a [f64], _: Room<'a, f64>) -> Left<'a, f64> {
        Left::Real(data)
    }

    fn tiled(_: Compute) -> bool {
        false
    }
    fn in_place(_: Compute) -> bool {
        true
    }
    fn pieces_scratch(_: Compute, len: usize) -> Scratch {
        Scratch::real(len)
    }
    fn stage_piece(_: Compute, piece: &[f64], at: usize, room: &mut Room<f64>) {
        room.real[at..][..piece.len()].copy_from_slice(piece);
    }
    fn stage_transposed(_: Compute, _: View, _: &[f64], _: usize, _: usize, _: &mut Room<f64>) {
        unreachable!("f64 has no tiles");
    }

    fn product(compute: Compute, p: &Product, a: Left<f64>, b: Packed<f64>, start: Start<f64>, c: &mut [f64]) {
        let (Left::Real(a), Packed::Real(b)) = (a, b) else { unreachable!("f64 knows one precision") };
        let p = Product { b_inner: p.n, b_outer: p.inner * p.n, ..*p };
        Self::product_plain(compute, &p, a, b, start, c);
    }

    fn product_plain(_: Compute, p: &Product, a: &[f64], b: &[f64], start: Start<f64>, c: &mut [f64]) {
        for i in 0..p.m {
            for j in 0..p.n {
                let mut sum = match start {
                    Start::Zero => 0.0,
                    Start::Bias(bias) => bias[j],
                    Start::Add => c[i * p.c_row + j],
                };
                for o in 0..p.outer {
                    for q in 0..p.inner {
                        sum += a[i * p.a_row + o * p.a_outer + q * p.a_inner] * b[o * p.b_outer + q * p.b_inner + j];
                    }
                }
                c[i * p.c_row + j] = sum;
            }
        }
    }

    fn outer_scratch(_: Compute, _: Outer) -> Scratch {
        Scratch::default()
    }

    fn outer(_: Compute, s: Outer, a: &[f64], b: &[f64], _: Room<f64>, c: &mut [f64]) {
        let cleared = if s.add { 0 } else { s.m };
        c.chunks_mut(s.c_row).take(cleared).for_each(|row| row[..s.n].fill(0.0));
        for r in 0..s.rows {
            for i in 0..s.m {
                for j in 0..s.n {
                    c[i * s.c_row + j] += a[r * s.a_row + i] * b[r * s.b_row + j];
                }
            }
        }
    }

    fn halves(_: &[f64]) -> &[u16] {
        unreachable!("f64 knows one precision");
    }

    fn outer_words(_: Outer, _: &[f64], _: Left<f64>, _: Room<f64>, _: &mut [f64]) {
        unreachable!("f64 knows one precision");
    }

    fn packed_len(_: Compute, k_outer: usize, k_inner: usize, n: usize) -> Scratch {
        Scratch::real(k_outer * k_inner * n)
    }

    fn pack(
        _: Compute,
        k_outer: usize,
        k_inner: usize,
        n: usize,
        source: &[f64],
        row: usize,
        col: usize,
        out: PackedMut<f64>,
    ) {
        for k in 0..k_outer * k_inner {
            for j in 0..n {
                out.real[k * n + j] = source[k * row + j * col];
            }
        }
    }

    fn add_to(_: Compute, from: &[f64], to: &mut [f64]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
    }

    fn scratch(op: &dyn DynOp, types: &Types, rows: usize, compute: Compute) -> Scratch {
        op.scratch_f64(types, rows, compute)
    }
    fn forward(op: &dyn DynOp, _: Compute, c: &mut Forward<f64>) {
        op.forward_f64(c);
    }
    fn backward(op: &dyn DynOp, _: Compute, c: &mut Backward<f64>) {
        op.backward_f64(c);
    }
}
