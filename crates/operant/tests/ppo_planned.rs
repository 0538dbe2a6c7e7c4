//! PPO on a GPU for networks that plans run there: with a memory, with convolutions, of several choices at once. Without a GPU: kernels
//! compile, and what is not served is said. On one (`--ignored --test-threads 1`): what needs a memory or eyes is learned, bits repeat,
//! and checkpoints go from device to device.

#[cfg(target_os = "linux")]
#[path = "../../operant-nn/tests/compiled/mod.rs"]
mod compiled;
mod trained;

#[cfg(target_os = "linux")]
use compiled::{ARCHS, compile};
use operant::algo::{self, Build, GpuSetting, MemoryName, NetworkSettings, ppo};
use operant::config;
use operant::device::{CpuPool, Device};
use operant::env::{self, ActionSpace, Actions, Canvas, Channel, Param, Row, Seeds, Spec, VecEnv};
use operant::lanes::Column;
use operant::lanes::rng::HostRng;
use operant::nn::nets::Image;
use operant::nn::{Act, Precision};
use std::sync::Arc;
use trained::{algorithm_on, evaluated, run, weights};

fn with_memory(memory: MemoryName) -> NetworkSettings {
    NetworkSettings { memory, memory_size: 48, ..NetworkSettings::default() }
}

#[cfg(target_os = "linux")]
#[test]
fn every_kernel_compiles() {
    let cases = [
        ("cartpole", with_memory(MemoryName::Lstm), false),
        ("pendulum", with_memory(MemoryName::Mingru), false),
        ("probe_masked", with_memory(MemoryName::Lstm), false),
        ("cartpole", NetworkSettings { activation: Act::Gelu, ..NetworkSettings::default() }, false),
        ("gridworld", with_memory(MemoryName::Mingru), true),
        ("pendulum", with_memory(MemoryName::Lstm), true),
    ];
    let mut work = Vec::new();
    for (i, (name, network, hosted)) in cases.iter().enumerate() {
        let normalised = i % 2 == 1;
        let settings =
            ppo::Settings { normalize_obs: normalised, normalize_reward: normalised, ..ppo::Settings::default() };
        let entry = env::find(name).unwrap();
        let text = ppo::planned_source(entry, network, &settings, Precision::F32, *hosted).unwrap();
        work.extend(ARCHS.map(|arch| ((*name).to_owned(), arch, text.clone())));
    }
    compile(&work);
}

#[test]
fn what_is_served_and_what_is_not_is_said() {
    let checked = |network: &NetworkSettings, over: &str, hosted: bool| {
        let table = config::parse(over, "test").unwrap();
        let (env, precision) = (env::find("cartpole").unwrap(), Precision::F32);
        ppo::check_cuda(&GpuSetting { env, num_envs: 64, hosted, network, settings: &table, precision })
            .map_err(|error| error.to_string())
    };
    for memory in [MemoryName::Lstm, MemoryName::Mingru] {
        checked(&with_memory(memory), "", false).unwrap();
        checked(&with_memory(memory), "normalize_obs = true", true).unwrap();
    }
    let lstm = with_memory(MemoryName::Lstm);
    let message = checked(&lstm, "overlap = true", false).unwrap_err();
    assert!(message.contains("ppo.overlap = true with a network that plans run"), "{message}");
    let message = checked(&lstm, "num_steps = 24\nminibatch_size = 64", false).unwrap_err();
    assert!(message.contains("is no multiple of ppo.num_steps = 24"), "{message}");
    for key in
        ["first_logits = [1]", "ent_floors = [0.1]", "prob_floors = [0.1]", "value_warmup = 1", "adv_std_floor = 0.1"]
    {
        let message = checked(&NetworkSettings::default(), key, false).unwrap_err();
        let name = key.split(' ').next().unwrap();
        assert!(message.contains(&format!("ppo.{name} has no kernel for a GPU yet")), "{message}");
    }
    checked(&NetworkSettings { hidden: vec![16; 20], ..NetworkSettings::default() }, "", false).unwrap();
}

