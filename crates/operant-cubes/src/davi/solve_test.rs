//! A test of values while they are learned: which of some scrambles walking downhill solves, and in how many moves. The best
//! checkpoint is chosen by it, because the loss is small where targets are wrong alike.
//!
//! Scrambles are those of a seed, so that numbers of one run can be compared. Nothing is allocated after `new`.

use crate::puzzle::{Puzzle, Walk};
use crate::search::ValueNet;
use operant_base::Result;
use operant_lanes::rng::HostRng;
use operant_nn::{Feed, Node, Options, Params, Plan};

/// Sets scrambles apart from other streams of the same seed.
const SCRAMBLES: u64 = 0x736f_6c76_6500_0000;
/// Scrambles of a test.
const WALKS: usize = 128;
/// Most moves of a walk.
const MOST_MOVES: usize = 30;
/// Iterations between tests: with this many they take about 1 % of the time on cube2.
pub(super) const INTERVAL: u64 = 8;

/// The test.
pub(super) struct SolveTest<S> {
    pub(super) plan: Plan,
    value: Node,
    shown: usize,
    starts: Vec<S>,
    /// Numbers of walks under way.
    walks: Vec<usize>,
    /// `[WALKS, MOST_MOVES + 1]` where each has been.
    paths: Vec<S>,
    /// `[walks, moves]`
    successors: Vec<S>,
    /// `[walks, moves, shown]`
    entries: Vec<i32>,
    /// Share that was solved at the last test; NaN before the first.
    pub(super) rate: f64,
    /// Mean moves of its walks, the limit for those that failed.
    pub(super) moves: f64,
}

impl<S: Copy + PartialEq> SolveTest<S> {
    /// Scrambles of 1 to `depth` moves.
    pub(super) fn new<P: Puzzle<State = S>>(
        puzzle: &P,
        net: &ValueNet,
        depth: u32,
        seed: u64,
        options: &Options,
    ) -> Result<Self> {
        let (graph, value) = net.build()?;
        let rows = WALKS * puzzle.moves();
        let scramble = |row: usize| {
            let mut rng = HostRng::new(seed ^ SCRAMBLES, row as u32, 0, 0);
            let mut walk = Walk::new(puzzle);
            // As in training, walks of every length alike.
            (0..1 + row * depth as usize / WALKS).for_each(|_| walk.step(puzzle, &mut rng));
            walk.state
        };
        Ok(Self {
            plan: Plan::inference(&graph, &[value], rows, options)?,
            value,
            shown: net.shown,
            starts: (0..WALKS).map(scramble).collect(),
            walks: Vec::with_capacity(WALKS),
            paths: vec![puzzle.solved(); WALKS * (MOST_MOVES + 1)],
            successors: vec![puzzle.solved(); rows],
            entries: vec![0; rows * net.shown],
            rate: f64::NAN,
            moves: f64::NAN,
        })
    }

    /// Walks from all scrambles to the successor of the least value among those where the walk has not been, as
    /// [`greedy`](crate::search::greedy) does.
    pub(super) fn run<P: Puzzle<State = S>>(&mut self, puzzle: &P, params: &Params) {
        let (moves, solved) = (puzzle.moves(), puzzle.solved());
        self.walks.clear();
        self.walks.extend((0..WALKS).filter(|&walk| self.starts[walk] != solved));
        let (mut made, mut failed) = (0, 0);
        self.starts.iter().zip(self.paths.chunks_exact_mut(MOST_MOVES + 1)).for_each(|(start, path)| path[0] = *start);
        for done in 0..MOST_MOVES {
            if self.walks.is_empty() {
                break;
            }
            made += self.walks.len();
            let rows = self.walks.len() * moves;
            for (&walk, successors) in self.walks.iter().zip(self.successors.chunks_exact_mut(moves)) {
                let state = self.paths[walk * (MOST_MOVES + 1) + done];
                successors.iter_mut().enumerate().for_each(|(m, to)| *to = puzzle.turned(state, m));
            }
            let places = self.successors[..rows].iter().zip(self.entries.chunks_exact_mut(self.shown));
            places.for_each(|(&state, entries)| puzzle.encode(puzzle.representative(state), entries));
            self.plan.forward(params, rows, &[Feed::Ints(&self.entries[..rows * self.shown])]);
            let values = self.plan.output(self.value);
            let (successors, paths) = (&self.successors, &mut self.paths);
            let mut row = 0;
            self.walks.retain(|&walk| {
                let path = &mut paths[walk * (MOST_MOVES + 1)..][..=done + 1];
                let value = |at: usize| if successors[at] == solved { f32::NEG_INFINITY } else { values[at] };
                let onward = (row..row + moves).filter(|&at| !path[..=done].contains(&successors[at]));
                let best = onward.min_by(|&a, &b| value(a).total_cmp(&value(b)));
                row += moves;
                match best {
                    Some(best) => path[done + 1] = successors[best],
                    None => {
                        failed += 1;
                        made += MOST_MOVES - done - 1;
                    }
                }
                best.is_some() && path[done + 1] != solved
            });
        }
        self.rate = 1.0 - (self.walks.len() + failed) as f64 / WALKS as f64;
        self.moves = made as f64 / WALKS as f64;
    }
}
