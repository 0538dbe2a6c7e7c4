//! Optimisers over the flat vector of [`Params`]: one pass for the norm of the gradient, one for the update, no allocation.
//!
//! Large vectors are cut into chunks, which threads of a pool share ([`Optimizer::on`]); the chunks do not depend on their number, so
//! neither do the bits.
//!
//! The rules are PyTorch's. A gradient that is not finite changes nothing: neither weights, nor moments, nor the step count.

mod ema;
mod kernels;
mod loss_scale;
mod method;
mod muon;
mod schedule;

pub use ema::Ema;
pub use loss_scale::LossScale;
pub use method::{Method, MuonScale};
pub use schedule::Schedule;

use super::params::{ALIGN, ParamSpec, Params};
use super::saved::{self, Loaded, Metadata, Tensor};
use kernels::{Adam, AdamConstants, Sgd, SgdConstants, SumOfSquares};
use muon::{Matrix, MuonConstants, Scratch};
use operant_base::{Error, Result};
use operant_device::{Aligned, CpuPool, Part, PartPasses, PartWork, check_room};
use operant_lanes::Backend;
use std::ops::Range;
use std::sync::Arc;

/// Elements of a chunk, at least and at most, or somewhat more: enough to be worth handing it to a thread.
const CHUNK: (usize, usize) = (512, 4096);
/// Large enough vectors become at least so many chunks, so that threads have equal shares.
const CHUNKS: usize = 16;
/// A network that a thread steps alone may end as far from the middle as one part in so many: what another thread steps beside it
/// then takes no longer than waiting for each other would.
const MIDDLE: usize = 16;

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Euclidean norm of all trainable gradients before clipping, loss scale taken out.
    pub grad_norm: f32,
    /// False if some gradient, or the norm, was infinite or NaN: then nothing was changed.
    pub finite: bool,
}

/// How elements are stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// One by one.
    Plain,
    /// One by one, with decay.
    Decaying,
    /// By Muon, a matrix at a time.
    Together,
}

/// An optimiser and its memory.
#[derive(Clone, Debug)]
pub struct Optimizer {
    method: Method,
    max_grad_norm: Option<f32>,
    backend: Backend,
    specs: Vec<ParamSpec>,
    /// Neighbouring tensors that are stepped alike, padding included, or a part of them.
    chunks: Vec<Part<Treatment>>,
    /// Of each chunk's gradients. Apart from the chunks, so that two threads that write their own do not wait for each other.
    squares: Aligned<f64>,
    matrices: Vec<Matrix>,
    scratch: Scratch,
    pool: Option<Arc<CpuPool>>,
    /// Where chunks are cut into shares for its threads.
    cuts: Vec<usize>,
    /// The first chunk of the second of two networks.
    middle: Option<usize>,
    steps: u64,
    /// Momentum or mean of gradients, laid out as the parameters.
    first: Aligned<f32>,
    /// Mean of squared gradients; empty where the method has none.
    second: Aligned<f32>,
}

