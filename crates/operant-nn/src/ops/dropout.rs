//! Random zeros and Gaussian noise: functions of (seed, run, node, element), so that tiles and threads do not matter and the
//! backward body draws the same numbers again.

use crate::cuda::{Formula, Twin, literal};
use super::super::check::{Case, Random, rows};
use super::super::elementwise::{Binary, map2};
use super::super::op::{Backward, Draws, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Real, Scratch};
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::rng::key;
use operant_lanes::{Float, Int, Lanes, Vectors, select};

/// Elements that are drawn at once: four words for each of sixteen counters, whatever the width of registers.
const BLOCK: usize = 64;
const COUNTERS: usize = 16;
/// Keeps these draws apart from those of environments with the same seed.
const STREAM: i32 = 0x6472_6f70;
const PLACES: [i32; COUNTERS] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// What is drawn for an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Law {
    /// Uniform in [0, 1).
    Unit,
    /// Standard normal.
    Normal,
}

/// A uniform number in [0, 1): a multiple of 2⁻²⁴.
#[inline(always)]
fn unit<L: Lanes>(word: L::I) -> L::F {
    word.shr(8).to_float() * (1.0 / 16_777_216.0)
}

/// Two standard normal numbers (Box & Muller, "A note on the generation of random normal deviates", 1958).
#[inline(always)]
fn normal_pair<L: Lanes>(a: L::I, b: L::I) -> (L::F, L::F) {
    let radius = ((L::F::from(1.0) - unit::<L>(a)).log() * -2.0).sqrt();
    let (sin, cos) = (unit::<L>(b) * std::f32::consts::TAU).sin_cos();
    (radius * cos, radius * sin)
}

/// The numbers of elements `block·64 ..` of the batch.
#[inline(always)]
fn draw<R: Real, L: Vectors<R>>(law: Law, draws: Draws, block: usize, out: &mut [R]) {
    let (run, node) = (L::I::from(draws.run as i32), L::I::from(draws.node as i32));
    for first in (0..COUNTERS).step_by(L::LANES) {
        let counter = L::read_ints(&PLACES[first..]) + (block * COUNTERS) as i32;
        let words = L::I::philox([counter, run, node, L::I::from(STREAM)], key(draws.seed));
        let numbers = match law {
            Law::Unit => [unit::<L>(words[0]), unit::<L>(words[1]), unit::<L>(words[2]), unit::<L>(words[3])],
            Law::Normal => {
                let (a, b) = normal_pair::<L>(words[0], words[1]);
                let (c, d) = normal_pair::<L>(words[2], words[3]);
                [a, b, c, d]
            }
        };
        for (i, number) in numbers.into_iter().enumerate() {
            L::write(number, &mut out[i * COUNTERS + first..][..L::LANES]);
        }
    }
}

/// `y = f(x, draw)` for all elements of a tile, the first of which is number `first` of the batch.
#[inline(always)]
fn apply<R: Real, L: Vectors<R>, F: Binary>(
    f: F,
    law: Law,
    draws: Draws,
    first: usize,
    x: &[R],
    y: &mut [R],
    room: &mut [R],
) {
    let mut at = 0;
    while at < y.len() {
        let (block, skip) = ((first + at) / BLOCK, (first + at) % BLOCK);
        let count = (BLOCK - skip).min(y.len() - at);
        draw::<R, L>(law, draws, block, &mut room[..BLOCK]);
        map2::<R, L, _>(f, &x[at..at + count], &room[skip..skip + count], &mut y[at..at + count]);
        at += count;
    }
}

/// Every element is 0 with probability `p` in training, and the others grow by 1/(1 − p) (Srivastava et al., "Dropout",
/// 2014).
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// Probability of 0; below 1.
    pub p: f32,
}

#[derive(Clone, Copy)]
struct Keep {
    p: f32,
    scale: f32,
}
impl Binary for Keep {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F, unit: L::F) -> L::F {
        select(unit.lt(self.p), 0.0, x * self.scale)
    }
}

