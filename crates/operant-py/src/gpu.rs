//! Vector envs on a GPU, whose rows other libraries read there.
//!
//! Rows lie in two blocks, written in turn. Order with other streams is DLPack's: who takes a row names the stream that is to
//! wait for it, and actions are asked for on the engine's own stream, which so follows all that their owner did before.
//!
//! Invariant: before a block is written again, the engine's stream waits for those who may still read it: through the actions'
//! owner, through a stream that the call names, or else, where rows were given out, for all work of the GPU.
#![allow(unsafe_code)]

use crate::actions::Form;
use crate::describe::{describe, find};
use crate::dlpack::{self, Kind, Tensor};
use crate::error::{ClosedEnvironmentError, ResetNeeded, raise};
use crate::state::Seed;
use numpy::{PyArray1, PyArrayMethods};
use operant::device::Device;
use operant::device::cuda::{self, DevicePtr, Event, Gpu};
use operant::env::{
    ActionSpace, AutoReset, CudaVec, DeviceActions, DeviceRow, Ends, ForeignActions, ForeignKind, ForeignRow, MAX_ENVS,
    Options, RowBuf, Seeds, Spec, VecEnv,
};
use operant::lanes::{Backend, Math, Width};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Kinds of actions by the numbers that [`DeviceEngine::step_at`] takes.
const KINDS: [ForeignKind; 5] =
    [ForeignKind::I64, ForeignKind::I32, ForeignKind::U8, ForeignKind::F32, ForeignKind::F64];
/// Steps whose actions are kept at once.
const HELD: usize = 4;

/// Looks for NVIDIA's libraries in these folders too.
#[pyfunction]
pub(crate) fn add_library_folders(folders: Vec<std::path::PathBuf>) {
    folders.iter().for_each(|folder| cuda::add_folder(folder));
}

/// One block of rows.
struct Shelf {
    row: DeviceRow,
    ready: Event,
    /// Whether another library was given the rows, which it may read on any stream from then on.
    given: AtomicBool,
}

/// Which buffer of a row.
#[derive(Clone, Copy, Debug)]
enum Field {
    Obs,
    Reward,
    Terminated,
    Truncated,
    Legal,
    FinalObs,
    EpisodeReturn,
    EpisodeLength,
}

/// Numbers in a GPU's memory: torch, JAX, CuPy and Numba take them without a copy, ``.numpy()`` copies them.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct DeviceArray {
    shelf: Arc<Shelf>,
    field: Field,
    tensor: Tensor,
    stream: u64,
}

