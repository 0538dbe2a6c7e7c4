//! Networks that carry a state from step to step of `[B, T, I]`: what LSTM and GRU share.
//!
//! A [`Cell`] says what becomes of gates and state at one step; the products, the order of steps and the gradients of
//! weights are here. Inside a tile everything is ordered by step, then row, so a step multiplies neighbouring rows. What
//! the gradient needs lies in the same order in a last output that only the backward body reads.

use super::cuda::{RecurrentLayer, Twin};
use super::elementwise::{Plus, add_columns, update};
use super::op::{Backward, Forward, Kind, Needs, Op, Packing, ReadBy, Type, Types};
use super::precision::Precision;
use super::real::{Compute, Left, Outer, Packed, PackedMut, Real, Room, Scratch, Start, View};
use super::{Graph, Init, Node};
use operant_base::Result;
use operant_device::gemm::Product;
use operant_lanes::{Lanes, Vectors};
use std::fmt::Debug;

/// Blocks of H numbers per step and row that hold gates.
const GATES: usize = 4;
/// Rows of all steps together that weight gradients are summed over at once: one stretch of a product's sum, so that the
/// weight gradients are read and written once per chunk.
const CHUNK_ROWS: usize = 128;

/// Gates that one product of the hidden state gives, in blocks of H.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// First block among the gates.
    pub gate: usize,
    /// First block among the rows of the weight.
    pub row: usize,
    /// Blocks.
    pub len: usize,
    /// Whether these gates hold the input's part already; else they begin from the bias.
    pub adds: bool,
}

