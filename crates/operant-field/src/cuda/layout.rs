//! An operator's tensors and weights in a GPU's memory, and the launches that go through its layers.

use super::Member;
use super::kernels::{
    ConvArgs, FinishArgs, GatherArgs, LastArgs, Norms, PastArgs, SHARED, StemArgs, Step, TALL, TALL_128, TALL_COLUMNS,
    TALL_ROWS, TILES, Tile, UnfoldArgs, WHOLE_BITS, WideArgs, WideLastArgs, magic, numbers,
};
use crate::shards::half_bits;
use crate::{Norm, Operator};
use operant_base::{Error, Result};
use operant_device::cuda::{Buffer, DevicePtr, Element, Gpu, TensorMap, TensorNumbers};
use operant_nn::ops::{NoiseLaw, noise_factor};
use operant_nn::{Act, Params, Precision};
use std::sync::Arc;

/// Columns of a tile.
const COLUMNS: usize = 16;
/// Bytes of a row of operands.
const ROW: usize = 128;
/// Added to variances, as on the CPU.
const EPS: f64 = 1e-5;

/// Activations `[B, H + 2·border, W + 2·border, planes, padded]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    pub at: DevicePtr,
    pub channels: usize,
    pub padded: usize,
    pub border: usize,
}

/// Sums of results that a convolution makes: as parts, or as whole numbers there.
#[derive(Clone, Copy)]
enum Counted {
    Not,
    Parts,
    Whole(DevicePtr),
}

/// What is built step by step.
pub(super) struct Build<'a> {
    pub(super) gpu: &'a Arc<Gpu>,
    members: &'a [Member<'a>],
    pub(super) params: Vec<Params>,
    pub(super) precision: Precision,
    /// In f32 weights are those of tf32.
    rounded: bool,
    realisations: usize,
    clock: DevicePtr,
    keys: DevicePtr,
    dropped: DevicePtr,
    /// Counts ops that draw, as on the CPU.
    drawing: u32,
    /// Three activations that take turns, two results of convolutions; made for the widest layer.
    activations: [DevicePtr; 3],
    results: [DevicePtr; 2],
    parts: DevicePtr,
    sums: DevicePtr,
    /// Places of whole sums that convolutions take in turn, and the next one's.
    whole_sums_at: DevicePtr,
    turn: usize,
    kept: Vec<Box<dyn std::any::Any + Send>>,
}

fn padded(channels: usize) -> usize {
    channels.next_multiple_of(16)
}

/// Nearest number with a mantissa of 11 bits.
fn tf32(x: f32) -> f32 {
    f32::from_bits((x.to_bits().wrapping_add(0x1000)) & !0x1fff)
}

pub(super) fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

