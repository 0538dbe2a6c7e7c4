//! The 3×3×3 cube: quarter turns of its six faces, half turns if wanted.

use super::cube::{self, CUBE_FACES, Cubies, EDGE_BITS, FACES, Turn, WORD_EDGES, add_mod3, move_fields, next_move};
use crate::puzzle::{CubePuzzle, View};
use crate::search::held_out_of;
use operant_base::Result;
use operant_env::params;
use operant_env::{Action, ActionSpace, Canvas, Channel, Env, EnvVisitor, HeldOut, Shows, Spec, Step, Viewed, Views};
use operant_lanes::columns;
use operant_lanes::{Columns, Int, Lanes, Rng, Scalar, select};

params! {
    /// Turn the faces of a scrambled 3×3×3 cube until each shows one colour.
    pub struct Cube3 {
        /// random turns before an episode begins, none of which undoes the one before
        scramble_depth: u32 = 3, 1.0..=100.0, "turns";
        /// draw each episode's number of turns from 1 to scramble_depth
        mixed: bool = false, 0.0..=1.0, "";
        /// add half turns to the actions
        half_turns: bool = false, 0.0..=1.0, "";
        /// what is shown: stickers (one-hot, 324) or cubies (where each piece is and how it is turned, one-hot, 480)
        view: u32 = 0, 0.0..=1.0, "", VIEWS;
        /// reward of every turn
        step_reward: f32 = -0.01, -1.0..=0.0, "";
        /// reward of solving it, beside that of the turn
        solved_reward: f32 = 1.0, 0.0..=100.0, "";
    }
}

/// Names of views.
const VIEWS: &[&str] = &["stickers", "cubies"];
const STICKERS: u32 = 0;
const CUBIES: u32 = 1;

columns! {
    /// Corners from URF in the lowest four bits on, edges from UR in the lowest five.
    pub struct State {
        /// which corner is at each place
        corners: I,
        /// clockwise thirds by which it is twisted
        twists: I,
        /// twice which edge is at each of the first six places, plus 1 if it is flipped
        edges_low: I,
        /// the same at the last six
        edges_high: I,
    }
}

const FACE_COUNT: usize = 6;
/// Places and ways to be turned of a piece: 8 · 3 of a corner, 12 · 2 of an edge.
const CODES: usize = 24;
/// Corners and edges.
const PIECES: usize = 20;
/// Corners at home.
const CORNERS_HOME: i32 = 0x7654_3210;

/// Edges at home, six fields from `first` on.
const fn edges_home(first: usize) -> i32 {
    let (mut word, mut i) = (0, 0);
    while i < WORD_EDGES {
        word |= ((2 * (first + i)) << (i * EDGE_BITS as usize)) as i32;
        i += 1;
    }
    word
}
const EDGES_LOW_HOME: i32 = edges_home(0);
const EDGES_HIGH_HOME: i32 = edges_home(WORD_EDGES);

const TURNS: [Turn; 18] = cube::turns(CUBE_FACES);

/// The colour of a corner's facelets, `3 · corner + k` with k clockwise from its U or D facelet.
static CORNER_COLOURS: [i32; 24] = {
    let mut colours = [0; 24];
    let mut i = 0;
    while i < 24 {
        colours[i] = cube::CORNERS[i / 3][i % 3] as i32;
        i += 1;
    }
    colours
};
/// The colour of an edge's facelets, `2 · edge + k` with k = 0 for its reference facelet.
static EDGE_COLOURS: [i32; 24] = {
    let mut colours = [0; 24];
    let mut i = 0;
    while i < 24 {
        colours[i] = cube::EDGES[i / 2][i % 2] as i32;
        i += 1;
    }
    colours
};

#[inline(always)]
fn turned<L: Lanes>(s: &State<L>, turn: &Turn) -> State<L> {
    let [corners] = move_fields::<L, 1, 8>([s.corners], &turn.corners);
    let [twists] = move_fields::<L, 1, 8>([s.twists], &turn.corners);
    let [low, high] = move_fields::<L, 2, 12>([s.edges_low, s.edges_high], &turn.edges);
    State {
        corners,
        twists: add_mod3::<L>(twists, turn.twists),
        edges_low: low ^ turn.flips[0],
        edges_high: high ^ turn.flips[1],
    }
}

#[inline(always)]
fn chosen<L: Lanes>(mask: L::M, yes: State<L>, no: State<L>) -> State<L> {
    State {
        corners: select(mask, yes.corners, no.corners),
        twists: select(mask, yes.twists, no.twists),
        edges_low: select(mask, yes.edges_low, no.edges_low),
        edges_high: select(mask, yes.edges_high, no.edges_high),
    }
}

