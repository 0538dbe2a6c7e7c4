//! Matrix products on one thread: every layer of a network, forward and backward, is one two-level contraction.
//!
//! [`Product`] says where its operands lie, so that a convolution reads its padded image in place and a weight gradient
//! reads its batch untransposed. Weights that are used often are packed once ([`pack`]); [`amx`] has the same in bf16.
//!
//! Invariant: an element of C is one chain of multiply-adds over k in order, begun from its initial value (products of
//! up to four columns add up 8 or 16 such chains, of five to eight on AVX-512 two). Its bits depend on the instruction set (products fuse where the CPU can, whatever
//! the backend's `Math`), never on `m`, on how rows are split among calls, nor on packing.
#![allow(unsafe_code)]

pub mod amx;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
mod avx512;
mod block;
mod drive;
mod narrow;
mod portable;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
mod strips;
#[cfg(test)]
mod tests;

use block::BlockFn;
use drive::Right;
use operant_lanes::{Backend, Isa};

/// Packed widths are multiples of this many columns: a cache line.
const LINE: usize = 16;

/// `C[i, j] = init + Σ_{o < outer} Σ_{p < inner} A[i·a_row + o·a_outer + p·a_inner] · B[o·b_outer + p·b_inner + j]`
/// for `i < m`, `j < n`; strides count elements, and row i of C begins at `i·c_row`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Product {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Terms of the outer sum.
    pub outer: usize,
    /// Terms of the inner sum.
    pub inner: usize,
    /// From a row of A to the next; rows may overlap.
    pub a_row: usize,
    /// From an outer term of A to the next.
    pub a_outer: usize,
    /// From an inner term of A to the next.
    pub a_inner: usize,
    /// From an outer term of B to the next; not read for a packed B.
    pub b_outer: usize,
    /// From an inner term of B to the next; not read for a packed B.
    pub b_inner: usize,
    /// From a row of C to the next, at least `n`.
    pub c_row: usize,
}

/// Repetitions of a product: number s reads A from `s·a` on and writes C from `s·c` on. B is the same for all.
#[derive(Clone, Copy, Debug)]
pub struct Strips {
    /// How many.
    pub count: usize,
    /// From a strip of A to the next.
    pub a: usize,
    /// From a strip of C to the next.
    pub c: usize,
}

impl Strips {
    /// No repetition.
    pub const ONE: Self = Self { count: 1, a: 0, c: 0 };
}

/// What a product is added to.
#[derive(Clone, Copy, Debug)]
pub enum Init<'a> {
    /// Nothing.
    Zero,
    /// The same `n` values in every row.
    Bias(&'a [f32]),
    /// What C holds.
    Accumulate,
}

/// The kernels of one instruction set.
struct Family {
    /// Columns per vector.
    lanes: usize,
    /// Columns of a packed panel.
    panel: usize,
    /// `blocks[v - 1][r - 1]` computes `r` rows of `v` vectors.
    blocks: &'static [&'static [BlockFn]],
    /// Computes one row of [`Family::row_panels`] whole panels: enough independent sums to hide their latency.
    row: [BlockFn; 1],
    row_panels: usize,
    /// `narrow[c - 1][r - 1]` computes `r` rows of `c` columns, as [`narrow`] does.
    narrow: &'static [&'static [BlockFn]; narrow::MOST_COLUMNS],
    /// `to[p * to_row + j] = from[j * from_row + p]` for 16 values of `j` and of `p`.
    transpose: unsafe fn(from: *const f32, from_row: usize, to: *mut f32, to_row: usize),
}

fn family(backend: Backend) -> &'static Family {
    match backend.isa() {
        Isa::Portable1 | Isa::Portable8 | Isa::Portable16 => &portable::FAMILY,
        #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
        Isa::Avx2 => &avx2::FAMILY,
        #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
        Isa::Avx512 => &avx512::FAMILY,
    }
}

/// One past the last element reached by these (count, stride) pairs from element 0 on; 0 if a count is.
fn reach(terms: &[(usize, usize)]) -> usize {
    if terms.iter().any(|&(count, _)| count == 0) {
        return 0;
    }
    let last =
        terms.iter().try_fold(0_usize, |last, &(count, stride)| last.checked_add((count - 1).checked_mul(stride)?));
    last.and_then(|last| last.checked_add(1)).expect("operands of a product fit in memory")
}

/// The product of sizes of operands.
fn elements(sizes: &[usize]) -> usize {
    let product = sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    product.expect("operands of a product fit in memory")
}

/// Terms of a sum that are added in one go: `outers` terms from `o` on, `inners` of each from `q` on.
#[derive(Clone, Copy)]
struct Stretch {
    o: usize,
    outers: usize,
    q: usize,
    inners: usize,
}

impl Stretch {
    fn is_first(self) -> bool {
        self.o == 0 && self.q == 0
    }
}

/// Cuts a sum into stretches of at most `longest` terms, in order; one without terms if there are none.
fn stretches(outer: usize, inner: usize, longest: usize) -> impl Iterator<Item = Stretch> {
    let outers = if inner > longest { 1 } else { (longest / inner.max(1)).clamp(1, outer.max(1)) };
    (0..outer.max(1)).step_by(outers).flat_map(move |o| {
        let inners = (0..inner.max(1)).step_by(longest);
        inners.map(move |q| Stretch { o, outers: outers.min(outer - o), q, inners: longest.min(inner - q) })
    })
}

