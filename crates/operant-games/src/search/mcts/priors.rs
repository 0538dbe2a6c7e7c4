//! Priors of actions: from logits, and noise on them.

use operant_lanes::rng::HostRng;

/// exp(x) / Σ exp(x).
pub(super) fn softmax(x: &[f32], out: &mut [f32]) {
    let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut total = 0.0;
    for (out, x) in out.iter_mut().zip(x) {
        *out = (x - most).exp();
        total += *out;
    }
    out.iter_mut().for_each(|out| *out /= total);
}

/// A draw from the gamma distribution (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).
pub(super) fn gamma(alpha: f32, rng: &mut HostRng) -> f32 {
    if alpha < 1.0 {
        let boost = (1.0 - rng.unit()).powf(1.0 / alpha);
        return gamma(alpha + 1.0, rng) * boost;
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = rng.normal();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - rng.unit()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}
