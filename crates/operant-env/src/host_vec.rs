//! The adapter from [`HostEnv`] to [`VecEnv`]: one Rust value per env, stepped in order, shared among threads.

use super::pace::{MAX_PARTS, Pace};
use super::{
    Actions, AutoReset, Canvas, HostAction, HostEnv, Options, Param, Row, Seeds, Spec, Told, VecEnv, check_columns,
    saved,
};
use operant_base::Result;
use operant_device::CpuPool;
use operant_lanes::rng::HostRng;
use operant_lanes::{Column, Kind};
use std::sync::Arc;

/// Columns beside the state: elapsed, return, episode, pending, two words of seed.
pub const OWN_COLUMNS: usize = 6;

/// N envs of one kind.
pub struct HostVec<E: HostEnv> {
    spec: Spec,
    columns: Vec<Column>,
    first_env: u32,
    autoreset: AutoReset,
    pool: Arc<CpuPool>,
    pace: Pace,
    slots: Vec<Slot<E>>,
}

/// Where an env is in its episodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Seed of the stream.
    pub seed: u64,
    /// Number of the episode in it.
    pub episode: u32,
    /// Steps since the episode began.
    pub elapsed: u32,
    /// Its return so far.
    pub returned: f32,
    /// The next step resets.
    pub pending: bool,
}

impl Clock {
    /// Begins the episode; gives the stream of env `number` that it is drawn from.
    pub fn begin(&mut self, number: u32) -> HostRng {
        (self.elapsed, self.returned, self.pending) = (0, 0.0, false);
        HostRng::new(self.seed, number, self.episode, 0)
    }

    /// Begins the next one.
    #[inline]
    pub fn begin_next(&mut self, number: u32) -> HostRng {
        self.episode = self.episode.wrapping_add(1);
        self.begin(number)
    }

    /// Begins the episode that seeds ask for in env `i` of its vector.
    pub fn begin_by(&mut self, seeds: Seeds<'_>, i: usize, number: u32) -> HostRng {
        match seeds {
            Seeds::Keep => return self.begin_next(number),
            Seeds::One(seed) => (self.seed, self.episode) = (seed, 0),
            Seeds::Each(seeds) => (self.seed, self.episode) = (seeds[i], 0),
        }
        self.begin(number)
    }

    /// One step on; gives its stream.
    #[inline]
    pub fn step(&mut self, number: u32) -> HostRng {
        self.elapsed = self.elapsed.saturating_add(1).min(i32::MAX as u32);
        HostRng::new(self.seed, number, self.episode, self.elapsed)
    }

    /// Notes what a step gave in row `i`, and tells whether the episode ended.
    #[inline]
    pub fn note(&mut self, reward: f32, terminated: bool, limit: Option<u32>, i: usize, out: &mut Row<'_>) -> bool {
        let truncated = limit.is_some_and(|limit| self.elapsed >= limit);
        self.returned += reward;
        (out.reward[i], out.terminated[i], out.truncated[i]) = (reward, u8::from(terminated), u8::from(truncated));
        if terminated || truncated {
            (out.episode_return[i], out.episode_length[i]) = (self.returned, self.elapsed as i32);
        }
        terminated || truncated
    }

    /// As words of [`OWN_COLUMNS`].
    pub fn words(&self) -> [i32; OWN_COLUMNS] {
        let (seed, returned) = (self.seed, self.returned.to_bits() as i32);
        [self.elapsed as i32, returned, self.episode as i32, i32::from(self.pending), seed as i32, (seed >> 32) as i32]
    }

    /// From such words.
    pub fn from_words(own: &[i32]) -> Self {
        Self {
            elapsed: own[0] as u32,
            returned: f32::from_bits(own[1] as u32),
            episode: own[2] as u32,
            pending: own[3] != 0,
            seed: u64::from(own[4] as u32) | u64::from(own[5] as u32) << 32,
        }
    }
}

/// One env and its episode.
#[derive(Clone)]
struct Slot<E> {
    env: E,
    clock: Clock,
    /// What nobody has asked for yet.
    told: Told,
}

impl<E: HostEnv> Slot<E> {
    fn begin_next(&mut self, number: u32) {
        self.env.reset(&mut self.clock.begin_next(number));
    }
}

