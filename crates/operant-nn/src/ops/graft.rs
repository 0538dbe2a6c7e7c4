//! A slot of a host in a graph that holds every kind of seed: which one is heard, and how, are numbers and not the graph's shape.
//! See [`crate::grow`].

use super::super::check::{Case, Random, Values, distinct, fixed, rows, whole, with};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use super::Blend;
use operant_base::Result;
use operant_lanes::Vectors;
use crate::cuda::{Launch, THREADS, Text, Twin};

/// Inputs: host h; the seeds' input x, whose numbers are h's; a gate `[B, 1]`; two numbers without rows ([`Graft::control`]); then the
/// seeds' results, of which one is blended into h as [`Blend`] says, or none.
#[derive(Clone, Copy, Debug)]
pub struct Graft {
    /// Whether the result is the largest of every 2 × 2 pixels: images of `[H, W, C]`, both sides even. It is never there in full.
    pub pooled: bool,
    /// On a GPU, gradients of seeds that are not chosen are not written: who makes them is left out of that group.
    pub lazy: bool,
}

/// Choices that fit into a control number.
const CODES: f64 = 64.0;
/// Inputs before the seeds.
const BEFORE: usize = 4;

/// What a control says.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    alpha: f64,
    blend: Option<Blend>,
    seed: usize,
}

impl Graft {
    /// The two numbers for an α, a way of blending and the number of a seed among the inputs; or for none.
    pub fn control(chosen: Option<(f32, Blend, usize)>) -> [f32; 2] {
        let Some((alpha, blend, seed)) = chosen else { return [0.0, 0.0] };
        [alpha, ((1 + blend as usize + 4 * seed) as f64 / CODES + 0.5 / CODES) as f32]
    }

    fn chosen<R: Real>(types: &Types, control: &[R]) -> Chosen {
        let code = (control[1].wide() * CODES) as usize;
        let blend = [None, Some(Blend::Add), Some(Blend::Multiply), Some(Blend::Gate)][code % 4];
        Chosen { alpha: control[0].wide(), blend, seed: BEFORE + code / 4 % (types.x.len() - BEFORE) }
    }
}

