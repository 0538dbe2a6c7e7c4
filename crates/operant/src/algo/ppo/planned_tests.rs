//! Gradients of plans around a rollout of the GPU against those of the CPU's plan, tensor by tensor, in the middle of episodes.

use super::super::{Loss, loss_graph};
use super::*;
use crate::algo::MemoryName;
use crate::config;
use crate::device::{CpuPool, Device};
use crate::env::{ActionSpace, Channel};
use crate::nn::{Feed, Gradients, Options, Wanted};

/// Three rollouts end in the middle of the probes' episodes, which have four steps.
const STEPS: usize = 22;
const ENVS: usize = 160;

fn settings() -> Settings {
    Settings {
        num_steps: STEPS,
        minibatch_size: ENVS * STEPS,
        update_epochs: 1,
        max_grad_norm: 0.0,
        ..Settings::default()
    }
}

fn build(name: &str, network: NetworkSettings, precision: Precision) -> PpoCuda {
    let options = env::Options { device: Device::named("cuda").unwrap(), ..env::Options::new(ENVS) };
    PpoCuda::new(Build {
        env: env::find(name).unwrap().build(&[], &options).unwrap(),
        gpu: None,
        pool: Arc::new(CpuPool::new(1)),
        seed: 3,
        total_steps: 1 << 30,
        gradient_stride: 0,
        precision,
        network,
        settings: config::to_table(&settings()),
    })
    .unwrap()
}

/// Rows `[N, T, width]` of what lies as `[T, N, width]`.
fn by_env<T: Copy>(x: &[T], width: usize) -> Vec<T> {
    let rows = (0..ENVS).flat_map(|env| (0..STEPS).map(move |t| (t * ENVS + env) * width));
    rows.flat_map(|at| x[at..at + width].iter().copied()).collect()
}

fn fetched<T: crate::device::cuda::Element>(buffer: &Buffer<T>, len: usize) -> Vec<T> {
    let mut out = vec![T::default(); len];
    buffer.download(0, &mut out).unwrap();
    out
}

