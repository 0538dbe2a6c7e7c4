//! Elementary functions on lanes, straight-line, built from the basic operations alone, so that every width and the
//! printed C give the same bits. Error bounds are against f64 and are held by the tests below.
//!
//! Polynomials and reduction constants: S. L. Moshier, Cephes (single precision). Those of [`exp_fast`], [`tanh_fast`],
//! [`erf`] and [`softplus`] are minimax fits of relative error by the Remez exchange.

use super::{Float, Int, Lanes, select};

/// `c[0] + x·(c[1] + x·(c[2] + …))`.
#[inline(always)]
fn polynomial<F: Float, const N: usize>(x: F, c: [f32; N]) -> F {
    let mut sum = F::from(c[N - 1]);
    for &term in c[..N - 1].iter().rev() {
        sum = sum.mul_add(x, term);
    }
    sum
}

/// π/2 in three parts; the first two have so few bits that a quadrant count up to 2¹³ multiplies them exactly.
const HALF_PI: [f32; 3] = [1.5703125, 4.837_513e-4, 7.549_79e-8];

/// Sine and cosine. Absolute error below 1.2e-7 for |x| ≤ 12,800; beyond, the quadrant
/// count times π/2 is rounded, and up to 1e5 the error is below 1e-2. NaN for infinities and NaN.
#[inline(always)]
pub fn sin_cos<L: Lanes>(x: L::F) -> (L::F, L::F) {
    let quadrants = (x * std::f32::consts::FRAC_2_PI).round();
    let mut r = x;
    for part in HALF_PI {
        r = quadrants.mul_add(-part, r);
    }
    let z = r * r;
    let sin = (z * polynomial(z, [-1.666_665_5e-1, 8.332_161e-3, -1.951_529_6e-4])).mul_add(r, r);
    let cos = (z * z).mul_add(polynomial(z, [4.166_664_6e-2, -1.388_731_6e-3, 2.443_315_7e-5]), z.mul_add(-0.5, 1.0));
    let quadrant = quadrants.to_int();
    let swapped = (quadrant & 1).eq(1);
    let sin_sign = (quadrant & 2).shl(30);
    let cos_sign = ((quadrant + 1) & 2).shl(30);
    (flip::<L>(select(swapped, cos, sin), sin_sign), flip::<L>(select(swapped, sin, cos), cos_sign))
}

/// The angle less the nearest multiple of 2π, in [−π, π] up to rounding. 2π comes in two parts, the first of so few bits
/// that its multiples are exact up to 2¹³ turns.
#[inline(always)]
pub fn wrap_angle<L: Lanes>(angle: L::F) -> L::F {
    let turns = (angle * (1.0 / std::f32::consts::TAU)).round();
    turns.mul_add(-1.935_307_2e-3, turns.mul_add(-6.28125, angle))
}

/// Flips the sign where the sign bit of `sign` is set.
#[inline(always)]
fn flip<L: Lanes>(value: L::F, sign: L::I) -> L::F {
    L::F::from_bits(value.bits() ^ sign)
}

/// 2ⁿ for integral n in −126..=127.
#[inline(always)]
fn power_of_two<L: Lanes>(n: L::I) -> L::F {
    L::F::from_bits((n + 127).shl(23))
}

/// e to the x. Relative error below 2e-7 where the result is a normal number; 0 below −104, infinity above 88.73.
#[inline(always)]
pub fn exp<L: Lanes>(x: L::F) -> L::F {
    let x = x.clamp(-104.0, 89.0);
    let n = (x * std::f32::consts::LOG2_E).round();
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    let p = polynomial(r, [0.5, 1.666_666_5e-1, 4.166_579_6e-2, 8.333_452e-3, 1.398_2e-3, 1.987_569_1e-4]);
    let y = (r * r).mul_add(p, r) + 1.0;
    // Two factors, because 2ⁿ alone leaves the range of normal numbers before the result does.
    let n = n.to_int();
    let half = n.sar(1);
    y * power_of_two::<L>(half) * power_of_two::<L>(n - half)
}

