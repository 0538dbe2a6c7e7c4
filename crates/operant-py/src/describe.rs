//! Specs and parameters as dictionaries: what `env_info` gives and what the Python side builds spaces from.

use crate::error::raise;
use operant::device::cuda;
use operant::env::{self, ActionSpace, Channel, Entry, Param, Spec, all};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The ids of all environments, in the order of the registry.
#[pyfunction]
pub(crate) fn list_envs() -> Vec<&'static str> {
    all().map(|entry| entry.spec().id).collect()
}

/// All that is known of one environment with its default parameters.
#[pyfunction]
#[pyo3(signature = (name, /))]
pub(crate) fn env_info<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
    let entry = find(name)?;
    let info = describe(py, &entry.spec(), &entry.params())?;
    info.set_item("door", entry.door().name())?;
    Ok(info)
}

/// What of CUDA was found, as JSON. Libraries are looked for in these folders too.
#[pyfunction]
pub(crate) fn doctor(py: Python<'_>, folders: Vec<std::path::PathBuf>) -> String {
    folders.iter().for_each(|folder| cuda::add_folder(folder));
    py.detach(|| cuda::Report::look().to_json().to_string())
}

/// The env of this short name or id.
pub(crate) fn find(name: &str) -> PyResult<&'static Entry> {
    env::find(name).map_err(raise)
}

/// A spec and its parameters as a dictionary.
pub(crate) fn describe<'py>(py: Python<'py>, spec: &Spec, params: &[Param]) -> PyResult<Bound<'py, PyDict>> {
    let action = PyDict::new(py);
    match &spec.action {
        ActionSpace::Discrete(n) => {
            action.set_item("kind", "discrete")?;
            action.set_item("n", n)?;
        }
        ActionSpace::MultiDiscrete(n) => {
            action.set_item("kind", "multi_discrete")?;
            action.set_item("n", n.to_vec())?;
        }
        ActionSpace::Box(list) => {
            action.set_item("kind", "box")?;
            action.set_item("channels", channels(py, list)?)?;
        }
    }
    let info = PyDict::new(py);
    info.set_item("name", spec.name)?;
    info.set_item("id", spec.id)?;
    info.set_item("summary", spec.summary)?;
    info.set_item("reference", spec.reference)?;
    info.set_item("observation", channels(py, &spec.observation)?)?;
    info.set_item("action", action)?;
    info.set_item("masked", spec.masked)?;
    info.set_item("time_limit", spec.time_limit)?;
    info.set_item("solved_at", spec.solved_at)?;
    info.set_item("render_fps", spec.render_fps)?;
    let list = PyList::empty(py);
    for param in params {
        let item = PyDict::new(py);
        item.set_item("name", param.name)?;
        item.set_item("doc", param.doc)?;
        item.set_item("unit", param.unit)?;
        item.set_item("value", value(py, param)?)?;
        item.set_item("low", *param.range.start())?;
        item.set_item("high", *param.range.end())?;
        item.set_item("whole", param.whole)?;
        item.set_item("names", param.names.to_vec())?;
        list.append(item)?;
    }
    info.set_item("params", list)?;
    Ok(info)
}

/// A parameter's value: whole numbers as `int`.
pub(crate) fn value<'py>(py: Python<'py>, param: &Param) -> PyResult<Bound<'py, PyAny>> {
    Ok(if param.whole {
        (param.value as i64).into_pyobject(py)?.into_any()
    } else {
        param.value.into_pyobject(py)?.into_any()
    })
}

fn channels<'py>(py: Python<'py>, list: &[Channel]) -> PyResult<Bound<'py, PyList>> {
    let items = PyList::empty(py);
    for channel in list {
        let item = PyDict::new(py);
        item.set_item("name", &channel.name)?;
        item.set_item("low", channel.low)?;
        item.set_item("high", channel.high)?;
        items.append(item)?;
    }
    Ok(items)
}
