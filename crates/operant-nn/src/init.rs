//! First values of parameters. A draw is a function of (seed, name of the tensor, element): adding a layer changes no other.

use operant_base::{Error, Result};
use operant_lanes::rng::HostRng;

/// How a tensor begins. Fans are PyTorch's: fan in is `shape[1]`, fan out `shape[0]`, each times the kernel's area.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Init {
    /// All 0.
    #[default]
    Zeros,
    /// All 1.
    Ones,
    /// All the same.
    Constant(f32),
    /// Rows, or columns if they are fewer, of the `[shape[0], rest]` matrix are orthogonal and of length `gain`; uniform among
    /// such matrices (Saxe et al., "Exact solutions to the nonlinear dynamics of learning", 2013).
    Orthogonal {
        /// Length of each row or column.
        gain: f32,
    },
    /// Uniform, variance 2 / fan in (He et al., "Delving deep into rectifiers", 2015).
    HeUniform,
    /// Normal, variance 2 / fan in.
    HeNormal,
    /// Uniform, variance gain² · 2 / (fan in + fan out) (Glorot & Bengio, "Understanding the difficulty", 2010).
    XavierUniform {
        /// Factor for the activation that follows.
        gain: f32,
    },
    /// Normal, variance gain² · 2 / (fan in + fan out).
    XavierNormal {
        /// Factor for the activation that follows.
        gain: f32,
    },
    /// Normal, drawn again where it lies more than two `std` from 0.
    TruncatedNormal {
        /// Standard deviation before truncation; after it, 0.88 of this.
        std: f32,
    },
    /// Normal around 0.
    Normal {
        /// Standard deviation.
        std: f32,
    },
    /// Uniform in −bound..bound.
    Uniform {
        /// Largest magnitude.
        bound: f32,
    },
    /// Uniform in ±1/√fan_in: PyTorch's default for weights and biases of linear and convolution layers.
    TorchLinear {
        /// Inputs per output; a bias takes that of its weight.
        fan_in: usize,
    },
}

impl Init {
    /// Whether a tensor of this shape can begin so.
    pub(super) fn check(&self, name: &str, shape: &[usize]) -> Result<()> {
        let needs_matrix = matches!(
            self,
            Self::Orthogonal { .. }
                | Self::HeUniform
                | Self::HeNormal
                | Self::XavierUniform { .. }
                | Self::XavierNormal { .. }
        );
        if needs_matrix && shape.len() < 2 {
            return Err(Error::Invalid(format!(
                "{self:?} of parameter \"{name}\" needs two dimensions or more, got shape {shape:?}; use Zeros, Uniform or Normal"
            )));
        }
        let value = match *self {
            Self::Constant(x)
            | Self::Orthogonal { gain: x }
            | Self::XavierUniform { gain: x }
            | Self::XavierNormal { gain: x }
            | Self::TruncatedNormal { std: x }
            | Self::Normal { std: x }
            | Self::Uniform { bound: x } => x,
            Self::TorchLinear { fan_in: 0 } => f32::NAN,
            _ => 0.0,
        };
        if !value.is_finite() {
            return Err(Error::Invalid(format!(
                "{self:?} of parameter \"{name}\" is not finite; give a finite number"
            )));
        }
        Ok(())
    }

    /// Writes the first values of the tensor `name`.
    pub(super) fn fill(&self, seed: u64, name: &str, shape: &[usize], out: &mut [f32]) {
        let area: usize = shape.iter().skip(2).product();
        let fan = |dim: usize| (shape[dim] * area) as f32;
        let he = || (2.0 / fan(1)).sqrt();
        let xavier = |gain: f32| gain * (2.0 / (fan(1) + fan(0))).sqrt();
        let stream = Stream { seed, name: hash(name) };
        // A uniform number in ±bound has variance bound²/3.
        match *self {
            Self::Zeros => out.fill(0.0),
            Self::Ones => out.fill(1.0),
            Self::Constant(value) => out.fill(value),
            Self::Orthogonal { gain } => orthogonal(&stream, gain, shape[0], out),
            Self::HeUniform => stream.uniform(he() * 3f32.sqrt(), out),
            Self::HeNormal => stream.normal(he(), out),
            Self::XavierUniform { gain } => stream.uniform(xavier(gain) * 3f32.sqrt(), out),
            Self::XavierNormal { gain } => stream.normal(xavier(gain), out),
            Self::TruncatedNormal { std } => stream.truncated_normal(std, out),
            Self::Normal { std } => stream.normal(std, out),
            Self::Uniform { bound } => stream.uniform(bound, out),
            Self::TorchLinear { fan_in } => stream.uniform(1.0 / (fan_in as f32).sqrt(), out),
        }
    }
}

