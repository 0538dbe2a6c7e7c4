//! `operant bench nn`: a network's forward pass, and forward + backward + optimiser step.

use super::{nn_cuda, nn_threads};
use crate::output::{Failure, count, grouped, print};
use clap::ValueEnum;
use operant::device::{self, CpuPool, Device, alloc};
use operant::lanes::Backend;
use operant::lanes::rng::HostRng;
use operant::nn::nets::{Architecture, Net};
use operant::nn::ops::{Conv2d, NormOptions};
use operant::nn::{
    Act, Feed, Gradients, Graph, Kind, Memory, Method, Node, Optimizer, Options, Params, Plan, Precision, nets,
    peak_gflops,
};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which network.
    #[arg(long, value_enum, default_value_t = Choice::Mlp)]
    pub(super) net: Choice,
    /// Sizes of the hidden layers of mlp; 64,64 if absent.
    #[arg(long, value_delimiter = ',', value_parser = count::<usize>)]
    hidden: Option<Vec<usize>>,
    /// Where it runs: cpu, cuda or cuda:i.
    #[arg(long, default_value = "cpu")]
    pub(super) device: String,
    /// Rows of a batch; each network has its own default.
    #[arg(long, value_parser = count::<usize>, allow_negative_numbers = true)]
    pub(super) batch: Option<usize>,
    /// f32, bf16, f16, on a GPU tf32, or auto: the fastest that this CPU was measured to have, bf16 on a GPU.
    #[arg(long, default_value = "f32")]
    precision: String,
    /// Threads that share a batch; several, as in 1,2, are measured in turn and compared.
    #[arg(long, default_value = "1", value_delimiter = ',', value_parser = count::<usize>, allow_negative_numbers = true)]
    threads: Vec<usize>,
    /// Instruction set of kernels: amx (f32 on tiles too), avx512, avx2, portable; the widest if absent. Products in bf16 are
    /// on AMX tiles with all of them.
    #[arg(long)]
    backend: Option<String>,
    /// Rows of a tile; chosen by the plan if absent.
    #[arg(long, value_parser = count::<usize>, allow_negative_numbers = true)]
    tile_rows: Option<usize>,
    /// How long to measure each of forward and training.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub(super) seconds: f64,
    /// Show the plan: every step with its shapes, places and bytes.
    #[arg(long)]
    pub(super) plan: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    /// Sizes of the hidden layers of mlp.
    pub(super) fn hidden(&self) -> &[usize] {
        self.hidden.as_deref().unwrap_or(&[64, 64])
    }

    /// The network's name.
    pub(super) fn net_name(&self) -> String {
        self.net.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(super) enum Choice {
    /// Separate actor and critic, tanh: 4-64-64, or --hidden.
    Mlp,
    /// Residual fully connected, 3 blocks of 128, policy and value heads: 282 k parameters.
    Resnet,
    /// Dueling 144-256-128 with streams of 64 and 12 actions, Huber loss.
    Dueling,
    /// Three convolutions 3-8-16-32 on 32×32 images, global mean, 10 classes.
    Conv,
    /// One step of a neural operator: convolution 64-64 on 128×128, instance norm, GELU, noise.
    Field,
    /// LSTM of 128 over 64 steps of 128 numbers.
    Lstm,
    /// Self-attention of 4 heads over 32 steps of 64 numbers.
    Attention,
}

/// A network with a loss, and what its inputs may hold.
struct Task {
    graph: Graph,
    outputs: Vec<Node>,
    loss: Node,
    /// For integer inputs, how many values they take.
    classes: usize,
    batch: usize,
}

/// Outputs of a described network, and the sum of their squared errors.
fn squared_errors(architecture: &Architecture, batch: usize) -> operant::Result<Task> {
    let Net { mut graph, outputs, .. } = architecture.build()?;
    let outputs: Vec<Node> = outputs.into_iter().map(|(_, node)| node).collect();
    let mut losses = Vec::new();
    for (i, &output) in outputs.iter().enumerate() {
        losses.push(squared_error(&mut graph, &format!("target {i}"), output)?);
    }
    let mut loss = losses[0];
    for &other in &losses[1..] {
        loss = graph.add(loss, other)?;
    }
    Ok(Task { graph, outputs, loss, classes: 0, batch })
}

fn squared_error(g: &mut Graph, name: &str, output: Node) -> operant::Result<Node> {
    let target = g.input(name, g.shape(output).to_vec());
    g.mse_loss(output, target)
}

impl Choice {
    /// The network of `mlp`.
    pub(super) fn mlp(hidden: &[usize]) -> Architecture {
        Architecture::ActorCritic {
            inputs: 4,
            hidden: hidden.to_vec(),
            actions: 2,
            activation: Act::Tanh,
            continuous: false,
            memory: None,
            image: None,
        }
    }

    fn task(self, hidden: &[usize]) -> operant::Result<Task> {
        let mut g = Graph::new();
        match self {
            Self::Mlp => squared_errors(&Self::mlp(hidden), 8192),
            Self::Resnet => squared_errors(
                &Architecture::Residual {
                    inputs: 198,
                    width: 128,
                    blocks: 3,
                    policy: 1156,
                    value_hidden: 64,
                    value: 6,
                },
                1024,
            ),
            Self::Dueling => {
                let x = g.input("obs", [144]);
                let q = nets::dueling(&mut g, x, &[256, 128], 64, 12)?;
                let action = g.input_ints("action", [1]);
                let target = g.input("target", [1]);
                let chosen = g.gather(q, action)?;
                let loss = g.huber_loss(chosen, target, 1.0)?;
                Ok(Task { graph: g, outputs: vec![q], loss, classes: 12, batch: 64 })
            }
            Self::Conv => {
                let x = g.input("image", [32, 32, 3]);
                let h = g.conv2d("conv1", x, Conv2d::new(8, 3).padding(1))?;
                let h = g.relu(h)?;
                let h = g.conv2d("conv2", h, Conv2d::new(16, 3).stride(2).padding(1))?;
                let h = g.relu(h)?;
                let h = g.conv2d("conv3", h, Conv2d::new(32, 3).stride(2).padding(1))?;
                let h = g.relu(h)?;
                let h = g.global_average_pool(h)?;
                let logits = g.linear("head", h, 10)?;
                let class = g.input_ints("class", [1]);
                let loss = g.cross_entropy(logits, class, 0.0, None)?;
                Ok(Task { graph: g, outputs: vec![logits], loss, classes: 10, batch: 128 })
            }
            Self::Field => {
                let x = g.input_with_gradient("field", [128, 128, 64]);
                let h = g.conv2d("conv", x, Conv2d::new(64, 3).circular(1))?;
                let options = NormOptions { act: Act::Gelu, noise: Some(0.1), ..NormOptions::default() };
                let y = g.instance_norm("norm", h, options)?;
                let loss = squared_error(&mut g, "target", y)?;
                Ok(Task { graph: g, outputs: vec![y], loss, classes: 0, batch: 2 })
            }
            Self::Lstm => {
                let x = g.input("x", [64, 128]);
                let y = g.lstm("lstm", x, 128, 1, &Memory::default())?.y;
                let loss = squared_error(&mut g, "target", y)?;
                Ok(Task { graph: g, outputs: vec![y], loss, classes: 0, batch: 256 })
            }
            Self::Attention => {
                let x = g.input("x", [32, 64]);
                let y = g.attention("attention", x, 4, false, None)?;
                let loss = squared_error(&mut g, "target", y)?;
                Ok(Task { graph: g, outputs: vec![y], loss, classes: 0, batch: 128 })
            }
        }
    }
}

enum Data {
    Real(Vec<f32>),
    Ints(Vec<i32>),
}

/// A network to be measured, with data for its inputs.
pub(super) struct Bench {
    task: Task,
    pub(super) batch: usize,
    data: Vec<Data>,
}

/// Plans of a network for some threads.
pub(super) struct Plans {
    pub(super) forward: Plan,
    pub(super) learner: Learner,
}

/// A plan that trains, and what it trains.
pub(super) struct Learner {
    pub(super) training: Plan,
    pub(super) params: Params,
    optimizer: Optimizer,
}

impl Bench {
    fn new(task: Task, batch: usize) -> operant::Result<Self> {
        let inputs = task.graph.inputs();
        let numbers: usize = inputs.iter().map(|&input| task.graph.ty(input).len()).sum();
        let what = format!("data of {} rows", grouped(batch as f64));
        device::check_room(&what, (numbers * batch * size_of::<f32>()) as u64, "ask for a smaller --batch")?;
        let mut rng = HostRng::new(0, 0, 0, 0);
        let mut data = |input: Node| {
            let ty = task.graph.ty(input);
            match ty.kind {
                Kind::Ints => {
                    Data::Ints((0..ty.len() * batch).map(|_| rng.below(task.classes as u32) as i32).collect())
                }
                _ => Data::Real((0..ty.len() * batch).map(|_| rng.normal()).collect()),
            }
        };
        let data = inputs.iter().map(|&input| data(input)).collect();
        Ok(Self { task, batch, data })
    }

    pub(super) fn feeds(&self) -> Vec<Feed<'_>> {
        let data = self.data.iter();
        data.map(|data| match data {
            Data::Real(x) => Feed::Real(x),
            Data::Ints(x) => Feed::Ints(x),
        })
        .collect()
    }

    pub(super) fn plans(&self, options: &Options) -> operant::Result<Plans> {
        let forward = Plan::inference(&self.task.graph, &self.task.outputs, self.batch, options)?;
        Ok(Plans { forward, learner: self.learner(options)? })
    }

    pub(super) fn learner(&self, options: &Options) -> operant::Result<Learner> {
        let (graph, params) = (&self.task.graph, self.task.graph.params(0)?);
        Ok(Learner {
            training: Plan::training(graph, self.task.loss, self.batch, options)?,
            optimizer: Optimizer::new(Method::default(), &params, None, options.backend)?.on(&options.pool),
            params,
        })
    }
}

