//! What an episode shows: observations, masks of choices, and what it tells its run.

use super::alpha::Mode;
use super::episode::{Episode, HISTORY, Happened};
use super::lifecycle::{Op, Stage};
use super::{EMBEDDING, Told};
use operant_base::telemetry::EventKind;
use operant_nn::grow::Blueprint;

/// A name of each slot's number.
macro_rules! slot_numbers {
    ($what:literal) => {
        slot_numbers!($what; "0" "1" "2" "3" "4" "5" "6" "7" "8" "9")
    };
    ($what:literal; $($slot:literal)*) => {
        [$(concat!("slot/", $slot, "/", $what)),*]
    };
}

/// Names of numbers that are told: shares of operations that were done, and of each slot its α and what its seed contributes.
const DONE: [&str; 6] = ["op/wait", "op/germinate", "op/set_alpha", "op/prune", "op/fossilise", "op/advance"];
const ALPHAS: [&str; 10] = slot_numbers!("alpha");
const CONTRIBUTIONS: [&str; 10] = slot_numbers!("contribution");
const SHAPLEYS: [&str; 10] = slot_numbers!("shapley");
const SHAPLEY_ERRORS: [&str; 10] = slot_numbers!("shapley_error");
/// Names of the interactions of two slots' seeds: those of a host with n slots are the first n·(n − 1)/2.
const INTERACTIONS: [&str; 45] = [
    "interaction/0-1",
    "interaction/0-2",
    "interaction/1-2",
    "interaction/0-3",
    "interaction/1-3",
    "interaction/2-3",
    "interaction/0-4",
    "interaction/1-4",
    "interaction/2-4",
    "interaction/3-4",
    "interaction/0-5",
    "interaction/1-5",
    "interaction/2-5",
    "interaction/3-5",
    "interaction/4-5",
    "interaction/0-6",
    "interaction/1-6",
    "interaction/2-6",
    "interaction/3-6",
    "interaction/4-6",
    "interaction/5-6",
    "interaction/0-7",
    "interaction/1-7",
    "interaction/2-7",
    "interaction/3-7",
    "interaction/4-7",
    "interaction/5-7",
    "interaction/6-7",
    "interaction/0-8",
    "interaction/1-8",
    "interaction/2-8",
    "interaction/3-8",
    "interaction/4-8",
    "interaction/5-8",
    "interaction/6-8",
    "interaction/7-8",
    "interaction/0-9",
    "interaction/1-9",
    "interaction/2-9",
    "interaction/3-9",
    "interaction/4-9",
    "interaction/5-9",
    "interaction/6-9",
    "interaction/7-9",
    "interaction/8-9",
];

/// What is not known, in an observation.
const UNKNOWN: f32 = -1.0;

/// sign(x)·ln(1 + |x|), over 7.
fn symlog(x: f32) -> f32 {
    x.signum() * (1.0 + x.abs()).ln() / 7.0
}

/// Points, or −1 to 1 for contributions and interactions.
fn points(x: Option<f32>) -> f32 {
    x.map_or(UNKNOWN, |x| (x / 100.0).clamp(-1.0, 1.0))
}

/// Four numbers that say what a blueprint is: size, and whether it mixes places, mixes channels, and attends.
fn embedding(blueprint: Blueprint, parameters: usize) -> [f32; 4] {
    use Blueprint::*;
    let places = matches!(blueprint, ConvLight | Depthwise | Bottleneck | ConvHeavy | FlexAttention);
    let channels = !matches!(blueprint, Noop | Norm | SeAttention);
    let attends = matches!(blueprint, SeAttention | FlexAttention);
    let flag = |holds: bool| f32::from(u8::from(holds));
    [((1 + parameters) as f32).log10() / 6.0, flag(places), flag(channels), flag(attends)]
}

impl Episode {
    /// Writes what a controller sees.
    pub fn observe(&self, obs: &mut [f32]) {
        let state = &self.state;
        let mut all = obs.iter_mut();
        let mut put = |x: f32| {
            if let Some(place) = all.next() {
                *place = if x.is_finite() { x.clamp(-2.0, 2.0) } else { UNKNOWN };
            }
        };
        put(state.epoch as f32 / self.frame.rules.epochs as f32);
        put(symlog(self.loss()));
        put(self.accuracy() / 100.0);
        for which in 0..2 {
            for ago in (0..HISTORY).rev() {
                let known = state.history.len().checked_sub(1 + ago).map(|at| state.history[at][which]);
                put(known.map_or(UNKNOWN, |x| if which == 0 { symlog(x) } else { x / 100.0 }));
            }
        }
        for stage in [Stage::Training, Stage::Blending, Stage::Holding] {
            put(state.slots.iter().filter(|slot| slot.stage == stage).count() as f32 / state.slots.len() as f32);
        }
        put(f32::from(u8::from(state.last.1)));
        Op::ALL.iter().for_each(|(op, _)| put(f32::from(u8::from(*op == state.last.0))));
        for (slot, planted) in state.slots.iter().zip(&state.planted) {
            let (m, alpha) = (&slot.measured, &slot.alpha);
            (1..=10).for_each(|stage| put(f32::from(u8::from(stage == slot.stage as u32))));
            put(alpha.value);
            put(points(m.contribution));
            put(points(m.velocity));
            put(if slot.tempo == 0 { UNKNOWN } else { slot.tempo as f32 / 8.0 });
            [Mode::Hold, Mode::Up, Mode::Down].iter().for_each(|mode| put(f32::from(u8::from(*mode == alpha.mode))));
            put(alpha.start);
            put(alpha.target);
            put(if alpha.ticks == 0 { 1.0 } else { alpha.tick as f32 / alpha.ticks as f32 });
            put(alpha.ticks as f32 / 8.0);
            put(alpha.curve as u32 as f32 / 4.0);
            put(m.health.unwrap_or(UNKNOWN));
            put(m.previous_health.unwrap_or(UNKNOWN));
            put(slot.age as f32 / self.frame.rules.epochs as f32);
            put(if m.contribution.is_some() { 1.0 / (1.0 + m.stale as f32) } else { UNKNOWN });
            (0..3).for_each(|i| put(points(m.interactions.map(|all| all[i]))));
            (0..2).for_each(|i| put(m.synergy.map_or(UNKNOWN, |all| all[i])));
            let known = planted.map(|planted| embedding(Blueprint::ALL[planted.blueprint].0, planted.parameters));
            known.unwrap_or([UNKNOWN; EMBEDDING]).into_iter().for_each(&mut put);
        }
    }

