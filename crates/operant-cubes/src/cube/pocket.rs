//! States of the 2×2×2 cube as numbers, with tables of its turns and of its symmetries.
//!
//! A number is `rank of the corners' permutation · 729 + twists of the first six as a number of base 3`. A turn changes
//! either part by itself, so that it is two look-ups.

use super::{Cubies, POCKET_FACES, inverse_action, symmetry};
use operant_base::{Error, Result};
use operant_lanes::rng::HostRng;

/// Permutations of seven corners.
const PERMUTATIONS: usize = 5040;
/// Twists of six corners; the seventh's follows.
const TWISTS: usize = 729;
/// All states.
pub const POCKET_STATES: usize = PERMUTATIONS * TWISTS;
/// Corners that turn.
pub(crate) const PLACES: usize = 7;
/// Quarter turns, inverse ones and half turns.
const ACTIONS: usize = 9;

/// Turns of the 2×2×2 cube by tables. Actions are those of the env `cube2`: R U F, R' U' F', R2 U2 F2.
#[derive(Clone, Debug)]
pub struct Pocket {
    /// `[permutation, action]`
    permutations: Vec<u16>,
    /// `[twists, action]`
    twists: Vec<u16>,
}

impl Default for Pocket {
    fn default() -> Self {
        Self::new()
    }
}

impl Pocket {
    /// The solved state.
    pub const SOLVED: u32 = 0;

    /// Builds the tables: milliseconds.
    pub fn new() -> Self {
        let table = |count: usize, part: fn(u32) -> u32, whole: fn(usize) -> u32| -> Vec<u16> {
            let after = |i: usize| {
                let cube = Self::cubies(whole(i));
                (0..ACTIONS).map(move |action| {
                    let (face, quarters) = Self::action_move(action);
                    part(Self::index(&cube.turned(face, quarters))) as u16
                })
            };
            (0..count).flat_map(after).collect()
        };
        Self {
            permutations: table(PERMUTATIONS, |index| index / TWISTS as u32, |i| (i * TWISTS) as u32),
            twists: table(TWISTS, |index| index % TWISTS as u32, |i| i as u32),
        }
    }

    /// Face (numbered as in [`FACES`](super::FACES)) and clockwise quarters of an action.
    pub fn action_move(action: usize) -> (usize, usize) {
        (POCKET_FACES[action % 3], [1, 3, 2][action / 3])
    }

    /// The action of a face and quarters, if this cube turns that face.
    pub fn action_of((face, quarters): (usize, usize)) -> Option<usize> {
        let place = POCKET_FACES.iter().position(|&known| known == face)?;
        Some(place + 3 * [0, 0, 2, 1][quarters % 4])
    }

    /// The action that undoes an action.
    pub fn inverse(action: usize) -> usize {
        inverse_action(action, 3)
    }

    /// The state after an action.
    #[inline]
    pub fn turned(&self, state: u32, action: usize) -> u32 {
        let (permutation, twists) = (state as usize / TWISTS, state as usize % TWISTS);
        let permutation = u32::from(self.permutations[permutation * ACTIONS + action]);
        permutation * TWISTS as u32 + u32::from(self.twists[twists * ACTIONS + action])
    }

    /// The number of a state whose corner DBL is home.
    pub fn index(cube: &Cubies) -> u32 {
        let mut rank = 0;
        for i in 0..PLACES {
            let smaller = cube.corners[i + 1..PLACES].iter().filter(|&&later| later < cube.corners[i]).count();
            rank = rank * (PLACES - i) as u32 + smaller as u32;
        }
        cube.twists[..PLACES - 1].iter().fold(rank, |index, &twist| index * 3 + u32::from(twist))
    }

