//! PPO wholly on a GPU, for envs over lanes and small networks: the kernels of `collect.cu` and `learn.cu` after those of
//! the env.
//!
//! An iteration is six launches and one copy of a few hundred numbers to the host. What it learns is what [`Ppo`](super::Ppo)
//! learns, with other random numbers and bf16 products; checkpoints of the two are the same.

use super::super::policy::{Head, Policy};
use super::super::{Algorithm, Build, Ended, Parts, Report, part};
use super::{METRICS, OptimizerName, Reported, Settings, State, not_finite, read};
use crate::algo::{Curiosity, NetworkSettings};
use crate::data::Shuffle;
use crate::device::cuda::{Buffer, DevicePtr, Event, Gpu, Kernel, Params as KernelParams};
use crate::env::{self, AutoReset, EnvsPointers, RowBuf, Seeds, Spec, VecEnv, emit};
use crate::error::{Error, Result};
use crate::lanes::{Backend, Math};
use crate::nn::nets::Architecture;
use crate::nn::{Act, Metadata, Optimizer, Params, Plan, Precision, Schedule};
use crate::telemetry::Metric;
use std::fmt::Write as _;
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
    image: DevicePtr,
    params: DevicePtr,
    seed: u64,
    steps: u32,
    first_step: u32,
    gamma: f32,
    unused: f32,
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
    finished: FinishedPointers,
    report: DevicePtr,
    told: DevicePtr,
    envs: u32,
    unused: u32,
}

impl KernelParams for PrepareArgs {}
impl KernelParams for CollectArgs {}
impl KernelParams for EvaluateArgs {}
impl KernelParams for EstimateArgs {}
impl KernelParams for LearnArgs {}
impl KernelParams for TellArgs {}

/// What the kernels are compiled for.
#[derive(Clone, Debug)]
struct Shape {
    obs: usize,
    hidden: usize,
    outputs: usize,
    continuous: bool,
    relu: bool,
    tiles: usize,
    warps: usize,
}

impl Shape {
    /// The shape of a network for an env, or what of it has no kernel.
    fn new(architecture: &Architecture, spec: &Spec, num_envs: usize) -> Result<Self, String> {
        let Architecture::ActorCritic { inputs, hidden, actions, activation, continuous, memory, image } = architecture
        else {
            return Err("a network that is not an actor and a critic".into());
        };
        let &[first, second] = hidden.as_slice() else {
            return Err(format!("network.hidden = {hidden:?}: wanted two layers"));
        };
        if first != second || !matches!(first, 32 | 64) {
            return Err(format!("network.hidden = {hidden:?}: wanted [32, 32] or [64, 64]"));
        }
        if !matches!(activation, Act::Tanh | Act::Relu) {
            return Err(format!("network.activation = {activation:?}: wanted tanh or relu"));
        }
        if memory.is_some() || image.is_some() {
            return Err("network.memory or an image: wanted neither".into());
        }
        if *inputs > MOST || *actions > MOST || spec.masked || (!continuous && spec.action.dims() != 1) {
            return Err(format!(
                "{inputs} numbers seen and {actions} of an action: wanted at most {MOST} of each, one choice at a time, no mask"
            ));
        }
        let many = num_envs >= MANY_ENVS;
        Ok(Self {
            obs: *inputs,
            hidden: first,
            outputs: *actions,
            continuous: *continuous,
            relu: *activation == Act::Relu,
            tiles: if many { 2 } else { 1 },
            warps: if many { 16 } else { 4 },
        })
    }

    /// Bytes of `NetWords`.
    fn net_bytes(&self) -> usize {
        let (tiles, steps) = (self.hidden / 8, self.hidden / 16);
        tiles * steps / 2 * 32 * 16 * 2 + steps / 2 * 32 * 16 + tiles * 32 * 4 * 2 + (self.hidden * 2 + 8) * 4
    }

    /// Numbers of an action as the rollout holds them.
    fn action_numbers(&self) -> usize {
        if self.continuous { self.outputs } else { 1 }
    }

    /// Bytes of `TileData`.
    fn tile_bytes(&self) -> usize {
        TILE * 4 * (self.obs + self.action_numbers() + 2)
    }

    /// Groups of two parameters per lane, of one network.
    fn groups(&self) -> usize {
        let (tiles, steps) = (self.hidden / 8, self.hidden / 16);
        let shared = self.obs + 2 + self.outputs <= 8;
        steps * tiles * 2 + steps * 2 * if shared { 1 } else { 2 } + 1
    }

    fn collect_shared(&self) -> usize {
        2 * self.net_bytes() + self.warps * TILE * self.tiles * (4 + 9) * 4
    }

