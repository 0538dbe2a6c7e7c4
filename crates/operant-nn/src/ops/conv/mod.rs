//! Convolution of images `[B, H, W, C]`, without unrolling them: an output row is one two-level product that reads the
//! padded rows in place, with the kernel's rows as its outer sum.
//!
//! The gradient of the image is the same with the kernel turned round; for a stride s, each of the s² kinds of input pixel
//! (by its place modulo s) has its own part of the kernel, so nothing is multiplied by zeros. Groups are staged one at a
//! time and then are convolutions of their own.

mod depthwise;
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
mod direct;
mod gradient;
mod padded;

use crate::cuda::{Products, Twin};
use operant_base::Result;
use operant_device::gemm::{Product, Strips};
use operant_lanes::Vectors;
use crate::channels;
use crate::check::{Case, Random, fixed, rows, whole};
use crate::elementwise::{activate, activation_gradient};
use crate::op::{Act, Backward, Forward, Kind, Needs, Op, Packing, ReadBy, Type, Types};
use crate::real::{Compute, Real, Scratch, Start};
use crate::{Graph, Init, Node};
#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
use direct::Direct;
use padded::{Border, Padded};

/// Where no kernels take images as they are.
#[cfg(any(not(target_arch = "x86_64"), operant_portable))]
enum Direct {}

#[cfg(any(not(target_arch = "x86_64"), operant_portable))]
impl Direct {
    fn new<R: Real>(_: &Sizes, _: Act, _: Compute) -> Option<Self> {
        None
    }

    fn scratch(&self) -> usize {
        match *self {}
    }

    fn forward<R: Real>(&self, _: bool, _: &mut Forward<R>, _: &[R]) {
        match *self {}
    }

    fn backward<R: Real>(&self, _: bool, _: &mut Backward<R>) -> bool {
        match *self {}
    }
}

/// Inputs: x `[B, H, W, C]`, weight `[O, C/groups, kh, kw]`, and with `bias` a bias `[O]`; output `[B, H', W', O]`.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// From an output pixel to the next, in input pixels.
    pub stride: usize,
    /// Pixels of border on each side.
    pub padding: usize,
    /// The border repeats the image from its other side; else it is zero.
    pub circular: bool,
    /// Parts of the channels that do not see each other.
    pub groups: usize,
    /// Whether there is a third input.
    pub bias: bool,
    /// Applied to the result.
    pub act: Act,
}

/// Bytes of results that are made in one go: half of the nearest cache, from which the activation reads them.
const STRIP_BYTES: usize = 16 << 10;

/// All sizes of a convolution of some images.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    images: usize,
    /// Input and output: rows, pixels per row.
    size: [usize; 2],
    out: [usize; 2],
    kernel: [usize; 2],
    /// Channels of the input and the output, in all and of a group.
    c: usize,
    o: usize,
    cg: usize,
    og: usize,
    groups: usize,
    stride: usize,
    padding: usize,
    circular: bool,
}

impl Sizes {
    /// Numbers of the kernel per pair of channels.
    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// The same images as one group: how a depthwise convolution stages them.
    fn as_one_group(&self) -> Self {
        Self { groups: 1, cg: self.c, og: self.o, ..*self }
    }

    fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.cg == 1 && self.og == 1
    }

    /// Products this small run in f32 whatever the plan's precision.
    fn exact(&self) -> bool {
        self.cg.min(self.og) < 16
    }

    fn x_len(&self) -> usize {
        self.size[0] * self.size[1] * self.c
    }

    fn y_len(&self) -> usize {
        self.out[0] * self.out[1] * self.o
    }

    /// Output rows that are made in one go.
    fn strips(&self) -> usize {
        (STRIP_BYTES / (4 * self.out[1] * self.o)).clamp(1, self.out[0])
    }

    /// Padded rows that so many output rows see.
    fn seen_rows(&self, rows: usize) -> usize {
        (rows - 1) * self.stride + self.kernel[0]
    }

    /// The padded image, `depth` channels of it.
    fn x_border(&self, depth: usize, rows: usize) -> Border {
        Border {
            size: self.size,
            channels: self.c,
            depth,
            before: [self.padding; 2],
            height: self.size[0] + 2 * self.padding,
            width: self.size[1] + 2 * self.padding,
            circular: self.circular,
            rows,
        }
    }
}

