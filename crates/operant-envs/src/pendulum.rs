//! A pendulum to swing up and hold, by a torque at its pivot.

use super::draw;
use operant_env::params;
use operant_env::{Action, ActionSpace, Canvas, Channel, Env, Spec, Step};
use operant_lanes::columns;
use operant_lanes::math::wrap_angle;
use operant_lanes::{Float, Lanes, Mask, Rng, Scalar};

params! {
    /// Pendulum-v1.
    pub struct Pendulum {
        /// gravitational acceleration
        g: f32 = 10.0, 0.0..=1e3, "m/s²";
        /// mass
        m: f32 = 1.0, 1e-3..=1e3, "kg";
        /// length
        l: f32 = 1.0, 1e-3..=1e3, "m";
        /// time between steps
        dt: f32 = 0.05, 1e-4..=1.0, "s";
        /// largest angular velocity
        max_speed: f32 = 8.0, 1e-3..=1e3, "rad/s";
        /// largest torque
        max_torque: f32 = 2.0, 0.0..=1e3, "N m";
        /// first angles are drawn between −x_init and x_init
        x_init: f32 = std::f32::consts::PI, 0.0..=1e3, "rad";
        /// first angular velocities are drawn between −y_init and y_init
        y_init: f32 = 1.0, 0.0..=1e3, "rad/s";
    }
}

columns! {
    /// The pendulum.
    pub struct State {
        /// angle from upright, rad; not wrapped
        theta: F,
        /// angular velocity, rad/s
        theta_dot: F,
    }
}

impl Env for Pendulum {
    type State<L: Lanes> = State<L>;
    type Obs<L: Lanes> = [L::F; 3];

    fn spec(&self) -> Spec {
        Spec {
            name: "pendulum",
            id: "Pendulum-v1",
            summary: "swing a pendulum up and hold it there with limited torque",
            reference: "Gymnasium PendulumEnv",
            observation: vec![
                Channel::symmetric("cos angle", 1.0),
                Channel::symmetric("sin angle", 1.0),
                Channel::symmetric("angular velocity, rad/s", self.max_speed),
            ],
            action: ActionSpace::Box(vec![Channel::symmetric("torque, N m", self.max_torque)]),
            masked: false,
            time_limit: Some(200),
            solved_at: Some(-200.0),
            render_fps: 30,
        }
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> State<L> {
        State { theta: rng.uniform(-self.x_init, self.x_init), theta_dot: rng.uniform(-self.y_init, self.y_init) }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: State<L>, action: Action<L>, _: &mut Rng<L>) -> Step<L, State<L>> {
        let torque = action.value(0).clamp(-self.max_torque, self.max_torque);
        let angle = wrap_angle::<L>(s.theta);
        let cost = (angle * angle) + (s.theta_dot * s.theta_dot * 0.1) + (torque * torque * 0.001);
        let by_gravity = s.theta.sin() * (3.0 * self.g / (2.0 * self.l));
        let acceleration = torque.mul_add(3.0 / (self.m * self.l * self.l), by_gravity);
        let theta_dot = acceleration.mul_add(self.dt, s.theta_dot).clamp(-self.max_speed, self.max_speed);
        let theta = theta_dot.mul_add(self.dt, s.theta);
        Step { state: State { theta, theta_dot }, reward: -cost, terminated: L::M::splat(false) }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &State<L>) -> [L::F; 3] {
        let (sin, cos) = s.theta.sin_cos();
        [cos, sin, s.theta_dot]
    }

    fn draw(&self, s: &State<Scalar>) -> Option<Canvas> {
        Some(draw::pendulum(s.theta.get(), self.l))
    }
}
