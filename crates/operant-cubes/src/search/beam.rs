//! Breadth first, but only the `width` most promising states of each depth are kept.

use super::{Met, Solution, Values, path};
use crate::puzzle::Puzzle;
use std::collections::HashSet;

/// One start's search.
struct Beam<S> {
    met: Vec<Met<S>>,
    seen: HashSet<S>,
    /// Numbers in `met` of the states of this depth.
    now: Vec<u32>,
    expanded: usize,
    end: Option<usize>,
}

/// Searches from many states at once, each to a depth of at most `most` moves.
pub fn beam<P: Puzzle>(
    puzzle: &P,
    values: &mut dyn Values<P::State>,
    states: &[P::State],
    width: usize,
    most: usize,
) -> Vec<Solution> {
    let begin = |&state: &P::State| Beam {
        met: vec![Met { state, before: 0, by: 0 }],
        seen: HashSet::from([state]),
        now: vec![0],
        expanded: 0,
        end: (state == puzzle.solved()).then_some(0),
    };
    let mut beams: Vec<Beam<P::State>> = states.iter().map(begin).collect();
    let (mut successors, mut found, mut order) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..most {
        successors.clear();
        for beam in beams.iter_mut().filter(|beam| beam.end.is_none()) {
            expand(puzzle, beam);
            if beam.end.is_none() {
                successors.extend(beam.now.iter().map(|&number| beam.met[number as usize].state));
            }
        }
        if successors.is_empty() {
            break;
        }
        values.values(&successors, &mut found);
        let mut at = 0;
        for beam in beams.iter_mut().filter(|beam| beam.end.is_none()) {
            let own = &found[at..at + beam.now.len()];
            at += beam.now.len();
            order.clear();
            order.extend((0..own.len()).map(|i| (own[i], beam.now[i])));
            order.sort_by(|a: &(f32, u32), b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            beam.now.clear();
            beam.now.extend(order.iter().take(width).map(|(_, number)| number));
        }
    }
    let solution =
        |beam: Beam<P::State>| Solution { moves: beam.end.map(|last| path(&beam.met, last)), expanded: beam.expanded };
    beams.into_iter().map(solution).collect()
}

/// Replaces the states of this depth by all that follow them and were not met; ends at the solved one.
fn expand<P: Puzzle>(puzzle: &P, beam: &mut Beam<P::State>) {
    let mut next = Vec::with_capacity(beam.now.len() * puzzle.moves());
    for &number in &beam.now {
        beam.expanded += 1;
        for m in 0..puzzle.moves() {
            let state = puzzle.turned(beam.met[number as usize].state, m);
            if !beam.seen.insert(state) {
                continue;
            }
            next.push(beam.met.len() as u32);
            beam.met.push(Met { state, before: number, by: m as u8 });
            if state == puzzle.solved() {
                beam.end = Some(beam.met.len() - 1);
                return;
            }
        }
    }
    beam.now = next;
}
