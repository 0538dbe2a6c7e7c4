//! 2048 (G. Cirulli, 2014): tiles slide, equal ones merge, chance adds a 2 (nine times of ten) or a 4. A board is one word, four bits per
//! cell: the exponent of its tile. One player; points are those of the merges, in units of [`POINTS`].

use super::boards;
use super::game::{Game, Heads, Turn, mix};
use operant_base::{Error, Result};
use operant_env::Canvas;

/// Points of the game that count as one point of value.
pub const POINTS: f32 = 1_000.0;
const SIDE: usize = 4;
const CELLS: usize = SIDE * SIDE;
/// Planes of an observation: one per exponent.
const PLANES: usize = 16;

/// The rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Twenty48;

/// A board, with the score so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tiles {
    /// Exponents of tiles, four bits per cell, row by row from the top left; 0 for none.
    pub cells: u64,
    /// Points of merges.
    pub score: u32,
    /// Tiles that chance still adds: 2 at the beginning, then 1 after each move.
    pub waiting: u8,
}

/// Which way tiles slide: left, right, up, down.
const NAMES: [&str; 4] = ["left", "right", "up", "down"];

/// Slides a row of four exponents to its low end; gives the row and the points.
const fn slide(row: u16) -> (u16, u32) {
    let (mut out, mut len, mut points, mut last) = (0u16, 0, 0u32, 0u16);
    let mut i = 0;
    while i < 4 {
        let tile = row >> (4 * i) & 15;
        if tile != 0 {
            if tile == last && tile < 15 {
                // The tile before it grows, and does not merge again.
                out += 1 << (4 * (len - 1));
                points += 1 << (tile + 1);
                last = 0;
            } else {
                out |= tile << (4 * len);
                len += 1;
                last = tile;
            }
        }
        i += 1;
    }
    (out, points)
}

const fn reversed(row: u16) -> u16 {
    row << 12 | row << 4 & 0x0f00 | row >> 4 & 0x00f0 | row >> 12
}

fn transposed(cells: u64) -> u64 {
    let mut out = 0;
    for cell in 0..CELLS {
        out |= (cells >> (4 * cell) & 15) << (4 * (cell % SIDE * SIDE + cell / SIDE));
    }
    out
}

/// Every row slid to its low end, or to its high end.
fn slid(cells: u64, to_high: bool) -> (u64, u32) {
    let (mut out, mut points) = (0, 0);
    for row in 0..SIDE {
        let tiles = (cells >> (16 * row)) as u16;
        let (moved, gained) = match to_high {
            false => slide(tiles),
            true => {
                let (moved, gained) = slide(reversed(tiles));
                (reversed(moved), gained)
            }
        };
        out |= u64::from(moved) << (16 * row);
        points += gained;
    }
    (out, points)
}

fn moved(cells: u64, way: u8) -> (u64, u32) {
    match way {
        0 => slid(cells, false),
        1 => slid(cells, true),
        way => {
            let (out, points) = slid(transposed(cells), way == 3);
            (transposed(out), points)
        }
    }
}

/// Cells without a tile, lowest first.
fn empty(cells: u64) -> impl Iterator<Item = usize> {
    (0..CELLS).filter(move |cell| cells >> (4 * cell) & 15 == 0)
}

impl Game for Twenty48 {
    type State = Tiles;
    type Action = u8;
    type Room = ();

    const NAME: &'static str = "2048";
    const PLAYERS: usize = 1;
    const OBSERVATION: usize = PLANES * CELLS;
    const POLICY: usize = 4;
    const USUAL_ACTIONS: usize = 4;
    const OUTCOMES: usize = 2 * CELLS;
    const RANGE: Option<[f32; 2]> = None;
    const HEADS: usize = 1;
    const HEADS_ARE: Heads = Heads::Points;
    const WORDS: usize = 2;

    fn start() -> Tiles {
        Tiles { cells: 0, score: 0, waiting: 2 }
    }

    fn turn(state: &Tiles) -> Turn {
        match state.waiting {
            0 if (0..4).all(|way| moved(state.cells, way).0 == state.cells) => Turn::Over,
            0 => Turn::Decision,
            _ => Turn::Chance,
        }
    }

    #[inline]
    fn player(_: &Tiles) -> usize {
        0
    }

    fn actions(state: &Tiles, (): &mut (), out: &mut Vec<u8>) {
        out.clear();
        out.extend((0..4).filter(|&way| moved(state.cells, way).0 != state.cells));
    }

