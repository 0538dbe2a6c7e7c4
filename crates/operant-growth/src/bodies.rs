//! The networks of episodes and the samples of their epochs. [`Apart`] has them on the CPU, each with plans of its own; `Together`
//! trains all of them side by side on a GPU.

use super::augment::Moved;
use super::episode::Frame;
use super::task::Samples;
use operant_base::Result;
use operant_lanes::rng::HostRng;
use operant_nn::grow::{Grown, Score, Seed, Topology, Trained, Weights};
use std::sync::Arc;

/// Networks, each in its place: what episodes do to them, and what they ask of all at once.
pub trait Bodies {
    /// A new host in place of what was there; the number draws its first weights.
    fn renew(&mut self, place: usize, number: u64) -> Result<()>;
    /// A network as it was: its seeds, α, weights and the weights that were kept.
    fn restore(&mut self, place: usize, topology: &Topology, alphas: &[f32], saved: &Saved) -> Result<()>;
    /// Puts a seed into a slot; the number draws its first weights.
    fn germinate(&mut self, place: usize, slot: usize, seed: Seed, number: u64) -> Result<()>;
    /// Takes the seed out of a slot.
    fn prune(&mut self, place: usize, slot: usize) -> Result<()>;
    /// Blends a slot's seed in another way, or lets gradients through its input.
    fn reshape(&mut self, place: usize, slot: usize, seed: Seed) -> Result<()>;
    /// Sets the α of a slot.
    fn set_alpha(&mut self, place: usize, slot: usize, alpha: f32);
    /// One epoch of the network of each lesson, in the order of lessons. Networks without one may have changed too: they are to begin anew.
    fn train(&mut self, lessons: &mut [Lesson]) -> Result<Vec<Trained>>;
    /// Loss and accuracy over the validation samples of networks with these α.
    fn score(&mut self, asked: &[(usize, Vec<f32>)]) -> Result<Vec<Score>>;
    /// Root of the mean square of every network's last gradient: of the host, then of each slot's seed (0 where there is none).
    fn gradient_sizes(&mut self) -> Result<Vec<Vec<f32>>>;
    /// Keeps the weights of these places as the last good ones.
    fn keep(&mut self, places: &[usize]) -> Result<()>;
    /// Takes back what the last good weights have of a network's tensors; others stay as they are.
    fn roll_back(&mut self, place: usize) -> Result<()>;
    /// All tensors of a place.
    fn saved(&self, place: usize) -> Result<Saved>;
    /// Takes what `weights` has of a network's tensors; others stay as they are.
    fn take(&mut self, place: usize, weights: &Weights) -> Result<()>;
}

/// Tensors of a network: as they are, and the last good ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// As they are.
    pub now: Weights,
    /// The last good ones.
    pub kept: Weights,
}

/// The samples of one epoch of one network. Everything random about them is a function of the episode's seed and the epoch.
#[derive(Debug)]
pub struct Lesson {
    /// Of which network.
    pub place: usize,
    /// The episode's seed and the epoch.
    pub drawn_by: (u64, u32),
    frame: Arc<Frame>,
    rng: HostRng,
}

impl Lesson {
    pub(super) fn new(place: usize, frame: &Arc<Frame>, seed: u64, epoch: u32) -> Self {
        Self { place, drawn_by: (seed, epoch), frame: Arc::clone(frame), rng: HostRng::new(seed, 0, epoch, 0) }
    }

    /// Numbers of the training samples in the order of the epoch. Asked once, before the first batch.
    pub fn order(&mut self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.frame.task.train_count() as u32).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.rng.below(i as u32 + 1) as usize);
        }
        order
    }

    /// Puts the samples of the next numbers of the order into `to`: new ones if the rules say so, moved and turned if they say that.
    pub fn batch(&mut self, numbers: &[u32], to: &mut Samples) {
        let (task, rules) = (&self.frame.task, &self.frame.rules);
        to.images.clear();
        to.targets.clear();
        if !rules.augment {
            return task.batch(numbers, rules.fresh, &mut self.rng, to);
        }
        let (mut one, (seed, epoch)) = (Samples::default(), self.drawn_by);
        for number in numbers {
            one.images.clear();
            task.batch(std::slice::from_ref(number), rules.fresh, &mut self.rng, &mut one);
            Moved::draw(seed, epoch, *number).put(task.image, &one.images, &mut to.images);
        }
        to.targets.append(&mut one.targets);
    }
}

/// Networks on the CPU, one after another.
#[derive(Debug)]
pub struct Apart {
    frame: Arc<Frame>,
    networks: Vec<(Grown, Weights)>,
    /// Samples of a minibatch, gathered.
    batch: Samples,
}

