//! Rings read while they are written, by threads and processes, and after their writer died.

use super::ring::{RingReader, RingSink};
use super::tests::{METRICS, folder};
use super::{Episode, Event, EventKind, Sample, Sink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set in a process that the tests start to write a ring.
const CHILD: &str = "OPERANT_TEST_RING";

fn put(sink: &mut RingSink, i: u64) {
    let values = [i as f64, 2.0 * i as f64, 3.0 * i as f64];
    sink.sample(&Sample { number: i, step: i, seconds: i as f64, values: &values, missed: 0 }).unwrap();
}

fn open_sink(path: &Path) -> RingSink {
    let mut sink = RingSink::new(path, "a run", "algo = \"ppo\"\n");
    sink.start(&METRICS).unwrap();
    sink
}

#[test]
fn what_goes_in_comes_out() {
    let folder = folder("ring-plain");
    let path = folder.join("live.ring");
    let mut sink = open_sink(&path);
    let reader = RingReader::open(&path).unwrap();
    let header = reader.header();
    assert_eq!((header.run.as_str(), header.config.as_str()), ("a run", "algo = \"ppo\"\n"));
    assert_eq!((header.pid, header.metrics.len()), (std::process::id(), 3));
    assert_eq!((header.metrics[1].name.as_str(), header.metrics[1].unit.as_str()), ("sps", "1/s"));
    assert!(reader.samples_since(0).records.is_empty());
    (0..10).for_each(|i| put(&mut sink, i));
    let episode = Episode { step: 5, env: 3, episode_return: -1.5, length: 200 };
    sink.episode(&episode).unwrap();
    let long = "ü".repeat(300);
    let events = [
        Event { kind: EventKind::Solved, step: 9, unix_time: 1.5, text: "solved: yes".into() },
        Event { kind: EventKind::Note, step: 10, unix_time: 2.5, text: long.clone() },
        Event { kind: EventKind::Stopped, step: 11, unix_time: 3.5, text: String::new() },
    ];
    events.iter().for_each(|event| sink.event(event).unwrap());
    let all = reader.samples_since(0);
    assert_eq!((all.records.len(), all.next, all.missed), (10, 10, 0));
    assert_eq!((all.records[7].step, all.records[7].values.as_slice()), (7, &[7.0, 14.0, 21.0][..]));
    assert_eq!(reader.samples_since(8).records.len(), 2);
    assert_eq!(reader.samples_since(99).records.len(), 0);
    assert_eq!(reader.episodes_since(0).records, [episode]);
    let read = reader.events_since(0).records;
    assert_eq!((&read[0], &read[2]), (&events[0], &events[2]));
    assert!(long.starts_with(&read[1].text) && read[1].text.len() > 240, "{}", read[1].text.len());
    (10..5000).for_each(|i| put(&mut sink, i));
    let late = reader.samples_since(10);
    assert_eq!((late.records.len(), late.next, late.missed), (4096, 5000, 894));
    assert_eq!(late.records[0].step, 904);
    sink.tick().unwrap();
    assert!(reader.alive() && !reader.finished() && reader.silence() < 5.0);
    let message = RingSink::new(&path, "", "").start(&METRICS).unwrap_err().to_string();
    assert!(message.contains("belongs to a run that is going on"), "{message}");
    sink.finish().unwrap();
    assert!(!reader.alive() && reader.finished());
    // The next run of the same folder leaves the file that a viewer has open alone.
    let mut next = open_sink(&path);
    put(&mut next, 1);
    assert_eq!(reader.samples_since(4990).records.len(), 10);
    assert_eq!(RingReader::open(&path).unwrap().samples_since(0).records.len(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn damaged_rings_are_refused_with_a_reason() {
    let folder = folder("ring-damaged");
    let path = folder.join("live.ring");
    drop(open_sink(&path));
    let whole = std::fs::read(&path).unwrap();
    let message = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        RingReader::open(&path).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(message(&whole), "");
    assert!(message(&[0; 4096]).contains("wrong magic number"));
    assert!(message(&whole[..7]).contains("wrong magic number"));
    assert!(message(&whole[..100]).contains("cut off"));
    assert!(message(&whole[..whole.len() - 8]).contains("cut off"));
    let mut newer = whole.clone();
    newer[8] = 9;
    assert!(message(&newer).contains("it has version 9, wanted 1"));
    let mut garbled = whole.clone();
    garbled[70] = b'\\';
    assert!(message(&garbled).contains("is no ring of this version"));
    // Garbage in the tracks is never out of bounds.
    let mut noise = whole;
    let end = noise.len();
    noise[1024..end].iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 37 % 251) as u8);
    std::fs::write(&path, &noise).unwrap();
    if let Ok(reader) = RingReader::open(&path) {
        reader.events_since(u64::MAX - 3);
        reader.episodes_since(u64::MAX - 3);
    }
    assert!(message(b"").contains("live.ring"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_thread_reads_while_another_writes() {
    let folder = folder("ring-threads");
    let path = folder.join("live.ring");
    let mut sink = open_sink(&path);
    let total = 300_000;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader = RingReader::open(&path).unwrap();
                let (mut next, mut seen) = (0, 0);
                while next < total {
                    seen += follow(&reader, &mut next);
                }
                assert_eq!(seen, total);
            });
        }
        (0..total).for_each(|i| put(&mut sink, i));
    });
    std::fs::remove_dir_all(folder).unwrap();
}

/// Reads what is new, checks that every record is whole, and gives how many were read or missed.
fn follow(reader: &RingReader, next: &mut u64) -> u64 {
    let batch = reader.samples_since(*next);
    for sample in &batch.records {
        let i = sample.step as f64;
        assert_eq!((sample.seconds, sample.values.as_slice()), (i, &[i, 2.0 * i, 3.0 * i][..]));
    }
    assert!(batch.records.is_sorted_by_key(|sample| sample.step));
    *next = batch.next;
    batch.missed + batch.records.len() as u64
}

/// Not a test of its own: the process that `a_process_reads_what_another_writes` starts.
#[test]
fn child_writes() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut sink = open_sink(Path::new(&path));
    for i in 0.. {
        put(&mut sink, i);
        sink.tick().unwrap();
    }
}

/// Ends the process when a test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_reads_what_another_writes_and_what_it_leaves_when_killed() {
    let folder = folder("ring-process");
    let path = folder.join("live.ring");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["telemetry::ring_tests::child_writes", "--exact", "--test-threads=1"])
        .env(CHILD, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let child = Killed(child);
    let reader = RingReader::wait(&path, Duration::from_secs(20)).expect("the other process writes a ring");
    assert_eq!(reader.header().pid, child.0.id());
    let (mut next, mut seen) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    while seen < 50_000 {
        seen += follow(&reader, &mut next);
        assert!(reader.alive() && Instant::now() < deadline, "{seen} samples");
    }
    drop(child);
    assert!(!reader.alive() && !reader.finished(), "dead and not finished: crashed");
    seen += follow(&reader, &mut next);
    assert_eq!(seen, next);
    let again = RingReader::open(&path).unwrap();
    // At most one record was half written when the process was killed.
    assert!(again.samples_since(0).records.len() >= 4095);
    assert!(!again.alive());
    std::fs::remove_dir_all(folder).unwrap();
}
