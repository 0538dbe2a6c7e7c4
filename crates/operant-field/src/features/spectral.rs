//! The spectral family: how a plane's variance is spread over wave numbers, P = |FFT(x − mean)|²/n⁴, whose sum is the variance.

use super::{Family, Feature, mean, ratio};
use crate::fft::{Complex, Fft, frequency};

const fn f(name: &'static str, formula: &'static str) -> Feature {
    Feature { name, formula }
}

/// In the order of [`features`].
pub(super) const FAMILY: Family = Family {
    name: "spectral",
    terms: "of every channel, then averaged over channels. P = |sum (x[i, j] - mean x) e^(-2 pi sqrt(-1) (k_y i + \
            k_x j) / n)|^2 / n^4 for the n^2 - 1 modes (k_y, k_x) other than (0, 0), both from -n/2 to n/2 - 1; sums \
            and means are over these modes. k = sqrt(k_x^2 + k_y^2) in cycles per side, k_max = n/2",
    features: &[
        f("band0_mean", "mean P over 0 < k < 0.2 k_max"),
        f("band0_max", "largest P over 0 < k < 0.2 k_max"),
        f("band0_std", "standard deviation of P over 0 < k < 0.2 k_max"),
        f("band1_mean", "mean P over 0.2 k_max <= k < 0.4 k_max"),
        f("band1_max", "largest P over 0.2 k_max <= k < 0.4 k_max"),
        f("band1_std", "standard deviation of P over 0.2 k_max <= k < 0.4 k_max"),
        f("band2_mean", "mean P over 0.4 k_max <= k < 0.6 k_max"),
        f("band2_max", "largest P over 0.4 k_max <= k < 0.6 k_max"),
        f("band2_std", "standard deviation of P over 0.4 k_max <= k < 0.6 k_max"),
        f("band3_mean", "mean P over 0.6 k_max <= k < 0.8 k_max"),
        f("band3_max", "largest P over 0.6 k_max <= k < 0.8 k_max"),
        f("band3_std", "standard deviation of P over 0.6 k_max <= k < 0.8 k_max"),
        f("band4_mean", "mean P over 0.8 k_max <= k, corners included"),
        f("band4_max", "largest P over 0.8 k_max <= k, corners included"),
        f("band4_std", "standard deviation of P over 0.8 k_max <= k, corners included"),
        f(
            "dominant",
            "k of the largest P; the first of those that differ by 1e-9 of it at most, k_y and then k_x going 0 to \
             n/2 - 1, -n/2 to -1",
        ),
        f("dominant_share", "largest P / sum P"),
        f("centroid", "sum k P / sum P"),
        f("centroid_x", "sum |k_x| P / sum P"),
        f("centroid_y", "sum |k_y| P / sum P"),
        f("bandwidth", "sqrt(sum (k - centroid)^2 P / sum P)"),
        f("low_share", "sum of P with k < 0.25 k_max / sum P"),
        f("middle_share", "sum of P with 0.25 k_max <= k < 0.5 k_max / sum P"),
        f("high_share", "sum of P with 0.5 k_max <= k / sum P"),
        f("flatness", "geometric mean of max(P, 1e-30) / mean P"),
        f("entropy", "-sum p ln p / ln(n^2 - 1), p = P / sum P; 0 for a constant"),
        f("rolloff85", "least whole K with sum of P over k rounded <= K at least 0.85 sum P"),
        f("rolloff95", "least whole K with sum of P over k rounded <= K at least 0.95 sum P"),
        f("anisotropy", "|sum P e^(2 sqrt(-1) a)| / sum P, a the angle of (k_x, k_y)"),
        f(
            "slope",
            "least squares slope of ln max(mean of P with k rounded = K, 1e-30) by ln K, K = 1 to n/2, all K alike",
        ),
        f("power", "sum P, which is the variance of x"),
    ],
    reference: "Peeters, A large set of audio features, 2004, with radial wave numbers in place of frequencies",
};

const BANDS: usize = 5;

