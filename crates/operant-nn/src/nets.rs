//! Networks that algorithms, benchmarks and Python share, and the description that a checkpoint carries so that it can be
//! run without the program that made it.

pub use super::action_value::ActionValue;
use super::graph::{Graph, Node};
use super::init::Init;
use super::op::Act;
use super::ops::Conv2d;
use super::params::Params;
use super::recurrent::Memory;
use super::saved::{self, Metadata};
pub use operant_base::Image;
use operant_base::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

impl Graph {
    /// An activation as a layer.
    pub fn activation(&mut self, x: Node, act: Act) -> Result<Node> {
        match act {
            Act::Identity => Ok(x),
            act => self.apply("", super::ops::Activation(act), &[x]),
        }
    }
}

/// A network that can be built from its description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Architecture {
    /// Separate policy and value networks; outputs `logits [B, actions]` and `value [B, 1]`.
    ActorCritic {
        /// Observation numbers.
        inputs: usize,
        /// Sizes of hidden layers.
        hidden: Vec<usize>,
        /// Number of actions.
        actions: usize,
        /// After every hidden layer.
        activation: Act,
        /// Whether actions are real numbers: the first output is then `mean`, and there is a parameter `log_std [actions]`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        continuous: bool,
        /// A layer with a state between the observation and both networks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory: Option<MemoryLayer>,
        /// Convolutions between the observation, which is an image then, and all else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image: Option<ImageEncoder>,
    },
    /// A shared trunk with a value and an advantage stream; output `q [B, actions]`.
    Dueling {
        /// Observation numbers.
        inputs: usize,
        /// Sizes of the layers of the trunk.
        hidden: Vec<usize>,
        /// Size of the layer in each stream.
        stream: usize,
        /// Number of actions.
        actions: usize,
    },
    /// Values of actions; outputs `q [B, actions]`.
    ActionValue(ActionValue),
    /// Fully connected residual blocks; outputs `logits [B, policy]` and `value [B, value]`.
    Residual {
        /// Observation numbers.
        inputs: usize,
        /// Size of every layer of the trunk.
        width: usize,
        /// Number of blocks.
        blocks: usize,
        /// Policy outputs.
        policy: usize,
        /// Size of the hidden layer before the value.
        value_hidden: usize,
        /// Value outputs.
        value: usize,
    },
}

/// Convolutions of 3×3 pixels with stride 2 and a border of 1, each with a ReLU behind it: `encoder.0`, `encoder.2` …, as
/// torch.nn.Sequential counts them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageEncoder {
    /// What it sees.
    pub image: Image,
    /// Channels that each convolution gives.
    pub features: Vec<usize>,
}

/// A layer that carries a state from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryLayer {
    /// Its formulas.
    pub kind: MemoryKind,
    /// H, numbers of its output.
    pub size: usize,
}

/// Which layer with a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Long short-term memory.
    Lstm,
    /// Minimal gated recurrent unit.
    Mingru,
}

/// Inputs and outputs of a layer with a state.
#[derive(Clone, Debug)]
pub struct NetMemory {
    /// State before, `[B, H]` each; fed after the observation.
    pub before: Vec<Node>,
    /// State after the last step, `[B, H]` each.
    pub after: Vec<Node>,
    /// H.
    pub size: usize,
}

/// A graph with one input and named outputs.
#[derive(Clone, Debug)]
pub struct Net {
    /// Its ops and parameters.
    pub graph: Graph,
    /// The observation.
    pub input: Node,
    /// Names and nodes.
    pub outputs: Vec<(&'static str, Node)>,
    /// Log of the standard deviation of real-valued actions.
    pub log_std: Option<Node>,
    /// The layer with a state, if there is one.
    pub memory: Option<NetMemory>,
}

/// Key of the description in a checkpoint.
const KEY: &str = "operant.architecture";
/// Largest size in a description. Products of a few of them do not overflow; the parameters that they make are held to the file.
const MOST: u64 = 1 << 24;
/// Most of what building adds layers for, one by one.
const MOST_PARTS: u64 = 4096;

/// A number of a description with which building it would overflow, or not end.
fn unfit(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| unfit(name, value)),
        Value::Array(sizes) => sizes.iter().find_map(|size| unfit(name, size)),
        Value::Number(size) => {
            let wanted = match name {
                "blocks" => 0..=MOST_PARTS,
                "channels" => 1..=MOST_PARTS,
                _ => 1..=MOST,
            };
            let fits = size.as_u64().is_some_and(|size| wanted.contains(&size));
            (!fits).then(|| format!("{name} = {size}: wanted {wanted:?}"))
        }
        _ => None,
    }
}

