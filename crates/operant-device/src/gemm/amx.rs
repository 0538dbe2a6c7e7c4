//! Products of bf16 (as `u16` bits) in AMX tiles, summed in f32; and of f32, by three bf16 numbers for each.
//!
//! A tile of C is 16 by 16; a chunk is the 32 terms of k that one instruction adds. A is row-major with `inner`
//! contiguous; B is packed in tiles of 16 pairs of rows by 16 columns. Rounding to bf16 is to nearest even, with
//! denormals read as zero, as AMX itself reads them.
//!
//! Invariant: an element of a product's C is summed chunk by chunk in order, so it does not depend on `m` nor on the split of rows.
#![allow(unsafe_code)]

use super::{Init, Product, elements, reach};

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
mod thirds;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
mod tiles;

/// Terms of k that one tile instruction adds.
pub const CHUNK: usize = 32;
/// Rows and columns of a tile of C.
const TILE: usize = 16;
/// Elements of a tile of B.
const B_TILE: usize = CHUNK * TILE;
/// bf16 numbers whose sum is a number of f32.
const PARTS: usize = 3;

pub use operant_lanes::has_tiles as available;

/// [`available`], for tests: says once, past the capture of what tests print, that some are skipped where it is not.
#[cfg(feature = "check")]
pub fn available_to_tests() -> bool {
    static SAID: std::sync::Once = std::sync::Once::new();
    if !available() {
        SAID.call_once(|| {
            use std::io::Write;
            // A test is no worse for a closed output.
            let _ = writeln!(std::io::stdout(), "\nskipped: what runs on tiles or in bf16: this CPU has no AMX");
        });
    }
    available()
}

fn require() {
    assert!(available(), "this machine has no AMX: ask `amx::available` first");
}

/// Elements of a packed B of `outer · inner` rows and `n` columns.
pub fn packed_len(outer: usize, inner: usize, n: usize) -> usize {
    elements(&[n.div_ceil(TILE), outer, inner.div_ceil(CHUNK), B_TILE])
}

/// Packs `B[o, p, j] = src[o·outer_stride + p·row + j·col]` for [`product`]. Fast if `row` or `col` is one.
///
/// # Panics
/// If `src` or `out` is too short, or without AMX.
#[expect(clippy::too_many_arguments)]
pub fn pack(
    outer: usize,
    inner: usize,
    n: usize,
    src: &[f32],
    outer_stride: usize,
    row: usize,
    col: usize,
    out: &mut [u16],
) {
    require();
    let reached = reach(&[(outer, outer_stride), (inner, row), (n, col)]);
    assert!(reached <= src.len(), "the source holds {} elements, wanted {reached}", src.len());
    let mut tiles = out[..packed_len(outer, inner, n)].chunks_exact_mut(B_TILE);
    for j in (0..n).step_by(TILE) {
        for o in 0..outer {
            for p in (0..inner).step_by(CHUNK) {
                let tile: &mut [u16; B_TILE] = tiles.next().unwrap().first_chunk_mut().unwrap();
                let (rows, columns) = (CHUNK.min(inner - p), TILE.min(n - j));
                let src = &src[o * outer_stride + p * row + j * col..];
                pack_tile(rows, columns, src, row, col, tile);
            }
        }
    }
}

/// Packs one tile; rows and columns beyond those given become zero.
fn pack_tile(rows: usize, columns: usize, src: &[f32], row: usize, col: usize, out: &mut [u16; B_TILE]) {
    debug_assert!((rows - 1) * row + (columns - 1) * col < src.len());
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    if col == 1 || row == 1 {
        // SAFETY: AMX was found, with which AVX-512 BF16 is asked for; `pack` checked that these elements are in `src`.
        unsafe {
            if col == 1 {
                tiles::pack_rows(rows, columns, src.as_ptr(), row, out);
            } else {
                tiles::pack_columns(rows, columns, src.as_ptr(), col, out);
            }
        }
        return;
    }
    for (at, to) in out.iter_mut().enumerate() {
        let (p, j) = (at / CHUNK * 2 + at % 2, at % CHUNK / 2);
        *to = if p < rows && j < columns { to_bf16(src[p * row + j * col]) } else { 0 };
    }
}

