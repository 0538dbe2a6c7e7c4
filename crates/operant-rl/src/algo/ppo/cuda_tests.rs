//! Gradients of the kernels against those of the CPU's plan, tensor by tensor: learning does not prove them.

use super::super::{Loss, loss_graph};
use super::*;
use operant_base::config;
use operant_device::{CpuPool, Device};
use operant_nn::{Feed, Gradients, Options, Wanted};

pub(super) fn build(
    name: &str,
    network: NetworkSettings,
    precision: Precision,
    envs: usize,
    settings: &Settings,
) -> PpoCuda {
    let options = env::Options { device: Device::named("cuda").unwrap(), ..env::Options::new(envs) };
    PpoCuda::new(Build {
        env: crate::catalogue::TESTED.env(name).unwrap().build(&[], &options).unwrap(),
        gpu: None,
        pool: Arc::new(CpuPool::new(1)),
        seed: 3,
        total_steps: 1 << 30,
        gradient_stride: 0,
        precision,
        network,
        settings: config::to_table(settings),
    })
    .unwrap()
}

fn fetched<T: operant_device::cuda::Element>(buffer: &Buffer<T>, len: usize) -> Vec<T> {
    let mut out = vec![T::default(); len];
    buffer.download(0, &mut out).unwrap();
    out
}

/// Rows `[N, T, width]` of what lies as `[T, N, width]`.
fn by_env<T: Copy>(x: &[T], [envs, steps]: [usize; 2], width: usize) -> Vec<T> {
    let rows = (0..envs).flat_map(|env| (0..steps).map(move |t| (t * envs + env) * width));
    rows.flat_map(|at| x[at..at + width].iter().copied()).collect()
}

/// Holds the gradient of an iteration of one minibatch to that of the CPU's plan, tensor by tensor, each off by less than `most` of its
/// size. Tells whether episodes ended within the rollout.
pub(super) fn hold_gradient(what: &str, ppo: &mut PpoCuda, most: f64) -> bool {
    let (before, states) = (ppo.fetched_params().unwrap(), ppo.learner.memory().unwrap());
    let remembers = !states.is_empty();
    assert!(!remembers || states.iter().any(|x| *x != 0.0), "{what}");
    // Means of gradients after one step whose past counts for nothing, with weights that stay: the gradient.
    ppo.run_with(0.0, [1.0; 2], 0.0).unwrap();
    let len = ppo.params.len();
    let (mut got, mut squares) = (vec![0.0; len], vec![0.0; len]);
    ppo.learner.fetch_moments([&mut got, &mut squares]).unwrap();
    let (samples, obs, dims) = (ppo.samples(), ppo.architecture.inputs(), ppo.head.dims());
    let (sizes, steps) = ([ppo.num_envs, ppo.settings.num_steps], ppo.settings.num_steps);
    let rollout = ppo.buffers.rollout(ppo.iteration);
    let column = |buffer: &Buffer<f32>, width: usize| by_env(&fetched(buffer, samples * width), sizes, width);
    let (mut advantage, value) = (column(&rollout.advantage, 1), column(&rollout.value, 1));
    let returns: Vec<f32> = advantage.iter().zip(&value).map(|(a, v)| a + v).collect();
    let mean = advantage.iter().map(|x| f64::from(*x)).sum::<f64>() / samples as f64;
    let squares = advantage.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>();
    let deviation = (squares / (samples as f64 - 1.0)).sqrt() + 1e-8;
    advantage.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) / deviation) as f32);
    let (observed, log_prob) = (column(&rollout.obs, obs), column(&rollout.log_prob, 1));
    let words = by_env(&fetched(&rollout.action, samples * dims), sizes, dims);
    let choices: Vec<i32> = words.iter().map(|word| *word as i32).collect();
    let numbers: Vec<f32> = words.iter().map(|word| f32::from_bits(*word)).collect();
    let done = by_env(&fetched(&rollout.done, samples), sizes, 1);
    let reset = |at: usize| if at.is_multiple_of(steps) { 0.0 } else { f32::from(done[at - 1]) };
    let resets: Vec<f32> = (0..samples).map(reset).collect();
    let width = ppo.env.spec().legal_width();
    let legal = by_env(&fetched(&rollout.legal, samples * width), sizes, width);
    let legal: Vec<f32> = legal.into_iter().map(f32::from).collect();
    let row_steps = if remembers { steps } else { 1 };
    let net = if remembers { ppo.architecture.build_sequences(steps) } else { ppo.architecture.build() }.unwrap();
    let coefficients = ppo.settings.coefficients();
    let Loss { graph, loss, .. } = loss_graph(&net, &ppo.head, width > 0, row_steps, coefficients).unwrap();
    let wanted = Wanted { losses: vec![(loss, 1.0)], ..Wanted::default() };
    let mut plan: Plan = Plan::new(&graph, &wanted, samples / row_steps, &Options::default()).unwrap();
    let factors = [1.0_f32; 2];
    let mut feeds = vec![Feed::Real(&observed)];
    let parts = net.memory.as_ref().map_or(1, |memory| memory.after.len());
    feeds.extend(states.chunks((states.len() / parts).max(1)).map(Feed::Real));
    if remembers {
        feeds.push(Feed::Real(&resets));
    }
    feeds.push(if ppo.head.continuous() { Feed::Real(&numbers) } else { Feed::Ints(&choices) });
    feeds.extend([&log_prob, &advantage, &returns, &value].map(|column| Feed::Real(column)));
    if width > 0 {
        feeds.push(Feed::Real(&legal));
    }
    feeds.push(Feed::Real(&factors));
    assert!(plan.train(&before, samples / row_steps, &feeds, 1.0, Gradients::Replace).finite);
    let wanted = plan.gradients();
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let whole = norm(&mut wanted.iter().map(|x| f64::from(*x)));
    assert!(whole > 0.0);
    for spec in before.specs() {
        let error = norm(&mut spec.range().map(|i| f64::from(got[i] - wanted[i])));
        let size = norm(&mut spec.range().map(|i| f64::from(wanted[i])));
        eprintln!("{what} {}: off by {:.1e}", spec.name, error / size);
        // Tensors whose gradient nearly cancels are held to the size of the whole.
        assert!(error < most * size + most * 1e-2 * whole, "{what} {}: {error:.2e} of {size:.2e}", spec.name);
    }
    resets.contains(&1.0)
}

