//! The instructions. Functions here need what [`super::available`] asks for.
#![allow(unsafe_code)]

use super::super::avx512::transpose16;
use super::super::stretches;
use super::{B_TILE, CHUNK, Init, Product, TILE};
use crate::Later;
use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::Cell;
use std::ptr;

// The compiler knows no type that lives in tiles, so it never touches them: they keep their values from one piece of
// assembly to the next. Tiles 0 to 3 hold C, 4 holds A, 5 holds B (the CPU renames them); where B stays, 0 and 1 hold C, 2 and 3
// hold A, 4 to 7 hold B.

/// The shape of all tiles, as `ldtilecfg` reads it: palette 1, bytes per row, rows.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tile of A.
const A: usize = 4;
/// Tile of B.
const B: usize = 5;
/// Tiles that there are.
const TILES: usize = 8;
/// Bytes of a row of any tile, and of 16 columns of C.
const ROW: usize = 64;
/// Bytes of a tile of B.
const B_BYTES: usize = B_TILE * 2;

/// Chunks of four tiles of B that stay in the L1 cache while rows of A pass by: 32 of 48 kB. C carries the sums from one
/// stretch of k to the next, which changes no bits.
const L1_CHUNKS: usize = 8;

thread_local! {
    /// Rows of the tiles of A and C on this thread; 0 if tiles are not configured.
    static ROWS: Cell<usize> = const { Cell::new(0) };
}

/// Makes tiles of A and C `rows` high (1 to 16) and that of B 16; all are 64 bytes wide.
///
/// # Safety
/// AMX was found.
pub(super) unsafe fn configure(rows: usize) {
    if ROWS.replace(rows) == rows {
        return;
    }
    let mut config = Config { palette: 1, start_row: 0, reserved: [0; 14], bytes: [0; 16], rows: [0; 16] };
    config.bytes[..TILES].fill(ROW as u16);
    config.rows[..B].fill(rows as u8);
    config.rows[B..TILES].fill(TILE as u8);
    // SAFETY: the CPU has AMX; no row count is zero.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, preserves_flags, readonly)) };
}

/// Gives the tiles back, if they are configured: a thread with tiles in use is slower to switch.
pub(super) fn release() {
    if ROWS.replace(0) != 0 {
        // SAFETY: tiles were configured, so the CPU has AMX.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
}

#[inline(always)]
pub(super) unsafe fn zero<const T: usize>() {
    // SAFETY: the CPU has AMX and tiles are configured.
    unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, preserves_flags, nomem)) };
}

/// Reads rows of 64 bytes, `stride` bytes apart.
#[inline(always)]
pub(super) unsafe fn load<const T: usize>(from: *const u8, stride: usize) {
    // SAFETY: the caller lets these rows be read.
    unsafe {
        asm!("tileloadd tmm{t}, [{from} + {stride}*1]", t = const T, from = in(reg) from, stride = in(reg) stride,
            options(nostack, preserves_flags, readonly))
    };
}

/// Writes rows of 64 bytes, `stride` bytes apart.
#[inline(always)]
pub(super) unsafe fn store<const T: usize>(to: *mut u8, stride: usize) {
    // SAFETY: the caller lets these rows be written.
    unsafe {
        asm!("tilestored [{to} + {stride}*1], tmm{t}", t = const T, to = in(reg) to, stride = in(reg) stride,
            options(nostack, preserves_flags))
    };
}

/// `C += A · B` over one chunk, for these tiles.
#[inline(always)]
pub(super) unsafe fn dot<const C: usize, const A: usize, const B: usize>() {
    // SAFETY: the CPU has AMX and tiles are configured.
    unsafe {
        asm!("tdpbf16ps tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
            options(nostack, preserves_flags, nomem))
    };
}

/// Some tiles of C side by side, and all rows below; strides in bytes.
#[derive(Clone, Copy)]
struct Strip {
    /// Tiles below one another.
    tiles: usize,
    outer: usize,
    chunks: usize,
    a: *const u8,
    a_row: usize,
    a_outer: usize,
    b: *const u8,
    /// From a tile of columns to the next.
    b_tile: usize,
    c: *mut u8,
    c_row: usize,
    /// What sums begin with: rows `start_row` apart (0 for the same row in all), or zero if null.
    start: *const u8,
    start_row: usize,
}

