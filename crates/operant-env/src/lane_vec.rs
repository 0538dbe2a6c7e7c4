//! The adapter from [`Env`] to [`VecEnv`]: SIMD groups, threads, auto-reset, time limits, statistics.
//!
//! A step is two passes: all envs step; then the few that ended are gathered into full groups and reset, so that random
//! numbers are drawn only for them. The kernels work on whole blocks of 16 envs; the envs beyond the last whole block
//! take their actions from, and leave their results in, a block of scratch memory.

use super::lane_kernels::{
    BLOCK, Layout, Line, MAX_ACTION_DIMS, MAX_CHOICES, MAX_STATE, ObserveKernel, ResetGroup, ResetKernel, StepKernel,
    Work, read_state,
};
use super::pace::{MAX_PARTS, Pace};
use super::row::front;
use super::{
    Actions, AutoReset, Canvas, Env, HeldOut, Options, Param, Row, RowBuf, Seeds, Spec, VecEnv, check_columns, saved,
};
use operant_base::{Error, Result};
use operant_device::CpuPool;
use operant_lanes::{Backend, Column, Columns, Kind, Scalar};
use std::sync::Arc;

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
    pace: Pace,
    /// `[N / 16 rounded up, columns, 16]`
    lines: Vec<Line>,
    /// `[N rounded up to 16]` scratch: envs whose episode ended in this step, by number within their part.
    ended: Vec<i32>,
    /// The same for envs that this step resets although it did not end them (`AutoReset::NextStep`); else empty.
    waiting: Vec<i32>,
    /// One per part.
    scratch: Vec<Scratch>,
    /// Where the envs beyond the last whole block are stepped.
    tail: Tail,
}

/// Where a part's resets are worked out.
struct Scratch {
    group: ResetGroup,
    /// `[16, O]`
    obs: Vec<f32>,
    legal_width: usize,
}

/// Actions and results of one block.
struct Tail {
    choices: Vec<i32>,
    numbers: Vec<f32>,
    row: RowBuf,
}

/// Whole blocks of envs, or the last few envs, with all that a step of them touches.
struct Part<'a> {
    first_env: u32,
    count: usize,
    lines: &'a mut [Line],
    ended: &'a mut [i32],
    waiting: &'a mut [i32],
    scratch: &'a mut Scratch,
    /// Set if these are the envs beyond the last whole block.
    tail: Option<&'a mut Tail>,
    actions: Actions<'a>,
    out: Row<'a>,
}

impl<E: Env> LaneVec<E> {
    /// N envs with the parameters of `env`. Call `reset` before the first step.
    pub fn new(env: E, options: &Options) -> Result<Self> {
        env.validate()?;
        let mut spec = env.spec();
        if let Some(limit) = options.time_limit {
            spec.time_limit = limit;
        }
        options.check(&spec, Layout::<E>::OWN.columns() * size_of::<i32>() + 2)?;
        check_sizes(&spec, Layout::<E>::STATE, E::ACTION_DIMS, Layout::<E>::OBS)?;
        let mut columns = <E::State<Scalar> as Columns<Scalar>>::COLUMNS.to_vec();
        columns.push(Column { name: "elapsed", kind: Kind::I32 });
        let blocks = options.num_envs.div_ceil(BLOCK);
        let waits = options.autoreset == AutoReset::NextStep;
        Ok(Self {
            env,
            columns,
            num_envs: options.num_envs,
            first_env: options.first_env,
            autoreset: options.autoreset,
            backend: options.backend,
            pool: options.pool.clone(),
            pace: Pace::new(options.always_split),
            lines: options.allocate(&spec, blocks * Layout::<E>::OWN.columns(), Line([0; BLOCK]))?,
            ended: options.allocate(&spec, blocks * BLOCK, 0)?,
            waiting: options.allocate(&spec, if waits { blocks * BLOCK } else { 0 }, 0)?,
            scratch: (0..=options.pool.threads().min(MAX_PARTS))
                .map(|_| Scratch {
                    group: ResetGroup {
                        streams: [[0; BLOCK]; 4],
                        state: [Line([0; BLOCK]); MAX_STATE],
                        legal: [0; MAX_CHOICES],
                    },
                    obs: vec![0.0; BLOCK * Layout::<E>::OBS],
                    legal_width: spec.legal_width(),
                })
                .collect(),
            tail: Tail {
                choices: vec![0; BLOCK * E::ACTION_DIMS],
                numbers: vec![0.0; BLOCK * E::ACTION_DIMS],
                row: RowBuf::new(&spec, BLOCK),
            },
            spec,
        })
    }

