//! Losses that compare a prediction with a target number by number: squared error, Huber, binary cross-entropy.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, Values, fixed, rows, with};
use super::super::elementwise::{Binary, Ternary, map2, map3};
use super::super::long_rows::lanes_below;
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Lanes, Vectors, select};

/// What a difference costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// (x − t)².
    Squared,
    /// (x − t)²/2 up to `delta`, beyond it delta·(|x − t| − delta/2) (Huber, "Robust estimation of a location parameter",
    /// 1964).
    Huber {
        /// Where the parabola ends.
        delta: f32,
    },
    /// −t·ln σ(x) − (1 − t)·ln(1 − σ(x)) for a logit x and a probability t.
    BinaryCrossEntropy,
}

/// Inputs: prediction and target of one shape, and with `weighted` a weight for each number. The output is `[B, 1]`: the
/// mean over the row. Gradients go to the prediction alone.
#[derive(Clone, Copy, Debug)]
pub struct PointwiseLoss {
    /// What a difference costs.
    pub cost: Cost,
    /// Whether there is a third input.
    pub weighted: bool,
}

/// Cost and slope of one kind of loss.
trait Point: Copy {
    fn cost<L: Lanes>(self, x: L::F, t: L::F) -> L::F;
    fn slope<L: Lanes>(self, x: L::F, t: L::F) -> L::F;
}

#[derive(Clone, Copy)]
struct Squared;
impl Point for Squared {
    #[inline(always)]
    fn cost<L: Lanes>(self, x: L::F, t: L::F) -> L::F {
        (x - t) * (x - t)
    }
    #[inline(always)]
    fn slope<L: Lanes>(self, x: L::F, t: L::F) -> L::F {
        (x - t) * 2.0
    }
}

#[derive(Clone, Copy)]
struct Huber(f32);
impl Point for Huber {
    #[inline(always)]
    fn cost<L: Lanes>(self, x: L::F, t: L::F) -> L::F {
        let d = (x - t).abs();
        select(d.lt(self.0), d * d * 0.5, (d - self.0 * 0.5) * self.0)
    }
    #[inline(always)]
    fn slope<L: Lanes>(self, x: L::F, t: L::F) -> L::F {
        (x - t).clamp(-self.0, self.0)
    }
}

#[derive(Clone, Copy)]
struct Binomial;
impl Point for Binomial {
    #[inline(always)]
    fn cost<L: Lanes>(self, x: L::F, t: L::F) -> L::F {
        x.softplus() - x * t
    }
    #[inline(always)]
    fn slope<L: Lanes>(self, x: L::F, t: L::F) -> L::F {
        x.sigmoid() - t
    }
}

#[derive(Clone, Copy)]
struct CostOf<P>(P);
impl<P: Point> Binary for CostOf<P> {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F, t: L::F) -> L::F {
        self.0.cost::<L>(x, t)
    }
}

#[derive(Clone, Copy)]
struct SlopeOf<P>(P);
impl<P: Point> Ternary for SlopeOf<P> {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F, t: L::F, dy: L::F) -> L::F {
        self.0.slope::<L>(x, t) * dy
    }
}

/// Reads as many of `x[at..]` as there are lanes; 0 beyond.
#[inline(always)]
fn lanes_at<R: Real, L: Vectors<R>>(x: &[R], at: usize, count: usize) -> L::F {
    L::read_part(&x[at..at + count])
}

/// Most numbers of a row for which rows are the lanes.
const NARROW: usize = 4;

/// How many rows, from the first on, are the lanes: as many as fill registers, if rows are narrow.
#[inline(always)]
fn narrow_rows<R: Real, L: Vectors<R>>(n: usize, rows: usize) -> usize {
    if n <= NARROW { rows / L::LANES * L::LANES } else { 0 }
}