impl Conv {
    fn sizes(&self, types: &Types, rows: usize) -> Sizes {
        let ([h, w, c], [o, cg, kh, kw]) = (&types.x[0].shape[..], &types.x[1].shape[..]) else {
            unreachable!("shapes were checked");
        };
        let [ho, wo, _] = types.y[0].shape[..] else { unreachable!("shapes were checked") };
        let mut sizes = Sizes {
            images: rows,
            size: [*h, *w],
            out: [ho, wo],
            kernel: [*kh, *kw],
            c: *c,
            o: *o,
            cg: *cg,
            og: o / self.groups,
            groups: self.groups,
            stride: self.stride,
            padding: self.padding,
            circular: self.circular && self.padding > 0,
        };
        if sizes.kernel == [1, 1] && self.stride == 1 && self.padding == 0 {
            // Pixels do not see each other: all images are one row.
            (sizes.images, sizes.size) = (1, [1, rows * h * w]);
            sizes.out = sizes.size;
        }
        sizes
    }

    /// Numbers of the gradient before the activation that are held at once.
    fn gradient_len(&self, s: &Sizes) -> usize {
        match self.act {
            Act::Identity => 0,
            _ if s.is_depthwise() => s.images * s.y_len(),
            _ => s.y_len(),
        }
    }

    /// The gradient before the activation.
    #[inline(always)]
    fn gradient<'a, R: Real, L: Vectors<R>>(&self, y: &[R], dy: &'a [R], room: &'a mut [R]) -> &'a [R] {
        if self.act == Act::Identity {
            return dy;
        }
        activation_gradient::<R, L>(self.act, &[], y, dy, room);
        room
    }
}

/// Numbers in which a gradient of a bias is summed: pixels in one row, so that few channels fill several registers.
fn bias_row(o: usize) -> usize {
    let row = channels::row_len(o);
    if row < 64 { 4 * row } else { row }
}

impl Op for Conv {
    const NAME: &'static str = "convolution";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = if self.bias { 3 } else { 2 };
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        let (Kind::Rows, [h, w, c]) = (x[0].kind, &x[0].shape[..]) else {
            return Err("wanted images [B, H, W, C]".into());
        };
        let [o, cg, kh, kw] = x[1].shape[..] else { return Err("wanted a weight [out, in/groups, kh, kw]".into()) };
        if self.stride == 0 || self.groups == 0 || x[0].is_empty() || x[1].is_empty() {
            return Err("wanted sizes, stride and groups of at least 1".into());
        }
        if cg * self.groups != *c || o % self.groups != 0 {
            return Err(format!("{c} channels to {o} in {} groups: wanted [{o}, {c}/groups, kh, kw]", self.groups));
        }
        let (hp, wp) = (h + 2 * self.padding, w + 2 * self.padding);
        if kh > hp || kw > wp {
            return Err(format!("a kernel of {kh}x{kw} in {hp}x{wp} pixels: wanted a smaller one, or more padding"));
        }
        if self.circular && self.padding > *h.min(w) {
            return Err(format!("circular padding of {}: wanted at most the size of the image", self.padding));
        }
        if self.bias && x[2].shape != [o] {
            return Err(format!("wanted a bias [{o}]"));
        }
        Ok(vec![Type::rows([(hp - kh) / self.stride + 1, (wp - kw) / self.stride + 1, o])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 1, outputs: u32::from(self.act != Act::Identity) }
    }