#[pymethods]
impl DeviceArray {
    /// A capsule whose taker's stream waits for the rows.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = max_version;
        if copy == Some(true) || dl_device.is_some_and(|device| device != self.tensor.device) {
            return Err(PyBufferError::new_err("rows are given where they lie; copy them with .numpy()"));
        }
        match stream {
            Some(-1) => {}
            Some(0) => return Err(PyValueError::new_err("stream 0 is ambiguous in DLPack; name 1 or 2")),
            Some(..-1) => return Err(PyValueError::new_err("stream: wanted -1, or the number of a stream")),
            // Without a stream it is the legacy default one.
            // SAFETY: DLPack has the taker name a live stream of this device.
            stream => unsafe { self.shelf.ready.hold(stream.unwrap_or(1) as u64) }.map_err(raise)?,
        }
        self.shelf.given.store(true, Ordering::Relaxed);
        dlpack::export(py, &self.tensor, self.shelf.clone())
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        self.tensor.device
    }

    /// Version 3 of the interface of Numba and CuPy; the stream is the one that writes the rows. They are written when it is given:
    /// PyTorch reads them without waiting for that stream.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.shelf.given.store(true, Ordering::Relaxed);
        py.detach(|| self.shelf.ready.record().and_then(|()| self.shelf.ready.wait())).map_err(raise)?;
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", self.tensor.kind.typestr())?;
        interface.set_item("data", (self.tensor.address, false))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("version", 3)?;
        interface.set_item("stream", self.stream)?;
        Ok(interface)
    }

    /// A copy in the host's memory, after all steps so far.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (row, ends) = (&self.shelf.row, self.shelf.row.ends.as_ref());
        let len = self.tensor.shape.iter().product::<i64>() as usize;
        let missing = || PyRuntimeError::new_err("rows that do not keep what ended episodes write");
        let floats = |buffer: &cuda::Buffer<f32>| {
            let mut numbers = vec![0.0; len];
            py.detach(|| buffer.download(0, &mut numbers)).map_err(raise)?;
            self.shaped(PyArray1::from_vec(py, numbers))
        };
        let bytes = |buffer: &cuda::Buffer<u8>| {
            let mut bytes = vec![0; len];
            py.detach(|| buffer.download(0, &mut bytes)).map_err(raise)?;
            PyResult::Ok(bytes)
        };
        let flags = |buffer: &cuda::Buffer<u8>| {
            self.shaped(PyArray1::from_vec(py, bytes(buffer)?.into_iter().map(|flag| flag != 0).collect()))
        };
        match self.field {
            Field::Obs => floats(&row.obs),
            Field::Reward => floats(&row.reward),
            Field::Terminated => flags(&row.terminated),
            Field::Truncated => flags(&row.truncated),
            Field::Legal => self.shaped(PyArray1::from_vec(py, bytes(&row.legal)?)),
            Field::FinalObs => floats(&ends.ok_or_else(missing)?.final_obs),
            Field::EpisodeReturn => floats(&ends.ok_or_else(missing)?.episode_return),
            Field::EpisodeLength => {
                let mut lengths = vec![0; len];
                let buffer = &ends.ok_or_else(missing)?.episode_length;
                py.detach(|| buffer.download(0, &mut lengths)).map_err(raise)?;
                self.shaped(PyArray1::from_vec(py, lengths))
            }
        }
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.tensor.shape)
    }

    /// As NumPy calls it.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import(intern!(py, "numpy"))?.getattr(intern!(py, "dtype"))?.call1((self.tensor.kind.typestr(),))
    }

    /// The GPU, as PyTorch names it.
    #[getter]
    fn device(&self) -> String {
        format!("cuda:{}", self.tensor.device.1)
    }

    fn __len__(&self) -> usize {
        self.tensor.shape[0] as usize
    }

    fn __repr__(&self) -> String {
        format!("DeviceArray({:?}, shape={:?}, device={})", self.field, self.tensor.shape, self.device())
    }
}

impl DeviceArray {
    fn shaped<'py, T: numpy::Element>(&self, flat: Bound<'py, PyArray1<T>>) -> PyResult<Bound<'py, PyAny>> {
        let shape: Vec<usize> = self.tensor.shape.iter().map(|&len| len as usize).collect();
        Ok(flat.reshape(shape)?.into_any())
    }
}

/// The rows of a shelf as Python has them.
struct Arrays {
    obs: Py<DeviceArray>,
    reward: Py<DeviceArray>,
    terminated: Py<DeviceArray>,
    truncated: Py<DeviceArray>,
    infos: Py<PyDict>,
}

impl Arrays {
    fn new(py: Python<'_>, shelf: &Arc<Shelf>, spec: &Spec, device: i32, stream: u64) -> PyResult<Self> {
        let (n, row) = (shelf.row.num_envs() as i64, &shelf.row);
        let array = |field: Field, pointer: DevicePtr, kind: Kind, width: Option<usize>| {
            let shape = std::iter::once(n).chain(width.map(|width| width as i64)).collect();
            let tensor = Tensor { address: pointer.address(), device: (dlpack::CUDA, device), kind, shape };
            Py::new(py, DeviceArray { shelf: Arc::clone(shelf), field, tensor, stream })
        };
        let width = Some(spec.observation.len());
        let infos = PyDict::new(py);
        if let Some(ends) = &row.ends {
            infos.set_item("final_obs", array(Field::FinalObs, ends.final_obs.pointer(), Kind::F32, width)?)?;
            let returned = array(Field::EpisodeReturn, ends.episode_return.pointer(), Kind::F32, None)?;
            infos.set_item("episode_return", returned)?;
            let length = array(Field::EpisodeLength, ends.episode_length.pointer(), Kind::I32, None)?;
            infos.set_item("episode_length", length)?;
        }
        if spec.masked {
            let legal = array(Field::Legal, row.legal.pointer(), Kind::U8, Some(spec.legal_width()))?;
            infos.set_item("action_mask", legal)?;
        }
        Ok(Self {
            obs: array(Field::Obs, row.obs.pointer(), Kind::F32, width)?,
            reward: array(Field::Reward, row.reward.pointer(), Kind::F32, None)?,
            terminated: array(Field::Terminated, row.terminated.pointer(), Kind::BOOL, None)?,
            truncated: array(Field::Truncated, row.truncated.pointer(), Kind::BOOL, None)?,
            infos: infos.unbind(),
        })
    }
}

