//! Rewards by name, each a formula with its parts.
//!
//! Accuracies, improvements and contributions are in points (hundredths), α and shares in 0..1.

use super::lifecycle::{Op, Slot, Stage};
use serde::{Deserialize, Serialize};

/// Rewards by name, in the order of their numbers.
pub const REWARDS: &[&str] = &["shaped", "sparse", "simplified", "minimal", "basic", "escrow", "basic_plus", "area"];

/// Which reward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Attribution, shaping and costs at every epoch.
    Shaped,
    /// At the end: accuracy less parameters.
    Sparse,
    /// Shaping, a cost per action, accuracy and fossils at the end.
    Simplified,
    /// Gain of accuracy.
    Minimal,
    /// Gain of accuracy less rent.
    Basic,
    /// Credit of a seed, paid when it is fossilised.
    Escrow,
    /// Basic, and credit of fossils paid over time.
    BasicPlus,
    /// Accuracy of every epoch: the area under the curve of learning.
    Area,
}

impl Kind {
    /// The reward of this number in [`REWARDS`].
    pub fn from_index(index: u32) -> Self {
        const ALL: [Kind; REWARDS.len()] = [
            Kind::Shaped,
            Kind::Sparse,
            Kind::Simplified,
            Kind::Minimal,
            Kind::Basic,
            Kind::Escrow,
            Kind::BasicPlus,
            Kind::Area,
        ];
        ALL[index as usize % ALL.len()]
    }
}

/// The parts of a reward, which add up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// What seeds contribute.
    pub attribution: f32,
    /// Potentials of stages.
    pub shaping: f32,
    /// Interactions between seeds.
    pub synergy: f32,
    /// Parameters.
    pub rent: f32,
    /// Jumps of α.
    pub shock: f32,
    /// Slots in use.
    pub occupancy: f32,
    /// Operations.
    pub action: f32,
    /// Gain of accuracy, or accuracy itself where that is what is paid.
    pub gain: f32,
    /// What the episode's end pays.
    pub end: f32,
    /// A host that was set back.
    pub rollback: f32,
}

impl Parts {
    /// Their names and values.
    pub fn named(&self) -> [(&'static str, f32); 10] {
        [
            ("reward/attribution", self.attribution),
            ("reward/shaping", self.shaping),
            ("reward/synergy", self.synergy),
            ("reward/rent", self.rent),
            ("reward/shock", self.shock),
            ("reward/occupancy", self.occupancy),
            ("reward/action", self.action),
            ("reward/gain", self.gain),
            ("reward/end", self.end),
            ("reward/rollback", self.rollback),
        ]
    }

    /// Their sum.
    pub fn total(&self) -> f32 {
        self.named().iter().map(|(_, value)| value).sum()
    }
}

/// What an epoch is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Epoch<'a> {
    /// Slots before the operation, with what was measured then.
    pub before: &'a [Slot],
    /// Slots after the epoch.
    pub after: &'a [Slot],
    /// Epoch of each slot's germination.
    pub born: &'a [u32],
    /// The operation and its slot, if it was done.
    pub done: Option<(Op, usize)>,
    /// Validation accuracy before and after, in points.
    pub accuracy: [f32; 2],
    /// Parameters of the host and of all seeds.
    pub parameters: [usize; 2],
    /// Sum of interactions, in points.
    pub interactions: f32,
    /// Discount.
    pub gamma: f32,
    /// Whether the episode ends here.
    pub last: bool,
    /// Whether the host was set back.
    pub rolled_back: bool,
}

/// What a reward remembers between epochs: credit that is still to be paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    owed: f32,
}

