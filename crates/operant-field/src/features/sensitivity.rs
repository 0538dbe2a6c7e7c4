//! The sensitivity family: what an operator O makes of small changes of a field x, with the same noise on both sides. ‖·‖ is the
//! root mean square.

use super::{Family, Feature};
use operant_lanes::rng::HostRng;
use std::f64::consts::TAU;

const fn f(name: &'static str, formula: &'static str) -> Feature {
    Feature { name, formula }
}

/// In the order of [`features`].
pub(super) const FAMILY: Family = Family {
    name: "sensitivity",
    terms: "O is the operator at time 0, with the same noise in every application, x the first field; |y| is the \
            root mean square over channels and pixels. p are standard normal numbers, the same for all realisations, \
            divided by their |p|. w_c[i, j] = cos(2 pi c (i + j) / n) in every channel, divided by its |w_c|",
    features: &[
        f("lipschitz3", "|O(x + 1e-3 p) - O(x)| / 1e-3"),
        f("lipschitz2", "|O(x + 1e-2 p) - O(x)| / 1e-2"),
        f("lipschitz1", "|O(x + 1e-1 p) - O(x)| / 1e-1"),
        f("gain1", "|O(x + 0.01 w_1) - O(x)| / 0.01"),
        f("gain2", "|O(x + 0.01 w_2) - O(x)| / 0.01"),
        f("gain4", "|O(x + 0.01 w_4) - O(x)| / 0.01"),
        f("gain8", "|O(x + 0.01 w_8) - O(x)| / 0.01"),
        f("offset", "|O(x + 0.01) - O(x)| / 0.01"),
        f("curvature", "|O(x + 0.1 p) - 2 O(x) + O(x - 0.1 p)| / |O(x + 0.1 p) - O(x - 0.1 p)|"),
        f("homogeneity", "|O(2 x) - 2 O(x)| / |O(2 x)|"),
        f("additivity", "|O(x + w_2) - O(x) - O(w_2) + O(0)| / |O(x + w_2)|"),
        f("output", "|O(x)| / |x|"),
    ],
    reference: "Szegedy et al., 2014 (Lipschitz); Schoukens & Ljung, 2019 (linearity)",
};

/// Keeps these draws apart.
const STREAM: u32 = 0x7365_6e73;

fn size(x: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = x.fold((0.0, 0.0), |(sum, n), x| (sum + x * x, n + 1.0));
    (sum / n).sqrt()
}

/// Of every row of fields `[M, H, W, C]`, H = W = n; `apply` is O on such rows, noise and all a function of the row.
pub(super) fn features(
    apply: &mut dyn FnMut(&[f32]) -> Vec<f32>,
    x: &[f32],
    n: usize,
    channels: usize,
    key: u64,
) -> Vec<Vec<f64>> {
    let len = n * n * channels;
    let mut rng = HostRng::new(key, STREAM, 0, 0);
    let mut random: Vec<f32> = (0..len).map(|_| rng.normal()).collect();
    let scale = 1.0 / size(random.iter().map(|&x| f64::from(x)));
    random.iter_mut().for_each(|x| *x *= scale as f32);
    let wave = |cycles: usize| {
        let at = |i: usize| {
            let (y, z) = (i / channels / n, i / channels % n);
            (TAU * (cycles * (y + z)) as f64 / n as f64).cos()
        };
        // The fastest wave of a grid has another size than the others.
        let scale = 1.0 / size((0..len).map(at));
        (0..len).map(|i| (at(i) * scale) as f32).collect::<Vec<f32>>()
    };
    // a·x + b·p of every row.
    let moved = |a: f32, b: f32, p: &[f32]| -> Vec<f32> {
        x.chunks_exact(len).flat_map(|row| row.iter().zip(p).map(|(x, p)| a * x + b * p).collect::<Vec<_>>()).collect()
    };
    let ones = vec![1.0; len];
    let plain = apply(x);
    let mut gains: Vec<(f64, Vec<f32>)> = Vec::new();
    for e in [1e-3f32, 1e-2, 1e-1] {
        gains.push((e.into(), apply(&moved(1.0, e, &random))));
    }
    for cycles in [1, 2, 4, 8] {
        gains.push((0.01, apply(&moved(1.0, 0.01, &wave(cycles)))));
    }
    gains.push((0.01, apply(&moved(1.0, 0.01, &ones))));
    let back = apply(&moved(1.0, -0.1, &random));
    let (double, both) = (apply(&moved(2.0, 0.0, &ones)), apply(&moved(1.0, 1.0, &wave(2))));
    let (alone, nothing) = (apply(&moved(0.0, 1.0, &wave(2))), apply(&moved(0.0, 0.0, &ones)));
    let row = |y: &[f32], m: usize| y[m * len..][..len].iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let mut out = Vec::new();
    for m in 0..x.len() / len {
        let o = row(&plain, m);
        let minus = |a: &[f64], b: &[f64]| size(a.iter().zip(b).map(|(a, b)| a - b));
        let share = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let mut features: Vec<f64> = gains.iter().map(|(e, y)| minus(&row(y, m), &o) / e).collect();
        let (ahead, behind) = (row(&gains[2].1, m), row(&back, m));
        let bend = size((0..len).map(|i| ahead[i] - 2.0 * o[i] + behind[i]));
        features.push(share(bend, minus(&ahead, &behind)));
        let (double, both, alone, nothing) = (row(&double, m), row(&both, m), row(&alone, m), row(&nothing, m));
        features.push(share(size((0..len).map(|i| double[i] - 2.0 * o[i])), size(double.iter().copied())));
        let apart = size((0..len).map(|i| both[i] - o[i] - alone[i] + nothing[i]));
        features.push(share(apart, size(both.iter().copied())));
        features.push(share(size(o.iter().copied()), size(row(x, m).into_iter())));
        out.push(features);
    }
    out
}
