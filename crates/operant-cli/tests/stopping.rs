//! Runs that are interrupted, killed, edited and resumed: what is kept, what is said, and that no step is told twice.

#![cfg(unix)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_operant"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(arguments: &[&str]) -> String {
    let output = command(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn failure(arguments: &[&str]) -> (i32, String) {
    let output = command(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// An empty folder for a test's runs.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Names of checkpoints and of anything that is left half written.
fn checkpoints(run: &Path) -> Vec<String> {
    let entries = run.join("ckpt").read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "best");
    names.sort();
    names
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
}

fn shown(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Changes lines of a run's settings.
fn edit(run: &Path, changes: &[(&str, &str)]) {
    let path = run.join("run.toml");
    let mut settings = std::fs::read_to_string(&path).unwrap();
    for (from, to) in changes {
        assert!(settings.contains(from), "{from} in {settings}");
        settings = settings.replacen(from, to, 1);
    }
    std::fs::write(path, settings).unwrap();
}

/// Steps of `metrics.jsonl`, every line of which must be whole.
fn steps_told(run: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["step"].as_u64().unwrap()).collect()
}

/// Steps of samples in TensorBoard's files, in the order of their names.
fn steps_in_tensorboard(run: &Path) -> Vec<u64> {
    let entries = run.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().contains("tfevents")).collect();
    files.sort();
    let mut steps = Vec::new();
    for file in files {
        let bytes = std::fs::read(file).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            // A double, then the step as a number to base 128.
            let data = &rest[12..12 + length];
            let digits = data[10..].iter().scan(true, |more, byte| {
                let this = more.then_some(u64::from(byte & 0x7f));
                *more = *more && byte & 0x80 != 0;
                this
            });
            steps.push(digits.enumerate().map(|(i, digit)| digit << (7 * i)).sum());
            rest = &rest[16 + length..];
        }
    }
    steps.retain(|step| *step > 0);
    steps
}

const ENDLESS: [&str; 9] =
    ["train", "ppo", "cartpole", "--until", "steps", "--steps", "1e9", "--set", "checkpoint.every_s=0"];

#[test]
fn a_run_that_is_killed_early_goes_on_and_tells_no_step_twice() {
    let run = folder("early").join("a");
    let words = [&ENDLESS[..], &["--set", "checkpoint.improved_s=0", "--run-dir", run.to_str().unwrap()]].concat();
    let mut child = command(&words).spawn().unwrap();
    wait_for("the first checkpoint", || !checkpoints(&run).is_empty());
    // Samples are written ten times a second.
    wait_for("a sample", || std::fs::metadata(run.join("metrics.jsonl")).is_ok_and(|data| data.len() > 2000));
    child.kill().unwrap();
    child.wait().unwrap();
    let names = checkpoints(&run);
    assert_eq!(names.iter().filter(|name| !name.ends_with(".part")).count(), 1, "{names:?}");
    let step: u64 = names[0].trim_start_matches("step-").parse().unwrap();
    let before = steps_told(&run);
    assert!(before.last() > Some(&step), "{before:?}");
    let path = run.join("metrics.jsonl");
    std::fs::write(&path, [std::fs::read(&path).unwrap(), b"{\"step\":77,\"se".to_vec()].concat()).unwrap();

    let child = command(&["train", "--resume", run.to_str().unwrap()]).spawn().unwrap();
    let resumed = || std::fs::read_to_string(run.join("events.jsonl")).unwrap().contains("\"resumed\"");
    wait_for("the run goes on", || resumed() && std::fs::read(&path).unwrap().len() > 4000);
    signal(&child, "-TERM");
    let (code, out, error) = shown(&child.wait_with_output().unwrap());
    assert_eq!(code, Some(130), "{out}{error}");
    assert!(out.contains("stopped: ") && error.contains("stopping after this iteration"), "{out}{error}");
    for steps in [steps_told(&run), steps_in_tensorboard(&run)] {
        assert!(steps.len() > 5 && steps.is_sorted_by(|a, b| a < b), "{steps:?}");
        assert!(steps[0] <= step, "what came before the checkpoint stays: {steps:?}");
    }
    let events = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    for kind in ["started", "resumed", "stopped"] {
        assert!(events.contains(&format!("\"{kind}\"")), "{kind}: {events}");
    }
}

