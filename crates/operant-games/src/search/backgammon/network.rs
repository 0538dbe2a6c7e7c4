//! The value networks of backgammon: one for positions with contact and one for races, each with one hidden layer and five cumulative outcomes.

use crate::backgammon::{
    Backgammon, Bearoff, CONTACT_INPUTS, OUTCOMES, Outcome, Position, RACE_INPUTS, State, contact_inputs, race_inputs,
};
use crate::game::Game;
use crate::search::game_net;
use operant_base::{Error, Result};
use operant_lanes::{Backend, Kernel, Maths, Simd};
use operant_nn::{Act, Feed, Graph, Metadata, Node, Options, ParamSpec, Params, Plan, SharedWeights};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Which network values a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Checkers can still be hit.
    Contact,
    /// The sides have passed each other.
    Race,
}

impl Kind {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Contact, Self::Race];

    /// Of a position.
    #[inline]
    pub fn of(position: Position) -> Self {
        if position.contact() { Self::Contact } else { Self::Race }
    }

    /// As part of a file's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Contact => "contact",
            Self::Race => "race",
        }
    }

    /// Numbers that its network sees.
    pub const fn inputs(self) -> usize {
        match self {
            Self::Contact => CONTACT_INPUTS,
            Self::Race => RACE_INPUTS,
        }
    }

    /// Writes those numbers of some positions, one row each. Panics if there are fewer rows than positions.
    pub fn write_inputs(self, backend: Backend, positions: &[Position], out: &mut [f32]) {
        backend.run(WriteInputs { kind: self, positions, out: &mut out[..positions.len() * self.inputs()] });
    }
}

/// Compiled for the widest registers: most of the work is on short arrays.
struct WriteInputs<'a> {
    kind: Kind,
    positions: &'a [Position],
    out: &'a mut [f32],
}

impl Kernel for WriteInputs<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::Strict;

    #[inline(always)]
    fn run<L: Simd>(self) {
        match self.kind {
            Kind::Contact => {
                for (&position, out) in self.positions.iter().zip(self.out.chunks_exact_mut(CONTACT_INPUTS)) {
                    contact_inputs(position, out);
                }
            }
            Kind::Race => {
                for (&position, out) in self.positions.iter().zip(self.out.chunks_exact_mut(RACE_INPUTS)) {
                    race_inputs(position, out);
                }
            }
        }
    }
}

/// The shape of both networks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgammonNet {
    /// Units of the hidden layer.
    pub hidden: usize,
    /// After the hidden layer.
    pub activation: Act,
}

impl BackgammonNet {
    /// The graph of a network, fed inputs `[B, inputs]`, and its logits `[B, 5]`.
    pub fn build(&self, kind: Kind) -> Result<(Graph, Node)> {
        let mut g = Graph::new();
        let x = g.input("inputs", [kind.inputs()]);
        let h = g.linear(&format!("{}.hidden", kind.name()), x, self.hidden)?;
        let h = g.activation(h, self.activation)?;
        let logits = g.linear(&format!("{}.outcome", kind.name()), h, OUTCOMES)?;
        Ok((g, logits))
    }

    /// First weights of both networks.
    pub fn params(&self, seed: u64) -> Result<Weights> {
        let mut weights =
            [self.build(Kind::Contact)?.0.params(seed)?, self.build(Kind::Race)?.0.params(seed.wrapping_add(1))?];
        for (params, kind) in weights.iter_mut().zip(Kind::ALL) {
            params.set(&format!("{}.outcome.bias", kind.name()), &FIRST_GUESS)?;
        }
        Ok(weights)
    }

