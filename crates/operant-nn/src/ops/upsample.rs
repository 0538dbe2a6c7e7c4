//! Larger images by a whole factor: each pixel repeated, or bilinear between pixel centres (PyTorch's
//! `align_corners=False`).

use operant_base::Result;
use operant_lanes::Vectors;
use crate::check::{Case, Random, rows};
use crate::cuda::{Launch, Text, Twin};
use crate::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use crate::real::Real;
use crate::{Graph, Node};

/// One input `[B, H, W, C]`; output `[B, H·factor, W·factor, C]`.
#[derive(Clone, Copy, Debug)]
pub struct Upsample {
    /// How many times as large along each axis.
    pub factor: usize,
    /// Interpolates; else pixels are repeated.
    pub bilinear: bool,
}

/// The two pixels between which an output pixel lies, and the share of the second.
#[derive(Clone, Copy)]
struct Between {
    first: usize,
    second: usize,
    share: f32,
}

impl Upsample {
    #[inline(always)]
    fn between(&self, i: usize, size: usize) -> Between {
        if !self.bilinear {
            return Between { first: i / self.factor, second: i / self.factor, share: 0.0 };
        }
        let place = ((i as f32 + 0.5) / self.factor as f32 - 0.5).max(0.0);
        let first = place as usize;
        Between { first, second: (first + 1).min(size - 1), share: place - first as f32 }
    }
}

fn image(ty: &Type) -> [usize; 3] {
    ty.shape[..].try_into().expect("shapes were checked")
}

/// `y += x·factor`.
#[inline(always)]
fn add_scaled<R: Real>(x: &[R], factor: R, y: &mut [R]) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y += x * factor);
}

/// The four corners of an output pixel with their shares.
#[inline(always)]
fn corners<R: Real>(y: Between, x: Between, w: usize) -> [(usize, R); 4] {
    let share = |down: f32, across: f32| R::of(f64::from(down) * f64::from(across));
    [
        (y.first * w + x.first, share(1.0 - y.share, 1.0 - x.share)),
        (y.first * w + x.second, share(1.0 - y.share, x.share)),
        (y.second * w + x.first, share(y.share, 1.0 - x.share)),
        (y.second * w + x.second, share(y.share, x.share)),
    ]
}

impl Op for Upsample {
    const NAME: &'static str = "upsample";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [x] = x else { return Err("wanted one input".into()) };
        let (Kind::Rows, &[h, w, c], false) = (x.kind, &x.shape[..], x.is_empty()) else {
            return Err("wanted images [B, H, W, C]".into());
        };
        if self.factor == 0 {
            return Err("wanted a factor of at least 1".into());
        }
        Ok(vec![Type::rows([h * self.factor, w * self.factor, c])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let [h, w, n] = image(&types.x[0]);
        let one = |kernel, len: usize| {
            let numbers = [h, w, n, self.factor, usize::from(self.bilinear)];
            Launch::each(Text::Elementwise, kernel, rows * len).numbers(numbers)
        };
        Some(Twin::new([one("upsample_forward", types.y[0].len())], [one("upsample_backward", types.x[0].len())]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let ([h, w, n], [_, wo, _]) = (image(&c.types.x[0]), image(&c.types.y[0]));
        let out_len = c.types.y[0].len();
        for (x, y) in c.x[0].chunks_exact(h * w * n).zip(c.y[0].chunks_exact_mut(out_len)) {
            for (row, y) in y.chunks_exact_mut(wo * n).enumerate() {
                let down = self.between(row, h);
                for (pixel, y) in y.chunks_exact_mut(n).enumerate() {
                    let across = self.between(pixel, w);
                    if self.bilinear {
                        y.fill(R::default());
                        for (at, share) in corners(down, across, w) {
                            add_scaled(&x[at * n..][..n], share, y);
                        }
                    } else {
                        y.copy_from_slice(&x[(down.first * w + across.first) * n..][..n]);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let ([h, w, n], [_, wo, _]) = (image(&c.types.x[0]), image(&c.types.y[0]));
        let out_len = c.types.y[0].len();
        c.dx[0].fill(R::default());
        for (dx, dy) in c.dx[0].chunks_exact_mut(h * w * n).zip(c.dy[0].chunks_exact(out_len)) {
            for (row, dy) in dy.chunks_exact(wo * n).enumerate() {
                let down = self.between(row, h);
                for (pixel, dy) in dy.chunks_exact(n).enumerate() {
                    let across = self.between(pixel, w);
                    if self.bilinear {
                        for (at, share) in corners(down, across, w) {
                            add_scaled(dy, share, &mut dx[at * n..][..n]);
                        }
                    } else {
                        let to = &mut dx[(down.first * w + across.first) * n..][..n];
                        to.iter_mut().zip(dy).for_each(|(to, dy)| *to += *dy);
                    }
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for bilinear in [false, true] {
            for factor in [1, 2, 3] {
                let shape = [random.size(1, 4), random.size(1, 4), random.size(1, 20)];
                cases.push(Case::op(Self { factor, bilinear }, [rows(shape)]).rows(4));
            }
        }
        cases
    }
}

impl Graph {
    /// Images `factor` times as large, each pixel repeated.
    pub fn upsample_nearest(&mut self, x: Node, factor: usize) -> Result<Node> {
        self.apply("", Upsample { factor, bilinear: false }, &[x])
    }

    /// Images `factor` times as large, bilinear between pixel centres.
    pub fn upsample_bilinear(&mut self, x: Node, factor: usize) -> Result<Node> {
        self.apply("", Upsample { factor, bilinear: true }, &[x])
    }
}
