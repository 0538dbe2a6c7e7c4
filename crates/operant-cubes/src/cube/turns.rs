//! Turns of cubes over lanes: pieces in fields of words, moved by shifts under masks, so that no lane looks anything up.

use super::{QUARTERS, Quarter};
use operant_lanes::{Int, Lanes, Rng, select};

/// Fields that move from one word to another by the same shift.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    from: usize,
    to: usize,
    /// The fields where they arrive.
    mask: u32,
    /// Bits to the left, or to the right if negative.
    by: i32,
}

/// Where every field of some words goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<const N: usize> {
    terms: [Term; N],
    len: usize,
}

/// A turn of some face by one, two or three quarters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Corners, or their twists: 8 fields of 4 bits in one word.
    pub(crate) corners: Fields<8>,
    /// Added to twists, field by field.
    pub(crate) twists: i32,
    /// Edges: 12 fields of 5 bits in two words, each `2 · piece + flip`.
    pub(crate) edges: Fields<12>,
    /// Added to edges modulo 2, field by field.
    pub(crate) flips: [i32; 2],
}

/// Bits of a corner's field.
pub(crate) const CORNER_BITS: u32 = 4;
/// Bits of an edge's field.
pub(crate) const EDGE_BITS: u32 = 5;
/// Edges of a word.
pub(crate) const WORD_EDGES: usize = 6;

const fn fields<const N: usize>(source: [usize; N], bits: u32, per_word: usize) -> Fields<N> {
    let mut found = Fields { terms: [Term { from: 0, to: 0, mask: 0, by: 0 }; N], len: 0 };
    let mut place = 0;
    while place < N {
        let (from, to) = (source[place] / per_word, place / per_word);
        let (there, here) = ((source[place] % per_word) as i32, (place % per_word) as i32);
        let by = (here - there) * bits as i32;
        let mask = ((1u32 << bits) - 1) << (here as u32 * bits);
        let mut i = 0;
        while i < found.len {
            let term = found.terms[i];
            if term.from == from && term.to == to && term.by == by {
                break;
            }
            i += 1;
        }
        if i == found.len {
            found.terms[i] = Term { from, to, mask, by };
            found.len += 1;
        } else {
            found.terms[i].mask |= mask;
        }
        place += 1;
    }
    found
}

/// `first`, then `second`.
const fn compose(first: &Quarter, second: &Quarter) -> Quarter {
    let mut both = *first;
    let mut i = 0;
    while i < 8 {
        both.corners[i] = first.corners[second.corners[i]];
        both.twists[i] = (first.twists[second.corners[i]] + second.twists[i]) % 3;
        i += 1;
    }
    let mut i = 0;
    while i < 12 {
        both.edges[i] = first.edges[second.edges[i]];
        both.flips[i] = (first.flips[second.edges[i]] + second.flips[i]) % 2;
        i += 1;
    }
    both
}

const fn turn(quarter: &Quarter) -> Turn {
    let (mut twists, mut flips) = (0, [0; 2]);
    let mut i = 0;
    while i < 8 {
        twists |= (quarter.twists[i] << (i as u32 * CORNER_BITS)) as i32;
        i += 1;
    }
    let mut i = 0;
    while i < 12 {
        flips[i / WORD_EDGES] |= (quarter.flips[i] << ((i % WORD_EDGES) as u32 * EDGE_BITS)) as i32;
        i += 1;
    }
    let corners = fields(quarter.corners, CORNER_BITS, 8);
    Turn { corners, twists, edges: fields(quarter.edges, EDGE_BITS, WORD_EDGES), flips }
}

/// The actions of a cube that turns N of the faces: clockwise quarters, then the inverse ones, then half turns.
pub(crate) const fn turns<const N: usize, const A: usize>(faces: [usize; N]) -> [Turn; A] {
    let mut all = [turn(&QUARTERS[0]); A];
    let mut i = 0;
    while i < N {
        let once = &QUARTERS[faces[i]];
        let twice = compose(once, once);
        all[i] = turn(once);
        all[N + i] = turn(&compose(&twice, once));
        all[2 * N + i] = turn(&twice);
        i += 1;
    }
    all
}

/// Words with their fields moved.
#[inline(always)]
pub(crate) fn move_fields<L: Lanes, const W: usize, const N: usize>(words: [L::I; W], fields: &Fields<N>) -> [L::I; W] {
    let mut moved = [L::I::from(0); W];
    for term in &fields.terms[..fields.len] {
        let word = words[term.from];
        let word = match term.by {
            0 => word,
            by if by > 0 => word.shl(by as u32),
            by => word.shr(by.unsigned_abs()),
        };
        moved[term.to] = moved[term.to] | (word & term.mask as i32);
    }
    moved
}

/// The lowest bit of every field.
pub(super) const ONES: i32 = 0x1111_1111;

/// Every field, below 3 before and given less than 3, modulo 3.
#[inline(always)]
pub(crate) fn add_mod3<L: Lanes>(twists: L::I, given: i32) -> L::I {
    fields_mod3::<L>(twists + given)
}

/// Every field, below 5 before, modulo 3.
#[inline(always)]
pub(super) fn fields_mod3<L: Lanes>(sum: L::I) -> L::I {
    // A field of 3 or 4 carries into its third bit when 1 is added.
    let over = (sum + ONES).shr(2) & ONES;
    sum - over * 3
}

/// The action that undoes an action of a cube that turns so many faces: quarter turns, inverse ones, half turns.
pub(crate) fn inverse_action(action: usize, faces: usize) -> usize {
    match action / faces {
        0 => action + faces,
        1 => action - faces,
        _ => action,
    }
}

/// The action that undoes an action of a cube that turns so many faces.
#[inline(always)]
pub(crate) fn inverse<L: Lanes>(action: L::I, faces: usize) -> L::I {
    let n = faces as i32;
    let other: L::I = select(action.lt(n), action + n, action - n);
    select(action.lt(2 * n), other, action)
}

/// A random action of so many that does not undo `last`.
#[inline(always)]
pub(crate) fn next_move<L: Lanes>(rng: &mut Rng<L>, last: L::I, faces: usize, actions: usize) -> L::I {
    let (among_others, _) = rng.word().mul_wide(actions as i32 - 1);
    let sum = inverse::<L>(last, faces) + among_others + 1;
    select(sum.lt(actions as i32), sum, sum - actions as i32)
}
