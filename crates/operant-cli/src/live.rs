//! What viewers know of a run: history and events from its files, other news from its ring.

use crate::history::History;
use crate::output::Failure;
use crate::run_folder::{RunFolder, Status, env_name, flat, setting};
use operant::config::{self, Table};
use operant::telemetry::{Episode, Event, RingReader};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Samples kept; older ones are thinned beyond.
const SAMPLES: usize = 20_000;
/// Episodes kept.
const EPISODES: usize = 2000;
/// Events kept: 48 growing networks told of 1,800 in one iteration.
const EVENTS: usize = 20_000;
/// Time between looks for a new ring or a change of status.
const LOOK: Duration = Duration::from_millis(500);

/// All that screens show.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) id: String,
    pub(crate) algo: String,
    pub(crate) env: String,
    pub(crate) status: Status,
    pub(crate) pid: Option<u32>,
    /// Seconds since the writer's last sign of life.
    pub(crate) silence: f64,
    pub(crate) total_steps: Option<u64>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) history: History,
    pub(crate) episodes: VecDeque<Episode>,
    pub(crate) events: Vec<Event>,
    /// Events that were left behind because there were too many.
    pub(crate) events_removed: usize,
    /// Name, help and unit of each metric.
    pub(crate) metrics: Vec<(String, String, String)>,
    /// Samples that the run's ring or this viewer could not keep up with.
    pub(crate) missed: u64,
}

impl Data {
    pub(crate) fn step(&self) -> u64 {
        self.history.steps().last().copied().unwrap_or(0)
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.history.seconds().last().copied().unwrap_or(0.0)
    }

    pub(crate) fn unit(&self, metric: &str) -> &str {
        self.metrics.iter().find(|(name, ..)| name == metric).map_or("", |(_, _, unit)| unit)
    }

    /// Metrics whose names start with `group`.
    pub(crate) fn group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a str> {
        self.history.names().iter().map(String::as_str).filter(move |name| name.starts_with(group))
    }

    /// Forgets events, of which the file has been written anew.
    fn forget_events(&mut self) {
        self.events_removed += self.events.len();
        self.events.clear();
    }

    fn add_events(&mut self, events: Vec<Event>) {
        self.events.extend(events);
        let surplus = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..surplus);
        self.events_removed += surplus;
    }
}

/// Where news comes from.
pub(crate) struct Source {
    folder: RunFolder,
    ring: Option<RingReader>,
    next_sample: u64,
    next_episode: u64,
    /// Bytes of the events' file that were read.
    events_read: u64,
    looked: Option<Instant>,
}

impl Source {
    /// Attaches to a run, with all its history.
    pub(crate) fn open(folder: &RunFolder) -> Result<(Self, Data), Failure> {
        let ring = folder.ring();
        // A run that is just starting has its ring before its settings, or the other way round.
        let settings = folder.config().or_else(|failure| {
            let config = ring.as_ref().map(|ring| config::parse(&ring.header().config, "live.ring"));
            config.and_then(Result::ok).ok_or(failure)
        });
        let settings = settings.unwrap_or_else(|_| Table::new());
        let mut history = folder.history(SAMPLES)?;
        history.thin(SAMPLES);
        let mut data = Data {
            events_removed: 0,
            id: folder.id.clone(),
            algo: setting(&settings, "algo").unwrap_or_default(),
            env: env_name(&settings).unwrap_or_default(),
            status: folder.status(),
            pid: None,
            silence: 0.0,
            total_steps: setting(&settings, "steps").and_then(|steps| steps.parse().ok()),
            settings: flat(&settings),
            history,
            episodes: VecDeque::new(),
            events: Vec::new(),
            metrics: Vec::new(),
            missed: 0,
        };
        let mut source =
            Self { folder: folder.clone(), ring: None, next_sample: 0, next_episode: 0, events_read: 0, looked: None };
        source.attach(ring, &mut data);
        source.poll(&mut data);
        Ok((source, data))
    }

    fn attach(&mut self, ring: Option<RingReader>, data: &mut Data) {
        (self.next_sample, self.next_episode, self.events_read) = (0, 0, 0);
        data.forget_events();
        if let Some(ring) = &ring {
            let header = ring.header();
            data.pid = Some(header.pid);
            data.metrics = header.metrics.iter().map(|m| (m.name.clone(), m.help.clone(), m.unit.clone())).collect();
        }
        self.ring = ring;
    }

    /// Takes what is new.
    pub(crate) fn poll(&mut self, data: &mut Data) {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.look(data);
        }
        let (events, again) = self.folder.events_since(&mut self.events_read);
        if again {
            // A run that went on from a checkpoint takes back what it told after that.
            data.forget_events();
        }
        data.add_events(events);
        let Some(ring) = &self.ring else { return };
        // The ring goes back further than the file's end: only what comes after is new.
        let samples = ring.samples_since(self.next_sample);
        let (first, last) = (self.next_sample == 0, data.history.steps().last().copied());
        self.next_sample = samples.next;
        if !first {
            data.missed += samples.missed;
        }
        let names = &ring.header().metrics;
        for sample in samples.records.iter().filter(|sample| !first || last.is_none_or(|last| sample.step > last)) {
            let metrics = names.iter().map(|metric| metric.name.as_str()).zip(sample.values.iter().copied());
            data.history.push(sample.step, sample.seconds, metrics);
        }
        data.history.thin(SAMPLES);
        let episodes = ring.episodes_since(self.next_episode);
        self.next_episode = episodes.next;
        data.episodes.extend(episodes.records);
        let surplus = data.episodes.len().saturating_sub(EPISODES);
        data.episodes.drain(..surplus);
        data.silence = ring.silence();
    }

    /// Looks for a ring that appeared or was replaced, and how the run stands.
    fn look(&mut self, data: &mut Data) {
        let ended = self.ring.as_ref().is_none_or(|ring| !ring.alive());
        if ended && let Some(new) = self.folder.ring() {
            let known = self.ring.as_ref().map(|ring| (ring.header().pid, ring.header().started));
            if known != Some((new.header().pid, new.header().started)) {
                self.attach(Some(new), data);
            }
        }
        data.status = if ended { self.folder.status() } else { Status::Running };
        if let Some(ring) = &self.ring {
            data.missed = data.missed.max(ring.writer_missed());
        }
    }
}
