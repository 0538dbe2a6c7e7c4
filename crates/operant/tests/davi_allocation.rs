//! Iterations of value iteration never allocate. One test: the count is of the process.

use operant::CATALOGUE;
use operant::algo::Report;
use operant::config::{self, Table};
use operant::device::alloc::{CountingAllocator, allocations};
use operant::run::{Config, build_algorithm, build_env, build_pool};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn iterations_never_allocate() {
    let cases = [
        ("cube2", &["davi.symmetry=true", "davi.view=pairs", "threads=2"][..]),
        ("cube2", &["davi.pretrain=1", "davi.teacher=table"]),
        ("cube3", &[]),
    ];
    for (env, more) in cases {
        let mut over = Table::new();
        let words = ["network.hidden=[64,64]", "davi.batch_size=512", "davi.batches=2", "davi.target_interval=3"];
        words.iter().chain(more).for_each(|word| config::assign(&mut over, word).unwrap());
        let config = Config::resolve(&CATALOGUE, "davi", env, over).unwrap();
        let pool = build_pool(&config);
        let mut davi = build_algorithm(&config, build_env(&config, &pool).unwrap(), pool).unwrap();
        let mut report = Report::new(davi.metrics().len());
        let mut iterate = |times: usize| {
            for _ in 0..times {
                report.begin();
                davi.iterate(&mut report);
            }
        };
        iterate(2);
        let before = allocations();
        iterate(5);
        assert_eq!(allocations() - before, 0, "{env}");
    }
}