    fn word(&self, column: usize, env: usize) -> i32 {
        self.lines[env / BLOCK * Layout::<E>::OWN.columns() + column].0[env % BLOCK]
    }

    fn set_word(&mut self, column: usize, env: usize, word: i32) {
        self.lines[env / BLOCK * Layout::<E>::OWN.columns() + column].0[env % BLOCK] = word;
    }

    fn saved_as(&self) -> saved::Header {
        saved::Header {
            id: self.spec.id,
            num_envs: self.num_envs,
            columns: Layout::<E>::OWN.columns(),
            first_env: self.first_env,
            autoreset: self.autoreset,
            time_limit: self.spec.time_limit,
            params: self.params(),
        }
    }

    fn work(&self) -> Work<E> {
        Work {
            env: self.env,
            limit: self.spec.time_limit.map(|limit| limit.min(i32::MAX as u32) as i32),
            autoreset: self.autoreset,
            choices: self.spec.action.choices(),
            masked: self.spec.masked,
        }
    }
}

/// Whether a spec says what the env's types say, and kernels have room for it.
fn check_sizes(spec: &Spec, state: usize, action_dims: usize, obs: usize) -> Result<()> {
    let (name, choices) = (spec.name, spec.action.choices());
    let wrong = |what: String| Err(Error::Invalid(format!("env {name}: {what}")));
    if state > MAX_STATE {
        return wrong(format!("{state} state columns, wanted at most {MAX_STATE}"));
    }
    let dims = spec.action.dims();
    if dims != action_dims || action_dims > MAX_ACTION_DIMS {
        return wrong(format!(
            "the spec has {dims} numbers per action, ACTION_DIMS is {action_dims} (at most {MAX_ACTION_DIMS})"
        ));
    }
    if spec.observation.len() != obs {
        return wrong(format!("the spec has {} observation channels, Obs has {obs}", spec.observation.len()));
    }
    if spec.masked && !(1..=MAX_CHOICES).contains(&choices) {
        return wrong(format!("{choices} choices of a masked action, wanted 1..={MAX_CHOICES}"));
    }
    Ok(())
}

/// The envs that are not in a part yet.
struct Rest<'a> {
    first_env: u32,
    count: usize,
    lines: &'a mut [Line],
    ended: &'a mut [i32],
    waiting: &'a mut [i32],
    scratch: &'a mut [Scratch],
    tail: Option<&'a mut Tail>,
    actions: Actions<'a>,
    out: Row<'a>,
    /// Lines per block; numbers per action, observation and legal row.
    layout: (usize, usize, usize, usize),
}

impl<'a> Rest<'a> {
    /// The next `blocks` blocks; when no whole block is left, the envs beyond.
    fn next(&mut self, blocks: usize) -> Option<Part<'a>> {
        let (lines, dims, obs, legal) = self.layout;
        let whole = self.count / BLOCK;
        let blocks = blocks.min(whole).max(1);
        let count = if whole == 0 { self.count } else { blocks * BLOCK };
        let waits = (blocks * BLOCK).min(self.waiting.len());
        let [scratch] = front(&mut self.scratch, usize::from(count > 0)) else { return None };
        let part = Part {
            first_env: self.first_env,
            count,
            lines: front(&mut self.lines, blocks * lines),
            ended: front(&mut self.ended, blocks * BLOCK),
            waiting: front(&mut self.waiting, waits),
            scratch,
            tail: if whole == 0 { self.tail.take() } else { None },
            actions: self.actions.range(0, count * dims),
            out: self.out.split_front(count, obs, legal),
        };
        self.actions = self.actions.range(count * dims, self.actions.len());
        self.first_env = self.first_env.wrapping_add(count as u32);
        self.count -= count;
        Some(part)
    }
}

/// Both passes over one part.
fn step_part<E: Env>(backend: Backend, work: Work<E>, part: &mut Part<'_>) {
    let Part { first_env, count, lines, ended, waiting, scratch, tail, actions, out } = part;
    let (mut ended_count, mut waiting_count);
    if let Some(tail) = tail {
        let padded = if work.choices > 0 {
            (0..actions.len()).for_each(|i| tail.choices[i] = actions.int(i));
            Actions::I32(&tail.choices)
        } else {
            (0..actions.len()).for_each(|i| tail.numbers[i] = actions.float(i));
            Actions::F32(&tail.numbers)
        };
        let mut row = tail.row.row();
        let kernel = StepKernel { work, first_env: *first_env, lines, actions: padded, out: &mut row, ended, waiting };
        (ended_count, waiting_count) = backend.run(kernel);
        // The lanes beyond the last env step too; nobody asks how they fare.
        ended_count = keep_below(&mut ended[..ended_count], *count);
        waiting_count = keep_below(&mut waiting[..waiting_count], *count);
        out.copy_front(&tail.row);
        for &env in &ended[..ended_count] {
            let env = env as usize;
            out.episode_return[env] = tail.row.episode_return[env];
            out.episode_length[env] = tail.row.episode_length[env];
        }
    } else {
        let kernel = StepKernel { work, first_env: *first_env, lines, actions: *actions, out, ended, waiting };
        (ended_count, waiting_count) = backend.run(kernel);
    }
    keep_final_obs::<E>(&ended[..ended_count], out);
    let resets = match work.autoreset {
        AutoReset::SameStep => &ended[..ended_count],
        AutoReset::NextStep => &waiting[..waiting_count],
        AutoReset::Disabled => &[],
    };
    reset(backend, work, *first_env, lines, resets, scratch, out);
}

