//! Growth: a host network trains inside the env, one epoch per step, and the controller decides what grows in it.
//!
//! The state is the telemetry of that training; actions germinate, blend, keep or prune seeds ([`crate::nn::grow`]). A choice
//! that its slot does not allow is a wait. Everything here is a function of the episode's seed, so episodes repeat.

mod alpha;
pub mod attribution;
mod episode;
mod governor;
mod heuristic;
mod lifecycle;
mod reward;
mod saved;
mod task;
mod text;

pub use alpha::{Alpha, Curve, Mode};
pub use episode::{Choice, Episode, Happened, Planted, Rules, SPEEDS, STYLES, State, TARGETS, TEMPOS};
pub use governor::{Governor, Panic};
pub use heuristic::Heuristic;
pub use lifecycle::{Gates, Measured, Op, Slot, Stage, allowed};
pub use reward::{Epoch, Kind, Ledger, Parts, REWARDS, attribution as counted, potential};
pub use task::{CLASSES, Key, Samples, TASKS, Task, set_task_data};

use super::{ActionSpace, Channel, Heads, HostAction, HostEnv, Param, Params, Spec, Told};
use crate::error::{Error, Result};
use crate::lanes::Column;
use crate::lanes::rng::HostRng;
use crate::nn::Method;
use crate::nn::grow::{Blueprint, HOSTS, Host, Training};
use crate::params;
use crate::telemetry::EventKind;
use episode::HISTORY;
use task::BYTES;

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

/// A name of each slot's number.
macro_rules! slot_numbers {
    ($what:literal) => {
        slot_numbers!($what; "0" "1" "2" "3" "4" "5" "6" "7" "8" "9")
    };
    ($what:literal; $($slot:literal)*) => {
        [$(concat!("slot/", $slot, "/", $what)),*]
    };
}

