//! The command as a user types it: the README's commands word for word, JSON keys, messages and exit codes.

use serde_json::Value;
use std::process::{Command, Output};

fn operant(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_operant")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(&operant(arguments))).unwrap()
}

/// Exit code and message of a command that must fail, without a panic.
fn failure(arguments: &[&str]) -> (i32, String) {
    let output = operant(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty() && !message.contains("panicked"), "{message}");
    (output.status.code().unwrap(), message)
}

/// The words of a command line, of which some are in double quotes.
fn shell_words(line: &str) -> Vec<&str> {
    let parts = line.split('"').enumerate();
    parts.flat_map(|(i, part)| if i % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }).collect()
}

#[test]
fn readme_commands_work_as_written() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let commands: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("cargo run --release -- ").or_else(|| line.strip_prefix("operant ")))
        .collect();
    assert!(commands.contains(&"train ppo cartpole"), "the README shows the main command");
    // Runs are kept below the current folder.
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for command in commands {
        let words = shell_words(command.split('#').next().unwrap());
        // A test has no two seconds to spare for each; everything else is as written.
        let quick: &[&str] = match words[..] {
            ["bench", "nn", ..] if !words.contains(&"--batch") => &["--seconds", "0.05", "--batch", "8"],
            ["bench", ..] => &["--seconds", "0.05"],
            _ => &[],
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_operant"));
        text(&command.args([&words[..], quick].concat()).current_dir(&folder).output().unwrap());
    }
    assert!(readme.contains("cargo xtask test"), "the README shows the test command");
}

#[test]
fn bench_nn_measures_every_network() {
    for net in ["mlp", "resnet", "dueling", "conv", "field", "lstm", "attention"] {
        // A field of 128 by 128 is a thousand times the work of the others.
        let (precisions, batch): (&[&str], _) = if net == "field" { (&["auto"], 1) } else { (&["f32", "auto"], 2) };
        for precision in precisions {
            let words = format!("bench nn --net {net} --precision {precision} --batch {batch} --seconds 0.01 --json");
            let report = json(&words.split(' ').collect::<Vec<_>>());
            assert_eq!(report["net"], net);
            assert_eq!(report["batch"], batch);
            assert_eq!(report["threads"], 1);
            assert_eq!(report["allocs"], 0, "{net}");
            for key in ["forward_gflops", "train_gflops", "workspace_bytes", "peak_gflops"] {
                assert!(report[key].as_f64().unwrap() > 0.0, "{net}: {key}");
            }
            assert!(["f32", "bf16"].contains(&report["precision"].as_str().unwrap()));
        }
    }
    let report = json(&["bench", "nn", "--batch", "4", "--seconds", "0.01", "--plan", "--json"]);
    assert!(report["plan"].as_str().unwrap().starts_with("training plan: up to 4 rows"), "{report}");
}

