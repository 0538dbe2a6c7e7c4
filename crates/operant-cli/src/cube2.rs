//! `operant cube2`: the exact distances of the 2×2×2 cube, shortest solutions, scrambles of an exact distance.

use crate::output::{Failure, count, grouped, print};
use crate::solve::MOST_STATES;
use operant::env::cube::{
    Cubies, DistanceTable, Metric, Pocket, ansi_net, parse_facelets, parse_moves, print_facelets, print_moves,
};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Count the states at every distance, and write the distances of all.
    Table(TableArgs),
    /// Print a shortest solution.
    Solve(SolveArgs),
    /// Print scrambles that lead to an exact distance.
    Scramble(ScrambleArgs),
}

#[derive(Debug, clap::Args)]
struct TableArgs {
    #[command(flatten)]
    of: Of,
    /// Write the table here.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct SolveArgs {
    /// The scramble, as moves from the solved state.
    #[arg(required_unless_present = "facelets")]
    moves: Vec<String>,
    /// The cube as 24 letters: faces U R F D L B, row by row.
    #[arg(long, value_name = "LETTERS", conflicts_with = "moves")]
    facelets: Option<String>,
    /// Show the unfolded cube first.
    #[arg(long)]
    net: bool,
    #[command(flatten)]
    of: Of,
    /// Read distances from this table in place of searching them.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ScrambleArgs {
    /// Moves of the shortest solution.
    #[arg(long, value_parser = count::<usize>, allow_negative_numbers = true)]
    depth: usize,
    /// How many.
    #[arg(long, default_value_t = 1, value_parser = count::<usize>, allow_negative_numbers = true)]
    count: usize,
    /// Seed of the draw.
    #[arg(long, default_value_t = 0, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    of: Of,
}

#[derive(Debug, clap::Args)]
struct Of {
    /// What counts as one move: qtm (quarter turns) or htm (half turns too).
    #[arg(long, default_value = "qtm")]
    metric: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Table(args) => table(args),
        What::Solve(args) => solve(args),
        What::Scramble(args) => scramble(args),
    }
}

fn table(args: &TableArgs) -> Result<(), Failure> {
    let (metric, begun) = (Metric::named(&args.of.metric)?, Instant::now());
    let table = DistanceTable::build(&Pocket::new(), metric);
    let (counts, seconds) = (table.counts(), begun.elapsed().as_secs_f64());
    if let Some(path) = &args.out {
        table.save(path)?;
    }
    if args.of.json {
        let out = args.out.as_ref().map(|path| path.display().to_string());
        let object = json!({ "metric": metric.name(), "counts": counts, "seconds": seconds, "out": out });
        return print(&format!("{object}\n"));
    }
    let mut text = format!("moves to solve ({})    states\n", metric.name());
    for (distance, &states) in counts.iter().enumerate() {
        text += &format!("{distance:>20} {:>9}\n", grouped(states as f64));
    }
    let states: usize = counts.iter().sum();
    text += &format!("all states           {:>9}, searched in {seconds:.2} s\n", grouped(states as f64));
    if let Some(path) = &args.out {
        text += &format!("written to {}\n", path.display());
    }
    print(&text)
}

/// Actions as text.
fn shown(actions: &[usize]) -> String {
    print_moves(&actions.iter().map(|&action| Pocket::action_move(action)).collect::<Vec<_>>())
}

fn solve(args: &SolveArgs) -> Result<(), Failure> {
    let metric = Metric::named(&args.of.metric)?;
    let cube = match &args.facelets {
        Some(text) => parse_facelets(text, 2)?,
        None => {
            let moves = parse_moves(&args.moves.join(" "))?;
            moves.iter().fold(Cubies::SOLVED, |cube, &(face, quarters)| cube.turned(face, quarters))
        }
    };
    let state = Pocket::index_of_any(&cube)?;
    let held = Pocket::cubies(state);
    let table = match &args.table {
        Some(path) => DistanceTable::load(path)?,
        None => DistanceTable::build(&Pocket::new(), metric),
    };
    if table.metric() != metric {
        let (got, wanted) = (table.metric().name(), metric.name());
        return Err(Failure::Usage(format!("the table is of {got}, wanted {wanted}: name it with --metric")));
    }
    let solution = table.solve(&Pocket::new(), state);
    if args.of.json {
        let object = json!({
            "facelets": print_facelets(&held, 2), "metric": metric.name(), "length": solution.len(),
            "solution": shown(&solution),
        });
        return print(&format!("{object}\n"));
    }
    let net = if args.net { ansi_net(&held, 2) } else { String::new() };
    // A cube held otherwise is turned as a whole first: the moves are for that way of holding it.
    let way = if Pocket::index(&cube) == state && cube.corners[7] == 7 && cube.twists[7] == 0 {
        String::new()
    } else {
        format!("hold it as {}\n", print_facelets(&held, 2))
    };
    let moves = if solution.is_empty() { "solved already".to_owned() } else { shown(&solution) };
    let (count, name) = (solution.len(), metric.name());
    print(&format!("{net}{way}{moves}\n{count} move{} ({name})\n", if count == 1 { "" } else { "s" }))
}

fn scramble(args: &ScrambleArgs) -> Result<(), Failure> {
    if !(1..=MOST_STATES).contains(&args.count) {
        return Err(Failure::Usage(format!("--count {}: wanted 1..={MOST_STATES}", args.count)));
    }
    let (metric, pocket) = (Metric::named(&args.of.metric)?, Pocket::new());
    let table = DistanceTable::build(&pocket, metric);
    let states = table.draw(args.depth, args.count, args.seed)?;
    let scrambles: Vec<String> = states
        .iter()
        .map(|&state| {
            let solution = table.solve(&pocket, state);
            shown(&solution.iter().rev().map(|&action| Pocket::inverse(action)).collect::<Vec<_>>())
        })
        .collect();
    if args.of.json {
        let facelets: Vec<String> = states.iter().map(|&state| print_facelets(&Pocket::cubies(state), 2)).collect();
        let object = json!({
            "depth": args.depth, "metric": metric.name(), "seed": args.seed, "scrambles": scrambles, "facelets": facelets,
        });
        return print(&format!("{object}\n"));
    }
    print(&scrambles.iter().map(|moves| format!("{moves}\n")).collect::<String>())
}
