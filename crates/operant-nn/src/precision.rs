//! What products read: f32, or operands rounded to tf32, bf16 or f16 with sums in f32.

use super::elementwise::{Unary, map_in_place};
use super::real::Compute;
use operant_base::{Error, Result};
use operant_device::Aligned;
use operant_device::gemm::{self, Product, amx};
use operant_lanes::{Backend, Float, Int, Kernel, Lanes, Simd, select};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Precision of a plan's products. Weights are kept in f32 whatever it is, and sums are taken in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits throughout.
    #[default]
    F32,
    /// Operands with 11 bits of mantissa and the range of f32, on a GPU.
    Tf32,
    /// Operands with 8 bits of mantissa and the range of f32, on AMX tiles.
    Bf16,
    /// Operands with 11 bits of mantissa and a narrow range: losses are scaled. This CPU multiplies them as f32.
    F16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::F32, Self::Tf32, Self::Bf16, Self::F16];

    /// As written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// The fastest on this CPU, measured once per process by multiplying two matrices for a few milliseconds.
    pub fn fastest() -> Self {
        static FASTEST: OnceLock<Precision> = OnceLock::new();
        *FASTEST.get_or_init(|| {
            let backend = Backend::fast();
            let bf16 = amx::available() && peak_gflops(backend, Self::Bf16) > peak_gflops(backend, Self::F32);
            if bf16 { Self::Bf16 } else { Self::F32 }
        })
    }

    /// A precision by name, or for `auto` [the fastest](Self::fastest).
    pub fn named(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::fastest()),
            _ => text.parse().map_err(|_| {
                let known = Self::ALL.map(Self::name).into_iter().chain(["auto"]);
                Error::unknown("precision", text, known, "f32, tf32, bf16, f16, auto")
            }),
        }
    }

    /// What this CPU serves for a request, and why if that is something else.
    pub fn served(self) -> (Self, Option<&'static str>) {
        match self {
            Self::Tf32 => (Self::F32, Some("tf32 was asked for, which only GPUs have: computing in f32")),
            Self::Bf16 if !amx::available() => {
                (Self::F32, Some("bf16 was asked for, but this CPU has no AMX tiles: computing in f32"))
            }
            Self::F16 => {
                (Self::F16, Some("f16 operands are multiplied as f32 without AMX tiles on CPUs: no faster than f32"))
            }
            served => (served, None),
        }
    }
}

impl FromStr for Precision {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|precision| precision.name() == text);
        found.ok_or_else(|| Error::unknown("precision", text, Self::ALL.map(Self::name), "f32, tf32, bf16, f16"))
    }
}

/// The rate of products on one thread in GFLOP/s: the best of many short runs over operands in the nearest caches.
pub fn peak_gflops(backend: Backend, precision: Precision) -> f64 {
    const M: usize = 192;
    const K: usize = 192;
    const N: usize = 64;
    let p =
        Product { m: M, n: N, outer: 1, inner: K, a_row: K, a_outer: 0, a_inner: 1, b_outer: 0, b_inner: N, c_row: N };
    let (mut a, mut b) = (Aligned::zeros(M * K), Aligned::zeros(gemm::packed_len(K, N)));
    let mut c = Aligned::zeros(M * N);
    a.fill(0.5);
    b.fill(0.5);
    let (mut half_a, mut half_b) = (Aligned::zeros(0), Aligned::zeros(0));
    let tiles = precision == Precision::Bf16 && amx::available();
    let thirds = !tiles && Compute { backend, precision }.tiles();
    if tiles {
        half_a = Aligned::zeros(M * K);
        amx::rows_to_bf16(M, K, &a, K, &mut half_a, K);
        half_b = Aligned::zeros(amx::packed_len(1, K, N));
        amx::pack(1, K, N, &b, 0, N, 1, &mut half_b);
    } else if thirds {
        half_b = Aligned::zeros(amx::thirds_len(1, K, N));
        amx::pack_thirds(1, K, N, &b, 0, N, 1, &mut half_b);
    }
    let mut best = f64::INFINITY;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(10) {
        let once = Instant::now();
        for _ in 0..8 {
            if tiles {
                amx::product(&p, &half_a, &half_b, gemm::Init::Zero, &mut c);
            } else if thirds {
                amx::product_thirds(&p, &a, &half_b, gemm::Init::Zero, &mut c);
            } else {
                gemm::product_packed(backend, &p, &a, &b, gemm::Init::Zero, &mut c);
            }
        }
        best = best.min(once.elapsed().as_secs_f64() / 8.0);
    }
    std::hint::black_box(&c);
    2.0 * (M * N * K) as f64 / best * 1e-9
}

