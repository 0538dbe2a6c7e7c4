//! A car too weak for its hill, pushed with a force of one's choice that costs energy.

use super::draw;
use operant_base::Result;
use operant_env::params;
use operant_env::{Action, ActionSpace, Canvas, Channel, Env, Spec, Step, ordered};
use operant_lanes::columns;
use operant_lanes::{Float, Lanes, Rng, Scalar, select};

params! {
    /// MountainCarContinuous-v0.
    pub struct MountainCarContinuous {
        /// left wall
        min_position: f32 = -1.2, -10.0..=10.0, "";
        /// right end
        max_position: f32 = 0.6, -10.0..=10.0, "";
        /// largest speed
        max_speed: f32 = 0.07, 1e-6..=10.0, "1/step";
        /// position to reach
        goal_position: f32 = 0.45, -10.0..=10.0, "";
        /// speed to have there
        goal_velocity: f32 = 0.0, -10.0..=10.0, "1/step";
        /// acceleration of a force of 1
        power: f32 = 0.0015, 0.0..=1.0, "1/step²";
        /// acceleration down the slope
        gravity: f32 = 0.0025, 0.0..=1.0, "1/step²";
        /// first positions are drawn from here …
        low: f32 = -0.6, -10.0..=10.0, "";
        /// … up to here
        high: f32 = -0.4, -10.0..=10.0, "";
    }
}

columns! {
    /// The car.
    pub struct State {
        /// position along the track
        position: F,
        /// change of position per step
        velocity: F,
    }
}

impl Env for MountainCarContinuous {
    type State<L: Lanes> = State<L>;
    type Obs<L: Lanes> = [L::F; 2];

    fn spec(&self) -> Spec {
        Spec {
            name: "mountaincar_continuous",
            id: "MountainCarContinuous-v0",
            summary: "swing an underpowered car out of a valley with little force",
            reference: "Gymnasium Continuous_MountainCarEnv",
            observation: vec![
                Channel::new("position", self.min_position, self.max_position),
                Channel::symmetric("velocity, 1/step", self.max_speed),
            ],
            action: ActionSpace::Box(vec![Channel::symmetric("force", 1.0)]),
            masked: false,
            time_limit: Some(999),
            solved_at: Some(90.0),
            render_fps: 30,
        }
    }

    fn validate(&self) -> Result<()> {
        ordered(("low", self.low), ("high", self.high))?;
        ordered(("min_position", self.min_position), ("max_position", self.max_position))
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> State<L> {
        State { position: rng.uniform(self.low, self.high), velocity: L::F::from(0.0) }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: State<L>, action: Action<L>, _: &mut Rng<L>) -> Step<L, State<L>> {
        let force = action.value(0).clamp(-1.0, 1.0);
        let velocity = s.velocity + (s.position * 3.0).cos().mul_add(-self.gravity, force * self.power);
        let velocity = velocity.clamp(-self.max_speed, self.max_speed);
        let position = (s.position + velocity).clamp(self.min_position, self.max_position);
        let stopped = position.eq(self.min_position) & velocity.lt(0.0);
        let velocity: L::F = select(stopped, 0.0, velocity);
        let terminated = position.ge(self.goal_position) & velocity.ge(self.goal_velocity);
        // Gymnasium charges for the force asked for, not for the clipped one.
        let cost = action.value(0) * action.value(0) * 0.1;
        let reward = select::<_, L::F>(terminated, 100.0, 0.0) - cost;
        Step { state: State { position, velocity }, reward, terminated }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &State<L>) -> [L::F; 2] {
        [s.position, s.velocity]
    }

    fn draw(&self, s: &State<Scalar>) -> Option<Canvas> {
        Some(draw::mountain_car(s.position.get(), self.min_position, self.max_position, self.goal_position))
    }
}
