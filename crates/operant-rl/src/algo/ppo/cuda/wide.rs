//! Networks of any width and depth: layers by `nn::cuda`, what surrounds them by the kernels of `wide.cu`.
//!
//! The first iteration launches kernel by kernel, which loads all code; the second is recorded as two graphs, of collecting and of
//! learning, which run from then on. What differs between iterations lies in the GPU's memory. Where the next rollout is played beside
//! learning, it has networks of its own, in a stream of its own.

use super::playing::{self, Half, MinibatchArgs, Network, PlayArgs, Playing, Resident, THREADS, Values};
use super::staged::Staging;
use super::*;
use operant_device::cuda::Operands;
use operant_nn::cuda::{Layout, Mlp, NUMBERS, Pass, Sums, Workspace, layers_source, operands_of, pitch_of};

/// Most logits, or numbers of an action.
const MOST_OUTPUTS: usize = 64;
/// Samples that go through the networks at once: what lies between layers then stays in the GPU's cache.
const CHUNK: usize = 8192;

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

    /// The kernels' text, behind that of the env's; `hosted` if the host steps the envs.
    pub(super) fn source(&self, env: &str, hosted: bool, layout: &Layout, settings: &Settings) -> String {
        let operands = operands_of(self.precision);
        let numbers = [
            ("SIXTEEN", usize::from(operands.bytes() == 2)),
            ("F16", usize::from(operands == Operands::F16)),
            ("OUT", self.outputs),
            ("OUT_PITCH", layout.output_pitch()),
            ("OBS_PITCH", pitch_of(self.obs)),
            ("CONTINUOUS", usize::from(self.continuous)),
            ("ACTOR_BIAS", layout.last_bias(0)),
            ("CRITIC_BIAS", layout.last_bias(1)),
            ("LOG_STD", layout.extra("log_std").unwrap_or(0)),
            ("ACT_BYTES", size_of::<ActArgs>()),
            ("BATCH_BYTES", size_of::<BatchArgs>()),
        ];
        playing::source(env, hosted, settings, &numbers, &[NUMBERS, include_str!("../wide.cu")])
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ActArgs {
    play: PlayArgs,
    input: DevicePtr,
    cut_input: DevicePtr,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct BatchArgs {
    batch: MinibatchArgs,
    params: DevicePtr,
    output: DevicePtr,
    input: DevicePtr,
    d_output: DevicePtr,
    statistics: DevicePtr,
    by_log_std: DevicePtr,
    first: u32,
    rows: u32,
    adds: u32,
    clip_value: u32,
    value: f32,
    unused: f32,
}

impl KernelParams for ActArgs {}
impl KernelParams for BatchArgs {}

/// What runs the networks for envs from `first` on.
struct Player {
    first: usize,
    pass: Pass,
}

/// The networks as they were when an iteration began, which play beside learning.
struct Acting {
    gpu: Arc<Gpu>,
    mlp: Mlp,
    workspace: Workspace,
    now: Buffer<u32>,
}

/// The networks in the GPU's memory, and the kernels around them.
pub(super) struct Wide {
    shape: WideShape,
    gpu: Arc<Gpu>,
    mlp: Mlp,
    workspace: Workspace,
    /// One of the two: kernels step the envs, or the host does.
    resident: Option<Resident<ActArgs, Player>>,
    staging: Option<Staging<ActArgs, Player>>,
    /// For the first chunks of a minibatch, and for the last where it is smaller.
    learning: Vec<Pass>,
    scale: Kernel<BatchArgs>,
    gather: Kernel<BatchArgs>,
    loss: Kernel<BatchArgs>,
    playing: Playing,
    cut_input: Buffer<u8>,
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
        let (text, hosted) = playing::text_of(env);
        let source = shape.source(&text, hosted, &layout, settings);
        let (outputs, time_limit) = (layout.output_pitch(), spec.time_limit);
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
        let slots = playing::slots(hosted, time_limit, settings.num_steps);
        let blocks = rows.div_ceil(THREADS);
        let small = |len, what| Buffer::new(gpu, len, what, "num_envs");
        let lower = "network.hidden or num_envs";
        let acting = match collector {
            None => None,
            Some(gpu) => {
                let mlp = Mlp::new(gpu, mlp.layout().clone(), shape.activation, shape.precision)?;
                let now = playing::now_buffer(gpu)?;
                Some(Acting { gpu: Arc::clone(gpu), workspace: mlp.workspace(n, false, lower)?, mlp, now })
            }
        };
        let learns = module.on(gpu);
        let wide = Self {
            workspace: mlp.workspace(if acting.is_some() { rows } else { rows.max(n) }, true, lower)?,
            staging: match hosted {
                true => {
                    let player = |first, count| Ok(Player { first, pass: mlp.pass(count, false)? });
                    Some(Staging::new(gpu, &module, env, 1, player)?)
                }
                false => None,
            },
            resident: match hosted {
                true => None,
                false => {
                    let pass = acting.as_ref().map_or(&mlp, |acting| &acting.mlp).pass(n, false)?;
                    Some(Resident::new(&module, Player { first: 0, pass }, slots)?)
                }
            },
            learning,
            scale: learns.kernel("scale")?,
            gather: learns.kernel("gather")?,
            loss: learns.kernel("loss")?,
            playing: Playing::new(gpu, &module, n, slots)?,
            cut_input: Buffer::new(
                gpu,
                slots * n * pitch_of(shape.obs) * mlp.operand_bytes(),
                "last observations",
                "num_envs or ppo.num_steps",
            )?,
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
        acting.unwrap_or((&self.mlp, &self.workspace, &self.playing.now))
    }

    /// Tells the GPU what differs in this iteration.
    fn tell(&self, now: &Now<'_>, to: &Buffer<u32>) -> Result<()> {
        now.tell(to, 1.0 / now.settings.minibatch_size as f32, [now.clip(), now.entropy()], &now.orders())
    }

    /// Bytes of the observations of so many envs, as products read them.
    fn input_bytes(&self, envs: usize) -> usize {
        envs * pitch_of(self.shape.obs) * self.mlp.operand_bytes()
    }

    /// Where the values of a player's envs lie.
    fn values(&self, player: &Player) -> Values {
        let ((mlp, workspace, _), rows, layout) = (self.player(), player.pass.rows(), self.mlp.layout());
        let stride = layout.output_pitch();
        Values {
            at: workspace.output().offset(4 * rows * stride),
            stride,
            bias: mlp.params().offset(4 * layout.last_bias(1)),
            first: player.first,
            rows,
        }
    }

    fn launch_learning(&self, now: &Now<'_>) -> Result<()> {
        let settings = now.settings;
        let (workspace, mlp) = (&self.workspace, &self.mlp);
        let batch = self.playing.minibatch(now, settings.norm_adv);
        let updates = settings.update_epochs * batch.minibatches;
        let mut args = BatchArgs {
            batch,
            params: mlp.params(),
            output: workspace.output(),
            input: workspace.input(),
            d_output: workspace.d_output(),
            statistics: self.statistics.pointer(),
            by_log_std: self.by_log_std.pointer(),
            first: 0,
            rows: 0,
            adds: 0,
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
            args.batch.update = update;
            args.first = 0;
            while args.first < batch.of_minibatch {
                let left = (batch.of_minibatch - args.first) as usize;
                let pass = if left >= rows { &self.learning[0] } else { &self.learning[1] };
                (args.rows, args.adds) = (pass.rows() as u32, u32::from(args.first > 0));
                let groups = pass.rows() * pitch_of(self.shape.obs) / 8;
                self.gather.launch(groups.div_ceil(THREADS) as u32, THREADS as u32, &args)?;
                mlp.forward(workspace, pass, workspace.input())?;
                self.loss.launch(pass.rows().div_ceil(THREADS) as u32, THREADS as u32, &args)?;
                mlp.backward(workspace, pass, workspace.input(), args.first > 0)?;
                args.first += args.rows;
            }
            mlp.step(workspace, rows, &besides, batch.now, now.report.offset(4 * 6), update)?;
        }
        Ok(())
    }

    /// Whether the rollouts of an iteration lie in the first or the second place, where there are two.
    fn place(&self, now: &Now<'_>) -> usize {
        if self.acting.is_some() { now.iteration as usize % 2 } else { 0 }
    }
}

impl Network<ActArgs, Player> for Wide {
    fn args(&self, now: &Now<'_>, player: &Player, t: usize) -> ActArgs {
        let ((mlp, workspace, told), values) = (self.player(), self.values(player).at);
        ActArgs {
            play: self.playing.args(now, told, [mlp.params(), workspace.output(), values], t),
            input: workspace.input(),
            cut_input: self.cut_input.pointer(),
        }
    }

    fn forward(&self, player: &Player) -> Result<()> {
        let (mlp, workspace, _) = self.player();
        mlp.forward(workspace, &player.pass, workspace.input().offset(self.input_bytes(player.first)))
    }

    fn settle(&self, now: &Now<'_>, player: &Player) -> Result<()> {
        self.playing.settle(now, &self.values(player), None)
    }

    fn settle_cut(&self, now: &Now<'_>, player: &Player, slot: usize) -> Result<()> {
        let (mlp, workspace, _) = self.player();
        let cut = self.cut_input.pointer().offset(self.input_bytes(slot * now.num_envs + player.first));
        mlp.forward(workspace, &player.pass, cut)?;
        self.playing.settle(now, &self.values(player), Some(slot))
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
        let network = &*self;
        if let Some(resident) = &network.resident {
            let gpu = network.acting.as_ref().map_or(&network.gpu, |acting| &acting.gpu);
            return network.collecting.launch(gpu, network.place(now), || resident.play(network, now));
        }
        let Some(mut staging) = self.staging.take() else { return Ok(()) };
        let result = staging.play(&*self, now, env);
        self.staging = Some(staging);
        result
    }

    fn renew(&mut self) -> Result<()> {
        self.acting.as_ref().map_or(Ok(()), |acting| self.mlp.give_weights(&acting.mlp))
    }

    fn learn(&mut self, now: &Now<'_>) -> Result<()> {
        if self.acting.is_some() {
            self.tell(now, &self.playing.now)?;
        }
        self.updating.launch(&self.gpu, self.place(now), || self.launch_learning(now))
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
