//! Iterations of PPO never allocate. One test: the count is of the process.

use operant::algo::{Algorithm, Report};
use operant::config::{self, Table};
use operant::device::alloc::{CountingAllocator, allocations};
use operant::run::{Config, build_algorithm, build_env, build_pool};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn iterations_never_allocate() {
    let cases: [(&str, &[&str]); 7] = [
        ("pendulum", &["ppo.popart=true", "ppo.curiosity=icm", "ppo.update_epochs=1"]),
        ("cartpole", &["ppo.curiosity=rnd", "precision=f16"]),
        ("cartpole", &["threads=1"]),
        ("cartpole", &["num_envs=1024", "ppo.minibatch_size=4096", "threads=3", "precision=bf16"]),
        ("pendulum", &["num_envs=256", "ppo.minibatch_size=8192"]),
        ("probe_masked", &["ppo.optimizer=muon"]),
        ("probe_memory", &["network.memory=lstm"]),
    ];
    for (env, words) in cases {
        let mut over = Table::new();
        words.iter().for_each(|word| config::assign(&mut over, word).unwrap());
        let config = Config::resolve("ppo", env, over).unwrap();
        let pool = build_pool(&config);
        let mut ppo = build_algorithm(&config, build_env(&config, &pool).unwrap(), pool).unwrap();
        let mut report = Report::new(ppo.metrics().len());
        // The vector env times its first steps; the pool's threads start.
        for _ in 0..3 {
            report.begin();
            ppo.iterate(&mut report);
        }
        let count = |ppo: &mut dyn Algorithm, report: &mut Report, what: &str| {
            let before = allocations();
            for _ in 0..3 {
                report.begin();
                ppo.iterate(report);
            }
            assert_eq!(allocations() - before, 0, "{env} {words:?} {what}");
        };
        count(&mut *ppo, &mut report, "");
        // Timed, with too little room for all spans.
        let origin = Instant::now();
        report.spans.start(origin, 8);
        ppo.plans().into_iter().for_each(|(_, plan)| plan.spans_mut().for_each(|spans| spans.start(origin, 8)));
        count(&mut *ppo, &mut report, "timed");
        assert!(report.spans.kept().len() == 8 && report.spans.dropped() > 0);
        assert!(report.episodes.count() > 0, "{env}: episodes ended meanwhile");
    }
}
