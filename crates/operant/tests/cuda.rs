//! CUDA. Without a GPU: every kernel of the registry compiles (NVRTC comes from PyPI, see `cargo xtask test`), and what is
//! missing is said. On a GPU (`cargo test --test cuda -- --ignored --test-threads=1`, or this file's program carried there): strict mode
//! has the CPU's bits, fast mode stays near, and rollouts, graphs, statistics and saved states agree with steps.

mod drawn;

use drawn::drawn;
use operant::Error;
use operant::device::Device;
use operant::device::cuda::{self, Buffer, Element, Gpu, Graph, HostBuffer, Report};
use operant::env::emit::Shape;
use operant::env::{
    Actions, ActionsBuf, AutoReset, CudaVec, DeviceActions, DeviceRow, Door, Ends, Entry, Options, RowBuf, Seeds, Spec,
    VARIANTS, VecEnv, all,
};
use operant::lanes::rng::HostRng;
use operant::lanes::{Backend, Math, Width};
use std::sync::{Arc, OnceLock};

const MODES: [AutoReset; 3] = [AutoReset::SameStep, AutoReset::NextStep, AutoReset::Disabled];

fn over_lanes() -> impl Iterator<Item = &'static Entry> {
    all().filter(|entry| entry.door() == Door::Lanes).chain(VARIANTS)
}

fn shape(entry: &Entry, autoreset: AutoReset, block: u32) -> Shape {
    Shape { time_limit: entry.spec().time_limit, autoreset, block }
}

