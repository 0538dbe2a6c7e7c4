//! TensorBoard event files, written by hand: scalar summaries only, so a few fields of two protobuf messages.
//!
//! The file is records of (length, masked CRC-32C of the length, data, masked CRC-32C of the data), each record an
//! `Event` (tensorflow/core/lib/io/record_writer.cc; tensorflow/core/util/event.proto; tensorboard/compat/proto).
//! Samples are thinned as in `metrics.jsonl`.

use super::event::unix_time;
use super::thin::News;
use super::{Metric, Sample, Sink, Thin};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// CRC-32C (Castagnoli) of every byte: reflected polynomial 0x82f63b78, RFC 3720 appendix B.4.
const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let (mut crc, mut bit) = (i as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| CRC_TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8))
}

/// TensorFlow's mask, so that a CRC of data that holds CRCs stays useful.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Protobuf's base-128 number.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field that holds bytes: text or a message.
fn bytes_field(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The start of an `Event`: `double wall_time = 1; int64 step = 2`.
fn event_head(out: &mut Vec<u8>, wall_time: f64, step: u64) {
    out.push(1 << 3 | 1);
    out.extend_from_slice(&wall_time.to_le_bytes());
    out.push(2 << 3);
    varint(out, step);
}

/// The step in the head of an [`event_head`].
fn event_step(data: &[u8]) -> Option<u64> {
    let varint = data.get(1 + 8..)?.strip_prefix(&[2 << 3])?;
    let mut step = 0;
    for (i, byte) in varint.iter().take(10).enumerate() {
        step |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some(step);
        }
    }
    None
}

/// The whole records of a file whose step is at most `step`.
pub(super) fn records_until(bytes: &[u8], step: u64) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((length, _)) = rest.split_first_chunk() {
        let Some(end) = usize::try_from(u64::from_le_bytes(*length)).ok().and_then(|length| length.checked_add(16))
        else {
            break;
        };
        let Some((record, after)) = rest.split_at_checked(end) else { break };
        if event_step(&record[12..end - 4]).is_some_and(|at| at <= step) {
            kept.extend_from_slice(record);
        }
        rest = after;
    }
    kept
}

/// A sink that writes an event file into the run's folder; each process of a run writes a file of its own.
pub struct Tensorboard {
    path: PathBuf,
    thin: Thin,
    news: News,
    /// `string tag = 1` of each metric's `Summary.Value`.
    tags: Vec<Vec<u8>>,
    file: Option<BufWriter<File>>,
    /// Time of the run's second 0, in seconds since 1970.
    origin: Option<f64>,
    event: Vec<u8>,
    summary: Vec<u8>,
    value: Vec<u8>,
}

