//! Puzzles: one solved state, moves that cost the same and can be undone. What value iteration learns and search solves.

use super::cube::{CUBE_FACES, Cubies, DistanceTable, Metric, POCKET_PLACES, POCKET_STATES, Pocket, inverse_action};
use super::{cube2, cube3};
use operant_base::{Error, Result};
use operant_lanes::rng::HostRng;
use std::fmt::Debug;
use std::hash::Hash;

/// A puzzle as ordinary Rust, state by state.
pub trait Puzzle: Send + Sync + 'static {
    /// A state.
    type State: Copy + Eq + Ord + Hash + Debug + Default + Send + Sync;
    /// Columns of a state in its env.
    type Words: AsRef<[i32]>;
    /// Moves from any state.
    fn moves(&self) -> usize;
    /// The move that undoes a move.
    fn inverse(&self, m: usize) -> usize;
    /// The state to reach.
    fn solved(&self) -> Self::State;
    /// The state after a move.
    fn turned(&self, state: Self::State, m: usize) -> Self::State;
    /// The state that stands for all those that a symmetry makes of this one; they are equally far from solved.
    fn representative(&self, state: Self::State) -> Self::State {
        state
    }
    /// Entries that a network may see, and how many of them every state shows.
    fn features(&self) -> Features;
    /// Writes the numbers of the entries that a state shows.
    fn encode(&self, state: Self::State, out: &mut [i32]);
    /// States, if they are few enough for a table of all; then [`Puzzle::number`] tells them apart.
    fn states(&self) -> Option<usize> {
        None
    }
    /// The state as its env keeps it.
    fn words(&self, state: Self::State) -> Self::Words;
    /// The state of the words of its env.
    fn state(&self, words: &[i32]) -> Self::State;
    /// The state's number, below [`Puzzle::states`].
    fn number(&self, state: Self::State) -> usize {
        let _ = state;
        0
    }
    /// How far every state is from solved, by its number, where that can be found out.
    fn distances(&self) -> Option<Vec<u8>> {
        None
    }
}

/// A random walk from the solved state that never goes straight back.
#[derive(Clone, Copy, Debug)]
pub struct Walk<S> {
    /// Where it is.
    pub state: S,
    last: Option<usize>,
}

impl<S: Copy> Walk<S> {
    /// At the solved state.
    pub fn new<P: Puzzle<State = S>>(puzzle: &P) -> Self {
        Self { state: puzzle.solved(), last: None }
    }

    /// One move on.
    pub fn step<P: Puzzle<State = S>>(&mut self, puzzle: &P, rng: &mut HostRng) {
        let moves = puzzle.moves() as u32;
        let m = match self.last {
            None => rng.below(moves),
            Some(last) => (puzzle.inverse(last) as u32 + 1 + rng.below(moves - 1)) % moves,
        };
        (self.state, self.last) = (puzzle.turned(self.state, m as usize), Some(m as usize));
    }
}

/// What of a state a network sees: so many of the entries are 1, the others 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Entries.
    pub entries: usize,
    /// How many of them a state shows.
    pub shown: usize,
}

/// What a network sees of a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Where each piece is and how it is turned.
    Cubies,
    /// The same of each two corners at once; the 2×2×2 alone.
    Pairs,
}

/// The 2×2×2 cube with quarter turns, or half turns too.
#[derive(Clone, Debug)]
pub struct PocketPuzzle {
    pocket: Pocket,
    representatives: Option<Vec<u32>>,
    view: View,
    moves: usize,
}

impl PocketPuzzle {
    /// Builds its tables; with `symmetry` also that of the representatives, in about a second.
    pub fn new(view: View, symmetry: bool, half_turns: bool) -> Self {
        let pocket = Pocket::new();
        let representatives = symmetry.then(|| pocket.representatives());
        Self { pocket, representatives, view, moves: if half_turns { 9 } else { 6 } }
    }

    /// Its turns by tables.
    pub fn pocket(&self) -> &Pocket {
        &self.pocket
    }
}

impl Puzzle for PocketPuzzle {
    type State = u32;
    type Words = [i32; 2];

    fn words(&self, state: u32) -> [i32; 2] {
        cube2::pack(&Pocket::cubies(state))
    }

    fn state(&self, words: &[i32]) -> u32 {
        Pocket::index(&cube2::unpack(words[0], words[1]))
    }

