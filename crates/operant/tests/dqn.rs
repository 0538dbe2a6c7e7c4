//! DQN: probe envs whose answers are known, a table of values that it must agree with, and mistakes that are named.
//! `algorithms.rs` has what holds for every algorithm.

use operant::CATALOGUE;
use operant::Result;
use operant::algo::{Algorithm, Policy, Report};
use operant::config::{self, Table};
use operant::data::{Replay, ReplayShape, SampleDraws, Samples};
use operant::env::cube::{Cubies, Pocket};
use operant::env::puzzle::Puzzle;
use operant::env::{self, Actions, RowBuf, Seeds};
use operant::lanes::rng::HostRng;
use operant::run::{Config, build_algorithm, build_env, build_pool};
use operant::search::{HeldOut, PuzzleName};
use std::collections::HashMap;

fn config(env: &str, words: &[&str]) -> Result<Config> {
    let mut over = Table::new();
    words.iter().try_for_each(|word| config::assign(&mut over, word))?;
    Config::resolve(&CATALOGUE, "dqn", env, over)
}

fn build(env: &str, words: &[&str]) -> Result<Box<dyn Algorithm>> {
    let config = config(env, words)?;
    let pool = build_pool(&config);
    build_algorithm(&config, build_env(&config, &pool)?, pool)
}

fn iterate(dqn: &mut dyn Algorithm, report: &mut Report, times: usize) {
    for _ in 0..times {
        report.begin();
        dqn.iterate(report);
        assert_eq!(report.diverged, None);
    }
}

/// Trains for so many env steps.
fn trained(env: &str, words: &[&str], steps: u64) -> (Policy, Report) {
    let mut dqn = build(env, words).unwrap();
    let mut report = Report::new(dqn.metrics().len());
    while dqn.steps() < steps {
        iterate(dqn.as_mut(), &mut report, 1);
    }
    (dqn.policy().unwrap(), report)
}

/// Values of the actions at one observation.
fn values(policy: &Policy, obs: &[f32]) -> Vec<f32> {
    let mut actor = policy.actor(1, &Default::default()).unwrap();
    actor.forward(&policy.params, 1, obs);
    actor.logits().to_vec()
}

/// Steps until the mean return of 100 episodes reaches what counts as solved.
fn steps_to_solve(env: &str, words: &[&str], most: u64) -> Option<u64> {
    let mut dqn = build(env, words).unwrap();
    let mut report = Report::new(dqn.metrics().len());
    let wanted = f64::from(env::find(env).unwrap().spec().solved_at.unwrap());
    while dqn.steps() < most {
        iterate(dqn.as_mut(), &mut report, 1);
        if report.episodes.is_full() && report.episodes.mean_return() >= wanted {
            return Some(dqn.steps());
        }
    }
    None
}

/// The parts of Rainbow one by one and together.
const PARTS: [&[&str]; 9] = [
    &[],
    &["dqn.cut_explored=true", "dqn.explore_steps=3"],
    &["dqn.dueling=false", "dqn.double_q=false"],
    &["dqn.prioritized_replay=true"],
    &["dqn.noisy=true"],
    &["dqn.quantiles=16"],
    &["dqn.tau=0.02", "dqn.target_network_frequency=1"],
    &["dqn.loss=mse", "dqn.optimizer=adamw", "dqn.warmup_updates=50"],
    &["dqn.prioritized_replay=true", "dqn.noisy=true", "dqn.quantiles=16"],
];

#[test]
fn probes_are_solved_with_every_part() {
    for words in PARTS {
        for env in ["probe_identity", "probe_delayed", "probe_masked"] {
            assert!(steps_to_solve(env, words, 50_000).is_some(), "{env} {words:?}");
        }
    }
}

#[test]
fn cartpole_is_learned() {
    for seed in ["seed=1", "seed=2"] {
        let (_, report) = trained("cartpole", &[seed], 60_000);
        let mean = report.episodes.mean_return();
        assert!(mean > 150.0, "{seed}: mean return {mean}");
    }
}