struct Part<'a, E> {
    first: usize,
    slots: &'a mut [Slot<E>],
    actions: Actions<'a>,
    out: Row<'a>,
}

impl<E: HostEnv> HostVec<E> {
    /// N copies of `env`. Call `reset` before the first step.
    pub fn new(env: E, options: &Options) -> Result<Self> {
        let mut spec = env.spec();
        if let Some(limit) = options.time_limit {
            spec.time_limit = limit;
        }
        options.check(&spec, size_of::<Slot<E>>() + env.heap_bytes())?;
        env.validate()?;
        let mut columns = env.columns();
        columns.push(Column { name: "elapsed", kind: Kind::I32 });
        let slot = Slot { env, clock: Clock::default(), told: Told::default() };
        Ok(Self {
            columns,
            first_env: options.first_env,
            autoreset: options.autoreset,
            pool: options.pool.clone(),
            pace: Pace::new(options.always_split),
            slots: options.allocate(&spec, options.num_envs, slot)?,
            spec,
        })
    }

    fn saved_as(&self) -> saved::Header {
        saved::Header {
            id: self.spec.id,
            num_envs: self.slots.len(),
            columns: self.state_columns() + OWN_COLUMNS,
            first_env: self.first_env,
            autoreset: self.autoreset,
            time_limit: self.spec.time_limit,
            params: self.params(),
        }
    }

    fn state_columns(&self) -> usize {
        self.columns.len() - 1
    }
}

/// Writes what env `i` of a part shows.
fn publish<E: HostEnv>(env: &E, spec: &Spec, i: usize, out: &mut Row<'_>) {
    let width = spec.observation.len();
    env.observe(&mut out.obs[i * width..(i + 1) * width]);
    if spec.masked {
        let choices = spec.action.choices();
        env.legal(&mut out.legal[i * choices..(i + 1) * choices]);
    }
}

fn step_part<E: HostEnv>(part: &mut Part<'_, E>, spec: &Spec, first_env: u32, autoreset: AutoReset) {
    let width = spec.observation.len();
    let dims = spec.action.dims();
    for (i, slot) in part.slots.iter_mut().enumerate() {
        let number = first_env.wrapping_add((part.first + i) as u32);
        let out = &mut part.out;
        if slot.clock.pending {
            slot.begin_next(number);
            (out.reward[i], out.terminated[i], out.truncated[i]) = (0.0, 0, 0);
            publish(&slot.env, spec, i, out);
            continue;
        }
        let mut rng = slot.clock.step(number);
        let (reward, terminated) = slot.env.step(HostAction { actions: part.actions, first: i * dims }, &mut rng);
        slot.env.tell(&mut slot.told);
        if slot.clock.note(reward, terminated, spec.time_limit, i, out) {
            slot.env.observe(&mut out.final_obs[i * width..(i + 1) * width]);
            match autoreset {
                AutoReset::SameStep => slot.begin_next(number),
                AutoReset::NextStep => slot.clock.pending = true,
                AutoReset::Disabled => {}
            }
        }
        publish(&slot.env, spec, i, out);
    }
}

