//! A learned vector added to every row, or given to every row.

use crate::cuda::{Formula, Read, Twin, column_sums};
use super::super::check::{Case, Random, rows, whole};
use super::super::elementwise::{Plus, add_columns, map2, update};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Init, Node};
use operant_base::Result;
use operant_lanes::Vectors;

/// Inputs: x `[B, …, C]` and a bias `[C]`.
#[derive(Clone, Copy, Debug)]
pub struct Bias;

impl Op for Bias {
    const NAME: &'static str = "bias";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x, bias] if x.kind == Kind::Rows && bias.kind == Kind::Whole && !x.is_empty() => {
                match (x.shape.last(), &bias.shape[..]) {
                    (Some(features), [n]) if features == n => Ok(vec![x.clone()]),
                    _ => Err("wanted a bias as long as the last axis".into()),
                }
            }
            _ => Err("wanted an input with rows and a bias without".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn adds(&self) -> bool {
        true
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (len, n) = (types.x[0].len(), types.x[1].len());
        let (sums, scratch) = column_sums(rows, len / n, n, 1);
        let formula = Formula::new("plus(x0, x1)").gradient("dy").reads([Read::Each, Read::Shared(n)]);
        Some(Twin::by_number(formula, sums).scratch(scratch))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let bias = c.x[1];
        for (y, x) in c.y[0].chunks_exact_mut(bias.len()).zip(c.x[0].chunks_exact(bias.len())) {
            map2::<R, L, _>(Plus, x, bias, y);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        if !c.dx[0].is_empty() {
            if c.add & 1 == 1 {
                update::<R, L, _>(Plus, c.dy[0], c.dx[0]);
            } else {
                c.dx[0].copy_from_slice(c.dy[0]);
            }
        }
        if !c.dx[1].is_empty() {
            add_columns::<R, L>(c.dy[0], c.dx[1]);
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (n, t) = (random.size(1, 40), random.size(1, 3));
        vec![
            Case::op(Self, [rows([n]), whole([n])]),
            Case::op(Self, [rows([t, n]), whole([n])]),
            Case::build("shared", [rows([n]), whole([n])], |g, x| {
                let y = g.apply("", Self, x)?;
                Ok(vec![g.mul(y, x[0])?])
            }),
        ]
    }
}

/// A tensor without rows, repeated for every row.
#[derive(Clone, Copy, Debug)]
pub struct Expand;

impl Op for Expand {
    const NAME: &'static str = "expand";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x] if x.kind == Kind::Whole && !x.is_empty() => Ok(vec![Type::rows(x.shape.clone())]),
            _ => Err("wanted one input without rows".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let len = types.x[0].len();
        let (sums, scratch) = column_sums(rows, 1, len, 0);
        Some(Twin::by_number(Formula::new("x0").reads([Read::Shared(len)]), sums).scratch(scratch))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        c.y[0].chunks_exact_mut(c.x[0].len()).for_each(|y| y.copy_from_slice(c.x[0]));
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        add_columns::<R, L>(c.dy[0], c.dx[0]);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        vec![Case::op(Self, [whole([random.size(1, 40)])]), Case::op(Self, [whole([2, random.size(1, 20)])])]
    }
}

impl Graph {
    /// Adds a learned vector `<name>.bias` over the last axis.
    pub fn bias(&mut self, name: &str, x: Node, init: Init) -> Result<Node> {
        let features = self.features(name, x)?;
        let bias = self.param(&format!("{name}.bias"), [features], init);
        self.apply(name, Bias, &[x, bias])
    }

    /// A tensor without rows (a learned query, a log of standard deviations) as one with the same row for every sample.
    pub fn expand(&mut self, x: Node) -> Result<Node> {
        self.apply("", Expand, &[x])
    }
}
