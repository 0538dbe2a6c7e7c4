//! `operant train`: builds a run from words and files, shows it, and says how it ended.

use crate::backgammon::PART;
use crate::interrupt::Interrupt;
use crate::monitor::InPlace;
use crate::output::{Failure, NO_TASK_DATA, at_least_one, count, grouped, print, shell};
use crate::run_folder::{part_file, refuse_brought};
use crate::seeds::{self, Batch};
use operant::CATALOGUE;
use operant::config::{self, Table, Value};
use operant::device::Device;
use operant::run::{
    Checkpoints, Config, End, Every, Profile, Run, Start, Summary, build_algorithm, build_env, build_pool,
    decide_device, forget_changes,
};
use operant::telemetry::{Console, Sink};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Algorithm (see `operant list`).
    #[arg(required_unless_present_any = ["config", "resume"])]
    algo: Option<String>,
    /// Env: short name or Gymnasium id (see `operant list`).
    #[arg(required_unless_present_any = ["config", "resume"])]
    env: Option<String>,
    /// Settings of your own, over the shipped ones of their algorithm and env; a run's run.toml repeats that run exactly, with the settings that were changed on the way.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    config: Option<PathBuf>,
    /// Go on with a run from its last checkpoint, or with what is left of a batch of --seeds; --steps, --until, --eval-every, --threads, --device and --set change what may change.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["algo", "env", "seed", "num_envs", "precision", "run_dir", "dry_run"])]
    resume: Option<PathBuf>,
    /// With --resume: the checkpoint to go on from: best, last or its name [default: last]. Later ones are set aside.
    #[arg(long, value_name = "NAME")]
    checkpoint: Option<String>,
    /// Change a setting: `--set ppo.learning_rate=1e-3`. Repeatable.
    #[arg(long, value_name = "KEY=VALUE", allow_negative_numbers = true)]
    set: Vec<String>,
    /// Seed of everything.
    #[arg(long, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Train with K seeds from --seed on, one after another, on a GPU up to 8 at once, and print their mean and standard error.
    #[arg(long, value_name = "K", value_parser = at_least_one, allow_negative_numbers = true, conflicts_with_all = ["resume", "detach", "dry_run", "profile", "monitor"])]
    seeds: Option<u64>,
    /// Envs stepped together.
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_negative_numbers = true)]
    num_envs: Option<u64>,
    /// Env steps of the run: `--steps 2e6`.
    #[arg(long, value_name = "STEPS", value_parser = count::<u64>, allow_negative_numbers = true)]
    steps: Option<u64>,
    /// Threads; 0 for all.
    #[arg(long, value_parser = count::<u64>, allow_negative_numbers = true)]
    threads: Option<u64>,
    /// Where it runs: cpu, cuda, cuda:i, or auto: a GPU that has kernels for the run, else the CPU [default: auto].
    #[arg(long)]
    device: Option<String>,
    /// What matrix products read: f32, tf32 (GPUs), bf16, f16 or auto.
    #[arg(long)]
    precision: Option<String>,
    /// What ends the run early: solved or steps (nothing).
    #[arg(long)]
    until: Option<String>,
    /// Env steps between evaluations, which best and solved follow: a number, 0 for none, or auto for 3 % of the steps [default: auto].
    #[arg(long, value_name = "STEPS", value_parser = every, allow_negative_numbers = true)]
    eval_every: Option<Every>,
    /// Where the run is kept [default: a new folder below runs/].
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Run in the background; output goes to log.txt in the run's folder.
    #[arg(long, conflicts_with_all = ["json", "dry_run"])]
    detach: bool,
    /// Look at where the time of N iterations after the first goes: trace.json in the run's folder (for ui.perfetto.dev
    /// or chrome://tracing), and a table at the end.
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    profile: Option<u64>,
    /// Folder of a task's files, for growth with env.task=cifar10; a text, or a folder of texts, for env.task=bytes
    /// [default: $OPERANT_TASK_DATA, else data].
    #[arg(long, value_name = "FILE_OR_DIR")]
    task_data: Option<PathBuf>,
    /// Print the resolved settings and stop.
    #[arg(long)]
    dry_run: bool,
    /// No progress line.
    #[arg(long, short)]
    quiet: bool,
    /// Print final.json in place of text.
    #[arg(long)]
    json: bool,
    /// Watch the run on this terminal, as `operant monitor` does from another.
    #[arg(long, conflicts_with_all = ["json", "dry_run", "detach"])]
    monitor: bool,
}

