//! `operant export`: a run's metrics as a table for other programs.

use crate::found::Found;
use crate::history::History;
use crate::output::{Failure, print};
use crate::report::write;
use crate::run_folder::{RUNS, RunFolder};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  operant export runs/RUN --csv metrics.csv\n  operant export runs/RUN --csv - | head"
)]
pub(crate) struct Args {
    /// A run's folder, or that of a batch of seeds, or its name below --dir.
    run: String,
    /// The file to write; - for standard output.
    #[arg(long, value_name = "FILE")]
    csv: PathBuf,
    /// Where runs are.
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let found = Found::find(&args.run, &args.dir)?;
    let read = |(seed, folder): (Option<u64>, &RunFolder)| Ok((seed, folder.history(usize::MAX)?));
    let histories = found.seeded().into_iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    let samples: usize = histories.iter().map(|(_, history)| history.len()).sum();
    if samples == 0 {
        let path = found.path().join("metrics.jsonl");
        return Err(Failure::Run(format!("no samples in {}; has the run begun?", path.display())));
    }
    let text = csv(&histories);
    if args.csv == Path::new("-") {
        return print(&text);
    }
    write(&args.csv, &text, "--csv")?;
    print(&format!("{}: {samples} samples\n", args.csv.display()))
}

/// A header, then a line per sample; what is not known is empty. Runs of a batch begin with their seed.
fn csv(histories: &[(Option<u64>, History)]) -> String {
    let mut names: Vec<&String> = Vec::new();
    for name in histories.iter().flat_map(|(_, history)| history.names()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let seeds = histories.iter().any(|(seed, _)| seed.is_some());
    let mut text = String::from(if seeds { "seed,step,seconds" } else { "step,seconds" });
    names.iter().for_each(|name| text.push_str(&format!(",{}", quoted(name))));
    text.push('\n');
    for (seed, history) in histories {
        let columns: Vec<Option<&[f64]>> = names.iter().map(|name| history.column(name)).collect();
        for i in 0..history.len() {
            let _ = seed.map(|seed| write!(text, "{seed},"));
            let _ = write!(text, "{},{}", history.steps()[i], history.seconds()[i]);
            for column in &columns {
                text.push(',');
                if let Some(value) = column.map(|column| column[i]).filter(|value| value.is_finite()) {
                    let _ = write!(text, "{value:?}");
                }
            }
            text.push('\n');
        }
    }
    text
}

/// RFC 4180: a field with a comma or a quote stands in quotes.
pub(crate) fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_empty_and_names_are_quoted() {
        let mut history = History::default();
        history.push(1, 0.5, [("a,b", 1e-7)].into_iter());
        history.push(2, 1.0, [("c", 3.0)].into_iter());
        assert_eq!(csv(&[(None, history.clone())]), "step,seconds,\"a,b\",c\n1,0.5,1e-7,\n2,1,,3.0\n");
        let mut other = History::default();
        other.push(1, 0.5, [("c", 4.0)].into_iter());
        let both = csv(&[(Some(3), history), (Some(4), other)]);
        assert_eq!(both, "seed,step,seconds,\"a,b\",c\n3,1,0.5,1e-7,\n3,2,1,,3.0\n4,1,0.5,,4.0\n");
    }
}
