//! One episode: the slots of a host in training, what a controller's choice does to them, and what its epoch is worth. The network
//! itself is one of [`Bodies`], wherever it trains; a [`Cohort`](super::Cohort) leads episodes through their epochs.

use super::alpha::Curve;
use super::attribution::{self, Worth};
use super::bodies::{Bodies, Lesson};
use super::governor::{Governor, Panic};
use super::lifecycle::{Gates, Op, Slot, Stage, allowed};
use super::reward::{Epoch, Kind, Ledger, Parts};
use super::task::Task;
use operant_base::Result;
use operant_nn::grow::{Blueprint, Host, Score, Seed, Topology, Trained, Training, gate_parameters};
use operant_nn::ops::Blend;
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
/// Most seeds heard whose every coalition is scored at every epoch; when an episode ends it is as many as values are exact for.
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

impl Choice {
    /// By what each head chose, in the order of heads.
    pub fn of(head: impl Fn(usize) -> usize) -> Self {
        let [op, slot, blueprint, style, tempo, target, speed, curve] = std::array::from_fn(head);
        Self { op, slot, blueprint, style, tempo, target, speed, curve }
    }
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
    /// Whether samples to train on are moved and turned by chance.
    pub augment: bool,
    /// Whether envs whose episodes have the same number begin them with the same host.
    pub same_host: bool,
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
    /// Its parameters, without a gate's.
    pub parameters: usize,
    /// Validation accuracy when it came, in points.
    pub accuracy_then: f32,
}

impl Planted {
    /// As the network has it.
    pub(super) fn seed(&self, detached: bool) -> Seed {
        Seed { blueprint: Blueprint::ALL[self.blueprint].0, blend: STYLES[self.style].1, detached }
    }
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
    /// Checksum of the files that it learns from; 0 where there are none.
    #[serde(default)]
    pub data: u64,
}

/// What all episodes of an env have alike.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The host.
    pub host: Host,
    /// What it learns.
    pub task: Arc<Task>,
    /// By which rules.
    pub rules: Rules,
    /// Shape of what enters each slot.
    shapes: Vec<Vec<usize>>,
    host_parameters: usize,
}

impl Frame {
    /// Plans the host once to know its sizes.
    pub fn new(host: Host, task: Arc<Task>, rules: Rules) -> Result<Arc<Self>> {
        let (shapes, host_parameters) = Topology::new(host, task.image, task.classes).sizes()?;
        Ok(Arc::new(Self { host, task, rules, shapes, host_parameters }))
    }

    /// The host without seeds.
    pub fn bare(&self) -> Topology {
        Topology::new(self.host, self.task.image, self.task.classes)
    }
}

/// What is kept of a choice until its epoch is paid.
#[derive(Debug)]
pub(super) struct Turn {
    before: Vec<Slot>,
    accuracy: f32,
    done: Option<(Op, usize)>,
}

/// An episode that goes on.
#[derive(Clone, Debug)]
pub struct Episode {
    /// All but tensors.
    pub state: State,
    pub(super) frame: Arc<Frame>,
}

impl Episode {
    /// Begins with a new host, of which nothing is measured yet.
    pub(super) fn new(frame: Arc<Frame>, seed: u64) -> Self {
        let slots = frame.host.slots();
        let state = State {
            seed,
            epoch: 0,
            births: 0,
            slots: vec![Slot::default(); slots],
            planted: vec![None; slots],
            born: vec![0; slots],
            history: Vec::new(),
            train_loss: (frame.task.classes as f32).ln(),
            interactions: 0.0,
            worth: Worth::default(),
            last: (Op::Wait, true),
            governor: Governor::default(),
            rollbacks: 0,
            ledger: Ledger::default(),
            parts: Parts::default(),
            happened: Vec::new(),
            data: frame.task.digest,
        };
        Self { state, frame }
    }

    /// What grows.
    pub fn host(&self) -> Host {
        self.frame.host
    }

