//! The metrics of a run over its steps, from `metrics.jsonl` and, while it goes on, from its ring.
//!
//! Invariant: steps grow strictly; a run that went on from a checkpoint replaces what came after that checkpoint.

use crate::output::Failure;
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

/// Columns of numbers over samples; NaN is not known.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    names: Vec<String>,
    columns: Vec<Vec<f64>>,
    steps: Vec<u64>,
    seconds: Vec<f64>,
}

impl History {
    /// Reads `metrics.jsonl`, or an even choice of at most about `limit` of its lines. No file is no history; lines that
    /// cannot be read, such as the last one of a process that was killed, are passed over.
    pub(crate) fn read(path: &Path, limit: usize) -> Result<Self, Failure> {
        let text = match std::fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::Run(format!("cannot read {}: {error}", path.display()))),
        };
        let lines = text.lines().count();
        let stride = lines.div_ceil(limit.max(1)).max(1);
        let mut history = Self::default();
        for (_, line) in text.lines().enumerate().filter(|(i, _)| i % stride == 0 || i + 1 == lines) {
            let Ok(Value::Object(sample)) = serde_json::from_str(line) else { continue };
            history.push_object(&sample);
        }
        Ok(history)
    }

    fn push_object(&mut self, sample: &Map<String, Value>) {
        let (Some(step), Some(seconds)) =
            (sample.get("step").and_then(Value::as_u64), sample.get("seconds").and_then(Value::as_f64))
        else {
            return;
        };
        let metrics = sample.iter().filter(|(name, _)| !["step", "seconds", "missed"].contains(&name.as_str()));
        self.push(step, seconds, metrics.map(|(name, value)| (name.as_str(), value.as_f64().unwrap_or(f64::NAN))));
    }

    /// Adds a sample.
    pub(crate) fn push<'a>(&mut self, step: u64, seconds: f64, metrics: impl Iterator<Item = (&'a str, f64)>) {
        let keep = self.steps.partition_point(|known| *known < step);
        if keep < self.steps.len() {
            self.steps.truncate(keep);
            self.seconds.truncate(keep);
            self.columns.iter_mut().for_each(|column| column.truncate(keep));
        }
        let before = self.steps.len();
        self.steps.push(step);
        self.seconds.push(seconds);
        for (i, (name, value)) in metrics.enumerate() {
            // Samples of one writer have their metrics in the same order.
            let expected = self.names.get(i).is_some_and(|known| known == name);
            let place = if expected { Some(i) } else { self.names.iter().position(|known| known == name) };
            let place = place.unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.columns.push(vec![f64::NAN; before]);
                self.columns.len() - 1
            });
            self.columns[place].truncate(before);
            self.columns[place].push(value);
        }
        self.columns.iter_mut().for_each(|column| column.resize(before + 1, f64::NAN));
    }

    /// Halves the older samples until there are at most `limit`.
    pub(crate) fn thin(&mut self, limit: usize) {
        while self.len() > limit {
            let recent = self.len() - limit / 4;
            let keep = |i: usize| i >= recent || i.is_multiple_of(2);
            retain(&mut self.steps, keep);
            retain(&mut self.seconds, keep);
            self.columns.iter_mut().for_each(|column| retain(column, keep));
        }
    }

    /// Samples.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Names of the metrics.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Env steps of the samples.
    pub(crate) fn steps(&self) -> &[u64] {
        &self.steps
    }

    /// Seconds of the samples.
    pub(crate) fn seconds(&self) -> &[f64] {
        &self.seconds
    }

    /// A metric over the samples.
    pub(crate) fn column(&self, name: &str) -> Option<&[f64]> {
        let place = self.names.iter().position(|known| known == name)?;
        Some(&self.columns[place])
    }

    /// The newest known value of a metric.
    pub(crate) fn last(&self, name: &str) -> Option<f64> {
        self.column(name)?.iter().rev().find(|value| !value.is_nan()).copied()
    }

    /// Samples of the last `seconds`, or all.
    pub(crate) fn window(&self, seconds: Option<f64>) -> Range<usize> {
        let from = self.seconds.last().zip(seconds).map_or(f64::NEG_INFINITY, |(last, span)| last - span);
        self.seconds.partition_point(|at| *at < from)..self.len()
    }

    /// A metric as points (step, value): at most `limit`, each the mean of what is known in its share of the samples.
    pub(crate) fn points(&self, name: &str, window: Range<usize>, limit: usize) -> Vec<(f64, f64)> {
        let Some(column) = self.column(name) else { return Vec::new() };
        let count = window.len().min(limit);
        let share = |i: usize| window.start + i * window.len() / count..window.start + (i + 1) * window.len() / count;
        let mean = |i: usize| {
            let (mut known, mut steps, mut values) = (0.0, 0.0, 0.0);
            for at in share(i).filter(|at| column[*at].is_finite()) {
                known += 1.0;
                steps += self.steps[at] as f64;
                values += column[at];
            }
            (known > 0.0).then(|| (steps / known, values / known))
        };
        (0..count).filter_map(mean).collect()
    }
}

fn retain<T: Copy>(column: &mut Vec<T>, keep: impl Fn(usize) -> bool) {
    let mut i = 0;
    column.retain(|_| {
        i += 1;
        keep(i - 1)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(rows: &[(u64, f64)]) -> History {
        let mut history = History::default();
        rows.iter().for_each(|(step, value)| history.push(*step, *step as f64 / 10.0, [("x", *value)].into_iter()));
        history
    }

    #[test]
    fn reads_lines_and_passes_over_broken_ones() {
        let path = std::env::temp_dir().join(format!("operant-history-{}.jsonl", std::process::id()));
        let text = "{\"step\":1,\"seconds\":0.1,\"a\":1.5}\n{\"step\":2,\"seconds\":0.2,\"b\":2,\"a\":null}\nnoise\n{\"step\":3,\"sec";
        std::fs::write(&path, text).unwrap();
        let history = History::read(&path, 100).unwrap();
        assert_eq!((history.steps(), history.names()), (&[1, 2][..], &["a".to_owned(), "b".to_owned()][..]));
        assert_eq!((history.last("a"), history.last("b"), history.last("c")), (Some(1.5), Some(2.0), None));
        assert!(history.column("b").unwrap()[0].is_nan() && history.column("a").unwrap()[1].is_nan());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(History::read(&path, 100).unwrap().len(), 0);
    }

    #[test]
    fn a_resumed_run_replaces_what_came_after_its_checkpoint() {
        let history = history(&[(10, 1.0), (20, 2.0), (30, 3.0), (20, 2.5), (40, 4.0)]);
        assert_eq!((history.steps(), history.column("x").unwrap()), (&[10, 20, 40][..], &[1.0, 2.5, 4.0][..]));
    }

    #[test]
    fn windows_points_and_thinning() {
        let rows: Vec<(u64, f64)> = (0..1000).map(|i| (i, i as f64)).collect();
        let mut history = history(&rows);
        assert_eq!(history.window(Some(10.0)), 899..1000);
        assert_eq!(history.window(None), 0..1000);
        let points = history.points("x", 0..1000, 10);
        assert_eq!((points.len(), points[0]), (10, (49.5, 49.5)));
        history.thin(400);
        assert!(history.len() <= 400, "{}", history.len());
        assert_eq!(history.steps().last(), Some(&999));
        assert_eq!(&history.steps()[history.len() - 25..], (975..1000).collect::<Vec<u64>>());
        assert_eq!(history.column("x").unwrap().len(), history.len());
    }
}
