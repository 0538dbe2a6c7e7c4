//! PPO: probe envs whose answers are known, both precisions, and mistakes that are named. `algorithms.rs` has what holds
//! for every algorithm.

use operant::algo::{Algorithm, Report};
use operant::config::{self, Table};
use operant::run::{Config, SHIPPED, build_algorithm, build_env, build_pool};
use operant::{Result, env};

fn config(env: &str, words: &[&str]) -> Result<Config> {
    let mut over = Table::new();
    words.iter().try_for_each(|word| config::assign(&mut over, word))?;
    Config::resolve("ppo", env, over)
}

fn build(env: &str, words: &[&str]) -> Result<Box<dyn Algorithm>> {
    let config = config(env, words)?;
    let pool = build_pool(&config);
    build_algorithm(&config, build_env(&config, &pool)?, pool)
}

fn iterate(ppo: &mut dyn Algorithm, report: &mut Report, times: usize) {
    for _ in 0..times {
        report.begin();
        ppo.iterate(report);
        assert_eq!(report.diverged, None);
    }
}

/// Steps until the mean return of 100 episodes reaches what counts as solved.
fn steps_to_solve(env: &str, words: &[&str], most: u64) -> Option<u64> {
    let mut ppo = build(env, words).unwrap();
    let mut report = Report::new(ppo.metrics().len());
    let wanted = f64::from(env::find(env).unwrap().spec().solved_at.unwrap());
    while ppo.steps() < most {
        iterate(ppo.as_mut(), &mut report, 1);
        if report.episodes.is_full() && report.episodes.mean_return() >= wanted {
            return Some(ppo.steps());
        }
    }
    None
}

#[test]
fn probes_are_solved() {
    for (env, most) in [("probe_identity", 20_000), ("probe_delayed", 20_000), ("probe_masked", 20_000)] {
        for seed in ["seed=1", "seed=2", "seed=3"] {
            assert!(steps_to_solve(env, &[seed], most).is_some(), "{env} {seed}");
        }
    }
}

#[test]
fn cartpole_is_solved_in_f32_and_bf16() {
    for precision in ["precision=f32", "precision=bf16"] {
        for seed in ["seed=1", "seed=2"] {
            let steps = steps_to_solve("cartpole", &[seed, precision], 300_000);
            assert!(steps.is_some(), "{precision} {seed}");
        }
    }
}

/// Reward 1 for ever is worth 1/(1 − γ), however short its episodes are cut: only a learner that goes on from the last
/// observation of a truncated episode finds that. With an episode of 10 steps, any other answer is below 10.
#[test]
fn truncation_bootstraps_to_the_exact_value() {
    for gamma in [0.9, 0.95] {
        let gamma_word = format!("ppo.gamma={gamma}");
        let words = [
            gamma_word.as_str(),
            "ppo.anneal_lr=false",
            "ppo.clip_vloss=false",
            "ppo.learning_rate=1e-2",
            "ppo.max_grad_norm=0",
        ];
        let mut ppo = build("probe_truncation", &words).unwrap();
        let mut report = Report::new(ppo.metrics().len());
        iterate(ppo.as_mut(), &mut report, 300);
        let policy = ppo.policy().unwrap();
        let mut actor = policy.actor(1, &Default::default()).unwrap();
        actor.forward(&policy.params, 1, &[1.0]);
        let (got, wanted) = (f64::from(actor.values()[0]), 1.0 / (1.0 - gamma));
        assert!((got / wanted - 1.0).abs() < 0.02, "value {got}, wanted {wanted}");
    }
}

#[test]
fn memory_is_needed_and_enough_for_the_memory_probe() {
    for memory in ["mingru", "lstm"] {
        let word = format!("network.memory={memory}");
        assert!(steps_to_solve("probe_memory", &[&word], 200_000).is_some(), "{memory}");
    }
    assert_eq!(
        steps_to_solve("probe_memory", &["network.memory=none"], 30_000),
        None,
        "without a memory it is a guess"
    );
}

/// Rewards of thousands: with PopArt the value network still learns numbers of about one.
#[test]
fn popart_learns_returns_of_any_size() {
    let words = ["ppo.popart=true", "ppo.normalize_reward=false", "ppo.gamma=0.9"];
    let mut ppo = build("pendulum", &words).unwrap();
    let mut report = Report::new(ppo.metrics().len());
    iterate(ppo.as_mut(), &mut report, 80);
    let at = ppo.metrics().iter().position(|metric| metric.name == "explained_variance").unwrap();
    assert!(report.values[at] > 0.5, "explained variance {}", report.values[at]);
}

