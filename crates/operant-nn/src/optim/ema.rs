//! A moving average of parameters (Polyak & Juditsky, 1992): a slow copy for targets and evaluation.

use super::kernels::Average;
use crate::Params;
use operant_lanes::Backend;

/// Averaged parameters. Buffers are copied, not averaged.
#[derive(Clone, Debug)]
pub struct Ema {
    average: Params,
    backend: Backend,
}

impl Ema {
    /// Starts as a copy.
    pub fn new(params: &Params, backend: Backend) -> Self {
        Self { average: params.clone(), backend }
    }

    /// `average = decay · average + (1 − decay) · params`. Panics if the layout is another.
    pub fn update(&mut self, params: &Params, decay: f64) {
        self.check(params);
        let rate = (1.0 - decay) as f32;
        for spec in params.specs() {
            let values = &params.values()[spec.padded_range()];
            let average = &mut self.average.values_mut()[spec.padded_range()];
            if spec.trainable {
                self.backend.run(Average { average, values, rate });
            } else {
                average.copy_from_slice(values);
            }
        }
    }

    /// The averaged parameters; saving them saves all there is.
    pub fn params(&self) -> &Params {
        &self.average
    }

    /// The averaged parameters, to be loaded.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.average
    }

    /// Takes the parameters as they are. Panics if the layout is another.
    pub fn copy_from(&mut self, params: &Params) {
        self.check(params);
        self.average.values_mut().copy_from_slice(params.values());
    }

    /// Writes the average into `params`. Panics if the layout is another.
    pub fn copy_to(&self, params: &mut Params) {
        self.check(params);
        params.values_mut().copy_from_slice(self.average.values());
    }

    fn check(&self, params: &Params) {
        assert!(params.specs() == self.average.specs(), "an average follows the parameters it was made for");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Init, Metadata, ParamSpec};

    #[test]
    fn follows_and_saves_exactly() {
        let mut params = Params::new(vec![
            ParamSpec::new("w", &[5, 7], Init::HeNormal),
            ParamSpec::buffer("mean", &[3], Init::Ones),
        ])
        .unwrap();
        params.initialise(1);
        let backend = Backend::new(Default::default(), Default::default());
        let mut ema = Ema::new(&params, backend);
        let mut reference: Vec<f64> = params.get("w").unwrap().iter().map(|&x| f64::from(x)).collect();
        for step in 0..50 {
            params.get_mut("w").unwrap().iter_mut().for_each(|x| *x += 0.01 * step as f32);
            params.get_mut("mean").unwrap().fill(step as f32);
            ema.update(&params, 0.95);
            for (average, &x) in reference.iter_mut().zip(params.get("w").unwrap()) {
                *average = 0.95 * *average + 0.05 * f64::from(x);
            }
        }
        for (&got, wanted) in ema.params().get("w").unwrap().iter().zip(&reference) {
            assert!((f64::from(got) - wanted).abs() < 1e-5 * wanted.abs().max(1.0), "{got} {wanted}");
        }
        assert_eq!(ema.params().get("mean").unwrap(), [49.0; 3]);
        assert_eq!(ema.params().values()[35..48], [0.0; 13]);
        let bytes = ema.params().to_bytes(&Metadata::new());
        let mut other = Ema::new(&params, backend);
        other.params_mut().from_bytes(&bytes).unwrap();
        assert_eq!(other.params(), ema.params());
        ema.copy_to(&mut params);
        assert_eq!(&params, ema.params());
        params.values_mut()[0] = 9.0;
        ema.copy_from(&params);
        assert_eq!(ema.params().values()[0], 9.0);
    }
}
