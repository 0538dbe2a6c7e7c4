//! What describes fields and trajectories, in one registry: name → index → formula → reference.
//!
//! Families of a frame (spatial, spectral, cross-channel) are numbers per channel or pair of channels, averaged over them; the
//! temporal, nonlinear and causality families read the per-step metrics of a trajectory, drift its frames, sensitivity the operator at
//! the first field. A trajectory's vector is the mean of its frames' families over time followed by the others; an
//! operator's is the mean, standard deviation and range of those over its realisations. Formulas have NumPy twins in
//! `tests/golden/field.py`, which are written from their words: who changes words changes the twin.

mod architecture;
mod causality;
mod cross;
mod drift;
mod nonlinear;
mod sensitivity;
mod spatial;
mod spectral;
mod temporal;

use crate::fft::Fft;

pub use architecture::{ARCHITECTURE, architecture};

/// One number that describes a field or a trajectory.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// `family.name` is its key.
    pub name: &'static str,
    /// How it is computed.
    pub formula: &'static str,
}

/// Numbers that describe the same thing.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// In front of the names.
    pub name: &'static str,
    /// What formulas speak of.
    pub terms: &'static str,
    /// In order.
    pub features: &'static [Feature],
    /// Where definitions come from.
    pub reference: &'static str,
}

/// What formulas of all families speak of.
pub const TERMS: &str = "\
     x[i, j] is a channel of a frame, i the row from above (y), j the column from the left (x), both from 0 to n - 1 \
     and circular: row n is row 0. Means, variances and standard deviations are over all numbers named and divide by \
     their count. A correlation is Pearson's, 0 with a constant. Quantiles are linear between neighbours (type 7 of \
     Hyndman & Fan). A ratio is 0 where its denominator is. ln is natural. Time t = 0 is the first field and t = T \
     the last; metrics are of every t, frames of t = 0, frames_every, 2 frames_every and so on. A trajectory has the \
     means over its frames of spatial, spectral and cross; an operator the mean, standard deviation and range over \
     its realisations.";

/// The families of a trajectory's vector, in order: three of frames, four of a whole trajectory, one of the operator.
pub const FAMILIES: [Family; 8] = [
    spatial::FAMILY,
    spectral::FAMILY,
    cross::FAMILY,
    temporal::FAMILY,
    nonlinear::FAMILY,
    causality::FAMILY,
    drift::FAMILY,
    sensitivity::FAMILY,
];

/// Per-step metrics, in order.
pub const METRICS: [Feature; 5] = [
    Feature { name: "energy", formula: "mean x^2 over channels and pixels" },
    Feature { name: "entropy", formula: "spatial.entropy" },
    Feature {
        name: "lag1",
        formula: "correlation of all channels and pixels with those of the frame before; 1 at time 0",
    },
    Feature { name: "variance", formula: "mean (x - mean x)^2 over channels and pixels" },
    Feature { name: "mean_abs", formula: "mean |x| over channels and pixels" },
];

/// Numbers of a frame.
pub const FRAME_LEN: usize =
    spatial::FAMILY.features.len() + spectral::FAMILY.features.len() + cross::FAMILY.features.len();
/// Numbers of a trajectory.
pub const TRAJECTORY_LEN: usize = FRAME_LEN
    + temporal::FAMILY.features.len()
    + nonlinear::FAMILY.features.len()
    + causality::FAMILY.features.len()
    + drift::FAMILY.features.len()
    + sensitivity::FAMILY.features.len();

/// Keys of a trajectory's numbers, in order.
pub fn names() -> Vec<String> {
    let of = |family: &Family| {
        let name = family.name;
        family.features.iter().map(move |feature| format!("{name}.{}", feature.name)).collect::<Vec<_>>()
    };
    FAMILIES.iter().flat_map(of).collect()
}

/// Describes frames of one size. All memory is its own.
#[derive(Debug)]
pub struct Describer {
    n: usize,
    channels: usize,
    fft: Fft,
    /// [C, H, W]
    planes: Vec<Vec<f64>>,
    sorted: Vec<f64>,
}

impl Describer {
    /// For fields `[H, W, C]` with H = W = n, a power of two.
    pub fn new(n: usize, channels: usize) -> Self {
        Self { n, channels, fft: Fft::new(n), planes: vec![vec![0.0; n * n]; channels], sorted: vec![0.0; n * n] }
    }

    fn load(&mut self, field: &[f32]) {
        for (c, plane) in self.planes.iter_mut().enumerate() {
            let values = field.iter().skip(c).step_by(self.channels);
            plane.iter_mut().zip(values).for_each(|(to, &x)| *to = f64::from(x));
        }
    }

