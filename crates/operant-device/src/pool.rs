//! A persistent worker pool for parallel sections of 10 to 500 microseconds.
//!
//! One atomic word, the gate, carries the hand-over. A caller opens it with a new epoch; a worker
//! joins by counting itself in while it is open, and counts itself out when no item is left; the
//! caller works too, closes the gate and waits until all that joined have left. Nobody waits for a
//! worker that has not joined, so a sleeping worker delays no one. A section can have passes,
//! each of which begins once all items are through the one before, or have said that it may.
//!
//! A line of memory that another core wrote comes over in 100 to 250 nanoseconds, so what a section
//! costs is how often threads wait for one: they look at each other's lines as seldom as can be.

#![allow(unsafe_code)]

use super::prefetch::{prefetch_from, prefetch_to_write};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a worker spins for its next job before it parks, and a caller for its last worker
/// before it yields: longer than the usual gap between sections, too short to cost an idle pool.
const SPIN: Duration = Duration::from_micros(40);

/// How long a thread leaves the last items of another that is at work to it, or somewhat longer: what they read is in
/// that core's caches, and to bring it over takes longer than to wait for a few.
const LEAVE: Duration = Duration::from_micros(5);

/// How often a thread that waits looks before it asks for the time, which may take longer than all of these looks.
const LOOKS: usize = 16;

/// Bytes of the caller's frames that hold most of what a job borrows, from where the job itself is.
const FRAMES: usize = 1024;

// The gate: epoch (31 bits), OPEN, number of workers that joined, and of those that left again (16 bits each).
const COUNT: u64 = (1 << 16) - 1;
const JOINED: u64 = 1 << 16;
const OPEN: u64 = 1 << 32;
const EPOCH: u64 = 1 << 33;
const SHUTDOWN: u64 = u64::MAX; // Open, with more workers than a pool has.

/// Workers that joined.
fn joined(gate: u64) -> u64 {
    (gate / JOINED) & COUNT
}

/// Whether all of them have left.
fn is_empty(gate: u64) -> bool {
    joined(gate) == gate & COUNT
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// This thread's number in the pool that started it; 0 for a thread that no pool started.
pub fn thread_number() -> usize {
    NUMBER.get()
}

/// Calls an item in a pass.
type Job<'a> = &'a (dyn Fn(&Pass, usize) + Sync);

/// The pass that an item is in.
pub struct Pass<'a> {
    /// Which of them.
    pub number: usize,
    /// Where its thread says that the next may begin, for as long as it has not.
    untold: Cell<Option<&'a Shared>>,
}

impl<'a> Pass<'a> {
    /// A pass that ends with its items.
    pub(super) fn alone(number: usize) -> Self {
        Self { number, untold: Cell::new(None) }
    }

    /// Lets other items begin the next pass although this one goes on, now or when it has ended: what they read there has been
    /// written, and what is still to be written they do not touch. This item's own next pass follows its end as ever.
    pub fn others_may_go_on(&self) {
        if let Some(shared) = self.untold.get()
            && shared.one_of_each_is_here()
        {
            self.untold.set(None);
            shared.passes.done.fetch_add(1, AcqRel);
        }
    }
}

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

/// What a worker reads to join a section.
#[repr(align(128))]
#[derive(Default)]
struct Front {
    gate: AtomicU64,
    /// Points into the frame of the current `section`; dangles between calls.
    job: AtomicPtr<Job<'static>>,
    items: AtomicUsize,
    passes: AtomicUsize,
}

/// The passes of a section: each begins when all items are through the one before, or let others go on.
#[repr(align(128))]
#[derive(Default)]
struct Passes {
    /// Items that are through or let others go on, those of all passes but the last together.
    done: AtomicUsize,
    /// The first pass in which something panicked; none follows it but one that may have begun already.
    failed: AtomicUsize,
}

/// A panic's pass and index, and its payload.
type Caught = ((usize, usize), Box<dyn std::any::Any + Send>);

struct Shared {
    front: Front,
    lanes: Box<[Lane]>,
    passes: Passes,
    /// Of the first pass in which something panicked, and the lowest index there.
    panic: Mutex<Option<Caught>>,
    spin: Duration,
    /// Workers that have begun.
    started: AtomicUsize,
}

