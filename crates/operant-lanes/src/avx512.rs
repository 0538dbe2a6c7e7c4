//! Sixteen lanes in AVX-512 registers. `FUSE` is the fast mode: `mul_add` rounds once, `reciprocal` and `rsqrt` are approximate.
//!
//! `dispatch` alone names these types, and only after asking the CPU, so no value of them exists on a CPU without the
//! instructions. Every function is inlined into a `#[target_feature]` body there: that is for speed.
#![allow(unsafe_code)]

use super::{Float, Int, Lanes, Mask, Select, Simd, math, tanh_table};
use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512<const FUSE: bool>;

#[derive(Clone, Copy, Debug)]
pub(super) struct F<const FUSE: bool>(__m512);

#[derive(Clone, Copy, Debug)]
pub(super) struct I<const FUSE: bool>(__m512i);

#[derive(Clone, Copy, Debug)]
pub(super) struct M(__mmask16);

impl<const FUSE: bool> Lanes for Avx512<FUSE> {
    type F = F<FUSE>;
    type I = I<FUSE>;
    type M = M;
}

/// Runs an intrinsic.
macro_rules! simd {
    ($e:expr) => {
        // SAFETY: values of these types are made only by a kernel that a `Backend` runs, and a `Backend` of AVX-512 is made only
        // after the CPU was found to have it; pointers in `$e` come from slices whose length was checked just before, or is what
        // the mask of the access was made from.
        unsafe { $e }
    };
}

