//! Weighted A* in batches (Agostinelli et al., "Solving the Rubik's cube with deep reinforcement learning and search",
//! 2019): least `weight · moves so far + value` first.

use super::{Met, Solution, Values, path};
use crate::puzzle::Puzzle;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// How a search goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AstarSettings {
    /// Weight of moves so far: 1 looks for short solutions, less finds some sooner.
    pub weight: f32,
    /// States that are expanded at once.
    pub batch: usize,
    /// States after which it gives up.
    pub most_expanded: usize,
}

/// Searches from one state. A solution is returned once no state in line looks better than it.
pub fn astar<P: Puzzle>(
    puzzle: &P,
    values: &mut dyn Values<P::State>,
    start: P::State,
    settings: AstarSettings,
) -> Solution {
    let mut met = vec![Met { state: start, before: 0, by: 0 }];
    let mut moves = vec![0u32];
    let mut best: HashMap<P::State, u32> = HashMap::from([(start, 0)]);
    // Costs are not negative, so that their bits order them.
    let mut line = BinaryHeap::from([Reverse((0u32, 0u32))]);
    let (mut expanded, mut found) = (0, Vec::new());
    let mut end: Option<usize> = (start == puzzle.solved()).then_some(0);
    while end.is_none() && expanded < settings.most_expanded {
        let first = met.len();
        for _ in 0..settings.batch {
            let Some(Reverse((_, number))) = line.pop() else { break };
            let (number, from) = (number as usize, moves[number as usize]);
            if best[&met[number].state] < from {
                continue;
            }
            if met[number].state == puzzle.solved() {
                end = Some(number);
                break;
            }
            expanded += 1;
            for m in 0..puzzle.moves() {
                let state = puzzle.turned(met[number].state, m);
                let known = best.get(&state).copied().unwrap_or(u32::MAX);
                if from + 1 < known {
                    best.insert(state, from + 1);
                    met.push(Met { state, before: number as u32, by: m as u8 });
                    moves.push(from + 1);
                }
            }
        }
        if end.is_some() || (met.len() == first && line.is_empty()) {
            break;
        }
        let states: Vec<P::State> = met[first..].iter().map(|met| met.state).collect();
        values.values(&states, &mut found);
        for (i, value) in found[..states.len()].iter().enumerate() {
            let number = first + i;
            let cost = (settings.weight * moves[number] as f32 + value.max(0.0)).max(0.0);
            line.push(Reverse((cost.to_bits(), number as u32)));
        }
    }
    Solution { moves: end.map(|last| path(&met, last)), expanded }
}
