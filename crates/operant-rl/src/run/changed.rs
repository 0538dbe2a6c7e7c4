//! Settings that were changed since the checkpoint that a run goes on from: which ones differ, and whether they may.
//!
//! What shapes the weights, the rollout, the envs or the random numbers stays as it was; the rest takes the file's value.

use super::Config;
use operant_base::config::{self, Table, Value};
use operant_base::{Error, Result};

/// Settings outside an algorithm's table that a run may change on the way.
const MAY_CHANGE: [&str; 7] = ["steps", "until", "threads", "device", "env_device", "precision", "task_data"];

/// Says what differs between the settings of a checkpoint and those of the file now, or refuses to go on with them.
/// `None` if nothing differs.
pub(super) fn describe(then: &Config, now: &Config, checkpoint: &str) -> Result<Option<String>> {
    let own = then.algorithm();
    let may_change = |key: &str| {
        let of_algo = key.strip_prefix(own.name).and_then(|key| key.strip_prefix('.'));
        MAY_CHANGE.contains(&key)
            || key.starts_with("checkpoint.")
            || key.starts_with("eval.")
            || of_algo.is_some_and(|key| own.may_change.contains(&key))
    };
    let (allowed, refused): (Vec<_>, Vec<_>) =
        differences(then, now)?.into_iter().partition(|(key, _)| may_change(key));
    let listed = |list: Vec<(String, String)>| list.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(", ");
    if !refused.is_empty() {
        return Err(Error::Invalid(format!(
            "settings have changed since {checkpoint} in what a run can't change on the way: {}; put that back, or start a new \
             run with --config",
            listed(refused)
        )));
    }
    Ok((!allowed.is_empty()).then(|| format!("settings have changed since {checkpoint}: {}", listed(allowed))))
}

/// Keys that differ, each with a text that shows how.
pub(super) fn differences(then: &Config, now: &Config) -> Result<Vec<(String, String)>> {
    let flat = |config: &Config| -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        flatten(&config::parse(&config.to_text(), "run.toml")?, "", &mut found);
        Ok(found)
    };
    let (then, now) = (flat(then)?, flat(now)?);
    let value =
        |list: &[(String, String)], key: &str| list.iter().find(|(name, _)| name == key).map(|(_, v)| v.clone());
    let gone = then.iter().filter(|(key, _)| value(&now, key).is_none());
    let keys = now.iter().chain(gone).map(|(key, _)| key);
    let shown = |value: Option<String>| value.unwrap_or_else(|| "(not set)".into());
    let pairs = keys.map(|key| (key, value(&then, key), value(&now, key)));
    let differ = pairs.filter(|(_, then, now)| then != now);
    Ok(differ.map(|(key, then, now)| (key.clone(), format!("{key} {} -> {}", shown(then), shown(now)))).collect())
}

/// Values by their dotted names.
pub(super) fn flatten(table: &Table, prefix: &str, found: &mut Vec<(String, String)>) {
    for (key, value) in table {
        match value {
            Value::Table(inner) => flatten(inner, &format!("{prefix}{key}."), found),
            other => found.push((format!("{prefix}{key}"), other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::TESTED;

    fn with(words: &[&str]) -> Config {
        let mut table = Table::new();
        words.iter().for_each(|word| config::assign(&mut table, word).unwrap());
        Config::resolve(&TESTED, "ppo", "cartpole", table).unwrap()
    }

    #[test]
    fn what_may_change_is_told_and_what_may_not_is_refused() {
        let then = with(&["steps=1000", "ppo.learning_rate=0.001"]);
        let tell = |words: &[&str]| describe(&then, &with(words), "step-1").map_err(|error| error.to_string());
        assert_eq!(tell(&["steps=1000", "ppo.learning_rate=0.001"]), Ok(None));
        let text = "settings have changed since step-1: steps 1000 -> 2000, ppo.learning_rate 0.001 -> 0.5, checkpoint.keep 3 -> 9";
        let words = ["steps=2000", "ppo.learning_rate=0.5", "checkpoint.keep=9"];
        assert_eq!(tell(&words), Ok(Some(text.to_owned())));
        let words = ["steps=1000", "ppo.learning_rate=0.001", "seed=9", "network.hidden=[8]", "env.gravity=3"];
        let message = tell(&words).unwrap_err();
        for part in ["seed 1 -> 9", "network.hidden [", "-> [8]", "env.gravity (not set) -> 3.0", "put that back"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(!message.contains("learning_rate"), "{message}");
    }
}
