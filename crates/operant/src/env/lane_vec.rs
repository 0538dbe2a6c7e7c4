//! The adapter from [`Env`] to [`VecEnv`]: SIMD groups, threads, auto-reset, time limits, statistics.
//!
//! State lies in blocks of 16 envs, one cache line per column, so a block serves any lane width and columns that a
//! step does not use cost nothing. A step is two passes: all envs step; then the few that ended are gathered into full
//! groups and reset, so that random numbers are drawn only for them.

use super::{Action, Actions, AutoReset, Canvas, Env, Options, Param, Row, Seeds, Spec, VecEnv, saved};
use crate::device::CpuPool;
use crate::error::{Error, Result};
use crate::lanes::{
    Backend, Block, Column, Columns, Float, Int, Kernel, Kind, Lanes, Mask, Rng, Scalar, Select, Simd, select,
};
use std::sync::Arc;
use std::time::Instant;

/// Envs per block.
const BLOCK: usize = 16;
/// Most numbers per action, and most choices of a masked action.
const MAX_ACTION_DIMS: usize = 8;
/// Most columns of a state.
const MAX_STATE: usize = 32;
const MAX_CHOICES: usize = 32;
/// Most parts that a step is split into.
const MAX_PARTS: usize = 64;
/// Work worth handing to another thread, in nanoseconds. Handing over costs 1–3 µs between spinning threads; below
/// this share per thread two threads were measured slower than one.
const MIN_PART_NS: f64 = 8_000.0;
/// Steps that are timed before the first split.
const TIMED_STEPS: u32 = 8;

/// One column of one block.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([i32; BLOCK]);

/// Columns of a block: the env's state, then the adapter's own.
struct Layout<E>(E);

impl<E: Env> Layout<E> {
    const STATE: usize = <E::State<Scalar> as Columns<Scalar>>::COLUMNS.len();
    const ELAPSED: usize = Self::STATE;
    const RETURN: usize = Self::STATE + 1;
    const EPISODE: usize = Self::STATE + 2;
    /// 1 where the next step resets (`AutoReset::NextStep`).
    const PENDING: usize = Self::STATE + 3;
    const SEED: usize = Self::STATE + 4;
    const COLUMNS: usize = Self::STATE + 6;
    const OBS: usize = <E::Obs<Scalar> as Block<<Scalar as Lanes>::F>>::LEN;
}

/// N envs of one kind.
pub struct LaneVec<E: Env> {
    env: E,
    spec: Spec,
    columns: Vec<Column>,
    num_envs: usize,
    first_env: u32,
    autoreset: AutoReset,
    backend: Backend,
    pool: Arc<CpuPool>,
    always_split: bool,
    /// `[N / 16, COLUMNS, 16]`
    lines: Vec<Line>,
    /// `[N rounded up to 16]` scratch: envs whose episode ended in this step, by number within their part.
    ended: Vec<i32>,
    /// The same for envs that this step resets although it did not end them (`AutoReset::NextStep`); else empty.
    waiting: Vec<i32>,
    /// Fastest inline step so far, nanoseconds, and how many were timed.
    step_ns: f64,
    timed_steps: u32,
}

/// A range of envs with all that a step of them touches.
struct Part<'a> {
    first_env: u32,
    count: usize,
    lines: &'a mut [Line],
    ended: &'a mut [i32],
    waiting: &'a mut [i32],
    actions: Actions<'a>,
    out: Row<'a>,
}

impl<E: Env> LaneVec<E> {
    /// N envs with the parameters of `env`. Call `reset` before the first step.
    pub fn new(env: E, options: &Options) -> Result<Self> {
        let mut spec = env.spec();
        if let Some(limit) = options.time_limit {
            spec.time_limit = limit;
        }
        options.check(&spec)?;
        let discrete = spec.action.choices();
        assert!(Layout::<E>::STATE <= MAX_STATE, "{}: more than {MAX_STATE} state columns", spec.name);
        assert!(
            spec.action.dims() == E::ACTION_DIMS && E::ACTION_DIMS <= MAX_ACTION_DIMS,
            "{}: ACTION_DIMS",
            spec.name
        );
        assert!(spec.observation.len() == Layout::<E>::OBS, "{}: observation channels and Obs differ", spec.name);
        assert!(!spec.masked || (1..=MAX_CHOICES).contains(&discrete), "{}: masked choices", spec.name);
        let mut columns = <E::State<Scalar> as Columns<Scalar>>::COLUMNS.to_vec();
        columns.push(Column { name: "elapsed", kind: Kind::I32 });
        let blocks = options.num_envs.div_ceil(BLOCK);
        Ok(Self {
            env,
            spec,
            columns,
            num_envs: options.num_envs,
            first_env: options.first_env,
            autoreset: options.autoreset,
            backend: options.backend,
            pool: options.pool.clone(),
            always_split: options.always_split,
            lines: vec![Line([0; BLOCK]); blocks * Layout::<E>::COLUMNS],
            ended: vec![0; blocks * BLOCK],
            waiting: vec![0; if options.autoreset == AutoReset::NextStep { blocks * BLOCK } else { 0 }],
            step_ns: f64::INFINITY,
            timed_steps: 0,
        })
    }

