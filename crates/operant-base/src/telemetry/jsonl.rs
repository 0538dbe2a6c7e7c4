//! `metrics.jsonl` and `events.jsonl`: one JSON object per line, appended, flushed ten times a second.
//!
//! A sample has `step`, `seconds` and every metric that is known, rare ones where they are new; one that is known but
//! infinite is null. A run that makes more samples than a plot can show is thinned (`thin.rs`). Invariant: a line is whole or the last of its file.

use super::thin::News;
use super::{Event, Metric, Sample, Sink, Thin};
use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes kept before a write: about a tick of the fastest loops.
const BUFFER: usize = 256 * 1024;

/// A sink that appends to the two files of a run folder.
pub struct Jsonl {
    metrics_path: PathBuf,
    events_path: PathBuf,
    thin: Thin,
    news: News,
    /// `"name":` for each metric.
    keys: Vec<String>,
    missed: u64,
    files: Option<(BufWriter<File>, BufWriter<File>)>,
}

impl Jsonl {
    /// Files below `folder`, opened when the run starts.
    pub fn new(folder: &Path) -> Self {
        Self {
            metrics_path: folder.join("metrics.jsonl"),
            events_path: folder.join("events.jsonl"),
            thin: Thin::default(),
            news: News::default(),
            keys: Vec::new(),
            missed: 0,
            files: None,
        }
    }

    /// The same with another limit to the number of samples.
    pub fn thinned(self, thin: Thin) -> Self {
        Self { thin, ..self }
    }

    fn write(&mut self, what: impl FnOnce(&mut BufWriter<File>, &mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
        let Some((metrics, events)) = &mut self.files else { return Ok(()) };
        what(metrics, events).map_err(|error| Error::io("write", &self.metrics_path, &error))
    }

    fn flush(&mut self) -> Result<()> {
        self.write(|metrics, events| metrics.flush().and_then(|()| events.flush()))
    }
}

/// Opens a file at its end, on a new line: a process that was killed may have left half of one.
fn append(path: &Path) -> Result<BufWriter<File>> {
    let open = || -> io::Result<File> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut last = [b'\n'];
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
        Ok(file)
    };
    open().map(|file| BufWriter::with_capacity(BUFFER, file)).map_err(|error| Error::io("open", path, &error))
}

impl Sink for Jsonl {
    fn name(&self) -> &str {
        "metrics.jsonl"
    }

    fn keeps_files(&self) -> bool {
        true
    }

    fn start(&mut self, metrics: &[Metric]) -> Result<()> {
        self.keys = metrics.iter().map(|metric| format!(",{}:", serde_json::Value::from(metric.name))).collect();
        self.news = News::new(metrics);
        self.files = Some((append(&self.metrics_path)?, append(&self.events_path)?));
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) -> Result<()> {
        if !self.thin.keep(sample.seconds) {
            return Ok(());
        }
        let (keys, mut news) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.news));
        let missed = std::mem::replace(&mut self.missed, sample.missed) != sample.missed;
        let result = self.write(|file, _| {
            write!(file, "{{\"step\":{},\"seconds\":", sample.step)?;
            number(file, sample.seconds)?;
            news.look(sample.values);
            for (i, (key, value)) in keys.iter().zip(sample.values).enumerate() {
                if news.keeps(i, *value) {
                    file.write_all(key.as_bytes())?;
                    number(file, *value)?;
                }
            }
            if missed {
                write!(file, ",\"missed\":{}", sample.missed)?;
            }
            file.write_all(b"}\n")
        });
        (self.keys, self.news) = (keys, news);
        result
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        self.write(|_, file| {
            file.write_all(event_line(event).as_bytes())?;
            // Events are rare and what one looks for after a crash.
            file.flush()
        })
    }

    fn tick(&mut self) -> Result<()> {
        self.flush()
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()
    }
}

fn event_line(event: &Event) -> String {
    let Event { kind, step, unix_time, text } = event;
    let text = serde_json::Value::from(text.as_str());
    format!("{{\"time\":{unix_time:.3},\"step\":{step},\"kind\":\"{kind}\",\"text\":{text}}}\n")
}

