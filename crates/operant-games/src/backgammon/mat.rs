//! Sessions of games as `.mat` files (Jellyfish's format), which GNU Backgammon reads and writes.

use super::match_play::{Decision, Match, Phase};
use super::plays::Plays;
use super::record::{Doubled, Record, Turn};
use super::stakes::{LONGEST_MATCH, Stakes};
use operant_base::{Error, Result};
use std::fmt::Write;

/// Column of the second player.
const SECOND: usize = 40;

/// A comment that tells of Jacoby's rule, for which the format has no word.
const JACOBY: &str = "; [Jacoby \"On\"]";

/// Games as a `.mat` file: one match, or games for money.
pub fn to_mat(records: &[Record], names: [&str; 2]) -> String {
    let first = records.first().map_or_else(Stakes::default, |record| record.stakes);
    let mut text = if first.jacoby { format!("{JACOBY}\n") } else { String::new() };
    let _ = writeln!(text, " {} point match", first.length);
    for (number, record) in records.iter().enumerate() {
        let _ = write!(text, "\n Game {}\n", number + 1);
        let left = format!(" {} : {}", names[0], record.stakes.scores[0]);
        let _ = writeln!(text, "{left:SECOND$}{} : {}", names[1], record.stakes.scores[1]);
        // An empty cell where the second player began.
        let cells: Vec<String> = (0..record.first).map(|_| String::new()).chain(cells(record)).collect();
        for (row, pair) in cells.chunks(2).enumerate() {
            let left = format!("{:>3}) {}", row + 1, pair[0]);
            let right = pair.get(1).map_or("", String::as_str);
            let _ = writeln!(text, "{}", format!("{left:SECOND$}{right}").trim_end());
        }
        if let Some(won) = record.result() {
            let indent = if won.player == 0 { 6 } else { SECOND };
            let plural = if won.points == 1 { "" } else { "s" };
            let over = record.stakes.length > 0 && record.stakes.next(won.player, won.points).is_none();
            let rest = if over { " and the match" } else { "" };
            let _ = writeln!(text, "{:indent$}Wins {} point{plural}{rest}", "", won.points);
        }
    }
    text
}

/// What both players did, one cell after the other.
fn cells(record: &Record) -> Vec<String> {
    let (mut cells, mut cube) = (Vec::new(), record.stakes.cube);
    for turn in 0..=record.turns.len() {
        for doubled in record.doubles.iter().filter(|doubled| doubled.turn == turn) {
            cube *= 2;
            cells.push(format!(" Doubles => {cube}"));
            cells.push(if doubled.taken { " Takes" } else { " Drops" }.to_owned());
        }
        if let Some(Turn { dice, play }) = record.turns.get(turn) {
            let moved = if play.steps().next().is_none() { String::new() } else { play.text() };
            cells.push(format!("{}{}: {moved}", dice[0], dice[1]));
        }
    }
    cells
}

/// What a cell begins with.
const WORDS: [&str; 5] = ["doubles", "takes", "drops", "wins", "resigns"];

/// Where the cells of a row begin.
fn begins(row: &str) -> Vec<usize> {
    let bytes = row.as_bytes();
    let die = |at: usize| bytes.get(at).is_some_and(|byte| (b'1'..=b'6').contains(byte));
    let is_cell = |i: &usize| {
        let dice = die(*i) && die(i + 1) && bytes.get(i + 2) == Some(&b':');
        let begins =
            |word: &&str| bytes[*i..].get(..word.len()).is_some_and(|b| b.eq_ignore_ascii_case(word.as_bytes()));
        (*i == 0 || bytes[i - 1] == b' ') && (dice || WORDS.iter().any(begins))
    };
    (0..bytes.len()).filter(is_cell).collect()
}

