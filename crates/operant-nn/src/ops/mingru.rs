//! The scan of a minimal GRU (Feng et al., "Were RNNs all we needed?", 2024): gates that do not look at the state.

use crate::cuda::{Launch, THREADS, Text, Twin};
use super::super::check::{Case, Given, Random, Values, away_from_zero, fixed, rows, with};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Real, Scratch};
use super::super::recurrent::{Memory, Recurrence, read, write};
use super::super::{Graph, Init, Node};
use operant_lanes::{Float, Lanes, Vectors, select};
use operant_base::{Error, Result};

/// `h′ = (1 − z)·h + z·g(v)` with z the sigmoid of the gate. Inputs: `[B, T, 2·H]` or `[B, 2·H]`, first the candidates v,
/// then the gates; with `state` the first h `[B, H]`; with `resets` flags `[B, T]`, where 1 says that h is zero before that
/// step. Outputs: h of every step and the last h.
#[derive(Clone, Copy, Debug)]
pub struct MinGru {
    /// g(v) is v + ½ above 0 and sigmoid(v) below, which keeps h positive; else it is v.
    pub positive: bool,
    /// Whether the first h is given; else it is zero.
    pub state: bool,
    /// Whether there are flags.
    pub resets: bool,
}

fn sizes(types: &Types) -> (usize, usize) {
    let shape = &types.x[0].shape;
    (if shape.len() == 1 { 1 } else { shape[0] }, types.y[1].shape[0])
}

/// The candidate and its derivative.
#[inline(always)]
fn candidate<L: Lanes>(positive: bool, v: L::F) -> (L::F, L::F) {
    if !positive {
        return (v, L::F::from(1.0));
    }
    let s = v.sigmoid();
    let above = v.ge(0.0);
    (select::<_, L::F>(above, v + 0.5, s), select::<_, L::F>(above, 1.0, s - s * s))
}

impl MinGru {
    fn resets_input(&self) -> usize {
        1 + usize::from(self.state)
    }

    #[inline(always)]
    fn keep<R: Real>(&self, resets: &[R], at: usize) -> R {
        if self.resets { R::of(1.0) - resets[at] } else { R::of(1.0) }
    }

    #[inline(always)]
    fn forward_at<R: Real, L: Vectors<R>, const TAIL: bool>(
        &self,
        (v, gate): (&[R], &[R]),
        keep: R,
        carry: &mut [R],
        y: &mut [R],
        at: usize,
    ) {
        let z = read::<R, L, TAIL>(gate, at).sigmoid();
        let (new, _) = candidate::<L>(self.positive, read::<R, L, TAIL>(v, at));
        let before = read::<R, L, TAIL>(carry, at) * L::splat(keep);
        let h = z.mul_add(new - before, before);
        write::<R, L, TAIL>(h, carry, at);
        write::<R, L, TAIL>(h, y, at);
    }

    #[inline(always)]
    fn backward_at<R: Real, L: Vectors<R>, const TAIL: bool>(
        &self,
        (v, gate): (&[R], &[R]),
        (before, keep): (&[R], R),
        dy: &[R],
        carry: &mut [R],
        (dv, dgate): (&mut [R], &mut [R]),
        at: usize,
    ) {
        let z = read::<R, L, TAIL>(gate, at).sigmoid();
        let (new, slope) = candidate::<L>(self.positive, read::<R, L, TAIL>(v, at));
        let before = read::<R, L, TAIL>(before, at) * L::splat(keep);
        let dh = read::<R, L, TAIL>(carry, at) + read::<R, L, TAIL>(dy, at);
        let to_new = dh * z;
        let to_before = dh - to_new;
        write::<R, L, TAIL>(to_new * slope, dv, at);
        write::<R, L, TAIL>(to_before * z * (new - before), dgate, at);
        write::<R, L, TAIL>(to_before * L::splat(keep), carry, at);
    }
}

impl Op for MinGru {
    const NAME: &'static str = "min_gru";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = self.resets_input() + usize::from(self.resets);
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        let (t, both) = match x[0].shape[..] {
            [both] => (1, both),
            [t, both] => (t, both),
            _ => (0, 0),
        };
        if x[0].kind != Kind::Rows || t * both == 0 || both % 2 != 0 {
            return Err("wanted candidates and gates [B, T, 2·H] or [B, 2·H]".into());
        }
        let h = both / 2;
        if self.state && x[1] != Type::rows([h]) {
            return Err(format!("wanted a first state [B, {h}]"));
        }
        if self.resets && x[self.resets_input()] != Type::rows([t]) {
            return Err(format!("wanted resets [B, {t}]"));
        }
        let mut shape = x[0].shape.clone();
        *shape.last_mut().expect("has a last axis") = h;
        Ok(vec![Type::rows(shape), Type::rows([h])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: (1 << (self.resets_input() + 1)) - 1, outputs: 1 }
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(4 * sizes(types).1)
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (t, h) = sizes(types);
        let [positive, state] = [self.positive, self.state].map(usize::from);
        let numbers = [t, h, positive, state, if self.resets { self.resets_input() } else { 0 }];
        let blocks = (rows * h).div_ceil(THREADS);
        let one = |kernel| Launch::blocks(Text::Recurrent, kernel, blocks).numbers(numbers);
        Some(Twin::new([one("min_gru_forward")], [one("min_gru_backward")]))
    }

