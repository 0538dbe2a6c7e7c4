//! Searches against the exact distances of the 2×2×2 cube.

use operant::algo::Rewards;
use operant::env::cube::{DistanceTable, Metric, Pocket};
use operant::env::puzzle::{PocketPuzzle, Puzzle, View};
use operant::lanes::rng::HostRng;
use operant::search::{AstarSettings, Solution, Values, astar, beam, greedy};

/// Exact distances, off by up to `noise`.
struct Table<'a> {
    table: &'a DistanceTable,
    noise: f32,
}

impl Values<u32> for Table<'_> {
    fn values(&mut self, states: &[u32], out: &mut Vec<f32>) {
        out.clear();
        // The same state is always off by the same.
        let off = |state: u32| self.noise * (HostRng::new(u64::from(state), 0, 0, 0).unit() * 2.0 - 1.0);
        out.extend(states.iter().map(|&state| self.table.distance(state) as f32 + off(state)));
    }
}

fn solves(puzzle: &PocketPuzzle, start: u32, solution: &Solution) -> Option<usize> {
    let moves = solution.moves.as_ref()?;
    let end = moves.iter().fold(start, |state, &m| puzzle.turned(state, usize::from(m)));
    assert_eq!(end, puzzle.solved(), "what is called a solution solves");
    Some(moves.len())
}

#[test]
fn exact_values_give_shortest_solutions_and_noise_costs_moves() {
    let puzzle = PocketPuzzle::new(View::Cubies, false, false);
    let table = DistanceTable::build(puzzle.pocket(), Metric::Quarter);
    let mut rng = HostRng::new(2, 0, 0, 0);
    let mut starts: Vec<u32> = (0..60).map(|_| Pocket::random(&mut rng)).collect();
    starts.push(puzzle.solved());
    let settings = AstarSettings { weight: 1.0, batch: 4, most_expanded: 5000 };
    for noise in [0.0, 1.5] {
        let mut values = Table { table: &table, noise };
        let walks = greedy(&puzzle, &mut values, &starts, 40, false);
        // Where values mislead, a walk that may come back goes to and fro.
        let plain = greedy(&puzzle, &mut values, &starts, 40, true);
        let count = |walks: &[Solution]| walks.iter().filter(|walk| walk.moves.is_some()).count();
        assert!(if noise == 0.0 { plain == walks } else { count(&plain) < count(&walks) });
        let narrow = beam(&puzzle, &mut values, &starts, 4, 40);
        let wide = beam(&puzzle, &mut values, &starts, 300, 40);
        let stars: Vec<Solution> = starts.iter().map(|&start| astar(&puzzle, &mut values, start, settings)).collect();
        for (name, found) in [("greedy", &walks), ("narrow", &narrow), ("wide", &wide), ("astar", &stars)] {
            let pairs = || starts.iter().zip(found);
            let lengths: Vec<Option<usize>> =
                pairs().map(|(&start, solution)| solves(&puzzle, start, solution)).collect();
            let shortest = |i: usize| table.distance(starts[i]);
            assert!(lengths.iter().enumerate().all(|(i, length)| length.is_none_or(|length| length >= shortest(i))));
            let optimal = (0..starts.len()).filter(|&i| lengths[i] == Some(shortest(i))).count();
            let solved = lengths.iter().flatten().count();
            match (noise == 0.0, name) {
                (true, _) | (_, "wide") => assert_eq!(optimal, starts.len(), "{name}"),
                (_, "greedy") => assert!(optimal < starts.len(), "noise misleads a greedy walk"),
                _ => assert!(solved == starts.len() && optimal * 2 > starts.len(), "{name}: {optimal} of {solved}"),
            }
        }
        assert_eq!(walks[starts.len() - 1], Solution { moves: Some(Vec::new()), expanded: 0 });
        if noise == 0.0 {
            assert!(walks.iter().zip(&starts).all(|(walk, &start)| walk.expanded == table.distance(start)));
        }
    }
}

#[test]
fn a_search_gives_up_where_it_is_told_to() {
    let puzzle = PocketPuzzle::new(View::Cubies, false, false);
    let table = DistanceTable::build(puzzle.pocket(), Metric::Quarter);
    let far = table.draw(12, 3, 1).unwrap();
    let mut values = Table { table: &table, noise: 0.0 };
    assert!(greedy(&puzzle, &mut values, &far, 11, false).iter().all(|solution| solution.moves.is_none()));
    assert!(beam(&puzzle, &mut values, &far, 8, 11).iter().all(|solution| solution.moves.is_none()));
    let settings = AstarSettings { weight: 1.0, batch: 1, most_expanded: 5 };
    let solution = astar(&puzzle, &mut values, far[0], settings);
    assert_eq!(solution, Solution { moves: None, expanded: 5 });
}

#[test]
fn values_of_rewards_are_numbers_of_moves() {
    let all = [(-1.0, 0.0, 1.0), (-0.01, 1.0, 0.99), (-0.01, 1.0, 1.0), (0.0, 1.0, 0.9), (-1.0, 0.0, 0.95)];
    for (step, solved, gamma) in all {
        let rewards = Rewards { step, solved, gamma };
        for moves in 1..=14 {
            let powers = (0..moves).map(|i| gamma_power(gamma, i));
            let value = step * powers.sum::<f64>() + solved * gamma_power(gamma, moves - 1);
            assert!((rewards.moves(value) - f64::from(moves)).abs() < 1e-6, "{rewards:?} {moves}");
        }
    }
    // Values beyond that of never solving it, -10 here, keep their order.
    let discounted = Rewards { step: -1.0, solved: 0.0, gamma: 0.9 };
    assert!([-9.0, -9.99, -10.0, -10.5, -12.0].map(|value| discounted.moves(value)).is_sorted_by(|a, b| a < b));
    // Without a price of moves a larger value is still closer.
    let free = Rewards { step: 0.0, solved: 1.0, gamma: 1.0 };
    assert!(free.moves(0.9) < free.moves(0.2));
}

fn gamma_power(gamma: f64, times: i32) -> f64 {
    (0..times).fold(1.0, |power, _| power * gamma)
}
