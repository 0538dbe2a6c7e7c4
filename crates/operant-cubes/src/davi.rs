//! Value iteration on reverse scrambles (DAVI: McAleer et al., arXiv:1805.07470; Agostinelli et al., "Solving the Rubik's cube
//! with deep reinforcement learning and search", 2019): a network learns how many moves a puzzle's states are from solved.
//!
//! One batch: walk backwards from the solved state, value all successors of where the walks end by a copy of the network that is
//! renewed now and then, and learn 1 + the least of them, or the length of the walk if that is less. Where a puzzle's states can
//! be numbered, the copy values each representative once: the same numbers for less work. A run may begin with a teacher's
//! targets instead. Nothing is allocated after `Davi::new`.

mod solve_test;

use crate::puzzle::{Puzzle, View, Walk};
use crate::search::{HeldOut, PuzzleName, ValueFile, ValueNet};
use operant_base::config::{self, Table};
use operant_base::telemetry::Metric;
use operant_base::{Error, Result};
use operant_device::check_room;
use operant_lanes::Backend;
use operant_lanes::rng::HostRng;
use operant_nn::{Feed, Method, Node, Optimizer, Options, Params, Plan, Precision, Schedule, Wanted};
use operant_rl::algo::{
    Algorithm, Build, EncoderName, Entry, MemoryName, Parts, Phase, Policy, Report, first_bad_op, part, train_and_step,
};
use serde::{Deserialize, Serialize};
use solve_test::SolveTest;
use std::time::Instant;

/// The `[davi]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// States of a batch.
    pub batch_size: usize,
    /// Batches of an iteration.
    pub batches: usize,
    /// Batches after which the copy that values successors is renewed.
    pub target_interval: u64,
    /// Walks have 1 to so many moves.
    pub scramble_depth: u32,
    /// Half of them have at most so many: shortest ways lead through few states close to solved, which long walks rarely end at.
    pub near_depth: u32,
    /// Share of the run over which the limit of the other half grows from that, by the same factor in the same time.
    pub depth_ramp: f64,
    /// The most moves that any state needs, if that is known, beyond which no target goes; 0 if not.
    pub most_moves: u32,
    /// Share of the run, at its beginning, in which targets are the teacher's.
    pub pretrain: f64,
    /// Whose: walks (how many moves led there, which is never too few) or table (the exact distance; cube2).
    pub teacher: Teacher,
    /// What the network sees: cubies, or pairs of corners (cube2).
    pub view: View,
    /// Show the network one state for all its images under 3 rotations, mirror and inversion (cube2).
    pub symmetry: bool,
    /// Share of states that are never learned from; with symmetry, whole orbits at a time.
    pub held_out: f64,
    /// Moves from solved within which no state is held out: all others' values rest on those.
    pub held_out_beyond: u32,
    /// Step size of the optimiser.
    pub learning_rate: f64,
    /// Lower the learning rate along half a cosine to a hundredth at the end of the run.
    pub anneal_lr: bool,
    /// Gradients longer than this are shortened to it; 0 for no limit.
    pub max_grad_norm: f64,
    /// Where the squared error becomes linear, in moves; 0 for never.
    pub huber_delta: f64,
    /// Added to the root of Adam's second moment.
    pub adam_eps: f64,
}

/// Who says how far a state is before the network's own copy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Teacher {
    /// The walk that led to it.
    Walks,
    /// A table of all states.
    Table,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_size: 4096,
            batches: 10,
            target_interval: 50,
            scramble_depth: 100,
            near_depth: 14,
            depth_ramp: 0.0,
            most_moves: 0,
            pretrain: 0.0,
            teacher: Teacher::Walks,
            view: View::Cubies,
            symmetry: false,
            held_out: 0.0,
            held_out_beyond: 5,
            learning_rate: 1e-3,
            anneal_lr: true,
            max_grad_norm: 0.0,
            huber_delta: 1.0,
            adam_eps: 1e-8,
        }
    }
}

