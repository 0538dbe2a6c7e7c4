//! TD(λ) self-play for backgammon (G. Tesauro, "Temporal difference learning and TD-Gammon", 1995): two value networks learn how games end from
//! games that they play against themselves, with the play that is best one roll ahead.
//!
//! Many games go on at once, so that the networks value the plays of all of them in batches. A game that ends gives each of its positions a
//! target: the value of the next one, mixed with λ of what came after (R. Sutton, 1988), seen from the other side. Targets go through a small
//! replay; a moving average of the weights plays. Games are played in groups of a fixed size, so the number of threads changes nothing.

use crate::backgammon::{OUTCOMES, Outcome, Plays, Points, Position, Side, roll};
use crate::search::backgammon::{BackgammonFile, BackgammonNet, Evaluator, Kind, Weights};
use operant_base::config::{self, Table};
use operant_base::telemetry::Metric;
use operant_base::{Error, Result};
use operant_device::{CpuPool, check_room};
use operant_lanes::Backend;
use operant_lanes::rng::HostRng;
use operant_nn::{Act, Ema, Feed, Method, Node, Optimizer, Options, Params, Plan, Precision, Schedule, Wanted};
use operant_rl::algo::{
    Algorithm, Build, Ended, Entry, Parts, Phase, Policy, Report, first_bad_op, part, train_and_step,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// The `[td]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Turns of each game in an iteration.
    pub turns: usize,
    /// Positions of a batch.
    pub batch_size: usize,
    /// Positions that are kept to learn from, per network.
    pub replay: usize,
    /// How often each position is learned from, on average.
    pub reuse: f64,
    /// Weight of what came later in a target: at the start.
    pub lambda: f64,
    /// Share of the run over which it falls to 0 in a straight line.
    pub lambda_until: f64,
    /// Step size of the optimiser.
    pub learning_rate: f64,
    /// Lower the learning rate along half a cosine to a hundredth at the end of the run.
    pub anneal_lr: bool,
    /// Share of the old weights that a step of the moving average keeps, which plays.
    pub ema: f64,
    /// Gradients longer than this are shortened to it; 0 for no limit.
    pub max_grad_norm: f64,
    /// Added to the root of Adam's second moment.
    pub adam_eps: f64,
    /// File of networks to begin with, widened to this run's size; nothing for new ones.
    pub start: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            turns: 16,
            batch_size: 128,
            replay: 65_536,
            reuse: 2.0,
            lambda: 0.95,
            lambda_until: 0.6,
            learning_rate: 1.5e-3,
            anneal_lr: true,
            ema: 0.998,
            max_grad_norm: 0.0,
            adam_eps: 1e-8,
            start: String::new(),
        }
    }
}

/// TD in the list of algorithms.
pub const ENTRY: Entry = Entry {
    name: "td",
    summary: "TD(lambda) self-play: how games end, learned from games against itself (backgammon)",
    defaults: config::defaults::<Settings>,
    resolve: |table| Ok(config::to_table(&read(table)?)),
    may_change: &["turns", "reuse", "lambda", "lambda_until", "learning_rate", "anneal_lr", "ema", "max_grad_norm"],
    has_schedules: |_| true,
    build: |build| Ok(Box::new(Td::new(build)?)),
    class: "Td",
    check_gpu: None,
};

fn read(table: &Table) -> Result<Settings> {
    config::read(table, "td")
}

