//! Iterations of algorithms never allocate. One test: the count is of the process.

use operant::CATALOGUE;
use operant::algo::{Algorithm, Report};
use operant::config::{self, Table};
use operant::device::alloc::{CountingAllocator, allocations};
use operant::run::{Config, build_algorithm, build_env, build_pool};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn iterations_never_allocate() {
    let cases: [(&str, &str, &[&str]); 14] = [
        ("ppo", "pendulum", &["ppo.popart=true", "ppo.curiosity=icm", "ppo.update_epochs=1"]),
        ("ppo", "cartpole", &["ppo.curiosity=rnd", "precision=f16"]),
        ("ppo", "cartpole", &["threads=1"]),
        ("ppo", "cartpole", &["num_envs=1024", "ppo.minibatch_size=4096", "threads=3", "precision=bf16"]),
        ("ppo", "pendulum", &["num_envs=256", "ppo.minibatch_size=8192"]),
        ("ppo", "probe_masked", &["ppo.optimizer=muon"]),
        ("ppo", "probe_memory", &["network.memory=lstm"]),
        ("dqn", "cartpole", &["dqn.learning_starts=100", "dqn.prioritized_replay=true", "dqn.normalize_obs=true"]),
        ("dqn", "cartpole", &["dqn.learning_starts=100", "dqn.explore_steps=5", "dqn.cut_explored=true"]),
        (
            "dqn",
            "cube2",
            &[
                "num_envs=64",
                "dqn.learning_starts=100",
                "dqn.batch_size=64",
                "dqn.buffer_size=6400",
                "dqn.held_out=0.2",
                "threads=1",
            ],
        ),
        ("dqn", "cartpole", &["dqn.learning_starts=100", "dqn.noisy=true", "dqn.quantiles=8", "dqn.optimizer=adamw"]),
        (
            "dqn",
            "cartpole",
            &["dqn.learning_starts=100", "dqn.tau=0.01", "dqn.target_network_frequency=1", "precision=f16"],
        ),
        (
            "dqn",
            "cartpole",
            &["num_envs=1024", "dqn.replay_ratio=0.5", "dqn.batch_size=512", "threads=3", "precision=bf16"],
        ),
        (
            "dqn",
            "probe_masked",
            &["dqn.learning_starts=100", "dqn.dueling=false", "dqn.double_q=false", "dqn.loss=mse"],
        ),
    ];
    for (algo, env, words) in cases {
        let mut over = Table::new();
        words.iter().for_each(|word| config::assign(&mut over, word).unwrap());
        let config = Config::resolve(&CATALOGUE, algo, env, over).unwrap();
        let pool = build_pool(&config);
        let mut algorithm = build_algorithm(&config, build_env(&config, &pool).unwrap(), pool).unwrap();
        let mut report = Report::new(algorithm.metrics().len());
        // The vector env times its first steps; the pool's threads start.
        for _ in 0..3 {
            report.begin();
            algorithm.iterate(&mut report);
        }
        let count = |algorithm: &mut dyn Algorithm, report: &mut Report, what: &str| {
            let mut counted = || {
                let before = allocations();
                for _ in 0..3 {
                    report.begin();
                    algorithm.iterate(report);
                }
                allocations() - before
            };
            // On a slow machine the harness may say in between that the test takes long, and allocates for that, once.
            let least = Some(counted()).filter(|&count| count == 0).unwrap_or_else(&mut counted);
            assert_eq!(least, 0, "{algo} {env} {words:?} {what}");
        };
        count(&mut *algorithm, &mut report, "");
        // Timed, with too little room for all spans.
        let origin = Instant::now();
        report.spans.start(origin, 8);
        algorithm.plans().into_iter().for_each(|(_, plan)| plan.spans_mut().for_each(|spans| spans.start(origin, 8)));
        count(&mut *algorithm, &mut report, "timed");
        assert!(report.spans.kept().len() == 8 && report.spans.dropped() > 0);
        assert!(report.episodes.count() > 0, "{env}: episodes ended meanwhile");
    }
}
