//! A minibatch: samples of a rollout in a random order, side by side as a network reads them.

use super::rollout::{ActionColumn, Rollout, Shape};
use super::shuffle::Shuffle;
use operant_device::{CpuPool, prefetch};

/// In which order samples are taken.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// One by one, or a few neighbouring envs of one step together: [`Order::block`].
    Samples(Shuffle),
    /// All T steps of an env together: an order of envs.
    Sequences(Shuffle),
}

/// Blocks of a minibatch that make it as good as one of single samples.
const LEAST_BLOCKS: usize = 256;
/// Most envs of a block: with eight, a minibatch reads whole cache lines.
const MOST_BLOCK: usize = 8;

impl Order {
    /// How many neighbouring envs of one step are taken together. They are independent of each other, so a large
    /// minibatch loses nothing, and reads a rollout in a fraction of the time; a small one takes samples one by one.
    pub fn block(shape: &Shape, batch: usize) -> usize {
        let fits = |block: &usize| {
            batch >= LEAST_BLOCKS * block && shape.envs.is_multiple_of(*block) && batch.is_multiple_of(*block)
        };
        [MOST_BLOCK, MOST_BLOCK / 2, MOST_BLOCK / 4].into_iter().find(fits).unwrap_or(1)
    }

    /// A random order of the samples of a rollout for minibatches of a size: number (`round`, `turn`) of a seed.
    pub fn samples(shape: &Shape, batch: usize, seed: u64, round: u32, turn: u32) -> Self {
        let blocks = shape.steps * shape.envs / Self::block(shape, batch);
        Self::Samples(Shuffle::new(blocks, seed, round, turn))
    }

    /// A random order of envs.
    pub fn sequences(shape: &Shape, seed: u64, round: u32, turn: u32) -> Self {
        Self::Sequences(Shuffle::new(shape.envs, seed, round, turn))
    }
}

/// Blocks that are asked for before they are copied.
const AHEAD: usize = 8;

/// Most threads that gather together.
const MAX_PARTS: usize = 16;
/// Samples that are worth a thread.
const PART_SAMPLES: usize = 1024;

/// Columns of B samples.
#[derive(Clone, Debug)]
pub struct Batch {
    /// `[B, O]`
    pub obs: Vec<f32>,
    /// `[B, A]`
    pub actions: ActionColumn,
    /// `[B]`
    pub log_prob: Vec<f32>,
    /// `[B]`
    pub advantage: Vec<f32>,
    /// `[B]`
    pub returns: Vec<f32>,
    /// `[B]`
    pub value: Vec<f32>,
    /// `[B, choices]` 1 where an action is legal.
    pub legal: Vec<f32>,
}

/// Some rows of a batch.
struct Part<'a> {
    first: usize,
    obs: &'a mut [f32],
    choices: &'a mut [i32],
    numbers: &'a mut [f32],
    log_prob: &'a mut [f32],
    advantage: &'a mut [f32],
    returns: &'a mut [f32],
    value: &'a mut [f32],
    legal: &'a mut [f32],
}

fn front<'a, T>(slice: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (head, tail) = std::mem::take(slice).split_at_mut(count);
    *slice = tail;
    head
}

impl Batch {
    /// Room for `len` samples of rollouts of this shape.
    pub fn new(shape: &Shape, len: usize) -> Self {
        Self {
            obs: vec![0.0; len * shape.obs],
            actions: ActionColumn::new(shape.continuous, len * shape.dims),
            log_prob: vec![0.0; len],
            advantage: vec![0.0; len],
            returns: vec![0.0; len],
            value: vec![0.0; len],
            legal: vec![0.0; len * shape.choices],
        }
    }

    /// B.
    pub fn len(&self) -> usize {
        self.log_prob.len()
    }

    /// Whether there is room for none.
    pub fn is_empty(&self) -> bool {
        self.log_prob.is_empty()
    }

