//! Solvers of cubes: the 2×2×2 exactly, either by what a run learned.

use crate::error::raise;
use operant::CATALOGUE;
use operant::Error;
use operant::env::cube::{DistanceTable, Metric, Pocket, print_facelets};
use operant::env::puzzle::{PocketPuzzle, View};
use operant::run::cubes::{self, Cube, Search};
use operant::search::AstarSettings;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// Shortest solutions of the 2×2×2 cube, by the distances of all its states.
#[pyclass(frozen, module = "operant.games")]
pub(crate) struct Cube2Solver {
    puzzle: PocketPuzzle,
    table: DistanceTable,
}

/// Actions as the moves that [`Cube::print`] takes.
fn bytes(actions: impl Iterator<Item = usize>) -> Vec<u8> {
    actions.map(|action| action as u8).collect()
}

#[pymethods]
impl Cube2Solver {
    /// Searches all states, or reads their distances from a file of `save`. `metric` says what one move is: "qtm" (quarter turns) or "htm".
    #[new]
    #[pyo3(signature = (metric="qtm", *, table=None))]
    fn new(py: Python<'_>, metric: &str, table: Option<PathBuf>) -> PyResult<Self> {
        let metric = Metric::named(metric).map_err(raise)?;
        let puzzle = PocketPuzzle::new(View::Cubies, false, metric == Metric::Half);
        let made = py.detach(|| match &table {
            Some(path) => DistanceTable::load(path),
            None => Ok(DistanceTable::build(puzzle.pocket(), metric)),
        });
        let table = made.map_err(raise)?;
        if table.metric() != metric {
            let (got, wanted) = (table.metric().name(), metric.name());
            return Err(raise(Error::Invalid(format!("the table is of {got}, wanted {wanted}: name it as metric"))));
        }
        Ok(Self { puzzle, table })
    }

    /// The arguments from which pickle and copy make it again.
    fn __getnewargs__(&self) -> (&'static str,) {
        (self.metric(),)
    }

    /// What counts as one move: "qtm" or "htm".
    #[getter]
    fn metric(&self) -> &'static str {
        self.table.metric().name()
    }

    /// Moves of a shortest solution of a cube, given as moves from the solved one or as 24 facelets.
    fn distance(&self, cube: &str) -> PyResult<usize> {
        Ok(self.table.distance(self.puzzle.scrambled(cube).map_err(raise)?))
    }

    /// A shortest solution: `solution` and its `length`, for the cube held as `facelets` say.
    fn solve<'py>(&self, py: Python<'py>, cube: &str) -> PyResult<Bound<'py, PyDict>> {
        let state = self.puzzle.scrambled(cube).map_err(raise)?;
        let actions = self.table.solve(self.puzzle.pocket(), state);
        let found = PyDict::new(py);
        found.set_item("length", actions.len())?;
        found.set_item("solution", PocketPuzzle::print(&bytes(actions.into_iter())))?;
        found.set_item("facelets", print_facelets(&Pocket::cubies(state), 2))?;
        Ok(found)
    }

    /// Scrambles whose shortest solutions have so many moves, each state with the same chance.
    #[pyo3(signature = (distance, count=1, seed=0))]
    fn scrambles(&self, distance: usize, count: usize, seed: u64) -> PyResult<Vec<String>> {
        let states = self.table.draw(distance, count, seed).map_err(raise)?;
        let back = |&state: &u32| {
            let solution = self.table.solve(self.puzzle.pocket(), state);
            PocketPuzzle::print(&bytes(solution.iter().rev().map(|&action| Pocket::inverse(action))))
        };
        Ok(states.iter().map(back).collect())
    }

    /// Writes the distances to a file.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        self.table.save(&path).map_err(raise)
    }

    fn __repr__(&self) -> String {
        format!("Cube2Solver(\"{}\")", self.metric())
    }
}

/// Solves cubes by search over what a run learned: its values, or its policy.
#[pyclass(frozen, module = "operant.games")]
pub(crate) struct CubeSolver {
    solver: cubes::CubeSolver,
    run: PathBuf,
}

/// What a search was asked for.
fn search(
    name: &str,
    width: usize,
    most_moves: usize,
    weight: f32,
    most_expanded: usize,
    revisits: bool,
) -> PyResult<Search> {
    let least = [("width", width), ("most_moves", most_moves), ("most_expanded", most_expanded)];
    if let Some((name, _)) = least.iter().find(|(_, number)| *number == 0) {
        return Err(PyValueError::new_err(format!("{name} = 0: wanted at least 1")));
    }
    if !(weight.is_finite() && weight >= 0.0) {
        return Err(PyValueError::new_err(format!("weight = {weight}: wanted a number of 0 or more")));
    }
    match name {
        "greedy" => Ok(Search::Greedy { most_moves, revisits }),
        "beam" => Ok(Search::Beam { width, most_moves }),
        "astar" => Ok(Search::Astar(AstarSettings { weight, batch: width, most_expanded })),
        other => Err(raise(Error::unknown("search", other, ["greedy", "beam", "astar"], "greedy, beam, astar"))),
    }
}

#[pymethods]
impl CubeSolver {
    /// By a checkpoint of a run on cube2 or cube3: the one of this name, "best", or the newest.
    #[new]
    #[pyo3(signature = (run, checkpoint=None))]
    fn new(run: PathBuf, checkpoint: Option<&str>) -> PyResult<Self> {
        let solver = cubes::CubeSolver::open(&CATALOGUE, &run, checkpoint).map_err(raise)?;
        // A copy may be made by a process in another folder.
        let run = std::path::absolute(&run)?;
        Ok(Self { solver, run })
    }

    /// The arguments from which pickle and copy make it again.
    fn __getnewargs__(&self) -> (&PathBuf, &str) {
        (&self.run, self.checkpoint())
    }

    /// The env that the run learned: "cube2" or "cube3".
    #[getter]
    fn env(&self) -> &str {
        self.solver.env()
    }

    /// The checkpoint that was taken.
    #[getter]
    fn checkpoint(&self) -> &str {
        self.solver.checkpoint()
    }

    /// Solves scrambles, given as moves from the solved cube or as facelets. Of each: `moves` (None if the search did not come to an end),
    /// their `length`, and how many states were `expanded`.
    #[pyo3(signature = (scrambles, *, search="greedy", width=8, most_moves=50, weight=1.0, most_expanded=100_000, revisits=false))]
    #[allow(clippy::too_many_arguments)]
    fn solve<'py>(
        &self,
        py: Python<'py>,
        scrambles: Vec<String>,
        search: &str,
        width: usize,
        most_moves: usize,
        weight: f32,
        most_expanded: usize,
        revisits: bool,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let search = self::search(search, width, most_moves, weight, most_expanded, revisits)?;
        let solved = py.detach(|| self.solver.solve(&scrambles, &search)).map_err(raise)?;
        let row = |one: cubes::Solved| {
            let row = PyDict::new(py);
            row.set_item("length", one.moves.as_ref().map(|moves| moves.split_whitespace().count()))?;
            row.set_item("moves", one.moves)?;
            row.set_item("expanded", one.expanded)?;
            Ok(row)
        };
        solved.into_iter().map(row).collect()
    }

    fn __repr__(&self) -> String {
        format!("CubeSolver({:?}, {:?})", self.run.display().to_string(), self.checkpoint())
    }
}
