//! Running a recipe: stage by stage, in each stage group by group, in each group tile by tile, in each tile step by step.
//!
//! Groups with sums are cut by the number of rows alone, never by the number of threads; each group adds up its own sums, and
//! sums of groups are added in pairs, then pairs of pairs. So results are the same bits for any number of threads. Without sums a row's
//! result is its own, and there is a group for each thread.
#![allow(unsafe_code)]

use super::super::op::{Backward, Draws, Forward, Kind, MAX_INPUTS, MAX_OUTPUTS};
use super::super::real::{Compute, Real, Room};
use super::branches::{Branch, Branches};
use super::build::{Body, Buffer, Place, Recipe, Slot, Step, Work};
use super::cut::{Cut, MAX_GROUPS, Shares};
use super::weights::Packs;
use operant_device::gemm::amx;
use operant_device::{Aligned, CpuPool, Pass, Spans, TwoPasses, prefetch_all_to_write, prefetch_from};

/// What an input is fed with.
#[derive(Clone, Copy, Debug)]
pub enum Feed<'a, R = f32> {
    /// `[rows, …]`, or without rows if the input has none.
    Real(&'a [R]),
    /// `[rows, …]` of integers.
    Ints(&'a [i32]),
}

impl<'a, R> From<&'a [R]> for Feed<'a, R> {
    fn from(x: &'a [R]) -> Self {
        Self::Real(x)
    }
}

/// A thread's own memory.
#[derive(Debug)]
pub(super) struct Worker<R> {
    pub(super) tile: Aligned<R>,
    pub(super) real: Aligned<R>,
    pub(super) half: Aligned<u16>,
    /// Time spent in each step, when asked for.
    pub(super) spans: Spans,
    /// Its own packed weights, if the plan has none for all.
    pub(super) packs: Packs<R>,
}

/// Memory that all threads write, each its own rows or its own group's sums.
#[derive(Clone, Copy)]
struct Shared<R>(*mut R);
// SAFETY: a plain pointer; every use below says why it does not collide with another.
unsafe impl<R: Send> Send for Shared<R> {}
// SAFETY: as above.
unsafe impl<R: Send> Sync for Shared<R> {}

impl<R> Shared<R> {
    fn at(self, offset: usize) -> *mut R {
        self.0.wrapping_add(offset)
    }
}

/// One run.
pub(super) struct Run<'a, R> {
    pub(super) recipe: &'a Recipe,
    pub(super) compute: Compute,
    pub(super) weights: Weights<'a, R>,
    pub(super) packs: Packed<'a, R>,
    pub(super) feeds: &'a [Feed<'a, R>],
    pub(super) rows: usize,
    pub(super) seed: u64,
    pub(super) run: u32,
    pub(super) loss_scale: f32,
}

/// The parameters' values.
#[derive(Clone, Copy)]
pub(super) enum Weights<'a, R> {
    /// They stay what they are.
    Still(&'a [R]),
    /// This steps them as soon as the run has its gradients.
    Stepped(&'a dyn TwoPasses<R>),
}

impl<R> Weights<'_, R> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Still(values) => values.len(),
            Self::Stepped(work) => work.elements(),
        }
    }
}

/// Where packed weights are.
#[derive(Clone, Copy)]
pub(super) enum Packed<'a, R> {
    /// In one place for all threads.
    Shared(&'a Packs<R>),
    /// With each thread, which packs them if it has another version.
    Own { version: u64 },
}

/// Sums that are worth a thread of their own when shares are added up.
const SHARED_SUMS: usize = 4096;

