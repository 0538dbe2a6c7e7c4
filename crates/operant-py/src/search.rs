//! Rules of games by name, and tree search over them with an evaluator that is a Python function, or the network of a run.

use crate::error::raise;
use crate::picture::{Picture, array};
use crate::settings::table;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, ToPyArray};
use operant::env::backgammon::Backgammon;
use operant::env::connect4::Connect4;
use operant::env::game::{Game, Turn, sign};
use operant::env::twenty48::Twenty48;
use operant::lanes::rng::HostRng;
use operant::nn::Options;
use operant::search::game_net::{self, GameNet};
use operant::search::mcts::{self, Answer, Evaluator};
use operant::{Error, config};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Does something with the rules of the game of a name.
macro_rules! with_rules {
    ($name:expr, $game:ident => $do:expr) => {
        match $name {
            Connect4::NAME => {
                type $game = Connect4;
                $do
            }
            Twenty48::NAME => {
                type $game = Twenty48;
                $do
            }
            Backgammon::NAME => {
                type $game = Backgammon;
                $do
            }
            other => Err(raise(Error::unknown("game", other, NAMES, "operant.games.Rules"))),
        }
    };
}

const NAMES: [&str; 3] = [Backgammon::NAME, Connect4::NAME, Twenty48::NAME];

fn found<G: Game>(state: &G::State) -> PyResult<Vec<G::Action>> {
    if G::turn(state) != Turn::Decision {
        return Err(PyValueError::new_err(format!("{}: nobody decides here; look at turn(state)", G::text(state))));
    }
    let mut actions = Vec::new();
    G::actions(state, &mut G::Room::default(), &mut actions);
    Ok(actions)
}

/// The rules of a game, over states as text.
#[pyclass(frozen, module = "operant.games")]
pub(crate) struct Rules {
    name: String,
}

#[pymethods]
impl Rules {
    /// Rules of backgammon, connect4 or 2048.
    #[new]
    fn new(name: &str) -> PyResult<Self> {
        with_rules!(name, G => Ok(Self { name: G::NAME.to_owned() }))
    }

    /// The arguments from which pickle and copy make them again.
    fn __getnewargs__(&self) -> (&str,) {
        (&self.name,)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Players: 1 or 2.
    #[getter]
    fn players(&self) -> PyResult<usize> {
        with_rules!(self.name.as_str(), G => Ok(G::PLAYERS))
    }

    /// Numbers of an observation.
    #[getter]
    fn observation_size(&self) -> PyResult<usize> {
        with_rules!(self.name.as_str(), G => Ok(G::OBSERVATION))
    }

    /// Logits that an evaluator gives.
    #[getter]
    fn policy_size(&self) -> PyResult<usize> {
        with_rules!(self.name.as_str(), G => Ok(G::POLICY))
    }

    /// The beginning of a game.
    fn start(&self) -> PyResult<String> {
        with_rules!(self.name.as_str(), G => Ok(G::text(&G::start())))
    }

    /// What happens next: "decision", "chance" or "over".
    fn turn(&self, state: &str) -> PyResult<&'static str> {
        with_rules!(self.name.as_str(), G => {
            let state = G::parse(state).map_err(raise)?;
            Ok(match G::turn(&state) {
                Turn::Decision => "decision",
                Turn::Chance => "chance",
                Turn::Over => "over",
            })
        })
    }

    /// Whose turn it is: 0 or 1.
    fn player(&self, state: &str) -> PyResult<usize> {
        with_rules!(self.name.as_str(), G => Ok(G::player(&G::parse(state).map_err(raise)?)))
    }