/// DAVI in the list of algorithms.
pub const ENTRY: Entry = Entry {
    name: "davi",
    summary: "value iteration on reverse scrambles: how far a puzzle's states are from solved (cube2, cube3)",
    defaults: config::defaults::<Settings>,
    resolve: |table| Ok(config::to_table(&read(table)?)),
    may_change: &[
        "batches",
        "target_interval",
        "scramble_depth",
        "near_depth",
        "depth_ramp",
        "most_moves",
        "pretrain",
        "learning_rate",
        "anneal_lr",
        "max_grad_norm",
    ],
    has_schedules: |_| true,
    build: |build| {
        let mut build = build;
        let settings = read(&build.settings)?;
        if build.env.on_gpu().is_some() {
            return Err(Error::Invalid("davi runs on the CPU alone; wanted device = \"cpu\"".into()));
        }
        let env = build.env.spec().name;
        let half_turns = build.env.params().iter().any(|param| param.name == "half_turns" && param.value != 0.0);
        let (view, symmetry) = (settings.view, settings.symmetry);
        let name = PuzzleName { env: env.to_owned(), view, symmetry, half_turns };
        if let Some(puzzle) = name.pocket() {
            return Ok(Box::new(Davi::new(puzzle, name, settings, build)?));
        }
        match name.cube() {
            Some(_) if symmetry => Err(Error::Invalid("davi.symmetry on cube3: wanted false; it is for cube2".into())),
            Some(puzzle) => Ok(Box::new(Davi::new(puzzle?, name, settings, build)?)),
            None => Err(Error::Invalid(format!(
                "davi learns puzzles with one solved state: wanted cube2 or cube3, got {env}"
            ))),
        }
    },
    class: "Davi",
    check_gpu: None,
};

fn read(table: &Table) -> Result<Settings> {
    config::read(table, "davi")
}

impl Settings {
    fn check(&self) -> Result<()> {
        let rule = |holds: bool, key: &str, got: &dyn std::fmt::Display, wanted: &str| {
            if holds { Ok(()) } else { Err(Error::Invalid(format!("davi.{key} = {got}: wanted {wanted}"))) }
        };
        let positive = |x: f64| x > 0.0 && x <= 1e30;
        let not_negative = |x: f64| (0.0..=1e30).contains(&x);
        rule((1..=1 << 20).contains(&self.batch_size), "batch_size", &self.batch_size, "1..=1048576")?;
        rule((1..=1 << 20).contains(&self.batches), "batches", &self.batches, "1..=1048576")?;
        rule(self.target_interval >= 1, "target_interval", &self.target_interval, "at least 1")?;
        rule((1..=1000).contains(&self.scramble_depth), "scramble_depth", &self.scramble_depth, "1..=1000")?;
        rule((1..=1000).contains(&self.near_depth), "near_depth", &self.near_depth, "1..=1000")?;
        rule((0.0..=0.9).contains(&self.held_out), "held_out", &self.held_out, "0 to 0.9")?;
        rule((0..=6).contains(&self.held_out_beyond), "held_out_beyond", &self.held_out_beyond, "0..=6")?;
        rule((0.0..=1.0).contains(&self.depth_ramp), "depth_ramp", &self.depth_ramp, "0 to 1")?;
        rule((0.0..=1.0).contains(&self.pretrain), "pretrain", &self.pretrain, "0 to 1")?;
        rule(positive(self.learning_rate), "learning_rate", &self.learning_rate, "more than 0")?;
        rule(positive(self.adam_eps), "adam_eps", &self.adam_eps, "more than 0")?;
        rule(not_negative(self.huber_delta), "huber_delta", &self.huber_delta, "0 (never) or more")?;
        rule(not_negative(self.max_grad_norm), "max_grad_norm", &self.max_grad_norm, "0 (no limit) or more")
    }
}

/// Reported numbers, in the order of [`METRICS`].
#[derive(Clone, Copy)]
enum Reported {
    Loss,
    TargetMean,
    GradNorm,
    LearningRate,
    Valued,
    SolveRate,
    SolveMoves,
}

const METRICS: &[Metric] = &[
    Metric::new(
        "loss/value",
        "mean cost of the difference to the target: 1 + the least successor, or the teacher's",
        "",
    )
    .headline(),
    Metric::new("target/mean", "mean of the targets", "moves"),
    Metric::new("grad_norm", "norm of the gradient before clipping", ""),
    Metric::new("learning_rate", "step size of the optimiser", ""),
    Metric::new("valued", "successors that the network valued, of all", ""),
    Metric::new("solve_rate", "share of 128 test scrambles that walking downhill solved, at the last test", "")
        .headline(),
    Metric::new("solve_moves", "mean moves of those walks, 30 where they fail", "moves").headline(),
];

