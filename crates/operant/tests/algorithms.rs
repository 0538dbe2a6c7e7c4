//! What holds for every algorithm: the same bits for any number of threads, across save and load, and for the same seed;
//! numbers of envs that nothing can be learned from are named.

use operant::algo::{self, Algorithm, Report};
use operant::config::{self, Table};
use operant::env::{
    Action, ActionSpace, Actions, Channel, Env, LaneVec, Options, RowBuf, Seeds, Spec, Step, VecEnv as _,
};
use operant::lanes::{Float as _, Int as _, Lanes, Rng, select};
use operant::run::{Config, Run, Start, build_algorithm, build_env, build_pool};
use operant::{CATALOGUE, Shipped};
use operant::{Error, Result, columns, params};
use std::time::Instant;

fn build(algo: &str, env: &str, words: &[&str]) -> Result<Box<dyn Algorithm>> {
    let mut over = Table::new();
    words.iter().try_for_each(|word| config::assign(&mut over, word))?;
    let config = Config::resolve(&CATALOGUE, algo, env, over)?;
    let pool = build_pool(&config);
    build_algorithm(&config, build_env(&config, &pool)?, pool)
}

fn iterate(algorithm: &mut dyn Algorithm, report: &mut Report, times: usize) {
    for _ in 0..times {
        report.begin();
        algorithm.iterate(report);
        assert_eq!(report.diverged, None);
    }
}

/// Settings under which everything that a checkpoint holds matters.
const EVERYTHING: [(&str, &str, &[&str]); 21] = [
    ("ppo", "pendulum", &["ppo.popart=true", "ppo.curiosity=icm", "ppo.update_epochs=2"]),
    ("ppo", "mountaincar", &["ppo.curiosity=rnd", "ppo.anneal_clip=true", "ppo.anneal_ent=true"]),
    ("ppo", "cartpole", &["num_envs=48", "ppo.num_steps=32", "ppo.minibatch_size=512"]),
    ("ppo", "pendulum", &["num_envs=40", "ppo.num_steps=32", "ppo.minibatch_size=320", "ppo.update_epochs=2"]),
    ("ppo", "probe_masked", &["ppo.target_kl=0.01"]),
    ("ppo", "probe_memory", &["network.memory=lstm"]),
    (
        "ppo",
        "cartpole",
        &["precision=bf16", "ppo.optimizer=muon", "ppo.normalize_obs=true", "ppo.normalize_reward=true"],
    ),
    ("dqn", "cartpole", &["dqn.learning_starts=600", "dqn.prioritized_replay=true", "dqn.buffer_size=2000"]),
    (
        "dqn",
        "cartpole",
        &["num_envs=600", "dqn.num_steps=8", "dqn.learning_starts=0", "dqn.batch_size=500", "dqn.n_step=1"],
    ),
    ("dqn", "mountaincar", &["dqn.learning_starts=300", "dqn.noisy=true", "dqn.quantiles=8", "dqn.normalize_obs=true"]),
    ("dqn", "probe_masked", &["dqn.tau=0.1", "dqn.target_network_frequency=3", "dqn.optimizer=adamw", "dqn.loss=mse"]),
    ("dqn", "gridworld", &["dqn.end_e=0.5", "dqn.explore_steps=9", "dqn.cut_explored=true", "dqn.learning_starts=200"]),
    (
        "dqn",
        "cube2",
        &[
            "num_envs=40",
            "network.hidden=[32,32]",
            "dqn.learning_starts=100",
            "dqn.batch_size=64",
            "dqn.buffer_size=4000",
            "dqn.held_out=0.2",
        ],
    ),
    (
        "dqn",
        "probe_truncation",
        &["precision=bf16", "dqn.replay_ratio=2.7", "dqn.double_q=false", "dqn.warmup_updates=9"],
    ),
    (
        "alphazero",
        "connect4",
        &[
            "num_envs=40",
            "network.hidden=[16,16]",
            "alphazero.search.simulations=16",
            "alphazero.search.leaves=2",
            "alphazero.moves=12",
            "alphazero.gate=loss",
            "alphazero.held_back=100",
            "alphazero.window=600",
            "alphazero.learning_starts=100",
            "alphazero.batch_size=48",
        ],
    ),
    (
        "alphazero",
        "2048",
        &[
            "num_envs=36",
            "network.hidden=[16]",
            "alphazero.search.simulations=8",
            "alphazero.search.leaves=1",
            "alphazero.search.chance=widen",
            "alphazero.search.transpositions=true",
            "alphazero.moves=20",
            "alphazero.most_moves=50",
            "alphazero.learning_starts=100",
            "alphazero.batch_size=32",
        ],
    ),
    (
        "alphazero",
        "backgammon",
        &[
            "num_envs=34",
            "precision=bf16",
            "network.hidden=[16]",
            "alphazero.search.simulations=8",
            "alphazero.search.leaves=1",
            "alphazero.search.gumbel=4",
            "alphazero.moves=15",
            "alphazero.most_moves=30",
            "alphazero.learning_starts=100",
            "alphazero.batch_size=32",
        ],
    ),
    (
        "alphazero",
        "backgammon",
        &[
            // Taught for eight or nine iterations, so that a save after five is in the midst of it, then by search.
            concat!("alphazero.teacher=", env!("CARGO_MANIFEST_DIR"), "/../../models/backgammon.safetensors"),
            "alphazero.pretrain=150",
            "num_envs=40",
            "network.hidden=[16]",
            "alphazero.search.simulations=8",
            "alphazero.search.leaves=1",
            "alphazero.moves=12",
            "alphazero.most_moves=60",
            "alphazero.learning_starts=100",
            "alphazero.batch_size=48",
        ],
    ),
    (
        "davi",
        "cube2",
        &["network.hidden=[32]", "davi.batch_size=64", "davi.target_interval=3", "davi.held_out=0.1", "num_envs=1"],
    ),
    (
        "td",
        "backgammon",
        &["network.hidden=[16]", "num_envs=96", "td.turns=24", "td.batch_size=64", "td.replay=1024", "precision=f32"],
    ),
    (
        "dqn",
        "cartpole",
        &[
            "dqn.learning_starts=600",
            "dqn.curriculum.param=gravity",
            "dqn.curriculum.from=5",
            "dqn.curriculum.to=9.8",
            "dqn.curriculum.success_return=15",
            "dqn.curriculum.success_rate=0.3",
            "dqn.curriculum.window=10",
            "dqn.curriculum.mix=0.3",
        ],
    ),
];