/// Runs the statement for `$t` = 0 up to `$wide`, which is at most 4, with `$t` as a constant.
macro_rules! across {
    ($t:ident < $wide:ident: $run:expr) => {
        across!($t < $wide: $run, 0 1 2 3)
    };
    ($t:ident < $wide:ident: $run:expr, $($number:literal)+) => {
        $(if $number < $wide {
            const $t: usize = $number;
            $run
        })+
    };
}

/// A strip of `WIDE` tiles. On Sapphire Rapids this shape (one of A, four of B) computes as fast as two by two while
/// operands are in L1, writes whole rows of C, and wastes less at the last rows.
///
/// # Safety
/// AMX was found and tiles are configured; all that the strip reaches may be read and written.
unsafe fn strip<const WIDE: usize>(strip: &Strip) {
    let Strip { a_row, b_tile, c_row, start_row, .. } = *strip;
    let mut later = Later::take();
    // SAFETY: the caller's contract.
    unsafe {
        for i in 0..strip.tiles {
            if strip.start.is_null() {
                across!(T < WIDE: zero::<T>());
            } else {
                let start = strip.start.add(i * TILE * start_row);
                across!(T < WIDE: load::<T>(start.add(T * ROW), start_row));
            }
            let mut b = strip.b;
            for o in 0..strip.outer {
                let mut a = strip.a.add(i * TILE * a_row + o * strip.a_outer);
                for _ in 0..strip.chunks {
                    load::<A>(a, a_row);
                    across!(T < WIDE: {
                        load::<B>(b.add(T * b_tile), ROW);
                        dot::<T, A, B>();
                    });
                    later.ask::<2>();
                    a = a.wrapping_add(ROW);
                    b = b.wrapping_add(B_BYTES);
                }
            }
            let c = strip.c.add(i * TILE * c_row);
            across!(T < WIDE: store::<T>(c.add(T * ROW), c_row));
        }
    }
}

/// Chunks of k whose tiles of B can stay.
const STAY_CHUNKS: usize = 2;

/// [`strip`] of one or two tiles over one or two chunks, whose tiles of B are read once for all rows: nearly half of what is read
/// where k is short.
///
/// # Safety
/// As [`strip`]; tiles are 16 rows high.
unsafe fn strip_of_few<const WIDE: usize, const CHUNKS: usize>(strip: &Strip) {
    let Strip { a_row, b_tile, c_row, start_row, .. } = *strip;
    // From a chunk of A to the next.
    let a_chunk = if strip.chunks == CHUNKS { ROW } else { strip.a_outer };
    // SAFETY: the caller's contract.
    unsafe {
        load::<4>(strip.b, ROW);
        if CHUNKS > 1 {
            load::<5>(strip.b.add(B_BYTES), ROW);
        }
        if WIDE > 1 {
            load::<6>(strip.b.add(b_tile), ROW);
        }
        if WIDE > 1 && CHUNKS > 1 {
            load::<7>(strip.b.add(b_tile + B_BYTES), ROW);
        }
        for i in 0..strip.tiles {
            if strip.start.is_null() {
                across!(T < WIDE: zero::<T>());
            } else {
                let start = strip.start.add(i * TILE * start_row);
                across!(T < WIDE: load::<T>(start.add(T * ROW), start_row));
            }
            let a = strip.a.add(i * TILE * a_row);
            load::<2>(a, a_row);
            if CHUNKS > 1 {
                load::<3>(a.add(a_chunk), a_row);
            }
            dot::<0, 2, 4>();
            if WIDE > 1 {
                dot::<1, 2, 6>();
            }
            if CHUNKS > 1 {
                dot::<0, 3, 5>();
            }
            if WIDE > 1 && CHUNKS > 1 {
                dot::<1, 3, 7>();
            }
            let c = strip.c.add(i * TILE * c_row);
            across!(T < WIDE: store::<T>(c.add(T * ROW), c_row));
        }
    }
}

