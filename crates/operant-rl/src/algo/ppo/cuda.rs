//! PPO on a GPU: what is the same whatever the network. Small networks are run by the kernels that step the envs and learn
//! (`cuda/fused.rs`), others layer by layer (`cuda/wide.rs`), and what is no stack of layers by plans (`cuda/planned.rs`); the latter two
//! also learn from envs that the host steps (`cuda/staged.rs`).
//!
//! An iteration copies a few hundred numbers to the host. What it learns is what [`Ppo`](super::Ppo) learns, with other random
//! numbers, its own products and statistics of observations that are merged per launch; checkpoints of the two are the same.

mod buffers;
mod fused;
mod normalise;
mod planned;
mod playing;
mod shape;
mod staged;
mod wide;

pub use planned::planned_source;
pub use shape::Part;

use super::super::policy::{Head, Policy};
use super::super::saved::load_env;
use super::super::{Algorithm, Build, Ended, GpuSetting, Parts, Report, part};
use super::{METRICS, OptimizerName, REWARD_LIMIT, Reported, Settings, State, from_bits, not_finite, read, to_bits};
use crate::algo::{Curiosity, NetworkSettings, OBS_LIMIT};
use crate::data::{ReturnScale, Running, Shuffle};
use buffers::{Buffers, FinishedPointers, RolloutPointers};
use fused::{Fused, TILE};
use normalise::{Normaliser, NormaliserPointers};
use operant_base::telemetry::Metric;
use operant_base::{Error, Result};
use operant_device::cuda::{Blas, Buffer, DevicePtr, Event, Gpu, Kernel, Module, Params as KernelParams};
use operant_env::Unfit;
use operant_env::{
    self as env, AutoReset, CudaVec, EnvsPointers, RowBuf, Seeds, Spec, TOTALS_WORDS, Told, VecEnv, emit,
};
use operant_lanes::{Backend, Math};
use operant_nn::nets::{Architecture, Image};
use operant_nn::{Act, Metadata, Optimizer, Params, Plan, Precision, Schedule};
use planned::{Planned, PlannedShape};
use shape::Shape;
use std::sync::Arc;
use std::time::Instant;
use wide::{Wide, WideShape};

/// Most epochs, and epochs times minibatches, of one iteration.
const MAX_EPOCHS: usize = 16;
const MAX_UPDATES: usize = 256;
/// Of so many iterations, one has its parts timed.
const TIMED_EVERY: u32 = 16;
/// Numbers of a minibatch's statistics.
const STATISTICS: usize = 8;
/// Envs whose last episodes the host hears of.
const TOLD: usize = 128;
/// The part of a checkpoint that holds a rollout which was played before it and is learned from after it.
const PLAYED: &str = "rollout.bin";
/// Decay of the mean of squared gradients.
const BETA2: f32 = 0.999;

#[derive(Clone, Copy)]
#[repr(C)]
struct EstimateArgs {
    rollout: RolloutPointers,
    finished: FinishedPointers,
    standing: DevicePtr,
    envs: u32,
    steps: u32,
    gamma: f32,
    lambda: f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct TellArgs {
    envs: EnvsPointers,
    finished: FinishedPointers,
    report: DevicePtr,
    standing: DevicePtr,
    told: DevicePtr,
    turn: u32,
    unused: u32,
}

/// What texts of all networks are compiled for, as `#define`s.
fn defines(settings: &Settings) -> [(&'static str, usize); 12] {
    [
        ("COLLECTING", Part::Collecting as usize),
        ("LEARNING", Part::Learning as usize),
        ("TOLD", TOLD),
        ("STATISTICS", STATISTICS),
        ("MAX_EPOCHS", MAX_EPOCHS),
        ("ESTIMATE_BYTES", size_of::<EstimateArgs>()),
        ("TELL_BYTES", size_of::<TellArgs>()),
        ("MERGE_BYTES", size_of::<normalise::MergeArgs>()),
        ("NORMALISE_OBS", usize::from(settings.normalize_obs)),
        ("NORMALISE_REWARD", usize::from(settings.normalize_reward)),
        ("OBS_LIMIT", OBS_LIMIT as usize),
        ("REWARD_LIMIT", REWARD_LIMIT as usize),
    ]
}

impl KernelParams for EstimateArgs {}
impl KernelParams for TellArgs {}

/// Kernels that do not ask for the network.
struct Kernels {
    estimate: Kernel<EstimateArgs>,
    tell: Kernel<TellArgs>,
}

/// What an iteration is given.
#[derive(Clone, Copy)]
struct Now<'a> {
    settings: &'a Settings,
    envs: EnvsPointers,
    num_envs: usize,
    rollout: RolloutPointers,
    finished: FinishedPointers,
    normaliser: &'a Normaliser,
    report: DevicePtr,
    seed: u64,
    iteration: u32,
    updates: u64,
    learning_rate: f32,
    factors: [f32; 2],
    beta1: f32,
}

impl Now<'_> {
    fn samples(&self) -> usize {
        self.num_envs * self.settings.num_steps
    }

