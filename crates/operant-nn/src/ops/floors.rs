//! Floors of choices: least probabilities of the actions of each head, and least entropies of heads.
//!
//! Logits are those of heads side by side, `[B, ΣA]` or `[B, T, ΣA]`; a mask like them takes out the actions where it is 0. Sums are
//! in f64, a row at a time: heads of a policy are small.

use super::super::check::{Case, Given, Random, Values, fixed, rows, with};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::Vectors;

/// Most of a head's probability that floors hand out evenly; the rest stays the policy's.
const MOST_SHARED: f64 = 0.5;

/// Inputs: logits and with `masked` a mask. Output: logits of the mixture p′ = (1 − n·f)·p + f over the n actions that are not masked,
/// f the head's floor, at most 1/(2n). Where a head has none, and of masked actions, logits stay as they are.
#[derive(Clone, Debug)]
pub struct ProbabilityFloor {
    /// Actions of each head.
    pub heads: Vec<usize>,
    /// Floors of each head; 0 for none.
    pub floors: Vec<f32>,
    /// Whether there is a mask.
    pub masked: bool,
}

/// Inputs: logits and with `masked` a mask. Output: Σ over heads of what their entropies lack, max(0, f·ln n − H) in nats, for n
/// actions that are not masked and the head's floor f; `[B, 1]`, or `[B, T]` of sequences.
#[derive(Clone, Debug)]
pub struct EntropyFloor {
    /// Actions of each head.
    pub heads: Vec<usize>,
    /// Floors of each head, as shares of the largest entropy; 0 for none.
    pub floors: Vec<f32>,
    /// Whether there is a mask.
    pub masked: bool,
}

/// The softmax of one head in one row.
#[derive(Clone, Copy)]
struct Soft {
    /// Actions that are not masked.
    legal: usize,
    most: f64,
    log_sum: f64,
}

impl Soft {
    fn new(logits: impl Iterator<Item = Option<f64>> + Clone) -> Self {
        let most = logits.clone().flatten().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.clone().flatten().map(|x| (x - most).exp()).sum();
        Self { legal: logits.flatten().count(), most, log_sum: sum.ln() }
    }

    fn log_prob(&self, logit: f64) -> f64 {
        logit - self.most - self.log_sum
    }

    /// The floor of an action's probability, where the head's is `floor`.
    fn floor(&self, floor: f32) -> f64 {
        f64::from(floor).min(MOST_SHARED / self.legal as f64)
    }

    /// ln of the probability of the mixture.
    fn mixed(&self, logit: f64, floor: f64) -> f64 {
        ((1.0 - self.legal as f64 * floor) * self.log_prob(logit).exp() + floor).ln()
    }

    /// −Σ p·ln p.
    fn entropy(&self, logits: impl Iterator<Item = Option<f64>>) -> f64 {
        let part = |x: f64| if x == f64::NEG_INFINITY { 0.0 } else { -x.exp() * x };
        logits.flatten().map(|x| part(self.log_prob(x))).sum()
    }
}

/// Logits of one head, `None` where they are masked.
fn legal_logits<'a, R: Real>(logits: &'a [R], mask: &'a [R]) -> impl Iterator<Item = Option<f64>> + Clone + 'a {
    let kept = move |j: usize| mask.is_empty() || mask[j].wide() > 0.0;
    logits.iter().enumerate().map(move |(j, x)| kept(j).then(|| x.wide()))
}

/// The part of a mask that belongs to some logits, or nothing of an empty one.
fn part<R>(mask: &[R], first: usize, len: usize) -> &[R] {
    if mask.is_empty() { mask } else { &mask[first..][..len] }
}

/// Where each head with a floor begins in a row, its actions and its floor.
fn floored<'a>(heads: &'a [usize], floors: &'a [f32]) -> impl Iterator<Item = (usize, usize, f32)> + Clone + 'a {
    let mut at = 0;
    let begins = heads.iter().map(move |&n| {
        at += n;
        (at - n, n)
    });
    begins.zip(floors).filter(|(_, floor)| **floor > 0.0).map(|((at, n), &floor)| (at, n, floor))
}