const AFTER_HELP: &str = "Examples:\n  operant train ppo cartpole\n  operant train ppo pendulum --seed 3 --set ppo.learning_rate=1e-3\n  \
                          operant train ppo cartpole --config mine.toml      # a few keys, over the shipped settings\n  \
                          operant train --config runs/RUN/run.toml           # all keys: the same run again\n  operant train --resume runs/RUN\n  \
                          operant train --resume runs/RUN --steps 4e6        # and on to more steps\n  \
                          operant train ppo cartpole --device cuda --set ppo.overlap=true  # plays beside learning, by an old policy";

/// A number of env steps, or `auto`.
fn every(text: &str) -> Result<Every, String> {
    let steps = || count::<u64>(text).map(Every::Steps);
    text.parse().or_else(|_| steps()).map_err(|error| format!("{error}; or auto"))
}

impl Args {
    /// Settings that the command line has; on `device` if it is given.
    fn over(&self, device: Option<&str>) -> Result<Table, Failure> {
        let mut over = Table::new();
        for assignment in &self.set {
            config::assign(&mut over, assignment)?;
        }
        let numbers =
            [("seed", self.seed), ("num_envs", self.num_envs), ("steps", self.steps), ("threads", self.threads)];
        for (key, number) in numbers {
            if let Some(number) = number {
                let value = i64::try_from(number)
                    .map_err(|_| Failure::Usage(format!("--{key} {number}: wanted at most {}", i64::MAX)))?;
                config::insert(&mut over, key, Value::Integer(value))?;
            }
        }
        let device = device.or(self.device.as_deref());
        for (key, text) in
            [("device", device), ("precision", self.precision.as_deref()), ("until", self.until.as_deref())]
        {
            if let Some(text) = text {
                config::insert(&mut over, key, Value::String(text.to_owned()))?;
            }
        }
        if let Some(every) = self.eval_every {
            let value = match every {
                Every::Auto => Value::String("auto".into()),
                Every::Steps(steps) => Value::Integer(i64::try_from(steps).unwrap_or(i64::MAX)),
            };
            config::insert(&mut over, "eval.every", value)?;
        }
        if let Some(place) = &self.task_data {
            // A run finds it again from elsewhere.
            let place = std::path::absolute(place).unwrap_or_else(|_| place.clone());
            config::insert(&mut over, "task_data", Value::String(place.display().to_string()))?;
        }
        Ok(over)
    }

    /// What was said on the command line, over the shipped settings or those of a file; on `device` if it is given.
    fn config(&self, device: Option<&str>) -> Result<Config, Failure> {
        let over = self.over(device)?;
        let mut table = Table::new();
        let mut file = String::new();
        if let Some(path) = &self.config {
            file = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::Usage(format!("can't read {}: {error}", path.display())))?;
            table = config::parse(&text, &file)?;
        }
        let words = "the command line";
        let algo = agreed("algo", &[(words, self.algo.clone()), ("--set", algo_in(&over)), (&file, algo_in(&table))])?;
        let env = agreed("env", &[(words, self.env.clone()), ("--set", env_in(&over)), (&file, env_in(&table))])?;
        forget_changes(&mut table, &over);
        config::merge(&mut table, over);
        match (algo, env) {
            (Some(algo), Some(env)) => {
                let swapped = operant::algo::find(&algo).is_err() && operant::algo::find(&env).is_ok();
                if swapped && operant::env::find(&algo).is_ok() {
                    return Err(Failure::Usage(format!(
                        "{algo} is an env and {env} an algorithm; did you mean operant train {env} {algo}?"
                    )));
                }
                operant::algo::find(&algo)?;
                operant::env::find(&env)?;
                with_networks(Config::resolve(&CATALOGUE, &algo, &env, table)?)
            }
            _ if self.config.is_some() => with_networks(Config::from_file(&CATALOGUE, table)?),
            _ => Err(Failure::Usage("name an algorithm and an env, as in operant train ppo cartpole".into())),
        }
    }
}

/// The settings with the file of networks that were named by their run.
fn with_networks(mut config: Config) -> Result<Config, Failure> {
    let key = match config.algo.as_str() {
        "alphazero" => "teacher",
        "td" => "start",
        _ => return Ok(config),
    };
    if let Some(Value::String(networks)) = config.own.get_mut(key)
        && !networks.is_empty()
    {
        let wanted = format!("{}.{key} to name a run of td on backgammon, or its file", config.algo);
        *networks = part_file(Path::new(networks), PART, &wanted)?.display().to_string();
    }
    Ok(config)
}