/// # Safety
/// AMX was found and is held; A, B, the bias and C hold what the product reaches.
pub(super) unsafe fn product(p: &Product, a: *const u16, packed: *const u16, init: Init, c: *mut f32) {
    let whole = p.m / TILE * TILE;
    // SAFETY: the caller's contract; rows of the two calls do not overlap.
    unsafe {
        if whole > 0 {
            rows(p, 0, whole / TILE, TILE, a, packed, init, c);
        }
        if whole < p.m {
            rows(p, whole, 1, p.m - whole, a, packed, init, c);
        }
    }
}

/// Computes `tiles` tiles of `height` rows each, from row `i` on.
#[expect(clippy::too_many_arguments)]
unsafe fn rows(
    p: &Product,
    i: usize,
    tiles: usize,
    height: usize,
    a: *const u16,
    packed: *const u16,
    init: Init,
    c: *mut f32,
) {
    let chunks = p.inner.div_ceil(CHUNK);
    let b_tile = p.outer * chunks * B_BYTES;
    let longest = if tiles >= 4 { L1_CHUNKS } else { usize::MAX };
    let few = height == TILE && tiles >= 2 && (1..=STAY_CHUNKS).contains(&(p.outer * chunks));
    let most = if few { 2 } else { 4 };
    let mut j = 0;
    // SAFETY: the caller's contract; these rows and columns of the product.
    unsafe {
        configure(height);
        while j < p.n {
            // Columns that do not fill a tile come last and alone.
            let wide = ((p.n - j) / TILE).min(most);
            let columns = if wide == 0 { p.n - j } else { wide * TILE };
            let mut bias = Aligned([0.0; 4 * TILE]);
            if let Init::Bias(values) = init {
                // By whole tiles: a copy of unknown length is a call.
                for (to, from) in bias.0.as_chunks_mut::<TILE>().0.iter_mut().zip(values[j..].as_chunks().0).take(wide)
                {
                    *to = *from;
                }
                if wide == 0 {
                    bias.0[..columns].copy_from_slice(&values[j..j + columns]);
                }
            }
            for stretch in stretches(p.outer, chunks, longest) {
                let c = c.add(i * p.c_row + j).cast::<u8>();
                let (start, start_row) = match init {
                    Init::Zero if stretch.is_first() => (ptr::null(), 0),
                    Init::Bias(_) if stretch.is_first() => (bias.0.as_ptr().cast(), 0),
                    _ => (c.cast_const(), p.c_row * 4),
                };
                let part = Strip {
                    tiles,
                    outer: stretch.outers,
                    chunks: stretch.inners,
                    a: a.add(i * p.a_row + stretch.o * p.a_outer + stretch.q * CHUNK).cast(),
                    a_row: p.a_row * 2,
                    a_outer: p.a_outer * 2,
                    b: packed.cast::<u8>().add(j / TILE * b_tile + (stretch.o * chunks + stretch.q) * B_BYTES),
                    b_tile,
                    c,
                    c_row: p.c_row * 4,
                    start,
                    start_row,
                };
                match wide {
                    2 if few && p.outer * chunks == 2 => strip_of_few::<2, 2>(&part),
                    2 if few => strip_of_few::<2, 1>(&part),
                    1 if few && p.outer * chunks == 2 => strip_of_few::<1, 2>(&part),
                    4 => strip::<4>(&part),
                    3 => strip::<3>(&part),
                    2 => strip::<2>(&part),
                    1 => strip::<1>(&part),
                    _ => last_columns(&part, height, columns),
                }
            }
            j += columns;
        }
    }
}

/// On a cache line: a tile's rows are read from it again and again.
#[repr(align(64))]
struct Aligned<const N: usize>([f32; N]);

/// Computes a strip of fewer than 16 columns tile by tile, by way of memory that may be written beyond them.
///
/// # Safety
/// As [`strip`], of which only `columns` of the start and of C may be touched.
#[target_feature(enable = "avx512f")]
unsafe fn last_columns(part: &Strip, height: usize, columns: usize) {
    let mut scratch = Aligned([0.0; TILE * TILE]);
    let (at, mask) = (scratch.0.as_mut_ptr(), lanes(columns));
    // SAFETY: the caller's contract; other columns are masked, and `scratch` holds 16 rows.
    unsafe {
        for i in 0..part.tiles {
            let c = part.c.add(i * TILE * part.c_row);
            let mut tile = Strip { tiles: 1, c: at.cast(), c_row: ROW, ..*part };
            tile.a = part.a.add(i * TILE * part.a_row);
            if part.start_row != 0 {
                for r in 0..height {
                    let from = part.start.add((i * TILE + r) * part.start_row);
                    _mm512_store_ps(at.add(r * TILE), _mm512_maskz_loadu_ps(mask, from.cast()));
                }
                (tile.start, tile.start_row) = (at.cast(), ROW);
            }
            strip::<1>(&tile);
            for r in 0..height {
                _mm512_mask_storeu_ps(c.add(r * part.c_row).cast(), mask, _mm512_load_ps(at.add(r * TILE)));
            }
        }
    }
}

