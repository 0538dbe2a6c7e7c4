//! Cubes as facelet strings: faces U R F D L B, each row by row, a letter per sticker as in Kociemba's solver.

use super::{CORNERS, Cubies, EDGES, FACES, corner_facelet, edge_facelet};
use operant_base::{Error, Result};

/// The facelets of a cube of `size` 2 or 3, as colours numbered like [`FACES`].
pub(super) fn colours(cube: &Cubies, size: usize) -> Vec<usize> {
    let mut facelets: Vec<usize> = (0..6 * size * size).map(|i| i / (size * size)).collect();
    for place in 0..8 {
        let (piece, twist) = (usize::from(cube.corners[place]), usize::from(cube.twists[place]));
        for n in 0..3 {
            facelets[corner_facelet(size, place, (n + twist) % 3)] = CORNERS[piece][n];
        }
    }
    if size == 3 {
        for place in 0..12 {
            let (piece, flip) = (usize::from(cube.edges[place]), usize::from(cube.flips[place]));
            for n in 0..2 {
                facelets[edge_facelet(place, (n + flip) % 2)] = EDGES[piece][n];
            }
        }
    }
    facelets
}

/// A cube of `size` 2 or 3 as text.
pub fn print_facelets(cube: &Cubies, size: usize) -> String {
    colours(cube, size).into_iter().map(|colour| FACES[colour]).collect()
}

/// Reads a cube of `size` 2 or 3, or says why there is none like that.
pub fn parse_facelets(text: &str, size: usize) -> Result<Cubies> {
    let wrong = |reason: String| Err(Error::Invalid(format!("facelets \"{text}\": {reason}")));
    let letters: Vec<char> = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    let (wanted, each) = (6 * size * size, size * size);
    if letters.len() != wanted {
        let got = letters.len();
        return wrong(format!("{got} letters, wanted {wanted}: the faces U R F D L B, row by row"));
    }
    let mut facelets = Vec::with_capacity(wanted);
    for letter in letters {
        match FACES.iter().position(|face| face.eq_ignore_ascii_case(&letter)) {
            Some(colour) => facelets.push(colour),
            None => {
                return wrong(format!(
                    "'{letter}' names no face; stickers are named by the face whose colour they have, U R F D L B"
                ));
            }
        }
    }
    for (colour, name) in FACES.iter().enumerate() {
        let count = facelets.iter().filter(|&&facelet| facelet == colour).count();
        if count != each {
            return wrong(format!("{count} stickers of {name}, wanted {each}"));
        }
    }
    if size == 3
        && let Some(face) = (0..6).find(|&face| facelets[face * 9 + 4] != face)
    {
        let name = FACES[face];
        return wrong(format!("the centre of {name} is {}, wanted {name}", FACES[facelets[face * 9 + 4]]));
    }
    read_pieces(&facelets, size).or_else(wrong)
}

fn shown(facelets: &[usize]) -> String {
    facelets.iter().map(|&colour| FACES[colour]).collect()
}

fn read_pieces(facelets: &[usize], size: usize) -> std::result::Result<Cubies, String> {
    let mut cube = Cubies::SOLVED;
    for place in 0..8 {
        let seen: [usize; 3] = std::array::from_fn(|k| facelets[corner_facelet(size, place, k)]);
        let fits = |piece: usize, twist: usize| (0..3).all(|n| seen[(n + twist) % 3] == CORNERS[piece][n]);
        let found = (0..24).map(|code| (code / 3, code % 3)).find(|&(piece, twist)| fits(piece, twist));
        let name = shown(&CORNERS[place]);
        let (piece, twist) =
            found.ok_or_else(|| format!("no corner has the colours {} that are at {name}", shown(&seen)))?;
        if let Some(other) = (0..place).find(|&other| usize::from(cube.corners[other]) == piece) {
            let other = shown(&CORNERS[other]);
            return Err(format!("the corner {} is at both {other} and {name}", shown(&CORNERS[piece])));
        }
        (cube.corners[place], cube.twists[place]) = (piece as u8, twist as u8);
    }
    if cube.twists.iter().sum::<u8>() % 3 != 0 {
        return Err("one corner is twisted: thirds of a turn of all corners must sum to whole turns".into());
    }
    if size == 2 {
        return Ok(cube);
    }
    for place in 0..12 {
        let seen: [usize; 2] = std::array::from_fn(|k| facelets[edge_facelet(place, k)]);
        let fits = |piece: usize, flip: usize| (0..2).all(|n| seen[(n + flip) % 2] == EDGES[piece][n]);
        let found = (0..24).map(|code| (code / 2, code % 2)).find(|&(piece, flip)| fits(piece, flip));
        let name = shown(&EDGES[place]);
        let (piece, flip) =
            found.ok_or_else(|| format!("no edge has the colours {} that are at {name}", shown(&seen)))?;
        if let Some(other) = (0..place).find(|&other| usize::from(cube.edges[other]) == piece) {
            let other = shown(&EDGES[other]);
            return Err(format!("the edge {} is at both {other} and {name}", shown(&EDGES[piece])));
        }
        (cube.edges[place], cube.flips[place]) = (piece as u8, flip as u8);
    }
    if cube.flips.iter().sum::<u8>() % 2 != 0 {
        return Err("one edge is flipped: an even number of edges must be".into());
    }
    if odd(&cube.corners) != odd(&cube.edges) {
        return Err("two pieces are swapped: corners and edges must both be an even or both an odd permutation".into());
    }
    Ok(cube)
}

/// Whether a permutation is odd.
fn odd(places: &[u8]) -> bool {
    let pairs = (0..places.len()).flat_map(|i| (0..i).map(move |j| (j, i)));
    pairs.filter(|&(j, i)| places[j] > places[i]).count() % 2 == 1
}
