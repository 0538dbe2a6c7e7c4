//! The learner: batches of positions, one step of the optimiser each.

use super::samples::{KEPT, Sample, Window};
use super::settings::Settings;
use crate::algo::{Parts, part};
use crate::env::game::{Game, Turn};
use crate::error::{Error, Result};
use crate::lanes::Backend;
use crate::lanes::rng::HostRng;
use crate::nn::nets::Architecture;
use crate::nn::{Feed, Gradients, Method, Node, Optimizer, Options, Params, Plan, Wanted};
use crate::search::game_net::{self, Shared};
use crate::search::policy::{Choice, Share};
use std::time::Instant;

/// What an iteration of learning found.
#[derive(Clone, Copy, Debug)]
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
    pub(super) diverged: Option<&'static str>,
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
    /// `[B, O]`, `[B, POLICY]`, `[B, POLICY]`, `[B, HEADS]`
    obs: Vec<f32>,
    policy: Vec<f32>,
    legal: Vec<f32>,
    heads: Vec<f32>,
    room: G::Room,
    found: Vec<G::Action>,
    /// The same in an image of the state.
    imaged: Vec<G::Action>,
    shares: Vec<Share>,
    /// Rows of the batch that a teacher valued.
    taught: Vec<usize>,
    /// Mean surprise of what was drawn, summed over updates.
    drawn: f64,
    learned: Learned,
}

/// Sets draws of batches apart from all else with the same seed.
const BATCHES: u64 = 0x6261_7463_0000_0000;

