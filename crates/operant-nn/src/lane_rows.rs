//! A row in every lane: blocks of rows, transposed, so that code over short rows (logits, actions, advantages) fills whole
//! registers. Lanes beyond the last row repeat it: what they compute is finite and is never stored.

use super::real::Real;
use operant_lanes::Vectors;

/// Widest register, in elements.
const MOST_LANES: usize = 16;

/// Longest rows that are put together in registers.
const MOST_COLUMNS: usize = 8;

/// Elements of a block of rows `width` long.
pub(super) fn block_len(width: usize) -> usize {
    MOST_LANES * width
}

/// Rows `first..first + LANES` of `[rows, width]` as columns: `block[j·LANES + lane]`.
#[inline(always)]
pub(super) fn load_block<R: Real, L: Vectors<R>>(x: &[R], width: usize, first: usize, block: &mut [R]) {
    let block = &mut block[..width * L::LANES];
    if x.len() >= (first + L::LANES) * width {
        let x = &x[first * width..][..L::LANES * width];
        for (j, column) in block.chunks_exact_mut(L::LANES).enumerate() {
            L::write(L::read_strided(&x[j..], width), column);
        }
        return;
    }
    let last = x.len() / width - 1;
    for lane in 0..L::LANES {
        let row = &x[(first + lane).min(last) * width..][..width];
        for (column, &value) in block.chunks_exact_mut(L::LANES).zip(row) {
            column[lane] = value;
        }
    }
}

/// The way back: columns to rows, as far as there are rows.
#[inline(always)]
pub(super) fn store_block<R: Real, L: Vectors<R>>(block: &[R], width: usize, first: usize, y: &mut [R]) {
    let rows = (y.len() / width - first).min(L::LANES);
    let block = &block[..width * L::LANES];
    if rows == L::LANES && width <= MOST_COLUMNS {
        let mut columns = [L::F::from(0.0); MOST_COLUMNS];
        for (to, column) in columns.iter_mut().zip(block.chunks_exact(L::LANES)) {
            *to = L::read(column);
        }
        return L::write_rows(&columns[..width], &mut y[first * width..][..L::LANES * width]);
    }
    for lane in 0..rows {
        let row = &mut y[(first + lane) * width..][..width];
        for (column, value) in block.chunks_exact(L::LANES).zip(row) {
            *value = column[lane];
        }
    }
}

/// Column `j` of a block.
#[inline(always)]
pub(super) fn column<R: Real, L: Vectors<R>>(block: &[R], j: usize) -> L::F {
    L::read(&block[j * L::LANES..][..L::LANES])
}

/// Overwrites column `j` of a block.
#[inline(always)]
pub(super) fn set_column<R: Real, L: Vectors<R>>(value: L::F, block: &mut [R], j: usize) {
    L::write(value, &mut block[j * L::LANES..][..L::LANES]);
}

/// One number per row, from row `first` on; 0 beyond the last row, and everywhere if the slice is empty.
#[inline(always)]
pub(super) fn read_numbers<R: Real, L: Vectors<R>>(x: &[R], first: usize) -> L::F {
    let x = x.get(first..).unwrap_or(&[]);
    if x.len() >= L::LANES { L::read(x) } else { L::read_part(x) }
}

/// Writes one number per row from row `first` on, as far as there are rows.
#[inline(always)]
pub(super) fn write_numbers<R: Real, L: Vectors<R>>(value: L::F, y: &mut [R], first: usize) {
    let Some(y) = y.get_mut(first..) else { return };
    if y.len() >= L::LANES { L::write(value, y) } else { L::write_part(value, y) }
}

/// Column `j` of `[rows, width]` integers, from row `first` on; beyond the last row that of the last.
#[inline(always)]
pub(super) fn read_ints<R: Real, L: Vectors<R>>(x: &[i32], width: usize, j: usize, first: usize) -> L::I {
    if width == 1 && x.len() >= first + L::LANES {
        return L::read_ints(&x[first..]);
    }
    let last = x.len() / width - 1;
    let mut lanes = [0; MOST_LANES];
    for (lane, to) in lanes[..L::LANES].iter_mut().enumerate() {
        *to = x[(first + lane).min(last) * width + j];
    }
    L::read_ints(&lanes)
}