    /// Operations that some slot allows, slots that allow one of them, blueprints that fit into one; the rest is free.
    pub fn legal(&self, legal: &mut [u8]) {
        legal.fill(1);
        let (ops, rest) = legal.split_at_mut(Op::ALL.len());
        let (slots, rest) = rest.split_at_mut(self.state.slots.len());
        let blueprints = &mut rest[..Blueprint::ALL.len()];
        slots.fill(0);
        for (place, (op, _)) in ops.iter_mut().zip(Op::ALL).skip(1) {
            let allowed = self.allowed(op);
            *place = u8::from(allowed.contains(&true));
            slots.iter_mut().zip(&allowed).for_each(|(slot, allowed)| *slot |= u8::from(*allowed));
        }
        if !slots.contains(&1) {
            slots.fill(1);
        }
        let free = self.allowed(Op::Germinate);
        blueprints.fill(0);
        for slot in (0..free.len()).filter(|&slot| free[slot]) {
            blueprints.iter_mut().zip(self.blueprints(slot)).for_each(|(place, fits)| *place |= u8::from(fits));
        }
        // Where nothing can germinate the choice is without effect; one is left, so that no head is empty.
        if !blueprints.contains(&1) {
            blueprints[Blueprint::ConvSmall.index()] = 1;
        }
    }

    /// Changes of stages, rollbacks, what seeds are worth when one is kept or taken out, gradients that went astray, and at the
    /// end what was reached; parts of rewards, operations and slots as numbers.
    pub(super) fn tell(&self, told: &mut Told) {
        let state = &self.state;
        for happened in &state.happened {
            let (kind, text) = match happened {
                Happened::Stage { slot, from, to, blueprint } => {
                    let what = blueprint.map_or("", |number| Blueprint::ALL[number].1);
                    let text = format!("epoch {}, slot {slot}: {} to {} {what}", state.epoch, from.name(), to.name());
                    (EventKind::Lifecycle, text.trim_end().to_owned())
                }
                Happened::Rollback(panic) => (EventKind::Rollback, format!("epoch {}: {}", state.epoch, panic.name())),
            };
            told.event(kind, text);
        }
        let decided =
            |happened: &Happened| matches!(happened, Happened::Stage { to: Stage::Fossilised | Stage::Pruned, .. });
        if state.happened.iter().any(decided) && !state.worth.shapley.is_empty() {
            told.event(EventKind::Worth, format!("epoch {}: {}", state.epoch, state.worth));
        }
        for (slot, of) in state.slots.iter().enumerate().filter(|(_, of)| of.stage.is_live() && of.measured.sickened())
        {
            let ratio = of.measured.gradient_ratio.unwrap_or(f32::NAN);
            let text =
                format!("epoch {}, slot {slot}: its seed's gradient is {ratio:.1e} times the host's", state.epoch);
            told.event(EventKind::GradientAnomaly, text);
        }
        let began = state.epoch == 0;
        for (name, part) in state.parts.named() {
            told.number(name, (!began).then_some(part));
        }
        for (name, (op, _)) in DONE.iter().zip(Op::ALL) {
            told.number(name, (!began).then(|| f32::from(u8::from(state.last == (op, true)))));
        }
        for (slot, of) in state.slots.iter().enumerate() {
            told.number(ALPHAS[slot], (!began).then_some(of.alpha.value));
            told.number(CONTRIBUTIONS[slot], of.measured.contribution.filter(|_| of.alpha.value > 0.0));
            let worth = state.worth.of(slot);
            told.number(SHAPLEYS[slot], worth.map(|(value, _)| value));
            told.number(SHAPLEY_ERRORS[slot], worth.and_then(|(_, error)| error));
        }
        let pairs = (0..state.slots.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
        for (name, (i, j)) in INTERACTIONS.iter().zip(pairs) {
            told.number(name, state.worth.between(i, j));
        }
        let ended = state.epoch >= self.frame.rules.epochs;
        let fossils = state.slots.iter().filter(|slot| slot.stage == Stage::Fossilised).count();
        let (accuracy, parameters) = (self.accuracy(), self.seed_parameters());
        told.number("outcome/accuracy", ended.then_some(accuracy));
        told.number("outcome/parameters", ended.then_some(parameters as f32));
        told.number("outcome/fossils", ended.then_some(fossils as f32));
        if ended {
            let text = format!("accuracy {accuracy:.1} %, {fossils} fossils, {parameters} parameters of seeds");
            told.event(EventKind::Outcome, text);
        }
    }
}
