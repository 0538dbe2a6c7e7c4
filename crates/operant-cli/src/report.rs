//! `operant report`: a run, or a batch of seeds, as one page with plots, results, events and settings.

use crate::batch_report;
use crate::format::{duration, number};
use crate::found::Found;
use crate::history::History;
use crate::html;
use crate::output::{Failure, grouped, print};
use crate::run_folder::{RUNS, RunFolder, env_name, flat, setting};
use crate::svg::{Curve, Plot, colour, escape};
use operant::run::replace_file;
use operant::telemetry::{Event, EventKind};
use serde_json::{Map, Value};
use std::ops::Range;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  operant report runs/RUN\n  operant report runs/RUN --out page.html")]
pub(crate) struct Args {
    /// A run's folder, or that of a batch of seeds, or its name below --dir.
    run: String,
    /// The page to write [default: report.html in the run's folder].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where runs are.
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    dir: PathBuf,
}

/// Points of one line; more cannot be told apart.
const POINTS: usize = 600;
/// Samples read from a run.
const SAMPLES: usize = 100_000;

/// Metrics that share a plot: title and names.
const TOGETHER: [(&str, &[&str]); 2] = [
    ("value", &["value/mean", "value/min", "value/max"]),
    ("share of time", &["time/collect", "time/learn", "time/other"]),
];
/// Metrics in the order of plots; others follow.
const FIRST: [&str; 17] = [
    "return",
    "eval/return",
    "eval/error",
    "solve_rate",
    "solve_moves",
    "length",
    "sps",
    "loss/policy",
    "loss/value",
    "loss/td",
    "td_error",
    "q",
    "epsilon",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "explained_variance",
];

