//! The `operant` command: one file per verb.

mod bench;
mod list;
mod output;

use clap::{Parser, Subcommand};
use operant::device::alloc::CountingAllocator;
use std::process::ExitCode;

/// Counts allocations, so that `bench` can show that a loop makes none.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Reinforcement learning and simulation at the speed of the hardware.
#[derive(Debug, Parser)]
#[command(name = "operant", version, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "Try:\n  operant bench env cartpole\n  operant list\n  operant list cartpole";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure speed.
    Bench(bench::Args),
    /// Show environments, algorithms and devices, or one environment in full.
    List(list::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Bench(args) => bench::run(&args),
        Verb::List(args) => list::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(output::Failure::Usage(message)) => output::fail(&message, 2),
        Err(output::Failure::Run(message)) => output::fail(&message, 1),
    }
}
