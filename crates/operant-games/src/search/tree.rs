//! A search tree as a struct of arrays, with memory made once: nodes are states, edges are actions or outcomes of chance.
//!
//! All values are points of player 0, so nothing changes its sign on the way up; who moves decides only which values are better.
//! With transpositions two edges may lead to one node. Invariant: a node's edges lie side by side, and an edge's child is 0 until there is
//! one (the root is nobody's child).

use crate::game::{Game, Turn};

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Waits for its evaluation.
    New,
    /// A player chooses among its edges.
    Decision,
    /// Chance chooses among its edges.
    Chance,
    /// Its value is known: the game is over, the evaluator knows, or it follows from what is known below.
    Known,
    /// Never looked beyond, for want of memory.
    Cut,
}

/// No child yet.
pub const NONE: u32 = 0;

/// A known value whose way to the end of the game is not known: further than any that is.
pub const FAR: u16 = u16::MAX - 1;

/// Nodes and edges.
#[derive(Clone, Debug)]
pub struct Tree<G: Game> {
    /// States of nodes.
    pub states: Vec<G::State>,
    /// What nodes are.
    pub kinds: Vec<Kind>,
    /// 1 where player 0 sees the node, −1 where player 1 does.
    pub signs: Vec<f32>,
    /// Value that a node had when it was evaluated.
    pub values: Vec<f32>,
    /// Values that came up through the node, and its own.
    pub visits: Vec<f32>,
    /// Simulations through the node that are under way.
    pub pending: Vec<f32>,
    /// Sum of values that came up through the node.
    pub sums: Vec<f32>,
    /// Decisions until the end of the game, by the proof of a known node; [`FAR`] where nobody knows.
    pub distances: Vec<u16>,
    /// First edge and number of edges.
    pub edges: Vec<(u32, u32)>,
    /// First action of a decision.
    pub first_action: Vec<u32>,
    /// Actions of decisions.
    pub actions: Vec<G::Action>,
    /// Child at the end of an edge, or [`NONE`].
    pub child: Vec<u32>,
    /// Prior of an action, or probability of an outcome.
    pub prior: Vec<f32>,
    /// Logit of an action before noise, as the evaluator gave it.
    pub logit: Vec<f32>,
    /// Simulations through an edge, those under way included.
    pub edge_visits: Vec<f32>,
    /// Sum of values that came up through an edge.
    pub edge_sums: Vec<f32>,
    table: Table,
}

/// Nodes by their hash: open addressing over a power of two, twice the nodes.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Part of a hash, and node; node 0 with hash 0 is empty, since the root is never looked for.
    slots: Vec<(u32, u32)>,
}

impl Table {
    fn new(nodes: usize) -> Self {
        Self { slots: vec![(0, NONE); (2 * nodes).next_power_of_two()] }
    }

    fn clear(&mut self) {
        self.slots.fill((0, NONE));
    }

    /// The node that `fits`, or the slot where it goes.
    fn find(&self, hash: u64, fits: impl Fn(u32) -> bool) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let tag = (hash >> 32) as u32;
        let mut at = hash as usize & mask;
        loop {
            match self.slots[at] {
                (_, NONE) => return Err(at),
                (other, node) if other == tag && fits(node) => return Ok(node),
                _ => at = (at + 1) & mask,
            }
        }
    }
}

impl<G: Game> Tree<G> {
    /// Bytes of a tree of so many nodes and edges.
    pub fn bytes(nodes: usize, edges: usize, transpositions: bool) -> u64 {
        let per_node =
            size_of::<G::State>() + size_of::<Kind>() + 5 * size_of::<f32>() + 3 * size_of::<u32>() + size_of::<u16>();
        let per_edge = size_of::<G::Action>() + size_of::<u32>() + 4 * size_of::<f32>();
        let slots =
            if transpositions { nodes.saturating_mul(2).checked_next_power_of_two().unwrap_or(usize::MAX) } else { 0 };
        let bytes = |count: usize, each: usize| (count as u64).saturating_mul(each as u64);
        bytes(nodes, per_node)
            .saturating_add(bytes(edges, per_edge))
            .saturating_add(bytes(slots, size_of::<(u32, u32)>()))
    }

    /// Memory for so many nodes and edges; `transpositions` lets equal states share a node.
    pub fn new(nodes: usize, edges: usize, transpositions: bool) -> Self {
        Self {
            states: Vec::with_capacity(nodes),
            kinds: Vec::with_capacity(nodes),
            signs: Vec::with_capacity(nodes),
            values: Vec::with_capacity(nodes),
            visits: Vec::with_capacity(nodes),
            pending: Vec::with_capacity(nodes),
            sums: Vec::with_capacity(nodes),
            distances: Vec::with_capacity(nodes),
            edges: Vec::with_capacity(nodes),
            first_action: Vec::with_capacity(nodes),
            actions: Vec::with_capacity(edges),
            child: Vec::with_capacity(edges),
            prior: Vec::with_capacity(edges),
            logit: Vec::with_capacity(edges),
            edge_visits: Vec::with_capacity(edges),
            edge_sums: Vec::with_capacity(edges),
            table: if transpositions { Table::new(nodes) } else { Table::default() },
        }
    }

