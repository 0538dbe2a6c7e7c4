//! How much of a seed is heard: α on its way from one value to another.

use serde::{Deserialize, Serialize};

/// The shape of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Curve {
    /// t.
    Linear,
    /// ½(1 − cos πt).
    Cosine,
    /// A sigmoid of steepness 6, scaled so that it goes from 0 to 1.
    Sigmoid6,
    /// The same of steepness 12.
    Sigmoid12,
    /// The same of steepness 24.
    Sigmoid24,
}

impl Curve {
    /// All of them, in the order of the controller's choices.
    pub const ALL: [Self; 5] = [Self::Linear, Self::Cosine, Self::Sigmoid6, Self::Sigmoid12, Self::Sigmoid24];

    /// From 0 at t = 0 to 1 at t = 1, never falling.
    pub fn at(self, t: f32) -> f32 {
        let sigmoid = |steepness: f32| {
            let s = |t: f32| 1.0 / (1.0 + (-steepness * (t - 0.5)).exp());
            (s(t) - s(0.0)) / (s(1.0) - s(0.0))
        };
        match self {
            Self::Linear => t,
            Self::Cosine => 0.5 * (1.0 - (std::f32::consts::PI * t).cos()),
            Self::Sigmoid6 => sigmoid(6.0),
            Self::Sigmoid12 => sigmoid(12.0),
            Self::Sigmoid24 => sigmoid(24.0),
        }
    }
}

/// What α is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// It stays.
    Hold,
    /// It rises.
    Up,
    /// It falls.
    Down,
}

/// α and its way. Invariant: between `start` and `target`, and at `target` to the bit when it holds after a way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alpha {
    /// Now.
    pub value: f32,
    /// Where the way began.
    pub start: f32,
    /// Where it ends.
    pub target: f32,
    /// Ticks so far.
    pub tick: u32,
    /// Ticks of the whole way.
    pub ticks: u32,
    /// Its shape.
    pub curve: Curve,
    /// What it is doing.
    pub mode: Mode,
}

impl Default for Alpha {
    /// 0, and stays there.
    fn default() -> Self {
        Self { value: 0.0, start: 0.0, target: 0.0, tick: 0, ticks: 0, curve: Curve::Linear, mode: Mode::Hold }
    }
}

impl Alpha {
    /// Sets out for another value, or is there at once if `ticks` is 0. Only from hold: else nothing happens, and it says so.
    pub fn retarget(&mut self, target: f32, ticks: u32, curve: Curve) -> bool {
        if self.mode != Mode::Hold {
            return false;
        }
        let mode = if target > self.value { Mode::Up } else { Mode::Down };
        *self = Self { value: self.value, start: self.value, target, tick: 0, ticks, curve, mode };
        if ticks == 0 || target == self.value {
            (self.value, self.mode) = (target, Mode::Hold);
        }
        true
    }

    /// One epoch on.
    pub fn tick(&mut self) {
        if self.mode == Mode::Hold {
            return;
        }
        self.tick += 1;
        if self.tick >= self.ticks {
            (self.value, self.mode) = (self.target, Mode::Hold);
        } else {
            let share = self.curve.at(self.tick as f32 / self.ticks as f32);
            self.value = self.start + (self.target - self.start) * share;
        }
    }
}
