//! A plan: a graph settled for a batch size, with its memory. Running one never allocates.
//!
//! The CPU runs a plan tile by tile: some rows go through all steps of a stage before the next rows, so activations stay
//! in the nearest caches. Sums over the batch (gradients of parameters, batch statistics, losses) end a stage only where
//! a later step reads them. Results do not depend on the number of threads.

mod beside;
mod branches;
mod build;
mod chains;
mod cuda;
mod cut;
mod kernels;
#[cfg(test)]
mod kinds_of_networks;
mod memory;
mod print;
#[cfg(test)]
mod random_graphs;
mod run;
mod weights;

pub use cuda::{CudaPlan, Networks, Setup, Shared};
pub use print::{OpTime, Profile, StepName};
pub use run::Feed;
pub use weights::SharedWeights;

use super::graph::{Graph, Node};
use super::op::Kind;
use super::optim::{Optimizer, StepReport};
use super::params::Params;
use super::precision::Precision;
use super::real::{Compute, Real, Scratch};
pub use build::Wanted;
use build::{Merging, Place, Recipe};
use cut::Cut;
use operant_base::{Error, Result};
use operant_device::{Aligned, CpuPool, Spans, check_room};
use operant_lanes::Backend;
use run::{Packed, Run, Weights, Worker};
use std::sync::Arc;
use weights::Packs;

/// How a plan runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that share a batch.
    pub pool: Arc<CpuPool>,
    /// Instruction set of kernels.
    pub backend: Backend,
    /// What products read. A plan says in [`Plan::precision`] what it got.
    pub precision: Precision,
    /// Rows of a tile; chosen by the size of a row if absent.
    pub tile_rows: Option<usize>,
    /// Seed of dropout and noise.
    pub seed: u64,
}

impl Default for Options {
    /// One thread, f32, the widest registers.
    fn default() -> Self {
        Self {
            pool: Arc::new(CpuPool::new(1)),
            backend: Backend::fast(),
            precision: Precision::F32,
            tile_rows: None,
            seed: 0,
        }
    }
}

impl Options {
    /// The default with this many threads.
    pub fn threads(threads: usize) -> Self {
        Self { pool: Arc::new(CpuPool::new(threads)), ..Self::default() }
    }
}

/// Whether a training run replaces the gradients of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Gradients {
    /// Begin from zero.
    #[default]
    Replace,
    /// Add to what is there.
    Add,
}

/// What a training run found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Weighted sum of the losses, each the mean over rows.
    pub loss: f32,
    /// Whether it is neither infinite nor NaN.
    pub finite: bool,
}

/// Most packed weights that every thread has a copy of, in bytes. What one thread packs and another reads goes from cache to cache
/// and back with every step, which takes longer than to pack it twice; beyond the second-level cache it no longer does.
const OWN_PACKS_BYTES: usize = 8 << 20;

/// Most rows of a plan: lengths of buffers then stay far below what a number of them can hold.
const MOST_ROWS: usize = u32::MAX as usize;

/// Memory of a tile that still leaves room for weights in a core's second-level cache, in bytes.
const TILE_BYTES: usize = 768 << 10;
/// Most rows of a tile: with more, gains from reuse of weights no longer pay for lost locality.
const MAX_TILE_ROWS: usize = 192;
/// The same on AMX tiles: a core needs a microsecond to change between them and fused multiply-adds, so ops with either take turns
/// less often.
const MAX_TILE_ROWS_AMX: usize = 576;

/// Rows that ops on AMX tiles have at least while a row is no longer than [`SHORT_ROW_BYTES`]: fewer turns between tiles and fused
/// multiply-adds pay for activations that come from the third cache.
const LEAST_TILE_ROWS_AMX: usize = 192;
/// Activations of a row of most networks of vectors; most images and sequences have more.
const SHORT_ROW_BYTES: usize = 16 << 10;

