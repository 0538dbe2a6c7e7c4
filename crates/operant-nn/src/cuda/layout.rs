//! Where the parameters of stacks of linear layers lie on a GPU: rows padded to whole vectors, networks at equal distances, so that
//! products of all of them are one launch. Padding is 0 and stays 0.

use crate::Params;
use operant_base::{Error, Result};

/// Numbers that rows are padded to a multiple of: 16 bytes of bf16.
const VECTOR: usize = 8;
/// Numbers that tensors begin at a multiple of: 256 bytes of bf16, which the library takes for granted.
const ALIGN: usize = 128;
/// Most layers.
const MAX_LAYERS: usize = 16;

/// Numbers from one row of so many columns to the next.
pub fn pitch_of(columns: usize) -> usize {
    columns.next_multiple_of(VECTOR)
}

/// A linear layer: weights `[outputs, inputs]`, padded, and a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    pub(super) inputs: usize,
    /// The most that a network has.
    pub(super) outputs: usize,
    /// From the beginning of a network.
    pub(super) weight: usize,
    pub(super) bias: usize,
}

/// A tensor's way to its place.
#[derive(Clone, Debug)]
struct Placed {
    from: usize,
    to: usize,
    rows: usize,
    columns: usize,
    pitch: usize,
}

/// Places of all parameters of some networks.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) layers: Vec<Layer>,
    pub(super) nets: usize,
    /// Numbers from one network to the next.
    pub(super) stride: usize,
    len: usize,
    placed: Vec<Placed>,
    extras: Vec<(String, usize)>,
}

impl Layout {
    /// Networks whose layers are called `<net>.0`, `<net>.2` …, and tensors besides. All networks have the same hidden sizes.
    pub fn new(params: &Params, nets: &[&str], extras: &[&str]) -> Result<Self> {
        let find = |name: &str| params.specs().iter().find(|spec| spec.name == name);
        let mut layers: Vec<Layer> = Vec::new();
        let mut shapes = Vec::new();
        while let Some(first) = find(&format!("{}.{}.weight", nets[0], 2 * layers.len())) {
            let number = 2 * layers.len();
            let mut layer = Layer { inputs: first.shape[1], outputs: 0, weight: 0, bias: 0 };
            for net in nets {
                let name = format!("{net}.{number}");
                let (weight, bias) = (find(&format!("{name}.weight")), find(&format!("{name}.bias")));
                let (Some(weight), Some(bias)) = (weight, bias) else {
                    return Err(Error::Invalid(format!("a network without {name}.weight and {name}.bias")));
                };
                let &[outputs, inputs] = weight.shape.as_slice() else {
                    return Err(Error::Invalid(format!("{name}: wanted a linear layer")));
                };
                if inputs != layer.inputs {
                    return Err(Error::Invalid(format!("{name}: {inputs} inputs beside {}", layer.inputs)));
                }
                layer.outputs = layer.outputs.max(outputs);
                shapes.push((weight.offset, bias.offset, outputs));
            }
            layers.push(layer);
        }
        if layers.is_empty() || layers.len() > MAX_LAYERS {
            return Err(Error::Invalid(format!("{} linear layers: wanted 1 to {MAX_LAYERS}", layers.len())));
        }
        let mut stride = 0;
        for layer in &mut layers {
            layer.weight = stride;
            layer.bias = stride + (pitch_of(layer.outputs) * pitch_of(layer.inputs)).next_multiple_of(ALIGN);
            stride = layer.bias + pitch_of(layer.outputs).next_multiple_of(ALIGN);
        }
        let mut placed = Vec::new();
        for (i, (weight, bias, outputs)) in shapes.into_iter().enumerate() {
            let (layer, first) = (layers[i / nets.len()], i % nets.len() * stride);
            let (columns, pitch) = (layer.inputs, pitch_of(layer.inputs));
            placed.push(Placed { from: weight, to: first + layer.weight, rows: outputs, columns, pitch });
            placed.push(Placed { from: bias, to: first + layer.bias, rows: 1, columns: outputs, pitch: outputs });
        }
        let mut len = nets.len() * stride;
        let mut places = Vec::new();
        for name in extras {
            let spec = find(name).ok_or_else(|| Error::Invalid(format!("a network without {name}")))?;
            let columns = spec.count();
            placed.push(Placed { from: spec.offset, to: len, rows: 1, columns, pitch: columns });
            places.push(((*name).to_owned(), len));
            len += columns.next_multiple_of(ALIGN);
        }
        let count: usize = placed.iter().map(|tensor| tensor.rows * tensor.columns).sum();
        let all = params.count();
        if count != all {
            return Err(Error::Invalid(format!("{all} parameters, of which linear layers are {count}")));
        }
        Ok(Self { layers, nets: nets.len(), stride, len, placed, extras: places })
    }

    /// Numbers in all, a multiple of 128.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a layout has a layer.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Numbers of an input.
    pub fn inputs(&self) -> usize {
        self.layers[0].inputs
    }

    /// Numbers of an output, padded.
    pub fn output_pitch(&self) -> usize {
        pitch_of(self.layers[self.layers.len() - 1].outputs)
    }

    /// Where the last bias of a network lies.
    pub fn last_bias(&self, net: usize) -> usize {
        net * self.stride + self.layers[self.layers.len() - 1].bias
    }

    /// Where a tensor besides the layers lies.
    pub fn extra(&self, name: &str) -> Option<usize> {
        self.extras.iter().find(|(known, _)| known == name).map(|(_, at)| *at)
    }

    /// Numbers in the order of [`Params::values`] as they lie on the GPU.
    pub fn padded(&self, values: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; self.len];
        for tensor in &self.placed {
            for row in 0..tensor.rows {
                let from = &values[tensor.from + row * tensor.columns..][..tensor.columns];
                out[tensor.to + row * tensor.pitch..][..tensor.columns].copy_from_slice(from);
            }
        }
        out
    }

    /// The way back; what lies between tensors of `values` stays as it is.
    pub fn unpadded(&self, padded: &[f32], values: &mut [f32]) {
        for tensor in &self.placed {
            for row in 0..tensor.rows {
                let from = &padded[tensor.to + row * tensor.pitch..][..tensor.columns];
                values[tensor.from + row * tensor.columns..][..tensor.columns].copy_from_slice(from);
            }
        }
    }
}
