//! Convolutions of few channels, straight from images: registers are blocked for their shapes, borders are left out instead of
//! staged, and activations are part of the pass.

mod halves;
mod strided;
#[cfg(test)]
mod tests;

pub use halves::{Halves, SPREAD};
pub use strided::Strided;

/// Numbers of a register and of a cache line.
const LINE: usize = 16;
