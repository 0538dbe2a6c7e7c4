//! Monte Carlo tree search with a network's priors (PUCT: Silver et al., "Mastering the game of Go without human knowledge", 2017), for
//! games with and without chance.
//!
//! A simulation goes down from the root by the best upper bound, adds a node and has it evaluated. Leaves are handed out a few at a
//! time ([`Mcts::collect`]) and their evaluations taken back ([`Mcts::absorb`]), so that one network can serve many trees at once.
//! Invariant: nothing is allocated after [`Mcts::new`], and a search is a function of its settings, root, stream and evaluations.

mod evaluator;
mod priors;
mod proof;
mod settings;
mod shortest;

pub use evaluator::{Answer, Evaluator, Null};
pub use settings::{ChanceMode, Counters, Settings};

use super::gumbel;
use super::policy::action_logits;
use super::tree::{FAR, Kind, NONE, Tree};
use crate::game::{Game, Turn, draw_outcome, sign};
use evaluator::Proposed;
use operant_base::Result;
use operant_device::check_room;
use operant_lanes::rng::HostRng;
use priors::{gamma, softmax};

/// A leaf that waits, at the end of a path.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// The node; before chance, where all outcomes are valued, its children give so many `rows`.
    node: u32,
    rows: u32,
    /// End of its path.
    path_end: u32,
}

/// Longest path: beyond it a simulation ends with the value at hand.
const MOST_DEPTH: usize = 256;

/// How a simulation ended.
enum Went {
    /// A leaf waits.
    Leaf,
    /// With a value.
    Ended,
    /// At a leaf that waits already.
    Collided,
    /// There is no memory for more.
    Full,
}

/// A search in one game.
pub struct Mcts<G: Game> {
    settings: Settings,
    tree: Tree<G>,
    spare: Tree<G>,
    room: G::Room,
    found: Vec<G::Action>,
    chances: Vec<f32>,
    moved: Vec<u32>,
    /// Paths of waiting leaves, one after another: node, edge, and what was added to the edge's sum on the way down.
    path: Vec<(u32, u32, f32)>,
    waiting: Vec<Waiting>,
    /// Middle and half of the range of values, in which bounds are compared.
    middle: f32,
    half: f32,
    /// Least and largest value met, for games without a range.
    met: [f32; 2],
    /// Simulations begun at this root, and how many there are to be.
    begun: usize,
    target: usize,
    full: bool,
    /// Points of the root that follow from what is known below it.
    proven: Option<f32>,
    /// For each action of a proven root, decisions until the end of the game; and whether nothing is better than the action.
    distances: Vec<u16>,
    stands: Vec<bool>,
    /// Actions of the positions on the way down, while the shortest way to a proven end is looked for.
    lines: Vec<G::Action>,
    /// Simulations that the tree was left with and that were not counted yet.
    kept: usize,
    rng: HostRng,
    counters: Counters,
    /// Gumbel noise of the root's actions, and the visits that each simulation looks for.
    gumbels: Vec<f32>,
    schedule: Vec<u32>,
    scores: Vec<f32>,
    /// `[POLICY]`, zeros: room for sums over outputs.
    sums: Vec<f32>,
}

impl<G: Game> std::fmt::Debug for Mcts<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mcts({}, {} nodes, {:?})", G::NAME, self.tree.len(), self.counters)
    }
}

impl<G: Game> Mcts<G> {
    /// Nodes and edges of a tree.
    fn sizes(settings: &Settings) -> (usize, usize) {
        // A simulation adds a node, and one more where it passes through chance; or all outcomes of chance.
        let per_simulation = match (G::OUTCOMES, settings.chance) {
            (0, _) => 1,
            (outcomes, ChanceMode::Exact) => 1 + outcomes,
            _ => 2,
        };
        let nodes = (settings.simulations + settings.leaves + 2) * per_simulation;
        (nodes, nodes * G::USUAL_ACTIONS.max(G::OUTCOMES) + 4096)
    }

    /// Bytes of a search of these settings.
    pub fn bytes(settings: &Settings) -> u64 {
        let (nodes, edges) = Self::sizes(settings);
        Tree::<G>::bytes(nodes, edges, settings.transpositions) * if settings.reuse { 2 } else { 1 }
    }

