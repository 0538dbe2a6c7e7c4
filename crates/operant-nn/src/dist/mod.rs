//! Distributions of actions over row-major slices `[rows, A]`, written to slices of the caller; nothing is allocated.
//!
//! Rows are lanes: sixteen rows are sampled at once, and in strict mode every width gives the same bits. A draw is a function of
//! (seed, row, step, draw), so a row replays alone. Lengths are checked where a distribution is made; later a slice of another
//! length panics.

mod categorical;
mod factored;
mod gaussian;
mod squashed;

pub use categorical::Categorical;
pub use factored::{CausalMask, Factored};
pub use gaussian::DiagGaussian;
pub use squashed::SquashedGaussian;

use operant_lanes::rng::key;
use operant_lanes::{Float, Lanes, Rng, Scalar, Simd};

/// Sets streams of actions apart from those of envs with the same seed.
const ACTIONS: u64 = 0x6163_7469_6f6e_7300;

/// Where samples come from: row k draws from the stream (seed, first_row + k, step).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the first row, such as that of its env.
    pub first_row: u32,
    /// Number of the step; each step has its own draws.
    pub step: u64,
}

impl Draws {
    #[inline(always)]
    fn stream<L: Simd>(self, rows: Rows) -> Rng<L> {
        let mut numbers = [0; 16];
        for (lane, number) in numbers.iter_mut().enumerate() {
            *number = self.first_row.wrapping_add((rows.first + lane) as u32) as i32;
        }
        let (high, low) = ((self.step >> 32) as i32, self.step as i32);
        Rng::new(key::<L::I>(self.seed ^ ACTIONS), L::load(&numbers), L::I::from(high), L::I::from(low))
    }
}

/// Rows at work, one per lane. Where there are fewer than lanes, the last is repeated and its copies are not written.
#[derive(Clone, Copy)]
struct Rows {
    first: usize,
    count: usize,
}

impl Rows {
    /// Lane `lane`'s row.
    #[inline(always)]
    fn row(self, lane: usize) -> usize {
        self.first + lane.min(self.count - 1)
    }

    /// `x[row · stride + column]` of each row; a stride of 0 gives all rows the same.
    #[inline(always)]
    fn read<L: Simd>(self, x: &[f32], stride: usize, column: usize) -> L::F {
        let mut words = [0; 16];
        for (lane, word) in words[..L::WIDTH].iter_mut().enumerate() {
            *word = x[self.row(lane) * stride + column].to_bits() as i32;
        }
        L::F::from_bits(L::load(&words))
    }

    /// The same of integers.
    #[inline(always)]
    fn read_ints<L: Simd>(self, x: &[i32], stride: usize, column: usize) -> L::I {
        let mut words = [0; 16];
        for (lane, word) in words[..L::WIDTH].iter_mut().enumerate() {
            *word = x[self.row(lane) * stride + column];
        }
        L::load(&words)
    }

    /// `out[row · stride + column] = value` of each row.
    #[inline(always)]
    fn write<L: Simd>(self, value: L::F, out: &mut [f32], stride: usize, column: usize) {
        let mut lanes = [0.0; 16];
        L::store_f(value, &mut lanes);
        for (lane, &x) in lanes[..self.count].iter().enumerate() {
            out[(self.first + lane) * stride + column] = x;
        }
    }

    /// The same of integers.
    #[inline(always)]
    fn write_ints<L: Simd>(self, value: L::I, out: &mut [i32], stride: usize, column: usize) {
        let mut lanes = [0; 16];
        L::store(value, &mut lanes);
        for (lane, &x) in lanes[..self.count].iter().enumerate() {
            out[(self.first + lane) * stride + column] = x;
        }
    }
}

/// The next rows from `first` on; none at the end.
#[inline(always)]
fn next_rows<L: Simd>(first: usize, all: usize) -> Option<Rows> {
    if first < all { Some(Rows { first, count: (all - first).min(L::WIDTH) }) } else { None }
}

/// ln(1 + eˣ), without overflow.
#[inline(always)]
fn softplus<L: Lanes>(x: L::F) -> L::F {
    x.max(0.0) + ((-x.abs()).exp() + 1.0).log()
}

/// One lane, for what is seldom asked.
fn scalar(x: f32) -> <Scalar as Lanes>::F {
    x.into()
}