/// Titles of plots with the metrics on each, in the order of reading.
pub(crate) fn plan<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(String, Vec<String>)> {
    let mut names: Vec<&str> = names.collect();
    names.sort_by_key(|name| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
    let mut plots: Vec<(String, Vec<String>)> = Vec::new();
    for name in names {
        let group = TOGETHER.iter().find(|(_, members)| members.contains(&name));
        // One plot for all tensors: gradient/TENSOR/NUMBER.
        let of_gradient = name.strip_prefix("gradient/").and_then(|rest| rest.rsplit_once('/'));
        let gradient = of_gradient.map(|(_, number)| format!("gradient: {number}"));
        let title = gradient.as_deref().unwrap_or_else(|| group.map_or(name, |(title, _)| title));
        match plots.iter_mut().find(|(known, _)| known == title) {
            Some((_, members)) if !members.iter().any(|member| member == name) => members.push(name.to_owned()),
            Some(_) => {}
            None => plots.push((title.to_owned(), vec![name.to_owned()])),
        }
    }
    plots
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let found = Found::find(&args.run, &args.dir)?;
    let out = args.out.clone().unwrap_or_else(|| found.path().join("report.html"));
    let page = match &found {
        Found::Run(run) => page(run)?,
        Found::Batch(batch) => batch_report::page(batch)?,
    };
    write(&out, &page, "--out")?;
    print(&format!("{}\n", out.display()))
}

/// Writes a file, or says why not and which option names another. One that was there stays whole until the new one is; what is no
/// file (a pipe, a device) is written to directly.
pub(crate) fn write(path: &std::path::Path, text: &str, option: &str) -> Result<(), Failure> {
    let direct = path.metadata().is_ok_and(|found| !found.is_file());
    let written = match direct {
        true => std::fs::write(path, text).map_err(|error| format!("can't write {}: {error}", path.display())),
        false => replace_file(path, text.as_bytes()).map_err(|error| error.to_string()),
    };
    written.map_err(|error| Failure::Run(format!("{error}; or name another file with {option}")))
}

fn page(folder: &RunFolder) -> Result<String, Failure> {
    let settings = folder.config()?;
    let history = folder.history(SAMPLES)?;
    let events = folder.events();
    let of = match (setting(&settings, "algo"), env_name(&settings)) {
        (Some(algo), Some(env)) => format!("{algo} on {env}"),
        _ => String::new(),
    };
    let last = (history.steps().last().copied().unwrap_or(0), history.seconds().last().copied().unwrap_or(0.0));
    let summary =
        format!("{of} · {} · {} steps · {}", folder.status().name(), grouped(last.0 as f64), duration(last.1));
    let mut body = format!("<h1>{}</h1>\n<p class=\"dim\">{}</p>\n", escape(&folder.id), escape(&summary));
    body += &html::table("Results", &[], &results(folder));
    body += &crate::solved::section(folder);
    body += &html::plots("Metrics over steps", &plots(&history, 0..history.len(), &events));
    let rows: Vec<Vec<String>> = events
        .iter()
        .map(|event| vec![grouped(event.step as f64), event.kind.to_string(), event.text.clone()])
        .collect();
    body += &html::table("Events", &["step", "kind", "text"].map(str::to_owned), &rows);
    let rows: Vec<Vec<String>> = flat(&settings).into_iter().map(|(name, value)| vec![name, value]).collect();
    body += &html::table("Settings", &[], &rows);
    Ok(html::page(&folder.id, &body))
}

/// What came of a run: names and values.
pub(crate) fn results(folder: &RunFolder) -> Vec<Vec<String>> {
    let results = unfolded(folder.results().unwrap_or_default());
    results.iter().map(|(key, value)| vec![key.clone(), result_text(value)]).collect()
}

/// What `final.json` says, with the numbers of runs that play no episodes beside the others.
pub(crate) fn unfolded(mut results: Map<String, Value>) -> Map<String, Value> {
    let Some(Value::Object(numbers)) = results.shift_remove("numbers") else { return results };
    if numbers.is_empty() {
        return results;
    }
    // What is told of episodes would be empty.
    let of_episodes = |key: &str| {
        key.starts_with("solved") || key.starts_with("eval_") || key.ends_with("_return") || key == "episodes"
    };
    results.retain(|key, _| !of_episodes(key));
    numbers.into_iter().chain(results).collect()
}

/// A value of `final.json` as people read it.
pub(crate) fn result_text(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(whole) if whole.is_u64() => grouped(whole.as_f64().unwrap_or(f64::NAN)),
        Value::Number(real) => number(real.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// All metrics over a part of the samples, with what happened marked.
pub(crate) fn plots(history: &History, window: Range<usize>, events: &[Event]) -> Vec<Plot> {
    let marked = |event: &&Event| match event.kind {
        EventKind::Solved | EventKind::Resumed | EventKind::Diverged | EventKind::Alert(_) => true,
        EventKind::Note => event.text.starts_with("curriculum: "),
        _ => false,
    };
    let marks: Vec<(f64, String)> = events
        .iter()
        .filter(marked)
        .map(|event| (event.step as f64, format!("{}: {}", event.kind, event.text)))
        .collect();
    let draw = |(title, members): (String, Vec<String>)| {
        let curves = members.iter().enumerate().map(|(i, name)| {
            let points = history.points(name, window.clone(), POINTS);
            Curve { name: name.clone(), colour: colour(i), points, ..Curve::default() }
        });
        Plot {
            title: titled(&title, &members),
            x_label: "steps".into(),
            curves: curves.collect(),
            marks: marks.clone(),
        }
    };
    plan(history.names().iter().map(String::as_str)).into_iter().map(draw).collect()
}

pub(crate) fn titled(title: &str, members: &[String]) -> String {
    if title.starts_with("gradient") {
        return title.to_owned();
    }
    let short = members.iter().map(|name| name.rsplit('/').next().unwrap_or(name));
    if members.len() > 1 { format!("{title}: {}", short.collect::<Vec<_>>().join(", ")) } else { title.to_owned() }
}
