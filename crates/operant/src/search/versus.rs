//! Players and matches: many games side by side, so that a search's network sees many leaves at once.

use super::connect4_solver::Solver;
use super::game_net::{self, GameNet};
use super::mcts::{Evaluator, Mcts, Settings};
use crate::env::connect4::{Board, Connect4};
use crate::env::game::{Game, Turn, settle_chance};
use crate::error::Result;
use crate::lanes::rng::HostRng;
use crate::nn::Options;

/// Who chooses actions. A choice depends on the state and its stream, not on what else is asked at the same time.
pub trait Player<G: Game> {
    /// Writes the number of an action for each state, which are decisions.
    fn choose(&mut self, states: &[G::State], rngs: &[HostRng], out: &mut Vec<usize>);
}

/// Plays at random.
#[derive(Debug)]
pub struct Random<G: Game> {
    room: Vec<G::Action>,
}

impl<G: Game> Default for Random<G> {
    fn default() -> Self {
        Self { room: Vec::new() }
    }
}

impl<G: Game> Player<G> for Random<G> {
    fn choose(&mut self, states: &[G::State], rngs: &[HostRng], out: &mut Vec<usize>) {
        out.clear();
        let mut room = G::Room::default();
        for (state, rng) in states.iter().zip(rngs) {
            G::actions(state, &mut room, &mut self.room);
            out.push({ *rng }.below(self.room.len() as u32) as usize);
        }
    }
}

/// Plays Connect Four perfectly.
#[derive(Debug, Default)]
pub struct Perfect {
    /// What it knows.
    pub solver: Solver,
}

impl Player<Connect4> for Perfect {
    fn choose(&mut self, states: &[Board], rngs: &[HostRng], out: &mut Vec<usize>) {
        out.clear();
        for (&board, rng) in states.iter().zip(rngs) {
            let column = self.solver.best(board, &mut { *rng });
            out.push((0..column).filter(|&c| board.open(c)).count());
        }
    }
}

/// Plays by search over a network; the most visited action.
#[derive(Debug)]
pub struct Searcher<G: Game> {
    trees: Vec<Mcts<G>>,
    net: GameNet<G>,
    states: Vec<G::State>,
    rows: Vec<usize>,
}

/// Most games that are searched side by side.
const TOGETHER: usize = 64;

impl<G: Game> Searcher<G> {
    /// The network of a file, searched with these settings.
    pub fn new(bytes: &[u8], settings: &Settings, options: &Options) -> Result<Self> {
        let (architecture, params) = game_net::from_bytes::<G>(bytes)?;
        let net = GameNet::new(&architecture, params, TOGETHER * settings.leaves.max(4), options)?;
        let trees = (0..TOGETHER).map(|_| Mcts::new(settings)).collect::<Result<_>>()?;
        Ok(Self { trees, net, states: Vec::new(), rows: Vec::new() })
    }
}

impl<G: Game> Player<G> for Searcher<G> {
    fn choose(&mut self, states: &[G::State], rngs: &[HostRng], out: &mut Vec<usize>) {
        out.clear();
        for (states, rngs) in states.chunks(TOGETHER).zip(rngs.chunks(TOGETHER)) {
            let trees = &mut self.trees[..states.len()];
            for ((tree, &state), &rng) in trees.iter_mut().zip(states).zip(rngs) {
                tree.begin(state, rng);
            }
            loop {
                self.states.clear();
                self.rows.clear();
                for tree in trees.iter_mut() {
                    let mut rows = 0;
                    while rows == 0 && !tree.done() {
                        rows = tree.collect(|state| self.net.exact(state), &mut self.states);
                    }
                    self.rows.push(rows);
                }
                if self.states.is_empty() {
                    break;
                }
                let answer = self.net.evaluate(&self.states);
                let mut first = 0;
                for (tree, &rows) in trees.iter_mut().zip(&self.rows).filter(|(_, rows)| **rows > 0) {
                    tree.absorb(answer.rows::<G>(first, rows));
                    first += rows;
                }
            }
            out.extend(trees.iter_mut().map(|tree| tree.choose(0.0)));
        }
    }
}

