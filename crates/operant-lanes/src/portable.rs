//! Lanes as plain arrays: the reference at one lane, and the code for CPUs without AVX2 at 8 and 16.

use super::{Float, Int, Lanes, Mask, Select, Simd, math, rng};
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

/// `N` lanes held in arrays; `N` divides 16.
#[derive(Clone, Copy, Debug)]
pub struct Portable<const N: usize>;

/// `N` lanes of f32.
#[derive(Clone, Copy, Debug)]
pub struct F<const N: usize>([f32; N]);

/// `N` lanes of i32.
#[derive(Clone, Copy, Debug)]
pub struct I<const N: usize>([i32; N]);

/// `N` truth values.
#[derive(Clone, Copy, Debug)]
pub struct M<const N: usize>(pub(super) [bool; N]);

impl<const N: usize> Lanes for Portable<N> {
    type F = F<N>;
    type I = I<N>;
    type M = M<N>;
}

impl F<1> {
    /// The value of the one lane.
    pub fn get(self) -> f32 {
        self.0[0]
    }
}

impl I<1> {
    /// The value of the one lane.
    pub fn get(self) -> i32 {
        self.0[0]
    }
}

/// The array of `f(i)`. Of `std::array::from_fn` the compiler must first remove several times as much code, in every operation.
#[inline(always)]
fn each<R: Copy + Default, const N: usize>(f: impl Fn(usize) -> R) -> [R; N] {
    let mut out = [R::default(); N];
    let mut i = 0;
    while i < N {
        out[i] = f(i);
        i += 1;
    }
    out
}

#[inline(always)]
fn map<A: Copy, R: Copy + Default, const N: usize>(a: [A; N], f: impl Fn(A) -> R) -> [R; N] {
    each(|i| f(a[i]))
}

#[inline(always)]
fn zip<A: Copy, B: Copy, R: Copy + Default, const N: usize>(a: [A; N], b: [B; N], f: impl Fn(A, B) -> R) -> [R; N] {
    each(|i| f(a[i], b[i]))
}

macro_rules! operators {
    ($lanes:ident, $scalar:ty, $($trait:ident $method:ident $f:expr),+) => {
        impl<const N: usize> From<$scalar> for $lanes<N> {
            #[inline(always)]
            fn from(value: $scalar) -> Self {
                Self([value; N])
            }
        }
        impl<const N: usize> Select<M<N>> for $lanes<N> {
            #[inline(always)]
            fn select(mask: M<N>, yes: Self, no: Self) -> Self {
                Self(each(|i| if mask.0[i] { yes.0[i] } else { no.0[i] }))
            }
        }
        $(
            impl<const N: usize> $trait for $lanes<N> {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    Self(zip(self.0, other.0, $f))
                }
            }
            impl<const N: usize> $trait<$scalar> for $lanes<N> {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: $scalar) -> Self {
                    $trait::$method(self, Self::from(other))
                }
            }
        )+
    };
}

operators!(F, f32, Add add |a, b| a + b, Sub sub |a, b| a - b, Mul mul |a, b| a * b, Div div |a, b| a / b);
operators!(
    I, i32,
    Add add i32::wrapping_add, Sub sub i32::wrapping_sub, Mul mul i32::wrapping_mul,
    BitAnd bitand |a, b| a & b, BitOr bitor |a, b| a | b, BitXor bitxor |a, b| a ^ b
);

impl<const N: usize> Neg for F<N> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(map(self.0, |x| -x))
    }
}

impl<const N: usize> Float for F<N> {
    type L = Portable<N>;

