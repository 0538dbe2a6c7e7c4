//! What networks that run between kernels have in common (`wide.rs`, `planned.rs`): the steps of a rollout, by envs of the GPU or of the
//! host, ends of episodes that were cut short, what an iteration is told, and launches as graphs. Kernels are those of `playing.cu`.

use super::shape::Part;
use super::staged::StagedPointers;
use super::*;
use operant_device::cuda::Graph;
use operant_nn::cuda::Adam;
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;

/// Threads of a block.
pub(super) const THREADS: usize = 128;
/// Words of `Now` before its orders, and all.
const WORDS_BEFORE: usize = 12;
const NOW_WORDS: usize = WORDS_BEFORE + 12 * MAX_EPOCHS;

/// `Play` of `playing.cu`, which arguments of kernels that play begin with.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PlayArgs {
    pub(super) envs: EnvsPointers,
    pub(super) rollout: RolloutPointers,
    pub(super) finished: FinishedPointers,
    pub(super) normaliser: NormaliserPointers,
    pub(super) now: DevicePtr,
    pub(super) params: DevicePtr,
    pub(super) outputs: DevicePtr,
    pub(super) values: DevicePtr,
    pub(super) cut_at: DevicePtr,
    pub(super) cuts: DevicePtr,
    pub(super) seed: u64,
    pub(super) t: u32,
    pub(super) gamma: f32,
}

/// `Minibatch` of `playing.cu`, which arguments of kernels that learn begin with.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct MinibatchArgs {
    pub(super) rollout: RolloutPointers,
    pub(super) now: DevicePtr,
    pub(super) scales: DevicePtr,
    pub(super) update: u32,
    pub(super) minibatches: u32,
    pub(super) of_minibatch: u32,
    pub(super) normalise: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct SettleArgs {
    rollout: RolloutPointers,
    values: DevicePtr,
    bias: DevicePtr,
    cut_at: DevicePtr,
    envs: u32,
    steps: u32,
    first: u32,
    rows: u32,
    gamma: f32,
    stride: u32,
}

impl KernelParams for SettleArgs {}

/// The text of kernels around a network: the env's, what all networks share, and `texts`, with these numbers defined before them.
pub(super) fn source(
    env: &str,
    hosted: bool,
    settings: &Settings,
    numbers: &[(&str, usize)],
    texts: &[&str],
) -> String {
    let mut text = format!("#define FUNCTIONS_ONLY\n{env}");
    let shared = [
        ("PART", Part::Wide as usize),
        ("THREADS", THREADS),
        ("HOSTED", usize::from(hosted)),
        ("NOW_BYTES", 4 * NOW_WORDS),
        ("PLAY_BYTES", size_of::<PlayArgs>()),
        ("STAGED_BYTES", size_of::<StagedPointers>()),
        ("SETTLE_BYTES", size_of::<SettleArgs>()),
        ("MINIBATCH_BYTES", size_of::<MinibatchArgs>()),
    ];
    for (name, value) in shared.into_iter().chain(defines(settings)).chain(numbers.iter().copied()) {
        let _ = writeln!(text, "#define {name} {value}");
    }
    // LIMIT is the env's time limit, 0 for none. What the host's envs cut short is valued at once.
    let slots = format!("(LIMIT > 0 ? ({} + LIMIT - 1) / LIMIT : 0)", settings.num_steps);
    let _ = writeln!(text, "#define SLOTS {}", if hosted { "1" } else { &slots });
    let before = [include_str!("../normalise.cu"), include_str!("../rollout.cu"), include_str!("../playing.cu")];
    before.iter().chain(texts).for_each(|part| text.push_str(part));
    text
}

/// The text of an env's functions, or of what is known of one that the host steps; and whether it does.
pub(super) fn text_of(env: &mut dyn VecEnv) -> (String, bool) {
    match env.on_gpu().map(|envs| envs.source()) {
        Some(text) => (text, false),
        None => (emit::hosted_source(env.spec()), true),
    }
}

