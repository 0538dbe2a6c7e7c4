//! Envs that Python brings, as the engine's vector env: batched observations in, batched actions out, under the GIL.
//!
//! `operant.foreign.HostEnvs` knows Gymnasium's spaces and autoreset modes; here its arrays become rows. Invariant: an
//! exception never crosses the engine. It is kept in the [`Link`], the envs count as failed, and who drives the run
//! raises it.

use crate::error::raise;
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use operant::device::check_room;
use operant::env;
use operant::env::{ActionSpace, Actions, Canvas, Channel, Param, Row, Seeds, Spec, VecEnv};
use operant::lanes::Column;
use operant::nn::nets::Image;
use operant::{Error, Result};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the envs and who drives the run share.
#[derive(Default)]
pub(crate) struct Link {
    error: Mutex<Option<PyErr>>,
    failure: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// The exception that ended a call, once.
    pub(crate) fn take_error(&self) -> Option<PyErr> {
        lock(&self.error).take()
    }

    /// Has the envs reset before they are stepped again.
    pub(crate) fn begin_anew(&self, why: &str) {
        *lock(&self.failure) = Some(why.to_owned());
    }

    pub(crate) fn fail(&self, py: Python<'_>, error: PyErr) {
        let stopped = error.is_instance_of::<PyKeyboardInterrupt>(py);
        let text = if stopped { "stopped by the user".to_owned() } else { format!("the envs raised {error}") };
        *lock(&self.failure) = Some(text);
        *lock(&self.error) = Some(error);
    }
}

/// Envs behind a `HostEnvs`.
pub(crate) struct Foreign {
    spec: Spec,
    num_envs: usize,
    image: Option<Image>,
    host: Py<PyAny>,
    link: Arc<Link>,
    /// Whether the envs are closed with it, since nobody else has them.
    closes: bool,
    /// `[N, O]` as last seen.
    obs: Vec<f32>,
    /// `[N]` of episodes under way.
    returned: Vec<f64>,
    elapsed: Vec<i32>,
}

/// A text that lives as long as the process; the same text is kept once.
fn intern_text(text: String) -> &'static str {
    static KNOWN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut known = lock(&KNOWN);
    let known = known.get_or_insert_default();
    match known.get(text.as_str()) {
        Some(kept) => kept,
        None => {
            let kept: &'static str = Box::leak(text.into_boxed_str());
            known.insert(kept);
            kept
        }
    }
}

/// What a step gives: observations, rewards, terminated, truncated, last observations of ended episodes, and where the
/// step only reset an env.
type Stepped<'py> = (
    PyReadonlyArray2<'py, f32>,
    PyReadonlyArray1<'py, f32>,
    PyReadonlyArray1<'py, bool>,
    PyReadonlyArray1<'py, bool>,
    Option<PyReadonlyArray2<'py, f32>>,
    Option<PyReadonlyArray1<'py, bool>>,
);

impl Drop for Foreign {
    fn drop(&mut self) {
        if self.closes {
            // What an env raises while it is closed changes nothing any more, and the interpreter may be gone.
            Python::try_attach(|py| {
                drop(self.host.bind(py).getattr("envs").and_then(|envs| envs.call_method0("close")))
            });
        }
    }
}

impl Foreign {
    /// The same envs, closed with it.
    pub(crate) fn closing(self) -> Self {
        let mut envs = self;
        envs.closes = true;
        envs
    }

