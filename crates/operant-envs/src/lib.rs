//! Classic control, a grid world, and probes: small envs with one right answer, which tell what an algorithm fails at.

mod acrobot;
mod cartpole;
mod draw;
mod gridworld;
mod mountaincar;
mod mountaincar_continuous;
mod pendulum;
pub mod probe;

pub use acrobot::Acrobot;
pub use cartpole::CartPole;
pub use gridworld::GridWorld;
pub use mountaincar::MountainCar;
pub use mountaincar_continuous::MountainCarContinuous;
pub use pendulum::Pendulum;

use operant_env::Entry;

/// Classic control and the grid world.
pub static ENVS: &[Entry] = &[
    Entry::lanes::<CartPole>(),
    Entry::lanes::<MountainCar>(),
    Entry::lanes::<MountainCarContinuous>(),
    Entry::lanes::<Pendulum>(),
    Entry::lanes::<Acrobot>(),
    Entry::host::<GridWorld>(),
];

/// Envs for tests of algorithms.
pub static PROBES: &[Entry] = &[
    Entry::lanes::<probe::Identity>(),
    Entry::lanes::<probe::Delayed>(),
    Entry::lanes::<probe::Truncation>(),
    Entry::lanes::<probe::Masked>(),
    Entry::lanes::<probe::Memory>(),
];
