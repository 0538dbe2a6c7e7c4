//! What the 2×2×2 and the 3×3×3 cube share: pieces, facelets, turns, notation, pictures.
//!
//! Corners lie at URF, UFL, ULB, UBR, DFR, DLF, DRB, DBL (the 2×2×2 never moves the last one), edges at UR, UF, UL, UB, DR,
//! DF, DL, DB, FR, FL, BL, BR. A piece's twist counts clockwise thirds from where its U or D facelet shows up or down; its
//! flip is as in Kociemba's two-phase solver, where only F and B flip edges.

mod cubies;
mod facelets;
mod notation;
mod picture;
mod pocket;
mod pocket_table;
mod symmetry;
mod turns;

pub use cubies::Cubies;
pub use facelets::{parse_facelets, print_facelets};
pub use notation::{parse_moves, print_moves};
pub use picture::ansi_net;
pub(super) use picture::draw_net;
pub(super) use pocket::PLACES as POCKET_PLACES;
pub use pocket::{POCKET_STATES, Pocket};
pub use pocket_table::{DistanceTable, Metric};
pub(super) use symmetry::least_image;
pub(super) use turns::{
    CORNER_BITS, EDGE_BITS, Turn, WORD_EDGES, add_mod3, inverse_action, move_fields, next_move, turns,
};

/// Faces in the order of facelet strings and colours.
pub const FACES: [char; 6] = ['U', 'R', 'F', 'D', 'L', 'B'];

/// Faces that each corner shows at home, from its U or D facelet clockwise.
pub(super) const CORNERS: [[usize; 3]; 8] =
    [[0, 1, 2], [0, 2, 4], [0, 4, 5], [0, 5, 1], [3, 2, 1], [3, 4, 2], [3, 1, 5], [3, 5, 4]];
/// Faces that each edge shows at home, its reference facelet first.
pub(super) const EDGES: [[usize; 2]; 12] =
    [[0, 1], [0, 2], [0, 4], [0, 5], [3, 1], [3, 2], [3, 4], [3, 5], [2, 1], [2, 4], [5, 4], [5, 1]];
/// Where each corner's facelets lie on their faces: 0 top left, 1 top right, 2 bottom left, 3 bottom right.
pub(super) const CORNER_SPOTS: [[usize; 3]; 8] =
    [[3, 0, 1], [2, 0, 1], [0, 0, 1], [1, 0, 1], [1, 3, 2], [0, 3, 2], [3, 3, 2], [2, 3, 2]];
/// Where each edge's facelets lie on their faces: 0 top, 1 left, 2 right, 3 bottom.
pub(super) const EDGE_SPOTS: [[usize; 2]; 12] =
    [[2, 0], [3, 0], [1, 0], [0, 0], [2, 3], [0, 3], [1, 3], [3, 3], [2, 1], [1, 2], [2, 1], [1, 2]];

/// A clockwise quarter turn: the place that each corner comes from, the twist it gets, and the same for edges and flips.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quarter {
    pub(super) corners: [usize; 8],
    pub(super) twists: [usize; 8],
    pub(super) edges: [usize; 12],
    pub(super) flips: [usize; 12],
}

const NO_TWIST: [usize; 8] = [0; 8];
const NO_FLIP: [usize; 12] = [0; 12];

/// Turns of the faces U, R, F, D, L, B.
pub(super) const QUARTERS: [Quarter; 6] = [
    Quarter {
        corners: [3, 0, 1, 2, 4, 5, 6, 7],
        twists: NO_TWIST,
        edges: [3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11],
        flips: NO_FLIP,
    },
    Quarter {
        corners: [4, 1, 2, 0, 6, 5, 3, 7],
        twists: [2, 0, 0, 1, 1, 0, 2, 0],
        edges: [8, 1, 2, 3, 11, 5, 6, 7, 4, 9, 10, 0],
        flips: NO_FLIP,
    },
    Quarter {
        corners: [1, 5, 2, 3, 0, 4, 6, 7],
        twists: [1, 2, 0, 0, 2, 1, 0, 0],
        edges: [0, 9, 2, 3, 4, 8, 6, 7, 1, 5, 10, 11],
        flips: [0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0],
    },
    Quarter {
        corners: [0, 1, 2, 3, 5, 7, 4, 6],
        twists: NO_TWIST,
        edges: [0, 1, 2, 3, 5, 6, 7, 4, 8, 9, 10, 11],
        flips: NO_FLIP,
    },
    Quarter {
        corners: [0, 2, 7, 3, 4, 1, 6, 5],
        twists: [0, 1, 2, 0, 0, 2, 0, 1],
        edges: [0, 1, 10, 3, 4, 5, 9, 7, 8, 2, 6, 11],
        flips: NO_FLIP,
    },
    Quarter {
        corners: [0, 1, 3, 6, 4, 5, 7, 2],
        twists: [0, 0, 1, 2, 0, 0, 1, 2],
        edges: [0, 1, 2, 11, 4, 5, 6, 10, 8, 9, 3, 7],
        flips: [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1],
    },
];

/// Faces that the 2×2×2 turns, in the order of its actions: R, U, F. The opposite turns differ by a rotation of the whole.
pub const POCKET_FACES: [usize; 3] = [1, 0, 2];
/// Faces that the 3×3×3 turns, in the order of its actions.
pub const CUBE_FACES: [usize; 6] = [0, 1, 2, 3, 4, 5];

/// The facelet of a cube of `size` 2 or 3 at a corner's facelet `k`.
#[inline(always)]
pub(super) fn corner_facelet(size: usize, place: usize, k: usize) -> usize {
    let (spot, last) = (CORNER_SPOTS[place][k], size - 1);
    CORNERS[place][k] * size * size + (spot / 2) * last * size + (spot % 2) * last
}

/// The facelet of a 3×3×3 cube at an edge's facelet `k`.
#[inline(always)]
pub(super) fn edge_facelet(place: usize, k: usize) -> usize {
    EDGES[place][k] * 9 + [1, 3, 5, 7][EDGE_SPOTS[place][k]]
}
