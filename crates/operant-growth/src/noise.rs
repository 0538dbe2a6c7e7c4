//! Normal numbers in bulk: the bits of [`HostRng::normal`] one after another, many at a time. Samples are made of them.

use operant_lanes::rng::HostRng;
use operant_lanes::{Backend, Float, Int, Kernel, Lanes, Math, Maths, Simd, Width};

/// Numbers at a time.
const BLOCK: usize = 64;

/// The two words of each number, and the numbers.
struct Normals<'a> {
    words: &'a [[i32; BLOCK]; 2],
    out: &'a mut [f32; BLOCK],
}

impl Kernel for Normals<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::Strict;

    #[inline(always)]
    fn run<L: Simd>(self) {
        let unit = |words: &[i32]| L::load(words).shr(8).to_float() * (1.0 / 16_777_216.0);
        for at in (0..BLOCK).step_by(L::WIDTH) {
            let radius = ((<L as Lanes>::F::from(1.0) - unit(&self.words[0][at..])).log() * -2.0).sqrt();
            L::store_f(radius * (unit(&self.words[1][at..]) * std::f32::consts::TAU).cos(), &mut self.out[at..]);
        }
    }
}

/// Adds `count` normal numbers to `to`.
pub(super) fn add_normals(rng: &mut HostRng, count: usize, to: &mut Vec<f32>) {
    let backend = Backend::new(Width::Auto, Math::Strict);
    let (mut words, mut out) = ([[0; BLOCK]; 2], [0.0; BLOCK]);
    for done in (0..count).step_by(BLOCK) {
        let now = BLOCK.min(count - done);
        let [first, second] = &mut words;
        for (first, second) in first.iter_mut().zip(second).take(now) {
            (*first, *second) = (rng.word() as i32, rng.word() as i32);
        }
        backend.run(Normals { words: &words, out: &mut out });
        to.extend_from_slice(&out[..now]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_stream() {
        let mut one = HostRng::new(5, 1, 2, 3);
        one.word();
        let mut other = one;
        let mut got = vec![0.5];
        add_normals(&mut one, 1000, &mut got);
        let wanted: Vec<u32> = (0..1000).map(|_| other.normal().to_bits()).collect();
        assert_eq!(got[1..].iter().map(|x| x.to_bits()).collect::<Vec<_>>(), wanted);
        assert_eq!(one.word(), other.word());
    }
}