    #[inline(always)]
    fn lt(self, other: impl Into<Self>) -> M<N> {
        M(zip(self.0, other.into().0, |a, b| a < b))
    }
    #[inline(always)]
    fn le(self, other: impl Into<Self>) -> M<N> {
        M(zip(self.0, other.into().0, |a, b| a <= b))
    }
    #[inline(always)]
    fn eq(self, other: impl Into<Self>) -> M<N> {
        M(zip(self.0, other.into().0, |a, b| a == b))
    }
    #[inline(always)]
    fn min(self, other: impl Into<Self>) -> Self {
        Self(zip(self.0, other.into().0, |a, b| if a < b { a } else { b }))
    }
    #[inline(always)]
    fn max(self, other: impl Into<Self>) -> Self {
        Self(zip(self.0, other.into().0, |a, b| if a > b { a } else { b }))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self(map(self.0, f32::abs))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(map(self.0, f32::sqrt))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        Self(map(self.0, f32::floor))
    }
    #[inline(always)]
    fn round(self) -> Self {
        Self(map(self.0, f32::round_ties_even))
    }
    #[inline(always)]
    fn mul_add(self, factor: impl Into<Self>, addend: impl Into<Self>) -> Self {
        self * factor.into() + addend.into()
    }
    #[inline(always)]
    fn to_int(self) -> I<N> {
        // The bounds are exact in f32; outside them x86 gives i32::MIN where `as` would saturate.
        let fits = |x: f32| (-2147483648.0..2147483648.0).contains(&x);
        I(map(self.0, |x| if fits(x) { x as i32 } else { i32::MIN }))
    }
    #[inline(always)]
    fn bits(self) -> I<N> {
        I(map(self.0, |x| x.to_bits() as i32))
    }
    #[inline(always)]
    fn from_bits(bits: I<N>) -> Self {
        Self(map(bits.0, |x| f32::from_bits(x as u32)))
    }
    // Out of line: repeated for every use and lane, these would take most of the time of a build.
    #[inline(never)]
    fn sin_cos(self) -> (Self, Self) {
        math::sin_cos::<Portable<N>>(self)
    }
    #[inline(never)]
    fn exp(self) -> Self {
        math::exp::<Portable<N>>(self)
    }
    #[inline(never)]
    fn log(self) -> Self {
        math::log::<Portable<N>>(self)
    }
    #[inline(never)]
    fn tanh(self) -> Self {
        math::tanh::<Portable<N>>(self)
    }
    #[inline(never)]
    fn exp_fast(self) -> Self {
        math::exp_fast::<Portable<N>>(self)
    }
    #[inline(never)]
    fn tanh_fast(self) -> Self {
        math::tanh_fast::<Portable<N>>(self)
    }
    #[inline(never)]
    fn erf(self) -> Self {
        math::erf::<Portable<N>>(self)
    }
    #[inline(never)]
    fn softplus(self) -> Self {
        math::softplus::<Portable<N>>(self)
    }
}

#[inline(always)]
pub(super) fn entry<T: Copy>(table: &[T], index: i32) -> T {
    table[(index as u32 as usize).min(table.len() - 1)]
}

impl<const N: usize> Int for I<N> {
    type L = Portable<N>;

    #[inline(always)]
    fn eq(self, other: impl Into<Self>) -> M<N> {
        M(zip(self.0, other.into().0, |a, b| a == b))
    }
    #[inline(always)]
    fn lt(self, other: impl Into<Self>) -> M<N> {
        M(zip(self.0, other.into().0, |a, b| a < b))
    }
    #[inline(always)]
    fn shl(self, count: u32) -> Self {
        Self(map(self.0, |x| x << count))
    }
    #[inline(always)]
    fn shr(self, count: u32) -> Self {
        Self(map(self.0, |x| (x as u32 >> count) as i32))
    }
    #[inline(always)]
    fn sar(self, count: u32) -> Self {
        Self(map(self.0, |x| x >> count))
    }
    #[inline(always)]
    fn mul_wide(self, other: impl Into<Self>) -> (Self, Self) {
        let product = zip(self.0, other.into().0, |a, b| u64::from(a as u32) * u64::from(b as u32));
        (Self(map(product, |p| (p >> 32) as i32)), Self(map(product, |p| p as i32)))
    }
    #[inline(never)]
    fn philox(counter: [Self; 4], key: [Self; 2]) -> [Self; 4] {
        rng::philox(counter, key)
    }
    #[inline(always)]
    fn to_float(self) -> F<N> {
        F(map(self.0, |x| x as f32))
    }
    #[inline(always)]
    fn lookup(self, table: &'static [i32]) -> Self {
        Self(map(self.0, |i| entry(table, i)))
    }
    #[inline(always)]
    fn lookup_f(self, table: &'static [f32]) -> F<N> {
        F(map(self.0, |i| entry(table, i)))
    }
}

