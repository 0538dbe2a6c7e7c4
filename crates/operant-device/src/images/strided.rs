//! Convolutions with kernels of 3×3, a stride of two and a border of one pixel of zeros, which only results of the first row
//! and of the first column see: they leave those terms out.
#![allow(unsafe_code)]

use super::LINE;
use operant_lanes::{Backend, Isa};
use std::arch::x86_64::*;
use std::ops::Range;

/// Pixels of results whose gradients give a block of the image's: four times as many.
const ACROSS: usize = 4;
/// Rows of results that are still in the nearest cache when the next row of the kernel wants them.
const ROWS: usize = 8;
/// Registers in which the gradient of a bias is summed.
const BIASES: usize = 4;

/// Images `[2·rows, 2·pixels, channels]` and results `[rows, pixels, outputs]`.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    rows: usize,
    pixels: usize,
    channels: usize,
    outputs: usize,
}

impl Strided {
    /// Numbers in which the gradient of a bias is summed.
    pub const BIAS: usize = BIASES * LINE;

    /// If such results are served.
    pub fn new(backend: Backend, [rows, pixels]: [usize; 2], channels: usize, outputs: usize) -> Option<Self> {
        let sizes = rows > 0 && pixels > 0 && pixels.is_multiple_of(8);
        let few = matches!(channels, 8 | 16) && matches!(outputs, 16 | 32);
        let fits = sizes && few && backend.isa() == Isa::Avx512;
        fits.then_some(Self { rows, pixels, channels, outputs })
    }

    fn image_len(&self) -> usize {
        4 * self.rows * self.pixels * self.channels
    }

    fn result_len(&self) -> usize {
        self.rows * self.pixels * self.outputs
    }

    /// Numbers of weights.
    pub fn weight_len(&self) -> usize {
        9 * self.channels * self.outputs
    }

    /// Numbers of the gradient of results with [`Strided::border`].
    pub fn bordered_len(&self) -> usize {
        (self.rows + 1) * self.bordered_row()
    }

    fn bordered_row(&self) -> usize {
        (self.pixels + 1) * self.outputs
    }

    /// Results of an image under weights `[3, 3, channels, outputs]` and a bias, or none; with `relu` none below zero.
    ///
    /// # Panics
    /// If an operand is too short; so do the others.
    pub fn forward(&self, x: &[f32], weight: &[f32], bias: &[f32], relu: bool, y: &mut [f32]) {
        let whole = x.len() >= self.image_len() && weight.len() >= self.weight_len() && y.len() >= self.result_len();
        assert!(whole && (bias.is_empty() || bias.len() >= self.outputs), "too short: {self:?}");
        let floor = if relu { 0.0 } else { f32::NEG_INFINITY };
        let (x, weight, y) = (x.as_ptr(), weight.as_ptr(), y.as_mut_ptr());
        // SAFETY: only a CPU with AVX-512 has a `Strided`; operands were found to be as long as these sizes say, and pixels are
        // whole blocks.
        unsafe {
            match self.outputs {
                16 if self.pixels.is_multiple_of(16) => forward::<1, 16>(self, x, weight, bias, floor, y),
                16 => forward::<1, 8>(self, x, weight, bias, floor, y),
                _ => forward::<2, 8>(self, x, weight, bias, floor, y),
            }
        }
    }

    /// The gradient of results, with room for a pixel behind every row and a row behind all, where zeros must be. Where there is a `y` and it is not above zero, `dy` counts nothing. Adds to the sums of the bias.
    pub fn border(&self, y: Option<&[f32]>, dy: &[f32], to: &mut [f32], bias: &mut [f32]) {
        let len = self.result_len();
        assert!(dy.len() >= len && y.is_none_or(|y| y.len() >= len), "too short: {self:?}");
        assert!(to.len() >= self.bordered_len() && bias.len() >= Self::BIAS, "too short: {self:?}");
        // SAFETY: as for `forward`; rows are multiples of four registers.
        unsafe {
            match y {
                Some(y) => border::<true>(self, y.as_ptr(), dy.as_ptr(), to.as_mut_ptr(), bias.as_mut_ptr()),
                None => border::<false>(self, dy.as_ptr(), dy.as_ptr(), to.as_mut_ptr(), bias.as_mut_ptr()),
            }
        }
    }

