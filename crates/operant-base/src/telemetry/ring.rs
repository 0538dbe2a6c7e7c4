//! `live.ring`: the newest samples, episodes and events of a run in a mapped file, for any number of viewers in other
//! processes. Viewers attach and leave without the writer noticing, and can read what a dead process left.
//!
//! The file is a few fixed words, a JSON header and three tracks (`track.rs`). It is written whole before its name
//! appears, so that a full disk is an error here and not a signal later, and a new run never changes a file that a viewer
//! has mapped. The writer holds the file's lock for as long as it lives. Invariant: the file is only touched through
//! atomic words, and its magic number is there only once everything before the tracks is.
#![allow(unsafe_code)]

use super::event::unix_time;
use super::track::Track;
use super::{EPISODE_WORDS, Episode, Event, EventKind, Metric, SAMPLE_HEAD, Sample, Sink};
use crate::error::{Error, Result};
use memmap2::{MmapOptions, MmapRaw};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// "operant" and a byte that no text has.
const MAGIC: u64 = u64::from_le_bytes(*b"operant\xf1");
const VERSION: u64 = 1;
/// Fixed words at the start of the file.
const FIXED: usize = 8;
const MAGIC_WORD: usize = 0;
const VERSION_WORD: usize = 1;
const HEADER_BYTES_WORD: usize = 2;
const FINISHED_WORD: usize = 3;
/// Milliseconds since 1970 when the writer last gave a sign of life.
const HEARTBEAT_WORD: usize = 4;
/// Samples that the writer itself missed.
const MISSED_WORD: usize = 5;

const SAMPLES: usize = 4096;
const EPISODES: usize = 4096;
const EVENTS: usize = 512;
/// Words before the text of an event: step, time, bytes of the kind, bytes of the text.
const EVENT_HEAD: usize = 4;
/// Words of an event's kind and text; longer ones are cut.
const EVENT_TEXT: usize = 32;
/// Largest header that is believed, in bytes.
const HEADER_LIMIT: u64 = 1 << 24;
/// Without file locks, a writer that was silent for this long counts as dead.
const SILENCE: f64 = 5.0;

/// What a viewer has to know of a run before its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingHeader {
    /// Name of the run.
    pub run: String,
    /// Its resolved config, as in `run.toml`.
    pub config: String,
    /// The process that writes.
    pub pid: u32,
    /// When it began, in seconds since 1970.
    pub started: f64,
    /// The metrics, in the order of values.
    pub metrics: Vec<RingMetric>,
    samples: usize,
    episodes: usize,
    events: usize,
}

/// A metric as a viewer sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingMetric {
    /// Its key.
    pub name: String,
    /// What it is.
    pub help: String,
    /// Its unit, or nothing.
    pub unit: String,
}

/// Where things are in the file.
#[derive(Clone, Copy, Debug)]
struct Layout {
    sample: Track,
    episode: Track,
    event: Track,
    /// Word at which the tracks begin.
    tracks: usize,
}

impl Layout {
    fn new(header: &RingHeader, header_bytes: usize) -> Self {
        Self {
            sample: Track { width: SAMPLE_HEAD + header.metrics.len(), capacity: header.samples },
            episode: Track { width: EPISODE_WORDS, capacity: header.episodes },
            event: Track { width: EVENT_HEAD + EVENT_TEXT, capacity: header.events },
            tracks: FIXED + header_bytes.div_ceil(8),
        }
    }

    fn words(self) -> usize {
        self.tracks + self.sample.words() + self.episode.words() + self.event.words()
    }

    fn samples(self, words: &[AtomicU64]) -> &[AtomicU64] {
        &words[self.tracks..][..self.sample.words()]
    }

    fn episodes(self, words: &[AtomicU64]) -> &[AtomicU64] {
        &words[self.tracks + self.sample.words()..][..self.episode.words()]
    }

    fn events(self, words: &[AtomicU64]) -> &[AtomicU64] {
        &words[self.tracks + self.sample.words() + self.episode.words()..][..self.event.words()]
    }
}

/// The words of mapped memory.
fn words(map: &MmapRaw) -> &[AtomicU64] {
    assert!(map.as_ptr().cast::<AtomicU64>().is_aligned(), "maps begin at a page");
    // SAFETY: the pointer is aligned, the length in words stays within the map, any bits are a valid `AtomicU64`, and the
    // result borrows the map. Every process touches the file only through such words; nobody truncates it, because a new
    // ring is renamed over an old one. A read-only map is only read, by relaxed loads, which std allows there.
    unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), map.len() / 8) }
}

/// The writing half: a sink.
pub struct RingSink {
    path: PathBuf,
    run: String,
    config: String,
    open: Option<Writer>,
}

struct Writer {
    map: MmapRaw,
    layout: Layout,
    /// Kept open because it holds the lock that says that the writer lives.
    _file: File,
}

impl RingSink {
    /// A ring at `path` for the run of this name and resolved config; the file appears when the run starts.
    pub fn new(path: &Path, run: &str, config: &str) -> Self {
        Self { path: path.to_owned(), run: run.to_owned(), config: config.to_owned(), open: None }
    }

