//! Algorithms: each one file that reads from top to bottom. The loop in `run` knows them only as
//! [`Algorithm`].

mod curiosity;
mod curriculum;
pub mod dqn;
mod gradients;
mod phase;
mod policy;
mod policy_cuda;
mod popart;
pub mod ppo;
mod saved;
mod scratch;
mod train_and_step;

pub use train_and_step::{first_bad_op, train_and_step};

pub use curiosity::Curiosity;
pub use curriculum::Settings as CurriculumSettings;
pub use phase::Phase;
pub use policy::{ActionsMut, Actor, EncoderName, Head, MemoryName, NetworkSettings, OBS_LIMIT, Policy, normaliser_of};
pub use policy_cuda::GpuActor;

use crate::data::Episodes;
use operant_base::config::Table;
use operant_base::telemetry::Metric;
use operant_base::{Error, Result};
use operant_device::cuda::Gpu;
use operant_device::{CpuPool, Spans};
use operant_env::{self as env, Told, VecEnv};
use operant_nn::{Plan, Precision};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An episode that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// Number of the env.
    pub env: u32,
    /// Undiscounted return.
    pub total: f32,
    /// Steps.
    pub length: i32,
}

/// What an iteration tells the loop. Kept from one to the next, so that nothing is allocated.
#[derive(Clone, Debug)]
pub struct Report {
    /// Values of [`Algorithm::metrics`], in their order; NaN for what is not known this time.
    pub values: Vec<f64>,
    /// Episodes that ended in this iteration; those beyond the capacity are counted in `episodes` only.
    pub ended: Vec<Ended>,
    /// What envs told in this iteration.
    pub told: Told,
    /// The last episodes of the run.
    pub episodes: Episodes,
    /// The mean of the last returns of all envs; NaN unless each has one and the algorithm knows them.
    pub last_returns: f64,
    /// The envs are still easier than the run asks for: nothing counts as solved or best.
    pub preparing: bool,
    /// What the best checkpoint is chosen by where no episodes are played, if it is known this time; the larger the better.
    pub score: Option<f64>,
    /// What is worth an event.
    pub note: Option<String>,
    /// Seconds spent collecting and learning.
    pub seconds: [f64; 2],
    /// Seconds of collecting that envs took.
    pub env_seconds: f64,
    /// Phases of the main thread, when they are timed.
    pub spans: Spans,
    /// The metric that was not finite, if training can't go on.
    pub diverged: Option<String>,
    /// Why the envs could not be stepped, if they could not: nothing was learned in this iteration.
    pub failed: Option<String>,
}

/// Most episodes of one iteration that are shown one by one.
const SHOWN_EPISODES: usize = 1024;

impl Report {
    /// For an algorithm of so many metrics.
    pub fn new(metrics: usize) -> Self {
        Self {
            values: vec![f64::NAN; metrics],
            ended: Vec::with_capacity(SHOWN_EPISODES),
            told: Told::default(),
            episodes: Episodes::default(),
            last_returns: f64::NAN,
            preparing: false,
            score: None,
            note: None,
            seconds: [0.0; 2],
            env_seconds: 0.0,
            spans: Spans::new(Phase::ALL.len()),
            diverged: None,
            failed: None,
        }
    }

    /// Forgets the last iteration, not the last episodes.
    pub fn begin(&mut self) {
        self.values.fill(f64::NAN);
        self.ended.clear();
        self.told.clear();
        (self.seconds, self.env_seconds, self.score) = ([0.0; 2], 0.0, None);
    }

    /// Notes an episode.
    pub fn episode(&mut self, ended: Ended) {
        self.episodes.push(ended.total, ended.length);
        if self.ended.len() < self.ended.capacity() {
            self.ended.push(ended);
        }
    }
}

/// Named parts of a checkpoint, each the bytes of a file.
pub type Parts = BTreeMap<String, Vec<u8>>;

