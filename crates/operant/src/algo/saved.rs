//! What algorithms do alike when they are built and when they go on from a checkpoint.

use crate::data::Running;
use crate::error::{Error, Result};
use crate::nn::LossScale;

/// A part of a checkpoint is not what this run would have written.
pub(super) fn damaged(what: &str) -> Error {
    Error::Saved(format!("checkpoint's {what} does not fit this run; take another"))
}

/// Floats by their bits, which JSON keeps.
pub(super) fn to_bits(numbers: Vec<f64>) -> Vec<u64> {
    numbers.into_iter().map(f64::to_bits).collect()
}

/// Back from [`to_bits`].
pub(super) fn from_bits(bits: &[u64]) -> Vec<f64> {
    bits.iter().copied().map(f64::from_bits).collect()
}

/// Goes on with saved statistics of `width` numbers, where a run has some.
pub(super) fn load_running(
    running: &mut Option<Running>,
    saved: Option<&[u64]>,
    width: usize,
    what: &str,
) -> Result<()> {
    let Some(running) = running else { return Ok(()) };
    let numbers = saved.map(from_bits).and_then(|numbers| Running::from_numbers(&numbers, width));
    *running = numbers.ok_or_else(|| damaged(what))?;
    Ok(())
}

/// Goes on with a saved scale of the loss, where a run has one. Without a saved one the run had another precision; the scale
/// settles anew.
pub(super) fn load_scale(scale: &mut Option<LossScale>, saved: Option<[u8; 8]>) -> Result<()> {
    if let Some(scale) = scale {
        *scale = saved.map_or(Ok(LossScale::default()), |bytes| LossScale::from_bytes(&bytes))?;
    }
    Ok(())
}
