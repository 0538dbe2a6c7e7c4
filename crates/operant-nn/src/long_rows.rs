//! Softmax along a row: largest, sum of exponentials, and the passes that ops over long rows share.
//!
//! A mask is as long as the row, and leaves out the elements where it is not above 0; an empty one leaves out none.

use super::real::Real;
use operant_lanes::{Float, Int, Vectors, select};

const PLACES: [i32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// The first `count` lanes.
#[inline(always)]
pub(super) fn lanes_below<R: Real, L: Vectors<R>>(count: usize) -> L::M {
    L::read_ints(&PLACES).lt(count as i32)
}

/// Lanes of elements from `at` on that exist and are not masked.
#[inline(always)]
pub(super) fn legal<R: Real, L: Vectors<R>>(mask: &[R], at: usize, count: usize) -> L::M {
    let inside = lanes_below::<R, L>(count);
    if mask.is_empty() { inside } else { inside & L::read_part(&mask[at..at + count]).gt(0.0) }
}

/// Where chunks of a row begin, and how long they are.
#[inline(always)]
pub(super) fn chunk<R: Real, L: Vectors<R>>(len: usize, at: usize) -> usize {
    L::LANES.min(len - at)
}

/// Largest element.
#[inline(always)]
pub(super) fn largest<R: Real, L: Vectors<R>>(x: &[R], mask: &[R]) -> R {
    let mut most = L::F::from(f32::NEG_INFINITY);
    for at in (0..x.len()).step_by(L::LANES) {
        let count = chunk::<R, L>(x.len(), at);
        let value = L::read_part(&x[at..at + count]);
        most = select::<_, L::F>(legal::<R, L>(mask, at, count), value, f32::NEG_INFINITY).max(most);
    }
    L::largest(most)
}

/// `Σ e^(x − shift)`.
#[inline(always)]
pub(super) fn sum_exp<R: Real, L: Vectors<R>>(x: &[R], mask: &[R], shift: R) -> R {
    let mut sum = L::F::from(0.0);
    for at in (0..x.len()).step_by(L::LANES) {
        let count = chunk::<R, L>(x.len(), at);
        let value = (L::read_part(&x[at..at + count]) - L::splat(shift)).exp_fast();
        sum = sum + select::<_, L::F>(legal::<R, L>(mask, at, count), value, 0.0);
    }
    L::sum(sum)
}

/// `y = e^(x − shift)`, 0 where masked; gives the sum.
#[inline(always)]
pub(super) fn exp_shifted<R: Real, L: Vectors<R>>(x: &[R], mask: &[R], shift: R, y: &mut [R]) -> R {
    let mut sum = L::F::from(0.0);
    for at in (0..x.len()).step_by(L::LANES) {
        let count = chunk::<R, L>(x.len(), at);
        let value = (L::read_part(&x[at..at + count]) - L::splat(shift)).exp_fast();
        let value = select::<_, L::F>(legal::<R, L>(mask, at, count), value, 0.0);
        L::write_part(value, &mut y[at..at + count]);
        sum = sum + value;
    }
    L::sum(sum)
}

/// `ln Σ eˣ`.
#[inline(always)]
pub(super) fn log_sum_exp<R: Real, L: Vectors<R>>(x: &[R], mask: &[R]) -> R {
    let most = largest::<R, L>(x, mask);
    most + log::<R, L>(sum_exp::<R, L>(x, mask, most))
}

/// Natural logarithm of one number.
#[inline(always)]
pub(super) fn log<R: Real, L: Vectors<R>>(x: R) -> R {
    L::largest(L::splat(x).log())
}
