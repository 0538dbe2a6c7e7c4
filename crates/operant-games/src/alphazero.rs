//! AlphaZero (Silver et al., "A general reinforcement learning algorithm that masters chess, shogi, and Go through self-play", 2018), for
//! games with and without chance: a network guides a search, the search plays the games that the network learns from.
//!
//! One iteration: tables of games play a few decisions each by search, with the weights that the iteration before ended with; at the same
//! time the learner draws batches from the positions of games that ended before. Both are tasks of one pool, so learning is hidden behind
//! playing where there are two threads. Positions of games that ended are then added to the window in the order of places. So a run is
//! a function of its seed for any number of threads, and goes on exactly, unless `publish_every` hands out weights in between.
//!
//! A run may begin with a teacher, who plays in place of search and says what positions are worth, until the network has learned from so
//! many batches; games, window and optimiser then go on as they are.

mod batch;
mod gate;
mod learner;
mod samples;
mod settings;
mod table;
mod teacher;

pub use settings::{GateName, Settings, read};

use crate::backgammon::Backgammon;
use crate::connect4::Connect4;
use crate::game::{Game, Heads};
use crate::search::game_net::{self, GameNet, Shared};
use crate::search::mcts::{ChanceMode, Counters, Mcts};
use crate::twenty48::Twenty48;
use learner::Learner;
use operant_base::config;
use operant_base::telemetry::Metric;
use operant_base::{Error, Result};
use operant_device::{CpuPool, check_room};
use operant_nn::nets::Architecture;
use operant_nn::{Act, Graph, Node, Options, Plan, Precision, Schedule};
use operant_rl::algo::{Algorithm, Build, Ended, Entry, Parts, Phase, Policy, Report, part};
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::Table;
use teacher::MakeTeacher;

/// AlphaZero in the list of algorithms.
pub const ENTRY: Entry = Entry {
    name: "alphazero",
    summary: "self-play by tree search over a network that learns from it (connect4, 2048, backgammon)",
    defaults: config::defaults::<Settings>,
    resolve: |table| Ok(config::to_table(&read(table)?)),
    may_change: &[
        "random_moves",
        "drawn_moves",
        "temperature",
        "learning_starts",
        "reuse",
        "td_lambda",
        "learning_rate",
        "anneal_lr",
        "pretrain",
        "pretrain_learning_rate",
        "publish_every",
    ],
    has_schedules: |_| true,
    build: |build| {
        let mut build = build;
        if build.env.on_gpu().is_some() {
            return Err(Error::Invalid("alphazero runs on the CPU alone; wanted device = \"cpu\"".into()));
        }
        match build.env.spec().name {
            Connect4::NAME => Ok(Box::new(AlphaZero::<Connect4>::new(build, None)?)),
            Twenty48::NAME => Ok(Box::new(AlphaZero::<Twenty48>::new(build, None)?)),
            Backgammon::NAME => Ok(Box::new(AlphaZero::<Backgammon>::new(build, Some(teacher::of_backgammon))?)),
            other => {
                Err(Error::Invalid(format!("alphazero plays games: wanted connect4, 2048 or backgammon, got {other}")))
            }
        }
    },
    class: "AlphaZero",
    check_gpu: None,
};

/// Reported numbers, in the order of [`METRICS`].
#[derive(Clone, Copy)]
enum Reported {
    PolicyLoss,
    ValueLoss,
    EquityError,
    TeacherError,
    Pretrained,
    Promoted,
    HeldBackLoss,
    GradNorm,
    LearningRate,
    Games,
    GamesPerMinute,
    EvaluationsPerSecond,
    Evaluations,
    TreeReuse,
    Hits,
    Depth,
    Forced,
    Window,
    Updates,
    Surprise,
    Hidden,
}

