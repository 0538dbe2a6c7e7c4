//! The bytes of a saved vector env: a header that says what they are of, then the words, then a checksum.

use super::{AutoReset, Param};
use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"OPRVEC01";

/// What saved words are of; only the same can take them back.
pub(super) struct Header {
    pub(super) id: &'static str,
    pub(super) num_envs: usize,
    pub(super) columns: usize,
    pub(super) first_env: u32,
    pub(super) autoreset: AutoReset,
    pub(super) time_limit: Option<u32>,
    pub(super) params: Vec<Param>,
}

impl Header {
    /// As text: readable in a message, and equal only for equal headers.
    fn text(&self) -> String {
        let Self { id, num_envs, columns, first_env, autoreset, time_limit, params } = self;
        let limit = time_limit.map_or("none".into(), |limit| limit.to_string());
        let params: Vec<String> = params.iter().map(|param| format!("{} = {}", param.name, param.value)).collect();
        format!(
            "{num_envs} envs of {id} from number {first_env} on, {columns} columns, auto-reset {autoreset:?}, time limit {limit}, \
             parameters ({})",
            params.join(", ")
        )
    }
}

/// FNV-1a of bytes: tells damaged or foreign bytes from our own.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Words, `[N, columns]`, as bytes.
pub(super) fn pack(header: &Header, words: impl Iterator<Item = i32>) -> Vec<u8> {
    let text = header.text();
    let mut bytes = MAGIC.to_vec();
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    words.for_each(|w| bytes.extend(w.to_le_bytes()));
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The words that `pack` was given, if the bytes are whole and of the same header.
pub(super) fn unpack(header: &Header, bytes: &[u8]) -> Result<Vec<i32>> {
    let damaged = |what: &str| Error::Saved(format!("saved env state is {what}; load one that save() gave"));
    let Some((body, sum)) = bytes.split_last_chunk::<8>() else { return Err(damaged("too short")) };
    let Some(rest) = body.strip_prefix(MAGIC) else { return Err(damaged("not an Operant env state")) };
    if checksum(body) != u64::from_le_bytes(*sum) {
        return Err(damaged("damaged (checksum)"));
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(|| damaged("cut short"))?;
    let (text, words) =
        rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(|| damaged("cut short"))?;
    if text != header.text().as_bytes() {
        let (got, wanted) = (String::from_utf8_lossy(text), header.text());
        return Err(Error::Saved(format!("saved state is of {got}; wanted {wanted}")));
    }
    if words.len() != header.num_envs * header.columns * 4 {
        return Err(damaged("cut short"));
    }
    Ok(words.as_chunks::<4>().0.iter().map(|w| i32::from_le_bytes(*w)).collect())
}
