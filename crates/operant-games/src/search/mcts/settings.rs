//! How to search, and what searches did.

use operant_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// What a search does where chance decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChanceMode {
    /// Draws an outcome in every simulation.
    Sample,
    /// Draws new outcomes as visits grow, and returns to those that are there in between.
    Widen,
    /// Values all outcomes at once, and takes their expectation.
    Exact,
}

/// How to search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// S, simulations per decision; those that a tree was left with count.
    pub simulations: usize,
    /// Leaves that wait for their evaluation together; at most an eighth of the simulations.
    pub leaves: usize,
    /// Points, as a share of half the game's range, that a simulation under way is taken to have lost.
    pub virtual_loss: f32,
    /// Weight of priors in the upper bound.
    pub c_puct: f32,
    /// What an action not yet tried is taken to be worse than its state, as a share of half the game's range.
    pub fpu_reduction: f32,
    /// Share of noise in the root's priors.
    pub noise: f32,
    /// Concentration of that noise; the smaller, the fewer actions it favours.
    pub noise_alpha: f32,
    /// Equal states share a node.
    pub transpositions: bool,
    /// What is known below the action that was played is kept for the next search.
    pub reuse: bool,
    /// What happens where chance decides: sample, widen or exact.
    pub chance: ChanceMode,
    /// States before chance are valued themselves; else an outcome is drawn first (sample and widen).
    pub afterstates: bool,
    /// Outcomes of n visits when widening: this times the square root of n.
    pub widening: f32,
    /// What follows from values that are known is known: such states are not searched any further, the soonest of wins that are known is
    /// taken, and the latest of losses.
    pub proofs: bool,
    /// Actions that sequential halving begins with at the root, in place of noise and upper bounds; 0 for none.
    pub gumbel: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self::PLAIN
    }
}

impl Settings {
    /// What holds unless something else is said.
    pub const PLAIN: Self = Self {
        simulations: 400,
        leaves: 1,
        virtual_loss: 1.0,
        c_puct: 1.5,
        fpu_reduction: 0.2,
        noise: 0.0,
        noise_alpha: 0.3,
        transpositions: false,
        reuse: true,
        chance: ChanceMode::Sample,
        afterstates: true,
        widening: 2.0,
        proofs: true,
        gumbel: 0,
    };

    /// Whether these can be searched with; messages name keys below `table`.
    pub fn check(&self, table: &str) -> Result<()> {
        let rule = |holds: bool, key: &str, got: &dyn std::fmt::Display, wanted: &str| {
            if holds { Ok(()) } else { Err(Error::Invalid(format!("{table}.{key} = {got}: wanted {wanted}"))) }
        };
        let share = |x: f32| (0.0..=1.0).contains(&x);
        let positive = |x: f32| x > 0.0 && x <= 1e6;
        rule((1..=1 << 20).contains(&self.simulations), "simulations", &self.simulations, "1..=1048576")?;
        let most = (self.simulations / 8).max(1);
        let wanted = format!("1..={most}, an eighth of {} simulations", self.simulations);
        rule((1..=most).contains(&self.leaves), "leaves", &self.leaves, &wanted)?;
        rule((0.0..=10.0).contains(&self.virtual_loss), "virtual_loss", &self.virtual_loss, "0 to 10")?;
        rule(positive(self.c_puct), "c_puct", &self.c_puct, "more than 0")?;
        rule((0.0..=10.0).contains(&self.fpu_reduction), "fpu_reduction", &self.fpu_reduction, "0 to 10")?;
        rule(share(self.noise), "noise", &self.noise, "0 to 1")?;
        rule(positive(self.noise_alpha), "noise_alpha", &self.noise_alpha, "more than 0")?;
        rule(positive(self.widening), "widening", &self.widening, "more than 0")
    }
}

/// What searches did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Simulations that came to their end.
    pub simulations: u64,
    /// States that the evaluator valued.
    pub evaluations: u64,
    /// Simulations that ended at a state the tree had already.
    pub hits: u64,
    /// Simulations given up because their leaf was waiting already.
    pub collisions: u64,
    /// Sum of the lengths of simulations, in edges.
    pub depth: u64,
    /// The longest.
    pub deepest: u64,
    /// Simulations that a tree was left with by the search before.
    pub reused: u64,
}

impl Counters {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.simulations += other.simulations;
        self.evaluations += other.evaluations;
        self.hits += other.hits;
        self.collisions += other.collisions;
        self.depth += other.depth;
        self.deepest = self.deepest.max(other.deepest);
        self.reused += other.reused;
    }
}
