//! `operant cube2`, and `operant eval` of a run that learned values, as a user types them.

use serde_json::Value;
use std::process::{Command, Output};

fn operant(arguments: &[&str]) -> Output {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cube2");
    std::fs::create_dir_all(&folder).unwrap();
    Command::new(env!("CARGO_BIN_EXE_operant")).args(arguments).current_dir(folder).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = operant(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(arguments)).unwrap()
}

fn usage(arguments: &[&str]) -> String {
    let output = operant(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && !message.contains("panicked"), "{message}");
    message
}

#[test]
fn tables_are_written_and_solve() {
    let shown = text(&["cube2", "table", "--metric", "htm", "--out", "htm.table"]);
    assert!(shown.contains("623,800") && shown.contains("3,674,160"), "{shown}");
    let solved = text(&["cube2", "solve", "R U' F2 R2", "--metric", "htm", "--table", "htm.table"]);
    assert_eq!(solved, "R2 F2 U R'\n4 moves (htm)\n");
    let report = json(&["cube2", "solve", "R U' F2 R2", "--json"]);
    assert_eq!((report["length"].as_u64(), report["metric"].as_str()), (Some(6), Some("qtm")));
    let again = json(&["cube2", "solve", "--facelets", report["facelets"].as_str().unwrap(), "--json"]);
    assert_eq!(again, report);
    assert_eq!(text(&["cube2", "solve", "R R'"]), "solved already\n0 moves (qtm)\n");
    // L is R with the cube held otherwise.
    assert!(text(&["cube2", "solve", "L"]).ends_with("1 move (qtm)\n"));
    assert!(text(&["cube2", "solve", "R", "--net"]).contains("\x1b[30;48;2;"));
}

#[test]
fn scrambles_are_exactly_as_deep_as_asked() {
    let words = ["cube2", "scramble", "--depth", "9", "--count", "3", "--seed", "4"];
    let scrambles = text(&words);
    assert_eq!(scrambles, text(&words));
    assert_eq!(scrambles.lines().count(), 3);
    for scramble in scrambles.lines() {
        assert_eq!(json(&["cube2", "solve", scramble, "--json"])["length"], 9);
    }
}

#[test]
fn the_set_in_the_repository_is_as_deep_as_it_says() {
    let set = include_str!("../../../configs/sets/cube2.txt");
    let lines: Vec<&str> = set.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), 14 * 20);
    // One of each depth: every call searches all distances.
    for (depth, line) in lines.iter().step_by(20).enumerate() {
        assert_eq!(json(&["cube2", "solve", line, "--json"])["length"], depth + 1);
    }
}

#[test]
fn mistakes_get_a_message() {
    assert!(usage(&["cube2", "solve", "R X"]).contains("move \"X\": wanted a face"));
    assert!(usage(&["cube2", "solve", "--facelets", "UU"]).contains("2 letters, wanted 24"));
    assert!(usage(&["cube2", "table", "--metric", "qtn"]).contains("did you mean \"qtm\"?"));
    assert!(
        usage(&["cube2", "scramble", "--depth", "15"]).contains("no state is at distance 15 in qtm: wanted 0..=14")
    );
    for words in [&["cube2", "--help"][..], &["cube2", "solve", "--help"], &["cube2", "scramble", "--help"]] {
        assert!(text(words).contains("Usage:"));
    }
}