fn tile_rows(per_row: usize, element: usize, compute: Compute) -> usize {
    let bytes = (per_row * element).max(1);
    let (least, most) = match compute.tiles() {
        true if bytes <= SHORT_ROW_BYTES => (LEAST_TILE_ROWS_AMX, MAX_TILE_ROWS_AMX),
        true => (1, MAX_TILE_ROWS_AMX),
        false => (1, MAX_TILE_ROWS),
    };
    let rows = (TILE_BYTES / bytes).clamp(least, most);
    if rows >= 48 { rows / 48 * 48 } else { rows }
}

/// The backend of a plan. A few rows of vectors do not fill a tile, and registers read weights of f32 in two thirds of the time: plans
/// for fewer than 16 of them have other last bits than those for more. Images and sequences are many rows of a product whatever
/// the batch, so that how it is split changes no bits.
fn backend_of(graph: &Graph, max_rows: usize, backend: Backend) -> Backend {
    const TILE: usize = 16;
    let vectors = graph.values.iter().all(|value| value.ty.kind == Kind::Whole || value.ty.shape.len() <= 1);
    if max_rows < TILE && vectors { backend.without_tiles() } else { backend }
}

/// A graph settled for a batch size. `R` is f32, or f64 for checks.
#[derive(Debug)]
pub struct Plan<R = f32> {
    recipe: Arc<Recipe>,
    compute: Compute,
    note: Option<&'static str>,
    options: Options,
    workers: Vec<Worker<R>>,
    full: Aligned<R>,
    sums: Aligned<R>,
    group_sums: Aligned<R>,
    /// Those of all workers, if they have none of their own.
    packs: Packs<R>,
    rows: usize,
    runs: u32,
    /// Learner's weights, for a plan that was forked.
    shared: Option<SharedWeights>,
}

impl<R: Real> Plan<R> {
    /// A plan that computes all that is wanted, for up to `max_rows` rows.
    pub fn new(graph: &Graph, wanted: &Wanted, max_rows: usize, options: &Options) -> Result<Self> {
        if max_rows == 0 {
            return Err(Error::Invalid("a plan for 0 rows: wanted at least 1".into()));
        }
        if max_rows > MOST_ROWS {
            return Err(Error::Invalid(format!("a plan for {max_rows} rows: wanted at most {MOST_ROWS}")));
        }
        let params = Params::new(graph.params.clone())?;
        let offsets: Vec<usize> = params.specs().iter().map(|spec| spec.offset).collect();
        let params_len = params.len();
        let (precision, note) = options.precision.served();
        let backend = backend_of(graph, max_rows, options.backend);
        // Products of f16 have none.
        let backend = if precision == Precision::F16 { backend.without_tiles() } else { backend };
        let compute = Compute { backend, precision };
        let chosen = |per_row, least| tile_rows(per_row, size_of::<R>(), compute).max(least);
        let choose = |per_row, least| options.tile_rows.unwrap_or_else(|| chosen(per_row, least));
        let merging = Merging { towers: true, takes_sum: &|_| false, timing: &|_| None };
        let mut recipe = Recipe::new(graph, wanted, &offsets, params_len, max_rows, &merging, choose)?;
        recipe.branches = recipe.find_branches();
        // Weights, packed weights (small ones for every thread), and their gradients, of which every group of tiles has its own.
        let groups = Cut::most_groups(&recipe, options.pool.threads());
        let packs = params_len * if recipe.sums_len > 0 { 2 } else { 1 };
        let copies = (options.pool.threads().min(groups) - 1) * packs.min(OWN_PACKS_BYTES / size_of::<R>());
        let weights = packs + copies;
        let numbers =
            recipe.tile_len * options.pool.threads().min(groups) + recipe.full_len + recipe.sums_len * groups + weights;
        check_room(
            &format!("a network of {params_len} weights for {max_rows} rows at once"),
            (numbers * size_of::<R>()) as u64,
            "make it smaller or run fewer rows at once",
        )?;
        Ok(Self::from_recipe(Arc::new(recipe), compute, note, options.clone()))
    }