    /// Adds sums of [`Strided::border`] to the gradient of the bias.
    pub fn gather_bias(&self, bias: &[f32], db: &mut [f32]) {
        for sums in bias[..Self::BIAS].chunks_exact(self.outputs) {
            db.iter_mut().zip(sums).for_each(|(to, sum)| *to += *sum);
        }
    }

    /// The gradient of an image from that of its results with their border. Matrices `[tap, outputs, 16]` are those of pixels in
    /// odd rows and columns, odd rows and even columns, even rows and odd columns, even both; taps are turned round. Eight
    /// channels are interleaved with those of the next output.
    pub fn image(&self, dz: &[f32], weight: [&[f32]; 4], dx: &mut [f32]) {
        assert!(dz.len() >= self.bordered_len() && dx.len() >= self.image_len(), "too short: {self:?}");
        for (weight, taps) in weight.iter().zip([4, 2, 2, 1]) {
            assert!(weight.len() >= taps * self.outputs * LINE, "too short: {self:?}");
        }
        let (dz, weight, dx) = (dz.as_ptr(), weight.map(<[f32]>::as_ptr), dx.as_mut_ptr());
        // SAFETY: as for `forward`.
        unsafe {
            match self.channels {
                8 => image::<true>(self, dz, weight, dx),
                _ => image::<false>(self, dz, weight, dx),
            }
        }
    }

    /// Adds to the gradient `[3, 3, channels, outputs]` of the weights what an image gives.
    pub fn weight(&self, x: &[f32], dz: &[f32], sums: &mut [f32]) {
        let whole = x.len() >= self.image_len() && dz.len() >= self.bordered_len();
        assert!(whole && sums.len() >= self.weight_len(), "too short: {self:?}");
        let (x, dz, sums) = (x.as_ptr(), dz.as_ptr(), sums.as_mut_ptr());
        for first in (0..self.rows).step_by(ROWS) {
            let rows = first..self.rows.min(first + ROWS);
            // SAFETY: as for `forward`.
            unsafe {
                match self.outputs {
                    16 => weight::<8, 1>(self, rows, x, dz, sums),
                    _ => weight::<4, 2>(self, rows, x, dz, sums),
                }
            }
        }
    }

    /// Adds sums of [`Strided::weight`] to PyTorch's `[outputs, channels, 3, 3]`.
    pub fn gather(&self, sums: &[f32], dw: &mut [f32]) {
        for (place, sums) in sums[..self.weight_len()].chunks_exact(self.outputs).enumerate() {
            let (tap, c) = (place / self.channels, place % self.channels);
            let to = dw[c * 9 + tap..].iter_mut().step_by(self.channels * 9);
            to.zip(sums).for_each(|(to, sum)| *to += *sum);
        }
    }
}

/// The same pointer, of which the compiler knows nothing: it would reach pixels from each other in chains of additions.
#[inline(always)]
fn hide(pointer: *const f32) -> *const f32 {
    let mut hidden = pointer;
    // SAFETY: no instruction.
    unsafe { std::arch::asm!("/* {} */", inout(reg) hidden, options(pure, readonly, nostack, preserves_flags)) };
    hidden
}