/// Mixes rows of logits as [`ProbabilityFloor`] does; a mask of bytes is 0 where an action is taken out.
pub fn raise_to_floors(heads: &[usize], floors: &[f32], logits: &mut [f32], legal: Option<&[u8]>) {
    let width: usize = heads.iter().sum();
    for (row, logits) in logits.chunks_exact_mut(width).enumerate() {
        for (at, n, floor) in floored(heads, floors) {
            let kept = |j: usize| legal.is_none_or(|legal| legal[row * width + at + j] != 0);
            let own = &mut logits[at..at + n];
            let soft = Soft::new(own.iter().enumerate().map(|(j, x)| kept(j).then_some(f64::from(*x))));
            let floor = soft.floor(floor);
            for (_, x) in own.iter_mut().enumerate().filter(|(j, _)| kept(*j)) {
                *x = soft.mixed(f64::from(*x), floor) as f32;
            }
        }
    }
}

/// Checks logits and mask against heads and floors, and gives the steps of a row.
fn check(heads: &[usize], floors: &[f32], masked: bool, x: &[Type]) -> Result<usize, String> {
    let total: usize = heads.iter().sum();
    if heads.is_empty() || heads.contains(&0) || floors.len() != heads.len() {
        return Err(format!("heads {heads:?} with floors {floors:?}, wanted a floor for each, and an action in each"));
    }
    if floors.iter().any(|floor| !(0.0..1.0).contains(floor)) {
        return Err(format!("floors {floors:?}, wanted 0 or more and less than 1"));
    }
    let logits = match x {
        [logits] if !masked => logits,
        [logits, mask] if masked && logits == mask => logits,
        _ => return Err("wanted logits, and where choices are masked a mask like them".into()),
    };
    match logits.shape[..] {
        [width] if width == total && logits.kind == Kind::Rows => Ok(1),
        [steps, width] if width == total && logits.kind == Kind::Rows => Ok(steps),
        _ => Err(format!("wanted logits [B, {total}] or [B, T, {total}] for heads {heads:?}")),
    }
}

