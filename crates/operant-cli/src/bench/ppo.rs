//! `operant bench ppo`: env steps per second of whole iterations, and where the time goes.

use crate::output::{Failure, count, grouped, print};
use clap::ValueEnum;
use operant::CATALOGUE;
use operant::algo::Report;
use operant::config::{self, Table};
use operant::device::{self, Device, alloc};
use operant::run::{Config, build_algorithm, build_env, build_pool};
use serde_json::json;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Short name or Gymnasium id (see `operant list`).
    env: String,
    /// Network, epochs and minibatches of a peer.
    #[arg(long, value_enum, default_value_t = Recipe::Purejaxrl)]
    recipe: Recipe,
    /// Envs stepped together [default: the recipe's].
    #[arg(long, value_parser = count::<usize>, allow_negative_numbers = true)]
    num_envs: Option<usize>,
    /// Steps of each env between updates [default: the recipe's].
    #[arg(long, value_parser = count::<usize>, allow_negative_numbers = true)]
    num_steps: Option<usize>,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = count::<usize>, allow_negative_numbers = true)]
    threads: usize,
    /// Where it runs: cpu, cuda or cuda:i.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// What matrix products read: f32, tf32 (GPUs), bf16, f16 or auto [default: f32, on a GPU bf16].
    #[arg(long)]
    precision: Option<String>,
    /// How long to measure, and to wait until the env is solved.
    #[arg(long, default_value_t = 3.0, allow_negative_numbers = true)]
    seconds: f64,
    /// Change a setting: `--set ppo.update_epochs=1`. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Leave out the run that shows in how long the recipe solves the env.
    #[arg(long)]
    no_solve: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Settings that match a peer's, so that both do the same work.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Recipe {
    /// Separate 2×64 tanh networks, 4 epochs of 4 minibatches, 1024×32.
    Purejaxrl,
    /// One layer of 32, 1 epoch of 4 minibatches, Muon, 4096×64.
    Puffer,
    /// CleanRL's defaults: separate 2×64 tanh networks, 4 epochs of 4 minibatches, 4×128.
    Cleanrl,
}

impl Recipe {
    fn name(self) -> &'static str {
        match self {
            Self::Purejaxrl => "purejaxrl",
            Self::Puffer => "puffer",
            Self::Cleanrl => "cleanrl",
        }
    }

    fn sizes(self) -> (usize, usize) {
        match self {
            Self::Purejaxrl => (1024, 32),
            Self::Puffer => (4096, 64),
            Self::Cleanrl => (4, 128),
        }
    }

    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Purejaxrl | Self::Cleanrl => &[
                "network.hidden=[64, 64]",
                "network.activation=tanh",
                "ppo.update_epochs=4",
                "ppo.learning_rate=2.5e-4",
            ],
            Self::Puffer => &[
                "network.hidden=[32]",
                "network.activation=relu",
                "ppo.update_epochs=1",
                "ppo.optimizer=muon",
                "ppo.learning_rate=1.5e-2",
            ],
        }
    }
}

/// When a run had solved its env.
struct Solved {
    seconds: f64,
    steps: u64,
    /// From the end of start-up until the mean of the last returns of all envs was there too, where that is known.
    all_envs_s: Option<f64>,
}

/// Trains from the beginning until the env counts as solved, or for so many seconds. Building counts as time, as it does in
/// `operant train`.
fn solve(config: &Config, seconds: f64) -> Result<Option<Solved>, Failure> {
    let Some(goal) = operant::env::find(&config.env)?.spec().solved_at else { return Ok(None) };
    let start = Instant::now();
    let pool = build_pool(config);
    let mut algorithm = build_algorithm(config, build_env(config, &pool)?, pool)?;
    let mut report = Report::new(algorithm.metrics().len());
    let (ready, goal) = (Instant::now(), f64::from(goal));
    let (mut solved, mut all_envs_s) = (None, None);
    while start.elapsed().as_secs_f64() < seconds {
        report.begin();
        algorithm.iterate(&mut report);
        if let Some(reason) = report.failed.take() {
            return Err(Failure::Run(reason));
        }
        if report.diverged.is_some() {
            return Ok(None);
        }
        if solved.is_none() && report.episodes.is_full() && report.episodes.mean_return() >= goal {
            solved = Some((start.elapsed().as_secs_f64(), algorithm.steps()));
        }
        if all_envs_s.is_none() && report.last_returns >= goal {
            all_envs_s = Some(ready.elapsed().as_secs_f64());
        }
        // On the CPU nothing is known of all envs.
        let all = all_envs_s.is_some() || !config.settings.device.starts_with("cuda");
        if all && solved.is_some() {
            break;
        }
    }
    Ok(solved.map(|(seconds, steps)| Solved { seconds, steps, all_envs_s }))
}