macro_rules! operators {
    ($lanes:ident, $scalar:ty, $set:ident, $blend:ident, $($trait:ident $method:ident $op:ident),+) => {
        impl<const FUSE: bool> From<$scalar> for $lanes<FUSE> {
            #[inline(always)]
            fn from(value: $scalar) -> Self {
                Self(simd!($set(value)))
            }
        }
        impl<const FUSE: bool> Select<M> for $lanes<FUSE> {
            #[inline(always)]
            fn select(mask: M, yes: Self, no: Self) -> Self {
                Self(simd!($blend(mask.0, no.0, yes.0)))
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
    F, f32, _mm512_set1_ps, _mm512_mask_blend_ps,
    Add add _mm512_add_ps, Sub sub _mm512_sub_ps, Mul mul _mm512_mul_ps, Div div _mm512_div_ps
);
operators!(
    I, i32, _mm512_set1_epi32, _mm512_mask_blend_epi32,
    Add add _mm512_add_epi32, Sub sub _mm512_sub_epi32, Mul mul _mm512_mullo_epi32,
    BitAnd bitand _mm512_and_si512, BitOr bitor _mm512_or_si512, BitXor bitxor _mm512_xor_si512
);

impl<const FUSE: bool> Neg for F<FUSE> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self::from_bits(self.bits() ^ i32::MIN)
    }
}

impl<const FUSE: bool> Float for F<FUSE> {
    type L = Avx512<FUSE>;

    #[inline(always)]
    fn lt(self, other: impl Into<Self>) -> M {
        M(simd!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.into().0)))
    }
    #[inline(always)]
    fn le(self, other: impl Into<Self>) -> M {
        M(simd!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, other.into().0)))
    }
    #[inline(always)]
    fn eq(self, other: impl Into<Self>) -> M {
        M(simd!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, other.into().0)))
    }
    #[inline(always)]
    fn min(self, other: impl Into<Self>) -> Self {
        Self(simd!(_mm512_min_ps(self.0, other.into().0)))
    }
    #[inline(always)]
    fn max(self, other: impl Into<Self>) -> Self {
        Self(simd!(_mm512_max_ps(self.0, other.into().0)))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self(simd!(_mm512_abs_ps(self.0)))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(simd!(_mm512_sqrt_ps(self.0)))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        Self(simd!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(self.0)))
    }
    #[inline(always)]
    fn round(self) -> Self {
        Self(simd!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)))
    }
    #[inline(always)]
    fn mul_add(self, factor: impl Into<Self>, addend: impl Into<Self>) -> Self {
        if FUSE {
            Self(simd!(_mm512_fmadd_ps(self.0, factor.into().0, addend.into().0)))
        } else {
            self * factor.into() + addend.into()
        }
    }
    /// Fast mode: 14 bits from a table and a Newton step, which is left out where it would make a NaN of 0 or infinity.
    #[inline(always)]
    fn reciprocal(self) -> Self {
        if !FUSE {
            return Self::from(1.0) / self;
        }
        simd!({
            let y = _mm512_rcp14_ps(self.0);
            let error = _mm512_fnmadd_ps(self.0, y, _mm512_set1_ps(1.0));
            let sound = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(error, _mm512_set1_ps(-1.0));
            Self(_mm512_mask_fmadd_ps(y, sound, error, y))
        })
    }
    /// Fast mode: 14 bits from a table.
    #[inline(always)]
    fn reciprocal_coarse(self) -> Self {
        if FUSE { Self(simd!(_mm512_rcp14_ps(self.0))) } else { Self::from(1.0) / self }
    }
    /// Fast mode: 14 bits from a table, then one step of Newton's. The divider takes 16 cycles, this 3.
    #[inline(always)]
    fn over(self, divisor: Self) -> Self {
        if !FUSE {
            return self / divisor;
        }
        simd!({
            let r = _mm512_rcp14_ps(divisor.0);
            let quotient = _mm512_mul_ps(self.0, r);
            let error = _mm512_fnmadd_ps(divisor.0, r, _mm512_set1_ps(1.0));
            Self(_mm512_fmadd_ps(quotient, error, quotient))
        })
    }
    /// Fast mode: as [`reciprocal`](Float::reciprocal).
    #[inline(always)]
    fn rsqrt(self) -> Self {
        if !FUSE {
            return Self::from(1.0) / self.sqrt();
        }
        simd!({
            let y = _mm512_rsqrt14_ps(self.0);
            let half = _mm512_mul_ps(y, _mm512_set1_ps(0.5));
            let error = _mm512_fnmadd_ps(_mm512_mul_ps(self.0, y), y, _mm512_set1_ps(1.0));
            let sound = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(error, _mm512_set1_ps(-1.0));
            Self(_mm512_mask3_fmadd_ps(half, error, y, sound))
        })
    }
    /// Fast mode: by segments.
    #[inline(always)]
    fn tanh_fast(self) -> Self {
        if FUSE {
            self.by_segment(&tanh_table::FAST, tanh_table::FAST_WIDTH)
        } else {
            math::tanh_fast::<Avx512<FUSE>>(self)
        }
    }
    /// Fast mode: by segments.
    #[inline(always)]
    fn tanh_coarse(self) -> Self {
        if FUSE {
            self.by_segment(&tanh_table::COARSE, tanh_table::COARSE_WIDTH)
        } else {
            math::tanh_coarse::<Avx512<FUSE>>(self)
        }
    }
    #[inline(always)]
    fn to_int(self) -> I<FUSE> {
        I(simd!(_mm512_cvttps_epi32(self.0)))
    }
    #[inline(always)]
    fn bits(self) -> I<FUSE> {
        I(simd!(_mm512_castps_si512(self.0)))
    }
    #[inline(always)]
    fn from_bits(bits: I<FUSE>) -> Self {
        Self(simd!(_mm512_castsi512_ps(bits.0)))
    }
}

/// The entries of a table that the lowest five bits of each lane name.
#[inline(always)]
fn entry(table: &[f32; 32], index: __m512i) -> __m512 {
    let (low, high) = table.split_at(16);
    simd!(_mm512_permutex2var_ps(_mm512_loadu_ps(low.as_ptr()), index, _mm512_loadu_ps(high.as_ptr())))
}

