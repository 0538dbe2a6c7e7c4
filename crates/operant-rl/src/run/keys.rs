//! Which setting was meant by a key that there is not: one of another table, one that other libraries name so, or the nearest.

use super::{CheckpointSettings, EvalSettings, Settings, TelemetrySettings};
use crate::algo::{self, NetworkSettings};
use operant_base::config::{self, Meaning, Table};
use operant_base::{Error, Result};
use operant_env::{self as env, Param};

/// The keys that a run of an algorithm in an env has.
pub(super) struct Keys {
    algo: &'static algo::Entry,
    params: Vec<Param>,
    /// By the table's name; those of the top level under "".
    tables: [(&'static str, Table); 6],
}

impl Keys {
    pub(super) fn new(algo: &'static algo::Entry, params: Vec<Param>) -> Self {
        let tables = [
            ("", config::defaults::<Settings>()),
            (algo.name, (algo.defaults)()),
            ("network", config::defaults::<NetworkSettings>()),
            ("checkpoint", config::defaults::<CheckpointSettings>()),
            ("eval", config::defaults::<EvalSettings>()),
            ("telemetry", config::defaults::<TelemetrySettings>()),
        ];
        Self { algo, params, tables }
    }

    /// Refuses a key that the table of this name does not have, and says which was meant.
    pub(super) fn check(&self, table: &str, given: &Table) -> Result<()> {
        let known = self.tables.iter().find(|(name, _)| *name == table).map(|(_, known)| known);
        let unknown = known.and_then(|known| given.keys().find(|key| !known.contains_key(*key)));
        unknown.map_or(Ok(()), |key| Err(self.error(table, key)))
    }

    fn error(&self, table: &str, key: &str) -> Error {
        let path = config::below(table, key);
        let meant =
            |path: &str, near: &str| Error::Unknown(format!("unknown key \"{path}\"; did you mean \"{near}\"?"));
        if self.params.iter().any(|param| param.name == key) || key == env::TIME_LIMIT {
            return meant(&path, &config::below("env", key));
        }
        if let Some((other, _)) = self.tables.iter().find(|(_, known)| known.contains_key(key)) {
            return meant(&path, &config::below(other, key));
        }
        if let Some(meaning) = Meaning::of(self.algo.name, key) {
            return meaning.error(self.algo.name, &path);
        }
        let known = self.tables.iter().find(|(name, _)| *name == table).map(|(_, known)| known);
        let of_table = known.into_iter().flat_map(Table::keys).map(String::as_str);
        let names = ["algo", "env"].into_iter().chain(self.tables.iter().map(|(name, _)| *name));
        let names = names.filter(|name| table.is_empty() && !name.is_empty());
        config::unknown_key(&path, key, of_table.chain(names), table)
    }
}

/// Every key that a run of an algorithm has, but for parameters of its env.
pub fn keys_of(algo: &'static algo::Entry) -> Vec<String> {
    let keys = Keys::new(algo, Vec::new());
    let paths =
        |(table, known): &(&'static str, Table)| known.keys().map(|key| config::below(table, key)).collect::<Vec<_>>();
    let mut paths: Vec<String> = keys.tables.iter().flat_map(paths).collect();
    paths.push(config::below("env", env::TIME_LIMIT));
    paths
}