    fn word(&self, column: usize, env: usize) -> i32 {
        self.lines[env / BLOCK * Layout::<E>::COLUMNS + column].0[env % BLOCK]
    }

    fn set_word(&mut self, column: usize, env: usize, word: i32) {
        self.lines[env / BLOCK * Layout::<E>::COLUMNS + column].0[env % BLOCK] = word;
    }

    fn work(&self) -> Work<E> {
        Work {
            env: self.env,
            limit: self.spec.time_limit.map_or(i32::MAX, |limit| limit.min(i32::MAX as u32) as i32),
            autoreset: self.autoreset,
            discrete: self.spec.action.choices(),
            masked: self.spec.masked,
        }
    }

    /// Parts that a step is worth splitting into, by the time that steps took.
    fn parts(&self) -> usize {
        let most = self.pool.threads().min(MAX_PARTS).min(self.lines.len() / Layout::<E>::COLUMNS);
        if self.always_split {
            most
        } else if self.timed_steps < TIMED_STEPS {
            1
        } else {
            most.min((self.step_ns / MIN_PART_NS) as usize).max(1)
        }
    }

    /// All envs as one part.
    fn whole<'a>(&'a mut self, actions: Actions<'a>, out: Row<'a>) -> Part<'a> {
        Part {
            first_env: self.first_env,
            count: self.num_envs,
            lines: &mut self.lines,
            ended: &mut self.ended,
            waiting: &mut self.waiting,
            actions,
            out,
        }
    }
}