impl Optimizer {
    /// An optimiser for parameters of this layout. Gradients longer than `max_grad_norm` are shortened to it.
    pub fn new(method: Method, params: &Params, max_grad_norm: Option<f32>, backend: Backend) -> Result<Self> {
        method.check()?;
        if let Some(norm) = max_grad_norm.filter(|norm| norm.is_nan() || *norm <= 0.0) {
            return Err(Error::Invalid(format!(
                "max_grad_norm is {norm}, wanted more than 0; None turns clipping off"
            )));
        }
        let is_muon = matches!(method, Method::Muon { .. });
        let mut runs: Vec<(Range<usize>, Treatment)> = Vec::new();
        let mut matrices = Vec::new();
        for spec in params.specs().iter().filter(|spec| spec.trainable) {
            let treatment = if is_muon && takes_muon(spec) {
                let rows = spec.shape[0];
                matrices.push(Matrix { offset: spec.offset, rows, columns: spec.count() / rows });
                Treatment::Together
            } else if spec.decay && method.decays() {
                Treatment::Decaying
            } else {
                Treatment::Plain
            };
            let range = spec.padded_range();
            match runs.last_mut().filter(|(last, same)| *same == treatment && last.end == range.start) {
                Some((last, _)) => last.end = range.end,
                None => runs.push((range, treatment)),
            }
        }
        let has_second = !matches!(method, Method::Sgd { .. });
        let moments = if has_second { 2 } else { 1 };
        let what = format!("an optimiser of {} weights", params.len());
        check_room(&what, moments * 4 * params.len() as u64, "make the network smaller")?;
        let elements: usize = runs.iter().map(|(run, _)| run.len()).sum();
        let count = elements.div_ceil(CHUNK.1).next_multiple_of(CHUNKS).max(1);
        let chunk = elements.div_ceil(count).next_multiple_of(64).max(CHUNK.0);
        let (len, middle) = (params.len(), networks_meet(params.specs()));
        // A multiple of ALIGN, as chunks are.
        let cut = middle.unwrap_or((len / 2).next_multiple_of(ALIGN));
        let halves = |run: Range<usize>| [run.start..run.end.min(cut), run.start.max(cut)..run.end];
        let pieces = runs.into_iter().flat_map(|(run, treatment)| halves(run).map(|half| (half, treatment)));
        let chunks = pieces.filter(|(piece, _)| !piece.is_empty()).flat_map(|(piece, treatment)| {
            let count = ((piece.len() + chunk / 2) / chunk).max(1);
            let chunk = piece.len().div_ceil(count).next_multiple_of(ALIGN);
            piece.clone().step_by(chunk).map(move |start| {
                let range = start..piece.end.min(start + chunk);
                let second = if has_second { range.clone() } else { 0..0 };
                Part::new([range, second], treatment)
            })
        });
        let chunks: Vec<_> = chunks.collect();
        Ok(Self {
            method,
            max_grad_norm,
            backend,
            specs: params.specs().to_vec(),
            scratch: Scratch::new(&matrices),
            squares: Aligned::zeros(chunks.len()),
            cuts: Part::cuts(&chunks, None),
            middle: middle.and_then(|middle| chunks.iter().position(|chunk| chunk.range().start >= middle)),
            chunks,
            matrices,
            pool: None,
            steps: 0,
            first: Aligned::zeros(params.len()),
            second: Aligned::zeros(if has_second { params.len() } else { 0 }),
        })
    }

    /// With the threads of a pool, which share the work where there is enough of it.
    pub fn on(self, pool: &Arc<CpuPool>) -> Self {
        let mut cuts = Part::cuts(&self.chunks, Some(pool));
        if let ([_, between, _], Some(middle)) = (&mut cuts[..], self.middle) {
            *between = middle;
        }
        Self { pool: Some(Arc::clone(pool)), cuts, ..self }
    }

    /// The rule.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Steps taken; those with gradients that were not finite do not count.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Means of gradients and of their squares, laid out as the parameters; the second is empty where the method has none.
    pub fn moments(&self) -> [&[f32]; 2] {
        [&self.first, &self.second]
    }

    /// Goes on from moments that another device computed, after so many steps. Panics if a length is another.
    pub fn set_moments(&mut self, [first, second]: [&[f32]; 2], steps: u64) {
        self.first.copy_from_slice(first);
        self.second.copy_from_slice(second);
        self.steps = steps;
    }

    /// One step against `grads`, which lie as `params.values()` do, with zeros for padding. Gradients of buffers are not looked
    /// at. Panics if a length is not that of the parameters the optimiser was made for, or the learning rate is not finite.
    pub fn step(&mut self, params: &mut Params, grads: &[f32], learning_rate: f32) -> StepReport {
        self.step_scaled(params, grads, learning_rate, 1.0)
    }

    /// [`Optimizer::step`] with gradients of a loss that was multiplied by `loss_scale`; panics as that does, and if the scale is not a
    /// finite number above 0.
    pub fn step_scaled(
        &mut self,
        params: &mut Params,
        grads: &[f32],
        learning_rate: f32,
        loss_scale: f32,
    ) -> StepReport {
        assert!(grads.len() == self.first.len(), "an optimiser steps the parameters it was made for");
        let pool = self.pool.clone();
        let run = |passes: PartPasses<Step>| passes.run_on(pool.as_deref(), grads);
        let (report, grad_scale) = self.step_in_passes(params, learning_rate, loss_scale, run);
        if report.finite && !self.matrices.is_empty() {
            self.step_matrices(params.values_mut(), grads, f64::from(learning_rate), grad_scale);
        }
        report
    }