/// The first `count` of 16 lanes; all if there are more.
#[inline(always)]
pub(super) fn lanes(count: usize) -> __mmask16 {
    if count >= 16 { !0 } else { (1 << count) - 1 }
}

/// Rounds two registers: `low` to the low half.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn round(low: __m512, high: __m512) -> __m512i {
    // SAFETY: both are 64 bytes of any value.
    unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(high, low)) }
}

/// Pairs of rows: word j of the result is (`even[j]`, `odd[j]`), rounded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn round_pairs(even: __m512, odd: __m512) -> __m512i {
    // Half-words 2j and 2j + 1 are j of the low half and j of the high half.
    let order = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1,
        16, 0,
    );
    _mm512_permutexvar_epi16(order, round(even, odd))
}

/// 32 rows of up to 16 columns as 16 rows of pairs.
///
/// # Safety
/// AMX was found; `rows` rows of `columns` values may be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn row_pairs(rows: usize, columns: usize, src: *const f32, row: usize) -> [__m512i; 16] {
    let mut pairs = [_mm512_setzero_si512(); 16];
    let mask = lanes(columns);
    for (r, pair) in pairs.iter_mut().enumerate() {
        let (even, odd) = (if 2 * r < rows { mask } else { 0 }, if 2 * r + 1 < rows { mask } else { 0 });
        let at = src.wrapping_add(2 * r * row);
        // SAFETY: lanes that are not the caller's are not read.
        *pair =
            unsafe { round_pairs(_mm512_maskz_loadu_ps(even, at), _mm512_maskz_loadu_ps(odd, at.wrapping_add(row))) };
    }
    pairs
}

/// # Safety
/// As [`row_pairs`].
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn pack_rows(rows: usize, columns: usize, src: *const f32, row: usize, out: &mut [u16; B_TILE]) {
    // SAFETY: the caller's contract.
    let pairs = unsafe { row_pairs(rows, columns, src, row) };
    for (pair, to) in pairs.iter().zip(out.chunks_exact_mut(CHUNK)) {
        // SAFETY: 32 half-words are 64 bytes.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), *pair) };
    }
}

/// # Safety
/// AMX was found; `columns` columns of `rows` values, `col` apart, may be read.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn pack_columns(rows: usize, columns: usize, src: *const f32, col: usize, out: &mut [u16; B_TILE]) {
    let mut words = [_mm512_setzero_si512(); 16];
    let (low, high) = (lanes(rows), lanes(rows.saturating_sub(16)));
    for (j, word) in words.iter_mut().enumerate().take(columns) {
        let at = src.wrapping_add(j * col);
        // SAFETY: lanes that are not the caller's are not read.
        *word = unsafe { round(_mm512_maskz_loadu_ps(low, at), _mm512_maskz_loadu_ps(high, at.wrapping_add(16))) };
    }
    for (pair, to) in transpose16(&words).iter().zip(out.chunks_exact_mut(CHUNK)) {
        // SAFETY: 32 half-words are 64 bytes.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), *pair) };
    }
}

/// # Safety
/// AMX was found; the source holds these rows, the destination these rows in whole chunks.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn rows_to_bf16(
    rows: usize,
    cols: usize,
    src: *const f32,
    src_row: usize,
    dst: *mut u16,
    dst_row: usize,
) {
    for r in 0..rows {
        for c in (0..cols).step_by(CHUNK) {
            let at = src.wrapping_add(r * src_row + c);
            let (low, high) = (lanes(cols - c), lanes((cols - c).saturating_sub(16)));
            // SAFETY: lanes beyond the source are not read; the destination has whole chunks.
            unsafe {
                let chunk = round(_mm512_maskz_loadu_ps(low, at), _mm512_maskz_loadu_ps(high, at.wrapping_add(16)));
                _mm512_storeu_si512(dst.add(r * dst_row + c).cast(), chunk);
            }
        }
    }
}

