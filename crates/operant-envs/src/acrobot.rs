//! Two links hanging from a pivot, driven at the joint between them.

use super::draw;
use operant_base::Result;
use operant_env::params;
use operant_env::{Action, ActionSpace, Canvas, Channel, Env, Spec, Step, ordered};
use operant_lanes::columns;
use operant_lanes::math::wrap_angle;
use operant_lanes::{Float, Int, Lanes, Rng, Scalar, select};
use std::f32::consts::PI;

params! {
    /// Acrobot-v1. Sutton, "Generalization in reinforcement learning", 1996; equations of the book.
    pub struct Acrobot {
        /// time between steps
        dt: f32 = 0.2, 1e-3..=1.0, "s";
        /// gravitational acceleration
        gravity: f32 = 9.8, 0.0..=1e3, "m/s²";
        /// length of the first link
        link_length_1: f32 = 1.0, 1e-2..=1e2, "m";
        /// length of the second link, in the picture; the goal line and the equations of motion do not use it
        link_length_2: f32 = 1.0, 1e-2..=1e2, "m";
        /// mass of the first link
        link_mass_1: f32 = 1.0, 1e-2..=1e2, "kg";
        /// mass of the second link
        link_mass_2: f32 = 1.0, 1e-2..=1e2, "kg";
        /// centre of mass of the first link
        link_com_pos_1: f32 = 0.5, 1e-2..=1e2, "m";
        /// centre of mass of the second link
        link_com_pos_2: f32 = 0.5, 1e-2..=1e2, "m";
        /// moment of inertia of each link
        link_moi: f32 = 1.0, 1e-2..=1e2, "kg m²";
        /// largest angular velocity of the first link
        max_vel_1: f32 = 4.0 * PI, 1e-2..=1e2, "rad/s";
        /// largest angular velocity of the second link
        max_vel_2: f32 = 9.0 * PI, 1e-2..=1e2, "rad/s";
        /// torque of an action other than 1
        torque: f32 = 1.0, 0.0..=1e3, "N m";
        /// uniform noise on the torque, up to this
        torque_noise_max: f32 = 0.0, 0.0..=1e3, "N m";
        /// first angles and velocities are drawn from here …
        low: f32 = -0.1, -10.0..=10.0, "";
        /// … up to here
        high: f32 = 0.1, -10.0..=10.0, "";
    }
}

columns! {
    /// The two links.
    pub struct State {
        /// angle of the first link from hanging, rad
        theta1: F,
        /// angle of the second link relative to the first, rad
        theta2: F,
        /// angular velocity of the first link, rad/s
        theta1_dot: F,
        /// angular velocity of the second link, rad/s
        theta2_dot: F,
    }
}

/// θ₁, θ₂ and their velocities, or the rates of all four.
type Four<F> = [F; 4];

impl Acrobot {
    /// Rates of change of a state under a torque.
    #[inline(always)]
    fn rates<L: Lanes>(&self, [theta1, theta2, dtheta1, dtheta2]: Four<L::F>, torque: L::F) -> Four<L::F> {
        let (m1, m2, l1) = (self.link_mass_1, self.link_mass_2, self.link_length_1);
        let (lc1, lc2, inertia, g) = (self.link_com_pos_1, self.link_com_pos_2, self.link_moi, self.gravity);
        let (sin2, cos2) = theta2.sin_cos();
        let d1 = cos2 * (2.0 * m2 * l1 * lc2) + (m1 * lc1 * lc1 + m2 * (l1 * l1 + lc2 * lc2) + 2.0 * inertia);
        let d2 = cos2 * (m2 * l1 * lc2) + (m2 * lc2 * lc2 + inertia);
        // The reference writes cos(x − π/2) for these sines.
        let phi2 = (theta1 + theta2).sin() * (m2 * lc2 * g);
        let coriolis = sin2 * (m2 * l1 * lc2);
        let phi1 = phi2 + theta1.sin() * ((m1 * lc1 + m2 * l1) * g)
            - coriolis * dtheta2 * dtheta2
            - coriolis * dtheta2 * dtheta1 * 2.0;
        let ddtheta2 = (torque + d2 / d1 * phi1 - coriolis * dtheta1 * dtheta1 - phi2)
            / (L::F::from(m2 * lc2 * lc2 + inertia) - d2 * d2 / d1);
        let ddtheta1 = -(d2 * ddtheta2 + phi1) / d1;
        [dtheta1, dtheta2, ddtheta1, ddtheta2]
    }
}

