//! The bytes of a saved vector env: a header that says what they are of, then the words.

use super::spec::Spec;
use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"OPRVEC01";

/// FNV-1a of bytes: tells damaged or foreign bytes from our own.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Words of `num_envs` envs with `columns` columns each, as bytes.
pub(super) fn pack(spec: &Spec, num_envs: usize, columns: usize, words: impl Iterator<Item = i32>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend((spec.id.len() as u32).to_le_bytes());
    bytes.extend(spec.id.as_bytes());
    bytes.extend((num_envs as u64).to_le_bytes());
    bytes.extend((columns as u64).to_le_bytes());
    words.for_each(|w| bytes.extend(w.to_le_bytes()));
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The words that `pack` was given, if the bytes are whole and of the same env, N and columns.
pub(super) fn unpack(spec: &Spec, num_envs: usize, columns: usize, bytes: &[u8]) -> Result<Vec<i32>> {
    let damaged = |what: &str| Error::Saved(format!("saved env state is {what}; load one that save() gave"));
    let Some((body, sum)) = bytes.split_last_chunk::<8>() else { return Err(damaged("too short")) };
    if body.get(..8) != Some(MAGIC) {
        return Err(damaged("not an Operant env state"));
    }
    if checksum(body) != u64::from_le_bytes(*sum) {
        return Err(damaged("damaged (checksum)"));
    }
    let mut rest = &body[8..];
    let mut take = |count: usize| {
        let (head, tail) = rest.split_at_checked(count).ok_or_else(|| damaged("cut short"))?;
        rest = tail;
        Ok::<_, Error>(head)
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    let name_length = number(take(4)?) as usize;
    let id = String::from_utf8_lossy(take(name_length)?).into_owned();
    let (saved_envs, saved_columns) = (number(take(8)?), number(take(8)?));
    if id != spec.id || saved_envs != num_envs as u64 || saved_columns != columns as u64 {
        let wanted = format!("{num_envs} envs of {} with {columns} columns", spec.id);
        return Err(Error::Saved(format!(
            "saved state is of {saved_envs} envs of {id} with {saved_columns} columns, wanted {wanted}"
        )));
    }
    if rest.len() != num_envs * columns * 4 {
        return Err(damaged("cut short"));
    }
    Ok(rest.as_chunks::<4>().0.iter().map(|w| i32::from_le_bytes(*w)).collect())
}
