//! Hosts by name: small networks with slots in which seeds may grow.

use super::super::ops::{Conv2d, NormOptions};
use super::super::{Act, Graph, Node};
use super::blueprint::norm_groups;
use crate::error::{Error, Result};

/// A convolutional host: blocks of convolution, group norm and ReLU, each with slots, then a pool to half the side while
/// that leaves two pixels; channels double from block to block; at the end the mean over pixels and a linear layer.
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
};

/// Every host, in the order of their numbers.
pub const HOSTS: [Host; 9] = [
    BASELINE,
    Host { name: "scale", blocks: 5, base: 32, ..BASELINE },
    Host { name: "deep", blocks: 5, ..BASELINE },
    Host { name: "impaired", base: 1, kernel: 1, ..BASELINE },
    Host { name: "minimal", base: 4, ..BASELINE },
    Host { name: "multi_channel", base: 16, ..BASELINE },
    Host { name: "post_pool", post_pool: true, ..BASELINE },
    Host { name: "high_resolution", high_resolution: true, ..BASELINE },
    Host { name: "deep_multi_channel", blocks: 5, base: 16, most: 128, slots_per_block: 2, ..BASELINE },
];

/// Least side of an image after a pool.
const LEAST_SIDE: usize = 2;

impl Host {
    /// How many slots.
    pub fn slots(&self) -> usize {
        self.blocks * self.slots_per_block
    }

    /// Adds the host to a graph: from images `[B, H, W, C]` to logits. `fill` gives what leaves a slot for what enters it.
    pub(super) fn add(
        &self,
        g: &mut Graph,
        images: Node,
        classes: usize,
        fill: &mut dyn FnMut(&mut Graph, usize, Node) -> Result<Node>,
    ) -> Result<Node> {
        let mut h = images;
        let mut slots = 0..self.slots();
        for block in 0..self.blocks {
            let channels = (self.base << block).min(self.most);
            let layer = Conv2d::new(channels, self.kernel).padding(self.kernel / 2);
            h = g.conv2d(&format!("host.{block}.conv"), h, layer)?;
            let options = NormOptions { act: Act::Relu, ..NormOptions::default() };
            h = g.group_norm(&format!("host.{block}.norm"), h, norm_groups(channels), options)?;
            let pool = |g: &mut Graph, h: Node| {
                let side = g.shape(h)[0].min(g.shape(h)[1]);
                let keep = side / 2 < LEAST_SIDE || (block == 0 && self.high_resolution);
                if keep { Ok(h) } else { g.max_pool(h, 2, 2, 0) }
            };
            if self.post_pool {
                h = pool(g, h)?;
            }
            for slot in slots.by_ref().take(self.slots_per_block) {
                h = fill(g, slot, h)?;
            }
            if !self.post_pool {
                h = pool(g, h)?;
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
