//! PopArt (van Hasselt et al., arXiv:1602.07714; Hessel et al., arXiv:1809.04474): the value network learns returns of mean
//! 0 and variance 1, and its last layer is rescaled whenever mean or variance change, so that what it predicts does not.

use operant_base::Result;
use operant_nn::Params;
use std::ops::Range;

/// Share of the newest rollout in mean and mean square.
const RATE: f64 = 0.05;
/// Least standard deviation, in units of the return.
const LEAST_STD: f64 = 1e-4;

/// Mean and spread of returns, and the layer that follows them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PopArt {
    /// Where the last layer's weights and its bias lie among the parameters.
    weight: Range<usize>,
    bias: Range<usize>,
    mean: f64,
    square: f64,
    /// How much of the averages is there, because they began at 0: 1 − (1 − rate)ᵗ.
    seen: f64,
    /// In use: that of the network's last layer.
    pub(super) shift: f32,
    pub(super) scale: f32,
}

impl PopArt {
    /// For the last layer of this name.
    pub(super) fn new(layer: &str, params: &Params) -> Result<Self> {
        let range = |part: &str| Ok(params.spec(&format!("{layer}.{part}"))?.range());
        let (weight, bias) = (range("weight")?, range("bias")?);
        Ok(Self { weight, bias, mean: 0.0, square: 0.0, seen: 0.0, shift: 0.0, scale: 1.0 })
    }

    /// Values in units of the return, from what the network gives.
    pub(super) fn denormalise(&self, values: &mut [f32]) {
        values.iter_mut().for_each(|value| *value = self.scale.mul_add(*value, self.shift));
    }

    /// What the network should give for values in units of the return.
    pub(super) fn normalise(&self, values: &mut [f32]) {
        let factor = 1.0 / self.scale;
        values.iter_mut().for_each(|value| *value = (*value - self.shift) * factor);
    }

    /// Takes returns into account, and rescales the last layer so that σ·v + μ stays what it was.
    pub(super) fn update(&mut self, returns: &[f32], params: &mut Params) {
        let count = returns.len() as f64;
        let mean = returns.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let square = returns.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / count;
        self.mean += RATE * (mean - self.mean);
        self.square += RATE * (square - self.square);
        self.seen += RATE * (1.0 - self.seen);
        let (mean, square) = (self.mean / self.seen, self.square / self.seen);
        let std = (square - mean * mean).max(0.0).sqrt().max(LEAST_STD);
        let (shift, scale) = (mean as f32, std as f32);
        let factor = self.scale / scale;
        let values = params.values_mut();
        values[self.weight.clone()].iter_mut().for_each(|w| *w *= factor);
        values[self.bias.clone()].iter_mut().for_each(|b| *b = (self.scale * *b + self.shift - shift) / scale);
        (self.shift, self.scale) = (shift, scale);
    }

    /// As numbers for a checkpoint.
    pub(super) fn to_numbers(&self) -> Vec<f64> {
        vec![self.mean, self.square, self.seen, f64::from(self.shift), f64::from(self.scale)]
    }

    /// Takes back [`PopArt::to_numbers`].
    pub(super) fn set_numbers(&mut self, numbers: &[f64]) -> Option<()> {
        let &[mean, square, seen, shift, scale] = numbers else { return None };
        (self.mean, self.square, self.seen) = (mean, square, seen);
        (self.shift, self.scale) = (shift as f32, scale as f32);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_lanes::rng::HostRng;
    use operant_nn::{Act, Graph, Options, Plan, nets};

    /// An earlier system rescaled the wrong way round: predictions jumped at every update.
    #[test]
    fn predictions_do_not_move_when_statistics_do() {
        let mut g = Graph::new();
        let x = g.input("x", [3]);
        let y = nets::mlp(&mut g, "critic", x, &[16, 1], Act::Tanh, 1.0).unwrap();
        let mut params = g.params(5).unwrap();
        let mut plan = Plan::inference(&g, &[y], 32, &Options::default()).unwrap();
        let mut rng = HostRng::new(1, 0, 0, 0);
        let inputs: Vec<f32> = (0..96).map(|_| rng.normal()).collect();
        let mut popart = PopArt::new("critic.2", &params).unwrap();
        let mut predict = |params: &Params, popart: &PopArt| {
            plan.forward(params, 32, &[(&inputs[..]).into()]);
            let mut values = plan.output(y).to_vec();
            popart.denormalise(&mut values);
            values
        };
        for (mean, std) in [(100.0, 50.0), (-3.0, 0.01), (1e4, 1.0)] {
            let before = predict(&params, &popart);
            let returns: Vec<f32> = (0..1000).map(|_| mean + std * rng.normal()).collect();
            popart.update(&returns, &mut params);
            let after = predict(&params, &popart);
            for (a, b) in before.iter().zip(&after) {
                let size = a.abs().max(popart.scale).max(popart.shift.abs());
                assert!((a - b).abs() <= 2e-5 * size, "{a} became {b}");
            }
        }
    }

    #[test]
    fn returns_become_normal_numbers() {
        let mut g = Graph::new();
        let x = g.input("x", [1]);
        nets::mlp(&mut g, "critic", x, &[1], Act::Tanh, 1.0).unwrap();
        let mut params = g.params(0).unwrap();
        let (mut popart, mut rng) = (PopArt::new("critic.0", &params).unwrap(), HostRng::new(2, 0, 0, 0));
        for _ in 0..100 {
            let returns: Vec<f32> = (0..1000).map(|_| 20.0 + 7.0 * rng.normal()).collect();
            popart.update(&returns, &mut params);
        }
        assert!((popart.shift - 20.0).abs() < 0.2 && (popart.scale - 7.0).abs() < 0.2, "{popart:?}");
        let mut values = [27.0, 20.0];
        popart.normalise(&mut values);
        assert!((values[0] - 1.0).abs() < 0.1 && values[1].abs() < 0.1);
        popart.denormalise(&mut values);
        assert!((values[0] - 27.0).abs() < 1e-4);
        let mut again = PopArt::new("critic.0", &params).unwrap();
        again.set_numbers(&popart.to_numbers()).unwrap();
        assert_eq!(again, popart);
    }
}
