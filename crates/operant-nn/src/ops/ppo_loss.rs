//! The loss of proximal policy optimisation (Schulman et al., arXiv:1707.06347) as one node, with the formulas of CleanRL's
//! `ppo.py`. Advantages are normalised before, where wanted.
//!
//! Both ops give the loss `[B, 1]` and statistics `[B, 6]`: policy loss, value loss, entropy, −ln ratio, (ratio − 1) − ln
//! ratio, and whether the ratio was clipped. Statistics pass no gradient on. Of sequences, `[B, T, A]`, every step is a row:
//! losses are `[B, T]`, statistics `[B, T, 6]`. A row is in every lane.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Given, Random, Values, fixed, ints, rows, whole, with};
use super::super::lane_rows::{
    block_len, load_block, read_ints, read_numbers, set_column, store_block, write_numbers,
};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Real, Scratch};
use super::super::{Graph, Node};
use super::categorical::{Head, check_heads, cuda_numbers, head_columns};
use super::gaussian::{LogStdGradient, check_shapes, cuda_twin, gradient, load_log_std, log_prob_and_entropy};
use operant_base::Result;
use operant_lanes::{Float, Lanes, Vectors, select};

/// Numbers of a row of statistics.
pub const PPO_STATISTICS: usize = 6;

/// Coefficients of the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PpoCoefficients {
    /// How far the ratio of probabilities may leave 1 before it stops paying.
    pub clip: f32,
    /// Weight of the value loss.
    pub value: f32,
    /// Weight of the entropy, which is subtracted.
    pub entropy: f32,
    /// Whether values are clipped around the old ones by `clip` too.
    pub clip_value: bool,
}

impl Default for PpoCoefficients {
    /// CleanRL's.
    fn default() -> Self {
        Self { clip: 0.2, value: 0.5, entropy: 0.01, clip_value: true }
    }
}

/// What was recorded when the action was taken, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct PpoTargets {
    /// The action: integers, one per head, or `[B, A]`.
    pub action: Node,
    /// Log-probability then, `[B, 1]`.
    pub old_log_prob: Node,
    /// Advantage, `[B, 1]`.
    pub advantage: Node,
    /// Return, `[B, 1]`.
    pub returns: Node,
    /// Value predicted then, `[B, 1]`; read only if values are clipped.
    pub old_value: Node,
    /// Factors `[2]` of the clip and of the entropy's weight, without rows, if they change as training goes on.
    pub factors: Option<Node>,
}

impl PpoTargets {
    fn nodes(&self) -> [Node; 5] {
        [self.action, self.old_log_prob, self.advantage, self.returns, self.old_value]
    }
}

/// Numbers of the rows in lanes.
#[derive(Clone, Copy)]
struct Sample<L: Lanes> {
    value: L::F,
    old_log_prob: L::F,
    advantage: L::F,
    returns: L::F,
    old_value: L::F,
}

impl<L: Lanes> Sample<L> {
    /// `targets` are those of [`PpoTargets`] without the action.
    #[inline(always)]
    fn read<R: Real>(value: &[R], targets: &[&[R]], first: usize) -> Self
    where
        L: Vectors<R>,
    {
        Self {
            value: read_numbers::<R, L>(value, first),
            old_log_prob: read_numbers::<R, L>(targets[0], first),
            advantage: read_numbers::<R, L>(targets[1], first),
            returns: read_numbers::<R, L>(targets[2], first),
            old_value: read_numbers::<R, L>(targets[3], first),
        }
    }
}

impl PpoCoefficients {
    fn check(&self) -> Result<(), String> {
        let fine = self.clip > 0.0 && [self.clip, self.value, self.entropy].iter().all(|x| x.is_finite());
        if fine { Ok(()) } else { Err(format!("{self:?}: wanted finite numbers and a clip above 0")) }
    }

    /// As factors of a kernel.
    fn factors(&self) -> [f32; 3] {
        [self.clip, self.value, self.entropy]
    }

    /// With the clip and the entropy's weight multiplied by an input `[2]`, if there is one.
    #[inline(always)]
    fn scaled<R: Real>(&self, factors: &[R]) -> Self {
        match factors {
            [clip, entropy] => {
                Self { clip: self.clip * clip.wide() as f32, entropy: self.entropy * entropy.wide() as f32, ..*self }
            }
            _ => *self,
        }
    }

