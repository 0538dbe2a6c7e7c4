//! Networks of any width and depth: layers by `nn::cuda`, what surrounds them by the kernels of `wide.cu`.
//!
//! The first iteration launches kernel by kernel, which loads all code; the second is recorded as two graphs, of collecting and of
//! learning, which run from then on. What differs between iterations lies in the GPU's memory. Where the next rollout is played beside
//! learning, it has networks of its own, in a stream of its own.

use super::staged::{StageArgs, Staging};
use super::*;
use crate::device::cuda::{Graph, Operands};
use crate::nn::cuda::{Adam, Layout, Mlp, NUMBERS, Pass, Sums, Workspace, layers_source, operands_of, pitch_of};
use std::fmt::Write as _;

/// Threads of a block.
const THREADS: usize = 128;
/// Most logits, or numbers of an action.
const MOST_OUTPUTS: usize = 64;
/// Samples that go through the networks at once: what lies between layers then stays in the GPU's cache.
const CHUNK: usize = 8192;
/// Words of `Now` before its orders.
const NOW_WORDS: usize = 12;

/// What the kernels are compiled for.
#[derive(Clone, Debug)]
pub(super) struct WideShape {
    obs: usize,
    outputs: usize,
    continuous: bool,
    activation: Act,
    precision: Precision,
}

impl WideShape {
    /// The shape of a network for an env, or what of it has no kernel.
    pub(super) fn new(architecture: &Architecture, spec: &Spec, precision: Precision) -> Result<Self, String> {
        let Architecture::ActorCritic { inputs, hidden, actions, activation, continuous, memory, image } = architecture
        else {
            return Err("a network that is not an actor and a critic".into());
        };
        if memory.is_some() {
            return Err("network.memory (op recurrent)".into());
        }
        if image.is_some() {
            return Err("network.encoder = conv (op conv2d)".into());
        }
        layers_source(operands_of(precision), *activation).map_err(|error| format!("network.activation: {error},"))?;
        if !continuous && spec.action.dims() != 1 {
            return Err(format!("an action of {} choices at a time", spec.action.dims()));
        }
        if *actions > MOST_OUTPUTS {
            return Err(format!("an action of {actions} numbers or choices, more than {MOST_OUTPUTS},"));
        }
        if hidden.len() > 15 {
            return Err(format!("network.hidden of {} layers, more than 15,", hidden.len()));
        }
        Ok(Self { obs: *inputs, outputs: *actions, continuous: *continuous, activation: *activation, precision })
    }

    /// Where parameters lie.
    pub(super) fn layout(&self, params: &Params) -> Result<Layout> {
        Layout::new(params, &["actor", "critic"], if self.continuous { &["log_std"] } else { &[] })
    }

    /// Episodes of an env that may be truncated in one rollout.
    pub(super) fn slots(time_limit: Option<u32>, steps: usize) -> usize {
        time_limit.map_or(0, |limit| steps.div_ceil((limit as usize).max(1)))
    }

