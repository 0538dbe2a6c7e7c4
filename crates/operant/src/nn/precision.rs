//! What products read: f32, or operands rounded to bf16 or f16 with sums in f32.

use crate::device::gemm::amx;
use crate::{Error, Result};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::str::FromStr;

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
