//! What is done to one network of a group: seeds put in and taken out, weights taken out, kept and put back.

use super::super::{Blueprint, Seed, Topology, Weights, belongs, gate, prefix};
use super::{GrownGroup, Kept, has, place};
use crate::Graph;
use crate::ops::Blend;
use operant_base::{Error, Result};
use operant_device::cuda::Buffer;

impl GrownGroup {
    /// Puts a seed into a slot, in place of what was there; `number` draws its first weights. Its α is 0.
    pub fn germinate(&mut self, network: usize, slot: usize, seed: Seed, number: u64) -> Result<()> {
        if seed.blueprint == Blueprint::Noop {
            return Err(Error::Invalid("a seed that does nothing has no kernels; take another blueprint".into()));
        }
        let mut g = Graph::new();
        let x = g.input("x", self.shapes[slot].clone());
        seed.blueprint.add(&mut g, &prefix(slot), x)?;
        let params = g.params(number)?;
        for spec in params.specs() {
            self.begin(network, &placed(&spec.name, slot, seed.blueprint), params.get(&spec.name)?)?;
        }
        if seed.blend == Blend::Gate {
            self.begin_gate(network, slot, number)?;
        }
        self.topologies[network].seeds[slot] = Some(seed);
        self.alphas[network][slot] = 0.0;
        Ok(())
    }

    fn begin_gate(&self, network: usize, slot: usize, number: u64) -> Result<()> {
        let mut g = Graph::new();
        let x = g.input("x", self.shapes[slot].clone());
        gate(&mut g, slot, x)?;
        let params = g.params(number)?;
        params.specs().iter().try_for_each(|spec| self.begin(network, &spec.name, params.get(&spec.name)?))
    }

    /// First values of a tensor.
    fn begin(&self, network: usize, name: &str, values: &[f32]) -> Result<()> {
        let at = network * self.networks.len() + self.layout.spec(name)?.offset;
        self.networks.values().upload_at(at, values)?;
        self.memory.momentum.upload_at(at, &vec![0.0f32; values.len()])
    }

    /// Takes the seed out of a slot.
    pub fn prune(&mut self, network: usize, slot: usize) {
        self.topologies[network].seeds[slot] = None;
        self.alphas[network][slot] = 0.0;
    }

    /// Blends a slot's seed in another way, or lets gradients through its input; its weights and α stay.
    pub fn reshape(&mut self, network: usize, slot: usize, seed: Seed) -> Result<()> {
        let before = self.topologies[network].seeds[slot];
        if before.is_none_or(|before| before.blueprint != seed.blueprint) {
            return Err(Error::Invalid(format!("slot {slot}: wanted a seed of the same blueprint there")));
        }
        if seed.blend == Blend::Gate && !has(before, 1) {
            self.begin_gate(network, slot, 0)?;
        }
        self.topologies[network].seeds[slot] = Some(seed);
        Ok(())
    }

    /// Tensors of a network with these seeds: their names in [`Grown`](crate::grow::Grown) and in the layout here.
    pub(super) fn tensors<'a>(&'a self, seeds: &'a [Option<Seed>]) -> impl Iterator<Item = (String, String)> + 'a {
        self.layout.specs().iter().filter_map(move |spec| {
            let Some(slot) = (0..seeds.len()).find(|slot| belongs(&spec.name, *slot)) else {
                return Some((spec.name.clone(), spec.name.clone()));
            };
            let seed = seeds[slot]?;
            let gated = spec.name.starts_with(&format!("{}.gate.", prefix(slot)));
            if gated {
                return has(Some(seed), 1).then(|| (spec.name.clone(), spec.name.clone()));
            }
            let rest = spec.name.strip_prefix(&place(slot, seed.blueprint))?.strip_prefix('.')?;
            Some((format!("{}.{rest}", prefix(slot)), spec.name.clone()))
        })
    }

    /// All that training changes of a network, as [`Grown`](crate::grow::Grown) has it.
    pub fn weights(&self, network: usize) -> Result<Weights> {
        let from = [self.networks.values(), &self.memory.momentum];
        self.fetch(network, from, &self.topologies[network].seeds, self.steps[network])
    }

    /// The weights of a network that were kept last.
    pub fn kept(&self, network: usize) -> Result<Weights> {
        let kept = self.kept.as_ref().and_then(|kept| Some((kept, kept.of[network].as_ref()?)));
        let Some((kept, (seeds, steps))) = kept else {
            return Err(Error::Invalid(format!("network {network} has no weights that were kept")));
        };
        self.fetch(network, [&kept.values, &kept.momentum], seeds, *steps)
    }

