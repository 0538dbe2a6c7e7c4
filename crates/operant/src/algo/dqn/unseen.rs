//! States that a run never learns from, so that it can be tested on them.

use super::Settings;
use crate::env::VecEnv;
use crate::env::puzzle::Puzzle;
use crate::search::{HeldOut, PuzzleName};
use operant_base::{Error, Result};

/// Whether words are of such a state.
type Holds = Box<dyn FnMut(&[i32]) -> bool + Send>;

/// Tells which envs are at such a state.
pub(super) struct Unseen {
    holds: Holds,
    /// Words of a state, `[columns]`.
    state: Vec<i32>,
    /// `[columns, N]` words of all.
    words: Vec<Vec<i32>>,
    /// `[N]` whether the state that [`Unseen::look`] saw is one.
    pub(super) marks: Vec<bool>,
}

/// The test for a puzzle, and how many words it takes.
fn holds<P: Puzzle>(puzzle: P, settings: &Settings) -> (Holds, usize) {
    let held_out = HeldOut::new(&puzzle, settings.held_out, settings.held_out_beyond);
    let mut entries = vec![0; puzzle.features().shown];
    let columns = puzzle.words(puzzle.solved()).as_ref().len();
    let holds = move |words: &[i32]| {
        let representative = puzzle.representative(puzzle.state(words));
        puzzle.encode(representative, &mut entries);
        held_out.holds(representative, &entries)
    };
    (Box::new(holds), columns)
}

impl Unseen {
    /// Of a run on puzzles; `None` if it learns from all states.
    pub(super) fn new(env: &dyn VecEnv, settings: &Settings) -> Result<Option<Self>> {
        if settings.held_out == 0.0 {
            return Ok(None);
        }
        let (name, params) = (env.spec().name, env.params());
        let parameter = |name: &str| params.iter().find(|param| param.name == name).map_or(0.0, |param| param.value);
        let puzzle = PuzzleName::of_env(name, parameter);
        let (holds, columns) = match (puzzle.pocket(), puzzle.cube()) {
            (Some(pocket), _) => holds(pocket, settings),
            (_, Some(cube)) => holds(cube?, settings),
            _ => {
                return Err(Error::Invalid(format!(
                    "dqn.held_out = {} on {name}: wanted 0; states are held out of puzzles, cube2 or cube3",
                    settings.held_out
                )));
            }
        };
        let n = env.num_envs();
        Ok(Some(Self { holds, state: vec![0; columns], words: vec![vec![0; n]; columns], marks: vec![false; n] }))
    }

    /// Marks the envs that are at such a state now.
    pub(super) fn look(&mut self, env: &dyn VecEnv) {
        for (column, words) in self.words.iter_mut().enumerate() {
            env.read(column, words);
        }
        for (i, mark) in self.marks.iter_mut().enumerate() {
            self.state.iter_mut().zip(&self.words).for_each(|(word, words)| *word = words[i]);
            *mark = (self.holds)(&self.state);
        }
    }
}
