//! Which actions of a proven root to take: the soonest of wins, the latest of losses.
//!
//! A tree proves a win by the first way that it finds, which need not be the shortest. So all lines that are shorter than the proof are looked
//! at, move by move deeper, for a bounded number of positions. A game with chance has too many lines: there only wins at once are looked for,
//! and else the distances of proofs decide.

use super::Mcts;
use crate::game::{Game, Turn, sign};
use crate::search::tree::{FAR, Kind};
use std::cmp::Ordering;

/// Nothing is known of an action.
const NOT_PROVEN: u16 = u16::MAX;

/// Most decisions that are looked ahead, and most positions in which a player decides: under a tenth of a millisecond in Connect Four.
const DEEPEST: u16 = 16;
const MOST_POSITIONS: usize = 1 << 13;

/// What a line must come to.
#[derive(Clone, Copy)]
struct Goal {
    /// 1 if player 0 wins, −1 if player 1 does.
    winner: f32,
    /// Points of player 0 that are not less for the winner.
    value: f32,
}

impl<G: Game> Mcts<G> {
    /// The most that can be won, if an action of the root wins it at once.
    pub(super) fn win_at_once(&self) -> Option<f32> {
        let most = self.bound(0, true).filter(|_| self.settings.proofs)?;
        let (state, sign) = (&self.tree.states[0], self.tree.signs[0]);
        let wins = |action: &G::Action| {
            let next = G::after(state, action);
            G::turn(&next) == Turn::Over && sign * G::settled(&next) >= most
        };
        self.actions().iter().any(wins).then_some(sign * most)
    }

    /// Finds which actions of the root may be taken, if this is its value.
    pub(super) fn find_shortest(&mut self, value: f32) {
        self.distances.clear();
        self.stands.clear();
        if self.tree.kinds[0] != Kind::Decision {
            // Nobody chooses among outcomes of chance.
            return self.stands.resize(self.tree.edges_of(0).len(), true);
        }
        for edge in self.tree.edges_of(0) {
            let known = self.known(edge).filter(|known| *known == value);
            let beyond = known.map(|_| self.tree.distances[self.tree.child[edge] as usize]);
            self.distances.push(beyond.map_or(NOT_PROVEN, |beyond| (beyond + 1).min(FAR)));
        }
        let outlook = self.outlook(0, value);
        self.look_closer(outlook, value);
        let wanted = (outlook != Ordering::Equal).then(|| self.best_distance(outlook));
        let stands = |&distance: &u16| distance != NOT_PROVEN && wanted.is_none_or(|wanted| distance == wanted);
        self.stands.extend(self.distances.iter().map(stands));
    }

    /// The soonest end of wins, the latest of losses.
    fn best_distance(&self, outlook: Ordering) -> u16 {
        let proven = self.distances.iter().copied().filter(|distance| *distance != NOT_PROVEN);
        if outlook == Ordering::Greater { proven.min() } else { proven.max() }.unwrap_or(NOT_PROVEN)
    }

    /// Lowers distances of actions to those of the shortest lines, as far as they decide which is best.
    fn look_closer(&mut self, outlook: Ordering, value: f32) {
        let deepest = match (G::OUTCOMES, outlook) {
            (_, Ordering::Equal) => return,
            (0, _) => DEEPEST,
            _ => 1,
        };
        let (state, sign) = (self.tree.states[0], self.tree.signs[0]);
        let goal = Goal { winner: if outlook == Ordering::Greater { sign } else { -sign }, value };
        let mut left = MOST_POSITIONS;
        self.lines.clear();
        for within in 1..=deepest {
            if within >= self.best_distance(outlook) {
                return;
            }
            for action in 0..self.distances.len() {
                let distance = self.distances[action];
                if distance <= within || outlook == Ordering::Less && distance == NOT_PROVEN {
                    continue;
                }
                let next = G::after(&state, &self.actions()[action]);
                match self.is_forced(&next, goal, within - 1, &mut left) {
                    Some(true) => self.distances[action] = within,
                    Some(false) => {}
                    None => return,
                }
            }
        }
    }

    /// Whether the winner comes to the goal within so many decisions, whatever the other does; nothing once too many positions were looked at.
    fn is_forced(&mut self, state: &G::State, goal: Goal, within: u16, left: &mut usize) -> Option<bool> {
        match G::turn(state) {
            Turn::Over => return Some(goal.winner * G::settled(state) >= goal.winner * goal.value),
            Turn::Decision if within > 0 => {}
            _ => return Some(false),
        }
        *left = left.checked_sub(1)?;
        G::actions(state, &mut self.room, &mut self.found);
        let begin = self.lines.len();
        if begin + self.found.len() > self.lines.capacity() {
            return None;
        }
        self.lines.extend_from_slice(&self.found);
        // The winner needs one line, the other must be beaten in all.
        let winner_decides = sign::<G>(state) == goal.winner;
        let mut forced = !winner_decides;
        for at in begin..self.lines.len() {
            let next = G::after(state, &self.lines[at]);
            if self.is_forced(&next, goal, within - 1, left)? == winner_decides {
                forced = winner_decides;
                break;
            }
        }
        self.lines.truncate(begin);
        Some(forced)
    }
}
