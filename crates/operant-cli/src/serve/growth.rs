//! The part of a run's page about growth: envs, slots, and how seeds act together.

use crate::growth_view::{self, SLOT_COLUMNS};
use crate::html;
use crate::live::Data;

/// Envs that are shown.
const ENVS: usize = 64;

pub(super) fn panels(data: &Data) -> String {
    let envs = growth_view::envs(data);
    let slots = envs.first().map_or(0, Vec::len);
    let header: Vec<String> =
        ["env".to_owned()].into_iter().chain((0..slots).map(|slot| format!("slot {slot}"))).collect();
    let cell = |(stage, blueprint): &growth_view::Slot| match blueprint {
        Some(blueprint) => format!("{stage} {blueprint}"),
        None => stage.clone(),
    };
    let rows = envs.iter().enumerate().take(ENVS);
    let rows: Vec<Vec<String>> =
        rows.map(|(env, slots)| [env.to_string()].into_iter().chain(slots.iter().map(cell)).collect()).collect();
    let mut body = html::table("Envs", &header, &rows);
    body += &html::table("Slots", &SLOT_COLUMNS.map(str::to_owned), &growth_view::slots(data, &envs));
    let pairs: Vec<Vec<String>> = growth_view::interactions(data).into_iter().map(|row| row.to_vec()).collect();
    body + &html::table("Interactions of seeds", &["slots", "points", ""].map(str::to_owned), &pairs)
}
