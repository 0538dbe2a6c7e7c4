//! A seed's life: stages, the gates between them, and which operations a slot allows. Nothing here knows of networks.
//!
//! Invariant: a slot's stage changes only along [`Stage::may_become`]; what was not measured is never healthy.

use super::alpha::{Alpha, Curve, Mode};
use serde::{Deserialize, Serialize};

/// Where a slot is in the life of its seed; numbers are those of observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Nothing is here.
    #[default]
    Dormant = 1,
    /// A seed was put here; it trains from the next epoch on.
    Germinated = 2,
    /// It trains unheard, α = 0, its input detached.
    Training = 3,
    /// Its α is on its way.
    Blending = 4,
    /// Fully heard, on trial.
    Holding = 6,
    /// Part of the network for good.
    Fossilised = 7,
    /// Just taken out.
    Pruned = 8,
    /// Nothing may be put here for a while.
    Embargoed = 9,
    /// About to be dormant again.
    Resetting = 10,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Dormant,
        Self::Germinated,
        Self::Training,
        Self::Blending,
        Self::Holding,
        Self::Fossilised,
        Self::Pruned,
        Self::Embargoed,
        Self::Resetting,
    ];

    /// Whether a slot may go from here to there.
    pub fn may_become(self, next: Self) -> bool {
        use Stage::*;
        matches!(
            (self, next),
            (Dormant, Germinated)
                | (Germinated, Training | Pruned)
                | (Training, Blending | Pruned)
                | (Blending, Holding | Pruned)
                | (Holding, Fossilised | Blending | Pruned)
                | (Pruned, Embargoed)
                | (Embargoed, Resetting)
                | (Resetting, Dormant)
        )
    }

    /// Whether there is a seed that may still be taken out.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Germinated | Self::Training | Self::Blending | Self::Holding)
    }

    /// Whether another seed must wait: young ones, and slots that are being cleaned up.
    pub fn is_busy(self) -> bool {
        matches!(self, Self::Germinated | Self::Training | Self::Pruned | Self::Embargoed | Self::Resetting)
    }

    /// Its name in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dormant => "dormant",
            Self::Germinated => "germinated",
            Self::Training => "training",
            Self::Blending => "blending",
            Self::Holding => "holding",
            Self::Fossilised => "fossilised",
            Self::Pruned => "pruned",
            Self::Embargoed => "embargoed",
            Self::Resetting => "resetting",
        }
    }
}

/// What a controller may do; numbers are those of the first head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Nothing.
    Wait,
    /// Put a seed into a slot.
    Germinate,
    /// Send α elsewhere.
    SetAlpha,
    /// Take a seed out.
    Prune,
    /// Keep it for good.
    Fossilise,
    /// On to the next stage.
    Advance,
}

impl Op {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Wait, "wait"),
        (Self::Germinate, "germinate"),
        (Self::SetAlpha, "set_alpha"),
        (Self::Prune, "prune"),
        (Self::Fossilise, "fossilise"),
        (Self::Advance, "advance"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What is known of a seed; `None` where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Validation accuracy now less that at germination, in points.
    pub improvement: Option<f32>,
    /// Size of the seed's gradient over the host's.
    pub gradient_ratio: Option<f32>,
    /// 1 − |log₁₀ ratio|/4, at least 0.
    pub health: Option<f32>,
    /// The same one epoch before.
    pub previous_health: Option<f32>,
    /// Accuracy with all seeds as they are less that without this one, in points.
    pub contribution: Option<f32>,
    /// Its change over the last epoch.
    pub velocity: Option<f32>,
    /// Epochs since the contribution was measured.
    pub stale: u32,
    /// Interactions with other seeds that are heard, in points: mean, largest, smallest.
    pub interactions: Option<[f32; 3]>,
    /// Shares of those that help (above 0.5 points) and that hinder (below −0.5).
    pub synergy: Option<[f32; 2]>,
}

/// Health below which a gradient is astray: a hundred times larger or smaller than the host's.
const SICK: f32 = 0.5;
/// Least health of a seed that counts as healthy.
const HEALTHY: f32 = 0.7;
/// A gradient ratio above this explodes.
const EXPLODING: f32 = 100.0;

impl Measured {
    /// Notes the gradient of this epoch.
    pub fn note_gradient(&mut self, ratio: Option<f32>) {
        self.previous_health = self.health;
        self.gradient_ratio = ratio.filter(|ratio| ratio.is_finite());
        self.health = self.gradient_ratio.map(|ratio| (1.0 - ratio.max(1e-9).log10().abs() / 4.0).max(0.0));
    }

    /// Whether its gradient went astray in this epoch: health was at least half of all, and is no longer.
    pub fn sickened(&self) -> bool {
        let [now, before] = [self.health, self.previous_health].map(|health| health.map(|health| health >= SICK));
        now == Some(false) && before == Some(true)
    }

