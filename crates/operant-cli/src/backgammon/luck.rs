//! Results of `operant eval` less the luck of the dice.

use super::judge::Of;
use super::{PART, SHIPPED, evaluator_in, with_table};
use crate::format;
use crate::matches::{Luck, MatchArgs};
use crate::output::Failure;
use operant::algo::Parts;
use operant::device;
use operant::env::backgammon::Record;
use operant::nn::Precision;
use operant::search::backgammon::{Evaluator, luck_of_games, mean_of_pairs};
use serde_json::{Value, json};

/// Who says how lucky rolls were.
pub(super) struct Judge {
    evaluator: Evaluator,
    name: String,
}

/// A mean of results less their luck.
pub(super) struct Adjusted {
    mean: f64,
    standard_error: f64,
    /// Whose values judged the rolls.
    by: String,
    /// What that took.
    cpu_seconds: f64,
}

/// The judged networks, or those that come with the program where a run has no values of backgammon; nobody where luck is not asked for.
/// Of a game of the networks that come with the program it takes 29 ms of a core with AMX tiles, where playing it takes 2.5 ms one roll ahead and 180
/// two rolls ahead. Against gnubg it pays at any depth: 25 times as many games would be needed.
pub(super) fn judge_of(args: &MatchArgs, parts: &Parts, of: &Of<'_>) -> Result<Option<Judge>, Failure> {
    let searches = args.simulations.is_some() || !parts.contains_key(PART);
    let by_gnubg = args.against.as_deref().is_some_and(|whom| whom == "gnubg" || whom.starts_with("gnubg:"));
    let it_pays = searches || by_gnubg || args.plies.is_some_and(|plies| plies > 1);
    if !args.luck.map_or(it_pays, |luck| luck == Luck::On) {
        return Ok(None);
    }
    let (networks, name) = match parts.get(PART) {
        Some(networks) => (networks.as_slice(), of.run.clone()),
        None => (SHIPPED, "the networks that come with the program".to_owned()),
    };
    // By any values luck is 0 on average: the quickest will do, which are f32 where there are no AMX tiles.
    let evaluator = evaluator_in(networks, Precision::Bf16)?;
    Ok(Some(Judge { evaluator: with_table(evaluator, args.table.as_deref())?, name }))
}

impl Judge {
    /// The mean of results of sessions, each less the luck of its games.
    pub(super) fn adjust(self, results: &[f64], sessions: &[&[Record]]) -> Result<Adjusted, Failure> {
        let cpu = device::cpu_seconds();
        let luck = luck_of_games(&self.evaluator, &sessions.concat(), device::threads_available())?;
        let mut of_games = luck.iter();
        let less_luck: Vec<f64> = (results.iter().zip(sessions))
            .map(|(result, games)| result - of_games.by_ref().take(games.len()).sum::<f64>())
            .collect();
        let (mean, standard_error) = mean_of_pairs(&less_luck);
        Ok(Adjusted { mean, standard_error, by: self.name, cpu_seconds: device::cpu_seconds() - cpu })
    }
}

/// `, luck-adjusted +0.018 ± 0.006` for points; nothing where luck was not judged.
pub(super) fn shown(adjusted: Option<&Adjusted>) -> String {
    adjusted.map_or_else(String::new, |Adjusted { mean, standard_error, .. }| {
        format!(", luck-adjusted {mean:+.3} ± {}", format::error(*standard_error, 3))
    })
}

/// The same for matches: `, luck-adjusted 51.2 % ± 0.9 %`.
pub(super) fn shown_of_matches(adjusted: Option<&Adjusted>) -> String {
    adjusted.map_or_else(String::new, |Adjusted { mean, standard_error, .. }| {
        format!(", luck-adjusted {:.1} % ± {} %", 100.0 * mean, format::error(100.0 * standard_error, 1))
    })
}

/// Adds the mean by this name, its standard error, whose values judged luck and what that took; null where luck was not judged.
pub(super) fn add_to(object: &mut Value, name: &str, adjusted: Option<&Adjusted>) {
    object[name] = json!(adjusted.map(|adjusted| adjusted.mean));
    object["adjusted_standard_error"] = json!(adjusted.map(|adjusted| adjusted.standard_error));
    object["luck_by"] = json!(adjusted.map(|adjusted| &adjusted.by));
    object["luck_cpu_s"] = json!(adjusted.map(|adjusted| adjusted.cpu_seconds));
}
