//! Neural operators on fields, rolled out for Python.

use crate::error::raise;
use numpy::{PyArray1, PyReadonlyArray1};
use operant::device::cuda::Gpu;
use operant::device::{CpuPool, Device};
use operant::field::cuda::{CudaRollout, Member, refused, unserved};
use operant::field::{Afno, After, AnyRollout, Norm, Operator, Rollout, STEPS_AT_ONCE, Schedule, Update};
use operant::nn::ops::NoiseLaw;
use operant::nn::{Act, Options, Precision};
use operant::{Error, Result};
use pyo3::prelude::*;
use std::sync::Arc;

/// The thing of that name.
fn named<T: Copy>(what: &str, word: &str, known: &[(&'static str, T)]) -> Result<T> {
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| Error::unknown(what, word, names.iter().copied(), &names.join(", ")))
}

/// Fields of a rollout at times 0, every, 2·every …: `[times, M, H, W, C]`, flat; and what was done in place of what was asked for,
/// if so. `first` is one field `[H, W, C]`, flat.
#[pyfunction]
#[pyo3(signature = (first, *, architecture, channels, grid, layers, base_channels, kernel, activation, dropout, noise, noise_scale,
    schedule, correlation, norm, levels, blocks, modes, policy, alpha, dt, seed, realisations, steps, every, precision, device,
    normalise, clamp, threads))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn roll_out_field<'py>(
    py: Python<'py>,
    first: PyReadonlyArray1<'py, f32>,
    architecture: &str,
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
    levels: usize,
    blocks: usize,
    modes: f32,
    policy: &str,
    alpha: f32,
    dt: f32,
    seed: u64,
    realisations: u32,
    steps: u32,
    every: u32,
    precision: &str,
    device: &str,
    normalise: bool,
    clamp: f32,
    threads: usize,
) -> PyResult<(Bound<'py, PyArray1<f32>>, Option<String>)> {
    let activations =
        [("relu", Act::Relu), ("gelu", Act::Gelu), ("silu", Act::Silu), ("tanh", Act::Tanh), ("sigmoid", Act::Sigmoid)];
    let policies = [
        ("autoregressive", Update::Autoregressive),
        ("residual", Update::Residual { dt }),
        ("convex", Update::Convex { alpha }),
    ];
    let first = first.as_slice()?.to_vec();
    let build = || -> Result<(AnyRollout, Option<String>)> {
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
            afno: named(
                "architecture",
                architecture,
                &[("cnn", None), ("uafno", Some(Afno { levels, blocks, modes }))],
            )?,
        };
        let update = named("policy_type", policy, &policies)?;
        if first.len() != operator.field_len() || realisations == 0 || every == 0 || !(1..=1024).contains(&threads) {
            let wanted = format!(
                "wanted a field of {} numbers, realisations, every and threads of at least 1",
                operator.field_len()
            );
            return Err(Error::Invalid(format!("a field of {} numbers: {wanted}", first.len())));
        }
        let (after, precision) = (After { normalise, clamp }, precision.parse::<Precision>()?);
        let mut note = None;
        if let Some(index) = Device::gpu_index(device)? {
            if let Some(why) = refused(&operator) {
                return Err(Error::Device(format!("{why}: wanted device='cpu'")));
            }
            let gpu = Gpu::open(index)?;
            match unserved(&gpu, &operator) {
                Some(why) => note = Some(format!("{device} was asked for, but {why}: computing on the CPU")),
                None => {
                    let member = Member { operator: &operator, update, seed, first: &first };
                    let (rows, slots) = (0..realisations, STEPS_AT_ONCE);
                    let rollout = CudaRollout::new(&gpu, &[member], after, rows, steps, precision, slots)?;
                    return Ok((AnyRollout::Cuda { rollout: Box::new(rollout), ahead: 0 }, None));
                }
            }
        }
        let options = Options { pool: Arc::new(CpuPool::new(threads)), precision, ..Options::default() };
        let rollout = Rollout::new(&operator, update, after, seed, 0..realisations, steps, &first, &options)?;
        let note = note.or_else(|| rollout.precision().1.map(str::to_owned));
        Ok((AnyRollout::Cpu(Box::new(rollout)), note))
    };
    let (fields, note) = py
        .detach(|| -> Result<(Vec<f32>, Option<String>)> {
            let (mut rollout, note) = build()?;
            let (mut fields, mut made, mut t) = (rollout.state()?, Vec::new(), 0);
            let len = fields.len();
            while t < steps {
                rollout.advance(steps - t, &mut made)?;
                for state in made.chunks_exact(len) {
                    t += 1;
                    if t % every == 0 {
                        fields.extend_from_slice(state);
                    }
                }
            }
            Ok((fields, note))
        })
        .map_err(raise)?;
    Ok((PyArray1::from_vec(py, fields), note))
}
