//! What a seed may be: small modules from `[B, …, C]` to the same shape, each close to the identity when it is new.
//!
//! Invariant: over `[B, T, C]`, a stream of tokens, no place of the result depends on a later place.

use super::super::nets::mlp;
use super::super::ops::{Conv, Conv2d, NormOptions};
use super::super::{Act, Graph, Init, Node};
use operant_base::{Error, Result};

/// A kind of seed; the order is that of the controller's choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blueprint {
    /// x: nothing, for tests of the machinery; a controller never chooses it.
    Noop,
    /// x + norm(conv 3×3): 9C² weights.
    ConvLight,
    /// Channels scaled by a sigmoid of their means (Hu et al., arXiv:1709.01507), squeezed to C/4; of a token by its own channels.
    SeAttention,
    /// Group norm with a weight and a bias; of tokens a layer norm.
    Norm,
    /// x + depthwise 3×3, then 1×1.
    Depthwise,
    /// x + 1×1 to C/4, 3×3, 1×1 back.
    Bottleneck,
    /// x + conv 1×1.
    ConvSmall,
    /// x + two convolutions of 3×3: 18C² weights.
    ConvHeavy,
    /// x + a product of two matrices of rank 8 (Hu et al., arXiv:2106.09685).
    Lora8,
    /// The same of rank 32.
    Lora32,
    /// x + two linear layers with a GELU between them, 2C wide.
    MlpSmall,
    /// The same, 4C wide.
    Mlp,
    /// x + self-attention over places, of the layer-normed input; a token sees those before it.
    FlexAttention,
}

/// Channels that share the statistics of a norm, at most.
pub(super) const NORM_GROUP: usize = 4;

/// Groups of a norm over so many channels: as many as give whole groups of at most [`NORM_GROUP`].
pub(super) fn norm_groups(channels: usize) -> usize {
    (1..=channels).find(|groups| channels.is_multiple_of(*groups) && channels / groups <= NORM_GROUP).unwrap_or(1)
}