#[inline(always)]
fn forward<R: Real, L: Vectors<R>, P: Point>(point: P, n: usize, c: &mut Forward<R>, weighted: bool) {
    let (x, target, weight) = (c.x[0], c.x[1], c.x[2]);
    // One number per row: rows are the lanes.
    if n == 1 && !weighted {
        map2::<R, L, _>(CostOf(point), x, target, c.y[0]);
        return;
    }
    let scale = R::of(1.0 / n as f64);
    let narrow = narrow_rows::<R, L>(n, c.y[0].len());
    for (block, y) in c.y[0][..narrow].chunks_exact_mut(L::LANES).enumerate() {
        let mut terms = [L::F::from(0.0); NARROW];
        for (j, term) in terms.iter_mut().enumerate().take(n) {
            let from = block * L::LANES * n + j;
            let cost = point.cost::<L>(L::read_strided(&x[from..], n), L::read_strided(&target[from..], n));
            *term = if weighted { cost * L::read_strided(&weight[from..], n) } else { cost };
        }
        // As the lanes of a row are added up below, so that it does not matter which rows are left over.
        let [a, b, c, d] = terms;
        let sum = (a + c) + (b + d);
        L::write(sum * L::splat(scale), y);
    }
    for (row, y) in c.y[0].iter_mut().enumerate().skip(narrow) {
        let mut sum = L::F::from(0.0);
        for at in (0..n).step_by(L::LANES) {
            let (from, count) = (row * n + at, L::LANES.min(n - at));
            let cost = point.cost::<L>(lanes_at::<R, L>(x, from, count), lanes_at::<R, L>(target, from, count));
            let weight = if weighted { lanes_at::<R, L>(weight, from, count) } else { L::F::from(1.0) };
            // Lanes beyond the row hold 0 for x and t, which may still cost something.
            sum = sum + select::<_, L::F>(lanes_below::<R, L>(count), cost * weight, 0.0);
        }
        *y = L::sum(sum) * scale;
    }
}

#[inline(always)]
fn backward<R: Real, L: Vectors<R>, P: Point>(point: P, n: usize, c: &mut Backward<R>, weighted: bool) {
    let (x, target, weight) = (c.x[0], c.x[1], c.x[2]);
    if n == 1 && !weighted {
        map3::<R, L, _>(SlopeOf(point), x, target, c.dy[0], c.dx[0]);
        return;
    }
    let scale = R::of(1.0 / n as f64);
    let narrow = narrow_rows::<R, L>(n, c.dy[0].len());
    for (block, dy) in c.dy[0][..narrow].chunks_exact(L::LANES).enumerate() {
        let first = block * L::LANES * n;
        let factor = L::read(dy) * L::splat(scale);
        let mut columns = [L::F::from(0.0); NARROW];
        for (j, column) in columns.iter_mut().enumerate().take(n) {
            let from = first + j;
            let slope = point.slope::<L>(L::read_strided(&x[from..], n), L::read_strided(&target[from..], n));
            let weight = if weighted { L::read_strided(&weight[from..], n) } else { L::F::from(1.0) };
            *column = slope * weight * factor;
        }
        L::write_rows(&columns[..n], &mut c.dx[0][first..][..L::LANES * n]);
    }
    for (row, &dy) in c.dy[0].iter().enumerate().skip(narrow) {
        let factor = L::splat(dy * scale);
        for at in (0..n).step_by(L::LANES) {
            let (from, count) = (row * n + at, L::LANES.min(n - at));
            let slope = point.slope::<L>(lanes_at::<R, L>(x, from, count), lanes_at::<R, L>(target, from, count));
            let weight = if weighted { lanes_at::<R, L>(weight, from, count) } else { L::F::from(1.0) };
            L::write_part(slope * weight * factor, &mut c.dx[0][from..from + count]);
        }
    }
}