    /// A picture of a state, `[height, width, 3]`.
    fn render<'py>(&self, py: Python<'py>, state: &str) -> PyResult<Picture<'py>> {
        with_rules!(self.name.as_str(), G => {
            let canvas = G::draw(&G::parse(state).map_err(raise)?);
            array(py, &canvas.ok_or_else(|| PyValueError::new_err(format!("{} draws no picture", G::NAME)))?)
        })
    }

    /// Points of player 0 that are certain: all of them once the game is over.
    fn points(&self, state: &str) -> PyResult<f32> {
        with_rules!(self.name.as_str(), G => Ok(G::settled(&G::parse(state).map_err(raise)?)))
    }

    /// Legal actions as text, each with its numbers in a policy: one, or two whose logits are added.
    fn actions(&self, state: &str) -> PyResult<Vec<(String, Vec<usize>)>> {
        with_rules!(self.name.as_str(), G => {
            let state = G::parse(state).map_err(raise)?;
            let describe = |action: &<G as Game>::Action| {
                let (one, other) = G::policy_index(&state, action);
                (G::action_text(&state, action), std::iter::once(one).chain(other).collect())
            };
            Ok(found::<G>(&state)?.iter().map(describe).collect())
        })
    }

    /// The state after the action of this number among `actions(state)`.
    fn after(&self, state: &str, action: usize) -> PyResult<String> {
        with_rules!(self.name.as_str(), G => {
            let state = G::parse(state).map_err(raise)?;
            let actions = found::<G>(&state)?;
            let action = actions.get(action).ok_or_else(|| {
                PyValueError::new_err(format!("action {action}: wanted 0..={}", actions.len() - 1))
            })?;
            Ok(G::text(&G::after(&state, action)))
        })
    }

    /// States that chance can lead to, with their probabilities.
    fn outcomes(&self, state: &str) -> PyResult<Vec<(String, f32)>> {
        with_rules!(self.name.as_str(), G => {
            let state = G::parse(state).map_err(raise)?;
            if G::turn(&state) != Turn::Chance {
                return Err(PyValueError::new_err(format!("{}: chance has no say here; look at turn(state)", G::text(&state))));
            }
            let mut chances = vec![0.0; G::OUTCOMES];
            let count = G::chances(&state, &mut chances);
            let outcome = |(i, chance): (usize, &f32)| (G::text(&G::happened(&state, i)), *chance);
            Ok(chances[..count].iter().enumerate().filter(|(_, chance)| **chance > 0.0).map(outcome).collect())
        })
    }

    /// What a network sees of a state.
    fn observation<'py>(&self, py: Python<'py>, state: &str) -> PyResult<Bound<'py, PyArray1<f32>>> {
        with_rules!(self.name.as_str(), G => {
            let mut numbers = vec![0.0; G::OBSERVATION];
            G::observe(&G::parse(state).map_err(raise)?, &mut numbers);
            Ok(numbers.to_pyarray(py))
        })
    }

    fn __repr__(&self) -> String {
        format!("Rules(\"{}\")", self.name)
    }
}

/// An evaluator that is a Python function: observations `[B, O]` to values `[B]` and logits `[B, POLICY]`.
struct Function<'py> {
    call: Bound<'py, PyAny>,
    values: Vec<f32>,
    logits: Vec<f32>,
    failed: Option<PyErr>,
}

impl Function<'_> {
    fn ask<G: Game>(&mut self, states: &[G::State]) -> PyResult<()> {
        let py = self.call.py();
        let rows = states.len();
        let mut obs = vec![0.0; rows * G::OBSERVATION];
        for (state, obs) in states.iter().zip(obs.chunks_exact_mut(G::OBSERVATION)) {
            G::observe(state, obs);
        }
        let obs: Bound<'_, PyArray2<f32>> = PyArray1::from_vec(py, obs).reshape([rows, G::OBSERVATION])?;
        let (values, logits): (Bound<'_, PyAny>, Bound<'_, PyAny>) = self.call.call1((obs,))?.extract()?;
        let numpy = py.import("numpy")?;
        let floats = |array: Bound<'_, PyAny>| {
            let kind = PyDict::new(py);
            kind.set_item("dtype", "float32")?;
            numpy.call_method("ascontiguousarray", (array,), Some(&kind)).map(Bound::unbind)
        };
        let values = floats(values)?.into_bound(py).call_method1("reshape", (-1,))?;
        let values: PyReadonlyArray1<'_, f32> = values.extract()?;
        let logits = floats(logits)?.into_bound(py);
        let logits: PyReadonlyArray2<'_, f32> = logits.extract()?;
        let (values, logits) = (values.as_slice()?, logits.as_slice()?);
        if values.len() != rows || logits.len() != rows * G::POLICY {
            return Err(PyValueError::new_err(format!(
                "the evaluator gave {} values and {} logits for {rows} states: wanted [{rows}] and [{rows}, {}]",
                values.len(),
                logits.len(),
                G::POLICY
            )));
        }
        if values.iter().chain(logits).any(|x| !x.is_finite()) {
            return Err(PyValueError::new_err("the evaluator gave a number that is not finite"));
        }
        self.values.clear();
        self.values.extend_from_slice(values);
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        Ok(())
    }
}