const METRICS: &[Metric] = &[
    Metric::new("loss/policy", "cross-entropy of the policy with what searches made of it, over decisions", "")
        .headline(),
    Metric::new("loss/value", "cost of the value against what games came to", "").headline(),
    Metric::new("equity_error", "points by which searches moved the network's values, in games that ended", "")
        .headline(),
    Metric::new(
        "teacher_error",
        "points between the network's values and the teacher's, before it learns from them",
        "",
    )
    .headline(),
    Metric::new("pretrained", "share of the batches that the teacher gives", ""),
    Metric::new("promoted", "whether the weights that learned play from now on", ""),
    Metric::new("loss/held_back", "loss of the weights that play on positions that are held back", ""),
    Metric::new("grad_norm", "norm of the gradient before clipping", ""),
    Metric::new("learning_rate", "step size of the optimiser", ""),
    Metric::new("games", "games that ended in the iteration", ""),
    Metric::new("games_per_min", "games that ended per minute", "1/min").headline(),
    Metric::new("evals_per_s", "states that the network valued for searches per second", "1/s").headline(),
    Metric::new("evals", "states that the network valued per decision", ""),
    Metric::new("tree_reuse", "share of simulations that trees were left with by the search before", "").headline(),
    Metric::new("tree_hits", "share of simulations that ended at a state the tree had already", ""),
    Metric::new("depth", "mean length of a simulation", ""),
    Metric::new("forced", "share of decisions with one action", ""),
    Metric::new("replay", "positions to learn from", ""),
    Metric::new("updates", "steps of the optimiser in the iteration", ""),
    Metric::new(
        "surprise",
        "points by which searches moved values of drawn positions, as a multiple of that of all",
        "",
    ),
    Metric::new("time/hidden", "share of the learner's time behind which games were played", ""),
];

/// The part of a checkpoint that teaches, as long as it does.
const TEACHER: &str = "teacher.safetensors";
/// Games of a table.
const TABLE: usize = 32;
/// Most rows that a table's network sees at once.
const MOST_ROWS: usize = 1024;

/// Something that a thread does in an iteration.
enum Task<G: Game> {
    Learn(Box<Learner<G>>),
    Play(Box<Table<G>>),
}

/// A teacher that tables have forks of.
struct Teaching<G: Game> {
    make: MakeTeacher<G>,
    options: Options,
    /// Its file, or why that can't be read: once the network was taught, or where a checkpoint holds it, nobody needs it.
    file: Result<Vec<u8>>,
}

/// A run of AlphaZero.
pub struct AlphaZero<G: Game> {
    settings: Settings,
    architecture: Architecture,
    pool: Arc<CpuPool>,
    /// The learner first, so that it begins first.
    tasks: Vec<Task<G>>,
    shared: Shared,
    games: usize,
    total_steps: u64,
    iterations: u64,
    /// How many of these the teacher played, and who that is.
    taught: u64,
    teaching: Option<Teaching<G>>,
    /// Times of an iteration's tables.
    times: Vec<(Instant, Instant)>,
}

impl<G: Game> AlphaZero<G> {
    /// Builds everything that the run will ever allocate.
    fn new(build: Build, make_teacher: Option<MakeTeacher<G>>) -> Result<Self> {
        let settings = read(&build.settings)?;
        settings.check()?;
        if build.precision == Precision::F16 {
            return Err(Error::Invalid("precision = f16 for alphazero: wanted f32 or bf16".into()));
        }
        if build.network.activation != Act::Relu {
            return Err(Error::Invalid(
                "network.activation for alphazero: wanted relu, as residual blocks have it".into(),
            ));
        }
        if G::HEADS > 1 && settings.td_lambda < 1.0 {
            return Err(Error::Invalid(format!(
                "alphazero.td_lambda = {}: wanted 1 for {}, whose heads are chances of whole games",
                settings.td_lambda,
                G::NAME
            )));
        }
        let games = build.env.num_envs();
        check_room(
            &format!("trees of {} simulations for num_envs {games}", settings.search.simulations),
            Mcts::<G>::bytes(&settings.search).saturating_mul(games as u64),
            "lower num_envs or alphazero.simulations",
        )?;
        let architecture = game_net::architecture::<G>(&build.network.hidden)?;
        let options = Options { precision: build.precision, seed: build.seed, ..Options::default() };
        let learner = Learner::<G>::new(&settings, &architecture, &options)?;
        let per_leaf = if settings.search.chance == ChanceMode::Exact { G::OUTCOMES.max(1) } else { 1 };
        let rows = (TABLE.min(games) * settings.search.leaves * per_leaf).min(MOST_ROWS);
        let net = GameNet::<G>::new(&architecture, learner.playing().clone(), rows, &options)?;
        let shared = net.share(learner.playing());
        let mut tasks = vec![Task::Learn(Box::new(learner))];
        for first in (0..games).step_by(TABLE) {
            let numbers = first as u32..(first + TABLE).min(games) as u32;
            tasks.push(Task::Play(Box::new(Table::new(numbers, &settings, net.fork(&shared), build.seed)?)));
        }
        let mut run = Self {
            times: Vec::with_capacity(tasks.len()),
            total_steps: build.total_steps,
            pool: build.pool,
            iterations: 0,
            taught: 0,
            teaching: None,
            settings,
            architecture,
            tasks,
            shared,
            games,
        };
        if !run.settings.teacher.is_empty() {
            run.find_teacher(make_teacher, options)?;
        }
        Ok(run)
    }

