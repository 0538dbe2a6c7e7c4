//! Records on disk as a Zarr v3 group that any Zarr library reads: arrays `[N, …]` with one chunk per record, chunks gathered
//! in shards (codec `sharding_indexed`), each chunk compressed or not, with its CRC-32C; `manifest.json` has sizes and checksums of
//! all files.
//!
//! A record is first a file of its own under `pending/`, renamed into place whole; when all records of a shard are there, the
//! shard's files are written, then the manifest, then the pending files go. Invariant: a process killed at any moment
//! loses no record that [`Shards::insert`] returned from, and what is in the manifest is whole.

use super::codec::Codec;
use operant_base::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Kind of an array's numbers, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 8 bits, unsigned.
    Uint8,
    /// 64 bits, unsigned.
    Uint64,
    /// Half precision.
    Float16,
    /// Single precision.
    Float32,
    /// Double precision.
    Float64,
}

impl Dtype {
    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            Self::Uint8 => 1,
            Self::Float16 => 2,
            Self::Float32 => 4,
            Self::Uint64 | Self::Float64 => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Uint8 => "uint8",
            Self::Uint64 => "uint64",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
        }
    }

    /// What a missing record reads as.
    fn fill(self) -> Value {
        match self {
            Self::Uint8 | Self::Uint64 => json!(0),
            _ => json!("NaN"),
        }
    }
}

/// One array: a part of every record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySpec {
    /// Folder.
    pub name: String,
    /// Shape of a record's part.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub dtype: Dtype,
    /// Names of axes after the first, which is the record.
    pub axes: Vec<String>,
    /// Each record is a file of its own: parts too large to be gathered, or that most records lack.
    pub alone: bool,
}

impl ArraySpec {
    /// A part of every record that is gathered in shards.
    pub fn new(name: &str, dtype: Dtype, shape: &[usize], axes: &[&str]) -> Self {
        let axes = axes.iter().map(|&axis| axis.to_owned()).collect();
        Self { name: name.to_owned(), shape: shape.to_vec(), dtype, axes, alone: false }
    }

    /// Bytes of a record's part.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    fn key(&self, place: usize) -> String {
        format!("{}/c/{place}{}", self.name, "/0".repeat(self.shape.len()))
    }

    fn metadata(&self, count: usize, per_shard: usize, codec: Codec) -> Value {
        let codec = codec.of_size(self.bytes());
        let with = |first: usize| [&[first], &self.shape[..]].concat();
        let bytes = match self.dtype.size() {
            1 => json!({"name": "bytes"}),
            _ => json!({"name": "bytes", "configuration": {"endian": "little"}}),
        };
        let chunk: Vec<Value> =
            [bytes].into_iter().chain(codec.metadata(self.dtype.size())).chain([json!({"name": "crc32c"})]).collect();
        let codecs = if self.alone {
            json!(chunk)
        } else {
            json!([{"name": "sharding_indexed", "configuration": {
                "chunk_shape": with(1),
                "codecs": chunk,
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                "index_location": "end",
            }}])
        };
        let axes: Vec<&str> = ["operator"].into_iter().chain(self.axes.iter().map(String::as_str)).collect();
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": with(count),
            "data_type": self.dtype.name(),
            "chunk_grid": {"name": "regular", "configuration": {
                "chunk_shape": with(if self.alone { 1 } else { per_shard }),
            }},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": self.dtype.fill(),
            "codecs": codecs,
            "attributes": {},
            "dimension_names": axes,
        })
    }
}

/// What a store holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// N.
    pub count: usize,
    /// Records of a shard.
    pub per_shard: usize,
    /// Parts of a record.
    pub arrays: Vec<ArraySpec>,
    /// How chunks are made smaller.
    #[serde(default)]
    pub codec: Codec,
}

/// A record as it is kept: parts that were looked at, and made smaller.
#[derive(Clone, Debug)]
pub struct Packed(Record);

impl Layout {
    /// How chunks of an array are made smaller, if they are.
    pub fn codec_of(&self, array: &ArraySpec) -> Codec {
        self.codec.of_size(array.bytes())
    }

    /// Checks a record and makes it smaller: what takes time, apart from the store, so that many threads can.
    pub fn pack(&self, record: Record) -> Result<Packed> {
        if record.len() != self.arrays.len() {
            return Err(Error::Invalid(format!("a record of {} parts does not fit the store", record.len())));
        }
        let pack = |(array, part): (&ArraySpec, Option<Vec<u8>>)| {
            let Some(bytes) = part else { return Ok(None) };
            if bytes.len() != array.bytes() {
                let text = format!("{} bytes of {} in a record, wanted {}", bytes.len(), array.name, array.bytes());
                return Err(Error::Invalid(text));
            }
            Ok(Some(self.codec_of(array).pack(bytes, array.dtype.size())))
        };
        self.arrays.iter().zip(record).map(pack).collect::<Result<_>>().map(Packed)
    }
}

