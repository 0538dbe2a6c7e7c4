//! The cube and the score as text: what is played for, what doubling is worth, plays by what they are worth there.

use super::analyse::{chances, how_far};
use operant::env::backgammon::{Match, MatchId, Phase, Plays, Stakes};
use operant::search::backgammon::{Cubeful, JudgedPlay};
use serde_json::{Value, json};

/// What is played for, as a player with this number sees it.
pub(super) fn stakes_line(stakes: &Stakes, player: u8) -> String {
    let [mine, theirs] = [player, 1 - player].map(|player| stakes.scores[usize::from(player)]);
    let what = match stakes.length {
        0 if stakes.jacoby => "money, Jacoby".to_owned(),
        0 => "money".to_owned(),
        length => {
            format!("match to {length}, X {mine} O {theirs}{}", if stakes.crawford { ", Crawford game" } else { "" })
        }
    };
    let whose = match stakes.owner {
        None => "in the middle",
        Some(owner) if owner == player => "X has it",
        Some(_) => "O has it",
    };
    format!("{what}; cube {} ({whose})\n", stakes.cube)
}

/// A worth as a chance to win the match, if there is one.
fn of_match(stakes: &Stakes, worth: f64) -> String {
    if stakes.length == 0 { String::new() } else { format!("  match {:.1} %", 100.0 * worth) }
}

/// What the answers to a question about the cube are worth to the player on roll, and which is right.
pub(super) fn cube_lines(state: &Match, cubeful: &Cubeful<'_>) -> String {
    let stakes = &state.stakes;
    if !matches!(state.phase, Phase::Cube | Phase::Offered) {
        let worth = cubeful.no_double();
        return format!("no double is possible: {:+.3}{}\n", cubeful.equity(worth), of_match(stakes, worth));
    }
    let choice = cubeful.choice();
    let line =
        |name: &str, worth: f64| format!("  {name:<14} {:+.3}{}\n", cubeful.equity(worth), of_match(stakes, worth));
    let best = if state.phase == Phase::Offered { answer(&choice) } else { choice.advice.text() };
    line("no double", choice.no_double)
        + &line("double, take", choice.take)
        + &line("double, pass", choice.drop)
        + &format!("best: {best}\n")
}

fn answer(choice: &operant::search::backgammon::CubeChoice) -> &'static str {
    if choice.takes() { "take" } else { "pass" }
}

/// The same for machines.
pub(super) fn cube_object(state: &Match, cubeful: &Cubeful<'_>) -> Value {
    let value = |worth: f64| match state.stakes.length {
        0 => json!({ "equity": cubeful.equity(worth), "points": worth }),
        _ => json!({ "equity": cubeful.equity(worth), "match_chance": worth }),
    };
    let choice = cubeful.choice();
    let question = match state.phase {
        Phase::Offered => "take",
        Phase::Cube => "double",
        _ => "none",
    };
    let best = match state.phase {
        Phase::Offered => answer(&choice),
        Phase::Cube => choice.advice.text(),
        _ => "no double is possible",
    };
    json!({
        "match_id": MatchId::of(state).id(), "question": question, "no_double": value(choice.no_double),
        "double_take": value(choice.take), "double_pass": value(choice.drop), "best": best,
    })
}

/// The best plays by what they are worth at the score and with the cube, one per line.
pub(super) fn listed_in(judged: &[JudgedPlay], stakes: &Stakes, plays: &Plays, most: usize) -> String {
    let (best, most_rolls) = judged.first().map_or((0.0, 1), |one| (one.equity, one.judged.rolls));
    let line = |(i, one): (usize, &JudgedPlay)| {
        let behind = if i == 0 { String::new() } else { format!(" ({:+.3})", one.equity - best) };
        let far = how_far(one.judged.rolls, most_rolls);
        let (text, chances) = (plays[one.judged.play].text(), chances(one.judged.outcome));
        let match_chance = of_match(stakes, one.worth);
        format!("{:>3}. {text:<24} {:+.3}{behind:<10}{match_chance} {chances}{far}\n", i + 1, one.equity)
    };
    judged.iter().take(most).enumerate().map(line).collect()
}