/// The beginning of a text that may be anything.
fn excerpt(text: &str) -> String {
    const CHARS: usize = 200;
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Architecture {
    /// The graph of one step.
    pub fn build(&self) -> Result<Net> {
        self.build_steps(None)
    }

    /// The graph of sequences of so many steps `[B, T, …]`; after the state it is fed flags `[B, T]`, 1 where an episode
    /// begins. Only for networks with a memory.
    pub fn build_sequences(&self, steps: usize) -> Result<Net> {
        self.build_steps(Some(steps))
    }

    fn build_steps(&self, steps: Option<usize>) -> Result<Net> {
        // Else it would be trained and saved, and then refused.
        self.check().map_err(|reason| Error::Invalid(format!("network {}: {reason}", excerpt(&self.to_json()))))?;
        let mut g = Graph::new();
        let (mut log_std, mut memory) = (None, None);
        let (input, outputs) = match self {
            Self::ActorCritic { inputs, hidden, actions, activation, continuous, memory: layer, image } => {
                let x = g.input("obs", steps.into_iter().chain([*inputs]).collect::<Vec<_>>());
                let mut h = x;
                if let Some(image) = image {
                    if layer.is_some() {
                        let text = "a network with convolutions and a memory: wanted one of them";
                        return Err(Error::Invalid(text.into()));
                    }
                    h = image.add(&mut g, x, *inputs)?;
                }
                if let Some(layer) = layer {
                    (h, memory) = layer.add(&mut g, x, steps).map(|(h, memory)| (h, Some(memory)))?;
                }
                let (logits, value) = actor_critic(&mut g, h, hidden, *actions, *activation)?;
                if *continuous {
                    log_std = Some(g.param("log_std", [*actions], Init::Zeros));
                }
                (x, vec![(if *continuous { "mean" } else { "logits" }, logits), ("value", value)])
            }
            Self::Dueling { inputs, hidden, stream, actions } => {
                let x = g.input("obs", [*inputs]);
                let q = dueling(&mut g, x, hidden, *stream, *actions)?;
                (x, vec![("q", q)])
            }
            Self::ActionValue(network) => return network.build(),
            Self::Residual { inputs, width, blocks, policy, value_hidden, value } => {
                let x = g.input("obs", [*inputs]);
                let h = residual(&mut g, "trunk", x, *width, *blocks)?;
                let logits = g.linear("policy", h, *policy)?;
                let v = g.linear("value.0", h, *value_hidden)?;
                let v = g.relu(v)?;
                (x, vec![("logits", logits), ("value", g.linear("value.2", v, *value)?)])
            }
        };
        Ok(Net { graph: g, input, outputs, log_std, memory })
    }

    /// Numbers of an observation.
    pub fn inputs(&self) -> usize {
        match self {
            Self::ActorCritic { inputs, .. } | Self::Dueling { inputs, .. } | Self::Residual { inputs, .. } => *inputs,
            Self::ActionValue(network) => network.inputs,
        }
    }

    /// The description as a checkpoint carries it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names are JSON")
    }

    /// Reads a description.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::parse(text).map_err(|reason| Error::Invalid(format!("network {}: {reason}", excerpt(text))))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let described: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        described.check().map(|()| described)
    }

    /// Why it can't be built, if it can't.
    fn check(&self) -> Result<(), String> {
        unfit("", &serde_json::to_value(self).expect("numbers and names are JSON")).map_or(Ok(()), Err)
    }

    /// Writes parameters with this description: a safetensors file that [`Architecture::load`] and PyTorch read.
    pub fn save(&self, params: &Params, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(params, Metadata::new(), path)
    }

    /// [`Architecture::save`] with further notes in the file.
    pub fn save_with(&self, params: &Params, mut notes: Metadata, path: impl AsRef<Path>) -> Result<()> {
        notes.insert(KEY.to_owned(), self.to_json());
        params.save(path, &notes)
    }

    /// Reads a file that [`Architecture::save`] wrote.
    pub fn load(path: impl AsRef<Path>) -> Result<(Self, Net, Params)> {
        let (architecture, net, params, _) = Self::load_with(path)?;
        Ok((architecture, net, params))
    }

    /// [`Architecture::load`], and the notes of the file.
    pub fn load_with(path: impl AsRef<Path>) -> Result<(Self, Net, Params, Metadata)> {
        let path = path.as_ref();
        Self::from_bytes(&saved::read_file(path)?).map_err(|error| {
            let Error::Saved(reason) = error else { return error };
            Error::Saved(format!("{}: {reason}", path.display()))
        })
    }

    /// Reads the bytes of such a file; also gives its metadata.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, Net, Params, Metadata)> {
        let metadata = saved::metadata(bytes)?;
        let next = "build the network and load its parameters by name instead";
        let text = metadata.get(KEY).ok_or_else(|| {
            let notes: Vec<&String> = metadata.keys().collect();
            let wanted = format!("wanted \"{KEY}\" among its notes, got {}", excerpt(&format!("{notes:?}")));
            Error::Saved(format!("file does not say which network it holds: {wanted}; {next}"))
        })?;
        let unfit = |reason: String| {
            let wanted = "wanted the JSON that was written when it was saved; save it again, or";
            Error::Saved(format!("\"{KEY}\" describes no network: got {}: {reason}; {wanted} {next}", excerpt(text)))
        };
        let architecture = Self::parse(text).map_err(unfit)?;
        let net = architecture.build().map_err(|error| unfit(error.to_string()))?;
        // Without first values: all of them come from the file.
        let mut params = Params::new(net.graph.params.clone()).map_err(|error| {
            let wanted = "wanted one that fits this machine, as it was when it was saved, or";
            Error::Saved(format!(
                "the network that it describes, {}, is too large: {error}; {wanted} {next}",
                excerpt(text)
            ))
        })?;
        params.from_bytes(bytes)?;
        Ok((architecture, net, params, metadata))
    }
}

