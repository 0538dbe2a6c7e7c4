//! A random order as a function: place → index, without a table and without a sort.

use operant_lanes::rng::HostRng;

/// Sets shuffles apart from other streams of the same seed.
const SHUFFLES: u64 = 0x7368_7566_666c_6500;
const ROUNDS: usize = 4;

/// A permutation of 0..n: rounds of steps that are each one-to-one on whole powers of two (odd factor, offset, shift and
/// exclusive or); what falls outside 0..n walks on until it is inside.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    len: u32,
    mask: u32,
    shift: u32,
    factors: [u32; ROUNDS],
    offsets: [u32; ROUNDS],
}

impl Shuffle {
    /// Order number (`round`, `turn`) of a seed. Panics if `len` is 0 or 2³² and more.
    pub fn new(len: usize, seed: u64, round: u32, turn: u32) -> Self {
        let len = u32::try_from(len).expect("fewer than 2^32 samples");
        assert!(len > 0, "an order of nothing");
        let bits = (32 - (len - 1).leading_zeros()).max(1);
        let mut rng = HostRng::new(seed ^ SHUFFLES, 0, round, turn);
        let mut words = [[0; ROUNDS]; 2];
        words.iter_mut().flatten().for_each(|word| *word = rng.word());
        let [factors, offsets] = words;
        Self {
            len,
            mask: u32::MAX >> (32 - bits),
            shift: bits.div_ceil(2),
            factors: factors.map(|word| word | 1),
            offsets,
        }
    }

    /// Its numbers, for a kernel: length, mask, shift, nothing, factors, offsets.
    pub fn words(&self) -> [u32; 12] {
        let [f0, f1, f2, f3] = self.factors;
        let [o0, o1, o2, o3] = self.offsets;
        [self.len, self.mask, self.shift, 0, f0, f1, f2, f3, o0, o1, o2, o3]
    }

    /// The index at a place below n.
    #[inline]
    pub fn at(&self, place: usize) -> usize {
        let mut x = place as u32;
        loop {
            for round in 0..ROUNDS {
                x = x.wrapping_mul(self.factors[round]).wrapping_add(self.offsets[round]) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.len {
                return x as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_comes_once() {
        for len in [1, 2, 3, 7, 64, 100, 1000, 4096, 32_769] {
            let shuffle = Shuffle::new(len, 3, 1, 2);
            let mut seen = vec![false; len];
            (0..len).for_each(|place| assert!(!std::mem::replace(&mut seen[shuffle.at(place)], true), "{len} {place}"));
        }
    }

    #[test]
    fn orders_differ_and_repeat() {
        let order = |seed, round, turn| -> Vec<usize> {
            let shuffle = Shuffle::new(1000, seed, round, turn);
            (0..1000).map(|place| shuffle.at(place)).collect()
        };
        assert_eq!(order(1, 2, 3), order(1, 2, 3));
        assert!(
            order(1, 2, 3) != order(2, 2, 3) && order(1, 2, 3) != order(1, 3, 3) && order(1, 2, 3) != order(1, 2, 4)
        );
    }

    /// An index is as likely in any quarter of the order as in another, and so are two neighbours together: chi-squared
    /// statistics of 16 cells stay below the 1 in 10,000 value for 15 degrees of freedom, 44.3.
    #[test]
    fn places_are_uniform() {
        for len in [256_usize, 1000] {
            for index in [0, 1, len / 2, len - 1] {
                let (mut alone, mut pairs) = ([0_u32; 16], [0_u32; 16]);
                for turn in 0..4000 {
                    let shuffle = Shuffle::new(len, 9, 0, turn);
                    let order: Vec<usize> = (0..len).map(|place| shuffle.at(place)).collect();
                    let place = |index: usize| order.iter().position(|&at| at == index).unwrap();
                    alone[place(index) * 16 / len] += 1;
                    pairs[place(index) * 4 / len * 4 + place((index + 1) % len) * 4 / len] += 1;
                }
                let chi =
                    |cells: &[u32; 16]| -> f64 { cells.iter().map(|&n| (f64::from(n) - 250.0).powi(2) / 250.0).sum() };
                assert!(chi(&alone) < 44.3 && chi(&pairs) < 44.3, "{len} {index}: {} {}", chi(&alone), chi(&pairs));
            }
        }
    }
}