#[test]
fn every_algorithm_is_looked_at() {
    for entry in algo::all() {
        assert!(EVERYTHING.iter().any(|(algo, ..)| *algo == entry.name), "{}", entry.name);
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for (algo, env, words) in EVERYTHING {
        let weights = ["threads=1", "threads=2", "threads=4"].map(|threads| {
            let mut algorithm = build(algo, env, &[words, &[threads]].concat()).unwrap();
            let mut report = Report::new(algorithm.metrics().len());
            iterate(algorithm.as_mut(), &mut report, 4);
            // Speeds are the only numbers that may differ.
            let timed = |unit: &str, name: &str| unit.starts_with("1/") || name.starts_with("time/");
            let metrics = algorithm.metrics().iter().zip(&report.values);
            let values = metrics.filter(|(metric, _)| !timed(metric.unit, metric.name)).map(|(_, x)| x.to_bits());
            let values: Vec<_> = values.collect();
            (algorithm.save().unwrap(), values)
        });
        assert!(weights[0] == weights[1] && weights[0] == weights[2], "{algo} {env} {words:?}");
    }
}

#[test]
fn going_on_from_a_save_changes_no_bit() {
    for (algo, env, words) in EVERYTHING {
        let mut straight = build(algo, env, words).unwrap();
        let mut report = Report::new(straight.metrics().len());
        iterate(straight.as_mut(), &mut report, 5);
        let saved = straight.save().unwrap();
        iterate(straight.as_mut(), &mut report, 5);
        let mut resumed = build(algo, env, words).unwrap();
        resumed.load(&saved).unwrap();
        assert_eq!(resumed.steps(), 5 * resumed.steps_per_iteration());
        iterate(resumed.as_mut(), &mut report, 5);
        let (straight, resumed) = (straight.save().unwrap(), resumed.save().unwrap());
        let differ: Vec<&String> = straight.keys().filter(|name| straight.get(*name) != resumed.get(*name)).collect();
        assert!(differ.is_empty() && straight.len() == resumed.len(), "{algo} {env} {words:?}: {differ:?}");
    }
}

#[test]
fn seeds_differ_and_repeat() {
    for entry in algo::all() {
        let weights = |seed: &str| {
            let (algo, env, words) = *EVERYTHING.iter().find(|(algo, ..)| *algo == entry.name).unwrap();
            let mut algorithm = build(algo, env, &[words, &[seed]].concat()).unwrap();
            let mut report = Report::new(algorithm.metrics().len());
            iterate(algorithm.as_mut(), &mut report, 3);
            algorithm.save().unwrap()
        };
        assert!(weights("seed=1") == weights("seed=1") && weights("seed=1") != weights("seed=2"), "{}", entry.name);
    }
}

#[test]
fn shipped_settings_build_and_iterate() {
    for Shipped { algo, env, .. } in CATALOGUE.shipped.iter().filter(|shipped| !shipped.algo.contains('/')) {
        // As shipped but for what makes an iteration long.
        let shorter: &[&str] = match (*algo, *env) {
            ("alphazero", _) => &["alphazero.search.simulations=16", "alphazero.search.leaves=2"],
            (_, "growth") => &["env.train_samples=64", "env.val_samples=16"],
            _ => &[],
        };
        let mut algorithm = build(algo, env, shorter).unwrap();
        let mut report = Report::new(algorithm.metrics().len());
        iterate(algorithm.as_mut(), &mut report, 1);
    }
}

/// What a fault of [`Faulty`] shows itself in.
const REWARD: u32 = 0;
const OBSERVATION: u32 = 1;
/// The observation after the last step before the time limit, which only a truncated episode's last one is.
const LAST: u32 = 2;

params! {
    /// An env by someone else, with a fault in a tenth of its episodes.
    pub struct Faulty {
        /// what is at fault
        place: u32 = 0, 0.0..=2.0, "";
        /// which number it is instead
        kind: u32 = 0, 0.0..=3.0, "";
    }
}

columns! {
    /// Which episode this is, and how old.
    pub struct Age {
        /// drawn
        luck: F,
        /// steps
        steps: I,
    }
}

const LIMIT: u32 = 20;

impl Faulty {
    /// The number at fault in an episode of such luck at this age, or the usual one.
    fn number<L: Lanes>(&self, place: u32, luck: L::F, steps: L::I, usual: f32) -> L::F {
        let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30][self.kind as usize];
        let age = if place == LAST { LIMIT as i32 } else { 7 };
        let broken = luck.lt(if place == self.place { 0.1 } else { -1.0 });
        let fault: L::F = select(steps.eq(age), bad, usual);
        select(broken, fault, usual)
    }
}

