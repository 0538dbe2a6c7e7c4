//! Hosts by name: small networks with slots in which seeds may grow.

use super::super::nets::mlp;
use super::super::ops::{Conv2d, Embedding, NormOptions};
use super::super::{Act, Graph, Init, Kind, Node};
use super::blueprint::norm_groups;
use operant_base::{Error, Result};

/// A network with slots. Most are convolutional: blocks of convolution, group norm and ReLU, each with slots, then a pool to
/// half the side while that leaves two pixels; channels double from block to block; at the end the mean over pixels and a
/// linear layer. Those with `heads` are transformers over tokens: embeddings and positions, blocks of causal attention and
/// two linear layers, each before a layer norm (Xiong et al., arXiv:2002.04745), with slots behind each block; at the end a layer norm
/// and a linear layer, which say at every place what the next token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: &'static str,
    /// Blocks.
    pub blocks: usize,
    /// Channels of the first block.
    pub base: usize,
    /// Most channels of a block.
    pub most: usize,
    /// Side of the convolutions' kernels.
    pub kernel: usize,
    /// Slots of a block, one behind the other.
    pub slots_per_block: usize,
    /// Whether slots lie behind a block's pool; else before it.
    pub post_pool: bool,
    /// Whether the first block keeps the full resolution.
    pub high_resolution: bool,
    /// Heads of attention of a transformer, whose blocks all have `base` channels; 0 in convolutional hosts.
    pub heads: usize,
}

const BASELINE: Host = Host {
    name: "baseline",
    blocks: 3,
    base: 8,
    most: 256,
    kernel: 3,
    slots_per_block: 1,
    post_pool: false,
    high_resolution: false,
    heads: 0,
};

/// Every host, in the order of their numbers.
pub const HOSTS: [Host; 10] = [
    BASELINE,
    Host { name: "scale", blocks: 5, base: 32, ..BASELINE },
    Host { name: "deep", blocks: 5, ..BASELINE },
    Host { name: "impaired", base: 1, kernel: 1, ..BASELINE },
    Host { name: "minimal", base: 4, ..BASELINE },
    Host { name: "multi_channel", base: 16, ..BASELINE },
    Host { name: "post_pool", post_pool: true, ..BASELINE },
    Host { name: "high_resolution", high_resolution: true, ..BASELINE },
    Host { name: "deep_multi_channel", blocks: 5, base: 16, most: 128, slots_per_block: 2, ..BASELINE },
    Host { name: "transformer", base: 32, heads: 4, ..BASELINE },
];

/// What fills slots: see [`Host::add`].
pub(super) type Fill<'a> = dyn FnMut(&mut Graph, usize, Node, bool) -> Result<Node> + 'a;

/// Least side of an image after a pool.
const LEAST_SIDE: usize = 2;
/// Width of a transformer's inner layers, as a multiple of its channels.
const WIDER: usize = 4;
/// Standard deviation of new embeddings and positions.
const EMBEDDED: f32 = 0.1;

impl Host {
    /// How many slots.
    pub fn slots(&self) -> usize {
        self.blocks * self.slots_per_block
    }

    /// Whether it reads tokens, and says at each place which comes next; else it reads images.
    pub fn reads_tokens(&self) -> bool {
        self.heads > 0
    }

    /// Adds the host to a graph: from images `[B, H, W, C]` to logits, or from tokens `[B, T]` to logits at every place. `fill`
    /// gives what leaves a slot for what enters it; where its last argument says so, the largest of every 2 × 2 pixels of that.
    pub(super) fn add(&self, g: &mut Graph, input: Node, classes: usize, fill: &mut Fill<'_>) -> Result<Node> {
        if self.reads_tokens() {
            self.transformer(g, input, classes, fill)
        } else {
            self.convolutions(g, input, classes, fill)
        }
    }

    fn transformer(&self, g: &mut Graph, tokens: Node, classes: usize, fill: &mut Fill<'_>) -> Result<Node> {
        let (Kind::Ints, &[places]) = (g.ty(tokens).kind, g.shape(tokens)) else {
            let (name, given) = (self.name, g.ty(tokens));
            return Err(Error::Invalid(format!(
                "host {name} over {given}: wanted tokens [T] as integers; networks side by side on a GPU read images alone, so train it on the CPU"
            )));
        };
        let init = Init::Normal { std: EMBEDDED };
        let table = g.param("host.embedding.weight", [classes, self.base], init);
        let positions = g.param("host.positions", [places, self.base], init);
        let (h, positions) = (g.apply("host.embedding", Embedding, &[tokens, table])?, g.expand(positions)?);
        let mut h = g.add(h, positions)?;
        let mut slots = 0..self.slots();
        // Every block adds twice: what all of them add is then about as large as what one would.
        let gain = 1.0 / (2.0 * self.blocks as f32).sqrt();
        for block in 0..self.blocks {
            let part = |part: &str| format!("host.{block}.{part}");
            let x = g.layer_norm(&part("norm1"), h)?;
            let x = g.attention(&part("attention"), x, self.heads, true, None)?;
            h = g.add(h, x)?;
            let x = g.layer_norm(&part("norm2"), h)?;
            let x = mlp(g, &part("mlp"), x, &[WIDER * self.base, self.base], Act::Gelu, gain)?;
            h = g.add(h, x)?;
            for slot in slots.by_ref().take(self.slots_per_block) {
                h = fill(g, slot, h, false)?;
            }
        }
        let h = g.layer_norm("host.norm", h)?;
        g.linear("host.head", h, classes)
    }

    fn convolutions(&self, g: &mut Graph, images: Node, classes: usize, fill: &mut Fill<'_>) -> Result<Node> {
        let mut h = images;
        let mut slots = 0..self.slots();
        for block in 0..self.blocks {
            let channels = (self.base << block).min(self.most);
            let layer = Conv2d::new(channels, self.kernel).padding(self.kernel / 2);
            h = g.conv2d(&format!("host.{block}.conv"), h, layer)?;
            let options = NormOptions { act: Act::Relu, ..NormOptions::default() };
            h = g.group_norm(&format!("host.{block}.norm"), h, norm_groups(channels), options)?;
            let (height, width) = (g.shape(h)[0], g.shape(h)[1]);
            let keep = height.min(width) / 2 < LEAST_SIDE || (block == 0 && self.high_resolution);
            if self.post_pool && !keep {
                h = g.max_pool(h, 2, 2, 0)?;
            }
            let behind = !self.post_pool && !keep;
            let even = height % 2 == 0 && width % 2 == 0;
            for number in 0..self.slots_per_block {
                let Some(slot) = slots.next() else { break };
                h = fill(g, slot, h, behind && even && number + 1 == self.slots_per_block)?;
            }
            if behind && !(even && self.slots_per_block > 0) {
                h = g.max_pool(h, 2, 2, 0)?;
            }
        }
        let h = g.global_average_pool(h)?;
        g.linear("host.head", h, classes)
    }

    /// The host of this name.
    pub fn find(name: &str) -> Result<Self> {
        let names = HOSTS.iter().map(|host| host.name);
        HOSTS
            .iter()
            .find(|host| host.name == name)
            .copied()
            .ok_or_else(|| Error::unknown("host", name, names, "see env.host"))
    }
}