#[test]
fn bench_nn_compares_numbers_of_threads() {
    let words = "bench nn --net mlp --batch 256 --threads 1,2 --seconds 0.02".split(' ').collect::<Vec<_>>();
    let report = json(&[&words[..], &["--json"]].concat());
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["threads"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    for pass in ["forward", "train", "apart"] {
        assert_eq!(runs[0][format!("{pass}_ratio")], 1.0, "{report}");
        for key in ["us", "ratio", "ratio_median"].map(|key| format!("{pass}_{key}")) {
            assert!(runs.iter().all(|run| run[&key].as_f64().unwrap() > 0.0), "{key} in {report}");
        }
    }
    let shown = text(&operant(&words));
    assert!(shown.contains("a copy for each thread") && shown.contains("rounds in turn"), "{shown}");
}

#[test]
fn bench_reports_its_conditions() {
    let report = json(&[
        "bench",
        "env",
        "CartPole-v1",
        "--num-envs",
        "256",
        "--threads",
        "2",
        "--lanes",
        "8",
        "--seconds",
        "0.05",
        "--json",
    ]);
    for key in ["env", "num_envs", "threads", "lanes", "steps_per_s", "steps_per_cpu_s", "allocs_per_step", "machine"] {
        assert!(!report[key].is_null(), "{key} in {report}");
    }
    assert_eq!(report["env"], "cartpole");
    assert_eq!((report["lanes"].as_u64(), report["threads"].as_u64()), (Some(8), Some(2)));
    assert_eq!(report["allocs_per_step"], 0.0);
    assert!(report["steps_per_s"].as_f64().unwrap() > 1e5);
    let shown = text(&operant(&["bench", "env", "gridworld", "--num-envs", "16", "--seconds", "0.05"]));
    assert!(shown.contains("steps/CPU-s") && shown.contains("machine"), "{shown}");
}

#[test]
fn every_env_can_be_listed_and_measured() {
    let all = json(&["list", "--json"]);
    let envs = all["environments"].as_array().unwrap();
    assert!(envs.len() >= 11);
    let table = text(&operant(&["list"]));
    for env in envs {
        let (name, id) = (env["name"].as_str().unwrap(), env["id"].as_str().unwrap());
        assert!(table.contains(name) && table.contains(id));
        assert_eq!(&json(&["list", id, "--json"]), env);
        assert!(text(&operant(&["list", name])).contains(env["reference"].as_str().unwrap()));
        // A step of growth is an epoch of training.
        let num_envs = if name == "growth" { "1" } else { "33" };
        assert!(
            json(&["bench", "env", name, "--num-envs", num_envs, "--seconds", "0.01", "--json"])["steps_per_s"]
                .is_number()
        );
    }
    let cartpole = text(&operant(&["list", "cartpole"]));
    for part in ["gravity", "9.8 m/s²", "time limit: 500", "solved at: 475", "Gymnasium CartPoleEnv", "-4.8 .. 4.8"] {
        assert!(cartpole.contains(part), "{part} in {cartpole}");
    }
}

#[test]
fn mistakes_get_a_message_and_exit_code_2() {
    let cases: [(&[&str], &str); 21] = [
        (&["bench", "env", "cartpol"], "unknown env \"cartpol\"; did you mean \"cartpole\"? (operant list)"),
        (&["list", "Pendlum-v1"], "did you mean \"Pendulum-v1\"?"),
        (&["bench", "env", "cartpole", "--num-envs", "0"], "num_envs = 0: wanted 1..="),
        (
            &["bench", "growth", "--device", "cpu"],
            "--device cpu: wanted cuda or cuda:i; on a CPU take operant grow speed",
        ),
        (&["bench", "growth", "--seeds", "4"], "--seeds of at most 3"),
        (&["bench", "growth", "--controller", "lst"], "did you mean \"lstm\"?"),
        (&["grow", "host", "--device", "cud"], "did you mean \"cuda\"?"),
        (&["bench", "env", "cartpole", "--set", "gravty=1"], "did you mean \"gravity\"?"),
        (
            &["bench", "env", "cartpole", "--set", "gravity=nan"],
            "parameter gravity = NaN: wanted a number in 0..=1000 m/s²",
        ),
        (&["bench", "env", "cartpole", "--set", "gravity"], "wanted NAME=VALUE"),
        (&["bench", "env", "cartpole", "--seconds", "-1"], "--seconds -1: wanted more than 0"),
        (&["bench", "env", "cartpole", "--threads", "0"], "--threads 0: wanted 1..=1024"),
        (&["bench", "env", "cartpole", "--lanes", "4"], "auto, 1, 8, 16"),
        (&["bench", "nn", "--precision", "bf61"], "unknown precision \"bf61\"; did you mean \"bf16\"?"),
        (&["bench", "nn", "--batch", "0"], "--batch 0: wanted 1..="),
        (&["bench", "nn", "--net", "lstm", "--hidden", "32"], "--hidden for --net lstm: only mlp has sizes to choose"),
        (&["bench", "nn", "--tile-rows", "0"], "--tile-rows 0: wanted at least 1"),
        (&["bench", "nn", "--backend", "avx3"], "unknown instruction set"),
        (&["bench", "nn", "--threads", "0"], "--threads 0: wanted 1..=1024"),
        (&["bench", "nn", "--device", "cuda", "--plan"], "--plan on a GPU: wanted --device cpu"),
        (&["bench", "nn", "--threads", "1,2", "--plan"], "--plan with several numbers of threads: wanted one"),
    ];
    for (arguments, wanted) in cases {
        let (code, message) = failure(arguments);
        assert!(code == 2 && message.contains(wanted), "{arguments:?} gave {code}: {message}");
    }
}

#[test]
fn doctor_says_what_is_missing_and_a_gpu_that_cannot_be_used_fails_alike() {
    let report = json(&["doctor", "--json"]);
    let shown = text(&operant(&["doctor"]));
    let usable = report["usable"].as_bool().unwrap();
    assert!(shown.starts_with(if usable { "cuda: can be used" } else { "cuda: cannot be used here" }), "{shown}");
    for name in ["driver", "NVRTC", "cuBLASLt", "cuDNN", "kept in"] {
        assert!(shown.contains(name), "{name} in {shown}");
    }
    for problem in report["problems"].as_array().unwrap() {
        assert!(shown.contains(problem.as_str().unwrap()), "{shown}");
    }
    let gpus = report["gpus"].as_array().unwrap().len();
    let missing = format!("cuda:{}", gpus + 7);
    let train = ["train", "ppo", "cartpole", "--device", &missing];
    for words in [&["bench", "env", "cartpole", "--device", &missing][..], &train] {
        let (code, message) = failure(words);
        assert!(
            code == 1 && message.contains("cuda cannot be used here") && message.contains("(operant doctor)"),
            "{message}"
        );
        let first = report["problems"][0].as_str();
        assert!(first.is_none_or(|problem| message.contains(problem)) || gpus > 0, "{message}");
    }
    let (code, message) = failure(&["bench", "env", "cartpole", "--device", "cud"]);
    assert!(code == 2 && message.contains("unknown device \"cud\"; did you mean \"cuda\"?"), "{message}");
}

/// What does not fit is refused before it is asked for, whatever asks: an allocation that fails ends the process.
#[test]
#[cfg(target_os = "linux")]
fn what_does_not_fit_in_memory_is_refused() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (words, next) in [
        ("train ppo cartpole --num-envs 16000000", "lower num_envs"),
        ("train ppo gridworld --num-envs 16000000", "lower num_envs"),
        ("train ppo growth --num-envs 100000", "lower num_envs"),
        ("train ppo cartpole --num-envs 1024 --set ppo.num_steps=1000000", "lower one of them"),
        ("train ppo cartpole --set network.hidden=[60000,60000]", "make it smaller"),
        ("train dqn cartpole --num-envs 16000000 --set dqn.buffer_size=32000000", "lower num_envs"),
        ("train dqn cartpole --set dqn.buffer_size=200000000", "lower it"),
        ("train davi cube2 --num-envs 16000000", "lower num_envs"),
        ("train td backgammon --num-envs 1000000", "lower num_envs"),
        ("train alphazero connect4 --num-envs 1000000", "lower num_envs"),
        ("train alphazero connect4 --set alphazero.window=16000000", "lower alphazero.window"),
        ("bench env cartpole --num-envs 16000000", "lower num_envs"),
        ("bench env gridworld --num-envs 16000000", "lower num_envs"),
        ("collect field --count 2 --set realisations=4096 --set steps=1000000", "lower realisations"),
        (
            "collect field --count 2 --set trajectories=f32 --set realisations=200 --set steps=5000",
            "lower realisations",
        ),
    ] {
        let program = env!("CARGO_BIN_EXE_operant");
        let device = if words.starts_with("train") { "--device cpu --threads 2 --quiet" } else { "" };
        let line = format!("ulimit -v 1000000; ulimit -c 0; exec {program} {words} {device}");
        let output = Command::new("sh").args(["-c", &line]).current_dir(&folder).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{words}: {:?} {error}", output.status);
        assert!(error.contains(" takes ") && error.contains("(ulimit -v)") && error.contains(next), "{words}: {error}");
    }
    assert!(!folder.join("runs").exists(), "a folder of a run that never began");
}