    fn moves(&self) -> usize {
        self.moves
    }

    fn inverse(&self, m: usize) -> usize {
        Pocket::inverse(m)
    }

    fn solved(&self) -> u32 {
        Pocket::SOLVED
    }

    #[inline]
    fn turned(&self, state: u32, m: usize) -> u32 {
        self.pocket.turned(state, m)
    }

    #[inline]
    fn representative(&self, state: u32) -> u32 {
        self.representatives.as_ref().map_or(state, |table| table[state as usize])
    }

    fn features(&self) -> Features {
        match self.view {
            View::Cubies => Features { entries: POCKET_PLACES * POCKET_PLACES * 3, shown: POCKET_PLACES },
            View::Pairs => Features { entries: Pocket::PAIR_ENTRIES, shown: Pocket::PAIRS },
        }
    }

    fn encode(&self, state: u32, out: &mut [i32]) {
        match self.view {
            View::Pairs => Pocket::pairs(state, out),
            View::Cubies => {
                let cube = Pocket::cubies(state);
                for place in 0..POCKET_PLACES {
                    let (corner, twist) = (usize::from(cube.corners[place]), usize::from(cube.twists[place]));
                    out[corner] = ((corner * POCKET_PLACES + place) * 3 + twist) as i32;
                }
            }
        }
    }

    fn states(&self) -> Option<usize> {
        Some(POCKET_STATES)
    }

    #[inline]
    fn number(&self, state: u32) -> usize {
        state as usize
    }

    fn distances(&self) -> Option<Vec<u8>> {
        let metric = if self.moves == Metric::Half.actions() { Metric::Half } else { Metric::Quarter };
        Some(DistanceTable::build(&self.pocket, metric).into_distances())
    }
}

/// The 3×3×3 cube with quarter turns, or half turns too. A state is the four words of the env `cube3`.
#[derive(Clone, Copy, Debug)]
pub struct CubePuzzle {
    moves: usize,
}

impl CubePuzzle {
    /// With quarter turns, or half turns too. Pairs are refused: 190 of them would be 109,440 entries.
    pub fn new(view: View, half_turns: bool) -> Result<Self> {
        if view == View::Pairs {
            return Err(Error::Invalid("view = \"pairs\" on cube3: wanted cubies; pairs are for cube2".into()));
        }
        Ok(Self { moves: if half_turns { 18 } else { 12 } })
    }

    /// The face and clockwise quarters of an action.
    pub fn action_move(action: usize) -> (usize, usize) {
        (CUBE_FACES[action % CUBE_FACES.len()], [1, 3, 2][action / CUBE_FACES.len()])
    }

    /// The pieces of a state.
    pub fn cubies(state: [i32; 4]) -> Cubies {
        cube3::unpack(state)
    }

    /// The state of these pieces.
    pub fn of_cubies(cube: &Cubies) -> [i32; 4] {
        cube3::pack(cube)
    }
}

impl Puzzle for CubePuzzle {
    type State = [i32; 4];
    type Words = [i32; 4];

    fn words(&self, state: [i32; 4]) -> [i32; 4] {
        state
    }

    fn state(&self, words: &[i32]) -> [i32; 4] {
        [words[0], words[1], words[2], words[3]]
    }

    fn moves(&self) -> usize {
        self.moves
    }

    fn inverse(&self, m: usize) -> usize {
        inverse_action(m, CUBE_FACES.len())
    }

    fn solved(&self) -> [i32; 4] {
        cube3::HOME
    }

    fn turned(&self, state: [i32; 4], m: usize) -> [i32; 4] {
        cube3::turned_words(state, m)
    }

    fn features(&self) -> Features {
        Features { entries: 20 * 24, shown: 20 }
    }

    fn encode(&self, state: [i32; 4], out: &mut [i32]) {
        let cube = Self::cubies(state);
        for place in 0..8 {
            let (corner, twist) = (usize::from(cube.corners[place]), usize::from(cube.twists[place]));
            out[corner] = (corner * 24 + place * 3 + twist) as i32;
        }
        for place in 0..12 {
            let (edge, flip) = (usize::from(cube.edges[place]), usize::from(cube.flips[place]));
            out[8 + edge] = ((8 + edge) * 24 + place * 2 + flip) as i32;
        }
    }
}
