//! A network that values states of a game and proposes actions: what a search asks. Weights are its own, or those that a learner shares.

use super::mcts::{Answer, Evaluator};
use crate::game::{Game, Heads, Turn};
use operant_base::{Error, Result};
use operant_nn::nets::Architecture;
use operant_nn::{Feed, Graph, Metadata, Node, Options, Params, Plan, SharedWeights};
use std::marker::PhantomData;

/// Keys of the descriptions in a file.
const GAME: &str = "operant.game";
const NETWORK: &str = "operant.architecture";
/// Size of the hidden layer before the value heads.
const VALUE_HIDDEN: usize = 64;

/// A residual network for a game: `hidden` has a block per entry, all of one width.
pub fn architecture<G: Game>(hidden: &[usize]) -> Result<Architecture> {
    let width = hidden.first().copied().unwrap_or(0);
    if !(1..=8192).contains(&width) || hidden.iter().any(|size| *size != width) {
        return Err(Error::Invalid(format!(
            "network.hidden = {hidden:?}: wanted one width of 1..=8192, once per residual block, as in [128, 128, 128]"
        )));
    }
    Ok(Architecture::Residual {
        inputs: G::OBSERVATION,
        width,
        blocks: hidden.len(),
        policy: G::POLICY,
        value_hidden: VALUE_HIDDEN,
        value: G::HEADS,
    })
}

/// The file of a network.
pub fn to_bytes<G: Game>(architecture: &Architecture, params: &Params) -> Vec<u8> {
    let text = |key: &str, value: String| (key.to_owned(), value);
    params.to_bytes(&Metadata::from([text(NETWORK, architecture.to_json()), text(GAME, G::NAME.to_owned())]))
}

/// Name of the game that a file's network is for.
pub fn game_of(bytes: &[u8]) -> Result<String> {
    operant_nn::saved_metadata(bytes)?
        .remove(GAME)
        .ok_or_else(|| Error::Saved(format!("no network for a game (no \"{GAME}\"); wanted a checkpoint of alphazero")))
}

/// Reads the file of a network for this game.
pub fn from_bytes<G: Game>(bytes: &[u8]) -> Result<(Architecture, Params)> {
    let name = game_of(bytes)?;
    if name != G::NAME {
        return Err(Error::Saved(format!("a network for {name}; wanted one for {}", G::NAME)));
    }
    let (architecture, _, params, _) = Architecture::from_bytes(bytes)?;
    let fits = matches!(&architecture, Architecture::Residual { inputs, policy, value, .. }
        if (*inputs, *policy, *value) == (G::OBSERVATION, G::POLICY, G::HEADS));
    if fits {
        Ok((architecture, params))
    } else {
        Err(Error::Saved("a network of another shape than its game's".into()))
    }
}

/// Whose weights.
#[derive(Debug)]
enum Weights {
    Own(Params),
    Shared,
}

/// Weights that evaluators on other threads read.
#[derive(Clone, Debug)]
pub struct Shared {
    full: SharedWeights,
    value_only: Option<SharedWeights>,
}

impl Shared {
    /// Makes these the weights of evaluations begun from now on.
    pub fn publish(&self, params: &Params) {
        self.full.publish(params);
        if let Some(weights) = &self.value_only {
            weights.publish(params);
        }
    }
}

/// Values and priors by a network.
#[derive(Debug)]
pub struct GameNet<G: Game> {
    weights: Weights,
    /// Values and logits, for decisions.
    full: Plan,
    /// Values alone, for states before chance; absent in games without.
    value_only: Option<Plan>,
    logits: Node,
    value: Node,
    /// `[rows, O]`
    obs: Vec<f32>,
    /// Numbers of the states that a run is for.
    rows: Vec<u32>,
    /// `[states]`
    values: Vec<f32>,
    /// `[states, POLICY]`
    answers: Vec<f32>,
    game: PhantomData<G>,
}

impl<G: Game> GameNet<G> {
    /// With weights of its own, for batches of up to `rows` at once; larger ones are cut.
    pub fn new(architecture: &Architecture, params: Params, rows: usize, options: &Options) -> Result<Self> {
        let net = architecture.build()?;
        let node = |name: &str| net.outputs.iter().find(|(other, _)| *other == name).map(|(_, node)| *node);
        let (Some(logits), Some(value)) = (node("logits"), node("value")) else {
            return Err(Error::Invalid("a network without logits and value: wanted a residual one".into()));
        };
        let graph: &Graph = &net.graph;
        let value_only = (G::OUTCOMES > 0).then(|| Plan::inference(graph, &[value], rows, options)).transpose()?;
        let full = Plan::inference(graph, &[logits, value], rows, options)?;
        Ok(Self::with(Weights::Own(params), full, value_only, (logits, value), rows))
    }