/// Reward 1 for ever is worth 1/(1 − γ), however short its episodes are cut: only a learner that goes on from the last
/// observation of a truncated episode finds that, also where a window of several steps is cut.
#[test]
fn truncation_bootstraps_to_the_exact_value() {
    for (gamma, n_step, part) in
        [(0.9, 1, "dqn.quantiles=0"), (0.95, 4, "dqn.quantiles=0"), (0.9, 3, "dqn.quantiles=8")]
    {
        let (gamma_word, n_word) = (format!("dqn.gamma={gamma}"), format!("dqn.n_step={n_step}"));
        let (policy, _) = trained("probe_truncation", &[&gamma_word, &n_word, part], 40_000);
        let wanted = 1.0 / (1.0 - gamma);
        for got in values(&policy, &[1.0]) {
            assert!((f64::from(got) / wanted - 1.0).abs() < 0.03, "value {got}, wanted {wanted}");
        }
    }
}

/// Stages are told as they begin.
#[test]
fn stages_of_a_curriculum_are_noted() {
    let words = [
        "env.scramble_depth=2",
        "dqn.curriculum.param=scramble_depth",
        "dqn.curriculum.from=1",
        "dqn.curriculum.to=2",
        "dqn.curriculum.step=1",
    ];
    let sure = [
        "dqn.curriculum.success_return=-1000",
        "dqn.curriculum.window=200",
        "num_envs=64",
        "dqn.learning_starts=1000000",
    ];
    let mut dqn = build("cube2", &[&words[..], &sure].concat()).unwrap();
    let mut report = Report::new(dqn.metrics().len());
    let mut notes = Vec::new();
    for _ in 0..40 {
        iterate(dqn.as_mut(), &mut report, 1);
        notes.extend(report.note.take());
    }
    let stage = |n: u32| format!("curriculum: stage {n} of 2, scramble_depth = {n}");
    assert_eq!(notes, [stage(1), stage(2)]);
}

#[test]
fn keys_of_inner_tables_are_checked_as_the_others_are() {
    let message = |word: &str| config("cube2", &[word]).map(drop).unwrap_err().to_string();
    let near = "unknown key \"dqn.curriculum.windw\"; did you mean \"dqn.curriculum.window\"?";
    assert_eq!(message("dqn.curriculum.windw=3"), near);
    assert!(message("dqn.curriculum.window=-3").starts_with("dqn.curriculum.window = -3: wanted a whole number"));
    assert!(message("dqn.curriculum.mix=yes").starts_with("dqn.curriculum.mix = \"yes\": wanted a number"));
    assert!(message("dqn.curriculum=3").starts_with("dqn.curriculum = 3: wanted a table"));
    // Those that are not given stay as shipped.
    let own = config("cube2", &["dqn.curriculum.window=2e2"]).unwrap().own;
    let curriculum = own["curriculum"].as_table().unwrap();
    assert_eq!((curriculum["window"].as_integer(), curriculum["mix"].as_float()), (Some(200), Some(0.2)));
}

/// Q-learning with a table (Watkins, 1989), from random legal actions; the envs are deterministic, so a step size of 1 is
/// exact. Gives values of legal actions by observation; the others are −∞.
fn table(env: &str, params: &[(&str, f64)], gamma: f64, steps: usize) -> HashMap<Vec<u32>, Vec<f64>> {
    let n = 64;
    let mut envs = env::find(env).unwrap().build(params, &env::Options::new(n)).unwrap();
    let spec = envs.spec().clone();
    let (obs, choices) = (spec.observation.len(), spec.action.choices());
    let (mut now, mut after) = (RowBuf::new(&spec, n), RowBuf::new(&spec, n));
    let mut q: HashMap<Vec<u32>, Vec<f64>> = HashMap::new();
    envs.reset(Seeds::One(1), None, now.row());
    let key = |row: &RowBuf, env: usize| row.obs[env * obs..][..obs].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let first = |row: &RowBuf, env: usize| {
        let legal = |action: usize| !spec.masked || row.legal[env * choices + action] != 0;
        (0..choices).map(|action| if legal(action) { 0.0 } else { f64::NEG_INFINITY }).collect::<Vec<_>>()
    };
    for step in 0..steps {
        let mut actions = vec![0; n];
        for (env, action) in actions.iter_mut().enumerate() {
            let known = q.entry(key(&now, env)).or_insert_with(|| first(&now, env));
            let legal: Vec<usize> = (0..choices).filter(|&action| known[action] > f64::NEG_INFINITY).collect();
            let drawn = HostRng::new(2, env as u32, 0, step as u32).below(legal.len() as u32);
            *action = legal[drawn as usize] as i32;
        }
        envs.step(Actions::I32(&actions), after.row());
        for (env, &action) in actions.iter().enumerate() {
            // The first observation of another episode tells nothing of this one.
            if after.truncated[env] != 0 && after.terminated[env] == 0 {
                continue;
            }
            let next = q.entry(key(&after, env)).or_insert_with(|| first(&after, env));
            let next = next.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let next = if after.terminated[env] != 0 { 0.0 } else { gamma * next };
            q.get_mut(&key(&now, env)).unwrap()[action as usize] = f64::from(after.reward[env]) + next;
        }
        std::mem::swap(&mut now, &mut after);
    }
    q
}

