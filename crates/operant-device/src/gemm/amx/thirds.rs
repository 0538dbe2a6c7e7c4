//! Products of f32 on tiles, within the error bound of a sum in f32: a number is the sum of three bf16 numbers, to the last bit, and
//! of the nine products of two such sums the six that a sum in f32 can feel are added. The other three are less than 2⁻²³ of
//! the whole.
//!
//! While tiles multiply, registers take apart what tiles read next. Functions here need what [`super::available`] asks for.
#![allow(unsafe_code)]

mod few_columns;

use super::super::avx512::transpose16;
use super::super::{Init, Product, Stretch, stretches};
use super::tiles::{configure, dot, lanes, load, store, zero};
use super::{B_TILE, CHUNK, PARTS, TILE};
use crate::Later;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ptr;

/// Bytes of a row of any tile.
const ROW: usize = 64;
/// Bytes of a tile of one part.
const TILE_BYTES: usize = TILE * ROW;
/// Bytes of the tiles of all parts.
const PARTS_BYTES: usize = PARTS * TILE_BYTES;
/// Most chunks of k that are taken apart at once, for two tiles of rows.
const MOST_CHUNKS: usize = 4;
/// Chunks of rows that [`outer`] takes apart at once.
const OUTER_CHUNKS: usize = 2;
/// Rows or pairs of rows that are taken apart in one go, which divides a tile's: so much keeps registers busy for a step.
const GROUP: usize = 4;
/// Products of parts per chunk: of A and of B. An order in which each part of B is read once.
const TERMS: usize = 6;

/// Three bf16 numbers, in the upper halves of words, whose sum is the word's. The first is rounded, so that what follows has
/// either sign and what is left out does not add up.
#[inline(always)]
unsafe fn parts(x: __m512i) -> [__m512i; PARTS] {
    // SAFETY: the caller has the instructions.
    unsafe {
        let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
        let first = _mm512_add_epi32(x, _mm512_set1_epi32(0x8000));
        let rest = less(x, _mm512_and_si512(first, upper));
        [first, rest, less(rest, _mm512_and_si512(rest, upper))]
    }
}

#[inline(always)]
unsafe fn less(x: __m512i, y: __m512i) -> __m512i {
    // SAFETY: the caller has the instructions.
    unsafe { _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y))) }
}

/// Takes apart 32 terms of a row: the upper halves of two registers side by side, a tile of rows per part.
#[inline(always)]
unsafe fn split_terms(low: __m512i, high: __m512i, to: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        let odd = _mm512_set_epi16(
            63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11,
            9, 7, 5, 3, 1,
        );
        let (low, high) = (parts(low), parts(high));
        for part in 0..PARTS {
            let words = _mm512_permutex2var_epi16(low[part], odd, high[part]);
            _mm512_store_si512(to.add(part * TILE_BYTES).cast(), words);
        }
    }
}

/// Takes apart two registers of 16 words, of which each pair is a word of a tile: the first's in the lower half. A tile per part.
#[inline(always)]
unsafe fn split_pair(first: __m512i, second: __m512i, to: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
        let (first, second) = (parts(first), parts(second));
        for part in 0..PARTS {
            // Bits of the second operand where the first is set, else of the third.
            const CHOOSE: i32 = 0b1100_1010;
            let lower = _mm512_srli_epi32::<16>(first[part]);
            let words = _mm512_ternarylogic_epi32::<CHOOSE>(upper, second[part], lower);
            _mm512_store_si512(to.add(part * TILE_BYTES).cast(), words);
        }
    }
}

/// # Safety
/// AMX was found; `rows` (at most 32) rows of `columns` values, `row` apart, may be read, and `to` is aligned room for a tile of
/// each part.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn pack_rows(rows: usize, columns: usize, src: *const f32, row: usize, to: *mut u8) {
    for pair in (0..TILE).step_by(GROUP) {
        // SAFETY: the caller's contract.
        unsafe { pack_pairs(rows, columns, src, row, pair, to) };
    }
}

