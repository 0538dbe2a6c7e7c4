//! The first convolution with what follows it in one launch, and what it has to know of fields beforehand.

use super::kernels::{FinishArgs, GatherArgs, Step, numbers};
use super::layout::{Build, bf16};
use crate::data::shards::{half_bits, half_value};
use crate::device::cuda::{DevicePtr, Params, TensorMap, TensorNumbers};
use crate::env::field::Norm;
use crate::nn::Precision;
use crate::{Error, Result};

/// `SurveyArgs` of `first.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct SurveyArgs {
    pub state: DevicePtr,
    pub words: DevicePtr,
    pub pairs: DevicePtr,
    pub affine: DevicePtr,
    pub norm: DevicePtr,
    pub clock: DevicePtr,
    pub side: u32,
    pub log_side: u32,
    pub field_channels: u32,
    pub rows_per_op: u32,
}
impl Params for SurveyArgs {}

/// `FirstArgs` of `first.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct FirstArgs {
    pub words: TensorMap,
    pub w: TensorMap,
    pub out: TensorMap,
    pub f: FinishArgs,
}
impl Params for FirstArgs {}

impl FirstArgs {
    /// Rows of 64 pixels.
    pub(super) fn units(&self) -> u32 {
        self.f.images * self.f.side * self.f.side / 64
    }
}

/// Blocks of a cluster that surveys an image, and their threads.
pub(super) const SURVEYORS: usize = 8;
pub(super) const SURVEY_THREADS: u32 = 256;
/// Blocks of `first` that run at once on a multiprocessor, and shared memory of each: four rows of 64 pixels, 16 pixels of each
/// warp and its scales and shifts, weights, barriers.
pub(super) const FIRST_AT_ONCE: u32 = 5;
pub(super) const FIRST_SHARED: usize = 1024 + 4 * 64 * 64 + 4 * (16 * 128 + 512) + 3 * 64 * 64 + 10 * 8;
/// Channels of a pixel's words, and pixels of a row of an operand.
const WORDS: usize = 4;
/// Pairs of pixels, each once, that a kernel of 3×3 taps brings together: rows and columns between them.
const PAIRS: [(usize, isize); 13] =
    [(0, 0), (0, 1), (0, 2), (1, -2), (1, -1), (1, 0), (1, 1), (1, 2), (2, -2), (2, -1), (2, 0), (2, 1), (2, 2)];
const TAPS: usize = 3;

/// Shared memory of `survey`: a block's rows and two more as they are, later sums of its warps; and both parts of numbers, two to a
/// word, with two columns to each side and four that keep banks apart.
pub(super) fn survey_shared(side: usize, channels: usize) -> usize {
    if !(64..=256).contains(&side) || channels >= WORDS {
        return 0;
    }
    let rows = side / SURVEYORS;
    let sums = SURVEY_THREADS as usize / 32 * (26 * channels).next_multiple_of(16) * 8;
    4 * sums.max(((rows + 2) * side + 2 * (rows / 2 + 2) * (side + 8)) * channels)
}

/// For each of `PAIRS` and two channels the sum of products of weights `[C, 3, 3]` that meet there, for either order of the two
/// pixels; then each channel's sum of weights.
fn pairs_of(weights: &[f64]) -> Vec<f64> {
    let channels = weights.len() / (TAPS * TAPS);
    let at = |c: usize, y: usize, x: usize| weights[(c * TAPS + y) * TAPS + x];
    let mut out = Vec::with_capacity(PAIRS.len() * channels * channels + channels);
    for (down, right) in PAIRS {
        for c in 0..channels {
            for d in 0..channels {
                let mut sum = 0.0;
                for (y, x) in (0..TAPS - down).flat_map(|y| (0..TAPS).map(move |x| (y, x))) {
                    if let Some(beside) = x.checked_add_signed(right).filter(|x| *x < TAPS) {
                        sum += at(c, y, x) * at(d, y + down, beside);
                    }
                }
                out.push(if (down, right) == (0, 0) { sum } else { 2.0 * sum });
            }
        }
    }
    out.extend(weights.chunks_exact(TAPS * TAPS).map(|of| of.iter().sum::<f64>()));
    out
}

