//! Gradients of plans around a rollout of the GPU against those of the CPU's plan, tensor by tensor, in the middle of episodes.

use super::tests::{build, hold_gradient};
use super::*;
use crate::algo::MemoryName;
use operant_env::{ActionSpace, Channel};

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
        let mut ppo = build(name, network, precision, ENVS, &settings());
        // A step or two away from the first weights, ratios leave 1, values their old ones and states 0.
        for _ in 0..3 {
            ppo.run(1e-3, [1.0; 2]).unwrap();
            ppo.iteration += 1;
        }
        assert_eq!(ppo.learner.memory().unwrap().is_empty(), !remembers, "{name}");
        let ended = hold_gradient(&format!("{name} {precision:?}"), &mut ppo, most);
        assert!(!name.starts_with("probe") || ended, "episodes that end within sequences");
    }
}

/// A picture, and several choices at once: what no env of the list has.
#[test]
fn images_and_several_choices_have_kernels() {
    let channels = |n: usize| (0..n).map(|k| Channel::new(format!("{k}"), 0.0, 255.0)).collect::<Vec<_>>();
    let mut spec = crate::catalogue::TESTED.env("gridworld").unwrap().spec();
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
        assert!(
            operant_device::cuda::compile("planned", &source, "sm_80", Math::Fast).unwrap().starts_with(b"\x7fELF")
        );
    }
}
