//! What happened in the last steps of N envs, to be learned from again and again: uniformly or by priority, in windows
//! of n steps.
//!
//! Each env has a ring of rows in the order of its steps. A row holds the observation before a step, the action and what
//! came of it; the observation after it is the next row's. A truncated episode is followed by a row that holds its last
//! observation alone; where actions are masked, of whose legal ones there nothing is known, windows end one step earlier
//! instead. Windows overlap and are cut by the end of an episode, and before actions that are marked as not the best known.
//! Invariant: a row is ready, that is may be drawn, from when its window is whole until it is overwritten, unless it was
//! marked as never to be. After `new` nothing is allocated but by `save`.

use super::sum_tree::SumTree;
use operant_base::{Error, Result};
use operant_env::{Place, Unfit, first_unfit};
use operant_lanes::rng::HostRng;
use operant_lanes::{Float, Lanes, Scalar};

/// Sets draws of samples apart from other streams of the same seed.
const SAMPLES: u64 = 0x7265_706c_6179_0000;
const MAGIC: &[u8; 8] = b"OPRRPL01";

/// The env ended the episode.
const TERMINATED: u8 = 1;
/// The time limit ended it; its last observation is in the next row.
const TRUNCATED: u8 = 2;
/// The row may be drawn.
const READY: u8 = 4;
/// The time limit ended the episode after this row, and windows end before its action.
const LAST: u8 = 8;
/// The row's action was not the best known.
const EXPLORED: u8 = 16;
/// The row is never drawn.
const UNSEEN: u8 = 32;

/// Sizes of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayShape {
    /// N, envs.
    pub envs: usize,
    /// Rows of each env's ring.
    pub rows: usize,
    /// O, numbers of an observation.
    pub obs: usize,
    /// Entries of an action mask; 0 if every action is always legal.
    pub choices: usize,
    /// Most steps of a window.
    pub n_step: usize,
}

impl ReplayShape {
    /// Rows of all envs.
    pub fn slots(&self) -> usize {
        self.envs * self.rows
    }

    /// Bytes of a replay.
    pub fn bytes(&self) -> u64 {
        // Of a row: observation, action, reward, flags, mask, priority with its sums.
        let row = 4 * (self.obs + 2) + 1 + self.choices + 5;
        (self.envs as u64).saturating_mul(self.rows as u64).saturating_mul(row as u64)
    }

    fn check(&self) -> Result<()> {
        let Self { envs, rows, n_step, .. } = *self;
        if n_step == 0 || rows < n_step + 2 {
            return Err(Error::Invalid(format!(
                "a replay of {rows} rows for each of {envs} envs and windows of {n_step} steps: wanted windows of 1 step or \
                 more and at least two rows more than a window; raise buffer_size"
            )));
        }
        if envs.saturating_mul(rows) >= u32::MAX as usize {
            return Err(Error::Invalid(format!("a replay of {envs} x {rows} rows: wanted fewer than 2^32")));
        }
        Ok(())
    }
}

/// One step of all envs.
#[derive(Clone, Copy, Debug)]
pub struct Experience<'a> {
    /// `[N, O]` before the step.
    pub obs: &'a [f32],
    /// `[N, choices]` of that observation.
    pub legal: &'a [u8],
    /// `[N]`
    pub actions: &'a [i32],
    /// `[N]` whether windows that began earlier end before this action, since it was not the best known; empty if none do.
    pub explored: &'a [bool],
    /// `[N]` whether windows that begin here are never drawn; empty if all are.
    pub unseen: &'a [bool],
    /// `[N]`
    pub reward: &'a [f32],
    /// `[N]`
    pub terminated: &'a [u8],
    /// `[N]`
    pub truncated: &'a [u8],
    /// `[N, O]` last observations of episodes that were truncated; not read elsewhere.
    pub final_obs: &'a [f32],
    /// `[N]` length of an episode that ended in this step; with 0 the step only led to the next episode, and is left out.
    pub episode_length: &'a [i32],
}