/// Some pairs of [`pack_rows`], from `first` on; rows beyond those there are become zeros.
#[inline(always)]
unsafe fn pack_pairs(rows: usize, columns: usize, src: *const f32, row: usize, first: usize, to: *mut u8) {
    // SAFETY: the caller's contract; lanes that are not the caller's are not read.
    unsafe {
        if columns == TILE && 2 * (first + GROUP) <= rows {
            let src = src.add(2 * first * row);
            for pair in 0..GROUP {
                let even = _mm512_loadu_si512(src.add(2 * pair * row).cast());
                let odd = _mm512_loadu_si512(src.add((2 * pair + 1) * row).cast());
                split_pair(even, odd, to.add((first + pair) * ROW));
            }
            return;
        }
        for pair in first..first + GROUP {
            let at = src.wrapping_add(2 * pair * row);
            let mask = |row| if row < rows { lanes(columns) } else { 0 };
            let even = _mm512_maskz_loadu_epi32(mask(2 * pair), at.cast());
            let odd = _mm512_maskz_loadu_epi32(mask(2 * pair + 1), at.wrapping_add(row).cast());
            split_pair(even, odd, to.add(pair * ROW));
        }
    }
}

/// # Safety
/// As [`pack_rows`], with columns `col` apart and rows that touch.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn pack_columns(rows: usize, columns: usize, src: *const f32, col: usize, to: *mut u8) {
    // SAFETY: the caller's contract; lanes that are not the caller's are not read.
    unsafe {
        for (half, first) in [0, TILE].into_iter().enumerate() {
            let to = to.add(half * TILE / 2 * ROW);
            let src = src.wrapping_add(first);
            if first + TILE <= rows && columns == TILE {
                turn_and_split(|j| _mm512_loadu_si512(src.add(j * col).cast()), to);
                continue;
            }
            let mask = |j| if j < columns { lanes(rows.saturating_sub(first)) } else { 0 };
            turn_and_split(|j| _mm512_maskz_loadu_epi32(mask(j), src.wrapping_add(j * col).cast()), to);
        }
    }
}

/// Takes apart 16 columns of 16 terms: eight pairs of them.
#[inline(always)]
unsafe fn turn_and_split(column: impl Fn(usize) -> __m512i, to: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        let terms = std::array::from_fn(column);
        for (pair, [even, odd]) in transpose16(&terms).as_chunks().0.iter().enumerate() {
            split_pair(*even, *odd, to.add(pair * ROW));
        }
    }
}

/// Turns a tile of 16 by 16 words in place.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn transpose(tile: *mut u8) {
    let mut words = [_mm512_setzero_si512(); TILE];
    // SAFETY: the caller's tile.
    unsafe {
        for (r, word) in words.iter_mut().enumerate() {
            *word = _mm512_load_si512(tile.add(r * ROW).cast());
        }
        for (r, word) in transpose16(&words).iter().enumerate() {
            _mm512_store_si512(tile.add(r * ROW).cast(), *word);
        }
    }
}

/// Columns of C that do not fill a tile, for two tiles of rows.
#[repr(align(64))]
struct LastColumns([f32; 2 * TILE * TILE]);

/// Room for the parts of two tiles of rows.
#[repr(C, align(64))]
struct Room([MaybeUninit<u8>; 2 * MOST_CHUNKS * PARTS_BYTES]);

/// Rows of A that are taken apart together, over a stretch of k: chunk by chunk, tile by tile, part by part.
#[derive(Clone, Copy)]
struct Rows {
    a: *const f32,
    a_row: usize,
    a_outer: usize,
    /// How many, at most two tiles.
    rows: usize,
    /// Chunks of an outer term in the stretch, and all of them.
    inners: usize,
    chunks: usize,
    /// Terms of an outer term from the stretch's first on.
    terms: usize,
    to: *mut u8,
}

impl Rows {
    /// Takes apart the terms of some rows in `chunk`.
    #[inline(always)]
    unsafe fn split(&self, chunk: usize, first: usize) {
        let (o, q) = if chunk < self.inners { (0, chunk) } else { (chunk / self.inners, chunk % self.inners) };
        let left = self.terms - q * CHUNK;
        let from = self.a.wrapping_add(first * self.a_row + o * self.a_outer + q * CHUNK);
        let to = self.to.wrapping_add((2 * chunk + first / TILE) * PARTS_BYTES + first % TILE * ROW);
        // SAFETY: the caller's contract; terms beyond the last are not read.
        unsafe {
            if left >= CHUNK && first + GROUP <= self.rows {
                for row in 0..GROUP {
                    let from = from.add(row * self.a_row);
                    let (low, high) = (_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(16).cast()));
                    split_terms(low, high, to.add(row * ROW));
                }
                return;
            }
            let (low, high) = (lanes(left), lanes(left.saturating_sub(16)));
            for row in 0..GROUP.min(self.rows - first) {
                let from = from.wrapping_add(row * self.a_row);
                let (low, high) = (
                    _mm512_maskz_loadu_epi32(low, from.cast()),
                    _mm512_maskz_loadu_epi32(high, from.wrapping_add(16).cast()),
                );
                split_terms(low, high, to.add(row * ROW));
            }
        }
    }
}