/// Adds one tap, channel by channel, to the sums of pixels from `FIRST` on.
///
/// # Safety
/// The tap's numbers of all of these pixels, and its weights, may be read.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_tap<const V: usize, const P: usize, const FIRST: usize>(
    channels: usize,
    from: *const f32,
    mut weight: *const f32,
    sums: &mut [[__m512; V]; P],
) {
    let step = 2 * channels;
    let mut a = [from; 4];
    for (g, a) in a.iter_mut().enumerate().take(P / 4) {
        *a = hide(from.wrapping_add(4 * g * step));
    }
    // SAFETY: by the contract of this function, every pointer below is inside the operands or only computed.
    unsafe {
        for _ in 0..channels / 4 {
            for c in 0..4 {
                let mut right = [_mm512_setzero_ps(); V];
                for (v, right) in right.iter_mut().enumerate() {
                    *right = _mm512_loadu_ps(weight.add((c * V + v) * LINE));
                }
                for (p, sums) in sums.iter_mut().enumerate().skip(FIRST) {
                    let left = _mm512_set1_ps(*a[p / 4].wrapping_add(p % 4 * step + c));
                    for (sum, &right) in sums.iter_mut().zip(&right) {
                        *sum = _mm512_fmadd_ps(left, right, *sum);
                    }
                }
            }
            for a in a.iter_mut().take(P / 4) {
                *a = hide(a.wrapping_add(4));
            }
            weight = weight.add(4 * V * LINE);
        }
    }
}

/// `P` pixels at a time of `V` registers each.
///
/// # Safety
/// All that the sizes say may be read or written.
#[target_feature(enable = "avx512f")]
unsafe fn forward<const V: usize, const P: usize>(
    s: &Strided,
    x: *const f32,
    weight: *const f32,
    bias: &[f32],
    floor: f32,
    y: *mut f32,
) {
    // The second operand is what comes out if one is NaN.
    let floor = _mm512_set1_ps(floor);
    let row_len = 2 * s.pixels * s.channels;
    // SAFETY: by the contract of this function, every pointer below is inside the operands or only computed: the first row and
    // column leave out what lies before the image.
    unsafe {
        let mut start = [_mm512_setzero_ps(); V];
        for (v, start) in start.iter_mut().enumerate().take(if bias.is_empty() { 0 } else { V }) {
            *start = _mm512_loadu_ps(bias.as_ptr().add(v * LINE));
        }
        for row in 0..s.rows {
            for first in (0..s.pixels).step_by(P) {
                let mut sums = [start; P];
                for ky in usize::from(row == 0)..3 {
                    let from = x.wrapping_add((2 * row + ky) * row_len + 2 * first * s.channels).wrapping_sub(row_len);
                    let weight = weight.add(3 * ky * V * LINE * s.channels);
                    let (before, tap) = (from.wrapping_sub(s.channels), V * LINE * s.channels);
                    if first == 0 {
                        add_tap::<V, P, 1>(s.channels, before, weight, &mut sums);
                    } else {
                        add_tap::<V, P, 0>(s.channels, before, weight, &mut sums);
                    }
                    add_tap::<V, P, 0>(s.channels, from, weight.add(tap), &mut sums);
                    add_tap::<V, P, 0>(s.channels, from.wrapping_add(s.channels), weight.add(2 * tap), &mut sums);
                }
                let to = y.add((row * s.pixels + first) * V * LINE);
                for (i, &sum) in sums.as_flattened().iter().enumerate() {
                    _mm512_storeu_ps(to.add(i * LINE), _mm512_max_ps(floor, sum));
                }
            }
        }
    }
}

/// # Safety
/// All that the sizes say may be read or written.
#[target_feature(enable = "avx512f")]
unsafe fn border<const RELU: bool>(s: &Strided, y: *const f32, dy: *const f32, to: *mut f32, bias: *mut f32) {
    let zero = _mm512_setzero_ps();
    let row_len = s.pixels * s.outputs;
    // SAFETY: by the contract of this function, every pointer below is inside the operands.
    unsafe {
        let mut sums = [zero; BIASES];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm512_loadu_ps(bias.add(i * LINE));
        }
        for row in 0..s.rows {
            let (y, dy, to) = (y.add(row * row_len), dy.add(row * row_len), to.add(row * s.bordered_row()));
            for block in 0..row_len / (BIASES * LINE) {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let at = (block * BIASES + i) * LINE;
                    let d = if RELU {
                        let mask = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(_mm512_loadu_ps(y.add(at)), zero);
                        _mm512_maskz_loadu_ps(mask, dy.add(at))
                    } else {
                        _mm512_loadu_ps(dy.add(at))
                    };
                    *sum = _mm512_add_ps(*sum, d);
                    _mm512_storeu_ps(to.add(at), d);
                }
            }
        }
        for (i, &sum) in sums.iter().enumerate() {
            _mm512_storeu_ps(bias.add(i * LINE), sum);
        }
    }
}

