//! The temporal family: how the per-step metrics of a trajectory go. e is the energy, r the lag-1 correlation of frames.

use super::{Family, Feature, METRICS, mean, quantile, ratio, variance};
use std::f64::consts::TAU;

const fn f(name: &'static str, formula: &'static str) -> Feature {
    Feature { name, formula }
}

/// In the order of [`features`].
pub(super) const FAMILY: Family = Family {
    name: "temporal",
    terms: "e, h, r, v and s are the metrics energy, entropy, lag1, variance and mean_abs at the N = T + 1 times \
            from 0 on, so that r_0 = 1. A tenth is m = max(floor(N/10), 1) times, the windows are the floor(N/m) \
            stretches of m times from t = 0 on. Slopes are those of least squares with a constant, per step. e is \
            still if its standard deviation is at most 1e-9 |mean e|. All are 0 for N < 8, NaN where a metric is not \
            finite",
    features: &[
        f("energy_mean", "mean e"),
        f("energy_std", "standard deviation of e"),
        f("energy_min", "least e"),
        f("energy_max", "largest e"),
        f("growth", "slope of ln(e + 1e-12)"),
        f("trend", "slope of e / (standard deviation of e); 0 if still"),
        f("change", "ln((mean of the last tenth of e + 1e-12) / (mean of the first tenth + 1e-12))"),
        f(
            "period",
            "N / k, k the Fourier mode of the largest power of e less its line of least squares, of k = 1 to \
             floor(N/2), the first of equals; 0 if still",
        ),
        f("period_share", "the largest of those powers / their sum; 0 if still"),
        f("spectral_centroid", "sum (k/N) power / sum power over those modes, in cycles per step; 0 if still"),
        f(
            "acf1",
            "autocorrelation of e at lag 1: sum over t of d_t d_t+lag / sum d^2, d = e - mean e; 0 for N <= lag, and \
             if still",
        ),
        f("acf2", "the same at lag 2"),
        f("acf5", "the same at lag 5"),
        f("acf10", "the same at lag 10"),
        f("decay", "first lag at which the autocorrelation of e is below 1/e (0.3679), or N - 1; 0 if still"),
        f("pacf2", "partial autocorrelation of e at lag 2, from its autocorrelations (Durbin-Levinson); 0 if still"),
        f("pacf3", "the same at lag 3"),
        f("pacf4", "the same at lag 4"),
        f("smoothness", "mean |e_t+2 - 2 e_t+1 + e_t| / mean |e_t+1 - e_t|; 0 if still"),
        f("total_variation", "sum |e_t+1 - e_t| / (largest e - least e); 0 if still"),
        f("turning", "share of the N - 2 inner times with e above both neighbours or below both"),
        f("crossings", "share of the N - 1 steps of which just one end is above mean e; 0 if still"),
        f(
            "switches",
            "share of the N - 1 steps from |e - median e| <= half the interquartile range of e to above it; 0 if still",
        ),
        f(
            "peaks",
            "share of the N - 2 inner times with e above both neighbours and above mean e + 2 standard deviations; 0 \
             if still",
        ),
        f("window_mean_std", "standard deviation of the windows' means / that of e; 0 if still"),
        f("window_std_mean", "mean of the windows' standard deviations / that of e; 0 if still"),
        f("skewness", "mean (e - mean e)^3 / (standard deviation of e)^3; 0 if still"),
        f("kurtosis", "mean (e - mean e)^4 / (standard deviation of e)^4 - 3; 0 if still"),
        f("asymmetry", "mean (e_t+1 - e_t)^3 / (mean (e_t+1 - e_t)^2)^1.5: irreversibility; 0 if still"),
        f("persistence", "mean r, r_0 = 1 included"),
        f("persistence_last", "mean of the last tenth of r"),
        f("entropy_mean", "mean h"),
        f("entropy_change", "mean of the last tenth of h - mean of the first"),
        f("variance_growth", "slope of ln(v + 1e-12)"),
        f("size_growth", "slope of ln(s + 1e-12)"),
        f(
            "permutation_entropy",
            "-sum p ln p / ln 6, p the shares of the orders of (e_t, e_t+1, e_t+2), of equals the first as the least",
        ),
        f(
            "lyapunov",
            "slope by k = 0 to 4 of the mean over i of ln max(D(i + k, j_i + k), 1e-12); D(a, b) is the largest of \
             |z_a - z_b|, |z_a+1 - z_b+1|, |z_a+2 - z_b+2|, z = (e - mean e) / (standard deviation of e); j_i is the \
             first with the least D(i, j), |i - j| >= 5; i, j = 0 to N - 7; 0 for N < 20, and if still",
        ),
        f("acf20", "autocorrelation of e at lag 20; 0 for N <= 20, and if still"),
        f("pacf5", "partial autocorrelation of e at lag 5; 0 if still"),
        f("growth_first", "slope of ln(e + 1e-12) over the first floor(N/2) times"),
        f("growth_last", "slope of ln(e + 1e-12) over the other times"),
        f(
            "window_std_ratio",
            "ln((largest of the windows' standard deviations + 1e-12) / (the least + 1e-12)); 0 if still",
        ),
        f("jumps", "share of the N - 1 steps with |e_t+1 - e_t| above 3 times its median; 0 if still"),
        f("longest_run", "most times in a row with e above its mean, or with e not above it / N; 0 if still"),
    ],
    reference: "Box & Jenkins, 1976; Fulcher & Jones, hctsa, 2017; permutation entropy: Bandt & Pompe, 2002; lyapunov: Rosenstein et al., 1993",
};