impl<'a, R: Real> Run<'a, R> {
    /// Values of parameters, which nothing reads once they are stepped.
    fn values(&self) -> &'a [R] {
        match self.weights {
            Weights::Still(values) => values,
            // SAFETY: read by steps and by packing alone, all of which are through before `go` begins the second pass.
            Weights::Stepped(work) => unsafe { work.unchanged() },
        }
    }

    /// Threads that share these rows.
    pub(super) fn threads(recipe: &Recipe, rows: usize, workers: usize) -> usize {
        workers.min(Cut::new(recipe, rows, workers).groups)
    }

    /// Runs all stages. Gradients begin from `sums[..keep]`, all other sums from zero; `group_sums` has room for those of every
    /// group but the first, which adds to `sums`. Weights can be stepped where there is one stage, and a share for each of the
    /// [threads](Self::threads).
    pub(super) fn go(
        &self,
        pool: &CpuPool,
        workers: &mut [Worker<R>],
        full: &mut [R],
        (sums, keep): (&mut [R], usize),
        group_sums: &mut [R],
    ) {
        let (recipe, cut) = (self.recipe, Cut::new(self.recipe, self.rows, workers.len()));
        let len = recipe.sums_len;
        assert!(full.len() >= recipe.full_len && sums.len() >= len && keep <= len);
        assert!(group_sums.len() >= (cut.groups - 1) * len);
        assert!(self.rows <= recipe.max_rows && workers.iter().all(|worker| worker.tile.len() >= recipe.tile_len));
        let threads = workers.len().min(cut.groups);
        let stepping = match self.weights {
            Weights::Still(_) => None,
            Weights::Stepped(work) => Some(work),
        };
        let fits = |work: &dyn TwoPasses<R>| work.shares() == threads && work.elements() <= recipe.grads_len;
        assert!(stepping.is_none_or(|work| fits(work) && recipe.stages == 1 && keep == 0));
        // Later stages add to sums of earlier ones, so with several all stay apart to the end.
        let shares = Shares { groups: cut.groups, shares: if recipe.stages == 1 { threads } else { cut.groups } };
        let all = Sums { first: Shared(sums.as_mut_ptr()), others: Shared(group_sums.as_mut_ptr()), len };
        let full = Shared(full.as_mut_ptr());
        if let (Some(branches), 2, 0) = (&recipe.branches, threads, keep)
            && cut.has_room_for_branches(recipe)
        {
            return self.go_in_branches(pool, workers, (branches, stepping), cut, (full, all));
        }
        // All sums are added up by the threads that are there, each its part, right after the last stage: that which it steps, if
        // weights are stepped.
        let parts = match stepping {
            _ if shares.shares == 1 || len == 0 => 0,
            Some(_) => threads,
            None => threads.min(len / SHARED_SUMS).max(1),
        };
        let add_up = |part: usize| {
            if part >= parts {
                return;
            }
            let start = |part: usize| match stepping {
                _ if part == 0 => 0,
                _ if part == parts => len,
                Some(work) => work.range(part).start,
                None => (part * len / parts).next_multiple_of(16),
            };
            let [from, to] = [part, part + 1].map(start);
            shares.end_all(|sum, other| {
                // SAFETY: threads have parts of the sums that follow each other, and a pair has two numbers.
                let [sum, other] = [sum, other].map(|number| unsafe { all.part(number, from..to) });
                R::add_to(self.compute, other, sum);
            });
        };
        let mut first = 0;
        for stage in 0..recipe.stages {
            let end = first + recipe.steps[first..].iter().take_while(|step| step.stage == stage).count();
            let steps = first..end;
            first = end;
            let compute = |thread: usize, worker: &mut Worker<R>| {
                if stage == 0 {
                    self.pack(worker, recipe.training && cut.tiles_of(threads) == 1);
                }
                let _tiles = self.compute.tiles().then(amx::hold);
                for group in (Shares { groups: cut.groups, shares: threads }).of(thread) {
                    let number = shares.sums(group);
                    let keep = if group == 0 { keep } else { 0 };
                    let begins = keep == 0;
                    if stage == 0 {
                        let whole = keep..len;
                        for range in if begins { &recipe.cleared[..] } else { std::slice::from_ref(&whole) } {
                            // SAFETY: sums of a number are one thread's until all threads are done.
                            unsafe { all.part(number, range.clone()) }.fill(R::default());
                        }
                    }
                    let tile = Tile { at: Shared(worker.tile.as_mut_ptr()), row: 0 };
                    let memory = Memory { tile, full, sums: all.first, own: all.at(number), begins };
                    self.group(steps.clone(), cut, group, memory, worker);
                    shares.end(group, |to, from| {
                        // SAFETY: as above, and a pair has two numbers.
                        let [to, from] = [to, from].map(|number| unsafe { all.part(number, 0..len) });
                        R::add_to(self.compute, from, to);
                    });
                }
            };
            let passes = match stepping {
                Some(_) => 3,
                None if stage + 1 == recipe.stages && parts > 0 => 2,
                None => 1,
            };
            let each = |pass: &Pass, thread: usize, worker: &mut Worker<R>| {
                match pass.number {
                    0 => return compute(thread, worker),
                    1 => add_up(thread),
                    _ => {}
                }
                if let Some(work) = stepping {
                    // SAFETY: this share's gradients have been added up, and nothing reads weights any more; passes follow each other.
                    unsafe { work.run(pass.number - 1, thread, all.first.at(0)) };
                }
            };
            pool.for_each_in_passes(&mut workers[..threads], passes, each);
            for (_, buffer) in recipe.early_sums.iter().filter(|(early, _)| *early == stage) {
                let Slot { place: Place::Sum(at), len: size, .. } = recipe.slots[*buffer] else { continue };
                for number in 1..cut.groups {
                    // SAFETY: no thread is at work, and with several stages each group has sums of its own.
                    let [to, from] = [0, number].map(|number| unsafe { all.part(number, at..at + size) });
                    R::add_to(self.compute, from, to);
                    // Nothing is left for the end to add.
                    from.fill(R::default());
                }
            }
        }
    }

    /// Runs all groups, of which each half has room in a tile: each thread has a branch of all groups on the way there, then one of the
    /// halves for the steps where branches meet, then its branch again. All goes step by step, as memory was planned.
    ///
    /// On the way there the other's half comes first, on the way back one's own: so threads wait for each other's results only if one
    /// is later than the other by half of a way.
    fn go_in_branches(
        &self,
        pool: &CpuPool,
        workers: &mut [Worker<R>],
        (branches, stepping): (&Branches, Option<&dyn TwoPasses<R>>),
        cut: Cut,
        (full, all): (Shared<R>, Sums<R>),
    ) {
        let tiles = [0, 1].map(|half: usize| Shared(workers[half].tile.as_mut_ptr()));
        let half = cut.groups / 2;
        // Where a group's rows begin and end, and where they lie in its tile.
        let mut rows = [(0, 0, 0); MAX_GROUPS];
        for (group, place) in rows.iter_mut().enumerate().take(cut.groups) {
            let (from, to) = cut.rows(group, self.rows);
            *place = (from, to, from - cut.rows(group / half * half, self.rows).0);
        }
        // Whether each thread steps weights of its branch alone, so that it need not wait for the other's sums to look at its own.
        let apart = stepping.is_some_and(|work| (0..2).all(|thread| branches.has_sums(thread, &work.range(thread))));
        let step = |pass: usize, thread: usize| {
            if let Some(work) = stepping {
                // SAFETY: this share's gradients have been added up, and in the second pass nothing reads weights any more; passes
                // follow each other.
                unsafe { work.run(pass, thread, all.first.at(0)) };
            }
        };
        let passes = match stepping {
            None => 3,
            Some(_) if apart => 4,
            Some(_) => 5,
        };
        let each = |pass: &Pass, thread: usize, worker: &mut Worker<R>| {
            let branch = &branches.two[thread];
            match pass.number {
                0 => self.pack(worker, true),
                1 | 2 => {}
                // The optimiser's: both, or the second alone if its first is the end of the pass before.
                number => return step(number + 2 - passes, thread),
            }
            let _tiles = self.compute.tiles().then(amx::hold);
            // SAFETY: groups have numbers of their own, and sums of a branch are its thread's: those that only steps between add to once
            // these have been through all halves, which let the thread go on only then.
            let part = |group: usize, range: &std::ops::Range<usize>| unsafe { all.part(group, range.clone()) };
            let at = |which: usize, group: usize| {
                let (from, to, row) = rows[group];
                let (tile, own) = (Tile { at: tiles[which], row }, all.at(group));
                At {
                    run: self,
                    memory: Memory { tile, full, sums: all.first, own, begins: true },
                    first_row: from,
                    rows: to - from,
                }
            };
            let groups = |which: usize| which * half..(which + 1) * half;
            let run = |i: usize, which: usize, worker: &mut Worker<R>| {
                for At { memory, first_row, rows, .. } in groups(which).map(|group| at(which, group)) {
                    self.timed_step(i, memory, worker, first_row, rows);
                }
            };
            // Step by step, each with what it reads packed before.
            let run_each = |steps: &[usize], halves: &[usize], worker: &mut Worker<R>| {
                for &i in steps {
                    self.pack_for(i, worker);
                    halves.iter().for_each(|&which| run(i, which, worker));
                }
            };
            // Steps of which one reads packed weights: they stay for the other half.
            let pack_one_of =
                |steps: &[usize], worker: &mut Worker<R>| steps.iter().for_each(|&i| self.pack_for(i, worker));
            let run_half = |steps: &[usize], which: usize, worker: &mut Worker<R>| {
                steps.iter().for_each(|&i| run(i, which, worker));
            };
            // Asks for lines that lie in the other core's cache all at once. No reference is made: it may be at work there.
            let lines = |buffers: &[Buffer], which: usize, ask: fn(*const (), usize)| {
                for at in groups(which).map(|group| at(which, group)) {
                    for (from, len) in buffers.iter().map(|&buffer| at.locate(self.recipe.slots[buffer], false)) {
                        ask(from.cast_const().cast(), len * size_of::<R>());
                    }
                }
            };
            let (own, other) = (thread, 1 - thread);
            let Branch { forward, backward, handed, returned, .. } = branch;
            let theirs = &branches.two[other];
            match pass.number {
                0 => {
                    for group in 0..cut.groups {
                        branch.cleared.iter().for_each(|range| part(group, range).fill(R::default()));
                    }
                    lines(handed, other, prefetch_all_to_write);
                    run_each(&forward[0], &[other, own], worker);
                    pack_one_of(&forward[1], worker);
                    run_half(&forward[1], other, worker);
                    pass.others_may_go_on();
                    run_half(&forward[1], own, worker);
                }
                1 => {
                    lines(&theirs.handed, own, prefetch_from);
                    [returned, &theirs.returned]
                        .into_iter()
                        .for_each(|buffers| lines(buffers, own, prefetch_all_to_write));
                    branches.joint.clone().for_each(|i| run(i, own, worker));
                    pass.others_may_go_on();
                    pack_one_of(&backward[0], worker);
                    run_half(&backward[0], own, worker);
                }
                _ => {
                    lines(returned, other, prefetch_from);
                    run_half(&backward[0], other, worker);
                    run_each(&backward[1], &[own, other], worker);
                    // As if each group were of another thread: in pairs, then pairs of pairs.
                    Shares { groups: cut.groups, shares: cut.groups }.end_all(|to, from| {
                        for range in &branch.sums {
                            R::add_to(self.compute, part(from, range), part(to, range));
                        }
                    });
                    if apart {
                        step(0, thread);
                    }
                }
            }
        };
        pool.for_each_in_passes(&mut workers[..2], passes, each);
    }

    /// Packs a worker's own weights again, if it has them and they are of another version, perhaps in turn.
    fn pack(&self, worker: &mut Worker<R>, in_turn: bool) {
        let Packed::Own { version } = self.packs else { return };
        if in_turn {
            worker.packs.refresh_in_turn(self.recipe, self.compute, (self.values(), version));
        } else {
            worker.packs.refresh(self.recipe, self.compute, (self.values(), version), None);
        }
    }

    /// Runs steps of a stage on all tiles of a group.
    fn group(
        &self,
        steps: std::ops::Range<usize>,
        cut: Cut,
        group: usize,
        mut memory: Memory<R>,
        worker: &mut Worker<R>,
    ) {
        for tile in group * cut.tiles / cut.groups..(group + 1) * cut.tiles / cut.groups {
            let (from, to) = cut.rows(tile, self.rows);
            if from < to {
                self.tile(steps.clone(), memory, worker, from, to - from);
                memory.begins = false;
            }
        }
    }

    fn tile(
        &self,
        steps: std::ops::Range<usize>,
        memory: Memory<R>,
        worker: &mut Worker<R>,
        first_row: usize,
        rows: usize,
    ) {
        for i in steps {
            self.pack_for(i, worker);
            worker.packs.read_next_later(self.values(), i);
            self.timed_step(i, memory, worker, first_row, rows);
        }
    }

    /// Packs what a step reads, where that is done in turn.
    fn pack_for(&self, i: usize, worker: &mut Worker<R>) {
        if let (Packed::Own { .. }, Some((call, body))) = (self.packs, self.recipe.steps[i].body()) {
            worker.packs.pack_for(self.recipe, self.compute, self.values(), call, body);
        }
    }

    fn timed_step(&self, i: usize, memory: Memory<R>, worker: &mut Worker<R>, first_row: usize, rows: usize) {
        let begun = worker.spans.begin();
        self.step(&self.recipe.steps[i], memory, worker, first_row, rows);
        worker.spans.end(i, begun);
    }

    fn step(&self, step: &Step, memory: Memory<R>, worker: &mut Worker<R>, first_row: usize, rows: usize) {
        let at = At { run: self, memory, first_row, rows };
        let packs = match self.packs {
            Packed::Shared(packs) => packs,
            Packed::Own { .. } => &worker.packs,
        };
        let room = Room { real: &mut worker.real, half: &mut worker.half };
        let draws = |call: usize| Draws { seed: self.seed, run: self.run, node: call as u32 };
        match step.work {
            Work::Forward { call } => {
                let node = &self.recipe.nodes[call];
                let mut c = Forward {
                    rows,
                    first_row,
                    total_rows: self.rows,
                    training: self.recipe.training,
                    types: &node.types,
                    x: at.reals(&step.x),
                    ints: at.ints(&step.x),
                    y: at.written::<MAX_OUTPUTS>(&step.y),
                    packed: packs.of(call, Body::Forward),
                    room,
                    compute: self.compute,
                    draws: draws(call),
                };
                R::forward(&*node.op, self.compute, &mut c);
            }
            Work::Backward { call, add } => {
                let node = &self.recipe.nodes[call];
                let mut c = Backward {
                    rows,
                    first_row,
                    total_rows: self.rows,
                    types: &node.types,
                    x: at.reals(&step.x),
                    ints: at.ints(&step.x),
                    y: at.reals(&step.y),
                    dy: at.reals(&step.dy),
                    dx: at.written::<MAX_INPUTS>(&step.dx),
                    add,
                    begin: if memory.begins { step.begin } else { 0 },
                    packed: packs.of(call, Body::Backward),
                    room,
                    compute: self.compute,
                    draws: draws(call),
                };
                R::backward(&*node.op, self.compute, &mut c);
            }
            Work::Add => {
                let [from, ..] = at.reals::<1>(&step.x);
                let [to, ..] = at.written::<1>(&step.y);
                R::add_to(self.compute, from, to);
            }
            Work::Seed { weight } => {
                let [gradient, ..] = at.written::<1>(&step.y);
                gradient.fill(R::of(f64::from(weight) * f64::from(self.loss_scale) / self.rows as f64));
            }
            Work::Total => {
                let [x, ..] = at.reals::<1>(&step.x);
                let [sum, ..] = at.written::<1>(&step.y);
                total(x, sum);
            }
        }
    }

    /// The first step whose result is not finite, in the order of one thread. Slow: it looks at everything.
    pub(super) fn first_bad(&self, worker: &mut Worker<R>, full: &mut [R], sums: &mut [R]) -> Option<&str> {
        let recipe = self.recipe;
        assert!(full.len() >= recipe.full_len && sums.len() >= recipe.sums_len);
        let (full, sums) = (Shared(full.as_mut_ptr()), Shared(sums.as_mut_ptr()));
        let tile = Tile { at: Shared(worker.tile.as_mut_ptr()), row: 0 };
        let memory = Memory { tile, full, sums, own: sums, begins: false };
        let cut = Cut::new(recipe, self.rows, 1);
        self.pack(worker, false);
        for stage in 0..recipe.stages {
            for tile in 0..cut.tiles {
                let (first_row, last) = cut.rows(tile, self.rows);
                if first_row == last {
                    continue;
                }
                for step in recipe.steps.iter().filter(|step| step.stage == stage) {
                    let rows = last - first_row;
                    self.step(step, memory, worker, first_row, rows);
                    let at = At { run: self, memory, first_row, rows };
                    let buffers: [Option<Buffer>; MAX_INPUTS + MAX_OUTPUTS] = {
                        let mut list = [None; MAX_INPUTS + MAX_OUTPUTS];
                        list.iter_mut().zip(step.writes()).for_each(|(to, buffer)| *to = Some(buffer));
                        list
                    };
                    let written = at.reals::<{ MAX_INPUTS + MAX_OUTPUTS }>(&buffers);
                    if written.iter().any(|x| x.iter().any(|x| !x.finite())) {
                        return Some(&step.name);
                    }
                }
            }
        }
        None
    }
}

