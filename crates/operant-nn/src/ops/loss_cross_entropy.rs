//! Cross-entropy of logits with classes or distributions, and divergence between two sets of logits, over the last axis.
//!
//! The outputs lose the last axis, or are `[B, 1]` if it was the only one.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, Values, fixed, ints, rows, with};
use super::super::elementwise::dot;
use super::super::long_rows::{chunk, exp_shifted, largest, legal, log, log_sum_exp};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Real, Scratch};
use super::super::{Graph, Node};
use super::softmax::mask_row;
use operant_base::Result;
use operant_lanes::{Float, Vectors, select};

/// Inputs: logits `[B, …, K]`, targets, and with `masked` a mask like the logits, whose zeros take classes out of the softmax.
/// Targets are integers `[B, …]` below K, or distributions like the logits. Gradients go to the logits alone.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy {
    /// Targets are distributions.
    pub soft: bool,
    /// Share of a target that is spread evenly over the classes that are not masked; only for integers.
    pub smoothing: f32,
    /// Whether there is a third input.
    pub masked: bool,
}

/// A shape without its last axis.
fn without_last(shape: &[usize]) -> Vec<usize> {
    if shape.len() < 2 { vec![1] } else { shape[..shape.len() - 1].to_vec() }
}

/// Σ of the elements that are not masked, and how many they are.
#[inline(always)]
fn sum_and_count<R: Real, L: Vectors<R>>(x: &[R], mask: &[R]) -> (R, R) {
    let (mut sum, mut count) = (L::F::from(0.0), L::F::from(0.0));
    for at in (0..x.len()).step_by(L::LANES) {
        let size = chunk::<R, L>(x.len(), at);
        let legal = legal::<R, L>(mask, at, size);
        sum = sum + select::<_, L::F>(legal, L::read_part(&x[at..at + size]), 0.0);
        count = count + select::<_, L::F>(legal, 1.0, 0.0);
    }
    (L::sum(sum), L::sum(count))
}

/// Σ t and Σ t·x over the elements that are not masked.
#[inline(always)]
fn expectation<R: Real, L: Vectors<R>>(t: &[R], x: &[R], mask: &[R]) -> (R, R) {
    let (mut total, mut sum) = (L::F::from(0.0), L::F::from(0.0));
    for at in (0..x.len()).step_by(L::LANES) {
        let size = chunk::<R, L>(x.len(), at);
        let legal = legal::<R, L>(mask, at, size);
        let t = select::<_, L::F>(legal, L::read_part(&t[at..at + size]), 0.0);
        total = total + t;
        sum = sum + select::<_, L::F>(legal, t * L::read_part(&x[at..at + size]), 0.0);
    }
    (L::sum(total), L::sum(sum))
}

