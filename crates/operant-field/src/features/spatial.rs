//! The spatial family: moments, extrema, quantiles, gradients and Laplacians of one periodic plane.

use super::{Family, Feature, mean, quantile, ratio};

const fn f(name: &'static str, formula: &'static str) -> Feature {
    Feature { name, formula }
}

/// In the order of [`features`].
pub(super) const FAMILY: Family = Family {
    name: "spatial",
    terms: "of every channel, then averaged over channels; units are those of x. g_x[i, j] = (a[i-1] + 2 a[i] + \
            a[i+1]) / 8 with a[i] = x[i, j+1] - x[i, j-1], per pixel (Sobel); g_y is the same with rows and columns \
            exchanged; |g| = sqrt(g_x^2 + g_y^2). L[i, j] = x[i-1, j] + x[i+1, j] + x[i, j-1] + x[i, j+1] - 4 x[i, j]",
    features: &[
        f("mean", "mean x"),
        f("variance", "mean (x - mean x)^2"),
        f("std", "sqrt variance"),
        f("skewness", "mean (x - mean x)^3 / std^3"),
        f("kurtosis", "mean (x - mean x)^4 / variance^2 - 3; 0 where variance is at most 1e-150"),
        f("min", "least x"),
        f("max", "largest x"),
        f("range", "max - min"),
        f("iqr", "q75 - q25"),
        f("mad", "median of |x - median x|"),
        f("mean_abs", "mean |x|"),
        f("rms", "sqrt mean x^2"),
        f("gradient_mean", "mean |g|"),
        f("gradient_std", "standard deviation of |g|"),
        f("gradient_max", "largest |g|"),
        f("gradient_x", "mean |g_x|"),
        f("gradient_y", "mean |g_y|"),
        f("anisotropy", "(A - B) / (A + B), A = sum g_x^2, B = sum g_y^2"),
        f("coherence", "sqrt((A - B)^2 + 4 C^2) / (A + B), A and B as there, C = sum g_x g_y"),
        f("laplacian_mean_abs", "mean |L|"),
        f("laplacian_std", "standard deviation of L"),
        f("laplacian_energy", "mean L^2"),
        f("q01", "quantile 0.01 of x"),
        f("q05", "quantile 0.05 of x"),
        f("q25", "quantile 0.25 of x"),
        f("q50", "median x"),
        f("q75", "quantile 0.75 of x"),
        f("q95", "quantile 0.95 of x"),
        f("q99", "quantile 0.99 of x"),
        f(
            "entropy",
            "-sum p ln p, p the shares of pixels in 32 equal bins from the least to the largest x, each bin with its \
             lower edge, the last with both; 0 for a constant",
        ),
        f("positive", "share of x > 0"),
        f(
            "crossings",
            "share of neighbours, x[i, j] with x[i, j+1] and with x[i+1, j], of which just one is above mean x",
        ),
        f("lag_x", "correlation of x[i, j] with x[i, j+1]"),
        f("lag_y", "correlation of x[i, j] with x[i+1, j]"),
    ],
    reference: "Gonzalez & Woods, Digital Image Processing; coherence: Bigun & Granlund, 1987",
};

/// Bins of histograms.
const BINS: usize = 32;

/// The least and the most number; NaN is passed over.
fn extremes(x: &[f64]) -> (f64, f64) {
    // Eight at a time, so that one comparison does not wait for the one before.
    let (mut low, mut high) = ([f64::INFINITY; 8], [f64::NEG_INFINITY; 8]);
    let chunks = x.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (i, &x) in chunk.iter().enumerate() {
            low[i] = if x < low[i] { x } else { low[i] };
            high[i] = if x > high[i] { x } else { high[i] };
        }
    }
    let least = low.iter().chain(rest).fold(f64::INFINITY, |a, &b| a.min(b));
    (least, high.iter().chain(rest).fold(f64::NEG_INFINITY, |a, &b| a.max(b)))
}

/// Entropy of a histogram from the least to the most number, in nats.
pub(super) fn entropy(x: &[f64]) -> f64 {
    let (low, high) = extremes(x);
    if !(high - low).is_finite() {
        return f64::NAN;
    }
    if high <= low {
        return 0.0;
    }
    let (mut bins, step) = ([0u32; BINS], (high - low) / BINS as f64);
    // Bins are from edge to edge; rounding of the product may name a neighbour. Nothing lies beyond the last edge.
    let mut edges: [f64; BINS + 1] = std::array::from_fn(|i| low + i as f64 * step);
    edges[BINS] = f64::INFINITY;
    let scale = 1.0 / step;
    for &x in x {
        let place = (((x - low) * scale) as usize).min(BINS - 1);
        let above = usize::from(x >= edges[place + 1]);
        let below = usize::from(x < edges[place]);
        bins[place + above - below] += 1;
    }
    let n = x.len() as f64;
    -bins.iter().filter(|&&count| count > 0).map(|&count| f64::from(count) / n).map(|p| p * p.ln()).sum::<f64>()
}

/// Sobel's derivatives of a pixel, along x and y.
#[inline]
fn sobel(x: &[f64], n: usize, i: usize, j: usize) -> (f64, f64) {
    // n is a power of two.
    let last = n - 1;
    let (up, down) = (((i + last) & last) * n, ((i + 1) & last) * n);
    let (row, left, right) = (i * n, (j + last) & last, (j + 1) & last);
    let gx =
        x[up + right] + 2.0 * x[row + right] + x[down + right] - (x[up + left] + 2.0 * x[row + left] + x[down + left]);
    let gy = x[down + left] + 2.0 * x[down + j] + x[down + right] - (x[up + left] + 2.0 * x[up + j] + x[up + right]);
    (gx / 8.0, gy / 8.0)
}

