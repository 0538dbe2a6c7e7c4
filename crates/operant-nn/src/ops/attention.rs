//! Multi-head self-attention (Vaswani et al., "Attention is all you need", 2017).
//!
//! The gradient computes the weights of attention again from the logarithm of each row's sum, so nothing of size T² is kept
//! (Dao et al., "FlashAttention", 2022). Queries go in blocks, so scratch is of size T.

use crate::cuda::{Launch, THREADS, Text, Twin};
use super::super::check::{Case, Random, Values, fixed, rows, with};
use super::super::elementwise::dot;
use super::super::op::{Act, Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Left, Packed, PackedMut, Real, Scratch, Start};
use super::super::{Graph, Init, Node};
use super::Linear;
use operant_device::gemm::Product;
use operant_lanes::{Float, Vectors};
use operant_base::{Error, Result};

/// Inputs: queries, keys and values `[B, T, 3·D]` beside each other, and with `masked` a mask `[B, T]`: 1 for keys that may be
/// attended to, 0 for others. Outputs: `[B, T, D]`, and the logarithms of the sums, which only the gradient reads. A query
/// without any key that it may attend to gives zeros.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Heads, which share D equally.
    pub heads: usize,
    /// Whether a query sees only keys up to its own place.
    pub causal: bool,
    /// Whether there is a mask.
    pub masked: bool,
}

/// Queries per block: their scores stay near.
const QUERIES: usize = 64;
/// Score of a key that may not be attended to: far below any other, far from overflow.
const HIDDEN: f32 = -1e30;
/// Least that a row of scores is compared with: scores below are hidden ones.
const LEAST: f32 = -1e29;
/// Rows of scores begin at multiples of this many elements, so that vectors may run past the end.
const PAD: usize = 16;

#[derive(Clone, Copy)]
struct Sizes {
    t: usize,
    d: usize,
    /// Numbers per head.
    head: usize,
    /// From one row of scores to the next.
    stride: usize,
}

impl Attention {
    fn sizes(&self, types: &Types) -> Sizes {
        let (t, d) = (types.y[0].shape[0], types.y[0].shape[1]);
        Sizes { t, d, head: d / self.heads, stride: t.next_multiple_of(PAD) }
    }

    /// Keys that a query may see.
    fn seen(&self, query: usize, t: usize) -> usize {
        if self.causal { query + 1 } else { t }
    }

    /// What is added to scores: 0, or much less for keys that are hidden.
    #[inline(always)]
    fn bias<R: Real>(&self, mask: &[R], row: usize, t: usize, bias: &mut [R]) {
        bias[t..].fill(R::of(f64::from(HIDDEN)));
        for (key, to) in bias[..t].iter_mut().enumerate() {
            let hidden = self.masked && mask[row * t + key] == R::default();
            *to = R::of(if hidden { f64::from(HIDDEN) } else { 0.0 });
        }
    }
}

/// `C = A·B` of views; rows of A are `a_row` apart and its columns `a_column`.
#[derive(Clone, Copy)]
struct Plain {
    m: usize,
    n: usize,
    k: usize,
    a: (usize, usize),
    b_row: usize,
    c_row: usize,
}

impl Plain {
    #[inline(always)]
    fn run<R: Real>(self, compute: Compute, a: &[R], b: &[R], start: Start<R>, c: &mut [R]) {
        let Self { m, n, k, a: (a_row, a_inner), b_row, c_row } = self;
        let p = Product { m, n, outer: 1, inner: k, a_row, a_outer: 0, a_inner, b_outer: 0, b_inner: b_row, c_row };
        R::product_plain(compute, &p, a, b, start, c);
    }
}

