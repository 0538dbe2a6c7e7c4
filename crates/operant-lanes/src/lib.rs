//! Lanes: straight-line numeric code written once and run at any width.
//!
//! Code generic over [`Lanes`] runs on one lane (the reference), on 8 or 16 SIMD lanes, or on the recorder
//! ([`Sym`]), which prints it as C. Invariant: in strict mode every operation rounds once, as IEEE 754 says, so all
//! of them give the same bits. [`Math::Fast`] lets [`Float::mul_add`] fuse where the CPU can, takes [`Float::reciprocal`]
//! and [`Float::rsqrt`] from the CPU's tables, and changes nothing else. [`Double`] is one lane of f64, for checks.
//!
//! Branches do not exist here: compare into a mask and [`select`].

#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
mod avx512;
mod columns;
mod dispatch;
mod double;
pub mod math;
mod portable;
pub mod rng;
mod sym;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
mod tanh_table;
mod tiles;
mod vectors;

pub use columns::{Block, Column, Columns, Kind};
pub use dispatch::Isa;
pub use dispatch::{Backend, HAS_PORTABLE, Kernel, Math, Maths, Width, check_cpu};
pub use double::Double;
pub use portable::Portable;
pub use rng::Rng;
pub use sym::{CUDA_PRELUDE, PRELUDE, Recording, Sym};
pub use tiles::has_tiles;
pub use vectors::Vectors;

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

/// The reference: one lane.
pub type Scalar = Portable<1>;

/// A family of lane types of one width: `F` holds f32 (f64 in [`Double`]), `I` holds i32, `M` holds truth values.
pub trait Lanes: Copy + Send + Sync + 'static {
    /// f32 in every lane.
    type F: Float<L = Self> + Select<Self::M>;
    /// i32 in every lane; arithmetic wraps.
    type I: Int<L = Self> + Select<Self::M>;
    /// A truth value in every lane.
    type M: Mask;
}

