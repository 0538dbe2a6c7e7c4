//! PPO wholly on a GPU, for envs over lanes and small networks: the kernels of `collect.cu` and `learn.cu` after those of
//! the env, with products in bf16 (`bf16.cu`), tf32, or three tf32 products for one of f32 (`tf32.cu`).
//!
//! An iteration is six launches (more while statistics of observations are young) and one copy of a few hundred numbers to
//! the host. What it learns is what [`Ppo`](super::Ppo) learns, with other random numbers, its own products and statistics that
//! are merged per launch; checkpoints of the two are the same.

mod normalise;
mod shape;

pub use shape::Part;

use super::super::policy::{Head, Policy};
use super::super::{Algorithm, Build, Ended, Parts, Report, part};
use super::{METRICS, OptimizerName, Reported, Settings, State, from_bits, not_finite, read, to_bits};
use crate::algo::{Curiosity, NetworkSettings};
use crate::config::Table;
use crate::data::{Running, Shuffle};
use crate::device::cuda::{Buffer, DevicePtr, Event, Gpu, HostBuffer, Kernel, Params as KernelParams};
use crate::env::{self, AutoReset, EnvsPointers, RowBuf, Seeds, Spec, VecEnv, emit};
use crate::error::{Error, Result};
use crate::lanes::{Backend, Math};
use crate::nn::nets::Architecture;
use crate::nn::{Act, Metadata, Optimizer, Params, Plan, Precision, Schedule};
use crate::telemetry::Metric;
use normalise::{Normaliser, NormaliserPointers};
use shape::Shape;
use std::sync::Arc;

/// Samples of a tile.
const TILE: usize = 16;
/// Warps of a block of `learn`.
const LEARN_WARPS: usize = 8;
/// Most epochs, and epochs times minibatches, of one iteration.
const MAX_EPOCHS: usize = 16;
const MAX_UPDATES: usize = 256;
/// Numbers of a minibatch's statistics.
const STATISTICS: usize = 8;
/// Envs whose last episodes the host hears of.
const TOLD: usize = 128;
/// Most numbers of an observation and of an action.
const MOST: usize = 7;
/// Envs from which on a warp of `collect` takes two tiles.
const MANY_ENVS: usize = 32_768;
/// Blocks of `evaluate` per multiprocessor.
const EVALUATE_BLOCKS: u32 = 3;
/// Sums that the last returns of all envs are added up in.
const STANDING_SLOTS: usize = 64;

