//! Stacks of linear layers on a GPU: forward, backward and Adam, queued and never waited for.

use super::descent::Descent;
use super::layers::{
    ActivateArgs, CollapseArgs, EncodeArgs, ErrorArgs, Layers, MAX_SEGMENTS, OutputsArgs, STRIP, Segment, SlopesArgs,
    THREADS,
};
use super::layout::{Layer, Layout, pitch_of};
use crate::{Act, Precision};
use operant_base::{Error, Result};
use operant_device::cuda::{Blas, Buffer, DevicePtr, Gemm, Gpu, Matrix, Operands, Product};
use std::sync::Arc;

/// Networks of the same hidden sizes, with their parameters and Adam's moments in the GPU's memory.
#[derive(Debug)]
pub struct Mlp {
    gpu: Arc<Gpu>,
    blas: Arc<Blas>,
    descent: Descent,
    layout: Layout,
    operands: Operands,
    params: Buffer<f32>,
    /// The parameters as products read them, if that is not as they are.
    image: Option<Buffer<u8>>,
    gradients: Buffer<f32>,
}

/// What lies between layers, for up to so many rows: `[nets, rows, pitch]` each, where rows are those of a pass.
#[derive(Debug)]
pub struct Workspace {
    rows: usize,
    /// `[rows, pitch]`
    input: Buffer<u8>,
    hidden: Vec<Buffer<u8>>,
    output: Buffer<f32>,
    /// None where nothing is learned.
    back: Option<Back>,
}

/// What gradients need.
#[derive(Debug)]
struct Back {
    d_output: Buffer<u8>,
    /// Gradients of a layer's activations, in turn.
    d_hidden: [Buffer<u8>; 2],
    /// Of each layer `[nets, strips, pitch]`: sums over rows of gradients.
    sums: Vec<Buffer<f32>>,
}

/// Products for so many rows.
#[derive(Debug)]
pub struct Pass {
    rows: usize,
    forward: Vec<Gemm>,
    /// Gradients of weights, and of inputs of all layers but the first.
    weights: Vec<Gemm>,
    inputs: Vec<Gemm>,
}

impl Pass {
    /// How many.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// Rows of sums `[strips, columns]` that become one.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    /// Where they lie.
    pub from: DevicePtr,
    /// Where their sum goes.
    pub to: DevicePtr,
    /// Rows.
    pub strips: usize,
    /// Columns, and numbers from one row to the next.
    pub columns: usize,
}

/// What products of a precision multiply on a GPU.
pub fn operands_of(precision: Precision) -> Operands {
    match precision {
        Precision::F32 => Operands::F32,
        Precision::Tf32 => Operands::Tf32,
        Precision::Bf16 => Operands::Bf16,
        Precision::F16 => Operands::F16,
    }
}

impl Mlp {
    /// Networks with parameters 0; [`send`](Self::send) sets them.
    pub fn new(gpu: &Arc<Gpu>, layout: Layout, act: Act, precision: Precision) -> Result<Self> {
        let operands = operands_of(precision);
        let (blas, layers) = (Blas::new(gpu)?, Layers::new(gpu, operands, act)?);
        let (len, lower) = (layout.len(), "network.hidden");
        let buffer = |what| Buffer::new(gpu, len, what, lower);
        Ok(Self {
            params: buffer("parameters")?,
            gradients: buffer("gradients")?,
            image: match operands.bytes() {
                2 => Some(Buffer::new(gpu, 2 * len, "weights", lower)?),
                _ => None,
            },
            gpu: Arc::clone(gpu),
            blas,
            descent: Descent::with(gpu, layers, len, lower)?,
            layout,
            operands,
        })
    }

    /// Where parameters lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of a number that products read.
    pub fn operand_bytes(&self) -> usize {
        self.operands.bytes()
    }

    /// Parameters, `[layout.len()]` of f32.
    pub fn params(&self) -> DevicePtr {
        self.params.pointer()
    }

    /// Gradients, which lie as parameters do.
    pub fn gradients(&self) -> DevicePtr {
        self.gradients.pointer()
    }

    fn image(&self) -> DevicePtr {
        self.image.as_ref().map_or(self.params.pointer(), Buffer::pointer)
    }