/// Which numbers are drawn: number `count` of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleDraws {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the batch.
    pub count: u64,
}

/// B windows side by side as a network reads them.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// `[B, O]` where windows begin.
    pub obs: Vec<f32>,
    /// `[B]` the actions taken there.
    pub actions: Vec<i32>,
    /// `[B]` discounted sum of the rewards of a window.
    pub returns: Vec<f32>,
    /// `[B]` what the value at a window's end counts: γ to the power of its steps, or 0 where the env ended the episode.
    pub discount: Vec<f32>,
    /// `[B, O]` where windows end; where the env ended the episode, some observation.
    pub next_obs: Vec<f32>,
    /// `[B, choices]` of those.
    pub next_legal: Vec<u8>,
    /// `[B]` importance weights, at most 1.
    pub weight: Vec<f32>,
    /// `[B]` where they lie in the replay.
    pub slots: Vec<u32>,
}

impl Samples {
    /// Room for `len` samples.
    pub fn new(shape: &ReplayShape, len: usize) -> Self {
        Self {
            obs: vec![0.0; len * shape.obs],
            actions: vec![0; len],
            returns: vec![0.0; len],
            discount: vec![0.0; len],
            next_obs: vec![0.0; len * shape.obs],
            next_legal: vec![0; len * shape.choices],
            weight: vec![1.0; len],
            slots: vec![0; len],
        }
    }

    /// B.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there is room for none.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }
}

/// Priorities of prioritised replay (Schaul et al., "Prioritized experience replay", arXiv:1511.05952).
#[derive(Clone, Debug, PartialEq)]
struct Priorities {
    alpha: f32,
    /// (|δ| + ε)^α of rows that are ready, else 0.
    tree: SumTree,
    /// What new rows get: the largest so far.
    most: f32,
}

/// `x` to a power, with the same bits on every machine; `x` is more than 0.
fn power(x: f32, exponent: f32) -> f32 {
    let x: <Scalar as Lanes>::F = x.into();
    (x.log() * exponent).exp().get()
}

/// Where an env is in its ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ring {
    /// The row that is written next.
    head: u32,
    /// Rows ever written, at most all.
    filled: u32,
    /// Newest rows whose windows are not whole yet.
    open: u32,
}

/// The last steps of N envs.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    shape: ReplayShape,
    rings: Vec<Ring>,
    /// `[N, rows, O]`
    obs: Vec<f32>,
    /// `[N, rows, choices]`
    legal: Vec<u8>,
    /// `[N, rows]`
    actions: Vec<i32>,
    /// `[N, rows]`
    reward: Vec<f32>,
    /// `[N, rows]` of TERMINATED, TRUNCATED, READY, LAST, EXPLORED, UNSEEN
    flags: Vec<u8>,
    ready: usize,
    priorities: Option<Priorities>,
}

impl Replay {
    /// Room for `shape`. With `alpha`, samples are drawn by their priority to this power, else uniformly.
    pub fn new(shape: ReplayShape, alpha: Option<f32>) -> Result<Self> {
        shape.check()?;
        let slots = shape.slots();
        Ok(Self {
            shape,
            rings: vec![Ring::default(); shape.envs],
            obs: vec![0.0; slots * shape.obs],
            legal: vec![0; slots * shape.choices],
            actions: vec![0; slots],
            reward: vec![0.0; slots],
            flags: vec![0; slots],
            ready: 0,
            priorities: alpha.map(|alpha| Priorities { alpha, tree: SumTree::new(slots), most: 1.0 }),
        })
    }

    /// Sizes.
    pub fn shape(&self) -> &ReplayShape {
        &self.shape
    }

    /// Rows that may be drawn.
    pub fn len(&self) -> usize {
        self.ready
    }

