//! Gaussian noise behind a linear map instead of before it: W(x + sε) = Wx + s·Wε, and Wε is Gaussian with covariance WWᵀ, so it has
//! the law of Lε with LLᵀ = WWᵀ. There are as many ε to draw as outputs, not inputs.

use super::super::check::{Case, Random, fixed, ints, rows, whole};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Real, Scratch};
use super::super::{Graph, Node};
use super::keyed_noise::{Asked, KEY_WORDS, KeyedNoise, NoiseLaw, row, stream};
use operant_base::Result;
use operant_lanes::Vectors;

/// Most channels of what is mixed.
pub const MOST_MIXED: usize = 64;

/// The lower triangle L `[outputs, outputs]` with LLᵀ = WWᵀ (Cholesky), of W `[outputs, inputs]`, into zeros. A row that depends on
/// those before it has 0 on the diagonal.
pub fn noise_factor<R: Real>(weight: &[R], outputs: usize, l: &mut [f64]) {
    let inputs = weight.len() / outputs;
    let of = |i: usize| &weight[i * inputs..][..inputs];
    let product = |i: usize, j: usize| -> f64 { of(i).iter().zip(of(j)).map(|(a, b)| a.wide() * b.wide()).sum() };
    for j in 0..outputs {
        let square = product(j, j);
        let left = square - (0..j).map(|k| l[j * outputs + k] * l[j * outputs + k]).sum::<f64>();
        // What rounding leaves of nothing is nothing.
        if left <= square * 1e-12 {
            continue;
        }
        let root = left.sqrt();
        l[j * outputs + j] = root;
        for i in j + 1..outputs {
            let known: f64 = (0..j).map(|k| l[i * outputs + k] * l[j * outputs + k]).sum();
            l[i * outputs + j] = (product(i, j) - known) / root;
        }
    }
}

/// Inputs: x `[B, H, W, C]`, which a linear map made; integers `[B, 4]` (see [`KEY_WORDS`]); scales `[B, 1]`; that map's weight
/// `[C, …]`. Its noise is Gaussian.
#[derive(Clone, Debug)]
pub struct MixedNoise(pub KeyedNoise);

impl Op for MixedNoise {
    const NAME: &'static str = "mixed noise";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let wanted = || {
            format!("wanted Gaussian noise of at most {MOST_MIXED} channels, and the weight of the map that made x, [C, …]")
        };
        let Some((weight, others)) = x.split_last() else { return Err(wanted()) };
        let made = self.0.outputs(others)?;
        let fits = weight.kind == Kind::Whole && weight.shape.first() == others[0].shape.last();
        let few = weight.shape.first().is_some_and(|&channels| channels <= MOST_MIXED);
        if fits && few && self.0.law() == NoiseLaw::Gaussian { Ok(made) } else { Err(wanted()) }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn flops(&self, types: &Types) -> u64 {
        self.0.flops(types)
    }

    fn scratch<R: Real>(&self, types: &Types, rows: usize, compute: Compute) -> Scratch {
        self.0.scratch::<R>(types, rows, compute)
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (sizes, len) = (KeyedNoise::sizes(c.types), c.types.x[0].len());
        let channels = sizes[2];
        let mut factor = [0.0; MOST_MIXED * MOST_MIXED];
        noise_factor(c.x[3], channels, &mut factor);
        for i in 0..c.rows {
            let from = stream(&c.ints[1][i * KEY_WORDS..][..KEY_WORDS], self.0.layer());
            let scale = c.x[2][i].wide();
            let (x, y) = (&c.x[0][i * len..][..len], &mut c.y[0][i * len..][..len]);
            row::<R, L>(&self.0, sizes, (from, 1.0), Asked::Noise, x, y, c.room.again());
            for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
                // From the last on: each needs those before it as they were drawn.
                for k in (0..channels).rev() {
                    let terms = factor[k * channels..][..=k].iter().zip(&y[..=k]);
                    let sum: f64 = terms.map(|(l, z)| l * z.wide()).sum();
                    y[k] = R::of(x[k].wide() + scale * sum);
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        c.dx[0].copy_from_slice(c.dy[0]);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for length in [0.0, 0.8] {
            let [h, w, c] = [random.size(2, 6), random.size(2, 6), random.size(1, 5)];
            let op = Self(KeyedNoise::new(NoiseLaw::Gaussian, 3, [h, w], length));
            let weight = fixed(whole([c, random.size(1, 9)]));
            cases.push(Case::op(op, [rows([h, w, c]), ints([KEY_WORDS], 9), fixed(rows([1])), weight]).tolerance(2e-5));
        }
        cases
    }
}

impl Graph {
    /// Gaussian noise of what a linear map with `weight` `[C, …]` made, as if it had been added before that map, by coordinates that rows
    /// carry themselves; `scale` is `[B, 1]`, `keys` are `[B, 4]`.
    pub fn mixed_noise(&mut self, x: Node, keys: Node, scale: Node, weight: Node, noise: KeyedNoise) -> Result<Node> {
        self.apply("", MixedNoise(noise), &[x, keys, scale, weight])
    }
}