impl Blueprint {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 13] = [
        (Self::Noop, "noop"),
        (Self::ConvLight, "conv_light"),
        (Self::SeAttention, "se_attention"),
        (Self::Norm, "norm"),
        (Self::Depthwise, "depthwise"),
        (Self::Bottleneck, "bottleneck"),
        (Self::ConvSmall, "conv_small"),
        (Self::ConvHeavy, "conv_heavy"),
        (Self::Lora8, "lora_8"),
        (Self::Lora32, "lora_32"),
        (Self::MlpSmall, "mlp_small"),
        (Self::Mlp, "mlp"),
        (Self::FlexAttention, "flex_attention"),
    ];

    /// The blueprint of this number.
    pub fn from_index(index: usize) -> Option<Self> {
        Self::ALL.get(index).map(|(blueprint, _)| *blueprint)
    }

    /// Its number.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL[self.index()].1
    }

    /// Whether it can take a tensor of this shape (without the batch axis): convolutions want images.
    pub fn fits(self, shape: &[usize]) -> bool {
        let image = shape.len() == 3;
        match self {
            Self::ConvLight | Self::Depthwise | Self::Bottleneck | Self::ConvSmall | Self::ConvHeavy => image,
            _ => shape.len() >= 2,
        }
    }

    /// Adds the module `name` to a graph. Its last layer begins at 0, so what learns begins as x.
    pub fn add(self, g: &mut Graph, name: &str, x: Node) -> Result<Node> {
        let shape = g.shape(x).to_vec();
        if !self.fits(&shape) {
            return Err(Error::Invalid(format!(
                "blueprint {} over {shape:?} does not fit: wanted an image [H, W, C]",
                self.name()
            )));
        }
        let channels = shape[shape.len() - 1];
        let quarter = (channels / 4).max(1);
        let tokens = shape.len() == 2;
        let part = |part: &str| format!("{name}.{part}");
        let branch = match self {
            Self::Noop => return Ok(x),
            Self::Norm if tokens => return g.layer_norm(name, x),
            Self::SeAttention if tokens => {
                let h = g.linear(&part("fc1"), x, quarter)?;
                let h = g.relu(h)?;
                let h = g.linear(&part("fc2"), h, channels)?;
                let factors = g.sigmoid(h)?;
                return g.mul(x, factors);
            }
            Self::SeAttention => return g.squeeze_excite(name, x, quarter),
            Self::Norm => return g.group_norm(name, x, norm_groups(channels), NormOptions::default()),
            Self::ConvLight => {
                let h = g.group_norm(&part("norm"), x, norm_groups(channels), NormOptions::default())?;
                last_conv(g, &part("last"), h, channels, 3)?
            }
            Self::ConvSmall => last_conv(g, &part("last"), x, channels, 1)?,
            Self::Depthwise => {
                let h = g.conv2d(&part("depthwise"), x, Conv2d::new(channels, 3).padding(1).groups(channels))?;
                let h = g.relu(h)?;
                last_conv(g, &part("last"), h, channels, 1)?
            }
            Self::Bottleneck => {
                let h = g.conv2d(&part("narrow"), x, Conv2d::new(quarter, 1))?;
                let h = g.relu(h)?;
                let h = g.conv2d(&part("conv"), h, Conv2d::new(quarter, 3).padding(1))?;
                let h = g.relu(h)?;
                last_conv(g, &part("last"), h, channels, 1)?
            }
            Self::ConvHeavy => {
                let h = g.conv2d(&part("conv"), x, Conv2d::new(channels, 3).padding(1))?;
                let h = g.group_norm(&part("norm"), h, norm_groups(channels), NormOptions::default())?;
                let h = g.relu(h)?;
                last_conv(g, &part("last"), h, channels, 3)?
            }
            Self::Lora8 | Self::Lora32 => {
                let rank = if self == Self::Lora8 { 8 } else { 32 };
                let fan_in = channels;
                let h = g.linear_with(&part("down"), x, rank, Init::TorchLinear { fan_in }, None)?;
                g.linear_with(&part("last"), h, channels, Init::Zeros, None)?
            }
            Self::MlpSmall | Self::Mlp => {
                let wide = channels * if self == Self::MlpSmall { 2 } else { 4 };
                mlp(g, &part("mlp"), x, &[wide, channels], Act::Gelu, 0.0)?
            }
            Self::FlexAttention => {
                let places: usize = shape[..shape.len() - 1].iter().product();
                let h = g.reshape(x, [places, channels])?;
                let h = g.layer_norm(&part("norm"), h)?;
                let heads = if channels.is_multiple_of(4) && channels >= 16 { 4 } else { 1 };
                let h = g.attention(&part("attention"), h, heads, tokens, None)?;
                let h = g.linear_with(&part("last"), h, channels, Init::Zeros, Some(Init::Zeros))?;
                g.reshape(h, shape)?
            }
        };
        g.add(x, branch)
    }

    /// Trainable numbers over a tensor of this shape.
    pub fn parameters(self, shape: &[usize]) -> Result<usize> {
        let mut g = Graph::new();
        let x = g.input("x", shape.to_vec());
        self.add(&mut g, "seed", x)?;
        Ok(g.params(0)?.count())
    }
}

/// A convolution that keeps the size of images and begins at 0.
fn last_conv(g: &mut Graph, name: &str, x: Node, outputs: usize, kernel: usize) -> Result<Node> {
    let inputs = g.features(name, x)?;
    let weight = g.param(&format!("{name}.weight"), [outputs, inputs, kernel, kernel], Init::Zeros);
    let bias = g.param(&format!("{name}.bias"), [outputs], Init::Zeros);
    let op = Conv { stride: 1, padding: kernel / 2, circular: false, groups: 1, bias: true, act: Act::Identity };
    g.apply(name, op, &[x, weight, bias])
}