/// Values of every action in every state, learned by a table and by the network.
#[test]
fn dqn_agrees_with_a_table() {
    let grid = [("size", 4.0), ("keys", 1.0), ("walls", 0.2)];
    let grid_words: Vec<String> = grid.iter().map(|(name, value)| format!("env.{name}={value}")).collect();
    let own = ["dqn.gamma=0.9", "dqn.n_step=1", "dqn.start_e=1", "dqn.end_e=1", "dqn.anneal_lr=true"];
    let words: Vec<&str> = grid_words.iter().map(String::as_str).chain(own).collect();
    let cases = [("probe_identity", &[][..], &own[..], 20_000), ("gridworld", &grid[..], &words[..], 60_000)];
    for (env, params, words, steps) in cases {
        let total = format!("steps={steps}");
        let q = table(env, params, 0.9, 2_000);
        let (policy, _) = trained(env, &[words, &[&total]].concat(), steps);
        let (mut worst, mut compared) = (0.0_f64, 0);
        for (obs, known) in &q {
            let obs: Vec<f32> = obs.iter().map(|&bits| f32::from_bits(bits)).collect();
            for (&wanted, got) in known.iter().zip(values(&policy, &obs)).filter(|(wanted, _)| wanted.is_finite()) {
                worst = worst.max((f64::from(got) - wanted).abs());
                compared += 1;
            }
        }
        assert!(worst < 0.06 && compared >= 16, "{env}: {worst} of {compared} values");
    }
}

/// With equal priorities all weights are 1 and the exponent changes nothing; with others it changes what is learned.
#[test]
fn importance_weights_reach_the_gradient() {
    let weights = |alpha: &str, beta: &str| {
        let words = ["dqn.prioritized_replay=true", "dqn.learning_starts=200", alpha, beta];
        let (policy, _) = trained("cartpole", &words, 2_000);
        policy.params.values().to_vec()
    };
    let [none, all] = ["dqn.prioritized_replay_beta=0", "dqn.prioritized_replay_beta=1"];
    let equal = "dqn.prioritized_replay_alpha=0";
    assert_eq!(weights(equal, none), weights(equal, all));
    let differing = "dqn.prioritized_replay_alpha=0.6";
    assert_ne!(weights(differing, none), weights(differing, all));
}

/// As many samples are learned per env step as the setting says.
#[test]
fn the_replay_ratio_is_kept() {
    for (ratio, batch) in [(8.0, 64), (0.3, 128), (2.5, 100)] {
        let words = [
            format!("dqn.replay_ratio={ratio:?}"),
            format!("dqn.batch_size={batch}"),
            "dqn.learning_starts=800".into(),
        ];
        let mut dqn = build("cartpole", &words.each_ref().map(String::as_str)).unwrap();
        let mut report = Report::new(dqn.metrics().len());
        iterate(dqn.as_mut(), &mut report, 10);
        let updates = dqn.metrics().iter().position(|metric| metric.name == "updates").unwrap();
        let wanted = (dqn.steps() - 800 + 8) as f64 * ratio / f64::from(batch);
        assert!((report.values[updates] - wanted).abs() <= 1.0, "{} updates, wanted {wanted}", report.values[updates]);
    }
}

