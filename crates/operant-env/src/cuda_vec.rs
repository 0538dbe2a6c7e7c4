//! The adapter from [`Env`] to [`VecEnv`] on a GPU: the env's code, printed by the recorder, inside `adapter.cu`.
//!
//! State, rows and actions lie in the GPU's memory. [`CudaVec::step_on_gpu`] and [`CudaVec::rollout`] touch nothing else;
//! as a [`VecEnv`] it copies rows from and to the host, which serves tests, evaluation and envs of other parts of a run.
//! Invariant: in strict mode the bits are those of [`LaneVec`](super::LaneVec), also of what `save` gives.

use super::cuda_row::{DeviceActions, DeviceRow, Ends, ForeignRow, RowPointers};
use super::emit::{self, Shape};
use super::lane_kernels::{MAX_ACTION_DIMS, MAX_STATE, Own};
use super::{Actions, Canvas, Env, HeldOut, Options, Param, Row, RowBuf, Seeds, Spec, VecEnv, check_columns, saved};
use operant_base::{Error, Result};
use operant_device::cuda::{Buffer, DevicePtr, Gpu, Kernel, Params};
use operant_lanes::{Column, Columns, Kind, Math, Scalar};
use std::sync::{Arc, OnceLock};

/// Words of `SHARED_SEED` in `adapter.cu`; zeros: each env has its own.
const SHARED_SEED: usize = 4;
/// Which of them tells that returns of some envs have something beside, if `NARROW`.
const BESIDE: usize = 3;
/// Slots of `Totals` in `adapter.cu`, of four words each.
const TOTALS_SLOTS: usize = 1024;
/// Words of all `Totals`.
pub const TOTALS_WORDS: usize = 4 * TOTALS_SLOTS;
/// Units of a return in `Totals`.
const RETURN_UNIT: f64 = 1.0 / 1_048_576.0;

/// An env without its type: what is asked of it beside its kernels.
trait Printed: Send + Sync {
    fn spec(&self) -> Spec;
    fn source(&self, shape: &Shape) -> String;
    fn narrow_reward(&self, shape: &Shape) -> Option<i32>;
    fn shows_state(&self) -> bool;
    fn params(&self) -> Vec<Param>;
    fn set(&mut self, name: &str, value: f64) -> Result<()>;
    fn draw(&self, words: &[i32]) -> Option<Canvas>;
    fn held_out(&self, share: f64, beyond: u32) -> Option<Result<HeldOut>>;
    fn again(&self) -> Box<dyn Printed>;
}

impl<E: Env> Printed for E {
    fn spec(&self) -> Spec {
        Env::spec(self)
    }
    fn source(&self, shape: &Shape) -> String {
        emit::cuda_source(self, shape)
    }
    fn narrow_reward(&self, shape: &Shape) -> Option<i32> {
        emit::narrow_reward(self, shape)
    }
    fn shows_state(&self) -> bool {
        emit::shows_state(self)
    }
    fn params(&self) -> Vec<Param> {
        super::Params::params(self)
    }
    fn set(&mut self, name: &str, value: f64) -> Result<()> {
        super::Params::set(self, name, value)?;
        self.validate()
    }
    fn draw(&self, words: &[i32]) -> Option<Canvas> {
        let words: Vec<_> = words.iter().map(|&word| word.into()).collect();
        Env::draw(self, &<E::State<Scalar> as Columns<Scalar>>::read(&words))
    }
    fn held_out(&self, share: f64, beyond: u32) -> Option<Result<HeldOut>> {
        Env::held_out(self, share, beyond)
    }
    fn again(&self) -> Box<dyn Printed> {
        Box::new(*self)
    }
}

/// `Envs` of `adapter.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct EnvsPointers {
    words: DevicePtr,
    state: DevicePtr,
    totals: DevicePtr,
    count: u32,
    pitch: u32,
    first_env: u32,
    unused: u32,
}

impl EnvsPointers {
    /// So many envs that the host steps; `totals` are [`TOTALS_WORDS`] words.
    pub fn hosted(count: usize, totals: DevicePtr) -> Self {
        let none = DevicePtr::NONE;
        Self { words: none, state: none, totals, count: count as u32, pitch: 0, first_env: 0, unused: 0 }
    }
}

