//! What a run keeps: samples up to every checkpoint, the branch that was chosen, the best state, and what it says when it
//! can't keep something.

#![cfg(unix)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_operant"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, standard output and standard error.
fn operant(arguments: &[&str]) -> (i32, String, String) {
    let output = command(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn text(arguments: &[&str]) -> String {
    let (code, out, error) = operant(arguments);
    assert_eq!(code, 0, "{arguments:?}: {out}{error}");
    out
}

/// An empty folder for a test's runs.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("keeping-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Whole checkpoints, oldest first.
fn checkpoints(run: &Path) -> Vec<String> {
    let entries = run.join("ckpt").read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("step-") && !name.ends_with(".part"));
    names.sort();
    names
}

fn steps_of(name: &str) -> u64 {
    name.trim_start_matches("step-").parse().unwrap()
}

fn mean_return(run: &Path, name: &str) -> f64 {
    let manifest = std::fs::read(run.join("ckpt").join(name).join("manifest.json")).unwrap();
    serde_json::from_slice::<Value>(&manifest).unwrap()["mean_return"].as_f64().unwrap()
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn events(run: &Path) -> String {
    std::fs::read_to_string(run.join("events.jsonl")).unwrap_or_default()
}

fn samples(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// How often a step is in TensorBoard's files: as a number to base 128 after `0x10` in the head of an event.
fn told_in_tensorboard(run: &Path) -> Vec<u64> {
    let mut steps = Vec::new();
    for entry in run.read_dir().unwrap().map(|entry| entry.unwrap()) {
        if !entry.file_name().to_string_lossy().contains("tfevents") {
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        let mut rest = &bytes[..];
        while let Some((length, _)) = rest.split_first_chunk() {
            let length = u64::from_le_bytes(*length) as usize;
            let Some(record) = rest.get(..16 + length) else { break };
            let digits = &record[12 + 10..];
            let count = digits.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
            steps.push(digits[..count].iter().rev().fold(0, |step, byte| step << 7 | u64::from(byte & 0x7f)));
            rest = &rest[16 + length..];
        }
    }
    steps.retain(|step| *step > 0);
    steps.sort_unstable();
    steps
}

/// Everything below a folder that is left half written.
fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|end| end == "part" || end == "new") {
            found.push(path);
        } else if path.is_dir() {
            found.extend(leftovers(&path));
        }
    }
    found
}

/// Env steps of an iteration of [`SMALL`].
const ITERATION: u64 = 256;
/// A run of small iterations that saves only when told to.
const SMALL: &str = "train ppo cartpole --until steps --num-envs 8 --threads 1 --set ppo.num_steps=32 \
                     --set ppo.minibatch_size=256 --set ppo.update_epochs=1 --set checkpoint.every_s=0 \
                     --set checkpoint.improved_s=0";

fn small<'a>(run: &'a Path, more: &'a str) -> Vec<&'a str> {
    let words = SMALL.split_whitespace().chain(more.split_whitespace());
    words.chain(["--run-dir", run.to_str().unwrap()]).collect()
}

#[test]
fn a_checkpoint_is_never_ahead_of_the_samples() {
    for saves in [1, 3, 6] {
        let run = folder(&format!("samples-{saves}")).join("a");
        let mut child = command(&small(&run, "--quiet --steps 1e9 --set checkpoint.every=3")).spawn().unwrap();
        wait_for("a checkpoint", || {
            checkpoints(&run).last().is_some_and(|name| steps_of(name) >= 3 * saves * ITERATION)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let last = steps_of(checkpoints(&run).last().unwrap());
        let wanted: Vec<u64> = (1..=last / ITERATION).map(|iteration| iteration * ITERATION).collect();
        let told: Vec<u64> = samples(&run).iter().map(|sample| sample["step"].as_u64().unwrap()).collect();
        let until = |steps: Vec<u64>| steps.into_iter().filter(|step| *step <= last).collect::<Vec<_>>();
        assert_eq!(until(told), wanted, "metrics.jsonl");
        assert_eq!(until(told_in_tensorboard(&run)), wanted, "TensorBoard");
    }
}

#[test]
fn a_run_that_goes_on_from_an_older_checkpoint_stays_on_that_branch() {
    let run = folder("branch").join("a");
    let path = run.to_str().unwrap();
    text(&small(&run, "--quiet --steps 2048 --set checkpoint.every=1 --set checkpoint.keep=5"));
    let names = checkpoints(&run);
    assert_eq!(names.len(), 5, "{names:?}");
    let older = names[1].as_str();
    let words = ["train", "--resume", path, "--checkpoint", older, "--steps", "1e9", "--set", "checkpoint.every=0"];
    let mut child = command(&words).spawn().unwrap();
    wait_for("the resume", || events(&run).contains("\"resumed\""));
    child.kill().unwrap();
    let shown = child.wait_with_output().unwrap().stdout;
    let told = format!("from {older}; later checkpoints {} set aside (ckpt/aside)", names[2..].join(", "));
    assert!(events(&run).contains(&told), "{}", events(&run));
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.is_empty() || shown.contains(&format!("resumed: {told}\n")), "{shown}");
    assert_eq!(checkpoints(&run), names[..2], "before anything was saved again");
    assert!(run.join("ckpt/aside").join(&names[4]).join("manifest.json").exists());
    assert!(!run.join("final.json").exists(), "the end that it had is no longer one");
    let steps = (steps_of(older) + ITERATION).to_string();
    let shown = text(&["train", "--resume", path, "--steps", &steps]);
    assert!(shown.contains(&format!("resumed: from {older}\n")), "{shown}");
    assert_eq!(steps_of(checkpoints(&run).last().unwrap()), steps_of(older) + ITERATION);
}

#[test]
fn the_best_state_is_saved_however_soon_it_passes() {
    let folder = folder("peak");
    let mut peaks = 0;
    for seed in 1..=8 {
        let run = folder.join(seed.to_string());
        // Steps so large that the policy gets worse again, and no checkpoint between the first and the last.
        let more = format!(
            "--quiet --seed {seed} --steps 40000 --set ppo.learning_rate=0.1 --set ppo.update_epochs=4 --set \
             ppo.anneal_lr=false --set checkpoint.improved_s=1000 --eval-every 0"
        );
        text(&small(&run, &more));
        let full = samples(&run).into_iter().filter(|sample| sample["episodes"].as_f64() >= Some(100.0));
        let returns: Vec<f64> = full.map(|sample| sample["return"].as_f64().unwrap()).collect();
        let highest = returns.iter().copied().fold(f64::MIN, f64::max);
        let best = std::fs::read_to_string(run.join("ckpt/best")).unwrap();
        // Copies of states are limited to a share of the time, so a return that rises fast may pass between two.
        assert!(mean_return(&run, &best) >= 0.9 * highest, "{} of {highest}", mean_return(&run, &best));
        if *returns.last().unwrap() > 0.8 * highest {
            continue;
        }
        peaks += 1;
        let names = checkpoints(&run);
        assert!(names.contains(&best) && &best < names.last().unwrap(), "{best} in {names:?}");
        if peaks == 1 {
            // It is a checkpoint like any other: a run goes on from it.
            let words = ["train", "--resume", run.to_str().unwrap(), "--checkpoint", "best"];
            let shown = text(&words);
            assert!(shown.contains(&format!("resumed: from {best}; later checkpoint")), "{shown}");
        }
    }
    assert!(peaks > 0, "no run of the test had a peak before its end");
}

/// Files beyond a few kilobytes can't be written, as on a disk that is full.
#[test]
fn a_full_disk_is_told_and_leaves_the_last_checkpoint() {
    let run = folder("full").join("a");
    let path = run.to_str().unwrap();
    text(&small(&run, "--quiet --steps 1024"));
    let names = checkpoints(&run);
    let script = "ulimit -f 8; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_operant"), "train", "--resume", path, "--steps", "4096"]);
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let last = names.last().unwrap();
    let next = format!("{last} is kept: make room, then operant train --resume {path} goes on from there");
    assert!(error.contains("4096 steps are done, but their checkpoint could not be written: can't write "), "{error}");
    assert!(error.trim_end().ends_with(&next), "{error}");
    assert_eq!((checkpoints(&run), leftovers(&run)), (names.clone(), Vec::new()));
    text(&["eval", path, "--episodes", "2", "--checkpoint", last]);
    text(&["train", "--resume", path, "--quiet"]);
    assert_eq!(steps_of(checkpoints(&run).last().unwrap()), 4096);
}

