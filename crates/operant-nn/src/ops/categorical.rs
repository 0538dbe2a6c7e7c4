//! Log-probability and entropy of categorical actions, of one head or several independent ones.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Given, Random, Values, fixed, ints, rows, with};
use super::super::lane_rows::{
    block_len, column, load_block, read_ints, read_numbers, set_column, store_block, write_numbers,
};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Real, Scratch};
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Int, Lanes, Vectors, select};

/// Inputs: logits `[B, ΣA]` of all heads side by side, actions (integers, one per head), and with `masked` a mask like the
/// logits, whose zeros take actions out: probability 0, no gradient. Every head needs an action that is not masked, and the
/// mask must leave the chosen one in. Outputs: log-probability `[B, 1]` and entropy `[B, 1]`, each the sum over heads.
#[derive(Clone, Debug)]
pub struct Categorical {
    /// Actions of each head.
    pub heads: Vec<usize>,
    /// Whether there is a third input.
    pub masked: bool,
}

/// Softmax of one head with a row in every lane.
#[derive(Clone, Copy)]
pub(super) struct Head<L: Lanes> {
    most: L::F,
    log_sum: L::F,
    scale: L::F,
    /// ln of the probability of the action.
    pub(super) log_prob: L::F,
    /// −Σ p·ln p.
    pub(super) entropy: L::F,
}

impl<L: Lanes> Head<L> {
    /// Of a block of logits; leaves exponentials in `powers` for [`Head::gradient`].
    #[inline(always)]
    pub(super) fn new<R: Real>(n: usize, logits: &[R], mask: &[R], action: L::I, powers: &mut [R]) -> Self
    where
        L: Vectors<R>,
    {
        let mut most = L::F::from(f32::NEG_INFINITY);
        for j in 0..n {
            let x = column::<R, L>(logits, j);
            most = if mask.is_empty() {
                x.max(most)
            } else {
                select(column::<R, L>(mask, j).gt(0.0), x.max(most), most)
            };
        }
        let (mut sum, mut weighted, mut chosen) = (L::F::from(0.0), L::F::from(0.0), L::F::from(0.0));
        for j in 0..n {
            let below = column::<R, L>(logits, j) - most;
            let mut power = below.exp_fast();
            if !mask.is_empty() {
                power = select(column::<R, L>(mask, j).gt(0.0), power, 0.0);
            }
            set_column::<R, L>(power, powers, j);
            sum = sum + power;
            // 0·∞ is no number: logits may be −∞.
            weighted = weighted + select::<_, L::F>(power.gt(0.0), power * below, 0.0);
            chosen = select(action.eq(j as i32), below, chosen);
        }
        let (log_sum, scale) = (sum.log(), sum.reciprocal());
        // −Σ p·ln p with ln p = below − ln Σ: no large numbers cancel.
        Self { most, log_sum, scale, log_prob: chosen - log_sum, entropy: log_sum - weighted * scale }
    }

    /// Overwrites `powers` with the gradient of the logits, from those of the log-probability and the entropy.
    #[inline(always)]
    pub(super) fn gradient<R: Real>(
        &self,
        n: usize,
        logits: &[R],
        action: L::I,
        d_log_prob: L::F,
        d_entropy: L::F,
        powers: &mut [R],
    ) where
        L: Vectors<R>,
    {
        for j in 0..n {
            let p = column::<R, L>(powers, j) * self.scale;
            let log_p = column::<R, L>(logits, j) - self.most - self.log_sum;
            let spread = d_entropy.mul_add(log_p + self.entropy, d_log_prob) * p;
            let chosen = select::<_, L::F>(action.eq(j as i32), d_log_prob, 0.0);
            let value = chosen - select::<_, L::F>(p.gt(0.0), spread, 0.0);
            set_column::<R, L>(value, powers, j);
        }
    }
}

/// Checks logits, actions and a mask against head sizes, and gives the steps of a row: T of sequences, else 1.
pub(super) fn check_heads(
    heads: &[usize],
    logits: &Type,
    actions: &Type,
    mask: Option<&Type>,
) -> Result<usize, String> {
    let total: usize = heads.iter().sum();
    if heads.is_empty() || heads.contains(&0) {
        return Err(format!("heads {heads:?}, wanted at least one, each of at least one action"));
    }
    let steps = match logits.shape[..] {
        [width] if width == total => 1,
        [steps, width] if width == total => steps,
        _ => 0,
    };
    if logits.kind != Kind::Rows || steps == 0 {
        return Err(format!("wanted logits [B, {total}] or [B, T, {total}] for heads {heads:?}"));
    }
    if actions.kind != Kind::Ints || actions.len() != steps * heads.len() {
        return Err(format!("wanted {} integer actions per row", steps * heads.len()));
    }
    match mask {
        Some(mask) if mask != logits => Err("wanted a mask like the logits".into()),
        _ => Ok(steps),
    }
}

/// Most heads of the kernels in `policies.cu`.
const CUDA_HEADS: usize = 16;

/// Numbers of these kernels for logits of such heads at so many places of a row, with the inputs that mask choices and scale coefficients.
pub(super) fn cuda_numbers(
    heads: &[usize],
    places: usize,
    mask: Option<usize>,
    factors: Option<usize>,
    clip_value: bool,
) -> Option<[usize; 24]> {
    let mut numbers = [0; 24];
    let head = [places, heads.iter().sum(), heads.len(), mask.unwrap_or(0), factors.unwrap_or(0), usize::from(clip_value)];
    numbers[..head.len()].copy_from_slice(&head);
    numbers[8..].iter_mut().zip(heads).for_each(|(to, size)| *to = *size);
    (heads.len() <= CUDA_HEADS).then_some(numbers)
}