impl Settings {
    fn check(&self) -> Result<()> {
        let rule = |holds: bool, key: &str, got: &dyn std::fmt::Display, wanted: &str| {
            if holds { Ok(()) } else { Err(Error::Invalid(format!("td.{key} = {got}: wanted {wanted}"))) }
        };
        let positive = |x: f64| x > 0.0 && x <= 1e30;
        rule((1..=1024).contains(&self.turns), "turns", &self.turns, "1..=1024")?;
        rule((1..=1 << 20).contains(&self.batch_size), "batch_size", &self.batch_size, "1..=1048576")?;
        rule((self.batch_size..=1 << 26).contains(&self.replay), "replay", &self.replay, "td.batch_size..=67108864")?;
        rule((0.01..=100.0).contains(&self.reuse), "reuse", &self.reuse, "0.01 to 100")?;
        rule((0.0..=1.0).contains(&self.lambda), "lambda", &self.lambda, "0 to 1")?;
        rule((0.0..=1.0).contains(&self.lambda_until), "lambda_until", &self.lambda_until, "0 to 1")?;
        rule(positive(self.learning_rate), "learning_rate", &self.learning_rate, "more than 0")?;
        rule((0.0..1.0).contains(&self.ema), "ema", &self.ema, "0 up to less than 1")?;
        rule(positive(self.adam_eps), "adam_eps", &self.adam_eps, "more than 0")?;
        rule((0.0..=1e30).contains(&self.max_grad_norm), "max_grad_norm", &self.max_grad_norm, "0 (no limit) or more")
    }
}

/// Reported numbers, in the order of [`METRICS`].
#[derive(Clone, Copy)]
enum Reported {
    LossContact,
    LossRace,
    EquityError,
    Games,
    Gammons,
    Backgammons,
    Evaluations,
    Lambda,
    LearningRate,
}

const METRICS: &[Metric] = &[
    Metric::new(
        "loss/contact",
        "cross-entropy of five outcomes, positions with contact, in the last iteration that had some",
        "",
    ),
    Metric::new("loss/race", "cross-entropy of five outcomes, races, in the last iteration that had some", ""),
    Metric::new("equity_error", "mean difference of a position's equity to its target", "points").headline(),
    Metric::new("games", "games that ended", "").headline(),
    Metric::new("gammons", "share of games that ended with a gammon or a backgammon", ""),
    Metric::new("backgammons", "share of games that ended with a backgammon", ""),
    Metric::new("evaluations", "positions valued per turn", ""),
    Metric::new("lambda", "weight of what came later in a target", ""),
    Metric::new("learning_rate", "step size of the optimiser", ""),
];

/// A position and what is to be learned of it.
#[derive(Clone, Copy)]
struct Sample {
    position: Position,
    target: Outcome,
}

/// Turns after which a game is cut: the value of its last position stands for its result.
const MOST_TURNS: usize = 512;
/// Games of a group, which one thread plays.
const GROUP: usize = 64;
/// Positions that wait for their values at most, beside those of one more roll.
const WAITING: usize = 4096;

/// One game.
struct Slot {
    /// How many games came before it here.
    number: u32,
    /// Each position with its value when it was chosen, that of the present turn last.
    history: Vec<(Position, Outcome)>,
}

impl Slot {
    fn begin(&mut self) {
        self.history.clear();
        self.history.push((Position::START, Outcome::default()));
    }

    /// Targets of all positions, when a game ended with `last` for the player whose turn would be next.
    fn settle(&self, last: Outcome, lambda: f32, samples: &mut Vec<Sample>) {
        let mut next = last;
        for &(position, value) in self.history.iter().rev() {
            let target = next.swapped();
            samples.push(Sample { position, target });
            next = value.mixed(target, lambda);
        }
    }
}

/// Games that one thread plays, with all it needs for that.
struct Group {
    /// Number of the first game.
    first: usize,
    slots: Vec<Slot>,
    evaluator: Evaluator,
    plays: Plays,
    /// Positions that wait for their values, and where those of each game begin.
    positions: Vec<Position>,
    outcomes: Vec<Outcome>,
    begins: Vec<(usize, usize)>,
    /// What games that ended gave, and how they ended.
    samples: Vec<Sample>,
    ended: Vec<(u32, Option<Points>, i32)>,
    evaluations: u64,
}

