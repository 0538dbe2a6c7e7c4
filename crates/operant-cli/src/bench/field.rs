//! `operant bench field`: steps of realisations of neural operators per second of CPU time.

use crate::output::{Failure, count, print, warn};
use clap::ValueEnum;
use operant::device::cuda::{Event, Gpu};
use operant::device::{self, CpuPool, Device};
use operant::field::cuda::{CudaRollout, Member, refused, unserved};
use operant::field::initial::{KINDS, Shape};
use operant::field::{Afno, After, Norm, Operator, Rollout, Schedule, Update};
use operant::lanes::Backend;
use operant::nn::ops::NoiseLaw;
use operant::nn::{Act, Options, Precision, peak_gflops};
use serde_json::json;
use std::sync::Arc;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which operator, on three channels of 128x128 with kernels of 3x3, instance norm, GELU, dropout and noise.
    #[arg(long, value_enum, default_value_t = Choice::Flat)]
    operator: Choice,
    /// G, operators in turn.
    #[arg(long, default_value_t = 1, value_parser = count::<u32>, allow_negative_numbers = true)]
    ops: u32,
    /// M, realisations of each.
    #[arg(long, default_value_t = 5, value_parser = count::<u32>, allow_negative_numbers = true)]
    realisations: u32,
    /// f32, bf16, f16, or auto: the fastest that this CPU was measured to have.
    #[arg(long, default_value = "f32")]
    precision: String,
    /// cpu, cuda or cuda:i. On a GPU all operators and realisations are one batch.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads that share a batch.
    #[arg(long, default_value_t = 1, value_parser = count::<usize>, allow_negative_numbers = true)]
    threads: usize,
    /// How long to measure.
    #[arg(long, default_value_t = 3.0, allow_negative_numbers = true)]
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// Four layers of 64 channels: 4.9 GFLOP a step.
    Flat,
    /// Four residual blocks of 64, 128, 256 and 256 channels: 78.7 GFLOP a step.
    Residual,
    /// Two levels of 64 and 128 channels around two Fourier blocks of 256 over all 16 frequencies of 32x32. On the CPU.
    Uafno,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !(args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(Failure::Usage(format!("--seconds {}: wanted more than 0 and at most 3600", args.seconds)));
    }
    let within = (1..=64).contains(&args.ops) && (1..=1024).contains(&args.realisations);
    if !within || !(1..=1024).contains(&args.threads) {
        return Err(Failure::Usage("wanted --ops 1..=64, --realisations 1..=1024, --threads 1..=1024".into()));
    }
    let precision = Precision::named(&args.precision)?;
    let operator = Operator {
        channels: 3,
        grid: 128,
        layers: if args.operator == Choice::Uafno { 1 } else { 4 },
        base_channels: 64,
        kernel: 3,
        flat: args.operator == Choice::Flat,
        activation: Act::Gelu,
        dropout: 0.1,
        noise: NoiseLaw::Gaussian,
        noise_scale: 0.1,
        schedule: Schedule::Constant,
        correlation: 0.0,
        norm: Norm::Instance,
        afno: (args.operator == Choice::Uafno).then_some(Afno { levels: 2, blocks: 2, modes: 1.0 }),
    };
    let first = KINDS[0].field(Shape { grid: 128, channels: 3, length: 0.05, variance: 1.0 }, 1);
    let update = Update::Convex { alpha: 0.5 };
    if let Some(index) = Device::gpu_index(&args.device)? {
        if let Some(why) = refused(&operator) {
            return Err(Failure::Run(format!("{why}; take --device cpu")));
        }
        let gpu = Gpu::open(index)?;
        let members: Vec<Member> = (0..args.ops)
            .map(|seed| Member { operator: &operator, update, seed: seed.into(), first: &first })
            .collect();
        match unserved(&gpu, &operator) {
            Some(why) => warn(&format!("{} was asked for, but {why}: computing on the CPU", args.device)),
            None => return on_gpu(args, &gpu, &members, precision),
        }
    }
    let pool = Arc::new(CpuPool::new(args.threads));
    let options = Options { pool, precision, ..Options::default() };
    let build = |seed: u32| {
        Rollout::new(&operator, update, After::default(), seed.into(), 0..args.realisations, 1000, &first, &options)
    };
    let mut rollouts = (0..args.ops).map(build).collect::<operant::Result<Vec<_>>>()?;
    let (served, note) = rollouts[0].precision();
    rollouts.iter_mut().for_each(Rollout::step);
    let begun = std::time::Instant::now();
    // One thread is timed by its CPU clock, which stands still while other programs run.
    let now = || if args.threads == 1 { device::cpu_seconds() } else { begun.elapsed().as_secs_f64() };
    let (mut best, start) = (f64::INFINITY, now());
    while best.is_infinite() || now() - start < args.seconds {
        let part = now();
        rollouts.iter_mut().for_each(Rollout::step);
        best = best.min(now() - part);
    }
    let steps = f64::from(args.ops * args.realisations);
    let rs_per_s = steps / best;
    let flops = rollouts[0].flops() as f64;
    let peak = peak_gflops(Backend::fast(), served) * args.threads as f64;
    let gflops = rs_per_s * flops * 1e-9;
    rollouts[0].set_timed(true);
    rollouts[0].step();
    let profile = rollouts[0].profile();
    let total: u64 = profile.0.iter().map(|op| op.nanoseconds).sum();
    let share = |nanoseconds: u64| nanoseconds as f64 / total.max(1) as f64;
    let name = args.operator.name();
    if args.json {
        let ops: Vec<_> = profile.0.iter().map(|op| json!({"op": op.op, "share": share(op.nanoseconds)})).collect();
        let report = json!({
            "operator": name, "ops": args.ops, "realisations": args.realisations, "precision": served.name(),
            "device": "cpu", "threads": args.threads, "rs_per_s": rs_per_s, "gflop_per_step": flops * 1e-9,
            "tflops": gflops * 1e-3, "share_of_peak": gflops / peak, "profile": ops, "note": note,
            "machine": device::describe(),
        });
        return print(&format!("{report}\n"));
    }
    let mut text = format!(
        "{name} operator, {:.1} GFLOP a step, {} x {} realisations, {}, {} threads\n\
         machine               {}\n\
         realisation-steps/s   {rs_per_s:.2}\n\
         GFLOP/s               {gflops:.0} ({:.0} % of products in the nearest caches)\n",
        flops * 1e-9,
        args.ops,
        args.realisations,
        served.name(),
        args.threads,
        device::describe(),
        100.0 * gflops / peak,
    );
    for op in &profile.0 {
        text += &format!("  {:<20}{:.0} %\n", op.op, 100.0 * share(op.nanoseconds));
    }
    if let Some(note) = note {
        text += &format!("note                  {note}\n");
    }
    print(&text)
}

