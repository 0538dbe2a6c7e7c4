//! Matrix products on one thread: every layer of a network, forward and backward, is one two-level contraction.
//!
//! [`Product`] says where its operands lie, so that a convolution reads its padded image in place and a weight gradient
//! reads its batch untransposed. Weights that are used often are packed once ([`pack`]); [`amx`] has the same in bf16.
//!
//! Invariant: an element of C is one chain of multiply-adds over k in order, begun from its initial value. Its bits
//! depend on the instruction set (products fuse where the CPU can, whatever the backend's `Math`), never on `m`, on how
//! rows are split among calls, nor on packing.
#![allow(unsafe_code)]

pub mod amx;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
mod avx512;
mod block;
mod portable;
#[cfg(test)]
mod tests;

use crate::lanes::{Backend, Isa};
use block::{Block, BlockFn, Start};

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
    row: BlockFn,
    row_panels: usize,
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

/// One past the last element reached by these (count, stride) pairs from element `0`, or `0` if a count is.
fn reach(terms: &[(usize, usize)]) -> usize {
    let last = terms.iter().try_fold(0_usize, |last, &(count, stride)| {
        count
            .checked_sub(1)
            .and_then(|steps| last.checked_add(steps.checked_mul(stride).expect("a product fits memory")))
    });
    last.map_or(0, |last| last + 1)
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

/// Where B lies for the driver.
#[derive(Clone, Copy)]
struct Right {
    at: *const f32,
    packed: bool,
}

/// C = init + A·B with B row-major.
///
/// # Panics
/// If an operand is too short for the product, or rows of C overlap.
pub fn product(backend: Backend, p: &Product, a: &[f32], b: &[f32], init: Init, c: &mut [f32]) {
    let reached = reach(&[(p.outer, p.b_outer), (p.inner, p.b_inner), (p.n, 1)]);
    assert!(reached <= b.len(), "B holds {} elements, wanted {reached}: {p:?}", b.len());
    drive(family(backend), p, a, Right { at: b.as_ptr(), packed: false }, init, c);
}

/// Elements of a packed B of `k` rows and `n` columns.
pub fn packed_len(k: usize, n: usize) -> usize {
    k * n.next_multiple_of(LINE)
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
    let wanted = packed_len(p.outer * p.inner, p.n);
    assert!(wanted <= packed.len(), "the packed B holds {} elements, wanted {wanted}: {p:?}", packed.len());
    drive(family(backend), p, a, Right { at: packed.as_ptr(), packed: true }, init, c);
}

/// Elements of B that stay in the L1 cache while rows of A pass by.
const L1_ELEMENTS: usize = 8192;

/// Cuts a product into blocks. B must hold what `p` reaches; A and C are checked here.
///
/// Sums are cut into stretches of k whose part of a panel stays in L1; C carries the sum from one to the next, which
/// changes no bits.
fn drive(family: &Family, p: &Product, a: &[f32], b: Right, init: Init, c: &mut [f32]) {
    let reached = reach(&[(p.m, p.a_row), (p.outer, p.a_outer), (p.inner, p.a_inner)]);
    assert!(reached <= a.len(), "A holds {} elements, wanted {reached}: {p:?}", a.len());
    p.check_c(init, c.len());
    if p.m == 0 || p.n == 0 {
        return;
    }
    let (a, c) = (a.as_ptr(), c.as_mut_ptr());
    let start = match init {
        Init::Zero => Start::Zero,
        Init::Bias(bias) => Start::Row(bias.as_ptr()),
        Init::Accumulate => Start::C,
    };
    let reused = p.m > 2 * family.blocks[family.blocks.len() - 1].len();
    let stretch = if reused { L1_ELEMENTS / family.panel } else { usize::MAX };
    if p.inner > stretch {
        for o in 0..p.outer {
            for from in (0..p.inner).step_by(stretch) {
                let part = Stretch { o, outers: 1, p: from, inners: stretch.min(p.inner - from) };
                part.run(family, p, a, b, if o + from == 0 { start } else { Start::C }, c);
            }
        }
    } else {
        let outers = (stretch / p.inner.max(1)).clamp(1, p.outer.max(1));
        for o in (0..p.outer.max(1)).step_by(outers) {
            let part = Stretch { o, outers: outers.min(p.outer - o), p: 0, inners: p.inner };
            part.run(family, p, a, b, if o == 0 { start } else { Start::C }, c);
        }
    }
}

/// Terms of the sum that are added in one go.
#[derive(Clone, Copy)]
struct Stretch {
    o: usize,
    outers: usize,
    p: usize,
    inners: usize,
}

impl Stretch {
    fn run(self, family: &Family, p: &Product, a: *const f32, b: Right, start: Start, c: *mut f32) {
        let k = p.outer * p.inner;
        let mut block = Block {
            outer: self.outers,
            inner: self.inners,
            a: a.wrapping_add(self.o * p.a_outer + self.p * p.a_inner),
            a_row: p.a_row,
            a_outer: p.a_outer,
            a_inner: p.a_inner,
            b: b.at,
            b_outer: p.b_outer,
            b_inner: p.b_inner,
            b_panel: if b.packed { family.panel * k } else { family.panel },
            c,
            c_row: p.c_row,
            start,
            last: family.lanes,
        };
        let mut j = 0;
        while j < p.n {
            let (panel, offset) = (j / family.panel * family.panel, j % family.panel);
            if b.packed {
                let width = family.panel.min((p.n - panel).next_multiple_of(LINE));
                block.b_inner = width;
                block.b_outer = p.inner * width;
                block.b = b.at.wrapping_add(panel * k + (self.o * p.inner + self.p) * width + offset);
            } else {
                block.b = b.at.wrapping_add(self.o * p.b_outer + self.p * p.b_inner + j);
            }
            block.start = start.at(j);
            let columns;
            if p.m == 1 && offset == 0 && p.n - j >= family.row_panels * family.panel {
                columns = family.row_panels * family.panel;
                block.last = family.lanes;
                block.c = c.wrapping_add(j);
                // SAFETY: `drive` and its callers checked A, B and C for the whole product; these are whole panels of it.
                unsafe { (family.row)(&block) };
            } else {
                columns = (p.n - j).min(family.panel - offset).min(family.blocks.len() * family.lanes);
                let vectors = columns.div_ceil(family.lanes);
                block.last = columns - (vectors - 1) * family.lanes;
                let kernels = family.blocks[vectors - 1];
                let mut i = 0;
                for left in (1..=p.m.div_ceil(kernels.len())).rev() {
                    let rows = (p.m - i).div_ceil(left);
                    let mut rows_block = block;
                    rows_block.a = block.a.wrapping_add(i * p.a_row);
                    rows_block.c = c.wrapping_add(i * p.c_row + j);
                    // SAFETY: as above; rows i.. and columns j.. of the product.
                    unsafe { kernels[rows - 1](&rows_block) };
                    i += rows;
                }
            }
            j += columns;
        }
    }
}
