//! `operant collect`: datasets made by the engine alone, without a learner.

use crate::format::{duration, with_unit};
use crate::output::{Failure, count, grouped, print, shell, warn};
use clap::Subcommand;
use operant::Error;
use operant::config::{self, Table, Value};
use operant::device::{self, Device};
use operant::field::Evenness;
use operant::field::collect::{Collection, FailedOperator, FailedOperators, Progress, SETTINGS, flags, of_store};
use operant::field::shards::Shards;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Random stochastic neural operators, rolled out on fields, described and stored.
    Field(FieldArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
struct FieldArgs {
    /// Settings, over the engine's defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change a setting: `--set steps=100`, `--set space.grid=64`. Weights of first fields lie over 1 for each kind: `--set initial.structured=0`
    /// leaves one out, `--set initial.others=0 --set initial.mixed=1` takes one only. Repeatable.
    #[arg(long, value_name = "KEY=VALUE", allow_negative_numbers = true)]
    set: Vec<String>,
    /// Operators.
    #[arg(long, value_parser = count::<u32>, allow_negative_numbers = true)]
    count: Option<u32>,
    /// Seed of everything.
    #[arg(long, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Folder of the store.
    #[arg(long, value_name = "DIR", default_value = "fields")]
    out: PathBuf,
    /// Go on with the store in --out, with its own settings; only --threads may differ.
    #[arg(long, conflicts_with_all = ["config", "set", "count", "seed", "precision"])]
    resume: bool,
    /// Leave out operators that fail, in place of stopping at them; the store's failed.json says why.
    #[arg(long)]
    skip_failed: bool,
    /// f32, bf16 or f16; on a GPU tf32 too.
    #[arg(long)]
    precision: Option<String>,
    /// cpu, cuda or cuda:i; what a store was begun on if that is not given with --resume.
    #[arg(long)]
    device: Option<String>,
    /// Operators that are rolled out at once, one per thread; 0 for all cores, with a GPU a quarter more.
    #[arg(long, default_value_t = 0, value_parser = count::<usize>, allow_negative_numbers = true)]
    threads: usize,
    /// Say what would be done: operators, work, bytes, time, how evenly parameters lie.
    #[arg(long)]
    dry_run: bool,
    /// No progress line.
    #[arg(long, short)]
    quiet: bool,
    /// Print one JSON object at the end.
    #[arg(long)]
    json: bool,
    /// Number of consecutive restarts that completed no operator. The program passes it to itself when it restarts.
    #[arg(long, hide = true, requires = "resume", value_name = "N")]
    restarts_in_vain: Option<u32>,
}

const AFTER_HELP: &str = "Try:\n  operant collect field --count 4 --set steps=50 --set space.grid=64 --out fields\n  \
                          operant field info fields\n  operant field list";

/// What a shell expects of a process that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// Time between progress lines.
const PAUSE: Duration = Duration::from_millis(200);
/// Operators that a dry run looks at one by one.
const MOST_LOOKED_AT: u32 = 100_000;
/// Failed operators that are named.
const NAMED: usize = 20;
/// The program gives up after this many consecutive restarts that completed no operator.
const MOST_IN_VAIN: u32 = 3;

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let What::Field(args) = &args.what;
    let threads = if args.threads == 0 { device::threads_available() } else { args.threads };
    if threads > 1024 {
        return Err(Failure::Usage(format!("--threads {threads}: wanted 0..=1024")));
    }
    let (collection, made_on) = if args.resume {
        (of_store(&args.out)?, made_on(&Shards::open(&args.out)?))
    } else {
        (collection(args)?, "cpu".to_owned())
    };
    let device = args.device.as_deref().unwrap_or(&made_on);
    let collection = on_device(collection, device)?.skipping_failed(args.skip_failed);
    if args.resume && collection.device() != made_on {
        let here = collection.device();
        return Err(Failure::Run(format!("{} was made on {made_on}, not on {here}", args.out.display())));
    }
    // A thread waits for the GPU now and then; more of them hold each other up.
    let threads = if args.threads == 0 && collection.device() == "cuda" { threads * 5 / 4 } else { threads };
    if let (precision, Some(note)) = collection.precision() {
        warn(&format!("{note} (precision {})", precision.name()));
    }
    if args.dry_run {
        return dry_run(&collection, threads, args.json);
    }
    collection.check_room(threads)?;
    let lock = Shards::lock(&args.out)?;
    let mut store = if args.resume { Shards::open(&args.out)? } else { collection.create(&args.out)? };
    let (served, made_in) = (collection.precision().0.name(), store.notes().get("precision"));
    if let Some(made_in) = made_in.filter(|made_in| *made_in != served) {
        return Err(Failure::Run(format!(
            "{} was made in {made_in}, which this machine serves as {served}: go on where it was begun",
            args.out.display()
        )));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&stop);
    let ask = move || {
        if handler.swap(true, Ordering::Relaxed) {
            // Everything that was kept is whole at any moment.
            std::process::exit(i32::from(INTERRUPTED));
        }
    };
    ctrlc::set_handler(ask).map_err(|error| Failure::Run(format!("can't listen for Ctrl-C: {error}")))?;
    let before = kept_in(&store);
    match collect(args, &collection, &mut store, threads, &stop)? {
        Ended::Done(code) => Ok(code),
        Ended::Fault(message) if stop.load(Ordering::Relaxed) => Err(Failure::Run(message)),
        Ended::Fault(message) => {
            let in_vain = restarts_in_vain(args.restarts_in_vain, kept_in(&store) - before);
            drop((store, lock));
            if in_vain >= MOST_IN_VAIN {
                return Err(Failure::Run(format!(
                    "{message}; {in_vain} restarts in a row made no operator, so {device} itself may be at fault (operant doctor); \
                     finished operators are kept, go on with operant collect field --resume --out {}",
                    shell(&args.out)
                )));
            }
            start_again(args, device, in_vain, &message)
        }
    }
}

