//! `cargo xtask timings`: how long builds take, from nothing and after one file was changed. CPU-seconds compare between busy
//! machines better than seconds do.

use crate::process::{cargo, execute, root, target, write};
use crate::{Failure, unknown};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

/// What a build makes: the program that users run, or all test programs.
const PROFILES: [(&str, &[&str]); 2] =
    [("release", &["build", "--release", "--quiet"]), ("tests", &["test", "--workspace", "--no-run", "--quiet"])];
/// What is changed between builds, and the file that is touched.
const CHANGES: [(&str, &str); 4] = [
    ("an env", "crates/operant-envs/src/cartpole.rs"),
    ("an op", "crates/operant-nn/src/ops/linear.rs"),
    ("an algorithm", "crates/operant-rl/src/algo/ppo.rs"),
    ("a verb", "crates/operant-cli/src/list.rs"),
];
/// Ticks of `/proc/self/stat` in a second.
const TICKS: f64 = 100.0;

/// One build.
struct Timing {
    profile: &'static str,
    after: &'static str,
    seconds: f64,
    cpu_s: Option<f64>,
}

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let (only, json) = parse(words)?;
    let folder = target().join("timings");
    let mut timings = Vec::new();
    for (profile, command) in PROFILES.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        let _ = std::fs::remove_dir_all(&folder);
        timings.push(build(profile, "nothing built", command, &folder)?);
        for (what, file) in CHANGES {
            touch(&root().join(file))?;
            timings.push(build(profile, what, command, &folder)?);
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    println!("\n| build | after a change to | seconds | CPU-seconds |\n|---|---|---|---|");
    for Timing { profile, after, seconds, cpu_s } in &timings {
        let cpu_s = cpu_s.map_or_else(|| "–".to_owned(), |cpu_s| format!("{cpu_s:.0}"));
        println!("| {profile} | {after} | {seconds:.0} | {cpu_s} |");
    }
    if let Some(file) = json {
        let row = |t: &Timing| {
            let cpu_s = t.cpu_s.map_or_else(|| "null".to_owned(), |cpu_s| format!("{cpu_s:.1}"));
            let Timing { profile, after, seconds, .. } = t;
            format!(
                r#"  {{"build": "{profile}", "after": "{after}", "seconds": {seconds:.1}, "cpu_seconds": {cpu_s}}}"#
            )
        };
        let rows: Vec<String> = timings.iter().map(row).collect();
        write(&file, format!("[\n{}\n]\n", rows.join(",\n")))?;
    }
    Ok(())
}

/// Which builds are asked for, and the file to write.
fn parse(words: &[String]) -> Result<(Option<&str>, Option<PathBuf>), Failure> {
    let (mut only, mut json) = (None, None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--json" => {
                json = Some(words.next().ok_or_else(|| Failure::Usage("--json: wanted a file".into()))?.into());
            }
            name if PROFILES.iter().any(|(known, _)| *known == name) => only = Some(name),
            other => {
                let known = PROFILES.iter().map(|(name, _)| *name).chain(["--json"]);
                return Err(Failure::Usage(unknown("word", other, known)));
            }
        }
    }
    Ok((only, json))
}

fn build(profile: &'static str, after: &'static str, words: &[&str], folder: &Path) -> Result<Timing, String> {
    let (start, cpu_before) = (Instant::now(), cpu_of_children());
    execute(cargo(words).arg("--target-dir").arg(folder))?;
    let cpu_s = cpu_of_children().zip(cpu_before).map(|(now, before)| now - before);
    Ok(Timing { profile, after, seconds: start.elapsed().as_secs_f64(), cpu_s })
}

/// CPU-seconds of all processes that this one has waited for; only Linux tells.
fn cpu_of_children() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the program's name, which may hold spaces: field 3 is the first.
    let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(13);
    let ticks = |field: Option<&str>| field?.parse::<f64>().ok();
    Some((ticks(fields.next())? + ticks(fields.next())?) / TICKS)
}

/// Makes a file look changed, with the content that it has.
fn touch(path: &Path) -> Result<(), String> {
    let file = std::fs::File::options().append(true).open(path);
    let touched = file.and_then(|file| file.set_modified(SystemTime::now()));
    touched.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_touched_are_there() {
        for (what, file) in CHANGES {
            assert!(root().join(file).is_file(), "{what}: no {file}");
        }
    }

    #[test]
    fn words_are_read() {
        let words: Vec<String> = ["release", "--json", "a.json"].map(str::to_owned).into();
        assert_eq!(parse(&words).unwrap(), (Some("release"), Some("a.json".into())));
        assert!(matches!(parse(&["relase".to_owned()]), Err(Failure::Usage(text)) if text.contains("\"release\"")));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn children_use_time() {
        let before = cpu_of_children().unwrap();
        std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
            .status()
            .unwrap();
        assert!(cpu_of_children().unwrap() > before);
    }
}