/// Slope of the least squares line by the places 0, 1, …
fn slope(y: &[f64]) -> f64 {
    let n = y.len() as f64;
    let (mt, my) = ((n - 1.0) / 2.0, mean(y));
    let (mut ty, mut tt) = (0.0, 0.0);
    for (t, y) in y.iter().enumerate() {
        ty += (t as f64 - mt) * (y - my);
        tt += (t as f64 - mt).powi(2);
    }
    ratio(ty, tt)
}

/// Autocorrelations at lags 0.. with the whole series' mean and variance.
fn autocorrelations(x: &[f64], lags: usize) -> Vec<f64> {
    let middle = mean(x);
    let total: f64 = x.iter().map(|x| (x - middle).powi(2)).sum();
    let at = |lag: usize| {
        let sum: f64 = x.iter().zip(x.iter().skip(lag)).map(|(a, b)| (a - middle) * (b - middle)).sum();
        ratio(sum, total)
    };
    (0..lags).map(at).collect()
}

/// Partial autocorrelations at lags 1.. by Durbin's and Levinson's recursion.
fn partial(acf: &[f64], lags: usize) -> Vec<f64> {
    let (mut phi, mut out) = (Vec::<f64>::new(), Vec::new());
    for k in 1..=lags {
        let above = acf[k] - (0..k - 1).map(|j| phi[j] * acf[k - 1 - j]).sum::<f64>();
        let below = 1.0 - (0..k - 1).map(|j| phi[j] * acf[j + 1]).sum::<f64>();
        let last = ratio(above, below);
        let new: Vec<f64> = (0..k - 1).map(|j| phi[j] - last * phi[k - 2 - j]).chain([last]).collect();
        phi = new;
        out.push(last);
    }
    out
}

/// Powers of the Fourier modes 1..=n/2 of a series of any length.
fn powers(x: &[f64]) -> Vec<f64> {
    let n = x.len();
    let table: Vec<(f64, f64)> = (0..n).map(|i| (TAU * i as f64 / n as f64).sin_cos()).collect();
    let power = |m: usize| {
        let (mut re, mut im, mut at) = (0.0, 0.0, 0);
        for x in x {
            re += x * table[at].1;
            im -= x * table[at].0;
            at = (at + m) % n;
        }
        re * re + im * im
    };
    (1..=n / 2).map(power).collect()
}

