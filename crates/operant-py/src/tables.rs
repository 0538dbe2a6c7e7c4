//! What a run's folder holds besides its lines of JSON, for `operant.RunTables`: settings, the last episodes, and what events' names mean.

use crate::error::raise;
use operant::config::{self, Table, Value};
use operant::telemetry::{EventKind, RingReader};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Most episodes that are given, as `operant query` has them.
const EPISODES: usize = 2000;

/// The last episodes in a run's `live.ring`: step, env, return and length of each; none without the file.
#[pyfunction]
pub(crate) fn run_episodes(folder: PathBuf) -> Vec<(u64, u64, f64, u64)> {
    let ring = RingReader::open(&folder.join("live.ring"));
    let mut all = ring.map_or_else(|_| Vec::new(), |ring| ring.episodes_since(0).records);
    let surplus = all.len().saturating_sub(EPISODES);
    all.drain(..surplus);
    all.into_iter().map(|e| (e.step, e.env, e.episode_return, e.length)).collect()
}

/// The settings of a run's `run.toml` (or of the `run` table of a batch's) by dotted names, as texts.
#[pyfunction]
pub(crate) fn run_keys(text: &str, origin: &str) -> PyResult<Vec<(String, String)>> {
    fn walk(table: &Table, prefix: &str, found: &mut Vec<(String, String)>) {
        for (key, value) in table {
            match value {
                Value::Table(inner) => walk(inner, &format!("{prefix}{key}."), found),
                Value::String(text) => found.push((format!("{prefix}{key}"), text.clone())),
                other => found.push((format!("{prefix}{key}"), other.to_string())),
            }
        }
    }
    let mut found = Vec::new();
    walk(&config::parse(text, origin).map_err(raise)?, "", &mut found);
    Ok(found)
}

/// The name of a kind of event as it is known now, how much it matters, and what it is about.
#[pyfunction]
pub(crate) fn event_kind(name: &str) -> (String, &'static str, &'static str) {
    let kind = EventKind::parse(name).unwrap_or(EventKind::Note);
    (kind.to_string(), kind.severity().name(), kind.topic())
}
