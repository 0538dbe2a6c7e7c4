//! Several seeds as one batch, runs that play no episodes, and words that contradict each other.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("batches").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Exit code, what was printed and what went wrong.
fn operant(folder: &Path, words: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_operant"));
    let output = command.args(words.split_whitespace()).current_dir(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn text(folder: &Path, words: &str) -> String {
    let (code, out, error) = operant(folder, words);
    assert_eq!(code, 0, "{words}: {error}");
    out
}

fn usage(folder: &Path, words: &str) -> String {
    let (code, _, error) = operant(folder, words);
    assert_eq!(code, 2, "{words}: {error}");
    error
}

fn weights(run: &Path) -> Vec<u8> {
    let summary: Value = serde_json::from_slice(&std::fs::read(run.join("final.json")).unwrap()).unwrap();
    std::fs::read(run.join("ckpt").join(summary["checkpoint"].as_str().unwrap()).join("policy.safetensors")).unwrap()
}

const PPO: &str =
    "train ppo probe_identity --device cpu --threads 1 --until steps --steps 8192 --set checkpoint.every=1";

/// The same, as short as a run can be of which two iterations are seen.
const SMALL: &str =
    "train ppo probe_identity --device cpu --threads 1 --until steps --steps 512 --set checkpoint.every=1";

#[test]
fn a_batch_that_was_cut_off_goes_on() {
    let folder = folder("cut");
    text(&folder, &format!("{PPO} --seeds 3 --run-dir runs/whole"));
    text(&folder, &format!("{PPO} --seeds 3 --run-dir runs/cut"));
    // As a kill in the second seed leaves it: with an older checkpoint and no end, and the third not begun.
    let cut = folder.join("runs/cut");
    std::fs::remove_dir_all(cut.join("seed-3")).unwrap();
    std::fs::remove_file(cut.join("seed-2/final.json")).unwrap();
    let mut names: Vec<PathBuf> = cut
        .join("seed-2/ckpt")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    names.sort();
    std::fs::remove_dir_all(names.last().unwrap()).unwrap();
    let events = |seed: u32| std::fs::read_to_string(cut.join(format!("seed-{seed}/events.jsonl"))).unwrap();
    let before = events(1);
    let shown = text(&folder, "train --resume cut");
    assert!(shown.contains("seed 1: ") && shown.contains("seed 3: ") && shown.contains("of 3 seeds solved"), "{shown}");
    assert_eq!(events(1), before, "a seed that is finished stays as it is");
    assert!(events(2).contains("\"resumed\"") && !events(3).contains("\"resumed\""));
    for seed in 1..=3 {
        let name = format!("seed-{seed}");
        assert!(weights(&cut.join(&name)) == weights(&folder.join("runs/whole").join(&name)), "seed {seed}");
    }
    let listed = text(&folder, "runs");
    for name in ["cut/seed-1", "cut/seed-2", "cut/seed-3", "whole/seed-1"] {
        assert!(listed.contains(name), "{listed}");
    }
    text(&folder, "report cut/seed-2");
    // More steps are for all of them.
    let summary: Value = serde_json::from_str(&text(&folder, "train --resume cut --steps 9000 --json")).unwrap();
    let runs = summary["runs"].as_array().unwrap();
    assert!(runs.len() == 3 && runs.iter().all(|run| run["summary"]["steps"].as_u64() >= Some(9000)), "{summary}");
    assert!(usage(&folder, &format!("{PPO} --seeds 2 --run-dir runs/cut")).contains("holds a batch already"));
    assert!(usage(&folder, "train --resume cut --checkpoint best").contains("--checkpoint is for one run"));
}

/// Where one lies the other would be hidden, whichever came first.
#[test]
fn a_batch_and_a_run_do_not_share_a_folder() {
    let folder = folder("shared");
    text(&folder, &format!("{SMALL} --quiet --run-dir run"));
    text(&folder, &format!("{SMALL} --seeds 2 --run-dir batch"));
    let files = |name: &str| {
        let entries = folder.join(name).read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    let before = (files("run"), files("batch"));
    let error = usage(&folder, &format!("{SMALL} --seeds 2 --run-dir run"));
    assert!(error.contains("run holds a run (run.toml)") && error.contains("name another folder"), "{error}");
    for more in ["--quiet", "--dry-run", "--detach"] {
        let error = usage(&folder, &format!("{SMALL} {more} --run-dir batch"));
        assert!(error.contains("batch holds a batch of runs (batch.toml)"), "{error}");
        assert!(error.contains("operant train --resume batch"), "{error}");
    }
    // A place that a seed of the batch may still need.
    let error = usage(&folder, &format!("{SMALL} --quiet --run-dir batch/seed-3"));
    assert!(error.contains("would take the run for one of its seeds"), "{error}");
    assert_eq!((files("run"), files("batch")), before);
}

#[test]
fn verbs_show_all_seeds_of_a_batch() {
    let folder = folder("shown");
    text(&folder, &format!("{SMALL} --seeds 2 --run-dir runs/b"));
    text(&folder, &format!("{SMALL} --quiet --seed 9 --run-dir runs/single"));
    let page = std::fs::read_to_string(folder.join(text(&folder, "report b").trim())).unwrap();
    assert!(page.contains("class=\"band\"") && page.contains("mean ± standard error"), "no band");
    assert!(page.contains("<td>1 to 2</td>") || page.contains(">1 to 2<"), "the range of seeds");
    let evaluated = text(&folder, "eval b --episodes 5");
    let rows: Vec<&str> = evaluated.lines().collect();
    assert!(rows.len() == 4 && rows[0].starts_with("seed") && rows[0].contains("mean_return"), "{evaluated}");
    assert!(rows[1].starts_with('1') && rows[2].starts_with('2') && rows[3].contains(" ± "), "{evaluated}");
    let evaluated: Value = serde_json::from_str(&text(&folder, "eval b --episodes 5 --json")).unwrap();
    let means = |i: usize| evaluated["runs"][i]["result"]["mean_return"].as_f64().unwrap();
    let mean = evaluated["means"]["mean_return"]["mean"].as_f64().unwrap();
    assert!((mean - (means(0) + means(1)) / 2.0).abs() < 1e-9, "{evaluated}");
    assert!(usage(&folder, "eval b --render a.gif").contains("--render is for one run"));
    let watched = text(&folder, "monitor b --plain");
    assert!(
        watched.contains("seed 1: ") && watched.contains("seed 2: finished at ") && watched.contains("b: finished"),
        "{watched}"
    );
    let counted = text(&folder, "query b");
    assert!(
        counted.contains("metrics: seed, step, seconds") && counted.contains("settings: seed, key, value"),
        "{counted}"
    );
    let sql = "select seed, max(step) as last, median(step) as middle from metrics group by seed";
    let output = Command::new(env!("CARGO_BIN_EXE_operant"))
        .args(["query", "b", sql, "--json"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let asked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(asked[0]["seed"] == 1 && asked[1]["seed"] == 2 && asked[1]["last"].as_u64() >= Some(512), "{asked}");
    let exported = text(&folder, "export b --csv -");
    assert!(
        exported.starts_with("seed,step,seconds,") && exported.lines().last().unwrap().starts_with("2,"),
        "{exported}"
    );
    let compared = text(&folder, "compare b single --out page.html");
    assert!(compared.contains("1 to 2") && compared.contains(" ± "), "{compared}");
    assert!(std::fs::read_to_string(folder.join("page.html")).unwrap().matches("class=\"band\"").count() > 3);
    // A seed that can't be evaluated keeps none of the others from it.
    std::fs::remove_dir_all(folder.join("runs/b/seed-2/ckpt")).unwrap();
    let (code, out, error) = operant(&folder, "eval b --episodes 5");
    assert!(code == 1 && out.lines().nth(1).is_some_and(|row| row.starts_with('1')), "{code}: {out}");
    assert!(error.contains("1 of 2 seeds could not be evaluated: seed 2: "), "{error}");
    let (code, out, _) = operant(&folder, "eval b --episodes 5 --json");
    let evaluated: Value = serde_json::from_str(&out).unwrap();
    assert!(code == 1 && evaluated["runs"][1]["error"].is_string() && evaluated["means"]["mean_return"].is_object());
    // What has not begun is shown too.
    std::fs::remove_dir_all(folder.join("runs/b/seed-2")).unwrap();
    assert!(text(&folder, "monitor b --plain").contains("b: 1 finished, 1 not begun"));
    let (code, _, error) = operant(&folder, "eval b --episodes 5");
    assert!(code == 0 && error.contains("b has 1 of its 2 seeds"), "{error}");
    let (code, _, error) = operant(&folder, "train --resume b/seed-2");
    assert!(code != 0 && error.contains("can't read"), "{error}");
}

/// Verbs for one run name the runs of a batch; there may be no seed 1.
#[test]
fn a_batch_in_place_of_one_run_is_told_with_its_runs() {
    let folder = folder("one");
    text(&folder, &format!("{SMALL} --seeds 2 --seed 7 --run-dir b"));
    for words in ["bench selfplay connect4 --model b", "grow policy b"] {
        let (code, _, error) = operant(&folder, words);
        let wanted =
            "b holds a batch of runs (batch.toml); name one of them: b/seed-7, b/seed-8 (operant runs --dir b)";
        assert!(code != 0 && error.contains(wanted), "{words}: {error}");
    }
    for seed in [7, 8] {
        std::fs::remove_dir_all(folder.join(format!("b/seed-{seed}"))).unwrap();
    }
    let (code, _, error) = operant(&folder, "grow policy b");
    assert!(code != 0 && error.contains("none of which has begun; operant train --resume b trains it"), "{error}");
}

/// The settings that were changed on the way are in the file, so that it repeats the run to the bit.
#[test]
fn the_file_of_an_extended_run_repeats_it() {
    let folder = folder("extended");
    text(&folder, &format!("{SMALL} --quiet --run-dir run"));
    text(&folder, "train --resume run --quiet --steps 1024");
    text(&folder, "train --resume run --quiet --steps 1536 --set ppo.learning_rate=0.01");
    let file = std::fs::read_to_string(folder.join("run/run.toml")).unwrap();
    assert!(file.starts_with("# Settings were changed when 512 and 1024 env steps were done"), "{file}");
    text(&folder, "train --config run/run.toml --quiet --run-dir again");
    assert!(weights(&folder.join("run")) == weights(&folder.join("again")), "other weights");
    let events = std::fs::read_to_string(folder.join("again/events.jsonl")).unwrap();
    assert!(events.contains("settings have changed since step 512, as run.toml says: steps 512 -> 1024"), "{events}");
    // The repeated run says the same of itself, and goes on from before a change as the first did.
    assert_eq!(std::fs::read_to_string(folder.join("again/run.toml")).unwrap(), file);
    // Without a schedule over all steps there is nothing to list.
    let plain = format!("{SMALL} --set ppo.anneal_lr=false --quiet");
    text(&folder, &format!("{plain} --run-dir plain"));
    text(&folder, "train --resume plain --quiet --steps 1024");
    let kept = std::fs::read_to_string(folder.join("plain/run.toml")).unwrap();
    assert!(!kept.contains("changed"), "{kept}");
    text(&folder, "train --config plain/run.toml --quiet --run-dir plainly");
    assert!(weights(&folder.join("plain")) == weights(&folder.join("plainly")), "other weights");
    // Steps that are given now are those of the whole run.
    let shown = text(&folder, "train --config run/run.toml --dry-run --steps 1536 --set ppo.learning_rate=0.01");
    assert!(!shown.contains("[[changed]]"), "{shown}");
}

#[test]
fn a_batch_without_a_name_is_listed() {
    let folder = folder("unnamed");
    text(&folder, &format!("{PPO} --seeds 2 --seed 4"));
    let listed = text(&folder, "runs");
    assert!(listed.contains("ppo-probe_identity-4-to-5-1/seed-4") && listed.contains("/seed-5"), "{listed}");
}

#[test]
fn settings_for_a_finished_run_are_not_swallowed() {
    let folder = folder("finished");
    text(&folder, &format!("{PPO} --quiet --run-dir a"));
    let error = usage(&folder, "train --resume a --set ppo.learning_rate=1e-4");
    assert!(error.contains("a is finished: ") && error.contains("name more steps too, as in --steps "), "{error}");
    assert!(usage(&folder, "train --resume a --set steps=100").contains("is finished"));
    let shown = text(&folder, "train --resume a --set ppo.learning_rate=1e-4 --steps 12000");
    assert!(shown.contains("ppo.learning_rate"), "{shown}");
}

#[test]
fn a_run_of_values_is_told_in_its_own_words() {
    let folder = folder("values");
    let words = "train davi cube2 --run-dir v --steps 10001 --threads 1 --set network.hidden=[16,16] --set davi.batch_size=500 \
                 --set davi.scramble_depth=2 --set davi.view=cubies --set davi.symmetry=false";
    let shown = text(&folder, words);
    assert!(!shown.contains("episode") && !shown.contains("mean return"), "{shown}");
    assert!(
        shown.contains(" · solve_rate ")
            && shown.contains("finished: loss/value ")
            && shown.contains("at 10,001 steps"),
        "{shown}"
    );
    let summary: Value = serde_json::from_slice(&std::fs::read(folder.join("v/final.json")).unwrap()).unwrap();
    assert!(summary["numbers"]["solve_rate"].is_f64() && summary["steps"] == 10001, "{summary}");
    let best = std::fs::read_to_string(folder.join("v/ckpt/best")).unwrap();
    assert!(text(&folder, "eval v --checkpoint best --count 5 --depth 1").contains(&best));
    let compared = text(&folder, "compare v v");
    assert!(
        compared.contains("solve_rate") && !compared.contains("mean_return") && !compared.contains('{'),
        "{compared}"
    );
    let order =
        ["solve_rate", "steps", "wall_s", "checkpoint", "samples_dropped"].map(|name| compared.find(name).unwrap());
    assert!(order.is_sorted(), "{compared}");
    let listed: Value = serde_json::from_str(&text(&folder, "runs --dir . --json")).unwrap();
    assert!(listed["runs"][0]["solved"].is_null() && listed["runs"][0]["steps"] == 10001.0, "{listed}");
    let page = std::fs::read_to_string(folder.join(text(&folder, "report v").trim())).unwrap();
    assert!(page.contains("solve_moves") && !page.contains(">episodes<") && !page.contains("mean_return"));
    for (more, wanted) in [
        ("--episodes 3", "--episodes is for policies"),
        ("--deterministic", "--deterministic is for policies"),
        ("--render a.gif", "--render is for policies"),
        ("--width 3", "--width is for --search beam or astar"),
        ("--search beam --weight 2", "--weight is for --search astar"),
        ("--search beam --most-expanded 2", "--most-expanded is for --search astar"),
        ("--search astar --most-moves 2", "--most-moves is for --search greedy or beam"),
        ("--scrambles set --count 2", "--count is for states that are drawn"),
    ] {
        let error = usage(&folder, &format!("eval v {more}"));
        assert!(error.contains(wanted), "{more}: {error}");
    }
    let error = usage(&folder, "train davi cube2 --set network.memory=lstm --dry-run");
    assert!(error.contains("wanted none and auto"), "{error}");
    text(&folder, &format!("{PPO} --quiet --run-dir p"));
    for (more, words) in [
        ("--count 3", "--count is"),
        ("--width 2 --search beam", "--search, --width are"),
        ("--weight 1", "--weight is"),
    ] {
        let error = usage(&folder, &format!("eval p {more}"));
        assert!(
            error.contains(&format!("{words} for puzzles")) && error.contains("--episodes says"),
            "{more}: {error}"
        );
    }
}