impl Arrays {
    /// Observations, rewards, terminations, truncations, infos.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Self { obs, reward, terminated, truncated, infos } = self;
        let infos = infos.bind(py).copy()?.into_any();
        let [obs, reward, terminated, truncated] =
            [obs, reward, terminated, truncated].map(|array| array.bind(py).clone().into_any());
        PyTuple::new(py, [obs, reward, terminated, truncated, infos])
    }
}

/// Actions that the GPU may still read, and when it no longer does.
struct Held {
    read: Event,
    _object: Option<Py<PyAny>>,
}

struct State {
    envs: Box<dyn VecEnv>,
    form: Form,
    seed: u64,
    begun: bool,
    shelves: [Arc<Shelf>; 2],
    arrays: [Arrays; 2],
    turn: usize,
    held: Vec<Held>,
    steps: usize,
    order: Event,
    gpu: Arc<Gpu>,
    device: i32,
    stream: u64,
}

impl State {
    fn cuda(envs: &mut Box<dyn VecEnv>) -> PyResult<&mut CudaVec> {
        envs.on_gpu().ok_or_else(|| PyRuntimeError::new_err("envs that are not on a GPU"))
    }

    /// Actions of another library in this GPU's memory with what keeps them, or `None` if they are none.
    fn foreign(&self, py: Python<'_>, actions: &Bound<'_, PyAny>) -> PyResult<Option<(Tensor, Py<PyAny>)>> {
        if actions.hasattr(intern!(py, "__dlpack_device__"))? {
            let (kind, index): (i32, i32) = actions.call_method0(intern!(py, "__dlpack_device__"))?.extract()?;
            if kind != dlpack::CUDA {
                return Ok(None);
            }
            if index != self.device {
                let text = format!("actions are on cuda:{index}, wanted cuda:{}, where the envs are", self.device);
                return Err(PyValueError::new_err(text));
            }
            let options = PyDict::new(py);
            options.set_item("stream", self.stream)?;
            let capsule = actions.call_method(intern!(py, "__dlpack__"), (), Some(&options))?;
            return Ok(Some((dlpack::import(&capsule)?, capsule.unbind())));
        }
        if !actions.hasattr(intern!(py, "__cuda_array_interface__"))? {
            return Ok(None);
        }
        let interface = actions.getattr(intern!(py, "__cuda_array_interface__"))?;
        let (address, _): (u64, bool) = interface.get_item("data")?.extract()?;
        let typestr: String = interface.get_item("typestr")?.extract()?;
        let strides = interface.call_method1("get", ("strides",))?;
        if !strides.is_none() {
            return Err(PyBufferError::new_err("actions with strides: wanted a contiguous array"));
        }
        match interface.call_method1("get", ("stream",))?.extract::<Option<u64>>()? {
            Some(0) => return Err(PyValueError::new_err("stream 0 is ambiguous in the CUDA array interface")),
            // The interface has the owner name a live stream, or none if there is nothing to wait for.
            stream => self.await_readers(stream)?,
        }
        let code = match typestr.as_bytes().get(1) {
            Some(b'i') => 0,
            Some(b'u') => 1,
            Some(b'f') => 2,
            _ => u8::MAX,
        };
        let bits = typestr.get(2..).and_then(|size| size.parse::<u8>().ok()).map_or(0, |size| size.saturating_mul(8));
        let shape = interface.get_item("shape")?.extract()?;
        let kind = Kind { code, bits };
        Ok(Some((Tensor { address, device: (dlpack::CUDA, self.device), kind, shape }, actions.clone().unbind())))
    }

    /// The block that is written next.
    fn next(&self) -> usize {
        1 - self.turn
    }

    /// Has the engine's stream wait for those who may still read the block that is written next; a stream that is named is live.
    fn await_readers(&self, stream: Option<u64>) -> PyResult<()> {
        let shelf = &self.shelves[self.next()];
        match stream {
            // SAFETY: the caller's promise.
            Some(stream) => unsafe { self.order.follow(stream) }.map_err(raise),
            None if shelf.given.load(Ordering::Relaxed) => self.gpu.synchronize_all().map_err(raise),
            None => Ok(()),
        }
    }