#[test]
fn a_folder_that_is_taken_away_ends_the_run() {
    let run = folder("gone").join("a");
    let child = command(&small(&run, "--steps 1e9 --set checkpoint.every=50")).spawn().unwrap();
    wait_for("the first checkpoint", || !checkpoints(&run).is_empty());
    std::fs::rename(&run, run.with_file_name("b")).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&format!("error: {} is gone: removed or moved", run.display())), "{error}");
    assert!(!run.exists(), "it is not made again");
}

#[test]
fn a_finished_run_says_so_and_goes_on_when_asked() {
    let run = folder("finished").join("a");
    let path = run.to_str().unwrap();
    text(&small(&run, "--quiet --steps 1024"));
    let files = || {
        let mut names: Vec<PathBuf> = run.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        (names, events(&run))
    };
    let before = files();
    let shown = text(&["train", "--resume", path]);
    let next = format!("next: operant train --resume {path} --steps 2048 goes on");
    assert!(shown.starts_with(&format!("{path} is finished: 1,024 steps are done\n{next}")), "{shown}");
    assert_eq!(files(), before, "nothing is written");
    let results: Value = serde_json::from_str(&text(&["train", "--resume", path, "--json"])).unwrap();
    assert_eq!(results["steps"], 1024);
    let (code, _, error) = operant(&["train", "--resume", path, "--steps", "512"]);
    assert!(code == 2 && error.contains("steps = 512: step-000000001024 has 1024 already"), "{error}");
    assert_eq!(files(), before, "nothing is written");
    let shown = text(&["train", "--resume", path, "--steps", "2048"]);
    assert!(shown.contains("note: settings have changed since step-000000001024: steps 1024 -> 2048\n"), "{shown}");
    assert_eq!(steps_of(checkpoints(&run).last().unwrap()), 2048);
    assert!(std::fs::read_to_string(run.join("run.toml")).unwrap().contains("\nsteps = 2048\n"));
    let (code, _, error) = operant(&["train", "--resume", path, "--until", "never"]);
    assert!(code == 2 && error.contains("until = \"never\": wanted solved or steps"), "{error}");
    let (code, _, error) = operant(&["train", "--resume", path, "--steps", "1e6", "--set", "network.hidden=[8]"]);
    assert!(code == 2 && error.contains("can't change on the way: network.hidden"), "{error}");
}