/// Natural logarithm. Error below 1.2e-7·max(1, |ln x|) for every positive x, denormals included; −∞ at 0, NaN below.
#[inline(always)]
pub fn log<L: Lanes>(x: L::F) -> L::F {
    let tiny = x.lt(f32::MIN_POSITIVE);
    let bits = select::<_, L::F>(tiny, x * 8_388_608.0, x).bits();
    let exponent = (bits.shr(23) & 0xff) - select::<_, L::I>(tiny, 126 + 23, 126);
    // Mantissa in [0.5, 1), then moved to [√½, √2).
    let m = L::F::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let low = m.lt(std::f32::consts::FRAC_1_SQRT_2);
    let e = select::<_, L::I>(low, exponent - 1, exponent).to_float();
    let r = select::<_, L::F>(low, m + m, m) - 1.0;
    let p = polynomial(
        r,
        [
            3.333_333e-1,
            -2.499_999_4e-1,
            2.000_071_5e-1,
            -1.666_805_8e-1,
            1.424_932_3e-1,
            -1.242_014_1e-1,
            1.167_699_9e-1,
            -1.151_461e-1,
            7.037_683_6e-2,
        ],
    );
    let z = r * r;
    let y = z.mul_add(-0.5, e.mul_add(-2.121_944_4e-4, z * r * p));
    let y = e.mul_add(0.693_359_4, r + y);
    let y = select::<_, L::F>(x.eq(0.0), f32::NEG_INFINITY, y);
    let y = select::<_, L::F>(x.lt(0.0), f32::NAN, y);
    // Infinity and NaN pass through.
    select(x.lt(f32::INFINITY), y, x)
}

/// Hyperbolic tangent. Relative error below 3e-7.
#[inline(always)]
pub fn tanh<L: Lanes>(x: L::F) -> L::F {
    let z = x * x;
    let p = polynomial(z, [-3.333_328e-1, 1.333_144_2e-1, -5.373_971_6e-2, 2.063_909e-2, -5.704_988_7e-3]);
    let small = (z * p).mul_add(x, x);
    let magnitude = L::F::from(1.0) - L::F::from(2.0) / (exp::<L>(x.abs() * 2.0) + 1.0);
    let large = select::<_, L::F>(x.lt(0.0), -magnitude, magnitude);
    select(x.abs().lt(0.625), small, large)
}

/// x to the y for x ≥ 0, as exp(y·ln x): relative error below 2e-7·(2 + |y·ln x|). NaN for x < 0; 1 where y is 0.
#[inline(always)]
pub fn pow<L: Lanes>(x: L::F, y: L::F) -> L::F {
    select(y.eq(0.0), L::F::from(1.0), exp::<L>(y * log::<L>(x)))
}

/// e to the x with one scale factor: relative error below 3e-7 for −87.3 ≤ x ≤ 88.3, exactly 1 at 0; 0 below −87.7,
/// infinity above 88.4.
#[inline(always)]
pub fn exp_fast<L: Lanes>(x: L::F) -> L::F {
    // Adding 1.5·2²³ leaves the nearest integer in the low bits of the sum; 127 more make it the exponent field of 2ⁿ,
    // which is that of 0 at n = −127 and that of infinity at n = 128.
    const SHIFT: f32 = 12_582_912.0 + 127.0;
    let x = x.clamp(-88.0, 89.0);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    let p = polynomial(r, [1.0, 9.999_997e-1, 4.999_914_8e-1, 1.666_763_9e-1, 4.189_816e-2, 8.290_272e-3]);
    p * L::F::from_bits(shifted.bits().shl(23))
}

/// Hyperbolic tangent as one odd rational function of the argument limited to ±7. Relative error below 1.7e-6; never
/// beyond ±1.
#[inline(always)]
pub fn tanh_fast<L: Lanes>(x: L::F) -> L::F {
    let x = x.clamp(-7.0, 7.0);
    let z = x * x;
    let p = polynomial(z, [1.0, 1.233_012_1e-1, 2.299_686_7e-3, 4.023_125e-6]);
    let q = polynomial(z, [1.0, 4.566_293e-1, 2.118_400_5e-2, 1.446_572_9e-4]);
    (x * p).over(q)
}

/// Hyperbolic tangent for results that are then rounded to bf16: error below 2.1e-4, a ninth of bf16's own near 1 (on AVX-512 below 7e-4,
/// a third).
#[inline(always)]
pub fn tanh_coarse<L: Lanes>(x: L::F) -> L::F {
    let x = x.clamp(-4.8, 4.8);
    let z = x * x;
    let p = polynomial(z, [1.0, 1.033_178e-1, 6.969_7e-4]);
    let q = polynomial(z, [1.0, 4.364_697e-1, 1.308_75e-2]);
    x * p * q.reciprocal_coarse()
}

