//! Proximal policy optimisation (Schulman et al., arXiv:1707.06347), with the details of Huang et al., "The 37
//! implementation details of PPO", and the names of CleanRL's `ppo.py`.
//!
//! One iteration: collect T steps of N envs, estimate advantages, learn from them in epochs of minibatches. The rollout's
//! columns are written in place by env and network; nothing is allocated after [`Ppo::new`].

mod cuda;
mod diverged;
mod floors;
mod heads;
mod metrics;
mod settings;

pub use cuda::{Part, check_cuda, cuda_source, planned_source};
pub use settings::{OptimizerName, Settings};

use super::curiosity::Bonus;
use super::gradients::GradientStatistics;
use super::policy::{Actor, Head, OBS_LIMIT, Policy};
use super::popart::PopArt;
use super::saved::{damaged, from_bits, load_env, load_running, load_scale, to_bits};
use super::scratch::Scratch;
use super::train_and_step::{first_bad_op, train_and_step};
use super::{Algorithm, Build, Ended, Entry, Parts, Phase, Report, part};
use crate::data::{ActionColumn, Batch, Order, ReturnScale, Rollout, Running, Shape};
use floors::{CriticAlone, Floors, begin_with};
use heads::HeadWatch;
use metrics::{METRICS, Reported, not_finite};
use operant_base::config::{self, Table};
use operant_base::telemetry::Metric;
use operant_base::{Error, Result};
use operant_device::{CpuPool, check_room};
use operant_env::first_unfit;
use operant_env::{Actions, Row, Seeds, Told, VecEnv};
use operant_lanes::Backend;
use operant_nn::dist::Draws;
use operant_nn::nets::{Architecture, Image, Net};
use operant_nn::ops::{PPO_STATISTICS, PpoCoefficients, PpoTargets};
use operant_nn::{
    Feed, Gradients, Graph, LossScale, Metadata, Node, Optimizer, Options, Params, Plan, Precision, Schedule, Wanted,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// Observation, two states, flags, action, log-probability, advantage, return, value, mask, factors.
const MAX_FEEDS: usize = 11;
/// Rewards are limited to this many standard deviations once normalised.
const REWARD_LIMIT: f32 = 10.0;

/// PPO in the list of algorithms.
pub const ENTRY: Entry = Entry {
    name: "ppo",
    summary: "proximal policy optimisation: discrete, multi-discrete, masked and continuous actions",
    defaults: config::defaults::<Settings>,
    resolve: |table| Ok(config::to_table(&read(table)?)),
    may_change: settings::MAY_CHANGE,
    has_schedules: |own| {
        settings::SCHEDULES.iter().any(|key| own.get(*key).and_then(config::Value::as_bool) != Some(false))
    },
    build: |mut build| match build.gpu.is_some() || build.env.on_gpu().is_some() {
        true => Ok(Box::new(cuda::PpoCuda::new(build)?)),
        false => Ok(Box::new(Ppo::new(build)?)),
    },
    class: "PPO",
    check_gpu: Some(cuda::check_cuda),
};

fn read(table: &Table) -> Result<Settings> {
    config::read(table, "ppo")
}

/// A training graph: the network, its targets and the loss.
struct Loss {
    graph: Graph,
    loss: Node,
    statistics: Node,
}

fn loss_graph(net: &Net, head: &Head, masked: bool, steps: usize, coefficients: PpoCoefficients) -> Result<Loss> {
    floored_loss_graph(net, head, masked, steps, coefficients, &Floors::default())
}

fn floored_loss_graph(
    net: &Net,
    head: &Head,
    masked: bool,
    steps: usize,
    coefficients: PpoCoefficients,
    floors: &Floors,
) -> Result<Loss> {
    let sequences = net.memory.is_some();
    let of_steps = |size: usize| if sequences { vec![steps, size] } else { vec![size] };
    let mut g = net.graph.clone();
    let (logits, value) = (net.outputs[0].1, net.outputs[1].1);
    let action = match head {
        Head::Choices(heads) => g.input_ints("action", of_steps(heads.len())),
        Head::Gaussian(dims) => g.input("action", of_steps(*dims)),
    };
    let [old_log_prob, advantage, returns, old_value] =
        ["old_log_prob", "advantage", "returns", "old_value"].map(|name| g.input(name, [steps]));
    let choices = if let Head::Choices(heads) = head { heads.iter().sum() } else { 0 };
    let mask = masked.then(|| g.input("legal", of_steps(choices)));
    let factors = Some(g.input_whole("factors of clip and entropy", [2]));
    let targets = PpoTargets { action, old_log_prob, advantage, returns, old_value, factors };
    let (loss, statistics) = match head {
        Head::Choices(heads) => {
            let logits = floors.raise(&mut g, logits, mask)?;
            let (loss, statistics) = g.ppo_categorical(logits, value, targets, heads, mask, coefficients)?;
            (floors.add_lack(&mut g, loss, logits, mask)?, statistics)
        }
        Head::Gaussian(_) => {
            let log_std = net.log_std.ok_or_else(|| Error::Invalid("a network without log_std".into()))?;
            g.ppo_gaussian(logits, log_std, value, targets, coefficients)?
        }
    };
    let loss = if sequences { g.mean(loss, 1)? } else { loss };
    Ok(Loss { graph: g, loss, statistics })
}

/// Steps of a row that is learned from: 1, or T of a network with a memory, which learns from whole sequences.
fn row_steps(net: &Net, settings: &Settings) -> Result<usize> {
    let (steps, size) = (settings.num_steps, settings.minibatch_size);
    match net.memory {
        None => Ok(1),
        Some(_) if size.is_multiple_of(steps) => Ok(steps),
        Some(_) => Err(Error::Invalid(format!(
            "ppo.minibatch_size {size} is no multiple of ppo.num_steps = {steps}: a network with a memory learns from \
             whole sequences"
        ))),
    }
}

/// What learning from sequences needs beside the batch: states `[N, H]` before the rollout, those of a minibatch, and
/// flags where episodes begin.
struct SequenceMemory {
    before: Vec<Vec<f32>>,
    gathered: Vec<Vec<f32>>,
    resets: Vec<f32>,
}

/// A run of PPO.
pub struct Ppo {
    settings: Settings,
    seed: u64,
    total_steps: u64,
    pool: Arc<CpuPool>,
    env: Box<dyn VecEnv>,
    architecture: Architecture,
    head: Head,
    params: Params,
    optimizer: Optimizer,
    gradients: Option<GradientStatistics>,
    heads: Option<HeadWatch>,
    floors: Floors,
    /// While values alone learn.
    warmup: Option<CriticAlone>,
    /// [`METRICS`], then those of gradients, of heads, and what envs tell.
    metrics: Vec<Metric>,
    schedule: Schedule,
    loss_scale: Option<LossScale>,
    actor: Actor,
    learner: Plan,
    statistics: Node,
    rollout: Rollout,
    batch: Batch,
    memory: Option<SequenceMemory>,
    obs_normaliser: Option<Running>,
    return_scale: Option<ReturnScale>,
    popart: Option<PopArt>,
    bonus: Option<Bonus>,
    /// Iterations so far.
    iteration: u32,
    /// Last observations of episodes, and of those that were truncated side by side.
    final_obs: Vec<f32>,
    truncated_obs: Vec<f32>,
    truncated_envs: Vec<usize>,
    episode_return: Vec<f32>,
    episode_length: Vec<i32>,
}

impl Ppo {
    /// Builds everything that the run will ever allocate, and resets the envs.
    pub fn new(build: Build) -> Result<Self> {
        let Build { env, pool, seed, total_steps, gradient_stride, precision, network, settings, .. } = build;
        let settings = read(&settings)?;
        let (spec, n) = (env.spec().clone(), env.num_envs());
        settings.check(n)?;
        if settings.overlap {
            return Err(Error::Invalid(
                "ppo.overlap = true: wanted false on the CPU, whose threads collect and learn in turn, or --device cuda".into(),
            ));
        }
        // Running statistics bring bytes to size too.
        let image = env.image().map(|image| Image { bytes: image.bytes && !settings.normalize_obs, ..image });
        let architecture = network.architecture(&spec, image)?;
        let (net, head) = (architecture.build()?, Head::new(&spec));
        let mut params = net.graph.params(seed)?;
        begin_with(&settings.first_logits, &format!("actor.{}", 2 * network.hidden.len()), &head, &mut params)?;
        let options = Options { pool: Arc::clone(&pool), precision, seed, ..Options::default() };
        let (steps, size) = (settings.num_steps, settings.minibatch_size);
        let row_steps = row_steps(&net, &settings)?;
        let learned = if net.memory.is_some() { architecture.build_sequences(steps)? } else { net.clone() };
        let floors = Floors::new(&settings, &head, n)?;
        let Loss { graph, loss, statistics } =
            floored_loss_graph(&learned, &head, spec.masked, row_steps, settings.coefficients(), &floors)?;
        let wanted = Wanted { losses: vec![(loss, 1.0)], metrics: vec![statistics], ..Wanted::default() };
        let learner = Plan::new(&graph, &wanted, size / row_steps, &options)?;
        let max_norm = (settings.max_grad_norm > 0.0).then_some(settings.max_grad_norm as f32);
        let rate = settings.learning_rate as f32;
        let obs = spec.observation.len();
        let shape = Shape {
            steps: settings.num_steps,
            envs: n,
            obs,
            dims: head.dims(),
            continuous: head.continuous(),
            choices: spec.legal_width(),
        };
        let what = format!("a rollout of num_envs {n} x ppo.num_steps {steps}");
        check_room(&what, shape.bytes(), "lower one of them")?;
        let rollout = Rollout::new(shape);
        let mut ppo = Self {
            bonus: Bonus::new(settings.curiosity, &rollout, &head, size, seed, &options)?,
            popart: settings
                .popart
                .then(|| PopArt::new(&format!("critic.{}", 2 * network.hidden.len()), &params))
                .transpose()?,
            seed,
            total_steps,
            gradients: GradientStatistics::new(gradient_stride, &params),
            heads: HeadWatch::new(&spec),
            floors,
            warmup: (settings.value_warmup > 0).then(|| CriticAlone::new(&params)),
            metrics: METRICS
                .iter()
                .copied()
                .chain((gradient_stride > 0).then(|| GradientStatistics::metrics(&params)).into_iter().flatten())
                .collect(),
            optimizer: Optimizer::new(settings.method(), &params, max_norm, Backend::fast())?.on(&pool),
            schedule: if settings.anneal_lr {
                Schedule::Linear { from: rate, to: 0.0 }
            } else {
                Schedule::Constant(rate)
            },
            loss_scale: (learner.precision().0 == Precision::F16).then(LossScale::default),
            memory: net.memory.as_ref().map(|memory| SequenceMemory {
                before: vec![vec![0.0; n * memory.size]; memory.after.len()],
                gathered: vec![vec![0.0; size / row_steps * memory.size]; memory.after.len()],
                resets: vec![0.0; size],
            }),
            actor: Actor::new(&net, head.clone(), n, &options)?,
            rollout,
            batch: Batch::new(&shape, settings.minibatch_size),
            obs_normaliser: settings.normalize_obs.then(|| Running::new(obs)),
            return_scale: settings.normalize_reward.then(|| ReturnScale::new(n)),
            iteration: 0,
            final_obs: vec![0.0; n * obs],
            truncated_obs: vec![0.0; n * obs],
            truncated_envs: Vec::with_capacity(n),
            episode_return: vec![0.0; n],
            episode_length: vec![0; n],
            settings,
            pool,
            env,
            architecture,
            head,
            params,
            learner,
            statistics,
        };
        ppo.reset_envs(Seeds::One(ppo.seed));
        ppo.metrics.extend(ppo.heads.iter().flat_map(HeadWatch::metrics));
        let mut told = Told::default();
        ppo.env.take_told(&mut told);
        ppo.metrics.extend(told.names().map(|name| Metric::new(name, "told by envs: mean of an iteration", "")));
        Ok(ppo)
    }

    /// Begins episodes in all envs. The first observation is where the last rollout would have ended.
    fn reset_envs(&mut self, seeds: Seeds<'_>) {
        let (steps, n) = (self.settings.num_steps, self.rollout.shape.envs);
        let mut scratch = Scratch::new(n);
        self.env.reset(seeds, None, scratch.row(&mut self.rollout, &mut self.final_obs, steps));
        self.forget_episodes();
        // Statistics would spread an unfit number over all envs.
        let counted = first_unfit(self.rollout.row_of_obs(steps)).is_none();
        self.normalise_obs(steps, counted);
    }

    fn forget_episodes(&mut self) {
        (0..self.rollout.shape.envs).for_each(|env| self.actor.forget(env));
        self.return_scale.iter_mut().for_each(ReturnScale::forget);
    }

    /// Shows the states as they are where the next rollout begins, seen through the normaliser that has seen them already.
    fn observe_envs(&mut self) {
        let steps = self.settings.num_steps;
        let mut scratch = Scratch::new(self.rollout.shape.envs);
        self.env.observe(scratch.row(&mut self.rollout, &mut self.final_obs, steps));
        self.normalise_obs(steps, false);
    }

    fn current_policy(&self) -> Policy {
        Policy {
            architecture: self.architecture.clone(),
            head: self.head.clone(),
            params: self.params.clone(),
            normaliser: self.obs_normaliser.clone(),
        }
    }

    fn samples(&self) -> u64 {
        self.rollout.samples() as u64
    }

    /// Normalises row `t` of observations; `seen` says that they are new.
    fn normalise_obs(&mut self, t: usize, seen: bool) {
        let Some(normaliser) = &mut self.obs_normaliser else { return };
        let obs = self.rollout.row_of_obs_mut(t);
        if seen {
            normaliser.update(obs);
        }
        normaliser.normalise(obs, OBS_LIMIT);
    }

    /// Plays T steps; stops at once if the envs fail.
    fn collect(&mut self, report: &mut Report) {
        if self.env.failure().is_some() {
            self.reset_envs(Seeds::Keep);
            report.failed = self.env.failure();
            if report.failed.is_some() {
                return;
            }
        }
        let Shape { steps, envs: n, obs, dims, choices, .. } = self.rollout.shape;
        self.rollout.wrap();
        if let Some(memory) = &mut self.memory {
            memory.before.iter_mut().zip(self.actor.state()).for_each(|(to, from)| to.copy_from_slice(from));
        }
        for t in 0..steps {
            let samples = t * n..(t + 1) * n;
            self.actor.forward(&self.params, n, &self.rollout.obs[t * n * obs..(t + 1) * n * obs]);
            self.rollout.value[samples.clone()].copy_from_slice(self.actor.values());
            if let Some(popart) = &self.popart {
                popart.denormalise(&mut self.rollout.value[samples.clone()]);
            }
            let legal = (choices > 0).then(|| &self.rollout.legal[t * n * choices..(t + 1) * n * choices]);
            let step = u64::from(self.iteration) * steps as u64 + t as u64;
            let draws = Draws { seed: self.seed, first_row: 0, step };
            let numbers = t * n * dims..(t + 1) * n * dims;
            let log_prob = &mut self.rollout.log_prob[samples.clone()];
            let actions = self.rollout.actions.slice_mut(numbers.clone());
            let begun = report.spans.begin();
            let logits = self.floors.raise_rows(self.actor.logits(), legal);
            self.actor.sample_by(logits, &self.params, legal, draws, actions, log_prob);
            if let (Some(heads), ActionColumn::Choices(actions)) = (&mut self.heads, &self.rollout.actions) {
                let legal = &mut self.rollout.legal[t * n * choices..(t + 1) * n * choices];
                heads.look(logits, legal, &actions[numbers.clone()], log_prob);
            }
            report.spans.end(Phase::Sample as usize, begun);
            self.actor.remember();

            let (later, legal) = ((t + 1) * n, (t + 1) * n * choices);
            let row = Row {
                obs: &mut self.rollout.obs[later * obs..(later + n) * obs],
                reward: &mut self.rollout.reward[samples.clone()],
                terminated: &mut self.rollout.terminated[samples.clone()],
                truncated: &mut self.rollout.truncated[samples.clone()],
                final_obs: &mut self.final_obs,
                episode_return: &mut self.episode_return,
                episode_length: &mut self.episode_length,
                legal: &mut self.rollout.legal[legal..legal + n * choices],
            };
            let actions = match &self.rollout.actions {
                ActionColumn::Choices(actions) => Actions::I32(&actions[numbers]),
                ActionColumn::Numbers(actions) => Actions::F32(&actions[numbers]),
            };
            let start = Instant::now();
            self.env.step(actions, row);
            let stepped = Instant::now();
            report.env_seconds += (stepped - start).as_secs_f64();
            report.spans.note(Phase::Env as usize, start, stepped);
            report.failed = self.env.failure();
            if report.failed.is_some() {
                return;
            }
            self.after_step(t, report);
            if report.failed.is_some() {
                return;
            }
        }
        self.env.take_told(&mut report.told);
        let means = self.heads.iter_mut().flat_map(HeadWatch::take_means).chain(report.told.take_means());
        let first = METRICS.len() + self.gradients.as_ref().map_or(0, |gradients| gradients.values().len());
        report.values[first..].iter_mut().zip(means).for_each(|(to, mean)| *to = mean);
        self.actor.forward(&self.params, n, &self.rollout.obs[steps * n * obs..]);
        self.rollout.value[steps * n..].copy_from_slice(self.actor.values());
        if let Some(popart) = &self.popart {
            popart.denormalise(&mut self.rollout.value[steps * n..]);
        }
    }

    /// Notes episodes that ended at step `t`, values the last observations of those that were truncated, normalises.
    fn after_step(&mut self, t: usize, report: &mut Report) {
        let (n, obs) = (self.rollout.shape.envs, self.rollout.shape.obs);
        let samples = t * n..(t + 1) * n;
        self.truncated_envs.clear();
        let flags = self.rollout.terminated[samples.clone()].iter().zip(&self.rollout.truncated[samples.clone()]);
        for (env, (&terminated, &truncated)) in flags.enumerate() {
            if terminated | truncated == 0 {
                continue;
            }
            if self.episode_length[env] > 0 {
                report.episode(Ended {
                    env: env as u32,
                    total: self.episode_return[env],
                    length: self.episode_length[env],
                });
            }
            if terminated == 0 {
                self.truncated_envs.push(env);
            }
        }
        report.failed = self.unfit_step(t).map(|unfit| self.env.spec().complaint(&unfit));
        if report.failed.is_some() {
            return;
        }
        self.normalise_obs(t + 1, true);
        if !self.truncated_envs.is_empty() {
            let rows = self.truncated_envs.len();
            for (to, &env) in self.truncated_obs.chunks_exact_mut(obs).zip(&self.truncated_envs) {
                to.copy_from_slice(&self.final_obs[env * obs..][..obs]);
            }
            let last = &mut self.truncated_obs[..rows * obs];
            if let Some(normaliser) = &self.obs_normaliser {
                normaliser.normalise(last, OBS_LIMIT);
            }
            self.actor.forward_some(&self.params, &self.truncated_envs, last);
            for (&env, &value) in self.truncated_envs.iter().zip(self.actor.values()) {
                let mut value = [value];
                if let Some(popart) = &self.popart {
                    popart.denormalise(&mut value);
                }
                self.rollout.final_value[t * n + env] = value[0];
            }
        }
        if self.memory.is_some() {
            for env in 0..n {
                if self.rollout.terminated[t * n + env] | self.rollout.truncated[t * n + env] != 0 {
                    self.actor.forget(env);
                }
            }
        }
        if let Some(scale) = &mut self.return_scale {
            let (terminated, truncated) = (&self.rollout.terminated[samples.clone()], &self.rollout.truncated);
            let done = |env: usize| terminated[env] | truncated[t * n + env] != 0;
            let gamma = self.settings.gamma as f32;
            scale.scale(&mut self.rollout.reward[samples], done, gamma, REWARD_LIMIT);
        }
    }

    /// Epochs of minibatches.
    fn learn(&mut self, report: &mut Report) {
        let steps = u64::from(self.iteration) * self.samples();
        let learning_rate = self.schedule.at(steps, self.total_steps);
        let factors = self.settings.factors(steps, self.total_steps);
        let size = self.settings.minibatch_size;
        let minibatches = self.rollout.samples() / size;
        let (mut sums, mut norm, mut updates, mut epochs) = ([0.0; PPO_STATISTICS], 0.0, 0_u32, 0);
        // Steps whose gradient was finite; in f16 some are left out while the loss scale settles.
        let mut steps_taken = 0_u32;
        if let Some(gradients) = &mut self.gradients {
            gradients.begin(self.iteration);
        }
        if self.settings.value_warmup > 0 && self.iteration == self.settings.value_warmup {
            // Moments of a policy that stood still are 0 while their corrections are spent: its first steps would be too long.
            self.optimizer.restart();
        }
        for epoch in 0..self.settings.update_epochs {
            let order = self.order(epoch);
            let mut kl = 0.0;
            for minibatch in 0..minibatches {
                let begun = report.spans.begin();
                self.gather(&order, minibatch * size);
                if let Some(popart) = &self.popart {
                    popart.normalise(&mut self.batch.returns);
                    popart.normalise(&mut self.batch.value);
                }
                if self.settings.norm_adv && size > 1 {
                    self.batch.normalise_advantage(self.settings.adv_std_floor);
                }
                report.spans.end(Phase::Gather as usize, begun);
                let Some(step) = self.update(learning_rate, factors, report) else { return };
                let statistics = self.statistics();
                sums.iter_mut().zip(statistics).for_each(|(sum, x)| *sum += x);
                kl += statistics[4];
                if step.is_finite() {
                    norm += f64::from(step);
                    steps_taken += 1;
                }
                updates += 1;
            }
            epochs = epoch + 1;
            if self.settings.target_kl > 0.0 && kl / minibatches as f64 > self.settings.target_kl {
                break;
            }
        }
        let mean = |sum: f64| sum / f64::from(updates);
        let [policy, value, entropy, _, kl, clipped] = sums.map(mean);
        let mut set = |metric: Reported, x: f64| report.values[metric as usize] = x;
        set(Reported::PolicyLoss, policy);
        set(Reported::ValueLoss, value);
        set(Reported::Entropy, entropy);
        set(Reported::ApproxKl, kl);
        set(Reported::ClipFraction, clipped);
        set(Reported::GradNorm, norm / f64::from(steps_taken));
        set(Reported::LearningRate, f64::from(learning_rate));
        set(Reported::Epochs, f64::from(epochs));
        if let Some(gradients) = &self.gradients {
            let values = gradients.values();
            report.values[METRICS.len()..][..values.len()].copy_from_slice(values);
        }
    }

    /// The order of an epoch: of samples, or of envs whose steps stay together.
    fn order(&self, epoch: u32) -> Order {
        let (shape, batch) = (&self.rollout.shape, self.batch.len());
        match self.memory {
            None => Order::samples(shape, batch, self.seed, self.iteration, epoch),
            Some(_) => Order::sequences(shape, self.seed, self.iteration, epoch),
        }
    }

    fn gather(&mut self, order: &Order, first: usize) {
        self.batch.gather(&self.rollout, order, first, &self.pool);
        if let (Some(memory), Order::Sequences(envs)) = (&mut self.memory, order) {
            let SequenceMemory { before, gathered, resets } = memory;
            let [mut one, mut two]: [(&[f32], &mut [f32]); 2] = [(&[], &mut []), (&[], &mut [])];
            let mut pairs = before.iter().zip(gathered);
            for state in [&mut one, &mut two] {
                if let Some((from, to)) = pairs.next() {
                    *state = (from, to);
                }
            }
            Batch::gather_memory(&self.rollout, envs, first, resets, &mut [one, two]);
        }
    }

    /// Means of the statistics of the last minibatch.
    fn statistics(&self) -> [f64; PPO_STATISTICS] {
        let (mut means, mut count) = ([0.0; PPO_STATISTICS], 0);
        for (i, x) in self.learner.metric(self.statistics).enumerate() {
            means[i % PPO_STATISTICS] += x;
            count = i / PPO_STATISTICS + 1;
        }
        means.map(|sum| sum / f64::from(count as u32))
    }

    /// One step of the optimiser on the gathered minibatch; gives the norm of the gradient, or nothing if it diverged.
    fn update(&mut self, learning_rate: f32, factors: [f32; 2], report: &mut Report) -> Option<f32> {
        let batch = &self.batch;
        let actions = match &batch.actions {
            ActionColumn::Choices(actions) => Feed::Ints(actions),
            ActionColumn::Numbers(actions) => Feed::Real(actions),
        };
        let mut feeds = [Feed::Real(&batch.obs); MAX_FEEDS];
        let mut count = 1;
        let mut feed = |column| {
            feeds[count] = column;
            count += 1;
        };
        if let Some(memory) = &self.memory {
            memory.gathered.iter().for_each(|state| feed(Feed::Real(state)));
            feed(Feed::Real(&memory.resets));
        }
        feed(actions);
        for column in [&batch.log_prob, &batch.advantage, &batch.returns, &batch.value] {
            feed(Feed::Real(column));
        }
        if !batch.legal.is_empty() {
            feed(Feed::Real(&batch.legal));
        }
        feed(Feed::Real(&factors));
        let (feeds, rows) = (&feeds[..count], self.learner.max_rows());
        let scale = self.loss_scale.as_ref().map_or(1.0, LossScale::scale);
        if let Some(gradients) = &mut self.gradients {
            gradients.before_step(&self.params);
        }
        let warmup = self.warmup.as_mut().filter(|_| self.iteration < self.settings.value_warmup);
        let (outcome, step, slopes) = match warmup {
            None => {
                let stepped = (&mut self.params, &mut self.optimizer);
                let (outcome, step) =
                    train_and_step(&mut self.learner, stepped, (rows, feeds), (learning_rate, scale), report);
                (outcome, step, self.learner.gradients())
            }
            Some(warmup) => {
                let outcome = self.learner.train(&self.params, rows, feeds, scale, Gradients::Replace);
                let begun = report.spans.begin();
                let slopes = warmup.of(self.learner.gradients());
                let step = self.optimizer.step_scaled(&mut self.params, slopes, learning_rate, scale);
                report.spans.end(Phase::Optimize as usize, begun);
                (outcome, step, slopes)
            }
        };
        if let Some(gradients) = &mut self.gradients {
            gradients.after_step(&self.params, slopes, scale, step.finite);
        }
        if let Some(loss_scale) = &mut self.loss_scale {
            loss_scale.update(step.finite);
        }
        let fine = outcome.finite && (step.finite || scale > 1.0);
        if !fine {
            let what = not_finite(&self.statistics());
            report.diverged = Some(what + &first_bad_op(&mut self.learner, &self.params, rows, feeds));
        }
        fine.then_some(step.grad_norm)
    }

    fn collect_and_learn(&mut self, report: &mut Report) {
        let start = Instant::now();
        self.collect(report);
        if report.failed.is_some() {
            return;
        }
        if let Some(bonus) = &mut self.bonus {
            let begun = report.spans.begin();
            let error = bonus.reward(&mut self.rollout, self.settings.curiosity_coef as f32);
            report.spans.end(Phase::Curiosity as usize, begun);
            match error {
                Ok(error) => report.values[Reported::Novelty as usize] = error,
                Err(place) => {
                    report.diverged = Some(format!("novelty is not finite{place}"));
                    return;
                }
            }
        }
        let begun = report.spans.begin();
        self.rollout.estimate(self.settings.gamma as f32, self.settings.gae_lambda as f32);
        report.spans.end(Phase::Estimate as usize, begun);
        if let Some(popart) = &mut self.popart {
            popart.update(&self.rollout.returns, &mut self.params);
        }
        self.report_values(report);
        let collected = Instant::now();
        self.learn(report);
        self.iteration += 1;
        let learned = Instant::now();
        report.seconds = [(collected - start).as_secs_f64(), (learned - collected).as_secs_f64()];
        report.spans.note(Phase::Collect as usize, start, collected);
        report.spans.note(Phase::Learn as usize, collected, learned);
    }

    fn report_values(&self, report: &mut Report) {
        let values = &self.rollout.value[..self.rollout.samples()];
        let (mut sum, mut least, mut most) = (0.0, f32::INFINITY, f32::NEG_INFINITY);
        for &value in values {
            sum += f64::from(value);
            (least, most) = (least.min(value), most.max(value));
        }
        report.values[Reported::ValueMean as usize] = sum / values.len() as f64;
        report.values[Reported::ValueMin as usize] = f64::from(least);
        report.values[Reported::ValueMax as usize] = f64::from(most);
        report.values[Reported::ExplainedVariance as usize] = self.rollout.explained_variance();
    }
}

/// What a checkpoint holds beside weights, optimiser and envs; floats by their bits.
#[derive(Default, Serialize, Deserialize)]
struct State {
    iteration: u32,
    obs_normaliser: Option<Vec<u64>>,
    return_scale: Option<Vec<u64>>,
    popart: Option<Vec<u64>>,
    loss_scale: Option<[u8; 8]>,
}

impl Algorithm for Ppo {
    fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    fn iterate(&mut self, report: &mut Report) {
        let before = self.steps_before();
        self.collect_and_learn(report);
        self.find_cause(before, report);
    }

    fn plans(&mut self) -> Vec<(&'static str, &mut Plan)> {
        let own = [("act", self.actor.plan_mut()), ("learn", &mut self.learner)];
        own.into_iter().chain(self.bonus.as_mut().map(|bonus| ("curiosity", bonus.plan_mut()))).collect()
    }

    fn steps(&self) -> u64 {
        u64::from(self.iteration) * self.samples()
    }

    fn steps_per_iteration(&self) -> u64 {
        self.samples()
    }

    fn set_total_steps(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
    }

    fn adopt(&mut self, policy: &Policy) -> Result<()> {
        if self.popart.is_some() {
            let next = "turn ppo.popart off, or resume the run";
            return Err(Error::Invalid(format!("a policy's file does not hold the scale of PopArt's values; {next}")));
        }
        policy.check_like(&self.architecture, &self.head, self.obs_normaliser.is_some())?;
        self.params.from_bytes(&policy.params.to_bytes(&Metadata::new()))?;
        self.obs_normaliser.clone_from(&policy.normaliser);
        self.observe_envs();
        Ok(())
    }

    fn policy(&self) -> Result<Policy> {
        Ok(self.current_policy())
    }

    fn save(&self) -> Result<Parts> {
        let state = State {
            iteration: self.iteration,
            obs_normaliser: self.obs_normaliser.as_ref().map(|x| to_bits(x.to_numbers())),
            return_scale: self.return_scale.as_ref().map(|x| to_bits(x.to_numbers())),
            popart: self.popart.as_ref().map(|x| to_bits(x.to_numbers())),
            loss_scale: self.loss_scale.as_ref().map(LossScale::to_bytes),
        };
        let bonus = self.bonus.iter().flat_map(Bonus::save).map(|(name, bytes)| (name.to_owned(), bytes));
        let own = [
            ("policy.safetensors".into(), self.current_policy().to_bytes()),
            ("optimizer.safetensors".into(), self.optimizer.to_bytes()),
            ("env.bin".into(), self.env.save()),
            ("memory.bin".into(), self.actor.state().iter().flatten().flat_map(|x| x.to_le_bytes()).collect()),
            ("ppo.json".into(), serde_json::to_vec(&state).expect("numbers are JSON")),
        ];
        Ok(own.into_iter().chain(bonus).collect())
    }

    fn load(&mut self, parts: &Parts) -> Result<()> {
        let state: State = serde_json::from_slice(part(parts, "ppo.json")?).map_err(|_| damaged("ppo.json"))?;
        self.params.from_bytes(part(parts, "policy.safetensors")?)?;
        self.optimizer.from_bytes(part(parts, "optimizer.safetensors")?)?;
        self.iteration = state.iteration;
        let (seed, steps) = (self.seed, self.steps());
        let goes_on = load_env(&mut *self.env, parts, seed, steps)?;
        let (n, obs) = (self.rollout.shape.envs, self.rollout.shape.obs);
        load_running(&mut self.obs_normaliser, state.obs_normaliser.as_deref(), obs, "obs_normaliser")?;
        if let Some(scale) = &mut self.return_scale {
            let bits = state.return_scale.ok_or_else(|| damaged("return_scale"))?;
            *scale = ReturnScale::from_numbers(&from_bits(&bits), n).ok_or_else(|| damaged("return_scale"))?;
        }
        if let Some(popart) = &mut self.popart {
            let bits = state.popart.ok_or_else(|| damaged("popart"))?;
            popart.set_numbers(&from_bits(&bits)).ok_or_else(|| damaged("popart"))?;
        }
        if let Some(bonus) = &mut self.bonus {
            bonus.load(parts)?;
        }
        load_scale(&mut self.loss_scale, state.loss_scale)?;
        let memory = part(parts, "memory.bin")?.as_chunks::<4>().0;
        if memory.len() != self.actor.state().iter().map(Vec::len).sum::<usize>() {
            return Err(damaged("memory.bin"));
        }
        let values = self.actor.state_mut().iter_mut().flatten();
        values.zip(memory).for_each(|(to, bytes)| *to = f32::from_le_bytes(*bytes));
        if !goes_on {
            self.forget_episodes();
        }
        self.observe_envs();
        Ok(())
    }
}
