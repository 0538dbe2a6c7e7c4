//! `operant bench growth`: epochs of many networks that grow side by side on a GPU, with validation, counterfactuals and the decisions of
//! a controller.

use crate::output::{Failure, count, grouped, print};
use operant::CATALOGUE;
use operant::algo::{Actor, Head, MemoryName, NetworkSettings, Policy};
use operant::config::Table;
use operant::data::ActionColumn;
use operant::device::cuda::Gpu;
use operant::device::{self, CpuPool, Device, cpu_seconds};
use operant::env::growth::CLASSES;
use operant::env::{Growth, HostEnv, Params};
use operant::lanes::rng::HostRng;
use operant::nn::dist::Draws;
use operant::nn::grow::{Blueprint, GrownGroup, HOSTS, Host, Samples, Seed, Task, Training};
use operant::nn::ops::Blend;
use operant::nn::{Options, Precision};
use operant::run::Config;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The host.
    #[arg(long, default_value = "baseline")]
    host: String,
    /// Channels of its first block [default: the host's].
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    base: Option<usize>,
    /// Networks side by side.
    #[arg(long, default_value_t = 16, value_parser = count::<usize>, allow_negative_numbers = true)]
    num_envs: usize,
    /// Seeds of each, of the blueprints that convolve and mix channels in turn; two counterfactuals are scored for each.
    #[arg(long, default_value_t = 3, value_parser = count::<usize>, allow_negative_numbers = true)]
    seeds: usize,
    /// Images to train on.
    #[arg(long, default_value_t = 50_000, value_parser = count::<usize>, allow_negative_numbers = true)]
    train_samples: usize,
    /// Images to validate on.
    #[arg(long, default_value_t = 10_000, value_parser = count::<usize>, allow_negative_numbers = true)]
    val_samples: usize,
    /// Pixels along each side of images.
    #[arg(long, default_value_t = 32, value_parser = count::<usize>, allow_negative_numbers = true)]
    side: usize,
    /// Samples of a minibatch.
    #[arg(long, default_value_t = 128, value_parser = count::<usize>, allow_negative_numbers = true)]
    batch: usize,
    /// Time whole epochs for about this long, after one to warm up.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Precision: f32, tf32 for products, or bf16 for all that lies between them too.
    #[arg(long, default_value = "bf16")]
    precision: String,
    /// Who decides once per epoch for every network, on the threads that draw orders: lstm (512 units before layers of 512), shipped (the network of the shipped
    /// settings) or none. What is decided changes nothing.
    #[arg(long, default_value = "lstm")]
    controller: String,
    /// Crop and mirror images by chance.
    #[arg(long)]
    augment: bool,
    /// The GPU: cuda or cuda:i.
    #[arg(long, default_value = "cuda")]
    device: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Beyond these nobody measures, and memory would be asked for in vain.
const MOST_SIDE: usize = 256;
const MOST_BASE: usize = 1024;
const MOST_SAMPLES: usize = 1_000_000;

/// Blueprints that seeds are of, in turn.
const PLANTED: [Blueprint; 4] = [Blueprint::ConvLight, Blueprint::ConvSmall, Blueprint::Norm, Blueprint::MlpSmall];

const CONTROLLERS: [&str; 3] = ["lstm", "shipped", "none"];
/// Units of the larger controller.
const UNITS: usize = 512;

/// A policy that decides for all networks at once.
struct Controller {
    policy: Policy,
    actor: Actor,
    /// `[N, …]`, always the same.
    obs: Vec<f32>,
    legal: Vec<u8>,
    actions: ActionColumn,
    log_prob: Vec<f32>,
    steps: u64,
}

impl Controller {
    fn new(args: &Args, host: Host, pool: &Arc<CpuPool>) -> operant::Result<Option<Self>> {
        let network = match args.controller.as_str() {
            "lstm" => NetworkSettings {
                hidden: vec![UNITS],
                memory: MemoryName::Lstm,
                memory_size: UNITS,
                ..NetworkSettings::default()
            },
            "shipped" => Config::resolve(&CATALOGUE, "ppo", "growth", Table::new())?.network,
            _ => return Ok(None),
        };
        let mut env = Growth::default();
        let number = HOSTS.iter().position(|known| known.name == host.name).unwrap_or(0);
        env.set("host", number as f64)?;
        let (spec, n) = (env.spec(), args.num_envs);
        let architecture = network.architecture(&spec, None)?;
        let params = architecture.build()?.graph.params(1)?;
        let policy = Policy { architecture, head: Head::new(&spec), params, normaliser: None };
        let mut rng = HostRng::new(3, 0, 0, 0);
        Ok(Some(Self {
            actor: policy.actor(n, &Options { pool: Arc::clone(pool), ..Options::default() })?,
            obs: (0..n * spec.observation.len()).map(|_| rng.unit() * 2.0 - 1.0).collect(),
            legal: vec![1; n * spec.action.choices()],
            actions: ActionColumn::new(false, n * spec.action.dims()),
            log_prob: vec![0.0; n],
            steps: 0,
            policy,
        }))
    }

