"""Writes field.json: what NumPy and SciPy make of rollouts that tests/field.rs makes too.

Every feature is a row of its name, the words that `operant field list` prints, and an expression written from those words alone
(those of its family and of all features are in TERMS). tests/field.rs holds words and numbers to the engine's: who changes words
there writes the expression here anew.

Run with numpy and scipy: python field.py > field.json
"""

import itertools
import json

import numpy as np
from scipy import linalg, stats
from scipy.spatial.distance import jensenshannon
from scipy.stats import qmc

TERMS = {
    "": "x[i, j] is a channel of a frame, i the row from above (y), j the column from the left (x), both from 0 to n - 1 and circular: "
    "row n is row 0. Means, variances and standard deviations are over all numbers named and divide by their count. A correlation is "
    "Pearson's, 0 with a constant. Quantiles are linear between neighbours (type 7 of Hyndman & Fan). A ratio is 0 where its "
    "denominator is. ln is natural. Time t = 0 is the first field and t = T the last; metrics are of every t, frames of t = 0, "
    "frames_every, 2 frames_every and so on. A trajectory has the means over its frames of spatial, spectral and cross; an operator "
    "the mean, standard deviation and range over its realisations.",
    "spatial": "of every channel, then averaged over channels; units are those of x. g_x[i, j] = (a[i-1] + 2 a[i] + a[i+1]) / 8 with "
    "a[i] = x[i, j+1] - x[i, j-1], per pixel (Sobel); g_y is the same with rows and columns exchanged; |g| = sqrt(g_x^2 + g_y^2). "
    "L[i, j] = x[i-1, j] + x[i+1, j] + x[i, j-1] + x[i, j+1] - 4 x[i, j]",
    "spectral": "of every channel, then averaged over channels. P = |sum (x[i, j] - mean x) e^(-2 pi sqrt(-1) (k_y i + k_x j) / n)|^2 "
    "/ n^4 for the n^2 - 1 modes (k_y, k_x) other than (0, 0), both from -n/2 to n/2 - 1; sums and means are over these modes. "
    "k = sqrt(k_x^2 + k_y^2) in cycles per side, k_max = n/2",
    "cross": "over the pairs of channels (a, b) with b < a, r their correlation; R is the matrix of r with ones on its diagonal. All are "
    "0 for one channel",
    "temporal": "e, h, r, v and s are the metrics energy, entropy, lag1, variance and mean_abs at the N = T + 1 times from 0 on, so that "
    "r_0 = 1. A tenth is m = max(floor(N/10), 1) times, the windows are the floor(N/m) stretches of m times from t = 0 on. Slopes are "
    "those of least squares with a constant, per step. e is still if its standard deviation is at most 1e-9 |mean e|. All are 0 for "
    "N < 8, NaN where a metric is not finite",
    "nonlinear": "z = (e - mean e) / (standard deviation of e), e the metric energy at the N = T + 1 times from 0 on; pairs are of times "
    "i < j. All are 0 for N < 16 and where e is still, NaN where an e is not finite",
    "causality": "e, h and r are the metrics energy, entropy and lag1 at the times 1 to T (time 0 is left out), each less its mean and "
    "divided by its standard deviation, or 0 if that is at most 1e-9 of the mean's size. corr(a_t, b_t+l) is over the times that "
    "have both. Predictions are least squares with a constant over the times that have all; a column that those before it make up, "
    "to 1e-12 of its sum of squares, is left out. All are 0 for T < 23, NaN where a metric after time 0 is not finite",
    "drift": "y_0 to y_F-1 are a feature of spatial over the F frames of a trajectory, of which time 0 is the first; q = max(floor(F/4), 1)",
    "sensitivity": "O is the operator at time 0, with the same noise in every application, x the first field; |y| is the root mean square "
    "over channels and pixels. p are standard normal numbers, the same for all realisations, divided by their |p|. w_c[i, j] = "
    "cos(2 pi c (i + j) / n) in every channel, divided by its |w_c|",
}


def noise(t, c, i, j):
    mask = 0xFFFFFFFF
    h = ((t * 73856093) & mask) ^ ((c * 19349663) & mask) ^ ((i * 83492791) & mask) ^ ((j * 49979687) & mask)
    h = (h * 747796405 + 2891336453) & mask
    return (h >> 16) / 65536.0 - 0.5


def field(t, kind="plain", n=32, channels=3):
    """[C, n, n], every number exact in f32."""
    c, i, j = np.meshgrid(np.arange(channels), np.arange(n), np.arange(n), indexing="ij")
    if kind == "still":
        t = 0
    if kind == "stepped":
        # Three equal frames in a row, of few values: ties everywhere.
        t = t // 3
        return np.floor(4 * noise(t, c, i, j) * (1 + t % 4)) / 2
    if kind == "wave":
        return ((i + 2 * j + t + 5 * c) % 16 / 8.0 - 0.75 + noise(t, c, i, j)) * (1 + t / 8)
    return (noise(t, c, i, j) + ((i * 3 + j * 5 + 2 * t + 7 * c) % 32) / 16.0 - 0.75) * (1 + (t % 7) / 8)


