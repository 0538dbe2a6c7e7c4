//! What a list of environments holds of each. A line in such a list brings an env to the command line, Python, the tests and the docs.

use super::{
    AutoReset, CudaVec, Env, EnvVisitor, HostEnv, HostVec, LaneVec, MAX_ENVS, Options, Param, Params, RowBuf, Spec,
    VecEnv, Views, emit,
};
use operant_base::{Error, Result};
use operant_device::{CpuPool, Device, check_room};
use operant_lanes::{Backend, Math, Width};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What names of envs begin with that Python brings: nothing here can make those.
pub const BROUGHT: &str = "gymnasium/";

/// Which door an env came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// [`Env`]: lanes.
    Lanes,
    /// [`HostEnv`]: ordinary Rust.
    Host,
}

impl Door {
    /// As a word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lanes => "lanes",
            Self::Host => "host",
        }
    }
}

/// Parameters by name.
pub type Parameters<'a> = [(&'a str, f64)];
/// Builds N envs.
pub type BuildEnvs = fn(&Parameters<'_>, &Options) -> Result<Box<dyn VecEnv>>;
/// The parameter that every env has, beside its own.
pub const TIME_LIMIT: &str = "time_limit";

/// Takes parameters, the number of envs and the number of threads. Returns an error with the reason if the GPU cannot run them, or
/// would be slower than the threads.
pub type CheckGpu = fn(&Parameters<'_>, usize, usize) -> Result<()>;

/// How an env of ordinary Rust lives on a GPU: its own work is done there, while the CPU decides.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// Builds N envs.
    pub build: BuildEnvs,
    /// Whether a GPU serves so many envs of such parameters and is faster than so many threads, or what is in the way.
    pub check: CheckGpu,
}

/// Files that an env learns from.
#[derive(Clone, Copy, Debug)]
pub struct DataFiles {
    /// Whether the env reads any with these parameters.
    pub wanted: fn(&Parameters<'_>) -> bool,
    /// Where they lie if nothing says so.
    pub place: fn() -> PathBuf,
    /// Says where they lie, from now on and for all envs of this process.
    pub set_place: fn(&Path),
}

/// Prints an env as C.
type Print = fn(&Parameters<'_>) -> Result<String>;
/// Prints an env's kernels as CUDA C.
type PrintKernels = fn(&Parameters<'_>, &emit::Shape) -> Result<String>;

/// A registered env: how to describe, build and print it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    door: Door,
    slow: bool,
    fuses: bool,
    /// Parameters that are set before others.
    preset: &'static Parameters<'static>,
    spec: fn(&Parameters<'_>) -> Result<Spec>,
    params: fn(&Parameters<'_>) -> Result<Vec<Param>>,
    build: BuildEnvs,
    resident: Option<&'static Resident>,
    data: Option<&'static DataFiles>,
    source: Option<Print>,
    kernels: Option<PrintKernels>,
}

fn with_params<E: Params + Default>(params: &[(&str, f64)]) -> Result<E> {
    let mut env = E::default();
    params.iter().try_for_each(|&(name, value)| env.set(name, value))?;
    Ok(env)
}

fn build_lanes<E: Env>(env: E, options: &Options) -> Result<Box<dyn VecEnv>> {
    Ok(match &options.device {
        Device::Cpu => Box::new(LaneVec::new(env, options)?),
        Device::Cuda(gpu) => Box::new(CudaVec::new(env, gpu, options)?),
    })
}

/// Builds N of an env.
struct BuildLanes<'a>(&'a Options);

impl EnvVisitor for BuildLanes<'_> {
    type Output = Result<Box<dyn VecEnv>>;
    fn visit<E: Env>(self, env: E) -> Self::Output {
        build_lanes(env, self.0)
    }
}

/// Prints an env as C.
struct AsC;

impl EnvVisitor for AsC {
    type Output = String;
    fn visit<E: Env>(self, env: E) -> String {
        emit::c_source(&env)
    }
}

/// Prints an env's kernels as CUDA C.
struct AsCuda<'a>(&'a emit::Shape);

impl EnvVisitor for AsCuda<'_> {
    type Output = String;
    fn visit<E: Env>(self, env: E) -> String {
        emit::cuda_source(&env, self.0)
    }
}

impl Entry {
    /// An env over lanes.
    pub const fn lanes<E: Env>() -> Self {
        Self {
            door: Door::Lanes,
            slow: false,
            fuses: E::FUSES,
            preset: &[],
            spec: |params| Ok(with_params::<E>(params)?.spec()),
            params: |params| Ok(with_params::<E>(params)?.params()),
            build: |params, options| build_lanes(with_params::<E>(params)?, options),
            resident: None,
            data: None,
            source: Some(|params| Ok(emit::c_source(&with_params::<E>(params)?))),
            kernels: Some(|params, shape| Ok(emit::cuda_source(&with_params::<E>(params)?, shape))),
        }
    }

    /// An env over lanes that shows other observations if its parameters say so.
    pub const fn views<E: Views>() -> Self {
        Self {
            build: |params, options| with_params::<E>(params)?.visit(BuildLanes(options)),
            source: Some(|params| Ok(with_params::<E>(params)?.visit(AsC))),
            kernels: Some(|params, shape| Ok(with_params::<E>(params)?.visit(AsCuda(shape)))),
            ..Self::lanes::<E>()
        }
    }

    /// Whether a GPU can step it.
    pub fn has_kernels(&self) -> bool {
        self.kernels.is_some()
    }

    /// An env of ordinary Rust.
    pub const fn host<E: HostEnv>() -> Self {
        Self {
            door: Door::Host,
            slow: false,
            fuses: false,
            preset: &[],
            spec: |params| Ok(with_params::<E>(params)?.spec()),
            params: |params| Ok(with_params::<E>(params)?.params()),
            build: |params, options| {
                let env = with_params::<E>(params)?;
                if let Device::Cuda(_) = options.device {
                    let name = env.spec().name;
                    return Err(Error::Invalid(format!(
                        "{name} is ordinary Rust and has no kernel for a GPU; run it with --device cpu (operant list)"
                    )));
                }
                Ok(Box::new(HostVec::new(env, options)?))
            },
            resident: None,
            data: None,
            source: None,
            kernels: None,
        }
    }

    /// The same env, known to take milliseconds for a step and to allocate in it: it has tests of its own in place of those
    /// that take many steps of every env.
    pub const fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    /// The same env, whose own work a GPU can do.
    pub const fn resident(self, resident: &'static Resident) -> Self {
        Self { resident: Some(resident), ..self }
    }

    /// The same env, which learns from files.
    pub const fn learns_from(self, data: &'static DataFiles) -> Self {
        Self { data: Some(data), ..self }
    }

    /// The files that it learns from with these parameters.
    pub fn data_files(&self, params: &[(&str, f64)]) -> Option<&'static DataFiles> {
        self.data.filter(|data| (data.wanted)(params))
    }

    /// Whether a GPU can do the env's own work while the CPU steps it.
    pub fn works_on_gpu(&self) -> bool {
        self.resident.is_some()
    }

    /// Whether a GPU can do that for so many envs with these parameters, and faster than so many threads; or what is in the way.
    pub fn check_work_on_gpu(&self, params: &[(&str, f64)], num_envs: usize, threads: usize) -> Result<()> {
        let own: Vec<(&str, f64)> = params.iter().copied().filter(|(name, _)| *name != TIME_LIMIT).collect();
        self.resident.map_or(Ok(()), |resident| (resident.check)(&self.beside_preset(&own), num_envs, threads))
    }

    /// The same env with other parameters, which must be allowed ones.
    pub const fn with(self, preset: &'static [(&'static str, f64)]) -> Self {
        Self { preset, ..self }
    }

    /// Whether a step takes milliseconds.
    pub fn is_slow(&self) -> bool {
        self.slow
    }

    /// Whether fast math changes anything.
    pub fn fuses(&self) -> bool {
        self.fuses
    }

    /// Which door it came through.
    pub fn door(&self) -> Door {
        self.door
    }

    /// What it is, with default parameters.
    pub fn spec(&self) -> Spec {
        (self.spec)(self.preset).expect("parameters of the list are allowed")
    }

    /// Its parameters with their defaults.
    pub fn params(&self) -> Vec<Param> {
        (self.params)(self.preset).expect("parameters of the list are allowed")
    }

    /// Whether `name` is its short name or its id, in any case, with or without `operant/` before it.
    pub fn answers_to(&self, name: &str) -> bool {
        let spec = self.spec();
        let bare = name.strip_prefix("operant/").unwrap_or(name);
        bare.eq_ignore_ascii_case(spec.id) || name.eq_ignore_ascii_case(spec.name) || name.eq_ignore_ascii_case(spec.id)
    }

    /// N envs with these parameters, among which `time_limit` is every env's: steps after which an episode is cut, 0 for never.
    pub fn build(&self, params: &[(&str, f64)], options: &Options) -> Result<Box<dyn VecEnv>> {
        let build = match (&options.device, self.resident) {
            (Device::Cuda(_), Some(resident)) => resident.build,
            _ => self.build,
        };
        let Some(&(_, steps)) = params.iter().find(|(name, _)| *name == TIME_LIMIT) else {
            return build(&self.beside_preset(params), options);
        };
        if steps.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&steps) {
            return Err(Error::Invalid(format!(
                "env.{TIME_LIMIT} = {steps}: wanted a whole number of steps, or 0 for none"
            )));
        }
        let time_limit = Some((steps > 0.0).then_some(steps as u32));
        let own: Vec<(&str, f64)> = params.iter().copied().filter(|(name, _)| *name != TIME_LIMIT).collect();
        build(&self.beside_preset(&own), &Options { time_limit, ..options.clone() })
    }

    fn beside_preset<'a>(&self, params: &[(&'a str, f64)]) -> Vec<(&'a str, f64)> {
        self.preset.iter().chain(params).copied().collect()
    }

    /// The env's kernels as CUDA C, if it is over lanes.
    pub fn cuda_source(&self, params: &[(&str, f64)], shape: &emit::Shape) -> Result<Option<String>> {
        self.kernels.map(|print| print(&self.beside_preset(params), shape)).transpose()
    }

    /// The env as C, if it is over lanes.
    pub fn c_source(&self, params: &[(&str, f64)]) -> Result<Option<String>> {
        self.source.map(|source| source(&self.beside_preset(params))).transpose()
    }
}

