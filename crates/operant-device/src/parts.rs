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

    /// Where to cut items into shares of about as many elements: one for each thread of a pool if there is one, more if a thread that is
    /// late should leave some to others.
    pub fn cuts(items: &[Self], pool: Option<&CpuPool>) -> Vec<usize> {
        let threads = pool.map_or(1, CpuPool::threads);
        let elements: usize = items.iter().map(|part| part.ranges[0].len()).sum();
        let of_thread = if threads > 1 && elements > threads * WHOLE_SHARE { 8 } else { 1 };
        let shares = (of_thread * threads).min(items.len()).max(1);
        // Elements before each item.
        let before = items.iter().scan(0, |sum, part| Some(std::mem::replace(sum, *sum + part.ranges[0].len())));
        let before: Vec<usize> = before.chain([elements]).collect();
        let nearest = |share: usize| {
            let wanted = share * elements / shares;
            (0..=items.len()).min_by_key(|&item| before[item].abs_diff(wanted)).unwrap_or(0)
        };
        (0..=shares).map(|share| if share == shares { items.len() } else { nearest(share) }).collect()
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

/// What is done with parts of slices in two passes: the first makes something of each item's part of gradients, which is kept; the second
/// changes its parts of three other slices by what all that comes to.
pub trait PartWork: Sync {
    /// What else an item has.
    type Item: Send + Sync;
    /// What the first pass makes of an item.
    type Found: Copy + Send + Sync;
    /// What all that comes to.
    type Value;

    /// Looks at an item's gradients.
    fn first(&self, item: &Self::Item, gradients: &[f32]) -> Self::Found;

    /// Cheap, and the same every time: each share asks for it, which is faster than to hand its result over.
    fn between(&self, found: &[Self::Found]) -> Self::Value;

    /// Changes an item's parts: the last is of the item's second range.
    fn then(&self, item: &Self::Item, gradients: &[f32], parts: ([&mut [f32]; 2], &mut [f32]), value: &Self::Value);
}

/// [`PartWork`] on slices, in shares of neighbours.
pub struct PartPasses<'a, W: PartWork> {
    items: &'a [Part<W::Item>],
    /// Where shares begin among the items, and where the last ends.
    cuts: &'a [usize],
    found: AtomicPtr<W::Found>,
    slices: Slices<'a, f32, f32, 2>,
    len: usize,
    work: W,
}

impl<'a, W: PartWork> PartPasses<'a, W> {
    /// Panics if ranges of the items do not follow each other within the slices, or cuts among the items, or if there are fewer places in
    /// `found` than items.
    pub fn new(
        (items, cuts): (&'a [Part<W::Item>], &'a [usize]),
        found: &'a mut [W::Found],
        slices: ([&'a mut [f32]; 2], &'a mut [f32]),
        work: W,
    ) -> Self {
        let whole = cuts.first() == Some(&0) && cuts.last() == Some(&items.len()) && cuts.is_sorted();
        assert!(found.len() >= items.len() && cuts.len() > 1 && whole, "{} items cut at {cuts:?}", items.len());
        let len = slices.0[0].len().min(slices.0[1].len());
        let slices = Slices::new(items, slices);
        Self { items, cuts, found: AtomicPtr::new(found.as_mut_ptr()), slices, len, work }
    }

    /// Runs both passes, on the threads of a pool if there is one. Panics if there are not as many gradients as the slices have elements.
    pub fn run_on(self, pool: Option<&CpuPool>, gradients: &[f32]) -> W::Value {
        assert!(gradients.len() == self.len, "{} gradients of {} elements", gradients.len(), self.len);
        let each = |pass: &Pass, share: usize| {
            // SAFETY: the length was checked, the slice is borrowed, and a pass begins when the one before has ended.
            unsafe { self.run(pass.number, share, gradients.as_ptr()) };
        };
        match pool {
            Some(pool) => pool.in_passes(self.shares(), 2, each),
            None => (0..2).map(Pass::alone).for_each(|pass| (0..self.shares()).for_each(|share| each(&pass, share))),
        }
        self.value()
    }

    /// What was kept comes to; what was there before, if the first pass has not run.
    pub fn value(self) -> W::Value {
        // SAFETY: there is a place for each item, and nobody else has this.
        self.work.between(unsafe { std::slice::from_raw_parts(self.found.load(Relaxed), self.items.len()) })
    }
}

/// [`PartPasses`] for whoever runs its passes when it has the gradients.
///
/// # Safety
/// Ranges of shares follow each other within the slices, whose length is told as it is.
pub unsafe trait TwoPasses<T>: Sync {
    /// How many shares there are.
    fn shares(&self) -> usize;

    /// Elements of each slice.
    fn elements(&self) -> usize;

    /// The elements of a share.
    fn range(&self, share: usize) -> Range<usize>;

    /// The first of the slices.
    ///
    /// # Safety
    /// What is returned is not used once a second pass has begun.
    unsafe fn unchanged(&self) -> &[T];

    /// Runs a share in the first pass (0) or the second (1).
    ///
    /// # Safety
    /// `gradients` points to as many as the slices have elements, and nobody writes those of the share meanwhile. Each share runs once in
    /// each pass, and all are through the first before one begins the second.
    unsafe fn run(&self, pass: usize, share: usize, gradients: *const T);
}

// SAFETY: `new` checked that ranges and cuts follow each other.
unsafe impl<W: PartWork> TwoPasses<f32> for PartPasses<'_, W> {
    fn shares(&self) -> usize {
        self.cuts.len() - 1
    }

