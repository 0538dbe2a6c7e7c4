//! Who chooses plays: by a few rules, or by values one to three rolls ahead.

use super::best_plays::BestPlays;
use super::network::Evaluator;
use crate::backgammon::{Backgammon, Outcome, Play, Plays, Position, ROLLS, State, chances};
use crate::search::versus::Player;
use operant_base::Result;
use operant_lanes::rng::HostRng;

/// Plays by a few rules of thumb: make points, the better the nearer to home; hit; leave no blots where they can be hit; go home.
#[derive(Clone, Copy, Debug)]
pub struct RuleOfThumb;

impl RuleOfThumb {
    /// How good a position is for the one who has just played, who is `other` in it.
    fn worth(position: Position) -> f32 {
        let (me, foe) = (position.other, position.mover);
        let mut worth = -(me.pips() as f32) / 15.0 + 3.0 * f32::from(me.off());
        worth += foe.pips() as f32 / 15.0 + 2.0 * f32::from(foe.count(25));
        if !position.contact() {
            return worth;
        }
        let behind = |point: usize| (1..=25).any(|place| foe.count(place) > 0 && 25 - place < point);
        for point in 1..25 {
            worth += match me.count(point) {
                0 => 0.0,
                1 if behind(point) => -(25.0 - point as f32) / 12.0,
                1 => 0.0,
                _ if (4..=8).contains(&point) => 2.0,
                _ => 1.0,
            };
        }
        worth
    }
}

impl Player<Backgammon> for RuleOfThumb {
    fn name(&self) -> String {
        "rules".into()
    }

    fn choose(&mut self, states: &[State], _: &[HostRng], out: &mut Vec<usize>) -> Result<()> {
        let mut plays = Plays::default();
        out.clear();
        for state in states {
            plays.find(state.position, state.dice);
            let worth = |play: &Play| {
                let after = play.result(state.position);
                if after.lost().is_some() { f32::INFINITY } else { Self::worth(after) }
            };
            let best = (0..plays.len()).max_by(|&a, &b| worth(&plays[a]).total_cmp(&worth(&plays[b])).then(b.cmp(&a)));
            out.push(best.expect("a roll has a play, if only that of no move"));
        }
        Ok(())
    }
}

/// How far ahead values are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The values of the positions that plays lead to.
    One,
    /// For the best of those, the opponent's best answer to each of the 21 rolls.
    Two,
    /// For the best of those, the best play after each of those answers and each of the 21 rolls.
    Three,
}

impl Depth {
    /// By the number of rolls, 1 to 3.
    pub fn of_rolls(rolls: u8) -> Option<Self> {
        [Self::One, Self::Two, Self::Three].get(usize::from(rolls).checked_sub(1)?).copied()
    }

    /// Rolls beyond the first.
    fn beyond(self) -> usize {
        self as usize
    }
}

/// Most plays that are looked at two and three rolls ahead, and how far behind the best of one roll fewer they may be, in points. Fewer of three,
/// because each costs 441 times a roll's plays.
const FILTERS: [(usize, f32); 2] = [(8, 0.16), (4, 0.08)];

/// A play with what it leads to, for the one who makes it.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// Number of the play.
    pub play: usize,
    /// How the game ends.
    pub outcome: Outcome,
    /// Rolls that it was looked at ahead: as many as were asked for only where it was among the best.
    pub rolls: usize,
}

/// Plays by values.
#[derive(Debug)]
pub struct ByValue {
    best_plays: BestPlays,
    depth: Depth,
    name: String,
}

impl ByValue {
    /// Looks so far ahead.
    pub fn new(name: &str, evaluator: Evaluator, depth: Depth) -> Self {
        let name = match depth {
            Depth::One => name.to_owned(),
            _ => format!("{name}, {}-ply", depth.beyond() + 1),
        };
        Self { best_plays: BestPlays::new(evaluator), depth, name }
    }

    /// Rolls that are looked ahead: as a play counts its own roll as the first, 1 takes values as they are.
    pub fn rolls(&self) -> usize {
        self.depth.beyond() + 1
    }

    /// How a game ends for the player on roll, before the roll, as far ahead as after a play.
    pub fn value(&mut self, position: Position) -> Outcome {
        self.look(&[position], self.depth.beyond())[0]
    }

    /// All plays, best first.
    pub fn judge(&mut self, position: Position, plays: &Plays) -> Vec<Judged> {
        let after: Vec<Position> = plays.iter().map(|play| play.result(position)).collect();
        let mut judged: Vec<Judged> = (self.look(&after, 0).into_iter().enumerate())
            .map(|(play, outcome)| Judged { play, outcome: outcome.swapped(), rolls: 1 })
            .collect();
        let best_first = |a: &Judged, b: &Judged| b.outcome.equity().total_cmp(&a.outcome.equity());
        judged.sort_by(best_first);
        let mut kept = judged.len();
        for (beyond, &(most, behind)) in (1..=self.depth.beyond()).zip(&FILTERS) {
            let least = judged[0].outcome.equity() - behind;
            let near = judged[..kept].iter().take(most).take_while(|judged| judged.outcome.equity() >= least);
            kept = near.count();
            let after: Vec<Position> = judged[..kept].iter().map(|judged| after[judged.play]).collect();
            for (judged, outcome) in judged[..kept].iter_mut().zip(self.look(&after, beyond)) {
                judged.outcome = outcome.swapped();
                judged.rolls = beyond + 1;
            }
            judged[..kept].sort_by(best_first);
        }
        judged
    }

    /// How games end for who is on roll in each position, so many rolls ahead; both sides play by the values as they are.
    fn look(&mut self, positions: &[Position], rolls: usize) -> Vec<Outcome> {
        if rolls == 0 {
            let mut outcomes = vec![Outcome::default(); positions.len()];
            self.best_plays.evaluator.evaluate(positions, &mut outcomes);
            return outcomes;
        }
        let rolls_in_all = positions.len() * ROLLS.len();
        let (mut best, mut values) = (Vec::with_capacity(rolls_in_all), Vec::with_capacity(rolls_in_all));
        self.best_plays.of_rolls(positions, |position, outcome| {
            best.push(position);
            values.push(outcome);
        });
        let outcomes = if rolls == 1 { values } else { self.look(&best, rolls - 1) };
        let mut rest = outcomes.chunks_exact(ROLLS.len());
        let chances = chances(false);
        (positions.iter())
            .map(|position| {
                if let Some(points) = position.lost() {
                    return Outcome::lost(points);
                }
                let mut sum = [0.0; 5];
                for (outcome, chance) in rest.next().expect("a game that goes on has its rolls").iter().zip(chances) {
                    sum.iter_mut().zip(outcome.swapped().to_array()).for_each(|(sum, x)| *sum += chance * x);
                }
                Outcome::from_array(sum)
            })
            .collect()
    }
}

impl ByValue {
    /// Looks so far ahead from now on; its name stays.
    pub fn look_ahead(&mut self, depth: Depth) {
        self.depth = depth;
    }

    /// How games end for who is on roll in each position, before the roll, as far ahead as after a play: that roll counts as the first.
    pub fn values(&mut self, positions: &[Position]) -> Vec<Outcome> {
        self.look(positions, self.depth.beyond())
    }
}

impl Player<Backgammon> for ByValue {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn choose(&mut self, states: &[State], _: &[HostRng], out: &mut Vec<usize>) -> Result<()> {
        let mut plays = Plays::default();
        out.clear();
        for state in states {
            plays.find(state.position, state.dice);
            out.push(if plays.len() == 1 { 0 } else { self.judge(state.position, &plays)[0].play });
        }
        Ok(())
    }
}