    /// Weights of a narrower network in this one: its units come first, and new ones, whose inputs are drawn, weigh nothing yet, so that values stay
    /// what they were.
    pub fn widened(&self, narrow: &Self, weights: &Weights, seed: u64) -> Result<Weights> {
        if narrow.activation != self.activation || narrow.hidden > self.hidden {
            return Err(Error::Invalid(format!(
                "a network {narrow:?} can't be widened to {self:?}; wanted its activation (network.activation) and at least its units (network.hidden)"
            )));
        }
        let mut wide = self.params(seed)?;
        for ((wide, narrow_params), kind) in wide.iter_mut().zip(weights).zip(Kind::ALL) {
            for part in ["hidden.weight", "hidden.bias"] {
                let name = format!("{}.{part}", kind.name());
                let first = narrow_params.get(&name)?;
                wide.get_mut(&name)?[..first.len()].copy_from_slice(first);
            }
            let name = format!("{}.outcome.weight", kind.name());
            let rows = wide.get_mut(&name)?.chunks_exact_mut(self.hidden);
            for (row, first) in rows.zip(narrow_params.get(&name)?.chunks_exact(narrow.hidden)) {
                row.fill(0.0);
                row[..narrow.hidden].copy_from_slice(first);
            }
            let name = format!("{}.outcome.bias", kind.name());
            wide.set(&name, narrow_params.get(&name)?)?;
        }
        Ok(wide)
    }
}

/// One network of several, whose logits are the mean of theirs: their hidden units side by side. What each got wrong by the games that it happened
/// to learn from differs, and the mean has less of it.
pub fn stacked(networks: &[(BackgammonNet, Weights)]) -> Result<(BackgammonNet, Weights)> {
    let Some((first, _)) = networks.first() else {
        return Err(Error::Invalid("no networks to stack: wanted one or more".into()));
    };
    if let Some((other, _)) = networks.iter().find(|(net, _)| net.activation != first.activation) {
        return Err(Error::Invalid(format!(
            "networks of {:?} and of {:?} can't be stacked; wanted one network.activation",
            first.activation, other.activation
        )));
    }
    let hidden = networks.iter().map(|(net, _)| net.hidden).sum();
    let whole = BackgammonNet { hidden, ..first.clone() };
    let mut weights = whole.params(0)?;
    let share = 1.0 / networks.len() as f32;
    for (params, kind) in weights.iter_mut().zip(Kind::ALL) {
        let name = |part: &str| format!("{}.{part}", kind.name());
        let mut bias = [0.0; OUTCOMES];
        let mut unit = 0;
        for (net, from) in networks {
            let from = &from[kind as usize];
            for (part, len) in [("hidden.weight", kind.inputs()), ("hidden.bias", 1)] {
                params.get_mut(&name(part))?[unit * len..][..net.hidden * len].copy_from_slice(from.get(&name(part))?);
            }
            let rows = params.get_mut(&name("outcome.weight"))?.chunks_exact_mut(hidden);
            for (row, from) in rows.zip(from.get(&name("outcome.weight"))?.chunks_exact(net.hidden)) {
                row[unit..][..net.hidden].iter_mut().zip(from).for_each(|(to, from)| *to = from * share);
            }
            bias.iter_mut().zip(from.get(&name("outcome.bias"))?).for_each(|(sum, from)| *sum += from * share);
            unit += net.hidden;
        }
        params.set(&name("outcome.bias"), &bias)?;
    }
    Ok((whole, weights))
}

/// Logits of how games between good players end: half are won, a quarter of those with a gammon, one in a hundred games with a backgammon. Values
/// spread backwards from the ends of games; what begins near the truth has not so far to go.
const FIRST_GUESS: [f32; OUTCOMES] = [0.0, -1.95, -4.6, -1.95, -4.6];

/// Weights of both networks, by [`Kind`].
pub type Weights = [Params; 2];

/// Key of the description in a file.
const KEY: &str = "operant.backgammon_net";

/// Both networks as a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgammonFile {
    /// The networks.
    pub net: BackgammonNet,
    /// Version of the inputs; weights of another mean nothing.
    pub inputs: u32,
}

/// Version of the inputs in [`contact_inputs`] and [`race_inputs`].
const INPUTS_VERSION: u32 = 1;

