//! An episode as bytes: its state as JSON, its tensors as they are.

use super::bodies::Saved;
use super::episode::State;
use operant_base::{Error, Result};
use operant_nn::grow::Weights;

/// All of an episode.
pub(super) fn pack(state: &State, saved: &Saved) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, &serde_json::to_vec(state).expect("numbers and names are JSON"));
    for weights in [&saved.now, &saved.kept] {
        bytes.extend(weights.steps.to_le_bytes());
        bytes.extend((weights.tensors.len() as u64).to_le_bytes());
        for (name, parts) in &weights.tensors {
            put_bytes(&mut bytes, name.as_bytes());
            for part in parts {
                let words: Vec<u8> = part.iter().flat_map(|x| x.to_le_bytes()).collect();
                put_bytes(&mut bytes, &words);
            }
        }
    }
    bytes
}

/// What `pack` was given.
pub(super) fn unpack(bytes: &[u8]) -> Result<(State, Saved)> {
    let mut rest = bytes;
    let state: State = serde_json::from_slice(take_bytes(&mut rest)?).map_err(|_| damaged())?;
    let (now, kept) = (take_weights(&mut rest)?, take_weights(&mut rest)?);
    if rest.is_empty() { Ok((state, Saved { now, kept })) } else { Err(damaged()) }
}

fn damaged() -> Error {
    Error::Saved("saved growth episode is damaged; load one that save() gave".into())
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u64).to_le_bytes());
    to.extend(bytes);
}

fn take_count(rest: &mut &[u8]) -> Result<u64> {
    let (count, after) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
    *rest = after;
    Ok(u64::from_le_bytes(*count))
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let count = usize::try_from(take_count(rest)?).map_err(|_| damaged())?;
    let (bytes, after) = rest.split_at_checked(count).ok_or_else(damaged)?;
    *rest = after;
    Ok(bytes)
}

fn take_weights(rest: &mut &[u8]) -> Result<Weights> {
    let (steps, count) = (take_count(rest)?, take_count(rest)?);
    let mut tensors = Vec::new();
    for _ in 0..count {
        let name = String::from_utf8(take_bytes(rest)?.to_vec()).map_err(|_| damaged())?;
        let mut parts: [Vec<f32>; 3] = Default::default();
        for part in &mut parts {
            *part = take_bytes(rest)?.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        }
        tensors.push((name, parts));
    }
    Ok(Weights { tensors, steps })
}
