//! `operant analyse`: the best plays of a roll, or the chances before it.

use super::board::board;
use super::{Game, ModelArgs};
use crate::output::{Failure, count, print};
use operant::env::backgammon::{MatchId, Outcome, Plays, Position, from_mat};
use operant::search::backgammon::{ByValue, Judged};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The game.
    #[arg(value_enum)]
    game: Game,
    /// GNU Backgammon's ID of the position, for the player on roll; with a match ID after a colon its dice count, unless --dice says
    /// others [default: the beginning of a game].
    #[arg(long, value_name = "ID")]
    position: Option<String>,
    /// Go through the games of a .mat file: what each play gave away, the errors of both players.
    #[arg(long = "match", value_name = "FILE.mat", conflicts_with_all = ["position", "dice"])]
    games: Option<PathBuf>,
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

/// Points given away by a play below which it is not worth a line.
const WORTH_A_LINE: f32 = 0.02;

/// Goes through recorded games with the network's values.
fn annotate(args: &Args, path: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Run(format!("can't read {}: {error}", path.display())))?;
    let records = from_mat(&text)?;
    let mut player: ByValue = args.model.player()?;
    let mut plays = Plays::default();
    let (mut decisions, mut given, mut lines, mut list) = ([0_usize; 2], [0.0_f64; 2], String::new(), Vec::new());
    for (game, record) in records.iter().enumerate() {
        for (turn, (position, played)) in record.positions().0.into_iter().zip(&record.turns).enumerate() {
            plays.find(position, played.dice);
            if plays.len() == 1 {
                continue;
            }
            let who = (record.first + turn) % 2;
            let judged = player.judge(position, &plays);
            let after = played.play.result(position);
            let own = judged.iter().find(|one| plays[one.play].result(position) == after);
            let own =
                own.ok_or_else(|| Failure::Run(format!("game {}, turn {}: no legal play", game + 1, turn + 1)))?;
            let lost = judged[0].outcome.equity() - own.outcome.equity();
            decisions[who] += 1;
            given[who] += f64::from(lost);
            let (played_text, best) = (plays[own.play].text(), plays[judged[0].play].text());
            if args.json {
                list.push(json!({
                    "game": game + 1, "turn": turn + 1, "player": who + 1, "position": position.id(),
                    "dice": played.dice, "play": played_text, "best": best, "given_away": lost,
                }));
            } else if lost >= WORTH_A_LINE {
                let [a, b] = played.dice;
                lines += &format!(
                    "game {:>2}, turn {:>3}, player {}: {a}{b} {played_text:<24} {:+.3}, best {best} ({})\n",
                    game + 1,
                    turn + 1,
                    who + 1,
                    -lost,
                    position.id()
                );
            }
        }
    }
    let rate = |who: usize| 500.0 * given[who] / decisions[who].max(1) as f64;
    if args.json {
        let object =
            json!({ "games": records.len(), "decisions": decisions, "error_rate": [rate(0), rate(1)], "plays": list });
        return print(&format!("{object}\n"));
    }
    for who in [0, 1] {
        lines += &format!(
            "player {}: error rate {:.2} (points given away per decision x 500, by these values) over {} decisions\n",
            who + 1,
            rate(who),
            decisions[who]
        );
    }
    print(&lines)
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Game::Backgammon = args.game;
    if let Some(path) = &args.games {
        return annotate(args, path);
    }
    let (position, of_match) =
        match args.position.as_deref().map(|id| id.split_once(':').map_or((id, None), |(a, b)| (a, Some(b)))) {
            Some((id, of_match)) => (Position::from_id(id)?, of_match.map(MatchId::from_id).transpose()?),
            None => (Position::START, None),
        };
    if position.lost().is_some() || position.swapped().lost().is_some() {
        return Err(Failure::Usage(format!("position {}: the game is over; wanted one that goes on", position.id())));
    }
    let mut player: ByValue = args.model.player()?;
    let given = args.dice.as_ref().map(|dice| [dice[0], dice[1]]);
    let Some(dice) = given.or(of_match.and_then(|of_match| of_match.dice)) else {
        let outcome = player.value(position);
        if args.json {
            return print(&format!("{}\n", json!({ "position": position.id(), "outcome": object(outcome) })));
        }
        let text = format!("{}equity {:+.3}  {}\n", board(position), outcome.equity(), chances(outcome));
        return print(&text);
    };
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
