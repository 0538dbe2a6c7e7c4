//! `operant bench search`: simulations per second of CPU time with an evaluator that costs nothing, and what a tree does.

use super::game::GameName;
use crate::output::{Failure, count, grouped, print};
use operant::device::{self, alloc};
use operant::env::game::{Game, Turn, settle_chance};
use operant::lanes::rng::HostRng;
use operant::search::mcts::{ChanceMode, Counters, Mcts, Null, Settings};
use serde_json::json;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The game.
    #[arg(long, value_enum, default_value_t = GameName::Backgammon)]
    game: GameName,
    /// Simulations per decision.
    #[arg(long, default_value_t = 400, value_parser = count::<usize>, allow_negative_numbers = true)]
    simulations: usize,
    /// Leaves that wait together.
    #[arg(long, default_value_t = 1, value_parser = count::<usize>, allow_negative_numbers = true)]
    leaves: usize,
    /// What happens where chance decides.
    #[arg(long, value_enum, default_value_t = ChanceName::Sample)]
    chance: ChanceName,
    /// Equal states share a node.
    #[arg(long)]
    transpositions: bool,
    /// How long to measure.
    #[arg(long, default_value_t = 2.0, allow_negative_numbers = true)]
    seconds: f64,
    /// Seed of chance.
    #[arg(long, default_value_t = 0, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ChanceName {
    Sample,
    Widen,
    Exact,
}

/// What was measured.
struct Measured {
    per_cpu_s: f64,
    games: u64,
    decisions: u64,
    counters: Counters,
    allocations_per_game: f64,
}

/// Games by search alone, one after another, on this thread.
fn measure<G: Game>(settings: &Settings, seed: u64, seconds: f64) -> Result<Measured, Failure> {
    let mut mcts = Mcts::<G>::new(settings)?;
    let (mut null, mut states, mut chances) = (Null::default(), Vec::with_capacity(4096), vec![0.0; G::OUTCOMES]);
    let mut decisions = 0;
    let mut game = |mcts: &mut Mcts<G>, number: u32, until: (Instant, f64)| {
        let mut rng = HostRng::new(seed, number, 0, 0);
        let mut state = settle_chance::<G>(G::start(), &mut chances, &mut rng);
        mcts.begin(state, HostRng::new(seed, number, 1, 0));
        let mut turn = 1;
        while G::turn(&state) != Turn::Over {
            mcts.search(&mut null, &mut states);
            decisions += 1;
            let action = mcts.choose(1.0);
            state = settle_chance::<G>(G::after(&state, &mcts.actions()[action]), &mut chances, &mut rng);
            turn += 1;
            if G::turn(&state) != Turn::Over {
                mcts.advance(state, action, HostRng::new(seed, number, turn, 0));
            }
            if until.0.elapsed().as_secs_f64() > until.1 {
                return;
            }
        }
    };
    game(&mut mcts, 0, (Instant::now(), seconds.min(1.0)));
    mcts.take_counters();
    let allocated = alloc::allocations();
    let (start, cpu) = (Instant::now(), device::cpu_seconds());
    let mut games = 0;
    while start.elapsed().as_secs_f64() < seconds {
        games += 1;
        game(&mut mcts, games, (start, seconds));
    }
    let cpu = device::cpu_seconds() - cpu;
    let allocations_per_game = (alloc::allocations() - allocated) as f64 / f64::from(games);
    let counters = mcts.take_counters();
    Ok(Measured {
        per_cpu_s: counters.simulations as f64 / cpu,
        games: u64::from(games),
        decisions,
        counters,
        allocations_per_game,
    })
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !(args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(Failure::Usage(format!("--seconds {}: wanted more than 0 and at most 3600", args.seconds)));
    }
    let settings = Settings {
        simulations: args.simulations,
        leaves: args.leaves,
        transpositions: args.transpositions,
        chance: match args.chance {
            ChanceName::Sample => ChanceMode::Sample,
            ChanceName::Widen => ChanceMode::Widen,
            ChanceName::Exact => ChanceMode::Exact,
        },
        ..Settings::default()
    };
    let (seed, seconds) = (args.seed, args.seconds);
    let found = super::game::with_game!(args.game, G => measure::<G>(&settings, seed, seconds))?;
    let Counters { simulations, evaluations, hits, collisions, depth, deepest, reused } = found.counters;
    let mean_depth = depth as f64 / simulations.max(1) as f64;
    let reused = reused as f64 / (reused + simulations).max(1) as f64;
    if args.json {
        let report = json!({
            "game": args.game.name(), "simulations_per_decision": args.simulations, "leaves": args.leaves,
            "chance": format!("{:?}", args.chance).to_lowercase(), "transpositions": args.transpositions,
            "simulations_per_cpu_s": found.per_cpu_s, "evaluations_per_simulation": evaluations as f64 / simulations.max(1) as f64,
            "hits_per_simulation": hits as f64 / simulations.max(1) as f64, "collisions": collisions,
            "mean_depth": mean_depth, "deepest": deepest, "reused_share": reused,
            "games": found.games, "decisions": found.decisions, "allocs_per_game": found.allocations_per_game,
            "machine": device::describe(),
        });
        return print(&format!("{report}\n"));
    }
    print(&format!(
        "search in {}, {} simulations per decision, an evaluator that costs nothing, one thread\n\
         machine              {}\n\
         simulations/CPU-s    {}\n\
         evaluations          {:.2} per simulation, {:.3} found in the tree\n\
         depth                {mean_depth:.1} on average, {deepest} at most\n\
         kept from last turn  {:.1} %\n\
         allocations/game     {}\n",
        args.game.name(),
        args.simulations,
        device::describe(),
        grouped(found.per_cpu_s),
        evaluations as f64 / simulations.max(1) as f64,
        hits as f64 / simulations.max(1) as f64,
        100.0 * reused,
        found.allocations_per_game,
    ))
}
