//! A step allocates nothing, on any env, mode and number of threads.

use operant::device::CpuPool;
use operant::device::alloc::{CountingAllocator, allocations};
use operant::env::{ActionsBuf, AutoReset, Options, RowBuf, Seeds, all};
use operant::lanes::rng::HostRng;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// One test in this file: allocations of another test's thread would be counted too.
#[test]
fn steps_do_not_allocate() {
    let counted = allocations();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert!(allocations() > counted, "the counter counts");
    for entry in all().filter(|entry| !entry.is_slow()) {
        for (threads, autoreset) in [(1, AutoReset::SameStep), (2, AutoReset::SameStep), (2, AutoReset::NextStep)] {
            let pool = Arc::new(CpuPool::new(threads));
            let options = Options { pool, autoreset, always_split: true, ..Options::new(300) };
            let mut envs = entry.build(&[], &options).unwrap();
            let mut row = RowBuf::new(envs.spec(), 300);
            envs.reset(Seeds::One(0), None, row.row());
            let mut rng = HostRng::new(0, 0, 0, 0);
            let batches: Vec<ActionsBuf> = (0..8).map(|_| ActionsBuf::random(envs.spec(), 300, &mut rng)).collect();
            // A worker allocates once, when it starts.
            (0..50).for_each(|t| envs.step(batches[t % 8].actions(), row.row()));
            std::thread::sleep(std::time::Duration::from_millis(5));
            // Where cores are busy it may start late: steps that allocate do so every time.
            let found: Vec<u64> = (0..4)
                .map(|_| {
                    let before = allocations();
                    (0..500).for_each(|t| envs.step(batches[t % 8].actions(), row.row()));
                    allocations() - before
                })
                .collect();
            assert!(found.contains(&0), "{found:?} {} on {threads} threads, {autoreset:?}", entry.spec().name);
        }
    }
}
