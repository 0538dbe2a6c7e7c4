//! `operant bench selfplay`: games per minute of self-play by search over a network, with learning if `--learn` says so. Games begin together, and
//! short ones end first: they are counted from the time on when so many ended as are played side by side twice over, so that ends have spread.

use super::game::GameName;
use crate::output::{Failure, count, grouped, print};
use crate::run_folder::part_file;
use operant::CATALOGUE;
use operant::algo::Report;
use operant::config::{self, Table};
use operant::device::{self, alloc};
use operant::nn::nets::Architecture;
use operant::run::{Config, build_algorithm, build_env, build_pool};
use operant::search::game_net;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The game.
    #[arg(value_enum)]
    game: GameName,
    /// Simulations per decision.
    #[arg(long, default_value_t = 400, value_parser = count::<usize>, allow_negative_numbers = true)]
    simulations: usize,
    /// Leaves of a game that wait together.
    #[arg(long, default_value_t = 4, value_parser = count::<usize>, allow_negative_numbers = true)]
    leaves: usize,
    /// Games side by side.
    #[arg(long, default_value_t = 64, value_parser = count::<usize>, allow_negative_numbers = true)]
    games: usize,
    /// Residual blocks of 128; 5 are about 283 k weights in backgammon.
    #[arg(long, default_value_t = 5, value_parser = count::<usize>, allow_negative_numbers = true, conflicts_with = "model")]
    blocks: usize,
    /// Who plays: the folder of a run of alphazero, or a .safetensors file of one [default: a network that has learned nothing].
    #[arg(long, value_name = "RUN")]
    model: Option<PathBuf>,
    /// f32, bf16 or auto.
    #[arg(long, default_value = "f32")]
    precision: String,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = count::<usize>, allow_negative_numbers = true)]
    threads: usize,
    /// Games to count, after a warm-up of two per place.
    #[arg(long, default_value_t = 128, value_parser = count::<usize>, allow_negative_numbers = true)]
    count: usize,
    /// Learn too, in place of playing alone.
    #[arg(long)]
    learn: bool,
    /// More settings, as in alphazero.search.transpositions=true.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The part of a checkpoint that plays.
const NETWORK: &str = "network.safetensors";

