//! Noise whose numbers are a function of (key, realisation, time, layer, element) and of nothing else: rows carry their own
//! coordinates, so a row has the same noise in any batch, at any place in it, on any thread.
//!
//! Correlated noise is drawn by its Fourier modes: a white field seen in an orthonormal basis is white, so filtering it by
//! exp(−k²l²/2) is drawing one normal per mode that the filter leaves, and a product with the basis on each axis.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, fixed, ints, rows};
use super::super::elementwise::{Binary, Unary, map_in_place, map2, update};
use super::super::noise;
use super::super::op::{Backward, Draws, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Real, Room, Scratch};
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::rng::key;
use operant_lanes::{Float, Int, Lanes, Vectors, select};
use std::sync::Arc;

/// Integers of a row: low and high half of its key, realisation, time.
pub const KEY_WORDS: usize = 4;
/// Elements that pass through scratch at once; whole blocks of [`noise::add`].
const CHUNK: usize = 2048;
/// A filter's gain below which a mode is left out, relative to the mean.
const LEAST_GAIN: f64 = 1e-6;
/// Most that is dropped.
const MOST_DROPPED: f32 = 0.9;

/// What noise does to x; s is the row's scale, ε has unit scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoiseLaw {
    /// x + s·ε, ε standard normal.
    Gaussian,
    /// x + s·ε, ε Laplace with density e^−|ε|/2.
    Laplace,
    /// x is 0 with probability s (at most 0.9) and else grows by 1/(1 − s): whole channels, or with a correlation length
    /// patches of that size.
    Drop,
    /// x·(1 + s·ε), ε standard normal.
    Multiplicative,
}

impl NoiseLaw {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gaussian, Self::Laplace, Self::Drop, Self::Multiplicative];

    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gaussian => "gaussian",
            Self::Laplace => "laplace",
            Self::Drop => "dropout",
            Self::Multiplicative => "multiplicative",
        }
    }

    /// What a normal number must reach so that x stays, and what x grows by then, for dropout with probability s.
    pub fn dropping(s: f32) -> [f32; 2] {
        let DropBelow { threshold, scale } = DropBelow::new(s);
        [threshold, scale]
    }
}

/// Real Fourier modes of one axis times the filter's gains, `[modes, n]`: unit variance at every place.
fn basis(n: usize, length: f64) -> Vec<f32> {
    let gain = |m: usize| (-(std::f64::consts::TAU * m as f64 / n as f64 * length).powi(2) / 2.0).exp();
    let mut kept: Vec<(usize, bool)> = Vec::new();
    let mut total = 0.0;
    for m in 0..=n / 2 {
        // The constant and the fastest mode have no sine.
        let single = m == 0 || 2 * m == n;
        total += gain(m) * gain(m) * if single { 1.0 } else { 2.0 };
        if gain(m) > LEAST_GAIN {
            kept.push((m, false));
            kept.extend((!single).then_some((m, true)));
        }
    }
    let mut out = Vec::with_capacity(kept.len() * n);
    for (m, sine) in kept {
        let single = m == 0 || 2 * m == n;
        let size = gain(m) / total.sqrt() * if single { 1.0 } else { std::f64::consts::SQRT_2 };
        for x in 0..n {
            // The angle is reduced first, so that no digits are lost.
            let angle = std::f64::consts::TAU * ((m * x) % n) as f64 / n as f64;
            out.push((size * if sine { angle.sin() } else { angle.cos() }) as f32);
        }
    }
    out
}

/// Inputs: x `[B, H, W, C]`, integers `[B, 4]` (see [`KEY_WORDS`]), scales `[B, 1]`.
#[derive(Clone, Debug)]
pub struct KeyedNoise {
    law: NoiseLaw,
    layer: u32,
    /// Of both axes; none for white noise.
    modes: Option<Arc<[Vec<f32>; 2]>>,
}

