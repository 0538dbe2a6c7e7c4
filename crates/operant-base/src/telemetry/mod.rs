//! Telemetry: the loop sets numbers in slots and never waits; threads carry them to sinks.
//!
//! Every sink has a thread of its own, which follows a track of samples that the loop writes without a lock
//! (`track.rs`). A sink that is slow loses the oldest samples, one that fails is left behind, and both are counted:
//! neither can block or end training. Events are rare, wait in a queue without a limit, and are never dropped.
//!
//! Invariant: `set`, `sample` and `episode` neither allocate, lock, wake a thread nor fail.

pub mod alerts;
pub mod console;
mod cut;
mod drain;
mod event;
pub mod jsonl;
pub mod ring;
mod settle;
pub mod tensorboard;
mod thin;
mod track;

#[cfg(test)]
mod ring_tests;
#[cfg(test)]
mod tests;

pub use alerts::{Alerts, Rule, Rules};
pub use console::Console;
pub use cut::cut_back;
pub use event::{Event, EventKind, Severity, unix_time};
pub use jsonl::{Jsonl, append_event};
pub use ring::{RingReader, RingSink};
pub use tensorboard::Tensorboard;
pub use thin::Thin;

use crate::error::Result;
use drain::{Drain, Message, Progress};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use track::Track;

/// Samples that a sink may be behind before it loses the oldest: seconds of the fastest loops.
const SAMPLES: usize = 4096;
/// Episodes that a sink may be behind.
const EPISODES: usize = 4096;
/// Episodes kept between two samples; a fast loop ends thousands, and a sample of them says as much.
const EPISODES_PER_SAMPLE: u32 = 16;
/// Words before the values of a sample: step, seconds.
const SAMPLE_HEAD: usize = 2;
/// Words of an episode: step, env, return, length.
const EPISODE_WORDS: usize = 4;
/// How long [`Board::finish`] waits for sinks that do not come to an end.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// A number that a loop reports: its name is also its key in files and on screens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Such as `"loss/policy"`; a slash groups.
    pub name: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
    /// Its unit, empty for plain numbers.
    pub unit: &'static str,
    /// Whether it is set now and then and holds in between: files keep it only where it is new.
    pub rare: bool,
    /// Whether people see it as the run goes on; for algorithms that play no episodes, which are shown else.
    pub headline: bool,
}

impl Metric {
    /// A metric.
    pub const fn new(name: &'static str, help: &'static str, unit: &'static str) -> Self {
        Self { name, help, unit, rare: false, headline: false }
    }

    /// The same, for people to see as the run goes on.
    pub const fn headline(self) -> Self {
        Self { headline: true, ..self }
    }

    /// A metric that is set now and then, whose name is known only when a program runs.
    pub fn rare(name: String, help: &'static str) -> Self {
        Self { name: interned(name), help, unit: "", rare: true, headline: false }
    }
}

/// The name as a text that lives as long as the program; each is kept once.
fn interned(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name.as_str()) {
        Some(known) => known,
        None => {
            let kept: &'static str = name.leak();
            names.insert(kept);
            kept
        }
    }
}

/// Index of a metric, from [`Board::slot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

/// All metrics at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Number of this sample in its run, from 0; gaps were dropped.
    pub number: u64,
    /// Env steps done.
    pub step: u64,
    /// Seconds since the run began.
    pub seconds: f64,
    /// In the order of the metrics; NaN is not known.
    pub values: &'a [f64],
    /// Samples that this sink has missed so far.
    pub missed: u64,
}

/// An episode that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// Env steps done when it ended.
    pub step: u64,
    /// Number of its env.
    pub env: u64,
    /// Sum of its rewards.
    pub episode_return: f64,
    /// Its steps.
    pub length: u64,
}

/// Where telemetry goes. All methods are called on a thread of the sink's own; one that fails ends the sink, not the run.
pub trait Sink: Send {
    /// What people call it, such as its file's name.
    fn name(&self) -> &str;