    /// The loss, and the statistics in their order.
    #[inline(always)]
    fn loss<L: Lanes>(
        &self,
        s: Sample<L>,
        log_prob: L::F,
        entropy: L::F,
    ) -> (L::F, [L::F; PPO_STATISTICS]) {
        let log_ratio = log_prob - s.old_log_prob;
        let ratio = log_ratio.exp_fast();
        let clipped = ratio.clamp(1.0 - self.clip, 1.0 + self.clip);
        let policy = (-s.advantage * ratio).max(-s.advantage * clipped);
        let error = s.value - s.returns;
        let mut squared = error * error;
        if self.clip_value {
            let near = s.old_value + (s.value - s.old_value).clamp(-self.clip, self.clip) - s.returns;
            squared = squared.max(near * near);
        }
        let value = squared * 0.5;
        let loss = policy - entropy * self.entropy + value * self.value;
        let far = select::<_, L::F>((ratio - 1.0).abs().gt(self.clip), 1.0, 0.0);
        (loss, [policy, value, entropy, -log_ratio, ratio - 1.0 - log_ratio, far])
    }

    /// Derivatives of the loss with respect to the log-probability and the value.
    #[inline(always)]
    fn slopes<L: Lanes>(&self, s: Sample<L>, log_prob: L::F) -> (L::F, L::F) {
        let ratio = (log_prob - s.old_log_prob).exp_fast();
        let clipped = ratio.clamp(1.0 - self.clip, 1.0 + self.clip);
        // Within the limits both sides of the maximum are one; beyond them the clipped side is flat.
        let (free, limited) = (-s.advantage * ratio, -s.advantage * clipped);
        let d_log_prob = select::<_, L::F>(ratio.eq(clipped) | free.gt(limited), free, 0.0);
        let error = s.value - s.returns;
        let mut d_value = error * self.value;
        if self.clip_value {
            let step = s.value - s.old_value;
            let near = s.old_value + step.clamp(-self.clip, self.clip) - s.returns;
            let follows = step.abs().le(self.clip) | (error * error).gt(near * near);
            d_value = select(follows, d_value, 0.0);
        }
        (d_log_prob, d_value)
    }
}

/// Checks the value and the targets of either op, and gives the types of its outputs.
fn check_numbers(x: &[&Type], steps: usize) -> Result<Vec<Type>, String> {
    if x.iter().any(|ty| ty.kind != Kind::Rows || ty.len() != steps) {
        let what = "value, old log-probability, advantage, return and old value";
        return Err(format!("wanted {steps} per row of {what}"));
    }
    let statistics = if steps == 1 { Type::rows([PPO_STATISTICS]) } else { Type::rows([steps, PPO_STATISTICS]) };
    Ok(vec![Type::rows([steps]), statistics])
}

/// Checks the factors of coefficients, the last input.
fn check_factors(scheduled: bool, x: &[Type]) -> Result<(), String> {
    match x.last() {
        Some(factors) if scheduled && (factors.kind != Kind::Whole || factors.len() != 2) => {
            Err("wanted factors [2] of clip and entropy, without rows".into())
        }
        _ => Ok(()),
    }
}

/// Writes the loss and the statistics of a block; `block` is scratch.
#[inline(always)]
fn write_losses<R: Real, L: Vectors<R>>(
    loss: L::F,
    statistics: [L::F; PPO_STATISTICS],
    first: usize,
    y: &mut [&mut [R]],
    block: &mut [R],
) {
    write_numbers::<R, L>(loss, y[0], first);
    if !y[1].is_empty() {
        for (j, statistic) in statistics.into_iter().enumerate() {
            set_column::<R, L>(statistic, block, j);
        }
        store_block::<R, L>(block, PPO_STATISTICS, first, y[1]);
    }
}

/// Inputs: logits `[B, ΣA]`, value, actions (integers, one per head), old log-probability, advantage, return, old value, and
/// with `masked` a mask like the logits, and with `scheduled` factors `[2]` of clip and entropy; see
/// [`Categorical`](super::Categorical) for heads and masks.
#[derive(Clone, Debug)]
pub struct PpoCategorical {
    /// Actions of each head.
    pub heads: Vec<usize>,
    /// Whether there is a mask.
    pub masked: bool,
    /// Whether there are factors of coefficients, the last input.
    pub scheduled: bool,
    /// Coefficients.
    pub coefficients: PpoCoefficients,
}