#[inline(always)]
fn is_solved<L: Lanes>(s: &State<L>) -> L::M {
    s.corners.eq(CORNERS_HOME) & s.twists.eq(0) & s.edges_low.eq(EDGES_LOW_HOME) & s.edges_high.eq(EDGES_HIGH_HOME)
}

impl Cube3 {
    #[inline(always)]
    fn actions(&self) -> usize {
        if self.half_turns { 3 * FACE_COUNT } else { 2 * FACE_COUNT }
    }

    fn channels(&self) -> Vec<Channel> {
        if self.view == CUBIES {
            let corner = |piece: usize, code: usize| format!("corner {piece} is at {} twisted {}", code / 3, code % 3);
            let edge = |piece: usize, code: usize| format!("edge {piece} is at {} flipped {}", code / 2, code % 2);
            let corners = (0..8).flat_map(|piece| (0..CODES).map(move |code| corner(piece, code)));
            let edges = (0..12).flat_map(|piece| (0..CODES).map(move |code| edge(piece, code)));
            return corners.chain(edges).map(|name| Channel::new(name, 0.0, 1.0)).collect();
        }
        let channel = |facelet: usize, colour: char| format!("{}{} is {colour}", FACES[facelet / 9], facelet % 9 + 1);
        let channels = |facelet| FACES.map(|colour| Channel::new(channel(facelet, colour), 0.0, 1.0));
        (0..54).flat_map(channels).collect()
    }

    /// The state after an action; one that is out of range turns nothing.
    #[inline(always)]
    fn after<L: Lanes>(&self, s: State<L>, action: L::I) -> State<L> {
        let mut next = s;
        for (number, turn) in TURNS[..self.actions()].iter().enumerate() {
            next = chosen::<L>(action.eq(number as i32), turned::<L>(&s, turn), next);
        }
        next
    }
}

impl Env for Cube3 {
    type State<L: Lanes> = State<L>;
    type Obs<L: Lanes> = [L::F; 324];
    const FUSES: bool = false;

    fn spec(&self) -> Spec {
        Spec {
            name: "cube3",
            id: "operant/Cube3-v0",
            summary: "solve a scrambled 3×3×3 cube",
            reference: "quarter-turn metric",
            observation: self.channels(),
            action: ActionSpace::Discrete(self.actions()),
            masked: false,
            time_limit: Some(50),
            // For the default rewards.
            solved_at: (self.step_reward == -0.01 && self.solved_reward == 1.0).then_some(0.7),
            render_fps: 2,
        }
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> State<L> {
        let (actions, depth) = (self.actions(), self.scramble_depth);
        let (mixed_depth, _) = rng.word().mul_wide(depth as i32);
        let (mut last, _) = rng.word().mul_wide(actions as i32);
        let mut state = State {
            corners: L::I::from(CORNERS_HOME),
            twists: L::I::from(0),
            edges_low: L::I::from(EDGES_LOW_HOME),
            edges_high: L::I::from(EDGES_HIGH_HOME),
        };
        for turn in 0..depth {
            if turn > 0 {
                last = next_move::<L>(rng, last, FACE_COUNT, actions);
            }
            let next = self.after::<L>(state, last);
            state = if self.mixed { chosen::<L>(mixed_depth.lt(turn as i32), state, next) } else { next };
        }
        // An episode has something to do: a walk that came home takes one more turn.
        chosen::<L>(is_solved::<L>(&state), turned::<L>(&state, &TURNS[0]), state)
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: State<L>, action: Action<L>, _: &mut Rng<L>) -> Step<L, State<L>> {
        let state = self.after::<L>(s, action.index(0));
        let terminated = is_solved::<L>(&state);
        let reward = select(terminated, self.step_reward + self.solved_reward, self.step_reward);
        Step { state, reward, terminated }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &State<L>) -> [L::F; 324] {
        let mut seen = [L::F::from(0.0); 324];
        for face in 0..6 {
            seen[(face * 9 + 4) * 6 + face] = L::F::from(1.0);
        }
        for place in 0..8 {
            let shift = place as u32 * cube::CORNER_BITS;
            let (corner, twist) = (s.corners.shr(shift) & 15, s.twists.shr(shift) & 15);
            for k in 0..3 {
                // The facelet at k is the one that was at k − twist.
                let n = L::I::from(k + 3) - twist;
                let n: L::I = select(n.lt(3), n, n - 3);
                let colour = (corner * 3 + n).lookup(&CORNER_COLOURS);
                show::<L>(&mut seen, cube::corner_facelet(3, place, k as usize), colour);
            }
        }
        for place in 0..12 {
            let word = if place < WORD_EDGES { s.edges_low } else { s.edges_high };
            let edge = word.shr((place % WORD_EDGES) as u32 * EDGE_BITS) & 31;
            for k in 0..2 {
                show::<L>(&mut seen, cube::edge_facelet(place, k as usize), (edge ^ k).lookup(&EDGE_COLOURS));
            }
        }
        seen
    }

    fn held_out(&self, share: f64, beyond: u32) -> Option<Result<HeldOut>> {
        Some(CubePuzzle::new(View::Cubies, self.half_turns).map(|puzzle| held_out_of(puzzle, share, beyond)))
    }

    fn draw(&self, s: &State<Scalar>) -> Option<Canvas> {
        let words = [s.corners, s.twists, s.edges_low, s.edges_high].map(|word| word.get());
        Some(cube::draw_net(&unpack(words), 3))
    }
}

/// Where each piece is and how it is turned: one of 24 numbers is 1.
#[derive(Clone, Copy, Debug)]
struct Cubies3;

impl Views for Cube3 {
    fn visit<V: EnvVisitor>(self, visitor: V) -> V::Output {
        match self.view {
            STICKERS => visitor.visit(self),
            _ => visitor.visit(Viewed::<Self, Cubies3>::new(self)),
        }
    }
}

impl Shows<Cube3> for Cubies3 {
    type Obs<L: Lanes> = [L::F; PIECES * CODES];

