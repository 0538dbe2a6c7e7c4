//! PPO on a GPU. Without one: its kernels compile, and what they do not serve is said. On one (`cargo test --test ppo_cuda --
//! --ignored --test-threads 1`, or this file's program carried there): it learns, repeats its bits, and goes on from its own checkpoints and
//! from those of the CPU.

#[cfg(target_os = "linux")]
#[path = "../../operant-nn/tests/compiled/mod.rs"]
mod compiled;
mod trained;

#[cfg(target_os = "linux")]
use compiled::{ARCHS, compile};
use operant::algo::{Algorithm, NetworkSettings, Report, ppo};
use operant::device::cuda;
use operant::env;
use operant::nn::{Act, Precision};
use operant::run::{Config, Play, Until, evaluate};
use operant::{CATALOGUE, Shipped};
use trained::{algorithm_on, built_among, evaluated, resolved, run, weights};

const SERVED: [&str; 5] = ["cartpole", "mountaincar", "mountaincar_continuous", "pendulum", "acrobot"];

#[cfg(target_os = "linux")]
#[test]
fn every_kernel_compiles() {
    let mut work = Vec::new();
    for (i, name) in SERVED.iter().enumerate() {
        let activation = [Act::Tanh, Act::Relu][i / 2 % 2];
        let network = NetworkSettings { hidden: vec![[64, 32][i % 2]; 2], activation, ..NetworkSettings::default() };
        let settings = ppo::Settings {
            normalize_obs: i % 2 == 1 || i == 2,
            normalize_reward: i > 0 && i < 4,
            ..ppo::Settings::default()
        };
        let (entry, num_envs) = (env::find(name).unwrap(), [1024, 65_536][i % 2]);
        for (j, arch) in ARCHS.into_iter().enumerate() {
            // Each env in other numbers on each architecture, and the usual one in the usual numbers on all.
            let usual = (i == 0 && j > 0).then_some(Precision::Bf16);
            let own = [Precision::Bf16, Precision::F16, Precision::Tf32, Precision::F32][(i + j) % 4];
            for precision in usual.into_iter().chain([own]) {
                for part in [ppo::Part::Collecting, ppo::Part::Learning, ppo::Part::LearningShared] {
                    let text = ppo::cuda_source(entry, &network, &settings, num_envs, precision, part).unwrap();
                    work.push((format!("{name} {precision:?} {part:?}"), arch, text));
                }
            }
        }
    }
    compile(&work);
}

/// Those whose blocks make a gradient together, in 16-bit numbers.
#[cfg(target_os = "linux")]
#[test]
fn every_kernel_of_larger_layers_compiles() {
    let kinds = [
        ("cartpole", 128, Precision::Bf16, ppo::Part::Learning),
        ("cartpole", 128, Precision::F16, ppo::Part::Collecting),
        ("pendulum", 96, Precision::Bf16, ppo::Part::LearningShared),
        ("acrobot", 128, Precision::F16, ppo::Part::LearningShared),
    ];
    let mut work = Vec::new();
    for (name, hidden, precision, part) in kinds {
        let network = NetworkSettings { hidden: vec![hidden; 2], ..NetworkSettings::default() };
        let (entry, settings) = (env::find(name).unwrap(), ppo::Settings::default());
        let text = ppo::cuda_source(entry, &network, &settings, 65_536, precision, part).unwrap();
        work.extend(ARCHS.map(|arch| (format!("{name} {hidden} {precision:?} {part:?}"), arch, text.clone())));
    }
    compile(&work);
}

