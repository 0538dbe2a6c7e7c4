//! Rows and actions in a GPU's memory: what [`Row`](super::Row) and [`Actions`](super::Actions) are on the host.

use super::{RowBuf, Spec};
use operant_base::Result;
use operant_device::cuda::{Buffer, DevicePtr, Gpu};
use std::sync::Arc;

/// Results of `rows` steps of N envs, `[rows, N, …]`.
#[derive(Debug)]
pub struct DeviceRow {
    num_envs: usize,
    rows: usize,
    /// `[rows, N, O]`
    pub obs: Buffer<f32>,
    /// `[rows, N]`
    pub reward: Buffer<f32>,
    /// `[rows, N]`
    pub terminated: Buffer<u8>,
    /// `[rows, N]`
    pub truncated: Buffer<u8>,
    /// `[rows, N, choices]`
    pub legal: Buffer<u8>,
    /// What only episodes that ended write, in columns.
    pub ends: Option<DeviceEnds>,
    /// The same in records.
    records: Option<Records>,
}

/// How rows keep what only episodes that ended write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Not at all.
    Dropped,
    /// In [`DeviceRow::ends`], dense columns that other libraries take as they are.
    Columns,
    /// In a record per env, which takes a GPU half the time where envs are very many; for [`DeviceRow::download`].
    Records,
}

/// Envs whose records lie one after the other: a warp's.
const RUN: usize = 32;

/// `[rows, N, words]`: the last observation, the return, the length, zeros up to whole sectors of memory; those of a [`RUN`] of envs from the
/// place of its first env on.
#[derive(Debug)]
struct Records {
    words: usize,
    buffer: Buffer<u32>,
}

impl Records {
    /// `END_WORDS` of `adapter.cu`.
    fn words(obs: usize) -> usize {
        (obs + 2).next_multiple_of(8)
    }
}

/// What a [`Row`](super::Row) says of episodes that ended.
#[derive(Debug)]
pub struct DeviceEnds {
    /// `[rows, N, O]`
    pub final_obs: Buffer<f32>,
    /// `[rows, N]`
    pub episode_return: Buffer<f32>,
    /// `[rows, N]`
    pub episode_length: Buffer<i32>,
}

/// `Row` of `adapter.cu`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct RowPointers {
    pub(super) obs: DevicePtr,
    pub(super) reward: DevicePtr,
    pub(super) terminated: DevicePtr,
    pub(super) truncated: DevicePtr,
    pub(super) final_obs: DevicePtr,
    pub(super) episode_return: DevicePtr,
    pub(super) episode_length: DevicePtr,
    pub(super) legal: DevicePtr,
    pub(super) ends: DevicePtr,
}

