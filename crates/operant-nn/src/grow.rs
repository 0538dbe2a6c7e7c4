//! Networks that grow: a host with slots, small modules (seeds) trained in them, blended in, kept or taken out.
//!
//! A [`Grown`] network is planned for its topology; surgery plans anew and carries parameters and the optimiser's memory by
//! name. Invariants: with every α at 0 the results are the host's to the bit; a seed that trains behind a detached input
//! changes no gradient of the host; taking a seed out gives back the host's function.

mod blueprint;
mod group;
mod host;

pub use blueprint::Blueprint;
pub use group::{GrownGroup, Samples, Task, Trained, group_source};
pub use host::{HOSTS, Host};

use super::ops::Blend;
use super::{Feed, Gradients, Graph, Method, Node, Optimizer, Options, Params, Plan, Wanted};
use operant_base::{Error, Result};
use operant_lanes::Backend;

/// A seed in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    /// What it is.
    pub blueprint: Blueprint,
    /// How it is blended in.
    pub blend: Blend,
    /// Whether gradients stop at its input: then the host trains as if it were not there while α is 0.
    pub detached: bool,
}

/// What a network is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The host.
    pub host: Host,
    /// Height, width and channels of images; of texts their length, 1 and 1.
    pub image: [usize; 3],
    /// Classes; of texts the kinds of tokens.
    pub classes: usize,
    /// The seed of each slot.
    pub seeds: Vec<Option<Seed>>,
}

/// A topology as graph: its inputs are images or tokens, one α per seed in the order of slots, and targets (for the loss).
#[derive(Debug)]
struct Built {
    graph: Graph,
    logits: Node,
    /// Shape of what enters each slot.
    shapes: Vec<Vec<usize>>,
}

impl Topology {
    /// A host without seeds.
    pub fn new(host: Host, image: [usize; 3], classes: usize) -> Self {
        Self { host, image, classes, seeds: vec![None; host.slots()] }
    }

    /// Targets of a sample: its class, or the next token at every place.
    pub fn targets(&self) -> usize {
        if self.host.reads_tokens() { self.image[0] } else { 1 }
    }

    /// Shapes of what enters slots, and trainable numbers of the host.
    pub fn sizes(&self) -> Result<(Vec<Vec<usize>>, usize)> {
        let built = self.build()?;
        let params = built.graph.params(0)?;
        let host = params.specs().iter().filter(|spec| spec.trainable && spec.name.starts_with("host."));
        Ok((built.shapes, host.map(|spec| spec.count()).sum()))
    }

    fn build(&self) -> Result<Built> {
        let mut g = Graph::new();
        let images = if self.host.reads_tokens() {
            g.input_ints("tokens", self.image[..1].to_vec())
        } else {
            g.input("images", self.image.to_vec())
        };
        let alphas: Vec<Option<Node>> = self
            .seeds
            .iter()
            .enumerate()
            .map(|(slot, seed)| seed.map(|_| g.input_whole(&format!("alpha of slot {slot}"), [1])))
            .collect();
        let mut shapes = Vec::new();
        let mut fill = |g: &mut Graph, slot: usize, h: Node| {
            shapes.push(g.shape(h).to_vec());
            let (Some(seed), Some(alpha)) = (self.seeds[slot], alphas[slot]) else { return Ok(h) };
            let x = if seed.detached { g.detach(h)? } else { h };
            let grown = seed.blueprint.add(g, &prefix(slot), x)?;
            // An op takes rows of one tensor twice only as copies: a noop's result is its input.
            let grown = if grown == x { g.scale(x, 1.0)? } else { grown };
            let third = match seed.blend {
                Blend::Add => None,
                Blend::Multiply => Some(x),
                Blend::Gate if self.host.reads_tokens() => {
                    let grown = gated_tokens(g, slot, x, grown)?;
                    return g.blend(Blend::Add, h, grown, None, alpha);
                }
                Blend::Gate => Some(gate(g, slot, x)?),
            };
            g.blend(seed.blend, h, grown, third, alpha)
        };
        let logits = self.host.add(&mut g, images, self.classes, &mut |g, slot, h, pooled| {
            let h = fill(g, slot, h)?;
            if pooled { g.max_pool(h, 2, 2, 0) } else { Ok(h) }
        })?;
        Ok(Built { graph: g, logits, shapes })
    }
}

