//! Products of a few columns, as heads of a network have: sums over vectors along k, for which [`super::block`] would
//! leave most lanes empty.
//!
//! The order of a sum differs from that of wider products: lane l adds terms l, l + lanes, … of each outer term, then
//! lanes are added up, then the start.
#![allow(unsafe_code)]

use super::Product;
use super::block::{Block, Start, Vector};
use std::mem::MaybeUninit;

/// Most columns that are taken for few.
pub(super) const MOST_COLUMNS: usize = 4;
/// Elements of B that are turned, 16 kB.
const MOST_ELEMENTS: usize = 4096;

/// B by columns: `[n, outer, width]`, rows filled up with zeros to whole vectors.
pub(super) struct Columns {
    elements: [MaybeUninit<f32>; MOST_ELEMENTS],
}

/// Elements of an outer term of a column, if the product is of this kind. That must not depend on `m`.
pub(super) fn width(p: &Product, lanes: usize) -> Option<usize> {
    if p.n > MOST_COLUMNS || p.a_inner != 1 || p.outer == 0 || p.inner < 2 {
        return None;
    }
    let width = p.inner.next_multiple_of(lanes);
    let elements = width.checked_mul(p.outer)?.checked_mul(p.n)?;
    (elements <= MOST_ELEMENTS).then_some(width)
}

impl Columns {
    pub(super) fn new() -> Self {
        Self { elements: [MaybeUninit::uninit(); MOST_ELEMENTS] }
    }

    /// Turns B, of which [`width`] said that it fits, and tells where it lies.
    ///
    /// # Safety
    /// All of B, `b_outer` and `b_inner` apart, may be read.
    pub(super) unsafe fn turn(
        &mut self,
        p: &Product,
        width: usize,
        b: *const f32,
        b_outer: usize,
        b_inner: usize,
    ) -> *const f32 {
        for (j, column) in self.elements.chunks_exact_mut(p.outer * width).enumerate().take(p.n) {
            for (o, term) in column.chunks_exact_mut(width).enumerate() {
                for (q, to) in term.iter_mut().enumerate() {
                    // SAFETY: the caller's contract.
                    to.write(if q < p.inner { unsafe { *b.add(o * b_outer + q * b_inner + j) } } else { 0.0 });
                }
            }
        }
        self.elements.as_ptr().cast()
    }
}

/// `ROWS` rows by `COLUMNS` columns of C. The block's `b_inner` is from a column to the next.
///
/// # Safety
/// As [`super::block::BlockFn`]; columns of B are whole vectors, rows of A are not.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const ROWS: usize, const COLUMNS: usize>(block: &Block) {
    let Block { outer, inner, a_row, a_outer, b_outer, b_inner, c_row, .. } = *block;
    // SAFETY: by the contract of this function, every pointer below is inside the block's operands.
    unsafe {
        let whole = inner / V::LANES * V::LANES;
        let mask = V::mask((inner - whole).max(1));
        let mut sums = [[V::zero(); COLUMNS]; ROWS];
        for o in 0..outer {
            let (a, b) = (block.a.add(o * a_outer), block.b.add(o * b_outer));
            let mut at = 0;
            while at < inner {
                let mut right = [V::zero(); COLUMNS];
                for (j, x) in right.iter_mut().enumerate() {
                    *x = V::load(b.add(j * b_inner + at));
                }
                for (r, row) in sums.iter_mut().enumerate() {
                    let from = a.add(r * a_row + at);
                    let left = if at < whole { V::load(from) } else { V::load_masked(from, mask) };
                    for (sum, x) in row.iter_mut().zip(right) {
                        *sum = left.mul_add(x, *sum);
                    }
                }
                at += V::LANES;
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (j, sum) in row.iter().enumerate() {
                let c = block.c.add(r * c_row + j);
                let start = match block.start {
                    Start::Zero => 0.0,
                    Start::Row(start) => *start.add(j),
                    Start::C => *c,
                };
                *c = start + sum.sum();
            }
        }
    }
}
