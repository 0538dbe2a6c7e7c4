//! The watch over a host's training: says when its loss shows that it must be set back.

use serde::{Deserialize, Serialize};

/// Losses that are remembered.
const WINDOW: usize = 20;
/// Least losses before any of them is judged by the others.
const LEAST: usize = 10;
/// Loss below which nothing counts as divergence.
const HIGH: f32 = 12.0;
/// Standard deviations above the mean that count as divergence.
const SIGMAS: f32 = 6.0;
/// Multiples of the mean that count as divergence.
const MULTIPLE: f32 = 3.0;
/// Bad checks in a row before a divergence is believed.
const IN_A_ROW: u32 = 3;
/// Share of ln C below which a mean loss has clearly learned something.
const LEARNED: f32 = 0.6;
/// Distance from ln C, as a share of it, that counts as chance.
const CHANCE: f32 = 0.065;

/// Why a host is set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Panic {
    /// A loss or gradient is no number.
    NotFinite,
    /// What had learned is back at chance.
    Collapse,
    /// The loss grew far beyond what it was, and stayed there.
    Divergence,
}

impl Panic {
    /// Its name in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotFinite => "not finite",
            Self::Collapse => "collapse to chance",
            Self::Divergence => "divergence",
        }
    }
}

/// What is remembered of losses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Governor {
    losses: Vec<f32>,
    bad: u32,
}

impl Governor {
    /// Looks at the loss of an epoch; a bad one is not remembered.
    pub fn look(&mut self, loss: f32, finite: bool, classes: usize) -> Option<Panic> {
        if !finite || !loss.is_finite() {
            return Some(self.panic(Panic::NotFinite));
        }
        let count = self.losses.len() as f32;
        if self.losses.len() >= LEAST {
            let mean = self.losses.iter().sum::<f32>() / count;
            let variance = self.losses.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / count;
            let chance = (classes as f32).ln();
            if mean < LEARNED * chance && (loss - chance).abs() <= CHANCE * chance {
                return Some(self.panic(Panic::Collapse));
            }
            if loss > HIGH && loss > mean + SIGMAS * variance.sqrt() && loss > MULTIPLE * mean {
                self.bad += 1;
                return (self.bad >= IN_A_ROW).then(|| self.panic(Panic::Divergence));
            }
        }
        self.bad = 0;
        if self.losses.len() == WINDOW {
            self.losses.remove(0);
        }
        self.losses.push(loss);
        None
    }

    /// Whether the last look found nothing to worry about.
    pub fn is_calm(&self) -> bool {
        self.bad == 0
    }

    fn panic(&mut self, panic: Panic) -> Panic {
        self.bad = 0;
        panic
    }
}