impl Group {
    fn new(first: usize, games: usize, turns: usize, evaluator: Evaluator) -> Self {
        let mut slots: Vec<Slot> =
            (0..games).map(|_| Slot { number: 0, history: Vec::with_capacity(MOST_TURNS + 1) }).collect();
        slots.iter_mut().for_each(Slot::begin);
        Self {
            first,
            slots,
            evaluator,
            plays: Plays::default(),
            positions: Vec::with_capacity(2 * WAITING),
            outcomes: vec![Outcome::default(); 2 * WAITING],
            begins: Vec::with_capacity(games),
            samples: Vec::with_capacity(games * (MOST_TURNS + turns)),
            ended: Vec::with_capacity(games * turns),
            evaluations: 0,
        }
    }

    /// One turn of each game.
    fn turn(&mut self, seed: u64, lambda: f32) {
        for slot in 0..self.slots.len() {
            let Slot { number, history } = &self.slots[slot];
            let turn = history.len() - 1;
            let mut rng = HostRng::new(seed, (self.first + slot) as u32, *number, turn as u32);
            let position = history[turn].0;
            self.plays.find(position, roll(&mut rng, turn == 0));
            if self.positions.len() + self.plays.len() > 2 * WAITING {
                self.choose(lambda);
            }
            self.begins.push((slot, self.positions.len()));
            self.positions.extend(self.plays.iter().map(|play| play.result(position)));
        }
        self.choose(lambda);
    }

    /// Values what waits and makes the best play of each game.
    fn choose(&mut self, lambda: f32) {
        let count = self.positions.len();
        self.evaluator.evaluate(&self.positions, &mut self.outcomes[..count]);
        self.evaluations += count as u64;
        for i in 0..self.begins.len() {
            let (slot, begin) = self.begins[i];
            let end = self.begins.get(i + 1).map_or(count, |next| next.1);
            // What the opponent likes least.
            let mut best = begin;
            for at in begin + 1..end {
                if self.outcomes[at].equity() < self.outcomes[best].equity() {
                    best = at;
                }
            }
            let (position, outcome) = (self.positions[best], self.outcomes[best]);
            let points = position.lost();
            let game = &mut self.slots[slot];
            let turns = game.history.len();
            if points.is_some() || turns == MOST_TURNS {
                game.settle(outcome, lambda, &mut self.samples);
                self.ended.push(((self.first + slot) as u32, points, turns as i32));
                game.number += 1;
                game.begin();
            } else {
                game.history.push((position, outcome));
            }
        }
        self.positions.clear();
        self.begins.clear();
    }
}

/// One network that learns, and the positions that it learns from.
struct Learner {
    kind: Kind,
    params: Params,
    average: Ema,
    optimizer: Optimizer,
    plan: Plan,
    outcome: Node,
    replay: Vec<Sample>,
    /// Most samples of the replay.
    room: usize,
    /// Where the next sample goes.
    next: usize,
    /// Positions that are to be learned from before the next iteration.
    owed: f64,
    updates: u64,
    /// `[B]`
    drawn: Vec<Position>,
    /// `[B, inputs]`
    inputs: Vec<f32>,
    /// `[B, 5]`
    targets: Vec<f32>,
    /// Sums over the updates of an iteration: loss, equity error, updates.
    sums: [f64; 3],
    /// Of the last iteration that had updates: with NaN for those without, losses would look as if they had diverged.
    loss: f64,
}

impl Learner {
    fn new(kind: Kind, net: &BackgammonNet, params: Params, settings: &Settings, options: &Options) -> Result<Self> {
        let (mut graph, logits) = net.build(kind)?;
        let outcome = graph.activation(logits, Act::Sigmoid)?;
        let target = graph.input("target", [OUTCOMES]);
        let loss = graph.bce_with_logits_loss(logits, target, None)?;
        let wanted = Wanted { losses: vec![(loss, 1.0)], outputs: vec![outcome], ..Wanted::default() };
        let max_norm = (settings.max_grad_norm > 0.0).then_some(settings.max_grad_norm as f32);
        let method = Method::Adam { beta1: 0.9, beta2: 0.999, eps: settings.adam_eps };
        Ok(Self {
            kind,
            average: Ema::new(&params, Backend::fast()),
            optimizer: Optimizer::new(method, &params, max_norm, Backend::fast())?.on(&options.pool),
            plan: Plan::new(&graph, &wanted, settings.batch_size, options)?,
            params,
            outcome,
            replay: Vec::with_capacity(settings.replay),
            room: settings.replay,
            next: 0,
            owed: 0.0,
            updates: 0,
            drawn: vec![Position::START; settings.batch_size],
            inputs: vec![0.0; settings.batch_size * kind.inputs()],
            targets: vec![0.0; settings.batch_size * OUTCOMES],
            sums: [0.0; 3],
            loss: f64::NAN,
        })
    }