/// Kernels around and between wide layers, for every kind of numbers and activation.
#[cfg(target_os = "linux")]
#[test]
fn every_kernel_of_wide_networks_compiles() {
    let mut work = Vec::new();
    let kinds = [
        (Precision::Bf16, cuda::Operands::Bf16, Act::Tanh),
        (Precision::Tf32, cuda::Operands::Tf32, Act::Sigmoid),
        (Precision::F32, cuda::Operands::F32, Act::Relu),
        (Precision::F16, cuda::Operands::F16, Act::Tanh),
    ];
    for (i, name) in ["cartpole", "pendulum", "cube2", "probe_masked"].iter().enumerate() {
        let (precision, operands, activation) = kinds[i];
        let network = NetworkSettings { hidden: vec![512, 300], activation, ..NetworkSettings::default() };
        let settings = ppo::Settings { normalize_obs: i == 1, normalize_reward: i == 1, ..ppo::Settings::default() };
        let entry = env::find(name).unwrap();
        let source = |entry, part| ppo::cuda_source(entry, &network, &settings, 1024, precision, part).unwrap();
        let layers = operant::nn::cuda::layers_source(operands, activation).unwrap();
        let host = env::find(["gridworld", "pendulum"][i % 2]).unwrap();
        for text in [source(entry, ppo::Part::Wide), source(host, ppo::Part::Hosted), layers] {
            work.extend(ARCHS.map(|arch| (format!("{name} {precision:?}"), arch, text.clone())));
        }
    }
    compile(&work);
}

#[test]
fn what_no_wide_network_may_have_is_said() {
    let message = |name: &str, network: NetworkSettings| {
        let (entry, settings) = (env::find(name).unwrap(), ppo::Settings::default());
        ppo::cuda_source(entry, &network, &settings, 1024, Precision::Bf16, ppo::Part::Wide).unwrap_err().to_string()
    };
    let wide = NetworkSettings { hidden: vec![256; 2], ..NetworkSettings::default() };
    let memory = NetworkSettings { memory: operant::algo::MemoryName::Lstm, ..wide.clone() };
    assert!(message("cartpole", memory).contains("network.memory (op recurrent) has no kernel"));
    let gelu = NetworkSettings { activation: Act::Gelu, ..wide.clone() };
    assert!(message("cartpole", gelu).contains("activation gelu: on a GPU wanted tanh, relu or sigmoid"));
    let deep = NetworkSettings { hidden: vec![64; 16], ..wide.clone() };
    assert!(message("cartpole", deep).contains("16 layers, more than 15"));
    assert!(message("gridworld", wide).contains("env gridworld has no kernel"));
}

#[test]
fn what_has_no_kernel_is_said() {
    let source = |name: &str, network: &NetworkSettings| {
        let settings = ppo::Settings::default();
        let entry = env::find(name).unwrap();
        ppo::cuda_source(entry, network, &settings, 1024, Precision::Bf16, ppo::Part::Learning).unwrap_err().to_string()
    };
    let network = NetworkSettings::default();
    assert!(source("gridworld", &network).contains("env gridworld has no kernel"), "{}", source("gridworld", &network));
    let wide = NetworkSettings { hidden: vec![256, 256], ..network.clone() };
    let message = source("cartpole", &wide);
    assert!(message.contains("[256, 256]: wanted two layers of 32 or 64, or of 96 or 128 in bf16 or f16"), "{message}");
    let message = source("probe_masked", &network);
    assert!(message.contains("no mask"), "{message}");
}

fn algorithm(over: &str) -> Box<dyn Algorithm> {
    algorithm_on("cartpole", over)
}

fn built(config: &Config) -> Box<dyn Algorithm> {
    built_among(config, 1)
}

/// Adam's means of gradients.
fn means(algorithm: &dyn Algorithm) -> Vec<f32> {
    let params = algorithm.policy().unwrap().params;
    let (method, backend) = (operant::nn::Method::default(), operant::lanes::Backend::fast());
    let mut optimizer = operant::nn::Optimizer::new(method, &params, None, backend).unwrap();
    let parts = algorithm.save().unwrap();
    optimizer.from_bytes(operant::algo::part(&parts, "optimizer.safetensors").unwrap()).unwrap();
    optimizer.moments()[0].to_vec()
}

const WIDE: &str = "device = \"cuda\"\nsteps = 8_000_000\n[network]\nhidden = [512, 512, 512]\n[ppo]\nlearning_rate = 5e-4\nanneal_lr = true\n";

