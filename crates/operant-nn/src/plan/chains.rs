//! Steps that go number by number over the same numbers, as one kernel: it reads every tensor once, passes values on in registers and
//! stores what another step or a reader needs. Where ops have the same steps, kernels have the same text and are there once.
//!
//! A chain runs where its last step would. Until then no other step may touch what its steps read and write: one that does
//! closes it.

use super::build::{Buffer, Place, Recipe, Step, Timing, Work};
use crate::cuda::{Formula, Launch, Read, Text, Twin, literal, with_names};
use crate::op::MAX_INPUTS;
use std::fmt::Write as _;

/// What a text has that draws random numbers.
const DRAWS: &str = "drawn(draws, ";
/// Most steps of a chain.
const MOST_STEPS: usize = 32;

/// Steps that are one launch.
#[derive(Debug)]
pub(super) struct Chain {
    /// The last of them: where it runs.
    pub(super) at: usize,
    /// What its kernel reads, `x` of its arguments, and writes, `dx`.
    pub(super) loads: Vec<Buffer>,
    pub(super) stores: Vec<Buffer>,
    pub(super) launch: Launch,
}

/// All chains of a plan.
#[derive(Debug)]
pub(super) struct Chains {
    /// By where they run.
    pub(super) list: Vec<Chain>,
    /// The part of the graph of each step.
    pub(super) parts: Vec<Option<u32>>,
    /// Sums that launches of an op make at once: see [`Direct`].
    pub(super) direct: Vec<Direct>,
    /// The kernels.
    pub(super) text: String,
    timing: Timing,
}

/// Input `input` of the step `of` backward has its gradient added to `to` at once: no step adds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    pub(super) of: usize,
    pub(super) input: usize,
    pub(super) to: Buffer,
    step: usize,
}

/// What a chain's step, or the launches of a step, read and write.
#[derive(Clone, Debug, Default)]
struct Touched {
    reads: Vec<Buffer>,
    writes: Vec<Buffer>,
}

impl Touched {
    /// Whether steps that touch this and that cannot change places.
    fn before(&self, later: &Self) -> bool {
        let any = |these: &[Buffer], those: &[Buffer]| these.iter().any(|buffer| those.contains(buffer));
        any(&self.writes, &later.reads) || any(&self.writes, &later.writes) || any(&self.reads, &later.writes)
    }

    fn shares(&self, other: &Self) -> bool {
        self.before(other) || self.reads.iter().any(|buffer| other.reads.contains(buffer))
    }

    fn add(&mut self, other: &Self) {
        for (to, from) in [(&mut self.reads, &other.reads), (&mut self.writes, &other.writes)] {
            to.extend(from);
            to.sort_unstable();
            to.dedup();
        }
    }
}

#[derive(Debug)]
struct Run {
    /// Numbers of a row, and the part of the graph.
    key: (usize, Option<u32>),
    steps: Vec<usize>,
    touched: Touched,
}

/// A number that a step of a chain makes: of which buffer, by which text, and whether it is added to what is there.
struct Made<'a> {
    to: Buffer,
    text: std::borrow::Cow<'a, str>,
    add: bool,
}

/// Sees the steps of a recipe as chains do.
struct Finder<'a> {
    recipe: &'a Recipe,
    twins: &'a [Twin],
    narrow: &'a [bool],
    direct: Vec<Direct>,
    /// What each step touches in a chain, and by launches of its own.
    touched: Vec<(Option<Touched>, Option<Touched>)>,
}

fn direct_sums(recipe: &Recipe, twins: &[Twin]) -> Vec<Direct> {
    let mut found = Vec::new();
    for (of, step) in recipe.steps.iter().enumerate() {
        let Work::Backward { call, .. } = step.work else { continue };
        for (input, part) in step.dx.iter().enumerate().filter(|(i, _)| twins[call].adds >> i & 1 == 1) {
            let mut sums = (of + 1..recipe.steps.len()).take_while(|at| recipe.steps[*at].work == Work::Add);
            let sum = sums.find(|at| part.is_some() && recipe.steps[*at].x[0] == *part);
            if let Some(step) = sum
                && let Some(to) = recipe.steps[step].y[0]
            {
                found.push(Direct { of, input, to, step });
            }
        }
    }
    found
}

