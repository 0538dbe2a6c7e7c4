//! Integers as learned vectors.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, ints, whole};
use super::super::elementwise::{Plus, update};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Init, Node};
use operant_base::Result;
use operant_lanes::Vectors;

/// Inputs: integers `[B, …]` below V and a weight `[V, D]`; the output is `[B, …, D]`.
#[derive(Clone, Copy, Debug)]
pub struct Embedding;

impl Op for Embedding {
    const NAME: &'static str = "embedding";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [index, weight] if index.kind == Kind::Ints && weight.kind == Kind::Whole && !weight.is_empty() => {
                let [_, d] = weight.shape[..] else { return Err("wanted a weight [entries, features]".into()) };
                if index.is_empty() {
                    return Err("wanted at least one integer per row".into());
                }
                let mut shape = index.shape.clone();
                shape.push(d);
                Ok(vec![Type::rows(shape)])
            }
            _ => Err("wanted integers and a weight [entries, features]".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let ([entries, features], count) = ([types.x[1].shape[0], types.x[1].shape[1]], types.x[0].len());
        let with = |launch: Launch| launch.numbers([count, features, entries, 0, 0]);
        let forward = Launch::each(Text::Elementwise, "embedding_forward", rows * count * features);
        let backward = Launch::warps(Text::Elementwise, "embedding_backward", entries);
        Some(Twin::new([with(forward)], [with(backward)]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let d = c.types.x[1].shape[1];
        for (y, &i) in c.y[0].chunks_exact_mut(d).zip(c.ints[0]) {
            y.copy_from_slice(&c.x[1][i as usize * d..][..d]);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let d = c.types.x[1].shape[1];
        for (dy, &i) in c.dy[0].chunks_exact(d).zip(c.ints[0]) {
            update::<R, L, _>(Plus, dy, &mut c.dx[1][i as usize * d..][..d]);
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (v, d, k) = (random.size(1, 8), random.size(1, 40), random.size(1, 4));
        vec![
            Case::op(Self, [ints([], v), whole([v, d])]),
            Case::op(Self, [ints([k], v), whole([v, d])]),
            Case::op(Self, [ints([2, k], v), whole([v, d])]),
        ]
    }
}

impl Graph {
    /// A row of the parameter `<name>.weight` `[entries, features]` for every integer, normal at first as in PyTorch. A run
    /// panics at an integer that is not below `entries`.
    pub fn embedding(&mut self, name: &str, index: Node, entries: usize, features: usize) -> Result<Node> {
        let weight = self.param(&format!("{name}.weight"), [entries, features], Init::Normal { std: 1.0 });
        self.apply(name, Embedding, &[index, weight])
    }
}