/// Sides at which the convolutions of [`ImageEncoder::small`] end.
const SMALL_SIDE: usize = 6;

impl ImageEncoder {
    /// Convolutions until both sides have at most 6 pixels: the first gives 16 channels, the others 32.
    pub fn small(image: Image) -> Self {
        let (mut side, mut features) = (image.height.max(image.width), Vec::new());
        while side > SMALL_SIDE {
            side = side.div_ceil(2);
            features.push(if features.is_empty() { 16 } else { 32 });
        }
        Self { image, features }
    }

    pub(super) fn add(&self, g: &mut Graph, x: Node, inputs: usize) -> Result<Node> {
        let Image { height, width, channels, channels_first, bytes } = self.image;
        if self.image.is_empty() || self.image.len() != inputs {
            let text = format!("an image of {height} x {width} x {channels} in observations of {inputs} numbers");
            return Err(Error::Invalid(text));
        }
        let mut h = x;
        if bytes {
            h = g.scale(h, 1.0 / 255.0)?;
        }
        if channels_first && channels > 1 {
            let planes = g.reshape(h, [channels, height * width])?;
            let plane = |c: usize| {
                let plane = g.slice_axis(planes, 0, c, 1)?;
                g.reshape(plane, [height * width, 1])
            };
            let planes = (0..channels).map(plane).collect::<Result<Vec<_>>>()?;
            h = g.concat(&planes)?;
        }
        h = g.reshape(h, [height, width, channels])?;
        for (i, &outputs) in self.features.iter().enumerate() {
            h = g.conv2d(&format!("encoder.{}", 2 * i), h, Conv2d::new(outputs, 3).stride(2).padding(1))?;
            h = g.relu(h)?;
        }
        g.flatten(h)
    }
}

impl MemoryLayer {
    fn add(&self, g: &mut Graph, x: Node, steps: Option<usize>) -> Result<(Node, NetMemory)> {
        let h0 = g.input("h0", [self.size]);
        let c0 = (self.kind == MemoryKind::Lstm).then(|| g.input("c0", [self.size]));
        let resets = steps.map(|steps| g.input("resets", [steps]));
        let memory = Memory { h0: &[h0], c0: c0.as_slice(), resets };
        let out = match self.kind {
            MemoryKind::Lstm => g.lstm("memory", x, self.size, 1, &memory)?,
            MemoryKind::Mingru => g.min_gru("memory", x, self.size, false, &memory)?,
        };
        let before = [h0].into_iter().chain(c0).collect();
        Ok((out.y, NetMemory { before, after: out.h.into_iter().chain(out.c).collect(), size: self.size }))
    }
}

/// Layers of the given sizes with an activation after each but the last: `<name>.0`, `<name>.2` …, as torch.nn.Sequential counts
/// them. Orthogonal with gain √2, the last with `last_gain`, biases zero: CleanRL's initialisation.
pub fn mlp(g: &mut Graph, name: &str, x: Node, sizes: &[usize], act: Act, last_gain: f32) -> Result<Node> {
    let mut h = x;
    for (i, &size) in sizes.iter().enumerate() {
        let last = i + 1 == sizes.len();
        let gain = if last { last_gain } else { std::f32::consts::SQRT_2 };
        h = g.linear_with(&format!("{name}.{}", 2 * i), h, size, Init::Orthogonal { gain }, Some(Init::Zeros))?;
        if !last {
            h = g.activation(h, act)?;
        }
    }
    Ok(h)
}

/// Separate policy and value networks, `actor.*` and `critic.*`: logits `[B, actions]` and values `[B, 1]`.
pub fn actor_critic(g: &mut Graph, x: Node, hidden: &[usize], actions: usize, act: Act) -> Result<(Node, Node)> {
    let sizes = |last: usize| hidden.iter().copied().chain([last]).collect::<Vec<_>>();
    let logits = mlp(g, "actor", x, &sizes(actions), act, 0.01)?;
    let value = mlp(g, "critic", x, &sizes(1), act, 1.0)?;
    Ok((logits, value))
}

