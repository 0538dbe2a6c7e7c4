//! Batch norm (Ioffe & Szegedy, 2015) of `[B, …, C]`: an op that adds up the batch's statistics, and one that applies them.
//! Between the two the whole batch has to pass, which the plan sees to. Inference uses running statistics and drops the
//! first op.

use operant_base::Result;
use operant_lanes::Vectors;
use crate::channels::{self, Affine};
use crate::check::{Case, Random, Values, fixed, rows, whole, with};
use crate::cuda::{Launch, Text, Twin, act_number};
use crate::elementwise::with_activation;
use crate::op::{Act, Backward, Forward, Kind, Needs, Op, Type, Types};
use crate::real::{Compute, Real, Scratch};
use crate::{Graph, Init, Node};

/// Inputs: x `[B, …, C]` and a shift `[C]`. Output, for the whole batch: `[2, C]`, sums of x less the shift and of its
/// squares; a shift near the mean keeps digits.
#[derive(Clone, Copy, Debug)]
pub struct BatchStatistics;

/// Inputs: x `[B, …, C]`, sums `[2, C]` of [`BatchStatistics`] with the running mean as its shift, running mean `[C]`,
/// running variance `[C]`, and with `affine` a weight `[C]` and a bias `[C]`.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm {
    /// Added to variances.
    pub eps: f32,
    /// Share of a batch in the running statistics.
    pub momentum: f32,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Applied to the result.
    pub act: Act,
}

fn channels_of(types: &Types) -> usize {
    types.x[0].shape[types.x[0].shape.len() - 1]
}

fn check(x: &Type) -> Result<usize, String> {
    match (x.kind, x.shape.last()) {
        (Kind::Rows, Some(&channels)) if channels > 0 && !x.is_empty() => Ok(channels),
        _ => Err("wanted [B, …, channels]".into()),
    }
}

/// Places of all rows that a block adds up on a GPU.
const CHUNK: usize = 512;

/// A launch over parts of the batch, for 32 channels each, and the numbers that these leave.
fn parts(types: &Types, rows: usize, kernel: &str) -> (Launch, usize) {
    let (len, n) = (types.x[0].len(), channels_of(types));
    let parts = (rows * len / n).div_ceil(CHUNK);
    (Launch::blocks(Text::Norm, kernel, parts * n.div_ceil(32)), 2 * n * parts)
}

/// A row of a number per channel, repeated.
fn fill<R: Real>(row: &mut [R], from: &[R]) {
    row[..from.len()].copy_from_slice(from);
    channels::repeat(row, from.len());
}