/// Values of successors by the copy of the network.
struct Target<S> {
    params: Params,
    plan: Plan,
    value: Node,
    /// Value of each representative since the copy was renewed: NaN if not asked for, infinite if waiting. Empty for puzzles
    /// without numbers.
    known: Vec<f32>,
    /// Representatives that wait for their value, `[rows]`, and their entries `[rows, shown]`.
    waiting: Vec<S>,
    entries: Vec<i32>,
    /// `[rows]` values of a puzzle without numbers.
    values: Vec<f32>,
}

/// A run of value iteration.
pub struct Davi<P: Puzzle> {
    settings: Settings,
    seed: u64,
    total_steps: u64,
    puzzle: P,
    file: ValueFile,
    held_out: HeldOut<P::State>,
    params: Params,
    optimizer: Optimizer,
    schedule: Schedule,
    learner: Plan,
    target: Target<P::State>,
    /// Exact distances by the numbers of states, if they teach.
    distances: Vec<u8>,
    test: SolveTest<P::State>,
    /// `[B]`
    states: Vec<P::State>,
    /// `[B]` moves of the walks there.
    lengths: Vec<f32>,
    /// `[B, moves]` representatives of successors.
    successors: Vec<P::State>,
    /// `[B, shown]`
    entries: Vec<i32>,
    /// `[B]`
    targets: Vec<f32>,
    /// Batches so far, and states of all of them.
    updates: u64,
    seen: u64,
    /// Successors that the network valued in this iteration.
    valued: u64,
}

/// Most rows that the copy values at once.
const TARGET_ROWS: usize = 8192;

impl<P: Puzzle> Davi<P> {
    /// Builds everything that the run will ever allocate.
    fn new(puzzle: P, name: PuzzleName, settings: Settings, build: Build) -> Result<Self> {
        let Build { pool, seed, total_steps, precision, network, .. } = build;
        settings.check()?;
        if (network.memory, network.encoder) != (MemoryName::None, EncoderName::Auto) {
            let text =
                "network.memory, network.encoder: davi's network sees the entries of a state; wanted none and auto";
            return Err(Error::Invalid(text.into()));
        }
        if precision == Precision::F16 {
            return Err(Error::Invalid("precision = f16 for davi: wanted f32 or bf16".into()));
        }
        let features = puzzle.features();
        let net = ValueNet::new(features, &network.hidden, network.activation)?;
        let (mut graph, value) = net.build()?;
        let params = graph.params(seed)?;
        let options = Options { pool, precision, seed, ..Options::default() };
        let size = settings.batch_size;
        let all = size * puzzle.moves();
        let rows = all.min(TARGET_ROWS);
        let numbered = puzzle.states();
        let per_state = size_of::<P::State>() * (1 + puzzle.moves()) + 4 * (features.shown + 2 + puzzle.moves());
        check_room(
            &format!("a batch of davi.batch_size {size}"),
            (size * per_state + 4 * numbered.unwrap_or(0)) as u64,
            "lower davi.batch_size",
        )?;
        let target = Target {
            params: params.clone(),
            plan: Plan::inference(&graph, &[value], rows, &options)?,
            value,
            known: vec![f32::NAN; numbered.unwrap_or(0)],
            waiting: Vec::with_capacity(rows),
            entries: vec![0; rows * features.shown],
            values: vec![0.0; if numbered.is_some() { 0 } else { all }],
        };
        let distances = match settings.teacher {
            Teacher::Table if settings.pretrain > 0.0 || puzzle.states().is_none() => {
                puzzle.distances().ok_or_else(|| {
                    Error::Invalid(format!(
                        "davi.teacher = table on {}: wanted walks; there is no table of its states",
                        name.env
                    ))
                })?
            }
            _ => Vec::new(),
        };
        let test = SolveTest::new(&puzzle, &net, settings.scramble_depth, seed, &options)?;
        let held_out = (settings.held_out * 1e6).round() as u32;
        let file = ValueFile { puzzle: name, net, held_out, held_out_beyond: settings.held_out_beyond };
        let wanted = graph.input("target", [1]);
        let loss = match settings.huber_delta {
            0.0 => graph.mse_loss(value, wanted)?,
            delta => graph.huber_loss(value, wanted, delta as f32)?,
        };
        let wanted = Wanted { losses: vec![(loss, 1.0)], ..Wanted::default() };
        let rate = settings.learning_rate as f32;
        let max_norm = (settings.max_grad_norm > 0.0).then_some(settings.max_grad_norm as f32);
        let method = Method::Adam { beta1: 0.9, beta2: 0.999, eps: settings.adam_eps };
        Ok(Self {
            learner: Plan::new(&graph, &wanted, size, &options)?,
            optimizer: Optimizer::new(method, &params, max_norm, Backend::fast())?.on(&options.pool),
            schedule: match settings.anneal_lr {
                true => Schedule::Cosine { from: rate, to: rate / 100.0 },
                false => Schedule::Constant(rate),
            },
            held_out: file.held_out(&puzzle),
            file,
            states: vec![puzzle.solved(); size],
            lengths: vec![0.0; size],
            successors: vec![puzzle.solved(); all],
            entries: vec![0; size * features.shown],
            targets: vec![0.0; size],
            updates: 0,
            seen: 0,
            distances,
            test,
            valued: 0,
            settings,
            seed,
            total_steps,
            puzzle,
            params,
            target,
        })
    }

