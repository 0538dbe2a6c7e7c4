//! A host's tensor with a seed blended into it by a factor α that all rows share: see [`crate::grow`].
//!
//! At α = 0 the result is the host's to the bit, whatever the seed holds, and the host's gradient is that of a network
//! without the seed; the seed then learns straight through (Bengio et al., arXiv:1308.3432), as if α were 1.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, away_from_zero, fixed, rows, whole};
use super::super::elementwise::{Binary, Ternary, Unary, dot, map, map2, map3, update, update2};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Lanes, Vectors};

/// Inputs: host h, seed s, then for `Multiply` the seed's input x, for `Gate` a factor g `[B, 1]`, and last α, one number
/// without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blend {
    /// h + α(s − h).
    Add,
    /// h(1 + α·tanh(s − x)).
    Multiply,
    /// h + α·g(s − h).
    Gate,
}

/// a + f(b − a).
#[derive(Clone, Copy)]
struct Towards(f32);
impl Binary for Towards {
    #[inline(always)]
    fn apply<L: Lanes>(self, a: L::F, b: L::F) -> L::F {
        (b - a).mul_add(self.0, a)
    }
}

#[derive(Clone, Copy)]
struct By(f32);
impl Unary for By {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F) -> L::F {
        x * self.0
    }
}

/// h(1 + α·tanh d).
#[derive(Clone, Copy)]
struct Louder(f32);
impl Ternary for Louder {
    #[inline(always)]
    fn apply<L: Lanes>(self, h: L::F, s: L::F, x: L::F) -> L::F {
        h * ((s - x).tanh_fast() * self.0 + 1.0)
    }
}

/// tanh(s − x).
#[derive(Clone, Copy)]
struct TanhOf;
impl Binary for TanhOf {
    #[inline(always)]
    fn apply<L: Lanes>(self, s: L::F, x: L::F) -> L::F {
        (s - x).tanh_fast()
    }
}

/// dy(1 + α·t), t in place of the result.
#[derive(Clone, Copy)]
struct HostSlope(f32);
impl Binary for HostSlope {
    #[inline(always)]
    fn apply<L: Lanes>(self, t: L::F, dy: L::F) -> L::F {
        dy * (t * self.0 + 1.0)
    }
}

/// dy·h·α(1 − t²), t in place of the result.
#[derive(Clone, Copy)]
struct SeedSlope(f32);
impl Ternary for SeedSlope {
    #[inline(always)]
    fn apply<L: Lanes>(self, t: L::F, dy: L::F, h: L::F) -> L::F {
        dy * h * (L::F::from(1.0) - t * t) * self.0
    }
}

impl Blend {
    fn inputs(self) -> usize {
        if self == Self::Add { 3 } else { 4 }
    }

    fn alpha<R: Real>(self, x: &[&[R]]) -> f32 {
        x[self.inputs() - 1][0].wide() as f32
    }
}

