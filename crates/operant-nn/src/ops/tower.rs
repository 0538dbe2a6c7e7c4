//! Fully connected layers in one go, `y = Wₙ·act(… act(W₁·x + b₁) …) + bₙ`: what a plan makes of a chain of
//! [`Linear`](super::Linear) that ends in a few numbers.
//!
//! A block of rows passes all layers while it is in the nearest cache, and rows whose gradient is zero (clipped by the
//! loss) take no part in the backward pass. In bf16, hidden activations and their gradients are kept as words of two:
//! word j of 32 numbers holds numbers j and j + 16, in the order in which [`Packing::words`] packs weights.

mod passes;

use super::super::check::{Case, Random, fixed, rows, whole};
use super::super::elementwise::add_columns;
use super::super::op::{Act, Backward, Forward, Kind, MAX_OUTPUTS, Needs, Op, Packing, ReadBy, Type, Types};
use super::super::real::{Compute, Left, Outer, Real, Scratch, Start, View};
use super::super::{Graph, Node};
use operant_base::Result;
use operant_device::gemm::Product;
use operant_lanes::Vectors;
use passes::{
    activation_back, copy_row, first_layer, first_layer_back, keep, kept_len, last_layer, last_layer_back,
};
use std::ops::Range;

/// Inputs: x `[B, …, K]`, then a weight `[N, K]` and a bias `[N]` per layer. Outputs: the last layer's, then those of the
/// hidden layers, which in bf16 only the backward body can read.
#[derive(Clone, Copy, Debug)]
pub struct Tower {
    /// Applied after every layer but the last: ReLU or tanh.
    pub act: Act,
}

/// Most outputs of the last layer.
const MOST_OUTPUTS: usize = 4;
/// Hidden widths are multiples of this.
const WIDTH_STEP: usize = 32;
/// Most layers.
pub(crate) const MOST_LAYERS: usize = MAX_OUTPUTS;
/// First layers of fewer inputs are computed without packing.
const FEW: usize = 16;
/// Most inputs of a first layer whose way back is one pass over rows.
const FEWER: usize = 8;
/// Rows that pass all layers together.
const BLOCK: usize = 48;

/// Rows that pass a layer together, of `rows`: on tiles all, since changing between them and fused multiply-adds, which wait for
/// each other, costs more than a way to the second cache.
#[inline(always)]
fn block_rows(compute: Compute, rows: usize) -> usize {
    if compute.tiles() { rows.max(1) } else { BLOCK.min(rows.max(1)) }
}

#[derive(Clone, Copy)]
struct Sizes<'a> {
    types: &'a Types,
    layers: usize,
    /// Rows of x per row of the batch.
    inner: usize,
}

impl<'a> Sizes<'a> {
    fn new(types: &'a Types) -> Self {
        let k = types.x[1].shape[1];
        Self { types, layers: types.x.len() / 2, inner: types.x[0].len() / k }
    }

    /// Inputs and outputs of a layer.
    #[inline(always)]
    fn layer(&self, l: usize) -> (usize, usize) {
        let shape = &self.types.x[1 + 2 * l].shape;
        (shape[1], shape[0])
    }

    /// The widest hidden layer.
    fn widest(&self) -> usize {
        (0..self.layers - 1).map(|l| self.layer(l).1).max().unwrap_or(0)
    }
}

fn product(m: usize, n: usize, k: usize, a_row: usize) -> Product {
    Product { m, n, outer: 1, inner: k, a_row, a_outer: 0, a_inner: 1, b_outer: 0, b_inner: n, c_row: n }
}