/// One row of one step on its way forward.
#[derive(Debug)]
pub struct StepForward<'a, R> {
    /// Sums from the products; what the gradient reads is left in their place.
    pub gates: [&'a mut [R]; GATES],
    /// State before the step; the second is empty if there is one.
    pub before: [&'a [R]; 2],
    /// State after the step, times `keep`.
    pub after: [&'a mut [R]; 2],
    /// The output.
    pub y: &'a mut [R],
    /// 0 if the next step begins an episode, else 1.
    pub keep: R,
}

/// One row of one step on its way back.
#[derive(Debug)]
pub struct StepBackward<'a, R> {
    /// What the forward body left.
    pub gates: [&'a [R]; GATES],
    /// State before the step.
    pub before: [&'a [R]; 2],
    /// Gradient of the output.
    pub dy: &'a [R],
    /// Gradient of the state after the step, to be multiplied by `keep`; replaced by that of the state before it,
    /// without what flows through the gates.
    pub carry: [&'a mut [R]; 2],
    /// Gradients of the sums that the products gave.
    pub dgates: [&'a mut [R]; GATES],
    /// 0 if the next step begins an episode, else 1.
    pub keep: R,
}

/// The formulas of one step.
pub trait Cell: Copy + Debug + Send + Sync + 'static {
    /// In lower case.
    const NAME: &'static str;
    /// Blocks of H rows in a weight; the input's product fills as many blocks of gates.
    const BLOCKS: usize;
    /// Numbers of H in a state: 2 for h and c.
    const STATES: usize;
    /// Products of the hidden state.
    const PARTS: &'static [Part];
    /// Whether the state flows past the gates into h.
    const PASSES: bool;

    /// Computes lanes from `at` on; `TAIL` says that they may be the last, not all in use.
    fn forward<R: Real, L: Vectors<R>, const TAIL: bool>(s: &mut StepForward<R>, at: usize);
    /// Computes gradients of lanes from `at` on.
    fn backward<R: Real, L: Vectors<R>, const TAIL: bool>(s: &mut StepBackward<R>, at: usize);
}

/// Reads lanes from `at` on.
#[inline(always)]
pub(super) fn read<R: Real, L: Vectors<R>, const TAIL: bool>(x: &[R], at: usize) -> L::F {
    if TAIL { L::read_part(&x[at..]) } else { L::read(&x[at..]) }
}

/// Writes lanes from `at` on.
#[inline(always)]
pub(super) fn write<R: Real, L: Vectors<R>, const TAIL: bool>(value: <L as Lanes>::F, y: &mut [R], at: usize) {
    if TAIL { L::write_part(value, &mut y[at..]) } else { L::write(value, &mut y[at..]) }
}

/// Inputs: x `[B, T, I]` or `[B, I]`, weights of the input `[G·H, I]` and of the state `[G·H, H]`, their biases `[G·H]`,
/// with `state` the first state (h, and c if there is one) `[B, H]` each, with `resets` flags `[B, T]`, where 1 says that the
/// state is zero before that step. Outputs: h of every step, the last state, and what the gradient reads.
#[derive(Clone, Copy, Debug)]
pub struct Recurrent<C> {
    /// The formulas.
    pub cell: C,
    /// Whether the first state is given; else it is zero.
    pub state: bool,
    /// Whether there are flags.
    pub resets: bool,
}

#[derive(Clone, Copy)]
struct Sizes {
    t: usize,
    i: usize,
    h: usize,
    /// Numbers of gates per row.
    gates: usize,
    /// Numbers of gates per row that the input's product gives.
    fed: usize,
}

impl Sizes {
    /// Numbers from a row of gates' gradients to the next. Rows a power of two apart would share few lines of the nearest
    /// cache, and weight gradients read them by columns.
    fn gradient_row(&self) -> usize {
        if self.gates.is_multiple_of(256) { self.gates + 16 } else { self.gates }
    }

    /// Steps whose gradients are handled together.
    fn chunk(&self, rows: usize) -> usize {
        (CHUNK_ROWS / rows.max(1)).clamp(1, self.t)
    }

    /// Most rows of a chunk for any tile of at most so many rows.
    fn most_chunk_rows(&self, rows: usize) -> usize {
        CHUNK_ROWS.max(rows).min(self.t * rows)
    }
}

#[inline(always)]
fn multiply<R: Real>(
    compute: Compute,
    (view, data): (View, &[R]),
    (weight, n): (Packed<R>, usize),
    start: Start<R>,
    (out, c_row): (&mut [R], usize),
    room: Room<R>,
) {
    let a_row = R::left_stride(compute, view);
    let left = R::left(compute, view, data, room);
    let (m, inner) = (view.rows, view.cols);
    let p = Product { m, n, outer: 1, inner, a_row, a_outer: 0, a_inner: 1, b_outer: 0, b_inner: n, c_row };
    R::product(compute, &p, left, weight, start, out);
}

/// Scratch of [`outer`].
fn outer_scratch<R: Real>(compute: Compute, shape: Outer) -> Scratch {
    if packs(compute, &shape) {
        R::packed_len(compute.or_exact(true), 1, shape.rows, shape.n)
    } else {
        R::outer_scratch(compute, shape)
    }
}

/// Whether [`outer`] packs B: in f32 on registers.
fn packs(compute: Compute, shape: &Outer) -> bool {
    matches!(compute.precision, Precision::F32 | Precision::Tf32) && !compute.thirds_of(shape)
}

/// [`Real::outer`] with B packed: its rows are often a power of two apart, and so fight for few lines of the nearest cache.
fn outer<R: Real>(compute: Compute, s: Outer, a: &[R], b: &[R], room: Room<R>, c: &mut [R]) {
    if !packs(compute, &s) {
        return R::outer(compute, s, a, b, room, c);
    }
    let (compute, packed) = (compute.or_exact(true), room.real);
    R::pack(compute, 1, s.rows, s.n, b, s.b_row, 1, PackedMut { real: packed, half: room.half });
    let p = Product {
        m: s.m,
        n: s.n,
        outer: 1,
        inner: s.rows,
        a_row: 1,
        a_outer: 0,
        a_inner: s.a_row,
        b_outer: 0,
        b_inner: s.n,
        c_row: s.c_row,
    };
    R::product(compute, &p, Left::Real(a), Packed::Real(packed), Start::Add, c);
}

#[inline(always)]
fn blocks<R>(row: &[R], h: usize) -> [&[R]; GATES] {
    std::array::from_fn(|k| &row[k * h..][..h])
}

#[inline(always)]
fn blocks_mut<R>(row: &mut [R], h: usize) -> [&mut [R]; GATES] {
    let (a, row) = row.split_at_mut(h);
    let (b, row) = row.split_at_mut(h);
    let (c, d) = row.split_at_mut(h);
    [a, b, c, &mut d[..h]]
}

/// Row `row` of a state, or nothing where the cell has no such state.
#[inline(always)]
fn row_of<R>(x: &[R], row: usize, h: usize) -> &[R] {
    if x.is_empty() { x } else { &x[row * h..][..h] }
}

#[inline(always)]
fn row_of_mut<R>(x: &mut [R], row: usize, h: usize) -> &mut [R] {
    if x.is_empty() { x } else { &mut x[row * h..][..h] }
}

#[inline(always)]
fn scale_row<R: Real, L: Vectors<R>>(from: &[R], factor: R, to: &mut [R]) {
    let factor = L::splat(factor);
    for (from, to) in from.chunks(L::LANES).zip(to.chunks_mut(L::LANES)) {
        L::write_part(L::read_part(from) * factor, to);
    }
}

/// 0 if the episode begins anew at a step.
#[inline(always)]
fn keep<R: Real>(resets: &[R], t: usize, row: usize, step: usize) -> R {
    if resets.is_empty() || step == t { R::of(1.0) } else { R::of(1.0) - resets[row * t + step] }
}

impl<C: Cell> Recurrent<C> {
    const SAVED: usize = 1 + C::STATES;

    fn sizes(types: &Types) -> Sizes {
        let shape = &types.x[0].shape;
        let h = types.x[2].shape[1];
        let (t, i) = if shape.len() == 1 { (1, shape[0]) } else { (shape[0], shape[1]) };
        Sizes { t, i, h, gates: GATES * h, fed: C::BLOCKS * h }
    }

    fn resets_input(&self) -> usize {
        if self.state { 5 + C::STATES } else { 5 }
    }

    /// Precisions of the input's and the state's products: f32 where they are too small to gain from less.
    fn computes(s: &Sizes, compute: Compute) -> (Compute, Compute) {
        (compute.or_exact(s.fed.min(s.i) < 16), compute.or_exact(s.h < 16))
    }

    fn weight_gradient(s: &Sizes, rows: usize) -> Outer {
        Outer { add: true, rows, m: s.fed, n: s.i, a_row: s.gradient_row(), b_row: s.i, c_row: s.i }
    }

    fn part_gradient(s: &Sizes, part: &Part, rows: usize) -> Outer {
        Outer { add: true, rows, m: part.len * s.h, n: s.h, a_row: s.gradient_row(), b_row: s.h, c_row: s.h }
    }
}

impl<C: Cell> Recurrent<C>
where
    Self: HasCases,
{
    /// Adds layers `<name>.weight_ih_l0`, … as PyTorch names and initialises them.
    pub(super) fn layers(
        cell: C,
        g: &mut Graph,
        name: &str,
        x: Node,
        hidden: usize,
        layers: usize,
        memory: &Memory,
    ) -> Result<Recurrence> {
        let states = [memory.h0, memory.c0];
        let given = !memory.h0.is_empty();
        let wanted = |s: usize| if given && s < C::STATES { layers } else { 0 };
        if layers == 0 || hidden == 0 || (0..2).any(|s| states[s].len() != wanted(s)) {
            return Err(operant_base::Error::Invalid(format!(
                "{} \"{name}\" of {layers} layers of {hidden} with {} h0 and {} c0: wanted at least one layer and one number, \
                 and as many first states as layers, or none",
                C::NAME,
                memory.h0.len(),
                memory.c0.len()
            )));
        }
        let init = Init::TorchLinear { fan_in: hidden };
        let mut found = Recurrence { y: x, h: Vec::new(), c: Vec::new() };
        for layer in 0..layers {
            let features = g.features(name, found.y)?;
            let rows = C::BLOCKS * hidden;
            let mut inputs = vec![
                found.y,
                g.param(&format!("{name}.weight_ih_l{layer}"), [rows, features], init),
                g.param(&format!("{name}.weight_hh_l{layer}"), [rows, hidden], init),
                g.param(&format!("{name}.bias_ih_l{layer}"), [rows], init),
                g.param(&format!("{name}.bias_hh_l{layer}"), [rows], init),
            ];
            inputs.extend(states.iter().filter_map(|nodes| nodes.get(layer)));
            inputs.extend(memory.resets);
            let op = Self { cell, state: given, resets: memory.resets.is_some() };
            let name = if layers == 1 { name.to_owned() } else { format!("{name}.l{layer}") };
            let y = g.add_op(&name, op, &inputs)?;
            found.y = y[0];
            found.h.push(y[1]);
            if C::STATES == 2 {
                found.c.push(y[2]);
            }
        }
        Ok(found)
    }
}

/// The cases that an op over a cell is checked on.
pub trait HasCases {
    /// See [`Op::cases`].
    fn cases(random: &mut super::check::Random) -> Vec<super::check::Case>;
}

/// What layers with a state remember at first, and when they forget it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory<'a> {
    /// First h `[B, H]` of every layer; zeros if empty.
    pub h0: &'a [Node],
    /// First c `[B, H]` of every layer of an LSTM, given with `h0`.
    pub c0: &'a [Node],
    /// Flags `[B, T]`: 1 where an episode begins, so that the state before that step is zero.
    pub resets: Option<Node>,
}

/// What layers with a state give.
#[derive(Clone, Debug)]
pub struct Recurrence {
    /// h of the last layer after every step, `[B, T, H]` (`[B, H]` for one step of `[B, I]`).
    pub y: Node,
    /// The last h of every layer, `[B, H]`.
    pub h: Vec<Node>,
    /// The last c of every layer of an LSTM, `[B, H]`.
    pub c: Vec<Node>,
}

impl<C: Cell> Op for Recurrent<C>
where
    Self: HasCases,
{
    const NAME: &'static str = C::NAME;

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = self.resets_input() + usize::from(self.resets);
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        let (t, i) = match x[0].shape[..] {
            [i] if x[0].kind == Kind::Rows => (1, i),
            [t, i] if x[0].kind == Kind::Rows => (t, i),
            _ => return Err("wanted steps [B, T, features] or one step [B, features]".into()),
        };
        let h = x[2].shape.last().copied().unwrap_or(0);
        if t * i * h == 0 {
            return Err("wanted at least one step, one feature and one hidden number".into());
        }
        let rows = C::BLOCKS * h;
        if x[1].shape != [rows, i] || x[2].shape != [rows, h] || x[3].shape != [rows] || x[4].shape != [rows] {
            return Err(format!("wanted weights [{rows}, {i}] and [{rows}, {h}] and biases [{rows}]"));
        }
        if self.state && x[5..5 + C::STATES].iter().any(|state| *state != Type::rows([h])) {
            return Err(format!("wanted first states [B, {h}]"));
        }
        if self.resets && x[self.resets_input()] != Type::rows([t]) {
            return Err(format!("wanted resets [B, {t}]"));
        }
        let mut shape = x[0].shape.clone();
        *shape.last_mut().expect("has a last axis") = h;
        let mut y = vec![Type::rows(shape)];
        y.extend((0..C::STATES).map(|_| Type::rows([h])));
        y.push(Type::rows([t * GATES * h + (t + 1) * C::STATES * h]));
        Ok(y)
    }

    fn needs(&self, _: &Types) -> Needs {
        let resets = if self.resets { 1 << self.resets_input() } else { 0 };
        Needs { inputs: 1 | resets, outputs: 1 << Self::SAVED }
    }

    fn flops(&self, types: &Types) -> u64 {
        let s = Self::sizes(types);
        2 * (s.t * s.fed * (s.i + s.h)) as u64
    }

    fn packings(&self, types: &Types) -> Vec<Packing> {
        let s = Self::sizes(types);
        let (fed, recurrent) = (s.fed.min(s.i) < 16, s.h < 16);
        let mut list = Vec::new();
        for (packing, read_by) in
            [(Packing::transposed as fn(_, _, _) -> _, ReadBy::Forward), (Packing::straight, ReadBy::FirstGradient)]
        {
            list.push(Packing { exact: fed, read_by, ..packing(1, s.fed, s.i) });
            for part in C::PARTS {
                let offset = part.row * s.h * s.h;
                list.push(Packing { exact: recurrent, offset, ..packing(2, part.len * s.h, s.h) });
            }
        }
        list
    }

    fn least_rows(&self, types: &Types) -> usize {
        if Self::sizes(types).t > 1 { LEAST_ROWS } else { 1 }
    }

    fn scratch<R: Real>(&self, types: &Types, rows: usize, compute: Compute) -> Scratch {
        let s = Self::sizes(types);
        let (fed, recurrent) = Self::computes(&s, compute);
        let left =
            |compute, rows, cols| R::left_scratch(compute, View { rows, cols, stride: s.gradient_row().max(cols) });
        let state = R::left_scratch(recurrent, View::dense(rows, s.h));
        let many = s.most_chunk_rows(rows);
        let forward = Scratch::real(2 * s.gates + s.h + many * s.i + rows * (s.gates + 2 * C::STATES * s.h))
            .and(left(fed, many, s.i).or(state));
        let own = Scratch::real(many * (s.gradient_row() + s.i) + rows * 2 * s.h + s.h + s.gradient_row());
        let outer = |compute, shape| outer_scratch::<R>(compute, shape);
        let mut products = outer(fed, Self::weight_gradient(&s, many)).or(left(fed, many, s.fed));
        for part in C::PARTS {
            products = products.or(outer(recurrent, Self::part_gradient(&s, part, many)));
            products = products.or(left(recurrent, rows, part.len * s.h));
        }
        forward.or(own.and(products))
    }

    fn adds(&self) -> bool {
        true
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let Sizes { t: steps, i: features, h: hidden, .. } = Self::sizes(types);
        let resets = self.resets.then(|| self.resets_input());
        let layer = RecurrentLayer { steps, features, hidden, gru: C::STATES == 1, state: self.state, resets };
        Some(layer.twin(rows))
    }

    fn differentiable(&self, input: usize) -> bool {
        !(self.resets && input == self.resets_input())
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let s @ Sizes { t, i, h, .. } = Self::sizes(c.types);
        let (fed, recurrent) = Self::computes(&s, c.compute);
        let (rows, x) = (c.rows, c.x[0]);
        let resets: &[R] = if self.resets { c.x[self.resets_input()] } else { &[] };

        // Biases: of both where gates add, else of the input alone.
        let bias = c.room.take(Scratch::real(2 * s.gates)).real;
        let (bias, of_state) = bias.split_at_mut(s.gates);
        bias[..s.fed].copy_from_slice(c.x[3]);
        of_state[..s.fed].copy_from_slice(c.x[4]);
        for part in C::PARTS.iter().filter(|part| part.adds) {
            let (from, len) = (&c.x[4][part.row * h..], part.len * h);
            update::<R, L, _>(Plus, from, &mut bias[part.gate * h..][..len]);
        }

        let spare = c.room.take(Scratch::real(h)).real;
        let dense = c.room.take(Scratch::real(s.most_chunk_rows(rows) * i)).real;
        let own = c.room.take(Scratch::real(rows * (s.gates + 2 * C::STATES * h))).real;
        let saved = std::mem::take(&mut c.y[Self::SAVED]);
        // Without a gradient, steps take turns in the memory of one step's gates and two states.
        let saves = !saved.is_empty();
        let (memory, slots) = if saves { (saved, t + 1) } else { (own, 2) };
        let (gates, states) = memory.split_at_mut(rows * s.gates * if saves { t } else { 1 });
        let (hidden, cells) = states.split_at_mut(slots * rows * h);
        let slot = |step: usize| if saves { step } else { step % 2 };
        let y = std::mem::take(&mut c.y[0]);

        for (k, states) in [&mut *hidden, &mut *cells].into_iter().take(C::STATES).enumerate() {
            for (row, to) in states[..rows * h].chunks_exact_mut(h).enumerate() {
                if self.state {
                    scale_row::<R, L>(&c.x[5 + k][row * h..][..h], keep(resets, t, row, 0), to);
                } else {
                    to.fill(R::default());
                }
            }
        }
        // Inputs of several steps share a pass over the weights where there is memory for their gates.
        let chunk = if saves { s.chunk(rows) } else { 1 };
        for step in 0..t {
            let at = if saves { step * rows * s.gates } else { 0 };
            if step.is_multiple_of(chunk) {
                let many = chunk.min(t - step) * rows;
                for (k, to) in dense[..many * i].chunks_exact_mut(i).enumerate() {
                    to.copy_from_slice(&x[(k % rows * t + step + k / rows) * i..][..i]);
                }
                let (left, weight) = ((View::dense(many, i), &dense[..many * i]), (c.packed.get(0), s.fed));
                let to = (&mut gates[at..][..many * s.gates], s.gates);
                multiply(fed, left, weight, Start::Bias(&*bias), to, c.room.again());
            }
            let gates = &mut gates[at..][..rows * s.gates];
            let (before, after) = apart(hidden, rows * h, slot(step), slot(step + 1));
            for (k, part) in C::PARTS.iter().enumerate() {
                let start = if part.adds { Start::Add } else { Start::Bias(&of_state[part.row * h..]) };
                let to = (&mut gates[part.gate * h..], s.gates);
                let weight = (c.packed.get(1 + k), part.len * h);
                multiply(recurrent, (View::dense(rows, h), before), weight, start, to, c.room.again());
            }
            let len = if C::STATES == 2 { rows * h } else { 0 };
            let (cell_before, cell_after) = apart(cells, len, slot(step), slot(step + 1));
            for (row, gates) in gates.chunks_exact_mut(s.gates).enumerate() {
                let mut one = StepForward {
                    gates: blocks_mut(gates, h),
                    before: [row_of(before, row, h), row_of(cell_before, row, h)],
                    after: [row_of_mut(after, row, h), row_of_mut(cell_after, row, h)],
                    y: if y.is_empty() { &mut *spare } else { &mut y[(row * t + step) * h..][..h] },
                    keep: keep(resets, t, row, step + 1),
                };
                let whole = h / L::LANES * L::LANES;
                for at in (0..whole).step_by(L::LANES) {
                    C::forward::<R, L, false>(&mut one, at);
                }
                if whole < h {
                    C::forward::<R, L, true>(&mut one, whole);
                }
            }
        }
        for (k, states) in [&*hidden, &*cells].into_iter().take(C::STATES).enumerate() {
            if !c.y[1 + k].is_empty() {
                c.y[1 + k].copy_from_slice(&states[slot(t) * rows * h..][..rows * h]);
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let s @ Sizes { t, i, h, .. } = Self::sizes(c.types);
        let (fed, recurrent) = Self::computes(&s, c.compute);
        let (rows, x, dy) = (c.rows, c.x[0], c.dy[0]);
        let resets: &[R] = if self.resets { c.x[self.resets_input()] } else { &[] };
        let (gates, states) = c.y[Self::SAVED].split_at(t * rows * s.gates);
        let (hidden, cells) = states.split_at((t + 1) * rows * h);
        let chunk = s.chunk(rows);
        let straight = 1 + C::PARTS.len();

        let gradient_row = s.gradient_row();
        let dgates = c.room.take(Scratch::real(chunk * rows * gradient_row)).real;
        dgates.fill(R::default());
        let dense = c.room.take(Scratch::real(chunk * rows * i)).real;
        let (carry, cell_carry) = c.room.take(Scratch::real(2 * rows * h)).real.split_at_mut(rows * h);
        let cell_carry = if C::STATES == 2 { cell_carry } else { &mut [][..] };
        let zeros = c.room.take(Scratch::real(h)).real;
        let sums = c.room.take(Scratch::real(gradient_row)).real;
        zeros.fill(R::default());
        for (k, carry) in [&mut *carry, &mut *cell_carry].into_iter().take(C::STATES).enumerate() {
            match c.dy[1 + k] {
                [] => carry.fill(R::default()),
                last => carry.copy_from_slice(last),
            }
        }

        let mut end = t;
        while end > 0 {
            let first = end.saturating_sub(chunk);
            for step in (first..end).rev() {
                let dgates = &mut dgates[(step - first) * rows * gradient_row..][..rows * gradient_row];
                let gates = &gates[step * rows * s.gates..][..rows * s.gates];
                let before = &hidden[step * rows * h..][..rows * h];
                let cell_before = if C::STATES == 2 { &cells[step * rows * h..][..rows * h] } else { &[][..] };
                for (row, dgates) in dgates.chunks_exact_mut(gradient_row).enumerate() {
                    let mut one = StepBackward {
                        gates: blocks(&gates[row * s.gates..], h),
                        before: [row_of(before, row, h), row_of(cell_before, row, h)],
                        dy: if dy.is_empty() { &*zeros } else { &dy[(row * t + step) * h..][..h] },
                        carry: [row_of_mut(carry, row, h), row_of_mut(cell_carry, row, h)],
                        dgates: blocks_mut(dgates, h),
                        keep: keep(resets, t, row, step + 1),
                    };
                    let whole = h / L::LANES * L::LANES;
                    for at in (0..whole).step_by(L::LANES) {
                        C::backward::<R, L, false>(&mut one, at);
                    }
                    if whole < h {
                        C::backward::<R, L, true>(&mut one, whole);
                    }
                }
                for (k, part) in C::PARTS.iter().enumerate() {
                    let view = View { rows, cols: part.len * h, stride: gradient_row };
                    let left = (view, &dgates[part.gate * h..]);
                    let start = if C::PASSES || k > 0 { Start::Add } else { Start::Zero };
                    let weight = (c.packed.get(straight + 1 + k), h);
                    multiply(recurrent, left, weight, start, (&mut *carry, h), c.room.again());
                }
            }

            let many = (end - first) * rows;
            let dgates = &dgates[..many * gradient_row];
            if !c.dx[1].is_empty() {
                for (k, to) in dense[..many * i].chunks_exact_mut(i).enumerate() {
                    to.copy_from_slice(&x[(k % rows * t + first + k / rows) * i..][..i]);
                }
                outer(fed, Self::weight_gradient(&s, many), dgates, dense, c.room.again(), c.dx[1]);
            }
            if !c.dx[2].is_empty() {
                let before = &hidden[first * rows * h..][..many * h];
                for part in C::PARTS {
                    let to = &mut c.dx[2][part.row * h * h..];
                    let shape = Self::part_gradient(&s, part, many);
                    outer(recurrent, shape, &dgates[part.gate * h..], before, c.room.again(), to);
                }
            }
            if !c.dx[3].is_empty() || !c.dx[4].is_empty() {
                sums.fill(R::default());
                add_columns::<R, L>(dgates, sums);
                if !c.dx[3].is_empty() {
                    update::<R, L, _>(Plus, &sums[..s.fed], c.dx[3]);
                }
                let wanted = if c.dx[4].is_empty() { &[][..] } else { C::PARTS };
                for part in wanted {
                    let to = &mut c.dx[4][part.row * h..][..part.len * h];
                    update::<R, L, _>(Plus, &sums[part.gate * h..], to);
                }
            }
            if !c.dx[0].is_empty() {
                let view = View { rows: many, cols: s.fed, stride: gradient_row };
                let weight = (c.packed.get(straight), i);
                multiply(fed, (view, dgates), weight, Start::Zero, (&mut *dense, i), c.room.again());
                for (k, from) in dense[..many * i].chunks_exact(i).enumerate() {
                    let to = &mut c.dx[0][(k % rows * t + first + k / rows) * i..][..i];
                    if c.add & 1 == 1 {
                        update::<R, L, _>(Plus, from, to);
                    } else {
                        to.copy_from_slice(from);
                    }
                }
            }
            end = first;
        }
        for (k, carry) in [&*carry, &*cell_carry].into_iter().take(C::STATES).enumerate() {
            let add = c.add >> (5 + k) & 1 == 1;
            if !self.state || c.dx[5 + k].is_empty() {
                continue;
            }
            for (row, (to, from)) in c.dx[5 + k].chunks_exact_mut(h).zip(carry.chunks_exact(h)).enumerate() {
                let factor = keep(resets, t, row, 0);
                if add {
                    to.iter_mut().zip(from).for_each(|(to, &from)| *to += from * factor);
                } else {
                    scale_row::<R, L>(from, factor, to);
                }
            }
        }
    }

    fn cases(random: &mut super::check::Random) -> Vec<super::check::Case> {
        <Self as HasCases>::cases(random)
    }
}

/// Slots `before` and `after`, two different ones, of memory cut into slots of `len`.
#[inline(always)]
fn apart<R>(memory: &mut [R], len: usize, before: usize, after: usize) -> (&[R], &mut [R]) {
    if before < after {
        let (low, high) = memory.split_at_mut(after * len);
        (&low[before * len..][..len], &mut high[..len])
    } else {
        let (low, high) = memory.split_at_mut(before * len);
        (&high[..len], &mut low[after * len..][..len])
    }
}

/// Rows of a tile that make a step's product as fast as a large one: the weights are read from the second-level cache
/// once per step, whatever the rows.
const LEAST_ROWS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_of_any_tile_fits_its_scratch() {
        for t in [1, 2, 7, 64, 1000] {
            let s = Sizes { t, i: 1, h: 1, gates: GATES, fed: GATES };
            for most in 1..300 {
                let longest = (1..=most).map(|rows| s.chunk(rows) * rows).max();
                assert!(longest <= Some(s.most_chunk_rows(most)), "{t} steps, tiles of up to {most} rows");
            }
        }
    }
}
