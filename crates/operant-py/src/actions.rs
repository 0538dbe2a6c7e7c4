//! NumPy arrays as actions, read where they lie when they can be, converted when not.
#![allow(unsafe_code)]

use numpy::npyffi::{
    _PyArray_GET_ITEM_DATA, _PyDataType_GET_ITEM_DATA, NPY_ARRAY_ALIGNED, NPY_ARRAY_C_CONTIGUOUS, PyDataType_ELSIZE,
};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use operant::env::{ActionSpace, Actions, Spec};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyTuple};
use std::ops::Range;

/// What arrays of actions look like for one vector env.
pub(crate) struct Form {
    id: &'static str,
    discrete: bool,
    num_envs: usize,
    /// Numbers per action; `None` where actions are `[N]` and not `[N, A]`.
    dims: Option<usize>,
}

impl Form {
    pub(crate) fn new(spec: &Spec, num_envs: usize) -> Self {
        let dims = (!matches!(spec.action, ActionSpace::Discrete(_))).then(|| spec.action.dims());
        Self { id: spec.id, discrete: !matches!(spec.action, ActionSpace::Box(_)), num_envs, dims }
    }

    /// What shape arrays have.
    pub(crate) fn shape(&self) -> Vec<i64> {
        std::iter::once(self.num_envs).chain(self.dims).map(|len| len as i64).collect()
    }

    fn fits(&self, shape: &[usize]) -> bool {
        match self.dims {
            None => *shape == [self.num_envs],
            Some(dims) => *shape == [self.num_envs, dims],
        }
    }

    /// The actions within `object`, if it is an array that can be read as it is.
    pub(crate) fn borrow<'a>(&self, object: &'a Bound<'_, PyAny>) -> Option<Actions<'a>> {
        let array = object.cast::<PyUntypedArray>().ok()?;
        let py = array.py();
        // SAFETY: a live array has valid fields and a valid dtype, and we are attached to the interpreter.
        let (data, flags, kind, order, size) = unsafe {
            let fields = &*_PyArray_GET_ITEM_DATA(array.as_array_ptr());
            let descr = &*_PyDataType_GET_ITEM_DATA(fields.descr);
            let size = PyDataType_ELSIZE(py, fields.descr);
            (fields.data, fields.flags, descr.kind as u8, descr.byteorder as u8, size)
        };
        let readable = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
        if !self.fits(array.shape()) || flags & readable != readable || order != b'=' {
            return None;
        }
        let len = self.num_envs * self.dims.unwrap_or(1);
        // SAFETY: contiguous, aligned, in native byte order, of this kind and size, with `len` numbers; `object` keeps
        // the array alive, and NumPy does not move the data of an array that is referred to. Another thread may write
        // the numbers while the interpreter is released, as with any NumPy routine: then a choice may be another, which
        // the engine bears.
        unsafe {
            match (self.discrete, kind, size) {
                (true, b'i', 8) => Some(Actions::I64(std::slice::from_raw_parts(data.cast(), len))),
                (true, b'i', 4) => Some(Actions::I32(std::slice::from_raw_parts(data.cast(), len))),
                (false, b'f', 4) => Some(Actions::F32(std::slice::from_raw_parts(data.cast(), len))),
                (false, b'f', 8) => Some(Actions::F64(std::slice::from_raw_parts(data.cast(), len))),
                _ => None,
            }
        }
    }

    /// An array that `borrow` takes, with the numbers of `object`; or what is wrong with them.
    #[cold]
    pub(crate) fn convert<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        let array = asarray(object)?;
        if !self.fits(array.shape()) {
            let got = PyTuple::new(py, array.shape())?;
            let wanted = match self.dims {
                None => format!("({},)", self.num_envs),
                Some(dims) => format!("({}, {dims})", self.num_envs),
            };
            return Err(PyValueError::new_err(format!("actions of {} have shape {got}, wanted {wanted}", self.id)));
        }
        let kind = array.dtype().getattr(intern!(py, "kind"))?.extract::<char>()?;
        if !(if self.discrete { "iub" } else { "fiub" }).contains(kind) {
            let wanted = if self.discrete { "integer choices" } else { "real numbers" };
            return Err(PyTypeError::new_err(format!(
                "actions of {} have dtype {}, wanted {wanted}",
                self.id,
                array.dtype()
            )));
        }
        fresh(array.as_any(), if self.discrete { "int64" } else { "float32" })
    }
}

/// Whether the actions lie outside a block of memory.
pub(crate) fn apart(actions: &Actions<'_>, block: &Range<usize>) -> bool {
    let (start, bytes) = match actions {
        Actions::I32(a) => (a.as_ptr() as usize, size_of_val(*a)),
        Actions::I64(a) => (a.as_ptr() as usize, size_of_val(*a)),
        Actions::F32(a) => (a.as_ptr() as usize, size_of_val(*a)),
        Actions::F64(a) => (a.as_ptr() as usize, size_of_val(*a)),
    };
    start + bytes <= block.start || block.end <= start
}

/// Whatever NumPy makes an array of.
pub(crate) fn asarray<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = object.py();
    let array = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "asarray"), (object,))?;
    Ok(array.cast_into()?)
}

/// A new contiguous array of this dtype.
pub(crate) fn fresh<'py>(array: &Bound<'py, PyAny>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let options = [("order", "C"), ("dtype", dtype)].into_py_dict(py)?;
    py.import(intern!(py, "numpy"))?.call_method(intern!(py, "array"), (array,), Some(&options))
}