/// Minibatches of an epoch, in every recipe.
const MINIBATCHES: usize = 4;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !(args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(Failure::Usage(format!("--seconds {}: wanted more than 0 and at most 3600", args.seconds)));
    }
    let machine = match Device::named(&args.device)? {
        Device::Cpu => device::describe(),
        Device::Cuda(gpu) => gpu.describe(),
    };
    let (num_envs, num_steps) = args.recipe.sizes();
    let (num_envs, num_steps) = (args.num_envs.unwrap_or(num_envs), args.num_steps.unwrap_or(num_steps));
    let mut over = Table::new();
    let usual = if args.device.starts_with("cuda") { "bf16" } else { "f32" };
    let sizes = [
        format!("num_envs={num_envs}"),
        format!("ppo.num_steps={num_steps}"),
        format!("ppo.minibatch_size={}", (num_envs.saturating_mul(num_steps) / MINIBATCHES).max(1)),
        format!("threads={}", args.threads),
        format!("device={}", args.device),
        format!("precision={}", args.precision.as_deref().unwrap_or(usual)),
        "steps=1e12".to_owned(),
    ];
    let words = args.recipe.settings().iter().copied().chain(sizes.iter().map(String::as_str));
    for assignment in words.chain(args.set.iter().map(String::as_str)) {
        config::assign(&mut over, assignment)?;
    }
    operant::env::find(&args.env)?;
    let config = Config::resolve(&CATALOGUE, "ppo", &args.env, over)?;
    if let Some(note) = config.precision_note()? {
        crate::output::warn(note);
    }
    let pool = build_pool(&config);
    let threads = pool.threads();
    let (num_envs, precision) = (config.settings.num_envs, config.precision()?.name());
    let num_steps = config.own.get("num_steps").and_then(config::Value::as_integer).unwrap_or_default();
    let mut algorithm = build_algorithm(&config, build_env(&config, &pool)?, pool)?;
    let mut report = Report::new(algorithm.metrics().len());
    let mut iterate = |report: &mut Report| {
        report.begin();
        algorithm.iterate(report);
        if let Some(reason) = report.failed.take() {
            return Err(Failure::Run(reason));
        }
        match report.diverged.take() {
            Some(reason) => Err(Failure::Run(format!("{reason}; this recipe does not suit {}", args.env))),
            None => Ok(()),
        }
    };
    for _ in 0..2 {
        iterate(&mut report)?;
    }
    let (allocations, cpu, start) = (alloc::allocations(), device::cpu_seconds(), Instant::now());
    let (mut iterations, mut seconds) = (0_u32, [0.0; 3]);
    while start.elapsed().as_secs_f64() < args.seconds || iterations < 3 {
        iterate(&mut report)?;
        for (sum, x) in seconds.iter_mut().zip([report.seconds[0], report.seconds[1], report.env_seconds]) {
            *sum += x;
        }
        iterations += 1;
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), device::cpu_seconds() - cpu);
    let allocations = (alloc::allocations() - allocations) as f64 / f64::from(iterations);
    let steps = f64::from(iterations) * algorithm.steps_per_iteration() as f64;
    let [collect, learn, env] = seconds.map(|x| x / wall);
    let (sps, per_cpu) = (steps / wall, steps / cpu);
    let solved = if args.no_solve { None } else { solve(&config, args.seconds)? };
    if args.json {
        let object = json!({
            "recipe": args.recipe.name(), "env": config.env, "num_envs": num_envs, "num_steps": num_steps,
            "threads": threads, "device": config.settings.device, "precision": precision, "sps": sps, "sps_per_cpu_s": per_cpu,
            "env_share": env, "collect_share": collect - env, "learn_share": learn,
            "allocs_per_iteration": allocations, "iterations": iterations,
            "solved_s": solved.as_ref().map(|solved| solved.seconds), "solved_step": solved.as_ref().map(|solved| solved.steps),
            "all_envs_s": solved.as_ref().and_then(|solved| solved.all_envs_s), "other_share": (1.0 - collect - learn).max(0.0),
            "machine": machine,
        });
        return print(&format!("{object}\n"));
    }
    let percent = |x: f64| 100.0 * x;
    let solved = match solved {
        Some(Solved { seconds, steps, all_envs_s }) => {
            let all = all_envs_s.map_or(String::new(), |s| format!("; all envs {:.1} ms after start-up", 1e3 * s));
            format!("in {seconds:.2} s, at {} steps{all}", grouped(steps as f64))
        }
        None if args.no_solve => "not tried".to_owned(),
        None => format!("not within {} s", args.seconds),
    };
    print(&format!(
        "ppo {} {}: {num_envs} envs x {num_steps} steps, {}, {}\n\
         machine            {}\n\
         speed              {} steps/s, {} steps per CPU-second, {iterations} iterations\n\
         env                {:.1} %\n\
         collect            {:.1} % (network and sampling)\n\
         learn              {:.1} %\n\
         other              {:.1} %\n\
         allocations        {allocations} per iteration\n\
         solved             {solved}\n",
        config.env,
        args.recipe.name(),
        if args.device.starts_with("cuda") { args.device.clone() } else { format!("{threads} threads") },
        precision,
        machine,
        grouped(sps),
        grouped(per_cpu),
        percent(env),
        percent(collect - env),
        percent(learn),
        percent((1.0 - collect - learn).max(0.0)),
    ))
}
