//! The drift family: what a trajectory does to five norms of its frames, from the first frame to the last, from one to the next and
//! over a quarter of all.

use super::{FAMILIES, Family, Feature, mean, variance};

const fn f(name: &'static str, formula: &'static str) -> Feature {
    Feature { name, formula }
}

/// In the order of [`features`]: of each norm the change, the spread and moves over two times.
pub(super) const FAMILY: Family = Family {
    name: "drift",
    terms: "y_0 to y_F-1 are a feature of spatial over the F frames of a trajectory, of which time 0 is the first; q \
            = max(floor(F/4), 1)",
    features: &[
        f("mass_change", "(y_F-1 - y_0) / (|y_0| + 1e-12), y = spatial.mean"),
        f("mass_spread", "standard deviation of y / (|mean y| + 1e-12), y = spatial.mean"),
        f("mass_step", "mean |y_f+1 - y_f| / (|mean y| + 1e-12), y = spatial.mean"),
        f("mass_quarter", "mean |y_f+q - y_f| / (|mean y| + 1e-12), y = spatial.mean"),
        f("l1_change", "(y_F-1 - y_0) / (|y_0| + 1e-12), y = spatial.mean_abs"),
        f("l1_spread", "standard deviation of y / (|mean y| + 1e-12), y = spatial.mean_abs"),
        f("l1_step", "mean |y_f+1 - y_f| / (|mean y| + 1e-12), y = spatial.mean_abs"),
        f("l1_quarter", "mean |y_f+q - y_f| / (|mean y| + 1e-12), y = spatial.mean_abs"),
        f("l2_change", "(y_F-1 - y_0) / (|y_0| + 1e-12), y = spatial.rms"),
        f("l2_spread", "standard deviation of y / (|mean y| + 1e-12), y = spatial.rms"),
        f("l2_step", "mean |y_f+1 - y_f| / (|mean y| + 1e-12), y = spatial.rms"),
        f("l2_quarter", "mean |y_f+q - y_f| / (|mean y| + 1e-12), y = spatial.rms"),
        f("range_change", "(y_F-1 - y_0) / (|y_0| + 1e-12), y = spatial.range"),
        f("range_spread", "standard deviation of y / (|mean y| + 1e-12), y = spatial.range"),
        f("range_step", "mean |y_f+1 - y_f| / (|mean y| + 1e-12), y = spatial.range"),
        f("range_quarter", "mean |y_f+q - y_f| / (|mean y| + 1e-12), y = spatial.range"),
        f("gradient_change", "(y_F-1 - y_0) / (|y_0| + 1e-12), y = spatial.gradient_mean"),
        f("gradient_spread", "standard deviation of y / (|mean y| + 1e-12), y = spatial.gradient_mean"),
        f("gradient_step", "mean |y_f+1 - y_f| / (|mean y| + 1e-12), y = spatial.gradient_mean"),
        f("gradient_quarter", "mean |y_f+q - y_f| / (|mean y| + 1e-12), y = spatial.gradient_mean"),
    ],
    reference: "conserved quantities of evolution equations: LeVeque, Finite Volume Methods, 2002",
};

const NORMS: [&str; 5] = ["mean", "mean_abs", "rms", "range", "gradient_mean"];

/// Of frames `[frames, F]`, at least one.
pub(super) fn features(frames: &[Vec<f64>]) -> Vec<f64> {
    let mut out = Vec::new();
    for norm in NORMS {
        let place = FAMILIES[0].features.iter().position(|feature| feature.name == norm);
        let values: Vec<f64> = frames.iter().map(|frame| frame[place.expect("a spatial feature")]).collect();
        let (first, last) = (values[0], values[values.len() - 1]);
        out.push((last - first) / (first.abs() + 1e-12));
        let size = mean(&values).abs() + 1e-12;
        out.push(variance(&values).sqrt() / size);
        for lag in [1, (values.len() / 4).max(1)] {
            let moves: Vec<f64> = values.iter().zip(&values[lag..]).map(|(a, b)| (b - a).abs()).collect();
            out.push(mean(&moves) / size);
        }
    }
    out
}
