//! The causality family: which of three series of a trajectory goes before which, and how time forwards differs from time
//! backwards. e is the energy, h the entropy, r the lag-1 correlation of frames, each from step 1 on and standardised.

use super::{Family, Feature, METRICS, correlation, mean, ratio, variance};

const fn f(name: &'static str, formula: &'static str) -> Feature {
    Feature { name, formula }
}

/// In the order of [`features`].
pub(super) const FAMILY: Family = Family {
    name: "causality",
    terms: "e, h and r are the metrics energy, entropy and lag1 at the times 1 to T (time 0 is left out), each less \
            its mean and divided by its standard deviation, or 0 if that is at most 1e-9 of the mean's size. \
            corr(a_t, b_t+l) is over the times that have both. Predictions are least squares with a constant over \
            the times that have all; a column that those before it make up, to 1e-12 of its sum of squares, is left \
            out. All are 0 for T < 23, NaN where a metric after time 0 is not finite",
    features: &[
        f("energy_entropy_asymmetry1", "corr(e_t, h_t+1) - corr(h_t, e_t+1)"),
        f("energy_entropy_asymmetry5", "corr(e_t, h_t+5) - corr(h_t, e_t+5)"),
        f(
            "energy_entropy_lead",
            "lag l of the largest |corr(e_t, h_t+l)|, l in -10..10: above 0, e goes before h; a lag must be larger \
             by 1e-9 than those before it in the order 0, 1, -1, 2, -2, ...",
        ),
        f("energy_persistence_asymmetry1", "corr(e_t, r_t+1) - corr(r_t, e_t+1)"),
        f("energy_persistence_asymmetry5", "corr(e_t, r_t+5) - corr(r_t, e_t+5)"),
        f("energy_persistence_lead", "lag l of the largest |corr(e_t, r_t+l)|, as there"),
        f(
            "energy_to_entropy",
            "ln((E1 + 1e-12) / (E2 + 1e-12)), mean squared errors of h_t predicted by h_t-1, h_t-2, and by those \
             with e_t-1, e_t-2",
        ),
        f("entropy_to_energy", "the same of e_t, without and with h_t-1, h_t-2"),
        f("energy_to_persistence", "the same of r_t, without and with e_t-1, e_t-2"),
        f("persistence_to_energy", "the same of e_t, without and with r_t-1, r_t-2"),
        f(
            "prediction_reversal",
            "ln((E back + 1e-12) / (E forth + 1e-12)), mean squared errors of e_t predicted by e_t-1, (e_t-1)^2, \
             e_t-2, of e and of e backwards",
        ),
        f("reversal1", "mean of (e_t+1)^2 e_t - e_t+1 (e_t)^2"),
        f("reversal5", "mean of (e_t+5)^2 e_t - e_t+5 (e_t)^2"),
        f("rises", "(steps up - steps down) / (both together), of e"),
        f(
            "ordinal_irreversibility",
            "divergence of Jensen & Shannon in bits of the shares of the orders of (e_t, e_t+1, e_t+2), of equals \
             the first as the least, from those of e backwards",
        ),
    ],
    reference: "Granger, 1969 (prediction errors); Ramsey & Rothman, 1996 (reversal); Zanin et al., 2018 (orders)",
};

/// Steps that lags of a lead go, either way.
const MOST_LEAD: usize = 10;
/// Added to mean squared errors.
const FLOOR: f64 = 1e-12;

/// Correlation of a with b `lag` steps later.
fn lagged(a: &[f64], b: &[f64], lag: usize) -> f64 {
    correlation(&a[..a.len() - lag], &b[lag..])
}

fn asymmetry(a: &[f64], b: &[f64], lag: usize) -> f64 {
    lagged(a, b, lag) - lagged(b, a, lag)
}

