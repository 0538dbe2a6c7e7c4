//! `operant analyse`: the best plays of a roll, or the chances before it.

use super::board::board;
use super::{Game, ModelArgs};
use crate::output::{Failure, count, print};
use operant::env::backgammon::{Outcome, Plays, Position};
use operant::search::backgammon::{ByValue, Judged};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The game.
    #[arg(value_enum)]
    game: Game,
    /// GNU Backgammon's ID of the position, for the player on roll [default: the beginning of a game].
    #[arg(long, value_name = "ID")]
    position: Option<String>,
    /// The roll, as in `--dice 3 1`; without it the chances before the roll.
    #[arg(long, num_args = 2, value_names = ["A", "B"], value_parser = clap::value_parser!(u8).range(1..=6))]
    dice: Option<Vec<u8>>,
    /// How many plays to show.
    #[arg(long, default_value_t = 5, value_parser = count::<usize>, allow_negative_numbers = true)]
    best: usize,
    #[command(flatten)]
    model: ModelArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
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
    let best = judged.first().map_or(0.0, |judged| judged.outcome.equity());
    let line = |(i, one): (usize, &Judged)| {
        let equity = one.outcome.equity();
        let behind = if i == 0 { String::new() } else { format!(" ({:+.3})", equity - best) };
        let far = if one.deep { "" } else { "  1-ply" };
        let text = plays[one.play].text();
        format!("{:>3}. {text:<24} {equity:+.3}{behind:<10} {}{far}\n", i + 1, chances(one.outcome))
    };
    judged.iter().take(most).enumerate().map(line).collect()
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
    let position = match &args.position {
        Some(id) => Position::from_id(id)?,
        None => Position::START,
    };
    if position.lost().is_some() || position.swapped().lost().is_some() {
        return Err(Failure::Usage(format!("position {}: the game is over; wanted one that goes on", position.id())));
    }
    let mut player: ByValue = args.model.player()?;
    let Some(dice) = &args.dice else {
        let outcome = player.value(position);
        if args.json {
            return print(&format!("{}\n", json!({ "position": position.id(), "outcome": object(outcome) })));
        }
        let text = format!("{}equity {:+.3}  {}\n", board(position), outcome.equity(), chances(outcome));
        return print(&text);
    };
    let dice = [dice[0], dice[1]];
    let mut plays = Plays::default();
    plays.find(position, dice);
    let judged = player.judge(position, &plays);
    if args.json {
        let list: Vec<Value> = (judged.iter().take(args.best))
            .map(|one| {
                let play = &plays[one.play];
                json!({
                    "play": play.text(), "position_after": play.result(position).id(), "outcome": object(one.outcome),
                    "full_depth": one.deep,
                })
            })
            .collect();
        let object = json!({ "position": position.id(), "dice": dice, "legal": plays.len(), "plays": list });
        return print(&format!("{object}\n"));
    }
    let head = format!("position {}, X to play {} {}: {} plays\n", position.id(), dice[0], dice[1], plays.len());
    print(&(board(position) + &head + &listed(&judged, &plays, args.best)))
}