/// A cue that is asked for later is remembered, by envs on the GPU and by those that the CPU steps.
#[test]
#[ignore = "needs a GPU"]
fn a_memory_is_learned_on_a_gpu() {
    for memory in ["lstm", "mingru"] {
        for stepped in ["auto", "cpu"] {
            let over = format!(
                "device = \"cuda\"\nenv_device = \"{stepped}\"\nnum_envs = 64\n[network]\nmemory = \"{memory}\"\n\
                 [ppo]\nminibatch_size = 256\n"
            );
            let mut ppo = algorithm_on("probe_memory", &over);
            run(&mut *ppo, 150);
            let played = evaluated(&*ppo, "probe_memory", 1);
            eprintln!("{memory}, envs on {stepped}: evaluation {played:.3}, {} steps", ppo.steps());
            assert!(played > 0.95, "{memory} {stepped}: {played}");
        }
    }
}

/// Reward 1 for ever is worth 1/(1 − γ), however short its episodes are cut: the last observation of each is valued, with what the memory
/// held then.
#[test]
#[ignore = "needs a GPU"]
fn episodes_cut_short_go_on_from_their_last_observation() {
    for stepped in ["auto", "cpu"] {
        for memory in ["lstm", "mingru"] {
            let over = format!(
                "device = \"cuda\"\nenv_device = \"{stepped}\"\nnum_envs = 16\nnetwork.memory = \"{memory}\"\n[ppo]\ngamma = 0.9\n\
                 num_steps = 32\nminibatch_size = 128\nanneal_lr = false\nclip_vloss = false\nlearning_rate = 3e-3\nmax_grad_norm = 0.0\n"
            );
            let mut ppo = algorithm_on("probe_truncation", &over);
            run(&mut *ppo, 300);
            let policy = ppo.policy().unwrap();
            let mut actor = policy.actor(1, &Default::default()).unwrap();
            actor.forward(&policy.params, 1, &[1.0]);
            let value = actor.values()[0];
            eprintln!("{memory}, envs on {stepped}: value {value:.3}");
            assert!((value / 10.0 - 1.0).abs() < 0.02, "{memory}, envs on {stepped}: {value}");
        }
    }
}

