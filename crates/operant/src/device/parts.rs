//! Items that have their own parts of slices, shared by the threads of a pool; and work on them in two passes, which may begin
//! when other work of the same threads ends.

#![allow(unsafe_code)]

use super::CpuPool;
use super::pool::Pass;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Elements of a share that a thread is through with before another could help it.
const WHOLE_SHARE: usize = 32 << 10;

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

    /// How many shares of neighbours to cut items into: one for each thread, more if a thread that is late should leave some to
    /// others.
    pub fn shares(items: &[Self], pool: &CpuPool) -> usize {
        let elements: usize = items.iter().map(|part| part.ranges[0].len()).sum();
        let of_thread = if elements > pool.threads() * WHOLE_SHARE { 8 } else { 1 };
        (of_thread * pool.threads()).min(items.len()).max(1)
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
}

/// Work in two passes on some slices, for which another slice is given: the first pass reads what is given, the second reads it again and
/// changes the slices. Both are in shares of neighbours, one for each thread or more.
pub trait TwoPasses<T>: Sync {
    /// How many shares there are.
    fn shares(&self) -> usize;

    /// The elements of a share: of the given slice, and of each of the others.
    fn range(&self, share: usize) -> Range<usize>;

    /// The first of the slices.
    ///
    /// # Safety
    /// What is returned is not used once a second pass has begun.
    unsafe fn unchanged(&self) -> &[T];

    /// Runs a share in the first pass (0) or the second (1).
    ///
    /// # Safety
    /// `given` points to as many elements as the slices have, and nobody writes those of the share meanwhile. Each share runs once in each
    /// pass, and all are through the first before one begins the second.
    unsafe fn run(&self, pass: usize, share: usize, given: *const T);
}

/// Runs both passes, on the threads of a pool if there is one. Panics if less is given than the slices have.
pub fn run_both<T: Sync>(work: &dyn TwoPasses<T>, pool: Option<&CpuPool>, given: &[T]) {
    // SAFETY: no second pass has begun.
    assert!(given.len() >= unsafe { work.unchanged() }.len(), "a slice of {} elements is too short", given.len());
    let each = |pass: &Pass, share: usize| {
        // SAFETY: the length was checked, the slice is borrowed, and a pass begins when the one before has ended.
        unsafe { work.run(pass.number, share, given.as_ptr()) };
    };
    match pool {
        Some(pool) => pool.in_passes(work.shares(), 2, each),
        None => (0..2).map(Pass::alone).for_each(|pass| (0..work.shares()).for_each(|share| each(&pass, share))),
    }
}

/// Work by items: `first` makes something of an item's part of what is given, which is kept; `then` changes its parts of the slices by
/// what `between` makes of all that was kept. `between` is cheap and gives the same every time: it is called for each share, which is
/// faster than to hand its result over.
pub struct InTurn<'a, I, T, M, F, const N: usize, First, Between, Then> {
    items: &'a [Part<I>],
    shares: usize,
    found: AtomicPtr<F>,
    slices: Slices<'a, T, M, N>,
    /// Of each slice, at least.
    len: usize,
    first: First,
    between: Between,
    then: Then,
}

