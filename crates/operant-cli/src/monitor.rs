//! `operant monitor`: watch a run from another terminal, or in place (`operant train --monitor`).

use crate::format::{duration, number, with_unit};
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
    /// A run's folder, or its name below --dir [default: the run that began last].
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
    let folder = match &args.run {
        Some(name) => RunFolder::find(name, &args.dir)?,
        None => RunFolder::latest(&args.dir)?,
    };
    if args.plain || !std::io::stdout().is_terminal() {
        plain(&folder, Duration::from_secs_f64(args.every))
    } else {
        tui::watch(&folder, &|| false).map(|_| ())
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

fn plain(folder: &RunFolder, every: Duration) -> Result<(), Failure> {
    let (mut source, mut data) = live::Source::open(folder)?;
    let (mut events, mut step) = (0_usize, None);
    loop {
        source.poll(&mut data);
        let mut text = String::new();
        let unseen = events.saturating_sub(data.events_removed);
        for event in data.events.get(unseen..).unwrap_or_default() {
            text += &format!("{} at {}: {}\n", event.kind, grouped(event.step as f64), event.text);
        }
        events = data.events_removed + data.events.len();
        if data.history.len() > 0 && step != Some(data.step()) {
            step = Some(data.step());
            text += &line(&data);
        }
        let running = data.status == Status::Running;
        if !running {
            text += &format!("{}: {}\n", data.id, data.status.name());
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) if running => std::thread::sleep(every),
            Ok(()) => return Ok(()),
            // The reader has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(Failure::Run(format!("standard output: {error}"))),
        }
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
