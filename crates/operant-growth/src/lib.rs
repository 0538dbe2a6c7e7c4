//! Growth: a host network trains inside the env, one epoch per step, and the controller decides what grows in it.
//!
//! The state is the telemetry of that training; actions germinate, blend, keep or prune seeds ([`operant_nn::grow`]). A choice
//! that its slot does not allow is a wait. Everything here is a function of the episode's seed, so episodes repeat.

mod alpha;
pub mod attribution;
mod augment;
mod bodies;
mod cohort;
mod episode;
mod governor;
mod heuristic;
mod lifecycle;
mod noise;
mod picture;
mod reward;
mod saved;
mod shown;
mod task;
mod text;
mod together;
mod vec;

pub use alpha::{Alpha, Curve, Mode};
pub use augment::Moved;
pub use bodies::{Apart, Bodies, Lesson, Saved};
pub use cohort::Cohort;
pub use episode::{Choice, Episode, Frame, Happened, Planted, Rules, SPEEDS, STYLES, State, TARGETS, TEMPOS};
pub use governor::{Governor, Panic};
pub use heuristic::Heuristic;
pub use lifecycle::{Gates, Measured, Op, Slot, Stage, allowed};
pub use reward::{Epoch, Kind, Ledger, Parts, REWARDS, attribution as counted, potential};
pub use task::{CLASSES, Key, Samples, TASKS, Task, reads_files, set_task_data, task_data};
pub use together::Together;
pub use vec::GrowthVec;

/// The env.
pub static ENVS: &[Entry] = &[Entry::host::<Growth>().slow().resident(&Growth::ON_GPU).learns_from(&Growth::DATA)];

use episode::HISTORY;
use operant_base::{Error, Result};
use operant_device::Device;
use operant_env::params;
use operant_env::{
    ActionSpace, Canvas, Channel, DataFiles, Entry, Heads, HostAction, HostEnv, Options, Param, Params, Resident, Spec,
    Told, VecEnv,
};
use operant_lanes::Column;
use operant_lanes::rng::HostRng;
use operant_nn::grow::{Blueprint, GrownGroup, HOSTS, Host, Training};
use operant_nn::{Method, Precision};
use std::sync::Arc;
use task::{BYTES, CIFAR_SIDE, CIFAR10};

/// Names of hosts, in the order of their numbers.
const HOST_NAMES: &[&str] = &[
    HOSTS[0].name,
    HOSTS[1].name,
    HOSTS[2].name,
    HOSTS[3].name,
    HOSTS[4].name,
    HOSTS[5].name,
    HOSTS[6].name,
    HOSTS[7].name,
    HOSTS[8].name,
    HOSTS[9].name,
];
/// What gates ask for, by name.
const GATES: &[&str] = &["strict", "permissive"];
/// Pixels along each side of images below which a thread for each env was measured to be as fast as a GPU (docs/results.md).
const LEAST_SIDE: usize = 16;
/// Precisions of hosts on a GPU, by name.
const PRECISIONS: &[&str] = &["auto", "f32", "tf32", "bf16"];

