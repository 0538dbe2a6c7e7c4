//! DLPack: memory that other libraries read and write where it lies, given out and taken in as capsules.
//!
//! What is given out keeps its owner alive until the taker is done with it; what was taken in is kept by its capsule. The
//! structs are those of DLPack before version 1, which every library still takes.
#![allow(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::any::Any;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// Name of a capsule that nobody has taken yet.
const NAME: &CStr = c"dltensor";
/// `DLDeviceType`
pub(crate) const CUDA: i32 = 2;

/// What numbers are: `DLDataTypeCode` and bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) code: u8,
    pub(crate) bits: u8,
}

impl Kind {
    pub(crate) const I32: Self = Self { code: 0, bits: 32 };
    pub(crate) const F32: Self = Self { code: 2, bits: 32 };
    pub(crate) const BOOL: Self = Self { code: 6, bits: 8 };
    pub(crate) const U8: Self = Self { code: 1, bits: 8 };

    /// As NumPy's array interface writes it.
    pub(crate) fn typestr(self) -> String {
        let letter = match self.code {
            0 => 'i',
            1 => 'u',
            6 => 'b',
            _ => 'f',
        };
        format!("{}{letter}{}", if self.bits == 8 { '|' } else { '<' }, self.bits / 8)
    }
}

/// Dense rows of numbers in some device's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) address: u64,
    /// `DLDeviceType`, and which of them.
    pub(crate) device: (i32, i32),
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<i64>,
}

/// `DLTensor`
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_kind: i32,
    device_index: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// All that a capsule given out holds.
struct Export {
    managed: Managed,
    shape: Vec<i64>,
    _owner: Arc<dyn Any + Send + Sync>,
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: the context is the box that `export` made, and takers call this once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Export>()) });
}

/// Called when a capsule is collected: nobody took it if it still has its name.
unsafe extern "C" fn collect(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this with a live capsule; its pointer is of the name that is checked.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

/// A capsule for a tensor whose memory lives as long as `owner`.
pub(crate) fn export<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    owner: Arc<dyn Any + Send + Sync>,
) -> PyResult<Bound<'py, PyAny>> {
    let managed = Managed {
        tensor: DlTensor {
            data: tensor.address as *mut c_void,
            device_kind: tensor.device.0,
            device_index: tensor.device.1,
            ndim: tensor.shape.len() as i32,
            code: tensor.kind.code,
            bits: tensor.kind.bits,
            lanes: 1,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        },
        context: std::ptr::null_mut(),
        deleter: Some(delete),
    };
    let export = Box::into_raw(Box::new(Export { managed, shape: tensor.shape.clone(), _owner: owner }));
    // SAFETY: the box is live until `delete`; the capsule points into it and calls that once.
    unsafe {
        (*export).managed.tensor.shape = (*export).shape.as_mut_ptr();
        (*export).managed.context = export.cast();
        let pointer = std::ptr::from_mut(&mut (*export).managed).cast();
        let capsule = ffi::PyCapsule_New(pointer, NAME.as_ptr(), Some(collect));
        if capsule.is_null() {
            drop(Box::from_raw(export));
            return Err(PyErr::fetch(py));
        }
        Ok(Bound::from_owned_ptr(py, capsule))
    }
}

/// What a capsule of another library holds. The memory stays there as long as the capsule does.
pub(crate) fn import(capsule: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    // SAFETY: a capsule of this name points to a live DLManagedTensor, whose shape has `ndim` numbers, as its strides
    // have where there are any.
    let (tensor, shape, strides) = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) != 1 {
            return Err(PyTypeError::new_err("__dlpack__ gave no fresh capsule named \"dltensor\""));
        }
        let managed: *const Managed = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast();
        let tensor = &(*managed).tensor;
        let numbers = |from: *const i64| match (from.is_null(), tensor.ndim) {
            (true, _) | (_, ..=0) => Vec::new(),
            (false, ndim) => std::slice::from_raw_parts(from, ndim as usize).to_vec(),
        };
        (tensor, numbers(tensor.shape), numbers(tensor.strides))
    };
    if !strides.is_empty() && !dense(&shape, &strides) {
        return Err(PyBufferError::new_err("rows that are not dense: wanted a contiguous tensor (.contiguous())"));
    }
    if tensor.lanes != 1 {
        return Err(PyBufferError::new_err(format!("numbers of {} lanes: wanted 1", tensor.lanes)));
    }
    Ok(Tensor {
        address: tensor.data as u64 + tensor.byte_offset,
        device: (tensor.device_kind, tensor.device_index),
        kind: Kind { code: tensor.code, bits: tensor.bits },
        shape,
    })
}

/// Whether strides, in numbers, are those of rows one after another.
fn dense(shape: &[i64], strides: &[i64]) -> bool {
    let mut step = 1;
    shape.iter().zip(strides).rev().all(|(&len, &stride)| {
        let good = len == 1 || stride == step;
        step *= len;
        good
    })
}

/// An object that is given back at once, also where a taker lets go of it outside of this module.
struct Kept(Option<Py<PyAny>>);

impl Drop for Kept {
    fn drop(&mut self) {
        Python::attach(|_| drop(self.0.take()));
    }
}

/// A tensor of another library, taken in and given out again: the same memory. For tests of both ways on any machine.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct Relay {
    tensor: Tensor,
    owner: Arc<dyn Any + Send + Sync>,
}

#[pymethods]
impl Relay {
    #[new]
    #[pyo3(signature = (object, /))]
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let capsule = object.call_method0("__dlpack__")?;
        let tensor = import(&capsule)?;
        Ok(Self { tensor, owner: Arc::new(Kept(Some(capsule.unbind()))) })
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (stream, max_version, dl_device, copy);
        export(py, &self.tensor, Arc::clone(&self.owner))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        self.tensor.device
    }
}
