//! What algorithms do alike when they are built and when they go on from a checkpoint.

use super::{Parts, part};
use crate::data::Running;
use operant_base::{Error, Result};
use operant_env::{RowBuf, Seeds, VecEnv};
use operant_lanes::rng::HostRng;
use operant_nn::LossScale;

/// Sets the seeds of episodes after a resume apart from others.
const EPISODES_ANEW: u64 = 0x6265_6769_6e20_6e65;

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

/// Goes on with the saved state of envs, and says that they do. Envs that save none begin new episodes, by a seed that follows from the
/// run's seed and its steps: a resumed run does not see its first episodes again, and one checkpoint always gives the same ones.
pub(super) fn load_env(env: &mut dyn VecEnv, parts: &Parts, seed: u64, steps: u64) -> Result<bool> {
    let bytes = part(parts, "env.bin")?;
    if env.saves_state() {
        return env.load(bytes).map(|()| true);
    }
    let mut rng = HostRng::new(seed ^ EPISODES_ANEW, 0, (steps >> 32) as u32, steps as u32);
    // Some envs of other libraries take seeds of 31 bits only.
    let seed = u64::from(rng.word() >> 1);
    env.reset(Seeds::One(seed), None, RowBuf::new(env.spec(), env.num_envs()).row());
    env.failure().map_or(Ok(false), |why| Err(Error::Env(why)))
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
