//! Long short-term memory (Hochreiter & Schmidhuber, 1997) with PyTorch's gates i, f, g, o.

use super::super::check::{Case, Given, Random, Values, fixed, rows, whole, with};
use super::super::real::Real;
use super::super::recurrent::{
    Cell, HasCases, Memory, Part, Recurrence, Recurrent, StepBackward, StepForward, read, write,
};
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Vectors};

/// `c′ = f·c + i·g`, `h′ = o·tanh(c′)`; gates are kept activated.
#[derive(Clone, Copy, Debug, Default)]
pub struct LstmCell;

/// An LSTM layer; see [`Recurrent`] for its inputs.
pub type Lstm = Recurrent<LstmCell>;

impl Cell for LstmCell {
    const NAME: &'static str = "lstm";
    const BLOCKS: usize = 4;
    const STATES: usize = 2;
    const PARTS: &'static [Part] = &[Part { gate: 0, row: 0, len: 4, adds: true }];
    const PASSES: bool = false;

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>, const TAIL: bool>(s: &mut StepForward<R>, at: usize) {
        let i = read::<R, L, TAIL>(s.gates[0], at).sigmoid();
        let f = read::<R, L, TAIL>(s.gates[1], at).sigmoid();
        let g = read::<R, L, TAIL>(s.gates[2], at).tanh_fast();
        let o = read::<R, L, TAIL>(s.gates[3], at).sigmoid();
        let c = f.mul_add(read::<R, L, TAIL>(s.before[1], at), i * g);
        let h = o * c.tanh_fast();
        let keep = L::splat(s.keep);
        write::<R, L, TAIL>(i, s.gates[0], at);
        write::<R, L, TAIL>(f, s.gates[1], at);
        write::<R, L, TAIL>(g, s.gates[2], at);
        write::<R, L, TAIL>(o, s.gates[3], at);
        write::<R, L, TAIL>(h, s.y, at);
        write::<R, L, TAIL>(h * keep, s.after[0], at);
        write::<R, L, TAIL>(c * keep, s.after[1], at);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>, const TAIL: bool>(s: &mut StepBackward<R>, at: usize) {
        let keep = L::splat(s.keep);
        let i = read::<R, L, TAIL>(s.gates[0], at);
        let f = read::<R, L, TAIL>(s.gates[1], at);
        let g = read::<R, L, TAIL>(s.gates[2], at);
        let o = read::<R, L, TAIL>(s.gates[3], at);
        let before = read::<R, L, TAIL>(s.before[1], at);
        let tanh = f.mul_add(before, i * g).tanh_fast();
        let dh = read::<R, L, TAIL>(s.carry[0], at).mul_add(keep, read::<R, L, TAIL>(s.dy, at));
        let through = dh * o;
        let dc = read::<R, L, TAIL>(s.carry[1], at).mul_add(keep, through - through * tanh * tanh);
        write::<R, L, TAIL>(dc * g * (i - i * i), s.dgates[0], at);
        write::<R, L, TAIL>(dc * before * (f - f * f), s.dgates[1], at);
        let di = dc * i;
        write::<R, L, TAIL>(di - di * g * g, s.dgates[2], at);
        write::<R, L, TAIL>(through * tanh * (-o + 1.0), s.dgates[3], at);
        write::<R, L, TAIL>(dc * f, s.carry[1], at);
    }
}

/// Cases of a layer with `blocks` blocks of weights and as many states as given: with and without first states and
/// resets, over one step and several. All outputs but the last, which only the gradient reads.
pub(super) fn cases<C: Cell>(cell: C, random: &mut Random) -> Vec<Case>
where
    Recurrent<C>: HasCases,
{
    let mut cases = Vec::new();
    for (state, resets) in [(false, false), (true, false), (false, true), (true, true)] {
        for shape in [vec![random.size(2, 5), random.size(1, 20)], vec![random.size(1, 20)]] {
            let (h, i) = (random.size(1, 36), shape[shape.len() - 1]);
            let t = if shape.len() == 2 { shape[0] } else { 1 };
            let n = C::BLOCKS * h;
            // An input's gradient is not always wanted.
            let x = if state && resets { fixed(rows(shape)) } else { rows(shape) };
            let mut given: Vec<Given> = vec![x, whole([n, i]), whole([n, h]), whole([n]), whole([n])];
            if state {
                given.extend((0..C::STATES).map(|_| rows([h])));
            }
            if resets {
                given.push(fixed(with(Values::Mask(1 << 20), rows([t]))));
            }
            let op = Recurrent { cell, state, resets };
            let seen = 1 + C::STATES;
            cases.push(
                Case::build(format!("{op:?}"), given, move |g, x| Ok(g.add_op("", op, x)?[..seen].to_vec()))
                    .tolerance(5e-5),
            );
        }
    }
    cases
}

impl HasCases for Lstm {
    fn cases(random: &mut Random) -> Vec<Case> {
        cases(LstmCell, random)
    }
}

impl Graph {
    /// LSTM layers over `[B, T, I]`, or one step of `[B, I]`, as torch.nn.LSTM with batch_first.
    pub fn lstm(&mut self, name: &str, x: Node, hidden: usize, layers: usize, memory: &Memory) -> Result<Recurrence> {
        Recurrent::layers(LstmCell, self, name, x, hidden, layers, memory)
    }
}