#[test]
#[ignore = "needs a GPU"]
fn planned_gradients_agree_with_the_cpu() {
    let of = |memory, activation| NetworkSettings {
        hidden: vec![40, 24],
        memory,
        memory_size: 70,
        activation,
        ..NetworkSettings::default()
    };
    for (name, network, precision, most) in [
        ("cartpole", of(MemoryName::Lstm, Act::Tanh), Precision::F32, 1e-3),
        ("probe_memory", of(MemoryName::Mingru, Act::Relu), Precision::F32, 1e-3),
        ("pendulum", of(MemoryName::Lstm, Act::Silu), Precision::F32, 1e-3),
        ("probe_masked", of(MemoryName::Mingru, Act::Tanh), Precision::F32, 1e-3),
        ("cartpole", of(MemoryName::Lstm, Act::Tanh), Precision::Bf16, 2e-2),
        ("pendulum", of(MemoryName::None, Act::Gelu), Precision::F32, 1e-3),
    ] {
        let remembers = network.memory != MemoryName::None;
        let mut ppo = build(name, network, precision);
        // A step or two away from the first weights, ratios leave 1, values their old ones and states 0.
        for _ in 0..3 {
            ppo.run(1e-3, [1.0; 2]).unwrap();
            ppo.iteration += 1;
        }
        let (before, states) = (ppo.fetched_params().unwrap(), ppo.learner.memory().unwrap());
        assert!(!remembers || states.iter().any(|x| *x != 0.0), "{name}");
        // Means of gradients after one step whose past counts for nothing, with weights that stay: the gradient.
        ppo.run_with(0.0, [1.0; 2], 0.0).unwrap();
        let len = ppo.params.len();
        let (mut got, mut squares) = (vec![0.0; len], vec![0.0; len]);
        ppo.learner.fetch_moments([&mut got, &mut squares]).unwrap();
        let (samples, obs) = (ppo.samples(), ppo.architecture.inputs());
        let rollout = ppo.buffers.rollout(ppo.iteration);
        let mut advantage = by_env(&fetched(&rollout.advantage, samples), 1);
        let value = by_env(&fetched(&rollout.value, samples), 1);
        let returns: Vec<f32> = advantage.iter().zip(&value).map(|(a, v)| a + v).collect();
        let mean = advantage.iter().map(|x| f64::from(*x)).sum::<f64>() / samples as f64;
        let squares = advantage.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>();
        let deviation = (squares / (samples as f64 - 1.0)).sqrt() + 1e-8;
        advantage.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) / deviation) as f32);
        let observed = by_env(&fetched(&rollout.obs, samples * obs), obs);
        let log_prob = by_env(&fetched(&rollout.log_prob, samples), 1);
        let words = by_env(&fetched(&rollout.action, samples * ppo.head.dims()), ppo.head.dims());
        let choices: Vec<i32> = words.iter().map(|word| *word as i32).collect();
        let numbers: Vec<f32> = words.iter().map(|word| f32::from_bits(*word)).collect();
        let done = by_env(&fetched(&rollout.done, samples), 1);
        let reset = |at: usize| if at.is_multiple_of(STEPS) { 0.0 } else { f32::from(done[at - 1]) };
        let resets: Vec<f32> = (0..samples).map(reset).collect();
        assert!(!name.starts_with("probe") || resets.contains(&1.0), "episodes that end within sequences");
        let width = ppo.env.spec().legal_width();
        let legal: Vec<f32> =
            by_env(&fetched(&rollout.legal, samples * width), width).into_iter().map(f32::from).collect();
        let row_steps = if remembers { STEPS } else { 1 };
        let net = if remembers { ppo.architecture.build_sequences(STEPS) } else { ppo.architecture.build() }.unwrap();
        let coefficients = settings().coefficients();
        let Loss { graph, loss, .. } = loss_graph(&net, &ppo.head, width > 0, row_steps, coefficients).unwrap();
        let wanted = Wanted { losses: vec![(loss, 1.0)], ..Wanted::default() };
        let mut plan: Plan = Plan::new(&graph, &wanted, samples / row_steps, &Options::default()).unwrap();
        let factors = [1.0_f32; 2];
        let mut feeds = vec![Feed::Real(&observed)];
        feeds.extend(
            states.chunks((states.len() / net.memory.as_ref().map_or(1, |m| m.after.len())).max(1)).map(Feed::Real),
        );
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
            eprintln!("{name} {precision:?} {}: off by {:.1e}", spec.name, error / size);
            // Tensors whose gradient nearly cancels are held to the size of the whole.
            assert!(error < most * size + most * 1e-2 * whole, "{name} {}: {error:.2e} of {size:.2e}", spec.name);
        }
    }
}

/// A picture, and several choices at once: what no env of the list has.
#[test]
fn images_and_several_choices_have_kernels() {
    let channels = |n: usize| (0..n).map(|k| Channel::new(format!("{k}"), 0.0, 255.0)).collect::<Vec<_>>();
    let mut spec = env::find("gridworld").unwrap().spec();
    (spec.observation, spec.action) = (channels(3 * 12 * 10), ActionSpace::MultiDiscrete(vec![3, 2, 5].into()));
    let image = Image { height: 12, width: 10, channels: 3, channels_first: true, bytes: true };
    let architecture = NetworkSettings::default().architecture(&spec, Some(image)).unwrap();
    let chosen = |settings: &Settings| {
        Path::choose(&architecture, &spec, 64, Precision::Bf16, settings, true, None).map(|(path, note)| {
            let Path::Planned(shape) = path else { panic!("a plan") };
            assert!(note.unwrap().contains("tf32 in place of bf16"));
            let params = architecture.build().unwrap().graph.params(0).unwrap();
            shape.source(&emit::hosted_source(&spec), &params, settings).unwrap()
        })
    };
    for settings in [settings(), Settings { normalize_obs: true, ..settings() }] {
        let source = chosen(&settings).unwrap();
        assert!(source.contains("#define HEAD_SIZES {3, 2, 5}"));
        #[cfg(target_os = "linux")]
        assert!(crate::device::cuda::compile("planned", &source, "sm_80", Math::Fast).unwrap().starts_with(b"\x7fELF"));
    }
}