impl Env for Faulty {
    type State<L: Lanes> = Age<L>;
    type Obs<L: Lanes> = [L::F; 3];

    fn spec(&self) -> Spec {
        Spec {
            name: "faulty",
            id: "test/Faulty-v0",
            summary: "breaks",
            reference: "this file",
            observation: ["luck", "speed", "room"].map(|name| Channel::new(name, 0.0, 1.0)).to_vec(),
            action: ActionSpace::Discrete(2),
            masked: false,
            time_limit: Some(LIMIT),
            solved_at: None,
            render_fps: 0,
        }
    }

    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> Age<L> {
        Age { luck: rng.uniform(0.0, 1.0), steps: L::I::from(0) }
    }

    fn step<L: Lanes>(&self, s: Age<L>, _: Action<L>, _: &mut Rng<L>) -> Step<L, Age<L>> {
        let steps = s.steps + 1;
        let reward = self.number::<L>(REWARD, s.luck, steps, 1.0);
        Step { state: Age { luck: s.luck, steps }, reward, terminated: s.luck.lt(-1.0) }
    }

    fn observe<L: Lanes>(&self, s: &Age<L>) -> [L::F; 3] {
        [s.luck, self.number::<L>(OBSERVATION, s.luck, s.steps, 0.5), self.number::<L>(LAST, s.luck, s.steps, 0.5)]
    }
}