/// Beginning of the names of a slot's parameters.
fn prefix(slot: usize) -> String {
    format!("seed.{slot}")
}

/// A learned factor of each sample between 0 and 1, `[B, 1]`: the sigmoid of a linear layer over the mean of all places.
fn gate(g: &mut Graph, slot: usize, x: Node) -> Result<Node> {
    let axes = g.shape(x).len() - 1;
    let mean = if axes == 2 { g.global_average_pool(x)? } else { g.mean(x, axes)? };
    let logit = g.linear(&format!("{}.gate", prefix(slot)), mean, 1)?;
    g.sigmoid(logit)
}

/// Numbers that a gate has over a tensor of this shape in such a host.
pub fn gate_parameters(shape: &[usize], host: Host) -> usize {
    let channels = shape.last().copied().unwrap_or(1);
    if host.reads_tokens() { channels * (channels + 1) } else { channels + 1 }
}

/// x + g·(seed − x) with a learned factor g of every channel at every place, the sigmoid of a linear layer: a mean over places, as
/// [`gate`] takes it, would tell what comes later.
fn gated_tokens(g: &mut Graph, slot: usize, x: Node, seed: Node) -> Result<Node> {
    let channels = *g.shape(x).last().unwrap_or(&1);
    let logits = g.linear(&format!("{}.gate", prefix(slot)), x, channels)?;
    let factors = g.sigmoid(logits)?;
    let change = g.sub(seed, x)?;
    let change = g.mul(change, factors)?;
    g.add(x, change)
}

/// How a network learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Most samples of a minibatch.
    pub batch: usize,
    /// Step size.
    pub learning_rate: f32,
    /// The optimiser.
    pub method: Method,
    /// Longest gradient that is not shortened.
    pub max_grad_norm: f32,
}

impl Default for Training {
    /// SGD with momentum 0.9, weight decay 5e-4, step 0.05, minibatches of 128.
    fn default() -> Self {
        let method = Method::Sgd { momentum: 0.9, nesterov: false, weight_decay: 5e-4 };
        Self { batch: 128, learning_rate: 0.05, method, max_grad_norm: 5.0 }
    }
}

/// Loss and share of right answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Mean cross-entropy, in nats.
    pub loss: f32,
    /// Share of targets that are the class of the largest logit.
    pub accuracy: f32,
}

/// Everything about a network that training changes: what a snapshot or a file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// Tensors: name, values, the optimiser's two memories of it (empty where it has none).
    pub tensors: Vec<(String, [Vec<f32>; 3])>,
    /// Steps of the optimiser.
    pub steps: u64,
}

/// A network of some topology, with its optimiser and plans.
#[derive(Debug)]
pub struct Grown {
    topology: Topology,
    training: Training,
    shapes: Vec<Vec<usize>>,
    params: Params,
    optimizer: Optimizer,
    trainer: Plan,
    trained_logits: Node,
    judge: Plan,
    judged_logits: Node,
    /// α of each slot; 0 where there is no seed.
    alphas: Vec<f32>,
    /// Tokens of a minibatch.
    tokens: Vec<i32>,
}