    fn fetch(&self, network: usize, from: [&Buffer<f32>; 2], seeds: &[Option<Seed>], steps: u64) -> Result<Weights> {
        let len = self.networks.len();
        let [mut values, mut momentum] = [vec![0.0f32; len], vec![0.0f32; len]];
        from[0].download(network * len, &mut values)?;
        from[1].download(network * len, &mut momentum)?;
        let mut tensors = Vec::new();
        for (name, here) in self.tensors(seeds) {
            let range = self.layout.spec(&here)?.range();
            tensors.push((name, [values[range.clone()].to_vec(), momentum[range].to_vec(), vec![]]));
        }
        Ok(Weights { tensors, steps })
    }

    /// Keeps the weights of these networks, in place of those kept before.
    pub fn keep(&mut self, networks: &[usize]) -> Result<()> {
        let (groups, len) = (self.count(), self.networks.len());
        if self.kept.is_none() {
            let buffer = || Buffer::new(&self.gpu, groups * len, "weights that are kept", "num_envs");
            self.kept = Some(Kept { values: buffer()?, momentum: buffer()?, of: vec![None; groups] });
        }
        let Some(kept) = &mut self.kept else { return Ok(()) };
        for &network in networks {
            kept.values.copy_part(network * len, self.networks.values(), len)?;
            kept.momentum.copy_part(network * len, &self.memory.momentum, len)?;
            kept.of[network] = Some((self.topologies[network].seeds.clone(), self.steps[network]));
        }
        Ok(())
    }

    /// A new host without seeds in place of a network, and nothing kept of it; the number draws its first weights.
    pub fn renew(&mut self, network: usize, number: u64) -> Result<()> {
        let Topology { host, image, classes, .. } = self.topologies[network];
        let bare = Topology::new(host, image, classes);
        let params = bare.build()?.graph.params(number)?;
        for spec in params.specs() {
            self.begin(network, &spec.name, params.get(&spec.name)?)?;
        }
        self.topologies[network] = bare;
        self.alphas[network].fill(0.0);
        self.steps[network] = 0;
        if let Some(kept) = &mut self.kept {
            kept.of[network] = None;
        }
        Ok(())
    }

    /// A network as it was: its seeds, their α, its weights, and of the weights that were kept those of tensors that it has.
    pub fn restore(
        &mut self,
        network: usize,
        seeds: &[Option<Seed>],
        alphas: &[f32],
        now: &Weights,
        kept: &Weights,
    ) -> Result<()> {
        let missing = |seeds: &[Option<Seed>], weights: &Weights| {
            let mut tensors = self.tensors(seeds);
            tensors.find(|(name, here)| {
                let held = weights.tensors.iter().find(|(known, _)| known == name);
                let wanted = self.layout.spec(here).map_or(0, |spec| spec.count());
                held.is_none_or(|(_, [values, momentum, _])| [values.len(), momentum.len()] != [wanted; 2])
            })
        };
        if let Some((name, _)) = missing(seeds, now) {
            return Err(Error::Saved(format!("saved network has no tensor {name} of this size; load another")));
        }
        let then: Vec<Option<Seed>> = (0..seeds.len())
            .map(|slot| {
                let mut alone = vec![None; seeds.len()];
                alone[slot] = seeds[slot];
                seeds[slot].filter(|_| missing(&alone, kept).is_none())
            })
            .collect();
        for (seeds, weights, keeps) in [(&then[..], kept, true), (seeds, now, false)] {
            self.topologies[network].seeds = seeds.to_vec();
            self.take(network, weights)?;
            if keeps {
                self.keep(&[network])?;
            }
        }
        self.alphas[network].copy_from_slice(alphas);
        Ok(())
    }

    /// Takes what `weights` has of a network's tensors; others stay as they are.
    pub fn take(&mut self, network: usize, weights: &Weights) -> Result<()> {
        for (name, here) in self.tensors(&self.topologies[network].seeds).collect::<Vec<_>>() {
            let Some((_, [values, momentum, _])) = weights.tensors.iter().find(|(known, _)| *known == name) else {
                continue;
            };
            let range = self.layout.spec(&here)?.range();
            if values.len() != range.len() || momentum.len() != range.len() {
                let (got, wanted) = (values.len(), range.len());
                return Err(Error::Invalid(format!("tensor {name} has {got} numbers, wanted {wanted}")));
            }
            let at = network * self.networks.len() + range.start;
            self.networks.values().upload_at(at, values)?;
            self.memory.momentum.upload_at(at, momentum)?;
        }
        self.steps[network] = weights.steps;
        Ok(())
    }
}

/// A tensor's name where all blueprints are, for its name in a slot with this one.
fn placed(name: &str, slot: usize, blueprint: Blueprint) -> String {
    let rest = name.strip_prefix(&prefix(slot)).unwrap_or(name);
    format!("{}{rest}", place(slot, blueprint))
}
