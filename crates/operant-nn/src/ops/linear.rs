//! `y = act(x·Wᵀ + b)` over the last axis.

use crate::cuda::{Products, Twin};
use super::super::check::{Case, Random, fixed, rows, whole};
use super::super::elementwise::{activate_for, activation_gradient, add_columns, gradient_and_columns};
use super::super::op::{Act, Backward, Forward, Kind, Needs, Op, Packing, ReadBy, Type, Types};
use super::super::real::{Compute, Outer, Real, Scratch, Start, View};
use super::super::{Graph, Init, Node};
use operant_base::Result;
use operant_device::gemm::Product;
use operant_lanes::Vectors;

/// Inputs: x `[B, …, K]`, weight `[N, K]`, and with `bias` a bias `[N]`.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// Whether there is a third input.
    pub bias: bool,
    /// Applied to the result.
    pub act: Act,
}

/// Rows that are multiplied and activated while they are in the nearest cache; all if there is nothing to activate, or on tiles, from
/// which a change costs more than that.
fn block_rows(act: Act, m: usize, compute: Compute) -> usize {
    if act == Act::Identity || compute.tiles() { m.max(1) } else { 48 }
}

/// Products this small run in f32 whatever the plan's precision.
fn exact(n: usize, k: usize) -> bool {
    n.min(k) < 16
}

struct Sizes {
    n: usize,
    k: usize,
    /// Rows of x per row of the batch.
    inner: usize,
}

fn sizes(types: &Types) -> Sizes {
    let (n, k) = (types.x[1].shape[0], types.x[1].shape[1]);
    Sizes { n, k, inner: types.x[0].len() / k }
}

fn product(m: usize, n: usize, k: usize, a_row: usize) -> Product {
    Product { m, n, outer: 1, inner: k, a_row, a_outer: 0, a_inner: 1, b_outer: 0, b_inner: n, c_row: n }
}

/// The two products of a weight's gradient: `dW[n, k] = dZᵀ·x`, by way of its transpose where k is narrower than a
/// register.
fn weight_gradient(m: usize, n: usize, k: usize, add: bool) -> (Outer, bool) {
    if k < 16 && n > k {
        (Outer { add: false, rows: m, m: k, n, a_row: k, b_row: n, c_row: n }, true)
    } else {
        (Outer { add, rows: m, m: n, n: k, a_row: n, b_row: k, c_row: k }, false)
    }
}