    /// What the envs show now: observations, and which actions are legal where some are not.
    fn seen<'py>(&self, py: Python<'py>) -> PyResult<(Py<DeviceArray>, Bound<'py, PyDict>)> {
        let arrays = &self.arrays[self.turn];
        let infos = PyDict::new(py);
        if let Some(legal) = arrays.infos.bind(py).get_item("action_mask")? {
            infos.set_item("action_mask", legal)?;
        }
        Ok((arrays.obs.clone_ref(py), infos))
    }

    /// A step into the next block, whose turn it is from then on; if it fails nothing has changed.
    fn step(&mut self, py: Python<'_>, actions: &Bound<'_, PyAny>, stream: Option<u64>) -> PyResult<()> {
        let next = self.next();
        let foreign = self.foreign(py, actions)?;
        let Some((tensor, object)) = foreign else {
            let converted;
            let borrowed = match self.form.borrow(actions) {
                Some(borrowed) => borrowed,
                None => {
                    converted = self.form.convert(actions)?;
                    let none = || PyTypeError::new_err("actions that cannot be read");
                    self.form.borrow(&converted).ok_or_else(none)?
                }
            };
            self.await_readers(stream)?;
            let row = &self.shelves[next].row;
            Self::cuda(&mut self.envs)?.step_with(borrowed, row, 0).map_err(raise)?;
            self.turn = next;
            return Ok(());
        };
        let wanted = self.form.shape();
        if tensor.shape != wanted {
            let got = &tensor.shape;
            return Err(PyValueError::new_err(format!("actions have shape {got:?}, wanted {wanted:?}")));
        }
        let discrete = !matches!(self.envs.spec().action, ActionSpace::Box(_));
        let kind = match (discrete, tensor.kind.code, tensor.kind.bits) {
            (true, 0, 64) => ForeignKind::I64,
            (true, 0, 32) => ForeignKind::I32,
            (true, 1, 8) => ForeignKind::U8,
            (false, 2, 32) => ForeignKind::F32,
            (false, 2, 64) => ForeignKind::F64,
            _ => {
                let wanted = if discrete { "int64, int32 or uint8" } else { "float32 or float64" };
                let got = tensor.kind.typestr();
                return Err(PyTypeError::new_err(format!("actions have dtype {got}, wanted {wanted}")));
            }
        };
        let len = tensor.shape.iter().product::<i64>() as usize;
        let place = self.steps % HELD;
        // The step that this place was last used for is long done, unless the caller is far ahead.
        self.held[place].read.wait().map_err(raise)?;
        // SAFETY: the owner says that a tensor of this shape and kind lies there, and is kept until the step is done.
        let pointer = unsafe { DevicePtr::from_address(tensor.address) };
        let (foreign, row) = (ForeignActions { pointer, len, kind }, &self.shelves[next].row);
        Self::cuda(&mut self.envs)?.step_on_gpu(DeviceActions::Foreign(foreign), row, 0).map_err(raise)?;
        self.turn = next;
        self.held[place]._object = Some(object);
        self.held[place].read.record().map_err(raise)?;
        self.steps += 1;
        Ok(())
    }
}

/// N envs on a GPU.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct DeviceEngine {
    id: &'static str,
    state: Mutex<Option<State>>,
}

impl DeviceEngine {
    fn lock(&self) -> PyResult<MutexGuard<'_, Option<State>>> {
        self.state.try_lock().map_err(|_| PyRuntimeError::new_err(format!("{} is in use by another thread", self.id)))
    }
}

fn open<'a>(state: &'a mut MutexGuard<'_, Option<State>>, id: &str) -> PyResult<&'a mut State> {
    let closed = || ClosedEnvironmentError::new_err(format!("{id} is closed; make a new one with operant.make_vec"));
    state.as_mut().ok_or_else(closed)
}

