//! `operant export`: a run's metrics as a table for other programs.

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
    /// A run's folder, or its name below --dir.
    run: String,
    /// The file to write; - for standard output.
    #[arg(long, value_name = "FILE")]
    csv: PathBuf,
    /// Where runs are.
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let folder = RunFolder::find(&args.run, &args.dir)?;
    let history = folder.history(usize::MAX)?;
    if history.len() == 0 {
        let path = folder.path.join("metrics.jsonl");
        return Err(Failure::Run(format!("no samples in {}; has the run begun?", path.display())));
    }
    let text = csv(&history);
    if args.csv == Path::new("-") {
        return print(&text);
    }
    write(&args.csv, &text, "--csv")?;
    print(&format!("{}: {} samples\n", args.csv.display(), history.len()))
}

/// A header, then a line per sample; what is not known is empty.
fn csv(history: &History) -> String {
    let mut text = String::from("step,seconds");
    history.names().iter().for_each(|name| text.push_str(&format!(",{}", quoted(name))));
    text.push('\n');
    let columns: Vec<&[f64]> = history.names().iter().filter_map(|name| history.column(name)).collect();
    for i in 0..history.len() {
        let _ = write!(text, "{},{}", history.steps()[i], history.seconds()[i]);
        for column in &columns {
            text.push(',');
            if column[i].is_finite() {
                let _ = write!(text, "{:?}", column[i]);
            }
        }
        text.push('\n');
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
        assert_eq!(csv(&history), "step,seconds,\"a,b\",c\n1,0.5,1e-7,\n2,1,,3.0\n");
    }
}
