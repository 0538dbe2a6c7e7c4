//! Counter-based randomness: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! A draw is a pure function of (seed, env, episode, step, draw): the same on every device, lane width and thread
//! count, and env number k replays alone. Nothing is computed until something is drawn.

use super::{Float, Int, Lanes, Scalar, select};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words for a counter and a key.
#[inline(always)]
pub fn philox<I: Int>(counter: [I; 4], key: [I; 2]) -> [I; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let (high0, low0) = c0.mul_wide(MULTIPLIERS[0] as i32);
        let (high1, low1) = c2.mul_wide(MULTIPLIERS[1] as i32);
        [c0, c1, c2, c3] = [high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0];
        k0 = k0 + KEY_STEPS[0] as i32;
        k1 = k1 + KEY_STEPS[1] as i32;
    }
    [c0, c1, c2, c3]
}

/// The random stream of one step (or reset) of one env, in every lane.
#[derive(Clone, Copy, Debug)]
pub struct Rng<L: Lanes> {
    key: [L::I; 2],
    env: L::I,
    episode: L::I,
    step: L::I,
    block: i32,
    words: [L::I; 4],
    left: usize,
}

impl<L: Lanes> Rng<L> {
    /// Stream of `(seed, env, episode, step)`; step 0 is the reset, step k the k-th step of the episode.
    #[inline(always)]
    pub fn new(seed: [L::I; 2], env: L::I, episode: L::I, step: L::I) -> Self {
        Self { key: seed, env, episode, step, block: 0, words: [L::I::from(0); 4], left: 0 }
    }

    /// Thirty-two random bits.
    #[inline(always)]
    pub fn word(&mut self) -> L::I {
        if self.left == 0 {
            self.words = L::I::philox([L::I::from(self.block), self.step, self.episode, self.env], self.key);
            self.block += 1;
            self.left = 4;
        }
        self.left -= 1;
        self.words[3 - self.left]
    }

    /// Uniform in [0, 1): a multiple of 2⁻²⁴.
    #[inline(always)]
    pub fn unit(&mut self) -> L::F {
        self.word().shr(8).to_float() * (1.0 / 16_777_216.0)
    }

    /// Uniform from low up to high, which rounding may reach.
    #[inline(always)]
    pub fn uniform(&mut self, low: impl Into<L::F>, high: impl Into<L::F>) -> L::F {
        let (low, high) = (low.into(), high.into());
        low + (high - low) * self.unit()
    }

    /// Standard normal (Box–Muller).
    #[inline(always)]
    pub fn normal(&mut self) -> L::F {
        let radius = ((L::F::from(1.0) - self.unit()).log() * -2.0).sqrt();
        radius * (self.unit() * std::f32::consts::TAU).cos()
    }

    /// Uniform in 0..n (Lemire's multiply and reject). Lanes can't loop until accepted, so four words are tried: for
    /// n ≤ 65,536 the chance that all are rejected, and the last taken as it is, is below 2⁻⁶⁴. Powers of two take one.
    #[inline(always)]
    pub fn below(&mut self, n: u32) -> L::I {
        let rejected_below = n.wrapping_neg() % n;
        let (mut chosen, low) = self.word().mul_wide(n as i32);
        if rejected_below > 0 {
            let mut again = low.lt_unsigned(rejected_below as i32);
            for _ in 0..3 {
                let (high, low) = self.word().mul_wide(n as i32);
                chosen = select(again, high, chosen);
                again = again & low.lt_unsigned(rejected_below as i32);
            }
        }
        chosen
    }
}

/// Seed as the two key words.
#[inline(always)]
pub fn key<I: Int>(seed: u64) -> [I; 2] {
    [I::from(seed as i32), I::from((seed >> 32) as i32)]
}

/// The stream for ordinary Rust code (host envs): same words as [`Rng`] with the same coordinates.
#[derive(Clone, Copy, Debug)]
pub struct HostRng(Rng<Scalar>);

impl HostRng {
    /// Stream of `(seed, env, episode, step)`.
    pub fn new(seed: u64, env: u32, episode: u32, step: u32) -> Self {
        let lane = |x: u32| <Scalar as Lanes>::I::from(x as i32);
        Self(Rng::new(key(seed), lane(env), lane(episode), lane(step)))
    }

    /// The stream that all envs have alike: of the same seed, episode and step, from its beginning.
    pub fn of_all_envs(&self) -> Self {
        let Rng { key, episode, step, .. } = self.0;
        Self(Rng::new(key, <Scalar as Lanes>::I::from(-1), episode, step))
    }

    /// Thirty-two random bits.
    pub fn word(&mut self) -> u32 {
        self.0.word().get() as u32
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        self.0.unit().get()
    }

