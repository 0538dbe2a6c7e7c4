//! What happened in T steps of N envs, in columns that env and network write in place.
//!
//! Row t holds the observation before step t, the action, and what came of it; observations, values and masks have a row
//! T more, from which the next rollout begins.

use operant_env::Unfit;

/// Sizes of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// T, steps.
    pub steps: usize,
    /// N, envs.
    pub envs: usize,
    /// O, numbers of an observation.
    pub obs: usize,
    /// A, numbers of an action.
    pub dims: usize,
    /// Whether actions are real numbers.
    pub continuous: bool,
    /// Entries of an action mask; 0 if every action is always legal.
    pub choices: usize,
}

/// Actions of a rollout or a minibatch.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionColumn {
    /// Choices.
    Choices(Vec<i32>),
    /// Real numbers.
    Numbers(Vec<f32>),
}

impl ActionColumn {
    /// Zeros.
    pub fn new(continuous: bool, len: usize) -> Self {
        if continuous { Self::Numbers(vec![0.0; len]) } else { Self::Choices(vec![0; len]) }
    }
}

/// Columns of T steps of N envs.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// Sizes.
    pub shape: Shape,
    /// `[T + 1, N, O]`
    pub obs: Vec<f32>,
    /// `[T, N, A]`
    pub actions: ActionColumn,
    /// `[T, N]` of the actions when they were taken.
    pub log_prob: Vec<f32>,
    /// `[T + 1, N]` as predicted then.
    pub value: Vec<f32>,
    /// `[T, N]`
    pub reward: Vec<f32>,
    /// `[T, N]` 1 where the env ended the episode.
    pub terminated: Vec<u8>,
    /// `[T, N]` 1 where the time limit ended it.
    pub truncated: Vec<u8>,
    /// `[T, N]` value of the last observation of an episode that was truncated; not written elsewhere.
    pub final_value: Vec<f32>,
    /// `[T + 1, N, choices]` 1 where an action is legal.
    pub legal: Vec<u8>,
    /// `[T, N]`
    pub advantage: Vec<f32>,
    /// `[T, N]` advantage + value: what the value should have been.
    pub returns: Vec<f32>,
}

impl Shape {
    /// Bytes of a rollout.
    pub fn bytes(&self) -> u64 {
        let Self { steps, envs, obs, dims, choices, .. } = *self;
        // Of a sample: observation, action, six numbers, two flags, mask.
        let sample = 4 * (obs + dims + 6) + 2 + choices;
        (steps as u64 + 1).saturating_mul(envs as u64).saturating_mul(sample as u64)
    }
}

impl Rollout {
    /// Zeroed columns.
    pub fn new(shape: Shape) -> Self {
        let Shape { steps, envs, obs, dims, continuous, choices } = shape;
        let samples = steps * envs;
        Self {
            shape,
            obs: vec![0.0; (samples + envs) * obs],
            actions: ActionColumn::new(continuous, samples * dims),
            log_prob: vec![0.0; samples],
            value: vec![0.0; samples + envs],
            reward: vec![0.0; samples],
            terminated: vec![0; samples],
            truncated: vec![0; samples],
            final_value: vec![0.0; samples],
            legal: vec![0; (samples + envs) * choices],
            advantage: vec![0.0; samples],
            returns: vec![0.0; samples],
        }
    }

    /// T·N.
    pub fn samples(&self) -> usize {
        self.shape.steps * self.shape.envs
    }

    /// `[N, O]` row `t` of observations.
    pub fn row_of_obs(&self, t: usize) -> &[f32] {
        let row = self.shape.envs * self.shape.obs;
        &self.obs[t * row..][..row]
    }

    /// That, to be written.
    pub fn row_of_obs_mut(&mut self, t: usize) -> &mut [f32] {
        let row = self.shape.envs * self.shape.obs;
        &mut self.obs[t * row..][..row]
    }

    /// Begins the next rollout where this one ended: row T of observations and masks becomes row 0.
    pub fn wrap(&mut self) {
        let Shape { steps, envs, obs, choices, .. } = self.shape;
        self.obs.copy_within(steps * envs * obs.., 0);
        self.legal.copy_within(steps * envs * choices.., 0);
    }

    /// The first number that envs gave, and no unfit action brought about, from which nothing can be learned; `before` is how many
    /// steps each env had made.
    pub fn unfit(&self, before: u64) -> Option<Unfit> {
        let actions: &[f32] = match &self.actions {
            ActionColumn::Choices(_) => &[],
            ActionColumn::Numbers(actions) => actions,
        };
        Unfit::of_rollout(&self.obs, &self.reward, actions, self.shape.envs, before)
    }

    /// Generalised advantage estimation (Schulman et al., arXiv:1506.02438). A step that terminated is worth its reward
    /// alone; one that was truncated goes on to the value of its own last observation, not to that of the next episode.
    pub fn estimate(&mut self, gamma: f32, lambda: f32) {
        let n = self.shape.envs;
        for t in (0..self.shape.steps).rev() {
            let row = t * n..(t + 1) * n;
            let (head, tail) = self.advantage.split_at_mut(row.end);
            let advantage = &mut head[row.start..];
            let later = if tail.is_empty() { None } else { Some(&tail[..n]) };
            let (value, next) = (&self.value[row.clone()], &self.value[row.end..row.end + n]);
            let (reward, last) = (&self.reward[row.clone()], &self.final_value[row.clone()]);
            let (terminated, truncated) = (&self.terminated[row.clone()], &self.truncated[row.clone()]);
            let returns = &mut self.returns[row];
            for i in 0..n {
                let next = if truncated[i] != 0 { last[i] } else { next[i] };
                let next = if terminated[i] != 0 { 0.0 } else { next };
                let goes_on = if terminated[i] | truncated[i] != 0 { 0.0 } else { gamma * lambda };
                let delta = reward[i] + gamma * next - value[i];
                advantage[i] = delta + goes_on * later.map_or(0.0, |later| later[i]);
                returns[i] = advantage[i] + value[i];
            }
        }
    }

