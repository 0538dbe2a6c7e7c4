//! Memory for what a reset or a look at envs does not write, so that a rollout's own columns stay as they are.

use crate::data::{Rollout, Shape};
use operant_env::Row;

/// Columns of a row that a reset does not write.
pub(super) struct Scratch {
    reward: Vec<f32>,
    terminated: Vec<u8>,
    truncated: Vec<u8>,
    episode_return: Vec<f32>,
    episode_length: Vec<i32>,
}

impl Scratch {
    pub(super) fn new(n: usize) -> Self {
        Self {
            reward: vec![0.0; n],
            terminated: vec![0; n],
            truncated: vec![0; n],
            episode_return: vec![0.0; n],
            episode_length: vec![0; n],
        }
    }

    /// A row that writes observations and masks of row `t`.
    pub(super) fn row<'a>(&'a mut self, rollout: &'a mut Rollout, final_obs: &'a mut [f32], t: usize) -> Row<'a> {
        let Shape { envs: n, obs, choices, .. } = rollout.shape;
        Row {
            obs: &mut rollout.obs[t * n * obs..(t + 1) * n * obs],
            legal: &mut rollout.legal[t * n * choices..(t + 1) * n * choices],
            reward: &mut self.reward,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            final_obs,
            episode_return: &mut self.episode_return,
            episode_length: &mut self.episode_length,
        }
    }
}
