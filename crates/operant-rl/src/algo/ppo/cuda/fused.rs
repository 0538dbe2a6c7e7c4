//! Small networks: the kernels of `collect.cu` and `learn.cu`, which run the network themselves, with products in bf16 or f16
//! (`sixteen.cu`), tf32, or three tf32 products for one of f32 (`tf32.cu`).
//!
//! An iteration is five launches, more where observations or rewards are normalised and while statistics of observations are young. Where several runs share the GPU, `learn` takes a part
//! of it; where the next rollout is played beside learning, it leaves a few multiprocessors to that.

use super::shape::{Part, Shape};
use super::*;

/// Samples of a tile.
pub(super) const TILE: usize = 16;
/// Warps of a block of `learn`.
pub(super) const LEARN_WARPS: usize = 8;
/// Blocks of `evaluate` per multiprocessor, and for networks of more than 64 units a layer.
const EVALUATE_BLOCKS: [u32; 2] = [3, 2];

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
    slices: u32,
    barrier_start: u32,
    adam_step: u32,
    unused: u32,
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
    multiprocessors: u32,
    /// Slices that the work of a minibatch is cut into: what they are decides the bits of sums.
    slices: u32,
    /// Blocks of `learn`.
    blocks: u32,
    /// Whether others use the GPU beside this run.
    shared: bool,
    prepare: Kernel<PrepareArgs>,
    collect: Kernel<CollectArgs>,
    evaluate: Kernel<EvaluateArgs>,
    learn: Kernel<LearnArgs>,
    params: Buffer<f32>,
    mean: Buffer<f32>,
    square: Buffer<f32>,
    image: Buffer<u32>,
    /// Where rollouts are played beside learning: the weights that they are played by.
    acting: Option<Acting>,
    partial: Buffer<f32>,
    sums: Buffer<f64>,
    squares: Buffer<f32>,
    statistics: Buffer<f32>,
    barrier: Buffer<u32>,
    /// Where the count of blocks that met at the barrier stands.
    met: u32,
}

/// Weights as they were when an iteration began.
struct Acting {
    gpu: Arc<Gpu>,
    params: Buffer<f32>,
    image: Buffer<u32>,
}

/// The part of the multiprocessors that rollouts beside learning have at most.
const MOST_BESIDE: usize = 8;

