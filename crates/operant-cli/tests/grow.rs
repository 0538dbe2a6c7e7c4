//! `operant grow` and runs of growth, as a user types them.

use operant::nn::grow::Blueprint;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn operant(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_operant")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = operant(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// Settings with which an epoch takes about a millisecond.
const SMALL: &[&str] = &[
    "--set",
    "env.host=minimal",
    "--set",
    "env.epochs=20",
    "--set",
    "env.train_samples=64",
    "--set",
    "env.val_samples=64",
    "--set",
    "env.min_epochs=1",
];

#[test]
fn the_heuristic_repeats_with_its_seed() {
    let play = |controller: &str, seed: &str| {
        json(&[&["grow", controller, "--episodes", "2", "--seed", seed, "--json"], SMALL].concat())
    };
    let without_time = |mut report: Value| {
        for episode in report["episodes"].as_array_mut().unwrap() {
            episode["cpu_s"] = Value::Null;
        }
        report
    };
    let first = without_time(play("heuristic", "3"));
    assert_eq!(first, without_time(play("heuristic", "3")));
    assert_ne!(first["mean_accuracy"], play("heuristic", "4")["mean_accuracy"]);
    let episode = &first["episodes"][0];
    assert_eq!(episode["epochs"], 20);
    assert!(!episode["events"].as_array().unwrap().is_empty());
    let alone = play("host", "3");
    assert_eq!((&alone["mean_seed_parameters"], &alone["mean_fossils"]), (&0.0.into(), &0.0.into()));
    assert_eq!(alone["episodes"][0]["events"].as_array().unwrap().len(), 0);
}

#[test]
fn a_controller_trains_tells_its_events_and_can_be_played() {
    let run = folder("growth-run");
    let path = run.to_str().unwrap();
    let words = ["train", "ppo", "growth", "--steps", "640", "--threads", "1", "--json", "--run-dir", path];
    let small = [SMALL, &["--set", "ppo.num_steps=20", "--set", "ppo.minibatch_size=80"]].concat();
    let summary = json(&[&words[..], &small].concat());
    assert_eq!(summary["steps"], 640);
    let settings = std::fs::read_to_string(run.join("run.toml")).unwrap();
    assert!(settings.contains("host = \"minimal\""), "choices are kept by name: {settings}");
    let events = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    let kinds: Vec<String> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().unwrap().to_owned())
        .collect();
    // 640 steps are 32 episodes of 20 epochs.
    assert_eq!(kinds.iter().filter(|kind| *kind == "outcome").count(), 32);
    assert!(kinds.iter().any(|kind| kind == "lifecycle"), "{kinds:?}");
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let last: Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    for name in ["entropy/op", "entropy/slot", "reward/gain", "op/wait", "slot/0/alpha", "outcome/accuracy"] {
        assert!(last[name].is_f64(), "{name}: {last}");
    }
    assert!(last["entropy/op"].as_f64().unwrap() <= 6f64.ln());
    tables_can_be_asked(path, &events);
    let played = json(&["grow", "policy", path, "--episodes", "2", "--json"]);
    assert_eq!(played["episodes"].as_array().unwrap().len(), 2);
    let other = operant(&["grow", "policy", path, "--set", "env.host=deep"]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("leave env.host as it was"));
}

/// SQL over the run's tables gives what its files hold.
fn tables_can_be_asked(path: &str, events: &str) {
    let ask = |sql: &str| json(&["query", path, sql, "--json"]);
    let one = |sql: &str| ask(sql)[0]["x"].clone();
    assert_eq!(one("select count(*) as x from events"), events.lines().count());
    assert_eq!(one("select max(step) as x from metrics"), 640);
    assert_eq!(one("select value as x from settings where key = 'env.host'"), "minimal");
    assert_eq!(one("select count(*) as x from outcomes"), 32);
    assert_eq!(
        one("select (select count(*) from changes) - (select count(*) from events where kind = 'lifecycle') as x"),
        0
    );
    assert_eq!(one("select max(length) as x from episodes"), 20);
    let mean = one("select avg(\"outcome/accuracy\") as x from metrics").as_f64().unwrap();
    let told = one("select avg(accuracy) as x from outcomes").as_f64().unwrap();
    assert!((mean - told).abs() < 0.1, "{mean} and {told}");
    let text = |words: &[&str]| String::from_utf8(operant(words).stdout).unwrap();
    let sql = "select 'a, b' as word, 1.5 as number, null as empty";
    assert_eq!(text(&["query", path, sql, "--csv"]), "word,number,empty\n\"a, b\",1.5,\n");
    assert_eq!(text(&["query", path, sql]), "word  number  empty\na, b     1.5\n");
    assert!(text(&["query", path]).contains("events: step, time, kind, severity, topic, text\n"));
    let message = |sql: &str| String::from_utf8(operant(&["query", path, sql]).stderr).unwrap();
    assert!(message("select * from metric").contains("did you mean \"metrics\"?"));
    let slip = message("select \"loss/polcy\" from metrics");
    assert!(slip.contains("did you mean \"loss/policy\"?"), "{slip}");
    assert!(message("select gain from metrics").contains("\"reward/gain\""));
    let file = folder("growth-tables").with_extension("parquet");
    let rows = text(&["query", path, "select * from events", "--parquet", file.to_str().unwrap()]);
    assert!(rows.ends_with(&format!(": {} rows\n", events.lines().count())), "{rows}");
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let nowhere = operant(&["query", path, "select 1", "--parquet", "/nowhere/x.parquet"]);
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("name a file that you may write with --parquet"));
    assert!(message("delete from metrics").contains("selects nothing"));
    assert!(message("select 1; select 2").contains("ultiple statements"));
}

