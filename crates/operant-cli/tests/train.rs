//! Runs as a user starts, stops, kills and resumes them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_operant"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn operant(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn failure(arguments: &[&str]) -> (i32, String) {
    let output = operant(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!message.contains("panicked"), "{message}");
    (output.status.code().unwrap(), message)
}

/// An empty folder for a test's runs.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn final_json(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("final.json")).unwrap()).unwrap()
}

/// Bytes of a part of the last checkpoint.
fn last_part(run: &Path, part: &str) -> Vec<u8> {
    let name = final_json(run)["checkpoint"].as_str().unwrap().to_owned();
    std::fs::read(run.join("ckpt").join(name).join(part)).unwrap()
}

#[test]
fn runs_that_start_at_once_take_folders_of_their_own() {
    let folder = folder("at_once");
    let words = "train ppo cartpole --steps 2000 --until steps --device cpu --threads 1 --quiet";
    let start = || command(&words.split(' ').collect::<Vec<_>>()).current_dir(&folder).spawn().unwrap();
    let runs: Vec<_> = (0..4).map(|_| start()).collect();
    assert!(runs.into_iter().all(|mut run| run.wait().unwrap().success()));
    (1..=4).for_each(|number| drop(final_json(&folder.join(format!("runs/ppo-cartpole-1-{number}")))));
    // A run that can't start leaves none.
    let wrong = command(&["train", "ppo", "cartpole", "--set", "ppo.minibatch_size=7"]).current_dir(&folder).output();
    assert_eq!(wrong.unwrap().status.code(), Some(2));
    assert_eq!(std::fs::read_dir(folder.join("runs")).unwrap().count(), 4);
}

/// Nowhere to tell what device was chosen is no reason not to train.
#[cfg(target_os = "linux")]
#[test]
fn a_full_output_costs_no_run() {
    let run = folder("full").join("a");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let words = ["train", "ppo", "cartpole", "--steps", "2000", "--until", "steps", "--run-dir", run.to_str().unwrap()];
    command(&words).stdout(full).status().unwrap();
    assert!(final_json(&run)["steps"].as_u64().unwrap() >= 2000);
}

#[test]
fn cartpole_from_start_to_solved() {
    let folder = folder("solved");
    let run = folder.join("a");
    let shown = text(&operant(&["train", "ppo", "cartpole", "--run-dir", run.to_str().unwrap()]));
    assert!(shown.contains("solved: mean return ") && shown.contains("over 100 episodes of evaluation at"), "{shown}");
    assert!(shown.contains(&format!("run: {}", run.display())) && shown.contains("next: operant eval"), "{shown}");
    let summary = final_json(&run);
    assert_eq!(summary["solved"], true);
    for key in
        ["solved_step", "solved_s", "steps", "wall_s", "train_sps", "sps_per_cpu_s", "mean_return", "eval_return"]
    {
        assert!(summary[key].as_f64().unwrap() > 0.0, "{key}: {summary}");
    }
    // The evaluation that solved it is that of the weights which the run ends with.
    assert!(summary["solved_return"].as_f64().unwrap() >= 475.0);
    assert_eq!(
        (&summary["solved_return"], &summary["solved_evaluated"]),
        (&summary["eval_return"], &Value::from(true))
    );
    assert!(summary["eval_error"].as_f64().unwrap() >= 0.0 && summary["eval_steps"].as_u64().unwrap() > 0);
    let same = ["eval", run.to_str().unwrap(), "--deterministic", "--seed", "1", "--json"];
    let same: Value = serde_json::from_str(&text(&operant(&same))).unwrap();
    assert_eq!(same["mean_return"], summary["eval_return"], "operant eval plays the same episodes");
    for file in ["run.toml", "metrics.jsonl", "events.jsonl", "live.ring"] {
        assert!(run.join(file).exists(), "{file}");
    }
    let events = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    for kind in ["started", "solved", "checkpoint", "finished"] {
        assert!(events.contains(&format!("\"{kind}\"")), "{kind}: {events}");
    }
    // The resolved settings repeat the run to the bit.
    let again = folder.join("b");
    let settings = run.join("run.toml");
    text(&operant(&["train", "--config", settings.to_str().unwrap(), "--run-dir", again.to_str().unwrap(), "--quiet"]));
    assert_eq!(last_part(&run, "policy.safetensors"), last_part(&again, "policy.safetensors"));
    // The policy plays.
    let played = text(&operant(&["eval", run.to_str().unwrap(), "--episodes", "20", "--deterministic", "--json"]));
    let played: Value = serde_json::from_str(&played).unwrap();
    assert!(played["mean_return"].as_f64().unwrap() > 400.0, "{played}");
    assert_eq!(played["returns"].as_array().unwrap().len(), 20);
    let picture = folder.join("a.gif");
    let words = ["eval", run.to_str().unwrap(), "--episodes", "1", "--render", picture.to_str().unwrap()];
    text(&operant(&words));
    assert_eq!(&std::fs::read(&picture).unwrap()[..6], b"GIF89a");
    let (code, message) = failure(&["train", "ppo", "cartpole", "--run-dir", run.to_str().unwrap()]);
    assert!(code == 2 && message.contains("holds a run already"), "{message}");
}