/// Room for the weights of both networks, whose names differ.
fn joined(weights: &Weights) -> Result<Params> {
    let specs = weights.iter().flat_map(|params| params.specs());
    Params::new(specs.map(|spec| ParamSpec::new(spec.name.clone(), &spec.shape, spec.init)).collect())
}

impl BackgammonFile {
    /// Both networks as the bytes of a safetensors file.
    pub fn to_bytes(net: &BackgammonNet, weights: &Weights) -> Result<Vec<u8>> {
        let mut both = joined(weights)?;
        for params in weights {
            for spec in params.specs() {
                both.set(&spec.name, params.get(&spec.name)?)?;
            }
        }
        let file = Self { net: net.clone(), inputs: INPUTS_VERSION };
        let text = serde_json::to_string(&file).expect("numbers and names are JSON");
        Ok(both.to_bytes(&Metadata::from([(KEY.to_owned(), text)])))
    }

    /// Reads such bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<(BackgammonNet, Weights)> {
        let wrong = |what: &str| Error::Saved(format!("{what}; wanted networks of operant train td backgammon"));
        let metadata = operant_nn::saved_metadata(bytes)?;
        let file: Option<Self> = metadata.get(KEY).and_then(|text| serde_json::from_str(text).ok());
        let file = file.ok_or_else(|| wrong(&format!("no backgammon networks (no valid \"{KEY}\")")))?;
        if file.inputs != INPUTS_VERSION {
            return Err(wrong(&format!("inputs of version {}, this program has {INPUTS_VERSION}", file.inputs)));
        }
        let mut weights = file.net.params(0)?;
        let mut both = joined(&weights)?;
        both.from_bytes(bytes)?;
        for params in &mut weights {
            let names: Vec<String> = params.specs().iter().map(|spec| spec.name.clone()).collect();
            names.iter().try_for_each(|name| params.set(name, both.get(name)?))?;
        }
        Ok((file.net, weights))
    }
}

/// Rows that a network sees at once: their inputs stay in the second-level cache.
const ROWS: usize = 768;

/// What a network sees.
#[derive(Clone, Copy, Debug)]
enum Sees {
    /// What an expert counts.
    Counts(Kind),
    /// The board, as networks of tree search do.
    Board,
}

impl Sees {
    fn numbers(self) -> usize {
        match self {
            Self::Counts(kind) => kind.inputs(),
            Self::Board => Backgammon::OBSERVATION,
        }
    }

    fn write(self, positions: &[Position], out: &mut [f32]) {
        match self {
            Self::Counts(kind) => kind.write_inputs(Backend::fast(), positions, out),
            Self::Board => {
                for (&position, out) in positions.iter().zip(out.chunks_exact_mut(Backgammon::OBSERVATION)) {
                    Backgammon::observe(&State { position, dice: [0; 2], player: 0, first: false }, out);
                }
            }
        }
    }
}

/// One network with room for a batch.
#[derive(Debug)]
struct Part {
    sees: Sees,
    plan: Plan,
    outcome: Node,
    /// `[ROWS, inputs]`
    inputs: Vec<f32>,
    /// Positions that wait, and where in the caller's list each belongs.
    waiting: Vec<Position>,
    rows: Vec<u32>,
}

/// Values of positions by both networks. Allocates nothing once it is made; forks share its weights.
#[derive(Debug)]
pub struct Evaluator {
    parts: [Part; 2],
    shared: [SharedWeights; 2],
    table: Option<Arc<Bearoff>>,
}

impl Evaluator {
    /// Plans both networks; each fork runs on the thread that calls it.
    pub fn new(net: &BackgammonNet, weights: &Weights, options: &Options) -> Result<Self> {
        let make = |kind: Kind| {
            let (graph, logits) = net.build(kind)?;
            Part::new(Sees::Counts(kind), graph, logits, &weights[kind as usize], options)
        };
        Ok(Self::of([make(Kind::Contact)?, make(Kind::Race)?]))
    }

