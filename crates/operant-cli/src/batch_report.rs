//! A batch of seeds as a page shows it: a row for each seed, and means with bands of their standard error.

use crate::format::number;
use crate::found::BatchFolder;
use crate::history::History;
use crate::html;
use crate::output::{Failure, grouped};
use crate::report::{plan, result_text, titled, unfolded};
use crate::run_folder::{RunFolder, env_name, flat, setting};
use crate::runs::Row;
use crate::spread::{Spread, band};
use crate::svg::{Curve, Plot, colour, escape};
use serde_json::{Map, Value, json};

/// Points of one line; more cannot be told apart.
const POINTS: usize = 400;
/// Samples read from each run.
const SAMPLES: usize = 50_000;

/// A page that stands alone.
pub(crate) fn page(batch: &BatchFolder) -> Result<String, Failure> {
    Ok(html::page(&batch.id, &format!("<h1>{}</h1>\n{}", escape(&batch.id), body(batch)?)))
}

/// All of the page but its heading.
pub(crate) fn body(batch: &BatchFolder) -> Result<String, Failure> {
    let settings = batch.folders().next().map_or_else(|| Ok(Default::default()), RunFolder::config)?;
    let of = match (setting(&settings, "algo"), env_name(&settings)) {
        (Some(algo), Some(env)) => format!("{algo} on {env} · "),
        _ => String::new(),
    };
    let summary = format!("{of}{} seeds · {}", batch.seeds, batch.status());
    // The script of a page that goes on looks at this.
    let state = if batch.goes_on() { "running" } else { "ended" };
    let mut body = format!("<p id=\"state\" data-status=\"{state}\" class=\"dim\">{}</p>\n", escape(&summary));
    let results = results(batch);
    let [header, rows @ ..] = &results[..] else { return Ok(body) };
    body += &html::table("Results", header, rows);
    body += &html::plots("Means over steps, with bands of a standard error", &plots(&batch.histories(SAMPLES)?));
    let event_rows = batch.runs.iter().flat_map(|(seed, folder)| {
        let row = move |event: operant::telemetry::Event| {
            vec![seed.to_string(), grouped(event.step as f64), event.kind.to_string(), event.text]
        };
        folder.events().into_iter().map(row)
    });
    let header = ["seed", "step", "kind", "text"].map(str::to_owned);
    body += &html::table("Events", &header, &event_rows.collect::<Vec<_>>());
    let settings = settings_of(batch)?.into_iter().map(|(name, value)| vec![name, value]).collect::<Vec<_>>();
    Ok(body + &html::table("Settings", &[], &settings))
}

/// The settings that the seeds share, with the range of seeds.
pub(crate) fn settings_of(batch: &BatchFolder) -> Result<Vec<(String, String)>, Failure> {
    let first = batch.folders().next().map_or_else(|| Ok(Default::default()), RunFolder::config)?;
    let seeds = match (batch.runs.first(), batch.runs.last()) {
        (Some((first, _)), Some((last, _))) if first != last => format!("{first} to {last}"),
        (Some((first, _)), _) => first.to_string(),
        _ => String::new(),
    };
    let with_seeds = |(key, value): (String, String)| if key == "seed" { (key, seeds.clone()) } else { (key, value) };
    Ok(flat(&first).into_iter().map(with_seeds).collect())
}

/// A header, a row for each seed, and a row of means with their standard errors.
pub(crate) fn results(batch: &BatchFolder) -> Vec<Vec<String>> {
    let maps: Vec<Map<String, Value>> =
        batch.folders().map(|run| unfolded(run.results().unwrap_or_default())).collect();
    let names = names(&maps);
    let header: Vec<String> =
        ["seed", "status"].into_iter().chain(names.iter().map(String::as_str)).map(str::to_owned).collect();
    let seed = |((seed, run), map): (&(u64, RunFolder), &Map<String, Value>)| -> Vec<String> {
        let values = names.iter().map(|name| result_text(map.get(name).unwrap_or(&Value::Null)));
        [seed.to_string(), run.status().name().to_owned()].into_iter().chain(values).collect()
    };
    let mean = names.iter().map(|name| text(&mean_of(&maps, name)));
    let mean: Vec<String> = ["mean ± standard error".to_owned(), batch.status()].into_iter().chain(mean).collect();
    std::iter::once(header).chain(batch.runs.iter().zip(&maps).map(seed)).chain([mean]).collect()
}

/// Names of results in the order of their first.
pub(crate) fn names(maps: &[Map<String, Value>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in maps.iter().flat_map(Map::keys) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// A result over all seeds: `{mean, standard_error}` of numbers, `{holds, of}` of truths, null of the rest.
pub(crate) fn mean_of(maps: &[Map<String, Value>], name: &str) -> Value {
    let known: Vec<&Value> = maps.iter().filter_map(|map| map.get(name)).filter(|value| !value.is_null()).collect();
    match known.first() {
        Some(Value::Bool(_)) => {
            json!({ "holds": known.iter().filter(|value| value.as_bool() == Some(true)).count(), "of": known.len() })
        }
        Some(Value::Number(_)) => Spread::json(Spread::of(known.iter().map(|value| value.as_f64()))),
        _ => Value::Null,
    }
}

/// Mean steps, return with its standard error, and how many are solved.
pub(crate) fn mean_cells(rows: &[Row]) -> (Option<f64>, String, String) {
    let spread = |of: fn(&Row) -> Option<f64>| Spread::of(rows.iter().map(of));
    let known = rows.iter().filter_map(|row| row.solved);
    let solved = format!("{} of {}", known.clone().filter(|solved| *solved).count(), known.count());
    (spread(|row| row.steps).map(|steps| steps.mean), Spread::cell(spread(|row| row.mean_return)), solved)
}

/// What [`mean_of`] gives, for people.
pub(crate) fn text(mean: &Value) -> String {
    match (mean["mean"].as_f64(), mean["standard_error"].as_f64(), mean["holds"].as_u64()) {
        (Some(mean), error, _) => format!("{} ± {}", number(mean), error.map_or_else(|| "–".to_owned(), number)),
        (_, _, Some(holds)) => format!("{holds} of {}", mean["of"]),
        _ => result_text(mean),
    }
}

/// A metric of all runs as one curve: the mean over steps, with a band.
pub(crate) fn curve(histories: &[History], metric: &str, name: String, colour: &'static str) -> Curve {
    let lines: Vec<_> = histories.iter().map(|history| history.points(metric, 0..history.len(), POINTS)).collect();
    Curve::banded(name, colour, &band(&lines, POINTS))
}

/// All metrics.
fn plots(histories: &[History]) -> Vec<Plot> {
    let names = histories.iter().flat_map(|history| history.names()).map(String::as_str);
    let draw = |(title, members): (String, Vec<String>)| {
        let curves = members.iter().enumerate().map(|(i, name)| curve(histories, name, name.clone(), colour(i)));
        Plot { title: titled(&title, &members), x_label: "steps".into(), curves: curves.collect(), marks: Vec::new() }
    };
    plan(names).into_iter().map(draw).collect()
}