    /// All memory that searches of these settings need. Call [`Mcts::begin`] first.
    pub fn new(settings: &Settings) -> Result<Self> {
        settings.check("search")?;
        check_room(
            &format!("a search of {} simulations", settings.simulations),
            Self::bytes(settings),
            "lower simulations",
        )?;
        let (nodes, edges) = Self::sizes(settings);
        let tree = || Tree::new(nodes, edges, settings.transpositions);
        let [low, high] = G::RANGE.unwrap_or([0.0, 0.0]);
        Ok(Self {
            tree: tree(),
            spare: if settings.reuse { tree() } else { Tree::new(0, 0, false) },
            room: G::Room::default(),
            found: Vec::with_capacity(4096),
            chances: vec![0.0; G::OUTCOMES],
            moved: Vec::with_capacity(nodes),
            path: Vec::with_capacity((settings.leaves + 1) * MOST_DEPTH),
            waiting: Vec::with_capacity(settings.leaves + 1),
            middle: f32::midpoint(low, high),
            half: (high - low) / 2.0,
            met: [f32::INFINITY, f32::NEG_INFINITY],
            begun: 0,
            target: 0,
            full: false,
            proven: None,
            distances: Vec::with_capacity(4096),
            stands: Vec::with_capacity(4096),
            lines: Vec::with_capacity(4096),
            kept: 0,
            rng: HostRng::new(0, 0, 0, 0),
            counters: Counters::default(),
            gumbels: Vec::with_capacity(4096),
            schedule: Vec::with_capacity(settings.simulations + 1),
            scores: Vec::with_capacity(4096),
            sums: vec![0.0; G::POLICY],
            settings: settings.clone(),
        })
    }

    /// Begins a search from a state that is not over; all that is random comes from `rng`.
    pub fn begin(&mut self, state: G::State, rng: HostRng) {
        self.tree.clear();
        self.tree.push(state, Kind::New, sign::<G>(&state));
        self.met = [f32::INFINITY, f32::NEG_INFINITY];
        self.start(rng);
    }

    /// Goes on from the state that an action of the root and then chance led to, with what the tree knows of it, if it does.
    pub fn advance(&mut self, state: G::State, action: usize, rng: HostRng) {
        let known =
            (self.settings.reuse && self.settings.gumbel == 0).then(|| self.find_below(&state, action)).flatten();
        let Some(node) = known else { return self.begin(state, rng) };
        self.tree.copy_below(node, &mut self.spare, &mut self.moved);
        std::mem::swap(&mut self.tree, &mut self.spare);
        let proven = self.tree.kinds[0] == Kind::Known;
        // The root is looked at edge by edge, known or not.
        self.tree.kinds[0] = Kind::Decision;
        self.start(rng);
        self.kept = self.begun;
        self.stir();
        if proven {
            self.prove_root(self.tree.values[0]);
        }
    }

    /// The node of a state that follows an action: its child, or one that chance leads to from there.
    fn find_below(&self, state: &G::State, action: usize) -> Option<u32> {
        let mut node = self.tree.child[self.tree.edges_of(0).nth(action)?];
        for _ in 0..3 {
            if node == NONE {
                return None;
            }
            if self.tree.states[node as usize] == *state {
                let looked_beyond = self.tree.edges[node as usize].1 > 0;
                return (looked_beyond && G::turn(state) == Turn::Decision).then_some(node);
            }
            if self.tree.kinds[node as usize] != Kind::Chance {
                return None;
            }
            let fits = |&child: &u32| child != NONE && self.tree.states[child as usize] == *state;
            let children = &self.tree.child[self.tree.edges_of(node)];
            node = children.iter().copied().find(fits)?;
        }
        None
    }

    fn start(&mut self, rng: HostRng) {
        self.rng = rng;
        self.path.clear();
        self.waiting.clear();
        self.full = false;
        self.proven = None;
        self.kept = 0;
        self.target = self.settings.simulations;
        // The root's own evaluation is no simulation.
        self.begun = self.tree.edge_visits[self.tree.edges_of(0)].iter().sum::<f32>() as usize;
        self.schedule.clear();
    }

