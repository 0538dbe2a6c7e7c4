//! Small buffers share large blocks of a GPU's memory, so that a run of many buffers asks the driver a few times.
//!
//! What was given back may still be used by work under way: it waits, and is given out again after all work has been waited for.

use std::collections::BTreeMap;

/// What buffers begin at multiples of, in bytes: what the driver promises too.
const ALIGN: usize = 256;
/// Bytes of a block.
pub(super) const BLOCK: usize = 32 << 20;
/// Larger buffers are the driver's own.
pub(super) const MOST: usize = 4 << 20;

#[derive(Debug)]
struct Block {
    at: u64,
    len: usize,
    /// Bytes that were given out before; those behind are still zero.
    used: usize,
}

/// Blocks and what is free in them. Holds numbers: those who own it ask the driver.
#[derive(Debug, Default)]
pub(super) struct Pool {
    blocks: Vec<Block>,
    /// Addresses and bytes of free pieces that were used before.
    free: BTreeMap<u64, usize>,
    /// What was given back since the last [`Pool::settle`].
    waiting: Vec<(u64, usize)>,
}

/// Memory of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: u64,
    /// Whether it is all zero.
    pub(super) fresh: bool,
}

fn whole(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(ALIGN)
}

impl Pool {
    /// Memory for so many bytes, if there is some.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Piece> {
        let len = whole(bytes);
        // The smallest that is large enough; of these the first.
        let fits = self.free.iter().filter(|(_, free)| **free >= len);
        if let Some((at, free)) = fits.min_by_key(|(at, free)| (**free, **at)).map(|(at, free)| (*at, *free)) {
            self.free.remove(&at);
            if free > len {
                self.free.insert(at + len as u64, free - len);
            }
            return Some(Piece { at, fresh: false });
        }
        let block = self.blocks.iter_mut().find(|block| block.len - block.used >= len)?;
        let at = block.at + block.used as u64;
        block.used += len;
        Some(Piece { at, fresh: true })
    }

    /// A new block, all zero.
    pub(super) fn add(&mut self, at: u64, len: usize) {
        self.blocks.push(Block { at, len, used: 0 });
    }

    /// Takes back what [`Pool::take`] gave for so many bytes; work under way may still use it.
    pub(super) fn give(&mut self, at: u64, bytes: usize) {
        self.waiting.push((at, whole(bytes)));
    }

    /// Whether something waits to be given out again.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Gives out again what was given back: all work that used it is done.
    pub(super) fn settle(&mut self) {
        for (at, len) in std::mem::take(&mut self.waiting) {
            let (mut at, mut len) = (at, len);
            let begins = |place: u64| self.blocks.iter().any(|block| block.at == place);
            if let Some((&before, &free)) = self.free.range(..at).next_back()
                && before + free as u64 == at
                && !begins(at)
            {
                self.free.remove(&before);
                (at, len) = (before, len + free);
            }
            let end = at + len as u64;
            if let Some(free) = self.free.get(&end).copied().filter(|_| !begins(end)) {
                self.free.remove(&end);
                len += free;
            }
            self.free.insert(at, len);
        }
    }

    /// Addresses of all blocks, which it forgets.
    pub(super) fn drain(&mut self) -> Vec<u64> {
        self.free.clear();
        self.waiting.clear();
        self.blocks.drain(..).map(|block| block.at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_lanes::rng::HostRng;

    #[test]
    fn pieces_never_overlap_and_come_back_whole() {
        let mut pool = Pool::default();
        pool.add(1 << 20, 1 << 16);
        pool.add((1 << 20) + (1 << 16), 1 << 16);
        let mut rng = HostRng::new(1, 0, 0, 0);
        let mut held: Vec<(Piece, usize)> = Vec::new();
        let mut again = 0;
        for _ in 0..5000 {
            if rng.below(2) == 0 && !held.is_empty() {
                let (piece, bytes) = held.swap_remove(rng.below(held.len() as u32) as usize);
                pool.give(piece.at, bytes);
                continue;
            }
            let bytes = rng.below(3000) as usize;
            let Some(piece) = pool.take(bytes) else {
                pool.settle();
                continue;
            };
            again += usize::from(!piece.fresh);
            assert!(piece.at.is_multiple_of(ALIGN as u64));
            let end = piece.at + whole(bytes) as u64;
            let block = |at: u64| (at - (1 << 20)) >> 16;
            assert_eq!(block(piece.at), block(end - 1), "a piece of two blocks");
            assert!(held.iter().all(|(other, len)| end <= other.at || other.at + whole(*len) as u64 <= piece.at));
            held.push((piece, bytes));
        }
        assert!(again > 100, "{again} pieces were given out again");
        held.drain(..).for_each(|(piece, bytes)| pool.give(piece.at, bytes));
        assert!(pool.waits());
        pool.settle();
        assert!(pool.free.len() <= 2, "{:?}", pool.free);
        assert_eq!(pool.drain().len(), 2);
        assert_eq!(pool.take(1), None);
    }
}