fn permutation_entropy(x: &[f64]) -> f64 {
    let mut counts = [0u32; 6];
    for w in x.windows(3) {
        let place = usize::from(w[0] > w[1]) * 4 + usize::from(w[0] > w[2]) * 2 + usize::from(w[1] > w[2]);
        // Of eight patterns of three comparisons six can be.
        counts[[0, 1, usize::MAX, 2, 3, usize::MAX, 4, 5][place]] += 1;
    }
    let n = f64::from(counts.iter().sum::<u32>());
    let entropy: f64 = counts.iter().filter(|&&c| c > 0).map(|&c| f64::from(c) / n).map(|p| -p * p.ln()).sum();
    entropy / 6.0f64.ln()
}

/// How fast windows that are near each other part.
fn lyapunov(z: &[f64]) -> f64 {
    const AHEAD: usize = 4;
    const APART: usize = 5;
    const WINDOW: usize = 3;
    if z.len() < 20 {
        return 0.0;
    }
    let count = z.len() - (WINDOW - 1) - AHEAD;
    let distance = |i: usize, j: usize| (0..WINDOW).map(|m| (z[i + m] - z[j + m]).abs()).fold(0.0, f64::max);
    let mut sums = [0.0; AHEAD + 1];
    for i in 0..count {
        let far = (0..count).filter(|&j| i.abs_diff(j) >= APART).map(|j| (j, distance(i, j)));
        let Some((j, _)) = far.reduce(|best, next| if next.1 < best.1 { next } else { best }) else { continue };
        sums.iter_mut().enumerate().for_each(|(k, sum)| *sum += distance(i + k, j + k).max(1e-12).ln());
    }
    slope(&sums.map(|sum| sum / count as f64))
}

