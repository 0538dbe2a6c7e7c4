//! What products read: f32, or operands rounded to bf16 or f16 with sums in f32.

use crate::device::Aligned;
use crate::device::gemm::{self, Product, amx};
use crate::lanes::Backend;
use crate::{Error, Result};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Precision of a plan's products. Weights are kept in f32 whatever it is, and sums are taken in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits throughout.
    #[default]
    F32,
    /// Operands with 8 bits of mantissa and the range of f32, on AMX tiles.
    Bf16,
    /// Operands with 11 bits of mantissa and a narrow range: losses are scaled. This CPU multiplies them as f32.
    F16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// As written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
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

    /// What this CPU serves for a request, and why if that is something else.
    pub fn served(self) -> (Self, Option<&'static str>) {
        match self {
            Self::Bf16 if !amx::available() => {
                (Self::F32, Some("bf16 was asked for, but this CPU has no AMX tiles: computing in f32"))
            }
            Self::F16 => (Self::F16, Some("f16 operands are multiplied as f32 on this CPU: no faster than f32")),
            served => (served, None),
        }
    }
}

impl FromStr for Precision {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|precision| precision.name() == text);
        let known = Self::ALL.map(Self::name);
        found.ok_or_else(|| Error::unknown("precision", text, known, "f32, bf16, f16"))
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
    if tiles {
        half_a = Aligned::zeros(M * K);
        amx::rows_to_bf16(M, K, &a, K, &mut half_a, K);
        half_b = Aligned::zeros(amx::packed_len(1, K, N));
        amx::pack(1, K, N, &b, 0, N, 1, &mut half_b);
    }
    let mut best = f64::INFINITY;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(10) {
        let once = Instant::now();
        for _ in 0..8 {
            if tiles {
                amx::product(&p, &half_a, &half_b, gemm::Init::Zero, &mut c);
            } else {
                gemm::product_packed(backend, &p, &a, &b, gemm::Init::Zero, &mut c);
            }
        }
        best = best.min(once.elapsed().as_secs_f64() / 8.0);
    }
    std::hint::black_box(&c);
    2.0 * (M * N * K) as f64 / best * 1e-9
}

/// Rounds to the nearest f16 and back. Both slices have one length.
pub(super) fn round_to_f16(x: &[f32], out: &mut [f32]) {
    out.copy_from_slice(x);
    round_to_f16_in_place(out);
}

/// Rounds every element to the nearest f16.
pub(super) fn round_to_f16_in_place(x: &mut [f32]) {
    let mut words = [f16::ZERO; 64];
    for x in x.chunks_mut(64) {
        let words = &mut words[..x.len()];
        words.convert_from_f32_slice(x);
        words.convert_to_f32_slice(x);
    }
}