    /// Reads the teacher's file.
    fn find_teacher(&mut self, make: Option<MakeTeacher<G>>, options: Options) -> Result<()> {
        let Settings { teacher, pretrain, batch_size, search, .. } = &self.settings;
        let make = make.ok_or_else(|| {
            Error::Invalid(format!("alphazero.teacher = \"{teacher}\": {} has none; wanted backgammon", G::NAME))
        })?;
        let per_decision = if search.afterstates { 2 } else { 1 };
        let decisions = pretrain.saturating_mul(*batch_size as u64) / per_decision;
        if decisions >= self.total_steps {
            return Err(Error::Invalid(format!(
                "alphazero.pretrain = {pretrain}: the teacher would play {decisions} decisions, which count as steps; \
                 wanted fewer batches, or more steps than {}",
                self.total_steps
            )));
        }
        let unread = |error: &dyn std::fmt::Display| {
            Error::Io(format!("can't read alphazero.teacher = \"{teacher}\": {error}; name a file of td"))
        };
        let read = std::fs::read(teacher).map_err(|error| unread(&error));
        let file = read.and_then(|bytes| make(&bytes, &options).map(|_| bytes).map_err(|error| unread(&error)));
        self.teaching = Some(Teaching { make, options, file });
        self.seat_teacher()
    }

    /// Gives every table a fork of the teacher, if its file is there.
    fn seat_teacher(&mut self) -> Result<()> {
        if let Some(Teaching { make, options, file: Ok(bytes) }) = &self.teaching {
            let teacher = make(bytes, options)?;
            self.split().1.for_each(|table| table.teacher = Some(teacher.fork()));
        }
        Ok(())
    }

    /// Whether the teacher plays, not the search.
    fn is_taught(&self) -> bool {
        self.teaching.is_some() && self.learner().updates() < self.settings.pretrain
    }

    /// Step size now: under a teacher by batches, then by the steps that are left for self-play.
    fn rate(&self) -> f32 {
        let Settings { learning_rate, pretrain_learning_rate, pretrain, anneal_lr, .. } = self.settings;
        let falling = |from: f64| Schedule::Cosine { from: from as f32, to: from as f32 / 20.0 };
        if self.is_taught() {
            return falling(pretrain_learning_rate).at(self.learner().updates(), pretrain);
        }
        let schedule = if anneal_lr { falling(learning_rate) } else { Schedule::Constant(learning_rate as f32) };
        let taught = self.taught * self.steps_per_iteration();
        schedule.at(self.steps() - taught, self.total_steps.saturating_sub(taught))
    }

    fn learner(&self) -> &Learner<G> {
        match &self.tasks[0] {
            Task::Learn(learner) => learner,
            Task::Play(_) => unreachable!("the learner is the first task"),
        }
    }

    /// The learner, and the tables.
    fn split(&mut self) -> (&mut Learner<G>, impl Iterator<Item = &mut Table<G>>) {
        let (first, rest) = self.tasks.split_at_mut(1);
        let Task::Learn(learner) = &mut first[0] else { unreachable!("the learner is the first task") };
        let tables = rest.iter_mut().filter_map(|task| match task {
            Task::Play(table) => Some(&mut **table),
            Task::Learn(_) => None,
        });
        (learner, tables)
    }
}