fn spin_until(limit: Duration, ready: impl Fn() -> bool) {
    let mut start = None;
    while !limit.is_zero() {
        for _ in 0..LOOKS {
            if ready() {
                return;
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() >= limit {
            return;
        }
    }
}

impl Shared {
    /// Whether every item has a thread of its own that has joined: then none runs another's.
    fn one_of_each_is_here(&self) -> bool {
        let items = self.front.items.load(Relaxed);
        items == self.lanes.len() && joined(self.front.gate.load(Relaxed)) + 1 == items as u64
    }

    /// Calls a job; keeps its panic, the one of the lowest index in the first pass. Does not unwind.
    fn call(&self, job: Job, pass: &Pass, index: usize) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(pass, index))) {
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (pass.number, index);
            // Forgets the loser: dropping it might unwind, which this thread must not.
            std::mem::forget(match &*first {
                Some((lower, _)) if *lower < at => Some((at, payload)),
                _ => first.replace((at, payload)),
            });
            self.passes.failed.fetch_min(pass.number, Release);
        }
    }

    /// Runs unclaimed items of a lane in a pass until none is left; how many.
    fn lane(&self, lane: &Lane, pass: &Pass, job: Job) -> usize {
        let mut count = 0;
        // Looked at first, to spare an empty lane a write by every thread that passes.
        while lane.has_more(pass.number) {
            let Some(index) = lane.claim(pass.number) else { break };
            self.call(job, pass, index);
            count += 1;
        }
        count
    }

    /// Helps others than `me` with a pass; how many items it ran.
    fn help(&self, pass: usize, job: Job, me: usize) -> usize {
        let (mut count, mut left) = (0, false);
        for lane in self.lanes[me + 1..].iter().chain(&self.lanes[..me]) {
            if !left && lane.has_more(pass) && lane.claimed(pass) > 0 {
                left = true;
                spin_until(self.spin.min(LEAVE), || {
                    // Looks seldom: each look takes the count away from the thread that works there.
                    (0..4).for_each(|_| std::hint::spin_loop());
                    !lane.has_more(pass)
                });
            }
            // Items of others do not let anybody go on: their own threads may be about to begin the next pass.
            count += self.lane(lane, &Pass::alone(pass), job);
        }
        count
    }

    /// Takes part in a section. Lanes partition the items, so each runs once in a pass.
    ///
    /// With an item for every lane and a thread for every item nobody looks at the lanes of others. A thread that knew so before it
    /// said that its own item was through, or that others may go on, does not claim the next: no pass could end before, so in those
    /// that follow all others find that all are here.
    fn work(&self, job: Job, me: usize) {
        let Front { items, passes, .. } = &self.front;
        let Passes { done, failed } = &self.passes;
        let (items, passes) = (items.load(Relaxed), passes.load(Relaxed));
        let mut here = false;
        let mut pass = done.load(Acquire) / items;
        while failed.load(Acquire) >= pass {
            let may_tell = items == self.lanes.len() && pass + 1 < passes;
            let own_pass = Pass { number: pass, untold: Cell::new(may_tell.then_some(self)) };
            let mut own = 1;
            if here {
                self.call(job, &own_pass, me);
            } else {
                own = self.lane(&self.lanes[me], &own_pass, job);
                if self.one_of_each_is_here() {
                    here = own > 0;
                } else {
                    own += self.help(pass, job, me);
                }
            }
            let told = may_tell && own_pass.untold.get().is_none();
            own -= usize::from(told);
            pass += 1;
            if pass == passes {
                return;
            }
            // Acquires what others did in this pass, and releases what this thread did.
            let through = if own > 0 { done.fetch_add(own, AcqRel) + own } else { 0 };
            // All items have threads that are at work: one of them ends the pass. Some may not be there any more if they
            // failed in the one before, which had let this one begin.
            let ended = || done.load(Acquire) >= pass * items || failed.load(Acquire) < pass - 1;
            if through < pass * items {
                spin_until(self.spin, ended);
                while !ended() {
                    thread::yield_now();
                }
            }
        }
    }

    fn worker(&self, me: usize) {
        self.started.fetch_add(1, Release);
        let Front { gate, job, .. } = &self.front;
        let (lane, mut epoch) = (&self.lanes[me], 0);
        let asleep = &lane.asleep;
        while gate.load(SeqCst) != SHUTDOWN {
            let is_new = |gate: u64| gate & OPEN != 0 && gate / EPOCH != epoch;
            let news = || is_new(gate.load(SeqCst));
            spin_until(self.spin, news);
            if !news() {
                // A worker stores `asleep`, then loads the gate; a caller stores the gate, then
                // loads `asleep`, with a fence between. Fence and all but the gate's store are SeqCst, so one sees the
                // other: no wake-up is lost.
                asleep.store(true, SeqCst);
                if !news() {
                    thread::park();
                }
                asleep.store(false, SeqCst);
            }
            let seen = gate.load(SeqCst);
            // What is read and written next comes while the gate does.
            prefetch_to_write(lane);
            prefetch_from(job.load(Relaxed).cast(), FRAMES);
            let join = || gate.compare_exchange(seen, seen + JOINED, SeqCst, Relaxed);
            if seen != SHUTDOWN && is_new(seen) && join().is_ok() {
                epoch = seen / EPOCH;
                // SAFETY: joining acquires what the caller stored before it opened the gate,
                // directly or through the read-modify-writes of other threads, which continue the
                // release sequence of that store. The caller leaves its frame, where the job and
                // all it borrows live, only after this worker has left, below.
                self.work(unsafe { *job.load(Relaxed) }, me);
                gate.fetch_add(1, SeqCst); // Leaves: releases what the job wrote to the caller.
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
        let threads = threads.clamp(1, COUNT as usize);
        // Where threads outnumber cores, one that spins keeps another from working.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            front: Front::default(),
            lanes: (0..threads).map(|_| Lane::default()).collect(),
            passes: Passes::default(),
            panic: Mutex::new(None),
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
        self.for_each_in_passes(items, 1, |_, i, item| f(i, item));
    }

    /// Runs `f(pass, index, item)` once for every item in every pass, as [`for_each_mut`](Self::for_each_mut) does in its one. A pass
    /// begins when all items are through the one before, or [let others go on](Pass::others_may_go_on): half a microsecond instead
    /// of one or two between sections. After a panic no pass follows, but one that was let go on may have begun; the caller gets the
    /// panic of the first pass that has one.
    pub fn for_each_in_passes<T: Send>(&self, items: &mut [T], passes: usize, f: impl Fn(&Pass, usize, &mut T) + Sync) {
        let shared = AtomicPtr::new(items.as_mut_ptr());
        self.in_passes(items.len(), passes, |pass, i| {
            // SAFETY: every index below the length comes once a pass, and an item's passes follow each other: those of others go on
            // early only where each has a thread of its own. So the borrows are in
            // bounds and disjoint, and the slice is borrowed until all workers have left. `T: Send` lets an item be used
            // on another thread; joining and leaving the gate order that with the caller, `Passes` one pass with the next.
            f(pass, i, unsafe { &mut *shared.load(Relaxed).add(i) });
        });
    }

    /// Runs `f(pass, index)` once for every index below `len` in every pass.
    pub(super) fn in_passes(&self, len: usize, passes: usize, f: impl Fn(&Pass, usize) + Sync) {
        if !self.section(&f, len, passes) {
            (0..passes).map(Pass::alone).for_each(|pass| (0..len).for_each(|i| f(&pass, i)));
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
        let Front { gate, .. } = &shared.front;
        let Passes { done, failed } = &shared.passes;
        let front = &shared.front;
        for (to, value) in [(done, 0), (failed, usize::MAX), (&front.items, len), (&front.passes, passes)] {
            to.store(value, Relaxed);
        }
        let pointer = (&raw const job).cast_mut().cast();
        front.job.store(pointer, Relaxed);
        // Publishes job and lanes; the last turn left no worker inside that could still read them.
        // Workers may use this frame until all that joined have left, so nothing before that may unwind.
        let epoch = gate.load(Relaxed) / EPOCH + 1;
        // A store like those before it, and a fence: an exchange would wait for them, and then once more for the line.
        gate.store(epoch.wrapping_mul(EPOCH) | OPEN, Release);
        fence(SeqCst);
        for (lane, worker) in shared.lanes[1..].iter().zip(&self.workers).take(len - 1) {
            if lane.asleep.load(SeqCst) {
                worker.thread().unpark();
            }
        }
        shared.work(job, 0);
        if !is_empty(gate.fetch_and(!OPEN, SeqCst)) {
            let empty = || is_empty(gate.load(SeqCst));
            spin_until(shared.spin, empty);
            while !empty() {
                thread::yield_now();
            }
        }
        // What the next section begins with is written while workers wait for nothing but the gate.
        shared.lanes[1..].iter().take(len - 1).for_each(|lane| prefetch_to_write(lane));
        prefetch_to_write(&shared.passes);
        let mut first = shared.panic.lock().unwrap_or_else(PoisonError::into_inner);
        let panic = first.take();
        drop((first, turn));
        if let Some((_, payload)) = panic {
            resume_unwind(payload);
        }
        true
    }
}

impl Drop for CpuPool {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Joining a thread of the parent process would fail or never end.
            return std::mem::forget(std::mem::take(&mut self.workers));
        }
        self.shared.front.gate.store(SHUTDOWN, SeqCst);
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
                // Each item adds up what all others had after the pass before.
                let mut items = vec![1_u64; len];
                let totals: Vec<AtomicU64> = (0..=passes).map(|pass| AtomicU64::new((pass == 0).into())).collect();
                pool.for_each_in_passes(&mut items, passes, |&Pass { number: pass, .. }, i, item| {
                    *item = item.wrapping_mul(31) + totals[pass].load(Relaxed) + i as u64;
                    totals[pass + 1].fetch_add(*item % 1000, Relaxed);
                });
                let mut wanted = vec![1_u64; len];
                let mut total = 1;
                for _ in 0..passes {
                    let before = std::mem::take(&mut total);
                    for (i, item) in wanted.iter_mut().enumerate() {
                        *item = item.wrapping_mul(31) + before + i as u64;
                        total += *item % 1000;
                    }
                }
                assert_eq!(items, wanted, "{threads} threads, {passes} passes");
            }
        }
    }

    #[test]
    fn every_item_runs_once_in_each_pass_whoever_is_late() {
        // Threads that sleep join in any pass: where they outnumber cores, and after a pause.
        for threads in [2, 3, 4, 5] {
            let pool = CpuPool::new(threads);
            for round in 0..3000_usize {
                if round % 64 == 0 {
                    thread::sleep(2 * SPIN);
                }
                let counts: Vec<[AtomicUsize; 4]> = (0..threads).map(|_| Default::default()).collect();
                pool.for_each_in_passes(&mut vec![(); threads], 4, |&Pass { number: pass, .. }, i, ()| {
                    counts[i][pass].fetch_add(1, Relaxed);
                    (0..round * (i + 3 * pass + 1) % 701).for_each(|_| std::hint::spin_loop());
                });
                let counts: Vec<_> = counts.iter().flatten().map(|count| count.load(Relaxed)).collect();
                assert_eq!(counts, vec![1; 4 * threads], "{threads} threads, round {round}");
            }
        }
    }

    #[test]
    fn items_that_let_others_go_on_are_seen_as_they_were_then() {
        for threads in [1, 2, 3, 4] {
            let pool = CpuPool::new(threads);
            for round in 0..2000_usize {
                if round % 64 == 0 {
                    thread::sleep(2 * SPIN);
                }
                let wait = |i: usize, pass: usize| {
                    (0..round * (2 * i + pass + 1) % 401).for_each(|_| std::hint::spin_loop());
                };
                // What each has written for others, and for itself alone; nobody is in an item of somebody else.
                let shown: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                let inside: Vec<AtomicBool> = (0..threads).map(|_| AtomicBool::new(false)).collect();
                let mut own = vec![0; threads];
                pool.for_each_in_passes(&mut own, 5, |pass, i, own| {
                    assert!(!inside[i].swap(true, Relaxed), "item {i} runs twice at once");
                    let least = shown.iter().map(|shown| shown.load(Relaxed)).min().unwrap();
                    assert!(least >= pass.number, "{threads} threads, round {round}, pass {}", pass.number);
                    wait(i, pass.number);
                    shown[i].store(pass.number + 1, Relaxed);
                    if (round + i).is_multiple_of(3) || i == 0 {
                        pass.others_may_go_on();
                        pass.others_may_go_on();
                    }
                    wait(i + 1, pass.number);
                    *own += 1;
                    inside[i].store(false, Relaxed);
                });
                assert_eq!(own, vec![5; threads], "{threads} threads, round {round}");
            }
        }
    }

    #[test]
    fn others_go_on_while_an_item_is_not_through() {
        let pool = CpuPool::new(2);
        let all_here = std::sync::Barrier::new(2);
        let ahead = AtomicBool::new(false);
        pool.for_each_in_passes(&mut [(); 2], 3, |pass, i, ()| match (pass.number, i) {
            (0, _) => _ = all_here.wait(),
            (1, 0) => {
                pass.others_may_go_on();
                let start = Instant::now();
                while !ahead.load(Relaxed) {
                    assert!(start.elapsed() < Duration::from_secs(60), "the other item waits for this one");
                    thread::yield_now();
                }
            }
            (2, 1) => ahead.store(true, Relaxed),
            _ => {}
        });
    }

    #[test]
    fn an_item_may_fail_after_it_let_others_go_on() {
        let pool = CpuPool::new(3);
        for (bad_pass, bad_item) in (0..4).flat_map(|pass| (0..3).map(move |item| (pass, item))).cycle().take(600) {
            let last = AtomicUsize::new(0);
            let run = || {
                pool.for_each_in_passes(&mut [0; 3], 5, |pass, i, _| {
                    last.fetch_max(pass.number, Relaxed);
                    pass.others_may_go_on();
                    assert!(pass.number != bad_pass || i != bad_item, "item");
                });
            };
            let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(*payload.downcast::<&str>().unwrap(), "item");
            assert!((bad_pass..bad_pass + 2).contains(&last.into_inner()));
            on_every_thread(&pool, &mut [0; 3], |_| ());
        }
    }

    #[test]
    fn no_pass_follows_a_panic() {
        let pool = CpuPool::new(3);
        for (bad_pass, len) in (0..4).flat_map(|pass| [(pass, 7), (pass, 3), (pass, 2)]).cycle().take(120) {
            let last = AtomicUsize::new(0);
            let run = || {
                pool.for_each_in_passes(&mut [0; 7][..len], 5, |&Pass { number: pass, .. }, i, _| {
                    last.fetch_max(pass, Relaxed);
                    assert!(pass != bad_pass || i != 1, "item");
                });
            };
            let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(*payload.downcast::<&str>().unwrap(), "item");
            assert_eq!(last.into_inner(), bad_pass);
            on_every_thread(&pool, &mut [0; 3], |_| ());
        }
    }

    #[test]
    fn a_panic_of_an_earlier_pass_reaches_the_caller() {
        let pool = CpuPool::new(2);
        for _ in 0..20 {
            let (both, followed) = (std::sync::Barrier::new(2), AtomicBool::new(false));
            let run = || {
                pool.for_each_in_passes(&mut [0; 2], 2, |pass, i, _| match (pass.number, i) {
                    (0, 0) => drop(both.wait()),
                    (0, _) => {
                        both.wait();
                        pass.others_may_go_on();
                        while !followed.load(Relaxed) {
                            thread::yield_now();
                        }
                        // Longer than the other's panic takes.
                        thread::sleep(Duration::from_millis(2));
                        panic!("cause");
                    }
                    _ => {
                        followed.store(true, Relaxed);
                        panic!("consequence");
                    }
                });
            };
            let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(*payload.downcast::<&str>().unwrap(), "cause");
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