/// By evaluations, 500 on all seeds; and a seed gives the same bits again, also through a checkpoint.
#[test]
#[ignore = "needs a GPU"]
fn a_wide_network_learns_repeats_and_goes_on() {
    for seed in 1..=3 {
        let over = format!("seed = {seed}\n{WIDE}");
        let mut ppo = algorithm(&over);
        run(&mut *ppo, 4);
        let middle = ppo.save().unwrap();
        run(&mut *ppo, 4);
        let at_eight = weights(&*ppo);
        let mut again = algorithm(&over);
        again.load(&middle).unwrap();
        run(&mut *again, 4);
        assert!(at_eight == weights(&*again), "seed {seed}: other bits after a checkpoint");
        let mut twin = algorithm(&over);
        run(&mut *twin, 8);
        assert!(at_eight == weights(&*twin), "seed {seed}: other bits in a second run");
        run(&mut *ppo, 115);
        let played = evaluated(&*ppo, "cartpole", seed);
        let device = operant::device::Device::named("cuda").unwrap();
        let play = Play { episodes: 100, seed, deterministic: true, device, ..Play::default() };
        let there = evaluate(&ppo.policy().unwrap(), env::find("cartpole").unwrap(), &[], &play, None).unwrap().mean();
        eprintln!("wide {seed}: evaluation {played:.1} on the CPU, {there:.1} on the GPU, {} steps", ppo.steps());
        assert!(played == 500.0 && there == 500.0, "seed {seed}: {played} {there}");
    }
}

/// Gradients of one update, by Adam's means: kernels of small networks, which the CPU's plan was compared with, against layer by
/// layer. A 65th unit without weights changes nothing and stays as it is, but is no network for the former.
#[test]
#[ignore = "needs a GPU"]
fn layer_by_layer_has_the_gradients_of_the_small_kernels() {
    for (name, precision, most) in
        [("cartpole", "f32", 1e-3), ("pendulum", "f32", 1e-3), ("acrobot", "tf32", 2e-2), ("cartpole", "bf16", 6e-2)]
    {
        // Steps enough that episodes are truncated twice in Pendulum.
        let over = |hidden: &str| {
            format!(
                "device = \"cuda\"\nprecision = \"{precision}\"\nnum_envs = 64\n[network]\nhidden = {hidden}\n\
                 activation = \"tanh\"\n[ppo]\nnum_steps = 512\nminibatch_size = 32768\nupdate_epochs = 1\nmax_grad_norm = 0.0\n\
                 normalize_obs = false\nnormalize_reward = false\n"
            )
        };
        let mut small = algorithm_on(name, &over("[64, 64]"));
        let mut wide = algorithm_on(name, &over("[64, 65]"));
        let from = small.policy().unwrap();
        let mut to = wide.policy().unwrap();
        let specs = to.params.specs().to_vec();
        let source = |name: &str| from.params.specs().iter().find(|spec| spec.name == name).unwrap().clone();
        let columns = |shape: &[usize]| shape.get(1).copied().unwrap_or(1);
        // Where number i of a tensor of the small network lies in the wide one.
        let place = |spec: &operant::nn::ParamSpec, i: usize, width: usize| {
            spec.offset + i / width * columns(&spec.shape) + i % width
        };
        to.params.values_mut().fill(0.0);
        for spec in &specs {
            let old = source(&spec.name);
            let width = columns(&old.shape);
            for i in 0..old.count() {
                let value = from.params.values()[old.offset + i];
                to.params.values_mut()[place(spec, i, width)] = value;
            }
        }
        wide.adopt(&to).unwrap();
        let [wanted, got] = [&mut small, &mut wide].map(|ppo| {
            run(&mut **ppo, 1);
            means(&**ppo)
        });
        let whole = wanted.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        assert!(whole > 0.0);
        let mut counted = 0.0;
        for spec in &specs {
            let old = source(&spec.name);
            let width = columns(&old.shape);
            let (mut error, mut size) = (0.0, 0.0);
            for i in 0..old.count() {
                let (x, y) = (f64::from(wanted[old.offset + i]), f64::from(got[place(spec, i, width)]));
                (error, size) = (error + (x - y).powi(2), size + x * x);
                counted += y * y;
            }
            let (error, size) = (error.sqrt(), size.sqrt());
            eprintln!("{name} {precision} {}: off by {:.1e}", spec.name, error / size);
            assert!(
                error < most * size + most * 1e-2 * whole,
                "{name} {precision} {}: {error:.2e} of {size:.2e}",
                spec.name
            );
        }
        // Nothing beside: the gradient of the 65th unit is 0.
        let all = got.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        assert!((all - counted).abs() <= 1e-9 * all, "{name} {precision}: {all} {counted}");
    }
}