/// Products of `m` rows of a head with all T transposed rows that were packed.
#[inline(always)]
fn scores<R: Real>(compute: Compute, s: &Sizes, m: usize, (a, a_row): (&[R], usize), keys: &[R], c: &mut [R]) {
    let (n, inner, c_row) = (s.t, s.head, s.stride);
    let p = Product { m, n, outer: 1, inner, a_row, a_outer: 0, a_inner: 1, b_outer: 0, b_inner: n, c_row };
    R::product(compute, &p, Left::Real(a), Packed::Real(keys), Start::Zero, c);
}

/// Turns scores of the first `seen` keys into weights; gives the logarithm of their sum. What is beyond becomes zero.
#[inline(always)]
fn softmax<R: Real, L: Vectors<R>>(scale: R, bias: &[R], seen: usize, x: &mut [R], log_sum: &mut [R]) {
    x[seen..].fill(R::of(f64::from(HIDDEN)));
    let scale = L::splat(scale);
    let end = seen.next_multiple_of(L::LANES);
    let mut most = L::F::from(LEAST);
    for at in (0..end).step_by(L::LANES) {
        let score = L::read(&x[at..]).mul_add(scale, L::read(&bias[at..]));
        L::write(score, &mut x[at..]);
        most = most.max(score);
    }
    let most = L::splat(L::largest(most));
    let mut sum = L::F::from(0.0);
    for at in (0..end).step_by(L::LANES) {
        let weight = (L::read(&x[at..]) - most).exp_fast();
        L::write(weight, &mut x[at..]);
        sum = sum + weight;
    }
    let sum = L::sum(sum);
    let nothing = sum == R::default();
    let factor = if nothing { R::default() } else { R::of(1.0) / sum };
    for at in (0..end).step_by(L::LANES) {
        let weight = L::read(&x[at..]) * L::splat(factor);
        L::write(weight, &mut x[at..]);
    }
    x[end..].fill(R::default());
    let log = if nothing { L::F::from(-HIDDEN) } else { most + L::splat(sum).log() };
    L::write_part(log, log_sum);
}

/// The same weights again from the logarithm of their sum.
#[inline(always)]
fn weights<R: Real, L: Vectors<R>>(scale: R, bias: &[R], seen: usize, x: &mut [R], log_sum: R) {
    x[seen..].fill(R::of(f64::from(HIDDEN)));
    let (scale, log_sum) = (L::splat(scale), L::splat(log_sum));
    let end = seen.next_multiple_of(L::LANES);
    for at in (0..end).step_by(L::LANES) {
        let score = L::read(&x[at..]).mul_add(scale, L::read(&bias[at..]));
        L::write((score - log_sum).exp_fast(), &mut x[at..]);
    }
    x[end..].fill(R::default());
}

/// `x = p·(x − mean)·scale`: gradients of scores from those of weights.
#[inline(always)]
fn score_gradient<R: Real, L: Vectors<R>>(scale: R, p: &[R], mean: R, x: &mut [R]) {
    let (scale, mean) = (L::splat(scale), L::splat(mean));
    for at in (0..x.len()).step_by(L::LANES) {
        let value = L::read(&p[at..]) * (L::read(&x[at..]) - mean) * scale;
        L::write(value, &mut x[at..]);
    }
}

impl Op for Attention {
    const NAME: &'static str = "attention";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = 1 + usize::from(self.masked);
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        let [t, all] = x[0].shape[..] else { return Err("wanted queries, keys and values [B, T, 3·D]".into()) };
        if x[0].kind != Kind::Rows || t * all * self.heads == 0 || all % (3 * self.heads) != 0 {
            return Err(format!("wanted queries, keys and values [B, T, 3·D] with D a multiple of {} heads", self.heads));
        }
        if self.masked && x[1] != Type::rows([t]) {
            return Err(format!("wanted a mask [B, {t}]"));
        }
        Ok(vec![Type::rows([t, all / 3]), Type::rows([self.heads * t])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 0b11, outputs: 0b11 }
    }

