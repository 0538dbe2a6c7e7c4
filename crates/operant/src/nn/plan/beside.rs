//! Launches of parts that no group has together, at once: each part's on a stream of its own, between what all wait for.

use crate::device::cuda::{Event, Gpu, Kernel, Params};
use crate::error::Result;
use std::sync::Arc;

/// Streams beside the GPU's own, at most: more parts than these take turns.
const STREAMS: usize = 7;

/// The streams, and which parts may use them.
#[derive(Debug)]
pub(super) struct Beside {
    /// Of each part, the family of parts of which a group has one at most.
    families: Vec<Option<u32>>,
    /// Where work on the GPU's own stream has come to, and that of the others.
    fork: Event,
    streams: Vec<(Arc<Gpu>, Event)>,
}

/// Where launches go, one after the other.
#[derive(Debug)]
pub(super) struct Lanes<'a> {
    beside: &'a Beside,
    own: &'a Gpu,
    /// The family under way and its parts so far, which have streams in turn.
    family: Option<u32>,
    parts: Vec<u32>,
    /// Whether a launch comes right behind another of its stream, which it may then overlap.
    near: Vec<bool>,
}

/// Where a launch goes.
pub(super) struct Lane<'a> {
    gpu: &'a Gpu,
    early: bool,
}

impl Lane<'_> {
    pub(super) fn start<P: Params>(&self, kernel: &Kernel<P>, blocks: u32, threads: u32, params: &P) -> Result<()> {
        kernel.launch_on(self.gpu, self.early, blocks, threads, params)
    }
}

impl Beside {
    pub(super) fn new(gpu: &Arc<Gpu>, families: &[Option<u32>]) -> Result<Self> {
        let mut of: Vec<u32> = families.iter().flatten().copied().collect();
        of.sort_unstable();
        let most = of.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(0);
        let streams = (1..most.min(1 + STREAMS)).map(|_| {
            let other = gpu.second_stream()?;
            let event = Event::new(&other)?;
            Ok((other, event))
        });
        Ok(Self { families: families.to_vec(), fork: Event::new(gpu)?, streams: streams.collect::<Result<_>>()? })
    }

    pub(super) fn lanes<'a>(&'a self, own: &'a Gpu) -> Lanes<'a> {
        let near = vec![true; 1 + self.streams.len()];
        Lanes { beside: self, own, family: None, parts: Vec::new(), near }
    }
}

impl<'a> Lanes<'a> {
    /// Where the next launch goes, of this part: after all of other families, beside those of other parts of its own.
    pub(super) fn of(&mut self, part: Option<u32>) -> Result<Lane<'a>> {
        let family = part.and_then(|part| self.beside.families.get(part as usize).copied().flatten());
        if family.is_none() || family != self.family {
            self.join()?;
            (self.family, self.parts) = (family, Vec::new());
        }
        let (Some(part), Some(_)) = (part, family) else { return Ok(self.lane(0)) };
        let place = self.parts.iter().position(|known| *known == part).unwrap_or(self.parts.len());
        let lane = place % self.near.len();
        if place == self.parts.len() {
            self.parts.push(part);
            if place == 0 {
                // Streams wait for what is here now, not for what the first part adds to it.
                self.beside.fork.record()?;
            } else if place == lane {
                self.beside.fork.hold_back(&self.beside.streams[lane - 1].0)?;
                self.near[lane] = false;
            }
        }
        Ok(self.lane(lane))
    }

    fn lane(&mut self, number: usize) -> Lane<'a> {
        let gpu = if number == 0 { self.own } else { &*self.beside.streams[number - 1].0 };
        let early = std::mem::replace(&mut self.near[number], true);
        Lane { gpu, early }
    }

    /// Has the GPU's own stream wait for the others.
    fn join(&mut self) -> Result<()> {
        let used = self.parts.len().min(self.near.len());
        for (_, event) in self.beside.streams.iter().take(used.saturating_sub(1)) {
            event.precede(self.own)?;
            self.near[0] = false;
        }
        self.parts.clear();
        Ok(())
    }
}