    /// Whether nothing may be drawn.
    pub fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// Adds one step of all envs; the oldest rows make room.
    pub fn insert(&mut self, step: Experience<'_>) {
        let ReplayShape { obs, choices, n_step, .. } = self.shape;
        for env in 0..self.shape.envs {
            let (terminated, truncated) = (step.terminated[env] != 0, step.truncated[env] != 0);
            let ended = terminated || truncated;
            if ended && step.episode_length[env] == 0 {
                self.rings[env].open = 0;
                continue;
            }
            let slot = self.claim(env);
            self.obs[slot * obs..][..obs].copy_from_slice(&step.obs[env * obs..][..obs]);
            self.legal[slot * choices..][..choices].copy_from_slice(&step.legal[env * choices..][..choices]);
            (self.actions[slot], self.reward[slot]) = (step.actions[env], step.reward[env]);
            // With this observation the window that began n steps ago is whole.
            if self.rings[env].open as usize == n_step {
                self.set_ready(env, n_step);
                self.rings[env].open -= 1;
            }
            self.rings[env].open += 1;
            if step.explored.get(env) == Some(&true) {
                self.flags[slot] |= EXPLORED;
            }
            if step.unseen.get(env) == Some(&true) {
                self.flags[slot] |= UNSEEN;
            }
            if ended {
                self.flags[slot] |= match (terminated, choices) {
                    (true, _) => TERMINATED,
                    (false, 0) => TRUNCATED,
                    (false, _) => LAST,
                };
                for back in usize::from(self.flags[slot] & LAST != 0)..self.rings[env].open as usize {
                    self.set_ready(env, back);
                }
                self.rings[env].open = 0;
                if self.flags[slot] & TRUNCATED != 0 {
                    let last = self.claim(env);
                    self.obs[last * obs..][..obs].copy_from_slice(&step.final_obs[env * obs..][..obs]);
                    (self.actions[last], self.reward[last]) = (0, 0.0);
                }
            }
        }
    }

    /// Envs were reset in the middle of episodes: windows that are not whole yet never will be.
    pub fn cut(&mut self) {
        self.rings.iter_mut().for_each(|ring| ring.open = 0);
    }

    /// The first number it holds that nothing can be learned from, after so many steps of each env.
    pub fn unfit(&self, steps: u64) -> Option<Unfit> {
        let of_envs = (0..self.shape.envs).filter_map(|env| self.unfit_of(env, steps));
        of_envs.reduce(|first, other| first.earlier(Some(other)))
    }

    /// That of one env. Its rows are walked from the newest back, since only the newest row's step is known.
    fn unfit_of(&self, env: usize, steps: u64) -> Option<Unfit> {
        let ReplayShape { rows, obs, .. } = self.shape;
        let Ring { head, filled, .. } = self.rings[env];
        let slot = |back: usize| env * rows + (head as usize + 2 * rows - 1 - back) % rows;
        let (mut step, mut found) = (steps, None);
        for back in 0..filled as usize {
            let at = slot(back);
            // The row behind one that was truncated holds that episode's last observation and no step.
            let is_last = back + 1 < filled as usize && self.flags[slot(back + 1)] & TRUNCATED != 0;
            let seen = &self.obs[at * obs..][..obs];
            let observed = first_unfit(seen).map(|j| Unfit {
                step: if is_last { step } else { step.saturating_sub(1) },
                env,
                place: if is_last { Place::LastObservation(j) } else { Place::Observation(j) },
                value: seen[j],
            });
            let paid = Unfit::in_rewards(&self.reward[at..=at], step).map(|unfit| Unfit { env, ..unfit });
            for unfit in [paid, observed].into_iter().flatten() {
                found = Some(unfit.earlier(found));
            }
            step = step.saturating_sub(u64::from(!is_last));
        }
        found
    }