    /// Validation accuracy, in points.
    pub fn accuracy(&self) -> f32 {
        self.state.history.last().map_or(0.0, |[_, accuracy]| *accuracy)
    }

    /// Validation loss, in nats.
    pub fn loss(&self) -> f32 {
        self.state.history.last().map_or((self.frame.task.classes as f32).ln(), |[loss, _]| *loss)
    }

    /// Parameters of all seeds, with the gates of those that have one.
    pub fn seed_parameters(&self) -> usize {
        self.sum_parameters(|planted| STYLES[planted.style].1 == Blend::Gate)
    }

    /// Parameters of all seeds with the gates of some.
    fn sum_parameters(&self, gated: impl Fn(&Planted) -> bool) -> usize {
        let gate = |slot: usize| gate_parameters(&self.frame.shapes[slot], self.frame.host);
        let planted = self.state.planted.iter().enumerate().filter_map(|(slot, of)| Some((slot, of.as_ref()?)));
        planted.map(|(slot, of)| of.parameters + if gated(of) { gate(slot) } else { 0 }).sum()
    }

    /// Parameters that a blueprint would have in a slot, if it fits there and into the budget, which has to do whatever seeds are given
    /// a gate later.
    fn affordable(&self, slot: usize, blueprint: Blueprint) -> Option<usize> {
        let parameters = blueprint.parameters(&self.frame.shapes[slot]).ok()?;
        let most = self.sum_parameters(|_| true) + gate_parameters(&self.frame.shapes[slot], self.frame.host);
        (most + parameters <= self.frame.rules.max_parameters as usize).then_some(parameters)
    }

    /// Which slots allow an operation.
    pub fn allowed(&self, op: Op) -> Vec<bool> {
        let any = |slot: usize| self.blueprints(slot).any(|fits| fits);
        let slots = allowed(&self.state.slots, op, &self.frame.rules.gates).enumerate();
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

    /// Takes a seed out of the network and forgets it.
    fn uproot(&mut self, slot: usize, bodies: &mut dyn Bodies, place: usize) -> Result<()> {
        self.state.planted[slot] = None;
        bodies.prune(place, slot)
    }

    /// Does what was chosen, if the slot allows it.
    fn apply(&mut self, choice: &Choice, bodies: &mut dyn Bodies, place: usize) -> Result<bool> {
        let op = Op::ALL[choice.op % Op::ALL.len()].0;
        let slot = choice.slot % self.state.slots.len();
        if !self.allowed(op)[slot] {
            return Ok(false);
        }
        let curve = Curve::ALL[choice.curve % Curve::ALL.len()];
        let ticks = SPEEDS[choice.speed % SPEEDS.len()];
        match op {
            Op::Wait => {}
            Op::Germinate => {
                let style = choice.style % STYLES.len();
                let (blueprint, _) = Blueprint::ALL[choice.blueprint % Blueprint::ALL.len()];
                let Some(parameters) = self.affordable(slot, blueprint).filter(|_| blueprint != Blueprint::Noop) else {
                    return Ok(false);
                };
                let planted =
                    Planted { blueprint: blueprint.index(), style, parameters, accuracy_then: self.accuracy() };
                let seed = Seed { blueprint, blend: STYLES[style].1, detached: true };
                self.state.births += 1;
                let number = self.state.seed.wrapping_add(self.state.births);
                bodies.germinate(place, slot, seed, number)?;
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
                    bodies.reshape(place, slot, planted.seed(false))?;
                }
                self.state.slots[slot].alpha.retarget(TARGETS[choice.target % TARGETS.len()], ticks, curve);
            }
            Op::Prune => {
                let of = &mut self.state.slots[slot];
                if ticks == 0 || of.alpha.value == 0.0 {
                    let from = of.stage;
                    of.remove();
                    self.note(slot, from);
                    self.uproot(slot, bodies, place)?;
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
                    bodies.reshape(place, slot, planted.seed(false))?;
                }
            }
            Op::Advance => self.go(slot, Stage::Holding),
        }
        Ok(true)
    }

