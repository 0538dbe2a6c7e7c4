//! The cross-channel family: how the planes of a field go together. All are 0 for one channel.

use super::spatial::gradient_sizes;
use super::{Family, Feature, correlation, mean, ratio, variance};

const fn f(name: &'static str, formula: &'static str) -> Feature {
    Feature { name, formula }
}

/// In the order of [`features`].
pub(super) const FAMILY: Family = Family {
    name: "cross",
    terms: "over the pairs of channels (a, b) with b < a, r their correlation; R is the matrix of r with ones on its \
            diagonal. All are 0 for one channel",
    features: &[
        f("correlation_mean", "mean r"),
        f("correlation_abs", "mean |r|"),
        f("correlation_max", "largest |r|"),
        f("correlation_min", "least r"),
        f("correlation_std", "standard deviation of r"),
        f("gradient_correlation", "mean correlation of |g| of a with |g| of b, g as in spatial"),
        f("shifted_correlation", "mean correlation of a[i, j] with b[i, j+1]"),
        f("distance", "mean of sqrt mean (a - b)^2"),
        f("variance_ratio", "ln(largest / least), of the channels' variances, each at least 1e-30"),
        f("first_share", "largest eigenvalue of R / channels"),
        f("participation", "(sum l)^2 / sum l^2 over the eigenvalues l of R"),
        f(
            "total_correlation",
            "-1/2 ln det R, kept within 0 and 50: what channels tell of each other if they are Gaussian",
        ),
    ],
    reference: "total correlation: Watanabe, 1960; participation ratio: Gao et al., 2017",
};

/// Eigenvalues of a symmetric matrix by Jacobi's rotations.
fn eigenvalues(matrix: &mut [f64], n: usize) -> Vec<f64> {
    for _ in 0..50 {
        let mut off = 0.0;
        for p in 0..n {
            for q in p + 1..n {
                let a = matrix[p * n + q];
                off += a * a;
                if a.abs() < 1e-300 {
                    continue;
                }
                let theta = (matrix[q * n + q] - matrix[p * n + p]) / (2.0 * a);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let t = if theta == 0.0 { 1.0 } else { t };
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                for k in 0..n {
                    let (x, y) = (matrix[k * n + p], matrix[k * n + q]);
                    (matrix[k * n + p], matrix[k * n + q]) = (c * x - s * y, s * x + c * y);
                }
                for k in 0..n {
                    let (x, y) = (matrix[p * n + k], matrix[q * n + k]);
                    (matrix[p * n + k], matrix[q * n + k]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
        if off < 1e-24 {
            break;
        }
    }
    (0..n).map(|i| matrix[i * n + i]).collect()
}

/// Of planes `[C][n·n]`.
pub(super) fn features(planes: &[Vec<f64>], n: usize) -> [f64; FAMILY.features.len()] {
    let channels = planes.len();
    if channels < 2 {
        return [0.0; FAMILY.features.len()];
    }
    let gradients: Vec<Vec<f64>> = planes.iter().map(|plane| gradient_sizes(plane, n)).collect();
    let mut matrix = vec![0.0; channels * channels];
    let (mut correlations, mut of_gradients, mut of_shifted, mut distances) = (vec![], vec![], vec![], vec![]);
    for a in 0..channels {
        matrix[a * channels + a] = 1.0;
        for b in 0..a {
            let r = correlation(&planes[a], &planes[b]);
            (matrix[a * channels + b], matrix[b * channels + a]) = (r, r);
            correlations.push(r);
            of_gradients.push(correlation(&gradients[a], &gradients[b]));
            // n is a power of two.
            let last = n - 1;
            let shifted: Vec<f64> = (0..n * n).map(|i| planes[b][(i & !last) + ((i + 1) & last)]).collect();
            of_shifted.push(correlation(&planes[a], &shifted));
            let square = planes[a].iter().zip(&planes[b]).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            distances.push((square / (n * n) as f64).sqrt());
        }
    }
    let variances: Vec<f64> = planes.iter().map(|plane| variance(plane).max(1e-30)).collect();
    let most = |x: &[f64]| x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = |x: &[f64]| x.iter().copied().fold(f64::INFINITY, f64::min);
    let sizes: Vec<f64> = correlations.iter().map(|r| r.abs()).collect();
    let values = eigenvalues(&mut matrix, channels);
    let (sum, square) = (values.iter().sum::<f64>(), values.iter().map(|l| l * l).sum::<f64>());
    let total = -0.5 * values.iter().map(|l| l.max(1e-300).ln()).sum::<f64>();
    [
        mean(&correlations),
        mean(&sizes),
        most(&sizes),
        least(&correlations),
        variance(&correlations).sqrt(),
        mean(&of_gradients),
        mean(&of_shifted),
        mean(&distances),
        (most(&variances) / least(&variances)).ln(),
        most(&values) / channels as f64,
        ratio(sum * sum, square),
        total.clamp(0.0, 50.0),
    ]
}