#[test]
fn mistakes_are_named() {
    let message = |words: &[&str]| {
        let output = operant(words);
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let host = message(&["grow", "host", "--set", "env.host=basline"]);
    assert!(host.contains("did you mean \"baseline\"?"), "{host}");
    assert!(message(&["grow", "host", "--set", "epochs=3"]).contains("env.epochs"));
    assert!(message(&["grow", "host", "--episodes", "0"]).contains("at least 1"));
    let missing = folder("no-cifar");
    let words = ["--set", "env.task=cifar10", "--set", "env.side=32", "--task-data", missing.to_str().unwrap()];
    for verb in [&["grow", "host"][..], &["train", "ppo", "growth", "--json"]] {
        let text = message(&[verb, &words].concat());
        assert!(text.contains("data_batch_1.bin") && text.contains("cifar10_synthetic"), "{text}");
    }
    // Images from files have the size that they have, whatever the size of drawn ones is.
    let text = message(&["grow", "host", "--set", "env.task=cifar10", "--task-data", missing.to_str().unwrap()]);
    assert!(text.contains("data_batch_1.bin"), "{text}");
    for verb in [&["grow", "host"][..], &["train", "ppo", "growth", "--json"], &["train", "ppo", "cartpole"]] {
        let text = message(&[verb, &["--task-data", "nowhere"]].concat());
        assert!(text.contains("--task-data names files of growth's tasks cifar10 and bytes"), "{text}");
    }
}

/// The settings that come along start.
#[test]
fn presets_of_growth_start() {
    let preset = |name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../configs/growth").join(name);
    let recurrent = preset("recurrent.toml");
    let words = ["train", "--config", recurrent.to_str().unwrap(), "--dry-run", "--device", "cpu", "--threads", "1"];
    let dry = operant(&words);
    assert!(dry.status.success(), "{}", String::from_utf8_lossy(&dry.stderr));
    let cifar = preset("cifar10.toml");
    let missing = folder("no-cifar");
    let words =
        ["train", "--config", cifar.to_str().unwrap(), "--device", "cpu", "--task-data", missing.to_str().unwrap()];
    let refused = operant(&words);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("data_batch_1.bin"));
}

/// A text of sentences with little in them.
fn sentences(count: usize) -> String {
    let words = ["host", "seed", "window", "letter", "river"];
    (0..count).map(|i| format!("the {} reads the {}. ", words[i % 5], words[i / 5 % 5])).collect()
}

/// The settings of a controller prefer what their comment says.
#[test]
fn the_settings_of_a_controller_name_its_heads() {
    let preset = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../configs/growth/controller.toml");
    let dry = operant(&["train", "ppo", "growth", "--config", preset.to_str().unwrap(), "--dry-run"]);
    assert!(dry.status.success(), "{}", String::from_utf8_lossy(&dry.stderr));
    let text = String::from_utf8(dry.stdout).unwrap();
    let list = text.lines().find_map(|line| line.strip_prefix("first_logits = [")).unwrap().trim_end_matches(']');
    let logits: Vec<f64> = list.split(", ").map(|logit| logit.parse().unwrap()).collect();
    let (_, name) = Blueprint::ALL[logits.iter().rposition(|logit| *logit == 2.0).unwrap() - 6 - 3];
    assert_eq!((logits.len(), name), (6 + 3 + Blueprint::ALL.len() + 10, "conv_heavy"));
}

const BYTES: &[&str] = &["--set", "env.task=bytes", "--set", "env.host=transformer"];