/// `ResetArgs` of `adapter.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct ResetArgs {
    envs: EnvsPointers,
    row: RowPointers,
    which: DevicePtr,
    seeds: DevicePtr,
    seed: u64,
    /// 0: the next episode, 1: episode 0 of the seeds, 2: no reset.
    seeded: u32,
    unused: u32,
}

/// `StepArgs` of `adapter.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct StepArgs {
    envs: EnvsPointers,
    row: RowPointers,
    actions: DevicePtr,
    kind: u32,
    unused: u32,
}

/// `RolloutArgs` of `adapter.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RolloutArgs {
    envs: EnvsPointers,
    row: RowPointers,
    seed: u64,
    steps: u32,
    first_step: u32,
}

/// Bytes of the arguments of `reset`, `step` and `rollout`: the printed code holds its own structs to them.
pub(super) const ARGS_BYTES: [(&str, usize); 3] = [
    ("RESET_BYTES", size_of::<ResetArgs>()),
    ("STEP_BYTES", size_of::<StepArgs>()),
    ("ROLLOUT_BYTES", size_of::<RolloutArgs>()),
];

impl Params for ResetArgs {}
impl Params for StepArgs {}
impl Params for RolloutArgs {}

struct Kernels {
    reset: Kernel<ResetArgs>,
    step: Kernel<StepArgs>,
    rollout: Kernel<RolloutArgs>,
}

/// Episodes that ended since the totals were last taken, all envs together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// How many.
    pub episodes: u64,
    /// Their steps.
    pub length: u64,
    /// Their returns, each rounded to a multiple of 2⁻²⁰.
    pub returned: f64,
}

/// N envs of one kind on a GPU.
pub struct CudaVec {
    gpu: Arc<Gpu>,
    env: Box<dyn Printed>,
    spec: Spec,
    shape: Shape,
    math: Math,
    /// Made when first used, or by [`CudaVec::prepare`].
    kernels: OnceLock<Kernels>,
    columns: Vec<Column>,
    own: Own,
    /// What every step gives, if words are narrow.
    narrow_reward: Option<i32>,
    /// Whether the state is `row`'s observations, and not the first of `words`.
    shown: bool,
    num_envs: usize,
    /// N rounded up: words of a column.
    pitch: usize,
    first_env: u32,
    /// `[columns, pitch]`, then the seed of all envs, if they share one; elapsed steps and returns as `NARROW` of `adapter.cu` says.
    words: Buffer<i32>,
    /// [`TOTALS_WORDS`]
    totals: Buffer<u64>,
    /// Rows of the host's steps and of [`CudaVec::step_own`]: on the GPU, and as they came from there.
    row: DeviceRow,
    fetched: RowBuf,
    /// `[N, A]` actions of the host's steps, of up to 8 bytes each.
    actions: Buffer<u64>,
    /// `[N]` and `[N]`, for resets.
    which: Buffer<u8>,
    seeds: Buffer<u64>,
    /// Why the GPU failed; it does nothing more after that.
    failure: Option<Error>,
}

impl CudaVec {
    /// N envs with the parameters of `env`. Call `reset` before the first step.
    pub fn new<E: Env>(env: E, gpu: &Arc<Gpu>, options: &Options) -> Result<Self> {
        env.validate()?;
        let mut spec = Env::spec(&env);
        if let Some(limit) = options.time_limit {
            spec.time_limit = limit;
        }
        options.check(&spec, 0)?;
        let mut columns = <E::State<Scalar> as Columns<Scalar>>::COLUMNS.to_vec();
        let own = Own { state: columns.len() };
        columns.push(Column { name: "elapsed", kind: Kind::I32 });
        if own.state > MAX_STATE || spec.action.dims() != E::ACTION_DIMS || E::ACTION_DIMS > MAX_ACTION_DIMS {
            let dims = spec.action.dims();
            return Err(Error::Invalid(format!(
                "env {}: {} state columns and {dims} numbers per action, wanted at most {MAX_STATE} and ACTION_DIMS = {}",
                spec.name,
                own.state,
                E::ACTION_DIMS
            )));
        }
        let num_envs = options.num_envs;
        // Few envs: small blocks, so that every multiprocessor has one. Many: blocks that share what ended in them.
        let block = if num_envs <= gpu.info().multiprocessors * 256 { 64 } else { 128 };
        let shape = Shape { time_limit: spec.time_limit, autoreset: options.autoreset, block };
        let math = options.backend.math();
        let pitch = num_envs.next_multiple_of(64);
        let (lower, count) = ("num_envs", num_envs * E::ACTION_DIMS);
        Ok(Self {
            words: Buffer::new(gpu, own.columns() * pitch + SHARED_SEED, "env states", lower)?,
            totals: Buffer::new(gpu, TOTALS_WORDS, "episode statistics", lower)?,
            row: DeviceRow::new(gpu, &spec, num_envs, 1, Ends::Records)?,
            fetched: RowBuf::new(&spec, num_envs),
            actions: Buffer::new(gpu, count, "actions", lower)?,
            which: Buffer::new(gpu, num_envs, "a mask of envs", lower)?,
            seeds: Buffer::new(gpu, num_envs, "seeds", lower)?,
            narrow_reward: emit::narrow_reward(&env, &shape),
            shown: emit::shows_state(&env),
            env: Box::new(env),
            gpu: gpu.clone(),
            spec,
            shape,
            math,
            kernels: OnceLock::new(),
            columns,
            own,
            num_envs,
            pitch,
            first_env: options.first_env,
            failure: None,
        })
    }

