//! `train --profile`: the trace and the table of where the time went.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn operant(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_operant")).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// An empty folder for a test's runs.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn weights(run: &Path) -> Vec<u8> {
    let name = json(&run.join("final.json"))["checkpoint"].as_str().unwrap().to_owned();
    std::fs::read(run.join("ckpt").join(name).join("policy.safetensors")).unwrap()
}

/// A span of the trace, in nanoseconds.
struct Span {
    name: String,
    thread: u64,
    start: u64,
    end: u64,
    is_op: bool,
}

fn spans(trace: &Value) -> Vec<Span> {
    let events = trace["traceEvents"].as_array().unwrap();
    let nanoseconds = |x: &Value| (x.as_f64().unwrap() * 1e3).round() as u64;
    let spans = events.iter().filter(|event| event["ph"] == "X").map(|event| Span {
        name: event["name"].as_str().unwrap().to_owned(),
        thread: event["tid"].as_u64().unwrap(),
        start: nanoseconds(&event["ts"]),
        end: nanoseconds(&event["ts"]) + nanoseconds(&event["dur"]),
        is_op: event["cat"] == "op",
    });
    spans.collect()
}

/// Milliseconds and calls by name, as the table says.
fn table(text: &str) -> BTreeMap<String, (f64, u64)> {
    let from = text.lines().skip_while(|line| !line.starts_with("phase (main thread)"));
    let rows = from.filter(|line| line.contains(" % "));
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name @ .., ms, _, "%", calls, _] = &words[..] else { panic!("{line}") };
        (name.join(" "), (ms.parse().unwrap(), calls.parse().unwrap()))
    };
    rows.map(read).collect()
}

#[test]
fn a_profile_says_where_the_time_went_and_changes_nothing() {
    let folder = folder("profile");
    let (with, without) = (folder.join("with"), folder.join("without"));
    // Minibatches large enough to be shared by two threads.
    let common = "train ppo cartpole --seed 3 --until steps --steps 65536 --num-envs 256 --threads 2 --quiet --set \
                  ppo.num_steps=32 --set ppo.minibatch_size=4096 --set ppo.update_epochs=2 --run-dir";
    let words = |run: &Path, more: &[&str]| {
        let run = run.to_str().unwrap().to_owned();
        let words: Vec<&str> = common.split_whitespace().chain([run.as_str()]).chain(more.iter().copied()).collect();
        operant(&words)
    };
    words(&without, &[]);
    let text = words(&with, &["--profile", "3"]);
    assert_eq!(weights(&with), weights(&without), "a profile changes no bit");
    assert!(!without.join("trace.json").exists());
    // Layers that run as one have a name that says so.
    assert!(text.contains("learn: actor.0..4 forward") && text.contains("learn: critic.0..4 backward"), "{text}");
    assert!(text.contains("where the time went: 3 iterations"), "{text}");

    let trace = json(&with.join("trace.json"));
    let spans = spans(&trace);
    let names: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    for name in ["iteration", "collect", "env", "sample", "estimate", "learn", "gather", "optimizer", "other"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    let (forward, backward) = (|n: &&&str| n.ends_with(" forward"), |n: &&&str| n.ends_with(" backward"));
    assert!(names.iter().filter(backward).count() >= 3, "{names:?}");
    assert!(names.iter().filter(forward).any(|name| name.starts_with("act: ")), "{names:?}");
    assert!(names.iter().filter(forward).any(|name| name.starts_with("learn: ")), "{names:?}");
    assert_eq!(spans.iter().filter(|span| span.name == "iteration").count(), 3);
    assert_eq!(spans.iter().filter(|span| span.name == "env").count(), 3 * 32);

    // Threads: named, and all but the main one run ops only.
    let named: BTreeMap<u64, &str> = trace["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["tid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(named[&0], "main");
    assert!(spans.iter().all(|span| named.contains_key(&span.thread) && (span.is_op || span.thread == 0)));
    assert!(named.len() == 1 || named[&1] == "operant-1", "{named:?}");

    // On each thread spans nest: one that begins within another ends within it.
    for thread in named.keys() {
        let mut own: Vec<&Span> = spans.iter().filter(|span| span.thread == *thread).collect();
        own.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
        let mut open: Vec<&Span> = Vec::new();
        for span in own {
            open.retain(|outer| outer.end > span.start);
            if let Some(outer) = open.last() {
                assert!(span.end <= outer.end, "{} outlasts {}", span.name, outer.name);
            }
            if *thread == 0 && span.name != "iteration" {
                assert_eq!(open.first().map(|outer| outer.name.as_str()), Some("iteration"), "{}", span.name);
            }
            open.push(span);
        }
    }

    // The table adds up what the trace shows.
    let table = table(&text);
    assert_eq!(table.len(), names.len() - 1, "all but the iteration: {text}");
    for (name, (ms, calls)) in table {
        let own = spans.iter().filter(|span| span.name == name);
        let sum: u64 = own.clone().map(|span| span.end - span.start).sum();
        assert_eq!(own.count() as u64, calls, "{name}");
        assert!((sum as f64 * 1e-6 - ms).abs() < 0.001, "{name}: {sum} ns in the trace, {ms} ms in the table");
    }

    // A run that is resumed can be looked at too, also where it ends before all iterations were seen.
    let settings = std::fs::read_to_string(with.join("run.toml")).unwrap();
    std::fs::write(with.join("run.toml"), settings.replace("steps = 65536\n", "steps = 90112\n")).unwrap();
    let text = operant(&["train", "--resume", with.to_str().unwrap(), "--profile", "9", "--quiet"]);
    assert!(text.contains("where the time went: 2 iterations of 9, then the run ended"), "{text}");
    assert_eq!(self::spans(&json(&with.join("trace.json"))).iter().filter(|span| span.name == "iteration").count(), 2);
}
