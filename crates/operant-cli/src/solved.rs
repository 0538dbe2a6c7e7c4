//! What `operant eval` solved with a run's values, as a report shows it: a table, and plots over the true distance.

use crate::format::number;
use crate::html;
use crate::output::grouped;
use crate::run_folder::RunFolder;
use crate::solve::SOLVED;
use crate::svg::{Curve, Plot, colour};
use serde_json::Value;

/// The last result of each search over the same kind of states, in the order of their first.
fn results(folder: &RunFolder) -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(folder.path.join(SOLVED)).unwrap_or_default();
    let mut found: Vec<(String, Value)> = Vec::new();
    for result in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let name = name(&result);
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = result,
            None => found.push((name, result)),
        }
    }
    found
}

fn name(result: &Value) -> String {
    let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
    let search = match text("search").as_str() {
        "greedy" => "greedy".to_owned(),
        other => format!("{other} {}", result["width"]),
    };
    let states = match result["scrambles"].as_str() {
        Some(file) => file.to_owned(),
        None => format!("depth {}", text("depth")),
    };
    let held_out = if result["only_held_out"].as_bool() == Some(true) { ", held out" } else { "" };
    format!("{search}, {states}{held_out}")
}

/// A part of a report; empty if nothing was solved.
pub(crate) fn section(folder: &RunFolder) -> String {
    let results = results(folder);
    if results.is_empty() {
        return String::new();
    }
    let percent = |x: &Value| x.as_f64().map_or_else(|| "–".to_owned(), |x| format!("{:.2} %", 100.0 * x));
    let cell = |x: &Value| x.as_f64().map_or_else(|| "–".to_owned(), number);
    let row = |(name, result): &(String, Value)| {
        let all = &result["all"];
        let states = grouped(all["states"].as_f64().unwrap_or(f64::NAN));
        let checkpoint = result["checkpoint"].as_str().unwrap_or_default().to_owned();
        let shares = [percent(&all["solve_rate"]), percent(&result["held_out_share"])];
        let means = [&all["mean_length"], &all["ratio_to_optimal"], &all["mean_expanded"]].map(cell);
        [vec![name.clone(), states], shares.into(), means.into(), vec![checkpoint]].concat()
    };
    let rows: Vec<Vec<String>> = results.iter().map(row).collect();
    let titles =
        ["search", "states", "solved", "held out of training", "mean length", "× shortest", "expanded", "checkpoint"];
    let plot = |title: &str, key: &str| Plot {
        title: title.into(),
        x_label: "moves from solved".into(),
        curves: results.iter().enumerate().map(|(i, (name, result))| curve(i, name, result, key)).collect(),
        marks: Vec::new(),
    };
    let plots = [
        plot("share solved", "solve_rate"),
        plot("length of solutions / shortest", "ratio_to_optimal"),
        plot("share of shortest solutions", "optimal_share"),
    ];
    let plots: Vec<Plot> = plots
        .into_iter()
        .map(|plot| Plot { curves: plot.curves.into_iter().filter(|curve| !curve.points.is_empty()).collect(), ..plot })
        .filter(|plot| !plot.curves.is_empty())
        .collect();
    html::table("Solved by search", &titles.map(str::to_owned), &rows) + &html::plots("By distance", &plots)
}

fn curve(i: usize, name: &str, result: &Value, key: &str) -> Curve {
    let rows = result["by_distance"].as_array().map(Vec::as_slice).unwrap_or_default();
    let point = |row: &Value| Some((row["distance"].as_f64()?, row[key].as_f64()?));
    Curve {
        name: name.to_owned(),
        colour: colour(i),
        points: rows.iter().filter_map(point).collect(),
        ..Curve::default()
    }
}