/// With and without a memory's states in the middle of episodes, in f32 and with products of TF32.
#[test]
#[ignore = "needs a GPU"]
fn runs_repeat_and_resume_to_the_bit() {
    for (env, over) in [
        ("cartpole", "network.memory = \"lstm\"\nprecision = \"bf16\""),
        ("pendulum", "network.memory = \"mingru\"\nppo.normalize_obs = true\nppo.normalize_reward = true"),
        ("probe_masked", "network.memory = \"lstm\"\nenv_device = \"cpu\""),
        ("cartpole", "network.activation = \"gelu\""),
    ] {
        let over = format!("device = \"cuda\"\nnum_envs = 64\nppo.num_steps = 32\nppo.minibatch_size = 512\n{over}");
        let mut whole = algorithm_on(env, &over);
        run(&mut *whole, 6);
        let mut half = algorithm_on(env, &over);
        run(&mut *half, 3);
        let mut resumed = algorithm_on(env, &over);
        resumed.load(&half.save().unwrap()).unwrap();
        run(&mut *resumed, 3);
        assert!(weights(&*whole) == weights(&*resumed), "{env} {over}: weights after a resume");
        assert!(whole.save().unwrap() == resumed.save().unwrap(), "{env} {over}: checkpoints after a resume");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn checkpoints_go_from_device_to_device() {
    for memory in ["lstm", "mingru"] {
        let on = |device: &str| {
            let over = format!(
                "device = \"{device}\"\nprecision = \"f32\"\nnum_envs = 64\nnetwork.memory = \"{memory}\"\nppo.num_steps = 32\n\
                 ppo.minibatch_size = 512\nppo.learning_rate = 1e-3"
            );
            algorithm_on("cartpole", &over)
        };
        let (mut gpu, mut cpu) = (on("cuda"), on("cpu"));
        run(&mut *cpu, 3);
        gpu.load(&cpu.save().unwrap()).unwrap();
        assert!(weights(&*cpu) == weights(&*gpu) && cpu.steps() == gpu.steps());
        assert_eq!(cpu.save().unwrap()["memory.bin"], gpu.save().unwrap()["memory.bin"]);
        assert!(gpu.save().unwrap()["memory.bin"].iter().any(|byte| *byte != 0));
        run(&mut *gpu, 3);
        let saved = gpu.save().unwrap();
        cpu.load(&saved).unwrap();
        assert_eq!(cpu.save().unwrap()["memory.bin"], saved["memory.bin"]);
        run(&mut *cpu, 1);
        assert_eq!(cpu.steps(), 7 * 64 * 32);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn an_lstm_solves_cartpole_on_a_gpu() {
    for seed in 1..=2 {
        let over = format!(
            "device = \"cuda\"\nseed = {seed}\nnum_envs = 512\nsteps = 3_000_000\nnetwork.memory = \"lstm\"\n\
             ppo.num_steps = 32\nppo.minibatch_size = 4096\nppo.learning_rate = 1e-3\nppo.anneal_lr = true"
        );
        let mut ppo = algorithm_on("cartpole", &over);
        run(&mut *ppo, 180);
        let played = evaluated(&*ppo, "cartpole", 1);
        eprintln!("cartpole lstm {seed}: evaluation {played:.1}, {} steps", ppo.steps());
        assert!(played > 475.0, "seed {seed}: {played}");
    }
}

/// A lit pixel of a dim picture, whose half along each axis is asked for: pictures of 8 × 10 bytes and two choices at once. Episodes last
/// three steps; every other env ends them by a time limit.
struct Pixels {
    spec: Spec,
    lit: Vec<usize>,
    elapsed: Vec<i32>,
    returned: Vec<f32>,
    rng: HostRng,
}

const HEIGHT: usize = 8;
const WIDTH: usize = 10;

impl Pixels {
    fn new(num_envs: usize) -> Self {
        let channels = (0..HEIGHT * WIDTH).map(|k| Channel::new(format!("pixel {k}"), 0.0, 255.0)).collect();
        let spec = Spec {
            name: "pixels",
            id: "operant/Pixels-v0",
            observation: channels,
            action: ActionSpace::MultiDiscrete(vec![2, 2].into()),
            masked: false,
            time_limit: None,
            ..env::find("gridworld").unwrap().spec()
        };
        let (lit, elapsed, returned) = (vec![0; num_envs], vec![0; num_envs], vec![0.0; num_envs]);
        Self { spec, lit, elapsed, returned, rng: HostRng::new(5, 0, 0, 0) }
    }

    fn light(&mut self, env: usize) {
        self.lit[env] = self.rng.below((HEIGHT * WIDTH) as u32) as usize;
    }

    fn show(&self, env: usize, obs: &mut [f32]) {
        obs.fill(30.0);
        obs[self.lit[env]] = 255.0;
    }
}

impl VecEnv for Pixels {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn image(&self) -> Option<Image> {
        Some(Image { height: HEIGHT, width: WIDTH, channels: 1, channels_first: false, bytes: true })
    }

    fn num_envs(&self) -> usize {
        self.lit.len()
    }

    fn reset(&mut self, _: Seeds<'_>, _: Option<&[u8]>, out: Row<'_>) {
        (0..self.lit.len()).for_each(|env| self.light(env));
        self.elapsed.fill(0);
        self.returned.fill(0.0);
        self.observe(out);
    }

    fn step(&mut self, actions: Actions<'_>, out: Row<'_>) {
        let len = HEIGHT * WIDTH;
        for env in 0..self.lit.len() {
            let (row, column) = (self.lit[env] / WIDTH, self.lit[env] % WIDTH);
            let wanted = [i32::from(2 * row >= HEIGHT), i32::from(2 * column >= WIDTH)];
            let Actions::I32(actions) = actions else { panic!("choices") };
            let right = wanted.iter().zip(&actions[2 * env..]).filter(|(wanted, got)| wanted == got).count();
            out.reward[env] = right as f32 / 2.0;
            self.returned[env] += out.reward[env];
            self.elapsed[env] += 1;
            let ends = self.elapsed[env] == 3;
            out.terminated[env] = u8::from(ends && env.is_multiple_of(2));
            out.truncated[env] = u8::from(ends && !env.is_multiple_of(2));
            self.light(env);
            if ends {
                self.show(env, &mut out.final_obs[env * len..][..len]);
                (out.episode_return[env], out.episode_length[env]) = (self.returned[env], self.elapsed[env]);
                (self.returned[env], self.elapsed[env]) = (0.0, 0);
                self.light(env);
            }
            self.show(env, &mut out.obs[env * len..][..len]);
        }
    }

    fn observe(&self, out: Row<'_>) {
        out.obs.chunks_exact_mut(HEIGHT * WIDTH).enumerate().for_each(|(env, obs)| self.show(env, obs));
    }

    fn columns(&self) -> &[Column] {
        &[]
    }

    fn read(&self, _: usize, _: &mut [i32]) {}

    fn write(&mut self, _: &[(usize, &[i32])]) -> operant::Result<()> {
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn load(&mut self, _: &[u8]) -> operant::Result<()> {
        Ok(())
    }

    fn draw(&self, _: usize) -> Option<Canvas> {
        None
    }

    fn params(&self) -> Vec<Param> {
        Vec::new()
    }

    fn set_param(&mut self, _: &str, _: f64) -> operant::Result<()> {
        Ok(())
    }
}

#[test]
#[ignore = "needs a GPU"]
fn convolutions_and_several_choices_are_learned_on_a_gpu() {
    let trained = |device: &str, precision: Precision| {
        let gpu = match Device::named(device).unwrap() {
            Device::Cuda(gpu) => Some(gpu),
            Device::Cpu => None,
        };
        let settings = ppo::Settings { num_steps: 16, minibatch_size: 512, ..ppo::Settings::default() };
        let build = Build {
            env: Box::new(Pixels::new(128)),
            gpu,
            pool: Arc::new(CpuPool::new(1)),
            seed: 1,
            total_steps: 1 << 20,
            gradient_stride: 0,
            precision,
            network: NetworkSettings { activation: Act::Relu, ..NetworkSettings::default() },
            settings: config::to_table(&settings),
        };
        let mut ppo = (algo::find("ppo").unwrap().build)(build).unwrap();
        let names: Vec<String> = ppo.policy().unwrap().params.specs().iter().map(|spec| spec.name.clone()).collect();
        assert!(names.iter().any(|name| name.starts_with("encoder")), "{names:?}");
        let first = run(&mut *ppo, 4).episodes.mean_return();
        let start = std::time::Instant::now();
        let last = run(&mut *ppo, 120).episodes.mean_return();
        let pace = (120 * 128 * 16) as f64 / start.elapsed().as_secs_f64();
        eprintln!("pixels on {device} in {precision:?}: mean return {first:.2}, then {last:.2}, {pace:.0} steps/s");
        assert!(first < 2.2 && last > 2.8, "{first} {last}");
        weights(&*ppo)
    };
    let found = trained("cuda", Precision::F32);
    assert!(found == trained("cuda", Precision::F32), "other bits in a second run");
    trained("cuda", Precision::Bf16);
    trained("cpu", Precision::F32);
}
