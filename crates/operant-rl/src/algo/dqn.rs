//! Deep Q-learning (Mnih et al., "Human-level control through deep reinforcement learning", 2015) with the parts of
//! Rainbow (Hessel et al., arXiv:1710.02298), each to be turned on or off, and the names of CleanRL's `dqn.py`.
//!
//! One iteration: T steps of N envs, and after every step as many updates as the replay ratio owes. Nothing is allocated
//! after [`Dqn::new`], save by an env whose parameter a curriculum changes.

mod explore;
mod noise;
mod settings;
mod unseen;

pub use settings::{LossName, OptimizerName, Settings};

use super::curriculum::{self, Curriculum};
use super::gradients::GradientStatistics;
use super::policy::{Head, OBS_LIMIT, Policy};
use super::saved::{damaged, load_env, load_running, load_scale, to_bits};
use super::train_and_step::{first_bad_op, train_and_step};
use super::{Algorithm, Build, Ended, Entry, Parts, Phase, Report, part};
use crate::data::{Experience, Replay, ReplayShape, Running, SampleDraws, Samples};
use explore::{Repeats, allowed, any, best};
use noise::{Noise, Purpose};
use operant_base::config::{self, Table};
use operant_base::telemetry::Metric;
use operant_base::{Error, Result};
use operant_device::check_room;
use operant_env::Unfit;
use operant_env::{ActionSpace, Actions, RowBuf, Seeds, VecEnv};
use operant_lanes::Backend;
use operant_lanes::rng::HostRng;
use operant_nn::nets::{ActionValue, Architecture, Image};
use operant_nn::{Ema, Feed, Graph, LossScale, Metadata, Node, Optimizer, Options, Params, Plan, Precision, Wanted};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use unseen::Unseen;

/// Observation, noise of four layers, action, target, weight.
const MAX_FEEDS: usize = 12;
/// Sets random actions apart from other streams of the same seed.
const EXPLORATION: u64 = 0x6578_706c_6f72_6500;

/// DQN in the list of algorithms.
pub const ENTRY: Entry = Entry {
    name: "dqn",
    summary: "deep Q-learning: double, dueling, n-step, prioritised, noisy, quantiles; discrete and masked actions",
    defaults: config::defaults::<Settings>,
    resolve: |table| Ok(config::to_table(&read(table)?)),
    may_change: settings::MAY_CHANGE,
    has_schedules: |_| true,
    build: |build| Ok(Box::new(Dqn::new(build)?)),
    class: "DQN",
    check_gpu: None,
};

fn read(table: &Table) -> Result<Settings> {
    config::read(table, "dqn")
}

/// Reported numbers, in the order of [`METRICS`].
#[derive(Clone, Copy)]
enum Reported {
    Loss,
    Error,
    Value,
    GradNorm,
    LearningRate,
    Epsilon,
    Beta,
    Replay,
    Updates,
}

const METRICS: &[Metric] = &[
    Metric::new("loss/td", "loss of temporal differences, weighted", ""),
    Metric::new("td_error", "mean size of temporal differences", ""),
    Metric::new("q", "mean value of the actions taken", ""),
    Metric::new("grad_norm", "norm of the gradient before clipping", ""),
    Metric::new("learning_rate", "step size of the optimiser", ""),
    Metric::new("epsilon", "share of random actions", ""),
    Metric::new("beta", "exponent of importance weights", ""),
    Metric::new("replay", "samples that may be drawn", ""),
    Metric::new("updates", "steps of the optimiser", ""),
];

/// A training graph: the network, its targets and the loss.
struct Loss {
    graph: Graph,
    loss: Node,
    /// `[B, 1]` the value of the action taken.
    taken: Node,
}

fn loss_graph(network: &ActionValue, settings: &Settings) -> Result<Loss> {
    let (net, _) = network.build_noisy()?;
    let atoms = network.quantiles.unwrap_or(1);
    let mut g = net.graph;
    // With quantiles, the action's row of them.
    let predicted = net.outputs.last().expect("q, or quantiles after it").1;
    let action = g.input_ints("action", [atoms]);
    let target = g.input("target", [atoms]);
    let weight = g.input("weight", [1]);
    let predicted = g.gather(predicted, action)?;
    let delta = settings.huber_delta as f32;
    let (taken, loss) = match (network.quantiles, settings.loss) {
        (Some(_), _) => (g.mean(predicted, 1)?, g.quantile_loss(predicted, target, delta, None)?),
        (None, LossName::Huber) => (predicted, g.huber_loss(predicted, target, delta)?),
        (None, LossName::Mse) => (predicted, g.mse_loss(predicted, target)?),
    };
    let loss = g.mul(loss, weight)?;
    Ok(Loss { graph: g, loss, taken })
}