impl Build<'_> {
    /// Whether kernels of `first.cu` are for the first convolution and what follows it. By shape alone, since a row's bits must not
    /// depend on how many there are; residual operators, whose batches are small, are faster without.
    pub(super) fn first_is_whole(&self) -> bool {
        let operator = self.operator();
        numbers(self.precision).bytes() == 2
            && !operator.is_residual()
            && operator.norm == Norm::Instance
            && operator.kernel == TAPS
            && operator.base_channels == 64
            && operator.channels < WORDS
            && (64..=256).contains(&operator.grid)
    }

    /// Their launches, from the field at `state`; `finish` knows where results go.
    pub(super) fn first(
        &mut self,
        state: DevicePtr,
        finish: FinishArgs,
        norm: Option<GatherArgs>,
        list: &mut Vec<Step>,
    ) -> Result<()> {
        let norm = norm.ok_or_else(|| Error::Invalid("a first convolution without a norm".into()))?;
        let operator = self.operator();
        let (rows, grid, channels, outputs) = (self.rows(), operator.grid, operator.channels, operator.base_channels);
        let (mut weights, mut pairs) = (Vec::new(), Vec::new());
        for params in &self.params {
            // [O, C, kh, kw]
            let weight = params.get("stem.weight")?;
            let bits: Vec<u16> = match self.precision {
                Precision::F16 => weight.iter().map(|&x| half_bits(x)).collect(),
                _ => weight.iter().map(|&x| bf16(x)).collect(),
            };
            let value = |bits: u16| match self.precision {
                Precision::F16 => half_value(bits),
                _ => f64::from(f32::from_bits(u32::from(bits) << 16)),
            };
            let of = channels * TAPS * TAPS;
            for row in 0..TAPS {
                for output in bits.chunks_exact(of) {
                    // Both parts of a number meet the same weight.
                    for (pixel, c) in (0..WORDS).flat_map(|pixel| (0..WORDS).map(move |c| (pixel, c))) {
                        let meets = pixel < TAPS && c < channels;
                        let word = if meets { output[(c * TAPS + row) * TAPS + pixel] } else { 0 };
                        weights.extend([word; 2]);
                    }
                }
            }
            let of_outputs: Vec<Vec<f64>> = bits
                .chunks_exact(of)
                .map(|output| pairs_of(&output.iter().map(|&bits| value(bits)).collect::<Vec<_>>()))
                .collect();
            let count = of_outputs[0].len();
            pairs.extend((0..count).flat_map(|i| of_outputs.iter().map(move |of| of[i] as f32)));
        }
        let members = self.params.len();
        let (weights, pairs) = (self.upload(&weights)?, self.upload(&pairs)?);
        let (high, wide) = (grid + 2, grid + WORDS);
        let words = self.room(rows * high * wide * WORDS)?;
        // A pixel and the three to its right; even pixels of sixteen, then odd ones.
        let pixel = 4 * WORDS;
        let words_map = TensorMap::strided(
            self.gpu,
            TensorNumbers::F32,
            words,
            [WORDS * WORDS, 8, 2, grid / 16, rows * high],
            [2 * pixel, pixel, 16 * pixel, wide * pixel],
            [WORDS * WORDS, 8, 2, 4, 1],
        )?;
        let row = 2 * WORDS * WORDS;
        let w = TensorMap::new(
            self.gpu,
            self.numbers(),
            weights,
            [row, 1, outputs, TAPS, members],
            [row, 1, outputs, TAPS, 1],
        )?;
        let survey = SurveyArgs {
            state,
            words,
            pairs,
            affine: norm.affine,
            norm: norm.norm,
            clock: self.clock(),
            side: grid as u32,
            log_side: grid.ilog2(),
            field_channels: channels as u32,
            rows_per_op: finish.rows_per_op,
        };
        list.push(Step::Survey(survey, rows as u32));
        let out = self.rows_of_64(finish.out, &finish, finish.border, 16)?;
        list.push(Step::First(FirstArgs { words: words_map, w, out, f: finish }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variances by pairs are those of results.
    #[test]
    fn pairs_make_variances() {
        let (side, channels) = (8usize, 2usize);
        let number = |i: usize| ((i * 7919 + 13) % 101) as f64 / 50.0 - 1.0;
        let field: Vec<f64> = (0..side * side * channels).map(|i| number(i) + 3.0).collect();
        let weights: Vec<f64> = (0..channels * 9).map(|i| number(i * i + 5)).collect();
        let x = |y: usize, x: usize, c: usize| field[((y % side) * side + x % side) * channels + c];
        let n = (side * side) as f64;
        let pixels = || (0..side).flat_map(|y| (0..side).map(move |x| (y, x)));
        let results: Vec<f64> = pixels()
            .map(|(py, px)| {
                let taps = (0..channels * 9).map(|i| (i / 9, i / 3 % 3, i % 3));
                taps.map(|(c, ky, kx)| weights[(c * 3 + ky) * 3 + kx] * x(py + side + ky - 1, px + side + kx - 1, c))
                    .sum()
            })
            .collect();
        let mean = results.iter().sum::<f64>() / n;
        let variance = results.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
        let means: Vec<f64> = (0..channels).map(|c| pixels().map(|(y, p)| x(y, p, c)).sum::<f64>() / n).collect();
        let pairs = pairs_of(&weights);
        let (products, sums) = pairs.split_at(PAIRS.len() * channels * channels);
        let found: f64 = sums.iter().zip(&means).map(|(w, m)| w * m).sum();
        assert!((found - mean).abs() < 1e-9, "{found} {mean}");
        let mut of_pairs = Vec::new();
        for (down, right) in PAIRS {
            for (c, d) in (0..channels).flat_map(|c| (0..channels).map(move |d| (c, d))) {
                let both = |(y, p): (usize, usize)| {
                    (x(y, p, c) - means[c]) * (x(y + down, (p + side).wrapping_add_signed(right), d) - means[d])
                };
                of_pairs.push(pixels().map(both).sum::<f64>() / n);
            }
        }
        let found: f64 = products.iter().zip(&of_pairs).map(|(w, m)| w * m).sum();
        assert!((found - variance).abs() < 1e-9, "{found} {variance}");
    }
}
