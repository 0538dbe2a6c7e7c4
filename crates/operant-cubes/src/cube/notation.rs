//! Moves as text: `R U' F2`.

use super::FACES;
use operant_base::{Error, Result};

/// Reads moves as face (numbered as in [`FACES`]) and clockwise quarters, 1 to 3.
pub fn parse_moves(text: &str) -> Result<Vec<(usize, usize)>> {
    text.split_whitespace().map(parse_move).collect()
}

fn parse_move(word: &str) -> Result<(usize, usize)> {
    let wrong = || {
        Error::Invalid(format!(
            "move \"{word}\": wanted a face {} with nothing, 2 or ' behind it, as in R U' F2",
            FACES.map(String::from).join(" ")
        ))
    };
    let mut letters = word.chars();
    let face = letters.next().and_then(|letter| FACES.iter().position(|&face| face == letter)).ok_or_else(wrong)?;
    let quarters = match letters.as_str() {
        "" => 1,
        "2" | "2'" | "2’" => 2,
        "'" | "’" | "3" => 3,
        _ => return Err(wrong()),
    };
    Ok((face, quarters))
}

/// Moves as [`parse_moves`] reads them.
pub fn print_moves(moves: &[(usize, usize)]) -> String {
    let words = moves.iter().map(|&(face, quarters)| format!("{}{}", FACES[face], ["", "", "2", "'"][quarters % 4]));
    words.collect::<Vec<_>>().join(" ")
}