#[test]
#[ignore = "needs a GPU"]
fn gradients_agree_with_the_cpu() {
    let (tanh, relu) = (Act::Tanh, Act::Relu);
    let (f32, tf32, bf16, f16) = (Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16);
    let mut cases: Vec<(&str, Vec<usize>, Act, Precision)> = vec![
        ("cartpole", vec![512; 3], tanh, bf16),
        ("cartpole", vec![512; 3], tanh, f32),
        ("cartpole", vec![512; 3], tanh, f16),
        ("pendulum", vec![96, 40], relu, f16),
        ("acrobot", vec![256, 96], relu, bf16),
        ("pendulum", vec![40], tanh, tf32),
        ("pendulum", vec![128, 100, 77], relu, f32),
        ("mountaincar", vec![64, 64], Act::Sigmoid, f32),
    ];
    let small = [
        ("cartpole", 64, tanh, bf16),
        ("cartpole", 32, relu, bf16),
        ("pendulum", 64, tanh, bf16),
        ("pendulum", 32, tanh, bf16),
        ("acrobot", 64, relu, bf16),
        ("acrobot", 32, tanh, bf16),
        ("mountaincar", 64, tanh, bf16),
        ("mountaincar_continuous", 64, tanh, bf16),
        ("cartpole", 128, tanh, bf16),
        ("pendulum", 96, tanh, bf16),
        ("acrobot", 128, relu, bf16),
        ("mountaincar_continuous", 128, tanh, f16),
        ("acrobot", 96, tanh, f16),
        ("cartpole", 64, tanh, f16),
        ("pendulum", 64, tanh, f16),
        ("acrobot", 32, relu, f16),
        ("mountaincar", 64, tanh, f16),
        ("mountaincar_continuous", 32, tanh, f16),
        ("cartpole", 64, tanh, tf32),
        ("pendulum", 32, tanh, tf32),
        ("acrobot", 64, tanh, tf32),
        ("cartpole", 32, relu, f32),
        ("acrobot", 64, tanh, f32),
        ("pendulum", 64, relu, f32),
    ];
    cases.extend(small.map(|(name, hidden, activation, precision)| (name, vec![hidden; 2], activation, precision)));
    for (name, hidden, activation, precision) in cases {
        let network = NetworkSettings { hidden: hidden.clone(), activation, ..NetworkSettings::default() };
        let settings = Settings {
            num_steps: 16,
            minibatch_size: 16_384,
            update_epochs: 1,
            max_grad_norm: 0.0,
            ..Settings::default()
        };
        let mut ppo = build(name, network, precision, 1024, &settings);
        // A step or two away from the first weights, ratios leave 1 and values their old ones.
        ppo.run(1e-3, [1.0; 2]).unwrap();
        ppo.iteration += 1;
        // A rounded ReLU may be on where the exact one is off.
        let most = match precision {
            Precision::F32 => 1e-3,
            Precision::Tf32 => 6e-3,
            Precision::F16 if activation == relu => 2e-2,
            Precision::F16 => 6e-3,
            _ if activation == relu => 6e-2,
            _ => 2.5e-2,
        };
        hold_gradient(&format!("{name} {hidden:?} {activation:?} {precision:?}"), &mut ppo, most);
    }
}