/// The message that names the first number at fault, as the envs give it when nobody learns from them.
fn first_fault(env: Faulty, num_envs: usize) -> String {
    let unfit = |x: &f32| x.is_nan() || x.abs() > 1e18;
    let mut envs = LaneVec::new(env, &Options::new(num_envs)).unwrap();
    let mut row = RowBuf::new(envs.spec(), num_envs);
    envs.reset(Seeds::One(0), None, row.row());
    for step in 1.. {
        envs.step(Actions::I32(&vec![0; num_envs]), row.row());
        let found = match env.place {
            REWARD => row.reward.iter().position(unfit).map(|i| (i, row.reward[i], "the reward")),
            place => {
                let (j, rows, what) = match place {
                    OBSERVATION => (1, &row.obs, "observation 1 (speed)"),
                    _ => (2, &row.final_obs, "last observation 2 (room)"),
                };
                let at = rows.chunks(3).position(|row| unfit(&row[j]));
                at.map(|i| (i, rows[3 * i + j], what))
            }
        };
        if let Some((i, value, what)) = found {
            return format!(
                "faulty: {what} of env {i} is {value} at step {step}; wanted a finite number of at most 1e18 in size"
            );
        }
    }
    unreachable!()
}

/// A number that nothing can be learned from is named with its env and step, whatever the algorithm makes of it; nobody
/// is told that training diverged.
#[test]
fn unfit_numbers_of_envs_are_named() {
    let cases: [(&str, &[&str]); 6] = [
        ("ppo", &["ppo.num_steps=32", "ppo.minibatch_size=64"]),
        ("ppo", &["ppo.num_steps=8", "ppo.minibatch_size=64", "ppo.normalize_obs=true", "ppo.normalize_reward=true"]),
        ("ppo", &["ppo.num_steps=32", "ppo.minibatch_size=64", "network.memory=lstm", "ppo.popart=true"]),
        ("ppo", &["ppo.num_steps=32", "ppo.minibatch_size=64", "ppo.curiosity=rnd"]),
        ("dqn", &["dqn.learning_starts=80", "dqn.batch_size=256", "dqn.replay_ratio=60", "dqn.buffer_size=4000"]),
        (
            "dqn",
            &[
                "dqn.learning_starts=80",
                "dqn.batch_size=256",
                "dqn.replay_ratio=60",
                "dqn.buffer_size=4000",
                "dqn.normalize_obs=true",
                "dqn.prioritized_replay=true",
                "dqn.loss=mse",
            ],
        ),
    ];
    for (algo, words) in cases {
        for (place, kind) in [(REWARD, 0), (REWARD, 1), (OBSERVATION, 0), (OBSERVATION, 2), (LAST, 0), (OBSERVATION, 3)]
        {
            // An absurd number is finite: not every loss minds it.
            if kind == 3 && !words.iter().any(|word| word.contains("normalize_obs") || word.contains("loss=mse")) {
                continue;
            }
            let env = Faulty { place, kind };
            let mut over = Table::new();
            let small = ["seed=0", "num_envs=16", "network.hidden=[8,8]", "steps=4000"];
            small.iter().chain(words).for_each(|word| config::assign(&mut over, word).unwrap());
            let config = Config::resolve(&CATALOGUE, algo, "cartpole", over).unwrap();
            let pool = build_pool(&config);
            let envs = LaneVec::new(env, &Options { pool: pool.clone(), ..Options::new(16) }).unwrap();
            let folder = std::env::temp_dir().join(format!("operant-unfit-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            let start = Start { folder: folder.clone(), sinks: vec![], started: Instant::now(), at_once: 1 };
            let mut run = Run::start_with(config, Box::new(envs), pool, start).unwrap();
            let Err(error) = run.go(|| false) else { panic!("{algo} {words:?} {env:?} went on") };
            drop(run);
            std::fs::remove_dir_all(&folder).unwrap();
            let Error::Env(text) = error else { panic!("{algo} {words:?} {env:?}: {error}") };
            let wanted = first_fault(env, 16);
            assert!(text.starts_with(&wanted) && !text.contains("learning rate"), "{algo} {words:?}: {text}\n{wanted}");
        }
    }
}