/// What registers do while tiles multiply.
trait Beside {
    /// Some of it, for each step of the tiles.
    unsafe fn some(&mut self);
}

/// Takes rows apart, some at each step.
struct Split {
    rows: Rows,
    chunk: usize,
    row: usize,
    each: usize,
}

impl Split {
    fn new(rows: Rows, steps: usize) -> Self {
        Self { rows, chunk: 0, row: 0, each: (rows.rows.div_ceil(GROUP) * rows.chunks).div_ceil(steps.max(1)) }
    }

    #[inline(always)]
    unsafe fn take(&mut self, count: usize) {
        for _ in 0..count {
            if self.chunk == self.rows.chunks {
                return;
            }
            // SAFETY: the caller's contract.
            unsafe { self.rows.split(self.chunk, self.row) };
            self.row += GROUP;
            if self.row >= self.rows.rows {
                (self.chunk, self.row) = (self.chunk + 1, 0);
            }
        }
    }
}

impl Beside for Split {
    #[inline(always)]
    unsafe fn some(&mut self) {
        // SAFETY: the caller's contract.
        unsafe { self.take(self.each) };
    }
}

/// One or two tiles of rows by one or two of columns.
#[derive(Clone, Copy)]
struct Block {
    chunks: usize,
    /// Tiles of A: of chunk c, `c · a_chunk` on, the second tile of rows `a_tile` after the first.
    a: *const u8,
    a_chunk: usize,
    a_tile: usize,
    /// Tiles of B, whose chunks follow each other; the second tile of columns `b_tile` after the first.
    b: *const u8,
    b_tile: usize,
    c: *mut u8,
    c_row: usize,
    /// What sums begin with: rows `start_row` apart (0 for the same row in all), or zero if null.
    start: *const u8,
    start_row: usize,
}

impl Block {
    /// Adds all chunks, with `TALL` for two tiles of rows and `WIDE` for two of columns.
    ///
    /// # Safety
    /// AMX was found and tiles are configured; all that the block reaches may be read and written.
    #[inline(always)]
    unsafe fn run<const TALL: bool, const WIDE: bool>(&self, beside: &mut impl Beside) {
        let Self { a_tile, b_tile, c, c_row, start, start_row, .. } = *self;
        let below = TILE * c_row;
        // SAFETY: the caller's contract.
        unsafe {
            if start.is_null() {
                zero::<0>();
                zero::<1>();
                zero::<2>();
                zero::<3>();
            } else {
                load::<0>(start, start_row);
                if WIDE {
                    load::<1>(start.add(ROW), start_row);
                }
                if TALL {
                    load::<2>(start.add(TILE * start_row), start_row);
                }
                if TALL && WIDE {
                    load::<3>(start.add(TILE * start_row + ROW), start_row);
                }
            }
            let at =
                |chunk: usize| (self.a.wrapping_add(chunk * self.a_chunk), self.b.wrapping_add(chunk * PARTS_BYTES));
            if self.chunks > 0 {
                let (a, b) = at(0);
                left::<TALL>(a, a_tile);
                right::<WIDE>(b.add(2 * TILE_BYTES), b_tile);
            }
            let mut later = Later::take();
            // Tiles are read before registers write: a tile waits for what is on its way to addresses with the same last bits.
            for chunk in 0..self.chunks {
                let (a, b) = at(chunk);
                dots::<TALL, WIDE>();
                right::<WIDE>(b.add(TILE_BYTES), b_tile);
                beside.some();
                later.ask::<3>();
                dots::<TALL, WIDE>();
                left::<TALL>(a.add(TILE_BYTES), a_tile);
                beside.some();
                later.ask::<3>();
                dots::<TALL, WIDE>();
                right::<WIDE>(b, b_tile);
                beside.some();
                later.ask::<3>();
                dots::<TALL, WIDE>();
                left::<TALL>(a.add(2 * TILE_BYTES), a_tile);
                beside.some();
                later.ask::<3>();
                dots::<TALL, WIDE>();
                left::<TALL>(a, a_tile);
                beside.some();
                later.ask::<3>();
                dots::<TALL, WIDE>();
                if chunk + 1 < self.chunks {
                    let (a, b) = at(chunk + 1);
                    left::<TALL>(a, a_tile);
                    right::<WIDE>(b.add(2 * TILE_BYTES), b_tile);
                }
                beside.some();
                later.ask::<3>();
            }
            store::<0>(c, c_row);
            if WIDE {
                store::<1>(c.add(ROW), c_row);
            }
            if TALL {
                store::<2>(c.add(below), c_row);
            }
            if TALL && WIDE {
                store::<3>(c.add(below + ROW), c_row);
            }
        }
    }

