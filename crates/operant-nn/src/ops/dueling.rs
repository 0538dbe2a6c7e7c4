//! Dueling heads: Q = V + A − mean A (Wang et al., "Dueling network architectures", arXiv:1511.06581, equation 9).

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, rows};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::Vectors;

/// Inputs: value `[B, 1]` and advantages `[B, A]`; or, with a distribution over K atoms, `[B, K]` and `[B, A, K]`.
#[derive(Clone, Copy, Debug)]
pub struct Dueling;

impl Op for Dueling {
    const NAME: &'static str = "dueling";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [value, advantage] = x else { return Err("wanted a value and advantages".into()) };
        let atoms = match advantage.shape[..] {
            [_] => 1,
            [_, atoms] => atoms,
            _ => 0,
        };
        if value.kind != Kind::Rows || advantage.kind != Kind::Rows || advantage.is_empty() || value.len() != atoms {
            return Err("wanted a value [B, 1] and advantages [B, A], or [B, K] and [B, A, K]".into());
        }
        Ok(vec![advantage.clone()])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (k, row) = (types.x[0].len(), types.x[1].len());
        let one = |kernel| Launch::each(Text::Rows, kernel, rows * k).numbers([k, row / k]);
        Some(Twin::new([one("dueling_forward")], [one("dueling_backward")]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (k, row) = (c.types.x[0].len(), c.types.x[1].len());
        let scale = L::splat(R::of(k as f64 / row as f64));
        let rows = c.x[0].chunks_exact(k).zip(c.x[1].chunks_exact(row));
        for (y, (value, advantage)) in c.y[0].chunks_exact_mut(row).zip(rows) {
            for at in (0..k).step_by(L::LANES) {
                let count = L::LANES.min(k - at);
                let shift = L::read_part(&value[at..at + count]) - column_sum::<R, L>(advantage, k, at, count) * scale;
                for (y, advantage) in y.chunks_exact_mut(k).zip(advantage.chunks_exact(k)) {
                    L::write_part(L::read_part(&advantage[at..at + count]) + shift, &mut y[at..at + count]);
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (k, row) = (c.types.x[0].len(), c.types.x[1].len());
        let scale = L::splat(R::of(k as f64 / row as f64));
        for (r, dy) in c.dy[0].chunks_exact(row).enumerate() {
            for at in (0..k).step_by(L::LANES) {
                let count = L::LANES.min(k - at);
                let sum = column_sum::<R, L>(dy, k, at, count);
                if !c.dx[0].is_empty() {
                    L::write_part(sum, &mut c.dx[0][r * k + at..][..count]);
                }
                if !c.dx[1].is_empty() {
                    let dx = &mut c.dx[1][r * row..][..row];
                    for (dx, dy) in dx.chunks_exact_mut(k).zip(dy.chunks_exact(k)) {
                        L::write_part(L::read_part(&dy[at..at + count]) - sum * scale, &mut dx[at..at + count]);
                    }
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (a, k) = (random.size(1, 20), random.size(1, 40));
        vec![Case::op(Self, [rows([1]), rows([a])]), Case::op(Self, [rows([k]), rows([a, k])])]
    }
}

/// Sums over rows `k` long, in columns `at..at + count`.
#[inline(always)]
fn column_sum<R: Real, L: Vectors<R>>(x: &[R], k: usize, at: usize, count: usize) -> L::F {
    let mut sum = L::F::from(0.0);
    for x in x.chunks_exact(k) {
        sum = sum + L::read_part(&x[at..at + count]);
    }
    sum
}

impl Graph {
    /// Values of actions from the value of the state `[B, 1]` and advantages `[B, A]`; with a distribution over K atoms
    /// `[B, K]` and `[B, A, K]`.
    pub fn dueling(&mut self, value: Node, advantage: Node) -> Result<Node> {
        self.apply("", Dueling, &[value, advantage])
    }
}