    fn flops(&self, types: &Types) -> u64 {
        let s = self.sizes(types, 1);
        2 * (s.y_len() * s.cg * s.taps()) as u64
    }

    fn packings(&self, types: &Types) -> Vec<Packing> {
        let s = self.sizes(types, 1);
        if s.is_depthwise() {
            return Vec::new();
        }
        let [kh, kw] = s.kernel;
        let (taps, exact) = (s.taps() as isize, s.exact());
        let forward = (0..s.groups).map(|group| Packing {
            input: 1,
            lens: [kh, kw, s.cg, s.og],
            strides: [kw as isize, 1, taps, s.cg as isize * taps],
            offset: group * s.og * s.cg * s.taps(),
            read_by: ReadBy::Forward,
            exact,
            words: false,
        });
        forward.chain(gradient::packings(&s)).collect()
    }

    fn scratch<R: Real>(&self, types: &Types, rows: usize, compute: Compute) -> Scratch {
        let s = self.sizes(types, rows);
        let dz = Scratch::real(self.gradient_len(&s));
        let bias = Scratch::real(bias_row(s.o));
        if s.is_depthwise() {
            return depthwise::scratch::<R>(&s, compute).and(bias).and(dz);
        }
        let compute = compute.or_exact(s.exact());
        let forward = s.x_border(s.cg, s.seen_rows(s.strips())).scratch::<R>(compute);
        let gradients = gradient::image_scratch::<R>(&s, compute).and(gradient::weight_scratch::<R>(&s, compute));
        let direct = Direct::new::<R>(&s, self.act, compute).map_or(0, |direct| direct.scratch());
        forward.or(gradients.and(bias).and(dz)).or(Scratch::real(direct))
    }

    fn adds(&self) -> bool {
        true
    }