/// Moves the numbers below `count` to the front and tells how many they are.
fn keep_below(list: &mut [i32], count: usize) -> usize {
    let mut kept = 0;
    for i in 0..list.len() {
        if (list[i] as usize) < count {
            list[kept] = list[i];
            kept += 1;
        }
    }
    kept
}

/// Keeps the last observation of each episode that ended, before a reset writes over it.
fn keep_final_obs<E: Env>(ended: &[i32], out: &mut Row<'_>) {
    for &env in ended {
        let row = env as usize * Layout::<E>::OBS..(env as usize + 1) * Layout::<E>::OBS;
        out.final_obs[row.clone()].copy_from_slice(&out.obs[row]);
    }
}

/// Begins the next episode in each of `envs`, in groups of a block.
fn reset<E: Env>(
    backend: Backend,
    work: Work<E>,
    first_env: u32,
    lines: &mut [Line],
    envs: &[i32],
    scratch: &mut Scratch,
    out: &mut Row<'_>,
) {
    for envs in envs.chunks(BLOCK) {
        begin::<E>(lines, first_env, envs, &mut scratch.group);
        backend.run(ResetKernel { work, group: &mut scratch.group, obs: &mut scratch.obs });
        scatter::<E>(lines, envs, scratch, out);
    }
}

/// Moves each env's stream on to its next episode.
fn begin<E: Env>(lines: &mut [Line], first_env: u32, envs: &[i32], group: &mut ResetGroup) {
    let own = Layout::<E>::OWN;
    for (lane, &env) in envs.iter().enumerate() {
        let block = &mut lines[env as usize / BLOCK * own.columns()..][..own.columns()];
        let place = env as usize % BLOCK;
        let episode = block[own.episode()].0[place].wrapping_add(1);
        block[own.episode()].0[place] = episode;
        group.streams[0][lane] = block[own.seed()[0]].0[place];
        group.streams[1][lane] = block[own.seed()[1]].0[place];
        group.streams[2][lane] = first_env.wrapping_add(env as u32) as i32;
        group.streams[3][lane] = episode;
    }
}