    /// The GPU on which they live.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The text of the env's kernels, which other kernels may go on from.
    pub fn source(&self) -> String {
        self.env.source(&self.shape)
    }

    /// Compiles the kernels, unless that is done. Who does not ask for it waits in the first reset.
    pub fn prepare(&self) -> Result<()> {
        self.kernels().map(drop)
    }

    fn kernels(&self) -> Result<&Kernels> {
        if let Some(kernels) = self.kernels.get() {
            return Ok(kernels);
        }
        let kernels = load(&self.gpu, self.spec.name, &self.source(), self.math)?;
        Ok(self.kernels.get_or_init(|| kernels))
    }

    fn blocks(&self) -> u32 {
        self.num_envs.div_ceil(self.shape.block as usize) as u32
    }

    /// The envs for a kernel that steps them itself.
    pub fn pointers(&self) -> EnvsPointers {
        EnvsPointers {
            words: self.words.pointer(),
            state: if self.shown { self.row.obs.pointer() } else { self.words.pointer() },
            totals: self.totals.pointer(),
            count: self.num_envs as u32,
            pitch: self.pitch as u32,
            first_env: self.first_env,
            unused: 0,
        }
    }

    fn assert_fits(&self, row: &DeviceRow) {
        assert_eq!(
            (row.num_envs(), row.obs.len() / row.rows(), row.legal.len() / row.rows()),
            (self.num_envs, self.num_envs * self.spec.observation.len(), self.num_envs * self.spec.legal_width()),
            "envs, observations and legal choices of a row"
        );
    }

    /// One step of all envs, with actions from and results to the GPU's memory; queued, not waited for. The same as
    /// [`VecEnv::step`] otherwise. Can be recorded in a [`Graph`](operant_device::cuda::Graph).
    pub fn step_on_gpu(&mut self, actions: DeviceActions<'_>, out: &DeviceRow, t: usize) -> Result<()> {
        self.assert_fits(out);
        self.step_to(actions, out.at(t))
    }

    /// [`step_on_gpu`](Self::step_on_gpu) with observations, rewards and flags to another library's memory, and the rest to row 0 of `rest`.
    pub fn step_foreign(&mut self, actions: DeviceActions<'_>, rest: &DeviceRow, to: ForeignRow) -> Result<()> {
        self.assert_fits(rest);
        let ForeignRow { obs, reward, terminated, truncated } = to;
        self.step_to(actions, RowPointers { obs, reward, terminated, truncated, ..rest.at(0) })
    }

    fn step_to(&self, actions: DeviceActions<'_>, row: RowPointers) -> Result<()> {
        let (got, wanted) = (actions.len(), self.num_envs * self.spec.action.dims());
        assert!(got == wanted, "{got} action numbers for {}, wanted {wanted}", self.spec.name);
        let discrete = self.spec.action.choices() > 0;
        assert!(actions.discrete() == discrete, "choices for real numbers, or the reverse, for {}", self.spec.name);
        let (pointer, kind) = actions.pointer();
        self.launch_step(pointer, kind, row)
    }

    /// [`step_on_gpu`](Self::step_on_gpu) with results to the envs' [own row](Self::row), which is faster where observations are the state:
    /// they are written once.
    pub fn step_own(&mut self, actions: DeviceActions<'_>) -> Result<()> {
        self.step_to(actions, self.row.at(0))
    }

