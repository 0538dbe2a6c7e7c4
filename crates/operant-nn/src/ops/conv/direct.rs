//! Convolutions of few channels that AVX-512 makes straight from images ([`operant_device::images`]): those of three channels to
//! eight, and those with a stride of two, under kernels of 3×3 with a border of zeros.

use super::Sizes;
use operant_device::images::{Halves, SPREAD, Strided};
use crate::op::{Act, Backward, Forward};
use crate::real::{Compute, PackSet, Packed, Real, Scratch};

/// A convolution of such a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    images: usize,
    x_len: usize,
    y_len: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Halves(Halves),
    Strided(Strided),
}

impl Direct {
    /// If this one is served.
    pub(super) fn new<R: Real>(s: &Sizes, act: Act, compute: Compute) -> Option<Self> {
        let plain = s.groups == 1 && s.kernel == [3, 3] && s.padding == 1 && !s.circular;
        let singles = R::singles(&[]).is_some() && R::in_place(compute);
        if !plain || !singles || !matches!(act, Act::Identity | Act::Relu) {
            return None;
        }
        let kind = match s.stride {
            1 => Kind::Halves(Halves::new(compute.backend, s.size, s.c, s.o)?),
            2 if s.size == s.out.map(|pixels| 2 * pixels) => {
                Kind::Strided(Strided::new(compute.backend, s.out, s.c, s.o)?)
            }
            _ => return None,
        };
        Some(Self { images: s.images, x_len: s.x_len(), y_len: s.y_len(), kind })
    }

    /// Numbers of scratch of either pass.
    pub(super) fn scratch(&self) -> usize {
        match self.kind {
            Kind::Halves(kernel) => SPREAD + kernel.staged_len() + kernel.beside_len(),
            Kind::Strided(kernel) => kernel.bordered_len() + Strided::BIAS + kernel.weight_len(),
        }
    }

    pub(super) fn forward<R: Real>(&self, relu: bool, c: &mut Forward<R>, bias: &[R]) {
        let room = c.room.take(Scratch::real(self.scratch())).real;
        let (x, weight, bias) = (singles(c.x[0]), singles(c.x[1]), singles(bias));
        let images = x.chunks_exact(self.x_len).zip(singles_mut(&mut *c.y[0]).chunks_exact_mut(self.y_len));
        match self.kind {
            Kind::Halves(kernel) => {
                let (spread, staged) = singles_mut(room).split_at_mut(SPREAD);
                Halves::spread(weight, bias, spread);
                for (x, y) in images {
                    kernel.stage(x, staged);
                    kernel.forward(staged, spread, relu, y);
                }
            }
            Kind::Strided(kernel) => {
                let weight = matrix(&c.packed, 0);
                images.for_each(|(x, y)| kernel.forward(x, weight, bias, relu, y));
            }
        }
    }

    /// Tells whether it made all gradients that are wanted; else it made none.
    pub(super) fn backward<R: Real>(&self, relu: bool, c: &mut Backward<R>) -> bool {
        let wants_image = !c.dx[0].is_empty();
        let adds_to_image = wants_image && c.add & 1 == 1;
        if c.dx[1].is_empty() || adds_to_image || (wants_image && matches!(self.kind, Kind::Halves(_))) {
            return false;
        }
        let room = singles_mut(c.room.take(Scratch::real(self.scratch())).real);
        let (x, dy) = (singles(c.x[0]), singles(c.dy[0]));
        let y = if relu { Some(singles(c.y[0])) } else { None };
        let result = |i: usize| i * self.y_len..(i + 1) * self.y_len;
        let [dx, dw, db, ..] = &mut c.dx;
        let [dx, dw, db] = [dx, dw, db].map(|gradient| singles_mut(gradient));
        match self.kind {
            Kind::Halves(kernel) => {
                let (sums, room) = room.split_at_mut(SPREAD);
                let (staged, beside) = room.split_at_mut(kernel.staged_len());
                sums.fill(0.0);
                for (i, x) in x.chunks_exact(self.x_len).enumerate().take(self.images) {
                    kernel.stage(x, staged);
                    kernel.weight(staged, y.map(|y| &y[result(i)]), &dy[result(i)], beside, sums);
                }
                Halves::gather(sums, dw, db);
            }
            Kind::Strided(kernel) => {
                let (dz, room) = room.split_at_mut(kernel.bordered_len());
                let (bias, sums) = room.split_at_mut(Strided::BIAS);
                dz.fill(0.0);
                bias.fill(0.0);
                sums.fill(0.0);
                for (i, x) in x.chunks_exact(self.x_len).enumerate().take(self.images) {
                    kernel.border(y.map(|y| &y[result(i)]), &dy[result(i)], dz, bias);
                    kernel.weight(x, dz, sums);
                    if wants_image {
                        let turned = [1, 2, 3, 4].map(|i| matrix(&c.packed, i));
                        kernel.image(dz, turned, &mut dx[i * self.x_len..][..self.x_len]);
                    }
                }
                kernel.gather(sums, dw);
                kernel.gather_bias(bias, db);
            }
        }
        true
    }
}

fn singles<R: Real>(x: &[R]) -> &[f32] {
    R::singles(x).expect("only f32 is served")
}

fn singles_mut<R: Real>(x: &mut [R]) -> &mut [f32] {
    R::singles_mut(x).expect("only f32 is served")
}

/// A packed matrix of f32, which is too narrow for tiles.
fn matrix<'a, R: Real>(packed: &PackSet<'a, R>, i: usize) -> &'a [f32] {
    let Packed::Real(matrix) = packed.get(i) else { unreachable!("packed in the precision of products") };
    singles(matrix)
}
