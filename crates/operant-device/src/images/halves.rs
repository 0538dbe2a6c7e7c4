//! Convolutions of three channels to eight under kernels of 3×3, whose results fill half a register: rows of an image's upper
//! and lower half are taken side by side, the upper in even lanes, the lower in odd ones. So no term is left over, as nine
//! numbers of a kernel's row leave one, and pairs of numbers are read as one.
#![allow(unsafe_code)]

use super::LINE;
use operant_lanes::{Backend, Isa};
use std::arch::x86_64::*;
use std::ops::Range;

/// Numbers of a pixel, of a result, of a kernel.
const IN: usize = 3;
const OUT: usize = 8;
const TERMS: usize = 9 * IN;
/// Pixels whose sums are made together.
const BLOCK: usize = 16;
/// Rows whose gradients are brought side by side before they are used.
const ROWS: usize = 4;
/// Numbers of [`Halves::spread`] weights and of [`Halves::weight`] sums: a register per term, and one of the bias.
pub const SPREAD: usize = (TERMS + 1) * LINE;

/// Images of so many pixels with a border of one pixel of zeros.
#[derive(Clone, Copy, Debug)]
pub struct Halves {
    height: usize,
    width: usize,
}

impl Halves {
    /// If such images are served.
    pub fn new(backend: Backend, [height, width]: [usize; 2], channels: usize, outputs: usize) -> Option<Self> {
        let sizes = height >= 2 && height.is_multiple_of(2) && width >= BLOCK && width.is_multiple_of(BLOCK);
        let fits = sizes && channels == IN && outputs == OUT && backend.isa() == Isa::Avx512;
        fits.then_some(Self { height, width })
    }

    fn half(&self) -> usize {
        self.height / 2
    }

    /// From a staged row to the next: its first pixel inside the border is at a cache line.
    fn stride(&self) -> usize {
        2 * LINE + 2 * IN * self.width
    }

    /// Numbers of a staged image.
    pub fn staged_len(&self) -> usize {
        (self.half() + 2) * self.stride() + LINE
    }

    /// Numbers of scratch of [`Halves::weight`].
    pub fn beside_len(&self) -> usize {
        ROWS * self.width * LINE
    }

    /// Weights `[8, 3, 3, 3]` and a bias, or none, as [`Halves::forward`] reads them.
    pub fn spread(weight: &[f32], bias: &[f32], to: &mut [f32]) {
        for (term, to) in to[..SPREAD].chunks_exact_mut(LINE).enumerate() {
            for (o, to) in to.chunks_exact_mut(2).enumerate() {
                to.fill(match term {
                    TERMS => bias.get(o).copied().unwrap_or(0.0),
                    _ => weight[(o * IN + term % IN) * 9 + term / IN],
                });
            }
        }
    }

    /// Adds sums of [`Halves::weight`] to the gradients of weights and bias, of which that may be empty.
    pub fn gather(sums: &[f32], dw: &mut [f32], db: &mut [f32]) {
        for (term, sums) in sums[..SPREAD].chunks_exact(LINE).enumerate() {
            for (o, sums) in sums.chunks_exact(2).enumerate() {
                let sum = sums[0] + sums[1];
                if term < TERMS {
                    dw[(o * IN + term % IN) * 9 + term / IN] += sum;
                } else if let Some(to) = db.get_mut(o) {
                    *to += sum;
                }
            }
        }
    }

    /// Brings the two halves of an image side by side, with their border.
    ///
    /// # Panics
    /// If an operand is too short; so do the others.
    pub fn stage(&self, x: &[f32], staged: &mut [f32]) {
        assert!(x.len() >= self.height * self.width * IN, "an image of {} numbers: {self:?}", x.len());
        let at = self.place(staged);
        // SAFETY: only a CPU with AVX-512 has a `Halves`; `place` found all staged rows, and the image holds all of its rows.
        unsafe { stage(self, x.as_ptr(), staged.as_mut_ptr().add(at)) };
    }

    /// Where the first staged row is: at a cache line.
    fn place(&self, staged: &[f32]) -> usize {
        assert!(staged.len() >= self.staged_len(), "{} staged numbers: {self:?}", staged.len());
        staged.as_ptr().align_offset(64).min(LINE)
    }

    /// Results of a staged image under [`Halves::spread`] weights, with `relu` none below zero.
    pub fn forward(&self, staged: &[f32], weight: &[f32], relu: bool, y: &mut [f32]) {
        let at = self.place(staged);
        assert!(weight.len() >= SPREAD && y.len() >= self.height * self.width * OUT, "too short: {self:?}");
        let floor = if relu { 0.0 } else { f32::NEG_INFINITY };
        // SAFETY: only a CPU with AVX-512 has a `Halves`; operands were found to be as long as these sizes say.
        unsafe { forward(self, staged.as_ptr().add(at), weight.as_ptr(), floor, y.as_mut_ptr()) };
    }

