//! Sessions of games as SGF (Smart Game Format, GM[6], as GNU Backgammon writes it).

use super::position::BAR;
use super::record::{Record, Turn};
use std::fmt::Write;

/// Games as SGF: a tree per game, `W` for the first player and `B` for the second. Points are letters that both share: `a` is the first
/// player's first point and the second player's last; `y` is the bar, `z` off.
pub fn to_sgf(records: &[Record], names: [&str; 2]) -> String {
    let mut text = String::new();
    // Texts in which brackets and backslashes mean themselves.
    let names = names.map(|name| name.replace('\\', "\\\\").replace(']', "\\]"));
    for (number, record) in records.iter().enumerate() {
        let stakes = record.stakes;
        let ended = record
            .result()
            .map_or(String::new(), |won| format!("RE[{}+{}]", side(usize::from(won.player)), won.points));
        let rules = match (record.with_cube, stakes.length) {
            (false, _) => "RU[NoCube]",
            (true, 0) if stakes.jacoby => "RU[Jacoby]",
            (true, 0) => "",
            (true, _) if stakes.crawford => "RU[Crawford:CrawfordGame]",
            (true, _) => "RU[Crawford]",
        };
        let _ = write!(
            text,
            "(;FF[4]GM[6]CA[UTF-8]AP[operant]MI[length:{}][game:{number}][ws:{}][bs:{}]PW[{}]PB[{}]{rules}{ended}",
            stakes.length, stakes.scores[0], stakes.scores[1], names[0], names[1]
        );
        for turn in 0..=record.turns.len() {
            let player = (record.first + turn) % 2;
            for doubled in record.doubles.iter().filter(|doubled| doubled.turn == turn) {
                let answer = if doubled.taken { "take" } else { "drop" };
                let _ = write!(text, "\n;{}[double]\n;{}[{answer}]", side(player), side(1 - player));
            }
            if let Some(Turn { dice, play }) = record.turns.get(turn) {
                let letter = |place: usize| match (place, player) {
                    (0, _) => 'z',
                    (BAR, _) => 'y',
                    (place, 0) => char::from(b'a' - 1 + place as u8),
                    (place, _) => char::from(b'x' + 1 - place as u8),
                };
                let steps: String = play.steps().flat_map(|(from, to, _)| [letter(from), letter(to)]).collect();
                let _ = write!(text, "\n;{}[{}{}{steps}]", side(player), dice[0], dice[1]);
            }
        }
        text += ")\n";
    }
    text
}

fn side(player: usize) -> &'static str {
    ["W", "B"][player]
}
