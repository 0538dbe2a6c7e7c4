//! `operant eval` of a run that learned a game: matches of its search against others.

use crate::format;
use crate::matches::MatchArgs;
use crate::output::Failure;
use operant::CATALOGUE;
use operant::algo::{Parts, alphazero};
use operant::env::connect4::Connect4;
use operant::env::game::Game;
use operant::env::twenty48::{POINTS, Twenty48};
use operant::nn::Options;
use operant::run::{Checkpoints, Config};
use operant::search::mcts;
use operant::search::versus::{Pairing, Perfect, Player, Random, Searcher, between, from_start, won_openings};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// What is known of the run.
pub(crate) struct Of<'a> {
    pub(crate) run: String,
    pub(crate) checkpoint: &'a str,
    pub(crate) env: &'a str,
    pub(crate) parts: &'a Parts,
    pub(crate) seed: u64,
    pub(crate) json: bool,
}

/// Games if none are asked for.
const GAMES: usize = 200;

pub(crate) fn run(args: &MatchArgs, of: &Of<'_>) -> Result<String, Failure> {
    let own: &[&str] = match args.against.as_deref() {
        Some("solver") => &["--against", "--games", "--simulations", "--opening"],
        _ => &["--against", "--games", "--simulations"],
    };
    args.refuse(own, &format!("{} is a run of alphazero", of.run))?;
    if args.games == Some(0) {
        return Err(Failure::Usage("--games 0: wanted at least 1".into()));
    }
    if let Some(moves) = args.opening.filter(|moves| !(2..=20).contains(moves) || moves % 2 == 1) {
        return Err(Failure::Usage(format!("--opening {moves}: wanted an even number from 2 to 20")));
    }
    match of.env {
        Connect4::NAME => versus::<Connect4>(args, of, |args, of| {
            let mut perfect = Perfect::default();
            let (games, moves) = (args.games.unwrap_or(GAMES), args.opening.unwrap_or(8));
            let openings = won_openings(games, moves, of.seed, &mut perfect.solver);
            Some((Box::new(perfect), openings))
        }),
        Twenty48::NAME => versus::<Twenty48>(args, of, |_, _| None),
        other => Err(Failure::Run(format!("a network for {other}: wanted connect4 or 2048"))),
    }
}

/// An opponent and the games against it.
type Match<G> = (Box<dyn Player<G>>, Vec<Pairing<G>>);

/// The search of a run of alphazero.
pub(crate) fn searcher<G: Game>(name: &str, parts: &Parts, args: &MatchArgs) -> operant::Result<Searcher<G>> {
    let text = operant::algo::part(parts, "run.toml")?;
    let config = Config::from_text(&CATALOGUE, &String::from_utf8_lossy(text), "run.toml")?;
    let own = alphazero::read(&config.own)?;
    let simulations = args.simulations.unwrap_or(own.search.simulations);
    let leaves = own.search.leaves.min((simulations / 8).max(1));
    let settings = mcts::Settings { simulations, leaves, noise: 0.0, ..own.search };
    let options = Options { precision: config.precision()?, ..Options::default() };
    Searcher::new(name, operant::algo::part(parts, "network.safetensors")?, &settings, &options)
}

fn versus<G: Game>(
    args: &MatchArgs,
    of: &Of<'_>,
    perfect: impl FnOnce(&MatchArgs, &Of<'_>) -> Option<Match<G>>,
) -> Result<String, Failure> {
    let failed = |error: operant::Error| Failure::Run(error.to_string());
    let mut own = searcher::<G>("operant", of.parts, args)?;
    let against = args.against.as_deref().unwrap_or(if G::PLAYERS == 1 { "nobody" } else { "random" });
    let games = args.games.unwrap_or(GAMES);
    let (mut opponent, pairings): Match<G> = match against {
        "nobody" if G::PLAYERS > 1 => {
            return Err(Failure::Usage(format!(
                "--against nobody: {} has two players; wanted random or a run",
                G::NAME
            )));
        }
        "random" | "nobody" => (Box::new(Random), from_start::<G>(games)),
        "solver" => perfect(args, of)
            .ok_or_else(|| Failure::Usage(format!("--against solver: {} has none; wanted random or a run", G::NAME)))?,
        run => {
            let folder = Path::new(run);
            let below = Path::new("runs").join(folder);
            let folder = if folder.exists() || !below.exists() { folder } else { &below };
            let checkpoints = Checkpoints::new(folder, 1);
            let name = checkpoints.pick(None).map_err(|error| {
                Failure::Usage(format!("--against {run}: wanted random, solver or a run of alphazero ({error})"))
            })?;
            let parts = checkpoints.load(&name).map_err(failed)?;
            (Box::new(searcher::<G>(run, &parts, args)?), from_start::<G>(games))
        }
    };
    if pairings.len() < games {
        let next = "fewer --games, or another --opening";
        return Err(Failure::Run(format!(
            "only {} of {games} openings were found that are won; {next}",
            pairings.len()
        )));
    }
    let begun = Instant::now();
    let results = between(&mut own, opponent.as_mut(), &pairings, of.seed)?;
    let seconds = begun.elapsed().as_secs_f64();
    let played = results.len() as f64;
    let unit = if G::NAME == Twenty48::NAME { f64::from(POINTS) } else { 1.0 };
    let points: Vec<f64> = results.iter().map(|played| f64::from(played.points) * unit).collect();
    let mean = points.iter().sum::<f64>() / played;
    // No number of one game, which has no spread.
    let error = (points.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (played - 1.0) / played).sqrt();
    let share = |fits: fn(f64) -> bool| points.iter().filter(|x| fits(**x)).count() as f64 / played;
    let (won, drawn, lost) = (share(|x| x > 0.0), share(|x| x == 0.0), share(|x| x < 0.0));
    let moves = results.iter().map(|played| played.turns.len() as f64).sum::<f64>() / played;
    if of.json {
        let object = json!({
            "run": of.run, "checkpoint": of.checkpoint, "game": G::NAME, "against": against, "games": results.len(),
            "simulations": own.simulations(), "seed": of.seed, "mean_points": mean, "standard_error": error,
            "won": won, "drawn": drawn, "lost": lost, "mean_moves": moves, "seconds": seconds,
        });
        return Ok(format!("{object}\n"));
    }
    let outcome = format!("won {:.1} %, drawn {:.1} %, lost {:.1} %\n", 100.0 * won, 100.0 * drawn, 100.0 * lost);
    let (outcome, whom) = match G::PLAYERS {
        1 => Default::default(),
        _ => (outcome, format!(" against {against}")),
    };
    Ok(format!(
        "{outcome}points {mean:.3} ± {} (standard error) over {} games{whom}, {moves:.1} moves each\n\
         {} simulations per decision, seed {}, {seconds:.1} s, checkpoint {}\n",
        format::error(error, 3),
        results.len(),
        own.simulations(),
        of.seed,
        of.checkpoint
    ))
}