/// Of a plane `[n, n]`.
pub(super) fn features(x: &[f64], fft: &mut Fft) -> [f64; FAMILY.features.len()] {
    let n = fft.len();
    let (middle, scale) = (mean(x), 1.0 / (n as f64).powi(4));
    let mut spectrum: Vec<Complex> = x.iter().map(|x| [x - middle, 0.0]).collect();
    fft.forward_square(&mut spectrum);
    let k_max = n as f64 / 2.0;
    let radial_len = (n as f64 * std::f64::consts::FRAC_1_SQRT_2).round() as usize + 1;
    let (mut radial, mut radial_count) = (vec![0.0; radial_len], vec![0u32; radial_len]);
    let (mut sum, mut most, mut most_k) = (0.0, -1.0, 0.0);
    let mut bands = [[0.0f64; 4]; BANDS];
    let (mut k_sum, mut k2_sum, mut kx_sum, mut ky_sum) = (0.0, 0.0, 0.0, 0.0);
    let (mut shares, mut logs, mut turns) = ([0.0; 3], 0.0, [0.0; 2]);
    let mut p_log_p = 0.0;
    for (at, value) in spectrum.iter().enumerate().skip(1) {
        let p = (value[0] * value[0] + value[1] * value[1]) * scale;
        // n is a power of two.
        let (ky, kx) = (frequency(at >> n.trailing_zeros(), n), frequency(at & (n - 1), n));
        let k2 = kx * kx + ky * ky;
        let k = k2.sqrt();
        let band = &mut bands[((k / k_max * BANDS as f64) as usize).min(BANDS - 1)];
        *band = [band[0] + 1.0, band[1] + p, band[2].max(p), band[3] + p * p];
        sum += p;
        if p > most * (1.0 + 1e-9) {
            (most, most_k) = (p, k);
        }
        k_sum += k * p;
        k2_sum += k2 * p;
        kx_sum += kx.abs() * p;
        ky_sum += ky.abs() * p;
        shares[if k < 0.25 * k_max { 0 } else { 1 + usize::from(k >= 0.5 * k_max) }] += p;
        logs += p.max(1e-30).ln();
        if p > 0.0 {
            p_log_p += p * p.ln();
        }
        turns[0] += p * (kx * kx - ky * ky) / k2;
        turns[1] += p * 2.0 * kx * ky / k2;
        let place = k.round() as usize;
        radial[place] += p;
        radial_count[place] += 1;
    }
    let count = (n * n - 1) as f64;
    let centroid = ratio(k_sum, sum);
    let roll = |share: f64| {
        let mut reached = 0.0;
        let place = radial.iter().position(|p| {
            reached += p;
            reached >= share * sum
        });
        if sum > 0.0 { place.unwrap_or(radial_len - 1) as f64 } else { 0.0 }
    };
    // Σ −p ln p with p = P/ΣP is ln ΣP − Σ P ln P / ΣP.
    let entropy = if sum > 0.0 { (sum.ln() - p_log_p / sum) / count.ln() } else { 0.0 };
    let (mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0);
    for (k, (power, count)) in radial.iter().zip(&radial_count).enumerate().take(n / 2 + 1).skip(1) {
        let (lx, ly) = ((k as f64).ln(), (power / f64::from(*count)).max(1e-30).ln());
        sx += lx;
        sy += ly;
        sxx += lx * lx;
        sxy += lx * ly;
    }
    let m = (n / 2) as f64;
    let mut out = [0.0; FAMILY.features.len()];
    for (to, band) in out.chunks_exact_mut(3).zip(bands) {
        let average = ratio(band[1], band[0]);
        to.copy_from_slice(&[average, band[2], (ratio(band[3], band[0]) - average * average).max(0.0).sqrt()]);
    }
    let rest = [
        if sum > 0.0 { most_k } else { 0.0 },
        ratio(most.max(0.0), sum),
        centroid,
        ratio(kx_sum, sum),
        ratio(ky_sum, sum),
        (ratio(k2_sum, sum) - centroid * centroid).max(0.0).sqrt(),
        ratio(shares[0], sum),
        ratio(shares[1], sum),
        ratio(shares[2], sum),
        ratio((logs / count).exp(), sum / count),
        entropy,
        roll(0.85),
        roll(0.95),
        ratio(turns[0].hypot(turns[1]), sum),
        ratio(m * sxy - sx * sy, m * sxx - sx * sx),
        sum,
    ];
    out[3 * BANDS..].copy_from_slice(&rest);
    out
}