    /// Measured, not exploding, and near enough to the host's gradient.
    pub fn is_healthy(&self) -> bool {
        self.gradient_ratio.is_some_and(|ratio| ratio <= EXPLODING) && self.health.is_some_and(|h| h >= HEALTHY)
    }
}

/// What gates ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gates {
    /// Whether improvement and contribution are asked for, beside health.
    pub strict: bool,
    /// Epochs in a stage before the gate behind it opens.
    pub min_epochs: u32,
    /// Epochs before a seed may be taken out.
    pub prune_age: u32,
    /// Epochs of an embargo.
    pub embargo: u32,
}

/// Least improvement that opens the strict gate into blending, in points.
const MIN_IMPROVEMENT: f32 = 0.5;
/// Least ratio of gradients that opens the strict gate into blending.
const MIN_RATIO: f32 = 0.10;
/// Least contribution that opens the strict gate into fossilisation, in points.
const MIN_CONTRIBUTION: f32 = 1.0;

/// A slot and the seed in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// Where it is.
    pub stage: Stage,
    /// Epochs in this stage.
    pub in_stage: u32,
    /// Epochs since germination.
    pub age: u32,
    /// α.
    pub alpha: Alpha,
    /// α falls so that the seed can be taken out.
    pub pruning: bool,
    /// Ticks of the way into the network, chosen at germination.
    pub tempo: u32,
    /// α that this way ends at.
    pub first_target: f32,
    /// Its shape.
    pub first_curve: Option<Curve>,
    /// What is known of the seed.
    pub measured: Measured,
}

impl Slot {
    /// Changes the stage. Panics on a change that no seed's life has: a mistake of this program.
    pub fn go(&mut self, next: Stage) {
        assert!(self.stage.may_become(next), "a seed went from {} to {}", self.stage.name(), next.name());
        (self.stage, self.in_stage) = (next, 0);
    }

    /// Gate 2, from training into blending.
    pub fn may_blend(&self, gates: &Gates) -> bool {
        let m = &self.measured;
        let old_enough = self.in_stage >= gates.min_epochs;
        if gates.strict {
            let improved = m.improvement.is_some_and(|points| points >= MIN_IMPROVEMENT);
            old_enough && improved && m.gradient_ratio.is_some_and(|ratio| (MIN_RATIO..=EXPLODING).contains(&ratio))
        } else {
            old_enough && m.is_healthy()
        }
    }

    /// Gate 3, from blending into holding: α has come to 1 and stays.
    pub fn may_hold(&self, gates: &Gates) -> bool {
        let there = self.alpha.mode == Mode::Hold && self.alpha.value == 1.0 && !self.pruning;
        there && (!gates.strict || self.in_stage >= gates.min_epochs)
    }

    /// Gate 5, from holding into fossilisation.
    pub fn may_fossilise(&self, gates: &Gates) -> bool {
        let m = &self.measured;
        m.is_healthy() && m.contribution.is_some_and(|points| !gates.strict || points >= MIN_CONTRIBUTION)
    }

    /// Whether an operation can be done here now, as far as this slot knows.
    pub fn allows(&self, op: Op, gates: &Gates) -> bool {
        let holds = self.alpha.mode == Mode::Hold && !self.pruning;
        match op {
            Op::Wait => true,
            Op::Germinate => self.stage == Stage::Dormant,
            Op::SetAlpha => self.stage == Stage::Blending && holds,
            Op::Prune => self.stage.is_live() && self.age >= gates.prune_age && holds,
            Op::Fossilise => self.stage == Stage::Holding && holds && self.may_fossilise(gates),
            Op::Advance => match self.stage {
                Stage::Training => self.may_blend(gates),
                Stage::Blending => self.may_hold(gates),
                _ => false,
            },
        }
    }

    /// Takes the seed out now.
    pub fn remove(&mut self) {
        self.go(Stage::Pruned);
        *self = Self { stage: self.stage, ..Self::default() };
    }

    /// One epoch on: α moves, and stages that end by themselves end. Tells whether the seed is to be taken out now.
    pub fn tick(&mut self, gates: &Gates) -> bool {
        self.in_stage += 1;
        self.age += u32::from(self.stage.is_live());
        self.alpha.tick();
        match self.stage {
            Stage::Germinated => self.go(Stage::Training),
            Stage::Blending if self.pruning && self.alpha.mode == Mode::Hold => {
                self.remove();
                return true;
            }
            Stage::Pruned => self.go(Stage::Embargoed),
            Stage::Embargoed if self.in_stage >= gates.embargo => self.go(Stage::Resetting),
            Stage::Resetting => self.go(Stage::Dormant),
            _ => {}
        }
        false
    }
}

/// Which slots allow an operation: what each knows of itself, and for a germination what the others do.
pub fn allowed(slots: &[Slot], op: Op, gates: &Gates) -> impl Iterator<Item = bool> {
    let waits = op == Op::Germinate && slots.iter().any(|slot| slot.stage.is_busy());
    slots.iter().map(move |slot| !waits && slot.allows(op, gates))
}
