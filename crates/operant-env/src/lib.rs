//! Environments. Two doors lead to [`VecEnv`], which is all that the rest of the house sees: [`Env`], straight-line
//! code over lanes (SIMD, threads, printed C), and [`HostEnv`], ordinary Rust.
//!
//! The author writes reset, step and observe; the adapters do auto-reset, time limits, final observations, episode
//! statistics, threads and saving. Invariant: results depend on neither lane width nor thread count.

mod actions;
mod canvas;
pub mod check;
mod cuda_row;
mod cuda_vec;
pub mod emit;
pub mod glyphs;
pub mod host_vec;
mod lane_kernels;
mod lane_vec;
mod pace;
mod params;
mod registry;
mod row;
pub mod saved;
mod spec;
mod told;
mod unfit;
mod viewed;

pub use actions::{Actions, ActionsBuf};
pub use canvas::{Canvas, Color};
pub use cuda_row::{DeviceActions, DeviceRow, Ends, ForeignActions, ForeignKind, ForeignRow};
pub use cuda_vec::{CudaVec, EnvsPointers, TOTALS_WORDS, Totals};
pub use host_vec::HostVec;
pub use lane_vec::LaneVec;
pub use params::{Param, ParamValue, Params, ordered};
pub use registry::{BROUGHT, BuildEnvs, CheckGpu, DataFiles, Door, Entry, Parameters, Resident, TIME_LIMIT};
pub use row::{Row, RowBuf};
pub use spec::{ActionSpace, Channel, Heads, Spec};
pub use told::Told;
pub use unfit::{MOST, Place, Unfit, first_unfit};
pub use viewed::{EnvVisitor, Shows, Viewed, Views};

use operant_base::{Error, Image, Result};
use operant_device::{CpuPool, Device};
use operant_lanes::rng::HostRng;
use operant_lanes::{Backend, Block, Column, Columns, Lanes, Rng, Scalar};
use std::sync::Arc;

/// An action in every lane.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a, L: Lanes> {
    indices: &'a [L::I],
    values: &'a [L::F],
}

impl<L: Lanes> Action<'_, L> {
    /// Choice of dimension `dim` of a discrete action.
    #[inline(always)]
    pub fn index(&self, dim: usize) -> L::I {
        self.indices[dim]
    }

    /// Number `dim` of a continuous action, not clipped.
    #[inline(always)]
    pub fn value(&self, dim: usize) -> L::F {
        self.values[dim]
    }
}

/// What a step gives.
#[derive(Clone, Copy, Debug)]
pub struct Step<L: Lanes, S> {
    /// The next state.
    pub state: S,
    /// The reward of this step.
    pub reward: L::F,
    /// Whether the env ended the episode. Time limits are not the env's business.
    pub terminated: L::M,
}

/// Takes the words of a state and returns whether it is held out.
pub type IsHeldOut = Box<dyn FnMut(&[i32]) -> bool + Send>;

/// A set of states to exclude from training and test on.
pub struct HeldOut {
    /// How many columns of a state [`HeldOut::holds`] reads, from the first on.
    pub columns: usize,
    /// Returns whether a state belongs to the set.
    pub holds: IsHeldOut,
}

/// An environment as straight-line code over lanes. `&self` holds its parameters.
pub trait Env: Params + Copy + Default + Send + Sync + 'static {
    /// The state, declared with [`columns!`](operant_lanes::columns).
    type State<L: Lanes>: Columns<L>;
    /// The observation: `[L::F; O]`.
    type Obs<L: Lanes>: Block<L::F>;
    /// Numbers per action; agrees with the spec.
    const ACTION_DIMS: usize = 1;
    /// Whether fast math changes anything: whether a multiplication and an addition could be one, or a function of
    /// [`Float`](operant_lanes::Float) is called. Envs of whole numbers say false and are compiled once instead of twice.
    const FUSES: bool = true;

    /// Names, spaces and limits.
    fn spec(&self) -> Spec;
    /// Whether the parameters, each within its range, fit together.
    fn validate(&self) -> Result<()> {
        Ok(())
    }
    /// Draws a first state.
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> Self::State<L>;
    /// One step.
    fn step<L: Lanes>(&self, state: Self::State<L>, action: Action<L>, rng: &mut Rng<L>) -> Step<L, Self::State<L>>;
    /// What the agent sees of a state.
    fn observe<L: Lanes>(&self, state: &Self::State<L>) -> Self::Obs<L>;
    /// Which choices are legal, for a masked spec: writes one mask per choice.
    #[inline(always)]
    fn legal<L: Lanes>(&self, state: &Self::State<L>, legal: &mut [L::M]) {
        let _ = (state, legal);
    }
    /// Picks states to hold out of training, or returns `None` if this env cannot. `share` is the fraction to pick; states within
    /// `beyond` moves of the goal are never picked.
    fn held_out(&self, share: f64, beyond: u32) -> Option<Result<HeldOut>> {
        let _ = (share, beyond);
        None
    }
    /// A picture of a state, if the env draws one.
    fn draw(&self, state: &Self::State<Scalar>) -> Option<Canvas> {
        let _ = state;
        None
    }
}