impl Choice {
    fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }
}

/// Products times two per second of a Hopper GPU's tensor cores: 4,096 per multiprocessor and cycle of 1.83 GHz with operands of
/// two bytes, half of that with tf32, of which f32 takes three.
fn gpu_peak(gpu: &Gpu, precision: Precision) -> f64 {
    let share = match precision {
        Precision::Bf16 | Precision::F16 => 1.0,
        Precision::Tf32 => 0.5,
        Precision::F32 => 0.5 / 3.0,
    };
    gpu.info().multiprocessors as f64 * 4096.0 * 1.83e9 * share
}

fn on_gpu(args: &Args, gpu: &Arc<Gpu>, members: &[Member], precision: Precision) -> Result<(), Failure> {
    /// Steps between two marks.
    const PART: u32 = 20;
    let mut rollout = CudaRollout::new(gpu, members, After::default(), 0..args.realisations, 1000, precision, 0)?;
    let (before, after) = (Event::new(gpu)?, Event::new(gpu)?);
    let mut part = || -> operant::Result<f64> {
        before.record()?;
        for _ in 0..PART {
            rollout.step()?;
        }
        after.record()?;
        after.seconds_since(&before)
    };
    part()?;
    let (mut times, begun) = (Vec::new(), std::time::Instant::now());
    while times.is_empty() || begun.elapsed().as_secs_f64() < args.seconds {
        times.push(part()? / f64::from(PART));
    }
    times.sort_by(f64::total_cmp);
    let rate = |seconds: f64| f64::from(args.ops * args.realisations) / seconds;
    let (middle, best) = (rate(times[times.len() / 2]), rate(times[0]));
    let flops = rollout.flops() as f64;
    let share = middle * flops / gpu_peak(gpu, precision);
    let finite = rollout.state()?.iter().all(|x| x.is_finite());
    let (name, tflops) = (args.operator.name(), middle * flops * 1e-12);
    let profile = rollout.profile()?;
    if args.json {
        let profile: Vec<_> =
            profile.iter().map(|(name, s)| json!({"kernel": name, "microseconds": s * 1e6})).collect();
        let report = json!({
            "operator": name, "ops": args.ops, "realisations": args.realisations, "precision": precision.name(),
            "device": args.device, "rs_per_s": middle, "best_rs_per_s": best, "gflop_per_step": flops * 1e-9,
            "tflops": tflops, "share_of_peak": share, "finite": finite, "profile": profile,
            "machine": gpu.describe(),
        });
        return print(&format!("{report}\n"));
    }
    let kernels: String = profile.iter().map(|(name, s)| format!("  {name:<24}{:.1} us\n", s * 1e6)).collect();
    print(&format!(
        "{name} operator, {:.1} GFLOP a step, {} x {} realisations, {}\n\
         machine               {}\n\
         realisation-steps/s   {middle:.0} (best of {} parts: {best:.0})\n\
         TFLOP/s               {tflops:.0} ({:.0} % of tensor cores at 1.83 GHz)\n\
         one after the other\n{kernels}",
        flops * 1e-9,
        args.ops,
        args.realisations,
        precision.name(),
        gpu.describe(),
        times.len(),
        100.0 * share,
    ))
}
