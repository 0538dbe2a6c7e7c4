//! The distance of every state of the 2×2×2 cube, by breadth-first search: what solvers and learners are judged against.

use super::Pocket;
use super::pocket::POCKET_STATES;
use operant_base::{Error, Result};
use operant_env::saved::checksum;
use operant_lanes::rng::HostRng;
use operant_nn::{read_file, write_file};
use std::path::Path;

/// What counts as one move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Quarter turns: the farthest states are 14 moves away.
    Quarter,
    /// Quarter and half turns: 11 moves.
    Half,
}

impl Metric {
    /// Its usual short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quarter => "qtm",
            Self::Half => "htm",
        }
    }

    /// The metric of this name.
    pub fn named(name: &str) -> Result<Self> {
        [Self::Quarter, Self::Half]
            .into_iter()
            .find(|metric| metric.name() == name)
            .ok_or_else(|| Error::unknown("metric", name, ["qtm", "htm"], "qtm: quarter turns, htm: half turns too"))
    }

    /// Actions that are one move.
    pub fn actions(self) -> usize {
        match self {
            Self::Quarter => 6,
            Self::Half => 9,
        }
    }
}

/// Moves from every state to the solved one.
#[derive(Clone, Debug, PartialEq)]
pub struct DistanceTable {
    metric: Metric,
    distances: Vec<u8>,
}

/// First bytes of a table's file, before the metric's name.
const HEADER: &str = "operant cube2 distances 1 ";
const UNSEEN: u8 = u8::MAX;

impl DistanceTable {
    /// Searches all states.
    pub fn build(pocket: &Pocket, metric: Metric) -> Self {
        let mut distances = vec![UNSEEN; POCKET_STATES];
        distances[Pocket::SOLVED as usize] = 0;
        let (mut frontier, mut next) = (vec![Pocket::SOLVED], Vec::new());
        for distance in 1.. {
            for &state in &frontier {
                for action in 0..metric.actions() {
                    let after = pocket.turned(state, action);
                    if distances[after as usize] == UNSEEN {
                        distances[after as usize] = distance;
                        next.push(after);
                    }
                }
            }
            std::mem::swap(&mut frontier, &mut next);
            next.clear();
            if frontier.is_empty() {
                break;
            }
        }
        Self { metric, distances }
    }

    /// What counts as one move.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Moves from a state to the solved one.
    pub fn distance(&self, state: u32) -> usize {
        usize::from(self.distances[state as usize])
    }

    /// Moves from every state to the solved one, by its number.
    pub fn into_distances(self) -> Vec<u8> {
        self.distances
    }

    /// States at each distance.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = Vec::new();
        for &distance in &self.distances {
            let distance = usize::from(distance);
            if counts.len() <= distance {
                counts.resize(distance + 1, 0);
            }
            counts[distance] += 1;
        }
        counts
    }

    /// A shortest solution, as actions.
    pub fn solve(&self, pocket: &Pocket, mut state: u32) -> Vec<usize> {
        let mut solution = Vec::with_capacity(self.distance(state));
        while self.distance(state) > 0 {
            let nearer = |&action: &usize| self.distance(pocket.turned(state, action)) < self.distance(state);
            let action = (0..self.metric.actions()).find(nearer).expect("a state that is not solved has a nearer one");
            solution.push(action);
            state = pocket.turned(state, action);
        }
        solution
    }

    /// States drawn from all at an exact distance, each with the same chance.
    pub fn draw(&self, distance: usize, count: usize, seed: u64) -> Result<Vec<u32>> {
        let at = |&state: &u32| self.distance(state) == distance;
        let states: Vec<u32> = (0..POCKET_STATES as u32).filter(at).collect();
        if states.is_empty() {
            let (most, name) = (self.counts().len() - 1, self.metric.name());
            return Err(Error::Invalid(format!("no state is at distance {distance} in {name}: wanted 0..={most}")));
        }
        let mut rng = HostRng::new(seed, 0, distance as u32, 0);
        Ok((0..count).map(|_| states[rng.below(states.len() as u32) as usize]).collect())
    }

    /// Writes a file, replaced whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut bytes = format!("{HEADER}{}\n", self.metric.name()).into_bytes();
        bytes.extend(&self.distances);
        bytes.extend(checksum(&bytes).to_le_bytes());
        write_file(path, &bytes)
    }

    /// Reads such a file.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = read_file(path)?;
        let damaged = |reason: &str| {
            let next = "build it again (operant cube2 table)";
            Error::Saved(format!("{} is no distance table: {reason}; {next}", path.display()))
        };
        let (body, sum) = bytes.split_last_chunk::<8>().ok_or_else(|| damaged("it is too short"))?;
        let body_start = HEADER.len() + 4;
        let metric = match body.get(..body_start).and_then(|header| header.strip_prefix(HEADER.as_bytes())) {
            Some(b"qtm\n") => Metric::Quarter,
            Some(b"htm\n") => Metric::Half,
            _ => return Err(damaged("it begins with other words")),
        };
        if checksum(body) != u64::from_le_bytes(*sum) || body.len() != body_start + POCKET_STATES {
            return Err(damaged("its checksum does not match"));
        }
        Ok(Self { metric, distances: body[body_start..].to_vec() })
    }
}