/// The error function as one odd rational function limited to ±1, which it passes near ±3.9. Relative error below 5e-7.
#[inline(always)]
pub fn erf<L: Lanes>(x: L::F) -> L::F {
    // Only the ratio's argument is limited: beyond, the product grows with x and the limit of ±1 is exact.
    let z = (x * x).min(16.81);
    let p = polynomial(
        z,
        [std::f32::consts::FRAC_2_SQRT_PI, 1.844_950_3e-1, 5.203_924e-2, 3.528_966e-3, 2.829_273_6e-4, 2.144_160_6e-6],
    );
    let q = polynomial(z, [1.0, 4.968_378e-1, 1.117_314_5e-1, 1.449_594_9e-2, 1.111_111_1e-3, 3.895_087_5e-5]);
    (x * p / q).clamp(-1.0, 1.0)
}

/// The logistic function 1 / (1 + e⁻ˣ). Relative error below 4e-7 for x ≥ −87; 0 below −88.4.
#[inline(always)]
pub fn sigmoid<L: Lanes>(x: L::F) -> L::F {
    L::F::from(1.0) / ((-x).exp_fast() + 1.0)
}

/// x · sigmoid(x). Relative error below 5e-7 for x ≥ −87; 0 below −88.4, but NaN at −∞.
#[inline(always)]
pub fn silu<L: Lanes>(x: L::F) -> L::F {
    x * x.sigmoid()
}

/// ln(1 + eˣ) = max(x, 0) + ln(1 + u) with u = e^−|x|, which cannot overflow. Relative error below 5e-7 for x ≥ −87; 0
/// below −87.7.
#[inline(always)]
pub fn softplus<L: Lanes>(x: L::F) -> L::F {
    let u = (-x.abs()).exp_fast();
    // ln(1 + u) = 2·artanh(s) for s = u / (2 + u) ≤ ⅓: relative accuracy also where 1 + u would round to 1.
    let s = u / (u + 2.0);
    let p = polynomial(s * s, [2.0, 6.666_631_5e-1, 4.002_491e-1, 2.796_060_7e-1, 2.817_833_4e-1]);
    s.mul_add(p, x.max(0.0))
}

/// Φ(x) = (1 + erf(x/√2)) / 2, the normal distribution.
#[inline(always)]
fn normal_distribution<L: Lanes>(x: L::F) -> L::F {
    (x * std::f32::consts::FRAC_1_SQRT_2).erf().mul_add(0.5, 0.5)
}

/// x · Φ(x), exact as opposed to the one by tanh (Hendrycks & Gimpel, arXiv:1606.08415). Error below 4e-7·max(1, |x|);
/// 0 below −6, but NaN at −∞.
#[inline(always)]
pub fn gelu<L: Lanes>(x: L::F) -> L::F {
    x * normal_distribution::<L>(x)
}

/// The derivative of [`gelu`]: Φ(x) + x·φ(x) with φ(x) = e^(−x²/2) / √(2π). Absolute error below 5e-7; NaN at ±∞.
#[inline(always)]
pub fn gelu_grad<L: Lanes>(x: L::F) -> L::F {
    /// 1 / √(2π).
    const DENSITY_AT_0: f32 = 0.398_942_3;
    let density = (x * x * -0.5).exp_fast() * DENSITY_AT_0;
    x.mul_add(density, normal_distribution::<L>(x))
}

#[cfg(test)]
mod tests {
    use super::super::{Backend, Kernel, Scalar, Simd, double};
    use super::*;

    type S = <Scalar as Lanes>::F;

    /// Evenly spaced values over a range, and every value's neighbourhood is as good as random in its low bits.
    fn sweep(low: f64, high: f64) -> impl Iterator<Item = f32> {
        let n = 400_000;
        (0..=n).map(move |i| (low + (high - low) * i as f64 / n as f64) as f32)
    }

    fn worst(values: impl Iterator<Item = f32>, error: impl Fn(f32) -> f64) -> f64 {
        values.map(error).fold(0.0, f64::max)
    }

