//! Muon's step for one matrix: momentum, then Newton–Schulz iteration towards the nearest orthogonal matrix.
//!
//! Matrices are worked on in scratch of whole 16 × 16 tiles; the zeros that fill it up stay zeros in every product.

use super::kernels::{LEAST_MEAN, SumOfSquares};
use operant_lanes::{Backend, Float, Kernel, Maths, Simd};

/// Coefficients of the quintic iteration: K. Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024.
const QUINTIC: [f32; 3] = [3.4445, -4.7750, 2.0315];
/// Iterations; singular values then lie within about 0.7 to 1.2.
const ITERATIONS: usize = 5;
/// Least norm that a matrix is divided by.
const EPS: f32 = 1e-7;
/// Rows and columns come in multiples of this.
const TILE: usize = 16;
/// Rows of a product whose sums stay in registers.
const ROWS: usize = 8;

/// Where a matrix lies in the flat vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub(super) offset: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Matrix {
    /// Where its elements lie.
    pub(super) fn range(self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.rows * self.columns
    }

    /// Rows and columns of the scratch matrix, the fewer first.
    fn padded(self) -> (usize, usize) {
        let (rows, columns) = (self.rows.next_multiple_of(TILE), self.columns.next_multiple_of(TILE));
        (rows.min(columns), rows.max(columns))
    }
}

/// Memory for the largest matrix, taken once.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    x: Vec<f32>,
    next: Vec<f32>,
    gram: Vec<f32>,
    quintic: Vec<f32>,
    panel: Vec<f32>,
}

/// What is the same for all elements of a step.
#[derive(Clone, Copy)]
pub(super) struct MuonConstants {
    /// Factor of the gradient: clipping and loss scale.
    pub(super) grad_scale: f32,
    /// What stays of the mean of gradients.
    pub(super) momentum: f32,
    /// 1 − momentum.
    pub(super) rate: f32,
    /// Learning rate, with the factor for the matrix's shape.
    pub(super) step: f32,
    /// 1 − learning rate · weight decay.
    pub(super) keep: f32,
}

impl Scratch {
    pub(super) fn new(matrices: &[Matrix]) -> Self {
        let sizes = matrices.iter().map(|matrix| matrix.padded());
        let (mut full, mut square, mut panel) = (0, 0, 0);
        for (m, n) in sizes {
            full = full.max(m * n);
            square = square.max(m * m);
            panel = panel.max(n * TILE);
        }
        let zeros = |len| vec![0.0; len];
        Self { x: zeros(full), next: zeros(full), gram: zeros(square), quintic: zeros(square), panel: zeros(panel) }
    }

    /// One step; the slices are the matrix's own elements.
    pub(super) fn step(
        &mut self,
        backend: Backend,
        matrix: Matrix,
        values: &mut [f32],
        grads: &[f32],
        momentum: &mut [f32],
        constants: MuonConstants,
    ) {
        let MuonConstants { grad_scale, momentum: stays, rate, step, keep } = constants;
        let (m, n) = matrix.padded();
        let Self { x, next, gram, quintic, panel } = self;
        let (x, next) = (&mut x[..m * n], &mut next[..m * n]);
        let (gram, quintic, panel) = (&mut gram[..m * m], &mut quintic[..m * m], &mut panel[..n * TILE]);
        // The Gram matrix of the shorter side is the smaller.
        let tall = matrix.rows > matrix.columns;
        x.fill(0.0);
        for row in 0..matrix.rows {
            for column in 0..matrix.columns {
                let i = row * matrix.columns + column;
                let g = grads[i] * grad_scale;
                let mean = momentum[i] + rate * (g - momentum[i]);
                momentum[i] = if mean.abs() < LEAST_MEAN { 0.0 } else { mean };
                x[if tall { column * n + row } else { row * n + column }] = g + stays * (momentum[i] - g);
            }
        }
        let norm = backend.run(SumOfSquares(x)).sqrt() as f32;
        let scale = 1.0 / norm.max(EPS);
        x.iter_mut().for_each(|x| *x *= scale);
        let (mut from, mut to) = (x, next);
        let [a, b, c] = QUINTIC;
        for _ in 0..ITERATIONS {
            let transposed = Right::Transposed(from);
            backend.run(Product { left: from, right: transposed, inner: n, factor: 1.0, plus: None, out: gram, panel });
            let right = Right::Plain(gram);
            let plus = Some((b, &*gram));
            backend.run(Product { left: gram, right, inner: m, factor: c, plus, out: quintic, panel });
            let right = Right::Plain(from);
            let plus = Some((a, &*from));
            backend.run(Product { left: quintic, right, inner: m, factor: 1.0, plus, out: to, panel });
            std::mem::swap(&mut from, &mut to);
        }
        for row in 0..matrix.rows {
            for column in 0..matrix.columns {
                let i = row * matrix.columns + column;
                let direction = from[if tall { column * n + row } else { row * n + column }];
                values[i] = values[i] * keep - step * direction;
            }
        }
    }
}

