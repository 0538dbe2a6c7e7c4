//! Independent normal numbers: the usual policy for real-valued actions.

use super::{Draws, Rows, next_rows, scalar, softplus};
use operant_base::{Error, Result};
use operant_lanes::{Backend, Float, Kernel, Lanes, Maths, Simd};
use std::f32::consts::LN_2;

/// ½·ln 2π.
const HALF_LN_TAU: f32 = 0.918_938_5;

/// Normal numbers with mean `[rows, A]` and log standard deviation `[rows, A]` or, shared by all rows, `[A]`.
#[derive(Clone, Copy, Debug)]
pub struct DiagGaussian<'a> {
    mean: &'a [f32],
    log_std: &'a [f32],
    dims: usize,
    /// Entries of `log_std` from one row to the next: 0 if it is shared.
    log_std_stride: usize,
    backend: Backend,
}

impl<'a> DiagGaussian<'a> {
    /// Means `[rows, dims]`; log standard deviations one per mean, or one per dimension.
    pub fn new(mean: &'a [f32], log_std: &'a [f32], dims: usize, backend: Backend) -> Result<Self> {
        if dims == 0 || !mean.len().is_multiple_of(dims) {
            return Err(Error::Invalid(format!(
                "{} means do not make rows of {dims} dimensions; give a multiple",
                mean.len()
            )));
        }
        let log_std_stride = match log_std.len() {
            len if len == mean.len() => dims,
            len if len == dims => 0,
            len => {
                let per_row = mean.len();
                return Err(Error::Invalid(format!("{len} log_std, wanted {dims} (shared) or {per_row} (per row)")));
            }
        };
        Ok(Self { mean, log_std, dims, log_std_stride, backend })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.mean.len() / self.dims
    }

    /// Draws actions, `[rows, dims]`, and tells their log-densities, `[rows]`.
    pub fn sample(&self, draws: Draws, actions: &mut [f32], log_probs: &mut [f32]) {
        self.check_values(actions.len());
        self.check_rows(log_probs.len());
        self.backend.run(Sample { dist: self, draws, raw: Some(actions), squashed: None, log_probs });
    }

    /// The mean.
    pub fn mode(&self, actions: &mut [f32]) {
        actions.copy_from_slice(self.mean);
    }

    /// Log-densities of actions, `[rows]`.
    pub fn log_prob(&self, actions: &[f32], out: &mut [f32]) {
        self.log_prob_of(actions, Values::Plain, out);
    }

    /// Differential entropy in nats, `[rows]`.
    pub fn entropy(&self, out: &mut [f32]) {
        self.check_rows(out.len());
        for (row, out) in out.iter_mut().enumerate() {
            let log_std = &self.log_std[row * self.log_std_stride..][..self.dims];
            *out = log_std.iter().map(|log_std| log_std + HALF_LN_TAU + 0.5).sum();
        }
    }

    /// Kullback–Leibler divergence from this to `other` in nats, `[rows]`. Panics if the shapes differ.
    pub fn kl(&self, other: &DiagGaussian<'_>, out: &mut [f32]) {
        assert!(self.dims == other.dims && self.rows() == other.rows(), "distributions of one shape");
        self.check_rows(out.len());
        for (row, out) in out.iter_mut().enumerate() {
            let term = |i: usize| {
                let (mean_p, log_p) = self.at(row, i);
                let (mean_q, log_q) = other.at(row, i);
                let ratio = scalar(log_p - log_q).exp().get();
                let distance = (mean_p - mean_q) * scalar(-log_q).exp().get();
                log_q - log_p + 0.5 * (ratio * ratio + distance * distance) - 0.5
            };
            *out = (0..self.dims).map(term).sum();
        }
    }

    fn at(&self, row: usize, i: usize) -> (f32, f32) {
        (self.mean[row * self.dims + i], self.log_std[row * self.log_std_stride + i])
    }

    pub(super) fn mean(&self) -> &[f32] {
        self.mean
    }

    pub(super) fn log_prob_of(&self, values: &[f32], kind: Values, out: &mut [f32]) {
        self.check_values(values.len());
        self.check_rows(out.len());
        self.backend.run(LogProb { dist: self, values, kind, out });
    }

