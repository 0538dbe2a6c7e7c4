//! First fields: kinds with a name, a weight in a mixture, and a draw that is a function of (key, channel).
//!
//! Lengths are shares of the domain's side, which is periodic. Every kind but the Gaussian random field, whose variance is
//! asked for, is brought to mean 0 and standard deviation 1.

use super::initial_models as models;
use super::rollout::normalise;
use crate::fft::{Complex, Fft, frequency};
use operant_lanes::rng::HostRng;
use std::f64::consts::{PI, TAU};

/// Keeps these draws apart from those of weights and noise of the same key.
const STREAM: u32 = 0x696e_6974;

/// A kind of first field: name, what it is, how it is drawn.
#[derive(Clone, Copy)]
pub struct Kind {
    /// In settings and stores.
    pub name: &'static str,
    /// What it shows.
    pub meaning: &'static str,
    draw: fn(&mut Draw) -> Vec<f64>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What a draw knows.
pub(super) struct Draw {
    /// Side of the field.
    pub(super) n: usize,
    /// Which channel, from 0.
    pub(super) channel: usize,
    /// Of the channel.
    pub(super) rng: HostRng,
    /// The same for all channels.
    pub(super) shared: HostRng,
    /// Length scale and variance asked for.
    pub(super) length: f64,
    pub(super) variance: f64,
    pub(super) fft: Fft,
}

impl Draw {
    pub(super) fn unit(&mut self) -> f64 {
        f64::from(self.rng.unit())
    }

    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub(super) fn normal(&mut self) -> f64 {
        f64::from(self.rng.normal())
    }

    /// A number for every pixel, of its place in [0, 1)².
    pub(super) fn pixels(&self, mut f: impl FnMut(f64, f64) -> f64) -> Vec<f64> {
        let n = self.n;
        (0..n * n).map(|i| f((i / n) as f64 / n as f64, (i % n) as f64 / n as f64)).collect()
    }

    /// White noise of variance 1 through a filter of the wave number in radians per side; the mean is taken off and the
    /// expected variance is 1.
    pub(super) fn filtered(&mut self, filter: impl Fn(f64) -> f64) -> Vec<f64> {
        let white: Vec<f64> = (0..self.n * self.n).map(|_| self.normal()).collect();
        self.filter(&white, filter)
    }

    /// [`filtered`](Self::filtered) of given white noise.
    pub(super) fn filter(&mut self, white: &[f64], filter: impl Fn(f64) -> f64) -> Vec<f64> {
        let n = self.n;
        let mut x: Vec<Complex> = white.iter().map(|&x| [x, 0.0]).collect();
        self.fft.forward_square(&mut x);
        let mut total = 0.0;
        for (i, x) in x.iter_mut().enumerate() {
            let (u, v) = (frequency(i / n, n), frequency(i % n, n));
            let gain = if i == 0 { 0.0 } else { filter(TAU * (u * u + v * v).sqrt()) };
            total += gain * gain;
            *x = [x[0] * gain, x[1] * gain];
        }
        self.fft.back_square(&mut x);
        let scale = if total > 0.0 { n as f64 / total.sqrt() } else { 0.0 };
        x.iter().map(|x| x[0] * scale).collect()
    }

    /// A Gaussian random field of variance 1 with correlation exp(−r²/4l²).
    pub(super) fn smooth(&mut self, length: f64) -> Vec<f64> {
        self.filtered(|k| (-(k * length).powi(2) / 2.0).exp())
    }

    /// A smooth field that is the same for all channels.
    pub(super) fn smooth_shared(&mut self, length: f64) -> Vec<f64> {
        let white: Vec<f64> = (0..self.n * self.n).map(|_| f64::from(self.shared.normal())).collect();
        self.filter(&white, |k| (-(k * length).powi(2) / 2.0).exp())
    }