    fn create(&self, metrics: &[Metric]) -> io::Result<Writer> {
        let beside = self.path.with_extension(format!("ring.{}.new", std::process::id()));
        self.write(metrics, &beside).inspect_err(|_| drop(std::fs::remove_file(&beside)))
    }

    fn write(&self, metrics: &[Metric], beside: &Path) -> io::Result<Writer> {
        let metrics = metrics
            .iter()
            .map(|m| RingMetric { name: m.name.into(), help: m.help.into(), unit: m.unit.into() })
            .collect();
        let header = RingHeader {
            run: self.run.clone(),
            config: self.config.clone(),
            pid: std::process::id(),
            started: unix_time(),
            metrics,
            samples: SAMPLES,
            episodes: EPISODES,
            events: EVENTS,
        };
        let text = serde_json::to_vec(&header)?;
        let layout = Layout::new(&header, text.len());
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(beside)?;
        // Some file systems have no locks; then viewers go by the heartbeat.
        let _ = file.try_lock();
        let mut image = vec![0; layout.words() * 8];
        image[FIXED * 8..][..text.len()].copy_from_slice(&text);
        file.write_all(&image)?;
        let map = MmapRaw::map_raw(&file)?;
        let fixed = words(&map);
        fixed[VERSION_WORD].store(VERSION, Ordering::Relaxed);
        fixed[HEADER_BYTES_WORD].store(text.len() as u64, Ordering::Relaxed);
        beat(fixed);
        fixed[MAGIC_WORD].store(MAGIC, Ordering::Release);
        std::fs::rename(beside, &self.path)?;
        Ok(Writer { map, layout, _file: file })
    }
}

fn beat(fixed: &[AtomicU64]) {
    fixed[HEARTBEAT_WORD].store((unix_time() * 1e3) as u64, Ordering::Relaxed);
}

/// Whether another process holds the lock of this file.
fn locked(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Sink for RingSink {
    fn name(&self) -> &str {
        "live.ring"
    }

    fn start(&mut self, metrics: &[Metric]) -> Result<()> {
        if File::open(&self.path).is_ok_and(|old| locked(&old).unwrap_or(false)) {
            let path = self.path.display();
            let text = format!("{path} belongs to a run that is going on; stop it first, or choose another --run-dir");
            return Err(Error::Invalid(text));
        }
        self.open = Some(self.create(metrics).map_err(|error| Error::io("write", &self.path, &error))?);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) -> Result<()> {
        let Some(Writer { map, layout, .. }) = &self.open else { return Ok(()) };
        let words = words(map);
        let head = [sample.step, sample.seconds.to_bits()].into_iter();
        layout.sample.push(layout.samples(words), head.chain(sample.values.iter().map(|value| value.to_bits())));
        words[MISSED_WORD].store(sample.missed, Ordering::Relaxed);
        Ok(())
    }

    fn episode(&mut self, episode: &Episode) -> Result<()> {
        let Some(Writer { map, layout, .. }) = &self.open else { return Ok(()) };
        layout.episode.push(layout.episodes(words(map)), episode.words().into_iter());
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        let Some(Writer { map, layout, .. }) = &self.open else { return Ok(()) };
        let mut text = event.kind.to_string();
        let kind = text.len();
        text.push_str(&event.text);
        let fits = |end: &usize| *end <= EVENT_TEXT * 8 && text.is_char_boundary(*end);
        text.truncate((0..=text.len()).rev().find(fits).unwrap_or(0));
        let head = [event.step, event.unix_time.to_bits(), kind as u64, (text.len() - kind) as u64];
        let body = text.as_bytes().chunks(8).map(|chunk| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(bytes)
        });
        layout.event.push(layout.events(words(map)), head.into_iter().chain(body));
        Ok(())
    }

    fn tick(&mut self) -> Result<()> {
        if let Some(writer) = &self.open {
            beat(words(&writer.map));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.open.take() {
            words(&writer.map)[FINISHED_WORD].store(1, Ordering::Release);
        }
        Ok(())
    }
}

/// Records from a ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Since<T> {
    /// In order.
    pub records: Vec<T>,
    /// Pass this to the next call.
    pub next: u64,
    /// Records that were overwritten before they could be read.
    pub missed: u64,
}

/// A sample from a ring.
#[derive(Clone, Debug, PartialEq)]
pub struct RingSample {
    /// Env steps done.
    pub step: u64,
    /// Seconds since the run began.
    pub seconds: f64,
    /// In the order of the metrics; NaN is not known.
    pub values: Vec<f64>,
}

/// The reading half: a viewer's look at a run that goes on, or has ended, or has died.
pub struct RingReader {
    map: MmapRaw,
    file: File,
    header: RingHeader,
    layout: Layout,
}