#[test]
fn a_solved_run_does_the_steps_that_it_is_asked_for() {
    let run = folder("solved").join("a");
    let path = run.to_str().unwrap();
    text(&["train", "ppo", "cartpole", "--quiet", "--run-dir", path]);
    let solved = steps_of(checkpoints(&run).last().unwrap());
    assert!(text(&["train", "--resume", path]).contains(" is finished: "));
    let shown = text(&["train", "--resume", path, "--steps", &(solved + 20000).to_string()]);
    assert!(shown.contains("until \"solved\" -> \"steps\"") && shown.contains("finished: mean return"), "{shown}");
    assert!(steps_of(checkpoints(&run).last().unwrap()) >= solved + 20000);
}

#[test]
fn words_that_contradict_each_other_are_refused() {
    let folder = folder("words");
    let file = folder.join("mine.toml");
    std::fs::write(&file, "algo = \"ppo\"\n[env]\nname = \"acrobot\"\n").unwrap();
    let file = file.to_str().unwrap();
    let in_file = format!("the command line says env cartpole and {file} says env acrobot; name the same");
    let set_and_file = format!("--set says env cartpole and {file} says env acrobot");
    let cases: [(&[&str], &str); 9] = [
        (&["ppo", "cartpole", "--set", "algo=dqn"], "the command line says algo ppo and --set says algo dqn"),
        (&["ppo", "cartpole", "--set", "algo=3"], "the command line says algo ppo and --set says algo 3"),
        (&["ppo", "cartpole", "--set", "env.name=acrobot"], "says env cartpole and --set says env acrobot"),
        (&["ppo", "cartpole", "--config", file], &in_file),
        (&["--config", file, "--set", "env.name=cartpole"], &set_and_file),
        (&["cartpole", "ppo"], "did you mean operant train ppo cartpole?"),
        (&["ppo", "cartpole", "--checkpoint", "best"], "--checkpoint says where --resume RUN goes on from"),
        (&["ppo", "cartpole", "--set", "learning_rate=1"], "did you mean \"ppo.learning_rate\"?"),
        (&["ppo", "cartpole", "--set", "ppo.optimizer=adan"], "ppo.optimizer = \"adan\": wanted "),
    ];
    for (words, wanted) in cases {
        let words: Vec<&str> = ["train"].into_iter().chain(words.iter().copied()).chain(["--dry-run"]).collect();
        let (code, _, error) = operant(&words);
        assert!(code == 2 && error.contains(wanted), "{words:?}: {error}");
    }
    // The same twice is no contradiction.
    text(&["train", "ppo", "Acrobot-v1", "--config", file, "--set", "algo=PPO", "--dry-run"]);
}

#[test]
fn a_checkpoint_is_played_in_the_env_that_it_was_trained_in() {
    let run = folder("edited").join("a");
    let path = run.to_str().unwrap();
    text(&small(&run, "--quiet --steps 512"));
    let words = ["eval", path, "--episodes", "3", "--json"];
    let played = text(&words);
    let settings = run.join("run.toml");
    let was = std::fs::read_to_string(&settings).unwrap();
    for edited in [was.replace("name = \"cartpole\"", "name = \"acrobot\""), "= no TOML".to_owned()] {
        assert_ne!(edited, was);
        std::fs::write(&settings, edited).unwrap();
        let (code, out, error) = operant(&words);
        assert_eq!((code, &out), (0, &played), "{error}");
        assert!(error.contains("warning: run.toml has changed since step-000000000512"), "{error}");
    }
    std::fs::write(&settings, was).unwrap();
    let (code, _, error) = operant(&[&words[..], &["--device", "gpu"]].concat());
    assert!(code == 2 && error.contains("unknown device \"gpu\"; did you mean \"cuda\"?"), "{error}");
}
