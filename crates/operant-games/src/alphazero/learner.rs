//! The learner: batches of positions, one step of the optimiser each.

use super::batch::Batch;
use super::gate::Gate;
use super::samples::{Sample, Window};
use super::settings::{GateName, Settings};
use crate::game::Game;
use crate::search::game_net::{self, Shared};
use operant_base::{Error, Result};
use operant_device::check_room;
use operant_lanes::Backend;
use operant_lanes::rng::HostRng;
use operant_nn::nets::Architecture;
use operant_nn::{Method, Node, Optimizer, Options, Params, Plan, Wanted};
use operant_rl::algo::{Parts, first_bad_op, part};
use std::time::Instant;

/// What an iteration of learning found.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    pub(super) updates: u64,
    /// Means over the updates; NaN if there was none.
    pub(super) policy_loss: f64,
    pub(super) value_loss: f64,
    pub(super) grad_norm: f64,
    /// Points between the network's value and the teacher's, of positions that have one.
    pub(super) teacher_error: f64,
    /// Surprise of what was drawn, as a multiple of that of all positions.
    pub(super) surprise: f64,
    pub(super) learning_rate: f64,
    pub(super) time: (Instant, Instant),
    /// What was not finite.
    pub(super) diverged: Option<String>,
    /// Whether what was learned plays from now on; nothing if it was not weighed.
    pub(super) promoted: Option<bool>,
    /// Loss of the weights that play on positions that are held back.
    pub(super) held_back_loss: f64,
}

/// Network, optimiser, and positions to learn from.
pub(super) struct Learner<G: Game> {
    params: Params,
    optimizer: Optimizer,
    plan: Plan,
    losses: [Node; 2],
    value: Node,
    window: Window<G>,
    /// Updates so far, and those that positions so far are worth and that were not done.
    updates: u64,
    owed: f64,
    seed: u64,
    batch: Batch<G>,
    /// What decides who plays, if not the weights that learned last.
    gate: Option<Gate<G>>,
    /// Mean surprise of what was drawn, summed over updates.
    drawn: f64,
    learned: Learned,
}

/// Parts of a checkpoint where weights that learn and those that play may differ.
const LEARNING: &str = "learning.safetensors";
const GATE: &str = "gate.bin";
/// Sets draws of batches apart from all else with the same seed.
const BATCHES: u64 = 0x6261_7463_0000_0000;