impl<'a> Finder<'a> {
    fn step(&self, at: usize) -> &'a Step {
        &self.recipe.steps[at]
    }

    fn formula(&self, call: usize) -> Option<&'a Formula> {
        self.twins[call].formula.as_ref()
    }

    fn call(&self, at: usize) -> Option<usize> {
        match self.step(at).work {
            Work::Forward { call } | Work::Backward { call, .. } => Some(call),
            _ => None,
        }
    }

    fn formula_of(&self, at: usize) -> Option<&'a Formula> {
        self.call(at).and_then(|call| self.formula(call))
    }

    /// What a step makes number by number.
    fn made(&self, at: usize) -> Vec<Made<'a>> {
        let step = self.step(at);
        match step.work {
            Work::Forward { call } => {
                let of = |formula: &'a Formula| {
                    let untrained = formula.untrained.as_ref().filter(|_| !self.recipe.training);
                    Some(Made { to: step.y[0]?, text: untrained.unwrap_or(&formula.value).into(), add: false })
                };
                self.formula(call).and_then(of).into_iter().collect()
            }
            Work::Backward { call, add } => {
                let of = |(input, to): (usize, &Option<Buffer>)| {
                    let text = self.formula(call)?.gradient_of(input)?;
                    Some(Made { to: (*to)?, text: text.into(), add: add >> input & 1 == 1 })
                };
                step.dx.iter().enumerate().filter_map(of).collect()
            }
            Work::Add if self.direct.iter().any(|sum| sum.step == at) => vec![],
            Work::Add => step.y[0].map(|to| Made { to, text: "x0".into(), add: true }).into_iter().collect(),
            Work::Seed { weight } => {
                let text = format!("{} / (float)rows", literal(weight)).into();
                step.y[0].map(|to| Made { to, text, add: false }).into_iter().collect()
            }
            Work::Total => vec![],
        }
    }

    /// The buffer of a name in a step's texts, and how it is read.
    fn named(&self, at: usize, name: &str) -> Option<(Buffer, Read)> {
        let step = self.step(at);
        let buffer = match name {
            "y" => *step.y.first()?,
            "dy" => *step.dy.first()?,
            _ => *step.x.get(name.strip_prefix('x')?.parse::<usize>().ok()?)?,
        }?;
        let read = match name.strip_prefix('x').and_then(|number| number.parse().ok()) {
            Some(input) => self.formula_of(at).map_or(Read::Each, |formula| formula.read(input)),
            None => Read::Each,
        };
        // One number of a row for each of its numbers.
        let read = if read == Read::Row(self.len(at)) { Read::Each } else { read };
        Some((buffer, read))
    }

    /// Numbers of a row of what a step makes.
    fn len(&self, at: usize) -> usize {
        let step = self.step(at);
        let one = match step.work {
            Work::Backward { .. } => step.dy[0],
            _ => step.y[0],
        };
        one.map_or(0, |buffer| self.recipe.slots[buffer].len)
    }

    fn inside(&self, at: usize) -> Option<Touched> {
        let made = self.made(at);
        let mut touched = Touched::default();
        for one in &made {
            with_names(&one.text, |name| {
                touched.reads.extend(self.named(at, name).map(|(buffer, _)| buffer));
                None
            });
            touched.reads.extend(one.add.then_some(one.to));
            touched.writes.push(one.to);
        }
        (!made.is_empty()).then_some(touched)
    }

    /// What launches of a step read and write: those that are not printed.
    fn outside(&self, at: usize) -> Option<Touched> {
        let step = self.step(at);
        let all = || Touched { reads: step.reads().collect(), writes: step.writes().collect() };
        match step.work {
            Work::Forward { call } => self.formula(call).is_none().then(all),
            Work::Backward { call, .. } => {
                let mut touched = all();
                let printed: Vec<Buffer> = self.made(at).iter().map(|one| one.to).collect();
                touched.writes.retain(|buffer| !printed.contains(buffer));
                let direct = self.direct.iter().filter(|sum| sum.of == at).map(|sum| sum.to);
                touched.writes.extend(direct);
                let launched = |i: &usize| self.formula(call).is_none_or(|formula| formula.gradient_of(*i).is_none());
                (0..step.dx.len()).filter(launched).any(|i| step.dx[i].is_some()).then_some(touched)
            }
            Work::Total => Some(all()),
            Work::Add | Work::Seed { .. } => None,
        }
    }

    /// Adds gradients up where the op's are whose gradients they are.
    fn parts(&self) -> Vec<Option<u32>> {
        let mut last = None;
        let of = |step: &Step| match step.work {
            Work::Forward { call } => self.recipe.nodes[call].part.map(|part| part.number),
            Work::Backward { call, .. } => {
                last = self.recipe.nodes[call].part.map(|part| part.number);
                last
            }
            Work::Add => last,
            Work::Seed { .. } | Work::Total => None,
        };
        self.recipe.steps.iter().map(of).collect()
    }

    fn runs(&self, parts: &[Option<u32>], fuse: bool) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut open: Vec<Run> = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let (inside, outside) = &self.touched[at];
            if let Some(inside) = inside {
                let mut run = Run { key: (self.len(at), *part), steps: vec![at], touched: inside.clone() };
                let mut others = Vec::new();
                for mut other in open.drain(..).rev() {
                    let mut both = run.touched.clone();
                    both.add(&other.touched);
                    let few = both.reads.len() <= MAX_INPUTS
                        && both.writes.len() <= MAX_INPUTS
                        && run.steps.len() + other.steps.len() <= MOST_STEPS;
                    if fuse && few && other.key == run.key && other.touched.shares(inside) {
                        run.steps.append(&mut other.steps);
                        run.touched = both;
                    } else if other.touched.before(inside) {
                        runs.push(other);
                    } else {
                        others.push(other);
                    }
                }
                others.reverse();
                run.steps.sort_unstable();
                open = others;
                open.push(run);
            }
            if let Some(outside) = outside {
                let (mut closed, rest): (Vec<Run>, Vec<Run>) =
                    open.into_iter().partition(|run| run.touched.before(outside));
                runs.append(&mut closed);
                open = rest;
            }
        }
        runs.append(&mut open);
        runs.sort_by_key(|run| run.steps.last().copied());
        runs
    }

    /// Whether someone but a run reads a buffer of its.
    fn wanted(&self, buffer: Buffer, run: &Run) -> bool {
        let kept = self.recipe.readable.iter().chain(&self.recipe.gradients).any(|(_, kept)| *kept == buffer);
        let reads = |touched: &Option<Touched>| touched.as_ref().is_some_and(|touched| touched.reads.contains(&buffer));
        let read =
            |(at, (inside, outside)): (usize, &(_, _))| reads(outside) || (reads(inside) && !run.steps.contains(&at));
        kept || self.touched.iter().enumerate().any(read)
    }

    /// A run's kernel without its name, and what it loads and stores; numbers that a thread takes at once.
    fn print(&self, run: &Run, stores: &[Buffer]) -> (String, Vec<Buffer>, usize) {
        let mut loads: Vec<(Buffer, Read)> = Vec::new();
        let mut held: Vec<Buffer> = Vec::new();
        let mut lines = Vec::new();
        for &at in &run.steps {
            // What a step makes it makes of what was there before it.
            let before = held.clone();
            let mut name = |buffer: Buffer, read: Read| match before.iter().rposition(|held| *held == buffer) {
                Some(value) if read == Read::Each => format!("v{value}.v[k]"),
                _ => {
                    let load = loads.iter().position(|known| *known == (buffer, read)).unwrap_or_else(|| {
                        loads.push((buffer, read));
                        loads.len() - 1
                    });
                    format!("x{load}.v[k]")
                }
            };
            for one in self.made(at) {
                let mut text = with_names(&one.text, |word| match word {
                    "node" => Some(self.call(at).unwrap_or(0).to_string()),
                    "number" => Some("(i * WIDE + k)".into()),
                    _ => self.named(at, word).map(|(buffer, read)| name(buffer, read)),
                });
                if one.add {
                    text = format!("plus({}, {text})", name(one.to, Read::Each));
                }
                if self.narrow[one.to] {
                    text = format!("rounded({text})");
                }
                lines.push(format!("v{}.v[k] = {text};", held.len()));
                held.push(one.to);
            }
        }
        let wide = self.wide(run.key.0, &loads, stores);
        let mut text = String::from("    BEGIN;\n");
        if lines.iter().any(|line| line.contains(DRAWS)) {
            let _ = writeln!(text, "    const uint32_t *draws = (const uint32_t *)a.scratch.at;");
        }
        let kind = |buffer: Buffer| if self.narrow[buffer] { ("real", "R") } else { ("float", "") };
        for (i, (buffer, _)) in loads.iter().enumerate() {
            let (ty, way) = kind(*buffer);
            let _ = writeln!(text, "    const {ty} *p{i} = {way}X({i});");
        }
        for (i, buffer) in stores.iter().enumerate() {
            let (ty, way) = kind(*buffer);
            let _ = writeln!(text, "    {ty} *q{i} = {way}DX({i});");
        }
        let _ = writeln!(text, "    EACH(i, rows * (a.n[0] / {wide})) {{");
        for (i, (_, read)) in loads.iter().enumerate() {
            let len = run.key.0;
            let taken = match read {
                Read::Each => format!("take<{wide}>(p{i}, i)"),
                Read::Shared(1) => format!("same<{wide}>(p{i}, 0)"),
                Read::Shared(n) => format!("from<{wide}>(p{i}, i * {wide} % {n})"),
                Read::Row(1) => format!("same<{wide}>(p{i}, i * {wide} / {len})"),
                Read::Row(n) => format!("from<{wide}>(p{i}, i * {wide} / {len} * {n} + i * {wide} % {n})"),
            };
            let _ = writeln!(text, "        const Some<{wide}> x{i} = {taken};");
        }
        let values: Vec<String> = (0..held.len()).map(|value| format!("v{value}")).collect();
        let _ = writeln!(text, "        Some<{wide}> {};\n#pragma unroll", values.join(", "));
        let _ = writeln!(text, "        for (int k = 0; k < {wide}; ++k) {{");
        lines.iter().for_each(|line| {
            let _ = writeln!(text, "            {}", line.replace("WIDE", &wide.to_string()));
        });
        text.push_str("        }\n");
        for (i, buffer) in stores.iter().enumerate() {
            let value = held.iter().rposition(|held| held == buffer).unwrap_or(0);
            let _ = writeln!(text, "        give<{wide}>(q{i}, i, v{value});");
        }
        text.push_str("    }\n");
        (text, loads.into_iter().map(|(buffer, _)| buffer).collect(), wide)
    }

    /// How many numbers a thread takes at once: as many as are 16 bytes, where rows are whole multiples of that.
    fn wide(&self, len: usize, loads: &[(Buffer, Read)], stores: &[Buffer]) -> usize {
        let each = loads.iter().filter(|(_, read)| *read == Read::Each).map(|(buffer, _)| buffer).chain(stores);
        let narrow: Vec<bool> = each.clone().map(|buffer| self.narrow[*buffer]).collect();
        // Others than the plan may lay out inputs.
        let foreign = each.clone().any(|buffer| matches!(self.recipe.slots[*buffer].place, Place::Feed(_)));
        let fits = |wide: usize| {
            let whole = |read: &Read| match read {
                Read::Each | Read::Shared(1) | Read::Row(1) => true,
                Read::Shared(n) | Read::Row(n) => n % wide == 0,
            };
            len.is_multiple_of(wide) && loads.iter().all(|(_, read)| whole(read))
        };
        match narrow.iter().all(|narrow| *narrow) {
            true if fits(8) => 8,
            false if fits(4) && !foreign && !narrow.contains(&true) => 4,
            _ => 1,
        }
    }

    /// What its steps are, for the text.
    fn title(&self, run: &Run) -> String {
        let of = |&at: &usize| match self.step(at).work {
            Work::Forward { call } => self.recipe.nodes[call].op.name().to_owned(),
            Work::Backward { call, .. } => format!("gradient of {}", self.recipe.nodes[call].op.name()),
            Work::Add => "added".to_owned(),
            Work::Seed { .. } => "gradient of a mean".to_owned(),
            Work::Total => "mean".to_owned(),
        };
        run.steps.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}