/// A network planned to value actions, with noise of its own.
struct Valuer {
    plan: Plan,
    q: Node,
    quantiles: Option<Node>,
    noise: Noise,
}

impl Valuer {
    fn new(network: &ActionValue, rows: usize, seed: u64, options: &Options) -> Result<Self> {
        let (net, sizes) = network.build_noisy()?;
        let outputs: Vec<Node> = net.outputs.iter().map(|(_, node)| *node).collect();
        Ok(Self {
            plan: Plan::inference(&net.graph, &outputs, rows, options)?,
            q: outputs[0],
            quantiles: outputs.get(1).copied(),
            noise: Noise::new(seed, &sizes),
        })
    }

    /// `[rows, A]` values, with noise number `count` of a purpose.
    fn run(&mut self, params: &Params, rows: usize, obs: &[f32], purpose: Purpose, count: u64) -> &[f32] {
        self.noise.draw(purpose, count);
        let mut feeds = [Feed::Real(obs); MAX_FEEDS];
        let mut used = 1;
        for feed in self.noise.feeds() {
            feeds[used] = feed;
            used += 1;
        }
        self.plan.forward(params, rows, &feeds[..used]);
        self.plan.output(self.q)
    }
}

/// A minibatch with its targets.
struct Batch {
    samples: Samples,
    /// `[B, K]` entries of the network's output for the actions taken.
    taken: Vec<i32>,
    /// `[B, K]` what those should have been.
    target: Vec<f32>,
    /// `[B]` the best actions where windows end.
    next_action: Vec<usize>,
    /// `[B]` how far off the values were.
    error: Vec<f32>,
}

/// Sums over the updates of an iteration.
#[derive(Default)]
struct Sums {
    loss: f64,
    error: f64,
    value: f64,
    norm: f64,
    updates: u32,
    /// Updates whose gradient was finite; in f16 some are left out while the loss scale settles.
    steps_taken: u32,
}

/// A run of DQN.
pub struct Dqn {
    settings: Settings,
    seed: u64,
    total_steps: u64,
    env: Box<dyn VecEnv>,
    architecture: Architecture,
    actions: usize,
    params: Params,
    target: Ema,
    optimizer: Optimizer,
    gradients: Option<GradientStatistics>,
    /// [`METRICS`], that of a curriculum, those of gradients.
    metrics: Vec<Metric>,
    loss_scale: Option<LossScale>,
    /// Values what the envs show, to act; what windows end with, by the network and by the target network.
    actor: Valuer,
    chooser: Valuer,
    judge: Valuer,
    learner: Plan,
    learner_noise: Noise,
    taken: Node,
    replay: Replay,
    batch: Batch,
    /// What observations go through when they are seen or drawn; replay holds them as they were.
    normaliser: Option<Running>,
    /// `[N, O]` what the envs show, normalised.
    seen: Vec<f32>,
    curriculum: Option<Curriculum>,
    /// What the envs show, and what a step makes of it.
    now: RowBuf,
    after: RowBuf,
    chosen: Vec<i32>,
    /// `[N]` whether that is not the best action known; empty if windows may go on behind it.
    explored: Vec<bool>,
    /// `[N]` further steps for which it is held; empty if random actions are not repeated.
    held: Vec<u32>,
    repeats: Repeats,
    unseen: Option<Unseen>,
    /// Steps of each env so far.
    vector_steps: u64,
    updates: u64,
    /// Updates that are due, and a fraction of one.
    due: f64,
}

