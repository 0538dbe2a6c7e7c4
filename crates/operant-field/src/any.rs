//! A rollout wherever it runs: the CPU's or a GPU's, behind the few calls that those who describe fields need.

use super::cuda::CudaRollout;
use super::rollout::Rollout;
use operant_base::Result;

/// Steps that a GPU makes before their fields come to the host.
pub const STEPS_AT_ONCE: u32 = 10;

/// Realisations of one operator.
#[derive(Debug)]
pub enum AnyRollout {
    /// On the CPU.
    Cpu(Box<Rollout>),
    /// On a GPU, with at least [`STEPS_AT_ONCE`] traced states. The next steps run while those before are described.
    Cuda {
        /// At work.
        rollout: Box<CudaRollout>,
        /// Steps under way that nobody has seen.
        ahead: u32,
    },
}

impl AnyRollout {
    /// Fields as they are now, `[M, H, W, C]`.
    pub fn state(&self) -> Result<Vec<f32>> {
        match self {
            Self::Cpu(rollout) => Ok(rollout.state().to_vec()),
            Self::Cuda { rollout, .. } => rollout.state(),
        }
    }

    /// Makes one to `most` steps, at most so many in all further calls; `fields` are those after each, `[steps, M, H, W, C]`. Tells how many.
    pub fn advance(&mut self, most: u32, fields: &mut Vec<f32>) -> Result<u32> {
        match self {
            Self::Cpu(rollout) => {
                rollout.step();
                fields.clear();
                fields.extend_from_slice(rollout.state());
                Ok(1)
            }
            Self::Cuda { rollout, ahead } => {
                if *ahead == 0 {
                    *ahead = start(rollout, most.max(1))?;
                }
                let count = *ahead;
                rollout.trace(count, fields)?;
                *ahead = start(rollout, most.saturating_sub(count))?;
                Ok(count)
            }
        }
    }

    /// O(x) of fields `[M, H, W, C]` at the time of the last step that was started.
    pub fn apply(&mut self, fields: &[f32]) -> Result<Vec<f32>> {
        match self {
            Self::Cpu(rollout) => Ok(rollout.apply(fields).to_vec()),
            Self::Cuda { rollout, .. } => rollout.apply(fields),
        }
    }
}

/// Starts at most so many steps; tells how many.
fn start(rollout: &mut CudaRollout, most: u32) -> Result<u32> {
    let count = most.min(STEPS_AT_ONCE);
    for _ in 0..count {
        rollout.step()?;
    }
    Ok(count)
}
