"""Writes field.json: what NumPy and SciPy make of numbers that tests/field.rs makes too (the twins of env/field/features).

Run with numpy and scipy: python field.py > field.json
"""

import itertools
import json

import numpy as np
from scipy import ndimage, stats
from scipy.spatial.distance import jensenshannon
from scipy.stats import qmc

N, C, T = 32, 3, 40


def field(t):
    """[C, N, N], every number exact in f32."""
    c, i, j = np.meshgrid(np.arange(C), np.arange(N), np.arange(N), indexing="ij")
    mask = 0xFFFFFFFF
    h = ((t * 73856093) & mask) ^ ((c * 19349663) & mask) ^ ((i * 83492791) & mask) ^ ((j * 49979687) & mask)
    h = (h * 747796405 + 2891336453) & mask
    noise = (h >> 16) / 65536.0 - 0.5
    return (noise + ((i * 3 + j * 5 + 2 * t + 7 * c) % 32) / 16.0 - 0.75) * (1 + (t % 7) / 8)


def entropy(x):
    p = np.histogram(x, bins=32, range=(x.min(), x.max()))[0] / x.size
    p = p[p > 0]
    return -np.sum(p * np.log(p))


def spatial(x):
    gx, gy = (ndimage.sobel(x, axis=a, mode="wrap") / 8 for a in (1, 0))
    g = np.hypot(gx, gy)
    lap = ndimage.laplace(x, mode="wrap")
    q = np.percentile(x, [1, 5, 25, 50, 75, 95, 99])
    jxx, jyy, jxy = (gx * gx).sum(), (gy * gy).sum(), (gx * gy).sum()
    above = x > x.mean()
    right, down = np.roll(x, -1, 1), np.roll(x, -1, 0)
    cross = [(above != np.roll(above, -1, a)).mean() for a in (0, 1)]
    return [
        x.mean(), x.var(), x.std(), stats.skew(x, axis=None), stats.kurtosis(x, axis=None), x.min(), x.max(), np.ptp(x),
        stats.iqr(x), stats.median_abs_deviation(x, axis=None), np.abs(x).mean(), np.sqrt((x * x).mean()),
        g.mean(), g.std(), g.max(), np.abs(gx).mean(), np.abs(gy).mean(), (jxx - jyy) / (jxx + jyy),
        np.sqrt((jxx - jyy) ** 2 + 4 * jxy**2) / (jxx + jyy), np.abs(lap).mean(), lap.std(), (lap**2).mean(),
        *q, entropy(x), (x > 0).mean(), np.mean(cross),
        np.corrcoef(x.ravel(), right.ravel())[0, 1], np.corrcoef(x.ravel(), down.ravel())[0, 1],
    ]