/// The right factor, as it lies in memory.
#[derive(Clone, Copy)]
enum Right<'a> {
    /// `[k, n]`.
    Plain(&'a [f32]),
    /// `[n, k]`.
    Transposed(&'a [f32]),
}

/// `out = factor · left · right + plus.0 · plus.1`, on whole tiles: `[m, inner] · [inner, n]`.
struct Product<'a> {
    left: &'a [f32],
    right: Right<'a>,
    inner: usize,
    factor: f32,
    plus: Option<(f32, &'a [f32])>,
    out: &'a mut [f32],
    /// `[inner, TILE]`: the columns of `right` at work, side by side.
    panel: &'a mut [f32],
}

impl Kernel for Product<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    #[inline(always)]
    fn run<L: Simd>(self) {
        let Self { left, right, inner, factor, plus, out, panel } = self;
        let m = left.len() / inner;
        let n = out.len() / m;
        let panel = &mut panel[..inner * TILE];
        let vectors = TILE / L::WIDTH;
        for column in (0..n).step_by(TILE) {
            match right {
                Right::Plain(right) => {
                    for (k, line) in panel.chunks_exact_mut(TILE).enumerate() {
                        line.copy_from_slice(&right[k * n + column..][..TILE]);
                    }
                }
                Right::Transposed(right) => {
                    for j in 0..TILE {
                        let line = &right[(column + j) * inner..][..inner];
                        for (k, &x) in line.iter().enumerate() {
                            panel[k * TILE + j] = x;
                        }
                    }
                }
            }
            for row in (0..m).step_by(ROWS) {
                let lines: [&[f32]; ROWS] = rows(left, row, inner);
                let mut sums = [[L::F::from(0.0); ROWS]; TILE];
                for (k, line) in panel.chunks_exact(TILE).enumerate() {
                    for v in 0..vectors {
                        let x = L::load_f(&line[v * L::WIDTH..]);
                        for r in 0..ROWS {
                            sums[v][r] = x.mul_add(lines[r][k], sums[v][r]);
                        }
                    }
                }
                for (v, sums) in sums[..vectors].iter().enumerate() {
                    for (r, &sum) in sums.iter().enumerate() {
                        let at = (row + r) * n + column + v * L::WIDTH;
                        let mut sum = sum * factor;
                        if let Some((scale, addend)) = plus {
                            sum = L::load_f(&addend[at..]).mul_add(scale, sum);
                        }
                        L::store_f(sum, &mut out[at..]);
                    }
                }
            }
        }
    }
}

/// `ROWS` rows of a matrix, each exactly as long as a row.
#[inline(always)]
fn rows(matrix: &[f32], first: usize, length: usize) -> [&[f32]; ROWS] {
    let mut rows: [&[f32]; ROWS] = [&[]; ROWS];
    for (r, row) in rows.iter_mut().enumerate() {
        *row = &matrix[(first + r) * length..][..length];
    }
    rows
}