impl Op for Linear {
    const NAME: &'static str = "linear";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = if self.bias { 3 } else { 2 };
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        let [n, k] = x[1].shape[..] else { return Err("wanted a weight [out, in]".into()) };
        if x[0].kind != Kind::Rows || x[0].shape.last() != Some(&k) {
            return Err(format!("wanted rows whose last axis is {k}"));
        }
        if self.bias && x[2].shape != [n] {
            return Err(format!("wanted a bias [{n}]"));
        }
        let mut shape = x[0].shape.clone();
        *shape.last_mut().expect("has a last axis") = n;
        Ok(vec![Type::rows(shape)])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 1, outputs: u32::from(self.act != Act::Identity) }
    }

    fn flops(&self, types: &Types) -> u64 {
        let Sizes { n, k, inner } = sizes(types);
        2 * (n * k * inner) as u64
    }

    fn packings(&self, types: &Types) -> Vec<Packing> {
        let Sizes { n, k, .. } = sizes(types);
        let exact = exact(n, k);
        vec![
            Packing { exact, ..Packing::transposed(1, n, k) },
            Packing { exact, read_by: ReadBy::FirstGradient, ..Packing::straight(1, n, k) },
        ]
    }

    fn scratch<R: Real>(&self, types: &Types, rows: usize, compute: Compute) -> Scratch {
        let Sizes { n, k, inner } = sizes(types);
        let (m, compute) = (rows * inner, compute.or_exact(exact(n, k)));
        let (shape, transposed) = weight_gradient(m, n, k, true);
        let forward = R::left_scratch(compute, View::dense(m, k));
        let backward = R::left_scratch(compute, View::dense(m, n)).or(R::outer_scratch(compute, shape));
        let gradient = if self.act == Act::Identity { 0 } else { m * n };
        forward.or(backward.and(Scratch::real(gradient + if transposed { k * n } else { 0 })))
    }

    fn adds(&self) -> bool {
        true
    }

    fn begins(&self, _: &Types) -> u32 {
        1 << 1
    }

    fn fuse(&self, act: Act, training: bool) -> Option<Self> {
        let can = self.act == Act::Identity && !(training && act.needs_input());
        can.then_some(Self { act, ..*self })
    }

    fn layer(&self) -> Option<Act> {
        self.bias.then_some(self.act)
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let Sizes { n, k, inner } = sizes(types);
        Some(Products::linear(inner, [k, n], self.bias, self.act).twin(rows))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let Sizes { n, k, inner } = sizes(c.types);
        let (m, compute) = (c.rows * inner, c.compute.or_exact(exact(n, k)));
        let view = View::dense(m, k);
        let stride = R::left_stride(compute, view);
        let x = R::left(compute, view, c.x[0], c.room.again());
        let weight = c.packed.get(0);
        let start = if self.bias { Start::Bias(c.x[2]) } else { Start::Zero };
        let block = block_rows(self.act, m, compute);
        for first in (0..m).step_by(block) {
            let block = block.min(m - first);
            let y = &mut c.y[0][first * n..(first + block) * n];
            R::product(compute, &product(block, n, k, stride), x.from(first * stride), weight, start, y);
            activate_for::<R, L>(self.act, c.compute.precision, y);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let Sizes { n, k, inner } = sizes(c.types);
        let (m, compute) = (c.rows * inner, c.compute.or_exact(exact(n, k)));
        let begins = c.begin >> 1 & 1 == 1;
        let (shape, transposed) = weight_gradient(m, n, k, !begins);
        let gradient = if self.act == Act::Identity { 0 } else { m * n };
        let dz = c.room.take(Scratch::real(gradient)).real;
        let (y, dy) = (c.y[0], c.dy[0]);
        let block = block_rows(self.act, m, compute);
        let view = View::dense(block, n);
        let stride = R::left_stride(compute, view);
        let start = if c.add & 1 == 1 { Start::Add } else { Start::Zero };
        // One pass for the gradient before the activation and for its sums, where rows are whole registers.
        let fused = self.act != Act::Identity && self.bias && !c.dx[2].is_empty() && n.is_multiple_of(4 * L::LANES);
        for first in (0..m).step_by(block) {
            let block = block.min(m - first);
            let rows = first * n..(first + block) * n;
            let part = if self.act == Act::Identity {
                &dy[rows]
            } else {
                let part = &mut dz[rows.clone()];
                let (y, dy) = (&y[rows.clone()], &dy[rows]);
                if fused {
                    gradient_and_columns::<R, L>(self.act, y, dy, part, c.dx[2]);
                } else {
                    activation_gradient::<R, L>(self.act, &[], y, dy, part);
                }
                part
            };
            if !c.dx[0].is_empty() {
                let part = R::left(compute, View { rows: block, ..view }, part, c.room.again());
                let dx = &mut c.dx[0][first * k..(first + block) * k];
                R::product(compute, &product(block, k, n, stride), part, c.packed.get(1), start, dx);
            }
        }
        let dz = if self.act == Act::Identity { dy } else { dz };
        if self.bias && !c.dx[2].is_empty() && !fused {
            add_columns::<R, L>(dz, c.dx[2]);
        }
        if c.dx[1].is_empty() {
            return;
        }
        if transposed {
            let sum = c.room.take(Scratch::real(k * n)).real;
            R::outer(compute, shape, c.x[0], dz, c.room.again(), sum);
            if begins {
                c.dx[1].fill(R::default());
            }
            for (j, row) in c.dx[1].chunks_exact_mut(k).enumerate() {
                row.iter_mut().enumerate().for_each(|(i, to)| *to += sum[i * n + j]);
            }
        } else {
            R::outer(compute, shape, dz, c.x[0], c.room.again(), c.dx[1]);
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for act in [Act::Identity, Act::Tanh, Act::Sigmoid] {
            let (n, k, t) = (random.size(1, 40), random.size(1, 40), random.size(1, 3));
            let op = Self { bias: true, act };
            cases.push(Case::op(op, [rows([k]), whole([n, k]), whole([n])]));
            cases.push(Case::op(Self { bias: false, act }, [rows([t, k]), whole([n, k])]));
        }
        // Wide enough for f32 on tiles, with and without a gradient of the input.
        let wide = Self { bias: true, act: Act::Tanh };
        cases.push(Case::op(wide, [fixed(rows([2, 64])), whole([96, 64]), whole([96])]).rows(35));
        cases.push(Case::op(wide, [rows([2, 96]), whole([112, 96]), whole([112])]).rows(35));
        cases
    }
}

impl Graph {
    /// A fully connected layer with parameters `<name>.weight` and `<name>.bias`, initialised as PyTorch does.
    pub fn linear(&mut self, name: &str, x: Node, outputs: usize) -> Result<Node> {
        let fan_in = self.features(name, x)?;
        self.linear_with(name, x, outputs, Init::TorchLinear { fan_in }, Some(Init::TorchLinear { fan_in }))
    }

    /// A fully connected layer whose weight and bias (if any) begin as given.
    pub fn linear_with(
        &mut self,
        name: &str,
        x: Node,
        outputs: usize,
        weight: Init,
        bias: Option<Init>,
    ) -> Result<Node> {
        let features = self.features(name, x)?;
        let mut inputs = vec![x, self.param(&format!("{name}.weight"), [outputs, features], weight)];
        if let Some(init) = bias {
            inputs.push(self.param(&format!("{name}.bias"), [outputs], init));
        }
        self.apply(name, Linear { bias: inputs.len() == 3, act: Act::Identity }, &inputs)
    }
}