    /// The envs' own row, of the last [`step_own`](Self::step_own) or [`reset_own`](Self::reset_own). To be read only: its observations may be the state.
    pub fn row(&self) -> &DeviceRow {
        &self.row
    }

    /// [`step_on_gpu`](Self::step_on_gpu) with actions from the host.
    pub fn step_with(&mut self, actions: Actions<'_>, out: &DeviceRow, t: usize) -> Result<()> {
        self.assert_fits(out);
        let (got, wanted) = (actions.len(), self.num_envs * self.spec.action.dims());
        assert!(got == wanted, "{got} action numbers for {}, wanted {wanted}", self.spec.name);
        let kind = self.upload_actions(actions)?;
        self.launch_step(self.actions.pointer(), kind, out.at(t))
    }

    fn launch_step(&self, actions: DevicePtr, kind: u32, row: RowPointers) -> Result<()> {
        let args = StepArgs { envs: self.pointers(), row, actions, kind, unused: 0 };
        self.kernels()?.step.launch_early(self.blocks(), self.shape.block, &args)
    }

    /// As many steps as `out` has rows, with uniformly random actions: the action of an env in step k is made of the words
    /// from k × A on of the stream (`seed`, env, episode 2³² − 1, step 0). `first_step` is the k of row 0. Queued, not
    /// waited for.
    pub fn rollout(&mut self, seed: u64, first_step: u32, out: &DeviceRow) -> Result<()> {
        self.assert_fits(out);
        // Kernels number rows in 32 bits.
        if out.rows() * self.num_envs > u32::MAX as usize {
            let (rows, num_envs) = (out.rows(), self.num_envs);
            return Err(Error::Invalid(format!(
                "{rows} steps of {num_envs} envs in one rollout: wanted less than 2^32 in all"
            )));
        }
        let (envs, row) = (self.pointers(), out.at(0));
        let args = RolloutArgs { envs, row, seed, steps: out.rows() as u32, first_step };
        self.kernels()?.rollout.launch(self.blocks(), self.shape.block, &args)
    }

    /// [`reset_on_gpu`](Self::reset_on_gpu) with results to the envs' [own row](Self::row).
    pub fn reset_own(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>) -> Result<()> {
        self.launch_reset(Some(seeds), which, self.row.at(0))
    }

    /// Begins episodes as [`VecEnv::reset`] does, with results to the GPU's memory.
    pub fn reset_on_gpu(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>, out: &DeviceRow, t: usize) -> Result<()> {
        self.assert_fits(out);
        self.launch_reset(Some(seeds), which, out.at(t))
    }

    /// Without seeds only the observations are written.
    fn launch_reset(&self, seeds: Option<Seeds<'_>>, which: Option<&[u8]>, row: RowPointers) -> Result<()> {
        let mut args = ResetArgs {
            envs: self.pointers(),
            row,
            which: DevicePtr::NONE,
            seeds: DevicePtr::NONE,
            seed: 0,
            seeded: 2,
            unused: 0,
        };
        if let Some(which) = which {
            assert_eq!(which.len(), self.num_envs, "which envs to reset");
            self.which.upload(which)?;
            args.which = self.which.pointer();
        }
        match seeds {
            None => {}
            Some(Seeds::Keep) => args.seeded = 0,
            Some(Seeds::One(seed)) => (args.seed, args.seeded) = (seed, 1),
            Some(Seeds::Each(seeds)) => {
                assert_eq!(seeds.len(), self.num_envs, "seeds");
                self.seeds.upload(seeds)?;
                (args.seeds, args.seeded) = (self.seeds.pointer(), 1);
            }
        }
        self.kernels()?.reset.launch(self.blocks(), self.shape.block, &args)
    }

    /// What ended since this was last asked.
    pub fn take_totals(&mut self) -> Result<Totals> {
        let mut slots = vec![0; TOTALS_WORDS];
        self.totals.download(0, &mut slots)?;
        self.totals.zero()?;
        let sum = |word: usize| slots.iter().skip(word).step_by(4).fold(0u64, |sum, &x| sum.wrapping_add(x));
        Ok(Totals { episodes: sum(0), length: sum(1), returned: sum(2) as i64 as f64 * RETURN_UNIT })
    }

    /// Registers per thread and bytes of local memory per thread of `reset`, `step` and `rollout`.
    pub fn resources(&self) -> Result<[(i32, i32); 3]> {
        let Kernels { reset, step, rollout } = self.kernels()?;
        Ok([reset.resources()?, step.resources()?, rollout.resources()?])
    }

