//! Products in arrays that the compiler turns into whatever vectors the CPU has.
#![allow(unsafe_code)]

use super::block::{self, Block, Vector, rows};
use super::{Family, narrow};

pub(super) static FAMILY: Family = Family {
    lanes: 8,
    panel: 16,
    blocks: &[rows!(compute, 1: 1 2 3 4)],
    row: [compute::<1, 2>],
    row_panels: 1,
    narrow: &[
        rows!(few_columns, 1: 1 2 3 4),
        rows!(few_columns, 2: 1 2 3 4),
        rows!(few_columns, 3: 1 2 3 4),
        rows!(few_columns, 4: 1 2 3 4),
    ],
    transpose,
};

/// # Safety
/// As [`block::BlockFn`].
unsafe fn compute<const ROWS: usize, const VECTORS: usize>(block: &Block) {
    // SAFETY: the caller's contract.
    unsafe {
        if block.last == 8 {
            block::run::<Array, ROWS, VECTORS, 2, false>(block)
        } else {
            block::run::<Array, ROWS, VECTORS, 2, true>(block)
        }
    }
}

/// # Safety
/// As [`narrow::run`].
unsafe fn few_columns<const ROWS: usize, const COLUMNS: usize>(block: &Block) {
    // SAFETY: the caller's contract.
    unsafe { narrow::run::<Array, ROWS, COLUMNS>(block) }
}

#[derive(Clone, Copy)]
struct Array([f32; 8]);

impl Vector for Array {
    const LANES: usize = 8;
    type Mask = usize;

    #[inline(always)]
    unsafe fn mask(count: usize) -> usize {
        count
    }
    #[inline(always)]
    unsafe fn zero() -> Self {
        Array([0.0; 8])
    }
    #[inline(always)]
    unsafe fn broadcast(from: *const f32) -> Self {
        // SAFETY: the caller's contract.
        Array([unsafe { *from }; 8])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's contract.
        Array(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f32, count: usize) -> Self {
        let mut lanes = [0.0; 8];
        for (lane, x) in lanes.iter_mut().enumerate().take(count) {
            // SAFETY: the caller's contract.
            *x = unsafe { *from.add(lane) };
        }
        Array(lanes)
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's contract.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn store_masked(self, to: *mut f32, count: usize) {
        for (lane, &x) in self.0.iter().enumerate().take(count) {
            // SAFETY: the caller's contract.
            unsafe { *to.add(lane) = x };
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        let mut sum = addend.0;
        for (sum, (x, y)) in sum.iter_mut().zip(self.0.iter().zip(factor.0)) {
            // Without the instruction, `mul_add` would call a function.
            let fused = cfg!(any(target_feature = "fma", target_arch = "aarch64"));
            *sum = if fused { x.mul_add(y, *sum) } else { x * y + *sum };
        }
        Array(sum)
    }
}

/// # Safety
/// 16 rows of 16 values may be read at `from` and written at `to`.
unsafe fn transpose(from: *const f32, from_row: usize, to: *mut f32, to_row: usize) {
    for row in 0..16 {
        for column in 0..16 {
            // SAFETY: the caller's contract.
            unsafe { *to.add(column * to_row + row) = *from.add(row * from_row + column) };
        }
    }
}