    /// Root priors: from logits anew, with noise.
    fn stir(&mut self) {
        let range = self.tree.edges_of(0);
        if self.tree.kinds[0] != Kind::Decision || range.is_empty() {
            return;
        }
        if range.len() == 1 {
            // What must be played needs no search.
            self.target = 0;
            return;
        }
        softmax(&self.tree.logit[range.clone()], &mut self.tree.prior[range.clone()]);
        if self.settings.gumbel > 0 {
            gumbel::noise(&mut self.gumbels, range.len(), &mut self.rng);
            gumbel::schedule(&mut self.schedule, self.settings.gumbel.min(range.len()), self.target);
        } else if self.settings.noise > 0.0 {
            let (share, alpha) = (self.settings.noise, self.settings.noise_alpha);
            self.scores.clear();
            self.scores.extend((0..range.len()).map(|_| gamma(alpha, &mut self.rng)));
            let total: f32 = self.scores.iter().sum();
            // All may be too small to be told from 0: then no action is favoured.
            if total > 0.0 {
                for (prior, drawn) in self.tree.prior[range].iter_mut().zip(&self.scores) {
                    *prior = (1.0 - share) * *prior + share * drawn / total;
                }
            }
        }
        if let Some(value) = self.win_at_once() {
            self.prove_root(value);
        }
    }

    /// Whether all simulations are done.
    pub fn done(&self) -> bool {
        self.waiting.is_empty() && (self.full || self.begun >= self.target && self.tree.kinds[0] != Kind::New)
    }

    /// Simulates until so many leaves wait as the settings say, and adds their states to `out`; tells how many states were added. None
    /// are when the search is done.
    pub fn collect(&mut self, exact: impl Fn(&G::State) -> Option<f32>, out: &mut Vec<G::State>) -> usize {
        let before = out.len();
        // Here, not where the tree was kept: one that is thrown away before it is searched was of no use.
        self.counters.reused += std::mem::take(&mut self.kept) as u64;
        if self.tree.kinds[0] == Kind::New {
            if self.waiting.is_empty() {
                self.add_root(out);
            }
            if !self.waiting.is_empty() {
                return out.len() - before;
            }
        }
        while self.waiting.len() < self.settings.leaves && self.begun < self.target && !self.full {
            match self.simulate(&exact, out) {
                Went::Leaf | Went::Ended => self.begun += 1,
                Went::Full => self.full = true,
                Went::Collided => {
                    self.counters.collisions += 1;
                    break;
                }
            }
        }
        out.len() - before
    }

    fn add_root(&mut self, out: &mut Vec<G::State>) {
        let state = self.tree.states[0];
        if G::turn(&state) == Turn::Chance && self.settings.chance == ChanceMode::Exact {
            match self.add_outcomes(0, &state, out) {
                0 => {
                    let value = self.expectation(0);
                    self.settle(0, value);
                }
                rows => self.waiting.push(Waiting { node: 0, rows, path_end: 0 }),
            }
        } else {
            out.push(state);
            self.waiting.push(Waiting { node: 0, rows: 0, path_end: 0 });
        }
    }

    /// All outcomes of chance as nodes right after `node`, each with its state in `out` unless it ends the game; tells how many are there.
    /// The tree has room.
    fn add_outcomes(&mut self, node: u32, state: &G::State, out: &mut Vec<G::State>) -> u32 {
        self.add_chance_edges(node, state);
        let before = out.len();
        for (outcome, edge) in self.tree.edges_of(node).enumerate() {
            let next = G::happened(state, outcome);
            let over = G::turn(&next) == Turn::Over;
            let child = self.tree.push(next, if over { Kind::Known } else { Kind::New }, sign::<G>(&next));
            self.tree.child[edge] = child;
            if over {
                let value = G::settled(&next);
                self.tree.values[child as usize] = value;
                (self.tree.edge_visits[edge], self.tree.edge_sums[edge]) = (1.0, value);
            } else {
                out.push(next);
            }
        }
        (out.len() - before) as u32
    }

    fn add_chance_edges(&mut self, node: u32, state: &G::State) -> usize {
        let count = G::chances(state, &mut self.chances);
        let range = self.tree.push_edges(node, count);
        self.tree.prior[range].copy_from_slice(&self.chances[..count]);
        self.tree.kinds[node as usize] = Kind::Chance;
        count
    }

