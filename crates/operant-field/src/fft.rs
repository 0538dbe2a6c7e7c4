//! Discrete Fourier transforms of lengths that are powers of two, in f64: for spectra and random fields, not for hot loops.
//!
//! Radix 2 in place (Cooley & Tukey, 1965), with twiddle factors computed once. Forward without a factor, back with 1/n, as NumPy.

use std::f64::consts::TAU;

/// A complex number as (real, imaginary).
pub type Complex = [f64; 2];

fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// Transforms of one length.
#[derive(Clone, Debug)]
pub struct Fft {
    n: usize,
    /// e^(−2πik/n) for k below n/2.
    twiddles: Vec<Complex>,
    column: Vec<Complex>,
}

impl Fft {
    /// For `n` numbers, a power of two.
    pub fn new(n: usize) -> Self {
        assert!(n.is_power_of_two(), "a transform of {n} numbers: wanted a power of two");
        let twiddle = |k: usize| {
            let (sin, cos) = (-TAU * k as f64 / n as f64).sin_cos();
            [cos, sin]
        };
        Self { n, twiddles: (0..n / 2).map(twiddle).collect(), column: vec![[0.0; 2]; n] }
    }

    /// Numbers of a transform.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether it transforms nothing.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// In place, forward.
    pub fn forward(&self, x: &mut [Complex]) {
        transform(&self.twiddles, x);
    }

    /// In place, of `[n, n]`, forward.
    pub fn forward_square(&mut self, x: &mut [Complex]) {
        let n = self.n;
        x.chunks_exact_mut(n).for_each(|row| transform(&self.twiddles, row));
        let mut column = std::mem::take(&mut self.column);
        for j in 0..n {
            (0..n).for_each(|i| column[i] = x[i * n + j]);
            transform(&self.twiddles, &mut column);
            (0..n).for_each(|i| x[i * n + j] = column[i]);
        }
        self.column = column;
    }

    /// In place, of `[n, n]`, back.
    pub fn back_square(&mut self, x: &mut [Complex]) {
        // The inverse is the conjugate of the transform of the conjugate.
        x.iter_mut().for_each(|x| x[1] = -x[1]);
        self.forward_square(x);
        let scale = 1.0 / (self.n * self.n) as f64;
        x.iter_mut().for_each(|x| *x = [x[0] * scale, -x[1] * scale]);
    }
}

fn transform(twiddles: &[Complex], x: &mut [Complex]) {
    let n = x.len();
    assert_eq!(n, (2 * twiddles.len()).max(1), "numbers of a transform");
    let mut j = 0;
    for i in 1..n {
        let mut bit = n >> 1;
        while j & bit != 0 {
            j ^= bit;
            bit >>= 1;
        }
        j |= bit;
        if i < j {
            x.swap(i, j);
        }
    }
    let mut half = 1;
    while half < n {
        let stride = n / (2 * half);
        for block in x.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (k, (a, b)) in low.iter_mut().zip(high).enumerate() {
                let product = times(*b, twiddles[k * stride]);
                (*a, *b) = ([a[0] + product[0], a[1] + product[1]], [a[0] - product[0], a[1] - product[1]]);
            }
        }
        half *= 2;
    }
}

/// Signed frequency of place k of n, in cycles per n.
pub fn frequency(k: usize, n: usize) -> f64 {
    if 2 * k < n { k as f64 } else { k as f64 - n as f64 }
}
