//! `operant eval` of a backgammon run: games against others, and the error rate by GNU Backgammon.

use super::{by_value, evaluator, gnubg, load, with_table};
use crate::matches::MatchArgs;
use crate::output::{Failure, print};
use operant::device;
use operant::env::backgammon::{Plays, Points, Record, to_mat};
use operant::lanes::rng::HostRng;
use operant::search::backgammon::{ByValue, Player, Random, RuleOfThumb, Score, Setup, contest, play_game};
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

pub(crate) fn run(args: &MatchArgs, bytes: &[u8], of: &Of<'_>) -> Result<(), Failure> {
    let own = ["--against", "--games", "--error-rate", "--plies", "--table", "--mat"];
    args.refuse(&own, &format!("{} is a run of td", of.run))?;
    let plies = args.plies.unwrap_or(1);
    let mut player = by_value("operant", with_table(evaluator(bytes)?, args.table.as_deref())?, plies);
    let games = args.games.unwrap_or(GAMES[usize::from(args.error_rate)]);
    if games == 0 {
        return Err(Failure::Usage("--games 0: wanted at least 1".into()));
    }
    if args.error_rate {
        return error_rate(args, &mut player, games, of);
    }
    let whom = args.against.as_deref().unwrap_or("random");
    let mut other: Box<dyn Player> = match whom {
        "random" => Box::new(Random),
        "rules" => Box::new(RuleOfThumb),
        name => match name.strip_prefix("gnubg:").or_else(|| (name == "gnubg").then_some("0")) {
            Some(plies) => {
                let plies = plies.parse().ok().filter(|plies| *plies <= 3);
                let wanted = || Failure::Usage(format!("--against {name}: wanted gnubg:0 to gnubg:3"));
                Box::new(gnubg::Gnubg::new(plies.ok_or_else(wanted)?)?)
            }
            None if Path::new(name).exists() || Path::new("runs").join(name).exists() => {
                let evaluator = with_table(load(Path::new(name))?, args.table.as_deref())?;
                Box::new(by_value(name, evaluator, plies))
            }
            None => {
                let known = ["random", "rules", "gnubg:0", "gnubg:1", "gnubg:2"];
                return Err(operant::Error::unknown("opponent", name, known, "or the folder of a run").into());
            }
        },
    };
    let mut records = Vec::new();
    let cpu = device::cpu_seconds();
    let score = contest(&mut player, &mut *other, games, of.seed, &mut |record| {
        if args.mat.is_some() {
            records.push(record.clone());
        }
    })?;
    let cpu = device::cpu_seconds() - cpu;
    write_mat(args, &records, [&player.name(), &other.name()])?;
    show(&score, &player, &*other, cpu, of)
}

fn write_mat(args: &MatchArgs, records: &[Record], names: [&str; 2]) -> Result<(), Failure> {
    let Some(path) = &args.mat else { return Ok(()) };
    std::fs::write(path, to_mat(records, names))
        .map_err(|error| Failure::Run(format!("can't write {}: {error}", path.display())))
}

fn show(score: &Score, player: &ByValue, other: &dyn Player, cpu: f64, of: &Of<'_>) -> Result<(), Failure> {
    let games = score.points.len();
    let [wins, _] = score.shares(Points::Single);
    let [[won_gammons, lost_gammons], [won_backgammons, lost_backgammons]] =
        [Points::Gammon, Points::Backgammon].map(|points| score.shares(points));
    if of.json {
        let object = json!({
            "run": of.run, "checkpoint": of.checkpoint, "player": player.name(), "against": other.name(),
            "games": games, "seed": of.seed, "points_per_game": score.mean(), "standard_error": score.standard_error(),
            "wins": wins, "gammons_won": won_gammons, "gammons_lost": lost_gammons,
            "backgammons_won": won_backgammons, "backgammons_lost": lost_backgammons, "cpu_s": cpu,
        });
        return print(&format!("{object}\n"));
    }
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    print(&format!(
        "{} against {}: {:+.3} ± {:.3} points per game (standard error) over {games} games, seed {}\n\
         won {}, gammons {} won and {} lost, of these backgammons {} and {}\n\
         checkpoint {}\n",
        player.name(),
        other.name(),
        score.mean(),
        score.standard_error(),
        of.seed,
        percent(wins),
        percent(won_gammons),
        percent(lost_gammons),
        percent(won_backgammons),
        percent(lost_backgammons),
        of.checkpoint
    ))
}

fn error_rate(args: &MatchArgs, player: &mut ByValue, games: usize, of: &Of<'_>) -> Result<(), Failure> {
    // Before any game is played.
    gnubg::find()?;
    let mut plays = Plays::default();
    let mut records = Vec::new();
    for game in 0..games {
        let setup = Setup { first: game % 2, seed: of.seed, number: game as u32 };
        let choose = |_, position, dice, plays: &Plays, rng: &mut HostRng| player.choose(position, dice, plays, rng);
        records.push(play_game(setup, &mut plays, choose)?);
    }
    write_mat(args, &records, ["one", "two"])?;
    let found = gnubg::analyse(&records, 0)?;
    if of.json {
        let object = json!({
            "run": of.run, "checkpoint": of.checkpoint, "player": player.name(), "games": games, "seed": of.seed,
            "decisions": found.decisions, "error_total": found.total, "error_rate": found.rate(),
        });
        return print(&format!("{object}\n"));
    }
    print(&format!(
        "{}: error rate {:.2} (points given away per decision x 500, by gnubg 0-ply) over {} decisions in {games} games, seed {}\n\
         checkpoint {}\n",
        player.name(),
        found.rate(),
        found.decisions,
        of.seed,
        of.checkpoint
    ))
}