    /// Takes the samples at places `first..first + B` of an order.
    pub fn gather(&mut self, rollout: &Rollout, order: &Order, first: usize, pool: &CpuPool) {
        let shape = rollout.shape;
        let len = self.len();
        let parts = pool.threads().min(MAX_PARTS).min(len / PART_SAMPLES).max(1);
        let block = Order::block(&shape, len);
        let (mut choices, mut numbers): (&mut [i32], &mut [f32]) = match &mut self.actions {
            ActionColumn::Choices(choices) => (choices, &mut []),
            ActionColumn::Numbers(numbers) => (&mut [], numbers),
        };
        let (mut obs, mut legal) = (&mut self.obs[..], &mut self.legal[..]);
        let (mut log_prob, mut advantage) = (&mut self.log_prob[..], &mut self.advantage[..]);
        let (mut returns, mut value) = (&mut self.returns[..], &mut self.value[..]);
        let mut taken = 0;
        let mut work: [Option<Part>; MAX_PARTS] = std::array::from_fn(|i| {
            let count = if i < parts { len / block * (i + 1) / parts * block - taken } else { 0 };
            let part = Part {
                first: first + taken,
                obs: front(&mut obs, count * shape.obs),
                choices: front(&mut choices, if shape.continuous { 0 } else { count * shape.dims }),
                numbers: front(&mut numbers, if shape.continuous { count * shape.dims } else { 0 }),
                log_prob: front(&mut log_prob, count),
                advantage: front(&mut advantage, count),
                returns: front(&mut returns, count),
                value: front(&mut value, count),
                legal: front(&mut legal, count * shape.choices),
            };
            taken += count;
            (count > 0).then_some(part)
        });
        pool.for_each_mut(&mut work[..parts], |_, part| {
            if let Some(part) = part {
                part.gather(rollout, order, block);
            }
        });
    }

    /// For an order of sequences: flags `[B/T, T]`, 1 where an episode begins, and the state `[B/T, H]` of each env before the
    /// rollout, from `[N, H]`.
    pub fn gather_memory(
        rollout: &Rollout,
        order: &Shuffle,
        first: usize,
        resets: &mut [f32],
        states: &mut [(&[f32], &mut [f32])],
    ) {
        let Shape { steps, envs, .. } = rollout.shape;
        for (i, resets) in resets.chunks_exact_mut(steps).enumerate() {
            let env = order.at(first / steps + i);
            resets[0] = 0.0;
            for (t, reset) in resets.iter_mut().enumerate().skip(1) {
                let before = (t - 1) * envs + env;
                *reset = f32::from(rollout.terminated[before] | rollout.truncated[before]);
            }
            for (from, to) in states.iter_mut() {
                let size = from.len() / envs;
                to[i * size..][..size].copy_from_slice(&from[env * size..][..size]);
            }
        }
    }

    /// Makes advantages have mean 0 and standard deviation 1, or less where it was less than `least`.
    pub fn normalise_advantage(&mut self, least: f64) {
        let len = self.len() as f64;
        let mean = sum(&self.advantage, |x| x) / len;
        // PyTorch's std, with one degree of freedom less.
        let variance = sum(&self.advantage, |x| (x - mean) * (x - mean)) / (len - 1.0).max(1.0);
        let (shift, factor) = (mean as f32, (1.0 / (variance.sqrt().max(least) + 1e-8)) as f32);
        self.advantage.iter_mut().for_each(|x| *x = (*x - shift) * factor);
    }
}

/// Σ f(x) in a fixed order that fills registers.
fn sum(x: &[f32], f: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0.0; 8];
    let (whole, rest) = x.as_chunks::<8>();
    for chunk in whole {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &x)| *lane += f(f64::from(x)));
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&x| f(f64::from(x))).sum::<f64>()
}