#[test]
fn a_run_is_scored_by_true_distance() {
    let _ = std::fs::remove_dir_all(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cube2/run"));
    text(&[
        "train",
        "davi",
        "cube2",
        "--run-dir",
        "run",
        "--steps",
        "100000",
        "--quiet",
        "--set",
        "network.hidden=[32,32]",
        "--set",
        "davi.batch_size=250",
        "--set",
        "davi.scramble_depth=3",
        "--set",
        "davi.view=cubies",
        "--set",
        "davi.symmetry=false",
        "--set",
        "davi.held_out=0.2",
    ]);
    let report = json(&["eval", "run", "--depth", "1..3", "--count", "50", "--json"]);
    let rows = report["by_distance"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["solve_rate"], 1.0, "one move away is always seen");
    assert!(rows.iter().all(|row| row["states"] == 50 && row["ratio_to_optimal"].as_f64().is_none_or(|x| x >= 1.0)));
    let beam = json(&["eval", "run", "--depth", "3", "--count", "20", "--search", "beam", "--width", "64", "--json"]);
    assert_eq!(beam["all"]["solve_rate"], 1.0);
    std::fs::write(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cube2/set"), "R U # two\n\nF2\n").unwrap();
    let star = json(&["eval", "run", "--scrambles", "set", "--search", "astar", "--json"]);
    assert_eq!((star["all"]["solved"].as_u64(), star["all"]["mean_length"].as_f64()), (Some(2), Some(2.0)));
    text(&["report", "run"]);
    let page = std::fs::read_to_string(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cube2/run/report.html"));
    let page = page.unwrap();
    for part in ["Solved by search", "greedy, depth 1..3", "beam 64, depth 3", "moves from solved", "astar 8, set"] {
        assert!(page.contains(part), "{part}");
    }
    let held = json(&["eval", "run", "--held-out", "--count", "10", "--json"]);
    assert_eq!(held["held_out_share"], 1.0);
    assert!(text(&["eval", "run", "--depth", "2", "--count", "5"]).contains("held out of training"));
    let plain = json(&["eval", "run", "--depth", "3", "--count", "50", "--revisits", "--json"]);
    assert!(plain["all"]["solve_rate"].as_f64() <= rows[2]["solve_rate"].as_f64() && plain["width"].is_null());
    for wrong in ["3..1", "1001", "1..99999999999999"] {
        let message = usage(&["eval", "run", "--depth", wrong]);
        assert!(message.contains("wanted a number up to 1000, a range such as 1..14, or random"), "{message}");
    }
    assert!(usage(&["eval", "run", "--revisits", "--search", "beam"]).contains("--revisits is for --search greedy"));
}

#[test]
fn a_run_of_dqn_solves_by_search() {
    let _ = std::fs::remove_dir_all(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cube2/q"));
    let train = "train dqn cube2 --run-dir q --steps 40000 --num-envs 16 --quiet --set env.scramble_depth=3 --set network.hidden=[64,64] \
        --set precision=f32 --set dqn.batch_size=128 --set dqn.replay_ratio=8 --set dqn.learning_starts=1000 --set dqn.buffer_size=20000 \
        --set dqn.curriculum.from=1 --set dqn.curriculum.to=3 --set dqn.curriculum.step=1 --set dqn.curriculum.window=100";
    text(&train.split_whitespace().collect::<Vec<_>>());
    let report = json(&["eval", "q", "--depth", "1..3", "--count", "50", "--json"]);
    let rows = report["by_distance"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["solve_rate"].as_f64() > Some(0.9)), "{report}");
    let beam = json(&["eval", "q", "--depth", "3", "--count", "20", "--search", "beam", "--width", "64", "--json"]);
    assert_eq!(beam["all"]["solve_rate"], 1.0);
    assert!(usage(&["eval", "q", "--held-out", "--count", "5"]).contains("held nothing out (dqn.held_out = 0)"));
    let quick = "train dqn cube2 --run-dir held --steps 4000 --num-envs 16 --quiet --set network.hidden=[32,32] --set precision=f32 \
        --set dqn.batch_size=64 --set dqn.learning_starts=100 --set dqn.buffer_size=4000 --set dqn.held_out=0.2";
    let _ = std::fs::remove_dir_all(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cube2/held"));
    text(&quick.split_whitespace().collect::<Vec<_>>());
    assert_eq!(json(&["eval", "held", "--held-out", "--count", "10", "--json"])["held_out_share"], 1.0);
    let share = json(&["eval", "held", "--count", "2000", "--json"])["held_out_share"].as_f64().unwrap();
    assert!((0.15..0.25).contains(&share), "{share}");
    assert!(text(&["eval", "q", "--episodes", "20"]).contains("mean return"));
}
