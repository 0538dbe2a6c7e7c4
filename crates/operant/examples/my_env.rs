//! An environment of one's own, out of the tree: a ball on a beam that tilts left or right.
//!
//! `cargo run --release --example my_env` checks it and steps a million of them.

use operant::env::check;
use operant::env::{Action, ActionSpace, Actions, Channel, Entry, Env, Options, RowBuf, Seeds, Spec, Step};
use operant::lanes::{Float, Int, Lanes, Rng, select};
use operant::{columns, params};

params! {
    /// A ball on a tilting beam.
    pub struct Beam {
        /// gravitational acceleration
        gravity: f32 = 9.8, 0.0..=100.0, "m/s²";
        /// angle of the beam, either way
        tilt: f32 = 0.05, 0.0..=1.0, "rad";
    }
}

columns! {
    /// Where the ball is and how fast.
    pub struct Ball {
        /// distance from the middle, m
        x: F,
        /// velocity, m/s
        v: F,
    }
}

impl Env for Beam {
    type State<L: Lanes> = Ball<L>;
    type Obs<L: Lanes> = [L::F; 2];

    fn spec(&self) -> Spec {
        Spec {
            name: "beam",
            id: "example/Beam-v0",
            summary: "keep a ball on a beam by tilting it",
            reference: "this file",
            observation: vec![
                Channel::symmetric("position, m", 2.0),
                Channel::symmetric("velocity, m/s", f32::INFINITY),
            ],
            action: ActionSpace::Discrete(2),
            masked: false,
            time_limit: Some(500),
            solved_at: Some(475.0),
            render_fps: 0,
        }
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> Ball<L> {
        Ball { x: rng.uniform(-0.1, 0.1), v: rng.uniform(-0.1, 0.1) }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: Ball<L>, action: Action<L>, _: &mut Rng<L>) -> Step<L, Ball<L>> {
        let tilt: L::F = select(action.index(0).eq(1), self.tilt, -self.tilt);
        let v = s.v + tilt.sin() * (self.gravity * 0.02);
        let x = s.x + v * 0.02;
        Step { state: Ball { x, v }, reward: L::F::from(1.0), terminated: x.abs().gt(1.0) }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &Ball<L>) -> [L::F; 2] {
        [s.x, s.v]
    }
}

/// Checks the env, then steps it.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let entry = Entry::lanes::<Beam>();
    check::all(&entry)?;
    println!("passed {} checks: {:?}", check::CHECKS.len(), check::CHECKS.iter().map(|c| c.0).collect::<Vec<_>>());

    let num_envs = 1 << 20;
    let mut envs = entry.build(&[("tilt", 0.1)], &Options::new(num_envs))?;
    let mut row = RowBuf::new(envs.spec(), num_envs);
    envs.reset(Seeds::One(0), None, row.row());
    envs.step(Actions::I32(&vec![1; num_envs]), row.row());
    println!(
        "stepped {num_envs} envs; mean position {:.4} m",
        row.obs.chunks(2).map(|o| o[0]).sum::<f32>() / num_envs as f32
    );
    Ok(())
}
