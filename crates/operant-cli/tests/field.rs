//! `operant collect field`, `operant field` and `operant bench field` as a user types them; and a collection that is killed.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("field");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_operant"));
    command.args(arguments).current_dir(folder());
    command
}

fn operant(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
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

const SMALL: [&str; 12] = [
    "--set",
    "steps=12",
    "--set",
    "realisations=2",
    "--set",
    "space.grid=16",
    "--set",
    "space.base_channels=16",
    "--set",
    "space.layers=2",
    "--set",
    "per_shard=4",
];

fn collect(out: &str, more: &[&str]) -> Vec<String> {
    let _ = std::fs::remove_dir_all(folder().join(out));
    let words = ["collect", "field", "--out", out, "--json"];
    words.iter().chain(&SMALL).chain(more).map(|&word| word.to_owned()).collect()
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// Bytes of every shard of a store.
fn shards(out: &str) -> Vec<(PathBuf, Vec<u8>)> {
    fn walk(at: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let (root, mut found) = (folder().join(out), Vec::new());
    walk(&root, &mut found);
    found.retain(|path| path.components().any(|part| part.as_os_str() == "c"));
    found.sort();
    let read = |path: PathBuf| (path.strip_prefix(&root).unwrap().to_owned(), std::fs::read(&path).unwrap());
    found.into_iter().map(read).collect()
}

#[test]
fn a_collection_is_made_looked_at_and_repeated() {
    let report = json(&words(&collect("small", &["--count", "6", "--threads", "2"])));
    assert_eq!((report["operators"].as_u64(), report["new"].as_u64()), (Some(6), Some(6)));
    let shown = text(&["field", "info", "small"]);
    assert!(shown.contains("6 of 6; 2 realisations, 12 steps") && shown.contains("noise_scale"), "{shown}");
    let report = json(&["field", "validate", "small", "--json"]);
    assert_eq!((report["whole"].as_bool(), report["missing"].as_array().unwrap().len()), (Some(true), 0));
    assert_eq!(json(&["field", "replay", "small", "--operator", "5", "--json"])["same"].as_bool(), Some(true));
    let stored = text(&["field", "features", "small", "--operator", "1"]);
    assert!(stored.starts_with("operator,spatial.mean,") && stored.lines().count() == 2, "{stored}");
    assert_eq!(text(&["field", "features", "small", "--operator", "1", "--again"]), stored);
    text(&["field", "visualize", "small", "--operator", "2", "--out", "a.png"]);
    text(&["field", "visualize", "small", "--operator", "2", "--out", "a.gif"]);
    let start = |name: &str| std::fs::read(folder().join(name)).unwrap()[..4].to_vec();
    assert_eq!((start("a.png"), start("a.gif")), (b"\x89PNG".to_vec(), b"GIF8".to_vec()));
    // A store is not written over, and names what it does not have.
    let mut again = collect("none", &["--count", "6"]);
    let place = again.iter().position(|word| word == "none").unwrap();
    again[place] = "small".into();
    assert!(usage(&words(&again)).contains("--resume"));
    assert!(usage(&["field", "replay", "small", "--operator", "6"]).contains("6 of 6"));
    assert!(usage(&["collect", "field", "--set", "stebs=3"]).contains("did you mean \"steps\"?"));
    assert!(usage(&["field", "visualize", "small", "--out", "a.bmp"]).contains(".png, .gif or .mp4"));
    assert_eq!(operant(&["field", "info", "nowhere"]).status.code(), Some(1));
    // Damage is found.
    let path = folder().join("small/features/c/1/0/0");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let output = operant(&["field", "validate", "small"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && shown.contains("features/c/1/0/0"), "{shown}");
}

/// Operators that are known to have failed are left out when asked, named, and made when they are tried again.
#[test]
fn failed_operators_can_be_left_out() {
    text(&words(&collect("failing", &["--count", "3"])));
    // As a run that made nothing but the note of a failure.
    let path = |name: &str| folder().join("failing").join(name);
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(path("manifest.json")).unwrap()).unwrap();
    manifest["whole"] = Value::Array(Vec::new());
    std::fs::write(path("manifest.json"), manifest.to_string()).unwrap();
    let note = r#"[{"operator": 1, "settings": "layers 2", "error": "no memory", "certain": true}]"#;
    std::fs::write(path("failed.json"), note).unwrap();
    let output = operant(&["collect", "field", "--resume", "--skip-failed", "--out", "failing"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && shown.starts_with("2 of 3 operators"), "{shown}");
    assert!(shown.contains("failed: operators 1 (left out, see failed.json)"), "{shown}");
    let output = operant(&["field", "validate", "failing"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && shown.contains("operator 1 failed: no memory (layers 2)"), "{shown}");
    assert!(text(&["collect", "field", "--resume", "--out", "failing"]).starts_with("3 of 3 operators"));
    assert!(!path("failed.json").exists());
    text(&["field", "validate", "failing"]);
}

/// Films by ffmpeg, colours, and a page of operators that needs nothing beside it.
#[cfg(unix)]
#[test]
fn fields_are_shown() {
    use std::os::unix::fs::PermissionsExt;
    text(&words(&collect("shown", &["--count", "3", "--set", "trajectories=\"f32\""])));
    // A stand-in that keeps what it is given: 3 times 16 pixels and gaps by 6 times 32, of 4 frames.
    let tools = folder().join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let script = "#!/bin/sh\nfor last; do :; done\ncat > \"$last\"\n";
    std::fs::write(tools.join("ffmpeg"), script).unwrap();
    std::fs::set_permissions(tools.join("ffmpeg"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let film = ["field", "visualize", "shown", "--every", "4", "--out", "a.mp4", "--colors", "gray"];
    let path = std::env::join_paths([tools.clone(), "/bin".into(), "/usr/bin".into()]).unwrap();
    let output = command(&film).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pixels = std::fs::read(folder().join("a.mp4")).unwrap();
    assert_eq!(pixels.len(), 4 * 3 * (3 * 32 + 2 * 2) * (6 * 32 + 5 * 2));
    assert!(pixels.chunks_exact(3).all(|p| p[0] == p[1] && p[1] == p[2]) && pixels.contains(&255));
    // Without ffmpeg it says what to do, and leaves nothing behind.
    std::fs::remove_file(folder().join("a.mp4")).unwrap();
    let output = command(&film).env("PATH", folder()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && message.contains("no ffmpeg on the PATH"), "{message}");
    assert!(!folder().join("a.mp4").exists() && !folder().join("a.part").exists());
    // What is stored is what is made again.
    let bytes = |name: &str| std::fs::read(folder().join(name)).unwrap();
    text(&words(&collect("again", &["--count", "3"])));
    for (store, out) in [("shown", "stored.gif"), ("again", "made.gif")] {
        text(&["field", "visualize", store, "--operator", "1", "--out", out]);
    }
    assert!(bytes("stored.gif") == bytes("made.gif"));
    text(&["field", "visualize", "shown", "--operator", "1", "--out", "other.gif", "--colors", "inferno"]);
    assert!(bytes("stored.gif") != bytes("other.gif"));
    text(&["field", "gallery", "shown", "--out", "page.html", "--limit", "2"]);
    let page = String::from_utf8(bytes("page.html")).unwrap();
    assert_eq!(page.matches("data:image/gif;base64,R0lGOD").count(), 2);
    assert!(page.contains("causality.ordinal_irreversibility") && page.contains("noise_scale"));
    assert!(!page.contains("http://") && !page.contains("https://"), "it fetches");
    assert_eq!(operant(&["field", "gallery", "nowhere"]).status.code(), Some(1));
}

/// Killed three times without warning, then left alone: the same bytes as one that never was, and nothing made twice.
#[test]
fn a_killed_collection_goes_on() {
    let more = ["--count", "24", "--threads", "1", "--set", "steps=30"];
    text(&words(&collect("whole", &more)));
    let begun = collect("killed", &more);
    let resume = ["collect", "field", "--out", "killed", "--resume", "--json"];
    let mut kept = 0;
    for turn in 0..3 {
        let mut child = if turn == 0 { command(&words(&begun)) } else { command(&resume) }
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Until it has kept two more, or is done. A shard counts from when the manifest names it.
        let (pending, manifest) = (folder().join("killed/pending"), folder().join("killed/manifest.json"));
        let done = || {
            let records = std::fs::read_dir(&pending).into_iter().flatten().flatten();
            let pending = records.filter(|file| file.path().extension().is_some_and(|end| end == "record")).count();
            let manifest = std::fs::read(&manifest).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
            let whole = manifest.and_then(|manifest| Some(manifest["whole"].as_array()?.len()));
            (4 * whole.unwrap_or(0)).max(pending)
        };
        let start = Instant::now();
        while done() < kept + 2 && child.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let report = operant(&["field", "validate", "killed", "--json"]);
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert!(report["damaged"].as_array().unwrap().is_empty(), "{report}");
        let now = 24 - report["missing"].as_array().unwrap().len();
        assert!(now >= kept, "{now} operators after {kept}");
        kept = now;
    }
    assert!((3..24).contains(&kept), "killed after {kept} of 24 operators");
    let report = json(&resume);
    assert_eq!(report["operators"].as_u64(), Some(24));
    assert_eq!(report["new"].as_u64(), Some(24 - kept as u64), "none is made twice");
    assert_eq!(json(&["field", "validate", "killed", "--json"])["whole"].as_bool(), Some(true));
    let (killed, whole) = (shards("killed"), shards("whole"));
    assert_eq!(killed.len(), whole.len());
    for (a, b) in killed.iter().zip(&whole) {
        assert!(a == b, "{} and {} differ", a.0.display(), b.0.display());
    }
    assert_eq!(json(&resume)["new"].as_u64(), Some(0));
}

#[test]
fn plans_lists_and_speed_are_told() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/collect/field.toml");
    let config = config.to_str().unwrap();
    let plan = ["collect", "field", "--config", config, "--count", "1000", "--dry-run", "--out", "planned"];
    let shown = text(&plan);
    assert!(shown.contains("2,500,000 realisation-steps") && shown.contains("evenness          kept"), "{shown}");
    assert!(!folder().join("planned").exists());
    let shown = text(&["field", "list"]);
    for word in ["base_channels", "gaussian_random_field", "spectral.flatness", "temporal.permutation_entropy"] {
        assert!(shown.contains(word), "{word}");
    }
    for family in operant::field::features::FAMILIES {
        for feature in family.features {
            let line = shown.lines().find(|line| line.contains(&format!("{}.{} ", family.name, feature.name)));
            assert!(line.is_some_and(|line| line.trim_end().ends_with(feature.formula)), "{}", feature.name);
        }
    }
    let report = json(&["bench", "field", "--realisations", "1", "--seconds", "0.01", "--json"]);
    for key in ["operator", "ops", "realisations", "precision", "rs_per_s", "tflops", "share_of_peak"] {
        assert!(!report[key].is_null(), "{key}");
    }
    assert!((report["gflop_per_step"].as_f64().unwrap() - 4.9).abs() < 0.01);
}