impl<const N: usize> Mask for M<N> {
    #[inline(always)]
    fn splat(value: bool) -> Self {
        Self([value; N])
    }
}

macro_rules! mask_operators {
    ($($trait:ident $method:ident $op:tt),+) => {$(
        impl<const N: usize> $trait for M<N> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(zip(self.0, other.0, |a, b| a $op b))
            }
        }
    )+};
}
mask_operators!(BitAnd bitand &, BitOr bitor |, BitXor bitxor ^);

impl<const N: usize> Not for M<N> {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Self(map(self.0, |x| !x))
    }
}

/// Combines the lower half with the upper half until one value is left.
#[inline(always)]
fn halve<const N: usize>(mut x: [f32; N], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = N / 2;
    while half > 0 {
        for i in 0..half {
            x[i] = f(x[i], x[i + half]);
        }
        half /= 2;
    }
    x[0]
}

impl<const N: usize> Simd for Portable<N> {
    const WIDTH: usize = N;

    #[inline(always)]
    fn load(words: &[i32]) -> I<N> {
        let words = &words[..N];
        I(each(|i| words[i]))
    }
    #[inline(always)]
    fn load_part(words: &[i32]) -> I<N> {
        I(each(|i| words.get(i).copied().unwrap_or(0)))
    }
    #[inline(always)]
    fn load_f(x: &[f32]) -> F<N> {
        let x = &x[..N];
        F(each(|i| x[i]))
    }
    #[inline(always)]
    fn load_f_part(x: &[f32]) -> F<N> {
        F(each(|i| x.get(i).copied().unwrap_or(0.0)))
    }
    #[inline(always)]
    fn store(value: I<N>, words: &mut [i32]) {
        words[..N].copy_from_slice(&value.0);
    }
    #[inline(always)]
    fn store_f(value: F<N>, out: &mut [f32]) {
        out[..N].copy_from_slice(&value.0);
    }
    #[inline(always)]
    fn store_f_part(value: F<N>, out: &mut [f32]) {
        for (o, x) in out.iter_mut().zip(value.0) {
            *o = x;
        }
    }
    #[inline(always)]
    fn sum_f(value: F<N>) -> f32 {
        halve(value.0, |a, b| a + b)
    }
    #[inline(always)]
    fn largest_f(value: F<N>) -> f32 {
        halve(value.0, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn store_where(value: I<N>, mask: M<N>, words: &mut [i32]) {
        for ((word, value), set) in words[..N].iter_mut().zip(value.0).zip(mask.0) {
            *word = if set { value } else { *word };
        }
    }
    #[inline(always)]
    fn store_f_where(value: F<N>, mask: M<N>, out: &mut [f32]) {
        for ((x, value), set) in out[..N].iter_mut().zip(value.0).zip(mask.0) {
            *x = if set { value } else { *x };
        }
    }
    #[inline(always)]
    fn mask_bits(mask: M<N>) -> u32 {
        mask.0.iter().enumerate().fold(0, |bits, (i, &set)| bits | u32::from(set) << i)
    }
    #[inline(always)]
    fn store_mask(mask: M<N>, out: &mut [u8]) {
        for (o, set) in out[..N].iter_mut().zip(mask.0) {
            *o = u8::from(set);
        }
    }
}
