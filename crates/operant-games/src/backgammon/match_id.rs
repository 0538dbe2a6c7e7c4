//! GNU Backgammon's match IDs: cube, score and dice as twelve characters beside a position's ID, which is that of the player on roll, also
//! where the opponent has a double to answer.

use super::match_play::{Match, Phase};
use super::notation::{from_digits, to_digits};
use super::position::Position;
use super::stakes::Stakes;
use operant_base::{Error, Result};

/// Characters of an ID.
const ID_LEN: usize = 12;

/// What a match ID says. Players are 0 and 1 as GNU Backgammon counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchId {
    /// 1, 2, 4 …
    pub cube: u16,
    /// Who owns the cube; nobody while it is in the middle.
    pub owner: Option<u8>,
    /// Who is on roll.
    pub on_roll: u8,
    /// Who decides: the other one where the cube is offered.
    pub turn: u8,
    /// Whether it is the Crawford game.
    pub crawford: bool,
    /// 0 for none, 1 while a game is played, more when it is over.
    pub game_state: u8,
    /// Whether the cube is offered.
    pub doubled: bool,
    /// Points that a resignation offers: 0 for none, 1 to 3 games.
    pub resigned: u8,
    /// What was rolled.
    pub dice: Option<[u8; 2]>,
    /// Points of the match; 0 for money.
    pub length: u16,
    /// Points of players 0 and 1.
    pub scores: [u16; 2],
    /// Whether gammons count once only while the cube is in the middle (a bit that is set in matches, which know no such rule, too).
    pub jacoby_off: bool,
}

/// Sizes of the fields in bits, lowest first: cube, owner, on roll, Crawford, game, turn, doubled, resigned, dice, length, scores, Jacoby.
const BITS: [u32; 14] = [4, 2, 1, 1, 3, 1, 1, 2, 3, 3, 15, 15, 15, 1];

/// The largest score that an ID holds.
const MOST_SCORE: u16 = 0x7fff;

impl MatchId {
    /// Of a state.
    pub fn of(state: &Match) -> Self {
        let Match { stakes, board, phase } = state;
        Self {
            cube: stakes.cube,
            owner: stakes.owner,
            on_roll: board.player,
            turn: state.who().unwrap_or(board.player),
            crawford: stakes.crawford,
            game_state: if state.won().is_some() { 2 } else { 1 },
            doubled: *phase == Phase::Offered,
            resigned: 0,
            dice: (board.dice[0] > 0).then_some(board.dice),
            length: stakes.length,
            scores: stakes.scores,
            jacoby_off: !stakes.jacoby,
        }
    }

    /// The state that it says, with this position of the player on roll.
    pub fn state(&self, position: Position) -> Result<Match> {
        if self.game_state != 1 || self.resigned != 0 || position.lost().is_some() {
            let text = format!("match id \"{}\": the game is over; wanted one of a game that goes on", self.id());
            return Err(Error::Invalid(text));
        }
        let jacoby = self.length == 0 && !self.jacoby_off;
        let Self { length, scores, crawford, cube, owner, .. } = *self;
        let stakes = Stakes { length, scores, crawford, jacoby, cube, owner };
        stakes.check()?;
        let state = Match::at(stakes, position, self.on_roll, self.dice.filter(|_| !self.doubled));
        if self.doubled && !stakes.may_double(self.on_roll) {
            let what = "a double that the rules don't allow";
            return Err(Error::Invalid(format!(
                "match id \"{}\": {what}; wanted one of a game that goes on",
                self.id()
            )));
        }
        Ok(Match { phase: if self.doubled { Phase::Offered } else { state.phase }, ..state })
    }

    /// The ID as GNU Backgammon shows it.
    pub fn id(&self) -> String {
        let dice = self.dice.unwrap_or([0; 2]);
        let fields = [
            self.cube.trailing_zeros() as u16,
            self.owner.map_or(3, u16::from),
            u16::from(self.on_roll),
            u16::from(self.crawford),
            u16::from(self.game_state),
            u16::from(self.turn),
            u16::from(self.doubled),
            u16::from(self.resigned),
            u16::from(dice[0]),
            u16::from(dice[1]),
            self.length,
            self.scores[0].min(MOST_SCORE),
            self.scores[1].min(MOST_SCORE),
            u16::from(self.jacoby_off),
        ];
        let (mut key, mut at) = (0_u128, 0);
        for (field, bits) in fields.into_iter().zip(BITS) {
            key |= u128::from(field) << at;
            at += bits;
        }
        to_digits(key, ID_LEN)
    }

    /// What an ID says, or what is wrong with it.
    pub fn from_id(id: &str) -> Result<Self> {
        let wrong = |what: &str| {
            Error::Invalid(format!(
                "match id \"{id}\": {what}; wanted {ID_LEN} characters as GNU Backgammon shows them"
            ))
        };
        if id.len() != ID_LEN {
            return Err(wrong(&format!("{} characters", id.len())));
        }
        let mut key = from_digits(id).map_err(|what| wrong(&what))?;
        let mut fields = [0_u16; BITS.len()];
        for (field, bits) in fields.iter_mut().zip(BITS) {
            *field = (key & ((1 << bits) - 1)) as u16;
            key >>= bits;
        }
        let [cube, owner, on_roll, crawford, game_state, turn, doubled, resigned, a, b, length, one, two, jacoby_off] =
            fields;
        let dice = match (a, b) {
            (0, 0) => None,
            (1..=6, 1..=6) => Some([a as u8, b as u8]),
            _ => return Err(wrong("dice that no roll has")),
        };
        let owner = match owner {
            0 | 1 => Some(owner as u8),
            3 => None,
            _ => return Err(wrong("a cube that nobody can own")),
        };
        Ok(Self {
            cube: 1 << cube,
            owner,
            on_roll: on_roll as u8,
            turn: turn as u8,
            crawford: crawford == 1,
            game_state: game_state as u8,
            doubled: doubled == 1,
            resigned: resigned as u8,
            dice,
            length,
            scores: [one, two],
            jacoby_off: jacoby_off == 1,
        })
    }
}
