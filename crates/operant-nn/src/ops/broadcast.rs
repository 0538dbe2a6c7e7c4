//! A vector per row applied at every place of the row: squeeze-and-excite, FiLM.

use crate::cuda::{Twin, vector_twin};
use super::super::check::{Case, Random, rows};
use super::super::elementwise::{Binary, Plus, Ternary, map2, update, update2};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Lanes, Vectors};

/// Inputs: x `[B, …, C]` and v `[B, C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broadcast {
    /// x + v.
    Add,
    /// x·v.
    Mul,
}

#[derive(Clone, Copy)]
struct Times;
impl Binary for Times {
    #[inline(always)]
    fn apply<L: Lanes>(self, a: L::F, b: L::F) -> L::F {
        a * b
    }
}
impl Ternary for Times {
    #[inline(always)]
    fn apply<L: Lanes>(self, y: L::F, a: L::F, b: L::F) -> L::F {
        a.mul_add(b, y)
    }
}

impl Op for Broadcast {
    const NAME: &'static str = "broadcast";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x, v]
                if x.kind == Kind::Rows
                    && v.kind == Kind::Rows
                    && v.shape.len() == 1
                    && x.shape.last() == v.shape.last()
                    && !x.is_empty() =>
            {
                Ok(vec![x.clone()])
            }
            _ => Err("wanted [B, …, C] and [B, C]".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: if *self == Self::Mul { 3 } else { 0 }, outputs: 0 }
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        Some(vector_twin(*self as usize, types, rows))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (row, n) = (c.types.x[0].len(), c.types.x[1].len());
        let rows = c.x[0].chunks_exact(row).zip(c.x[1].chunks_exact(n));
        for (y, (x, v)) in c.y[0].chunks_exact_mut(row).zip(rows) {
            for (y, x) in y.chunks_exact_mut(n).zip(x.chunks_exact(n)) {
                match self {
                    Self::Add => map2::<R, L, _>(Plus, x, v, y),
                    Self::Mul => map2::<R, L, _>(Times, x, v, y),
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (row, n) = (c.types.x[0].len(), c.types.x[1].len());
        if !c.dx[0].is_empty() {
            if *self == Self::Add {
                c.dx[0].copy_from_slice(c.dy[0]);
            } else {
                let rows = c.dy[0].chunks_exact(row).zip(c.x[1].chunks_exact(n));
                for (dx, (dy, v)) in c.dx[0].chunks_exact_mut(row).zip(rows) {
                    for (dx, dy) in dx.chunks_exact_mut(n).zip(dy.chunks_exact(n)) {
                        map2::<R, L, _>(Times, dy, v, dx);
                    }
                }
            }
        }
        if !c.dx[1].is_empty() {
            for (r, (dv, dy)) in c.dx[1].chunks_exact_mut(n).zip(c.dy[0].chunks_exact(row)).enumerate() {
                dv.fill(R::default());
                for (place, dy) in dy.chunks_exact(n).enumerate() {
                    match self {
                        Self::Add => update::<R, L, _>(Plus, dy, dv),
                        Self::Mul => update2::<R, L, _>(Times, dy, &c.x[0][r * row + place * n..][..n], dv),
                    }
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (a, b, n) = (random.size(1, 3), random.size(1, 4), random.size(1, 40));
        let mut cases = Vec::new();
        for op in [Self::Add, Self::Mul] {
            cases.push(Case::op(op, [rows([a, b, n]), rows([n])]));
            cases.push(Case::op(op, [rows([b, 3]), rows([3])]));
            cases.push(Case::build("the same tensor on both sides", [rows([n])], move |g, x| {
                Ok(vec![g.apply("", op, &[x[0], x[0]])?])
            }));
        }
        cases
    }
}

impl Graph {
    /// x `[B, …, C]` + v `[B, C]`, at every place.
    pub fn broadcast_add(&mut self, x: Node, v: Node) -> Result<Node> {
        self.apply("", Broadcast::Add, &[x, v])
    }

    /// x `[B, …, C]` · v `[B, C]`, at every place.
    pub fn broadcast_mul(&mut self, x: Node, v: Node) -> Result<Node> {
        self.apply("", Broadcast::Mul, &[x, v])
    }
}
