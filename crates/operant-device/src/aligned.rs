//! Memory that begins on a cache line: a vector load or a tile row that spans two lines costs twice. Much memory is in large
//! pages, where the system has them: going through it then misses no translation of addresses.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the widest registers.
const LINE: usize = 64;
/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;

/// Asks for large pages for memory that has not been touched yet; they are not needed, so a refusal is fine.
fn ask_for_large_pages<T>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    // SAFETY: the call says how pages of this memory are to be backed, and changes nothing that is in them.
    unsafe {
        libc::madvise(memory.as_mut_ptr().cast(), size_of_val(memory), libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// A slice of fixed length, aligned to cache lines.
pub struct Aligned<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    /// All zero.
    pub fn zeros(len: usize) -> Self {
        if len == 0 {
            // Allocates nothing, so that a place can be left empty for a moment.
            return Self { memory: Vec::new(), start: 0, len };
        }
        let large = len >= 2 * LARGE_PAGE / size_of::<T>();
        let boundary = if large { LARGE_PAGE } else { LINE };
        let slack = boundary / size_of::<T>();
        let mut memory = vec![T::default(); len + slack];
        // The offset may also be "none", but not outside of constants.
        let start = Some(memory.as_ptr().align_offset(boundary)).filter(|start| *start <= slack).unwrap_or(0);
        if large {
            ask_for_large_pages(&mut memory[start..start + len]);
        }
        Self { start, memory, len }
    }
}

impl<T: Copy + Default> Default for Aligned<T> {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl<T: Copy + Default> Clone for Aligned<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl<T: PartialEq> PartialEq for Aligned<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Aligned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_on_a_line_and_copies() {
        assert!(Aligned::<f32>::default().is_empty());
        for len in [1, 15, 1000] {
            let mut x = Aligned::<f32>::zeros(len);
            assert_eq!(x.len(), len);
            assert_eq!(x.as_ptr() as usize % LINE, 0);
            x.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
            let copy = x.clone();
            assert!(copy == x && copy.as_ptr() != x.as_ptr());
            assert_eq!(copy.as_ptr() as usize % LINE, 0);
        }
        assert_eq!(Aligned::<u16>::zeros(3).as_ptr() as usize % LINE, 0);
    }
}