/// Sums of [`ACROSS`] pixels.
type Sums = [__m512; ACROSS];

/// Adds the products of as many pixels with one register.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_products(sums: &mut Sums, left: &[__m512], right: __m512) {
    for (sum, &left) in sums.iter_mut().zip(left) {
        *sum = _mm512_fmadd_ps(left, right, *sum);
    }
}

/// A block is what [`ACROSS`] pixels of a row, the one after them, and those below give: all four kinds of pixels of the image at
/// once, so that what is read of the gradient serves up to four products. With `PAIRED` even lanes add even outputs, odd lanes odd
/// ones, and at last the two are added.
///
/// # Safety
/// All that the sizes say may be read or written.
#[target_feature(enable = "avx512f")]
unsafe fn image<const PAIRED: bool>(
    s: &Strided,
    dz: *const f32,
    [odd_odd, odd_even, even_odd, even_even]: [*const f32; 4],
    dx: *mut f32,
) {
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    let (o, dz_row, dx_row) = (s.outputs, s.bordered_row(), 2 * s.pixels * s.channels);
    let (step, tap) = (if PAIRED { 2 } else { 1 }, o * LINE);
    // SAFETY: by the contract of this function, every pointer below is inside the operands or only computed.
    unsafe {
        for row in 0..s.rows {
            for first in (0..s.pixels).step_by(ACROSS) {
                // Sums of pixels in odd rows and columns have four products each: two chains of two.
                let [mut ee, mut eo, mut oe, mut oo, mut oo_below] = [[_mm512_setzero_ps(); ACROSS]; 5];
                let mut this = hide(dz.add(row * dz_row + first * o));
                let mut below = hide(this.add(dz_row));
                let mut at = 0;
                for _ in 0..o / step {
                    let left = lefts::<PAIRED>(this, o);
                    add_products(&mut ee, &left, _mm512_loadu_ps(even_even.add(at)));
                    add_products(&mut eo, &left, _mm512_loadu_ps(even_odd.add(at)));
                    add_products(&mut oe, &left, _mm512_loadu_ps(odd_even.add(at)));
                    add_products(&mut oo, &left, _mm512_loadu_ps(odd_odd.add(at)));
                    add_products(&mut eo, &left[1..], _mm512_loadu_ps(even_odd.add(at + tap)));
                    add_products(&mut oo, &left[1..], _mm512_loadu_ps(odd_odd.add(at + tap)));
                    let left = lefts::<PAIRED>(below, o);
                    add_products(&mut oe, &left, _mm512_loadu_ps(odd_even.add(at + tap)));
                    add_products(&mut oo_below, &left, _mm512_loadu_ps(odd_odd.add(at + 2 * tap)));
                    add_products(&mut oo_below, &left[1..], _mm512_loadu_ps(odd_odd.add(at + 3 * tap)));
                    (this, below) = (hide(this.wrapping_add(step)), hide(below.wrapping_add(step)));
                    at += step * LINE;
                }
                for (sum, &below) in oo.iter_mut().zip(&oo_below) {
                    *sum = _mm512_add_ps(*sum, below);
                }
                let to = dx.add(2 * row * dx_row + 2 * first * s.channels);
                for (to, left, right) in [(to, &ee, &eo), (to.add(dx_row), &oe, &oo)] {
                    for (j, (&left, &right)) in left.iter().zip(right).enumerate() {
                        if PAIRED {
                            let evens = _mm512_permutex2var_ps(left, even, right);
                            let sum = _mm512_add_ps(evens, _mm512_permutex2var_ps(left, odd, right));
                            _mm512_storeu_ps(to.add(j * LINE), sum);
                        } else {
                            _mm512_storeu_ps(to.add(2 * j * LINE), left);
                            _mm512_storeu_ps(to.add((2 * j + 1) * LINE), right);
                        }
                    }
                }
            }
        }
    }
}