impl Dropout {
    fn keep(&self) -> Keep {
        Keep { p: self.p, scale: 1.0 / (1.0 - self.p) }
    }
}

impl Op for Dropout {
    const NAME: &'static str = "dropout";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            _ if !(0.0..1.0).contains(&self.p) => Err(format!("probability {}, wanted 0 <= p < 1", self.p)),
            [x] if x.kind == Kind::Rows => Ok(vec![x.clone()]),
            _ => Err("wanted one input with rows".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn twin(&self, _: &Types, _rows: usize) -> Option<Twin> {
        let Keep { p, scale } = self.keep();
        let (p, scale) = (literal(p), literal(scale));
        let of = |x: &str| format!("drawn(draws, node, number, 0) < {p} ? 0.0f : times({x}, {scale})");
        let formula = Formula::new(if self.p == 0.0 { "x0".into() } else { of("x0") });
        Some(Twin::by_number(formula.untrained("x0").gradient(of("dy")), []))
    }

    fn scratch<R: Real>(&self, _: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(BLOCK)
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        if !c.training || self.p == 0.0 {
            c.y[0].copy_from_slice(c.x[0]);
            return;
        }
        let first = c.first_row * c.types.x[0].len();
        apply::<R, L, _>(self.keep(), Law::Unit, c.draws, first, c.x[0], c.y[0], c.room.real);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let first = c.first_row * c.types.x[0].len();
        apply::<R, L, _>(self.keep(), Law::Unit, c.draws, first, c.dy[0], c.dx[0], c.room.real);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        vec![
            Case::op(Self { p: 0.3 }, [rows([random.size(1, 90)])]),
            Case::op(Self { p: 0.75 }, [rows([2, random.size(1, 9)])]),
            Case::op(Self { p: 0.0 }, [rows([3])]),
        ]
    }
}

/// Gaussian noise on every element, n standard normal: x + s·n, or x·(1 + s·n).
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// s.
    pub scale: f32,
    /// Multiply rather than add.
    pub multiply: bool,
    /// Also when no gradient is asked for: exploration.
    pub always: bool,
}