    pub(super) fn sample_squashed(
        &self,
        draws: Draws,
        raw: Option<&mut [f32]>,
        squashed: Option<&mut [f32]>,
        log_probs: &mut [f32],
    ) {
        raw.iter().chain(&squashed).for_each(|values| self.check_values(values.len()));
        self.check_rows(log_probs.len());
        let squashed = Some(squashed);
        self.backend.run(Sample { dist: self, draws, raw, squashed, log_probs });
    }

    fn check_rows(&self, got: usize) {
        assert_eq!(got, self.rows(), "one number per row");
    }

    fn check_values(&self, got: usize) {
        assert_eq!(got, self.mean.len(), "one number per row and dimension");
    }
}

/// What numbers whose density is asked for are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// Drawn from the normal distribution; its density.
    Plain,
    /// Drawn from the normal distribution; the density of their tanh.
    Raw,
    /// The tanh itself.
    Squashed,
}

/// ln of the derivative of tanh: 2·(ln 2 − x − softplus(−2x)), which keeps its digits where 1 − tanh² has none left.
#[inline(always)]
fn log_slope<L: Lanes>(x: L::F) -> L::F {
    (L::F::from(LN_2) - x - softplus::<L>(x * -2.0)) * 2.0
}

struct Sample<'a> {
    dist: &'a DiagGaussian<'a>,
    draws: Draws,
    raw: Option<&'a mut [f32]>,
    /// Outer: whether to squash; inner: where to write it.
    squashed: Option<Option<&'a mut [f32]>>,
    log_probs: &'a mut [f32],
}

impl Kernel for Sample<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    #[inline(always)]
    fn run<L: Simd>(mut self) {
        let DiagGaussian { mean, log_std, dims, log_std_stride, .. } = *self.dist;
        let mut first = 0;
        while let Some(rows) = next_rows::<L>(first, self.dist.rows()) {
            let mut rng = self.draws.stream::<L>(rows);
            let mut sum = L::F::from(0.0);
            for i in 0..dims {
                let log_std = rows.read::<L>(log_std, log_std_stride, i);
                let noise = rng.normal();
                let raw = log_std.exp().mul_add(noise, rows.read::<L>(mean, dims, i));
                sum = sum - (noise * noise).mul_add(0.5, log_std + HALF_LN_TAU);
                if let Some(out) = &mut self.raw {
                    rows.write::<L>(raw, out, dims, i);
                }
                if let Some(out) = &mut self.squashed {
                    sum = sum - log_slope::<L>(raw);
                    if let Some(out) = out {
                        rows.write::<L>(raw.tanh(), out, dims, i);
                    }
                }
            }
            rows.write::<L>(sum, self.log_probs, 1, 0);
            first += L::WIDTH;
        }
    }
}

struct LogProb<'a> {
    dist: &'a DiagGaussian<'a>,
    values: &'a [f32],
    kind: Values,
    out: &'a mut [f32],
}

impl LogProb<'_> {
    /// The normal number behind a value.
    #[inline(always)]
    fn raw<L: Simd>(&self, rows: Rows, i: usize) -> L::F {
        let value = rows.read::<L>(self.values, self.dist.dims, i);
        if self.kind != Values::Squashed {
            return value;
        }
        // tanh rounds to ±1 from 9 on: the last float before it stands for all of those.
        let most = 1.0 - f32::EPSILON / 2.0;
        let value = value.clamp(-most, most);
        ((value + 1.0).log() - (L::F::from(1.0) - value).log()) * 0.5
    }
}

impl Kernel for LogProb<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    #[inline(always)]
    fn run<L: Simd>(self) {
        let DiagGaussian { mean, log_std, dims, log_std_stride, .. } = *self.dist;
        let mut first = 0;
        while let Some(rows) = next_rows::<L>(first, self.dist.rows()) {
            let mut sum = L::F::from(0.0);
            for i in 0..dims {
                let log_std = rows.read::<L>(log_std, log_std_stride, i);
                let raw = self.raw::<L>(rows, i);
                let noise = (raw - rows.read::<L>(mean, dims, i)) * (-log_std).exp();
                sum = sum - (noise * noise).mul_add(0.5, log_std + HALF_LN_TAU);
                if self.kind != Values::Plain {
                    sum = sum - log_slope::<L>(raw);
                }
            }
            rows.write::<L>(sum, self.out, 1, 0);
            first += L::WIDTH;
        }
    }
}
