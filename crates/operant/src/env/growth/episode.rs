//! One episode: a host in training, its slots, and what a controller's choice does to them.

use super::alpha::Curve;
use super::attribution::{self, Worth};
use super::governor::{Governor, Panic};
use super::lifecycle::{Gates, Op, Slot, Stage, allowed};
use super::reward::{Epoch, Kind, Ledger, Parts};
use super::task::{Samples, Task};
use crate::error::Result;
use crate::lanes::rng::HostRng;
use crate::nn::grow::{Blueprint, Grown, Host, Seed, Topology, Training, Weights};
use crate::nn::ops::Blend;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How a seed is blended in and on which curve it first comes in; the order is that of the controller's choices.
pub const STYLES: [(&str, Blend, Curve); 4] = [
    ("linear_add", Blend::Add, Curve::Linear),
    ("linear_multiply", Blend::Multiply, Curve::Linear),
    ("sigmoid_add", Blend::Add, Curve::Sigmoid12),
    ("gated", Blend::Gate, Curve::Linear),
];
/// Epochs of the first way of α.
pub const TEMPOS: [u32; 3] = [3, 5, 8];
/// Where α may be sent.
pub const TARGETS: [f32; 3] = [0.5, 0.7, 1.0];
/// Ticks of later ways; 0 is at once.
pub const SPEEDS: [u32; 4] = [0, 3, 5, 8];
/// Epochs of losses and accuracies that are shown.
pub(super) const HISTORY: usize = 5;
/// Most seeds heard whose every coalition is scored at every epoch.
const TABLED: usize = 3;
/// Of more seeds, Shapley values are drawn when an episode ends: until their standard errors are at most so many points, or so
/// many pairs of orders were walked.
const DRAWN: (f64, usize) = (0.5, 8);

/// A choice of all heads, as indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Number in [`Op::ALL`].
    pub op: usize,
    /// The slot.
    pub slot: usize,
    /// Number in [`Blueprint::ALL`].
    pub blueprint: usize,
    /// Number in [`STYLES`].
    pub style: usize,
    /// Number in [`TEMPOS`].
    pub tempo: usize,
    /// Number in [`TARGETS`].
    pub target: usize,
    /// Number in [`SPEEDS`].
    pub speed: usize,
    /// Number in [`Curve::ALL`].
    pub curve: usize,
}

/// The rules of an episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Gates.
    pub gates: Gates,
    /// The reward.
    pub reward: Kind,
    /// Its discount.
    pub gamma: f32,
    /// Epochs of the episode.
    pub epochs: u32,
    /// Most parameters of all seeds together.
    pub max_parameters: u32,
    /// Whether every epoch of a synthetic task has new samples.
    pub fresh: bool,
    /// How the host learns.
    pub training: Training,
}

/// What is remembered of a seed beside its slot's life.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planted {
    /// Number in [`Blueprint::ALL`].
    pub blueprint: usize,
    /// Number in [`STYLES`].
    pub style: usize,
    /// Its parameters.
    pub parameters: usize,
    /// Validation accuracy when it came, in points.
    pub accuracy_then: f32,
}

/// Something that happened to a seed or to the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Happened {
    /// A slot's stage changed.
    Stage {
        /// Which slot.
        slot: usize,
        /// Before.
        from: Stage,
        /// After.
        to: Stage,
        /// Its seed's number in [`Blueprint::ALL`], if it has one.
        blueprint: Option<usize>,
    },
    /// The host was set back.
    Rollback(Panic),
}

/// All of an episode but tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// What everything random here is drawn from.
    pub seed: u64,
    /// Epochs so far.
    pub epoch: u32,
    /// Seeds so far.
    pub births: u64,
    /// Slots.
    pub slots: Vec<Slot>,
    /// Their seeds.
    pub planted: Vec<Option<Planted>>,
    /// Epoch of each slot's last germination.
    pub born: Vec<u32>,
    /// Validation loss and accuracy in points of the last epochs, newest last.
    pub history: Vec<[f32; 2]>,
    /// Mean loss of the last epoch of training.
    pub train_loss: f32,
    /// Sum of interactions, in points.
    pub interactions: f32,
    /// What the seeds that are heard are worth, where it was measured.
    #[serde(default)]
    pub worth: Worth,
    /// The last operation, and whether it was done.
    pub last: (Op, bool),
    /// The watch.
    pub governor: Governor,
    /// How often the host was set back.
    pub rollbacks: u32,
    /// Credit to be paid.
    pub ledger: Ledger,
    /// Parts of the last reward.
    pub parts: Parts,
    /// What happened in the last epoch.
    pub happened: Vec<Happened>,
}