impl<E: Env> VecEnv for LaneVec<E> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn num_envs(&self) -> usize {
        self.num_envs
    }

    fn reset(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>, out: Row<'_>) {
        out.assert_fits(&self.spec, self.num_envs);
        let mut count = 0;
        for env in 0..self.num_envs {
            if which.is_some_and(|which| which[env] == 0) {
                continue;
            }
            let seed = match seeds {
                Seeds::Keep => None,
                Seeds::One(seed) => Some(seed),
                Seeds::Each(seeds) => Some(seeds[env]),
            };
            if let Some(seed) = seed {
                self.set_word(Layout::<E>::SEED, env, seed as i32);
                self.set_word(Layout::<E>::SEED + 1, env, (seed >> 32) as i32);
                // The reset moves on to episode 0.
                self.set_word(Layout::<E>::EPISODE, env, -1);
            }
            self.ended[count] = env as i32;
            count += 1;
        }
        let (backend, work) = (self.backend, self.work());
        let mut part = self.whole(Actions::I32(&[]), out);
        backend.run(ResetKernel { work, part: &mut part, list: List::Ended, count });
        if which.is_some() {
            backend.run(ObserveKernel { work, lines: part.lines, count: part.count, out: &mut part.out });
        }
    }

    fn step(&mut self, actions: Actions<'_>, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.num_envs);
        assert_eq!(actions.len(), self.num_envs * E::ACTION_DIMS, "actions of {}", self.spec.name);
        let (backend, work, parts) = (self.backend, self.work(), self.parts());
        if parts == 1 {
            let timed = self.timed_steps < TIMED_STEPS && self.pool.threads() > 1;
            let start = timed.then(Instant::now);
            backend.run(StepKernel { work, part: &mut self.whole(actions, out) });
            if let Some(start) = start {
                self.step_ns = self.step_ns.min(start.elapsed().as_nanos() as f64);
                self.timed_steps += 1;
            }
            return;
        }
        let blocks_per_part = (self.lines.len() / Layout::<E>::COLUMNS).div_ceil(parts);
        let mut slots: [Option<Part<'_>>; MAX_PARTS] = [const { None }; MAX_PARTS];
        let (mut lines, mut ended, mut first) = (self.lines.as_mut_slice(), self.ended.as_mut_slice(), 0);
        let mut waiting = self.waiting.as_mut_slice();
        let mut used = 0;
        while first < self.num_envs {
            let count = (blocks_per_part * BLOCK).min(self.num_envs - first);
            let (part_lines, other_lines) = lines.split_at_mut(count.div_ceil(BLOCK) * Layout::<E>::COLUMNS);
            let padded = count.next_multiple_of(BLOCK);
            let (part_ended, other_ended) = ended.split_at_mut(padded);
            let (part_waiting, other_waiting) = waiting.split_at_mut(padded.min(waiting.len()));
            (lines, ended, waiting) = (other_lines, other_ended, other_waiting);
            slots[used] = Some(Part {
                first_env: self.first_env.wrapping_add(first as u32),
                count,
                lines: part_lines,
                ended: part_ended,
                waiting: part_waiting,
                actions: actions.range(first * E::ACTION_DIMS, (first + count) * E::ACTION_DIMS),
                out: out.split_front(count, Layout::<E>::OBS, if work.masked { work.discrete } else { 0 }),
            });
            first += count;
            used += 1;
        }
        self.pool.for_each_mut(&mut slots[..used], |_, slot| {
            if let Some(part) = slot {
                backend.run(StepKernel { work, part });
            }
        });
    }

    fn observe(&self, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.num_envs);
        self.backend.run(ObserveKernel { work: self.work(), lines: &self.lines, count: self.num_envs, out: &mut out });
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn read(&self, column: usize, out: &mut [i32]) {
        for (env, word) in out.iter_mut().enumerate() {
            *word = self.word(column, env);
        }
    }

    fn write(&mut self, columns: &[(usize, &[i32])]) -> Result<()> {
        for &(column, words) in columns {
            if column == Layout::<E>::ELAPSED && words.iter().any(|&w| w < 0) {
                return Err(Error::Invalid("state column elapsed: wanted steps >= 0".into()));
            }
        }
        for &(column, words) in columns {
            for (env, &word) in words.iter().enumerate() {
                self.set_word(column, env, word);
            }
        }
        for env in 0..self.num_envs {
            self.set_word(Layout::<E>::PENDING, env, 0);
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        let envs = 0..self.num_envs;
        let words = envs.flat_map(|env| (0..Layout::<E>::COLUMNS).map(move |column| self.word(column, env)));
        saved::pack(&self.spec, self.num_envs, Layout::<E>::COLUMNS, words)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<()> {
        let words = saved::unpack(&self.spec, self.num_envs, Layout::<E>::COLUMNS, bytes)?;
        for (i, &word) in words.iter().enumerate() {
            self.set_word(i % Layout::<E>::COLUMNS, i / Layout::<E>::COLUMNS, word);
        }
        Ok(())
    }

    fn draw(&self, env: usize) -> Option<Canvas> {
        let words: Vec<_> =
            (0..Layout::<E>::STATE).map(|column| <Scalar as Lanes>::I::from(self.word(column, env))).collect();
        self.env.draw(&<E::State<Scalar> as Columns<Scalar>>::read(&words))
    }

    fn params(&self) -> Vec<Param> {
        self.env.params()
    }

    fn set_param(&mut self, name: &str, value: f64) -> Result<()> {
        self.env.set(name, value)?;
        let time_limit = self.spec.time_limit;
        self.spec = Spec { time_limit, ..self.env.spec() };
        Ok(())
    }
}

/// What every kernel needs to know.
#[derive(Clone, Copy)]
struct Work<E> {
    env: E,
    limit: i32,
    autoreset: AutoReset,
    /// Choices of a discrete action; 0 for a continuous one.
    discrete: usize,
    masked: bool,
}

impl<E: Env> Work<E> {
    /// The action of `lanes` envs from `base` on; the lanes beyond repeat the last.
    #[inline(always)]
    fn step_group<L: Simd>(
        &self,
        state: E::State<L>,
        actions: Actions<'_>,
        base: usize,
        lanes: usize,
        rng: &mut Rng<L>,
    ) -> Step<E, L> {
        let mut indices = [L::I::from(0); MAX_ACTION_DIMS];
        let mut values = [L::F::from(0.0); MAX_ACTION_DIMS];
        for dim in 0..E::ACTION_DIMS {
            let mut words = [0i32; BLOCK];
            if self.discrete > 0 {
                match actions {
                    Actions::I32(a) if E::ACTION_DIMS == 1 && lanes == L::WIDTH => {
                        words[..L::WIDTH].copy_from_slice(&a[base..base + L::WIDTH])
                    }
                    Actions::I64(a) if E::ACTION_DIMS == 1 && lanes == L::WIDTH => {
                        let a = &a[base..base + L::WIDTH];
                        for (word, &x) in words.iter_mut().zip(a) {
                            *word = x as i32;
                        }
                    }
                    _ => (0..lanes).for_each(|lane| words[lane] = actions.int((base + lane) * E::ACTION_DIMS + dim)),
                }
            } else {
                match actions {
                    Actions::F32(a) if E::ACTION_DIMS == 1 && lanes == L::WIDTH => {
                        let a = &a[base..base + L::WIDTH];
                        for (word, &x) in words.iter_mut().zip(a) {
                            *word = x.to_bits() as i32;
                        }
                    }
                    _ => (0..lanes).for_each(|lane| {
                        words[lane] = actions.float((base + lane) * E::ACTION_DIMS + dim).to_bits() as i32
                    }),
                }
            }
            indices[dim] = L::load(&words);
            values[dim] = L::F::from_bits(indices[dim]);
        }
        self.env.step::<L>(
            state,
            Action { indices: &indices[..E::ACTION_DIMS], values: &values[..E::ACTION_DIMS] },
            rng,
        )
    }

    /// Writes observations (and legal choices) of `lanes` envs from `base` on.
    #[inline(always)]
    fn publish<L: Simd>(&self, state: &E::State<L>, base: usize, lanes: usize, out: &mut Row<'_>) {
        let obs = self.env.observe::<L>(state);
        let obs = obs.as_ref();
        let width = Layout::<E>::OBS;
        if lanes == L::WIDTH {
            L::store_rows(&obs[..width], &mut out.obs[base * width..(base + L::WIDTH) * width]);
        } else {
            for (c, &value) in obs.iter().enumerate() {
                let mut column = [0.0; BLOCK];
                L::store_f(value, &mut column);
                (0..lanes).for_each(|lane| out.obs[(base + lane) * width + c] = column[lane]);
            }
        }
        if self.masked {
            let mut legal = [L::M::splat(false); MAX_CHOICES];
            self.env.legal::<L>(state, &mut legal[..self.discrete]);
            for (choice, &mask) in legal[..self.discrete].iter().enumerate() {
                let bits = L::mask_bits(mask);
                (0..lanes)
                    .for_each(|lane| out.legal[(base + lane) * self.discrete + choice] = (bits >> lane & 1) as u8);
            }
        }
    }
}

type Step<E, L> = super::Step<L, <E as Env>::State<L>>;

/// The state of the group that begins at `offset` of a block.
#[inline(always)]
fn read_state<E: Env, L: Simd>(block: &[Line], offset: usize) -> E::State<L> {
    let mut words = [L::I::from(0); MAX_STATE];
    for column in 0..Layout::<E>::STATE {
        words[column] = L::load(&block[column].0[offset..]);
    }
    <E::State<L> as Columns<L>>::read(&words[..Layout::<E>::STATE])
}

#[inline(always)]
fn column<L: Simd>(block: &[Line], column: usize, offset: usize) -> L::I {
    L::load(&block[column].0[offset..])
}

/// The words of a state's columns; those beyond its columns are 0.
#[inline(always)]
fn words_of<E: Env, L: Simd>(state: E::State<L>) -> [L::I; MAX_STATE] {
    let mut words = [L::I::from(0); MAX_STATE];
    state.write(&mut words[..Layout::<E>::STATE]);
    words
}

#[inline(always)]
fn store_floats<L: Simd>(value: L::F, out: &mut [f32], base: usize, lanes: usize) {
    if lanes == L::WIDTH {
        L::store_f(value, &mut out[base..base + L::WIDTH]);
    } else {
        let mut all = [0.0; BLOCK];
        L::store_f(value, &mut all);
        out[base..base + lanes].copy_from_slice(&all[..lanes]);
    }
}

#[inline(always)]
fn store_flags<L: Simd>(mask: L::M, out: &mut [u8], base: usize, lanes: usize) {
    if lanes == L::WIDTH {
        L::store_mask(mask, &mut out[base..base + L::WIDTH]);
    } else {
        let mut all = [0; BLOCK];
        L::store_mask(mask, &mut all);
        out[base..base + lanes].copy_from_slice(&all[..lanes]);
    }
}

struct StepKernel<'p, 'a, E> {
    work: Work<E>,
    part: &'p mut Part<'a>,
}

impl<E: Env> Kernel for StepKernel<'_, '_, E> {
    type Out = ();

    #[inline(always)]
    fn run<L: Simd>(self) {
        let Self { work, part } = self;
        let next_step = work.autoreset == AutoReset::NextStep;
        let (mut ended, mut waiting) = (0, 0);
        for (number, block) in part.lines.chunks_exact_mut(Layout::<E>::COLUMNS).enumerate() {
            for offset in (0..BLOCK).step_by(L::WIDTH) {
                let base = number * BLOCK + offset;
                if base >= part.count {
                    break;
                }
                let lanes = (part.count - base).min(L::WIDTH);
                let elapsed = column::<L>(block, Layout::<E>::ELAPSED, offset) + 1;
                let mut rng = Rng::<L>::new(
                    [column::<L>(block, Layout::<E>::SEED, offset), column::<L>(block, Layout::<E>::SEED + 1, offset)],
                    env_numbers::<L>(part.first_env, base),
                    column::<L>(block, Layout::<E>::EPISODE, offset),
                    elapsed,
                );
                let before = read_state::<E, L>(block, offset);
                let step = work.step_group::<L>(before, part.actions, base, lanes, &mut rng);
                let (mut state, mut reward, mut terminated) = (step.state, step.reward, step.terminated);
                let mut truncated = elapsed.ge(work.limit);
                let mut pending_bits = 0;
                if next_step {
                    let pending = column::<L>(block, Layout::<E>::PENDING, offset).eq(1);
                    pending_bits = L::mask_bits(pending);
                    state = merge::<E, L>(pending, before, state);
                    reward = select(pending, L::F::from(0.0), reward);
                    terminated = terminated & !pending;
                    truncated = truncated & !pending;
                }
                let returned = L::F::from_bits(column::<L>(block, Layout::<E>::RETURN, offset)) + reward;
                let words = words_of::<E, L>(state);
                for column in 0..Layout::<E>::STATE {
                    L::store(words[column], &mut block[column].0[offset..]);
                }
                L::store(elapsed, &mut block[Layout::<E>::ELAPSED].0[offset..]);
                L::store(returned.bits(), &mut block[Layout::<E>::RETURN].0[offset..]);
                store_floats::<L>(reward, part.out.reward, base, lanes);
                store_flags::<L>(terminated, part.out.terminated, base, lanes);
                store_flags::<L>(truncated, part.out.truncated, base, lanes);
                work.publish::<L>(&state, base, lanes, &mut part.out);

                // A branch on whether an episode ended would be mispredicted every second group: lists are made without.
                let exist = (1u32 << lanes) - 1;
                let numbers = env_numbers::<L>(0, base);
                let done = L::mask_bits(terminated | truncated) & exist;
                ended += L::store_packed(numbers, done, &mut part.ended[ended..]);
                if next_step {
                    waiting += L::store_packed(numbers, pending_bits & exist, &mut part.waiting[waiting..]);
                }
            }
        }
        let width = Layout::<E>::OBS;
        for &env in &part.ended[..ended] {
            let env = env as usize;
            let (block, place) = (env / BLOCK * Layout::<E>::COLUMNS, env % BLOCK);
            part.out.episode_return[env] = f32::from_bits(part.lines[block + Layout::<E>::RETURN].0[place] as u32);
            part.out.episode_length[env] = part.lines[block + Layout::<E>::ELAPSED].0[place];
            let row = env * width..(env + 1) * width;
            part.out.final_obs[row.clone()].copy_from_slice(&part.out.obs[row]);
            if next_step {
                part.lines[block + Layout::<E>::PENDING].0[place] = 1;
            }
        }
        match work.autoreset {
            AutoReset::SameStep => ResetKernel { work, part, list: List::Ended, count: ended }.run::<L>(),
            AutoReset::NextStep => ResetKernel { work, part, list: List::Waiting, count: waiting }.run::<L>(),
            AutoReset::Disabled => {}
        }
    }
}

/// `first_env + base + lane` in every lane.
#[inline(always)]
fn env_numbers<L: Simd>(first_env: u32, base: usize) -> L::I {
    const LANES: [i32; BLOCK] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    L::load(&LANES) + first_env.wrapping_add(base as u32) as i32
}

/// `yes` where `mask` holds, else `no`, column by column.
#[inline(always)]
fn merge<E: Env, L: Simd>(mask: L::M, yes: E::State<L>, no: E::State<L>) -> E::State<L> {
    let (mut words, no) = (words_of::<E, L>(yes), words_of::<E, L>(no));
    for column in 0..Layout::<E>::STATE {
        words[column] = L::I::select(mask, words[column], no[column]);
    }
    <E::State<L> as Columns<L>>::read(&words[..Layout::<E>::STATE])
}

/// Which list of a part.
#[derive(Clone, Copy)]
enum List {
    Ended,
    Waiting,
}

/// Begins a new episode in the first `count` envs of a list.
struct ResetKernel<'p, 'a, E> {
    work: Work<E>,
    part: &'p mut Part<'a>,
    list: List,
    count: usize,
}

impl<E: Env> Kernel for ResetKernel<'_, '_, E> {
    type Out = ();

    #[inline(always)]
    fn run<L: Simd>(self) {
        let Self { work, part, list, count } = self;
        let envs = match list {
            List::Ended => &part.ended[..count],
            List::Waiting => &part.waiting[..count],
        };
        let columns = Layout::<E>::COLUMNS;
        let width = Layout::<E>::OBS;
        for group in envs.chunks(L::WIDTH) {
            let mut gathered = [[0; BLOCK]; 4];
            for (lane, &env) in group.iter().enumerate() {
                let (block, place) = (env as usize / BLOCK * columns, env as usize % BLOCK);
                gathered[0][lane] = part.lines[block + Layout::<E>::SEED].0[place];
                gathered[1][lane] = part.lines[block + Layout::<E>::SEED + 1].0[place];
                gathered[2][lane] = part.first_env.wrapping_add(env as u32) as i32;
                let episode = part.lines[block + Layout::<E>::EPISODE].0[place].wrapping_add(1);
                part.lines[block + Layout::<E>::EPISODE].0[place] = episode;
                gathered[3][lane] = episode;
                part.lines[block + Layout::<E>::ELAPSED].0[place] = 0;
                part.lines[block + Layout::<E>::RETURN].0[place] = 0;
                part.lines[block + Layout::<E>::PENDING].0[place] = 0;
            }
            let seed = [L::load(&gathered[0]), L::load(&gathered[1])];
            let mut rng = Rng::<L>::new(seed, L::load(&gathered[2]), L::load(&gathered[3]), L::I::from(0));
            let state = work.env.reset::<L>(&mut rng);
            let state_words = words_of::<E, L>(state);
            for column in 0..Layout::<E>::STATE {
                let mut words = [0; BLOCK];
                L::store(state_words[column], &mut words);
                for (lane, &env) in group.iter().enumerate() {
                    part.lines[env as usize / BLOCK * columns + column].0[env as usize % BLOCK] = words[lane];
                }
            }
            for (c, &value) in work.env.observe::<L>(&state).as_ref().iter().enumerate() {
                let mut column = [0.0; BLOCK];
                L::store_f(value, &mut column);
                for (lane, &env) in group.iter().enumerate() {
                    part.out.obs[env as usize * width + c] = column[lane];
                }
            }
            if work.masked {
                let mut legal = [L::M::splat(false); MAX_CHOICES];
                work.env.legal::<L>(&state, &mut legal[..work.discrete]);
                for (choice, &mask) in legal[..work.discrete].iter().enumerate() {
                    let bits = L::mask_bits(mask);
                    for (lane, &env) in group.iter().enumerate() {
                        part.out.legal[env as usize * work.discrete + choice] = (bits >> lane & 1) as u8;
                    }
                }
            }
        }
    }
}

struct ObserveKernel<'p, 'a, E> {
    work: Work<E>,
    lines: &'p [Line],
    count: usize,
    out: &'p mut Row<'a>,
}

impl<E: Env> Kernel for ObserveKernel<'_, '_, E> {
    type Out = ();

    #[inline(always)]
    fn run<L: Simd>(self) {
        for (number, block) in self.lines.chunks_exact(Layout::<E>::COLUMNS).enumerate() {
            for offset in (0..BLOCK).step_by(L::WIDTH) {
                let base = number * BLOCK + offset;
                if base < self.count {
                    let lanes = (self.count - base).min(L::WIDTH);
                    self.work.publish::<L>(&read_state::<E, L>(block, offset), base, lanes, self.out);
                }
            }
        }
    }
}
