//! Networks of any kind, with a memory or convolutions too: plans run them (`nn/plan/cuda.rs`), the kernels of `planned.cu` do what
//! surrounds them.
//!
//! One plan acts, another learns from minibatches that are gathered on the GPU, whole sequences where the network has a memory. States of a
//! memory lie beside the rollout, are forgotten where episodes end, and are those of the CPU in a checkpoint. The first iteration
//! launches kernel by kernel, the second is recorded, as in `wide.rs`.

use super::playing::{self, Half, MinibatchArgs, Network, PlayArgs, Playing, Resident, THREADS, Values};
use super::staged::Staging;
use super::*;
use crate::algo::ppo::heads::HeadWatch;
use crate::algo::ppo::{Loss, loss_graph, row_steps};
use operant_nn::cuda::Descent;
use operant_nn::nets::Net;
use operant_nn::ops::PPO_STATISTICS;
use operant_nn::{CudaPlan, Networks, Node, Setup, Shared, Wanted};

/// Most parts of a state.
const MOST_STATES: usize = 2;

/// What the plans are of.
pub(super) struct PlannedShape {
    architecture: Architecture,
    head: Head,
    masked: bool,
    precision: Precision,
    hosted: bool,
    obs: usize,
}

/// A network and its loss, as graphs.
struct Graphs {
    net: Net,
    learns: Loss,
    /// Steps of a row that is learned from.
    row_steps: usize,
}

impl Graphs {
    /// What is wanted of the plan that acts.
    fn acting(&self) -> Wanted {
        let outputs = self.net.outputs.iter().map(|(_, node)| *node).chain(self.after().iter().copied()).collect();
        Wanted { outputs, ..Wanted::default() }
    }

    fn learning(&self) -> Wanted {
        Wanted { losses: vec![(self.learns.loss, 1.0)], metrics: vec![self.learns.statistics], ..Wanted::default() }
    }

    /// The state after a step.
    fn after(&self) -> &[Node] {
        self.net.memory.as_ref().map_or(&[], |memory| &memory.after)
    }
}

impl PlannedShape {
    /// The shape of a network for an env, or what of it has no kernel.
    pub(super) fn new(
        architecture: &Architecture,
        spec: &Spec,
        settings: &Settings,
        precision: Precision,
        hosted: bool,
    ) -> Result<Self> {
        if !matches!(architecture, Architecture::ActorCritic { .. }) {
            return Err(unserved("a network that is not an actor and a critic"));
        }
        if settings.overlap {
            return Err(Error::Invalid(
                "ppo.overlap = true with a network that plans run (a memory, convolutions, several choices): wanted false".into(),
            ));
        }
        if HeadWatch::new(spec).is_some() {
            return Err(unserved("an action of choices that do not always matter"));
        }
        let obs = spec.observation.len();
        // Tensors of bf16 would round logits and values that are compared with those of the rollout.
        let precision = if precision == Precision::F32 { Precision::F32 } else { Precision::Tf32 };
        let (architecture, head) = (architecture.clone(), Head::new(spec));
        let shape = Self { architecture, head, masked: spec.masked, precision, hosted, obs };
        let graphs = shape.graphs(settings)?;
        let mut missing = CudaPlan::missing(&graphs.net.graph, &graphs.acting(), precision)?;
        missing.extend(CudaPlan::missing(&graphs.learns.graph, &graphs.learning(), precision)?);
        missing.sort();
        missing.dedup();
        if missing.is_empty() { Ok(shape) } else { Err(unserved(&format!("op {}", missing.join(", ")))) }
    }

    /// In words what its products are, where that is not what was asked for.
    pub(super) fn note(&self, asked: Precision) -> Option<String> {
        (asked != self.precision).then(|| {
            format!(
                "plans run this network on the GPU, with products of {} in place of {}",
                self.precision.name(),
                asked.name()
            )
        })
    }

    fn graphs(&self, settings: &Settings) -> Result<Graphs> {
        let net = self.architecture.build()?;
        let row_steps = row_steps(&net, settings)?;
        let learned = if net.memory.is_some() { self.architecture.build_sequences(row_steps)? } else { net.clone() };
        let learns = loss_graph(&learned, &self.head, self.masked, row_steps, settings.coefficients())?;
        Ok(Graphs { net, learns, row_steps })
    }

    /// Parts of a memory's state, and numbers of each.
    fn memory(net: &Net) -> [usize; 2] {
        net.memory.as_ref().map_or([0, 0], |memory| [memory.after.len(), memory.size])
    }