    fn decide(&mut self) {
        let Self { policy, actor, obs, legal, actions, log_prob, steps } = self;
        actor.forward(&policy.params, log_prob.len(), obs);
        let draws = Draws { seed: 1, first_row: 0, step: *steps };
        let all = actions.slice_mut(0..log_prob.len() * policy.head.dims());
        actor.sample(&policy.params, Some(legal), draws, all, log_prob);
        actor.remember();
        *steps += 1;
    }
}

#[derive(Default)]
struct Measured {
    train_s: f64,
    judge_s: f64,
    decide_s: f64,
    cpu_s: f64,
    epochs: usize,
    launches: usize,
    bytes: usize,
    loss: f32,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let precision = match args.precision.as_str() {
        "f32" => Precision::F32,
        "tf32" => Precision::Tf32,
        "bf16" => Precision::Bf16,
        other => return Err(Failure::Usage(format!("--precision {other}: wanted f32, tf32 or bf16"))),
    };
    let found = Host::find(&args.host)?;
    let host = Host { base: args.base.unwrap_or(found.base), ..found };
    let numbers = [args.num_envs, args.train_samples, args.val_samples, args.batch, host.base];
    let within =
        args.side <= MOST_SIDE && host.base <= MOST_BASE && args.train_samples.max(args.val_samples) <= MOST_SAMPLES;
    let timed = args.seconds.is_finite() && args.seconds >= 0.0;
    if numbers.contains(&0) || args.side < 4 || !within || !timed || args.seeds > host.slots() {
        return Err(Failure::Usage(format!(
            "wanted at least one env, sample and channel, at most {MOST_SAMPLES} samples, --base of at most {MOST_BASE}, --side of 4 to \
             {MOST_SIDE}, --seconds of at least 0, and --seeds of at most {}",
            host.slots()
        )));
    }
    if !CONTROLLERS.contains(&args.controller.as_str()) {
        let known = CONTROLLERS.join(", ");
        return Err(operant::Error::unknown("controller", &args.controller, CONTROLLERS, &known).into());
    }
    let Device::Cuda(gpu) = Device::named(&args.device)? else {
        return Err(Failure::Usage(format!(
            "--device {}: wanted cuda or cuda:i; on a CPU take operant grow speed",
            args.device
        )));
    };
    let measured = measure(args, host, precision, &gpu)?;
    let (epochs, all) = (measured.epochs as f64, args.num_envs as f64);
    let wall = measured.train_s + measured.judge_s + measured.decide_s;
    let share = 100.0 * measured.decide_s / wall;
    let rate = all * epochs / wall;
    let step_ms = 1e3 * measured.train_s / (epochs * args.train_samples.div_ceil(args.batch) as f64);
    if args.json {
        let object = json!({
            "host": args.host, "base": host.base, "num_envs": args.num_envs, "seeds": args.seeds,
            "train_samples": args.train_samples, "val_samples": args.val_samples, "side": args.side, "batch": args.batch,
            "precision": args.precision, "env_epochs_per_s": rate, "train_s": measured.train_s / epochs,
            "judge_s": measured.judge_s / epochs, "controller": args.controller,
            "decide_s": measured.decide_s / epochs, "step_ms": step_ms, "launches": measured.launches,
            "bytes": measured.bytes, "cpu_s": measured.cpu_s / epochs, "loss": measured.loss,
            "note": "a decision is one env-epoch; learning of the controller is not in it", "device": gpu.describe(),
            "machine": device::describe(),
        });
        return print(&format!("{object}\n"));
    }
    print(&format!(
        "{} of base {}, {} networks with {} seeds each, {} images of {} x {}, {} to validate on, minibatches of {}, {}\n\
         machine            {}\n\
         env-epochs/s       {rate:.1}, each with a decision; controller {}: {share:.2} % of the time, its learning not in it\n\
         a step of all      {step_ms:.3} ms, {} launches\n\
         an epoch of all    {:.3} s of training, {:.3} s of validation and counterfactuals, {:.3} CPU-s\n\
         memory of plans    {} bytes\n",
        args.host,
        host.base,
        args.num_envs,
        args.seeds,
        grouped(args.train_samples as f64),
        args.side,
        args.side,
        grouped(args.val_samples as f64),
        args.batch,
        args.precision,
        gpu.describe(),
        args.controller,
        measured.launches,
        measured.train_s / epochs,
        measured.judge_s / epochs,
        measured.cpu_s / epochs,
        grouped(measured.bytes as f64),
    ))
}

