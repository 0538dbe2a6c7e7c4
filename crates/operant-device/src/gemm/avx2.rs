//! Products in AVX2 registers: 12 of the 16 hold sums.
#![allow(unsafe_code)]

use super::block::{self, Block, Vector, rows};
use super::{Family, narrow};
use std::arch::x86_64::*;

/// Vectors of a packed panel.
const PANEL: usize = 2;

pub(super) static FAMILY: Family = Family {
    lanes: 8,
    panel: PANEL * 8,
    blocks: &[rows!(compute, 1: 1 2 3 4 5 6 7 8 9 10 11 12), rows!(compute, 2: 1 2 3 4 5 6)],
    row: [compute::<1, { 4 * PANEL }>],
    row_panels: 4,
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
#[target_feature(enable = "avx2,fma")]
unsafe fn compute<const ROWS: usize, const VECTORS: usize>(block: &Block) {
    // SAFETY: the caller's contract.
    unsafe {
        if block.last == 8 {
            block::run::<Ymm, ROWS, VECTORS, PANEL, false>(block)
        } else {
            block::run::<Ymm, ROWS, VECTORS, PANEL, true>(block)
        }
    }
}

/// # Safety
/// As [`narrow::run`].
#[target_feature(enable = "avx2,fma")]
unsafe fn few_columns<const ROWS: usize, const COLUMNS: usize>(block: &Block) {
    // SAFETY: the caller's contract.
    unsafe { narrow::run::<Ymm, ROWS, COLUMNS>(block) }
}

#[derive(Clone, Copy)]
struct Ymm(__m256);

impl Vector for Ymm {
    const LANES: usize = 8;
    type Mask = __m256i;

    #[inline(always)]
    unsafe fn mask(count: usize) -> __m256i {
        // SAFETY: the caller has the instructions.
        unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
    }
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has the instructions.
        Ymm(unsafe { _mm256_setzero_ps() })
    }
    #[inline(always)]
    unsafe fn broadcast(from: *const f32) -> Self {
        // SAFETY: the caller's contract.
        Ymm(unsafe { _mm256_set1_ps(*from) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's contract.
        Ymm(unsafe { _mm256_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f32, mask: __m256i) -> Self {
        // SAFETY: the caller's contract; other lanes are not read.
        Ymm(unsafe { _mm256_maskload_ps(from, mask) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's contract.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_masked(self, to: *mut f32, mask: __m256i) {
        // SAFETY: the caller's contract; other lanes are not written.
        unsafe { _mm256_maskstore_ps(to, mask, self.0) }
    }
    #[inline(always)]
    fn hide(pointer: *const f32) -> *const f32 {
        let mut hidden = pointer;
        // SAFETY: no instruction.
        unsafe { std::arch::asm!("/* {} */", inout(reg) hidden, options(pure, readonly, nostack, preserves_flags)) };
        hidden
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller has the instructions.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the caller has the instructions.
        Ymm(unsafe { _mm256_fmadd_ps(self.0, factor.0, addend.0) })
    }
}

/// Four transposes of 8 by 8.
///
/// # Safety
/// The CPU has AVX2, 16 rows of 16 values may be read at `from` and written at `to`.
#[target_feature(enable = "avx2")]
unsafe fn transpose(from: *const f32, from_row: usize, to: *mut f32, to_row: usize) {
    for corner in 0..4 {
        let (down, right) = (corner / 2 * 8, corner % 2 * 8);
        let mut x = [_mm256_setzero_ps(); 8];
        for (r, row) in x.iter_mut().enumerate() {
            // SAFETY: the caller's contract.
            *row = unsafe { _mm256_loadu_ps(from.add((down + r) * from_row + right)) };
        }
        for (r, &row) in transpose8(&x).iter().enumerate() {
            // SAFETY: the caller's contract.
            unsafe { _mm256_storeu_ps(to.add((right + r) * to_row + down), row) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn transpose8(x: &[__m256; 8]) -> [__m256; 8] {
    let (mut y, mut z, mut out) = (*x, *x, *x);
    for r in 0..4 {
        y[2 * r] = _mm256_unpacklo_ps(x[2 * r], x[2 * r + 1]);
        y[2 * r + 1] = _mm256_unpackhi_ps(x[2 * r], x[2 * r + 1]);
    }
    for r in 0..2 {
        let y = &y[4 * r..4 * r + 4];
        z[4 * r] = _mm256_shuffle_ps::<0b01_00_01_00>(y[0], y[2]);
        z[4 * r + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(y[0], y[2]);
        z[4 * r + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(y[1], y[3]);
        z[4 * r + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(y[1], y[3]);
    }
    // z[4r + c] holds, in its half h, rows 4r to 4r+3 of column 4h + c.
    for c in 0..4 {
        out[c] = _mm256_permute2f128_ps::<0x20>(z[c], z[4 + c]);
        out[4 + c] = _mm256_permute2f128_ps::<0x31>(z[c], z[4 + c]);
    }
    out
}