params! {
    /// What is trained, on what, by which rules.
    struct Settings {
        /// what the host learns
        task: u32 = 0, 0.0..=3.0, "", TASKS;
        /// the host
        host: u32 = 0, 0.0..=9.0, "", HOST_NAMES;
        /// the reward
        reward: u32 = 0, 0.0..=6.0, "", REWARDS;
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
        /// pixels along each side of synthetic images
        side: u32 = 8, 4.0..=64.0, "pixels";
        /// bytes of a window of text
        context: u32 = 64, 2.0..=1024.0, "bytes";
        /// patterns of each synthetic class
        modes: u32 = 2, 1.0..=1000.0, "";
        /// whether every epoch of a synthetic task or a text has new samples to train on
        fresh: u32 = 0, 0.0..=1.0, "";
        /// which of the possible synthetic tasks
        task_seed: u32 = 0, 0.0..=4294967295.0, "";
        /// samples of a minibatch
        batch: u32 = 64, 1.0..=1024.0, "";
        /// step size of the host's SGD
        learning_rate: f32 = 0.05, 0.0..=10.0, "";
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
    episode: Option<Box<Episode>>,
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

/// Names of numbers that are told: shares of operations that were done, and of each slot its α and what its seed contributes.
const DONE: [&str; 6] = ["op/wait", "op/germinate", "op/set_alpha", "op/prune", "op/fossilise", "op/advance"];
const ALPHAS: [&str; 10] = slot_numbers!("alpha");
const CONTRIBUTIONS: [&str; 10] = slot_numbers!("contribution");
const SHAPLEYS: [&str; 10] = slot_numbers!("shapley");
const SHAPLEY_ERRORS: [&str; 10] = slot_numbers!("shapley_error");
/// Names of the interactions of two slots' seeds: those of a host with n slots are the first n·(n − 1)/2.
const INTERACTIONS: [&str; 45] = [
    "interaction/0-1",
    "interaction/0-2",
    "interaction/1-2",
    "interaction/0-3",
    "interaction/1-3",
    "interaction/2-3",
    "interaction/0-4",
    "interaction/1-4",
    "interaction/2-4",
    "interaction/3-4",
    "interaction/0-5",
    "interaction/1-5",
    "interaction/2-5",
    "interaction/3-5",
    "interaction/4-5",
    "interaction/0-6",
    "interaction/1-6",
    "interaction/2-6",
    "interaction/3-6",
    "interaction/4-6",
    "interaction/5-6",
    "interaction/0-7",
    "interaction/1-7",
    "interaction/2-7",
    "interaction/3-7",
    "interaction/4-7",
    "interaction/5-7",
    "interaction/6-7",
    "interaction/0-8",
    "interaction/1-8",
    "interaction/2-8",
    "interaction/3-8",
    "interaction/4-8",
    "interaction/5-8",
    "interaction/6-8",
    "interaction/7-8",
    "interaction/0-9",
    "interaction/1-9",
    "interaction/2-9",
    "interaction/3-9",
    "interaction/4-9",
    "interaction/5-9",
    "interaction/6-9",
    "interaction/7-9",
    "interaction/8-9",
];

/// What is not known, in an observation.
const UNKNOWN: f32 = -1.0;

/// sign(x)·ln(1 + |x|), over 7.
fn symlog(x: f32) -> f32 {
    x.signum() * (1.0 + x.abs()).ln() / 7.0
}

/// Points, or −1 to 1 for contributions and interactions.
fn points(x: Option<f32>) -> f32 {
    x.map_or(UNKNOWN, |x| (x / 100.0).clamp(-1.0, 1.0))
}

/// Four numbers that say what a blueprint is: size, and whether it mixes places, mixes channels, and attends.
fn embedding(blueprint: Blueprint, parameters: usize) -> [f32; 4] {
    use Blueprint::*;
    let places = matches!(blueprint, ConvLight | Depthwise | Bottleneck | ConvHeavy | FlexAttention);
    let channels = !matches!(blueprint, Noop | Norm | SeAttention);
    let attends = matches!(blueprint, SeAttention | FlexAttention);
    let flag = |holds: bool| f32::from(u8::from(holds));
    [((1 + parameters) as f32).log10() / 6.0, flag(places), flag(channels), flag(attends)]
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
        self.episode.as_deref()
    }

    /// The episode, to be looked into by means that need its plans.
    pub fn episode_mut(&mut self) -> Option<&mut Episode> {
        self.episode.as_deref_mut()
    }

    /// One step by a choice in words; a wait before an episode began.
    pub fn choose(&mut self, choice: &Choice) -> (f32, bool) {
        self.episode.as_mut().map_or((0.0, false), |episode| episode.step(choice))
    }

    fn slots(&self) -> usize {
        self.settings.host().slots()
    }
}

impl HostEnv for Growth {
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
            render_fps: 0,
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
        let training = Training { batch: 1, ..Training::default() };
        let (image, classes) = Task::shape(key);
        let topology = crate::nn::grow::Topology::new(host, image, classes);
        crate::nn::grow::Grown::new(topology, training, 0).map(drop)
    }

    fn reset(&mut self, rng: &mut HostRng) {
        let seed = u64::from(rng.word()) | u64::from(rng.word()) << 32;
        let task = Task::get(self.settings.key()).expect("a task that was there when the env was built");
        let episode = Episode::new(self.settings.host(), task, self.settings.rules(), seed);
        self.episode = Some(Box::new(episode.expect("a host that was planned when the env was built")));
    }

    fn step(&mut self, action: HostAction<'_>, _: &mut HostRng) -> (f32, bool) {
        let at = |head: usize| action.index(head);
        self.choose(&Choice {
            op: at(0),
            slot: at(1),
            blueprint: at(2),
            style: at(3),
            tempo: at(4),
            target: at(5),
            speed: at(6),
            curve: at(7),
        })
    }

    fn observe(&self, obs: &mut [f32]) {
        obs.fill(0.0);
        let Some(episode) = &self.episode else { return };
        let state = &episode.state;
        let mut all = obs.iter_mut();
        let mut put = |x: f32| {
            if let Some(place) = all.next() {
                *place = if x.is_finite() { x.clamp(-2.0, 2.0) } else { UNKNOWN };
            }
        };
        put(state.epoch as f32 / self.settings.epochs as f32);
        put(symlog(episode.loss()));
        put(episode.accuracy() / 100.0);
        for which in 0..2 {
            for ago in (0..HISTORY).rev() {
                let known = state.history.len().checked_sub(1 + ago).map(|at| state.history[at][which]);
                put(known.map_or(UNKNOWN, |x| if which == 0 { symlog(x) } else { x / 100.0 }));
            }
        }
        for stage in [Stage::Training, Stage::Blending, Stage::Holding] {
            put(state.slots.iter().filter(|slot| slot.stage == stage).count() as f32 / state.slots.len() as f32);
        }
        put(f32::from(u8::from(state.last.1)));
        Op::ALL.iter().for_each(|(op, _)| put(f32::from(u8::from(*op == state.last.0))));
        for (slot, planted) in state.slots.iter().zip(&state.planted) {
            let (m, alpha) = (&slot.measured, &slot.alpha);
            (1..=10).for_each(|stage| put(f32::from(u8::from(stage == slot.stage as u32))));
            put(alpha.value);
            put(points(m.contribution));
            put(points(m.velocity));
            put(if slot.tempo == 0 { UNKNOWN } else { slot.tempo as f32 / 8.0 });
            [Mode::Hold, Mode::Up, Mode::Down].iter().for_each(|mode| put(f32::from(u8::from(*mode == alpha.mode))));
            put(alpha.start);
            put(alpha.target);
            put(if alpha.ticks == 0 { 1.0 } else { alpha.tick as f32 / alpha.ticks as f32 });
            put(alpha.ticks as f32 / 8.0);
            put(alpha.curve as u32 as f32 / 4.0);
            put(m.health.unwrap_or(UNKNOWN));
            put(m.previous_health.unwrap_or(UNKNOWN));
            put(slot.age as f32 / self.settings.epochs as f32);
            put(if m.contribution.is_some() { 1.0 / (1.0 + m.stale as f32) } else { UNKNOWN });
            (0..3).for_each(|i| put(points(m.interactions.map(|all| all[i]))));
            (0..2).for_each(|i| put(m.synergy.map_or(UNKNOWN, |all| all[i])));
            let known = planted.map(|planted| embedding(Blueprint::ALL[planted.blueprint].0, planted.parameters));
            known.unwrap_or([UNKNOWN; EMBEDDING]).into_iter().for_each(&mut put);
        }
    }

    /// Operations that some slot allows, slots that allow one of them, blueprints that fit into one; the rest is free.
    fn legal(&self, legal: &mut [u8]) {
        legal.fill(1);
        let Some(episode) = &self.episode else { return };
        let (ops, rest) = legal.split_at_mut(Op::ALL.len());
        let (slots, rest) = rest.split_at_mut(self.slots());
        let blueprints = &mut rest[..Blueprint::ALL.len()];
        slots.fill(0);
        for (place, (op, _)) in ops.iter_mut().zip(Op::ALL).skip(1) {
            let allowed = episode.allowed(op);
            *place = u8::from(allowed.contains(&true));
            slots.iter_mut().zip(&allowed).for_each(|(slot, allowed)| *slot |= u8::from(*allowed));
        }
        if !slots.contains(&1) {
            slots.fill(1);
        }
        let free = episode.allowed(Op::Germinate);
        blueprints.fill(0);
        for slot in (0..free.len()).filter(|&slot| free[slot]) {
            blueprints.iter_mut().zip(episode.blueprints(slot)).for_each(|(place, fits)| *place |= u8::from(fits));
        }
        // Where nothing can germinate the choice is without effect; one is left, so that no head is empty.
        if !blueprints.contains(&1) {
            blueprints[Blueprint::ConvSmall.index()] = 1;
        }
    }

    /// Changes of stages, rollbacks, what seeds are worth when one is kept or taken out, gradients that went astray, and at the
    /// end what was reached; parts of rewards, operations and slots as numbers.
    fn tell(&self, told: &mut Told) {
        let Some(episode) = &self.episode else { return };
        let state = &episode.state;
        for happened in &state.happened {
            let (kind, text) = match happened {
                Happened::Stage { slot, from, to, blueprint } => {
                    let what = blueprint.map_or("", |number| Blueprint::ALL[number].1);
                    let text = format!("epoch {}, slot {slot}: {} to {} {what}", state.epoch, from.name(), to.name());
                    (EventKind::Lifecycle, text.trim_end().to_owned())
                }
                Happened::Rollback(panic) => (EventKind::Rollback, format!("epoch {}: {}", state.epoch, panic.name())),
            };
            told.event(kind, text);
        }
        let decided =
            |happened: &Happened| matches!(happened, Happened::Stage { to: Stage::Fossilised | Stage::Pruned, .. });
        if state.happened.iter().any(decided) && !state.worth.shapley.is_empty() {
            told.event(EventKind::Worth, format!("epoch {}: {}", state.epoch, state.worth));
        }
        for (slot, of) in state.slots.iter().enumerate().filter(|(_, of)| of.stage.is_live() && of.measured.sickened())
        {
            let ratio = of.measured.gradient_ratio.unwrap_or(f32::NAN);
            let text =
                format!("epoch {}, slot {slot}: its seed's gradient is {ratio:.1e} times the host's", state.epoch);
            told.event(EventKind::GradientAnomaly, text);
        }
        let began = state.epoch == 0;
        for (name, part) in state.parts.named() {
            told.number(name, (!began).then_some(part));
        }
        for (name, (op, _)) in DONE.iter().zip(Op::ALL) {
            told.number(name, (!began).then(|| f32::from(u8::from(state.last == (op, true)))));
        }
        for (slot, of) in state.slots.iter().enumerate() {
            told.number(ALPHAS[slot], (!began).then_some(of.alpha.value));
            told.number(CONTRIBUTIONS[slot], of.measured.contribution.filter(|_| of.alpha.value > 0.0));
            let worth = state.worth.of(slot);
            told.number(SHAPLEYS[slot], worth.map(|(value, _)| value));
            told.number(SHAPLEY_ERRORS[slot], worth.and_then(|(_, error)| error));
        }
        let pairs = (0..state.slots.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
        for (name, (i, j)) in INTERACTIONS.iter().zip(pairs) {
            told.number(name, state.worth.between(i, j));
        }
        let ended = state.epoch >= self.settings.epochs;
        let fossils = state.slots.iter().filter(|slot| slot.stage == Stage::Fossilised).count();
        let (accuracy, parameters) = (episode.accuracy(), episode.seed_parameters());
        told.number("outcome/accuracy", ended.then_some(accuracy));
        told.number("outcome/parameters", ended.then_some(parameters as f32));
        told.number("outcome/fossils", ended.then_some(fossils as f32));
        if ended {
            let text = format!("accuracy {accuracy:.1} %, {fossils} fossils, {parameters} parameters of seeds");
            told.event(EventKind::Outcome, text);
        }
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
        self.episode.as_ref().map_or_else(Vec::new, |episode| saved::pack(episode))
    }

    fn load_rest(&mut self, bytes: &[u8]) -> Result<()> {
        self.episode = if bytes.is_empty() {
            None
        } else {
            let task = Task::get(self.settings.key())?;
            Some(Box::new(saved::unpack(bytes, self.settings.host(), task, self.settings.rules())?))
        };
        Ok(())
    }
}

const _: () = assert!(SLOT + EMBEDDING == 35);
