//! Normalisation over the last axis (Ba, Kiros & Hinton, "Layer normalization", 2016), with an activation at its end.

use crate::cuda::{Launch, Text, Twin, act_number, collapse};
use operant_base::Result;
use operant_lanes::{Float, Vectors};
use crate::check::{Case, Given, Random, rows, whole};
use crate::elementwise::{Ternary, Unary, sum, with_activation};
use crate::op::{Act, Backward, Forward, Kind, Needs, Op, Type, Types};
use crate::real::{Compute, Real, Scratch};
use crate::{Graph, Init, Node};

/// Inputs: x `[B, …, F]`, and with `affine` a weight `[F]` and a bias `[F]`. Outputs: y, and means and one over standard
/// deviations of each row of F, which have no gradient.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// Added to variances.
    pub eps: f32,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Applied to the result.
    pub act: Act,
}

/// Σ (x − mean)².
#[inline(always)]
fn squares<R: Real, L: Vectors<R>>(x: &[R], mean: R) -> R {
    let centre = L::splat(mean);
    let mut sums = [L::F::from(0.0); 2];
    let whole = x.len() / L::LANES * L::LANES;
    for (i, at) in (0..whole).step_by(L::LANES).enumerate() {
        let d = L::read(&x[at..]) - centre;
        sums[i % 2] = d.mul_add(d, sums[i % 2]);
    }
    let mut total = L::sum(sums[0] + sums[1]);
    for &x in &x[whole..] {
        total += (x - mean) * (x - mean);
    }
    total
}

/// Coefficients of one row.
#[derive(Clone, Copy)]
struct Row<'a, R> {
    mean: R,
    rstd: R,
    weight: &'a [R],
    bias: &'a [R],
}

#[inline(always)]
fn read<R: Real, L: Vectors<R>>(x: &[R], at: usize, width: usize) -> L::F {
    if width == L::LANES { L::read(&x[at..]) } else { L::read_part(&x[at..at + width]) }
}

#[inline(always)]
fn write<R: Real, L: Vectors<R>>(value: L::F, x: &mut [R], at: usize, width: usize) {
    if width == L::LANES { L::write(value, &mut x[at..]) } else { L::write_part(value, &mut x[at..at + width]) }
}

/// `y = f((x − mean)·rstd·weight + bias)`.
#[inline(always)]
fn normalise<R: Real, L: Vectors<R>, F: Unary>(f: F, row: Row<R>, x: &[R], y: &mut [R]) {
    let (mean, rstd) = (L::splat(row.mean), L::splat(row.rstd));
    let mut at = 0;
    while at < x.len() {
        let width = L::LANES.min(x.len() - at);
        let scaled = (read::<R, L>(x, at, width) - mean) * rstd;
        let z = scaled.mul_add(read::<R, L>(row.weight, at, width), read::<R, L>(row.bias, at, width));
        write::<R, L>(f.apply::<L>(z), y, at, width);
        at += width;
    }
}

/// With `dz = dy·f′`: `dx = dz·weight`, `d_weight += dz·x̂`, `d_bias += dz`; gives Σ dx and Σ dx·x̂.
#[inline(always)]
fn denormalise<R: Real, L: Vectors<R>, F: Unary + Ternary>(
    f: F,
    row: Row<R>,
    x: &[R],
    dy: &[R],
    dx: &mut [R],
    d_weight: &mut [R],
    d_bias: &mut [R],
) -> [R; 2] {
    let (mean, rstd) = (L::splat(row.mean), L::splat(row.rstd));
    let (mut first, mut second) = (L::F::from(0.0), L::F::from(0.0));
    let mut at = 0;
    while at < x.len() {
        let width = L::LANES.min(x.len() - at);
        let scaled = (read::<R, L>(x, at, width) - mean) * rstd;
        let weight = read::<R, L>(row.weight, at, width);
        let z = scaled.mul_add(weight, read::<R, L>(row.bias, at, width));
        // Lanes beyond the end have dy = 0, and so add nothing.
        let dz = Ternary::apply::<L>(f, z, Unary::apply::<L>(f, z), read::<R, L>(dy, at, width));
        write::<R, L>(dz.mul_add(scaled, read::<R, L>(d_weight, at, width)), d_weight, at, width);
        write::<R, L>(read::<R, L>(d_bias, at, width) + dz, d_bias, at, width);
        let dz = dz * weight;
        first = first + dz;
        second = dz.mul_add(scaled, second);
        write::<R, L>(dz, dx, at, width);
        at += width;
    }
    [L::sum(first), L::sum(second)]
}

/// `dx = rstd·(dx − first − x̂·second)`.
#[inline(always)]
fn finish<R: Real, L: Vectors<R>>(row: Row<R>, first: R, second: R, x: &[R], dx: &mut [R]) {
    let (mean, rstd) = (L::splat(row.mean), L::splat(row.rstd));
    let (first, second) = (L::splat(first), L::splat(second));
    let mut at = 0;
    while at < x.len() {
        let width = L::LANES.min(x.len() - at);
        let scaled = (read::<R, L>(x, at, width) - mean) * rstd;
        let value = (read::<R, L>(dx, at, width) - first - scaled * second) * rstd;
        write::<R, L>(value, dx, at, width);
        at += width;
    }
}

fn features(types: &Types) -> usize {
    types.x[0].shape[types.x[0].shape.len() - 1]
}