impl Op for BatchStatistics {
    const NAME: &'static str = "batch statistics";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [x, shift] = x else { return Err("wanted images and a shift".into()) };
        let channels = check(x)?;
        if shift.shape != [channels] {
            return Err(format!("wanted a shift [{channels}]"));
        }
        Ok(vec![Type::whole([2, channels])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 1, outputs: 0 }
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (len, n) = (types.x[0].len(), channels_of(types));
        let with = |launch: Launch| launch.numbers([len / n, n, 0, 0, CHUNK]);
        let (first, scratch) = parts(types, rows, "batch_statistics_parts");
        let forward = [first, Launch::each(Text::Norm, "batch_statistics_forward", 2 * n)].map(with);
        let backward = Launch::each(Text::Norm, "batch_statistics_backward", rows * len);
        Some(Twin::new(forward, [with(backward)]).scratch(scratch))
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(3 * channels::row_len(channels_of(types)))
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn adds(&self) -> bool {
        true
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let n = channels_of(c.types);
        let [shift, sum, square] = [(); 3].map(|()| c.room.take(Scratch::real(channels::row_len(n))).real);
        fill(shift, c.x[1]);
        sum.fill(R::default());
        square.fill(R::default());
        channels::moments::<R, L>(c.x[0], shift, sum, square);
        for (to, row) in c.y[0].chunks_exact_mut(n).zip([sum, square]) {
            channels::gather(row, n);
            to.iter_mut().zip(&row[..n]).for_each(|(to, from)| *to += *from);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let n = channels_of(c.types);
        let [shift, slope, offset] = [(); 3].map(|()| c.room.take(Scratch::real(channels::row_len(n))).real);
        fill(shift, c.x[1]);
        fill(offset, &c.dy[0][..n]);
        fill(slope, &c.dy[0][n..]);
        slope.iter_mut().for_each(|slope| *slope = *slope + *slope);
        channels::add_linear::<R, L>(c.x[0], shift, slope, offset, c.add & 1 == 1, c.dx[0]);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        cases(random, &[Act::Identity])
    }
}

impl BatchNorm {
    /// The batch's mean and variance of a channel, from sums over `count` numbers.
    fn moments<R: Real>(sums: &[R], shift: &[R], channel: usize, count: f64) -> (R, R) {
        let n = shift.len();
        let scale = R::of(1.0 / count);
        let offset = sums[channel] * scale;
        let variance = sums[n + channel] * scale - offset * offset;
        (shift[channel] + offset, if variance > R::default() { variance } else { R::default() })
    }

    /// Fills the four rows of coefficients.
    fn coefficients<R: Real>(&self, x: &[&[R]], count: Option<f64>, rows: [&mut [R]; 4]) {
        let [mean, rstd, weight, bias] = rows;
        let n = x[2].len();
        for channel in 0..n {
            let (m, v) = match count {
                Some(count) => Self::moments(x[1], x[2], channel, count),
                None => (x[2][channel], x[3][channel]),
            };
            mean[channel] = m;
            rstd[channel] = R::of(1.0) / (v + R::of(f64::from(self.eps))).root();
        }
        if self.affine {
            weight[..n].copy_from_slice(x[4]);
            bias[..n].copy_from_slice(x[5]);
        } else {
            weight[..n].fill(R::of(1.0));
            bias[..n].fill(R::default());
        }
        for row in [mean, rstd, weight, bias] {
            channels::repeat(row, n);
        }
    }
}

/// Numbers of a channel in a batch.
fn count(types: &Types, total_rows: usize) -> f64 {
    (types.x[0].len() / channels_of(types) * total_rows) as f64
}

impl Op for BatchNorm {
    const NAME: &'static str = "batch norm";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = if self.affine { 6 } else { 4 };
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        let channels = check(&x[0])?;
        if x[1].shape != [2, channels] || x[2..].iter().any(|x| x.shape != [channels]) {
            return Err(format!("wanted sums [2, {channels}], and [{channels}] of all others"));
        }
        Ok(vec![x[0].clone()])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 1, outputs: 0 }
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (len, n) = (types.x[0].len(), channels_of(types));
        let numbers = [len / n, n, usize::from(self.affine), act_number(self.act), CHUNK];
        let with = |launch: Launch| launch.numbers(numbers).factors([self.eps]);
        let (first, scratch) = parts(types, rows, "batch_norm_parts");
        let backward = [first, Launch::each(Text::Norm, "batch_norm_backward", n)].map(with);
        let forward = Launch::each(Text::Norm, "batch_norm_forward", rows * len);
        Some(Twin::new([with(forward)], backward).scratch(scratch))
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        let row_len = channels::row_len(channels_of(types));
        Scratch::real(6 * row_len + channels::block_len::<R>(row_len))
    }

    fn differentiable(&self, input: usize) -> bool {
        input != 2 && input != 3
    }

    fn reads(&self, input: usize, training: bool) -> bool {
        input != 1 || training
    }

