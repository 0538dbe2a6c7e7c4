//! Packed weights, and their atomic exchange between a learner and its workers.

use super::super::op::{Packing, ReadBy};
use super::super::params::Params;
use super::super::real::{Compute, PackPart, PackSet, PackedMut, Real, Scratch};
use super::build::{Body, Recipe};
use operant_device::{Aligned, CpuPool, Part, read_later};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

/// The packed matrices of all nodes: all at once for as long as the parameters are the same, or in turn, each body's before it runs and
/// all in the same place. Where one tile of rows follows each change of the parameters, the latter leaves room in the second cache
/// for all else that a training step touches.
#[derive(Debug)]
pub(super) struct Packs<R> {
    real: Aligned<R>,
    half: Aligned<u16>,
    /// For each node, where its matrices lie when all are packed.
    parts: Vec<Vec<PackPart>>,
    /// The same in turn for each [`Body`]: what one of them reads has no place in the other's list.
    parts_in_turn: Vec<[Vec<PackPart>; 2]>,
    /// Which of the matrices are a node's.
    of_nodes: Vec<Range<usize>>,
    matrices: Vec<Part<Matrix<R>>>,
    /// If packing is done in turn: for each step that begins with it, and the first, the parameters that are packed next.
    next: Vec<Range<usize>>,
    /// Of the parameters that are packed all at once.
    version: Option<u64>,
    /// Of those that are packed in turn.
    version_in_turn: Option<u64>,
}

/// A matrix to pack.
#[derive(Clone, Debug)]
struct Matrix<R> {
    node: usize,
    packing: usize,
    /// Room to bring it into row-major order, where it is in another.
    ordered: Vec<R>,
}

/// Elements of matrices that are worth a second thread.
const SHARED_ELEMENTS: usize = 16_384;

impl<R: Real> Clone for Packs<R> {
    fn clone(&self) -> Self {
        Self {
            real: self.real.clone(),
            half: self.half.clone(),
            parts: self.parts.clone(),
            parts_in_turn: self.parts_in_turn.clone(),
            of_nodes: self.of_nodes.clone(),
            matrices: self.matrices.clone(),
            next: self.next.clone(),
            ..*self
        }
    }
}

impl<R: Real> Default for Packs<R> {
    fn default() -> Self {
        Self {
            real: Aligned::default(),
            half: Aligned::default(),
            parts: Vec::new(),
            parts_in_turn: Vec::new(),
            of_nodes: Vec::new(),
            matrices: Vec::new(),
            next: Vec::new(),
            version: None,
            version_in_turn: None,
        }
    }
}

impl<R: Real> Packs<R> {
    pub(super) fn new(recipe: &Recipe, compute: Compute) -> Self {
        let mut new = Self::default();
        let mut all = Scratch::default();
        for (number, node) in recipe.nodes.iter().enumerate() {
            let none = vec![PackPart::default(); node.packings.len()];
            let (mut parts, mut in_turn) = (none.clone(), [none.clone(), none]);
            let (first, mut of_body) = (new.matrices.len(), [Scratch::default(); 2]);
            for (i, packing) in node.packings.iter().enumerate() {
                let body = match packing.read_by {
                    ReadBy::Forward => Body::Forward,
                    ReadBy::Backward if recipe.training => Body::Backward,
                    ReadBy::FirstGradient if recipe.wants_first_gradient(number) => Body::Backward,
                    _ => continue,
                };
                let [o, p, q, n] = packing.lens;
                let len = R::packed_len(compute.or_exact(packing.exact), o, p * q, n);
                let after =
                    |at: Scratch| PackPart { real: (at.real, at.real + len.real), half: (at.half, at.half + len.half) };
                let part = after(all);
                if len.real + len.half > 0 {
                    let ordered =
                        vec![R::default(); if in_order(&settled(packing, compute)) { 0 } else { o * p * q * n }];
                    let ranges = [part.real.0..part.real.1, part.half.0..part.half.1];
                    new.matrices.push(Part::new(ranges, Matrix { node: number, packing: i, ordered }));
                }
                parts[i] = part;
                in_turn[body as usize][i] = after(of_body[body as usize]);
                // Whole cache lines, so that panels of 16 stay aligned.
                let lines = Scratch { real: len.real.next_multiple_of(16), half: len.half.next_multiple_of(32) };
                all = all.and(lines);
                of_body[body as usize] = of_body[body as usize].and(lines);
            }
            new.parts.push(parts);
            new.parts_in_turn.push(in_turn);
            new.of_nodes.push(first..new.matrices.len());
        }
        let mut next = 0..0;
        for (i, step) in recipe.steps.iter().enumerate().rev() {
            let mut params = None;
            if let Some((node, body)) = step.body() {
                for (part, packing) in new.parts_in_turn[node][body as usize].iter().zip(&recipe.nodes[node].packings) {
                    let packed = part.real.0 < part.real.1 || part.half.0 < part.half.1;
                    let Some(param) = recipe.param(node, packing.input).filter(|_| packed) else { continue };
                    let all = params.get_or_insert(param.clone());
                    *all = all.start.min(param.start)..all.end.max(param.end);
                }
            }
            // Asked for once, from the packing before on.
            new.next.push(if params.is_some() || i == 0 { next.clone() } else { 0..0 });
            next = params.unwrap_or(next);
        }
        new.next.reverse();
        Self { real: Aligned::zeros(all.real), half: Aligned::zeros(all.half), ..new }
    }

