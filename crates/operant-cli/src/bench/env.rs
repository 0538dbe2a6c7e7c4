//! `operant bench env`: environment steps per second.

use super::env_cuda;
use crate::output::{Failure, count, grouped, print};
use clap::ValueEnum;
use operant::device::{self, CpuPool, Device, alloc};
use operant::env::{self, ActionsBuf, AutoReset, Options, RowBuf, Seeds};
use operant::lanes::rng::HostRng;
use operant::lanes::{Backend, Math, Width};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Short name or Gymnasium id (see `operant list`).
    name: String,
    /// Environments stepped together.
    #[arg(long, default_value_t = 8192, value_parser = count::<usize>, allow_negative_numbers = true)]
    pub(super) num_envs: usize,
    /// Where they live: cpu, cuda or cuda:i.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// On a GPU: `rollout`, many steps per launch with actions drawn in the kernel, or `step`, one call per step.
    #[arg(long, value_enum, default_value_t = Form::Rollout)]
    pub(super) form: Form,
    /// On a GPU: steps per launch of a rollout, or calls of `step` per graph; chosen by size if not given.
    #[arg(long)]
    pub(super) horizon: Option<usize>,
    /// Threads that step them.
    #[arg(long, default_value_t = 1, value_parser = count::<usize>, allow_negative_numbers = true)]
    threads: usize,
    /// Use all threads even where one is faster: shows what sharing a step costs.
    #[arg(long)]
    split: bool,
    /// Lanes of the SIMD code.
    #[arg(long, value_enum, default_value_t = LanesArg::Auto)]
    lanes: LanesArg,
    /// `strict`: the same bits on every width. `fast`: fused multiply-add where the CPU has it.
    #[arg(long, value_enum, default_value_t = MathArg::Strict)]
    math: MathArg,
    /// How long to measure.
    #[arg(long, default_value_t = 2.0, allow_negative_numbers = true)]
    pub(super) seconds: f64,
    /// Set a parameter of the env: `--set gravity=3.7`. Repeatable.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, f64)>,
    /// Seed of the envs and of the actions.
    #[arg(long, default_value_t = 0, value_parser = count::<u64>, allow_negative_numbers = true)]
    pub(super) seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// How steps are launched on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    Rollout,
    Step,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LanesArg {
    Auto,
    #[value(name = "1")]
    One,
    #[value(name = "8")]
    Eight,
    #[value(name = "16")]
    Sixteen,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MathArg {
    Strict,
    Fast,
}

fn parse_setting(text: &str) -> Result<(String, f64), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("\"{text}\": wanted NAME=VALUE, as in gravity=3.7"))?;
    let value = match value {
        "true" => 1.0,
        "false" => 0.0,
        _ => value.parse().map_err(|_| format!("\"{value}\" is not a number (for {name})"))?,
    };
    Ok((name.to_owned(), value))
}

/// Batches of actions made before the clock starts and used in turn: making them is not what is measured. As many as
/// stay in cache, where a policy would have left them.
pub(super) fn action_batches(num_envs: usize) -> usize {
    (1usize << 17).div_ceil(num_envs).clamp(4, 64)
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !(args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(Failure::Usage(format!("--seconds {}: wanted more than 0 and at most 3600", args.seconds)));
    }
    if !(1..=1024).contains(&args.threads) {
        return Err(Failure::Usage(format!("--threads {}: wanted 1..=1024", args.threads)));
    }
    let width = match args.lanes {
        LanesArg::Auto => Width::Auto,
        LanesArg::One => Width::One,
        LanesArg::Eight => Width::Eight,
        LanesArg::Sixteen => Width::Sixteen,
    };
    let math = match args.math {
        MathArg::Strict => Math::Strict,
        MathArg::Fast => Math::Fast,
    };
    let entry = env::find(&args.name)?;
    let options = Options {
        pool: Arc::new(CpuPool::new(args.threads)),
        backend: Backend::checked(width, math)?,
        autoreset: AutoReset::SameStep,
        always_split: args.split,
        device: Device::named(&args.device)?,
        ..Options::new(args.num_envs)
    };
    let settings: Vec<(&str, f64)> = args.settings.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let mut envs = entry.build(&settings, &options)?;
    if let Some(envs) = envs.on_gpu() {
        return env_cuda::run(args, envs, &options);
    }
    let spec = envs.spec().clone();
    let mut rng = HostRng::new(args.seed, u32::MAX, 0, 0);
    let bytes = action_batches(args.num_envs) * args.num_envs * (spec.action.dims() * size_of::<f32>());
    device::check_room(&format!("actions for num_envs {}", args.num_envs), bytes as u64, "lower num_envs")?;
    let batches: Vec<ActionsBuf> =
        (0..action_batches(args.num_envs)).map(|_| ActionsBuf::random(&spec, args.num_envs, &mut rng)).collect();
    let mut row = RowBuf::new(&spec, args.num_envs);
    envs.reset(Seeds::One(args.seed), None, row.row());
    let mut step = |i: usize| envs.step(batches[i % batches.len()].actions(), row.row());

    let warm_up = Instant::now();
    let mut calls = 0;
    while calls < 16 || warm_up.elapsed() < Duration::from_millis(100) {
        step(calls);
        calls += 1;
    }
    // The clock is read every few milliseconds, so that it does not show at small N.
    let calls_per_look = (calls / 20).max(1);
    let (allocated, cpu, start) = (alloc::allocations(), device::cpu_seconds(), Instant::now());
    let mut calls = 0;
    loop {
        for _ in 0..calls_per_look {
            step(calls);
            calls += 1;
        }
        if start.elapsed().as_secs_f64() >= args.seconds {
            break;
        }
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), device::cpu_seconds() - cpu);
    let allocs_per_step = (alloc::allocations() - allocated) as f64 / calls as f64;
    let steps = (calls * args.num_envs) as f64;
    let lanes = match entry.door() {
        env::Door::Lanes => options.backend.width(),
        env::Door::Host => 1,
    };
    let backend = match entry.door() {
        env::Door::Lanes => options.backend.name(),
        env::Door::Host => "host",
    };
    let math = if options.backend.math() == Math::Fast { "fast" } else { "strict" };
    if args.json {
        let report = json!({
            "env": spec.name,
            "device": options.device.name(),
            "num_envs": args.num_envs,
            "threads": args.threads,
            "lanes": lanes,
            "backend": backend,
            "math": math,
            "seconds": wall,
            "steps_per_s": steps / wall,
            "steps_per_cpu_s": steps / cpu,
            "ns_per_call": wall * 1e9 / calls as f64,
            "allocs_per_step": allocs_per_step,
            "machine": device::describe(),
        });
        return print(&format!("{report}\n"));
    }
    print(&format!(
        "{name} ({id})  {n}, {threads}, {lanes} {lanes_word} ({backend}, {math}), random actions, auto-reset\n\
         machine            {machine}\n\
         steps/s            {per_s}\n\
         steps/CPU-s        {per_cpu}\n\
         per call           {call:.2} µs\n\
         allocations/step   {allocs_per_step}\n",
        name = spec.name,
        id = spec.id,
        n = if args.num_envs == 1 { "1 env".into() } else { format!("{} envs", grouped(args.num_envs as f64)) },
        threads = if args.threads == 1 { "1 thread".into() } else { format!("{} threads", args.threads) },
        lanes_word = if lanes == 1 { "lane" } else { "lanes" },
        machine = device::describe(),
        per_s = grouped(steps / wall),
        per_cpu = grouped(steps / cpu),
        call = wall * 1e6 / calls as f64,
    ))
}
