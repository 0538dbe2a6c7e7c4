//! Floats that start on a cache line: a vector load that spans two lines costs twice.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the widest lanes.
const LINE: usize = 64;

/// A slice of fixed length in memory of its own, aligned to cache lines.
pub struct AlignedVec {
    memory: Vec<f32>,
    start: usize,
    len: usize,
}

impl AlignedVec {
    /// All 0.
    pub fn zeros(len: usize) -> Self {
        let memory = vec![0.0; len + LINE / size_of::<f32>()];
        // The offset may also be "none", which costs speed and nothing else.
        let start = memory.as_ptr().align_offset(LINE);
        Self { start: if start <= LINE / size_of::<f32>() { start } else { 0 }, memory, len }
    }
}

impl Deref for AlignedVec {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedVec {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl Clone for AlignedVec {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl PartialEq for AlignedVec {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for AlignedVec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_line_and_copies_by_value() {
        for len in [0, 1, 16, 1000, 100_000] {
            let mut values = AlignedVec::zeros(len);
            assert!(values.len() == len && values.as_ptr().addr().is_multiple_of(LINE));
            values.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
            let copy = values.clone();
            assert!(copy == values && copy.as_ptr().addr().is_multiple_of(LINE));
        }
    }
}