/// Adds an event to the `events.jsonl` of a run's folder at once, beside the sink that may be writing there: for a process
/// that is about to end. Whole lines are appended, so neither harms the other's.
pub fn append_event(folder: &Path, event: &Event) -> Result<()> {
    let path = folder.join("events.jsonl");
    let append = || OpenOptions::new().append(true).open(&path)?.write_all(event_line(event).as_bytes());
    append().map_err(|error| Error::io("write", &path, &error))
}

/// The shortest text that reads back as the same number; JSON has no infinity.
fn number(file: &mut BufWriter<File>, value: f64) -> io::Result<()> {
    if value.is_finite() {
        serde_json::to_writer(file, &value).map_err(io::Error::from)
    } else {
        file.write_all(b"null")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{METRICS, folder};
    use super::super::{Event, EventKind};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn lines(path: PathBuf) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    #[test]
    fn writes_what_is_known_and_appends_after_a_crash() {
        let folder = folder("jsonl");
        std::fs::write(folder.join("metrics.jsonl"), "{\"step\":1,\"seconds\":0.1}\n{\"step\":2,\"sec").unwrap();
        let mut sink = Jsonl::new(&folder);
        sink.start(&METRICS).unwrap();
        let values = [1e-7, f64::NAN, f64::INFINITY];
        sink.sample(&Sample { number: 0, step: 3, seconds: 0.25, values: &values, missed: 0 }).unwrap();
        sink.sample(&Sample { number: 9, step: 4, seconds: 1e21, values: &[0.1, -5.0, 2.0], missed: 8 }).unwrap();
        sink.event(&Event { kind: EventKind::Note, step: 4, unix_time: 1.5, text: "a \"quote\"".into() }).unwrap();
        sink.finish().unwrap();
        let [first, second] = [METRICS[0].name, METRICS[1].name];
        let third = METRICS[2].name;
        assert_eq!(
            lines(folder.join("metrics.jsonl")),
            [
                json!({"step": 1, "seconds": 0.1}),
                json!({"step": 3, "seconds": 0.25, first: 1e-7, third: null}),
                json!({"step": 4, "seconds": 1e21, first: 0.1, second: -5.0, third: 2.0, "missed": 8}),
            ]
        );
        let events = lines(folder.join("events.jsonl"));
        assert_eq!(events, [json!({"time": 1.5, "step": 4, "kind": "note", "text": "a \"quote\""})]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn numbers_read_back_with_all_their_bits(values in vec(any::<f64>(), 1000)) {
            let folder = folder("jsonl-bits");
            let mut sink = Jsonl::new(&folder);
            sink.start(&METRICS).unwrap();
            for (step, values) in values.chunks_exact(4).enumerate() {
                let (step, seconds) = (step as u64, values[0].abs());
                sink.sample(&Sample { number: 0, step, seconds, values: &values[1..], missed: 0 }).unwrap();
            }
            sink.finish().unwrap();
            let read = lines(folder.join("metrics.jsonl"));
            prop_assert_eq!(read.len(), values.len() / 4);
            for (line, values) in read.iter().zip(values.chunks_exact(4)) {
                let bits = |name: &str| line[name].as_f64().unwrap().to_bits();
                prop_assert_eq!(bits("seconds"), values[0].abs().to_bits());
                for (metric, value) in METRICS.iter().zip(&values[1..]) {
                    prop_assert_eq!(bits(metric.name), value.to_bits());
                }
            }
            std::fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn a_missing_folder_and_a_full_disk_are_errors_with_the_path() {
        let message = Jsonl::new(Path::new("no/such")).start(&METRICS).unwrap_err().to_string();
        assert!(message.starts_with("cannot open no/such/metrics.jsonl: "), "{message}");
        if cfg!(target_os = "linux") {
            let full = File::options().write(true).open("/dev/full").unwrap();
            let mut sink = Jsonl::new(Path::new("full"));
            let events = BufWriter::new(full.try_clone().unwrap());
            sink.files = Some((BufWriter::new(full), events));
            sink.sample(&Sample { number: 0, step: 0, seconds: 0.0, values: &[], missed: 0 }).unwrap();
            let message = sink.tick().unwrap_err().to_string();
            assert!(message.contains("No space left"), "{message}");
        }
    }
}
