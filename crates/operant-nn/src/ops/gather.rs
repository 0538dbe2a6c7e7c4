//! Picking numbers of a row by integers: the value of the action taken.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, ints, rows};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::Vectors;

/// Inputs: x `[B, A]` and integers `[B]` or `[B, K]` below A; the output is `[B, 1]` or `[B, K]`.
#[derive(Clone, Copy, Debug)]
pub struct Gather;

impl Op for Gather {
    const NAME: &'static str = "gather";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x, index]
                if x.kind == Kind::Rows
                    && x.shape.len() == 1
                    && !x.is_empty()
                    && index.kind == Kind::Ints
                    && index.shape.len() <= 1
                    && !index.is_empty() =>
            {
                Ok(vec![Type::rows([index.len()])])
            }
            _ => Err("wanted numbers [B, A] and integers [B] or [B, K]".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn adds(&self) -> bool {
        true
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let numbers = [types.x[0].len(), types.x[1].len()];
        let one = |kernel, len: usize| Launch::each(Text::Rows, kernel, rows * len).numbers(numbers);
        Some(Twin::new([one("gather_forward", numbers[1])], [one("gather_backward", numbers[0])]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (a, k) = (c.types.x[0].len(), c.types.x[1].len());
        let rows = c.x[0].chunks_exact(a).zip(c.ints[1].chunks_exact(k));
        for (y, (x, index)) in c.y[0].chunks_exact_mut(k).zip(rows) {
            for (y, &i) in y.iter_mut().zip(index) {
                *y = x[i as usize];
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (a, k) = (c.types.x[0].len(), c.types.x[1].len());
        if c.add & 1 == 0 {
            c.dx[0].fill(R::default());
        }
        let rows = c.dy[0].chunks_exact(k).zip(c.ints[1].chunks_exact(k));
        for (dx, (dy, index)) in c.dx[0].chunks_exact_mut(a).zip(rows) {
            for (&dy, &i) in dy.iter().zip(index) {
                dx[i as usize] += dy;
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (a, k) = (random.size(1, 30), random.size(2, 5));
        vec![
            Case::op(Self, [rows([a]), ints([], a)]),
            Case::op(Self, [rows([a]), ints([k], a)]),
            Case::build("shared", [rows([a]), ints([1], a), ints([1], a)], |g, x| {
                let one = g.gather(x[0], x[1])?;
                let other = g.gather(x[0], x[2])?;
                Ok(vec![g.mul(one, other)?])
            }),
        ]
    }
}

impl Graph {
    /// The numbers of a row `[B, A]` that integers `[B]` or `[B, K]` point at. A run panics at an integer that is not below A.
    pub fn gather(&mut self, x: Node, index: Node) -> Result<Node> {
        self.apply("", Gather, &[x, index])
    }
}