    fn simulate(&mut self, exact: &impl Fn(&G::State) -> Option<f32>, out: &mut Vec<G::State>) -> Went {
        let all = if self.settings.chance == ChanceMode::Exact { 1 + G::OUTCOMES } else { 2 };
        if !self.tree.has_room(all, G::OUTCOMES) {
            return Went::Full;
        }
        let first = self.path.len();
        let mut node = 0_u32;
        loop {
            let edge = match self.tree.kinds[node as usize] {
                Kind::Known | Kind::Cut => {
                    let value = self.tree.values[node as usize];
                    return self.end(first, value);
                }
                Kind::New => return self.give_up(first),
                Kind::Chance if self.waits(node) => return self.give_up(first),
                _ if self.path.len() - first >= MOST_DEPTH => {
                    let value = self.tree.mean(node);
                    return self.end(first, value);
                }
                Kind::Decision if node == 0 && !self.schedule.is_empty() => self.select_scheduled(),
                Kind::Decision => self.select(node),
                Kind::Chance => self.draw(node),
            };
            let added = self.under_way(node, edge);
            self.tree.pending[node as usize] += 1.0;
            self.tree.edge_visits[edge] += 1.0;
            self.tree.edge_sums[edge] += added;
            self.path.push((node, edge as u32, added));
            let child = self.tree.child[edge];
            if child != NONE {
                node = child;
                continue;
            }
            let (state, at) = (self.tree.states[node as usize], edge - self.tree.edges[node as usize].0 as usize);
            let state = match self.tree.kinds[node as usize] {
                Kind::Chance => G::happened(&state, at),
                _ => G::after(&state, &self.tree.actions_of(node)[at]),
            };
            let next = self.tree.len() as u32;
            if let Some(known) = self.tree.known_or(&state, next) {
                self.tree.child[edge] = known;
                if self.waits(known) {
                    return self.give_up(first);
                }
                self.counters.hits += 1;
                let value = self.tree.mean(known);
                return self.end(first, value);
            }
            self.tree.child[edge] = next;
            let (turn, sign) = (G::turn(&state), sign::<G>(&state));
            let known = match turn {
                Turn::Over => Some(0.0),
                _ => exact(&state),
            };
            if let Some(points) = known {
                self.tree.push(state, Kind::Known, sign);
                let value = G::settled(&state) + sign * points;
                self.tree.values[next as usize] = value;
                self.tree.distances[next as usize] = if turn == Turn::Over { 0 } else { FAR };
                return self.end(first, value);
            }
            self.tree.push(state, Kind::New, sign);
            let mut rows = 0;
            if turn == Turn::Chance && self.settings.chance == ChanceMode::Exact {
                rows = self.add_outcomes(next, &state, out);
                if rows == 0 {
                    let value = self.expectation(next);
                    self.settle(next, value);
                    return self.end(first, value);
                }
            } else if turn == Turn::Chance && !self.settings.afterstates {
                self.add_chance_edges(next, &state);
                self.tree.values[next as usize] = G::settled(&state);
                node = next;
                continue;
            } else {
                out.push(state);
            }
            self.waiting.push(Waiting { node: next, rows, path_end: self.path.len() as u32 });
            return Went::Leaf;
        }
    }

    /// Whether a node, or all that chance can make of it, waits for its value.
    #[inline]
    fn waits(&self, node: u32) -> bool {
        let at = node as usize;
        match self.tree.kinds[at] {
            Kind::New => true,
            Kind::Chance => self.settings.chance == ChanceMode::Exact && self.tree.visits[at] == 0.0,
            _ => false,
        }
    }

    /// What a simulation under way adds to the sum of a decision's edge, to keep others from following it.
    #[inline]
    fn under_way(&self, node: u32, edge: usize) -> f32 {
        if self.settings.leaves == 1 || self.tree.kinds[node as usize] != Kind::Decision {
            return 0.0;
        }
        let lost = self.tree.signs[node as usize] * self.half * self.settings.virtual_loss;
        let visits = self.tree.edge_visits[edge];
        match G::RANGE {
            Some(_) => self.tree.signs[node as usize] * self.middle - lost,
            // Points on the board are no measure of a loss: what the action was worth so far is.
            None if visits > 0.0 => self.tree.edge_sums[edge] / visits - lost,
            None => self.tree.mean(node) - lost,
        }
    }

    /// Ends the newest path with a value.
    fn end(&mut self, first: usize, value: f32) -> Went {
        self.back_up(first, self.path.len(), 0..first, value);
        self.path.truncate(first);
        Went::Ended
    }

