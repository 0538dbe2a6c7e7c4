//! Eight lanes in AVX2 registers. `FUSE` is the fast mode: `mul_add` rounds once, `reciprocal` and `rsqrt` are approximate.
//!
//! `dispatch` alone names these types, and only after asking the CPU, so no value of them exists on a CPU without the
//! instructions. Every function is inlined into a `#[target_feature]` body there: that is for speed.
#![allow(unsafe_code)]

use super::{Float, Int, Lanes, Mask, Select, Simd, store_rows_by_element};
use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2<const FUSE: bool>;

#[derive(Clone, Copy, Debug)]
pub(super) struct F<const FUSE: bool>(__m256);

#[derive(Clone, Copy, Debug)]
pub(super) struct I<const FUSE: bool>(__m256i);

/// All ones or all zeros in every lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct M(__m256i);

impl<const FUSE: bool> Lanes for Avx2<FUSE> {
    type F = F<FUSE>;
    type I = I<FUSE>;
    type M = M;
}

/// Runs an intrinsic.
macro_rules! simd {
    ($e:expr) => {
        // SAFETY: values of these types are made only by a kernel that a `Backend` runs, and a `Backend` of AVX2 is made only
        // after the CPU was found to have it; pointers in `$e` come from slices whose length was checked just before, or is what
        // the mask of the access was made from.
        unsafe { $e }
    };
}

macro_rules! operators {
    ($lanes:ident, $scalar:ty, $set:ident, $($trait:ident $method:ident $op:ident),+) => {
        impl<const FUSE: bool> From<$scalar> for $lanes<FUSE> {
            #[inline(always)]
            fn from(value: $scalar) -> Self {
                Self(simd!($set(value)))
            }
        }
        $(
            impl<const FUSE: bool> $trait for $lanes<FUSE> {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    Self(simd!($op(self.0, other.0)))
                }
            }
            impl<const FUSE: bool> $trait<$scalar> for $lanes<FUSE> {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: $scalar) -> Self {
                    $trait::$method(self, Self::from(other))
                }
            }
        )+
    };
}

operators!(
    F, f32, _mm256_set1_ps,
    Add add _mm256_add_ps, Sub sub _mm256_sub_ps, Mul mul _mm256_mul_ps, Div div _mm256_div_ps
);
operators!(
    I, i32, _mm256_set1_epi32,
    Add add _mm256_add_epi32, Sub sub _mm256_sub_epi32, Mul mul _mm256_mullo_epi32,
    BitAnd bitand _mm256_and_si256, BitOr bitor _mm256_or_si256, BitXor bitxor _mm256_xor_si256
);

impl<const FUSE: bool> Select<M> for F<FUSE> {
    #[inline(always)]
    fn select(mask: M, yes: Self, no: Self) -> Self {
        Self(simd!(_mm256_blendv_ps(no.0, yes.0, _mm256_castsi256_ps(mask.0))))
    }
}

impl<const FUSE: bool> Select<M> for I<FUSE> {
    #[inline(always)]
    fn select(mask: M, yes: Self, no: Self) -> Self {
        Self(simd!(_mm256_blendv_epi8(no.0, yes.0, mask.0)))
    }
}

impl<const FUSE: bool> Neg for F<FUSE> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self::from_bits(self.bits() ^ i32::MIN)
    }
}

impl<const FUSE: bool> F<FUSE> {
    #[inline(always)]
    fn compare<const HOW: i32>(self, other: impl Into<Self>) -> M {
        M(simd!(_mm256_castps_si256(_mm256_cmp_ps::<HOW>(self.0, other.into().0))))
    }
}

impl<const FUSE: bool> Float for F<FUSE> {
    type L = Avx2<FUSE>;