    /// Copies actions to the GPU and tells their kind there.
    fn upload_actions(&self, actions: Actions<'_>) -> Result<u32> {
        let discrete = self.spec.action.choices() > 0;
        match actions {
            Actions::I32(a) if discrete => self.actions.upload(a).map(|()| 0),
            Actions::I64(a) if discrete => self.actions.upload(a).map(|()| 2),
            Actions::F32(a) if !discrete => self.actions.upload(a).map(|()| 0),
            Actions::F64(a) if !discrete => self.actions.upload(a).map(|()| 3),
            _ if discrete => {
                let choices: Vec<i32> = (0..actions.len()).map(|i| actions.int(i)).collect();
                self.actions.upload(&choices).map(|()| 0)
            }
            _ => {
                let numbers: Vec<f32> = (0..actions.len()).map(|i| actions.float(i)).collect();
                self.actions.upload(&numbers).map(|()| 0)
            }
        }
    }

    fn step_from_host(&mut self, actions: Actions<'_>, out: &mut Row<'_>) -> Result<()> {
        let kind = self.upload_actions(actions)?;
        self.launch_step(self.actions.pointer(), kind, self.row.at(0))?;
        self.row.download(0, &mut self.fetched)?;
        out.copy_front(&self.fetched);
        let width = self.spec.observation.len();
        for env in 0..self.num_envs {
            if self.fetched.terminated[env] | self.fetched.truncated[env] != 0 {
                let row = env * width..(env + 1) * width;
                out.final_obs[row.clone()].copy_from_slice(&self.fetched.final_obs[row]);
                out.episode_return[env] = self.fetched.episode_return[env];
                out.episode_length[env] = self.fetched.episode_length[env];
            }
        }
        Ok(())
    }

    fn fetch_obs(&self, out: &mut Row<'_>) -> Result<()> {
        self.row.obs.download(0, out.obs)?;
        self.row.legal.download(0, out.legal)
    }

    fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    fn saved_as(&self) -> saved::Header {
        saved::Header {
            id: self.spec.id,
            num_envs: self.num_envs,
            columns: self.own.columns(),
            first_env: self.first_env,
            autoreset: self.shape.autoreset,
            time_limit: self.spec.time_limit,
            params: self.env.params(),
        }
    }

    /// All words, `[columns, pitch]` and the shared seed, with states in columns and elapsed steps and returns in words.
    fn fetch_words(&self) -> Result<Vec<i32>> {
        let mut words = vec![0; self.words.len()];
        self.words.download(0, &mut words)?;
        if self.shown {
            let mut states = vec![0.0; self.num_envs * self.own.state];
            self.row.obs.download(0, &mut states)?;
            for (i, word) in states.into_iter().enumerate() {
                words[i % self.own.state * self.pitch + i / self.own.state] = word.to_bits() as i32;
            }
        }
        if let Some(reward) = self.narrow_reward {
            let (elapsed, returned) = (self.own.elapsed() * self.pitch, self.own.returned() * self.pitch);
            for env in (0..self.num_envs).rev() {
                let steps = words[elapsed + env / 2] >> (16 * (env % 2)) & 0xffff;
                words[elapsed + env] = steps;
                let beside = f32::from_bits(words[returned + env] as u32);
                words[returned + env] = ((steps * reward) as f32 + beside).to_bits() as i32;
            }
        }
        Ok(words)
    }

    /// The reverse of [`fetch_words`](Self::fetch_words).
    fn send_words(&self, mut words: Vec<i32>) -> Result<()> {
        if self.shown {
            let state = self.own.state;
            let order = (0..self.num_envs * state).map(|i| words[i % state * self.pitch + i / state]);
            self.row.obs.upload(&order.collect::<Vec<i32>>())?;
        }
        if let Some(reward) = self.narrow_reward {
            let (elapsed, returned) = (self.own.elapsed() * self.pitch, self.own.returned() * self.pitch);
            let mut beside = 0;
            for env in 0..self.num_envs {
                // Beyond the time limit, as more would be.
                let steps = std::mem::take(&mut words[elapsed + env]).clamp(0, 0xffff);
                words[elapsed + env / 2] |= steps << (16 * (env % 2));
                let more = f32::from_bits(words[returned + env] as u32) - (steps * reward) as f32;
                words[returned + env] = more.to_bits() as i32;
                beside |= words[returned + env];
            }
            words[self.own.columns() * self.pitch + BESIDE] = i32::from(beside != 0);
        }
        self.words.upload(&words)
    }
}