    fn keep(&mut self, sample: Sample, reuse: f64) {
        if self.replay.len() < self.room {
            self.replay.push(sample);
        } else {
            self.replay[self.next] = sample;
        }
        self.next = (self.next + 1) % self.room;
        self.owed += reuse;
    }

    /// Learns from as many positions as are owed; says what diverged, if something did.
    fn learn(&mut self, seed: u64, learning_rate: f32, ema: f64, report: &mut Report) {
        let rows = self.targets.len() / OUTCOMES;
        while self.owed >= rows as f64 && self.replay.len() >= rows {
            self.owed -= rows as f64;
            let begun = report.spans.begin();
            let (low, high) = (self.updates as u32, (self.updates >> 32) as u32);
            let mut rng = HostRng::new(seed, u32::MAX - self.kind as u32, low, high);
            for (position, target) in self.drawn.iter_mut().zip(self.targets.chunks_exact_mut(OUTCOMES)) {
                let sample = self.replay[rng.below(self.replay.len() as u32) as usize];
                *position = sample.position;
                target.copy_from_slice(&sample.target.to_array());
            }
            self.kind.write_inputs(Backend::fast(), &self.drawn, &mut self.inputs);
            report.spans.end(Phase::Gather as usize, begun);
            let feeds = [Feed::Real(&self.inputs), Feed::Real(&self.targets)];
            let stepped = (&mut self.params, &mut self.optimizer);
            let (result, step) = train_and_step(&mut self.plan, stepped, (rows, &feeds), (learning_rate, 1.0), report);
            let begun = report.spans.begin();
            // Short at first: the average of a few steps is not yet a good one.
            let share = (1.0 + self.updates as f64) / (10.0 + self.updates as f64);
            self.average.update(&self.params, ema.min(share));
            report.spans.end(Phase::Optimize as usize, begun);
            if !result.finite || !step.finite {
                let what = if result.finite { "the gradient" } else { "the loss" };
                let place = first_bad_op(&mut self.plan, &self.params, rows, &feeds);
                report.diverged = Some(format!("{what} of the {} network is not finite{place}", self.kind.name()));
                return;
            }
            self.updates += 1;
            let equity = |numbers: &[f32; OUTCOMES]| Outcome::from_array(*numbers).equity();
            let pairs = self.plan.output(self.outcome).as_chunks().0.iter().zip(self.targets.as_chunks().0);
            let error: f32 = pairs.map(|(got, wanted)| (equity(got) - equity(wanted)).abs()).sum();
            self.sums[0] += f64::from(result.loss);
            self.sums[1] += f64::from(error) / rows as f64;
            self.sums[2] += 1.0;
        }
    }
}

/// A run of self-play.
pub struct Td {
    settings: Settings,
    seed: u64,
    total_steps: u64,
    pool: Arc<CpuPool>,
    net: BackgammonNet,
    schedule: Schedule,
    groups: Vec<Group>,
    learners: [Learner; 2],
    /// What plays, which the groups' evaluators share.
    evaluator: Evaluator,
    turns: u64,
    games: u64,
    /// Why the networks to begin with could not be read.
    unread: Option<String>,
}

/// What both networks begin with: a file's weights, or new ones.
fn first_weights(net: &BackgammonNet, start: &str, seed: u64) -> Result<Weights> {
    if start.is_empty() {
        return net.params(seed);
    }
    let bytes = std::fs::read(start)
        .map_err(|error| Error::Io(format!("can't read td.start = \"{start}\": {error}; name a file of td")))?;
    let (saved, weights) = BackgammonFile::from_bytes(&bytes)?;
    net.widened(&saved, &weights, seed).map_err(|error| Error::Invalid(format!("td.start = \"{start}\": {error}")))
}

