//! Items that have their own parts of slices, shared by the threads of a pool.

#![allow(unsafe_code)]

use super::CpuPool;
use super::pool::Pass;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// An item of a section, with the range that it alone writes of some slices, and another of one more.
#[derive(Clone, Debug)]
pub struct Part<I> {
    ranges: [Range<usize>; 2],
    /// What else it has.
    pub item: I,
}

impl<I: Send> Part<I> {
    /// An item with its ranges.
    pub fn new(ranges: [Range<usize>; 2], item: I) -> Self {
        Self { ranges, item }
    }

    /// Its first range.
    pub fn range(&self) -> Range<usize> {
        self.ranges[0].clone()
    }

    /// Runs `f` once for every item with its parts of the slices, on the threads of a pool if there is one. Panics if ranges do not
    /// follow each other within the slices.
    pub fn for_each<A: Send, B: Send, const N: usize>(
        items: &mut [Self],
        pool: Option<&CpuPool>,
        slices: ([&mut [A]; N], &mut [B]),
        f: impl Fn(&mut I, &Range<usize>, [&mut [A]; N], &mut [B]) + Sync,
    ) {
        let slices = Slices::new(items, slices);
        let one = |part: &mut Self| {
            // SAFETY: every item's are taken once.
            let (own, more) = unsafe { slices.of(part) };
            f(&mut part.item, &part.ranges[0], own, more);
        };
        match pool {
            Some(pool) => pool.for_each_mut(items, |_, part| one(part)),
            None => items.iter_mut().for_each(one),
        }
    }

    /// Keeps what `first` gives for every item with its first range, then runs `then` for every item with its parts of the slices and
    /// what `between` makes of all that was kept, which is returned. `between` is cheap and gives the same every time: it is called
    /// for each share that a thread takes, which is faster than to hand its result over. Panics as [`for_each`](Self::for_each)
    /// does, and if there are fewer places in `found` than items.
    pub fn for_each_in_turn<A: Send, B: Send, F: Copy + Send + Sync, V, const N: usize>(
        (items, found): (&[Self], &mut [F]),
        pool: Option<&CpuPool>,
        slices: ([&mut [A]; N], &mut [B]),
        first: impl Fn(&I, &Range<usize>) -> F + Sync,
        between: impl Fn(&[F]) -> V + Sync,
        then: impl Fn(&I, &Range<usize>, [&mut [A]; N], &mut [B], &V) + Sync,
    ) -> V
    where
        I: Sync,
    {
        let slices = Slices::new(items, slices);
        let found = &mut found[..items.len()];
        let shares = pool.map_or(1, |pool| pool.shares(items));
        let of = |share: usize| share * items.len() / shares..(share + 1) * items.len() / shares;
        let kept = AtomicPtr::new(found.as_mut_ptr());
        let each = |pass: &Pass, share: usize| {
            if pass.number == 0 {
                for (i, part) in of(share).zip(&items[of(share)]) {
                    // SAFETY: shares are apart from each other and have places for all items; none is read before the next pass.
                    unsafe { kept.load(Relaxed).add(i).write(first(&part.item, &part.ranges[0])) };
                }
                return;
            }
            // SAFETY: there is a place for each item, and none is written any more.
            let value = between(unsafe { std::slice::from_raw_parts(kept.load(Relaxed), items.len()) });
            for part in &items[of(share)] {
                // SAFETY: every item's are taken once.
                let (own, more) = unsafe { slices.of(part) };
                then(&part.item, &part.ranges[0], own, more, &value);
            }
        };
        match pool {
            Some(pool) => pool.in_passes(shares, 2, each),
            None => (0..2).map(Pass::alone).for_each(|pass| each(&pass, 0)),
        }
        between(found)
    }
}

/// Slices of which items have their parts.
struct Slices<'a, A, B, const N: usize> {
    first: [AtomicPtr<A>; N],
    last: AtomicPtr<B>,
    _borrowed: PhantomData<&'a mut ()>,
}

impl<'a, A: Send, B: Send, const N: usize> Slices<'a, A, B, N> {
    /// Panics if ranges of the items do not follow each other within the slices.
    fn new<I>(items: &[Part<I>], (first, last): ([&'a mut [A]; N], &'a mut [B])) -> Self {
        let len = first.iter().map(|slice| slice.len()).min().unwrap_or(usize::MAX);
        let mut ends = [0; 2];
        for (range, (end, len)) in items.iter().flat_map(|part| part.ranges.iter().zip([(0, len), (1, last.len())])) {
            let follows = ends[end] <= range.start && range.start <= range.end && range.end <= len;
            assert!(follows, "{range:?} of {len} elements, after {}", ends[end]);
            ends[end] = range.end;
        }
        let first = first.map(|slice| AtomicPtr::new(slice.as_mut_ptr()));
        Self { first, last: AtomicPtr::new(last.as_mut_ptr()), _borrowed: PhantomData }
    }

    /// Parts of an item.
    ///
    /// # Safety
    /// The item is one of those that these slices were made for, and its parts are not taken twice.
    unsafe fn of<I>(&self, part: &Part<I>) -> ([&'a mut [A]; N], &'a mut [B]) {
        let [a, b] = &part.ranges;
        // SAFETY: nothing changes ranges after they were made, and `new` found them within the slices, which are
        // borrowed until all items are done, and apart from each other. `Send` lets a part be used on another thread.
        unsafe {
            let of = |slice: &AtomicPtr<A>| std::slice::from_raw_parts_mut(slice.load(Relaxed).add(a.start), a.len());
            let last = std::slice::from_raw_parts_mut(self.last.load(Relaxed).add(b.start), b.len());
            (self.first.each_ref().map(of), last)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn items_write_their_own_parts_of_slices() {
        let ends = [0, 3, 3, 10];
        let mut items: Vec<Part<usize>> = (0..3).map(|i| Part::new([ends[i]..ends[i + 1], i..i + 1], i)).collect();
        for pool in [None, Some(CpuPool::new(1)), Some(CpuPool::new(3))] {
            let (mut a, mut b, mut lens) = ([0; 10], [0; 12], [9; 3]);
            Part::for_each(
                &mut items,
                pool.as_ref(),
                ([&mut a[..], &mut b[..]], &mut lens),
                |item, range, [a, b], len| {
                    a.iter_mut().chain(b).for_each(|x| *x += *item + 1);
                    len[0] = range.len();
                },
            );
            assert_eq!(a, [1, 1, 1, 3, 3, 3, 3, 3, 3, 3]);
            assert_eq!((&b[..10], &b[10..], lens), (&a[..], &[0, 0][..], [3, 0, 7]));
        }
        for pool in [None, Some(CpuPool::new(1)), Some(CpuPool::new(3))] {
            let (mut a, mut b) = ([1; 10], [0; 12]);
            let total = Part::for_each_in_turn(
                (&items, &mut [0; 4]),
                pool.as_ref(),
                ([&mut a[..]], &mut b[..]),
                |item, range| item + range.len(),
                |found| found.iter().sum::<usize>(),
                |item, range, [a], b, total| {
                    assert_eq!((a.len(), b.len()), (range.len(), 1));
                    a.iter_mut().for_each(|x| *x += total + item);
                },
            );
            assert_eq!((total, a), (13, [14, 14, 14, 16, 16, 16, 16, 16, 16, 16]));
        }
        let mut overlap = [Part::new([0..2, 0..0], ()), Part::new([1..3, 0..0], ())];
        let run = || Part::for_each(&mut overlap, None, ([&mut [0; 3][..]], &mut [0; 0]), |_, _, _, _| ());
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    }
}