/// A number, or a pair, of each pixel of a block and of the one after them.
///
/// # Safety
/// They may be read.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn lefts<const PAIRED: bool>(from: *const f32, step: usize) -> [__m512; ACROSS + 1] {
    let mut left = [_mm512_setzero_ps(); ACROSS + 1];
    for (j, left) in left.iter_mut().enumerate() {
        let from = from.wrapping_add(j * step);
        // SAFETY: the caller's contract.
        *left = unsafe {
            if PAIRED {
                _mm512_castpd_ps(_mm512_set1_pd(from.cast::<f64>().read_unaligned()))
            } else {
                _mm512_set1_ps(*from)
            }
        };
    }
    left
}

/// `C` channels at a time of `V` registers each, at the three taps of a row of the kernel.
///
/// # Safety
/// All that the sizes say may be read or written.
#[target_feature(enable = "avx512f")]
unsafe fn weight<const C: usize, const V: usize>(
    s: &Strided,
    rows: Range<usize>,
    x: *const f32,
    dz: *const f32,
    to: *mut f32,
) {
    let row_len = 2 * s.pixels * s.channels;
    // SAFETY: by the contract of this function, every pointer below is inside the operands or only computed: the first row and
    // column leave out what lies before the image.
    unsafe {
        for part in 0..3 * s.channels / C {
            let (ky, c) = (part / (s.channels / C), part % (s.channels / C) * C);
            let to = to.add((3 * ky * s.channels + c) * V * LINE);
            let mut sums = [[[_mm512_setzero_ps(); V]; C]; 3];
            for (kx, sums) in sums.iter_mut().enumerate() {
                for (i, sums) in sums.iter_mut().enumerate() {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm512_loadu_ps(to.add(((kx * s.channels + i) * V + v) * LINE));
                    }
                }
            }
            for row in rows.start.max(usize::from(ky == 0))..rows.end {
                let from = x.wrapping_add((2 * row + ky) * row_len + c).wrapping_sub(row_len);
                let mut a = [from.wrapping_sub(s.channels), from, from.wrapping_add(s.channels)];
                let mut d = dz.add(row * s.bordered_row());
                add_outer::<C, V, 1>(a, d, &mut sums);
                for _ in 1..s.pixels {
                    for a in &mut a {
                        *a = hide(a.wrapping_add(2 * s.channels));
                    }
                    d = d.add(V * LINE);
                    add_outer::<C, V, 0>(a, d, &mut sums);
                }
            }
            for (kx, sums) in sums.iter().enumerate() {
                for (i, sums) in sums.iter().enumerate() {
                    for (v, &sum) in sums.iter().enumerate() {
                        _mm512_storeu_ps(to.add(((kx * s.channels + i) * V + v) * LINE), sum);
                    }
                }
            }
        }
    }
}

/// Adds what one pixel of the gradient gives, at taps from `FIRST` on.
///
/// # Safety
/// `C` numbers of each of these taps and `V` registers of the gradient may be read.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_outer<const C: usize, const V: usize, const FIRST: usize>(
    a: [*const f32; 3],
    d: *const f32,
    sums: &mut [[[__m512; V]; C]; 3],
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut right = [_mm512_setzero_ps(); V];
        for (v, right) in right.iter_mut().enumerate() {
            *right = _mm512_loadu_ps(d.add(v * LINE));
        }
        for (kx, sums) in sums.iter_mut().enumerate().skip(FIRST) {
            for (i, sums) in sums.iter_mut().enumerate() {
                let left = _mm512_set1_ps(*a[kx].wrapping_add(i));
                for (sum, &right) in sums.iter_mut().zip(&right) {
                    *sum = _mm512_fmadd_ps(left, right, *sum);
                }
            }
        }
    }
}