/// FNV-1a, 64 bits.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The draws of one tensor; each element has its own.
struct Stream {
    seed: u64,
    name: u64,
}

impl Stream {
    fn element(&self, i: usize) -> HostRng {
        HostRng::new(self.seed, self.name as u32, (self.name >> 32) as u32, i as u32)
    }

    fn uniform(&self, bound: f32, out: &mut [f32]) {
        for (i, x) in out.iter_mut().enumerate() {
            *x = bound * (2.0 * self.element(i).unit() - 1.0);
        }
    }

    fn normal(&self, std: f32, out: &mut [f32]) {
        for (i, x) in out.iter_mut().enumerate() {
            *x = std * self.element(i).normal();
        }
    }

    fn truncated_normal(&self, std: f32, out: &mut [f32]) {
        for (i, x) in out.iter_mut().enumerate() {
            let mut rng = self.element(i);
            let mut draw = rng.normal();
            while draw.abs() > 2.0 {
                draw = rng.normal();
            }
            *x = std * draw;
        }
    }
}

/// Q of the QR decomposition of a normal `[rows, rest]` matrix, with the diagonal of R positive: that sign makes Q uniform
/// (Mezzadri, "How to generate random matrices from the classical compact groups", 2007), and modified Gram–Schmidt gives it.
/// In f64 the loss of orthogonality, condition number times 1e-16, stays below the rounding to f32.
fn orthogonal(stream: &Stream, gain: f32, rows: usize, out: &mut [f32]) {
    let columns = out.len() / rows;
    let (count, length) = (rows.min(columns), rows.max(columns));
    let place = |vector: usize, i: usize| if rows <= columns { vector * columns + i } else { i * columns + vector };
    let mut q: Vec<Vec<f64>> = (0..count)
        .map(|vector| (0..length).map(|i| nonzero_normal(stream.element(place(vector, i)))).collect())
        .collect();
    for k in 0..count {
        let (done, rest) = q.split_at_mut(k + 1);
        let unit = &mut done[k];
        let scale = 1.0 / dot(unit, unit).sqrt();
        unit.iter_mut().for_each(|x| *x *= scale);
        for vector in rest {
            let along = dot(unit, vector);
            vector.iter_mut().zip(&*unit).for_each(|(x, u)| *x -= along * u);
        }
    }
    for (vector, values) in q.iter().enumerate() {
        for (i, x) in values.iter().enumerate() {
            out[place(vector, i)] = (f64::from(gain) * x) as f32;
        }
    }
}

/// A 1 × 1 matrix of 0 has no direction, and one draw in 2²⁴ is 0.
fn nonzero_normal(mut rng: HostRng) -> f64 {
    loop {
        let draw = rng.normal();
        if draw != 0.0 {
            return f64::from(draw);
        }
    }
}