    fn differentiable(&self, input: usize) -> bool {
        !(self.resets && input == self.resets_input())
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (t, h) = sizes(c.types);
        let (carry, spare) = c.room.take(Scratch::real(2 * h)).real.split_at_mut(h);
        let whole = h / L::LANES * L::LANES;
        let resets = c.x[self.resets_input()];
        for row in 0..c.rows {
            if self.state {
                carry.copy_from_slice(&c.x[1][row * h..][..h]);
            } else {
                carry.fill(R::default());
            }
            for step in row * t..(row + 1) * t {
                let x = c.x[0][2 * step * h..][..2 * h].split_at(h);
                let y = if c.y[0].is_empty() { &mut *spare } else { &mut c.y[0][step * h..][..h] };
                let keep = self.keep(resets, step);
                for at in (0..whole).step_by(L::LANES) {
                    self.forward_at::<R, L, false>(x, keep, carry, y, at);
                }
                if whole < h {
                    self.forward_at::<R, L, true>(x, keep, carry, y, whole);
                }
            }
            if !c.y[1].is_empty() {
                c.y[1][row * h..][..h].copy_from_slice(carry);
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (t, h) = sizes(c.types);
        let (carry, zeros) = c.room.take(Scratch::real(2 * h)).real.split_at_mut(h);
        let spare = c.room.take(Scratch::real(2 * h)).real;
        zeros.fill(R::default());
        let whole = h / L::LANES * L::LANES;
        let resets = c.x[self.resets_input()];
        for row in 0..c.rows {
            match c.dy[1] {
                [] => carry.fill(R::default()),
                last => carry.copy_from_slice(&last[row * h..][..h]),
            }
            for step in (row * t..(row + 1) * t).rev() {
                let x = c.x[0][2 * step * h..][..2 * h].split_at(h);
                let before = match step - row * t {
                    0 if self.state => &c.x[1][row * h..][..h],
                    0 => &*zeros,
                    _ => &c.y[0][(step - 1) * h..][..h],
                };
                let before = (before, self.keep(resets, step));
                let dy = if c.dy[0].is_empty() { &*zeros } else { &c.dy[0][step * h..][..h] };
                // Where only the first state wants a gradient, that of x goes nowhere.
                let dx = if c.dx[0].is_empty() { &mut *spare } else { &mut c.dx[0][2 * step * h..][..2 * h] };
                let (dv, dgate) = dx.split_at_mut(h);
                for at in (0..whole).step_by(L::LANES) {
                    self.backward_at::<R, L, false>(x, before, dy, carry, (&mut *dv, &mut *dgate), at);
                }
                if whole < h {
                    self.backward_at::<R, L, true>(x, before, dy, carry, (&mut *dv, &mut *dgate), whole);
                }
            }
            if self.state && !c.dx[1].is_empty() {
                c.dx[1][row * h..][..h].copy_from_slice(carry);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for (state, resets, positive) in [(false, false, false), (true, true, true), (true, false, true)] {
            for steps in [Some(random.size(2, 9)), None] {
                let h = random.size(1, 40);
                let shape = steps.map_or(vec![2 * h], |t| vec![t, 2 * h]);
                let mut given: Vec<Given> = vec![away_from_zero(rows(shape))];
                if state {
                    given.push(rows([h]));
                }
                if resets {
                    given.push(fixed(with(Values::Mask(1 << 20), rows([steps.unwrap_or(1)]))));
                }
                cases.push(Case::op(Self { positive, state, resets }, given));
            }
        }
        cases
    }
}

impl Graph {
    /// A minimal GRU over `[B, T, I]`, or one step of `[B, I]`: the linear layer `<name>.to_hidden_and_gate` without bias, then
    /// the scan. `positive` keeps the state positive, as the paper's form for logarithms does.
    pub fn min_gru(
        &mut self,
        name: &str,
        x: Node,
        hidden: usize,
        positive: bool,
        memory: &Memory,
    ) -> Result<Recurrence> {
        if memory.h0.len() > 1 || !memory.c0.is_empty() {
            let (h0, c0) = (memory.h0.len(), memory.c0.len());
            return Err(Error::Invalid(format!("min_gru \"{name}\" with {h0} h0 and {c0} c0: wanted at most one h0")));
        }
        let layer = format!("{name}.to_hidden_and_gate");
        let fan_in = self.features(&layer, x)?;
        let both = self.linear_with(&layer, x, 2 * hidden, Init::TorchLinear { fan_in }, None)?;
        let mut inputs = vec![both];
        inputs.extend(memory.h0);
        inputs.extend(memory.resets);
        let op = MinGru { positive, state: !memory.h0.is_empty(), resets: memory.resets.is_some() };
        let y = self.add_op(name, op, &inputs)?;
        Ok(Recurrence { y: y[0], h: vec![y[1]], c: Vec::new() })
    }
}
