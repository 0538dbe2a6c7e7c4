//! PPO on a GPU. Without one: its kernels compile, and what they do not serve is said. On one (`cargo test --test ppo_cuda --
//! --ignored`, or this file's program carried there): it learns, repeats its bits, and goes on from its own checkpoints and
//! from those of the CPU.

use operant::algo::{Algorithm, NetworkSettings, Report, ppo};
use operant::config;
use operant::device::cuda;
use operant::env;
use operant::lanes::Math;
use operant::nn::Act;
use operant::run::{Config, build_algorithm, build_env, build_pool};

const SERVED: [&str; 5] = ["cartpole", "mountaincar", "mountaincar_continuous", "pendulum", "acrobot"];

#[cfg(target_os = "linux")]
#[test]
fn every_kernel_compiles() {
    for (i, name) in SERVED.iter().enumerate() {
        let activation = [Act::Tanh, Act::Relu][i / 2 % 2];
        let network = NetworkSettings { hidden: vec![[64, 32][i % 2]; 2], activation, ..NetworkSettings::default() };
        // One env for every architecture, the others for one each: compiling takes seconds.
        let archs = ["sm_90", "sm_80", "sm_120"];
        for arch in if i == 0 { &archs[..] } else { &archs[i % 3..][..1] } {
            let source = ppo::cuda_source(env::find(name).unwrap(), &network, [1024, 65_536][i % 2]).unwrap();
            let cubin = cuda::compile(name, &source, arch, Math::Fast).unwrap();
            assert!(cubin.starts_with(b"\x7fELF"), "{name} {arch}");
        }
    }
}

#[test]
fn what_has_no_kernel_is_said() {
    let source = |name: &str, network: &NetworkSettings| {
        ppo::cuda_source(env::find(name).unwrap(), network, 1024).unwrap_err().to_string()
    };
    let network = NetworkSettings::default();
    assert!(source("gridworld", &network).contains("env gridworld has no kernel"), "{}", source("gridworld", &network));
    let wide = NetworkSettings { hidden: vec![256, 256], ..network.clone() };
    let message = source("cartpole", &wide);
    assert!(message.contains("[256, 256]: wanted [32, 32] or [64, 64]"), "{message}");
    let message = source("probe_masked", &network);
    assert!(message.contains("no mask"), "{message}");
}

fn algorithm(over: &str) -> Box<dyn Algorithm> {
    let table = config::parse(over, "test").unwrap();
    let config = Config::resolve("ppo", "cartpole", table).unwrap();
    let pool = build_pool(&config);
    build_algorithm(&config, build_env(&config, &pool).unwrap(), pool).unwrap()
}

fn weights(algorithm: &dyn Algorithm) -> Vec<f32> {
    algorithm.policy().unwrap().params.values().to_vec()
}

fn run(algorithm: &mut dyn Algorithm, iterations: usize) -> Report {
    let mut report = Report::new(algorithm.metrics().len());
    for _ in 0..iterations {
        report.begin();
        algorithm.iterate(&mut report);
        assert!(report.failed.is_none() && report.diverged.is_none(), "{:?} {:?}", report.failed, report.diverged);
    }
    report
}

#[test]
#[ignore = "needs a GPU"]
fn cartpole_is_solved_on_a_gpu() {
    for seed in 0..3 {
        let mut ppo = algorithm(&format!("device = \"cuda\"\nseed = {seed}"));
        let report = run(&mut *ppo, 80);
        let mean = report.episodes.mean_return();
        assert!(report.episodes.is_full() && mean >= 475.0, "seed {seed}: {mean}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn runs_repeat_and_resume_to_the_bit_on_a_gpu() {
    // In as many small minibatches as there may be, on networks of 32; as they ship; in large ones.
    let small =
        "device = \"cuda\"\nnum_envs = 256\nnetwork.hidden = [32, 32]\nppo.num_steps = 64\nppo.minibatch_size = 256";
    for over in [
        small,
        "device = \"cuda\"\nseed = 4",
        "device = \"cuda\"\nseed = 4\nnum_envs = 65536\nppo.num_steps = 16\nppo.minibatch_size = 262144",
    ] {
        let mut whole = algorithm(over);
        run(&mut *whole, 6);
        let mut half = algorithm(over);
        run(&mut *half, 3);
        let parts = half.save().unwrap();
        let mut resumed = algorithm(over);
        resumed.load(&parts).unwrap();
        assert_eq!(resumed.steps(), half.steps());
        run(&mut *resumed, 3);
        assert!(weights(&*whole) == weights(&*resumed), "weights after a resume");
        assert!(whole.save().unwrap() == resumed.save().unwrap(), "checkpoints after a resume");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn checkpoints_go_from_device_to_device() {
    let over =
        "num_envs = 256\nprecision = \"bf16\"\nppo.num_steps = 32\nppo.minibatch_size = 2048\nppo.learning_rate = 3e-3";
    let on = |device: &str| algorithm(&format!("device = \"{device}\"\n{over}"));
    let (mut gpu, mut cpu) = (on("cuda"), on("cpu"));
    run(&mut *gpu, 20);
    cpu.load(&gpu.save().unwrap()).unwrap();
    assert!(weights(&*cpu) == weights(&*gpu) && cpu.steps() == gpu.steps());
    let before = run(&mut *cpu, 10).episodes.mean_return();
    gpu.load(&cpu.save().unwrap()).unwrap();
    assert!(weights(&*cpu) == weights(&*gpu) && cpu.steps() == gpu.steps());
    let after = run(&mut *gpu, 60).episodes.mean_return();
    assert!(after > before.min(300.0), "{before} then {after}");
}
