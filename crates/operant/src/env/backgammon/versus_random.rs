//! Backgammon as an env for one agent: it plays against an opponent that plays at random, and earns what a game ends with.
//!
//! An action is a pair of places that checkers leave; a double takes two actions (see [`Play::actions`]).

use super::plays::{ACTIONS, Play, Plays};
use super::position::{BAR, Points, Position, Side};
use super::{OBSERVATION, observe, roll};
use crate::env::{ActionSpace, Channel, HostAction, HostEnv, Spec};
use crate::error::{Error, Result};
use crate::lanes::rng::HostRng;
use crate::lanes::{Column, Kind};
use crate::params;
use std::cell::RefCell;

params! {
    /// It has none.
    struct Settings {}
}

/// A game at the agent's turn.
#[derive(Clone, Debug)]
pub struct BackgammonEnv {
    settings: Settings,
    /// Before the agent's play, or before the second half of its double.
    position: Position,
    dice: [u8; 2],
    /// The first two steps of a double, once they are chosen.
    first: Option<usize>,
}

/// Beside the board: six numbers for each die, the larger one first, and whether the first half of a double is played.
const SEEN: usize = OBSERVATION + 13;
/// Words of both sides, dice, and the first half.
const COLUMNS: [&str; 11] = [
    "mover 0",
    "mover 1",
    "mover 2",
    "mover 3",
    "other 0",
    "other 1",
    "other 2",
    "other 3",
    "die 1",
    "die 2",
    "first half",
];

thread_local! {
    /// Plays are found anew where they are needed: they would take more memory than all else of an env.
    static PLAYS: RefCell<Plays> = RefCell::default();
}

impl Default for BackgammonEnv {
    fn default() -> Self {
        Self { settings: Settings::default(), position: Position::START, dice: [2, 1], first: None }
    }
}

impl crate::env::Params for BackgammonEnv {
    fn params(&self) -> Vec<crate::env::Param> {
        self.settings.params()
    }

    fn store(&mut self, index: usize, value: f64) {
        self.settings.store(index, value);
    }
}

/// A position after the two steps of `26 · a + b` by a die.
fn half_played(mut position: Position, code: usize, die: u8) -> Position {
    for from in [code / (BAR + 1), code % (BAR + 1)] {
        let to = from.saturating_sub(usize::from(die));
        if from == 0 {
            continue;
        }
        position.mover = position.mover.moved(from, to);
        if to > 0 && position.other.count(BAR - to) == 1 {
            position.other = position.other.moved(BAR - to, BAR);
        }
    }
    position
}

impl BackgammonEnv {
    /// Actions that are legal now, each with the play that it begins or is.
    fn with_choices<T>(&self, visit: impl FnOnce(&mut dyn Iterator<Item = (usize, Play)>) -> T) -> T {
        PLAYS.with_borrow_mut(|plays| {
            plays.find(self.position, self.dice);
            let first = self.first;
            let mut choices = plays.iter().filter_map(|play| {
                let [one, two] = play.actions(self.dice);
                match first {
                    None => Some((one, *play)),
                    Some(first) => (one == first).then_some((two, *play)),
                }
            });
            visit(&mut choices)
        })
    }

    /// The opponent's turn; what it won, if the game ended.
    fn opponent(&mut self, dice: [u8; 2], rng: &mut HostRng) -> Option<Points> {
        PLAYS.with_borrow_mut(|plays| {
            plays.find(self.position, dice);
            self.position = plays[rng.below(plays.len() as u32) as usize].result(self.position);
        });
        self.position.lost()
    }
}

impl HostEnv for BackgammonEnv {
    fn spec(&self) -> Spec {
        let places = ["mine", "the opponent's"].into_iter().flat_map(|side| {
            let points = (1..BAR).flat_map(move |point| {
                let most = [1.0, 1.0, 1.0, 6.0];
                let names = ["one", "two", "three", "half of those beyond"];
                names
                    .into_iter()
                    .zip(most)
                    .map(move |(name, most)| Channel::new(format!("{name} on point {point} of {side}"), 0.0, most))
            });
            points.chain([
                Channel::new(format!("half of {side} on the bar"), 0.0, 7.5),
                Channel::new(format!("share of {side} borne off"), 0.0, 1.0),
            ])
        });
        let dice = ["larger", "smaller"]
            .into_iter()
            .flat_map(|die| (1..=6).map(move |pips| Channel::new(format!("{die} die is {pips}"), 0.0, 1.0)));
        Spec {
            name: "backgammon",
            id: "operant/Backgammon-v0",
            summary: "backgammon without a cube against random play; a game's points at its end",
            reference: "U.S. Backgammon Federation, rules of backgammon",
            observation: places.chain(dice).chain([Channel::new("half of a double is played", 0.0, 1.0)]).collect(),
            action: ActionSpace::Discrete(ACTIONS),
            masked: true,
            time_limit: Some(2000),
            solved_at: None,
            render_fps: 0,
        }
    }