impl Grown {
    /// A network with its first weights. The same seed gives the same.
    pub fn new(topology: Topology, training: Training, seed: u64) -> Result<Self> {
        let slots = topology.seeds.len();
        if slots != topology.host.slots() {
            let wanted = topology.host.slots();
            return Err(Error::Invalid(format!("{slots} slots for host {}: wanted {wanted}", topology.host.name)));
        }
        let built = topology.build()?;
        let params = built.graph.params(seed)?;
        let options = Options { seed, ..Options::default() };
        let judge = Plan::inference(&built.graph, &[built.logits], training.batch, &options)?;
        let mut graph = built.graph.clone();
        let tokens = topology.host.reads_tokens().then_some(topology.targets());
        let target = graph.input_ints("target", Vec::from_iter(tokens));
        let mut loss = graph.cross_entropy(built.logits, target, 0.0, None)?;
        if tokens.is_some() {
            loss = graph.mean(loss, 1)?;
        }
        let wanted = Wanted { losses: vec![(loss, 1.0)], outputs: vec![built.logits], ..Wanted::default() };
        let trainer = Plan::new(&graph, &wanted, training.batch, &options)?;
        let optimizer =
            Optimizer::new(training.method, &params, Some(training.max_grad_norm), Backend::fast())?.on(&options.pool);
        Ok(Self {
            topology,
            training,
            shapes: built.shapes,
            params,
            optimizer,
            trainer,
            trained_logits: built.logits,
            judge,
            judged_logits: built.logits,
            alphas: vec![0.0; slots],
            tokens: Vec::new(),
        })
    }

    /// What it is made of.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Its tensors.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Its tensors, to be changed.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    /// Shape of what enters a slot, without the batch axis.
    pub fn slot_shape(&self, slot: usize) -> &[usize] {
        &self.shapes[slot]
    }

    /// α of each slot.
    pub fn alphas(&self) -> &[f32] {
        &self.alphas
    }

    /// Sets the α of a slot.
    pub fn set_alpha(&mut self, slot: usize, alpha: f32) {
        self.alphas[slot] = alpha;
    }

    /// Trainable numbers of the host, and of each slot's seed.
    pub fn parameters(&self) -> (usize, Vec<usize>) {
        let count = |of: &dyn Fn(&str) -> bool| {
            self.params.specs().iter().filter(|spec| spec.trainable && of(&spec.name)).map(|spec| spec.count()).sum()
        };
        let slots = (0..self.alphas.len()).map(|slot| count(&|name| belongs(name, slot))).collect();
        (count(&|name| name.starts_with("host.")), slots)
    }

    /// Puts a seed into a slot, in place of what was there; `number` draws its first weights. Its α is 0.
    pub fn germinate(&mut self, slot: usize, seed: Seed, number: u64) -> Result<()> {
        self.take_out(slot, Some(seed), number)
    }

    /// Takes the seed out of a slot: the host is again what it would be with that α at 0.
    pub fn prune(&mut self, slot: usize) -> Result<()> {
        self.take_out(slot, None, 0)
    }

    fn take_out(&mut self, slot: usize, seed: Option<Seed>, number: u64) -> Result<()> {
        let mut topology = self.topology.clone();
        topology.seeds[slot] = seed;
        let mut weights = self.weights();
        weights.tensors.retain(|(name, _)| !belongs(name, slot));
        let mut next = Self::new(topology, self.training, number)?;
        next.take(&weights)?;
        next.alphas.clone_from(&self.alphas);
        next.alphas[slot] = 0.0;
        *self = next;
        Ok(())
    }

    /// Lets gradients through the input of a slot's seed, or stops them there.
    pub fn set_detached(&mut self, slot: usize, detached: bool) -> Result<()> {
        self.topology.seeds[slot].map_or(Ok(()), |seed| self.reshape(slot, Seed { detached, ..seed }))
    }

    /// Blends a slot's seed in another way, or lets gradients through its input; its weights and α stay.
    pub fn reshape(&mut self, slot: usize, seed: Seed) -> Result<()> {
        if self.topology.seeds[slot] == Some(seed) {
            return Ok(());
        }
        let mut topology = self.topology.clone();
        topology.seeds[slot] = Some(seed);
        let mut next = Self::new(topology, self.training, 0)?;
        next.take(&self.weights())?;
        next.alphas.clone_from(&self.alphas);
        *self = next;
        Ok(())
    }

