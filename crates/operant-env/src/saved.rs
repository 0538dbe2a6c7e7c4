//! The bytes of a saved vector env: a header that says what they are of, then the words, then a checksum.

use super::{AutoReset, Param};
use operant_base::{Error, Result};

const MAGIC: &[u8; 8] = b"OPRVEC01";

/// What saved words are of; only the same can take them back.
pub struct Header {
    /// Id of the env.
    pub id: &'static str,
    /// N.
    pub num_envs: usize,
    /// Words of an env.
    pub columns: usize,
    /// Number of the first env.
    pub first_env: u32,
    /// What happens after an episode's last step.
    pub autoreset: AutoReset,
    /// Steps after which an episode is cut.
    pub time_limit: Option<u32>,
    /// The env's parameters.
    pub params: Vec<Param>,
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
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Words, `[N, columns]`, as bytes.
pub fn pack(header: &Header, words: impl Iterator<Item = i32>) -> Vec<u8> {
    pack_with(header, words, std::iter::empty())
}

/// The same with bytes of any length for each env behind them; those of envs that all have none take no room.
pub fn pack_with(header: &Header, words: impl Iterator<Item = i32>, rests: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let text = header.text();
    let mut bytes = MAGIC.to_vec();
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    words.for_each(|w| bytes.extend(w.to_le_bytes()));
    let rests: Vec<Vec<u8>> = rests.collect();
    for rest in rests.iter().filter(|_| rests.iter().any(|rest| !rest.is_empty())) {
        bytes.extend((rest.len() as u64).to_le_bytes());
        bytes.extend(rest);
    }
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The words that `pack` was given, if the bytes are whole and of the same header.
pub fn unpack(header: &Header, bytes: &[u8]) -> Result<Vec<i32>> {
    let (words, rests) = unpack_with(header, bytes)?;
    if rests.iter().all(Vec::is_empty) { Ok(words) } else { Err(Error::Saved("saved env state is too long".into())) }
}

/// The same with the bytes behind them, `[N]`.
pub fn unpack_with(header: &Header, bytes: &[u8]) -> Result<(Vec<i32>, Vec<Vec<u8>>)> {
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
    let (words, mut rest) =
        words.split_at_checked(header.num_envs * header.columns * 4).ok_or_else(|| damaged("cut short"))?;
    let words = words.as_chunks::<4>().0.iter().map(|w| i32::from_le_bytes(*w)).collect();
    if rest.is_empty() {
        return Ok((words, vec![Vec::new(); header.num_envs]));
    }
    let mut rests = Vec::with_capacity(header.num_envs);
    for _ in 0..header.num_envs {
        let (length, after) = rest.split_first_chunk::<8>().ok_or_else(|| damaged("cut short"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| damaged("cut short"))?;
        let (bytes, after) = after.split_at_checked(length).ok_or_else(|| damaged("cut short"))?;
        rests.push(bytes.to_vec());
        rest = after;
    }
    if rest.is_empty() { Ok((words, rests)) } else { Err(damaged("too long")) }
}
