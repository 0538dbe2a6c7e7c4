//! Players and matches: many games side by side, so that a search's network sees many leaves at once.

use super::connect4_solver::Solver;
use super::game_net::{self, GameNet};
use super::mcts::{Evaluator, Mcts, Settings};
use crate::connect4::{Board, Connect4};
use crate::game::{Game, Turn, settle_chance};
use operant_base::Result;
use operant_lanes::rng::HostRng;
use operant_nn::Options;

/// Who chooses actions. A choice depends on the state and its stream, not on what else is asked at the same time.
pub trait Player<G: Game> {
    /// What it is called in reports.
    fn name(&self) -> String;
    /// Replaces `out` by the number of an action for each state, which are decisions.
    fn choose(&mut self, states: &[G::State], rngs: &[HostRng], out: &mut Vec<usize>) -> Result<()>;
}

/// Plays at random.
#[derive(Debug, Default)]
pub struct Random;

impl<G: Game> Player<G> for Random {
    fn name(&self) -> String {
        "random".into()
    }

    fn choose(&mut self, states: &[G::State], rngs: &[HostRng], out: &mut Vec<usize>) -> Result<()> {
        out.clear();
        let (mut room, mut found) = (G::Room::default(), Vec::new());
        for (state, rng) in states.iter().zip(rngs) {
            G::actions(state, &mut room, &mut found);
            out.push({ *rng }.below(found.len() as u32) as usize);
        }
        Ok(())
    }
}

/// Plays Connect Four perfectly.
#[derive(Debug, Default)]
pub struct Perfect {
    /// What it knows.
    pub solver: Solver,
}

impl Player<Connect4> for Perfect {
    fn name(&self) -> String {
        "solver".into()
    }

    fn choose(&mut self, states: &[Board], rngs: &[HostRng], out: &mut Vec<usize>) -> Result<()> {
        out.clear();
        for (&board, rng) in states.iter().zip(rngs) {
            let column = self.solver.best(board, &mut { *rng });
            out.push((0..column).filter(|&c| board.open(c)).count());
        }
        Ok(())
    }
}

/// Plays by search over values; the most visited action.
#[derive(Debug)]
pub struct Searcher<G: Game, E = GameNet<G>> {
    name: String,
    simulations: usize,
    trees: Vec<Mcts<G>>,
    net: E,
    states: Vec<G::State>,
    rows: Vec<usize>,
}

/// Most games that are searched side by side.
const TOGETHER: usize = 64;

impl<G: Game> Searcher<G> {
    /// The network of a file, searched with these settings.
    pub fn new(name: &str, bytes: &[u8], settings: &Settings, options: &Options) -> Result<Self> {
        let (architecture, params) = game_net::from_bytes::<G>(bytes)?;
        let net = GameNet::new(&architecture, params, TOGETHER * settings.leaves.max(4), options)?;
        Self::over(name, net, settings)
    }
}

impl<G: Game, E: Evaluator<G>> Searcher<G, E> {
    /// Searches with these settings over an evaluator's values.
    pub fn over(name: &str, net: E, settings: &Settings) -> Result<Self> {
        let trees = (0..TOGETHER).map(|_| Mcts::new(settings)).collect::<Result<_>>()?;
        let name = format!("{name}, {} simulations", settings.simulations);
        Ok(Self { name, simulations: settings.simulations, trees, net, states: Vec::new(), rows: Vec::new() })
    }

    /// Simulations per decision.
    pub fn simulations(&self) -> usize {
        self.simulations
    }
}

impl<G: Game, E: Evaluator<G>> Player<G> for Searcher<G, E> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn choose(&mut self, states: &[G::State], rngs: &[HostRng], out: &mut Vec<usize>) -> Result<()> {
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
        Ok(())
    }
}

/// A game of a match: where it begins, and which player is the one that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Pairing<G: Game> {
    /// First state; chance has its first outcome when the game is played.
    pub state: G::State,
    /// 0 or 1.
    pub seat: usize,
    /// Games of the same number have the same luck.
    pub luck: u32,
}

