//! `operant field`: what a collection holds, whether it is whole, the same bits again, pictures.

mod panels;
mod picture;
mod show;

use crate::collect::evenness_text;
use crate::collect::{made_on, on_device};
use crate::format::{number, table, with_unit, wrapped};
use crate::output::{Failure, count, print};
use clap::Subcommand;
use operant::field::Evenness;
use operant::field::collect::{Collection, FailedOperators, flags, of_store};
use operant::field::features::{self, ARCHITECTURE, FAMILIES, METRICS, TERMS};
use operant::field::initial::KINDS;
use operant::field::shards::Shards;
use operant::field::{Architecture, Map, Parameter, Space};
use picture::Colours;
use serde_json::{Value, json};
use show::Look;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What is in a store: operators, arrays, parameters, flags.
    Info {
        /// Folder of the store.
        folder: PathBuf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Whether a store is whole: checksums, missing operators, numbers that are not finite, evenness of parameters. Exits with 1 if not.
    Validate {
        /// Folder of the store.
        folder: PathBuf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Features of operators as CSV: their means over realisations.
    Features {
        /// Folder of the store.
        folder: PathBuf,
        /// Only this operator.
        #[arg(long, value_parser = count::<u32>, allow_negative_numbers = true)]
        operator: Option<u32>,
        /// Roll out again and extract them anew, in place of reading them.
        #[arg(long)]
        again: bool,
    },
    /// Roll an operator out again and compare every array bit for bit. Exits with 1 where one differs.
    Replay {
        /// Folder of the store.
        folder: PathBuf,
        /// Which operator.
        #[arg(long, default_value_t = 0, value_parser = count::<u32>, allow_negative_numbers = true)]
        operator: u32,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// A picture (.png, of the last field) or a film (.gif, or .mp4 by ffmpeg) of an operator: each channel of a realisation, mean and
    /// variance over realisations, logarithm of the power spectrum, principal components over time.
    Visualize {
        /// Folder of the store.
        folder: PathBuf,
        /// Which operator.
        #[arg(long, default_value_t = 0, value_parser = count::<u32>, allow_negative_numbers = true)]
        operator: u32,
        /// Where to; its ending decides.
        #[arg(long, default_value = "field.gif")]
        out: PathBuf,
        /// Steps between frames of a film, and between fields that principal components are made from.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
        every: u32,
        /// Pixels per grid point.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16), allow_negative_numbers = true)]
        zoom: u32,
        /// Colours of numbers, from the least to the most of a panel.
        #[arg(long, value_enum, default_value_t = Colours::Viridis)]
        colors: Colours,
        /// Frames per second of a film.
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=50), allow_negative_numbers = true)]
        fps: u32,
    },
    /// One page of operators, each with a film, its parameters and its features, which cards can be sorted by. The file stands alone.
    Gallery {
        /// Folder of the store.
        folder: PathBuf,
        /// The page to write.
        #[arg(long, default_value = "gallery.html")]
        out: PathBuf,
        /// Operators that are shown, from the first on. Fields that are not stored are made again.
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
        limit: u32,
        /// Frames of a film.
        #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=200), allow_negative_numbers = true)]
        frames: u32,
        /// Colours of numbers, from the least to the most of a panel.
        #[arg(long, value_enum, default_value_t = Colours::Viridis)]
        colors: Colours,
    },
    /// Parameters that are sampled, kinds of first fields, features with their formulas.
    List,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.what {
        What::Info { folder, json } => info(folder, *json),
        What::Validate { folder, json } => validate(folder, *json),
        What::Features { folder, operator, again } => extract(folder, *operator, *again),
        What::Replay { folder, operator, json } => replay(folder, *operator, *json),
        What::Visualize { folder, operator, out, every, zoom, colors, fps } => {
            let (operator, every, zoom, colours, fps) = (*operator, *every, *zoom, *colors, *fps);
            show::visualize(folder, &Look { operator, out, every, zoom, colours, fps })
        }
        What::Gallery { folder, out, limit, frames, colors } => show::gallery(folder, out, *limit, *frames, *colors),
        What::List => list(),
    }
}