    /// Buffers for up to `rows` rows, with those of gradients if it `learns`. `setting` is what to lower if there is no room.
    pub fn workspace(&self, rows: usize, learns: bool, setting: &str) -> Result<Workspace> {
        let (nets, bytes) = (self.layout.nets, self.operands.bytes());
        let numbers = |columns: usize| nets * rows * pitch_of(columns);
        let buffer = |columns, what| Buffer::new(&self.gpu, numbers(columns) * bytes, what, setting);
        let (last, hidden) = self.layout.layers.split_last().ok_or_else(|| Error::Invalid("no layers".into()))?;
        let widest = hidden.iter().map(|layer| layer.outputs).max().unwrap_or(0);
        let sums = |layer: &Layer| {
            let len = nets * rows.div_ceil(STRIP) * pitch_of(layer.outputs);
            Buffer::new(&self.gpu, len, "sums of gradients", setting)
        };
        let back = || -> Result<Back> {
            Ok(Back {
                d_output: buffer(last.outputs, "gradients of outputs")?,
                d_hidden: [buffer(widest, "gradients of layers")?, buffer(widest, "gradients of layers")?],
                sums: self.layout.layers.iter().map(sums).collect::<Result<_>>()?,
            })
        };
        Ok(Workspace {
            rows,
            input: Buffer::new(&self.gpu, rows * pitch_of(self.layout.inputs()) * bytes, "a batch", setting)?,
            hidden: hidden.iter().map(|layer| buffer(layer.outputs, "layers")).collect::<Result<_>>()?,
            output: Buffer::new(&self.gpu, numbers(last.outputs), "outputs", setting)?,
            back: learns.then(back).transpose()?,
        })
    }