/// Size and CRC-32C of a file.
type Sum = (u64, u32);

/// Version of stores whose chunks are compressed; those of version 1 are not.
const NEWEST: u32 = 2;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    layout: Layout,
    /// Whatever the writer notes: where it ran, in which precision.
    notes: BTreeMap<String, String>,
    /// Shards whose records are all there.
    whole: Vec<usize>,
    files: BTreeMap<String, Sum>,
}

const MANIFEST: &str = "manifest.json";
/// How a group or an array lies, for any reader of Zarr.
const METADATA: &str = "zarr.json";
const PENDING: &str = "pending";
const MAGIC: &[u8; 8] = b"OPRECORD";

/// A store that is being written.
#[derive(Debug)]
pub struct Shards {
    folder: PathBuf,
    manifest: Manifest,
    done: Vec<bool>,
}

/// CRC-32C (Castagnoli), eight bytes at a time.
pub fn crc32c(bytes: &[u8]) -> u32 {
    const TABLES: [[u32; 256]; 8] = {
        let mut tables = [[0u32; 256]; 8];
        let mut i = 0;
        while i < 256 {
            let mut crc = i as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            tables[0][i] = crc;
            i += 1;
        }
        let mut t = 1;
        while t < 8 {
            let mut i = 0;
            while i < 256 {
                let before = tables[t - 1][i];
                tables[t][i] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
                i += 1;
            }
            t += 1;
        }
        tables
    };
    let mut crc = !0u32;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word) ^ u64::from(crc);
        crc = (0..8).fold(0, |sum, i| sum ^ TABLES[7 - i][(word >> (8 * i)) as usize & 0xff]);
    }
    for &byte in rest {
        crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(byte)) & 0xff) as usize];
    }
    !crc
}

/// Bits of the nearest half-precision number, ties to even; beyond its range infinity.
pub fn half_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let size = bits & 0x7fff_ffff;
    if size > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    if size >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if size < 0x3880_0000 {
        // Below 2⁻¹⁴: multiples of 2⁻²⁴. Adding ½ rounds in the unit of f32's last place there.
        let rounded = (f32::from_bits(size) + 0.5).to_bits() - 0.5f32.to_bits();
        return sign | rounded as u16;
    }
    let rounded = size + 0x0fff + ((size >> 13) & 1);
    sign | ((rounded - 0x3800_0000) >> 13) as u16
}

pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, &error))?;
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = path.with_file_name(format!("{name}.part"));
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&beside, path)
    };
    write().map_err(|error| Error::io("write", path, &error))
}

fn read_whole(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| Error::io("read", path, &error))
}

fn sum(bytes: &[u8]) -> Sum {
    (bytes.len() as u64, crc32c(bytes))
}

/// A chunk as stored: its bytes and their CRC.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc32c(bytes).to_le_bytes()].concat()
}

fn opened<'a>(bytes: &'a [u8], what: &str) -> Result<&'a [u8]> {
    match bytes.split_last_chunk::<4>() {
        Some((data, crc)) if crc32c(data) == u32::from_le_bytes(*crc) => Ok(data),
        _ => Err(Error::Saved(format!("{what} is damaged: its checksum does not fit"))),
    }
}

/// A record: for every array its bytes, or nothing.
pub type Record = Vec<Option<Vec<u8>>>;

fn pending_path(folder: &Path, record: usize) -> PathBuf {
    folder.join(PENDING).join(format!("{record:08}.record"))
}

fn pack(record: &Record) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend((record.len() as u64).to_le_bytes());
    for part in record {
        out.extend(part.as_ref().map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
        out.extend(part.iter().flatten());
    }
    sealed(&out)
}

fn unpack(bytes: &[u8], what: &str) -> Result<Record> {
    let damaged = || Error::Saved(format!("{what} is damaged"));
    let mut rest = opened(bytes, what)?.strip_prefix(MAGIC).ok_or_else(damaged)?;
    let mut take = |n: usize| {
        let (head, tail) = rest.split_at_checked(n).ok_or_else(damaged)?;
        rest = tail;
        Ok::<_, Error>(head)
    };
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| damaged());
    let count = number(take(8)?)?;
    let mut record = Vec::new();
    for _ in 0..count {
        let len = number(take(8)?)?;
        record.push(if len == u64::MAX { None } else { Some(take(len as usize)?.to_vec()) });
    }
    Ok(record)
}