def ratio(a, b):
    return a / b if abs(b) > 1e-300 else 0.0


def corr(a, b):
    a, b = (np.ravel(x) - np.mean(x) for x in (a, b))
    return ratio((a * b).sum(), np.sqrt((a * a).sum() * (b * b).sum()))


def moment(x, power, size):
    return ratio(((x - x.mean()) ** power).mean(), size)


def entropy(x):
    if x.min() == x.max():
        return 0.0
    p = np.histogram(x, bins=32, range=(x.min(), x.max()))[0] / x.size
    p = p[p > 0]
    return -np.sum(p * np.log(p))


def gradient(x):
    across, down = np.roll(x, -1, 1) - np.roll(x, 1, 1), np.roll(x, -1, 0) - np.roll(x, 1, 0)
    gx = (np.roll(across, 1, 0) + 2 * across + np.roll(across, -1, 0)) / 8
    gy = (np.roll(down, 1, 1) + 2 * down + np.roll(down, -1, 1)) / 8
    return gx, gy, np.sqrt(gx**2 + gy**2)


def spatial(x):
    gx, gy, g = gradient(x)
    right, below = np.roll(x, -1, 1), np.roll(x, -1, 0)
    lap = below + np.roll(x, 1, 0) + right + np.roll(x, 1, 1) - 4 * x
    a, b, c = (gx**2).sum(), (gy**2).sum(), (gx * gy).sum()
    q = lambda p: np.quantile(x, p)
    above = [y > x.mean() for y in (x, right, below)]
    return [
        ("mean", "mean x", x.mean()),
        ("variance", "mean (x - mean x)^2", x.var()),
        ("std", "sqrt variance", np.sqrt(x.var())),
        ("skewness", "mean (x - mean x)^3 / std^3", moment(x, 3, x.std() ** 3)),
        (
            "kurtosis",
            "mean (x - mean x)^4 / variance^2 - 3; 0 where variance is at most 1e-150",
            moment(x, 4, x.var() ** 2) - 3 if x.var() > 1e-150 else 0.0,
        ),
        ("min", "least x", x.min()),
        ("max", "largest x", x.max()),
        ("range", "max - min", x.max() - x.min()),
        ("iqr", "q75 - q25", q(0.75) - q(0.25)),
        ("mad", "median of |x - median x|", np.median(np.abs(x - np.median(x)))),
        ("mean_abs", "mean |x|", np.abs(x).mean()),
        ("rms", "sqrt mean x^2", np.sqrt((x**2).mean())),
        ("gradient_mean", "mean |g|", g.mean()),
        ("gradient_std", "standard deviation of |g|", g.std()),
        ("gradient_max", "largest |g|", g.max()),
        ("gradient_x", "mean |g_x|", np.abs(gx).mean()),
        ("gradient_y", "mean |g_y|", np.abs(gy).mean()),
        ("anisotropy", "(A - B) / (A + B), A = sum g_x^2, B = sum g_y^2", ratio(a - b, a + b)),
        (
            "coherence",
            "sqrt((A - B)^2 + 4 C^2) / (A + B), A and B as there, C = sum g_x g_y",
            ratio(np.sqrt((a - b) ** 2 + 4 * c**2), a + b),
        ),
        ("laplacian_mean_abs", "mean |L|", np.abs(lap).mean()),
        ("laplacian_std", "standard deviation of L", lap.std()),
        ("laplacian_energy", "mean L^2", (lap**2).mean()),
        ("q01", "quantile 0.01 of x", q(0.01)),
        ("q05", "quantile 0.05 of x", q(0.05)),
        ("q25", "quantile 0.25 of x", q(0.25)),
        ("q50", "median x", q(0.5)),
        ("q75", "quantile 0.75 of x", q(0.75)),
        ("q95", "quantile 0.95 of x", q(0.95)),
        ("q99", "quantile 0.99 of x", q(0.99)),
        (
            "entropy",
            "-sum p ln p, p the shares of pixels in 32 equal bins from the least to the largest x, each bin with its lower edge, the "
            "last with both; 0 for a constant",
            entropy(x),
        ),
        ("positive", "share of x > 0", (x > 0).mean()),
        (
            "crossings",
            "share of neighbours, x[i, j] with x[i, j+1] and with x[i+1, j], of which just one is above mean x",
            np.mean([above[0] != above[1], above[0] != above[2]]),
        ),
        ("lag_x", "correlation of x[i, j] with x[i, j+1]", corr(x, right)),
        ("lag_y", "correlation of x[i, j] with x[i+1, j]", corr(x, below)),
    ]