    /// The value heads of a network of tree search (a file of `operant train alphazero backgammon`).
    pub fn of_search(bytes: &[u8], options: &Options) -> Result<Self> {
        let (architecture, params) = game_net::from_bytes::<Backgammon>(bytes)?;
        let make = || {
            let net = architecture.build()?;
            let value = net.outputs.iter().find(|(name, _)| *name == "value").expect("networks of games have values").1;
            Part::new(Sees::Board, net.graph, value, &params, options)
        };
        Ok(Self::of([make()?, make()?]))
    }

    fn of([(contact, contact_weights), (race, race_weights)]: [(Part, SharedWeights); 2]) -> Self {
        Self { parts: [contact, race], shared: [contact_weights, race_weights], table: None }
    }

    /// The same with memory of its own, for another thread.
    pub fn fork(&self) -> Self {
        let fork = |kind: Kind| {
            let part = &self.parts[kind as usize];
            Part::with(part.sees, part.plan.fork(&self.shared[kind as usize]), part.outcome)
        };
        let parts = Kind::ALL.map(fork);
        Self { parts, shared: self.shared.clone(), table: self.table.clone() }
    }

    /// The same, with exact values where a table has them.
    pub fn with_table(self, table: Arc<Bearoff>) -> Self {
        Self { table: Some(table), ..self }
    }

    /// Makes these the weights of one network, here and in all forks.
    pub fn publish(&self, kind: Kind, params: &Params) {
        self.shared[kind as usize].publish(params);
    }

    /// Values each position for its mover, before the roll; a game that is over is valued by its result. Panics if the lengths differ.
    pub fn evaluate(&mut self, positions: &[Position], out: &mut [Outcome]) {
        assert_eq!(positions.len(), out.len(), "one outcome per position");
        for (i, &position) in positions.iter().enumerate() {
            if let Some(points) = position.lost() {
                out[i] = Outcome::lost(points);
                continue;
            }
            if let Some(outcome) = self.table.as_ref().and_then(|table| table.outcome(position)) {
                out[i] = outcome;
                continue;
            }
            let part = &mut self.parts[Kind::of(position) as usize];
            part.waiting.push(position);
            part.rows.push(i as u32);
            if part.rows.len() == ROWS {
                part.run(out);
            }
        }
        self.parts.iter_mut().for_each(|part| part.run(out));
    }

    /// The value of one position.
    pub fn value(&mut self, position: Position) -> Outcome {
        let mut out = [Outcome::default()];
        self.evaluate(&[position], &mut out);
        out[0]
    }
}

impl Part {
    /// Plans a network with these logits, and shares its weights.
    fn new(
        sees: Sees,
        mut graph: Graph,
        logits: Node,
        params: &Params,
        options: &Options,
    ) -> Result<(Self, SharedWeights)> {
        let outcome = graph.activation(logits, Act::Sigmoid)?;
        let plan = Plan::inference(&graph, &[outcome], ROWS, options)?;
        let shared = plan.share(params);
        Ok((Self::with(sees, plan.fork(&shared), outcome), shared))
    }

    fn with(sees: Sees, plan: Plan, outcome: Node) -> Self {
        let inputs = vec![0.0; ROWS * sees.numbers()];
        Self { sees, plan, outcome, inputs, waiting: Vec::with_capacity(ROWS), rows: Vec::with_capacity(ROWS) }
    }

    /// Values the rows that wait.
    fn run(&mut self, out: &mut [Outcome]) {
        let rows = self.rows.len();
        if rows == 0 {
            return;
        }
        self.sees.write(&self.waiting, &mut self.inputs);
        self.plan.forward_shared(rows, &[Feed::Real(&self.inputs[..rows * self.sees.numbers()])]);
        let outcomes = self.plan.output(self.outcome).as_chunks::<OUTCOMES>().0;
        for ((&row, &position), &outcome) in self.rows.iter().zip(&self.waiting).zip(outcomes) {
            out[row as usize] = Outcome::from_array(outcome).within_rules(position);
        }
        self.rows.clear();
        self.waiting.clear();
    }
}
