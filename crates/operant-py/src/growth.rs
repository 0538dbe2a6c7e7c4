//! Episodes of growth that Python steps: a host in training, the heuristic beside it, and what every epoch showed.

use crate::error::raise;
use crate::picture::{Picture, array};
use crate::settings::{of_config, table};
use numpy::{PyArray1, ToPyArray};
use operant::CATALOGUE;
use operant::env::growth::{Choice, Heuristic, Op, SPEEDS, STYLES, TARGETS, TEMPOS};
use operant::env::{self, HostEnv, Params};
use operant::lanes::rng::HostRng;
use operant::nn::grow::Blueprint;
use operant::run::Config;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A host and its controller's memory.
struct State {
    env: env::Growth,
    heuristic: Option<Heuristic>,
    over: bool,
}

/// One env of growth. Calls from several threads take turns.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct Growth {
    config: Config,
    /// Settings as they were given.
    given: Vec<(String, Py<PyAny>)>,
    state: Mutex<State>,
}

/// What [`Growth::__getstate__`] gives.
type Standing<'py> = (Bound<'py, PyBytes>, Option<String>, bool);

/// Observation and mask.
type Seen<'py> = (Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<u8>>);

impl Growth {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Growth {
    /// The shipped settings of the env with these over them.
    #[new]
    fn new(settings: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let config = Config::resolve(&CATALOGUE, "ppo", "growth", table(&settings)?).map_err(raise)?;
        let mut env = env::Growth::default();
        for (name, value) in &config.env_params {
            env.set(name, *value).map_err(raise)?;
        }
        env.validate().map_err(raise)?;
        let given = settings.into_iter().map(|(name, value)| (name, value.unbind())).collect();
        Ok(Self { config, given, state: Mutex::new(State { env, heuristic: None, over: true }) })
    }

    /// The arguments from which pickle and copy make it again.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> (Vec<(String, Bound<'py, PyAny>)>,) {
        (self.given.iter().map(|(name, value)| (name.clone(), value.bind(py).clone())).collect(),)
    }

    /// Where the episode stands: the host, the heuristic's memory, whether it is over.
    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Standing<'py>> {
        let state = self.lock();
        let heuristic = state.heuristic.as_ref().map(Heuristic::to_json);
        Ok((PyBytes::new(py, &state.env.save_rest()), heuristic, state.over))
    }

    /// Goes on from where another stood.
    fn __setstate__(&self, standing: Standing<'_>) -> PyResult<()> {
        let (saved, heuristic, over) = standing;
        let mut state = self.lock();
        state.env.load_rest(saved.as_bytes()).map_err(raise)?;
        state.heuristic = heuristic.as_deref().map(Heuristic::from_json).transpose().map_err(raise)?;
        state.over = over;
        Ok(())
    }

    /// The env's parameters.
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        of_config(py, &self.config)?.as_any().get_item("env")
    }

    /// Names of what the heads of an action choose from; slots and curves are numbers.
    #[staticmethod]
    fn choices(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let names = PyDict::new(py);
        names.set_item("op", Op::ALL.map(|(_, name)| name))?;
        names.set_item("blueprint", Blueprint::ALL.map(|(_, name)| name))?;
        names.set_item("style", STYLES.map(|(name, ..)| name))?;
        names.set_item("tempo", TEMPOS)?;
        names.set_item("target", TARGETS)?;
        names.set_item("speed", SPEEDS)?;
        Ok(names)
    }

    /// Begins the episode of env `number` of a vector env with this seed.
    fn reset(&self, py: Python<'_>, seed: u64, number: u32) {
        py.detach(|| {
            let mut state = self.lock();
            state.env.reset(&mut HostRng::new(seed, number, 0, 0));
            (state.heuristic, state.over) = (None, false);
        });
    }

    /// What a policy sees, and which choices are legal.
    fn observe<'py>(&self, py: Python<'py>) -> Seen<'py> {
        let state = self.lock();
        let spec = state.env.spec();
        let (mut obs, mut legal) = (vec![0.0; spec.observation.len()], vec![0; spec.action.choices()]);
        state.env.observe(&mut obs);
        state.env.legal(&mut legal);
        (obs.to_pyarray(py), legal.to_pyarray(py))
    }

    /// A picture of the episode as it is, `[height, width, 3]`; none before `reset`.
    fn render<'py>(&self, py: Python<'py>) -> PyResult<Option<Picture<'py>>> {
        self.lock().env.draw().map(|canvas| array(py, &canvas)).transpose()
    }

    /// One epoch after this action, or after the heuristic's: whether the episode is over, and what the epoch showed.
    #[pyo3(signature = (action=None))]
    fn step<'py>(&self, py: Python<'py>, action: Option<[usize; 8]>) -> PyResult<(bool, Bound<'py, PyDict>)> {
        if let Some(action) = action {
            let space = self.lock().env.spec().action;
            let operant::env::ActionSpace::MultiDiscrete(heads) = space else { unreachable!("growth has heads") };
            if action.iter().zip(heads.iter()).any(|(choice, size)| choice >= size) {
                let text = format!("action {action:?}: wanted numbers below {:?}", &heads[..]);
                return Err(PyValueError::new_err(text));
            }
        }
        let stepped = py.detach(|| {
            let state = &mut *self.lock();
            let episode = state.env.episode().filter(|_| !state.over)?;
            let choice = match action {
                Some(action) => Choice::of(|head| action[head]),
                None => {
                    let slots = episode.state.slots.len();
                    state.heuristic.get_or_insert_with(|| Heuristic::new(slots)).choose(episode)
                }
            };
            let (reward, over) = state.env.choose(&choice);
            state.over = over;
            Some((choice, reward, over))
        });
        let (choice, reward, over) =
            stepped.ok_or_else(|| PyRuntimeError::new_err("the episode is over; call reset"))?;
        let state = self.lock();
        let episode = state.env.episode().expect("it was stepped");
        let of = &episode.state;
        let row = PyDict::new(py);
        row.set_item("epoch", of.epoch)?;
        row.set_item("loss", episode.loss())?;
        row.set_item("accuracy", episode.accuracy())?;
        row.set_item("train_loss", of.train_loss)?;
        row.set_item("reward", reward)?;
        for (name, part) in of.parts.named() {
            row.set_item(name, part)?;
        }
        row.set_item("op", choice.op)?;
        row.set_item("slot", choice.slot)?;
        row.set_item("done", of.last.1)?;
        row.set_item("seed_parameters", episode.seed_parameters())?;
        row.set_item("rollbacks", of.rollbacks)?;
        row.set_item("stage", of.slots.iter().map(|slot| slot.stage as u32).collect::<Vec<_>>())?;
        row.set_item("alpha", of.slots.iter().map(|slot| slot.alpha.value).collect::<Vec<_>>())?;
        let contribution = |slot: &operant::env::growth::Slot| slot.measured.contribution.unwrap_or(f32::NAN);
        row.set_item("contribution", of.slots.iter().map(contribution).collect::<Vec<_>>())?;
        let shapley = (0..of.slots.len()).map(|slot| of.worth.of(slot).map_or(f32::NAN, |(value, _)| value));
        row.set_item("shapley", shapley.collect::<Vec<_>>())?;
        let blueprints = of.planted.iter().map(|planted| planted.map_or(-1, |planted| planted.blueprint as i64));
        row.set_item("blueprint", blueprints.collect::<Vec<_>>())?;
        Ok((over, row))
    }
}
