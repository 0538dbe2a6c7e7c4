//! `failed.json` of a store: operators that could not be made, so that a later run can find out more or leave them out.

use crate::shards::write_whole;
use operant_base::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file in a store.
const FILE: &str = "failed.json";

/// An operator that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOperator {
    /// Its number.
    pub operator: u32,
    /// Its parameters in words.
    pub settings: String,
    /// What went wrong.
    pub error: String,
    /// Whether it is known to be the cause. It is not when other operators shared the GPU that failed.
    pub certain: bool,
}

/// The failed operators of a store, by number.
#[derive(Clone, Debug)]
pub struct FailedOperators {
    path: PathBuf,
    list: Vec<FailedOperator>,
}

impl FailedOperators {
    /// Reads those of a store; none if the store has no such file.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let list = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Error::Saved(format!("{}: {error}; remove the file to try its operators again", path.display()))
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io("read", &path, &error)),
        };
        Ok(Self { path, list })
    }

    /// All of them.
    pub fn list(&self) -> &[FailedOperator] {
        &self.list
    }

    /// The one of this number.
    pub fn get(&self, operator: u32) -> Option<&FailedOperator> {
        self.list.iter().find(|failed| failed.operator == operator)
    }

    /// Adds operators, in place of what was known of them, and writes the file.
    pub(super) fn note(&mut self, more: Vec<FailedOperator>) -> Result<()> {
        self.list.retain(|known| more.iter().all(|failed| failed.operator != known.operator));
        self.list.extend(more);
        self.list.sort_by_key(|failed| failed.operator);
        self.write()
    }

    /// Forgets an operator that was made after all.
    pub(super) fn forget(&mut self, operator: u32) -> Result<()> {
        let before = self.list.len();
        self.list.retain(|failed| failed.operator != operator);
        if self.list.len() == before { Ok(()) } else { self.write() }
    }

    fn write(&self) -> Result<()> {
        if self.list.is_empty() {
            return match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::io("remove", &self.path, &error))
                }
                _ => Ok(()),
            };
        }
        let text = serde_json::to_string_pretty(&self.list).expect("plain data is JSON");
        write_whole(&self.path, text.as_bytes())
    }
}