/// Operators that a store has.
fn kept_in(store: &Shards) -> usize {
    store.done().iter().filter(|&&done| done).count()
}

/// Updates the number of consecutive restarts without progress when a process ends. `before` is the number it was started with, or
/// `None` if it was not started by a restart; `made` is how many operators it completed.
fn restarts_in_vain(before: Option<u32>, made: usize) -> u32 {
    match before {
        Some(before) if made == 0 => before.saturating_add(1),
        _ => 0,
    }
}

/// How a run of threads ended.
enum Ended {
    Done(ExitCode),
    /// The GPU is of no more use to this process.
    Fault(String),
}

/// After a fault a new process runs the operators that may have caused it one at a time, and goes on past the one that did if
/// that was asked for.
fn start_again(args: &FieldArgs, device: &str, in_vain: u32, message: &str) -> Result<ExitCode, Failure> {
    warn(&format!("{message}; starting again, operators that may have failed first, one at a time"));
    let program = std::env::current_exe().map_err(|error| Failure::Run(format!("can't start again: {error}")))?;
    let mut command = Command::new(program);
    command.args(["collect", "field", "--resume", "--device", device, "--threads", &args.threads.to_string()]);
    command.arg("--out").arg(&args.out).args(["--restarts-in-vain", &in_vain.to_string()]);
    let flags = [(args.skip_failed, "--skip-failed"), (args.quiet, "--quiet"), (args.json, "--json")];
    command.args(flags.iter().filter(|(given, _)| *given).map(|(_, flag)| flag));
    take_over(command)
}

/// Goes on as another program, which has this one's GPU memory to itself.
#[cfg(unix)]
fn take_over(mut command: Command) -> Result<ExitCode, Failure> {
    use std::os::unix::process::CommandExt;
    Err(Failure::Run(format!("can't start again: {}", command.exec())))
}

