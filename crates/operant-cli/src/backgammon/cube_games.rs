//! `operant eval` of backgammon with the cube: matches, or games for money.

use super::judge::{OF_SEARCH, Of};
use super::luck::{self, Adjusted};
use super::{PART, SEARCH, by_value, evaluator, parts_of, with_table};
use crate::format;
use crate::matches::MatchArgs;
use crate::output::{Failure, write_whole};
use crate::versus;
use operant::algo::{Parts, part};
use operant::device;
use operant::env::backgammon::{Backgammon, Record, Stakes, to_mat, to_sgf};
use operant::nn::Options;
use operant::search::backgammon::{CubePlayer, Leaves, RuleOfThumb, WithCube, mean_of_pairs, play_session};
use operant::search::game_net::{self, GameNet};
use operant::search::mcts;
use operant::search::versus::{Random, Searcher};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Matches or games unless the user says otherwise.
const SESSIONS: usize = 200;

pub(super) fn run(args: &MatchArgs, parts: &Parts, of: &Of<'_>) -> Result<String, Failure> {
    if args.error_rate {
        return Err(Failure::Usage("--error-rate judges games without a cube; leave --match and --cube out".into()));
    }
    if args.match_to.is_some() && args.jacoby {
        return Err(Failure::Usage("--jacoby with --match: that rule is of games for money; leave one out".into()));
    }
    let stakes = args.match_to.map_or(Ok(Stakes::money(args.jacoby)), Stakes::match_to)?;
    let sessions = args.games.unwrap_or(SESSIONS);
    if sessions == 0 {
        return Err(Failure::Usage("--games 0: wanted at least 1".into()));
    }
    let mut player = player_of("operant", parts, args)?;
    let mut other: Box<dyn CubePlayer> = match args.against.as_deref().unwrap_or("random") {
        "random" => Box::new(Random),
        "rules" => Box::new(RuleOfThumb),
        name if name.starts_with("gnubg") => {
            let next = "random, rules or a run; without --match and --cube also gnubg";
            return Err(Failure::Usage(format!("--against {name}: it is asked for plays alone; wanted {next}")));
        }
        name if Path::new(name).exists() || Path::new("runs").join(name).exists() => {
            player_of(name, &parts_of(Path::new(name))?, args)?
        }
        name => {
            let known = ["random", "rules"];
            return Err(operant::Error::unknown(
                "opponent",
                name,
                known,
                "random, rules, the folder of a run, or a file of networks",
            )
            .into());
        }
    };
    let judge = luck::judge_of(args, parts, of)?;
    let cpu = device::cpu_seconds();
    let most_games = if stakes.length > 0 { usize::MAX } else { 1 };
    let played = (0..sessions as u32)
        .map(|session| play_session([&mut *player, &mut *other], stakes, most_games, of.seed, session))
        .collect::<operant::Result<Vec<_>>>()?;
    let cpu = device::cpu_seconds() - cpu;
    let names = [player.name(), other.name()];
    write(args, &played, stakes, [&names[0], &names[1]])?;
    let results = results(&played, stakes);
    let less_luck = |judge: luck::Judge| judge.adjust(&results, &played.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let adjusted = judge.map(less_luck).transpose()?;
    show(&played, &results, adjusted.as_ref(), stakes, names, cpu, of)
}

/// Points of a game, as the first player has them.
fn points(record: &Record) -> f64 {
    let won = record.result();
    won.map_or(0.0, |won| if won.player == 0 { f64::from(won.points) } else { -f64::from(won.points) })
}

/// What the first player has of each session: points of a game for money; of a match 1 if it is won.
fn results(played: &[Vec<Record>], stakes: Stakes) -> Vec<f64> {
    let last = played.iter().map(|records| records.last().map_or(0.0, points));
    match stakes.length {
        0 => last.collect(),
        _ => last.map(|points| f64::from(u8::from(points > 0.0))).collect(),
    }
}

/// Who plays from a checkpoint, the cube included: by values one to three rolls ahead, or by search.
fn player_of(name: &str, parts: &Parts, args: &MatchArgs) -> Result<Box<dyn CubePlayer>, Failure> {
    let Some(bytes) = parts.get(PART) else {
        args.refuse(OF_SEARCH, "alphazero searches")?;
        let (architecture, params) = game_net::from_bytes::<Backgammon>(part(parts, "network.safetensors")?)?;
        let values = GameNet::<Backgammon>::new(&architecture, params, 1, &Options::default())?;
        let player = versus::searcher::<Backgammon>(name, parts, args)?;
        return Ok(Box::new(WithCube { player: Box::new(player), values: Box::new(values) }));
    };
    let evaluator = with_table(evaluator(bytes)?, args.table.as_deref())?;
    Ok(match args.simulations {
        None => Box::new(by_value(name, evaluator, args.plies.unwrap_or(1))),
        Some(simulations) => {
            let settings = mcts::Settings { simulations, ..SEARCH };
            let player = Searcher::over(name, Leaves::new(evaluator.fork()), &settings)?;
            Box::new(WithCube { player: Box::new(player), values: Box::new(evaluator) })
        }
    })
}

/// Writes games for money to one file as a session; of several matches each to a file with its number.
fn write(args: &MatchArgs, played: &[Vec<Record>], stakes: Stakes, names: [&str; 2]) -> Result<(), Failure> {
    let money = || {
        let mut stakes = stakes;
        let games = played.iter().flatten().map(|record| {
            let record = Record { stakes, ..record.clone() };
            stakes = record.result().and_then(|won| stakes.next(won.player, won.points)).unwrap_or(stakes);
            record
        });
        vec![games.collect::<Vec<Record>>()]
    };
    for (path, text) in [(&args.mat, to_mat as fn(&[Record], [&str; 2]) -> String), (&args.sgf, to_sgf)] {
        let Some(path) = path else { continue };
        let files = if stakes.length > 0 { played.to_vec() } else { money() };
        for (number, records) in files.iter().enumerate() {
            let path = if files.len() == 1 { path.clone() } else { numbered(path, number + 1) };
            write_whole(&path, text(records, names).as_bytes())?;
        }
    }
    Ok(())
}

/// `match.mat` as `match-2.mat`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let part = |text: Option<&std::ffi::OsStr>| text.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, end) = (part(path.file_stem()), part(path.extension()));
    path.with_file_name(if end.is_empty() { format!("{stem}-{number}") } else { format!("{stem}-{number}.{end}") })
}

