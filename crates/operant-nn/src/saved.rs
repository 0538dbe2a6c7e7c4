//! Named f32 tensors as safetensors bytes and files. Reading lists everything that does not fit in one message, and a file
//! is replaced whole or not at all.

use operant_base::{Error, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Strings that travel with saved tensors.
pub type Metadata = BTreeMap<String, String>;

/// A tensor to be written.
pub(super) struct Tensor<'a> {
    pub(super) shape: &'a [usize],
    pub(super) values: &'a [f32],
}

impl View for Tensor<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        self.values.iter().flat_map(|x| x.to_le_bytes()).collect()
    }
    fn data_len(&self) -> usize {
        4 * self.values.len()
    }
}

/// Safetensors bytes. Names are unique and shapes fit values: `Params` and what is made from it hold that.
pub(super) fn to_bytes<'a>(tensors: impl Iterator<Item = (String, Tensor<'a>)>, metadata: &Metadata) -> Vec<u8> {
    let hashed = (!metadata.is_empty()).then(|| metadata.clone().into_iter().collect());
    let bytes = safetensors::serialize(tensors, hashed).expect("unique names, and shapes that fit");
    if metadata.len() > 1 { with_ordered_metadata(&bytes, metadata) } else { bytes }
}

/// The same file with its metadata in order: the crate writes them as a hash map holds them, and equal contents should be
/// equal bytes. The layout is a length of 8 bytes, a header of JSON filled up with spaces, and the tensors.
fn with_ordered_metadata(bytes: &[u8], metadata: &Metadata) -> Vec<u8> {
    let (length, rest) = bytes.split_first_chunk::<8>().expect("a length");
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(header).expect("JSON");
    header.insert("__metadata__".into(), serde_json::to_value(metadata).expect("texts are JSON"));
    let mut header = serde_json::to_vec(&header).expect("JSON");
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header, tensors].concat()
}

fn damaged(error: safetensors::SafeTensorError) -> Error {
    Error::Saved(format!(
        "saved tensors can't be read: {error}; wanted a whole safetensors file: copy it again, or save it anew"
    ))
}

/// The text that was saved beside the tensors.
pub fn metadata(bytes: &[u8]) -> Result<Metadata> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    Ok(header.metadata().iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Most tensors that a message names.
const MOST_FAULTS: usize = 100;

/// Tensors that were read, all of the names and shapes asked for.
pub(super) struct Loaded<'a> {
    tensors: Vec<TensorView<'a>>,
    pub(super) metadata: Metadata,
}

impl<'a> Loaded<'a> {
    /// Takes exactly the `wanted` names and shapes from the bytes; an error names every tensor that is missing, extra, of
    /// another shape or not of floats.
    pub(super) fn read(bytes: &'a [u8], wanted: &[(String, &[usize])]) -> Result<Self> {
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let mut faults = Vec::new();
        let mut tensors = Vec::with_capacity(wanted.len());
        for (name, shape) in wanted {
            match file.tensor(name) {
                Err(_) => faults.push(format!("missing {name} {shape:?}")),
                Ok(tensor) if tensor.shape() != *shape => {
                    faults.push(format!("{name} has shape {:?}, wanted {shape:?}", tensor.shape()));
                }
                Ok(tensor) if !matches!(tensor.dtype(), Dtype::F32 | Dtype::F16 | Dtype::BF16) => {
                    faults.push(format!("{name} holds {:?}, wanted F32, F16 or BF16", tensor.dtype()));
                }
                Ok(tensor) => tensors.push(tensor),
            }
        }
        let mut extra = file.names();
        extra.retain(|&name| wanted.iter().all(|(known, _)| known != name));
        extra.sort_unstable();
        for name in extra {
            let shape = file.tensor(name).map(|tensor| tensor.shape().to_vec()).unwrap_or_default();
            faults.push(format!("extra {name} {shape:?}"));
        }
        let more = faults.len().saturating_sub(MOST_FAULTS);
        if more > 0 {
            faults.truncate(MOST_FAULTS);
            faults.push(format!("and {more} more"));
        }
        if !faults.is_empty() {
            let next = "load a file that was saved from the same network";
            return Err(Error::Saved(format!("saved tensors do not fit: {}; {next}", faults.join("; "))));
        }
        Ok(Self { tensors, metadata: metadata(bytes)? })
    }

