//! Networks that algorithms and benchmarks share. Each is a few lines over the layers of [`Graph`].

use super::graph::{Graph, Node};
use super::init::Init;
use super::op::Act;
use crate::Result;

impl Graph {
    /// An activation as a layer.
    pub fn activation(&mut self, x: Node, act: Act) -> Result<Node> {
        match act {
            Act::Identity => Ok(x),
            act => self.apply("", super::ops::Activation(act), &[x]),
        }
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