/// Where memory ends on the way, the process says so: no abort, no backtrace.
#[test]
#[cfg(target_os = "linux")]
fn a_process_without_memory_ends_with_a_message() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory-ends");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let mut refused = 0;
    for (limit, words) in [
        (450_000, "alphazero 2048 --steps 64"),
        (450_000, "alphazero backgammon --steps 64"),
        (200_000, "td backgammon --steps 500"),
        (400_000, "dqn cube2 --steps 1500"),
    ] {
        let program = env!("CARGO_BIN_EXE_operant");
        let line = format!("ulimit -v {limit}; ulimit -c 0; exec {program} train {words} --threads 1 --quiet");
        let output = Command::new("sh").args(["-c", &line]).current_dir(&folder).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(0..=2)), "{words}: {:?} {error}", output.status);
        assert!(!error.contains("backtrace"), "{words}: {error}");
        assert!(
            output.status.success() || error.contains("out of memory") || error.contains(" takes "),
            "{words}: {error}"
        );
        refused += usize::from(!output.status.success());
    }
    assert!(refused > 0, "no limit was low enough");
}

#[test]
fn help_is_there_for_every_verb() {
    for arguments in
        [&["--help"][..], &["bench", "--help"], &["bench", "env", "--help"], &["list", "--help"], &["doctor", "--help"]]
    {
        assert!(text(&operant(arguments)).contains("Usage:"));
    }
    assert!(text(&operant(&["--version"])).starts_with("operant "));
}