    /// Takes the newest path back.
    fn give_up(&mut self, first: usize) -> Went {
        for at in first..self.path.len() {
            let (node, edge, added) = self.path[at];
            self.tree.pending[node as usize] -= 1.0;
            self.tree.edge_visits[edge as usize] -= 1.0;
            self.tree.edge_sums[edge as usize] -= added;
        }
        self.path.truncate(first);
        Went::Collided
    }

    /// Takes a value up the path from `first` to `end`; simulations under way have the part `others` of the paths.
    fn back_up(&mut self, first: usize, end: usize, others: std::ops::Range<usize>, mut value: f32) {
        self.counters.simulations += 1;
        self.counters.depth += (end - first) as u64;
        self.counters.deepest = self.counters.deepest.max((end - first) as u64);
        self.meet(value);
        for at in (first..end).rev() {
            let (node, edge, added) = self.path[at];
            self.tree.edge_sums[edge as usize] += value - added;
            if self.settings.chance == ChanceMode::Exact && self.tree.kinds[node as usize] == Kind::Chance {
                value = self.expectation(node);
            }
            let proven = self.proof(node, edge as usize, others.clone());
            value = proven.unwrap_or(value);
            // Here, not on the way down: a node's mean is that of values that came, whatever is still under way.
            self.tree.pending[node as usize] -= 1.0;
            self.tree.visits[node as usize] += 1.0;
            self.tree.sums[node as usize] += value;
            if let Some(value) = proven {
                self.make_known(node, value);
            }
        }
    }

    /// Σ p·(mean of the outcome), where all outcomes have nodes.
    fn expectation(&self, node: u32) -> f32 {
        let range = self.tree.edges_of(node);
        let outcomes = self.tree.prior[range.clone()].iter().zip(&self.tree.child[range]);
        outcomes.map(|(p, &child)| p * self.tree.mean(child)).sum()
    }

    /// Where a game has no range, values met so far are its range.
    #[inline]
    fn meet(&mut self, value: f32) {
        if G::RANGE.is_none() {
            self.met = [self.met[0].min(value), self.met[1].max(value)];
            self.middle = f32::midpoint(self.met[0], self.met[1]);
            self.half = (self.met[1] - self.met[0]) / 2.0;
        }
    }

    /// Takes the values of the states that [`Mcts::collect`] added, in their order, and nothing of other states.
    pub fn absorb(&mut self, answer: Answer<'_>) {
        let mut row = 0;
        let mut first = 0;
        for at in 0..self.waiting.len() {
            let Waiting { node, rows, path_end } = self.waiting[at];
            let value = match rows {
                0 => {
                    row += 1;
                    self.expand(node, answer.values[row - 1], answer.proposed::<G>(row - 1))
                }
                _ => {
                    for edge in self.tree.edges_of(node) {
                        let child = self.tree.child[edge];
                        if self.tree.kinds[child as usize] != Kind::New {
                            continue;
                        }
                        let value = self.expand(child, answer.values[row], answer.proposed::<G>(row));
                        self.tree.edge_visits[edge] = 1.0;
                        self.tree.edge_sums[edge] = value;
                        row += 1;
                    }
                    let value = self.expectation(node);
                    self.settle(node, value)
                }
            };
            if node == 0 {
                self.stir();
            } else {
                self.back_up(first, path_end as usize, path_end as usize..self.path.len(), value);
            }
            first = path_end as usize;
        }
        self.counters.evaluations += row as u64;
        self.waiting.clear();
        self.path.clear();
    }

    fn settle(&mut self, node: u32, value: f32) -> f32 {
        let at = node as usize;
        self.tree.values[at] = value;
        self.tree.visits[at] += 1.0;
        self.tree.sums[at] += value;
        value
    }