#[test]
fn text_is_learned_from_a_file_or_a_folder() {
    let data = folder("texts");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("a.txt"), sentences(300)).unwrap();
    std::fs::write(data.join("b.bin"), [0xff, 0xfe, 0x80]).unwrap();
    let preset = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../configs/growth/bytes.toml");
    let preset = preset.to_str().unwrap();
    let play = |data: &str| {
        let words = ["grow", "host", "--config", preset, "--set", "env.epochs=3", "--json", "--task-data", data];
        json(&[&words[..], &["--set", "env.context=16"]].concat())
    };
    let (from_folder, from_file) = (play(data.to_str().unwrap()), play(data.join("a.txt").to_str().unwrap()));
    assert_eq!(from_folder["mean_accuracy"], from_file["mean_accuracy"], "what is no text is passed over");
    assert!(from_file["episodes"][0]["loss"].as_f64().unwrap() < 256f64.ln());
    let run = folder("text-run");
    let text = data.join("a.txt");
    let words = ["train", "--config", preset, "--steps", "32", "--task-data", text.to_str().unwrap(), "--json"];
    // The evaluation at a run's end plays a hundred episodes.
    let sizes = ["env.context=8", "env.train_samples=16", "env.val_samples=8", "env.epochs=2", "ppo.num_steps=4"];
    let small: Vec<&str> = sizes.iter().flat_map(|size| ["--set", size]).collect();
    let tiny = ["--set", "ppo.minibatch_size=8", "--run-dir", run.to_str().unwrap()];
    assert_eq!(json(&[&words[..], &small, &tiny].concat())["steps"], 32);
    let asked = json(&["query", run.to_str().unwrap(), "select count(*) as x from outcomes", "--json"]);
    assert_eq!(asked[0]["x"], 16);
    // The run knows where its text lies; another text is refused, and one that has moved can be named.
    let other = data.join("other.txt");
    std::fs::write(&other, sentences(301)).unwrap();
    let run = run.to_str().unwrap();
    assert_eq!(json(&["eval", run, "--episodes", "1", "--json"])["episodes"], 1);
    let compared = json(&["compare", run, run, "--json"]);
    assert!(
        compared["results"][0]["accuracy grown, of at most 100 last"].as_f64().is_some_and(|x| x >= 0.0),
        "{compared}"
    );
    let message = |words: &[&str]| {
        let output = operant(words);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let resume =
        |text: &str| ["train", "--resume", run, "--steps", "48", "--json", "--task-data", text].map(str::to_owned);
    let with = |text: &str| resume(text).to_vec();
    let words = with(other.to_str().unwrap());
    let refused = message(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(refused.contains("trained on other data") && refused.contains("--task-data"), "{refused}");
    let moved = data.join("moved.txt");
    std::fs::rename(&text, &moved).unwrap();
    assert!(message(&["eval", run, "--episodes", "1"]).contains("can't read text"));
    assert_eq!(
        json(&["eval", run, "--episodes", "1", "--json", "--task-data", moved.to_str().unwrap()])["episodes"],
        1
    );
    let words = with(moved.to_str().unwrap());
    assert_eq!(json(&words.iter().map(String::as_str).collect::<Vec<_>>())["steps"], 48);
}

#[test]
fn texts_that_are_missing_or_too_short_are_named() {
    let message = |words: &[&str]| {
        let output = operant(&[&["grow", "host"], words].concat());
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let data = folder("short-texts");
    let place = data.to_str().unwrap();
    let with = |words: &[&'static str]| [words, BYTES, &["--task-data", place]].concat();
    let missing = message(&with(&[]));
    assert!(missing.contains("can't read text") && missing.contains("--task-data or OPERANT_TASK_DATA"), "{missing}");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("b.bin"), [0xff, 0xfe, 0x80]).unwrap();
    assert!(message(&with(&[])).contains("holds no text (files of UTF-8 in a folder)"));
    std::fs::write(data.join("a.txt"), "too short").unwrap();
    let short = message(&with(&[]));
    assert!(short.contains("a text of 9 bytes: wanted at least") && short.contains("env.train_samples"), "{short}");
    let host = message(&["--set", "env.task=bytes", "--task-data", place]);
    assert!(host.contains("host = minimal: task bytes is of text") && host.contains("(transformer)"), "{host}");
    let preset = message(&["--config", "nowhere.toml"]);
    assert!(preset.contains("can't read settings from nowhere.toml"), "{preset}");
}

#[test]
fn speed_is_measured() {
    let report = json(&["grow", "speed", "--side", "8", "--batch", "16", "--seconds", "0.02", "--json"]);
    assert!(report["train_samples_per_s"].as_f64().unwrap() > 0.0 && report["host"] == "baseline");
    let words = ["grow", "speed", "--host", "transformer", "--side", "16", "--batch", "4", "--seconds", "0.02"];
    let text = String::from_utf8(operant(&words).stdout).unwrap();
    assert!(text.starts_with("transformer at 16 bytes, minibatches of 4"), "{text}");
}