impl Td {
    /// Builds everything that the run will ever allocate.
    fn new(build: Build) -> Result<Self> {
        let Build { mut env, pool, seed, total_steps, precision, network, settings, .. } = build;
        let settings = read(&settings)?;
        settings.check()?;
        if env.on_gpu().is_some() {
            return Err(Error::Invalid("td runs on the CPU alone; wanted device = \"cpu\"".into()));
        }
        if env.spec().name != "backgammon" {
            return Err(Error::Invalid(format!(
                "td learns games against itself: wanted backgammon, got {}",
                env.spec().name
            )));
        }
        if precision == Precision::F16 {
            return Err(Error::Invalid("precision = f16 for td: wanted f32 or bf16".into()));
        }
        let &[hidden] = network.hidden.as_slice() else {
            return Err(Error::Invalid(format!(
                "network.hidden = {:?} for td: wanted one size, as in [256]",
                network.hidden
            )));
        };
        if !(1..=65_536).contains(&hidden) {
            return Err(Error::Invalid(format!("network.hidden = [{hidden}]: wanted 1..=65536")));
        }
        let net = BackgammonNet { hidden, activation: network.activation };
        // A run that goes on has its weights in the checkpoint, and needs the file no more.
        let (weights, unread) = match first_weights(&net, &settings.start, seed) {
            Ok(weights) => (weights, None),
            Err(error) => (net.params(seed)?, Some(error.to_string())),
        };
        let options = Options { pool: Arc::clone(&pool), precision, seed, ..Options::default() };
        let evaluator = Evaluator::new(&net, &weights, &options)?;
        let games = env.num_envs();
        let per_game = size_of::<Slot>() + MOST_TURNS * (size_of::<(Position, Outcome)>() + size_of::<Sample>());
        check_room(&format!("num_envs {games} games of td"), (games * per_game) as u64, "lower num_envs")?;
        let replays = 2 * (settings.replay as u64).saturating_mul(size_of::<Sample>() as u64);
        check_room(&format!("two replays of td.replay {}", settings.replay), replays, "lower td.replay")?;
        let group = |first: usize| Group::new(first, GROUP.min(games - first), settings.turns, evaluator.fork());
        let [contact, race] = weights;
        let rate = settings.learning_rate as f32;
        Ok(Self {
            groups: (0..games).step_by(GROUP).map(group).collect(),
            learners: [
                Learner::new(Kind::Contact, &net, contact, &settings, &options)?,
                Learner::new(Kind::Race, &net, race, &settings, &options)?,
            ],
            schedule: match settings.anneal_lr {
                true => Schedule::Cosine { from: rate, to: rate / 100.0 },
                false => Schedule::Constant(rate),
            },
            turns: 0,
            games: 0,
            unread,
            settings,
            seed,
            total_steps,
            pool,
            net,
            evaluator,
        })
    }

    fn lambda(&self) -> f64 {
        let end = self.settings.lambda_until * self.total_steps as f64;
        self.settings.lambda * (1.0 - self.turns as f64 / end.max(1.0)).max(0.0)
    }

    fn slots(&self) -> usize {
        self.groups.iter().map(|group| group.slots.len()).sum()
    }

    /// Plays, and moves what games gave into the replays, in the order of their numbers.
    fn play(&mut self, lambda: f32, report: &mut Report) -> (u64, [u64; 4]) {
        for (kind, learner) in self.learners.iter().enumerate() {
            self.evaluator.publish(Kind::ALL[kind], learner.average.params());
        }
        let (seed, turns) = (self.seed, self.settings.turns);
        self.pool.for_each_mut(&mut self.groups, |_, group| {
            for _ in 0..turns {
                group.turn(seed, lambda);
            }
        });
        let (mut evaluations, mut ends) = (0, [0; 4]);
        for group in &mut self.groups {
            for sample in group.samples.drain(..) {
                self.learners[Kind::of(sample.position) as usize].keep(sample, self.settings.reuse);
            }
            for (env, points, length) in group.ended.drain(..) {
                let points = points.map_or(0, |points| points as usize);
                ends[points] += 1;
                report.episode(Ended { env, total: points as f32, length });
            }
            evaluations += std::mem::take(&mut group.evaluations);
        }
        (evaluations, ends)
    }
}