impl Op for LayerNorm {
    const NAME: &'static str = "layer norm";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = if self.affine { 3 } else { 1 };
        if x.len() != wanted {
            return Err(format!("{} inputs, wanted {wanted}", x.len()));
        }
        let (Kind::Rows, Some((&features, places)), false) = (x[0].kind, x[0].shape.split_last(), x[0].is_empty())
        else {
            return Err("wanted [B, …, features]".into());
        };
        if x[1..].iter().any(|x| x.shape != [features]) {
            return Err(format!("wanted a weight [{features}] and a bias [{features}]"));
        }
        let places = Type::rows(if places.is_empty() { &[1] } else { places });
        Ok(vec![x[0].clone(), places.clone(), places])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 1, outputs: 0b110 }
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(5 * features(types))
    }

    fn fuse(&self, act: Act, _: bool) -> Option<Self> {
        (self.act == Act::Identity).then_some(Self { act, ..*self })
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        /// Places whose share of the gradients of weight and bias one block adds up.
        const CHUNK: usize = 256;
        let (channels, places) = (features(types), types.y[1].len());
        let numbers = [places, channels, 1, usize::from(self.affine), act_number(self.act), CHUNK];
        let one = |kernel| Launch::warps(Text::Norm, kernel, rows * places).numbers(numbers).factors([self.eps]);
        let parts = (rows * places).div_ceil(CHUNK);
        let mut backward = vec![one("layer_norm_backward").makes(1)];
        if self.affine {
            let weight = Launch::blocks(Text::Norm, "layer_norm_weight", parts).numbers(numbers).makes(0b110);
            backward.extend([weight, collapse(2 * channels, [places, CHUNK], [1, 2], channels)]);
        }
        Some(Twin::new([one("layer_norm_forward")], backward).scratch(parts * 2 * channels))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let n = features(c.types);
        let [ones, zeros] = [(); 2].map(|()| c.room.take(Scratch::real(n)).real);
        ones.fill(R::of(1.0));
        zeros.fill(R::default());
        let (weight, bias): (&[R], &[R]) = if self.affine { (c.x[1], c.x[2]) } else { (ones, zeros) };
        let (scale, eps) = (R::of(1.0 / n as f64), R::of(f64::from(self.eps)));
        let [y, means, rstds, _] = &mut c.y;
        for (i, (x, y)) in c.x[0].chunks_exact(n).zip(y.chunks_exact_mut(n)).enumerate() {
            let mean = sum::<R, L>(x) * scale;
            let rstd = R::of(1.0) / (squares::<R, L>(x, mean) * scale + eps).root();
            if !means.is_empty() {
                (means[i], rstds[i]) = (mean, rstd);
            }
            let row = Row { mean, rstd, weight, bias };
            with_activation!(self.act, f => normalise::<R, L, _>(f, row, x, y));
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let n = features(c.types);
        let [ones, zeros, d_weight, d_bias, unwanted] = [(); 5].map(|()| c.room.take(Scratch::real(n)).real);
        ones.fill(R::of(1.0));
        zeros.fill(R::default());
        d_weight.fill(R::default());
        d_bias.fill(R::default());
        let (weight, bias): (&[R], &[R]) = if self.affine { (c.x[1], c.x[2]) } else { (ones, zeros) };
        let scale = R::of(1.0 / n as f64);
        let wanted = !c.dx[0].is_empty();
        for (i, (x, dy)) in c.x[0].chunks_exact(n).zip(c.dy[0].chunks_exact(n)).enumerate() {
            let row = Row { mean: c.y[1][i], rstd: c.y[2][i], weight, bias };
            let dx = if wanted { &mut c.dx[0][i * n..][..n] } else { &mut unwanted[..] };
            let [first, second] = with_activation!(self.act, f => {
                denormalise::<R, L, _>(f, row, x, dy, dx, d_weight, d_bias)
            });
            finish::<R, L>(row, first * scale, second * scale, x, dx);
        }
        for (to, from) in [(1, d_weight), (2, d_bias)] {
            if self.affine && !c.dx[to].is_empty() {
                c.dx[to].iter_mut().zip(from).for_each(|(to, from)| *to += *from);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for act in [Act::Identity, Act::Tanh, Act::Sigmoid, Act::Gelu, Act::Silu] {
            let (t, n) = (random.size(1, 4), random.size(2, 70));
            let op = Self { eps: 1e-2, affine: true, act };
            cases.push(case(op, [rows([n]), whole([n]), whole([n])]));
            cases.push(case(Self { affine: false, ..op }, [rows([t, n])]));
        }
        cases
    }
}

/// Statistics have no gradient, so only y is looked at.
fn case(op: LayerNorm, inputs: impl Into<Vec<Given>>) -> Case {
    Case::build(format!("{op:?}"), inputs, move |g, x| Ok(vec![g.apply("", op, x)?]))
}

impl Graph {
    /// Layer norm over the last axis with parameters `<name>.weight` and `<name>.bias`, and PyTorch's eps of 1e-5.
    pub fn layer_norm(&mut self, name: &str, x: Node) -> Result<Node> {
        self.layer_norm_with(name, x, 1e-5, true)
    }

    /// Layer norm over the last axis, without parameters unless `affine`.
    pub fn layer_norm_with(&mut self, name: &str, x: Node, eps: f32, affine: bool) -> Result<Node> {
        let features = self.features(name, x)?;
        let mut inputs = vec![x];
        if affine {
            inputs.push(self.param(&format!("{name}.weight"), [features], Init::Ones));
            inputs.push(self.param(&format!("{name}.bias"), [features], Init::Zeros));
        }
        self.apply(name, LayerNorm { eps, affine, act: Act::Identity }, &inputs)
    }
}