/// A game of a match: where it begins, and which player is the one that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Pairing<G: Game> {
    /// First state, after chance.
    pub state: G::State,
    /// 0 or 1.
    pub seat: usize,
}

/// Pairings from the beginning, seats in turn.
pub fn from_start<G: Game>(games: usize, seed: u64) -> Vec<Pairing<G>> {
    let mut chances = vec![0.0; G::OUTCOMES];
    let mut pairing = |game: usize| {
        let mut rng = HostRng::new(seed, game as u32, 0, u32::MAX);
        Pairing { state: settle_chance::<G>(G::start(), &mut chances, &mut rng), seat: game % G::PLAYERS }
    };
    (0..games).map(&mut pairing).collect()
}

/// Random openings of Connect Four of so many moves, an even number, after which the first player still wins; all differ.
pub fn won_openings(count: usize, moves: usize, seed: u64, solver: &mut Solver) -> Vec<Pairing<Connect4>> {
    let mut found: Vec<Pairing<Connect4>> = Vec::with_capacity(count);
    let mut tries = 0;
    while found.len() < count && tries < 1000 * count {
        let mut rng = HostRng::new(seed, tries as u32, 1, 0);
        tries += 1;
        let mut board = Board::default();
        for _ in 0..moves / 2 * 2 {
            let open: Vec<usize> = (0..crate::env::connect4::COLUMNS).filter(|&column| board.open(column)).collect();
            if Connect4::turn(&board) == Turn::Decision {
                board = board.put(open[rng.below(open.len() as u32) as usize]);
            }
        }
        let fresh = found.iter().all(|other| other.state != board);
        if fresh && Connect4::turn(&board) == Turn::Decision && solver.outcome(board) == 1 {
            found.push(Pairing { state: board, seat: 0 });
        }
    }
    found
}

/// Plays games side by side; gives points of each, as the one who is looked at counts them, and its moves.
pub fn play<G: Game>(
    looked_at: &mut dyn Player<G>,
    opponent: &mut dyn Player<G>,
    pairings: &[Pairing<G>],
    seed: u64,
) -> Vec<(f32, u32)> {
    let mut states: Vec<G::State> = pairings.iter().map(|pairing| pairing.state).collect();
    let mut moves = vec![0_u32; states.len()];
    let (mut room, mut actions, mut chances) = (G::Room::default(), Vec::new(), vec![0.0; G::OUTCOMES]);
    let (mut asked, mut rngs, mut numbers, mut chosen) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    loop {
        let mut over = true;
        for own in [true, false] {
            asked.clear();
            rngs.clear();
            numbers.clear();
            for (game, state) in states.iter().enumerate() {
                if G::turn(state) != Turn::Over && (G::player(state) == pairings[game].seat) == own {
                    asked.push(*state);
                    rngs.push(HostRng::new(seed, game as u32, moves[game], 0));
                    numbers.push(game);
                }
            }
            if asked.is_empty() {
                continue;
            }
            over = false;
            if own {
                looked_at.choose(&asked, &rngs, &mut chosen);
            } else {
                opponent.choose(&asked, &rngs, &mut chosen);
            }
            for (&game, &action) in numbers.iter().zip(&chosen) {
                let state = &mut states[game];
                G::actions(state, &mut room, &mut actions);
                moves[game] += 1;
                let mut rng = HostRng::new(seed, game as u32, moves[game], 1);
                *state = settle_chance::<G>(G::after(state, &actions[action]), &mut chances, &mut rng);
            }
        }
        if over {
            break;
        }
    }
    let points = |(game, state): (usize, &G::State)| {
        let sign = if pairings[game].seat == 0 { 1.0 } else { -1.0 };
        (sign * G::settled(state), moves[game])
    };
    states.iter().enumerate().map(points).collect()
}
