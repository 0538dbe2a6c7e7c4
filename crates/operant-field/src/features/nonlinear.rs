//! The nonlinear family: recurrences and entropies of the energy e of a trajectory, standardised to z.

use super::{Family, Feature, mean, ratio, variance};

const fn f(name: &'static str, formula: &'static str) -> Feature {
    Feature { name, formula }
}

/// In the order of [`features`].
pub(super) const FAMILY: Family = Family {
    name: "nonlinear",
    terms: "z = (e - mean e) / (standard deviation of e), e the metric energy at the N = T + 1 times from 0 on; \
            pairs are of times i < j. All are 0 for N < 16 and where e is still, NaN where an e is not finite",
    features: &[
        f("recurrence", "share of pairs with |z_i - z_j| < 0.2, recurrent ones"),
        f(
            "determinism",
            "share of the recurrent pairs that are in a row of at least two along (i, j), (i+1, j+1), ...",
        ),
        f("longest_diagonal", "most recurrent pairs in such a row / N"),
        f(
            "laminarity",
            "share of the recurrent pairs that are in a row of at least two along (i, j), (i, j+1), ..., j > i",
        ),
        f(
            "correlation_dimension",
            "log2(C(0.5) / C(0.25)), C(u) the number of pairs of i, j = 0 to N - 3 with |z_i - z_j|, |z_i+1 - z_j+1| \
             and |z_i+2 - z_j+2| all below u; 0 if C(0.25) is 0",
        ),
        f(
            "sample_entropy",
            "-ln(C(0.2) / B), C as there and B the same number with the first two differences alone; 0 if C(0.2) is 0",
        ),
        f(
            "permutation_entropy",
            "-sum p ln p / ln 24, p the shares of the orders of (e_t, e_t+1, e_t+2, e_t+3), of equals the first as \
             the least",
        ),
        f("hurst", "least squares slope of ln max(sqrt mean (z_t+l - z_t)^2, 1e-300) by ln l, l = 1, 2, 4, 8"),
    ],
    reference: "Marwan et al., 2007; Grassberger & Procaccia, 1983; Richman & Moorman, 2000; Bandt & Pompe, 2002",
};

const NEAR: f64 = 0.2;

/// Shares of pairs i < j whose windows of `m` differ by less than `r`.
fn near_pairs(z: &[f64], m: usize, r: f64, count: usize) -> f64 {
    let near = |i: usize, j: usize| (0..m).all(|k| (z[i + k] - z[j + k]).abs() < r);
    let found = (0..count).map(|i| (i + 1..count).filter(|&j| near(i, j)).count()).sum::<usize>();
    found as f64
}

/// Sum of the lengths of runs of at least 2, and the longest run.
fn runs(marks: impl Iterator<Item = bool>) -> (usize, usize) {
    let (mut sum, mut longest, mut run) = (0, 0, 0);
    for mark in marks.chain([false]) {
        if mark {
            run += 1;
            continue;
        }
        sum += if run >= 2 { run } else { 0 };
        longest = longest.max(run);
        run = 0;
    }
    (sum, longest)
}

/// Of energies, at least 16 that move; else all 0.
pub(super) fn features(e: &[f64]) -> [f64; FAMILY.features.len()] {
    let n = e.len();
    let (middle, std) = (mean(e), variance(e).sqrt());
    if n < 16 || std.partial_cmp(&(1e-9 * middle.abs().max(1e-300))) != Some(std::cmp::Ordering::Greater) {
        return [if middle.is_finite() { 0.0 } else { f64::NAN }; FAMILY.features.len()];
    }
    let z: Vec<f64> = e.iter().map(|x| (x - middle) / std).collect();
    let near = |i: usize, j: usize| (z[i] - z[j]).abs() < NEAR;
    let recurrent = near_pairs(&z, 1, NEAR, n);
    let diagonals = (1..n).map(|lag| runs((0..n - lag).map(|i| near(i, i + lag))));
    let (on_diagonals, longest) = diagonals.fold((0, 0), |(sum, most), (s, m)| (sum + s, most.max(m)));
    let on_verticals: usize = (0..n).map(|i| runs((i + 1..n).map(|j| near(i, j))).0).sum();
    let (wide, narrow) = (near_pairs(&z, 3, 0.5, n - 2), near_pairs(&z, 3, 0.25, n - 2));
    let (a, b) = (near_pairs(&z, 3, NEAR, n - 2), near_pairs(&z, 2, NEAR, n - 2));
    let mut orders = std::collections::BTreeMap::<[u8; 4], u32>::new();
    for w in e.windows(4) {
        let mut order = [0u8, 1, 2, 3];
        order.sort_by(|&a, &b| w[usize::from(a)].total_cmp(&w[usize::from(b)]));
        *orders.entry(order).or_default() += 1;
    }
    let windows = (n - 3) as f64;
    let entropy: f64 = orders.values().map(|&count| f64::from(count) / windows).map(|p| -p * p.ln()).sum();
    let lags = [1usize, 2, 4, 8];
    let spread = |lag: usize| {
        let squares: Vec<f64> = z.iter().zip(&z[lag..]).map(|(a, b)| (b - a).powi(2)).collect();
        mean(&squares).sqrt().max(1e-300).ln()
    };
    let (x, y) = (lags.map(|lag| (lag as f64).ln()), lags.map(spread));
    let (mx, my) = (mean(&x), mean(&y));
    let above: f64 = x.iter().zip(&y).map(|(x, y)| (x - mx) * (y - my)).sum();
    let below: f64 = x.iter().map(|x| (x - mx).powi(2)).sum();
    [
        recurrent / (n * (n - 1) / 2) as f64,
        ratio(on_diagonals as f64, recurrent),
        longest as f64 / n as f64,
        ratio(on_verticals as f64, recurrent),
        if narrow > 0.0 { (wide / narrow).log2() } else { 0.0 },
        if a > 0.0 { -(a / b).ln() } else { 0.0 },
        entropy / 24.0f64.ln(),
        ratio(above, below),
    ]
}