    /// What was chosen, and what a new epoch brings with it before the host trains.
    pub(super) fn act(&mut self, choice: &Choice, bodies: &mut dyn Bodies, place: usize) -> Result<Turn> {
        self.state.happened.clear();
        let (before, accuracy) = (self.state.slots.clone(), self.accuracy());
        let op = Op::ALL[choice.op % Op::ALL.len()].0;
        let slot = choice.slot % self.state.slots.len();
        let done = self.apply(choice, bodies, place)?;
        self.state.last = (op, done);
        for slot in 0..self.state.slots.len() {
            let from = self.state.slots[slot].stage;
            let out = self.state.slots[slot].tick(&self.frame.rules.gates);
            self.note(slot, from);
            if out {
                self.uproot(slot, bodies, place)?;
            }
            bodies.set_alpha(place, slot, self.state.slots[slot].alpha.value);
        }
        self.state.epoch += 1;
        Ok(Turn { before, accuracy, done: done.then_some((op, slot)) })
    }

    /// The samples of the epoch.
    pub(super) fn lesson(&self, place: usize) -> Lesson {
        Lesson::new(place, &self.frame, self.state.seed, self.state.epoch)
    }

    /// What the epoch of training found.
    pub(super) fn learned(&mut self, trained: &Trained) {
        self.state.train_loss = trained.loss;
    }

    /// α of every slot without those of the seeds heard that are not in a coalition.
    fn alphas_of(&self, heard: &[usize], coalition: u32) -> Vec<f32> {
        let mut alphas: Vec<f32> = self.state.slots.iter().map(|slot| slot.alpha.value).collect();
        for (i, &slot) in heard.iter().enumerate() {
            if coalition >> i & 1 == 0 {
                alphas[slot] = 0.0;
            }
        }
        alphas
    }

    /// Whether the last epoch is over.
    fn has_ended(&self) -> bool {
        self.state.epoch >= self.frame.rules.epochs
    }

    /// Most seeds heard whose every coalition is scored now.
    fn tabled(&self) -> usize {
        if self.has_ended() { attribution::EXACT } else { TABLED }
    }

    /// At the end of an episode in which more seeds are heard than a table is made of: draws what each is worth.
    pub(super) fn draw_worth(&mut self, mut score: impl FnMut(Vec<f32>) -> Result<Score>) -> Result<()> {
        let heard = self.heard();
        if heard.len() <= self.tabled() || !self.has_ended() {
            return Ok(());
        }
        let mut failure = None;
        let points = |coalition| match score(self.alphas_of(&heard, coalition)) {
            Ok(score) => f64::from(100.0 * score.accuracy),
            Err(error) => {
                failure.get_or_insert(error);
                0.0
            }
        };
        let drawn = attribution::permutations(heard.len(), DRAWN.0, DRAWN.1, self.state.seed, points);
        self.state.worth = Worth::drawn(&heard, &drawn);
        failure.map_or(Ok(()), Err)
    }

    /// α of every slot under which the network is to be scored: first as it is, then without those seeds of each coalition that are not in it.
    pub(super) fn asks(&self) -> Vec<Vec<f32>> {
        let heard = self.heard();
        let n = heard.len();
        let all = (1u32 << n) - 1;
        let of = |coalition: u32| self.alphas_of(&heard, coalition);
        let table = n <= self.tabled();
        let others: Vec<u32> = if table { (0..all).collect() } else { (0..n).map(|i| all & !(1 << i)).collect() };
        std::iter::once(all).chain(others).map(of).collect()
    }

