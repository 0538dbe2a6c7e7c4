//! The 2×2×2 cube with one corner that never moves: 3,674,160 states, quarter turns of R, U and F.

use super::cube::{
    self, Cubies, FACES, POCKET_FACES, POCKET_PLACES as PLACES, Pocket, Turn, add_mod3, least_image, move_fields,
    next_move,
};
use crate::puzzle::{PocketPuzzle, View};
use crate::search::held_out_of;
use operant_base::Result;
use operant_env::params;
use operant_env::{Action, ActionSpace, Canvas, Channel, Env, EnvVisitor, HeldOut, Shows, Spec, Step, Viewed, Views};
use operant_lanes::columns;
use operant_lanes::{Int, Lanes, Rng, Scalar, select};

params! {
    /// Turn the faces of a scrambled 2×2×2 cube until each shows one colour.
    pub struct Cube2 {
        /// random turns before an episode begins, none of which undoes the one before
        scramble_depth: u32 = 4, 1.0..=100.0, "turns";
        /// draw each episode's number of turns from 1 to scramble_depth
        mixed: bool = false, 0.0..=1.0, "";
        /// add half turns of R, U and F to the actions
        half_turns: bool = false, 0.0..=1.0, "";
        /// show the cube, and turn it, as the least of its images under 3 rotations and a mirror, so that six states are one
        symmetry: bool = false, 0.0..=1.0, "";
        /// what is shown: stickers (one-hot, 144), cubies (where each corner is and how it is twisted, one-hot, 147) or pairs (for each
        /// two places the number of one of 9,261 entries, 21 of them)
        view: u32 = 0, 0.0..=2.0, "", VIEWS;
        /// reward of every turn
        step_reward: f32 = -0.01, -1.0..=0.0, "";
        /// reward of solving it, beside that of the turn
        solved_reward: f32 = 1.0, 0.0..=100.0, "";
    }
}

/// Names of views.
const VIEWS: &[&str] = &["stickers", "cubies", "pairs"];
const STICKERS: u32 = 0;
const CUBIES: u32 = 1;
const PAIRS: u32 = 2;

columns! {
    /// The seven corners that move, from URF in the lowest four bits on.
    pub struct State {
        /// which corner is at each place
        corners: I,
        /// clockwise thirds by which it is twisted
        twists: I,
    }
}

/// Places of a word, in bits.
const FIELD: u32 = cube::CORNER_BITS;
const FACE_COUNT: usize = 3;
/// Places and twists of a corner.
const CODES: usize = Pocket::CODES;
/// Corners at home.
const SOLVED: i32 = 0x0654_3210;

const TURNS: [Turn; 9] = cube::turns(POCKET_FACES);

/// The colour of a corner's facelets, `3 · corner + k` with k clockwise from its U or D facelet.
static COLOURS: [i32; 24] = {
    let mut colours = [0; 24];
    let mut i = 0;
    while i < 24 {
        colours[i] = cube::CORNERS[i / 3][i % 3] as i32;
        i += 1;
    }
    colours
};

#[inline(always)]
fn turned<L: Lanes>(s: &State<L>, turn: &Turn) -> State<L> {
    let [corners] = move_fields::<L, 1, 8>([s.corners], &turn.corners);
    let [twists] = move_fields::<L, 1, 8>([s.twists], &turn.corners);
    State { corners, twists: add_mod3::<L>(twists, turn.twists) }
}

#[inline(always)]
fn chosen<L: Lanes>(mask: L::M, yes: State<L>, no: State<L>) -> State<L> {
    State { corners: select(mask, yes.corners, no.corners), twists: select(mask, yes.twists, no.twists) }
}

#[inline(always)]
fn is_solved<L: Lanes>(s: &State<L>) -> L::M {
    s.corners.eq(SOLVED) & s.twists.eq(0)
}

impl Cube2 {
    #[inline(always)]
    fn actions(&self) -> usize {
        if self.half_turns { 3 * FACE_COUNT } else { 2 * FACE_COUNT }
    }

    /// The state as it is looked at.
    #[inline(always)]
    fn seen<L: Lanes>(&self, s: &State<L>) -> State<L> {
        if !self.symmetry {
            return State { corners: s.corners, twists: s.twists };
        }
        let (corners, twists) = least_image::<L>(s.corners, s.twists);
        State { corners, twists }
    }