impl Op for Blend {
    const NAME: &'static str = "blend";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = match self {
            Self::Add => "host and seed of one shape and alpha, one number without rows",
            Self::Multiply => "host, seed and its input of one shape and alpha, one number without rows",
            Self::Gate => "host and seed of one shape, a factor per row and alpha, one number without rows",
        };
        let fits = x.len() == self.inputs()
            && x[0].kind == Kind::Rows
            && x[0] == x[1]
            && x[x.len() - 1].kind == Kind::Whole
            && x[x.len() - 1].len() == 1
            && match self {
                Self::Add => true,
                Self::Multiply => x[2] == x[0],
                Self::Gate => x[2].kind == Kind::Rows && x[2].len() == 1,
            };
        if fits { Ok(vec![x[0].clone()]) } else { Err(format!("wanted {wanted}")) }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: if *self == Self::Add { 0b100 } else { 0b1111 }, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input + 1 < self.inputs()
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let len = types.y[0].len();
        let numbers = [*self as usize, len];
        let forward = Launch::each(Text::Elementwise, "blend_forward", rows * len).numbers(numbers);
        let backward = Launch::blocks(Text::Elementwise, "blend_backward", rows).numbers(numbers);
        Some(Twin::new([forward], [backward]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let alpha = self.alpha(&c.x);
        if alpha == 0.0 {
            return c.y[0].copy_from_slice(c.x[0]);
        }
        match self {
            Self::Add => map2::<R, L, _>(Towards(alpha), c.x[0], c.x[1], c.y[0]),
            Self::Multiply => map3::<R, L, _>(Louder(alpha), c.x[0], c.x[1], c.x[2], c.y[0]),
            Self::Gate => {
                let n = c.types.x[0].len();
                for (row, y) in c.y[0].chunks_exact_mut(n).enumerate() {
                    let (factor, at) = (R::of(f64::from(alpha)) * c.x[2][row], row * n);
                    for (y, (&h, &s)) in y.iter_mut().zip(c.x[0][at..].iter().zip(&c.x[1][at..])) {
                        *y = h + (s - h) * factor;
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let alpha = self.alpha(&c.x);
        let learned = if alpha == 0.0 { 1.0 } else { alpha };
        let (dy, n) = (c.dy[0], c.types.x[0].len());
        let [dh, ds, third, ..] = &mut c.dx;
        if alpha == 0.0 && !dh.is_empty() {
            dh.copy_from_slice(dy);
        }
        match self {
            Self::Add => {
                if alpha != 0.0 && !dh.is_empty() {
                    map::<R, L, _>(By(1.0 - alpha), dy, dh);
                }
                if !ds.is_empty() {
                    map::<R, L, _>(By(learned), dy, ds);
                }
            }
            Self::Multiply => {
                if alpha != 0.0 && !dh.is_empty() {
                    map2::<R, L, _>(TanhOf, c.x[1], c.x[2], dh);
                    update::<R, L, _>(HostSlope(alpha), dy, dh);
                }
                for (dx, sign) in [(ds, 1.0), (third, -1.0)] {
                    if !dx.is_empty() {
                        map2::<R, L, _>(TanhOf, c.x[1], c.x[2], dx);
                        update2::<R, L, _>(SeedSlope(sign * learned), dy, c.x[0], dx);
                    }
                }
            }
            Self::Gate => {
                let (alpha, learned) = (R::of(f64::from(alpha)), R::of(f64::from(learned)));
                for (row, dy) in dy.chunks_exact(n).enumerate() {
                    let (at, gate) = (row * n, c.x[2][row]);
                    if alpha != R::default() && !dh.is_empty() {
                        let keep = R::of(1.0) - alpha * gate;
                        dh[at..][..n].iter_mut().zip(dy).for_each(|(dh, &dy)| *dh = dy * keep);
                    }
                    if !third.is_empty() {
                        let (h, s) = (&c.x[0][at..][..n], &c.x[1][at..][..n]);
                        third[row] = (dot::<R, L>(dy, s) - dot::<R, L>(dy, h)) * learned;
                    }
                    if !ds.is_empty() {
                        let share = learned * gate;
                        ds[at..][..n].iter_mut().zip(dy).for_each(|(ds, &dy)| *ds = dy * share);
                    }
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(1, 50);
        let alpha = || fixed(away_from_zero(whole([1])));
        vec![
            Case::op(Self::Add, [rows([n, 2]), rows([n, 2]), alpha()]),
            Case::op(Self::Multiply, [rows([n]), rows([n]), rows([n]), alpha()]),
            Case::op(Self::Gate, [rows([n, 3]), rows([n, 3]), rows([1]), alpha()]),
        ]
    }
}

impl Graph {
    /// A seed blended into its host; `third` as [`Blend`] says.
    pub fn blend(&mut self, op: Blend, host: Node, seed: Node, third: Option<Node>, alpha: Node) -> Result<Node> {
        let inputs: Vec<Node> = [host, seed].into_iter().chain(third).chain([alpha]).collect();
        self.apply("", op, &inputs)
    }
}
