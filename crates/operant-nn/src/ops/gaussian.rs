//! Normal distributions with a diagonal covariance: log-probability and entropy, and samples squashed by tanh.

use crate::cuda::{Launch, THREADS, Text, Twin, collapse};
use super::super::check::{Case, Random, fixed, rows, whole};
use super::super::lane_rows::{block_len, column, load_block, read_numbers, set_column, store_block, write_numbers};
use super::super::long_rows::lanes_below;
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Real, Scratch};
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Lanes, Vectors, select};

/// ln(2π)/2.
pub(super) const HALF_LOG_TAU: f32 = 0.918_938_5;

/// Inputs: mean `[B, A]`, log of the standard deviation `[B, A]` or, for all rows, `[A]`, action `[B, A]`. Outputs:
/// log-probability `[B, 1]` and entropy `[B, 1]`, sums over A.
#[derive(Clone, Copy, Debug)]
pub struct Gaussian;

/// Logs of standard deviations: a block of rows, or one row for all.
#[derive(Clone, Copy)]
pub(super) enum LogStd<'a, R> {
    Rows(&'a [R]),
    Whole(&'a [R]),
}

impl<R: Real> LogStd<'_, R> {
    #[inline(always)]
    pub(super) fn column<L: Vectors<R>>(self, j: usize) -> L::F {
        match self {
            Self::Rows(block) => column::<R, L>(block, j),
            Self::Whole(row) => L::splat(row[j]),
        }
    }
}

/// Loads a block of log standard deviations if there is a row per sample.
#[inline(always)]
pub(super) fn load_log_std<'a, R: Real, L: Vectors<R>>(
    ty: &Type,
    x: &'a [R],
    first: usize,
    block: &'a mut [R],
) -> LogStd<'a, R> {
    if ty.kind == Kind::Whole {
        return LogStd::Whole(x);
    }
    load_block::<R, L>(x, *ty.shape.last().expect("has an axis"), first, block);
    LogStd::Rows(block)
}

/// Log-probability and entropy with a row in every lane.
#[inline(always)]
pub(super) fn log_prob_and_entropy<R: Real, L: Vectors<R>>(
    n: usize,
    mean: &[R],
    log_std: LogStd<R>,
    action: &[R],
) -> (L::F, L::F) {
    let (mut log_prob, mut entropy) = (L::F::from(0.0), L::F::from(0.0));
    for j in 0..n {
        let s = log_std.column::<L>(j);
        let z = (column::<R, L>(action, j) - column::<R, L>(mean, j)) * (-s).exp_fast();
        log_prob = log_prob - (z * z).mul_add(0.5, s + HALF_LOG_TAU);
        entropy = entropy + s + (HALF_LOG_TAU + 0.5);
    }
    (log_prob, entropy)
}

/// Kernels of `policies.cu` for numbers of an action at so many places of a row; `numbers` has what they share from 3 on.
pub(super) fn cuda_twin(kernel: &str, types: &Types, rows: usize, mut numbers: [usize; 8], factors: [f32; 3]) -> Twin {
    let width = types.x[0].shape.last().copied().unwrap_or(1);
    let places = types.x[0].len() / width;
    let whole = types.x[1].kind == Kind::Whole;
    numbers[..2].copy_from_slice(&[places, width]);
    numbers[6] = usize::from(whole);
    let blocks = (rows * places).div_ceil(THREADS);
    let one = |pass: &str| {
        Launch::blocks(Text::Policies, format!("{kernel}_{pass}"), blocks).numbers(numbers).factors(factors)
    };
    let mut twin = Twin::new([one("forward")], [one("backward")]);
    if whole {
        twin.backward.push(collapse(width, [places, THREADS], [1, 1], width));
        twin = twin.scratch(blocks * width);
    }
    twin
}

