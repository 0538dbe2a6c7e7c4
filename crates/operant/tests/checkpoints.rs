//! Runs with their checkpoints: going on from an older one, cut off at any moment, and evaluations that name the best.

use operant::CATALOGUE;
use operant::algo::{Parts, Policy};
use operant::config::{self, Table};
use operant::env::{Actions, Canvas, Param, Row, Seeds, Spec, VecEnv};
use operant::lanes::Column;
use operant::run::{Checkpoints, Config, End, Every, Mark, Play, Run, Start, Summary, build_env, build_pool, evaluate};
use std::fs;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("operant-checkpoints-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn names(steps: &[u64]) -> Vec<String> {
    steps.iter().map(|step| format!("step-{step:012}")).collect()
}

/// A run with checkpoints at 10, 20, 30 and 40, and one of an earlier branch aside.
fn run(name: &str) -> (PathBuf, Checkpoints) {
    let run = folder(name);
    let checkpoints = Checkpoints::new(&run, 9);
    for step in [10, 20, 30, 40] {
        let mark = Mark { mean_return: Some(step as f64), is_best: true, ..Mark::default() };
        checkpoints.save(step, mark, &Parts::from([("a.bin".into(), vec![step as u8])])).unwrap();
    }
    fs::create_dir_all(run.join("ckpt/aside").join(&names(&[50])[0])).unwrap();
    (run, checkpoints)
}

