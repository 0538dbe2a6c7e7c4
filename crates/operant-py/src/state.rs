//! What an engine holds: the vector env, the two blocks of memory that it writes in turn, and what Gymnasium's infos
//! need beside them. Invariant: every method runs under the engine's lock.
#![allow(unsafe_code)]

use crate::actions::{Form, apart};
use crate::error::raise;
use crate::memory::{Memory, Rows, Views, copy};
use operant::env::{AutoReset, Row, Seeds, VecEnv};
use pyo3::exceptions::{PyRuntimeWarning, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Instant;

/// Envs from which a step is worth releasing the interpreter for: below, it takes a few microseconds, and waiting to
/// get the interpreter back from a busy thread takes up to 5 ms.
const RELEASE_FROM: usize = 1024;

/// A seed argument: one for all, which the envs' numbers tell apart, or one per env.
#[derive(FromPyObject)]
pub(crate) enum Seed {
    One(u64),
    Each(Vec<Option<u64>>),
}

/// A vector env with its memory.
pub(crate) struct State {
    pub(crate) env: Box<dyn VecEnv>,
    pub(crate) form: Form,
    pub(crate) autoreset: AutoReset,
    pub(crate) copy: bool,
    pub(crate) stats: bool,
    /// Whether stepping an env that ended is an error (`AutoReset::Disabled`).
    pub(crate) guarded: bool,
    /// The seed of the first reset, if that brings none.
    pub(crate) seed: u64,
    /// Whether there was a reset or a load.
    pub(crate) begun: bool,
    pub(crate) shelves: [Shelf; 2],
    /// Which shelf was written last.
    pub(crate) turn: usize,
    /// Envs that ended in the last step and have not been reset.
    pub(crate) waiting: Vec<u32>,
    /// `[N]` when each episode began, seconds of `clock`.
    pub(crate) began_at: Vec<f64>,
    pub(crate) clock: Instant,
    /// `[N]` true: every env has an action mask.
    pub(crate) everywhere: Option<Py<PyAny>>,
    /// Whether the warning about arrays of a former step was given.
    pub(crate) told_of_old_arrays: bool,
}

/// One of the two blocks that steps write in turn.
pub(crate) struct Shelf {
    pub(crate) memory: Py<Memory>,
    pub(crate) views: Views,
    /// Envs whose rows of `final_obs`, `episode_*`, `seconds` and `ended` are not zero.
    pub(crate) ended: Vec<u32>,
}

impl Shelf {
    pub(crate) fn new(py: Python<'_>, memory: Memory, num_envs: usize) -> PyResult<Self> {
        let memory = Bound::new(py, memory)?;
        let views = Views::new(&memory)?;
        Ok(Self { memory: memory.unbind(), views, ended: Vec::with_capacity(num_envs) })
    }
}

/// Zeroes what the engine writes only for envs that ended.
fn clear(rows: &mut Rows<'_>, ended: &mut Vec<u32>, width: usize) {
    for env in ended.drain(..).map(|env| env as usize) {
        rows.row.final_obs[env * width..(env + 1) * width].fill(0.0);
        rows.row.episode_return[env] = 0.0;
        rows.row.episode_length[env] = 0;
        rows.seconds[env] = 0.0;
        rows.ended[env] = 0;
    }
}

/// Notes the envs whose episode ended in this step, eight flags at a time.
fn collect(terminated: &[u8], truncated: &[u8], mask: &mut [u8], ended: &mut Vec<u32>) {
    let mut note = |base: usize, mut flags: u64| {
        while flags != 0 {
            let env = base + flags.trailing_zeros() as usize / 8;
            mask[env] = 1;
            ended.push(env as u32);
            flags &= flags - 1;
        }
    };
    let ((terms, terms_left), (truncs, truncs_left)) = (terminated.as_chunks::<8>(), truncated.as_chunks::<8>());
    for (i, (term, trunc)) in terms.iter().zip(truncs).enumerate() {
        note(i * 8, u64::from_le_bytes(*term) | u64::from_le_bytes(*trunc));
    }
    for (i, (term, trunc)) in terms_left.iter().zip(truncs_left).enumerate() {
        note(terms.len() * 8 + i, u64::from(term | trunc));
    }
}

impl State {
    pub(crate) fn num_envs(&self) -> usize {
        self.began_at.len()
    }

    pub(crate) fn give<'py>(&self, py: Python<'py>, view: &Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if self.copy { copy(py, view) } else { Ok(view.bind(py).clone()) }
    }

    /// An info dictionary with the action mask, if the env has one.
    pub(crate) fn mask_info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = PyDict::new(py);
        if let (Some(legal), Some(everywhere)) = (&self.shelves[self.turn].views.legal, &self.everywhere) {
            info.set_item(intern!(py, "action_mask"), self.give(py, legal)?)?;
            info.set_item(intern!(py, "_action_mask"), self.give(py, everywhere)?)?;
        }
        Ok(info)
    }

    /// Gymnasium's infos of the last step.
    pub(crate) fn infos<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = self.mask_info(py)?;
        let shelf = &self.shelves[self.turn];
        if shelf.ended.is_empty() {
            return Ok(info);
        }
        let views = &shelf.views;
        let mask = self.give(py, &views.ended)?;
        let mut episode = None;
        if self.stats {
            let stats = PyDict::new(py);
            stats.set_item(intern!(py, "r"), self.give(py, &views.episode_return)?)?;
            stats.set_item(intern!(py, "l"), self.give(py, &views.episode_length)?)?;
            stats.set_item(intern!(py, "t"), self.give(py, &views.seconds)?)?;
            info.set_item(intern!(py, "episode"), &stats)?;
            info.set_item(intern!(py, "_episode"), &mask)?;
            episode = Some(stats);
        }
        if self.autoreset == AutoReset::SameStep {
            let last = PyDict::new(py);
            if let Some(stats) = episode {
                last.set_item(intern!(py, "episode"), stats)?;
                last.set_item(intern!(py, "_episode"), &mask)?;
            }
            info.set_item(intern!(py, "final_obs"), self.give(py, &views.final_obs)?)?;
            info.set_item(intern!(py, "_final_obs"), &mask)?;
            info.set_item(intern!(py, "final_info"), last)?;
            info.set_item(intern!(py, "_final_info"), &mask)?;
        }
        Ok(info)
    }

    /// Warns, once, if somebody still holds an array of the block that is written next. Arrays of the last step lie in the
    /// other block, so loops that read them while they step get no warning.
    pub(crate) fn tell_of_old_arrays(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.copy || self.told_of_old_arrays || !self.shelves[1 - self.turn].views.are_held(py) {
            return Ok(());
        }
        self.told_of_old_arrays = true;
        let text =
            c"an array that an earlier step or reset returned is still referenced and is overwritten now: arrays are \
                     valid until the second next call; keep it with .copy(), or make the env with copy=True";
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), text, 2)
    }

    /// Steps into the shelf whose turn it is. On an error nothing has changed.
    pub(crate) fn step(&mut self, actions: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = actions.py();
        let target = self.shelves[1 - self.turn].memory.get().addresses();
        let converted;
        // Views of an earlier step may come back as actions: those that lie where this step writes are copied first.
        let actions = match self.form.borrow(actions) {
            Some(numbers) if apart(&numbers, &target) => numbers,
            _ => {
                converted = self.form.convert(actions)?;
                let wrong = || PyTypeError::new_err("actions could not be converted; pass a NumPy array");
                self.form.borrow(&converted).ok_or_else(wrong)?
            }
        };
        let num_envs = self.num_envs();
        let Self { env, shelves, waiting, began_at, clock, autoreset, stats, .. } = self;
        let Shelf { memory, ended, .. } = &mut shelves[1 - self.turn];
        let (env, memory) = (env.as_mut(), memory.get());
        let mut work = move || {
            actions.check(env.spec(), num_envs)?;
            // SAFETY: the lock is held, and the actions lie elsewhere.
            let mut rows = unsafe { memory.rows() };
            clear(&mut rows, ended, env.spec().observation.len());
            env.step(actions, rows.row);
            // SAFETY: as above; the references of before are gone.
            let Rows { row, ended: mask, seconds } = unsafe { memory.rows() };
            collect(row.terminated, row.truncated, mask, ended);
            if *stats && !(ended.is_empty() && waiting.is_empty()) {
                let now = clock.elapsed().as_secs_f64();
                waiting.iter().for_each(|&env| began_at[env as usize] = now);
                for env in ended.iter().map(|&env| env as usize) {
                    // Rounded as Gymnasium's RecordEpisodeStatistics does.
                    seconds[env] = (((now - began_at[env]) * 1e6).round() / 1e6) as f32;
                    if *autoreset == AutoReset::SameStep {
                        began_at[env] = now;
                    }
                }
            }
            waiting.clear();
            if *autoreset != AutoReset::SameStep {
                waiting.extend_from_slice(ended);
            }
            operant::Result::Ok(())
        };
        let outcome = if num_envs >= RELEASE_FROM { py.detach(work) } else { work() };
        outcome.map_err(raise)?;
        self.turn = 1 - self.turn;
        Ok(())
    }

    /// Makes the other shelf the one to write.
    pub(crate) fn turn_over(&mut self) {
        self.turn = 1 - self.turn;
        let width = self.env.spec().observation.len();
        let Shelf { memory, ended, .. } = &mut self.shelves[self.turn];
        // SAFETY: the lock is held, and nothing else refers to the block.
        clear(&mut unsafe { memory.get().rows() }, ended, width);
    }

    /// The env and the row to write.
    pub(crate) fn env_and_row(&mut self) -> (&mut dyn VecEnv, Row<'_>) {
        // SAFETY: the lock is held, and nothing else refers to the block; the result borrows `self` as a whole.
        (self.env.as_mut(), unsafe { self.shelves[self.turn].memory.get().rows() }.row)
    }

    /// Begins episodes where `which` says.
    fn reset(&mut self, seed: Option<Seed>, which: Option<&[u8]>) {
        let chosen = |env: usize| which.is_none_or(|which| which[env] != 0);
        let go_on = if self.begun { Seeds::Keep } else { Seeds::One(self.seed) };
        self.turn_over();
        match seed {
            None => {
                let (env, row) = self.env_and_row();
                env.reset(go_on, which, row);
            }
            Some(Seed::One(seed)) => {
                let (env, row) = self.env_and_row();
                env.reset(Seeds::One(seed), which, row);
            }
            Some(Seed::Each(seeds)) => {
                // An env whose seed is None goes on with its stream.
                let which = |given: bool| -> Vec<u8> {
                    let pick = |(env, seed): (usize, &Option<u64>)| chosen(env) && seed.is_some() == given;
                    seeds.iter().enumerate().map(|seed| u8::from(pick(seed))).collect()
                };
                let (env, row) = self.env_and_row();
                env.reset(go_on, Some(&which(false)), row);
                let (env, row) = self.env_and_row();
                let given: Vec<u64> = seeds.iter().map(|seed| seed.unwrap_or_default()).collect();
                env.reset(Seeds::Each(&given), Some(&which(true)), row);
            }
        }
        self.begun = true;
        self.waiting.retain(|&env| !chosen(env as usize));
        let now = self.clock.elapsed().as_secs_f64();
        self.began_at.iter_mut().enumerate().filter(|&(env, _)| chosen(env)).for_each(|(_, at)| *at = now);
    }

    /// Forgets what was noted of the episodes: the state is another.
    pub(crate) fn jump(&mut self) {
        self.begun = true;
        self.waiting.clear();
        let now = self.clock.elapsed().as_secs_f64();
        self.began_at.fill(now);
    }

    /// A reset under other parameters, which hold for it alone.
    pub(crate) fn reset_under(
        &mut self,
        bounds: &[(String, f64)],
        seed: Option<Seed>,
        which: Option<&[u8]>,
    ) -> PyResult<()> {
        let before = self.env.params();
        let outcome = bounds.iter().try_for_each(|(name, value)| self.env.set_param(name, *value));
        if outcome.is_ok() {
            self.reset(seed, which);
        }
        for param in before.iter().filter(|param| bounds.iter().any(|(name, _)| name == param.name)) {
            self.env.set_param(param.name, param.value).map_err(raise)?;
        }
        outcome.map_err(raise)
    }
}
