//! A persistent worker pool for parallel sections of 10 to 500 microseconds.
//!
//! One atomic word, the gate, carries the hand-over. A caller opens it with a new epoch; a worker
//! joins by counting itself in while it is open, and counts itself out when no item is left; the
//! caller works too, closes the gate and waits for the count to reach zero. Nobody waits for a
//! worker that has not joined, so a sleeping worker delays no one. A section can have passes,
//! each of which begins once all items are through the one before.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a worker spins for its next job before it parks, and a caller for its last worker
/// before it yields: longer than the usual gap between sections, too short to cost an idle pool.
const SPIN: Duration = Duration::from_micros(40);

/// How long a thread leaves the last items of another that is at work to it: what they read is in
/// that core's caches, and to bring it over takes longer than to wait for a few.
const LEAVE: Duration = Duration::from_micros(5);

// The gate: epoch (47 bits), OPEN, number of workers inside (16 bits).
const INSIDE: u64 = (1 << 16) - 1;
const OPEN: u64 = 1 << 16;
const EPOCH: u64 = 1 << 17;
const SHUTDOWN: u64 = u64::MAX; // Open, with an epoch that counting never reaches.

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// This thread's number in the pool that started it; 0 for a thread that no pool started.
pub fn thread_number() -> usize {
    NUMBER.get()
}

/// What a thread does in a section.
#[derive(Clone, Copy)]
enum Call {
    Item {
        pass: usize,
        index: usize,
    },
    /// What follows a pass, on one thread.
    After {
        pass: usize,
    },
}

type Job<'a> = &'a (dyn Fn(Call) + Sync);

/// The items that one thread takes first; others help once their own lane is empty.
#[repr(align(128))]
#[derive(Default)]
struct Lane {
    first: AtomicUsize,
    len: AtomicUsize,
    /// Items that were claimed, those of all passes together.
    claimed: AtomicUsize,
    asleep: AtomicBool,
}

impl Lane {
    /// Items that were claimed in a pass.
    fn claimed(&self, pass: usize) -> usize {
        self.claimed.load(Relaxed) - pass * self.len.load(Relaxed)
    }

    fn has_more(&self, pass: usize) -> bool {
        self.claimed(pass) < self.len.load(Relaxed)
    }

    /// An item of a pass that no other thread gets. Publishes nothing.
    fn claim(&self, pass: usize) -> Option<usize> {
        let (first, len) = (self.first.load(Relaxed), self.len.load(Relaxed));
        let claim = |claimed: usize| (claimed < (pass + 1) * len).then_some(claimed + 1);
        let claimed = self.claimed.fetch_update(Relaxed, Relaxed, claim).ok()?;
        Some(first + claimed - pass * len)
    }
}

/// The passes of a section: each begins when all items are through the one before.
#[repr(align(128))]
#[derive(Default)]
struct Passes {
    items: AtomicUsize,
    count: AtomicUsize,
    /// Items that are through, those of all passes together.
    done: AtomicUsize,
    /// The pass that is under way, or [`FAILED`].
    now: AtomicUsize,
}

/// No pass will follow: something panicked.
const FAILED: usize = usize::MAX;

struct Shared {
    gate: AtomicU64,
    /// Points into the frame of the current `for_each_mut`; dangles between calls.
    job: AtomicPtr<Job<'static>>,
    lanes: Box<[Lane]>,
    passes: Passes,
    /// The lowest index that panicked, with its payload.
    panic: Mutex<Option<(usize, Box<dyn std::any::Any + Send>)>>,
    /// Whether one did.
    failed: AtomicBool,
    spin: Duration,
    /// Workers that have begun.
    started: AtomicUsize,
}

fn spin_until(limit: Duration, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() && start.elapsed() < limit {
        std::hint::spin_loop();
    }
}