fn open(folder: &Path) -> Result<(Collection, Shards), Failure> {
    let store = Shards::open(folder)?;
    Ok((of_store(folder)?, store))
}

/// Names of a store's features: those of the version that made it.
fn feature_names(folder: &Path) -> Result<Vec<String>, Failure> {
    let path = folder.join("zarr.json");
    let wrong = |text: String| Failure::Run(format!("can't read {}: {text}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let group: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let names = group["attributes"]["features"].as_array().ok_or_else(|| wrong("it names no features".into()))?;
    Ok(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

fn operator_of(store: &Shards, k: u32) -> Result<(), Failure> {
    if store.done().get(k as usize) == Some(&true) {
        return Ok(());
    }
    let (done, count) = (store.done().iter().filter(|&&done| done).count(), store.done().len());
    Err(Failure::Usage(format!("--operator {k}: the store has {done} of {count} operators, and this is none of them")))
}

/// Numbers of a part of every record that is there.
fn column(store: &Shards, name: &str) -> Result<Vec<Vec<f64>>, Failure> {
    let mut rows = Vec::new();
    for k in (0..store.done().len()).filter(|&k| store.done()[k]) {
        rows.extend(store.numbers(name, k)?);
    }
    Ok(rows)
}

fn flag_counts(store: &Shards) -> Result<[usize; 3], Failure> {
    let all = column(store, "flags")?;
    Ok([flags::NOT_FINITE, flags::STATIONARY, flags::CONSTANT]
        .map(|flag| all.iter().filter(|row| row[0] as u8 & flag != 0).count()))
}

fn info(folder: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let (collection, store) = open(folder)?;
    let (layout, s) = (store.layout(), &collection.settings);
    let done = store.done().iter().filter(|&&done| done).count();
    let [not_finite, stationary, constant] = flag_counts(&store)?;
    let values = column(&store, "parameters")?;
    let kinds = column(&store, "initial")?;
    let of_kind = |place: usize| kinds.iter().filter(|row| row[0] as usize == place).count();
    if as_json {
        let report = json!({
            "operators": done, "count": layout.count, "realisations": s.realisations, "steps": s.steps,
            "channels": s.channels, "seed": s.seed, "not_finite": not_finite, "stationary": stationary,
            "constant": constant, "compression": layout.codec, "file_bytes": store.sizes().0,
            "number_bytes": store.sizes().1, "arrays": layout.arrays, "notes": store.notes(), "features": features::names(),
        });
        print(&format!("{report}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!(
        "operators         {done} of {}; {} realisations, {} steps, {} channels, seed {}\n\
         flags             {not_finite} not finite, {stationary} stationary, {constant} constant at the end\n",
        layout.count, s.realisations, s.steps, s.channels, s.seed
    );
    let (files, numbers) = store.sizes();
    let files = with_unit(files as f64, "bytes");
    text += &format!(
        "{:<18}{files} for {} of numbers ({})\n",
        "shards",
        with_unit(numbers as f64, "bytes"),
        layout.codec.name()
    );
    for (key, value) in store.notes() {
        text += &format!("{key:<18}{value}\n");
    }
    text += "arrays\n";
    let rows: Vec<Vec<String>> = layout
        .arrays
        .iter()
        .map(|array| {
            let axes: Vec<String> =
                array.axes.iter().zip(&array.shape).map(|(axis, n)| format!("{axis} {n}")).collect();
            vec![format!("  {}", array.name), format!("{:?}", array.dtype).to_lowercase(), axes.join(", ")]
        })
        .collect();
    text += &table(&rows, &[]);
    text += "parameters, from least to most\n";
    let mut rows = Vec::new();
    for (i, parameter) in collection.space.parameters.iter().enumerate() {
        let shown = match &parameter.map {
            Map::Choice(words) => {
                let of = |place: usize| values.iter().filter(|row| row[i] as usize == place).count();
                words
                    .iter()
                    .enumerate()
                    .map(|(place, (word, _))| format!("{word} {}", of(place)))
                    .collect::<Vec<_>>()
                    .join(", ")
            }
            _ => {
                let least = values.iter().map(|row| row[i]).fold(f64::INFINITY, f64::min);
                let most = values.iter().map(|row| row[i]).fold(f64::NEG_INFINITY, f64::max);
                format!("{} to {}", number(least), number(most))
            }
        };
        rows.push(vec![format!("  {}", parameter.name), shown]);
    }
    text += &table(&rows, &[]);
    text += "first fields\n";
    let rows: Vec<Vec<String>> = KINDS
        .iter()
        .enumerate()
        .filter(|(place, _)| of_kind(*place) > 0)
        .map(|(place, kind)| vec![format!("  {}", kind.name), of_kind(place).to_string()])
        .collect();
    text += &table(&rows, &[false, true]);
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn validate(folder: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let (collection, store) = open(folder)?;
    let mut damaged = store.damaged();
    let splits = std::fs::read(folder.join("splits.json")).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if splits != Some(collection.splits()) {
        damaged.push("splits.json".to_owned());
    }
    let failed = FailedOperators::open(folder)?;
    let missing: Vec<usize> = (0..store.done().len()).filter(|&k| !store.done()[k]).collect();
    // What is damaged can't be looked at.
    let readable = damaged.is_empty();
    let [not_finite, stationary, constant] = if readable { flag_counts(&store)? } else { [0; 3] };
    let points: Vec<f64> = if readable { column(&store, "unit")?.concat() } else { Vec::new() };
    let axes = collection.space.parameters.len();
    let evenness = (points.len() >= 2 * axes).then(|| Evenness::of(&points, axes));
    let mut misplaced = Vec::new();
    for k in (0..store.done().len()).filter(|&k| readable && store.done()[k]) {
        let wanted = collection.sampled(k as u32);
        if store.numbers("parameters", k)? != Some(wanted.values) {
            misplaced.push(k);
        }
    }
    let whole = damaged.is_empty() && missing.is_empty() && misplaced.is_empty();
    if as_json {
        let even = evenness.as_ref().map(|e| {
            json!({"centred_discrepancy": e.centred_discrepancy, "correlation": e.correlation, "chi_squared": e.chi_squared, "even": e.holds()})
        });
        let report = json!({
            "whole": whole, "damaged": damaged, "missing": missing, "other_parameters": misplaced,
            "not_finite": not_finite, "stationary": stationary, "constant": constant, "evenness": even, "failed": failed.list(),
        });
        print(&format!("{report}\n"))?;
    } else {
        let mut text = format!(
            "files             {}\n\
             operators         {} of {} missing\n\
             parameters        {} differ from what the settings sample\n\
             flags             {not_finite} not finite, {stationary} stationary, {constant} constant at the end\n",
            if damaged.is_empty() { "whole".to_owned() } else { format!("damaged: {}", damaged.join(", ")) },
            missing.len(),
            store.done().len(),
            misplaced.len(),
        );
        text += &evenness.as_ref().map(evenness_text).unwrap_or_default();
        for failed in failed.list() {
            let which = if failed.certain { "failed" } else { "may have failed" };
            text += &format!("operator {} {which}: {} ({})\n", failed.operator, failed.error, failed.settings);
        }
        print(&text)?;
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn extract(folder: &Path, operator: Option<u32>, again: bool) -> Result<ExitCode, Failure> {
    let (collection, store) = open(folder)?;
    if let Some(k) = operator {
        operator_of(&store, k)?;
    }
    if again {
        collection.check_draws(&store)?;
    }
    let names = if again { features::names() } else { feature_names(folder)? };
    print(&format!("operator,{}\n", names.join(",")))?;
    let chosen = |k: &usize| operator.map_or(store.done()[*k], |operator| operator as usize == *k);
    for k in (0..store.done().len()).filter(chosen) {
        let row: Vec<f64> = if again {
            let sampled = collection.sampled(k as u32);
            let outcome = collection.outcome(&sampled, &AtomicBool::new(false))?;
            let rows = outcome.map_or_else(Vec::new, |outcome| outcome.trajectories);
            let [mean, ..] = features::aggregate(&rows);
            mean.into_iter().map(|x| f64::from(x as f32)).collect()
        } else {
            store.numbers("features", k)?.unwrap_or_default()
        };
        let cells: Vec<String> = row.iter().take(names.len()).map(|&x| (x as f32).to_string()).collect();
        print(&format!("{k},{}\n", cells.join(",")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn replay(folder: &Path, k: u32, as_json: bool) -> Result<ExitCode, Failure> {
    let (collection, store) = open(folder)?;
    operator_of(&store, k)?;
    let collection = on_device(collection, &made_on(&store))?;
    let differing = collection.replay(&store, k)?;
    if as_json {
        print(&format!("{}\n", json!({"operator": k, "same": differing.is_empty(), "differing": differing})))?;
    } else if differing.is_empty() {
        print(&format!("operator {k}: every bit is the same, of {} arrays\n", store.layout().arrays.len()))?;
    } else {
        let from = store.notes().get("machine").map_or("", String::as_str);
        print(&format!("operator {k} differs: {} (stored by: {from})\n", differing.join(", ")))?;
    }
    Ok(if differing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Letters of a line of running text.
const TEXT_WIDTH: usize = 120;

fn list() -> Result<ExitCode, Failure> {
    let mut text = "sampled parameters\n".to_owned();
    let rows = |architecture: Architecture| -> Vec<Vec<String>> {
        let row = |p: &Parameter| vec![format!("  {}", p.name), p.map.range(), p.meaning.to_owned()];
        Space::of(architecture).parameters.iter().map(row).collect()
    };
    let (plain, mut more) = (rows(Architecture::Cnn), rows(Architecture::Uafno));
    text += &table(&plain, &[]);
    text += "with operator = \"uafno\" also, or instead\n";
    more.retain(|row| !plain.contains(row));
    text += &table(&more, &[]);
    text += "kinds of first fields, of weight 1 each; initial.KIND=WEIGHT changes one, initial.others=WEIGHT those that are not named\n";
    let rows: Vec<Vec<String>> =
        KINDS.iter().map(|kind| vec![format!("  {}", kind.name), kind.meaning.to_owned()]).collect();
    text += &table(&rows, &[]);
    text += "in the formulas below\n";
    text += &wrapped(TERMS, TEXT_WIDTH, "  ");
    text += "metrics of every time\n";
    let rows: Vec<Vec<String>> =
        METRICS.iter().map(|metric| vec![format!("  {}", metric.name), metric.formula.to_owned()]).collect();
    text += &table(&rows, &[]);
    text += "descriptors of architectures\n";
    let rows: Vec<Vec<String>> =
        ARCHITECTURE.iter().map(|one| vec![format!("  {}", one.name), one.formula.to_owned()]).collect();
    text += &table(&rows, &[]);
    let mut index = 0;
    for family in FAMILIES {
        text += &format!("features: {} ({})\n", family.name, family.reference);
        text += &wrapped(family.terms, TEXT_WIDTH, "  ");
        let rows: Vec<Vec<String>> = family
            .features
            .iter()
            .map(|feature| {
                index += 1;
                vec![
                    format!("  {}", index - 1),
                    format!("{}.{}", family.name, feature.name),
                    feature.formula.to_owned(),
                ]
            })
            .collect();
        text += &table(&rows, &[true]);
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
