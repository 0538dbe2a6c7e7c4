//! `operant eval` of a backgammon run: games against others, and the error rate by GNU Backgammon.

use super::luck::{self, Adjusted};
use super::{PART, SEARCH, by_value, cube_games, evaluator, gnubg, parts_of, with_table};
use crate::format;
use crate::matches::MatchArgs;
use crate::output::{Failure, write_whole};
use crate::versus;
use operant::algo::Parts;
use operant::device;
use operant::env::backgammon::{Backgammon, Points, Record, to_mat, to_sgf};
use operant::search::backgammon::{Leaves, RuleOfThumb, Score, alone, contest};
use operant::search::mcts;
use operant::search::versus::{Player, Random, Searcher};
use serde_json::json;
use std::path::Path;

/// What is judged.
pub(crate) struct Of<'a> {
    pub(crate) run: String,
    pub(crate) checkpoint: &'a str,
    pub(crate) seed: u64,
    pub(crate) json: bool,
}

/// Games unless the user says otherwise: against others; against itself, which are more than 4,000 decisions.
const GAMES: [usize; 2] = [200, 100];

pub(crate) fn run(args: &MatchArgs, parts: &Parts, of: &Of<'_>) -> Result<String, Failure> {
    let own = [
        "--against",
        "--games",
        "--simulations",
        "--error-rate",
        "--plies",
        "--table",
        "--match",
        "--cube",
        "--luck",
        "--mat",
        "--sgf",
    ];
    args.refuse(&own, &format!("{} learned backgammon", of.run))?;
    if args.plies.is_some() && args.simulations.is_some() {
        return Err(Failure::Usage("--plies and --simulations: wanted one way to look ahead".into()));
    }
    if args.match_to.is_some() || args.cube {
        return cube_games::run(args, parts, of);
    }
    let mut player = player_of("operant", parts, args)?;
    let games = args.games.unwrap_or(GAMES[usize::from(args.error_rate)]);
    if games == 0 {
        return Err(Failure::Usage("--games 0: wanted at least 1".into()));
    }
    if args.error_rate {
        return error_rate(args, &mut *player, games, of);
    }
    let whom = args.against.as_deref().unwrap_or("random");
    let mut other: Box<dyn Player<Backgammon>> = match whom {
        "random" => Box::new(Random),
        "rules" => Box::new(RuleOfThumb),
        name => match name.strip_prefix("gnubg:").or_else(|| (name == "gnubg").then_some("0")) {
            Some(plies) => {
                let plies = plies.parse().ok().filter(|plies| *plies <= 3);
                let wanted = || Failure::Usage(format!("--against {name}: wanted gnubg:0 to gnubg:3"));
                Box::new(gnubg::Gnubg::new(plies.ok_or_else(wanted)?)?)
            }
            None if Path::new(name).exists() || Path::new("runs").join(name).exists() => {
                player_of(name, &parts_of(Path::new(name))?, args)?
            }
            None => {
                let known = ["random", "rules", "gnubg:0", "gnubg:1", "gnubg:2"];
                let wanted = "random, rules, gnubg:0 to gnubg:3, the folder of a run, or a file of networks";
                return Err(operant::Error::unknown("opponent", name, known, wanted).into());
            }
        },
    };
    let judge = luck::judge_of(args, parts, of)?;
    let cpu = device::cpu_seconds();
    let (score, records) = contest(&mut *player, &mut *other, games, of.seed)?;
    let cpu = device::cpu_seconds() - cpu;
    write_games(args, &records, [&player.name(), &other.name()])?;
    let points: Vec<f64> = score.points.iter().map(|&points| f64::from(points)).collect();
    let less_luck = |judge: luck::Judge| judge.adjust(&points, &records.chunks(1).collect::<Vec<_>>());
    let adjusted = judge.map(less_luck).transpose()?;
    show(&score, adjusted.as_ref(), [&player.name(), &other.name()], cpu, of)
}

/// The same for value networks in a file.
pub(crate) fn judge_file(args: &MatchArgs, path: &Path, seed: u64, json: bool) -> Result<String, Failure> {
    let parts = parts_of(path)?;
    run(args, &parts, &Of { run: path.display().to_string(), checkpoint: "none, a file", seed, json })
}