    /// Adds what an image gives to the sums of every term and of the bias. Where there is a `y` and it is not above zero, `dy`
    /// counts nothing.
    pub fn weight(&self, staged: &[f32], y: Option<&[f32]>, dy: &[f32], beside: &mut [f32], sums: &mut [f32]) {
        let (at, len) = (self.place(staged), self.height * self.width * OUT);
        assert!(sums.len() >= SPREAD && beside.len() >= self.beside_len(), "too short: {self:?}");
        assert!(dy.len() >= len && y.is_none_or(|y| y.len() >= len), "too short: {self:?}");
        for first in (0..self.half()).step_by(ROWS) {
            let rows = first..self.half().min(first + ROWS);
            for (row, beside) in rows.clone().zip(beside.chunks_exact_mut(self.width * LINE)) {
                let (at, bias) = (row * self.width * OUT, &mut sums[TERMS * LINE..]);
                // SAFETY: as for `forward`; this row of the upper half has its like in the lower half.
                unsafe {
                    let (dy, beside, bias) = (dy.as_ptr().add(at), beside.as_mut_ptr(), bias.as_mut_ptr());
                    match y {
                        Some(y) => gradient_beside::<true>(self, y.as_ptr().add(at), dy, beside, bias),
                        None => gradient_beside::<false>(self, dy, dy, beside, bias),
                    }
                }
            }
            let next = [y.unwrap_or(dy), dy].map(|x| x.as_ptr().wrapping_add(rows.end * self.width * OUT));
            // SAFETY: as for `forward`; the gradients of these rows lie in `beside`.
            unsafe { weight(self, rows, staged.as_ptr().add(at), beside.as_ptr(), next, sums.as_mut_ptr()) };
        }
    }
}

/// Lanes 0 to 7 of two registers in turn, and lanes 8 to 15.
const LOW: [i32; 16] = [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23];
const HIGH: [i32; 16] = [8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31];
/// Every other lane of two registers.
const EVEN: [i32; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];
const ODD: [i32; 16] = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31];

#[inline]
#[target_feature(enable = "avx512f")]
fn lanes(index: &[i32; 16]) -> __m512i {
    // SAFETY: 16 words.
    unsafe { _mm512_loadu_si512(index.as_ptr().cast()) }
}

/// Two numbers, again and again.
///
/// # Safety
/// Both may be read.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn pair(from: *const f32) -> __m512 {
    // SAFETY: the caller's contract.
    unsafe { _mm512_castpd_ps(_mm512_set1_pd(from.cast::<f64>().read_unaligned())) }
}

/// # Safety
/// All that the sizes say may be read or written.
#[target_feature(enable = "avx512f")]
unsafe fn stage(s: &Halves, x: *const f32, to: *mut f32) {
    let (low, high) = (lanes(&LOW), lanes(&HIGH));
    let (half, row_len) = (s.half(), s.width * IN);
    // SAFETY: by the contract of this function, every pointer below is inside the operands or only computed.
    unsafe {
        for row in 0..half + 2 {
            let to = to.add(row * s.stride());
            _mm512_storeu_ps(to, _mm512_setzero_ps());
            _mm512_storeu_ps(to.add(s.stride() - LINE), _mm512_setzero_ps());
            let upper = if row > 0 { u16::MAX } else { 0 };
            let lower = if row < half + 1 { u16::MAX } else { 0 };
            let from = x.wrapping_add(row * row_len).wrapping_sub(row_len);
            let below = from.wrapping_add(half * row_len);
            for at in (0..row_len).step_by(LINE) {
                let a = _mm512_maskz_loadu_ps(upper, from.wrapping_add(at));
                let b = _mm512_maskz_loadu_ps(lower, below.wrapping_add(at));
                let to = to.add(LINE + 2 * at);
                _mm512_storeu_ps(to, _mm512_permutex2var_ps(a, low, b));
                _mm512_storeu_ps(to.add(LINE), _mm512_permutex2var_ps(a, high, b));
            }
        }
    }
}