/// Eight sums, so that additions need not wait for each other.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(init: Init, shape: &[usize]) -> Vec<f32> {
        let mut out = vec![f32::NAN; shape.iter().product()];
        init.check("w", shape).unwrap();
        init.fill(7, "w", shape, &mut out);
        out
    }

    fn moments(values: &[f32]) -> (f64, f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let variance = values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
        let fourth = values.iter().map(|&x| (f64::from(x) - mean).powi(4)).sum::<f64>() / n;
        (mean, variance, fourth / variance.powi(2))
    }

    /// Q·Qᵀ or Qᵀ·Q, whichever is the smaller, is gain²·I.
    #[test]
    fn orthogonal_rows_or_columns() {
        for shape in [&[8, 8][..], &[5, 40], &[40, 5], &[64, 64], &[6, 3, 2, 2], &[1, 1], &[1, 9], &[128, 200]] {
            let gain = 1.5;
            let w = filled(Init::Orthogonal { gain }, shape);
            let (rows, columns) = (shape[0], w.len() / shape[0]);
            let at = |vector: usize, i: usize| {
                f64::from(if rows <= columns { w[vector * columns + i] } else { w[i * columns + vector] })
            };
            for a in 0..rows.min(columns) {
                for b in 0..=a {
                    let dot: f64 = (0..rows.max(columns)).map(|i| at(a, i) * at(b, i)).sum();
                    let wanted = if a == b { f64::from(gain * gain) } else { 0.0 };
                    assert!((dot - wanted).abs() < 2e-6, "{shape:?} {a} {b}: {dot}");
                }
            }
        }
    }

    /// The entry (0, 0) of a uniform orthogonal matrix has mean 0 and variance 1/n; without the sign fix it would have one sign.
    #[test]
    fn orthogonal_signs_are_even() {
        let first: Vec<f32> = (0..2000)
            .map(|seed| {
                let mut w = [0.0; 16];
                Init::Orthogonal { gain: 1.0 }.fill(seed, "w", &[4, 4], &mut w);
                w[0]
            })
            .collect();
        let (mean, variance, _) = moments(&first);
        assert!(mean.abs() < 0.04 && (variance - 0.25).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn moments_and_bounds() {
        // Fan in 200·9, fan out 100·9.
        let shape = [100, 200, 3, 3];
        let (he, xavier): (f64, f64) = (2.0 / 1800.0, 4.0 * 2.0 / 2700.0);
        // Kurtosis: uniform 9/5, normal 3, normal cut at 2σ 2.3655; variance of the last 0.7737 σ².
        let cases = [
            (Init::HeUniform, he, 1.8, Some((3.0 * he).sqrt())),
            (Init::HeNormal, he, 3.0, None),
            (Init::XavierUniform { gain: 2.0 }, xavier, 1.8, Some((3.0 * xavier).sqrt())),
            (Init::XavierNormal { gain: 2.0 }, xavier, 3.0, None),
            (Init::TruncatedNormal { std: 0.5 }, 0.773_741 * 0.25, 2.3655, Some(1.0)),
            (Init::Normal { std: 0.1 }, 0.01, 3.0, None),
            (Init::Uniform { bound: 0.3 }, 0.03, 1.8, Some(0.3)),
            (Init::TorchLinear { fan_in: 1800 }, 1.0 / 5400.0, 1.8, Some((1.0f64 / 1800.0).sqrt())),
        ];
        for (init, wanted, shape_of_tails, bound) in cases {
            let w = filled(init, &shape);
            let (mean, variance, kurtosis) = moments(&w);
            assert!(mean.abs() < 0.02 * wanted.sqrt(), "{init:?} mean {mean}");
            assert!((variance / wanted - 1.0).abs() < 0.01, "{init:?} variance {variance}, wanted {wanted}");
            assert!((kurtosis / shape_of_tails - 1.0).abs() < 0.03, "{init:?} kurtosis {kurtosis}");
            if let Some(bound) = bound {
                let largest = w.iter().fold(0f32, |largest, x| largest.max(x.abs()));
                assert!(f64::from(largest) <= bound * 1.000_001 && f64::from(largest) > 0.99 * bound, "{init:?}");
            }
        }
        assert_eq!(filled(Init::Zeros, &[3]), [0.0; 3]);
        assert_eq!(filled(Init::Ones, &[3]), [1.0; 3]);
        assert_eq!(filled(Init::Constant(-2.5), &[]), [-2.5]);
    }

    #[test]
    fn draws_depend_on_seed_name_and_element_only() {
        let fill = |seed, name: &str, n: usize| {
            let mut out = vec![0.0; n];
            Init::Normal { std: 1.0 }.fill(seed, name, &[n], &mut out);
            out
        };
        let base = fill(1, "a.weight", 8);
        assert_eq!(base, fill(1, "a.weight", 8));
        assert_eq!(base, fill(1, "a.weight", 16)[..8]);
        assert!(base != fill(2, "a.weight", 8) && base != fill(1, "b.weight", 8));
        assert!((1..8).all(|i| base[i] != base[0]));
    }

    #[test]
    fn unfit_shapes_and_numbers_are_refused() {
        let message = Init::HeNormal.check("head.bias", &[4]).unwrap_err().to_string();
        assert!(message.contains("head.bias") && message.contains("[4]"), "{message}");
        assert!(Init::Orthogonal { gain: f32::NAN }.check("w", &[2, 2]).is_err());
        assert!(Init::TorchLinear { fan_in: 0 }.check("w", &[2]).is_err());
    }
}