impl Plans {
    pub(super) fn forward(&mut self, batch: usize, feeds: &[Feed]) {
        self.forward.forward(&self.learner.params, batch, feeds);
    }
}

impl Learner {
    /// Forward, backward and the optimiser's step.
    pub(super) fn train(&mut self, batch: usize, feeds: &[Feed]) {
        self.training.learn(&mut self.params, batch, feeds, &mut self.optimizer, 1e-4, 1.0);
    }
}

/// What was measured of one kind of call.
struct Measured {
    gflops: f64,
    microseconds: f64,
    allocations: u64,
}

/// Runs `call` for a while. The best of several parts counts, because other work on the machine only ever slows it. One
/// thread is timed by its CPU clock, which stands still while other programs run.
fn measure(seconds: f64, flops: f64, threads: usize, mut call: impl FnMut()) -> Measured {
    let begun = Instant::now();
    let now = || if threads == 1 { device::cpu_seconds() } else { begun.elapsed().as_secs_f64() };
    (0..3).for_each(|_| call());
    let start = Instant::now();
    call();
    let once = start.elapsed().as_secs_f64().max(1e-9);
    let parts = ((seconds / once) as usize).clamp(3, 20);
    let calls = ((seconds / parts as f64 / once) as usize).max(1);
    let allocated = alloc::allocations();
    let mut best = f64::INFINITY;
    for _ in 0..parts {
        let start = now();
        (0..calls).for_each(|_| call());
        best = best.min((now() - start) / calls as f64);
    }
    Measured {
        gflops: flops / best * 1e-9,
        microseconds: best * 1e6,
        allocations: (alloc::allocations() - allocated) / (parts * calls) as u64,
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !(args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(Failure::Usage(format!("--seconds {}: wanted more than 0 and at most 3600", args.seconds)));
    }
    if let Some(threads) = args.threads.iter().find(|threads| !(1..=1024).contains(*threads)) {
        return Err(Failure::Usage(format!("--threads {threads}: wanted 1..=1024")));
    }
    let on_gpu = Device::gpu_index(&args.device)?.is_some();
    let precision = match args.precision.as_str() {
        "auto" if on_gpu => Precision::Bf16,
        name => Precision::named(name)?,
    };
    if args.hidden().iter().any(|size| !(1..=65_536).contains(size)) {
        return Err(Failure::Usage(format!("--hidden {:?}: wanted sizes of 1..=65536, as in 512,512", args.hidden())));
    }
    if args.hidden.is_some() && args.net != Choice::Mlp {
        return Err(Failure::Usage(format!("--hidden for --net {}: only mlp has sizes to choose", args.net_name())));
    }
    let backend = args.backend.as_deref().map_or(Ok(Backend::fast()), Backend::named)?;
    let task = args.net.task(args.hidden())?;
    let batch = args.batch.unwrap_or(task.batch);
    if !(1..=1 << 24).contains(&batch) {
        return Err(Failure::Usage(format!("--batch {batch}: wanted 1..=16777216")));
    }
    if on_gpu {
        if args.plan {
            return Err(Failure::Usage("--plan on a GPU: wanted --device cpu, whose plans can be shown".into()));
        }
        return nn_cuda::run(args, batch, precision);
    }
    if args.tile_rows == Some(0) {
        return Err(Failure::Usage("--tile-rows 0: wanted at least 1".into()));
    }
    let options = |threads: usize| Options {
        pool: Arc::new(CpuPool::new(threads)),
        backend,
        precision,
        tile_rows: args.tile_rows,
        ..Options::default()
    };
    let bench = Bench::new(task, batch)?;
    let &[threads] = &args.threads[..] else {
        let options: Vec<Options> = args.threads.iter().map(|&threads| options(threads)).collect();
        return nn_threads::run(args, &bench, &options);
    };
    let feeds = bench.feeds();
    let mut plans = bench.plans(&options(threads))?;
    if args.plan && !args.json {
        print(&format!("{}\n", plans.learner.training))?;
    }
    let (served, note) = plans.learner.training.precision();
    let backend = plans.learner.training.backend();
    let peaks = [(); 2].map(|()| peak_gflops(backend, served));
    let flops = plans.learner.training.flops_per_row() as f64 * batch as f64;
    let forward = measure(args.seconds, flops, threads, || plans.forward(batch, &feeds));
    let train = measure(args.seconds, 3.0 * flops, threads, || plans.learner.train(batch, &feeds));
    let Plans { forward: forward_plan, learner: Learner { training: mut plan, mut params, .. } } = plans;
    plan.set_timed(true);
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < args.seconds.min(0.5) {
        // New weights each time, as in training.
        params.values_mut();
        plan.train(&params, batch, &feeds, 1.0, Gradients::Replace);
    }
    let profile = plan.profile();
    // What other programs leave of a core changes from moment to moment: so before and after, and a network is no faster than the peak.
    let cores = |plan: &Plan| plan.threads().min(device::threads_available()) as f64;
    let networks = [forward.gflops / cores(&forward_plan), train.gflops / cores(&plan)];
    let of_core = peaks.into_iter().chain(networks).fold(peak_gflops(backend, served), f64::max);
    let (forward_peak, train_peak) = (of_core * cores(&forward_plan), of_core * cores(&plan));
    let name = args.net_name();
    if args.json {
        let total: u64 = profile.0.iter().map(|op| op.nanoseconds).sum();
        let ops: Vec<_> = profile
            .0
            .iter()
            .map(|op| json!({"op": op.op, "steps": op.steps, "share": op.nanoseconds as f64 / total.max(1) as f64}))
            .collect();
        let mut report = json!({
            "net": name,
            "batch": batch,
            "precision": served.name(),
            "threads": threads,
            "forward_gflops": forward.gflops,
            "train_gflops": train.gflops,
            "allocs": forward.allocations + train.allocations,
            "workspace_bytes": plan.workspace_bytes(),
            "forward_us": forward.microseconds,
            "train_us": train.microseconds,
            "forward_peak_gflops": forward_peak,
            "peak_gflops": train_peak,
            "forward_share": forward.gflops / forward_peak,
            "train_share": train.gflops / train_peak,
            "parameters": params.count(),
            "tile_rows": plan.tile_rows(),
            "backend": backend.name(),
            "note": note,
            "ops": ops,
            "machine": device::describe(),
        });
        if args.plan {
            report["plan"] = plan.to_string().into();
        }
        return print(&format!("{report}\n"));
    }
    let mut text = String::new();
    let line = |what: &str, m: &Measured, peak: f64| {
        format!(
            "{what:<19}{:.1} GFLOP/s, {:.0} % of {peak:.0} measured peak, {:.1} µs per batch\n",
            m.gflops,
            100.0 * m.gflops / peak,
            m.microseconds
        )
    };
    text += &format!(
        "{name}  {} parameters, batch {}, {}, {} thread{}, {}\n\
         machine            {}\n",
        grouped(params.count() as f64),
        grouped(batch as f64),
        served.name(),
        threads,
        if threads == 1 { "" } else { "s" },
        backend.name(),
        device::describe(),
    );
    if let Some(note) = note {
        text += &format!("note               {note}\n");
    }
    text += &line("forward", &forward, forward_peak);
    text += &line("forward+back+Adam", &train, train_peak);
    text += &format!("allocations        {} per batch\n", forward.allocations + train.allocations);
    text += &format!("workspace          {} bytes\n", grouped(plan.workspace_bytes() as f64));
    let total: u64 = profile.0.iter().map(|op| op.nanoseconds).sum();
    text += "time by op in training, without packing weights and Adam\n";
    for op in &profile.0 {
        let share = 100.0 * op.nanoseconds as f64 / total.max(1) as f64;
        text += &format!("  {:<28}{share:>5.1} %  {} step{}\n", op.op, op.steps, if op.steps == 1 { "" } else { "s" });
    }
    print(&text)
}
