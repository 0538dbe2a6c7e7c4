//! Phases of an iteration, as profiles show them.

/// What the main thread does in an iteration; what is further in is part of the last one further out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// All of it.
    Iteration,
    /// Playing, and what comes before learning.
    Collect,
    /// Envs stepping.
    Env,
    /// Drawing actions.
    Sample,
    /// Rewards for what is new.
    Curiosity,
    /// Advantages.
    Estimate,
    /// Epochs of minibatches.
    Learn,
    /// Gathering a minibatch.
    Gather,
    /// A step of the optimiser.
    Optimize,
    /// Telemetry, checkpoints.
    Other,
}

impl Phase {
    /// All of them, in the order of their numbers: name, and how far in.
    pub const ALL: [(Self, &'static str, usize); 10] = [
        (Self::Iteration, "iteration", 0),
        (Self::Collect, "collect", 1),
        (Self::Env, "env", 2),
        (Self::Sample, "sample", 2),
        (Self::Curiosity, "curiosity", 2),
        (Self::Estimate, "estimate", 2),
        (Self::Learn, "learn", 1),
        (Self::Gather, "gather", 2),
        (Self::Optimize, "optimizer", 2),
        (Self::Other, "other", 1),
    ];
}