impl<const FUSE: bool> F<FUSE> {
    /// An odd function that is constant from segment 31 on, as polynomials in |x|; `coefficients[j][s]` is that of |x|ʲ in the segment
    /// around `s · width`.
    #[inline(always)]
    fn by_segment<const N: usize>(self, coefficients: &[[f32; 32]; N], width: f32) -> Self {
        /// Added to a number below 2²², leaves its nearest integer in the lowest bits.
        const SHIFT: f32 = 8_388_608.0;
        simd!({
            // The minimum is the second operand where that is NaN.
            let x = _mm512_min_ps(_mm512_set1_ps(31.49 * width), _mm512_abs_ps(self.0));
            let segment = _mm512_fmadd_ps(x, _mm512_set1_ps(1.0 / width), _mm512_set1_ps(SHIFT));
            let segment = _mm512_castps_si512(segment);
            let mut y = entry(&coefficients[N - 1], segment);
            let mut j = N - 1;
            while j > 0 {
                j -= 1;
                y = _mm512_fmadd_ps(y, x, entry(&coefficients[j], segment));
            }
            let sign = _mm512_and_si512(_mm512_castps_si512(self.0), _mm512_set1_epi32(i32::MIN));
            Self(_mm512_castsi512_ps(_mm512_or_si512(sign, _mm512_castps_si512(y))))
        })
    }
}

impl<const FUSE: bool> Int for I<FUSE> {
    type L = Avx512<FUSE>;

    #[inline(always)]
    fn eq(self, other: impl Into<Self>) -> M {
        M(simd!(_mm512_cmpeq_epi32_mask(self.0, other.into().0)))
    }
    #[inline(always)]
    fn lt(self, other: impl Into<Self>) -> M {
        M(simd!(_mm512_cmplt_epi32_mask(self.0, other.into().0)))
    }
    #[inline(always)]
    fn shl(self, count: u32) -> Self {
        Self(simd!(_mm512_sll_epi32(self.0, _mm_cvtsi32_si128(count as i32))))
    }
    #[inline(always)]
    fn shr(self, count: u32) -> Self {
        Self(simd!(_mm512_srl_epi32(self.0, _mm_cvtsi32_si128(count as i32))))
    }
    // The compiler would make one shuffle of this, which takes three times as long.
    #[inline(always)]
    fn join_upper(self, other: Self) -> Self {
        const EITHER_OR_MASKED: i32 = 0xF8;
        let mask = Self::from(0xffff_0000_u32 as i32);
        Self(simd!(_mm512_ternarylogic_epi32::<EITHER_OR_MASKED>(self.shr(16).0, other.0, mask.0)))
    }
    #[inline(always)]
    fn sar(self, count: u32) -> Self {
        Self(simd!(_mm512_sra_epi32(self.0, _mm_cvtsi32_si128(count as i32))))
    }
    #[inline(always)]
    fn mul_wide(self, other: impl Into<Self>) -> (Self, Self) {
        let other = other.into();
        simd!({
            let even = _mm512_mul_epu32(self.0, other.0);
            // Shuffles rather than shifts, which would wait for the port that multiplies.
            const FROM_ODD: i32 = 0b11_11_01_01;
            const FROM_EVEN: i32 = 0b10_10_00_00;
            let (a, b) = (_mm512_shuffle_epi32::<FROM_ODD>(self.0), _mm512_shuffle_epi32::<FROM_ODD>(other.0));
            let odd = _mm512_mul_epu32(a, b);
            let high = _mm512_mask_shuffle_epi32::<FROM_ODD>(odd, 0x5555, even);
            let low = _mm512_mask_shuffle_epi32::<FROM_EVEN>(even, 0xaaaa, odd);
            (Self(high), Self(low))
        })
    }
    #[inline(always)]
    fn to_float(self) -> F<FUSE> {
        F(simd!(_mm512_cvtepi32_ps(self.0)))
    }
    #[inline(always)]
    fn lookup(self, table: &'static [i32]) -> Self {
        assert!(!table.is_empty(), "an empty table has no entries");
        let last = Self::from(table.len() as i32 - 1);
        simd!({
            let index = _mm512_min_epu32(self.0, last.0);
            if table.len() <= 16 {
                let mask = ((1u32 << table.len()) - 1) as u16;
                Self(_mm512_permutexvar_epi32(index, _mm512_maskz_loadu_epi32(mask, table.as_ptr())))
            } else {
                Self(_mm512_i32gather_epi32::<4>(index, table.as_ptr()))
            }
        })
    }
    #[inline(always)]
    fn lookup_f(self, table: &'static [f32]) -> F<FUSE> {
        assert!(!table.is_empty(), "an empty table has no entries");
        let last = Self::from(table.len() as i32 - 1);
        simd!({
            let index = _mm512_min_epu32(self.0, last.0);
            if table.len() <= 16 {
                let mask = ((1u32 << table.len()) - 1) as u16;
                F(_mm512_permutexvar_ps(index, _mm512_maskz_loadu_ps(mask, table.as_ptr())))
            } else {
                F(_mm512_i32gather_ps::<4>(index, table.as_ptr()))
            }
        })
    }
}