impl Tensorboard {
    /// A file below `folder`, created when the run starts.
    pub fn new(folder: &Path) -> Self {
        let name = format!("events.out.tfevents.{:010}.operant.{}", unix_time() as u64, std::process::id());
        Self {
            path: folder.join(name),
            thin: Thin::default(),
            news: News::default(),
            tags: Vec::new(),
            file: None,
            origin: None,
            event: Vec::new(),
            summary: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Writes `self.event` as a record.
    fn record(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let length = (self.event.len() as u64).to_le_bytes();
        let parts: [&[u8]; 4] =
            [&length, &masked(crc32c(&length)).to_le_bytes(), &self.event, &masked(crc32c(&self.event)).to_le_bytes()];
        let written = parts.into_iter().try_for_each(|part| file.write_all(part));
        written.map_err(|error| Error::io("write", &self.path, &error))
    }

    fn flush(&mut self) -> Result<()> {
        let flushed = self.file.as_mut().map_or(Ok(()), |file| file.flush());
        flushed.map_err(|error| Error::io("write", &self.path, &error))
    }
}

impl Sink for Tensorboard {
    fn name(&self) -> &str {
        "tensorboard"
    }

    fn keeps_files(&self) -> bool {
        true
    }

    fn start(&mut self, metrics: &[Metric]) -> Result<()> {
        let file = File::create(&self.path).map_err(|error| Error::io("create", &self.path, &error))?;
        self.file = Some(BufWriter::with_capacity(1 << 16, file));
        self.news = News::new(metrics);
        self.tags = metrics
            .iter()
            .map(|metric| {
                let mut tag = Vec::new();
                bytes_field(&mut tag, 1, metric.name.as_bytes());
                tag
            })
            .collect();
        self.event.clear();
        event_head(&mut self.event, unix_time(), 0);
        // `string file_version = 3` comes first in every file.
        bytes_field(&mut self.event, 3, b"brain.Event:2");
        self.record()?;
        self.flush()
    }

    fn sample(&mut self, sample: &Sample<'_>) -> Result<()> {
        if !self.thin.keep(sample.seconds) {
            return Ok(());
        }
        let origin = *self.origin.get_or_insert_with(|| unix_time() - sample.seconds);
        self.summary.clear();
        self.news.look(sample.values);
        for (i, (tag, value)) in self.tags.iter().zip(sample.values).enumerate() {
            if !self.news.keeps(i, *value) {
                continue;
            }
            // `Summary.Value`: tag, then `float simple_value = 2`; it is `repeated Value value = 1` of `Summary`.
            self.value.clear();
            self.value.extend_from_slice(tag);
            self.value.push(2 << 3 | 5);
            self.value.extend_from_slice(&(*value as f32).to_le_bytes());
            bytes_field(&mut self.summary, 1, &self.value);
        }
        self.event.clear();
        event_head(&mut self.event, origin + sample.seconds, sample.step);
        // `Summary summary = 5`.
        bytes_field(&mut self.event, 5, &self.summary);
        self.record()
    }

    fn tick(&mut self) -> Result<()> {
        self.flush()
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::{METRICS, folder};
    use super::*;

    #[test]
    fn checksums_are_castagnolis() {
        // RFC 3720, appendix B.4, and the check value of the CRC catalogue.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    /// Splits a file into the data of its records, with the masks undone and the checksums compared.
    pub(in super::super) fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let unmask =
            |word: &[u8]| u32::from_le_bytes(word.try_into().unwrap()).wrapping_sub(0xa282_ead8).rotate_left(15);
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            assert_eq!(unmask(&bytes[8..12]), crc32c(&bytes[..8]));
            let data = &bytes[12..12 + length];
            assert_eq!(unmask(&bytes[12 + length..16 + length]), crc32c(data));
            found.push(data.to_vec());
            bytes = &bytes[16 + length..];
        }
        found
    }

    #[test]
    fn records_are_events_with_scalars() {
        let folder = folder("tensorboard");
        let mut sink = Tensorboard::new(&folder);
        sink.start(&METRICS).unwrap();
        sink.origin = Some(1000.0);
        let values = [1.5, f64::NAN, -2.0];
        sink.sample(&Sample { number: 0, step: 300, seconds: 0.5, values: &values, missed: 0 }).unwrap();
        sink.finish().unwrap();
        let records = records(&std::fs::read(&sink.path).unwrap());
        assert_eq!(records.len(), 2);
        assert!(records[0].ends_with(b"\x1a\x0dbrain.Event:2"), "{:?}", records[0]);
        // Decoded by hand: 0x09 field 1 double 1000.5; 0x10 field 2 varint 300 = ac 02; 0x2a field 5, 35 bytes.
        let mut wanted = vec![0x09];
        wanted.extend_from_slice(&1000.5f64.to_le_bytes());
        wanted.extend_from_slice(&[0x10, 0xac, 0x02, 0x2a, 0x23]);
        // Value 1, 13 bytes: tag (6 bytes) "return", then 0x15 field 2 float 1.5 = 00 00 c0 3f.
        wanted.extend_from_slice(b"\x0a\x0d\x0a\x06return\x15\x00\x00\xc0\x3f");
        // Value 2, 18 bytes: tag (11 bytes) "loss/policy", then float -2 = 00 00 00 c0.
        wanted.extend_from_slice(b"\x0a\x12\x0a\x0bloss/policy\x15\x00\x00\x00\xc0");
        assert_eq!(records[1], wanted);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
