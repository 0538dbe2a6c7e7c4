//! Normalisation of each sample of `[B, …, C]` over its pixels and groups of its channels: group norm (Wu & He, 2018), and
//! with as many groups as channels instance norm (Ulyanov et al., 2016).
//!
//! One pass makes statistics, a second applies them, an activation and noise. Backward the activation's input is made again
//! from x, so nothing but x and the statistics is kept.

use crate::cuda::{Launch, THREADS, Text, Twin, act_number, collapse};
use operant_base::Result;
use operant_lanes::Vectors;
use crate::channels::{self, Affine};
use crate::check::{Case, Given, Random, rows, whole};
use crate::elementwise::with_activation;
use crate::op::{Act, Backward, Forward, Kind, Needs, Op, Type, Types};
use crate::real::{Compute, Real, Room, Scratch};
use crate::{Graph, Init, Node, noise};

/// Inputs: x `[B, …, C]`, and with `affine` a weight `[C]` and a bias `[C]`. Outputs: y, and `[B, groups]` of means and of
/// one over standard deviations, which have no gradient.
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm {
    /// Parts of the channels that are normalised together; each channel by itself if 0.
    pub groups: usize,
    /// Added to variances.
    pub eps: f32,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Applied to the result.
    pub act: Act,
    /// Standard deviation of noise that is added after the activation, in every run.
    pub noise: Option<f32>,
}

/// Rows of coefficients, `row_len` each.
const ROWS: usize = 8;

struct Sizes {
    channels: usize,
    groups: usize,
    /// Numbers of a sample, and of those that are normalised together.
    len: usize,
    together: usize,
    row_len: usize,
}

impl GroupNorm {
    fn sizes(&self, types: &Types) -> Sizes {
        let channels = types.x[0].shape[types.x[0].shape.len() - 1];
        let groups = if self.groups == 0 { channels } else { self.groups };
        let len = types.x[0].len();
        Sizes { channels, groups, len, together: len / groups, row_len: channels::row_len(channels) }
    }
}

/// Spreads one number per group over a row of channels.
fn spread<R: Real>(s: &Sizes, from: &[R], row: &mut [R]) {
    let per_group = s.channels / s.groups;
    for (c, to) in row[..s.channels].iter_mut().enumerate() {
        *to = from[c / per_group];
    }
    channels::repeat(row, s.channels);
}

/// Fills weight and bias rows.
fn affine<R: Real>(s: &Sizes, weight: &[R], bias: &[R], rows: [&mut [R]; 2]) {
    for ((row, from), otherwise) in rows.into_iter().zip([weight, bias]).zip([1.0, 0.0]) {
        if from.is_empty() {
            row.fill(R::of(otherwise));
        } else {
            row[..s.channels].copy_from_slice(from);
            channels::repeat(row, s.channels);
        }
    }
}

/// Means and one over standard deviations of the groups of a sample.
#[inline(always)]
fn statistics<R: Real, L: Vectors<R>>(s: &Sizes, eps: f32, x: &[R], mut room: Room<R>, mean: &mut [R], rstd: &mut [R]) {
    let [shift, sum, square] = [(); 3].map(|()| room.take(Scratch::real(s.row_len)).real);
    let per_group = s.channels / s.groups;
    // Sums of differences from one of the numbers lose no digits to a large mean.
    for (group, mean) in mean.iter_mut().enumerate() {
        *mean = x[group * per_group];
    }
    spread(s, mean, shift);
    sum.fill(R::default());
    square.fill(R::default());
    channels::moments::<R, L>(x, shift, sum, square);
    channels::gather(sum, s.channels);
    channels::gather(square, s.channels);
    let scale = R::of(1.0 / s.together as f64);
    for group in 0..s.groups {
        let (mut total, mut squares) = (R::default(), R::default());
        for c in group * per_group..(group + 1) * per_group {
            total += sum[c];
            squares += square[c];
        }
        let offset = total * scale;
        let variance = squares * scale - offset * offset;
        let variance = if variance > R::default() { variance } else { R::default() };
        mean[group] += offset;
        rstd[group] = R::of(1.0) / (variance + R::of(f64::from(eps))).root();
    }
}

