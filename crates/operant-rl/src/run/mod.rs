//! The hall: builds a run from its settings, loops, reports, saves, resumes, stops.
//!
//! A run is its folder: `run.toml` (resolved settings), `metrics.jsonl`, `events.jsonl`, a TensorBoard file, `live.ring`, `ckpt/`, `final.json`. The loop
//! knows algorithms only as [`Algorithm`], so that each new one finds all of this in place.

mod changed;
mod checkpoint;
mod config;
mod device;
mod eval;
mod folder;
mod history;
mod judge;
mod keys;
mod profile;
mod resume;
mod saving;

pub use checkpoint::{Checkpoints, Mark, pause_writing, replace_file};
pub use config::{CheckpointSettings, Config, EvalSettings, Every, Settings, TelemetrySettings, Until};
pub use device::{check_gpu, decide_device};
pub use eval::{Evaluation, Play, evaluate};
pub use folder::{BATCH, BatchLock, RUN_FILES, check_no_batch, in_use};
pub use history::{Change, forget_changes};
pub use judge::{MakeEnvs, Score};
pub use keys::keys_of;
pub use profile::{Line, Profile};

use crate::algo::{self, Algorithm, Build, Phase, Report};
use judge::Judge;
use operant_base::telemetry::{
    Board, Drops, Episode, EventKind, Jsonl, Metric, RingSink, Rules, Sink, Slot, Tensorboard,
};
use operant_base::{Error, Result};
use operant_device::{self as machine, CpuPool, Device};
use operant_env::{self as env, Spec, VecEnv};
use operant_lanes::{Backend, Math, Width};
use profile::Profiler;
use saving::Saves;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Seconds between looks at the process: CPU time and memory.
const LOOK_S: f64 = 0.5;

/// How a run is shown and where it is kept.
pub struct Start {
    /// The run's folder; must not hold a run yet.
    pub folder: PathBuf,
    /// Where telemetry goes beside the run's own files.
    pub sinks: Vec<Box<dyn Sink>>,
    /// When the program started, from which time is counted.
    pub started: Instant,
    /// How many runs use the device at once, this one among them. What a run learns does not depend on it.
    pub at_once: usize,
}

/// Why a loop ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// All steps were done.
    Finished,
    /// The env counts as solved.
    Solved,
    /// The caller asked for it.
    Stopped,
}

/// What `final.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Whether the env counted as solved at some time.
    pub solved: bool,
    /// Env steps when it first did.
    pub solved_step: Option<u64>,
    /// Seconds from the start of the program until then.
    pub solved_s: Option<f64>,
    /// Mean return over 100 episodes then.
    pub solved_return: Option<f64>,
    /// Whether those were episodes of an evaluation, not the last ones of training.
    #[serde(default)]
    pub solved_evaluated: bool,
    /// Last values of the metrics that people see in place of episodes.
    #[serde(default)]
    pub numbers: BTreeMap<String, f64>,
    /// Env steps.
    pub steps: u64,
    /// Seconds, those before a resume included.
    pub wall_s: f64,
    /// Env steps per second of training.
    pub train_sps: f64,
    /// Env steps per second of CPU time of the process.
    pub sps_per_cpu_s: f64,
    /// Mean return over the last 100 episodes.
    pub mean_return: Option<f64>,
    /// Mean return of 100 episodes with the most probable actions.
    pub eval_return: Option<f64>,
    /// Its standard error.
    #[serde(default)]
    pub eval_error: Option<f64>,
    /// Env steps of evaluations on the way.
    #[serde(default)]
    pub eval_steps: u64,
    /// Episodes that ended.
    pub episodes: u64,
    /// Name of the last checkpoint.
    pub checkpoint: String,
    /// Telemetry that did not arrive.
    pub samples_dropped: u64,
}

/// Slots of the numbers that the loop itself reports.
struct Slots {
    mean_return: Slot,
    length: Slot,
    episodes: Slot,
    sps: Slot,
    collect: Slot,
    learn: Slot,
    other: Slot,
    cpu: Slot,
    rss: Slot,
    eval_return: Slot,
    eval_error: Slot,
    eval_steps: Slot,
    own: Vec<Slot>,
}

