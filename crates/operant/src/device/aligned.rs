//! Memory that begins on a cache line: a vector load or a tile row that spans two lines costs twice.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the widest registers.
const LINE: usize = 64;

/// A slice of fixed length, aligned to cache lines.
pub struct Aligned<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    /// All zero.
    pub fn zeros(len: usize) -> Self {
        let slack = LINE / size_of::<T>();
        let memory = vec![T::default(); len + slack];
        // The offset may also be "none", which costs speed and nothing else.
        let start = memory.as_ptr().align_offset(LINE);
        Self { start: if start <= slack { start } else { 0 }, memory, len }
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
        for len in [0, 1, 15, 1000] {
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