/// Words of a run that takes a while and saves after every iteration.
fn long_run(run: &Path) -> Vec<String> {
    let words = [
        "train",
        "ppo",
        "cartpole",
        "--until",
        "steps",
        "--steps",
        "20000",
        "--seed",
        "5",
        "--set",
        "checkpoint.every=2",
        "--quiet",
        "--run-dir",
    ];
    words.iter().map(|word| (*word).to_owned()).chain([run.to_str().unwrap().to_owned()]).collect()
}

/// Killed at many moments, a run always goes on from a whole checkpoint, and ends with the bits of one left alone.
#[test]
fn killed_runs_resume_exactly() {
    let folder = folder("killed");
    let (whole, killed) = (folder.join("whole"), folder.join("killed"));
    let words = long_run(&whole);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    text(&operant(&words));
    let words = long_run(&killed);
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut kills = 0;
    for attempt in 0..40 {
        let mut child = command(&words).stdout(Stdio::null()).spawn().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs_f64(0.02 * 1.25_f64.powi(attempt));
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if std::time::Instant::now() > deadline => break None,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        match ended {
            Some(status) if status.success() => break,
            Some(status) => {
                // Killed before its first checkpoint there is nothing to resume.
                let has_checkpoint = killed.join("ckpt").read_dir().is_ok_and(|mut entries| entries.next().is_some());
                assert!(!has_checkpoint, "{status:?}");
            }
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
            }
        }
        let listed = killed.join("ckpt").read_dir().into_iter().flatten().flatten();
        let whole = listed.filter(|entry| !entry.file_name().to_string_lossy().ends_with(".part")).count();
        words = if whole > 0 {
            vec!["train", "--resume", killed.to_str().unwrap(), "--quiet"]
        } else {
            let _ = std::fs::remove_dir_all(&killed);
            words
        };
    }
    assert!(kills >= 2, "the run was killed {kills} times");
    assert_eq!(final_json(&killed)["steps"], final_json(&whole)["steps"]);
    for part in ["policy.safetensors", "optimizer.safetensors", "env.bin", "ppo.json"] {
        assert!(last_part(&killed, part) == last_part(&whole, part), "{part}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_says_how_to_go_on() {
    let run = folder("interrupted").join("a");
    let words = ["train", "ppo", "cartpole", "--until", "steps", "--steps", "1e9", "--run-dir", run.to_str().unwrap()];
    let child = command(&words).stdout(Stdio::piped()).spawn().unwrap();
    while !run.join("run.toml").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains("stopped: ") && shown.contains(&format!("next: operant train --resume {}", run.display())),
        "{shown}"
    );
    assert!(final_json(&run)["steps"].as_u64().unwrap() > 0);
}

