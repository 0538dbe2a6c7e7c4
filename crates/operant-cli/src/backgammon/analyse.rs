//! `operant analyse`: the best plays of a roll, or before it the chances and what to do with the cube.

use super::annotate::annotate;
use super::board::board;
use super::cube_text::{cube_lines, cube_object, listed_in, stakes_line};
use super::{Game, ModelArgs};
use crate::output::{Failure, count, print};
use operant::env::backgammon::{Match, MatchId, Outcome, Phase, Plays, Position};
use operant::search::backgammon::{ByValue, Judged, cubeful};
use serde_json::{Value, json};
use std::path::Path;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The game.
    #[arg(value_enum)]
    game: Game,
    /// GNU Backgammon's ID of the position, for the player on roll; a match ID may follow after a colon [default: the beginning of a game].
    #[arg(long, value_name = "ID")]
    position: Option<String>,
    /// GNU Backgammon's match ID: cube, score and dice (unless --dice says others), whose question is answered. Or a .mat file, whose games
    /// are gone through: what each decision gave away, the errors of both players.
    #[arg(long = "match", value_name = "ID|FILE.mat")]
    of_match: Option<String>,
    /// The roll, as in `--dice 3 1`; without it the chances before the roll.
    #[arg(long, num_args = 2, value_names = ["A", "B"], value_parser = clap::value_parser!(u8).range(1..=6), allow_negative_numbers = true)]
    dice: Option<Vec<u8>>,
    /// How many plays of a roll to show [default: 5].
    #[arg(long, value_parser = count::<usize>, allow_negative_numbers = true)]
    best: Option<usize>,
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// Plays that are shown unless the user says how many.
const BEST: usize = 5;

impl Args {
    /// Refuses a number of plays where no play is asked for.
    fn refuse_best(&self) -> Result<(), Failure> {
        match self.best {
            Some(best) => Err(Failure::Usage(format!("--best {best} is for the plays of a roll; name --dice too"))),
            None => Ok(()),
        }
    }
}

/// Percent of the five outcomes: won, with gammons, with backgammons; the same lost.
pub(super) fn chances(outcome: Outcome) -> String {
    let percent = |x: f32| format!("{:.1}", 100.0 * x);
    format!(
        "win {} (gammon {}, backgammon {})  lose {} (gammon {}, backgammon {})",
        percent(outcome.win),
        percent(outcome.win_gammon),
        percent(outcome.win_backgammon),
        percent(1.0 - outcome.win),
        percent(outcome.lose_gammon),
        percent(outcome.lose_backgammon)
    )
}

/// The best plays, one per line.
pub(super) fn listed(judged: &[Judged], plays: &Plays, most: usize) -> String {
    let (best, most_rolls) = judged.first().map_or((0.0, 1), |judged| (judged.outcome.equity(), judged.rolls));
    let line = |(i, one): (usize, &Judged)| {
        let equity = one.outcome.equity();
        let behind = if i == 0 { String::new() } else { format!(" ({:+.3})", equity - best) };
        let far = how_far(one.rolls, most_rolls);
        let text = plays[one.play].text();
        format!("{:>3}. {text:<24} {equity:+.3}{behind:<10} {}{far}\n", i + 1, chances(one.outcome))
    };
    judged.iter().take(most).enumerate().map(line).collect()
}

/// Said of plays that were looked at less far than the best.
pub(super) fn how_far(rolls: usize, most: usize) -> String {
    if rolls == most { String::new() } else { format!("  {rolls}-ply") }
}

