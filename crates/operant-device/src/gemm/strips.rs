//! AVX-512 products of few columns, whose rows may lie in several strips of A and C, as rows of an image do.
//!
//! A block takes its rows in groups of [`GROUP`], each from any strip, so that short strips fill the registers together.
//! Products of [`PAIRED`] columns would leave half of a register empty: even lanes add the even terms of each outer term,
//! odd lanes the odd ones, and at last the two are added. Packed, a row of B is interleaved with the next.
#![allow(unsafe_code)]

use super::block::Start;
use super::drive::Right;
use super::{Init, LINE, Product, Strips, elements, packed_len, reach};
use std::arch::x86_64::*;
use std::ops::RangeInclusive;

/// Columns of which two terms fit a register.
const PAIRED: RangeInclusive<usize> = 5..=8;
/// Rows that are [`Product::a_row`] apart.
const GROUP: usize = 4;
/// Groups of the tallest block.
const GROUPS: usize = 4;
/// Most elements of a packed B that stay in the L1 cache.
const L1_ELEMENTS: usize = 8192;
const EVEN: __mmask16 = 0x5555;

/// Where the operands of a block lie, a pointer per group of rows.
#[derive(Clone, Copy)]
struct Block {
    outer: usize,
    inner: usize,
    a: [*const f32; GROUPS],
    a_row: usize,
    a_outer: usize,
    a_inner: usize,
    b: *const f32,
    b_outer: usize,
    b_inner: usize,
    c: [*mut f32; GROUPS],
    c_row: usize,
    start: Start,
    /// Lesser sums are raised to it.
    floor: f32,
    /// Columns, or those of the last vector.
    last: usize,
}

/// # Safety
/// The CPU has AVX-512, and all that the block reaches may be read (A, B, the start) and written (C).
type BlockFn = unsafe fn(&Block);

/// By whole groups.
static ONE_VECTOR: [BlockFn; 4] = [wide::<4, 1>, wide::<8, 1>, wide::<12, 1>, wide::<16, 1>];
static TWO_VECTORS: [BlockFn; 3] = [wide::<4, 2>, wide::<8, 2>, wide::<12, 2>];