impl Clone for Apart {
    /// Plans the networks anew.
    fn clone(&self) -> Self {
        let again = |(network, kept): &(Grown, Weights)| {
            let mut other = self.grown(network.topology().clone(), 0).expect("a network that was planned before");
            other.take(&network.weights()).expect("tensors of the same names");
            network.alphas().iter().enumerate().for_each(|(slot, alpha)| other.set_alpha(slot, *alpha));
            (other, kept.clone())
        };
        Self {
            frame: Arc::clone(&self.frame),
            networks: self.networks.iter().map(again).collect(),
            batch: Samples::default(),
        }
    }
}

impl Apart {
    /// So many hosts.
    pub fn new(frame: &Arc<Frame>, count: usize) -> Result<Self> {
        let mut apart = Self { frame: Arc::clone(frame), networks: Vec::new(), batch: Samples::default() };
        for _ in 0..count {
            let network = apart.grown(frame.bare(), 0)?;
            let kept = network.weights();
            apart.networks.push((network, kept));
        }
        Ok(apart)
    }

    fn grown(&self, topology: Topology, number: u64) -> Result<Grown> {
        Grown::new(topology, self.frame.rules.training, number)
    }

    /// A network.
    pub fn network(&self, place: usize) -> &Grown {
        &self.networks[place].0
    }
}

impl Bodies for Apart {
    fn renew(&mut self, place: usize, number: u64) -> Result<()> {
        self.networks[place].0 = self.grown(self.frame.bare(), number)?;
        Ok(())
    }

    fn restore(&mut self, place: usize, topology: &Topology, alphas: &[f32], saved: &Saved) -> Result<()> {
        let mut network = self.grown(topology.clone(), 0)?;
        network.take(&saved.now)?;
        alphas.iter().enumerate().for_each(|(slot, alpha)| network.set_alpha(slot, *alpha));
        self.networks[place] = (network, saved.kept.clone());
        Ok(())
    }

    fn germinate(&mut self, place: usize, slot: usize, seed: Seed, number: u64) -> Result<()> {
        self.networks[place].0.germinate(slot, seed, number)
    }

    fn prune(&mut self, place: usize, slot: usize) -> Result<()> {
        self.networks[place].0.prune(slot)
    }

    fn reshape(&mut self, place: usize, slot: usize, seed: Seed) -> Result<()> {
        self.networks[place].0.reshape(slot, seed)
    }

    fn set_alpha(&mut self, place: usize, slot: usize, alpha: f32) {
        self.networks[place].0.set_alpha(slot, alpha);
    }

    fn train(&mut self, lessons: &mut [Lesson]) -> Result<Vec<Trained>> {
        let mut found = Vec::new();
        for lesson in lessons {
            let order = lesson.order();
            let (mut sum, mut finite) = (0.0, true);
            for numbers in order.chunks(self.frame.rules.training.batch) {
                lesson.batch(numbers, &mut self.batch);
                let network = &mut self.networks[lesson.place].0;
                let (loss, fine) = network.train(&self.batch.images, &self.batch.targets);
                finite &= fine;
                sum += if loss.is_finite() { loss * numbers.len() as f32 } else { 0.0 };
            }
            found.push(Trained { loss: sum / order.len().max(1) as f32, finite });
        }
        Ok(found)
    }

    fn score(&mut self, asked: &[(usize, Vec<f32>)]) -> Result<Vec<Score>> {
        let Samples { images, targets } = &self.frame.task.validation;
        Ok(asked.iter().map(|(place, alphas)| self.networks[*place].0.score(images, targets, alphas)).collect())
    }

    fn gradient_sizes(&mut self) -> Result<Vec<Vec<f32>>> {
        let sizes = |(network, _): &(Grown, Weights)| {
            let (host, slots) = network.gradient_sizes();
            [vec![host], slots].concat()
        };
        Ok(self.networks.iter().map(sizes).collect())
    }

    fn keep(&mut self, places: &[usize]) -> Result<()> {
        for &place in places {
            let (network, kept) = &mut self.networks[place];
            *kept = network.weights();
        }
        Ok(())
    }

    fn roll_back(&mut self, place: usize) -> Result<()> {
        let (network, kept) = &mut self.networks[place];
        network.take(kept)
    }

    fn saved(&self, place: usize) -> Result<Saved> {
        let (network, kept) = &self.networks[place];
        Ok(Saved { now: network.weights(), kept: kept.clone() })
    }

    fn take(&mut self, place: usize, weights: &Weights) -> Result<()> {
        self.networks[place].0.take(weights)
    }
}