    /// The kernels' text, behind that of the env's; `hosted` if the host steps the envs.
    pub(super) fn source(&self, env: &str, hosted: bool, layout: &Layout, settings: &Settings) -> Result<String> {
        let mut text = format!("#define FUNCTIONS_ONLY\n{env}");
        let operands = operands_of(self.precision);
        let numbers = [
            ("COLLECTING", 1),
            ("LEARNING", 2),
            ("PART", Part::Wide as usize),
            ("SIXTEEN", usize::from(operands.bytes() == 2)),
            ("F16", usize::from(operands == Operands::F16)),
            ("OUT", self.outputs),
            ("OUT_PITCH", layout.output_pitch()),
            ("OBS_PITCH", pitch_of(self.obs)),
            ("CONTINUOUS", usize::from(self.continuous)),
            ("ACTOR_BIAS", layout.last_bias(0)),
            ("CRITIC_BIAS", layout.last_bias(1)),
            ("LOG_STD", layout.extra("log_std").unwrap_or(0)),
            ("THREADS", THREADS),
            ("TOLD", TOLD),
            ("STATISTICS", STATISTICS),
            ("MAX_EPOCHS", MAX_EPOCHS),
            ("ESTIMATE_BYTES", size_of::<EstimateArgs>()),
            ("TELL_BYTES", size_of::<TellArgs>()),
            ("MERGE_BYTES", size_of::<normalise::MergeArgs>()),
            ("NOW_BYTES", 4 * (NOW_WORDS + 12 * MAX_EPOCHS)),
            ("ACT_BYTES", size_of::<ActArgs>()),
            ("SETTLE_BYTES", size_of::<SettleArgs>()),
            ("STAGE_BYTES", size_of::<StageArgs<ActArgs>>()),
            ("HOSTED", usize::from(hosted)),
            ("BATCH_BYTES", size_of::<BatchArgs>()),
        ];
        for (name, value) in numbers.into_iter().chain(normalise::defines(settings)) {
            let _ = writeln!(text, "#define {name} {value}");
        }
        // LIMIT is the env's time limit, 0 for none. What the host's envs cut short is valued at once.
        let slots = format!("(LIMIT > 0 ? ({} + LIMIT - 1) / LIMIT : 0)", settings.num_steps);
        let _ = writeln!(text, "#define SLOTS {}", if hosted { "1" } else { &slots });
        for part in [
            include_str!("../normalise.cu"),
            NUMBERS,
            include_str!("../rollout.cu"),
            include_str!("../scales.cu"),
            include_str!("../wide.cu"),
        ] {
            text.push_str(part);
        }
        Ok(text)
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ActArgs {
    envs: EnvsPointers,
    rollout: RolloutPointers,
    finished: FinishedPointers,
    normaliser: NormaliserPointers,
    now: DevicePtr,
    params: DevicePtr,
    output: DevicePtr,
    input: DevicePtr,
    cut_input: DevicePtr,
    cut_at: DevicePtr,
    cuts: DevicePtr,
    seed: u64,
    t: u32,
    gamma: f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct SettleArgs {
    rollout: RolloutPointers,
    params: DevicePtr,
    output: DevicePtr,
    cut_at: DevicePtr,
    envs: u32,
    steps: u32,
    first: u32,
    rows: u32,
    gamma: f32,
    unused: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct BatchArgs {
    rollout: RolloutPointers,
    now: DevicePtr,
    params: DevicePtr,
    output: DevicePtr,
    input: DevicePtr,
    d_output: DevicePtr,
    scales: DevicePtr,
    statistics: DevicePtr,
    by_log_std: DevicePtr,
    update: u32,
    minibatches: u32,
    of_minibatch: u32,
    first: u32,
    rows: u32,
    adds: u32,
    normalise: u32,
    clip_value: u32,
    value: f32,
    unused: f32,
}

impl KernelParams for ActArgs {}
impl KernelParams for SettleArgs {}
impl KernelParams for BatchArgs {}

/// What plays envs of the GPU.
struct Resident {
    pass: Pass,
    observe: Kernel<ActArgs>,
    act: Kernel<ActArgs>,
}

/// The networks as they were when an iteration began, which play beside learning.
struct Acting {
    gpu: Arc<Gpu>,
    mlp: Mlp,
    workspace: Workspace,
    now: Buffer<u32>,
}

/// What a half of an iteration is launched by: kernel by kernel the first time, then as graphs, one for each place of a rollout.
#[derive(Default)]
pub(super) struct Half {
    /// Whether kernels have run once, so that their code is loaded.
    ran: bool,
    graphs: [Option<Graph>; 2],
}

/// The networks in the GPU's memory, and the kernels around them.
pub(super) struct Wide {
    shape: WideShape,
    gpu: Arc<Gpu>,
    mlp: Mlp,
    workspace: Workspace,
    /// One of the two: kernels step the envs, or the host does.
    resident: Option<Resident>,
    staging: Option<Staging<ActArgs, Pass>>,
    /// For the first chunks of a minibatch, and for the last where it is smaller.
    learning: Vec<Pass>,
    settle: Kernel<SettleArgs>,
    scale: Kernel<BatchArgs>,
    gather: Kernel<BatchArgs>,
    loss: Kernel<BatchArgs>,
    /// `Now` of `wide.cu`.
    now: Buffer<u32>,
    slots: usize,
    cut_input: Buffer<u8>,
    cut_at: Buffer<u32>,
    cuts: Buffer<u32>,
    /// `[updates, 2]`
    scales: Buffer<f32>,
    statistics: Buffer<f32>,
    by_log_std: Buffer<f32>,
    /// Where rollouts are played beside learning.
    acting: Option<Acting>,
    collecting: Half,
    updating: Half,
}

/// Rows of the chunks of a minibatch: as many of the first size as fit, then what is left.
fn chunks(minibatch: usize, most: usize) -> (usize, usize) {
    let count = minibatch.div_ceil(most);
    let rows = (minibatch / TILE).div_ceil(count) * TILE;
    (rows, minibatch % rows)
}

impl Wide {
    /// Compiles the kernels; the module has those that every network shares, for collecting, which is done in the stream of `collector` if
    /// there is one. Envs that are not on the GPU are stepped by the host.
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        env: &mut dyn VecEnv,
        shape: WideShape,
        params: &Params,
        settings: &Settings,
        collector: Option<&Arc<Gpu>>,
    ) -> Result<(Self, Module)> {
        let (n, layout, spec) = (env.num_envs(), shape.layout(params)?, env.spec().clone());
        let text = env.on_gpu().map(|envs| envs.source());
        let hosted = text.is_none();
        let source = shape.source(&text.unwrap_or_else(|| emit::hosted_source(&spec)), hosted, &layout, settings)?;
        let outputs = layout.output_pitch();
        // Both compilers at the same time.
        let (module, mlp) = std::thread::scope(|scope| {
            let at = collector.unwrap_or(gpu);
            let module = scope.spawn(move || at.load(&format!("wide-{}", spec.name), &source, Math::Fast));
            let mlp = Mlp::new(gpu, layout, shape.activation, shape.precision);
            let died = || Error::Device("a compiler's thread died".into());
            (module.join().unwrap_or_else(|_| Err(died())), mlp)
        });
        let (module, mlp) = (module?, mlp?);
        env.on_gpu().map_or(Ok(()), |envs| envs.prepare())?;
        let (rows, rest) = chunks(settings.minibatch_size, CHUNK);
        let mut learning = vec![mlp.pass(rows, true)?];
        if rest > 0 {
            learning.push(mlp.pass(rest, true)?);
        }
        let slots = if hosted { 1 } else { WideShape::slots(spec.time_limit, settings.num_steps) };
        let blocks = rows.div_ceil(THREADS);
        let small = |len, what| Buffer::new(gpu, len, what, "num_envs");
        let lower = "network.hidden or num_envs";
        let now_words = NOW_WORDS + 12 * MAX_EPOCHS;
        let acting = match collector {
            None => None,
            Some(gpu) => {
                let mlp = Mlp::new(gpu, mlp.layout().clone(), shape.activation, shape.precision)?;
                let now = Buffer::new(gpu, now_words, "settings", "num_envs")?;
                Some(Acting { gpu: Arc::clone(gpu), workspace: mlp.workspace(n, false, lower)?, mlp, now })
            }
        };
        let learns = module.on(gpu);
        let wide = Self {
            workspace: mlp.workspace(if acting.is_some() { rows } else { rows.max(n) }, true, lower)?,
            staging: match hosted {
                true => Some(Staging::new(gpu, &module, env, 1, |_, count| mlp.pass(count, false))?),
                false => None,
            },
            resident: match hosted {
                true => None,
                false => Some(Resident {
                    pass: acting.as_ref().map_or(&mlp, |acting| &acting.mlp).pass(n, false)?,
                    observe: module.kernel("observe")?,
                    act: module.kernel("act")?,
                }),
            },
            learning,
            settle: module.kernel("settle")?,
            scale: learns.kernel("scale")?,
            gather: learns.kernel("gather")?,
            loss: learns.kernel("loss")?,
            now: Buffer::new(gpu, now_words, "settings", "num_envs")?,
            slots,
            cut_input: Buffer::new(
                gpu,
                slots * n * pitch_of(shape.obs) * mlp.operand_bytes(),
                "last observations",
                "num_envs or ppo.num_steps",
            )?,
            cut_at: Buffer::new(gpu, slots * n, "ends of episodes", "num_envs")?,
            cuts: Buffer::new(gpu, n, "ends of episodes", "num_envs")?,
            scales: small(2 * MAX_UPDATES, "scales of advantages")?,
            statistics: small(blocks * STATISTICS, "statistics")?,
            by_log_std: small(blocks * outputs, "gradients")?,
            acting,
            collecting: Half::default(),
            updating: Half::default(),
            gpu: Arc::clone(gpu),
            mlp,
            shape,
        };
        Ok((wide, module))
    }

    /// The networks that play, what lies between their layers, and where they read what differs in this iteration.
    fn player(&self) -> (&Mlp, &Workspace, &Buffer<u32>) {
        let acting = self.acting.as_ref().map(|acting| (&acting.mlp, &acting.workspace, &acting.now));
        acting.unwrap_or((&self.mlp, &self.workspace, &self.now))
    }

    /// Tells the GPU what differs in this iteration.
    fn tell(&self, now: &Now<'_>, to: &Buffer<u32>) -> Result<()> {
        let settings = now.settings;
        let adam = Adam {
            learning_rate: now.learning_rate,
            beta1: now.beta1,
            beta2: BETA2,
            eps: settings.adam_eps as f32,
            max_norm: settings.max_grad_norm as f32,
            share: 1.0 / settings.minibatch_size as f32,
            step: now.adam_step(),
        };
        let mut words = [0; NOW_WORDS + 12 * MAX_EPOCHS];
        words[..Adam::WORDS].copy_from_slice(&adam.words());
        words[7] = now.iteration.wrapping_mul(settings.num_steps as u32);
        words[8] = now.clip().to_bits();
        words[9] = now.entropy().to_bits();
        for (to, from) in words[NOW_WORDS..].chunks_mut(12).zip(now.orders()) {
            to.copy_from_slice(&from);
        }
        to.upload(&words)
    }

    fn act_args(&self, now: &Now<'_>) -> ActArgs {
        let (mlp, workspace, differs) = self.player();
        ActArgs {
            envs: now.envs,
            rollout: now.rollout,
            finished: now.finished,
            normaliser: now.normaliser.pointers(),
            now: differs.pointer(),
            params: mlp.params(),
            output: workspace.output(),
            input: workspace.input(),
            cut_input: self.cut_input.pointer(),
            cut_at: self.cut_at.pointer(),
            cuts: self.cuts.pointer(),
            seed: now.seed,
            t: 0,
            gamma: now.settings.gamma as f32,
        }
    }

    /// Bytes of the observations of so many envs, as products read them.
    fn input_bytes(&self, envs: usize) -> usize {
        envs * pitch_of(self.shape.obs) * self.mlp.operand_bytes()
    }

    /// Values what lies at `input`, of envs from `first` on: their row after the last, or, with a place in `cut_at`, what was cut short.
    fn settle(&self, now: &Now<'_>, pass: &Pass, first: usize, input: DevicePtr, cut_at: DevicePtr) -> Result<()> {
        let ((mlp, workspace, _), rows) = (self.player(), pass.rows() as u32);
        let args = SettleArgs {
            rollout: now.rollout,
            params: mlp.params(),
            output: workspace.output(),
            cut_at,
            envs: now.num_envs as u32,
            steps: now.settings.num_steps as u32,
            first: first as u32,
            rows,
            gamma: now.settings.gamma as f32,
            unused: 0,
        };
        mlp.forward(workspace, pass, input)?;
        self.settle.launch(rows.div_ceil(THREADS as u32), THREADS as u32, &args)
    }

    fn launch_collecting(&self, now: &Now<'_>) -> Result<()> {
        let Some(Resident { pass, observe, act }) = &self.resident else { return Ok(()) };
        let (blocks, threads) = ((now.num_envs as u32).div_ceil(THREADS as u32), THREADS as u32);
        let ((mlp, workspace, _), mut args) = (self.player(), self.act_args(now));
        observe.launch(blocks, threads, &args)?;
        for t in 0..now.settings.num_steps as u32 {
            mlp.forward(workspace, pass, workspace.input())?;
            args.t = t;
            act.launch(blocks, threads, &args)?;
            now.normaliser.merge(1)?;
        }
        self.settle(now, pass, 0, workspace.input(), DevicePtr::NONE)?;
        for slot in 0..self.slots {
            let input = self.cut_input.pointer().offset(slot * self.input_bytes(now.num_envs));
            self.settle(now, pass, 0, input, self.cut_at.pointer().offset(4 * slot * now.num_envs))?;
        }
        Ok(())
    }

    /// Plays T steps of the host's envs, part by part: while one part steps, the GPU is at work for the other.
    fn collect_hosted(&self, staging: &mut Staging<ActArgs, Pass>, now: &Now<'_>, env: &mut dyn VecEnv) -> Result<()> {
        let (mut act, steps) = (self.act_args(now), now.settings.num_steps);
        staging.begin(env, |_| act)?;
        let decide = |staging: &Staging<ActArgs, Pass>, part: usize, act: &ActArgs| {
            let input = self.workspace.input().offset(self.input_bytes(staging.first(part)));
            self.mlp.forward(&self.workspace, staging.pass(part), input)?;
            staging.sample(part, act)
        };
        for part in 0..staging.parts() {
            decide(staging, part, &act)?;
        }
        for t in 0..steps {
            for part in 0..staging.parts() {
                act.t = t as u32;
                let cut = staging.step(part, env, &act)?;
                if cut {
                    let (pass, first) = (staging.pass(part), staging.first(part));
                    let input = self.cut_input.pointer().offset(self.input_bytes(first));
                    self.settle(now, pass, first, input, self.cut_at.pointer())?;
                }
                if part + 1 == staging.parts() {
                    now.normaliser.merge(1)?;
                }
                if t + 1 < steps {
                    act.t = t as u32 + 1;
                    decide(staging, part, &act)?;
                }
            }
        }
        for part in 0..staging.parts() {
            let first = staging.first(part);
            let input = self.workspace.input().offset(self.input_bytes(first));
            self.settle(now, staging.pass(part), first, input, DevicePtr::NONE)?;
        }
        Ok(())
    }

    fn launch_learning(&self, now: &Now<'_>) -> Result<()> {
        let settings = now.settings;
        let (workspace, mlp) = (&self.workspace, &self.mlp);
        let minibatches = now.minibatches() as u32;
        let updates = settings.update_epochs * minibatches;
        let mut args = BatchArgs {
            rollout: now.rollout,
            now: self.now.pointer(),
            params: mlp.params(),
            output: workspace.output(),
            input: workspace.input(),
            d_output: workspace.d_output(),
            scales: self.scales.pointer(),
            statistics: self.statistics.pointer(),
            by_log_std: self.by_log_std.pointer(),
            update: 0,
            minibatches,
            of_minibatch: settings.minibatch_size as u32,
            first: 0,
            rows: 0,
            adds: 0,
            normalise: u32::from(settings.norm_adv),
            clip_value: u32::from(settings.clip_vloss),
            value: settings.vf_coef as f32,
            unused: 0.0,
        };
        self.scale.launch(updates, 1024, &args)?;
        let rows = self.learning[0].rows();
        let strips = rows.div_ceil(THREADS);
        let statistics = Sums { from: args.statistics, to: now.report, strips, columns: STATISTICS };
        let by_log_std = mlp.layout().extra("log_std").map(|place| Sums {
            from: args.by_log_std,
            to: mlp.gradients().offset(4 * place),
            strips,
            columns: mlp.layout().output_pitch(),
        });
        let besides: Vec<Sums> = by_log_std.into_iter().chain([statistics]).collect();
        for update in 0..updates {
            args.update = update;
            args.first = 0;
            while args.first < args.of_minibatch {
                let left = (args.of_minibatch - args.first) as usize;
                let pass = if left >= rows { &self.learning[0] } else { &self.learning[1] };
                (args.rows, args.adds) = (pass.rows() as u32, u32::from(args.first > 0));
                let groups = pass.rows() * pitch_of(self.shape.obs) / 8;
                self.gather.launch(groups.div_ceil(THREADS) as u32, THREADS as u32, &args)?;
                mlp.forward(workspace, pass, workspace.input())?;
                self.loss.launch(pass.rows().div_ceil(THREADS) as u32, THREADS as u32, &args)?;
                mlp.backward(workspace, pass, workspace.input(), args.first > 0)?;
                args.first += args.rows;
            }
            mlp.step(workspace, rows, &besides, self.now.pointer(), now.report.offset(4 * 6), update)?;
        }
        Ok(())
    }

    /// Whether the rollouts of an iteration lie in the first or the second place, where there are two.
    fn place(&self, now: &Now<'_>) -> usize {
        if self.acting.is_some() { now.iteration as usize % 2 } else { 0 }
    }
}

impl Half {
    /// Queues its work in the stream of `gpu`, for a rollout in this place.
    pub(super) fn launch(&mut self, gpu: &Arc<Gpu>, place: usize, queue: impl Fn() -> Result<()>) -> Result<()> {
        if !self.ran {
            self.ran = true;
            return queue();
        }
        let graph = match &mut self.graphs[place] {
            Some(graph) => graph,
            none => none.insert(Graph::record(gpu, queue)?),
        };
        graph.launch()
    }
}

impl Learner for Wide {
    fn send(&mut self, params: &[f32], moments: [&[f32]; 2]) -> Result<()> {
        self.mlp.send(params, moments)?;
        if self.acting.is_some() {
            self.renew()?;
            // Playing has another stream.
            self.gpu.synchronize()?;
        }
        Ok(())
    }

    fn fetch_params(&self, to: &mut [f32]) -> Result<()> {
        self.mlp.fetch_params(to)
    }

    fn fetch_moments(&self, to: [&mut [f32]; 2]) -> Result<()> {
        self.mlp.fetch_moments(to)
    }

    fn collect(&mut self, now: &Now<'_>, env: &mut dyn VecEnv) -> Result<()> {
        self.tell(now, self.player().2)?;
        let Some(mut staging) = self.staging.take() else {
            let mut half = std::mem::take(&mut self.collecting);
            let gpu = self.acting.as_ref().map_or(&self.gpu, |acting| &acting.gpu);
            let result = half.launch(gpu, self.place(now), || self.launch_collecting(now));
            self.collecting = half;
            return result;
        };
        let result = self.collect_hosted(&mut staging, now, env);
        self.staging = Some(staging);
        result
    }

    fn renew(&mut self) -> Result<()> {
        self.acting.as_ref().map_or(Ok(()), |acting| self.mlp.give_weights(&acting.mlp))
    }

    fn learn(&mut self, now: &Now<'_>) -> Result<()> {
        if self.acting.is_some() {
            self.tell(now, &self.now)?;
        }
        let mut half = std::mem::take(&mut self.updating);
        let result = half.launch(&self.gpu, self.place(now), || self.launch_learning(now));
        self.updating = half;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_a_minibatch_in_tiles() {
        for minibatch in [16, 48, 8192, 8208, 16_400, 65_536, 1_000_000 / 16 * 16] {
            let (rows, rest) = chunks(minibatch, CHUNK);
            assert!(rows <= CHUNK && rows.is_multiple_of(TILE) && rest < rows, "{minibatch}: {rows} {rest}");
            assert!(rest.is_multiple_of(TILE) && minibatch / rows * rows + rest == minibatch);
        }
        assert_eq!(chunks(65_536, 8192), (8192, 0));
    }
}