/// The nearest bf16, ties to even; a denormal becomes zero, a NaN a quiet NaN.
fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = if x.is_nan() {
        bits | 1 << 22
    } else if x.is_subnormal() {
        bits & 1 << 31
    } else {
        bits + 0x7fff + (bits >> 16 & 1)
    };
    (rounded >> 16) as u16
}

/// Keeps this thread's tiles ready until it is dropped: products within share the cost of that, some 300 cycles each.
/// Nothing but this module may use AMX on this thread meanwhile.
pub struct Tiles {
    /// Tiles belong to a thread.
    _here: std::marker::PhantomData<*const ()>,
}

/// Begins a run of products.
///
/// # Panics
/// Without AMX.
pub fn hold() -> Tiles {
    require();
    HOLDERS.set(HOLDERS.get() + 1);
    Tiles { _here: std::marker::PhantomData }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        HOLDERS.set(HOLDERS.get() - 1);
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
        if HOLDERS.get() == 0 {
            tiles::release();
        }
    }
}

thread_local! {
    /// Living [`Tiles`] of this thread.
    static HOLDERS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// C = init + A·B, with B packed by [`pack`]; `a_inner`, `b_outer` and `b_inner` are not read (inner terms of A lie together).
///
/// A is read in whole chunks: the last of each row of an outer term reaches up to 31 elements past `inner`. They meet
/// zeros in B, so they must be finite, and `a` must hold them.
///
/// # Panics
/// If an operand is too short for the product, rows of C overlap, or without AMX.
pub fn product(p: &Product, a: &[u16], packed: &[u16], init: Init, c: &mut [f32]) {
    let _tiles = hold();
    let reached = reach(&[(p.m, p.a_row), (p.outer, p.a_outer), (p.inner.next_multiple_of(CHUNK), 1)]);
    assert!(reached <= a.len(), "A holds {} elements, wanted {reached} with whole chunks: {p:?}", a.len());
    let wanted = packed_len(p.outer, p.inner, p.n);
    assert!(wanted <= packed.len(), "the packed B holds {} elements, wanted {wanted}: {p:?}", packed.len());
    p.check_c(init, c.len());
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found and is held, and the operands were checked.
    unsafe {
        tiles::product(p, a.as_ptr(), packed.as_ptr(), init, c.as_mut_ptr());
    }
}

/// Rounds rows of f32 to bf16: an A of [`product`]. Each row is filled up with zeros to whole chunks.
///
/// # Panics
/// If `src` or `dst` is too short, `dst_row` is shorter than a row's chunks, or without AMX.
pub fn rows_to_bf16(rows: usize, cols: usize, src: &[f32], src_row: usize, dst: &mut [u16], dst_row: usize) {
    require();
    let width = cols.next_multiple_of(CHUNK);
    check_rounding(reach(&[(rows, src_row), (cols, 1)]), src, reach(&[(rows, dst_row), (width, 1)]), dst);
    assert!(rows <= 1 || dst_row >= width, "rows of {width} elements overlap at a distance of {dst_row}");
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found, with which AVX-512 BF16 is asked for, and both slices were checked.
    unsafe {
        tiles::rows_to_bf16(rows, cols, src.as_ptr(), src_row, dst.as_mut_ptr(), dst_row);
    }
}

/// Rounds and transposes: `dst[c·dst_row + r] = src[r·src_row + c]`, the A of a product whose sum runs over rows. Each row of
/// `dst` is filled up with zeros to whole chunks.
///
/// # Panics
/// If `src` or `dst` is too short, `dst_row` is shorter than a row's chunks, or without AMX.
pub fn transpose_to_bf16(rows: usize, cols: usize, src: &[f32], src_row: usize, dst: &mut [u16], dst_row: usize) {
    require();
    let width = rows.next_multiple_of(CHUNK);
    check_rounding(reach(&[(rows, src_row), (cols, 1)]), src, reach(&[(cols, dst_row), (width, 1)]), dst);
    assert!(cols <= 1 || dst_row >= width, "rows of {width} elements overlap at a distance of {dst_row}");
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found, with which AVX-512 BF16 is asked for, and both slices were checked.
    unsafe {
        tiles::transpose_to_bf16(rows, cols, src.as_ptr(), src_row, dst.as_mut_ptr(), dst_row);
    }
}

/// Words of two bf16 numbers that are kept in the bits of f32.
pub fn halves(words: &[f32]) -> &[u16] {
    // SAFETY: the same bytes, of which any value is a number, at an address that is aligned for more.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 2 * words.len()) }
}

/// [`transpose_to_bf16`] of dense rows that are kept as words: of 32 columns, word j holds columns j and j + 16.
///
/// # Panics
/// If `src` or `dst` is too short, `cols` is not a multiple of 32, `dst_row` is shorter than a row's chunks, or without AMX.
pub fn transpose_words(rows: usize, cols: usize, src: &[u16], dst: &mut [u16], dst_row: usize) {
    require();
    let width = rows.next_multiple_of(CHUNK);
    assert!(cols.is_multiple_of(CHUNK) && rows * cols <= src.len(), "{rows} rows of {cols} words in {}", src.len());
    let written = reach(&[(cols, dst_row), (width, 1)]);
    assert!(written <= dst.len(), "the destination holds {} elements, wanted {written}", dst.len());
    assert!(cols <= 1 || dst_row >= width, "rows of {width} elements overlap at a distance of {dst_row}");
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found, and both slices were checked.
    unsafe {
        tiles::transpose_words(rows, cols, src.as_ptr(), dst.as_mut_ptr(), dst_row);
    }
}

/// [`pack`] of dense rows that are kept as words: B of a product whose sum runs over rows.
///
/// # Panics
/// If `src` or `out` is too short, `cols` is not a multiple of 32, or without AMX.
pub fn pack_words(rows: usize, cols: usize, src: &[u16], out: &mut [u16]) {
    require();
    assert!(cols.is_multiple_of(CHUNK) && rows * cols <= src.len(), "{rows} rows of {cols} words in {}", src.len());
    let out = &mut out[..packed_len(1, rows, cols)];
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found, and both slices were checked.
    unsafe {
        tiles::pack_words(rows, cols, src.as_ptr(), out.as_mut_ptr());
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(operant_portable))))]
    let _ = out;
}

