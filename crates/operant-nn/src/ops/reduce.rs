//! Sum, mean and maximum over the last axes of a row.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, distinct, rows};
use super::super::elementwise::sum;
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::Vectors;

/// What becomes of the reduced numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest; the gradient goes to the first of equals.
    Max,
}

/// One input `[B, …, reduced axes]`; the output keeps the axes before them, or is `[B, 1]` if none is left.
#[derive(Clone, Copy, Debug)]
pub struct Reduce {
    /// Which reduction.
    pub how: Reduction,
    /// How many of the last axes; all if there are fewer.
    pub axes: usize,
}

impl Reduce {
    /// Numbers that become one.
    fn block(&self, x: &Type) -> usize {
        x.shape[x.shape.len().saturating_sub(self.axes)..].iter().product()
    }
}

/// Index of the largest; the first of equals.
fn largest<R: Real>(x: &[R]) -> usize {
    let mut best = 0;
    for (i, &value) in x.iter().enumerate() {
        if value > x[best] {
            best = i;
        }
    }
    best
}

impl Op for Reduce {
    const NAME: &'static str = "reduce";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [x] = x else { return Err("wanted one input".into()) };
        if x.kind != Kind::Rows || x.is_empty() || self.axes == 0 {
            return Err("wanted a tensor with rows and at least one axis to reduce".into());
        }
        let kept = &x.shape[..x.shape.len().saturating_sub(self.axes)];
        Ok(vec![Type::rows(if kept.is_empty() { &[1] } else { kept })])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: u32::from(self.how == Reduction::Max), outputs: 0 }
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (count, len) = (types.y[0].len(), self.block(&types.x[0]));
        let numbers = [count, len, self.how as usize, usize::from(types.y[0].shape.len() > 1)];
        let one = |kernel| Launch::warps(Text::Places, kernel, rows * count).numbers(numbers);
        Some(Twin::new([one("reduce_forward")], [one("reduce_backward")]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let block = self.block(&c.types.x[0]);
        let scale = R::of(1.0 / block as f64);
        for (y, x) in c.y[0].iter_mut().zip(c.x[0].chunks_exact(block)) {
            *y = match self.how {
                Reduction::Sum => sum::<R, L>(x),
                Reduction::Mean => sum::<R, L>(x) * scale,
                Reduction::Max => x[largest(x)],
            };
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let block = self.block(&c.types.x[0]);
        let scale = R::of(1.0 / block as f64);
        for (i, (dx, &dy)) in c.dx[0].chunks_exact_mut(block).zip(c.dy[0]).enumerate() {
            match self.how {
                Reduction::Sum => dx.fill(dy),
                Reduction::Mean => dx.fill(dy * scale),
                Reduction::Max => {
                    dx.fill(R::default());
                    dx[largest(&c.x[0][i * block..][..block])] = dy;
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (a, b, d) = (random.size(1, 5), random.size(1, 5), random.size(1, 40));
        let mut cases = Vec::new();
        for how in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
            cases.push(Case::op(Self { how, axes: 1 }, [distinct(rows([a, d]))]));
            cases.push(Case::op(Self { how, axes: 2 }, [distinct(rows([a, b, d]))]));
            cases.push(Case::op(Self { how, axes: 9 }, [distinct(rows([d]))]));
        }
        cases
    }
}

impl Graph {
    /// Sum over the last `axes` axes.
    pub fn sum(&mut self, x: Node, axes: usize) -> Result<Node> {
        self.apply("", Reduce { how: Reduction::Sum, axes }, &[x])
    }

    /// Mean over the last `axes` axes.
    pub fn mean(&mut self, x: Node, axes: usize) -> Result<Node> {
        self.apply("", Reduce { how: Reduction::Mean, axes }, &[x])
    }

    /// Largest over the last `axes` axes.
    pub fn max(&mut self, x: Node, axes: usize) -> Result<Node> {
        self.apply("", Reduce { how: Reduction::Max, axes }, &[x])
    }
}