impl Dqn {
    /// Builds everything that the run will ever allocate, and resets the envs.
    pub fn new(build: Build) -> Result<Self> {
        let Build { mut env, pool, seed, total_steps, gradient_stride, precision, network, settings, .. } = build;
        let settings = read(&settings)?;
        settings.check()?;
        if env.on_gpu().is_some() {
            return Err(Error::Invalid("dqn runs on the CPU alone; wanted device = \"cpu\"".into()));
        }
        let (spec, n) = (env.spec().clone(), env.num_envs());
        let ActionSpace::Discrete(actions) = spec.action else {
            let name = spec.name;
            return Err(Error::Invalid(format!("dqn chooses one of several actions; {name} takes others: wanted ppo")));
        };
        let obs = spec.observation.len();
        // Running statistics bring bytes to size too.
        let image = env.image().map(|image| Image { bytes: image.bytes && !settings.normalize_obs, ..image });
        let quantiles = (settings.quantiles > 0).then_some(settings.quantiles);
        let network = ActionValue {
            dueling: settings.dueling,
            noisy: settings.noisy,
            quantiles,
            ..network.action_value(&spec, image)?
        };
        if network.entries.is_some() && settings.normalize_obs {
            let text =
                "dqn.normalize_obs beside network.encoder = entries: wanted false; numbers of entries stay as they are";
            return Err(Error::Invalid(text.into()));
        }
        let shape = ReplayShape {
            envs: n,
            rows: settings.buffer_size / n,
            obs,
            choices: spec.legal_width(),
            n_step: settings.n_step,
        };
        check_room(&format!("a replay of dqn.buffer_size {}", settings.buffer_size), shape.bytes(), "lower it")?;
        let alpha = settings.prioritized_replay.then_some(settings.prioritized_replay_alpha as f32);
        let replay = Replay::new(shape, alpha)?;
        let options = Options { pool: Arc::clone(&pool), precision, seed, ..Options::default() };
        let params = network.build()?.graph.params(seed)?;
        let Loss { graph, loss, taken } = loss_graph(&network, &settings)?;
        let wanted = Wanted { losses: vec![(loss, 1.0)], outputs: vec![taken], ..Wanted::default() };
        let (size, atoms) = (settings.batch_size, quantiles.unwrap_or(1));
        let learner = Plan::new(&graph, &wanted, size, &options)?;
        let max_norm = (settings.max_grad_norm > 0.0).then_some(settings.max_grad_norm as f32);
        let valuer = |rows: usize| Valuer::new(&network, rows, seed, &options);
        let curriculum = Curriculum::new(&settings.curriculum, &mut *env)?;
        let of_gradients = (gradient_stride > 0).then(|| GradientStatistics::metrics(&params)).into_iter().flatten();
        let of_curriculum = curriculum.is_some().then_some(curriculum::STAGE);
        let mut dqn = Self {
            seed,
            total_steps,
            actions,
            target: Ema::new(&params, Backend::fast()),
            optimizer: Optimizer::new(settings.method(), &params, max_norm, Backend::fast())?.on(&pool),
            gradients: GradientStatistics::new(gradient_stride, &params),
            metrics: METRICS.iter().copied().chain(of_curriculum).chain(of_gradients).collect(),
            loss_scale: (learner.precision().0 == Precision::F16).then(LossScale::default),
            actor: valuer(n)?,
            chooser: valuer(size)?,
            judge: valuer(size)?,
            learner_noise: Noise::new(seed, &network.build_noisy()?.1),
            learner,
            taken,
            batch: Batch {
                samples: Samples::new(&shape, size),
                taken: vec![0; size * atoms],
                target: vec![0.0; size * atoms],
                next_action: vec![0; size],
                error: vec![0.0; size],
            },
            replay,
            normaliser: settings.normalize_obs.then(|| Running::new(obs)),
            seen: vec![0.0; if settings.normalize_obs { n * obs } else { 0 }],
            curriculum,
            now: RowBuf::new(&spec, n),
            after: RowBuf::new(&spec, n),
            chosen: vec![0; n],
            explored: vec![false; if settings.cut_explored { n } else { 0 }],
            repeats: Repeats::new(settings.explore_steps),
            held: vec![0; if settings.explore_steps > 1 { n } else { 0 }],
            unseen: Unseen::new(&*env, &settings)?,
            vector_steps: 0,
            updates: 0,
            due: 0.0,
            architecture: Architecture::ActionValue(network),
            settings,
            env,
            params,
        };
        dqn.env.reset(Seeds::One(seed), None, dqn.now.row());
        dqn.see(true);
        Ok(dqn)
    }

    /// New episodes began in all envs, in the middle of the last ones.
    fn forget_episodes(&mut self) {
        self.replay.cut();
        self.held.fill(0);
        if let Some(curriculum) = &mut self.curriculum {
            curriculum.restarted();
        }
    }

