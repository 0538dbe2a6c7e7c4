//! The first convolution with what follows it in one launch, and what it has to know of fields beforehand.

use super::kernels::{FinishArgs, GatherArgs, Step, numbers};
use super::layout::{Build, bf16};
use crate::Norm;
use crate::shards::{half_bits, half_value};
use operant_base::{Error, Result};
use operant_device::cuda::{DevicePtr, Params, TensorMap};
use operant_nn::Precision;

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
    pub out: TensorMap,
    pub f: FinishArgs,
    pub words: DevicePtr,
    pub weights: DevicePtr,
}
impl Params for FirstArgs {}

impl FirstArgs {
    /// Blocks of four warps, each with rows of 16 pixels: all that run at once, unless there is less to do.
    pub(super) fn blocks(&self, at_once: u32) -> u32 {
        (self.f.images * self.f.side * self.f.side / 64).min(at_once)
    }
}

/// Blocks of a cluster that surveys an image, and their threads.
pub(super) const SURVEYORS: usize = 8;
pub(super) const SURVEY_THREADS: u32 = 256;
/// Floats of its warps' sums.
const SURVEY_SUMS: usize = SURVEY_THREADS as usize / 32 * 13 * 16;
/// Blocks of `first` that run at once on a multiprocessor, and shared memory of each: 16 pixels of each warp and its scales and
/// shifts, weights.
pub(super) const FIRST_AT_ONCE: u32 = 6;
pub(super) const FIRST_SHARED: usize = 1024 + 4 * (16 * 128 + 512) + 4 * FIRST_WEIGHTS;
/// Words of an operator's weights there: half of the outputs, nine times four words a lane.
const FIRST_WEIGHTS: usize = 2 * 9 * 32 * 4;
/// Channels of a pixel's words.
const WORDS: usize = 4;
/// Pairs of pixels, each once, that a kernel of 3×3 taps brings together: rows and columns between them.
const PAIRS: [(usize, isize); 13] =
    [(0, 0), (0, 1), (0, 2), (1, -2), (1, -1), (1, 0), (1, 1), (1, 2), (2, -2), (2, -1), (2, 0), (2, 1), (2, 2)];
const TAPS: usize = 3;

/// Shared memory of `survey`: a block's rows and two more as they are, later sums of its warps; and both parts of numbers, two to a
/// word, rows as quarters with four more columns each, and some that keep banks apart.
pub(super) fn survey_shared(side: usize, channels: usize) -> usize {
    if !(64..=256).contains(&side) || channels >= WORDS {
        return 0;
    }
    let rows = side / SURVEYORS;
    let raw = ((rows + 2) * side * channels).max(SURVEY_SUMS);
    4 * (raw + 2 * channels * ((rows / 2 + 2) * (side + 16) + 16))
}

/// The weights `[64, C, 3, 3]` as lanes of `first` read them: of even groups of eight outputs and of odd ones, steps of a pixel's words
/// by pairs (a row's left and right tap, then the middle ones of two rows) and one more. A step has a lane's output and channel;
/// both parts of a number meet the same weight.
fn weights_by_lane(weights: &[u16], channels: usize) -> Vec<u32> {
    let step = |i: usize| match i {
        0..6 => (i / 2, i % 2 * 2),
        _ => (i - 6, 1),
    };
    let word = |i: usize| {
        let (half, four, lane, which) = (i / (9 * 128), i / 128 % 9, i / 4 % 32, i % 4);
        let (step, group) =
            if four < 8 { (step(four / 2 * 2 + which % 2), four % 2 * 2 + which / 2) } else { (step(8), which) };
        let (output, c) = ((group * 2 + half) * 8 + lane / 4, lane % 4);
        if c < channels {
            u32::from(weights[((output * channels + c) * TAPS + step.0) * TAPS + step.1]) * 0x1_0001
        } else {
            0
        }
    };
    (0..FIRST_WEIGHTS).map(word).collect()
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
    /// depend on how many there are; residual operators, whose batches are small, are not faster with them.
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
        let (rows, grid, channels) = (self.rows(), operator.grid, operator.channels);
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
            weights.extend(weights_by_lane(&bits, channels));
            let of_outputs: Vec<Vec<f64>> = bits
                .chunks_exact(of)
                .map(|output| pairs_of(&output.iter().map(|&bits| value(bits)).collect::<Vec<_>>()))
                .collect();
            let count = of_outputs[0].len();
            pairs.extend((0..count).flat_map(|i| of_outputs.iter().map(move |of| of[i] as f32)));
        }
        let (weights, pairs) = (self.upload(&weights)?, self.upload(&pairs)?);
        // A row behind the last, which is read and not used.
        let words = self.room((rows * (grid + 2) + 1) * (grid + WORDS) * WORDS)?;
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
        list.push(Step::First(FirstArgs { out, f: finish, words, weights }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every weight lies where the lane that multiplies by it reads, as `first` in `first.cu` does.
    #[test]
    fn lanes_have_their_weights() {
        let channels = 2;
        let weights: Vec<u16> = (1..=64 * channels as u16 * 9).collect();
        let words = weights_by_lane(&weights, channels);
        for (half, lane, group) in (0..2).flat_map(|half| (0..32 * 4).map(move |i| (half, i / 4, i % 4))) {
            let read = |four: usize, which: usize| words[((half * 9 + four) * 32 + lane) * 4 + which];
            let (output, c) = ((group * 2 + half) * 8 + lane / 4, lane % 4);
            let weight = |row: usize, column: usize| match c < channels {
                true => u32::from(weights[((output * channels + c) * 3 + row) * 3 + column]) * 0x1_0001,
                false => 0,
            };
            let pair = |i: usize| [0, 1].map(|which| read(2 * i + group / 2, group % 2 * 2 + which));
            for row in 0..3 {
                assert_eq!(pair(row), [weight(row, 0), weight(row, 2)], "row {row} of output {output}");
            }
            assert_eq!((pair(3), read(8, group)), ([weight(0, 1), weight(1, 1)], weight(2, 1)), "output {output}");
        }
    }

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