    /// Products for `rows` rows, with those of gradients if it `learns`.
    pub fn pass(&self, rows: usize, learns: bool) -> Result<Pass> {
        let (layers, nets) = (&self.layout.layers, self.layout.nets);
        let matrix = |columns: usize, rows: usize| Matrix {
            pitch: pitch_of(columns),
            stride: rows * pitch_of(columns),
            turned: false,
        };
        let of_weight =
            |layer: &Layer| Matrix { pitch: pitch_of(layer.inputs), stride: self.layout.stride, turned: false };
        let turned = |matrix: Matrix| Matrix { turned: true, ..matrix };
        // The first layer's input is the same for all networks.
        let of_input = |i: usize, layer: &Layer| Matrix {
            stride: if i == 0 { 0 } else { rows * pitch_of(layer.inputs) },
            ..matrix(layer.inputs, rows)
        };
        let product = |m, n, k, [a, b, d]: [Matrix; 3], wide| {
            Gemm::new(&self.blas, &Product { m, n, k, a, b, d, count: nets, operands: self.operands, wide })
        };
        let (mut forward, mut weights, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
        for (i, layer) in layers.iter().enumerate() {
            let (outputs, columns) = (pitch_of(layer.outputs), pitch_of(layer.inputs));
            let (x, y, weight) = (of_input(i, layer), matrix(layer.outputs, rows), of_weight(layer));
            forward.push(product(rows, outputs, columns, [x, turned(weight), y], i + 1 == layers.len())?);
            if learns {
                weights.push(product(outputs, columns, rows, [turned(y), x, weight], true)?);
                if i > 0 {
                    inputs.push(product(rows, columns, outputs, [y, weight, x], false)?);
                }
            }
        }
        Ok(Pass { rows, forward, weights, inputs })
    }

    /// Rows `[rows, width]` of f32 as the input of the next pass.
    pub fn encode(&self, workspace: &Workspace, from: DevicePtr, rows: usize) -> Result<()> {
        let width = self.layout.inputs();
        self.launch_encode(from, workspace.input.pointer(), rows, width)
    }

    fn launch_encode(&self, from: DevicePtr, to: DevicePtr, rows: usize, width: usize) -> Result<()> {
        let pitch = pitch_of(width);
        let args = EncodeArgs { from, to, rows: rows as u32, width: width as u32, pitch: pitch as u32, unused: 0 };
        self.descent.layers.encode.launch((rows * pitch).div_ceil(THREADS) as u32, THREADS as u32, &args)
    }

    /// All networks on an input as products read it, `[rows, pitch]`. [`Workspace::output`] then has sums without the last bias.
    pub fn forward(&self, workspace: &Workspace, pass: &Pass, input: DevicePtr) -> Result<()> {
        assert!(pass.rows <= workspace.rows, "{} rows in a workspace of {}", pass.rows, workspace.rows);
        let mut x = input;
        for (i, (layer, gemm)) in self.layout.layers.iter().zip(&pass.forward).enumerate() {
            let hidden = workspace.hidden.get(i).map(Buffer::pointer);
            let y = hidden.unwrap_or(workspace.output.pointer());
            gemm.launch(x, self.weight(layer), y, false)?;
            if hidden.is_some() {
                let args = ActivateArgs {
                    z: y,
                    bias: self.params.pointer().offset(4 * layer.bias),
                    bias_stride: self.layout.stride as u64,
                    rows: pass.rows as u32,
                    width: layer.outputs as u32,
                    pitch: pitch_of(layer.outputs) as u32,
                    unused: 0,
                };
                let blocks = self.layout.nets * pass.rows.div_ceil(STRIP);
                self.descent.layers.activate.launch(blocks as u32, THREADS as u32, &args)?;
            }
            x = y;
        }
        Ok(())
    }

    fn weight(&self, layer: &Layer) -> DevicePtr {
        self.image().offset(self.operands.bytes() * layer.weight)
    }

    /// Outputs of one network after a pass, with the last bias, as `[rows, width]` of f32.
    pub fn outputs(&self, workspace: &Workspace, pass: &Pass, net: usize, width: usize, to: DevicePtr) -> Result<()> {
        let pitch = self.layout.output_pitch();
        let args = OutputsArgs {
            z: workspace.output.pointer().offset(4 * net * pass.rows * pitch),
            bias: self.params.pointer().offset(4 * self.layout.last_bias(net)),
            to,
            rows: pass.rows as u32,
            width: width as u32,
            pitch: pitch as u32,
            unused: 0,
        };
        self.descent.layers.outputs.launch((pass.rows * width).div_ceil(THREADS) as u32, THREADS as u32, &args)
    }

    /// Gradients of squared errors of one network's outputs, of their sum over rows and mean over columns, for [`backward`](Self::backward).
    pub fn squared_error(
        &self,
        workspace: &Workspace,
        pass: &Pass,
        net: usize,
        width: usize,
        target: DevicePtr,
    ) -> Result<()> {
        let (pitch, rows) = (self.layout.output_pitch(), pass.rows);
        let first = net * rows * pitch;
        let args = ErrorArgs {
            z: workspace.output.pointer().offset(4 * first),
            bias: self.params.pointer().offset(4 * self.layout.last_bias(net)),
            target,
            d: workspace.d_output().offset(self.operands.bytes() * first),
            rows: rows as u32,
            width: width as u32,
            pitch: pitch as u32,
            unused: 0,
        };
        self.descent.layers.squared_error.launch((rows * pitch).div_ceil(THREADS) as u32, THREADS as u32, &args)
    }

    /// The matrix products of the largest layers in a pass that learns, without what surrounds them, and how many floating-point
    /// operations they are: what a GPU reaches at these sizes. Gradients are left without meaning.
    pub fn largest_products(&self, workspace: &Workspace, pass: &Pass) -> Result<f64> {
        let size = |layer: &Layer| layer.inputs * layer.outputs;
        let most = self.layout.layers.iter().map(size).max().unwrap_or(0);
        let back = workspace.back.as_ref().expect("a workspace that learns");
        let mut flops = 0.0;
        for (i, layer) in self.layout.layers.iter().enumerate().filter(|(_, layer)| size(layer) == most) {
            let x = if i == 0 { workspace.input.pointer() } else { workspace.hidden[i - 1].pointer() };
            let y = workspace.hidden.get(i).map_or(workspace.output.pointer(), Buffer::pointer);
            let d =
                if workspace.hidden.get(i).is_some() { back.d_hidden[0].pointer() } else { back.d_output.pointer() };
            pass.forward[i].launch(x, self.weight(layer), y, false)?;
            pass.weights[i].launch(d, x, self.gradients.pointer().offset(4 * layer.weight), false)?;
            flops += pass.forward[i].flops() + pass.weights[i].flops();
            if i > 0 {
                pass.inputs[i - 1].launch(d, self.weight(layer), back.d_hidden[1].pointer(), false)?;
                flops += pass.inputs[i - 1].flops();
            }
        }
        Ok(flops)
    }

    /// Gradients of all parameters of a pass whose gradients of outputs the workspace has; with `adds` they are added to those
    /// of passes before, of which the first had the most rows.
    pub fn backward(&self, workspace: &Workspace, pass: &Pass, input: DevicePtr, adds: bool) -> Result<()> {
        let back = workspace.back.as_ref().expect("a workspace that learns");
        let rows = pass.rows;
        let mut d = back.d_output.pointer();
        for (i, layer) in self.layout.layers.iter().enumerate().rev() {
            let pitch = pitch_of(layer.outputs);
            let slopes = SlopesArgs {
                d,
                h: workspace.hidden.get(i).map_or(DevicePtr::NONE, Buffer::pointer),
                sums: back.sums[i].pointer(),
                rows: rows as u32,
                pitch: pitch as u32,
                most_strips: workspace.rows.div_ceil(STRIP) as u32,
                adds: u32::from(adds),
            };
            let blocks = self.layout.nets * rows.div_ceil(STRIP) * (pitch / 8).div_ceil(THREADS);
            self.descent.layers.slopes.launch(blocks as u32, THREADS as u32, &slopes)?;
            let x = if i == 0 { input } else { workspace.hidden[i - 1].pointer() };
            pass.weights[i].launch(d, x, self.gradients.pointer().offset(4 * layer.weight), adds)?;
            if i > 0 {
                let dx = back.d_hidden[i % 2].pointer();
                pass.inputs[i - 1].launch(d, self.weight(layer), dx, false)?;
                d = dx;
            }
        }
        Ok(())
    }

    /// Ends the gradient of passes, the first of `rows` rows, and steps with Adam as `how` (an [`Adam`](super::Adam) in the
    /// GPU's memory) says. `besides` are sums of others, of gradients too; the gradient's norm goes to `norm`.
    pub fn step(
        &self,
        workspace: &Workspace,
        rows: usize,
        besides: &[Sums],
        how: DevicePtr,
        norm: DevicePtr,
        update: u32,
    ) -> Result<()> {
        let back = workspace.back.as_ref().expect("a workspace that learns");
        let (strips, most) = (rows.div_ceil(STRIP), workspace.rows.div_ceil(STRIP));
        let of_layers = self.layout.layers.iter().zip(&back.sums).flat_map(|(layer, sums)| {
            let columns = pitch_of(layer.outputs);
            (0..self.layout.nets).map(move |net| Sums {
                from: sums.pointer().offset(4 * net * most * columns),
                to: self.gradients.pointer().offset(4 * (net * self.layout.stride + layer.bias)),
                strips,
                columns,
            })
        });
        let mut args = CollapseArgs { segments: [Segment::default(); MAX_SEGMENTS], count: 0, unused: 0 };
        let mut blocks = 0;
        for sums in of_layers.chain(besides.iter().copied()) {
            args.segments[args.count as usize] = Segment {
                from: sums.from,
                to: sums.to,
                strips: sums.strips as u32,
                pitch: sums.columns as u32,
                first_block: blocks,
                unused: 0,
            };
            args.count += 1;
            blocks += sums.columns.div_ceil(32) as u32;
        }
        self.descent.layers.collapse.launch(blocks, THREADS as u32, &args)?;
        self.descent.step([self.params.pointer(), self.image()], self.gradients.pointer(), how, norm, update)
    }

    /// Sets parameters and moments, in the order of [`Params::values`](crate::Params::values).
    pub fn send(&self, params: &[f32], moments: [&[f32]; 2]) -> Result<()> {
        self.params.upload(&self.layout.padded(params))?;
        self.descent.send([&self.layout.padded(moments[0]), &self.layout.padded(moments[1])])?;
        match &self.image {
            Some(image) => self.launch_encode(self.params.pointer(), image.pointer(), self.layout.len() / 64, 64),
            None => Ok(()),
        }
    }

    /// Gives other networks of this kind, which may work in another stream, the weights as they are now, in the order of this stream.
    pub fn give_weights(&self, to: &Self) -> Result<()> {
        self.params.copy_to(&to.params)?;
        match (&self.image, &to.image) {
            (Some(from), Some(to)) => from.copy_to(to),
            _ => Ok(()),
        }
    }

    /// Parameters as they are now, into the places of [`Params::values`](crate::Params::values).
    pub fn fetch_params(&self, to: &mut [f32]) -> Result<()> {
        self.fetch(&self.params, to)
    }

    /// Adam's moments likewise.
    pub fn fetch_moments(&self, [mean, square]: [&mut [f32]; 2]) -> Result<()> {
        self.fetch(&self.descent.mean, mean)?;
        self.fetch(&self.descent.square, square)
    }

    fn fetch(&self, from: &Buffer<f32>, to: &mut [f32]) -> Result<()> {
        let mut padded = vec![0.0; self.layout.len()];
        from.download(0, &mut padded)?;
        self.layout.unpadded(&padded, to);
        Ok(())
    }
}

impl Workspace {
    /// The input, `[rows, pitch]` as products read it.
    pub fn input(&self) -> DevicePtr {
        self.input.pointer()
    }

    /// Outputs of all networks, `[nets, rows, pitch]` of f32, without the last bias.
    pub fn output(&self) -> DevicePtr {
        self.output.pointer()
    }

    /// Where gradients of outputs go, `[nets, rows, pitch]` as products read them; 0 beyond a network's outputs.
    pub fn d_output(&self) -> DevicePtr {
        self.back.as_ref().map_or(DevicePtr::NONE, |back| back.d_output.pointer())
    }
}
