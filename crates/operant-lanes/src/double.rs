//! One lane of f64: the twin on which gradients are checked by finite differences.
//!
//! The same lane code as for f32, with rounding errors so small that a difference quotient shows the derivative.
//! Invariant: no elementary function goes through f32, whatever [`math`](super::math) does for the other lanes.

use super::portable::{M, entry};
use super::{Float, Int, Lanes, Select};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Sub};

/// One lane whose floats are f64.
#[derive(Clone, Copy, Debug)]
pub struct Double;

/// One f64. Its [`bits`](Float::bits) are those of the nearest f32, as an i32 lane has no room for more.
#[derive(Clone, Copy, Debug)]
pub struct F(pub(super) f64);

/// One i32.
#[derive(Clone, Copy, Debug)]
pub struct I(pub(super) i32);

impl Lanes for Double {
    type F = F;
    type I = I;
    type M = M<1>;
}

macro_rules! operators {
    ($lanes:ident, $scalar:ty, $($trait:ident $method:ident $f:expr),+) => {
        impl From<$scalar> for $lanes {
            #[inline(always)]
            fn from(value: $scalar) -> Self {
                Self(value.into())
            }
        }
        impl Select<M<1>> for $lanes {
            #[inline(always)]
            fn select(mask: M<1>, yes: Self, no: Self) -> Self {
                if mask.0[0] { yes } else { no }
            }
        }
        $(
            impl $trait for $lanes {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    Self($f(self.0, other.0))
                }
            }
            impl $trait<$scalar> for $lanes {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: $scalar) -> Self {
                    $trait::$method(self, Self::from(other))
                }
            }
        )+
    };
}

operators!(F, f32, Add add f64::add, Sub sub f64::sub, Mul mul f64::mul, Div div f64::div);
operators!(
    I, i32,
    Add add i32::wrapping_add, Sub sub i32::wrapping_sub, Mul mul i32::wrapping_mul,
    BitAnd bitand i32::bitand, BitOr bitor i32::bitor, BitXor bitxor i32::bitxor
);

impl Neg for F {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl Float for F {
    type L = Double;

    #[inline(always)]
    fn lt(self, other: impl Into<Self>) -> M<1> {
        M([self.0 < other.into().0])
    }
    #[inline(always)]
    fn le(self, other: impl Into<Self>) -> M<1> {
        M([self.0 <= other.into().0])
    }
    #[inline(always)]
    fn eq(self, other: impl Into<Self>) -> M<1> {
        M([self.0 == other.into().0])
    }
    #[inline(always)]
    fn min(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        if self.0 < other.0 { self } else { other }
    }
    #[inline(always)]
    fn max(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        if self.0 > other.0 { self } else { other }
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.abs())
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.sqrt())
    }
    #[inline(always)]
    fn floor(self) -> Self {
        Self(self.0.floor())
    }
    #[inline(always)]
    fn round(self) -> Self {
        Self(self.0.round_ties_even())
    }
    #[inline(always)]
    fn mul_add(self, factor: impl Into<Self>, addend: impl Into<Self>) -> Self {
        self * factor.into() + addend.into()
    }
    #[inline(always)]
    fn to_int(self) -> I {
        let whole = self.0.trunc();
        I(if (-2147483648.0..2147483648.0).contains(&whole) { whole as i32 } else { i32::MIN })
    }
    /// The bits of the nearest f32.
    #[inline(always)]
    fn bits(self) -> I {
        I((self.0 as f32).to_bits() as i32)
    }
    /// The f32 with these bits, exactly.
    #[inline(always)]
    fn from_bits(bits: I) -> Self {
        Self(f32::from_bits(bits.0 as u32).into())
    }
    fn sin_cos(self) -> (Self, Self) {
        (Self(self.0.sin()), Self(self.0.cos()))
    }
    fn exp(self) -> Self {
        Self(self.0.exp())
    }
    fn log(self) -> Self {
        Self(self.0.ln())
    }
    fn tanh(self) -> Self {
        Self(self.0.tanh())
    }
    fn pow(self, exponent: impl Into<Self>) -> Self {
        let exponent = exponent.into();
        // As `math::pow` has it: `powf` gives negative bases with whole exponents a value.
        Self(if self.0 < 0.0 && exponent.0 != 0.0 { f64::NAN } else { self.0.powf(exponent.0) })
    }
    fn exp_fast(self) -> Self {
        self.exp()
    }
    fn tanh_fast(self) -> Self {
        self.tanh()
    }
    fn erf(self) -> Self {
        Self(erf(self.0))
    }
    fn softplus(self) -> Self {
        Self(self.0.max(0.0) + (-self.0.abs()).exp().ln_1p())
    }
    fn gelu(self) -> Self {
        Self(self.0 * normal_distribution(self.0))
    }
    fn gelu_grad(self) -> Self {
        let density = (self.0 * self.0 * -0.5).exp() * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * 0.5;
        Self(normal_distribution(self.0) + self.0 * density)
    }
}

/// Φ(x), the normal distribution.
fn normal_distribution(x: f64) -> f64 {
    0.5 + 0.5 * erf(x * FRAC_1_SQRT_2)
}

