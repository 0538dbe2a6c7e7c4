//! Other observations of an env's states. Which one is shown is a parameter of the env; each is a type, since its size is one.

use super::{Action, Canvas, Env, HeldOut, Param, Params, Spec, Step};
use operant_base::Result;
use operant_lanes::{Block, Lanes, Rng, Scalar};
use std::marker::PhantomData;

/// An observation of the states of `E`.
pub trait Shows<E: Env>: Copy + Send + Sync + 'static {
    /// The observation: `[L::F; O]`, as many numbers as the env's spec lists for this view.
    type Obs<L: Lanes>: Block<L::F>;
    /// The env whose parameters ask for it.
    fn env() -> E;
    /// What the agent sees of a state.
    fn observe<L: Lanes>(env: &E, state: &E::State<L>) -> Self::Obs<L>;
}

/// An env whose parameters choose among observations.
pub trait Views: Env {
    /// Hands on the env with the observation that its parameters ask for.
    fn visit<V: EnvVisitor>(self, visitor: V) -> V::Output;
}

/// What is done with an env of any type.
pub trait EnvVisitor {
    /// What comes of it.
    type Output;
    /// Does it.
    fn visit<E: Env>(self, env: E) -> Self::Output;
}

/// `E` with the observation `V`.
#[derive(Clone, Copy, Debug)]
pub struct Viewed<E, V> {
    env: E,
    view: PhantomData<V>,
}

impl<E, V> Viewed<E, V> {
    /// Of an env whose parameters ask for it.
    pub fn new(env: E) -> Self {
        Self { env, view: PhantomData }
    }
}

impl<E: Env, V: Shows<E>> Default for Viewed<E, V> {
    fn default() -> Self {
        Self::new(V::env())
    }
}

impl<E: Env, V: Shows<E>> Params for Viewed<E, V> {
    fn params(&self) -> Vec<Param> {
        self.env.params()
    }

    fn store(&mut self, index: usize, value: f64) {
        self.env.store(index, value);
    }
}

impl<E: Env, V: Shows<E>> Env for Viewed<E, V> {
    type State<L: Lanes> = E::State<L>;
    type Obs<L: Lanes> = V::Obs<L>;
    const ACTION_DIMS: usize = E::ACTION_DIMS;
    const FUSES: bool = E::FUSES;

    fn spec(&self) -> Spec {
        self.env.spec()
    }

    fn validate(&self) -> Result<()> {
        self.env.validate()
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> E::State<L> {
        self.env.reset::<L>(rng)
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, state: E::State<L>, action: Action<L>, rng: &mut Rng<L>) -> Step<L, E::State<L>> {
        self.env.step::<L>(state, action, rng)
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, state: &E::State<L>) -> V::Obs<L> {
        V::observe::<L>(&self.env, state)
    }

    #[inline(always)]
    fn legal<L: Lanes>(&self, state: &E::State<L>, legal: &mut [L::M]) {
        self.env.legal::<L>(state, legal);
    }

    fn held_out(&self, share: f64, beyond: u32) -> Option<Result<HeldOut>> {
        self.env.held_out(share, beyond)
    }

    fn draw(&self, state: &E::State<Scalar>) -> Option<Canvas> {
        self.env.draw(state)
    }
}
