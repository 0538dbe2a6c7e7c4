//! Several integers as the sum of their learned vectors: a linear layer over one-hots that reads only the rows that count.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, Values, fixed, ints, rows, whole, with};
use super::super::elementwise::{Plus, update};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Init, Node};
use operant_base::Result;
use operant_lanes::Vectors;

/// Inputs: integers `[B, K]` below V, or real numbers that are such integers, and a weight `[V, D]`; the output is `[B, D]`.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingSum;

impl Op for EmbeddingSum {
    const NAME: &'static str = "embedding_sum";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [index, weight] if index.kind != Kind::Whole && weight.kind == Kind::Whole && !weight.is_empty() => {
                match (&index.shape[..], &weight.shape[..]) {
                    ([count], [_, d]) if *count > 0 => Ok(vec![Type::rows([*d])]),
                    _ => Err("wanted integers [rows, at least 1] and a weight [entries, features]".into()),
                }
            }
            _ => Err("wanted integers and a weight [entries, features]".into()),
        }
    }

    fn needs(&self, types: &Types) -> Needs {
        Needs { inputs: u32::from(types.x[0].kind == Kind::Rows), outputs: 0 }
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let ([entries, features], count) = ([types.x[1].shape[0], types.x[1].shape[1]], types.x[0].len());
        let real = usize::from(types.x[0].kind == Kind::Rows);
        let with = |launch: Launch| launch.numbers([count, features, entries, real, 1]);
        let forward = Launch::each(Text::Elementwise, "embedding_forward", rows * features);
        let nothing = Launch::each(Text::Elementwise, "embedding_nothing", rows * count).makes(1);
        let backward = Launch::warps(Text::Elementwise, "embedding_backward", entries).makes(0b10);
        Some(Twin::new([with(forward)], [with(nothing), with(backward)]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (d, k) = (c.types.x[1].shape[1], c.types.x[0].shape[0]);
        let real = c.types.x[0].kind == Kind::Rows;
        for (row, y) in c.y[0].chunks_exact_mut(d).enumerate() {
            for entry in row * k..(row + 1) * k {
                let i = if real { c.x[0][entry].wide() as usize } else { c.ints[0][entry] as usize };
                let vector = &c.x[1][i * d..][..d];
                match entry == row * k {
                    true => y.copy_from_slice(vector),
                    false => update::<R, L, _>(Plus, vector, y),
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (d, k) = (c.types.x[1].shape[1], c.types.x[0].shape[0]);
        let real = c.types.x[0].kind == Kind::Rows;
        // A number of an entry has no gradient.
        c.dx[0].fill(R::of(0.0));
        for (row, dy) in c.dy[0].chunks_exact(d).enumerate() {
            for entry in row * k..(row + 1) * k {
                let i = if real { c.x[0][entry].wide() as usize } else { c.ints[0][entry] as usize };
                update::<R, L, _>(Plus, dy, &mut c.dx[1][i * d..][..d]);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (v, d, k) = (random.size(1, 8), random.size(1, 40), random.size(1, 4));
        let real = fixed(with(Values::Below(v), rows([k])));
        vec![
            Case::op(Self, [ints([1], v), whole([v, d])]),
            Case::op(Self, [ints([k], v), whole([v, d])]),
            Case::op(Self, [real, whole([v, d])]),
        ]
    }
}

impl Graph {
    /// The sum of the rows of the parameter `<name>.weight` `[entries, features]` that integers `[B, K]` name, as such or as real
    /// numbers, plus `<name>.bias`. A run panics at one that is not below `entries`.
    pub fn embedding_sum(&mut self, name: &str, index: Node, entries: usize, features: usize) -> Result<Node> {
        self.check(index, name)?;
        let count = self.shape(index).iter().product::<usize>().max(1);
        // Like a linear layer of so many inputs that are 1, with a ReLU behind it (He et al., arXiv:1502.01852).
        let std = (2.0 / count as f32).sqrt();
        let weight = self.param(&format!("{name}.weight"), [entries, features], Init::Normal { std });
        let sum = self.apply(name, EmbeddingSum, &[index, weight])?;
        self.bias(name, sum, Init::Zeros)
    }
}