    /// Normalises what the envs show; `new` says that it is counted. An unfit number is not counted, since statistics would
    /// spread it over all envs: it is given back.
    fn see(&mut self, new: bool) -> Option<Unfit> {
        let normaliser = self.normaliser.as_mut()?;
        let unfit = Unfit::in_observations(&self.now.obs, self.replay.shape().obs, self.vector_steps);
        if new && unfit.is_none() {
            normaliser.update(&self.now.obs);
        }
        self.seen.copy_from_slice(&self.now.obs);
        normaliser.normalise(&mut self.seen, OBS_LIMIT);
        unfit
    }

    fn head(&self) -> Head {
        Head::Choices(vec![self.actions])
    }

    fn current_policy(&self) -> Policy {
        Policy {
            architecture: self.architecture.clone(),
            head: self.head(),
            params: self.params.clone(),
            normaliser: self.normaliser.clone(),
        }
    }

    /// The exponent of importance weights now.
    fn beta(&self) -> f64 {
        Settings::along(self.settings.prioritized_replay_beta, 1.0, 1.0, self.steps(), self.total_steps)
    }

    /// Chooses an action of every env: the best, or any with probability ε.
    fn act(&mut self, report: &mut Report) {
        let (n, actions, choices) = (self.env.num_envs(), self.actions, self.replay.shape().choices);
        let epsilon = self.settings.epsilon(self.steps(), self.total_steps) as f32;
        let seen = if self.normaliser.is_some() { &self.seen } else { &self.now.obs };
        let q = match epsilon < 1.0 {
            true => self.actor.run(&self.params, n, seen, Purpose::Act, self.vector_steps),
            false => &[],
        };
        let begun = report.spans.begin();
        let (high, low) = ((self.vector_steps >> 32) as u32, self.vector_steps as u32);
        for (env, chosen) in self.chosen.iter_mut().enumerate() {
            let legal = &self.now.legal[env * choices..][..choices];
            let mut rng = HostRng::new(self.seed ^ EXPLORATION, env as u32, high, low);
            // A random action may be held for several steps, in which nothing else is drawn.
            let held = self.held.get(env).is_some_and(|&steps| steps > 0) && allowed(*chosen as usize, legal);
            let random = held || epsilon > 0.0 && rng.unit() < epsilon;
            *chosen = match random {
                true if held => *chosen,
                true => any(&mut rng, actions, legal) as i32,
                false => best(&q[env * actions..][..actions], legal) as i32,
            };
            if let Some(steps) = self.held.get_mut(env) {
                *steps = match (held, random) {
                    (true, _) => *steps - 1,
                    (false, true) => self.repeats.draw(&mut rng),
                    (false, false) => 0,
                };
            }
            if let Some(explored) = self.explored.get_mut(env) {
                *explored = random && (q.is_empty() || *chosen != best(&q[env * actions..][..actions], legal) as i32);
            }
        }
        report.spans.end(Phase::Sample as usize, begun);
    }

    /// One step of all envs into the replay; says whether they could be stepped.
    fn step_envs(&mut self, report: &mut Report) -> bool {
        if let Some(unseen) = &mut self.unseen {
            unseen.look(&*self.env);
        }
        let start = Instant::now();
        self.env.step(Actions::I32(&self.chosen), self.after.row());
        let stepped = Instant::now();
        report.env_seconds += (stepped - start).as_secs_f64();
        report.spans.note(Phase::Env as usize, start, stepped);
        report.failed = self.env.failure();
        if report.failed.is_some() {
            return false;
        }
        let after = &self.after;
        for env in 0..self.chosen.len() {
            if after.terminated[env] | after.truncated[env] != 0 && after.episode_length[env] > 0 {
                let (total, length) = (after.episode_return[env], after.episode_length[env]);
                if let Some(steps) = self.held.get_mut(env) {
                    *steps = 0;
                }
                report.episode(Ended { env: env as u32, total, length });
                if let Some(curriculum) = &mut self.curriculum {
                    curriculum.ended(env, total);
                }
            }
        }
        self.replay.insert(Experience {
            obs: &self.now.obs,
            legal: &self.now.legal,
            actions: &self.chosen,
            explored: &self.explored,
            unseen: self.unseen.as_ref().map_or(&[], |unseen| &unseen.marks),
            reward: &after.reward,
            terminated: &after.terminated,
            truncated: &after.truncated,
            final_obs: &after.final_obs,
            episode_length: &after.episode_length,
        });
        std::mem::swap(&mut self.now, &mut self.after);
        self.vector_steps += 1;
        report.failed = self.see(true).map(|unfit| self.env.spec().complaint(&unfit));
        report.failed.is_none()
    }