/// The error function, within 4e-15 of the exact value relative to it: below 3 by the series of positive terms, beyond by the
/// continued fraction of 1 − erf (Abramowitz & Stegun, Handbook of Mathematical Functions, 7.1.6 and 7.1.14).
pub(super) fn erf(x: f64) -> f64 {
    let a = x.abs();
    let scale = FRAC_2_SQRT_PI * (-a * a).exp();
    let magnitude = if a < 3.0 {
        let (mut term, mut sum, mut odd) = (scale * a, 0.0, 1.0);
        // Every term is positive: the sum stands still once they are below its last bit.
        while sum + term != sum {
            sum += term;
            odd += 2.0;
            term *= 2.0 * a * a / odd;
        }
        sum
    } else if a < 6.0 {
        // Forty levels leave nothing to see in an f64 from 3 on.
        let fraction = (1..=40).rev().fold(a, |f, k| a + f64::from(k) * 0.5 / f);
        1.0 - scale * 0.5 / fraction
    } else if a.is_nan() {
        a
    } else {
        // 1 − erf(6) is 2e-17.
        1.0
    };
    magnitude.copysign(x)
}

impl Int for I {
    type L = Double;

    #[inline(always)]
    fn eq(self, other: impl Into<Self>) -> M<1> {
        M([self.0 == other.into().0])
    }
    #[inline(always)]
    fn lt(self, other: impl Into<Self>) -> M<1> {
        M([self.0 < other.into().0])
    }
    #[inline(always)]
    fn shl(self, count: u32) -> Self {
        Self(self.0 << count)
    }
    #[inline(always)]
    fn shr(self, count: u32) -> Self {
        Self((self.0 as u32 >> count) as i32)
    }
    #[inline(always)]
    fn sar(self, count: u32) -> Self {
        Self(self.0 >> count)
    }
    #[inline(always)]
    fn mul_wide(self, other: impl Into<Self>) -> (Self, Self) {
        let product = u64::from(self.0 as u32) * u64::from(other.into().0 as u32);
        (Self((product >> 32) as i32), Self(product as i32))
    }
    #[inline(always)]
    fn to_float(self) -> F {
        F(self.0.into())
    }
    #[inline(always)]
    fn lookup(self, table: &'static [i32]) -> Self {
        Self(entry(table, self.0))
    }
    #[inline(always)]
    fn lookup_f(self, table: &'static [f32]) -> F {
        F(entry(table, self.0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from mpmath's `erf` at 25 digits; up to 2 they continue Abramowitz & Stegun, table 7.1.
    #[test]
    fn erf_of_published_arguments() {
        let published = [
            (0.1, 0.112_462_916_018_284_9),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (1.5, 0.966_105_146_475_310_7),
            (2.0, 0.995_322_265_018_952_7),
            (2.99, 0.999_976_474_396_919_4),
            (3.0, 0.999_977_909_503_001_4),
            (3.5, 0.999_999_256_901_627_7),
            (5.0, 0.999_999_999_998_462_5),
        ];
        for (x, y) in published {
            assert!((erf(x) / y - 1.0).abs() < 4e-15, "erf({x}) = {:.17}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!((erf(0.0), erf(7.0), erf(f64::NEG_INFINITY)), (0.0, 1.0, -1.0));
        assert!(erf(f64::NAN).is_nan());
        // Near 0 the function is 2x/√π.
        assert_eq!(erf(1e-9), FRAC_2_SQRT_PI * 1e-9);
    }

    /// Central differences of functions whose derivative is another of them: an f32 anywhere would leave 1e-3.
    #[test]
    fn differences_show_derivatives() {
        let h = 1e-5;
        let difference = |f: fn(F) -> F, x: f64| (f(F(x + h)).0 - f(F(x - h)).0) / (2.0 * h);
        for i in -400..=400 {
            let x = f64::from(i) * 0.01 + 0.003;
            let (v, y) = (F(x), F(x).tanh_fast().0);
            let pairs = [
                (difference(F::gelu, x), v.gelu_grad().0),
                (difference(F::softplus, x), v.sigmoid().0),
                (difference(F::silu, x), v.sigmoid().0 * (1.0 + x * (1.0 - v.sigmoid().0))),
                (difference(F::erf, x), FRAC_2_SQRT_PI * (-x * x).exp()),
                (difference(F::tanh_fast, x), 1.0 - y * y),
                (difference(F::tanh, x), 1.0 - y * y),
                (difference(F::exp_fast, x) / v.exp().0, 1.0),
                (difference(F::sin, x), v.cos().0),
                (difference(F::reciprocal, x + 5.0), -1.0 / (x + 5.0).powi(2)),
                (difference(F::rsqrt, x + 5.0), -0.5 * (x + 5.0).powf(-1.5)),
                (difference(F::log, x + 5.0), 1.0 / (x + 5.0)),
                (difference(|x| (x + 5.0).pow(2.5), x), 2.5 * (x + 5.0).powf(1.5)),
            ];
            for (at, (got, wanted)) in pairs.into_iter().enumerate() {
                assert!((got - wanted).abs() < 1e-8, "pair {at} at {x}: {got} for {wanted}");
            }
        }
    }

    #[test]
    fn integers_and_bits() {
        assert_eq!(F(-3.9).to_int().0, -3);
        assert_eq!(F(2147483647.5).to_int().0, i32::MAX);
        assert_eq!((F(3e9).to_int().0, F(f64::NAN).to_int().0), (i32::MIN, i32::MIN));
        assert_eq!(F::from_bits(F(0.1).bits()).0, f64::from(0.1f32));
        assert_eq!(I(i32::MAX).to_float().0, 2147483647.0);
        assert!(F(-2.0).pow(2.0).0.is_nan() && F(-2.0).pow(0.0).0 == 1.0);
    }
}