    fn elements(&self) -> usize {
        self.len
    }

    fn range(&self, share: usize) -> Range<usize> {
        let start = |item: usize| self.items.get(item).map_or(self.len, |part| part.ranges[0].start);
        start(self.cuts[share])..start(self.cuts[share + 1])
    }

    unsafe fn unchanged(&self) -> &[f32] {
        // SAFETY: borrowed for as long as this is, and whoever calls does not keep it until the second pass.
        unsafe { std::slice::from_raw_parts(self.slices.first[0].load(Relaxed), self.len) }
    }

    unsafe fn run(&self, pass: usize, share: usize, gradients: *const f32) {
        let items = self.cuts[share]..self.cuts[share + 1];
        // SAFETY: as long as the slices, in which the ranges lie, and whoever calls has it to read.
        let gradients = |part: &Part<W::Item>| unsafe {
            std::slice::from_raw_parts(gradients.add(part.ranges[0].start), part.ranges[0].len())
        };
        let found = self.found.load(Relaxed);
        if pass == 0 {
            for (i, part) in items.clone().zip(&self.items[items]) {
                // SAFETY: shares are apart from each other and have places for all items; none is read before the next pass.
                unsafe { found.add(i).write(self.work.first(&part.item, gradients(part))) };
            }
            return;
        }
        // SAFETY: there is a place for each item, and none is written any more.
        let value = self.work.between(unsafe { std::slice::from_raw_parts(found, self.items.len()) });
        for part in &self.items[items] {
            // SAFETY: every item's are taken once.
            let parts = unsafe { self.slices.of(part) };
            self.work.then(&part.item, gradients(part), parts, &value);
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
        let mut overlap = [Part::new([0..2, 0..0], ()), Part::new([1..3, 0..0], ())];
        let run = || Part::for_each(&mut overlap, None, ([&mut [0; 3][..]], &mut [0; 0]), |_, _, _, _| ());
        assert!(catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    }

    /// Adds all gradients and the item's number to each element.
    struct Totals;

    impl PartWork for Totals {
        type Item = f32;
        type Found = f32;
        type Value = f32;

        fn first(&self, item: &f32, gradients: &[f32]) -> f32 {
            item + gradients.iter().sum::<f32>()
        }

        fn between(&self, found: &[f32]) -> f32 {
            found.iter().sum()
        }

        fn then(&self, item: &f32, gradients: &[f32], (slices, more): ([&mut [f32]; 2], &mut [f32]), total: &f32) {
            assert_eq!((slices[1].len(), more.len()), (gradients.len(), 1));
            slices[0].iter_mut().zip(gradients).for_each(|(x, gradient)| *x += total + item + gradient);
            more[0] += item;
        }
    }

    #[test]
    fn the_second_pass_knows_all_of_the_first() {
        let ends = [0, 3, 3, 10];
        let items: Vec<Part<f32>> = (0..3).map(|i| Part::new([ends[i]..ends[i + 1], i..i + 1], i as f32)).collect();
        let gradients = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0];
        for pool in [None, Some(CpuPool::new(1)), Some(CpuPool::new(3))] {
            for cuts in [&[0, 3][..], &[0, 1, 3], &[0, 2, 2, 3]] {
                let (mut x, mut y, mut more, mut found) = ([1.0; 10], [0.0; 10], [0.0; 3], [0.0; 4]);
                let slices = ([&mut x[..], &mut y[..]], &mut more[..]);
                let passes = PartPasses::new((&items, cuts), &mut found, slices, Totals);
                let ranges: Vec<_> = (0..passes.shares()).map(|share| passes.range(share)).collect();
                assert!(ranges[0].start == 0 && ranges.last().unwrap().end == 10, "{ranges:?}");
                assert!(ranges.windows(2).all(|two| two[0].end == two[1].start), "{ranges:?}");
                assert_eq!(passes.run_on(pool.as_ref(), &gradients), 6.0);
                assert_eq!(x, [7.0, 7.0, 8.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 11.0]);
                assert_eq!((y, more), ([0.0; 10], [0.0, 1.0, 2.0]));
            }
        }
    }

    #[test]
    fn shares_have_about_as_many_elements() {
        let cuts = |lens: &[usize], threads: usize| {
            let mut end = 0;
            let items = lens.iter().map(|len| {
                end += len;
                Part::new([end - len..end, 0..0], ())
            });
            let items: Vec<Part<()>> = items.collect();
            Part::cuts(&items, (threads > 0).then(|| CpuPool::new(threads)).as_ref())
        };
        assert_eq!(cuts(&[5, 5, 5, 5], 0), [0, 4]);
        assert_eq!(cuts(&[1, 1, 1, 1, 1, 15], 2), [0, 5, 6]);
        assert_eq!(cuts(&[10, 1, 1, 1, 1], 2), [0, 1, 5]);
        assert_eq!(cuts(&[4, 4, 4], 4), [0, 1, 2, 3]);
        assert_eq!(cuts(&[], 2), [0, 0]);
        assert_eq!(cuts(&[4096; 64], 2).len(), 17, "many shares of a large vector");
    }
}