impl Part<'_> {
    fn gather(&mut self, rollout: &Rollout, order: &Order, block: usize) {
        let Shape { steps, envs, .. } = rollout.shape;
        match order {
            Order::Samples(order) if block == MOST_BLOCK => {
                let (first, blocks) = (self.first / MOST_BLOCK, self.log_prob.len() / MOST_BLOCK);
                let mut coming = [0; AHEAD];
                for number in 0..blocks + AHEAD {
                    let slot = &mut coming[number % AHEAD];
                    let from = *slot;
                    if number < blocks {
                        *slot = order.at(first + number) * MOST_BLOCK;
                        fetch(rollout, *slot);
                    }
                    if number >= AHEAD {
                        self.copy::<MOST_BLOCK>(rollout, from, (number - AHEAD) * MOST_BLOCK);
                    }
                }
            }
            Order::Samples(order) => {
                for i in (0..self.log_prob.len()).step_by(block) {
                    let from = order.at((self.first + i) / block) * block;
                    (0..block).for_each(|k| self.copy::<1>(rollout, from + k, i + k));
                }
            }
            Order::Sequences(order) => {
                for i in 0..self.log_prob.len() {
                    let place = self.first + i;
                    self.copy::<1>(rollout, place % steps * envs + order.at(place / steps), i);
                }
            }
        }
    }

    /// Copies `COUNT` neighbouring samples.
    #[inline(always)]
    fn copy<const COUNT: usize>(&mut self, rollout: &Rollout, from: usize, to: usize) {
        let Shape { obs, dims, choices, .. } = rollout.shape;
        copy_row(&mut self.obs[to * obs..][..COUNT * obs], &rollout.obs[from * obs..][..COUNT * obs]);
        match &rollout.actions {
            ActionColumn::Choices(actions) => {
                copy_row(&mut self.choices[to * dims..][..COUNT * dims], &actions[from * dims..][..COUNT * dims]);
            }
            ActionColumn::Numbers(actions) => {
                copy_row(&mut self.numbers[to * dims..][..COUNT * dims], &actions[from * dims..][..COUNT * dims]);
            }
        }
        self.log_prob[to..][..COUNT].copy_from_slice(&rollout.log_prob[from..][..COUNT]);
        self.advantage[to..][..COUNT].copy_from_slice(&rollout.advantage[from..][..COUNT]);
        self.returns[to..][..COUNT].copy_from_slice(&rollout.returns[from..][..COUNT]);
        self.value[to..][..COUNT].copy_from_slice(&rollout.value[from..][..COUNT]);
        let legal = &rollout.legal[from * choices..][..COUNT * choices];
        for (to, &from) in self.legal[to * choices..][..COUNT * choices].iter_mut().zip(legal) {
            *to = f32::from(from);
        }
    }
}

/// Asks for a block's memory before it is copied: it lies in a place that the CPU can't foresee.
#[inline(always)]
fn fetch(rollout: &Rollout, from: usize) {
    let Shape { obs, dims, .. } = rollout.shape;
    prefetch(&rollout.obs[from * obs..][..MOST_BLOCK * obs]);
    match &rollout.actions {
        ActionColumn::Choices(actions) => prefetch(&actions[from * dims..][..MOST_BLOCK * dims]),
        ActionColumn::Numbers(actions) => prefetch(&actions[from * dims..][..MOST_BLOCK * dims]),
    }
    for column in [&rollout.log_prob, &rollout.advantage, &rollout.returns, &rollout.value] {
        prefetch(&column[from..][..MOST_BLOCK]);
    }
}