impl<'a> Build<'a> {
    pub(super) fn new(
        gpu: &'a Arc<Gpu>,
        members: &'a [Member<'a>],
        realisations: usize,
        (precision, rounded): (Precision, bool),
        clock: DevicePtr,
        keys: &[u32],
    ) -> Result<Self> {
        let params = |member: &Member<'_>| member.operator.network()?.params(member.seed, member.first);
        let params = members.iter().map(params).collect::<Result<Vec<_>>>()?;
        let none = DevicePtr::NONE;
        let mut build = Self {
            gpu,
            members,
            params,
            precision,
            rounded,
            realisations,
            clock,
            keys: none,
            dropped: none,
            drawing: 0,
            activations: [none; 3],
            results: [none; 2],
            parts: none,
            sums: none,
            whole_sums_at: none,
            turn: 0,
            kept: Vec::new(),
        };
        build.keys = build.upload(keys)?;
        let dropped: Vec<u32> =
            members.iter().map(|member| (member.operator.dropout * 65_536.0).round() as u32).collect();
        build.dropped = build.upload(&dropped)?;
        let (operator, rows) = (build.operator(), build.rows());
        let widest = (0..operator.layers).map(|i| operator.width(i)).max().unwrap_or(0).max(operator.base_channels);
        let (wide, pixels) = (operator.grid + 2 * (operator.kernel / 2), operator.grid * operator.grid);
        let bytes = build.numbers().bytes();
        for i in 0..3 {
            let words = rows * wide * wide * build.planes() * padded(widest) * bytes / 4;
            build.activations[i] = build.room(words)?;
        }
        for i in 0..2 {
            build.results[i] = build.room(rows * pixels * padded(widest) * bytes / 4)?;
        }
        build.parts = build.room(rows * pixels / Tile::LEAST_PART * 2 * padded(widest))?;
        // Of eight bytes.
        build.sums = build.room(rows * 4 * padded(widest))?;
        if build.sums_are_whole() {
            build.whole_sums_at = build.room(build.convolutions() * rows * 4 * padded(widest))?;
        }
        Ok(build)
    }

    pub(super) fn operator(&self) -> &'a Operator {
        self.members[0].operator
    }

    pub(super) fn rows(&self) -> usize {
        self.members.len() * self.realisations
    }

    pub(super) fn keys(&self) -> DevicePtr {
        self.keys
    }

    pub(super) fn clock(&self) -> DevicePtr {
        self.clock
    }

    /// Ops so far that draw.
    pub(super) fn drawing(&self) -> u32 {
        self.drawing
    }

    /// Parts that a number of a field is split into along channels.
    pub(super) fn split(&self) -> usize {
        if self.precision == Precision::F32 { 1 } else { 2 }
    }

    fn planes(&self) -> usize {
        if self.precision == Precision::F32 { 2 } else { 1 }
    }

    pub(super) fn numbers(&self) -> TensorNumbers {
        numbers(self.precision)
    }

    /// Buffers that must outlive the launches.
    pub(super) fn into_kept(self) -> Vec<Box<dyn std::any::Any + Send>> {
        self.kept
    }

    /// Room for so many words, zeroed.
    pub(super) fn room(&mut self, words: usize) -> Result<DevicePtr> {
        let buffer = Buffer::<f32>::new(self.gpu, words, "an operator's tensors", "--realisations")?;
        let at = buffer.pointer();
        self.kept.push(Box::new(buffer));
        Ok(at)
    }

    /// Numbers in the GPU's memory.
    pub(super) fn upload<T: Element + Send>(&mut self, from: &[T]) -> Result<DevicePtr> {
        let buffer = Buffer::<T>::new(self.gpu, from.len(), "an operator's weights", "--ops")?;
        buffer.upload(from)?;
        let at = buffer.pointer();
        self.kept.push(Box::new(buffer));
        Ok(at)
    }

    /// A tensor of its own.
    pub(super) fn tensor(&mut self, channels: usize, border: usize) -> Result<Tensor> {
        let (wide, padded) = (self.operator().grid + 2 * border, padded(channels));
        let bytes = self.rows() * wide * wide * self.planes() * padded * self.numbers().bytes();
        Ok(Tensor { at: self.room(bytes / 4)?, channels, padded, border })
    }

    /// Weights `[taps, outputs, inputs]` of every operator as `[operators, taps, outputs, planes, padded inputs]`.
    fn weights(&mut self, all: &[Vec<f32>], inputs: usize) -> Result<DevicePtr> {
        let wide = padded(inputs);
        let rows = || all.iter().flat_map(|weights| weights.chunks_exact(inputs));
        let spread = |row: &[f32], of: fn(f32) -> f32| {
            let mut out: Vec<f32> = row.iter().map(|&x| of(x)).collect();
            out.resize(wide, 0.0);
            out
        };
        match self.precision {
            Precision::Bf16 | Precision::F16 => {
                let half = if self.precision == Precision::F16 { half_bits } else { bf16 };
                let words: Vec<u16> = rows().flat_map(|row| spread(row, |x| x).into_iter().map(half)).collect();
                self.upload(&words)
            }
            Precision::Tf32 => {
                let words: Vec<f32> = rows().flat_map(|row| spread(row, tf32)).collect();
                self.upload(&words)
            }
            Precision::F32 => {
                let words: Vec<f32> =
                    rows().flat_map(|row| [spread(row, tf32), spread(row, |x| tf32(x - tf32(x)))].concat()).collect();
                self.upload(&words)
            }
        }
    }

    /// Convolutions that a norm follows, but for the first one.
    fn convolutions(&self) -> usize {
        let operator = self.operator();
        operator.layers * if operator.is_residual() { 2 } else { 1 }
    }

    /// Whether these have sums as whole numbers, of which what follows makes norms itself: by shape alone, since a row's bits must not
    /// depend on how many there are. Not the first one's: a field may be of any size. Places of sums are cleared by what follows the next
    /// convolution, so there must be two.
    fn sums_are_whole(&self) -> bool {
        let operator = self.operator();
        let white = operator.noise != NoiseLaw::Drop && operator.correlation == 0.0;
        numbers(self.precision).bytes() == 2
            && operator.norm == Norm::Instance
            && self.convolutions() > 1
            && operator.channels <= 4
            && (operator.noise == NoiseLaw::Gaussian || white)
            && (0..operator.layers).all(|i| FinishArgs::serves(operator.width(i), operator.grid, self.precision))
    }

    /// The place of the next convolution's sums, and how its norm is made of them.
    fn whole_sums(&mut self, norm: GatherArgs) -> Norms {
        let operator = self.operator();
        let widest = (0..operator.layers).map(|i| operator.width(i)).max().unwrap_or(0).max(operator.base_channels);
        let (count, numbers) = (self.convolutions(), self.rows() * 2 * padded(widest));
        let place = |turn: usize| self.whole_sums_at.offset(turn % count * numbers * size_of::<i64>());
        let norms = Norms {
            sums: place(self.turn),
            clear: place(self.turn + count - 1),
            affine: norm.affine,
            share: f64::from(norm.share) / f64::from(1 << WHOLE_BITS),
            cleared: numbers as u32,
            unused: 0,
        };
        self.turn += 1;
        norms
    }

    /// Adds a convolution with parameters of this name, from x to results number 0, and its norm if that depends on them: what makes it,
    /// or what is given back, of which what follows makes it.
    fn convolve_normed(
        &mut self,
        name: &str,
        x: Tensor,
        outputs: usize,
        kernel: usize,
        norm: Option<GatherArgs>,
        list: &mut Vec<Step>,
    ) -> Result<Norms> {
        if let (Some(args), true, true) = (norm, self.whole_sums_at != DevicePtr::NONE, name != "stem") {
            let norms = self.whole_sums(args);
            list.push(self.convolve(name, x, outputs, kernel, 0, Counted::Whole(norms.sums))?);
            return Ok(norms);
        }
        let counted = if norm.is_some() { Counted::Parts } else { Counted::Not };
        list.push(self.convolve(name, x, outputs, kernel, 0, counted)?);
        self.push_norm(norm, list);
        Ok(Norms::MADE)
    }

    /// Adds what makes a norm's scales and shifts, if they depend on results.
    fn push_norm(&self, norm: Option<GatherArgs>, list: &mut Vec<Step>) {
        if let Some(args) = norm {
            let rows = self.rows() as u32;
            list.push(Step::Gather(args, rows));
            if args.sums != DevicePtr::NONE {
                list.push(Step::Join(args, rows));
            }
        }
    }

    /// A convolution with parameters of this name, from x to results number `to`.
    fn convolve(
        &mut self,
        name: &str,
        x: Tensor,
        outputs: usize,
        kernel: usize,
        to: usize,
        counted: Counted,
    ) -> Result<Step> {
        self.convolution(name, x, outputs, kernel, to, counted).map(|(place, args)| Step::Convolve(place, args))
    }

    /// The same as a place in [`TILES`] and arguments.
    fn convolution(
        &mut self,
        name: &str,
        x: Tensor,
        outputs: usize,
        kernel: usize,
        to: usize,
        counted: Counted,
    ) -> Result<(usize, ConvArgs)> {
        let stem = name == "stem";
        let (operator, split) = (self.operator(), self.split());
        let wide = padded(outputs);
        let (mut all, mut biases) = (Vec::new(), Vec::new());
        for params in &self.params {
            let weight = params.get(&format!("{name}.weight"))?;
            // [O, C, kh, kw]
            let side = if stem { operator.kernel } else { kernel };
            let (taps, c) = (side * side, weight.len() / (outputs * side * side));
            let at = |o: usize, c_: usize, tap: usize| weight[(o * c + c_) * taps + tap];
            let mut out = Vec::with_capacity(weight.len() * if stem { split } else { 1 });
            if stem {
                for o in 0..outputs {
                    for _ in 0..split {
                        out.extend(
                            (0..taps).flat_map(|tap| (0..c).map(move |i| (i, tap))).map(|(i, tap)| at(o, i, tap)),
                        );
                    }
                }
            } else {
                for tap in 0..taps {
                    out.extend((0..outputs).flat_map(|o| (0..c).map(move |i| (o, i))).map(|(o, i)| at(o, i, tap)));
                }
            }
            all.push(out);
            let mut bias = params.get(&format!("{name}.bias"))?.to_vec();
            bias.resize(wide, 0.0);
            biases.extend(bias);
        }
        let numbers = self.numbers();
        let (planes, rows, grid) = (self.planes(), self.rows(), operator.grid);
        let chunk = ROW / numbers.bytes();
        let weights = self.weights(&all, x.channels)?;
        let bias = self.upload(&biases)?;
        let place = match !stem && numbers.bytes() == 2 && kernel == 3 && grid >= TALL_ROWS {
            true if wide > 64 => TALL_128,
            true if x.padded <= 64 => TALL,
            _ => Tile::place(outputs, numbers),
        };
        let tall = matches!(place, TALL | TALL_128);
        let n = TILES[place].outputs;
        let width = grid + 2 * x.border;
        let x_sizes = [x.padded, planes, width, width, rows];
        let tile = TILES[place];
        let (columns, x_box) = match tall {
            true => (TALL_COLUMNS, [chunk, 1, TALL_COLUMNS + 2, TALL_ROWS + 2, 1]),
            false => (COLUMNS, [chunk, 1, COLUMNS, tile.rows() + kernel - 1, 1]),
        };
        let x_map = TensorMap::new(self.gpu, numbers, x.at, x_sizes, x_box)?;
        // Turned results leave in quarters of a tile.
        let to_sizes = [wide, 1, grid, grid, rows];
        let to_box = [chunk, 1, columns, 64 / columns, 1];
        let to_map = TensorMap::new(self.gpu, numbers, self.results[to], to_sizes, to_box)?;
        let w_sizes = [x.padded, planes, outputs, kernel * kernel, self.members.len()];
        let chunks = x.padded.div_ceil(chunk);
        let passes = match self.precision {
            Precision::F32 if self.rounded => 2,
            Precision::F32 => 3,
            _ => 1,
        };
        let slots = Slots::new(numbers, tile, kernel, passes * chunks * kernel * kernel);
        let tiles = grid * grid / (COLUMNS * tile.rows());
        // Weights that stay come once in any case.
        let paired = !slots.resident && tiles.is_multiple_of(2);
        // `tall` goes from tile to tile with weights that stay, and blocks of `tall_128` wait for the other of their pair.
        if (place == TALL && !slots.resident) || (place == TALL_128 && !paired) {
            return Err(Error::Invalid(format!(
                "a convolution of a {grid}×{grid} grid that its kernel does not serve"
            )));
        }
        let boxed = if paired { n / 2 } else { n };
        let (counted, parts) = match counted {
            Counted::Not => (0, self.parts),
            Counted::Parts => (1, self.parts),
            Counted::Whole(sums) => (2, sums),
        };
        let w_map = TensorMap::new(self.gpu, numbers, weights, w_sizes, [chunk, 1, boxed, 1, 1])?;
        Ok((
            place,
            ConvArgs {
                x: x_map,
                w: w_map,
                to: to_map,
                y: self.results[to],
                bias,
                parts,
                images: rows as u32,
                side: grid as u32,
                outputs: wide as u32,
                rows_per_op: self.realisations as u32,
                kernel: kernel as u32,
                origin: (x.border - if stem { 0 } else { kernel / 2 }) as u32,
                chunks: chunks as u32,
                tiles: tiles as u32,
                blocks_n: wide.div_ceil(n) as u32,
                a_slots: slots.a as u32,
                b_slots: slots.b as u32,
                resident: u32::from(slots.resident),
                counted,
                paired: u32::from(paired),
                log_tiles: tiles.ilog2(),
                log_columns: (grid / columns).ilog2(),
                op_magic: magic(self.realisations as u32),
                block_magic: magic(wide.div_ceil(n) as u32),
                passes: passes as u32,
            },
        ))
    }

    /// What follows a convolution of this name, but for where it goes; and how its norm is made, if by every step.
    fn finish(&mut self, name: &str, channels: usize) -> Result<(FinishArgs, Option<GatherArgs>)> {
        self.drawing += 1;
        let operator = self.operator();
        let wide = padded(channels);
        let mut affine = Vec::new();
        for params in &self.params {
            let get = |what: &str| params.get(&format!("{name}.norm.{what}"));
            let [mut weight, mut bias] = match operator.norm {
                Norm::None => [vec![1.0; channels], vec![0.0; channels]],
                Norm::Batch => {
                    let (mean, variance) = (get("running_mean")?, get("running_var")?);
                    let scale = |(w, v): (&f32, &f32)| f64::from(*w) / (f64::from(*v) + EPS).sqrt();
                    let scales: Vec<f64> = get("weight")?.iter().zip(variance).map(scale).collect();
                    let shifts = get("bias")?.iter().zip(mean).zip(&scales);
                    let shifts = shifts.map(|((b, m), s)| (f64::from(*b) - f64::from(*m) * s) as f32).collect();
                    [scales.iter().map(|&s| s as f32).collect(), shifts]
                }
                _ => [get("weight")?.to_vec(), get("bias")?.to_vec()],
            };
            weight.resize(wide, 0.0);
            bias.resize(wide, 0.0);
            affine.extend(weight.into_iter().chain(bias));
        }
        let norm_channels = match operator.norm {
            Norm::Group => channels / operator.norm_groups(channels),
            Norm::Layer => channels,
            _ => 1,
        };
        let norm = match operator.norm {
            Norm::None | Norm::Batch => {
                let of_rows: Vec<f32> =
                    affine.chunks_exact(2 * wide).flat_map(|of| of.repeat(self.realisations)).collect();
                (self.upload(&of_rows)?, None)
            }
            _ => {
                let norm = self.room(self.rows() * 2 * wide)?;
                let args = GatherArgs {
                    parts: self.parts,
                    affine: self.upload(&affine)?,
                    sums: if norm_channels > 1 { self.sums } else { DevicePtr::NONE },
                    norm,
                    padded: wide as u32,
                    parts_per_image: (operator.grid.pow(2) / TILES[Tile::place(channels, self.numbers())].part())
                        as u32,
                    channels: channels as u32,
                    norm_channels: norm_channels as u32,
                    rows_per_op: self.realisations as u32,
                    share: 1.0 / (operator.grid.pow(2) * norm_channels) as f32,
                };
                (norm, Some(args))
            }
        };
        let octets = (wide / 8) as u32;
        let act = match operator.activation {
            Act::Identity => 0,
            Act::Relu => 1,
            Act::Tanh => 2,
            Act::Sigmoid => 3,
            Act::Gelu => 4,
            Act::Silu => 5,
        };
        let args = FinishArgs {
            y: self.results[0],
            past: DevicePtr::NONE,
            out: DevicePtr::NONE,
            norm: norm.0,
            keys: self.keys,
            clock: self.clock,
            dropped: self.dropped,
            side: operator.grid as u32,
            channels: channels as u32,
            padded: wide as u32,
            border: (operator.kernel / 2) as u32,
            past_is_activation: 0,
            log_channels: channels.ilog2(),
            layer: self.drawing,
            act,
            rows_per_op: self.realisations as u32,
            octets,
            log_side: operator.grid.trailing_zeros(),
            images: self.rows() as u32,
        };
        Ok((args, norm.1))
    }

    /// Pixels of all rows.
    fn pixels(&self) -> u32 {
        (self.rows() * self.operator().grid.pow(2)) as u32
    }

    /// A tensor with a border or without as rows of 64 numbers.
    pub(super) fn rows_of_64(&self, at: DevicePtr, f: &FinishArgs, border: u32, at_once: u32) -> Result<TensorMap> {
        let rows = self.rows() * (f.side + 2 * border).pow(2) as usize * f.channels as usize / 64;
        TensorMap::new(self.gpu, self.numbers(), at, [64, rows, 1, 1, 1], [64, at_once as usize, 1, 1, 1])
    }

    /// Results, and what comes past them or any other tensor if nothing does.
    fn read_by(&self, f: &FinishArgs) -> Result<[TensorMap; 2]> {
        let (past, border) = match f.past {
            DevicePtr::NONE => (f.y, 0),
            past => (past, if f.past_is_activation == 1 { f.border } else { 0 }),
        };
        let at_once = f.rows_at_once();
        Ok([self.rows_of_64(f.y, f, 0, at_once)?, self.rows_of_64(past, f, border, at_once)?])
    }

    fn finish_step(&self, f: FinishArgs, n: Norms) -> Result<Step> {
        if !f.is_wide(self.precision) {
            n.must_be_none()?;
            return Ok(Step::Finish(f, self.pixels()));
        }
        let ([y, past], out) = (self.read_by(&f)?, self.rows_of_64(f.out, &f, f.border, f.rows_at_once())?);
        Ok(Step::FinishWide(WideArgs { y, past, out, f, n }))
    }

    /// The same where a 1×1 convolution of x with parameters of this name comes past, and is made on the way.
    fn finish_past(&mut self, f: FinishArgs, n: Norms, name: &str, x: Tensor) -> Result<Step> {
        const AT_ONCE: usize = PastArgs::AT_ONCE;
        let (grid, rows, outputs) = (f.side as usize, self.rows(), f.channels as usize);
        let (mut all, mut biases) = (Vec::new(), Vec::new());
        for params in &self.params {
            // [O, C]
            let weight = params.get(&format!("{name}.weight"))?;
            let row = |place: usize| &weight[PastArgs::output_at(place) * x.channels..][..x.channels];
            all.push((0..outputs).flat_map(row).copied().collect());
            biases.extend_from_slice(params.get(&format!("{name}.bias"))?);
        }
        let (weights, bias) = (self.weights(&all, x.channels)?, self.upload(&biases)?);
        let map = |at: DevicePtr, sizes: [usize; 5], at_once: usize| {
            TensorMap::new(self.gpu, self.numbers(), at, sizes, [ROW / 2, 1, at_once, 1, 1])
        };
        let wide = grid + 2 * x.border;
        Ok(Step::FinishPast(PastArgs {
            y: map(f.y, [outputs, 1, grid, grid, rows], AT_ONCE / 4)?,
            x: map(x.at, [x.channels, 1, wide, wide, rows], AT_ONCE)?,
            w: map(weights, [x.channels, 1, outputs, 1, self.members.len()], AT_ONCE)?,
            out: map(f.out, [outputs, 1, wide, wide, rows], AT_ONCE / 4)?,
            f,
            n,
            bias,
            chunks: (x.channels / 64) as u32,
            unused: 0,
        }))
    }

    /// The launch that makes the step.
    pub(super) fn last_step(&self, last: LastArgs, n: Norms) -> Result<Step> {
        if !last.is_wide(self.precision) {
            n.must_be_none()?;
            return Ok(Step::Last(last, self.pixels()));
        }
        let [y, past] = self.read_by(&last.f)?;
        Ok(Step::LastWide(WideLastArgs { y, past, last, n }))
    }

    /// Launches of the first convolution, from the field at `state`.
    fn stem(&mut self, state: DevicePtr, norm: Option<GatherArgs>, list: &mut Vec<Step>) -> Result<()> {
        let operator = self.operator();
        let (rows, grid, kernel, outputs) = (self.rows(), operator.grid, operator.kernel, operator.base_channels);
        let channels = self.split() * kernel.pow(2) * operator.channels;
        if StemArgs::serves(operator.channels, outputs, kernel, self.precision) {
            let counted = if norm.is_some() { Counted::Parts } else { Counted::Not };
            let never_read = Tensor { at: self.activations[0], channels, padded: padded(channels), border: 0 };
            let (_, conv) = self.convolution("stem", never_read, outputs, 1, 0, counted)?;
            let clock = self.clock;
            list.push(Step::Stem(StemArgs {
                conv,
                state,
                clock,
                field_channels: operator.channels as u32,
                unused: [0; 11],
            }));
            self.push_norm(norm, list);
            return Ok(());
        }
        let unfolded = self.tensor(channels, 0)?;
        list.push(Step::Unfold(UnfoldArgs {
            state,
            out: unfolded.at,
            clock: self.clock,
            images: rows as u32,
            side: grid as u32,
            field_channels: operator.channels as u32,
            kernel: kernel as u32,
            padded: unfolded.padded as u32,
            split: self.split() as u32,
            magic: magic(unfolded.padded as u32 / 8),
            log_side: grid.trailing_zeros(),
        }));
        self.convolve_normed("stem", unfolded, outputs, 1, norm, list).map(|_| ())
    }

    /// Launches of all layers from the field at `state` on, but for the end of the last one, which is given back.
    pub(super) fn layers(&mut self, state: DevicePtr) -> Result<(Vec<Step>, FinishArgs, Norms)> {
        let operator = self.operator();
        let mut steps = Vec::new();
        let list = &mut steps;
        let (border, kernel) = (operator.kernel / 2, operator.kernel);
        // Activations take turns: x, what a block makes of it on the way, and its result.
        let mut turn = 0;
        let tensor = |build: &Self, turn: usize, channels: usize| Tensor {
            at: build.activations[turn % 3],
            channels,
            padded: padded(channels),
            border,
        };
        let (mut finish, norm) = self.finish("stem", operator.base_channels)?;
        let whole = self.first_is_whole();
        if whole {
            finish.out = tensor(self, turn, operator.base_channels).at;
            self.first(state, finish, norm, list)?;
        } else {
            self.stem(state, norm, list)?;
        }
        let mut from = operator.base_channels;
        let mut norms = Norms::MADE;
        // What a 1×1 convolution that comes past the block before is made of, if on the way.
        let mut past: Option<(String, Tensor)> = None;
        for i in 0..operator.layers {
            let (name, to) = (format!("layers.{i}"), operator.width(i));
            let x = tensor(self, turn, from);
            finish.out = x.at;
            match past.take() {
                Some((name, of)) => list.push(self.finish_past(finish, norms, &name, of)?),
                None if i == 0 && whole => {}
                None => list.push(self.finish_step(finish, norms)?),
            }
            turn += 1;
            if !operator.is_residual() {
                let (next, norm) = self.finish(&name, to)?;
                norms = self.convolve_normed(&name, x, to, kernel, norm, list)?;
                (finish, from) = (next, to);
                continue;
            }
            let (first, second) = (format!("{name}.0"), format!("{name}.1"));
            let (mut inner, norm) = self.finish(&first, to)?;
            let inner_norms = self.convolve_normed(&first, x, to, kernel, norm, list)?;
            let h = tensor(self, turn, to);
            inner.out = h.at;
            list.push(self.finish_step(inner, inner_norms)?);
            turn += 1;
            let (next, norm) = self.finish(&second, to)?;
            norms = self.convolve_normed(&second, h, to, kernel, norm, list)?;
            finish = next;
            let name = format!("{name}.past");
            if from == to {
                (finish.past, finish.past_is_activation) = (x.at, 1);
            } else if i + 1 < operator.layers && PastArgs::serves(from, to, operator.grid, self.precision) {
                past = Some((name, x));
            } else {
                list.push(self.convolve(&name, x, to, 1, 1, Counted::Not)?);
                finish.past = self.results[1];
            }
            from = to;
        }
        Ok((steps, finish, norms))
    }

    /// Weights of the way back to the field, the same as lanes of `last.cu` read them, biases, and what Gaussian noise becomes on it.
    pub(super) fn output(&mut self, wide: u32) -> Result<[DevicePtr; 4]> {
        let channels = self.operator().channels;
        let half = if self.precision == Precision::F16 { half_bits } else { bf16 };
        let (mut weights, mut by_lane, mut biases, mut factors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for params in &self.params {
            let weight = params.get("output.weight")?;
            let inputs = weight.len() / channels;
            if inputs.is_multiple_of(64) && channels <= 4 {
                by_lane.extend((0..inputs / 64 * 128).map(|i| {
                    let (part, lane, sixteen) = (i / 128, i / 4 % 32, i % 4);
                    let (k, at) = (lane / 4 % 4, part * 64 + sixteen * 16 + lane / 16 * 8 + lane % 4 * 2);
                    let of = |channel: usize| if k < channels { half(weight[k * inputs + channel]) } else { 0 };
                    u32::from(of(at)) | u32::from(of(at + 1)) << 16
                }));
            }
            for row in weight.chunks_exact(weight.len() / channels) {
                weights.extend_from_slice(row);
                weights.resize(weights.len() + wide as usize - row.len(), 0.0);
            }
            biases.extend_from_slice(params.get("output.bias")?);
            let mut factor = vec![0.0; channels * channels];
            noise_factor(weight, channels, &mut factor);
            factors.extend(factor.into_iter().map(|x| x as f32));
        }
        Ok([self.upload(&weights)?, self.upload(&by_lane)?, self.upload(&biases)?, self.upload(&factors)?])
    }
}

/// Slots of shared memory for slabs of pixels (a) and for weights of a tap (b).
struct Slots {
    a: usize,
    b: usize,
    /// All weights stay.
    resident: bool,
}

impl Slots {
    /// As in `convolve.cu`.
    const MOST: [usize; 2] = [8, 16];

    fn new(numbers: TensorNumbers, tile: Tile, kernel: usize, taps: usize) -> Self {
        let (groups, n) = (tile.groups, tile.outputs);
        let staged = if tile.turned { 128 * ROW } else { 64 * (64 * numbers.bytes() + 16) + 2048 };
        let fixed = 1024 + groups * staged + 8 * 50;
        let room = SHARED - fixed;
        let (a, b) = (COLUMNS * ROW * (tile.rows() + kernel - 1), n * ROW);
        if taps <= Self::MOST[1] && taps * b + 2 * a <= room {
            return Self { a: ((room - taps * b) / a).min(Self::MOST[0]), b: taps, resident: true };
        }
        // A third slab where that leaves four slots of weights.
        let slabs = if room >= 3 * a + 4 * b { 3 } else { 2 };
        Self { a: slabs, b: ((room - slabs * a) / b).min(Self::MOST[1]), resident: false }
    }
}