/// Points of both players in a line such as ` one : 3     two : 1`.
fn scores(line: &str) -> Option<[u16; 2]> {
    // Names may hold colons too, as in gnubg:0.
    fn split(text: &str) -> Option<(&str, &str)> {
        text.rsplit_once(" : ").or_else(|| text.rsplit_once(':'))
    }
    let (left, right) = split(line)?;
    let (_, middle) = split(left)?;
    Some([middle.split_whitespace().next()?.parse().ok()?, right.trim().parse().ok()?])
}

/// The games of a `.mat` file. Every play must be legal, an empty one the only one that the roll has, and the cube turned by the rules.
pub fn from_mat(text: &str) -> Result<Vec<Record>> {
    let mut reader = Reader {
        length: 0,
        jacoby: false,
        records: Vec::new(),
        state: Match::begin(Stakes::default(), 0),
        plays: Plays::default(),
    };
    for (number, line) in text.lines().enumerate() {
        reader.line(line).map_err(|what| Error::Invalid(format!("line {} of the .mat file: {what}", number + 1)))?;
    }
    if reader.records.is_empty() {
        return Err(Error::Invalid(
            "no game in the .mat file; wanted a line \"Game 1\" and rows of moves after it".into(),
        ));
    }
    Ok(reader.records)
}

struct Reader {
    length: u16,
    jacoby: bool,
    records: Vec<Record>,
    /// Of the last game.
    state: Match,
    plays: Plays,
}

impl Reader {
    fn line(&mut self, line: &str) -> std::result::Result<(), String> {
        let trimmed = line.trim();
        if trimmed == JACOBY {
            self.jacoby = true;
        } else if trimmed.starts_with(';') {
            // A comment.
        } else if let Some(length) = trimmed.strip_suffix("point match") {
            let length = length.trim();
            let known = length.parse().ok().filter(|length| *length <= LONGEST_MATCH);
            let wanted = || format!("a match to \"{length}\"; wanted 1 to {LONGEST_MATCH} points, or 0 for money");
            self.length = known.ok_or_else(wanted)?;
        } else if trimmed.starts_with("Game ") {
            self.begin()?;
        } else if let Some((row, rest)) = trimmed.split_once(')').filter(|(row, _)| row.parse::<u32>().is_ok()) {
            if self.records.is_empty() {
                return Err("moves before the first game; wanted a line \"Game 1\"".into());
            }
            let begins = begins(rest);
            let before = rest[..begins.first().copied().unwrap_or(rest.len())].trim();
            if !before.is_empty() {
                return Err(format!(
                    "\"{before}\": wanted a roll and its moves, as in 31: 8/5 6/5, or Doubles, Takes, Drops"
                ));
            }
            // One cell far to the right in the first row: the second player began.
            if row.trim() == "1" && begins.len() == 1 && begins[0] > SECOND / 3 {
                self.state.board.player = 1;
                self.last().first = 1;
            }
            for (i, &begin) in begins.iter().enumerate() {
                let cell = &rest[begin..begins.get(i + 1).copied().unwrap_or(rest.len())];
                self.cell(cell.trim())?;
            }
        } else if trimmed.starts_with("Wins ") {
            self.won(trimmed)?;
        } else if let Some(scores) = scores(trimmed).filter(|_| self.is_new()) {
            self.score(scores)?;
        }
        Ok(())
    }

    fn last(&mut self) -> &mut Record {
        self.records.last_mut().expect("a game has begun")
    }

    /// Whether a game has begun in which nothing has happened yet.
    fn is_new(&self) -> bool {
        self.records.last().is_some_and(|record| record.turns.is_empty() && record.doubles.is_empty())
    }

    fn begin(&mut self) -> std::result::Result<(), String> {
        let first = match self.length {
            0 => Stakes::money(self.jacoby),
            length => Stakes::match_to(length).map_err(|error| error.to_string())?,
        };
        let stakes = if self.records.is_empty() { first } else { self.state.next_stakes().unwrap_or(first) };
        self.records.push(Record { stakes, with_cube: true, ..Record::default() });
        self.state = Match::begin(stakes, 0);
        Ok(())
    }