impl<'a, I, T, M, F, V, const N: usize, First, Between, Then> InTurn<'a, I, T, M, F, N, First, Between, Then>
where
    I: Send + Sync,
    T: Send + Sync,
    M: Send,
    F: Send + Sync,
    First: Fn(&I, &[T]) -> F + Sync,
    Between: Fn(&[F]) -> V + Sync,
    Then: Fn(&I, &[T], [&mut [T]; N], &mut [M], &V) + Sync,
{
    /// Panics if ranges of the items do not follow each other within the slices, if there are fewer places in `found` than items, or
    /// fewer items than shares where there is more than one.
    pub fn new(
        (items, found): (&'a [Part<I>], &'a mut [F]),
        shares: usize,
        slices: ([&'a mut [T]; N], &'a mut [M]),
        (first, between, then): (First, Between, Then),
    ) -> Self {
        assert!(found.len() >= items.len() && shares <= items.len().max(1), "{shares} shares of {} items", items.len());
        let len = slices.0.iter().map(|slice| slice.len()).min().unwrap_or(0);
        let slices = Slices::new(items, slices);
        Self { items, shares, found: AtomicPtr::new(found.as_mut_ptr()), slices, len, first, between, then }
    }

    fn items_of(&self, share: usize) -> Range<usize> {
        share * self.items.len() / self.shares..(share + 1) * self.items.len() / self.shares
    }

    /// What `between` makes of what the first pass kept; of what was there before, if it has not run.
    pub fn value(self) -> V {
        // SAFETY: there is a place for each item, and nobody else has this.
        (self.between)(unsafe { std::slice::from_raw_parts(self.found.load(Relaxed), self.items.len()) })
    }
}

impl<'a, I, T, M, F, V, const N: usize, First, Between, Then> TwoPasses<T>
    for InTurn<'a, I, T, M, F, N, First, Between, Then>
where
    I: Send + Sync,
    T: Send + Sync,
    M: Send,
    F: Send + Sync,
    First: Fn(&I, &[T]) -> F + Sync,
    Between: Fn(&[F]) -> V + Sync,
    Then: Fn(&I, &[T], [&mut [T]; N], &mut [M], &V) + Sync,
{
    fn shares(&self) -> usize {
        self.shares
    }

    fn range(&self, share: usize) -> Range<usize> {
        let items = &self.items[self.items_of(share)];
        match (items.first(), items.last()) {
            (Some(first), Some(last)) => first.ranges[0].start..last.ranges[0].end,
            _ => 0..0,
        }
    }

    unsafe fn unchanged(&self) -> &[T] {
        // SAFETY: borrowed for as long as this is, and whoever calls does not keep it until the second pass.
        unsafe { std::slice::from_raw_parts(self.slices.first[0].load(Relaxed), self.len) }
    }

    unsafe fn run(&self, pass: usize, share: usize, given: *const T) {
        let items = self.items_of(share);
        // SAFETY: as long as the slices, in which the ranges lie, and whoever calls has it to read.
        let given = |part: &Part<I>| unsafe {
            std::slice::from_raw_parts(given.add(part.ranges[0].start), part.ranges[0].len())
        };
        let found = self.found.load(Relaxed);
        if pass == 0 {
            for (i, part) in items.clone().zip(&self.items[items]) {
                // SAFETY: shares are apart from each other and have places for all items; none is read before the next pass.
                unsafe { found.add(i).write((self.first)(&part.item, given(part))) };
            }
            return;
        }
        // SAFETY: there is a place for each item, and none is written any more.
        let value = (self.between)(unsafe { std::slice::from_raw_parts(found, self.items.len()) });
        for part in &self.items[items] {
            // SAFETY: every item's are taken once.
            let (own, more) = unsafe { self.slices.of(part) };
            (self.then)(&part.item, given(part), own, more, &value);
        }
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
            for shares in 1..4 {
                let (mut a, mut b, mut found) = ([1; 10], [0; 12], [0; 4]);
                let work = InTurn::new(
                    (&items, &mut found),
                    shares,
                    ([&mut a[..]], &mut b[..]),
                    (
                        |item: &usize, given: &[usize]| item + given.len(),
                        |found: &[usize]| found.iter().sum::<usize>(),
                        |item: &usize, given: &[usize], [a]: [&mut [usize]; 1], b: &mut [usize], total: &usize| {
                            assert_eq!((a.len(), b.len()), (given.len(), 1));
                            a.iter_mut().zip(given).for_each(|(a, x)| *a += total + item + x);
                        },
                    ),
                );
                run_both(&work, pool.as_ref(), &[0, 0, 1, 0, 0, 0, 0, 0, 0, 2]);
                assert_eq!(work.value(), 13);
                assert_eq!(a, [14, 14, 15, 16, 16, 16, 16, 16, 16, 18]);
            }
        }
        let mut overlap = [Part::new([0..2, 0..0], ()), Part::new([1..3, 0..0], ())];
        let run = || Part::for_each(&mut overlap, None, ([&mut [0; 3][..]], &mut [0; 0]), |_, _, _, _| ());
        assert!(catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    }
}
