//! A network that estimates how far a puzzle's states are from solved, and the file that holds it.

use super::{HeldOut, Values};
use crate::puzzle::{CubePuzzle, Features, PocketPuzzle, Puzzle, View};
use operant_base::{Error, Result};
use operant_nn::{Act, Feed, Graph, Init, Metadata, Node, Options, Params, Plan};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A network: the sum of a learned vector per entry that a state shows, then layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueNet {
    /// Entries that a state may show.
    pub entries: usize,
    /// How many it shows.
    pub shown: usize,
    /// Sizes of hidden layers, that of the vectors first.
    pub hidden: Vec<usize>,
    /// After every hidden layer.
    pub activation: Act,
}

/// Which puzzle, and what of it a network sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PuzzleName {
    /// The env's name: cube2 or cube3.
    pub env: String,
    /// What the network sees.
    pub view: View,
    /// Whether states are mapped to representatives first.
    pub symmetry: bool,
    /// Whether half turns are moves.
    pub half_turns: bool,
}

/// Key of the description in a file.
const KEY: &str = "operant.value_net";

/// What a file describes beside weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueFile {
    /// Which puzzle it values.
    pub puzzle: PuzzleName,
    /// The network.
    pub net: ValueNet,
    /// Share of orbits that training never saw, in millionths.
    pub held_out: u32,
    /// It saw all within so many moves of solved.
    #[serde(default)]
    pub held_out_beyond: u32,
}

impl ValueNet {
    /// For a puzzle.
    pub fn new(features: Features, hidden: &[usize], activation: Act) -> Result<Self> {
        if hidden.is_empty() || hidden.iter().any(|size| !(1..=65_536).contains(size)) {
            return Err(Error::Invalid(format!(
                "network.hidden = {hidden:?}: wanted one or more sizes of 1..=65536, as in [256, 512, 256]"
            )));
        }
        Ok(Self { entries: features.entries, shown: features.shown, hidden: hidden.to_vec(), activation })
    }

    /// The graph, fed integers `[B, shown]`, and its output `[B, 1]`.
    pub fn build(&self) -> Result<(Graph, Node)> {
        let mut g = Graph::new();
        let x = g.input_ints("entries", [self.shown]);
        let mut h = g.embedding_sum("input", x, self.entries, self.hidden[0])?;
        h = g.activation(h, self.activation)?;
        for (i, &size) in self.hidden[1..].iter().enumerate() {
            let init = Init::Orthogonal { gain: std::f32::consts::SQRT_2 };
            h = g.linear_with(&format!("hidden.{i}"), h, size, init, Some(Init::Zeros))?;
            h = g.activation(h, self.activation)?;
        }
        let value = g.linear_with("value", h, 1, Init::Orthogonal { gain: 1.0 }, Some(Init::Zeros))?;
        Ok((g, value))
    }
}

impl ValueFile {
    /// As the bytes of a safetensors file.
    pub fn to_bytes(&self, params: &Params) -> Vec<u8> {
        let text = serde_json::to_string(self).expect("numbers and names are JSON");
        params.to_bytes(&Metadata::from([(KEY.to_owned(), text)]))
    }

    /// Tells states that training never saw.
    pub fn held_out<P: Puzzle>(&self, puzzle: &P) -> HeldOut<P::State> {
        HeldOut::new(puzzle, f64::from(self.held_out) / 1e6, self.held_out_beyond)
    }

    /// Reads such bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, Params)> {
        let damaged = || Error::Saved(format!("no value network (no valid \"{KEY}\"); wanted a checkpoint of davi"));
        let metadata = operant_nn::saved_metadata(bytes)?;
        let file: Self = metadata.get(KEY).and_then(|text| serde_json::from_str(text).ok()).ok_or_else(damaged)?;
        let mut params = file.net.build()?.0.params(0)?;
        params.from_bytes(bytes)?;
        Ok((file, params))
    }
}

impl PuzzleName {
    /// The puzzle that an env with these parameters is, if it is one, by its pieces.
    pub fn of_env(env: &str, parameter: impl Fn(&str) -> f64) -> Self {
        let (symmetry, half_turns) = (parameter("symmetry") != 0.0, parameter("half_turns") != 0.0);
        Self { env: env.to_owned(), view: View::Cubies, symmetry, half_turns }
    }

    /// The 2×2×2 cube, if it is that.
    pub fn pocket(&self) -> Option<PocketPuzzle> {
        (self.env == "cube2").then(|| PocketPuzzle::new(self.view, self.symmetry, self.half_turns))
    }

    /// The 3×3×3 cube, if it is that.
    pub fn cube(&self) -> Option<Result<CubePuzzle>> {
        (self.env == "cube3").then(|| CubePuzzle::new(self.view, self.half_turns))
    }
}

/// Values by a network.
#[derive(Debug)]
pub struct Evaluator<P: Puzzle> {
    puzzle: Arc<P>,
    params: Params,
    plan: Plan,
    value: Node,
    shown: usize,
    /// `[rows, shown]`
    entries: Vec<i32>,
}

/// States that a network sees at once.
const ROWS: usize = 4096;

impl<P: Puzzle> Evaluator<P> {
    /// Plans the network.
    pub fn new(puzzle: Arc<P>, net: &ValueNet, params: Params, options: &Options) -> Result<Self> {
        let (graph, value) = net.build()?;
        let plan = Plan::inference(&graph, &[value], ROWS, options)?;
        Ok(Self { puzzle, params, plan, value, shown: net.shown, entries: vec![0; ROWS * net.shown] })
    }
}

impl<P: Puzzle> Values<P::State> for Evaluator<P> {
    fn values(&mut self, states: &[P::State], out: &mut Vec<f32>) {
        out.clear();
        for states in states.chunks(ROWS) {
            for (&state, entries) in states.iter().zip(self.entries.chunks_exact_mut(self.shown)) {
                self.puzzle.encode(self.puzzle.representative(state), entries);
            }
            self.plan.forward(&self.params, states.len(), &[Feed::Ints(&self.entries[..states.len() * self.shown])]);
            let solved = self.puzzle.solved();
            let values = self.plan.output(self.value).iter().zip(states);
            out.extend(values.map(|(&value, &state)| if state == solved { 0.0 } else { value }));
        }
    }
}
