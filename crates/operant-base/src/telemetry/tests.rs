//! The board with sinks that behave, block, fail and panic.

use super::*;
use crate::error::Error;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;

pub(super) const METRICS: [Metric; 3] =
    [Metric::new("return", "mean", ""), Metric::new("sps", "speed", "1/s"), Metric::new("loss/policy", "", "")];

/// A folder of this test process alone.
pub(super) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("operant-telemetry-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a sink saw, as words.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn push(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, start: &str) -> usize {
        self.lines().iter().filter(|line| line.starts_with(start)).count()
    }
}

/// How a [`Probe`] behaves at its first sample.
#[derive(Clone)]
enum Manner {
    Good,
    Fails,
    Panics,
    /// Waits until the flag is set.
    Blocks(Arc<AtomicBool>),
}

struct Probe {
    log: Log,
    manner: Manner,
}

impl Sink for Probe {
    fn name(&self) -> &str {
        "probe"
    }

    fn start(&mut self, metrics: &[Metric]) -> Result<()> {
        self.log.push(format!("start {}", metrics.len()));
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) -> Result<()> {
        match &self.manner {
            Manner::Good => {}
            Manner::Fails => return Err(Error::Io("the disk is full".into())),
            Manner::Panics => panic!("on purpose"),
            Manner::Blocks(open) => {
                while !open.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(1));
                }
            }
        }
        self.log.push(format!("sample {} {} {} {:?}", sample.number, sample.step, sample.seconds, sample.values));
        Ok(())
    }

    fn episode(&mut self, episode: &Episode) -> Result<()> {
        self.log.push(format!("episode {} {}", episode.env, episode.episode_return));
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        self.log.push(format!("event {} {} {}", event.kind, event.step, event.text));
        Ok(())
    }

    fn tick(&mut self) -> Result<()> {
        self.log.push("tick".into());
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.log.push("finish".into());
        Ok(())
    }
}

fn board(manners: &[Manner]) -> (Vec<Log>, Board) {
    let logs: Vec<Log> = manners.iter().map(|_| Log::default()).collect();
    let probes = logs.iter().zip(manners);
    let sinks =
        probes.map(|(log, manner)| Box::new(Probe { log: log.clone(), manner: manner.clone() }) as Box<dyn Sink>);
    let sinks = sinks.collect();
    (logs, Board::start(METRICS.to_vec(), sinks))
}

#[test]
fn everything_arrives_in_order() {
    let (logs, mut board) = board(&[Manner::Good]);
    let (mean_return, sps) = (board.slot("return").unwrap(), board.slot("sps").unwrap());
    assert_eq!(board.slot("retrun"), None);
    board.event(EventKind::Started, 0, "hello");
    board.set(sps, 5.0);
    board.sample(10, 0.5);
    board.set(mean_return, 1.5);
    board.sample(20, 1.0);
    board.episode(Episode { step: 20, env: 7, episode_return: 9.5, length: 3 });
    board.event(EventKind::Solved, 20, "yes");
    sleep(Duration::from_millis(250));
    board.set(sps, f64::NAN);
    board.sample(30, 2.0);
    let drops = board.finish();
    assert_eq!((drops.samples(), drops.failures().count()), (0, 0));
    let lines: Vec<String> = logs[0].lines().into_iter().filter(|line| line != "tick").collect();
    assert!(logs[0].count("tick") >= 1);
    // A sink may see a sample before an event that came before it, never the other way round.
    let place =
        |line: &str| lines.iter().position(|other| other == line).unwrap_or_else(|| panic!("{line}: {lines:?}"));
    let order = [
        "start 3",
        "sample 0 10 0.5 [NaN, 5.0, NaN]",
        "sample 1 20 1 [1.5, 5.0, NaN]",
        "event solved 20 yes",
        "sample 2 30 2 [1.5, NaN, NaN]",
        "finish",
    ];
    assert!(order.windows(2).all(|pair| place(pair[0]) < place(pair[1])), "{lines:?}");
    assert!(place("event started 0 hello") < place("event solved 20 yes"));
    assert!(place("episode 7 9.5") < place("event solved 20 yes"));
    assert_eq!(lines.len(), 8, "{lines:?}");
}

