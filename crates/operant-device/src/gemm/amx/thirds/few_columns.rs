//! [`super::outer`] for few columns: two tiles of C's rows at a time pass all rows of the sum, and all of B is taken apart anew for each.
//! So little of either operand exists in parts at a time that it stays in the nearest cache, with the sums: up to 96 columns.
//!
//! A multiplication takes 16 cycles. Registers work beside it if no more than some 40 of their instructions lie between one and the
//! next; after four in a row they would wait. So here the order is written down.
#![allow(unsafe_code)]

use super::super::super::avx512::transpose_step;
use super::super::outer_room;
use super::{
    CHUNK, Outer, PARTS_BYTES, ROW, TILE, TILE_BYTES, configure, dot, left, load, right, split_pair, store, zero,
};
use crate::prefetch_to_write;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Rows and columns of C that are multiplied at once.
const BLOCK: usize = 2 * TILE;
/// Bytes of the parts of a block's rows of A, or columns of B, over a chunk.
const BLOCK_BYTES: usize = 2 * PARTS_BYTES;
/// What the room of [`outer`] holds, in bytes: two blocks of A and two of B, of which one is read while the other is made, and the last
/// rows of both, filled up to a chunk.
fn room_bytes(m: usize, n: usize) -> usize {
    4 * BLOCK_BYTES + CHUNK * (m + n) * size_of::<f32>()
}

/// What tiles multiply: a block of C over a chunk.
#[derive(Clone, Copy)]
struct Multiply {
    a: *const u8,
    b: *const u8,
    /// Those of the next block, whose first parts are read at the end.
    next_a: *const u8,
    next_b: *const u8,
}

impl Multiply {
    /// Reads what the first products need.
    ///
    /// # Safety
    /// AMX was found and tiles are configured; A and B are whole.
    #[inline(always)]
    unsafe fn begin(a: *const u8, b: *const u8) {
        // SAFETY: the caller's contract.
        unsafe {
            left::<true>(a, PARTS_BYTES);
            right::<true>(b.add(2 * TILE_BYTES), PARTS_BYTES);
        }
    }

    /// Product number `T` of 24, four for each pair of parts, and what those after it read.
    ///
    /// # Safety
    /// As [`begin`](Self::begin).
    #[inline(always)]
    unsafe fn product<const T: usize>(&self) {
        let (a, b) = (self.a, self.b);
        // SAFETY: the caller's contract.
        unsafe {
            match T % 4 {
                0 => dot::<0, 4, 6>(),
                1 => dot::<1, 4, 7>(),
                2 => dot::<2, 5, 6>(),
                _ => dot::<3, 5, 7>(),
            }
            match T {
                3 => right::<true>(b.add(TILE_BYTES), PARTS_BYTES),
                7 => left::<true>(a.add(TILE_BYTES), PARTS_BYTES),
                11 => right::<true>(b, PARTS_BYTES),
                15 => left::<true>(a.add(2 * TILE_BYTES), PARTS_BYTES),
                19 => left::<true>(a, PARTS_BYTES),
                23 => Self::begin(self.next_a, self.next_b),
                _ => {}
            }
        }
    }
}

/// What registers make meanwhile, of a chunk: a tile of A, turned, and two of B.
#[derive(Clone, Copy)]
struct Make {
    a: *const f32,
    a_row: usize,
    to_a: *mut u8,
    b: *const f32,
    b_row: usize,
    to_b: *mut u8,
}

impl Make {
    /// Takes apart rows r and r + 16 of B, of which each pair is a word.
    ///
    /// # Safety
    /// The CPU has AVX-512; B's rows may be read, and there is room for its parts.
    #[inline(always)]
    unsafe fn pair(&self, number: usize) {
        let (tile, r) = (number / TILE, number % TILE);
        // SAFETY: the caller's contract.
        unsafe {
            let from = self.b.add(r * self.b_row + tile * TILE);
            let (first, second) =
                (_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(TILE * self.b_row).cast()));
            split_pair(first, second, self.to_b.add(tile * PARTS_BYTES + r * ROW));
        }
    }

    /// Sixteen rows of A, from `first` on.
    ///
    /// # Safety
    /// The CPU has AVX-512, and A's rows may be read.
    #[inline(always)]
    unsafe fn rows(&self, first: usize) -> [__m512i; TILE] {
        // SAFETY: the caller's contract.
        unsafe {
            let mut rows = [_mm512_setzero_si512(); TILE];
            for (r, row) in rows.iter_mut().enumerate() {
                *row = _mm512_loadu_si512(self.a.add((first + r) * self.a_row).cast());
            }
            rows
        }
    }
}

