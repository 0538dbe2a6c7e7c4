//! A pole on a cart, pushed left or right.

use super::draw;
use operant_base::Result;
use operant_env::params;
use operant_env::{Action, ActionSpace, Canvas, Channel, Env, Spec, Step, ordered};
use operant_lanes::columns;
use operant_lanes::{Float, Int, Lanes, Rng, Scalar, select};

params! {
    /// CartPole-v1. Barto, Sutton and Anderson, "Neuronlike adaptive elements", 1983.
    pub struct CartPole {
        /// gravitational acceleration
        gravity: f32 = 9.8, 0.0..=1e3, "m/s²";
        /// mass of the cart
        masscart: f32 = 1.0, 1e-3..=1e3, "kg";
        /// mass of the pole
        masspole: f32 = 0.1, 1e-3..=1e3, "kg";
        /// half the length of the pole
        length: f32 = 0.5, 1e-2..=1e2, "m";
        /// force of a push
        force_mag: f32 = 10.0, 0.0..=1e4, "N";
        /// time between steps
        tau: f32 = 0.02, 1e-4..=1.0, "s";
        /// angle beyond which the pole has fallen
        theta_threshold_radians: f32 = 0.209_439_51, 1e-3..=3.2, "rad";
        /// position beyond which the cart has left the track
        x_threshold: f32 = 2.4, 1e-2..=1e3, "m";
        /// reward 0 per step and −1 at the end, in place of 1 per step
        sutton_barto_reward: bool = false, 0.0..=1.0, "";
        /// velocities before positions (Gymnasium's `kinematics_integrator` other than "euler")
        semi_implicit: bool = false, 0.0..=1.0, "";
        /// first states are drawn from here …
        low: f32 = -0.05, -10.0..=10.0, "";
        /// … up to here
        high: f32 = 0.05, -10.0..=10.0, "";
    }
}

columns! {
    /// Cart and pole.
    pub struct State {
        /// cart position, m
        x: F,
        /// cart velocity, m/s
        x_dot: F,
        /// pole angle from upright, rad
        theta: F,
        /// pole angular velocity, rad/s
        theta_dot: F,
    }
}

impl Env for CartPole {
    type State<L: Lanes> = State<L>;
    type Obs<L: Lanes> = [L::F; 4];

    fn spec(&self) -> Spec {
        Spec {
            name: "cartpole",
            id: "CartPole-v1",
            summary: "balance a pole on a cart by pushing it left or right",
            reference: "Gymnasium CartPoleEnv",
            observation: vec![
                Channel::symmetric("cart position, m", self.x_threshold * 2.0),
                Channel::symmetric("cart velocity, m/s", f32::INFINITY),
                Channel::symmetric("pole angle, rad", self.theta_threshold_radians * 2.0),
                Channel::symmetric("pole angular velocity, rad/s", f32::INFINITY),
            ],
            action: ActionSpace::Discrete(2),
            masked: false,
            time_limit: Some(500),
            solved_at: Some(475.0),
            render_fps: 50,
        }
    }

    fn validate(&self) -> Result<()> {
        ordered(("low", self.low), ("high", self.high))
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> State<L> {
        let (low, high) = (self.low, self.high);
        State {
            x: rng.uniform(low, high),
            x_dot: rng.uniform(low, high),
            theta: rng.uniform(low, high),
            theta_dot: rng.uniform(low, high),
        }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: State<L>, action: Action<L>, _: &mut Rng<L>) -> Step<L, State<L>> {
        let total_mass = self.masspole + self.masscart;
        let polemass_length = self.masspole * self.length;
        let force: L::F = select(action.index(0).eq(1), self.force_mag, -self.force_mag);
        let (sin, cos) = s.theta.sin_cos();
        let temp = (s.theta_dot * s.theta_dot * sin).mul_add(polemass_length, force) * (1.0 / total_mass);
        let inertia = (cos * cos).mul_add(-self.masspole / total_mass, 4.0 / 3.0) * self.length;
        let thetaacc = (sin * self.gravity - cos * temp) / inertia;
        let xacc = temp - thetaacc * cos * (polemass_length / total_mass);

        let x_dot = xacc.mul_add(self.tau, s.x_dot);
        let theta_dot = thetaacc.mul_add(self.tau, s.theta_dot);
        let (v, omega) = if self.semi_implicit { (x_dot, theta_dot) } else { (s.x_dot, s.theta_dot) };
        let x = v.mul_add(self.tau, s.x);
        let theta = omega.mul_add(self.tau, s.theta);

        let terminated = x.abs().gt(self.x_threshold) | theta.abs().gt(self.theta_threshold_radians);
        let reward = if self.sutton_barto_reward { select(terminated, -1.0, 0.0) } else { L::F::from(1.0) };
        Step { state: State { x, x_dot, theta, theta_dot }, reward, terminated }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &State<L>) -> [L::F; 4] {
        [s.x, s.x_dot, s.theta, s.theta_dot]
    }

    fn draw(&self, s: &State<Scalar>) -> Option<Canvas> {
        Some(draw::cartpole(s.x.get(), s.theta.get(), self.x_threshold, self.length))
    }
}