    fn from_recipe(recipe: Arc<Recipe>, compute: Compute, note: Option<&'static str>, options: Options) -> Self {
        let scratch = recipe.nodes.iter().fold(Scratch::default(), |most, node| {
            most.or(R::scratch(&*node.op, &node.types, recipe.tile_rows, compute))
        });
        let groups = Cut::most_groups(&recipe, options.pool.threads());
        let threads = options.pool.threads().min(groups);
        let mut packs = Packs::new(&recipe, compute);
        let own_packs = options.pool.threads() == 1 || packs.bytes() <= OWN_PACKS_BYTES;
        let worker = || Worker {
            tile: Aligned::zeros(recipe.tile_len),
            real: Aligned::zeros(scratch.real),
            half: Aligned::zeros(scratch.half),
            spans: Spans::new(recipe.steps.len()),
            packs: Packs::default(),
        };
        let mut workers: Vec<Worker<R>> = (0..threads).map(|_| worker()).collect();
        if own_packs {
            workers[1..].iter_mut().for_each(|worker| worker.packs = packs.clone());
            std::mem::swap(&mut workers[0].packs, &mut packs);
        }
        Self {
            workers,
            full: Aligned::zeros(recipe.full_len),
            sums: Aligned::zeros(recipe.sums_len),
            group_sums: Aligned::zeros((groups - 1) * recipe.sums_len),
            packs,
            rows: 0,
            runs: 0,
            shared: None,
            recipe,
            compute,
            note,
            options,
        }
    }

    fn check_feeds(&self, rows: usize, feeds: &[Feed<R>]) {
        let recipe = &self.recipe;
        assert!(rows <= recipe.max_rows, "{rows} rows in a plan for at most {}", recipe.max_rows);
        assert!(
            feeds.len() == recipe.feeds.len(),
            "{} feeds for {} inputs: {}",
            feeds.len(),
            recipe.feeds.len(),
            recipe.feeds.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>().join(", ")
        );
        for (feed, (name, len, kind)) in feeds.iter().zip(&recipe.feeds) {
            let (got, ints) = match feed {
                Feed::Real(x) => (x.len(), false),
                Feed::Ints(x) => (x.len(), true),
            };
            let wanted = if *kind == Kind::Ints { "whole numbers, Feed::Ints" } else { "real numbers, Feed::Real" };
            assert!(ints == (*kind == Kind::Ints), "input {name}: wanted {wanted}");
            let rows = if *kind == Kind::Whole { 1 } else { rows };
            assert!(got >= rows * len, "input {name}: {got} numbers, wanted {rows} rows of {len}");
        }
    }

    /// Runs with these parameter values, which may be stepped at the end.
    #[allow(clippy::too_many_arguments)]
    fn execute(
        &mut self,
        weights: Weights<R>,
        packs: Packed<R>,
        rows: usize,
        feeds: &[Feed<R>],
        loss_scale: f32,
        gradients: Gradients,
    ) {
        self.check_feeds(rows, feeds);
        let recipe = Arc::clone(&self.recipe);
        let len = weights.len();
        assert!(len >= recipe.params_len, "{len} parameter values, wanted {}", recipe.params_len);
        let keep = if gradients == Gradients::Add { recipe.grads_len } else { 0 };
        self.rows = rows;
        self.runs = self.runs.wrapping_add(1);
        if rows == 0 {
            return self.sums[keep..].fill(R::default());
        }
        let run = Run {
            recipe: &recipe,
            compute: self.compute,
            weights,
            packs,
            feeds,
            rows,
            seed: self.options.seed,
            run: self.runs,
            loss_scale,
        };
        run.go(&self.options.pool, &mut self.workers, &mut self.full, (&mut self.sums, keep), &mut self.group_sums);
    }

    /// Calls `f` with packed weights: those of all workers, packed again if they are of another version, or the word that each
    /// worker packs its own.
    fn with_packs<T>(&mut self, (values, version): (&[R], u64), f: impl FnOnce(&mut Self, Packed<R>) -> T) -> T {
        assert!(self.shared.is_none(), "a plan made by `fork` runs with shared weights: `Plan::forward_shared`");
        if self.packs.is_empty() {
            return f(self, Packed::Own { version });
        }
        let mut packs = std::mem::take(&mut self.packs);
        packs.refresh(&self.recipe, self.compute, (values, version), Some(&self.options.pool));
        let result = f(self, Packed::Shared(&packs));
        self.packs = packs;
        result
    }