#[pymethods]
impl DeviceEngine {
    /// N envs on a GPU; names and defaults are those of `operant.make_vec`.
    #[new]
    #[pyo3(signature = (env_id, num_envs, *, device, seed, fast_math, autoreset, max_episode_steps, first_env, params))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        env_id: &str,
        num_envs: usize,
        device: &str,
        seed: u64,
        fast_math: bool,
        autoreset: &str,
        max_episode_steps: Option<i64>,
        first_env: u32,
        params: Vec<(String, f64)>,
    ) -> PyResult<Self> {
        let entry = find(env_id)?;
        if !(1..=MAX_ENVS).contains(&num_envs) {
            return Err(PyValueError::new_err(format!("num_envs = {num_envs}: wanted 1..={MAX_ENVS}")));
        }
        let time_limit = match max_episode_steps {
            None => None,
            Some(-1) => Some(None),
            Some(n @ 1..=0x7fff_ffff) => Some(Some(n as u32)),
            Some(n) => return Err(PyValueError::new_err(format!("max_episode_steps = {n}: wanted at least 1, or -1"))),
        };
        let options = Options {
            device: py.detach(|| Device::named(device)).map_err(raise)?,
            backend: Backend::new(Width::Auto, if fast_math { Math::Fast } else { Math::Strict }),
            autoreset: match autoreset {
                "next_step" => AutoReset::NextStep,
                "disabled" => AutoReset::Disabled,
                _ => AutoReset::SameStep,
            },
            first_env,
            time_limit,
            ..Options::new(num_envs)
        };
        let params: Vec<(&str, f64)> = params.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let mut envs = py.detach(|| entry.build(&params, &options)).map_err(raise)?;
        let spec = envs.spec().clone();
        let on_gpu = State::cuda(&mut envs)?;
        py.detach(|| on_gpu.prepare()).map_err(raise)?;
        let gpu = Arc::clone(on_gpu.gpu());
        let shelf = || -> operant::Result<Arc<Shelf>> {
            let row = DeviceRow::new(&gpu, &spec, num_envs, 1, Ends::Columns)?;
            Ok(Arc::new(Shelf { row, ready: Event::new(&gpu)?, given: AtomicBool::new(false) }))
        };
        let shelves = [shelf().map_err(raise)?, shelf().map_err(raise)?];
        let (index, stream) = (gpu.info().index as i32, gpu.stream_address());
        let arrays = |shelf| Arrays::new(py, shelf, &spec, index, stream);
        let held = |_| Ok(Held { read: Event::new(&gpu)?, _object: None });
        let state = State {
            form: Form::new(&spec, num_envs),
            seed,
            begun: false,
            arrays: [arrays(&shelves[0])?, arrays(&shelves[1])?],
            shelves,
            turn: 0,
            held: (0..HELD).map(held).collect::<operant::Result<_>>().map_err(raise)?,
            steps: 0,
            order: Event::new(&gpu).map_err(raise)?,
            gpu: Arc::clone(&gpu),
            device: index,
            stream,
            envs,
        };
        Ok(Self { id: spec.id, state: Mutex::new(Some(state)) })
    }

    /// Begins episodes in all envs, or where `mask` holds. If a stream is named, those who read older rows there are waited for.
    #[pyo3(signature = (seed, mask, stream=None))]
    fn reset<'py>(
        &self,
        py: Python<'py>,
        seed: Option<Seed>,
        mask: Option<Vec<bool>>,
        stream: Option<u64>,
    ) -> PyResult<(Py<DeviceArray>, Bound<'py, PyDict>)> {
        let mut guard = self.lock()?;
        let state = open(&mut guard, self.id)?;
        let num_envs = state.shelves[0].row.num_envs();
        let mask: Option<Vec<u8>> = mask.map(|mask| mask.into_iter().map(u8::from).collect());
        if mask.as_ref().is_some_and(|mask| mask.len() != num_envs) {
            return Err(PyValueError::new_err(format!("a reset mask of another length than {num_envs}")));
        }
        if !state.begun && mask.is_some() {
            return Err(ResetNeeded::new_err(format!("the first reset of {} must be of all envs", self.id)));
        }
        let seeds = match &seed {
            Some(Seed::One(seed)) => Seeds::One(*seed),
            None if state.begun => Seeds::Keep,
            None => Seeds::One(state.seed),
            Some(Seed::Each(_)) => {
                return Err(PyTypeError::new_err("a seed per env: on a GPU wanted one seed for all"));
            }
        };
        state.await_readers(stream)?;
        let next = state.next();
        let row = &state.shelves[next].row;
        State::cuda(&mut state.envs)?.reset_on_gpu(seeds, mask.as_deref(), row, 0).map_err(raise)?;
        (state.begun, state.turn) = (true, next);
        state.seen(py)
    }

    /// Steps all envs: observations, rewards, terminations, truncations, infos. If a stream is named it waits for them.
    #[pyo3(signature = (actions, stream=None, /))]
    fn step<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyAny>,
        stream: Option<u64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut guard = self.lock()?;
        let state = open(&mut guard, self.id)?;
        if !state.begun {
            return Err(ResetNeeded::new_err(format!("{} has no episodes yet; call reset()", self.id)));
        }
        state.step(py, actions, stream)?;
        if let Some(stream) = stream {
            // SAFETY: the caller names a live stream.
            unsafe { state.shelves[state.turn].ready.hold(stream) }.map_err(raise)?;
        }
        state.arrays[state.turn].rows(py)
    }

    /// Steps all envs, with actions and, if named, rows by their addresses, between what the stream was given before and what it is given from
    /// now on. The caller has checked shape, kind (of `KINDS`), device and layout. Gives the number of the block that was written.
    #[pyo3(signature = (actions, kind, stream, rows, /))]
    fn step_at(&self, actions: u64, kind: usize, stream: u64, rows: Option<(u64, u64, u64, u64)>) -> PyResult<usize> {
        let mut guard = self.lock()?;
        let state = open(&mut guard, self.id)?;
        if !state.begun {
            return Err(ResetNeeded::new_err(format!("{} has no episodes yet; call reset()", self.id)));
        }
        let kind = *KINDS.get(kind).ok_or_else(|| PyValueError::new_err(format!("kind {kind} of actions")))?;
        let len = state.form.shape().iter().product::<i64>() as usize;
        if let Some((obs, ..)) = rows
            && obs % 16 != 0
        {
            return Err(PyValueError::new_err(format!("observations at address {obs:#x}: wanted a multiple of 16")));
        }
        let next = state.next();
        // SAFETY: the caller names a live stream.
        unsafe { state.order.follow(stream) }.map_err(raise)?;
        // SAFETY: the caller checked what lies there. Who gives that memory away does so on a stream that waits for this step below.
        let place = |address: u64| unsafe { DevicePtr::from_address(address) };
        let actions = DeviceActions::Foreign(ForeignActions { pointer: place(actions), len, kind });
        let (envs, row) = (State::cuda(&mut state.envs)?, &state.shelves[next].row);
        match rows {
            None => envs.step_on_gpu(actions, row, 0),
            Some((obs, reward, terminated, truncated)) => {
                let [obs, reward, terminated, truncated] = [obs, reward, terminated, truncated].map(place);
                envs.step_foreign(actions, row, ForeignRow { obs, reward, terminated, truncated })
            }
        }
        .map_err(raise)?;
        state.turn = next;
        // SAFETY: as above.
        unsafe { state.shelves[next].ready.hold(stream) }.map_err(raise)?;
        Ok(next)
    }

    /// Observations, rewards, terminations, truncations and infos of a block.
    fn rows<'py>(&self, py: Python<'py>, block: usize) -> PyResult<Bound<'py, PyTuple>> {
        let mut guard = self.lock()?;
        let state = open(&mut guard, self.id)?;
        let arrays = state.arrays.get(block).ok_or_else(|| PyValueError::new_err(format!("block {block} of 2")))?;
        arrays.rows(py)
    }

    /// Waits for all steps, and raises what went wrong in them.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let mut guard = self.lock()?;
        let state = open(&mut guard, self.id)?;
        let gpu = Arc::clone(&state.gpu);
        py.detach(|| gpu.synchronize()).map_err(raise)
    }

    /// Everything needed to go on exactly from here: the bytes of envs on the CPU.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let mut guard = self.lock()?;
        let state = open(&mut guard, self.id)?;
        // After a fault on the GPU nothing of it can be saved.
        state.gpu.synchronize().map_err(raise)?;
        Ok(pyo3::types::PyBytes::new(py, &state.envs.save()))
    }

    /// Goes on from saved bytes; gives what a reset does.
    #[pyo3(signature = (saved, stream=None, /))]
    fn load<'py>(
        &self,
        py: Python<'py>,
        saved: &[u8],
        stream: Option<u64>,
    ) -> PyResult<(Py<DeviceArray>, Bound<'py, PyDict>)> {
        let mut guard = self.lock()?;
        let state = open(&mut guard, self.id)?;
        state.envs.load(saved).map_err(raise)?;
        let mut host = RowBuf::new(&state.envs.spec().clone(), state.shelves[0].row.num_envs());
        state.envs.observe(host.row());
        state.await_readers(stream)?;
        let next = state.next();
        let row = &state.shelves[next].row;
        row.obs.upload(&host.obs).map_err(raise)?;
        if !host.legal.is_empty() {
            row.legal.upload(&host.legal).map_err(raise)?;
        }
        (state.begun, state.turn) = (true, next);
        state.seen(py)
    }

    /// What the envs are, with their parameters as they are.
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut guard = self.lock()?;
        let state = open(&mut guard, self.id)?;
        describe(py, state.envs.spec(), &state.envs.params())
    }

    /// Gives the memory back, save what arrays still show.
    fn close(&self) -> PyResult<()> {
        self.lock()?.take();
        Ok(())
    }
}