impl Chains {
    /// Finds them; with `fuse` steps that follow each other are in one, else each is alone.
    pub(super) fn find(recipe: &Recipe, twins: &[Twin], narrow: &[bool], fuse: bool) -> Self {
        let mut finder = Finder { recipe, twins, narrow, direct: direct_sums(recipe, twins), touched: Vec::new() };
        finder.touched = (0..recipe.steps.len()).map(|at| (finder.inside(at), finder.outside(at))).collect();
        let parts = finder.parts();
        let runs = finder.runs(&parts, fuse);
        let mut timing = Timing {
            at: (0..recipe.steps.len()).map(|at| (at, at)).collect(),
            nowhere: vec![false; recipe.slots.len()],
        };
        let (mut list, mut bodies, mut text) = (Vec::new(), Vec::<String>::new(), String::new());
        for run in &runs {
            let Some(&at) = run.steps.last() else { continue };
            for &step in &run.steps {
                let first = if finder.touched[step].1.is_some() { step } else { at };
                timing.at[step] = (first, at);
            }
            run.touched.writes.iter().for_each(|buffer| timing.nowhere[*buffer] = true);
            let stores: Vec<Buffer> =
                run.touched.writes.iter().copied().filter(|buffer| finder.wanted(*buffer, run)).collect();
            if stores.is_empty() {
                continue;
            }
            let (body, loads, wide) = finder.print(run, &stores);
            let number = bodies.iter().position(|known| *known == body).unwrap_or_else(|| {
                let _ = writeln!(text, "/* {}. */\nKERNEL(chain_{}) {{\n{body}}}", finder.title(run), bodies.len());
                bodies.push(body);
                bodies.len() - 1
            });
            let (kernel, count) = (format!("chain_{number}"), recipe.max_rows * run.key.0 / wide);
            let launch = match wide {
                4 => Launch::each(Text::Chains, kernel, 4 * count),
                _ => Launch::each(Text::Chains, kernel, count),
            };
            list.push(Chain { at, loads, stores, launch: launch.numbers([run.key.0]) });
        }
        let stored = list.iter().flat_map(|chain: &Chain| chain.loads.iter().chain(&chain.stores));
        let launched = finder.touched.iter().filter_map(|(_, outside)| outside.as_ref());
        let launched = launched.flat_map(|touched| touched.reads.iter().chain(&touched.writes));
        stored.chain(launched).for_each(|buffer| timing.nowhere[*buffer] = false);
        Self { list, parts, direct: finder.direct, text, timing }
    }

    /// Whether some of it is drawn.
    pub(super) fn draws(&self) -> bool {
        self.text.contains(DRAWS)
    }

    /// When steps run, and what has no memory.
    pub(super) fn into_timing(self) -> Timing {
        self.timing
    }
}