params! {
    /// What is trained, on what, by which rules.
    struct Settings {
        /// what the host learns
        task: u32 = 0, 0.0..=3.0, "", TASKS;
        /// the host
        host: u32 = 0, 0.0..=9.0, "", HOST_NAMES;
        /// the reward
        reward: u32 = 0, 0.0..=7.0, "", REWARDS;
        /// what gates ask for
        gates: u32 = 1, 0.0..=1.0, "", GATES;
        /// length of an episode
        epochs: u32 = 150, 1.0..=10000.0, "epochs";
        /// in a stage, before the gate behind it opens
        min_epochs: u32 = 10, 0.0..=1000.0, "epochs";
        /// before a seed may be pruned
        prune_age: u32 = 5, 0.0..=1000.0, "epochs";
        /// of an embargo after a prune
        embargo: u32 = 5, 0.0..=1000.0, "epochs";
        /// samples to train on
        train_samples: u32 = 512, 1.0..=50000.0, "";
        /// samples to validate on
        val_samples: u32 = 256, 1.0..=10000.0, "";
        /// pixels along each side of synthetic images; those of cifar10 have 32
        side: u32 = 8, 4.0..=64.0, "pixels";
        /// bytes of a window of text
        context: u32 = 64, 2.0..=1024.0, "bytes";
        /// patterns of each synthetic class
        modes: u32 = 2, 1.0..=1000.0, "";
        /// whether every epoch of a synthetic task or a text has new samples to train on
        fresh: u32 = 0, 0.0..=1.0, "";
        /// whether images of cifar10 and cifar10_synthetic are cropped and mirrored by chance
        augment: u32 = 0, 0.0..=1.0, "";
        /// whether envs whose episodes have the same number begin them with the same host, so that they differ by what is chosen
        same_host: u32 = 0, 0.0..=1.0, "";
        /// which of the possible synthetic tasks
        task_seed: u32 = 0, 0.0..=4294967295.0, "";
        /// samples of a minibatch
        batch: u32 = 64, 1.0..=1024.0, "";
        /// step size of the host's SGD
        learning_rate: f32 = 0.05, 0.0..=10.0, "";
        /// of hosts on a GPU: f32 as on a CPU, products of TF32, or bf16; auto: bf16 where channels come in eights, else TF32
        precision: u32 = 0, 0.0..=3.0, "", PRECISIONS;
        /// most parameters of all seeds together
        max_parameters: u32 = 500000, 0.0..=4294967295.0, "";
        /// discount of potentials; the controller's own
        gamma: f32 = 0.995, 0.0..=1.0, "";
    }
}

/// A host in training and the rules of its growth.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    settings: Settings,
    cohort: Option<Box<Cohort<Apart>>>,
}

impl Params for Growth {
    fn params(&self) -> Vec<Param> {
        self.settings.params()
    }

    fn store(&mut self, index: usize, value: f64) {
        self.settings.store(index, value);
    }
}

impl Settings {
    fn key(&self) -> Key {
        let Self { task, side, train_samples: train, val_samples: validation, modes, task_seed: seed, context, .. } =
            *self;
        // Images from files have the size that they have.
        let side = if task == CIFAR10 { CIFAR_SIDE as u32 } else { side };
        Key { task, side, train, validation, modes, seed, context }
    }

    fn host(&self) -> Host {
        HOSTS[self.host as usize % HOSTS.len()]
    }

    fn rules(&self) -> Rules {
        let method = Method::Sgd { momentum: 0.9, nesterov: false, weight_decay: 5e-4 };
        let learning_rate = self.learning_rate;
        Rules {
            gates: Gates {
                strict: self.gates == 0,
                min_epochs: self.min_epochs,
                prune_age: self.prune_age,
                embargo: self.embargo,
            },
            reward: Kind::from_index(self.reward),
            gamma: self.gamma,
            epochs: self.epochs,
            max_parameters: self.max_parameters,
            fresh: self.fresh == 1,
            augment: self.augment == 1,
            same_host: self.same_host == 1,
            training: Training { batch: self.batch as usize, learning_rate, method, ..Training::default() },
        }
    }
}

/// Names of an action's heads.
const HEADS: &[&str] = &["op", "slot", "blueprint", "style", "tempo", "target", "speed", "curve"];
/// Heads that matter for each operation, as bits in the order of [`HEADS`].
const MATTER: &[u32] = &[0b1, 0b0011_1111, 0b1110_1011, 0b1100_0011, 0b11, 0b11];

/// Heads of an action in a host of so many slots.
fn heads(slots: usize) -> Heads {
    let (styles, tempos, targets) = (STYLES.len(), TEMPOS.len(), TARGETS.len());
    let sizes = [Op::ALL.len(), slots, Blueprint::ALL.len(), styles, tempos, targets, SPEEDS.len(), Curve::ALL.len()];
    Heads::causal(sizes.to_vec(), HEADS, MATTER)
}

/// Numbers of a slot in an observation, and of its seed's blueprint.
const SLOT: usize = 31;
const EMBEDDING: usize = 4;

fn slot_names() -> Vec<String> {
    let mut names: Vec<String> = (1..=10).map(|stage| format!("stage {stage}")).collect();
    let rest = "alpha,contribution,its velocity,tempo,alpha holds,alpha rises,alpha falls,alpha start,alpha target,share of the way,\
                ticks,curve,gradient health,health before,age,freshness,interaction mean,interaction most,interaction least,\
                share that helps,share that hinders,blueprint size,mixes places,mixes channels,attends";
    names.extend(rest.split(',').map(|name| name.trim().to_owned()));
    names
}