/// Words for runs of alphazero.
pub(super) const OF_SEARCH: &[&str] =
    &["--against", "--games", "--simulations", "--error-rate", "--match", "--cube", "--luck", "--mat", "--sgf"];

/// Who plays from a checkpoint: by values one to three rolls ahead, or by search.
fn player_of(name: &str, parts: &Parts, args: &MatchArgs) -> Result<Box<dyn Player<Backgammon>>, Failure> {
    let Some(bytes) = parts.get(PART) else {
        args.refuse(OF_SEARCH, "alphazero searches")?;
        return Ok(Box::new(versus::searcher::<Backgammon>(name, parts, args)?));
    };
    let evaluator = with_table(evaluator(bytes)?, args.table.as_deref())?;
    Ok(match args.simulations {
        None => Box::new(by_value(name, evaluator, args.plies.unwrap_or(1))),
        Some(simulations) => {
            let settings = mcts::Settings { simulations, ..SEARCH };
            Box::new(Searcher::over(name, Leaves::new(evaluator), &settings)?)
        }
    })
}

/// Writes the games where the user wants them.
fn write_games(args: &MatchArgs, records: &[Record], names: [&str; 2]) -> Result<(), Failure> {
    for (path, text) in [(&args.mat, to_mat as fn(&[Record], [&str; 2]) -> String), (&args.sgf, to_sgf)] {
        if let Some(path) = path {
            write_whole(path, text(records, names).as_bytes())?;
        }
    }
    Ok(())
}

fn show(
    score: &Score,
    adjusted: Option<&Adjusted>,
    [player, other]: [&str; 2],
    cpu: f64,
    of: &Of<'_>,
) -> Result<String, Failure> {
    let games = score.points.len();
    let [wins, _] = score.shares(Points::Single);
    let [[won_gammons, lost_gammons], [won_backgammons, lost_backgammons]] =
        [Points::Gammon, Points::Backgammon].map(|points| score.shares(points));
    if of.json {
        let mut object = json!({
            "run": of.run, "checkpoint": of.checkpoint, "player": player, "against": other,
            "games": games, "seed": of.seed, "points_per_game": score.mean(), "standard_error": score.standard_error(),
            "wins": wins, "gammons_won": won_gammons, "gammons_lost": lost_gammons,
            "backgammons_won": won_backgammons, "backgammons_lost": lost_backgammons, "cpu_s": cpu,
        });
        luck::add_to(&mut object, "adjusted_points_per_game", adjusted);
        return Ok(format!("{object}\n"));
    }
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    Ok(format!(
        "{player} against {other}: {:+.3} ± {} points per game (standard error){} over {games} games, seed {}\n\
         won {}, gammons or more {} won and {} lost, backgammons {} and {}\n\
         checkpoint {}\n",
        score.mean(),
        format::error(score.standard_error(), 3),
        luck::shown(adjusted),
        of.seed,
        percent(wins),
        percent(won_gammons),
        percent(lost_gammons),
        percent(won_backgammons),
        percent(lost_backgammons),
        of.checkpoint
    ))
}

fn error_rate(
    args: &MatchArgs,
    player: &mut dyn Player<Backgammon>,
    games: usize,
    of: &Of<'_>,
) -> Result<String, Failure> {
    // Before any game is played.
    gnubg::find()?;
    let cpu = device::cpu_seconds();
    let records = alone(player, games, of.seed)?;
    let cpu = device::cpu_seconds() - cpu;
    write_games(args, &records, ["one", "two"])?;
    let found = gnubg::analyse(&records, 0)?;
    if of.json {
        let object = json!({
            "run": of.run, "checkpoint": of.checkpoint, "player": player.name(), "games": games, "seed": of.seed,
            "decisions": found.decisions, "error_total": found.total, "error_rate": found.rate(),
            "cpu_s": cpu,
        });
        return Ok(format!("{object}\n"));
    }
    Ok(format!(
        "{}: error rate {:.2} (points given away per decision x 500, by gnubg 0-ply) over {} decisions in {games} games, seed {}\n\
         checkpoint {}\n",
        player.name(),
        found.rate(),
        found.decisions,
        of.seed,
        of.checkpoint
    ))
}