impl Op for GroupNorm {
    const NAME: &'static str = "group norm";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = if self.affine { 3 } else { 1 };
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        let (Kind::Rows, Some(&channels), false) = (x[0].kind, x[0].shape.last(), x[0].is_empty()) else {
            return Err("wanted [B, …, channels]".into());
        };
        let groups = if self.groups == 0 { channels } else { self.groups };
        if channels % groups != 0 {
            return Err(format!("{channels} channels in {groups} groups: wanted groups of one size"));
        }
        if x[0].len() == groups {
            return Err("wanted more than one number to normalise together".into());
        }
        if x[1..].iter().any(|x| x.shape != [channels]) {
            return Err(format!("wanted a weight [{channels}] and a bias [{channels}]"));
        }
        Ok(vec![x[0].clone(), Type::rows([groups]), Type::rows([groups])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 1, outputs: 0b110 }
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        let s = self.sizes(types);
        Scratch::real(ROWS * s.row_len + 2 * s.groups + channels::block_len::<R>(s.row_len))
    }

    fn fuse(&self, act: Act, _: bool) -> Option<Self> {
        (self.act == Act::Identity && self.noise.is_none()).then_some(Self { act, ..*self })
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let Sizes { channels, groups, len, .. } = self.sizes(types);
        if channels > THREADS || self.noise.is_some() {
            return None;
        }
        let numbers = [len / channels, channels, groups, usize::from(self.affine), act_number(self.act)];
        let one = |kernel| Launch::blocks(Text::Norm, kernel, rows).numbers(numbers).factors([self.eps]);
        let mut backward = vec![one("group_norm_backward")];
        backward.extend(self.affine.then(|| collapse(2 * channels, [1, 1], [1, 2], channels)));
        let octets = len / 8;
        let whole = channels.is_multiple_of(8) && (channels / 8).is_power_of_two();
        // Octets of a thread, and threads of a row.
        let shapes = [(1, 64), (2, 64), (4, 64), (4, 128), (4, 256), (8, 256), (16, 256)];
        let shape = shapes.into_iter().find(|(kept, wide)| octets <= kept * wide);
        let simple = matches!(self.act, Act::Identity | Act::Relu);
        let narrow = shape.filter(|_| whole && simple && channels == 4 * groups).map(|(kept, wide)| {
            let of = |kernel| {
                Launch::blocks(Text::Narrow, kernel, (rows * wide).div_ceil(THREADS)).numbers(numbers).factors([self.eps])
            };
            let mut others = backward.clone();
            others[0] = of(format!("norm_backward_{wide}"));
            Twin::new([of(format!("norm_forward_{kept}_{wide}"))], others).scratch(rows * 2 * channels).adds(1)
        });
        let twin = Twin::new([one("group_norm_forward")], backward).scratch(rows * 2 * channels);
        Some(twin.or_narrow(narrow))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let s = self.sizes(c.types);
        let [mean, rstd, weight, bias] = [(); 4].map(|()| c.room.take(Scratch::real(s.row_len)).real);
        let [own_mean, own_rstd] = [(); 2].map(|()| c.room.take(Scratch::real(s.groups)).real);
        affine(&s, c.x[1], c.x[2], [&mut *weight, &mut *bias]);
        let block = channels::block_len::<R>(s.row_len);
        for row in 0..c.rows {
            let x = &c.x[0][row * s.len..][..s.len];
            statistics::<R, L>(&s, self.eps, x, c.room.again(), own_mean, own_rstd);
            spread(&s, own_mean, mean);
            spread(&s, own_rstd, rstd);
            if !c.y[1].is_empty() {
                c.y[1][row * s.groups..][..s.groups].copy_from_slice(own_mean);
                c.y[2][row * s.groups..][..s.groups].copy_from_slice(own_rstd);
            }
            let affine = Affine { mean: &*mean, rstd: &*rstd, weight: &*weight, bias: &*bias };
            let y = &mut c.y[0][row * s.len..][..s.len];
            for (number, (x, y)) in x.chunks(block).zip(y.chunks_mut(block)).enumerate() {
                with_activation!(self.act, f => channels::normalise::<R, L, _>(f, affine, x, y));
                if let Some(sigma) = self.noise {
                    let sigma = R::of(f64::from(sigma));
                    noise::add::<R, L>(c.draws, c.first_row + row, number * block, sigma, y);
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let s = self.sizes(c.types);
        let [mean, rstd, weight, bias] = [(); 4].map(|()| c.room.take(Scratch::real(s.row_len)).real);
        let [sum, product, slope, offset] = [(); 4].map(|()| c.room.take(Scratch::real(s.row_len)).real);
        affine(&s, c.x[1], c.x[2], [&mut *weight, &mut *bias]);
        let block = channels::block_len::<R>(s.row_len);
        let unwanted = c.room.take(Scratch::real(block)).real;
        let (wanted, per_group) = (!c.dx[0].is_empty(), s.channels / s.groups);
        for row in 0..c.rows {
            let x = &c.x[0][row * s.len..][..s.len];
            let dy = &c.dy[0][row * s.len..][..s.len];
            spread(&s, &c.y[1][row * s.groups..][..s.groups], mean);
            spread(&s, &c.y[2][row * s.groups..][..s.groups], rstd);
            sum.fill(R::default());
            product.fill(R::default());
            let coefficients = Affine { mean: &*mean, rstd: &*rstd, weight: &*weight, bias: &*bias };
            for at in (0..s.len).step_by(block) {
                let end = (at + block).min(s.len);
                let dx = if wanted { &mut c.dx[0][row * s.len..][at..end] } else { &mut unwanted[..end - at] };
                let (x, dy) = (&x[at..end], &dy[at..end]);
                with_activation!(self.act, f => {
                    channels::denormalise::<R, L, _>(f, coefficients, x, dy, dx, sum, product);
                });
            }
            channels::gather(sum, s.channels);
            channels::gather(product, s.channels);
            for (to, from) in [(1, &product[..s.channels]), (2, &sum[..s.channels])] {
                if self.affine && !c.dx[to].is_empty() {
                    c.dx[to].iter_mut().zip(from).for_each(|(to, from)| *to += *from);
                }
            }
            if !wanted {
                continue;
            }
            // dx = rstd·(w·dz − mean(w·dz) − x̂·mean(w·dz·x̂)), of which the first term is there.
            let scale = R::of(1.0 / s.together as f64);
            for group in 0..s.groups {
                let (mut first, mut second) = (R::default(), R::default());
                for c in group * per_group..(group + 1) * per_group {
                    first += weight[c] * sum[c];
                    second += weight[c] * product[c];
                }
                for c in group * per_group..(group + 1) * per_group {
                    offset[c] = -(rstd[c] * first * scale);
                    slope[c] = -(rstd[c] * rstd[c] * second * scale);
                }
            }
            channels::repeat(offset, s.channels);
            channels::repeat(slope, s.channels);
            channels::add_linear::<R, L>(x, mean, slope, offset, true, &mut c.dx[0][row * s.len..][..s.len]);
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for act in [Act::Identity, Act::Tanh, Act::Sigmoid, Act::Gelu, Act::Silu] {
            let (h, w, c) = (random.size(2, 5), random.size(1, 9), random.size(1, 40));
            let op = Self { groups: 0, eps: 1e-2, affine: true, act, noise: None };
            let n = [whole([c]), whole([c])];
            cases.push(case(op, [rows([h, w, c]), n[0].clone(), n[1].clone()]).rows(4));
            let c = 4 * random.size(1, 50);
            let op = Self { groups: 4, affine: false, ..op };
            cases.push(case(op, [rows([h, w, c])]).rows(4));
        }
        let op = Self { groups: 1, eps: 1e-2, affine: true, act: Act::Gelu, noise: None };
        cases.push(case(op, [rows([24]), whole([24]), whole([24])]));
        cases
    }
}

/// Statistics have no gradient, so only y is looked at.
fn case(op: GroupNorm, inputs: impl Into<Vec<Given>>) -> Case {
    Case::build(format!("{op:?}"), inputs, move |g, x| Ok(vec![g.apply("", op, x)?]))
}

/// What a norm does besides normalising.
#[derive(Clone, Copy, Debug)]
pub struct NormOptions {
    /// Added to variances.
    pub eps: f32,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Applied to the result.
    pub act: Act,
    /// Standard deviation of Gaussian noise that is added after the activation, in training and in inference.
    pub noise: Option<f32>,
}

impl Default for NormOptions {
    /// PyTorch's: 1e-5, affine, nothing else.
    fn default() -> Self {
        Self { eps: 1e-5, affine: true, act: Act::Identity, noise: None }
    }
}

impl Graph {
    /// Group norm of `[B, …, C]` with parameters `<name>.weight` and `<name>.bias`.
    pub fn group_norm(&mut self, name: &str, x: Node, groups: usize, options: NormOptions) -> Result<Node> {
        let NormOptions { eps, affine, act, noise } = options;
        let op = GroupNorm { groups: groups.max(1), eps, affine, act, noise };
        self.any_group_norm(name, x, op)
    }

    /// Instance norm of `[B, H, W, C]`: every channel of every sample by itself.
    pub fn instance_norm(&mut self, name: &str, x: Node, options: NormOptions) -> Result<Node> {
        let NormOptions { eps, affine, act, noise } = options;
        self.any_group_norm(name, x, GroupNorm { groups: 0, eps, affine, act, noise })
    }

    fn any_group_norm(&mut self, name: &str, x: Node, op: GroupNorm) -> Result<Node> {
        let channels = self.features(name, x)?;
        let mut inputs = vec![x];
        if op.affine {
            inputs.push(self.param(&format!("{name}.weight"), [channels], Init::Ones));
            inputs.push(self.param(&format!("{name}.bias"), [channels], Init::Zeros));
        }
        self.apply(name, op, &inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Plan};

    /// Noise is that of [`noise::add`], whatever the tiles; and it differs from run to run.
    #[test]
    fn noise_is_added_after_the_activation() {
        let outputs = |noise, tile_rows| {
            let mut g = Graph::new();
            let x = g.input("x", [5, 3, 7]);
            let options = NormOptions { act: Act::Gelu, noise, ..NormOptions::default() };
            let y = g.instance_norm("norm", x, options).unwrap();
            let params = g.params(0).unwrap();
            let options = Options { tile_rows, seed: 5, ..Options::default() };
            let mut plan = Plan::inference(&g, &[y], 4, &options).unwrap();
            let feed: Vec<f32> = (0..4 * 105).map(|i| ((i * 37 % 101) as f32) / 50.0).collect();
            [0, 1].map(|_| {
                plan.forward(&params, 4, &[(&feed[..]).into()]);
                plan.output(y).to_vec()
            })
        };
        let [plain, _] = outputs(None, None);
        let [first, second] = outputs(Some(0.5), None);
        assert_eq!(outputs(Some(0.5), Some(1))[0], first);
        assert_ne!(first, second);
        let variance: f32 = first.iter().zip(&plain).map(|(a, b)| (a - b) * (a - b)).sum::<f32>() / 420.0;
        assert!((variance / 0.25 - 1.0).abs() < 0.35, "{variance}");
    }
}