    /// All that training changes.
    pub fn weights(&self) -> Weights {
        let [first, second] = self.optimizer.moments();
        let part =
            |from: &[f32], range: std::ops::Range<usize>| if from.is_empty() { vec![] } else { from[range].to_vec() };
        let tensors = self.params.specs().iter().map(|spec| {
            let values = self.params.values()[spec.range()].to_vec();
            (spec.name.clone(), [values, part(first, spec.range()), part(second, spec.range())])
        });
        Weights { tensors: tensors.collect(), steps: self.optimizer.steps() }
    }

    /// Takes what `weights` has of this network's tensors; others stay as they are.
    pub fn take(&mut self, weights: &Weights) -> Result<()> {
        let [first, second] = self.optimizer.moments();
        let mut moments = [first.to_vec(), second.to_vec()];
        for (name, [values, kept @ ..]) in &weights.tensors {
            let Ok(range) = self.params.spec(name).map(|spec| spec.range()) else { continue };
            self.params.set(name, values)?;
            for (to, from) in moments.iter_mut().zip(kept) {
                if from.len() == range.len() && !to.is_empty() {
                    to[range.clone()].copy_from_slice(from);
                }
            }
        }
        self.optimizer.set_moments([&moments[0], &moments[1]], weights.steps);
        Ok(())
    }

    /// One step of the optimiser on a minibatch: its loss before the step, and whether loss and gradient were finite. Tokens are
    /// whole numbers among `images`.
    pub fn train(&mut self, images: &[f32], targets: &[i32]) -> (f32, bool) {
        let (rows, feeds) = minibatch(&self.topology, &self.alphas, &mut self.tokens, (images, targets));
        let (optimizer, learning_rate) = (&mut self.optimizer, self.training.learning_rate);
        let (outcome, report) = self.trainer.learn(&mut self.params, rows, feeds.all(), optimizer, learning_rate, 1.0);
        (outcome.loss, outcome.finite && report.finite)
    }

    /// Loss and gradients of a minibatch, without a step.
    pub fn gradients(&mut self, images: &[f32], targets: &[i32]) -> super::Outcome {
        let (rows, feeds) = minibatch(&self.topology, &self.alphas, &mut self.tokens, (images, targets));
        self.trainer.train(&self.params, rows, feeds.all(), 1.0, Gradients::Replace)
    }

    /// The last gradient of a tensor.
    pub fn gradient(&self, name: &str) -> Result<&[f32]> {
        Ok(&self.trainer.gradients()[self.params.spec(name)?.range()])
    }

    /// Logits of the last minibatch that was trained on.
    pub fn trained_logits(&self) -> &[f32] {
        self.trainer.output(self.trained_logits)
    }

    /// Root of the mean square of the last gradient: of the host, and of each slot's seed (0 where there is none).
    pub fn gradient_sizes(&self) -> (f32, Vec<f32>) {
        let size = |of: &dyn Fn(&str) -> bool| {
            let (mut sum, mut count) = (0.0f64, 0usize);
            for spec in self.params.specs().iter().filter(|spec| spec.trainable && of(&spec.name)) {
                let gradient = &self.trainer.gradients()[spec.range()];
                sum += gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
                count += gradient.len();
            }
            if count == 0 { 0.0 } else { (sum / count as f64).sqrt() as f32 }
        };
        let slots = (0..self.alphas.len()).map(|slot| size(&|name| belongs(name, slot))).collect();
        (size(&|name| name.starts_with("host.")), slots)
    }

    /// Logits of up to a minibatch of images with these α.
    pub fn logits(&mut self, images: &[f32], rows: usize, alphas: &[f32]) -> &[f32] {
        let first = samples(&self.topology.host, images, &mut self.tokens);
        let feeds = Feeds::new(first, &self.topology, alphas, None);
        self.judge.forward(&self.params, rows, feeds.all());
        self.judge.output(self.judged_logits)
    }

