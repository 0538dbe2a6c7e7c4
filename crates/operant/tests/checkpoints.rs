//! Checkpoints of a run that goes on from an older one, cut off at any moment.

use operant::algo::Parts;
use operant::config;
use operant::env::{Actions, Canvas, Param, Row, Seeds, Spec, VecEnv};
use operant::lanes::Column;
use operant::run::{Checkpoints, Config, Mark, Run, Start, build_env, build_pool};
use std::fs;
use std::path::PathBuf;

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
        let mark = Mark { mean_return: Some(step as f64), is_best: true, synced: false };
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
        assert_eq!(checkpoints.mend_best(), Some(20.0));
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

/// Envs whose device fails.
struct Failing {
    envs: Box<dyn VecEnv>,
    /// Steps that it still does.
    left: usize,
}

impl VecEnv for Failing {
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
        self.envs.step(actions, out);
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
    let settings = Config::resolve("ppo", "cartpole", over).unwrap();
    // Steps of one iteration.
    let iteration = 16;
    for (left, comes_to_one) in [(iteration / 2, false), (iteration + iteration / 2, true)] {
        let run = folder(&format!("fault-{left}"));
        let start = || Start { folder: run.clone(), sinks: vec![], started: std::time::Instant::now(), at_once: 1 };
        let pool = build_pool(&settings);
        let envs = Failing { envs: build_env(&settings, &pool).unwrap(), left };
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
        Run::resume(None, start()).unwrap().go(|| false).unwrap();
        fs::remove_dir_all(run).unwrap();
    }
}
