//! `operant monitor`: watch a run from another terminal, or in place (`operant train --monitor`).

use crate::batch_report;
use crate::format::{self, duration, number, with_unit};
use crate::found::{BatchFolder, Found};
use crate::live;
use crate::output::{Failure, grouped};
use crate::run_folder::{RUNS, RunFolder, Status};
use crate::tui;
use operant::telemetry::RingReader;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  operant monitor\n  operant monitor runs/RUN\n  operant monitor --plain | tee log")]
pub(crate) struct Args {
    /// A run's folder, or that of a batch of seeds, or its name below --dir [default: the run that began last].
    run: Option<String>,
    /// The run that began last.
    #[arg(long, conflicts_with = "run")]
    latest: bool,
    /// Lines for logs and pipes in place of a screen.
    #[arg(long)]
    plain: bool,
    /// Seconds between plain lines.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = positive, allow_negative_numbers = true)]
    every: f64,
    /// Where runs are.
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    dir: PathBuf,
}

fn positive(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| format!("\"{text}\": wanted seconds from 0.01 to 86400"))
}

/// Metrics on a plain line, beside steps and time.
const PLAIN: [(&str, &str); 12] = [
    ("sps", "sps"),
    ("episodes", "episodes"),
    ("return", "return"),
    ("solve_rate", "solved"),
    ("solve_moves", "in"),
    ("loss/policy", "policy"),
    ("loss/value", "value"),
    ("loss/td", "td"),
    ("q", "q"),
    ("epsilon", "epsilon"),
    ("entropy", "entropy"),
    ("approx_kl", "kl"),
];

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let found = match &args.run {
        Some(name) => Found::find(name, &args.dir)?,
        None => Found::Run(RunFolder::latest(&args.dir)?),
    };
    let lines = args.plain || !std::io::stdout().is_terminal();
    match found {
        Found::Run(run) if lines => plain(&run, Duration::from_secs_f64(args.every)),
        Found::Run(run) => tui::watch(&run, &|| false).map(|_| ()),
        Found::Batch(batch) if lines => plain_batch(&batch, Duration::from_secs_f64(args.every)),
        Found::Batch(batch) => tui::watch_batch(&batch),
    }
}

/// The monitor of a run in this process: the screen has a thread of its own, the run goes on beside it.
pub(crate) struct InPlace {
    screen: JoinHandle<Result<(), Failure>>,
    /// Whether the screen is to close.
    over: Arc<AtomicBool>,
    /// Whether the run has ended: a ring that is not there by then never comes.
    ended: Arc<AtomicBool>,
}

impl InPlace {
    /// Opens the screen on a run that has just started; ctrl-c there sets `stop`.
    pub(crate) fn open(run: &Path, stop: Arc<AtomicBool>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicBool::new(false));
        let (run, seen, seen_end) = (run.to_owned(), Arc::clone(&over), Arc::clone(&ended));
        let screen = std::thread::spawn(move || {
            let (over, ended) = (|| seen.load(Ordering::Relaxed), || seen_end.load(Ordering::Relaxed));
            if watch(&run, &over, &ended)? == tui::Leave::Interrupt {
                stop.store(true, Ordering::Relaxed);
            } else if !ended() {
                crate::output::warn("the run goes on; ctrl-c saves and stops it");
            }
            Ok(())
        });
        Self { screen, over, ended }
    }

    /// Waits until the user leaves the screen, or closes it at once.
    pub(crate) fn close(self, at_once: bool) -> Result<(), Failure> {
        self.ended.store(true, Ordering::Relaxed);
        self.over.store(at_once, Ordering::Relaxed);
        self.screen.join().unwrap_or_else(|_| Err(Failure::Run("the monitor panicked; the run did not".into())))
    }
}

/// Opens the monitor on a run that has just started, until the user leaves it or it is `over`; waits for the ring no longer
/// than the run goes on.
fn watch(run: &Path, over: &dyn Fn() -> bool, ended: &dyn Fn() -> bool) -> Result<tui::Leave, Failure> {
    while RingReader::wait(&run.join("live.ring"), Duration::from_millis(50)).is_none() {
        if over() || ended() {
            return Ok(tui::Leave::Quit);
        }
    }
    tui::watch(&RunFolder::find(&run.display().to_string(), Path::new(RUNS))?, over)
}

/// A run as lines: what of it was printed already.
struct Lines {
    source: live::Source,
    data: live::Data,
    events: usize,
    step: Option<u64>,
    ended: bool,
}

impl Lines {
    fn open(folder: &RunFolder) -> Result<Self, Failure> {
        let (source, data) = live::Source::open(folder)?;
        Ok(Self { source, data, events: 0, step: None, ended: false })
    }

    /// What is new, each line behind `before`. A run that is just starting looks like one that crashed: one of a batch that goes on is waited for.
    fn news(&mut self, before: &str, goes_on: bool) -> String {
        if self.ended {
            return String::new();
        }
        let Self { source, data, .. } = self;
        source.poll(data);
        let mut text = String::new();
        let unseen = self.events.saturating_sub(data.events_removed);
        for event in data.events.get(unseen..).unwrap_or_default() {
            text += &format!("{before}{} at {}: {}\n", event.kind, grouped(event.step as f64), event.text);
        }
        self.events = data.events_removed + data.events.len();
        if data.history.len() > 0 && self.step != Some(data.step()) {
            self.step = Some(data.step());
            text += &format!("{before}{}", line(data));
        }
        if data.status != Status::Running && !(goes_on && data.status == Status::Crashed) {
            self.ended = true;
            text += &format!("{}: {}\n", data.id, data.status.name());
        }
        text
    }
}

/// Prints lines; says whether there is still somebody who reads them.
fn printed(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Run(format!("standard output: {error}"))),
    }
}

fn plain(folder: &RunFolder, every: Duration) -> Result<(), Failure> {
    let mut lines = Lines::open(folder)?;
    while printed(&lines.news("", false))? && !lines.ended {
        std::thread::sleep(every);
    }
    Ok(())
}

/// Lines of all seeds, those that begin later too, until none goes on; then a table of what came of them.
fn plain_batch(batch: &BatchFolder, every: Duration) -> Result<(), Failure> {
    let mut open: Vec<(u64, Lines)> = Vec::new();
    loop {
        // Before the runs are looked at: what ends in between is still seen.
        let batch = BatchFolder::look(batch.path.clone())?;
        let goes_on = batch.goes_on();
        for (seed, folder) in &batch.runs {
            if !open.iter().any(|(known, _)| known == seed) {
                open.push((*seed, Lines::open(folder)?));
            }
        }
        let text: String =
            open.iter_mut().map(|(seed, lines)| lines.news(&format!("seed {seed}: "), goes_on)).collect();
        if !printed(&text)? {
            return Ok(());
        }
        if !goes_on {
            let table = format::table(&batch_report::results(&batch), &[]);
            return printed(&format!("{}: {}\n{table}", batch.id, batch.status())).map(drop);
        }
        std::thread::sleep(every);
    }
}

fn line(data: &live::Data) -> String {
    let known = PLAIN.iter().filter_map(|(name, label)| {
        let value = data.history.last(name)?;
        Some(match *name {
            "episodes" => format!("{} episodes", grouped(value)),
            "sps" => format!("{} SPS", number(value)),
            _ => format!("{label} {}", with_unit(value, data.unit(name))),
        })
    });
    let facts = [format!("{} steps", grouped(data.step() as f64)), duration(data.seconds())];
    format!("{}\n", facts.into_iter().chain(known).collect::<Vec<_>>().join(" · "))
}