impl Product {
    fn check_c(&self, init: Init, c: usize) {
        let &Product { m, n, c_row, .. } = self;
        assert!(m <= 1 || c_row >= n, "rows of C overlap: {self:?}");
        let reached = reach(&[(m, c_row), (n, 1)]);
        assert!(reached <= c, "C holds {c} elements, wanted {reached}: {self:?}");
        if let Init::Bias(bias) = init {
            assert!(n <= bias.len(), "the bias holds {} elements, wanted {n}", bias.len());
        }
    }
}

/// C = init + A·B with B row-major.
///
/// # Panics
/// If an operand is too short for the product, or rows of C overlap.
pub fn product(backend: Backend, p: &Product, a: &[f32], b: &[f32], init: Init, c: &mut [f32]) {
    run(backend, p, Strips::ONE, a, Right::Rows(b), init, false, c);
}

/// Elements of a packed B of `k` rows and `n` columns.
pub fn packed_len(k: usize, n: usize) -> usize {
    elements(&[k, n.div_ceil(LINE), LINE])
}

/// Packs `B[p, j] = src[p·row + j·col]` for [`product_packed`] of the same backend: panels of columns, each row by row,
/// filled up with zeros to whole cache lines. Fast if `row` or `col` is one.
///
/// # Panics
/// If `src` or `out` is too short.
pub fn pack(backend: Backend, k: usize, n: usize, src: &[f32], row: usize, col: usize, out: &mut [f32]) {
    let family = family(backend);
    let reached = reach(&[(k, row), (n, col)]);
    assert!(reached <= src.len(), "the source holds {} elements, wanted {reached}", src.len());
    let out = &mut out[..packed_len(k, n)];
    if k == 0 {
        return;
    }
    for first in (0..n).step_by(family.panel) {
        let width = family.panel.min((n - first).next_multiple_of(LINE));
        let panel = &mut out[first * k..][..k * width];
        for line in (0..width).step_by(LINE) {
            let columns = LINE.min((n - first).saturating_sub(line));
            pack_line(
                family,
                k,
                columns,
                &src[((first + line) * col).min(src.len())..],
                row,
                col,
                &mut panel[line..],
                width,
            );
        }
    }
    #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
    if backend.isa() == Isa::Avx512 && strips::interleaves(n) {
        strips::interleave(out);
    }
}

/// Packs up to 16 columns into 16 columns of a panel.
#[expect(clippy::too_many_arguments)]
fn pack_line(
    family: &Family,
    k: usize,
    columns: usize,
    src: &[f32],
    row: usize,
    col: usize,
    out: &mut [f32],
    width: usize,
) {
    let mut done = 0;
    if columns == LINE && col == 1 {
        for p in 0..k {
            let from: &[f32; LINE] = src[p * row..].first_chunk().unwrap();
            *out[p * width..].first_chunk_mut().unwrap() = *from;
        }
        done = k;
    } else if columns == LINE && row == 1 {
        while done + LINE <= k {
            debug_assert!(15 * col + done + LINE <= src.len() && (done + 15) * width + LINE <= out.len());
            // SAFETY: `pack` checked that k rows of these 16 columns lie in `src` and that all k rows of the panel, of which
            // this is a line of 16 columns, lie in `out`; 16 rows from `done` on are among them.
            unsafe { (family.transpose)(src.as_ptr().add(done), col, out.as_mut_ptr().add(done * width), width) };
            done += LINE;
        }
    }
    for p in done..k {
        let line = &mut out[p * width..][..LINE];
        line.fill(0.0);
        for (j, to) in line[..columns].iter_mut().enumerate() {
            *to = src[p * row + j * col];
        }
    }
}

/// C = init + A·B with B packed by [`pack`] of the same backend, its row `o·inner + p` being row p of outer term o.
///
/// # Panics
/// If an operand is too short for the product, or rows of C overlap.
pub fn product_packed(backend: Backend, p: &Product, a: &[f32], packed: &[f32], init: Init, c: &mut [f32]) {
    run(backend, p, Strips::ONE, a, Right::Packed(packed), init, false, c);
}

/// [`product_packed`] for every strip. With `relu`, negative results may be replaced by zeros: tells whether they were.
///
/// # Panics
/// As [`product_packed`].
#[expect(clippy::too_many_arguments)]
pub fn product_strips(
    backend: Backend,
    p: &Product,
    strips: Strips,
    a: &[f32],
    packed: &[f32],
    init: Init,
    relu: bool,
    c: &mut [f32],
) -> bool {
    run(backend, p, strips, a, Right::Packed(packed), init, relu, c)
}

#[expect(clippy::too_many_arguments)]
fn run(
    backend: Backend,
    p: &Product,
    strips: Strips,
    a: &[f32],
    b: Right,
    init: Init,
    relu: bool,
    c: &mut [f32],
) -> bool {
    #[cfg(all(target_arch = "x86_64", not(operant_portable)))]
    if backend.isa() == Isa::Avx512 && strips::serves(p, strips, b) {
        strips::run(p, strips, a, b, init, relu, c);
        return relu;
    }
    #[cfg(any(not(target_arch = "x86_64"), operant_portable))]
    let _ = relu;
    for strip in 0..strips.count {
        drive::run(family(backend), p, &a[strip * strips.a..], b, init, &mut c[strip * strips.c..]);
    }
    false
}