/// `sum += Σ_rows x`, several rows side by side: in one sum, each addition would wait for the one before.
fn total<R: Real>(x: &[R], sum: &mut [R]) {
    const SIDES: usize = 64;
    let mut sides = [R::default(); SIDES];
    let wide = SIDES / sum.len() * sum.len();
    let (whole, rest) = x.split_at(if wide > sum.len() { x.len() / wide * wide } else { 0 });
    for part in whole.chunks_exact(wide.max(1)) {
        sides.iter_mut().zip(part).for_each(|(side, x)| *side += *x);
    }
    for rows in [&sides[..wide], rest] {
        for row in rows.chunks_exact(sum.len()) {
            sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += *x);
        }
    }
}

/// Sums of the batch, where those of the first group are, and those of other groups.
#[derive(Clone, Copy)]
struct Sums<R> {
    first: Shared<R>,
    others: Shared<R>,
    len: usize,
}

impl<R> Sums<R> {
    fn at(self, number: usize) -> Shared<R> {
        if number == 0 { self.first } else { Shared(self.others.at((number - 1) * self.len)) }
    }

    /// # Safety
    /// The number is below that of groups, the range within `len`, and nobody else uses it.
    unsafe fn part<'a>(self, number: usize, range: std::ops::Range<usize>) -> &'a mut [R] {
        // SAFETY: `go` checked that there is room for the sums of all groups.
        unsafe { std::slice::from_raw_parts_mut(self.at(number).at(range.start), range.len()) }
    }
}

