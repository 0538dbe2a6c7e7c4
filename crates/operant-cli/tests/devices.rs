//! Where runs live, and several seeds at once.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn operant(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_operant")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// An empty folder for a test's runs.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn the_device_is_chosen_told_and_recorded() {
    let run = folder("device").join("run");
    let words = ["train", "ppo", "gridworld", "--steps", "1e4", "--run-dir", run.to_str().unwrap()];
    let shown = text(&operant(&words));
    let line = shown.lines().next().unwrap();
    // An env of the host has no kernels, with or without a GPU.
    assert!(line.starts_with("device: cpu ("), "{line}");
    let settings = std::fs::read_to_string(run.join("run.toml")).unwrap();
    assert!(settings.contains("device = \"cpu\""), "{settings}");
    let named = folder("device-named").join("run");
    let words = ["train", "ppo", "probe_identity", "--device", "cpu", "--run-dir", named.to_str().unwrap()];
    let shown = text(&operant(&words));
    assert!(!shown.contains("device:"), "{shown}");
}

/// With a GPU it plays there; without one it says what is missing.
#[test]
fn evaluation_on_a_gpu_needs_one() {
    let run = folder("device-eval").join("run");
    text(&operant(&["train", "ppo", "probe_identity", "--run-dir", run.to_str().unwrap(), "--quiet"]));
    let output = operant(&["eval", run.to_str().unwrap(), "--episodes", "3", "--device", "cuda"]);
    let error = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => assert!(text(&output).contains("over 3 episodes")),
        code => assert!(code == Some(1) && error.contains("cuda cannot be used here"), "{error}"),
    }
}

/// With a GPU growth's hosts train there and go on on the CPU; without one it says what is missing.
#[test]
fn growth_on_a_gpu_needs_one() {
    let run = folder("device-growth").join("run");
    let small = ["epochs=6", "train_samples=64", "val_samples=64", "host=minimal", "min_epochs=1"]
        .map(|word| format!("env.{word}"));
    let small: Vec<&str> = small.iter().flat_map(|word| ["--set", word.as_str()]).collect();
    let path = run.to_str().unwrap();
    let words =
        ["train", "ppo", "growth", "--device", "cuda", "--steps", "96", "--run-dir", path, "--set", "ppo.num_steps=6"];
    let words = [&words[..], &["--set", "ppo.minibatch_size=16", "--quiet"], &small].concat();
    let output = operant(&words);
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(0) {
        return assert!(error.contains("cuda cannot be used here"), "{error}");
    }
    let settings = std::fs::read_to_string(run.join("run.toml")).unwrap();
    assert!(settings.contains("device = \"cuda\""), "{settings}");
    text(&operant(&["train", "--resume", path, "--device", "cpu", "--steps", "192", "--quiet"]));
    text(&operant(&["train", "--resume", path, "--device", "cuda", "--steps", "288", "--quiet"]));
    for verb in [&["heuristic"][..], &["host"], &["policy", path]] {
        let words = [&["grow"][..], verb, &["--device", "cuda", "--episodes", "3", "--json"], &small].concat();
        let report: Value = serde_json::from_str(&text(&operant(&words))).unwrap();
        assert_eq!(report["episodes"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn networks_that_are_not_timed_on_a_gpu_say_so() {
    for net in ["conv", "lstm", "resnet"] {
        let output = operant(&["bench", "nn", "--net", net, "--device", "cuda", "--json"]);
        let error = String::from_utf8_lossy(&output.stderr);
        let named = error.contains(&format!("--net {net}: networks of layers alone are timed on a GPU"));
        let without = error.contains("cuda cannot be used here");
        assert!(!output.status.success() && (named || without), "{error}");
    }
}

#[test]
fn seeds_are_trained_one_after_another_and_summed_up() {
    let folder = folder("seeds");
    let words = ["train", "ppo", "probe_identity", "--seeds", "3", "--seed", "5", "--device", "cpu", "--run-dir"];
    let words: Vec<&str> = words.into_iter().chain([folder.to_str().unwrap()]).collect();
    let shown = text(&operant(&words));
    assert!(shown.contains("seed 5: solved") && shown.contains("3 of 3 seeds solved"), "{shown}");
    for seed in 5..8 {
        let settings = std::fs::read_to_string(folder.join(format!("seed-{seed}/run.toml"))).unwrap();
        assert!(settings.contains(&format!("seed = {seed}\n")), "{settings}");
    }
    let again = folder.join("again");
    let words = ["train", "ppo", "probe_identity", "--seeds", "2", "--device", "cpu", "--json", "--run-dir"];
    let words: Vec<&str> = words.into_iter().chain([again.to_str().unwrap()]).collect();
    let summary: Value = serde_json::from_str(&text(&operant(&words))).unwrap();
    assert_eq!((summary["runs"].as_array().unwrap().len(), &summary["solved"]), (2, &Value::from(2)));
    assert!(summary["eval_return"]["mean"].is_f64() && summary["eval_return"]["standard_error"].is_f64(), "{summary}");
    // One seed of several is the run that it is alone.
    let alone = folder.join("alone");
    text(&operant(&[
        "train",
        "ppo",
        "probe_identity",
        "--seed",
        "2",
        "--device",
        "cpu",
        "--quiet",
        "--run-dir",
        alone.to_str().unwrap(),
    ]));
    let weights = |run: &Path| {
        let summary: Value = serde_json::from_slice(&std::fs::read(run.join("final.json")).unwrap()).unwrap();
        std::fs::read(run.join("ckpt").join(summary["checkpoint"].as_str().unwrap()).join("policy.safetensors"))
            .unwrap()
    };
    assert!(weights(&alone) == weights(&again.join("seed-2")));
}