fn measure(args: &Args, host: Host, precision: Precision, gpu: &Arc<Gpu>) -> operant::Result<Measured> {
    let image = [args.side, args.side, 3];
    let pixels = image.iter().product::<usize>();
    let mut rng = HostRng::new(0, 0, 0, 0);
    let mut drawn = |count: usize| -> (Vec<f32>, Vec<i32>) {
        let images = (0..count * pixels).map(|_| rng.unit() * 3.4 - 1.7).collect();
        (images, (0..count).map(|_| rng.below(CLASSES as u32) as i32).collect())
    };
    let (train, validation) = (drawn(args.train_samples), drawn(args.val_samples));
    let task = Task {
        host,
        image,
        classes: CLASSES,
        train: Samples { images: &train.0, targets: &train.1 },
        validation: Samples { images: &validation.0, targets: &validation.1 },
        training: Training { batch: args.batch, ..Training::default() },
        precision,
        own_samples: false,
        augment: args.augment,
    };
    let numbers: Vec<u64> = (0..args.num_envs as u64).collect();
    let mut group = GrownGroup::new(gpu, &task, &numbers)?;
    let mut asked = Vec::new();
    for network in 0..args.num_envs {
        for slot in 0..args.seeds {
            let blueprint = PLANTED[(network + slot) % PLANTED.len()];
            let blend = if (network + slot).is_multiple_of(2) { Blend::Add } else { Blend::Gate };
            group.germinate(network, slot, Seed { blueprint, blend, detached: false }, 1000 + network as u64)?;
            group.set_alpha(network, slot, 0.5);
        }
        let now = group.alphas(network).to_vec();
        asked.push((network, now.clone()));
        for slot in 0..args.seeds {
            for alpha in [0.0, 1.0] {
                let mut other = now.clone();
                other[slot] = alpha;
                asked.push((network, other));
            }
        }
    }
    let mut order: Vec<u32> = (0..args.num_envs).flat_map(|_| 0..args.train_samples as u32).collect();
    let pool = Arc::new(CpuPool::new(device::threads_available().min(args.num_envs)));
    let mut draws: Vec<HostRng> = (0..args.num_envs as u32).map(|network| HostRng::new(4, network, 0, 0)).collect();
    let mut controller = Controller::new(args, host, &pool)?;
    let mut measured = Measured::default();
    let mut warm = false;
    while measured.epochs == 0 || measured.train_s + measured.judge_s < args.seconds {
        let (deciding, cpu) = (Instant::now(), cpu_seconds());
        if let Some(controller) = &mut controller {
            controller.decide();
        }
        let started = Instant::now();
        let mut work: Vec<_> = order.chunks_mut(args.train_samples).zip(&mut draws).collect();
        pool.for_each_mut(&mut work, |_, (order, rng)| {
            for i in (1..order.len()).rev() {
                order.swap(i, rng.below(i as u32 + 1) as usize);
            }
        });
        let trained = group.epoch(&order)?;
        let between = Instant::now();
        group.score(&asked)?;
        group.gradient_sizes()?;
        measured.decide_s += (started - deciding).as_secs_f64();
        measured.train_s += (between - started).as_secs_f64();
        measured.judge_s += between.elapsed().as_secs_f64();
        measured.cpu_s += cpu_seconds() - cpu;
        measured.epochs += 1;
        measured.loss = trained.iter().map(|of| of.loss).sum::<f32>() / trained.len() as f32;
        if !warm {
            (warm, measured) = (true, Measured::default());
        }
    }
    (measured.launches, measured.bytes) = (group.launches(), group.bytes());
    Ok(measured)
}
