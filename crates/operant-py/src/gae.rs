//! Advantages of rollouts that Python made, by the engine's estimate.

use crate::error::raise;
use numpy::{PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods, ToPyArray};
use operant::Error;
use operant::data::{Rollout, Shape};
use pyo3::prelude::*;

/// Rows of a block of T steps of N envs.
type Numbers<'py> = PyReadonlyArray2<'py, f32>;
type Flags<'py> = PyReadonlyArray2<'py, bool>;
type Block<'py> = Bound<'py, PyArray2<f32>>;

fn check(name: &str, got: &[usize], wanted: [usize; 2]) -> PyResult<()> {
    if got == wanted { Ok(()) } else { Err(raise(Error::Invalid(format!("{name} {got:?}: wanted {wanted:?}")))) }
}

/// Advantages and returns `[T, N]` of rewards `[T, N]` and values `[T + 1, N]`; `final_values` are read where an episode was truncated.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn estimate_advantages<'py>(
    py: Python<'py>,
    rewards: Numbers<'py>,
    values: Numbers<'py>,
    terminated: Flags<'py>,
    truncated: Flags<'py>,
    final_values: Numbers<'py>,
    gamma: f32,
    gae_lambda: f32,
) -> PyResult<(Block<'py>, Block<'py>)> {
    let (steps, envs) = (rewards.shape()[0], rewards.shape()[1]);
    check("values", values.shape(), [steps + 1, envs])?;
    check("terminated", terminated.shape(), [steps, envs])?;
    check("truncated", truncated.shape(), [steps, envs])?;
    check("final_values", final_values.shape(), [steps, envs])?;
    let shape = Shape { steps, envs, obs: 0, dims: 0, continuous: false, choices: 0 };
    let mut rollout = Rollout::new(shape);
    rollout.reward.copy_from_slice(rewards.as_slice()?);
    rollout.value.copy_from_slice(values.as_slice()?);
    rollout.final_value.copy_from_slice(final_values.as_slice()?);
    for (flags, to) in [(terminated, &mut rollout.terminated), (truncated, &mut rollout.truncated)] {
        flags.as_slice()?.iter().zip(to).for_each(|(flag, to)| *to = u8::from(*flag));
    }
    py.detach(|| rollout.estimate(gamma, gae_lambda));
    let block = |numbers: &[f32]| numbers.to_pyarray(py).reshape([steps, envs]);
    Ok((block(&rollout.advantage)?, block(&rollout.returns)?))
}