/// Weight of a point of attribution.
const ATTRIBUTION: f32 = 0.1;
/// Share of attribution of a seed germinated at once, and the epoch from which on it is whole.
const TIMING: (f32, f32) = (0.4, 10.0);
/// Contribution over improvement above which a seed is suspected to have made itself needed, and what each unit costs.
const SUSPICIOUS: (f32, f32) = (5.0, 0.02);
/// Units beyond suspicion that count, at most.
const MOST_SUSPICIOUS: f32 = 10.0;
/// Weight of potential shaping.
const SHAPING: f32 = 0.3;
/// Potential of an epoch in a stage, and the most of it.
const STAY: (f32, f32) = (0.3, 2.0);
/// Weight of synergy.
const SYNERGY: f32 = 0.1;
/// Weight of rent, the least host that it is counted by, and the most of it.
const RENT: (f32, f32, f32) = (0.5, 200.0, 1.5);
/// Weight of squared jumps of α, and the most of it.
const SHOCK: (f32, f32) = (0.1958, 1.0);
/// Cost of each live seed beyond the first, and of each fossil.
const OCCUPANCY: (f32, f32) = (0.01, 0.002);
/// Price of germination, fossilisation and pruning.
const PRICES: [f32; 3] = [0.15, 0.01, 0.005];
/// Weight of a point of accuracy at the end, and of fossils: w·tanh(n/3).
const END: (f32, f32) = (0.05, 3.0);
/// Price of any operation in the simplified reward.
const SIMPLE_PRICE: f32 = 0.01;
/// Parameters that cost `0.1` in the sparse reward.
const SPARSE_PARAMETERS: f32 = 500_000.0;
/// Share of credit paid at once, the most paid per epoch after that, and what negative credit counts.
const DRIP: (f32, f32, f32) = (0.3, 0.1, 0.5);
/// Reward of a host that was set back.
const ROLLBACK: f32 = -10.0;

/// What a contribution c counts with an improvement p since germination: c if negative, 0 without improvement, the harmonic
/// mean if it claims more than that, else c.
pub fn attribution(c: f32, p: f32) -> f32 {
    if c < 0.0 {
        c
    } else if p <= 0.0 {
        0.0
    } else if c >= p {
        2.0 * p * c / (p + c)
    } else {
        c
    }
}

/// Potential of a slot.
pub fn potential(slot: &Slot) -> f32 {
    let of_stage = match slot.stage {
        Stage::Germinated => 1.0,
        Stage::Training => 2.0,
        Stage::Blending => 3.5,
        Stage::Holding => 5.5,
        Stage::Fossilised => return 6.0,
        _ => return 0.0,
    };
    of_stage + (STAY.0 * slot.in_stage as f32).min(STAY.1)
}

