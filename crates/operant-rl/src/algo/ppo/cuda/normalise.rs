//! Running statistics in the GPU's memory: what `data/running.rs` keeps on the CPU, for `normalise.cu`.
//!
//! They are merged per launch of `collect`, not per step; as numbers of a checkpoint they are the CPU's.

use super::super::Settings;
use crate::data::{ReturnScale, Running};
use operant_base::{Error, Result};
use operant_device::cuda::{Buffer, DevicePtr, Gpu, Kernel, Module, Params};
use std::sync::Arc;

/// `Normaliser` of `normalise.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct NormaliserPointers {
    view: DevicePtr,
    sums: DevicePtr,
    running: DevicePtr,
    discounted: DevicePtr,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct MergeArgs {
    normaliser: NormaliserPointers,
    rows: f64,
    warps: u32,
    unused: u32,
}

impl Params for MergeArgs {}

/// Statistics of observations and of discounted returns.
pub(super) struct Normaliser {
    obs: usize,
    num_envs: usize,
    /// Warps of `collect`.
    warps: usize,
    normalises_obs: bool,
    normalises_reward: bool,
    merge: Kernel<MergeArgs>,
    view: Buffer<f32>,
    sums: Buffer<f64>,
    running: Buffer<f64>,
    discounted: Buffer<f32>,
}

impl Normaliser {
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        module: &Module,
        settings: &Settings,
        obs: usize,
        [num_envs, warps]: [usize; 2],
    ) -> Result<Self> {
        let (what, columns) = ("running statistics", obs + 1);
        Ok(Self {
            obs,
            num_envs,
            warps,
            normalises_obs: settings.normalize_obs,
            normalises_reward: settings.normalize_reward,
            merge: module.kernel("merge")?,
            view: Buffer::new(gpu, 2 * columns, what, "num_envs")?,
            sums: Buffer::new(gpu, warps * 2 * columns, what, "num_envs")?,
            running: Buffer::new(gpu, 3 * columns, what, "num_envs")?,
            discounted: Buffer::new(gpu, num_envs, what, "num_envs")?,
        })
    }

    pub(super) fn pointers(&self) -> NormaliserPointers {
        NormaliserPointers {
            view: self.view.pointer(),
            sums: self.sums.pointer(),
            running: self.running.pointer(),
            discounted: self.discounted.pointer(),
        }
    }

    /// How many of the next `steps` steps one launch takes: statistics are merged after each, and what was seen of a run decides
    /// for no more steps than were seen.
    pub(super) fn steps_at_once(&self, seen: u64, steps: u32) -> u32 {
        match self.normalises_obs || self.normalises_reward {
            true => steps.min(u32::try_from(seen).unwrap_or(u32::MAX).max(1)),
            false => steps,
        }
    }

    /// Takes into account what the last launch of `collect` saw of so many steps.
    pub(super) fn merge(&self, steps: u32) -> Result<()> {
        if !self.normalises_obs && !self.normalises_reward {
            return Ok(());
        }
        let rows = f64::from(steps) * self.num_envs as f64;
        let args = MergeArgs { normaliser: self.pointers(), rows, warps: self.warps as u32, unused: 0 };
        self.merge.launch(self.obs as u32 + 1, 32, &args)
    }

    /// Statistics of observations, if they are normalised.
    pub(super) fn observations(&self) -> Result<Option<Running>> {
        if !self.normalises_obs {
            return Ok(None);
        }
        let columns = self.fetched()?;
        let column = |k: usize| columns[..3 * self.obs].iter().skip(k).step_by(3).copied();
        let numbers: Vec<f64> = columns[..1].iter().copied().chain(column(1)).chain(column(2)).collect();
        Ok(Running::from_numbers(&numbers, self.obs))
    }

    /// Statistics of returns as numbers of a checkpoint, if rewards are normalised.
    pub(super) fn returns(&self) -> Result<Option<Vec<f64>>> {
        if !self.normalises_reward {
            return Ok(None);
        }
        let mut discounted = vec![0.0; self.num_envs];
        self.discounted.download(0, &mut discounted)?;
        let running = self.fetched()?.split_off(3 * self.obs);
        Ok(Some(running.into_iter().chain(discounted.into_iter().map(f64::from)).collect()))
    }

    /// Goes on from such statistics; those that are not normalised stay as they are.
    pub(super) fn set(&self, observations: Option<&Running>, returns: Option<&[f64]>) -> Result<()> {
        let damaged = |what: &str| Error::Saved(format!("checkpoint's {what} does not fit this run; take another"));
        let mut columns = self.fetched()?;
        if let Some(running) = observations {
            let numbers = running.to_numbers();
            for k in 0..self.obs {
                let column = [numbers[0], numbers[1 + k], numbers[1 + self.obs + k]];
                columns[3 * k..3 * k + 3].copy_from_slice(&column);
            }
        }
        if let Some(returns) = returns {
            ReturnScale::from_numbers(returns, self.num_envs).ok_or_else(|| damaged("return_scale"))?;
            columns[3 * self.obs..].copy_from_slice(&returns[..3]);
            let discounted: Vec<f32> = returns[3..].iter().map(|&x| x as f32).collect();
            self.discounted.upload(&discounted)?;
        }
        self.running.upload(&columns)?;
        self.merge(0)
    }

    /// New episodes begin in all envs.
    pub(super) fn forget_episodes(&self) -> Result<()> {
        self.discounted.zero()
    }

    /// `[O + 1, 3]`: count, mean and sum of squares of each column.
    fn fetched(&self) -> Result<Vec<f64>> {
        let mut columns = vec![0.0; self.running.len()];
        self.running.download(0, &mut columns)?;
        Ok(columns)
    }
}