impl Tower {
    fn sizes<'a>(&self, types: &'a Types) -> Sizes<'a> {
        Sizes::new(types)
    }

    #[inline(always)]
    fn forward_as<R: Real, L: Vectors<R>, const WORDS: bool, const RELU: bool>(&self, c: &mut Forward<R>) {
        let s = self.sizes(c.types);
        let (k, n) = s.layer(0);
        let (last, m, few) = (s.layers - 1, c.rows * s.inner, k < FEW);
        let outputs = s.layer(last).1;
        let weights = c.room.take(Scratch::real(if few { k * n } else { 0 })).real;
        if few {
            transpose(c.x[1], k, weights);
        }
        let most = block_rows(c.compute, m);
        let z = c.room.take(Scratch::real(if WORDS { most * s.widest() } else { 0 })).real;
        // Without gradients nobody has made room for hidden layers.
        let mut forgotten: [&mut [R]; MAX_OUTPUTS] = std::array::from_fn(|l| {
            let wanted = l + 1 < s.layers && c.y[l + 1].is_empty();
            let len = if wanted { most * kept_len::<WORDS>(s.layer(l).1) } else { 0 };
            c.room.take(Scratch::real(len)).real
        });
        for first in (0..m).step_by(most) {
            let block = most.min(m - first);
            for l in 0..last {
                let (k, n) = s.layer(l);
                let [y, hidden @ ..] = &mut c.y;
                let (before, after) = hidden.split_at_mut(l);
                let (before_room, after_room) = forgotten.split_at_mut(l);
                let (len, len_before) = (kept_len::<WORDS>(n), kept_len::<WORDS>(k));
                let previous: &[R] = match (before.last(), before_room.last()) {
                    (Some(kept), _) if !kept.is_empty() => &kept[first * len_before..][..block * len_before],
                    (_, Some(kept)) => &kept[..block * len_before],
                    _ => &c.x[0][first * k..][..block * k],
                };
                let kept: &mut [R] = if after[0].is_empty() {
                    &mut after_room[0][..block * len]
                } else {
                    &mut after[0][first * len..][..block * len]
                };
                let (z, kept) = if WORDS { (&mut z[..block * n], kept) } else { (kept, &mut [][..]) };
                let bias = c.x[2 + 2 * l];
                if l == 0 && few {
                    let kept = if WORDS { kept } else { z };
                    first_layer::<R, L, WORDS, RELU>(previous, weights, bias, kept);
                    continue;
                }
                let view = View::dense(block, k);
                let (left, stride) = if l > 0 && WORDS {
                    (Left::Half(R::halves(previous)), k)
                } else {
                    (R::left(c.compute, view, previous, c.room.again()), R::left_stride(c.compute, view))
                };
                let shape = product(block, n, k, stride);
                R::product(c.compute, &shape, left, c.packed.get(2 * l), Start::Bias(bias), z);
                if l + 1 < last {
                    keep::<R, L, WORDS, false, RELU>(z, kept);
                    continue;
                }
                let (weight, bias) = (c.x[1 + 2 * last], c.x[2 + 2 * last]);
                let y = &mut y[first * outputs..][..block * outputs];
                match outputs {
                    1 => last_layer::<R, L, 1, WORDS, RELU>(z, kept, weight, bias, y),
                    2 => last_layer::<R, L, 2, WORDS, RELU>(z, kept, weight, bias, y),
                    3 => last_layer::<R, L, 3, WORDS, RELU>(z, kept, weight, bias, y),
                    _ => last_layer::<R, L, 4, WORDS, RELU>(z, kept, weight, bias, y),
                }
            }
        }
    }

    #[inline(always)]
    fn backward_as<R: Real, L: Vectors<R>, const WORDS: bool, const RELU: bool>(&self, c: &mut Backward<R>) {
        let s = self.sizes(c.types);
        let (last, few) = (s.layers - 1, s.layer(0).0 < FEW);
        let in_one_pass = s.layer(0).0 <= FEWER && c.dx[0].is_empty();
        let outputs = s.layer(last).1;
        let mut live = Live { rows: c.rows * s.inner, dy: c.dy[0], x: c.x[0], kept: [&[]; MAX_OUTPUTS] };
        live.kept[..last].copy_from_slice(&c.y[1..=last]);
        let room = c.room.take(Live::<R>::scratch::<WORDS>(&s, live.rows));
        if c.dx[0].is_empty() {
            live = live.compact::<L, WORDS>(&s, room.real);
        }
        let Live { rows, dy, x, kept } = live;
        let most = block_rows(c.compute, rows);
        let widest = s.widest();
        let mut dz = c.room.take(Scratch::real(rows * kept_len::<WORDS>(widest))).real;
        let mut dz_next = c.room.take(Scratch::real(rows * kept_len::<WORDS>(widest))).real;
        let z = c.room.take(Scratch::real(most * widest)).real;
        let dfirst = c.room.take(Scratch::real(if few { s.layer(0).0 * s.layer(0).1 } else { 0 })).real;
        dfirst.fill(R::default());
        // Where gradients go that nobody asked for.
        let unwanted_weight = c.room.take(Scratch::real(outputs * widest)).real;
        let unwanted_bias = c.room.take(Scratch::real(widest)).real;

        if !c.dx[2 + 2 * last].is_empty() {
            add_columns::<R, L>(&dy[..rows * outputs], c.dx[2 + 2 * last]);
        }
        {
            let (before, after) = c.dx.split_at_mut(1 + 2 * last);
            let dweight = if after[0].is_empty() { unwanted_weight } else { &mut *after[0] };
            let dbias = if before[2 * last].is_empty() { &mut *unwanted_bias } else { &mut *before[2 * last] };
            let n = s.layer(last).0;
            let len = rows * kept_len::<WORDS>(n);
            let (weight, kept, dz, dbias) = (c.x[1 + 2 * last], &kept[last - 1][..len], &mut dz[..len], &mut dbias[..n]);
            let (dy, dweight) = (&dy[..rows * outputs], &mut dweight[..n * outputs]);
            match outputs {
                1 => last_layer_back::<R, L, 1, WORDS, RELU>(dy, weight, kept, dz, dweight, dbias),
                2 => last_layer_back::<R, L, 2, WORDS, RELU>(dy, weight, kept, dz, dweight, dbias),
                3 => last_layer_back::<R, L, 3, WORDS, RELU>(dy, weight, kept, dz, dweight, dbias),
                _ => last_layer_back::<R, L, 4, WORDS, RELU>(dy, weight, kept, dz, dweight, dbias),
            }
        }
        for l in (1..last).rev() {
            let (k, n) = s.layer(l);
            let (len, len_before) = (kept_len::<WORDS>(n), kept_len::<WORDS>(k));
            if !c.dx[1 + 2 * l].is_empty() {
                let add = c.begin >> (1 + 2 * l) & 1 == 0;
                let shape = Outer { add, rows, m: n, n: k, a_row: n, b_row: k, c_row: k };
                let (dz, kept) = (&dz[..rows * len], &kept[l - 1][..rows * len_before]);
                if WORDS {
                    R::outer_words(shape, dz, Left::Half(R::halves(kept)), c.room.again(), c.dx[1 + 2 * l]);
                } else {
                    R::outer(c.compute, shape, dz, kept, c.room.again(), c.dx[1 + 2 * l]);
                }
            }
            for first in (0..rows).step_by(most) {
                let block = most.min(rows - first);
                let from = &dz[first * len..][..block * len];
                let to = &mut dz_next[first * len_before..][..block * len_before];
                let (z, to) = if WORDS { (&mut z[..block * k], to) } else { (to, &mut [][..]) };
                let view = View::dense(block, n);
                let (left, stride) = if WORDS {
                    (Left::Half(R::halves(from)), n)
                } else {
                    (R::left(c.compute, view, from, c.room.again()), R::left_stride(c.compute, view))
                };
                R::product(c.compute, &product(block, k, n, stride), left, c.packed.get(2 * l + 1), Start::Zero, z);
                let kept = &kept[l - 1][first * len_before..][..block * len_before];
                let dbias = if c.dx[2 * l].is_empty() { &mut unwanted_bias[..k] } else { &mut *c.dx[2 * l] };
                if l == 1 && in_one_pass {
                    let inputs = s.layer(0).0;
                    let x = &x[first * inputs..][..block * inputs];
                    let z = &z[..block * k];
                    macro_rules! with {
                        ($inputs:literal) => {
                            first_layer_back::<R, L, $inputs, WORDS, RELU>(x, kept, z, dfirst, dbias)
                        };
                    }
                    match inputs {
                        1 => with!(1),
                        2 => with!(2),
                        3 => with!(3),
                        4 => with!(4),
                        5 => with!(5),
                        6 => with!(6),
                        7 => with!(7),
                        8 => with!(8),
                        _ => unreachable!("{inputs} inputs, 1 to {FEWER} go back in one pass"),
                    }
                    continue;
                }
                let to = if l == 1 && few { &mut [][..] } else { to };
                activation_back::<R, L, WORDS, RELU>(kept, z, to, dbias);
                if l == 1 && few {
                    let inputs = s.layer(0).0;
                    let shape = Outer { add: true, rows: block, m: inputs, n: k, a_row: inputs, b_row: k, c_row: k };
                    R::outer(c.compute.or_exact(true), shape, &x[first * inputs..], z, c.room.again(), dfirst);
                }
                if l == 1 && !c.dx[0].is_empty() {
                    let (inputs, exact) = (s.layer(0).0, c.compute.or_exact(few));
                    let view = View::dense(block, k);
                    let (left, stride) = if WORDS && !few {
                        (Left::Half(R::halves(to)), k)
                    } else {
                        (R::left(exact, view, z, c.room.again()), R::left_stride(exact, view))
                    };
                    let start = if c.add & 1 == 1 { Start::Add } else { Start::Zero };
                    let dx = &mut c.dx[0][first * inputs..][..block * inputs];
                    R::product(exact, &product(block, inputs, k, stride), left, c.packed.get(1), start, dx);
                }
            }
            std::mem::swap(&mut dz, &mut dz_next);
        }
        if c.dx[1].is_empty() {
            return;
        }
        let (k, n) = s.layer(0);
        let begins = c.begin >> 1 & 1 == 1;
        if few {
            if begins {
                c.dx[1].fill(R::default());
            }
            for (i, row) in dfirst.chunks_exact(n).enumerate() {
                c.dx[1][i..].iter_mut().step_by(k).zip(row).for_each(|(to, d)| *to += *d);
            }
            return;
        }
        let shape = Outer { add: !begins, rows, m: n, n: k, a_row: n, b_row: k, c_row: k };
        let dz = &dz[..rows * kept_len::<WORDS>(n)];
        if WORDS {
            R::outer_words(shape, dz, Left::Real(x), c.room.again(), c.dx[1]);
        } else {
            R::outer(c.compute, shape, dz, x, c.room.again(), c.dx[1]);
        }
    }
}

