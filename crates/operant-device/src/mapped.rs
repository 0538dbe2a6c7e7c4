//! Files of numbers, mapped into memory.
#![allow(unsafe_code)]

use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::path::Path;

#[cfg(target_endian = "big")]
compile_error!("numbers of files are little-endian and read as they lie");

/// A file of some bytes and then `f32`s. Programs that open the same one share its memory. It must not be cut or written to while it is open;
/// files that are replaced whole never are.
#[derive(Debug)]
pub struct MappedNumbers {
    map: Mmap,
    head: usize,
}

impl MappedNumbers {
    /// Opens a file whose numbers begin after `head` bytes, a multiple of four.
    pub fn open(path: &Path, head: usize) -> io::Result<Self> {
        assert!(head.is_multiple_of(size_of::<f32>()), "numbers begin at a multiple of their size");
        // SAFETY: nothing here writes to the map; that nobody else changes the file is the user's part, as told above.
        let map = unsafe { Mmap::map(&File::open(path)?)? };
        if map.len() < head {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "too short"));
        }
        Ok(Self { map, head })
    }

    /// The bytes before the numbers.
    pub fn head(&self) -> &[u8] {
        &self.map[..self.head]
    }

    /// Bytes after those.
    pub fn len_bytes(&self) -> usize {
        self.map.len() - self.head
    }

    /// The numbers; bytes at the end that make no whole one are left out.
    pub fn numbers(&self) -> &[f32] {
        let bytes = &self.map[self.head..];
        // SAFETY: maps begin at a page, so numbers after a multiple of four bytes are aligned; any four bytes are an f32.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<f32>()) }
    }
}