/// Puts the results of a group of resets where their envs lie.
fn scatter<E: Env>(lines: &mut [Line], envs: &[i32], scratch: &Scratch, out: &mut Row<'_>) {
    let Scratch { group, obs, legal_width } = scratch;
    let (own, width) = (Layout::<E>::OWN, Layout::<E>::OBS);
    for (lane, &env) in envs.iter().enumerate() {
        let env = env as usize;
        let block = &mut lines[env / BLOCK * own.columns()..][..Layout::<E>::STATE];
        for (column, line) in block.iter_mut().enumerate() {
            line.0[env % BLOCK] = group.state[column].0[lane];
        }
        out.obs[env * width..(env + 1) * width].copy_from_slice(&obs[lane * width..(lane + 1) * width]);
        for (choice, byte) in out.legal[env * legal_width..(env + 1) * legal_width].iter_mut().enumerate() {
            *byte = (group.legal[choice] >> lane & 1) as u8;
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

    fn reset(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.num_envs);
        let own = Layout::<E>::OWN;
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
                self.set_word(own.seed()[0], env, seed as i32);
                self.set_word(own.seed()[1], env, (seed >> 32) as i32);
                // The reset moves on to episode 0.
                self.set_word(own.episode(), env, -1);
            }
            for column in [own.elapsed(), own.returned(), own.pending()] {
                self.set_word(column, env, 0);
            }
            self.ended[count] = env as i32;
            count += 1;
        }
        let (backend, work, first_env) = (self.backend, self.work(), self.first_env);
        reset(backend, work, first_env, &mut self.lines, &self.ended[..count], &mut self.scratch[0], &mut out);
        if which.is_some() {
            self.observe(out);
        }
    }

    fn step(&mut self, actions: Actions<'_>, out: Row<'_>) {
        out.assert_fits(&self.spec, self.num_envs);
        self.step_part(0, actions, out);
    }

    fn part_size(&self) -> usize {
        BLOCK
    }

    fn step_part(&mut self, first: usize, actions: Actions<'_>, out: Row<'_>) {
        let count = out.reward.len();
        out.assert_fits(&self.spec, count);
        let end = first + count;
        assert!(
            first.is_multiple_of(BLOCK) && (end.is_multiple_of(BLOCK) || end == self.num_envs),
            "envs {first}..{end}"
        );
        let (got, wanted) = (actions.len(), count * E::ACTION_DIMS);
        assert!(got == wanted, "{got} action numbers for {}, wanted {wanted}", self.spec.name);
        let start = self.pace.start(self.pool.threads());
        let (backend, work) = (self.backend, self.work());
        let (parts, legal_width) = (self.pace.parts(self.pool.threads()), self.spec.legal_width());
        let mut rest = Rest {
            first_env: self.first_env.wrapping_add(first as u32),
            count,
            lines: &mut self.lines[first / BLOCK * Layout::<E>::OWN.columns()..],
            ended: &mut self.ended,
            waiting: &mut self.waiting,
            scratch: &mut self.scratch,
            tail: Some(&mut self.tail),
            actions,
            out,
            layout: (Layout::<E>::OWN.columns(), E::ACTION_DIMS, Layout::<E>::OBS, legal_width),
        };
        let blocks_per_part = (rest.count / BLOCK).div_ceil(parts);
        if parts == 1 {
            while let Some(mut part) = rest.next(blocks_per_part) {
                step_part(backend, work, &mut part);
            }
        } else {
            let mut slots: [Option<Part<'_>>; MAX_PARTS + 1] = [const { None }; MAX_PARTS + 1];
            let mut used = 0;
            while let Some(part) = rest.next(blocks_per_part) {
                slots[used] = Some(part);
                used += 1;
            }
            self.pool.for_each_mut(&mut slots[..used], |_, slot| {
                if let Some(part) = slot {
                    step_part(backend, work, part);
                }
            });
        }
        self.pace.note(start);
    }

    fn observe(&self, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.num_envs);
        let work = self.work();
        let whole = self.num_envs / BLOCK;
        let (lines, tail) = self.lines.split_at(whole * Layout::<E>::OWN.columns());
        let (count, width, choices) = (whole * BLOCK, Layout::<E>::OBS, self.spec.legal_width());
        let mut front = out.split_front(count, width, choices);
        self.backend.run(ObserveKernel { work, lines, out: &mut front });
        if !tail.is_empty() {
            let mut scratch = RowBuf::new(&self.spec, BLOCK);
            self.backend.run(ObserveKernel { work, lines: tail, out: &mut scratch.row() });
            out.obs.copy_from_slice(&scratch.obs[..out.obs.len()]);
            out.legal.copy_from_slice(&scratch.legal[..out.legal.len()]);
        }
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
        let own = Layout::<E>::OWN;
        check_columns(&self.columns, self.num_envs, columns)?;
        for &(column, words) in columns {
            for (env, &word) in words.iter().enumerate() {
                self.set_word(column, env, word);
            }
        }
        for env in 0..self.num_envs {
            self.set_word(own.pending(), env, 0);
            self.set_word(own.returned(), env, 0);
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        let columns = Layout::<E>::OWN.columns();
        let words = (0..self.num_envs).flat_map(|env| (0..columns).map(move |column| self.word(column, env)));
        saved::pack(&self.saved_as(), words)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<()> {
        let columns = Layout::<E>::OWN.columns();
        let words = saved::unpack(&self.saved_as(), bytes)?;
        for (i, &word) in words.iter().enumerate() {
            self.set_word(i % columns, i / columns, word);
        }
        Ok(())
    }

    fn held_out(&self, share: f64, beyond: u32) -> Option<Result<HeldOut>> {
        self.env.held_out(share, beyond)
    }

    fn draw(&self, env: usize) -> Option<Canvas> {
        let block = &self.lines[env / BLOCK * Layout::<E>::OWN.columns()..];
        self.env.draw(&read_state::<E, Scalar>(block, env % BLOCK))
    }

    fn params(&self) -> Vec<Param> {
        self.env.params()
    }

    fn set_param(&mut self, name: &str, value: f64) -> Result<()> {
        let mut changed = self.env;
        changed.set(name, value)?;
        self.spec.check_unchanged(&changed.spec(), name)?;
        self.env = changed;
        Ok(())
    }
}
