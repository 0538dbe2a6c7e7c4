//! One pass over flat slices per rule, on lanes. Slices are whole groups of 16 ([`ALIGN`](crate::ALIGN)).

use operant_device::prefetch_to_write;
use operant_lanes::{Float, Kernel, Maths, Simd, select};

/// Elements whose squares are summed in f32 before f64 takes over: 64 per sum.
const BLOCK: usize = 64 * SIDES;
/// Sums side by side: in fewer, each addition would wait for the one before.
const SIDES: usize = 64;

/// The sum of squares, in an order that does not depend on the lanes: f32 sums side by side per block, four of which become one, then f64.
pub(super) struct SumOfSquares<'a>(pub(super) &'a [f32]);

impl Kernel for SumOfSquares<'_> {
    type Out = f64;
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    #[inline(always)]
    fn run<L: Simd>(self) -> f64 {
        let mut total = 0.0;
        for block in self.0.chunks(BLOCK) {
            let mut sums = [L::F::from(0.0); SIDES];
            let groups = block.chunks_exact(SIDES);
            let rest = groups.remainder();
            for group in groups {
                for i in 0..SIDES / L::WIDTH {
                    let x = L::load_f(&group[i * L::WIDTH..]);
                    sums[i] = x.mul_add(x, sums[i]);
                }
            }
            for group in rest.chunks_exact(16) {
                for i in 0..16 / L::WIDTH {
                    let x = L::load_f(&group[i * L::WIDTH..]);
                    sums[i] = x.mul_add(x, sums[i]);
                }
            }
            let mut lanes = [0.0; 16];
            let step = 16 / L::WIDTH;
            for i in 0..step {
                let four = (sums[i] + sums[i + step]) + (sums[i + 2 * step] + sums[i + 3 * step]);
                L::store_f(four, &mut lanes[i * L::WIDTH..]);
            }
            for sum in lanes {
                total += f64::from(sum);
            }
        }
        total
    }
}

/// A mean of gradients smaller than this is 0. Without gradients a mean shrinks until it is no normal float, and stays there:
/// every step would then cost a hundred times as much. What is lost would have moved a weight by 1e-22 of the learning rate.
pub(super) const LEAST_MEAN: f32 = 1e-30;
/// The same for a mean of squares, whose root is then far below any eps.
const LEAST_SQUARE: f32 = 1e-36;

/// How far ahead of a weight that is stepped others are asked for, in elements. The other threads of a plan have read them, and a core
/// that waits for each to be given up takes half as long again.
const AHEAD: usize = 256;

#[inline(always)]
fn drop_below<L: Simd>(x: L::F, least: f32) -> L::F {
    select::<_, L::F>(x.abs().lt(least), 0.0, x)
}

/// Adam and AdamW.
pub(super) struct Adam<'a> {
    pub(super) values: &'a mut [f32],
    pub(super) grads: &'a [f32],
    pub(super) mean: &'a mut [f32],
    pub(super) square: &'a mut [f32],
    pub(super) constants: AdamConstants,
}

/// What is the same for all elements of a step.
#[derive(Clone, Copy)]
pub(super) struct AdamConstants {
    /// Factor of the gradient: clipping and loss scale.
    pub(super) grad_scale: f32,
    /// 1 − β₁.
    pub(super) mean_rate: f32,
    /// β₂.
    pub(super) square_keep: f32,
    /// 1 − β₂.
    pub(super) square_rate: f32,
    /// Learning rate · √(1 − β₂ᵗ) / (1 − β₁ᵗ).
    pub(super) step: f32,
    /// eps · √(1 − β₂ᵗ).
    pub(super) eps: f32,
    /// 1 − learning rate · weight decay.
    pub(super) keep: f32,
}

impl Kernel for Adam<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    /// PyTorch's lr/(1−β₁ᵗ) · m / (√v / √(1−β₂ᵗ) + eps), both sides of the fraction times √(1−β₂ᵗ): a root and a division.
    #[inline(always)]
    fn run<L: Simd>(self) {
        let Self { values, grads, mean, square, constants: c } = self;
        let width = L::WIDTH;
        let places = values.chunks_exact_mut(width).zip(grads.chunks_exact(width));
        let moments = mean.chunks_exact_mut(width).zip(square.chunks_exact_mut(width));
        for ((value, grad), (mean, square)) in places.zip(moments) {
            prefetch_to_write(value.as_ptr().wrapping_add(AHEAD));
            let g = L::load_f(grad) * c.grad_scale;
            let m = L::load_f(mean);
            let m = drop_below::<L>((g - m).mul_add(c.mean_rate, m), LEAST_MEAN);
            let v = (g * c.square_rate).mul_add(g, L::load_f(square) * c.square_keep);
            let v = drop_below::<L>(v, LEAST_SQUARE);
            L::store_f(m, mean);
            L::store_f(v, square);
            let change = (m * c.step) / (v.sqrt() + c.eps);
            L::store_f(L::load_f(value) * c.keep - change, value);
        }
    }
}

/// Gradient descent with momentum.
pub(super) struct Sgd<'a> {
    pub(super) values: &'a mut [f32],
    pub(super) grads: &'a [f32],
    pub(super) momentum: &'a mut [f32],
    pub(super) constants: SgdConstants,
}

/// What is the same for all elements of a step.
#[derive(Clone, Copy)]
pub(super) struct SgdConstants {
    /// Factor of the gradient: clipping and loss scale.
    pub(super) grad_scale: f32,
    /// What stays of the running sum.
    pub(super) momentum: f32,
    /// Whether to look ahead.
    pub(super) nesterov: bool,
    /// Factor of the weights in the gradient.
    pub(super) weight_decay: f32,
    /// Learning rate.
    pub(super) step: f32,
}

impl Kernel for Sgd<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    #[inline(always)]
    fn run<L: Simd>(self) {
        let Self { values, grads, momentum, constants: c } = self;
        let width = L::WIDTH;
        let places = values.chunks_exact_mut(width).zip(grads.chunks_exact(width));
        for ((value, grad), sum) in places.zip(momentum.chunks_exact_mut(width)) {
            prefetch_to_write(value.as_ptr().wrapping_add(AHEAD));
            let x = L::load_f(value);
            let g = x.mul_add(c.weight_decay, L::load_f(grad) * c.grad_scale);
            let b = drop_below::<L>(L::load_f(sum).mul_add(c.momentum, g), LEAST_MEAN);
            L::store_f(b, sum);
            let direction = if c.nesterov { b.mul_add(c.momentum, g) } else { b };
            L::store_f(direction.mul_add(-c.step, x), value);
        }
    }
}

/// `average += rate · (values − average)`.
pub(super) struct Average<'a> {
    pub(super) average: &'a mut [f32],
    pub(super) values: &'a [f32],
    pub(super) rate: f32,
}

impl Kernel for Average<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    #[inline(always)]
    fn run<L: Simd>(self) {
        for (average, values) in self.average.chunks_exact_mut(L::WIDTH).zip(self.values.chunks_exact(L::WIDTH)) {
            let old = L::load_f(average);
            L::store_f((L::load_f(values) - old).mul_add(self.rate, old), average);
        }
    }
}