    /// Standard normal.
    pub fn normal(&mut self) -> f32 {
        self.0.normal().get()
    }

    /// Uniform in 0..n, exactly (Lemire). `n` is at least 1.
    pub fn below(&mut self, n: u32) -> u32 {
        let rejected_below = n.wrapping_neg() % n;
        loop {
            let product = u64::from(self.word()) * u64::from(n);
            if product as u32 >= rejected_below {
                return (product >> 32) as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
        let lane = |x: u32| <Scalar as Lanes>::I::from(x as i32);
        philox(counter.map(lane), key.map(lane)).map(|x| x.get() as u32)
    }

    /// Random123's kat_vectors for philox4x32-10.
    #[test]
    fn known_answers() {
        assert_eq!(words([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(words([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            words([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn envs_share_a_stream_per_episode() {
        let shared = |seed, env, episode| {
            let mut own = HostRng::new(seed, env, episode, 0);
            own.word();
            own.of_all_envs().word()
        };
        assert_eq!(shared(1, 0, 5), shared(1, 9, 5));
        assert!(shared(1, 0, 5) != shared(1, 0, 6) && shared(1, 0, 5) != shared(2, 0, 5));
        assert_ne!(shared(1, 0, 5), HostRng::new(1, 0, 5, 0).word());
    }

    #[test]
    fn draws_differ_by_every_coordinate() {
        let first = |seed, env, episode, step| HostRng::new(seed, env, episode, step).word();
        let all = [
            first(0, 0, 0, 0),
            first(1, 0, 0, 0),
            first(1 << 32, 0, 0, 0),
            first(0, 1, 0, 0),
            first(0, 0, 1, 0),
            first(0, 0, 0, 1),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
        let mut rng = HostRng::new(0, 0, 0, 0);
        let drawn: Vec<u32> = (0..64).map(|_| rng.word()).collect();
        assert!((1..64).all(|i| !drawn[..i].contains(&drawn[i])));
    }

    /// χ² of `below` in lanes and on the host, 9 degrees of freedom: 99.99 % lie under 33.7.
    #[test]
    fn bounded_integers_are_uniform() {
        let (mut lanes, mut host) = ([0u32; 10], [0u32; 10]);
        let count = 200_000;
        for i in 0..count {
            let lane = |x: i32| <Scalar as Lanes>::I::from(x);
            let mut rng = Rng::<Scalar>::new(key(7), lane(i), lane(0), lane(0));
            lanes[rng.below(10).get() as usize] += 1;
            host[HostRng::new(8, i as u32, 0, 0).below(10) as usize] += 1;
        }
        for counts in [lanes, host] {
            let expected = f64::from(count) / 10.0;
            let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
            assert!(chi2 < 33.7, "{chi2} {counts:?}");
        }
    }

    /// With n = 3·2³⁰ a multiplication without rejection gives multiples of 3 half of the time, not a third.
    #[test]
    fn rejection_happens() {
        let n = 3u32 << 30;
        let mut rng = HostRng::new(3, 0, 0, 0);
        let multiples = (0..30_000).filter(|_| rng.below(n).is_multiple_of(3)).count();
        assert!((9_500..10_500).contains(&multiples), "{multiples}");
        let lane = |x: i32| <Scalar as Lanes>::I::from(x);
        let multiples = (0..30_000).filter(|&i| {
            let mut rng = Rng::<Scalar>::new(key(3), lane(i), lane(0), lane(0));
            (rng.below(n).get() as u32).is_multiple_of(3)
        });
        // Four tries leave 1/256 of the draws biased at this n: 10,000 of 30,000 and 20 more.
        assert!((9_500..10_600).contains(&multiples.count()));
    }

    #[test]
    fn normal_moments() {
        let mut rng = HostRng::new(5, 0, 0, 0);
        let n = 100_000;
        let (mut sum, mut squares, mut fourth) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            let x = f64::from(rng.normal());
            sum += x;
            squares += x * x;
            fourth += x * x * x * x;
        }
        let n = f64::from(n);
        assert!((sum / n).abs() < 0.015 && (squares / n - 1.0).abs() < 0.02 && (fourth / n - 3.0).abs() < 0.15);
    }

    #[test]
    fn unit_stays_below_one() {
        let mut rng = HostRng::new(9, 0, 0, 0);
        assert!((0..100_000).map(|_| rng.unit()).all(|u| (0.0..1.0).contains(&u)));
        assert_eq!(
            <Scalar as Lanes>::I::from(-1).shr(8).to_float().get() * (1.0 / 16_777_216.0),
            1.0 - 1.0 / 16_777_216.0
        );
    }
}