impl KeyedNoise {
    /// Noise of images `[H, W]` with the correlation length of exp(−k²l²/2), in pixels; white noise if that is 0.
    pub fn new(law: NoiseLaw, layer: u32, [height, width]: [usize; 2], length: f32) -> Self {
        let length = f64::from(length);
        let modes = (length > 0.0).then(|| Arc::new([basis(height, length), basis(width, length)]));
        Self { law, layer, modes }
    }

    /// Modes times gains of both axes, `[modes, n]` each; none for white noise.
    pub fn modes(&self) -> Option<&[Vec<f32>; 2]> {
        self.modes.as_deref()
    }

    /// What it does.
    pub(super) fn law(&self) -> NoiseLaw {
        self.law
    }

    /// Tells the ops of a network apart.
    pub(super) fn layer(&self) -> u32 {
        self.layer
    }

    pub(super) fn sizes(types: &Types) -> [usize; 3] {
        let [h, w, c] = types.x[0].shape[..] else { unreachable!("shapes were checked") };
        [h, w, c]
    }

    /// Products times two of images `[H, W, C]`.
    pub fn products(&self, sizes: [usize; 3]) -> u64 {
        let ([rows, columns], [h, w, c]) = (self.counts(sizes), sizes);
        2 * (h * c * columns * (rows + w)) as u64
    }

    /// Modes of both axes, or 0.
    fn counts(&self, [h, w, _]: [usize; 3]) -> [usize; 2] {
        self.modes.as_ref().map_or([0, 0], |modes| [modes[0].len() / h, modes[1].len() / w])
    }
}

#[derive(Clone, Copy)]
struct AddScaled(f32);
impl Binary for AddScaled {
    #[inline(always)]
    fn apply<L: Lanes>(self, y: L::F, x: L::F) -> L::F {
        x.mul_add(self.0, y)
    }
}

#[derive(Clone, Copy)]
struct Multiply(f32);
impl Binary for Multiply {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F, normal: L::F) -> L::F {
        x * normal.mul_add(self.0, 1.0)
    }
}

#[derive(Clone, Copy)]
struct DropBelow {
    threshold: f32,
    scale: f32,
}
impl Binary for DropBelow {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F, normal: L::F) -> L::F {
        select(normal.lt(self.threshold), 0.0, x * self.scale)
    }
}

impl DropBelow {
    fn new(scale: f32) -> Self {
        let p = scale.clamp(0.0, MOST_DROPPED);
        let threshold = if p > 0.0 { quantile(f64::from(p)) as f32 } else { f32::NEG_INFINITY };
        Self { threshold, scale: 1.0 / (1.0 - p) }
    }
}

/// The Laplace number at the place in its distribution that a normal number has in its own: sign(z)·(−ln 2Q(|z|)). The tail
/// 2Q(z) = erfc(z/√2) is t·exp(−z²/2 + P(t)), t = 1/(1 + z/√8), within 1.2e-7 (Press et al., "Numerical Recipes", erfcc).
#[derive(Clone, Copy)]
struct ToLaplace;
impl Unary for ToLaplace {
    #[inline(always)]
    fn apply<L: Lanes>(self, z: L::F) -> L::F {
        let x = z.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = L::F::from(1.0) / x.mul_add(0.5, 1.0);
        let p = t.mul_add(0.170_872_76, -0.822_152_26).mul_add(t, 1.488_515_9).mul_add(t, -1.135_204);
        let p = p.mul_add(t, 0.278_868_08).mul_add(t, -0.186_288_06).mul_add(t, 0.096_784_18);
        let p = p.mul_add(t, 0.374_091_95).mul_add(t, 1.000_023_7).mul_add(t, -1.265_512_2);
        // Rounding may leave the middle a little below 0.
        let size = (x.mul_add(x, -p) - t.log()).max(0.0);
        select(z.lt(0.0), -size, size)
    }
}