    fn env() -> Cube3 {
        Cube3 { view: CUBIES, ..Cube3::default() }
    }

    #[inline(always)]
    fn observe<L: Lanes>(_: &Cube3, s: &State<L>) -> Self::Obs<L> {
        let mut seen = [L::F::from(0.0); PIECES * CODES];
        for place in 0..8 {
            let shift = place as u32 * cube::CORNER_BITS;
            let code = (s.corners.shr(shift) & 15) * 3 + (s.twists.shr(shift) & 15);
            for corner in 0..8 {
                for k in 0..3 {
                    seen[corner * CODES + place * 3 + k] = select(code.eq((corner * 3 + k) as i32), 1.0, 0.0);
                }
            }
        }
        for place in 0..12 {
            let word = if place < WORD_EDGES { s.edges_low } else { s.edges_high };
            let code = word.shr((place % WORD_EDGES) as u32 * EDGE_BITS) & 31;
            for edge in 0..12 {
                for k in 0..2 {
                    let at = (8 + edge) * CODES + place * 2 + k;
                    seen[at] = select(code.eq((edge * 2 + k) as i32), 1.0, 0.0);
                }
            }
        }
        seen
    }
}

/// Writes the six numbers of a facelet.
#[inline(always)]
fn show<L: Lanes>(seen: &mut [L::F; 324], facelet: usize, colour: L::I) {
    for c in 0..6 {
        seen[facelet * 6 + c] = select(colour.eq(c as i32), 1.0, 0.0);
    }
}

/// The pieces of a state's words.
pub(super) fn unpack([corners, twists, low, high]: [i32; 4]) -> Cubies {
    let mut cube = Cubies::SOLVED;
    for place in 0..8 {
        let shift = place as u32 * cube::CORNER_BITS;
        // A state that was written by hand may hold anything.
        cube.corners[place] = (corners >> shift & 7) as u8;
        cube.twists[place] = ((twists >> shift & 15) % 3) as u8;
    }
    for place in 0..12 {
        let word = if place < WORD_EDGES { low } else { high };
        let edge = word >> ((place % WORD_EDGES) as u32 * EDGE_BITS) & 31;
        cube.edges[place] = (edge / 2 % 12) as u8;
        cube.flips[place] = (edge % 2) as u8;
    }
    cube
}

/// The words of a solved cube.
pub(super) const HOME: [i32; 4] = [CORNERS_HOME, 0, EDGES_LOW_HOME, EDGES_HIGH_HOME];

/// The words of these pieces.
pub(super) fn pack(cube: &Cubies) -> [i32; 4] {
    let mut words = [0; 4];
    for place in 0..8 {
        let shift = place as u32 * cube::CORNER_BITS;
        words[0] |= i32::from(cube.corners[place]) << shift;
        words[1] |= i32::from(cube.twists[place]) << shift;
    }
    for place in 0..12 {
        let edge = i32::from(2 * cube.edges[place] + cube.flips[place]);
        words[2 + place / WORD_EDGES] |= edge << ((place % WORD_EDGES) as u32 * EDGE_BITS);
    }
    words
}

/// A state's words after an action.
pub(super) fn turned_words(words: [i32; 4], action: usize) -> [i32; 4] {
    let state = State::<Scalar>::read(&words.map(<Scalar as Lanes>::I::from));
    let after = turned::<Scalar>(&state, &TURNS[action]);
    [after.corners, after.twists, after.edges_low, after.edges_high].map(|word| word.get())
}
