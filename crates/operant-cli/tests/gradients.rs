//! Gradients by tensor, from the loop to files and pages.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn operant(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_operant")).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A run of 8 iterations in a new folder.
fn train(name: &str, more: &[&str]) -> PathBuf {
    let run = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&run);
    let words = "train ppo cartpole --until steps --steps 8192 --num-envs 32 --quiet --set ppo.num_steps=32 --set \
                 ppo.minibatch_size=256 --threads 1 --run-dir";
    let words = words.split_whitespace().chain([run.to_str().unwrap()]).chain(more.iter().copied());
    operant(&words.collect::<Vec<_>>());
    run
}

fn samples(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn weights(run: &Path) -> Vec<u8> {
    let summary: Value = serde_json::from_slice(&std::fs::read(run.join("final.json")).unwrap()).unwrap();
    std::fs::read(run.join("ckpt").join(summary["checkpoint"].as_str().unwrap()).join("policy.safetensors")).unwrap()
}

#[test]
fn gradients_are_looked_at_by_stride_and_change_nothing() {
    let (by_three, none) = (
        train("stride-3", &["--set", "telemetry.gradient_stride=3"]),
        train("stride-0", &["--set", "telemetry.gradient_stride=0"]),
    );
    assert_eq!(weights(&by_three), weights(&none));
    let is_gradient = |sample: &Value| sample.as_object().unwrap().keys().any(|key| key.starts_with("gradient/"));
    assert!(!samples(&none).iter().any(is_gradient));
    let samples = samples(&by_three);
    let looked: Vec<bool> = samples.iter().map(is_gradient).collect();
    assert_eq!(looked, [true, false, false, true, false, false, true, false], "iterations 0, 3 and 6");
    for sample in samples.iter().filter(|sample| is_gradient(sample)) {
        let number =
            |name: &str| sample[format!("gradient/{name}")].as_f64().unwrap_or_else(|| panic!("{name}: {sample}"));
        let layers = ["actor.0", "actor.2", "critic.0", "critic.2"];
        for tensor in layers.map(|layer| format!("{layer}.weight")) {
            assert!(number(&format!("{tensor}/norm")) > 0.0);
            assert!((0.0..1.0).contains(&number(&format!("{tensor}/zeros"))));
            assert!((1e-9..0.5).contains(&number(&format!("{tensor}/update"))));
        }
    }
    let page = by_three.join("report.html");
    operant(&["report", by_three.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("gradient: norm") && page.contains("gradient: update"));
    let tensorboard = std::fs::read_dir(&by_three).unwrap().flatten().map(|entry| entry.path());
    let file = tensorboard.into_iter().find(|path| path.to_string_lossy().contains("tfevents")).unwrap();
    assert!(std::fs::read(file).unwrap().windows(28).any(|bytes| bytes == b"gradient/actor.0.weight/norm"));
}