/// The columns of one head in a block, or nothing of an empty one.
#[inline(always)]
pub(super) fn head_columns<R: Real, L: Vectors<R>>(block: &[R], first: usize, n: usize) -> &[R] {
    if block.is_empty() { block } else { &block[first * L::LANES..][..n * L::LANES] }
}

impl Op for Categorical {
    const NAME: &'static str = "categorical";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = if self.masked { 3 } else { 2 };
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        if check_heads(&self.heads, &x[0], &x[1], x.get(2))? != 1 {
            return Err("wanted logits of one step per row".into());
        }
        Ok(vec![Type::rows([1]), Type::rows([1])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: if self.masked { 5 } else { 1 }, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn twin(&self, _: &Types, rows: usize) -> Option<Twin> {
        let numbers = cuda_numbers(&self.heads, 1, self.masked.then_some(2), None, false)?;
        let one = |kernel| Launch::each(Text::Policies, kernel, 4 * rows).numbers(numbers);
        Some(Twin::new([one("categorical_forward")], [one("categorical_backward")]))
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(3 * block_len(types.x[0].len()))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (width, heads) = (c.types.x[0].len(), self.heads.len());
        let len = block_len(width);
        let (logits, rest) = c.room.real.split_at_mut(len);
        let (powers, mask) = rest.split_at_mut(len);
        let mask = if self.masked { &mut mask[..len] } else { &mut [] };
        for first in (0..c.rows).step_by(L::LANES) {
            load_block::<R, L>(c.x[0], width, first, logits);
            if self.masked {
                load_block::<R, L>(c.x[2], width, first, mask);
            }
            let (mut log_prob, mut entropy, mut at) = (L::F::from(0.0), L::F::from(0.0), 0);
            for (h, &n) in self.heads.iter().enumerate() {
                let action = read_ints::<R, L>(c.ints[1], heads, h, first);
                let (logits, mask) = (head_columns::<R, L>(logits, at, n), head_columns::<R, L>(mask, at, n));
                let head = Head::<L>::new::<R>(n, logits, mask, action, powers);
                log_prob = log_prob + head.log_prob;
                entropy = entropy + head.entropy;
                at += n;
            }
            write_numbers::<R, L>(log_prob, c.y[0], first);
            write_numbers::<R, L>(entropy, c.y[1], first);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (width, heads) = (c.types.x[0].len(), self.heads.len());
        let len = block_len(width);
        let (logits, rest) = c.room.real.split_at_mut(len);
        let (powers, mask) = rest.split_at_mut(len);
        let mask = if self.masked { &mut mask[..len] } else { &mut [] };
        for first in (0..c.rows).step_by(L::LANES) {
            load_block::<R, L>(c.x[0], width, first, logits);
            if self.masked {
                load_block::<R, L>(c.x[2], width, first, mask);
            }
            let d_log_prob = read_numbers::<R, L>(c.dy[0], first);
            let d_entropy = read_numbers::<R, L>(c.dy[1], first);
            let mut at = 0;
            for (h, &n) in self.heads.iter().enumerate() {
                let action = read_ints::<R, L>(c.ints[1], heads, h, first);
                let (logits, mask) = (head_columns::<R, L>(logits, at, n), head_columns::<R, L>(mask, at, n));
                let powers = &mut powers[at * L::LANES..];
                let head = Head::<L>::new::<R>(n, logits, mask, action, powers);
                head.gradient::<R>(n, logits, action, d_log_prob, d_entropy, powers);
                at += n;
            }
            store_block::<R, L>(powers, width, first, c.dx[0]);
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (n, m) = (random.size(1, 40), random.size(1, 6));
        let mask = |n: usize, group: usize| -> Given { fixed(with(Values::Mask(group), rows([n]))) };
        let one = Self { heads: vec![n], masked: false };
        let many = Self { heads: vec![m, 3, m], masked: false };
        let masked = Self { heads: vec![m, 3 * m, m], masked: true };
        vec![
            Case::op(one.clone(), [rows([n]), ints([], n)]).rows(21),
            Case::op(Self { masked: true, ..one }, [rows([n]), ints([1], n), mask(n, n)]),
            Case::op(many.clone(), [rows([2 * m + 3]), ints([3], m.min(3))]).rows(33),
            Case::op(masked, [rows([5 * m]), ints([3], m), mask(5 * m, m)]),
            Case::build("entropy alone", [rows([2 * m + 3]), ints([3], m.min(3))], move |g, x| {
                Ok(vec![g.categorical(x[0], x[1], &many.heads, None)?.1])
            }),
            Case::build("log-probability alone", [rows([n]), ints([], n)], move |g, x| {
                Ok(vec![g.categorical(x[0], x[1], &[n], None)?.0])
            }),
        ]
    }
}

impl Graph {
    /// Log-probability and entropy, each `[B, 1]`, of actions (integers, one per head) under logits of heads side by side.
    /// A mask like the logits takes out the actions where it is 0.
    pub fn categorical(
        &mut self,
        logits: Node,
        actions: Node,
        heads: &[usize],
        mask: Option<Node>,
    ) -> Result<(Node, Node)> {
        let inputs: Vec<Node> = [logits, actions].into_iter().chain(mask).collect();
        let outputs = self.add_op("", Categorical { heads: heads.to_vec(), masked: mask.is_some() }, &inputs)?;
        Ok((outputs[0], outputs[1]))
    }
}