impl DeviceRow {
    /// Zeroed memory for `rows` rows.
    pub fn new(gpu: &Arc<Gpu>, spec: &Spec, num_envs: usize, rows: usize, ends: Ends) -> Result<Self> {
        let setting = if rows > 1 { "the horizon or num_envs" } else { "num_envs" };
        let (count, obs) = (rows * num_envs, rows * num_envs * spec.observation.len());
        Ok(Self {
            num_envs,
            rows,
            obs: Buffer::new(gpu, obs, "observations", setting)?,
            reward: Buffer::new(gpu, count, "rewards", setting)?,
            terminated: Buffer::new(gpu, count, "terminated", setting)?,
            truncated: Buffer::new(gpu, count, "truncated", setting)?,
            legal: Buffer::new(gpu, count * spec.legal_width(), "legal choices", setting)?,
            records: if ends == Ends::Records {
                let words = Records::words(spec.observation.len());
                Some(Records { words, buffer: Buffer::new(gpu, count * words, "ends of episodes", setting)? })
            } else {
                None
            },
            ends: if ends == Ends::Columns {
                Some(DeviceEnds {
                    final_obs: Buffer::new(gpu, obs, "final observations", setting)?,
                    episode_return: Buffer::new(gpu, count, "episode returns", setting)?,
                    episode_length: Buffer::new(gpu, count, "episode lengths", setting)?,
                })
            } else {
                None
            },
        })
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// N.
    pub fn num_envs(&self) -> usize {
        self.num_envs
    }

    /// Bytes that a step of one env writes, not counting what only ended episodes write.
    pub fn bytes_per_step(&self) -> usize {
        (self.obs.len() * 4 + self.reward.len() * 4 + self.terminated.len() + self.truncated.len() + self.legal.len())
            / (self.rows * self.num_envs)
    }

    /// Where row `t` lies.
    pub(super) fn at(&self, t: usize) -> RowPointers {
        assert!(t < self.rows, "row {t} of {}", self.rows);
        let (from, obs) = (t * self.num_envs, t * (self.obs.len() / self.rows));
        let mut row = RowPointers {
            obs: self.obs.pointer().offset(obs * 4),
            reward: self.reward.pointer().offset(from * 4),
            terminated: self.terminated.pointer().offset(from),
            truncated: self.truncated.pointer().offset(from),
            legal: self.legal.pointer().offset(t * (self.legal.len() / self.rows)),
            ..RowPointers::default()
        };
        if let Some(ends) = &self.ends {
            row.final_obs = ends.final_obs.pointer().offset(obs * 4);
            row.episode_return = ends.episode_return.pointer().offset(from * 4);
            row.episode_length = ends.episode_length.pointer().offset(from * 4);
        }
        if let Some(records) = &self.records {
            row.ends = records.buffer.pointer().offset(from * records.words * 4);
        }
        row
    }

    /// Copies row `t` to the host, after all steps so far. Where no episode ended in a step, what only ended episodes
    /// write is what that memory held before, or what `to` did.
    pub fn download(&self, t: usize, to: &mut RowBuf) -> Result<()> {
        let per = |len: usize| t * (len / self.rows);
        self.obs.download(per(self.obs.len()), &mut to.obs)?;
        self.reward.download(per(self.reward.len()), &mut to.reward)?;
        self.terminated.download(per(self.terminated.len()), &mut to.terminated)?;
        self.truncated.download(per(self.truncated.len()), &mut to.truncated)?;
        self.legal.download(per(self.legal.len()), &mut to.legal)?;
        if let Some(ends) = &self.ends {
            ends.final_obs.download(per(ends.final_obs.len()), &mut to.final_obs)?;
            ends.episode_return.download(per(ends.episode_return.len()), &mut to.episode_return)?;
            ends.episode_length.download(per(ends.episode_length.len()), &mut to.episode_length)?;
        }
        if let Some(Records { words, buffer }) = &self.records {
            let mut fetched = vec![0; self.num_envs * words];
            buffer.download(per(buffer.len()), &mut fetched)?;
            let width = to.final_obs.len() / self.num_envs;
            let mut at = 0;
            for env in 0..self.num_envs {
                if env % RUN == 0 {
                    at = env;
                }
                if to.terminated[env] | to.truncated[env] == 0 {
                    continue;
                }
                let record = &fetched[at * words..][..*words];
                at += 1;
                let numbers = to.final_obs[env * width..][..width].iter_mut().zip(record);
                numbers.for_each(|(to, from)| *to = f32::from_bits(*from));
                to.episode_return[env] = f32::from_bits(record[width]);
                to.episode_length[env] = record[width + 1] as i32;
            }
        }
        Ok(())
    }
}

/// Actions of all envs in the GPU's memory, `[N, A]`, read where they lie.
#[derive(Clone, Copy, Debug)]
pub enum DeviceActions<'a> {
    /// Choices, one byte each.
    U8(&'a Buffer<u8>),
    /// Choices.
    I32(&'a Buffer<i32>),
    /// Choices, as PyTorch has them by default.
    I64(&'a Buffer<i64>),
    /// Real numbers.
    F32(&'a Buffer<f32>),
    /// Real numbers, rounded to f32 when read.
    F64(&'a Buffer<f64>),
    /// Numbers of another library of this process.
    Foreign(ForeignActions),
}

/// So many numbers of one kind at an address in the GPU's memory, which their owner keeps until the step is done.
#[derive(Clone, Copy, Debug)]
pub struct ForeignActions {
    /// Where they lie.
    pub pointer: DevicePtr,
    /// How many.
    pub len: usize,
    /// What they are.
    pub kind: ForeignKind,
}

/// Where another library of this process wants a step's results, `[N, O]` of 16-byte alignment and `[N]`, which it keeps until the step is done.
#[derive(Clone, Copy, Debug)]
pub struct ForeignRow {
    /// Observations, f32.
    pub obs: DevicePtr,
    /// Rewards, f32.
    pub reward: DevicePtr,
    /// Terminations, a byte each.
    pub terminated: DevicePtr,
    /// Truncations, a byte each.
    pub truncated: DevicePtr,
}

/// Kinds of numbers that actions may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignKind {
    /// Choices, one byte each.
    U8,
    /// Choices.
    I32,
    /// Choices.
    I64,
    /// Real numbers.
    F32,
    /// Real numbers.
    F64,
}

impl DeviceActions<'_> {
    /// How many numbers.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::U8(a) => a.len(),
            Self::I32(a) => a.len(),
            Self::I64(a) => a.len(),
            Self::F32(a) => a.len(),
            Self::F64(a) => a.len(),
            Self::Foreign(a) => a.len,
        }
    }

    /// Whether they are choices and not real numbers.
    pub(super) fn discrete(&self) -> bool {
        match self {
            Self::Foreign(a) => matches!(a.kind, ForeignKind::U8 | ForeignKind::I32 | ForeignKind::I64),
            _ => matches!(self, Self::U8(_) | Self::I32(_) | Self::I64(_)),
        }
    }

    /// Address and kind, as `StepArgs` of `adapter.cu` has them.
    pub(super) fn pointer(&self) -> (DevicePtr, u32) {
        match self {
            Self::I32(a) => (a.pointer(), 0),
            Self::F32(a) => (a.pointer(), 0),
            Self::U8(a) => (a.pointer(), 1),
            Self::I64(a) => (a.pointer(), 2),
            Self::F64(a) => (a.pointer(), 3),
            Self::Foreign(a) => match a.kind {
                ForeignKind::I32 | ForeignKind::F32 => (a.pointer, 0),
                ForeignKind::U8 => (a.pointer, 1),
                ForeignKind::I64 => (a.pointer, 2),
                ForeignKind::F64 => (a.pointer, 3),
            },
        }
    }
}