/// A game as it was played.
#[derive(Clone, Debug)]
pub struct Played<G: Game> {
    /// Points, as the one who is looked at counts them.
    pub points: f32,
    /// Each decision, and what was chosen.
    pub turns: Vec<(G::State, G::Action)>,
}

/// Pairings from the beginning, seats in turn; each two games have the same luck where there are two players.
pub fn from_start<G: Game>(games: usize) -> Vec<Pairing<G>> {
    let pairing =
        |game: usize| Pairing { state: G::start(), seat: game % G::PLAYERS, luck: (game / G::PLAYERS) as u32 };
    (0..games).map(pairing).collect()
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
            let open: Vec<usize> = (0..crate::connect4::COLUMNS).filter(|&column| board.open(column)).collect();
            if Connect4::turn(&board) == Turn::Decision {
                board = board.put(open[rng.below(open.len() as u32) as usize]);
            }
        }
        let fresh = found.iter().all(|other| other.state != board);
        if fresh && Connect4::turn(&board) == Turn::Decision && solver.outcome(board) == 1 {
            found.push(Pairing { state: board, seat: 0, luck: found.len() as u32 });
        }
    }
    found
}

/// Who is asked for choices: 0 for the one who is looked at, 1 for the opponent.
pub type Choose<'a, G> = dyn FnMut(usize, &[<G as Game>::State], &[HostRng], &mut Vec<usize>) -> Result<()> + 'a;

/// Sets choices apart from luck, which has the seed as it is.
const CHOICES: u64 = 0x6368_6f69_0000_0000;

/// Plays games side by side.
pub fn play<G: Game>(pairings: &[Pairing<G>], seed: u64, choose: &mut Choose<'_, G>) -> Result<Vec<Played<G>>> {
    let (mut room, mut actions, mut chances) = (G::Room::default(), Vec::new(), vec![0.0; G::OUTCOMES]);
    let mut luck = |state: G::State, pairing: &Pairing<G>, turn: usize| {
        settle_chance::<G>(state, &mut chances, &mut HostRng::new(seed, pairing.luck, 0, turn as u32))
    };
    let mut states: Vec<G::State> = pairings.iter().map(|pairing| luck(pairing.state, pairing, 0)).collect();
    let mut played: Vec<Played<G>> = pairings.iter().map(|_| Played { points: 0.0, turns: Vec::new() }).collect();
    let (mut asked, mut rngs, mut numbers, mut chosen) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    loop {
        let mut over = true;
        for who in [0, 1] {
            asked.clear();
            rngs.clear();
            numbers.clear();
            for (game, state) in states.iter().enumerate() {
                if G::turn(state) != Turn::Over && (G::player(state) != pairings[game].seat) == (who == 1) {
                    asked.push(*state);
                    rngs.push(HostRng::new(seed ^ CHOICES, game as u32, 0, played[game].turns.len() as u32));
                    numbers.push(game);
                }
            }
            if asked.is_empty() {
                continue;
            }
            over = false;
            choose(who, &asked, &rngs, &mut chosen)?;
            for (&game, &action) in numbers.iter().zip(&chosen) {
                let (state, turns) = (&mut states[game], &mut played[game].turns);
                G::actions(state, &mut room, &mut actions);
                turns.push((*state, actions[action]));
                *state = luck(G::after(state, &actions[action]), &pairings[game], turns.len());
            }
        }
        if over {
            break;
        }
    }
    for ((played, state), pairing) in played.iter_mut().zip(&states).zip(pairings) {
        played.points = if pairing.seat == 0 { G::settled(state) } else { -G::settled(state) };
    }
    Ok(played)
}

/// Plays the games of one player against another.
pub fn between<G: Game>(
    one: &mut dyn Player<G>,
    two: &mut dyn Player<G>,
    pairings: &[Pairing<G>],
    seed: u64,
) -> Result<Vec<Played<G>>> {
    play(pairings, seed, &mut |who, states, rngs, out| match who {
        0 => one.choose(states, rngs, out),
        _ => two.choose(states, rngs, out),
    })
}
