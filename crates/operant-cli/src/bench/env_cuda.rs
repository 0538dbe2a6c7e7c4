//! `operant bench env --device cuda`: the same question of envs that live on a GPU.
//!
//! Bytes are the floor of a rollout that is stored: CartPole writes 22 per step (observation 16, reward 4, two flags), so
//! memory of 4.3 TB/s takes at most 195 G steps/s. A `step` call also reads and writes the state.

use super::env::{Args, Form, action_batches};
use crate::output::{Failure, grouped, print};
use operant::device::alloc;
use operant::device::cuda::{Buffer, Event, Graph};
use operant::env::{ActionsBuf, CudaVec, DeviceActions, DeviceRow, Ends, Options, Seeds, VecEnv};
use operant::lanes::Math;
use operant::lanes::rng::HostRng;
use operant::{Error, Result, device};
use serde_json::json;
use std::time::{Duration, Instant};

/// The most bytes of a stored rollout, unless a horizon is asked for.
const ROLLOUT_BYTES: usize = 2 << 30;

/// What is launched again and again.
enum Work {
    Rollout { rows: DeviceRow, launched: u32 },
    Steps { graph: Graph, calls: usize },
}

/// Actions on the GPU, as a policy there would leave them.
enum Batch {
    Choices(Buffer<u8>),
    Numbers(Buffer<f32>),
}

impl Batch {
    fn actions(&self) -> DeviceActions<'_> {
        match self {
            Self::Choices(buffer) => DeviceActions::U8(buffer),
            Self::Numbers(buffer) => DeviceActions::F32(buffer),
        }
    }
}

fn batches(args: &Args, envs: &CudaVec) -> Result<Vec<Batch>> {
    let mut rng = HostRng::new(args.seed, u32::MAX, 0, 0);
    let (gpu, spec) = (envs.gpu(), envs.spec());
    let make = |_| {
        Ok(match ActionsBuf::random(spec, args.num_envs, &mut rng) {
            ActionsBuf::Choices(choices) => {
                let bytes: Vec<u8> = choices.iter().map(|&choice| choice as u8).collect();
                let buffer = Buffer::new(gpu, bytes.len(), "actions", "num_envs")?;
                buffer.upload(&bytes)?;
                Batch::Choices(buffer)
            }
            ActionsBuf::Numbers(numbers) => {
                let buffer = Buffer::new(gpu, numbers.len(), "actions", "num_envs")?;
                buffer.upload(&numbers)?;
                Batch::Numbers(buffer)
            }
        })
    };
    (0..action_batches(args.num_envs)).map(make).collect()
}