/// Sizes of Sobel's gradients.
pub(super) fn gradient_sizes(x: &[f64], n: usize) -> Vec<f64> {
    let size = |at: usize| {
        let (gx, gy) = sobel(x, n, at >> n.trailing_zeros(), at & (n - 1));
        (gx * gx + gy * gy).sqrt()
    };
    (0..n * n).map(size).collect()
}

/// Numbers that single precision holds, in the order of `total_cmp`: by digits of 11 bits of their keys.
fn sort_singles(x: &[f64], sorted: &mut [f64]) {
    const DIGIT: u32 = 11;
    // Bits of negative numbers are turned, so that keys are ordered as numbers are.
    let key = |x: f64| {
        let bits = (x as f32).to_bits();
        bits ^ (((bits as i32 >> 31) as u32) | 0x8000_0000)
    };
    let mut keys: Vec<u32> = x.iter().map(|&x| key(x)).collect();
    let mut other = vec![0; keys.len()];
    for round in 0..3 {
        let digit = |key: u32| (key >> (round * DIGIT) & ((1 << DIGIT) - 1)) as usize;
        let mut places = [0u32; 1 << DIGIT];
        keys.iter().for_each(|&key| places[digit(key)] += 1);
        let mut begun = 0;
        for place in &mut places {
            begun += std::mem::replace(place, begun);
        }
        for &key in &keys {
            let place = &mut places[digit(key)];
            other[*place as usize] = key;
            *place += 1;
        }
        std::mem::swap(&mut keys, &mut other);
    }
    let number = |key: u32| if key >> 31 == 1 { key ^ 0x8000_0000 } else { !key };
    sorted.iter_mut().zip(&keys).for_each(|(to, &key)| *to = f64::from(f32::from_bits(number(key))));
}

/// The median, of numbers in any order.
fn middle_of(x: &mut [f64]) -> f64 {
    let at = (x.len() - 1) / 2;
    let even = x.len().is_multiple_of(2);
    let (_, &mut low, above) = x.select_nth_unstable_by(at, f64::total_cmp);
    let high = if even { above.iter().copied().min_by(f64::total_cmp).unwrap_or(low) } else { low };
    low + (high - low) * (0.5 * f64::from(u8::from(even)))
}

/// Of a plane `[n, n]` of numbers that single precision holds, n a power of two; `sorted` is as long.
pub(super) fn features(x: &[f64], n: usize, sorted: &mut [f64]) -> [f64; FAMILY.features.len()] {
    let count = (n * n) as f64;
    let middle = mean(x);
    let (mut m2, mut m3, mut m4, mut size, mut square, mut positive) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for &x in x {
        let d = x - middle;
        let d2 = d * d;
        m2 += d2;
        m3 += d2 * d;
        m4 += d2 * d2;
        size += x.abs();
        square += x * x;
        positive += f64::from(u8::from(x > 0.0));
    }
    (m2, m3, m4) = (m2 / count, m3 / count, m4 / count);
    let (mut jxx, mut jyy, mut jxy, mut gx_sum, mut gy_sum, mut g_sum, mut g_max) =
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0f64);
    let (mut l_sum, mut l_abs, mut l_square, mut crossings, mut lag_x, mut lag_y) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    let last = n - 1;
    for i in 0..n {
        for j in 0..n {
            let (gx, gy) = sobel(x, n, i, j);
            jxx += gx * gx;
            jyy += gy * gy;
            jxy += gx * gy;
            gx_sum += gx.abs();
            gy_sum += gy.abs();
            let g = (gx * gx + gy * gy).sqrt();
            g_sum += g;
            g_max = g_max.max(g);
            let here = x[i * n + j];
            let (right, down) = (x[i * n + ((j + 1) & last)], x[((i + 1) & last) * n + j]);
            let l = right + down + x[i * n + ((j + last) & last)] + x[((i + last) & last) * n + j] - 4.0 * here;
            l_sum += l;
            l_abs += l.abs();
            l_square += l * l;
            let above = here > middle;
            crossings += f64::from(u8::from(above != (right > middle))) + f64::from(u8::from(above != (down > middle)));
            lag_x += (here - middle) * (right - middle);
            lag_y += (here - middle) * (down - middle);
        }
    }
    let variance_of = |sum: f64, square: f64| (square / count - (sum / count).powi(2)).max(0.0);
    sort_singles(x, sorted);
    let q = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99].map(|p| quantile(sorted, p));
    let (low, high, median) = (sorted[0], sorted[sorted.len() - 1], q[3]);
    sorted.iter_mut().for_each(|x| *x = (*x - median).abs());
    let mad = middle_of(sorted);
    let std = m2.sqrt();
    [
        middle,
        m2,
        std,
        ratio(m3, m2 * std),
        if m2 > 1e-150 { m4 / (m2 * m2) - 3.0 } else { 0.0 },
        low,
        high,
        high - low,
        q[4] - q[2],
        mad,
        size / count,
        (square / count).sqrt(),
        g_sum / count,
        variance_of(g_sum, jxx + jyy).sqrt(),
        g_max,
        gx_sum / count,
        gy_sum / count,
        ratio(jxx - jyy, jxx + jyy),
        ratio(((jxx - jyy).powi(2) + 4.0 * jxy * jxy).sqrt(), jxx + jyy),
        l_abs / count,
        variance_of(l_sum, l_square).sqrt(),
        l_square / count,
        q[0],
        q[1],
        q[2],
        q[3],
        q[4],
        q[5],
        q[6],
        entropy(x),
        positive / count,
        crossings / (2.0 * count),
        ratio(lag_x / count, m2),
        ratio(lag_y / count, m2),
    ]
}