/// How much of the time from `from` to `to` lies in some of these spans, which are put in order.
fn covered(from: Instant, to: Instant, spans: &mut [(Instant, Instant)]) -> Duration {
    spans.sort_unstable();
    let (mut sum, mut reached) = (Duration::ZERO, from);
    for &(begin, end) in spans.iter() {
        let (begin, end) = (begin.max(reached), end.min(to));
        if begin < end {
            sum += end - begin;
            reached = end;
        }
    }
    sum
}

impl<G: Game> Algorithm for AlphaZero<G> {
    fn metrics(&self) -> &[Metric] {
        METRICS
    }

    fn iterate(&mut self, report: &mut Report) {
        let begun = Instant::now();
        let (taught, rate) = (self.is_taught(), self.rate());
        if let Some(Teaching { file: Err(error), .. }) = self.teaching.as_ref().filter(|_| taught) {
            report.failed = Some(error.to_string());
            return;
        }
        let (settings, shared) = (&self.settings, &self.shared);
        self.pool.for_each_mut(&mut self.tasks, |_, task| match task {
            Task::Learn(learner) => learner.learn(settings, shared, rate),
            Task::Play(table) if taught => table.follow(settings),
            Task::Play(table) => table.play(settings),
        });
        let played = Instant::now();
        report.spans.note(Phase::Collect as usize, begun, played);
        self.iterations += 1;
        self.taught += u64::from(taught);
        let reuse = if taught { 1.0 } else { self.settings.reuse };
        let (moves, publish) = (self.games * self.settings.moves, self.settings.publish_every == 0);
        let mut times = std::mem::take(&mut self.times);
        times.clear();
        let (mut counters, mut forced, mut games) = (Counters::default(), 0, 0);
        let (mut moved, mut positions) = (0.0, 0.0);
        let (first, rest) = self.tasks.split_at_mut(1);
        let Task::Learn(learner) = &mut first[0] else { unreachable!("the learner is the first task") };
        for task in rest {
            let Task::Play(table) = task else { unreachable!("all others play") };
            for (place, sample) in table.samples() {
                learner.add(place, sample, reuse);
                moved += f64::from(sample.surprise);
                positions += 1.0;
            }
            for finished in &table.finished {
                games += 1;
                report.episode(Ended { env: finished.place, total: finished.points, length: finished.moves as i32 });
            }
            counters.add(&table.counters);
            forced += table.forced;
            times.push(table.played);
        }
        let learned = learner.learned();
        if learned.diverged.is_some() {
            report.diverged.clone_from(&learned.diverged);
        }
        let (from, to) = learned.time;
        let hidden = covered(from, to, &mut times);
        let learning = to - from;
        let window = learner.window_len();
        let pretrained = learner.updates() as f64 / self.settings.pretrain as f64;
        let still_taught = self.is_taught();
        let changed = learned.promoted.unwrap_or(true) && publish || taught;
        if changed && learned.updates > 0 && !still_taught {
            self.shared.publish(self.learner().playing());
        }
        if taught && !still_taught {
            report.note = Some(format!("taught by {} batches; from here on by search", self.settings.pretrain));
        }
        self.times = times;
        let seconds = begun.elapsed().as_secs_f64();
        let visible = (learning - hidden).as_secs_f64();
        let share = |part: u64, rest: u64| part as f64 / (part + rest).max(1) as f64;
        let mut set = |metric: Reported, x: f64| report.values[metric as usize] = x;
        set(Reported::PolicyLoss, learned.policy_loss);
        set(Reported::ValueLoss, learned.value_loss);
        set(Reported::EquityError, if taught { f64::NAN } else { moved / positions });
        set(Reported::TeacherError, learned.teacher_error);
        set(Reported::Pretrained, if taught { pretrained.min(1.0) } else { f64::NAN });
        set(Reported::Promoted, learned.promoted.map_or(f64::NAN, |promoted| f64::from(u8::from(promoted))));
        set(Reported::HeldBackLoss, learned.held_back_loss);
        set(Reported::GradNorm, learned.grad_norm);
        set(Reported::LearningRate, learned.learning_rate);
        set(Reported::Games, f64::from(games));
        set(Reported::GamesPerMinute, 60.0 * f64::from(games) / seconds);
        set(Reported::EvaluationsPerSecond, counters.evaluations as f64 / seconds);
        set(Reported::Evaluations, counters.evaluations as f64 / moves as f64);
        set(Reported::TreeReuse, share(counters.reused, counters.simulations));
        set(Reported::Hits, counters.hits as f64 / counters.simulations.max(1) as f64);
        set(Reported::Depth, counters.depth as f64 / counters.simulations.max(1) as f64);
        set(Reported::Forced, forced as f64 / moves as f64);
        set(Reported::Window, window as f64);
        set(Reported::Updates, learned.updates as f64);
        set(Reported::Surprise, learned.surprise);
        set(
            Reported::Hidden,
            if learned.updates > 0 { hidden.as_secs_f64() / learning.as_secs_f64().max(1e-9) } else { f64::NAN },
        );
        report.seconds = [seconds - visible, visible];
    }

