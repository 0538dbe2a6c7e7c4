//! Actions as the caller holds them, and the check that the edges make before a step.

use super::spec::{ActionSpace, Spec};
use operant_base::{Error, Result};
use operant_lanes::rng::HostRng;

/// Actions of all envs, `[N, A]` row-major, read where they lie.
#[derive(Clone, Copy, Debug)]
pub enum Actions<'a> {
    /// Choices.
    I32(&'a [i32]),
    /// Choices, as NumPy has them by default.
    I64(&'a [i64]),
    /// Real numbers.
    F32(&'a [f32]),
    /// Real numbers, rounded to f32 when read.
    F64(&'a [f64]),
}

impl<'a> Actions<'a> {
    /// How many numbers.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::I32(a) => a.len(),
            Self::I64(a) => a.len(),
            Self::F32(a) => a.len(),
            Self::F64(a) => a.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers from `start` to `end`.
    #[inline]
    pub fn range(&self, start: usize, end: usize) -> Self {
        match self {
            Self::I32(a) => Self::I32(&a[start..end]),
            Self::I64(a) => Self::I64(&a[start..end]),
            Self::F32(a) => Self::F32(&a[start..end]),
            Self::F64(a) => Self::F64(&a[start..end]),
        }
    }

    /// Number `i` as a choice.
    #[inline(always)]
    pub fn int(&self, i: usize) -> i32 {
        match self {
            Self::I32(a) => a[i],
            Self::I64(a) => a[i] as i32,
            Self::F32(a) => a[i] as i32,
            Self::F64(a) => a[i] as i32,
        }
    }

    /// Number `i` as a real number.
    #[inline(always)]
    pub fn float(&self, i: usize) -> f32 {
        match self {
            Self::I32(a) => a[i] as f32,
            Self::I64(a) => a[i] as f32,
            Self::F32(a) => a[i],
            Self::F64(a) => a[i] as f32,
        }
    }

    /// Whether these are actions for `num_envs` envs of this spec: count, kind, range, finite.
    pub fn check(&self, spec: &Spec, num_envs: usize) -> Result<()> {
        let dims = spec.action.dims();
        if self.len() != num_envs * dims {
            let wanted = if dims == 1 { format!("{num_envs}") } else { format!("{num_envs} x {dims}") };
            return Err(Error::Action(format!("{} got {} action numbers, wanted {wanted}", spec.name, self.len())));
        }
        match (&spec.action, self) {
            // The sign of x | (n − 1 − x) tells whether x is outside 0..n: two operations that vectorise on any CPU.
            (ActionSpace::Discrete(n), Self::I32(a)) => {
                let last = *n as i32 - 1;
                let signs = a.iter().fold(0, |signs, &x| signs | x | last.wrapping_sub(x));
                if signs < 0 { Err(self.out_of_range(spec, &[*n])) } else { Ok(()) }
            }
            (ActionSpace::Discrete(n), Self::I64(a)) => {
                let last = *n as i64 - 1;
                let signs = a.iter().fold(0, |signs, &x| signs | x | last.wrapping_sub(x));
                if signs < 0 { Err(self.out_of_range(spec, &[*n])) } else { Ok(()) }
            }
            (ActionSpace::MultiDiscrete(choices), Self::I32(_) | Self::I64(_)) => {
                let fits = (0..self.len()).all(|i| self.choice(i).is_some_and(|x| x < choices[i % dims]));
                if fits { Ok(()) } else { Err(self.out_of_range(spec, choices)) }
            }
            (ActionSpace::Box(_), Self::F32(a)) => {
                if a.iter().fold(false, |bad, x| bad | !x.is_finite()) {
                    Err(self.not_finite(spec))
                } else {
                    Ok(())
                }
            }
            (ActionSpace::Box(_), Self::F64(a)) => {
                if a.iter().fold(false, |bad, &x| bad | !(x as f32).is_finite()) {
                    Err(self.not_finite(spec))
                } else {
                    Ok(())
                }
            }
            (ActionSpace::Box(_), _) => {
                Err(Error::Action(format!("{} takes real numbers, got integers; pass a float array", spec.name)))
            }
            (_, _) => Err(Error::Action(format!(
                "{} takes integer choices, got real numbers; pass an integer array",
                spec.name
            ))),
        }
    }

    fn choice(&self, i: usize) -> Option<usize> {
        match self {
            Self::I32(a) => usize::try_from(a[i]).ok(),
            Self::I64(a) => usize::try_from(a[i]).ok(),
            Self::F32(_) | Self::F64(_) => None,
        }
    }

    fn out_of_range(&self, spec: &Spec, choices: &[usize]) -> Error {
        let dims = choices.len();
        let bad = (0..self.len()).find(|&i| self.choice(i).is_none_or(|x| x >= choices[i % dims])).unwrap_or(0);
        let got = match self {
            Self::I64(a) => a[bad],
            _ => i64::from(self.int(bad)),
        };
        Error::Action(format!(
            "action {got} of env {} is out of range: {} takes 0..={}",
            bad / dims,
            spec.name,
            choices[bad % dims] - 1
        ))
    }

    fn not_finite(&self, spec: &Spec) -> Error {
        let bad = (0..self.len()).find(|&i| !self.float(i).is_finite()).unwrap_or(0);
        let got = if let Self::F64(a) = self { a[bad] } else { f64::from(self.float(bad)) };
        Error::Action(format!(
            "action {got} of env {} is not a finite f32; {} takes finite numbers",
            bad / spec.action.dims(),
            spec.name
        ))
    }
}

/// Actions that own their memory.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionsBuf {
    /// Choices, `[N, A]`.
    Choices(Vec<i32>),
    /// Real numbers, `[N, A]`.
    Numbers(Vec<f32>),
}

impl ActionsBuf {
    /// Uniformly random actions for `num_envs` envs of `spec`, legal or not.
    pub fn random(spec: &Spec, num_envs: usize, rng: &mut HostRng) -> Self {
        let dims = spec.action.dims();
        match &spec.action {
            ActionSpace::Discrete(n) => Self::Choices((0..num_envs).map(|_| rng.below(*n as u32) as i32).collect()),
            ActionSpace::MultiDiscrete(n) => {
                Self::Choices((0..num_envs * dims).map(|i| rng.below(n[i % dims] as u32) as i32).collect())
            }
            ActionSpace::Box(channels) => {
                let numbers = (0..num_envs * dims).map(|i| {
                    let channel = &channels[i % dims];
                    channel.low + (channel.high - channel.low) * rng.unit()
                });
                Self::Numbers(numbers.collect())
            }
        }
    }

    /// The view that a step reads.
    pub fn actions(&self) -> Actions<'_> {
        match self {
            Self::Choices(a) => Actions::I32(a),
            Self::Numbers(a) => Actions::F32(a),
        }
    }
}
