//! Where a step's results go: the caller's memory, one row per step.

use super::spec::Spec;

/// The first `count` of a slice, which keeps the rest.
pub(super) fn front<'a, T>(slice: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (head, tail) = std::mem::take(slice).split_at_mut(count);
    *slice = tail;
    head
}

/// The results of one step of all envs. Only envs that ended an episode in this step write `final_obs`,
/// `episode_return` and `episode_length`; elsewhere those keep what they held.
#[derive(Debug, Default)]
pub struct Row<'a> {
    /// `[N, O]` what the agent sees next: after an auto-reset, the first observation of the new episode.
    pub obs: &'a mut [f32],
    /// `[N]`
    pub reward: &'a mut [f32],
    /// `[N]` 1 where the env itself ended the episode.
    pub terminated: &'a mut [u8],
    /// `[N]` 1 where the time limit ended it (both may hold).
    pub truncated: &'a mut [u8],
    /// `[N, O]` last observation of an episode that ended in this step.
    pub final_obs: &'a mut [f32],
    /// `[N]` undiscounted return of an episode that ended in this step.
    pub episode_return: &'a mut [f32],
    /// `[N]` length of an episode that ended in this step; 0 where the step only led to the next episode.
    pub episode_length: &'a mut [i32],
    /// `[N, choices]` 1 where an action is legal in the next state; empty unless the spec is masked.
    pub legal: &'a mut [u8],
}

impl<'a> Row<'a> {
    /// The first `count` envs of the row, leaving the rest behind.
    pub(super) fn split_front(&mut self, count: usize, obs: usize, choices: usize) -> Row<'a> {
        Row {
            obs: front(&mut self.obs, count * obs),
            reward: front(&mut self.reward, count),
            terminated: front(&mut self.terminated, count),
            truncated: front(&mut self.truncated, count),
            final_obs: front(&mut self.final_obs, count * obs),
            episode_return: front(&mut self.episode_return, count),
            episode_length: front(&mut self.episode_length, count),
            legal: front(&mut self.legal, count * choices),
        }
    }

    /// Copies what every step writes (not what only ended episodes write) from the front of a larger row.
    pub(super) fn copy_front(&mut self, from: &RowBuf) {
        self.obs.copy_from_slice(&from.obs[..self.obs.len()]);
        self.reward.copy_from_slice(&from.reward[..self.reward.len()]);
        self.terminated.copy_from_slice(&from.terminated[..self.terminated.len()]);
        self.truncated.copy_from_slice(&from.truncated[..self.truncated.len()]);
        self.legal.copy_from_slice(&from.legal[..self.legal.len()]);
    }

    /// Panics unless every slice has the size that `num_envs` envs of `spec` need.
    pub fn assert_fits(&self, spec: &Spec, num_envs: usize) {
        let obs = num_envs * spec.observation.len();
        let legal = num_envs * spec.legal_width();
        assert_eq!(
            (self.obs.len(), self.reward.len(), self.terminated.len(), self.truncated.len()),
            (obs, num_envs, num_envs, num_envs),
            "row sizes of obs, reward, terminated, truncated"
        );
        assert_eq!(
            (self.final_obs.len(), self.episode_return.len(), self.episode_length.len(), self.legal.len()),
            (obs, num_envs, num_envs, legal),
            "row sizes of final_obs, episode_return, episode_length, legal"
        );
    }
}

/// A row that owns its memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowBuf {
    /// See [`Row::obs`].
    pub obs: Vec<f32>,
    /// See [`Row::reward`].
    pub reward: Vec<f32>,
    /// See [`Row::terminated`].
    pub terminated: Vec<u8>,
    /// See [`Row::truncated`].
    pub truncated: Vec<u8>,
    /// See [`Row::final_obs`].
    pub final_obs: Vec<f32>,
    /// See [`Row::episode_return`].
    pub episode_return: Vec<f32>,
    /// See [`Row::episode_length`].
    pub episode_length: Vec<i32>,
    /// See [`Row::legal`].
    pub legal: Vec<u8>,
}

impl RowBuf {
    /// Zeroed memory for `num_envs` envs of `spec`.
    pub fn new(spec: &Spec, num_envs: usize) -> Self {
        let obs = num_envs * spec.observation.len();
        Self {
            obs: vec![0.0; obs],
            reward: vec![0.0; num_envs],
            terminated: vec![0; num_envs],
            truncated: vec![0; num_envs],
            final_obs: vec![0.0; obs],
            episode_return: vec![0.0; num_envs],
            episode_length: vec![0; num_envs],
            legal: vec![0; num_envs * spec.legal_width()],
        }
    }

    /// Bytes of a row per env.
    pub fn bytes_per_env(spec: &Spec) -> usize {
        2 * size_of::<f32>() * spec.observation.len() + 3 * size_of::<f32>() + 2 + spec.legal_width()
    }

    /// The view that a step writes.
    pub fn row(&mut self) -> Row<'_> {
        Row {
            obs: &mut self.obs,
            reward: &mut self.reward,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            final_obs: &mut self.final_obs,
            episode_return: &mut self.episode_return,
            episode_length: &mut self.episode_length,
            legal: &mut self.legal,
        }
    }
}