/// Memory of a tile's rows, of which some pass together.
#[derive(Clone, Copy)]
struct Tile<R> {
    at: Shared<R>,
    /// The first of them in the tile.
    row: usize,
}

#[derive(Clone, Copy)]
struct Memory<R> {
    tile: Tile<R>,
    full: Shared<R>,
    /// Sums of the batch, of which only finished ones are read; the first group adds to others there.
    sums: Shared<R>,
    /// Sums of this group.
    own: Shared<R>,
    /// Whether steps that can do so begin them, which then hold nothing yet: on the first tile.
    begins: bool,
}

/// Where a step stands: which rows, which memory.
struct At<'a, 'r, R> {
    run: &'a Run<'r, R>,
    memory: Memory<R>,
    first_row: usize,
    rows: usize,
}

impl<'a, R: Real> At<'a, '_, R> {
    /// Pointer and length of a buffer with rows, or of one without.
    fn locate(&self, slot: Slot, write: bool) -> (*mut R, usize) {
        let (len, row) = (slot.len * self.rows, self.first_row * slot.len);
        // Within bounds: offsets and lengths were planned in these buffers for `tile_rows` and `max_rows`, which the rows of
        // this tile, with those before them in it, do not exceed, and `go` checked that the buffers are as long as the plan says.
        match slot.place {
            Place::Tile(offset) => (self.memory.tile.at.0.wrapping_add(offset + self.memory.tile.row * slot.len), len),
            Place::Full(offset) => (self.memory.full.0.wrapping_add(offset + row), len),
            Place::Sum(offset) => {
                let base = if write { self.memory.own } else { self.memory.sums };
                (base.0.wrapping_add(offset), slot.len)
            }
            Place::Feed(_) | Place::Param(_) => unreachable!("feeds and parameters are not written"),
        }
    }

    fn reals<const N: usize>(&self, buffers: &[Option<Buffer>]) -> [&'a [R]; N] {
        let mut out: [&'a [R]; N] = [&[]; N];
        for (out, buffer) in out.iter_mut().zip(buffers) {
            let Some(buffer) = buffer else { continue };
            let slot = self.run.recipe.slots[*buffer];
            *out = match slot.place {
                Place::Param(offset) => &self.run.values()[offset..][..slot.len],
                Place::Feed(number) => match self.run.feeds[number] {
                    Feed::Real(x) if slot.kind == Kind::Whole => &x[..slot.len],
                    Feed::Real(x) => &x[self.first_row * slot.len..][..self.rows * slot.len],
                    Feed::Ints(_) => continue,
                },
                _ => {
                    let (pointer, len) = self.locate(slot, false);
                    // SAFETY: within bounds as `locate` says. What a step reads it does not write (except where it
                    // says that it adds, and then only `dx` is handed out), and two buffers that are alive together
                    // do not overlap: the planner's invariant, held by its tests. Other threads write other rows of
                    // whole-batch memory, and sums that are read while a stage runs are
                    // finished, because a step that reads a sum runs in a later stage than those that add to it: what
                    // the first group adds to then are others.
                    unsafe { std::slice::from_raw_parts(pointer, len) }
                }
            };
        }
        out
    }

    fn ints(&self, buffers: &[Option<Buffer>]) -> [&'a [i32]; MAX_INPUTS] {
        let mut out: [&'a [i32]; MAX_INPUTS] = [&[]; MAX_INPUTS];
        for (out, buffer) in out.iter_mut().zip(buffers) {
            let Some(buffer) = buffer else { continue };
            let slot = self.run.recipe.slots[*buffer];
            if let (Kind::Ints, Place::Feed(number)) = (slot.kind, slot.place)
                && let Feed::Ints(x) = self.run.feeds[number]
            {
                *out = &x[self.first_row * slot.len..][..self.rows * slot.len];
            }
        }
        out
    }

    fn written<const N: usize>(&self, buffers: &[Option<Buffer>]) -> [&'a mut [R]; N] {
        let mut out: [&'a mut [R]; N] = std::array::from_fn(|_| &mut [][..]);
        for (out, buffer) in out.iter_mut().zip(buffers) {
            let Some(buffer) = buffer else { continue };
            let (pointer, len) = self.locate(self.run.recipe.slots[*buffer], true);
            // SAFETY: within bounds as `locate` says; a step writes a buffer once and never one that it reads, and buffers
            // that are alive together do not overlap. Other threads write other rows and other groups' sums.
            *out = unsafe { std::slice::from_raw_parts_mut(pointer, len) };
        }
        out
    }
}