impl<E: HostEnv> VecEnv for HostVec<E> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn num_envs(&self) -> usize {
        self.slots.len()
    }

    fn reset(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.slots.len());
        for (i, slot) in self.slots.iter_mut().enumerate() {
            if which.is_none_or(|which| which[i] != 0) {
                let number = self.first_env.wrapping_add(i as u32);
                slot.env.reset(&mut slot.clock.begin_by(seeds, i, number));
            }
            slot.env.tell(&mut slot.told);
            publish(&slot.env, &self.spec, i, &mut out);
        }
    }

    fn step(&mut self, actions: Actions<'_>, out: Row<'_>) {
        out.assert_fits(&self.spec, self.slots.len());
        self.step_part(0, actions, out);
    }

    fn part_size(&self) -> usize {
        1
    }

    fn step_part(&mut self, from: usize, actions: Actions<'_>, mut out: Row<'_>) {
        let (num_envs, dims) = (out.reward.len(), self.spec.action.dims());
        out.assert_fits(&self.spec, num_envs);
        let slots = &mut self.slots[from..from + num_envs];
        let (got, wanted) = (actions.len(), num_envs * dims);
        assert!(got == wanted, "{got} action numbers for {}, wanted {wanted}", self.spec.name);
        let start = self.pace.start(self.pool.threads());
        let parts = self.pace.parts(self.pool.threads()).min(num_envs);
        let per_part = num_envs.div_ceil(parts);
        let (width, legal_width) = (self.spec.observation.len(), self.spec.legal_width());
        let (spec, first_env, autoreset) = (&self.spec, self.first_env.wrapping_add(from as u32), self.autoreset);
        if parts == 1 {
            step_part(&mut Part { first: 0, slots, actions, out }, spec, first_env, autoreset);
            return self.pace.note(start);
        }
        let mut tasks: [Option<Part<'_, E>>; MAX_PARTS] = [const { None }; MAX_PARTS];
        let mut used = 0;
        for (task, slots) in tasks.iter_mut().zip(slots.chunks_mut(per_part)) {
            let (first, count) = (used * per_part, slots.len());
            *task = Some(Part {
                first,
                slots,
                actions: actions.range(first * dims, (first + count) * dims),
                out: out.split_front(count, width, legal_width),
            });
            used += 1;
        }
        self.pool.for_each_mut(&mut tasks[..used], |_, task| {
            if let Some(part) = task {
                step_part(part, spec, first_env, autoreset);
            }
        });
    }

    fn take_told(&mut self, told: &mut Told) {
        for (i, slot) in self.slots.iter_mut().enumerate() {
            told.take(i, &mut slot.told);
        }
    }

    fn observe(&self, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.slots.len());
        for (i, slot) in self.slots.iter().enumerate() {
            publish(&slot.env, &self.spec, i, &mut out);
        }
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn read(&self, column: usize, out: &mut [i32]) {
        let mut state = vec![0; self.state_columns()];
        for (slot, word) in self.slots.iter().zip(out) {
            if column == state.len() {
                *word = slot.clock.elapsed as i32;
            } else {
                slot.env.read(&mut state);
                *word = state[column];
            }
        }
    }

    fn write(&mut self, columns: &[(usize, &[i32])]) -> Result<()> {
        check_columns(&self.columns, self.slots.len(), columns)?;
        let mut changed = self.slots.clone();
        let mut state = vec![0; self.state_columns()];
        for (i, slot) in changed.iter_mut().enumerate() {
            slot.env.read(&mut state);
            for &(column, words) in columns {
                if column < state.len() {
                    state[column] = words[i];
                } else {
                    slot.clock.elapsed = words[i] as u32;
                }
            }
            slot.env.write(&state)?;
            (slot.clock.pending, slot.clock.returned) = (false, 0.0);
        }
        self.slots = changed;
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        let states = self.state_columns();
        let words = self.slots.iter().flat_map(|slot| {
            let mut words = vec![0; states];
            slot.env.read(&mut words);
            words.extend(slot.clock.words());
            words
        });
        let rests = self.slots.iter().map(|slot| slot.env.save_rest());
        saved::pack_with(&self.saved_as(), words, rests)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<()> {
        let states = self.state_columns();
        let (words, rests) = saved::unpack_with(&self.saved_as(), bytes)?;
        let mut changed = self.slots.clone();
        for ((slot, words), rest) in changed.iter_mut().zip(words.chunks_exact(states + OWN_COLUMNS)).zip(&rests) {
            let (state, own) = words.split_at(states);
            slot.env.write(state)?;
            slot.env.load_rest(rest)?;
            slot.clock = Clock::from_words(own);
        }
        self.slots = changed;
        Ok(())
    }

    fn draw(&self, env: usize) -> Option<Canvas> {
        self.slots[env].env.draw()
    }

    fn params(&self) -> Vec<Param> {
        self.slots[0].env.params()
    }

    fn set_param(&mut self, name: &str, value: f64) -> Result<()> {
        let mut changed = self.slots[0].env.clone();
        changed.set(name, value)?;
        self.spec.check_unchanged(&changed.spec(), name)?;
        for slot in &mut self.slots {
            slot.env.set(name, value)?;
        }
        Ok(())
    }
}
