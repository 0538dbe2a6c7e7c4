//! Engine errors as Python exceptions. Texts are the engine's: what, got, wanted, next step.

use operant::Error;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::{PyErr, import_exception};

import_exception!(gymnasium.error, ClosedEnvironmentError);
import_exception!(gymnasium.error, ResetNeeded);

/// The exception that a Python user expects for this error.
pub(crate) fn raise(error: Error) -> PyErr {
    match error {
        Error::Io(text) => PyOSError::new_err(text),
        Error::Diverged(text) | Error::Env(text) | Error::Device(text) | Error::DeviceFault(text) => {
            PyRuntimeError::new_err(text)
        }
        Error::Unknown(text) | Error::Invalid(text) | Error::Action(text) | Error::Saved(text) => {
            PyValueError::new_err(text)
        }
    }
}