    fn state(&self) -> State {
        let test = [self.test.rate, self.test.moves].map(f64::to_bits);
        State { updates: self.updates, seen: self.seen, test: Some(test) }
    }

    /// The most moves of a long walk now: it grows by the same factor in the same time.
    fn depth(&self) -> u32 {
        let (all, ramp) = (self.settings.scramble_depth, self.settings.depth_ramp * self.total_steps as f64);
        let steps = self.steps() as f64;
        let first = f64::from(self.settings.near_depth.min(all));
        if steps < ramp { (first * (f64::from(all) / first).powf(steps / ramp)).ceil() as u32 } else { all }
    }

    /// Walks to the states of a batch, every other one by a short walk.
    fn draw(&mut self) {
        let limits = [self.settings.near_depth.min(self.settings.scramble_depth), self.depth()];
        let shown = self.file.net.shown;
        let puzzle = &self.puzzle;
        let places = self.states.iter_mut().zip(self.entries.chunks_exact_mut(shown)).zip(&mut self.lengths);
        for (row, ((state, entries), walked)) in places.enumerate() {
            let (low, high) = (self.updates as u32, (self.updates >> 32) as u32);
            let mut rng = HostRng::new(self.seed, row as u32, low, high);
            let length = 1 + rng.below(limits[row % 2]);
            let mut walk = Walk::new(puzzle);
            for done in 1.. {
                walk.step(puzzle, &mut rng);
                if done >= length {
                    let representative = puzzle.representative(walk.state);
                    puzzle.encode(representative, entries);
                    if self.held_out.is_empty() || !self.held_out.holds(representative, entries) {
                        (*state, *walked) = (walk.state, done as f32);
                        break;
                    }
                }
            }
        }
    }

    /// What no target goes beyond.
    fn most_target(&self) -> f32 {
        match self.settings.most_moves {
            0 => f32::INFINITY,
            most => most as f32,
        }
    }

    /// Targets of the batch by the teacher.
    fn take_lesson(&mut self) {
        let most = self.most_target();
        let Self { puzzle, states, lengths, distances, targets, .. } = self;
        for ((state, &walked), target) in states.iter().zip(lengths.iter()).zip(targets) {
            *target = match distances.get(puzzle.number(*state)) {
                Some(&distance) => f32::from(distance),
                // A walk may have come back.
                None if *state == puzzle.solved() => 0.0,
                None => walked.min(most),
            };
        }
    }