/// Envs that the CPU steps in turns teach what the same envs on the GPU do, but for roundings of the env, through truncations and
/// normalised observations and rewards.
#[test]
#[ignore = "needs a GPU"]
fn staged_envs_have_the_gradients_of_those_on_the_gpu() {
    let cases =
        [("cartpole", false), ("pendulum", false), ("pendulum", true), ("mountaincar", true), ("probe_masked", false)];
    for (name, normalised) in cases {
        let over = |stepped: &str| {
            format!(
                "device = \"cuda\"\nenv_device = \"{stepped}\"\nprecision = \"f32\"\nnum_envs = 96\n[network]\nhidden = [96, 40]\n\
                 [ppo]\nnum_steps = 256\nminibatch_size = 24576\nupdate_epochs = 1\nmax_grad_norm = 0.0\n\
                 normalize_obs = {normalised}\nnormalize_reward = {normalised}\n"
            )
        };
        let [there, here] = ["auto", "cpu"].map(|stepped| {
            let mut ppo = algorithm_on(name, &over(stepped));
            let before = weights(&*ppo);
            let report = run(&mut *ppo, 1);
            let change: Vec<f32> = weights(&*ppo).iter().zip(&before).map(|(x, y)| x - y).collect();
            assert!(change.iter().any(|x| *x != 0.0));
            (means(&*ppo), report.episodes.count())
        });
        let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let error = norm(&mut there.0.iter().zip(&here.0).map(|(x, y)| x - y)) / norm(&mut there.0.iter().copied());
        eprintln!("staged {name} {normalised}: gradient off by {error:.1e}, {} and {} episodes", there.1, here.1);
        assert!(error < 2e-2, "{name}: {error:.2e}");
        assert_eq!(there.1, here.1, "{name}: episodes");
    }
}

/// An env without kernels is learned on the GPU; bits repeat, also through a checkpoint, and the CPU goes on from it.
#[test]
#[ignore = "needs a GPU"]
fn an_env_of_the_host_is_learned_on_a_gpu() {
    let over = "device = \"cuda\"\nsteps = 2_000_000\n";
    let mut ppo = algorithm_on("gridworld", over);
    run(&mut *ppo, 4);
    let middle = ppo.save().unwrap();
    run(&mut *ppo, 4);
    let at_eight = weights(&*ppo);
    let mut again = algorithm_on("gridworld", over);
    again.load(&middle).unwrap();
    run(&mut *again, 4);
    assert!(at_eight == weights(&*again), "other bits after a checkpoint");
    let mut cpu = algorithm_on("gridworld", &over.replace("cuda", "cpu"));
    cpu.load(&middle).unwrap();
    run(&mut *cpu, 1);
    again.load(&cpu.save().unwrap()).unwrap();
    run(&mut *again, 1);
    run(&mut *ppo, 150);
    let (played, wanted) =
        (evaluated(&*ppo, "gridworld", 1), env::find("gridworld").unwrap().spec().solved_at.unwrap());
    eprintln!("gridworld: evaluation {played:.3} (solved: {wanted}), {} steps", ppo.steps());
    assert!(played >= f64::from(wanted), "{played}");
}

/// What the GPU saved, the CPU goes on from, and the reverse.
#[test]
#[ignore = "needs a GPU"]
fn wide_checkpoints_go_on_between_devices() {
    let small = "device = \"cuda\"\nprecision = \"bf16\"\nnum_envs = 64\n[network]\nhidden = [96, 40]\n\
                 [ppo]\nnum_steps = 32\nminibatch_size = 512\n";
    let mut gpu = algorithm(small);
    run(&mut *gpu, 2);
    let mut cpu = algorithm(&small.replace("cuda", "cpu").replace("bf16", "f32"));
    cpu.load(&gpu.save().unwrap()).unwrap();
    assert_eq!(weights(&*gpu), weights(&*cpu));
    run(&mut *cpu, 1);
    gpu.load(&cpu.save().unwrap()).unwrap();
    assert_eq!(weights(&*gpu), weights(&*cpu));
    run(&mut *gpu, 1);
    assert_eq!(gpu.steps(), 4 * 64 * 32);
}

