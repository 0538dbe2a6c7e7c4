//! Lanes over elements in memory, f32 or f64: what an op that is written once for both reads and writes through.
//!
//! f32 runs on any [`Simd`] lanes, f64 on [`Double`], where gradients are checked. A sum has a fixed order per width.

use super::double::{F, I};
use super::{Double, Lanes, Simd};

/// Lanes that execute over elements of type `R` in memory.
pub trait Vectors<R>: Lanes {
    /// Elements per value.
    const LANES: usize;
    /// Reads the first `LANES` elements.
    fn read(x: &[R]) -> Self::F;
    /// Writes to the first `LANES` places.
    fn write(v: Self::F, out: &mut [R]);
    /// Reads `x`, at most `LANES` elements; lanes beyond its end are 0.
    fn read_part(x: &[R]) -> Self::F;
    /// Writes as many of the first lanes as `out` has places.
    fn write_part(v: Self::F, out: &mut [R]);
    /// Reads a column of rows: lane j is `x[j * stride]`.
    fn read_strided(x: &[R], stride: usize) -> Self::F;
    /// Writes columns as rows: `out[lane * columns.len() + c] = columns[c][lane]`. `out` holds exactly `LANES` rows.
    fn write_rows(columns: &[Self::F], out: &mut [R]);
    /// The same element in every lane.
    fn splat(x: R) -> Self::F;
    /// The sum of all lanes: the upper half is added to the lower half until one lane is left.
    fn sum(v: Self::F) -> R;
    /// The [`sum`](Self::sum)s of four values, in less time than one after the other.
    fn four_sums(v: [Self::F; 4]) -> [R; 4];
    /// The largest lane; a NaN may be lost.
    fn largest(v: Self::F) -> R;
    /// Reads the first `LANES` integers.
    fn read_ints(x: &[i32]) -> Self::I;
    /// Reads `x`, at most `LANES` integers; lanes beyond its end are 0.
    fn read_ints_part(x: &[i32]) -> Self::I;
}

impl<L: Simd> Vectors<f32> for L {
    const LANES: usize = L::WIDTH;

    #[inline(always)]
    fn read(x: &[f32]) -> L::F {
        L::load_f(x)
    }
    #[inline(always)]
    fn write(v: L::F, out: &mut [f32]) {
        L::store_f(v, out);
    }
    #[inline(always)]
    fn read_part(x: &[f32]) -> L::F {
        L::load_f_part(x)
    }
    #[inline(always)]
    fn write_part(v: L::F, out: &mut [f32]) {
        L::store_f_part(v, out);
    }
    #[inline(always)]
    fn read_strided(x: &[f32], stride: usize) -> L::F {
        L::load_strided(x, stride)
    }
    #[inline(always)]
    fn write_rows(columns: &[L::F], out: &mut [f32]) {
        L::store_rows(columns, out);
    }
    #[inline(always)]
    fn splat(x: f32) -> L::F {
        L::F::from(x)
    }
    #[inline(always)]
    fn sum(v: L::F) -> f32 {
        L::sum_f(v)
    }
    #[inline(always)]
    fn four_sums(v: [L::F; 4]) -> [f32; 4] {
        L::four_sums_f(v)
    }
    #[inline(always)]
    fn largest(v: L::F) -> f32 {
        L::largest_f(v)
    }
    #[inline(always)]
    fn read_ints(x: &[i32]) -> L::I {
        L::load(x)
    }
    #[inline(always)]
    fn read_ints_part(x: &[i32]) -> L::I {
        L::load_part(x)
    }
}

impl Vectors<f64> for Double {
    const LANES: usize = 1;

    #[inline(always)]
    fn read(x: &[f64]) -> F {
        F(x[0])
    }
    #[inline(always)]
    fn write(v: F, out: &mut [f64]) {
        out[0] = v.0;
    }
    #[inline(always)]
    fn read_part(x: &[f64]) -> F {
        F(x.first().copied().unwrap_or(0.0))
    }
    #[inline(always)]
    fn write_part(v: F, out: &mut [f64]) {
        if let Some(first) = out.first_mut() {
            *first = v.0;
        }
    }
    #[inline(always)]
    fn read_strided(x: &[f64], _: usize) -> F {
        F(x[0])
    }
    #[inline(always)]
    fn write_rows(columns: &[F], out: &mut [f64]) {
        out.iter_mut().zip(columns).for_each(|(to, column)| *to = column.0);
    }
    #[inline(always)]
    fn splat(x: f64) -> F {
        F(x)
    }
    #[inline(always)]
    fn sum(v: F) -> f64 {
        v.0
    }
    #[inline(always)]
    fn four_sums(v: [F; 4]) -> [f64; 4] {
        v.map(|v| v.0)
    }
    #[inline(always)]
    fn largest(v: F) -> f64 {
        v.0
    }
    #[inline(always)]
    fn read_ints(x: &[i32]) -> I {
        I(x[0])
    }
    #[inline(always)]
    fn read_ints_part(x: &[i32]) -> I {
        I(x.first().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Backend, Float, Int, Kernel, Width};
    use super::*;

    /// Over a length with a tail: `scale · x + index`, its sum and its largest, as an op would go through memory.
    #[inline(always)]
    fn walk<R: Copy + Into<f64>, L: Vectors<R>>(x: &[R], index: &[i32], scale: R, out: &mut [R]) -> (f64, f64) {
        let (mut sum, mut largest) = (0.0, f64::NEG_INFINITY);
        let whole = x.len() / L::LANES * L::LANES;
        for at in (0..whole).step_by(L::LANES) {
            let y = L::read(&x[at..]).mul_add(L::splat(scale), L::read_ints(&index[at..]).to_float());
            L::write(y, &mut out[at..]);
            sum += L::sum(y).into();
            largest = largest.max(L::largest(y).into());
        }
        let y = L::read_part(&x[whole..]).mul_add(L::splat(scale), L::read_ints_part(&index[whole..]).to_float());
        L::write_part(y, &mut out[whole..x.len()]);
        (sum + L::sum(y).into(), largest.max(L::largest(y).into()))
    }

    struct Walk<'a>(&'a [f32], &'a [i32], &'a mut [f32]);