    fn learn_shared(&self, epochs: usize) -> usize {
        // Gradients, or before that two f64 per warp and update.
        let sums = (2 * self.groups() * 32 * 8).max(MAX_UPDATES * LEARN_WARPS * 16);
        let few = LEARN_WARPS * 32 * 8;
        2 * self.net_bytes()
            + 2 * LEARN_WARPS * self.tile_bytes()
            + sums
            + few
            + epochs * 48
            + LEARN_WARPS * 6 * 32 * 4
            + MAX_UPDATES * 8
    }

    /// The text of the kernels behind that of the env's.
    fn source(&self, env: String, params: &Params) -> Result<String> {
        let mut text = env;
        let numbers = [
            ("HID", self.hidden),
            ("OUT", self.outputs),
            ("CONTINUOUS", usize::from(self.continuous)),
            ("RELU", usize::from(self.relu)),
            ("TILES", self.tiles),
            ("WARPS", self.warps),
            ("TOLD", TOLD),
            ("LEARN_WARPS", LEARN_WARPS),
            ("STATISTICS", STATISTICS),
            ("MAX_EPOCHS", MAX_EPOCHS),
            ("MAX_UPDATES", MAX_UPDATES),
            ("NET_BYTES", self.net_bytes()),
            ("TILE_BYTES", self.tile_bytes()),
            ("GROUP_COUNT", self.groups()),
            ("COLLECT_BYTES", size_of::<CollectArgs>()),
            ("EVALUATE_BYTES", size_of::<EvaluateArgs>()),
            ("ESTIMATE_BYTES", size_of::<EstimateArgs>()),
            ("LEARN_BYTES", size_of::<LearnArgs>()),
            ("TELL_BYTES", size_of::<TellArgs>()),
            ("PREPARE_BYTES", size_of::<PrepareArgs>()),
        ];
        for (name, value) in numbers {
            let _ = writeln!(text, "#define {name} {value}");
        }
        let offset = |name: &str| {
            let found = params.specs().iter().find(|spec| spec.name == name);
            found.map(|spec| spec.offset).ok_or_else(|| Error::Invalid(format!("a network without {name}")))
        };
        for (net, letter) in [("actor", 'A'), ("critic", 'C')] {
            for layer in 0..3 {
                for (kind, short) in [("weight", 'W'), ("bias", 'B')] {
                    let at = offset(&format!("{net}.{}.{kind}", 2 * layer))?;
                    let _ = writeln!(text, "#define {letter}{short}{} {at}", layer + 1);
                }
            }
        }
        let log_std = if self.continuous { offset("log_std")? } else { 0 };
        let _ = writeln!(text, "#define LOG_STD {log_std}");
        text.push_str(include_str!("collect.cu"));
        text.push_str(include_str!("learn.cu"));
        Ok(text)
    }
}

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
    told: Buffer<f32>,
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
            told: small(STATISTICS + 3 * TOLD, "a report")?,
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
}

/// The kernels that train an env with such a network, as CUDA C, or why there are none.
pub fn cuda_source(entry: &env::Entry, network: &NetworkSettings, num_envs: usize) -> Result<String> {
    let spec = entry.spec();
    let shape = emit::Shape { time_limit: spec.time_limit, autoreset: AutoReset::SameStep, block: 64 };
    let text = entry.cuda_source(&[], &shape)?;
    let text = text.ok_or_else(|| unserved(&format!("env {}", spec.name)))?;
    let architecture = network.architecture(&spec, None)?;
    let shape = Shape::new(&architecture, &spec, num_envs).map_err(|what| unserved(&what))?;
    shape.source(text, &architecture.build()?.graph.params(0)?)
}

fn unserved(what: &str) -> Error {
    Error::Invalid(format!("{what} has no kernel for a GPU yet; change it, or run with --device cpu"))
}