    /// Panics where a step does.
    pub(super) fn check_step(&self, params: &Params, learning_rate: f32, loss_scale: f32) {
        assert!(params.len() == self.first.len(), "an optimiser steps the parameters it was made for");
        assert!(learning_rate.is_finite(), "a learning rate of {learning_rate}: wanted a finite number");
        let scales = loss_scale.is_finite() && loss_scale > 0.0;
        assert!(scales, "a loss scale of {loss_scale}: wanted a finite number above 0");
    }

    /// Whether so many threads of this pool have a share each of all that a step does.
    pub(super) fn is_shared_by(&self, pool: &Arc<CpuPool>, threads: usize) -> bool {
        let same = self.pool.as_ref().map_or(pool.threads() == 1, |own| Arc::ptr_eq(own, pool));
        same && self.matrices.is_empty() && self.cuts.len() == threads + 1
    }

    /// A step but for Muon's matrices: `run` has both passes run with gradients of its own, and gives what they come to. Gives also what
    /// gradients were multiplied by. Panics as [`Optimizer::step_scaled`] does.
    pub(super) fn step_in_passes(
        &mut self,
        params: &mut Params,
        learning_rate: f32,
        loss_scale: f32,
        run: impl FnOnce(PartPasses<Step>) -> (StepReport, f32),
    ) -> (StepReport, f32) {
        self.check_step(params, learning_rate, loss_scale);
        let step = Step {
            rule: Rule::new(self.method, f64::from(learning_rate), self.steps + 1),
            backend: self.backend,
            max_grad_norm: self.max_grad_norm,
            loss_scale,
        };
        let slices = ([params.values_mut(), &mut self.first[..]], &mut self.second[..]);
        let found = run(PartPasses::new((&self.chunks, &self.cuts), &mut self.squares, slices, step));
        self.steps += u64::from(found.0.finite);
        found
    }

    /// Forgets all steps, so that the next is as a first one.
    pub fn restart(&mut self) {
        self.steps = 0;
        self.first.fill(0.0);
        self.second.fill(0.0);
    }

    /// Muon's step of the matrices that are its own.
    fn step_matrices(&mut self, values: &mut [f32], grads: &[f32], learning_rate: f64, grad_scale: f32) {
        let Method::Muon { momentum, weight_decay, scale, .. } = self.method else { return };
        for &matrix in &self.matrices {
            let range = matrix.range();
            let constants = MuonConstants {
                grad_scale,
                momentum: momentum as f32,
                rate: (1.0 - momentum) as f32,
                step: (learning_rate * scale.factor(matrix.rows, matrix.columns)) as f32,
                keep: (1.0 - learning_rate * weight_decay) as f32,
            };
            let (values, momentum) = (&mut values[range.clone()], &mut self.first[range.clone()]);
            self.scratch.step(self.backend, matrix, values, &grads[range], momentum, constants);
        }
    }

    /// Everything that the next step depends on, as safetensors bytes: tensors such as `adam.m.<parameter>`, and the step count
    /// in the metadata.
    pub fn to_bytes(&self) -> Vec<u8> {
        let tensors = self.slots().map(|(name, spec, is_second)| {
            let memory = if is_second { &self.second } else { &self.first };
            (name, Tensor { shape: &spec.shape, values: &memory[spec.range()] })
        });
        saved::to_bytes(tensors, &Metadata::from([("steps".into(), self.steps.to_string())]))
    }

    /// Takes back what [`Optimizer::to_bytes`] gave; on an error nothing is changed.
    pub fn from_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let slots: Vec<_> = self.slots().map(|(name, spec, is_second)| (name, spec.clone(), is_second)).collect();
        let wanted: Vec<_> = slots.iter().map(|(name, spec, _)| (name.clone(), spec.shape.as_slice())).collect();
        let loaded = Loaded::read(bytes, &wanted)?;
        let steps = loaded.metadata.get("steps").and_then(|steps| steps.parse().ok()).ok_or_else(|| {
            Error::Saved("saved optimiser has no step count; load bytes that an optimiser's to_bytes() gave".into())
        })?;
        self.steps = steps;
        for (i, (_, spec, is_second)) in slots.iter().enumerate() {
            let memory = if *is_second { &mut self.second } else { &mut self.first };
            loaded.copy_to(i, &mut memory[spec.range()]);
        }
        Ok(())
    }

    /// What is remembered of each trainable tensor: a name, its spec, and whether it lies in the second memory.
    fn slots(&self) -> impl Iterator<Item = (String, &ParamSpec, bool)> {
        self.specs.iter().filter(|spec| spec.trainable).flat_map(|spec| {
            let kinds: &[(&str, bool)] = match self.method {
                Method::Sgd { .. } => &[("sgd.momentum", false)],
                Method::Muon { .. } if takes_muon(spec) => &[("muon.momentum", false)],
                _ => &[("adam.m", false), ("adam.v", true)],
            };
            kinds.iter().map(move |&(kind, is_second)| (format!("{kind}.{}", spec.name), spec, is_second))
        })
    }
}

