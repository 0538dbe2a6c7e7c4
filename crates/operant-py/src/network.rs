//! Networks in Python: parameters by PyTorch's names, files, and running on NumPy arrays.

use crate::error::raise;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use operant::Error;
use operant::algo::{OBS_LIMIT, normaliser_of};
use operant::data::Running;
use operant::device::{CpuPool, threads_available};
use operant::nn::nets::{Architecture, Net};
use operant::nn::{Feed, Metadata, Options, Params, Plan, Precision};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows from which plans for vectors may run on tiles.
const TILE: usize = 16;

struct State {
    params: Params,
    /// For as many rows as the largest batch so far.
    /// For fewer than [`TILE`] rows, which may run on other instructions and have other last bits, and for more.
    plans: [Option<Plan>; 2],
}

/// A network with its parameters. Calls from several threads take turns.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct Network {
    architecture: Architecture,
    net: Net,
    options: Options,
    /// Other notes of its file, kept when it is saved again.
    notes: Metadata,
    /// What observations go through first.
    normaliser: Option<Running>,
    /// What it was asked to run with, from which a pickled network is made again.
    asked: (Option<usize>, String),
    state: Mutex<State>,
}

/// What a network subtracts from observations, multiplies them by and limits them to.
type Scaling<'py> = (Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<f32>>, f32);

fn options(threads: Option<usize>, precision: &str) -> PyResult<Options> {
    let threads = threads.unwrap_or_else(threads_available);
    if !(1..=1024).contains(&threads) {
        return Err(PyValueError::new_err(format!("threads = {threads}: wanted 1..=1024")));
    }
    let precision = Precision::named(precision).map_err(raise)?;
    Ok(Options { pool: Arc::new(CpuPool::new(threads)), precision, ..Options::default() })
}

impl Network {
    /// Waits without the GIL, which who holds the lock may need to go on.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Network {
    /// A new network from its description in JSON.
    #[new]
    #[pyo3(signature = (architecture, *, seed, threads, precision, notes=None))]
    fn new(
        architecture: &str,
        seed: u64,
        threads: Option<usize>,
        precision: &str,
        notes: Option<Metadata>,
    ) -> PyResult<Self> {
        let architecture = Architecture::from_json(architecture).map_err(raise)?;
        let net = architecture.build().map_err(raise)?;
        let params = net.graph.params(seed).map_err(raise)?;
        let state = Mutex::new(State { params, plans: [None, None] });
        let notes = notes.unwrap_or_default();
        let normaliser = normaliser_of(&notes, net.graph.ty(net.input).len()).map_err(raise)?;
        let asked = (threads, precision.to_owned());
        Ok(Self { architecture, net, options: options(threads, precision)?, notes, normaliser, asked, state })
    }

    /// A network from a file that `save` wrote.
    #[staticmethod]
    #[pyo3(signature = (path, *, threads, precision))]
    fn load(path: PathBuf, threads: Option<usize>, precision: &str) -> PyResult<Self> {
        let options = options(threads, precision)?;
        let (architecture, net, params, notes) = Architecture::load_with(&path).map_err(raise)?;
        let normaliser = normaliser_of(&notes, net.graph.ty(net.input).len()).map_err(|error| match error {
            Error::Saved(reason) => raise(Error::Saved(format!("{}: {reason}", path.display()))),
            other => raise(other),
        })?;
        let (asked, state) = ((threads, precision.to_owned()), Mutex::new(State { params, plans: [None, None] }));
        Ok(Self { architecture, net, options, notes, normaliser, asked, state })
    }

