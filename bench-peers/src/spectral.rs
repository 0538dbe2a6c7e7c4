//! `spectral [SECONDS]`: the spectral layer of Fourier neural operators, forward on one thread, by Operant's products with
//! tables and by the transforms of realfft and rustfft: microseconds of one image, best of interleaved repeats.
//!
//! The peer does no more than it must (columns of dropped frequencies are not transformed) and keeps images as
//! `[C, H, W]`, which suits it; Operant's are `[H, W, C]`. Both give the same numbers, or nothing is measured.

use operant::nn::{Feed, Graph, Node, Options, Params, Plan};
use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftPlanner};
use std::sync::Arc;
use std::time::Instant;

const REPEATS: usize = 7;
const IMAGES: usize = 4;
const ZERO: Complex32 = Complex32::new(0.0, 0.0);

/// One layer: images, as many channels in as out, kept frequencies of each sign along the height and along the width.
#[derive(Clone, Copy)]
struct Case {
    side: usize,
    channels: usize,
    modes: [usize; 2],
}

const fn case(side: usize, channels: usize, modes: [usize; 2]) -> Case {
    Case { side, channels, modes }
}

/// The last three keep every frequency; the first of them is a group of channels of U-AFNO operators.
const CASES: [Case; 9] = [
    case(32, 32, [8, 8]),
    case(64, 32, [8, 8]),
    case(64, 32, [12, 12]),
    case(64, 64, [16, 16]),
    case(128, 32, [12, 12]),
    case(128, 64, [16, 16]),
    case(32, 32, [16, 17]),
    case(32, 64, [16, 17]),
    case(64, 32, [32, 33]),
];

struct Ours {
    plan: Plan,
    params: Params,
    y: Node,
}

impl Ours {
    fn new(case: Case) -> Result<Self, operant::Error> {
        let mut g = Graph::new();
        let x = g.input("x", [case.side, case.side, case.channels]);
        let y = g.spectral("layer", x, case.channels, case.modes)?;
        let params = g.params(1)?;
        let plan = Plan::inference(&g, &[y], IMAGES, &Options::threads(1))?;
        Ok(Self { plan, params, y })
    }

    fn run(&mut self, x: &[f32]) -> &[f32] {
        self.plan.forward(&self.params, IMAGES, &[Feed::Real(x)]);
        self.plan.output(self.y)
    }
}

/// The layer by Fourier transforms.
struct Peer {
    case: Case,
    /// `[C, D, M1, M2]`: of the first frequencies along the height, and of the last.
    weights: [Vec<Complex32>; 2],
    lines: Arc<dyn RealToComplex<f32>>,
    lines_back: Arc<dyn ComplexToReal<f32>>,
    columns: Arc<dyn Fft<f32>>,
    columns_back: Arc<dyn Fft<f32>>,
    line: Vec<f32>,
    /// `[W/2 + 1]`.
    frequencies: Vec<Complex32>,
    /// `[M2, H]`.
    half_way: Vec<Complex32>,
    /// `[C, 2, M1, M2]` and `[D, 2, M1, M2]`.
    spectra: [Vec<Complex32>; 2],
    scratch: Vec<Complex32>,
    y: Vec<f32>,
}

impl Peer {
    fn new(case: Case, params: &Params) -> Result<Self, operant::Error> {
        let Case { side, channels, modes: [m1, m2] } = case;
        let weight = |name: &str| -> Result<Vec<Complex32>, operant::Error> {
            let pairs = params.get(name)?.chunks_exact(2);
            Ok(pairs.map(|pair| Complex32::new(pair[0], pair[1])).collect())
        };
        let (mut real, mut complex) = (RealFftPlanner::new(), FftPlanner::new());
        let (lines, lines_back) = (real.plan_fft_forward(side), real.plan_fft_inverse(side));
        let (columns, columns_back) = (complex.plan_fft_forward(side), complex.plan_fft_inverse(side));
        let scratch = [
            lines.get_scratch_len(),
            lines_back.get_scratch_len(),
            columns.get_inplace_scratch_len(),
            columns_back.get_inplace_scratch_len(),
        ];
        let spectrum = vec![ZERO; channels * 2 * m1 * m2];
        Ok(Self {
            case,
            weights: [weight("layer.weights1")?, weight("layer.weights2")?],
            line: lines.make_input_vec(),
            frequencies: lines.make_output_vec(),
            half_way: vec![ZERO; m2 * side],
            spectra: [spectrum.clone(), spectrum],
            scratch: vec![ZERO; scratch.into_iter().max().unwrap_or(0)],
            y: vec![0.0; IMAGES * channels * side * side],
            lines,
            lines_back,
            columns,
            columns_back,
        })
    }

    /// Where kept frequencies lie along the height.
    fn places(case: Case) -> impl Iterator<Item = (usize, usize)> {
        let m1 = case.modes[0];
        (0..2 * m1).map(move |place| (place, if place < m1 { place } else { case.side - 2 * m1 + place }))
    }

