//! Gradients tensor by tensor, now and then: their norm, how much of them is 0, and how far a step moves the weights.
//!
//! Looked at in the first minibatch of every so many iterations, before clipping. Invariant: what is learned does not depend
//! on it, and nothing is allocated after `new`.

use operant_base::telemetry::Metric;
use operant_nn::Params;
use std::ops::Range;

/// Numbers of each tensor: name, help.
const NUMBERS: [(&str, &str); 3] = [
    ("norm", "norm of the gradient before clipping"),
    ("zeros", "share of the gradient that is 0"),
    ("update", "norm of a step over the norm of the weights"),
];

/// Looks at gradients by stride.
pub(super) struct GradientStatistics {
    stride: u32,
    tensors: Vec<Range<usize>>,
    /// Whether the next step is to be looked at.
    due: bool,
    /// Weights before that step.
    before: Vec<f32>,
    /// The newest numbers, tensor by tensor in the order of [`NUMBERS`].
    values: Vec<f64>,
}

impl GradientStatistics {
    /// Looks at every `stride`th iteration; 0 for none.
    pub(super) fn new(stride: u32, params: &Params) -> Option<Self> {
        let tensors: Vec<_> = params.specs().iter().filter(|spec| spec.trainable).map(|spec| spec.range()).collect();
        (stride > 0).then(|| Self {
            stride,
            due: false,
            before: vec![0.0; params.len()],
            values: vec![f64::NAN; NUMBERS.len() * tensors.len()],
            tensors,
        })
    }

    /// What is reported of these parameters, in the order of [`GradientStatistics::values`].
    pub(super) fn metrics(params: &Params) -> impl Iterator<Item = Metric> {
        let trainable = params.specs().iter().filter(|spec| spec.trainable);
        trainable.flat_map(|spec| {
            NUMBERS.iter().map(|(number, help)| Metric::rare(format!("gradient/{}/{number}", spec.name), help))
        })
    }

    /// The newest numbers; NaN before there are any.
    pub(super) fn values(&self) -> &[f64] {
        &self.values
    }

    /// An iteration begins to learn.
    pub(super) fn begin(&mut self, iteration: u32) {
        self.due = iteration.is_multiple_of(self.stride);
    }

    /// The optimiser is about to step from these weights.
    pub(super) fn before_step(&mut self, params: &Params) {
        if self.due {
            self.before.copy_from_slice(params.values());
        }
    }

    /// It stepped by these gradients of a loss that was multiplied by `loss_scale`, and they were finite or it left them out.
    pub(super) fn after_step(&mut self, params: &Params, gradients: &[f32], loss_scale: f32, finite: bool) {
        if !(self.due && finite) {
            return;
        }
        self.due = false;
        let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
        for (values, range) in self.values.chunks_exact_mut(NUMBERS.len()).zip(&self.tensors) {
            let (gradient, before) = (&gradients[range.clone()], &self.before[range.clone()]);
            let after = &params.values()[range.clone()];
            let zeros = gradient.iter().filter(|x| **x == 0.0).count();
            let moved = norm(&mut before.iter().zip(after).map(|(a, b)| f64::from(*b) - f64::from(*a)));
            let weights = norm(&mut before.iter().map(|x| f64::from(*x)));
            values[0] = norm(&mut gradient.iter().map(|x| f64::from(*x))) / f64::from(loss_scale);
            values[1] = zeros as f64 / gradient.len() as f64;
            // Of weights that are all 0, as biases are at first, there is no share.
            values[2] = if weights > 0.0 { moved / weights } else { f64::NAN };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_nn::Graph;

    fn params() -> Params {
        let mut g = Graph::new();
        let x = g.input("x", [3]);
        g.linear("fc", x, 2).unwrap();
        g.params(1).unwrap()
    }

    #[test]
    fn a_stride_of_zero_looks_at_nothing() {
        assert!(GradientStatistics::new(0, &params()).is_none());
    }

    #[test]
    fn numbers_are_those_of_each_tensor() {
        let mut params = params();
        let names: Vec<&str> = GradientStatistics::metrics(&params).map(|metric| metric.name).collect();
        assert_eq!(names[..3], ["gradient/fc.weight/norm", "gradient/fc.weight/zeros", "gradient/fc.weight/update"]);
        assert_eq!(names.len(), 6);
        params.set("fc.weight", &[3.0, 0.0, 0.0, 0.0, 0.0, 4.0]).unwrap();
        params.set("fc.bias", &[0.0, 0.0]).unwrap();
        let mut gradients = vec![0.0; params.len()];
        let weight = params.spec("fc.weight").unwrap().range();
        gradients[weight.clone()].copy_from_slice(&[0.0, 8.0, 6.0, 0.0, 0.0, 0.0]);
        let mut statistics = GradientStatistics::new(10, &params).unwrap();
        let mut step = |iteration, params: &mut Params, finite| {
            statistics.begin(iteration);
            statistics.before_step(params);
            params.values_mut()[weight.start] += 0.5;
            statistics.after_step(params, &gradients, 2.0, finite);
            statistics.values().to_vec()
        };
        assert!(step(9, &mut params, true).iter().all(|x| x.is_nan()), "9 is no multiple of 10");
        assert!(step(10, &mut params, false).iter().all(|x| x.is_nan()), "a step that was left out");
        params.set("fc.weight", &[3.0, 0.0, 0.0, 0.0, 0.0, 4.0]).unwrap();
        let values = step(20, &mut params, true);
        assert_eq!(values[..5], [5.0, 4.0 / 6.0, 0.1, 0.0, 1.0]);
        assert!(values[5].is_nan());
        assert_eq!(step(21, &mut params, true)[..5], values[..5], "they stay until the next look");
    }
}