/// # Safety
/// All that the sizes say may be read or written.
#[target_feature(enable = "avx512f")]
unsafe fn forward(s: &Halves, staged: *const f32, weight: *const f32, floor: f32, y: *mut f32) {
    let (even, odd, floor) = (lanes(&EVEN), lanes(&ODD), _mm512_set1_ps(floor));
    let (stride, row_len) = (s.stride(), s.width * OUT);
    // SAFETY: by the contract of this function, every pointer below is inside the operands or only computed.
    unsafe {
        let bias = _mm512_loadu_ps(weight.add(TERMS * LINE));
        for row in 0..s.half() {
            for first in (0..s.width).step_by(BLOCK) {
                let mut sums = [bias; BLOCK];
                let mut from = staged.add(row * stride + LINE + 2 * IN * first).sub(2 * IN);
                let mut factors = weight;
                for _ in 0..3 {
                    for term in 0..3 * IN {
                        let factor = _mm512_loadu_ps(factors.add(term * LINE));
                        for (p, sum) in sums.iter_mut().enumerate() {
                            *sum = _mm512_fmadd_ps(pair(from.add(2 * (IN * p + term))), factor, *sum);
                        }
                    }
                    (from, factors) = (from.add(stride), factors.add(3 * IN * LINE));
                }
                let upper = y.add(row * row_len + first * OUT);
                let lower = upper.add(s.half() * row_len);
                for p in (0..BLOCK).step_by(2) {
                    let (a, b) = (sums[p], sums[p + 1]);
                    _mm512_storeu_ps(upper.add(p * OUT), _mm512_max_ps(floor, _mm512_permutex2var_ps(a, even, b)));
                    _mm512_storeu_ps(lower.add(p * OUT), _mm512_max_ps(floor, _mm512_permutex2var_ps(a, odd, b)));
                }
            }
        }
    }
}

/// # Safety
/// All that the sizes say may be read or written; `next` is only asked for.
#[target_feature(enable = "avx512f")]
unsafe fn weight(
    s: &Halves,
    rows: Range<usize>,
    staged: *const f32,
    mut d: *const f32,
    next: [*const f32; 2],
    to: *mut f32,
) {
    let stride = s.stride();
    // SAFETY: by the contract of this function, every pointer below is inside the operands or only computed.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); 3 * IN]; 3];
        for (t, sum) in sums.as_flattened_mut().iter_mut().enumerate() {
            *sum = _mm512_loadu_ps(to.add(t * LINE));
        }
        for (i, row) in rows.enumerate() {
            let mut from = staged.add(row * stride + LINE).sub(2 * IN);
            // Half of these rows ask for the next rows of `y`, half for those of `dy`: two of them each, of both halves.
            let mut upper = next[i / (ROWS / 2)].wrapping_add(i % (ROWS / 2) * s.width * LINE);
            for _ in 0..s.width {
                _mm_prefetch::<_MM_HINT_T0>(upper.cast());
                _mm_prefetch::<_MM_HINT_T0>(upper.wrapping_add(s.half() * s.width * OUT).cast());
                upper = upper.wrapping_add(LINE);
                let right = _mm512_loadu_ps(d);
                for (ky, sums) in sums.iter_mut().enumerate() {
                    for (t, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm512_fmadd_ps(pair(from.add(ky * stride + 2 * t)), right, *sum);
                    }
                }
                (from, d) = (from.add(2 * IN), d.add(LINE));
            }
        }
        for (t, &sum) in sums.as_flattened().iter().enumerate() {
            _mm512_storeu_ps(to.add(t * LINE), sum);
        }
    }
}

/// Brings a row of gradients of the upper half and its like of the lower one side by side and adds them to the bias's.
///
/// # Safety
/// All that the sizes say may be read or written.
#[inline(never)]
#[target_feature(enable = "avx512f")]
unsafe fn gradient_beside<const RELU: bool>(s: &Halves, y: *const f32, dy: *const f32, to: *mut f32, bias: *mut f32) {
    let (low, high, zero) = (lanes(&LOW), lanes(&HIGH), _mm512_setzero_ps());
    // SAFETY: by the contract of this function, every pointer below is inside the operands or only computed.
    unsafe {
        let take = |at: usize| {
            if RELU {
                let mask = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(_mm512_loadu_ps(y.add(at)), zero);
                _mm512_maskz_loadu_ps(mask, dy.add(at))
            } else {
                _mm512_loadu_ps(dy.add(at))
            }
        };
        let mut sums = [_mm512_loadu_ps(bias), zero];
        for at in (0..s.width * OUT).step_by(LINE) {
            let (upper, lower) = (take(at), take(at + s.half() * s.width * OUT));
            for (h, lanes) in [low, high].into_iter().enumerate() {
                let d = _mm512_permutex2var_ps(upper, lanes, lower);
                sums[h] = _mm512_add_ps(sums[h], d);
                _mm512_storeu_ps(to.add(2 * at + h * LINE), d);
            }
        }
        _mm512_storeu_ps(bias, _mm512_add_ps(sums[0], sums[1]));
    }
}