    /// The arguments from which pickle and copy make it again.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((String,), Bound<'py, PyDict>)> {
        let keywords = PyDict::new(py);
        keywords.set_item("seed", 0)?;
        keywords.set_item("threads", self.asked.0)?;
        keywords.set_item("precision", &self.asked.1)?;
        keywords.set_item("notes", self.notes.clone())?;
        Ok(((self.architecture.to_json(),), keywords))
    }

    /// Its parameters, as the bytes of a file of them.
    fn __getstate__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = self.lock(py).params.to_bytes(&Metadata::new());
        PyBytes::new(py, &bytes)
    }

    /// Takes the parameters of another.
    fn __setstate__(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        self.lock(py).params.from_bytes(bytes).map(drop).map_err(raise)
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.architecture.save_with(&self.lock(py).params, self.notes.clone(), path).map_err(raise)
    }

    /// What observations go through before the network: they are shifted, multiplied and limited.
    fn normaliser<'py>(&self, py: Python<'py>) -> Option<Scaling<'py>> {
        let [shift, factor] = self.normaliser.as_ref()?.scaling();
        Some((PyArray1::from_slice(py, shift), PyArray1::from_slice(py, factor), OBS_LIMIT))
    }

    /// The description in JSON.
    #[getter]
    fn architecture(&self) -> String {
        self.architecture.to_json()
    }

    /// Numbers per observation.
    #[getter]
    fn inputs(&self) -> usize {
        self.net.graph.ty(self.net.input).len()
    }

    /// The precision that products run in, and why if it is not the one asked for.
    fn precision(&self) -> (&'static str, Option<&'static str>) {
        let (served, note) = self.options.precision.served();
        (served.name(), note)
    }

    /// Names, shapes and whether they are trained, in the order they lie.
    fn parameters(&self, py: Python<'_>) -> Vec<(String, Vec<usize>, bool)> {
        self.lock(py).params.specs().iter().map(|p| (p.name.clone(), p.shape.clone(), p.trainable)).collect()
    }

    /// A copy of one tensor, flat.
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyArray1<f32>>> {
        Ok(PyArray1::from_slice(py, self.lock(py).params.get(name).map_err(raise)?))
    }

    /// Replaces one tensor by flat values.
    fn set(&self, py: Python<'_>, name: &str, values: PyReadonlyArray1<'_, f32>) -> PyResult<()> {
        self.lock(py).params.set(name, values.as_slice()?).map_err(raise)
    }

    /// Outputs by name for rows of observations.
    fn forward<'py>(&self, py: Python<'py>, obs: PyReadonlyArray2<'py, f32>) -> PyResult<Bound<'py, PyDict>> {
        let [rows, width] = obs.as_array().shape().try_into().unwrap_or([0, 0]);
        let wanted = self.inputs();
        if width != wanted {
            let text =
                format!("observations of shape [{rows}, {width}], wanted [N, {wanted}]; give one row per observation");
            return Err(PyValueError::new_err(text));
        }
        let fed = self.net.graph.inputs().len();
        if fed > 1 {
            let text =
                format!("a network of {fed} inputs, with a state from step to step; operant.PPO.load plays by it");
            return Err(PyValueError::new_err(text));
        }
        let x = obs.as_slice()?;
        if let Some(at) = x.iter().position(|x| !x.is_finite()) {
            let (row, place, got) = (at / wanted, at % wanted, x[at]);
            let text = format!("observation {row} has {got} at place {place}: wanted finite numbers");
            return Err(PyValueError::new_err(text));
        }
        let mut x = Cow::Borrowed(x);
        if let Some(normaliser) = &self.normaliser {
            normaliser.normalise(x.to_mut(), OBS_LIMIT);
        }
        let mut state = self.lock(py);
        let State { params, plans } = &mut *state;
        let plan = &mut plans[usize::from(rows >= TILE)];
        let nodes: Vec<_> = self.net.outputs.iter().map(|(_, node)| *node).collect();
        if plan.as_ref().is_none_or(|plan| plan.max_rows() < rows) {
            let rows = rows.max(1).next_power_of_two().min(if rows < TILE { TILE - 1 } else { usize::MAX });
            *plan = Some(Plan::inference(&self.net.graph, &nodes, rows, &self.options).map_err(raise)?);
        }
        let Some(plan) = plan else { unreachable!("made above") };
        py.detach(|| plan.forward(params, rows, &[Feed::Real(&x)]));
        let outputs = PyDict::new(py);
        for (name, node) in &self.net.outputs {
            let width = self.net.graph.ty(*node).len();
            outputs.set_item(*name, PyArray1::from_slice(py, plan.output(*node)).reshape([rows, width])?)?;
        }
        Ok(outputs)
    }
}
