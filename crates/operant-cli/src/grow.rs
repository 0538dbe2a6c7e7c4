//! `operant grow`: episodes of growth under a controller: the heuristic, none at all, or a trained policy; and its speed.

use crate::format;
use crate::output::{Failure, NO_TASK_DATA, count, grouped, print};
use operant::CATALOGUE;
use operant::algo::Policy;
use operant::config::{self, Table};
use operant::data::ActionColumn;
use operant::device::{CpuPool, Device, cpu_seconds, threads_available};
use operant::env::growth::{
    Apart, Bodies, CLASSES, Choice, Cohort, Episode, Frame, Happened, Heuristic, Planted, Stage, attribution,
    episode_seed, set_task_data,
};
use operant::env::{Growth, HostEnv, Options, Params};
use operant::lanes::rng::HostRng;
use operant::nn::dist::Draws;
use operant::nn::grow::{Blueprint, Grown, Host, Topology, Training};
use operant::run::{Checkpoints, Config, Run};
use serde_json::{Value, json};
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Let the heuristic controller decide: the baseline.
    Heuristic(Play),
    /// Train the host alone.
    Host(Play),
    /// Let the policy of a run decide.
    Policy(PolicyArgs),
    /// Measure how fast a host trains on one core.
    Speed(SpeedArgs),
}

#[derive(Debug, clap::Args)]
struct Play {
    /// Episodes.
    #[arg(long, default_value_t = 1, value_parser = count::<usize>, allow_negative_numbers = true)]
    episodes: usize,
    /// Seed of the episodes.
    #[arg(long, default_value_t = 1, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: u64,
    /// Change a parameter of the env: `--set env.epochs=20`. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A file of settings, over the shipped ones; of them the env's and task_data count.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of a task's files, for env.task=cifar10; a text, or a folder of texts, for env.task=bytes.
    #[arg(long, value_name = "FILE_OR_DIR")]
    task_data: Option<PathBuf>,
    /// Where hosts train: cpu, one episode after another, or cuda or cuda:i, all side by side.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct PolicyArgs {
    /// Folder of the run.
    run: PathBuf,
    /// Which checkpoint: best, last or its name [default: last].
    #[arg(long, value_name = "NAME")]
    checkpoint: Option<String>,
    /// Take the most probable action in place of a sample.
    #[arg(long)]
    deterministic: bool,
    #[command(flatten)]
    play: Play,
}

#[derive(Debug, clap::Args)]
struct SpeedArgs {
    /// The host.
    #[arg(long, default_value = "baseline")]
    host: String,
    /// Pixels along each side of images, or bytes of a window of text.
    #[arg(long, default_value_t = 32, value_parser = count::<usize>, allow_negative_numbers = true)]
    side: usize,
    /// Samples of a minibatch.
    #[arg(long, default_value_t = 128, value_parser = count::<usize>, allow_negative_numbers = true)]
    batch: usize,
    /// CPU seconds to train for.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Heuristic(play) => {
            let slots = |episode: &Episode| episode.state.slots.len();
            played(play, "heuristic", &settings(play, None)?, |_| {
                let mut heuristic = None;
                Box::new(move |episode: &Episode| {
                    heuristic.get_or_insert_with(|| Heuristic::new(slots(episode))).choose(episode)
                })
            })
        }
        What::Host(play) => played(play, "host", &settings(play, None)?, |_| Box::new(|_: &Episode| Choice::default())),
        What::Policy(args) => policy(args),
        What::Speed(args) => speed(args),
    }
}

/// The env's parameters: those of the shipped settings, or of a run, with what was said over them.
fn settings(play: &Play, run: Option<&Config>) -> Result<Vec<(String, f64)>, Failure> {
    let mut over = match run {
        Some(config) => config::parse(&config.to_text(), "run.toml")?,
        None => Table::new(),
    };
    if let Some(path) = &play.config {
        let file = path.display().to_string();
        let failed = |error: std::io::Error| Failure::Usage(format!("can't read settings from {file}: {error}"));
        let mut table = config::parse(&std::fs::read_to_string(path).map_err(failed)?, &file)?;
        table.retain(|key, _| key == "env" || key == "task_data");
        config::merge(&mut over, table);
    }
    for word in &play.set {
        if !word.starts_with("env.") {
            return Err(Failure::Usage(format!("--set {word}: wanted a parameter of the env, as in env.epochs=20")));
        }
        config::assign(&mut over, word)?;
    }
    let config = Config::resolve(&CATALOGUE, "ppo", "growth", over)?;
    config.use_task_data();
    if let Some(folder) = &play.task_data {
        if !config.reads_task_data() {
            return Err(Failure::Usage(NO_TASK_DATA.into()));
        }
        set_task_data(folder);
    }
    Ok(config.env_params)
}