#[derive(Clone, Copy)]
struct Add(f32);
impl Binary for Add {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F, normal: L::F) -> L::F {
        normal.mul_add(self.0, x)
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

impl Op for Noise {
    const NAME: &'static str = "noise";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            _ if !self.scale.is_finite() => Err(format!("scale {}, wanted a finite number", self.scale)),
            [x] if x.kind == Kind::Rows => Ok(vec![x.clone()]),
            _ => Err("wanted one input with rows".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn twin(&self, _: &Types, _rows: usize) -> Option<Twin> {
        let (normal, scale) = ("drawn(draws, node, number, 1)", literal(self.scale));
        let multiplied = |x: &str| format!("times({x}, fmaf({normal}, {scale}, 1.0f))");
        let formula = match self.multiply {
            true => Formula::new(multiplied("x0")).gradient(multiplied("dy")),
            false => Formula::new(format!("fmaf({normal}, {scale}, x0)")).gradient("dy"),
        };
        Some(Twin::by_number(if self.always { formula } else { formula.untrained("x0") }, []))
    }

    fn scratch<R: Real>(&self, _: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(BLOCK)
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let first = c.first_row * c.types.x[0].len();
        let (x, y, room) = (c.x[0], &mut *c.y[0], &mut *c.room.real);
        if !c.training && !self.always {
            y.copy_from_slice(x);
        } else if self.multiply {
            apply::<R, L, _>(Multiply(self.scale), Law::Normal, c.draws, first, x, y, room);
        } else {
            apply::<R, L, _>(Add(self.scale), Law::Normal, c.draws, first, x, y, room);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let first = c.first_row * c.types.x[0].len();
        if self.multiply {
            apply::<R, L, _>(
                Multiply(self.scale),
                Law::Normal,
                c.draws,
                first,
                c.dy[0],
                c.dx[0],
                c.room.real,
            );
        } else {
            c.dx[0].copy_from_slice(c.dy[0]);
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let noise = Self { scale: 0.7, multiply: false, always: false };
        vec![
            Case::op(noise, [rows([random.size(1, 90)])]),
            Case::op(Self { multiply: true, ..noise }, [rows([random.size(1, 90)])]),
            Case::op(Self { multiply: true, always: true, ..noise }, [rows([3, random.size(1, 9)])]),
        ]
    }
}

impl Graph {
    /// Sets elements to 0 with probability `p` in training and scales the others so that the mean stays.
    pub fn dropout(&mut self, x: Node, p: f32) -> Result<Node> {
        self.apply("", Dropout { p }, &[x])
    }

    /// x + scale·n with standard normal n; in training only, unless `always`.
    pub fn gaussian_noise(&mut self, x: Node, scale: f32, always: bool) -> Result<Node> {
        self.apply("", Noise { scale, multiply: false, always }, &[x])
    }

    /// x·(1 + scale·n) with standard normal n; in training only, unless `always`.
    pub fn multiplicative_noise(&mut self, x: Node, scale: f32, always: bool) -> Result<Node> {
        self.apply("", Noise { scale, multiply: true, always }, &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Feed, Graph, Options, Plan, Wanted};

    fn outputs(build: impl Fn(&mut Graph, super::Node) -> super::Node, train: bool, tile_rows: usize) -> Vec<Vec<f32>> {
        let (rows, n) = (1000, 30);
        let mut g = Graph::new();
        let x = g.input_with_gradient("x", [n]);
        let y = build(&mut g, x);
        let loss = g.mean(y, 9).unwrap();
        let losses = if train { vec![(loss, 1.0)] } else { Vec::new() };
        let options = Options { tile_rows: Some(tile_rows), seed: 5, ..Options::default() };
        let wanted = Wanted { outputs: vec![y], losses, metrics: Vec::new() };
        let mut plan: Plan = Plan::new(&g, &wanted, rows, &options).unwrap();
        let params = g.params(0).unwrap();
        let feed = vec![1.0; rows * n];
        (0..2)
            .map(|_| {
                plan.forward(&params, rows, &[Feed::Real(&feed)]);
                plan.output(y).to_vec()
            })
            .collect()
    }

    fn moments(x: &[f32]) -> (f64, f64) {
        let n = x.len() as f64;
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        (mean, x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n)
    }

    /// 30,000 draws: the means below have standard errors under 0.004.
    #[test]
    fn dropout_keeps_the_mean_and_drops_its_share() {
        let runs = outputs(|g, x| g.dropout(x, 0.25).unwrap(), true, 64);
        let dropped = runs[0].iter().filter(|&&x| x == 0.0).count() as f64 / runs[0].len() as f64;
        assert!((dropped - 0.25).abs() < 0.015, "{dropped}");
        assert!(runs[0].iter().all(|&x| x == 0.0 || (x - 4.0 / 3.0).abs() < 1e-6));
        assert_ne!(runs[0], runs[1]);
        assert_eq!(runs, outputs(|g, x| g.dropout(x, 0.25).unwrap(), true, 7), "tiles change the draws");
        assert!(outputs(|g, x| g.dropout(x, 0.25).unwrap(), false, 64)[0].iter().all(|&x| x == 1.0));
    }

    #[test]
    fn noise_has_its_moments() {
        for multiply in [false, true] {
            let build = |always| {
                move |g: &mut Graph, x| {
                    if multiply { g.multiplicative_noise(x, 0.5, always) } else { g.gaussian_noise(x, 0.5, always) }
                        .unwrap()
                }
            };
            let (mean, variance) = moments(&outputs(build(false), true, 64)[0]);
            assert!((mean - 1.0).abs() < 0.015 && (variance - 0.25).abs() < 0.01, "{mean} {variance}");
            let (_, variance) = moments(&outputs(build(true), false, 64)[0]);
            assert!((variance - 0.25).abs() < 0.01, "{variance}");
            assert!(outputs(build(false), false, 64)[0].iter().all(|&x| x == 1.0));
        }
    }
}