/// Elements of a B of `outer · inner` rows and `n` columns that is packed by [`pack_thirds`].
pub fn thirds_len(outer: usize, inner: usize, n: usize) -> usize {
    PARTS * packed_len(outer, inner, n)
}

/// Packs `B[o, p, j] = src[o·outer_stride + p·row + j·col]` for [`product_thirds`]. Fast if `row` or `col` is one.
///
/// # Panics
/// If `src` or `out` is too short, `out` is not on a cache line, or without AMX.
#[expect(clippy::too_many_arguments)]
pub fn pack_thirds(
    outer: usize,
    inner: usize,
    n: usize,
    src: &[f32],
    outer_stride: usize,
    row: usize,
    col: usize,
    out: &mut [u16],
) {
    require();
    let reached = reach(&[(outer, outer_stride), (inner, row), (n, col)]);
    assert!(reached <= src.len(), "the source holds {} elements, wanted {reached}", src.len());
    let out = &mut out[..thirds_len(outer, inner, n)];
    assert!(out.as_ptr().addr().is_multiple_of(64), "packed tiles begin on a cache line");
    let mut tiles = out.chunks_exact_mut(PARTS * B_TILE);
    for j in (0..n).step_by(TILE) {
        for o in 0..outer {
            for p in (0..inner).step_by(CHUNK) {
                let (rows, columns) = (CHUNK.min(inner - p), TILE.min(n - j));
                let src = &src[o * outer_stride + p * row + j * col..];
                let tile = tiles.next().unwrap();
                #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
                // SAFETY: AMX was found, with which AVX-512 is asked for; these elements are in `src`, and a tile has room for
                // all parts.
                unsafe {
                    let to = tile.as_mut_ptr().cast();
                    if col == 1 {
                        thirds::pack_rows(rows, columns, src.as_ptr(), row, to);
                    } else if row == 1 {
                        thirds::pack_columns(rows, columns, src.as_ptr(), col, to);
                    } else {
                        let mut ordered = [0.0; B_TILE];
                        for (at, to) in ordered.iter_mut().enumerate().filter(|(at, _)| at % TILE < columns) {
                            *to = if at / TILE < rows { src[at / TILE * row + at % TILE * col] } else { 0.0 };
                        }
                        thirds::pack_rows(rows, TILE, ordered.as_ptr(), TILE, to);
                    }
                }
                #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(operant_portable))))]
                let _ = (rows, columns, src, tile);
            }
        }
    }
}