    #[inline(always)]
    fn lt(self, other: impl Into<Self>) -> M {
        self.compare::<_CMP_LT_OQ>(other)
    }
    #[inline(always)]
    fn le(self, other: impl Into<Self>) -> M {
        self.compare::<_CMP_LE_OQ>(other)
    }
    #[inline(always)]
    fn eq(self, other: impl Into<Self>) -> M {
        self.compare::<_CMP_EQ_OQ>(other)
    }
    #[inline(always)]
    fn min(self, other: impl Into<Self>) -> Self {
        Self(simd!(_mm256_min_ps(self.0, other.into().0)))
    }
    #[inline(always)]
    fn max(self, other: impl Into<Self>) -> Self {
        Self(simd!(_mm256_max_ps(self.0, other.into().0)))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self::from_bits(self.bits() & i32::MAX)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(simd!(_mm256_sqrt_ps(self.0)))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        Self(simd!(_mm256_round_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(self.0)))
    }
    #[inline(always)]
    fn round(self) -> Self {
        Self(simd!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)))
    }
    #[inline(always)]
    fn mul_add(self, factor: impl Into<Self>, addend: impl Into<Self>) -> Self {
        if FUSE {
            Self(simd!(_mm256_fmadd_ps(self.0, factor.into().0, addend.into().0)))
        } else {
            self * factor.into() + addend.into()
        }
    }
    /// Fast mode: 12 bits from a table and a Newton step, which is left out where it would make a NaN of 0 or infinity.
    #[inline(always)]
    fn reciprocal(self) -> Self {
        if !FUSE {
            return Self::from(1.0) / self;
        }
        let y = Self(simd!(_mm256_rcp_ps(self.0)));
        let error = Self(simd!(_mm256_fnmadd_ps(self.0, y.0, _mm256_set1_ps(1.0))));
        Self::select(error.ge(-1.0), y.mul_add(error, y), y)
    }
    /// Fast mode: as [`reciprocal`](Float::reciprocal).
    #[inline(always)]
    fn rsqrt(self) -> Self {
        if !FUSE {
            return Self::from(1.0) / self.sqrt();
        }
        let y = Self(simd!(_mm256_rsqrt_ps(self.0)));
        let error = Self(simd!(_mm256_fnmadd_ps((self * y).0, y.0, _mm256_set1_ps(1.0))));
        Self::select(error.ge(-1.0), (y * 0.5).mul_add(error, y), y)
    }
    #[inline(always)]
    fn to_int(self) -> I<FUSE> {
        I(simd!(_mm256_cvttps_epi32(self.0)))
    }
    #[inline(always)]
    fn bits(self) -> I<FUSE> {
        I(simd!(_mm256_castps_si256(self.0)))
    }
    #[inline(always)]
    fn from_bits(bits: I<FUSE>) -> Self {
        Self(simd!(_mm256_castsi256_ps(bits.0)))
    }
}

impl<const FUSE: bool> Int for I<FUSE> {
    type L = Avx2<FUSE>;

    #[inline(always)]
    fn eq(self, other: impl Into<Self>) -> M {
        M(simd!(_mm256_cmpeq_epi32(self.0, other.into().0)))
    }
    #[inline(always)]
    fn lt(self, other: impl Into<Self>) -> M {
        M(simd!(_mm256_cmpgt_epi32(other.into().0, self.0)))
    }
    #[inline(always)]
    fn shl(self, count: u32) -> Self {
        Self(simd!(_mm256_sll_epi32(self.0, _mm_cvtsi32_si128(count as i32))))
    }
    #[inline(always)]
    fn shr(self, count: u32) -> Self {
        Self(simd!(_mm256_srl_epi32(self.0, _mm_cvtsi32_si128(count as i32))))
    }
    #[inline(always)]
    fn sar(self, count: u32) -> Self {
        Self(simd!(_mm256_sra_epi32(self.0, _mm_cvtsi32_si128(count as i32))))
    }
    #[inline(always)]
    fn mul_wide(self, other: impl Into<Self>) -> (Self, Self) {
        let other = other.into();
        simd!({
            let even = _mm256_mul_epu32(self.0, other.0);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(self.0), _mm256_srli_epi64::<32>(other.0));
            let high = _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(even), odd);
            let low = _mm256_blend_epi32::<0xaa>(even, _mm256_slli_epi64::<32>(odd));
            (Self(high), Self(low))
        })
    }
    #[inline(always)]
    fn to_float(self) -> F<FUSE> {
        F(simd!(_mm256_cvtepi32_ps(self.0)))
    }
    #[inline(always)]
    fn lookup(self, table: &'static [i32]) -> Self {
        assert!(!table.is_empty(), "an empty table has no entries");
        let last = Self::from(table.len() as i32 - 1);
        Self(simd!(_mm256_i32gather_epi32::<4>(table.as_ptr(), _mm256_min_epu32(self.0, last.0))))
    }
    #[inline(always)]
    fn lookup_f(self, table: &'static [f32]) -> F<FUSE> {
        assert!(!table.is_empty(), "an empty table has no entries");
        let last = Self::from(table.len() as i32 - 1);
        F(simd!(_mm256_i32gather_ps::<4>(table.as_ptr(), _mm256_min_epu32(self.0, last.0))))
    }
}

impl Mask for M {
    #[inline(always)]
    fn splat(value: bool) -> Self {
        Self(simd!(_mm256_set1_epi32(-i32::from(value))))
    }
}

macro_rules! mask_operators {
    ($($trait:ident $method:ident $op:ident),+) => {$(
        impl $trait for M {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(simd!($op(self.0, other.0)))
            }
        }
    )+};
}
mask_operators!(BitAnd bitand _mm256_and_si256, BitOr bitor _mm256_or_si256, BitXor bitxor _mm256_xor_si256);

impl Not for M {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        self ^ Self::splat(true)
    }
}

/// The mask of the first `count` lanes: of all if there are more.
#[inline(always)]
fn first(count: usize) -> __m256i {
    simd!(_mm256_cmpgt_epi32(_mm256_set1_epi32(count.min(8) as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)))
}

impl<const FUSE: bool> Simd for Avx2<FUSE> {
    const WIDTH: usize = 8;

