//! Quantile regression of returns (Dabney et al., "Distributional reinforcement learning with quantile regression",
//! arXiv:1710.10044; with given τ, "Implicit quantile networks", arXiv:1806.06923, equation 3).

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, Values, fixed, rows, with};
use super::super::long_rows::{chunk, lanes_below};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Int, Lanes, Vectors, select};

/// Inputs: quantiles θ `[B, N]`, targets T `[B, M]`, and with `levels` the levels τ `[B, N]` of the quantiles, which are
/// (i + ½)/N else. The output `[B, 1]` is Σᵢ meanⱼ |τᵢ − 1(δ < 0)|·Huber(δ)/κ with δ = Tⱼ − θᵢ. Gradients go to θ alone.
#[derive(Clone, Copy, Debug)]
pub struct QuantileLoss {
    /// κ: where the parabola ends.
    pub kappa: f32,
    /// Whether there is a third input.
    pub levels: bool,
}

/// |τ − 1(δ < 0)|.
#[inline(always)]
fn asymmetry<L: Lanes>(level: L::F, difference: L::F) -> L::F {
    select(difference.lt(0.0), L::F::from(1.0) - level, level)
}

impl QuantileLoss {
    /// Levels of quantiles `at..at + count` of a row.
    #[inline(always)]
    fn level<R: Real, L: Vectors<R>>(&self, given: &[R], row: usize, n: usize, at: usize, count: usize) -> L::F {
        if self.levels {
            return L::read_part(&given[row * n + at..][..count]);
        }
        let place = L::read_ints(&PLACES) + at as i32;
        (place.to_float() + 0.5) * L::splat(R::of(1.0 / n as f64))
    }
}

const PLACES: [i32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

impl Op for QuantileLoss {
    const NAME: &'static str = "quantile_loss";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = if self.levels { 3 } else { 2 };
        let flat = |ty: &Type| ty.kind == Kind::Rows && ty.shape.len() == 1 && !ty.is_empty();
        if x.len() != wanted || !x.iter().all(flat) || (self.levels && x[2] != x[0]) {
            let levels = if self.levels { " and levels [B, N]" } else { "" };
            return Err(format!("wanted quantiles [B, N], targets [B, M]{levels}"));
        }
        if !(self.kappa > 0.0 && self.kappa.is_finite()) {
            return Err(format!("kappa {}, wanted a positive number", self.kappa));
        }
        Ok(vec![Type::rows([1])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: if self.levels { 7 } else { 3 }, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (n, m) = (types.x[0].len(), types.x[1].len());
        let with = |launch: Launch| launch.numbers([n, m, usize::from(self.levels)]).factors([self.kappa]);
        let forward = Launch::warps(Text::Rows, "quantile_forward", rows);
        let backward = Launch::each(Text::Rows, "quantile_backward", rows * n);
        Some(Twin::new([with(forward)], [with(backward)]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (n, m) = (c.types.x[0].len(), c.types.x[1].len());
        let scale = R::of(1.0 / (m as f64 * f64::from(self.kappa)));
        for (row, y) in c.y[0].iter_mut().enumerate() {
            let mut sum = L::F::from(0.0);
            for at in (0..n).step_by(L::LANES) {
                let count = chunk::<R, L>(n, at);
                let theta = L::read_part(&c.x[0][row * n + at..][..count]);
                let level = self.level::<R, L>(c.x[2], row, n, at, count);
                let mut cost = L::F::from(0.0);
                for &target in &c.x[1][row * m..][..m] {
                    let difference = L::splat(target) - theta;
                    let size = difference.abs();
                    let parabola = size * size * 0.5;
                    let huber: L::F = select(size.lt(self.kappa), parabola, (size - self.kappa * 0.5) * self.kappa);
                    cost = asymmetry::<L>(level, difference).mul_add(huber, cost);
                }
                sum = sum + select::<_, L::F>(lanes_below::<R, L>(count), cost, 0.0);
            }
            *y = L::sum(sum) * scale;
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (n, m) = (c.types.x[0].len(), c.types.x[1].len());
        let scale = R::of(-1.0 / (m as f64 * f64::from(self.kappa)));
        for (row, &dy) in c.dy[0].iter().enumerate() {
            for at in (0..n).step_by(L::LANES) {
                let count = chunk::<R, L>(n, at);
                let theta = L::read_part(&c.x[0][row * n + at..][..count]);
                let level = self.level::<R, L>(c.x[2], row, n, at, count);
                let mut slope = L::F::from(0.0);
                for &target in &c.x[1][row * m..][..m] {
                    let difference = L::splat(target) - theta;
                    let huber = difference.clamp(-self.kappa, self.kappa);
                    slope = asymmetry::<L>(level, difference).mul_add(huber, slope);
                }
                L::write_part(slope * L::splat(dy * scale), &mut c.dx[0][row * n + at..][..count]);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (n, m) = (random.size(1, 40), random.size(1, 20));
        let levels = fixed(with(Values::Unit, rows([n])));
        vec![
            Case::op(Self { kappa: 1.0, levels: false }, [rows([n]), fixed(rows([m]))]),
            Case::op(Self { kappa: 0.3, levels: true }, [rows([n]), fixed(rows([m])), levels]),
        ]
    }
}

impl Graph {
    /// Quantile Huber loss `[B, 1]` of quantiles `[B, N]` and targets `[B, M]`; `levels` `[B, N]` are those of the quantiles
    /// if they are not evenly spread.
    pub fn quantile_loss(&mut self, x: Node, target: Node, kappa: f32, levels: Option<Node>) -> Result<Node> {
        let inputs: Vec<Node> = [x, target].into_iter().chain(levels).collect();
        self.apply("", QuantileLoss { kappa, levels: levels.is_some() }, &inputs)
    }
}
