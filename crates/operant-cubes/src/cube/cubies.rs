//! A cube as ordinary Rust: which piece lies where, and how it is turned.

use super::{QUARTERS, Quarter};

/// Pieces and their twists and flips, place by place. On the 2×2×2 the edges stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cubies {
    /// The corner at each place.
    pub corners: [u8; 8],
    /// Its clockwise thirds.
    pub twists: [u8; 8],
    /// The edge at each place.
    pub edges: [u8; 12],
    /// Whether it is flipped.
    pub flips: [u8; 12],
}

impl Cubies {
    /// Every piece at home.
    pub const SOLVED: Self = Self {
        corners: [0, 1, 2, 3, 4, 5, 6, 7],
        twists: [0; 8],
        edges: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        flips: [0; 12],
    };

    const fn of(quarter: &Quarter) -> Self {
        let mut cube = Self::SOLVED;
        let mut i = 0;
        while i < 8 {
            (cube.corners[i], cube.twists[i]) = (quarter.corners[i] as u8, quarter.twists[i] as u8);
            i += 1;
        }
        let mut i = 0;
        while i < 12 {
            (cube.edges[i], cube.flips[i]) = (quarter.edges[i] as u8, quarter.flips[i] as u8);
            i += 1;
        }
        cube
    }

    /// This, then `next`: what lies here after `next` carried it.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        let mut cube = Self::SOLVED;
        for i in 0..8 {
            let from = usize::from(next.corners[i]);
            cube.corners[i] = self.corners[from];
            cube.twists[i] = (self.twists[from] + next.twists[i]) % 3;
        }
        for i in 0..12 {
            let from = usize::from(next.edges[i]);
            cube.edges[i] = self.edges[from];
            cube.flips[i] = self.flips[from] ^ next.flips[i];
        }
        cube
    }

    /// What undoes it.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let mut cube = Self::SOLVED;
        for i in 0..8u8 {
            let (at, home) = (usize::from(i), usize::from(self.corners[usize::from(i)]));
            (cube.corners[home], cube.twists[home]) = (i, (3 - self.twists[at]) % 3);
        }
        for i in 0..12u8 {
            let (at, home) = (usize::from(i), usize::from(self.edges[usize::from(i)]));
            (cube.edges[home], cube.flips[home]) = (i, self.flips[at]);
        }
        cube
    }

    /// After so many clockwise quarter turns of a face, numbered as in [`FACES`](super::FACES).
    #[must_use]
    pub fn turned(&self, face: usize, quarters: usize) -> Self {
        let quarter = Self::of(&QUARTERS[face]);
        (0..quarters % 4).fold(*self, |cube, _| cube.then(&quarter))
    }

    /// The corners of a cube turned as a whole, a quarter clockwise as seen from R, U or F.
    fn rotation(axis: usize) -> Self {
        // Opposite layers of a 2×2×2 turned alike are the whole.
        Self::SOLVED.turned(axis, 1).turned(axis + 3, 3)
    }

    /// The corners as they are when the cube is turned as a whole until the corner DBL is home.
    #[must_use]
    pub fn with_last_corner_home(&self) -> Self {
        let home = |cube: &Self| cube.corners[7] == 7 && cube.twists[7] == 0;
        let mut seen = vec![Self { edges: Self::SOLVED.edges, flips: Self::SOLVED.flips, ..*self }];
        let mut next = 0;
        // 24 ways to hold a cube; one of them has the corner home.
        while !home(&seen[next]) {
            for axis in 0..2 {
                let turned = seen[next].then(&Self::rotation(axis));
                let turned = Self { edges: Self::SOLVED.edges, flips: Self::SOLVED.flips, ..turned };
                if !seen.contains(&turned) {
                    seen.push(turned);
                }
            }
            next += 1;
        }
        seen[next]
    }
}
