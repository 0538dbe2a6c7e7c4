//! Runs as a user looks at them: monitor, runs, compare, report and export, over one real run and over damaged folders.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn operant(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_operant")).args(words).current_dir(folder).output().unwrap()
}

fn text(folder: &Path, words: &[&str]) -> String {
    let output = operant(folder, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and message of a command that must fail, without a panic.
fn failure(folder: &Path, words: &[&str]) -> (i32, String) {
    let output = operant(folder, words);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!message.contains("panicked"), "{message}");
    (output.status.code().unwrap(), message)
}

fn fresh(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("operant-watching-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A folder with two short runs below `runs/`.
fn trained() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = fresh("trained");
        for (run, seed) in [("first", "1"), ("second", "2")] {
            let run = format!("runs/{run}");
            let words = ["train", "ppo", "cartpole", "--seed", seed, "--steps", "8192", "--run-dir", &run, "--quiet"];
            text(&folder, &words);
        }
        folder
    })
}

#[test]
fn runs_lists_sorts_and_filters() {
    let folder = trained();
    let table = text(folder, &["runs"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("run "), "{table}");
    assert!(lines[1].starts_with("second") && lines[1].contains("finished"), "newest first: {table}");
    let by_id = text(folder, &["runs", "--sort", "id"]);
    assert!(by_id.lines().nth(1).unwrap().starts_with("first"), "{by_id}");
    assert_eq!(text(folder, &["runs", "--filter", "cartpole sec"]).lines().count(), 2);
    let none = text(folder, &["runs", "--filter", "pendulum"]);
    assert_eq!(none, "none of 2 runs holds \"pendulum\"; without --filter all are listed\n");
    let json: Value = serde_json::from_str(&text(folder, &["runs", "--json", "--filter", "first"])).unwrap();
    let run = &json["runs"][0];
    assert_eq!(
        (run["id"].as_str(), run["algo"].as_str(), run["env"].as_str()),
        (Some("first"), Some("ppo"), Some("cartpole"))
    );
    assert_eq!((run["status"].as_str(), run["steps"].as_f64()), (Some("finished"), Some(8192.0)));
    assert!(run["return"].as_f64().unwrap() > 5.0 && run["age_s"].as_f64().unwrap() < 600.0);
}

#[test]
fn compare_shows_what_differs() {
    let folder = trained();
    let table = text(folder, &["compare", "first", "second", "--out", "compare.html"]);
    assert!(table.contains("seed                  1      2\n"), "{table}");
    assert!(!table.contains("num_envs") && table.contains("mean_return") && table.contains("compare.html"), "{table}");
    let page = std::fs::read_to_string(folder.join("compare.html")).unwrap();
    assert_standalone(&page);
    assert!(page.matches("<polyline").count() >= 20 && page.contains("return over time"));
    let json: Value = serde_json::from_str(&text(folder, &["compare", "runs/first", "runs/second", "--json"])).unwrap();
    assert_eq!(json["settings"]["seed"], serde_json::json!(["1", "2"]));
    assert_eq!(failure(folder, &["compare", "first"]).0, 2);
}

/// No script and nothing to fetch.
fn assert_standalone(page: &str) {
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    for word in ["<script", "<link", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn report_writes_a_page_and_export_a_table() {
    let folder = trained();
    assert_eq!(text(folder, &["report", "first"]).trim(), "runs/first/report.html");
    let page = std::fs::read_to_string(folder.join("runs/first/report.html")).unwrap();
    assert_standalone(&page);
    for words in ["ppo on cartpole", "explained_variance", "Events", "started", "ppo.learning_rate", "train_sps"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.matches("<svg").count() >= 10);
    // Without room for a new page the old one stays.
    let script = "ulimit -f 8; exec \"$0\" report first";
    let mut shell = std::process::Command::new("sh");
    let failed = shell.args(["-c", script, env!("CARGO_BIN_EXE_operant")]).current_dir(folder).output().unwrap();
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert_eq!(std::fs::read_to_string(folder.join("runs/first/report.html")).unwrap(), page);
    assert!(text(folder, &["export", "first", "--csv", "metrics.csv"]).starts_with("metrics.csv: "));
    let table = std::fs::read_to_string(folder.join("metrics.csv")).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    let samples = std::fs::read_to_string(folder.join("runs/first/metrics.jsonl")).unwrap().lines().count();
    assert_eq!(lines.len(), samples + 1);
    assert!(lines[0].starts_with("step,seconds,return,"), "{}", lines[0]);
    let fields = |line: &str| line.split(',').count();
    assert!(lines.iter().all(|line| fields(line) == fields(lines[0])));
    assert!(lines.last().unwrap().starts_with("8192,"));
    assert_eq!(text(folder, &["export", "first", "--csv", "-"]), table);
}

#[test]
fn a_monitor_follows_a_run_and_sees_it_killed() {
    let folder = fresh("live");
    let words = ["train", "ppo", "cartpole", "--until", "steps", "--steps", "1e9", "--run-dir", "runs/live", "--quiet"];
    let mut trainer = Command::new(env!("CARGO_BIN_EXE_operant")).args(words).current_dir(&folder).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !text(&folder, &["runs"]).contains("running") {
        assert!(Instant::now() < deadline, "no run shows up");
        std::thread::sleep(Duration::from_millis(50));
    }
    let viewers: Vec<_> = (0..3)
        .map(|_| {
            let mut viewer = Command::new(env!("CARGO_BIN_EXE_operant"));
            let viewer = viewer.args(["monitor", "--latest", "--plain", "--every", "0.05"]).current_dir(&folder);
            viewer.stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let second = failure(&folder, &["train", "--resume", "runs/live", "--quiet"]);
    std::thread::sleep(Duration::from_millis(1500));
    trainer.kill().unwrap();
    trainer.wait().unwrap();
    assert!(second.0 == 1 && second.1.contains("runs/live is in use by a run that goes on"), "{}", second.1);
    for viewer in viewers {
        let output = viewer.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.lines().count() >= 5, "{text}");
        assert!(text.starts_with("started at 0: ppo on cartpole\n") && text.ends_with("live: crashed\n"), "{text}");
        assert!(text.contains(" SPS · ") && text.contains("entropy "), "{text}");
    }
    assert!(text(&folder, &["runs"]).contains("crashed"));
    text(&folder, &["report", "live"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_finished_run_is_shown_once() {
    let shown = text(trained(), &["monitor", "second", "--plain"]);
    assert!(shown.contains("8,192 steps · ") && shown.ends_with("second: finished\n"), "{shown}");
    // Without a terminal there is no screen to draw on.
    assert_eq!(text(trained(), &["monitor", "second"]), shown);
}

#[test]
fn damaged_and_missing_folders_have_messages() {
    let folder = fresh("damaged");
    assert_eq!(text(&folder, &["runs"]), "no runs; train one: operant train ppo cartpole\n");
    let (code, message) = failure(&folder, &["monitor"]);
    assert_eq!(code, 1);
    assert_eq!(message, "error: no run in runs; name a run's folder, or train: operant train ppo cartpole\n");
    assert!(failure(&folder, &["runs", "--dir", "nowhere"]).1.contains("cannot list runs in nowhere: "));
    let run = folder.join("runs/broken");
    std::fs::create_dir_all(&run).unwrap();
    let (code, message) = failure(&folder, &["report", "runs/broken"]);
    assert_eq!(code, 1);
    assert!(message.starts_with("error: runs/broken holds no run: none of run.toml, live.ring"), "{message}");
    std::fs::write(run.join("metrics.jsonl"), "{\"step\":5,\"seconds\":1,\"return\":2}\nhalf a li").unwrap();
    std::fs::write(run.join("live.ring"), "not a ring").unwrap();
    std::fs::write(run.join("final.json"), "{").unwrap();
    std::fs::write(run.join("events.jsonl"), "\u{0}\n{}\n").unwrap();
    let (code, message) = failure(&folder, &["report", "broken"]);
    assert_eq!(code, 1);
    assert!(message.contains("cannot read runs/broken/run.toml: "), "{message}");
    std::fs::write(run.join("run.toml"), "algo = ").unwrap();
    assert!(failure(&folder, &["report", "broken"]).1.contains("is not valid TOML"));
    std::fs::write(run.join("run.toml"), "algo = \"ppo\"\n").unwrap();
    text(&folder, &["report", "broken"]);
    let listed = text(&folder, &["runs"]);
    assert!(listed.contains("broken  ppo   –    crashed      5"), "{listed}");
    assert!(text(&folder, &["monitor", "broken", "--plain"]).ends_with("broken: crashed\n"));
    assert_eq!(text(&folder, &["export", "broken", "--csv", "-"]), "step,seconds,return\n5,1,2.0\n");
    let (code, message) = failure(&folder, &["export", "brokn", "--csv", "-"]);
    assert_eq!(
        (code, message.as_str()),
        (1, "error: unknown run \"brokn\"; did you mean \"broken\"? (operant runs)\n")
    );
    assert!(failure(&folder, &["report", "broken", "--out", "no/such/page.html"]).1.contains("can't write no/such"));
    assert_eq!(failure(&folder, &["runs", "--sort", "mood"]).0, 2);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Numbers of a run come out of every table with all their bits, whatever their size.
#[test]
fn numbers_are_exact_in_every_table() {
    let folder = fresh("exact");
    let run = folder.join("runs/exact");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("run.toml"), "algo = \"ppo\"\n").unwrap();
    // Bits at random (a linear congruential generator), among them subnormals and the largest numbers.
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from_bits(state ^ state >> 29)
    };
    let mut numbers: Vec<f64> = std::iter::from_fn(|| Some(draw())).filter(|x| x.is_finite()).take(2000).collect();
    numbers.extend([5e-324, 2.2e-308, f64::MIN_POSITIVE, f64::MAX, 0.1, 1.0 / 3.0, 1e22, 9_007_199_254_740_993.0]);
    let line = |(step, x): (usize, &f64)| format!("{{\"step\":{step},\"seconds\":{step},\"return\":{x:?}}}\n");
    std::fs::write(run.join("metrics.jsonl"), numbers.iter().enumerate().map(line).collect::<String>()).unwrap();
    let same = |found: Vec<f64>, of: &str| {
        let [found, wanted] = [&found, &numbers].map(|all| all.iter().map(|x| x.to_bits()).collect::<Vec<u64>>());
        let off = found.iter().zip(&wanted).filter(|(a, b)| a != b).count();
        assert!(found.len() == wanted.len() && off == 0, "{of}: {off} of {} numbers are off", wanted.len());
    };
    let column = |text: String, place: usize| -> Vec<f64> {
        text.lines().skip(1).map(|line| line.split(',').nth(place).unwrap().parse().unwrap()).collect()
    };
    same(column(text(&folder, &["export", "exact", "--csv", "-"]), 2), "export --csv");
    let sql = "select return from metrics order by step";
    same(column(text(&folder, &["query", "exact", sql, "--csv"]), 0), "query --csv");
    let objects: Vec<serde_json::Value> =
        serde_json::from_str(&text(&folder, &["query", "exact", sql, "--json"])).unwrap();
    same(objects.iter().map(|object| object["return"].as_f64().unwrap()).collect(), "query --json");
    text(&folder, &["query", "exact", sql, "--parquet", "exact.parquet"]);
    // Values lie side by side in the one page, in the order of rows.
    let bytes = std::fs::read(folder.join("exact.parquet")).unwrap();
    let wanted: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert!(bytes.windows(wanted.len()).any(|part| part == wanted), "query --parquet");
    std::fs::remove_dir_all(folder).unwrap();
}
