//! `operant bench nn --threads 1,2`: how much faster several threads are.
//!
//! What other programs take of a machine changes within seconds, so numbers of threads are measured in turn, a few milliseconds
//! each, and the best turn of each counts. Beside it each thread trains a copy of the network that is its own: what cores do not give
//! two threads that never meet, because other guests use them or because both together are slower than one, no network can have.

use super::nn::{Args, Bench, Learner, Plans};
use crate::output::{Failure, grouped, print};
use operant::device::{self, CpuPool};
use operant::nn::{Feed, Options};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long one number of threads runs before the next has its turn.
const TURN: Duration = Duration::from_millis(4);

/// What was measured of one number of threads: of each turn.
struct Threads<'a> {
    options: &'a Options,
    plans: Plans,
    /// Microseconds of a forward pass, and of a training step.
    forward: Vec<f64>,
    train: Vec<f64>,
    /// A copy of the network for each thread, if there are several.
    copies: Vec<Learner>,
    /// Microseconds in which all copies together make one training step.
    apart: Vec<f64>,
}

/// Microseconds of a call, several of which are one turn.
fn turn(mut call: impl FnMut()) -> f64 {
    call();
    let (start, mut calls) = (Instant::now(), 0_u32);
    while calls == 0 || start.elapsed() < TURN {
        call();
        calls += 1;
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}

impl Threads<'_> {
    fn count(&self) -> usize {
        self.options.pool.threads()
    }

    fn measure(&mut self, batch: usize, feeds: &[Feed]) {
        self.forward.push(turn(|| self.plans.forward(batch, feeds)));
        self.train.push(turn(|| self.plans.learner.train(batch, feeds)));
        if self.copies.is_empty() {
            return self.apart.push(self.train[self.train.len() - 1]);
        }
        let start = Instant::now();
        let steps = AtomicU32::new(0);
        self.options.pool.for_each_mut(&mut self.copies, |_, learner| {
            let (begun, mut calls) = (Instant::now(), 0);
            while calls == 0 || begun.elapsed() < TURN {
                learner.train(batch, feeds);
                calls += 1;
            }
            steps.fetch_add(calls, Relaxed);
        });
        self.apart.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(steps.into_inner()));
    }
}

/// The best turn.
fn best(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The ratio of two numbers of threads in the middle of all rounds.
fn middle(first: &[f64], other: &[f64]) -> f64 {
    let mut ratios: Vec<f64> = first.iter().zip(other).map(|(first, other)| first / other).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

pub(super) fn run(args: &Args, bench: &Bench, options: &[Options]) -> Result<(), Failure> {
    if args.plan {
        return Err(Failure::Usage("--plan with several numbers of threads: wanted one, as in --threads 2".into()));
    }
    let (batch, feeds) = (bench.batch, bench.feeds());
    let mut all = Vec::new();
    for options in options {
        let plans = bench.plans(options)?;
        let alone = Options { pool: Arc::new(CpuPool::new(1)), ..options.clone() };
        let count = if options.pool.threads() > 1 { options.pool.threads() } else { 0 };
        let copies = (0..count).map(|_| bench.learner(&alone)).collect::<operant::Result<_>>()?;
        all.push(Threads { options, plans, forward: vec![], train: vec![], copies, apart: vec![] });
    }
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < 3 || start.elapsed().as_secs_f64() < 2.0 * args.seconds {
        all.iter_mut().for_each(|threads| threads.measure(batch, &feeds));
        rounds += 1;
    }
    let first = &all[0];
    let plan = &first.plans.learner.training;
    let (precision, note) = plan.precision();
    if args.json {
        let runs: Vec<_> = all
            .iter()
            .map(|threads| {
                json!({
                    "threads": threads.count(),
                    "forward_us": best(&threads.forward),
                    "train_us": best(&threads.train),
                    "apart_us": best(&threads.apart),
                    "forward_ratio": best(&first.forward) / best(&threads.forward),
                    "train_ratio": best(&first.train) / best(&threads.train),
                    "apart_ratio": best(&first.apart) / best(&threads.apart),
                    "forward_ratio_median": middle(&first.forward, &threads.forward),
                    "train_ratio_median": middle(&first.train, &threads.train),
                    "apart_ratio_median": middle(&first.apart, &threads.apart),
                })
            })
            .collect();
        let report = json!({
            "net": args.net_name(),
            "batch": batch,
            "precision": precision.name(),
            "backend": plan.backend().name(),
            "note": note,
            "rounds": rounds,
            "runs": runs,
            "machine": device::describe(),
        });
        return print(&format!("{report}\n"));
    }
    let mut text = format!(
        "{}  {} parameters, batch {}, {}, {}, {rounds} rounds in turn; the best of each, and how many times as fast as {} thread{} \
         (in the middle of all rounds)\nmachine            {}\n",
        args.net_name(),
        grouped(first.plans.learner.params.count() as f64),
        grouped(batch as f64),
        precision.name(),
        plan.backend().name(),
        first.count(),
        if first.count() == 1 { "" } else { "s" },
        device::describe(),
    );
    if let Some(note) = note {
        text += &format!("note               {note}\n");
    }
    text += "threads            forward                   forward+back+Adam         the same, a copy for each thread\n";
    for threads in &all {
        let of = |first: &[f64], own: &[f64]| {
            format!("{:.1} µs, {:.2} × ({:.2})", best(own), best(first) / best(own), middle(first, own))
        };
        let [forward, train, apart] =
            [of(&first.forward, &threads.forward), of(&first.train, &threads.train), of(&first.apart, &threads.apart)];
        text += &format!("{:<18} {forward:<25} {train:<25} {apart}\n", threads.count());
    }
    print(&text)
}
