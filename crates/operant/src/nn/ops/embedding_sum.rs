//! Several integers as the sum of their learned vectors: a linear layer over one-hots that reads only the rows that count.

use super::super::check::{Case, Random, ints, whole};
use super::super::elementwise::{Plus, update};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Init, Node};
use crate::Result;
use crate::lanes::Vectors;

/// Inputs: integers `[B, K]` below V and a weight `[V, D]`; the output is `[B, D]`.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingSum;

impl Op for EmbeddingSum {
    const NAME: &'static str = "embedding_sum";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [index, weight] if index.kind == Kind::Ints && weight.kind == Kind::Whole && !weight.is_empty() => {
                match (&index.shape[..], &weight.shape[..]) {
                    ([count], [_, d]) if *count > 0 => Ok(vec![Type::rows([*d])]),
                    _ => Err("wanted integers [rows, at least 1] and a weight [entries, features]".into()),
                }
            }
            _ => Err("wanted integers and a weight [entries, features]".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (d, k) = (c.types.x[1].shape[1], c.types.x[0].shape[0]);
        for (y, indices) in c.y[0].chunks_exact_mut(d).zip(c.ints[0].chunks_exact(k)) {
            y.copy_from_slice(&c.x[1][indices[0] as usize * d..][..d]);
            for &i in &indices[1..] {
                update::<R, L, _>(Plus, &c.x[1][i as usize * d..][..d], y);
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (d, k) = (c.types.x[1].shape[1], c.types.x[0].shape[0]);
        for (dy, indices) in c.dy[0].chunks_exact(d).zip(c.ints[0].chunks_exact(k)) {
            for &i in indices {
                update::<R, L, _>(Plus, dy, &mut c.dx[1][i as usize * d..][..d]);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (v, d, k) = (random.size(1, 8), random.size(1, 40), random.size(1, 4));
        vec![Case::op(Self, [ints([1], v), whole([v, d])]), Case::op(Self, [ints([k], v), whole([v, d])])]
    }
}

impl Graph {
    /// The sum of the rows of the parameter `<name>.weight` `[entries, features]` that integers `[B, K]` name, plus `<name>.bias`. A
    /// run panics at an integer that is not below `entries`.
    pub fn embedding_sum(&mut self, name: &str, index: Node, entries: usize, features: usize) -> Result<Node> {
        let count = self.shape(index).iter().product::<usize>().max(1);
        // Like a linear layer of so many inputs that are 1, with a ReLU behind it (He et al., arXiv:1502.01852).
        let std = (2.0 / count as f32).sqrt();
        let weight = self.param(&format!("{name}.weight"), [entries, features], Init::Normal { std });
        let sum = self.apply(name, EmbeddingSum, &[index, weight])?;
        self.bias(name, sum, Init::Zeros)
    }
}