const METRICS: [Metric; 12] = [
    Metric::new("return", "mean return over the last 100 episodes", ""),
    Metric::new("length", "mean length over the last 100 episodes", "steps"),
    Metric::new("episodes", "episodes ended", ""),
    Metric::new("sps", "env steps per second since the last sample", "1/s"),
    Metric::new("time/collect", "share of time spent collecting", ""),
    Metric::new("time/learn", "share of time spent learning", ""),
    Metric::new("time/other", "share of time spent on all else", ""),
    Metric::new("cpu", "CPU seconds per second", "cores"),
    Metric::new("rss", "memory of the process", "bytes"),
    Metric::new("eval/return", "mean return of the last evaluation, by the most probable actions", ""),
    Metric::new("eval/error", "standard error of the mean return of the last evaluation", ""),
    Metric::new("eval/steps", "env steps of all evaluations on the way", "steps"),
];

impl Slots {
    fn new(board: &Board, own: &[Metric]) -> Self {
        let slot = |name: &str| board.slot(name).expect("a metric of this board");
        Self {
            mean_return: slot("return"),
            length: slot("length"),
            episodes: slot("episodes"),
            sps: slot("sps"),
            collect: slot("time/collect"),
            learn: slot("time/learn"),
            other: slot("time/other"),
            cpu: slot("cpu"),
            rss: slot("rss"),
            eval_return: slot("eval/return"),
            eval_error: slot("eval/error"),
            eval_steps: slot("eval/steps"),
            own: own.iter().map(|metric| slot(metric.name)).collect(),
        }
    }
}

/// A run under way.
pub struct Run {
    config: Config,
    spec: Spec,
    folder: PathBuf,
    algorithm: Box<dyn Algorithm>,
    report: Report,
    checkpoints: Checkpoints,
    board: Board,
    slots: Slots,
    started: Instant,
    /// CPU seconds of the process before this run: `cargo run` becomes the program it starts, clock and all.
    cpu_at_start: f64,
    /// Seconds and CPU seconds before a resume.
    before: (f64, f64),
    /// When the last iteration ended.
    last: Instant,
    /// Seconds and CPU seconds of the process at the last look at it.
    looked: (f64, f64),
    saves: Saves,
    judge: Judge,
    iterations: u64,
    /// Changes of settings that lie behind.
    changes_passed: usize,
    solved: Option<Solved>,
    /// Steps and seconds from which the speed that is shown is counted.
    paced: (u64, f64),
    profiler: Option<Profiler>,
    profile: Option<Profile>,
    /// Held as long as the run goes on.
    _lock: Lock,
}

/// When an env first counted as solved.
#[derive(Clone, Copy, Debug)]
struct Solved {
    step: u64,
    seconds: f64,
    mean_return: f64,
    /// By episodes of an evaluation.
    evaluated: bool,
}

/// A folder that no other process runs in.
struct Lock {
    _file: std::fs::File,
}

impl Lock {
    fn take(folder: &Path) -> Result<Self> {
        let path = folder.join("run.lock");
        let cannot = |error: std::io::Error| {
            Error::Io(format!("can't make {}: {error}; name a folder that you may write", path.display()))
        };
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(cannot)?;
        match file.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => {
                let folder = folder.display();
                Err(Error::Invalid(format!(
                    "{folder} is in use by a run that goes on; stop that first, or name another folder"
                )))
            }
            // Some file systems have no locks; there the user takes care.
            _ => Ok(Self { _file: file }),
        }
    }
}

/// Seconds over which the speed that is shown is taken.
const PACE_S: f64 = 0.25;
/// What a run that never came to a checkpoint leaves, and a new one in its place begins afresh.
const LEFTOVERS: [&str; 5] = ["run.toml", "metrics.jsonl", "events.jsonl", "live.ring", "final.json"];

/// The envs of a run.
pub fn build_env(config: &Config, pool: &Arc<CpuPool>) -> Result<Box<dyn VecEnv>> {
    build_env_among(config, pool, 1)
}

/// The envs of one of so many runs that use the device at once.
pub fn build_env_among(config: &Config, pool: &Arc<CpuPool>, at_once: usize) -> Result<Box<dyn VecEnv>> {
    config.use_task_data();
    let device = match config.settings.device.as_str() {
        "auto" => Device::Cpu,
        _ if config.stages_envs()? => Device::Cpu,
        name => Device::among(name, at_once)?,
    };
    let options = env::Options {
        device,
        pool: Arc::clone(pool),
        backend: Backend::new(Width::Auto, Math::Strict),
        ..env::Options::new(config.settings.num_envs)
    };
    config.registered()?.build(&config.params(), &options)
}