    fn fuse(&self, act: Act, _: bool) -> Option<Self> {
        (self.act == Act::Identity).then_some(Self { act, ..*self })
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let row_len = channels::row_len(channels_of(c.types));
        let [mean, rstd, weight, bias] = [(); 4].map(|()| c.room.take(Scratch::real(row_len)).real);
        let count = c.training.then(|| count(c.types, c.total_rows));
        self.coefficients(&c.x, count, [&mut *mean, &mut *rstd, &mut *weight, &mut *bias]);
        let affine = Affine { mean: &*mean, rstd: &*rstd, weight: &*weight, bias: &*bias };
        with_activation!(self.act, f => channels::normalise::<R, L, _>(f, affine, c.x[0], c.y[0]));
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let n = channels_of(c.types);
        let row_len = channels::row_len(n);
        let [mean, rstd, weight, bias] = [(); 4].map(|()| c.room.take(Scratch::real(row_len)).real);
        let [sum, product] = [(); 2].map(|()| c.room.take(Scratch::real(row_len)).real);
        let block = channels::block_len::<R>(row_len);
        let unwanted = c.room.take(Scratch::real(block)).real;
        let count = count(c.types, c.total_rows);
        self.coefficients(&c.x, Some(count), [&mut *mean, &mut *rstd, &mut *weight, &mut *bias]);
        sum.fill(R::default());
        product.fill(R::default());
        let affine = Affine { mean: &*mean, rstd: &*rstd, weight: &*weight, bias: &*bias };
        let len = c.x[0].len();
        for at in (0..len).step_by(block) {
            let end = (at + block).min(len);
            let dx = if c.dx[0].is_empty() { &mut unwanted[..end - at] } else { &mut c.dx[0][at..end] };
            let (x, dy) = (&c.x[0][at..end], &c.dy[0][at..end]);
            with_activation!(self.act, f => channels::denormalise::<R, L, _>(f, affine, x, dy, dx, sum, product));
        }
        channels::gather(sum, n);
        channels::gather(product, n);
        if self.affine {
            for (to, from) in [(4, &product[..n]), (5, &sum[..n])] {
                let to = &mut c.dx[to];
                to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
            }
        }
        if c.dx[1].is_empty() {
            return;
        }
        // mean = shift + S/n and variance = Q/n − (S/n)², of the sums S and Q.
        let scale = R::of(1.0 / count);
        let (to_sum, to_square) = c.dx[1].split_at_mut(n);
        for channel in 0..n {
            let (r, w) = (rstd[channel], weight[channel]);
            let d_mean = -(w * r * sum[channel]);
            let d_variance = -(R::of(0.5) * w * r * r * product[channel]);
            let offset = mean[channel] - c.x[2][channel];
            to_square[channel] += d_variance * scale;
            to_sum[channel] += (d_mean - R::of(2.0) * offset * d_variance) * scale;
        }
    }

    fn update(&self, types: &Types, x: &[&[f32]], total_rows: usize, write: &mut dyn FnMut(usize, &[f32])) {
        let (count, n) = (count(types, total_rows), channels_of(types));
        let (keep, take) = (1.0 - self.momentum, self.momentum);
        // PyTorch's running variance is that of the population, estimated from the batch.
        let unbiased = (count / (count - 1.0).max(1.0)) as f32;
        let (mut means, mut variances) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for channel in 0..n {
            let (mean, variance) = Self::moments(x[1], x[2], channel, count);
            means.push(keep * x[2][channel] + take * mean);
            variances.push(keep * x[3][channel] + take * variance * unbiased);
        }
        write(2, &means);
        write(3, &variances);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        cases(random, &[Act::Identity, Act::Tanh, Act::Sigmoid, Act::Gelu, Act::Silu])
    }
}

/// Both ops together.
fn cases(random: &mut Random, acts: &[Act]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &act in acts {
        for affine in [true, false] {
            let shape = [vec![random.size(1, 40)], vec![random.size(1, 4), random.size(1, 4), random.size(1, 150)]];
            for shape in shape {
                let n = shape[shape.len() - 1];
                let mut given = vec![rows(shape), fixed(whole([n])), fixed(with(Values::Positive, whole([n])))];
                if affine {
                    given.extend([whole([n]), whole([n])]);
                }
                let op = BatchNorm { eps: 1e-2, momentum: 0.1, affine, act };
                cases.push(Case::build(format!("{op:?}"), given, move |g, x| {
                    let sums = g.apply("", BatchStatistics, &[x[0], x[1]])?;
                    let inputs = [&[x[0], sums], &x[1..]].concat();
                    g.add_op("", op, &inputs)
                }));
            }
        }
    }
    cases
}