#[test]
fn damaged_checkpoints_are_refused_by_name() {
    let run = folder("damaged").join("a");
    let mut words = long_run(&run);
    words[6] = "4096".into();
    text(&operant(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    let mut names: Vec<String> =
        run.join("ckpt").read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("step-"));
    names.sort();
    let [.., before, newest] = &names[..] else { panic!("two checkpoints: {names:?}") };
    let policy = run.join("ckpt").join(newest).join("policy.safetensors");
    let bytes = std::fs::read(&policy).unwrap();
    std::fs::write(&policy, &bytes[..bytes.len() / 2]).unwrap();
    let (code, message) = failure(&["train", "--resume", run.to_str().unwrap()]);
    assert!(code == 1 && message.contains(newest) && message.contains(&format!("--checkpoint {before}")), "{message}");
    text(&operant(&["train", "--resume", run.to_str().unwrap(), "--checkpoint", before, "--quiet"]));
}

#[test]
fn words_that_make_no_sense_are_named() {
    let cases: [(&[&str], &str); 10] = [
        (&["train", "ppo", "cartpol"], "unknown env \"cartpol\"; did you mean \"cartpole\"? (operant list)"),
        (&["train", "pop", "cartpole"], "unknown algorithm \"pop\"; did you mean \"ppo\"?"),
        (&["train", "ppo", "cartpole", "--set", "ppo.learning_rat=1"], "did you mean \"ppo.learning_rate\"?"),
        (
            &[
                "train",
                "ppo",
                "cartpole",
                "--num-envs",
                "2048",
                "--set",
                "ppo.num_steps=32",
                "--set",
                "ppo.minibatch_size=3000",
            ],
            "ppo.minibatch_size 3000 does not divide num_envs*num_steps = 65536",
        ),
        (&["train", "ppo", "cartpole", "--steps", "many"], "is not a whole number"),
        (&["train", "ppo"], "<ENV>"),
        (&["train", "--config", "missing.toml"], "can't read missing.toml"),
        (&["train", "ppo", "cartpole", "--precision", "f31"], "did you mean \"f32\"?"),
        (
            &["train", "ppo", "cartpole", "--eval-every", "often"],
            "\"often\" is not a whole number, such as 2000000 or 2e6; or auto",
        ),
        (&["train", "ppo", "cartpole", "--eval-every", "-1"], "-1 is negative: wanted 0 or more; or auto"),
    ];
    for (words, wanted) in cases {
        let (code, message) = failure(words);
        assert!(code == 2 && message.contains(wanted), "{words:?}: {message}");
    }
    let (code, message) = failure(&["train", "--resume", "nowhere"]);
    assert!(code == 1 && message.contains("can't read nowhere/run.toml"), "{message}");
    let (code, message) = failure(&["eval", "nowhere"]);
    assert!(code == 1 && message.contains("can't read nowhere/run.toml"), "{message}");
}

#[test]
fn a_dry_run_prints_settings_that_can_be_used() {
    let shown = text(&operant(&["train", "ppo", "cartpole", "--seed", "9", "--set", "ppo.gamma=0.5", "--dry-run"]));
    assert!(
        shown.contains("seed = 9") && shown.contains("gamma = 0.5") && shown.contains("name = \"cartpole\""),
        "{shown}"
    );
    let path = folder("dry").join("run.toml");
    std::fs::write(&path, &shown).unwrap();
    assert_eq!(text(&operant(&["train", "--config", path.to_str().unwrap(), "--dry-run"])), shown);
}

#[test]
fn evaluations_are_spaced_as_asked() {
    for (word, wanted) in [("0", "every = 0\n"), ("2e4", "every = 20000\n"), ("auto", "every = \"auto\"\n")] {
        let shown = text(&operant(&["train", "ppo", "cartpole", "--eval-every", word, "--dry-run"]));
        assert!(shown.contains(&format!("[eval]\n{wanted}episodes = 10\n")), "{shown}");
    }
    let run = folder("spaced").join("a");
    let mut words = long_run(&run);
    words[6] = "4096".into();
    words.extend(["--eval-every", "1000", "--set", "eval.episodes=2"].map(str::to_owned));
    text(&operant(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let samples = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut seen: Vec<(u64, u64)> =
        samples.filter_map(|sample| Some((sample["eval/steps"].as_f64()? as u64, sample["step"].as_u64()?))).collect();
    seen.dedup_by_key(|(spent, _)| *spent);
    let steps: Vec<u64> = seen.iter().map(|(_, step)| *step).collect();
    // Iterations have 256 steps.
    assert_eq!(steps, [1024, 2048, 3072, 4096]);
    let spent = seen.last().unwrap().0;
    assert_eq!(final_json(&run)["eval_steps"], spent);
    assert!(text(&operant(&["report", run.to_str().unwrap()])).contains("report.html"));
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("eval/return") && page.contains("eval/error"));
    // A run goes on with another spacing.
    let path = run.to_str().unwrap();
    let shown = text(&operant(&["train", "--resume", path, "--steps", "5000", "--eval-every", "0"]));
    assert!(shown.contains("eval.every 1000 -> 0"), "{shown}");
    assert_eq!(final_json(&run)["eval_steps"], spent);
}

#[test]
fn bench_ppo_reports_where_the_time_goes() {
    for recipe in ["purejaxrl", "puffer", "cleanrl"] {
        let words = [
            "bench",
            "ppo",
            "cartpole",
            "--recipe",
            recipe,
            "--num-envs",
            "32",
            "--num-steps",
            "8",
            "--seconds",
            "0.05",
            "--json",
        ];
        let report: Value = serde_json::from_str(&text(&operant(&words))).unwrap();
        assert_eq!((&report["recipe"], &report["num_envs"]), (&Value::from(recipe), &Value::from(32)));
        assert_eq!(report["allocs_per_iteration"], 0.0, "{recipe}");
        for key in ["sps", "sps_per_cpu_s", "env_share", "collect_share", "learn_share"] {
            assert!(report[key].as_f64().unwrap() > 0.0, "{recipe} {key}: {report}");
        }
        assert_eq!(
            (&report["num_steps"], &report["threads"], &report["precision"]),
            (&Value::from(8), &Value::from(1), &Value::from("f32"))
        );
    }
}