    fn after(state: &Tiles, action: &u8) -> Tiles {
        let (cells, points) = moved(state.cells, *action);
        Tiles { cells, score: state.score + points, waiting: 1 }
    }

    #[inline]
    fn policy_index(_: &Tiles, action: &u8) -> (usize, Option<usize>) {
        (usize::from(*action), None)
    }

    /// A 2 and then a 4 for each empty cell.
    fn chances(state: &Tiles, out: &mut [f32]) -> usize {
        let count = empty(state.cells).count();
        for pair in out[..2 * count].chunks_exact_mut(2) {
            pair.copy_from_slice(&[0.9 / count as f32, 0.1 / count as f32]);
        }
        2 * count
    }

    fn happened(state: &Tiles, outcome: usize) -> Tiles {
        let cell = empty(state.cells).nth(outcome / 2).unwrap_or(0);
        let tile = 1 + (outcome % 2) as u64;
        Tiles { cells: state.cells | tile << (4 * cell), waiting: state.waiting - 1, ..*state }
    }

    #[inline]
    fn settled(state: &Tiles) -> f32 {
        state.score as f32 / POINTS
    }

    #[inline]
    fn hash(state: &Tiles) -> u64 {
        mix(mix(0, state.cells), u64::from(state.score) << 8 | u64::from(state.waiting))
    }

    fn observe(state: &Tiles, out: &mut [f32]) {
        out.fill(0.0);
        for cell in 0..CELLS {
            out[(state.cells >> (4 * cell) & 15) as usize * CELLS + cell] = 1.0;
        }
    }

    fn heads_of(points: f32, out: &mut [f32]) {
        out[0] = points;
    }

    #[inline]
    fn value_of(heads: &[f32]) -> f32 {
        heads[0]
    }

    fn write(state: &Tiles, out: &mut [u64]) {
        out.copy_from_slice(&[state.cells, u64::from(state.score) << 8 | u64::from(state.waiting)]);
    }

    fn read(words: &[u64]) -> Option<Tiles> {
        let &[cells, rest] = words else { return None };
        let state = Tiles { cells, score: u32::try_from(rest >> 8).ok()?, waiting: rest as u8 };
        let fits = usize::from(state.waiting) <= empty(cells).count() && state.waiting <= 2;
        fits.then_some(state)
    }

    /// Rows of tiles from above, with `/` between them, then the score, then `+` for each tile that chance still adds.
    fn text(state: &Tiles) -> String {
        let tile = |cell: usize| match state.cells >> (4 * cell) & 15 {
            0 => ".".to_owned(),
            exponent => (1_u32 << exponent).to_string(),
        };
        let row = |row: usize| (0..SIDE).map(|column| tile(row * SIDE + column)).collect::<Vec<_>>().join(" ");
        let rows = (0..SIDE).map(row).collect::<Vec<_>>().join("/");
        format!("{rows} : {}{}", state.score, "+".repeat(usize::from(state.waiting)))
    }

    fn parse(text: &str) -> Result<Tiles> {
        let wrong = || {
            let wanted = "wanted four rows of four tiles and the score, as in 2 . . ./. . . ./. 4 . ./. . . . : 0";
            Error::Invalid(format!("board \"{text}\": {wanted}"))
        };
        let (rows, score) = text.split_once(':').ok_or_else(wrong)?;
        let score = score.trim();
        let waiting = score.chars().rev().take_while(|&letter| letter == '+').count();
        let score: u32 = score.trim_end_matches('+').parse().map_err(|_| wrong())?;
        let tiles: Vec<&str> = rows.split('/').flat_map(str::split_whitespace).collect();
        if tiles.len() != CELLS || rows.split('/').count() != SIDE {
            return Err(wrong());
        }
        let mut cells = 0;
        for (cell, tile) in tiles.iter().enumerate() {
            if *tile != "." {
                let tile: u64 = tile.parse().map_err(|_| wrong())?;
                if !tile.is_power_of_two() || !(2..=1 << 15).contains(&tile) {
                    return Err(wrong());
                }
                cells |= u64::from(tile.ilog2()) << (4 * cell);
            }
        }
        Self::read(&[cells, u64::from(score) << 8 | waiting as u64]).ok_or_else(wrong)
    }

    fn draw(state: &Tiles) -> Option<Canvas> {
        Some(boards::tiles(SIDE, |cell| (state.cells >> (4 * cell) & 15) as u32, state.score))
    }

    fn action_text(_: &Tiles, action: &u8) -> String {
        NAMES[usize::from(*action)].to_owned()
    }
}