    pub(crate) fn new(host: &Bound<'_, PyAny>, link: Arc<Link>) -> PyResult<Self> {
        let name = intern_text(host.getattr("name")?.extract()?);
        let num_envs: usize = host.getattr("num_envs")?.extract()?;
        let width: usize = host.getattr("obs_size")?.extract()?;
        let choices: Option<Vec<usize>> = host.getattr("choices")?.extract()?;
        let action = match choices {
            Some(choices) if choices.len() == 1 => ActionSpace::Discrete(choices[0]),
            Some(choices) => ActionSpace::MultiDiscrete(choices.into()),
            None => {
                let bounds: Vec<(f32, f32)> = host.getattr("bounds")?.extract()?;
                let channel = |(i, (low, high))| Channel::new(format!("action {i}"), low, high);
                ActionSpace::Box(bounds.into_iter().enumerate().map(channel).collect())
            }
        };
        let image: Option<(usize, usize, usize, bool, bool)> = host.getattr("image")?.extract()?;
        let image = image.map(|(height, width, channels, channels_first, bytes)| Image {
            height,
            width,
            channels,
            channels_first,
            bytes,
        });
        let spec = Spec {
            name,
            id: name,
            summary: "brought from Python",
            reference: "the caller",
            observation: (0..width)
                .map(|i| Channel::new(format!("observation {i}"), f32::NEG_INFINITY, f32::INFINITY))
                .collect(),
            action,
            masked: false,
            time_limit: None,
            solved_at: host.getattr("solved_at")?.extract()?,
            render_fps: 0,
        };
        let bytes = size_of::<f32>() as u64 * (num_envs as u64).saturating_mul(width as u64);
        let what = format!("observations of {num_envs} envs, {width} numbers each");
        check_room(&what, bytes, "lower num_envs, or wrap the env so that it shows fewer numbers").map_err(raise)?;
        Ok(Self {
            spec,
            num_envs,
            image,
            host: host.clone().unbind(),
            closes: false,
            link,
            obs: vec![0.0; num_envs * width],
            returned: vec![0.0; num_envs],
            elapsed: vec![0; num_envs],
        })
    }

    fn try_reset(&mut self, py: Python<'_>, seed: Option<u64>) -> PyResult<()> {
        let obs = self.host.call_method1(py, intern!(py, "reset"), (seed,))?;
        let obs: PyReadonlyArray2<'_, f32> = obs.bind(py).extract()?;
        let wanted = self.obs.len();
        self.obs.copy_from_slice(fitting(obs.as_slice()?, wanted, "observation numbers of a reset")?);
        self.returned.fill(0.0);
        self.elapsed.fill(0);
        Ok(())
    }

    fn try_step(&mut self, py: Python<'_>, actions: Actions<'_>, out: &mut Row<'_>) -> PyResult<()> {
        let (n, width, dims) = (self.num_envs, self.spec.observation.len(), self.spec.action.dims());
        let actions = match actions {
            Actions::I32(a) => PyArray1::from_iter(py, a.iter().map(|&x| i64::from(x))).reshape([n, dims])?.into_any(),
            Actions::I64(a) => PyArray1::from_slice(py, a).reshape([n, dims])?.into_any(),
            Actions::F32(a) => PyArray1::from_slice(py, a).reshape([n, dims])?.into_any(),
            Actions::F64(a) => PyArray1::from_slice(py, a).reshape([n, dims])?.into_any(),
        };
        let result = self.host.call_method1(py, intern!(py, "step"), (actions,))?;
        let (obs, reward, terminated, truncated, last, resets): Stepped<'_> = result.bind(py).extract()?;
        self.obs.copy_from_slice(fitting(obs.as_slice()?, n * width, "observation numbers")?);
        out.obs.copy_from_slice(&self.obs);
        let reward = fitting(reward.as_slice()?, n, "rewards")?;
        let terminated = fitting(terminated.as_slice()?, n, "terminated flags")?;
        let truncated = fitting(truncated.as_slice()?, n, "truncated flags")?;
        let last = last.as_ref().map(|last| last.as_slice()).transpose()?;
        let resets = resets.as_ref().map(|resets| resets.as_slice()).transpose()?;
        for env in 0..n {
            let reset = resets.is_some_and(|resets| resets[env]);
            out.reward[env] = reward[env];
            out.terminated[env] = u8::from(terminated[env]);
            out.truncated[env] = u8::from(truncated[env]);
            if !reset {
                self.returned[env] += f64::from(reward[env]);
                self.elapsed[env] += 1;
            }
            if terminated[env] || truncated[env] {
                let Some(last) = last else {
                    return Err(PyValueError::new_err("an episode ended without its last observation"));
                };
                out.final_obs[env * width..][..width].copy_from_slice(&last[env * width..][..width]);
                (out.episode_return[env], out.episode_length[env]) = (self.returned[env] as f32, self.elapsed[env]);
                (self.returned[env], self.elapsed[env]) = (0.0, 0);
            }
        }
        Ok(())
    }

