//! The class that steps. The Python classes wrap it and add spaces and the checks that are not about speed.
//!
//! Invariant: all state is behind one lock that nobody waits for, so a second thread gets an error and not a race.

use crate::actions::{Form, asarray, fresh};
use crate::describe::{describe, find, value};
use crate::error::{ClosedEnvironmentError, ResetNeeded, raise};
use crate::memory::Memory;
use crate::picture::array;
use crate::state::{Seed, Shelf, State};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use operant::Error;
use operant::device::{CpuPool, threads_available};
use operant::env::{AutoReset, MAX_ENVS, Options};
use operant::lanes::{Backend, Kind, Math, Width};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Instant;

/// Envs per thread when nobody says how many threads: fewer are never worth a thread.
const ENVS_PER_THREAD: usize = 64;

/// A vector env with its memory.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct Engine {
    id: &'static str,
    /// What it was made with, from which a pickled engine is made again.
    made: Made,
    /// `None` once closed.
    state: Mutex<Option<State>>,
}

/// The keyword arguments of [`Engine::new`], under their names.
#[derive(Clone, IntoPyObject)]
struct Made {
    seed: u64,
    threads: Option<i64>,
    lanes: u32,
    fast_math: bool,
    autoreset: String,
    max_episode_steps: Option<i64>,
    first_env: u32,
    copy: bool,
    episode_stats: bool,
    guarded: bool,
    params: Vec<(String, f64)>,
}

/// What [`Engine::__getstate__`] gives.
type Standing<'py> = (Bound<'py, PyBytes>, Vec<u32>, Vec<f64>);

/// An open engine, locked.
struct Open<'a>(MutexGuard<'a, Option<State>>, &'static str);

impl Open<'_> {
    fn state(&mut self) -> PyResult<&mut State> {
        self.0.as_mut().ok_or_else(|| {
            ClosedEnvironmentError::new_err(format!("{} is closed; make a new one with operant.make_vec", self.1))
        })
    }

    /// The state, if there are episodes.
    fn begun(&mut self) -> PyResult<&mut State> {
        let id = self.1;
        let state = self.state()?;
        if state.begun {
            Ok(state)
        } else {
            Err(ResetNeeded::new_err(format!("{id} has no episodes yet; call reset()")))
        }
    }
}

impl Engine {
    fn lock(&self) -> PyResult<Open<'_>> {
        match self.state.try_lock() {
            Ok(guard) => Ok(Open(guard, self.id)),
            Err(TryLockError::WouldBlock) => {
                Err(PyRuntimeError::new_err(format!("{} is being stepped by another thread", self.id)))
            }
            Err(TryLockError::Poisoned(_)) => {
                Err(PyRuntimeError::new_err(format!("{} broke in an earlier call; make a new one", self.id)))
            }
        }
    }
}

