//! A policy that acts on NumPy arrays.
//!
//! Invariant: what it gives depends on the policy, the observations and, for sampled actions, the number of calls
//! before, never on batches of other sizes: there is a plan for every power of two of rows.

use crate::error::raise;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods};
use operant::algo::{self, ActionsMut, Head, Policy};
use operant::device::CpuPool;
use operant::nn::dist::Draws;
use operant::nn::nets::Architecture;
use operant::nn::{Metadata, Options};
use operant::run::replace_file;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Sets sampled actions apart from those of training with the same seed.
const PREDICTION: u64 = 0x7072_6564_0000_0000;

struct Plans {
    /// By rows, each a power of two.
    actors: Vec<(usize, algo::Actor)>,
    /// Calls that sampled.
    calls: u64,
}

/// A policy, with what its file says beside.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct Actor {
    pub(crate) policy: Policy,
    notes: Metadata,
    seed: u64,
    plans: Mutex<Plans>,
}

type Acted<'py> = (Bound<'py, PyAny>, Vec<Bound<'py, PyArray2<f32>>>);

impl Actor {
    pub(crate) fn new(policy: Policy, seed: u64) -> Self {
        let plans = Mutex::new(Plans { actors: Vec::new(), calls: 0 });
        Self { policy, notes: Metadata::new(), seed: seed ^ PREDICTION, plans }
    }

    /// Masks must leave an action in every row and dimension.
    fn check_legal(&self, legal: &[u8], rows: usize) -> PyResult<()> {
        let Head::Choices(heads) = &self.policy.head else {
            return Err(PyValueError::new_err("action_masks for real-valued actions: wanted None"));
        };
        let width: usize = heads.iter().sum();
        if legal.len() != rows * width {
            let text = format!("action_masks have {} entries, wanted [{rows}, {width}]", legal.len());
            return Err(PyValueError::new_err(text));
        }
        for (row, mut mask) in legal.chunks_exact(width).enumerate() {
            for &head in heads {
                let (of_head, rest) = mask.split_at(head);
                if of_head.iter().all(|&bit| bit == 0) {
                    return Err(PyValueError::new_err(format!("action_masks forbid every action of row {row}")));
                }
                mask = rest;
            }
        }
        Ok(())
    }
}

/// What [`Actor::__reduce__`] gives to [`copied_actor`].
type Copied<'py> = (Bound<'py, PyBytes>, u64, u64);

/// The policy that was pickled or copied.
#[pyfunction]
pub(crate) fn copied_actor(bytes: &[u8], seed: u64, calls: u64) -> PyResult<Actor> {
    let (.., notes) = Architecture::from_bytes(bytes).map_err(raise)?;
    let policy = Policy::from_bytes(bytes).map_err(raise)?;
    Ok(Actor { policy, notes, seed, plans: Mutex::new(Plans { actors: Vec::new(), calls }) })
}

fn read(path: &Path) -> PyResult<Vec<u8>> {
    std::fs::read(path).map_err(|error| raise(operant::Error::io("read", path, &error)))
}

#[pymethods]
impl Actor {
    /// A policy from its file.
    #[staticmethod]
    fn load(path: PathBuf, seed: u64) -> PyResult<Self> {
        let bytes = read(&path)?;
        let of_file = |error| match error {
            operant::Error::Saved(reason) => raise(operant::Error::Saved(format!("{}: {reason}", path.display()))),
            other => raise(other),
        };
        let (.., notes) = Architecture::from_bytes(&bytes).map_err(of_file)?;
        let policy = Policy::from_bytes(&bytes).map_err(of_file)?;
        Ok(Self { notes, ..Self::new(policy, seed) })
    }

