//! Backgammon as a [`Game`]: a roll is chance's, an action is a whole turn, and what it leads to is the opponent's position before the roll.
//!
//! A policy head has an output per pair of places that checkers leave (676): by the larger die and by the smaller one, with 0 for a die
//! that is not played. A double has two pairs, one after the other.

use super::bearoff::ending;
use super::plays::ACTIONS;
use super::{BAR, CHECKERS, OBSERVATION, Play, Plays, Position, ROLLS, Side, chances, draw, observe, roll};
use crate::game::{Game, Heads, Turn, mix};
use operant_base::{Error, Result};
use operant_env::Canvas;
use operant_lanes::rng::HostRng;

/// The rules, cubeless.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backgammon;

/// A position with what was rolled in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// As the player whose turn it is sees it.
    pub position: Position,
    /// The larger die first; 0 before the roll.
    pub dice: [u8; 2],
    /// Whose turn it is.
    pub player: u8,
    /// Whether nothing has been played yet: then there are no doubles.
    pub first: bool,
}

/// Inputs for each die's number, of either die.
const DIE: usize = 6;

fn packed(side: Side) -> [u64; 2] {
    let mut words = [0; 2];
    for place in 1..=BAR {
        words[place / 16] |= u64::from(side.count(place)) << (4 * (place % 16));
    }
    words
}

fn unpacked(words: [u64; 2]) -> Option<Side> {
    let mut counts = [0; BAR + 1];
    for (place, count) in counts.iter_mut().enumerate().skip(1) {
        *count = (words[place / 16] >> (4 * (place % 16)) & 15) as u8;
    }
    let clean = words[0] & 15 == 0 && words[1] >> (4 * (BAR % 16 + 1)) == 0;
    Side::new(&counts).filter(|_| clean)
}

impl Game for Backgammon {
    type State = State;
    type Action = Play;
    type Room = Plays;

    const NAME: &'static str = "backgammon";
    const PLAYERS: usize = 2;
    const OBSERVATION: usize = OBSERVATION + 2 * DIE + 1;
    const HIGHEST: f32 = 8.0;
    const POLICY: usize = ACTIONS;
    const USUAL_ACTIONS: usize = 24;
    const OUTCOMES: usize = 21;
    const RANGE: Option<[f32; 2]> = Some([-3.0, 3.0]);
    /// Win, win a gammon at least, a backgammon, lose a gammon at least, a backgammon.
    const HEADS: usize = 5;
    const HEADS_ARE: Heads = Heads::Chances;
    const WORDS: usize = 5;

    fn start() -> State {
        State { position: Position::START, dice: [0; 2], player: 0, first: true }
    }

    #[inline]
    fn turn(state: &State) -> Turn {
        if state.dice[0] > 0 {
            Turn::Decision
        } else if state.position.other.off() == CHECKERS {
            Turn::Over
        } else {
            Turn::Chance
        }
    }

    #[inline]
    fn player(state: &State) -> usize {
        usize::from(state.player)
    }

    #[inline]
    fn actions(state: &State, room: &mut Plays, out: &mut Vec<Play>) {
        room.find(state.position, state.dice);
        out.clear();
        out.extend_from_slice(room);
    }

    #[inline]
    fn after(state: &State, action: &Play) -> State {
        State { position: action.result(state.position), dice: [0; 2], player: 1 - state.player, first: false }
    }

    #[inline]
    fn policy_index(state: &State, action: &Play) -> (usize, Option<usize>) {
        let [first, second] = action.actions(state.dice);
        (first, (state.dice[0] == state.dice[1] && second > 0).then_some(second))
    }

    #[inline]
    fn chances(state: &State, out: &mut [f32]) -> usize {
        out[..ROLLS.len()].copy_from_slice(&chances(state.first));
        ROLLS.len()
    }

    /// Two dice are thrown: the same rolls as [`roll`](super::roll) has.
    #[inline]
    fn happen(state: &State, _: &mut [f32], rng: &mut HostRng) -> State {
        let [a, b] = roll(rng, state.first);
        State { dice: [a.max(b), a.min(b)], ..*state }
    }

    #[inline]
    fn happened(state: &State, outcome: usize) -> State {
        State { dice: ROLLS[outcome], ..*state }
    }

    #[inline]
    fn settled(state: &State) -> f32 {
        match state.position.lost() {
            Some(points) if state.dice[0] == 0 => {
                // The opponent of the state's player has borne off.
                let points = points as u8 as f32;
                if state.player == 0 { -points } else { points }
            }
            _ => 0.0,
        }
    }

