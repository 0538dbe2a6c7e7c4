//! Small networks: the kernels of `collect.cu` and `learn.cu`, which run the network themselves, with products in bf16 (`bf16.cu`),
//! tf32, or three tf32 products for one of f32 (`tf32.cu`).
//!
//! An iteration is six launches, more while statistics of observations are young.

use super::shape::{Part, Shape};
use super::*;

/// Samples of a tile.
pub(super) const TILE: usize = 16;
/// Warps of a block of `learn`.
pub(super) const LEARN_WARPS: usize = 8;
/// Blocks of `evaluate` per multiprocessor.
const EVALUATE_BLOCKS: u32 = 3;

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PrepareArgs {
    params: DevicePtr,
    image: DevicePtr,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct CollectArgs {
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
pub(super) struct EvaluateArgs {
    rollout: RolloutPointers,
    image: DevicePtr,
    rows: u32,
    unused: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct LearnArgs {
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

impl KernelParams for PrepareArgs {}
impl KernelParams for CollectArgs {}
impl KernelParams for EvaluateArgs {}
impl KernelParams for LearnArgs {}

/// The network in the GPU's memory, and its kernels.
pub(super) struct Fused {
    shape: Shape,
    blocks: u32,
    prepare: Kernel<PrepareArgs>,
    collect: Kernel<CollectArgs>,
    evaluate: Kernel<EvaluateArgs>,
    learn: Kernel<LearnArgs>,
    params: Buffer<f32>,
    mean: Buffer<f32>,
    square: Buffer<f32>,
    image: Buffer<u32>,
    partial: Buffer<f32>,
    sums: Buffer<f64>,
    squares: Buffer<f32>,
    statistics: Buffer<f32>,
    barrier: Buffer<u32>,
    /// Where the count of blocks that met at the barrier stands.
    met: u32,
}

impl Fused {
    /// Compiles the kernels; the module is that of collecting.
    pub(super) fn new(envs: &CudaVec, shape: Shape, params: &Params, settings: &Settings) -> Result<(Self, Module)> {
        let gpu = envs.gpu();
        let (name, text) = (envs.spec().name, envs.source());
        let load = |part: Part, what: &str| {
            gpu.load(&format!("{what}-{name}"), &shape.source(&text, params, settings, part)?, Math::Fast)
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
        let (blocks, len) = (gpu.info().multiprocessors, params.len());
        let small = |len, what| Buffer::new(gpu, len, what, "num_envs");
        let fused = Self {
            prepare: module.kernel("prepare")?,
            collect: module.kernel("collect")?.with_shared(shape.collect_shared())?,
            evaluate: module.kernel("evaluate")?.with_shared(shape.net_bytes())?,
            learn: learning.kernel("learn")?.with_shared(shape.learn_shared())?,
            params: small(len, "parameters")?,
            mean: small(len, "Adam's means")?,
            square: small(len, "Adam's squares")?,
            image: Buffer::new(gpu, shape.net_bytes() / 2, "packed weights", "num_envs")?,
            partial: small(blocks * 2 * shape.groups() * 64, "gradients")?,
            sums: Buffer::new(gpu, MAX_UPDATES * blocks * 2, "sums of advantages", "num_envs")?,
            squares: small(blocks, "norms")?,
            statistics: small(blocks * STATISTICS, "statistics")?,
            barrier: Buffer::new(gpu, 1, "a barrier", "num_envs")?,
            met: 0,
            blocks: blocks as u32,
            shape,
        };
        Ok((fused, module))
    }
}

impl Learner for Fused {
    fn send(&mut self, params: &[f32], [mean, square]: [&[f32]; 2]) -> Result<()> {
        self.params.upload(params)?;
        self.mean.upload(mean)?;
        self.square.upload(square)?;
        self.barrier.zero()?;
        self.met = 0;
        let args = PrepareArgs { params: self.params.pointer(), image: self.image.pointer() };
        self.prepare.launch(2 * self.shape.groups() as u32, 32, &args)
    }

    fn fetch_params(&self, to: &mut [f32]) -> Result<()> {
        self.params.download(0, to)
    }

    fn fetch_moments(&self, [mean, square]: [&mut [f32]; 2]) -> Result<()> {
        self.mean.download(0, mean)?;
        self.square.download(0, square)
    }

    fn collect(&mut self, now: &Now<'_>) -> Result<()> {
        let (n, t) = (now.num_envs as u32, now.settings.num_steps as u32);
        let (rollout, image) = (now.rollout, self.image.pointer());
        let mut collect = CollectArgs {
            envs: now.envs,
            rollout,
            finished: now.finished,
            normaliser: now.normaliser.pointers(),
            image,
            params: self.params.pointer(),
            seed: now.seed,
            steps: 0,
            first_step: now.iteration.wrapping_mul(t),
            first_row: 0,
            gamma: now.settings.gamma as f32,
        };
        let of_block = (TILE * self.shape.tiles * self.shape.warps) as u32;
        while collect.first_row < t {
            let seen = u64::from(now.iteration) * u64::from(t) + u64::from(collect.first_row);
            collect.steps = now.normaliser.steps_at_once(seen, t - collect.first_row);
            self.collect.launch(n.div_ceil(of_block), 32 * self.shape.warps as u32, &collect)?;
            now.normaliser.merge(collect.steps)?;
            collect.first_row += collect.steps;
            collect.first_step = collect.first_step.wrapping_add(collect.steps);
        }
        let evaluate = EvaluateArgs { rollout, image, rows: (t + 1) * n, unused: 0 };
        self.evaluate.launch(EVALUATE_BLOCKS * self.blocks, 256, &evaluate)
    }

    fn learn(&mut self, now: &Now<'_>) -> Result<()> {
        let (settings, blocks) = (now.settings, self.blocks);
        let (epochs, minibatches) = (settings.update_epochs, now.minibatches() as u32);
        let learn = LearnArgs {
            rollout: now.rollout,
            image: self.image.pointer(),
            params: self.params.pointer(),
            mean: self.mean.pointer(),
            square: self.square.pointer(),
            partial: self.partial.pointer(),
            sums: self.sums.pointer(),
            squares: self.squares.pointer(),
            statistics: self.statistics.pointer(),
            report: now.report,
            barrier: self.barrier.pointer(),
            envs: now.num_envs as u32,
            steps: settings.num_steps as u32,
            epochs,
            minibatches,
            barrier_start: self.met,
            adam_step: now.adam_step(),
            learning_rate: now.learning_rate,
            clip: now.clip(),
            entropy: now.entropy(),
            value: settings.vf_coef as f32,
            max_norm: settings.max_grad_norm as f32,
            eps: settings.adam_eps as f32,
            beta1: now.beta1,
            beta2: BETA2,
            normalise: u32::from(settings.norm_adv),
            clip_value: u32::from(settings.clip_vloss),
            orders: now.orders(),
        };
        self.learn.launch_together(blocks, 32 * LEARN_WARPS as u32, &learn)?;
        // The last step of Adam is waited for by the end of the launch.
        let meetings = 3 * epochs * minibatches - 1 + u32::from(settings.norm_adv);
        self.met = self.met.wrapping_add(blocks.wrapping_mul(meetings));
        Ok(())
    }
}