    /// Draws a minibatch and computes its targets: R + γⁿ·Q'(s', argmax Q(s', ·)), with Q' the target network's values and
    /// Q its own or, for double Q-learning (van Hasselt et al., arXiv:1509.06461), the network's.
    fn gather(&mut self) {
        let (size, actions, choices) = (self.settings.batch_size, self.actions, self.replay.shape().choices);
        let (draws, beta) = (SampleDraws { seed: self.seed, count: self.updates }, self.beta() as f32);
        let Batch { samples, taken, target, next_action, .. } = &mut self.batch;
        self.replay.sample(draws, self.settings.gamma as f32, beta, samples);
        if let Some(normaliser) = &self.normaliser {
            normaliser.normalise(&mut samples.obs, OBS_LIMIT);
            normaliser.normalise(&mut samples.next_obs, OBS_LIMIT);
        }
        self.judge.run(self.target.params(), size, &samples.next_obs, Purpose::Value, self.updates);
        let judged = self.judge.plan.output(self.judge.q);
        let q = match self.settings.double_q {
            true => self.chooser.run(&self.params, size, &samples.next_obs, Purpose::Choose, self.updates),
            false => judged,
        };
        for (row, action) in next_action.iter_mut().enumerate() {
            let legal = &samples.next_legal[row * choices..][..choices];
            *action = best(&q[row * actions..][..actions], legal);
        }
        let values = self.judge.quantiles.map_or(judged, |quantiles| self.judge.plan.output(quantiles));
        let atoms = values.len() / (size * actions);
        for row in 0..size {
            let next = &values[(row * actions + next_action[row]) * atoms..][..atoms];
            let first = samples.actions[row] * atoms as i32;
            for (atom, next) in next.iter().enumerate() {
                target[row * atoms + atom] = samples.returns[row] + samples.discount[row] * next;
                taken[row * atoms + atom] = first + atom as i32;
            }
        }
    }

    /// One step of the optimiser, and what follows from it; says whether the run may go on.
    fn update(&mut self, sums: &mut Sums, report: &mut Report) -> bool {
        let begun = report.spans.begin();
        self.gather();
        report.spans.end(Phase::Gather as usize, begun);
        self.learner_noise.draw(Purpose::Learn, self.updates);
        let (size, batch) = (self.settings.batch_size, &self.batch);
        let mut feeds = [Feed::Real(&batch.samples.obs); MAX_FEEDS];
        let own = [Feed::Ints(&batch.taken), Feed::Real(&batch.target), Feed::Real(&batch.samples.weight)];
        let mut used = 1;
        for feed in self.learner_noise.feeds().chain(own) {
            feeds[used] = feed;
            used += 1;
        }
        let feeds = &feeds[..used];
        let scale = self.loss_scale.as_ref().map_or(1.0, LossScale::scale);
        if let Some(gradients) = &mut self.gradients {
            gradients.before_step(&self.params);
        }
        let steps = self.vector_steps * self.chosen.len() as u64;
        let learning_rate = self.settings.learning_rate(steps, self.total_steps, self.updates);
        let stepped = (&mut self.params, &mut self.optimizer);
        let (outcome, step) = train_and_step(&mut self.learner, stepped, (size, feeds), (learning_rate, scale), report);
        if let Some(gradients) = &mut self.gradients {
            gradients.after_step(&self.params, self.learner.gradients(), scale, step.finite);
        }
        if let Some(loss_scale) = &mut self.loss_scale {
            loss_scale.update(step.finite);
        }
        if !(outcome.finite && (step.finite || scale > 1.0)) {
            let what = METRICS[if outcome.finite { Reported::GradNorm } else { Reported::Loss } as usize].name;
            let place = first_bad_op(&mut self.learner, &self.params, size, feeds);
            match self.replay.unfit(self.vector_steps) {
                Some(unfit) => report.failed = Some(self.env.spec().complaint(&unfit)),
                None => report.diverged = Some(format!("{what} is not finite{place}")),
            }
            return false;
        }
        if step.finite {
            sums.norm += f64::from(step.grad_norm);
            sums.steps_taken += 1;
        }
        sums.loss += f64::from(outcome.loss);
        self.judge_errors(sums);
        let Batch { samples, error, .. } = &self.batch;
        self.replay.prioritise(&samples.slots, error, self.settings.prioritized_replay_eps as f32);
        self.updates += 1;
        sums.updates += 1;
        if self.updates.is_multiple_of(self.settings.target_network_frequency) {
            match self.settings.tau < 1.0 {
                true => self.target.update(&self.params, 1.0 - self.settings.tau),
                false => self.target.copy_from(&self.params),
            }
        }
        true
    }

