//! Products in AVX-512 registers: 24 to 28 of the 32 hold sums.
#![allow(unsafe_code)]

use super::block::{self, Block, Vector, rows};
use super::{Family, narrow};
use std::arch::x86_64::*;

/// Vectors of a packed panel.
const PANEL: usize = 4;

pub(super) static FAMILY: Family = Family {
    lanes: 16,
    panel: PANEL * 16,
    blocks: &[
        rows!(compute, 1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        rows!(compute, 2: 1 2 3 4 5 6 7 8 9 10 11 12),
        rows!(compute, 3: 1 2 3 4 5 6 7 8),
        rows!(compute, 4: 1 2 3 4 5 6),
    ],
    row: [compute::<1, { 2 * PANEL }>],
    row_panels: 2,
    narrow: &[
        rows!(few_columns, 1: 1 2 3 4),
        rows!(few_columns, 2: 1 2 3 4),
        rows!(few_columns, 3: 1 2 3 4),
        rows!(few_columns, 4: 1 2 3 4),
    ],
    transpose,
};

/// # Safety
/// As [`block::BlockFn`]. A masked load takes a turn of the multipliers: in 6 by 4 vectors one of 25, and 4 % of the time.
#[target_feature(enable = "avx512f")]
unsafe fn compute<const ROWS: usize, const VECTORS: usize>(block: &Block) {
    // SAFETY: the caller's contract.
    unsafe {
        if block.last == 16 {
            block::run::<Zmm, ROWS, VECTORS, PANEL, false>(block)
        } else {
            block::run::<Zmm, ROWS, VECTORS, PANEL, true>(block)
        }
    }
}

/// # Safety
/// As [`narrow::run`].
#[target_feature(enable = "avx512f")]
unsafe fn few_columns<const ROWS: usize, const COLUMNS: usize>(block: &Block) {
    // SAFETY: the caller's contract.
    unsafe { narrow::run::<Zmm, ROWS, COLUMNS>(block) }
}

#[derive(Clone, Copy)]
struct Zmm(__m512);

impl Vector for Zmm {
    const LANES: usize = 16;
    type Mask = __mmask16;

    #[inline(always)]
    unsafe fn mask(count: usize) -> __mmask16 {
        (u32::MAX >> (32 - count)) as __mmask16
    }
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has the instructions.
        Zmm(unsafe { _mm512_setzero_ps() })
    }
    #[inline(always)]
    unsafe fn broadcast(from: *const f32) -> Self {
        // SAFETY: the caller's contract.
        Zmm(unsafe { _mm512_set1_ps(*from) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's contract.
        Zmm(unsafe { _mm512_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f32, mask: __mmask16) -> Self {
        // SAFETY: the caller's contract; other lanes are not read.
        Zmm(unsafe { _mm512_maskz_loadu_ps(mask, from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's contract.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_masked(self, to: *mut f32, mask: __mmask16) {
        // SAFETY: the caller's contract; other lanes are not written.
        unsafe { _mm512_mask_storeu_ps(to, mask, self.0) }
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
        unsafe { _mm512_reduce_add_ps(self.0) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the caller has the instructions.
        Zmm(unsafe { _mm512_fmadd_ps(self.0, factor.0, addend.0) })
    }
}

/// # Safety
/// The CPU has AVX-512, 16 rows of 16 values may be read at `from` and written at `to`.
#[target_feature(enable = "avx512f")]
unsafe fn transpose(from: *const f32, from_row: usize, to: *mut f32, to_row: usize) {
    let mut x = [_mm512_setzero_si512(); 16];
    for (r, row) in x.iter_mut().enumerate() {
        // SAFETY: the caller's contract.
        *row = unsafe { _mm512_loadu_si512(from.add(r * from_row).cast()) };
    }
    for (r, &row) in transpose16(&x).iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe { _mm512_storeu_si512(to.add(r * to_row).cast(), row) };
    }
}

/// Transposes 16 rows of 16 words.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose16(x: &[__m512i; 16]) -> [__m512i; 16] {
    let x = transpose_step::<1>(&transpose_step::<0>(x));
    transpose_step::<3>(&transpose_step::<2>(&x))
}

/// The steps of [`transpose16`], of 16 instructions each: pairs of words, pairs of pairs, then quarters of registers by two
/// rounds. After the second, register 4r + c holds, in its quarter q, rows 4r to 4r + 3 of column 4q + c.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose_step<const STEP: usize>(x: &[__m512i; 16]) -> [__m512i; 16] {
    let mut y = *x;
    for i in 0..8 {
        match STEP {
            0 => {
                y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
                y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
            }
            1 => {
                let (of, at) = (i / 2 * 4 + i % 2, i / 2 * 4 + i % 2 * 2);
                y[at] = _mm512_unpacklo_epi64(x[of], x[of + 2]);
                y[at + 1] = _mm512_unpackhi_epi64(x[of], x[of + 2]);
            }
            2 => {
                let at = i / 4 * 8 + i % 4;
                y[at] = _mm512_shuffle_i32x4::<0b10_00_10_00>(x[at], x[at + 4]);
                y[at + 4] = _mm512_shuffle_i32x4::<0b11_01_11_01>(x[at], x[at + 4]);
            }
            _ => {
                y[i] = _mm512_shuffle_i32x4::<0b10_00_10_00>(x[i], x[i + 8]);
                y[i + 8] = _mm512_shuffle_i32x4::<0b11_01_11_01>(x[i], x[i + 8]);
            }
        }
    }
    y
}