    /// Forgets all nodes.
    pub fn clear(&mut self) {
        self.states.clear();
        self.kinds.clear();
        self.signs.clear();
        self.values.clear();
        self.visits.clear();
        self.pending.clear();
        self.sums.clear();
        self.distances.clear();
        self.edges.clear();
        self.first_action.clear();
        self.actions.clear();
        self.child.clear();
        self.prior.clear();
        self.logit.clear();
        self.edge_visits.clear();
        self.edge_sums.clear();
        self.table.clear();
    }

    /// Nodes.
    #[inline]
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether there is not even a root.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Whether there is room for so many more nodes and edges.
    #[inline]
    pub fn has_room(&self, nodes: usize, edges: usize) -> bool {
        self.states.len() + nodes <= self.states.capacity() && self.child.len() + edges <= self.child.capacity()
    }

    /// A new node.
    #[inline]
    pub fn push(&mut self, state: G::State, kind: Kind, sign: f32) -> u32 {
        let node = self.states.len() as u32;
        self.states.push(state);
        self.kinds.push(kind);
        self.signs.push(sign);
        self.values.push(0.0);
        self.visits.push(0.0);
        self.pending.push(0.0);
        self.sums.push(0.0);
        self.distances.push(0);
        self.edges.push((0, 0));
        self.first_action.push(0);
        node
    }

    /// A node that has this state already, where equal states share one; else remembers `node`, which is the next to be pushed.
    #[inline]
    pub fn known_or(&mut self, state: &G::State, node: u32) -> Option<u32> {
        if self.table.slots.is_empty() {
            return None;
        }
        let hash = G::hash(state);
        match self.table.find(hash, |other| self.states[other as usize] == *state) {
            Ok(other) => Some(other),
            Err(slot) => {
                self.table.slots[slot] = ((hash >> 32) as u32, node);
                None
            }
        }
    }

    /// Edges of a node, whose priors and logits the caller sets.
    #[inline]
    pub fn push_edges(&mut self, node: u32, count: usize) -> std::ops::Range<usize> {
        let first = self.child.len();
        let end = first + count;
        self.edges[node as usize] = (first as u32, count as u32);
        self.child.resize(end, NONE);
        self.prior.resize(end, 0.0);
        self.logit.resize(end, 0.0);
        self.edge_visits.resize(end, 0.0);
        self.edge_sums.resize(end, 0.0);
        first..end
    }

    /// Edges of a node, as a range.
    #[inline]
    pub fn edges_of(&self, node: u32) -> std::ops::Range<usize> {
        let (first, count) = self.edges[node as usize];
        first as usize..(first + count) as usize
    }

    /// Actions of a decision.
    #[inline]
    pub fn actions_of(&self, node: u32) -> &[G::Action] {
        let at = node as usize;
        &self.actions[self.first_action[at] as usize..][..self.edges[at].1 as usize]
    }

    /// Mean of the values that came through a node; its own evaluation before any did.
    #[inline]
    pub fn mean(&self, node: u32) -> f32 {
        let at = node as usize;
        if self.visits[at] > 0.0 { self.sums[at] / self.visits[at] } else { self.values[at] }
    }

    /// Writes what lies below `root` into `out`, a tree of the same size, in which it becomes node 0.
    pub fn copy_below(&self, root: u32, out: &mut Self, moved: &mut Vec<u32>) {
        out.clear();
        moved.clear();
        // Where each node went, beginning with the root; a node that was copied has its new number in `moved`.
        moved.resize(self.len(), NONE);
        out.copy_node(self, root);
        let mut at = 0;
        // `out` is its own queue: the nodes from `at` on wait for their edges.
        while at < out.len() {
            let node = std::mem::replace(&mut out.first_action[at], 0);
            let range = self.edges_of(node);
            if G::turn(&self.states[node as usize]) == Turn::Decision && !range.is_empty() {
                out.first_action[at] = out.actions.len() as u32;
                out.actions.extend_from_slice(self.actions_of(node));
            }
            let to = out.push_edges(at as u32, range.len());
            out.prior[to.clone()].copy_from_slice(&self.prior[range.clone()]);
            out.logit[to.clone()].copy_from_slice(&self.logit[range.clone()]);
            out.edge_visits[to.clone()].copy_from_slice(&self.edge_visits[range.clone()]);
            out.edge_sums[to.clone()].copy_from_slice(&self.edge_sums[range.clone()]);
            for (from, to) in range.zip(to) {
                let child = self.child[from];
                if child == NONE {
                    continue;
                }
                if moved[child as usize] == NONE && child != root {
                    moved[child as usize] = out.copy_node(self, child);
                }
                out.child[to] = moved[child as usize];
            }
            at += 1;
        }
    }

    fn copy_node(&mut self, from: &Self, node: u32) -> u32 {
        let at = node as usize;
        let new = self.push(from.states[at], from.kinds[at], from.signs[at]);
        let to = new as usize;
        self.values[to] = from.values[at];
        self.visits[to] = from.visits[at];
        self.sums[to] = from.sums[at];
        self.distances[to] = from.distances[at];
        // Until its edges are copied: which node it was.
        self.first_action[to] = node;
        if new != NONE {
            self.known_or(&from.states[at], new);
        }
        new
    }
}