    /// Loss and accuracy over all these samples with these α.
    pub fn score(&mut self, images: &[f32], targets: &[i32], alphas: &[f32]) -> Score {
        let pixels = self.topology.image.iter().product::<usize>();
        let (mut loss, mut right) = (0.0f64, 0usize);
        let (batch, classes, per_row) = (self.training.batch, self.topology.classes, self.topology.targets());
        for (images, targets) in images.chunks(batch * pixels).zip(targets.chunks(batch * per_row)) {
            let logits = self.logits(images, targets.len() / per_row, alphas);
            for (logits, &target) in logits.chunks_exact(classes).zip(targets) {
                let (entropy, best) = cross_entropy(logits, target as usize);
                loss += entropy;
                right += usize::from(best == target as usize);
            }
        }
        let count = targets.len().max(1);
        Score { loss: (loss / count as f64) as f32, accuracy: right as f32 / count as f32 }
    }

    /// The last training minibatch's share of right answers.
    pub fn trained_accuracy(&self, targets: &[i32]) -> f32 {
        let rows = self.trained_logits().chunks_exact(self.topology.classes).zip(targets);
        let right = rows.filter(|(logits, target)| cross_entropy(logits, **target as usize).1 == **target as usize);
        right.count() as f32 / targets.len().max(1) as f32
    }
}

/// Whether a tensor is of a slot's seed.
fn belongs(name: &str, slot: usize) -> bool {
    name.strip_prefix(&prefix(slot)).is_some_and(|rest| rest.starts_with('.'))
}

/// −ln of the target's probability, and the class of the largest logit (the first of equals).
fn cross_entropy(logits: &[f32], target: usize) -> (f64, usize) {
    let mut best = 0;
    for (class, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = class;
        }
    }
    let most = f64::from(logits[best]);
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - most).exp()).sum();
    (most + sum.ln() - f64::from(logits[target]), best)
}

/// Samples as a host reads them.
fn samples<'a>(host: &Host, images: &'a [f32], tokens: &'a mut Vec<i32>) -> Feed<'a> {
    if !host.reads_tokens() {
        return Feed::Real(images);
    }
    tokens.clear();
    tokens.extend(images.iter().map(|token| *token as i32));
    Feed::Ints(tokens)
}

/// Rows of a minibatch, and what a plan is fed with.
fn minibatch<'a>(
    topology: &Topology,
    alphas: &'a [f32],
    tokens: &'a mut Vec<i32>,
    (images, targets): (&'a [f32], &'a [i32]),
) -> (usize, Feeds<'a>) {
    let samples = samples(&topology.host, images, tokens);
    (targets.len() / topology.targets(), Feeds::new(samples, topology, alphas, Some(targets)))
}

/// Most inputs of a plan: images, targets and ten α.
const MAX_FEEDS: usize = 12;

/// Inputs of a plan, on the stack.
struct Feeds<'a> {
    feeds: [Feed<'a>; MAX_FEEDS],
    used: usize,
}

impl<'a> Feeds<'a> {
    fn new(samples: Feed<'a>, topology: &Topology, alphas: &'a [f32], targets: Option<&'a [i32]>) -> Self {
        let mut feeds = Self { feeds: [Feed::Real(&[]); MAX_FEEDS], used: 0 };
        feeds.push(samples);
        for slot in (0..alphas.len()).filter(|&slot| topology.seeds[slot].is_some()) {
            feeds.push(Feed::Real(&alphas[slot..=slot]));
        }
        if let Some(targets) = targets {
            feeds.push(Feed::Ints(targets));
        }
        feeds
    }

    fn push(&mut self, feed: Feed<'a>) {
        self.feeds[self.used] = feed;
        self.used += 1;
    }

    fn all(&self) -> &[Feed<'a>] {
        &self.feeds[..self.used]
    }
}