    /// How far the values of the actions taken were from their targets.
    fn judge_errors(&mut self, sums: &mut Sums) {
        let Batch { target, error, .. } = &mut self.batch;
        let taken = self.learner.output(self.taken);
        let atoms = target.len() / taken.len();
        let (mut size, mut value) = (0.0, 0.0);
        for ((error, target), &taken) in error.iter_mut().zip(target.chunks_exact(atoms)).zip(taken) {
            *error = target.iter().sum::<f32>() / atoms as f32 - taken;
            size += f64::from(error.abs());
            value += f64::from(taken);
        }
        sums.error += size / taken.len() as f64;
        sums.value += value / taken.len() as f64;
    }

    /// The updates that one step of all envs owes; says whether the run may go on.
    fn learn(&mut self, sums: &mut Sums, report: &mut Report) -> bool {
        if self.steps() < self.settings.learning_starts || self.replay.is_empty() {
            return true;
        }
        self.due += self.chosen.len() as f64 * self.settings.replay_ratio / self.settings.batch_size as f64;
        while self.due >= 1.0 {
            self.due -= 1.0;
            if !self.update(sums, report) {
                return false;
            }
        }
        true
    }

    fn report_sums(&self, sums: &Sums, report: &mut Report) {
        let steps = self.steps();
        let mean = |sum: f64| sum / f64::from(sums.updates);
        let mut set = |metric: Reported, x: f64| report.values[metric as usize] = x;
        set(Reported::Loss, mean(sums.loss));
        set(Reported::Error, mean(sums.error));
        set(Reported::Value, mean(sums.value));
        set(Reported::GradNorm, sums.norm / f64::from(sums.steps_taken));
        let rate = self.settings.learning_rate(steps, self.total_steps, self.updates);
        set(Reported::LearningRate, f64::from(rate));
        set(Reported::Epsilon, self.settings.epsilon(steps, self.total_steps));
        set(Reported::Beta, if self.settings.prioritized_replay { self.beta() } else { f64::NAN });
        set(Reported::Replay, self.replay.len() as f64);
        set(Reported::Updates, self.updates as f64);
        let mut rest = METRICS.len();
        if let Some(curriculum) = &self.curriculum {
            report.values[rest] = curriculum.value();
            rest += 1;
        }
        if let Some(gradients) = &self.gradients {
            report.values[rest..].copy_from_slice(gradients.values());
        }
    }

    fn iteration(&self) -> u32 {
        (self.vector_steps / self.settings.num_steps as u64) as u32
    }
}

/// What a checkpoint holds beside weights, optimiser, envs and replay; floats by their bits.
#[derive(Serialize, Deserialize)]
struct State {
    vector_steps: u64,
    updates: u64,
    due: u64,
    normaliser: Option<Vec<u64>>,
    loss_scale: Option<[u8; 8]>,
    curriculum: Option<Curriculum>,
    /// Actions that are held, and for how many further steps.
    #[serde(default)]
    held: Vec<(i32, u32)>,
}

impl Algorithm for Dqn {
    fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    fn iterate(&mut self, report: &mut Report) {
        if self.env.failure().is_some() {
            self.env.reset(Seeds::Keep, None, self.now.row());
            self.see(true);
            self.forget_episodes();
            report.failed = self.env.failure();
            if report.failed.is_some() {
                return;
            }
        }
        let iteration = self.iteration();
        if let Some(gradients) = &mut self.gradients {
            gradients.begin(iteration);
        }
        let mut sums = Sums::default();
        for _ in 0..self.settings.num_steps {
            let start = Instant::now();
            self.act(report);
            if !self.step_envs(report) {
                return;
            }
            let collected = Instant::now();
            if !self.learn(&mut sums, report) {
                return;
            }
            let learned = Instant::now();
            report.seconds[0] += (collected - start).as_secs_f64();
            report.seconds[1] += (learned - collected).as_secs_f64();
            report.spans.note(Phase::Collect as usize, start, collected);
            report.spans.note(Phase::Learn as usize, collected, learned);
        }
        if let Some(curriculum) = &mut self.curriculum {
            // The first stage is told too.
            let first = iteration == 0;
            report.note = first.then(|| curriculum.describe());
            if curriculum.advance(&mut *self.env, self.seed, iteration) {
                report.episodes.forget();
                report.note = Some(curriculum.describe());
            }
            report.preparing = curriculum.is_preparing();
        }
        if iteration == 0 && self.settings.learning_starts >= self.total_steps {
            let (starts, steps) = (self.settings.learning_starts, self.total_steps);
            report.note = Some(format!("nothing is learned in these {steps} steps: dqn.learning_starts = {starts}"));
        }
        self.report_sums(&sums, report);
    }