/// Lanes of f32. Operators take another lane value or a plain `f32` on the right: `x * 0.5 + y`.
pub trait Float:
    Copy
    + From<f32>
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Add<f32, Output = Self>
    + Sub<f32, Output = Self>
    + Mul<f32, Output = Self>
    + Div<f32, Output = Self>
{
    /// The family that these lanes belong to.
    type L: Lanes<F = Self>;

    /// `self < other`; false if either is NaN.
    fn lt(self, other: impl Into<Self>) -> <Self::L as Lanes>::M;
    /// `self <= other`; false if either is NaN.
    fn le(self, other: impl Into<Self>) -> <Self::L as Lanes>::M;
    /// `self == other`; false if either is NaN.
    fn eq(self, other: impl Into<Self>) -> <Self::L as Lanes>::M;
    /// `self > other`; false if either is NaN.
    #[inline(always)]
    fn gt(self, other: impl Into<Self>) -> <Self::L as Lanes>::M {
        other.into().lt(self)
    }
    /// `self >= other`; false if either is NaN.
    #[inline(always)]
    fn ge(self, other: impl Into<Self>) -> <Self::L as Lanes>::M {
        other.into().le(self)
    }

    /// `if self < other { self } else { other }`: a NaN in `self` gives `other`.
    fn min(self, other: impl Into<Self>) -> Self;
    /// `if self > other { self } else { other }`: a NaN in `self` gives `other`.
    fn max(self, other: impl Into<Self>) -> Self;
    /// Limits to `low..=high`; a NaN stays a NaN.
    #[inline(always)]
    fn clamp(self, low: impl Into<Self>, high: impl Into<Self>) -> Self {
        high.into().min(low.into().max(self))
    }
    /// Absolute value.
    fn abs(self) -> Self;
    /// Square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// Largest integer not above.
    fn floor(self) -> Self;
    /// Nearest integer, ties to even.
    fn round(self) -> Self;
    /// `self * factor + addend`: rounded twice in strict mode, once in fast mode where the CPU can.
    fn mul_add(self, factor: impl Into<Self>, addend: impl Into<Self>) -> Self;
    /// Integer part towards zero; `i32::MIN` for what does not fit and for NaN.
    fn to_int(self) -> <Self::L as Lanes>::I;
    /// The IEEE 754 bits.
    fn bits(self) -> <Self::L as Lanes>::I;
    /// The float with these bits.
    fn from_bits(bits: <Self::L as Lanes>::I) -> Self;

    /// Sine and cosine; see [`math::sin_cos`] for the error bound.
    #[inline(always)]
    fn sin_cos(self) -> (Self, Self) {
        math::sin_cos::<Self::L>(self)
    }
    /// Sine; see [`math::sin_cos`].
    #[inline(always)]
    fn sin(self) -> Self {
        self.sin_cos().0
    }
    /// Cosine; see [`math::sin_cos`].
    #[inline(always)]
    fn cos(self) -> Self {
        self.sin_cos().1
    }
    /// e to the power; see [`math::exp`].
    #[inline(always)]
    fn exp(self) -> Self {
        math::exp::<Self::L>(self)
    }
    /// Natural logarithm; see [`math::log`].
    #[inline(always)]
    fn log(self) -> Self {
        math::log::<Self::L>(self)
    }
    /// Hyperbolic tangent; see [`math::tanh`].
    #[inline(always)]
    fn tanh(self) -> Self {
        math::tanh::<Self::L>(self)
    }
    /// `self` to the power, for `self >= 0`; see [`math::pow`].
    #[inline(always)]
    fn pow(self, exponent: impl Into<Self>) -> Self {
        math::pow::<Self::L>(self, exponent.into())
    }

    /// `1 / self`: correctly rounded in strict mode, within a relative 3e-7 in fast mode where both are normal numbers;
    /// infinity at 0, 0 at infinity. Among much other arithmetic `/` is as fast: the divider works beside the multipliers.
    #[inline(always)]
    fn reciprocal(self) -> Self {
        Self::from(1.0) / self
    }
    /// [`reciprocal`](Self::reciprocal) within a relative 7e-5 where both are normal numbers: the cheapest there is.
    #[inline(always)]
    fn reciprocal_coarse(self) -> Self {
        self.reciprocal()
    }
    /// `self / divisor` for numbers and quotients far from the ends of the range: correctly rounded in strict mode, within a
    /// relative 2e-7 in fast mode.
    #[inline(always)]
    fn over(self, divisor: Self) -> Self {
        self / divisor
    }
    /// `1 / √self`: rounded twice in strict mode, within a relative 3e-7 in fast mode; infinity at 0, 0 at infinity, NaN
    /// below 0.
    #[inline(always)]
    fn rsqrt(self) -> Self {
        self.sqrt().reciprocal()
    }
    /// e to the power, cheaper than [`exp`](Self::exp); see [`math::exp_fast`].
    #[inline(always)]
    fn exp_fast(self) -> Self {
        math::exp_fast::<Self::L>(self)
    }
    /// Hyperbolic tangent, cheaper than [`tanh`](Self::tanh); see [`math::tanh_fast`].
    #[inline(always)]
    fn tanh_fast(self) -> Self {
        math::tanh_fast::<Self::L>(self)
    }
    /// Hyperbolic tangent for results that are then rounded to bf16; see [`math::tanh_coarse`].
    #[inline(always)]
    fn tanh_coarse(self) -> Self {
        math::tanh_coarse::<Self::L>(self)
    }
    /// The error function; see [`math::erf`].
    #[inline(always)]
    fn erf(self) -> Self {
        math::erf::<Self::L>(self)
    }
    /// The logistic function; see [`math::sigmoid`].
    #[inline(always)]
    fn sigmoid(self) -> Self {
        math::sigmoid::<Self::L>(self)
    }
    /// `self · sigmoid(self)`; see [`math::silu`].
    #[inline(always)]
    fn silu(self) -> Self {
        math::silu::<Self::L>(self)
    }
    /// `ln(1 + e^self)`; see [`math::softplus`].
    #[inline(always)]
    fn softplus(self) -> Self {
        math::softplus::<Self::L>(self)
    }
    /// `self · Φ(self)`; see [`math::gelu`].
    #[inline(always)]
    fn gelu(self) -> Self {
        math::gelu::<Self::L>(self)
    }
    /// The derivative of [`gelu`](Self::gelu); see [`math::gelu_grad`].
    #[inline(always)]
    fn gelu_grad(self) -> Self {
        math::gelu_grad::<Self::L>(self)
    }
}