impl Epoch<'_> {
    fn fossils(&self) -> f32 {
        self.after.iter().filter(|slot| slot.stage == Stage::Fossilised).count() as f32
    }

    fn shaping(&self) -> f32 {
        let sum = |slots: &[Slot]| slots.iter().map(potential).sum::<f32>();
        // The potential of an end is 0, so that shaping changes no best policy (Ng, Harada & Russell, 1999).
        let after = if self.last { 0.0 } else { sum(self.after) };
        SHAPING * (self.gamma * after - sum(self.before))
    }

    fn rent(&self) -> f32 {
        let [host, seeds] = self.parameters.map(|count| count as f32);
        -(RENT.0 * (1.0 + seeds / host.max(RENT.1)).ln()).min(RENT.2)
    }

    fn price(&self) -> f32 {
        match self.done {
            Some((Op::Germinate, _)) => -PRICES[0],
            Some((Op::Fossilise, _)) => -PRICES[1],
            Some((Op::Prune, _)) => -PRICES[2],
            _ => 0.0,
        }
    }

    /// Attribution of one slot's seed as it was measured.
    fn of_slot(&self, slot: &Slot, born: u32) -> f32 {
        let Some(c) = slot.measured.contribution else { return 0.0 };
        let p = slot.measured.improvement.unwrap_or(0.0);
        let timing = (TIMING.0 + (1.0 - TIMING.0) * born as f32 / TIMING.1).min(1.0);
        let counted = attribution(c, p);
        let suspicion = if p > 0.0 { (c / p - SUSPICIOUS.0).clamp(0.0, MOST_SUSPICIOUS) } else { 0.0 };
        ATTRIBUTION * counted * timing - SUSPICIOUS.1 * suspicion
    }

    fn attribution(&self) -> f32 {
        let pruned = if let Some((Op::Prune, slot)) = self.done { Some(slot) } else { None };
        let mut sum = 0.0;
        for (i, slot) in self.after.iter().enumerate() {
            if pruned == Some(i) {
                sum -= self.of_slot(&self.before[i], self.born[i]);
            } else if slot.stage.is_live() {
                sum += self.of_slot(slot, self.born[i]);
            }
        }
        sum
    }

    fn end(&self) -> f32 {
        if self.last { END.0 * self.accuracy[1] + END.1 * (self.fossils() / 3.0).tanh() } else { 0.0 }
    }

    /// Contribution of a seed that was fossilised in this epoch, or a loss that pruning made final.
    fn credit(&self) -> f32 {
        let of = |slot: usize| self.before[slot].measured.contribution.unwrap_or(0.0) * ATTRIBUTION;
        match self.done {
            Some((Op::Fossilise, slot)) => of(slot),
            Some((Op::Prune, slot)) => of(slot).min(0.0),
            _ => 0.0,
        }
    }

    fn occupancy(&self) -> f32 {
        let live = self.after.iter().filter(|slot| slot.stage.is_live()).count() as f32;
        -OCCUPANCY.0 * (live - 1.0).max(0.0) - OCCUPANCY.1 * self.fossils()
    }

    /// The reward of this epoch.
    pub fn reward(&self, kind: Kind, ledger: &mut Ledger) -> Parts {
        let mut parts = Parts { rollback: if self.rolled_back { ROLLBACK } else { 0.0 }, ..Parts::default() };
        let gain = self.accuracy[1] - self.accuracy[0];
        match kind {
            Kind::Shaped => {
                let jumps = self.before.iter().zip(self.after).map(|(a, b)| (b.alpha.value - a.alpha.value).powi(2));
                parts.attribution = self.attribution();
                parts.shaping = self.shaping();
                parts.synergy = SYNERGY * (0.5 * self.interactions).tanh();
                parts.rent = self.rent();
                parts.shock = -(SHOCK.0 * jumps.sum::<f32>()).min(SHOCK.1);
                parts.occupancy = self.occupancy();
                parts.action = self.price();
                parts.end = self.end();
            }
            Kind::Sparse if self.last => {
                let cost = 0.1 * self.parameters[1] as f32 / SPARSE_PARAMETERS;
                parts.end = (self.accuracy[1] / 100.0 - cost).clamp(-1.0, 1.0);
            }
            Kind::Sparse => {}
            Kind::Simplified => {
                parts.shaping = self.shaping();
                parts.action = if self.done.is_some_and(|(op, _)| op != Op::Wait) { -SIMPLE_PRICE } else { 0.0 };
                parts.end = if self.last { 3.0 * self.accuracy[1] / 100.0 + 2.0 * self.fossils() } else { 0.0 };
            }
            Kind::Minimal => parts.gain = gain,
            Kind::Area => parts.gain = self.accuracy[1] / 100.0,
            Kind::Basic => (parts.gain, parts.rent) = (gain, self.rent()),
            Kind::Escrow => {
                parts.attribution = self.credit();
                (parts.rent, parts.occupancy) = (self.rent(), self.occupancy());
                (parts.action, parts.end) = (self.price(), self.end());
            }
            Kind::BasicPlus => {
                (parts.gain, parts.rent) = (gain, self.rent());
                let credit = self.credit();
                let credit = if credit < 0.0 { credit * DRIP.2 } else { credit };
                let drip = ledger.owed.clamp(-DRIP.1, DRIP.1);
                ledger.owed += credit * (1.0 - DRIP.0) - drip;
                parts.attribution = credit * DRIP.0 + drip;
            }
        }
        parts
    }
}