    /// The next row of an env's ring, forgotten and empty.
    fn claim(&mut self, env: usize) -> usize {
        let rows = self.shape.rows;
        let ring = &mut self.rings[env];
        let slot = env * rows + ring.head as usize;
        ring.head = if ring.head as usize + 1 == rows { 0 } else { ring.head + 1 };
        ring.filled = (ring.filled + 1).min(rows as u32);
        if self.flags[slot] & READY != 0 {
            self.ready -= 1;
            if let Some(priorities) = &mut self.priorities {
                priorities.tree.set(slot, 0.0);
            }
        }
        self.flags[slot] = 0;
        slot
    }

    /// Marks the row `back` rows before the newest as ready.
    fn set_ready(&mut self, env: usize, back: usize) {
        let rows = self.shape.rows;
        let slot = env * rows + (self.rings[env].head as usize + 2 * rows - 1 - back) % rows;
        if self.flags[slot] & UNSEEN != 0 {
            return;
        }
        self.flags[slot] |= READY;
        self.ready += 1;
        if let Some(priorities) = &mut self.priorities {
            priorities.tree.set(slot, priorities.most);
        }
    }

    /// Draws as many samples as `out` has room for, with replacement. Rewards are discounted by `gamma`; `beta` is how
    /// much of the bias of priorities the weights take back, 1 for all. Panics if nothing may be drawn.
    pub fn sample(&self, draws: SampleDraws, gamma: f32, beta: f32, out: &mut Samples) {
        assert!(self.ready > 0, "a replay from which something may be drawn");
        let len = out.len();
        // Rings are filled from their first row on.
        let span = self.rings.iter().map(|ring| ring.filled).max().unwrap_or(1);
        let total = self.priorities.as_ref().map_or(0.0, |priorities| priorities.tree.total());
        for k in 0..len {
            let (high, low) = ((draws.count >> 32) as u32, draws.count as u32);
            let mut rng = HostRng::new(draws.seed ^ SAMPLES, k as u32, high, low);
            let slot = match &self.priorities {
                // One draw from each of B equal shares of the total.
                Some(priorities) => {
                    let unit = (f64::from(rng.word()) + 0.5) / 4_294_967_296.0;
                    priorities.tree.find((k as f64 + unit) / len as f64 * total)
                }
                None => loop {
                    let drawn = rng.below(self.shape.envs as u32 * span);
                    let slot = (drawn / span) as usize * self.shape.rows + (drawn % span) as usize;
                    if self.flags[slot] & READY != 0 {
                        break slot;
                    }
                },
            };
            self.read(slot, k, gamma, out);
        }
        self.weigh(beta, total, out);
    }

    /// Importance weights (1 / (rows · P))^β over the largest of the batch.
    fn weigh(&self, beta: f32, total: f64, out: &mut Samples) {
        let Some(priorities) = &self.priorities else {
            out.weight.fill(1.0);
            return;
        };
        let mut most = 0.0_f32;
        for (weight, &slot) in out.weight.iter_mut().zip(&out.slots) {
            let share = f64::from(priorities.tree.get(slot as usize)) / total * self.ready as f64;
            *weight = power(share as f32, -beta);
            most = most.max(*weight);
        }
        out.weight.iter_mut().for_each(|weight| *weight /= most);
    }

    /// Sample `k` of a batch: the window that begins at a slot.
    fn read(&self, slot: usize, k: usize, gamma: f32, out: &mut Samples) {
        let ReplayShape { rows, obs, choices, n_step, .. } = self.shape;
        let first = slot / rows * rows;
        let next = |at: usize| if at + 1 == first + rows { first } else { at + 1 };
        let (mut at, mut total, mut discount, mut steps) = (slot, 0.0, 1.0, 0_usize);
        let last = loop {
            total += discount * self.reward[at];
            discount *= gamma;
            steps += 1;
            if self.flags[at] & TERMINATED != 0 {
                discount = 0.0;
                break slot;
            }
            let ends = self.flags[at] & TRUNCATED != 0 || steps == n_step;
            at = next(at);
            if ends || self.flags[at] & (LAST | EXPLORED) != 0 {
                break at;
            }
        };
        out.obs[k * obs..][..obs].copy_from_slice(&self.obs[slot * obs..][..obs]);
        out.next_obs[k * obs..][..obs].copy_from_slice(&self.obs[last * obs..][..obs]);
        out.next_legal[k * choices..][..choices].copy_from_slice(&self.legal[last * choices..][..choices]);
        out.actions[k] = self.actions[slot];
        (out.returns[k], out.discount[k]) = (total, discount);
        out.slots[k] = slot as u32;
    }

