//! The `operant` command: one file per verb.

mod backgammon;
mod batch_report;
mod bench;
mod collect;
mod compare;
mod cube2;
mod doctor;
mod eval;
mod export;
mod field;
mod format;
mod found;
mod grow;
mod growth_log;
mod growth_view;
mod history;
mod html;
mod interrupt;
mod list;
mod live;
mod matches;
mod monitor;
mod output;
mod parquet;
mod picture;
mod query;
mod report;
mod run_folder;
mod runs;
mod seeds;
mod serve;
mod solve;
mod solved;
mod spread;
mod svg;
mod train;
mod tui;
mod versus;

use clap::{Parser, Subcommand};
use operant::device::alloc::CountingAllocator;
use std::process::ExitCode;
use std::time::Instant;

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

const AFTER_HELP: &str =
    "Try:\n  operant train ppo cartpole\n  operant bench env cartpole\n  operant list\n  operant list cartpole";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Train an agent.
    Train(train::Args),
    /// Play episodes with a trained policy.
    Eval(eval::Args),
    /// Watch a run while it goes on, or look at one that ended.
    Monitor(monitor::Args),
    /// List runs.
    Runs(runs::Args),
    /// Show what differs between runs.
    Compare(compare::Args),
    /// Write a page with a run's plots, results, events and settings.
    Report(report::Args),
    /// Show runs in a web browser while they go on.
    Serve(serve::Args),
    /// Write a run's metrics as a table.
    Export(export::Args),
    /// Ask a run's tables in SQL.
    Query(query::Args),
    /// Measure speed.
    Bench(bench::Args),
    /// Play a game against a trained network.
    Play(backgammon::PlayArgs),
    /// Show the best plays in a position of a game.
    Analyse(backgammon::AnalyseArgs),
    /// Know backgammon: exact endings.
    Backgammon(backgammon::Args),
    /// Make a dataset.
    Collect(collect::Args),
    /// Look at a dataset of neural operators: what is in it, whether it is whole, the same bits again, pictures.
    Field(field::Args),
    /// Know the 2×2×2 cube: exact distances, shortest solutions, scrambles.
    Cube2(cube2::Args),
    /// Grow networks: the heuristic controller, the host alone, a trained policy, and speed.
    Grow(grow::Args),
    /// Show environments, algorithms and devices, or one environment in full.
    List(list::Args),
    /// Say whether a GPU can be used here, what was found and what is missing.
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    let started = Instant::now();
    operant::device::survive_file_size_limit();
    let done = |()| ExitCode::SUCCESS;
    let verb = Cli::parse().verb;
    let only_reads = matches!(
        verb,
        Verb::Monitor(_)
            | Verb::Runs(_)
            | Verb::Compare(_)
            | Verb::Report(_)
            | Verb::Serve(_)
            | Verb::Export(_)
            | Verb::Query(_)
            | Verb::List(_)
            | Verb::Doctor(_)
    );
    if let (false, Err(error)) = (only_reads, operant::lanes::check_cpu()) {
        return output::fail(&error.to_string(), 1);
    }
    let result = match verb {
        Verb::Train(args) => train::run(&args, started),
        Verb::Eval(args) => eval::run(&args).map(done),
        Verb::Monitor(args) => monitor::run(&args).map(done),
        Verb::Runs(args) => runs::run(&args).map(done),
        Verb::Compare(args) => compare::run(&args).map(done),
        Verb::Report(args) => report::run(&args).map(done),
        Verb::Serve(args) => serve::run(&args).map(done),
        Verb::Export(args) => export::run(&args).map(done),
        Verb::Query(args) => query::run(&args).map(done),
        Verb::Bench(args) => bench::run(&args).map(done),
        Verb::Play(args) => backgammon::play(&args).map(done),
        Verb::Analyse(args) => backgammon::analyse(&args).map(done),
        Verb::Backgammon(args) => backgammon::run(&args).map(done),
        Verb::Collect(args) => collect::run(&args),
        Verb::Field(args) => field::run(&args),
        Verb::Cube2(args) => cube2::run(&args).map(done),
        Verb::Grow(args) => grow::run(&args).map(done),
        Verb::List(args) => list::run(&args).map(done),
        Verb::Doctor(args) => doctor::run(&args).map(done),
    };
    match result {
        Ok(code) => code,
        Err(output::Failure::Usage(message)) => output::fail(&message, 2),
        Err(output::Failure::Run(message)) => output::fail(&message, 1),
    }
}