/// A trained network for this game: its file, the width and the number of its blocks.
fn trained(path: &Path, game: GameName) -> Result<(Vec<u8>, usize, usize), Failure> {
    let path = part_file(path, NETWORK, "--model to name a run of alphazero, or its file")?;
    let bytes =
        std::fs::read(&path).map_err(|error| Failure::Run(format!("can't read {}: {error}", path.display())))?;
    let (of, wanted) = (game_net::game_of(&bytes)?, game.name());
    match Architecture::from_bytes(&bytes)?.0 {
        Architecture::Residual { width, blocks, .. } if of == wanted => Ok((bytes, width, blocks)),
        _ => Err(Failure::Usage(format!("{}: a network for {of}; wanted one for {wanted}", path.display()))),
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.count == 0 {
        return Err(Failure::Usage("--count 0: wanted at least 1".into()));
    }
    let mut over = Table::new();
    let model = args.model.as_deref().map(|path| trained(path, args.game)).transpose()?;
    let (width, blocks) = model.as_ref().map_or((128, args.blocks.max(1)), |(_, width, blocks)| (*width, *blocks));
    let widths = vec![width.to_string(); blocks].join(",");
    let words = [
        format!("network.hidden=[{widths}]"),
        format!("num_envs={}", args.games),
        format!("threads={}", args.threads),
        format!("precision={}", args.precision),
        format!("alphazero.search.simulations={}", args.simulations),
        format!("alphazero.search.leaves={}", args.leaves),
        format!("alphazero.reuse={}", if args.learn { "4.0" } else { "0.0" }),
    ];
    words.iter().chain(&args.set).try_for_each(|word| config::assign(&mut over, word))?;
    let config = Config::resolve(&CATALOGUE, "alphazero", args.game.name(), over)?;
    if let Some(note) = config.precision_note()? {
        crate::output::warn(note);
    }
    let pool = build_pool(&config);
    let mut algorithm = build_algorithm(&config, build_env(&config, &pool)?, pool)?;
    if let Some((bytes, ..)) = model {
        let mut parts = algorithm.save()?;
        parts.insert(NETWORK.into(), bytes);
        algorithm.load(&parts)?;
    }
    let mut report = Report::new(algorithm.metrics().len());
    let at = |name: &str, algorithm: &dyn operant::algo::Algorithm| {
        algorithm.metrics().iter().position(|metric| metric.name == name).expect("a metric of alphazero")
    };
    let places = ["evals", "forced", "tree_reuse", "depth", "time/hidden"].map(|name| at(name, &*algorithm));
    let ended = at("games", &*algorithm);
    let mut warm = 0.0;
    while warm < 2.0 * args.games as f64 {
        report.begin();
        algorithm.iterate(&mut report);
        warm += report.values[ended];
    }
    let (start, cpu, allocated) = (Instant::now(), device::cpu_seconds(), alloc::allocations());
    // Some iterations have nothing to say of the learner.
    let (mut iterations, mut games, mut sums, mut counts) = (0_u32, 0.0, [0.0; 5], [0.0; 5]);
    while games < args.count as f64 {
        report.begin();
        algorithm.iterate(&mut report);
        iterations += 1;
        games += report.values[ended];
        for ((sum, count), place) in sums.iter_mut().zip(&mut counts).zip(places) {
            let value = report.values[place];
            if value.is_finite() {
                *sum += value;
                *count += 1.0;
            }
        }
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), device::cpu_seconds() - cpu);
    let allocations = (alloc::allocations() - allocated) as f64 / games;
    let mean = |i: usize| sums[i] / counts[i];
    let [evals, forced, reuse, depth, hidden] = [0, 1, 2, 3, 4].map(mean);
    let decisions = f64::from(iterations) * algorithm.steps_per_iteration() as f64;
    let (moves_per_game, games_per_cpu_min) = (decisions / games, 60.0 * games / cpu);
    let evals_per_cpu_s = evals * decisions / cpu;
    if args.json {
        let object = json!({
            "game": args.game.name(), "simulations": args.simulations, "leaves": args.leaves, "games_side_by_side": args.games,
            "blocks": blocks, "width": width, "model": args.model, "precision": config.precision()?.name(), "threads": args.threads, "learning": args.learn,
            "games_per_cpu_min": games_per_cpu_min, "moves_per_game": moves_per_game, "decisions_per_cpu_s": decisions / cpu,
            "evals_per_cpu_s": evals_per_cpu_s, "evals_per_decision": evals, "forced_share": forced, "tree_reuse": reuse,
            "mean_depth": depth, "hidden_share": hidden, "allocs_per_game": allocations, "games_counted": games, "wall_s": wall, "cpu_s": cpu,
            "machine": device::describe(),
        });
        return print(&format!("{object}\n"));
    }
    print(&format!(
        "self-play in {}, {} simulations per decision, {} residual blocks of {}, {}, {} threads\n\
         machine               {}\n\
         games/CPU-minute      {games_per_cpu_min:.0} ({games} counted, {moves_per_game:.0} decisions each, both players)\n\
         decisions/CPU-s       {}\n\
         evaluations/CPU-s     {} ({evals:.0} per decision)\n\
         forced                {:.1} % of decisions\n\
         learning hidden       {:.1} % of its time\n\
         kept from last turn   {:.1} % of simulations\n\
         allocations           {allocations:.1} per game\n",
        args.game.name(),
        args.simulations,
        blocks,
        width,
        config.precision()?.name(),
        args.threads,
        device::describe(),
        grouped(decisions / cpu),
        grouped(evals_per_cpu_s),
        100.0 * forced,
        100.0 * hidden,
        100.0 * reuse,
    ))
}