#[cfg(not(unix))]
fn take_over(mut command: Command) -> Result<ExitCode, Failure> {
    let status = command.status().map_err(|error| Failure::Run(format!("can't start again: {error}")))?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// What to do after an operator failed.
fn kept(args: &FieldArgs) -> String {
    let folder = shell(&args.out);
    format!(
        "finished operators are kept; try again with operant collect field --resume --out {folder}, or leave failed operators out \
         with --skip-failed"
    )
}

/// What a store was made on.
pub(crate) fn made_on(store: &Shards) -> String {
    store.notes().get("device").cloned().unwrap_or_else(|| "cpu".to_owned())
}

/// The collection on this device; what falls back is said.
pub(crate) fn on_device(collection: Collection, device: &str) -> Result<Collection, Failure> {
    let Some(index) = Device::gpu_index(device)? else { return Ok(collection) };
    let (collection, note) = collection.on_gpu(index)?;
    if let Some(note) = note {
        warn(&note);
    } else {
        let all = 0..collection.settings.count;
        let back: Vec<String> = all.filter_map(|k| collection.falls_back(&collection.sampled(k))).collect();
        if let Some(why) = back.first() {
            warn(&format!("{device} was asked for: {} operators run on the CPU ({why})", back.len()));
        }
    }
    Ok(collection)
}

fn collection(args: &FieldArgs) -> Result<Collection, Failure> {
    let mut table = Table::new();
    if let Some(path) = &args.config {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
        table = config::parse(&text, &path.display().to_string())?;
    }
    for assignment in &args.set {
        config::assign(&mut table, assignment)?;
    }
    let given = [
        ("count", args.count.map(|count| Value::Integer(i64::from(count)))),
        ("seed", args.seed.map(|seed| Value::Integer(seed as i64))),
        ("precision", args.precision.clone().map(Value::String)),
    ];
    for (key, value) in given {
        if let Some(value) = value {
            config::insert(&mut table, key, value)?;
        }
    }
    Ok(Collection::read(&table)?)
}

/// Work of all operators that are not done, in products times two.
fn work(collection: &Collection, wanted: impl Fn(usize) -> bool) -> Vec<f64> {
    let s = &collection.settings;
    let per = f64::from(s.realisations) * f64::from(s.steps);
    let flops = |k: u32| if wanted(k as usize) { collection.sampled(k).operator.flops() as f64 * per } else { 0.0 };
    (0..s.count).map(flops).collect()
}

pub(crate) fn evenness_text(e: &Evenness) -> String {
    let [discrepancy, correlation, chi] = Evenness::LIMITS;
    format!(
        "evenness          {}: centred discrepancy {:.5} (limit {discrepancy}), largest correlation {:.4} (limit {correlation}), \
         largest chi-squared {:.2} (limit {chi})\n",
        if e.holds() { "kept" } else { "not kept, as with few operators" },
        e.centred_discrepancy,
        e.correlation,
        e.chi_squared,
    )
}

fn dry_run(collection: &Collection, threads: usize, as_json: bool) -> Result<ExitCode, Failure> {
    let s = &collection.settings;
    // Of so many the first are a fair sample of the rest.
    let looked = s.count.min(MOST_LOOKED_AT);
    let share = f64::from(s.count) / f64::from(looked.max(1));
    let per = f64::from(s.realisations) * f64::from(s.steps);
    let flops = (0..looked).map(|k| collection.sampled(k).operator.flops() as f64 * per).sum::<f64>() * share;
    let layout = collection.layout();
    let gathered: usize = layout.arrays.iter().filter(|array| !array.alone).map(|array| array.bytes()).sum();
    let mut bytes = gathered as f64 * f64::from(s.count);
    for k in 0..looked {
        let own = format!("trajectories_{}", collection.sampled(k).operator.grid);
        let own = layout.arrays.iter().find(|array| array.name == own).map_or(0, |array| array.bytes());
        bytes += own as f64 * share;
    }
    // The rate of one operator, without its description.
    let sampled = collection.sampled(0);
    let mut rollout = collection.rollout(&sampled, 0..1).map_err(|error| Failure::Run(error.to_string()))?;
    rollout.step();
    let (start, mut steps) = (device::cpu_seconds(), 0);
    while steps < 3 || device::cpu_seconds() - start < 0.3 {
        rollout.step();
        steps += 1;
    }
    let rate = rollout.flops() as f64 * f64::from(steps) / (device::cpu_seconds() - start).max(1e-9);
    let seconds = flops / rate / threads.max(1) as f64;
    let evenness = collection.evenness();
    if as_json {
        let report = json!({
            "operators": s.count, "realisations": s.realisations, "steps": s.steps,
            "flops": flops, "bytes": bytes, "seconds": seconds, "threads": threads,
            "centred_discrepancy": evenness.centred_discrepancy, "correlation": evenness.correlation,
            "chi_squared": evenness.chi_squared, "even": evenness.holds(),
        });
        print(&format!("{report}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!(
        "operators         {} of {} realisations and {} steps: {} realisation-steps\n\
         work              {:.3e} FLOP in {}\n\
         store             {} before compression ({})\n\
         time              about {} on {threads} threads at operator 0's {:.0} GFLOP/s each, without features\n",
        grouped(f64::from(s.count)),
        s.realisations,
        s.steps,
        grouped(f64::from(s.count) * f64::from(s.realisations) * f64::from(s.steps)),
        flops,
        collection.precision().0.name(),
        with_unit(bytes, "bytes"),
        s.compression.name(),
        duration(seconds),
        rate * 1e-9,
    );
    text += &evenness_text(&evenness);
    text += "parameters\n";
    let rows: Vec<Vec<String>> = collection
        .space
        .parameters
        .iter()
        .map(|parameter| vec![format!("  {}", parameter.name), parameter.map.range()])
        .collect();
    text += &crate::format::table(&rows, &[]);
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn collect(
    args: &FieldArgs,
    collection: &Collection,
    store: &mut Shards,
    threads: usize,
    stop: &AtomicBool,
) -> Result<Ended, Failure> {
    let before = kept_in(store);
    let work = work(collection, |k| !store.done()[k]);
    let total: f64 = work.iter().sum();
    let (start, cpu) = (Instant::now(), device::cpu_seconds());
    let count = collection.settings.count as usize;
    let mut not_finite: Vec<u32> = Vec::new();
    let (mut made, mut shown) = (0.0, Instant::now());
    let line = !args.quiet && !args.json && std::io::stderr().is_terminal();
    let mut told = |progress: Progress, k: u32, found: u8| {
        made += work[k as usize];
        if found & flags::NOT_FINITE != 0 {
            not_finite.push(k);
        }
        if line && shown.elapsed() > PAUSE {
            shown = Instant::now();
            let seconds = start.elapsed().as_secs_f64();
            let left = seconds * (total - made).max(0.0) / made.max(1.0);
            let share = (device::cpu_seconds() - cpu) / seconds.max(1e-9) / threads as f64;
            let text = format!(
                "\r\x1b[K{}/{count} operators  {:.2}/s  {} rs/s  CPU {:.0} %  {} not finite  {} left",
                before + progress.operators,
                progress.operators as f64 / seconds,
                grouped(progress.realisation_steps as f64 / seconds),
                100.0 * share,
                progress.not_finite,
                duration(left),
            );
            // There is nobody to tell of a closed standard error.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    };
    let result = collection.run(store, threads, stop, &mut told);
    if line {
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
    let progress = match result {
        Ok(progress) => progress,
        Err(Error::DeviceFault(message)) => return Ok(Ended::Fault(message)),
        Err(error @ Error::Env(_)) => return Err(Failure::Run(format!("{error}; {}", kept(args)))),
        Err(error) => return Err(Failure::Run(error.to_string())),
    };
    let failed = FailedOperators::open(&args.out)?;
    let left_out: Vec<&FailedOperator> = failed.list().iter().filter(|failed| failed.certain).collect();
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), device::cpu_seconds() - cpu);
    let done = kept_in(store);
    let rate = progress.realisation_steps as f64 / seconds.max(1e-9);
    if args.json {
        let report = json!({
            "out": args.out, "operators": done, "count": count, "new": progress.operators, "not_finite": not_finite, "failed": left_out,
            "seconds": seconds, "cpu_seconds": cpu, "rs_per_s": rate,
            "rs_per_cpu_s": progress.realisation_steps as f64 / cpu.max(1e-9),
            "operators_per_s": progress.operators as f64 / seconds.max(1e-9),
            "precision": collection.precision().0.name(), "device": collection.device(), "threads": threads,
        });
        print(&format!("{report}\n"))?;
    } else {
        let mut text = format!(
            "{done} of {count} operators in {} ({} new in {}, {:.2}/s, {} realisation-steps/s)\n",
            args.out.display(),
            progress.operators,
            duration(seconds),
            progress.operators as f64 / seconds.max(1e-9),
            grouped(rate),
        );
        if !not_finite.is_empty() {
            text += &format!("not finite: operators {} (kept, flagged)\n", named(&not_finite));
        }
        if !left_out.is_empty() {
            let numbers: Vec<u32> = left_out.iter().map(|failed| failed.operator).collect();
            text += &format!("failed: operators {} (left out, see failed.json)\n", named(&numbers));
        }
        let folder = shell(&args.out);
        text += &if done == count {
            format!("next: operant field info {folder}\n")
        } else {
            format!("next: operant collect field --resume --out {folder} (settings in {SETTINGS})\n")
        };
        print(&text)?;
    }
    Ok(Ended::Done(match () {
        () if done == count => ExitCode::SUCCESS,
        () if done + left_out.len() == count => ExitCode::FAILURE,
        () => ExitCode::from(INTERRUPTED),
    }))
}

/// Numbers of operators, the first ones if there are many.
fn named(operators: &[u32]) -> String {
    let more = operators.len().saturating_sub(NAMED);
    let names: Vec<String> = operators.iter().take(NAMED).map(u32::to_string).collect();
    names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each process of a chain made until it is given up.
    fn processes(made: impl IntoIterator<Item = usize>) -> usize {
        let mut before = None;
        let gives_up = |made: usize| {
            let in_vain = restarts_in_vain(before, made);
            before = Some(in_vain);
            in_vain >= MOST_IN_VAIN
        };
        made.into_iter().map(gives_up).take_while(|over| !over).count()
    }

    #[test]
    fn restarts_that_make_nothing_come_to_an_end() {
        // The first process and two restarts are followed by another one, the third restart is not.
        assert_eq!(processes(std::iter::repeat_n(0, 100)), 3);
        assert_eq!(processes([5, 0, 0, 0, 0]), 3);
        // One operator begins the count anew.
        assert_eq!(processes([0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0]), 9);
        assert_eq!(processes(std::iter::repeat_n(1, 100)), 100);
        assert_eq!(restarts_in_vain(Some(u32::MAX), 0), u32::MAX);
    }
}