    /// Runs `call` under the GIL and keeps its exception.
    fn attempt(&mut self, call: impl FnOnce(&mut Self, Python<'_>) -> PyResult<()>) {
        Python::attach(|py| match call(self, py) {
            Ok(()) => *lock(&self.link.failure) = None,
            Err(error) => self.link.fail(py, error),
        });
    }
}

/// NumPy's older generators, which envs may use, take seeds of 32 bits. Smaller seeds stay as they are.
fn in_32_bits(seed: u64) -> u64 {
    if seed >> 32 == 0 { seed } else { (seed ^ seed >> 32) & u64::from(u32::MAX) }
}

fn fitting<'a, T>(values: &'a [T], wanted: usize, what: &str) -> PyResult<&'a [T]> {
    if values.len() == wanted {
        Ok(values)
    } else {
        Err(PyValueError::new_err(format!("{} {what}, wanted {wanted}", values.len())))
    }
}

/// Where the first number is that is not finite or larger in size than `MOST`.
#[pyfunction]
pub(crate) fn first_unfit(values: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    // To ask for the type costs less than an extraction that fails.
    if let Ok(values) = values.cast::<PyArrayDyn<f32>>() {
        return Ok(env::first_unfit(values.readonly().as_slice()?));
    }
    let most = f64::from(env::MOST);
    let values = values.cast::<PyArrayDyn<f64>>()?.readonly();
    Ok(values.as_slice()?.iter().position(|x| x.is_nan() || x.abs() > most))
}

fn no_state(what: &str) -> Error {
    Error::Saved(format!(
        "{what}: envs brought from Python have no state that can be saved, so an exact resume is not possible; take \
         the policy alone with load(path, env=env)"
    ))
}

impl VecEnv for Foreign {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn num_envs(&self) -> usize {
        self.num_envs
    }

    fn image(&self) -> Option<Image> {
        self.image
    }

    fn reset(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>, out: Row<'_>) {
        self.attempt(|envs, py| match (seeds, which) {
            (Seeds::Keep, None) => envs.try_reset(py, None),
            (Seeds::One(seed), None) => envs.try_reset(py, Some(in_32_bits(seed))),
            _ => Err(PyValueError::new_err("envs brought from Python are reset all at once, by one seed or by none")),
        });
        out.obs.copy_from_slice(&self.obs);
    }

    fn step(&mut self, actions: Actions<'_>, mut out: Row<'_>) {
        self.attempt(|envs, py| envs.try_step(py, actions, &mut out));
    }

    fn failure(&self) -> Option<String> {
        lock(&self.link.failure).clone()
    }

    fn observe(&self, out: Row<'_>) {
        out.obs.copy_from_slice(&self.obs);
    }

    fn columns(&self) -> &[Column] {
        &[]
    }

    fn read(&self, column: usize, _: &mut [i32]) {
        panic!("state column {column} of envs that have none");
    }

    fn write(&mut self, _: &[(usize, &[i32])]) -> Result<()> {
        Err(no_state("state injection"))
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn saves_state(&self) -> bool {
        false
    }

    fn load(&mut self, _: &[u8]) -> Result<()> {
        Err(no_state(self.spec.name))
    }

    fn draw(&self, _: usize) -> Option<Canvas> {
        None
    }

    fn params(&self) -> Vec<Param> {
        Vec::new()
    }

    fn set_param(&mut self, name: &str, _: f64) -> Result<()> {
        Err(Error::Unknown(format!("unknown parameter \"{name}\": envs brought from Python have none")))
    }
}