impl<G: Game> Learner<G> {
    pub(super) fn new(settings: &Settings, architecture: &Architecture, options: &Options) -> Result<Self> {
        let window = format!("a window of alphazero.window {}", settings.window);
        check_room(&window, Window::<G>::bytes(settings.window), "lower alphazero.window")?;
        let net = architecture.build()?;
        let mut graph = net.graph;
        let node = |name: &str| net.outputs.iter().find(|(other, _)| *other == name).map(|(_, node)| *node);
        let (Some(logits), Some(value)) = (node("logits"), node("value")) else {
            return Err(Error::Invalid("a network without logits and value: wanted a residual one".into()));
        };
        let params = graph.params(options.seed)?;
        let target = graph.input("policy", [G::POLICY]);
        let legal = graph.input("legal", [G::POLICY]);
        let heads = graph.input("heads", [G::HEADS]);
        let policy_loss = graph.soft_cross_entropy(logits, target, Some(legal))?;
        let value_loss = super::value_loss::<G>(&mut graph, value, heads)?;
        let wanted = Wanted {
            losses: vec![(policy_loss, 1.0), (value_loss, settings.value_weight)],
            metrics: vec![policy_loss, value_loss],
            outputs: vec![value],
        };
        let size = settings.batch_size;
        let max_norm = (settings.max_grad_norm > 0.0).then_some(settings.max_grad_norm as f32);
        let method = Method::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: settings.weight_decay };
        let now = Instant::now();
        Ok(Self {
            plan: Plan::new(&graph, &wanted, size, options)?,
            optimizer: Optimizer::new(method, &params, max_norm, Backend::fast())?,
            losses: [policy_loss, value_loss],
            value,
            window: Window::new(settings.window, settings.priority > 0.0),
            updates: 0,
            owed: 0.0,
            seed: options.seed,
            batch: Batch::new(size),
            gate: match settings.gate {
                GateName::Off => None,
                GateName::Loss => Some(Gate::new(settings, &graph, [policy_loss, value_loss], &params, options)?),
            },
            drawn: 0.0,
            learned: Learned {
                updates: 0,
                policy_loss: f64::NAN,
                value_loss: f64::NAN,
                grad_norm: f64::NAN,
                teacher_error: f64::NAN,
                surprise: f64::NAN,
                learning_rate: f64::NAN,
                time: (now, now),
                diverged: None,
                promoted: None,
                held_back_loss: f64::NAN,
            },
            params,
        })
    }

    /// The weights that play.
    pub(super) fn playing(&self) -> &Params {
        self.gate.as_ref().map_or(&self.params, Gate::in_use)
    }

    pub(super) fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    pub(super) fn learned(&self) -> Learned {
        self.learned.clone()
    }

    pub(super) fn window_len(&self) -> usize {
        self.window.len()
    }

    /// Updates so far.
    pub(super) fn updates(&self) -> u64 {
        self.updates
    }

    /// A position of a game at this place, which is to be learned from so many times, on average, if it is not held back.
    pub(super) fn add(&mut self, place: u32, sample: &Sample<G>, times: f64) {
        if self.gate.as_mut().is_some_and(|gate| gate.keeps(place, sample)) {
            return;
        }
        self.window.push(*sample);
        self.owed += times / self.batch.size() as f64;
    }

    /// As many updates as positions so far are worth.
    pub(super) fn learn(&mut self, settings: &Settings, shared: &Shared, rate: f32) {
        let begun = Instant::now();
        let (mut sums, mut updates, mut diverged) = ([0.0; 3], 0, None);
        let mut errors = [0.0; 2];
        let ready = self.window.len() > 0 && self.window.len() >= settings.learning_starts;
        while ready && self.owed >= 1.0 && diverged.is_none() {
            self.owed -= 1.0;
            self.gather(settings.priority);
            let (feeds, rows) = self.batch.feeds();
            let (outcome, step) = self.plan.learn(&mut self.params, rows, &feeds, &mut self.optimizer, rate, 1.0);
            if !outcome.finite || !step.finite {
                let what = if outcome.finite { "the gradient" } else { "the loss" };
                let place = first_bad_op(&mut self.plan, &self.params, rows, &feeds);
                diverged = Some(format!("{what} is not finite{place}"));
            }
            // A batch without decisions has no policy to learn: its loss is 0, not NaN.
            debug_assert!(self.batch.decisions() > 0 || self.mean(0) == 0.0);
            for (sum, x) in errors.iter_mut().zip(self.teacher_error()) {
                *sum += x;
            }
            for (sum, x) in sums.iter_mut().zip([self.mean(0), self.mean(1), f64::from(step.grad_norm)]) {
                *sum += x;
            }
            updates += 1;
            self.updates += 1;
            if settings.publish_every > 0 && self.updates.is_multiple_of(settings.publish_every) {
                shared.publish(&self.params);
            }
        }
        let [policy_loss, value_loss, grad_norm] =
            sums.map(|sum| if updates > 0 { sum / updates as f64 } else { f64::NAN });
        let gate = self.gate.as_mut().filter(|_| updates > 0);
        let promoted = gate.map(|gate| gate.promotes(&self.params));
        let surprise = std::mem::take(&mut self.drawn) / updates as f64 / self.window.mean_surprise();
        let time = (begun, Instant::now());
        self.learned = Learned {
            updates,
            policy_loss,
            value_loss,
            grad_norm,
            // Nothing divided by nothing is NaN: not known this time.
            teacher_error: errors[0] / errors[1],
            surprise,
            learning_rate: f64::from(rate),
            time,
            diverged,
            promoted,
            held_back_loss: self.gate.as_ref().map_or(f64::NAN, Gate::loss),
        };
    }

    fn mean(&self, loss: usize) -> f64 {
        self.plan.metric(self.losses[loss]).sum()
    }

    /// Sum over rows that a teacher valued of the points by which the network differed before it learned from them, and their number.
    fn teacher_error(&self) -> [f64; 2] {
        let values = self.plan.output(self.value);
        let error = |&row: &usize| {
            let value = game_net::points::<G>(&values[row * G::HEADS..][..G::HEADS]);
            f64::from((value - G::value_of(self.batch.heads(row))).abs())
        };
        [self.batch.taught().iter().map(error).sum(), self.batch.taught().len() as f64]
    }

    /// Fills a batch with positions drawn from the window.
    fn gather(&mut self, priority: f32) {
        let (low, high) = (self.updates as u32, (self.updates >> 32) as u32);
        let mut rng = HostRng::new(self.seed ^ BATCHES, low, high, 0);
        let rows = self.batch.size();
        self.batch.clear();
        for _ in 0..rows {
            let sample = self.window.draw(priority, &mut rng);
            self.drawn += f64::from(sample.surprise) / rows as f64;
            self.batch.add(sample, &mut rng);
        }
    }

    /// What a checkpoint keeps beside weights and positions.
    pub(super) fn state(&self) -> String {
        format!("{{\"updates\":{},\"owed\":\"{:016x}\"}}", self.updates, self.owed.to_bits())
    }

    pub(super) fn optimizer_bytes(&self) -> Vec<u8> {
        self.optimizer.to_bytes()
    }

    pub(super) fn window_bytes(&self) -> Vec<u8> {
        self.window.to_bytes()
    }

    /// Parts of a checkpoint that a gate needs.
    pub(super) fn gate_parts(&self, to_bytes: impl Fn(&Params) -> Vec<u8>) -> Parts {
        let parts = self.gate.iter().flat_map(|gate| [(LEARNING, to_bytes(&self.params)), (GATE, gate.to_bytes())]);
        parts.map(|(name, bytes)| (name.to_owned(), bytes)).collect()
    }

    pub(super) fn load(&mut self, parts: &Parts, state: &serde_json::Value) -> Result<()> {
        let damaged = || Error::Saved("checkpoint's alphazero.json does not fit this run; take another".into());
        self.updates = state["updates"].as_u64().ok_or_else(damaged)?;
        let bits = state["owed"].as_str().and_then(|text| u64::from_str_radix(text, 16).ok());
        self.owed = f64::from_bits(bits.ok_or_else(damaged)?);
        let playing = part(parts, "network.safetensors")?;
        let learning = match &mut self.gate {
            Some(gate) => {
                gate.load(playing, part(parts, GATE)?)?;
                part(parts, LEARNING)?
            }
            None => playing,
        };
        self.params.from_bytes(learning)?;
        self.optimizer.from_bytes(part(parts, "optimizer.safetensors")?)?;
        self.window.load(part(parts, "replay.bin")?)
    }
}
