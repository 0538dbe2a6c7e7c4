//! What viewers show of growth: stages of every env's slots, what seeds are worth, and how they act together, from a run's events
//! and metrics.

use crate::format::number;
use crate::growth_log;
use crate::live::Data;

/// Stages as letters, in the order of a seed's life; others are being cleaned up.
pub(crate) const STAGES: [(&str, char); 6] = [
    ("dormant", '·'),
    ("germinated", 'g'),
    ("training", 't'),
    ("blending", 'b'),
    ("holding", 'h'),
    ("fossilised", 'F'),
];
/// The letter of a slot that is being cleaned up.
const CLEANING: char = 'x';
/// Columns of what is shown of a slot; all but the last are numbers.
pub(crate) const SLOT_COLUMNS: [&str; 8] = ["slot", "alpha", "points", "Shapley", "±", "live", "kept", "mostly"];
/// Points from which on seeds help or hinder each other.
const TOGETHER: f64 = 0.5;

/// Stage and blueprint of a slot.
pub(crate) type Slot = (String, Option<String>);

/// The letter of a stage.
pub(crate) fn letter(stage: &str) -> char {
    STAGES.iter().find(|(name, _)| *name == stage).map_or(CLEANING, |(_, letter)| *letter)
}

/// Slots of each env, as events tell. Where an episode has ended and nothing is known of the next, as it ended.
pub(crate) fn envs(data: &Data) -> Vec<Vec<Slot>> {
    let mut envs: Vec<Vec<Slot>> = Vec::new();
    let mut ended: Vec<bool> = Vec::new();
    let count = data.group("slot/").filter(|name| name.ends_with("/alpha")).count();
    let dormant = || vec![("dormant".to_owned(), None); count];
    for event in &data.events {
        let (outcome, change) = (growth_log::outcome(event), growth_log::change(event));
        let Some(env) = outcome.as_ref().map(|outcome| outcome.env).or(change.as_ref().map(|change| change.env)) else {
            continue;
        };
        if env >= envs.len() {
            envs.resize_with(env + 1, dormant);
            ended.resize(env + 1, false);
        }
        if let Some(change) = change {
            if std::mem::replace(&mut ended[env], false) {
                envs[env] = dormant();
            }
            if let Some(slot) = envs[env].get_mut(change.slot) {
                *slot = (change.to, change.blueprint);
            }
        }
        ended[env] |= outcome.is_some();
    }
    envs
}

/// A row per slot, in the order of [`SLOT_COLUMNS`]: means over envs, seeds by stage, the most frequent blueprint.
pub(crate) fn slots(data: &Data, envs: &[Vec<Slot>]) -> Vec<Vec<String>> {
    let count = envs.first().map_or(0, Vec::len);
    let row = |slot: usize| {
        let last = |what: &str| data.history.last(&format!("slot/{slot}/{what}")).unwrap_or(f64::NAN);
        let here = || envs.iter().filter_map(|slots| slots.get(slot));
        let kept = here().filter(|(stage, _)| stage == "fossilised").count();
        let live = here().filter(|(stage, _)| ["germinated", "training", "blending", "holding"].contains(&&stage[..]));
        let mut names: Vec<&String> = here().filter_map(|(_, blueprint)| blueprint.as_ref()).collect();
        names.sort();
        let frequency = |name: &&String| names.iter().filter(|other| *other == name).count();
        let mostly = names.iter().max_by_key(|name| frequency(name)).map_or_else(String::new, |name| (*name).clone());
        let numbers = ["alpha", "contribution", "shapley", "shapley_error"].map(|what| number(last(what)));
        let counts = [live.count(), kept].map(|count| count.to_string());
        [slot.to_string()].into_iter().chain(numbers).chain(counts).chain([mostly]).collect()
    };
    (0..count).map(row).collect()
}

/// Pairs of slots whose seeds were heard together: the pair, the newest mean of their interaction in points, and what it means.
pub(crate) fn interactions(data: &Data) -> Vec<[String; 3]> {
    let known = data.group("interaction/").filter_map(|name| Some((name, data.history.last(name)?)));
    let meaning = |points: f64| match points {
        x if x > TOGETHER => "synergy",
        x if x < -TOGETHER => "interference",
        _ => "",
    };
    known
        .map(|(name, x)| [name["interaction/".len()..].replace('-', " and "), number(x), meaning(x).to_owned()])
        .collect()
}