impl<G: Game> Learner<G> {
    pub(super) fn new(settings: &Settings, architecture: &Architecture, options: &Options) -> Result<Self> {
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
            obs: vec![0.0; size * G::OBSERVATION],
            policy: vec![0.0; size * G::POLICY],
            legal: vec![0.0; size * G::POLICY],
            heads: vec![0.0; size * G::HEADS],
            room: G::Room::default(),
            found: Vec::with_capacity(4096),
            imaged: Vec::with_capacity(4096),
            shares: Vec::with_capacity(KEPT),
            taught: Vec::with_capacity(size),
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
            },
            params,
        })
    }

    pub(super) fn params(&self) -> &Params {
        &self.params
    }

    pub(super) fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    pub(super) fn learned(&self) -> Learned {
        self.learned
    }

    pub(super) fn window_len(&self) -> usize {
        self.window.len()
    }

    /// Updates so far.
    pub(super) fn updates(&self) -> u64 {
        self.updates
    }

    /// A position that is to be learned from so many times, on average.
    pub(super) fn add(&mut self, sample: &Sample<G>, times: f64) {
        self.window.push(*sample);
        self.owed += times * G::HEADS as f64 / self.heads.len() as f64;
    }

    /// As many updates as positions so far are worth.
    pub(super) fn learn(&mut self, settings: &Settings, shared: &Shared, rate: f32) {
        let begun = Instant::now();
        let (mut sums, mut updates, mut diverged) = ([0.0; 3], 0, None);
        let mut errors = [0.0; 2];
        let ready = self.window.len() > 0 && self.window.len() >= settings.learning_starts;
        while ready && self.owed >= 1.0 && diverged.is_none() {
            self.owed -= 1.0;
            let decisions = self.gather(settings.priority);
            let feeds = [&self.obs, &self.policy, &self.legal, &self.heads].map(|column| Feed::Real(column));
            let rows = settings.batch_size;
            let outcome = self.plan.train(&self.params, rows, &feeds, 1.0, Gradients::Replace);
            let step = self.optimizer.step(&mut self.params, self.plan.gradients(), rate);
            if !outcome.finite || !step.finite {
                diverged = Some(if outcome.finite { "the gradient" } else { "the loss" });
            }
            // A batch without decisions has no policy to learn: its loss is 0, not NaN.
            debug_assert!(decisions > 0 || self.mean(0) == 0.0);
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
        };
    }

    fn mean(&self, loss: usize) -> f64 {
        self.plan.metric(self.losses[loss]).sum()
    }

    /// Sum over rows that a teacher valued of the points by which the network differed before it learned from them, and their number.
    fn teacher_error(&self) -> [f64; 2] {
        let values = self.plan.output(self.value);
        let error = |&row: &usize| {
            let range = row * G::HEADS..(row + 1) * G::HEADS;
            f64::from((game_net::points::<G>(&values[range.clone()]) - G::value_of(&self.heads[range])).abs())
        };
        [self.taught.iter().map(error).sum(), self.taught.len() as f64]
    }

    /// Fills a batch with positions drawn from the window, each in one of its images; tells how many are decisions. A policy's
    /// target is scaled so that its mean loss is one over decisions alone.
    fn gather(&mut self, priority: f32) -> usize {
        let rows = self.heads.len() / G::HEADS;
        let (low, high) = (self.updates as u32, (self.updates >> 32) as u32);
        let mut rng = HostRng::new(self.seed ^ BATCHES, low, high, 0);
        let mut decisions = 0;
        self.taught.clear();
        for row in 0..rows {
            let sample = self.window.draw(priority, &mut rng);
            self.drawn += f64::from(sample.surprise) / rows as f64;
            let symmetry = if G::SYMMETRIES > 1 { rng.below(G::SYMMETRIES as u32) as usize } else { 0 };
            let state = G::image(&sample.state, symmetry);
            G::observe(&state, &mut self.obs[row * G::OBSERVATION..][..G::OBSERVATION]);
            let heads = &mut self.heads[row * G::HEADS..][..G::HEADS];
            match sample.taught {
                Some(taught) => {
                    heads.copy_from_slice(&taught[..G::HEADS]);
                    self.taught.push(row);
                }
                None => G::heads_of(sample.points, heads),
            }
            let policy = &mut self.policy[row * G::POLICY..][..G::POLICY];
            let legal = &mut self.legal[row * G::POLICY..][..G::POLICY];
            policy.fill(0.0);
            if G::turn(&state) != Turn::Decision || sample.kept == 0 {
                legal.fill(1.0);
                continue;
            }
            decisions += 1;
            legal.fill(0.0);
            G::actions(&sample.state, &mut self.room, &mut self.found);
            if symmetry > 0 {
                // An action's image is the action of the image that leads to the image of what it leads to.
                G::actions(&state, &mut self.room, &mut self.imaged);
                for action in &mut self.found {
                    let after = G::image(&G::after(&sample.state, action), symmetry);
                    let image = self.imaged.iter().find(|image| G::after(&state, image) == after);
                    *action = *image.unwrap_or(action);
                }
            }
            self.shares.clear();
            self.shares.extend(
                sample.policy[..usize::from(sample.kept)]
                    .iter()
                    .map(|&(action, share)| (G::policy_index(&state, &self.found[usize::from(action)]), share)),
            );
            let choice = Choice::draw(&self.shares, &mut rng);
            for action in &self.found {
                if let Some(output) = choice.output(G::policy_index(&state, action)) {
                    legal[output] = 1.0;
                }
            }
            choice.add_target(&self.shares, policy);
        }
        if decisions > 0 && decisions < rows {
            let scale = rows as f32 / decisions as f32;
            self.policy.iter_mut().for_each(|share| *share *= scale);
        }
        decisions
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

    pub(super) fn load(&mut self, parts: &Parts, state: &serde_json::Value) -> Result<()> {
        let damaged = || Error::Saved("checkpoint's alphazero.json does not fit this run; take another".into());
        self.updates = state["updates"].as_u64().ok_or_else(damaged)?;
        let bits = state["owed"].as_str().and_then(|text| u64::from_str_radix(text, 16).ok());
        self.owed = f64::from_bits(bits.ok_or_else(damaged)?);
        self.params.from_bytes(part(parts, "network.safetensors")?)?;
        self.optimizer.from_bytes(part(parts, "optimizer.safetensors")?)?;
        self.window.load(part(parts, "replay.bin")?)
    }
}
