//! The factor of a loss whose gradients are computed in f16, so that small ones do not vanish (Micikevicius et al., 2017).

use operant_base::{Error, Result};

/// Scale at the start.
const START: f32 = 65_536.0;
/// Steps without overflow after which the scale is doubled.
const PATIENCE: u32 = 2_000;
/// Where doubling ends: gradients that are all 0 would let it go on for ever.
const MOST: f32 = 4_294_967_296.0;

/// A scale that finds the largest power of two whose gradients do not overflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    scale: f32,
    good_steps: u32,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: START, good_steps: 0 }
    }
}

impl LossScale {
    /// What to multiply the loss by.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Tells whether the last gradients were finite: halves the scale, down to 1, if not; doubles it after 2,000 that were.
    pub fn update(&mut self, finite: bool) {
        if !finite {
            *self = Self { scale: (self.scale / 2.0).max(1.0), good_steps: 0 };
            return;
        }
        self.good_steps += 1;
        if self.good_steps == PATIENCE {
            *self = Self { scale: (self.scale * 2.0).min(MOST), good_steps: 0 };
        }
    }

    /// All there is to it.
    pub fn to_bytes(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.scale.to_le_bytes());
        bytes[4..].copy_from_slice(&self.good_steps.to_le_bytes());
        bytes
    }

    /// Takes back what [`LossScale::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let read = |bytes: &[u8; 8]| {
            let (scale, good_steps) = (bytes[..4].try_into().ok()?, bytes[4..].try_into().ok()?);
            let read = Self { scale: f32::from_le_bytes(scale), good_steps: u32::from_le_bytes(good_steps) };
            ((1.0..=MOST).contains(&read.scale) && read.good_steps < PATIENCE).then_some(read)
        };
        bytes.try_into().ok().and_then(read).ok_or_else(|| {
            Error::Saved(format!("saved loss scale is damaged ({} bytes); load what to_bytes() gave", bytes.len()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_halves_and_stays_in_range() {
        let mut scale = LossScale::default();
        (0..PATIENCE - 1).for_each(|_| scale.update(true));
        assert_eq!(scale.scale(), 65_536.0);
        let saved = LossScale::from_bytes(&scale.to_bytes()).unwrap();
        assert_eq!(saved, scale);
        scale.update(true);
        assert_eq!(scale.scale(), 131_072.0);
        scale.update(false);
        assert_eq!(scale.scale(), 65_536.0);
        (0..PATIENCE - 1).for_each(|_| scale.update(true));
        scale.update(false);
        (0..PATIENCE - 1).for_each(|_| scale.update(true));
        assert_eq!(scale.scale(), 32_768.0, "an overflow starts the count again");
        (0..40).for_each(|_| scale.update(false));
        assert_eq!(scale.scale(), 1.0);
        (0..100 * PATIENCE).for_each(|_| scale.update(true));
        assert_eq!(scale.scale(), MOST);
        assert!(LossScale::from_bytes(&[0; 8]).is_err() && LossScale::from_bytes(&[0; 7]).is_err());
    }
}
