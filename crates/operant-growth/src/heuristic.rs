//! The controller to beat: waits for plateaus, germinates the blueprint with the least penalty, keeps what contributes.

use super::episode::{Choice, Episode};
use super::lifecycle::{Op, Stage};
use operant_base::{Error, Result};
use operant_nn::grow::Blueprint;
use serde::{Deserialize, Serialize};

/// Epochs without progress that make a plateau.
const PLATEAU: u32 = 3;
/// Gain of validation accuracy that counts as progress, in points.
const PROGRESS: f32 = 0.5;
/// Contribution from which on a seed is kept, in points.
const WORTH_KEEPING: f32 = 1.0;
/// Epochs of holding that a seed has to prove itself.
const PATIENCE: u32 = 5;
/// What a blueprint is penalised by when its seed is pruned, and how penalties fade at each germination.
const PENALTY: (f32, f32) = (2.0, 0.5);
/// Blueprints in the order of preference: what helps small convolutional hosts first.
const ORDER: [Blueprint; 6] = [
    Blueprint::ConvHeavy,
    Blueprint::ConvLight,
    Blueprint::Depthwise,
    Blueprint::Bottleneck,
    Blueprint::ConvSmall,
    Blueprint::SeAttention,
];
/// The same for hosts that read text.
const ORDER_OF_TOKENS: [Blueprint; ORDER.len()] = [
    Blueprint::Mlp,
    Blueprint::FlexAttention,
    Blueprint::MlpSmall,
    Blueprint::Lora32,
    Blueprint::Lora8,
    Blueprint::SeAttention,
];

/// What the heuristic remembers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heuristic {
    best: f32,
    waited: u32,
    penalties: [f32; ORDER.len()],
    /// The blueprint of each slot's last germination, as a place in the order.
    chosen: Vec<usize>,
}

impl Heuristic {
    /// For an episode of so many slots.
    pub fn new(slots: usize) -> Self {
        Self { best: 0.0, waited: 0, penalties: [0.0; ORDER.len()], chosen: vec![0; slots] }
    }

    /// What it remembers, in JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers are JSON")
    }

    /// Reads [`Heuristic::to_json`].
    pub fn from_json(text: &str) -> Result<Self> {
        let damaged = |error| Error::Saved(format!("the memory of the heuristic is damaged: {error}; save it again"));
        serde_json::from_str(text).map_err(damaged)
    }

    /// What to do next.
    pub fn choose(&mut self, episode: &Episode) -> Choice {
        let accuracy = episode.accuracy();
        if accuracy >= self.best + PROGRESS {
            (self.best, self.waited) = (accuracy, 0);
        } else {
            self.waited += 1;
        }
        let of = |op: Op, slot: usize| Choice { op: op as usize, slot, ..Choice::default() };
        let slots = &episode.state.slots;
        for (slot, state) in slots.iter().enumerate().filter(|(_, state)| state.stage == Stage::Holding) {
            let worth = state.measured.contribution.unwrap_or(0.0);
            if worth >= WORTH_KEEPING && episode.allowed(Op::Fossilise)[slot] {
                return of(Op::Fossilise, slot);
            }
            if state.in_stage >= PATIENCE && worth < WORTH_KEEPING && episode.allowed(Op::Prune)[slot] {
                self.penalties[self.chosen[slot]] += PENALTY.0;
                return Choice { speed: 1, ..of(Op::Prune, slot) };
            }
        }
        if let Some(slot) = episode.allowed(Op::Advance).iter().position(|allowed| *allowed) {
            return of(Op::Advance, slot);
        }
        if self.waited < PLATEAU {
            return Choice::default();
        }
        let free = episode.allowed(Op::Germinate);
        let order = if episode.host().reads_tokens() { ORDER_OF_TOKENS } else { ORDER };
        let pick = |slot: usize| {
            let fits: Vec<bool> = episode.blueprints(slot).collect();
            let affordable = (0..order.len()).filter(|&i| fits[order[i].index()]);
            Some((slot, affordable.min_by(|&a, &b| self.penalties[a].total_cmp(&self.penalties[b]))?))
        };
        // The deepest slot that is free and not too dear: its seed sees the most.
        let Some((slot, pick)) = (0..free.len()).rev().filter(|&slot| free[slot]).find_map(pick) else {
            return Choice::default();
        };
        self.penalties.iter_mut().for_each(|penalty| *penalty *= PENALTY.1);
        (self.chosen[slot], self.waited) = (pick, 0);
        Choice { blueprint: order[pick].index(), tempo: 1, target: 2, ..of(Op::Germinate, slot) }
    }
}