/// Rows of A in columns.
struct Turned([MaybeUninit<__m512i>; TILE]);

/// Multiplies if `MULTIPLY`, and makes a tile of A if `A` and two of B if `B`.
///
/// # Safety
/// AMX was found and tiles are configured; all that is read and written is the caller's.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline(never)]
unsafe fn step<const A: bool, const B: bool, const MULTIPLY: bool>(make: &Make, multiply: &Multiply) {
    let mut upper = Turned([const { MaybeUninit::uninit() }; TILE]);
    macro_rules! then {
        ($number:literal) => {
            if MULTIPLY {
                multiply.product::<$number>();
            }
        };
    }
    macro_rules! pairs {
        ($($number:literal)*) => { if B { $(make.pair($number);)* } };
    }
    macro_rules! turn {
        ($x:ident, $step:literal) => {
            if A {
                $x = transpose_step::<$step>(&$x);
            }
        };
    }
    // SAFETY: the caller's contract.
    unsafe {
        let mut x = if A { make.rows(0) } else { [_mm512_setzero_si512(); TILE] };
        turn!(x, 0);
        pairs!(0);
        then!(0);
        turn!(x, 1);
        pairs!(1);
        then!(1);
        turn!(x, 2);
        pairs!(2);
        then!(2);
        turn!(x, 3);
        pairs!(3);
        then!(3);
        if A {
            for (to, column) in upper.0.iter_mut().zip(x) {
                to.write(column);
            }
            x = make.rows(TILE);
        }
        turn!(x, 0);
        pairs!(4);
        then!(4);
        turn!(x, 1);
        pairs!(5);
        then!(5);
        turn!(x, 2);
        pairs!(6);
        then!(6);
        turn!(x, 3);
        pairs!(7);
        then!(7);
        macro_rules! columns {
            ($($i:literal)*) => {
                if A { $(split_pair(upper.0[$i].assume_init(), x[$i], make.to_a.add($i * ROW));)* }
            };
        }
        columns!(0 1);
        pairs!(8);
        then!(8);
        columns!(2 3);
        pairs!(9);
        then!(9);
        columns!(4 5);
        pairs!(10);
        then!(10);
        columns!(6 7);
        pairs!(11);
        then!(11);
        columns!(8 9);
        pairs!(12);
        then!(12);
        columns!(10 11);
        pairs!(13);
        then!(13);
        columns!(12 13);
        pairs!(14);
        then!(14);
        columns!(14 15);
        pairs!(15);
        then!(15);
        pairs!(16 17);
        then!(16);
        pairs!(18 19);
        then!(17);
        pairs!(20 21);
        then!(18);
        pairs!(22 23);
        then!(19);
        pairs!(24 25);
        then!(20);
        pairs!(26 27);
        then!(21);
        pairs!(28 29);
        then!(22);
        pairs!(30 31);
        then!(23);
    }
}

/// Copies `rows` rows of `columns` numbers to `to`, one after another, and fills them up with zeros to a chunk.
///
/// # Safety
/// The rows may be read, and `to` written.
unsafe fn fill_up(from: *const f32, row: usize, rows: usize, columns: usize, to: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe {
        to.write_bytes(0, CHUNK * columns);
        for r in 0..rows {
            to.add(r * columns).copy_from_nonoverlapping(from.add(r * row), columns);
        }
    }
}

/// Asks for rows of C from `first` on: another thread may have added them up last, and each would be waited for.
#[inline(always)]
fn ask(of: &Outer, first: usize, from: usize, to: usize) {
    for row in (first + from..first + to).filter(|row| *row < of.m) {
        for column in (0..of.n).step_by(TILE) {
            prefetch_to_write(of.c.wrapping_add(row * of.c_row + column).cast_const());
        }
    }
}