/// By rows.
macro_rules! pairs {
    ($packed:literal: $($rows:literal)+) => {
        [$(pairs::<$rows, $packed>),+]
    };
}
static PAIRS: [BlockFn; 16] = pairs!(false: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
static PACKED_PAIRS: [BlockFn; 16] = pairs!(true: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);

/// Whether a packed B of so many columns is interleaved.
pub(super) fn interleaves(n: usize) -> bool {
    PAIRED.contains(&n)
}

/// Interleaves each row of a packed B with the next.
pub(super) fn interleave(packed: &mut [f32]) {
    let mut rows = packed.chunks_exact_mut(LINE).peekable();
    while let Some(row) = rows.next() {
        let next = rows.peek();
        for j in (0..LINE / 2).rev() {
            (row[2 * j], row[2 * j + 1]) = (row[j], next.map_or(0.0, |next| next[j]));
        }
    }
}

/// Whether [`run`] computes this product. For one of paired columns that must not depend on `m` nor on strips.
pub(super) fn serves(p: &Product, strips: Strips, b: Right) -> bool {
    if interleaves(p.n) {
        return matches!(b, Right::Packed(_)) || p.a_inner == 1;
    }
    let fits = p.n > *PAIRED.end() && p.n <= 2 * LINE && p.m.is_multiple_of(GROUP);
    fits && strips.count > 1
        && matches!(b, Right::Packed(_))
        && p.outer * p.inner * p.n.next_multiple_of(LINE) <= L1_ELEMENTS
}

/// Checks the operands, panics if one is too short, and computes.
pub(super) fn run(p: &Product, strips: Strips, a: &[f32], b: Right, init: Init, relu: bool, c: &mut [f32]) {
    let reached = reach(&[(strips.count, strips.a), (p.m, p.a_row), (p.outer, p.a_outer), (p.inner, p.a_inner)]);
    assert!(reached <= a.len(), "A holds {} elements, wanted {reached}: {p:?}", a.len());
    let reached = reach(&[(strips.count, strips.c), (p.m, p.c_row), (p.n, 1)]);
    assert!(reached <= c.len(), "C holds {} elements, wanted {reached}: {p:?}", c.len());
    p.check_c(init, c.len());
    let width = p.n.next_multiple_of(LINE);
    let (held, reached, right, b_outer, b_inner) = match b {
        Right::Rows(b) => {
            (b.len(), reach(&[(p.outer, p.b_outer), (p.inner, p.b_inner), (p.n, 1)]), b.as_ptr(), p.b_outer, p.b_inner)
        }
        Right::Packed(b) => {
            (b.len(), packed_len(elements(&[p.outer, p.inner]), p.n), b.as_ptr(), p.inner * width, width)
        }
    };
    assert!(reached <= held, "B holds {held} elements, wanted {reached}: {p:?}");
    let start = match init {
        Init::Zero => Start::Zero,
        Init::Bias(bias) => Start::Row(bias.as_ptr()),
        Init::Accumulate => Start::C,
    };
    let mut block = Block {
        outer: p.outer,
        inner: p.inner,
        a: [a.as_ptr(); GROUPS],
        a_row: p.a_row,
        a_outer: p.a_outer,
        a_inner: p.a_inner,
        b: right,
        b_outer,
        b_inner,
        c: [c.as_mut_ptr(); GROUPS],
        c_row: p.c_row,
        start,
        floor: if relu { 0.0 } else { f32::NEG_INFINITY },
        last: if width == 2 * LINE { p.n - LINE } else { p.n },
    };
    // Kernels by whole groups of rows, or by rows.
    let (kernels, unit): (&[BlockFn], usize) = match b {
        _ if interleaves(p.n) => (if matches!(b, Right::Packed(_)) { &PACKED_PAIRS } else { &PAIRS }, 1),
        _ if width == LINE => (&ONE_VECTOR, GROUP),
        _ => (&TWO_VECTORS, GROUP),
    };
    let most = kernels.len() * unit;
    // Groups fill up from the next strip if no group is cut short by the end of one.
    let together = p.m.is_multiple_of(GROUP);
    let (stretches, rows) = if together { (1, strips.count * p.m) } else { (strips.count, p.m) };
    let unit_rows = if together { GROUP } else { 1 };
    let (mut strip, mut row) = (0, 0);
    let blocks = rows.div_ceil(most);
    let (each, more) = (rows / unit_rows / blocks.max(1), rows / unit_rows % blocks.max(1));
    for _ in 0..stretches {
        for number in 0..blocks {
            let taken = (each + usize::from(number < more)) * unit_rows;
            for group in 0..taken.div_ceil(GROUP) {
                block.a[group] = a.as_ptr().wrapping_add(strip * strips.a + row * p.a_row);
                block.c[group] = c.as_mut_ptr().wrapping_add(strip * strips.c + row * p.c_row);
                row += GROUP.min(taken - group * GROUP);
                if row == p.m {
                    (strip, row) = (strip + 1, 0);
                }
            }
            // SAFETY: only a backend of a CPU with AVX-512 comes here, and operands hold what all strips reach, of which
            // these are some rows.
            unsafe { kernels[if unit == GROUP { taken / GROUP } else { taken } - 1](&block) };
        }
    }
}

/// The same pointer, of which the compiler knows nothing: it would reach rows from each other in chains of additions.
#[inline(always)]
fn hide(pointer: *const f32) -> *const f32 {
    let mut hidden = pointer;
    // SAFETY: no instruction.
    unsafe { std::arch::asm!("/* {} */", inout(reg) hidden, options(pure, readonly, nostack, preserves_flags)) };
    hidden
}

/// `ROWS` rows, whole groups, by `VECTORS` vectors of C, of which the last has [`Block::last`] columns; B is packed.
///
/// # Safety
/// As [`BlockFn`].
#[target_feature(enable = "avx512f")]
unsafe fn wide<const ROWS: usize, const VECTORS: usize>(block: &Block) {
    let Block { outer, inner, a_row, a_outer, a_inner, b_outer, b_inner, c_row, .. } = *block;
    let mask = (u32::MAX >> (32 - block.last)) as __mmask16;
    // The second operand is what comes out if one is NaN.
    let floor = _mm512_set1_ps(block.floor);
    let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    // SAFETY: by the contract of this function, every pointer below is inside the block's operands or only computed.
    unsafe {
        for (r, row) in sums.iter_mut().enumerate() {
            for (v, sum) in row.iter_mut().enumerate() {
                let from: *const f32 = match block.start {
                    Start::Zero => continue,
                    Start::Row(start) => start,
                    Start::C => block.c[r / GROUP].add(r % GROUP * c_row),
                };
                let mask = if v == VECTORS - 1 { mask } else { u16::MAX };
                *sum = _mm512_maskz_loadu_ps(mask, from.add(v * LINE));
            }
        }
        for o in 0..outer {
            let mut a = block.a.map(|a| a.wrapping_add(o * a_outer));
            let mut b = block.b.add(o * b_outer);
            for _ in 0..inner {
                let mut right = [_mm512_setzero_ps(); VECTORS];
                for (v, x) in right.iter_mut().enumerate() {
                    *x = _mm512_loadu_ps(b.add(v * LINE));
                }
                for (r, row) in sums.iter_mut().enumerate() {
                    let left = _mm512_set1_ps(*a[r / GROUP].wrapping_add(r % GROUP * a_row));
                    for (sum, &x) in row.iter_mut().zip(&right) {
                        *sum = _mm512_fmadd_ps(left, x, *sum);
                    }
                }
                for a in &mut a[..ROWS / GROUP] {
                    *a = hide(a.wrapping_add(a_inner));
                }
                b = b.wrapping_add(b_inner);
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (v, &sum) in row.iter().enumerate() {
                let mask = if v == VECTORS - 1 { mask } else { u16::MAX };
                let to = block.c[r / GROUP].add(r % GROUP * c_row + v * LINE);
                _mm512_mask_storeu_ps(to, mask, _mm512_max_ps(floor, sum));
            }
        }
    }
}

/// `ROWS` rows of up to eight columns. If terms of A do not lie together, even lanes add all of them.
///
/// # Safety
/// As [`BlockFn`].
#[target_feature(enable = "avx512f")]
unsafe fn pairs<const ROWS: usize, const PACKED: bool>(block: &Block) {
    let Block { outer, inner, a_row, a_outer, a_inner, b_outer, b_inner, c_row, .. } = *block;
    let columns = (u32::MAX >> (32 - block.last)) as __mmask16;
    let spread = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    let with_next = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odds = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    let floor = _mm512_set1_ps(block.floor);
    let mut sums = [_mm512_setzero_ps(); ROWS];
    let steps = if a_inner == 1 { inner / 2 } else { 0 };
    // SAFETY: by the contract of this function, every pointer below is inside the block's operands or only computed; other
    // lanes than those of a mask are neither read nor written.
    unsafe {
        for (r, sum) in sums.iter_mut().enumerate() {
            let from: *const f32 = match block.start {
                Start::Zero => continue,
                Start::Row(start) => start,
                Start::C => block.c[r / GROUP].add(r % GROUP * c_row),
            };
            *sum = _mm512_maskz_permutexvar_ps(EVEN, spread, _mm512_maskz_loadu_ps(columns, from));
        }
        for o in 0..outer {
            let mut a = block.a.map(|a| a.wrapping_add(o * a_outer));
            let mut b = block.b.add(o * b_outer);
            for _ in 0..steps {
                let right = if PACKED {
                    _mm512_loadu_ps(b)
                } else {
                    let [this, next] = [b, b.add(b_inner)].map(|b| _mm512_maskz_loadu_ps(columns, b));
                    _mm512_permutex2var_ps(this, with_next, next)
                };
                for (r, sum) in sums.iter_mut().enumerate() {
                    let pair = a[r / GROUP].wrapping_add(r % GROUP * a_row).cast::<f64>().read_unaligned();
                    *sum = _mm512_fmadd_ps(_mm512_castpd_ps(_mm512_set1_pd(pair)), right, *sum);
                }
                for a in &mut a[..ROWS.div_ceil(GROUP)] {
                    *a = hide(a.wrapping_add(2));
                }
                b = b.wrapping_add(2 * b_inner);
            }
            // Odd lanes add zeros. An infinite element makes them NaN, which is as good a sign that something broke.
            for _ in 2 * steps..inner {
                let right = if PACKED {
                    _mm512_maskz_loadu_ps(EVEN, b)
                } else {
                    _mm512_maskz_permutexvar_ps(EVEN, spread, _mm512_maskz_loadu_ps(columns, b))
                };
                for (r, sum) in sums.iter_mut().enumerate() {
                    let left = _mm512_set1_ps(*a[r / GROUP].wrapping_add(r % GROUP * a_row));
                    *sum = _mm512_fmadd_ps(left, right, *sum);
                }
                for a in &mut a[..ROWS.div_ceil(GROUP)] {
                    *a = hide(a.wrapping_add(a_inner));
                }
                b = b.wrapping_add(b_inner);
            }
        }
        // Rows that touch are written two at a time: both are of one group.
        let dense = c_row == 8 && block.last == 8;
        let to = |r: usize| block.c[r / GROUP].wrapping_add(r % GROUP * c_row);
        let mut r = 0;
        while r < ROWS {
            let (this, next) = (sums[r], if r + 1 < ROWS { sums[r + 1] } else { _mm512_setzero_ps() });
            let even = _mm512_permutex2var_ps(this, evens, next);
            let sum = _mm512_add_ps(even, _mm512_permutex2var_ps(this, odds, next));
            let sum = _mm512_max_ps(floor, sum);
            if dense && r + 1 < ROWS {
                _mm512_storeu_ps(to(r), sum);
                r += 2;
                continue;
            }
            _mm512_mask_storeu_ps(to(r), columns, sum);
            if r + 1 < ROWS {
                _mm512_mask_storeu_ps(to(r + 1).wrapping_sub(8), columns << 8, sum);
            }
            r += 2;
        }
    }
}