impl RingReader {
    /// Opens the ring at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let damaged = |why: &str| {
            let path = path.display();
            Error::Saved(format!("{path} is no ring of this version: {why}; metrics.jsonl has the history of its run"))
        };
        let file = File::open(path).map_err(|error| Error::io("open", path, &error))?;
        let map = MmapOptions::new().map_raw_read_only(&file).map_err(|error| Error::io("map", path, &error))?;
        let all = words(&map);
        if all.len() < FIXED || all[MAGIC_WORD].load(Ordering::Relaxed) != MAGIC {
            return Err(damaged("wrong magic number"));
        }
        fence(Ordering::Acquire);
        let version = all[VERSION_WORD].load(Ordering::Relaxed);
        if version != VERSION {
            return Err(damaged(&format!("it has version {version}, wanted {VERSION}")));
        }
        let header_bytes = all[HEADER_BYTES_WORD].load(Ordering::Relaxed);
        if header_bytes > HEADER_LIMIT || FIXED + (header_bytes as usize).div_ceil(8) > all.len() {
            return Err(damaged("it is cut off"));
        }
        let header_words = all[FIXED..].iter().take((header_bytes as usize).div_ceil(8));
        let mut text: Vec<u8> = header_words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        text.truncate(header_bytes as usize);
        let header: RingHeader = serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
        let sane = |records: usize| (1..=1 << 20).contains(&records);
        if !(sane(header.samples) && sane(header.episodes) && sane(header.events)) {
            return Err(damaged("impossible sizes"));
        }
        let layout = Layout::new(&header, header_bytes as usize);
        if layout.words() > all.len() {
            return Err(damaged("it is cut off"));
        }
        Ok(Self { map, file, header, layout })
    }

    /// What the run is.
    pub fn header(&self) -> &RingHeader {
        &self.header
    }

    /// Whether the writing process still lives.
    pub fn alive(&self) -> bool {
        !self.finished() && locked(&self.file).unwrap_or_else(|_| self.silence() < SILENCE)
    }

    /// Whether the run said that it ends; one that is neither alive nor finished has crashed.
    pub fn finished(&self) -> bool {
        words(&self.map)[FINISHED_WORD].load(Ordering::Relaxed) != 0
    }

    /// Seconds since the writer gave a sign of life.
    pub fn silence(&self) -> f64 {
        let beat = words(&self.map)[HEARTBEAT_WORD].load(Ordering::Relaxed);
        (unix_time() - beat as f64 / 1e3).max(0.0)
    }

    /// Samples that the writer itself missed because it could not keep up with the loop.
    pub fn writer_missed(&self) -> u64 {
        words(&self.map)[MISSED_WORD].load(Ordering::Relaxed)
    }

    /// Samples from number `next` on.
    pub fn samples_since(&self, next: u64) -> Since<RingSample> {
        since(self.layout.sample, self.layout.samples(words(&self.map)), next, |words| RingSample {
            step: words[0],
            seconds: f64::from_bits(words[1]),
            values: words[SAMPLE_HEAD..].iter().map(|word| f64::from_bits(*word)).collect(),
        })
    }

    /// Episodes from number `next` on.
    pub fn episodes_since(&self, next: u64) -> Since<Episode> {
        since(self.layout.episode, self.layout.episodes(words(&self.map)), next, |words| {
            Episode::from_words([words[0], words[1], words[2], words[3]])
        })
    }

    /// Events from number `next` on.
    pub fn events_since(&self, next: u64) -> Since<Event> {
        since(self.layout.event, self.layout.events(words(&self.map)), next, |words| {
            let text: Vec<u8> = words[EVENT_HEAD..].iter().flat_map(|word| word.to_le_bytes()).collect();
            let kind_bytes = (words[2] as usize).min(text.len());
            let text_bytes = (words[3] as usize).min(text.len() - kind_bytes);
            let (kind, text) = text[..kind_bytes + text_bytes].split_at(kind_bytes);
            Event {
                kind: EventKind::parse(&String::from_utf8_lossy(kind)).unwrap_or(EventKind::Note),
                step: words[0],
                unix_time: f64::from_bits(words[1]),
                text: String::from_utf8_lossy(text).into_owned(),
            }
        })
    }

    /// Waits until a ring can be opened, for a viewer that comes before its run; `None` after `limit`.
    pub fn wait(path: &Path, limit: Duration) -> Option<Self> {
        let deadline = std::time::Instant::now() + limit;
        loop {
            if let Ok(reader) = Self::open(path) {
                return Some(reader);
            }
            if std::time::Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn since<T>(track: Track, words: &[AtomicU64], next: u64, parse: impl Fn(&[u64]) -> T) -> Since<T> {
    let mut record = vec![0; track.width];
    // No further than what is there now: a fast writer must not keep a reader forever. A cursor from before a crash may
    // be ahead of the ring of the process after it.
    let end = track.published(words);
    let mut since = Since { records: Vec::new(), next: next.min(end), missed: 0 };
    while since.next < end {
        let (missed, read) = track.next(words, &mut since.next, &mut record);
        since.missed += missed;
        if read {
            since.records.push(parse(&record));
        }
    }
    since
}