    fn sin_error(x: f32) -> f64 {
        let (s, c) = sin_cos::<Scalar>(S::from(x));
        let x = f64::from(x);
        (f64::from(s.get()) - x.sin()).abs().max((f64::from(c.get()) - x.cos()).abs())
    }

    #[test]
    fn sin_cos_bound() {
        for (low, high) in [(-0.5, 0.5), (-4.0, 4.0), (-100.0, 100.0), (-12_800.0, 12_800.0)] {
            let error = worst(sweep(low, high), sin_error);
            assert!(error < 1.2e-7, "{error:e} on {low}..{high}");
        }
        let far = worst(sweep(12_800.0, 1e5), sin_error);
        assert!(far < 1e-2, "{far:e}");
    }

    /// A five-term Taylor series gives cos(π) = +0.12.
    #[test]
    fn cos_pi_is_minus_one() {
        assert_eq!(sin_cos::<Scalar>(S::from(std::f32::consts::PI)).1.get(), -1.0);
        assert_eq!(sin_cos::<Scalar>(S::from(0.0)).0.get(), 0.0);
        assert!(sin_cos::<Scalar>(S::from(f32::INFINITY)).0.get().is_nan());
        assert!(sin_cos::<Scalar>(S::from(f32::NAN)).1.get().is_nan());
    }

    #[test]
    fn wrap_angle_bound() {
        let error = |x: f32| {
            let exact = f64::from(x) - std::f64::consts::TAU * (f64::from(x) / std::f64::consts::TAU).round();
            let error = (f64::from(wrap_angle::<Scalar>(S::from(x)).get()) - exact).abs();
            // Half a turn may be wrapped either way.
            error.min((error - std::f64::consts::TAU).abs())
        };
        assert!(worst(sweep(-100.0, 100.0), error) < 3e-7);
        assert!(worst(sweep(-10_000.0, 10_000.0), error) < 2e-6);
    }

    #[test]
    fn exp_bound() {
        let error = |x: f32| (f64::from(exp::<Scalar>(S::from(x)).get()) / f64::from(x).exp() - 1.0).abs();
        assert!(worst(sweep(-87.3, 88.7), error) < 2e-7);
        for (x, y) in
            [(-200.0, 0.0), (f32::NEG_INFINITY, 0.0), (0.0, 1.0), (89.0, f32::INFINITY), (f32::INFINITY, f32::INFINITY)]
        {
            assert_eq!(exp::<Scalar>(S::from(x)).get(), y, "exp({x})");
        }
        assert!(exp::<Scalar>(S::from(f32::NAN)).get().is_nan());
        let denormal = exp::<Scalar>(S::from(-95.0)).get();
        assert!((f64::from(denormal) - (-95f64).exp()).abs() < 1.5e-45);
    }

    #[test]
    fn log_bound() {
        let error = |x: f32| {
            let exact = f64::from(x).ln();
            (f64::from(log::<Scalar>(S::from(x)).get()) - exact).abs() / exact.abs().max(1.0)
        };
        assert!(worst(sweep(1e-6, 4.0), error) < 1.2e-7);
        assert!(worst((1..0x7f80_0000).step_by(4001).map(f32::from_bits), error) < 1.2e-7);
        assert_eq!(log::<Scalar>(S::from(1.0)).get(), 0.0);
        assert_eq!(log::<Scalar>(S::from(0.0)).get(), f32::NEG_INFINITY);
        assert_eq!(log::<Scalar>(S::from(f32::INFINITY)).get(), f32::INFINITY);
        assert!(log::<Scalar>(S::from(-1.0)).get().is_nan() && log::<Scalar>(S::from(f32::NAN)).get().is_nan());
    }

    #[test]
    fn tanh_bound() {
        let error = |x: f32| {
            if x == 0.0 { 0.0 } else { (f64::from(tanh::<Scalar>(S::from(x)).get()) / f64::from(x).tanh() - 1.0).abs() }
        };
        assert!(worst(sweep(-20.0, 20.0), error) < 3e-7);
        assert!(worst(sweep(-1e-3, 1e-3), error) < 3e-7);
        assert_eq!(tanh::<Scalar>(S::from(f32::INFINITY)).get(), 1.0);
        assert_eq!(tanh::<Scalar>(S::from(f32::NEG_INFINITY)).get(), -1.0);
        assert!(tanh::<Scalar>(S::from(f32::NAN)).get().is_nan());
    }