impl Op for PointwiseLoss {
    const NAME: &'static str = "pointwise_loss";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = if self.weighted { 3 } else { 2 };
        if x.len() != wanted || x[0].kind != Kind::Rows || x[0].is_empty() || x.iter().any(|ty| *ty != x[0]) {
            return Err(format!("wanted {wanted} inputs with rows of one shape"));
        }
        match self.cost {
            Cost::Huber { delta } if !(delta > 0.0 && delta.is_finite()) => {
                Err(format!("delta {delta}, wanted a positive number"))
            }
            _ => Ok(vec![Type::rows([1])]),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: if self.weighted { 7 } else { 3 }, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (how, width) = match self.cost {
            Cost::Squared => (0, 0.0),
            Cost::Huber { delta } => (1, delta),
            Cost::BinaryCrossEntropy => (2, 0.0),
        };
        let len = types.x[0].len();
        let with = |launch: Launch| launch.numbers([how, len, usize::from(self.weighted)]).factors([width]);
        let forward = Launch::warps(Text::Rows, "pointwise_forward", rows);
        let backward = Launch::each(Text::Rows, "pointwise_backward", rows * len);
        Some(Twin::new([with(forward)], [with(backward)]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let n = c.types.x[0].len();
        match self.cost {
            Cost::Squared => forward::<R, L, _>(Squared, n, c, self.weighted),
            Cost::Huber { delta } => forward::<R, L, _>(Huber(delta), n, c, self.weighted),
            Cost::BinaryCrossEntropy => forward::<R, L, _>(Binomial, n, c, self.weighted),
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let n = c.types.x[0].len();
        match self.cost {
            Cost::Squared => backward::<R, L, _>(Squared, n, c, self.weighted),
            Cost::Huber { delta } => backward::<R, L, _>(Huber(delta), n, c, self.weighted),
            Cost::BinaryCrossEntropy => backward::<R, L, _>(Binomial, n, c, self.weighted),
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(2, 40);
        let mut cases = Vec::new();
        for cost in [Cost::Squared, Cost::Huber { delta: 0.6 }, Cost::BinaryCrossEntropy] {
            let target = |shape: Vec<usize>| match cost {
                Cost::BinaryCrossEntropy => fixed(with(Values::Unit, rows(shape))),
                _ => fixed(rows(shape)),
            };
            let op = Self { cost, weighted: false };
            cases.push(Case::op(op, [rows([1]), target(vec![1])]).rows(19));
            cases.push(Case::op(op, [rows([3]), target(vec![3])]).rows(37));
            for n in [1, 2, 4] {
                let weight = fixed(with(Values::Unit, rows([n])));
                let weighted = Self { weighted: true, ..op };
                cases.push(Case::op(weighted, [rows([n]), target(vec![n]), weight]).rows(37));
            }
            cases.push(Case::op(op, [rows([2, n]), target(vec![2, n])]));
            let weight = fixed(with(Values::Positive, rows([n])));
            cases.push(Case::op(Self { weighted: true, ..op }, [rows([n]), target(vec![n]), weight]));
        }
        cases
    }
}

impl Graph {
    fn pointwise_loss(&mut self, cost: Cost, x: Node, target: Node, weight: Option<Node>) -> Result<Node> {
        let inputs: Vec<Node> = [x, target].into_iter().chain(weight).collect();
        self.apply("", PointwiseLoss { cost, weighted: weight.is_some() }, &inputs)
    }

    /// Squared error, the mean over a row: `[B, 1]`.
    pub fn mse_loss(&mut self, x: Node, target: Node) -> Result<Node> {
        self.pointwise_loss(Cost::Squared, x, target, None)
    }

    /// Huber's loss, the mean over a row: `[B, 1]`.
    pub fn huber_loss(&mut self, x: Node, target: Node, delta: f32) -> Result<Node> {
        self.pointwise_loss(Cost::Huber { delta }, x, target, None)
    }

    /// Binary cross-entropy of logits and probabilities, weighted number by number if there are weights; the mean over a
    /// row: `[B, 1]`.
    pub fn bce_with_logits_loss(&mut self, logits: Node, target: Node, weight: Option<Node>) -> Result<Node> {
        self.pointwise_loss(Cost::BinaryCrossEntropy, logits, target, weight)
    }
}
