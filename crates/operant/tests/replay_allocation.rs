//! Inserting, drawing and giving priorities never allocate. One test: the count is of the process.

use operant::data::{Experience, Replay, ReplayShape, SampleDraws, Samples};
use operant::device::alloc::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn replay_never_allocates() {
    for alpha in [None, Some(0.6)] {
        let shape = ReplayShape { envs: 16, rows: 50, obs: 4, choices: 2, n_step: 3 };
        let mut replay = Replay::new(shape, alpha).unwrap();
        let mut samples = Samples::new(&shape, 64);
        let (obs, reward, legal) = ([0.5; 64], [1.0; 16], [1; 32]);
        let (actions, length) = ([0; 16], [1; 16]);
        let mut counted = || {
            let before = allocations();
            for t in 0..200_u64 {
                replay.insert(Experience {
                    obs: &obs,
                    legal: &legal,
                    actions: &actions,
                    explored: &[],
                    unseen: &[],
                    reward: &reward,
                    terminated: &[u8::from(t % 11 == 0); 16],
                    truncated: &[u8::from(t % 7 == 0); 16],
                    final_obs: &obs,
                    episode_length: &length,
                });
                replay.sample(SampleDraws { seed: 1, count: t }, 0.99, 0.5, &mut samples);
                replay.prioritise(&samples.slots, &samples.returns, 1e-6);
            }
            allocations() - before
        };
        // The harness's own thread may allocate in between, once.
        let least = counted().min(counted());
        assert_eq!(least, 0, "{alpha:?}");
    }
}