/// Where the second of two networks begins, such as an actor and a critic, which two threads have one each of when they train: near the
/// middle of all that is trained, where the first word of names changes.
fn networks_meet(specs: &[ParamSpec]) -> Option<usize> {
    let network = |i: usize| specs[i].name.split('.').next();
    let trained = |specs: &[ParamSpec]| -> usize {
        specs.iter().filter(|spec| spec.trainable).map(|spec| spec.padded_range().len()).sum()
    };
    let all = trained(specs);
    let off = |&i: &usize| (2 * trained(&specs[..i])).abs_diff(all);
    let nearest = (1..specs.len()).filter(|&i| network(i) != network(i - 1)).min_by_key(off)?;
    (off(&nearest) <= 2 * all / MIDDLE).then(|| specs[nearest].offset)
}

/// What chunks are stepped by.
#[derive(Clone, Copy)]
pub(super) struct Step {
    rule: Rule,
    backend: Backend,
    max_grad_norm: Option<f32>,
    loss_scale: f32,
}

impl PartWork for Step {
    type Item = Treatment;
    type Found = f64;
    /// And what gradients are multiplied by.
    type Value = (StepReport, f32);

    fn first(&self, _: &Treatment, gradients: &[f32]) -> f64 {
        sum_of_squares(self.backend, gradients)
    }

    fn between(&self, squares: &[f64]) -> (StepReport, f32) {
        let grad_norm = (squares.iter().sum::<f64>().sqrt() / f64::from(self.loss_scale)) as f32;
        // torch.nn.utils.clip_grad_norm_.
        let clip = self.max_grad_norm.map_or(1.0, |max| (max / (grad_norm + 1e-6)).min(1.0));
        (StepReport { grad_norm, finite: grad_norm.is_finite() }, clip / self.loss_scale)
    }

    fn then(
        &self,
        treatment: &Treatment,
        grads: &[f32],
        ([values, first], second): ([&mut [f32]; 2], &mut [f32]),
        &(report, grad_scale): &(StepReport, f32),
    ) {
        let rule = match treatment {
            _ if !report.finite => return,
            Treatment::Plain => self.rule.without_decay(),
            Treatment::Decaying => self.rule,
            Treatment::Together => return,
        };
        match rule {
            Rule::Sgd(constants) => {
                let constants = SgdConstants { grad_scale, ..constants };
                self.backend.run(Sgd { values, grads, momentum: first, constants });
            }
            Rule::Adam(constants) => {
                let constants = AdamConstants { grad_scale, ..constants };
                self.backend.run(Adam { values, grads, mean: first, square: second, constants });
            }
        }
    }
}

/// Not finite only if one of the gradients is not.
fn sum_of_squares(backend: Backend, grads: &[f32]) -> f64 {
    let sum = backend.run(SumOfSquares(grads));
    if sum.is_finite() {
        return sum;
    }
    // Squares of finite numbers may leave f32; in f64 they do not.
    grads.iter().map(|&g| f64::from(g) * f64::from(g)).sum()
}

/// What a step does to elements.
#[derive(Clone, Copy)]
enum Rule {
    Sgd(SgdConstants),
    Adam(AdamConstants),
}

