//! Positions and plays as text: GNU Backgammon's position IDs, and plays as `8/5 6/5`.

use super::plays::{Play, Plays};
use super::position::{BAR, CHECKERS, Position, Side};
use operant_base::{Error, Result};
use std::fmt::Write;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of an ID.
const ID_LEN: usize = 14;

/// A number as so many digits of base 64, 16 at most: its bytes, lowest first, three to four digits.
pub(super) fn to_digits(key: u128, digits: usize) -> String {
    let bytes = key.to_le_bytes();
    let mut id = String::with_capacity(16);
    for three in bytes[..12].chunks_exact(3) {
        let word = three.iter().fold(0_usize, |word, &byte| word << 8 | usize::from(byte));
        (0..4).for_each(|digit| id.push(char::from(DIGITS[word >> (18 - 6 * digit) & 63])));
    }
    id.truncate(digits);
    id
}

/// The number of 16 digits or fewer, or what is wrong with them.
pub(super) fn from_digits(id: &str) -> std::result::Result<u128, String> {
    let mut bytes = [0_u8; 16];
    for (four, three) in id.as_bytes().chunks(4).zip(bytes.chunks_exact_mut(3)) {
        let mut word = 0;
        for (i, character) in four.iter().enumerate() {
            let digit = DIGITS.iter().position(|digit| digit == character);
            let digit = digit.ok_or_else(|| format!("'{}' is no digit of base 64", char::from(*character)))?;
            word |= digit << (18 - 6 * i);
        }
        three.copy_from_slice(&[(word >> 16) as u8, (word >> 8) as u8, word as u8]);
    }
    Ok(u128::from_le_bytes(bytes))
}

impl Position {
    /// GNU Backgammon's ID: for each place of the opponent and then of the mover, from the first point to the bar, as many ones as there are
    /// checkers and a zero. (Its manual names the players in the other order than the program has them.)
    pub fn id(self) -> String {
        let (mut key, mut at) = (0_u128, 0);
        for side in [self.other, self.mover] {
            for place in 1..=BAR {
                let count = u32::from(side.count(place));
                key |= ((1 << count) - 1) << at;
                at += count + 1;
            }
        }
        to_digits(key, ID_LEN)
    }

    /// The position of an ID; says what is wrong with one that is none.
    pub fn from_id(id: &str) -> Result<Self> {
        let wrong = |what: String| {
            Error::Invalid(format!(
                "position id \"{id}\": {what}; wanted {ID_LEN} characters as GNU Backgammon shows them"
            ))
        };
        if id.len() != ID_LEN {
            return Err(wrong(format!("{} characters", id.len())));
        }
        let mut key = from_digits(id).map_err(wrong)? & ((1 << 80) - 1);
        let mut sides = [Side::default(); 2];
        for side in &mut sides {
            let mut counts = [0; BAR + 1];
            for count in &mut counts[1..] {
                let ones = key.trailing_ones();
                *count = ones.min(u32::from(u8::MAX)) as u8;
                key >>= ones + 1;
            }
            *side = Side::new(&counts).ok_or_else(|| wrong(format!("a side has more than {CHECKERS} checkers")))?;
        }
        let [other, mover] = sides;
        if key != 0 {
            return Err(wrong("there is something after the last place".into()));
        }
        let shared = (1..BAR).find(|&point| mover.count(point) > 0 && other.count(BAR - point) > 0);
        match shared {
            Some(point) => Err(wrong(format!("both sides have checkers on point {point}"))),
            None if mover.off() == CHECKERS && other.off() == CHECKERS => {
                Err(wrong("nobody has a checker left".into()))
            }
            None => Ok(Self { mover, other }),
        }
    }
}

/// A checker's way in one turn: where it stood and each place it came to, with whether it hit there.
#[derive(Clone, PartialEq)]
struct Way {
    from: usize,
    to: Vec<(usize, bool)>,
}

impl Play {
    /// In the usual notation: `8/5 6/5`, `bar/20*/14`, `13/7(2)`, or `no move`.
    pub fn text(&self) -> String {
        let mut ways: Vec<Way> = Vec::new();
        let mut hit_before = 0_u32;
        for (from, to, hits) in self.steps() {
            // A second checker on the same point hits nothing more.
            let hits = hits && hit_before >> to & 1 == 0;
            hit_before |= u32::from(hits) << to;
            match ways.iter_mut().find(|way| way.to.last().is_some_and(|last| last.0 == from)) {
                Some(way) => way.to.push((to, hits)),
                None => ways.push(Way { from, to: vec![(to, hits)] }),
            }
        }
        for way in &mut ways {
            let last = way.to.len() - 1;
            let mut at = 0;
            way.to.retain(|&(_, hits)| {
                at += 1;
                hits || at > last
            });
        }
        ways.sort_by_key(|way| std::cmp::Reverse((way.from, way.to.last().map(|to| to.0))));
        let mut text = String::new();
        let mut left = &ways[..];
        while let [way, ..] = left {
            let same = left.iter().take_while(|other| *other == way).count();
            left = &left[same..];
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{}", place_name(way.from));
            for &(to, hits) in &way.to {
                let _ = write!(text, "/{}{}", place_name(to), if hits { "*" } else { "" });
            }
            if same > 1 {
                let _ = write!(text, "({same})");
            }
        }
        if text.is_empty() { "no move".into() } else { text }
    }
}

fn place_name(place: usize) -> String {
    match place {
        0 => "off".into(),
        BAR => "bar".into(),
        point => point.to_string(),
    }
}

impl Plays {
    /// The play that a text in the usual notation means, among the plays found last. `*` may be left out.
    pub fn named(&self, position: Position, text: &str) -> Result<&Play> {
        let wrong = |what: &str| {
            let next = self.first().map_or_else(String::new, |play| {
                format!("; wanted one of {} plays, such as \"{}\"", self.len(), play.text())
            });
            Error::Invalid(format!("play \"{text}\": {what}{next}"))
        };
        let text = text.trim().to_lowercase();
        let mut after = position.mover;
        let mut hit = 0_u32;
        let words = text.split_whitespace().filter(|_| text != "no move");
        for word in words {
            let (way, times) = match word.strip_suffix(')').and_then(|word| word.split_once('(')) {
                Some((way, times)) => (
                    way,
                    times
                        .parse::<usize>()
                        .ok()
                        .filter(|times| (1..=4).contains(times))
                        .ok_or_else(|| wrong("the number in () is not 1 to 4"))?,
                ),
                None => (word, 1),
            };
            let mut from = None;
            for name in way.split('/') {
                let (name, hits) = name.strip_suffix('*').map_or((name, false), |name| (name, true));
                let place = match name {
                    "bar" => Some(BAR),
                    "off" => Some(0),
                    point => point.parse().ok().filter(|point| (1..BAR).contains(point)),
                };
                let place = place.ok_or_else(|| wrong("places are 1 to 24, bar and off"))?;
                hit |= u32::from(hits) << place;
                if let Some(from) = from {
                    for _ in 0..times {
                        if after.count(from) == 0 {
                            return Err(wrong(&format!("no checker to move from {}", place_name(from))));
                        }
                        after = after.moved(from, place);
                    }
                }
                from = Some(place);
            }
        }
        let fits = || self.iter().filter(|play| play.after() == after);
        let exactly = fits().find(|play| play.hits() == hit);
        exactly
            .or_else(|| fits().find(|play| play.hits() & hit == hit))
            .ok_or_else(|| wrong("not a legal way to play this roll"))
    }
}
