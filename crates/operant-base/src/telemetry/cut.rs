//! Takes back what a run reported after the checkpoint that it goes on from, so that its files hold every step once.
//!
//! Invariant: a file is written beside and renamed; one that is cut off at any moment is the old one or the new one.

use super::EventKind;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// What every line of `metrics.jsonl` and of `events.jsonl` holds, the kind in the latter only.
#[derive(Deserialize)]
struct Line {
    step: u64,
    #[serde(default)]
    kind: String,
}

/// Takes samples after `step` out of `metrics.jsonl` and of TensorBoard's files, what was told of growing networks after it out of
/// `events.jsonl`, and what a killed process left half written. Events of the run itself stay: they are a log of what happened.
pub fn cut_back(folder: &Path, step: u64) -> Result<()> {
    replace_if_shorter(&folder.join("metrics.jsonl"), |bytes| lines_until(bytes, step, |_| false))?;
    let log = |kind: &str| EventKind::parse(kind).is_none_or(|kind| kind.topic() != "growth");
    replace_if_shorter(&folder.join("events.jsonl"), |bytes| lines_until(bytes, step, log))?;
    let entries = fs::read_dir(folder).map_err(|error| Error::io("list", folder, &error))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("events.out.tfevents.") && name.contains(".operant.") && !name.ends_with(PART) {
            replace_if_shorter(&path, |bytes| super::tensorboard::records_until(bytes, step))?;
        }
    }
    Ok(())
}

const PART: &str = ".part";

fn replace_if_shorter(path: &Path, kept: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let before = fs::read(path).map_err(|error| Error::io("read", path, &error))?;
    let after = kept(&before);
    if after.len() == before.len() {
        return Ok(());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(PART);
    let written = fs::write(&beside, after).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        Error::io("write", path, &error)
    })
}

/// Lines up to a step, and those whose kind is always kept.
fn lines_until(bytes: &[u8], step: u64, always: impl Fn(&str) -> bool) -> Vec<u8> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let whole = lines.filter(|line| line.ends_with(b"\n"));
    let kept = whole
        .filter(|line| serde_json::from_slice::<Line>(line).is_ok_and(|line| line.step <= step || always(&line.kind)));
    kept.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{METRICS, folder};
    use super::super::{Event, Jsonl, Sample, Sink, Tensorboard};
    use super::*;

    fn report(sink: &mut dyn Sink, steps: &[u64]) {
        sink.start(&METRICS).unwrap();
        for &step in steps {
            let values = [step as f64, f64::NAN, 1.0];
            sink.sample(&Sample { number: 0, step, seconds: step as f64, values: &values, missed: 0 }).unwrap();
        }
        sink.finish().unwrap();
    }

    #[test]
    fn files_hold_every_step_once() {
        let folder = folder("cut");
        let metrics = folder.join("metrics.jsonl");
        report(&mut Jsonl::new(&folder), &[100, 200, 300, 400]);
        report(&mut Tensorboard::new(&folder), &[100, 200, 300, 400]);
        let file = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let file = file.into_iter().find(|path| path.to_string_lossy().contains("tfevents")).unwrap();
        let whole = [fs::read(&metrics).unwrap(), fs::read(&file).unwrap()];
        // As a kill in the middle of a write leaves them.
        fs::write(&metrics, [&whole[0][..], b"{\"step\":500,\"sec"].concat()).unwrap();
        fs::write(&file, [&whole[1][..], &whole[1][..30]].concat()).unwrap();
        cut_back(&folder, 1000).unwrap();
        assert_eq!([fs::read(&metrics).unwrap(), fs::read(&file).unwrap()], whole, "only the halves are gone");
        cut_back(&folder, 200).unwrap();
        let [lines, records] = [&metrics, &file].map(|path| fs::read(path).unwrap());
        let steps = String::from_utf8(lines).unwrap();
        let steps: Vec<&str> = steps.lines().map(|line| &line[..12]).collect();
        assert_eq!(steps, ["{\"step\":100,", "{\"step\":200,"]);
        assert!(whole[1].starts_with(&records) && records.len() < whole[1].len());
        // The head of the file and two samples.
        assert_eq!(super::super::tensorboard::tests::records(&records).len(), 3);
        assert!(
            !fs::read_dir(&folder).unwrap().any(|entry| entry.unwrap().path().extension() == Some("part".as_ref()))
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_grew_is_told_once_and_the_log_stays() {
        let folder = folder("cut-events");
        let mut sink = Jsonl::new(&folder);
        sink.start(&METRICS).unwrap();
        let told = [
            (EventKind::Started, 0),
            (EventKind::Lifecycle, 100),
            (EventKind::Checkpoint, 100),
            (EventKind::Lifecycle, 200),
            (EventKind::Outcome, 200),
            (EventKind::Alert(super::super::Rule::ALL[0]), 200),
            (EventKind::Worth, 300),
            (EventKind::Stopped, 300),
        ];
        told.iter().for_each(|(kind, step)| sink.event(&Event::now(*kind, *step, "text")).unwrap());
        sink.finish().unwrap();
        cut_back(&folder, 100).unwrap();
        let text = fs::read_to_string(folder.join("events.jsonl")).unwrap();
        let kinds: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].as_str().unwrap().to_owned())
            .collect();
        let kept: Vec<String> = [0, 1, 2, 5, 7].map(|i: usize| told[i].0.to_string()).to_vec();
        assert_eq!(kinds, kept);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_without_files_is_left_alone() {
        let folder = folder("cut-nothing");
        cut_back(&folder, 5).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }
}
