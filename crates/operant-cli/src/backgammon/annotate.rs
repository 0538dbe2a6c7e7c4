//! `operant analyse --match FILE.mat`: recorded games, gone through with a network's values.

use super::analyse::Args;
use crate::output::{Failure, print};
use operant::env::backgammon::{Decision, Match, Plays, from_mat};
use operant::search::backgammon::{ByValue, cubeful};
use serde_json::json;
use std::path::Path;

/// Points given away by a decision below which it is not worth a line.
const WORTH_A_LINE: f64 = 0.02;
/// Points that a double would give away from which on not doubling is no decision: most rolls of a game are such.
const CLEAR: f64 = 0.16;

/// What a decision gave away, in units of the cube, what was decided, and what is best.
struct Found {
    given_away: f64,
    decided: String,
    best: String,
    /// Whether there was something to decide.
    counts: bool,
}

/// Judges a play without a cube.
fn play(player: &mut ByValue, state: &Match, decision: Decision, plays: &Plays, with_cube: bool) -> Option<Found> {
    let Decision::Play(played) = decision else { return None };
    let (position, number) = (state.board.position, |one: usize| plays[one].result(state.board.position));
    let worths: Vec<(usize, f64)> = match with_cube {
        true => player.judge_in(state, plays).iter().map(|one| (one.judged.play, one.equity)).collect(),
        false => player.judge(position, plays).iter().map(|one| (one.play, f64::from(one.outcome.equity()))).collect(),
    };
    let after = played.result(position);
    let (own, worth) = *worths.iter().find(|(one, _)| number(*one) == after)?;
    let (best, most) = worths[0];
    Some(Found { given_away: most - worth, decided: plays[own].text(), best: plays[best].text(), counts: true })
}

/// Judges a double that was or was not made, a take, a drop.
fn cube(player: &mut ByValue, state: &Match, decision: Decision) -> Found {
    let cubeful = cubeful(player, state);
    let choice = cubeful.choice();
    let doubled = choice.take.min(choice.drop);
    let (given, decided, best) = match decision {
        Decision::Double => (choice.no_double.max(doubled) - doubled, "double", choice.advice.text()),
        Decision::Take => ((choice.take - choice.drop).max(0.0), "take", if choice.takes() { "take" } else { "pass" }),
        Decision::Drop => ((choice.drop - choice.take).max(0.0), "pass", if choice.takes() { "take" } else { "pass" }),
        _ => (choice.no_double.max(doubled) - choice.no_double, "no double", choice.advice.text()),
    };
    // Worths are of the player on roll; what is given away has no sign.
    let points = |worth: f64| cubeful.equity(worth) - cubeful.equity(0.0);
    let counts = decision != Decision::Roll || points(choice.no_double - doubled) < CLEAR;
    Found { given_away: points(given), decided: decided.to_owned(), best: best.to_owned(), counts }
}

/// Goes through recorded games. Where nobody ever doubled and no match was played, they count as games without a cube.
pub(super) fn annotate(args: &Args, path: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Run(format!("can't read {}: {error}", path.display())))?;
    let records = from_mat(&text)?;
    let with_cube = records.iter().any(|record| record.stakes.length > 0 || !record.doubles.is_empty());
    let mut player: ByValue = args.model.player()?;
    let mut plays = Plays::default();
    let (mut decisions, mut given, mut lines, mut list) = ([0_usize; 2], [0.0_f64; 2], String::new(), Vec::new());
    for (game, record) in records.iter().enumerate() {
        let mut turn = 0;
        for (state, decision) in record.decided()?.0 {
            let Some(who) = state.who() else { continue };
            let dice = state.board.dice;
            let found = if let Decision::Play(_) = decision {
                turn += 1;
                plays.find(state.board.position, dice);
                if plays.len() == 1 {
                    continue;
                }
                play(&mut player, &state, decision, &plays, with_cube)
                    .ok_or_else(|| Failure::Run(format!("game {}, turn {turn}: no legal play", game + 1)))?
            } else if with_cube {
                cube(&mut player, &state, decision)
            } else {
                continue;
            };
            let Found { given_away, decided, best, counts } = found;
            if !counts {
                continue;
            }
            let (id, number) = (state.board.position.id(), usize::from(who));
            // Before the roll it is the turn that comes.
            let at = if matches!(decision, Decision::Play(_)) { turn } else { turn + 1 };
            decisions[number] += 1;
            given[number] += given_away;
            if args.json {
                list.push(json!({
                    "game": game + 1, "turn": at, "player": who + 1, "position": id, "dice": dice, "play": decided,
                    "best": best, "given_away": given_away,
                }));
            } else if given_away >= WORTH_A_LINE {
                let roll = if dice[0] > 0 { format!("{}{} ", dice[0], dice[1]) } else { String::new() };
                lines += &format!(
                    "game {:>2}, turn {at:>3}, player {}: {roll}{decided:<24} {:+.3}, best {best} ({id})\n",
                    game + 1,
                    who + 1,
                    -given_away,
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