#[test]
fn a_sink_that_blocks_forever_harms_nobody() {
    let open = Arc::new(AtomicBool::new(false));
    let (logs, mut board) = board(&[Manner::Blocks(open.clone()), Manner::Good]);
    let began = Instant::now();
    let total = SAMPLES as u64 + 500;
    for step in 0..total {
        board.sample(step, step as f64);
        if step % 1000 == 0 {
            sleep(Duration::from_millis(120));
        }
    }
    board.event(EventKind::Checkpoint, total, "kept");
    assert!(began.elapsed() < Duration::from_secs(20), "the loop does not wait");
    let drops = board.drops();
    assert!(drops.sinks[0].samples >= 400, "{drops:?}");
    assert_eq!(drops.sinks[1].samples, 0, "{drops:?}");
    let began = Instant::now();
    let drops = board.finish();
    let waited = began.elapsed();
    assert!(waited >= FINISH_LIMIT && waited < FINISH_LIMIT + Duration::from_secs(2), "{waited:?}");
    let failures: Vec<(&str, &str)> = drops.failures().collect();
    assert_eq!(failures, [("probe", "did not finish within 2 s; what it had not written is lost")]);
    assert_eq!(logs[1].count("sample"), total as usize);
    assert_eq!(logs[1].count("event checkpoint"), 1);
    open.store(true, Ordering::Relaxed);
}

#[test]
fn a_slow_sink_loses_the_oldest_samples_and_no_event() {
    let open = Arc::new(AtomicBool::new(false));
    let (logs, mut board) = board(&[Manner::Blocks(open.clone())]);
    board.sample(0, 0.0);
    while logs[0].count("start") == 0 {
        sleep(Duration::from_millis(1));
    }
    // The sink has taken the first sample when a tick has passed.
    sleep(Duration::from_millis(300));
    let total = SAMPLES as u64 + 100;
    for step in 1..total {
        board.sample(step, 0.0);
        board.event(EventKind::Note, step, "");
        board.episode(Episode { step, env: 0, episode_return: 0.0, length: 1 });
    }
    let dropped = board.drops();
    assert_eq!((dropped.samples(), dropped.sinks[0].failure.clone()), (99, None));
    open.store(true, Ordering::Relaxed);
    let drops = board.finish();
    assert_eq!((drops.samples(), drops.failures().count()), (99, 0));
    assert_eq!(logs[0].count("sample"), SAMPLES + 1);
    assert_eq!(logs[0].count("event"), total as usize - 1);
    assert_eq!(logs[0].count("episode"), EPISODES);
    assert_eq!(drops.sinks[0].episodes, total - 1 - EPISODES as u64);
    assert_eq!(logs[0].lines().last().unwrap(), "finish");
}

#[test]
fn failing_and_panicking_sinks_are_left_behind_and_reported_to_the_others() {
    let (logs, mut board) = board(&[Manner::Fails, Manner::Panics, Manner::Good]);
    board.sample(77, 0.0);
    let deadline = Instant::now() + Duration::from_secs(10);
    while logs[2].count("event sink_failed") < 2 {
        assert!(Instant::now() < deadline, "{:?}", logs[2].lines());
        sleep(Duration::from_millis(5));
    }
    board.sample(78, 1.0);
    let began = Instant::now();
    let drops = board.finish();
    assert!(began.elapsed() < Duration::from_secs(1));
    let failures: Vec<(&str, &str)> = drops.failures().collect();
    assert_eq!(failures, [("probe", "the disk is full"), ("probe", "it panicked")]);
    assert_eq!(logs[2].count("sample"), 2);
    let told = "event sink_failed 77 probe: the disk is full; the run goes on without it".to_owned();
    assert!(logs[2].lines().contains(&told), "{:?}", logs[2].lines());
}

#[test]
fn of_many_episodes_a_few_are_kept_and_the_rest_counted() {
    let (logs, mut board) = board(&[Manner::Good]);
    for iteration in 0..3 {
        for env in 0..100 {
            board.episode(Episode { step: iteration, env, episode_return: 1.0, length: 1 });
        }
        board.sample(iteration, 0.0);
    }
    let kept = 3 * u64::from(EPISODES_PER_SAMPLE);
    assert_eq!(board.finish().episodes_left_out, 300 - kept);
    assert_eq!(logs[0].count("episode"), kept as usize);
}

#[test]
fn watched_samples_become_events_once() {
    let (logs, mut board) = board(&[Manner::Good]);
    board.watch(Rules::default());
    let loss = board.slot("loss/policy").unwrap();
    for (step, value) in [1.0, f64::INFINITY, f64::NAN, f64::INFINITY, 1.0].into_iter().enumerate() {
        board.set(loss, value);
        board.sample(step as u64, 0.0);
    }
    board.finish();
    assert_eq!(logs[0].count("event alert/non_finite 1 loss/policy is inf"), 1);
    assert_eq!(logs[0].count("event cleared/non_finite 4"), 1);
    assert_eq!(logs[0].count("event"), 2);
}

#[test]
fn a_dropped_board_finishes_its_sinks() {
    let (logs, mut board) = board(&[Manner::Good]);
    board.sample(1, 0.0);
    drop(board);
    assert_eq!((logs[0].count("sample"), logs[0].count("finish")), (1, 1));
}