impl Fused {
    /// Compiles the kernels; the module is that of collecting, which is done in the stream of `collector` if there is one.
    pub(super) fn new(
        envs: &CudaVec,
        shape: Shape,
        params: &Params,
        settings: &Settings,
        collector: Option<&Arc<Gpu>>,
    ) -> Result<(Self, Module)> {
        let gpu = envs.gpu();
        let (name, text) = (envs.spec().name, envs.source());
        let load = |gpu: &Arc<Gpu>, part: Part, what: &str| {
            gpu.load(&format!("{what}-{name}"), &shape.source(&text, params, settings, part)?, Math::Fast)
        };
        let learns = if gpu.at_once() > 1 { Part::LearningShared } else { Part::Learning };
        // All kernels at the same time: a program that starts without any in the cache waits for the slowest.
        let (module, learning) = std::thread::scope(|scope| {
            let learning = scope.spawn(|| load(gpu, learns, "learn"));
            let stepping = scope.spawn(|| envs.prepare());
            let module = load(collector.unwrap_or(gpu), Part::Collecting, "collect");
            let died = || Error::Device("a compiler's thread died".into());
            let learning = learning.join().unwrap_or_else(|_| Err(died()));
            stepping.join().unwrap_or_else(|_| Err(died()))?;
            module.and_then(|module| Ok((module, learning?)))
        })?;
        let (multiprocessors, len) = (gpu.info().multiprocessors, params.len());
        let collect = module.kernel("collect")?.with_shared(shape.collect_shared())?;
        let slices = match collector {
            Some(_) => {
                let threads = 32 * shape.warps;
                let by_registers = 65_536 / (threads * collect.resources()?.0.max(1) as usize);
                let of_one = by_registers.min(gpu.info().shared_bytes / shape.collect_shared()).max(1);
                let wanted = envs.num_envs().div_ceil(TILE * shape.tiles * shape.warps).div_ceil(of_one);
                multiprocessors - wanted.min(multiprocessors / MOST_BESIDE).min(multiprocessors - 1)
            }
            None => multiprocessors,
        };
        // Both networks have as many blocks where a block has one.
        let slices = if shape.together() { slices / 2 * 2 } else { slices };
        let blocks = (slices / gpu.at_once()).max(1);
        let small = |len, what| Buffer::new(gpu, len, what, "num_envs");
        let image = || Buffer::new(gpu, shape.net_bytes() / 2, "packed weights", "num_envs");
        let fused = Self {
            prepare: module.kernel("prepare")?,
            collect,
            evaluate: module.kernel("evaluate")?.with_shared(shape.forward_bytes())?,
            learn: learning.kernel("learn")?.with_shared(shape.learn_shared())?,
            params: small(len, "parameters")?,
            mean: small(len, "Adam's means")?,
            square: small(len, "Adam's squares")?,
            image: image()?,
            acting: match collector {
                Some(collector) => {
                    let (params, gpu) = (small(len, "parameters")?, Arc::clone(collector));
                    Some(Acting { gpu, params, image: image()? })
                }
                None => None,
            },
            partial: small(slices * 2 * shape.groups() * 64, "gradients")?,
            sums: Buffer::new(gpu, MAX_UPDATES * slices * 2, "sums of advantages", "num_envs")?,
            squares: small(slices, "norms")?,
            statistics: small(slices * STATISTICS, "statistics")?,
            barrier: Buffer::new(gpu, 1, "a barrier", "num_envs")?,
            met: 0,
            multiprocessors: multiprocessors as u32,
            slices: slices as u32,
            blocks: blocks as u32,
            shared: gpu.at_once() > 1,
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
        let prepare = |params: DevicePtr, image: DevicePtr| {
            self.prepare.launch(2 * self.shape.groups() as u32, 32, &PrepareArgs { params, image })
        };
        prepare(self.params.pointer(), self.image.pointer())?;
        if let Some(acting) = &self.acting {
            acting.params.upload(params)?;
            prepare(acting.params.pointer(), acting.image.pointer())?;
            // Learning has another stream.
            acting.gpu.synchronize()?;
        }
        Ok(())
    }

    fn fetch_params(&self, to: &mut [f32]) -> Result<()> {
        self.params.download(0, to)
    }

    fn fetch_moments(&self, [mean, square]: [&mut [f32]; 2]) -> Result<()> {
        self.mean.download(0, mean)?;
        self.square.download(0, square)
    }

    fn collect(&mut self, now: &Now<'_>, _: &mut dyn VecEnv) -> Result<()> {
        let (n, t) = (now.num_envs as u32, now.settings.num_steps as u32);
        let acting = self.acting.as_ref().map(|acting| (acting.image.pointer(), acting.params.pointer()));
        let (image, params) = acting.unwrap_or((self.image.pointer(), self.params.pointer()));
        let rollout = now.rollout;
        let mut collect = CollectArgs {
            envs: now.envs,
            rollout,
            finished: now.finished,
            normaliser: now.normaliser.pointers(),
            image,
            params,
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
        let blocks = EVALUATE_BLOCKS[usize::from(self.shape.together())];
        self.evaluate.launch_early(blocks * self.multiprocessors, 256, &evaluate)
    }

    fn renew(&mut self) -> Result<()> {
        self.acting.as_ref().map_or(Ok(()), |acting| {
            acting.params.copy_from(&self.params)?;
            acting.image.copy_from(&self.image)
        })
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
            slices: self.slices,
            barrier_start: self.met,
            adam_step: now.adam_step(),
            unused: 0,
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
        let threads = 32 * LEARN_WARPS as u32;
        // A block fills a multiprocessor. Runs that share the GPU have no more of them together than there are, and nothing else
        // that runs there waits for one: all blocks come to run, whatever else does.
        match self.shared {
            true => self.learn.launch(blocks, threads, &learn)?,
            false => self.learn.launch_together(blocks, threads, &learn)?,
        }
        // The last step of Adam is waited for by the end of the launch.
        let meetings = 3 * epochs * minibatches - 1 + u32::from(settings.norm_adv);
        self.met = self.met.wrapping_add(blocks.wrapping_mul(meetings));
        Ok(())
    }
}