    fn minibatches(&self) -> usize {
        self.samples() / self.settings.minibatch_size
    }

    fn clip(&self) -> f32 {
        self.settings.clip_coef as f32 * self.factors[0]
    }

    fn entropy(&self) -> f32 {
        self.settings.ent_coef as f32 * self.factors[1]
    }

    /// Steps of Adam so far, up to far beyond where the corrections of its moments are 1.
    fn adam_step(&self) -> u32 {
        self.updates.min(1 << 30) as u32
    }

    /// The order of samples, in tiles, of each epoch.
    fn orders(&self) -> [[u32; 12]; MAX_EPOCHS] {
        let mut orders = [[0; 12]; MAX_EPOCHS];
        for (epoch, order) in orders.iter_mut().enumerate().take(self.settings.update_epochs as usize) {
            *order = Shuffle::new(self.samples() / TILE, self.seed, self.iteration, epoch as u32).words();
        }
        orders
    }
}

/// A network on the GPU that acts and learns. Work is queued, not waited for.
trait Learner: Send {
    /// Sets parameters and Adam's moments.
    fn send(&mut self, params: &[f32], moments: [&[f32]; 2]) -> Result<()>;
    fn fetch_params(&self, to: &mut [f32]) -> Result<()>;
    fn fetch_moments(&self, to: [&mut [f32]; 2]) -> Result<()>;
    /// Plays T steps and values what was seen, by the weights that [`renew`](Self::renew) set. Waits where the host steps the envs.
    fn collect(&mut self, now: &Now<'_>, env: &mut dyn VecEnv) -> Result<()>;
    /// Has rollouts from now on be played by the weights as they are now, where that is not so anyway.
    fn renew(&mut self) -> Result<()>;
    /// Learns from the rollout, whose advantages are known.
    fn learn(&mut self, now: &Now<'_>) -> Result<()>;
    /// What the network remembers of all envs, as a checkpoint holds it; nothing where it has no memory.
    fn memory(&self) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
    /// Goes on from as many numbers as [`memory`](Self::memory) gives.
    fn set_memory(&mut self, _: &[f32]) -> Result<()> {
        Ok(())
    }
}

/// What plays the next rollout while this one is learned from.
struct Beside {
    /// The stream that it is played in.
    gpu: Arc<Gpu>,
    marks: [Event; 2],
    /// Whether the rollout that is learned from next has been played.
    played: bool,
}

/// A run of PPO on a GPU.
pub(super) struct PpoCuda {
    settings: Settings,
    seed: u64,
    total_steps: u64,
    gpu: Arc<Gpu>,
    env: Box<dyn VecEnv>,
    /// What ended in envs that the host steps; those of the GPU count for themselves.
    totals: Option<Buffer<u64>>,
    /// [`METRICS`], and what envs tell.
    metrics: Vec<Metric>,
    architecture: Architecture,
    head: Head,
    num_envs: usize,
    learner: Box<dyn Learner>,
    kernels: Kernels,
    buffers: Buffers,
    normaliser: Normaliser,
    /// The layout; values as they were when they were last fetched.
    params: Params,
    optimizer: Optimizer,
    schedule: Schedule,
    marks: [Event; 3],
    /// Shares of collecting and learning in the last iteration that was timed.
    shares: [f64; 2],
    /// Of the last report that was waited for; a checkpoint does not set it back.
    turn: u32,
    beside: Option<Beside>,
    iteration: u32,
    /// Steps of the optimiser so far.
    updates: u64,
    told: Vec<f32>,
    /// Episodes of the told envs that were heard of.
    heard: Vec<u32>,
    /// Episodes of all envs that were heard of, modulo 2³².
    ended: u32,
    /// What is worth an event once.
    note: Option<String>,
}

/// The kernels that train an env with such a network, as CUDA C, or why there are none.
pub fn cuda_source(
    entry: &env::Entry,
    network: &NetworkSettings,
    settings: &Settings,
    num_envs: usize,
    precision: Precision,
    part: Part,
) -> Result<String> {
    let spec = entry.spec();
    let architecture = network.architecture(&spec, None)?;
    let params = architecture.build()?.graph.params(0)?;
    match part {
        Part::Wide | Part::Hosted => {
            let hosted = part == Part::Hosted;
            let text = if hosted { emit::hosted_source(&spec) } else { env_source(entry)? };
            let shape = WideShape::new(&architecture, &spec, precision).map_err(|what| unserved(&what))?;
            Ok(shape.source(&text, hosted, &shape.layout(&params)?, settings))
        }
        part => {
            let text = env_source(entry)?;
            let shape = Shape::new(&architecture, &spec, num_envs, precision).map_err(|what| unserved(&what))?;
            shape.source(&text, &params, settings, part)
        }
    }
}

/// The env's functions, as CUDA C.
fn env_source(entry: &env::Entry) -> Result<String> {
    let spec = entry.spec();
    let shape = emit::Shape { time_limit: spec.time_limit, autoreset: AutoReset::SameStep, block: 64 };
    entry.cuda_source(&[], &shape)?.ok_or_else(|| unserved(&format!("env {}", spec.name)))
}

/// Which kernels a network has.
enum Path {
    Fused(Shape),
    Wide(WideShape),
    Planned(PlannedShape),
}

impl Path {
    /// The fastest that serves, and in words if another would have without want of a block's shared memory.
    fn choose(
        architecture: &Architecture,
        spec: &Spec,
        num_envs: usize,
        precision: Precision,
        settings: &Settings,
        hosted: bool,
        shared_bytes: Option<usize>,
    ) -> Result<(Self, Option<String>)> {
        let mut note = None;
        if hosted && settings.overlap {
            return Err(unserved("ppo.overlap = true with envs that the CPU steps"));
        }
        if !hosted && let Ok(shape) = Shape::new(architecture, spec, num_envs, precision) {
            let (asked, has) = (shape.learn_shared().max(shape.collect_shared()), shared_bytes.unwrap_or(usize::MAX));
            if asked <= has {
                return Ok((Self::Fused(shape), None));
            }
            note = Some(format!(
                "kernels that hold the network in {} want {} KB of shared memory per block, this GPU has {}: it is run layer by layer",
                precision.name(),
                asked.div_ceil(1024),
                has / 1024
            ));
        }
        let Ok(shape) = WideShape::new(architecture, spec, precision) else {
            let shape = PlannedShape::new(architecture, spec, settings, precision, hosted)?;
            let note = shape.note(precision);
            return Ok((Self::Planned(shape), note));
        };
        Blas::available()?;
        Ok((Self::Wide(shape), note))
    }
}

/// Whether there are kernels for an env, a network and settings, or what of them has none.
pub fn check_cuda(setting: &GpuSetting<'_>) -> Result<()> {
    let &GpuSetting { env, num_envs, hosted, network, precision, .. } = setting;
    let settings = read(setting.settings)?;
    settings.check(num_envs)?;
    check(&settings, num_envs)?;
    if !hosted {
        env_source(env)?;
    }
    let spec = env.spec();
    let architecture = network.architecture(&spec, None)?;
    Path::choose(&architecture, &spec, num_envs, precision, &settings, hosted, None).map(drop)
}

fn unserved(what: &str) -> Error {
    Error::Invalid(format!("{what} has no kernel for a GPU yet; change it, or run with --device cpu"))
}

/// What of the settings the kernels do not serve.
fn check(settings: &Settings, num_envs: usize) -> Result<()> {
    let unserved_keys = [
        ("popart = true", settings.popart),
        ("curiosity", settings.curiosity != Curiosity::None),
        ("target_kl", settings.target_kl > 0.0),
        ("optimizer = \"muon\"", settings.optimizer != OptimizerName::Adam),
        ("first_logits", settings.first_logits.iter().any(|logit| *logit != 0.0)),
        ("ent_floors", settings.ent_floors.iter().any(|floor| *floor > 0.0)),
        ("prob_floors", settings.prob_floors.iter().any(|floor| *floor > 0.0)),
        ("value_warmup", settings.value_warmup > 0),
        ("adv_std_floor", settings.adv_std_floor > 0.0),
    ];
    if let Some((key, _)) = unserved_keys.iter().find(|(_, set)| *set) {
        return Err(unserved(&format!("ppo.{key}")));
    }
    if !num_envs.is_multiple_of(TILE) || !settings.minibatch_size.is_multiple_of(TILE) {
        return Err(Error::Invalid(format!(
            "num_envs = {num_envs}, ppo.minibatch_size = {}: on a GPU both are multiples of {TILE}",
            settings.minibatch_size
        )));
    }
    let rows = num_envs.saturating_mul(settings.num_steps + 1);
    if rows > u32::MAX as usize {
        return Err(Error::Invalid(format!(
            "num_envs*(ppo.num_steps + 1) = {rows}: on a GPU wanted fewer than 2^32 observations; lower one of them"
        )));
    }
    let epochs = settings.update_epochs as usize;
    let updates = epochs * (num_envs * settings.num_steps / settings.minibatch_size);
    if epochs > MAX_EPOCHS || updates > MAX_UPDATES {
        return Err(Error::Invalid(format!(
            "ppo.update_epochs = {epochs} and {updates} minibatches in an iteration: on a GPU at most {MAX_EPOCHS} and {MAX_UPDATES}; \
             raise ppo.minibatch_size"
        )));
    }
    Ok(())
}

impl PpoCuda {
    /// Builds everything that the run will ever allocate, and resets the envs.
    pub(super) fn new(build: Build) -> Result<Self> {
        let Build { mut env, gpu, seed, total_steps, precision, network, settings, .. } = build;
        let settings = read(&settings)?;
        let (spec, n) = (env.spec().clone(), env.num_envs());
        settings.check(n)?;
        check(&settings, n)?;
        // Running statistics bring bytes to size too.
        let image = env.image().map(|image| Image { bytes: image.bytes && !settings.normalize_obs, ..image });
        let architecture = network.architecture(&spec, image)?;
        let (net, head) = (architecture.build()?, Head::new(&spec));
        let params = net.graph.params(seed)?;
        let resident = env.on_gpu().map(|envs| Arc::clone(envs.gpu()));
        let hosted = resident.is_none();
        let Some(gpu) = resident.or(gpu) else { return Err(Error::Invalid("PPO on a GPU without a GPU".into())) };
        let (major, minor) = gpu.info().capability;
        if major < 8 {
            return Err(unserved(&format!("compute capability {major}.{minor}, below 8.0,")));
        }
        let shared_bytes = Some(gpu.info().shared_bytes);
        let (path, note) = Path::choose(&architecture, &spec, n, precision, &settings, hosted, shared_bytes)?;
        let beside = match settings.overlap {
            true => {
                let gpu = gpu.second_stream()?;
                Some(Beside { marks: [Event::new(&gpu)?, Event::new(&gpu)?], gpu, played: false })
            }
            false => None,
        };
        let obs = spec.observation.len();
        let widths = [obs, head.dims(), spec.legal_width()];
        let buffers = Buffers::new(&gpu, 1 + usize::from(settings.overlap), widths, n, settings.num_steps)?;
        let (learner, module, warps): (Box<dyn Learner>, _, _) = match path {
            Path::Fused(shape) => {
                let Some(envs) = env.on_gpu() else { return Err(Error::Invalid("envs that are not on a GPU".into())) };
                let warps = shape.collect_warps(n);
                let collector = beside.as_ref().map(|beside| &beside.gpu);
                let (fused, module) = Fused::new(envs, shape, &params, &settings, collector)?;
                (Box::new(fused), module, warps)
            }
            Path::Wide(shape) => {
                let collector = beside.as_ref().map(|beside| &beside.gpu);
                let (wide, module) = Wide::new(&gpu, &mut *env, shape, &params, &settings, collector)?;
                (Box::new(wide), module, if hosted { staged::warps(&*env) } else { n.div_ceil(32) })
            }
            Path::Planned(shape) => {
                let (planned, module) = Planned::new(&gpu, &mut *env, &shape, &params, &settings, &buffers)?;
                (Box::new(planned), module, Planned::warps(&shape, &settings, n))
            }
        };
        let kernels = Kernels { estimate: module.kernel("estimate")?, tell: module.on(&gpu).kernel("tell")? };
        let normaliser = Normaliser::new(&gpu, &module, &settings, obs, [n, warps])?;
        let max_norm = (settings.max_grad_norm > 0.0).then_some(settings.max_grad_norm as f32);
        let rate = settings.learning_rate as f32;
        let mut ppo = Self {
            buffers,
            optimizer: Optimizer::new(settings.method(), &params, max_norm, Backend::fast())?,
            schedule: if settings.anneal_lr {
                Schedule::Linear { from: rate, to: 0.0 }
            } else {
                Schedule::Constant(rate)
            },
            marks: [Event::new(&gpu)?, Event::new(&gpu)?, Event::new(&gpu)?],
            shares: [0.0; 2],
            turn: 0,
            totals: match hosted {
                true => Some(Buffer::new(&gpu, TOTALS_WORDS, "episode statistics", "num_envs")?),
                false => None,
            },
            metrics: METRICS.to_vec(),
            gpu,
            beside,
            iteration: 0,
            updates: 0,
            told: vec![0.0; STATISTICS + 3 * TOLD + 4],
            heard: vec![0; TOLD],
            ended: 0,
            note,
            settings,
            seed,
            total_steps,
            env,
            architecture,
            head,
            num_envs: n,
            learner,
            kernels,
            normaliser,
            params,
        };
        let mut row = RowBuf::new(&spec, n);
        ppo.env.reset(Seeds::One(seed), None, row.row());
        let mut seen = Running::new(obs);
        seen.update(&row.obs);
        ppo.normaliser.set(ppo.settings.normalize_obs.then_some(&seen), None)?;
        ppo.buffers.clear()?;
        let mut told = Told::default();
        ppo.env.take_told(&mut told);
        ppo.metrics.extend(told.names().map(|name| Metric::new(name, "told by envs: mean of an iteration", "")));
        ppo.send()?;
        Ok(ppo)
    }

    fn samples(&self) -> usize {
        self.num_envs * self.settings.num_steps
    }

    /// Sends parameters and moments to the GPU.
    fn send(&mut self) -> Result<()> {
        self.learner.send(self.params.values(), self.optimizer.moments())
    }

    fn fetched_params(&self) -> Result<Params> {
        let mut params = self.params.clone();
        self.learner.fetch_params(params.values_mut())?;
        Ok(params)
    }

    fn fetched_policy(&self) -> Result<Policy> {
        Ok(Policy {
            architecture: self.architecture.clone(),
            head: self.head.clone(),
            params: self.fetched_params()?,
            normaliser: self.normaliser.observations()?,
        })
    }

    /// The optimiser as the GPU has it.
    fn fetched_optimizer(&self) -> Result<Optimizer> {
        let mut optimizer = self.optimizer.clone();
        let len = self.params.len();
        let (mut mean, mut square) = (vec![0.0; len], vec![0.0; len]);
        self.learner.fetch_moments([&mut mean, &mut square])?;
        optimizer.set_moments([&mean, &square], self.updates);
        Ok(optimizer)
    }

    fn minibatches(&self) -> usize {
        self.samples() / self.settings.minibatch_size
    }

    /// Queues an iteration, waits for it and fetches what is told.
    fn run(&mut self, learning_rate: f32, factors: [f32; 2]) -> Result<[f64; 2]> {
        self.run_with(learning_rate, factors, 0.9)
    }

    /// [`run`](Self::run) with another decay of the mean of gradients.
    fn run_with(&mut self, learning_rate: f32, factors: [f32; 2], beta1: f32) -> Result<[f64; 2]> {
        let started = Instant::now();
        let resident = self.env.on_gpu().map(|envs| envs.pointers());
        let totals = self.totals.as_ref().map_or(DevicePtr::NONE, Buffer::pointer);
        let envs = resident.unwrap_or_else(|| EnvsPointers::hosted(self.num_envs, totals));
        let (buffers, settings, marks) = (&self.buffers, &self.settings, &self.marks);
        let (finished, report) = (buffers.finished(), buffers.report.pointer());
        let now = Now {
            settings,
            envs,
            num_envs: self.num_envs,
            rollout: buffers.rollout(self.iteration).pointers(),
            finished,
            normaliser: &self.normaliser,
            report,
            seed: self.seed,
            iteration: self.iteration,
            updates: self.updates,
            learning_rate,
            factors,
            beta1,
        };
        let standing = buffers.standing.pointer();
        let estimate = |now: &Now<'_>| {
            let n = now.num_envs as u32;
            let (gamma, lambda) = (settings.gamma as f32, settings.gae_lambda as f32);
            let (rollout, steps) = (now.rollout, settings.num_steps as u32);
            let args = EstimateArgs { rollout, finished, standing, envs: n, steps, gamma, lambda };
            self.kernels.estimate.launch_early(n.div_ceil(64), 64, &args)
        };
        // Marks keep the work behind them from starting early.
        let timed = self.shares == [0.0; 2] || self.iteration.is_multiple_of(TIMED_EVERY);
        let mark = |event: &Event| if timed { event.record() } else { Ok(()) };
        match &mut self.beside {
            None => {
                mark(&marks[0])?;
                self.learner.collect(&now, &mut *self.env)?;
                estimate(&now)?;
                mark(&marks[1])?;
                self.learner.learn(&now)?;
            }
            Some(beside) => {
                if !beside.played {
                    self.learner.collect(&now, &mut *self.env)?;
                    estimate(&now)?;
                    beside.gpu.synchronize()?;
                    beside.played = true;
                }
                // Learning first: what it leaves of the GPU is for the next rollout.
                mark(&marks[1])?;
                self.learner.learn(&now)?;
                mark(&beside.marks[0])?;
                let rollout = buffers.rollout(self.iteration.wrapping_add(1)).pointers();
                let next = Now { rollout, iteration: self.iteration.wrapping_add(1), ..now };
                self.learner.collect(&next, &mut *self.env)?;
                estimate(&next)?;
                beside.marks[1].precede(&self.gpu)?;
                self.learner.renew()?;
            }
        }
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        let tell = TellArgs { envs, finished, report, standing, told: buffers.told.pointer(), turn, unused: 0 };
        self.kernels.tell.launch_early(1, TOLD as u32, &tell)?;
        mark(&marks[2])?;
        buffers.told.wait_for(STATISTICS + 3 * TOLD + 3, |told| told.to_bits() == turn)?;
        buffers.told.read(&mut self.told);
        if timed {
            let collecting = match &self.beside {
                None => marks[1].seconds_since(&marks[0])?,
                Some(beside) => beside.marks[1].seconds_since(&beside.marks[0])?,
            };
            let seconds = [collecting, marks[2].seconds_since(&marks[1])?];
            self.shares = seconds.map(|seconds| seconds / started.elapsed().as_secs_f64());
        }
        Ok(self.shares.map(|share| share * started.elapsed().as_secs_f64()))
    }

    /// What the envs gave in the iteration before this one that nothing can be learned from. If the rollout can't be read, nothing is known of it.
    fn unfit(&self) -> Option<Unfit> {
        let last = self.iteration.wrapping_sub(1);
        let before = u64::from(last) * self.settings.num_steps as u64;
        self.buffers.rollout(last).unfit(self.num_envs, self.head.continuous(), before).ok().flatten()
    }

    /// Passes on what was told.
    fn report(&mut self, learning_rate: f32, report: &mut Report) {
        report.note = self.note.take().or(report.note.take());
        let (numbers, envs) = self.told.split_at(STATISTICS);
        let mut set = |metric: Reported, x: f32| report.values[metric as usize] = f64::from(x);
        set(Reported::PolicyLoss, numbers[0]);
        set(Reported::ValueLoss, numbers[1]);
        set(Reported::Entropy, numbers[2]);
        set(Reported::ApproxKl, numbers[4]);
        set(Reported::ClipFraction, numbers[5]);
        set(Reported::GradNorm, numbers[6]);
        set(Reported::LearningRate, learning_rate);
        set(Reported::Epochs, self.settings.update_epochs as f32);
        if numbers[..7].iter().any(|x| !x.is_finite()) {
            let what = not_finite(&std::array::from_fn(|i| f64::from(numbers[i])));
            match self.unfit() {
                Some(unfit) => report.failed = Some(self.env.spec().complaint(&unfit)),
                None => report.diverged = Some(what),
            }
        }
        let all_ended = envs[3 * TOLD + 1].to_bits() as usize == self.num_envs;
        report.last_returns = if all_ended { f64::from(envs[3 * TOLD + 2]) } else { f64::NAN };
        let ended = envs[3 * TOLD].to_bits();
        let mut untold = ended.wrapping_sub(self.ended);
        self.ended = ended;
        for (env, heard) in self.heard.iter_mut().enumerate().take(self.num_envs) {
            let count = envs[2 * TOLD + env].to_bits();
            if count != *heard {
                *heard = count;
                let (total, length) = (envs[env], envs[TOLD + env].to_bits() as i32);
                report.episode(Ended { env: env as u32, total, length });
                untold = untold.saturating_sub(1);
            }
        }
        report.episodes.count_untold(u64::from(untold));
    }
}

impl Algorithm for PpoCuda {
    fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    fn iterate(&mut self, report: &mut Report) {
        let steps = self.steps();
        let learning_rate = self.schedule.at(steps, self.total_steps);
        let factors = self.settings.factors(steps, self.total_steps);
        match self.run(learning_rate, factors) {
            Ok(seconds) => {
                report.seconds = seconds;
                self.iteration += 1;
                self.updates += u64::from(self.settings.update_epochs) * self.minibatches() as u64;
                self.report(learning_rate, report);
                self.env.take_told(&mut report.told);
                let told = report.values[METRICS.len()..].iter_mut();
                told.zip(report.told.take_means()).for_each(|(to, mean)| *to = mean);
            }
            Err(error) => report.failed = Some(error.to_string()),
        }
    }