impl Algorithm for Td {
    fn metrics(&self) -> &[Metric] {
        METRICS
    }

    fn iterate(&mut self, report: &mut Report) {
        if let Some(reason) = &self.unread {
            report.failed = Some(reason.clone());
            return;
        }
        let start = Instant::now();
        let (lambda, learning_rate) = (self.lambda(), self.schedule.at(self.turns, self.total_steps));
        let (evaluations, ends) = self.play(lambda as f32, report);
        self.turns += self.steps_per_iteration();
        let games: u64 = ends.iter().sum();
        self.games += games;
        let played = Instant::now();
        report.spans.note(Phase::Collect as usize, start, played);
        for learner in &mut self.learners {
            learner.sums = [0.0; 3];
            learner.learn(self.seed, learning_rate, self.settings.ema, report);
            if report.diverged.is_some() {
                return;
            }
            if learner.sums[2] > 0.0 {
                learner.loss = learner.sums[0] / learner.sums[2];
            }
        }
        let learned = Instant::now();
        report.spans.note(Phase::Learn as usize, played, learned);
        let mut set = |metric: Reported, x: f64| report.values[metric as usize] = x;
        let [contact, race] = &self.learners;
        set(Reported::LossContact, contact.loss);
        set(Reported::LossRace, race.loss);
        set(Reported::EquityError, (contact.sums[1] + race.sums[1]) / (contact.sums[2] + race.sums[2]));
        set(Reported::Games, self.games as f64);
        set(Reported::Gammons, (ends[2] + ends[3]) as f64 / games as f64);
        set(Reported::Backgammons, ends[3] as f64 / games as f64);
        set(Reported::Evaluations, evaluations as f64 / self.steps_per_iteration() as f64);
        set(Reported::Lambda, lambda);
        set(Reported::LearningRate, f64::from(learning_rate));
        report.seconds = [(played - start).as_secs_f64(), (learned - played).as_secs_f64()];
    }

    fn plans(&mut self) -> Vec<(&'static str, &mut Plan)> {
        let [contact, race] = &mut self.learners;
        vec![("learn contact", &mut contact.plan), ("learn race", &mut race.plan)]
    }

    fn steps(&self) -> u64 {
        self.turns
    }

    fn steps_per_iteration(&self) -> u64 {
        (self.settings.turns * self.slots()) as u64
    }

    fn set_total_steps(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
    }

    fn adopt(&mut self, _: &Policy) -> Result<()> {
        Err(Error::Invalid("td learns values, not a policy; resume a run of td".into()))
    }

    fn policy(&self) -> Result<Policy> {
        Err(Error::Invalid(
            "td learns values, not a policy; its values play (operant eval RUN --against random)".into(),
        ))
    }

    fn save(&self) -> Result<Parts> {
        let [contact, race] = &self.learners;
        let average = [contact, race].map(|learner| learner.average.params().clone());
        let learning = [contact, race].map(|learner| learner.params.clone());
        Ok(Parts::from([
            ("backgammon.safetensors".into(), BackgammonFile::to_bytes(&self.net, &average)?),
            ("learning.safetensors".into(), BackgammonFile::to_bytes(&self.net, &learning)?),
            ("optimizer.contact.safetensors".into(), contact.optimizer.to_bytes()),
            ("optimizer.race.safetensors".into(), race.optimizer.to_bytes()),
            ("td.bin".into(), self.write_state()),
        ]))
    }

