//! A lap track of fixed-size records: one writer that never waits and any number of readers that it never notices.
//! The newest `capacity` records stay readable; a reader that was lapped learns how many it missed. All is kept in
//! atomic words, so the same code serves the queue in memory and the mapped file.
//!
//! Invariant: a record is handed out only if its stamp was the wanted one before and after it was copied (a sequence
//! lock; H.-J. Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012).

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The shape of a track. Its words: how many records were published, then for each place a stamp and `width` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// Words of one record.
    pub(super) width: usize,
    /// Places for records.
    pub(super) capacity: usize,
}

impl Track {
    /// Words that hold the track.
    pub(super) fn words(self) -> usize {
        1 + self.capacity * (1 + self.width)
    }

    /// Memory for a track that is not in a file.
    pub(super) fn memory(self) -> Box<[AtomicU64]> {
        (0..self.words()).map(|_| AtomicU64::new(0)).collect()
    }

    fn place(self, words: &[AtomicU64], number: u64) -> &[AtomicU64] {
        let at = 1 + (number % self.capacity as u64) as usize * (1 + self.width);
        &words[at..at + 1 + self.width]
    }

    /// Publishes a record; words that `record` lacks keep what an older record left there. One thread at a time.
    #[inline]
    pub(super) fn push(self, words: &[AtomicU64], record: impl Iterator<Item = u64>) {
        let number = words[0].load(Ordering::Relaxed);
        let place = self.place(words, number);
        // Odd while it is being written.
        place[0].store(2 * number + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in place[1..].iter().zip(record) {
            word.store(value, Ordering::Relaxed);
        }
        place[0].store(2 * number + 2, Ordering::Release);
        words[0].store(number + 1, Ordering::Release);
    }

    /// Records published so far. Loads are relaxed and followed by a fence because only relaxed loads are allowed in
    /// memory that is mapped read-only (`std::sync::atomic`, "Atomic accesses to read-only memory").
    pub(super) fn published(self, words: &[AtomicU64]) -> u64 {
        let published = words[0].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        published
    }

    /// Copies record `number`; false if it is not there (any more) or was overwritten meanwhile.
    pub(super) fn read(self, words: &[AtomicU64], number: u64, record: &mut [u64]) -> bool {
        let place = self.place(words, number);
        let wanted = number.wrapping_mul(2).wrapping_add(2);
        if place[0].load(Ordering::Relaxed) != wanted {
            return false;
        }
        fence(Ordering::Acquire);
        for (value, word) in record.iter_mut().zip(&place[1..]) {
            *value = word.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        place[0].load(Ordering::Relaxed) == wanted
    }

    /// Copies the oldest record at or after `cursor` and moves the cursor behind it; says how many were missed on the way.
    pub(super) fn next(self, words: &[AtomicU64], cursor: &mut u64, record: &mut [u64]) -> (u64, bool) {
        let mut missed = 0;
        loop {
            let published = self.published(words);
            if *cursor >= published {
                return (missed, false);
            }
            let oldest = published.saturating_sub(self.capacity as u64);
            missed += oldest.saturating_sub(*cursor);
            *cursor = oldest.max(*cursor);
            let read = self.read(words, *cursor, record);
            *cursor += 1;
            if read {
                return (missed, true);
            }
            missed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACK: Track = Track { width: 3, capacity: 4 };

    #[test]
    fn keeps_the_newest_and_counts_the_missed() {
        let words = TRACK.memory();
        let (mut cursor, mut record) = (0, [0; 3]);
        assert_eq!(TRACK.next(&words, &mut cursor, &mut record), (0, false));
        for i in 0..10 {
            TRACK.push(&words, [i, i * 10, i * 100].into_iter());
        }
        assert_eq!(TRACK.next(&words, &mut cursor, &mut record), (6, true));
        assert_eq!((record, cursor), ([6, 60, 600], 7));
        assert!(!TRACK.read(&words, 5, &mut record), "overwritten");
        assert!(!TRACK.read(&words, 10, &mut record), "not there yet");
        for i in 7..10 {
            assert_eq!(TRACK.next(&words, &mut cursor, &mut record), (0, true));
            assert_eq!(record[0], i);
        }
        assert_eq!(TRACK.next(&words, &mut cursor, &mut record), (0, false));
    }

    #[test]
    fn readers_never_see_half_a_record() {
        let track = Track { width: 32, capacity: 2 };
        let words = track.memory();
        let total = 200_000;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (mut cursor, mut record, mut seen) = (0, [0; 32], 0);
                    while cursor < total {
                        let (missed, read) = track.next(&words, &mut cursor, &mut record);
                        seen += missed + u64::from(read);
                        if read {
                            assert!(record.iter().all(|&word| word == cursor - 1), "{record:?} at {cursor}");
                        }
                    }
                    assert_eq!(seen, total, "every record is read or counted as missed");
                });
            }
            (0..total).for_each(|i| track.push(&words, std::iter::repeat_n(i, 32)));
        });
    }
}