/// Rows are a few numbers: a loop is faster than a call that copies.
#[inline(always)]
fn copy_row<T: Copy>(to: &mut [T], from: &[T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(continuous: bool, envs: usize) -> Rollout {
        let shape = Shape { steps: 100, envs, obs: 3, dims: 2, continuous, choices: 4 };
        let mut rollout = Rollout::new(shape);
        rollout.obs.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
        match &mut rollout.actions {
            ActionColumn::Choices(a) => a.iter_mut().enumerate().for_each(|(i, x)| *x = i as i32),
            ActionColumn::Numbers(a) => a.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32),
        }
        for (i, x) in rollout.legal.iter_mut().enumerate() {
            *x = u8::from(i % 3 == 0);
        }
        for i in 0..rollout.samples() {
            let x = i as f32;
            (rollout.log_prob[i], rollout.advantage[i]) = (x + 0.1, x + 0.2);
            (rollout.returns[i], rollout.value[i]) = (x + 0.3, x + 0.4);
        }
        rollout
    }

    #[test]
    fn samples_stay_together_for_any_number_of_threads() {
        for (continuous, envs, size) in [(false, 50, 2500), (true, 50, 2500), (false, 64, 3200), (true, 24, 480)] {
            let rollout = numbered(continuous, envs);
            let block = Order::block(&rollout.shape, size);
            assert_eq!(
                block,
                match envs {
                    64 => 8,
                    50 => 2,
                    _ => 1,
                }
            );
            let order = Order::samples(&rollout.shape, size, 1, 2, 3);
            let Order::Samples(shuffle) = order else { unreachable!() };
            let gathered = [1, 2, 3].map(|threads| {
                let mut batch = Batch::new(&rollout.shape, size);
                batch.gather(&rollout, &order, size, &CpuPool::new(threads));
                batch
            });
            for batch in &gathered {
                for i in 0..size {
                    let from = shuffle.at((size + i) / block) * block + i % block;
                    let x = from as f32;
                    assert_eq!(batch.obs[3 * i..3 * i + 3], [3.0 * x, 3.0 * x + 1.0, 3.0 * x + 2.0]);
                    match &batch.actions {
                        ActionColumn::Choices(a) => {
                            assert_eq!(a[2 * i..2 * i + 2], [2 * from as i32, 2 * from as i32 + 1])
                        }
                        ActionColumn::Numbers(a) => assert_eq!(a[2 * i..2 * i + 2], [2.0 * x, 2.0 * x + 1.0]),
                    }
                    let one = [batch.log_prob[i], batch.advantage[i], batch.returns[i], batch.value[i]];
                    assert_eq!(one, [x + 0.1, x + 0.2, x + 0.3, x + 0.4]);
                    let legal: [f32; 4] =
                        std::array::from_fn(|j| f32::from(u8::from((4 * from + j).is_multiple_of(3))));
                    assert_eq!(batch.legal[4 * i..4 * i + 4], legal);
                }
            }
        }
    }

    #[test]
    fn sequences_keep_their_order_and_their_state() {
        let mut rollout = numbered(false, 50);
        (rollout.terminated[3 * 50 + 7], rollout.truncated[9 * 50 + 7]) = (1, 1);
        let shuffle = Shuffle::new(50, 4, 5, 6);
        let mut batch = Batch::new(&rollout.shape, 1000);
        batch.gather(&rollout, &Order::Sequences(shuffle), 2000, &CpuPool::new(1));
        let states: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let (mut resets, mut gathered) = (vec![0.0; 1000], vec![0.0; 20]);
        Batch::gather_memory(&rollout, &shuffle, 2000, &mut resets, &mut [(&states, &mut gathered)]);
        for i in 0..10 {
            let env = shuffle.at(20 + i);
            assert_eq!(gathered[2 * i..2 * i + 2], [2.0 * env as f32, 2.0 * env as f32 + 1.0]);
            for t in 0..100 {
                assert_eq!(batch.value[i * 100 + t], (t * 50 + env) as f32 + 0.4);
                let began = env == 7 && (t == 4 || t == 10);
                assert_eq!(resets[i * 100 + t], f32::from(u8::from(began)), "env {env} step {t}");
            }
        }
        assert!((0..50).any(|place| shuffle.at(place) == 7));
    }

    #[test]
    fn advantages_are_normalised_as_pytorch_does() {
        let shape = Shape { steps: 1, envs: 1, obs: 1, dims: 1, continuous: false, choices: 0 };
        let mut batch = Batch::new(&shape, 11);
        batch.advantage.iter_mut().enumerate().for_each(|(i, x)| *x = (i * i) as f32);
        batch.normalise_advantage(0.0);
        // (x − x.mean()) / (x.std() + 1e-8) of squares of 0..=10: mean 35, std 34.4354…
        assert!((batch.advantage[0] + 35.0 / 34.435_447).abs() < 1e-5, "{:?}", batch.advantage);
        assert!((batch.advantage[10] - 65.0 / 34.435_447).abs() < 1e-5);
        // Of a spread of 1 a tenth is left where 10 is the least that it is divided by; the mean goes all the same.
        batch.normalise_advantage(10.0);
        assert!((batch.advantage[10] - 6.5 / 34.435_447).abs() < 1e-5, "{:?}", batch.advantage);
        batch.advantage.iter_mut().for_each(|x| *x += 3.0);
        batch.normalise_advantage(0.05);
        assert!((batch.advantage[10] - 65.0 / 34.435_447).abs() < 1e-4, "{:?}", batch.advantage);
    }
}