    /// A whole wave number in each direction, between two sizes: waves that fit the domain.
    pub(super) fn wave(&mut self, low: f64, high: f64) -> (f64, f64) {
        let (size, angle) = (self.uniform(low, high), self.uniform(0.0, TAU));
        let wave = ((size * angle.cos()).round(), (size * angle.sin()).round());
        if wave == (0.0, 0.0) { (1.0, 0.0) } else { wave }
    }
}

/// The shortest way from b to a on a circle of length 1.
pub(super) fn apart(a: f64, b: f64) -> f64 {
    let d = a - b;
    d - d.round()
}

fn add(a: Vec<f64>, b: &[f64], weight: f64) -> Vec<f64> {
    a.into_iter().zip(b).map(|(a, b)| a + weight * b).collect()
}

fn gaussian_random_field(d: &mut Draw) -> Vec<f64> {
    let (length, std) = (d.length, d.variance.sqrt());
    d.smooth(length).into_iter().map(|x| x * std).collect()
}

fn structured(d: &mut Draw) -> Vec<f64> {
    let ((p, q), phase, shape) = (d.wave(2.0, 8.0), d.uniform(0.0, TAU), d.rng.below(3));
    let (x0, y0) = (d.unit(), d.unit());
    let rings = (p * p + q * q).sqrt();
    d.pixels(|y, x| match shape {
        0 => (TAU * (p * y + q * x) + phase).sin(),
        1 => ((TAU * rings.round() * x + phase).sin() * (TAU * rings.round() * y).sin()).signum(),
        _ => (TAU * rings * apart(y, y0).hypot(apart(x, x0)) + phase).cos(),
    })
}

fn mixed(d: &mut Draw) -> Vec<f64> {
    let (weight, length) = (d.uniform(0.3, 0.7), d.uniform(0.02, 0.1));
    let pattern = structured(d);
    let random = d.smooth(length);
    add(random.into_iter().map(|x| x * (1.0 - weight)).collect(), &pattern, weight * std::f64::consts::SQRT_2)
}

fn multiscale(d: &mut Draw) -> Vec<f64> {
    let slope = d.uniform(0.5, 1.5);
    let mut sum = vec![0.0; d.n * d.n];
    for octave in 0..4 {
        let length = 0.2 / f64::from(1 << octave);
        let part = d.smooth(length);
        sum = add(sum, &part, (length / 0.2).powf(slope));
    }
    sum
}

fn localised(d: &mut Draw) -> Vec<f64> {
    let count = 1 + d.rng.below(6);
    let mut sum = vec![0.0; d.n * d.n];
    for _ in 0..count {
        let (y0, x0, width) = (d.unit(), d.unit(), d.uniform(0.02, 0.1));
        let height = d.normal();
        let bump = d.pixels(|y, x| (-(apart(y, y0).powi(2) + apart(x, x0).powi(2)) / (2.0 * width * width)).exp());
        sum = add(sum, &bump, height);
    }
    sum
}

fn composite(d: &mut Draw) -> Vec<f64> {
    let (coarse, fine, edge) = (d.smooth(0.12), d.smooth(0.015), d.smooth(0.1));
    let sharpness = d.uniform(2.0, 10.0);
    let share = |x: f64| 0.5 * (1.0 + (sharpness * x).tanh());
    (0..coarse.len()).map(|i| share(edge[i]) * coarse[i] + (1.0 - share(edge[i])) * fine[i]).collect()
}

fn heavy_tailed(d: &mut Draw) -> Vec<f64> {
    let (length, weight) = (d.uniform(0.01, 0.05), d.uniform(1.0, 2.0));
    d.smooth(length).into_iter().map(|x| (weight * x).sinh()).collect()
}

fn quantum_wave_packet(d: &mut Draw) -> Vec<f64> {
    // Channels show one packet, a quarter of a turn apart: its real and its imaginary part.
    let mut unit = || f64::from(d.shared.unit());
    let (y0, x0, width, angle, size) = (unit(), unit(), 0.05 + 0.1 * unit(), TAU * unit(), 4.0 + 8.0 * unit());
    let phase = PI / 2.0 * d.channel as f64;
    d.pixels(|y, x| {
        let (u, v) = (apart(y, y0), apart(x, x0));
        let wave = TAU * size * (u * angle.cos() + v * angle.sin());
        (-(u * u + v * v) / (2.0 * width * width)).exp() * (wave - phase).cos()
    })
}

fn thermal_gradient(d: &mut Draw) -> Vec<f64> {
    let (x0, roughness, across) = (d.unit(), d.uniform(0.02, 0.2), d.rng.below(2) == 1);
    let fluctuation = d.smooth(0.05);
    // Linear from the hot wall to the cold one half a side away, both ways.
    let profile = d.pixels(|y, x| 1.0 - 4.0 * apart(if across { x } else { y }, x0).abs());
    add(profile, &fluctuation, roughness)
}

fn morphogen_gradient(d: &mut Draw) -> Vec<f64> {
    let (y0, x0, length, line) = (d.unit(), d.unit(), d.uniform(0.05, 0.25), d.rng.below(2) == 1);
    d.pixels(|y, x| {
        let r = if line { apart(x, x0).abs() } else { apart(y, y0).hypot(apart(x, x0)) };
        (-r / length).exp()
    })
}

fn reaction_front(d: &mut Draw) -> Vec<f64> {
    // Fisher and Kolmogorov's front 1/(1 + e^(z/w))², around a disc with a rough edge (Ablowitz & Zeppetella, 1979).
    let (y0, x0, radius, width) = (d.unit(), d.unit(), d.uniform(0.15, 0.35), d.uniform(0.01, 0.04));
    let edge = d.smooth(0.06);
    let mut i = 0;
    d.pixels(|y, x| {
        i += 1;
        let z = apart(y, y0).hypot(apart(x, x0)) - radius + 0.03 * edge[i - 1];
        (1.0 + (z / width).clamp(-50.0, 50.0).exp()).powi(-2)
    })
}

fn light_cone(d: &mut Draw) -> Vec<f64> {
    let (y0, x0, radius, width) = (d.unit(), d.unit(), d.uniform(0.1, 0.4), d.uniform(0.01, 0.04));
    d.pixels(|y, x| {
        let r = apart(y, y0).hypot(apart(x, x0));
        // A pulse spreads over a growing circle.
        (-(r - radius).powi(2) / (2.0 * width * width)).exp() / (r + width).sqrt()
    })
}

fn critical_fluctuation(d: &mut Draw) -> Vec<f64> {
    // S(k) ∝ k^−(2 − η), η = 1/4 of the two-dimensional Ising model (Fisher, 1964).
    d.filtered(|k| k.powf(-(2.0 - 0.25) / 2.0))
}

fn phase_boundary(d: &mut Draw) -> Vec<f64> {
    let (length, sharpness) = (d.uniform(0.02, 0.08), d.uniform(3.0, 10.0));
    d.smooth(length).into_iter().map(|x| (sharpness * x).tanh()).collect()
}

fn interference(d: &mut Draw) -> Vec<f64> {
    let (count, size) = (2 + d.rng.below(3), d.uniform(8.0, 20.0));
    let mut sum = vec![0.0; d.n * d.n];
    for _ in 0..count {
        let (y0, x0) = (d.unit(), d.unit());
        let wave = d.pixels(|y, x| {
            let r = apart(y, y0).hypot(apart(x, x0));
            (TAU * size * r).cos() / (r + 0.5 / size).sqrt()
        });
        sum = add(sum, &wave, 1.0);
    }
    sum
}

fn shock_front(d: &mut Draw) -> Vec<f64> {
    // Sawtooth waves, which Burgers's equation tends to, with a front of finite width.
    let ((p, q), phase, width) = (d.wave(1.0, 4.0), d.unit(), d.uniform(0.01, 0.05));
    d.pixels(|y, x| {
        let s = apart(p * y + q * x, phase);
        (s / width).tanh() - 2.0 * s
    })
}

fn mutual_information(d: &mut Draw) -> Vec<f64> {
    // Channels share a field with weight ρ: any two have mutual information −½ ln(1 − ρ²) per pixel.
    let share = 0.1 + 0.85 * f64::from(d.shared.unit());
    let common = d.smooth_shared(0.04);
    let own = d.smooth(0.04);
    add(own.into_iter().map(|x| x * (1.0 - share).sqrt()).collect(), &common, share.sqrt())
}

/// All kinds; a kind's number is its place.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "gaussian_random_field",
        meaning: "correlation exp(-r^2/4l^2), of given l and variance",
        draw: gaussian_random_field,
    },
    Kind { name: "structured", meaning: "stripes, squares or rings", draw: structured },
    Kind { name: "mixed", meaning: "a pattern and a random field", draw: mixed },
    Kind { name: "multiscale", meaning: "four octaves of random fields", draw: multiscale },
    Kind { name: "localised", meaning: "a few bumps", draw: localised },
    Kind { name: "composite", meaning: "regions of a coarse and of a fine random field", draw: composite },
    Kind { name: "heavy_tailed", meaning: "sinh of a random field", draw: heavy_tailed },
    Kind {
        name: "quantum_wave_packet",
        meaning: "a Gaussian packet, its parts in the channels",
        draw: quantum_wave_packet,
    },
    Kind { name: "thermal_gradient", meaning: "linear between a hot and a cold wall", draw: thermal_gradient },
    Kind { name: "morphogen_gradient", meaning: "exponential around a source", draw: morphogen_gradient },
    Kind { name: "reaction_front", meaning: "a Fisher-Kolmogorov front around a disc", draw: reaction_front },
    Kind { name: "light_cone", meaning: "a pulse on a circle", draw: light_cone },
    Kind { name: "critical_fluctuation", meaning: "power spectrum k^-7/4", draw: critical_fluctuation },
    Kind { name: "phase_boundary", meaning: "two phases with sharp walls", draw: phase_boundary },
    Kind { name: "interference", meaning: "circular waves of several sources", draw: interference },
    Kind { name: "shock_front", meaning: "sawtooth waves", draw: shock_front },
    Kind { name: "mutual_information", meaning: "channels that share a field", draw: mutual_information },
    Kind {
        name: "turing_pattern",
        meaning: "spots or stripes of Swift and Hohenberg's equation",
        draw: models::turing_pattern,
    },
    Kind { name: "bz_reaction", meaning: "spiral waves around phase singularities", draw: models::bz_reaction },
    Kind { name: "entropy", meaning: "order on one side, disorder on the other", draw: models::entropy },
    Kind {
        name: "cell_population",
        meaning: "Voronoi cells with levels of their own and membranes",
        draw: models::cell_population,
    },
    Kind {
        name: "chromatin_domain",
        meaning: "a contact map: compartments, domains, distance decay",
        draw: models::chromatin_domain,
    },
    Kind { name: "gene_expression", meaning: "counts with a smooth log-normal rate", draw: models::gene_expression },
    Kind { name: "coherent_state", meaning: "Wigner function of two coherent states", draw: models::coherent_state },
    Kind {
        name: "relativistic_packet",
        meaning: "a packet that went by the Klein-Gordon dispersion",
        draw: models::relativistic_packet,
    },
    Kind {
        name: "regulatory_network",
        meaning: "genes switched by random neighbours",
        draw: models::regulatory_network,
    },
    Kind {
        name: "dla_cluster",
        meaning: "a cluster grown by diffusion-limited aggregation",
        draw: models::dla_cluster,
    },
    Kind {
        name: "error_correcting_code",
        meaning: "syndromes of a toric code with random errors",
        draw: models::error_correcting_code,
    },
];

