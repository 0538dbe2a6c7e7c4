//! The numbers that PPO reports.

use operant_base::telemetry::Metric;
use operant_nn::ops::PPO_STATISTICS;

/// Reported numbers, in the order of [`METRICS`].
#[derive(Clone, Copy)]
pub(super) enum Reported {
    PolicyLoss,
    ValueLoss,
    Entropy,
    ApproxKl,
    ClipFraction,
    ExplainedVariance,
    ValueMean,
    ValueMin,
    ValueMax,
    GradNorm,
    LearningRate,
    Epochs,
    Novelty,
}

pub(super) const METRICS: &[Metric] = &[
    Metric::new("loss/policy", "clipped policy loss", ""),
    Metric::new("loss/value", "value loss", ""),
    Metric::new("entropy", "entropy of the policy in nats", ""),
    Metric::new("approx_kl", "mean of (ratio - 1) - ln ratio", ""),
    Metric::new("clip_fraction", "share of samples whose ratio was clipped", ""),
    Metric::new("explained_variance", "1 - var(return - value) / var(return)", ""),
    Metric::new("value/mean", "mean predicted value", ""),
    Metric::new("value/min", "smallest predicted value", ""),
    Metric::new("value/max", "largest predicted value", ""),
    Metric::new("grad_norm", "norm of the gradient before clipping", ""),
    Metric::new("learning_rate", "step size of the optimiser", ""),
    Metric::new("epochs", "passes over the rollout", ""),
    Metric::new("novelty", "mean error that is rewarded as new, before scaling", ""),
];

/// Says which of the statistics of a loss is not finite, by the name that it is reported under: the gradient's norm if
/// all of them are.
pub(super) fn not_finite(statistics: &[f64; PPO_STATISTICS]) -> String {
    let [policy, value, entropy, _, kl, clipped] = statistics;
    let by_name = [
        (policy, Reported::PolicyLoss),
        (value, Reported::ValueLoss),
        (entropy, Reported::Entropy),
        (kl, Reported::ApproxKl),
        (clipped, Reported::ClipFraction),
    ];
    let first = by_name.iter().find(|(x, _)| !x.is_finite()).map_or(Reported::GradNorm, |(_, metric)| *metric);
    format!("{} is not finite", METRICS[first as usize].name)
}
