//! Networks of all episodes side by side on a GPU: one group, in which surgery changes numbers and nothing is planned anew.

use super::bodies::{Bodies, Lesson, Saved};
use super::episode::Frame;
use super::task::Samples;
use operant_base::Result;
use operant_device::CpuPool;
use operant_device::cuda::Gpu;
use operant_nn::Precision;
use operant_nn::grow::{self, GrownGroup, Score, Seed, Topology, Trained, Weights};
use std::sync::Arc;

/// As a group takes them.
fn samples(of: &Samples) -> grow::Samples<'_> {
    grow::Samples { images: &of.images, targets: &of.targets }
}

/// What a lesson needs of the CPU, prepared by its threads.
#[derive(Debug, Default)]
struct Prepared {
    order: Vec<u32>,
    samples: Samples,
}

/// Networks in one group.
#[derive(Debug)]
pub struct Together {
    group: GrownGroup,
    pool: Arc<CpuPool>,
    /// Whether samples come from the CPU at every epoch.
    fresh: bool,
    augment: bool,
    prepared: Vec<Prepared>,
}

impl Together {
    /// So many hosts.
    pub fn new(frame: &Frame, gpu: &Arc<Gpu>, pool: &Arc<CpuPool>, precision: Precision, count: usize) -> Result<Self> {
        let (task, rules) = (&frame.task, &frame.rules);
        let fresh = rules.fresh && task.is_synthetic();
        let group = GrownGroup::new(
            gpu,
            &grow::Task {
                host: frame.host,
                image: task.image,
                classes: task.classes,
                train: samples(&task.train),
                validation: samples(&task.validation),
                training: rules.training,
                precision,
                own_samples: fresh,
                augment: rules.augment && !fresh,
            },
            &(0..count as u64).collect::<Vec<_>>(),
        )?;
        let prepared = (0..count).map(|_| Prepared::default()).collect();
        Ok(Self { group, pool: Arc::clone(pool), fresh, augment: rules.augment && !fresh, prepared })
    }
}

impl Bodies for Together {
    fn renew(&mut self, place: usize, number: u64) -> Result<()> {
        self.group.renew(place, number)
    }

    fn restore(&mut self, place: usize, topology: &Topology, alphas: &[f32], saved: &Saved) -> Result<()> {
        self.group.restore(place, &topology.seeds, alphas, &saved.now, &saved.kept)
    }

    fn germinate(&mut self, place: usize, slot: usize, seed: Seed, number: u64) -> Result<()> {
        self.group.germinate(place, slot, seed, number)
    }

    fn prune(&mut self, place: usize, slot: usize) -> Result<()> {
        self.group.prune(place, slot);
        Ok(())
    }

    fn reshape(&mut self, place: usize, slot: usize, seed: Seed) -> Result<()> {
        self.group.reshape(place, slot, seed)
    }

    fn set_alpha(&mut self, place: usize, slot: usize, alpha: f32) {
        self.group.set_alpha(place, slot, alpha);
    }

    fn train(&mut self, lessons: &mut [Lesson]) -> Result<Vec<Trained>> {
        let fresh = self.fresh;
        let mut work: Vec<(&mut Lesson, Prepared)> = Vec::new();
        for lesson in lessons.iter_mut() {
            let prepared = std::mem::take(&mut self.prepared[lesson.place]);
            work.push((lesson, prepared));
        }
        self.pool.for_each_mut(&mut work, |_, (lesson, prepared)| {
            prepared.order = lesson.order();
            if fresh {
                lesson.batch(&prepared.order, &mut prepared.samples);
            }
        });
        let mut drawn_by = vec![(0, 0); self.group.count()];
        let mut places = Vec::new();
        for (lesson, prepared) in work {
            drawn_by[lesson.place] = lesson.drawn_by;
            places.push(lesson.place);
            self.prepared[lesson.place] = prepared;
        }
        let count = self.group.samples();
        let mut orders = vec![0; self.group.count() * count];
        for (order, prepared) in orders.chunks_mut(count).zip(&self.prepared) {
            // Samples of an epoch's own lie in its order; a network without a lesson takes any.
            match prepared.order.len() == count && !fresh {
                true => order.copy_from_slice(&prepared.order),
                false => order.iter_mut().zip(0..).for_each(|(number, i)| *number = i),
            }
        }
        if fresh {
            for &place in &places {
                self.group.set_samples(place, &samples(&self.prepared[place].samples))?;
            }
        }
        if self.augment {
            self.group.set_draws(&drawn_by)?;
        }
        let trained = self.group.epoch(&orders)?;
        Ok(places.iter().map(|&place| trained[place]).collect())
    }

    fn score(&mut self, asked: &[(usize, Vec<f32>)]) -> Result<Vec<Score>> {
        self.group.score(asked)
    }

    fn gradient_sizes(&mut self) -> Result<Vec<Vec<f32>>> {
        self.group.gradient_sizes()
    }

    fn keep(&mut self, places: &[usize]) -> Result<()> {
        self.group.keep(places)
    }

    fn roll_back(&mut self, place: usize) -> Result<()> {
        let kept = self.group.kept(place)?;
        self.group.take(place, &kept)
    }

    fn saved(&self, place: usize) -> Result<Saved> {
        Ok(Saved { now: self.group.weights(place)?, kept: self.group.kept(place)? })
    }

    fn take(&mut self, place: usize, weights: &Weights) -> Result<()> {
        self.group.take(place, weights)
    }
}
