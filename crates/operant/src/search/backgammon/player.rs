//! Who chooses plays: by a few rules, or by values one or two rolls ahead.

use super::network::Evaluator;
use crate::env::backgammon::{Backgammon, Outcome, Play, Plays, Position, ROLLS, State, chances};
use crate::error::Result;
use crate::lanes::rng::HostRng;
use crate::search::versus::Player;

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
}

/// Most plays that are looked at two rolls ahead, and how far behind the best of one roll they may be, in points.
const FILTER: (usize, f32) = (8, 0.16);

/// A play with what it leads to, for the one who makes it.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// Number of the play.
    pub play: usize,
    /// How the game ends.
    pub outcome: Outcome,
    /// Whether it was looked at as far as was asked.
    pub deep: bool,
}

/// Plays by values.
#[derive(Debug)]
pub struct ByValue {
    evaluator: Evaluator,
    depth: Depth,
    name: String,
    plays: Plays,
    positions: Vec<Position>,
    outcomes: Vec<Outcome>,
    begins: Vec<usize>,
}

impl ByValue {
    /// Looks so far ahead.
    pub fn new(name: &str, evaluator: Evaluator, depth: Depth) -> Self {
        let name = match depth {
            Depth::One => name.to_owned(),
            Depth::Two => format!("{name}, 2-ply"),
        };
        let (positions, outcomes, begins) = (Vec::new(), Vec::new(), Vec::new());
        Self { evaluator, depth, name, plays: Plays::default(), positions, outcomes, begins }
    }

    /// Values of what waits in `positions`.
    fn evaluate(&mut self) {
        self.outcomes.resize(self.positions.len(), Outcome::default());
        self.evaluator.evaluate(&self.positions, &mut self.outcomes);
    }

    /// How a game ends for the player on roll, before the roll, by the values as they are.
    pub fn value(&mut self, position: Position) -> Outcome {
        self.evaluator.value(position)
    }

    /// All plays, best first.
    pub fn judge(&mut self, position: Position, plays: &Plays) -> Vec<Judged> {
        self.positions.clear();
        self.positions.extend(plays.iter().map(|play| play.result(position)));
        self.evaluate();
        let mut judged: Vec<Judged> = (self.outcomes.iter().enumerate())
            .map(|(play, outcome)| Judged { play, outcome: outcome.swapped(), deep: self.depth == Depth::One })
            .collect();
        let best_first = |a: &Judged, b: &Judged| b.outcome.equity().total_cmp(&a.outcome.equity());
        judged.sort_by(best_first);
        if self.depth == Depth::Two && judged.len() > 1 {
            let least = judged[0].outcome.equity() - FILTER.1;
            let kept = judged.iter().take(FILTER.0).take_while(|judged| judged.outcome.equity() >= least).count();
            self.deepen(&mut judged[..kept], position, plays);
            judged[..kept].sort_by(best_first);
        }
        judged
    }

    /// Values plays by the opponent's best answers.
    fn deepen(&mut self, judged: &mut [Judged], position: Position, plays: &Plays) {
        self.positions.clear();
        self.begins.clear();
        for one in judged.iter() {
            let after = plays[one.play].result(position);
            for dice in ROLLS {
                self.begins.push(self.positions.len());
                // A game that is over stays as it is.
                if after.lost().is_none() {
                    self.plays.find(after, dice);
                    self.positions.extend(self.plays.iter().map(|play| play.result(after)));
                }
            }
        }
        self.begins.push(self.positions.len());
        self.evaluate();
        let chances = chances(false);
        for (one, begins) in judged.iter_mut().zip(self.begins.windows(ROLLS.len() + 1).step_by(ROLLS.len())) {
            one.deep = true;
            if begins[0] == begins[ROLLS.len()] {
                continue;
            }
            let mut sum = [0.0; 5];
            for (range, chance) in begins.windows(2).zip(chances) {
                let answers = self.outcomes[range[0]..range[1]].iter();
                // The opponent takes what is worst for the player, whose turn it is then.
                let worst = answers.min_by(|a, b| a.equity().total_cmp(&b.equity())).expect("a roll has a play");
                sum.iter_mut().zip(worst.to_array()).for_each(|(sum, x)| *sum += chance * x);
            }
            one.outcome = Outcome::from_array(sum);
        }
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
