//! The six ways to look at a 2×2×2 cube whose corner DBL is home: three rotations about that corner, and their mirror images.
//!
//! Whoever looks so sees another state that is as far from solved and whose turns have other names: of the six states the one of the
//! least words stands for all. (Inversion, a further symmetry of distances, is none of turns.)

use super::pocket::PLACES;
use super::turns::{CORNER_BITS, ONES, fields_mod3};
use operant_lanes::{Int, Lanes, select};

/// Images of a state beside itself.
const IMAGES: usize = 5;

/// The whole cube turned by a third about the axis from URF to DBL: the place that each corner comes from, and the twist it gets.
pub(super) const ROTATION: ([u8; 8], [u8; 8]) = ([0, 4, 5, 1, 3, 6, 2, 7], [1, 2, 1, 2, 2, 1, 1, 2]);
/// Where corners are in the mirror that swaps the faces R and F. There a third clockwise is one anticlockwise.
pub(super) const MIRROR: [u8; 8] = [0, 3, 2, 1, 4, 6, 5, 7];

/// What an image makes of one place.
#[derive(Clone, Copy)]
struct Place {
    /// Where its corner goes, in bits.
    shift: u32,
    /// By corner: the corner that it is in the image, and the twist that it gets, both in the field where it goes.
    corner: [i32; 8],
    twist: [i32; 8],
}

struct Image {
    mirrored: bool,
    places: [Place; PLACES],
}

/// Where a rotation carries a place.
const fn carried(place: usize) -> usize {
    let mut to = 0;
    while ROTATION.0[to] as usize != place {
        to += 1;
    }
    to
}

/// So many rotations, then the mirror if wanted.
const fn image(rotations: usize, mirrored: bool) -> Image {
    let mut places = [Place { shift: 0, corner: [0; 8], twist: [0; 8] }; PLACES];
    let mut place = 0;
    while place < PLACES {
        let mut corner = 0;
        while corner < 8 {
            let (mut at, mut is, mut twist) = (place, corner, 0);
            let mut i = 0;
            while i < rotations {
                (at, is) = (carried(at), carried(is));
                twist += 3 + ROTATION.1[at] - ROTATION.1[is];
                i += 1;
            }
            if mirrored {
                (at, is, twist) = (MIRROR[at] as usize, MIRROR[is] as usize, 2 * twist);
            }
            let shift = at as u32 * CORNER_BITS;
            places[place].shift = shift;
            places[place].corner[corner] = (is as i32) << shift;
            places[place].twist[corner] = (twist as i32 % 3) << shift;
            corner += 1;
        }
        place += 1;
    }
    Image { mirrored, places }
}

static OTHERS: [Image; IMAGES] = [image(1, false), image(2, false), image(0, true), image(1, true), image(2, true)];

/// The least of a state's images: corners and twists as the env `cube2` has them.
#[inline(always)]
pub(crate) fn least_image<L: Lanes>(corners: L::I, twists: L::I) -> (L::I, L::I) {
    // Twists of 1 and 2 change places in the mirror.
    let mirror_twists = (twists & ONES).shl(1) | (twists.shr(1) & ONES);
    let (mut least, mut least_twists) = (corners, twists);
    for image in &OTHERS {
        let own = if image.mirrored { mirror_twists } else { twists };
        let (mut to, mut sum) = (L::I::from(0), L::I::from(0));
        for (place, Place { shift, corner, twist }) in image.places.iter().enumerate() {
            let from = place as u32 * CORNER_BITS;
            let is = corners.shr(from) & 15;
            to = to | is.lookup(corner);
            sum = sum + is.lookup(twist) + (own.shr(from) & 15).shl(*shift);
        }
        let sum = fields_mod3::<L>(sum);
        let less = to.lt(least) | (to.eq(least) & sum.lt(least_twists));
        (least, least_twists) = (select(less, to, least), select(less, sum, least_twists));
    }
    (least, least_twists)
}
