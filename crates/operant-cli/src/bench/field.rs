//! `operant bench field`: steps of realisations of neural operators per second of CPU time.

use crate::output::{Failure, count, print};
use clap::ValueEnum;
use operant::device::{self, CpuPool};
use operant::env::field::initial::{KINDS, Shape};
use operant::env::field::{After, Norm, Operator, Rollout, Schedule, Update};
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
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !(args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(Failure::Usage(format!("--seconds {}: wanted more than 0 and at most 3600", args.seconds)));
    }
    let within = (1..=64).contains(&args.ops) && (1..=1024).contains(&args.realisations);
    if !within || !(1..=1024).contains(&args.threads) {
        return Err(Failure::Usage("wanted --ops 1..=64, --realisations 1..=1024, --threads 1..=1024".into()));
    }
    let precision = match args.precision.as_str() {
        "auto" => Precision::fastest(),
        name => name.parse()?,
    };
    let operator = Operator {
        channels: 3,
        grid: 128,
        layers: 4,
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
    };
    let pool = Arc::new(CpuPool::new(args.threads));
    let options = Options { pool, precision, ..Options::default() };
    let first = KINDS[0].field(Shape { grid: 128, channels: 3, length: 0.05, variance: 1.0 }, 1);
    let update = Update::Convex { alpha: 0.5 };
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
    let name = args.operator.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
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
