//! Reads the data that `generate_optim.py` wrote.

use operant_lanes::{Backend, Math, Width};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

pub(crate) struct Golden(Vec<u8>);

impl Golden {
    pub(crate) fn open(name: &str) -> Self {
        let path = format!("{}/tests/golden_nn/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
        Self(std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}; run `cargo xtask golden nn`")))
    }

    /// Values of an f32 or f64 tensor.
    pub(crate) fn get(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        match view.dtype() {
            Dtype::F32 => view.data().as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            Dtype::F64 => view.data().as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
            other => panic!("{name} holds {other:?}"),
        }
    }

    /// The same as f32, for inputs.
    pub(crate) fn f32(&self, name: &str) -> Vec<f32> {
        self.get(name).iter().map(|&x| x as f32).collect()
    }
}

/// Every lane width in strict mode, and the wide ones in fast mode.
pub(crate) fn backends() -> Vec<Backend> {
    let mut all =
        vec![Backend::portable(Width::One), Backend::portable(Width::Eight), Backend::portable(Width::Sixteen)];
    for width in [Width::Eight, Width::Sixteen] {
        all.extend([Backend::new(width, Math::Strict), Backend::new(width, Math::Fast)]);
    }
    all
}