    /// Targets of the batch by the copy of the network.
    fn bootstrap(&mut self) {
        // Values of states that no walk from near the solved one has reached yet would else rise by 1 with every renewal.
        let most = self.most_target();
        let Self { puzzle, states, successors, target, targets, .. } = self;
        let (moves, solved) = (puzzle.moves(), puzzle.solved());
        for (state, successors) in states.iter().zip(successors.chunks_exact_mut(moves)) {
            for (m, successor) in successors.iter_mut().enumerate() {
                *successor = puzzle.representative(puzzle.turned(*state, m));
            }
        }
        let numbered = !target.known.is_empty();
        let mut first = 0;
        for (i, &successor) in successors.iter().enumerate() {
            let wanted = !numbered || {
                let known = &mut target.known[puzzle.number(successor)];
                let wanted = known.is_nan();
                if wanted {
                    *known = f32::INFINITY;
                }
                wanted
            };
            if wanted {
                target.waiting.push(successor);
            }
            if target.waiting.len() == target.plan.max_rows() {
                self.valued += target.run(puzzle, self.file.net.shown, first) as u64;
                first = i + 1;
            }
        }
        self.valued += target.run(puzzle, self.file.net.shown, first) as u64;
        let rows = states.iter().zip(&self.lengths).zip(successors.chunks_exact(moves)).zip(targets.iter_mut());
        for (row, (((state, &walked), successors), wanted)) in rows.enumerate() {
            let mut least = f32::INFINITY;
            for (m, &successor) in successors.iter().enumerate() {
                let value = match (successor == solved, numbered) {
                    (true, _) => 0.0,
                    (false, true) => target.known[puzzle.number(successor)],
                    (false, false) => target.values[row * moves + m],
                };
                least = least.min(value);
            }
            // Who walks back along the way that led here has solved it.
            *wanted = if *state == solved { 0.0 } else { (1.0 + least).min(most).min(walked) };
        }
    }

    /// One step of the optimiser; gives loss and norm of the gradient, or nothing if it diverged.
    fn update(&mut self, rows: usize, learning_rate: f32, report: &mut Report) -> Option<(f32, f32)> {
        let shown = self.file.net.shown;
        let feeds = [Feed::Ints(&self.entries[..rows * shown]), Feed::Real(&self.targets[..rows])];
        let stepped = (&mut self.params, &mut self.optimizer);
        let (outcome, step) = train_and_step(&mut self.learner, stepped, (rows, &feeds), (learning_rate, 1.0), report);
        if !outcome.finite || !step.finite {
            let what = METRICS[if outcome.finite { Reported::GradNorm } else { Reported::Loss } as usize].name;
            let place = first_bad_op(&mut self.learner, &self.params, rows, &feeds);
            report.diverged = Some(format!("{what} is not finite{place}"));
            return None;
        }
        Some((outcome.loss, step.grad_norm))
    }
}

impl<S: Copy> Target<S> {
    /// Values those that wait, whose first has number `first` among the successors; tells how many they were.
    fn run<P: Puzzle<State = S>>(&mut self, puzzle: &P, shown: usize, first: usize) -> usize {
        let rows = self.waiting.len();
        if rows == 0 {
            return 0;
        }
        for (&state, entries) in self.waiting.iter().zip(self.entries.chunks_exact_mut(shown)) {
            puzzle.encode(state, entries);
        }
        self.plan.forward(&self.params, rows, &[Feed::Ints(&self.entries[..rows * shown])]);
        // A distance is never negative, and only the solved state's is 0.
        let values = self.plan.output(self.value).iter().map(|value| value.max(0.0));
        if self.known.is_empty() {
            self.values[first..first + rows].iter_mut().zip(values).for_each(|(to, value)| *to = value);
        } else {
            for (&state, value) in self.waiting.iter().zip(values) {
                self.known[puzzle.number(state)] = value;
            }
        }
        self.waiting.clear();
        rows
    }

    /// Takes over the network as it is now.
    fn renew(&mut self, params: &Params) {
        self.params.values_mut().copy_from_slice(params.values());
        self.known.fill(f32::NAN);
    }
}

/// What a checkpoint holds beside weights and optimiser.
#[derive(Serialize, Deserialize)]
struct State {
    updates: u64,
    seen: u64,
    /// Bits of the last test's results.
    test: Option<[u64; 2]>,
}

impl<P: Puzzle> Algorithm for Davi<P> {
    fn metrics(&self) -> &[Metric] {
        METRICS
    }

