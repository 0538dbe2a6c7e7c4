//! The kernels of `layers.cu`, with their arguments.

use crate::Act;
use operant_base::{Error, Result};
use operant_device::cuda::{DevicePtr, Gpu, Kernel, Operands, Params};
use operant_lanes::{CUDA_PRELUDE, Math};
use std::fmt::Write as _;
use std::sync::Arc;

/// Numbers as products read them, as text that other kernels may go on from; it asks for `SIXTEEN` and `F16`.
pub const NUMBERS: &str = include_str!("numbers.cu");
/// Threads of a block.
pub(super) const THREADS: usize = 256;
/// Rows of a block.
pub(super) const STRIP: usize = 32;
/// Blocks of `gradient_norm`.
pub(super) const NORM_BLOCKS: usize = 256;
/// Most segments of `collapse`.
pub(super) const MAX_SEGMENTS: usize = 40;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct EncodeArgs {
    pub(super) from: DevicePtr,
    pub(super) to: DevicePtr,
    pub(super) rows: u32,
    pub(super) width: u32,
    pub(super) pitch: u32,
    pub(super) unused: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ActivateArgs {
    pub(super) z: DevicePtr,
    pub(super) bias: DevicePtr,
    pub(super) bias_stride: u64,
    pub(super) rows: u32,
    pub(super) width: u32,
    pub(super) pitch: u32,
    pub(super) unused: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct OutputsArgs {
    pub(super) z: DevicePtr,
    pub(super) bias: DevicePtr,
    pub(super) to: DevicePtr,
    pub(super) rows: u32,
    pub(super) width: u32,
    pub(super) pitch: u32,
    pub(super) unused: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ErrorArgs {
    pub(super) z: DevicePtr,
    pub(super) bias: DevicePtr,
    pub(super) target: DevicePtr,
    pub(super) d: DevicePtr,
    pub(super) rows: u32,
    pub(super) width: u32,
    pub(super) pitch: u32,
    pub(super) unused: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct SlopesArgs {
    pub(super) d: DevicePtr,
    pub(super) h: DevicePtr,
    pub(super) sums: DevicePtr,
    pub(super) rows: u32,
    pub(super) pitch: u32,
    pub(super) most_strips: u32,
    pub(super) adds: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Segment {
    pub(super) from: DevicePtr,
    pub(super) to: DevicePtr,
    pub(super) strips: u32,
    pub(super) pitch: u32,
    pub(super) first_block: u32,
    pub(super) unused: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct CollapseArgs {
    pub(super) segments: [Segment; MAX_SEGMENTS],
    pub(super) count: u32,
    pub(super) unused: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct NormArgs {
    pub(super) gradients: DevicePtr,
    pub(super) squares: DevicePtr,
    pub(super) len: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct AdamArgs {
    pub(super) how: DevicePtr,
    pub(super) gradients: DevicePtr,
    pub(super) squares: DevicePtr,
    pub(super) params: DevicePtr,
    pub(super) mean: DevicePtr,
    pub(super) square: DevicePtr,
    pub(super) image: DevicePtr,
    pub(super) norm: DevicePtr,
    pub(super) len: u64,
    pub(super) update: u32,
    pub(super) unused: u32,
}

impl Params for EncodeArgs {}
impl Params for ActivateArgs {}
impl Params for OutputsArgs {}
impl Params for ErrorArgs {}
impl Params for SlopesArgs {}
impl Params for CollapseArgs {}
impl Params for NormArgs {}
impl Params for AdamArgs {}

/// What Adam is told in the GPU's memory: `Adam` of `layers.cu`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Step size.
    pub learning_rate: f32,
    /// Decay of the mean of gradients.
    pub beta1: f32,
    /// Decay of the mean of their squares.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Longer gradients are shortened to this; 0 for no limit.
    pub max_norm: f32,
    /// One sample's share of a gradient: 1 divided by the samples of a batch.
    pub share: f32,
    /// Steps before.
    pub step: u32,
}

impl Adam {
    /// Words of a buffer that holds it.
    pub const WORDS: usize = 7;

    /// As words of a buffer.
    pub fn words(&self) -> [u32; Self::WORDS] {
        let Self { learning_rate, beta1, beta2, eps, max_norm, share, step } = *self;
        let [a, b, c, d, e, f] = [learning_rate, beta1, beta2, eps, max_norm, share].map(f32::to_bits);
        [a, b, c, d, e, f, step]
    }
}

/// The kernels' text, or which activation has none.
pub fn layers_source(operands: Operands, act: Act) -> Result<String> {
    let number = match act {
        Act::Tanh => 0,
        Act::Relu => 1,
        Act::Sigmoid => 2,
        other => {
            let name = format!("{other:?}").to_lowercase();
            return Err(Error::Invalid(format!("activation {name}: on a GPU wanted tanh, relu or sigmoid")));
        }
    };
    let numbers = [
        ("SIXTEEN", usize::from(operands.bytes() == 2)),
        ("F16", usize::from(operands == Operands::F16)),
        ("EXACT", usize::from(operands == Operands::F32)),
        ("ACT", number),
        ("STRIP", STRIP),
        ("MAX_SEGMENTS", MAX_SEGMENTS),
        ("NORM_BLOCKS", NORM_BLOCKS),
        ("ENCODE_BYTES", size_of::<EncodeArgs>()),
        ("ACTIVATE_BYTES", size_of::<ActivateArgs>()),
        ("OUTPUTS_BYTES", size_of::<OutputsArgs>()),
        ("ERROR_BYTES", size_of::<ErrorArgs>()),
        ("SLOPES_BYTES", size_of::<SlopesArgs>()),
        ("COLLAPSE_BYTES", size_of::<CollapseArgs>()),
        ("NORM_BYTES", size_of::<NormArgs>()),
        ("ADAM_ARGS_BYTES", size_of::<AdamArgs>()),
        ("ADAM_BYTES", 4 * Adam::WORDS),
    ];
    let mut text = format!("{CUDA_PRELUDE}\n");
    for (name, value) in numbers {
        let _ = writeln!(text, "#define {name} {value}");
    }
    text.push_str(NUMBERS);
    text.push_str(include_str!("layers.cu"));
    Ok(text)
}

/// The compiled kernels.
#[derive(Debug)]
pub struct Layers {
    pub(super) encode: Kernel<EncodeArgs>,
    pub(super) activate: Kernel<ActivateArgs>,
    pub(super) outputs: Kernel<OutputsArgs>,
    pub(super) squared_error: Kernel<ErrorArgs>,
    pub(super) slopes: Kernel<SlopesArgs>,
    pub(super) collapse: Kernel<CollapseArgs>,
    pub(super) norm: Kernel<NormArgs>,
    pub(super) adam: Kernel<AdamArgs>,
}

impl Layers {
    /// Compiles them, or takes them from the cache.
    pub fn new(gpu: &Arc<Gpu>, operands: Operands, act: Act) -> Result<Self> {
        let module = gpu.load("layers", &layers_source(operands, act)?, Math::Fast)?;
        Ok(Self {
            encode: module.kernel("encode")?,
            activate: module.kernel("activate")?,
            outputs: module.kernel("outputs")?,
            squared_error: module.kernel("squared_error")?,
            slopes: module.kernel("slopes")?,
            collapse: module.kernel("collapse")?,
            norm: module.kernel("gradient_norm")?,
            adam: module.kernel("adam")?,
        })
    }
}