    /// Whether a resumed run goes on in its files: a checkpoint waits until they hold what came before it.
    fn keeps_files(&self) -> bool {
        false
    }

    /// Called once, first.
    fn start(&mut self, _metrics: &[Metric]) -> Result<()> {
        Ok(())
    }

    /// One sample; cheap (buffered), because thousands may come in a second.
    fn sample(&mut self, sample: &Sample<'_>) -> Result<()>;

    /// One episode.
    fn episode(&mut self, _episode: &Episode) -> Result<()> {
        Ok(())
    }

    /// One event, after the samples before it.
    fn event(&mut self, _event: &Event) -> Result<()> {
        Ok(())
    }

    /// About ten times a second: flush, redraw.
    fn tick(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called once, last.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What a sink did not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkDrops {
    /// The sink.
    pub name: String,
    /// Samples that were overwritten before it read them.
    pub samples: u64,
    /// Episodes that were overwritten before it read them.
    pub episodes: u64,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// What did not arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// By sink.
    pub sinks: Vec<SinkDrops>,
    /// Episodes that no sink was shown because too many ended between two samples.
    pub episodes_left_out: u64,
}

impl Drops {
    /// Samples dropped, by all sinks together.
    pub fn samples(&self) -> u64 {
        self.sinks.iter().map(|sink| sink.samples).sum()
    }

    /// Sinks that failed, with why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sinks.iter().filter_map(|sink| Some((sink.name.as_str(), sink.failure.as_deref()?)))
    }
}

/// What the loop writes and the sinks' threads read.
struct Tracks {
    metrics: Vec<Metric>,
    sample: Track,
    episode: Track,
    samples: Box<[AtomicU64]>,
    episodes: Box<[AtomicU64]>,
}

/// The metric board of a run, owned by its loop.
pub struct Board {
    tracks: Arc<Tracks>,
    values: Vec<f64>,
    alerts: Option<Alerts>,
    episodes_since_sample: u32,
    episodes_left_out: u64,
    sinks: Vec<Arc<Progress>>,
    senders: Arc<[Sender<Message>]>,
    done: Receiver<usize>,
    closed: bool,
}

impl Board {
    /// Starts a thread for each sink. A sink that cannot start is one that failed: see [`Board::drops`].
    pub fn start(metrics: Vec<Metric>, sinks: Vec<Box<dyn Sink>>) -> Self {
        let sample = Track { width: SAMPLE_HEAD + metrics.len(), capacity: SAMPLES };
        let episode = Track { width: EPISODE_WORDS, capacity: EPISODES };
        let values = vec![f64::NAN; metrics.len()];
        let (samples, episodes) = (sample.memory(), episode.memory());
        let tracks = Arc::new(Tracks { metrics, sample, episode, samples, episodes });
        let (senders, receivers): (Vec<_>, Vec<_>) = sinks.iter().map(|_| mpsc::channel()).unzip();
        let senders: Arc<[Sender<Message>]> = senders.into();
        let (done_sender, done) = mpsc::channel();
        let mut all = Vec::new();
        for (index, (sink, messages)) in sinks.into_iter().zip(receivers).enumerate() {
            let progress = Arc::new(Progress::new(&*sink));
            all.push(progress.clone());
            let (tracks, others) = (tracks.clone(), senders.clone());
            Drain { index, sink, messages, tracks, progress, others, done: done_sender.clone() }.spawn();
        }
        Self {
            tracks,
            values,
            alerts: None,
            episodes_since_sample: 0,
            episodes_left_out: 0,
            sinks: all,
            senders,
            done,
            closed: false,
        }
    }

    /// Has every sample looked at by these rules, which become events of kind alert and cleared.
    pub fn watch(&mut self, rules: Rules) {
        self.alerts = Some(Alerts::new(&self.tracks.metrics, rules));
    }

    /// The metrics, in the order of slots.
    pub fn metrics(&self) -> &[Metric] {
        &self.tracks.metrics
    }

    /// The slot of a metric.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.tracks.metrics.iter().position(|metric| metric.name == name).map(Slot)
    }

    /// Sets a metric until it is set again; NaN says that it is not known.
    #[inline]
    pub fn set(&mut self, slot: Slot, value: f64) {
        self.values[slot.0] = value;
    }

    /// Publishes the metrics as they are set, at `step` env steps and `seconds` since the run began.
    pub fn sample(&mut self, step: u64, seconds: f64) {
        let head = [step, seconds.to_bits()].into_iter();
        self.tracks.sample.push(&self.tracks.samples, head.chain(self.values.iter().map(|value| value.to_bits())));
        self.episodes_since_sample = 0;
        let alerts = self.alerts.as_mut().map_or_else(Vec::new, |alerts| alerts.sample(step, &self.values));
        for alert in alerts {
            let kind = if alert.fired { EventKind::Alert(alert.rule) } else { EventKind::Cleared(alert.rule) };
            self.event(kind, step, alert.text);
        }
    }

    /// Publishes an episode that ended; of many between two samples, the first few.
    #[inline]
    pub fn episode(&mut self, episode: Episode) {
        if self.episodes_since_sample >= EPISODES_PER_SAMPLE {
            self.episodes_left_out += 1;
            return;
        }
        self.episodes_since_sample += 1;
        self.tracks.episode.push(&self.tracks.episodes, episode.words().into_iter());
    }

    /// Publishes an event to every sink. Allocates: for what happens a few times a second at most.
    pub fn event(&mut self, kind: EventKind, step: u64, text: impl Into<String>) {
        drain::broadcast(&self.senders, None, Event::now(kind, step, text));
    }

    /// What did not arrive so far.
    pub fn drops(&self) -> Drops {
        // What waits will still be read, as far as it is not overwritten; by a sink that failed nothing is.
        let behind = |track: Track, words: &[AtomicU64], read: &AtomicU64, failed: bool| {
            let waiting = track.published(words).saturating_sub(read.load(Ordering::Relaxed));
            waiting.saturating_sub(if failed { 0 } else { track.capacity as u64 })
        };
        let tracks = &self.tracks;
        let drops = |sink: &Arc<Progress>| {
            let failure = sink.failure.lock().map_or(None, |failure| failure.clone());
            let failed = failure.is_some();
            let samples = sink.samples_missed.load(Ordering::Relaxed);
            let episodes = sink.episodes_missed.load(Ordering::Relaxed);
            SinkDrops {
                name: sink.name.clone(),
                samples: samples + behind(tracks.sample, &tracks.samples, &sink.samples_read, failed),
                episodes: episodes + behind(tracks.episode, &tracks.episodes, &sink.episodes_read, failed),
                failure,
            }
        };
        Drops { sinks: self.sinks.iter().map(drops).collect(), episodes_left_out: self.episodes_left_out }
    }

    /// Lets every sink read what is left and finish, for two seconds at most, and says what did not arrive.
    pub fn finish(mut self) -> Drops {
        self.close();
        self.drops()
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        for sender in self.senders.iter() {
            // A sink that failed has no receiver any more.
            let _ = sender.send(Message::Finish);
        }
        let deadline = Instant::now() + FINISH_LIMIT;
        let mut open = vec![true; self.sinks.len()];
        while open.contains(&true) {
            let Ok(index) = self.done.recv_timeout(deadline.saturating_duration_since(Instant::now())) else { break };
            open[index] = false;
        }
        for (sink, _) in self.sinks.iter().zip(open).filter(|(_, open)| *open) {
            sink.fail(format!("did not finish within {} s; what it had not written is lost", FINISH_LIMIT.as_secs()));
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.close();
    }
}

impl Episode {
    fn words(self) -> [u64; EPISODE_WORDS] {
        [self.step, self.env, self.episode_return.to_bits(), self.length]
    }

    fn from_words(words: [u64; EPISODE_WORDS]) -> Self {
        let [step, env, episode_return, length] = words;
        Self { step, env, episode_return: f64::from_bits(episode_return), length }
    }
}