/// What is asked of first fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Side.
    pub grid: usize,
    /// C.
    pub channels: usize,
    /// Length scale of the Gaussian random field, a share of the side.
    pub length: f64,
    /// Its variance.
    pub variance: f64,
}

impl Kind {
    /// A field `[H, W, C]`.
    pub fn field(&self, shape: Shape, key: u64) -> Vec<f32> {
        let mut out = vec![0.0; shape.grid * shape.grid * shape.channels];
        for channel in 0..shape.channels {
            let mut draw = Draw {
                n: shape.grid,
                channel,
                rng: HostRng::new(key, STREAM, channel as u32 + 1, 0),
                shared: HostRng::new(key, STREAM, 0, 0),
                length: shape.length,
                variance: shape.variance,
                fft: Fft::new(shape.grid),
            };
            let plane = (self.draw)(&mut draw);
            out.iter_mut().skip(channel).step_by(shape.channels).zip(plane).for_each(|(to, x)| *to = x as f32);
        }
        if self.name != KINDS[0].name {
            normalise(&mut out, shape.channels);
        }
        out
    }

    /// The kind that a key draws from a mixture of places in [`KINDS`] and weights.
    pub fn of_mixture(weights: &[(usize, f64)], key: u64) -> usize {
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut left = f64::from(HostRng::new(key, STREAM, 0, 1).unit()) * total;
        let found = weights.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        found.or(weights.last()).map_or(0, |(place, _)| *place)
    }
}
