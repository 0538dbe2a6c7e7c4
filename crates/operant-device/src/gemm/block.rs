//! A block of C that fits registers, written once for every vector type.
#![allow(unsafe_code)]

/// Rows of the tallest block.
const MOST_ROWS: usize = 16;

/// Computes a block of rows and vectors that are fixed by the function.
///
/// # Safety
/// The CPU has the instructions, and all that the [`Block`] reaches may be read (A, B, the start) and written (C).
pub(super) type BlockFn = unsafe fn(&Block);

/// What a block's sums begin with.
#[derive(Clone, Copy)]
pub(super) enum Start {
    Zero,
    /// This row of values, in every row.
    Row(*const f32),
    /// What C holds.
    C,
}

impl Start {
    /// From this column on.
    pub(super) fn at(self, column: usize) -> Self {
        match self {
            Start::Row(row) => Start::Row(row.wrapping_add(column)),
            other => other,
        }
    }
}

/// Where the operands of a block lie; strides count elements, as in [`super::Product`].
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) outer: usize,
    pub(super) inner: usize,
    pub(super) a: *const f32,
    pub(super) a_row: usize,
    pub(super) a_outer: usize,
    pub(super) a_inner: usize,
    pub(super) b: *const f32,
    pub(super) b_outer: usize,
    pub(super) b_inner: usize,
    /// From a panel to the next, for blocks of several.
    pub(super) b_panel: usize,
    pub(super) c: *mut f32,
    pub(super) c_row: usize,
    pub(super) start: Start,
    /// Columns of the last vector, at least 1.
    pub(super) last: usize,
}

/// A register of f32.
///
/// # Safety
/// The functions need the CPU's instructions, and pointers to memory that may be read or written: all of the lanes, or
/// those of the mask.
pub(super) trait Vector: Copy {
    const LANES: usize;
    type Mask: Copy;
    /// The first `count` lanes.
    unsafe fn mask(count: usize) -> Self::Mask;
    unsafe fn zero() -> Self;
    unsafe fn broadcast(from: *const f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    /// Zero in other lanes.
    unsafe fn load_masked(from: *const f32, mask: Self::Mask) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn store_masked(self, to: *mut f32, mask: Self::Mask);
    /// The same pointer, of which the compiler knows nothing.
    #[inline(always)]
    fn hide(pointer: *const f32) -> *const f32 {
        pointer
    }
    /// The sum of all lanes.
    unsafe fn sum(self) -> f32;
    /// `self * factor + addend`.
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
}

/// `ROWS` rows by `VECTORS` vectors of C, of which `PANEL` lie together in B. With `MASKED` the last vector has
/// [`Block::last`] columns, else all.
///
/// # Safety
/// As [`BlockFn`].
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const ROWS: usize, const VECTORS: usize, const PANEL: usize, const MASKED: bool>(
    block: &Block,
) {
    let Block { outer, inner, a_row, a_outer, a_inner, b_outer, b_inner, b_panel, c_row, .. } = *block;
    // SAFETY: by the contract of this function, every pointer below is inside the block's operands or only computed.
    unsafe {
        let mask = V::mask(block.last);
        let mut sums = [[V::zero(); VECTORS]; ROWS];
        for (r, row) in sums.iter_mut().enumerate() {
            for (v, sum) in row.iter_mut().enumerate() {
                let from: *const f32 = match block.start {
                    Start::Zero => continue,
                    Start::Row(start) => start,
                    Start::C => block.c.add(r * c_row),
                };
                let from = from.add(v * V::LANES);
                *sum = if MASKED && v == VECTORS - 1 { V::load_masked(from, mask) } else { V::load(from) };
            }
        }
        for o in 0..outer {
            // A pointer for every four rows, hidden from the compiler: it would reach each row from the last, in a chain of
            // additions that takes longer than the sums, or spill a distance per row.
            let mut a = [block.a.add(o * a_outer); MOST_ROWS.div_ceil(4)];
            for (g, a) in a.iter_mut().enumerate().take(ROWS.div_ceil(4)) {
                *a = a.wrapping_add(4 * g * a_row);
            }
            let mut b = block.b.add(o * b_outer);
            for _ in 0..inner {
                let mut right = [V::zero(); VECTORS];
                for (v, x) in right.iter_mut().enumerate() {
                    let from = b.wrapping_add(v / PANEL * b_panel + v % PANEL * V::LANES);
                    *x = if MASKED && v == VECTORS - 1 { V::load_masked(from, mask) } else { V::load(from) };
                }
                for (r, row) in sums.iter_mut().enumerate() {
                    let left = V::broadcast(a[r / 4].wrapping_add(r % 4 * a_row));
                    for (sum, x) in row.iter_mut().zip(right) {
                        *sum = left.mul_add(x, *sum);
                    }
                }
                for a in &mut a[..ROWS.div_ceil(4)] {
                    *a = V::hide(a.wrapping_add(a_inner));
                }
                b = b.wrapping_add(b_inner);
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (v, sum) in row.iter().enumerate() {
                let to = block.c.add(r * c_row + v * V::LANES);
                if MASKED && v == VECTORS - 1 {
                    sum.store_masked(to, mask);
                } else {
                    sum.store(to);
                }
            }
        }
    }
}

/// The functions for so many rows and `$columns` columns or vectors, for a [`super::Family`].
macro_rules! rows {
    ($compute:ident, $columns:literal: $($rows:literal)+) => {
        &[$($compute::<$rows, $columns>),+]
    };
}
pub(super) use rows;