#[test]
fn a_second_interrupt_ends_the_run_at_once() {
    let run = folder("twice").join("a b");
    let path = run.to_str().unwrap();
    let closing = text(&["train", "ppo", "cartpole", "--steps", "4096", "--run-dir", path]);
    assert!(closing.contains(&format!("next: operant eval '{path}'")), "{closing}");
    let names = checkpoints(&run);
    let last = names.last().unwrap();
    // An iteration that takes minutes.
    edit(&run, &[("\nsteps = 4096", "\nsteps = 1000000"), ("update_epochs = ", "update_epochs = 100000")]);
    let child = command(&["train", "--resume", path]).spawn().unwrap();
    wait_for("the resume", || std::fs::read_to_string(run.join("events.jsonl")).unwrap().contains("\"resumed\""));
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    // Two at once are one.
    signal(&child, "-INT");
    signal(&child, "-INT");
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "-INT");
    let (code, out, error) = shown(&child.wait_with_output().unwrap());
    assert_eq!(code, Some(130), "{out}{error}");
    assert!(start.elapsed() > Duration::from_millis(500) && start.elapsed() < Duration::from_secs(10));
    let first = format!("stopping after this iteration; Ctrl-C again stops at once ({last} is kept)");
    let second = format!("stopped at once: {last} is kept\nnext: operant train --resume '{path}'");
    assert_eq!(error.trim_end(), format!("{first}\n{second}"));
    assert!(out.contains("note: settings have changed since") && out.contains("steps 4096 -> 1000000"), "{out}");
    assert_eq!(checkpoints(&run), names, "nothing half written");
    let runs = text(&["runs", "--json", "--dir", run.parent().unwrap().to_str().unwrap()]);
    assert_eq!(serde_json::from_str::<Value>(&runs).unwrap()["runs"][0]["status"], "stopped", "{runs}");
    // What may not change is refused, with what it was.
    edit(&run, &[("num_envs = ", "num_envs = 1"), ("seed = 1", "seed = 2")]);
    let (code, message) = failure(&["train", "--resume", path]);
    assert!(code == 1 && message.contains("can't change on the way: seed 1 -> 2, num_envs "), "{message}");
}

#[test]
fn the_best_checkpoint_is_kept_and_can_be_played() {
    let run = folder("best").join("a");
    let path = run.to_str().unwrap();
    let words = ["train", "ppo", "cartpole", "--until", "steps", "--steps", "60000", "--quiet", "--run-dir", path];
    let words = [&words[..], &["--eval-every", "4000"]].concat();
    let saving = ["checkpoint.every_s=0", "checkpoint.improved_s=0.001", "checkpoint.keep=1"];
    let sets = saving.iter().flat_map(|setting| ["--set", setting]);
    text(&words.into_iter().chain(sets).collect::<Vec<_>>());
    let best = std::fs::read_to_string(run.join("ckpt/best")).unwrap();
    let names = checkpoints(&run);
    let last = names.last().unwrap();
    assert!(names.contains(&best) && names.len() <= 2, "{best} in {names:?}");
    let mean = |name: &str| {
        let manifest = std::fs::read(run.join("ckpt").join(name).join("manifest.json")).unwrap();
        serde_json::from_slice::<Value>(&manifest).unwrap()["evaluation"]["mean"].as_f64()
    };
    let results: Value = serde_json::from_slice(&std::fs::read(run.join("final.json")).unwrap()).unwrap();
    assert!(mean(&best).unwrap() >= results["eval_return"].as_f64().unwrap(), "{results}");
    assert!(mean(&best).unwrap() > 100.0);
    for (asked, wanted) in [("best", &best), ("last", last), (last.as_str(), last)] {
        let played = text(&["eval", path, "--episodes", "5", "--checkpoint", asked, "--json"]);
        assert_eq!(serde_json::from_str::<Value>(&played).unwrap()["checkpoint"], *wanted.as_str(), "{asked}");
    }
    let events = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    assert!(events.matches(", best\"").count() > 2, "{events}");
}

#[test]
fn a_run_that_diverges_names_its_last_checkpoint() {
    let run = folder("diverged").join("a");
    let settings = [
        "ppo.num_steps=32",
        "ppo.minibatch_size=256",
        "ppo.update_epochs=1",
        "ppo.learning_rate=1e25",
        "ppo.clip_vloss=false",
    ];
    let mut words = vec!["train", "ppo", "cartpole", "--num-envs", "8", "--run-dir", run.to_str().unwrap(), "--quiet"];
    words.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let (code, message) = failure(&words);
    assert_eq!(code, 1, "{message}");
    assert!(
        message.contains("loss/value is not finite, first in \"")
            && message.contains("last good checkpoint: step-000000000256"),
        "{message}"
    );
}

#[test]
fn a_partial_file_lies_over_the_shipped_settings() {
    let path = folder("partial").join("mine.toml");
    std::fs::write(&path, "[ppo]\ngamma = 0.5\n").unwrap();
    let (path, shipped) = (path.to_str().unwrap(), ["train", "ppo", "cartpole", "--dry-run", "--seed", "4"]);
    let by_file = text(&[&shipped[..], &["--config", path]].concat());
    assert_eq!(by_file, text(&[&shipped[..], &["--set", "ppo.gamma=0.5"]].concat()));
    let over_file = text(&[&shipped[..], &["--config", path, "--set", "ppo.gamma=0.25"]].concat());
    assert!(over_file.contains("gamma = 0.25"), "{over_file}");
}