/// Rows that are listed at once.
const LIST: usize = 64;

/// Lists the rows whose gradient is not zero. Without a branch: which rows they are can't be foreseen.
#[inline(always)]
fn live_rows<'a, R: Real>(dy: &[R], outputs: usize, rows: Range<usize>, list: &'a mut [usize; LIST]) -> &'a [usize] {
    let mut count = 0;
    for row in rows {
        list[count] = row;
        let mut live = false;
        for d in &dy[row * outputs..][..outputs] {
            live |= *d != R::default();
        }
        count += usize::from(live);
    }
    &list[..count]
}

/// How many rows have a gradient that is not zero.
#[inline(always)]
fn count_live<R: Real>(dy: &[R], outputs: usize) -> usize {
    let mut count = 0;
    for row in dy.chunks_exact(outputs) {
        let mut live = false;
        for d in row {
            live |= *d != R::default();
        }
        count += usize::from(live);
    }
    count
}

/// Copies listed rows, one after another.
#[inline(always)]
fn copy_rows<R: Real, L: Vectors<R>>(list: &[usize], len: usize, from: &[R], to: &mut [R]) {
    for (to, row) in to.chunks_exact_mut(len).zip(list) {
        copy_row::<R, L>(&from[row * len..][..len], to);
    }
}

