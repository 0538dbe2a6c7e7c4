//! Adam with a limit to the gradient's norm, over parameters that lie as in [`Params`](crate::Params).

use super::layers::{AdamArgs, Layers, NORM_BLOCKS, NormArgs, THREADS};
use crate::Act;
use operant_base::Result;
use operant_device::cuda::{Buffer, DevicePtr, Gpu, Operands};
use std::sync::Arc;

/// Moments of a network's parameters, and the kernels that step them.
#[derive(Debug)]
pub struct Descent {
    pub(super) layers: Layers,
    pub(super) mean: Buffer<f32>,
    pub(super) square: Buffer<f32>,
    squares: Buffer<f32>,
}

impl Descent {
    /// For so many parameters, padding included; moments begin as 0.
    pub fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Self> {
        Self::with(gpu, Layers::new(gpu, Operands::F32, Act::Tanh)?, len, "network.hidden or network.memory_size")
    }

    /// The same by the kernels of these layers; `lower` is what to lower where memory is short.
    pub(super) fn with(gpu: &Arc<Gpu>, layers: Layers, len: usize, lower: &str) -> Result<Self> {
        let buffer = |len, what| Buffer::new(gpu, len, what, lower);
        Ok(Self {
            layers,
            mean: buffer(len, "Adam's means")?,
            square: buffer(len, "Adam's squares")?,
            squares: buffer(NORM_BLOCKS, "squares of gradients")?,
        })
    }

    /// Steps `params` along `gradients`, which have as many numbers, as `how` (an [`Adam`](super::Adam) in the GPU's memory) says;
    /// `update` steps of this `how` came before. The gradient's norm goes to `norm`, the parameters as products read them to `image` if
    /// that is not as they are.
    pub fn step(
        &self,
        [params, image]: [DevicePtr; 2],
        gradients: DevicePtr,
        how: DevicePtr,
        norm: DevicePtr,
        update: u32,
    ) -> Result<()> {
        let (squares, len) = (self.squares.pointer(), self.mean.len());
        let args = NormArgs { gradients, squares, len: len as u64 };
        self.layers.norm.launch(NORM_BLOCKS as u32, THREADS as u32, &args)?;
        let args = AdamArgs {
            how,
            gradients,
            squares,
            params,
            mean: self.mean.pointer(),
            square: self.square.pointer(),
            image,
            norm,
            len: len as u64,
            update,
            unused: 0,
        };
        self.layers.adam.launch((len / 4).div_ceil(THREADS) as u32, THREADS as u32, &args)
    }

    /// Sets the moments.
    pub fn send(&self, [mean, square]: [&[f32]; 2]) -> Result<()> {
        self.mean.upload(mean)?;
        self.square.upload(square)
    }

    /// The moments as they are now.
    pub fn fetch(&self, [mean, square]: [&mut [f32]; 2]) -> Result<()> {
        self.mean.download(0, mean)?;
        self.square.download(0, square)
    }
}