impl Options {
    /// N envs on one thread and the widest lanes.
    pub fn new(num_envs: usize) -> Self {
        Self {
            num_envs,
            device: Device::Cpu,
            pool: Arc::new(CpuPool::new(1)),
            backend: Backend::new(Width::Auto, Math::Strict),
            autoreset: AutoReset::default(),
            first_env: 0,
            time_limit: None,
            always_split: false,
        }
    }

    /// `len` copies of `value`, or a message if there is no memory for them.
    pub fn allocate<T: Clone>(&self, spec: &Spec, len: usize, value: T) -> Result<Vec<T>> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(len).map_err(|_| {
            let bytes = len.saturating_mul(size_of::<T>());
            Error::Invalid(format!(
                "no memory for {} envs of {} ({bytes} bytes); lower num_envs",
                self.num_envs, spec.name
            ))
        })?;
        memory.resize(len, value);
        Ok(memory)
    }

    /// Whether these options can be built at all, with so many bytes of state per env.
    pub fn check(&self, spec: &Spec, state_bytes: usize) -> Result<()> {
        if !(1..=MAX_ENVS).contains(&self.num_envs) {
            return Err(Error::Invalid(format!(
                "num_envs = {}: wanted 1..={MAX_ENVS} envs of {}",
                self.num_envs, spec.name
            )));
        }
        if spec.time_limit == Some(0) {
            return Err(Error::Invalid(format!("time limit 0 for {}: wanted at least 1 step, or none", spec.name)));
        }
        // With a row of what they show, which whoever steps them has.
        let bytes = self.num_envs as u64 * (state_bytes + RowBuf::bytes_per_env(spec)) as u64;
        check_room(&format!("num_envs {} of {}", self.num_envs, spec.name), bytes, "lower num_envs")
    }
}
