//! What PPO keeps in the GPU's memory beside networks: rollouts, the last episode of each env, and what the host hears.

use super::{STATISTICS, TOLD};
use operant_base::{Error, Result};
use operant_device::cuda::{Buffer, DevicePtr, Element, Gpu, HostBuffer};
use operant_env::Unfit;
use std::sync::Arc;

/// Sums that the last returns of all envs are added up in.
const STANDING_SLOTS: usize = 64;

/// `Rollout` of `rollout.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RolloutPointers {
    obs: DevicePtr,
    action: DevicePtr,
    log_prob: DevicePtr,
    value: DevicePtr,
    reward: DevicePtr,
    done: DevicePtr,
    advantage: DevicePtr,
    legal: DevicePtr,
}

/// `Finished` of `rollout.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct FinishedPointers {
    returned: DevicePtr,
    length: DevicePtr,
    episodes: DevicePtr,
}

/// T steps of N envs.
pub(super) struct Stored {
    /// `[T + 1, N, O]`
    pub(super) obs: Buffer<f32>,
    /// `[T, N, A]`
    pub(super) action: Buffer<u32>,
    /// `[T, N]`
    pub(super) log_prob: Buffer<f32>,
    /// `[T + 1, N]`
    pub(super) value: Buffer<f32>,
    /// `[T, N]`
    reward: Buffer<f32>,
    /// `[T, N]`
    pub(super) done: Buffer<u8>,
    /// `[T, N]`
    pub(super) advantage: Buffer<f32>,
    /// `[T, N, choices]`
    pub(super) legal: Buffer<u8>,
}

impl Stored {
    fn new(gpu: &Arc<Gpu>, [obs, actions, choices]: [usize; 3], n: usize, steps: usize) -> Result<Self> {
        let rows = "num_envs or ppo.num_steps";
        let samples = n * steps;
        let buffer = |len, what| Buffer::new(gpu, len, what, rows);
        Ok(Self {
            obs: buffer((samples + n) * obs, "observations")?,
            action: Buffer::new(gpu, samples * actions, "actions", rows)?,
            log_prob: buffer(samples, "log-probabilities")?,
            value: buffer(samples + n, "values")?,
            reward: buffer(samples, "rewards")?,
            done: Buffer::new(gpu, samples, "ends of episodes", rows)?,
            advantage: buffer(samples, "advantages")?,
            legal: Buffer::new(gpu, samples * choices, "legal choices", rows)?,
        })
    }

    pub(super) fn pointers(&self) -> RolloutPointers {
        RolloutPointers {
            obs: self.obs.pointer(),
            action: self.action.pointer(),
            log_prob: self.log_prob.pointer(),
            value: self.value.pointer(),
            reward: self.reward.pointer(),
            done: self.done.pointer(),
            advantage: self.advantage.pointer(),
            legal: self.legal.pointer(),
        }
    }

    /// What [`Rollout::unfit`](crate::data::Rollout::unfit) finds; `continuous` says that actions are real numbers.
    pub(super) fn unfit(&self, envs: usize, continuous: bool, before: u64) -> Result<Option<Unfit>> {
        let (seen, paid) = (fetched(&self.obs)?, fetched(&self.reward)?);
        let actions = if continuous { fetched(&self.action)? } else { Vec::new() };
        let actions: Vec<f32> = actions.into_iter().map(f32::from_bits).collect();
        Ok(Unfit::of_rollout(&seen, &paid, &actions, envs, before))
    }

    /// All that learning reads of it.
    pub(super) fn save(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for numbers in [&self.obs, &self.log_prob, &self.value, &self.advantage] {
            bytes.extend(fetched(numbers)?.into_iter().flat_map(f32::to_le_bytes));
        }
        bytes.extend(fetched(&self.action)?.into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(fetched(&self.legal)?);
        Ok(bytes)
    }

    /// Goes on from [`save`](Self::save).
    pub(super) fn load(&self, bytes: &[u8]) -> Result<()> {
        let lens = [self.obs.len(), self.log_prob.len(), self.value.len(), self.advantage.len(), self.action.len()];
        let numbers = 4 * lens.iter().sum::<usize>();
        if bytes.len() != numbers + self.legal.len() {
            return Err(Error::Saved("checkpoint's rollout.bin does not fit this run; take another".into()));
        }
        let (bytes, legal) = bytes.split_at(numbers);
        self.legal.upload(legal)?;
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
        let mut rest = &words[..];
        let mut next = |len: usize| {
            let (front, back) = rest.split_at(len);
            rest = back;
            front
        };
        for (buffer, len) in [&self.obs, &self.log_prob, &self.value, &self.advantage].into_iter().zip(lens) {
            buffer.upload(next(len))?;
        }
        self.action.upload(next(lens[4]))
    }
}

fn fetched<T: Element>(buffer: &Buffer<T>) -> Result<Vec<T>> {
    let mut numbers = vec![T::default(); buffer.len()];
    buffer.download(0, &mut numbers)?;
    Ok(numbers)
}

pub(super) struct Buffers {
    /// One, or two that take turns where the next is played while one is learned from.
    pub(super) rollouts: Vec<Stored>,
    /// `[N]` each: return, length and number of episodes that ended.
    returned: Buffer<f32>,
    length: Buffer<i32>,
    episodes: Buffer<u32>,
    pub(super) report: Buffer<f32>,
    /// Last returns of all envs, by [`STANDING_SLOTS`].
    pub(super) standing: Buffer<u64>,
    /// Where the host reads what the GPU tells.
    pub(super) told: HostBuffer<f32>,
}

impl Buffers {
    /// `widths`: of observations, actions and legal choices.
    pub(super) fn new(gpu: &Arc<Gpu>, rollouts: usize, widths: [usize; 3], n: usize, steps: usize) -> Result<Self> {
        let small = |len, what| Buffer::new(gpu, len, what, "num_envs");
        Ok(Self {
            rollouts: (0..rollouts).map(|_| Stored::new(gpu, widths, n, steps)).collect::<Result<_>>()?,
            returned: small(n.max(TOLD), "returns of episodes")?,
            length: Buffer::new(gpu, n.max(TOLD), "lengths of episodes", "num_envs")?,
            episodes: Buffer::new(gpu, n.max(TOLD), "counts of episodes", "num_envs")?,
            report: small(STATISTICS, "a report")?,
            standing: Buffer::new(gpu, 2 * STANDING_SLOTS, "returns of episodes", "num_envs")?,
            told: HostBuffer::new(gpu, STATISTICS + 3 * TOLD + 4, "a report")?,
        })
    }

    /// The rollout that an iteration learns from.
    pub(super) fn rollout(&self, iteration: u32) -> &Stored {
        &self.rollouts[iteration as usize % self.rollouts.len()]
    }

    pub(super) fn finished(&self) -> FinishedPointers {
        FinishedPointers {
            returned: self.returned.pointer(),
            length: self.length.pointer(),
            episodes: self.episodes.pointer(),
        }
    }

    pub(super) fn clear(&self) -> Result<()> {
        self.returned.zero()?;
        self.length.zero()?;
        self.episodes.zero()?;
        self.report.zero()?;
        self.standing.zero()
    }
}