/// A saved policy acts by the same values, and takes the best action also where one is asked to draw.
#[test]
fn a_saved_policy_is_greedy_and_the_same() {
    use operant::algo::ActionsMut;
    use operant::nn::dist::Draws;
    for words in PARTS {
        let (policy, _) = trained("probe_identity", words, 2_000);
        let loaded = Policy::from_bytes(&policy.to_bytes()).unwrap();
        let obs = [0.0, 1.0, 0.0, 0.0];
        let q = values(&policy, &obs);
        assert_eq!(values(&loaded, &obs), q);
        let mut actor = loaded.actor(1, &Default::default()).unwrap();
        actor.forward(&loaded.params, 1, &obs);
        let legal = [1, 0, 1, 1];
        let wanted = [0, 2, 3].into_iter().max_by(|&a, &b| q[a].total_cmp(&q[b])).unwrap() as i32;
        let (mut drawn, mut mode, mut log_prob) = ([9], [9], [1.0]);
        let draws = Draws { seed: 1, first_row: 0, step: 0 };
        actor.sample(&loaded.params, Some(&legal), draws, ActionsMut::Choices(&mut drawn), &mut log_prob);
        actor.mode(&loaded.params, Some(&legal), ActionsMut::Choices(&mut mode));
        assert_eq!((drawn, mode, log_prob), ([wanted], [wanted], [0.0]));
    }
}

#[test]
fn a_curriculum_moves_up_as_episodes_succeed() {
    let words = [
        "dqn.curriculum.param=gravity",
        "dqn.curriculum.from=5",
        "dqn.curriculum.to=9.8",
        "dqn.curriculum.step=2",
        "dqn.curriculum.success_return=60",
        "dqn.curriculum.success_rate=0.8",
        "dqn.curriculum.window=20",
    ];
    let mut dqn = build("cartpole", &words).unwrap();
    let mut report = Report::new(dqn.metrics().len());
    let stage = dqn.metrics().iter().position(|metric| metric.name == "curriculum/stage").unwrap();
    let mut seen = vec![5.0];
    while dqn.steps() < 100_000 && report.values[stage] != 9.8 {
        iterate(dqn.as_mut(), &mut report, 1);
        assert!(report.values[stage] >= *seen.last().unwrap());
        // Nothing counts as solved before the last stage, and there only what was played in it.
        assert_eq!(report.preparing, report.values[stage] != 9.8);
        if report.values[stage] != *seen.last().unwrap() {
            assert!(!report.episodes.is_full());
        }
        seen.push(report.values[stage]);
    }
    seen.dedup();
    assert_eq!(seen, [5.0, 7.0, 9.0, 9.8]);
}

/// What replay gives of a run that holds half of the far states out: none of those as a window's start, some at its end, and the same
/// states that an evaluation takes for held out.
#[test]
fn states_that_are_held_out_are_never_drawn() {
    let words = [
        "num_envs=64",
        "dqn.num_steps=100",
        "dqn.buffer_size=32000",
        "dqn.learning_starts=1000000",
        "dqn.curriculum.param=none",
        "env.mixed=false",
        "env.time_limit=50",
        "env.view=cubies",
        "dqn.held_out=0.5",
        "dqn.held_out_beyond=3",
    ];
    let puzzle = PuzzleName::of_env("cube2", |name| f64::from(u8::from(name == "symmetry"))).pocket().unwrap();
    let held_out = HeldOut::new(&puzzle, 0.5, 3);
    let mut entries = vec![0; puzzle.features().shown];
    let mut held = |obs: &[f32]| {
        // One of 21 numbers of each corner is 1: its place and twist. The image that is seen is of the same orbit.
        let mut cube = Cubies::SOLVED;
        for corner in 0..7 {
            let code = obs[corner * 21..][..21].iter().position(|&x| x == 1.0).unwrap();
            (cube.corners[code / 3], cube.twists[code / 3]) = (corner as u8, (code % 3) as u8);
        }
        let representative = puzzle.representative(Pocket::index(&cube));
        puzzle.encode(representative, &mut entries);
        held_out.holds(representative, &entries)
    };
    for depth in [2, 100] {
        let depth_word = format!("env.scramble_depth={depth}");
        let mut dqn = build("cube2", &[&words[..], &[depth_word.as_str()]].concat()).unwrap();
        let mut report = Report::new(dqn.metrics().len());
        iterate(dqn.as_mut(), &mut report, 1);
        let shape = ReplayShape { envs: 64, rows: 500, obs: 147, choices: 0, n_step: 3 };
        let mut replay = Replay::new(shape, Some(0.6)).unwrap();
        replay.load(&dqn.save().unwrap()["replay.bin"]).unwrap();
        let mut samples = Samples::new(&shape, 2000);
        replay.sample(SampleDraws { seed: 1, count: 0 }, 0.9, 1.0, &mut samples);
        assert_eq!(samples.obs.chunks_exact(147).filter(|obs| held(obs)).count(), 0);
        let ends = samples.next_obs.chunks_exact(147).filter(|obs| held(obs)).count();
        assert!(ends > 0, "random actions lead far from solved");
        let share = replay.len() as f64 / 6400.0;
        assert!(if depth == 2 { share > 0.5 } else { (0.4..0.6).contains(&share) }, "{share} at {depth}");
    }
}

