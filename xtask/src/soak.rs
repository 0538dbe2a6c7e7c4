//! `cargo xtask soak`: trains CartPole at full speed while viewers come and go, and looks at what a long run must keep:
//! memory, events, speed. Linux only: it reads `/proc`.

use crate::Failure;
use crate::bench_peers::{build_ours, field};
use crate::process::{capture, find_program, target};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Viewers that come and go.
const VIEWERS: usize = 20;
/// Memory may grow by this much after the warm-up.
const MEMORY_LIMIT: f64 = 0.02;
/// Steps per CPU-second may be this much lower while someone watches.
const SPEED_LIMIT: f64 = 0.05;
/// The time in which a run takes all the memory that it will have, in seconds.
const WARM_UP_S: f64 = 60.0;
/// Seconds between looks at the trainer.
const LOOK_S: f64 = 0.5;
/// Ticks of `/proc/PID/stat` in a second.
const TICKS: f64 = 100.0;

/// The trainer at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    seconds: f64,
    rss_bytes: f64,
    cpu_s: f64,
}

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let seconds = 60.0 * minutes(words)?;
    let program = build_ours()?;
    let folder = target().join("soak");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let soak = Soak { run: folder.join("run"), program, folder };
    let mut trainer = soak.train()?;
    let watched = soak.watch(&mut trainer, seconds);
    // Whatever happened, the trainer does not outlive this program.
    let stopped = stop(&mut trainer);
    let (looks, viewers) = watched?;
    stopped?;
    let checks = soak.checks(&looks, &viewers, seconds)?;
    println!("\nsoak: {:.1} minutes of CartPole, {VIEWERS} viewers", seconds / 60.0);
    for (name, text, good) in &checks {
        println!("{name:<9} {text}: {}", if *good { "good" } else { "BAD" });
    }
    match checks.iter().all(|(.., good)| *good) {
        true => Ok(()),
        false => Err(Failure::Told),
    }
}

fn minutes(words: &[String]) -> Result<f64, Failure> {
    match words {
        [] => Ok(10.0),
        [flag, value] if flag == "--minutes" => value
            .parse()
            .ok()
            .filter(|minutes| (0.5..=10_000.0).contains(minutes))
            .ok_or_else(|| Failure::Usage(format!("--minutes {value}: wanted 0.5 to 10000"))),
        _ => Err(Failure::Usage("soak takes --minutes M and nothing else".to_owned())),
    }
}

struct Soak {
    program: PathBuf,
    folder: PathBuf,
    run: PathBuf,
}

/// When a viewer was there, and whether it showed the run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Visit {
    from: f64,
    to: f64,
    screen: bool,
    saw: bool,
}

impl Soak {
    fn train(&self) -> Result<Child, String> {
        let log = self.file("train.txt")?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        command.args(["train", "ppo", "cartpole", "--until", "steps", "--steps", "1e15", "--run-dir"]).arg(&self.run);
        // Every checkpoint stays, so that their events can be counted.
        command.args(["--set", "checkpoint.every_s=5", "--set", "checkpoint.keep=1000000"]);
        println!("$ operant train ppo cartpole --until steps --steps 1e15 …");
        let spawned = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        spawned.map_err(|error| format!("can't start the trainer: {error}"))
    }

    fn file(&self, name: &str) -> Result<File, String> {
        File::create(self.folder.join(name)).map_err(|error| format!("{name}: {error}"))
    }

    /// Looks at the trainer and sends viewers, one after the other.
    fn watch(&self, trainer: &mut Child, seconds: f64) -> Result<(Vec<Look>, Vec<Visit>), String> {
        let (begun, pid) = (Instant::now(), trainer.id());
        let (mut looks, mut visits) = (Vec::new(), Vec::new());
        let slot = seconds / VIEWERS as f64;
        for number in 0..VIEWERS {
            // The middle half of a slot is watched.
            let (from, to) = ((number as f64 + 0.25) * slot, (number as f64 + 0.75) * slot);
            self.look_until(trainer, pid, begun, from, &mut looks)?;
            let screen = number % 2 == 1 && find_program("script").is_some();
            let name = format!("viewer-{number}.txt");
            let mut viewer = self.viewer(screen, self.file(&name)?)?;
            let from = begun.elapsed().as_secs_f64();
            let looked = self.look_until(trainer, pid, begun, to, &mut looks);
            leave(&mut viewer, screen);
            looked?;
            let shown = std::fs::read(self.folder.join(&name)).unwrap_or_default();
            let wanted = if screen { "overview" } else { " steps · " };
            let saw = String::from_utf8_lossy(&shown).contains(wanted);
            visits.push(Visit { from, to: begun.elapsed().as_secs_f64(), screen, saw });
            eprintln!("viewer {}/{VIEWERS} came and went", number + 1);
        }
        self.look_until(trainer, pid, begun, seconds, &mut looks)?;
        Ok((looks, visits))
    }

