//! Where the time of some iterations went: a trace (Chrome's trace event format, which Perfetto and chrome://tracing open)
//! and a table.
//!
//! The first iteration warms up, and its spans are counted: by that count room is made, once, for the spans of the
//! iterations that follow. What finds no room is counted as dropped, missing in the trace and still part of the table.

use crate::algo::{Algorithm, Phase, Report};
use operant_device::{Spans, Total};
use operant_nn::StepName;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Instant;

/// Most spans that are kept, so that viewers still open the trace.
const MAX_SPANS: u64 = 1 << 20;
/// Room for iterations that do more than the first, such as one that the KL did not stop.
const MARGIN: u64 = 2;
/// Lines of ops in the table.
const SHOWN_OPS: usize = 30;
/// Columns of the narrowest table's names.
const NAME_WIDTH: usize = 24;

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// A phase, or plan and step; spans of the trace have the same name.
    pub name: String,
    /// How far in: a phase is part of the last one that is less far in.
    pub depth: usize,
    /// Time and calls, on all threads together.
    pub total: Total,
}

/// Where the time went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Iterations that were looked at, and how many were asked for.
    pub iterations: (u64, u64),
    /// Nanoseconds of those.
    pub nanoseconds: u64,
    /// Threads of the pool.
    pub threads: usize,
    /// Of the main thread.
    pub phases: Vec<Line>,
    /// Steps of plans, longest first.
    pub ops: Vec<Line>,
    /// Spans that found no room in the trace.
    pub dropped: u64,
    /// Why the trace could not be written, if it could not.
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Warming,
    /// Iterations so far.
    Noting(u64),
    Done,
}

/// Looks at some iterations.
pub(super) struct Profiler {
    wanted: u64,
    stage: Stage,
    threads: usize,
}

/// All that notes spans.
fn each(algorithm: &mut dyn Algorithm, report: &mut Report, mut f: impl FnMut(&mut Spans)) {
    f(&mut report.spans);
    for (_, plan) in algorithm.plans() {
        plan.spans_mut().for_each(&mut f);
    }
}

fn calls(spans: &Spans) -> u64 {
    spans.totals().iter().map(|total| total.calls).sum()
}

impl Profiler {
    pub(super) fn start(wanted: u64, threads: usize, algorithm: &mut dyn Algorithm, report: &mut Report) -> Self {
        each(algorithm, report, |spans| spans.set_on(true));
        Self { wanted, stage: Stage::Warming, threads }
    }

    /// After an iteration; says whether it was the last to be looked at.
    pub(super) fn iterated(&mut self, algorithm: &mut dyn Algorithm, report: &mut Report) -> bool {
        match self.stage {
            Stage::Warming => {
                let mut counted = 0;
                each(algorithm, report, |spans| counted += calls(spans));
                let times = (self.wanted.saturating_mul(MARGIN)).min(MAX_SPANS / counted.max(1));
                let origin = Instant::now();
                each(algorithm, report, |spans| {
                    // A plan that was not run in the first iteration may be in the next.
                    let room = (calls(spans) * times).clamp(1024, MAX_SPANS);
                    spans.start(origin, room as usize);
                });
                self.stage = Stage::Noting(0);
                false
            }
            Stage::Noting(done) => {
                self.stage = Stage::Noting(done + 1);
                done + 1 >= self.wanted
            }
            Stage::Done => false,
        }
    }

    /// Stops and gives the table and the trace, the first time that it is called.
    pub(super) fn finish(&mut self, algorithm: &mut dyn Algorithm, report: &mut Report) -> Option<(Profile, String)> {
        let stage = std::mem::replace(&mut self.stage, Stage::Done);
        let iterations = match stage {
            Stage::Done => return None,
            Stage::Noting(done) => done,
            Stage::Warming => 0,
        };
        each(algorithm, report, Spans::stop);
        if iterations == 0 {
            each(algorithm, report, |spans| spans.set_on(false));
        }
        let mut tracks: Vec<(Vec<Kind>, &Spans)> =
            vec![(Phase::ALL.iter().map(|(_, name, _)| Kind::phase(name)).collect(), &report.spans)];
        let plans = algorithm.plans();
        for (what, plan) in &plans {
            let kinds: Vec<Kind> = plan.steps().map(|step| Kind::step(what, step)).collect();
            tracks.extend(plan.spans().map(|spans| (kinds.clone(), spans)));
        }
        let mut ops: BTreeMap<&str, Total> = BTreeMap::new();
        for (kinds, spans) in &tracks[1..] {
            for (kind, total) in kinds.iter().zip(spans.totals()).filter(|(_, total)| total.calls > 0) {
                let sum = ops.entry(&kind.name).or_default();
                (sum.nanoseconds, sum.calls) = (sum.nanoseconds + total.nanoseconds, sum.calls + total.calls);
            }
        }
        let mut ops: Vec<Line> =
            ops.into_iter().map(|(name, total)| Line { name: name.to_owned(), depth: 0, total }).collect();
        ops.sort_by_key(|line| std::cmp::Reverse(line.total.nanoseconds));
        let totals = report.spans.totals();
        let phases = Phase::ALL.iter().map(|&(phase, name, depth)| Line {
            name: name.to_owned(),
            depth,
            total: totals[phase as usize],
        });
        let profile = Profile {
            iterations: (iterations, self.wanted),
            nanoseconds: totals[Phase::Iteration as usize].nanoseconds,
            threads: self.threads,
            phases: phases.filter(|line| line.total.calls > 0).collect(),
            ops,
            dropped: tracks.iter().map(|(_, spans)| spans.dropped()).sum(),
            failure: None,
        };
        Some((profile, trace(&tracks)))
    }
}