/// Where the gradient of log standard deviations goes: a block, or sums over the batch. Nowhere if it is empty.
pub(super) enum LogStdGradient<'a, R> {
    Rows(&'a mut [R]),
    Whole(&'a mut [R]),
}

/// Gradients of mean and log standard deviation from those of log-probability and entropy, which are 0 beyond the last row.
/// Leaves the gradient of the mean in `d_mean`; that of the action is its negative.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
pub(super) fn gradient<R: Real, L: Vectors<R>>(
    n: usize,
    mean: &[R],
    log_std: LogStd<R>,
    action: &[R],
    d_log_prob: L::F,
    d_entropy: L::F,
    d_mean: &mut [R],
    d_log_std: &mut LogStdGradient<R>,
) {
    for j in 0..n {
        let inverse = (-log_std.column::<L>(j)).exp_fast();
        let z = (column::<R, L>(action, j) - column::<R, L>(mean, j)) * inverse;
        set_column::<R, L>(d_log_prob * z * inverse, d_mean, j);
        let d_log = d_log_prob.mul_add(z * z - 1.0, d_entropy);
        match d_log_std {
            LogStdGradient::Rows(block) => set_column::<R, L>(d_log, block, j),
            LogStdGradient::Whole(sums) if !sums.is_empty() => sums[j] += L::sum(d_log),
            LogStdGradient::Whole(_) => {}
        }
    }
}

/// Checks a mean, log standard deviations and other tensors of the same shape.
pub(super) fn check_shapes(mean: &Type, log_std: &Type, others: &[&Type]) -> Result<(), String> {
    let n = mean.len();
    if mean.kind != Kind::Rows || mean.shape.len() != 1 || n == 0 {
        return Err("wanted a mean [B, A]".into());
    }
    if log_std.kind == Kind::Ints || log_std.shape != [n] {
        return Err(format!("wanted logs of standard deviations [B, {n}] or [{n}]"));
    }
    if others.iter().any(|ty| *ty != mean) {
        return Err(format!("wanted actions or noise [B, {n}]"));
    }
    Ok(())
}

impl Op for Gaussian {
    const NAME: &'static str = "gaussian";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [mean, log_std, action] = x else {
            return Err(format!("{} inputs, wanted mean, log standard deviation, action", x.len()));
        };
        check_shapes(mean, log_std, &[action])?;
        Ok(vec![Type::rows([1]), Type::rows([1])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 7, outputs: 0 }
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        // The action has a gradient.
        Some(cuda_twin("gaussian", types, rows, [0, 0, 0, 0, 0, 0, 0, 1], [0.0; 3]))
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(5 * block_len(types.x[0].len()))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let n = c.types.x[0].len();
        let len = block_len(n);
        let (mean, rest) = c.room.real.split_at_mut(len);
        let (action, rest) = rest.split_at_mut(len);
        let spread = &mut rest[..len];
        for first in (0..c.rows).step_by(L::LANES) {
            load_block::<R, L>(c.x[0], n, first, mean);
            load_block::<R, L>(c.x[2], n, first, action);
            let log_std = load_log_std::<R, L>(&c.types.x[1], c.x[1], first, spread);
            let (log_prob, entropy) = log_prob_and_entropy::<R, L>(n, mean, log_std, action);
            write_numbers::<R, L>(log_prob, c.y[0], first);
            write_numbers::<R, L>(entropy, c.y[1], first);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let n = c.types.x[0].len();
        let len = block_len(n);
        let (mean, rest) = c.room.real.split_at_mut(len);
        let (action, rest) = rest.split_at_mut(len);
        let (spread, rest) = rest.split_at_mut(len);
        let (d_mean, rest) = rest.split_at_mut(len);
        let d_spread = &mut rest[..len];
        let per_row = c.types.x[1].kind == Kind::Rows;
        for first in (0..c.rows).step_by(L::LANES) {
            load_block::<R, L>(c.x[0], n, first, mean);
            load_block::<R, L>(c.x[2], n, first, action);
            let log_std = load_log_std::<R, L>(&c.types.x[1], c.x[1], first, spread);
            let d_log_prob = read_numbers::<R, L>(c.dy[0], first);
            let d_entropy = read_numbers::<R, L>(c.dy[1], first);
            let mut d_log_std =
                if per_row { LogStdGradient::Rows(d_spread) } else { LogStdGradient::Whole(c.dx[1]) };
            gradient::<R, L>(n, mean, log_std, action, d_log_prob, d_entropy, d_mean, &mut d_log_std);
            if per_row && !c.dx[1].is_empty() {
                store_block::<R, L>(d_spread, n, first, c.dx[1]);
            }
            if !c.dx[0].is_empty() {
                store_block::<R, L>(d_mean, n, first, c.dx[0]);
            }
            if !c.dx[2].is_empty() {
                for j in 0..n {
                    set_column::<R, L>(-column::<R, L>(d_mean, j), d_mean, j);
                }
                store_block::<R, L>(d_mean, n, first, c.dx[2]);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(1, 20);
        vec![
            Case::op(Self, [rows([n]), whole([n]), fixed(rows([n]))]).rows(21),
            Case::op(Self, [rows([n]), rows([n]), rows([n])]),
            Case::build("log-probability alone", [rows([n]), whole([n]), rows([n])], |g, x| {
                Ok(vec![g.gaussian(x[0], x[1], x[2])?.0])
            }),
            Case::build("entropy alone", [rows([n]), whole([n]), rows([n])], |g, x| {
                Ok(vec![g.gaussian(x[0], x[1], x[2])?.1])
            }),
        ]
    }
}

/// Inputs: mean `[B, A]`, log of the standard deviation `[B, A]` or `[A]`, standard normal noise ε `[B, A]`. Outputs: the
/// action a = tanh(mean + std·ε) `[B, A]` and its log-probability `[B, 1]`, with gradients through the sample (Haarnoja et
/// al., "Soft actor-critic", arXiv:1801.01290, appendix C).
#[derive(Clone, Copy, Debug)]
pub struct SquashedGaussian;

/// ln(1 − tanh²u) = 2·(ln 2 − u − softplus(−2u)), which does not cancel for large |u|.
#[inline(always)]
fn log_slope_of_tanh<L: Lanes>(u: L::F) -> L::F {
    (L::F::from(std::f32::consts::LN_2) - u - (u * -2.0).softplus()) * 2.0
}

impl Op for SquashedGaussian {
    const NAME: &'static str = "squashed_gaussian";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [mean, log_std, noise] = x else {
            return Err(format!("{} inputs, wanted mean, log standard deviation, noise", x.len()));
        };
        check_shapes(mean, log_std, &[noise])?;
        Ok(vec![mean.clone(), Type::rows([1])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 6, outputs: 1 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input < 2
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(6 * block_len(types.x[0].len()))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let n = c.types.x[0].len();
        let len = block_len(n);
        let (mean, rest) = c.room.real.split_at_mut(len);
        let (noise, rest) = rest.split_at_mut(len);
        let spread = &mut rest[..len];
        for first in (0..c.rows).step_by(L::LANES) {
            load_block::<R, L>(c.x[0], n, first, mean);
            load_block::<R, L>(c.x[2], n, first, noise);
            let log_std = load_log_std::<R, L>(&c.types.x[1], c.x[1], first, spread);
            let mut log_prob = L::F::from(0.0);
            for j in 0..n {
                let (s, e) = (log_std.column::<L>(j), column::<R, L>(noise, j));
                let u = s.exp_fast().mul_add(e, column::<R, L>(mean, j));
                log_prob = log_prob - (e * e).mul_add(0.5, s + HALF_LOG_TAU) - log_slope_of_tanh::<L>(u);
                set_column::<R, L>(u.tanh(), mean, j);
            }
            if !c.y[0].is_empty() {
                store_block::<R, L>(mean, n, first, c.y[0]);
            }
            write_numbers::<R, L>(log_prob, c.y[1], first);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let n = c.types.x[0].len();
        let len = block_len(n);
        let (action, rest) = c.room.real.split_at_mut(len);
        let (noise, rest) = rest.split_at_mut(len);
        let (spread, rest) = rest.split_at_mut(len);
        let (d_action, rest) = rest.split_at_mut(len);
        let (d_mean, rest) = rest.split_at_mut(len);
        let d_spread = &mut rest[..len];
        let per_row = c.types.x[1].kind == Kind::Rows;
        d_action.fill(R::default());
        for first in (0..c.rows).step_by(L::LANES) {
            load_block::<R, L>(c.y[0], n, first, action);
            load_block::<R, L>(c.x[2], n, first, noise);
            if !c.dy[0].is_empty() {
                load_block::<R, L>(c.dy[0], n, first, d_action);
            }
            let log_std = load_log_std::<R, L>(&c.types.x[1], c.x[1], first, spread);
            let d_log_prob = read_numbers::<R, L>(c.dy[1], first);
            let inside = lanes_below::<R, L>(c.rows - first);
            for j in 0..n {
                let (a, e) = (column::<R, L>(action, j), column::<R, L>(noise, j));
                // ln(1 − tanh²u) falls by 2·tanh u.
                let slope = L::F::from(1.0) - a * a;
                let d_u = column::<R, L>(d_action, j).mul_add(slope, d_log_prob * a * 2.0);
                let d_log = d_u.mul_add(log_std.column::<L>(j).exp_fast() * e, -d_log_prob);
                set_column::<R, L>(d_u, d_mean, j);
                if per_row {
                    set_column::<R, L>(d_log, d_spread, j);
                } else if !c.dx[1].is_empty() {
                    c.dx[1][j] += L::sum(select::<_, L::F>(inside, d_log, 0.0));
                }
            }
            if !c.dx[0].is_empty() {
                store_block::<R, L>(d_mean, n, first, c.dx[0]);
            }
            if per_row && !c.dx[1].is_empty() {
                store_block::<R, L>(d_spread, n, first, c.dx[1]);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(1, 20);
        let noise = || fixed(rows([n]));
        vec![
            Case::op(Self, [rows([n]), rows([n]), noise()]),
            Case::op(Self, [rows([n]), whole([n]), noise()]).rows(21),
            Case::build("log-probability alone", [rows([n]), whole([n]), noise()], |g, x| {
                Ok(vec![g.squashed_gaussian(x[0], x[1], x[2])?.1])
            }),
            Case::build("action alone", [rows([n]), whole([n]), noise()], |g, x| {
                Ok(vec![g.squashed_gaussian(x[0], x[1], x[2])?.0])
            }),
        ]
    }
}

impl Graph {
    /// Log-probability and entropy, each `[B, 1]`, of actions `[B, A]` under a normal distribution with this mean `[B, A]` and
    /// log of the standard deviation, `[B, A]` or a parameter `[A]`.
    pub fn gaussian(&mut self, mean: Node, log_std: Node, action: Node) -> Result<(Node, Node)> {
        let outputs = self.add_op("", Gaussian, &[mean, log_std, action])?;
        Ok((outputs[0], outputs[1]))
    }

    /// Actions tanh(mean + std·noise) `[B, A]` in (−1, 1) and their log-probability `[B, 1]`; gradients pass through both.
    pub fn squashed_gaussian(&mut self, mean: Node, log_std: Node, noise: Node) -> Result<(Node, Node)> {
        let outputs = self.add_op("", SquashedGaussian, &[mean, log_std, noise])?;
        Ok((outputs[0], outputs[1]))
    }
}