    fn look_until(
        &self,
        trainer: &mut Child,
        pid: u32,
        begun: Instant,
        until: f64,
        looks: &mut Vec<Look>,
    ) -> Result<(), String> {
        loop {
            let seconds = begun.elapsed().as_secs_f64();
            if seconds >= until {
                return Ok(());
            }
            if let Ok(Some(status)) = trainer.try_wait() {
                let log = std::fs::read_to_string(self.folder.join("train.txt")).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                return Err(format!("the trainer ended after {seconds:.0} s with {status}: {last}"));
            }
            looks.extend(look(pid, seconds));
            std::thread::sleep(Duration::from_secs_f64(LOOK_S.min(until - seconds)));
        }
    }

    fn viewer(&self, screen: bool, out: File) -> Result<Child, String> {
        let mut command = if screen {
            let mut command = Command::new("script");
            let (program, run) = (self.program.display(), self.run.display());
            command.args(["-qec", &format!("stty cols 120 rows 40; exec '{program}' monitor '{run}'"), "/dev/null"]);
            command.env("TERM", "xterm");
            command
        } else {
            let mut command = Command::new(&self.program);
            command.arg("monitor").arg(&self.run).arg("--plain");
            command
        };
        let spawned = command.stdin(Stdio::piped()).stdout(out).stderr(Stdio::null()).spawn();
        spawned.map_err(|error| format!("can't start a viewer: {error}"))
    }