/// What the spans of one number are.
#[derive(Clone)]
struct Kind {
    name: String,
    /// The end of a span's line in the trace, as JSON.
    rest: String,
}

impl Kind {
    fn phase(name: &str) -> Self {
        Self { name: name.to_owned(), rest: "\"cat\":\"phase\"}".to_owned() }
    }

    fn step(plan: &str, step: StepName<'_>) -> Self {
        let StepName { name, op, backward } = step;
        let pass = if backward { "backward" } else { "forward" };
        let label = format!("{plan}: {} {pass}", name.trim_start_matches("gradient of "));
        let rest = format!("\"cat\":\"op\",\"args\":{{\"op\":{},\"pass\":\"{pass}\"}}}}", quoted(op));
        Self { name: label, rest }
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("texts are JSON")
}

/// The trace as JSON: one complete event ("X") for each span, microseconds with three decimals.
fn trace(tracks: &[(Vec<Kind>, &Spans)]) -> String {
    let spans: usize = tracks.iter().map(|(_, spans)| spans.kept().len()).sum();
    let mut text = String::with_capacity(160 * (spans + 16));
    text += "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    text += "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"operant\"}}";
    let mut threads: Vec<u32> = tracks.iter().flat_map(|(_, spans)| spans.kept()).map(|span| span.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    // Writing to a text cannot fail.
    for thread in threads {
        let name = if thread == 0 { "main".to_owned() } else { format!("operant-{thread}") };
        let _ = write!(
            text,
            ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{thread},\"name\":\"thread_name\",\"args\":{{\"name\":\"{name}\"}}}}"
        );
    }
    for (kinds, spans) in tracks {
        let names: Vec<String> = kinds.iter().map(|kind| quoted(&kind.name)).collect();
        for span in spans.kept() {
            let (name, rest) = (&names[span.kind as usize], &kinds[span.kind as usize].rest);
            let [(start, start_ns), (long, long_ns)] = [span.start, span.nanoseconds].map(|ns| (ns / 1000, ns % 1000));
            let _ = write!(
                text,
                ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{start}.{start_ns:03},\"dur\":{long}.{long_ns:03},\"name\":{name},{rest}",
                span.thread
            );
        }
    }
    text += "\n]}\n";
    text
}

impl fmt::Display for Profile {
    /// Phases of the main thread as shares of its time, then ops as shares of all threads' time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, wanted) = self.iterations;
        if done == 0 {
            return writeln!(f, "profile: the run ended before there was an iteration after the first");
        }
        let of = if done < wanted { format!(" of {wanted}, then the run ended") } else { String::new() };
        let plural = if self.threads == 1 { "" } else { "s" };
        let milliseconds = |ns: u64| ns as f64 * 1e-6;
        writeln!(
            f,
            "where the time went: {done} iteration{}{of}, {:.1} ms, {} thread{plural}",
            if done == 1 { "" } else { "s" },
            milliseconds(self.nanoseconds),
            self.threads
        )?;
        let names = self.phases.iter().chain(self.ops.iter().take(SHOWN_OPS)).map(|line| line.name.chars().count());
        let width = names.max().unwrap_or(0).max(NAME_WIDTH);
        let head = |f: &mut fmt::Formatter<'_>, what: &str| {
            writeln!(f, "{what:<width$} {:>11} {:>8} {:>9} {:>11}", "total ms", "share", "calls", "mean µs")
        };
        let row = |f: &mut fmt::Formatter<'_>, name: &str, total: Total, all: u64| {
            let share = 100.0 * total.nanoseconds as f64 / all.max(1) as f64;
            let mean = total.nanoseconds as f64 * 1e-3 / total.calls.max(1) as f64;
            let ms = milliseconds(total.nanoseconds);
            writeln!(f, "{name:<width$} {ms:>11.3} {share:>6.1} % {:>9} {mean:>11.2}", total.calls)
        };
        head(f, "phase (main thread)")?;
        for line in self.phases.iter().filter(|line| line.depth > 0) {
            let name = format!("{:1$}{2}", "", 2 * (line.depth - 1), line.name);
            row(f, &name, line.total, self.nanoseconds)?;
        }
        let all = self.nanoseconds * self.threads as u64;
        head(f, "op (all threads)")?;
        for line in self.ops.iter().take(SHOWN_OPS) {
            row(f, &line.name, line.total, all)?;
        }
        if let Some(rest) = self.ops.get(SHOWN_OPS..).filter(|rest| !rest.is_empty()) {
            let add = |a: Total, b: &Line| Total {
                nanoseconds: a.nanoseconds + b.total.nanoseconds,
                calls: a.calls + b.total.calls,
            };
            let name = format!("{} more", rest.len());
            row(f, &name, rest.iter().fold(Total::default(), add), all)?;
        }
        if self.dropped > 0 {
            writeln!(f, "{} spans found no room in the trace; ask for fewer iterations", self.dropped)?;
        }
        Ok(())
    }
}