/// Rounds to the nearest f16, in f32.
#[derive(Clone, Copy, Debug)]
struct RoundToF16;
impl Unary for RoundToF16 {
    /// IEEE 754 binary16: 11 bits of mantissa above 2⁻¹⁴, multiples of 2⁻²⁴ below, infinity from 65520 on; ties to even.
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F) -> L::F {
        let bits = x.bits();
        let even = bits.shr(13) & 1;
        let normal = L::F::from_bits((bits + even + 0xFFF) & !0x1FFF);
        // The least step of f32 from 0.5 up to 1 is 2⁻²⁴.
        let small = (x.abs() + 0.5) - 0.5;
        let small = L::F::from_bits(small.bits() | (bits & i32::MIN));
        let rounded = select::<_, L::F>(x.abs().lt(1.0 / 16384.0), small, normal);
        let infinite = L::F::from_bits((bits & i32::MIN) | f32::INFINITY.to_bits() as i32);
        let rounded = select::<_, L::F>(x.abs().ge(65520.0), infinite, rounded);
        select::<_, L::F>(x.eq(x), rounded, x)
    }
}

struct Round<'a>(&'a mut [f32]);
impl Kernel for Round<'_> {
    type Out = ();
    type Home = Self;
    #[inline(always)]
    fn run<L: Simd>(self) {
        map_in_place::<f32, L, _>(RoundToF16, self.0);
    }
}

/// Rounds to the nearest f16 and back. Both slices have one length.
pub(super) fn round_to_f16(backend: Backend, x: &[f32], out: &mut [f32]) {
    out.copy_from_slice(x);
    round_to_f16_in_place(backend, out);
}

/// Rounds every element to the nearest f16.
pub(super) fn round_to_f16_in_place(backend: Backend, x: &mut [f32]) {
    backend.run_fast(Round(x));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of f16 bits with sign 0, by the definition of IEEE 754.
    fn f16(bits: u16) -> f64 {
        let (exponent, mantissa) = (i32::from(bits >> 10), f64::from(bits & 0x3FF));
        match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 => f64::INFINITY,
            _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
        }
    }

    #[test]
    fn f16_is_nearest_with_ties_to_even() {
        // Pairs of a number and what it must become, for every f16 and the middle between it and the next.
        let mut pairs = vec![(f32::INFINITY, f64::INFINITY), (f32::MAX, f64::INFINITY), (1e-40, 0.0)];
        for bits in 0..0x7C00 {
            let low = f16(bits);
            // What would follow the largest number, were there no infinity.
            let next = if bits == 0x7BFF { 65536.0 } else { f16(bits + 1) };
            let high = f16(bits + 1);
            let middle = ((low + next) / 2.0) as f32;
            assert_eq!(f64::from(middle), (low + next) / 2.0);
            pairs.push((low as f32, low));
            pairs.push((middle.next_down(), low));
            pairs.push((middle, if bits % 2 == 0 { low } else { high }));
            pairs.push((middle.next_up(), high));
        }
        for name in ["portable", "avx2", "avx512"] {
            let Ok(backend) = Backend::named(name) else { continue };
            for sign in [1.0, -1.0] {
                let mut x: Vec<f32> = pairs.iter().map(|(x, _)| x * sign).collect();
                round_to_f16_in_place(backend, &mut x);
                for (got, (x, wanted)) in x.iter().zip(&pairs) {
                    let wanted = *wanted as f32 * sign;
                    assert_eq!(got.to_bits(), wanted.to_bits(), "{name}: {x} gives {got}, wanted {wanted}");
                }
            }
            let mut nan = [f32::NAN];
            round_to_f16_in_place(backend, &mut nan);
            assert!(nan[0].is_nan());
        }
    }
}