impl Shared {
    /// Calls a job; keeps its panic, the one of the lowest index. Does not unwind.
    fn call(&self, job: Job, call: Call, index: usize) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(call))) {
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            // Forgets the loser: dropping it might unwind, which this thread must not.
            std::mem::forget(match &*first {
                Some((lower, _)) if *lower < index => Some((index, payload)),
                _ => first.replace((index, payload)),
            });
            self.failed.store(true, Release);
        }
    }

    /// Runs unclaimed items of a pass until none is left, those of lane `me` first; how many. Lanes
    /// partition the items, so each runs once.
    fn pass(&self, pass: usize, job: Job, me: usize) -> usize {
        let (mut count, mut left) = (0, false);
        for (i, lane) in self.lanes[me..].iter().chain(&self.lanes[..me]).enumerate() {
            if i > 0 && !left && lane.has_more(pass) && lane.claimed(pass) > 0 {
                left = true;
                spin_until(self.spin.min(LEAVE), || {
                    // Looks seldom: each look takes the count away from the thread that works there.
                    (0..8).for_each(|_| std::hint::spin_loop());
                    !lane.has_more(pass)
                });
            }
            // Looked at first, to spare an empty lane a write by every thread that passes.
            while lane.has_more(pass) {
                let Some(index) = lane.claim(pass) else { break };
                self.call(job, Call::Item { pass, index }, index);
                count += 1;
            }
        }
        count
    }

    /// Takes part in a section.
    fn work(&self, job: Job, me: usize) {
        let Passes { items, count, done, now } = &self.passes;
        let (items, count) = (items.load(Relaxed), count.load(Relaxed));
        loop {
            let pass = now.load(Acquire);
            if pass == FAILED {
                return;
            }
            let own = self.pass(pass, job, me);
            if pass + 1 == count {
                return;
            }
            // Acquires what others did in this pass, and releases what this thread did.
            if own > 0 && done.fetch_add(own, AcqRel) + own == (pass + 1) * items {
                if !self.failed.load(Acquire) {
                    self.call(job, Call::After { pass }, items);
                }
                now.store(if self.failed.load(Acquire) { FAILED } else { pass + 1 }, Release);
            }
            // All items are claimed, by threads that are at work: one of them ends the pass.
            let ended = || now.load(Acquire) != pass;
            spin_until(self.spin, ended);
            while !ended() {
                thread::yield_now();
            }
        }
    }

    fn worker(&self, me: usize) {
        self.started.fetch_add(1, Release);
        let (gate, asleep, mut epoch) = (&self.gate, &self.lanes[me].asleep, 0);
        while gate.load(SeqCst) != SHUTDOWN {
            let is_new = |gate: u64| gate & OPEN != 0 && gate / EPOCH != epoch;
            let news = || is_new(gate.load(SeqCst));
            spin_until(self.spin, news);
            if !news() {
                // A worker stores `asleep`, then loads the gate; a caller stores the gate, then
                // loads `asleep`. All are SeqCst, so one sees the other: no wake-up is lost.
                asleep.store(true, SeqCst);
                if !news() {
                    thread::park();
                }
                asleep.store(false, SeqCst);
            }
            let seen = gate.load(SeqCst);
            let join = || gate.compare_exchange(seen, seen + 1, SeqCst, Relaxed);
            if seen != SHUTDOWN && is_new(seen) && join().is_ok() {
                epoch = seen / EPOCH;
                // SAFETY: joining acquires what the caller stored before it opened the gate,
                // directly or through the read-modify-writes of other threads, which continue the
                // release sequence of that store. The caller leaves its frame, where the job and
                // all it borrows live, only after the decrement below.
                self.work(unsafe { *self.job.load(Relaxed) }, me);
                gate.fetch_sub(1, SeqCst); // Releases what the job wrote to the caller.
            }
        }
    }
}

/// Threads that run short sections together with the calling thread.
pub struct CpuPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
    /// The process that started the workers: a forked child has none of them.
    process: u32,
}

impl std::fmt::Debug for CpuPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuPool({} threads)", self.threads())
    }
}

impl CpuPool {
    /// `threads` counts the calling thread; zero means one. Fewer if the system starts no more.
    pub fn new(threads: usize) -> CpuPool {
        Self::starting_at_most(threads, usize::MAX)
    }