/// An episode that goes on.
#[derive(Debug)]
pub struct Episode {
    /// All but tensors.
    pub state: State,
    pub(super) net: Grown,
    pub(super) snapshot: Weights,
    task: Arc<Task>,
    rules: Rules,
    /// Samples of a minibatch, gathered.
    batch: Samples,
}

impl Clone for Episode {
    /// Plans the network anew.
    fn clone(&self) -> Self {
        Self::resume(
            self.state.clone(),
            self.net.topology().clone(),
            &self.net.weights(),
            self.snapshot.clone(),
            Arc::clone(&self.task),
            self.rules,
        )
        .expect("a network that was planned before")
    }
}

impl Episode {
    /// Begins with a new host.
    pub fn new(host: Host, task: Arc<Task>, rules: Rules, seed: u64) -> Result<Self> {
        let topology = Topology::new(host, task.image, task.classes);
        let net = Grown::new(topology, rules.training, seed)?;
        let slots = host.slots();
        let state = State {
            seed,
            epoch: 0,
            births: 0,
            slots: vec![Slot::default(); slots],
            planted: vec![None; slots],
            born: vec![0; slots],
            history: Vec::new(),
            train_loss: (task.classes as f32).ln(),
            interactions: 0.0,
            worth: Worth::default(),
            last: (Op::Wait, true),
            governor: Governor::default(),
            rollbacks: 0,
            ledger: Ledger::default(),
            parts: Parts::default(),
            happened: Vec::new(),
        };
        let snapshot = net.weights();
        let mut episode = Self { state, net, snapshot, task, rules, batch: Default::default() };
        episode.measure();
        Ok(episode)
    }

    /// Goes on from what was saved.
    pub fn resume(
        state: State,
        topology: Topology,
        weights: &Weights,
        snapshot: Weights,
        task: Arc<Task>,
        rules: Rules,
    ) -> Result<Self> {
        let mut net = Grown::new(topology, rules.training, state.seed)?;
        net.take(weights)?;
        for (slot, of) in state.slots.iter().enumerate() {
            net.set_alpha(slot, of.alpha.value);
        }
        Ok(Self { state, net, snapshot, task, rules, batch: Default::default() })
    }

    /// The network.
    pub fn network(&self) -> &Grown {
        &self.net
    }

    /// Validation accuracy, in points.
    pub fn accuracy(&self) -> f32 {
        self.state.history.last().map_or(0.0, |[_, accuracy]| *accuracy)
    }

    /// Validation loss, in nats.
    pub fn loss(&self) -> f32 {
        self.state.history.last().map_or((self.task.classes as f32).ln(), |[loss, _]| *loss)
    }

    /// Parameters of all seeds.
    pub fn seed_parameters(&self) -> usize {
        self.state.planted.iter().flatten().map(|planted| planted.parameters).sum()
    }

    /// Parameters that a blueprint would have in a slot, if it fits there and into the budget.
    fn affordable(&self, slot: usize, blueprint: Blueprint) -> Option<usize> {
        let parameters = blueprint.parameters(self.net.slot_shape(slot)).ok()?;
        (self.seed_parameters() + parameters <= self.rules.max_parameters as usize).then_some(parameters)
    }

    /// Which slots allow an operation.
    pub fn allowed(&self, op: Op) -> Vec<bool> {
        let any = |slot: usize| self.blueprints(slot).any(|fits| fits);
        let slots = allowed(&self.state.slots, op, &self.rules.gates).enumerate();
        slots.map(|(slot, allowed)| allowed && (op != Op::Germinate || any(slot))).collect()
    }