fn aside(run: &std::path::Path) -> Vec<String> {
    let entries = run.join("ckpt/aside").read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_move_that_fails_half_way_leaves_the_chosen_one_newest() {
    let (run, checkpoints) = run("half");
    let in_the_way = run.join("ckpt/aside.new").join(&names(&[40])[0]);
    fs::create_dir_all(in_the_way.join("full")).unwrap();
    checkpoints.set_aside_after(&names(&[20])[0]).unwrap_err();
    assert!(!checkpoints.path(&names(&[30])[0]).exists() && checkpoints.path(&names(&[40])[0]).exists());
    assert_eq!(checkpoints.list(), names(&[10, 20]));
    assert_eq!(checkpoints.pick(None).unwrap(), names(&[20])[0]);
    assert!(checkpoints.pick(Some("best")).unwrap_err().to_string().contains("has no best"));
    fs::remove_dir_all(in_the_way).unwrap();
    checkpoints.recover().unwrap();
    assert_eq!((checkpoints.list(), aside(&run)), (names(&[10, 20]), names(&[30, 40])));
    // From now on later ones count again.
    checkpoints.save(30, Mark::default(), &Parts::new()).unwrap();
    assert_eq!(checkpoints.pick(None).unwrap(), names(&[30])[0]);
    fs::remove_dir_all(run).unwrap();
}

/// States that a kill leaves: before the first move, between two, before the old branch goes, after it went, at the end.
#[test]
fn a_kill_at_any_moment_leaves_one_branch() {
    for moment in 0..5 {
        let (run, checkpoints) = run(&format!("kill-{moment}"));
        let ckpt = run.join("ckpt");
        fs::write(ckpt.join("branch"), &names(&[20])[0]).unwrap();
        let move_one = |step| {
            let name = &names(&[step])[0];
            fs::create_dir_all(ckpt.join("aside.new")).unwrap();
            fs::rename(ckpt.join(name), ckpt.join("aside.new").join(name)).unwrap();
        };
        (moment >= 1).then(|| move_one(30));
        (moment >= 2).then(|| move_one(40));
        if moment >= 3 {
            fs::remove_dir_all(ckpt.join("aside")).unwrap();
        }
        if moment >= 4 {
            fs::rename(ckpt.join("aside.new"), ckpt.join("aside")).unwrap();
        }
        assert_eq!(checkpoints.pick(None).unwrap(), names(&[20])[0], "moment {moment}");
        checkpoints.recover().unwrap();
        assert_eq!((checkpoints.list(), aside(&run)), (names(&[10, 20]), names(&[30, 40])), "moment {moment}");
        assert!(!ckpt.join("branch").exists() && !ckpt.join("aside.new").exists());
        checkpoints.recover().unwrap();
        assert_eq!(checkpoints.mend_best().and_then(|mark| mark.mean_return), Some(20.0));
        fs::remove_dir_all(run).unwrap();
    }
}

/// Who asks whether a run is over does not read its replay.
#[test]
fn one_part_is_read_without_the_others() {
    let run = folder("part");
    let checkpoints = Checkpoints::new(&run, 9);
    let parts = Parts::from([("run.json".into(), b"{}".to_vec()), ("replay.bin".into(), vec![7; 100])]);
    let name = checkpoints.save(1, Mark::default(), &parts).unwrap();
    let replay = checkpoints.path(&name).join("replay.bin");
    fs::write(&replay, [8; 100]).unwrap();
    assert_eq!(checkpoints.load_part(&name, "run.json").unwrap(), b"{}");
    assert!(checkpoints.load(&name).unwrap_err().to_string().contains("is damaged: replay.bin has another checksum"));
    fs::write(&replay, [7; 50]).unwrap();
    let message = checkpoints.load_part(&name, "run.json").unwrap_err().to_string();
    assert!(message.contains("replay.bin has 50 bytes, wanted 100"), "{message}");
    fs::write(&replay, [7; 100]).unwrap();
    assert!(checkpoints.load_part(&name, "run.toml").unwrap_err().to_string().contains("it has no run.toml"));
    fs::write(checkpoints.path(&name).join("run.json"), "[]").unwrap();
    assert!(checkpoints.load_part(&name, "run.json").unwrap_err().to_string().contains("another checksum"));
    fs::remove_dir_all(run).unwrap();
}

/// Envs that are not what they seem.
struct Odd {
    envs: Box<dyn VecEnv>,
    /// Steps that their device still does.
    left: usize,
    /// Whether every episode reports a return of 1.
    flatters: bool,
}

impl VecEnv for Odd {
    fn spec(&self) -> &Spec {
        self.envs.spec()
    }
    fn num_envs(&self) -> usize {
        self.envs.num_envs()
    }
    fn reset(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>, out: Row<'_>) {
        self.envs.reset(seeds, which, out);
    }
    fn step(&mut self, actions: Actions<'_>, out: Row<'_>) {
        self.left = self.left.saturating_sub(1);
        let row = Row {
            obs: &mut *out.obs,
            reward: &mut *out.reward,
            terminated: &mut *out.terminated,
            truncated: &mut *out.truncated,
            final_obs: &mut *out.final_obs,
            episode_return: &mut *out.episode_return,
            episode_length: &mut *out.episode_length,
            legal: &mut *out.legal,
        };
        self.envs.step(actions, row);
        if self.flatters {
            out.episode_return.fill(1.0);
        }
    }
    fn failure(&self) -> Option<String> {
        (self.left == 0).then(|| "cuda cannot finish its work: an illegal memory access".into())
    }
    fn observe(&self, out: Row<'_>) {
        self.envs.observe(out);
    }
    fn columns(&self) -> &[Column] {
        self.envs.columns()
    }
    fn read(&self, column: usize, out: &mut [i32]) {
        self.envs.read(column, out);
    }
    fn write(&mut self, columns: &[(usize, &[i32])]) -> operant::Result<()> {
        self.envs.write(columns)
    }
    fn save(&self) -> Vec<u8> {
        self.envs.save()
    }
    fn load(&mut self, bytes: &[u8]) -> operant::Result<()> {
        self.envs.load(bytes)
    }
    fn draw(&self, env: usize) -> Option<Canvas> {
        self.envs.draw(env)
    }
    fn params(&self) -> Vec<Param> {
        self.envs.params()
    }
    fn set_param(&mut self, name: &str, value: f64) -> operant::Result<()> {
        self.envs.set_param(name, value)
    }
}

#[test]
fn a_fault_says_what_is_kept_and_how_to_go_on() {
    let over = config::parse("steps = 1024\ndevice = \"cpu\"", "test").unwrap();
    let settings = Config::resolve(&CATALOGUE, "ppo", "cartpole", over).unwrap();
    // Steps of one iteration.
    let iteration = 16;
    for (left, comes_to_one) in [(iteration / 2, false), (iteration + iteration / 2, true)] {
        let run = folder(&format!("fault-{left}"));
        let start = || Start { folder: run.clone(), sinks: vec![], started: std::time::Instant::now(), at_once: 1 };
        let pool = build_pool(&settings);
        let envs = Odd { envs: build_env(&settings, &pool).unwrap(), left, flatters: false };
        let mut stopped = Run::start_with(settings.clone(), Box::new(envs), pool, start()).unwrap();
        let message = stopped.go(|| false).unwrap_err().to_string();
        drop(stopped);
        let fault = "cuda cannot finish its work: an illegal memory access; ";
        if !comes_to_one {
            assert_eq!(message, format!("{fault}the run came to no checkpoint: start it again"));
            fs::remove_dir_all(run).unwrap();
            continue;
        }
        let kept = run.join("ckpt").join(&names(&[256])[0]);
        let next = format!("{} is kept: operant train --resume {} goes on from there", kept.display(), run.display());
        assert_eq!(message, format!("{fault}{next}"));
        // And it does.
        Run::resume(&CATALOGUE, None, start()).unwrap().go(|| false).unwrap();
        fs::remove_dir_all(run).unwrap();
    }
}

fn start(run: &Path) -> Start {
    Start { folder: run.to_owned(), sinks: vec![], started: std::time::Instant::now(), at_once: 1 }
}

fn settings(env: &str, words: &[&str]) -> Config {
    let mut over = Table::new();
    words.iter().for_each(|word| config::assign(&mut over, word).unwrap());
    config::assign(&mut over, "device=cpu").unwrap();
    Config::resolve(&CATALOGUE, "ppo", env, over).unwrap()
}

/// A run whose training plays other envs than its settings say, and so than its evaluations play.
fn run_in(name: &str, settings: &Config, envs: Box<dyn VecEnv>) -> (PathBuf, End, Summary) {
    let (folder, pool) = (folder(name), build_pool(settings));
    let mut run = Run::start_with(settings.clone(), envs, pool, start(&folder)).unwrap();
    let end = run.go(|| false).unwrap();
    let summary = run.finish(&end).unwrap().0;
    (folder, end, summary)
}

fn envs_of(settings: &Config) -> Box<dyn VecEnv> {
    build_env(settings, &build_pool(settings)).unwrap()
}

fn events(run: &Path) -> String {
    fs::read_to_string(run.join("events.jsonl")).unwrap()
}

/// Small iterations of small networks on an env with short episodes.
const SMALL: [&str; 6] = [
    "num_envs=8",
    "network.hidden=[8]",
    "ppo.num_steps=32",
    "ppo.minibatch_size=128",
    "ppo.update_epochs=1",
    "threads=1",
];

/// Training that ends its episodes early has good returns whatever it learns; the env itself is not solved.
#[test]
fn returns_of_training_alone_do_not_solve_an_env() {
    let words = [&SMALL[..], &["steps=16384"]].concat();
    let settings_by = |every: &str| settings("mountaincar", &[&words[..], &[every]].concat());
    let easy = settings("mountaincar", &[&words[..], &["env.time_limit=50"]].concat());
    let (run, end, summary) = run_in("returns-alone", &settings_by("eval.every=0"), envs_of(&easy));
    assert_eq!((end, summary.solved, summary.solved_evaluated), (End::Solved, true, false));
    assert_eq!((summary.solved_return, summary.eval_steps), (Some(-50.0), 0));
    assert!(!events(&run).contains("evaluation"), "{}", events(&run));
    fs::remove_dir_all(&run).unwrap();
    let (run, end, summary) = run_in("returns-evaluated", &settings_by("eval.every=auto"), envs_of(&easy));
    assert_eq!((end, summary.solved, summary.mean_return), (End::Finished, false, Some(-50.0)));
    assert!(events(&run).contains("over 10 episodes is below the goal of -110; training goes on"), "{}", events(&run));
    // Checks that failed come ever more seldom.
    let checks = events(&run).matches("is below the goal").count();
    assert!((4..=8).contains(&checks), "{checks}: {}", events(&run));
    assert_eq!(summary.eval_steps % 2000, 0);
    fs::remove_dir_all(&run).unwrap();
}

#[test]
fn an_lstm_that_cannot_have_learned_has_not_solved_the_memory_probe() {
    for (every, wanted) in [("eval.every=0", End::Solved), ("eval.every=auto", End::Finished)] {
        let words = ["network.memory=lstm", "network.memory_size=8", "network.hidden=[8]", "threads=1", "steps=2048"];
        let config = settings("probe_memory", &[&words[..], &["ppo.learning_rate=1e-9", every]].concat());
        let envs = Odd { envs: envs_of(&config), left: usize::MAX, flatters: true };
        let (run, end, summary) = run_in("memory", &config, Box::new(envs));
        assert_eq!((summary.solved, summary.mean_return), (end == End::Solved, Some(1.0)));
        assert_eq!(end, wanted, "{every}");
        assert!(summary.eval_return.unwrap() < 0.8, "{summary:?}");
        fs::remove_dir_all(&run).unwrap();
    }
}

/// The episodes at the goal are those that `solved` names, and time until then includes them.
#[test]
fn an_env_is_solved_by_an_evaluation_of_100_episodes() {
    let words = [&SMALL[..], &["steps=200000", "ppo.learning_rate=0.01"]].concat();
    let config = settings("probe_identity", &words);
    let (run, end, summary) = run_in("solved", &config, envs_of(&config));
    assert_eq!((end, summary.solved_evaluated), (End::Solved, true));
    assert!(summary.solved_return.unwrap() >= 0.99, "{summary:?}");
    assert_eq!(summary.solved_return, summary.eval_return, "the last evaluation is not played again");
    assert!(summary.solved_s.unwrap() <= summary.wall_s && summary.solved_step == Some(summary.steps));
    assert_eq!(Checkpoints::new(&run, 9).best(), Some(summary.checkpoint));
    fs::remove_dir_all(&run).unwrap();
}

/// A run that ends before any evaluation was due is judged by the one at its end.
#[test]
fn the_evaluation_at_the_end_counts() {
    let config = settings("probe_truncation", &[&SMALL[..], &["steps=512"]].concat());
    let (run, _, summary) = run_in("at-the-end", &config, envs_of(&config));
    assert_eq!((summary.solved_evaluated, summary.solved_return, summary.eval_steps), (true, Some(10.0), 0));
    assert_eq!((summary.solved, summary.solved_step), (true, Some(512)));
    let config = settings("probe_truncation", &[&SMALL[..], &["steps=512", "eval.every=0"]].concat());
    let (other, _, summary) = run_in("without", &config, envs_of(&config));
    assert_eq!((summary.solved, summary.eval_return), (false, Some(10.0)));
    [run, other].into_iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
}

/// What the evaluation at the end has shown still holds when the run goes on: when the env was solved, and which is the best.
#[test]
fn the_evaluation_at_the_end_counts_after_a_resume() {
    let steps = |steps: &str| {
        let mut over = Table::new();
        config::assign(&mut over, steps).unwrap();
        over
    };
    let config = settings("probe_truncation", &[&SMALL[..], &["steps=512", "until=steps"]].concat());
    let (folder, _, summary) = run_in("solved-at-the-end", &config, envs_of(&config));
    assert_eq!(summary.solved_step, Some(512));
    let mut run = Run::resume_with(&CATALOGUE, None, steps("steps=1024"), start(&folder)).unwrap();
    let end = run.go(|| false).unwrap();
    assert_eq!(run.finish(&end).unwrap().0.solved_step, Some(512));
    assert_eq!(events(&folder).matches("\"solved\"").count(), 1, "{}", events(&folder));
    fs::remove_dir_all(&folder).unwrap();

    let words = ["steps=512", "until=steps", "eval.every=1000000", "checkpoint.every=1"];
    let config = settings("cartpole", &[&SMALL[..], &words].concat());
    let (folder, _, summary) = run_in("best-at-the-end", &config, envs_of(&config));
    let mut run = Run::resume_with(&CATALOGUE, None, steps("steps=8192"), start(&folder)).unwrap();
    run.go(|| false).unwrap();
    let best = Checkpoints::new(&folder, 9).mend_best().unwrap();
    assert_eq!(best.evaluation.map(|score| score.mean), summary.eval_return, "returns of training took its place");
    drop(run);
    fs::remove_dir_all(&folder).unwrap();
}

/// What a run learned and what its evaluations came to.
type Learned = (Vec<u8>, Option<(f64, f64, u64)>);

fn learned(run: &Run) -> Learned {
    let shown = run.evaluation().map(|(score, steps)| (score.mean, score.error, steps));
    (run.algorithm().policy().unwrap().to_bytes(), shown)
}

fn trained(name: &str, config: Config) -> Learned {
    let folder = folder(name);
    let mut run = Run::start(config, start(&folder)).unwrap();
    run.go(|| false).unwrap();
    let learned = learned(&run);
    drop(run);
    fs::remove_dir_all(folder).unwrap();
    learned
}

#[test]
fn evaluations_change_no_bit_of_training_and_have_the_same_for_any_threads() {
    for (algo, memory) in [("ppo", "none"), ("ppo", "lstm"), ("dqn", "none")] {
        let config = |every: u64, threads: &str| {
            let mut over = Table::new();
            let own = if algo == "dqn" {
                ["dqn.num_steps=8", "dqn.learning_starts=100"]
            } else {
                ["ppo.normalize_obs=true", "ppo.num_steps=16"]
            };
            let memory = [format!("network.memory={memory}"), "network.hidden=[8]".into()];
            let words = ["steps=800", "until=steps", "device=cpu", "eval.episodes=2", threads, own[0], own[1]];
            words.iter().for_each(|word| config::assign(&mut over, word).unwrap());
            memory.iter().for_each(|word| config::assign(&mut over, word).unwrap());
            let mut config = Config::resolve(&CATALOGUE, algo, "cartpole", over).unwrap();
            config.eval.every = Every::Steps(every);
            config
        };
        let (weights, none) = trained("bits", config(0, "threads=1"));
        assert_eq!(none, None);
        let (evaluated, shown) = trained("bits", config(200, "threads=1"));
        assert!(weights == evaluated, "{algo} {memory}");
        assert!(shown.is_some_and(|(.., steps)| steps > 0));
        assert!((weights, shown) == trained("bits", config(200, "threads=3")), "{algo} {memory}");
    }
}

/// Evaluations by the steps of training come where they would have come, and to the same.
#[test]
fn a_resumed_run_is_evaluated_like_one_left_alone() {
    for every in ["eval.every=auto", "eval.every=1000"] {
        let words = ["steps=6144", "until=steps", "eval.episodes=2", every];
        let config = settings("cartpole", &[&SMALL[..], &words].concat());
        let whole = trained("alone", config.clone());
        let folder = folder("resumed");
        let mut run = Run::start(config, start(&folder)).unwrap();
        for _ in 0..13 {
            run.step().unwrap();
        }
        run.save().unwrap();
        let before = run.evaluation();
        drop(run);
        let mut run = Run::resume(&CATALOGUE, None, start(&folder)).unwrap();
        assert_eq!(run.evaluation(), before);
        run.go(|| false).unwrap();
        assert!(learned(&run) == whole, "{every}: {:?} and {:?}", learned(&run).1, whole.1);
        assert!(before.is_some() && (every == "eval.every=auto" || run.evaluation() != before));
        drop(run);
        goes_on_without_a_standing(&folder);
        fs::remove_dir_all(folder).unwrap();
    }
}

/// A checkpoint of a time without evaluations goes on too.
fn goes_on_without_a_standing(folder: &Path) {
    let checkpoints = Checkpoints::new(folder, 9);
    let name = checkpoints.pick(None).unwrap();
    let mut parts = checkpoints.load(&name).unwrap();
    let mut kept: serde_json::Value = serde_json::from_slice(&parts["run.json"]).unwrap();
    kept.as_object_mut().unwrap().retain(|key, _| key != "eval" && key != "solved_evaluated");
    parts.insert("run.json".into(), serde_json::to_vec(&kept).unwrap());
    checkpoints.save(Checkpoints::steps_of(&name), Mark::default(), &parts).unwrap();
    assert_eq!(Run::resume(&CATALOGUE, None, start(folder)).unwrap().evaluation(), None);
}

/// Steps so large that the policy gets worse again: `best` holds what an evaluation of it says, and is no worse than the last.
#[test]
fn the_best_is_no_worse_than_the_last_by_the_same_episodes() {
    for seed in 1..=3 {
        let words = [
            "until=steps",
            "steps=12288",
            "ppo.learning_rate=0.05",
            "ppo.anneal_lr=false",
            "checkpoint.improved_s=1000",
        ];
        let seed_word = format!("seed={seed}");
        let config = settings("cartpole", &[&SMALL[..], &words, &[&seed_word]].concat());
        let (run, _, summary) = run_in(&format!("best-{seed}"), &config, envs_of(&config));
        let play = Play { episodes: 100, seed, deterministic: true, ..Play::default() };
        let checkpoints = Checkpoints::new(&run, 9);
        let mean = |name: &str| {
            let bytes = checkpoints.load_part(&checkpoints.pick(Some(name)).unwrap(), "policy.safetensors").unwrap();
            let policy = Policy::from_bytes(&bytes).unwrap();
            evaluate(&policy, operant::env::find("cartpole").unwrap(), &[], &play, None).unwrap().mean()
        };
        let (best, last) = (mean("best"), mean("last"));
        assert!(best >= last, "{best} and {last}");
        assert_eq!(summary.eval_return, Some(last));
        assert_eq!(checkpoints.mend_best().unwrap().evaluation.unwrap().mean, best);
        // All evaluations on the way, but for the last, take at most 3 % of the steps.
        assert!(summary.eval_steps <= summary.steps * 3 / 100 + 10 * 500, "{}", summary.eval_steps);
        fs::remove_dir_all(&run).unwrap();
    }
}

/// What was trained is kept and told also where the envs of an evaluation are refused, as they are where memory has no room for them.
#[test]
fn an_evaluation_that_cannot_be_made_costs_no_run() {
    for every in ["eval.every=0", "eval.every=256"] {
        let mut config = settings("cartpole", &[&SMALL[..], &["steps=1024", "until=steps", every]].concat());
        let envs = envs_of(&config);
        config.env_params.push(("gravity".into(), -1.0));
        let (run, end, summary) = run_in("no-evaluation", &config, envs);
        assert_eq!((end, summary.steps, summary.eval_return), (End::Finished, 1024, None));
        assert!(summary.mean_return.is_some() && run.join("final.json").is_file(), "{summary:?}");
        assert_eq!(Checkpoints::new(&run, 9).pick(None).unwrap(), summary.checkpoint);
        let events = events(&run);
        assert!(events.contains("no evaluation at the end: ") && events.contains("gravity"), "{events}");
        let on_the_way = "best and solved follow returns of training, since there are no evaluations: ";
        assert_eq!(events.matches(on_the_way).count(), usize::from(every != "eval.every=0"), "{events}");
        fs::remove_dir_all(&run).unwrap();
    }
}

/// A run that is over and lost its results has them again, also where they are numbers of the last iteration.
#[test]
fn lost_results_come_back() {
    let algorithms: [(&str, &str, &[&str]); 4] = [
        ("davi", "cube2", &["network.hidden=[32]", "davi.batch_size=64", "steps=640"]),
        ("td", "backgammon", &["network.hidden=[16]", "num_envs=96", "td.turns=24", "steps=4608"]),
        (
            "alphazero",
            "connect4",
            &[
                "num_envs=40",
                "network.hidden=[16]",
                "alphazero.search.simulations=16",
                "alphazero.search.leaves=2",
                "alphazero.moves=24",
                "alphazero.learning_starts=100",
                "alphazero.batch_size=48",
                "steps=1920",
            ],
        ),
        ("ppo", "probe_truncation", &["steps=512"]),
    ];
    for (algo, env, words) in algorithms {
        let mut over = Table::new();
        words.iter().chain(&["threads=1", "device=cpu"]).for_each(|word| config::assign(&mut over, word).unwrap());
        let folder = folder(&format!("lost-{algo}"));
        let mut run = Run::start(Config::resolve(&CATALOGUE, algo, env, over).unwrap(), start(&folder)).unwrap();
        let end = run.go(|| false).unwrap();
        let whole = run.finish(&end).unwrap().0;
        assert!(algo == "ppo" || !whole.numbers.is_empty(), "{algo}: {whole:?}");
        let checkpoints = Checkpoints::new(&folder, 9);
        let best =
            |checkpoints: &Checkpoints| (checkpoints.best(), checkpoints.mend_best().map(|mark| mark.mean_return));
        let named = best(&checkpoints);
        fs::remove_file(folder.join("final.json")).unwrap();
        let mut run = Run::resume(&CATALOGUE, None, start(&folder)).unwrap();
        let end = run.go(|| false).unwrap();
        let again = run.finish(&end).unwrap().0;
        let kept: Summary = serde_json::from_slice(&fs::read(folder.join("final.json")).unwrap()).unwrap();
        assert_eq!(kept, again);
        let timed =
            Summary { wall_s: whole.wall_s, train_sps: whole.train_sps, sps_per_cpu_s: whole.sps_per_cpu_s, ..again };
        assert_eq!(timed, whole, "{algo}");
        assert_eq!(best(&checkpoints), named, "{algo}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
