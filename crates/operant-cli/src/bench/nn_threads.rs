//! `operant bench nn --threads 1,2`: how much faster several threads are.
//!
//! What other programs take of a machine changes within seconds, so numbers of threads are measured in turn, a few milliseconds
//! each, and the best turn of each counts. How fast the cores multiply by themselves is measured beside it: what they do not give
//! no network can have.

use super::nn::{Args, Bench, Plans};
use crate::output::{Failure, grouped, print};
use operant::device;
use operant::nn::{Feed, Options, peak_gflops};
use serde_json::json;
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
    /// GFLOP/s of products alone, on all threads.
    products: Vec<f64>,
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
        self.train.push(turn(|| self.plans.train(batch, feeds)));
        let (backend, precision) = (self.plans.training.backend(), self.plans.training.precision().0);
        let mut rates = vec![0.0; self.count()];
        self.options.pool.for_each_mut(&mut rates, |_, rate| *rate = peak_gflops(backend, precision));
        self.products.push(rates.iter().sum());
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
    let (batch, feeds) = (bench.batch, bench.feeds());
    let mut all = Vec::new();
    for options in options {
        let plans = bench.plans(options)?;
        all.push(Threads { options, plans, forward: vec![], train: vec![], products: vec![] });
    }
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < 3 || start.elapsed().as_secs_f64() < 2.0 * args.seconds {
        all.iter_mut().for_each(|threads| threads.measure(batch, &feeds));
        rounds += 1;
    }
    let first = &all[0];
    let fastest = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let plan = &first.plans.training;
    let (precision, note) = plan.precision();
    if args.json {
        let runs: Vec<_> = all
            .iter()
            .map(|threads| {
                json!({
                    "threads": threads.count(),
                    "forward_us": best(&threads.forward),
                    "train_us": best(&threads.train),
                    "products_gflops": fastest(&threads.products),
                    "forward_ratio": best(&first.forward) / best(&threads.forward),
                    "train_ratio": best(&first.train) / best(&threads.train),
                    "products_ratio": fastest(&threads.products) / fastest(&first.products),
                    "forward_ratio_median": middle(&first.forward, &threads.forward),
                    "train_ratio_median": middle(&first.train, &threads.train),
                    "products_ratio_median": middle(&threads.products, &first.products),
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
        grouped(first.plans.params.count() as f64),
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
    text += "threads            forward                   forward+back+Adam         products alone\n";
    for threads in &all {
        let of = |first: &[f64], own: &[f64]| {
            format!("{:.1} µs, {:.2} × ({:.2}) ", best(own), best(first) / best(own), middle(first, own))
        };
        text += &format!(
            "{:<19}{:<26}{:<26}{:.0} GFLOP/s, {:.2} × ({:.2})\n",
            threads.count(),
            of(&first.forward, &threads.forward),
            of(&first.train, &threads.train),
            fastest(&threads.products),
            fastest(&threads.products) / fastest(&first.products),
            middle(&threads.products, &first.products),
        );
    }
    print(&text)
}