    /// The score that the file gives at the beginning of a game: games that were given up have no end of their own.
    fn score(&mut self, scores: [u16; 2]) -> std::result::Result<(), String> {
        let stakes = &mut self.state.stakes;
        if stakes.scores != scores {
            let close = |scores: [u16; 2]| scores.iter().any(|&score| stakes.length.checked_sub(1) == Some(score));
            let before = self.records.iter().rev().nth(1).map_or([0; 2], |record| record.stakes.scores);
            (stakes.crawford, stakes.scores) = (close(scores) && !close(before), scores);
            stakes.check().map_err(|error| error.to_string())?;
            let stakes = *stakes;
            self.last().stakes = stakes;
        }
        Ok(())
    }

    /// A line or cell such as `Wins 2 points`. Of a game that was given up only the file knows what it was worth, and of one that ends a match
    /// it may say no more than that needed.
    fn won(&mut self, text: &str) -> std::result::Result<(), String> {
        let points = text.split_whitespace().nth(1).and_then(|points| points.parse::<u16>().ok());
        let Some((record, won)) = self.records.last().and_then(|record| Some((record, record.result()?))) else {
            return Ok(());
        };
        let over = record.stakes.length > 0 && record.stakes.next(won.player, won.points).is_none();
        match points {
            Some(points) if points > won.points || (points < won.points && !over) => {
                Err(format!("\"{text}\", but the moves before win {}", won.points))
            }
            _ => Ok(()),
        }
    }

    fn cell(&mut self, cell: &str) -> std::result::Result<(), String> {
        let lower = cell.to_lowercase();
        if lower.starts_with("wins") {
            return self.won(cell);
        }
        if lower.starts_with("resigns") {
            return Ok(());
        }
        let turn = self.last().turns.len();
        let mut decide = |decision: Decision| match self.state.after(decision) {
            Ok(state) => {
                self.state = state;
                Ok(())
            }
            Err(error) => Err(format!("\"{cell}\": {error}")),
        };
        if let Some(rest) = lower.strip_prefix("doubles") {
            decide(Decision::Double)?;
            let cube = 2 * self.state.stakes.cube;
            let named = rest.trim().trim_start_matches("=>").trim();
            if !named.is_empty() && named.parse() != Ok(cube) {
                return Err(format!("\"{cell}\": wanted a cube of {cube}"));
            }
        } else if lower.starts_with("takes") || lower.starts_with("drops") {
            let taken = lower.starts_with("takes");
            decide(if taken { Decision::Take } else { Decision::Drop })?;
            self.last().doubles.push(Doubled { turn, taken });
        } else {
            if self.state.phase == Phase::Offered {
                return Err(format!("\"{cell}\" after a double: wanted Takes or Drops"));
            }
            let digit = |at: usize| cell.as_bytes()[at] - b'0';
            self.play([digit(0), digit(1)], cell[3..].trim())?;
        }
        Ok(())
    }

    fn play(&mut self, dice: [u8; 2], moved: &str) -> std::result::Result<(), String> {
        let text = |error: Error| error.to_string();
        self.state = self.state.without_double().rolled(dice).map_err(text)?;
        let position = self.state.board.position;
        self.plays.find(position, dice);
        let empty = moved.is_empty() || moved.eq_ignore_ascii_case("cannot move") || moved == "????";
        let play = if empty {
            match &self.plays[..] {
                [only] if only.steps().next().is_none() => *only,
                _ => {
                    let legal = self.plays.len();
                    return Err(format!("no move for {}{}, but {legal} plays are legal", dice[0], dice[1]));
                }
            }
        } else {
            let moved = moved.replace("25/", "bar/").replace("/0", "/off");
            *self.plays.named(position, &moved).map_err(text)?
        };
        self.state = self.state.after(Decision::Play(play)).map_err(text)?;
        self.last().turns.push(Turn { dice, play });
        Ok(())
    }
}
