//! `operant compare`: what differs between runs, in settings, in results and over time.

use crate::format;
use crate::growth_log::{self, Outcome};
use crate::history::History;
use crate::html;
use crate::output::{Failure, print};
use crate::report::{plan, result_text, unfolded, write};
use crate::run_folder::{RUNS, RunFolder, flat};
use crate::svg::{Curve, Plot, colour, escape};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  operant compare RUN1 RUN2\n  operant compare RUN1 RUN2 RUN3 --out page.html")]
pub(crate) struct Args {
    /// Runs: folders, or names below --dir.
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    runs: Vec<String>,
    /// Also write a page with the runs' curves laid over one another.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Where runs are.
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    dir: PathBuf,
}

/// Points of one line; more cannot be told apart.
const POINTS: usize = 400;
/// Episodes of growing networks that are averaged.
const LAST: usize = 100;
/// Samples read from each run.
const SAMPLES: usize = 50_000;

/// Rows of a table: a name, and a value for each run.
type Rows = Vec<(String, Vec<String>)>;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let folders =
        args.runs.iter().map(|name| RunFolder::find(name, &args.dir)).collect::<Result<Vec<RunFolder>, _>>()?;
    let settings = settings_that_differ(&folders)?;
    let results = results_of(&folders);
    if let Some(out) = &args.out {
        if out
            .extension()
            .is_some_and(|kind| !["html", "htm"].contains(&kind.to_string_lossy().to_lowercase().as_str()))
        {
            return Err(Failure::Usage(format!(
                "--out {}: a page is HTML; wanted a name that ends in .html",
                out.display()
            )));
        }
        write(out, &page(&folders)?, "--out")?;
    }
    if args.json {
        let runs: Vec<&str> = folders.iter().map(|folder| folder.id.as_str()).collect();
        let settings: Map<String, Value> = settings.into_iter().map(|(name, values)| (name, json!(values))).collect();
        return print(&format!("{}\n", json!({ "runs": runs, "settings": settings, "results": results })));
    }
    let mut text = in_columns("settings that differ", &folders, &settings);
    if settings.is_empty() {
        text += "none\n";
    }
    text += "\n";
    text += &in_columns("results", &folders, &result_rows(&folders, &results));
    if let Some(out) = &args.out {
        text += &format!("\npage: {}\n", out.display());
    }
    print(&text)
}

fn settings_that_differ(folders: &[RunFolder]) -> Result<Rows, Failure> {
    let settings = folders.iter().map(|folder| Ok(flat(&folder.config()?))).collect::<Result<Vec<_>, Failure>>()?;
    Ok(differing(&settings))
}

fn results_of(folders: &[RunFolder]) -> Vec<Map<String, Value>> {
    let of = |folder: &RunFolder| {
        let mut results = unfolded(folder.results().unwrap_or_default());
        results.extend(grown(folder));
        results
    };
    folders.iter().map(of).collect()
}

/// What the last episodes of growing networks ended with, on the average; nothing where nothing grew.
fn grown(folder: &RunFolder) -> Map<String, Value> {
    let outcomes: Vec<Outcome> = folder.events().iter().filter_map(growth_log::outcome).collect();
    let last = &outcomes[outcomes.len().saturating_sub(LAST)..];
    if last.is_empty() {
        return Map::new();
    }
    let mean = |of: fn(&Outcome) -> f64| json!(last.iter().map(of).sum::<f64>() / last.len() as f64);
    let rows = [
        (format!("accuracy grown, of at most {LAST} last"), mean(|outcome| outcome.accuracy)),
        (format!("parameters grown, of at most {LAST} last"), mean(|outcome| outcome.parameters as f64)),
        (format!("fossils, of at most {LAST} last"), mean(|outcome| f64::from(outcome.fossils))),
    ];
    rows.into_iter().collect()
}

/// Settings whose values are not the same in all runs; one that a run lacks is shown as a dash.
fn differing(settings: &[Vec<(String, String)>]) -> Rows {
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in settings.iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let value = |run: &[(String, String)], name: &String| {
        run.iter().find(|(key, _)| key == name).map_or_else(|| "–".to_owned(), |(_, value)| value.clone())
    };
    names
        .into_iter()
        .map(|name| (name.clone(), settings.iter().map(|run| value(run, name)).collect::<Vec<_>>()))
        .filter(|(_, values)| values.windows(2).any(|pair| pair[0] != pair[1]))
        .collect()
}

