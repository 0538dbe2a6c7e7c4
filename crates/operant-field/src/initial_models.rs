//! First fields that a small model makes: patterns, cells, clusters, codes. Each is a function of its draws alone.

use super::initial::{Draw, apart};
use crate::fft::{Complex, frequency};
use std::f64::consts::{PI, TAU};

/// u' = r u − (1 + ∇²/k₀²)² u + g u² − u³ from noise, implicit in the linear part (Swift & Hohenberg, 1977): stripes, and
/// spots where g is large.
pub(super) fn turing_pattern(d: &mut Draw) -> Vec<f64> {
    const STEPS: usize = 40;
    const DT: f64 = 0.5;
    let n = d.n;
    let (k0, r, g) = (d.uniform(4.0, 10.0), d.uniform(0.2, 0.5), d.uniform(0.0, 1.0));
    let mut u: Vec<f64> = (0..n * n).map(|_| 0.1 * d.normal()).collect();
    for _ in 0..STEPS {
        let mut x: Vec<Complex> = u.iter().map(|u| [u + DT * (g * u * u - u * u * u), 0.0]).collect();
        d.fft.forward_square(&mut x);
        for (i, x) in x.iter_mut().enumerate() {
            let (a, b) = (frequency(i / n, n), frequency(i % n, n));
            let rate = r - (1.0 - (a * a + b * b) / (k0 * k0)).powi(2);
            let scale = 1.0 / (1.0 - DT * rate);
            *x = [x[0] * scale, x[1] * scale];
        }
        d.fft.back_square(&mut x);
        u = x.iter().map(|x| x[0]).collect();
    }
    u
}

/// cos(phase − k r) around vortices whose phases add up (Winfree, 1972).
pub(super) fn bz_reaction(d: &mut Draw) -> Vec<f64> {
    let (count, size) = (1 + d.rng.below(4), d.uniform(6.0, 14.0));
    let centres: Vec<(f64, f64)> = (0..count).map(|_| (d.unit(), d.unit())).collect();
    d.pixels(|y, x| {
        let (mut phase, mut nearest) = (0.0, f64::INFINITY);
        for (i, &(y0, x0)) in centres.iter().enumerate() {
            // Repeats with the domain; it has vortices of the other turn half a side away.
            let (v, u) = ((TAU * (y - y0)).sin(), (TAU * (x - x0)).sin());
            phase += v.atan2(u) * if i % 2 == 0 { 1.0 } else { -1.0 };
            nearest = nearest.min(apart(y, y0).hypot(apart(x, x0)));
        }
        (phase - TAU * size * nearest).cos()
    })
}

/// A checkerboard whose squares are random signs with a chance that grows from one edge to the middle.
pub(super) fn entropy(d: &mut Draw) -> Vec<f64> {
    let squares = 1usize << (3 + d.rng.below(2));
    let side = (d.n / squares).max(1);
    let x0 = d.unit();
    let count = d.n / side;
    let cells: Vec<f64> = (0..count * count)
        .map(|at| {
            let (i, j) = (at / count, at % count);
            let disorder = 2.0 * apart(j as f64 / count as f64, x0).abs();
            let sign = if d.unit() < disorder { d.unit() < 0.5 } else { (i + j) % 2 == 0 };
            if sign { 1.0 } else { -1.0 }
        })
        .collect();
    (0..d.n * d.n).map(|at| cells[at / d.n / side * count + at % d.n / side]).collect()
}

pub(super) fn cell_population(d: &mut Draw) -> Vec<f64> {
    let count = 10 + d.rng.below(30) as usize;
    let cells: Vec<(f64, f64, f64)> = (0..count).map(|_| (d.unit(), d.unit(), d.normal())).collect();
    let width = 1.5 / d.n as f64;
    d.pixels(|y, x| {
        let (mut first, mut second, mut level) = (f64::INFINITY, f64::INFINITY, 0.0);
        for &(y0, x0, own) in &cells {
            let r = apart(y, y0).hypot(apart(x, x0));
            if r < first {
                (second, first, level) = (first, r, own);
            } else {
                second = second.min(r);
            }
        }
        // A membrane is where two centres are as near.
        if second - first < width { -2.5 } else { level }
    })
}