def spectral(x):
    n = x.shape[0]
    p = np.abs(np.fft.fft2(x - x.mean())) ** 2 / n**4
    f = np.fft.fftfreq(n, 1 / n)
    ky, kx = np.meshgrid(f, f, indexing="ij")
    k = np.hypot(kx, ky)
    keep = k > 0
    p, kx, ky, k = p[keep], kx[keep], ky[keep], k[keep]
    kmax, total = n / 2, p.sum()
    out = []
    for b in range(5):
        high = (b + 1) / 5 * kmax if b < 4 else np.inf
        band = p[(k >= b / 5 * kmax) & (k < high)]
        out += [band.mean(), band.max(), band.std()]
    centroid = (k * p).sum() / total
    rounded = np.round(k).astype(int)
    radial = np.bincount(rounded, p)
    count = np.bincount(rounded)
    rolled = [int(np.argmax(np.cumsum(radial) >= s * total)) for s in (0.85, 0.95)]
    share = p / total
    ks = np.arange(1, n // 2 + 1)
    slope = stats.linregress(np.log(ks), np.log(radial[ks] / count[ks])).slope
    out += [
        k[np.argmax(p)], p.max() / total, centroid, (np.abs(kx) * p).sum() / total, (np.abs(ky) * p).sum() / total,
        np.sqrt(((k - centroid) ** 2 * p).sum() / total), p[k < 0.25 * kmax].sum() / total,
        p[(k >= 0.25 * kmax) & (k < 0.5 * kmax)].sum() / total, p[k >= 0.5 * kmax].sum() / total,
        stats.gmean(p) / p.mean(), stats.entropy(share) / np.log(len(p)), *rolled,
        np.abs((p * np.exp(2j * np.arctan2(ky, kx))).sum()) / total, slope, total,
    ]
    return out


def cross(x):
    flat = x.reshape(C, -1)
    r = np.corrcoef(flat)
    pairs = [(a, b) for a in range(C) for b in range(a)]
    size = [np.hypot(ndimage.sobel(p, 1, mode="wrap"), ndimage.sobel(p, 0, mode="wrap")).ravel() for p in x]
    pair = np.array([r[a, b] for a, b in pairs])
    shifted = [np.corrcoef(flat[a], np.roll(x[b], -1, 1).ravel())[0, 1] for a, b in pairs]
    eig = np.linalg.eigvalsh(r)
    var = flat.var(axis=1)
    return [
        pair.mean(), np.abs(pair).mean(), np.abs(pair).max(), pair.min(), pair.std(),
        np.mean([np.corrcoef(size[a], size[b])[0, 1] for a, b in pairs]), np.mean(shifted),
        np.mean([np.sqrt(((flat[a] - flat[b]) ** 2).mean()) for a, b in pairs]), np.log(var.max() / var.min()),
        eig.max() / C, eig.sum() ** 2 / (eig**2).sum(), -0.5 * np.linalg.slogdet(r)[1],
    ]


def metrics(x, before):
    lag = 1.0 if before is None else np.corrcoef(x.ravel(), before.ravel())[0, 1]
    return [(x * x).mean(), np.mean([entropy(p) for p in x]), lag, x.var(), np.abs(x).mean()]


def acf(x):
    d = x - x.mean()
    return np.correlate(d, d, "full")[len(x) - 1 :] / (d @ d)


def pacf(r, lag):
    """The last coefficient of the Yule-Walker equations of that order."""
    from scipy.linalg import toeplitz

    return np.linalg.solve(toeplitz(r[:lag]), r[1 : lag + 1])[-1]


def temporal(m):
    e, ent, r, var, size = np.array(m).T
    n, tenth = len(e), max(len(e) // 10, 1)
    t = np.arange(n)
    slope = lambda y: np.polyfit(t, y, 1)[0]
    line = np.polyval(np.polyfit(t, e, 1), t)
    p = np.abs(np.fft.rfft(e - line)[1:]) ** 2
    modes = np.arange(1, len(p) + 1)
    a, d1, d2 = acf(e), np.diff(e), np.diff(e, 2)
    q25, q50, q75 = np.percentile(e, [25, 50, 75])
    outside = np.abs(e - q50) > 0.5 * (q75 - q25)
    inner, left, right = e[1:-1], e[:-2], e[2:]
    windows = e[: n // tenth * tenth].reshape(-1, tenth)
    peaks = (inner > left) & (inner > right)
    orders = {}
    for w in np.lib.stride_tricks.sliding_window_view(e, 3):
        key = tuple(np.argsort(w, kind="stable"))
        orders[key] = orders.get(key, 0) + 1
    return [
        e.mean(), e.std(), e.min(), e.max(), slope(np.log(e + 1e-12)), slope(e) / e.std(),
        np.log((e[-tenth:].mean() + 1e-12) / (e[:tenth].mean() + 1e-12)), n / modes[np.argmax(p)], p.max() / p.sum(),
        (modes / n * p).sum() / p.sum(), a[1], a[2], a[5], a[10], int(np.argmax(a < np.exp(-1))),
        pacf(a, 2), pacf(a, 3), pacf(a, 4), np.abs(d2).mean() / np.abs(d1).mean(), np.abs(d1).sum() / np.ptp(e),
        (peaks | ((inner < left) & (inner < right))).mean(), np.diff(e > e.mean()).mean(),
        (~outside[:-1] & outside[1:]).mean(), (peaks & (inner > e.mean() + 2 * e.std())).mean(),
        windows.mean(axis=1).std() / e.std(), windows.std(axis=1).mean() / e.std(), stats.skew(e), stats.kurtosis(e),
        (d1**3).mean() / (d1**2).mean() ** 1.5, r.mean(), r[-tenth:].mean(), ent.mean(),
        ent[-tenth:].mean() - ent[:tenth].mean(), slope(np.log(var + 1e-12)), slope(np.log(size + 1e-12)),
        stats.entropy(list(orders.values())) / np.log(6), lyapunov((e - e.mean()) / e.std()), a[20], pacf(a, 5),
        np.polyfit(t[: n // 2], np.log(e[: n // 2] + 1e-12), 1)[0], np.polyfit(t[n // 2 :], np.log(e[n // 2 :] + 1e-12), 1)[0],
        np.log((windows.std(axis=1).max() + 1e-12) / (windows.std(axis=1).min() + 1e-12)),
        (np.abs(d1) > 3 * np.median(np.abs(d1))).mean(), max(runs(e > e.mean()).max(), runs(e <= e.mean()).max()) / n,
    ]


def lyapunov(z):
    windows = np.lib.stride_tricks.sliding_window_view(z, 3)
    count = len(windows) - 4
    apart = np.abs(windows[:, None] - windows[None]).max(-1)
    far = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) >= 5
    nearest = np.where(far, apart[:count, :count], np.inf).argmin(axis=1)
    i = np.arange(count)
    means = [np.log(np.maximum(apart[i + k, nearest + k], 1e-12)).mean() for k in range(5)]
    return np.polyfit(range(5), means, 1)[0]


def causality(m):
    z = [(x - x.mean()) / x.std() for x in np.array(m)[1:, :3].T]
    e, h, r = z
    lagged = lambda a, b, l: np.corrcoef(a[: len(a) - l], b[l:])[0, 1]
    asymmetry = lambda a, b, l: lagged(a, b, l) - lagged(b, a, l)

    def lead(a, b):
        lags = sorted(range(-10, 11), key=lambda l: (abs(l), l < 0))
        return lags[int(np.argmax([abs(lagged(a, b, l) if l >= 0 else lagged(b, a, -l)) for l in lags]))]

    def error(y, *columns):
        x = np.column_stack([np.ones(len(y)), *columns])
        return ((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2).mean() + 1e-12

    def gain(a, b):
        own = b[1:-1], b[:-2]
        return np.log(error(b[2:], *own) / error(b[2:], *own, a[1:-1], a[:-2]))

    bent = lambda x: error(x[2:], x[1:-1], x[1:-1] ** 2, x[:-2])
    reversal = lambda l: (e[l:] ** 2 * e[:-l] - e[l:] * e[:-l] ** 2).mean()

    def orders(x):
        keys = [tuple(np.argsort(w, kind="stable")) for w in np.lib.stride_tricks.sliding_window_view(x, 3)]
        return np.array([keys.count(k) for k in itertools.permutations(range(3))]) / len(keys)

    d = np.sign(np.diff(e))
    return [
        asymmetry(e, h, 1), asymmetry(e, h, 5), lead(e, h), asymmetry(e, r, 1), asymmetry(e, r, 5), lead(e, r),
        gain(e, h), gain(h, e), gain(e, r), gain(r, e), np.log(bent(e[::-1]) / bent(e)), reversal(1), reversal(5),
        d.sum() / np.abs(d).sum(), jensenshannon(orders(e), orders(e[::-1]), 2) ** 2,
    ]


def runs(marks):
    """Lengths of runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(marks, int), [0]])))
    return edges[1::2] - edges[::2]


def nonlinear(e):
    n = len(e)
    z = (e - e.mean()) / e.std()
    near = np.abs(z[:, None] - z[None, :]) < 0.2
    upper = np.triu(near, 1)
    count = upper.sum()
    diagonals = np.concatenate([runs(np.diag(near, k)) for k in range(1, n)])
    verticals = np.concatenate([runs(upper[i, i + 1 :]) for i in range(n - 1)])
    embed = lambda m: np.lib.stride_tricks.sliding_window_view(z, m)[: n - 2]
    pairs = lambda m, r: np.triu(np.abs(embed(m)[:, None] - embed(m)[None]).max(-1) < r, 1).sum()
    orders = {}
    for w in np.lib.stride_tricks.sliding_window_view(e, 4):
        key = tuple(np.argsort(w, kind="stable"))
        orders[key] = orders.get(key, 0) + 1
    lags = np.array([1, 2, 4, 8])
    spread = [np.sqrt(((z[l:] - z[:-l]) ** 2).mean()) for l in lags]
    return [
        count / (n * (n - 1) / 2), diagonals[diagonals >= 2].sum() / count, diagonals.max() / n,
        verticals[verticals >= 2].sum() / count, np.log2(pairs(3, 0.5) / pairs(3, 0.25)), -np.log(pairs(3, 0.2) / pairs(2, 0.2)),
        stats.entropy(list(orders.values())) / np.log(24), np.polyfit(np.log(lags), np.log(spread), 1)[0],
    ]


def drift(xs):
    out = []
    gradient = lambda p: np.hypot(ndimage.sobel(p, 1, mode="wrap"), ndimage.sobel(p, 0, mode="wrap")).mean() / 8
    for norm in (np.mean, lambda p: np.abs(p).mean(), lambda p: np.sqrt((p * p).mean()), np.ptp, gradient):
        v = np.array([np.mean([norm(p) for p in x]) for x in xs])
        moves = [np.abs(v[lag:] - v[:-lag]).mean() for lag in (1, len(v) // 4)]
        out += [(v[-1] - v[0]) / (abs(v[0]) + 1e-12), *np.array([v.std(), *moves]) / (abs(v.mean()) + 1e-12)]
    return out


fields = [field(t) for t in range(T)]
series = [metrics(fields[t], fields[t - 1] if t else None) for t in range(T)]
x = fields[5]
frame = [*np.mean([spatial(p) for p in x], axis=0), *np.mean([spectral(p) for p in x], axis=0), *cross(x)]
sobol = qmc.Sobol(20, scramble=False, bits=32).random(64)
points = qmc.Sobol(14, scramble=False, bits=32).random(256)
corners = field(5)[0, :4, :4].ravel()
print(json.dumps({
    "corners": corners.tolist(), "sobol": sobol.ravel().tolist(), "discrepancy": qmc.discrepancy(points, method="CD"),
    "frame": [float(v) for v in frame], "metrics": [float(v) for v in series[5]], "temporal": [float(v) for v in temporal(series)],
    "nonlinear": [float(v) for v in nonlinear(np.array(series)[:, 0])], "causality": [float(v) for v in causality(series)],
    "drift": [float(v) for v in drift(fields[::4])],
}))