    /// Name, what was found, and whether it is as it must be.
    fn checks(
        &self,
        looks: &[Look],
        visits: &[Visit],
        seconds: f64,
    ) -> Result<Vec<(&'static str, String, bool)>, String> {
        let text = |name: &str| {
            let path = self.run.join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut checks = Vec::new();
        let warm_up = WARM_UP_S.min(seconds / 5.0);
        let (early, late) = memory(looks, warm_up).ok_or("no memory was seen")?;
        let growth = late / early - 1.0;
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let memory = format!(
            "{:.1} MiB after {warm_up:.0} s, {:.1} MiB at the end, {:+.2} % (limit {:+.0} %)",
            mib(early),
            mib(late),
            100.0 * growth,
            100.0 * MEMORY_LIMIT
        );
        checks.push(("memory", memory, growth < MEMORY_LIMIT));

        let events = text("events.jsonl")?;
        let kinds: Vec<&str> = events.lines().filter_map(|line| field(line, "kind")).collect();
        let count = |kind: &str| kinds.iter().filter(|known| **known == kind).count();
        let saved = std::fs::read_dir(self.run.join("ckpt")).into_iter().flatten().flatten();
        let saved = saved.filter(|entry| entry.path().join("manifest.json").exists()).count();
        let dropped = field(&text("final.json")?, "samples_dropped").unwrap_or("?").to_owned();
        let found = format!(
            "{} started, {} of {saved} checkpoints, {} stopped, {} sinks failed, {dropped} samples dropped",
            count("started"),
            count("checkpoint"),
            count("stopped"),
            count("sink_failed"),
        );
        let whole = kinds.first() == Some(&"started") && (count("started"), count("stopped")) == (1, 1);
        checks.push(("events", found, whole && count("checkpoint") == saved && count("sink_failed") == 0));

        let screens = visits.iter().filter(|visit| visit.screen).count();
        let saw = visits.iter().filter(|visit| visit.saw).count();
        let found = format!("{saw} of {} saw the run, {screens} of them on a screen", visits.len());
        checks.push(("viewers", found, saw == visits.len()));

        let progress: Vec<(f64, f64)> = text("metrics.jsonl")?
            .lines()
            .filter_map(|line| Some((field(line, "seconds")?.parse().ok()?, field(line, "step")?.parse().ok()?)))
            .collect();
        let cpu: Vec<(f64, f64)> = looks.iter().map(|look| (look.seconds, look.cpu_s)).collect();
        let (alone, watched) = speeds(&progress, &cpu, visits, seconds).ok_or("no speed was seen")?;
        let change = watched[1] / alone[1] - 1.0;
        let found = format!(
            "{:.0} steps per CPU-second alone, {:.0} watched, {:+.2} % (limit {:+.0} %); {:.0} and {:.0} steps/s",
            alone[1],
            watched[1],
            100.0 * change,
            -100.0 * SPEED_LIMIT,
            alone[0],
            watched[0]
        );
        checks.push(("speed", found, change > -SPEED_LIMIT));
        Ok(checks)
    }
}

/// Has a viewer leave as people do: q on a screen, the end of the pipe's reader for lines.
fn leave(viewer: &mut Child, screen: bool) {
    if screen {
        if let Some(mut keys) = viewer.stdin.take() {
            // A screen that is gone already needs no key.
            let _ = keys.write_all(b"q");
        }
        for _ in 0..50 {
            if matches!(viewer.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let _ = viewer.kill();
    let _ = viewer.wait();
}

/// Ctrl-C, and time to save.
fn stop(trainer: &mut Child) -> Result<(), String> {
    let asked = capture(Command::new("kill").args(["-INT", &trainer.id().to_string()]));
    for _ in 0..100 {
        if matches!(trainer.try_wait(), Ok(Some(_))) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = trainer.kill();
    let _ = trainer.wait();
    asked?;
    Err("the trainer did not stop within 10 s of Ctrl-C".to_owned())
}

fn look(pid: u32, seconds: f64) -> Option<Look> {
    let folder = Path::new("/proc").join(pid.to_string());
    let status = std::fs::read_to_string(folder.join("status")).ok()?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let rss_bytes = rss.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0;
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    // The name before the fields may hold spaces; after it, user and system time are fields 12 and 13.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(Look { seconds, rss_bytes, cpu_s: ticks / TICKS })
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

/// Bytes of memory after the warm-up and at the end: each the median over a tenth of the time.
fn memory(looks: &[Look], warm_up: f64) -> Option<(f64, f64)> {
    let end = looks.last()?.seconds;
    let part = (end - warm_up) / 10.0;
    let between = |from: f64, to: f64| {
        let inside = looks.iter().filter(|look| look.seconds >= from && look.seconds <= to);
        median(inside.map(|look| look.rss_bytes).collect())
    };
    Some((between(warm_up, warm_up + part)?, between(end - part, end)?))
}

/// A quantity at a time, between the two known values around it.
fn at(points: &[(f64, f64)], time: f64) -> Option<f64> {
    let after = points.partition_point(|point| point.0 < time);
    let (&(t0, y0), &(t1, y1)) = (points.get(after.checked_sub(1)?)?, points.get(after)?);
    Some(y0 + (y1 - y0) * (time - t0) / (t1 - t0).max(1e-9))
}

/// Steps per second and per CPU-second, alone and watched: medians over the visits and over the times between them.
fn speeds(progress: &[(f64, f64)], cpu: &[(f64, f64)], visits: &[Visit], end: f64) -> Option<([f64; 2], [f64; 2])> {
    let rates = |times: Vec<(f64, f64)>| {
        let rate = |(from, to): (f64, f64)| {
            let steps = at(progress, to)? - at(progress, from)?;
            Some((steps / (to - from), steps / (at(cpu, to)? - at(cpu, from)?).max(1e-9)))
        };
        let (wall, cpu): (Vec<f64>, Vec<f64>) = times.into_iter().filter_map(rate).unzip();
        Some([median(wall)?, median(cpu)?])
    };
    let watched = visits.iter().map(|visit| (visit.from, visit.to)).collect();
    let next = visits.iter().skip(1).map(|visit| visit.from).chain([end]);
    let alone = visits.iter().zip(next).map(|(visit, next)| (visit.to, next)).collect();
    Some((rates(alone)?, rates(watched)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(from: f64, to: f64) -> Visit {
        Visit { from, to, screen: false, saw: true }
    }

    #[test]
    fn memory_is_compared_after_the_warm_up() {
        let look = |i: u32| Look {
            seconds: f64::from(i),
            rss_bytes: if i < 60 { 1.0 } else { 100.0 + f64::from(i) },
            cpu_s: 0.0,
        };
        let looks: Vec<Look> = (0..=160).map(look).collect();
        assert_eq!(memory(&looks, 60.0), Some((165.0, 255.0)));
        assert_eq!(memory(&[], 60.0), None);
    }

    #[test]
    fn speeds_are_told_apart() {
        // 100 steps a second alone, 50 watched, one CPU-second each.
        let mut progress = vec![(0.0, 0.0)];
        for i in 0..40 {
            let (time, step) = progress[i];
            progress.push((time + 1.0, step + if i % 4 < 2 { 50.0 } else { 100.0 }));
        }
        let cpu: Vec<(f64, f64)> = (0..=40).map(|i| (f64::from(i), f64::from(i))).collect();
        let visits: Vec<Visit> = (0..9).map(|i| visit(f64::from(4 * i), f64::from(4 * i + 2))).collect();
        let (alone, watched) = speeds(&progress, &cpu, &visits, 36.0).unwrap_or_else(|| panic!("none"));
        assert_eq!((alone, watched), ([100.0; 2], [50.0; 2]));
    }

    #[test]
    fn reads_this_process() {
        if cfg!(target_os = "linux") {
            let look = look(std::process::id(), 1.0).unwrap_or_else(|| panic!("nothing was read"));
            assert!(look.rss_bytes > 1e5 && look.cpu_s >= 0.0, "{look:?}");
        }
    }

    #[test]
    fn reads_minutes() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(matches!(minutes(&[]), Ok(10.0)));
        assert!(matches!(minutes(&words("--minutes 0.5")), Ok(0.5)));
        for wrong in ["--minutes", "--minutes 0", "--minute 3", "3"] {
            assert!(matches!(minutes(&words(wrong)), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