    /// [`Block::run`] for these sizes.
    ///
    /// # Safety
    /// As [`Block::run`].
    #[inline(always)]
    unsafe fn run_of(&self, tall: bool, wide: bool, beside: &mut impl Beside) {
        // SAFETY: the caller's contract.
        unsafe {
            match (tall, wide) {
                (true, true) => self.run::<true, true>(beside),
                (true, false) => self.run::<true, false>(beside),
                (false, true) => self.run::<false, true>(beside),
                (false, false) => self.run::<false, false>(beside),
            }
        }
    }
}

/// Reads a part of A.
#[inline(always)]
unsafe fn left<const TALL: bool>(a: *const u8, a_tile: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        load::<4>(a, ROW);
        if TALL {
            load::<5>(a.add(a_tile), ROW);
        }
    }
}

/// Reads a part of B.
#[inline(always)]
unsafe fn right<const WIDE: bool>(b: *const u8, b_tile: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        load::<6>(b, ROW);
        if WIDE {
            load::<7>(b.add(b_tile), ROW);
        }
    }
}

/// Adds the product of the parts that were read.
#[inline(always)]
unsafe fn dots<const TALL: bool, const WIDE: bool>() {
    // SAFETY: the caller's contract.
    unsafe {
        dot::<0, 4, 6>();
        if WIDE {
            dot::<1, 4, 7>();
        }
        if TALL {
            dot::<2, 5, 6>();
        }
        if TALL && WIDE {
            dot::<3, 5, 7>();
        }
    }
}

/// C = init + A·B; inner terms of A lie together.
///
/// # Safety
/// AMX was found and is held; A, B, the bias and C hold what the product reaches.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn product(p: &Product, a: *const f32, packed: *const u16, init: Init, c: *mut f32) {
    let chunks = p.inner.div_ceil(CHUNK);
    let mut rooms = [const { Room([MaybeUninit::uninit(); 2 * MOST_CHUNKS * PARTS_BYTES]) }; 2];
    let rooms = [0, 1].map(|i| rooms[i].0.as_mut_ptr().cast::<u8>());
    for part in stretches(p.outer, chunks, MOST_CHUNKS) {
        let rows_at = |i: usize, room: usize| {
            let rows = height(p.m, i);
            Rows {
                a: a.wrapping_add(i * p.a_row + part.o * p.a_outer + part.q * CHUNK),
                a_row: p.a_row,
                a_outer: p.a_outer,
                rows,
                inners: part.inners,
                chunks: if rows == 0 { 0 } else { part.outers * part.inners },
                terms: p.inner - part.q * CHUNK,
                to: rooms[room],
            }
        };
        // SAFETY: the caller's contract; rooms hold two tiles of rows.
        unsafe {
            let mut now = rows_at(0, 0);
            Split::new(now, 1).some();
            let (mut i, mut room) = (0, 0);
            while i < p.m {
                room = 1 - room;
                let next = rows_at(i + now.rows, room);
                columns(p, part, i, now, next, packed, init, c);
                i += now.rows;
                now = next;
            }
        }
    }
}

/// Rows from `i` on that are computed together: two tiles, one, or what is left.
#[inline(always)]
fn height(m: usize, i: usize) -> usize {
    match m - i {
        left if left >= 2 * TILE => 2 * TILE,
        left => left.min(TILE),
    }
}