/// A network that plays. `P` is what runs it for some of the envs, `A` what kernels are told.
pub(super) trait Network<A, P> {
    /// What the kernels of step t are told.
    fn args(&self, now: &Now<'_>, player: &P, t: usize) -> A;
    /// Runs it on what the envs show.
    fn forward(&self, player: &P) -> Result<()>;
    /// Takes over the state that step t led to.
    fn remember(&self, _: &Now<'_>, _: &P, _: usize) -> Result<()> {
        Ok(())
    }
    /// Settles values of what the envs show, of the row after the last.
    fn settle(&self, now: &Now<'_>, player: &P) -> Result<()>;
    /// Values what was cut short, of a slot.
    fn settle_cut(&self, now: &Now<'_>, player: &P, slot: usize) -> Result<()>;
}

/// What plays envs of the GPU.
pub(super) struct Resident<A, P> {
    player: P,
    observe: Kernel<A>,
    act: Kernel<A>,
    slots: usize,
}

impl<A: KernelParams, P> Resident<A, P> {
    pub(super) fn new(module: &Module, player: P, slots: usize) -> Result<Self> {
        Ok(Self { player, observe: module.kernel("observe")?, act: module.kernel("act")?, slots })
    }

    /// Plays T steps of all envs.
    pub(super) fn play(&self, network: &impl Network<A, P>, now: &Now<'_>) -> Result<()> {
        let (player, blocks) = (&self.player, now.num_envs.div_ceil(THREADS) as u32);
        self.observe.launch(blocks, THREADS as u32, &network.args(now, player, 0))?;
        for t in 0..now.settings.num_steps {
            network.forward(player)?;
            self.act.launch(blocks, THREADS as u32, &network.args(now, player, t))?;
            network.remember(now, player, t)?;
            now.normaliser.merge(1)?;
        }
        network.forward(player)?;
        network.settle(now, player)?;
        (0..self.slots).try_for_each(|slot| network.settle_cut(now, player, slot))
    }
}

/// Values in the GPU's memory, of `rows` envs from `first` on, `stride` numbers apart; `bias` is what each lacks, or nothing.
pub(super) struct Values {
    pub(super) at: DevicePtr,
    pub(super) stride: usize,
    pub(super) bias: DevicePtr,
    pub(super) first: usize,
    pub(super) rows: usize,
}

/// What is kept beside a network.
pub(super) struct Playing {
    /// Episodes of an env that may be cut short in one rollout.
    pub(super) slots: usize,
    settle: Kernel<SettleArgs>,
    /// `Now` of `playing.cu`.
    pub(super) now: Buffer<u32>,
    cut_at: Buffer<u32>,
    cuts: Buffer<u32>,
    /// `[updates, 2]`
    scales: Buffer<f32>,
}

/// Room for `Now` of `playing.cu`.
pub(super) fn now_buffer(gpu: &Arc<Gpu>) -> Result<Buffer<u32>> {
    Buffer::new(gpu, NOW_WORDS, "settings", "num_envs")
}

/// Episodes of an env that may be cut short before they are valued.
pub(super) fn slots(hosted: bool, time_limit: Option<u32>, steps: usize) -> usize {
    match hosted {
        true => 1,
        false => time_limit.map_or(0, |limit| steps.div_ceil((limit as usize).max(1))),
    }
}

impl Playing {
    pub(super) fn new(gpu: &Arc<Gpu>, module: &Module, num_envs: usize, slots: usize) -> Result<Self> {
        let words = |len| Buffer::new(gpu, len, "ends of episodes", "num_envs");
        Ok(Self {
            slots,
            settle: module.kernel("settle")?,
            now: now_buffer(gpu)?,
            cut_at: words(slots * num_envs)?,
            cuts: words(num_envs)?,
            scales: Buffer::new(gpu, 2 * MAX_UPDATES, "scales of advantages", "num_envs")?,
        })
    }

    /// Of step t; `told` is where `Now` lies, then come parameters, outputs and values.
    pub(super) fn args(&self, now: &Now<'_>, told: &Buffer<u32>, net: [DevicePtr; 3], t: usize) -> PlayArgs {
        let [params, outputs, values] = net;
        PlayArgs {
            envs: now.envs,
            rollout: now.rollout,
            finished: now.finished,
            normaliser: now.normaliser.pointers(),
            now: told.pointer(),
            params,
            outputs,
            values,
            cut_at: self.cut_at.pointer(),
            cuts: self.cuts.pointer(),
            seed: now.seed,
            t: t as u32,
            gamma: now.settings.gamma as f32,
        }
    }

    /// Settles values of the row after the last, or, with a slot, of what was cut short.
    pub(super) fn settle(&self, now: &Now<'_>, values: &Values, slot: Option<usize>) -> Result<()> {
        let args = SettleArgs {
            rollout: now.rollout,
            values: values.at,
            bias: values.bias,
            cut_at: slot.map_or(DevicePtr::NONE, |slot| self.cut_at.pointer().offset(4 * slot * now.num_envs)),
            envs: now.num_envs as u32,
            steps: now.settings.num_steps as u32,
            first: values.first as u32,
            rows: values.rows as u32,
            gamma: now.settings.gamma as f32,
            stride: values.stride as u32,
        };
        self.settle.launch(values.rows.div_ceil(THREADS) as u32, THREADS as u32, &args)
    }

    /// Of the first minibatch.
    pub(super) fn minibatch(&self, now: &Now<'_>, normalise: bool) -> MinibatchArgs {
        MinibatchArgs {
            rollout: now.rollout,
            now: self.now.pointer(),
            scales: self.scales.pointer(),
            update: 0,
            minibatches: now.minibatches() as u32,
            of_minibatch: now.settings.minibatch_size as u32,
            normalise: u32::from(normalise),
        }
    }
}

impl Now<'_> {
    /// Tells the GPU what differs in this iteration: gradients are `share` of their sums.
    pub(super) fn tell(
        &self,
        to: &Buffer<u32>,
        share: f32,
        factors: [f32; 2],
        orders: &[[u32; 12]; MAX_EPOCHS],
    ) -> Result<()> {
        let adam = Adam {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: BETA2,
            eps: self.settings.adam_eps as f32,
            max_norm: self.settings.max_grad_norm as f32,
            share,
            step: self.adam_step(),
        };
        let mut words = [0; NOW_WORDS];
        words[..Adam::WORDS].copy_from_slice(&adam.words());
        words[7] = self.iteration.wrapping_mul(self.settings.num_steps as u32);
        words[8..10].copy_from_slice(&factors.map(f32::to_bits));
        words[WORDS_BEFORE..].copy_from_slice(orders.as_flattened());
        to.upload(&words)
    }
}

/// What a half of an iteration is launched by: kernel by kernel the first time, then as graphs, one for each place of a rollout.
#[derive(Default)]
pub(super) struct Half {
    /// Whether kernels have run once, so that their code is loaded.
    ran: Cell<bool>,
    graphs: RefCell<[Option<Graph>; 2]>,
}

impl Half {
    /// Queues its work in the stream of `gpu`, for a rollout in this place.
    pub(super) fn launch(&self, gpu: &Arc<Gpu>, place: usize, queue: impl Fn() -> Result<()>) -> Result<()> {
        if !self.ran.replace(true) {
            return queue();
        }
        let graph = &mut self.graphs.borrow_mut()[place];
        match graph {
            Some(graph) => graph.launch(),
            none => none.insert(Graph::record(gpu, queue)?).launch(),
        }
    }
}