def spectral(x):
    n = x.shape[0]
    p = np.abs(np.fft.fft2(x - x.mean())) ** 2 / n**4
    ky, kx = np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * 2, indexing="ij")
    # Row by row of NumPy's order, which begins with the mode (0, 0).
    p, ky, kx = (a.ravel()[1:] for a in (p, ky, kx))
    k, kmax, total = np.sqrt(kx**2 + ky**2), n / 2, p.sum()
    rows = []
    for b in range(5):
        low, high = b / 5 * kmax, (b + 1) / 5 * kmax if b < 4 else np.inf
        band = p[(k >= low) & (k < high)]
        where = [
            "0 < k < 0.2 k_max",
            "0.2 k_max <= k < 0.4 k_max",
            "0.4 k_max <= k < 0.6 k_max",
            "0.6 k_max <= k < 0.8 k_max",
            "0.8 k_max <= k, corners included",
        ][b]
        rows += [
            (f"band{b}_mean", f"mean P over {where}", band.mean()),
            (f"band{b}_max", f"largest P over {where}", band.max()),
            (f"band{b}_std", f"standard deviation of P over {where}", band.std()),
        ]
    centroid = ratio((k * p).sum(), total)
    ring = np.floor(k + 0.5).astype(int)
    radial = np.bincount(ring, p)
    reached = lambda share: float(np.argmax(np.cumsum(radial) >= share * total)) if total > 0 else 0.0
    share = lambda where: ratio(p[where].sum(), total)
    floored = np.maximum(p, 1e-30)
    parts = p[p > 0] / total if total > 0 else np.array([1.0])
    ks = np.arange(1, n // 2 + 1)
    means = np.array([p[ring == K].mean() for K in ks])
    return rows + [
        (
            "dominant",
            "k of the largest P; the first of those that differ by 1e-9 of it at most, k_y and then k_x going 0 to n/2 - 1, -n/2 to -1",
            k[np.argmax(p >= p.max() * (1 - 1e-9))] if total > 0 else 0.0,
        ),
        ("dominant_share", "largest P / sum P", ratio(p.max(), total)),
        ("centroid", "sum k P / sum P", centroid),
        ("centroid_x", "sum |k_x| P / sum P", ratio((np.abs(kx) * p).sum(), total)),
        ("centroid_y", "sum |k_y| P / sum P", ratio((np.abs(ky) * p).sum(), total)),
        ("bandwidth", "sqrt(sum (k - centroid)^2 P / sum P)", np.sqrt(ratio(((k - centroid) ** 2 * p).sum(), total))),
        ("low_share", "sum of P with k < 0.25 k_max / sum P", share(k < 0.25 * kmax)),
        (
            "middle_share",
            "sum of P with 0.25 k_max <= k < 0.5 k_max / sum P",
            share((k >= 0.25 * kmax) & (k < 0.5 * kmax)),
        ),
        ("high_share", "sum of P with 0.5 k_max <= k / sum P", share(k >= 0.5 * kmax)),
        (
            "flatness",
            "geometric mean of max(P, 1e-30) / mean P",
            ratio(np.exp(np.log(floored).mean()), p.mean()),
        ),
        (
            "entropy",
            "-sum p ln p / ln(n^2 - 1), p = P / sum P; 0 for a constant",
            -(parts * np.log(parts)).sum() / np.log(n**2 - 1),
        ),
        ("rolloff85", "least whole K with sum of P over k rounded <= K at least 0.85 sum P", reached(0.85)),
        ("rolloff95", "least whole K with sum of P over k rounded <= K at least 0.95 sum P", reached(0.95)),
        (
            "anisotropy",
            "|sum P e^(2 sqrt(-1) a)| / sum P, a the angle of (k_x, k_y)",
            ratio(np.abs((p * np.exp(2j * np.arctan2(ky, kx))).sum()), total),
        ),
        (
            "slope",
            "least squares slope of ln max(mean of P with k rounded = K, 1e-30) by ln K, K = 1 to n/2, all K alike",
            np.polyfit(np.log(ks), np.log(np.maximum(means, 1e-30)), 1)[0],
        ),
        ("power", "sum P, which is the variance of x", total),
    ]


def cross(x):
    channels = len(x)
    pairs = [(a, b) for a in range(channels) for b in range(a)]
    r = np.array([corr(x[a], x[b]) for a, b in pairs] or [0.0])
    over = lambda of: np.mean([of(x[a], x[b]) for a, b in pairs]) if pairs else 0.0
    matrix = np.eye(channels)
    for (a, b), value in zip(pairs, r):
        matrix[a, b] = matrix[b, a] = value
    eig = np.linalg.eigvalsh(matrix)
    var = np.maximum(x.reshape(channels, -1).var(axis=1), 1e-30)
    many = channels > 1
    return [
        ("correlation_mean", "mean r", r.mean()),
        ("correlation_abs", "mean |r|", np.abs(r).mean()),
        ("correlation_max", "largest |r|", np.abs(r).max()),
        ("correlation_min", "least r", r.min()),
        ("correlation_std", "standard deviation of r", r.std()),
        (
            "gradient_correlation",
            "mean correlation of |g| of a with |g| of b, g as in spatial",
            over(lambda a, b: corr(gradient(a)[2], gradient(b)[2])),
        ),
        (
            "shifted_correlation",
            "mean correlation of a[i, j] with b[i, j+1]",
            over(lambda a, b: corr(a, np.roll(b, -1, 1))),
        ),
        ("distance", "mean of sqrt mean (a - b)^2", over(lambda a, b: np.sqrt(((a - b) ** 2).mean()))),
        (
            "variance_ratio",
            "ln(largest / least), of the channels' variances, each at least 1e-30",
            np.log(var.max() / var.min()) if many else 0.0,
        ),
        ("first_share", "largest eigenvalue of R / channels", eig.max() / channels if many else 0.0),
        (
            "participation",
            "(sum l)^2 / sum l^2 over the eigenvalues l of R",
            eig.sum() ** 2 / (eig**2).sum() if many else 0.0,
        ),
        (
            "total_correlation",
            "-1/2 ln det R, kept within 0 and 50: what channels tell of each other if they are Gaussian",
            min(max(-0.5 * np.log(np.maximum(eig, 1e-300)).sum(), 0.0), 50.0) if many else 0.0,
        ),
    ]


def metrics(x, before):
    return [
        ("energy", "mean x^2 over channels and pixels", (x**2).mean()),
        ("entropy", "spatial.entropy", np.mean([entropy(p) for p in x])),
        (
            "lag1",
            "correlation of all channels and pixels with those of the frame before; 1 at time 0",
            1.0 if before is None else corr(x, before),
        ),
        ("variance", "mean (x - mean x)^2 over channels and pixels", x.var()),
        ("mean_abs", "mean |x| over channels and pixels", np.abs(x).mean()),
    ]


def slope(y):
    t = np.arange(len(y)) - (len(y) - 1) / 2
    return ratio((t * (y - y.mean())).sum(), (t * t).sum())


def acf(e, lag):
    d = e - e.mean()
    return ratio((d[lag:] * d[: len(d) - lag]).sum(), (d * d).sum()) if lag < len(e) else 0.0


def pacf(e, lag):
    """The last coefficient of the Yule-Walker equations of that order."""
    r = np.array([acf(e, l) for l in range(lag + 1)])
    return linalg.solve(linalg.toeplitz(r[:lag]), r[1:])[-1]


def patterns(x, order):
    """Shares of the orders of so many neighbours; of equal ones the first counts as less."""
    keys = [tuple(np.argsort(w, kind="stable")) for w in np.lib.stride_tricks.sliding_window_view(x, order)]
    return np.array([keys.count(k) for k in itertools.permutations(range(order))]) / len(keys)


def runs(marks):
    """Lengths of runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(marks, int), [0]])))
    return edges[1::2] - edges[::2]


def still(e):
    return not e.std() > 1e-9 * abs(e.mean())


def temporal(m):
    e, h, r, v, s = np.array(m, float).T
    n = len(e)
    tenth = max(n // 10, 1)
    first, last = slice(None, tenth), slice(n - tenth, None)
    d, windows = np.diff(e), e[: n // tenth * tenth].reshape(-1, tenth)
    inner, left, right = e[1:-1], e[:-2], e[2:]
    tops, troughs = (inner > left) & (inner > right), (inner < left) & (inner < right)
    q = lambda p: np.quantile(e, p)
    outside = np.abs(e - q(0.5)) > (q(0.75) - q(0.25)) / 2
    line = e - e.mean() - slope(e) * (np.arange(n) - (n - 1) / 2)
    power = np.abs(np.fft.rfft(line)[1:]) ** 2
    modes = np.arange(1, len(power) + 1)
    std = e.std()
    stds = windows.std(axis=1)
    grown = lambda y: slope(np.log(y + 1e-12))
    # Expressions of those that are 0 where e is still are made only where it moves.
    if_moves = lambda make: 0.0 if still(e) else make()
    return [
        ("energy_mean", "mean e", lambda: e.mean()),
        ("energy_std", "standard deviation of e", lambda: std),
        ("energy_min", "least e", lambda: e.min()),
        ("energy_max", "largest e", lambda: e.max()),
        ("growth", "slope of ln(e + 1e-12)", lambda: grown(e)),
        ("trend", "slope of e / (standard deviation of e); 0 if still", lambda: if_moves(lambda: slope(e) / std)),
        (
            "change",
            "ln((mean of the last tenth of e + 1e-12) / (mean of the first tenth + 1e-12))",
            lambda: np.log((e[last].mean() + 1e-12) / (e[first].mean() + 1e-12)),
        ),
        (
            "period",
            "N / k, k the Fourier mode of the largest power of e less its line of least squares, of k = 1 to floor(N/2), the first of "
            "equals; 0 if still",
            lambda: if_moves(lambda: n / modes[np.argmax(power)]),
        ),
        (
            "period_share",
            "the largest of those powers / their sum; 0 if still",
            lambda: if_moves(lambda: power.max() / power.sum()),
        ),
        (
            "spectral_centroid",
            "sum (k/N) power / sum power over those modes, in cycles per step; 0 if still",
            lambda: if_moves(lambda: (modes / n * power).sum() / power.sum()),
        ),
        (
            "acf1",
            "autocorrelation of e at lag 1: sum over t of d_t d_t+lag / sum d^2, d = e - mean e; 0 for N <= lag, and if still",
            lambda: if_moves(lambda: acf(e, 1)),
        ),
        ("acf2", "the same at lag 2", lambda: if_moves(lambda: acf(e, 2))),
        ("acf5", "the same at lag 5", lambda: if_moves(lambda: acf(e, 5))),
        ("acf10", "the same at lag 10", lambda: if_moves(lambda: acf(e, 10))),
        (
            "decay",
            "first lag at which the autocorrelation of e is below 1/e (0.3679), or N - 1; 0 if still",
            lambda: if_moves(lambda: next((l for l in range(n) if acf(e, l) < np.exp(-1)), n - 1)),
        ),
        (
            "pacf2",
            "partial autocorrelation of e at lag 2, from its autocorrelations (Durbin-Levinson); 0 if still",
            lambda: if_moves(lambda: pacf(e, 2)),
        ),
        ("pacf3", "the same at lag 3", lambda: if_moves(lambda: pacf(e, 3))),
        ("pacf4", "the same at lag 4", lambda: if_moves(lambda: pacf(e, 4))),
        (
            "smoothness",
            "mean |e_t+2 - 2 e_t+1 + e_t| / mean |e_t+1 - e_t|; 0 if still",
            lambda: if_moves(lambda: ratio(np.abs(np.diff(d)).mean(), np.abs(d).mean())),
        ),
        (
            "total_variation",
            "sum |e_t+1 - e_t| / (largest e - least e); 0 if still",
            lambda: if_moves(lambda: ratio(np.abs(d).sum(), np.ptp(e))),
        ),
        (
            "turning",
            "share of the N - 2 inner times with e above both neighbours or below both",
            lambda: (tops | troughs).mean(),
        ),
        (
            "crossings",
            "share of the N - 1 steps of which just one end is above mean e; 0 if still",
            lambda: if_moves(lambda: np.mean((e[1:] > e.mean()) != (e[:-1] > e.mean()))),
        ),
        (
            "switches",
            "share of the N - 1 steps from |e - median e| <= half the interquartile range of e to above it; 0 if still",
            lambda: if_moves(lambda: (~outside[:-1] & outside[1:]).mean()),
        ),
        (
            "peaks",
            "share of the N - 2 inner times with e above both neighbours and above mean e + 2 standard deviations; 0 if still",
            lambda: if_moves(lambda: (tops & (inner > e.mean() + 2 * std)).mean()),
        ),
        (
            "window_mean_std",
            "standard deviation of the windows' means / that of e; 0 if still",
            lambda: if_moves(lambda: windows.mean(axis=1).std() / std),
        ),
        (
            "window_std_mean",
            "mean of the windows' standard deviations / that of e; 0 if still",
            lambda: if_moves(lambda: stds.mean() / std),
        ),
        (
            "skewness",
            "mean (e - mean e)^3 / (standard deviation of e)^3; 0 if still",
            lambda: if_moves(lambda: moment(e, 3, std**3)),
        ),
        (
            "kurtosis",
            "mean (e - mean e)^4 / (standard deviation of e)^4 - 3; 0 if still",
            lambda: if_moves(lambda: moment(e, 4, std**4) - 3),
        ),
        (
            "asymmetry",
            "mean (e_t+1 - e_t)^3 / (mean (e_t+1 - e_t)^2)^1.5: irreversibility; 0 if still",
            lambda: if_moves(lambda: ratio((d**3).mean(), (d**2).mean() ** 1.5)),
        ),
        ("persistence", "mean r, r_0 = 1 included", lambda: r.mean()),
        ("persistence_last", "mean of the last tenth of r", lambda: r[last].mean()),
        ("entropy_mean", "mean h", lambda: h.mean()),
        ("entropy_change", "mean of the last tenth of h - mean of the first", lambda: h[last].mean() - h[first].mean()),
        ("variance_growth", "slope of ln(v + 1e-12)", lambda: grown(v)),
        ("size_growth", "slope of ln(s + 1e-12)", lambda: grown(s)),
        (
            "permutation_entropy",
            "-sum p ln p / ln 6, p the shares of the orders of (e_t, e_t+1, e_t+2), of equals the first as the least",
            lambda: stats.entropy(patterns(e, 3)) / np.log(6),
        ),
        (
            "lyapunov",
            "slope by k = 0 to 4 of the mean over i of ln max(D(i + k, j_i + k), 1e-12); D(a, b) is the largest of |z_a - z_b|, |z_a+1 - "
            "z_b+1|, |z_a+2 - z_b+2|, z = (e - mean e) / (standard deviation of e); j_i is the first with the least D(i, j), |i - j| >= 5; "
            "i, j = 0 to N - 7; 0 for N < 20, and if still",
            lambda: if_moves(lambda: lyapunov((e - e.mean()) / std)),
        ),
        ("acf20", "autocorrelation of e at lag 20; 0 for N <= 20, and if still", lambda: if_moves(lambda: acf(e, 20))),
        ("pacf5", "partial autocorrelation of e at lag 5; 0 if still", lambda: if_moves(lambda: pacf(e, 5))),
        ("growth_first", "slope of ln(e + 1e-12) over the first floor(N/2) times", lambda: grown(e[: n // 2])),
        ("growth_last", "slope of ln(e + 1e-12) over the other times", lambda: grown(e[n // 2 :])),
        (
            "window_std_ratio",
            "ln((largest of the windows' standard deviations + 1e-12) / (the least + 1e-12)); 0 if still",
            lambda: if_moves(lambda: np.log((stds.max() + 1e-12) / (stds.min() + 1e-12))),
        ),
        (
            "jumps",
            "share of the N - 1 steps with |e_t+1 - e_t| above 3 times its median; 0 if still",
            lambda: if_moves(lambda: (np.abs(d) > 3 * np.median(np.abs(d))).mean()),
        ),
        (
            "longest_run",
            "most times in a row with e above its mean, or with e not above it / N; 0 if still",
            lambda: if_moves(lambda: max(max(runs(e > e.mean())), max(runs(e <= e.mean()))) / n),
        ),
    ]


def lyapunov(z):
    count = len(z) - 6
    if len(z) < 20:
        return 0.0
    windows = np.lib.stride_tricks.sliding_window_view(z, 3)
    apart = np.abs(windows[:, None] - windows[None]).max(-1)
    i = np.arange(count)
    far = np.abs(np.subtract.outer(i, i)) >= 5
    nearest = np.where(far, apart[:count, :count], np.inf).argmin(axis=1)
    return slope(np.array([np.log(np.maximum(apart[i + k, nearest + k], 1e-12)).mean() for k in range(5)]))


def nonlinear(m):
    e = np.array(m, float)[:, 0]
    n = len(e)
    z = (e - e.mean()) / (e.std() or 1.0)
    near = np.abs(z[:, None] - z[None, :]) < 0.2
    upper = np.triu(near, 1)
    count = upper.sum()
    diagonals = lambda: np.concatenate([runs(np.diag(near, k)) for k in range(1, n)])
    verticals = lambda: np.concatenate([runs(upper[i, i + 1 :]) for i in range(n - 1)])
    embed = lambda steps: np.lib.stride_tricks.sliding_window_view(z, steps)[: n - 2]
    pairs = lambda steps, r: np.triu(np.abs(embed(steps)[:, None] - embed(steps)[None]).max(-1) < r, 1).sum()
    lags = np.array([1, 2, 4, 8])

    def dimension():
        return np.log2(pairs(3, 0.5) / pairs(3, 0.25)) if pairs(3, 0.25) else 0.0

    def sample_entropy():
        return -np.log(pairs(3, 0.2) / pairs(2, 0.2)) if pairs(3, 0.2) else 0.0

    def hurst():
        spread = [max(np.sqrt(((z[l:] - z[:-l]) ** 2).mean()), 1e-300) for l in lags]
        return np.polyfit(np.log(lags), np.log(spread), 1)[0]

    return [
        ("recurrence", "share of pairs with |z_i - z_j| < 0.2, recurrent ones", lambda: count / (n * (n - 1) / 2)),
        (
            "determinism",
            "share of the recurrent pairs that are in a row of at least two along (i, j), (i+1, j+1), ...",
            lambda: ratio(sum(l for l in diagonals() if l >= 2), count),
        ),
        ("longest_diagonal", "most recurrent pairs in such a row / N", lambda: max(diagonals(), default=0) / n),
        (
            "laminarity",
            "share of the recurrent pairs that are in a row of at least two along (i, j), (i, j+1), ..., j > i",
            lambda: ratio(sum(l for l in verticals() if l >= 2), count),
        ),
        (
            "correlation_dimension",
            "log2(C(0.5) / C(0.25)), C(u) the number of pairs of i, j = 0 to N - 3 with |z_i - z_j|, |z_i+1 - z_j+1| and |z_i+2 - z_j+2| "
            "all below u; 0 if C(0.25) is 0",
            dimension,
        ),
        (
            "sample_entropy",
            "-ln(C(0.2) / B), C as there and B the same number with the first two differences alone; 0 if C(0.2) is 0",
            sample_entropy,
        ),
        (
            "permutation_entropy",
            "-sum p ln p / ln 24, p the shares of the orders of (e_t, e_t+1, e_t+2, e_t+3), of equals the first as the least",
            lambda: stats.entropy(patterns(e, 4)) / np.log(24),
        ),
        (
            "hurst",
            "least squares slope of ln max(sqrt mean (z_t+l - z_t)^2, 1e-300) by ln l, l = 1, 2, 4, 8",
            hurst,
        ),
    ]


def causality(m):
    def standardised(x):
        return (x - x.mean()) / x.std() if x.std() > 1e-9 * abs(x.mean()) else np.zeros(len(x))

    e, h, r = (standardised(x) for x in np.array(m, float)[1:, :3].T)
    lagged = lambda a, b, l: corr(a[: len(a) - l], b[l:]) if l >= 0 else corr(a[-l:], b[:l])
    asymmetry = lambda a, b, l: lagged(a, b, l) - lagged(b, a, l)

    def lead(a, b):
        best, at = abs(lagged(a, b, 0)), 0
        for l in sorted(range(-10, 11), key=lambda l: (abs(l), l < 0)):
            if abs(lagged(a, b, l)) > best + 1e-9:
                best, at = abs(lagged(a, b, l)), l
        return at

    def error(y, *columns):
        kept = np.ones((len(y), 1))
        for column in columns:
            left = column - kept @ np.linalg.lstsq(kept, column, rcond=None)[0]
            if (left**2).sum() > 1e-12 * (column**2).sum():
                kept = np.column_stack([kept, column])
        return ((y - kept @ np.linalg.lstsq(kept, y, rcond=None)[0]) ** 2).mean() + 1e-12

    def gain(a, b):
        own = b[1:-1], b[:-2]
        return np.log(error(b[2:], *own) / error(b[2:], *own, a[1:-1], a[:-2]))

    bent = lambda x: error(x[2:], x[1:-1], x[1:-1] ** 2, x[:-2])
    reversal = lambda l: (e[l:] ** 2 * e[:-l] - e[l:] * e[:-l] ** 2).mean()
    d = np.sign(np.diff(e))
    return [
        (
            "energy_entropy_asymmetry1",
            "corr(e_t, h_t+1) - corr(h_t, e_t+1)",
            lambda: asymmetry(e, h, 1),
        ),
        ("energy_entropy_asymmetry5", "corr(e_t, h_t+5) - corr(h_t, e_t+5)", lambda: asymmetry(e, h, 5)),
        (
            "energy_entropy_lead",
            "lag l of the largest |corr(e_t, h_t+l)|, l in -10..10: above 0, e goes before h; a lag must be larger by 1e-9 than those "
            "before it in the order 0, 1, -1, 2, -2, ...",
            lambda: lead(e, h),
        ),
        ("energy_persistence_asymmetry1", "corr(e_t, r_t+1) - corr(r_t, e_t+1)", lambda: asymmetry(e, r, 1)),
        ("energy_persistence_asymmetry5", "corr(e_t, r_t+5) - corr(r_t, e_t+5)", lambda: asymmetry(e, r, 5)),
        (
            "energy_persistence_lead",
            "lag l of the largest |corr(e_t, r_t+l)|, as there",
            lambda: lead(e, r),
        ),
        (
            "energy_to_entropy",
            "ln((E1 + 1e-12) / (E2 + 1e-12)), mean squared errors of h_t predicted by h_t-1, h_t-2, and by those with e_t-1, e_t-2",
            lambda: gain(e, h),
        ),
        ("entropy_to_energy", "the same of e_t, without and with h_t-1, h_t-2", lambda: gain(h, e)),
        ("energy_to_persistence", "the same of r_t, without and with e_t-1, e_t-2", lambda: gain(e, r)),
        ("persistence_to_energy", "the same of e_t, without and with r_t-1, r_t-2", lambda: gain(r, e)),
        (
            "prediction_reversal",
            "ln((E back + 1e-12) / (E forth + 1e-12)), mean squared errors of e_t predicted by e_t-1, (e_t-1)^2, e_t-2, of e and of e "
            "backwards",
            lambda: np.log(bent(e[::-1]) / bent(e)),
        ),
        ("reversal1", "mean of (e_t+1)^2 e_t - e_t+1 (e_t)^2", lambda: reversal(1)),
        ("reversal5", "mean of (e_t+5)^2 e_t - e_t+5 (e_t)^2", lambda: reversal(5)),
        ("rises", "(steps up - steps down) / (both together), of e", lambda: ratio(d.sum(), np.abs(d).sum())),
        (
            "ordinal_irreversibility",
            "divergence of Jensen & Shannon in bits of the shares of the orders of (e_t, e_t+1, e_t+2), of equals the first as the least, "
            "from those of e backwards",
            lambda: jensenshannon(patterns(e, 3), patterns(e[::-1], 3), 2) ** 2,
        ),
    ]


def drift(frames):
    rows = []
    for short, norm in [("mass", "mean"), ("l1", "mean_abs"), ("l2", "rms"), ("range", "range"), ("gradient", "gradient_mean")]:
        y = np.array([frame[norm] for frame in frames])
        size = abs(y.mean()) + 1e-12
        steps = lambda lag: np.abs(y[lag:] - y[:-lag]).mean() if len(y) > lag else 0.0
        rows += [
            (
                f"{short}_change",
                f"(y_F-1 - y_0) / (|y_0| + 1e-12), y = spatial.{norm}",
                (y[-1] - y[0]) / (abs(y[0]) + 1e-12),
            ),
            (f"{short}_spread", f"standard deviation of y / (|mean y| + 1e-12), y = spatial.{norm}", y.std() / size),
            (f"{short}_step", f"mean |y_f+1 - y_f| / (|mean y| + 1e-12), y = spatial.{norm}", steps(1) / size),
            (
                f"{short}_quarter",
                f"mean |y_f+q - y_f| / (|mean y| + 1e-12), y = spatial.{norm}",
                steps(max(len(y) // 4, 1)) / size,
            ),
        ]
    return rows


def operator(x):
    """What tests/field.rs applies too."""
    return np.roll(x, -1, 2) * x + 0.5 * np.roll(x, 2, 1) + 0.25


def sensitivity(x, apply):
    n = x.shape[1]
    i, j = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    size = lambda y: np.sqrt((y**2).mean())
    wave = lambda c: (w := np.cos(2 * np.pi * c * (i + j) / n)) / size(w) * np.ones_like(x)
    o, w = apply(x), wave(2)
    gain = lambda step, by: size(apply(x + step * by) - o) / step
    # The engine's own normal numbers are not here: those are None, and tests/field.rs looks at them another way.
    return [
        ("lipschitz3", "|O(x + 1e-3 p) - O(x)| / 1e-3", None),
        ("lipschitz2", "|O(x + 1e-2 p) - O(x)| / 1e-2", None),
        ("lipschitz1", "|O(x + 1e-1 p) - O(x)| / 1e-1", None),
        ("gain1", "|O(x + 0.01 w_1) - O(x)| / 0.01", gain(0.01, wave(1))),
        ("gain2", "|O(x + 0.01 w_2) - O(x)| / 0.01", gain(0.01, w)),
        ("gain4", "|O(x + 0.01 w_4) - O(x)| / 0.01", gain(0.01, wave(4))),
        ("gain8", "|O(x + 0.01 w_8) - O(x)| / 0.01", gain(0.01, wave(8))),
        ("offset", "|O(x + 0.01) - O(x)| / 0.01", gain(0.01, 1.0)),
        ("curvature", "|O(x + 0.1 p) - 2 O(x) + O(x - 0.1 p)| / |O(x + 0.1 p) - O(x - 0.1 p)|", None),
        ("homogeneity", "|O(2 x) - 2 O(x)| / |O(2 x)|", ratio(size(apply(2 * x) - 2 * o), size(apply(2 * x)))),
        (
            "additivity",
            "|O(x + w_2) - O(x) - O(w_2) + O(0)| / |O(x + w_2)|",
            ratio(size(apply(x + w) - o - apply(w) + apply(0 * x)), size(apply(x + w))),
        ),
        ("output", "|O(x)| / |x|", ratio(size(o), size(x))),
    ]


def averaged(family, x):
    """Rows of a family of channels, averaged over them."""
    return [(rows[0][0], rows[0][1], np.mean([row[2] for row in rows])) for rows in zip(*[family(p) for p in x])]


words = {}


def noted(family, rows):
    """Keeps the words of rows, gives their numbers."""
    found = {name: text for name, text, _ in rows}
    assert words.setdefault(family, found) == found
    return [value for _, _, value in rows]


def series_family(name, make, m, least):
    """Numbers of a family that reads metrics: all 0 where there are too few."""
    rows = make(m)
    values = noted(name, [(key, text, None) for key, text, _ in rows])
    zero = len(m) < least or name == "nonlinear" and still(np.array(m)[:, 0])
    return [0.0 if zero else value() for (_, _, value), _ in zip(rows, values)]


# Kind, grid, channels, times and steps between frames.
CASES = [
    ("plain", 32, 3, 40, 4),
    ("plain", 16, 2, 101, 10),
    ("stepped", 16, 2, 61, 5),
    ("wave", 16, 1, 33, 16),
    ("plain", 16, 2, 23, 30),
    ("wave", 16, 2, 13, 2),
    ("still", 16, 2, 30, 3),
    ("plain", 16, 1, 7, 1),
]


def rollout(kind, n, channels, times, every):
    fields = [field(t, kind, n, channels) for t in range(times)]
    series = [noted("metrics", metrics(fields[t], fields[t - 1] if t else None)) for t in range(times)]
    frames = []
    for x in fields[::every]:
        rows = averaged(spatial, x)
        frame = [noted("spatial", rows), noted("spectral", averaged(spectral, x)), noted("cross", cross(x))]
        frames.append((sum(frame, []), {name: value for name, _, value in rows}))
    trajectory = (
        series_family("temporal", temporal, series, 8)
        + series_family("nonlinear", nonlinear, series, 16)
        + series_family("causality", causality, series, 24)
        + noted("drift", drift([named for _, named in frames]))
    )
    return {
        "kind": kind,
        "grid": n,
        "channels": channels,
        "times": times,
        "every": every,
        "metrics": [float(v) for v in series[-1]],
        "frame": [float(v) for v in frames[-1][0]],
        "trajectory": [float(v) for v in trajectory],
    }


np.seterr(divide="ignore", invalid="ignore")
sobol = qmc.Sobol(20, scramble=False, bits=32).random(64)
points = qmc.Sobol(14, scramble=False, bits=32).random(256)
rollouts = [rollout(*case) for case in CASES]
moved = noted("sensitivity", sensitivity(field(0, n=16, channels=2), operator))
print(
    json.dumps(
        {
            "corners": field(5)[0, :4, :4].ravel().tolist(),
            "sobol": sobol.ravel().tolist(),
            "discrepancy": qmc.discrepancy(points, method="CD"),
            "rollouts": rollouts,
            "sensitivity": [None if v is None else float(v) for v in moved],
            "terms": TERMS,
            "words": words,
        }
    )
)
