//! Neural operators on fields, rolled out for Python.

use crate::error::raise;
use numpy::{PyArray1, PyReadonlyArray1};
use operant::device::CpuPool;
use operant::env::field::{After, Norm, Operator, Rollout, Schedule, Update};
use operant::nn::ops::NoiseLaw;
use operant::nn::{Act, Options};
use operant::{Error, Result};
use pyo3::prelude::*;
use std::sync::Arc;

/// The thing of that name.
fn named<T: Copy>(what: &str, word: &str, known: &[(&'static str, T)]) -> Result<T> {
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| Error::unknown(what, word, names.iter().copied(), &names.join(", ")))
}

/// Fields of a rollout at times 0, every, 2·every …: `[times, M, H, W, C]`, flat. `first` is one field `[H, W, C]`, flat.
#[pyfunction]
#[pyo3(signature = (first, *, channels, grid, layers, base_channels, kernel, activation, dropout, noise, noise_scale, schedule,
    correlation, norm, policy, alpha, dt, seed, realisations, steps, every, precision, normalise, clamp, threads))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn roll_out_field<'py>(
    py: Python<'py>,
    first: PyReadonlyArray1<'py, f32>,
    channels: usize,
    grid: usize,
    layers: usize,
    base_channels: usize,
    kernel: usize,
    activation: &str,
    dropout: f32,
    noise: &str,
    noise_scale: f32,
    schedule: &str,
    correlation: f32,
    norm: &str,
    policy: &str,
    alpha: f32,
    dt: f32,
    seed: u64,
    realisations: u32,
    steps: u32,
    every: u32,
    precision: &str,
    normalise: bool,
    clamp: f32,
    threads: usize,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let activations =
        [("relu", Act::Relu), ("gelu", Act::Gelu), ("silu", Act::Silu), ("tanh", Act::Tanh), ("sigmoid", Act::Sigmoid)];
    let policies = [
        ("autoregressive", Update::Autoregressive),
        ("residual", Update::Residual { dt }),
        ("convex", Update::Convex { alpha }),
    ];
    let first = first.as_slice()?.to_vec();
    let build = || -> Result<(Rollout, usize)> {
        let operator = Operator {
            channels,
            grid,
            layers,
            base_channels,
            kernel,
            flat: false,
            activation: named("activation", activation, &activations)?,
            dropout,
            noise: named("noise", noise, &NoiseLaw::ALL.map(|law| (law.name(), law)))?,
            noise_scale,
            schedule: named("schedule", schedule, &Schedule::ALL.map(|schedule| (schedule.name(), schedule)))?,
            correlation,
            norm: named("norm", norm, &Norm::ALL.map(|norm| (norm.name(), norm)))?,
        };
        let update = named("policy_type", policy, &policies)?;
        if first.len() != operator.field_len() || realisations == 0 || every == 0 || !(1..=1024).contains(&threads) {
            let wanted = format!(
                "wanted a field of {} numbers, realisations, every and threads of at least 1",
                operator.field_len()
            );
            return Err(Error::Invalid(format!("a field of {} numbers: {wanted}", first.len())));
        }
        let pool = Arc::new(CpuPool::new(threads));
        let options = Options { pool, precision: precision.parse()?, ..Options::default() };
        let after = After { normalise, clamp };
        let rollout = Rollout::new(&operator, update, after, seed, 0..realisations, steps, &first, &options)?;
        Ok((rollout, operator.field_len()))
    };
    let fields = py
        .detach(|| -> Result<Vec<f32>> {
            let (mut rollout, len) = build()?;
            let times = (steps / every) as usize + 1;
            let mut fields = Vec::with_capacity(times * realisations as usize * len);
            fields.extend_from_slice(rollout.state());
            for t in 1..=steps {
                rollout.step();
                if t % every == 0 {
                    fields.extend_from_slice(rollout.state());
                }
            }
            Ok(fields)
        })
        .map_err(raise)?;
    Ok(PyArray1::from_vec(py, fields))
}