    /// Gives a node its value, and edges with priors.
    fn expand(&mut self, node: u32, points: f32, proposed: Proposed<'_>) -> f32 {
        let at = node as usize;
        let state = self.tree.states[at];
        let value = G::settled(&state) + self.tree.signs[at] * points;
        self.meet(value);
        let chance = G::turn(&state) == Turn::Chance;
        if !chance {
            G::actions(&state, &mut self.room, &mut self.found);
        }
        let count = if chance { G::OUTCOMES } else { self.found.len() };
        if !self.tree.has_room(0, count) {
            // A leaf for good: others that waited beside it have taken the room, or it has more actions than are left.
            self.tree.kinds[at] = Kind::Cut;
            return self.settle(node, value);
        }
        if chance {
            self.add_chance_edges(node, &state);
            return self.settle(node, value);
        }
        self.tree.kinds[at] = Kind::Decision;
        self.tree.first_action[at] = self.tree.actions.len() as u32;
        self.tree.actions.extend_from_slice(&self.found);
        let range = self.tree.push_edges(node, count);
        let logits = &mut self.tree.logit[range.clone()];
        match proposed {
            Proposed::Alike => logits.fill(0.0),
            Proposed::Actions(given) => logits.copy_from_slice(given),
            Proposed::Outputs(outputs) => action_logits::<G>(&state, &self.found, outputs, &mut self.sums, logits),
        }
        softmax(&self.tree.logit[range.clone()], &mut self.tree.prior[range]);
        self.settle(node, value)
    }

    /// The edge of a decision with the best upper bound; the first of equals.
    #[inline]
    fn select(&self, node: u32) -> usize {
        let range = self.tree.edges_of(node);
        let at = node as usize;
        let (prior, visits, sums) = (
            &self.tree.prior[range.clone()],
            &self.tree.edge_visits[range.clone()],
            &self.tree.edge_sums[range.clone()],
        );
        let scale = self.tree.signs[at] / self.half.max(1e-6);
        let untried = (self.tree.sums[at] / self.tree.visits[at] - self.middle) * scale - self.settings.fpu_reduction;
        let explore = self.settings.c_puct * (self.tree.visits[at] + self.tree.pending[at]).sqrt();
        let (mut best, mut most) = (0, f32::NEG_INFINITY);
        for (i, ((&p, &n), &sum)) in prior.iter().zip(visits).zip(sums).enumerate() {
            let q = if n > 0.0 { (sum / n - self.middle) * scale } else { untried };
            let score = q + explore * p / (1.0 + n);
            if score > most {
                (best, most) = (i, score);
            }
        }
        range.start + best
    }

    /// The root's edge by sequential halving.
    fn select_scheduled(&mut self) -> usize {
        let range = self.tree.edges_of(0);
        let wanted = self.schedule[self.begun.min(self.schedule.len() - 1)] as f32;
        self.score_root();
        let visits = &self.tree.edge_visits[range.clone()];
        let best = |wanted: f32| {
            let fits = (0..range.len()).filter(|&i| visits[i] == wanted);
            fits.fold(None, |best: Option<usize>, i| match best {
                Some(b) if self.scores[b] >= self.scores[i] => best,
                _ => Some(i),
            })
        };
        let least = visits.iter().copied().fold(f32::INFINITY, f32::min);
        range.start + best(wanted).or_else(|| best(least)).unwrap_or(0)
    }

    /// Gumbel noise + logit + what the search found, for each action of the root.
    fn score_root(&mut self) {
        let range = self.tree.edges_of(0);
        let mut scores = std::mem::take(&mut self.scores);
        scores.clear();
        scores.extend_from_slice(&self.tree.logit[range]);
        self.add_completed(&mut scores);
        scores.iter_mut().zip(&self.gumbels).for_each(|(score, noise)| *score += noise);
        self.scores = scores;
    }

    /// Adds to each of the root's logits what its completed value is worth.
    fn add_completed(&self, logits: &mut [f32]) {
        let range = self.tree.edges_of(0);
        let root = gumbel::Root {
            prior: &self.tree.prior[range.clone()],
            visits: &self.tree.edge_visits[range.clone()],
            sums: &self.tree.edge_sums[range],
            value: self.tree.values[0],
            sign: self.tree.signs[0],
            low: self.middle - self.half,
            width: 2.0 * self.half.max(1e-6),
        };
        root.add_completed(logits);
    }

    /// The edge of an outcome of chance.
    fn draw(&mut self, node: u32) -> usize {
        let range = self.tree.edges_of(node);
        let visits = &self.tree.edge_visits[range.clone()];
        let chances = &self.tree.prior[range.clone()];
        let sample = match self.settings.chance {
            ChanceMode::Sample => true,
            ChanceMode::Exact => false,
            ChanceMode::Widen => {
                let there = visits.iter().filter(|n| **n > 0.0).count();
                (there as f32) < self.settings.widening * (1.0 + visits.iter().sum::<f32>()).sqrt()
            }
        };
        if sample {
            return range.start + draw_outcome(chances, &mut self.rng);
        }
        // The outcome that is furthest behind its share, among those that are there.
        let total: f32 = 1.0 + visits.iter().sum::<f32>();
        let share: f32 = chances.iter().zip(visits).filter(|(_, n)| **n > 0.0).map(|(p, _)| p).sum();
        let (mut best, mut most) = (0, f32::NEG_INFINITY);
        for (i, (&p, &n)) in chances.iter().zip(visits).enumerate() {
            let behind = p / share * total - n;
            if n > 0.0 && p > 0.0 && behind > most {
                (best, most) = (i, behind);
            }
        }
        range.start + best
    }