/// Adds a stretch of k to all columns of these rows, from row `i` on, and takes `next` apart meanwhile.
///
/// # Safety
/// As [`product`].
#[expect(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn columns(
    p: &Product,
    part: Stretch,
    i: usize,
    now: Rows,
    next: Rows,
    packed: *const u16,
    init: Init,
    c: *mut f32,
) {
    let all_chunks = p.outer * p.inner.div_ceil(CHUNK);
    let tall = now.rows > TILE;
    // SAFETY: the caller's contract.
    unsafe {
        configure(now.rows.min(TILE));
        let b_tile = all_chunks * PARTS_BYTES;
        let first = (part.o * p.inner.div_ceil(CHUNK) + part.q) * PARTS_BYTES;
        let block = Block {
            chunks: now.chunks,
            a: now.to,
            a_chunk: 2 * PARTS_BYTES,
            a_tile: PARTS_BYTES,
            b: ptr::null(),
            b_tile,
            c: ptr::null_mut(),
            c_row: 0,
            start: ptr::null(),
            start_row: 0,
        };
        let mut beside = Split::new(next, p.n.div_ceil(2 * TILE) * now.chunks * TERMS);
        let whole = p.n / TILE * TILE;
        // There and back, so that weights that were read last are read first.
        let blocks = whole.div_ceil(2 * TILE);
        for at in 0..blocks {
            let j = 2 * TILE * if (i / (2 * TILE)).is_multiple_of(2) { at } else { blocks - 1 - at };
            let c = c.add(i * p.c_row + j).cast::<u8>();
            let (start, start_row) = match init {
                Init::Zero if part.is_first() => (ptr::null(), 0),
                Init::Bias(bias) if part.is_first() => (bias.as_ptr().add(j).cast(), 0),
                _ => (c.cast_const(), p.c_row * 4),
            };
            let b = packed.cast::<u8>().add(j / TILE * b_tile + first);
            let block = Block { b, c, c_row: p.c_row * 4, start, start_row, ..block };
            block.run_of(tall, whole - j > TILE, &mut beside);
        }
        if whole < p.n {
            // Columns that do not fill a tile, by way of memory that may be written beyond them.
            let mask = lanes(p.n - whole);
            let c = c.add(i * p.c_row + whole);
            let mut room = LastColumns([0.0; 2 * TILE * TILE]);
            for (row, to) in room.0.as_chunks_mut::<TILE>().0.iter_mut().enumerate().take(now.rows) {
                let from = match init {
                    Init::Zero if part.is_first() => continue,
                    Init::Bias(bias) if part.is_first() => bias.as_ptr().add(whole),
                    _ => c.add(row * p.c_row).cast_const(),
                };
                _mm512_store_ps(to.as_mut_ptr(), _mm512_maskz_loadu_ps(mask, from));
            }
            let b = packed.cast::<u8>().add(whole / TILE * b_tile + first);
            let (at, c_row) = (room.0.as_mut_ptr().cast::<u8>(), ROW);
            Block { b, c: at, c_row, start: at, start_row: ROW, ..block }.run_of(tall, false, &mut beside);
            for (row, from) in room.0.as_chunks::<TILE>().0.iter().enumerate().take(now.rows) {
                _mm512_mask_storeu_ps(c.add(row * p.c_row), mask, _mm512_load_ps(from.as_ptr()));
            }
        }
        beside.take(usize::MAX);
    }
}

/// Operands of [`outer`]: `C[i, j] = Σ_r A[r, i]·B[r, j]`.
#[derive(Clone, Copy)]
pub(super) struct Outer {
    /// To what C holds.
    pub(super) add: bool,
    pub(super) rows: usize,
    /// Whole tiles.
    pub(super) m: usize,
    /// Whole tiles.
    pub(super) n: usize,
    pub(super) a: *const f32,
    pub(super) a_row: usize,
    pub(super) b: *const f32,
    pub(super) b_row: usize,
    pub(super) c: *mut f32,
    pub(super) c_row: usize,
}

/// Elements of half of [`super::outer_room`]: what is multiplied, while the other half is made.
const fn half_room(m: usize, n: usize) -> usize {
    (m + n) / TILE * OUTER_CHUNKS * PARTS * B_TILE
}

