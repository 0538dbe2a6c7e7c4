//! What self-play leaves to learn from: states, what searches made of them, and what games came to.

use super::teacher::HeadTargets;
use crate::game::Game;
use operant_base::{Error, Result};
use operant_lanes::rng::HostRng;
use operant_rl::data::SumTree;

/// Most actions of a policy that are kept: the most visited ones, which are nearly all visits.
pub(super) const KEPT: usize = 32;

/// A position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<G: Game> {
    pub(super) state: G::State,
    /// Numbers of actions, in the order that the game finds them, and their shares; none before chance.
    pub(super) policy: [(u16, f32); KEPT],
    pub(super) kept: u8,
    /// Until the game is over: points of player 0 that the search found. Then: points still to come, as the state's player counts them.
    pub(super) points: f32,
    /// Whether the search proved these points.
    pub(super) known: bool,
    /// Targets of value heads that a teacher gave, in place of points.
    pub(super) taught: Option<HeadTargets>,
    /// Points by which the search moved the network's value.
    pub(super) surprise: f32,
}

impl<G: Game> Sample<G> {
    /// A state before chance, or one whose policy is set next.
    pub(super) fn new(state: G::State, points: f32) -> Self {
        Self { state, policy: [(0, 0.0); KEPT], kept: 0, points, known: false, taught: None, surprise: 0.0 }
    }

    /// Keeps the largest shares of a policy, and scales them to 1.
    pub(super) fn keep(&mut self, policy: &[f32]) {
        self.kept = 0;
        let mut total = 0.0;
        while usize::from(self.kept) < KEPT.min(policy.len()) {
            let taken = &self.policy[..usize::from(self.kept)];
            let left = (0..policy.len()).filter(|&i| taken.iter().all(|(action, _)| usize::from(*action) != i));
            let best = match policy.len() <= KEPT {
                true => usize::from(self.kept),
                false => left
                    .fold(None, |best: Option<usize>, i| best.filter(|&b| policy[b] >= policy[i]).or(Some(i)))
                    .unwrap_or(0),
            };
            if policy.len() > KEPT && policy[best] <= 0.0 {
                break;
            }
            self.policy[usize::from(self.kept)] = (best as u16, policy[best]);
            self.kept += 1;
            total += policy[best];
        }
        if total > 0.0 {
            self.policy[..usize::from(self.kept)].iter_mut().for_each(|(_, share)| *share /= total);
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut words = [0; 8];
        G::write(&self.state, &mut words[..G::WORDS]);
        words[..G::WORDS].iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(self.points.to_le_bytes());
        out.extend(self.surprise.to_le_bytes());
        out.push(u8::from(self.known) | u8::from(self.taught.is_some()) << 1);
        for head in self.taught.iter().flat_map(|heads| &heads[..G::HEADS]) {
            out.extend(head.to_le_bytes());
        }
        out.push(self.kept);
        for (action, share) in &self.policy[..usize::from(self.kept)] {
            out.extend(action.to_le_bytes());
            out.extend(share.to_le_bytes());
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut words = [0; 8];
        for word in &mut words[..G::WORDS] {
            *word = u64::from_le_bytes(take(bytes)?);
        }
        let mut sample = Self::new(G::read(&words[..G::WORDS])?, f32::from_le_bytes(take(bytes)?));
        sample.surprise = Some(f32::from_le_bytes(take(bytes)?)).filter(|x| x.is_finite() && *x >= 0.0)?;
        let flags = u8::from_le_bytes(take(bytes)?);
        (sample.known, sample.taught) = (flags & 1 != 0, (flags & 2 != 0).then(Default::default));
        for head in sample.taught.iter_mut().flat_map(|heads| &mut heads[..G::HEADS]) {
            *head = f32::from_le_bytes(take(bytes)?);
        }
        sample.kept = u8::from_le_bytes(take(bytes)?);
        for entry in sample.policy.get_mut(..usize::from(sample.kept))? {
            *entry = (u16::from_le_bytes(take(bytes)?), f32::from_le_bytes(take(bytes)?));
        }
        Some(sample)
    }
}

/// The next bytes, if there are as many.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// Writes samples with their number before them.
pub(super) fn write_all<'a, G: Game>(samples: impl ExactSizeIterator<Item = &'a Sample<G>>, out: &mut Vec<u8>) {
    out.extend((samples.len() as u64).to_le_bytes());
    samples.for_each(|sample| sample.write(out));
}

/// Reads what [`write_all`] wrote, at most so many.
pub(super) fn read_all<G: Game>(bytes: &mut &[u8], most: usize, to: &mut Vec<Sample<G>>) -> Option<()> {
    let count = u64::from_le_bytes(take(bytes)?) as usize;
    to.clear();
    for _ in 0..Some(count).filter(|&count| count <= most)? {
        to.push(Sample::read(bytes)?);
    }
    Some(())
}

/// The last positions of self-play.
#[derive(Debug)]
pub(super) struct Window<G: Game> {
    list: Vec<Sample<G>>,
    capacity: usize,
    /// Where the next goes once the list is full.
    next: usize,
    /// Surprises; empty if positions are drawn evenly.
    weights: SumTree,
    /// Their sum over all positions.
    surprise: f64,
}

impl<G: Game> Window<G> {
    /// Bytes of a window of so many positions.
    pub(super) fn bytes(capacity: usize) -> u64 {
        (capacity as u64).saturating_mul(size_of::<Sample<G>>() as u64)
    }

    pub(super) fn new(capacity: usize, prioritised: bool) -> Self {
        let weights = SumTree::new(if prioritised { capacity } else { 0 });
        Self { list: Vec::with_capacity(capacity), capacity, next: 0, weights, surprise: 0.0 }
    }

    /// Draws a position; so large a share of draws goes by surprise.
    pub(super) fn draw(&self, priority: f32, rng: &mut HostRng) -> &Sample<G> {
        let by_surprise = priority > 0.0 && rng.unit() < priority && self.weights.total() > 0.0;
        let at = match by_surprise {
            true => self.weights.find(f64::from(rng.unit()) * self.weights.total()),
            false => rng.below(self.list.len() as u32) as usize,
        };
        &self.list[at]
    }

    /// Mean surprise of all positions.
    pub(super) fn mean_surprise(&self) -> f64 {
        self.surprise / self.list.len() as f64
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn push(&mut self, sample: Sample<G>) {
        let at = if self.list.len() < self.capacity { self.list.len() } else { self.next };
        self.surprise += f64::from(sample.surprise);
        if !self.weights.is_empty() {
            self.weights.set(at, sample.surprise);
        }
        if at == self.list.len() {
            self.list.push(sample);
        } else {
            self.surprise -= f64::from(self.list[at].surprise);
            self.list[at] = sample;
            self.next = (at + 1) % self.capacity;
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = (self.next as u64).to_le_bytes().to_vec();
        write_all(self.list.iter(), &mut out);
        out
    }

    pub(super) fn load(&mut self, mut bytes: &[u8]) -> Result<()> {
        let damaged = || Error::Saved("checkpoint's replay.bin does not fit this run; take another".into());
        self.next = u64::from_le_bytes(take(&mut bytes).ok_or_else(damaged)?) as usize;
        read_all(&mut bytes, self.capacity, &mut self.list).ok_or_else(damaged)?;
        self.surprise = self.list.iter().map(|sample| f64::from(sample.surprise)).sum();
        if !self.weights.is_empty() {
            self.list.iter().enumerate().for_each(|(at, sample)| self.weights.set(at, sample.surprise));
        }
        if bytes.is_empty() && self.next < self.capacity { Ok(()) } else { Err(damaged()) }
    }
}
