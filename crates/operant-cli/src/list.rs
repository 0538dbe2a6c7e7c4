//! `operant list`: what there is, and one env in full.

use crate::output::{Failure, print};
use operant::env::{self, ActionSpace, Channel, Entry, Param};
use serde_json::{Value, json};
use std::fmt::Write as _;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Short name or Gymnasium id of one environment.
    name: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Names of algorithms.
fn algorithms() -> Vec<&'static str> {
    operant::algo::all().map(|entry| entry.name).collect()
}
/// Devices that environments run on.
const DEVICES: &[&str] = &["cpu", "cuda"];

/// Devices that one environment runs on: only lane code can be printed as kernels.
fn devices(entry: &Entry) -> &'static [&'static str] {
    match entry.door() {
        env::Door::Lanes => DEVICES,
        env::Door::Host => &DEVICES[..1],
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.name {
        Some(name) => {
            let entry = env::find(name)?;
            print(&if args.json { format!("{}\n", as_json(entry)) } else { in_full(entry) })
        }
        None if args.json => {
            let envs: Vec<Value> = env::all().map(as_json).collect();
            print(&format!("{}\n", json!({ "environments": envs, "algorithms": algorithms(), "devices": DEVICES })))
        }
        None => print(&table()),
    }
}

fn action(space: &ActionSpace) -> String {
    match space {
        ActionSpace::Discrete(n) => format!("{n} choices"),
        ActionSpace::MultiDiscrete(n) => format!("choices {:?}", &n[..]),
        ActionSpace::Box(channels) => format!("{} real", channels.len()),
    }
}

fn or_none<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "none".into(), |value| value.to_string())
}

fn table() -> String {
    let header = ["environment", "id", "observation", "action", "limit", "solved at", "door", "devices"];
    let rows = env::all().map(|entry| {
        let spec = entry.spec();
        [
            spec.name.to_owned(),
            spec.id.to_owned(),
            spec.observation.len().to_string(),
            action(&spec.action),
            or_none(spec.time_limit),
            or_none(spec.solved_at),
            entry.door().name().to_owned(),
            devices(entry).join(" "),
        ]
    });
    let rows: Vec<[String; 8]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let algorithms = algorithms().join(" ");
    let _ = write!(
        text,
        "\nalgorithms: {algorithms}\ndevices:    {}\n\none in full: operant list cartpole\n",
        DEVICES.join(" ")
    );
    text
}

fn bounds(channel: &Channel) -> String {
    format!("{} .. {}", channel.low, channel.high)
}

fn in_full(entry: &Entry) -> String {
    let spec = entry.spec();
    let mut text = format!("{} ({}): {}\n\n", spec.name, spec.id, spec.summary);
    // A grid has hundreds of alike channels: the first few tell enough.
    let shown = 16;
    let _ = writeln!(text, "observation: {} numbers", spec.observation.len());
    for channel in spec.observation.iter().take(shown) {
        let _ = writeln!(text, "  {:28} {}", channel.name, bounds(channel));
    }
    if spec.observation.len() > shown {
        let _ = writeln!(text, "  … and {} more (--json shows all)", spec.observation.len() - shown);
    }
    match &spec.action {
        ActionSpace::Box(channels) => {
            let _ = writeln!(text, "action: {} real", channels.len());
            for channel in channels {
                let _ = writeln!(text, "  {:28} {}", channel.name, bounds(channel));
            }
        }
        other => {
            let _ = writeln!(
                text,
                "action: {}{}",
                action(other),
                if spec.masked { ", some illegal in some states" } else { "" }
            );
        }
    }
    let _ = writeln!(text, "time limit: {} (--set env.time_limit=N)", or_none(spec.time_limit));
    let _ = writeln!(text, "solved at: {} (mean return of 100 episodes)", or_none(spec.solved_at));
    let _ = writeln!(text, "reference: {}", spec.reference);
    let _ = writeln!(text, "door: {}", entry.door().name());
    let _ = writeln!(text, "devices: {}", devices(entry).join(" "));
    let params = entry.params();
    if !params.is_empty() {
        let _ = writeln!(text, "\nparameters (set with --set name=value, or as keywords in Python)");
        for Param { name, doc, unit, value, range, names, .. } in params {
            let (value, range) = match names.get(value as usize) {
                Some(own) => ((*own).to_owned(), names.join(" | ")),
                None => (format!("{value} {unit}"), format!("{} .. {}", range.start(), range.end())),
            };
            let _ = writeln!(text, "  {name:24} {:18} {doc} [{range}]", value.trim_end());
        }
    }
    text
}

/// JSON has no infinity: an unbounded side is null.
fn finite(x: f32) -> Value {
    if x.is_finite() { json!(x) } else { Value::Null }
}

fn channels(list: &[Channel]) -> Value {
    list.iter().map(|c| json!({ "name": c.name, "low": finite(c.low), "high": finite(c.high) })).collect()
}

fn as_json(entry: &Entry) -> Value {
    let spec = entry.spec();
    let params: Vec<Value> = entry
        .params()
        .iter()
        .map(|p| {
            json!({ "name": p.name, "doc": p.doc, "unit": p.unit, "default": p.value,
                    "low": p.range.start(), "high": p.range.end(), "whole": p.whole })
        })
        .collect();
    let action = match &spec.action {
        ActionSpace::Discrete(n) => json!({ "kind": "discrete", "n": n }),
        ActionSpace::MultiDiscrete(n) => json!({ "kind": "multi_discrete", "n": n[..] }),
        ActionSpace::Box(list) => json!({ "kind": "box", "channels": channels(list) }),
    };
    json!({
        "name": spec.name,
        "id": spec.id,
        "summary": spec.summary,
        "reference": spec.reference,
        "observation": channels(&spec.observation),
        "action": action,
        "masked": spec.masked,
        "time_limit": spec.time_limit,
        "solved_at": spec.solved_at,
        "door": entry.door().name(),
        "devices": devices(entry),
        "algorithms": algorithms(),
        "params": params,
    })
}
