//! Passes over `[pixels, channels]` with a row of coefficients per channel: what norms and channel scales are made of.
//!
//! Few channels fill no register, so coefficients are repeated to a row of whole registers ([`row_len`]) and several pixels
//! are read as one such row.

use super::elementwise::{Ternary, Unary, add_columns};
use super::real::Real;
use operant_lanes::{Float, Vectors};

/// Bytes that a pass goes through twice while they are in the nearest cache.
const BLOCK_BYTES: usize = 16 << 10;
/// From this many channels on they are a row by themselves.
const MANY: usize = 128;

/// Length of a row of coefficients: a multiple of the channels, and of 16 if they are few.
pub fn row_len(channels: usize) -> usize {
    if channels >= MANY {
        return channels;
    }
    channels / divisor(channels, 16) * 16
}

/// Elements that a pass takes at once: whole rows and whole blocks of noise, some kilobytes.
pub fn block_len<R>(row_len: usize) -> usize {
    let unit = row_len / divisor(row_len, 64) * 64;
    (BLOCK_BYTES / size_of::<R>() / unit).max(1) * unit
}

/// The greatest common divisor.
fn divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Repeats the first `channels` numbers of a row to its end.
pub fn repeat<R: Real>(row: &mut [R], channels: usize) {
    for at in channels..row.len() {
        row[at] = row[at - channels];
    }
}

/// Adds all repetitions of a row to the first.
pub fn gather<R: Real>(row: &mut [R], channels: usize) {
    let (first, rest) = row.split_at_mut(channels);
    for part in rest.chunks_exact(channels) {
        first.iter_mut().zip(part).for_each(|(sum, x)| *sum += *x);
    }
}

/// Columns `at..` of a row, a register or the rest of the row.
#[inline(always)]
fn read<R: Real, L: Vectors<R>>(x: &[R], at: usize, width: usize) -> L::F {
    if width == L::LANES { L::read(&x[at..]) } else { L::read_part(&x[at..at + width]) }
}

#[inline(always)]
fn write<R: Real, L: Vectors<R>>(value: L::F, x: &mut [R], at: usize, width: usize) {
    if width == L::LANES { L::write(value, &mut x[at..]) } else { L::write_part(value, &mut x[at..at + width]) }
}

/// `sum += Σ (x − shift)` and `square += Σ (x − shift)²` by columns. The last row of `x` may be short.
#[inline(always)]
pub fn moments<R: Real, L: Vectors<R>>(x: &[R], shift: &[R], sum: &mut [R], square: &mut [R]) {
    let n = shift.len();
    for block in x.chunks(block_len::<R>(n)) {
        let whole = block.len() / n;
        let mut at = 0;
        while at < n {
            let width = L::LANES.min(n - at);
            let s = read::<R, L>(shift, at, width);
            // Two sums of each hide the latency of an addition.
            let (mut s0, mut s1) = (L::F::from(0.0), L::F::from(0.0));
            let (mut q0, mut q1) = (L::F::from(0.0), L::F::from(0.0));
            let mut row = 0;
            while row + 2 <= whole {
                let a = read::<R, L>(block, row * n + at, width) - s;
                let b = read::<R, L>(block, (row + 1) * n + at, width) - s;
                (s0, s1) = (s0 + a, s1 + b);
                (q0, q1) = (a.mul_add(a, q0), b.mul_add(b, q1));
                row += 2;
            }
            if row < whole {
                let a = read::<R, L>(block, row * n + at, width) - s;
                s0 = s0 + a;
                q0 = a.mul_add(a, q0);
            }
            write::<R, L>(read::<R, L>(sum, at, width) + (s0 + s1), sum, at, width);
            write::<R, L>(read::<R, L>(square, at, width) + (q0 + q1), square, at, width);
            at += width;
        }
        for (i, &x) in block[whole * n..].iter().enumerate() {
            let x = x - shift[i];
            sum[i] += x;
            square[i] += x * x;
        }
    }
}

/// `sum += Σ x` by columns. The last row of `x` may be short.
#[inline(always)]
pub fn sums<R: Real, L: Vectors<R>>(x: &[R], sum: &mut [R]) {
    let (rows, rest) = x.split_at(x.len() / sum.len() * sum.len());
    add_columns::<R, L>(rows, sum);
    sum.iter_mut().zip(rest).for_each(|(sum, x)| *sum += *x);
}

/// Coefficients of a norm, a row each.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a, R> {
    /// Subtracted first.
    pub mean: &'a [R],
    /// One over the standard deviation.
    pub rstd: &'a [R],
    /// Factor after that.
    pub weight: &'a [R],
    /// Added at last.
    pub bias: &'a [R],
}

/// `y = f((x − mean)·rstd·weight + bias)`; rows may end short.
#[inline(always)]
pub fn normalise<R: Real, L: Vectors<R>, F: Unary>(f: F, c: Affine<R>, x: &[R], y: &mut [R]) {
    let n = c.mean.len();
    for (x, y) in x.chunks(n).zip(y.chunks_mut(n)) {
        let mut at = 0;
        while at < y.len() {
            let width = L::LANES.min(y.len() - at);
            let scaled =
                (read::<R, L>(x, at, width) - read::<R, L>(c.mean, at, width)) * read::<R, L>(c.rstd, at, width);
            let z = scaled.mul_add(read::<R, L>(c.weight, at, width), read::<R, L>(c.bias, at, width));
            write::<R, L>(f.apply::<L>(z), y, at, width);
            at += width;
        }
    }
}