/// `Rollout` of `collect.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RolloutPointers {
    obs: DevicePtr,
    action: DevicePtr,
    log_prob: DevicePtr,
    value: DevicePtr,
    reward: DevicePtr,
    done: DevicePtr,
    advantage: DevicePtr,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct FinishedPointers {
    returned: DevicePtr,
    length: DevicePtr,
    episodes: DevicePtr,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct PrepareArgs {
    params: DevicePtr,
    image: DevicePtr,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct CollectArgs {
    envs: EnvsPointers,
    rollout: RolloutPointers,
    finished: FinishedPointers,
    normaliser: NormaliserPointers,
    image: DevicePtr,
    params: DevicePtr,
    seed: u64,
    steps: u32,
    first_step: u32,
    first_row: u32,
    gamma: f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct EvaluateArgs {
    rollout: RolloutPointers,
    image: DevicePtr,
    rows: u32,
    unused: u32,
}

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
struct LearnArgs {
    rollout: RolloutPointers,
    image: DevicePtr,
    params: DevicePtr,
    mean: DevicePtr,
    square: DevicePtr,
    partial: DevicePtr,
    sums: DevicePtr,
    squares: DevicePtr,
    statistics: DevicePtr,
    report: DevicePtr,
    barrier: DevicePtr,
    envs: u32,
    steps: u32,
    epochs: u32,
    minibatches: u32,
    barrier_start: u32,
    adam_step: u32,
    learning_rate: f32,
    clip: f32,
    entropy: f32,
    value: f32,
    max_norm: f32,
    eps: f32,
    beta1: f32,
    beta2: f32,
    normalise: u32,
    clip_value: u32,
    orders: [[u32; 12]; MAX_EPOCHS],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct TellArgs {
    envs: EnvsPointers,
    finished: FinishedPointers,
    report: DevicePtr,
    standing: DevicePtr,
    told: DevicePtr,
}

impl KernelParams for PrepareArgs {}
impl KernelParams for CollectArgs {}
impl KernelParams for EvaluateArgs {}
impl KernelParams for EstimateArgs {}
impl KernelParams for LearnArgs {}
impl KernelParams for TellArgs {}

struct Kernels {
    prepare: Kernel<PrepareArgs>,
    collect: Kernel<CollectArgs>,
    evaluate: Kernel<EvaluateArgs>,
    estimate: Kernel<EstimateArgs>,
    learn: Kernel<LearnArgs>,
    tell: Kernel<TellArgs>,
}

/// What lies in the GPU's memory.
struct Buffers {
    /// `[T + 1, N, O]`
    obs: Buffer<f32>,
    /// `[T, N, A]`
    action: Buffer<u32>,
    /// `[T, N]`
    log_prob: Buffer<f32>,
    /// `[T + 1, N]`
    value: Buffer<f32>,
    /// `[T, N]`
    reward: Buffer<f32>,
    /// `[T, N]`
    done: Buffer<u8>,
    /// `[T, N]`
    advantage: Buffer<f32>,
    /// `[N]` each: return, length and number of episodes that ended.
    returned: Buffer<f32>,
    length: Buffer<i32>,
    episodes: Buffer<u32>,
    params: Buffer<f32>,
    mean: Buffer<f32>,
    square: Buffer<f32>,
    image: Buffer<u32>,
    partial: Buffer<f32>,
    sums: Buffer<f64>,
    squares: Buffer<f32>,
    statistics: Buffer<f32>,
    report: Buffer<f32>,
    barrier: Buffer<u32>,
    /// Last returns of all envs, by [`STANDING_SLOTS`].
    standing: Buffer<u64>,
    /// Where the host reads what the GPU tells.
    told: HostBuffer<f32>,
}

impl Buffers {
    fn new(gpu: &Arc<Gpu>, shape: &Shape, n: usize, steps: usize, params: usize) -> Result<Self> {
        let rows = "num_envs or ppo.num_steps";
        let (samples, blocks) = (n * steps, gpu.info().multiprocessors);
        let buffer = |len, what| Buffer::new(gpu, len, what, rows);
        let small = |len, what| Buffer::new(gpu, len, what, "num_envs");
        Ok(Self {
            obs: buffer((samples + n) * shape.obs, "observations")?,
            action: Buffer::new(gpu, samples * shape.action_numbers(), "actions", rows)?,
            log_prob: buffer(samples, "log-probabilities")?,
            value: buffer(samples + n, "values")?,
            reward: buffer(samples, "rewards")?,
            done: Buffer::new(gpu, samples, "ends of episodes", rows)?,
            advantage: buffer(samples, "advantages")?,
            returned: small(n.max(TOLD), "returns of episodes")?,
            length: Buffer::new(gpu, n.max(TOLD), "lengths of episodes", "num_envs")?,
            episodes: Buffer::new(gpu, n.max(TOLD), "counts of episodes", "num_envs")?,
            params: small(params, "parameters")?,
            mean: small(params, "Adam's means")?,
            square: small(params, "Adam's squares")?,
            image: Buffer::new(gpu, shape.net_bytes() / 2, "packed weights", "num_envs")?,
            partial: small(blocks * 2 * shape.groups() * 64, "gradients")?,
            sums: Buffer::new(gpu, MAX_UPDATES * blocks * 2, "sums of advantages", "num_envs")?,
            squares: small(blocks, "norms")?,
            statistics: small(blocks * STATISTICS, "statistics")?,
            report: small(STATISTICS, "a report")?,
            barrier: Buffer::new(gpu, 1, "a barrier", "num_envs")?,
            standing: Buffer::new(gpu, 2 * STANDING_SLOTS, "returns of episodes", "num_envs")?,
            told: HostBuffer::new(gpu, STATISTICS + 3 * TOLD + 3, "a report")?,
        })
    }

    fn rollout(&self) -> RolloutPointers {
        RolloutPointers {
            obs: self.obs.pointer(),
            action: self.action.pointer(),
            log_prob: self.log_prob.pointer(),
            value: self.value.pointer(),
            reward: self.reward.pointer(),
            done: self.done.pointer(),
            advantage: self.advantage.pointer(),
        }
    }

    fn finished(&self) -> FinishedPointers {
        FinishedPointers {
            returned: self.returned.pointer(),
            length: self.length.pointer(),
            episodes: self.episodes.pointer(),
        }
    }

    fn clear(&self) -> Result<()> {
        self.returned.zero()?;
        self.length.zero()?;
        self.episodes.zero()?;
        self.report.zero()?;
        self.standing.zero()?;
        self.barrier.zero()
    }
}

/// A run of PPO on a GPU.
pub(super) struct PpoCuda {
    settings: Settings,
    seed: u64,
    total_steps: u64,
    env: Box<dyn VecEnv>,
    gpu: Arc<Gpu>,
    architecture: Architecture,
    head: Head,
    shape: Shape,
    num_envs: usize,
    kernels: Kernels,
    buffers: Buffers,
    normaliser: Normaliser,
    /// The layout; values as they were when they were last fetched.
    params: Params,
    optimizer: Optimizer,
    schedule: Schedule,
    marks: [Event; 3],
    iteration: u32,
    /// Steps of the optimiser so far.
    updates: u64,
    /// Where the count of blocks that met at the barrier stands.
    barrier: u32,
    told: Vec<f32>,
    /// Episodes of the told envs that were heard of.
    heard: Vec<u32>,
    /// Episodes of all envs that were heard of, modulo 2³².
    ended: u32,
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
    let shape = emit::Shape { time_limit: spec.time_limit, autoreset: AutoReset::SameStep, block: 64 };
    let text = entry.cuda_source(&[], &shape)?;
    let text = text.ok_or_else(|| unserved(&format!("env {}", spec.name)))?;
    let architecture = network.architecture(&spec, None)?;
    let shape = Shape::new(&architecture, &spec, num_envs, precision).map_err(|what| unserved(&what))?;
    shape.source(&text, &architecture.build()?.graph.params(0)?, settings, part)
}

/// Whether there are kernels for an env, a network and settings, or what of them has none.
pub fn check_cuda(
    entry: &env::Entry,
    network: &NetworkSettings,
    settings: &Table,
    num_envs: usize,
    precision: Precision,
) -> Result<()> {
    let settings = read(settings)?;
    settings.check(num_envs)?;
    check(&settings, num_envs, precision)?;
    cuda_source(entry, network, &settings, num_envs, precision, Part::Learning).map(drop)
}

fn unserved(what: &str) -> Error {
    Error::Invalid(format!("{what} has no kernel for a GPU yet; change it, or run with --device cpu"))
}

/// What of the settings the kernels do not serve.
fn check(settings: &Settings, num_envs: usize, precision: Precision) -> Result<()> {
    let unserved_keys = [
        ("popart = true", settings.popart),
        ("curiosity", settings.curiosity != Curiosity::None),
        ("target_kl", settings.target_kl > 0.0),
        ("optimizer = \"muon\"", settings.optimizer != OptimizerName::Adam),
    ];
    if let Some((key, _)) = unserved_keys.iter().find(|(_, set)| *set) {
        return Err(unserved(&format!("ppo.{key}")));
    }
    if precision == Precision::F16 {
        return Err(Error::Invalid("precision = \"f16\": on a GPU wanted bf16, tf32 or f32 (--precision bf16)".into()));
    }
    if !num_envs.is_multiple_of(TILE) || !settings.minibatch_size.is_multiple_of(TILE) {
        return Err(Error::Invalid(format!(
            "num_envs = {num_envs}, ppo.minibatch_size = {}: on a GPU both are multiples of {TILE}",
            settings.minibatch_size
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
        let Build { mut env, seed, total_steps, precision, network, settings, .. } = build;
        let settings = read(&settings)?;
        let (spec, n) = (env.spec().clone(), env.num_envs());
        settings.check(n)?;
        check(&settings, n, precision)?;
        let architecture = network.architecture(&spec, None)?;
        let (net, head) = (architecture.build()?, Head::new(&spec));
        let params = net.graph.params(seed)?;
        let shape = Shape::new(&architecture, &spec, n, precision).map_err(|what| unserved(&what))?;
        let Some(envs) = env.on_gpu() else { return Err(Error::Invalid("envs that are not on a GPU".into())) };
        let gpu = Arc::clone(envs.gpu());
        let (major, minor) = gpu.info().capability;
        if major < 8 {
            return Err(unserved(&format!("compute capability {major}.{minor}, below 8.0,")));
        }
        let (envs, text) = (&*envs, envs.source());
        let load = |part: Part, name: &str| {
            gpu.load(&format!("{name}-{}", spec.name), &shape.source(&text, &params, &settings, part)?, Math::Fast)
        };
        // All kernels at the same time: a program that starts without any in the cache waits for the slowest.
        let (module, learning) = std::thread::scope(|scope| {
            let learning = scope.spawn(|| load(Part::Learning, "learn"));
            let stepping = scope.spawn(|| envs.prepare());
            let module = load(Part::Collecting, "collect");
            let died = || Error::Device("a compiler's thread died".into());
            let learning = learning.join().unwrap_or_else(|_| Err(died()));
            stepping.join().unwrap_or_else(|_| Err(died()))?;
            module.and_then(|module| Ok((module, learning?)))
        })?;
        let kernels = Kernels {
            prepare: module.kernel("prepare")?,
            collect: module.kernel("collect")?.with_shared(shape.collect_shared())?,
            evaluate: module.kernel("evaluate")?.with_shared(shape.net_bytes())?,
            estimate: module.kernel("estimate")?,
            learn: learning.kernel("learn")?.with_shared(shape.learn_shared())?,
            tell: module.kernel("tell")?,
        };
        let normaliser = Normaliser::new(&gpu, &module, &settings, shape.obs, [n, shape.collect_warps(n)])?;
        let max_norm = (settings.max_grad_norm > 0.0).then_some(settings.max_grad_norm as f32);
        let rate = settings.learning_rate as f32;
        let mut ppo = Self {
            buffers: Buffers::new(&gpu, &shape, n, settings.num_steps, params.len())?,
            optimizer: Optimizer::new(settings.method(), &params, max_norm, Backend::fast())?,
            schedule: if settings.anneal_lr {
                Schedule::Linear { from: rate, to: 0.0 }
            } else {
                Schedule::Constant(rate)
            },
            marks: [Event::new(&gpu)?, Event::new(&gpu)?, Event::new(&gpu)?],
            iteration: 0,
            updates: 0,
            barrier: 0,
            told: vec![0.0; STATISTICS + 3 * TOLD + 3],
            heard: vec![0; TOLD],
            ended: 0,
            settings,
            seed,
            total_steps,
            env,
            gpu,
            architecture,
            head,
            shape,
            num_envs: n,
            kernels,
            normaliser,
            params,
        };
        let mut row = RowBuf::new(&spec, n);
        ppo.env.reset(Seeds::One(seed), None, row.row());
        let mut seen = Running::new(spec.observation.len());
        seen.update(&row.obs);
        ppo.normaliser.set(ppo.settings.normalize_obs.then_some(&seen), None)?;
        ppo.buffers.clear()?;
        ppo.send()?;
        Ok(ppo)
    }

    fn samples(&self) -> usize {
        self.num_envs * self.settings.num_steps
    }

    /// Sends parameters and moments to the GPU.
    fn send(&mut self) -> Result<()> {
        self.buffers.params.upload(self.params.values())?;
        let [mean, square] = self.optimizer.moments();
        self.buffers.mean.upload(mean)?;
        self.buffers.square.upload(square)?;
        let args = PrepareArgs { params: self.buffers.params.pointer(), image: self.buffers.image.pointer() };
        self.kernels.prepare.launch(2 * self.shape.groups() as u32, 32, &args)
    }

    fn fetched_params(&self) -> Result<Params> {
        let mut params = self.params.clone();
        self.buffers.params.download(0, params.values_mut())?;
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
        self.buffers.mean.download(0, &mut mean)?;
        self.buffers.square.download(0, &mut square)?;
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
        let (n, t) = (self.num_envs as u32, self.settings.num_steps as u32);
        let (kernels, buffers, settings) = (&self.kernels, &self.buffers, &self.settings);
        let (rollout, finished) = (buffers.rollout(), buffers.finished());
        let (image, params) = (buffers.image.pointer(), buffers.params.pointer());
        let blocks = self.gpu.info().multiprocessors as u32;
        let gamma = settings.gamma as f32;
        let Some(envs) = self.env.on_gpu().map(|envs| envs.pointers()) else {
            return Err(Error::Invalid("envs that are not on a GPU".into()));
        };
        self.marks[0].record()?;
        let mut collect = CollectArgs {
            envs,
            rollout,
            finished,
            normaliser: self.normaliser.pointers(),
            image,
            params,
            seed: self.seed,
            steps: 0,
            first_step: self.iteration.wrapping_mul(t),
            first_row: 0,
            gamma,
        };
        let of_block = (TILE * self.shape.tiles * self.shape.warps) as u32;
        while collect.first_row < t {
            let seen = u64::from(self.iteration) * u64::from(t) + u64::from(collect.first_row);
            collect.steps = self.normaliser.steps_at_once(seen, t - collect.first_row);
            kernels.collect.launch(n.div_ceil(of_block), 32 * self.shape.warps as u32, &collect)?;
            self.normaliser.merge(collect.steps)?;
            collect.first_row += collect.steps;
            collect.first_step = collect.first_step.wrapping_add(collect.steps);
        }
        let evaluate = EvaluateArgs { rollout, image, rows: (t + 1) * n, unused: 0 };
        kernels.evaluate.launch(EVALUATE_BLOCKS * blocks, 256, &evaluate)?;
        let (standing, lambda) = (buffers.standing.pointer(), settings.gae_lambda as f32);
        let estimate = EstimateArgs { rollout, finished, standing, envs: n, steps: t, gamma, lambda };
        kernels.estimate.launch(n.div_ceil(64), 64, &estimate)?;
        self.marks[1].record()?;
        let (epochs, minibatches) = (settings.update_epochs, self.minibatches() as u32);
        let mut orders = [[0; 12]; MAX_EPOCHS];
        for (epoch, order) in orders.iter_mut().enumerate().take(epochs as usize) {
            *order = Shuffle::new(self.samples() / TILE, self.seed, self.iteration, epoch as u32).words();
        }
        let learn = LearnArgs {
            rollout,
            image,
            params,
            mean: buffers.mean.pointer(),
            square: buffers.square.pointer(),
            partial: buffers.partial.pointer(),
            sums: buffers.sums.pointer(),
            squares: buffers.squares.pointer(),
            statistics: buffers.statistics.pointer(),
            report: buffers.report.pointer(),
            barrier: buffers.barrier.pointer(),
            envs: n,
            steps: t,
            epochs,
            minibatches,
            barrier_start: self.barrier,
            // Far beyond where the corrections of Adam's moments are 1.
            adam_step: self.updates.min(1 << 30) as u32,
            learning_rate,
            clip: settings.clip_coef as f32 * factors[0],
            entropy: settings.ent_coef as f32 * factors[1],
            value: settings.vf_coef as f32,
            max_norm: settings.max_grad_norm as f32,
            eps: settings.adam_eps as f32,
            beta1,
            beta2: 0.999,
            normalise: u32::from(settings.norm_adv),
            clip_value: u32::from(settings.clip_vloss),
            orders,
        };
        kernels.learn.launch_together(blocks, 32 * LEARN_WARPS as u32, &learn)?;
        // The last step of Adam is waited for by the end of the launch.
        let meetings = 3 * epochs * minibatches - 1 + u32::from(settings.norm_adv);
        self.barrier = self.barrier.wrapping_add(blocks.wrapping_mul(meetings));
        let told = buffers.told.pointer();
        let tell = TellArgs { envs, finished, report: buffers.report.pointer(), standing, told };
        kernels.tell.launch(1, TOLD as u32, &tell)?;
        self.marks[2].record()?;
        self.marks[2].wait()?;
        buffers.told.read(&mut self.told);
        Ok([self.marks[1].seconds_since(&self.marks[0])?, self.marks[2].seconds_since(&self.marks[1])?])
    }

    /// Passes on what was told.
    fn report(&mut self, learning_rate: f32, report: &mut Report) {
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
            report.diverged = Some(not_finite(&std::array::from_fn(|i| f64::from(numbers[i]))));
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
        METRICS
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
        Ok(Parts::from([
            ("policy.safetensors".into(), self.fetched_policy()?.to_bytes()),
            ("optimizer.safetensors".into(), self.fetched_optimizer()?.to_bytes()),
            ("env.bin".into(), self.env.save()),
            ("memory.bin".into(), Vec::new()),
            ("ppo.json".into(), serde_json::to_vec(&state).expect("numbers are JSON")),
        ]))
    }

    fn load(&mut self, parts: &Parts) -> Result<()> {
        let damaged = |what: &str| Error::Saved(format!("checkpoint's {what} does not fit this run; take another"));
        let state: State = serde_json::from_slice(part(parts, "ppo.json")?).map_err(|_| damaged("ppo.json"))?;
        self.params.from_bytes(part(parts, "policy.safetensors")?)?;
        self.optimizer.from_bytes(part(parts, "optimizer.safetensors")?)?;
        self.env.load(part(parts, "env.bin")?)?;
        let seen = |bits: Vec<u64>| Running::from_numbers(&from_bits(&bits), self.shape.obs);
        let observations = match self.settings.normalize_obs {
            true => Some(state.obs_normaliser.and_then(seen).ok_or_else(|| damaged("obs_normaliser"))?),
            false => None,
        };
        let returns = match self.settings.normalize_reward {
            true => Some(from_bits(&state.return_scale.ok_or_else(|| damaged("return_scale"))?)),
            false => None,
        };
        self.normaliser.set(observations.as_ref(), returns.as_deref())?;
        (self.iteration, self.updates) = (state.iteration, self.optimizer.steps());
        self.buffers.clear()?;
        self.barrier = 0;
        self.heard.fill(0);
        self.env.on_gpu().map(|envs| envs.take_totals()).transpose()?;
        self.ended = 0;
        self.send()
    }
}

#[cfg(test)]
#[path = "cuda_tests.rs"]
mod tests;