/// Of metrics `[T, 5]`, T at least 8; all 0 for fewer.
pub(super) fn features(metrics: &[[f64; METRICS.len()]]) -> Vec<f64> {
    let n = metrics.len();
    if n < 8 || metrics.iter().flatten().any(|x| !x.is_finite()) {
        return vec![if n < 8 { 0.0 } else { f64::NAN }; FAMILY.features.len()];
    }
    let column = |i: usize| metrics.iter().map(|row| row[i]).collect::<Vec<f64>>();
    let [e, entropy, r, spread, size] = std::array::from_fn(column);
    let log = |x: &[f64]| x.iter().map(|x| (x + 1e-12).ln()).collect::<Vec<f64>>();
    let (middle, std) = (mean(&e), variance(&e).sqrt());
    let tenth = (n / 10).max(1);
    let (low, high) = e.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
    let line = slope(&e);
    let detrended: Vec<f64> =
        e.iter().enumerate().map(|(t, x)| x - middle - line * (t as f64 - (n - 1) as f64 / 2.0)).collect();
    let power = powers(&detrended);
    let total: f64 = power.iter().sum();
    // Rounding alone is no signal.
    let moves = std > 1e-9 * middle.abs().max(1e-300);
    let (mode, most) =
        power.iter().enumerate().fold((0, 0.0), |best, (i, &p)| if p > best.1 { (i + 1, p) } else { best });
    let centroid: f64 = power.iter().enumerate().map(|(i, p)| (i + 1) as f64 / n as f64 * p).sum();
    let acf = autocorrelations(&e, n);
    let at = |lag: usize| acf.get(lag).copied().unwrap_or(0.0);
    let pacf = partial(&acf, 5);
    let first: Vec<f64> = e.windows(2).map(|w| w[1] - w[0]).collect();
    let second: Vec<f64> = first.windows(2).map(|w| w[1] - w[0]).collect();
    let sizes = |x: &[f64]| x.iter().map(|x| x.abs()).collect::<Vec<f64>>();
    let inner = (n - 2) as f64;
    let share = |test: &dyn Fn(&[f64]) -> bool| e.windows(3).filter(|w| test(w)).count() as f64 / inner;
    let mut sorted = e.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let (q25, q50, q75) = (quantile(&sorted, 0.25), quantile(&sorted, 0.5), quantile(&sorted, 0.75));
    let outside = |x: f64| (x - q50).abs() > 0.5 * (q75 - q25);
    let windows: Vec<&[f64]> = e.chunks_exact(tenth).collect();
    let window_means: Vec<f64> = windows.iter().map(|w| mean(w)).collect();
    let window_stds: Vec<f64> = windows.iter().map(|w| variance(w).sqrt()).collect();
    let moment = |p: i32| mean(&e.iter().map(|x| (x - middle).powi(p)).collect::<Vec<f64>>());
    let squares = mean(&first.iter().map(|d| d * d).collect::<Vec<f64>>());
    let cubes = mean(&first.iter().map(|d| d * d * d).collect::<Vec<f64>>());
    let when = |value: f64| if moves { value } else { 0.0 };
    let standard: Vec<f64> = e.iter().map(|x| ratio(x - middle, std)).collect();
    let most_spread = window_stds.iter().copied().fold(0.0, f64::max);
    let least_spread = window_stds.iter().copied().fold(f64::INFINITY, f64::min);
    let mut steps = sizes(&first);
    steps.sort_unstable_by(f64::total_cmp);
    let usual = quantile(&steps, 0.5);
    let longest = e.chunk_by(|a, b| (*a > middle) == (*b > middle)).map(<[f64]>::len).max().unwrap_or(0);
    vec![
        middle,
        std,
        low,
        high,
        slope(&log(&e)),
        when(ratio(line, std)),
        ((mean(&e[n - tenth..]) + 1e-12) / (mean(&e[..tenth]) + 1e-12)).ln(),
        when(ratio(n as f64, mode as f64)),
        when(ratio(most, total)),
        when(ratio(centroid, total)),
        when(at(1)),
        when(at(2)),
        when(at(5)),
        when(at(10)),
        when(acf.iter().position(|&r| r < (-1.0f64).exp()).unwrap_or(n - 1) as f64),
        when(pacf[1]),
        when(pacf[2]),
        when(pacf[3]),
        when(ratio(mean(&sizes(&second)), mean(&sizes(&first)))),
        when(ratio(sizes(&first).iter().sum(), high - low)),
        share(&|w| (w[1] > w[0] && w[1] > w[2]) || (w[1] < w[0] && w[1] < w[2])),
        when(e.windows(2).filter(|w| (w[0] > middle) != (w[1] > middle)).count() as f64 / (n - 1) as f64),
        when(e.windows(2).filter(|w| !outside(w[0]) && outside(w[1])).count() as f64 / (n - 1) as f64),
        when(share(&|w| w[1] > w[0] && w[1] > w[2] && w[1] > middle + 2.0 * std)),
        when(ratio(variance(&window_means).sqrt(), std)),
        when(ratio(mean(&window_stds), std)),
        when(ratio(moment(3), std.powi(3))),
        when(ratio(moment(4), std.powi(4)) - 3.0),
        when(ratio(cubes, squares.powf(1.5))),
        mean(&r),
        mean(&r[n - tenth..]),
        mean(&entropy),
        mean(&entropy[n - tenth..]) - mean(&entropy[..tenth]),
        slope(&log(&spread)),
        slope(&log(&size)),
        permutation_entropy(&e),
        when(lyapunov(&standard)),
        when(at(20)),
        when(pacf[4]),
        slope(&log(&e[..n / 2])),
        slope(&log(&e[n / 2..])),
        when(((most_spread + 1e-12) / (least_spread + 1e-12)).ln()),
        when(steps.iter().filter(|&&step| step > 3.0 * usual).count() as f64 / (n - 1) as f64),
        when(longest as f64 / n as f64),
    ]
}