impl<G: Game> Evaluator<G> for Function<'_> {
    fn evaluate(&mut self, states: &[G::State]) -> Answer<'_> {
        let asked = if self.failed.is_none() { self.ask::<G>(states) } else { Ok(()) };
        if let Err(error) = asked {
            self.failed = Some(error);
        }
        if self.failed.is_some() {
            // The search comes to its end with zeros, and then the error is raised.
            self.values.clear();
            self.values.resize(states.len(), 0.0);
            self.logits.clear();
        }
        match self.logits[..] {
            [] => Answer::values(&self.values),
            _ => Answer::outputs(&self.values, &self.logits),
        }
    }
}

/// Tree search over a game.
#[pyclass(frozen, module = "operant._operant")]
pub(crate) struct Search {
    game: String,
    evaluator: Option<Py<PyAny>>,
    network: Option<Vec<u8>>,
    settings: mcts::Settings,
}

#[pymethods]
impl Search {
    /// A search in a game, with settings of `[alphazero.search]`: with a Python function, with the network of a run, or with neither.
    #[new]
    fn new(
        game: &str,
        evaluator: Option<Py<PyAny>>,
        network: Option<Vec<u8>>,
        settings: Vec<(String, Bound<'_, PyAny>)>,
    ) -> PyResult<Self> {
        let settings: mcts::Settings = config::read(&table(&settings)?, "search").map_err(raise)?;
        settings.check("search").map_err(raise)?;
        with_rules!(game, G => {
            if let Some(network) = &network {
                game_net::from_bytes::<G>(network).map_err(raise)?;
            }
            Ok(Self { game: G::NAME.to_owned(), evaluator, network, settings })
        })
    }

    /// Searches from a state; gives what was found.
    fn search<'py>(&self, py: Python<'py>, state: &str, seed: u64) -> PyResult<Bound<'py, PyDict>> {
        with_rules!(self.game.as_str(), G => self.look::<G>(py, state, seed))
    }
}

impl Search {
    fn look<'py, G: Game>(&self, py: Python<'py>, text: &str, seed: u64) -> PyResult<Bound<'py, PyDict>> {
        let state = G::parse(text).map_err(raise)?;
        found::<G>(&state)?;
        let mut tree = mcts::Mcts::<G>::new(&self.settings).map_err(raise)?;
        tree.begin(state, HostRng::new(seed, 0, 0, 0));
        let mut states = Vec::new();
        match (&self.evaluator, &self.network) {
            (Some(call), _) => {
                let call = call.bind(py).clone();
                let mut function = Function { call, values: Vec::new(), logits: Vec::new(), failed: None };
                tree.search(&mut function, &mut states);
                if let Some(error) = function.failed {
                    return Err(error);
                }
            }
            (None, Some(network)) => {
                let (architecture, params) = game_net::from_bytes::<G>(network).map_err(raise)?;
                let rows = self.settings.leaves * G::OUTCOMES.max(1);
                let mut net = GameNet::<G>::new(&architecture, params, rows, &Options::default()).map_err(raise)?;
                py.detach(|| tree.search(&mut net, &mut states));
            }
            (None, None) => py.detach(|| tree.search(&mut mcts::Null::default(), &mut states)),
        }
        let mut policy = Vec::new();
        tree.policy(&mut policy);
        let best = tree.choose(0.0);
        let counters = tree.take_counters();
        let actions: Vec<String> = tree.actions().iter().map(|action| G::action_text(&state, action)).collect();
        let values: Vec<f32> = (0..actions.len()).map(|action| tree.action_value(action)).collect();
        let result = PyDict::new(py);
        result.set_item("best", best)?;
        result.set_item("actions", actions)?;
        result.set_item("visits", tree.visits().to_pyarray(py))?;
        result.set_item("policy", policy.to_pyarray(py))?;
        result.set_item("values", values.to_pyarray(py))?;
        result.set_item("value", tree.value() * sign::<G>(&state))?;
        result.set_item("simulations", counters.simulations)?;
        result.set_item("evaluations", counters.evaluations)?;
        result.set_item("hits", counters.hits)?;
        result.set_item("deepest", counters.deepest)?;
        Ok(result)
    }
}