/// As many runs side by side as a batch of seeds has, each in a stream of its own with a part of the GPU.
#[test]
#[ignore = "needs a GPU"]
fn runs_side_by_side_have_the_bits_of_each_alone() {
    let over = |seed: usize| {
        let more = match seed % 4 {
            0 => "",
            1 => "ppo.normalize_obs = true\nppo.normalize_reward = true",
            2 if seed > 4 => "network.hidden = [128, 128]",
            2 => "precision = \"tf32\"\nnetwork.hidden = [32, 32]",
            _ => "num_envs = 64\nnetwork.hidden = [96, 40]\nppo.num_steps = 32\nppo.minibatch_size = 512",
        };
        resolved("cartpole", &format!("device = \"cuda\"\nseed = {seed}\n{more}"))
    };
    for at_once in [3, 8] {
        let side_by_side: Vec<Vec<f32>> = std::thread::scope(|scope| {
            let train = |seed: usize| {
                let mut ppo = built_among(&over(seed), at_once);
                run(&mut *ppo, 12);
                weights(&*ppo)
            };
            let threads: Vec<_> = (0..at_once).map(|seed| scope.spawn(move || train(seed))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (seed, got) in side_by_side.iter().enumerate() {
            let mut alone = built(&over(seed));
            run(&mut *alone, 12);
            assert!(*got == weights(&*alone), "seed {seed} of {at_once}: other bits than alone");
        }
    }
}

/// With a policy one iteration old CartPole is still learned, and bits repeat, also through a checkpoint.
#[test]
#[ignore = "needs a GPU"]
fn rollouts_played_beside_learning_teach_as_well_and_repeat() {
    for seed in 1..=3 {
        // Old policies ask for smaller steps: at the shipped rate some runs leave 500 again.
        let over = format!(
            "device = \"cuda\"\nseed = {seed}\nsteps = 10_000_000\nppo.overlap = true\nppo.learning_rate = 2e-3\nppo.anneal_lr = true"
        );
        let mut ppo = algorithm(&over);
        run(&mut *ppo, 5);
        let middle = ppo.save().unwrap();
        run(&mut *ppo, 5);
        let at_ten = ppo.save().unwrap();
        let mut resumed = algorithm(&over);
        resumed.load(&middle).unwrap();
        run(&mut *resumed, 5);
        assert!(at_ten == resumed.save().unwrap(), "seed {seed}: another checkpoint after a resume");
        let mut twin = algorithm(&over);
        run(&mut *twin, 10);
        assert!(at_ten == twin.save().unwrap(), "seed {seed}: another checkpoint in a second run");
        let mut plain = algorithm(&over.replace("overlap = true", "overlap = false"));
        run(&mut *plain, 10);
        assert!(weights(&*plain) != weights(&*twin), "the policy is one iteration old");
        run(&mut *ppo, 143);
        let played = evaluated(&*ppo, "cartpole", seed);
        eprintln!("overlap {seed}: evaluation {played:.1}, {} steps", ppo.steps());
        assert!(played == 500.0, "seed {seed}: {played}");
    }
}

/// The same for networks that are run layer by layer, whose first rollout is that of a run without; also with masks of actions.
#[test]
#[ignore = "needs a GPU"]
fn rollouts_of_wide_networks_are_played_beside_learning() {
    for env in ["cartpole", "pendulum", "probe_masked"] {
        let over = "device = \"cuda\"\nnetwork.hidden = [256, 256]\nppo.overlap = true\nppo.learning_rate = 3e-4";
        let new = |over: &str| algorithm_on(env, over);
        let (mut ppo, mut plain) = (new(over), new(&over.replace("overlap = true", "overlap = false")));
        run(&mut *ppo, 1);
        run(&mut *plain, 1);
        assert!(weights(&*ppo) == weights(&*plain), "{env}: the first rollout is played by the first weights");
        run(&mut *ppo, 4);
        run(&mut *plain, 4);
        assert!(weights(&*ppo) != weights(&*plain), "{env}: the policy is one iteration old");
        let middle = ppo.save().unwrap();
        run(&mut *ppo, 5);
        let at_ten = ppo.save().unwrap();
        let mut resumed = new(over);
        resumed.load(&middle).unwrap();
        run(&mut *resumed, 5);
        assert!(at_ten == resumed.save().unwrap(), "{env}: another checkpoint after a resume");
        let mut twin = new(over);
        run(&mut *twin, 10);
        assert!(at_ten == twin.save().unwrap(), "{env}: another checkpoint in a second run");
    }
    let over = "device = \"cuda\"\nseed = 1\nnetwork.hidden = [256, 256]\nppo.overlap = true\nppo.learning_rate = 3e-4";
    let mut ppo = algorithm(over);
    run(&mut *ppo, 120);
    let played = evaluated(&*ppo, "cartpole", 1);
    assert!(played > 475.0, "{played}");
}

#[test]
#[ignore = "needs a GPU"]
fn half_precision_learns_on_a_gpu() {
    for (hidden, rate) in [("[64, 64]", "3e-3"), ("[96, 96]", "1e-3"), ("[256, 256]", "3e-4")] {
        for seed in 1..=3 {
            let over = format!(
                "device = \"cuda\"\nprecision = \"f16\"\nseed = {seed}\nnetwork.hidden = {hidden}\nppo.learning_rate = {rate}"
            );
            let mut ppo = algorithm(&over);
            run(&mut *ppo, 100);
            let played = evaluated(&*ppo, "cartpole", seed);
            eprintln!("f16 {hidden} {seed}: evaluation {played:.1}, {} steps", ppo.steps());
            assert!(played == 500.0, "{hidden} seed {seed}: {played}");
        }
    }
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

/// By evaluations, 500 on all seeds, where a block makes a gradient together.
#[test]
#[ignore = "needs a GPU"]
fn larger_layers_learn_on_a_gpu() {
    for seed in 1..=3 {
        let over = "steps = 10_000_000\nnetwork.hidden = [128, 128]\nppo.learning_rate = 1.5e-3\nppo.anneal_lr = true";
        let mut ppo = algorithm(&format!("device = \"cuda\"\nseed = {seed}\n{over}"));
        run(&mut *ppo, 153);
        let played = evaluated(&*ppo, "cartpole", seed);
        eprintln!("128 {seed}: evaluation {played:.1}, {} steps", ppo.steps());
        assert!(played == 500.0, "seed {seed}: {played}");
    }
}

/// Every env that ships settings for a GPU is solved by them: the mean return over the last 100 episodes, and that of an
/// evaluation with the most probable actions on the CPU.
#[test]
#[ignore = "needs a GPU"]
fn shipped_settings_solve_their_envs_on_a_gpu() {
    for Shipped { env: name, .. } in CATALOGUE.shipped.iter().filter(|shipped| shipped.algo == "ppo/cuda") {
        let goal = f64::from(env::find(name).unwrap().spec().solved_at.unwrap());
        for seed in 0..3 {
            let config = resolved(name, &format!("device = \"cuda\"\nseed = {seed}"));
            let mut ppo = built(&config);
            let mut report = Report::new(ppo.metrics().len());
            let start = std::time::Instant::now();
            let least = if config.settings.until == Until::Steps { config.settings.steps } else { 0 };
            let solved = |report: &Report| report.episodes.is_full() && report.episodes.mean_return() >= goal;
            while ppo.steps() < least || !solved(&report) {
                report.begin();
                ppo.iterate(&mut report);
                assert!(report.failed.is_none() && report.diverged.is_none(), "{name}: {report:?}");
                assert!(start.elapsed().as_secs() < 20, "{name} {seed}: {}", report.episodes.mean_return());
            }
            let played = evaluated(&*ppo, name, seed);
            let (steps, seconds) = (ppo.steps(), start.elapsed().as_secs_f64());
            eprintln!("{name} {seed}: {steps} steps, {seconds:.3} s, evaluation {played:.1}");
            assert!(played >= goal, "{name} {seed}: evaluation {played}");
            assert!(report.episodes.count() >= steps / 2000, "{name}: episodes of all envs are counted");
        }
    }
}

/// What the kernels keep of observations and returns is what a loop over the rows would.
#[test]
#[ignore = "needs a GPU"]
fn statistics_on_a_gpu_are_those_of_the_cpu() {
    let over = "num_envs = 1024\nprecision = \"bf16\"\nppo.num_steps = 32\nppo.minibatch_size = 8192\n\
                ppo.learning_rate = 1e-9\nppo.normalize_obs = true\nppo.normalize_reward = true";
    for name in ["pendulum", "mountaincar"] {
        let on = |device: &str| algorithm_on(name, &format!("device = \"{device}\"\n{over}"));
        let (mut gpu, mut cpu) = (on("cuda"), on("cpu"));
        run(&mut *gpu, 8);
        run(&mut *cpu, 8);
        let numbers = |algorithm: &dyn Algorithm| algorithm.policy().unwrap().normaliser.unwrap();
        let (got, wanted) = (numbers(&*gpu), numbers(&*cpu));
        // The same policy with other random numbers: means and variances agree within their errors.
        assert_eq!(got.count(), wanted.count(), "{name}");
        for k in 0..wanted.mean().len() {
            let (a, b) = (got.variance(k).sqrt(), wanted.variance(k).sqrt());
            let apart = (got.mean()[k] - wanted.mean()[k]).abs();
            assert!(apart < 0.1 * b && (a / b - 1.0).abs() < 0.1, "{name} {k}: {apart} {a} {b}");
        }
        let scale = |algorithm: &dyn Algorithm| -> Vec<f64> {
            let parts = algorithm.save().unwrap();
            let json: serde_json::Value = serde_json::from_slice(&parts["ppo.json"]).unwrap();
            let bits = json["return_scale"].as_array().unwrap().iter();
            bits.take(3).map(|bits| f64::from_bits(bits.as_u64().unwrap())).collect()
        };
        let (got, wanted) = (scale(&*gpu), scale(&*cpu));
        assert_eq!(got[0], wanted[0], "{name}");
        assert!((got[1] / wanted[1] - 1.0).abs() < 0.1, "{name}: {got:?} {wanted:?}");
        assert!((got[2] / wanted[2] - 1.0).abs() < 0.2, "{name}: {got:?} {wanted:?}");
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
        "device = \"cuda\"\nppo.normalize_obs = true\nppo.normalize_reward = true",
        "device = \"cuda\"\nnetwork.hidden = [128, 128]\nppo.normalize_obs = true",
        "device = \"cuda\"\nnetwork.hidden = [96, 96]\nprecision = \"f16\"\nppo.overlap = true",
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
        // A run that has gone on from a checkpoint goes on from it again: its next report is that iteration's, not the last one it had.
        let once = run(&mut *half, 1).values;
        half.load(&parts).unwrap();
        assert!(
            run(&mut *half, 1).values[..5] == once[..5],
            "the report after a checkpoint was loaded into a live run"
        );
    }
}

#[test]
#[ignore = "needs a GPU"]
fn checkpoints_go_from_device_to_device() {
    let over =
        "num_envs = 256\nprecision = \"bf16\"\nppo.num_steps = 32\nppo.minibatch_size = 2048\nppo.learning_rate = 3e-3";
    for normalised in ["false", "true"] {
        let normalised = format!("ppo.normalize_obs = {normalised}\nppo.normalize_reward = {normalised}");
        go_from_device_to_device(|device| algorithm(&format!("device = \"{device}\"\n{over}\n{normalised}")));
    }
}

fn go_from_device_to_device(on: impl Fn(&str) -> Box<dyn Algorithm>) {
    let (mut gpu, mut cpu) = (on("cuda"), on("cpu"));
    run(&mut *gpu, 20);
    cpu.load(&gpu.save().unwrap()).unwrap();
    assert!(weights(&*cpu) == weights(&*gpu) && cpu.steps() == gpu.steps());
    let normaliser = |algorithm: &dyn Algorithm| algorithm.policy().unwrap().normaliser.map(|seen| seen.to_numbers());
    assert_eq!(normaliser(&*cpu), normaliser(&*gpu));
    let before = run(&mut *cpu, 10).episodes.mean_return();
    gpu.load(&cpu.save().unwrap()).unwrap();
    assert!(weights(&*cpu) == weights(&*gpu) && cpu.steps() == gpu.steps());
    assert_eq!(normaliser(&*cpu), normaliser(&*gpu));
    assert_eq!(cpu.save().unwrap()["ppo.json"], gpu.save().unwrap()["ppo.json"]);
    let after = run(&mut *gpu, 60).episodes.mean_return();
    assert!(after > before.min(300.0), "{before} then {after}");
}