impl Growth {
    /// The episode, once it began.
    pub fn episode(&self) -> Option<&Episode> {
        self.cohort.as_ref().and_then(|cohort| cohort.episode(0))
    }

    /// The episode with its network, once it began.
    pub fn cohort_mut(&mut self) -> Option<&mut Cohort<Apart>> {
        self.cohort.as_deref_mut()
    }

    /// One step by a choice in words; a wait before an episode began.
    pub fn choose(&mut self, choice: &Choice) -> (f32, bool) {
        let Some(cohort) = &mut self.cohort else { return (0.0, false) };
        let given = cohort.step(&[Some(*choice)]).expect("a network that was planned before");
        given[0].unwrap_or((0.0, false))
    }

    /// What all episodes with these parameters have alike.
    pub fn frame(&self) -> Result<Arc<Frame>> {
        Frame::new(self.settings.host(), Task::get(self.settings.key())?, self.settings.rules())
    }

    /// So many hosts with these parameters on a GPU, in which no episode has begun.
    pub fn together(&self, options: &Options) -> Result<Together> {
        let Device::Cuda(gpu) = &options.device else {
            return Err(Error::Invalid("hosts side by side want a GPU; name one by --device cuda".into()));
        };
        let precision = match self.settings.precision {
            1 => Precision::F32,
            3 => Precision::Bf16,
            0 if self.settings.host().base.is_multiple_of(8) => Precision::Bf16,
            _ => Precision::Tf32,
        };
        Together::new(&*self.frame()?, gpu, &options.pool, precision, options.num_envs)
    }

    /// Whether a GPU has kernels for so many such hosts and is faster than so many threads, or what is in the way.
    fn served(&self, num_envs: usize, threads: usize) -> Result<()> {
        let (image, classes) = Task::shape(self.settings.key());
        let side = image[0];
        GrownGroup::check(self.settings.host(), image, classes)?;
        if side < LEAST_SIDE && threads >= num_envs {
            return Err(Error::Invalid(format!(
                "with images of {side} x {side} pixels and a thread for each env a GPU is no faster"
            )));
        }
        Ok(())
    }

    /// N envs on a GPU.
    fn on_gpu(params: &[(&str, f64)], options: &Options) -> Result<Box<dyn VecEnv>> {
        let env = Self::with(params)?;
        env.validate()?;
        let bodies = env.together(options)?;
        Ok(Box::new(GrowthVec::new(env, bodies, options)?))
    }

    fn with(params: &[(&str, f64)]) -> Result<Self> {
        let mut env = Self::default();
        params.iter().try_for_each(|&(name, value)| env.set(name, value))?;
        Ok(env)
    }

    /// In the list: how its envs live on a GPU, and whether one serves them.
    const ON_GPU: Resident = Resident {
        build: Self::on_gpu,
        check: |params, num_envs, threads| Self::with(params)?.served(num_envs, threads),
    };

    /// In the list: the files of tasks.
    const DATA: DataFiles = DataFiles {
        wanted: |params| params.iter().any(|&(name, task)| name == "task" && reads_files(task as u32)),
        place: task_data,
        set_place: set_task_data,
    };

    fn slots(&self) -> usize {
        self.settings.host().slots()
    }
}

impl HostEnv for Growth {
    fn heap_bytes(&self) -> usize {
        // Weights, gradients, momentum and plans of the smallest hosts; larger ones take more.
        1 << 20
    }

    fn spec(&self) -> Spec {
        let range = |name: String| Channel::new(name, -2.0, 2.0);
        let mut observation: Vec<Channel> = ["epoch", "loss", "accuracy"].map(|name| range(name.into())).into();
        for what in ["loss", "accuracy"] {
            observation.extend((0..HISTORY).map(|ago| range(format!("{what} {} epochs ago", HISTORY - 1 - ago))));
        }
        observation.extend(
            ["share training", "share blending", "share holding", "last success"].map(|name| range(name.into())),
        );
        observation.extend(Op::ALL.map(|(_, name)| range(format!("last op {name}"))));
        for slot in 0..self.slots() {
            observation.extend(slot_names().into_iter().map(|name| range(format!("slot {slot}: {name}"))));
        }
        Spec {
            name: "growth",
            id: "operant/Growth-v0",
            summary: "decide what grows in a network while it trains: germinate, blend, keep or prune modules",
            reference: "Operant",
            observation,
            action: ActionSpace::MultiDiscrete(heads(self.slots())),
            masked: true,
            time_limit: None,
            solved_at: None,
            render_fps: 10,
        }
    }

