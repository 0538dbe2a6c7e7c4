//! PPO: probe envs whose answers are known, every precision, and mistakes that are named. `algorithms.rs` has what holds
//! for every algorithm.

use operant::CATALOGUE;
use operant::algo::{Algorithm, Report};
use operant::config::{self, Table};
use operant::device::gemm::amx;
use operant::run::{Config, build_algorithm, build_env, build_pool};
use operant::{Result, env};

fn config(env: &str, words: &[&str]) -> Result<Config> {
    let mut over = Table::new();
    words.iter().try_for_each(|word| config::assign(&mut over, word))?;
    Config::resolve(&CATALOGUE, "ppo", env, over)
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
fn cartpole_is_solved_in_every_precision() {
    let bf16 = amx::available_to_tests().then_some("precision=bf16");
    for precision in ["precision=f32", "precision=f16"].into_iter().chain(bf16) {
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
    assert_eq!(message(&["ppo.learning_rate=1e31"]), "ppo.learning_rate = 1e31: wanted at most 1e30");
    assert_eq!(message(&["ppo.minibatch_size=0"]), "ppo.minibatch_size = 0: wanted at least 1");
    assert_eq!(message(&["ppo.num_steps=0"]), "ppo.num_steps = 0: wanted 1..=1048576");
    assert!(message(&["network.hidden=[]"]).starts_with("network.hidden = []: wanted one or more sizes"));
    assert!(message(&["network.memory=lstm", "ppo.minibatch_size=8"]).contains("is no multiple of ppo.num_steps = 16"));
    assert!(message(&["network.activation=tan"]).contains("tanh"));
    assert!(message(&["ppo.overlap=true"]).contains("wanted false on the CPU"));
    assert!(message(&["ppo.prob_floors=[0.1, 0.1]"]).contains("2 floors for 1 heads of choices"));
    assert!(message(&["ppo.ent_floors=[1]"]).starts_with("ppo.ent_floors = [1.0]: wanted numbers of 0 or more"));
    assert!(message(&["ppo.first_logits=[0, 0, 1]"]).contains("3 numbers for 2 choices"));
    assert!(message(&["ppo.first_logits=[99]"]).contains("wanted numbers of -20 to 20"));
    assert!(message(&["env.gravty=1"]).contains("did you mean \"gravity\"?"));
}

/// Weights of a policy whose names begin with a word.
fn weights_of(ppo: &dyn Algorithm, prefix: &str) -> Vec<f32> {
    let params = ppo.policy().unwrap().params;
    let own = params.specs().iter().filter(|spec| spec.name.starts_with(prefix));
    own.flat_map(|spec| params.values()[spec.range()].to_vec()).collect()
}

#[test]
fn a_warmup_of_values_leaves_the_policy_as_it_was() {
    let mut ppo = build("cartpole", &["ppo.value_warmup=3"]).unwrap();
    let mut report = Report::new(ppo.metrics().len());
    let first = ["actor.", "critic."].map(|prefix| weights_of(ppo.as_ref(), prefix));
    iterate(ppo.as_mut(), &mut report, 3);
    assert_eq!(weights_of(ppo.as_ref(), "actor."), first[0]);
    assert_ne!(weights_of(ppo.as_ref(), "critic."), first[1]);
    iterate(ppo.as_mut(), &mut report, 1);
    assert_ne!(weights_of(ppo.as_ref(), "actor."), first[0]);
    // Adam's first step of a policy is as long as the learning rate, however long values have learned.
    let words = ["num_envs=64", "ppo.num_steps=32", "ppo.minibatch_size=2048", "ppo.update_epochs=1"];
    let rate = ["ppo.learning_rate=1e-3", "ppo.anneal_lr=false", "ppo.value_warmup=9"];
    let mut ppo = build("cartpole", &[&words[..], &rate].concat()).unwrap();
    iterate(ppo.as_mut(), &mut report, 9);
    let before = weights_of(ppo.as_ref(), "actor.");
    iterate(ppo.as_mut(), &mut report, 1);
    let after = weights_of(ppo.as_ref(), "actor.");
    let longest = before.iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!((9e-4..1.01e-3).contains(&longest), "{longest}");
}

/// A policy that is all but certain of one action still plays the other, as often as the floor says; and the first look at a
/// rollout finds the probabilities that it was played with.
#[test]
fn floors_hold_where_a_run_plays_and_where_it_learns() {
    let words = [
        "num_envs=64",
        "ppo.num_steps=32",
        "ppo.minibatch_size=2048",
        "ppo.update_epochs=1",
        "ppo.learning_rate=1e-9",
        "ppo.first_logits=[15, 0]",
    ];
    let played = |floors: &[&str]| {
        let mut ppo = build("cartpole", &[&words[..], floors].concat()).unwrap();
        let mut report = Report::new(ppo.metrics().len());
        iterate(ppo.as_mut(), &mut report, 1);
        let named = |name: &str| ppo.metrics().iter().position(|metric| metric.name == name).unwrap();
        (report.values[named("entropy")], report.values[named("approx_kl")], report.episodes.mean_return())
    };
    let (certain, _, shorter) = played(&[]);
    assert!(certain < 1e-3, "{certain}");
    let (entropy, divergence, longer) = played(&["ppo.prob_floors=[0.2]"]);
    let wanted = -(0.2f64 * 0.2f64.ln() + 0.8 * 0.8f64.ln());
    assert!((entropy - wanted).abs() < 1e-3, "{entropy} {wanted}");
    assert!(divergence.abs() < 1e-6, "{divergence}");
    assert!(longer > shorter + 0.5, "{longer} {shorter}");
}

/// Pushed by a floor alone, a policy of almost no entropy gets back to it; one that is above it learns as without.
#[test]
fn an_entropy_below_its_floor_comes_back() {
    let words = [
        "ppo.first_logits=[4, 0]",
        "ppo.ent_coef=0",
        "ppo.ent_floor_coef=10",
        "ppo.learning_rate=3e-3",
        "ppo.anneal_lr=false",
        "ppo.value_warmup=0",
        "ppo.adv_std_floor=1e9",
    ];
    let entropy = |floors: &str| {
        let mut ppo = build("cartpole", &[&words[..], &[floors]].concat()).unwrap();
        let mut report = Report::new(ppo.metrics().len());
        iterate(ppo.as_mut(), &mut report, 30);
        let at = ppo.metrics().iter().position(|metric| metric.name == "entropy").unwrap();
        report.values[at] / 2f64.ln()
    };
    let (without, with) = (entropy("ppo.ent_floors=[]"), entropy("ppo.ent_floors=[0.5]"));
    assert!(without < 0.2 && with > 0.4, "shares of the largest entropy: {without} and {with}");
    let learned = |floors: &str| {
        let mut ppo = build("cartpole", &["ppo.ent_floor_coef=10", floors]).unwrap();
        let mut report = Report::new(ppo.metrics().len());
        iterate(ppo.as_mut(), &mut report, 2);
        weights_of(ppo.as_ref(), "actor.")
    };
    assert_eq!(learned("ppo.ent_floors=[0.5]"), learned("ppo.ent_floors=[]"));
    assert_ne!(learned("ppo.ent_floors=[0.9999]"), learned("ppo.ent_floors=[]"));
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
    for entry in env::all() {
        let name = entry.spec().name;
        assert!(CATALOGUE.shipped("ppo", name).is_some(), "configs/ppo/{name}.toml");
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
            assert!(reason.contains("is not finite, first in \""), "{reason}");
            return;
        }
    }
    panic!("weights of 1e30 went unnoticed");
}