    fn plans(&mut self) -> Vec<(&'static str, &mut Plan)> {
        Vec::new()
    }

    fn steps(&self) -> u64 {
        u64::from(self.iteration) * self.samples() as u64
    }

    fn steps_per_iteration(&self) -> u64 {
        self.samples() as u64
    }

    fn set_total_steps(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
    }

    fn adopt(&mut self, policy: &Policy) -> Result<()> {
        policy.check_like(&self.architecture, &self.head, self.settings.normalize_obs)?;
        self.optimizer = self.fetched_optimizer()?;
        self.params.from_bytes(&policy.params.to_bytes(&Metadata::new()))?;
        self.normaliser.set(policy.normaliser.as_ref(), None)?;
        self.send()
    }

    fn policy(&self) -> Result<Policy> {
        self.fetched_policy()
    }

    fn save(&self) -> Result<Parts> {
        let state = State {
            iteration: self.iteration,
            obs_normaliser: self.normaliser.observations()?.map(|x| to_bits(x.to_numbers())),
            return_scale: self.normaliser.returns()?.map(to_bits),
            ..State::default()
        };
        let mut parts = Parts::from([
            ("policy.safetensors".into(), self.fetched_policy()?.to_bytes()),
            ("optimizer.safetensors".into(), self.fetched_optimizer()?.to_bytes()),
            ("env.bin".into(), self.env.save()),
            ("memory.bin".into(), self.learner.memory()?.into_iter().flat_map(f32::to_le_bytes).collect()),
            ("ppo.json".into(), serde_json::to_vec(&state).expect("numbers are JSON")),
        ]);
        if self.beside.as_ref().is_some_and(|beside| beside.played) {
            parts.insert(PLAYED.into(), self.buffers.rollout(self.iteration).save()?);
        }
        Ok(parts)
    }

