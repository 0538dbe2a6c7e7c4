//! How the bytes of a store's chunks are made smaller: as Zarr's codec `blosc` does with shuffled bytes and zlib inside, or not.
//!
//! Fields that noise has touched hold little that repeats but their exponents: bytes of one place beside each other compress to five
//! sixths, where neither zstd nor zlib alone saves a tenth. A chunk is `c-blosc`'s format 2: a header, places of blocks, blocks.

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use operant_base::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A codec of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// Bytes as they are.
    #[default]
    None,
    /// Bytes of numbers shuffled, then zlib.
    Blosc,
}

/// How hard zlib tries: level 6 takes five times as long for a hundredth.
const LEVEL: u8 = 1;
/// Bytes that are compressed together.
const BLOCK: usize = 1 << 18;
/// Bytes of the header.
const HEADER: usize = 16;
/// Fewer bytes are not worth a header.
const LEAST: usize = 128;
/// Format 2, with version 1 of zlib's.
const VERSIONS: [u8; 2] = [2, 1];
/// Shuffled; blocks whole, not split by place; zlib.
const FLAGS: u8 = 1 | 1 << 4 | 3 << 5;

impl Codec {
    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Blosc => "blosc",
        }
    }

    /// The one for chunks of so many bytes: sizes are 31 bits in Blosc's header.
    pub(super) fn of_size(self, bytes: usize) -> Self {
        if (LEAST..=i32::MAX as usize - (1 << 20)).contains(&bytes) { self } else { Self::None }
    }

    pub(super) fn metadata(self, size: usize) -> Option<Value> {
        let shuffle = if size > 1 { "shuffle" } else { "noshuffle" };
        let configuration =
            json!({"typesize": size, "cname": "zlib", "clevel": LEVEL, "shuffle": shuffle, "blocksize": 0});
        match self {
            Self::None => None,
            Self::Blosc => Some(json!({"name": "blosc", "configuration": configuration})),
        }
    }

    /// Numbers of `size` bytes made smaller.
    pub fn pack(self, bytes: Vec<u8>, size: usize) -> Vec<u8> {
        match self {
            Self::None => bytes,
            Self::Blosc => blosc(&bytes, size),
        }
    }

    /// The `len` bytes that were packed; `what` is named where these are others.
    pub fn unpack(self, bytes: &[u8], len: usize, what: &str) -> Result<Vec<u8>> {
        let unpacked = match self {
            Self::None => Some(bytes.to_vec()),
            Self::Blosc => unblosc(bytes, len),
        };
        let whole = unpacked.filter(|unpacked| unpacked.len() == len);
        whole.ok_or_else(|| Error::Saved(format!("{what} is damaged: not {len} bytes by {}", self.name())))
    }
}

/// Bytes of the first place of all numbers, then of the second …
fn shuffled(block: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(block.len());
    for place in 0..size {
        out.extend(block.iter().skip(place).step_by(size));
    }
    out
}

fn unshuffled(block: &[u8], size: usize) -> Vec<u8> {
    let mut out = vec![0; block.len()];
    for (place, from) in block.chunks_exact(block.len() / size).enumerate() {
        out.iter_mut().skip(place).step_by(size).zip(from).for_each(|(to, from)| *to = *from);
    }
    out
}

fn blosc(bytes: &[u8], size: usize) -> Vec<u8> {
    let block = BLOCK.min(bytes.len()).max(1);
    let count = bytes.len().div_ceil(block);
    let mut places = Vec::new();
    let mut out = Vec::new();
    for block in bytes.chunks(block) {
        places.extend(((HEADER + 4 * count + out.len()) as u32).to_le_bytes());
        let turned = shuffled(block, size);
        let packed = compress_to_vec_zlib(&turned, LEVEL);
        // A block that is as long as it was before is one that is not compressed.
        let kept = if packed.len() < turned.len() { &packed } else { &turned };
        out.extend((kept.len() as u32).to_le_bytes());
        out.extend(kept);
    }
    let total = HEADER + places.len() + out.len();
    let sizes = [bytes.len(), block, total].map(|len| (len as u32).to_le_bytes());
    [&VERSIONS[..], &[FLAGS, size as u8], sizes.as_flattened(), &places, &out].concat()
}

/// What [`blosc`] made, or nothing if it did not.
fn unblosc(bytes: &[u8], len: usize) -> Option<Vec<u8>> {
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(|word| u32::from_le_bytes(word) as usize);
    let (&[major, minor, flags, size], rest) = bytes.split_first_chunk::<4>()?;
    let (total, block) = (word(4)?, word(8)?);
    let size = usize::from(size);
    if [major, minor] != VERSIONS
        || flags != FLAGS
        || total != len
        || rest.len() + 4 != word(12)?
        || size == 0
        || block == 0
    {
        return None;
    }
    let mut out = Vec::with_capacity(len);
    for i in 0..len.div_ceil(block) {
        let (at, wanted) = (word(HEADER + 4 * i)?, block.min(len - i * block));
        let kept = bytes.get(at.checked_add(4)?..)?.get(..word(at)?)?;
        let turned = match kept.len() == wanted {
            true => kept.to_vec(),
            false => decompress_to_vec_zlib_with_limit(kept, wanted).ok()?,
        };
        if turned.len() != wanted || !wanted.is_multiple_of(size) {
            return None;
        }
        out.extend(unshuffled(&turned, size));
    }
    Some(out)
}