    #[inline(always)]
    fn load(words: &[i32]) -> I<FUSE> {
        let words = &words[..8];
        I(simd!(_mm256_loadu_si256(words.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_part(words: &[i32]) -> I<FUSE> {
        I(simd!(_mm256_maskload_epi32(words.as_ptr(), first(words.len()))))
    }
    #[inline(always)]
    fn load_f(x: &[f32]) -> F<FUSE> {
        let x = &x[..8];
        F(simd!(_mm256_loadu_ps(x.as_ptr())))
    }
    #[inline(always)]
    fn load_f_part(x: &[f32]) -> F<FUSE> {
        F(simd!(_mm256_maskload_ps(x.as_ptr(), first(x.len()))))
    }
    #[inline(always)]
    fn store(value: I<FUSE>, words: &mut [i32]) {
        let words = &mut words[..8];
        simd!(_mm256_storeu_si256(words.as_mut_ptr().cast(), value.0));
    }
    #[inline(always)]
    fn store_f(value: F<FUSE>, out: &mut [f32]) {
        let out = &mut out[..8];
        simd!(_mm256_storeu_ps(out.as_mut_ptr(), value.0));
    }
    #[inline(always)]
    fn store_f_part(value: F<FUSE>, out: &mut [f32]) {
        simd!(_mm256_maskstore_ps(out.as_mut_ptr(), first(out.len()), value.0));
    }
    #[inline(always)]
    fn sum_f(value: F<FUSE>) -> f32 {
        simd!({
            let x = _mm_add_ps(_mm256_castps256_ps128(value.0), _mm256_extractf128_ps::<1>(value.0));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        })
    }
    #[inline(always)]
    fn largest_f(value: F<FUSE>) -> f32 {
        simd!({
            let x = _mm_max_ps(_mm256_castps256_ps128(value.0), _mm256_extractf128_ps::<1>(value.0));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        })
    }
    #[inline(always)]
    fn store_where(value: I<FUSE>, mask: M, words: &mut [i32]) {
        let words = &mut words[..8];
        simd!(_mm256_maskstore_epi32(words.as_mut_ptr(), mask.0, value.0));
    }
    #[inline(always)]
    fn store_f_where(value: F<FUSE>, mask: M, out: &mut [f32]) {
        let out = &mut out[..8];
        simd!(_mm256_maskstore_ps(out.as_mut_ptr(), mask.0, value.0));
    }
    #[inline(always)]
    fn mask_bits(mask: M) -> u32 {
        simd!(_mm256_movemask_ps(_mm256_castsi256_ps(mask.0))) as u32
    }
    #[inline(always)]
    fn store_mask(mask: M, out: &mut [u8]) {
        let out = &mut out[..8];
        // Eight 32-bit lanes of 0 or −1 narrow to bytes without losing the sign; −(−1) = 1.
        simd!({
            let words = _mm_packs_epi32(_mm256_castsi256_si128(mask.0), _mm256_extracti128_si256::<1>(mask.0));
            let bytes = _mm_abs_epi8(_mm_packs_epi16(words, words));
            _mm_storel_epi64(out.as_mut_ptr().cast(), bytes);
        });
    }
    /// Rows of four columns are assembled in registers: scalar stores would cost more than a CartPole step.
    #[inline(always)]
    fn store_rows(columns: &[F<FUSE>], out: &mut [f32]) {
        let out = &mut out[..8 * columns.len()];
        match *columns {
            [a, b] => simd!({
                let (low, high) = (_mm256_unpacklo_ps(a.0, b.0), _mm256_unpackhi_ps(a.0, b.0));
                _mm256_storeu_ps(out.as_mut_ptr(), _mm256_permute2f128_ps::<0x20>(low, high));
                _mm256_storeu_ps(out.as_mut_ptr().add(8), _mm256_permute2f128_ps::<0x31>(low, high));
            }),
            [a, b, c, d] => simd!({
                let (ab0, ab1) = (_mm256_unpacklo_ps(a.0, b.0), _mm256_unpackhi_ps(a.0, b.0));
                let (cd0, cd1) = (_mm256_unpacklo_ps(c.0, d.0), _mm256_unpackhi_ps(c.0, d.0));
                let r04 = _mm256_shuffle_ps::<0x44>(ab0, cd0);
                let r15 = _mm256_shuffle_ps::<0xee>(ab0, cd0);
                let r26 = _mm256_shuffle_ps::<0x44>(ab1, cd1);
                let r37 = _mm256_shuffle_ps::<0xee>(ab1, cd1);
                let p = out.as_mut_ptr();
                _mm256_storeu_ps(p, _mm256_permute2f128_ps::<0x20>(r04, r15));
                _mm256_storeu_ps(p.add(8), _mm256_permute2f128_ps::<0x20>(r26, r37));
                _mm256_storeu_ps(p.add(16), _mm256_permute2f128_ps::<0x31>(r04, r15));
                _mm256_storeu_ps(p.add(24), _mm256_permute2f128_ps::<0x31>(r26, r37));
            }),
            _ => store_rows_by_element::<Self>(columns, out),
        }
    }
}