    /// Whether there is no room for any: another has them.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Packs again at the next refresh, whatever the version.
    #[cfg(all(feature = "check", not(test)))]
    pub(super) fn forget(&mut self) {
        (self.version, self.version_in_turn) = (None, None);
    }

    /// Those that a body of a node reads.
    pub(super) fn of(&self, node: usize, body: Body) -> PackSet<'_, R> {
        let in_turn = self.version_in_turn.is_some();
        let parts = if in_turn { &self.parts_in_turn[node][body as usize] } else { &self.parts[node] };
        PackSet { real: &self.real, half: &self.half, parts }
    }

    pub(super) fn bytes(&self) -> usize {
        let ordered: usize = self.matrices.iter().map(|matrix| size_of_val(&*matrix.item.ordered)).sum();
        size_of_val(&*self.real) + size_of_val(&*self.half) + ordered
    }

    /// Begins a run on one tile: packs all matrices only if the last run had these parameters too, which then may come again, else
    /// each body's are packed [in turn](Self::pack_for).
    pub(super) fn refresh_in_turn(&mut self, recipe: &Recipe, compute: Compute, (values, version): (&[R], u64)) {
        if self.version == Some(version) || self.version_in_turn == Some(version) {
            return self.refresh(recipe, compute, (values, version), None);
        }
        (self.version, self.version_in_turn) = (None, Some(version));
    }

    /// Lets products of a step ask for the parameters that are packed after it, if that is done in turn.
    pub(super) fn read_next_later(&self, values: &[R], step: usize) {
        if self.version_in_turn.is_none() {
            return;
        }
        let next = &self.next[step];
        if !next.is_empty() {
            read_later(&values[next.clone()]);
        }
    }

    /// Packs what a body of a node reads, if that is done in turn.
    pub(super) fn pack_for(&mut self, recipe: &Recipe, compute: Compute, values: &[R], node: usize, body: Body) {
        if self.version_in_turn.is_none() {
            return;
        }
        for matrix in self.matrices[self.of_nodes[node].clone()].iter_mut().map(|part| &mut part.item) {
            let PackPart { real, half } = self.parts_in_turn[node][body as usize][matrix.packing];
            let (real, half) = (&mut self.real[real.0..real.1], &mut self.half[half.0..half.1]);
            if real.len() + half.len() > 0 {
                matrix.pack(recipe, compute, values, PackedMut { real, half });
            }
        }
    }

    /// Packs all matrices again if they are of another version, on the threads of a pool where that is worth it.
    pub(super) fn refresh(
        &mut self,
        recipe: &Recipe,
        compute: Compute,
        (values, version): (&[R], u64),
        pool: Option<&CpuPool>,
    ) {
        self.version_in_turn = None;
        if self.version == Some(version) {
            return;
        }
        let pool = pool.filter(|_| self.real.len() + self.half.len() >= SHARED_ELEMENTS);
        Part::for_each(
            &mut self.matrices,
            pool,
            ([&mut self.real[..]], &mut self.half[..]),
            |matrix, _, [real], half| {
                matrix.pack(recipe, compute, values, PackedMut { real, half });
            },
        );
        self.version = Some(version);
    }
}