    /// Runs with parameter values of the element type; packs them every time, and draws the same random numbers every time.
    #[cfg(all(feature = "check", not(test)))]
    pub(super) fn execute_with(&mut self, values: &[R], rows: usize, feeds: &[Feed<R>], gradients: Gradients) {
        self.runs = 0;
        self.workers.iter_mut().map(|worker| &mut worker.packs).chain([&mut self.packs]).for_each(Packs::forget);
        self.with_packs((values, 0), |plan, packs| {
            plan.execute(Weights::Still(values), packs, rows, feeds, 1.0, gradients)
        });
        self.workers.iter_mut().map(|worker| &mut worker.packs).chain([&mut self.packs]).for_each(Packs::forget);
    }

    fn mean(&self, buffer: build::Buffer) -> &[R] {
        let slot = self.recipe.slots[buffer];
        match slot.place {
            Place::Sum(at) => &self.sums[at..][..slot.len],
            _ => unreachable!("means are sums"),
        }
    }

    fn rows_of(&self, list: &[(Node, build::Buffer)], node: Node) -> Option<&[R]> {
        let (_, buffer) = list.iter().find(|(other, _)| *other == node)?;
        let slot = self.recipe.slots[*buffer];
        match slot.place {
            Place::Full(at) => Some(&self.full[at..][..self.rows * slot.len]),
            _ => unreachable!("what is kept has memory for the whole batch"),
        }
    }

    /// An output of the last run, `[rows, …]`. Panics if the plan was not built to give it.
    pub fn output(&self, node: Node) -> &[R] {
        self.rows_of(&self.recipe.readable, node).expect("an output that the plan was built with")
    }

    /// The gradient of an input declared with [`Graph::input_with_gradient`], `[rows, …]`; `None` if no loss depends on it.
    pub fn input_gradient(&self, node: Node) -> Option<&[R]> {
        self.rows_of(&self.recipe.gradients, node)
    }

    /// Gradients of parameters, laid out like [`Params::values`]; empty in an inference plan.
    pub fn gradients(&self) -> &[R] {
        &self.sums[..self.recipe.grads_len]
    }

    /// Mean over rows of a metric of the last run. Panics if the plan was not built to give it.
    pub fn metric(&self, node: Node) -> impl Iterator<Item = f64> + '_ {
        let found = self.recipe.metrics.iter().find(|(other, _)| *other == node);
        let (_, buffer) = found.expect("a metric that the plan was built with");
        self.mean(*buffer).iter().map(|sum| sum.wide() / self.rows.max(1) as f64)
    }

    /// Weighted sum of the losses of the last run.
    pub fn loss(&self) -> f64 {
        let one = |&(buffer, weight): &(build::Buffer, f32)| self.mean(buffer)[0].wide() * f64::from(weight);
        self.recipe.losses.iter().map(one).sum::<f64>() / self.rows.max(1) as f64
    }

    /// Most rows of a run.
    pub fn max_rows(&self) -> usize {
        self.recipe.max_rows
    }

    /// Instruction set of kernels: that of the options, without tiles where there are few rows.
    pub fn backend(&self) -> Backend {
        self.compute.backend
    }

    /// Threads that a run uses at most: those of the pool, unless there are fewer rows than are worth so many.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Most rows of a tile.
    pub fn tile_rows(&self) -> usize {
        self.recipe.tile_rows
    }

    /// The precision that products run in, and why if it is not the one asked for.
    pub fn precision(&self) -> (Precision, Option<&'static str>) {
        (self.compute.precision, self.note)
    }

    /// Bytes of memory: activations, gradients, packed weights.
    pub fn workspace_bytes(&self) -> usize {
        let worker =
            |w: &Worker<R>| (w.tile.len() + w.real.len()) * size_of::<R>() + w.half.len() * 2 + w.packs.bytes();
        let shared = (self.full.len() + self.sums.len() + self.group_sums.len()) * size_of::<R>();
        self.workers.iter().map(worker).sum::<usize>() + shared + self.packs.bytes()
    }

    /// Products and sums of one row forward.
    pub fn flops_per_row(&self) -> u64 {
        self.recipe.flops
    }

    /// Whether runs note the time of each op for [`Plan::profile`].
    pub fn set_timed(&mut self, timed: bool) {
        self.workers.iter_mut().for_each(|worker| worker.spans.set_on(timed));
    }

    /// Time by op since [`Plan::set_timed`].
    pub fn profile(&self) -> Profile {
        let spent = |step: usize| self.workers.iter().map(|worker| worker.spans.totals()[step].nanoseconds).sum();
        Profile::new(&self.recipe, spent)
    }

    /// The steps, which are the kinds of [`Plan::spans`].
    pub fn steps(&self) -> impl Iterator<Item = StepName<'_>> {
        self.recipe.steps.iter().map(|step| StepName::new(&self.recipe, step))
    }

    /// What each part of a batch was timed to take.
    pub fn spans(&self) -> impl Iterator<Item = &Spans> {
        self.workers.iter().map(|worker| &worker.spans)
    }

    /// The same, to start and to stop.
    pub fn spans_mut(&mut self) -> impl Iterator<Item = &mut Spans> {
        self.workers.iter_mut().map(|worker| &mut worker.spans)
    }
}