    #[inline]
    fn bounds(state: &State) -> Option<[f32; 2]> {
        let position = state.position;
        let (mover, other) = (position.most_lost() as u8 as f32, position.swapped().most_lost() as u8 as f32);
        Some(if state.player == 0 { [-mover, other] } else { [-other, mover] })
    }

    #[inline]
    fn hash(state: &State) -> u64 {
        let [a, b] = [packed(state.position.mover), packed(state.position.other)];
        let rest = u64::from(state.dice[0]) | u64::from(state.dice[1]) << 8 | u64::from(state.player) << 16;
        let rest = rest | u64::from(state.first) << 24;
        mix(mix(mix(mix(mix(0, a[0]), a[1]), b[0]), b[1]), rest)
    }

    /// The board as [`observe`] shows it, then which numbers the larger and the smaller die show, then whether there are dice.
    fn observe(state: &State, out: &mut [f32]) {
        let (board, dice) = out.split_at_mut(OBSERVATION);
        observe(state.position, board);
        dice.fill(0.0);
        if state.dice[0] > 0 {
            dice[usize::from(state.dice[0]) - 1] = 1.0;
            dice[DIE + usize::from(state.dice[1]) - 1] = 1.0;
            dice[2 * DIE] = 1.0;
        }
    }

    fn heads_of(points: f32, out: &mut [f32]) {
        let reached = |least: f32| f32::from(u8::from(points >= least));
        let lost = |least: f32| f32::from(u8::from(points <= -least));
        out.copy_from_slice(&[reached(1.0), reached(2.0), reached(3.0), lost(2.0), lost(3.0)]);
    }

    #[inline]
    fn value_of(heads: &[f32]) -> f32 {
        2.0 * heads[0] - 1.0 + heads[1] + heads[2] - heads[3] - heads[4]
    }

    /// Both sides at home with few checkers: no gammon is left to win.
    #[inline]
    fn exact(state: &State) -> Option<f32> {
        let before_the_roll = state.dice[0] == 0;
        ending(state.position).filter(|_| before_the_roll).map(|win| 2.0 * win - 1.0)
    }

    fn write(state: &State, out: &mut [u64]) {
        let [a, b] = [packed(state.position.mover), packed(state.position.other)];
        let rest = u64::from(state.dice[0]) | u64::from(state.dice[1]) << 8 | u64::from(state.player) << 16;
        out.copy_from_slice(&[a[0], a[1], b[0], b[1], rest | u64::from(state.first) << 24]);
    }

    fn read(words: &[u64]) -> Option<State> {
        let &[a, b, c, d, rest] = words else { return None };
        let position = Position { mover: unpacked([a, b])?, other: unpacked([c, d])? };
        let [large, small, player, first] = [0, 8, 16, 24].map(|shift| (rest >> shift) as u8);
        let dice = large == 0 && small == 0 || ROLLS.contains(&[large, small]);
        let fits = dice && player <= 1 && first <= 1 && rest >> 25 == 0;
        fits.then_some(State { position, dice: [large, small], player, first: first == 1 })
    }

    /// GNU Backgammon's position id, whose turn it is (0 or 1), the dice after the roll, and `first` before anything was played.
    fn text(state: &State) -> String {
        let mut text = format!("{} {}", state.position.id(), state.player);
        if state.dice[0] > 0 {
            text += &format!(" {}{}", state.dice[0], state.dice[1]);
        }
        if state.first {
            text += " first";
        }
        text
    }

    fn parse(text: &str) -> Result<State> {
        let wrong = || {
            let wanted = "wanted a position id, 0 or 1 for the player, the dice if rolled, as in 4HPwATDgc/ABMA 0 31";
            Error::Invalid(format!("state \"{text}\": {wanted}"))
        };
        let mut words = text.split_whitespace();
        let position = Position::from_id(words.next().ok_or_else(wrong)?)?;
        let player = match words.next() {
            None | Some("0") => 0,
            Some("1") => 1,
            Some(_) => return Err(wrong()),
        };
        let mut state = State { position, dice: [0; 2], player, first: false };
        for word in words {
            match word.as_bytes() {
                b"first" => state.first = true,
                [a @ b'1'..=b'6', b @ b'1'..=b'6'] => state.dice = [*a.max(b) - b'0', *a.min(b) - b'0'],
                _ => return Err(wrong()),
            }
        }
        Ok(state)
    }

    fn draw(state: &State) -> Option<Canvas> {
        Some(draw(state.position, (state.dice[0] > 0).then_some(state.dice), usize::from(state.player)))
    }

    fn action_text(_: &State, action: &Play) -> String {
        action.text()
    }
}