    /// Gives samples that were just drawn priorities by their errors; `eps` keeps those without any in the game.
    pub fn prioritise(&mut self, slots: &[u32], errors: &[f32], eps: f32) {
        let Some(priorities) = &mut self.priorities else { return };
        for (&slot, &error) in slots.iter().zip(errors) {
            let weight = power(error.abs() + eps, priorities.alpha);
            priorities.most = priorities.most.max(weight);
            priorities.tree.set(slot as usize, weight);
        }
    }

    /// Everything needed to go on exactly from here.
    pub fn save(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let ReplayShape { envs, rows, obs, choices, n_step } = self.shape;
        for size in [envs, rows, obs, choices, n_step, usize::from(self.priorities.is_some())] {
            bytes.extend((size as u64).to_le_bytes());
        }
        for Ring { head, filled, open } in &self.rings {
            [head, filled, open].into_iter().for_each(|x| bytes.extend(x.to_le_bytes()));
        }
        let filled = |width: usize| {
            let rings = self.rings.iter().enumerate();
            rings.map(move |(env, ring)| env * rows * width..(env * rows + ring.filled as usize) * width)
        };
        pack_numbers(filled(obs).flat_map(|range| &self.obs[range]).copied(), &mut bytes);
        pack_numbers(filled(1).flat_map(|range| &self.reward[range]).copied(), &mut bytes);
        filled(choices).for_each(|range| bytes.extend(&self.legal[range]));
        filled(1).for_each(|range| bytes.extend(&self.flags[range]));
        filled(1).for_each(|range| self.actions[range].iter().for_each(|x| bytes.extend(x.to_le_bytes())));
        if let Some(priorities) = &self.priorities {
            bytes.extend(priorities.most.to_le_bytes());
            let weights = priorities.tree.weights();
            filled(1).for_each(|range| weights[range].iter().for_each(|x| bytes.extend(x.to_le_bytes())));
        }
        bytes
    }