impl Op for ProbabilityFloor {
    const NAME: &'static str = "probability_floor";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        check(&self.heads, &self.floors, self.masked, x)?;
        Ok(vec![x[0].clone()])
    }

    fn needs(&self, types: &Types) -> Needs {
        Needs { inputs: (1 << types.x.len()) - 1, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let width: usize = self.heads.iter().sum();
        let (x, mask) = (c.x[0], if self.masked { c.x[1] } else { &[] });
        c.y[0].copy_from_slice(x);
        for first in (0..x.len()).step_by(width) {
            for (at, n, floor) in floored(&self.heads, &self.floors) {
                let logits = legal_logits(&x[first + at..][..n], part(mask, first + at, n));
                let soft = Soft::new(logits.clone());
                let floor = soft.floor(floor);
                for (y, logit) in c.y[0][first + at..][..n].iter_mut().zip(logits) {
                    *y = logit.map_or(*y, |logit| R::of(soft.mixed(logit, floor)));
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let width: usize = self.heads.iter().sum();
        let (x, mask) = (c.x[0], if self.masked { c.x[1] } else { &[] });
        c.dx[0].copy_from_slice(c.dy[0]);
        for first in (0..x.len()).step_by(width) {
            for (at, n, floor) in floored(&self.heads, &self.floors) {
                let logits = legal_logits(&x[first + at..][..n], part(mask, first + at, n));
                let soft = Soft::new(logits.clone());
                let floor = soft.floor(floor);
                let share = 1.0 - soft.legal as f64 * floor;
                // With q the mixture, d ln q_j / d p_j = share / q_j; the softmax takes the mean of that off.
                let slope = |logit: f64, dy: R| {
                    let p = soft.log_prob(logit).exp();
                    (p, dy.wide() * share / (share * p + floor))
                };
                let own = c.dy[0][first + at..][..n].iter();
                let mean: f64 = logits
                    .clone()
                    .zip(own.clone())
                    .filter_map(|(logit, dy)| logit.map(|logit| slope(logit, *dy)))
                    .map(|(p, slope)| p * slope)
                    .sum();
                for ((dx, logit), dy) in c.dx[0][first + at..][..n].iter_mut().zip(logits).zip(own) {
                    if let Some((p, slope)) = logit.map(|logit| slope(logit, *dy)) {
                        *dx = R::of(p * (slope - mean));
                    }
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let m = random.size(1, 5);
        let mask = |shape: Vec<usize>| -> Given { fixed(with(Values::Mask(m), rows(shape))) };
        let one = Self { heads: vec![m], floors: vec![0.05], masked: false };
        // Heads with a floor, without one, and with one that is more than half of an even chance.
        let many = Self { heads: vec![m, m, 2 * m], floors: vec![0.04, 0.0, 0.9], masked: true };
        vec![
            Case::op(one, [rows([m])]).rows(21),
            Case::op(many.clone(), [rows([4 * m]), mask(vec![4 * m])]).rows(33),
            Case::op(many, [rows([3, 4 * m]), mask(vec![3, 4 * m])]),
        ]
    }
}

impl Op for EntropyFloor {
    const NAME: &'static str = "entropy_floor";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        Ok(vec![Type::rows([check(&self.heads, &self.floors, self.masked, x)?])])
    }

    fn needs(&self, types: &Types) -> Needs {
        Needs { inputs: (1 << types.x.len()) - 1, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let width: usize = self.heads.iter().sum();
        let (x, mask) = (c.x[0], if self.masked { c.x[1] } else { &[] });
        for (y, first) in c.y[0].iter_mut().zip((0..x.len()).step_by(width)) {
            let mut lacking = 0.0;
            for (at, n, floor) in floored(&self.heads, &self.floors) {
                let logits = legal_logits(&x[first + at..][..n], part(mask, first + at, n));
                let soft = Soft::new(logits.clone());
                lacking += (f64::from(floor) * (soft.legal as f64).ln() - soft.entropy(logits)).max(0.0);
            }
            *y = R::of(lacking);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let width: usize = self.heads.iter().sum();
        let (x, mask) = (c.x[0], if self.masked { c.x[1] } else { &[] });
        c.dx[0].fill(R::default());
        for (dy, first) in c.dy[0].iter().zip((0..x.len()).step_by(width)) {
            for (at, n, floor) in floored(&self.heads, &self.floors) {
                let logits = legal_logits(&x[first + at..][..n], part(mask, first + at, n));
                let soft = Soft::new(logits.clone());
                let entropy = soft.entropy(logits.clone());
                if entropy >= f64::from(floor) * (soft.legal as f64).ln() {
                    continue;
                }
                for (dx, logit) in c.dx[0][first + at..][..n].iter_mut().zip(logits) {
                    let log_prob = logit.map_or(f64::NEG_INFINITY, |logit| soft.log_prob(logit));
                    if log_prob > f64::NEG_INFINITY {
                        *dx = R::of(dy.wide() * log_prob.exp() * (log_prob + entropy));
                    }
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let m = random.size(2, 6);
        let mask = |shape: Vec<usize>| -> Given { fixed(with(Values::Mask(m), rows(shape))) };
        let one = Self { heads: vec![m], floors: vec![0.8], masked: false };
        let many = Self { heads: vec![m, m, 2 * m], floors: vec![0.7, 0.0, 0.9], masked: true };
        vec![
            Case::op(one, [rows([m])]).rows(21),
            Case::op(many.clone(), [rows([4 * m]), mask(vec![4 * m])]).rows(33),
            Case::op(many, [rows([3, 4 * m]), mask(vec![3, 4 * m])]),
        ]
    }
}

impl Graph {
    /// Logits of heads with probabilities of at least these; see [`ProbabilityFloor`].
    pub fn probability_floor(
        &mut self,
        logits: Node,
        heads: &[usize],
        floors: &[f32],
        mask: Option<Node>,
    ) -> Result<Node> {
        let op = ProbabilityFloor { heads: heads.to_vec(), floors: floors.to_vec(), masked: mask.is_some() };
        let inputs: Vec<Node> = [logits].into_iter().chain(mask).collect();
        self.apply("", op, &inputs)
    }

    /// What the entropies of heads lack to these shares of the largest; see [`EntropyFloor`].
    pub fn entropy_floor(
        &mut self,
        logits: Node,
        heads: &[usize],
        floors: &[f32],
        mask: Option<Node>,
    ) -> Result<Node> {
        let op = EntropyFloor { heads: heads.to_vec(), floors: floors.to_vec(), masked: mask.is_some() };
        let inputs: Vec<Node> = [logits].into_iter().chain(mask).collect();
        self.apply("", op, &inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::dist::Factored;
    use super::super::super::{Feed, Gradients, Graph, Options, Plan};
    use super::raise_to_floors;
    use operant_lanes::Backend;

    /// Of four actions one is masked and one all but certain: the others get the floor, and all add up to 1.
    #[test]
    fn a_floor_is_a_mixture_over_legal_actions() {
        let mut logits = [12.0, 0.0, 0.0, 50.0];
        let legal = [1, 1, 1, 0];
        raise_to_floors(&[4], &[0.1], &mut logits, Some(&legal));
        let dist = Factored::new(&logits, &[4], Some(&legal), Backend::fast()).unwrap();
        let mut log_probs = [0.0; 4];
        for (action, out) in log_probs.iter_mut().enumerate() {
            dist.log_prob(&[action as i32], std::slice::from_mut(out));
        }
        let probs = log_probs.map(f32::exp);
        let rest = (-12.0f32).exp() / (1.0 + 2.0 * (-12.0f32).exp());
        let wanted = [0.7 * (1.0 - 2.0 * rest) + 0.1, 0.7 * rest + 0.1, 0.7 * rest + 0.1, 0.0];
        assert!(probs.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-6), "{probs:?} {wanted:?}");
        // A floor beyond half of an even chance is that half: the policy is still heard.
        let mut logits = [9.0, 0.0];
        raise_to_floors(&[2], &[0.9], &mut logits, None);
        assert!((logits[1].exp() - 0.25).abs() < 1e-3, "{logits:?}");
        // The only legal action of a head stays certain.
        let mut logits = [3.0, 1.0];
        raise_to_floors(&[2], &[0.2], &mut logits, Some(&[0, 1]));
        assert!(logits[0] == 3.0 && logits[1].abs() < 1e-6, "{logits:?}");
    }

    /// Gradients of two rows: one whose entropy is above the floor, one below it.
    #[test]
    fn an_entropy_above_its_floor_is_left_alone() {
        let mut g = Graph::new();
        let x = g.input_with_gradient("x", [3]);
        let loss = g.entropy_floor(x, &[3], &[0.5], None).unwrap();
        let params = g.params(0).unwrap();
        let mut plan = Plan::training(&g, loss, 2, &Options::default()).unwrap();
        let logits = [0.1, 0.0, -0.1, 5.0, 0.0, 0.0];
        let outcome = plan.train(&params, 2, &[Feed::Real(&logits)], 1.0, Gradients::Replace);
        assert!(outcome.loss > 0.1, "{outcome:?}");
        let gradient = plan.input_gradient(x).unwrap();
        assert_eq!(gradient[..3], [0.0; 3]);
        assert!(gradient[3] > 0.0 && gradient[4] < 0.0, "down goes what is certain: {gradient:?}");
    }
}