/// The first pass back through [`normalise`]: with `dz = dy·f′`, `dx = dz·rstd·weight`, `sum += Σ dz` and
/// `product += Σ dz·(x − mean)·rstd` by columns. At most one block at a time, all slices of one length.
#[inline(always)]
pub fn denormalise<R: Real, L: Vectors<R>, F: Unary + Ternary>(
    f: F,
    c: Affine<R>,
    x: &[R],
    dy: &[R],
    dx: &mut [R],
    sum: &mut [R],
    product: &mut [R],
) {
    let n = c.mean.len();
    let whole = x.len() / n;
    let rest = x.len() - whole * n;
    let mut at = 0;
    while at < n {
        let width = L::LANES.min(n - at);
        let mean = read::<R, L>(c.mean, at, width);
        let rstd = read::<R, L>(c.rstd, at, width);
        let weight = read::<R, L>(c.weight, at, width);
        let bias = read::<R, L>(c.bias, at, width);
        let scale = rstd * weight;
        let mut s = read::<R, L>(sum, at, width);
        let mut p = read::<R, L>(product, at, width);
        for row in 0..whole {
            let place = row * n + at;
            let scaled = (read::<R, L>(x, place, width) - mean) * rstd;
            let z = scaled.mul_add(weight, bias);
            let dz = Ternary::apply::<L>(f, z, Unary::apply::<L>(f, z), read::<R, L>(dy, place, width));
            s = s + dz;
            p = dz.mul_add(scaled, p);
            write::<R, L>(dz * scale, dx, place, width);
        }
        if rest > at {
            // The last row is short: lanes beyond its end have a gradient of 0.
            let (place, width) = (whole * n + at, width.min(rest - at));
            let scaled = (read::<R, L>(x, place, width) - mean) * rstd;
            let z = scaled.mul_add(weight, bias);
            let dz = Ternary::apply::<L>(f, z, Unary::apply::<L>(f, z), read::<R, L>(dy, place, width));
            s = s + dz;
            p = dz.mul_add(scaled, p);
            write::<R, L>(dz * scale, dx, place, width);
        }
        write::<R, L>(s, sum, at, width);
        write::<R, L>(p, product, at, width);
        at += width;
    }
}

/// `y += (x − mean)·slope + offset`, or without `add` `y = …`; rows may end short.
#[inline(always)]
pub fn add_linear<R: Real, L: Vectors<R>>(x: &[R], mean: &[R], slope: &[R], offset: &[R], add: bool, y: &mut [R]) {
    let n = mean.len();
    for (x, y) in x.chunks(n).zip(y.chunks_mut(n)) {
        let mut at = 0;
        while at < y.len() {
            let width = L::LANES.min(y.len() - at);
            let centred = read::<R, L>(x, at, width) - read::<R, L>(mean, at, width);
            let mut value = centred.mul_add(read::<R, L>(slope, at, width), read::<R, L>(offset, at, width));
            if add {
                value = value + read::<R, L>(y, at, width);
            }
            write::<R, L>(value, y, at, width);
            at += width;
        }
    }
}

/// `y = x·factor`; rows may end short.
#[inline(always)]
pub fn scale<R: Real, L: Vectors<R>>(x: &[R], factor: &[R], y: &mut [R]) {
    let n = factor.len();
    for (x, y) in x.chunks(n).zip(y.chunks_mut(n)) {
        let mut at = 0;
        while at < y.len() {
            let width = L::LANES.min(y.len() - at);
            write::<R, L>(read::<R, L>(x, at, width) * read::<R, L>(factor, at, width), y, at, width);
            at += width;
        }
    }
}

/// `sum += Σ a·b` by columns; the last row may be short.
#[inline(always)]
pub fn dots<R: Real, L: Vectors<R>>(a: &[R], b: &[R], sum: &mut [R]) {
    let n = sum.len();
    for (a, b) in a.chunks(n).zip(b.chunks(n)) {
        let mut at = 0;
        while at < a.len() {
            let width = L::LANES.min(a.len() - at);
            let value = read::<R, L>(a, at, width).mul_add(read::<R, L>(b, at, width), read::<R, L>(sum, at, width));
            write::<R, L>(value, sum, at, width);
            at += width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_whole_registers() {
        for channels in 1..300 {
            let n = row_len(channels);
            assert!(n.is_multiple_of(channels) && (n.is_multiple_of(16) || channels >= MANY) && n <= 16 * channels);
        }
        assert_eq!((row_len(3), row_len(8), row_len(64), row_len(24)), (48, 16, 64, 48));
    }

    #[test]
    fn repetitions_come_back() {
        let mut row = vec![1.0f64, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        repeat(&mut row, 3);
        assert_eq!(row, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
        gather(&mut row, 3);
        assert_eq!(row[..3], [3.0, 6.0, 9.0]);
    }
}