/// What the backward pass reads of the rows that have a gradient.
#[derive(Clone, Copy)]
struct Live<'a, R> {
    rows: usize,
    dy: &'a [R],
    x: &'a [R],
    kept: [&'a [R]; MAX_OUTPUTS],
}

impl<'a, R: Real> Live<'a, R> {
    /// Of so many rows one is dropped at least, or copying is not worth while.
    const ONE_IN: usize = 8;

    fn scratch<const WORDS: bool>(s: &Sizes, rows: usize) -> Scratch {
        let hidden: usize = (0..s.layers - 1).map(|l| kept_len::<WORDS>(s.layer(l).1)).sum();
        Scratch::real(rows * (s.layer(s.layers - 1).1 + s.layer(0).0 + hidden))
    }

    /// The rows whose gradient is not zero, copied to `room`; all rows in place if few are zero.
    #[inline(always)]
    fn compact<L: Vectors<R>, const WORDS: bool>(self, s: &Sizes, room: &'a mut [R]) -> Self {
        let (outputs, inputs, last) = (s.layer(s.layers - 1).1, s.layer(0).0, s.layers - 1);
        let mut zeros = 0_u32;
        for d in self.dy {
            zeros += u32::from(*d == R::default());
        }
        // No more rows than this are zero.
        if zeros as usize / outputs <= self.rows / Self::ONE_IN || self.rows < BLOCK {
            return self;
        }
        let rows = count_live(self.dy, outputs);
        if rows + self.rows / Self::ONE_IN >= self.rows {
            return self;
        }
        let (dy, room) = room.split_at_mut(rows * outputs);
        let (x, mut room) = room.split_at_mut(rows * inputs);
        let mut kept: [&mut [R]; MAX_OUTPUTS] = [&mut [], &mut [], &mut [], &mut []];
        for (l, kept) in kept.iter_mut().enumerate().take(last) {
            (*kept, room) = room.split_at_mut(rows * kept_len::<WORDS>(s.layer(l).1));
        }
        let (mut to, mut list) = (0, [0; LIST]);
        for first in (0..self.rows).step_by(LIST) {
            let list = live_rows(self.dy, outputs, first..(first + LIST).min(self.rows), &mut list);
            copy_rows::<R, L>(list, outputs, self.dy, &mut dy[to * outputs..]);
            copy_rows::<R, L>(list, inputs, self.x, &mut x[to * inputs..]);
            for (l, kept) in kept.iter_mut().enumerate().take(last) {
                let len = kept_len::<WORDS>(s.layer(l).1);
                copy_rows::<R, L>(list, len, self.kept[l], &mut kept[to * len..]);
            }
            to += list.len();
        }
        Self { rows, dy, x, kept: kept.map(|kept| &*kept) }
    }
}

