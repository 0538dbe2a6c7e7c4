//! Iterations of self-play never allocate. One test: the count is of the process.

use operant::CATALOGUE;
use operant::algo::Report;
use operant::config::{self, Table};
use operant::device::alloc::{CountingAllocator, allocations};
use operant::run::{Config, build_algorithm, build_env, build_pool};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn iterations_never_allocate() {
    let mut over = Table::new();
    let words =
        ["network.hidden=[16]", "num_envs=96", "td.turns=24", "td.batch_size=64", "td.replay=4096", "threads=2"];
    words.iter().for_each(|word| config::assign(&mut over, word).unwrap());
    let config = Config::resolve(&CATALOGUE, "td", "backgammon", over).unwrap();
    let pool = build_pool(&config);
    let mut td = build_algorithm(&config, build_env(&config, &pool).unwrap(), pool).unwrap();
    let mut report = Report::new(td.metrics().len());
    let mut iterate = |times: usize| {
        for _ in 0..times {
            report.begin();
            td.iterate(&mut report);
        }
    };
    iterate(6);
    let before = allocations();
    iterate(5);
    assert_eq!(allocations() - before, 0);
}