/// Without entropy and with small steps, every episode of MountainCar costs the same and nothing is learned; a car that
/// is rewarded for what is new finds the flag.
#[test]
fn curiosity_finds_the_flag() {
    let settings = [
        "num_envs=16",
        "ppo.num_steps=128",
        "ppo.minibatch_size=256",
        "ppo.normalize_reward=false",
        "ppo.anneal_lr=false",
        "ppo.ent_coef=0",
        "ppo.learning_rate=3e-4",
        "ppo.gae_lambda=0.95",
    ];
    let after_training = |words: &[&str]| {
        let mut ppo = build("mountaincar", &[&settings[..], words].concat()).unwrap();
        let mut report = Report::new(ppo.metrics().len());
        iterate(ppo.as_mut(), &mut report, 150);
        report.episodes.mean_return()
    };
    let without = after_training(&["ppo.curiosity=none"]);
    let rnd = after_training(&["ppo.curiosity=rnd", "ppo.curiosity_coef=50"]);
    let icm = after_training(&["ppo.curiosity=icm", "ppo.curiosity_coef=10"]);
    assert!(rnd > without + 30.0 && icm > without + 30.0, "mean return {without}, rnd {rnd}, icm {icm}");
}

/// A policy may narrow too early and stay where it is: one seed in ten or so, so not both of two.
#[test]
fn continuous_actions_are_learned() {
    let learns = |seed: &str| {
        let mut ppo = build("pendulum", &[seed]).unwrap();
        let mut report = Report::new(ppo.metrics().len());
        iterate(ppo.as_mut(), &mut report, 12);
        let before = report.episodes.mean_return();
        iterate(ppo.as_mut(), &mut report, 60);
        let after = report.episodes.mean_return();
        after > before + 500.0 && after > -450.0
    };
    assert!(learns("seed=1") || learns("seed=2"));
}

#[test]
fn impossible_settings_say_which_rule_they_break() {
    let message = |words: &[&str]| build("cartpole", words).err().expect("an error").to_string();
    assert_eq!(
        message(&["num_envs=2048", "ppo.num_steps=32", "ppo.minibatch_size=3000"]),
        "ppo.minibatch_size 3000 does not divide num_envs*num_steps = 65536"
    );
    assert_eq!(message(&["ppo.gamma=1.5"]), "ppo.gamma = 1.5: wanted 0 to 1");
    assert_eq!(message(&["ppo.learning_rate=-1"]), "ppo.learning_rate = -1: wanted more than 0");
    assert_eq!(message(&["ppo.num_steps=0"]), "ppo.num_steps = 0: wanted 1..=1048576");
    assert!(message(&["network.hidden=[]"]).starts_with("network.hidden = []: wanted one or more sizes"));
    assert!(message(&["network.memory=lstm", "ppo.minibatch_size=8"]).contains("is no multiple of ppo.num_steps = 16"));
    assert!(message(&["network.activation=tan"]).contains("tanh"));
    assert!(message(&["ppo.overlap=true"]).contains("wanted false on the CPU"));
    assert!(message(&["env.gravty=1"]).contains("did you mean \"gravity\"?"));
}

#[test]
fn a_save_of_another_run_is_refused() {
    let parts = build("cartpole", &[]).unwrap().save().unwrap();
    for (env, words) in
        [("cartpole", &["network.hidden=[32, 32]"][..]), ("cartpole", &["num_envs=32"]), ("pendulum", &[])]
    {
        assert!(build(env, words).unwrap().load(&parts).is_err(), "{env} {words:?}");
    }
}

#[test]
fn every_env_has_settings_that_build() {
    for entry in env::REGISTRY {
        let name = entry.spec().name;
        assert!(SHIPPED.iter().any(|(algo, env, _)| *algo == "ppo" && *env == name), "configs/ppo/{name}.toml");
        let mut ppo = build(name, &[]).unwrap();
        let mut report = Report::new(ppo.metrics().len());
        iterate(ppo.as_mut(), &mut report, 1);
    }
}

/// The learning rate is so high that weights become infinite: the report names what happened.
#[test]
fn divergence_is_reported() {
    let mut ppo = build("pendulum", &["ppo.learning_rate=1e30", "ppo.max_grad_norm=0"]).unwrap();
    let mut report = Report::new(ppo.metrics().len());
    for _ in 0..5 {
        report.begin();
        ppo.iterate(&mut report);
        if let Some(reason) = &report.diverged {
            assert!(reason.contains("is not finite"), "{reason}");
            return;
        }
    }
    panic!("weights of 1e30 went unnoticed");
}