    /// The kernels' text, behind that of the env's.
    pub(super) fn source(&self, env: &str, params: &Params, settings: &Settings) -> Result<String> {
        let [states, hidden] = Self::memory(&self.architecture.build()?);
        let heads = match &self.head {
            Head::Choices(heads) => heads.clone(),
            Head::Gaussian(_) => vec![],
        };
        let outputs = if self.head.continuous() { self.head.dims() } else { heads.iter().sum() };
        let log_std = params.specs().iter().find(|spec| spec.name == "log_std").map(|spec| spec.offset);
        if self.head.continuous() && log_std.is_none() {
            return Err(Error::Invalid("a network without log_std".into()));
        }
        let numbers = [
            ("OUT", outputs),
            ("HEADS", heads.len()),
            ("CONTINUOUS", usize::from(self.head.continuous())),
            ("LOG_STD", log_std.unwrap_or(0)),
            ("STATES", states),
            ("HIDDEN", hidden),
            ("ACT_BYTES", size_of::<ActArgs>()),
            ("REMEMBER_BYTES", size_of::<RememberArgs>()),
            ("BATCH_BYTES", size_of::<BatchArgs>()),
            ("SUM_UP_BYTES", size_of::<SumUpArgs>()),
        ];
        let sizes: Vec<String> = heads.iter().map(usize::to_string).collect();
        let sizes = format!("#define HEAD_SIZES {{{}}}\n", sizes.join(", "));
        Ok(playing::source(env, self.hosted, settings, &numbers, &[&sizes, include_str!("../planned.cu")]))
    }
}

