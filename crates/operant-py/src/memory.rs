//! The memory that steps write and NumPy shows.
//!
//! One block holds all arrays of a step. It is a Python object, which every view names as its base, so views outlive
//! the env. Invariant: Rust makes references into a block only within a call that holds the engine's lock, and never
//! trusts what it reads there from earlier calls, since Python may have written it.
#![allow(unsafe_code)]

use numpy::npyffi::{NPY_ARRAY_CARRAY, NPY_ORDER, NpyTypes, PY_ARRAY_API, get_type_object, npy_intp};
use numpy::{Element, PyArrayDescrMethods, dtype};
use operant::env::{Row, Spec};
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi::Py_REFCNT;
use pyo3::prelude::*;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;

/// A cache line: what vector stores like best, and what JAX wants before it shares memory.
const ALIGN: usize = 64;

/// An array within a block.
struct Column<T> {
    start: NonNull<T>,
    len: usize,
}

impl<T> Column<T> {
    /// # Safety
    /// No other reference into this column may exist while the slice does.
    #[allow(clippy::mut_from_ref)]
    unsafe fn slice(&self) -> &mut [T] {
        // SAFETY: `start` and `len` are within the block, aligned and zeroed or written since; the caller answers for
        // aliasing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// The arrays of one step of N envs. Opaque to Python: the base object of the views.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct Memory {
    block: NonNull<u8>,
    layout: Layout,
    num_envs: usize,
    obs: Column<f32>,
    reward: Column<f32>,
    terminated: Column<u8>,
    truncated: Column<u8>,
    final_obs: Column<f32>,
    episode_return: Column<f32>,
    episode_length: Column<i32>,
    legal: Column<u8>,
    ended: Column<u8>,
    seconds: Column<f32>,
}

// SAFETY: the pointers are to memory that this value alone owns, and `rows` leaves its exclusive use to the caller.
unsafe impl Send for Memory {}
// SAFETY: as above; shared use gives out addresses only.
unsafe impl Sync for Memory {}

/// What a step writes: the engine's row and what the Python edge adds to it.
pub(crate) struct Rows<'a> {
    /// The engine's.
    pub(crate) row: Row<'a>,
    /// `[N]` 1 where an episode ended in this step.
    pub(crate) ended: &'a mut [u8],
    /// `[N]` seconds that an episode which ended in this step took.
    pub(crate) seconds: &'a mut [f32],
}

impl Memory {
    /// Zeroed memory for `num_envs` envs of `spec`.
    pub(crate) fn new(spec: &Spec, num_envs: usize) -> PyResult<Self> {
        let width = spec.observation.len();
        let choices = spec.legal_width();
        let mut size = 0usize;
        // The offset of an array of `count` numbers of 4 bytes or 1 per env.
        let mut place = |count: usize, bytes: usize| {
            let offset = size;
            size = num_envs.checked_mul(count * bytes)?.checked_next_multiple_of(ALIGN)?.checked_add(size)?;
            Some((offset, num_envs * count))
        };
        let places = [
            place(width, 4),
            place(1, 4),
            place(1, 1),
            place(1, 1),
            place(width, 4),
            place(1, 4),
            place(1, 4),
            place(choices, 1),
            place(1, 1),
            place(1, 4),
        ];
        let too_big = || PyMemoryError::new_err(format!("no memory for {num_envs} envs of {}", spec.name));
        let [
            Some(obs),
            Some(reward),
            Some(terminated),
            Some(truncated),
            Some(final_obs),
            Some(episode_return),
            Some(episode_length),
            Some(legal),
            Some(ended),
            Some(seconds),
        ] = places
        else {
            return Err(too_big());
        };
        let layout = Layout::from_size_align(size, ALIGN).map_err(|_| too_big())?;
        // SAFETY: the size is not 0, since there is at least one env, with a reward.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(too_big)?;
        fn column<T>(block: NonNull<u8>, (offset, len): (usize, usize)) -> Column<T> {
            // SAFETY: the offset is at most the size of the block. It is a multiple of ALIGN, which suits any T here.
            Column { start: unsafe { block.add(offset) }.cast(), len }
        }
        Ok(Self {
            block,
            layout,
            num_envs,
            obs: column(block, obs),
            reward: column(block, reward),
            terminated: column(block, terminated),
            truncated: column(block, truncated),
            final_obs: column(block, final_obs),
            episode_return: column(block, episode_return),
            episode_length: column(block, episode_length),
            legal: column(block, legal),
            ended: column(block, ended),
            seconds: column(block, seconds),
        })
    }