fn show(
    played: &[Vec<Record>],
    results: &[f64],
    adjusted: Option<&Adjusted>,
    stakes: Stakes,
    names: [String; 2],
    cpu: f64,
    of: &Of<'_>,
) -> Result<String, Failure> {
    let games: Vec<&Record> = played.iter().flatten().collect();
    let doubles: Vec<bool> = games.iter().flat_map(|record| &record.doubles).map(|doubled| doubled.taken).collect();
    let taken = doubles.iter().filter(|taken| **taken).count() as f64 / doubles.len() as f64;
    let per_game = doubles.len() as f64 / games.len() as f64;
    let [name, whom] = names;
    let ((mean, error), is_match) = (mean_of_pairs(results), stakes.length > 0);
    let mean_points = games.iter().map(|record| points(record)).sum::<f64>() / games.len() as f64;
    if of.json {
        let mut object = json!({
            "run": of.run, "checkpoint": of.checkpoint, "player": name, "against": whom, "games": games.len(),
            "seed": of.seed, "points_per_game": mean_points, "doubles_per_game": per_game, "taken": taken, "cpu_s": cpu,
        });
        let more = match is_match {
            true => {
                json!({ "match_to": stakes.length, "matches": played.len(), "matches_won": mean, "standard_error": error })
            }
            false => json!({ "jacoby": stakes.jacoby, "standard_error": error }),
        };
        object
            .as_object_mut()
            .into_iter()
            .for_each(|object| object.extend(more.as_object().cloned().unwrap_or_default()));
        let name = if is_match { "adjusted_matches_won" } else { "adjusted_points_per_game" };
        luck::add_to(&mut object, name, adjusted);
        return Ok(format!("{object}\n"));
    }
    let result = match is_match {
        true => format!(
            "{:.1} % ± {} % (standard error){} of {} matches to {} points won, {:.1} games each, {mean_points:+.3} points per game",
            100.0 * mean,
            format::error(100.0 * error, 1),
            luck::shown_of_matches(adjusted),
            played.len(),
            stakes.length,
            games.len() as f64 / played.len() as f64
        ),
        false => {
            let rule = if stakes.jacoby { ", Jacoby" } else { "" };
            format!(
                "{mean:+.3} ± {} points per game (standard error){} over {} games for money{rule}",
                format::error(error, 3),
                luck::shown(adjusted),
                games.len()
            )
        }
    };
    let taken = if doubles.is_empty() { String::new() } else { format!(", {:.0} % of them taken", 100.0 * taken) };
    Ok(format!(
        "{name} against {whom}: {result}, seed {}\n{per_game:.2} doubles per game{taken}\ncheckpoint {}\n",
        of.seed, of.checkpoint
    ))
}