/// As the plan's precision wants it.
fn settled(packing: &Packing, compute: Compute) -> Packing {
    if packing.words && compute.words() { packing.in_words() } else { *packing }
}

/// Whether a matrix can be packed from where it lies.
fn in_order(packing: &Packing) -> bool {
    let ([o, _, q, _], [_, row, _, column]) = (packing.lens, packing.strides);
    o == 1 && q == 1 && row >= 0 && column >= 0
}

impl<R: Real> Matrix<R> {
    fn pack(&mut self, recipe: &Recipe, compute: Compute, values: &[R], out: PackedMut<'_, R>) {
        let node = &recipe.nodes[self.node];
        let packing = &node.packings[self.packing];
        let Some(param) = recipe.param(self.node, packing.input) else {
            unreachable!("only parameters are packed");
        };
        let source = &values[param.start..];
        let packing = &settled(packing, compute);
        let compute = compute.or_exact(packing.exact);
        let [o, p, q, n] = packing.lens;
        let [_, row, _, col] = packing.strides;
        if in_order(packing) {
            return R::pack(compute, 1, p, n, &source[packing.offset..], row as usize, col as usize, out);
        }
        let ordered = &mut self.ordered[..o * p * q * n];
        let mut k = 0;
        for oi in 0..o as isize {
            for pi in 0..p as isize {
                for qi in 0..q as isize {
                    let s = packing.strides;
                    let first = packing.offset as isize + oi * s[0] + pi * s[1] + qi * s[2];
                    for (j, to) in ordered[k * n..][..n].iter_mut().enumerate() {
                        *to = source[(first + j as isize * col) as usize];
                    }
                    k += 1;
                }
            }
        }
        R::pack(compute, o, p * q, n, ordered, n, 1, out);
    }
}

/// Parameters with their packed matrices: what a worker reads for the length of a run.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) values: Vec<f32>,
    pub(super) packs: Packs<f32>,
    pub(super) version: u64,
}

/// The weights that workers use: a learner publishes, workers take the newest at the start of each run.
#[derive(Clone, Debug)]
pub struct SharedWeights {
    recipe: Arc<Recipe>,
    compute: Compute,
    current: Arc<RwLock<Arc<Snapshot>>>,
    /// The snapshot before the current one, used again once no worker holds it.
    spare: Arc<std::sync::Mutex<Option<Arc<Snapshot>>>>,
}

impl SharedWeights {
    pub(super) fn new(recipe: Arc<Recipe>, compute: Compute, params: &Params) -> Self {
        let mut packs = Packs::new(&recipe, compute);
        packs.refresh(&recipe, compute, (params.values(), params.version()), None);
        let snapshot = Snapshot { values: params.values().to_vec(), packs, version: params.version() };
        Self { recipe, compute, current: Arc::new(RwLock::new(Arc::new(snapshot))), spare: Arc::default() }
    }

    /// Makes these parameters the ones that runs begun from now on use. Runs under way keep theirs to their end.
    pub fn publish(&self, params: &Params) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = spare.take().filter(|old| Arc::strong_count(old) == 1).unwrap_or_else(|| {
            let current = self.load();
            Arc::new(Snapshot { values: current.values.clone(), packs: current.packs.clone(), version: 0 })
        });
        let Some(snapshot) = Arc::get_mut(&mut next) else { unreachable!("nobody else holds it") };
        snapshot.values.copy_from_slice(params.values());
        snapshot.packs.refresh(&self.recipe, self.compute, (params.values(), params.version()), None);
        snapshot.version = params.version();
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *spare = Some(std::mem::replace(&mut *current, next));
    }

    pub(super) fn load(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}