/// The threads of a run.
pub fn build_pool(config: &Config) -> Arc<CpuPool> {
    let threads = config.settings.threads;
    Arc::new(CpuPool::new(if threads == 0 { machine::threads_available() } else { threads }))
}

/// The algorithm of a run over its envs.
pub fn build_algorithm(config: &Config, mut env: Box<dyn VecEnv>, pool: Arc<CpuPool>) -> Result<Box<dyn Algorithm>> {
    let learns_there = config.learns_on_gpu()? && env.on_gpu().is_none();
    let build = Build {
        gpu: match learns_there.then(|| Device::named(&config.settings.device)).transpose()? {
            Some(Device::Cuda(gpu)) => Some(gpu),
            _ => None,
        },
        env,
        pool,
        seed: config.settings.seed,
        total_steps: config.settings.steps,
        gradient_stride: config.telemetry.gradient_stride,
        precision: config.precision()?,
        network: config.network.clone(),
        settings: config.own.clone(),
    };
    (config.algorithm().build)(build)
}

impl Run {
    /// A new run in a new folder.
    pub fn start(config: Config, start: Start) -> Result<Self> {
        let first = config.at(0)?;
        let pool = build_pool(&first);
        let env = build_env_among(&first, &pool, start.at_once)?;
        Self::start_with(config, env, pool, start)
    }

    /// A new run over envs that the caller built.
    pub fn start_with(config: Config, env: Box<dyn VecEnv>, pool: Arc<CpuPool>, start: Start) -> Result<Self> {
        Self::check_free(&start.folder)?;
        let spec = env.spec().clone();
        let mut config = config;
        // By name, so that the settings give the same weights on another machine.
        config.settings.precision = config.precision()?.name().to_owned();
        if config.settings.device == "auto" {
            config.settings.device = "cpu".into();
        }
        let algorithm = build_algorithm(&config.at(0)?, env, Arc::clone(&pool))?;
        let cannot = |what: &str, path: &Path, error: std::io::Error| {
            Error::Io(format!("can't {what} {}: {error}; name a folder that you may write", path.display()))
        };
        std::fs::create_dir_all(&start.folder).map_err(|error| cannot("make", &start.folder, error))?;
        let lock = Lock::take(&start.folder)?;
        // Again, now that no other process can come between.
        Self::check_free(&start.folder)?;
        for name in LEFTOVERS {
            // Most are not there.
            let _ = std::fs::remove_file(start.folder.join(name));
        }
        replace_file(&start.folder.join("run.toml"), config.to_text().as_bytes())?;
        let mut run = Self::new(config, spec, algorithm, pool, start, lock)?;
        let text = format!("{} on {}", run.config.algo, run.config.env);
        run.board.event(EventKind::Started, 0, text);
        Ok(run)
    }

