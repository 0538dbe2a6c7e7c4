//! `operant train alphazero`, `operant eval --against` and the benches of search, as a user types them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alphazero");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn operant(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_operant")).args(arguments).current_dir(folder()).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = operant(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(arguments)).unwrap()
}

fn failure(arguments: &[&str], code: i32) -> String {
    let output = operant(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(code) && !message.contains("panicked"), "{message}");
    message
}

const SMALL: [&str; 16] = [
    "--quiet",
    "--threads",
    "1",
    "--num-envs",
    "16",
    "--set",
    "network.hidden=[16]",
    "--set",
    "alphazero.search.simulations=16",
    "--set",
    "alphazero.search.leaves=2",
    "--set",
    "alphazero.learning_starts=200",
    "--set",
    "alphazero.batch_size=64",
    "--set",
];

fn train(run: &str, steps: &str, more: &[&str]) {
    let _ = std::fs::remove_dir_all(folder().join(run));
    let words = ["train", "alphazero", "connect4", "--run-dir", run, "--steps", steps];
    text(&[&words[..], &SMALL, &["alphazero.moves=8"], more].concat());
}

#[test]
fn a_run_goes_on_exactly_and_plays_matches() {
    train("whole", "1024", &[]);
    train("part", "512", &["--set", "alphazero.anneal_lr=false"]);
    train("whole2", "1024", &["--set", "alphazero.anneal_lr=false"]);
    text(&["train", "--resume", "part", "--steps", "1024", "--quiet"]);
    let weights = |run: &str| {
        let last = std::fs::read_dir(folder().join(run).join("ckpt")).unwrap();
        let last = last.map(|entry| entry.unwrap().path()).filter(|path| path.join("network.safetensors").exists());
        std::fs::read(last.max().unwrap().join("network.safetensors")).unwrap()
    };
    assert!(weights("part") == weights("whole2"), "a resumed run ends with the bits of one left alone");
    assert!(weights("whole") != weights("whole2"));
    let words = ["eval", "whole", "--against", "random", "--games", "20", "--json"];
    let report = json(&words);
    assert_eq!((report["games"].as_u64(), report["game"].as_str()), (Some(20), Some("connect4")));
    let sum = ["won", "drawn", "lost"].map(|key| report[key].as_f64().unwrap()).iter().sum::<f64>();
    assert!((sum - 1.0).abs() < 1e-9);
    assert_eq!(json(&words)["mean_points"], report["mean_points"], "the same seed plays the same games");
    let other = text(&["eval", "whole", "--against", "whole2", "--games", "4", "--simulations", "32"]);
    assert!(other.contains("over 4 games against whole2") && other.contains("32 simulations"), "{other}");
    let solver = json(&["eval", "whole", "--against", "solver", "--games", "2", "--opening", "18", "--json"]);
    assert_eq!(solver["games"], 2);
    assert!(failure(&["eval", "whole", "--against", "nobody here"], 2).contains("wanted random, solver or a run"));
    assert!(failure(&["eval", "whole", "--games", "0"], 2).contains("--games 0"));
}

#[test]
fn searches_are_measured() {
    for game in ["connect4", "2048", "backgammon"] {
        let report = json(&["bench", "search", "--game", game, "--simulations", "64", "--seconds", "0.3", "--json"]);
        assert!(report["simulations_per_cpu_s"].as_f64().unwrap() > 1000.0);
        assert_eq!((report["game"].as_str(), report["allocs_per_game"].as_f64()), (Some(game), Some(0.0)));
    }
    let words = ["bench", "selfplay", "connect4", "--simulations", "16", "--leaves", "2", "--games", "16"];
    let report = json(&[&words[..], &["--blocks", "1", "--count", "20", "--json"]].concat());
    assert!(
        report["games_per_cpu_min"].as_f64().unwrap() > 0.0 && report["evals_per_decision"].as_f64().unwrap() <= 17.0
    );
    // After the warm-up nothing is allocated, and every game that is counted came to its end.
    assert!(report["games_counted"].as_f64().unwrap() >= 20.0 && report["allocs_per_game"] == 0.0, "{report}");
    assert!((7.0..=42.0).contains(&report["moves_per_game"].as_f64().unwrap()), "{report}");
    assert!(failure(&["bench", "search", "--simulations", "8", "--leaves", "8"], 2).contains("an eighth of 8"));
    train("measured", "256", &[]);
    let report = json(&[&words[..], &["--model", "measured", "--count", "20", "--json"]].concat());
    assert_eq!((report["blocks"].as_u64(), report["width"].as_u64()), (Some(1), Some(16)));
    assert_eq!(report["allocs_per_game"], 0.0);
    assert!(failure(&["bench", "selfplay", "2048", "--model", "measured"], 2).contains("a network for connect4"));
    assert!(failure(&["bench", "selfplay", "2048", "--model", "nowhere"], 2).contains("no such file or folder"));
}

/// A run of td teaches one of alphazero, named by its folder; resumed in the midst of it, the run ends with the same bits.
#[test]
fn a_run_of_td_teaches() {
    for run in ["values", "taught", "cut"] {
        let _ = std::fs::remove_dir_all(folder().join(run));
    }
    let words = "train td backgammon --steps 20000 --threads 1 --num-envs 64 --run-dir values --quiet --precision f32 \
                 --set network.hidden=[8] --set td.replay=4096";
    text(&words.split_whitespace().collect::<Vec<_>>());
    let train = |run: &str, steps: &str| {
        let words = ["train", "alphazero", "backgammon", "--run-dir", run, "--steps", steps];
        let own = ["alphazero.moves=8", "--set", "alphazero.teacher=values", "--set", "alphazero.pretrain=20"];
        text(&[&words[..], &SMALL, &own, &["--set", "alphazero.anneal_lr=false"]].concat());
    };
    train("taught", "2048");
    train("cut", "768");
    // The teacher is in the checkpoint: its file may go.
    std::fs::rename(folder().join("values"), folder().join("values.gone")).unwrap();
    text(&["train", "--resume", "cut", "--steps", "2048", "--quiet"]);
    std::fs::remove_dir_all(folder().join("values.gone")).unwrap();
    let weights = |run: &str| {
        let last = std::fs::read_dir(folder().join(run).join("ckpt")).unwrap();
        let last = last.map(|entry| entry.unwrap().path()).filter(|path| path.join("network.safetensors").exists());
        std::fs::read(last.max().unwrap().join("network.safetensors")).unwrap()
    };
    assert!(weights("taught") == weights("cut"));
    let events = std::fs::read_to_string(folder().join("cut/events.jsonl")).unwrap();
    assert!(events.contains("taught by 20 batches"), "{events}");
    let words = ["train", "alphazero", "backgammon", "--run-dir", "wrong", "--set", "alphazero.teacher=values"];
    assert!(failure(&words, 2).contains("values: no such file or folder"));
    // Its value heads analyse and play, one to three rolls ahead, without a search.
    let shown = text(&["analyse", "backgammon", "--model", "taught", "--dice", "3", "1", "--plies", "2"]);
    assert!(shown.contains("X to play 3 1: 16 plays"), "{shown}");
    let shown = text(&["backgammon", "table", "--model", "taught"]);
    assert!(shown.contains("taught: chances to win are off by 0."), "{shown}");
}
