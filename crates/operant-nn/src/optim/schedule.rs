//! Numbers that change as training goes on: learning rates, entropy bonuses, clipping ranges.

use operant_lanes::{Float, Lanes, Scalar};

/// A number as a function of progress.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// Always the same.
    Constant(f32),
    /// In a straight line.
    Linear {
        /// At the start.
        from: f32,
        /// At the end, and after it.
        to: f32,
    },
    /// Half a period of a cosine (Loshchilov & Hutter, "SGDR", 2016).
    Cosine {
        /// At the start.
        from: f32,
        /// At the end, and after it.
        to: f32,
    },
    /// Rises in a straight line to where `then` starts, which it reaches at the last of `steps`; `then` has what is left.
    WarmUp {
        /// Steps of the rise.
        steps: u64,
        /// What follows.
        then: Box<Schedule>,
    },
}

impl Schedule {
    /// The value for step number `step` of `total`, counted from 0.
    pub fn at(&self, step: u64, total: u64) -> f32 {
        let progress = if total == 0 { 1.0 } else { (step as f64 / total as f64).min(1.0) };
        match self {
            Self::Constant(value) => *value,
            Self::Linear { from, to } => mix(*from, *to, progress),
            Self::Cosine { from, to } => {
                let angle = <Scalar as Lanes>::F::from((progress * std::f64::consts::PI) as f32);
                mix(*from, *to, 0.5 - 0.5 * f64::from(angle.cos().get()))
            }
            Self::WarmUp { steps, then } if step < *steps => {
                (f64::from(then.at(0, total.saturating_sub(*steps))) * ((step + 1) as f64 / *steps as f64)) as f32
            }
            Self::WarmUp { steps, then } => then.at(step - steps, total.saturating_sub(*steps)),
        }
    }
}

fn mix(from: f32, to: f32, share: f64) -> f32 {
    (f64::from(from) + (f64::from(to) - f64::from(from)) * share) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_along_the_way() {
        let linear = Schedule::Linear { from: 3e-4, to: 0.0 };
        assert_eq!(
            (linear.at(0, 100), linear.at(50, 100), linear.at(100, 100), linear.at(200, 100)),
            (3e-4, 1.5e-4, 0.0, 0.0)
        );
        let cosine = Schedule::Cosine { from: 1.0, to: 0.1 };
        for (step, wanted) in [(0, 1.0), (25, 0.1 + 0.9 * 0.853_553_4), (50, 0.55), (100, 0.1)] {
            assert!((cosine.at(step, 100) - wanted).abs() < 1e-6, "{step}");
        }
        let warm = Schedule::WarmUp { steps: 10, then: Box::new(Schedule::Linear { from: 1.0, to: 0.0 }) };
        let values = [0, 4, 9, 10, 60, 110].map(|step| warm.at(step, 110));
        assert_eq!(values, [0.1, 0.5, 1.0, 1.0, 0.5, 0.0]);
        assert_eq!(Schedule::Constant(0.2).at(7, 0), 0.2);
    }
}
