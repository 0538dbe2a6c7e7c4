//! A sink's thread: follows the tracks of samples and episodes, delivers events after the samples before them, ticks ten
//! times a second, and reports what the sink missed and why it ended. It sleeps in between; the loop never wakes it.

use super::{EPISODE_WORDS, Episode, Event, EventKind, SAMPLE_HEAD, Sample, Sink, Tracks};
use crate::error::Result;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time between ticks.
const TICK: Duration = Duration::from_millis(100);

/// What reaches a sink's thread through its queue.
pub(super) enum Message {
    Event(Arc<Event>),
    /// Write what was read, then answer with the sink's index.
    Settle(Sender<usize>),
    Finish,
}

/// Sends an event to all sinks but one.
pub(super) fn broadcast(senders: &[Sender<Message>], but: Option<usize>, event: Event) {
    let event = Arc::new(event);
    for (_, sender) in senders.iter().enumerate().filter(|(i, _)| Some(*i) != but) {
        // A sink that failed has no receiver any more.
        let _ = sender.send(Message::Event(event.clone()));
    }
}

/// How far a sink is, for the board to read.
pub(super) struct Progress {
    pub(super) name: String,
    pub(super) keeps_files: bool,
    /// Times that it was asked to write what it had read, and did.
    pub(super) asked: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) samples_read: AtomicU64,
    pub(super) samples_missed: AtomicU64,
    pub(super) episodes_read: AtomicU64,
    pub(super) episodes_missed: AtomicU64,
    pub(super) failure: Mutex<Option<String>>,
}

impl Progress {
    pub(super) fn new(sink: &dyn Sink) -> Self {
        let zero = AtomicU64::default;
        Self {
            name: sink.name().to_owned(),
            keeps_files: sink.keeps_files(),
            asked: zero(),
            answered: zero(),
            samples_read: zero(),
            samples_missed: zero(),
            episodes_read: zero(),
            episodes_missed: zero(),
            failure: Mutex::new(None),
        }
    }

    pub(super) fn fail(&self, message: String) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(message);
        }
    }
}

/// Everything that a sink's thread owns.
pub(super) struct Drain {
    pub(super) index: usize,
    pub(super) sink: Box<dyn Sink>,
    pub(super) messages: Receiver<Message>,
    pub(super) tracks: Arc<Tracks>,
    pub(super) progress: Arc<Progress>,
    pub(super) others: Arc<[Sender<Message>]>,
    pub(super) done: Sender<usize>,
}

impl Drain {
    pub(super) fn spawn(self) {
        let (progress, done, index) = (self.progress.clone(), self.done.clone(), self.index);
        let thread = std::thread::Builder::new().name(format!("sink {}", progress.name));
        if let Err(error) = thread.spawn(move || self.live()) {
            progress.fail(format!("no thread for it: {error}"));
            let _ = done.send(index);
        }
    }

    fn live(mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.follow()));
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it panicked".to_owned()),
        };
        if let Some(message) = failure {
            let text = format!("{}: {message}; the run goes on without it", self.progress.name);
            self.progress.fail(message);
            broadcast(&self.others, Some(self.index), Event::now(EventKind::SinkFailed, self.last_step(), text));
        }
        // The board may be gone.
        let _ = self.done.send(self.index);
    }

    fn follow(&mut self) -> Result<()> {
        self.sink.start(&self.tracks.metrics)?;
        let mut record = vec![0; self.tracks.sample.width];
        let mut values = vec![0.0; self.tracks.metrics.len()];
        let mut next_tick = Instant::now() + TICK;
        loop {
            let message = self.messages.recv_timeout(next_tick.saturating_duration_since(Instant::now()));
            self.drain(&mut record, &mut values)?;
            match message {
                Ok(Message::Event(event)) => self.sink.event(&event)?,
                Ok(Message::Settle(answer)) => {
                    self.sink.tick()?;
                    self.progress.answered.fetch_add(1, Ordering::Release);
                    // The loop may have gone on without it.
                    let _ = answer.send(self.index);
                }
                Ok(Message::Finish) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= next_tick {
                self.sink.tick()?;
                next_tick = Instant::now() + TICK;
            }
        }
        self.sink.finish()
    }

    fn drain(&mut self, record: &mut [u64], values: &mut [f64]) -> Result<()> {
        let Self { sink, tracks, progress, .. } = self;
        let mut number = progress.samples_read.load(Ordering::Relaxed);
        loop {
            let (lost, read) = tracks.sample.next(&tracks.samples, &mut number, record);
            let missed = progress.samples_missed.fetch_add(lost, Ordering::Relaxed) + lost;
            progress.samples_read.store(number, Ordering::Relaxed);
            if !read {
                break;
            }
            for (value, word) in values.iter_mut().zip(&record[SAMPLE_HEAD..]) {
                *value = f64::from_bits(*word);
            }
            let (step, seconds) = (record[0], f64::from_bits(record[1]));
            sink.sample(&Sample { number: number - 1, step, seconds, values, missed })?;
        }
        let mut number = progress.episodes_read.load(Ordering::Relaxed);
        let mut words = [0; EPISODE_WORDS];
        loop {
            let (lost, read) = tracks.episode.next(&tracks.episodes, &mut number, &mut words);
            progress.episodes_missed.fetch_add(lost, Ordering::Relaxed);
            progress.episodes_read.store(number, Ordering::Relaxed);
            if !read {
                return Ok(());
            }
            sink.episode(&Episode::from_words(words))?;
        }
    }

    /// The step of the newest sample that can be read.
    fn last_step(&self) -> u64 {
        let mut record = [0];
        let published = self.tracks.sample.published(&self.tracks.samples);
        let read = published > 0 && self.tracks.sample.read(&self.tracks.samples, published - 1, &mut record);
        if read { record[0] } else { 0 }
    }
}