impl Graph {
    /// Batch norm over all but the last axis, with parameters `<name>.weight` and `<name>.bias`, buffers
    /// `<name>.running_mean` and `<name>.running_var`, PyTorch's eps of 1e-5 and momentum of 0.1. Training normalises by the
    /// batch, and [`Plan::update_buffers`](crate::Plan::update_buffers) moves the running statistics, by which inference
    /// normalises.
    pub fn batch_norm(&mut self, name: &str, x: Node) -> Result<Node> {
        self.batch_norm_with(name, x, BatchNorm { eps: 1e-5, momentum: 0.1, affine: true, act: Act::Identity })
    }

    /// Batch norm with other settings.
    pub fn batch_norm_with(&mut self, name: &str, x: Node, op: BatchNorm) -> Result<Node> {
        let channels = self.features(name, x)?;
        let affine = op.affine.then(|| {
            let weight = self.param(&format!("{name}.weight"), [channels], Init::Ones);
            [weight, self.param(&format!("{name}.bias"), [channels], Init::Zeros)]
        });
        let mean = self.buffer(&format!("{name}.running_mean"), [channels], Init::Zeros);
        let variance = self.buffer(&format!("{name}.running_var"), [channels], Init::Ones);
        let sums = self.apply(&format!("{name}.statistics"), BatchStatistics, &[x, mean])?;
        let mut inputs = vec![x, sums, mean, variance];
        inputs.extend(affine.into_iter().flatten());
        self.apply(name, op, &inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feed, Gradients, Options, Plan};

    /// Running statistics after one batch, against f64 sums; inference uses them, in one stage without the sums.
    #[test]
    fn running_statistics_move_and_are_used() {
        let mut g = Graph::new();
        let x = g.input("x", [4, 3]);
        let y = g.batch_norm("norm", x).unwrap();
        let loss = g.sum(y, 9).unwrap();
        let mut params = g.params(0).unwrap();
        let feed: Vec<f32> = (0..6 * 12).map(|i| (i * 29 % 31) as f32 / 7.0 + 100.0 * (i % 3) as f32).collect();
        let mut plan = Plan::training(&g, loss, 6, &Options::default()).unwrap();
        plan.train(&params, 6, &[Feed::Real(&feed)], 1.0, Gradients::Replace);
        plan.update_buffers(&mut params);
        let (means, variances) = (params.get("norm.running_mean").unwrap(), params.get("norm.running_var").unwrap());
        for channel in 0..3 {
            let values: Vec<f64> = feed.iter().skip(channel).step_by(3).map(|&x| f64::from(x)).collect();
            let mean = values.iter().sum::<f64>() / 24.0;
            let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 23.0;
            assert!((f64::from(means[channel]) / (0.1 * mean) - 1.0).abs() < 1e-5);
            // The first shift is 0, so a mean of 200 costs digits of the variance.
            assert!((f64::from(variances[channel]) / (0.9 + 0.1 * variance) - 1.0).abs() < 1e-2);
        }
        let mut plan = Plan::inference(&g, &[y], 6, &Options::default()).unwrap();
        assert!(!plan.to_string().contains("statistics"), "{plan}");
        plan.forward(&params, 6, &[Feed::Real(&feed)]);
        let wanted = (feed[4] - params.get("norm.running_mean").unwrap()[1])
            / (params.get("norm.running_var").unwrap()[1] + 1e-5).sqrt();
        assert!((plan.output(y)[4] - wanted).abs() < 1e-4 * wanted.abs());
    }
}