    fn new(
        config: Config,
        spec: Spec,
        algorithm: Box<dyn Algorithm>,
        pool: Arc<CpuPool>,
        start: Start,
        lock: Lock,
    ) -> Result<Self> {
        let Start { folder, mut sinks, started, .. } = start;
        let own = algorithm.metrics().to_vec();
        let judge = Judge::new(&config.at(algorithm.steps())?, !own.iter().any(|metric| metric.headline), pool)?;
        let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        sinks.push(Box::new(Jsonl::new(&folder)));
        sinks.push(Box::new(Tensorboard::new(&folder)));
        sinks.push(Box::new(RingSink::new(&folder.join("live.ring"), &name, &config.to_text())));
        let mut board = Board::start(METRICS.iter().chain(&own).copied().collect(), sinks);
        let rules = match &spec.action {
            env::ActionSpace::Discrete(n) => Rules::for_choices(&[*n]),
            env::ActionSpace::MultiDiscrete(n) => Rules::for_choices(n),
            env::ActionSpace::Box(channels) => Rules::for_reals(channels.len()),
        };
        board.watch(Rules { goal: spec.solved_at.map(f64::from), ..rules });
        Ok(Self {
            slots: Slots::new(&board, &own),
            report: Report::new(own.len()),
            checkpoints: Checkpoints::new(&folder, config.checkpoint.keep),
            before: (0.0, 0.0),
            last: Instant::now(),
            cpu_at_start: machine::cpu_seconds(),
            looked: (0.0, machine::cpu_seconds()),
            saves: Saves::default(),
            judge,
            iterations: 0,
            changes_passed: config.passed(algorithm.steps()),
            solved: None,
            paced: (0, f64::NEG_INFINITY),
            profiler: None,
            profile: None,
            _lock: lock,
            config,
            spec,
            folder,
            algorithm,
            board,
            started,
        })
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &dyn Algorithm {
        self.algorithm.as_ref()
    }

    /// Goes on with the weights and the normaliser of another policy.
    pub fn adopt(&mut self, policy: &algo::Policy) -> Result<()> {
        self.judge.forget();
        self.algorithm.adopt(policy)
    }

    /// What did not reach a sink so far.
    pub fn drops(&self) -> Drops {
        self.board.drops()
    }

    /// Lets a run that came to an end go on until `steps` env steps; the time since its last iteration does not count.
    pub fn go_on(&mut self, steps: u64) -> Result<()> {
        if steps != self.config.settings.steps {
            self.extend(steps)?;
            replace_file(&self.folder.join("run.toml"), self.config.to_text().as_bytes())?;
        }
        self.started += self.last.elapsed();
        self.last = Instant::now();
        Ok(())
    }

    /// Why the last checkpoint could not be written, if it could not.
    pub fn save_failure(&self) -> Option<&str> {
        self.saves.failure.as_deref()
    }

    /// What the last iteration reported.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Seconds since the program started, those before a resume included.
    pub fn seconds(&self) -> f64 {
        self.before.0 + self.started.elapsed().as_secs_f64()
    }

    /// Looks at where the time of so many iterations goes, those after the next: `trace.json` in the run's folder, and
    /// [`Run::profile`].
    pub fn start_profile(&mut self, iterations: u64) {
        let threads = match self.config.settings.threads {
            0 => machine::threads_available(),
            threads => threads,
        };
        self.profiler = Some(Profiler::start(iterations, threads, &mut *self.algorithm, &mut self.report));
    }

    /// Where the time went, if it was looked at; ends the look.
    pub fn profile(&mut self) -> Option<&Profile> {
        let profiler = self.profiler.as_mut()?;
        if let Some((mut profile, trace)) = profiler.finish(&mut *self.algorithm, &mut self.report) {
            let path = self.folder.join("trace.json");
            let text = match profile.iterations.0 {
                0 => "no trace: the run ended before there was an iteration after the first".to_owned(),
                done => match replace_file(&path, trace.as_bytes()) {
                    Ok(()) => format!("trace.json of {done} iterations"),
                    Err(error) => {
                        profile.failure = Some(error.to_string());
                        format!("no trace: {error}")
                    }
                },
            };
            self.board.event(EventKind::Note, self.algorithm.steps(), text);
            self.profile = Some(profile);
        }
        self.profile.as_ref()
    }

    /// One iteration, with all that is due after it; says whether the run has come to an end.
    pub fn step(&mut self) -> Result<Option<End>> {
        self.follow_changes()?;
        let begun = self.report.spans.begin();
        let steps = self.iterate()?;
        let iterated = self.report.spans.begin();
        let end = self.follow_up(steps)?;
        self.report.spans.end(Phase::Other as usize, iterated);
        self.report.spans.end(Phase::Iteration as usize, begun);
        if let Some(profiler) = &mut self.profiler
            && profiler.iterated(&mut *self.algorithm, &mut self.report)
        {
            self.profile();
        }
        Ok(end)
    }

    /// Has the algorithm iterate; gives the env steps since the run began.
    fn iterate(&mut self) -> Result<u64> {
        if self.iterations == 0 {
            // Results of an end that is no longer one; most runs have none.
            let _ = std::fs::remove_file(self.folder.join("final.json"));
        }
        self.report.begin();
        self.algorithm.iterate(&mut self.report);
        let steps = self.algorithm.steps();
        if let Some(reason) = self.report.failed.take() {
            self.board.event(EventKind::Stopped, steps, reason.as_str());
            return Err(Error::Env(format!("{reason}; {}", self.way_back())));
        }
        self.iterations += 1;
        if let Some(reason) = self.report.diverged.take() {
            self.board.event(EventKind::Diverged, steps, reason.as_str());
            let held = self.checkpoints.list();
            let last =
                held.last().map_or("it came to no checkpoint".into(), |name| format!("last good checkpoint: {name}"));
            return Err(Error::Diverged(format!("{reason} at step {steps}; {last}; lower the learning rate")));
        }
        Ok(steps)
    }

    /// Telemetry, checkpoints, and whether the run is at its end.
    fn follow_up(&mut self, steps: u64) -> Result<Option<End>> {
        self.judge(steps)?;
        self.publish(steps);
        if let Some(note) = self.report.note.take() {
            self.board.event(EventKind::Note, steps, note);
        }
        self.see_whether_solved(steps);
        let end = self.ended();
        if end.is_some() {
            return Ok(end);
        }
        self.save_if_due()?;
        Ok(None)
    }

    /// Notes when the env first counts as solved: by an evaluation or, where there are none, by episodes of training.
    fn see_whether_solved(&mut self, steps: u64) {
        let (evaluated, episodes) = (self.judge.judges(), &self.report.episodes);
        let counts = !evaluated && episodes.is_full() && !self.report.preparing;
        let in_training = || episodes.mean_return() >= self.spec.solved_at.map_or(f64::INFINITY, f64::from);
        let mean_return = match self.judge.take_reached() {
            Some(score) => score.mean,
            None if counts && in_training() => episodes.mean_return(),
            None => return,
        };
        if self.solved.is_none() {
            self.solved = Some(Solved { step: steps, seconds: self.seconds(), mean_return, evaluated });
            let what = if evaluated { "evaluation" } else { "mean return" };
            self.board.event(EventKind::Solved, steps, format!("{what} {mean_return:.1} over 100 episodes"));
        }
    }

    /// The evaluation at the end of a run counts like one on the way.
    fn see_whether_solved_at_last(&mut self, steps: u64, score: Score) {
        let reached = self.spec.solved_at.is_some_and(|at| score.mean >= f64::from(at));
        if self.solved.is_none() && self.judge.judges() && reached {
            let (seconds, mean_return) = (self.seconds(), score.mean);
            self.solved = Some(Solved { step: steps, seconds, mean_return, evaluated: true });
            let text = format!("evaluation {mean_return:.1} over {} episodes", score.episodes);
            self.board.event(EventKind::Solved, steps, text);
        }
    }

    /// Shows the last evaluation, until there is another.
    fn show_evaluation(&mut self) {
        let (standing, slots) = (&self.judge.standing, &self.slots);
        if let Some(score) = standing.score() {
            self.board.set(slots.eval_return, score.mean);
            self.board.set(slots.eval_error, score.error);
            self.board.set(slots.eval_steps, standing.spent as f64);
        }
    }

    /// What the last evaluation on the way came to, and how many env steps all of them took.
    pub fn evaluation(&self) -> Option<(Score, u64)> {
        Some((self.judge.standing.score()?, self.judge.standing.spent))
    }

    /// Why the run is at its end, if it is.
    pub fn ended(&self) -> Option<End> {
        if self.config.settings.until == Until::Solved && self.solved.is_some() {
            return Some(End::Solved);
        }
        (self.algorithm.steps() >= self.config.settings.steps).then_some(End::Finished)
    }

    /// Iterates until the end, or until `stop` says so.
    pub fn go(&mut self, mut stop: impl FnMut() -> bool) -> Result<End> {
        if let Some(end) = self.ended() {
            return Ok(end);
        }
        loop {
            if let Some(end) = self.step()? {
                return Ok(end);
            }
            if stop() {
                return Ok(End::Stopped);
            }
        }
    }

    fn publish(&mut self, steps: u64) {
        self.show_evaluation();
        let plays = self.plays();
        let (board, slots, report) = (&mut self.board, &self.slots, &self.report);
        let now = Instant::now();
        let passed = (now - self.last).as_secs_f64().max(1e-9);
        self.last = now;
        let [collect, learn] = report.seconds.map(|seconds| seconds / passed);
        board.set(slots.mean_return, report.episodes.mean_return());
        board.set(slots.length, report.episodes.mean_length());
        board.set(slots.episodes, if plays { report.episodes.count() as f64 } else { f64::NAN });
        let seconds = self.before.0 + self.started.elapsed().as_secs_f64();
        if seconds - self.paced.1 >= PACE_S {
            let since = if self.paced.1.is_finite() { seconds - self.paced.1 } else { passed };
            let done =
                if self.paced.1.is_finite() { steps - self.paced.0 } else { self.algorithm.steps_per_iteration() };
            board.set(slots.sps, done as f64 / since);
            self.paced = (steps, seconds);
        }
        board.set(slots.collect, collect);
        board.set(slots.learn, learn);
        board.set(slots.other, (1.0 - collect - learn).max(0.0));
        for (slot, value) in slots.own.iter().zip(&report.values) {
            board.set(*slot, *value);
        }
        if seconds - self.looked.0 >= LOOK_S {
            let cpu = machine::cpu_seconds();
            board.set(slots.cpu, (cpu - self.looked.1) / (seconds - self.looked.0));
            board.set(slots.rss, machine::resident_bytes().map_or(f64::NAN, |bytes| bytes as f64));
            self.looked = (seconds, cpu);
        }
        for ended in &report.ended {
            board.episode(Episode {
                step: steps,
                env: u64::from(ended.env),
                episode_return: f64::from(ended.total),
                length: ended.length as u64,
            });
        }
        for (kind, text) in self.report.told.events.drain(..) {
            board.event(kind, steps, text);
        }
        board.sample(steps, seconds);
    }

    fn cpu_seconds(&self) -> f64 {
        self.before.1 + machine::cpu_seconds() - self.cpu_at_start
    }

    /// Saves the last checkpoint, evaluates the policy where the env is in the registry, writes `final.json`.
    pub fn finish(mut self, end: &End) -> Result<(Summary, Drops)> {
        let mut summary = self.conclude(end)?;
        let drops = self.board.finish();
        summary.samples_dropped = drops.samples();
        write_summary(&self.folder, &summary)?;
        Ok((summary, drops))
    }

    /// Last values of the metrics that people see in place of episodes.
    fn numbers(&self) -> BTreeMap<String, f64> {
        let known = self.algorithm.metrics().iter().zip(&self.report.values);
        let known = known.filter(|(metric, value)| metric.headline && value.is_finite());
        known.map(|(metric, value)| (metric.name.to_owned(), *value)).collect()
    }

    /// What [`Run::finish`] does, for a run that may go on.
    pub fn conclude(&mut self, end: &End) -> Result<Summary> {
        let steps = self.algorithm.steps();
        let (wall_s, cpu_s) = (self.seconds(), self.cpu_seconds());
        let checkpoint = self.save_last()?;
        let kind = if *end == End::Stopped { EventKind::Stopped } else { EventKind::Finished };
        self.board.event(kind, steps, format!("{steps} steps in {wall_s:.1} s"));
        let score = match end {
            End::Stopped => None,
            _ => self.judge_last()?,
        };
        if let Some(score) = score {
            self.settle_best(&checkpoint, score)?;
            let solved_before = self.solved.is_some();
            self.see_whether_solved_at_last(steps, score);
            if self.solved.is_some() && !solved_before {
                self.save_again(&checkpoint);
            }
        }
        let episodes = &self.report.episodes;
        let summary = Summary {
            numbers: self.numbers(),
            solved: self.solved.is_some(),
            solved_step: self.solved.map(|solved| solved.step),
            solved_s: self.solved.map(|solved| solved.seconds),
            solved_return: self.solved.map(|solved| solved.mean_return),
            steps,
            // With the evaluation that found the env solved, if that came at the end.
            wall_s: self.solved.map_or(wall_s, |solved| wall_s.max(solved.seconds)),
            train_sps: steps as f64 / wall_s,
            sps_per_cpu_s: steps as f64 / cpu_s.max(1e-9),
            mean_return: (episodes.count() > 0).then(|| episodes.mean_return()),
            solved_evaluated: self.solved.is_some_and(|solved| solved.evaluated),
            eval_return: score.map(|score| score.mean),
            eval_error: score.map(|score| score.error),
            eval_steps: self.judge.standing.spent,
            episodes: episodes.count(),
            checkpoint,
            samples_dropped: self.board.drops().samples(),
        };
        write_summary(&self.folder, &summary)?;
        Ok(summary)
    }
}

fn write_summary(folder: &Path, summary: &Summary) -> Result<()> {
    let text = serde_json::to_vec_pretty(summary).expect("numbers are JSON");
    replace_file(&folder.join("final.json"), &text)
}