pub(super) fn run(args: &Args, envs: &mut CudaVec, options: &Options) -> Result<(), Failure> {
    let (gpu, spec) = (envs.gpu().clone(), envs.spec().clone());
    let wanted = 1..=1 << 20;
    if let Some(horizon) = args.horizon.filter(|horizon| !wanted.contains(horizon)) {
        return Err(Failure::Usage(format!("--horizon {horizon}: wanted 1..={}", wanted.end())));
    }
    let bytes_per_step = envs.row().bytes_per_step();
    envs.reset_own(Seeds::One(args.seed), None)?;
    let actions = batches(args, envs)?;
    let (mut work, horizon) = match args.form {
        Form::Rollout => {
            let fits = ROLLOUT_BYTES / (bytes_per_step * args.num_envs);
            let horizon = args.horizon.unwrap_or(fits.clamp(8, 1024) / 4 * 4);
            let rows = DeviceRow::new(&gpu, &spec, args.num_envs, horizon, Ends::Dropped)?;
            (Work::Rollout { rows, launched: 0 }, horizon)
        }
        Form::Step => {
            let calls = args.horizon.unwrap_or(256);
            let graph = Graph::record(&gpu, || {
                (0..calls).try_for_each(|i| envs.step_own(actions[i % actions.len()].actions()))
            })?;
            (Work::Steps { graph, calls }, calls)
        }
    };
    let mut launch = |envs: &mut CudaVec| -> Result<usize> {
        match &mut work {
            Work::Rollout { rows, launched } => {
                envs.rollout(args.seed, *launched, rows)?;
                *launched = launched.wrapping_add(rows.rows() as u32);
                Ok(rows.rows())
            }
            Work::Steps { graph, calls } => graph.launch().map(|()| *calls),
        }
    };

    let warm_up = Instant::now();
    let mut launches = 0;
    while launches < 4 || warm_up.elapsed() < Duration::from_millis(200) {
        launch(envs)?;
        gpu.synchronize()?;
        launches += 1;
    }
    // The GPU is waited for every 20 milliseconds or so: often enough to end in time, and it never runs out of work before.
    let per_launch = warm_up.elapsed().as_secs_f64() / f64::from(launches);
    let launches_per_look = ((0.02 / per_launch) as u32).clamp(1, 10_000);
    envs.take_totals()?;
    let (first, last) = (Event::new(&gpu)?, Event::new(&gpu)?);
    gpu.synchronize()?;
    let (allocated, cpu, start) = (alloc::allocations(), device::cpu_seconds(), Instant::now());
    first.record()?;
    let (mut steps, mut launches) = (0, 0u64);
    loop {
        for _ in 0..launches_per_look {
            steps += launch(envs)?;
            launches += 1;
        }
        last.record()?;
        gpu.synchronize()?;
        if start.elapsed().as_secs_f64() >= args.seconds {
            break;
        }
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), device::cpu_seconds() - cpu);
    let allocs_per_step = (alloc::allocations() - allocated) as f64 / steps as f64;
    let gpu_seconds = last.seconds_since(&first)?;
    let totals = envs.take_totals()?;
    let env_steps = steps as f64 * args.num_envs as f64;
    let math = if options.backend.math() == Math::Fast { "fast" } else { "strict" };
    let form = if args.form == Form::Step { "step" } else { "rollout" };
    let ended = totals.episodes.max(1) as f64;
    if totals.episodes == 0 && spec.time_limit.is_some_and(|limit| steps > 2 * limit as usize) {
        return Err(Error::Device(format!("no episode of {} ended in {steps} steps of each env", spec.name)).into());
    }
    if args.json {
        let report = json!({
            "env": spec.name,
            "device": options.device.name(),
            "num_envs": args.num_envs,
            "threads": 1,
            "lanes": 32,
            "backend": "cuda",
            "form": form,
            "horizon": horizon,
            "math": math,
            "seconds": wall,
            "steps_per_s": env_steps / wall,
            "steps_per_gpu_s": env_steps / gpu_seconds,
            "steps_per_cpu_s": env_steps / cpu,
            "ns_per_call": gpu_seconds * 1e9 / steps as f64,
            "launches": launches,
            "allocs_per_step": allocs_per_step,
            "bytes_stored_per_step": bytes_per_step,
            "stored_gb_per_s": env_steps * bytes_per_step as f64 / gpu_seconds / 1e9,
            "episodes": totals.episodes,
            "mean_return": totals.returned / ended,
            "mean_length": totals.length as f64 / ended,
            "kernels": envs.resources()?.iter().map(|(registers, local)| json!([registers, local])).collect::<Vec<_>>(),
            "gpu": gpu.describe(),
            "machine": device::describe(),
        });
        return print(&format!("{report}\n"));
    }
    print(&format!(
        "{name} ({id})  {n} envs on {device}, {form} form ({horizon} steps per launch, {math}), random actions, auto-reset\n\
         gpu                {gpu}\n\
         machine            {machine}\n\
         steps/s            {per_s}\n\
         steps/GPU-s        {per_gpu}\n\
         per step of all    {call:.3} µs\n\
         stored             {bytes_per_step} bytes/step, {stored:.0} GB/s\n\
         episodes           {episodes}, mean return {mean_return:.3}, mean length {mean_length:.3}\n\
         allocations/step   {allocs_per_step}\n",
        name = spec.name,
        id = spec.id,
        n = grouped(args.num_envs as f64),
        device = options.device.name(),
        gpu = gpu.describe(),
        machine = device::describe(),
        per_s = grouped(env_steps / wall),
        per_gpu = grouped(env_steps / gpu_seconds),
        call = gpu_seconds * 1e6 / steps as f64,
        stored = env_steps * bytes_per_step as f64 / gpu_seconds / 1e9,
        episodes = grouped(totals.episodes as f64),
        mean_return = totals.returned / ended,
        mean_length = totals.length as f64 / ended,
    ))
}