    /// Writes the values of the `i`-th wanted tensor.
    pub(super) fn copy_to(&self, i: usize, out: &mut [f32]) {
        let tensor = &self.tensors[i];
        match tensor.dtype() {
            Dtype::F32 => widen(tensor.data(), out, f32::from_le_bytes),
            Dtype::BF16 => {
                widen(tensor.data(), out, |b: [u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))
            }
            _ => widen(tensor.data(), out, |b: [u8; 2]| half_to_f32(u16::from_le_bytes(b))),
        }
    }
}

fn widen<const N: usize>(data: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let (elements, rest) = data.as_chunks::<N>();
    assert!(elements.len() == out.len() && rest.is_empty(), "the reader checks sizes");
    for (x, &bytes) in out.iter_mut().zip(elements) {
        *x = value(bytes);
    }
}

/// IEEE 754 binary16 to binary32, exact.
fn half_to_f32(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let exponent = u32::from(half >> 10 & 0x1f);
    let fraction = u32::from(half & 0x3ff);
    let magnitude = match exponent {
        // Zero and subnormals: fraction · 2⁻²⁴.
        0 => (fraction as f32 * (1.0 / 16_777_216.0)).to_bits(),
        31 => 0x7f80_0000 | (fraction << 13),
        _ => ((exponent + (127 - 15)) << 23) | (fraction << 13),
    };
    f32::from_bits(sign | magnitude)
}

/// Writes beside the target, syncs, renames: a reader finds the old file or the new one, never a part. A link stays one, a file keeps
/// who may read it, and what is no file (a pipe, a device) is written to as it is.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let found = path.metadata().ok();
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let beside = target.with_file_name(name);
    let write = || {
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            return std::fs::write(path, bytes);
        }
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        if let Some(found) = &found {
            file.set_permissions(found.permissions())?;
        }
        file.sync_all()?;
        std::fs::rename(&beside, &target)
    };
    write().map_err(|error| {
        // What was written in part is of no use to anyone; that it can't be removed changes nothing for the caller.
        let _ = std::fs::remove_file(&beside);
        Error::Saved(format!("can't write {}: {error}; check that the folder exists and has room", path.display()))
    })
}

/// All bytes of a file.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::Saved(format!("can't read {}: {error}; check the path", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_widen_exactly() {
        let cases = [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x83ff, -6.097_555e-5),
            (0x3555, 0.333_251_95),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ];
        for (half, wanted) in cases {
            assert_eq!(half_to_f32(half), wanted, "{half:#06x}");
        }
        assert!(half_to_f32(0x8000).to_bits() == 0x8000_0000 && half_to_f32(0x7e00).is_nan());
    }

    #[test]
    fn equal_contents_are_equal_bytes() {
        let metadata: Metadata = (0..20).map(|i| (format!("key {i}"), format!("\"value\" {i}"))).collect();
        let bytes = || {
            let tensors = ["a", "b"].map(|name| (name.to_owned(), Tensor { shape: &[3], values: &[1.0, 2.0, 3.0] }));
            to_bytes(tensors.into_iter(), &metadata)
        };
        let first = bytes();
        (0..5).for_each(|_| assert_eq!(bytes(), first));
        assert_eq!(super::metadata(&first).unwrap(), metadata);
        let read = SafeTensors::deserialize(&first).unwrap();
        assert_eq!(read.tensor("b").unwrap().data().len(), 12);
    }

    #[test]
    fn files_are_replaced_whole() {
        let folder = std::env::temp_dir().join(format!("operant-saved-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.safetensors");
        write_file(&path, b"first").unwrap();
        write_file(&path, b"second").unwrap();
        assert_eq!(read_file(&path).unwrap(), b"second");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        #[cfg(unix)]
        {
            use std::os::unix::fs::{PermissionsExt, symlink};
            let link = folder.join("link");
            symlink("a.safetensors", &link).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            write_file(&link, b"third").unwrap();
            assert_eq!(read_file(&path).unwrap(), b"third", "a link leads to the file");
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert!(link.is_symlink() && write_file(&folder, b"x").is_err(), "a folder is no file");
        }
        let nowhere = folder.join("missing/a.safetensors");
        assert!(write_file(&nowhere, b"x").unwrap_err().to_string().starts_with("can't write"));
        assert!(read_file(&nowhere).unwrap_err().to_string().starts_with("can't read"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