/// Contacts of place i with place j: s(i)·s(j) of two compartments, more within a domain, less with the distance, as
/// |i − j|⁻¹ (Lieberman-Aiden et al., 2009).
pub(super) fn chromatin_domain(d: &mut Draw) -> Vec<f64> {
    let n = d.n;
    let domains = 4 + d.rng.below(6) as usize;
    let mut edges: Vec<usize> = (0..domains).map(|_| d.rng.below(n as u32) as usize).collect();
    edges.sort_unstable();
    let signs: Vec<f64> = (0..=domains).map(|_| if d.unit() < 0.5 { 1.0 } else { -1.0 }).collect();
    let domain: Vec<usize> = (0..n).map(|i| edges.iter().filter(|&&edge| edge <= i).count()).collect();
    (0..n * n)
        .map(|at| {
            let (i, j) = (at / n, at % n);
            let far = (i.abs_diff(j).min(n - i.abs_diff(j)) + 1) as f64;
            let same = f64::from(u8::from(domain[i] == domain[j]));
            (1.0 / far).ln() + 1.5 * same + 0.7 * signs[domain[i]] * signs[domain[j]]
        })
        .collect()
}

/// √ of Poisson counts whose rate is the exponential of a smooth field.
pub(super) fn gene_expression(d: &mut Draw) -> Vec<f64> {
    let (length, level) = (d.uniform(0.03, 0.1), d.uniform(0.0, 1.5));
    let rates = d.smooth(length);
    rates
        .into_iter()
        .map(|rate| {
            // Knuth's product of uniforms; rates stay below some hundreds.
            let (limit, mut product, mut count) = ((-(level + rate).min(5.0).exp()).exp(), 1.0, 0.0f64);
            loop {
                product *= d.unit();
                if product <= limit || count >= 1000.0 {
                    return count.sqrt();
                }
                count += 1.0;
            }
        })
        .collect()
}

/// W(q, p) of |a⟩ + |−a⟩: two bumps and fringes between them (Schleich, Quantum Optics in Phase Space, 2001).
pub(super) fn coherent_state(d: &mut Draw) -> Vec<f64> {
    let (angle, away, scale) = (d.uniform(0.0, PI), d.uniform(1.5, 3.0), d.uniform(8.0, 12.0));
    let (y0, x0) = (d.unit(), d.unit());
    d.pixels(|y, x| {
        let (v, u) = (scale * apart(y, y0), scale * apart(x, x0));
        let (q, p) = (u * angle.cos() + v * angle.sin(), v * angle.cos() - u * angle.sin());
        let bump = |q: f64| (-q * q - p * p).exp();
        bump(q - away) + bump(q + away) + 2.0 * bump(q) * (2.0 * p * away).cos()
    })
}

/// A Gaussian packet whose modes went for a while with ω = √(k² + m²).
pub(super) fn relativistic_packet(d: &mut Draw) -> Vec<f64> {
    let n = d.n;
    let (y0, x0, width, mass, time) =
        (d.unit(), d.unit(), d.uniform(0.03, 0.06), d.uniform(5.0, 40.0), d.uniform(0.05, 0.3));
    let (p, q) = d.wave(4.0, 10.0);
    let mut x: Vec<Complex> = Vec::with_capacity(n * n);
    for (y, z) in (0..n * n).map(|i| ((i / n) as f64 / n as f64, (i % n) as f64 / n as f64)) {
        let (v, u) = (apart(y, y0), apart(z, x0));
        let (sin, cos) = (TAU * (p * v + q * u)).sin_cos();
        let size = (-(u * u + v * v) / (2.0 * width * width)).exp();
        x.push([size * cos, size * sin]);
    }
    d.fft.forward_square(&mut x);
    for (i, x) in x.iter_mut().enumerate() {
        let (a, b) = (TAU * frequency(i / n, n), TAU * frequency(i % n, n));
        let (sin, cos) = (-(a * a + b * b + mass * mass).sqrt() * time).sin_cos();
        *x = [x[0] * cos - x[1] * sin, x[0] * sin + x[1] * cos];
    }
    d.fft.back_square(&mut x);
    x.iter().map(|x| x[0]).collect()
}