fn lead(a: &[f64], b: &[f64]) -> f64 {
    let (mut best, mut at) = (lagged(a, b, 0).abs(), 0.0);
    for lag in 1..=MOST_LEAD {
        for (size, signed) in [(lagged(a, b, lag).abs(), lag as f64), (lagged(b, a, lag).abs(), -(lag as f64))] {
            // Rounding does not decide between lags.
            if size > best + 1e-9 {
                (best, at) = (size, signed);
            }
        }
    }
    at
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Mean square of what a constant and these columns leave of `target`, by least squares. A column that the ones before it
/// make up is passed over.
fn unexplained(target: &[f64], columns: &[&[f64]]) -> f64 {
    let n = target.len();
    let constant = vec![1.0; n];
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let rest = |column: &[f64], basis: &[Vec<f64>]| {
        let mut rest = column.to_vec();
        // Twice, or rounding of the first time would stay.
        for _ in 0..2 {
            for q in basis {
                let share = dot(&rest, q);
                rest.iter_mut().zip(q).for_each(|(x, q)| *x -= share * q);
            }
        }
        rest
    };
    for column in std::iter::once(&constant[..]).chain(columns.iter().copied()) {
        let mut new = rest(column, &basis);
        let size = dot(&new, &new);
        if size > 1e-12 * dot(column, column) {
            new.iter_mut().for_each(|x| *x /= size.sqrt());
            basis.push(new);
        }
    }
    let left = rest(target, &basis);
    dot(&left, &left) / n as f64
}

/// How much better b is predicted when the last two steps of a are known beside its own.
fn gain(a: &[f64], b: &[f64]) -> f64 {
    let n = b.len();
    let (target, own) = (&b[2..], [&b[1..n - 1], &b[..n - 2]]);
    let alone = unexplained(target, &own);
    let with = unexplained(target, &[own[0], own[1], &a[1..n - 1], &a[..n - 2]]);
    ((alone + FLOOR) / (with + FLOOR)).ln()
}

/// Mean squared error of a series by its last two steps and a square.
fn bent_error(x: &[f64]) -> f64 {
    let n = x.len();
    let squares: Vec<f64> = x[1..n - 1].iter().map(|x| x * x).collect();
    unexplained(&x[2..], &[&x[1..n - 1], &squares, &x[..n - 2]])
}

fn reversal(x: &[f64], lag: usize) -> f64 {
    mean(&x.iter().zip(&x[lag..]).map(|(a, b)| b * b * a - b * a * a).collect::<Vec<f64>>())
}

/// Shares of the eight patterns of three comparisons, of which six can be.
fn orders(x: &[f64]) -> [f64; 8] {
    let mut shares = [0.0; 8];
    for w in x.windows(3) {
        let place = usize::from(w[0] > w[1]) * 4 + usize::from(w[0] > w[2]) * 2 + usize::from(w[1] > w[2]);
        shares[place] += 1.0 / (x.len() - 2) as f64;
    }
    shares
}

fn divergence(p: &[f64], q: &[f64]) -> f64 {
    let from_middle = |p: f64, q: f64| if p > 0.0 { 0.5 * p * (2.0 * p / (p + q)).log2() } else { 0.0 };
    p.iter().zip(q).map(|(&p, &q)| from_middle(p, q) + from_middle(q, p)).sum()
}

/// Mean 0 and standard deviation 1; zeros where rounding alone moves.
fn standardised(x: &[f64]) -> Vec<f64> {
    let (middle, std) = (mean(x), variance(x).sqrt());
    let scale = if std > 1e-9 * middle.abs().max(1e-300) { 1.0 / std } else { 0.0 };
    x.iter().map(|x| (x - middle) * scale).collect()
}

/// Of metrics `[T, 5]`, T at least 24; all 0 for fewer.
pub(super) fn features(metrics: &[[f64; METRICS.len()]]) -> [f64; FAMILY.features.len()] {
    let steps = metrics.get(1..).unwrap_or_default();
    if metrics.len() < 24 || steps.iter().flatten().any(|x| !x.is_finite()) {
        return [if metrics.len() < 24 { 0.0 } else { f64::NAN }; FAMILY.features.len()];
    }
    // The first correlation with a frame before is no measurement.
    let column = |i: usize| standardised(&steps.iter().map(|row| row[i]).collect::<Vec<f64>>());
    let (e, h, r) = (column(0), column(1), column(2));
    let back: Vec<f64> = e.iter().rev().copied().collect();
    let ups = e.windows(2).filter(|w| w[1] > w[0]).count() as f64;
    let downs = e.windows(2).filter(|w| w[1] < w[0]).count() as f64;
    [
        asymmetry(&e, &h, 1),
        asymmetry(&e, &h, 5),
        lead(&e, &h),
        asymmetry(&e, &r, 1),
        asymmetry(&e, &r, 5),
        lead(&e, &r),
        gain(&e, &h),
        gain(&h, &e),
        gain(&e, &r),
        gain(&r, &e),
        ((bent_error(&back) + FLOOR) / (bent_error(&e) + FLOOR)).ln(),
        reversal(&e, 1),
        reversal(&e, 5),
        ratio(ups - downs, ups + downs),
        divergence(&orders(&e), &orders(&back)),
    ]
}
