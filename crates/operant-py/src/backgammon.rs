//! The value networks of backgammon: how games end, and what plays are worth.

use crate::error::raise;
use crate::games::{Backgammon, found};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use operant::env::backgammon::{Bearoff, OUTCOMES, Outcome, Plays, Position};
use operant::nn::{Options, Precision};
use operant::search::backgammon::{BackgammonFile, ByValue, Depth, Evaluator, Judged, SHIPPED};
use operant::search::game_net;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most rolls that are looked ahead.
const MOST_PLIES: u8 = 3;

/// Value networks of backgammon. Calls from several threads take turns.
#[pyclass(frozen, module = "operant.games")]
pub(crate) struct BackgammonNetwork {
    player: Mutex<ByValue>,
    path: Option<PathBuf>,
    table: Option<PathBuf>,
}

fn evaluator(bytes: &[u8]) -> operant::Result<Evaluator> {
    if game_net::game_of(bytes).is_ok() {
        return Evaluator::of_search(bytes, &Options::default());
    }
    let (net, weights) = BackgammonFile::from_bytes(bytes)?;
    Evaluator::new(&net, &weights, &Options { precision: Precision::F32, ..Options::default() })
}

fn absolute(path: PathBuf) -> PyResult<PathBuf> {
    std::path::absolute(&path).map_err(|error| PyOSError::new_err(format!("{}: {error}", path.display())))
}

fn read(path: &Path) -> PyResult<Vec<u8>> {
    let next = "name a .safetensors file of networks, such as backgammon.safetensors of a checkpoint";
    std::fs::read(path).map_err(|error| PyOSError::new_err(format!("can't read {}: {error}; {next}", path.display())))
}

fn depth(plies: u8) -> PyResult<Depth> {
    let wrong = || PyValueError::new_err(format!("plies = {plies}: wanted 1 to {MOST_PLIES}"));
    Depth::of_rolls(plies).ok_or_else(wrong)
}

/// Numbers of an outcome by name.
fn numbers<'py>(py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyDict>> {
    let named = PyDict::new(py);
    named.set_item("equity", outcome.equity())?;
    named.set_item("win", outcome.win)?;
    named.set_item("win_gammon", outcome.win_gammon)?;
    named.set_item("win_backgammon", outcome.win_backgammon)?;
    named.set_item("lose_gammon", outcome.lose_gammon)?;
    named.set_item("lose_backgammon", outcome.lose_backgammon)?;
    Ok(named)
}

impl BackgammonNetwork {
    fn lock(&self) -> MutexGuard<'_, ByValue> {
        self.player.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ahead(&self, py: Python<'_>, positions: &[Position], plies: u8) -> PyResult<Vec<Outcome>> {
        let depth = depth(plies)?;
        let look = || {
            let mut player = self.lock();
            player.look_ahead(depth);
            player.values(positions)
        };
        Ok(py.detach(look))
    }

    fn judge(&self, py: Python<'_>, position: Position, plays: &Plays, plies: u8) -> PyResult<Vec<Judged>> {
        let depth = depth(plies)?;
        let look = || {
            let mut player = self.lock();
            player.look_ahead(depth);
            player.judge(position, plays)
        };
        Ok(py.detach(look))
    }
}

#[pymethods]
impl BackgammonNetwork {
    /// The networks that come with Operant, or those of a file; `table` is a file of exact endings.
    #[new]
    #[pyo3(signature = (path=None, *, table=None))]
    fn new(path: Option<PathBuf>, table: Option<PathBuf>) -> PyResult<Self> {
        let made = match &path {
            Some(path) => evaluator(&read(path)?),
            None => evaluator(SHIPPED),
        };
        let evaluator = match &table {
            Some(table) => made.map_err(raise)?.with_table(Arc::new(Bearoff::load(table).map_err(raise)?)),
            None => made.map_err(raise)?,
        };
        // A copy may be made by a process in another folder.
        let (path, table) = (path.map(absolute).transpose()?, table.map(absolute).transpose()?);
        Ok(Self { player: Mutex::new(ByValue::new("operant", evaluator, Depth::One)), path, table })
    }

    /// The arguments from which pickle and copy make it again.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((Option<PathBuf>,), Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("table", &self.table)?;
        Ok(((self.path.clone(),), named))
    }

    /// How the game ends for the player on roll, before the roll: `equity` in points and five probabilities.
    #[pyo3(signature = (position, plies=1))]
    fn outcome<'py>(&self, py: Python<'py>, position: &Backgammon, plies: u8) -> PyResult<Bound<'py, PyDict>> {
        numbers(py, self.ahead(py, &[position.0], plies)?[0])
    }

    /// The same of many positions, `[N, 5]`: the probabilities in the order that `outcome` gives them.
    #[pyo3(signature = (positions, plies=1))]
    fn outcomes<'py>(
        &self,
        py: Python<'py>,
        positions: Vec<PyRef<'py, Backgammon>>,
        plies: u8,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let positions: Vec<Position> = positions.iter().map(|position| position.0).collect();
        let outcomes = self.ahead(py, &positions, plies)?;
        let flat: Vec<f32> = outcomes.into_iter().flat_map(Outcome::to_array).collect();
        PyArray1::from_vec(py, flat).reshape([positions.len(), OUTCOMES])
    }

    /// Every legal play of a roll, best first, with the position after it and what it is worth to the one who makes it.
    #[pyo3(signature = (position, dice, plies=1))]
    fn plays<'py>(
        &self,
        py: Python<'py>,
        position: &Backgammon,
        dice: (u8, u8),
        plies: u8,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let (plays, position) = (found(position.0, dice)?, position.0);
        let judged = self.judge(py, position, &plays, plies)?;
        let row = |one: &Judged| {
            let row = numbers(py, one.outcome)?;
            row.set_item("play", plays[one.play].text())?;
            row.set_item("position", Backgammon(plays[one.play].result(position)))?;
            row.set_item("plies", one.rolls)?;
            Ok(row)
        };
        judged.iter().map(row).collect()
    }

    /// The best play of a roll as text, such as "8/5 6/5".
    #[pyo3(signature = (position, dice, plies=1))]
    fn best_play(&self, py: Python<'_>, position: &Backgammon, dice: (u8, u8), plies: u8) -> PyResult<String> {
        let plays = found(position.0, dice)?;
        let judged = self.judge(py, position.0, &plays, plies)?;
        Ok(plays[judged[0].play].text())
    }

    fn __repr__(&self) -> String {
        match &self.path {
            Some(path) => format!("BackgammonNetwork({:?})", path.display().to_string()),
            None => "BackgammonNetwork()".into(),
        }
    }
}