impl Op for CrossEntropy {
    const NAME: &'static str = "cross_entropy";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = if self.masked { 3 } else { 2 };
        if x.len() != wanted || x[0].kind != Kind::Rows || x[0].shape.is_empty() || x[0].is_empty() {
            return Err(format!("wanted {wanted} inputs: logits [B, …, K], targets{}", if self.masked { ", a mask" } else { "" }));
        }
        let groups = without_last(&x[0].shape);
        let fits = if self.soft {
            x[1] == x[0]
        } else {
            x[1].kind == Kind::Ints && x[1].len() == groups.iter().product::<usize>()
        };
        if !fits {
            return Err(match self.soft {
                true => "wanted target distributions like the logits".into(),
                false => format!("wanted an integer target for each of {} softmaxes", groups.iter().product::<usize>()),
            });
        }
        if self.masked && x[2] != x[0] {
            return Err("wanted a mask like the logits".into());
        }
        if !(0.0..=1.0).contains(&self.smoothing) || (self.soft && self.smoothing != 0.0) {
            return Err(format!("smoothing {}, wanted 0 to 1, and 0 for distributions", self.smoothing));
        }
        Ok(vec![Type::rows(groups)])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: if self.masked { 7 } else { 3 }, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let k = *types.x[0].shape.last()?;
        let count = types.x[0].len() / k;
        let numbers = [count, k, usize::from(self.soft), usize::from(self.masked)];
        let one = |kernel| Launch::warps(Text::Rows, kernel, rows * count).numbers(numbers).factors([self.smoothing]);
        Some(Twin::new([one("cross_entropy_forward")], [one("cross_entropy_backward")]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let k = *c.types.x[0].shape.last().expect("has a last axis");
        let (smoothing, rest) = (R::of(f64::from(self.smoothing)), R::of(1.0 - f64::from(self.smoothing)));
        for (row, (y, x)) in c.y[0].iter_mut().zip(c.x[0].chunks_exact(k)).enumerate() {
            let mask = mask_row(c.x[2], row, k);
            let log_sum = log_sum_exp::<R, L>(x, mask);
            *y = if self.soft {
                let (total, sum) = expectation::<R, L>(&c.x[1][row * k..][..k], x, mask);
                total * log_sum - sum
            } else {
                let hard = rest * (log_sum - x[c.ints[1][row] as usize]);
                if self.smoothing > 0.0 {
                    let (sum, count) = sum_and_count::<R, L>(x, mask);
                    hard + smoothing * (log_sum - sum / count)
                } else {
                    hard
                }
            };
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let k = *c.types.x[0].shape.last().expect("has a last axis");
        let (smoothing, rest) = (R::of(f64::from(self.smoothing)), R::of(1.0 - f64::from(self.smoothing)));
        for (row, (dx, x)) in c.dx[0].chunks_exact_mut(k).zip(c.x[0].chunks_exact(k)).enumerate() {
            let (mask, dy) = (mask_row(c.x[2], row, k), c.dy[0][row]);
            let target = if self.soft { &c.x[1][row * k..][..k] } else { &[] };
            let sum = exp_shifted::<R, L>(x, mask, largest::<R, L>(x, mask), dx);
            let (mut scale, mut spread) = (dy / sum, R::default());
            if self.soft {
                scale = scale * expectation::<R, L>(target, x, mask).0;
            } else if self.smoothing > 0.0 {
                spread = dy * smoothing / sum_and_count::<R, L>(x, mask).1;
            }
            for at in (0..k).step_by(L::LANES) {
                let count = chunk::<R, L>(k, at);
                let p = L::read_part(&dx[at..at + count]) * L::splat(scale);
                let t = if self.soft {
                    L::read_part(&target[at..at + count]) * L::splat(dy)
                } else {
                    L::splat(spread)
                };
                let value = select::<_, L::F>(legal::<R, L>(mask, at, count), p - t, 0.0);
                L::write_part(value, &mut dx[at..at + count]);
            }
            if !self.soft {
                dx[c.ints[1][row] as usize] += -(dy * rest);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (k, t) = (random.size(1, 40), random.size(1, 3));
        let mask = |shape: Vec<usize>| {
            let k = shape[shape.len() - 1];
            fixed(with(Values::Mask(k), rows(shape)))
        };
        let hard = Self { soft: false, smoothing: 0.0, masked: false };
        let smooth = Self { smoothing: 0.125, ..hard };
        let soft = Self { soft: true, ..hard };
        let distribution = |shape: Vec<usize>| fixed(with(Values::Unit, rows(shape)));
        vec![
            Case::op(hard, [rows([k]), ints([], k)]),
            Case::op(smooth, [rows([t, k]), ints([t], k)]),
            Case::op(Self { masked: true, ..hard }, [rows([t, k]), ints([t], k), mask(vec![t, k])]),
            Case::op(Self { masked: true, ..smooth }, [rows([k]), ints([1], k), mask(vec![k])]),
            Case::op(soft, [rows([t, k]), distribution(vec![t, k])]),
            Case::op(Self { masked: true, ..soft }, [rows([k]), distribution(vec![k]), mask(vec![k])]),
        ]
    }
}

/// Inputs: logits of p and q `[B, …, K]`; the output is KL(p‖q) = Σ p·(ln p − ln q) with gradients to both.
#[derive(Clone, Copy, Debug)]
pub struct KlDivergence;

/// Scratch of both bodies: p, and ln p − ln q.
const SCRATCH_ROWS: usize = 2;

/// Writes p and ln p − ln q, and gives KL(p‖q).
#[inline(always)]
fn divergence<R: Real, L: Vectors<R>>(p: &[R], q: &[R], prob: &mut [R], difference: &mut [R]) -> R {
    let most = largest::<R, L>(p, &[]);
    let sum = exp_shifted::<R, L>(p, &[], most, prob);
    let shift = L::splat(log_sum_exp::<R, L>(q, &[]) - (most + log::<R, L>(sum)));
    let scale = L::splat(sum).reciprocal();
    for at in (0..p.len()).step_by(L::LANES) {
        let count = chunk::<R, L>(p.len(), at);
        let range = at..at + count;
        let value = L::read_part(&prob[range.clone()]) * scale;
        L::write_part(value, &mut prob[range.clone()]);
        let value = L::read_part(&p[range.clone()]) - L::read_part(&q[range.clone()]) + shift;
        L::write_part(value, &mut difference[range]);
    }
    dot::<R, L>(prob, difference)
}

impl Op for KlDivergence {
    const NAME: &'static str = "kl_divergence";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [p, q] if p == q && p.kind == Kind::Rows && !p.shape.is_empty() && !p.is_empty() => {
                Ok(vec![Type::rows(without_last(&p.shape))])
            }
            _ => Err("wanted two inputs with rows of one shape [B, …, K]".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 3, outputs: 0 }
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (count, k) = (types.y[0].len(), *types.x[0].shape.last()?);
        let one = |kernel| Launch::warps(Text::Rows, kernel, rows * count).numbers([count, k]);
        Some(Twin::new([one("divergence_forward")], [one("divergence_backward")]))
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(SCRATCH_ROWS * types.x[0].shape.last().expect("has a last axis"))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let k = *c.types.x[0].shape.last().expect("has a last axis");
        let (prob, difference) = c.room.real.split_at_mut(k);
        let difference = &mut difference[..k];
        for (y, (p, q)) in c.y[0].iter_mut().zip(c.x[0].chunks_exact(k).zip(c.x[1].chunks_exact(k))) {
            *y = divergence::<R, L>(p, q, prob, difference);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let k = *c.types.x[0].shape.last().expect("has a last axis");
        let (prob, difference) = c.room.real.split_at_mut(k);
        let difference = &mut difference[..k];
        for (row, &dy) in c.dy[0].iter().enumerate() {
            let (p, q) = (&c.x[0][row * k..][..k], &c.x[1][row * k..][..k]);
            let kl = divergence::<R, L>(p, q, prob, difference);
            if !c.dx[0].is_empty() {
                let dx = &mut c.dx[0][row * k..][..k];
                for at in (0..k).step_by(L::LANES) {
                    let range = at..at + chunk::<R, L>(k, at);
                    let slope = L::read_part(&difference[range.clone()]) - L::splat(kl);
                    let value = L::read_part(&prob[range.clone()]) * slope * L::splat(dy);
                    L::write_part(value, &mut dx[range]);
                }
            }
            if !c.dx[1].is_empty() {
                let dx = &mut c.dx[1][row * k..][..k];
                let sum = exp_shifted::<R, L>(q, &[], largest::<R, L>(q, &[]), dx);
                let scale = L::splat(sum).reciprocal();
                for at in (0..k).step_by(L::LANES) {
                    let range = at..at + chunk::<R, L>(k, at);
                    let value = L::read_part(&dx[range.clone()]) * scale - L::read_part(&prob[range.clone()]);
                    L::write_part(value * L::splat(dy), &mut dx[range]);
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (k, t) = (random.size(1, 40), random.size(1, 3));
        vec![
            Case::op(Self, [rows([k]), rows([k])]),
            Case::op(Self, [rows([t, 3]), rows([t, 3])]),
            Case::op(Self, [fixed(rows([k])), rows([k])]),
        ]
    }
}

impl Graph {
    /// −ln of the probability of an integer class, over the last axis; `smoothing` spreads that share of the target over
    /// all classes. A mask takes out the classes where it is 0; it must leave the target in.
    pub fn cross_entropy(&mut self, logits: Node, target: Node, smoothing: f32, mask: Option<Node>) -> Result<Node> {
        let inputs: Vec<Node> = [logits, target].into_iter().chain(mask).collect();
        self.apply("", CrossEntropy { soft: false, smoothing, masked: mask.is_some() }, &inputs)
    }

    /// −Σ t·ln p over the last axis for target distributions t. A mask takes out the classes where it is 0.
    pub fn soft_cross_entropy(&mut self, logits: Node, target: Node, mask: Option<Node>) -> Result<Node> {
        let inputs: Vec<Node> = [logits, target].into_iter().chain(mask).collect();
        self.apply("", CrossEntropy { soft: true, smoothing: 0.0, masked: mask.is_some() }, &inputs)
    }

    /// KL(p‖q) over the last axis, from logits of both.
    pub fn kl_divergence(&mut self, p: Node, q: Node) -> Result<Node> {
        self.apply("", KlDivergence, &[p, q])
    }
}