/// The algorithm or the env that all agree on who name one.
fn agreed(what: &str, named: &[(&str, Option<String>)]) -> Result<Option<String>, Failure> {
    let known = |name: &str| match what {
        "env" => operant::env::find(name).map_or_else(|_| name.to_owned(), |entry| entry.spec().name.to_owned()),
        _ => name.to_lowercase(),
    };
    let mut named = named.iter().filter_map(|(who, name)| Some((who, name.as_ref()?)));
    let Some((first, name)) = named.next() else { return Ok(None) };
    match named.find(|(_, other)| known(other) != known(name)) {
        Some((second, other)) => Err(Failure::Usage(format!(
            "{first} says {what} {name} and {second} says {what} {other}; name the same, or one of them"
        ))),
        None => Ok(Some(name.clone())),
    }
}

/// A name as it was written, also where it is no text.
fn written(value: Option<&Value>) -> Option<String> {
    value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn algo_in(table: &Table) -> Option<String> {
    written(table.get("algo"))
}

fn env_in(table: &Table) -> Option<String> {
    written(table.get("env").and_then(|env| env.get("name")))
}

/// Names of folders below `runs/`: algorithm, env, seed with what follows it, and a number.
fn folders(config: &Config, more: &str) -> impl Iterator<Item = PathBuf> {
    let name = format!("{}-{}-{}{more}", config.algo, config.env, config.settings.seed);
    (1_u32..).map(move |number| Path::new("runs").join(format!("{name}-{number}")))
}

/// The first of them that is free.
fn new_folder(config: &Config) -> PathBuf {
    folders(config, "").find(|path| !path.exists()).unwrap_or_default()
}

/// The first of them that was free, made: a run that starts at the same time takes the next.
fn made_folder(config: &Config, more: &str) -> PathBuf {
    let made = |path: &PathBuf| {
        let made = std::fs::create_dir_all("runs").and_then(|()| std::fs::create_dir(path));
        // What else is wrong is said when the run starts there.
        !made.is_err_and(|error| error.kind() == std::io::ErrorKind::AlreadyExists)
    };
    folders(config, more).find(made).unwrap_or_default()
}

pub(crate) fn run(args: &Args, started: Instant) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::listen(args.monitor)?;
    let stop = interrupt.flag();
    if args.monitor && !std::io::stdout().is_terminal() {
        return Err(Failure::Usage("--monitor needs a terminal; try operant monitor --plain beside the run".into()));
    }
    if args.checkpoint.is_some() && args.resume.is_none() {
        return Err(Failure::Usage("--checkpoint says where --resume RUN goes on from; name the run too".into()));
    }
    let quiet = args.quiet || args.json || args.monitor;
    let columns = || crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns));
    let sinks = |total: u64| -> Vec<Box<dyn Sink>> {
        vec![Box::new(Console::stdout(quiet, Some(total)).with_columns(columns))]
    };
    let mut run = match &args.resume {
        Some(folder) => {
            // A folder, or the name of one below runs/.
            let below = Path::new("runs").join(folder);
            let folder = if folder.exists() || !below.exists() { folder } else { &below };
            let (over, checkpoint) = (args.over(None)?, args.checkpoint.as_deref());
            if args.task_data.is_some()
                && Run::config_of(&CATALOGUE, folder).is_ok_and(|config| !config.reads_task_data())
            {
                return Err(Failure::Usage(NO_TASK_DATA.into()));
            }
            if Batch::is_in(folder) {
                let single = [
                    ("--checkpoint", checkpoint.is_some()),
                    ("--detach", args.detach),
                    ("--profile", args.profile.is_some()),
                    ("--monitor", args.monitor),
                ];
                if let Some((word, _)) = single.iter().find(|(_, given)| *given) {
                    let shown = folder.display();
                    return Err(Failure::Usage(format!(
                        "{word} is for one run; {shown} holds several: name one of them"
                    )));
                }
                let end = seeds::run(&Batch::open(folder, &over)?, &over, args.json, sinks, &interrupt)?;
                return Ok(if end == End::Stopped { ExitCode::from(130) } else { ExitCode::SUCCESS });
            }
            if let Ok(config) = Run::config_of(&CATALOGUE, folder) {
                refuse_brought(&config, folder, || in_python(&config, folder, checkpoint, args.steps))?;
            }
            let words = !over.is_empty();
            // Without new settings it is the run that is wrong, not the words.
            let failed = |error: operant::Error| if words { error.into() } else { Failure::Run(error.to_string()) };
            let total =
                args.steps.map_or_else(|| Run::config_of(&CATALOGUE, folder).map(|config| config.settings.steps), Ok);
            let total = total.map_err(failed)?;
            // A number of steps that is too small is told as a mistake.
            let over_already =
                if args.steps.is_none() { Run::is_over(&CATALOGUE, folder, checkpoint, &over) } else { Ok(None) };
            if let Some(steps) = over_already.map_err(failed)? {
                if words {
                    let (shown, done, more) = (shell(folder), grouped(steps as f64), 2 * steps);
                    return Err(Failure::Usage(format!(
                        "{shown} is finished: {done} steps are done, so settings that change have nothing to act on; name more \
                         steps too, as in --steps {more}"
                    )));
                }
                return say_over(folder, steps, args.json);
            }
            if args.detach {
                return detach(folder, false);
            }
            let start = Start { folder: folder.clone(), sinks: sinks(total), started, at_once: 1 };
            Run::resume_with(&CATALOGUE, checkpoint, over, start).map_err(failed)?
        }
        None => {
            let (mut config, chosen) = decide_device(|device| args.config(device))?;
            config.settle_task_data();
            if args.task_data.is_some() && !config.reads_task_data() {
                return Err(Failure::Usage(NO_TASK_DATA.into()));
            }
            if let Some(line) = chosen.filter(|_| !quiet && !args.dry_run) {
                // What can't be told costs no run.
                drop(print(&format!("{line}\n")));
            }
            if let Some(note) = config.precision_note()? {
                crate::output::warn(note);
            }
            if let Some(seeds) = args.seeds {
                let last = config.settings.seed.wrapping_add(seeds - 1);
                if config.settings.device.starts_with("cuda") {
                    // What is missing is said before there is a folder.
                    Device::named(&config.settings.device)?;
                }
                let folder = args.run_dir.clone();
                let folder = folder.unwrap_or_else(|| made_folder(&config, &format!("-to-{last}")));
                let batch = Batch::new(folder.clone(), config, seeds).inspect_err(|_| {
                    if args.run_dir.is_none() {
                        // Only empty folders go.
                        drop(std::fs::remove_dir(&folder));
                        drop(std::fs::remove_dir("runs"));
                    }
                })?;
                let end = seeds::run(&batch, &Table::new(), args.json, sinks, &interrupt)?;
                return Ok(if end == End::Stopped { ExitCode::from(130) } else { ExitCode::SUCCESS });
            }
            if args.dry_run || args.detach {
                let folder = args.run_dir.clone().unwrap_or_else(|| new_folder(&config));
                // All that would stop the run from starting is said now.
                Run::check_free_alone(&folder)?;
                let pool = build_pool(&config);
                build_algorithm(&config, build_env(&config, &pool)?, pool)?;
                return match args.detach && !args.dry_run {
                    true => detach(&folder, args.run_dir.is_none()),
                    false => print(&config.to_text()).map(|()| ExitCode::SUCCESS),
                };
            }
            let folder = args.run_dir.clone().unwrap_or_else(|| made_folder(&config, ""));
            Run::check_free_alone(&folder)?;
            let start = Start { folder: folder.clone(), sinks: sinks(config.settings.steps), started, at_once: 1 };
            Run::start(config, start).inspect_err(|_| {
                if args.run_dir.is_none() {
                    // Only empty folders go.
                    drop(std::fs::remove_dir(&folder));
                    drop(std::fs::remove_dir("runs"));
                }
            })?
        }
    };
    let folder = run.folder().to_owned();
    let config = run.config();
    // Of an env without a mean return that counts as solved there is nothing to say of that.
    let goal = operant::env::find(&config.env).ok().and_then(|entry| entry.spec().solved_at).map(f64::from);
    let (asked, puzzle) = (config.settings.steps, ["cube2", "cube3"].contains(&config.env.as_str()));
    interrupt.run_in(&folder);
    if let Some(iterations) = args.profile {
        run.start_profile(iterations);
    }
    let monitor = args.monitor.then(|| InPlace::open(&folder, Arc::clone(&stop)));
    let outcome = run.go(|| stop.load(Ordering::Relaxed)).and_then(|end| {
        let profile = run.profile().cloned();
        if let Some(reason) = run.save_failure() {
            crate::output::warn(&format!("a checkpoint could not be written on the way: {reason}"));
        }
        Ok((run.finish(&end)?, end, profile))
    });
    if let Some(monitor) = monitor {
        let at_once = !matches!(outcome, Ok((_, End::Solved | End::Finished, _)));
        if let Err(Failure::Usage(reason) | Failure::Run(reason)) = monitor.close(at_once) {
            crate::output::warn(&format!("the monitor failed: {reason}"));
        }
    }
    let ((summary, drops), end, profile) = outcome.map_err(|error| Failure::Run(error.to_string()))?;
    for (sink, reason) in drops.failures() {
        crate::output::warn(&format!("{sink}: {reason}"));
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&summary).unwrap_or_default()))?;
    } else {
        print(&closing_lines(&end, &summary, &folder, &Told { asked, goal, puzzle }))?;
        if let Some(profile) = &profile {
            print(&profile_lines(profile, &folder))?;
        }
    }
    Ok(if end == End::Stopped { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// The line of Python that goes on with a run whose envs come from there.
fn in_python(config: &Config, folder: &Path, checkpoint: Option<&str>, steps: Option<u64>) -> String {
    let done = Checkpoints::new(folder, 1).pick(checkpoint).map_or(0, |name| Checkpoints::steps_of(&name));
    let left = steps.unwrap_or(config.settings.steps).saturating_sub(done);
    let steps = match (left, steps) {
        (0, _) => "100_000".to_owned(),
        (_, None) => String::new(),
        (left, Some(_)) => left.to_string(),
    };
    let named = checkpoint.map_or(String::new(), |name| format!(", checkpoint={name:?}"));
    let folder = folder.display().to_string();
    format!("operant.{}.resume({folder:?}{named}, env=env).learn({steps})", config.class())
}

/// Says of a run that there is nothing left to do, and how to have it do more.
fn say_over(folder: &Path, steps: u64, json: bool) -> Result<ExitCode, Failure> {
    if json {
        let path = folder.join("final.json");
        let unread = |error: &dyn std::fmt::Display| Failure::Run(format!("can't read {}: {error}", path.display()));
        let text = std::fs::read(&path).map_err(|error| unread(&error))?;
        let results: serde_json::Value = serde_json::from_slice(&text).map_err(|error| unread(&error))?;
        print(&format!("{results}\n"))?;
    } else {
        let (shown, more, folder) = (grouped(steps as f64), 2 * steps, shell(folder));
        print(&format!(
            "{folder} is finished: {shown} steps are done\n\
             next: operant train --resume {folder} --steps {more} goes on · operant report {folder} shows it\n"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the same command in the background, with its own process group, and says how to watch it.
fn detach(folder: &Path, name_folder: bool) -> Result<ExitCode, Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::Run(format!("can't {what}: {error}"));
    std::fs::create_dir_all(folder).map_err(|error| failed(&format!("make {}", folder.display()), error))?;
    let path = folder.join("log.txt");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let log = log.map_err(|error| failed(&format!("write {}", path.display()), error))?;
    let errors = log.try_clone().map_err(|error| failed("write the log twice", error))?;
    let program = std::env::current_exe().map_err(|error| failed("find this program", error))?;
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1).filter(|word| word != "--detach"));
    if name_folder {
        command.arg("--run-dir").arg(folder);
    }
    command.stdin(std::process::Stdio::null()).stdout(log).stderr(errors);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn().map_err(|error| failed("start the run", error))?;
    let (shown, folder, pid) = (folder.display(), shell(folder), child.id());
    print(&format!(
        "run: {shown} (process {pid})\nnext: operant monitor {folder} · kill -INT {pid} stops and saves\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The table of a profile, and where its trace is.
fn profile_lines(profile: &Profile, folder: &Path) -> String {
    let trace = folder.join("trace.json");
    match &profile.failure {
        Some(reason) => format!("{profile}no trace: {reason}\n"),
        None if profile.iterations.0 == 0 => profile.to_string(),
        None => format!("{profile}trace: {} (open it in ui.perfetto.dev or chrome://tracing)\n", trace.display()),
    }
}

/// What the last lines depend on beside the results.
struct Told {
    /// Steps that were asked for; iterations are whole, so that some more are made.
    asked: u64,
    /// The mean return from which the env counts as solved, if it has one.
    goal: Option<f64>,
    puzzle: bool,
}

fn closing_lines(end: &End, summary: &Summary, folder: &Path, told: &Told) -> String {
    let mut text = String::new();
    let shown =
        |mean: f64| if mean.abs() < 10.0 { format!("mean return {mean:.3}") } else { format!("mean return {mean:.1}") };
    let ended = summary.mean_return.filter(|mean| !mean.is_nan());
    let mean = ended.map_or("no episode ended yet that counts".into(), shown);
    let numbers = crate::format::numbers(&summary.numbers);
    match (end, summary.solved_step, summary.solved_s) {
        _ if !numbers.is_empty() => {
            let how = if *end == End::Stopped { "stopped" } else { "finished" };
            text +=
                &format!("{how}: {numbers} at {} steps in {:.1} s\n", grouped(summary.steps as f64), summary.wall_s);
        }
        (End::Stopped, ..) => {
            text += &format!("stopped: {mean} at {} steps\n", grouped(summary.steps as f64));
        }
        (_, Some(step), Some(seconds)) => {
            let step = grouped(step as f64);
            let then = summary.solved_return.map_or(mean.clone(), shown);
            let of = if summary.solved_evaluated { " of evaluation" } else { "" };
            text += &format!("solved: {then} over 100 episodes{of} at {step} steps in {seconds:.2} s\n");
            if summary.steps > summary.solved_step.unwrap_or_default() {
                text += &format!(
                    "finished: {mean} at {} steps in {:.1} s\n",
                    grouped(summary.steps as f64),
                    summary.wall_s
                );
            }
        }
        _ => {
            let unsolved = if told.goal.is_some() { ", not solved" } else { "" };
            text += &format!("finished: {mean} at {} steps{unsolved}\n", grouped(summary.steps as f64));
        }
    }
    if *end == End::Finished && summary.steps > told.asked {
        text += &format!("steps: {} were asked for; iterations are whole\n", grouped(told.asked as f64));
    }
    if let Some(eval) = summary.eval_return {
        let error = summary.eval_error.map_or(String::new(), |error| format!(" ± {error:.2}"));
        text += &format!("evaluation: {}{error} over 100 episodes, most probable actions\n", shown(eval));
        if let Some(goal) = told.goal.filter(|&goal| summary.solved && eval < goal) {
            text += &format!("note: that is below the goal of {goal}, which ");
            text += match summary.solved_evaluated {
                true => "weights of an earlier step reached; best names the better ones\n",
                // The last 100 episodes were drawn, most of them with the weights of earlier updates.
                false => {
                    "the last 100 episodes of training reached with drawn actions and weights of several updates\n"
                }
            };
        }
    }
    text += &format!(
        "speed: {} steps/s, {} steps per CPU-second\n",
        grouped(summary.train_sps),
        grouped(summary.sps_per_cpu_s)
    );
    text += &format!("run: {}\n", folder.display());
    let folder = shell(folder);
    text += &match end {
        End::Stopped => format!("next: operant train --resume {folder}\n"),
        _ => {
            let how = if told.puzzle { " --depth 1..8" } else { "" };
            format!("next: operant eval {folder}{how} · operant report {folder} · operant monitor {folder}\n")
        }
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that was solved and whose last weights then do worse says so.
    #[test]
    fn an_evaluation_below_the_goal_is_noted() {
        let lines = |eval_return: f64| {
            let summary = Summary {
                solved: true,
                solved_step: Some(512),
                solved_s: Some(0.1),
                solved_return: Some(480.0),
                solved_evaluated: true,
                numbers: Default::default(),
                steps: 512,
                wall_s: 0.1,
                train_sps: 5120.0,
                sps_per_cpu_s: 5120.0,
                mean_return: Some(480.0),
                eval_return: Some(eval_return),
                eval_error: Some(1.0),
                eval_steps: 55_000,
                episodes: 100,
                checkpoint: "step".into(),
                samples_dropped: 0,
            };
            let told = Told { asked: 1024, goal: Some(475.0), puzzle: false };
            closing_lines(&End::Solved, &summary, Path::new("runs/a"), &told)
        };
        assert!(lines(113.0).contains("note: that is below the goal of 475"), "{}", lines(113.0));
        assert!(!lines(500.0).contains("note:"), "{}", lines(500.0));
    }
}