    fn with(
        weights: Weights,
        full: Plan,
        value_only: Option<Plan>,
        (logits, value): (Node, Node),
        rows: usize,
    ) -> Self {
        Self {
            obs: vec![0.0; rows * G::OBSERVATION],
            rows: Vec::with_capacity(rows),
            values: Vec::with_capacity(rows),
            answers: Vec::with_capacity(rows * G::POLICY),
            weights,
            full,
            value_only,
            logits,
            value,
            game: PhantomData,
        }
    }

    /// Weights for evaluators of other threads.
    pub fn share(&self, params: &Params) -> Shared {
        Shared { full: self.full.share(params), value_only: self.value_only.as_ref().map(|plan| plan.share(params)) }
    }

    /// An evaluator for another thread: shared weights, memory of its own.
    pub fn fork(&self, shared: &Shared) -> Self {
        let value_only = self.value_only.as_ref().zip(shared.value_only.as_ref());
        let value_only = value_only.map(|(plan, weights)| plan.fork(weights));
        Self::with(
            Weights::Shared,
            self.full.fork(&shared.full),
            value_only,
            (self.logits, self.value),
            self.full.max_rows(),
        )
    }

    /// The plan that values decisions.
    pub fn plan(&mut self) -> &mut Plan {
        &mut self.full
    }

    /// Writes what the value heads say of one state, chances as probabilities.
    pub fn heads(&mut self, state: &G::State, out: &mut [f32]) {
        let plan = self.value_only.as_mut().unwrap_or(&mut self.full);
        let obs = &mut self.obs[..G::OBSERVATION];
        G::observe(state, obs);
        match &self.weights {
            Weights::Own(params) => plan.forward(params, 1, &[Feed::Real(obs)]),
            Weights::Shared => {
                plan.forward_shared(1, &[Feed::Real(obs)]);
            }
        }
        heads_of::<G>(&plan.output(self.value)[..G::HEADS], out);
    }

    /// Values the states whose numbers are in `rows`.
    fn run(&mut self, states: &[G::State], decisions: bool) {
        let plan = match (&mut self.value_only, decisions) {
            (Some(plan), false) => plan,
            _ => &mut self.full,
        };
        for rows in self.rows.chunks(plan.max_rows()) {
            for (&row, obs) in rows.iter().zip(self.obs.chunks_exact_mut(G::OBSERVATION)) {
                G::observe(&states[row as usize], obs);
            }
            let feeds = [Feed::Real(&self.obs[..rows.len() * G::OBSERVATION])];
            match &self.weights {
                Weights::Own(params) => plan.forward(params, rows.len(), &feeds),
                Weights::Shared => {
                    plan.forward_shared(rows.len(), &feeds);
                }
            }
            let heads = plan.output(self.value).chunks_exact(G::HEADS);
            for (&row, heads) in rows.iter().zip(heads) {
                self.values[row as usize] = points::<G>(heads);
            }
            if decisions {
                let logits = plan.output(self.logits).chunks_exact(G::POLICY);
                for (&row, logits) in rows.iter().zip(logits) {
                    self.answers[row as usize * G::POLICY..][..G::POLICY].copy_from_slice(logits);
                }
            }
        }
    }
}

/// Points that the outputs of value heads mean.
pub(crate) fn points<G: Game>(outputs: &[f32]) -> f32 {
    let mut heads = [0.0; 8];
    heads_of::<G>(outputs, &mut heads[..G::HEADS]);
    G::value_of(&heads[..G::HEADS])
}

/// What the outputs of value heads mean: probabilities where they are logits of some.
fn heads_of<G: Game>(outputs: &[f32], out: &mut [f32]) {
    match G::HEADS_ARE {
        Heads::Points => out.copy_from_slice(outputs),
        Heads::Chances => out.iter_mut().zip(outputs).for_each(|(chance, x)| *chance = 1.0 / (1.0 + (-x).exp())),
    }
}

impl<G: Game> Evaluator<G> for GameNet<G> {
    fn evaluate(&mut self, states: &[G::State]) -> Answer<'_> {
        self.values.resize(states.len(), 0.0);
        self.answers.resize(states.len() * G::POLICY, 0.0);
        for decisions in [true, false] {
            self.rows.clear();
            let fits = |state: &G::State| (G::turn(state) == Turn::Decision) == decisions;
            self.rows.extend((0..states.len() as u32).filter(|&row| fits(&states[row as usize])));
            if !self.rows.is_empty() {
                self.run(states, decisions);
            }
        }
        Answer::outputs(&self.values, &self.answers)
    }

    fn exact(&self, state: &G::State) -> Option<f32> {
        G::exact(state)
    }
}