    fn reset(&mut self, rng: &mut HostRng) {
        (self.position, self.first) = (Position::START, None);
        let first = roll(rng, true);
        // The player with the larger die begins with both.
        self.dice = first;
        if first[0] < first[1] {
            // No game ends in its first turn.
            let _ = self.opponent(first, rng);
            self.dice = roll(rng, false);
        }
    }

    fn step(&mut self, action: HostAction<'_>, rng: &mut HostRng) -> (f32, bool) {
        let action = action.index(0);
        let (dice, first) = (self.dice, self.first);
        // What is not legal is the first play that is.
        let (chosen, play) = self.with_choices(|mut choices| {
            let first = choices.next().expect("there is a play, if only that of no move");
            if first.0 == action {
                first
            } else {
                Iterator::find(&mut choices, |choice| choice.0 == action).unwrap_or(first)
            }
        });
        if dice[0] == dice[1] && first.is_none() && play.actions(dice)[1] != 0 {
            self.first = Some(chosen);
            return (0.0, false);
        }
        self.position = play.result(self.position);
        self.first = None;
        if let Some(points) = self.position.lost() {
            self.position = self.position.swapped();
            return (points as u8 as f32, true);
        }
        let theirs = roll(rng, false);
        if let Some(points) = self.opponent(theirs, rng) {
            return (-(points as u8 as f32), true);
        }
        self.dice = roll(rng, false);
        (0.0, false)
    }

    fn observe(&self, obs: &mut [f32]) {
        let (board, rest) = obs.split_at_mut(OBSERVATION);
        let shown = self.first.map_or(self.position, |code| half_played(self.position, code, self.dice[0]));
        observe(shown, board);
        rest.fill(0.0);
        let [a, b] = self.dice.map(usize::from);
        rest[a.max(b) - 1] = 1.0;
        rest[6 + a.min(b) - 1] = 1.0;
        rest[12] = f32::from(u8::from(self.first.is_some()));
        debug_assert_eq!(obs.len(), SEEN);
    }

    fn legal(&self, legal: &mut [u8]) {
        legal.fill(0);
        self.with_choices(|choices| choices.for_each(|(action, _)| legal[action] = 1));
    }

    fn columns(&self) -> Vec<Column> {
        COLUMNS.map(|name| Column { name, kind: Kind::I32 }).to_vec()
    }

    fn read(&self, state: &mut [i32]) {
        let sides = [self.position.mover, self.position.other];
        let words = sides.into_iter().flat_map(|side| (0..4).map(move |i| (side.to_bits() >> (32 * i)) as i32));
        let rest = [i32::from(self.dice[0]), i32::from(self.dice[1]), self.first.map_or(-1, |code| code as i32)];
        state.iter_mut().zip(words.chain(rest)).for_each(|(to, word)| *to = word);
    }

    fn write(&mut self, state: &[i32]) -> Result<()> {
        let &[a, b, c, d, e, f, g, h, die_1, die_2, first] = state else {
            return Err(Error::Invalid(format!("backgammon state has {} columns, got {}", COLUMNS.len(), state.len())));
        };
        let side = |words: [i32; 4]| {
            let bits = words.iter().rev().fold(0, |bits: u128, &word| bits << 32 | u128::from(word as u32));
            Side::from_bits(bits)
                .ok_or_else(|| Error::Invalid("backgammon state: a side is not fifteen checkers".into()))
        };
        let position = Position { mover: side([a, b, c, d])?, other: side([e, f, g, h])? };
        if !position.possible() {
            return Err(Error::Invalid("backgammon state: both sides have checkers on one point".into()));
        }
        if !(1..=6).contains(&die_1) || !(1..=6).contains(&die_2) {
            return Err(Error::Invalid(format!("backgammon dice {die_1}, {die_2}: wanted 1 to 6")));
        }
        let dice = [die_1 as u8, die_2 as u8];
        let next = Self { settings: self.settings, position, dice, first: None };
        let first = match first {
            -1 => None,
            code => Some(code as usize),
        };
        let begun = |code: usize| {
            next.with_choices(|mut choices| {
                Iterator::any(&mut choices, |(one, play)| one == code && play.actions(dice)[1] != 0)
            })
        };
        if first.is_some_and(|code| dice[0] != dice[1] || !begun(code)) {
            return Err(Error::Invalid(format!(
                "backgammon first half {first:?}: wanted -1, or a legal half of a double"
            )));
        }
        *self = Self { first, ..next };
        Ok(())
    }
}