impl Shards {
    /// A new store. Refuses a folder that has one.
    pub fn create(folder: &Path, layout: Layout, attributes: &Value, notes: BTreeMap<String, String>) -> Result<Self> {
        Self::check_free(folder)?;
        let root = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
        for array in &layout.arrays {
            let text = array.metadata(layout.count, layout.per_shard, layout.codec);
            write_whole(&folder.join(&array.name).join(METADATA), pretty(&text).as_bytes())?;
        }
        write_whole(&folder.join(METADATA), pretty(&root).as_bytes())?;
        let done = vec![false; layout.count];
        let version = if layout.codec == Codec::None { 1 } else { NEWEST };
        let manifest = Manifest { version, layout, notes, whole: Vec::new(), files: BTreeMap::new() };
        let store = Self { folder: folder.to_owned(), manifest, done };
        store.write_manifest()?;
        Ok(store)
    }

    /// Refuses a folder that is a store.
    pub fn check_free(folder: &Path) -> Result<()> {
        if folder.join(MANIFEST).exists() {
            let text =
                format!("{} holds a store already; go on with --resume, or name another folder", folder.display());
            return Err(Error::Invalid(text));
        }
        Ok(())
    }

    /// Keeps other writers of a folder away for as long as the file is held.
    pub fn lock(folder: &Path) -> Result<File> {
        fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, &error))?;
        let path = folder.join("collect.lock");
        let file = File::create(&path).map_err(|error| Error::io("write", &path, &error))?;
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                Err(Error::Io(format!("another process writes to {}; wait for it, or stop it", folder.display())))
            }
            // Some file systems have no locks.
            _ => Ok(file),
        }
    }

    /// A store as it was left, whole or not.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        if !path.exists() {
            let text =
                format!("{} holds no store (no {MANIFEST}); make one with operant collect field", folder.display());
            return Err(Error::Io(text));
        }
        let mut manifest: Manifest = serde_json::from_slice(&read_whole(&path)?)
            .map_err(|error| Error::Saved(format!("{}: {error}", path.display())))?;
        if manifest.version > NEWEST {
            let (version, path) = (manifest.version, path.display());
            let text = format!("{path}: a store of version {version}, wanted at most {NEWEST}; take a newer operant");
            return Err(Error::Saved(text));
        }
        // Files of a shard that lacks records may have been written again since; its records are pending.
        let (arrays, per_shard) = (&manifest.layout.arrays, manifest.layout.per_shard);
        let shard = |array: &ArraySpec, place: usize| if array.alone { place / per_shard } else { place };
        let whole = |key: &str| {
            let mut words = key.split('/');
            let array = words.next().and_then(|name| arrays.iter().find(|array| array.name == name));
            let place = words.nth(1).and_then(|place| place.parse().ok());
            array.zip(place).is_some_and(|(array, place)| manifest.whole.contains(&shard(array, place)))
        };
        let files = manifest.files.iter().filter(|(key, _)| whole(key)).map(|(key, sum)| (key.clone(), *sum)).collect();
        manifest.files = files;
        let mut done = vec![false; manifest.layout.count];
        for &shard in &manifest.whole {
            let first = shard * manifest.layout.per_shard;
            done.iter_mut().skip(first).take(manifest.layout.per_shard).for_each(|done| *done = true);
        }
        for (record, done) in done.iter_mut().enumerate() {
            let path = pending_path(folder, record);
            // A damaged one counts as not made, so that whoever goes on makes it again.
            *done |= path.exists() && read_whole(&path).is_ok_and(|bytes| unpack(&bytes, "").is_ok());
        }
        Ok(Self { folder: folder.to_owned(), manifest, done })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it holds.
    pub fn layout(&self) -> &Layout {
        &self.manifest.layout
    }

    /// What its writer noted.
    pub fn notes(&self) -> &BTreeMap<String, String> {
        &self.manifest.notes
    }

    /// Which records are there.
    pub fn done(&self) -> &[bool] {
        &self.done
    }

    fn write_manifest(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.manifest).expect("a manifest is JSON");
        write_whole(&self.folder.join(MANIFEST), text.as_bytes())
    }

    fn range(&self, shard: usize) -> std::ops::Range<usize> {
        let per = self.manifest.layout.per_shard;
        shard * per..((shard + 1) * per).min(self.manifest.layout.count)
    }

    /// Keeps a record; when its shard is whole, writes that.
    pub fn insert(&mut self, number: usize, record: Record) -> Result<()> {
        let packed = self.manifest.layout.pack(record)?;
        self.keep(number, packed)
    }

    /// [`Self::insert`] of what [`Layout::pack`] made.
    pub fn keep(&mut self, number: usize, Packed(mut record): Packed) -> Result<()> {
        let arrays = self.manifest.layout.arrays.clone();
        if record.len() != arrays.len() || number >= self.done.len() {
            return Err(Error::Invalid(format!("record {number} of {} parts does not fit the store", record.len())));
        }
        for (array, part) in arrays.iter().zip(&mut record) {
            let Some(bytes) = part else { continue };
            if array.alone {
                let file = sealed(bytes);
                write_whole(&self.folder.join(array.key(number)), &file)?;
                // The record notes its file's size and checksum in place of the numbers.
                let (len, crc) = sum(&file);
                *part = Some([&len.to_le_bytes()[..], &crc.to_le_bytes()].concat());
            }
        }
        write_whole(&pending_path(&self.folder, number), &pack(&record))?;
        self.done[number] = true;
        let shard = number / self.manifest.layout.per_shard;
        if self.range(shard).all(|record| self.done[record]) { self.write_shard(shard, true) } else { Ok(()) }
    }

    /// Writes all that is there: shards that lack records too, whose records stay pending.
    pub fn flush(&mut self) -> Result<()> {
        for shard in 0..self.manifest.layout.count.div_ceil(self.manifest.layout.per_shard) {
            if !self.manifest.whole.contains(&shard) && self.range(shard).any(|record| self.done[record]) {
                let whole = self.range(shard).all(|record| self.done[record]);
                self.write_shard(shard, whole)?;
            }
        }
        Ok(())
    }

    fn pending(&self, record: usize) -> Result<Option<Record>> {
        let path = pending_path(&self.folder, record);
        if !path.exists() {
            return Ok(None);
        }
        unpack(&read_whole(&path)?, &path.display().to_string()).map(Some)
    }

    fn write_shard(&mut self, shard: usize, whole: bool) -> Result<()> {
        let Layout { per_shard, arrays, .. } = self.manifest.layout.clone();
        let range = self.range(shard);
        let records = range.clone().map(|record| self.pending(record)).collect::<Result<Vec<_>>>()?;
        for (place, array) in arrays.iter().enumerate() {
            let parts = records.iter().map(|record| record.as_ref().and_then(|record| record[place].as_deref()));
            if array.alone {
                for (record, part) in range.clone().zip(parts) {
                    let Some((len, crc)) = part.and_then(|part| part.split_at_checked(8)) else { continue };
                    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
                    self.manifest.files.insert(array.key(record), (number(len), number(crc) as u32));
                }
                continue;
            }
            let (mut file, mut index) = (Vec::new(), Vec::new());
            for part in parts.chain(std::iter::repeat(None)).take(per_shard) {
                let (at, len) = match part {
                    Some(part) => {
                        let at = file.len() as u64;
                        file.extend(sealed(part));
                        (at, file.len() as u64 - at)
                    }
                    None => (u64::MAX, u64::MAX),
                };
                index.extend(at.to_le_bytes());
                index.extend(len.to_le_bytes());
            }
            file.extend(sealed(&index));
            let key = array.key(shard);
            write_whole(&self.folder.join(&key), &file)?;
            self.manifest.files.insert(key, sum(&file));
        }
        if whole {
            self.manifest.whole.push(shard);
        }
        self.write_manifest()?;
        if whole {
            for record in range {
                let path = pending_path(&self.folder, record);
                if path.exists() {
                    fs::remove_file(&path).map_err(|error| Error::io("remove", &path, &error))?;
                }
            }
            // Only an empty folder goes.
            let _ = fs::remove_dir(self.folder.join(PENDING));
        }
        Ok(())
    }

    fn array(&self, name: &str) -> Result<(usize, &ArraySpec)> {
        let arrays = &self.manifest.layout.arrays;
        let known = arrays.iter().map(|array| array.name.as_str());
        let found = arrays.iter().enumerate().find(|(_, array)| array.name == name);
        found.ok_or_else(|| Error::unknown("array", name, known, "see manifest.json"))
    }

    /// The path of a file, if it is there; an error if it is not, but the manifest has it.
    fn file(&self, key: String) -> Result<Option<PathBuf>> {
        let path = self.folder.join(&key);
        match path.exists() {
            true => Ok(Some(path)),
            false if self.manifest.files.contains_key(&key) => Err(Error::Saved(format!(
                "{} is gone, which {MANIFEST} lists: put it back from a copy, or collect again into another folder",
                path.display()
            ))),
            false => Ok(None),
        }
    }

    /// Bytes of a record's part, if it is there.
    pub fn read(&self, name: &str, record: usize) -> Result<Option<Vec<u8>>> {
        let (place, array) = self.array(name)?;
        let codec = self.manifest.layout.codec_of(array);
        let unpack = |bytes: &[u8], what: &str| codec.unpack(bytes, array.bytes(), what).map(Some);
        if array.alone {
            let Some(path) = self.file(array.key(record))? else { return Ok(None) };
            let what = path.display().to_string();
            return unpack(opened(&read_whole(&path)?, &what)?, &what);
        }
        if let Some(pending) = self.pending(record)? {
            let what = pending_path(&self.folder, record).display().to_string();
            let part = pending.into_iter().nth(place).flatten();
            return part.map_or(Ok(None), |part| unpack(&part, &what));
        }
        let per = self.manifest.layout.per_shard;
        let Some(path) = self.file(array.key(record / per))? else { return Ok(None) };
        let (file, what) = (read_whole(&path)?, path.display().to_string());
        let damaged = || Error::Saved(format!("{what} is damaged"));
        let index = opened(file.len().checked_sub(16 * per + 4).map(|at| &file[at..]).ok_or_else(damaged)?, &what)?;
        let word = |i: usize| index[8 * i..][..8].iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        let (at, len) = (word(2 * (record % per)), word(2 * (record % per) + 1));
        if at == u64::MAX {
            return Ok(None);
        }
        let end = at.checked_add(len).filter(|&end| end <= file.len() as u64).ok_or_else(damaged)?;
        unpack(opened(&file[at as usize..end as usize], &what)?, &what)
    }

    /// Bytes of the manifest's files, and of the numbers in them before they were made smaller.
    pub fn sizes(&self) -> (u64, u64) {
        let layout = &self.manifest.layout;
        let raw = |key: &String| {
            let mut words = key.split('/');
            let array = words.next().and_then(|name| layout.arrays.iter().find(|array| array.name == name));
            let shard = words.nth(1).and_then(|place| place.parse().ok()).unwrap_or(0);
            let here = |array: &ArraySpec| match array.alone {
                true => 1,
                false => self.range(shard).filter(|&record| self.done[record]).count(),
            };
            array.map_or(0, |array| (array.bytes() * here(array)) as u64)
        };
        let files = &self.manifest.files;
        (files.values().map(|(len, _)| len).sum(), files.keys().map(raw).sum())
    }

    /// A record's part as numbers, whatever floats or whole numbers it is stored in.
    pub fn numbers(&self, name: &str, record: usize) -> Result<Option<Vec<f64>>> {
        let dtype = self.array(name)?.1.dtype;
        let number = |bytes: &[u8]| match dtype {
            Dtype::Uint8 => f64::from(bytes[0]),
            Dtype::Uint64 => bytes.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte)) as f64,
            Dtype::Float16 => half_value(u16::from_le_bytes([bytes[0], bytes[1]])),
            Dtype::Float32 => f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            Dtype::Float64 => f64::from_le_bytes(std::array::from_fn(|i| bytes[i])),
        };
        Ok(self.read(name, record)?.map(|bytes| bytes.chunks_exact(dtype.size()).map(number).collect()))
    }

    /// Compares every file of the manifest with its size and checksum, and those that say how arrays lie with what the manifest says;
    /// names what differs.
    pub fn damaged(&self) -> Vec<String> {
        let Layout { arrays, count, per_shard, codec } = &self.manifest.layout;
        let parsed = |key: &str| fs::read(self.folder.join(key)).ok().and_then(|x| serde_json::from_slice(&x).ok());
        let mut found = Vec::new();
        if !parsed(METADATA).is_some_and(|group: Value| group["attributes"].is_object()) {
            found.push(METADATA.to_owned());
        }
        for array in arrays {
            let key = format!("{}/{METADATA}", array.name);
            if parsed(&key) != Some(array.metadata(*count, *per_shard, *codec)) {
                found.push(key);
            }
        }
        let whole =
            |key: &String, wanted: &Sum| fs::read(self.folder.join(key)).is_ok_and(|bytes| sum(&bytes) == *wanted);
        let files = self.manifest.files.iter();
        found.extend(files.filter(|(key, wanted)| !whole(key, wanted)).map(|(key, _)| key.clone()));
        for record in 0..self.manifest.layout.count {
            if let Err(error) = self.pending(record) {
                found.push(error.to_string());
            }
        }
        found
    }
}

/// The half-precision number of these bits.
pub(crate) fn half_value(bits: u16) -> f64 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if sign == 1 { -size } else { size }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("metadata is JSON")
}