impl Plan<f32> {
    /// A plan that computes `outputs` of up to `max_rows` rows, and keeps nothing that only gradients need.
    pub fn inference(graph: &Graph, outputs: &[Node], max_rows: usize, options: &Options) -> Result<Self> {
        Self::new(graph, &Wanted { outputs: outputs.to_vec(), ..Wanted::default() }, max_rows, options)
    }

    /// A plan that computes the mean over rows of a loss (one number per row), and its gradients.
    pub fn training(graph: &Graph, loss: Node, max_rows: usize, options: &Options) -> Result<Self> {
        Self::new(graph, &Wanted { losses: vec![(loss, 1.0)], ..Wanted::default() }, max_rows, options)
    }

    /// Computes the outputs of `rows` rows. Panics if feeds do not fit the inputs.
    pub fn forward(&mut self, params: &Params, rows: usize, feeds: &[Feed]) {
        self.with_packs((params.values(), params.version()), |plan, packs| {
            plan.execute(Weights::Still(params.values()), packs, rows, feeds, 1.0, Gradients::Replace);
        });
    }

    /// Computes losses and gradients of `rows` rows. `loss_scale` multiplies gradients (1 unless f16 needs more). Panics if feeds do
    /// not fit the inputs, or the plan was built without a loss.
    pub fn train(
        &mut self,
        params: &Params,
        rows: usize,
        feeds: &[Feed],
        loss_scale: f32,
        gradients: Gradients,
    ) -> Outcome {
        self.check_training();
        self.with_packs((params.values(), params.version()), |plan, packs| {
            plan.execute(Weights::Still(params.values()), packs, rows, feeds, loss_scale, gradients);
        });
        self.outcome()
    }

    /// [Trains](Self::train) with new gradients, and has an optimiser [step](Optimizer::step_scaled) the parameters against them: the same
    /// bits as both calls, with less waiting for each other where few rows are shared by threads. Only the report says whether it
    /// stepped: a finite loss may have a gradient that is not, and the reverse. 0 rows have gradients of 0, of which momentum makes a
    /// step too. Panics as both do, before anything is run.
    pub fn learn(
        &mut self,
        params: &mut Params,
        rows: usize,
        feeds: &[Feed],
        optimizer: &mut Optimizer,
        learning_rate: f32,
        loss_scale: f32,
    ) -> (Outcome, StepReport) {
        self.check_training();
        optimizer.check_step(params, learning_rate, loss_scale);
        let (own, all) = (self.recipe.grads_len, params.len());
        assert!(
            own == all,
            "gradients of {own} numbers, padding included, for parameters of {all}: wanted the graph's own"
        );
        if !self.can_step(params, rows, optimizer) {
            let outcome = self.train(params, rows, feeds, loss_scale, Gradients::Replace);
            return (outcome, optimizer.step_scaled(params, self.gradients(), learning_rate, loss_scale));
        }
        let packs = Packed::Own { version: params.version() };
        let (report, _) = optimizer.step_in_passes(params, learning_rate, loss_scale, |passes| {
            self.execute(Weights::Stepped(&passes), packs, rows, feeds, loss_scale, Gradients::Replace);
            passes.value()
        });
        (self.outcome(), report)
    }

