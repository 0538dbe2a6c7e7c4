//! Setting, sampling and reporting episodes never allocate, and neither do the sinks once they run. One test: the count is
//! of the process.

use operant_base::telemetry::console::{Console, Style};
use operant_base::telemetry::{Board, Episode, Jsonl, Metric, RingSink, Rules, Sink, Tensorboard};
use operant_device::alloc::{CountingAllocator, allocations};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn telemetry_does_not_allocate_while_a_run_goes_on() {
    let counted = allocations();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert!(allocations() > counted, "the counter counts");
    let folder = std::env::temp_dir().join(format!("operant-telemetry-allocation-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let metrics: Vec<Metric> = ["return", "sps", "episodes", "loss/policy", "entropy", "approx_kl", "value/max"]
        .map(|name| Metric::new(name, "", ""))
        .to_vec();
    let sinks: Vec<Box<dyn Sink>> = vec![
        Box::new(Jsonl::new(&folder)),
        Box::new(Tensorboard::new(&folder)),
        Box::new(RingSink::new(&folder.join("live.ring"), "test", "")),
        Box::new(Console::new(Box::new(std::io::sink()), Style::Terminal, Some(1_000_000))),
    ];
    let mut board = Board::start(metrics, sinks);
    board.watch(Rules::default());
    let slots = ["return", "sps", "entropy"].map(|name| board.slot(name).unwrap());
    let mut iterate = |step: u64| {
        for (i, slot) in slots.into_iter().enumerate() {
            board.set(slot, step as f64 * 0.7 + i as f64);
        }
        for env in 0..20 {
            board.episode(Episode { step, env, episode_return: 1.0, length: 10 });
        }
        board.sample(step, step as f64 * 1e-3);
        std::thread::sleep(Duration::from_micros(500));
    };
    // Threads start and buffers grow to their size.
    (0..600).for_each(&mut iterate);
    let before = allocations();
    (600..1600).for_each(&mut iterate);
    let after = allocations();
    assert_eq!(after - before, 0);
    let drops = board.finish();
    assert_eq!((drops.samples(), drops.failures().count()), (0, 0), "{drops:?}");
    let lines = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap().lines().count();
    assert_eq!(lines, 1600, "the sinks did their work meanwhile");
    std::fs::remove_dir_all(folder).unwrap();
}