/// # Safety
/// AMX was found; the source holds these rows, the destination `cols` rows of whole chunks.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn transpose_to_bf16(
    rows: usize,
    cols: usize,
    src: *const f32,
    src_row: usize,
    dst: *mut u16,
    dst_row: usize,
) {
    for r in (0..rows).step_by(CHUNK) {
        for c in (0..cols).step_by(TILE) {
            let columns = TILE.min(cols - c);
            // SAFETY: rows and columns of the source; rows `c..` of the destination have whole chunks.
            unsafe {
                let pairs = row_pairs(CHUNK.min(rows - r), columns, src.add(r * src_row + c), src_row);
                for (j, chunk) in transpose16(&pairs).iter().enumerate().take(columns) {
                    _mm512_storeu_si512(dst.add((c + j) * dst_row + r).cast(), *chunk);
                }
            }
        }
    }
}

/// 32 rows of 32 columns kept as words, as pairs of rows: of the first 16 columns and of the others.
///
/// # Safety
/// The CPU has AVX-512; `rows` rows of 16 words, `row` words apart, may be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn word_pairs(rows: usize, src: *const u32, row: usize) -> [[__m512i; 16]; 2] {
    let [mut first, mut second] = [[_mm512_setzero_si512(); 16]; 2];
    let high = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    for (r, (first, second)) in first.iter_mut().zip(&mut second).enumerate() {
        let at = src.wrapping_add(2 * r * row);
        let (even, odd) = (if 2 * r < rows { !0 } else { 0 }, if 2 * r + 1 < rows { !0 } else { 0 });
        // SAFETY: rows that are not the caller's are not read.
        let (even, odd) = unsafe {
            (_mm512_maskz_loadu_epi32(even, at.cast()), _mm512_maskz_loadu_epi32(odd, at.wrapping_add(row).cast()))
        };
        // Bits of the first operand where the third is clear, else of the second.
        const CHOOSE: i32 = 0b1100_1010;
        *first = _mm512_ternarylogic_epi32::<CHOOSE>(high, _mm512_slli_epi32::<16>(odd), even);
        *second = _mm512_ternarylogic_epi32::<CHOOSE>(high, odd, _mm512_srli_epi32::<16>(even));
    }
    [first, second]
}

/// # Safety
/// AMX was found; the source holds these rows of words, the destination `cols` rows of whole chunks.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn transpose_words(rows: usize, cols: usize, src: *const u16, dst: *mut u16, dst_row: usize) {
    for r in (0..rows).step_by(CHUNK) {
        for c in (0..cols).step_by(CHUNK) {
            // SAFETY: rows and columns of the source; rows `c..` of the destination have whole chunks.
            unsafe {
                let pairs = word_pairs(CHUNK.min(rows - r), src.add(r * cols + c).cast(), cols / 2);
                for (half, pairs) in pairs.iter().enumerate() {
                    for (j, chunk) in transpose16(pairs).iter().enumerate() {
                        _mm512_storeu_si512(dst.add((c + half * TILE + j) * dst_row + r).cast(), *chunk);
                    }
                }
            }
        }
    }
}

/// # Safety
/// AMX was found; the source holds these rows of words, `out` as much as is packed.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn pack_words(rows: usize, cols: usize, src: *const u16, out: *mut u16) {
    let chunks = rows.div_ceil(CHUNK);
    for c in (0..cols).step_by(CHUNK) {
        for r in (0..rows).step_by(CHUNK) {
            // SAFETY: rows and columns of the source, and their tiles.
            unsafe {
                let pairs = word_pairs(CHUNK.min(rows - r), src.add(r * cols + c).cast(), cols / 2);
                for (half, pairs) in pairs.iter().enumerate() {
                    let tile = out.add(((c / TILE + half) * chunks + r / CHUNK) * B_TILE);
                    for (i, pair) in pairs.iter().enumerate() {
                        _mm512_storeu_si512(tile.add(i * CHUNK).cast(), *pair);
                    }
                }
            }
        }
    }
}