    fn load(&mut self, parts: &Parts) -> Result<()> {
        let (net, average) = BackgammonFile::from_bytes(part(parts, "backgammon.safetensors")?)?;
        let (_, learning) = BackgammonFile::from_bytes(part(parts, "learning.safetensors")?)?;
        if net != self.net {
            return Err(Error::Saved(format!(
                "checkpoint of a network {net:?}, the run has {:?}; take another",
                self.net
            )));
        }
        for ((learner, average), learning) in self.learners.iter_mut().zip(&average).zip(&learning) {
            learner.average.copy_from(average);
            learner.params.values_mut().copy_from_slice(learning.values());
            let name = format!("optimizer.{}.safetensors", learner.kind.name());
            learner.optimizer.from_bytes(part(parts, &name)?)?;
        }
        self.read_state(part(parts, "td.bin")?)?;
        self.unread = None;
        Ok(())
    }
}

/// First bytes of `td.bin`.
const MAGIC: u64 = u64::from_le_bytes(*b"optd0001");

/// Writes numbers one after another, lowest byte first.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, x: u64) {
        self.0.extend(x.to_le_bytes());
    }

    fn entry(&mut self, position: Position, outcome: Outcome) {
        self.0.extend(position.mover.to_bits().to_le_bytes());
        self.0.extend(position.other.to_bits().to_le_bytes());
        outcome.to_array().iter().for_each(|x| self.0.extend(x.to_bits().to_le_bytes()));
    }
}

/// Reads what [`Writer`] wrote; `None` at the end or for what can't be.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn entry(&mut self) -> Option<(Position, Outcome)> {
        let mover = Side::from_bits(u128::from_le_bytes(self.take()?))?;
        let other = Side::from_bits(u128::from_le_bytes(self.take()?))?;
        let mut outcome = [0.0; OUTCOMES];
        for x in &mut outcome {
            *x = f32::from_bits(u32::from_le_bytes(self.take()?));
        }
        Some((Position { mover, other }, Outcome::from_array(outcome)))
    }
}

impl Td {
    /// Counters, games and replays.
    fn write_state(&self) -> Vec<u8> {
        let mut to = Writer::default();
        [MAGIC, self.turns, self.games, self.slots() as u64].into_iter().for_each(|x| to.number(x));
        for slot in self.groups.iter().flat_map(|group| &group.slots) {
            to.number(u64::from(slot.number));
            to.number(slot.history.len() as u64);
            slot.history.iter().for_each(|&(position, value)| to.entry(position, value));
        }
        for learner in &self.learners {
            let numbers = [learner.updates, learner.owed.to_bits(), learner.next as u64, learner.replay.len() as u64];
            numbers.into_iter().for_each(|x| to.number(x));
            learner.replay.iter().for_each(|sample| to.entry(sample.position, sample.target));
        }
        to.0
    }

    fn read_state(&mut self, bytes: &[u8]) -> Result<()> {
        let damaged = || Error::Saved("checkpoint's td.bin does not fit this run; take another".into());
        self.read_from(Reader(bytes)).ok_or_else(damaged)
    }

    fn read_from(&mut self, mut from: Reader<'_>) -> Option<()> {
        let fits = |holds: bool| holds.then_some(());
        fits(from.number()? == MAGIC)?;
        (self.turns, self.games) = (from.number()?, from.number()?);
        fits(from.number()? == self.slots() as u64)?;
        for slot in self.groups.iter_mut().flat_map(|group| &mut group.slots) {
            slot.number = u32::try_from(from.number()?).ok()?;
            let length = from.number()?;
            fits((1..=MOST_TURNS as u64).contains(&length))?;
            slot.history.clear();
            for _ in 0..length {
                slot.history.push(from.entry()?);
            }
        }
        for learner in &mut self.learners {
            learner.updates = from.number()?;
            learner.owed = f64::from_bits(from.number()?);
            let (next, length) = (from.number()?, from.number()?);
            let capacity = learner.room as u64;
            fits(next < capacity && length <= capacity)?;
            learner.next = next as usize;
            learner.replay.clear();
            for _ in 0..length {
                let (position, target) = from.entry()?;
                learner.replay.push(Sample { position, target });
            }
        }
        fits(from.0.is_empty())
    }
}