    /// The addresses of the block.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.block.as_ptr() as usize;
        start..start + self.layout.size()
    }

    /// Everything, to be written.
    ///
    /// # Safety
    /// No other reference into this block may exist while these do: callers hold the engine's lock and have checked
    /// that the actions lie elsewhere.
    pub(crate) unsafe fn rows(&self) -> Rows<'_> {
        // SAFETY: the columns are disjoint; the caller answers for the rest.
        unsafe {
            Rows {
                row: Row {
                    obs: self.obs.slice(),
                    reward: self.reward.slice(),
                    terminated: self.terminated.slice(),
                    truncated: self.truncated.slice(),
                    final_obs: self.final_obs.slice(),
                    episode_return: self.episode_return.slice(),
                    episode_length: self.episode_length.slice(),
                    legal: self.legal.slice(),
                },
                ended: self.ended.slice(),
                seconds: self.seconds.slice(),
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; no view is left, since each holds a reference to `self`.
        unsafe { dealloc(self.block.as_ptr(), self.layout) }
    }
}

/// NumPy arrays over a block, made once and handed out again and again.
pub(crate) struct Views {
    /// `[N, O]`
    pub(crate) obs: Py<PyAny>,
    /// `[N]`
    pub(crate) reward: Py<PyAny>,
    /// `[N]`
    pub(crate) terminated: Py<PyAny>,
    /// `[N]`
    pub(crate) truncated: Py<PyAny>,
    /// `[N, O]`
    pub(crate) final_obs: Py<PyAny>,
    /// `[N]`
    pub(crate) episode_return: Py<PyAny>,
    /// `[N]`
    pub(crate) episode_length: Py<PyAny>,
    /// `[N]`
    pub(crate) seconds: Py<PyAny>,
    /// `[N]`
    pub(crate) ended: Py<PyAny>,
    /// `[N, choices]`, if masked. Signed bytes, since that is what `Discrete.sample(mask)` takes.
    pub(crate) legal: Option<Py<PyAny>>,
}

impl Views {
    pub(crate) fn new(memory: &Bound<'_, Memory>) -> PyResult<Self> {
        let m = memory.get();
        let (n, width, choices) = (m.num_envs, m.obs.len / m.num_envs, m.legal.len / m.num_envs);
        Ok(Self {
            obs: view::<f32, _>(memory, &m.obs, &[n, width])?,
            reward: view::<f32, _>(memory, &m.reward, &[n])?,
            terminated: view::<bool, _>(memory, &m.terminated, &[n])?,
            truncated: view::<bool, _>(memory, &m.truncated, &[n])?,
            final_obs: view::<f32, _>(memory, &m.final_obs, &[n, width])?,
            episode_return: view::<f32, _>(memory, &m.episode_return, &[n])?,
            episode_length: view::<i32, _>(memory, &m.episode_length, &[n])?,
            seconds: view::<f32, _>(memory, &m.seconds, &[n])?,
            ended: view::<bool, _>(memory, &m.ended, &[n])?,
            legal: if choices > 0 { Some(view::<i8, _>(memory, &m.legal, &[n, choices])?) } else { None },
        })
    }

    /// Whether anybody but this value refers to one of the arrays. Parts of them, and tensors that share their memory, refer to
    /// the array that they were made from.
    pub(crate) fn are_held(&self, _: Python<'_>) -> bool {
        let Self { obs, reward, terminated, truncated, final_obs, .. } = self;
        let Self { episode_return, episode_length, seconds, ended, legal, .. } = self;
        // SAFETY: the interpreter is attached, and `self` refers to the array.
        let held = |array: &Py<PyAny>| unsafe { Py_REFCNT(array.as_ptr()) } > 1;
        [obs, reward, terminated, truncated, final_obs, episode_return, episode_length, seconds, ended]
            .into_iter()
            .chain(legal)
            .any(held)
    }
}

/// An array of dtype `T` over a column of numbers of the same size.
fn view<T: Element, S>(owner: &Bound<'_, Memory>, column: &Column<S>, shape: &[usize]) -> PyResult<Py<PyAny>> {
    const { assert!(size_of::<T>() == size_of::<S>()) }
    let py = owner.py();
    let mut dims = [0 as npy_intp; 2];
    for (dim, &n) in dims.iter_mut().zip(shape) {
        *dim = n as npy_intp;
    }
    // SAFETY: the column has `shape` numbers of T's size and lives as long as `owner`, which becomes the array's base;
    // NewFromDescr takes over a reference to the dtype, SetBaseObject one to the owner. Zero bytes and what the engine
    // writes (0 and 1 for truth values) are valid for every T used.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            dtype::<T>(py).into_dtype_ptr(),
            shape.len() as _,
            dims.as_mut_ptr(),
            std::ptr::null_mut(),
            column.start.as_ptr().cast(),
            NPY_ARRAY_CARRAY,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), owner.clone().into_ptr()) < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array.unbind())
    }
}

/// A fresh array with the same contents.
pub(crate) fn copy<'py>(py: Python<'py>, view: &Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `Views` holds arrays only.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewCopy(py, view.as_ptr().cast(), NPY_ORDER::NPY_CORDER);
        Bound::from_owned_ptr_or_err(py, array)
    }
}
