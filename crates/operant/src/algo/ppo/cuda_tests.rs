//! Gradients of the kernels against those of the CPU's plan, tensor by tensor: learning does not prove them.

use super::super::{Loss, loss_graph};
use super::*;
use crate::config;
use crate::device::{CpuPool, Device};
use crate::nn::ops::PpoCoefficients;
use crate::nn::{Feed, Gradients, Options, Wanted};

fn build(name: &str, network: NetworkSettings, precision: Precision) -> PpoCuda {
    let options = env::Options { device: Device::named("cuda").unwrap(), ..env::Options::new(1024) };
    let settings =
        Settings { num_steps: 16, minibatch_size: 16_384, update_epochs: 1, max_grad_norm: 0.0, ..Settings::default() };
    PpoCuda::new(Build {
        env: env::find(name).unwrap().build(&[], &options).unwrap(),
        gpu: None,
        pool: Arc::new(CpuPool::new(1)),
        seed: 3,
        total_steps: 1 << 30,
        gradient_stride: 0,
        precision,
        network,
        settings: config::to_table(&settings),
    })
    .unwrap()
}

fn fetched<T: crate::device::cuda::Element>(buffer: &Buffer<T>, len: usize) -> Vec<T> {
    let mut out = vec![T::default(); len];
    buffer.download(0, &mut out).unwrap();
    out
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
        let mut ppo = build(name, network, precision);
        // A step or two away from the first weights, ratios leave 1 and values their old ones.
        ppo.run(1e-3, [1.0; 2]).unwrap();
        ppo.iteration += 1;
        let before = ppo.fetched_params().unwrap();
        // Means of gradients after one step whose past counts for nothing, with weights that stay: the gradient.
        ppo.run_with(0.0, [1.0; 2], 0.0).unwrap();
        let len = ppo.params.len();
        let (mut got, mut squares) = (vec![0.0; len], vec![0.0; len]);
        ppo.learner.fetch_moments([&mut got, &mut squares]).unwrap();
        let (samples, obs) = (ppo.samples(), ppo.architecture.inputs());
        let rollout = ppo.buffers.rollout(ppo.iteration);
        let mut advantage = fetched(&rollout.advantage, samples);
        let value = fetched(&rollout.value, samples);
        let returns: Vec<f32> = advantage.iter().zip(&value).map(|(a, v)| a + v).collect();
        let mean = advantage.iter().map(|x| f64::from(*x)).sum::<f64>() / samples as f64;
        let squares = advantage.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>();
        let deviation = (squares / (samples as f64 - 1.0)).sqrt() + 1e-8;
        advantage.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) / deviation) as f32);
        let observed = fetched(&rollout.obs, samples * obs);
        let log_prob = fetched(&rollout.log_prob, samples);
        let words = fetched(&rollout.action, samples * ppo.head.dims());
        let choices: Vec<i32> = words.iter().map(|word| *word as i32).collect();
        let numbers: Vec<f32> = words.iter().map(|word| f32::from_bits(*word)).collect();
        let action = if ppo.head.continuous() { Feed::Real(&numbers[..]) } else { Feed::Ints(&choices) };
        let net = ppo.architecture.build().unwrap();
        let Loss { graph, loss, .. } = loss_graph(&net, &ppo.head, false, 1, PpoCoefficients::default()).unwrap();
        let wanted = Wanted { losses: vec![(loss, 1.0)], ..Wanted::default() };
        let mut plan: Plan = Plan::new(&graph, &wanted, samples, &Options::default()).unwrap();
        let factors = [1.0_f32; 2];
        let feeds = [&observed[..], &[], &log_prob, &advantage, &returns, &value, &factors].map(Feed::Real);
        let mut feeds = feeds.to_vec();
        feeds[1] = action;
        assert!(plan.train(&before, samples, &feeds, 1.0, Gradients::Replace).finite);
        let wanted = plan.gradients();
        for spec in before.specs() {
            let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let error = norm(&mut spec.range().map(|i| f64::from(got[i] - wanted[i])));
            let size = norm(&mut spec.range().map(|i| f64::from(wanted[i])));
            // Tensors whose gradient nearly cancels are held to the size of the whole.
            let whole = norm(&mut wanted.iter().map(|x| f64::from(*x)));
            eprintln!("{name} {hidden:?} {activation:?} {precision:?} {}: off by {:.1e}", spec.name, error / size);
            // A rounded ReLU may be on where the exact one is off.
            let most = match precision {
                Precision::F32 => 1e-3,
                Precision::Tf32 => 6e-3,
                Precision::F16 if activation == relu => 2e-2,
                Precision::F16 => 6e-3,
                _ if activation == relu => 6e-2,
                _ => 2.5e-2,
            };
            assert!(error < most * size + most * 1e-2 * whole, "{name} {}: {error:.2e} of {size:.2e}", spec.name);
        }
    }
}