    /// All families of a frame `[H, W, C]`, [`FRAME_LEN`] numbers.
    pub fn frame(&mut self, field: &[f32], out: &mut [f64]) {
        self.load(field);
        let (spatial_len, spectral_len) = (spatial::FAMILY.features.len(), spectral::FAMILY.features.len());
        out.fill(0.0);
        let share = 1.0 / self.channels as f64;
        let add = |to: &mut [f64], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, x)| *to += x * share);
        for plane in &self.planes {
            add(&mut out[..spatial_len], &spatial::features(plane, self.n, &mut self.sorted));
            add(&mut out[spatial_len..][..spectral_len], &spectral::features(plane, &mut self.fft));
        }
        out[spatial_len + spectral_len..].copy_from_slice(&cross::features(&self.planes, self.n));
    }

    /// Per-step metrics of a frame and the one before it.
    pub fn metrics(&mut self, field: &[f32], before: Option<&[f32]>) -> [f64; METRICS.len()] {
        let n = field.len() as f64;
        let [sum, square, size] = summed(field, field, |x, _| [x, x * x, x.abs()]);
        let mean = sum / n;
        let [variance, ..] = summed(field, field, |x, _| [(x - mean) * (x - mean), 0.0, 0.0]);
        let variance = variance / n;
        self.load(field);
        let entropy = self.planes.iter().map(|plane| spatial::entropy(plane)).sum::<f64>() / self.channels as f64;
        let lag = before.map_or(1.0, |before| {
            let [sum, ..] = summed(before, before, |x, _| [x, 0.0, 0.0]);
            let (a, b) = (mean, sum / n);
            let [ab, bb, _] = summed(field, before, |x, y| [(x - a) * (y - b), (y - b) * (y - b), 0.0]);
            ratio(ab, (variance * n * bb).sqrt())
        });
        [square / n, entropy, lag, variance, size / n]
    }
}

/// The temporal, nonlinear, causality and drift families of a trajectory: metrics `[T, 5]` and frames `[frames, F]`.
pub fn trajectory(metrics: &[[f64; METRICS.len()]], frames: &[Vec<f64>]) -> Vec<f64> {
    let energies: Vec<f64> = metrics.iter().map(|row| row[0]).collect();
    let nonlinear = nonlinear::features(&energies).to_vec();
    [temporal::features(metrics), nonlinear, causality::features(metrics).to_vec(), drift::features(frames)].concat()
}

/// The sensitivity family of an operator for every row of fields `[M, H, W, C]`, H = W = n. `apply` is the operator on such
/// rows, with noise that is a function of the row.
pub fn sensitivity(
    apply: &mut dyn FnMut(&[f32]) -> Vec<f32>,
    fields: &[f32],
    n: usize,
    channels: usize,
    key: u64,
) -> Vec<Vec<f64>> {
    sensitivity::features(apply, fields, n, channels, key)
}

/// Mean, standard deviation and range over rows `[M, F]`, each of F numbers.
pub fn aggregate(rows: &[Vec<f64>]) -> [Vec<f64>; 3] {
    let n = rows.len() as f64;
    let column = |f: usize| rows.iter().map(move |row| row[f]);
    let count = rows.first().map_or(0, Vec::len);
    let mean: Vec<f64> = (0..count).map(|f| column(f).sum::<f64>() / n).collect();
    let std = (0..count).map(|f| (column(f).map(|x| (x - mean[f]).powi(2)).sum::<f64>() / n).sqrt()).collect();
    // The minimum and maximum of numbers pass over NaN: what is not finite anywhere has no range.
    let least = |f: usize| column(f).fold(f64::INFINITY, f64::min);
    let range = (0..count)
        .map(|f| match column(f).all(f64::is_finite) {
            true => column(f).fold(f64::NEG_INFINITY, f64::max) - least(f),
            false => f64::NAN,
        })
        .collect();
    [mean, std, range]
}

/// Sums of three terms of pairs of numbers: eight sums each, so that an addition does not wait for the one before.
#[inline(always)]
fn summed(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> [f64; 3]) -> [f64; 3] {
    let mut sums = [[0.0; 8]; 3];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for (i, (&x, &y)) in a.iter().zip(b).enumerate() {
            let terms = term(f64::from(x), f64::from(y));
            for (sums, term) in sums.iter_mut().zip(terms) {
                sums[i] += term;
            }
        }
    }
    sums.map(|sums| sums.iter().sum())
}

/// a/b, or 0 where b is 0: of constant fields.
fn ratio(a: f64, b: f64) -> f64 {
    if b.abs() > 1e-300 { a / b } else { 0.0 }
}

fn mean(x: &[f64]) -> f64 {
    ratio(x.iter().sum(), x.len() as f64)
}

fn variance(x: &[f64]) -> f64 {
    let middle = mean(x);
    ratio(x.iter().map(|x| (x - middle).powi(2)).sum(), x.len() as f64)
}

/// Pearson's correlation, 0 with a constant.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (ma, mb) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        ab += (x - ma) * (y - mb);
        aa += (x - ma).powi(2);
        bb += (y - mb).powi(2);
    }
    ratio(ab, (aa * bb).sqrt())
}

/// A quantile of sorted numbers, linear between neighbours (type 7 of Hyndman & Fan, 1996; NumPy's default).
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = p * (sorted.len() - 1) as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}