/// Lanes of i32. Arithmetic wraps; operators take another lane value or a plain `i32` on the right.
pub trait Int:
    Copy
    + From<i32>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Add<i32, Output = Self>
    + Sub<i32, Output = Self>
    + Mul<i32, Output = Self>
    + BitAnd<i32, Output = Self>
    + BitOr<i32, Output = Self>
    + BitXor<i32, Output = Self>
{
    /// The family that these lanes belong to.
    type L: Lanes<I = Self>;

    /// `self == other`.
    fn eq(self, other: impl Into<Self>) -> <Self::L as Lanes>::M;
    /// `self < other`, signed.
    fn lt(self, other: impl Into<Self>) -> <Self::L as Lanes>::M;
    /// `self > other`, signed.
    #[inline(always)]
    fn gt(self, other: impl Into<Self>) -> <Self::L as Lanes>::M {
        other.into().lt(self)
    }
    /// `self >= other`, signed.
    #[inline(always)]
    fn ge(self, other: impl Into<Self>) -> <Self::L as Lanes>::M {
        !self.lt(other)
    }
    /// `self <= other`, signed.
    #[inline(always)]
    fn le(self, other: impl Into<Self>) -> <Self::L as Lanes>::M {
        !self.gt(other)
    }
    /// `self < other`, both read as u32.
    #[inline(always)]
    fn lt_unsigned(self, other: impl Into<Self>) -> <Self::L as Lanes>::M {
        (self ^ i32::MIN).lt(other.into() ^ i32::MIN)
    }
    /// Shift left by a constant below 32.
    fn shl(self, count: u32) -> Self;
    /// Shift right by a constant below 32, filling with zeros.
    fn shr(self, count: u32) -> Self;
    /// Shift right by a constant below 32, filling with the sign.
    fn sar(self, count: u32) -> Self;
    /// The upper half of `self` below the upper half of `other`.
    #[inline(always)]
    fn join_upper(self, other: Self) -> Self {
        self.shr(16) | (other & 0xffff_0000_u32 as i32)
    }
    /// The high and low halves of the unsigned 64-bit product.
    fn mul_wide(self, other: impl Into<Self>) -> (Self, Self);
    /// Four random words for a counter and a key; see [`rng::philox`].
    #[inline(always)]
    fn philox(counter: [Self; 4], key: [Self; 2]) -> [Self; 4] {
        rng::philox(counter, key)
    }
    /// Nearest f32 of the signed value.
    fn to_float(self) -> <Self::L as Lanes>::F;
    /// `table[self]`; an index outside the table (read as u32) takes the last entry. Panics if `table` is empty.
    fn lookup(self, table: &'static [i32]) -> Self;
    /// `table[self]`; an index outside the table (read as u32) takes the last entry. Panics if `table` is empty.
    fn lookup_f(self, table: &'static [f32]) -> <Self::L as Lanes>::F;
}

/// A truth value in every lane.
pub trait Mask:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// The same value in every lane.
    fn splat(value: bool) -> Self;
}

/// What [`select`] chooses between.
pub trait Select<M> {
    /// `yes` where `mask` holds, else `no`.
    fn select(mask: M, yes: Self, no: Self) -> Self;
}

/// `yes` where `mask` holds, else `no`: the branch of lane code. Both sides are always computed.
#[inline(always)]
pub fn select<M, T: Select<M>>(mask: M, yes: impl Into<T>, no: impl Into<T>) -> T {
    T::select(mask, yes.into(), no.into())
}

/// Lanes that execute (all but the recorder): loads, stores and questions about masks, for the adapters.
pub trait Simd: Lanes {
    /// Lanes per value; divides 16.
    const WIDTH: usize;
    /// Reads the first `WIDTH` values.
    fn load(words: &[i32]) -> Self::I;
    /// Reads `words`, or its first `WIDTH` values if it has more; lanes beyond its end are 0.
    fn load_part(words: &[i32]) -> Self::I;
    /// Reads the first `WIDTH` values.
    fn load_f(x: &[f32]) -> Self::F;
    /// Reads `x`, or its first `WIDTH` values if it has more; lanes beyond its end are 0.
    fn load_f_part(x: &[f32]) -> Self::F;
    /// Reads a column of rows: lane j is `x[j * stride]`.
    #[inline(always)]
    fn load_strided(x: &[f32], stride: usize) -> Self::F {
        let mut lanes = [0.0; 16];
        for (lane, to) in lanes[..Self::WIDTH].iter_mut().enumerate() {
            *to = x[lane * stride];
        }
        Self::load_f(&lanes)
    }
    /// Writes to the first `WIDTH` places.
    fn store(value: Self::I, words: &mut [i32]);
    /// Writes f32 lanes to the first `WIDTH` places.
    fn store_f(value: Self::F, out: &mut [f32]);
    /// Writes as many of the first lanes as `out` has places.
    fn store_f_part(value: Self::F, out: &mut [f32]);
    /// The sum of all lanes: the upper half is added to the lower half until one lane is left.
    fn sum_f(value: Self::F) -> f32;
    /// The [`sum_f`](Self::sum_f)s of four values.
    #[inline(always)]
    fn four_sums_f(values: [Self::F; 4]) -> [f32; 4] {
        let [a, b, c, d] = values;
        [Self::sum_f(a), Self::sum_f(b), Self::sum_f(c), Self::sum_f(d)]
    }
    /// The largest lane, by [`Float::max`] of lower and upper half until one lane is left; a NaN may be lost.
    fn largest_f(value: Self::F) -> f32;
    /// Bit j tells whether lane j holds.
    fn mask_bits(mask: Self::M) -> u32;
    /// Writes the lanes where `mask` holds to their places among the first `WIDTH`; the others keep what they held.
    fn store_where(value: Self::I, mask: Self::M, words: &mut [i32]);
    /// The same for f32 lanes.
    fn store_f_where(value: Self::F, mask: Self::M, out: &mut [f32]);
    /// Writes the lanes whose bit is set, packed, to the front of `out` and tells how many they are; of the rest of the
    /// first `WIDTH` places it may change any. Without a branch: which lanes are set is anyone's guess.
    #[inline(always)]
    fn store_packed(value: Self::I, bits: u32, out: &mut [i32]) -> usize {
        let mut words = [0; 16];
        Self::store(value, &mut words);
        let out = &mut out[..Self::WIDTH];
        let mut count = 0;
        for (lane, &word) in words[..Self::WIDTH].iter().enumerate() {
            out[count.min(lane)] = word;
            count += (bits >> lane & 1) as usize;
        }
        count
    }
    /// Writes 1 or 0 to the first `WIDTH` places.
    fn store_mask(mask: Self::M, out: &mut [u8]);
    /// Writes columns as rows: `out[lane * columns.len() + c] = columns[c][lane]`. `out` holds exactly `WIDTH` rows.
    #[inline(always)]
    fn store_rows(columns: &[Self::F], out: &mut [f32]) {
        store_rows_by_element::<Self>(columns, out);
    }
}

/// [`Simd::store_rows`] without knowing the registers.
#[inline(always)]
fn store_rows_by_element<L: Simd>(columns: &[L::F], out: &mut [f32]) {
    let mut column = [0.0; 16];
    for (c, &value) in columns.iter().enumerate() {
        L::store_f(value, &mut column);
        for (row, &x) in out.chunks_exact_mut(columns.len()).zip(&column[..L::WIDTH]) {
            row[c] = x;
        }
    }
}
