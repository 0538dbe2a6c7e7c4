//! Checks that every op must pass: its gradient against finite differences in f64, its f32 kernels on every instruction
//! set against f64, tiles against the whole batch, and what it says to inputs of other shapes. An op brings its cases; the checks come for free.
//!
//! The checks themselves are compiled with the feature `check`, and so is what cases compute.

// Unit tests keep the cases and leave out what looks at them.
#![cfg_attr(test, allow(dead_code))]

#[cfg(all(feature = "check", not(test)))]
pub mod cuda;
#[cfg(all(feature = "check", not(test)))]
mod run;
#[cfg(all(feature = "check", not(test)))]
mod shapes;

use super::graph::{Graph, Node};
use super::op::{Op, Type};
use operant_base::Result;
use operant_lanes::rng::HostRng;
#[cfg(all(feature = "check", not(test)))]
pub use run::{case, op};
#[cfg(all(feature = "check", not(test)))]
use std::sync::Arc;

/// Draws shapes and numbers for cases.
#[derive(Debug)]
pub struct Random(HostRng);

impl Random {
    /// The draws of a seed.
    pub fn new(seed: u64) -> Self {
        Self(HostRng::new(seed, 0, 0, 0))
    }

    /// A size from `low` to `high`, both possible.
    pub fn size(&mut self, low: usize, high: usize) -> usize {
        low + self.0.below((high - low + 1) as u32) as usize
    }
}

/// Which numbers an input is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Standard normal.
    Normal,
    /// Between 0.2 and 2.
    Positive,
    /// At least 0.05 away from 0: for functions with a corner there.
    AwayFromZero,
    /// No two within 0.01 of each other in a row: for maxima.
    Distinct,
    /// 0 or 1, in every group of this many at least one 1.
    Mask(usize),
    /// Above 0, below 1.
    Unit,
    /// Integers from 0 up to this.
    Below(usize),
}

/// An input of a case.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "check"), allow(dead_code))]
pub struct Given {
    ty: Type,
    values: Values,
    fixed: bool,
}

/// Normal numbers, a row per sample.
pub fn rows(shape: impl Into<Vec<usize>>) -> Given {
    Given { ty: Type::rows(shape), values: Values::Normal, fixed: false }
}

/// Normal numbers for the whole batch.
pub fn whole(shape: impl Into<Vec<usize>>) -> Given {
    Given { ty: Type::whole(shape), values: Values::Normal, fixed: false }
}

/// Integers below a limit, a row per sample.
pub fn ints(shape: impl Into<Vec<usize>>, below: usize) -> Given {
    Given { ty: Type::ints(shape), values: Values::Below(below), fixed: true }
}

/// The same input without a gradient: targets, masks.
pub fn fixed(given: Given) -> Given {
    Given { fixed: true, ..given }
}

/// The same input with other numbers.
pub fn with(values: Values, given: Given) -> Given {
    Given { values, ..given }
}

/// See [`Values::AwayFromZero`].
pub fn away_from_zero(given: Given) -> Given {
    with(Values::AwayFromZero, given)
}

/// See [`Values::Distinct`].
pub fn distinct(given: Given) -> Given {
    with(Values::Distinct, given)
}

#[cfg(all(feature = "check", not(test)))]
type Build = dyn Fn(&mut Graph, &[Node]) -> Result<Vec<Node>> + Send + Sync;

/// A small graph that an op is checked in.
#[derive(Clone)]
#[cfg_attr(not(feature = "check"), allow(dead_code))]
pub struct Case {
    name: String,
    inputs: Vec<Given>,
    #[cfg(all(feature = "check", not(test)))]
    build: Arc<Build>,
    /// Whether it is the op alone, so that refusals of shapes are its own.
    alone: bool,
    rows: usize,
    tolerance: f64,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let types: Vec<String> = self.inputs.iter().map(|given| given.ty.to_string()).collect();
        write!(f, "{} of {}", self.name, types.join(", "))
    }
}

impl Case {
    /// The op alone.
    pub fn op<O: Op + Clone>(op: O, inputs: impl Into<Vec<Given>>) -> Self {
        let name = format!("{op:?}");
        Self { alone: true, ..Self::build(name, inputs, move |g, x| g.add_op("", op.clone(), x)) }
    }

    /// Any graph; all outputs that it gives are looked at.
    pub fn build(
        name: impl Into<String>,
        inputs: impl Into<Vec<Given>>,
        build: impl Fn(&mut Graph, &[Node]) -> Result<Vec<Node>> + Send + Sync + 'static,
    ) -> Self {
        // Dropped unless checks are compiled, so that the many bodies of graphs are not.
        #[cfg(any(not(feature = "check"), test))]
        drop(build);
        Self {
            name: name.into(),
            inputs: inputs.into(),
            #[cfg(all(feature = "check", not(test)))]
            build: Arc::new(build),
            alone: false,
            rows: 7,
            tolerance: 2e-5,
        }
    }

    /// With another number of rows than 7.
    pub fn rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// With another tolerance of f32 against f64, relative to the largest number, than 2e-5.
    pub fn tolerance(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }
}