    /// Panics if the plan has no gradients.
    fn check_training(&self) {
        assert!(self.recipe.training, "a plan without a loss cannot train: build it with `Plan::training`");
    }

    /// Whether the threads of a run can step all parameters right after it.
    fn can_step(&self, params: &Params, rows: usize, optimizer: &Optimizer) -> bool {
        let recipe = &self.recipe;
        let whole = recipe.training && recipe.stages == 1 && recipe.params_len == params.len();
        whole
            && (1..=recipe.max_rows).contains(&rows)
            && self.packs.is_empty()
            && self.shared.is_none()
            && optimizer.is_shared_by(&self.options.pool, Run::<f32>::threads(recipe, rows, self.workers.len()))
    }

    fn outcome(&self) -> Outcome {
        let loss = self.loss() as f32;
        Outcome { loss, finite: loss.is_finite() }
    }

    /// Writes what the last training run found into buffers of the parameters: running means of batch norms.
    pub fn update_buffers(&self, params: &mut Params) {
        for node in &self.recipe.nodes {
            let mut x: [&[f32]; super::op::MAX_INPUTS] = [&[]; super::op::MAX_INPUTS];
            for (to, buffer) in x.iter_mut().zip(&node.x) {
                let Some(slot) = buffer.map(|buffer| self.recipe.slots[buffer]) else { continue };
                *to = match slot.place {
                    Place::Param(at) => &params.values()[at..][..slot.len],
                    Place::Sum(at) => &self.sums[at..][..slot.len],
                    _ => &[],
                };
            }
            let mut written: Vec<(usize, Vec<f32>)> = Vec::new();
            node.op.update(&node.types, &x, self.rows, &mut |input, new| written.push((input, new.to_vec())));
            for (input, new) in written {
                if let Some(Place::Param(at)) = node.x[input].map(|buffer| self.recipe.slots[buffer].place) {
                    params.values_mut()[at..][..new.len()].copy_from_slice(&new);
                }
            }
        }
    }

    /// Runs again and names the first op whose result is not finite, if there is one. For messages after a bad loss: gradients stay
    /// what they were, so that an optimiser still refuses them.
    pub fn first_non_finite(&mut self, params: &Params, rows: usize, feeds: &[Feed]) -> Option<String> {
        self.with_packs((params.values(), params.version()), |plan, packs| {
            let recipe = Arc::clone(&plan.recipe);
            let run = Run {
                recipe: &recipe,
                compute: plan.compute,
                weights: Weights::Still(params.values()),
                packs,
                feeds,
                rows,
                seed: plan.options.seed,
                run: plan.runs,
                loss_scale: 1.0,
            };
            let sums = plan.sums.clone();
            plan.sums.fill(0.0);
            let bad = run.first_bad(&mut plan.workers[0], &mut plan.full, &mut plan.sums).map(str::to_owned);
            plan.sums = sums;
            bad
        })
    }

    /// Weights that plans forked from this one share.
    pub fn share(&self, params: &Params) -> SharedWeights {
        SharedWeights::new(Arc::clone(&self.recipe), self.compute, params)
    }

