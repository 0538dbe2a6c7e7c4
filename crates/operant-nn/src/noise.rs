//! Gaussian noise that is a function of (seed, run, node, row, element): the same for any tile, thread and lane width.
//!
//! A block of 64 elements takes 16 Philox counters, one per lane of the widest registers; word w of counter j is for element
//! 16·w + j. Words come in pairs, each pair gives two normals (Box & Muller, "A note on the generation of random normal
//! deviates", 1958).

use super::op::Draws;
use super::real::Real;
use operant_lanes::rng::key;
use operant_lanes::{Float, Int, Lanes, Vectors, select};

/// Elements that share counters.
const BLOCK: usize = 64;
/// Counters of a block.
const COUNTERS: usize = 16;

const LANE_NUMBERS: [i32; COUNTERS] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Two standard normals from two words of 32 random bits.
#[inline(always)]
pub fn normals<L: Lanes>(a: L::I, b: L::I) -> [L::F; 2] {
    // −2·ln u for u = k·2⁻²⁴, k from 1 to 2²⁴. With k = 2ᵉ·(1 + r), r from √½ − 1 to √2 − 1, ln(1 + r)/r is a minimax
    // polynomial within 2e-7; the bits of √½ are taken off so that the exponent field turns at √½·2ᵉ.
    const ROOT_HALF_BITS: i32 = 0x3f35_04f3;
    let bits = (a.shr(8) + 1).to_float().bits();
    let e = (bits - ROOT_HALF_BITS).sar(23);
    let r = L::F::from_bits(bits - e.shl(23)) - 1.0;
    let p = r.mul_add(-0.103_787_18, 0.163_381_52).mul_add(r, -0.172_124_28).mul_add(r, 0.198_842_35);
    let p = p.mul_add(r, -0.249_715_6).mul_add(r, 0.333_356_08).mul_add(r, -0.500_003_46).mul_add(r, 0.999_999_94);
    let log = (e - 24).to_float().mul_add(std::f32::consts::LN_2, p * r);
    // Rounding may leave u = 1 a little above 0.
    let squared = (log * -2.0).max(0.0);
    // √v as v/√v; the least v that matters is 1.2e-7, of the largest u below 1.
    let radius = squared * squared.max(1e-12).rsqrt();
    // An angle within π/4 of 0, its cosine's sign and which of both goes first: together a uniform direction.
    let angle = b.sar(8).to_float() * (std::f32::consts::FRAC_PI_4 / 8_388_608.0);
    let z = angle * angle;
    // Taylor series; beyond these terms nothing is left in an f32 at π/4.
    let sin = z.mul_add(2.755_732e-6, -1.984_127e-4).mul_add(z, 8.333_333e-3).mul_add(z, -1.666_666_7e-1);
    let sin = (sin * z).mul_add(angle, angle);
    let cos = z.mul_add(2.480_159e-5, -1.388_889e-3).mul_add(z, 4.166_666_7e-2).mul_add(z, -0.5);
    let cos = L::F::from_bits(cos.mul_add(z, 1.0).bits() ^ b.shl(31));
    let swapped = (b & 2).eq(2);
    [radius * select::<_, L::F>(swapped, sin, cos), radius * select::<_, L::F>(swapped, cos, sin)]
}

/// `y += sigma·noise`, for elements `first..` of row `row` of the batch; `first` is a multiple of 64.
#[inline(always)]
pub fn add<R: Real, L: Vectors<R>>(draws: Draws, row: usize, first: usize, sigma: R, y: &mut [R]) {
    debug_assert!(first.is_multiple_of(BLOCK));
    let key = key::<L::I>(draws.seed);
    let (row, node) = (L::I::from(row as i32), L::I::from(draws.node as i32));
    let run = L::I::from(draws.run as i32);
    let sigma = L::splat(sigma);
    for (number, block) in y.chunks_mut(BLOCK).enumerate() {
        let base = ((first / BLOCK + number) * COUNTERS) as i32;
        for lane in (0..COUNTERS).step_by(L::LANES) {
            let counter = L::read_ints(&LANE_NUMBERS[lane..]) + base;
            let words = L::I::philox([counter, row, run, node], key);
            let [a, b] = normals::<L>(words[0], words[1]);
            let [c, d] = normals::<L>(words[2], words[3]);
            for (word, normal) in [a, b, c, d].into_iter().enumerate() {
                let at = word * COUNTERS + lane;
                if at + L::LANES <= block.len() {
                    let to = &mut block[at..];
                    L::write(normal.mul_add(sigma, L::read(to)), to);
                } else if at < block.len() {
                    let to = &mut block[at..];
                    L::write_part(normal.mul_add(sigma, L::read_part(to)), to);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_lanes::{Backend, Double, Kernel, Simd};

    struct Add<'a>(usize, usize, &'a mut [f32]);
    impl Kernel for Add<'_> {
        type Out = ();
        type Home = Self;
        #[inline(always)]
        fn run<L: Simd>(self) {
            add::<f32, L>(Draws { seed: 3, run: 1, node: 2 }, self.0, self.1, 1.0, self.2);
        }
    }

    #[test]
    fn widths_and_cuts_do_not_matter() {
        let mut wanted = vec![0.0f64; 200];
        add::<f64, Double>(Draws { seed: 3, run: 1, node: 2 }, 5, 0, 1.0, &mut wanted);
        for name in ["portable", "avx2", "avx512"] {
            let Ok(backend) = Backend::named(name) else { continue };
            let mut y = vec![0.0; 200];
            let (head, tail) = y.split_at_mut(64);
            backend.run_fast(Add(5, 0, head));
            backend.run_fast(Add(5, 64, tail));
            let worst = y.iter().zip(&wanted).map(|(y, w)| (f64::from(*y) - w).abs()).fold(0.0, f64::max);
            assert!(worst < 2e-6, "{name}: {worst}");
        }
    }

    /// Moments of a million normals, each within five standard errors of the standard normal's; and no correlation
    /// between neighbours of a pair.
    #[test]
    fn moments_are_those_of_a_normal() {
        let (rows, n) = (1000, 1024);
        let (mut sums, mut pairs) = ([0.0f64; 4], 0.0);
        for row in 0..rows {
            let mut y = vec![0.0; n];
            Backend::fast().run_fast(Add(row, 0, &mut y));
            for (i, &x) in y.iter().enumerate() {
                let x = f64::from(x);
                sums.iter_mut().enumerate().for_each(|(k, sum)| *sum += x.powi(k as i32 + 1));
                pairs += if i % 32 < 16 { x * f64::from(y[i + 16]) } else { 0.0 };
            }
        }
        let count = (rows * n) as f64;
        for (k, (wanted, variance)) in [(0.0, 1.0), (1.0, 2.0), (0.0, 15.0), (3.0, 96.0f64)].into_iter().enumerate() {
            let error = (sums[k] / count - wanted) / (variance / count).sqrt();
            assert!(error.abs() < 5.0, "moment {}: {error} standard errors", k + 1);
        }
        assert!((pairs / (count / 2.0).sqrt()).abs() < 5.0);
    }
}