    /// Which blueprints may be put into a slot: all that fit and can be paid, but no noop.
    pub fn blueprints(&self, slot: usize) -> impl Iterator<Item = bool> + '_ {
        let choices = Blueprint::ALL.into_iter();
        choices.map(move |(b, _)| b != Blueprint::Noop && self.affordable(slot, b).is_some())
    }

    fn go(&mut self, slot: usize, to: Stage) {
        let from = self.state.slots[slot].stage;
        self.state.slots[slot].go(to);
        self.note(slot, from);
    }

    /// Tells that a slot's stage is no longer what it was.
    fn note(&mut self, slot: usize, from: Stage) {
        let to = self.state.slots[slot].stage;
        if from != to {
            let blueprint = self.state.planted[slot].map(|planted| planted.blueprint);
            self.state.happened.push(Happened::Stage { slot, from, to, blueprint });
        }
    }

    fn set_seed(&mut self, slot: usize, planted: Planted, detached: bool) {
        let blueprint = Blueprint::ALL[planted.blueprint].0;
        let seed = Seed { blueprint, blend: STYLES[planted.style].1, detached };
        self.net.reshape(slot, seed).expect("a seed that fitted when it came");
    }

    /// Takes a seed out of the network and forgets it.
    fn uproot(&mut self, slot: usize) {
        self.net.prune(slot).expect("a host that was planned before");
        self.state.planted[slot] = None;
    }

    /// Does what was chosen, if the slot allows it.
    fn apply(&mut self, choice: &Choice) -> bool {
        let op = Op::ALL[choice.op % Op::ALL.len()].0;
        let slot = choice.slot % self.state.slots.len();
        if !self.allowed(op)[slot] {
            return false;
        }
        let curve = Curve::ALL[choice.curve % Curve::ALL.len()];
        let ticks = SPEEDS[choice.speed % SPEEDS.len()];
        match op {
            Op::Wait => {}
            Op::Germinate => {
                let style = choice.style % STYLES.len();
                let (blueprint, _) = Blueprint::ALL[choice.blueprint % Blueprint::ALL.len()];
                let Some(parameters) = self.affordable(slot, blueprint).filter(|_| blueprint != Blueprint::Noop) else {
                    return false;
                };
                let planted =
                    Planted { blueprint: blueprint.index(), style, parameters, accuracy_then: self.accuracy() };
                let seed = Seed { blueprint, blend: STYLES[style].1, detached: true };
                self.state.births += 1;
                let number = self.state.seed.wrapping_add(self.state.births);
                if self.net.germinate(slot, seed, number).is_err() {
                    return false;
                }
                let fresh = &mut self.state.slots[slot];
                fresh.tempo = TEMPOS[choice.tempo % TEMPOS.len()];
                fresh.first_target = TARGETS[choice.target % TARGETS.len()];
                fresh.first_curve = Some(STYLES[style].2);
                self.state.planted[slot] = Some(planted);
                self.state.born[slot] = self.state.epoch;
                self.go(slot, Stage::Germinated);
            }
            Op::SetAlpha => {
                let style = choice.style % STYLES.len();
                if let Some(planted) = &mut self.state.planted[slot] {
                    planted.style = style;
                    let planted = *planted;
                    self.set_seed(slot, planted, false);
                }
                self.state.slots[slot].alpha.retarget(TARGETS[choice.target % TARGETS.len()], ticks, curve);
            }
            Op::Prune => {
                let of = &mut self.state.slots[slot];
                if ticks == 0 || of.alpha.value == 0.0 {
                    let from = of.stage;
                    of.remove();
                    self.note(slot, from);
                    self.uproot(slot);
                } else {
                    of.alpha.retarget(0.0, ticks, curve);
                    of.pruning = true;
                    if of.stage == Stage::Holding {
                        self.go(slot, Stage::Blending);
                    }
                }
            }
            Op::Fossilise => self.go(slot, Stage::Fossilised),
            Op::Advance if self.state.slots[slot].stage == Stage::Training => {
                self.go(slot, Stage::Blending);
                let of = &mut self.state.slots[slot];
                let (target, tempo) = (of.first_target, of.tempo);
                of.alpha.retarget(target, tempo, of.first_curve.unwrap_or(Curve::Linear));
                if let Some(planted) = self.state.planted[slot] {
                    self.set_seed(slot, planted, false);
                }
            }
            Op::Advance => self.go(slot, Stage::Holding),
        }
        true
    }

    /// One step: what was chosen, then an epoch. Gives the reward and whether the episode is over.
    pub fn step(&mut self, choice: &Choice) -> (f32, bool) {
        self.state.happened.clear();
        let (before, accuracy) = (self.state.slots.clone(), self.accuracy());
        let op = Op::ALL[choice.op % Op::ALL.len()].0;
        let slot = choice.slot % self.state.slots.len();
        let done = self.apply(choice);
        self.state.last = (op, done);
        for slot in 0..self.state.slots.len() {
            let from = self.state.slots[slot].stage;
            let out = self.state.slots[slot].tick(&self.rules.gates);
            self.note(slot, from);
            if out {
                self.uproot(slot);
            }
            self.net.set_alpha(slot, self.state.slots[slot].alpha.value);
        }
        self.state.epoch += 1;
        let finite = self.train();
        self.measure();
        let rolled_back = self.govern(finite);
        let last = self.state.epoch >= self.rules.epochs;
        let (host, _) = self.net.parameters();
        let epoch = Epoch {
            before: &before,
            after: &self.state.slots,
            born: &self.state.born,
            done: done.then_some((op, slot)),
            accuracy: [accuracy, self.accuracy()],
            parameters: [host, self.seed_parameters()],
            interactions: self.state.interactions,
            gamma: self.rules.gamma,
            last,
            rolled_back,
        };
        let mut ledger = self.state.ledger;
        let parts = epoch.reward(self.rules.reward, &mut ledger);
        (self.state.ledger, self.state.parts) = (ledger, parts);
        (parts.total(), last)
    }

    /// One epoch over the training samples in a new order; whether every loss and gradient was finite.
    fn train(&mut self) -> bool {
        let task = Arc::clone(&self.task);
        let mut rng = HostRng::new(self.state.seed, 0, self.state.epoch, 0);
        let mut order: Vec<usize> = (0..task.train_count()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u32 + 1) as usize);
        }
        let (mut sum, mut finite) = (0.0, true);
        for rows in order.chunks(self.rules.training.batch) {
            task.batch(rows, self.rules.fresh, &mut rng, &mut self.batch);
            let (loss, fine) = self.net.train(&self.batch.images, &self.batch.targets);
            finite &= fine;
            sum += if loss.is_finite() { loss * rows.len() as f32 } else { 0.0 };
        }
        self.state.train_loss = sum / order.len().max(1) as f32;
        finite
    }

    /// Validates, scores coalitions of the seeds that are heard, and looks at gradients.
    fn measure(&mut self) {
        let heard: Vec<usize> =
            (0..self.state.slots.len()).filter(|&slot| self.state.slots[slot].alpha.value > 0.0).collect();
        let n = heard.len();
        let all = (1u32 << n) - 1;
        let as_they_are: Vec<f32> = self.net.alphas().to_vec();
        let score = |net: &mut Grown, coalition: u32| {
            let mut alphas = as_they_are.clone();
            for (i, &slot) in heard.iter().enumerate() {
                if coalition >> i & 1 == 0 {
                    alphas[slot] = 0.0;
                }
            }
            net.score(&self.task.validation.images, &self.task.validation.targets, &alphas)
        };
        let now = score(&mut self.net, all);
        let accuracy = 100.0 * now.accuracy;
        let (mut contributions, mut interactions, mut worth) = (vec![0.0; n], Vec::new(), Worth::default());
        if n <= TABLED {
            let table = attribution::table(n, |coalition| {
                if coalition == all {
                    f64::from(accuracy)
                } else {
                    f64::from(100.0 * score(&mut self.net, coalition).accuracy)
                }
            });
            contributions = attribution::contributions(&table);
            worth = Worth::exact(&heard, &table);
            for i in 0..n {
                for j in (0..n).filter(|&j| j != i) {
                    interactions.push((i, attribution::interaction(&table, i, j) as f32));
                }
            }
        } else {
            for (i, contribution) in contributions.iter_mut().enumerate() {
                *contribution = f64::from(accuracy - 100.0 * score(&mut self.net, all & !(1 << i)).accuracy);
            }
            if self.state.epoch >= self.rules.epochs {
                let points = |coalition| f64::from(100.0 * score(&mut self.net, coalition).accuracy);
                worth = Worth::drawn(&heard, &attribution::permutations(n, DRAWN.0, DRAWN.1, self.state.seed, points));
            }
        }
        self.state.worth = worth;
        // A loss that is no number is for the governor to see; what is remembered stays a number.
        self.state.history.push([if now.loss.is_finite() { now.loss.min(1e6) } else { 1e6 }, accuracy]);
        if self.state.history.len() > HISTORY {
            self.state.history.remove(0);
        }
        // Each pair is there from both sides.
        self.state.interactions = 0.5 * interactions.iter().map(|(_, points)| points).sum::<f32>();
        let (host, sizes) = self.net.gradient_sizes();
        for (slot, of) in self.state.slots.iter_mut().enumerate() {
            let m = &mut of.measured;
            let Some(planted) = self.state.planted[slot] else { continue };
            m.improvement = Some(accuracy - planted.accuracy_then);
            let known = self.state.epoch > self.state.born[slot] && host > 0.0 && sizes[slot] > 0.0;
            m.note_gradient(known.then(|| sizes[slot] / host));
            let Some(i) = heard.iter().position(|&other| other == slot) else {
                m.stale += 1;
                continue;
            };
            let contribution = contributions[i] as f32;
            m.velocity = m.contribution.map(|before| contribution - before);
            (m.contribution, m.stale) = (Some(contribution), 0);
            let with: Vec<f32> = interactions.iter().filter(|(of, _)| *of == i).map(|(_, points)| *points).collect();
            let count = with.len() as f32;
            (m.interactions, m.synergy) = if with.is_empty() {
                (None, None)
            } else {
                let most = with.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let least = with.iter().copied().fold(f32::INFINITY, f32::min);
                let share = |holds: &dyn Fn(f32) -> bool| with.iter().filter(|x| holds(**x)).count() as f32 / count;
                (
                    Some([with.iter().sum::<f32>() / count, most, least]),
                    Some([share(&|x| x > 0.5), share(&|x| x < -0.5)]),
                )
            };
        }
    }

    /// Sets the host back if it must be: weights of the last good snapshot, and every seed that is not kept goes.
    fn govern(&mut self, finite: bool) -> bool {
        let loss = self.loss();
        let finite = finite && loss < 1e6;
        let Some(panic) = self.state.governor.look(loss, finite, self.task.classes) else {
            if self.state.governor.is_calm() {
                self.snapshot = self.net.weights();
            }
            return false;
        };
        for slot in 0..self.state.slots.len() {
            if self.state.slots[slot].stage.is_live() {
                let from = self.state.slots[slot].stage;
                self.state.slots[slot].remove();
                self.note(slot, from);
                self.uproot(slot);
            }
        }
        self.net.take(&self.snapshot).expect("tensors of the same names");
        self.state.rollbacks += 1;
        self.state.happened.push(Happened::Rollback(panic));
        self.state.history.pop();
        self.measure();
        true
    }

    /// Score of a coalition of slots with α forced to 1 for those in it and 0 for the others, in points.
    pub fn forced_score(&mut self, slots: &[usize], coalition: u32) -> f32 {
        let mut alphas = vec![0.0; self.state.slots.len()];
        for (i, &slot) in slots.iter().enumerate() {
            alphas[slot] = (coalition >> i & 1) as f32;
        }
        100.0 * self.net.score(&self.task.validation.images, &self.task.validation.targets, &alphas).accuracy
    }

    /// Slots whose seeds are heard.
    pub fn heard(&self) -> Vec<usize> {
        (0..self.state.slots.len()).filter(|&slot| self.state.slots[slot].alpha.value > 0.0).collect()
    }

    /// Makes the host's weights infinite, as an accident would: for tests of the governor.
    #[doc(hidden)]
    pub fn poison(&mut self) {
        self.net.params_mut().get_mut("host.head.bias").expect("every host has a head").fill(f32::INFINITY);
    }
}
