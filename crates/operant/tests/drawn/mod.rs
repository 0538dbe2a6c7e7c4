//! The actions that a rollout on a GPU draws, from the engine's own generator.

use operant::env::{ActionSpace, ActionsBuf, Spec};
use operant::lanes::rng::HostRng;

/// `steps` batches for `num_envs` envs, of which the first has this number.
pub(crate) fn drawn(spec: &Spec, seed: u64, first_env: u32, num_envs: usize, steps: usize) -> Vec<ActionsBuf> {
    let dims = spec.action.dims();
    let mut streams: Vec<HostRng> =
        (0..num_envs).map(|i| HostRng::new(seed, first_env + i as u32, u32::MAX, 0)).collect();
    let mut batch = || {
        let words = (0..num_envs * dims).map(|i| (i % dims, streams[i / dims].word()));
        let choice = |word: u32, n: usize| ((u64::from(word) * n as u64) >> 32) as i32;
        match &spec.action {
            ActionSpace::Discrete(n) => ActionsBuf::Choices(words.map(|(_, word)| choice(word, *n)).collect()),
            ActionSpace::MultiDiscrete(n) => {
                ActionsBuf::Choices(words.map(|(dim, word)| choice(word, n[dim])).collect())
            }
            ActionSpace::Box(channels) => {
                let number = |(dim, word): (usize, u32)| {
                    let (low, high) = (channels[dim].low, channels[dim].high);
                    low + (high - low) * ((word >> 8) as f32 * (1.0 / 16_777_216.0))
                };
                ActionsBuf::Numbers(words.map(number).collect())
            }
        }
    };
    (0..steps).map(|_| batch()).collect()
}
