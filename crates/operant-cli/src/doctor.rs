//! `operant doctor`: what of CUDA was found, what is missing and how to get it.

use crate::output::{Failure, print};
use operant::device::cuda::Report;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A machine without a GPU is no failure: the answer is the result.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let report = Report::look();
    print(&if args.json { format!("{}\n", report.to_json()) } else { report.to_string() })
}