    /// The pieces of a state.
    pub fn cubies(index: u32) -> Cubies {
        let mut cube = Cubies::SOLVED;
        let (mut rank, mut twists) = (index / TWISTS as u32, index % TWISTS as u32);
        let mut sum = 0;
        for place in (0..PLACES - 1).rev() {
            cube.twists[place] = (twists % 3) as u8;
            (sum, twists) = (sum + twists % 3, twists / 3);
        }
        cube.twists[PLACES - 1] = ((3 - sum % 3) % 3) as u8;
        let mut digits = [0; PLACES];
        for i in (0..PLACES).rev() {
            let base = (PLACES - i) as u32;
            (digits[i], rank) = (rank % base, rank / base);
        }
        let mut left: [u8; PLACES] = std::array::from_fn(|i| i as u8);
        for (i, &digit) in digits.iter().enumerate() {
            let digit = digit as usize;
            cube.corners[i] = left[digit];
            left.copy_within(digit + 1.., digit);
        }
        cube
    }

    /// The number of any cube's corners, however the cube is held.
    pub fn index_of_any(cube: &Cubies) -> Result<u32> {
        let mut corners = cube.corners;
        corners.sort_unstable();
        if corners != Cubies::SOLVED.corners || cube.twists.iter().map(|&twist| u32::from(twist)).sum::<u32>() % 3 != 0
        {
            let text = "corners that no 2×2×2 cube has: wanted each of 0 to 7 once and twists that sum to whole turns";
            return Err(Error::Invalid(text.into()));
        }
        Ok(Self::index(&cube.with_last_corner_home()))
    }

    /// A state drawn from all with the same chance.
    pub fn random(rng: &mut HostRng) -> u32 {
        rng.below(POCKET_STATES as u32)
    }

    /// Of every state, the least number among its images: 3 rotations about the fixed corner, 2 mirror images, and for
    /// each the inverse. All have the same distance. Takes about a second.
    pub fn representatives(&self) -> Vec<u32> {
        let mut least = vec![u32::MAX; POCKET_STATES];
        for state in 0..POCKET_STATES as u32 {
            if least[state as usize] != u32::MAX {
                continue;
            }
            // States come in order: the first of an orbit that is met is its least.
            for image in Self::images(state) {
                least[image as usize] = state;
            }
        }
        least
    }

    /// The 12 images of a state, itself first.
    pub fn images(state: u32) -> [u32; 12] {
        let mut cube = Self::cubies(state);
        let mut images = [0; 12];
        for images in images.as_chunks_mut::<4>().0 {
            let mirrored = mirror(&cube);
            *images = [&cube, &cube.inverse(), &mirrored, &mirrored.inverse()].map(Self::index);
            cube = ROTATION.inverse().then(&cube).then(&ROTATION);
        }
        images
    }

    /// Entries of [`Pocket::pairs`].
    pub const PAIR_ENTRIES: usize = PAIRS * CODES * CODES;

    /// For each two corners where both are and how they are twisted, as the number of an entry: 21 of 9,261 entries.
    pub fn pairs(state: u32, out: &mut [i32]) {
        let cube = Self::cubies(state);
        let mut codes = [0; PLACES];
        for place in 0..PLACES {
            codes[usize::from(cube.corners[place])] = place * 3 + usize::from(cube.twists[place]);
        }
        let mut pair = 0;
        for second in 1..PLACES {
            for first in 0..second {
                out[pair] = ((pair * CODES + codes[first]) * CODES + codes[second]) as i32;
                pair += 1;
            }
        }
    }

    /// Pairs of corners.
    pub const PAIRS: usize = PAIRS;
    /// Places and twists of a corner.
    pub const CODES: usize = CODES;
}

/// Pairs of seven corners.
const PAIRS: usize = PLACES * (PLACES - 1) / 2;
/// Places and twists of a corner.
const CODES: usize = PLACES * 3;

/// The whole cube turned by a third about the axis from URF to DBL.
const ROTATION: Cubies = Cubies { corners: symmetry::ROTATION.0, twists: symmetry::ROTATION.1, ..Cubies::SOLVED };

/// The mirror image that swaps the faces R and F: a third clockwise becomes one anticlockwise.
fn mirror(cube: &Cubies) -> Cubies {
    let mut image = *cube;
    for place in 0..8 {
        let to = usize::from(symmetry::MIRROR[place]);
        image.corners[to] = symmetry::MIRROR[usize::from(cube.corners[place])];
        image.twists[to] = (3 - cube.twists[place]) % 3;
    }
    image
}