#[pymethods]
impl Engine {
    /// N envs. Values are checked here; names and defaults are those of `operant.make_vec`.
    #[new]
    #[pyo3(signature = (env_id, num_envs, *, seed, threads, lanes, fast_math, autoreset, max_episode_steps, first_env,
                        copy, episode_stats, guarded, params))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        env_id: &str,
        num_envs: i64,
        seed: u64,
        threads: Option<i64>,
        lanes: u32,
        fast_math: bool,
        autoreset: &str,
        max_episode_steps: Option<i64>,
        first_env: u32,
        copy: bool,
        episode_stats: bool,
        guarded: bool,
        params: Vec<(String, f64)>,
    ) -> PyResult<Self> {
        let entry = find(env_id)?;
        let made = Made {
            seed,
            threads,
            lanes,
            fast_math,
            autoreset: autoreset.to_owned(),
            max_episode_steps,
            first_env,
            copy,
            episode_stats,
            guarded,
            params: params.clone(),
        };
        let invalid = |text: String| Err(PyValueError::new_err(text));
        let num_envs = match usize::try_from(num_envs) {
            Ok(n) if (1..=MAX_ENVS).contains(&n) => n,
            _ => return invalid(format!("num_envs = {num_envs}: wanted 1..={MAX_ENVS}")),
        };
        let threads = match threads {
            None => threads_available().min(num_envs.div_ceil(ENVS_PER_THREAD)),
            Some(n @ 1..=1024) => n as usize,
            Some(n) => return invalid(format!("threads = {n}: wanted 1..=1024, or None for all cores")),
        };
        let width = match lanes {
            0 => Width::Auto,
            1 => Width::One,
            8 => Width::Eight,
            16 => Width::Sixteen,
            _ => return invalid(format!("lanes = {lanes}: wanted \"auto\", 1, 8 or 16")),
        };
        let autoreset = match autoreset {
            "same_step" => AutoReset::SameStep,
            "next_step" => AutoReset::NextStep,
            "disabled" => AutoReset::Disabled,
            _ => {
                return invalid(format!(
                    "autoreset_mode = \"{autoreset}\": wanted \"same_step\", \"next_step\" or \"disabled\""
                ));
            }
        };
        let time_limit = match max_episode_steps {
            None => None,
            Some(-1) => Some(None),
            Some(n @ 1..=0x7fff_ffff) => Some(Some(n as u32)),
            Some(n) => {
                return invalid(format!(
                    "max_episode_steps = {n}: wanted at least 1, -1 for no limit, or None for the env's own"
                ));
            }
        };
        let options = Options {
            pool: Arc::new(CpuPool::new(threads)),
            backend: Backend::checked(width, if fast_math { Math::Fast } else { Math::Strict }).map_err(raise)?,
            autoreset,
            first_env,
            time_limit,
            ..Options::new(num_envs)
        };
        let params: Vec<(&str, f64)> = params.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let env = entry.build(&params, &options).map_err(raise)?;
        let shelf = || Shelf::new(py, Memory::new(env.spec(), num_envs)?, num_envs);
        let shelves = [shelf()?, shelf()?];
        let everywhere = env.spec().masked.then(|| PyArray1::from_vec(py, vec![true; num_envs]).into_any().unbind());
        let state = State {
            form: Form::new(env.spec(), num_envs),
            env,
            autoreset,
            copy,
            stats: episode_stats,
            guarded,
            seed,
            begun: false,
            shelves,
            turn: 0,
            waiting: Vec::with_capacity(num_envs),
            began_at: vec![0.0; num_envs],
            clock: Instant::now(),
            everywhere,
            told_of_old_arrays: false,
        };
        Ok(Self { id: entry.spec().id, made, state: Mutex::new(Some(state)) })
    }

    /// The arguments from which pickle and copy make it again.
    fn __getnewargs_ex__(&self) -> PyResult<((&'static str, usize), Made)> {
        Ok(((self.id, self.lock()?.state()?.num_envs()), self.made.clone()))
    }

    /// Where it stands: saved bytes, which envs wait for a reset, how long each episode has taken; None before the first reset.
    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Option<Standing<'py>>> {
        let mut open = self.lock()?;
        let state = open.state()?;
        if !state.begun {
            return Ok(None);
        }
        let now = state.clock.elapsed().as_secs_f64();
        let ages = state.began_at.iter().map(|at| now - at).collect();
        Ok(Some((PyBytes::new(py, &state.env.save()), state.waiting.clone(), ages)))
    }

    /// Goes on from where another stood.
    fn __setstate__(&self, standing: Option<Standing<'_>>) -> PyResult<()> {
        let Some((saved, waiting, ages)) = standing else { return Ok(()) };
        let mut open = self.lock()?;
        let state = open.state()?;
        let num_envs = state.num_envs();
        if ages.len() != num_envs || waiting.iter().any(|&env| env as usize >= num_envs) {
            let text = format!("a pickled {} of other than {num_envs} envs; pickle it again", self.id);
            return Err(PyValueError::new_err(text));
        }
        state.env.load(saved.as_bytes()).map_err(raise)?;
        state.jump();
        state.waiting.extend(waiting);
        let now = state.clock.elapsed().as_secs_f64();
        state.began_at.iter_mut().zip(ages).for_each(|(at, age)| *at = now - age);
        Ok(())
    }

    /// Steps all envs: observations, rewards, terminations, truncations, infos.
    #[pyo3(signature = (actions, /))]
    fn step<'py>(&self, py: Python<'py>, actions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let mut open = self.lock()?;
        let state = open.begun()?;
        if state.guarded && state.autoreset == AutoReset::Disabled && !state.waiting.is_empty() {
            return Err(ResetNeeded::new_err(format!(
                "env {} of {} has ended and autoreset is disabled; reset it with options={{\"reset_mask\": ended}}",
                state.waiting[0], self.id
            )));
        }
        state.tell_of_old_arrays(py)?;
        state.step(actions)?;
        let views = &state.shelves[state.turn].views;
        PyTuple::new(
            py,
            [
                state.give(py, &views.obs)?,
                state.give(py, &views.reward)?,
                state.give(py, &views.terminated)?,
                state.give(py, &views.truncated)?,
                state.infos(py)?.into_any(),
            ],
        )
    }

    /// Begins episodes in all envs or where `mask` holds, under `bounds` in place of the parameters of those names.
    fn reset<'py>(
        &self,
        py: Python<'py>,
        seed: Option<Seed>,
        mask: Option<PyReadonlyArray1<'py, bool>>,
        bounds: Vec<(String, f64)>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyDict>)> {
        let mut open = self.lock()?;
        let state = open.state()?;
        let num_envs = state.num_envs();
        let wrong = |what: &str, got: usize| PyValueError::new_err(format!("{got} {what}, wanted {num_envs}"));
        if let Some(Seed::Each(seeds)) = &seed
            && seeds.len() != num_envs
        {
            return Err(wrong("seeds", seeds.len()));
        }
        // Copied, since the mask may be a view of the memory that the reset writes.
        let mask: Option<Vec<u8>> = mask.map(|mask| mask.as_array().iter().map(|&bit| u8::from(bit)).collect());
        if let Some(mask) = &mask {
            if mask.len() != num_envs {
                return Err(wrong("entries in the reset mask", mask.len()));
            }
            if !state.begun && mask.contains(&0) {
                return Err(ResetNeeded::new_err(format!("the first reset of {} must be of all envs", self.id)));
            }
        }
        state.tell_of_old_arrays(py)?;
        state.reset_under(&bounds, seed, mask.as_deref())?;
        Ok((state.give(py, &state.shelves[state.turn].views.obs)?, state.mask_info(py)?))
    }

    /// Observations of the states as they are.
    fn observe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut open = self.lock()?;
        let state = open.begun()?;
        state.tell_of_old_arrays(py)?;
        state.turn_over();
        let (env, row) = state.env_and_row();
        env.observe(row);
        state.give(py, &state.shelves[state.turn].views.obs)
    }

    /// Copies of the state's columns, by name.
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut open = self.lock()?;
        let state = open.begun()?;
        let columns = PyDict::new(py);
        let mut words = vec![0; state.num_envs()];
        for (i, column) in state.env.columns().iter().enumerate() {
            state.env.read(i, &mut words);
            match column.kind {
                Kind::I32 => columns.set_item(column.name, PyArray1::from_slice(py, &words))?,
                Kind::F32 => {
                    let numbers = words.iter().map(|&word| f32::from_bits(word as u32));
                    columns.set_item(column.name, PyArray1::from_iter(py, numbers))?;
                }
            }
        }
        Ok(columns)
    }

    /// Replaces columns of the state: all or nothing.
    #[pyo3(signature = (columns, /))]
    fn set_state(&self, columns: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut open = self.lock()?;
        let state = open.begun()?;
        let num_envs = state.num_envs();
        let known = state.env.columns();
        let mut words = Vec::with_capacity(columns.len());
        for (name, values) in columns {
            let name = name.extract::<String>()?;
            let Some(index) = known.iter().position(|column| column.name == name) else {
                let names: Vec<&str> = known.iter().map(|column| column.name).collect();
                let next_step = format!("it has {}", names.join(", "));
                return Err(raise(Error::unknown("state column", &name, names, &next_step)));
            };
            words.push((index, column_words(&name, known[index].kind, &values, num_envs)?));
        }
        let columns: Vec<(usize, &[i32])> = words.iter().map(|(index, words)| (*index, words.as_slice())).collect();
        state.env.write(&columns).map_err(raise)?;
        state.jump();
        Ok(())
    }

    /// Everything needed to go on exactly from here.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.lock()?.begun()?.env.save()))
    }

    /// Goes on from saved bytes.
    #[pyo3(signature = (saved, /))]
    fn load(&self, saved: &[u8]) -> PyResult<()> {
        let mut open = self.lock()?;
        let state = open.state()?;
        state.env.load(saved).map_err(raise)?;
        state.jump();
        Ok(())
    }

    /// A picture of one env, `[height, width, 3]`, or None if it draws none.
    #[pyo3(signature = (env, /))]
    fn draw<'py>(&self, py: Python<'py>, env: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut open = self.lock()?;
        let state = open.begun()?;
        if env >= state.num_envs() {
            return Err(PyIndexError::new_err(format!("env {env}: wanted 0..={}", state.num_envs() - 1)));
        }
        let Some(canvas) = state.env.draw(env) else { return Ok(None) };
        Ok(Some(array(py, &canvas)?.into_any()))
    }

    /// What the envs are, with their parameters as they are.
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut open = self.lock()?;
        let state = open.state()?;
        describe(py, state.env.spec(), &state.env.params())
    }

    /// The parameters by name.
    fn params<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let params = PyDict::new(py);
        for param in self.lock()?.state()?.env.params() {
            params.set_item(param.name, value(py, &param)?)?;
        }
        Ok(params)
    }

    /// Ends the worker threads and gives the memory back, save what views still show.
    fn close(&self) -> PyResult<()> {
        self.lock()?.0.take();
        Ok(())
    }
}