impl Mask for M {
    #[inline(always)]
    fn splat(value: bool) -> Self {
        Self(if value { 0xffff } else { 0 })
    }
}

macro_rules! mask_operators {
    ($($trait:ident $method:ident $op:tt),+) => {$(
        impl $trait for M {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(self.0 $op other.0)
            }
        }
    )+};
}
mask_operators!(BitAnd bitand &, BitOr bitor |, BitXor bitxor ^);

impl Not for M {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// The mask of the first `count` lanes: of all if there are more.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    ((1u32 << count.min(16)) - 1) as u16
}

impl<const FUSE: bool> Simd for Avx512<FUSE> {
    const WIDTH: usize = 16;

    #[inline(always)]
    fn load(words: &[i32]) -> I<FUSE> {
        let words = &words[..16];
        I(simd!(_mm512_loadu_si512(words.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_part(words: &[i32]) -> I<FUSE> {
        I(simd!(_mm512_maskz_loadu_epi32(first(words.len()), words.as_ptr())))
    }
    #[inline(always)]
    fn load_f(x: &[f32]) -> F<FUSE> {
        let x = &x[..16];
        F(simd!(_mm512_loadu_ps(x.as_ptr())))
    }
    #[inline(always)]
    fn load_f_part(x: &[f32]) -> F<FUSE> {
        F(simd!(_mm512_maskz_loadu_ps(first(x.len()), x.as_ptr())))
    }
    /// Up to 8 numbers apart by permutations of whole registers: losses of two numbers a row take 0.55 µs for 128 rows, 0.7 by gathers.
    #[inline(always)]
    fn load_strided(x: &[f32], stride: usize) -> F<FUSE> {
        let x = &x[..15 * stride + 1];
        // Places are i32.
        assert!(stride <= i32::MAX as usize / 16);
        simd!({
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let places = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(stride as i32));
            if stride == 0 || stride > 8 {
                return F(_mm512_i32gather_ps::<4>(places, x.as_ptr()));
            }
            let pair_of = _mm512_srli_epi32::<5>(places);
            let mut column = _mm512_setzero_ps();
            for (pair, x) in x.chunks(32).enumerate() {
                // A permutation of two registers looks at five bits of a place.
                let (low, high) = (Self::load_f_part(x).0, Self::load_f_part(&x[16.min(x.len())..]).0);
                let here = _mm512_cmpeq_epi32_mask(pair_of, _mm512_set1_epi32(pair as i32));
                column = _mm512_mask_mov_ps(column, here, _mm512_permutex2var_ps(low, places, high));
            }
            F(column)
        })
    }
    #[inline(always)]
    fn store(value: I<FUSE>, words: &mut [i32]) {
        let words = &mut words[..16];
        simd!(_mm512_storeu_si512(words.as_mut_ptr().cast(), value.0));
    }
    #[inline(always)]
    fn store_f(value: F<FUSE>, out: &mut [f32]) {
        let out = &mut out[..16];
        simd!(_mm512_storeu_ps(out.as_mut_ptr(), value.0));
    }
    #[inline(always)]
    fn store_f_part(value: F<FUSE>, out: &mut [f32]) {
        simd!(_mm512_mask_storeu_ps(out.as_mut_ptr(), first(out.len()), value.0));
    }
    #[inline(always)]
    fn sum_f(value: F<FUSE>) -> f32 {
        simd!({
            let x = _mm256_add_ps(_mm512_castps512_ps256(value.0), _mm512_extractf32x8_ps::<1>(value.0));
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        })
    }
    #[inline(always)]
    fn four_sums_f([a, b, c, d]: [F<FUSE>; 4]) -> [f32; 4] {
        simd!({
            let ab = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a.0, b.0), _mm512_shuffle_f32x4::<0xEE>(a.0, b.0));
            let cd = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(c.0, d.0), _mm512_shuffle_f32x4::<0xEE>(c.0, d.0));
            let x = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xDD>(ab, cd));
            let x = _mm512_add_ps(x, _mm512_permute_ps::<0x4E>(x));
            let x = _mm512_add_ps(x, _mm512_movehdup_ps(x));
            let x = _mm512_maskz_compress_ps(0x1111, x);
            let mut sums = [0.0; 4];
            _mm_storeu_ps(sums.as_mut_ptr(), _mm512_castps512_ps128(x));
            sums
        })
    }
    #[inline(always)]
    fn largest_f(value: F<FUSE>) -> f32 {
        simd!({
            let x = _mm256_max_ps(_mm512_castps512_ps256(value.0), _mm512_extractf32x8_ps::<1>(value.0));
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        })
    }
    #[inline(always)]
    fn store_where(value: I<FUSE>, mask: M, words: &mut [i32]) {
        let words = &mut words[..16];
        simd!(_mm512_mask_storeu_epi32(words.as_mut_ptr(), mask.0, value.0));
    }
    #[inline(always)]
    fn store_f_where(value: F<FUSE>, mask: M, out: &mut [f32]) {
        let out = &mut out[..16];
        simd!(_mm512_mask_storeu_ps(out.as_mut_ptr(), mask.0, value.0));
    }
    #[inline(always)]
    fn mask_bits(mask: M) -> u32 {
        u32::from(mask.0)
    }
    #[inline(always)]
    fn store_packed(value: I<FUSE>, bits: u32, out: &mut [i32]) -> usize {
        let out = &mut out[..16];
        simd!({
            let packed = _mm512_maskz_compress_epi32(bits as u16, value.0);
            _mm512_storeu_si512(out.as_mut_ptr().cast(), packed);
        });
        bits.count_ones() as usize
    }
    #[inline(always)]
    fn store_mask(mask: M, out: &mut [u8]) {
        let out = &mut out[..16];
        simd!(_mm_storeu_si128(out.as_mut_ptr().cast(), _mm_maskz_set1_epi8(mask.0, 1)));
    }
    /// Rows of up to 8 columns are assembled in registers: scalar stores would cost more than a CartPole step. Wider ones are
    /// transposed 16 columns at a time.
    #[inline(always)]
    fn store_rows(columns: &[F<FUSE>], out: &mut [f32]) {
        let width = columns.len();
        let out = &mut out[..16 * width];
        if width == 1 {
            return Self::store_f(columns[0], out);
        }
        if width > 8 {
            for (chunk, columns) in columns.chunks(16).enumerate() {
                let mut tile = [F::from(0.0); 16];
                tile[..columns.len()].copy_from_slice(columns);
                let tile = transposed::<FUSE>(&tile);
                let kept = M(((1u32 << columns.len()) - 1) as u16);
                for (lane, row) in tile.iter().enumerate() {
                    let place = &mut out[lane * width + 16 * chunk..][..columns.len()];
                    // SAFETY: as in `simd!`; the mask keeps to the `columns.len()` places of the row.
                    unsafe { _mm512_mask_storeu_ps(place.as_mut_ptr(), kept.0, row.0) };
                }
            }
            return;
        }
        for (v, part) in out.chunks_exact_mut(16).enumerate() {
            // Output place p = 16·v + i holds lane p / width of column p % width; two columns come by one permutation.
            let plan = &ROW_PLANS[width - 2][v];
            simd!({
                let lane = _mm512_load_si512(plan.lane.as_ptr().cast());
                let mut row = _mm512_permutex2var_ps(columns[0].0, lane, columns[1].0);
                for (pair, columns) in columns.chunks(2).enumerate().skip(1) {
                    let next = match *columns {
                        [a, b] => _mm512_permutex2var_ps(a.0, lane, b.0),
                        _ => _mm512_permutexvar_ps(lane, columns[0].0),
                    };
                    row = _mm512_mask_blend_ps(plan.from[pair], row, next);
                }
                _mm512_storeu_ps(part.as_mut_ptr(), row);
            });
        }
    }
}