    fn validate(&self) -> Result<()> {
        let key = self.settings.key();
        let (host, task) = (self.settings.host(), TASKS[key.task as usize % TASKS.len()]);
        if host.reads_tokens() != (key.task == BYTES) {
            let shown = if key.task == BYTES { "text" } else { "images" };
            let wanted: Vec<&str> = HOSTS
                .iter()
                .filter(|known| known.reads_tokens() != host.reads_tokens())
                .map(|known| known.name)
                .collect();
            return Err(Error::Invalid(format!(
                "parameter host = {}: task {task} is of {shown}, wanted a host that reads those ({}); say env.host, or another env.task",
                host.name,
                wanted.join(", ")
            )));
        }
        Task::check(key)?;
        if self.settings.augment == 1 && !task::may_be_moved(key.task) {
            let name = TASKS[key.task as usize];
            return Err(Error::Invalid(format!(
                "parameter augment = 1: {name} has no images that may be cropped and mirrored; leave it at 0"
            )));
        }
        let training = Training { batch: 1, ..Training::default() };
        let (image, classes) = Task::shape(key);
        let topology = operant_nn::grow::Topology::new(host, image, classes);
        operant_nn::grow::Grown::new(topology, training, 0).map(drop)
    }

    fn reset(&mut self, rng: &mut HostRng) {
        let frame = self.frame().expect("a task and a host that were there when the env was built");
        let begun = Apart::new(&frame, 1).and_then(|bodies| {
            let mut cohort = Cohort::new(1, bodies);
            cohort.begin(&frame, &[(0, episode_seed(rng, frame.rules.same_host))])?;
            Ok(cohort)
        });
        self.cohort = Some(Box::new(begun.expect("a host that was planned when the env was built")));
    }

    fn step(&mut self, action: HostAction<'_>, _: &mut HostRng) -> (f32, bool) {
        self.choose(&Choice::of(|head| action.index(head)))
    }

    fn observe(&self, obs: &mut [f32]) {
        obs.fill(0.0);
        if let Some(episode) = self.episode() {
            episode.observe(obs);
        }
    }

    fn legal(&self, legal: &mut [u8]) {
        legal.fill(1);
        if let Some(episode) = self.episode() {
            episode.legal(legal);
        }
    }

    fn tell(&self, told: &mut Told) {
        if let Some(episode) = self.episode() {
            episode.tell(told);
        }
    }

    fn draw(&self) -> Option<Canvas> {
        self.episode().map(picture::draw)
    }

    /// The state is a network: it is saved whole, and has no columns.
    fn columns(&self) -> Vec<Column> {
        Vec::new()
    }

    fn read(&self, _: &mut [i32]) {}

    fn write(&mut self, _: &[i32]) -> Result<()> {
        Ok(())
    }

    fn save_rest(&self) -> Vec<u8> {
        let saved = self.cohort.as_ref().and_then(|cohort| cohort.save(0).expect("tensors that are in memory"));
        saved.map_or_else(Vec::new, |(state, tensors)| saved::pack(state, &tensors))
    }

    fn load_rest(&mut self, bytes: &[u8]) -> Result<()> {
        self.cohort = None;
        if !bytes.is_empty() {
            let (frame, (state, tensors)) = (self.frame()?, saved::unpack(bytes)?);
            let mut cohort = Cohort::new(1, Apart::new(&frame, 1)?);
            cohort.load(0, &frame, state, &tensors)?;
            self.cohort = Some(Box::new(cohort));
        }
        Ok(())
    }
}

/// The seed of the episode that an env's stream begins: its own, or that of all envs.
pub fn episode_seed(rng: &mut HostRng, same_host: bool) -> u64 {
    let mut shared = rng.of_all_envs();
    let rng = if same_host { &mut shared } else { rng };
    u64::from(rng.word()) | u64::from(rng.word()) << 32
}

const _: () = assert!(SLOT + EMBEDDING == 35);
