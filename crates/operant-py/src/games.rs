//! Games for two, as values that do not change: a play gives the position after it.

use crate::error::raise;
use numpy::{PyArray1, ToPyArray};
use operant::env::backgammon::{self, BAR, OBSERVATION, Plays, Position, ROLLS};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A backgammon position, as the player whose turn it is sees it.
#[pyclass(frozen, eq, hash, module = "operant.games")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Backgammon(Position);

fn found(position: Position, dice: (u8, u8)) -> PyResult<Plays> {
    if !(1..=6).contains(&dice.0) || !(1..=6).contains(&dice.1) {
        return Err(PyValueError::new_err(format!("dice {dice:?}: wanted two numbers from 1 to 6")));
    }
    if position.lost().is_some() {
        return Err(PyValueError::new_err("the game is over; begin another with Backgammon()"));
    }
    let mut plays = Plays::default();
    plays.find(position, [dice.0, dice.1]);
    Ok(plays)
}

#[pymethods]
impl Backgammon {
    /// The beginning of a game, or the position of GNU Backgammon's `position_id`.
    #[new]
    #[pyo3(signature = (position_id=None))]
    fn new(position_id: Option<&str>) -> PyResult<Self> {
        position_id.map_or(Ok(Position::START), Position::from_id).map(Self).map_err(raise)
    }

    /// GNU Backgammon's id of this position.
    #[getter]
    fn position_id(&self) -> String {
        self.0.id()
    }

    /// Checkers of the player whose turn it is: borne off, on points 1 to 24, on the bar.
    #[getter]
    fn mover(&self) -> Vec<u32> {
        (0..=BAR).map(|place| u32::from(self.0.mover.count(place))).collect()
    }

    /// Checkers of the opponent, as the opponent counts places.
    #[getter]
    fn other(&self) -> Vec<u32> {
        (0..=BAR).map(|place| u32::from(self.0.other.count(place))).collect()
    }

    /// Pips that remain: of the player whose turn it is, and of the opponent.
    #[getter]
    fn pips(&self) -> (u32, u32) {
        (self.0.mover.pips(), self.0.other.pips())
    }

    /// Points of the player whose turn it is if the game is over: -1, -2 or -3, since the opponent has just won. Else None.
    #[getter]
    fn outcome(&self) -> Option<i32> {
        self.0.lost().map(|points| -(points as i32))
    }

    /// Rolls with their probabilities. In the first turn there are no doubles.
    #[staticmethod]
    #[pyo3(signature = (first_turn=false))]
    fn chance_outcomes(first_turn: bool) -> Vec<((u8, u8), f32)> {
        let rolls = ROLLS.into_iter().map(|[a, b]| (a, b)).zip(backgammon::chances(first_turn));
        rolls.filter(|(_, chance)| *chance > 0.0).collect()
    }

    /// Every legal play of a roll as text, such as "8/5 6/5", with the position after it, where it is the opponent's turn.
    fn plays(&self, py: Python<'_>, dice: (u8, u8)) -> PyResult<Vec<(String, Self)>> {
        let plays = found(self.0, dice)?;
        Ok(py.detach(|| plays.iter().map(|play| (play.text(), Self(play.result(self.0)))).collect()))
    }

    /// The position after a play, where it is the opponent's turn.
    fn play(&self, dice: (u8, u8), text: &str) -> PyResult<Self> {
        let plays = found(self.0, dice)?;
        let play = plays.named(self.0, text).map_err(raise)?;
        Ok(Self(play.result(self.0)))
    }

    /// What a network sees: 196 numbers, per side 4 for each point, the bar and those borne off.
    fn observation<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        let mut numbers = [0.0; OBSERVATION];
        backgammon::observe(self.0, &mut numbers);
        numbers.to_pyarray(py)
    }

    fn __repr__(&self) -> String {
        format!("Backgammon(\"{}\")", self.0.id())
    }
}
