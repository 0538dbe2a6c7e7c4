//! Lanes from slices of f32.

use crate::lanes::{Float, Simd};

/// The first lanes of a slice.
#[inline(always)]
pub(super) fn read<L: Simd>(x: &[f32]) -> L::F {
    let mut words = [0; 16];
    for (word, x) in words[..L::WIDTH].iter_mut().zip(&x[..L::WIDTH]) {
        *word = x.to_bits() as i32;
    }
    L::F::from_bits(L::load(&words))
}
