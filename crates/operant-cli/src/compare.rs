//! `operant compare`: what differs between runs, in settings, in results and over time.

use crate::batch_report;
use crate::format;
use crate::found::Found;
use crate::growth_log::{self, Outcome};
use crate::history::History;
use crate::html;
use crate::output::{Failure, print};
use crate::report::{plan, unfolded, write};
use crate::run_folder::{RUNS, RunFolder, flat};
use crate::spread::band;
use crate::svg::{Curve, Plot, colour, escape};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  operant compare RUN1 RUN2\n  operant compare RUN1 RUN2 RUN3 --out page.html")]
pub(crate) struct Args {
    /// Runs, or batches of seeds, which stand with their means: folders, or names below --dir.
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
    let folders = args.runs.iter().map(|name| Found::find(name, &args.dir)).collect::<Result<Vec<Found>, _>>()?;
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
        let runs: Vec<&str> = folders.iter().map(|folder| folder.id()).collect();
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

fn settings_that_differ(folders: &[Found]) -> Result<Rows, Failure> {
    let of = |found: &Found| match found {
        Found::Run(run) => Ok(flat(&run.config()?)),
        Found::Batch(batch) => batch_report::settings_of(batch),
    };
    let settings = folders.iter().map(of).collect::<Result<Vec<_>, Failure>>()?;
    Ok(differing(&settings))
}

fn results_of(folders: &[Found]) -> Vec<Map<String, Value>> {
    let of = |folder: &RunFolder| {
        let mut results = unfolded(folder.results().unwrap_or_default());
        results.extend(grown(folder));
        results
    };
    let of_found = |found: &Found| match found {
        Found::Run(run) => of(run),
        Found::Batch(batch) => {
            let runs: Vec<_> = batch.folders().map(of).collect();
            let mean = |name: String| (name.clone(), batch_report::mean_of(&runs, &name));
            batch_report::names(&runs).into_iter().map(mean).filter(|(_, mean)| !mean.is_null()).collect()
        }
    };
    folders.iter().map(of_found).collect()
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

fn result_rows(folders: &[Found], results: &[Map<String, Value>]) -> Rows {
    let mut names: Vec<&String> = Vec::new();
    for name in results.iter().flat_map(Map::keys) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let status = folders.iter().map(|folder| folder.status()).collect();
    let row = |name: &String| {
        (name.clone(), results.iter().map(|run| batch_report::text(run.get(name).unwrap_or(&Value::Null))).collect())
    };
    std::iter::once(("status".to_owned(), status)).chain(names.into_iter().map(row)).collect()
}

fn in_columns(heading: &str, folders: &[Found], rows: &Rows) -> String {
    let mut table =
        vec![std::iter::once(heading.to_owned()).chain(folders.iter().map(|f| f.id().to_owned())).collect()];
    table
        .extend(rows.iter().map(|(name, values)| {
            std::iter::once(name.clone()).chain(values.iter().cloned()).collect::<Vec<String>>()
        }));
    format::table(&table, &[])
}

/// A page with what differs between runs, and their curves laid over one another.
pub(crate) fn page(folders: &[Found]) -> Result<String, Failure> {
    let settings = settings_that_differ(folders)?;
    let results = result_rows(folders, &results_of(folders));
    let read = |found: &Found| found.folders().into_iter().map(|run| run.history(SAMPLES)).collect();
    let histories: Vec<Vec<History>> = folders.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let title = folders.iter().map(|folder| folder.id()).collect::<Vec<_>>().join(", ");
    let key = folders.iter().enumerate().map(|(i, folder)| {
        format!("<p><span class=\"key\" style=\"background:{}\"></span>{}</p>\n", colour(i), escape(folder.id()))
    });
    let header: Vec<String> = std::iter::once(String::new()).chain(folders.iter().map(|f| f.id().to_owned())).collect();
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

/// Points of a metric of one run.
type Points<'a> = &'a dyn Fn(&History) -> Vec<(f64, f64)>;

/// The return over steps and over time, then every other metric over steps; of a batch its mean, with a band of a standard error.
fn plots(folders: &[Found], histories: &[Vec<History>]) -> Vec<Plot> {
    let line = |i: usize, found: &Found, runs: &[History], points: Points<'_>| {
        let (name, colour) = (found.id().to_owned(), colour(i));
        match (found, runs) {
            (Found::Run(_), [only]) => Curve { name, colour, points: points(only), ..Curve::default() },
            _ => Curve::banded(name, colour, &band(&runs.iter().map(points).collect::<Vec<_>>(), POINTS)),
        }
    };
    let overlaid = |title: String, x_label: &str, points: Points<'_>| {
        let runs = folders.iter().zip(histories).enumerate();
        let curves = runs.map(|(i, (found, runs))| line(i, found, runs, points)).collect();
        Plot { title, x_label: x_label.to_owned(), curves, marks: Vec::new() }
    };
    let over_steps = |name: &str, history: &History| history.points(name, 0..history.len(), POINTS);
    let over_time = |history: &History| {
        let values = history.column("return").unwrap_or_default().iter();
        let stride = history.len().div_ceil(POINTS).max(1);
        let known = history.seconds().iter().zip(values).filter(|(_, value)| value.is_finite());
        known.step_by(stride).map(|(seconds, value)| (*seconds, *value)).collect()
    };
    let mut names: Vec<&str> = Vec::new();
    for name in histories.iter().flatten().flat_map(|history| history.names()) {
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