    fn plans(&mut self) -> Vec<(&'static str, &mut Plan)> {
        vec![
            ("act", &mut self.actor.plan),
            ("choose", &mut self.chooser.plan),
            ("judge", &mut self.judge.plan),
            ("learn", &mut self.learner),
        ]
    }

    fn steps(&self) -> u64 {
        self.vector_steps * self.chosen.len() as u64
    }

    fn steps_per_iteration(&self) -> u64 {
        (self.settings.num_steps * self.chosen.len()) as u64
    }

    fn set_total_steps(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
    }

    fn adopt(&mut self, policy: &Policy) -> Result<()> {
        policy.check_like(&self.architecture, &self.head(), self.normaliser.is_some())?;
        self.params.from_bytes(&policy.params.to_bytes(&Metadata::new()))?;
        self.target.copy_from(&self.params);
        self.normaliser.clone_from(&policy.normaliser);
        self.see(false);
        Ok(())
    }

    fn policy(&self) -> Result<Policy> {
        Ok(self.current_policy())
    }

    fn save(&self) -> Result<Parts> {
        let state = State {
            vector_steps: self.vector_steps,
            updates: self.updates,
            due: self.due.to_bits(),
            normaliser: self.normaliser.as_ref().map(|x| to_bits(x.to_numbers())),
            loss_scale: self.loss_scale.as_ref().map(LossScale::to_bytes),
            curriculum: self.curriculum.clone(),
            held: self.chosen.iter().copied().zip(self.held.iter().copied()).collect(),
        };
        Ok(Parts::from([
            ("policy.safetensors".into(), self.current_policy().to_bytes()),
            ("target.safetensors".into(), self.target.params().to_bytes(&Metadata::new())),
            ("optimizer.safetensors".into(), self.optimizer.to_bytes()),
            ("env.bin".into(), self.env.save()),
            ("replay.bin".into(), self.replay.save()),
            ("dqn.json".into(), serde_json::to_vec(&state).expect("numbers are JSON")),
        ]))
    }

    fn load(&mut self, parts: &Parts) -> Result<()> {
        let state: State = serde_json::from_slice(part(parts, "dqn.json")?).map_err(|_| damaged("dqn.json"))?;
        self.params.from_bytes(part(parts, "policy.safetensors")?)?;
        self.target.params_mut().from_bytes(part(parts, "target.safetensors")?)?;
        self.optimizer.from_bytes(part(parts, "optimizer.safetensors")?)?;
        if let Some(curriculum) = &mut self.curriculum {
            curriculum.load(state.curriculum.ok_or_else(|| damaged("curriculum"))?, &mut *self.env)?;
        }
        let steps = state.vector_steps * self.chosen.len() as u64;
        let goes_on = load_env(&mut *self.env, parts, self.seed, steps)?;
        self.replay.load(part(parts, "replay.bin")?)?;
        let obs = self.replay.shape().obs;
        load_running(&mut self.normaliser, state.normaliser.as_deref(), obs, "normaliser")?;
        load_scale(&mut self.loss_scale, state.loss_scale)?;
        (self.vector_steps, self.updates) = (state.vector_steps, state.updates);
        self.due = f64::from_bits(state.due);
        let known = |&(action, _): &(i32, u32)| (0..self.actions as i32).contains(&action);
        if !self.due.is_finite() || state.held.len() != self.held.len() || !state.held.iter().all(known) {
            return Err(damaged("dqn.json"));
        }
        for ((chosen, held), saved) in self.chosen.iter_mut().zip(&mut self.held).zip(state.held) {
            (*chosen, *held) = saved;
        }
        if !goes_on {
            self.forget_episodes();
        }
        self.env.observe(self.now.row());
        self.see(false);
        Ok(())
    }
}