/// Lane i of number j becomes lane j of number i.
#[inline(always)]
fn transposed<const FUSE: bool>(x: &[F<FUSE>; 16]) -> [F<FUSE>; 16] {
    let (mut pairs, mut fours, mut all) = (*x, *x, *x);
    simd!({
        for i in (0..16).step_by(2) {
            pairs[i] = F(_mm512_unpacklo_ps(x[i].0, x[i + 1].0));
            pairs[i + 1] = F(_mm512_unpackhi_ps(x[i].0, x[i + 1].0));
        }
        for i in (0..16).step_by(4) {
            for j in 0..2 {
                let (a, b) = (_mm512_castps_pd(pairs[i + j].0), _mm512_castps_pd(pairs[i + j + 2].0));
                fours[i + 2 * j] = F(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)));
                fours[i + 2 * j + 1] = F(_mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
            }
        }
        // Quarter q of `fours[4 · i + j]` holds lane 4 · q + j of numbers 4 · i to 4 · i + 3.
        for j in 0..4 {
            let (a, b, c, d) = (fours[j].0, fours[4 + j].0, fours[8 + j].0, fours[12 + j].0);
            let even = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d));
            let odd = (_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d));
            all[j] = F(_mm512_shuffle_f32x4::<0x88>(even.0, even.1));
            all[4 + j] = F(_mm512_shuffle_f32x4::<0x88>(odd.0, odd.1));
            all[8 + j] = F(_mm512_shuffle_f32x4::<0xdd>(even.0, even.1));
            all[12 + j] = F(_mm512_shuffle_f32x4::<0xdd>(odd.0, odd.1));
        }
    });
    all
}

/// How 16 consecutive places of a row-major block are fed from pairs of its columns.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct RowPlan {
    /// Lane, and 16 more if it is the second column of its pair.
    lane: [i32; 16],
    /// Which places each pair feeds.
    from: [u16; 4],
}

/// `ROW_PLANS[width - 2][v]` for rows of 2 to 8 columns.
static ROW_PLANS: [[RowPlan; 8]; 7] = {
    let mut plans = [[RowPlan { lane: [0; 16], from: [0; 4] }; 8]; 7];
    let mut width = 2;
    while width <= 8 {
        let mut place = 0;
        while place < 16 * width {
            let plan = &mut plans[width - 2][place / 16];
            let column = place % width;
            plan.lane[place % 16] = (place / width + column % 2 * 16) as i32;
            plan.from[column / 2] |= 1 << (place % 16);
            place += 1;
        }
        width += 1;
    }
    plans
};