    /// 1 − variance of (return − value) / variance of return: 1 if values are right, 0 if they are no better than a
    /// constant; NaN if all returns are one.
    pub fn explained_variance(&self) -> f64 {
        let samples = self.samples();
        let (returns, values) = (&self.returns[..samples], &self.value[..samples]);
        let (mut sums, mut squares) = ([0.0_f64; 2], [0.0_f64; 2]);
        for (&g, &v) in returns.iter().zip(values) {
            let pair = [f64::from(g), f64::from(g) - f64::from(v)];
            for k in 0..2 {
                sums[k] += pair[k];
                squares[k] += pair[k] * pair[k];
            }
        }
        let variance = |k: usize| squares[k] / samples as f64 - (sums[k] / samples as f64).powi(2);
        if variance(0) > 0.0 { 1.0 - variance(1) / variance(0) } else { f64::NAN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_lanes::rng::HostRng;

    fn random(steps: usize, envs: usize, seed: u64) -> Rollout {
        let shape = Shape { steps, envs, obs: 1, dims: 1, continuous: false, choices: 0 };
        let mut rollout = Rollout::new(shape);
        let mut rng = HostRng::new(seed, 0, 0, 0);
        rollout.value.iter_mut().for_each(|x| *x = rng.normal());
        rollout.reward.iter_mut().for_each(|x| *x = rng.normal());
        // What was not truncated must not be read.
        rollout.final_value.fill(f32::NAN);
        for i in 0..steps * envs {
            rollout.terminated[i] = u8::from(rng.unit() < 0.15);
            rollout.truncated[i] = u8::from(rng.unit() < 0.15);
            if rollout.truncated[i] != 0 {
                rollout.final_value[i] = rng.normal();
            }
        }
        rollout
    }

    /// The definition: a sum of (γλ)ᵏ-weighted TD errors up to the end of the episode, with every return of k steps
    /// followed through by hand.
    fn brute_force(r: &Rollout, t: usize, env: usize, gamma: f64, lambda: f64) -> f64 {
        let n = r.shape.envs;
        let mut total = 0.0;
        for k in t..r.shape.steps {
            let at = k * n + env;
            let next = if r.terminated[at] != 0 {
                0.0
            } else if r.truncated[at] != 0 {
                f64::from(r.final_value[at])
            } else {
                f64::from(r.value[at + n])
            };
            let error = f64::from(r.reward[at]) + gamma * next - f64::from(r.value[at]);
            total += (gamma * lambda).powi((k - t) as i32) * error;
            if r.terminated[at] != 0 || r.truncated[at] != 0 {
                break;
            }
        }
        total
    }

    #[test]
    fn advantages_agree_with_the_definition() {
        for (steps, envs, gamma, lambda) in
            [(1, 3, 0.9, 0.5), (17, 5, 0.99, 0.95), (40, 1, 1.0, 1.0), (8, 33, 0.5, 0.0)]
        {
            let mut rollout = random(steps, envs, steps as u64);
            rollout.estimate(gamma, lambda);
            for t in 0..steps {
                for env in 0..envs {
                    let at = t * envs + env;
                    let wanted = brute_force(&rollout, t, env, f64::from(gamma), f64::from(lambda));
                    let got = f64::from(rollout.advantage[at]);
                    assert!((got - wanted).abs() < 2e-5 * (1.0 + wanted.abs()), "t {t} env {env}: {got} {wanted}");
                    assert_eq!(rollout.returns[at], rollout.advantage[at] + rollout.value[at]);
                }
            }
        }
    }

    /// A truncated episode whose values are right has no advantage anywhere; had the next episode's value been taken in
    /// place of its own last one, it would.
    #[test]
    fn truncation_bootstraps_from_the_episode_that_ended() {
        let shape = Shape { steps: 2, envs: 1, obs: 1, dims: 1, continuous: false, choices: 0 };
        let mut rollout = Rollout::new(shape);
        let gamma = 0.5;
        // Reward 1 for ever is worth 2.
        rollout.reward.fill(1.0);
        rollout.value.copy_from_slice(&[2.0, 2.0, -100.0]);
        (rollout.truncated[1], rollout.final_value[1]) = (1, 2.0);
        rollout.estimate(gamma, 0.9);
        assert_eq!(rollout.advantage, [0.0, 0.0]);
        assert!(rollout.explained_variance().is_nan());
    }

    #[test]
    fn explained_variance_of_known_values() {
        let mut rollout = random(50, 4, 3);
        rollout.estimate(0.9, 0.9);
        rollout.value[..200].copy_from_slice(&rollout.returns.clone());
        assert!((rollout.explained_variance() - 1.0).abs() < 1e-9);
        rollout.value.fill(7.0);
        assert!(rollout.explained_variance().abs() < 1e-6);
    }

    #[test]
    fn the_last_row_becomes_the_first() {
        let shape = Shape { steps: 2, envs: 2, obs: 2, dims: 1, continuous: true, choices: 3 };
        let mut rollout = Rollout::new(shape);
        rollout.obs[8..].copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        rollout.legal[12..].copy_from_slice(&[1, 0, 1, 1, 1, 0]);
        rollout.wrap();
        assert_eq!((&rollout.obs[..4], &rollout.legal[..6]), (&[1.0, 2.0, 3.0, 4.0][..], &[1, 0, 1, 1, 1, 0][..]));
    }
}
