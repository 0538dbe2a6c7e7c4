//! From every state to the successor of least value, never to one that the walk has been at unless that is allowed.

use super::{Solution, Values};
use crate::puzzle::Puzzle;

/// One start's walk: where it has been, and by which moves.
struct Walk<S> {
    seen: Vec<S>,
    moves: Vec<u8>,
}

/// Walks from many states at once, each of at most `most` moves; with `revisits` they may come back to where they have been, from where
/// they go round for ever.
pub fn greedy<P: Puzzle>(
    puzzle: &P,
    values: &mut dyn Values<P::State>,
    states: &[P::State],
    most: usize,
    revisits: bool,
) -> Vec<Solution> {
    let mut walks: Vec<Walk<P::State>> =
        states.iter().map(|&state| Walk { seen: vec![state], moves: Vec::new() }).collect();
    let mut ended: Vec<bool> = states.iter().map(|&state| state == puzzle.solved()).collect();
    let (mut successors, mut owners, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..most {
        successors.clear();
        owners.clear();
        for (walk, Walk { seen, .. }) in walks.iter().enumerate().filter(|(walk, _)| !ended[*walk]) {
            let now = seen[seen.len() - 1];
            for m in 0..puzzle.moves() {
                let next = puzzle.turned(now, m);
                if revisits || !seen.contains(&next) {
                    successors.push(next);
                    owners.push((walk, m));
                }
            }
        }
        if successors.is_empty() {
            break;
        }
        values.values(&successors, &mut found);
        let mut at = 0;
        while at < owners.len() {
            let walk = owners[at].0;
            let end = at + owners[at..].iter().take_while(|(owner, _)| *owner == walk).count();
            let solved = (at..end).find(|&i| successors[i] == puzzle.solved());
            let best = solved.unwrap_or_else(|| {
                // The first of equals, so that a walk repeats.
                (at + 1..end).fold(at, |best, i| if found[i] < found[best] { i } else { best })
            });
            walks[walk].seen.push(successors[best]);
            walks[walk].moves.push(owners[best].1 as u8);
            ended[walk] = solved.is_some();
            at = end;
        }
    }
    let solution = |walk: Walk<P::State>| {
        let (expanded, last) = (walk.moves.len(), walk.seen[walk.seen.len() - 1]);
        Solution { moves: (last == puzzle.solved()).then_some(walk.moves), expanded }
    };
    walks.into_iter().map(solution).collect()
}