/// Takes rows of A and B apart, some at each step: pairs of rows of all columns of a chunk, then what was A's is turned.
struct Pairs {
    of: Outer,
    /// The first row and those that are left.
    first: usize,
    rows: usize,
    chunks: usize,
    to: *mut u8,
    /// Which chunk, which tile of columns (of A, then of B), which pairs or part.
    chunk: usize,
    tile: usize,
    at: usize,
    each: usize,
}

impl Pairs {
    fn new(of: Outer, first: usize, to: *mut u8, steps: usize) -> Self {
        let rows = of.rows.saturating_sub(first).min(OUTER_CHUNKS * CHUNK);
        let chunks = rows.div_ceil(CHUNK);
        let work = chunks * ((of.m + of.n) / TILE * (TILE / GROUP) + of.m / TILE * PARTS);
        Self { of, first, rows, chunks, to, chunk: 0, tile: 0, at: 0, each: work.div_ceil(steps.max(1)) }
    }

    #[inline(always)]
    unsafe fn take(&mut self, count: usize) {
        let Outer { m, n, a, a_row, b, b_row, .. } = self.of;
        for _ in 0..count {
            if self.chunk == self.chunks {
                return;
            }
            let turned = self.tile < m / TILE;
            let column = self.tile * TILE;
            let (from, row) =
                if turned { (a.wrapping_add(column), a_row) } else { (b.wrapping_add(column - m), b_row) };
            let from = from.wrapping_add((self.first + self.chunk * CHUNK) * row);
            // SAFETY: the caller's contract.
            unsafe {
                let to = self.to.add((self.tile * OUTER_CHUNKS + self.chunk) * PARTS_BYTES);
                if self.at < TILE / GROUP {
                    pack_pairs(self.rows - self.chunk * CHUNK, TILE, from, row, self.at * GROUP, to);
                } else {
                    transpose(to.add((self.at - TILE / GROUP) * TILE_BYTES));
                }
            }
            self.at += 1;
            if self.at == if turned { TILE / GROUP + PARTS } else { TILE / GROUP } {
                (self.at, self.tile) = (0, self.tile + 1);
                if self.tile == (m + n) / TILE {
                    (self.tile, self.chunk) = (0, self.chunk + 1);
                }
            }
        }
    }
}

impl Beside for Pairs {
    #[inline(always)]
    unsafe fn some(&mut self) {
        // SAFETY: the caller's contract.
        unsafe { self.take(self.each) };
    }
}

/// The product over rows, of which there is one at least.
///
/// # Safety
/// AMX was found and is held; the operands hold what is reached, and `room`, on a cache line, [`super::outer_room`] elements.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn outer(of: Outer, room: *mut u16) {
    if super::few_columns(of.m, of.n) {
        // SAFETY: the caller's contract.
        unsafe { few_columns::outer(of, room.cast()) };
        return;
    }
    let rooms = [0, half_room(of.m, of.n)].map(|at| room.wrapping_add(at).cast::<u8>());
    let tile = OUTER_CHUNKS * PARTS_BYTES;
    // SAFETY: the caller's contract.
    unsafe {
        configure(TILE);
        let mut now = Pairs::new(of, 0, rooms[0], 1);
        now.some();
        let (mut first, mut turn) = (0, 0);
        while now.chunks > 0 {
            turn = 1 - turn;
            first += OUTER_CHUNKS * CHUNK;
            let steps = of.m.div_ceil(2 * TILE) * of.n.div_ceil(2 * TILE) * now.chunks * TERMS;
            let mut next = Pairs::new(of, first, rooms[turn], steps);
            for i in (0..of.m).step_by(2 * TILE) {
                for j in (0..of.n).step_by(2 * TILE) {
                    let c = of.c.add(i * of.c_row + j).cast::<u8>();
                    let begins = !of.add && first == OUTER_CHUNKS * CHUNK;
                    let block = Block {
                        chunks: now.chunks,
                        a: now.to.add(i / TILE * tile),
                        a_chunk: PARTS_BYTES,
                        a_tile: tile,
                        b: now.to.add((of.m + j) / TILE * tile),
                        b_tile: tile,
                        c,
                        c_row: of.c_row * 4,
                        start: if begins { ptr::null() } else { c },
                        start_row: of.c_row * 4,
                    };
                    block.run_of(of.m - i > TILE, of.n - j > TILE, &mut next);
                }
            }
            next.take(usize::MAX);
            now = next;
        }
    }
}