    /// Goes on from [`Replay::save`]d bytes of the same shape. On an error the replay must not be used.
    pub fn load(&mut self, bytes: &[u8]) -> Result<()> {
        let refused = |what: &str| Error::Saved(format!("saved replay {what}; take a checkpoint of the same settings"));
        let mut reader = Reader { bytes };
        if reader.take(MAGIC.len()) != Some(MAGIC) {
            return Err(refused("is not one"));
        }
        let ReplayShape { envs, rows, obs, choices, n_step } = self.shape;
        let wanted = [envs, rows, obs, choices, n_step, usize::from(self.priorities.is_some())];
        for (size, name) in wanted.into_iter().zip(["envs", "rows", "obs", "choices", "n_step", "priorities"]) {
            let got = reader.word().zip(reader.word()).map(|(low, high)| u64::from(high) << 32 | u64::from(low));
            if got != Some(size as u64) {
                return Err(refused(&format!("has {name} {got:?}, wanted {size}")));
            }
        }
        let cut = || refused("is cut short or damaged");
        for ring in &mut self.rings {
            let [head, filled, open] = [(); 3].map(|()| reader.word().unwrap_or(u32::MAX));
            *ring = Ring { head, filled, open };
            if filled as usize > rows || head as usize >= rows || open as usize > n_step || open > filled {
                return Err(cut());
            }
        }
        let rings = &self.rings;
        let filled = |width: usize| {
            let rings = rings.iter().enumerate();
            rings.map(move |(env, ring)| env * rows * width..(env * rows + ring.filled as usize) * width)
        };
        unpack_numbers(&mut reader, filled(obs), &mut self.obs).ok_or_else(cut)?;
        unpack_numbers(&mut reader, filled(1), &mut self.reward).ok_or_else(cut)?;
        for range in filled(choices) {
            let from = reader.take(range.len()).ok_or_else(cut)?;
            self.legal[range].copy_from_slice(from);
        }
        self.flags.fill(0);
        for range in filled(1) {
            let from = reader.take(range.len()).ok_or_else(cut)?;
            self.flags[range].copy_from_slice(from);
        }
        for range in filled(1) {
            for action in &mut self.actions[range] {
                *action = reader.word().ok_or_else(cut)? as i32;
            }
        }
        self.ready = self.flags.iter().filter(|&&flags| flags & READY != 0).count();
        if let Some(priorities) = &mut self.priorities {
            priorities.most = f32::from_bits(reader.word().ok_or_else(cut)?);
            let mut weights = vec![0.0; self.flags.len()];
            for range in filled(1) {
                for weight in &mut weights[range] {
                    *weight = f32::from_bits(reader.word().ok_or_else(cut)?);
                }
            }
            if !weights.iter().chain([&priorities.most]).all(|x| x.is_finite() && *x >= 0.0) {
                return Err(cut());
            }
            priorities.tree.set_all(&weights);
        }
        if reader.bytes.is_empty() { Ok(()) } else { Err(cut()) }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(count)?;
        self.bytes = tail;
        Some(head)
    }

    fn word(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

/// How numbers are written: one-hot observations take a 32nd of the room, whole numbers up to 255 a quarter.
const AS_NUMBERS: u8 = 0;
const AS_BYTES: u8 = 1;
const AS_BITS: u8 = 2;

fn pack_numbers(numbers: impl Iterator<Item = f32> + Clone, bytes: &mut Vec<u8>) {
    let kind = numbers.clone().fold(AS_BITS, |kind, x| {
        let byte = x as u8;
        if f32::from(byte).to_bits() != x.to_bits() { AS_NUMBERS } else { kind.min(2 - u8::from(byte > 1)) }
    });
    bytes.push(kind);
    match kind {
        AS_BITS => {
            let (mut byte, mut count) = (0, 0);
            for x in numbers {
                byte |= (x as u8) << count;
                count += 1;
                if count == 8 {
                    bytes.push(byte);
                    (byte, count) = (0, 0);
                }
            }
            if count > 0 {
                bytes.push(byte);
            }
        }
        AS_BYTES => numbers.for_each(|x| bytes.push(x as u8)),
        _ => numbers.for_each(|x| bytes.extend(x.to_le_bytes())),
    }
}

fn unpack_numbers(
    reader: &mut Reader<'_>,
    ranges: impl Iterator<Item = std::ops::Range<usize>> + Clone,
    to: &mut [f32],
) -> Option<()> {
    let count: usize = ranges.clone().map(|range| range.len()).sum();
    let places = ranges.flatten();
    match reader.take(1)?[0] {
        AS_BITS => {
            let bytes = reader.take(count.div_ceil(8))?;
            places.enumerate().for_each(|(i, at)| to[at] = f32::from(bytes[i / 8] >> (i % 8) & 1));
        }
        AS_BYTES => places.zip(reader.take(count)?).for_each(|(at, &byte)| to[at] = f32::from(byte)),
        AS_NUMBERS => {
            let words = reader.take(count.checked_mul(4)?)?.as_chunks::<4>().0;
            places.zip(words).for_each(|(at, word)| to[at] = f32::from_le_bytes(*word));
        }
        _ => return None,
    }
    Some(())
}