    fn channels(&self) -> Vec<Channel> {
        if self.view == CUBIES {
            let channel =
                |code: usize, corner: usize| format!("corner {corner} is at {} twisted {}", code / 3, code % 3);
            let channels = |corner| (0..CODES).map(move |code| Channel::new(channel(code, corner), 0.0, 1.0));
            return (0..PLACES).flat_map(channels).collect();
        }
        if self.view == PAIRS {
            let channel = |(a, b)| Channel::entry(format!("entry of places {a} and {b}"), Pocket::PAIR_ENTRIES);
            return (1..PLACES).flat_map(|b| (0..b).map(move |a| (a, b))).map(channel).collect();
        }
        let channel = |facelet: usize, colour: char| format!("{}{} is {colour}", FACES[facelet / 4], facelet % 4 + 1);
        let channels = |facelet| FACES.map(|colour| Channel::new(channel(facelet, colour), 0.0, 1.0));
        (0..24).flat_map(channels).collect()
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

impl Env for Cube2 {
    type State<L: Lanes> = State<L>;
    type Obs<L: Lanes> = [L::F; 144];
    const FUSES: bool = false;

    fn spec(&self) -> Spec {
        Spec {
            name: "cube2",
            id: "operant/Cube2-v0",
            summary: "solve a scrambled 2×2×2 cube",
            reference: "quarter-turn metric, corner DBL fixed",
            observation: self.channels(),
            action: ActionSpace::Discrete(self.actions()),
            masked: false,
            time_limit: Some(30),
            // For the default rewards.
            solved_at: (self.step_reward == -0.01 && self.solved_reward == 1.0).then_some(0.85),
            render_fps: 2,
        }
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> State<L> {
        let (actions, depth) = (self.actions(), self.scramble_depth);
        let (mixed_depth, _) = rng.word().mul_wide(depth as i32);
        let (mut last, _) = rng.word().mul_wide(actions as i32);
        let mut state = State { corners: L::I::from(SOLVED), twists: L::I::from(0) };
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
        let state = self.after::<L>(self.seen::<L>(&s), action.index(0));
        let terminated = is_solved::<L>(&state);
        let reward = select(terminated, self.step_reward + self.solved_reward, self.step_reward);
        Step { state, reward, terminated }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &State<L>) -> [L::F; 144] {
        let s = self.seen::<L>(s);
        let mut seen = [L::F::from(0.0); 144];
        for place in 0..PLACES {
            let shift = place as u32 * FIELD;
            let (corner, twist) = (s.corners.shr(shift) & 15, s.twists.shr(shift) & 15);
            for k in 0..3 {
                // The facelet at k is the one that was at k − twist.
                let n = L::I::from(k + 3) - twist;
                let n: L::I = select(n.lt(3), n, n - 3);
                let colour = (corner * 3 + n).lookup(&COLOURS);
                let facelet = cube::corner_facelet(2, place, k as usize);
                for c in 0..6 {
                    seen[facelet * 6 + c] = select(colour.eq(c as i32), 1.0, 0.0);
                }
            }
        }
        for k in 0..3 {
            seen[cube::corner_facelet(2, PLACES, k) * 6 + cube::CORNERS[PLACES][k]] = L::F::from(1.0);
        }
        seen
    }

    fn held_out(&self, share: f64, beyond: u32) -> Option<Result<HeldOut>> {
        Some(Ok(held_out_of(PocketPuzzle::new(View::Cubies, self.symmetry, self.half_turns), share, beyond)))
    }

    fn draw(&self, s: &State<Scalar>) -> Option<Canvas> {
        Some(cube::draw_net(&unpack(s.corners.get(), s.twists.get()), 2))
    }
}

/// Where each corner is and how it is twisted: one of 21 numbers is 1.
#[derive(Clone, Copy, Debug)]
struct Cubies2;

/// The numbers of entries of each two places.
#[derive(Clone, Copy, Debug)]
struct Pairs2;

impl Views for Cube2 {
    fn visit<V: EnvVisitor>(self, visitor: V) -> V::Output {
        match self.view {
            STICKERS => visitor.visit(self),
            CUBIES => visitor.visit(Viewed::<Self, Cubies2>::new(self)),
            _ => visitor.visit(Viewed::<Self, Pairs2>::new(self)),
        }
    }
}

impl Shows<Cube2> for Cubies2 {
    type Obs<L: Lanes> = [L::F; PLACES * CODES];

    fn env() -> Cube2 {
        Cube2 { view: CUBIES, ..Cube2::default() }
    }

    #[inline(always)]
    fn observe<L: Lanes>(env: &Cube2, s: &State<L>) -> Self::Obs<L> {
        let s = env.seen::<L>(s);
        let mut seen = [L::F::from(0.0); PLACES * CODES];
        for place in 0..PLACES {
            let shift = place as u32 * FIELD;
            let code = (s.corners.shr(shift) & 15) * 3 + (s.twists.shr(shift) & 15);
            for corner in 0..PLACES {
                for k in 0..3 {
                    seen[corner * CODES + place * 3 + k] = select(code.eq((corner * 3 + k) as i32), 1.0, 0.0);
                }
            }
        }
        seen
    }
}

impl Shows<Cube2> for Pairs2 {
    type Obs<L: Lanes> = [L::F; Pocket::PAIRS];

    fn env() -> Cube2 {
        Cube2 { view: PAIRS, ..Cube2::default() }
    }

    #[inline(always)]
    fn observe<L: Lanes>(env: &Cube2, s: &State<L>) -> Self::Obs<L> {
        let s = env.seen::<L>(s);
        let mut codes = [L::I::from(0); PLACES];
        for (place, code) in codes.iter_mut().enumerate() {
            let shift = place as u32 * FIELD;
            *code = (s.corners.shr(shift) & 15) * 3 + (s.twists.shr(shift) & 15);
        }
        let mut seen = [L::F::from(0.0); Pocket::PAIRS];
        let mut pair = 0;
        for b in 1..PLACES {
            for a in 0..b {
                let first = (pair * CODES * CODES) as i32;
                seen[pair] = (codes[a] * CODES as i32 + codes[b] + first).to_float();
                pair += 1;
            }
        }
        seen
    }
}

/// The two words of a 2×2×2 cube's pieces.
pub(super) fn pack(cube: &Cubies) -> [i32; 2] {
    let word =
        |fields: &[u8]| (0..PLACES).fold(0, |word, place| word | i32::from(fields[place]) << (place as u32 * FIELD));
    [word(&cube.corners), word(&cube.twists)]
}

/// The pieces of a state's two words; places beyond them are home.
pub(super) fn unpack(corners: i32, twists: i32) -> Cubies {
    let mut cube = Cubies::SOLVED;
    for place in 0..PLACES {
        let shift = place as u32 * FIELD;
        // A state that was written by hand may hold anything.
        cube.corners[place] = (corners >> shift & 7) as u8;
        cube.twists[place] = ((twists >> shift & 15) % 3) as u8;
    }
    cube
}