    /// Searches to the end with one evaluator.
    pub fn search(&mut self, evaluator: &mut impl Evaluator<G>, states: &mut Vec<G::State>) {
        loop {
            states.clear();
            if self.collect(|state| evaluator.exact(state), states) == 0 && self.done() {
                return;
            }
            if !states.is_empty() {
                self.absorb(evaluator.evaluate(states));
            }
        }
    }

    /// The tree.
    pub fn tree(&self) -> &Tree<G> {
        &self.tree
    }

    /// Actions of the root.
    pub fn actions(&self) -> &[G::Action] {
        self.tree.actions_of(0)
    }

    /// Simulations through each action of the root.
    pub fn visits(&self) -> &[f32] {
        &self.tree.edge_visits[self.tree.edges_of(0)]
    }

    /// Points of an action of the root, as its player counts them; of the root where it was never tried.
    pub fn action_value(&self, action: usize) -> f32 {
        if let Some(value) = self.proven.filter(|_| self.stands[action]) {
            return value * self.tree.signs[0];
        }
        let edge = self.tree.edges_of(0).start + action;
        let n = self.tree.edge_visits[edge];
        let value = if n > 0.0 { self.tree.edge_sums[edge] / n } else { self.tree.values[0] };
        value * self.tree.signs[0]
    }

    /// Points of the root, as player 0 counts them.
    pub fn value(&self) -> f32 {
        self.proven.unwrap_or_else(|| self.tree.mean(0))
    }

    /// Whether the root's value follows from what is known below it.
    pub fn is_proven(&self) -> bool {
        self.proven.is_some()
    }

    /// Writes what the search makes of the root's priors: shares of visits, or after sequential halving the policy with completed
    /// values (Danihelka et al., "Policy improvement by planning with Gumbel", 2022).
    pub fn policy(&mut self, out: &mut Vec<f32>) {
        out.clear();
        let range = self.tree.edges_of(0);
        if self.settings.gumbel > 0 {
            out.extend_from_slice(&self.tree.logit[range]);
            self.add_completed(out);
            self.scores.clear();
            self.scores.extend_from_slice(out);
            softmax(&self.scores, out);
            self.share_among_standing(out);
            return;
        }
        self.weigh(out);
        let total: f32 = out.iter().sum();
        match total > 0.0 {
            true => out.iter_mut().for_each(|share| *share /= total),
            false => out.copy_from_slice(&self.tree.prior[range]),
        }
    }

    /// An action of the root: the most visited at temperature 0, else drawn by visits to the power of 1/temperature. Sequential
    /// halving has drawn already: its winner, whatever the temperature.
    pub fn choose(&mut self, temperature: f32) -> usize {
        let range = self.tree.edges_of(0);
        let largest = |x: &[f32]| (1..x.len()).fold(0, |best, i| if x[i] > x[best] { i } else { best });
        if self.settings.gumbel > 0 {
            self.score_root();
            let mut scores = std::mem::take(&mut self.scores);
            self.keep_finalists(&mut scores);
            self.scores = scores;
            return largest(&self.scores);
        }
        let mut scores = std::mem::take(&mut self.scores);
        self.weigh(&mut scores);
        self.scores = scores;
        let most = self.scores.iter().copied().fold(0.0, f32::max);
        if most == 0.0 {
            return largest(&self.tree.prior[range]);
        }
        if temperature <= 0.0 {
            return largest(&self.scores);
        }
        self.scores.iter_mut().for_each(|n| *n = (*n / most).powf(1.0 / temperature));
        let total: f32 = self.scores.iter().sum();
        self.scores.iter_mut().for_each(|score| *score /= total);
        draw_outcome(&self.scores, &mut self.rng)
    }

    /// What searches did since they were last asked.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }
}
