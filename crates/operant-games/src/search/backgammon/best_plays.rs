//! The best play of each of the 21 rolls, by the values of the positions that plays lead to.

use super::network::Evaluator;
use crate::backgammon::{Outcome, Plays, Position, ROLLS};

/// Values with room for what plays lead to. Allocates nothing once the room is as large as it was ever needed.
#[derive(Debug)]
pub(super) struct BestPlays {
    /// What values are by.
    pub(super) evaluator: Evaluator,
    plays: Plays,
    positions: Vec<Position>,
    outcomes: Vec<Outcome>,
    /// Where the positions of each roll end.
    ends: Vec<usize>,
}

impl BestPlays {
    /// By these values.
    pub(super) fn new(evaluator: Evaluator) -> Self {
        let (positions, outcomes, ends) = (Vec::new(), Vec::new(), Vec::new());
        Self { evaluator, plays: Plays::default(), positions, outcomes, ends }
    }

    /// Tells where the best play of each roll leads from each position whose game goes on, in the order of positions and of [`ROLLS`], and
    /// how games end from there for who is on roll then. All are valued in one batch.
    pub(super) fn of_rolls(&mut self, positions: &[Position], mut tell: impl FnMut(Position, Outcome)) {
        self.positions.clear();
        self.ends.clear();
        for &position in positions.iter().filter(|position| position.lost().is_none()) {
            for dice in ROLLS {
                self.plays.find(position, dice);
                self.positions.extend(self.plays.iter().map(|play| play.result(position)));
                self.ends.push(self.positions.len());
            }
        }
        self.outcomes.resize(self.positions.len(), Outcome::default());
        self.evaluator.evaluate(&self.positions, &mut self.outcomes);
        let mut begin = 0;
        for &end in &self.ends {
            // What is worst for the other, who is on roll then.
            let worst = |&a: &usize, &b: &usize| self.outcomes[a].equity().total_cmp(&self.outcomes[b].equity());
            let best = (begin..end).min_by(worst).expect("a roll has a play, if only that of no move");
            begin = end;
            tell(self.positions[best], self.outcomes[best]);
        }
    }
}