fn load(gpu: &Arc<Gpu>, name: &str, source: &str, math: Math) -> Result<Kernels> {
    let module = gpu.load(name, source, math)?;
    Ok(Kernels { reset: module.kernel("reset")?, step: module.kernel("step")?, rollout: module.kernel("rollout")? })
}

impl VecEnv for CudaVec {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn num_envs(&self) -> usize {
        self.num_envs
    }

    fn reset(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.num_envs);
        let result = self.launch_reset(Some(seeds), which, self.row.at(0)).and_then(|()| self.fetch_obs(&mut out));
        self.note(result);
    }

    fn step(&mut self, actions: Actions<'_>, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.num_envs);
        let (got, wanted) = (actions.len(), self.num_envs * self.spec.action.dims());
        assert!(got == wanted, "{got} action numbers for {}, wanted {wanted}", self.spec.name);
        let result = self.step_from_host(actions, &mut out);
        self.note(result);
    }

    fn failure(&self) -> Option<String> {
        self.failure.as_ref().map(Error::to_string)
    }

    fn observe(&self, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.num_envs);
        // A GPU that failed shows nothing more; `step` and `reset` tell of it.
        let _ = self.launch_reset(None, None, self.row.at(0)).and_then(|()| self.fetch_obs(&mut out));
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn read(&self, column: usize, out: &mut [i32]) {
        let out = &mut out[..self.num_envs];
        if column < self.own.state && !self.shown {
            let _ = self.words.download(column * self.pitch, out);
        } else if let Ok(words) = self.fetch_words() {
            out.copy_from_slice(&words[column * self.pitch..][..self.num_envs]);
        }
    }

    fn write(&mut self, columns: &[(usize, &[i32])]) -> Result<()> {
        check_columns(&self.columns, self.num_envs, columns)?;
        let mut words = self.fetch_words()?;
        for &(column, from) in columns {
            words[column * self.pitch..][..self.num_envs].copy_from_slice(from);
        }
        for column in [self.own.pending(), self.own.returned()] {
            words[column * self.pitch..][..self.pitch].fill(0);
        }
        // What was written may be of other seeds.
        words[self.own.columns() * self.pitch] = 0;
        self.send_words(words)
    }

    fn save(&self) -> Vec<u8> {
        let words = self.fetch_words().unwrap_or_else(|_| vec![0; self.words.len()]);
        let at = |env: usize, column: usize| words[column * self.pitch + env];
        let order = (0..self.num_envs).flat_map(|env| (0..self.own.columns()).map(move |column| (env, column)));
        saved::pack(&self.saved_as(), order.map(|(env, column)| at(env, column)))
    }

    fn load(&mut self, bytes: &[u8]) -> Result<()> {
        let (columns, saved) = (self.own.columns(), saved::unpack(&self.saved_as(), bytes)?);
        let mut words = vec![0; self.words.len()];
        for (i, &word) in saved.iter().enumerate() {
            words[i % columns * self.pitch + i / columns] = word;
        }
        self.send_words(words)
    }

    fn held_out(&self, share: f64, beyond: u32) -> Option<Result<HeldOut>> {
        self.env.held_out(share, beyond)
    }

    fn draw(&self, env: usize) -> Option<Canvas> {
        let words = self.fetch_words().ok()?;
        let state: Vec<i32> = (0..self.own.state).map(|column| words[column * self.pitch + env]).collect();
        self.env.draw(&state)
    }

    fn params(&self) -> Vec<Param> {
        self.env.params()
    }

    fn set_param(&mut self, name: &str, value: f64) -> Result<()> {
        let mut changed = self.env.again();
        changed.set(name, value)?;
        self.spec.check_unchanged(&changed.spec(), name)?;
        let kernels = load(&self.gpu, self.spec.name, &changed.source(&self.shape), self.math)?;
        let words = self.fetch_words()?;
        self.kernels = OnceLock::from(kernels);
        // A parameter may decide whether every step gives the same.
        self.narrow_reward = changed.narrow_reward(&self.shape);
        self.shown = changed.shows_state();
        self.env = changed;
        self.send_words(words)
    }

    fn on_gpu(&mut self) -> Option<&mut CudaVec> {
        Some(self)
    }
}