/// An environment as ordinary Rust, for what needs real control flow. `self` holds parameters and state.
pub trait HostEnv: Params + Clone + Default + Send + 'static {
    /// Names, spaces and limits.
    fn spec(&self) -> Spec;
    /// Whether the parameters, each within its range, fit together.
    fn validate(&self) -> Result<()> {
        Ok(())
    }
    /// Begins an episode.
    fn reset(&mut self, rng: &mut HostRng);
    /// One step: reward, and whether the env ended the episode.
    fn step(&mut self, action: HostAction<'_>, rng: &mut HostRng) -> (f32, bool);
    /// Writes what the agent sees.
    fn observe(&self, obs: &mut [f32]);
    /// Writes 1 for each legal choice, for a masked spec.
    fn legal(&self, legal: &mut [u8]) {
        legal.fill(1);
    }
    /// The columns of the state.
    fn columns(&self) -> Vec<Column>;
    /// Writes the state's bits, one word per column.
    fn read(&self, state: &mut [i32]);
    /// Replaces the state; refuses bits that no state has.
    fn write(&mut self, state: &[i32]) -> Result<()>;
    /// About how many bytes an env holds on the heap once it was reset: what is asked before envs are built.
    fn heap_bytes(&self) -> usize {
        0
    }
    /// What the state holds beside its columns, of any length; saved with them.
    fn save_rest(&self) -> Vec<u8> {
        Vec::new()
    }
    /// Takes that back.
    fn load_rest(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() { Ok(()) } else { Err(Error::Saved("saved state holds more than this env has".into())) }
    }
    /// Adds what happened in the last step, or names of numbers after a reset, for a run's events and metrics.
    fn tell(&self, _told: &mut Told) {}
    /// A picture of the state, if the env draws one.
    fn draw(&self) -> Option<Canvas> {
        None
    }
}

/// The action of one host env.
#[derive(Clone, Copy, Debug)]
pub struct HostAction<'a> {
    actions: Actions<'a>,
    first: usize,
}

impl<'a> HostAction<'a> {
    /// The action that begins at a number of those of all envs.
    pub fn new(actions: Actions<'a>, first: usize) -> Self {
        Self { actions, first }
    }

    /// Choice of dimension `dim` of a discrete action.
    #[inline]
    pub fn index(&self, dim: usize) -> usize {
        self.actions.int(self.first + dim) as usize
    }

    /// Number `dim` of a continuous action.
    #[inline]
    pub fn value(&self, dim: usize) -> f32 {
        self.actions.float(self.first + dim)
    }
}

/// What happens after an episode's last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AutoReset {
    /// The env begins again within that step: `obs` is the new episode's, `final_obs` the old one's.
    #[default]
    SameStep,
    /// The next step begins again, ignoring its action, with reward 0.
    NextStep,
    /// Nothing: the caller resets.
    Disabled,
}

/// How to build a vector env.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many envs, N.
    pub num_envs: usize,
    /// Where they live.
    pub device: Device,
    /// The threads that step them.
    pub pool: Arc<CpuPool>,
    /// The lanes that step them (host envs have one).
    pub backend: Backend,
    /// What happens after an episode's last step.
    pub autoreset: AutoReset,
    /// Number of the first env: its random stream is that of this number in any vector env.
    pub first_env: u32,
    /// Time limit in place of the env's own; `Some(None)` for none.
    pub time_limit: Option<Option<u32>>,
    /// Use all threads even where one is faster: for tests and measurements of the splitting itself.
    pub always_split: bool,
}

/// The most envs that one vector env may hold; a number above is a mistake and not a memory request.
pub const MAX_ENVS: usize = 1 << 24;