impl Op for Graft {
    const NAME: &'static str = "graft";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let fits = x.len() > BEFORE
            && x[0].kind == Kind::Rows
            && x[1] == x[0]
            && x[2] == Type::rows([1])
            && x[3] == Type::whole([2])
            && x[BEFORE..].iter().all(|seed| *seed == x[0]);
        let halved = match x.first().map(|x| &x.shape[..]) {
            _ if !self.pooled => None,
            Some(&[h, w, c]) if h % 2 == 0 && w % 2 == 0 => Some(Type::rows([h / 2, w / 2, c])),
            _ => return Err("wanted images of even sides to pool".into()),
        };
        if fits { Ok(vec![halved.unwrap_or_else(|| x[0].clone())]) } else { Err("wanted host and seeds' input of one shape, a gate [B, 1], two numbers without rows, and seeds of that shape".into()) }
    }

    fn needs(&self, types: &Types) -> Needs {
        Needs { inputs: (1 << types.x.len()) - 1, outputs: 0 }
    }

    fn differentiable(&self, input: usize) -> bool {
        input != 3
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (len, shape) = (types.x[0].len(), &types.x[0].shape);
        let numbers = [len, types.x.len() - BEFORE, usize::from(self.lazy)];
        let channels = shape[shape.len() - 1];
        if self.pooled {
            let items = types.y[0].len();
            let of = |text, unit: usize| {
                // Threads of a row on the way back: as many as it has use for, whole warps.
                let wide = (items / unit).next_power_of_two().clamp(32, THREADS);
                let [seeds, lazy] = [numbers[1], numbers[2]];
                let numbers = [len / unit, seeds, lazy, shape[0] / 2, shape[1] / 2, channels / unit, wide];
                let forward = Launch::each(text, "graft_pool_forward", rows * items / unit);
                let backward = Launch::blocks(text, "graft_pool_backward", (rows * wide).div_ceil(THREADS));
                Twin::new([forward.numbers(numbers)], [backward.numbers(numbers)])
            };
            // Kernels of octets leave gradients of other seeds alone.
            let narrow = (self.lazy && channels.is_multiple_of(8)).then(|| of(Text::Narrow, 8));
            return Some(of(Text::Elementwise, 1).or_narrow(narrow));
        }
        let forward = Launch::each(Text::Elementwise, "graft_forward", rows * len).numbers(numbers);
        let backward = Launch::blocks(Text::Elementwise, "graft_backward", rows).numbers(numbers);
        let narrow = (self.lazy && len.is_multiple_of(8)).then(|| {
            let one = |kernel| Launch::blocks(Text::Narrow, kernel, rows).numbers(numbers);
            Twin::new([one("graft_forward")], [one("graft_backward")])
        });
        Some(Twin::new([forward], [backward]).or_narrow(narrow))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let n = c.types.x[0].len();
        let Chosen { alpha, blend, seed } = Self::chosen(c.types, c.x[3]);
        let blend = blend.filter(|_| alpha != 0.0);
        let of = |i: usize| blended(blend, alpha, c.x[0][i], c.x[seed][i], c.x[1][i], c.x[2][i / n]);
        for (i, y) in c.y[0].iter_mut().enumerate() {
            *y = match self.pooled {
                false => of(i),
                true => Window::new(c.types, i).largest(of).1,
            };
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let n = c.types.x[0].len();
        let Chosen { alpha, blend, seed } = Self::chosen(c.types, c.x[3]);
        let learned = R::of(if alpha == 0.0 { 1.0 } else { alpha });
        let whole = R::of(alpha);
        let heard = blend.filter(|_| alpha != 0.0);
        c.dx.iter_mut().for_each(|dx| dx.fill(R::default()));
        for (place, &dy) in c.dy[0].iter().enumerate() {
            let of = |i: usize| blended(heard, alpha, c.x[0][i], c.x[seed][i], c.x[1][i], c.x[2][i / n]);
            let i = if self.pooled { Window::new(c.types, place).largest(of).0 } else { place };
            let (h, s) = (c.x[0][i], c.x[seed][i]);
            let (keep, part, third) = match blend {
                None => (R::of(1.0), R::default(), R::default()),
                Some(Blend::Add) => (R::of(1.0) - whole, learned, R::default()),
                Some(Blend::Multiply) => {
                    let t = R::of((s - c.x[1][i]).wide().tanh());
                    let slope = h * (R::of(1.0) - t * t) * learned;
                    (t * whole + R::of(1.0), slope, slope * R::of(-1.0))
                }
                Some(Blend::Gate) => {
                    let gate = c.x[2][i / n];
                    (R::of(1.0) - whole * gate, learned * gate, (s - h) * learned)
                }
            };
            if let Some(to) = c.dx[0].get_mut(i) {
                *to = dy * keep;
            }
            if let Some(to) = c.dx[seed].get_mut(i) {
                *to = dy * part;
            }
            match blend {
                Some(Blend::Multiply) if !c.dx[1].is_empty() => c.dx[1][i] = dy * third,
                Some(Blend::Gate) if !c.dx[2].is_empty() => c.dx[2][i / n] += dy * third,
                _ => {}
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(1, 50);
        let control = || fixed(with(Values::Unit, whole([2])));
        let of = |seeds: usize, shape: &[usize], pooled: bool| {
            let one = || distinct(rows(shape.to_vec()));
            let mut inputs = vec![one(), one(), rows([1]), control()];
            inputs.extend((0..seeds).map(|_| one()));
            Case::op(Self { lazy: false, pooled }, inputs)
        };
        let image = [2 * random.size(1, 4), 2 * random.size(1, 4), random.size(1, 12)];
        let pooled = (1..=6).map(|seeds| of(seeds, &image, true));
        (1..=8).map(|seeds| of(seeds, &[n, 2], false)).chain(pooled).collect()
    }
}

/// A number of the result before it is pooled.
#[inline(always)]
fn blended<R: Real>(blend: Option<Blend>, alpha: f64, h: R, s: R, x: R, gate: R) -> R {
    match blend {
        None => h,
        Some(Blend::Add) => h + (s - h) * R::of(alpha),
        Some(Blend::Multiply) => h * (R::of((s - x).wide().tanh() * alpha) + R::of(1.0)),
        Some(Blend::Gate) => h + (s - h) * (R::of(alpha) * gate),
    }
}

/// Where the four pixels lie of which one is a number of the pooled result.
struct Window([usize; 4]);

impl Window {
    #[inline(always)]
    fn new(types: &Types, place: usize) -> Self {
        let &[_, w, channels] = &types.x[0].shape[..] else { unreachable!("shapes were checked") };
        let (pixel, channel) = (place / channels, place % channels);
        let first = ((pixel / (w / 2)) * 2 * w + pixel % (w / 2) * 2) * channels + channel;
        Self([first, first + channels, first + w * channels, first + (w + 1) * channels])
    }

    /// Where the first of the largest lies, and what it is.
    #[inline(always)]
    fn largest<R: Real>(&self, of: impl Fn(usize) -> R) -> (usize, R) {
        let mut most = (self.0[0], of(self.0[0]));
        for &at in &self.0[1..] {
            let value = of(at);
            if value.wide() > most.1.wide() || value.wide().is_nan() {
                most = (at, value);
            }
        }
        most
    }
}

/// Inputs: x with rows, and a number without: 1 where gradients go back through, 0 where they stop. The output is x.
#[derive(Clone, Copy, Debug)]
pub struct Valve;

impl Op for Valve {
    const NAME: &'static str = "valve";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x, open] if x.kind == Kind::Rows && *open == Type::whole([1]) => Ok(vec![x.clone()]),
            _ => Err("wanted an input with rows and one number without".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn differentiable(&self, input: usize) -> bool {
        input == 0
    }

    fn adds(&self) -> bool {
        true
    }

    fn passes(&self) -> bool {
        true
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let len = types.y[0].len();
        let narrow = Twin::octets("valve", rows, [0, len]);
        Some(Twin::each("valve", rows * len, [0, len], [0.0]).or_narrow(narrow))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        c.y[0].copy_from_slice(c.x[0]);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let open = c.x[1][0];
        for (dx, &dy) in c.dx[0].iter_mut().zip(c.dy[0]) {
            *dx = if c.add & 1 == 1 { *dx + dy * open } else { dy * open };
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(1, 40);
        // A finite difference sees through a closed one: only an open one can be compared.
        let open = || fixed(with(Values::Mask(1), whole([1])));
        vec![
            Case::op(Self, [rows([n]), open()]),
            Case::build("beside another way", [rows([n]), open()], |g, x| {
                let y = g.apply("", Self, x)?;
                Ok(vec![g.mul(y, x[0])?])
            }),
        ]
    }
}

impl Graph {
    /// A slot: see [`Graft`].
    pub(crate) fn graft(&mut self, pooled: bool, before: [Node; BEFORE], seeds: &[Node]) -> Result<Node> {
        let inputs: Vec<Node> = before.into_iter().chain(seeds.iter().copied()).collect();
        self.apply("", Graft { lazy: true, pooled }, &inputs)
    }
}