/// C = init + A·B in f32, with B packed by [`pack_thirds`]; `a_inner`, `b_outer` and `b_inner` are not read (inner terms of A lie
/// together). Errors are within the bound of a sum in f32; numbers below 2⁻¹¹⁰ may lose bits, infinities and
/// numbers from 3.39e38 on become NaN.
///
/// # Panics
/// If an operand is too short for the product, rows of C overlap, or without AMX.
pub fn product_thirds(p: &Product, a: &[f32], packed: &[u16], init: Init, c: &mut [f32]) {
    let _tiles = hold();
    let reached = reach(&[(p.m, p.a_row), (p.outer, p.a_outer), (p.inner, 1)]);
    assert!(reached <= a.len(), "A holds {} elements, wanted {reached}: {p:?}", a.len());
    let wanted = thirds_len(p.outer, p.inner, p.n);
    assert!(wanted <= packed.len(), "the packed B holds {} elements, wanted {wanted}: {p:?}", packed.len());
    p.check_c(init, c.len());
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found and is held, and the operands were checked.
    unsafe {
        thirds::product(p, a.as_ptr(), packed.as_ptr(), init, c.as_mut_ptr());
    }
}

/// Whether [`outer_thirds`] has few columns, in whole pairs of tiles: what it takes apart then stays in the nearest cache, and it is
/// faster than registers.
pub fn few_columns(m: usize, n: usize) -> bool {
    (64..=96).contains(&n) && n.is_multiple_of(2 * TILE) && m.is_multiple_of(2 * TILE)
}

/// Elements of the room of [`outer_thirds`] for `m` by `n` sums, few columns or many.
pub fn outer_room(m: usize, n: usize) -> usize {
    // A chunk more, since it begins on a cache line.
    elements(&[4, (m + n).div_ceil(TILE), PARTS, B_TILE]) + CHUNK
}

/// `C[i, j] = Σ_r A[r, i]·B[r, j]` in f32, as [`product_thirds`] multiplies, or added to C: rows of A, B and C are `a_row`, `b_row` and
/// `c_row` apart.
///
/// # Panics
/// If an operand or the room is too short, rows of C overlap, `m` or `n` is not a multiple of 16, or without AMX.
pub fn outer_thirds(
    add: bool,
    rows: usize,
    (m, n): (usize, usize),
    (a, a_row): (&[f32], usize),
    (b, b_row): (&[f32], usize),
    room: &mut [u16],
    (c, c_row): (&mut [f32], usize),
) {
    let _tiles = hold();
    assert!(m.is_multiple_of(TILE) && n.is_multiple_of(TILE), "{m} by {n} sums, wanted whole tiles of {TILE}");
    let reached = reach(&[(rows, a_row), (m, 1)]);
    assert!(reached <= a.len(), "A holds {} elements, wanted {reached}", a.len());
    let reached = reach(&[(rows, b_row), (n, 1)]);
    assert!(reached <= b.len(), "B holds {} elements, wanted {reached}", b.len());
    Product { m, n, c_row, ..Product::default() }.check_c(Init::Accumulate, c.len());
    if m == 0 || n == 0 {
        return;
    }
    if rows == 0 {
        let cleared = if add { 0 } else { m };
        c.chunks_mut(c_row).take(cleared).for_each(|row| row[..n].fill(0.0));
        return;
    }
    let room = &mut room[..outer_room(m, n)];
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    // SAFETY: AMX was found and is held, and the operands were checked; the room has a chunk to spare for its beginning.
    unsafe {
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        let room = room.as_mut_ptr();
        let room = room.add(room.align_offset(64));
        thirds::outer(thirds::Outer { add, rows, m, n, a, a_row, b, b_row, c, c_row }, room);
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(operant_portable))))]
    let _ = room;
}

fn check_rounding(read: usize, src: &[f32], written: usize, dst: &[u16]) {
    assert!(read <= src.len(), "the source holds {} elements, wanted {read}", src.len());
    assert!(written <= dst.len(), "the destination holds {} elements, wanted {written}", dst.len());
}