    fn flops(&self, types: &Types) -> u64 {
        let Sizes { t, d, .. } = self.sizes(types);
        4 * (t * t * d) as u64
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, compute: Compute) -> Scratch {
        let s = self.sizes(types);
        let packed = R::packed_len(compute.or_exact(true), 1, s.head, s.t).real;
        Scratch::real(2 * packed + (2 * QUERIES.min(s.t) + 1) * s.stride)
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let Sizes { t, d, head, .. } = self.sizes(types);
        // Numbers of a head that a thread holds.
        let held = head.next_power_of_two().max(4);
        if held > 64 {
            return None;
        }
        let numbers = [t, d, self.heads, usize::from(self.causal), usize::from(self.masked)];
        let one = |pass: &str| {
            let blocks = rows * self.heads * t.div_ceil(THREADS / 2);
            let kernel = format!("attention_{pass}_{held}");
            Launch::blocks(Text::Attention, kernel, blocks).numbers(numbers).threads(THREADS / 2)
        };
        Some(Twin::new([one("forward")], [one("queries"), one("keys")]).scratch(rows * self.heads * t))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let s @ Sizes { t, d, head, stride } = self.sizes(c.types);
        let compute = c.compute.or_exact(true);
        let scale = R::of(1.0 / (head as f64).sqrt());
        let keys = c.room.take(R::packed_len(compute, 1, head, t)).real;
        let bias = c.room.take(Scratch::real(stride)).real;
        let p = c.room.take(Scratch::real(QUERIES.min(t) * stride)).real;
        for row in 0..c.rows {
            self.bias(c.x[1], row, t, bias);
            let x = &c.x[0][row * t * 3 * d..][..t * 3 * d];
            for number in 0..self.heads {
                let (q, k, v) = (&x[number * head..], &x[d + number * head..], &x[2 * d + number * head..]);
                R::pack(compute, 1, head, t, k, 1, 3 * d, PackedMut { real: keys, half: &mut [] });
                for first in (0..t).step_by(QUERIES) {
                    let m = QUERIES.min(t - first);
                    scores(compute, &s, m, (&q[first * 3 * d..], 3 * d), keys, p);
                    for (i, p) in p[..m * stride].chunks_exact_mut(stride).enumerate() {
                        let (query, mut unread) = (first + i, [R::default()]);
                        let log_sum = match &mut *c.y[1] {
                            [] => &mut unread[..],
                            all => &mut all[(row * self.heads + number) * t + query..][..1],
                        };
                        softmax::<R, L>(scale, bias, self.seen(query, t), p, log_sum);
                    }
                    let keys_seen = self.seen(first + m - 1, t);
                    let y = &mut c.y[0][(row * t + first) * d + number * head..];
                    let product = Plain { m, n: head, k: keys_seen, a: (stride, 1), b_row: 3 * d, c_row: d };
                    product.run(compute, p, v, Start::Zero, y);
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let s @ Sizes { t, d, head, stride } = self.sizes(c.types);
        let compute = c.compute.or_exact(true);
        let scale = R::of(1.0 / (head as f64).sqrt());
        let keys = c.room.take(R::packed_len(compute, 1, head, t)).real;
        let values = c.room.take(R::packed_len(compute, 1, head, t)).real;
        let bias = c.room.take(Scratch::real(stride)).real;
        let p = c.room.take(Scratch::real(QUERIES.min(t) * stride)).real;
        let dp = c.room.take(Scratch::real(QUERIES.min(t) * stride)).real;
        for row in 0..c.rows {
            self.bias(c.x[1], row, t, bias);
            let x = &c.x[0][row * t * 3 * d..][..t * 3 * d];
            let dx = &mut c.dx[0][row * t * 3 * d..][..t * 3 * d];
            dx.fill(R::default());
            for number in 0..self.heads {
                let (q, k, v) = (&x[number * head..], &x[d + number * head..], &x[2 * d + number * head..]);
                R::pack(compute, 1, head, t, k, 1, 3 * d, PackedMut { real: keys, half: &mut [] });
                R::pack(compute, 1, head, t, v, 1, 3 * d, PackedMut { real: values, half: &mut [] });
                for first in (0..t).step_by(QUERIES) {
                    let m = QUERIES.min(t - first);
                    let seen = self.seen(first + m - 1, t);
                    let from = (row * t + first) * d + number * head;
                    let (y, dy) = (&c.y[0][from..], &c.dy[0][from..]);
                    let q = &q[first * 3 * d..];
                    scores(compute, &s, m, (q, 3 * d), keys, p);
                    scores(compute, &s, m, (dy, d), values, dp);
                    for i in 0..m {
                        let p = &mut p[i * stride..][..stride];
                        let dp = &mut dp[i * stride..][..stride];
                        let log_sum = c.y[1][(row * self.heads + number) * t + first + i];
                        weights::<R, L>(scale, bias, self.seen(first + i, t), p, log_sum);
                        // Σ_j p·dp, by way of the output.
                        let mean = dot::<R, L>(&dy[i * d..][..head], &y[i * d..][..head]);
                        dp[t..].fill(R::default());
                        score_gradient::<R, L>(scale, p, mean, dp);
                    }
                    let across = Plain { m: seen, n: head, k: m, a: (1, stride), b_row: d, c_row: 3 * d };
                    across.run(compute, p, dy, Start::Add, &mut dx[2 * d + number * head..]);
                    let across = Plain { b_row: 3 * d, ..across };
                    across.run(compute, dp, q, Start::Add, &mut dx[d + number * head..]);
                    let along = Plain { m, n: head, k: seen, a: (stride, 1), b_row: 3 * d, c_row: 3 * d };
                    along.run(compute, dp, k, Start::Zero, &mut dx[first * 3 * d + number * head..]);
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for (causal, masked) in [(false, false), (true, false), (false, true), (true, true)] {
            for long in [false, true] {
                let (heads, head) = (random.size(1, 3), random.size(1, if long { 3 } else { 18 }));
                let t = if long { QUERIES + random.size(1, 9) } else { random.size(1, 20) };
                let mut given = vec![rows([t, 3 * heads * head])];
                if masked {
                    given.push(fixed(with(Values::Mask(t), rows([t]))));
                }
                let op = Self { heads, causal, masked };
                let case = Case::build(format!("{op:?}"), given, move |g, x| Ok(vec![g.apply("", op, x)?]));
                cases.push(case.rows(if long { 2 } else { 4 }));
            }
        }
        cases
    }
}

impl Graph {
    /// Self-attention over `[B, T, D]` with the parameters of torch.nn.MultiheadAttention. `mask` `[B, T]` is 1 for keys that
    /// may be attended to (PyTorch's key_padding_mask is true for the others).
    pub fn attention(
        &mut self,
        name: &str,
        x: Node,
        heads: usize,
        causal: bool,
        mask: Option<Node>,
    ) -> Result<Node> {
        let d = self.features(name, x)?;
        if heads == 0 || d % heads != 0 {
            return Err(Error::Invalid(format!("attention \"{name}\" over {d} features: {heads} heads can't share them")));
        }
        let weight = self.param(&format!("{name}.in_proj_weight"), [3 * d, d], Init::XavierUniform { gain: 1.0 });
        let bias = self.param(&format!("{name}.in_proj_bias"), [3 * d], Init::Zeros);
        let linear = Linear { bias: true, act: Act::Identity };
        let all = self.apply(&format!("{name}.in_proj"), linear, &[x, weight, bias])?;
        let mut inputs = vec![all];
        inputs.extend(mask);
        let y = self.apply(name, Attention { heads, causal, masked: mask.is_some() }, &inputs)?;
        let out = format!("{name}.out_proj");
        self.linear_with(&out, y, d, Init::TorchLinear { fan_in: d }, Some(Init::Zeros))
    }
}