/// The standard normal's quantile (Acklam, "An algorithm for computing the inverse normal cumulative distribution
/// function", 2003), relative error below 1.2e-9.
fn quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -39.69683028665376,
        220.9460984245205,
        -275.9285104469687,
        138.357751867269,
        -30.66479806614716,
        2.506628277459239,
    ];
    const B: [f64; 5] = [
        -54.47609879822406,
        161.5858368580409,
        -155.6989798598866,
        66.80131188771972,
        -13.28068155288572,
    ];
    const C: [f64; 6] = [
        -0.007784894002430293,
        -0.3223964580411365,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] =
        [0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416];
    let horner = |c: &[f64], x: f64| c.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |p: f64| {
        let q = (-2.0 * p.ln()).sqrt();
        horner(&C, q) / (horner(&D, q) * q + 1.0)
    };
    if p < 0.02425 {
        tail(p)
    } else if p > 1.0 - 0.02425 {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        let r = q * q;
        horner(&A, r) * q / (horner(&B, r) * r + 1.0)
    }
}

/// What a row draws from: its stream and its realisation.
#[inline(always)]
pub(super) fn stream(words: &[i32], layer: u32) -> (Draws, usize) {
    let seed = u64::from(words[0] as u32) | u64::from(words[1] as u32) << 32;
    (Draws { seed, run: words[3] as u32, node: layer }, words[2] as u32 as usize)
}

/// What a row is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// y from x.
    Noisy,
    /// The gradient of x from that of y.
    Gradient,
    /// The normals alone, as y.
    Noise,
}

/// `y = f(x, z)` by the law, for x of the same elements as the normals z.
#[inline(always)]
fn apply<R: Real, L: Vectors<R>>(law: NoiseLaw, scale: f32, asked: Asked, z: &mut [R], x: &[R], y: &mut [R]) {
    match law {
        _ if asked == Asked::Noise => y.copy_from_slice(z),
        NoiseLaw::Gaussian | NoiseLaw::Laplace if asked == Asked::Gradient => y.copy_from_slice(x),
        NoiseLaw::Gaussian => {
            y.copy_from_slice(x);
            update::<R, L, _>(AddScaled(scale), z, y);
        }
        NoiseLaw::Laplace => {
            map_in_place::<R, L, _>(ToLaplace, z);
            y.copy_from_slice(x);
            update::<R, L, _>(AddScaled(scale), z, y);
        }
        NoiseLaw::Multiplicative => map2::<R, L, _>(Multiply(scale), x, z, y),
        NoiseLaw::Drop => map2::<R, L, _>(DropBelow::new(scale), x, z, y),
    }
}

/// One row.
#[inline(always)]
pub(super) fn row<R: Real, L: Vectors<R>>(
    op: &KeyedNoise,
    sizes: [usize; 3],
    ((draws, realisation), scale): ((Draws, usize), f32),
    asked: Asked,
    x: &[R],
    y: &mut [R],
    mut room: Room<R>,
) {
    let [h, w, c] = sizes;
    let one = R::of(1.0);
    if let Some(modes) = &op.modes {
        let [rows, columns] = op.counts(sizes);
        let drawn = room.take(Scratch::real(rows * columns * c)).real;
        let across = room.take(Scratch::real(columns * c)).real;
        let line = room.take(Scratch::real(w * c)).real;
        drawn.fill(R::default());
        noise::add::<R, L>(draws, realisation, 0, one, drawn);
        for i in 0..h {
            across.fill(R::default());
            for r in 0..rows {
                update::<R, L, _>(AddScaled(modes[0][r * h + i]), &drawn[r * columns * c..][..columns * c], across);
            }
            line.fill(R::default());
            for j in 0..w {
                let pixel = &mut line[j * c..][..c];
                for r in 0..columns {
                    update::<R, L, _>(AddScaled(modes[1][r * w + j]), &across[r * c..][..c], pixel);
                }
            }
            let at = i * w * c..(i + 1) * w * c;
            apply::<R, L>(op.law, scale, asked, line, &x[at.clone()], &mut y[at]);
        }
    } else if op.law == NoiseLaw::Drop {
        let channels = room.take(Scratch::real(c)).real;
        channels.fill(R::default());
        noise::add::<R, L>(draws, realisation, 0, one, channels);
        for (x, y) in x.chunks_exact(c).zip(y.chunks_exact_mut(c)) {
            apply::<R, L>(op.law, scale, asked, channels, x, y);
        }
    } else {
        let z = room.take(Scratch::real(CHUNK)).real;
        for (number, (x, y)) in x.chunks(CHUNK).zip(y.chunks_mut(CHUNK)).enumerate() {
            let z = &mut z[..x.len()];
            z.fill(R::default());
            noise::add::<R, L>(draws, realisation, number * CHUNK, one, z);
            apply::<R, L>(op.law, scale, asked, z, x, y);
        }
    }
}

