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
    } else {
        // 1 − erf(6) is 2e-17; a NaN stays one.
        a.min(1.0).max(a / a)
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
