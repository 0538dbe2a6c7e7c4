//! Games as they were played, and sessions of them as `.mat` files (Jellyfish's format) and as SGF; GNU Backgammon reads both.

use super::plays::{Play, Plays};
use super::position::{BAR, Points, Position};
use crate::error::{Error, Result};
use std::fmt::Write;

/// A turn: the roll and its play.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// The roll.
    pub dice: [u8; 2],
    /// What was played.
    pub play: Play,
}

/// A game from the opening position on; players take turns.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Record {
    /// Which of the two players began.
    pub first: usize,
    /// All turns.
    pub turns: Vec<Turn>,
}

impl Record {
    /// Each turn with the position before it, and the position at the end.
    pub fn positions(&self) -> (Vec<Position>, Position) {
        let mut position = Position::START;
        let mut before = Vec::with_capacity(self.turns.len());
        for turn in &self.turns {
            before.push(position);
            position = turn.play.result(position);
        }
        (before, position)
    }

    /// Who won what, if the game is at its end.
    pub fn result(&self) -> Option<(usize, Points)> {
        let points = self.positions().1.lost()?;
        // The player of the last turn.
        Some(((self.first + self.turns.len() + 1) % 2, points))
    }

    /// Turns with a choice.
    pub fn decisions(&self) -> usize {
        let mut plays = Plays::default();
        let positions = self.positions().0;
        let with_choice = positions.into_iter().zip(&self.turns).filter(|(position, turn)| {
            plays.find(*position, turn.dice);
            plays.len() > 1
        });
        with_choice.count()
    }
}

/// Column of the second player.
const SECOND: usize = 40;

/// Games without a cube as a `.mat` file of a money session.
pub fn to_mat(records: &[Record], names: [&str; 2]) -> String {
    let mut text = String::from(" 0 point match\n");
    let mut scores = [0; 2];
    for (number, record) in records.iter().enumerate() {
        let _ = write!(text, "\n Game {}\n", number + 1);
        let left = format!(" {} : {}", names[0], scores[0]);
        let _ = writeln!(text, "{left:SECOND$}{} : {}", names[1], scores[1]);
        let cells = record.turns.iter().map(|turn| {
            let moved = if turn.play.steps().next().is_none() { String::new() } else { turn.play.text() };
            format!("{}{}: {moved}", turn.dice[0], turn.dice[1])
        });
        // An empty cell where the second player began.
        let cells: Vec<String> = (0..record.first).map(|_| String::new()).chain(cells).collect();
        for (row, pair) in cells.chunks(2).enumerate() {
            let left = format!("{:>3}) {}", row + 1, pair[0]);
            let right = pair.get(1).map_or("", String::as_str);
            let _ = writeln!(text, "{}", format!("{left:SECOND$}{right}").trim_end());
        }
        if let Some((winner, points)) = record.result() {
            scores[winner] += points as u32;
            let indent = if winner == 0 { 6 } else { SECOND };
            let plural = if points == Points::Single { "" } else { "s" };
            let _ = writeln!(text, "{:indent$}Wins {} point{plural}", "", points as u32);
        }
    }
    text
}

/// Games without a cube as SGF (Smart Game Format, GM[6], as GNU Backgammon writes it): a tree per game, `W` for the first player and `B` for
/// the second. Points are letters that both share: `a` is the first player's first point and the second player's last; `y` is the bar, `z` off.
pub fn to_sgf(records: &[Record], names: [&str; 2]) -> String {
    let mut text = String::new();
    let mut scores = [0; 2];
    // Texts in which brackets and backslashes mean themselves.
    let names = names.map(|name| name.replace('\\', "\\\\").replace(']', "\\]"));
    for (number, record) in records.iter().enumerate() {
        let result = record.result();
        let ended =
            result.map_or(String::new(), |(winner, points)| format!("RE[{}+{}]", ["W", "B"][winner], points as u32));
        let _ = write!(
            text,
            "(;FF[4]GM[6]CA[UTF-8]AP[operant]MI[length:0][game:{number}][ws:{}][bs:{}]PW[{}]PB[{}]RU[NoCube]{ended}",
            scores[0], scores[1], names[0], names[1]
        );
        for (i, turn) in record.turns.iter().enumerate() {
            let player = (record.first + i) % 2;
            let letter = |place: usize| match (place, player) {
                (0, _) => 'z',
                (BAR, _) => 'y',
                (place, 0) => char::from(b'a' - 1 + place as u8),
                (place, _) => char::from(b'x' + 1 - place as u8),
            };
            let steps: String = turn.play.steps().flat_map(|(from, to, _)| [letter(from), letter(to)]).collect();
            let _ = write!(text, "\n;{}[{}{}{steps}]", ["W", "B"][player], turn.dice[0], turn.dice[1]);
        }
        text += ")\n";
        if let Some((winner, points)) = result {
            scores[winner] += points as u32;
        }
    }
    text
}

/// The games of a `.mat` file. Every play must be legal, and an empty one the only one that the roll has; cubes are refused.
pub fn from_mat(text: &str) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    let mut plays = Plays::default();
    let mut position = Position::START;
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: String| Error::Invalid(format!("line {} of the .mat file: {what}", number + 1));
        let trimmed = line.trim();
        if trimmed.starts_with("Game ") {
            records.push(Record::default());
            position = Position::START;
            continue;
        }
        let Some((row, rest)) = trimmed.split_once(')').filter(|(row, _)| row.parse::<u32>().is_ok()) else { continue };
        let Some(record) = records.last_mut() else {
            return Err(wrong("moves before the first game; wanted a line \"Game 1\"".into()));
        };
        // A cell begins with two digits and a colon.
        let bytes = rest.as_bytes();
        let is_cell = |i: &usize| {
            let die = |at: usize| bytes.get(at).is_some_and(|byte| (b'1'..=b'6').contains(byte));
            die(*i) && die(i + 1) && bytes.get(i + 2) == Some(&b':') && (*i == 0 || bytes[i - 1] == b' ')
        };
        let begins: Vec<usize> = (0..bytes.len()).filter(is_cell).collect();
        let lower = rest.to_lowercase();
        if let Some(cube) = ["doubles", "takes", "drops"].iter().find(|word| lower.contains(**word)) {
            return Err(wrong(format!("\"{cube}\": wanted a game without a cube")));
        }
        // One cell far to the right in the first row: the second player began.
        if row.trim() == "1" && begins.len() == 1 && begins[0] > SECOND / 3 {
            record.first = 1;
        }
        for (i, &begin) in begins.iter().enumerate() {
            let cell = &rest[begin..begins.get(i + 1).copied().unwrap_or(rest.len())];
            let dice = [bytes[begin] - b'0', bytes[begin + 1] - b'0'];
            let moved = cell[3..].trim();
            plays.find(position, dice);
            let empty = moved.is_empty() || moved.eq_ignore_ascii_case("cannot move") || moved == "????";
            let play = if empty {
                match &plays[..] {
                    [only] if only.steps().next().is_none() => *only,
                    _ => {
                        return Err(wrong(format!(
                            "no move for {}{}, but {} plays are legal",
                            dice[0],
                            dice[1],
                            plays.len()
                        )));
                    }
                }
            } else {
                let moved = moved.replace("25/", "bar/").replace("/0", "/off");
                *plays.named(position, &moved).map_err(|error| wrong(error.to_string()))?
            };
            record.turns.push(Turn { dice, play });
            position = play.result(position);
        }
    }
    Ok(records)
}
