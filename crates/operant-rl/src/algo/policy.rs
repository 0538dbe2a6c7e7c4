//! A network that acts: logits, means or values of actions to actions, with the normaliser that its observations went
//! through.

use crate::data::{ActionColumn, Running};
use operant_base::{Error, Result};
use operant_env::{ActionSpace, Channel, Spec};
use operant_lanes::Backend;
use operant_nn::dist::{DiagGaussian, Draws, Factored};
use operant_nn::nets::{ActionValue, Architecture, Image, ImageEncoder, MemoryKind, MemoryLayer, Net};
use operant_nn::{Act, Feed, Metadata, Node, Options, Params, Plan};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The `[network]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSettings {
    /// Sizes of hidden layers, in the policy and in the value network.
    pub hidden: Vec<usize>,
    /// After every hidden layer: relu, tanh, sigmoid, gelu or silu.
    pub activation: Act,
    /// A layer with a state before both networks: none, lstm or mingru.
    pub memory: MemoryName,
    /// Numbers of its output.
    pub memory_size: usize,
    /// What sees an observation first: conv (convolutions, for images), entries (a learned vector for each number, which is that of
    /// an entry; dqn), flat (nothing), or auto (conv where both sides of an image have 8 pixels or more).
    pub encoder: EncoderName,
}

/// What sees an observation first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncoderName {
    /// Convolutions for images of 8 × 8 pixels or more, where the network has no memory.
    Auto,
    /// Nothing: an image is numbers side by side.
    Flat,
    /// Convolutions.
    Conv,
    /// The sum of a learned vector for every number, which is that of an entry.
    Entries,
}

/// Pixels of the smallest side for which `auto` takes convolutions.
const LEAST_SIDE: usize = 8;

/// Which layer with a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryName {
    /// None: a policy sees only the present.
    None,
    /// Long short-term memory.
    Lstm,
    /// Minimal gated recurrent unit.
    Mingru,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            hidden: vec![64, 64],
            activation: Act::Tanh,
            memory: MemoryName::None,
            memory_size: 64,
            encoder: EncoderName::Auto,
        }
    }
}

impl NetworkSettings {
    /// The network for an env, whose observations may be images.
    pub fn architecture(&self, spec: &Spec, image: Option<Image>) -> Result<Architecture> {
        self.check_hidden()?;
        let size = self.memory_size;
        if !(1..=65_536).contains(&size) {
            return Err(Error::Invalid(format!("network.memory_size = {size}: wanted 1..=65536")));
        }
        let memory = match self.memory {
            MemoryName::None => None,
            MemoryName::Lstm => Some(MemoryLayer { kind: MemoryKind::Lstm, size }),
            MemoryName::Mingru => Some(MemoryLayer { kind: MemoryKind::Mingru, size }),
        };
        let continuous = matches!(spec.action, ActionSpace::Box(_));
        if spec.observation.iter().any(|channel| channel.entry) {
            return Err(no_amounts(spec, "dqn, whose networks see such, or another view of the env"));
        }
        Ok(Architecture::ActorCritic {
            inputs: spec.observation.len(),
            hidden: self.hidden.clone(),
            actions: if continuous { spec.action.dims() } else { spec.action.choices() },
            activation: self.activation,
            continuous,
            memory,
            image: self.encoder(image)?,
        })
    }

    /// The network that values the choices of an env, without what only some algorithms add.
    pub fn action_value(&self, spec: &Spec, image: Option<Image>) -> Result<ActionValue> {
        self.check_hidden()?;
        let shows_entries = spec.observation.iter().any(|channel| channel.entry);
        let entries = match self.encoder {
            EncoderName::Auto if shows_entries => Some(entries_of(spec)?),
            EncoderName::Entries => Some(entries_of(spec)?),
            EncoderName::Flat if shows_entries => return Err(no_amounts(spec, "entries or auto")),
            _ => None,
        };
        if self.memory != MemoryName::None {
            let text = "network.memory: values of actions are learned from single steps; wanted none";
            return Err(Error::Invalid(text.into()));
        }
        Ok(ActionValue {
            inputs: spec.observation.len(),
            hidden: self.hidden.clone(),
            actions: spec.action.choices(),
            activation: self.activation,
            dueling: false,
            noisy: false,
            quantiles: None,
            image: if entries.is_some() { None } else { self.encoder(image)? },
            entries,
        })
    }

    fn check_hidden(&self) -> Result<()> {
        if self.hidden.is_empty() || self.hidden.iter().any(|size| !(1..=65_536).contains(size)) {
            return Err(Error::Invalid(format!(
                "network.hidden = {:?}: wanted one or more sizes of 1..=65536, as in [64, 64]",
                self.hidden
            )));
        }
        Ok(())
    }

    fn encoder(&self, image: Option<Image>) -> Result<Option<ImageEncoder>> {
        let remembers = self.memory != MemoryName::None;
        match (self.encoder, image) {
            (EncoderName::Flat, _) => Ok(None),
            (EncoderName::Auto, image) => {
                let large = |image: &Image| image.height.min(image.width) >= LEAST_SIDE;
                Ok(image.filter(large).filter(|_| !remembers).map(ImageEncoder::small))
            }
            (EncoderName::Conv, _) if remembers => Err(Error::Invalid(
                "network.encoder = conv beside network.memory: wanted one of them; flat goes with a memory".into(),
            )),
            (EncoderName::Conv, Some(image)) => Ok(Some(ImageEncoder::small(image))),
            (EncoderName::Entries, _) => Err(Error::Invalid(
                "network.encoder = entries: it is for networks that value actions; wanted dqn, or flat".into(),
            )),
            (EncoderName::Conv, None) => {
                Err(Error::Invalid("network.encoder = conv: this env shows no image; wanted flat or auto".into()))
            }
        }
    }
}

/// Numbers of entries would be taken for amounts.
fn no_amounts(spec: &Spec, wanted: &str) -> Error {
    Error::Invalid(format!(
        "network.encoder: observations of {} as it is set are numbers of entries, not amounts; wanted {wanted}",
        spec.name
    ))
}

/// How many entries an env's observation numbers name; an error if they are no such numbers.
fn entries_of(spec: &Spec) -> Result<usize> {
    // Above this not every whole number is an f32.
    let names = |channel: &Channel| channel.low == 0.0 && channel.high.fract() == 0.0 && channel.high < 16_777_216.0;
    let most = spec.observation.iter().map(|channel| channel.high).fold(0.0, f32::max);
    if most < 2.0 || !spec.observation.iter().all(names) {
        return Err(Error::Invalid(format!(
            "network.encoder = entries: observations of {} are no numbers of entries; wanted flat or auto",
            spec.name
        )));
    }
    Ok(most as usize + 1)
}

/// What a policy's first output means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// Logits of one or more choices, or values of the actions of one, side by side.
    Choices(Vec<usize>),
    /// Means of so many real numbers.
    Gaussian(usize),
}

impl Head {
    /// For the actions of an env.
    pub fn new(spec: &Spec) -> Self {
        match &spec.action {
            ActionSpace::Discrete(n) => Self::Choices(vec![*n]),
            ActionSpace::MultiDiscrete(n) => Self::Choices(n.to_vec()),
            ActionSpace::Box(channels) => Self::Gaussian(channels.len()),
        }
    }

    /// Numbers of an action.
    pub fn dims(&self) -> usize {
        match self {
            Self::Choices(heads) => heads.len(),
            Self::Gaussian(dims) => *dims,
        }
    }

    /// Whether actions are real numbers.
    pub fn continuous(&self) -> bool {
        matches!(self, Self::Gaussian(_))
    }
}

/// Where actions go, `[rows, A]`.
#[derive(Debug)]
pub enum ActionsMut<'a> {
    /// Choices.
    Choices(&'a mut [i32]),
    /// Real numbers.
    Numbers(&'a mut [f32]),
}

impl ActionColumn {
    /// Numbers `range` of the column.
    pub fn slice_mut(&mut self, range: std::ops::Range<usize>) -> ActionsMut<'_> {
        match self {
            Self::Choices(actions) => ActionsMut::Choices(&mut actions[range]),
            Self::Numbers(actions) => ActionsMut::Numbers(&mut actions[range]),
        }
    }
}

/// Observations are limited to this many standard deviations once normalised.
pub const OBS_LIMIT: f32 = 10.0;

/// Plans and heads of a network that acts; parameters are the caller's.
#[derive(Debug)]
pub struct Actor {
    plan: Plan,
    logits: Node,
    /// None in a network that values actions, which always takes the best.
    value: Option<Node>,
    head: Head,
    backend: Backend,
    /// H of the layer with a state, or 0.
    memory_size: usize,
    /// The state's nodes after a run, and its values `[rows, H]` each: of every row, and of some side by side.
    after: Vec<Node>,
    state: Vec<Vec<f32>>,
    some: Vec<Vec<f32>>,
}

/// Most parts of a state.
const MAX_STATES: usize = 2;

impl Actor {
    /// For up to `rows` observations at once. What the network gives and what the head takes is compared here, once and for all.
    pub fn new(net: &Net, head: Head, rows: usize, options: &Options) -> Result<Self> {
        let logits = net.outputs[0].1;
        let value = net.outputs.iter().find(|(name, _)| *name == "value").map(|(_, node)| *node);
        let row = vec![0.0; net.graph.shape(logits).iter().product()];
        match (&head, net.log_std) {
            (Head::Choices(heads), _) => Factored::new(&row, heads, None, options.backend).map(drop)?,
            (Head::Gaussian(dims), Some(_)) => DiagGaussian::new(&row, &row, *dims, options.backend).map(drop)?,
            (Head::Gaussian(_), None) => return Err(Error::Invalid("a network without log_std".into())),
        }
        let (after, memory_size) = net.memory.as_ref().map_or((Vec::new(), 0), |m| (m.after.clone(), m.size));
        let outputs: Vec<Node> = [logits].into_iter().chain(value).chain(after.iter().copied()).collect();
        let plan = Plan::inference(&net.graph, &outputs, rows, options)?;
        let state = vec![vec![0.0; rows * memory_size]; after.len()];
        let some = state.clone();
        Ok(Self { plan, logits, value, head, backend: options.backend, memory_size, after, state, some })
    }

    /// Runs the network on dense rows, each with its state, which stays as it is.
    pub fn forward(&mut self, params: &Params, rows: usize, obs: &[f32]) {
        Self::run(&mut self.plan, params, rows, obs, &self.state);
    }

    /// Runs the network on observations of some rows, with the states of those.
    pub fn forward_some(&mut self, params: &Params, which: &[usize], obs: &[f32]) {
        let size = self.memory_size;
        for (some, state) in self.some.iter_mut().zip(&self.state) {
            for (i, &row) in which.iter().enumerate() {
                some[i * size..][..size].copy_from_slice(&state[row * size..][..size]);
            }
        }
        Self::run(&mut self.plan, params, which.len(), obs, &self.some);
    }

    fn run(plan: &mut Plan, params: &Params, rows: usize, obs: &[f32], state: &[Vec<f32>]) {
        let mut feeds = [Feed::Real(obs); 1 + MAX_STATES];
        for (feed, state) in feeds[1..].iter_mut().zip(state) {
            *feed = Feed::Real(state);
        }
        plan.forward(params, rows, &feeds[..1 + state.len()]);
    }

    /// The plan that runs the network.
    pub fn plan_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// Takes over the state that [`Actor::forward`] led to.
    pub fn remember(&mut self) {
        for (state, &node) in self.state.iter_mut().zip(&self.after) {
            let after = self.plan.output(node);
            state[..after.len()].copy_from_slice(after);
        }
    }

    /// Forgets a row's state, because its episode ended.
    pub fn forget(&mut self, row: usize) {
        let size = self.memory_size;
        self.state.iter_mut().for_each(|state| state[row * size..][..size].fill(0.0));
    }

    /// The state, `[rows, H]` each; none for a network without one.
    pub fn state(&self) -> &[Vec<f32>] {
        &self.state
    }

    /// The state, to be replaced.
    pub fn state_mut(&mut self) -> &mut [Vec<f32>] {
        &mut self.state
    }

    /// `[rows]` values of the last run; none of a network that values actions.
    pub fn values(&self) -> &[f32] {
        self.value.map_or(&[], |value| self.plan.output(value))
    }

    /// `[rows, ΣA]` logits, `[rows, A]` means or `[rows, A]` values of actions of the last run.
    pub fn logits(&self) -> &[f32] {
        self.plan.output(self.logits)
    }

    /// Draws actions of the last run's rows, with log-probabilities: of a network that values actions the best ones, with
    /// certainty. The env promises a legal action in every row.
    pub fn sample(
        &self,
        params: &Params,
        legal: Option<&[u8]>,
        draws: Draws,
        actions: ActionsMut<'_>,
        log_prob: &mut [f32],
    ) {
        self.sample_by(self.logits(), params, legal, draws, actions, log_prob);
    }

    /// [`Actor::sample`], of choices with these logits in place of the network's.
    pub fn sample_by(
        &self,
        logits: &[f32],
        params: &Params,
        legal: Option<&[u8]>,
        draws: Draws,
        actions: ActionsMut<'_>,
        log_prob: &mut [f32],
    ) {
        if self.value.is_none() {
            log_prob.fill(0.0);
            return self.mode(params, legal, actions);
        }
        match (&self.head, actions) {
            (Head::Choices(heads), ActionsMut::Choices(actions)) => {
                Factored::checked(logits, heads, legal, self.backend).sample(draws, actions, log_prob);
            }
            (Head::Gaussian(dims), ActionsMut::Numbers(actions)) => {
                self.gaussian(params, *dims).sample(draws, actions, log_prob);
            }
            _ => unreachable!("actions are of the head's kind"),
        }
    }

    /// The most probable, or best, actions of the last run's rows.
    pub fn mode(&self, params: &Params, legal: Option<&[u8]>, actions: ActionsMut<'_>) {
        match (&self.head, actions) {
            (Head::Choices(heads), ActionsMut::Choices(actions)) => {
                Factored::checked(self.logits(), heads, legal, self.backend).mode(actions);
            }
            (Head::Gaussian(dims), ActionsMut::Numbers(actions)) => self.gaussian(params, *dims).mode(actions),
            _ => unreachable!("actions are of the head's kind"),
        }
    }

    fn gaussian<'a>(&'a self, params: &'a Params, dims: usize) -> DiagGaussian<'a> {
        let log_std = params.get("log_std").expect("a network of real-valued actions has it");
        DiagGaussian::new(self.logits(), log_std, dims, self.backend).expect("the plan's own sizes")
    }
}

/// A trained policy, as a file holds it.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its network.
    pub architecture: Architecture,
    /// What its output means.
    pub head: Head,
    /// Weights.
    pub params: Params,
    /// What observations went through, frozen.
    pub normaliser: Option<Running>,
}

/// Keys of a policy's file.
const HEAD: &str = "operant.head";
const NORMALISER: &str = "operant.obs_normaliser";

/// The note on the normaliser in a policy's file, in JSON: a network sees `clip((obs − shift) · factor, −limit, limit)`, in f32. Training
/// goes on from count, mean and squares, the sums of squared distances from the mean: `factor = 1/√(squares/count + 1e-8)`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NormaliserNote {
    /// Numbers of f32 as those of f64, which read back exactly.
    shift: Vec<f64>,
    factor: Vec<f64>,
    limit: f64,
    count: f64,
    mean: Vec<f64>,
    squares: Vec<f64>,
}

/// The note as it is, or as files before it had it: the bits of count, means and squares.
#[derive(Deserialize)]
#[serde(untagged)]
enum AnyNormaliserNote {
    Numbers(NormaliserNote),
    Bits(Vec<u64>),
}

impl NormaliserNote {
    fn of(normaliser: &Running) -> Self {
        let numbers = normaliser.to_numbers();
        let (mean, squares) = numbers[1..].split_at(normaliser.mean().len());
        let [shift, factor] = normaliser.scaling().map(|numbers| numbers.iter().map(|&x| f64::from(x)).collect());
        let limit = f64::from(OBS_LIMIT);
        Self { shift, factor, limit, count: numbers[0], mean: mean.to_vec(), squares: squares.to_vec() }
    }

    /// The normaliser of so many inputs, if the numbers fit each other.
    fn read(&self, inputs: usize) -> Option<Running> {
        let numbers: Vec<f64> = [self.count].iter().chain(&self.mean).chain(&self.squares).copied().collect();
        let running = Running::from_numbers(&numbers, inputs).filter(|_| self.mean.len() == inputs)?;
        let same = |own: &[f32], noted: &[f64]| own.iter().map(|&x| f64::from(x)).eq(noted.iter().copied());
        let [shift, factor] = running.scaling();
        let fits = same(shift, &self.shift) && same(factor, &self.factor) && self.limit == f64::from(OBS_LIMIT);
        fits.then_some(running)
    }
}

/// What observations go through before a network of so many inputs, by the notes of its file; nothing if it sees them as they are.
pub fn normaliser_of(notes: &Metadata, inputs: usize) -> Result<Option<Running>> {
    let Some(text) = notes.get(NORMALISER) else { return Ok(None) };
    let read = match serde_json::from_str(text) {
        Ok(AnyNormaliserNote::Numbers(note)) => note.read(inputs),
        Ok(AnyNormaliserNote::Bits(bits)) => {
            Running::from_numbers(&bits.into_iter().map(f64::from_bits).collect::<Vec<f64>>(), inputs)
        }
        Err(_) => None,
    };
    read.map(Some).ok_or_else(|| {
        let wanted =
            format!("wanted shift, factor, mean and squares of {inputs} numbers each, count, and limit {OBS_LIMIT}");
        Error::Saved(format!("the note \"{NORMALISER}\" is damaged: {wanted}; save the policy again"))
    })
}

impl Policy {
    /// As the bytes of a safetensors file that also [`Architecture::load`] and PyTorch read.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_with(Metadata::new())
    }

    /// [`Policy::to_bytes`] with further notes in the file.
    pub fn to_bytes_with(&self, notes: Metadata) -> Vec<u8> {
        let json = |value: serde_json::Result<String>| value.expect("numbers and names are JSON");
        let mut metadata = notes;
        metadata.insert("operant.architecture".to_owned(), self.architecture.to_json());
        metadata.insert(HEAD.to_owned(), json(serde_json::to_string(&self.head)));
        if let Some(normaliser) = &self.normaliser {
            metadata.insert(NORMALISER.to_owned(), json(serde_json::to_string(&NormaliserNote::of(normaliser))));
        }
        self.params.to_bytes(&metadata)
    }

    /// Reads [`Policy::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (architecture, net, params, metadata) = Architecture::from_bytes(bytes)?;
        let damaged = |key: &str| {
            Error::Saved(format!("saved policy has no valid \"{key}\"; wanted the policy.safetensors of a checkpoint"))
        };
        let head: Head =
            metadata.get(HEAD).and_then(|text| serde_json::from_str(text).ok()).ok_or_else(|| damaged(HEAD))?;
        let inputs = net.graph.shape(net.input).iter().product();
        let normaliser = normaliser_of(&metadata, inputs)?;
        Ok(Self { architecture, head, params, normaliser })
    }

    /// Makes of observations what the network learned from: normalises them if it learned from such.
    pub fn normalise(&self, rows: &mut [f32]) {
        if let Some(normaliser) = &self.normaliser {
            normaliser.normalise(rows, OBS_LIMIT);
        }
    }

    /// Reads a policy's file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)
            .map_err(|error| Error::Saved(format!("can't read {}: {error}; check the path", path.display())))?;
        Self::from_bytes(&bytes)
    }

    /// Whether a run of this network could go on with this policy.
    pub(super) fn check_like(&self, architecture: &Architecture, head: &Head, normalises: bool) -> Result<()> {
        if self.architecture != *architecture || self.head != *head {
            return Err(Error::Invalid(format!(
                "the policy is {:?} with {:?}; this run has {architecture:?} with {head:?}",
                self.architecture, self.head
            )));
        }
        let has = self.normaliser.is_some();
        if has != normalises {
            return Err(Error::Invalid(format!(
                "the policy was trained with normalize_obs = {has}; this run has {normalises}"
            )));
        }
        Ok(())
    }

    /// Plans for up to `rows` observations at once, which go through [`Policy::normalise`] first.
    pub fn actor(&self, rows: usize, options: &Options) -> Result<Actor> {
        Actor::new(&self.architecture.build()?, self.head.clone(), rows, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_lanes::rng::HostRng;

    #[test]
    fn normalisers_read_back_with_all_their_bits() {
        let mut rng = HostRng::new(5, 0, 0, 0);
        for columns in [1, 3, 100] {
            let mut seen = Running::new(columns);
            for rows in [0, 1, 7, 500] {
                let scale = (20.0 * rng.normal()).exp();
                seen.update(&(0..rows * columns).map(|_| scale * rng.normal() + 3.0).collect::<Vec<f32>>());
                let text = serde_json::to_string(&NormaliserNote::of(&seen)).unwrap();
                let notes = Metadata::from([(NORMALISER.to_owned(), text)]);
                let read = normaliser_of(&notes, columns).unwrap().unwrap();
                let bits = |of: &Running| of.to_numbers().iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
                assert_eq!((bits(&read), read.scaling()), (bits(&seen), seen.scaling()));
                assert!(
                    normaliser_of(&notes, columns + 1).unwrap_err().to_string().contains("is damaged: wanted shift")
                );
            }
        }
        assert!(normaliser_of(&Metadata::new(), 3).unwrap().is_none());
    }
}