/// Whether `columns` can be written to a state of these columns: known, `[N]`, and no time below 0.
pub fn check_columns(known: &[Column], num_envs: usize, columns: &[(usize, &[i32])]) -> Result<()> {
    for &(column, words) in columns {
        if column >= known.len() {
            return Err(Error::Invalid(format!("state column {column}: wanted 0..={}", known.len() - 1)));
        }
        let name = known[column].name;
        if words.len() != num_envs {
            return Err(Error::Invalid(format!("state column {name} has {} values, wanted {num_envs}", words.len())));
        }
        if column + 1 == known.len() && words.iter().any(|&steps| steps < 0) {
            return Err(Error::Invalid(format!("state column {name}: wanted steps >= 0")));
        }
    }
    Ok(())
}

/// Which random streams a reset begins.
#[derive(Clone, Copy, Debug)]
pub enum Seeds<'a> {
    /// The next episode of each env's stream.
    Keep,
    /// Episode 0 of this seed; envs differ by their number.
    One(u64),
    /// Episode 0 of a seed per env.
    Each(&'a [u64]),
}

/// N environments stepped together.
pub trait VecEnv: Send {
    /// What each env is.
    fn spec(&self) -> &Spec;
    /// How observations are images, if they are.
    fn image(&self) -> Option<Image> {
        None
    }
    /// N.
    fn num_envs(&self) -> usize;
    /// Begins episodes in all envs, or where `which` is not 0, and writes `obs` and `legal` of all envs. Panics if `which`
    /// or the seeds are not `[N]`.
    fn reset(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>, out: Row<'_>);
    /// One step of all envs, which must have been reset. The edges call [`Actions::check`] first: here a wrong choice is
    /// some other choice, and a wrong count panics.
    fn step(&mut self, actions: Actions<'_>, out: Row<'_>);
    /// One step of the envs from `first` on, as many as `out` has rows for; the others stay as they are. Parts begin at multiples of
    /// [`part_size`](Self::part_size), and end there or with the last env.
    fn step_part(&mut self, first: usize, actions: Actions<'_>, out: Row<'_>) {
        assert!(first == 0 && out.reward.len() == self.num_envs(), "a step of all envs");
        self.step(actions, out);
    }
    /// Of how many envs those that can be stepped without the others are multiples: N if all are stepped together.
    fn part_size(&self) -> usize {
        self.num_envs()
    }
    /// Why the last call could not be done, for envs that can fail: what it wrote is of no use. A reset of all begins anew.
    fn failure(&self) -> Option<String> {
        None
    }
    /// Moves the events and numbers of all steps since the last call to `told`.
    fn take_told(&mut self, _told: &mut Told) {}
    /// Writes `obs` and `legal` of the states as they are.
    fn observe(&self, out: Row<'_>);
    /// The columns of the state, and after them `elapsed`, the steps since the episode began.
    fn columns(&self) -> &[Column];
    /// Copies the bits of a column, `[N]`.
    fn read(&self, column: usize, out: &mut [i32]);
    /// Replaces the bits of columns, each `[N]`, and counts returns from 0 again. All or nothing.
    fn write(&mut self, columns: &[(usize, &[i32])]) -> Result<()>;
    /// Everything needed to go on exactly from here.
    fn save(&self) -> Vec<u8>;
    /// Whether [`save`](Self::save) holds the state. Where it does not, a run that goes on begins new episodes.
    fn saves_state(&self) -> bool {
        true
    }
    /// Goes on from `save`d bytes of the same env, N, first env, auto-reset mode, time limit and parameters; lanes and
    /// threads may differ.
    fn load(&mut self, bytes: &[u8]) -> Result<()>;
    /// Picks states to hold out of training, or returns `None` if this env cannot. `share` is the fraction to pick; states within
    /// `beyond` moves of the goal are never picked.
    fn held_out(&self, share: f64, beyond: u32) -> Option<Result<HeldOut>> {
        let _ = (share, beyond);
        None
    }
    /// A picture of one env, if it draws one.
    fn draw(&self, env: usize) -> Option<Canvas>;
    /// The env's parameters.
    fn params(&self) -> Vec<Param>;
    /// Sets a parameter for all envs, from the next step on; refuses one that changes the spec.
    fn set_param(&mut self, name: &str, value: f64) -> Result<()>;
    /// The same envs for those who keep rows and actions in the GPU's memory, if that is where the envs live.
    fn on_gpu(&mut self) -> Option<&mut CudaVec> {
        None
    }
}