#[test]
fn impossible_settings_say_which_rule_they_break() {
    let message = |env: &str, words: &[&str]| build(env, words).err().expect("an error").to_string();
    assert_eq!(message("cartpole", &["dqn.gamma=1.5"]), "dqn.gamma = 1.5: wanted 0 to 1");
    assert_eq!(message("cartpole", &["dqn.tau=0"]), "dqn.tau = 0: wanted more than 0, up to 1");
    assert_eq!(message("cartpole", &["dqn.replay_ratio=0"]), "dqn.replay_ratio = 0: wanted more than 0, at most 1e6");
    assert!(message("cartpole", &["dqn.buffer_size=20"]).contains("raise buffer_size"));
    assert!(message("pendulum", &[]).contains("wanted ppo"));
    assert!(message("cartpole", &["network.memory=lstm"]).contains("wanted none"));
    assert!(message("cartpole", &["network.encoder=entries"]).contains("are no numbers of entries"));
    assert!(message("cube2", &["env.view=stickers", "network.encoder=entries"]).contains("are no numbers of entries"));
    assert!(message("cube2", &["network.encoder=flat"]).contains("are numbers of entries, not amounts"));
    assert!(build("cube2", &["env.view=cubies", "num_envs=64", "dqn.buffer_size=6400"]).is_ok());
    assert!(message("cube2", &["dqn.normalize_obs=true"]).contains("numbers of entries stay as they are"));
    assert!(message("cube2", &["network.hidden=[64]"]).contains("two or more hidden layers"));
    assert!(message("cartpole", &["dqn.held_out=0.1"]).contains("wanted 0; states are held out of puzzles"));
    assert!(message("cartpole", &["dqn.los=mse"]).contains("did you mean \"dqn.loss\"?"));
    assert!(message("cartpole", &["dqn.curriculum.parm=1"]).contains("parm"));
    assert!(
        message("cartpole", &["dqn.curriculum.param=gravty", "dqn.curriculum.success_return=1"])
            .contains("did you mean \"gravity\"?")
    );
}

#[test]
fn a_save_of_another_run_is_refused() {
    let parts = build("cartpole", &[]).unwrap().save().unwrap();
    let others: [(&str, &[&str]); 5] = [
        ("cartpole", &["network.hidden=[32, 32]"]),
        ("cartpole", &["num_envs=32"]),
        ("cartpole", &["dqn.buffer_size=1000"]),
        ("cartpole", &["dqn.prioritized_replay=true"]),
        ("mountaincar", &[]),
    ];
    for (env, words) in others {
        assert!(build(env, words).unwrap().load(&parts).is_err(), "{env} {words:?}");
    }
}

#[test]
fn divergence_is_reported() {
    let mut dqn = build("cartpole", &["dqn.learning_rate=1e30", "dqn.max_grad_norm=0"]).unwrap();
    let mut report = Report::new(dqn.metrics().len());
    for _ in 0..20 {
        report.begin();
        dqn.iterate(&mut report);
        if let Some(reason) = &report.diverged {
            assert!(reason.contains("is not finite, first in \""), "{reason}");
            return;
        }
    }
    panic!("weights of 1e30 went unnoticed");
}