/// The part of this name, or a message that it is missing.
pub fn part<'a>(parts: &'a Parts, name: &str) -> Result<&'a [u8]> {
    parts.get(name).map(Vec::as_slice).ok_or_else(|| {
        let held: Vec<&str> = parts.keys().map(String::as_str).collect();
        Error::Saved(format!("checkpoint has no {name}, only {}; take another", held.join(", ")))
    })
}

/// An algorithm with its envs, network and memory: all that a run consists of but the loop.
pub trait Algorithm: Send {
    /// What it reports.
    fn metrics(&self) -> &[Metric];
    /// One round of collecting and learning. Allocates nothing.
    fn iterate(&mut self, report: &mut Report);
    /// Plans whose steps a profile shows, with what each is for.
    fn plans(&mut self) -> Vec<(&'static str, &mut Plan)>;
    /// Env steps so far.
    fn steps(&self) -> u64;
    /// Env steps of one iteration.
    fn steps_per_iteration(&self) -> u64;
    /// Changes the env steps of the whole run, over which schedules go.
    fn set_total_steps(&mut self, total_steps: u64);
    /// Goes on with the weights and the normaliser of another policy; the optimiser stays as it is.
    fn adopt(&mut self, policy: &Policy) -> Result<()>;
    /// The policy as it is now, for evaluation; [`Error::Invalid`] if it learns none.
    fn policy(&self) -> Result<Policy>;
    /// Everything needed to go on exactly from here; the part `policy.safetensors` is a policy's file, if it learns one.
    fn save(&self) -> Result<Parts>;
    /// Goes on from [`Algorithm::save`]. On an error the algorithm must not be used.
    fn load(&mut self, parts: &Parts) -> Result<()>;
}

/// What an algorithm is built from.
pub struct Build {
    /// The envs.
    pub env: Box<dyn VecEnv>,
    /// Where an algorithm learns whose envs the CPU steps, if not there too.
    pub gpu: Option<Arc<Gpu>>,
    /// Threads.
    pub pool: Arc<CpuPool>,
    /// Seed of everything.
    pub seed: u64,
    /// Env steps of the whole run, over which schedules go.
    pub total_steps: u64,
    /// Iterations between looks at the gradient of each tensor; 0 for none.
    pub gradient_stride: u32,
    /// What products read.
    pub precision: Precision,
    /// `[network]`.
    pub network: NetworkSettings,
    /// The algorithm's own table.
    pub settings: Table,
}

/// An algorithm that can be named on a command line.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name, and that of its table in a config.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Its table with every key.
    pub defaults: fn() -> Table,
    /// Reads its table in full, for messages and for the resolved config.
    pub resolve: fn(&Table) -> Result<Table>,
    /// Keys of its table that a run may change on the way; the others shape what a checkpoint holds.
    pub may_change: &'static [&'static str],
    /// Whether what it learns depends on the env steps of the whole run, as schedules over them have it.
    pub has_schedules: fn(&Table) -> bool,
    /// Builds it.
    pub build: fn(Build) -> Result<Box<dyn Algorithm>>,
    /// Python's class of it.
    pub class: &'static str,
    /// Whether a GPU has kernels for it in such a setting, or what of that has none; nothing if there are none at all.
    pub check_gpu: Option<fn(&GpuSetting<'_>) -> Result<()>>,
}

/// What an algorithm would learn from on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct GpuSetting<'a> {
    /// The env.
    pub env: &'a env::Entry,
    /// How many of it.
    pub num_envs: usize,
    /// Whether the CPU steps them.
    pub hosted: bool,
    /// `[network]`.
    pub network: &'a NetworkSettings,
    /// The algorithm's own table.
    pub settings: &'a Table,
    /// What products read.
    pub precision: Precision,
}

/// Algorithms for any env.
pub static ALGORITHMS: &[Entry] = &[ppo::ENTRY, dqn::ENTRY];