    /// What pickle and copy make it again from: the policy's file, its seed, and how many calls sampled.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Copied<'py>)> {
        let calls = self.plans.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).calls;
        let bytes = self.policy.to_bytes_with(self.notes.clone());
        let again = py.import("operant._operant")?.getattr("copied_actor")?;
        Ok((again, (PyBytes::new(py, &bytes), self.seed, calls)))
    }

    /// Writes the policy's file with further notes.
    fn save(&self, path: PathBuf, notes: Vec<(String, String)>) -> PyResult<()> {
        replace_file(&path, &self.policy.to_bytes_with(notes.into_iter().collect())).map_err(raise)
    }

    /// What the policy's file says under a name.
    fn note(&self, name: &str) -> Option<String> {
        self.notes.get(name).cloned()
    }

    /// The description of the network in JSON.
    #[getter]
    fn architecture(&self) -> String {
        self.policy.architecture.to_json()
    }

    /// Numbers per observation.
    #[getter]
    fn inputs(&self) -> usize {
        self.policy.architecture.inputs()
    }

    /// Choices of each dimension of an action, or None for real numbers.
    #[getter]
    fn choices(&self) -> Option<Vec<usize>> {
        match &self.policy.head {
            Head::Choices(heads) => Some(heads.clone()),
            Head::Gaussian(_) => None,
        }
    }

    /// Numbers per action.
    #[getter]
    fn dims(&self) -> usize {
        self.policy.head.dims()
    }

    /// Whether observations are normalised.
    #[getter]
    fn normalizes(&self) -> bool {
        self.policy.normaliser.is_some()
    }

    /// Actions `[N, A]` and the state after them, `[N, H]` each, for observations `[N, O]` and the state before, if any.
    #[pyo3(signature = (obs, deterministic, legal=None, state=None))]
    fn act<'py>(
        &self,
        py: Python<'py>,
        obs: PyReadonlyArray2<'py, f32>,
        deterministic: bool,
        legal: Option<PyReadonlyArray2<'py, u8>>,
        state: Option<Vec<PyReadonlyArray2<'py, f32>>>,
    ) -> PyResult<Acted<'py>> {
        let (rows, width) = (obs.shape()[0], obs.shape()[1]);
        let wanted = self.inputs();
        if width != wanted {
            return Err(PyValueError::new_err(format!("observations of {width} numbers, wanted {wanted}")));
        }
        let mut seen = obs.as_slice()?.to_vec();
        self.policy.normalise(&mut seen);
        let legal = legal.as_ref().map(|legal| legal.as_slice()).transpose()?;
        if let Some(legal) = legal {
            self.check_legal(legal, rows)?;
        }
        let mut plans = self.plans.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let plans = &mut *plans;
        let capacity = rows.max(1).next_power_of_two();
        let index = match plans.actors.iter().position(|(size, _)| *size == capacity) {
            Some(index) => index,
            None => {
                let options = Options { pool: Arc::new(CpuPool::new(1)), ..Options::default() };
                plans.actors.push((capacity, self.policy.actor(capacity, &options).map_err(raise)?));
                plans.actors.len() - 1
            }
        };
        let actor = &mut plans.actors[index].1;
        let size = actor.state().first().map_or(0, |part| part.len() / capacity);
        match &state {
            None => actor.state_mut().iter_mut().for_each(|part| part.fill(0.0)),
            Some(parts) => {
                let shapes_fit = parts.iter().all(|part| part.shape() == [rows, size]);
                if parts.len() != actor.state().len() || !shapes_fit {
                    let count = actor.state().len();
                    return Err(PyValueError::new_err(format!(
                        "state: wanted {count} arrays of shape ({rows}, {size}), as predict returned them"
                    )));
                }
                for (to, from) in actor.state_mut().iter_mut().zip(parts) {
                    to[..rows * size].copy_from_slice(from.as_slice()?);
                }
            }
        }
        let dims = self.policy.head.dims();
        let (mut choices, mut numbers) = (Vec::new(), Vec::new());
        let params = &self.policy.params;
        let draws = Draws { seed: self.seed, first_row: 0, step: plans.calls };
        let continuous = self.policy.head.continuous();
        if rows > 0 {
            py.detach(|| {
                actor.forward(params, rows, &seen);
                let actions = if continuous {
                    numbers.resize(rows * dims, 0.0);
                    ActionsMut::Numbers(&mut numbers)
                } else {
                    choices.resize(rows * dims, 0);
                    ActionsMut::Choices(&mut choices)
                };
                if deterministic {
                    actor.mode(params, legal, actions);
                } else {
                    actor.sample(params, legal, draws, actions, &mut vec![0.0; rows]);
                }
                actor.remember();
            });
        }
        let after =
            actor.state().iter().map(|part| PyArray1::from_slice(py, &part[..rows * size]).reshape([rows, size]));
        let after = after.collect::<PyResult<_>>()?;
        plans.calls += u64::from(!deterministic);
        let actions = if continuous {
            PyArray1::from_vec(py, numbers).reshape([rows, dims])?.into_any()
        } else {
            PyArray1::from_iter(py, choices.into_iter().map(i64::from)).reshape([rows, dims])?.into_any()
        };
        Ok((actions, after))
    }
}