#[inline(always)]
fn along<F: Float>(from: Four<F>, rates: Four<F>, time: f32) -> Four<F> {
    std::array::from_fn(|i| rates[i].mul_add(time, from[i]))
}

/// Brings an angle back to [−π, π]; one that is there already stays as it is.
#[inline(always)]
fn wrap<L: Lanes>(angle: L::F) -> L::F {
    select(angle.abs().gt(PI), wrap_angle::<L>(angle), angle)
}

impl Env for Acrobot {
    type State<L: Lanes> = State<L>;
    type Obs<L: Lanes> = [L::F; 6];

    fn spec(&self) -> Spec {
        Spec {
            name: "acrobot",
            id: "Acrobot-v1",
            summary: "swing the tip of a two-link pendulum above a line",
            reference: "Gymnasium AcrobotEnv",
            observation: vec![
                Channel::symmetric("cos theta1", 1.0),
                Channel::symmetric("sin theta1", 1.0),
                Channel::symmetric("cos theta2", 1.0),
                Channel::symmetric("sin theta2", 1.0),
                Channel::symmetric("theta1 velocity, rad/s", self.max_vel_1),
                Channel::symmetric("theta2 velocity, rad/s", self.max_vel_2),
            ],
            action: ActionSpace::Discrete(3),
            masked: false,
            time_limit: Some(500),
            solved_at: Some(-100.0),
            render_fps: 15,
        }
    }

    fn validate(&self) -> Result<()> {
        ordered(("low", self.low), ("high", self.high))
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> State<L> {
        let (low, high) = (self.low, self.high);
        State {
            theta1: rng.uniform(low, high),
            theta2: rng.uniform(low, high),
            theta1_dot: rng.uniform(low, high),
            theta2_dot: rng.uniform(low, high),
        }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: State<L>, action: Action<L>, rng: &mut Rng<L>) -> Step<L, State<L>> {
        let mut torque = (action.index(0) - 1).to_float() * self.torque;
        if self.torque_noise_max > 0.0 {
            torque = torque + rng.uniform(-self.torque_noise_max, self.torque_noise_max);
        }
        // Runge–Kutta of fourth order.
        let y = [s.theta1, s.theta2, s.theta1_dot, s.theta2_dot];
        let k1 = self.rates::<L>(y, torque);
        let k2 = self.rates::<L>(along(y, k1, self.dt / 2.0), torque);
        let k3 = self.rates::<L>(along(y, k2, self.dt / 2.0), torque);
        let k4 = self.rates::<L>(along(y, k3, self.dt), torque);
        let mean: Four<L::F> = std::array::from_fn(|i| k1[i] + k2[i] * 2.0 + k3[i] * 2.0 + k4[i]);
        let [theta1, theta2, theta1_dot, theta2_dot] = along(y, mean, self.dt / 6.0);

        let theta1 = wrap::<L>(theta1);
        let theta2 = wrap::<L>(theta2);
        let theta1_dot = theta1_dot.clamp(-self.max_vel_1, self.max_vel_1);
        let theta2_dot = theta2_dot.clamp(-self.max_vel_2, self.max_vel_2);
        let height = -theta1.cos() - (theta2 + theta1).cos();
        let terminated = height.gt(1.0);
        let reward = select(terminated, 0.0, -1.0);
        Step { state: State { theta1, theta2, theta1_dot, theta2_dot }, reward, terminated }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &State<L>) -> [L::F; 6] {
        let ((sin1, cos1), (sin2, cos2)) = (s.theta1.sin_cos(), s.theta2.sin_cos());
        [cos1, sin1, cos2, sin2, s.theta1_dot, s.theta2_dot]
    }

    fn draw(&self, s: &State<Scalar>) -> Option<Canvas> {
        Some(draw::acrobot(s.theta1.get(), s.theta2.get(), self.link_length_1, self.link_length_2))
    }
}