    fn plans(&mut self) -> Vec<(&'static str, &mut Plan)> {
        let (learner, mut tables) = self.split();
        let play = tables.next().map(|table| ("play", table.net().plan()));
        std::iter::once(("learn", learner.plan())).chain(play).collect()
    }

    fn steps(&self) -> u64 {
        self.iterations * self.steps_per_iteration()
    }

    fn steps_per_iteration(&self) -> u64 {
        (self.games * self.settings.moves) as u64
    }

    fn set_total_steps(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
    }

    fn adopt(&mut self, _: &Policy) -> Result<()> {
        Err(Error::Invalid(
            "alphazero's policy is a search, which takes no other network; resume a run of alphazero".into(),
        ))
    }

    fn policy(&self) -> Result<Policy> {
        Err(Error::Invalid("alphazero's policy is a search; operant eval RUN --against random plays with it".into()))
    }

    fn save(&self) -> Result<Parts> {
        let mut games = Vec::new();
        for task in &self.tasks {
            if let Task::Play(table) = task {
                table.write(&mut games);
            }
        }
        let learner = self.learner();
        let state = format!(
            "{{\"iterations\":{},\"taught\":{},\"learner\":{}}}",
            self.iterations,
            self.taught,
            learner.state()
        );
        let mut parts = Parts::from([
            ("network.safetensors".into(), game_net::to_bytes::<G>(&self.architecture, learner.playing())),
            ("optimizer.safetensors".into(), learner.optimizer_bytes()),
            ("replay.bin".into(), learner.window_bytes()),
            ("games.bin".into(), games),
            ("alphazero.json".into(), state.into_bytes()),
        ]);
        parts.append(&mut learner.gate_parts(|params| game_net::to_bytes::<G>(&self.architecture, params)));
        if let Some(Teaching { file: Ok(bytes), .. }) = self.teaching.as_ref().filter(|_| self.is_taught()) {
            parts.insert(TEACHER.into(), bytes.clone());
        }
        Ok(parts)
    }

    fn load(&mut self, parts: &Parts) -> Result<()> {
        let damaged = |what: &str| Error::Saved(format!("checkpoint's {what} does not fit this run; take another"));
        let state: serde_json::Value =
            serde_json::from_slice(part(parts, "alphazero.json")?).map_err(|_| damaged("alphazero.json"))?;
        self.iterations = state["iterations"].as_u64().ok_or_else(|| damaged("alphazero.json"))?;
        self.taught = state["taught"].as_u64().unwrap_or(0);
        if let (Some(teaching), Some(bytes)) = (&mut self.teaching, parts.get(TEACHER)) {
            teaching.file = Ok(bytes.clone());
            self.seat_teacher()?;
        }
        let mut games = part(parts, "games.bin")?;
        let (learner, tables) = self.split();
        learner.load(parts, &state["learner"])?;
        for table in tables {
            table.read(&mut games)?;
        }
        if !games.is_empty() {
            return Err(damaged("games.bin"));
        }
        self.shared.publish(self.learner().playing());
        Ok(())
    }
}

/// The loss of value heads.
fn value_loss<G: Game>(graph: &mut Graph, value: Node, target: Node) -> Result<Node> {
    match G::HEADS_ARE {
        Heads::Chances => graph.bce_with_logits_loss(value, target, None),
        Heads::Points => graph.huber_loss(value, target, 1.0),
    }
}
