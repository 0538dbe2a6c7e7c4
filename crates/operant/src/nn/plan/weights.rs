//! Packed weights, and their atomic exchange between a learner and its workers.

use super::super::params::Params;
use super::super::real::{Compute, PackPart, PackSet, PackedMut, Real};
use super::build::{Place, Recipe};
use crate::device::Aligned;
use std::sync::{Arc, PoisonError, RwLock};

/// The packed matrices of all nodes.
#[derive(Debug)]
pub(super) struct Packs<R> {
    real: Aligned<R>,
    half: Aligned<u16>,
    /// For each node, its matrices.
    parts: Vec<Vec<PackPart>>,
    /// Room to bring a source into row-major order.
    ordered: Vec<R>,
}

impl<R: Real> Clone for Packs<R> {
    fn clone(&self) -> Self {
        let (real, half) = (self.real.clone(), self.half.clone());
        Self { real, half, parts: self.parts.clone(), ordered: self.ordered.clone() }
    }
}

impl<R: Real> Default for Packs<R> {
    fn default() -> Self {
        Self { real: Aligned::default(), half: Aligned::default(), parts: Vec::new(), ordered: Vec::new() }
    }
}

impl<R: Real> Packs<R> {
    pub(super) fn new(recipe: &Recipe, compute: Compute) -> Self {
        let (mut real, mut half, mut ordered) = (0, 0, 0);
        let mut parts = Vec::new();
        for node in &recipe.nodes {
            let mut list = Vec::new();
            for packing in &node.packings {
                if packing.backward && !recipe.training {
                    list.push(PackPart::default());
                    continue;
                }
                let [o, p, q, n] = packing.lens;
                let len = R::packed_len(compute.or_exact(packing.exact), o, p * q, n);
                list.push(PackPart { real: (real, real + len.real), half: (half, half + len.half) });
                // Whole cache lines, so that panels of 16 stay aligned.
                real = (real + len.real).next_multiple_of(16);
                half = (half + len.half).next_multiple_of(32);
                ordered = ordered.max(o * p * q * n);
            }
            parts.push(list);
        }
        Self { real: Aligned::zeros(real), half: Aligned::zeros(half), parts, ordered: vec![R::default(); ordered] }
    }

    pub(super) fn of(&self, node: usize) -> PackSet<'_, R> {
        PackSet { real: &self.real, half: &self.half, parts: &self.parts[node] }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.real) + size_of_val(&*self.half) + size_of_val(&*self.ordered)
    }

    /// Packs all matrices again.
    pub(super) fn refresh(&mut self, recipe: &Recipe, compute: Compute, values: &[R]) {
        for (node, parts) in recipe.nodes.iter().zip(&self.parts) {
            for (packing, part) in node.packings.iter().zip(parts) {
                if part.real.0 == part.real.1 && part.half.0 == part.half.1 {
                    continue;
                }
                let Some(Place::Param(at)) = node.x[packing.input].map(|buffer| recipe.slots[buffer].place) else {
                    unreachable!("only parameters are packed");
                };
                let source = &values[at..];
                let packing = if packing.words && compute.words() { &packing.in_words() } else { packing };
                let compute = compute.or_exact(packing.exact);
                let [o, p, q, n] = packing.lens;
                let out = PackedMut {
                    real: &mut self.real[part.real.0..part.real.1],
                    half: &mut self.half[part.half.0..part.half.1],
                };
                let [_, row, _, col] = packing.strides;
                if o == 1 && q == 1 && row >= 0 && col >= 0 {
                    R::pack(compute, 1, p, n, &source[packing.offset..], row as usize, col as usize, out);
                    continue;
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
        packs.refresh(&recipe, compute, params.values());
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
        snapshot.packs.refresh(&self.recipe, self.compute, params.values());
        snapshot.version = params.version();
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *spare = Some(std::mem::replace(&mut *current, next));
    }

    pub(super) fn load(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}