/// What of the settings the kernels do not serve.
fn check(settings: &Settings, num_envs: usize, precision: Precision) -> Result<()> {
    let unserved_keys = [
        ("normalize_obs = true", settings.normalize_obs),
        ("normalize_reward = true", settings.normalize_reward),
        ("popart = true", settings.popart),
        ("curiosity", settings.curiosity != Curiosity::None),
        ("target_kl", settings.target_kl > 0.0),
        ("optimizer = \"muon\"", settings.optimizer != OptimizerName::Adam),
    ];
    if let Some((key, _)) = unserved_keys.iter().find(|(_, set)| *set) {
        return Err(unserved(&format!("ppo.{key}")));
    }
    if precision != Precision::Bf16 {
        let got = precision.name();
        return Err(Error::Invalid(format!("precision = \"{got}\": on a GPU wanted bf16 (--precision bf16)")));
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
        let shape = Shape::new(&architecture, &spec, n).map_err(|what| unserved(&what))?;
        let Some(envs) = env.on_gpu() else { return Err(Error::Invalid("envs that are not on a GPU".into())) };
        let gpu = Arc::clone(envs.gpu());
        let (major, minor) = gpu.info().capability;
        if major < 8 {
            return Err(unserved(&format!("compute capability {major}.{minor}, below 8.0,")));
        }
        let module = gpu.load(&format!("ppo-{}", spec.name), &shape.source(envs.source(), &params)?, Math::Fast)?;
        let kernels = Kernels {
            prepare: module.kernel("prepare")?,
            collect: module.kernel("collect")?.with_shared(shape.collect_shared())?,
            evaluate: module.kernel("evaluate")?.with_shared(2 * shape.net_bytes())?,
            estimate: module.kernel("estimate")?,
            learn: module.kernel("learn")?.with_shared(shape.learn_shared(settings.update_epochs as usize))?,
            tell: module.kernel("tell")?,
        };
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
            told: vec![0.0; STATISTICS + 3 * TOLD],
            heard: vec![0; TOLD],
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
            params,
        };
        let mut row = RowBuf::new(&spec, n);
        ppo.env.reset(Seeds::One(seed), None, row.row());
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
            normaliser: None,
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
        let collect = CollectArgs {
            envs,
            rollout,
            finished,
            image,
            params,
            seed: self.seed,
            steps: t,
            first_step: self.iteration.wrapping_mul(t),
            gamma,
            unused: 0.0,
        };
        let of_block = (TILE * self.shape.tiles * self.shape.warps) as u32;
        kernels.collect.launch(n.div_ceil(of_block), 32 * self.shape.warps as u32, &collect)?;
        let evaluate = EvaluateArgs { rollout, image, rows: (t + 1) * n, unused: 0 };
        kernels.evaluate.launch(2 * blocks, 256, &evaluate)?;
        let estimate = EstimateArgs { rollout, envs: n, steps: t, gamma, lambda: settings.gae_lambda as f32 };
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
        let meetings = 3 * epochs * minibatches + u32::from(settings.norm_adv);
        self.barrier = self.barrier.wrapping_add(blocks.wrapping_mul(meetings));
        let told = buffers.told.pointer();
        let tell = TellArgs { finished, report: buffers.report.pointer(), told, envs: n.min(TOLD as u32), unused: 0 };
        kernels.tell.launch(1, TOLD as u32, &tell)?;
        self.marks[2].record()?;
        buffers.told.download(0, &mut self.told)?;
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
        for (env, heard) in self.heard.iter_mut().enumerate().take(self.num_envs) {
            let count = envs[2 * TOLD + env].to_bits();
            if count != *heard {
                *heard = count;
                let (total, length) = (envs[env], envs[TOLD + env].to_bits() as i32);
                report.episode(Ended { env: env as u32, total, length });
            }
        }
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
        policy.check_like(&self.architecture, &self.head, false)?;
        self.optimizer = self.fetched_optimizer()?;
        self.params.from_bytes(&policy.params.to_bytes(&Metadata::new()))?;
        self.send()
    }

    fn policy(&self) -> Result<Policy> {
        self.fetched_policy()
    }

    fn save(&self) -> Result<Parts> {
        let state = State { iteration: self.iteration, ..State::default() };
        Ok(Parts::from([
            ("policy.safetensors".into(), self.fetched_policy()?.to_bytes()),
            ("optimizer.safetensors".into(), self.fetched_optimizer()?.to_bytes()),
            ("env.bin".into(), self.env.save()),
            ("memory.bin".into(), Vec::new()),
            ("ppo.json".into(), serde_json::to_vec(&state).expect("numbers are JSON")),
        ]))
    }

    fn load(&mut self, parts: &Parts) -> Result<()> {
        let damaged = |_| Error::Saved("checkpoint's ppo.json does not fit this run; take another".into());
        let state: State = serde_json::from_slice(part(parts, "ppo.json")?).map_err(damaged)?;
        self.params.from_bytes(part(parts, "policy.safetensors")?)?;
        self.optimizer.from_bytes(part(parts, "optimizer.safetensors")?)?;
        self.env.load(part(parts, "env.bin")?)?;
        (self.iteration, self.updates) = (state.iteration, self.optimizer.steps());
        self.buffers.clear()?;
        self.barrier = 0;
        self.heard.fill(0);
        self.send()
    }
}

#[cfg(test)]
#[path = "cuda_tests.rs"]
mod tests;
