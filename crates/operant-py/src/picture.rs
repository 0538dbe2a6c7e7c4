//! Pictures as NumPy arrays.

use numpy::{PyArray1, PyArray3, PyArrayMethods};
use operant::env::Canvas;
use pyo3::prelude::*;

/// `[height, width, 3]`.
pub(crate) type Picture<'py> = Bound<'py, PyArray3<u8>>;

/// The picture as an array of its own.
pub(crate) fn array<'py>(py: Python<'py>, canvas: &Canvas) -> PyResult<Picture<'py>> {
    PyArray1::from_slice(py, canvas.pixels()).reshape([canvas.height(), canvas.width(), 3])
}
