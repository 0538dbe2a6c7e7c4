//! Launches of parts that no group has together, at once: each part's on a stream of its own, between what all wait for.

use operant_base::Result;
use operant_device::cuda::{Event, Gpu, Kernel, Params};
use std::sync::Arc;

/// Streams beside the GPU's own, at most, with which they are as many as a GPU has queues: more parts than these take turns.
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

/// Which lane launches go to, one after the other: 0 is the GPU's own stream.
#[derive(Debug)]
struct Turns {
    lanes: usize,
    /// The family under way and its parts so far, which have lanes in turn.
    family: Option<u32>,
    parts: Vec<u32>,
    /// Whether a launch comes right behind another of its lane, which it may then overlap.
    near: [bool; 1 + STREAMS],
}

/// What comes before a launch, and where it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turn {
    /// Streams beside its own that the GPU's own waits for first.
    join: usize,
    /// Whether streams that begin from now on wait for all so far.
    mark: bool,
    /// Whether its stream begins here.
    begin: bool,
    lane: usize,
    early: bool,
}

impl Turns {
    fn next(&mut self, part: Option<(u32, u32)>) -> Turn {
        let (mut turn, family) = (Turn::default(), part.map(|(family, _)| family));
        if family.is_none() || family != self.family {
            turn.join = self.parts.len().min(self.lanes).saturating_sub(1);
            self.near[0] &= turn.join == 0;
            self.parts.clear();
            self.family = family;
        }
        if let Some((_, part)) = part {
            let place = self.parts.iter().position(|known| *known == part).unwrap_or(self.parts.len());
            turn.lane = place % self.lanes;
            if place == self.parts.len() {
                self.parts.push(part);
                // Streams wait for what is there now, not for what the first part adds to it.
                turn.mark = place == 0;
                turn.begin = place > 0 && place == turn.lane;
                self.near[turn.lane] &= !turn.begin;
            }
        }
        turn.early = std::mem::replace(&mut self.near[turn.lane], true);
        turn
    }
}

/// Where launches go.
#[derive(Debug)]
pub(super) struct Lanes<'a> {
    beside: &'a Beside,
    own: &'a Gpu,
    turns: Turns,
}

/// Where a launch goes.
pub(super) struct Lane<'a> {
    gpu: &'a Gpu,
    early: bool,
}

impl Lane<'_> {
    /// Whether a launch there may begin before the one before it ends.
    pub(super) fn early(&self) -> bool {
        self.early
    }

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
        let lanes = 1 + self.streams.len();
        Lanes { beside: self, own, turns: Turns { lanes, family: None, parts: Vec::new(), near: [true; _] } }
    }
}

impl<'a> Lanes<'a> {
    /// Where the next launch goes, of this part: after all of other families, beside those of other parts of its own.
    pub(super) fn of(&mut self, part: Option<u32>) -> Result<Lane<'a>> {
        let family = part.and_then(|part| self.beside.families.get(part as usize).copied().flatten());
        let turn = self.turns.next(family.zip(part));
        let streams = &self.beside.streams;
        streams[..turn.join].iter().try_for_each(|(_, event)| event.precede(self.own))?;
        if turn.mark {
            self.beside.fork.record()?;
        }
        let gpu = if turn.lane == 0 { self.own } else { &*streams[turn.lane - 1].0 };
        if turn.begin {
            self.beside.fork.hold_back(gpu)?;
        }
        Ok(Lane { gpu, early: turn.early })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_family_have_lanes_and_all_else_waits_for_them() {
        let mut turns = Turns { lanes: 3, family: None, parts: Vec::new(), near: [true; _] };
        let own = Turn { early: true, ..Turn::default() };
        let late = Turn::default();
        let mut next = |family, part| turns.next(Some((family, part)));
        assert_eq!(next(0, 5), Turn { mark: true, ..own });
        assert_eq!(next(0, 5), own);
        assert_eq!(next(0, 7), Turn { begin: true, lane: 1, ..late });
        assert_eq!(next(0, 9), Turn { begin: true, lane: 2, ..late });
        assert_eq!(next(0, 7), Turn { lane: 1, ..own });
        // The fourth and fifth take turns with others.
        assert_eq!(next(0, 2), own);
        assert_eq!(next(0, 3), Turn { lane: 1, ..own });
        // Another family, then none, then one part alone.
        assert_eq!(next(1, 20), Turn { join: 2, mark: true, ..late });
        assert_eq!(next(1, 21), Turn { begin: true, lane: 1, ..late });
        assert_eq!(turns.next(None), Turn { join: 1, ..late });
        assert_eq!(turns.next(None), own);
        assert_eq!(turns.next(Some((0, 5))), Turn { mark: true, ..own });
        assert_eq!(turns.next(None), own);
    }
}
