//! Networks that value actions (Mnih et al., "Human-level control", 2015): a trunk, then one head, or two that add up
//! (Wang et al., "Dueling network architectures", arXiv:1511.06581), with noise in the heads (Fortunato et al., "Noisy
//! networks for exploration", arXiv:1706.10295) and quantiles of the return in place of its mean (Dabney et al.,
//! arXiv:1710.10044), each if wanted.

use super::graph::{Graph, Node};
use super::init::Init;
use super::nets::{ImageEncoder, Net};
use super::op::Act;
use operant_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// σ₀ of noisy layers: their noise begins with a standard deviation of σ₀/√(fan in).
const NOISE: f32 = 0.5;

/// A network from observations to values of actions. Its parameters are `trunk.0`, `trunk.2` …, then `q.0` and `q.2`, or
/// `value.0`, `value.2`, `advantage.0` and `advantage.2`; a noisy layer also has `<name>.sigma`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionValue {
    /// Observation numbers.
    pub inputs: usize,
    /// Sizes of hidden layers; the last is that of each head.
    pub hidden: Vec<usize>,
    /// Number of actions.
    pub actions: usize,
    /// After every hidden layer.
    pub activation: Act,
    /// Whether there are heads for the value of the state and for advantages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dueling: bool,
    /// Whether the weights of heads are noisy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub noisy: bool,
    /// Quantiles of each action's return, of which the value is the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<usize>,
    /// Convolutions between the observation, which is an image then, and all else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageEncoder>,
    /// Whether observation numbers are those of entries, of which there are so many: the first hidden layer is then the sum of a
    /// learned vector of each, `trunk.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<usize>,
}

/// Where layers are added, and whether with noise.
struct Layers<'a> {
    g: &'a mut Graph,
    noisy: bool,
    /// Sizes of the noise inputs, if noise is fed.
    noise: Option<Vec<usize>>,
}

impl Layers<'_> {
    /// A layer of a head. With noise, its weights are μ + σ·(f(ε_out) ⊗ f(ε_in)): σ is applied to what is seen times the
    /// one and its result multiplied by the other, so that no noisy matrix is ever made.
    fn linear(&mut self, name: &str, x: Node, outputs: usize) -> Result<Node> {
        let mean = self.g.linear(name, x, outputs)?;
        if !self.noisy {
            return Ok(mean);
        }
        let inputs = self.g.features(name, x)?;
        let (name, init) = (format!("{name}.sigma"), Init::Constant(NOISE / (inputs as f32).sqrt()));
        let Some(sizes) = &mut self.noise else {
            // The parameters are there, the noise is not.
            self.g.param(&format!("{name}.weight"), [outputs, inputs], init);
            self.g.param(&format!("{name}.bias"), [outputs], init);
            return Ok(mean);
        };
        sizes.extend([inputs, outputs]);
        let before = self.g.input_whole(&format!("{name}.in"), [inputs]);
        let after = self.g.input_whole(&format!("{name}.out"), [outputs]);
        let (before, after) = (self.g.expand(before)?, self.g.expand(after)?);
        let seen = self.g.mul(x, before)?;
        let noise = self.g.linear_with(&name, seen, outputs, init, Some(init))?;
        let noise = self.g.mul(noise, after)?;
        self.g.add(mean, noise)
    }

    fn head(&mut self, name: &str, x: Node, size: usize, act: Act, outputs: usize) -> Result<Node> {
        let h = self.linear(&format!("{name}.0"), x, size)?;
        let h = self.g.activation(h, act)?;
        self.linear(&format!("{name}.2"), h, outputs)
    }
}

impl ActionValue {
    /// The network without noise: outputs `q [B, actions]` and, with quantiles, `quantiles [B, actions · K]`.
    pub fn build(&self) -> Result<Net> {
        self.add(None).map(|(net, _)| net)
    }

    /// The same with noise, if the network is noisy: after the observation it is fed vectors, of the sizes that come with
    /// it, for the batch as a whole.
    pub fn build_noisy(&self) -> Result<(Net, Vec<usize>)> {
        self.add(Some(Vec::new()))
    }

    fn add(&self, noise: Option<Vec<usize>>) -> Result<(Net, Vec<usize>)> {
        let Some((&last, trunk)) = self.hidden.split_last() else {
            return Err(Error::Invalid("a network of action values without hidden layers: wanted one or more".into()));
        };
        if self.entries.is_some() && (trunk.is_empty() || self.image.is_some()) {
            return Err(Error::Invalid(
                "network.hidden: a network that sees entries has two or more hidden layers, as in [256, 256]; wanted another size, and no image".into(),
            ));
        }
        let mut g = Graph::new();
        let input = g.input("obs", [self.inputs]);
        let mut h = input;
        if let Some(image) = &self.image {
            h = image.add(&mut g, input, self.inputs)?;
        }
        for (i, &size) in trunk.iter().enumerate() {
            let name = format!("trunk.{}", 2 * i);
            h = match self.entries.filter(|_| i == 0) {
                Some(entries) => g.embedding_sum(&name, h, entries, size)?,
                None => g.linear(&name, h, size)?,
            };
            h = g.activation(h, self.activation)?;
        }
        let (actions, atoms, act) = (self.actions, self.quantiles.unwrap_or(1), self.activation);
        let mut layers = Layers { g: &mut g, noisy: self.noisy, noise };
        let q = if self.dueling {
            let value = layers.head("value", h, last, act, atoms)?;
            let advantage = layers.head("advantage", h, last, act, actions * atoms)?;
            let advantage = match self.quantiles {
                Some(atoms) => layers.g.reshape(advantage, [actions, atoms])?,
                None => advantage,
            };
            layers.g.dueling(value, advantage)?
        } else {
            layers.head("q", h, last, act, actions * atoms)?
        };
        let noise = layers.noise.unwrap_or_default();
        let outputs = match self.quantiles {
            None => vec![("q", q)],
            Some(atoms) => {
                let of_actions = g.reshape(q, [actions, atoms])?;
                let mean = g.mean(of_actions, 1)?;
                vec![("q", mean), ("quantiles", g.reshape(q, [actions * atoms])?)]
            }
        };
        Ok((Net { graph: g, input, outputs, log_std: None, memory: None }, noise))
    }
}