fn result_rows(folders: &[RunFolder], results: &[Map<String, Value>]) -> Rows {
    let mut names: Vec<&String> = Vec::new();
    for name in results.iter().flat_map(Map::keys) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let status = folders.iter().map(|folder| folder.status().name().to_owned()).collect();
    let row = |name: &String| {
        (name.clone(), results.iter().map(|run| result_text(run.get(name).unwrap_or(&Value::Null))).collect())
    };
    std::iter::once(("status".to_owned(), status)).chain(names.into_iter().map(row)).collect()
}

fn in_columns(heading: &str, folders: &[RunFolder], rows: &Rows) -> String {
    let mut table = vec![std::iter::once(heading.to_owned()).chain(folders.iter().map(|f| f.id.clone())).collect()];
    table
        .extend(rows.iter().map(|(name, values)| {
            std::iter::once(name.clone()).chain(values.iter().cloned()).collect::<Vec<String>>()
        }));
    format::table(&table, &[])
}

/// A page with what differs between runs, and their curves laid over one another.
pub(crate) fn page(folders: &[RunFolder]) -> Result<String, Failure> {
    let settings = settings_that_differ(folders)?;
    let results = result_rows(folders, &results_of(folders));
    let histories: Vec<History> =
        folders.iter().map(|folder| folder.history(SAMPLES)).collect::<Result<Vec<_>, _>>()?;
    let title = folders.iter().map(|folder| folder.id.as_str()).collect::<Vec<_>>().join(", ");
    let key = folders.iter().enumerate().map(|(i, folder)| {
        format!("<p><span class=\"key\" style=\"background:{}\"></span>{}</p>\n", colour(i), escape(&folder.id))
    });
    let header: Vec<String> = std::iter::once(String::new()).chain(folders.iter().map(|f| f.id.clone())).collect();
    let cells = |rows: &Rows| -> Vec<Vec<String>> {
        rows.iter()
            .map(|(name, values)| std::iter::once(name.clone()).chain(values.iter().cloned()).collect())
            .collect()
    };
    let body = format!(
        "<h1>Comparison of runs</h1>\n{}{}{}{}",
        key.collect::<String>(),
        html::table("Results", &header, &cells(&results)),
        html::table("Settings that differ", &header, &cells(&settings)),
        html::plots("Metrics", &plots(folders, &histories)),
    );
    Ok(html::page(&title, &body))
}

/// The return over steps and over time, then every other metric over steps.
fn plots(folders: &[RunFolder], histories: &[History]) -> Vec<Plot> {
    let overlaid = |title: String, x_label: &str, points: &dyn Fn(&History) -> Vec<(f64, f64)>| Plot {
        title,
        x_label: x_label.to_owned(),
        curves: folders
            .iter()
            .zip(histories)
            .enumerate()
            .map(|(i, (folder, history))| Curve { name: folder.id.clone(), colour: colour(i), points: points(history) })
            .collect(),
        marks: Vec::new(),
    };
    let over_steps = |name: &str, history: &History| history.points(name, 0..history.len(), POINTS);
    let over_time = |history: &History| {
        let values = history.column("return").unwrap_or_default().iter();
        let stride = history.len().div_ceil(POINTS).max(1);
        let known = history.seconds().iter().zip(values).filter(|(_, value)| value.is_finite());
        known.step_by(stride).map(|(seconds, value)| (*seconds, *value)).collect()
    };
    let mut names: Vec<&str> = Vec::new();
    for name in histories.iter().flat_map(|history| history.names()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut plots = Vec::new();
    for name in plan(names.into_iter()).into_iter().flat_map(|(_, members)| members) {
        plots.push(overlaid(name.clone(), "steps", &|history| over_steps(&name, history)));
        if name == "return" {
            plots.push(overlaid("return over time".into(), "seconds", &over_time));
        }
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_shown() {
        let run = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let settings: [Vec<(String, String)>; 2] =
            [run(&[("seed", "1"), ("steps", "10")]), run(&[("seed", "2"), ("steps", "10"), ("extra", "x")])];
        let wanted: Rows =
            vec![("seed".into(), vec!["1".into(), "2".into()]), ("extra".into(), vec!["–".into(), "x".into()])];
        assert_eq!(differing(&settings), wanted);
    }
}
