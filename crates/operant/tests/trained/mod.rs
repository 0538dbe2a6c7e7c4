//! Runs of PPO by settings, for the tests of its paths on a GPU.

use operant::CATALOGUE;
use operant::algo::{Algorithm, Report};
use operant::config;
use operant::run::{Config, Play, build_algorithm, build_env_among, build_pool, evaluate};

pub(crate) fn resolved(env: &str, over: &str) -> Config {
    Config::resolve(&CATALOGUE, "ppo", env, config::parse(over, "test").unwrap()).unwrap()
}

/// One of so many that use the GPU at once.
pub(crate) fn built_among(config: &Config, at_once: usize) -> Box<dyn Algorithm> {
    let pool = build_pool(config);
    build_algorithm(config, build_env_among(config, &pool, at_once).unwrap(), pool).unwrap()
}

pub(crate) fn algorithm_on(env: &str, over: &str) -> Box<dyn Algorithm> {
    built_among(&resolved(env, over), 1)
}

/// The mean return of 100 episodes with the most probable actions, on the CPU.
pub(crate) fn evaluated(algorithm: &dyn Algorithm, env: &str, seed: u64) -> f64 {
    let play = Play { episodes: 100, seed, deterministic: true, ..Play::default() };
    evaluate(&algorithm.policy().unwrap(), operant::env::find(env).unwrap(), &[], &play, None).unwrap().mean()
}

pub(crate) fn weights(algorithm: &dyn Algorithm) -> Vec<f32> {
    algorithm.policy().unwrap().params.values().to_vec()
}

pub(crate) fn run(algorithm: &mut dyn Algorithm, iterations: usize) -> Report {
    let mut report = Report::new(algorithm.metrics().len());
    for _ in 0..iterations {
        report.begin();
        algorithm.iterate(&mut report);
        assert!(report.failed.is_none() && report.diverged.is_none(), "{:?} {:?}", report.failed, report.diverged);
    }
    report
}