fn object(outcome: Outcome) -> Value {
    json!({
        "equity": outcome.equity(), "win": outcome.win, "win_gammon": outcome.win_gammon,
        "win_backgammon": outcome.win_backgammon, "lose_gammon": outcome.lose_gammon,
        "lose_backgammon": outcome.lose_backgammon,
    })
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Game::Backgammon = args.game;
    let is_file = |name: &str| name.ends_with(".mat") || Path::new(name).is_file();
    if let Some(path) = args.of_match.as_deref().filter(|name| is_file(name)) {
        if args.position.is_some() || args.dice.is_some() {
            return Err(Failure::Usage(format!("--match {path} is a file of games; leave --position and --dice out")));
        }
        if let Some(best) = args.best {
            let next = "leave it out";
            return Err(Failure::Usage(format!(
                "--best {best} is for one roll, and {path} is a file of games; {next}"
            )));
        }
        return annotate(args, Path::new(path));
    }
    let (position, of_match) =
        match args.position.as_deref().map(|id| id.split_once(':').map_or((id, None), |(a, b)| (a, Some(b)))) {
            Some((id, of_match)) => (Position::from_id(id)?, of_match),
            None => (Position::START, None),
        };
    let of_match = args.of_match.as_deref().or(of_match).map(MatchId::from_id).transpose()?;
    if position.lost().is_some() || position.swapped().lost().is_some() {
        return Err(Failure::Usage(format!("position {}: the game is over; wanted one that goes on", position.id())));
    }
    let mut player: ByValue = args.model.player()?;
    let given = args.dice.as_ref().map(|dice| [dice[0], dice[1]]);
    if let Some(of_match) = of_match {
        let state = MatchId { dice: given.or(of_match.dice), ..of_match }.state(position)?;
        return in_match(args, &mut player, &state);
    }
    let Some(dice) = given else {
        args.refuse_best()?;
        let outcome = player.value(position);
        if args.json {
            let id = position.id();
            let object = json!({ "position": id, "outcome": object(outcome), "rolls": player.rolls() });
            return print(&format!("{object}\n"));
        }
        let text = format!("{}equity {:+.3}  {}\n", board(position), outcome.equity(), chances(outcome));
        return print(&text);
    };
    let mut plays = Plays::default();
    plays.find(position, dice);
    let (judged, most) = (player.judge(position, &plays), args.best.unwrap_or(BEST));
    if args.json {
        let list: Vec<Value> = (judged.iter().take(most))
            .map(|one| {
                let play = &plays[one.play];
                json!({
                    "play": play.text(), "position_after": play.result(position).id(), "outcome": object(one.outcome),
                    "rolls": one.rolls,
                })
            })
            .collect();
        let object = json!({ "position": position.id(), "dice": dice, "legal": plays.len(), "plays": list });
        return print(&format!("{object}\n"));
    }
    let head = format!("position {}, X to play {} {}: {} plays\n", position.id(), dice[0], dice[1], plays.len());
    print(&(board(position) + &head + &listed(&judged, &plays, most)))
}

/// Answers the question that a match ID asks: a play, a double, a take.
fn in_match(args: &Args, player: &mut ByValue, state: &Match) -> Result<(), Failure> {
    let (position, who) = (state.board.position, state.board.player);
    let head = board(position) + &stakes_line(&state.stakes, who);
    if state.phase != Phase::Play {
        args.refuse_best()?;
        let (outcome, cubeful) = (player.value(position), cubeful(player, state));
        if args.json {
            let cube = cube_object(state, &cubeful);
            let (id, rolls) = (position.id(), player.rolls());
            let object = json!({ "position": id, "outcome": object(outcome), "rolls": rolls, "cube": cube });
            return print(&format!("{object}\n"));
        }
        let question = if state.phase == Phase::Offered { "X doubles\n" } else { "" };
        let text = format!("{head}{question}cubeless {:+.3}  {}\n", outcome.equity(), chances(outcome));
        return print(&(text + &cube_lines(state, &cubeful)));
    }
    let (mut plays, dice) = (Plays::default(), state.board.dice);
    plays.find(position, dice);
    let (judged, most) = (player.judge_in(state, &plays), args.best.unwrap_or(BEST));
    if args.json {
        let list: Vec<Value> = (judged.iter().take(most))
            .map(|one| {
                let play = &plays[one.judged.play];
                json!({
                    "play": play.text(), "position_after": play.result(position).id(), "equity": one.equity,
                    "worth": one.worth, "outcome": object(one.judged.outcome), "rolls": one.judged.rolls,
                })
            })
            .collect();
        let id = MatchId::of(state).id();
        let object =
            json!({ "position": position.id(), "match_id": id, "dice": dice, "legal": plays.len(), "plays": list });
        return print(&format!("{object}\n"));
    }
    let line = format!("X to play {} {}: {} plays\n", dice[0], dice[1], plays.len());
    print(&(head + &line + &listed_in(&judged, &state.stakes, &plays, most)))
}