/// `to[q, j] = weight[j, q]`.
fn transpose<R: Real>(weight: &[R], k: usize, to: &mut [R]) {
    let n = weight.len() / k;
    for (q, row) in to.chunks_exact_mut(n).enumerate() {
        row.iter_mut().zip(weight[q..].iter().step_by(k)).for_each(|(to, w)| *to = *w);
    }
}

impl Op for Tower {
    const NAME: &'static str = "tower";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        if !matches!(self.act, Act::Relu | Act::Tanh) {
            return Err(format!("activation {:?}: wanted Relu or Tanh", self.act));
        }
        let layers = x.len() / 2;
        if x.len() != 1 + 2 * layers || !(3..=MOST_LAYERS).contains(&layers) {
            return Err(format!("{} inputs, wanted x and the weights and biases of 3 to {MOST_LAYERS} layers", x.len()));
        }
        let mut k = *x[0].shape.last().ok_or("wanted rows with a last axis")?;
        if x[0].kind != Kind::Rows {
            return Err("wanted rows".into());
        }
        let mut outputs = Vec::new();
        for l in 0..layers {
            let [n, inputs] = x[1 + 2 * l].shape[..] else { return Err("wanted weights [out, in]".into()) };
            if inputs != k || x[2 + 2 * l].shape != [n] {
                return Err(format!("layer {l}: wanted a weight [{n}, {k}] and a bias [{n}]"));
            }
            let fits = if l + 1 < layers { n.is_multiple_of(WIDTH_STEP) } else { n <= MOST_OUTPUTS };
            if !fits {
                return Err(format!("layer {l}: {n} outputs, wanted a multiple of {WIDTH_STEP}, or up to {MOST_OUTPUTS} at the end"));
            }
            let mut shape = x[0].shape.clone();
            *shape.last_mut().expect("has a last axis") = n;
            outputs.push(Type::rows(shape));
            k = n;
        }
        outputs.rotate_right(1);
        Ok(outputs)
    }

    fn needs(&self, types: &Types) -> Needs {
        let hidden = types.y.len() - 1;
        Needs { inputs: 1, outputs: ((1 << hidden) - 1) << 1 }
    }

    fn flops(&self, types: &Types) -> u64 {
        let s = self.sizes(types);
        (0..s.layers).map(|l| 2 * (s.layer(l).0 * s.layer(l).1 * s.inner) as u64).sum()
    }

    fn packings(&self, types: &Types) -> Vec<Packing> {
        let s = self.sizes(types);
        let of_layer = |l: usize| {
            let (k, n) = s.layer(l);
            let exact = l == 0 && k < FEW;
            let input = 1 + 2 * l;
            let forward = if exact { ReadBy::Nobody } else { ReadBy::Forward };
            let backward = if l == 0 { ReadBy::FirstGradient } else { ReadBy::Backward };
            let words = l > 0 && !exact;
            [
                Packing { exact, words, read_by: forward, ..Packing::transposed(input, n, k) },
                Packing { exact, words: !exact, read_by: backward, ..Packing::straight(input, n, k) },
            ]
        };
        // The last layer reads its weights as they are.
        (0..s.layers - 1).flat_map(of_layer).collect()
    }

    fn scratch<R: Real>(&self, types: &Types, rows: usize, compute: Compute) -> Scratch {
        let s = self.sizes(types);
        let m = rows * s.inner;
        let (inputs, widest, outputs) = (s.layer(0).0, s.widest(), s.layer(s.layers - 1).1);
        let mut staged = Scratch::default();
        for l in 0..s.layers {
            let (k, n) = s.layer(l);
            let shape = Outer { add: true, rows: m, m: n, n: k, a_row: n, b_row: k, c_row: k };
            staged = staged
                .or(R::left_scratch(compute, View::dense(m, k)))
                .or(R::left_scratch(compute, View::dense(m, n)))
                .or(R::outer_scratch(compute, shape));
        }
        let block = block_rows(compute, m);
        let first = inputs.min(FEW) * widest;
        let hidden = s.layers - 1;
        let forward = Scratch::real(first + block * widest * (1 + hidden));
        let backward = Live::<R>::scratch::<false>(&s, m)
            .and(Scratch::real(2 * m * widest + block * widest + first + (outputs + 1) * widest));
        forward.or(backward).and(staged)
    }

    fn adds(&self) -> bool {
        true
    }

    /// All weights but those of the last layer, which are few.
    fn begins(&self, types: &Types) -> u32 {
        (0..self.sizes(types).layers - 1).map(|l| 1 << (1 + 2 * l)).sum()
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        match (c.compute.words(), self.act == Act::Relu) {
            (false, false) => self.forward_as::<R, L, false, false>(c),
            (false, true) => self.forward_as::<R, L, false, true>(c),
            (true, false) => self.forward_as::<R, L, true, false>(c),
            (true, true) => self.forward_as::<R, L, true, true>(c),
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        match (c.compute.words(), self.act == Act::Relu) {
            (false, false) => self.backward_as::<R, L, false, false>(c),
            (false, true) => self.backward_as::<R, L, false, true>(c),
            (true, false) => self.backward_as::<R, L, true, false>(c),
            (true, true) => self.backward_as::<R, L, true, true>(c),
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for act in [Act::Relu, Act::Tanh] {
            let wanted = [(random.size(1, 15), 1, 3), (random.size(16, 40), 3, 3), (4, 2, 4), (5, 4, 3)];
            // Most networks need no gradient of their input.
            let unwanted = [(1, 1, 3), (4, 2, 3), (8, 1, 4), (9, 1, 3), (20, 3, 3)];
            let sizes = wanted.map(|sizes| (false, sizes)).into_iter().chain(unwanted.map(|sizes| (true, sizes)));
            for (is_fixed, (inputs, outputs, layers)) in sizes {
                let x = rows([inputs]);
                let mut given = vec![if is_fixed { fixed(x) } else { x }];
                let mut k = inputs;
                for l in 0..layers {
                    let n = if l + 1 == layers { outputs } else { WIDTH_STEP * random.size(1, 2) };
                    given.extend([whole([n, k]), whole([n])]);
                    k = n;
                }
                // The hidden layers are nobody else's.
                let only_last = move |g: &mut Graph, x: &[Node]| Ok(g.add_op("", Self { act }, x)?[..1].to_vec());
                cases.push(Case::build(format!("{act:?}, {inputs} inputs, {layers} layers"), given, only_last).tolerance(6e-5));
            }
        }
        cases
    }
}