    fn iterate(&mut self, report: &mut Report) {
        let start = Instant::now();
        let (mut loss, mut norm, mut mean, mut collected) = (0.0, 0.0, 0.0, 0.0);
        self.valued = 0;
        let learning_rate = self.schedule.at(self.steps(), self.total_steps);
        let first = self.updates;
        for _ in 0..self.settings.batches {
            // The last batch of a run is as large as steps are left.
            let rows = match usize::try_from(self.total_steps.saturating_sub(self.seen)) {
                Ok(0) if self.updates > first => break,
                Ok(left) if left > 0 => left.min(self.states.len()),
                _ => self.states.len(),
            };
            let begun = Instant::now();
            if self.updates.is_multiple_of(self.settings.target_interval) {
                self.target.renew(&self.params);
            }
            self.draw();
            match (self.seen as f64) < self.settings.pretrain * self.total_steps as f64 {
                true => self.take_lesson(),
                false => self.bootstrap(),
            }
            let drawn = Instant::now();
            collected += (drawn - begun).as_secs_f64();
            report.spans.note(Phase::Collect as usize, begun, drawn);
            let Some((cost, length)) = self.update(rows, learning_rate, report) else { return };
            report.spans.note(Phase::Learn as usize, drawn, Instant::now());
            self.updates += 1;
            self.seen += rows as u64;
            (loss, norm) = (loss + f64::from(cost), norm + f64::from(length));
            mean += self.targets.iter().map(|&x| f64::from(x)).sum::<f64>() / self.targets.len() as f64;
        }
        let batches = (self.updates - first) as f64;
        let iteration = first / self.settings.batches as u64;
        if iteration.is_multiple_of(solve_test::INTERVAL) || self.seen >= self.total_steps {
            self.test.run(&self.puzzle, &self.params);
            report.score = Some(-self.test.moves);
        }
        let mut set = |metric: Reported, x: f64| report.values[metric as usize] = x;
        set(Reported::Loss, loss / batches);
        set(Reported::TargetMean, mean / batches);
        set(Reported::GradNorm, norm / batches);
        set(Reported::LearningRate, f64::from(learning_rate));
        set(Reported::Valued, self.valued as f64 / (batches * self.successors.len() as f64));
        set(Reported::SolveRate, self.test.rate);
        set(Reported::SolveMoves, self.test.moves);
        report.seconds = [collected, start.elapsed().as_secs_f64() - collected];
    }

    fn plans(&mut self) -> Vec<(&'static str, &mut Plan)> {
        vec![("value", &mut self.target.plan), ("learn", &mut self.learner), ("test", &mut self.test.plan)]
    }

    fn steps(&self) -> u64 {
        self.seen
    }

    fn steps_per_iteration(&self) -> u64 {
        (self.settings.batches * self.states.len()) as u64
    }

    fn set_total_steps(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
    }

    fn adopt(&mut self, _: &Policy) -> Result<()> {
        Err(Error::Invalid("davi learns values, not a policy; resume a run of davi".into()))
    }

    fn policy(&self) -> Result<Policy> {
        Err(Error::Invalid(
            "davi learns values, not a policy; its values solve by search (operant eval --search)".into(),
        ))
    }

    fn save(&self) -> Result<Parts> {
        Ok(Parts::from([
            ("value.safetensors".into(), self.file.to_bytes(&self.params)),
            ("target.safetensors".into(), self.file.to_bytes(&self.target.params)),
            ("optimizer.safetensors".into(), self.optimizer.to_bytes()),
            ("davi.json".into(), serde_json::to_vec(&self.state()).expect("numbers are JSON")),
        ]))
    }

    fn load(&mut self, parts: &Parts) -> Result<()> {
        let damaged = || Error::Saved("checkpoint's davi.json does not fit this run; take another".into());
        let state: State = serde_json::from_slice(part(parts, "davi.json")?).map_err(|_| damaged())?;
        (self.updates, self.seen) = (state.updates, state.seen);
        [self.test.rate, self.test.moves] = state.test.map_or([f64::NAN; 2], |bits| bits.map(f64::from_bits));
        self.params.from_bytes(part(parts, "value.safetensors")?)?;
        self.optimizer.from_bytes(part(parts, "optimizer.safetensors")?)?;
        self.target.params.from_bytes(part(parts, "target.safetensors")?)?;
        self.target.known.fill(f32::NAN);
        Ok(())
    }
}