/// Names of other libraries lead to ours, and numbers beyond all limits are refused.
#[test]
fn what_others_would_type_leads_to_what_is_typed_here() {
    let cases: [(&[&str], &str); 9] = [
        (&["--steps", "1e30"], "1e30 is too large: wanted at most 9.2e18"),
        (&["--set", "steps=1e30"], "steps = 1e30: wanted a whole number of at most 9.2e18, such as 1000000"),
        (&["--seeds", "0"], "0: wanted 1 or more"),
        (&["--set", "ppo.clip_range=0.1"], "unknown key \"ppo.clip_range\"; here it is \"ppo.clip_coef\""),
        (&["--set", "ppo.lr=1e-3"], "unknown key \"ppo.lr\"; here it is \"ppo.learning_rate\""),
        (&["--set", "n_envs=4"], "unknown key \"n_envs\"; here it is \"num_envs\""),
        (
            &["--set", "ppo.num_minibatches=4"],
            "see \"ppo.minibatch_size\": num_envs * num_steps / num_minibatches samples",
        ),
        (&["--set", "ppo.policy_kwargs={}"], "see \"network.hidden\": the sizes of hidden layers"),
        (&["--set", "network.gamma=0.9"], "unknown key \"network.gamma\"; did you mean \"ppo.gamma\"?"),
    ];
    for (words, wanted) in cases {
        let (code, message) = failure(&[&["train", "ppo", "cartpole"][..], words].concat());
        assert!(code == 2 && message.contains(wanted), "{words:?}: {message}");
    }
    let path = folder("names").join("mine.toml");
    std::fs::write(&path, "[dqn]\ntrain_freq = 4\n").unwrap();
    let (code, message) = failure(&["train", "dqn", "cartpole", "--config", path.to_str().unwrap()]);
    assert!(code == 2 && message.contains("unknown key \"dqn.train_freq\"; see \"dqn.replay_ratio\""), "{message}");
}

/// No command can make envs that Python brought: what is typed in Python is said in place of a command that fails.
#[test]
fn runs_of_envs_from_python_name_the_line_of_python() {
    let run = folder("brought").join("run");
    let shown = run.to_str().unwrap();
    text(&[
        "train",
        "ppo",
        "cartpole",
        "--steps",
        "512",
        "--until",
        "steps",
        "--quiet",
        "--run-dir",
        shown,
        "--device",
        "cpu",
    ]);
    let settings = run.join("run.toml");
    let brought = std::fs::read_to_string(&settings).unwrap().replace("\"cartpole\"", "\"gymnasium/Mine-v0\"");
    std::fs::write(&settings, brought).unwrap();
    let resume = format!("operant.PPO.resume({shown:?}");
    let checkpoint = checkpoints(&run).pop().unwrap();
    let cases: [(&[&str], String); 5] = [
        (&["train", "--resume", shown], format!("{resume}, env=env).learn(100_000)")),
        (&["train", "--resume", shown, "--steps", "2048"], format!("{resume}, env=env).learn(1536)")),
        (
            &["train", "--resume", shown, "--checkpoint", "last"],
            format!("{resume}, checkpoint=\"last\", env=env).learn(100_000)"),
        ),
        (&["eval", shown], format!("operant.PPO.load({shown:?}, env=env).evaluate(episodes=100)")),
        (
            &["eval", shown, "--checkpoint", "last", "--episodes", "3"],
            format!("operant.PPO.load(\"{shown}/ckpt/{checkpoint}\", env=env).evaluate(episodes=3)"),
        ),
    ];
    for (words, line) in cases {
        let (code, message) = failure(words);
        let wanted = format!(
            "{shown} was trained on gymnasium/Mine-v0, an env that was brought from Python and is only there; in Python: {line}"
        );
        assert!(code == 2 && message.contains(&wanted), "{words:?}: {message}");
    }
    let (code, message) = failure(&["train", "--config", settings.to_str().unwrap()]);
    assert!(code == 2 && message.contains("give it to operant.PPO or operant.DQN in Python"), "{message}");
}

#[test]
fn negative_numbers_get_a_plain_message() {
    let cases: [(&[&str], &str); 8] = [
        (&["train", "ppo", "cartpole", "--seeds", "-1"], "-1 is negative: wanted 1 or more"),
        (&["field", "gallery", "nowhere", "--limit", "-2"], "-2 is not in 1"),
        (&["train", "ppo", "cartpole", "--seed", "-3"], "-3 is negative: wanted 0 or more"),
        (&["train", "ppo", "cartpole", "--steps", "-2e6"], "-2e6 is negative: wanted 0 or more"),
        (&["train", "ppo", "cartpole", "--set", "seed=-1"], "seed = -1: wanted a whole number of 0 or more, such as 1"),
        (&["train", "ppo", "cartpole", "--set", "-1"], "\"-1\": wanted key=value"),
        (&["eval", "nowhere", "--episodes", "-1"], "-1 is negative: wanted 0 or more"),
        (&["bench", "ppo", "cartpole", "--num-envs", "-1"], "-1 is negative: wanted 0 or more"),
    ];
    for (words, wanted) in cases {
        let (code, message) = failure(words);
        assert!(code == 2 && message.contains(wanted) && !message.contains("tip:"), "{words:?}: {message}");
    }
}