    /// Takes the scores that were asked for, and sizes of the last gradients (of the host, then of each slot's seed) if they are of
    /// the network as it is.
    pub(super) fn judged(&mut self, scores: &[Score], sizes: Option<&[f32]>) {
        let heard = self.heard();
        let n = heard.len();
        let (now, others) = (scores[0], &scores[1..]);
        let accuracy = 100.0 * now.accuracy;
        let points = |score: &Score| f64::from(100.0 * score.accuracy);
        let (mut contributions, mut interactions, mut worth) = (Vec::new(), Vec::new(), Worth::default());
        if n <= self.tabled() {
            let table: Vec<f64> = others.iter().map(points).chain([f64::from(accuracy)]).collect();
            contributions = attribution::contributions(&table);
            worth = Worth::exact(&heard, &table);
            // What is seen and paid for does not depend on whether an episode ends.
            let seen = if n <= TABLED { n } else { 0 };
            for i in 0..seen {
                for j in (0..n).filter(|&j| j != i) {
                    interactions.push((i, attribution::interaction(&table, i, j) as f32));
                }
            }
        } else {
            contributions.extend(others.iter().map(|score| f64::from(accuracy - 100.0 * score.accuracy)));
        }
        self.state.worth = worth;
        // A loss that is no number is for the governor to see; what is remembered stays a number.
        self.state.history.push([if now.loss.is_finite() { now.loss.min(1e6) } else { 1e6 }, accuracy]);
        if self.state.history.len() > HISTORY {
            self.state.history.remove(0);
        }
        // Each pair is there from both sides.
        self.state.interactions = 0.5 * interactions.iter().map(|(_, points)| points).sum::<f32>();
        let size = |owner: usize| sizes.map_or(0.0, |sizes| sizes[owner]);
        let host = size(0);
        for (slot, of) in self.state.slots.iter_mut().enumerate() {
            let m = &mut of.measured;
            let Some(planted) = self.state.planted[slot] else { continue };
            m.improvement = Some(accuracy - planted.accuracy_then);
            let known = self.state.epoch > self.state.born[slot] && host > 0.0 && size(1 + slot) > 0.0;
            m.note_gradient(known.then(|| size(1 + slot) / host));
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

    /// Lets the governor look at an epoch: why the host must be set back, if it must.
    pub(super) fn look(&mut self, finite: bool) -> Option<Panic> {
        let loss = self.loss();
        self.state.governor.look(loss, finite && loss < 1e6, self.frame.task.classes)
    }

    /// Sets the host back: weights of the last good snapshot, and every seed that is not kept goes. What was measured is void.
    pub(super) fn set_back(&mut self, panic: Panic, bodies: &mut dyn Bodies, place: usize) -> Result<()> {
        for slot in 0..self.state.slots.len() {
            if self.state.slots[slot].stage.is_live() {
                let from = self.state.slots[slot].stage;
                self.state.slots[slot].remove();
                self.note(slot, from);
                self.uproot(slot, bodies, place)?;
            }
        }
        bodies.roll_back(place)?;
        self.state.rollbacks += 1;
        self.state.happened.push(Happened::Rollback(panic));
        self.state.history.pop();
        Ok(())
    }

    /// The reward of an epoch, and whether the episode is over.
    pub(super) fn pay(&mut self, turn: &Turn, rolled_back: bool) -> (f32, bool) {
        let rules = &self.frame.rules;
        let last = self.state.epoch >= rules.epochs;
        let epoch = Epoch {
            before: &turn.before,
            after: &self.state.slots,
            born: &self.state.born,
            done: turn.done,
            accuracy: [turn.accuracy, self.accuracy()],
            parameters: [self.frame.host_parameters, self.seed_parameters()],
            interactions: self.state.interactions,
            gamma: rules.gamma,
            last,
            rolled_back,
        };
        let mut ledger = self.state.ledger;
        let parts = epoch.reward(rules.reward, &mut ledger);
        (self.state.ledger, self.state.parts) = (ledger, parts);
        (parts.total(), last)
    }

    /// Trainable numbers of the host.
    pub fn host_parameters(&self) -> usize {
        self.frame.host_parameters
    }

    /// Slots whose seeds are heard.
    pub fn heard(&self) -> Vec<usize> {
        (0..self.state.slots.len()).filter(|&slot| self.state.slots[slot].alpha.value > 0.0).collect()
    }
}
