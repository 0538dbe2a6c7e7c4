//! Settings of runs between Python's dictionaries and the engine's tables.

use crate::error::raise;
use operant::CATALOGUE;
use operant::algo::{self, NetworkSettings};
use operant::config::{self, Meaning, Table, Value};
use operant::run::{Config, Run, Settings};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The keys that there are, with their defaults: those of the top level under "", then by table.
#[pyfunction]
pub(crate) fn algorithm_settings<'py>(py: Python<'py>, algo: &str) -> PyResult<Bound<'py, PyDict>> {
    let entry = algo::find(algo).map_err(raise)?;
    let tables = PyDict::new(py);
    tables.set_item("", dict(py, &config::defaults::<Settings>())?)?;
    tables.set_item(entry.name, dict(py, &(entry.defaults)())?)?;
    tables.set_item("network", dict(py, &config::defaults::<NetworkSettings>())?)?;
    Ok(tables)
}

/// The path of a setting, and words about it.
type Said = (Option<String>, Option<&'static str>);

/// Names that other libraries have for an algorithm's settings: the path of ours, and how its value follows if it is not the same, or
/// words alone if there is no such setting.
#[pyfunction]
pub(crate) fn setting_aliases(algo: &str) -> PyResult<BTreeMap<&'static str, Said>> {
    let algo = algo::find(algo).map_err(raise)?.name;
    let said = |meaning: Meaning| match (meaning, meaning.key(algo)) {
        (Meaning::Other(words), _) => (None, Some(words)),
        (_, Some((key, how))) => (Some(key), how),
        (_, None) => (None, None),
    };
    Ok(config::aliases(algo).map(|(name, meaning)| (name, said(meaning))).collect())
}

/// The settings of the run in a folder, or those that `text` holds as a `run.toml` does.
#[pyfunction]
#[pyo3(signature = (folder, text=None))]
pub(crate) fn run_settings<'py>(py: Python<'py>, folder: PathBuf, text: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
    let config = match text {
        Some(text) => Config::from_text(&CATALOGUE, text, &folder.display().to_string()),
        None => Run::config_of(&CATALOGUE, &folder),
    };
    of_config(py, &config.map_err(raise)?)
}

/// Every setting of a run of this algorithm and env, where these are given.
#[pyfunction]
pub(crate) fn resolve_settings<'py>(
    py: Python<'py>,
    algo: &str,
    env: &str,
    settings: Vec<(String, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyDict>> {
    of_config(py, &Config::resolve(&CATALOGUE, algo, env, table(&settings)?).map_err(raise)?)
}

/// Every setting of a run.
pub(crate) fn of_config<'py>(py: Python<'py>, config: &Config) -> PyResult<Bound<'py, PyDict>> {
    dict(py, &config::parse(&config.to_text(), "settings").map_err(raise)?)
}

/// Values at dotted paths as a table.
pub(crate) fn table(pairs: &[(String, Bound<'_, PyAny>)]) -> PyResult<Table> {
    let mut table = Table::new();
    for (path, object) in pairs {
        config::insert(&mut table, path, value(path, object)?).map_err(raise)?;
    }
    Ok(table)
}

fn value(path: &str, object: &Bound<'_, PyAny>) -> PyResult<Value> {
    Ok(if object.is_instance_of::<PyBool>() {
        Value::Boolean(object.extract()?)
    } else if object.is_instance_of::<PyInt>() {
        let wanted = |_| PyValueError::new_err(format!("{path} = {object}: wanted at most {}", i64::MAX));
        Value::Integer(object.extract().map_err(wanted)?)
    } else if object.is_instance_of::<PyFloat>() {
        Value::Float(object.extract()?)
    } else if object.is_instance_of::<PyString>() {
        Value::String(object.extract()?)
    } else if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let items = object.try_iter()?.map(|item| value(path, &item?));
        Value::Array(items.collect::<PyResult<_>>()?)
    } else if let Ok(pairs) = object.cast::<PyDict>() {
        let item = |(key, item): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let key: String = key.extract()?;
            let inner = value(&format!("{path}.{key}"), &item)?;
            Ok((key, inner))
        };
        Value::Table(pairs.iter().map(item).collect::<PyResult<_>>()?)
    } else {
        let got = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "{path} is of type {got}: wanted a number, text, bool, list or dict"
        )));
    })
}

fn dict<'py>(py: Python<'py>, table: &Table) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in table {
        dict.set_item(key, object(py, value)?)?;
    }
    Ok(dict)
}

fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Integer(x) => x.into_pyobject(py)?.into_any(),
        Value::Float(x) => x.into_pyobject(py)?.into_any(),
        Value::Boolean(x) => PyBool::new(py, *x).to_owned().into_any(),
        Value::Datetime(time) => time.to_string().into_pyobject(py)?.into_any(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| object(py, item)).collect::<PyResult<_>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Table(table) => dict(py, table)?.into_any(),
    })
}
