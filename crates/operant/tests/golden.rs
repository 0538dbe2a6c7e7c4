//! The classic envs against Gymnasium's own code: data from `golden/generate.py`, every lane width.
//!
//! The reference computes in f64, the engine in f32. A value passes within 1e-5 of its size; near zero, where relative
//! error means nothing, within 1e-5 of the unit of its column (1 unless a column is always small).

use operant::env::{Actions, AutoReset, Options, RowBuf, Seeds, VecEnv, find};
use operant::lanes::{Backend, Math, Width};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

struct Golden(Vec<u8>);

impl Golden {
    fn open(name: &str) -> Self {
        let path = format!("{}/tests/golden/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
        Self(std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}; run cargo xtask golden")))
    }

    fn has(&self, tensor: &str) -> bool {
        SafeTensors::deserialize(&self.0).unwrap().tensor(tensor).is_ok()
    }

    /// A tensor's values as f64, whatever it holds.
    fn get(&self, tensor: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(tensor).unwrap();
        let data = view.data();
        match view.dtype() {
            Dtype::F32 => data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            Dtype::F64 => data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
            Dtype::I32 => data.as_chunks().0.iter().map(|b| f64::from(i32::from_le_bytes(*b))).collect(),
            Dtype::U8 => data.iter().map(|&b| f64::from(b)).collect(),
            other => panic!("{tensor} holds {other:?}"),
        }
    }
}

/// Every lane width in strict mode, and the widest in fast mode.
fn backends() -> Vec<Backend> {
    let mut all =
        vec![Backend::portable(Width::One), Backend::portable(Width::Eight), Backend::portable(Width::Sixteen)];
    for width in [Width::Eight, Width::Sixteen] {
        all.extend([Backend::new(width, Math::Strict), Backend::new(width, Math::Fast)]);
    }
    all
}

fn close(got: f32, wanted: f64, unit: f64, tolerance: f64) -> bool {
    (f64::from(got) - wanted).abs() <= tolerance * wanted.abs().max(unit)
}

fn build(name: &str, num_envs: usize, backend: Backend) -> (Box<dyn VecEnv>, RowBuf) {
    let options = Options { backend, autoreset: AutoReset::Disabled, ..Options::new(num_envs) };
    let mut envs = find(name).unwrap().build(&[], &options).unwrap();
    let mut row = RowBuf::new(envs.spec(), num_envs);
    envs.reset(Seeds::One(0), None, row.row());
    (envs, row)
}

/// Injects `state` (`[N, S]`) into all envs.
fn inject(envs: &mut dyn VecEnv, state: &[f64]) {
    let states = envs.columns().len() - 1;
    let columns: Vec<Vec<i32>> = (0..states)
        .map(|c| state.iter().skip(c).step_by(states).map(|&x| (x as f32).to_bits() as i32).collect())
        .collect();
    let columns: Vec<(usize, &[i32])> = columns.iter().enumerate().map(|(i, words)| (i, words.as_slice())).collect();
    envs.write(&columns).unwrap();
}

/// The state of all envs, `[N, S]`.
fn state(envs: &dyn VecEnv) -> Vec<f32> {
    let (states, n) = (envs.columns().len() - 1, envs.num_envs());
    let mut all = vec![0.0; n * states];
    let mut words = vec![0; n];
    for c in 0..states {
        envs.read(c, &mut words);
        words.iter().enumerate().for_each(|(i, &word)| all[i * states + c] = f32::from_bits(word as u32));
    }
    all
}

fn step(envs: &mut dyn VecEnv, actions: &[f64], row: &mut RowBuf) {
    if envs.spec().action.choices() > 0 {
        let actions: Vec<i32> = actions.iter().map(|&a| a as i32).collect();
        envs.step(Actions::I32(&actions), row.row());
    } else {
        let actions: Vec<f32> = actions.iter().map(|&a| a as f32).collect();
        envs.step(Actions::F32(&actions), row.row());
    }
}

/// Size of a state column below which error counts as absolute; 1 for most, the speed limit for a mountain car.
fn units(name: &str) -> [f64; 4] {
    match name {
        "cartpole" => [1.0, 1.0, 0.2, 1.0],
        _ if name.starts_with("mountaincar") => [1.0, 0.07, 1.0, 1.0],
        _ => [1.0; 4],
    }
}

/// The same for observations, which are the state itself for some envs.
fn obs_units(name: &str) -> [f64; 6] {
    let [a, b, c, d] = units(name);
    if matches!(name, "pendulum" | "acrobot") { [1.0; 6] } else { [a, b, c, d, 1.0, 1.0] }
}

/// One step from each of a thousand injected states; `outliers` of them may be off by up to 5e-5.
fn one_step(name: &str, outliers: usize) {
    let golden = Golden::open(name);
    let (states, actions) = (golden.get("one.state"), golden.get("one.action"));
    let (next, obs) = (golden.get("one.next_state"), golden.get("one.obs"));
    let (reward, terminated) = (golden.get("one.reward"), golden.get("one.terminated"));
    let rows = reward.len();
    assert!(rows >= 1000);
    let (width, channels) = (states.len() / rows, obs.len() / rows);
    for backend in backends() {
        let (mut envs, mut row) = build(name, rows, backend);
        inject(envs.as_mut(), &states);
        step(envs.as_mut(), &actions, &mut row);
        let after = state(envs.as_ref());
        let mut off = Vec::new();
        for i in 0..rows {
            let pairs = (0..width).map(|c| (after[i * width + c], next[i * width + c], units(name)[c]));
            let pairs = pairs
                .chain((0..channels).map(|c| (row.obs[i * channels + c], obs[i * channels + c], obs_units(name)[c])));
            let pairs: Vec<_> = pairs.chain([(row.reward[i], reward[i], 1.0)]).collect();
            let label = format!("{name}, {} lanes ({}), row {i}: {pairs:?}", backend.width(), backend.name());
            assert!(pairs.iter().all(|&(got, wanted, unit)| close(got, wanted, unit, 5e-5)), "{label}");
            assert_eq!(f64::from(row.terminated[i]), terminated[i], "{label}");
            if !pairs.iter().all(|&(got, wanted, unit)| close(got, wanted, unit, 1e-5)) {
                off.push(label);
            }
        }
        assert!(off.len() <= outliers, "{off:#?}");
    }
}

/// Open loop: only the first state of each episode is injected, so that errors may add up.
fn trajectory(name: &str) {
    let golden = Golden::open(name);
    assert!(golden.has("traj.start"));
    let (start, states, actions) = (golden.get("traj.start"), golden.get("traj.state"), golden.get("traj.action"));
    let (next, obs) = (golden.get("traj.next_state"), golden.get("traj.obs"));
    let (reward, terminated) = (golden.get("traj.reward"), golden.get("traj.terminated"));
    let rows = start.len();
    assert!(rows >= 1000);
    let (width, channels) = (states.len() / rows, obs.len() / rows);
    for backend in backends() {
        let (mut envs, mut row) = build(name, 1, backend);
        for t in 0..rows {
            if start[t] == 1.0 {
                inject(envs.as_mut(), &states[t * width..(t + 1) * width]);
            }
            step(envs.as_mut(), &actions[t..=t], &mut row);
            let label =
                |what: &str| format!("{name}, {} lanes ({}), step {t}: {what}", backend.width(), backend.name());
            for (c, &got) in state(envs.as_ref()).iter().enumerate() {
                let wanted = next[t * width + c];
                assert!(close(got, wanted, units(name)[c], 1e-5), "{} {got} {wanted}", label("state"));
            }
            for (c, &got) in row.obs.iter().enumerate() {
                let wanted = obs[t * channels + c];
                assert!(close(got, wanted, obs_units(name)[c], 1e-5), "{} {got} {wanted}", label("obs"));
            }
            assert!(close(row.reward[0], reward[t], 1.0, 1e-5), "{}", label("reward"));
            assert_eq!(f64::from(row.terminated[0]), terminated[t], "{}", label("terminated"));
        }
    }
}

#[test]
fn cartpole_one_step() {
    one_step("cartpole", 0);
}

#[test]
fn mountaincar_one_step() {
    one_step("mountaincar", 0);
}

#[test]
fn mountaincar_continuous_one_step() {
    one_step("mountaincar_continuous", 0);
}

#[test]
fn pendulum_one_step() {
    one_step("pendulum", 0);
}

/// Four Runge–Kutta stages of 0.2 s multiply rounding errors at the largest speeds: a few of the thousand states come out
/// beyond 1e-5 in f32 (the same formulas in NumPy's f32 leave two there).
#[test]
fn acrobot_one_step() {
    one_step("acrobot", 3);
}

#[test]
fn cartpole_trajectory() {
    trajectory("cartpole");
}

#[test]
fn mountaincar_trajectory() {
    trajectory("mountaincar");
}

#[test]
fn mountaincar_continuous_trajectory() {
    trajectory("mountaincar_continuous");
}