#[cfg(target_os = "linux")]
#[test]
fn every_kernel_compiles() {
    if let Err(error) = cuda::compile("nothing", "", "sm_90", Math::Strict)
        && error.to_string().contains("not found")
    {
        panic!("{error}; cargo xtask test installs it, or: pip install nvidia-cuda-nvrtc");
    }
    let mut work = Vec::new();
    for entry in over_lanes() {
        for arch in ["sm_80", "sm_90", "sm_120"] {
            for math in [Math::Strict, Math::Fast] {
                work.push((entry, arch, math, AutoReset::SameStep, 128));
            }
            work.push((entry, arch, Math::Strict, AutoReset::NextStep, 64));
            work.push((entry, arch, Math::Strict, AutoReset::Disabled, 64));
        }
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..operant::device::threads_available().min(8) {
            scope.spawn(|| {
                while let Some(&(entry, arch, math, autoreset, block)) =
                    work.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let source = entry.cuda_source(&[], &shape(entry, autoreset, block)).unwrap().unwrap();
                    let cubin = cuda::compile(entry.spec().name, &source, arch, math).unwrap();
                    assert!(cubin.starts_with(b"\x7fELF"));
                }
            });
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_kernel_that_does_not_compile_says_where() {
    let source = "extern \"C\" __global__ void f() { nonsense; }";
    let message = cuda::compile("walk", source, "sm_90", Math::Strict).unwrap_err().to_string();
    assert!(message.contains("kernels of walk for sm_90 do not compile") && message.contains("nonsense"), "{message}");
    let message = cuda::compile("walk", "", "sm_1", Math::Strict).unwrap_err().to_string();
    assert!(message.contains("sm_1"), "{message}");
}

/// The env's own functions are in the snapshots of `emission.rs`; this is what the adapter is told.
#[test]
fn printed_kernels_are_as_they_were() {
    for name in ["cartpole", "pendulum"] {
        let entry = operant::env::find(name).unwrap();
        let source = entry.cuda_source(&[], &shape(entry, AutoReset::SameStep, 128)).unwrap().unwrap();
        let (own, adapter) = source.split_once("/* N envs on a GPU").unwrap();
        let (_, told) = own.split_once("#define STATE").unwrap();
        assert!(adapter.contains("rollout(const RolloutArgs a)"));
        insta::assert_snapshot!(format!("cuda_{name}"), format!("#define STATE{told}"));
    }
    let masked = operant::env::find("probe_masked").unwrap();
    let source = masked.cuda_source(&[], &shape(masked, AutoReset::SameStep, 64)).unwrap().unwrap();
    assert!(source.contains("#define DRAWS 1") && source.contains("#define CHOICES 4"));
}

#[test]
fn host_envs_have_no_kernel() {
    let grid = operant::env::find("gridworld").unwrap();
    assert_eq!(grid.cuda_source(&[], &shape(grid, AutoReset::SameStep, 64)), Ok(None));
}

#[test]
fn what_is_missing_is_said() {
    let message = Device::named("cud").unwrap_err().to_string();
    assert!(message.contains("unknown device \"cud\"; did you mean"), "{message}");
    assert!(matches!(Device::named("cuda:x"), Err(Error::Unknown(_))));
    assert!(matches!(Device::named("cpu"), Ok(Device::Cpu)));
    let report = Report::look();
    assert_eq!(report.usable(), report.problems.is_empty());
    match Device::named("cuda") {
        Ok(device) => assert!(!report.gpus.is_empty() && device.name() == "cuda:0"),
        Err(error) => {
            let message = error.to_string();
            assert!(matches!(error, Error::Device(_)) && message.ends_with("(operant doctor)"), "{message}");
            assert!(report.problems.iter().any(|problem| message.contains(problem.as_str())), "{message}\n{report}");
        }
    }
    let many = Device::named("cuda:4096").unwrap_err().to_string();
    assert!(many.contains("cuda cannot be used here"), "{many}");
    let json = report.to_json();
    for key in ["usable", "problems", "gpus", "kernel_cache"] {
        assert!(!json[key].is_null() || key == "kernel_cache", "{key}");
    }
    for library in ["driver", "nvrtc", "cublaslt", "cudnn"] {
        let part = &json["libraries"][library];
        assert_eq!(part["found"].as_bool(), Some(!part["version"].is_null()), "{library}");
    }
}

// From here on a GPU is needed.

fn gpu() -> Arc<Gpu> {
    static GPU: OnceLock<Arc<Gpu>> = OnceLock::new();
    GPU.get_or_init(|| Gpu::open(0).unwrap()).clone()
}

fn options(num_envs: usize, math: Math) -> Options {
    Options { backend: Backend::new(Width::Auto, math), ..Options::new(num_envs) }
}

fn on_gpu(options: &Options) -> Options {
    Options { device: Device::Cuda(gpu()), ..options.clone() }
}

/// The first difference between two rows in bits, by name and env.
fn difference(a: &RowBuf, b: &RowBuf, num_envs: usize) -> Option<String> {
    fn first<T>(name: &str, a: &[T], b: &[T], num_envs: usize, word: fn(&T) -> u32) -> Option<String> {
        assert_eq!(a.len(), b.len());
        let at = (0..a.len()).find(|&i| word(&a[i]) != word(&b[i]))?;
        let env = at / (a.len() / num_envs).max(1);
        Some(format!("{name} of env {env}: {:08x} on the CPU, {:08x} on the GPU", word(&a[at]), word(&b[at])))
    }
    let float = |x: &f32| x.to_bits();
    first("obs", &a.obs, &b.obs, num_envs, float)
        .or_else(|| first("reward", &a.reward, &b.reward, num_envs, float))
        .or_else(|| first("terminated", &a.terminated, &b.terminated, num_envs, |&x| u32::from(x)))
        .or_else(|| first("truncated", &a.truncated, &b.truncated, num_envs, |&x| u32::from(x)))
        .or_else(|| first("final_obs", &a.final_obs, &b.final_obs, num_envs, float))
        .or_else(|| first("episode_return", &a.episode_return, &b.episode_return, num_envs, float))
        .or_else(|| first("episode_length", &a.episode_length, &b.episode_length, num_envs, |&x| x as u32))
        .or_else(|| first("legal", &a.legal, &b.legal, num_envs, |&x| u32::from(x)))
}

/// Does the same with every env that has kernels, each in a thread: compilers and the host's side take most of the time.
fn with_each(work: impl Fn(&'static Entry) + Sync) {
    std::thread::scope(|scope| {
        let work = &work;
        over_lanes().for_each(|entry| drop(scope.spawn(move || work(entry))));
    });
}

/// Steps both through the host, comparing every row and at last everything that is saved.
fn compare(entry: &Entry, options: &Options, steps: usize) {
    let (name, n) = (entry.spec().name, options.num_envs);
    let mut cpu = entry.build(&[], options).unwrap();
    let mut gpu = entry.build(&[], &on_gpu(options)).unwrap();
    let spec = cpu.spec().clone();
    let (mut a, mut b) = (RowBuf::new(&spec, n), RowBuf::new(&spec, n));
    let seeds: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    cpu.reset(Seeds::Each(&seeds), None, a.row());
    gpu.reset(Seeds::Each(&seeds), None, b.row());
    assert_eq!(difference(&a, &b, n), None, "{name} after reset");
    let mut rng = HostRng::new(5, u32::MAX, 0, 0);
    for t in 0..steps {
        let actions = ActionsBuf::random(&spec, n, &mut rng);
        cpu.step(actions.actions(), a.row());
        gpu.step(actions.actions(), b.row());
        assert_eq!(gpu.failure(), None);
        assert_eq!(difference(&a, &b, n), None, "{name}, {:?}, step {t}", options.autoreset);
        if t % 100 == 50 {
            let which: Vec<u8> = (0..n).map(|i| u8::from(i % 7 == t % 5)).collect();
            cpu.reset(Seeds::Keep, Some(&which), a.row());
            gpu.reset(Seeds::Keep, Some(&which), b.row());
            assert_eq!(difference(&a, &b, n), None, "{name} after a reset of some");
        }
    }
    assert!(cpu.save() == gpu.save(), "{name}: saved states differ");
}

#[test]
#[ignore = "needs a GPU"]
fn strict_mode_has_the_bits_of_the_cpu() {
    with_each(|entry| {
        compare(entry, &options(8192, Math::Strict), 1000);
    });
}

#[test]
#[ignore = "needs a GPU"]
fn every_mode_and_odd_counts_have_the_bits_of_the_cpu() {
    with_each(|entry| {
        for autoreset in MODES {
            for (num_envs, limit) in [(1, None), (33, Some(Some(17))), (1001, Some(None))] {
                let options =
                    Options { autoreset, first_env: 12_345, time_limit: limit, ..options(num_envs, Math::Strict) };
                compare(entry, &options, 230);
            }
        }
    });
}

/// Envs so many that blocks list what ended in them, the last of which is not full.
#[test]
#[ignore = "needs a GPU"]
fn many_envs_have_the_bits_of_the_cpu() {
    with_each(|entry| {
        for autoreset in MODES {
            compare(entry, &Options { autoreset, ..options(50_001, Math::Strict) }, 40);
        }
    });
}

/// Rewards that a parameter makes constant or not, in the middle of episodes.
#[test]
#[ignore = "needs a GPU"]
fn returns_go_on_when_a_parameter_changes_rewards() {
    let entry = operant::env::find("cartpole").unwrap();
    let options = options(777, Math::Strict);
    let mut cpu = entry.build(&[], &options).unwrap();
    let mut gpu = entry.build(&[], &on_gpu(&options)).unwrap();
    let spec = cpu.spec().clone();
    let (mut a, mut b) = (RowBuf::new(&spec, 777), RowBuf::new(&spec, 777));
    cpu.reset(Seeds::One(6), None, a.row());
    gpu.reset(Seeds::One(6), None, b.row());
    let mut rng = HostRng::new(3, u32::MAX, 0, 0);
    for i in 0..120 {
        if i % 10 == 9 {
            let value = f64::from(i / 10 % 2);
            cpu.set_param("sutton_barto_reward", value).unwrap();
            gpu.set_param("sutton_barto_reward", value).unwrap();
        }
        let actions = ActionsBuf::random(&spec, 777, &mut rng);
        cpu.step(actions.actions(), a.row());
        gpu.step(actions.actions(), b.row());
        assert_eq!(difference(&a, &b, 777), None, "step {i}");
        assert!(cpu.save() == gpu.save(), "step {i}");
    }
}

fn vec_on_gpu(envs: &mut Box<dyn VecEnv>) -> &mut CudaVec {
    envs.on_gpu().expect("envs on the GPU")
}

#[test]
#[ignore = "needs a GPU"]
fn rollouts_and_statistics_agree_with_steps() {
    with_each(|entry| {
        for autoreset in MODES {
            for (num_envs, horizons) in [(1000, [40, 7, 33]), (8191, [100, 1, 99])] {
                let options = Options { autoreset, first_env: 77, ..options(num_envs, Math::Strict) };
                let mut cpu = entry.build(&[], &options).unwrap();
                let mut gpu_envs = entry.build(&[], &on_gpu(&options)).unwrap();
                let spec = cpu.spec().clone();
                let (mut a, mut b) = (RowBuf::new(&spec, num_envs), RowBuf::new(&spec, num_envs));
                cpu.reset(Seeds::One(3), None, a.row());
                gpu_envs.reset(Seeds::One(3), None, b.row());
                let envs = vec_on_gpu(&mut gpu_envs);
                let actions = drawn(&spec, 9, 77, num_envs, horizons.iter().sum());
                let (mut first, mut episodes, mut length, mut returned) = (0, 0, 0, 0.0);
                for horizon in horizons {
                    let rows = DeviceRow::new(&gpu(), &spec, num_envs, horizon, Ends::Columns).unwrap();
                    envs.rollout(9, first as u32, &rows).unwrap();
                    // What no episode's end writes is zero in a fresh rollout.
                    for t in 0..horizon {
                        let mut a = RowBuf::new(&spec, num_envs);
                        cpu.step(actions[first + t].actions(), a.row());
                        rows.download(t, &mut b).unwrap();
                        let name = spec.name;
                        assert_eq!(difference(&a, &b, num_envs), None, "{name}, {autoreset:?}, row {t} of {horizon}");
                        for env in 0..num_envs {
                            if a.terminated[env] | a.truncated[env] != 0 {
                                episodes += 1;
                                length += a.episode_length[env] as u64;
                                returned +=
                                    (f64::from(a.episode_return[env]) * 1_048_576.0).round_ties_even() / 1_048_576.0;
                            }
                        }
                    }
                    first += horizon;
                }
                let totals = envs.take_totals().unwrap();
                assert_eq!((totals.episodes, totals.length), (episodes, length), "{}", spec.name);
                assert!(
                    (totals.returned - returned).abs() <= 1e-9 * returned.abs() + 1e-6,
                    "{} {returned}",
                    totals.returned
                );
                assert_eq!(envs.take_totals().unwrap().episodes, 0);
                assert!(cpu.save() == gpu_envs.save(), "{}: saved states differ", spec.name);
            }
        }
    });
}

/// Twenty batches of actions.
fn buffers<T: Element>(spec: &Spec, n: usize) -> Vec<Buffer<T>> {
    (0..20).map(|_| Buffer::new(&gpu(), n * spec.action.dims(), "actions", "num_envs").unwrap()).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn graphs_of_steps_agree_with_steps_and_repeat() {
    for entry in over_lanes() {
        let n = 4096;
        let options = options(n, Math::Strict);
        let mut cpu = entry.build(&[], &options).unwrap();
        let spec = cpu.spec().clone();
        let mut rng = HostRng::new(1, u32::MAX, 0, 0);
        let batches: Vec<ActionsBuf> = (0..20).map(|_| ActionsBuf::random(&spec, n, &mut rng)).collect();
        let mut expected = RowBuf::new(&spec, n);
        cpu.reset(Seeds::One(4), None, expected.row());
        for i in 0..60 {
            cpu.step(batches[i % 20].actions(), expected.row());
        }
        let saved = cpu.save();
        for kind in 0..3 {
            let mut envs = entry.build(&[], &on_gpu(&options)).unwrap();
            let mut got = RowBuf::new(&spec, n);
            envs.reset(Seeds::One(4), None, got.row());
            // Columns: ends of all steps stay, as on the CPU.
            let row = DeviceRow::new(&gpu(), &spec, n, 1, Ends::Columns).unwrap();
            let (bytes, words, longs) = (buffers::<u8>(&spec, n), buffers::<i32>(&spec, n), buffers::<i64>(&spec, n));
            let (floats, doubles) = (buffers::<f32>(&spec, n), buffers::<f64>(&spec, n));
            for (i, batch) in batches.iter().enumerate() {
                match batch {
                    ActionsBuf::Choices(a) => {
                        bytes[i].upload(&a.iter().map(|&x| x as u8).collect::<Vec<_>>()).unwrap();
                        words[i].upload(a).unwrap();
                        longs[i].upload(&a.iter().map(|&x| i64::from(x)).collect::<Vec<_>>()).unwrap();
                    }
                    ActionsBuf::Numbers(a) => {
                        floats[i].upload(a).unwrap();
                        doubles[i].upload(&a.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()).unwrap();
                    }
                }
            }
            let discrete = matches!(batches[0], ActionsBuf::Choices(_));
            let envs_on_gpu = vec_on_gpu(&mut envs);
            let graph = Graph::record(&gpu(), || {
                (0..20).try_for_each(|i| {
                    let actions = match (discrete, kind) {
                        (true, 0) => DeviceActions::U8(&bytes[i]),
                        (true, 1) => DeviceActions::I32(&words[i]),
                        (true, _) => DeviceActions::I64(&longs[i]),
                        (false, 0 | 1) => DeviceActions::F32(&floats[i]),
                        (false, _) => DeviceActions::F64(&doubles[i]),
                    };
                    envs_on_gpu.step_on_gpu(actions, &row, 0)
                })
            })
            .unwrap();
            (0..3).for_each(|_| graph.launch().unwrap());
            row.download(0, &mut got).unwrap();
            assert_eq!(difference(&expected, &got, n), None, "{}, action kind {kind}", spec.name);
            assert!(saved == envs.save(), "{}: saved states differ", spec.name);

            envs.reset(Seeds::One(4), None, got.row());
            let envs_on_gpu = vec_on_gpu(&mut envs);
            let graph = Graph::record(&gpu(), || {
                (0..20).try_for_each(|i| {
                    let actions = if discrete { DeviceActions::U8(&bytes[i]) } else { DeviceActions::F32(&floats[i]) };
                    envs_on_gpu.step_own(actions)
                })
            })
            .unwrap();
            (0..3).for_each(|_| graph.launch().unwrap());
            envs_on_gpu.row().obs.download(0, &mut got.obs).unwrap();
            let bits = |obs: &[f32]| obs.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&got.obs) == bits(&expected.obs), "{}: observations of the own row", spec.name);
            assert!(saved == envs.save(), "{}: saved states differ after steps to the own row", spec.name);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn fast_mode_stays_near_strict_mode() {
    with_each(|entry| {
        let n = 8192;
        let mut strict = entry.build(&[], &on_gpu(&options(n, Math::Strict))).unwrap();
        let mut fast = entry.build(&[], &on_gpu(&options(n, Math::Fast))).unwrap();
        let spec = strict.spec().clone();
        let (mut a, mut b) = (RowBuf::new(&spec, n), RowBuf::new(&spec, n));
        strict.reset(Seeds::One(1), None, a.row());
        let mut rng = HostRng::new(2, u32::MAX, 0, 0);
        let (mut worst, mut flips) = (0.0f32, 0);
        for _ in 0..300 {
            // From the same state each time: what a step adds, not what chaos makes of it.
            fast.load(&strict.save()).unwrap();
            let actions = ActionsBuf::random(&spec, n, &mut rng);
            strict.step(actions.actions(), a.row());
            fast.step(actions.actions(), b.row());
            let width = spec.observation.len();
            for env in 0..n {
                if a.terminated[env] != b.terminated[env] {
                    flips += 1;
                    continue;
                }
                let reward = (a.reward[env] - b.reward[env]).abs() / a.reward[env].abs().max(1.0);
                worst = worst.max(reward);
                for k in env * width..(env + 1) * width {
                    worst = worst.max((a.obs[k] - b.obs[k]).abs() / a.obs[k].abs().max(1.0));
                }
            }
        }
        println!("{}: fast mode differs by at most {worst:e} per step, {flips} ends of {}", spec.name, 300 * n);
        assert!(worst < 2e-4, "{}: {worst}", spec.name);
        assert!(flips <= 3, "{}: {flips} episodes ended in one mode only", spec.name);
    });
}

/// Lengths of the episodes that a rollout of 65,536 envs ends.
fn lengths(entry: &Entry, math: Math) -> Vec<i32> {
    let (n, horizon) = (65_536, 250);
    let mut envs = entry.build(&[], &on_gpu(&options(n, math))).unwrap();
    let spec = envs.spec().clone();
    let mut row = RowBuf::new(&spec, n);
    envs.reset(Seeds::One(11), None, row.row());
    let rows = DeviceRow::new(&gpu(), &spec, n, horizon, Ends::Columns).unwrap();
    vec_on_gpu(&mut envs).rollout(13, 0, &rows).unwrap();
    let mut all = Vec::new();
    for t in 0..horizon {
        rows.download(t, &mut row).unwrap();
        let ended = (0..n).filter(|&env| row.terminated[env] | row.truncated[env] != 0);
        all.extend(ended.map(|env| row.episode_length[env]));
    }
    all.sort_unstable();
    all
}

#[test]
#[ignore = "needs a GPU"]
fn fast_mode_has_the_same_distribution_of_episode_lengths() {
    for name in ["cartpole", "mountaincar", "pendulum", "probe_masked"] {
        let entry = operant::env::find(name).unwrap();
        let (a, b) = (lengths(entry, Math::Strict), lengths(entry, Math::Fast));
        assert!(!a.is_empty());
        // The largest distance of the two distributions; of a million episodes chance alone makes 0.002.
        let share = |all: &[i32], x: i32| all.partition_point(|&y| y <= x) as f64 / all.len() as f64;
        let worst = (0..=500).map(|x| (share(&a, x) - share(&b, x)).abs()).fold(0.0, f64::max);
        println!("{name}: {} and {} episodes, distance {worst:.5}", a.len(), b.len());
        assert!(worst < 0.005, "{name}: {worst}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_state_goes_on_between_devices_and_runs_repeat() {
    for entry in over_lanes() {
        let options = options(777, Math::Strict);
        let mut cpu = entry.build(&[], &options).unwrap();
        let mut gpu = entry.build(&[], &on_gpu(&options)).unwrap();
        let spec = cpu.spec().clone();
        let (mut a, mut b) = (RowBuf::new(&spec, 777), RowBuf::new(&spec, 777));
        cpu.reset(Seeds::One(6), None, a.row());
        let mut rng = HostRng::new(3, u32::MAX, 0, 0);
        let batches: Vec<ActionsBuf> = (0..50).map(|_| ActionsBuf::random(&spec, 777, &mut rng)).collect();
        for batch in &batches {
            cpu.step(batch.actions(), a.row());
        }
        let middle = cpu.save();
        gpu.load(&middle).unwrap();
        gpu.observe(b.row());
        assert_eq!(a.obs, b.obs);
        for batch in &batches {
            cpu.step(batch.actions(), a.row());
            gpu.step(batch.actions(), b.row());
        }
        let end = gpu.save();
        assert!(cpu.save() == end, "{}", spec.name);
        gpu.load(&middle).unwrap();
        batches.iter().for_each(|batch| gpu.step(batch.actions(), b.row()));
        assert!(gpu.save() == end, "{}", spec.name);
        // State by columns, and parameters.
        let columns = cpu.columns().len();
        let mut words = vec![0; 777];
        for column in 0..columns {
            cpu.read(column, &mut words);
            let mut other = vec![0; 777];
            gpu.read(column, &mut other);
            assert_eq!(words, other);
        }
        cpu.write(&[(columns - 1, &[3; 777])]).unwrap();
        gpu.write(&[(columns - 1, &[3; 777])]).unwrap();
        assert!(cpu.save() == gpu.save());
        if let Some(param) = cpu.params().first() {
            let value = (param.range.start() + param.value) / 2.0;
            let value = if param.whole { value.ceil() } else { value };
            let set = cpu.set_param(param.name, value).is_ok();
            assert_eq!(gpu.set_param(param.name, value).is_ok(), set, "{}", param.name);
            cpu.step(batches[0].actions(), a.row());
            gpu.step(batches[0].actions(), b.row());
            assert_eq!(a.obs, b.obs, "{} after {} was set", spec.name, param.name);
            assert!(cpu.save() == gpu.save(), "{} after {} was set", spec.name, param.name);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn no_memory_says_how_much_for_what_and_what_to_lower() {
    let spec = operant::env::find("cartpole").unwrap().spec();
    let message = DeviceRow::new(&gpu(), &spec, 1 << 20, 1 << 14, Ends::Dropped).unwrap_err().to_string();
    for part in ["no GPU memory for observations: asked for 274.9 GB", "free on", "lower the horizon or num_envs"] {
        assert!(message.contains(part), "{message}");
    }
    // And it still works.
    let entry = operant::env::find("cartpole").unwrap();
    let mut envs = entry.build(&[], &on_gpu(&options(64, Math::Strict))).unwrap();
    let mut row = RowBuf::new(&spec, 64);
    envs.reset(Seeds::One(0), None, row.row());
    envs.step(Actions::I32(&[1; 64]), row.row());
    assert_eq!((row.reward, envs.failure()), (vec![1.0; 64], None));
}

#[test]
#[ignore = "needs a GPU"]
fn no_host_memory_says_how_much_for_what_and_what_to_lower() {
    let message = HostBuffer::<u8>::new(&gpu(), 1 << 46, "observations").unwrap_err().to_string();
    for part in ["no page-locked host memory for observations: asked for 70368.7 GB", "lower num_envs"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn memory_that_is_given_back_is_given_out_again() {
    let gpu = gpu();
    let free = || gpu.memory().unwrap().0;
    let make = |round: usize| -> Vec<Buffer<u32>> {
        (0..600).map(|i| Buffer::new(&gpu, (i * 3701 + round) % 50_000, "numbers", "nothing").unwrap()).collect()
    };
    drop(make(0));
    let before = free();
    for round in 1..40 {
        for buffer in make(round).iter().step_by(37) {
            let mut found = vec![7; buffer.len()];
            buffer.download(0, &mut found).unwrap();
            assert!(found.iter().all(|x| *x == 0), "round {round}: a new buffer holds what another left");
            buffer.upload(&vec![9u32; buffer.len()]).unwrap();
        }
        drop(Buffer::<u8>::new(&gpu, 1 << 28, "many numbers", "nothing").unwrap());
    }
    assert!(free() + (1 << 20) >= before, "{before} bytes were free, {} are", free());
    // As much as there is, again and again.
    let most = free() / 4 * 3;
    (0..4).for_each(|_| drop(Buffer::<u8>::new(&gpu, most, "most", "nothing").unwrap()));
}

#[test]
#[ignore = "needs a GPU"]
fn graphs_are_recorded_while_others_take_memory() {
    let device = gpu().info().index;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let gpu = Gpu::open(device).unwrap();
                let buffer = Buffer::<u32>::new(&gpu, 64, "numbers", "nothing").unwrap();
                for round in 0..300 {
                    buffer.upload(&[round + thread; 64]).unwrap();
                    let clears = Graph::record(&gpu, || (0..20).try_for_each(|_| buffer.zero())).unwrap();
                    clears.launch().unwrap();
                    let mut found = [1; 64];
                    buffer.download(0, &mut found).unwrap();
                    assert_eq!(found, [0; 64]);
                }
            });
            scope.spawn(move || {
                let gpu = Gpu::open(device).unwrap();
                for round in 0..60 {
                    let size = |i: usize| (i * 3701 + round) % 50_000;
                    let make = |i: usize| Buffer::<u32>::new(&gpu, size(i), "numbers", "nothing").unwrap();
                    drop((0..300).map(make).collect::<Vec<_>>());
                }
            });
        }
    });
}

#[test]
#[ignore = "needs a GPU"]
fn host_envs_say_that_they_have_no_kernel() {
    let grid = operant::env::find("gridworld").unwrap();
    let message = grid.build(&[], &on_gpu(&options(8, Math::Strict))).err().unwrap().to_string();
    assert!(message.contains("gridworld is ordinary Rust and has no kernel"), "{message}");
}
