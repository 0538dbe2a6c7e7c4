//! Softmax and its logarithm over the last axis.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, Values, fixed, rows, with};
use super::super::elementwise::{dot, sum};
use super::super::long_rows::{chunk, exp_shifted, largest, legal, log_sum_exp};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Vectors, select};

/// Inputs: x `[B, …, K]` and with `masked` a mask of the same shape, whose zeros take places out: probability 0, logarithm −∞,
/// no gradient. A row needs at least one place that is not masked.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    /// Logarithms of the probabilities.
    pub log: bool,
    /// Whether there is a second input.
    pub masked: bool,
}

/// The part of a mask that belongs to a row; empty if there is no mask.
#[inline(always)]
pub(super) fn mask_row<R>(mask: &[R], row: usize, len: usize) -> &[R] {
    if mask.is_empty() { mask } else { &mask[row * len..][..len] }
}

impl Op for Softmax {
    const NAME: &'static str = "softmax";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x] if !self.masked && x.kind == Kind::Rows && !x.is_empty() && !x.shape.is_empty() => Ok(vec![x.clone()]),
            [x, mask] if self.masked && x.kind == Kind::Rows && x == mask && !x.is_empty() && !x.shape.is_empty() => {
                Ok(vec![x.clone()])
            }
            _ if self.masked => Err("wanted two inputs with rows of one shape".into()),
            _ => Err("wanted one input with rows and at least one axis".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: if self.masked { 2 } else { 0 }, outputs: 1 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let k = *types.x[0].shape.last()?;
        let count = types.x[0].len() / k;
        let numbers = [count, k, usize::from(self.log), usize::from(self.masked)];
        let one = |kernel| Launch::warps(Text::Rows, kernel, rows * count).numbers(numbers);
        Some(Twin::new([one("softmax_forward")], [one("softmax_backward")]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let k = *c.types.x[0].shape.last().expect("has a last axis");
        for (row, (y, x)) in c.y[0].chunks_exact_mut(k).zip(c.x[0].chunks_exact(k)).enumerate() {
            let mask = mask_row(c.x[1], row, k);
            if self.log {
                let shift = L::splat(log_sum_exp::<R, L>(x, mask));
                for at in (0..k).step_by(L::LANES) {
                    let count = chunk::<R, L>(k, at);
                    let value = L::read_part(&x[at..at + count]) - shift;
                    let value = select::<_, L::F>(legal::<R, L>(mask, at, count), value, f32::NEG_INFINITY);
                    L::write_part(value, &mut y[at..at + count]);
                }
            } else {
                let total = exp_shifted::<R, L>(x, mask, largest::<R, L>(x, mask), y);
                let scale = L::splat(total).reciprocal();
                for at in (0..k).step_by(L::LANES) {
                    let y = &mut y[at..][..chunk::<R, L>(k, at)];
                    let value = L::read_part(y) * scale;
                    L::write_part(value, y);
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let k = *c.types.x[0].shape.last().expect("has a last axis");
        let rows = c.y[0].chunks_exact(k).zip(c.dy[0].chunks_exact(k));
        for (row, (dx, (y, dy))) in c.dx[0].chunks_exact_mut(k).zip(rows).enumerate() {
            let mask = mask_row(c.x[1], row, k);
            let total = match (self.log, self.masked) {
                (false, _) => dot::<R, L>(y, dy),
                (true, false) => sum::<R, L>(dy),
                (true, true) => masked_sum::<R, L>(dy, mask),
            };
            let total = L::splat(total);
            for at in (0..k).step_by(L::LANES) {
                let count = chunk::<R, L>(k, at);
                let (y, dy) = (L::read_part(&y[at..at + count]), L::read_part(&dy[at..at + count]));
                let value = if self.log { dy - y.exp_fast() * total } else { y * (dy - total) };
                let value = select::<_, L::F>(legal::<R, L>(mask, at, count), value, 0.0);
                L::write_part(value, &mut dx[at..at + count]);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (k, t) = (random.size(1, 40), random.size(1, 3));
        let mask = |shape: Vec<usize>| {
            let k = shape[shape.len() - 1];
            fixed(with(Values::Mask(k), rows(shape)))
        };
        let mut cases = Vec::new();
        for log in [false, true] {
            cases.push(Case::op(Self { log, masked: false }, [rows([k])]));
            cases.push(Case::op(Self { log, masked: false }, [rows([t, 3])]));
            // A loss that weighs −∞ is no loss: only the exponential is looked at, which is 0 there.
            cases.push(Case::build(format!("masked, log: {log}"), [rows([t, k]), mask(vec![t, k])], move |g, x| {
                let y = g.apply("", Self { log, masked: true }, x)?;
                Ok(vec![if log { g.exp(y)? } else { y }])
            }));
        }
        cases
    }
}

#[inline(always)]
fn masked_sum<R: Real, L: Vectors<R>>(x: &[R], mask: &[R]) -> R {
    let mut sum = L::F::from(0.0);
    for at in (0..x.len()).step_by(L::LANES) {
        let count = chunk::<R, L>(x.len(), at);
        sum = sum + select::<_, L::F>(legal::<R, L>(mask, at, count), L::read_part(&x[at..at + count]), 0.0);
    }
    L::sum(sum)
}

impl Graph {
    /// Probabilities over the last axis. A mask of the same shape takes out the places where it is 0.
    pub fn softmax(&mut self, x: Node, mask: Option<Node>) -> Result<Node> {
        self.any_softmax(x, mask, false)
    }

    /// Logarithms of probabilities over the last axis; −∞ where the mask is 0.
    pub fn log_softmax(&mut self, x: Node, mask: Option<Node>) -> Result<Node> {
        self.any_softmax(x, mask, true)
    }

    fn any_softmax(&mut self, x: Node, mask: Option<Node>, log: bool) -> Result<Node> {
        let inputs: Vec<Node> = [x].into_iter().chain(mask).collect();
        self.apply("", Softmax { log, masked: mask.is_some() }, &inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Feed, Gradients, Graph, Options, Plan};

    /// A gradient arrives at the −∞ of a masked place, and none leaves it.
    #[test]
    fn masked_places_have_no_gradient() {
        let mut g = Graph::new();
        let x = g.input_with_gradient("x", [3]);
        let mask = g.input("mask", [3]);
        let y = g.log_softmax(x, Some(mask)).unwrap();
        let y = g.clip(y, -50.0, 0.0).unwrap();
        let y = g.scale(y, 2.0).unwrap();
        let loss = g.sum(y, 1).unwrap();
        let mut plan = Plan::training(&g, loss, 1, &Options::default()).unwrap();
        let feeds = [Feed::Real(&[1.0, 700.0, 1.0][..]), Feed::Real(&[1.0, 0.0, 1.0][..])];
        let outcome = plan.train(&g.params(0).unwrap(), 1, &feeds, 1.0, Gradients::Replace);
        assert!((f64::from(outcome.loss) - 2.0 * (2.0 * 0.5f64.ln() - 50.0)).abs() < 1e-4, "{outcome:?}");
        assert_eq!(plan.input_gradient(x).unwrap(), [0.0; 3]);
    }
}
