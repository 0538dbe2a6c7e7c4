//! What was sampled is in files when the board says so, and a sink that hangs is waited for once.

use operant_base::Result;
use operant_base::telemetry::{Board, Jsonl, Metric, Sample, Sink, Tensorboard};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("settle-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Steps told in `metrics.jsonl`.
fn lines(folder: &std::path::Path) -> usize {
    std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap_or_default().lines().count()
}

fn tensorboard_bytes(folder: &std::path::Path) -> u64 {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_name().to_string_lossy().contains("tfevents"));
    files.map(|entry| entry.metadata().unwrap().len()).sum()
}

#[test]
fn samples_are_in_files_when_settled() {
    let folder = folder("files");
    let sinks: Vec<Box<dyn Sink>> = vec![Box::new(Jsonl::new(&folder)), Box::new(Tensorboard::new(&folder))];
    let mut board = Board::start(vec![Metric::new("return", "", "")], sinks);
    let mut bytes = 0;
    for step in 1..=20 {
        board.sample(step, step as f64);
        assert!(board.settle(Duration::from_secs(60)).is_empty());
        assert_eq!(lines(&folder), step as usize);
        assert!(tensorboard_bytes(&folder) > bytes, "step {step}");
        bytes = tensorboard_bytes(&folder);
    }
    board.finish();
    std::fs::remove_dir_all(folder).unwrap();
}

/// A sink whose files take as long as a flag is not set.
struct Slow {
    open: Arc<AtomicBool>,
    samples: Arc<AtomicU64>,
    keeps_files: bool,
}

impl Sink for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn keeps_files(&self) -> bool {
        self.keeps_files
    }

    fn sample(&mut self, _: &Sample<'_>) -> Result<()> {
        while !self.open.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.samples.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_sink_that_hangs_is_named_and_waited_for_once() {
    let (open, samples) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let sink = |keeps_files| Box::new(Slow { open: Arc::clone(&open), samples: Arc::clone(&samples), keeps_files });
    let mut board = Board::start(Vec::new(), vec![sink(true), sink(false)]);
    board.sample(1, 0.0);
    let limit = Duration::from_millis(200);
    let start = Instant::now();
    assert_eq!(board.settle(limit), ["slow"]);
    assert!(start.elapsed() >= limit && start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let start = Instant::now();
    (0..100).for_each(|_| assert!(board.settle(Duration::from_secs(60)).is_empty()));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    open.store(true, Ordering::Relaxed);
    // Once it has answered, it is waited for again.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut step = 2;
    loop {
        board.sample(step, 0.0);
        let before = samples.load(Ordering::Relaxed);
        assert!(board.settle(Duration::from_secs(60)).is_empty());
        if samples.load(Ordering::Relaxed) > before && samples.load(Ordering::Relaxed) >= step {
            break;
        }
        assert!(Instant::now() < deadline);
        step += 1;
    }
    board.finish();
}