/// The kernels around plans that train an env with such a network, as CUDA C; `hosted` if the CPU steps the env.
pub fn planned_source(
    entry: &env::Entry,
    network: &NetworkSettings,
    settings: &Settings,
    precision: Precision,
    hosted: bool,
) -> Result<String> {
    let spec = entry.spec();
    let architecture = network.architecture(&spec, None)?;
    let params = architecture.build()?.graph.params(0)?;
    let text = if hosted { emit::hosted_source(&spec) } else { env_source(entry)? };
    PlannedShape::new(&architecture, &spec, settings, precision, hosted)?.source(&text, &params, settings)
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ActArgs {
    play: PlayArgs,
    cut_obs: DevicePtr,
    cut_slot: DevicePtr,
    row: DevicePtr,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct RememberArgs {
    rollout: RolloutPointers,
    cut_slot: DevicePtr,
    state: [DevicePtr; MOST_STATES],
    after: [DevicePtr; MOST_STATES],
    cut: [DevicePtr; MOST_STATES],
    envs: u32,
    first: u32,
    rows: u32,
    t: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct PointArgs {
    row: DevicePtr,
    value: u32,
    unused: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct BatchArgs {
    batch: MinibatchArgs,
    before: [DevicePtr; MOST_STATES],
    state: [DevicePtr; MOST_STATES],
    obs: DevicePtr,
    resets: DevicePtr,
    log_prob: DevicePtr,
    advantage: DevicePtr,
    returns: DevicePtr,
    value: DevicePtr,
    legal: DevicePtr,
    factors: DevicePtr,
    action: DevicePtr,
    envs: u32,
    steps: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct SumUpArgs {
    sums: DevicePtr,
    report: DevicePtr,
    steps: u32,
    share: f32,
}

impl KernelParams for ActArgs {}
impl KernelParams for RememberArgs {}
impl KernelParams for PointArgs {}
impl KernelParams for BatchArgs {}
impl KernelParams for SumUpArgs {}

/// Plans that act for some envs.
struct Player {
    first: usize,
    count: usize,
    plan: CudaPlan,
    /// What values the last observations of episodes that were cut short, where there may be such.
    ends: Option<(CudaPlan, DevicePtr)>,
    outputs: DevicePtr,
    values: DevicePtr,
    after: [DevicePtr; MOST_STATES],
}

/// States of a memory: each part `[N, H]` as it is now and before the rollout, and `[slots, N, H]` where episodes were cut short.
struct Memory {
    size: usize,
    state: Vec<Buffer<f32>>,
    before: Vec<Buffer<f32>>,
    cut: Vec<Buffer<f32>>,
}

/// A pointer for each part of a state, or none.
fn parts_of(buffers: &[Buffer<f32>]) -> [DevicePtr; MOST_STATES] {
    std::array::from_fn(|part| buffers.get(part).map_or(DevicePtr::NONE, Buffer::pointer))
}

/// Where a plan's output lies.
fn output(plan: &CudaPlan, node: Node) -> Result<DevicePtr> {
    let place = plan.output(node).map(|(place, _)| place);
    place.ok_or_else(|| Error::Device("a plan without an output that was wanted of it".into()))
}

impl Memory {
    fn new(gpu: &Arc<Gpu>, [states, size]: [usize; 2], n: usize, slots: usize) -> Result<Self> {
        let part = |len| Buffer::new(gpu, len, "states of a memory", "num_envs or network.memory_size");
        let each = |len: usize| (0..states).map(|_| part(len)).collect::<Result<Vec<_>>>();
        Ok(Self { size, state: each(n * size)?, before: each(n * size)?, cut: each(slots * n * size)? })
    }
}

/// Networks that plans run, and the kernels around them.
pub(super) struct Planned {
    gpu: Arc<Gpu>,
    num_envs: usize,
    row_steps: usize,
    networks: Arc<Networks>,
    descent: Descent,
    /// One of the two: kernels step the envs, or the host does.
    resident: Option<Resident<ActArgs, Player>>,
    staging: Option<Staging<ActArgs, Player>>,
    learner: CudaPlan,
    /// Where sums of the statistics lie.
    statistics: DevicePtr,
    /// Whether the learner has masks among its inputs.
    masked: bool,
    memory: Memory,
    remember: Kernel<RememberArgs>,
    point: Kernel<PointArgs>,
    scale: Kernel<BatchArgs>,
    gather: Kernel<BatchArgs>,
    sum_up: Kernel<SumUpArgs>,
    playing: Playing,
    cut_obs: Buffer<f32>,
    cut_slot: Buffer<u32>,
    collecting: Half,
    updating: Half,
}

impl Planned {
    /// Plans all, and compiles the kernels; the module has those that every network shares. Rollouts lie in `buffers`.
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        env: &mut dyn VecEnv,
        shape: &PlannedShape,
        params: &Params,
        settings: &Settings,
        buffers: &Buffers,
    ) -> Result<(Self, Module)> {
        let (n, spec, obs) = (env.num_envs(), env.spec().clone(), shape.obs);
        let source = shape.source(&playing::text_of(env).0, params, settings)?;
        let module = gpu.load(&format!("planned-{}", spec.name), &source, Math::Fast)?;
        env.on_gpu().map_or(Ok(()), |envs| envs.prepare())?;
        let graphs = shape.graphs(settings)?;
        let networks = Networks::new(gpu, &graphs.net.graph, 1)?;
        let slots = playing::slots(shape.hosted, spec.time_limit, settings.num_steps);
        let memory = Memory::new(gpu, PlannedShape::memory(&graphs.net), n, slots)?;
        let rows = "num_envs or ppo.num_steps";
        let cut_obs: Buffer<f32> = Buffer::new(gpu, slots * n * obs, "last observations", rows)?;
        let observed = buffers.rollout(0).obs.pointer();
        let player = |first: usize, count: usize| -> Result<Player> {
            let plan_of = |wanted: &Wanted, seen: DevicePtr, states: &[Buffer<f32>], stride: usize| {
                let shared = |input: usize, at: DevicePtr, width: usize, stride: usize| Shared {
                    input,
                    at: at.offset(4 * first * width),
                    stride,
                };
                let parts = states.iter().enumerate();
                let parts = parts.map(|(part, state)| shared(1 + part, state.pointer(), memory.size, stride));
                let shared: Vec<Shared> = [shared(0, seen, obs, n * obs)].into_iter().chain(parts).collect();
                let setup = Setup {
                    groups: 1,
                    max_rows: count,
                    parts: 0,
                    precision: shape.precision,
                    shared: &shared,
                    pixels: false,
                    leaders: 0,
                    apart: &[],
                    fuse: true,
                };
                CudaPlan::new(&graphs.net.graph, wanted, &networks, &setup)
            };
            // States stay where they are; those of episodes that were cut short lie slot by slot.
            let plan = plan_of(&graphs.acting(), observed, &memory.state, 0)?;
            let [outputs, value] = [graphs.net.outputs[0].1, graphs.net.outputs[1].1];
            let ends = match slots {
                0 => None,
                _ => {
                    let wanted = Wanted { outputs: vec![value], ..Wanted::default() };
                    let ends = plan_of(&wanted, cut_obs.pointer(), &memory.cut, n * memory.size)?;
                    let values = output(&ends, value)?;
                    Some((ends, values))
                }
            };
            let mut after = [DevicePtr::NONE; MOST_STATES];
            for (to, node) in after.iter_mut().zip(graphs.after()) {
                *to = output(&plan, *node)?;
            }
            let (outputs, values) = (output(&plan, outputs)?, output(&plan, value)?);
            Ok(Player { first, count, plan, ends, outputs, values, after })
        };
        let setup = Setup {
            groups: 1,
            max_rows: settings.minibatch_size / graphs.row_steps,
            parts: 0,
            precision: shape.precision,
            shared: &[],
            pixels: false,
            leaders: 0,
            apart: &[],
            fuse: true,
        };
        let learner = CudaPlan::new(&graphs.learns.graph, &graphs.learning(), &networks, &setup)?;
        let statistics = learner.metric_place(graphs.learns.statistics);
        let statistics = statistics.ok_or_else(|| Error::Device("a plan without statistics".into()))?;
        let planned = Self {
            // A warp for each of the host's envs.
            staging: match shape.hosted {
                true => Some(Staging::new(gpu, &module, env, 32, player)?),
                false => None,
            },
            resident: match shape.hosted {
                true => None,
                false => Some(Resident::new(&module, player(0, n)?, slots)?),
            },
            statistics: learner.sums().pointer().offset(4 * statistics),
            learner,
            masked: shape.masked,
            remember: module.kernel("remember")?,
            point: module.kernel("point")?,
            scale: module.kernel("scale")?,
            gather: module.kernel("gather")?,
            sum_up: module.kernel("sum_up")?,
            playing: Playing::new(gpu, &module, n, slots)?,
            cut_slot: Buffer::new(gpu, n, "ends of episodes", "num_envs")?,
            cut_obs,
            descent: Descent::new(gpu, networks.len())?,
            networks,
            memory,
            num_envs: n,
            row_steps: graphs.row_steps,
            collecting: Half::default(),
            updating: Half::default(),
            gpu: Arc::clone(gpu),
        };
        Ok((planned, module))
    }

    /// Warps of the kernels that add up for the normaliser.
    pub(super) fn warps(shape: &PlannedShape, settings: &Settings, num_envs: usize) -> usize {
        match (shape.hosted, settings.normalize_obs || settings.normalize_reward) {
            (true, true) => num_envs,
            (true, false) => 1,
            (false, _) => num_envs.div_ceil(32),
        }
    }

    /// Tells the GPU what differs in this iteration.
    fn tell(&self, now: &Now<'_>) -> Result<()> {
        let mut orders = now.orders();
        if self.has_memory() {
            // Of envs, as on the CPU.
            for (epoch, order) in orders.iter_mut().enumerate().take(now.settings.update_epochs as usize) {
                *order = Shuffle::new(now.num_envs, now.seed, now.iteration, epoch as u32).words();
            }
        }
        now.tell(&self.playing.now, 1.0, now.factors, &orders)
    }

    fn has_memory(&self) -> bool {
        !self.memory.state.is_empty()
    }

    /// Settles values of a player's envs.
    fn settle_values(&self, now: &Now<'_>, player: &Player, at: DevicePtr, slot: Option<usize>) -> Result<()> {
        let values = Values { at, stride: 1, bias: DevicePtr::NONE, first: player.first, rows: player.count };
        self.playing.settle(now, &values, slot)
    }

    /// Keeps the states that the rollout begins with.
    fn keep_states(&self) -> Result<()> {
        self.memory.before.iter().zip(&self.memory.state).try_for_each(|(to, from)| to.copy_from(from))
    }

    fn batch_args(&self, now: &Now<'_>) -> BatchArgs {
        let settings = now.settings;
        let mut inputs = 0;
        let mut next = || {
            inputs += 1;
            self.learner.feed(inputs - 1).map_or(DevicePtr::NONE, Buffer::pointer)
        };
        let none = DevicePtr::NONE;
        let obs = next();
        let state = std::array::from_fn(|part| if part < self.memory.state.len() { next() } else { none });
        let resets = if self.has_memory() { next() } else { none };
        let [action, log_prob, advantage, returns, value] = std::array::from_fn(|_| next());
        let legal = if self.masked { next() } else { none };
        let factors = next();
        BatchArgs {
            batch: self.playing.minibatch(now, settings.norm_adv && settings.minibatch_size > 1),
            before: parts_of(&self.memory.before),
            state,
            obs,
            resets,
            log_prob,
            advantage,
            returns,
            value,
            legal,
            factors,
            action,
            envs: now.num_envs as u32,
            steps: settings.num_steps as u32,
        }
    }

    fn launch_learning(&self, now: &Now<'_>) -> Result<()> {
        let mut args = self.batch_args(now);
        let updates = now.settings.update_epochs * args.batch.minibatches;
        self.scale.launch(updates, 1024, &args)?;
        let (params, how) = ([self.networks.values().pointer(), DevicePtr::NONE], args.batch.now);
        for update in 0..updates {
            args.batch.update = update;
            self.gather.launch(args.batch.of_minibatch.div_ceil(THREADS as u32 / 32), THREADS as u32, &args)?;
            self.learner.run(|_| true)?;
            self.descent.step(params, self.learner.sums().pointer(), how, now.report.offset(4 * 6), update)?;
        }
        let sums = SumUpArgs {
            sums: self.statistics,
            report: now.report,
            steps: self.row_steps as u32,
            share: 1.0 / now.settings.minibatch_size as f32,
        };
        self.sum_up.launch(1, 32, &sums)
    }
}

// `sum_up` has a thread for each.
const _: () = assert!(PPO_STATISTICS == 6 && PPO_STATISTICS < STATISTICS);

impl Network<ActArgs, Player> for Planned {
    fn args(&self, now: &Now<'_>, player: &Player, t: usize) -> ActArgs {
        let net = [self.networks.values().pointer(), player.outputs, player.values];
        ActArgs {
            play: self.playing.args(now, &self.playing.now, net, t),
            cut_obs: self.cut_obs.pointer(),
            cut_slot: self.cut_slot.pointer(),
            row: player.plan.samples_of().pointer(),
        }
    }

    fn forward(&self, player: &Player) -> Result<()> {
        player.plan.run(|_| true).map(drop)
    }

    fn remember(&self, now: &Now<'_>, player: &Player, t: usize) -> Result<()> {
        if !self.has_memory() {
            return Ok(());
        }
        let args = RememberArgs {
            rollout: now.rollout,
            cut_slot: self.cut_slot.pointer(),
            state: parts_of(&self.memory.state),
            after: player.after,
            cut: parts_of(&self.memory.cut),
            envs: now.num_envs as u32,
            first: player.first as u32,
            rows: player.count as u32,
            t: t as u32,
        };
        self.remember.launch((player.count * self.memory.size).div_ceil(THREADS) as u32, THREADS as u32, &args)
    }

    fn settle(&self, now: &Now<'_>, player: &Player) -> Result<()> {
        self.settle_values(now, player, player.values, None)
    }

    fn settle_cut(&self, now: &Now<'_>, player: &Player, slot: usize) -> Result<()> {
        let Some((ends, values)) = &player.ends else { return Ok(()) };
        if self.playing.slots > 1 {
            let args = PointArgs { row: ends.samples_of().pointer(), value: slot as u32, unused: 0 };
            self.point.launch(1, 1, &args)?;
        }
        ends.run(|_| true)?;
        self.settle_values(now, player, *values, Some(slot))
    }
}

impl Learner for Planned {
    fn send(&mut self, params: &[f32], moments: [&[f32]; 2]) -> Result<()> {
        self.networks.values().upload(params)?;
        self.descent.send(moments)
    }

    fn fetch_params(&self, to: &mut [f32]) -> Result<()> {
        self.networks.values().download(0, to)
    }

    fn fetch_moments(&self, to: [&mut [f32]; 2]) -> Result<()> {
        self.descent.fetch(to)
    }

    fn collect(&mut self, now: &Now<'_>, env: &mut dyn VecEnv) -> Result<()> {
        self.tell(now)?;
        let network = &*self;
        if let Some(resident) = &network.resident {
            return network.collecting.launch(&network.gpu, 0, || {
                network.keep_states()?;
                resident.play(network, now)
            });
        }
        if env.failure().is_some() {
            self.memory.state.iter().try_for_each(Buffer::zero)?;
        }
        self.keep_states()?;
        let Some(mut staging) = self.staging.take() else { return Ok(()) };
        let result = staging.play(&*self, now, env);
        self.staging = Some(staging);
        result
    }

    fn renew(&mut self) -> Result<()> {
        Ok(())
    }

    fn learn(&mut self, now: &Now<'_>) -> Result<()> {
        self.updating.launch(&self.gpu, 0, || self.launch_learning(now))
    }

    fn memory(&self) -> Result<Vec<f32>> {
        let len = self.num_envs * self.memory.size;
        let mut numbers = vec![0.0; len * self.memory.state.len()];
        let parts = numbers.chunks_mut(len.max(1)).zip(&self.memory.state);
        parts.into_iter().try_for_each(|(to, state)| state.download(0, to))?;
        Ok(numbers)
    }

    fn set_memory(&mut self, numbers: &[f32]) -> Result<()> {
        let len = self.num_envs * self.memory.size;
        numbers.chunks(len.max(1)).zip(&self.memory.state).try_for_each(|(from, state)| state.upload(from))
    }
}