    /// A pool of which the system starts at most `limit` workers.
    fn starting_at_most(threads: usize, limit: usize) -> CpuPool {
        let threads = threads.clamp(1, INSIDE as usize);
        // Where threads outnumber cores, one that spins keeps another from working.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            job: AtomicPtr::default(),
            lanes: (0..threads).map(|_| Lane::default()).collect(),
            passes: Passes::default(),
            panic: Mutex::new(None),
            failed: AtomicBool::new(false),
            spin: SPIN * u32::from(threads <= cores),
            started: AtomicUsize::new(0),
        });
        let spawn = |me| {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name(format!("operant-{me}"));
            let work = move || {
                NUMBER.set(me);
                shared.worker(me);
            };
            builder.spawn(work).ok()
        };
        let workers: Vec<JoinHandle<()>> = (1..threads).take(limit).map_while(spawn).collect();
        // A thread allocates while it starts: not in the middle of a run that is to allocate nothing.
        while shared.started.load(Acquire) < workers.len() {
            thread::yield_now();
        }
        CpuPool { workers, turn: Mutex::new(()), process: std::process::id(), shared }
    }

    /// Threads that work, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f(index, item)` once for every item and returns when all are done. Of `threads()`
    /// items, item i tends to run on the same thread every time; results must not depend on it.
    ///
    /// The items run on the calling thread when the pool is busy, be it with another caller or
    /// because `f` calls it. If `f` panics, the panic of the lowest index reaches the caller once
    /// no item is running; items above it may or may not have run.
    pub fn for_each_mut<T: Send, F: Fn(usize, &mut T) + Sync>(&self, items: &mut [T], f: F) {
        self.for_each_in_passes(items, 1, |_, i, item| f(i, item), |_, _| {});
    }

    /// Runs `f(pass, index, item)` once for every item in every pass, as [`for_each_mut`](Self::for_each_mut) does in its one. A pass
    /// begins when all items are through the one before, and `between(pass, items)` was called once: half a microsecond instead
    /// of one or two between sections. After a panic no pass follows.
    pub fn for_each_in_passes<T: Send>(
        &self,
        items: &mut [T],
        passes: usize,
        f: impl Fn(usize, usize, &mut T) + Sync,
        between: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let len = items.len();
        let shared = AtomicPtr::new(items.as_mut_ptr());
        let job: Job = &|call| match call {
            // SAFETY: `work` passes every index below `len` once a pass, and passes follow each other, so the borrows are in
            // bounds and disjoint, and the slice is borrowed until all workers have left. `T: Send` lets an item be used
            // on another thread; joining and leaving the gate order that with the caller, `Passes` one pass with the next.
            Call::Item { pass, index } => f(pass, index, unsafe { &mut *shared.load(Relaxed).add(index) }),
            Call::After { pass } => {
                // SAFETY: as above; one thread comes here, when all items are through a pass and none is in the next.
                between(pass, unsafe { std::slice::from_raw_parts_mut(shared.load(Relaxed), len) });
            }
        };
        if self.section(job, len, passes) {
            return;
        }
        for pass in 0..passes {
            items.iter_mut().enumerate().for_each(|(i, item)| f(pass, i, item));
            if pass + 1 < passes {
                between(pass, items);
            }
        }
    }

    /// Runs a job on all threads; false, and nothing done, if there is only one, for few items or because the pool is busy.
    fn section(&self, job: Job, len: usize, passes: usize) -> bool {
        let shared = &*self.shared;
        let parallel = self.threads() > 1 && len > 1 && passes > 0;
        let Some(turn) = parallel.then(|| self.turn.try_lock().ok()).flatten() else { return false };
        // Contiguous, near-equal lanes that hold every item once, also those of workers that did not start; with as many
        // items as threads, lane i holds item i.
        let lanes = shared.lanes.len();
        let start = |lane: usize| lane * (len / lanes) + lane.min(len % lanes);
        for (i, lane) in shared.lanes.iter().enumerate() {
            lane.first.store(start(i), Relaxed);
            lane.len.store(start(i + 1) - start(i), Relaxed);
            lane.claimed.store(0, Relaxed);
        }
        let Passes { items, count, done, now } = &shared.passes;
        for (to, value) in [(items, len), (count, passes), (done, 0), (now, 0)] {
            to.store(value, Relaxed);
        }
        shared.failed.store(false, Relaxed);
        let pointer = (&raw const job).cast_mut().cast();
        shared.job.store(pointer, Relaxed);
        // Publishes job and lanes; the last turn left no worker inside that could still read them.
        // Workers may use this frame until the count is zero, so nothing before that may unwind.
        let epoch = shared.gate.load(Relaxed) / EPOCH + 1;
        shared.gate.store((epoch * EPOCH) | OPEN, SeqCst);
        for (lane, worker) in shared.lanes[1..].iter().zip(&self.workers).take(len - 1) {
            if lane.asleep.load(SeqCst) {
                worker.thread().unpark();
            }
        }
        shared.work(job, 0);
        shared.gate.fetch_and(!OPEN, SeqCst);
        let empty = || shared.gate.load(SeqCst) & INSIDE == 0;
        spin_until(shared.spin, empty);
        while !empty() {
            thread::yield_now();
        }
        let mut first = shared.panic.lock().unwrap_or_else(PoisonError::into_inner);
        let panic = first.take();
        drop((first, turn));
        if let Some((_, payload)) = panic {
            resume_unwind(payload);
        }
        true
    }
}

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

    /// Runs `first` once for every item with its first range, `between` once with what it gave, then `then` for every item
    /// with its parts of the slices and what `between` gave, which is returned. Panics as [`for_each`](Self::for_each) does.
    pub fn for_each_in_turn<A: Send, B: Send, V: Send + Sync, const N: usize>(
        items: &mut [Self],
        pool: Option<&CpuPool>,
        slices: ([&mut [A]; N], &mut [B]),
        first: impl Fn(&mut I, &Range<usize>) + Sync,
        between: impl Fn(&[Self]) -> V + Sync,
        then: impl Fn(&mut I, &Range<usize>, [&mut [A]; N], &mut [B], &V) + Sync,
    ) -> V {
        let slices = Slices::new(items, slices);
        let value = OnceLock::new();
        let each = |pass: usize, part: &mut Self| {
            if pass == 0 {
                return first(&mut part.item, &part.ranges[0]);
            }
            let value = value.get().expect("what lies between has run");
            // SAFETY: every item's are taken once.
            let (own, more) = unsafe { slices.of(part) };
            then(&mut part.item, &part.ranges[0], own, more, value);
        };
        let between = |items: &[Self]| drop(value.set(between(items)));
        match pool {
            Some(pool) => {
                pool.for_each_in_passes(items, 2, |pass, _, part| each(pass, part), |_, items| between(items))
            }
            None => {
                items.iter_mut().for_each(|part| each(0, part));
                between(items);
                items.iter_mut().for_each(|part| each(1, part));
            }
        }
        value.into_inner().expect("what lies between has run")
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

impl Drop for CpuPool {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Joining a thread of the parent process would fail or never end.
            return std::mem::forget(std::mem::take(&mut self.workers));
        }
        self.shared.gate.store(SHUTDOWN, SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            let _ = worker.join(); // Never an error: a worker catches every panic of `f`.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `f` on every thread of the pool, given an item for each: none passes the barrier alone.
    fn on_every_thread<T: Send>(pool: &CpuPool, items: &mut [T], f: impl Fn(&mut T) + Sync) {
        let barrier = std::sync::Barrier::new(pool.threads());
        pool.for_each_mut(items, |_, item| {
            barrier.wait();
            f(item);
        });
    }

    #[test]
    fn visits_every_item_once_whatever_the_thread_count() {
        for threads in 0..6 {
            let pool = CpuPool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for len in (0..40).chain([1000, 4099]).cycle().take(420) {
                let mut items = vec![7; len];
                pool.for_each_mut(&mut items, |i, item| *item = *item * 3 + i);
                assert!(items.iter().enumerate().all(|(i, item)| *item == 21 + i));
            }
        }
    }

    #[test]
    fn visits_every_item_once_when_the_system_starts_fewer_threads() {
        for limit in 0..5 {
            let pool = CpuPool::starting_at_most(9, limit);
            assert_eq!(pool.threads(), limit + 1);
            for len in 0..40 {
                let mut items = vec![0; len];
                pool.for_each_mut(&mut items, |i, item| *item += i + 1);
                assert!(items.iter().enumerate().all(|(i, item)| *item == i + 1));
            }
        }
    }

    #[test]
    fn passes_follow_each_other() {
        for threads in 1..5 {
            let pool = CpuPool::new(threads);
            for (len, passes) in (0..40).flat_map(|len| [(len, len % 4), (len, 5)]) {
                // Each pass adds what the one before left in all items together.
                let mut items = vec![1_u64; len];
                let total = AtomicU64::new(1);
                pool.for_each_in_passes(
                    &mut items,
                    passes,
                    |pass, i, item| *item = item.wrapping_add(total.load(Relaxed) + (pass * len + i) as u64),
                    |_, items| total.store(items.iter().fold(0, |sum, item| sum ^ item) % 1000, Relaxed),
                );
                let (mut wanted, mut total) = (vec![1_u64; len], 1);
                for pass in 0..passes {
                    wanted.iter_mut().enumerate().for_each(|(i, item)| *item += total + (pass * len + i) as u64);
                    total = wanted.iter().fold(0, |sum, item| sum ^ item) % 1000;
                }
                assert_eq!(items, wanted, "{threads} threads, {passes} passes");
            }
        }
    }

    #[test]
    fn no_pass_follows_a_panic() {
        let pool = CpuPool::new(3);
        for (bad_pass, in_between) in (0..4).flat_map(|pass| [(pass, false), (pass, true)]).cycle().take(80) {
            let last = AtomicUsize::new(0);
            let mut items = [0; 7];
            let run = || {
                pool.for_each_in_passes(
                    &mut items,
                    5,
                    |pass, i, _| {
                        last.fetch_max(pass, Relaxed);
                        assert!(in_between || pass != bad_pass || i != 3, "item");
                    },
                    |pass, _| assert!(!in_between || pass != bad_pass, "between"),
                );
            };
            let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(*payload.downcast::<&str>().unwrap(), if in_between { "between" } else { "item" });
            assert_eq!(last.into_inner(), bad_pass);
            on_every_thread(&pool, &mut [0; 3], |_| ());
        }
    }

    #[test]
    fn every_thread_knows_its_number() {
        let pool = CpuPool::new(3);
        let mut numbers = [9; 3];
        on_every_thread(&pool, &mut numbers, |number| *number = thread_number());
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
    }

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
                &mut items,
                pool.as_ref(),
                ([&mut a[..]], &mut b[..]),
                |item, range| *item = range.len(),
                |items| items.iter().map(|part| part.item).sum::<usize>(),
                |item, range, [a], b, total| {
                    assert_eq!((*item, a.len(), b.len()), (range.len(), range.len(), 1));
                    a.iter_mut().for_each(|x| *x += total);
                },
            );
            assert_eq!((total, a), (10, [11; 10]));
        }
        let mut overlap = [Part::new([0..2, 0..0], ()), Part::new([1..3, 0..0], ())];
        let run = || Part::for_each(&mut overlap, None, ([&mut [0; 3][..]], &mut [0; 0]), |_, _, _, _| ());
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    }

    #[test]
    fn panics_reach_the_caller_and_the_pool_survives() {
        let pool = CpuPool::new(3);
        for first in (0..9).cycle().take(90) {
            let run = || pool.for_each_mut(&mut [0; 9], |i, _| assert!(i < first, "{i}"));
            let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(*payload.downcast::<String>().unwrap(), first.to_string());
            on_every_thread(&pool, &mut [0; 3], |_| ());
        }
    }

    #[test]
    fn nested_and_concurrent_calls_run_to_the_end() {
        let pool = CpuPool::new(3);
        let caller = || {
            for _ in 0..500 {
                let mut grid = [[0; 5]; 4];
                pool.for_each_mut(&mut grid, |_, row| pool.for_each_mut(row, |i, x| *x += i));
                assert_eq!(grid, [[0, 1, 2, 3, 4]; 4]);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(caller))));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn idle_workers_burn_no_cpu() {
        let pool = CpuPool::new(2);
        let mut stats = [const { std::path::PathBuf::new() }; 2];
        let own = || std::fs::canonicalize("/proc/thread-self/stat").unwrap();
        on_every_thread(&pool, &mut stats, |stat| *stat = own());
        // Fields 14 and 15 are user and system time, in ticks of 10 ms.
        let ticks = || -> u64 {
            let stat = std::fs::read_to_string(&stats[1]).unwrap();
            let fields = stat.split(' ').skip(13).take(2);
            fields.map(|field| field.parse::<u64>().unwrap()).sum()
        };
        let before = ticks();
        thread::sleep(Duration::from_millis(200));
        assert!(ticks() - before < 2);
    }
}