    fn fuse(&self, act: Act, training: bool) -> Option<Self> {
        let can = self.act == Act::Identity && !(training && act.needs_input());
        can.then_some(Self { act, ..*self })
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (&[h, w, c], &[ho, wo, o], &[_, _, kh, kw]) =
            (&types.x[0].shape[..], &types.y[0].shape[..], &types.x[1].shape[..])
        else {
            return None;
        };
        let (image, out, channels, kernel) = ([h, w], [ho, wo], [c, o], [kh, kw]);
        let Self { stride, padding, circular, groups, bias, act } = *self;
        Some(Products { image, out, channels, kernel, stride, padding, circular, groups, bias, act }.twin(rows))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let s = self.sizes(c.types, c.rows);
        let bias = if self.bias { c.x[2] } else { &[] };
        if s.is_depthwise() {
            depthwise::forward::<R, L>(&s, self.act, c, bias);
            return;
        }
        let compute = c.compute.or_exact(s.exact());
        if let Some(direct) = Direct::new::<R>(&s, self.act, compute) {
            direct.forward(self.act == Act::Relu, c, bias);
            return;
        }
        let ([ho, wo], [kh, kw]) = (s.out, s.kernel);
        let most = s.strips();
        let mut padded = Padded::new(s.x_border(s.cg, s.seen_rows(most)), compute, c.room.again());
        for (x, y) in c.x[0].chunks_exact(s.x_len()).zip(c.y[0].chunks_exact_mut(s.y_len())) {
            for group in 0..s.groups {
                padded.begin(group * s.cg);
                let product = Product {
                    m: wo,
                    n: s.og,
                    outer: kh,
                    inner: kw * s.cg,
                    a_row: s.stride * s.cg,
                    a_outer: padded.stride,
                    a_inner: 1,
                    b_outer: 0,
                    b_inner: 0,
                    c_row: s.o,
                };
                let start = if bias.is_empty() { Start::Zero } else { Start::Bias(&bias[group * s.og..][..s.og]) };
                for row in (0..ho).step_by(most) {
                    let count = most.min(ho - row);
                    let at = padded.rows(x, row * s.stride, s.seen_rows(count));
                    let to = &mut y[row * wo * s.o..][..count * wo * s.o];
                    let (left, packed) = (padded.left(x).from(at), c.packed.get(group));
                    let strips = Strips { count, a: s.stride * padded.stride, c: wo * s.o };
                    let (relu, part) = (self.act == Act::Relu, &mut to[group * s.og..]);
                    let done = R::product_strips(compute, &product, strips, left, packed, start, relu, part);
                    if !done && group + 1 == s.groups {
                        activate::<R, L>(self.act, to);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let s = self.sizes(c.types, c.rows);
        let direct = Direct::new::<R>(&s, self.act, c.compute.or_exact(s.exact()));
        if direct.is_some_and(|direct| direct.backward(self.act == Act::Relu, c)) {
            return;
        }
        let room = c.room.take(Scratch::real(self.gradient_len(&s))).real;
        let sums = c.room.take(Scratch::real(bias_row(s.o))).real;
        sums.fill(R::default());
        let has_bias = self.bias && !c.dx[2].is_empty();
        if s.is_depthwise() {
            let dz = self.gradient::<R, L>(c.y[0], c.dy[0], room);
            if has_bias {
                channels::sums::<R, L>(dz, sums);
            }
            depthwise::backward::<R, L>(&s, c, dz);
        } else {
            let compute = c.compute.or_exact(s.exact());
            let mut weight = gradient::Weight::new(&s, compute, c.room.take(gradient::weight_scratch::<R>(&s, compute)));
            let mut image = gradient::Image::new(&s, compute, c.room.again());
            let turn = gradient::Products { compute, packed: c.packed };
            // Image by image and part by part, so that a gradient is in a near cache for all that read it.
            for i in 0..s.images {
                let at = i * s.y_len()..(i + 1) * s.y_len();
                let y = if self.act == Act::Identity { &[] } else { &c.y[0][at.clone()] };
                let dz = self.gradient::<R, L>(y, &c.dy[0][at], room);
                let at = i * s.x_len()..(i + 1) * s.x_len();
                for first in (0..s.out[0]).step_by(gradient::turn_rows(&s)) {
                    let part = first..s.out[0].min(first + gradient::turn_rows(&s));
                    if has_bias {
                        let row = s.out[1] * s.o;
                        channels::sums::<R, L>(&dz[part.start * row..part.end * row], sums);
                    }
                    if !c.dx[1].is_empty() {
                        weight.add(&s, &c.x[0][at.clone()], (dz, part.clone()));
                    }
                    if !c.dx[0].is_empty() {
                        image.run(&s, &turn, (dz, part), c.add & 1 == 1, &mut c.dx[0][at.clone()]);
                    }
                }
            }
            if !c.dx[1].is_empty() {
                weight.finish(&s, c.dx[1]);
            }
        }
        if has_bias {
            channels::gather(sums, s.o);
            c.dx[2].iter_mut().zip(&*sums).for_each(|(to, sum)| *to += *sum);
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        let mut add = |op: Self, [h, w, c]: [usize; 3], [o, kh, kw]: [usize; 3]| {
            let mut inputs = vec![rows([h, w, c]), whole([o, c / op.groups, kh, kw])];
            inputs.extend(op.bias.then(|| whole([o])));
            cases.push(Case::op(op, inputs).rows(5));
        };
        let plain = Self { stride: 1, padding: 1, circular: false, groups: 1, bias: true, act: Act::Identity };
        let mut size = |low, high| random.size(low, high);
        add(plain, [size(3, 9), size(3, 20), size(1, 5)], [size(1, 20), 3, 3]);
        add(Self { act: Act::Tanh, stride: 2, ..plain }, [size(3, 9), size(3, 9), size(1, 20)], [size(1, 9), 3, 3]);
        add(Self { circular: true, ..plain }, [size(2, 6), size(2, 6), size(1, 18)], [size(1, 4), 3, 3]);
        let wide = Self { circular: true, padding: 3, stride: 2, bias: false, ..plain };
        add(wide, [size(3, 8), size(3, 8), size(1, 3)], [size(1, 4), 5, 7]);
        add(Self { padding: 0, ..plain }, [size(1, 4), size(1, 4), size(1, 20)], [size(1, 20), 1, 1]);
        add(Self { padding: 0, stride: 3, ..plain }, [size(3, 9), size(3, 9), 3], [4, 2, 2]);
        add(Self { padding: 2, stride: 3, ..plain }, [size(4, 9), size(4, 9), 2], [3, 1, 2]);
        add(Self { groups: 2, act: Act::Sigmoid, ..plain }, [size(2, 5), size(2, 5), 2 * size(2, 9)], [6, 3, 3]);
        let grouped = Self { groups: 3, circular: true, stride: 2, ..plain };
        add(grouped, [size(2, 5), size(2, 5), 3 * size(2, 3)], [3, 3, 2]);
        for channels in [size(2, 15), 16, size(17, 40)] {
            let depthwise = Self { groups: channels, act: Act::Tanh, ..plain };
            add(depthwise, [size(2, 6), size(2, 6), channels], [channels, 3, 3]);
            let (padding, circular) = (size(1, 2), channels > 16);
            let strided = Self { groups: channels, stride: 2, bias: false, padding, circular, ..plain };
            add(strided, [size(3, 6), size(3, 6), channels], [channels, 2, 3]);
        }
        add(Self { groups: 4, ..plain }, [4, 4, 4], [8, 3, 3]);
        // Wide enough for f32 on tiles.
        add(plain, [3, 5, 64], [72, 3, 3]);
        add(Self { stride: 2, circular: true, ..plain }, [4, 6, 64], [64, 3, 3]);
        // Shapes that AVX-512 takes as they are.
        let strided = Self { stride: 2, act: Act::Relu, ..plain };
        add(strided, [4, 32, 8], [16, 3, 3]);
        add(Self { bias: false, ..strided }, [2, 16, 8], [32, 3, 3]);
        add(Self { act: Act::Identity, ..strided }, [4, 16, 16], [16, 3, 3]);
        add(strided, [6, 16, 16], [32, 3, 3]);
        for (act, height) in [(Act::Identity, 4), (Act::Relu, 12)] {
            let inputs = vec![fixed(rows([height, 16, 3])), whole([8, 3, 3, 3]), whole([8])];
            cases.push(Case::op(Self { act, ..plain }, inputs).rows(3));
        }
        cases.push(Case::op(plain, vec![fixed(rows([3, 5, 20])), whole([12, 20, 3, 3]), whole([12])]).rows(3));
        cases
    }
}

/// A convolution layer to be: PyTorch's arguments and their defaults, with a square kernel.
#[derive(Clone, Copy, Debug)]
pub struct Conv2d {
    outputs: usize,
    kernel: usize,
    op: Conv,
}

impl Conv2d {
    /// Stride 1, no padding, one group, a bias.
    pub fn new(outputs: usize, kernel: usize) -> Self {
        let op = Conv { stride: 1, padding: 0, circular: false, groups: 1, bias: true, act: Act::Identity };
        Self { outputs, kernel, op }
    }

    /// From an output pixel to the next, in input pixels.
    pub fn stride(self, stride: usize) -> Self {
        Self { op: Conv { stride, ..self.op }, ..self }
    }

    /// A border of zeros.
    pub fn padding(self, padding: usize) -> Self {
        Self { op: Conv { padding, circular: false, ..self.op }, ..self }
    }

    /// A border that repeats the image from its other side: a periodic domain.
    pub fn circular(self, padding: usize) -> Self {
        Self { op: Conv { padding, circular: true, ..self.op }, ..self }
    }

    /// Parts of the channels that do not see each other; as many as channels for a depthwise convolution.
    pub fn groups(self, groups: usize) -> Self {
        Self { op: Conv { groups, ..self.op }, ..self }
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self { op: Conv { bias: false, ..self.op }, ..self }
    }
}

impl Graph {
    /// A convolution of `[B, H, W, C]` with parameters `<name>.weight` `[out, C/groups, kernel, kernel]` and `<name>.bias`,
    /// initialised as PyTorch does.
    pub fn conv2d(&mut self, name: &str, x: Node, layer: Conv2d) -> Result<Node> {
        let Conv2d { outputs, kernel, op } = layer;
        let inputs = self.features(name, x)? / op.groups.max(1);
        let init = Init::TorchLinear { fan_in: (inputs * kernel * kernel).max(1) };
        let mut nodes = vec![x, self.param(&format!("{name}.weight"), [outputs, inputs, kernel, kernel], init)];
        if op.bias {
            nodes.push(self.param(&format!("{name}.bias"), [outputs], init));
        }
        self.apply(name, op, &nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feed, Gradients, Options, Plan, Precision, Wanted};

    /// Output, gradient of the images, gradients of parameters.
    fn run(layer: Conv2d, [h, w, c]: [usize; 3], precision: Precision) -> [Vec<f32>; 3] {
        let numbers = |count: usize, step: usize| -> Vec<f32> {
            (0..count).map(|i| ((i * step + i / 13) % 251) as f32 / 125.0 - 1.0).collect()
        };
        let mut g = Graph::new();
        let x = g.input_with_gradient("x", [h, w, c]);
        let y = g.conv2d("layer", x, layer).unwrap();
        let len = g.ty(y).len();
        let weight = g.input("w", g.shape(y).to_vec());
        let product = g.mul(y, weight).unwrap();
        let loss = g.sum(product, 9).unwrap();
        let params = g.params(1).unwrap();
        let wanted = Wanted { outputs: vec![y], losses: vec![(loss, 1.0)], metrics: Vec::new() };
        let options = Options { precision, tile_rows: Some(2), ..Options::default() };
        let mut plan: Plan = Plan::new(&g, &wanted, 3, &options).unwrap();
        let (x_feed, w_feed) = (numbers(3 * h * w * c, 37), numbers(3 * len, 53));
        plan.train(&params, 3, &[Feed::Real(&x_feed), Feed::Real(&w_feed)], 1.0, Gradients::Replace);
        [plan.output(y).to_vec(), plan.input_gradient(x).unwrap().to_vec(), plan.gradients().to_vec()]
    }

    /// Tiles of bf16 and rounded f16 against f32: images of one and of several parts, every stride, border and group.
    #[test]
    fn half_precisions_are_near() {
        let cases = [
            (Conv2d::new(64, 3).padding(1), [70, 66, 64]),
            (Conv2d::new(16, 3).padding(1), [7, 5, 16]),
            (Conv2d::new(24, 3).padding(1).stride(2), [9, 20, 40]),
            (Conv2d::new(32, 5).circular(2), [8, 9, 16]),
            (Conv2d::new(32, 3).circular(1).stride(2), [60, 70, 32]),
            (Conv2d::new(48, 3).padding(1).groups(2), [6, 6, 32]),
            (Conv2d::new(20, 1), [3, 4, 33]),
            (Conv2d::new(16, 2).stride(3), [7, 8, 16]),
        ];
        for (layer, shape) in cases {
            let wanted = run(layer, shape, Precision::F32);
            for (precision, tolerance) in [(Precision::Bf16, 1.5e-2), (Precision::F16, 2e-3)] {
                for (what, (got, wanted)) in run(layer, shape, precision).iter().zip(&wanted).enumerate() {
                    let scale = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
                        let error = (got - wanted).abs() / scale;
                        assert!(error < tolerance, "{layer:?} of {shape:?}, {precision:?}: {what}[{i}] is off by {error}");
                    }
                }
            }
        }
    }
}