impl PpoCategorical {
    /// Logits of a row.
    fn width(&self) -> usize {
        self.heads.iter().sum()
    }

    /// The factors of coefficients among the inputs, or nothing.
    #[inline(always)]
    fn factors<'a, R>(&self, x: &[&'a [R]]) -> &'a [R] {
        if self.scheduled { x[7 + usize::from(self.masked)] } else { &[] }
    }
}

impl Op for PpoCategorical {
    const NAME: &'static str = "ppo_categorical";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = 7 + usize::from(self.masked) + usize::from(self.scheduled);
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        self.coefficients.check()?;
        check_factors(self.scheduled, x)?;
        let steps = check_heads(&self.heads, &x[0], &x[2], self.masked.then(|| &x[7]))?;
        check_numbers(&[&x[1], &x[3], &x[4], &x[5], &x[6]], steps)
    }

    fn needs(&self, types: &Types) -> Needs {
        Needs { inputs: (1 << types.x.len()) - 1, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input < 2
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let places = types.x[0].len() / self.width();
        let (mask, factors) = (self.masked.then_some(7), self.scheduled.then_some(7 + usize::from(self.masked)));
        let numbers = cuda_numbers(&self.heads, places, mask, factors, self.coefficients.clip_value)?;
        let one = |kernel| {
            let launch = Launch::each(Text::Policies, kernel, 4 * rows * places).numbers(numbers);
            launch.factors(self.coefficients.factors())
        };
        Some(Twin::new([one("ppo_categorical_forward")], [one("ppo_categorical_backward")]))
    }

    fn scratch<R: Real>(&self, _: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(3 * block_len(self.width()).max(block_len(PPO_STATISTICS)))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (width, heads) = (self.width(), self.heads.len());
        let rows = c.rows * (c.types.x[0].len() / width);
        let coefficients = self.coefficients.scaled(self.factors(&c.x));
        let len = block_len(width).max(block_len(PPO_STATISTICS));
        let (logits, rest) = c.room.real.split_at_mut(len);
        let (powers, mask) = rest.split_at_mut(len);
        let mask = if self.masked { &mut mask[..len] } else { &mut [] };
        for first in (0..rows).step_by(L::LANES) {
            load_block::<R, L>(c.x[0], width, first, logits);
            if self.masked {
                load_block::<R, L>(c.x[7], width, first, mask);
            }
            let (mut log_prob, mut entropy, mut at) = (L::F::from(0.0), L::F::from(0.0), 0);
            for (h, &n) in self.heads.iter().enumerate() {
                let action = read_ints::<R, L>(c.ints[2], heads, h, first);
                let (logits, mask) = (head_columns::<R, L>(logits, at, n), head_columns::<R, L>(mask, at, n));
                let head = Head::<L>::new::<R>(n, logits, mask, action, powers);
                log_prob = log_prob + head.log_prob;
                entropy = entropy + head.entropy;
                at += n;
            }
            let sample = Sample::<L>::read::<R>(c.x[1], &c.x[3..7], first);
            let (loss, statistics) = coefficients.loss::<L>(sample, log_prob, entropy);
            write_losses::<R, L>(loss, statistics, first, &mut c.y[..2], powers);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (width, heads) = (self.width(), self.heads.len());
        let rows = c.rows * (c.types.x[0].len() / width);
        let coefficients = self.coefficients.scaled(self.factors(&c.x));
        let len = block_len(width).max(block_len(PPO_STATISTICS));
        let (logits, rest) = c.room.real.split_at_mut(len);
        let (powers, mask) = rest.split_at_mut(len);
        let mask = if self.masked { &mut mask[..len] } else { &mut [] };
        for first in (0..rows).step_by(L::LANES) {
            load_block::<R, L>(c.x[0], width, first, logits);
            if self.masked {
                load_block::<R, L>(c.x[7], width, first, mask);
            }
            let (mut log_prob, mut at) = (L::F::from(0.0), 0);
            let mut only = None;
            for (h, &n) in self.heads.iter().enumerate() {
                let action = read_ints::<R, L>(c.ints[2], heads, h, first);
                let (logits, mask) = (head_columns::<R, L>(logits, at, n), head_columns::<R, L>(mask, at, n));
                let head = Head::<L>::new::<R>(n, logits, mask, action, &mut powers[at * L::LANES..]);
                log_prob = log_prob + head.log_prob;
                only = Some(head);
                at += n;
            }
            let dy = read_numbers::<R, L>(c.dy[0], first);
            let sample = Sample::<L>::read::<R>(c.x[1], &c.x[3..7], first);
            let (d_log_prob, d_value) = coefficients.slopes::<L>(sample, log_prob);
            if !c.dx[1].is_empty() {
                write_numbers::<R, L>(d_value * dy, c.dx[1], first);
            }
            if c.dx[0].is_empty() {
                continue;
            }
            let (d_log_prob, d_entropy) = (d_log_prob * dy, dy * -coefficients.entropy);
            at = 0;
            for (h, &n) in self.heads.iter().enumerate() {
                let action = read_ints::<R, L>(c.ints[2], heads, h, first);
                let (logits, mask) = (head_columns::<R, L>(logits, at, n), head_columns::<R, L>(mask, at, n));
                let powers = &mut powers[at * L::LANES..];
                // A single head is still at hand; of several, each is computed again rather than kept.
                let head = match only {
                    Some(head) if heads == 1 => head,
                    _ => Head::<L>::new::<R>(n, logits, mask, action, powers),
                };
                head.gradient::<R>(n, logits, action, d_log_prob, d_entropy, powers);
                at += n;
            }
            store_block::<R, L>(powers, width, first, c.dx[0]);
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (n, m) = (random.size(1, 20), random.size(1, 5));
        let number = || fixed(rows([1]));
        let input = |n: usize, heads: usize, below: usize| -> Vec<Given> {
            vec![rows([n]), rows([1]), ints([heads], below), number(), number(), number(), number()]
        };
        let limits = PpoCoefficients { clip: 0.3, value: 0.7, entropy: 0.1, clip_value: true };
        let one = Self { heads: vec![n], masked: false, scheduled: false, coefficients: limits };
        let free = PpoCoefficients { clip_value: false, ..limits };
        let unclipped = Self { heads: vec![2], masked: false, scheduled: false, coefficients: free };
        let many = Self { heads: vec![m, 2 * m, m], masked: true, ..one.clone() };
        let mut masked_input = input(4 * m, 3, m);
        masked_input.push(fixed(with(Values::Mask(m), rows([4 * m]))));
        let of_sequences = Self { masked: true, scheduled: true, ..one.clone() };
        let steps = || fixed(rows([3]));
        let sequence = vec![
            rows([3, n]),
            rows([3]),
            ints([3], n),
            steps(),
            steps(),
            steps(),
            steps(),
            fixed(with(Values::Mask(n), rows([3, n]))),
            fixed(with(Values::Unit, whole([2]))),
        ];
        // Statistics pass no gradient on, so a finite difference must not see them move.
        let mut still = input(n, 1, n);
        (still[0], still[1]) = (fixed(rows([n])), number());
        let case = |name: &str, op: Self, inputs: Vec<Given>| {
            Case::build(name, inputs, move |g, x| Ok(vec![g.apply("", op.clone(), x)?])).rows(37)
        };
        vec![
            case("one head", one.clone(), input(n, 1, n)),
            case("values not clipped", unclipped, input(2, 1, 2)),
            Case::build("sequences of 3 steps", sequence, move |g, x| {
                let loss = g.apply("", of_sequences.clone(), x)?;
                Ok(vec![g.mean(loss, 1)?])
            })
            .rows(7),
            case("three masked heads", many, masked_input),
            Case::op(one, still).rows(21),
        ]
    }
}

/// Inputs: mean `[B, A]`, log of the standard deviation `[B, A]` or `[A]`, value, action `[B, A]`, old log-probability,
/// advantage, return, old value, and with `scheduled` factors `[2]` of clip and entropy.
#[derive(Clone, Copy, Debug)]
pub struct PpoGaussian {
    /// Whether there are factors of coefficients, the last input.
    pub scheduled: bool,
    /// Coefficients.
    pub coefficients: PpoCoefficients,
}

/// Numbers of an action, the last axis of a mean.
fn dims(mean: &Type) -> usize {
    mean.shape.last().copied().unwrap_or(1)
}

impl Op for PpoGaussian {
    const NAME: &'static str = "ppo_gaussian";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = 8 + usize::from(self.scheduled);
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        self.coefficients.check()?;
        check_factors(self.scheduled, x)?;
        // Of sequences, the type of one step.
        let step = |ty: &Type| match (ty.kind, &ty.shape[..]) {
            (Kind::Rows, [_, n]) => Type::rows([*n]),
            _ => ty.clone(),
        };
        check_shapes(&step(&x[0]), &step(&x[1]), &[&step(&x[3])])?;
        if x[3] != x[0] || (x[1].kind == Kind::Rows && x[1] != x[0]) {
            return Err("wanted as many steps of actions and standard deviations as of means".into());
        }
        check_numbers(&[&x[2], &x[4], &x[5], &x[6], &x[7]], x[0].len() / dims(&x[0]))
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 0xff, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input < 3
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let [factors, clip_value] = [if self.scheduled { 8 } else { 0 }, usize::from(self.coefficients.clip_value)];
        let numbers = [0, 0, 0, 0, factors, clip_value, 0, 0];
        Some(cuda_twin("ppo_gaussian", types, rows, numbers, self.coefficients.factors()))
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(5 * block_len(dims(&types.x[0])).max(block_len(PPO_STATISTICS)))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let n = dims(&c.types.x[0]);
        let rows = c.rows * (c.types.x[0].len() / n);
        let coefficients = self.coefficients.scaled(if self.scheduled { c.x[8] } else { &[] });
        let len = block_len(n).max(block_len(PPO_STATISTICS));
        let (mean, rest) = c.room.real.split_at_mut(len);
        let (action, rest) = rest.split_at_mut(len);
        let spread = &mut rest[..len];
        for first in (0..rows).step_by(L::LANES) {
            load_block::<R, L>(c.x[0], n, first, mean);
            load_block::<R, L>(c.x[3], n, first, action);
            let log_std = load_log_std::<R, L>(&c.types.x[1], c.x[1], first, spread);
            let (log_prob, entropy) = log_prob_and_entropy::<R, L>(n, mean, log_std, action);
            let sample = Sample::<L>::read::<R>(c.x[2], &c.x[4..8], first);
            let (loss, statistics) = coefficients.loss::<L>(sample, log_prob, entropy);
            write_losses::<R, L>(loss, statistics, first, &mut c.y[..2], mean);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let n = dims(&c.types.x[0]);
        let rows = c.rows * (c.types.x[0].len() / n);
        let coefficients = self.coefficients.scaled(if self.scheduled { c.x[8] } else { &[] });
        let len = block_len(n).max(block_len(PPO_STATISTICS));
        let (mean, rest) = c.room.real.split_at_mut(len);
        let (action, rest) = rest.split_at_mut(len);
        let (spread, rest) = rest.split_at_mut(len);
        let (d_mean, rest) = rest.split_at_mut(len);
        let d_spread = &mut rest[..len];
        let per_row = c.types.x[1].kind == Kind::Rows;
        for first in (0..rows).step_by(L::LANES) {
            load_block::<R, L>(c.x[0], n, first, mean);
            load_block::<R, L>(c.x[3], n, first, action);
            let log_std = load_log_std::<R, L>(&c.types.x[1], c.x[1], first, spread);
            let (log_prob, _) = log_prob_and_entropy::<R, L>(n, mean, log_std, action);
            let dy = read_numbers::<R, L>(c.dy[0], first);
            let sample = Sample::<L>::read::<R>(c.x[2], &c.x[4..8], first);
            let (d_log_prob, d_value) = coefficients.slopes::<L>(sample, log_prob);
            let (d_log_prob, d_entropy) = (d_log_prob * dy, dy * -coefficients.entropy);
            let mut d_log_std =
                if per_row { LogStdGradient::Rows(d_spread) } else { LogStdGradient::Whole(c.dx[1]) };
            gradient::<R, L>(n, mean, log_std, action, d_log_prob, d_entropy, d_mean, &mut d_log_std);
            if !c.dx[0].is_empty() {
                store_block::<R, L>(d_mean, n, first, c.dx[0]);
            }
            if per_row && !c.dx[1].is_empty() {
                store_block::<R, L>(d_spread, n, first, c.dx[1]);
            }
            if !c.dx[2].is_empty() {
                write_numbers::<R, L>(d_value * dy, c.dx[2], first);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(1, 12);
        let number = || fixed(rows([1]));
        let input = |mean: Given, log_std: Given, value: Given| -> Vec<Given> {
            vec![mean, log_std, value, fixed(rows([n])), number(), number(), number(), number()]
        };
        let op = Self { scheduled: false, coefficients: PpoCoefficients { clip: 0.3, value: 0.7, entropy: 0.1, clip_value: true } };
        let steps = || fixed(rows([3]));
        let (mean, factors) = (rows([3, n]), fixed(with(Values::Unit, whole([2]))));
        let sequence =
            vec![mean, whole([n]), rows([3]), fixed(rows([3, n])), steps(), steps(), steps(), steps(), factors];
        // Logs of probabilities of several normal numbers lie far from the old ones: ratios are kept in reach by a scale.
        let case = |name: &str, inputs: Vec<Given>| {
            Case::build(name, inputs, move |g, x| {
                let mut x = x.to_vec();
                (x[0], x[3]) = (g.scale(x[0], 0.1)?, g.scale(x[3], 0.1)?);
                Ok(vec![g.apply("", op, &x)?])
            })
            .rows(37)
        };
        vec![
            case("one spread for all rows", input(rows([n]), whole([n]), rows([1]))),
            case("a spread per row", input(rows([n]), rows([n]), rows([1]))),
            Case::build("sequences of 3 steps", sequence, move |g, x| {
                let mut x = x.to_vec();
                (x[0], x[3]) = (g.scale(x[0], 0.1)?, g.scale(x[3], 0.1)?);
                let loss = g.apply("", Self { scheduled: true, ..op }, &x)?;
                Ok(vec![g.mean(loss, 1)?])
            })
            .rows(7),
            Case::build("statistics", input(fixed(rows([1])), fixed(rows([1])), number()), move |g, x| {
                let action = g.slice(x[3], 0, 1)?;
                g.add_op("", op, &[x[0], x[1], x[2], action, x[4], x[5], x[6], x[7]])
            }),
        ]
    }
}

impl Graph {
    /// PPO's loss `[B, 1]` and statistics `[B, 6]` for categorical actions: logits of heads side by side `[B, ΣA]` and
    /// value `[B, 1]`. A mask like the logits takes out the actions where it is 0.
    pub fn ppo_categorical(
        &mut self,
        logits: Node,
        value: Node,
        targets: PpoTargets,
        heads: &[usize],
        mask: Option<Node>,
        coefficients: PpoCoefficients,
    ) -> Result<(Node, Node)> {
        let inputs = [logits, value].into_iter().chain(targets.nodes()).chain(mask).chain(targets.factors);
        let inputs: Vec<Node> = inputs.collect();
        let scheduled = targets.factors.is_some();
        let op = PpoCategorical { heads: heads.to_vec(), masked: mask.is_some(), scheduled, coefficients };
        let outputs = self.add_op("", op, &inputs)?;
        Ok((outputs[0], outputs[1]))
    }

    /// PPO's loss `[B, 1]` and statistics `[B, 6]` for actions under a normal distribution with this mean `[B, A]` and log of
    /// the standard deviation, `[B, A]` or a parameter `[A]`.
    pub fn ppo_gaussian(
        &mut self,
        mean: Node,
        log_std: Node,
        value: Node,
        targets: PpoTargets,
        coefficients: PpoCoefficients,
    ) -> Result<(Node, Node)> {
        let inputs = [mean, log_std, value].into_iter().chain(targets.nodes()).chain(targets.factors);
        let inputs: Vec<Node> = inputs.collect();
        let outputs = self.add_op("", PpoGaussian { scheduled: targets.factors.is_some(), coefficients }, &inputs)?;
        Ok((outputs[0], outputs[1]))
    }
}