    /// A plan for another thread: the same steps on shared weights, with its own memory and one thread.
    pub fn fork(&self, weights: &SharedWeights) -> Self {
        let options = Options { pool: Arc::new(CpuPool::new(1)), ..self.options.clone() };
        let mut plan = Self::from_recipe(Arc::clone(&self.recipe), self.compute, self.note, options);
        plan.workers.iter_mut().for_each(|worker| worker.packs = Packs::default());
        plan.shared = Some(weights.clone());
        plan
    }

    /// Computes the outputs of `rows` rows with the newest shared weights, and gives their version. Only for a plan made
    /// by [`Plan::fork`].
    pub fn forward_shared(&mut self, rows: usize, feeds: &[Feed]) -> u64 {
        let shared = self.shared.as_ref().expect("a plan made by `fork`");
        let snapshot = shared.load();
        self.execute(
            Weights::Still(&snapshot.values),
            Packed::Shared(&snapshot.packs),
            rows,
            feeds,
            1.0,
            Gradients::Replace,
        );
        snapshot.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Act, Init, Method, nets};
    use operant_device::TwoPasses;
    use operant_lanes::Backend;

    /// Long rows by the room of a tile, short ones at least as many as tiles of AMX take turns for.
    #[test]
    fn tiles_have_rows_by_their_length() {
        let [rows, on_amx] = [Precision::F16, Precision::Bf16].map(|precision| {
            let compute = Compute { backend: Backend::fast(), precision };
            [128, SHORT_ROW_BYTES / 4, SHORT_ROW_BYTES / 4 + 1, 1 << 20].map(|per_row| tile_rows(per_row, 4, compute))
        });
        assert_eq!((rows, on_amx), ([192, 48, 47, 1], [576, 192, 47, 1]));
    }

    #[test]
    fn threads_step_what_they_have_trained() {
        // Whether training and the step are one section, and whether each thread steps a network of its own there.
        let found_of = |names: [&str; 2], actions: usize, rows: usize, pools: [usize; 2], method: Method| {
            let mut g = Graph::new();
            let x = g.input("x", [6]);
            let two = [(names[0], actions), (names[1], 1)]
                .map(|(name, outputs)| nets::mlp(&mut g, name, x, &[64, 64, outputs], Act::Tanh, 1.0).unwrap());
            let sum = g.sum(two[0], 1).unwrap();
            let product = g.mul(sum, two[1]).unwrap();
            // Behind both networks and of neither, as standard deviations of actions are.
            let loss = g.bias("log_std", product, Init::Zeros).unwrap();
            let options = Options::threads(pools[0]);
            let mut params = g.params(0).unwrap();
            let plan = Plan::training(&g, loss, 256, &options).unwrap();
            let pool = if pools[0] == pools[1] { options.pool.clone() } else { Arc::new(CpuPool::new(pools[1])) };
            let mut optimizer = Optimizer::new(method, &params, None, options.backend).unwrap().on(&pool);
            let branches = plan.recipe.branches.as_ref().unwrap();
            let mut apart = true;
            let once = plan.can_step(&params, rows, &optimizer);
            optimizer.step_in_passes(&mut params, 0.1, 1.0, |passes| {
                apart = passes.shares() == 2 && (0..2).all(|thread| branches.has_sums(thread, &passes.range(thread)));
                passes.value()
            });
            (once, apart)
        };
        let found = |actions, rows, pools, method| found_of(["actor", "critic"], actions, rows, pools, method);
        let adam = Method::default();
        for actions in 1..5 {
            assert_eq!(found(actions, 256, [2, 2], adam), (true, true), "{actions} actions");
        }
        assert_eq!(
            found_of(["net.actor", "net.critic"], 4, 256, [2, 2], adam),
            (true, false),
            "one network by its names"
        );
        assert_eq!(found(2, 256, [1, 1], adam), (true, false));
        assert!(!found(2, 5, [2, 2], adam).0, "few rows have one thread");
        assert!(!found(2, 256, [2, 1], adam).0, "another pool");
        assert!(!found(2, 256, [2, 2], Method::MUON).0, "matrices are stepped whole");
        assert!(!found(2, 300, [2, 2], adam).0, "more rows than planned");
    }
}