impl Op for KeyedNoise {
    const NAME: &'static str = "keyed noise";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x, keys, scale]
                if x.kind == Kind::Rows
                    && x.shape.len() == 3
                    && keys == &Type::ints([KEY_WORDS])
                    && scale == &Type::rows([1]) =>
            {
                let fits = self.modes.as_ref().is_none_or(|modes| {
                    modes[0].len().is_multiple_of(x.shape[0]) && modes[1].len().is_multiple_of(x.shape[1])
                });
                if fits { Ok(vec![x.clone()]) } else { Err("modes of images of another size".into()) }
            }
            _ => Err("wanted images [B, H, W, C], integers [B, 4] and scales [B, 1]".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 0b110, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn flops(&self, types: &Types) -> u64 {
        self.products(Self::sizes(types))
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        let sizes = Self::sizes(types);
        let ([rows, columns], [_, w, c]) = (self.counts(sizes), sizes);
        Scratch::real((rows * columns * c + columns * c + w * c).max(CHUNK).max(c))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (sizes, len) = (Self::sizes(c.types), c.types.x[0].len());
        for i in 0..c.rows {
            let from = stream(&c.ints[1][i * KEY_WORDS..][..KEY_WORDS], self.layer);
            let scale = c.x[2][i].wide() as f32;
            let (x, y) = (&c.x[0][i * len..][..len], &mut c.y[0][i * len..][..len]);
            row::<R, L>(self, sizes, (from, scale), Asked::Noisy, x, y, c.room.again());
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (sizes, len) = (Self::sizes(c.types), c.types.x[0].len());
        for i in 0..c.rows {
            let from = stream(&c.ints[1][i * KEY_WORDS..][..KEY_WORDS], self.layer);
            let scale = c.x[2][i].wide() as f32;
            let (x, y) = (&c.dy[0][i * len..][..len], &mut c.dx[0][i * len..][..len]);
            row::<R, L>(self, sizes, (from, scale), Asked::Gradient, x, y, c.room.again());
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for law in NoiseLaw::ALL {
            for length in [0.0, 0.8] {
                // A correlated number may lie on either side of a threshold in f32 and in f64.
                if law == NoiseLaw::Drop && length > 0.0 {
                    continue;
                }
                let [h, w, c] = [random.size(2, 6), random.size(2, 6), random.size(1, 20)];
                let op = Self::new(law, 3, [h, w], length);
                cases.push(Case::op(op, [rows([h, w, c]), ints([KEY_WORDS], 9), fixed(rows([1]))]).tolerance(2e-5));
            }
        }
        cases
    }
}

/// Every element is 0 with probability `p`, in every run, and the others grow by 1/(1 − p). Inputs: x and integers `[B, 4]`
/// (see [`KEY_WORDS`]).
#[derive(Clone, Copy, Debug)]
pub struct KeyedDropout {
    /// Probability of 0, to a 65,536th; below 1.
    pub p: f32,
    /// Tells the ops of a network apart.
    pub layer: u32,
}

/// Elements that share counters: sixteen counters of four words of two halves.
const DROP_BLOCK: usize = 128;
const COUNTERS: usize = 16;
const PLACES: [i32; COUNTERS] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[inline(always)]
fn keep_or_drop<R: Real, L: Vectors<R>>(kept: L::M, scale: f32, x: &[R], y: &mut [R]) {
    if y.len() >= L::LANES {
        L::write(select(kept, L::read(x) * scale, 0.0), y);
    } else {
        L::write_part(select(kept, L::read_part(x) * scale, 0.0), y);
    }
}

impl KeyedDropout {
    /// Dropped of 65,536.
    fn dropped(&self) -> i32 {
        (self.p * 65_536.0).round() as i32
    }

    #[inline(always)]
    fn row<R: Real, L: Vectors<R>>(&self, (draws, realisation): (Draws, usize), x: &[R], y: &mut [R]) {
        let dropped = self.dropped();
        let scale = 65_536.0 / (65_536 - dropped) as f32;
        let fixed = [realisation as i32, draws.run as i32, draws.node as i32].map(L::I::from);
        let key = key::<L::I>(draws.seed);
        for (number, (x, y)) in x.chunks(DROP_BLOCK).zip(y.chunks_mut(DROP_BLOCK)).enumerate() {
            for lane in (0..COUNTERS).step_by(L::LANES) {
                let counter = L::read_ints(&PLACES[lane..]) + (number * COUNTERS) as i32;
                let words = L::I::philox([counter, fixed[0], fixed[1], fixed[2]], key);
                for (i, word) in words.into_iter().enumerate() {
                    for (half, bits) in [word & 0xffff, word.shr(16)].into_iter().enumerate() {
                        let at = (2 * i + half) * COUNTERS + lane;
                        if at < y.len() {
                            let end = (at + L::LANES).min(y.len());
                            keep_or_drop::<R, L>(bits.ge(dropped), scale, &x[at..end], &mut y[at..end]);
                        }
                    }
                }
            }
        }
    }
}

impl Op for KeyedDropout {
    const NAME: &'static str = "keyed dropout";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            _ if !(0.0..1.0).contains(&self.p) || self.dropped() > 65_535 => {
                Err(format!("probability {}, wanted 0 <= p < 1", self.p))
            }
            [x, keys] if x.kind == Kind::Rows && keys == &Type::ints([KEY_WORDS]) => Ok(vec![x.clone()]),
            _ => Err("wanted numbers [B, …] and integers [B, 4]".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 0b10, outputs: 0 }
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (len, dropped) = (types.x[0].len(), self.dropped());
        let numbers = [len, dropped as usize, self.layer as usize];
        let scale = 65_536.0 / (65_536 - dropped) as f32;
        let one = |kernel| Launch::each(Text::Elementwise, kernel, rows * len).numbers(numbers).factors([scale]);
        Some(Twin::new([one("keyed_dropout_forward")], [one("keyed_dropout_backward")]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let len = c.types.x[0].len();
        for i in 0..c.rows {
            let from = stream(&c.ints[1][i * KEY_WORDS..][..KEY_WORDS], self.layer);
            self.row::<R, L>(from, &c.x[0][i * len..][..len], &mut c.y[0][i * len..][..len]);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let len = c.types.x[0].len();
        for i in 0..c.rows {
            let from = stream(&c.ints[1][i * KEY_WORDS..][..KEY_WORDS], self.layer);
            self.row::<R, L>(from, &c.dy[0][i * len..][..len], &mut c.dx[0][i * len..][..len]);
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        vec![
            Case::op(Self { p: 0.3, layer: 1 }, [rows([random.size(1, 300)]), ints([KEY_WORDS], 9)]),
            Case::op(Self { p: 0.6, layer: 2 }, [rows([3, random.size(1, 9)]), ints([KEY_WORDS], 9)]),
        ]
    }
}

impl Graph {
    /// Noise by coordinates that rows carry themselves; `scale` is `[B, 1]`, `keys` are `[B, 4]`.
    pub fn keyed_noise(&mut self, x: Node, keys: Node, scale: Node, op: KeyedNoise) -> Result<Node> {
        self.apply("", op, &[x, keys, scale])
    }

    /// Dropout by coordinates that rows carry themselves, in every run; `keys` are `[B, 4]`.
    pub fn keyed_dropout(&mut self, x: Node, keys: Node, p: f32, layer: u32) -> Result<Node> {
        self.apply("", KeyedDropout { p, layer }, &[x, keys])
    }
}
