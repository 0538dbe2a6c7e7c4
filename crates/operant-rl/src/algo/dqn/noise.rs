//! The noise of noisy layers, factorised as in Fortunato et al., arXiv:1706.10295, section 3: a vector for what goes in and
//! one for what comes out, each element sign(ε)·√|ε| of a standard normal ε.

use operant_lanes::rng::HostRng;
use operant_nn::Feed;

/// Sets noise apart from other streams of the same seed.
const NOISE: u64 = 0x6e6f_6973_7900_0000;

/// Which network the noise is for; each has its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Act,
    Learn,
    Choose,
    Value,
}

/// Noise for all noisy layers of a network; nothing for one without any.
#[derive(Debug)]
pub(super) struct Noise {
    seed: u64,
    vectors: Vec<Vec<f32>>,
}

impl Noise {
    /// Vectors of these sizes.
    pub(super) fn new(seed: u64, sizes: &[usize]) -> Self {
        Self { seed: seed ^ NOISE, vectors: sizes.iter().map(|&size| vec![0.0; size]).collect() }
    }

    /// Draws number `count` of a purpose.
    pub(super) fn draw(&mut self, purpose: Purpose, count: u64) {
        for (i, vector) in self.vectors.iter_mut().enumerate() {
            let number = (purpose as u32) << 16 | i as u32;
            let mut rng = HostRng::new(self.seed, number, (count >> 32) as u32, count as u32);
            vector.iter_mut().for_each(|x| {
                let normal = rng.normal();
                *x = normal.abs().sqrt().copysign(normal);
            });
        }
    }

    /// Feeds the vectors.
    pub(super) fn feeds(&self) -> impl Iterator<Item = Feed<'_>> {
        self.vectors.iter().map(|vector| Feed::Real(vector))
    }
}