/// The product over rows, of which there is one at least.
///
/// # Safety
/// As [`super::outer`], for sums that are [`few_columns`](super::super::few_columns).
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn outer(of: Outer, room: *mut u8) {
    let blocks = of.n / BLOCK;
    let (chunks, last) = (of.rows.div_ceil(CHUNK), of.rows / CHUNK);
    // Less a chunk, by which the room was moved to a cache line.
    assert!(room_bytes(of.m, of.n) <= 2 * (outer_room(of.m, of.n) - CHUNK), "room for {} by {} sums", of.m, of.n);
    // SAFETY: the caller's contract; the room holds what `room_bytes` says.
    unsafe {
        let a_room = [room, room.add(BLOCK_BYTES)];
        let b_room = room.add(2 * BLOCK_BYTES);
        let a_last = b_room.add(2 * BLOCK_BYTES).cast::<f32>();
        let b_last = a_last.add(CHUNK * of.m);
        if last < chunks {
            let (first, rows) = (last * CHUNK, of.rows - last * CHUNK);
            fill_up(of.a.add(first * of.a_row), of.a_row, rows, of.m, a_last);
            fill_up(of.b.add(first * of.b_row), of.b_row, rows, of.n, b_last);
        }
        configure(TILE);
        if !of.add {
            ask(&of, 0, 0, BLOCK);
        }
        for i in (0..of.m).step_by(BLOCK) {
            let a_at = |chunk: usize| a_room[chunk % 2];
            let b_at = |chunk: usize, j: usize| b_room.wrapping_add((chunk * blocks + j) % 2 * BLOCK_BYTES);
            // Tile `tile` of A of one chunk, block `j` of B of another.
            let make = |(a_chunk, tile): (usize, usize), (b_chunk, j): (usize, usize)| {
                let (a, a_row) = if a_chunk < last {
                    (of.a.wrapping_add(a_chunk * CHUNK * of.a_row), of.a_row)
                } else {
                    (a_last.cast_const(), of.m)
                };
                let (b, b_row) = if b_chunk < last {
                    (of.b.wrapping_add(b_chunk * CHUNK * of.b_row), of.b_row)
                } else {
                    (b_last.cast_const(), of.n)
                };
                Make {
                    a: a.wrapping_add(i + tile * TILE),
                    a_row,
                    to_a: a_at(a_chunk).wrapping_add(tile * PARTS_BYTES),
                    b: b.wrapping_add(j * BLOCK),
                    b_row,
                    to_b: b_at(b_chunk, j),
                }
            };
            let nothing = Multiply { a: room, b: room, next_a: room, next_b: room };
            step::<true, true, false>(&make((0, 0), (0, 0)), &nothing);
            step::<true, false, false>(&make((0, 1), (0, 0)), &nothing);
            Multiply::begin(a_at(0), b_at(0, 0));
            for chunk in 0..chunks {
                for j in 0..blocks {
                    let next = if j + 1 < blocks { (chunk, j + 1) } else { (chunk + 1, 0) };
                    let (a, b) = (a_at(chunk), b_at(chunk, j));
                    let multiply = Multiply { a, b, next_a: a_at(next.0), next_b: b_at(next.0, next.1) };
                    let c = of.c.add(i * of.c_row + j * BLOCK).cast::<u8>();
                    let row = of.c_row * size_of::<f32>();
                    let below = c.add(TILE * row);
                    if chunk == 0 && !of.add {
                        zero::<0>();
                        zero::<1>();
                        zero::<2>();
                        zero::<3>();
                    } else {
                        load::<0>(c, row);
                        load::<1>(c.add(ROW), row);
                        load::<2>(below, row);
                        load::<3>(below.add(ROW), row);
                    }
                    if !of.add {
                        // The next rows of C, some at each step.
                        let (step, steps) = (chunk * blocks + j, chunks * blocks);
                        ask(&of, i + BLOCK, step * BLOCK / steps, (step + 1) * BLOCK / steps);
                    }
                    // A's tiles of the next chunk are made beside the first two blocks.
                    let (with_a, with_b) = (j < 2 && chunk + 1 < chunks, next.0 < chunks);
                    match (with_a, with_b) {
                        (true, true) => step::<true, true, true>(&make((chunk + 1, j), next), &multiply),
                        (true, false) => step::<true, false, true>(&make((chunk + 1, j), (0, 0)), &multiply),
                        (false, true) => step::<false, true, true>(&make((0, 0), next), &multiply),
                        (false, false) => step::<false, false, true>(&make((0, 0), (0, 0)), &multiply),
                    }
                    store::<0>(c, row);
                    store::<1>(c.add(ROW), row);
                    store::<2>(below, row);
                    store::<3>(below.add(ROW), row);
                }
            }
        }
    }
}