    fn load(&mut self, parts: &Parts) -> Result<()> {
        let damaged = |what: &str| Error::Saved(format!("checkpoint's {what} does not fit this run; take another"));
        let state: State = serde_json::from_slice(part(parts, "ppo.json")?).map_err(|_| damaged("ppo.json"))?;
        self.params.from_bytes(part(parts, "policy.safetensors")?)?;
        self.optimizer.from_bytes(part(parts, "optimizer.safetensors")?)?;
        let (seed, steps) = (self.seed, u64::from(state.iteration) * self.samples() as u64);
        let goes_on = load_env(&mut *self.env, parts, seed, steps)?;
        let seen = |bits: Vec<u64>| Running::from_numbers(&from_bits(&bits), self.architecture.inputs());
        let observations = match self.settings.normalize_obs {
            true => Some(state.obs_normaliser.and_then(seen).ok_or_else(|| damaged("obs_normaliser"))?),
            false => None,
        };
        let scale = |bits: Vec<u64>| ReturnScale::from_numbers(&from_bits(&bits), self.num_envs);
        let mut returns = match self.settings.normalize_reward {
            true => Some(state.return_scale.and_then(scale).ok_or_else(|| damaged("return_scale"))?),
            false => None,
        };
        let memory = part(parts, "memory.bin")?.as_chunks::<4>().0;
        let mut memory: Vec<f32> = memory.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        if memory.len() != self.learner.memory()?.len() {
            return Err(damaged("memory.bin"));
        }
        if !goes_on {
            memory.fill(0.0);
            returns.iter_mut().for_each(ReturnScale::forget);
        }
        self.learner.set_memory(&memory)?;
        let returns = returns.as_ref().map(ReturnScale::to_numbers);
        self.normaliser.set(observations.as_ref(), returns.as_deref())?;
        (self.iteration, self.updates) = (state.iteration, self.optimizer.steps());
        if let Some(beside) = &mut self.beside {
            let played = parts.get(PLAYED);
            played.map_or(Ok(()), |bytes| self.buffers.rollout(self.iteration).load(bytes))?;
            beside.played = played.is_some();
        }
        self.buffers.clear()?;
        self.heard.fill(0);
        self.env.on_gpu().map(|envs| envs.take_totals()).transpose()?;
        self.totals.as_ref().map_or(Ok(()), Buffer::zero)?;
        self.ended = 0;
        self.send()
    }
}

#[cfg(test)]
#[path = "cuda_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "planned_tests.rs"]
mod planned_tests;