/// tanh of random weights of the eight neighbours and itself, from noise: a network with one rule everywhere (Kauffman, 1969).
pub(super) fn regulatory_network(d: &mut Draw) -> Vec<f64> {
    const STEPS: usize = 12;
    let n = d.n;
    let weights: [f64; 9] = std::array::from_fn(|_| d.normal());
    let mut state: Vec<f64> = (0..n * n).map(|_| d.normal()).collect();
    for _ in 0..STEPS {
        let next = |at: usize| {
            let (i, j) = (at / n, at % n);
            let of = |w: usize| state[(i + n + w / 3 - 1) % n * n + (j + n + w % 3 - 1) % n];
            (0..9).map(|w| weights[w] * of(w)).sum::<f64>().tanh()
        };
        state = (0..n * n).map(next).collect();
    }
    state
}

/// Walkers that stick to what they touch (Witten & Sander, 1981); older parts are higher.
pub(super) fn dla_cluster(d: &mut Draw) -> Vec<f64> {
    let n = d.n as i64;
    let particles = (d.n * d.n / 20).min(600);
    let mut height = vec![0.0; d.n * d.n];
    let place = |y: i64, x: i64| (y.rem_euclid(n) * n + x.rem_euclid(n)) as usize;
    let (y0, x0) = (i64::from(d.rng.below(n as u32)), i64::from(d.rng.below(n as u32)));
    height[place(y0, x0)] = 1.0;
    let mut radius = 1.0f64;
    for particle in 0..particles {
        if radius + 4.0 > n as f64 / 2.0 {
            break;
        }
        let start = |angle: f64| {
            let r = radius + 3.0;
            (y0 + (r * angle.sin()).round() as i64, x0 + (r * angle.cos()).round() as i64)
        };
        let (mut y, mut x) = start(TAU * d.unit());
        for _ in 0..20_000 {
            let touching =
                [(0, 1), (1, 0), (0, -1), (-1, 0)].iter().any(|(dy, dx)| height[place(y + dy, x + dx)] > 0.0);
            if touching {
                height[place(y, x)] = 1.0 - 0.7 * particle as f64 / particles as f64;
                radius = radius.max(((y - y0) as f64).hypot((x - x0) as f64));
                break;
            }
            match d.rng.below(4) {
                0 => y += 1,
                1 => y -= 1,
                2 => x += 1,
                _ => x -= 1,
            }
            // One that strays begins again.
            if ((y - y0) as f64).hypot((x - x0) as f64) > 2.0 * radius + 8.0 {
                (y, x) = start(TAU * d.unit());
            }
        }
    }
    height
}

/// Parities of random errors on the edges of a torus: of every vertex (Kitaev, 2003).
pub(super) fn error_correcting_code(d: &mut Draw) -> Vec<f64> {
    let n = d.n;
    let chance = d.uniform(0.02, 0.15);
    let edges: Vec<[bool; 2]> = (0..n * n).map(|_| [d.unit() < chance, d.unit() < chance]).collect();
    (0..n * n)
        .map(|at| {
            let (i, j) = (at / n, at % n);
            let (up, left) = ((i + n - 1) % n * n + j, i * n + (j + n - 1) % n);
            let parity = edges[at][0] ^ edges[at][1] ^ edges[up][1] ^ edges[left][0];
            if parity { 1.0 } else { -1.0 }
        })
        .collect()
}