/// `x + W₂·relu(W₁·x)`, then ReLU, `blocks` times at one width.
pub fn residual(g: &mut Graph, name: &str, x: Node, width: usize, blocks: usize) -> Result<Node> {
    let h = g.linear(&format!("{name}.input"), x, width)?;
    let mut h = g.relu(h)?;
    for block in 0..blocks {
        let inner = g.linear(&format!("{name}.{block}.0"), h, width)?;
        let inner = g.relu(inner)?;
        let inner = g.linear(&format!("{name}.{block}.1"), inner, width)?;
        let sum = g.add(h, inner)?;
        h = g.relu(sum)?;
    }
    Ok(h)
}

/// A trunk of ReLU layers `trunk.0`, `trunk.2` …, then streams `value.0`, `value.2` and `advantage.0`, `advantage.2`:
/// Q = V + A − mean A.
pub fn dueling(g: &mut Graph, x: Node, hidden: &[usize], stream: usize, actions: usize) -> Result<Node> {
    let mut h = x;
    for (i, &size) in hidden.iter().enumerate() {
        h = g.linear(&format!("trunk.{}", 2 * i), h, size)?;
        h = g.relu(h)?;
    }
    let mut head = |name: &str, outputs: usize| {
        let h = g.linear(&format!("{name}.0"), h, stream)?;
        let h = g.relu(h)?;
        g.linear(&format!("{name}.2"), h, outputs)
    };
    let (value, advantage) = (head("value", 1)?, head("advantage", actions)?);
    g.dueling(value, advantage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feed, Options, Plan};

    fn network(image: Image) -> Architecture {
        Architecture::ActorCritic {
            inputs: image.len(),
            hidden: vec![8],
            actions: 3,
            activation: Act::Tanh,
            continuous: false,
            memory: None,
            image: Some(ImageEncoder::small(image)),
        }
    }

    fn logits(image: Image, pixels: &[f32]) -> Vec<f32> {
        let net = network(image).build().unwrap();
        let params = net.graph.params(7).unwrap();
        let logits = net.outputs[0].1;
        let mut plan = Plan::inference(&net.graph, &[logits], 2, &Options::default()).unwrap();
        plan.forward(&params, 2, &[Feed::Real(pixels)]);
        plan.output(logits).to_vec()
    }

    #[test]
    fn an_image_is_the_same_whichever_way_it_lies() {
        let image = Image { height: 10, width: 13, channels: 3, channels_first: false, bytes: false };
        let len = image.len();
        let last: Vec<f32> = (0..2 * len).map(|i| (i * 37 % 256) as f32).collect();
        // [C, H, W] of the same pixels, one image after the other.
        let pixels = image.height * image.width;
        let first: Vec<f32> =
            (0..2 * len).map(|i| last[i / len * len + i % len % pixels * image.channels + i % len / pixels]).collect();
        let scaled: Vec<f32> = last.iter().map(|x| x * (1.0 / 255.0)).collect();
        let wanted = logits(image, &scaled);
        assert!(wanted.iter().all(|x| x.is_finite()) && wanted[..3] != wanted[3..]);
        assert_eq!(logits(Image { bytes: true, ..image }, &last), wanted);
        assert_eq!(logits(Image { bytes: true, channels_first: true, ..image }, &first), wanted);
    }

    #[test]
    fn encoders_shrink_images_and_are_described() {
        let of = |side: usize| Image { height: side, width: 8, channels: 1, channels_first: false, bytes: true };
        assert_eq!(ImageEncoder::small(of(8)).features, [16]);
        assert_eq!(ImageEncoder::small(of(16)).features, [16, 32]);
        assert_eq!(ImageEncoder::small(of(84)).features, [16, 32, 32, 32]);
        let description = network(of(16));
        assert_eq!(Architecture::from_json(&description.to_json()).unwrap(), description);
        let names: Vec<String> = description
            .build()
            .unwrap()
            .graph
            .params(0)
            .unwrap()
            .specs()
            .iter()
            .map(|spec| spec.name.clone())
            .collect();
        assert!(names.contains(&"encoder.2.weight".to_owned()) && !names.contains(&"encoder.4.weight".to_owned()));
        let wrong = Architecture::ActorCritic {
            inputs: 5,
            hidden: vec![8],
            actions: 2,
            activation: Act::Tanh,
            continuous: false,
            memory: None,
            image: Some(ImageEncoder::small(of(8))),
        };
        let message = wrong.build().unwrap_err().to_string();
        assert!(message.contains("8 x 8 x 1 in observations of 5 numbers"), "{message}");
    }
}