    fn to_spectrum(&mut self, c: usize, plane: &[f32]) {
        let Case { side, modes: [m1, m2], .. } = self.case;
        for (i, line) in plane.chunks_exact(side).enumerate() {
            self.line.copy_from_slice(line);
            let done = self.lines.process_with_scratch(&mut self.line, &mut self.frequencies, &mut self.scratch);
            done.expect("sizes are those of the plan");
            (0..m2).for_each(|k| self.half_way[k * side + i] = self.frequencies[k]);
        }
        self.columns.process_with_scratch(&mut self.half_way, &mut self.scratch);
        let out = &mut self.spectra[0][c * 2 * m1 * m2..][..2 * m1 * m2];
        for (place, y) in Self::places(self.case) {
            (0..m2).for_each(|k| out[place * m2 + k] = self.half_way[k * side + y]);
        }
    }

    fn mix(&mut self) {
        let Case { channels, modes: [m1, m2], .. } = self.case;
        let [from, to] = &mut self.spectra;
        to.fill(ZERO);
        let modes = m1 * m2;
        for (c, from) in from.chunks_exact(2 * modes).enumerate() {
            for (d, to) in to.chunks_exact_mut(2 * modes).enumerate() {
                for (half, weight) in self.weights.iter().enumerate() {
                    let weight = &weight[(c * channels + d) * modes..][..modes];
                    let terms = from[half * modes..][..modes].iter().zip(weight);
                    to[half * modes..][..modes].iter_mut().zip(terms).for_each(|(to, (x, w))| *to += x * w);
                }
            }
        }
    }

    fn to_plane(&mut self, mixed: bool, d: usize, at: usize) {
        let Case { side, modes: [m1, m2], .. } = self.case;
        let scale = 1.0 / (side * side) as f32;
        let from = &self.spectra[usize::from(mixed)][d * 2 * m1 * m2..][..2 * m1 * m2];
        self.half_way.fill(ZERO);
        for (place, y) in Self::places(self.case) {
            (0..m2).for_each(|k| self.half_way[k * side + y] = from[place * m2 + k] * scale);
        }
        self.columns_back.process_with_scratch(&mut self.half_way, &mut self.scratch);
        for (i, line) in self.y[at..][..side * side].chunks_exact_mut(side).enumerate() {
            self.frequencies[m2..].fill(ZERO);
            (0..m2).for_each(|k| self.frequencies[k] = self.half_way[k * side + i]);
            // As irfft2 has it: the first frequency and the middle one are real.
            self.frequencies[0].im = 0.0;
            self.frequencies[side / 2].im = 0.0;
            let done = self.lines_back.process_with_scratch(&mut self.frequencies, line, &mut self.scratch);
            done.expect("sizes are those of the plan");
        }
    }

    /// The layer, or its transforms alone.
    fn run(&mut self, mixed: bool, x: &[f32]) -> &[f32] {
        let Case { side, channels, .. } = self.case;
        let plane = side * side;
        for image in 0..IMAGES {
            let at = |c: usize| (image * channels + c) * plane;
            (0..channels).for_each(|c| self.to_spectrum(c, &x[at(c)..][..plane]));
            if mixed {
                self.mix();
            }
            (0..channels).for_each(|d| self.to_plane(mixed, d, at(d)));
        }
        &self.y
    }
}

/// Microseconds of one image.
fn time(seconds: f64, mut call: impl FnMut()) -> f64 {
    let (start, mut calls) = (Instant::now(), 0);
    while calls == 0 || start.elapsed().as_secs_f64() < seconds {
        call();
        calls += 1;
    }
    start.elapsed().as_secs_f64() / (calls * IMAGES) as f64 * 1e6
}

fn measure(case: Case, seconds: f64) -> Result<String, operant::Error> {
    let Case { side, channels, modes } = case;
    let plane = side * side;
    let planes: Vec<f32> = (0..IMAGES * channels * plane).map(|i| (i * 7919 % 1009) as f32 / 500.0 - 1.0).collect();
    // [B, H, W, C] of the same images.
    let place = |i: usize| (i / (channels * plane), i % channels, i / channels % plane);
    let turned = |i: usize| {
        let (image, c, pixel) = place(i);
        (image * channels + c) * plane + pixel
    };
    let pixels: Vec<f32> = (0..planes.len()).map(|i| planes[turned(i)]).collect();
    let mut ours = Ours::new(case)?;
    let mut peer = Peer::new(case, &ours.params)?;
    let (got, wanted) = (ours.run(&pixels), peer.run(true, &planes));
    let most = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let off = got.iter().enumerate().fold(0.0f32, |off, (i, x)| off.max((x - wanted[turned(i)]).abs()));
    if off.is_nan() || off > 1e-4 * most {
        return Err(operant::Error::Env(format!("results differ by {off} of {most}: nothing to compare")));
    }
    let mut best = [f64::INFINITY; 3];
    for _ in 0..REPEATS {
        best[0] = best[0].min(time(seconds, || _ = ours.run(&pixels)));
        best[1] = best[1].min(time(seconds, || _ = peer.run(true, &planes)));
        best[2] = best[2].min(time(seconds, || _ = peer.run(false, &planes)));
    }
    let [ours, layer, transforms] = best;
    let (size, modes) = (format!("{side} × {side} × {channels}"), format!("{} × {}", modes[0], modes[1]));
    Ok(format!(
        "| {size} | {modes} | {ours:.0} | {layer:.0} ({:.2} ×) | {transforms:.0} ({:.2} ×) |",
        layer / ours,
        transforms / ours
    ))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(0.1), |text| text.parse())?;
    println!("| image | modes | Operant, µs | FFT | its transforms alone |\n|---|---|---|---|---|");
    for case in CASES {
        println!("{}", measure(case, seconds)?);
    }
    Ok(())
}
