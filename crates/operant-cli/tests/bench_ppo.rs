//! `operant bench ppo`: what its JSON holds.

use serde_json::Value;
use std::process::{Command, Stdio};

fn operant(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_operant")).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_bench_of_ppo_says_in_how_long_it_solves() {
    let bench = |more: &[&str]| -> Value {
        let words = ["bench", "ppo", "probe_identity", "--num-envs", "64", "--num-steps", "16", "--json"];
        serde_json::from_str(&operant(&words.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())).unwrap()
    };
    let solved = bench(&["--seconds", "8", "--set", "ppo.learning_rate=3e-3"]);
    for key in [
        "recipe",
        "num_envs",
        "num_steps",
        "threads",
        "precision",
        "sps",
        "sps_per_cpu_s",
        "env_share",
        "collect_share",
        "learn_share",
        "allocs_per_iteration",
    ] {
        assert!(!solved[key].is_null(), "{key}: {solved}");
    }
    assert_eq!(solved["allocs_per_iteration"], 0.0, "{solved}");
    assert!((0.0..8.0).contains(&solved["solved_s"].as_f64().unwrap()), "{solved}");
    assert!(solved["solved_step"].as_u64().unwrap() >= 1024, "{solved}");
    let untried = bench(&["--seconds", "0.05", "--no-solve"]);
    assert!(untried.as_object().unwrap().contains_key("solved_s") && untried["solved_s"].is_null(), "{untried}");
}
