//! States that a run never learns from, so that it can be tested on them.

use super::Settings;
use operant_base::{Error, Result};
use operant_env::{HeldOut, VecEnv};

/// Tells which envs are at such a state.
pub(super) struct Unseen {
    held_out: HeldOut,
    /// Words of a state, `[columns]`.
    state: Vec<i32>,
    /// `[columns, N]` words of all.
    words: Vec<Vec<i32>>,
    /// `[N]` whether the state that [`Unseen::look`] saw is one.
    pub(super) marks: Vec<bool>,
}

impl Unseen {
    /// Of a run on puzzles; `None` if it learns from all states.
    pub(super) fn new(env: &dyn VecEnv, settings: &Settings) -> Result<Option<Self>> {
        if settings.held_out == 0.0 {
            return Ok(None);
        }
        let held_out = env.held_out(settings.held_out, settings.held_out_beyond).ok_or_else(|| {
            Error::Invalid(format!(
                "dqn.held_out = {} on {}: wanted 0; states are held out of puzzles alone (operant list envs)",
                settings.held_out,
                env.spec().name
            ))
        })??;
        let (n, columns) = (env.num_envs(), held_out.columns);
        let words = vec![vec![0; n]; columns];
        Ok(Some(Self { held_out, state: vec![0; columns], words, marks: vec![false; n] }))
    }

    /// Marks the envs that are at such a state now.
    pub(super) fn look(&mut self, env: &dyn VecEnv) {
        for (column, words) in self.words.iter_mut().enumerate() {
            env.read(column, words);
        }
        for (i, mark) in self.marks.iter_mut().enumerate() {
            self.state.iter_mut().zip(&self.words).for_each(|(word, words)| *word = words[i]);
            *mark = (self.held_out.holds)(&self.state);
        }
    }
}