/// Decides at every step of one episode.
type Controller<'a> = Box<dyn FnMut(&Episode) -> Choice + 'a>;

fn played<'a>(
    play: &Play,
    name: &str,
    params: &[(String, f64)],
    controller: impl Fn(usize) -> Controller<'a>,
) -> Result<(), Failure> {
    if play.episodes == 0 {
        return Err(Failure::Usage("--episodes 0: wanted at least 1".into()));
    }
    let env = with(params)?;
    env.validate()?;
    let device = Device::named(&play.device)?;
    let frame = env.frame()?;
    let mut results = Vec::new();
    match device {
        Device::Cpu => {
            for number in 0..play.episodes {
                let cohort = Cohort::new(1, Apart::new(&frame, 1)?);
                results.extend(side_by_side(play, &frame, cohort, number..number + 1, &controller)?);
            }
        }
        Device::Cuda(_) => {
            let pool = Arc::new(CpuPool::new(threads_available()));
            let bodies = env.together(&Options { device, pool, ..Options::new(play.episodes) })?;
            let cohort = Cohort::new(play.episodes, bodies);
            results = side_by_side(play, &frame, cohort, 0..play.episodes, &controller)?;
        }
    }
    report(name, &results, play.json)
}

/// Plays the episodes of these numbers in the places of a cohort. All are as long, so all end at once.
fn side_by_side<'a, B: Bodies>(
    play: &Play,
    frame: &Arc<Frame>,
    mut cohort: Cohort<B>,
    numbers: Range<usize>,
    controller: impl Fn(usize) -> Controller<'a>,
) -> Result<Vec<Value>, Failure> {
    let started = cpu_seconds();
    let places = 0..numbers.len();
    // The stream of env `number` of a vector env, in its first episode.
    let seed = |number: usize| episode_seed(&mut HostRng::new(play.seed, number as u32, 0, 0), false);
    let new: Vec<(usize, u64)> = places.clone().zip(numbers.clone().map(seed)).collect();
    cohort.begin(frame, &new)?;
    let mut controllers: Vec<Controller<'a>> = numbers.map(controller).collect();
    let mut totals = vec![0.0; places.len()];
    let mut logs = vec![Vec::new(); places.len()];
    loop {
        let decide = |(place, decide): (usize, &mut Controller<'a>)| cohort.episode(place).map(decide);
        let choices: Vec<Option<Choice>> = controllers.iter_mut().enumerate().map(decide).collect();
        let given = cohort.step(&choices)?;
        let mut over = true;
        for place in places.clone() {
            let (reward, done) = given[place].unwrap_or((0.0, true));
            totals[place] += reward;
            over &= done;
            if let Some(episode) = cohort.episode(place) {
                logs[place].extend(episode.state.happened.iter().map(|happened| told(episode.state.epoch, happened)));
            }
        }
        if over {
            break;
        }
    }
    let mut results = Vec::new();
    for (place, (total, log)) in totals.into_iter().zip(logs).enumerate() {
        results.push(summary(&mut cohort, place, total, log)?);
    }
    // Of episodes that shared their work each gets its part.
    let cpu_s = (cpu_seconds() - started) / results.len() as f64;
    results.iter_mut().for_each(|result| result["cpu_s"] = json!(cpu_s));
    Ok(results)
}

/// Something that happened, as JSON.
fn told(epoch: u32, happened: &Happened) -> Value {
    match happened {
        Happened::Stage { slot, from, to, blueprint } => json!({
            "epoch": epoch, "slot": slot, "from": from.name(), "to": to.name(),
            "blueprint": blueprint.map(|number| Blueprint::ALL[number].1),
        }),
        Happened::Rollback(panic) => json!({ "epoch": epoch, "rollback": panic.name() }),
    }
}

fn summary<B: Bodies>(cohort: &mut Cohort<B>, place: usize, total: f32, log: Vec<Value>) -> Result<Value, Failure> {
    let Some(heard) = cohort.episode(place).map(Episode::heard) else { return Ok(Value::Null) };
    let n = heard.len();
    let shapley = if n <= attribution::EXACT {
        let all: Vec<u32> = (0..1u32 << n).collect();
        attribution::exact(&cohort.forced_scores(place, &heard, &all)?)
    } else {
        let mut failed = None;
        let shapley = attribution::permutations(n, 0.25, 64, 0, |s| {
            let scores = cohort.forced_scores(place, &heard, &[s]);
            scores.map(|scores| scores[0]).unwrap_or_else(|error| {
                failed = Some(error);
                0.0
            })
        });
        match failed {
            Some(error) => return Err(error.into()),
            None => shapley,
        }
    };
    let Some(episode) = cohort.episode(place) else { return Ok(Value::Null) };
    let state = &episode.state;
    let seeds: Vec<Value> = heard
        .iter()
        .zip(shapley.values.iter().zip(&shapley.errors))
        .map(|(&slot, (value, error))| {
            let blueprint = state.planted[slot].map(|Planted { blueprint, .. }| Blueprint::ALL[blueprint].1);
            let of = &state.slots[slot];
            json!({
                "slot": slot, "blueprint": blueprint, "stage": of.stage.name(), "alpha": of.alpha.value,
                "contribution": of.measured.contribution, "shapley": value, "shapley_error": error,
            })
        })
        .collect();
    let fossils = state.slots.iter().filter(|slot| slot.stage == Stage::Fossilised).count();
    Ok(json!({
        "accuracy": episode.accuracy(), "loss": episode.loss(), "return": total, "epochs": state.epoch,
        "host_parameters": episode.host_parameters(), "seed_parameters": episode.seed_parameters(),
        "fossils": fossils, "rollbacks": state.rollbacks, "seeds": seeds, "events": log,
    }))
}

/// Mean and standard error of a number of all results.
fn statistics(results: &[Value], key: &str) -> (f64, f64) {
    let values: Vec<f64> = results.iter().filter_map(|result| result[key].as_f64()).collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

fn report(name: &str, results: &[Value], json: bool) -> Result<(), Failure> {
    let (accuracy, error) = statistics(results, "accuracy");
    let means = ["return", "seed_parameters", "fossils", "cpu_s"].map(|key| statistics(results, key).0);
    if json {
        let object = json!({
            "controller": name, "episodes": results, "mean_accuracy": accuracy, "accuracy_error": error,
            "mean_return": means[0], "mean_seed_parameters": means[1], "mean_fossils": means[2],
        });
        return print(&format!("{object}\n"));
    }
    let mut text = String::new();
    for (number, result) in results.iter().enumerate() {
        let _ = writeln!(
            text,
            "episode {number}: accuracy {:.1} %, return {:.2}, {} fossils, {} parameters of seeds beside {} of the host, {:.1} CPU s",
            result["accuracy"].as_f64().unwrap_or(f64::NAN),
            result["return"].as_f64().unwrap_or(f64::NAN),
            result["fossils"],
            grouped(result["seed_parameters"].as_f64().unwrap_or(0.0)),
            grouped(result["host_parameters"].as_f64().unwrap_or(0.0)),
            result["cpu_s"].as_f64().unwrap_or(f64::NAN),
        );
        for seed in result["seeds"].as_array().into_iter().flatten() {
            let _ = writeln!(
                text,
                "  slot {}: {} {}, alpha {:.2}, worth {:.1} points (Shapley)",
                seed["slot"],
                seed["blueprint"].as_str().unwrap_or("?"),
                seed["stage"].as_str().unwrap_or("?"),
                seed["alpha"].as_f64().unwrap_or(0.0),
                seed["shapley"].as_f64().unwrap_or(0.0)
            );
        }
    }
    let _ = writeln!(
        text,
        "{name}: mean accuracy {accuracy:.2} ± {} (standard error), mean return {:.2}, {:.0} parameters of seeds",
        format::error(error, 2),
        means[0],
        means[1]
    );
    print(&text)
}

/// Actions of a network in the order of its heads.
fn choice(actions: &ActionColumn) -> Choice {
    let ActionColumn::Choices(a) = actions else { return Choice::default() };
    Choice::of(|head| a[head] as usize)
}

fn policy(args: &PolicyArgs) -> Result<(), Failure> {
    let failed = |error: operant::Error| Failure::Run(error.to_string());
    let below = Path::new("runs").join(&args.run);
    let run = if args.run.exists() || !below.exists() { &args.run } else { &below };
    if !run.join("run.toml").exists() {
        Run::config_of(&CATALOGUE, run).map_err(failed)?;
    }
    let checkpoints = Checkpoints::new(run, 1);
    let name = checkpoints.pick(args.checkpoint.as_deref()).map_err(failed)?;
    let parts = checkpoints.load(&name).map_err(failed)?;
    let text = operant::algo::part(&parts, "run.toml").map_err(failed)?;
    let config = Config::from_text(&CATALOGUE, &String::from_utf8_lossy(text), &format!("run.toml of {name}"))
        .map_err(failed)?;
    if config.env != "growth" {
        return Err(Failure::Usage(format!("{} is a run of {}, wanted one of growth", run.display(), config.env)));
    }
    let params = settings(&args.play, Some(&config))?;
    let bytes = operant::algo::part(&parts, "policy.safetensors").map_err(failed)?;
    let policy = Policy::from_bytes(bytes).map_err(failed)?;
    let (spec, dims) = (with(&params)?.spec(), policy.head.dims());
    if policy.architecture.inputs() != spec.observation.len() {
        let inputs = policy.architecture.inputs();
        let shown = spec.observation.len();
        return Err(Failure::Usage(format!(
            "the policy sees {inputs} numbers, this host shows {shown}; leave env.host as it was"
        )));
    }
    let policy = &policy;
    // Built once before anything is played, so that its mistakes are told.
    policy.actor(1, &operant::nn::Options::default()).map_err(failed)?;
    played(&args.play, "policy", &params, |number| {
        let mut actor = policy.actor(1, &operant::nn::Options::default()).expect("it was built before");
        let mut obs = vec![0.0; spec.observation.len()];
        let mut legal = vec![0; spec.action.choices()];
        let mut actions = ActionColumn::new(false, dims);
        let (deterministic, seed) = (args.deterministic, args.play.seed);
        let mut step = 0;
        Box::new(move |episode: &Episode| {
            episode.observe(&mut obs);
            episode.legal(&mut legal);
            policy.normalise(&mut obs);
            actor.forward(&policy.params, 1, &obs);
            let all = actions.slice_mut(0..dims);
            if deterministic {
                actor.mode(&policy.params, Some(&legal), all);
            } else {
                let draws = Draws { seed, first_row: number as u32, step };
                actor.sample(&policy.params, Some(&legal), draws, all, &mut [0.0]);
            }
            actor.remember();
            step += 1;
            choice(&actions)
        })
    })
}

/// An env with these parameters.
fn with(params: &[(String, f64)]) -> Result<Growth, Failure> {
    let mut env = Growth::default();
    for (name, value) in params {
        env.set(name, *value)?;
    }
    Ok(env)
}

fn speed(args: &SpeedArgs) -> Result<(), Failure> {
    if args.batch == 0 || args.side < 4 || args.seconds.is_nan() || args.seconds <= 0.0 {
        return Err(Failure::Usage("wanted --batch of at least 1, --side of at least 4 and --seconds above 0".into()));
    }
    let host = Host::find(&args.host)?;
    let tokens = host.reads_tokens();
    let (image, classes) = if tokens { ([args.side, 1, 1], 256) } else { ([args.side, args.side, 3], CLASSES) };
    let training = Training { batch: args.batch, ..Training::default() };
    let topology = Topology::new(host, image, classes);
    let (numbers, answers) = (args.batch * image.iter().product::<usize>(), args.batch * topology.targets());
    let mut net = Grown::new(topology, training, 0)?;
    let mut rng = HostRng::new(0, 0, 0, 0);
    let class = |rng: &mut HostRng| rng.below(classes as u32);
    let images: Vec<f32> = (0..numbers).map(|_| if tokens { class(&mut rng) as f32 } else { rng.normal() }).collect();
    let targets: Vec<i32> = (0..answers).map(|_| class(&mut rng) as i32).collect();
    let timed = |work: &mut dyn FnMut()| {
        work();
        let (started, mut batches) = (cpu_seconds(), 0u32);
        while cpu_seconds() - started < args.seconds {
            work();
            batches += 1;
        }
        f64::from(batches) * args.batch as f64 / (cpu_seconds() - started)
    };
    let trained = timed(&mut || {
        net.train(&images, &targets);
    });
    let alphas = net.alphas().to_vec();
    let judged = timed(&mut || {
        net.score(&images, &targets, &alphas);
    });
    let started = cpu_seconds();
    let seed = operant::nn::grow::Seed {
        blueprint: if tokens { Blueprint::MlpSmall } else { Blueprint::ConvLight },
        blend: operant::nn::ops::Blend::Add,
        detached: true,
    };
    net.germinate(0, seed, 1)?;
    let surgery_ms = 1e3 * (cpu_seconds() - started);
    if args.json {
        let object = json!({
            "host": args.host, "side": args.side, "batch": args.batch, "parameters": net.parameters().0,
            "train_samples_per_s": trained, "score_samples_per_s": judged, "surgery_ms": surgery_ms,
        });
        return print(&format!("{object}\n"));
    }
    let size = if tokens { format!("{} bytes", args.side) } else { format!("{0} x {0} pixels", args.side) };
    print(&format!(
        "{} at {size}, minibatches of {}: {} samples/s trained, {} samples/s scored per core (CPU time), surgery in {surgery_ms:.1} ms\n",
        args.host,
        args.batch,
        grouped(trained),
        grouped(judged)
    ))
}
