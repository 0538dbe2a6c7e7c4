//! Limits; no gradient beyond them.

use crate::cuda::{Formula, Twin, literal};
use super::super::check::{Case, Random, rows};
use super::super::elementwise::{Binary, Unary, map, map2};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Lanes, Vectors, select};

/// One input, of any shape, limited to `low..=high`.
#[derive(Clone, Copy, Debug)]
pub struct Clip {
    /// Smallest output.
    pub low: f32,
    /// Largest output.
    pub high: f32,
}

impl Unary for Clip {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F) -> L::F {
        x.clamp(self.low, self.high)
    }
}

impl Binary for Clip {
    /// The gradient from x and dy.
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F, dy: L::F) -> L::F {
        select(x.ge(self.low) & x.le(self.high), dy, 0.0)
    }
}

impl Op for Clip {
    const NAME: &'static str = "clip";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            _ if self.low.is_nan() || self.high.is_nan() || self.low > self.high => {
                Err(format!("limits {}..{}, wanted the lower one first", self.low, self.high))
            }
            [x] if x.kind == Kind::Rows => Ok(vec![x.clone()]),
            _ => Err("wanted one input with rows".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 1, outputs: 0 }
    }

    fn twin(&self, _: &Types, _rows: usize) -> Option<Twin> {
        let (low, high) = (literal(self.low), literal(self.high));
        let formula = Formula::new(format!("fminf(fmaxf(x0, {low}), {high})"));
        Some(Twin::by_number(formula.gradient(format!("x0 >= {low} && x0 <= {high} ? dy : 0.0f")), []))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        map::<R, L, _>(*self, c.x[0], c.y[0]);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        map2::<R, L, _>(*self, c.x[0], c.dy[0], c.dx[0]);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        // Limits that no multiple of 1/1024 meets: the function has corners there.
        let limits = Self { low: -0.700_1, high: 0.500_1 };
        vec![
            Case::op(limits, [rows([random.size(1, 60)])]),
            Case::op(Self { high: f32::INFINITY, ..limits }, [rows([2, 3])]),
        ]
    }
}

impl Graph {
    /// Limits to `low..=high`, which may be infinite; the gradient is 0 outside.
    pub fn clip(&mut self, x: Node, low: f32, high: f32) -> Result<Node> {
        self.apply("", Clip { low, high }, &[x])
    }
}