    impl Kernel for Walk<'_> {
        type Out = (f64, f64);
        type Home = Self;
        #[inline(always)]
        fn run<L: Simd>(self) -> (f64, f64) {
            walk::<f32, L>(self.0, self.1, 0.5, self.2)
        }
    }

    #[test]
    fn parts_and_reductions_match_a_loop() {
        for length in 0..40usize {
            // Values that f32 adds exactly in any order.
            let x: Vec<f32> = (0..length).map(|i| ((i * 37) % 64) as f32 - 20.0).collect();
            let index: Vec<i32> = (0..length as i32).map(|i| i * 3 - 7).collect();
            let wanted: Vec<f32> = x.iter().zip(&index).map(|(x, i)| x * 0.5 + *i as f32).collect();
            let sum: f64 = wanted.iter().map(|&x| f64::from(x)).sum();
            let largest = wanted.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(f64::from(b)));
            let widths = [Width::One, Width::Eight, Width::Sixteen];
            for backend in widths.iter().flat_map(|&w| [Backend::portable(w), Backend::new(w, Default::default())]) {
                let mut out = vec![7.0; length + 3];
                let (got_sum, got_largest) = backend.run(Walk(&x, &index, &mut out));
                assert_eq!(out[..length], wanted, "{} of {length}", backend.name());
                assert_eq!(out[length..], [7.0; 3], "{} writes past {length}", backend.name());
                assert_eq!(got_sum, sum);
                // An empty or partial group holds zeros beyond the end.
                assert!(got_largest == largest || got_largest == 0.0 && largest < 0.0, "{got_largest} {largest}");
            }
            let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
            let mut out = vec![7.0; length + 3];
            let (got_sum, _) = walk::<f64, Double>(&x, &index, 0.5, &mut out);
            assert_eq!(got_sum, sum);
            assert!(out[..length].iter().zip(&wanted).all(|(a, &b)| *a == f64::from(b)));
            assert_eq!(out[length..], [7.0; 3]);
        }
    }

    /// Reads the columns of rows of this width and writes them back.
    struct Transpose<'a>(&'a [f32], usize, &'a mut [f32]);

    impl Kernel for Transpose<'_> {
        type Out = Vec<f32>;
        type Home = Self;
        #[inline(always)]
        fn run<L: Simd>(self) -> Vec<f32> {
            let (width, mut columns, mut found) = (self.1, [L::F::from(0.0); 12], vec![0.0; self.1 * L::LANES]);
            for (c, column) in columns[..width].iter_mut().enumerate() {
                *column = L::read_strided(&self.0[c..], width);
                L::write(*column, &mut found[c * L::LANES..]);
            }
            L::write_rows(&columns[..width], &mut self.2[..width * L::LANES]);
            found
        }
    }

    #[test]
    fn columns_of_rows_come_and_go() {
        let widths = [Width::Eight, Width::Sixteen];
        for backend in widths.iter().flat_map(|&w| [Backend::portable(w), Backend::new(w, Default::default())]) {
            for width in 1..=12 {
                // No longer than the rows: a read beyond them would panic.
                let x: Vec<f32> = (0..width * backend.width()).map(|i| i as f32).collect();
                let mut back = vec![0.0; x.len()];
                let columns = backend.run(Transpose(&x, width, &mut back));
                for (i, &value) in columns.iter().enumerate() {
                    let (column, lane) = (i / backend.width(), i % backend.width());
                    assert_eq!(value, (lane * width + column) as f32, "{} of {width}", backend.name());
                }
                assert_eq!(back, x);
            }
        }
    }

    /// Sums by halves in plain code: inexact values show the order.
    struct Sums<'a>(&'a [f32]);

    impl Kernel for Sums<'_> {
        type Out = f32;
        type Home = Self;
        #[inline(always)]
        fn run<L: Simd>(self) -> f32 {
            L::sum(L::read(self.0))
        }
    }

    #[test]
    fn sums_go_by_halves() {
        let x: Vec<f32> = (0..16).map(|i| (i as f32 * 1.7).exp2().recip() + i as f32 * 0.1).collect();
        for width in [Width::Eight, Width::Sixteen] {
            let mut halves = x[..Backend::portable(width).width()].to_vec();
            while halves.len() > 1 {
                let (low, high) = halves.split_at(halves.len() / 2);
                halves = low.iter().zip(high).map(|(a, b)| a + b).collect();
            }
            for backend in [Backend::portable(width), Backend::new(width, Default::default())] {
                assert_eq!(backend.run(Sums(&x)).to_bits(), halves[0].to_bits(), "{}", backend.name());
            }
        }
    }
}