impl Rule {
    /// That of the step of this number, for elements that decay, with the gradient as it is.
    fn new(method: Method, learning_rate: f64, step: u64) -> Self {
        let grad_scale = 1.0;
        let (beta1, beta2, eps, weight_decay) = match method {
            Method::Sgd { momentum, nesterov, weight_decay } => {
                let (momentum, weight_decay, step) = (momentum as f32, weight_decay as f32, learning_rate as f32);
                return Self::Sgd(SgdConstants { grad_scale, momentum, nesterov, weight_decay, step });
            }
            Method::Adam { beta1, beta2, eps } => (beta1, beta2, eps, 0.0),
            Method::AdamW { beta1, beta2, eps, weight_decay } => (beta1, beta2, eps, weight_decay),
            Method::Muon { weight_decay, beta1, beta2, eps, .. } => (beta1, beta2, eps, weight_decay),
        };
        let mean_correction = 1.0 - power(beta1, step);
        let square_correction = (1.0 - power(beta2, step)).sqrt();
        Self::Adam(AdamConstants {
            grad_scale,
            mean_rate: (1.0 - beta1) as f32,
            square_keep: beta2 as f32,
            square_rate: (1.0 - beta2) as f32,
            step: (learning_rate * square_correction / mean_correction) as f32,
            eps: (eps * square_correction) as f32,
            keep: (1.0 - learning_rate * weight_decay) as f32,
        })
    }

    fn without_decay(self) -> Self {
        match self {
            Self::Sgd(constants) => Self::Sgd(SgdConstants { weight_decay: 0.0, ..constants }),
            Self::Adam(constants) => Self::Adam(AdamConstants { keep: 1.0, ..constants }),
        }
    }
}

/// Muon's choice: matrices that decay.
fn takes_muon(spec: &ParamSpec) -> bool {
    spec.decay && spec.shape.len() >= 2
}

/// `base` to the power, by squaring: the same bits on every machine.
fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Init;

    /// An optimiser of tensors of these lengths, of which every third is not trained.
    fn optimizer(lens: &[usize], method: Method) -> (Optimizer, Params) {
        let specs = lens.iter().enumerate().map(|(i, &len)| ParamSpec {
            trainable: i % 3 != 2,
            decay: i % 2 == 0,
            ..ParamSpec::new(format!("{}.{i}", 2 * i / lens.len()), &[len], Init::Zeros)
        });
        let params = Params::new(specs.collect()).unwrap();
        (Optimizer::new(method, &params, None, Backend::fast()).unwrap(), params)
    }

    #[test]
    fn chunks_are_whole_groups_of_all_that_is_trained() {
        let adamw = Method::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
        // Of the last, the middle of what is trained is not that of all.
        let lens = [
            &[1][..],
            &[3, 5000, 17],
            &[100_000, 7, 9, 31, 3000],
            &[9000; 14],
            &[40; 200],
            &[77, 800_000, 5],
            &[100, 100, 60_000, 30_000, 30_000, 100],
        ];
        for (lens, method) in lens.into_iter().flat_map(|lens| [(lens, Method::default()), (lens, adamw)]) {
            let (optimizer, params) = optimizer(lens, method);
            let mut stepped = vec![0; params.len()];
            for chunk in &optimizer.chunks {
                let range = chunk.range();
                assert!(
                    range.start % ALIGN == 0 && range.end % ALIGN == 0 && !range.is_empty(),
                    "{range:?} of {lens:?}"
                );
                assert!(range.len() <= 3 * CHUNK.1 / 2, "{range:?} of {lens:?}");
                stepped[range].iter_mut().for_each(|times| *times += 1);
            }
            for spec in params.specs() {
                let times = i32::from(spec.trainable);
                assert!(stepped[spec.padded_range()].iter().all(|&got| got == times), "{} of {lens:?}", spec.name);
            }
            for threads in 1..5 {
                let cuts = optimizer.clone().on(&Arc::new(CpuPool::new(threads))).cuts;
                assert!(cuts.is_sorted() && cuts[0] == 0 && cuts.last() == Some(&optimizer.chunks.len()), "{cuts:?}");
                let elements =
                    |chunks: &[Part<Treatment>]| chunks.iter().map(|chunk| chunk.range().len()).sum::<usize>();
                let all = elements(&optimizer.chunks);
                let most = cuts.windows(2).map(|two| elements(&optimizer.chunks[two[0]..two[1]])).max().unwrap();
                let longest = optimizer.chunks.iter().map(|chunk| chunk.range().len()).max().unwrap();
                assert!(most <= all / threads + all / MIDDLE + longest, "{most} of {all} in {cuts:?} of {lens:?}");
            }
        }
    }
}