/// The bits of a column, from whatever NumPy makes an array of.
fn column_words(name: &str, kind: Kind, values: &Bound<'_, PyAny>, num_envs: usize) -> PyResult<Vec<i32>> {
    let py = values.py();
    let array = asarray(values)?;
    if array.shape() != [num_envs] {
        let got = PyTuple::new(py, array.shape())?;
        return Err(PyValueError::new_err(format!("state column {name} has shape {got}, wanted ({num_envs},)")));
    }
    let dtype = array.dtype();
    let (kinds, wanted) = if kind == Kind::F32 { ("fiub", "real numbers") } else { ("iub", "whole numbers") };
    if !kinds.contains(dtype.getattr(intern!(py, "kind"))?.extract::<char>()?) {
        return Err(PyTypeError::new_err(format!("state column {name} has dtype {dtype}, wanted {wanted}")));
    }
    match kind {
        Kind::F32 => {
            let numbers = fresh(array.as_any(), "float32")?.cast_into::<PyArray1<f32>>()?.to_vec()?;
            Ok(numbers.into_iter().map(|number| number.to_bits() as i32).collect())
        }
        Kind::I32 => {
            let numbers = fresh(array.as_any(), "int64")?.cast_into::<PyArray1<i64>>()?.to_vec()?;
            let outside = |number: i64| PyValueError::new_err(format!("state column {name}: {number} is not an i32"));
            numbers.into_iter().map(|number| i32::try_from(number).map_err(|_| outside(number))).collect()
        }
    }
}