    #[test]
    fn pow_bound() {
        for y in [-3.5f32, -1.0, 0.0, 0.5, 2.0, 7.25] {
            let error = |x: f32| {
                let exact = f64::from(x).powf(f64::from(y));
                (f64::from(pow::<Scalar>(S::from(x), S::from(y)).get()) / exact - 1.0).abs()
                    / (2.0 + (f64::from(y) * f64::from(x).ln()).abs())
            };
            assert!(worst(sweep(1e-3, 50.0), error) < 2e-7, "exponent {y}");
        }
        assert_eq!(pow::<Scalar>(S::from(0.0), S::from(2.0)).get(), 0.0);
        assert!(pow::<Scalar>(S::from(-2.0), S::from(2.0)).get().is_nan());
    }

    /// The functions for networks, one row of results each.
    struct ForNetworks<'a>(&'a [f32]);

    const FOR_NETWORKS: [&str; 11] = [
        "reciprocal",
        "rsqrt",
        "exp_fast",
        "tanh_fast",
        "tanh_coarse",
        "erf",
        "sigmoid",
        "silu",
        "softplus",
        "gelu",
        "gelu_grad",
    ];

    impl Kernel for ForNetworks<'_> {
        type Out = Vec<Vec<f32>>;
        type Home = Self;

        #[inline(always)]
        fn run<L: Simd>(self) -> Vec<Vec<f32>> {
            let mut out = vec![vec![0.0; self.0.len()]; FOR_NETWORKS.len()];
            for at in (0..self.0.len()).step_by(L::WIDTH) {
                let x = L::load_f_part(&self.0[at..]);
                let y = [
                    x.reciprocal(),
                    x.rsqrt(),
                    x.exp_fast(),
                    x.tanh_fast(),
                    x.tanh_coarse(),
                    x.erf(),
                    x.sigmoid(),
                    x.silu(),
                    x.softplus(),
                    x.gelu(),
                    x.gelu_grad(),
                ];
                for (out, y) in out.iter_mut().zip(y) {
                    L::store_f_part(y, &mut out[at..]);
                }
            }
            out
        }
    }

    /// Results of one function: strict on one lane, then fast on whatever this CPU has.
    fn for_networks(name: &str, x: &[f32]) -> Vec<(&'static str, Vec<f32>)> {
        let row = FOR_NETWORKS.iter().position(|n| *n == name).unwrap();
        let fast = ["portable", "avx2", "avx512"].into_iter().filter_map(|isa| Backend::named(isa).ok());
        let fast = fast.map(|b| (b.name(), b.run_fast(ForNetworks(x)).swap_remove(row)));
        std::iter::once(("strict", ForNetworks(x).run::<Scalar>().swap_remove(row))).chain(fast).collect()
    }

    /// What an error is measured against.
    #[derive(Clone, Copy)]
    enum Against {
        One,
        Result,
        Argument,
    }

    #[test]
    fn bounds_of_functions_for_networks() {
        use Against::*;
        type Exact = fn(f64) -> f64;
        fn distribution(x: f64) -> f64 {
            0.5 + 0.5 * double::erf(x * std::f64::consts::FRAC_1_SQRT_2)
        }
        fn sigmoid(x: f64) -> f64 {
            1.0 / (1.0 + (-x).exp())
        }
        fn softplus(x: f64) -> f64 {
            x.max(0.0) + (-x.abs()).exp().ln_1p()
        }
        fn density(x: f64) -> f64 {
            (x * x * -0.5).exp() / std::f64::consts::TAU.sqrt()
        }
        let cases: [(&str, f64, f64, Exact, Against, f64); 16] = [
            ("reciprocal", -500.0, 500.0, |x| 1.0 / x, Result, 3e-7),
            ("rsqrt", 1e-6, 500.0, |x| 1.0 / x.sqrt(), Result, 3e-7),
            ("exp_fast", -87.3, 88.3, f64::exp, Result, 3e-7),
            ("exp_fast", -1.0, 1.0, f64::exp, Result, 3e-7),
            ("tanh_fast", -12.0, 12.0, f64::tanh, Result, 1.8e-6),
            ("tanh_fast", -1e-3, 1e-3, f64::tanh, Result, 5e-7),
            ("tanh_coarse", -12.0, 12.0, f64::tanh, One, 2.1e-4),
            ("tanh_coarse", -0.1, 0.1, f64::tanh, One, 4e-5),
            ("erf", -6.0, 6.0, double::erf, Result, 5e-7),
            ("erf", -1e-3, 1e-3, double::erf, Result, 5e-7),
            ("sigmoid", -87.0, 100.0, sigmoid, Result, 4e-7),
            ("silu", -87.0, 100.0, |x| x * sigmoid(x), Result, 5e-7),
            ("softplus", -87.0, 100.0, softplus, Result, 5e-7),
            ("softplus", -5.0, 5.0, softplus, Result, 5e-7),
            ("gelu", -12.0, 12.0, |x| x * distribution(x), Argument, 4e-7),
            ("gelu_grad", -12.0, 12.0, |x| distribution(x) + x * density(x), One, 5e-7),
        ];
        for (name, low, high, exact, against, bound) in cases {
            let x: Vec<f32> = sweep(low, high).filter(|&x| x != 0.0).collect();
            let wanted: Vec<f64> = x.iter().map(|&x| exact(x.into())).collect();
            for (isa, got) in for_networks(name, &x) {
                for ((&x, &y), &wanted) in x.iter().zip(&got).zip(&wanted) {
                    let scale = match against {
                        One => 1.0,
                        Result => wanted.abs(),
                        Argument => f64::from(x.abs()).max(1.0),
                    };
                    let error = (f64::from(y) - wanted).abs() / scale;
                    // Segments of AVX-512 are lines.
                    let bound = match (name, isa) {
                        ("tanh_coarse", "avx512") if high > 1.0 => 7e-4,
                        ("tanh_coarse", "avx512") => 2.5e-4,
                        _ => bound,
                    };
                    assert!(error < bound, "{name}({x:e}) is off by {error:e} ({isa})");
                    assert!(!matches!(name, "tanh_fast" | "erf") || y.abs() <= 1.0, "{name}({x:e}) = {y:e} ({isa})");
                }
            }
        }
    }

    #[test]
    fn functions_for_networks_at_the_edges() {
        const INF: f32 = f32::INFINITY;
        let cases: [(&str, &[(f32, f32)]); 8] = [
            ("reciprocal", &[(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, 0.0), (1e-42, INF)]),
            ("rsqrt", &[(0.0, INF), (INF, 0.0)]),
            ("exp_fast", &[(0.0, 1.0), (-88.0, 0.0), (-1e9, 0.0), (-INF, 0.0), (88.5, INF), (1e9, INF), (INF, INF)]),
            ("erf", &[(0.0, 0.0), (4.1, 1.0), (-4.1, -1.0), (1e30, 1.0), (INF, 1.0), (-INF, -1.0)]),
            ("sigmoid", &[(0.0, 0.5), (-89.0, 0.0), (-INF, 0.0), (INF, 1.0)]),
            ("silu", &[(0.0, 0.0), (-89.0, 0.0), (-1e30, 0.0), (INF, INF)]),
            ("softplus", &[(-1e9, 0.0), (-INF, 0.0), (200.0, 200.0), (INF, INF)]),
            ("gelu", &[(0.0, 0.0), (-6.0, 0.0), (-1e30, 0.0), (6.0, 6.0), (1e30, 1e30), (INF, INF)]),
        ];
        for (name, cases) in cases {
            let x: Vec<f32> = cases.iter().map(|case| case.0).collect();
            for (isa, got) in for_networks(name, &x) {
                for (&(x, wanted), y) in cases.iter().zip(got) {
                    assert_eq!(y, wanted, "{name}({x:e}) ({isa})");
                }
            }
        }
        for (isa, got) in for_networks("tanh_fast", &[INF, -INF, 1e30]) {
            assert!(got[0] > 0.999_998 && got[0] <= 1.0 && got[1] == -got[0] && got[2] == got[0], "{got:?} ({isa})");
        }
        for name in FOR_NETWORKS {
            for (isa, got) in for_networks(name, &[f32::NAN]) {
                assert!(got[0].is_nan(), "{name} of NaN ({isa})");
            }
        }
        assert!(for_networks("rsqrt", &[-1.0]).iter().all(|(_, got)| got[0].is_nan()));
    }
}
