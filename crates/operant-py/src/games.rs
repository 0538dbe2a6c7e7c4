//! Games for two, as values that do not change: a play gives the position after it.

use crate::error::raise;
use crate::picture::{Picture, array};
use numpy::{PyArray1, ToPyArray};
use operant::env::backgammon::{
    self, BAR, Decision, Match, MatchId, OBSERVATION, Phase, Plays, Points, Position, ROLLS, Stakes, State, Won,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A backgammon position, as the player whose turn it is sees it.
#[pyclass(frozen, eq, hash, module = "operant.games")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Backgammon(pub(crate) Position);

/// The legal plays of a roll.
pub(crate) fn found(position: Position, dice: (u8, u8)) -> PyResult<Plays> {
    if !(1..=6).contains(&dice.0) || !(1..=6).contains(&dice.1) {
        return Err(PyValueError::new_err(format!("dice {dice:?}: wanted two numbers from 1 to 6")));
    }
    if position.lost().is_some() {
        return Err(PyValueError::new_err("the game is over; begin another with Backgammon()"));
    }
    let mut plays = Plays::default();
    plays.find(position, [dice.0, dice.1]);
    Ok(plays)
}

#[pymethods]
impl Backgammon {
    /// The beginning of a game, or the position of GNU Backgammon's `position_id`.
    #[new]
    #[pyo3(signature = (position_id=None))]
    fn new(position_id: Option<&str>) -> PyResult<Self> {
        position_id.map_or(Ok(Position::START), Position::from_id).map(Self).map_err(raise)
    }

    /// The arguments from which pickle and copy make it again.
    fn __getnewargs__(&self) -> (String,) {
        (self.0.id(),)
    }

    /// GNU Backgammon's id of this position.
    #[getter]
    fn position_id(&self) -> String {
        self.0.id()
    }

    /// Checkers of the player whose turn it is: borne off, on points 1 to 24, on the bar.
    #[getter]
    fn mover(&self) -> Vec<u32> {
        (0..=BAR).map(|place| u32::from(self.0.mover.count(place))).collect()
    }

    /// Checkers of the opponent, as the opponent counts places.
    #[getter]
    fn other(&self) -> Vec<u32> {
        (0..=BAR).map(|place| u32::from(self.0.other.count(place))).collect()
    }

    /// Pips that remain: of the player whose turn it is, and of the opponent.
    #[getter]
    fn pips(&self) -> (u32, u32) {
        (self.0.mover.pips(), self.0.other.pips())
    }

    /// Points of the player whose turn it is if the game is over: -1, -2 or -3, since the opponent has just won. Else None.
    #[getter]
    fn outcome(&self) -> Option<i32> {
        self.0.lost().map(|points| -(points as i32))
    }

    /// A picture of the board, `[height, width, 3]`, as player 0 sees it; `player` is the one whose turn it is.
    #[pyo3(signature = (dice=None, player=0))]
    fn render<'py>(&self, py: Python<'py>, dice: Option<(u8, u8)>, player: u8) -> PyResult<Picture<'py>> {
        if let Some((a, b)) = dice.filter(|(a, b)| !(1..=6).contains(a) || !(1..=6).contains(b)) {
            return Err(PyValueError::new_err(format!("dice {:?}: wanted two numbers from 1 to 6", (a, b))));
        }
        if player > 1 {
            return Err(PyValueError::new_err(format!("player = {player}: wanted 0 or 1")));
        }
        array(py, &backgammon::draw(self.0, dice.map(|(a, b)| [a, b]), usize::from(player)))
    }

    /// Rolls with their probabilities. In the first turn there are no doubles.
    #[staticmethod]
    #[pyo3(signature = (first_turn=false))]
    fn chance_outcomes(first_turn: bool) -> Vec<((u8, u8), f32)> {
        let rolls = ROLLS.into_iter().map(|[a, b]| (a, b)).zip(backgammon::chances(first_turn));
        rolls.filter(|(_, chance)| *chance > 0.0).collect()
    }

    /// Every legal play of a roll as text, such as "8/5 6/5", with the position after it, where it is the opponent's turn.
    fn plays(&self, py: Python<'_>, dice: (u8, u8)) -> PyResult<Vec<(String, Self)>> {
        let plays = found(self.0, dice)?;
        Ok(py.detach(|| plays.iter().map(|play| (play.text(), Self(play.result(self.0)))).collect()))
    }

    /// The position after a play, where it is the opponent's turn.
    fn play(&self, dice: (u8, u8), text: &str) -> PyResult<Self> {
        let plays = found(self.0, dice)?;
        let play = plays.named(self.0, text).map_err(raise)?;
        Ok(Self(play.result(self.0)))
    }

    /// What a network sees: 196 numbers, per side 4 for each point, the bar and those borne off.
    fn observation<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        let mut numbers = [0.0; OBSERVATION];
        backgammon::observe(self.0, &mut numbers);
        numbers.to_pyarray(py)
    }

    fn __repr__(&self) -> String {
        format!("Backgammon(\"{}\")", self.0.id())
    }
}

/// A game of backgammon with the cube, as part of a match or for money. Players are 0 and 1.
#[pyclass(frozen, module = "operant.games")]
#[derive(Clone, Copy)]
pub(crate) struct BackgammonMatch(Match);

#[pymethods]
impl BackgammonMatch {
    /// The first game of a match to `length` points, or for money if that is 0, which player `first` begins; or the state of GNU Backgammon's
    /// `position_id` and `match_id`.
    #[new]
    #[pyo3(signature = (length=0, *, first=0, jacoby=false, position_id=None, match_id=None))]
    fn new(length: u16, first: u8, jacoby: bool, position_id: Option<&str>, match_id: Option<&str>) -> PyResult<Self> {
        if let Some(id) = match_id {
            let position = position_id.map_or(Ok(Position::START), Position::from_id).map_err(raise)?;
            return MatchId::from_id(id).and_then(|id| id.state(position)).map(Self).map_err(raise);
        }
        if position_id.is_some() {
            return Err(PyValueError::new_err("position_id without match_id: wanted both, or neither"));
        }
        if length > 0 && jacoby {
            return Err(PyValueError::new_err("jacoby in a match: wanted it for money, length 0"));
        }
        let stakes = if length == 0 { Ok(Stakes::money(jacoby)) } else { Stakes::match_to(length) };
        Ok(Self(Match::begin(stakes.map_err(raise)?, begins(first)?)))
    }

    /// What pickle and copy make it again from. GNU Backgammon's ids do not tell a roll that must come from a double that may.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Copied)> {
        let Match { stakes, board, phase } = self.0;
        let Stakes { length, scores, crawford, jacoby, cube, owner } = stakes;
        let over = match phase {
            Phase::Over(Won { player, points, by }) => Some((player, points, by.map(|by| by as u8))),
            _ => None,
        };
        let of_board = (board.position.id(), board.dice, board.player, board.first);
        let again = py.import("operant._operant")?.getattr("copied_match")?;
        Ok((again, ((length, scores, crawford, jacoby, cube, owner), of_board, self.phase().to_owned(), over)))
    }

    /// What comes next: "cube" (double or roll), "offered" (take or drop), "roll" (the dice), "play" or "over".
    #[getter]
    fn phase(&self) -> &'static str {
        match self.0.phase {
            Phase::Cube => "cube",
            Phase::Offered => "offered",
            Phase::Roll => "roll",
            Phase::Play => "play",
            Phase::Over(_) => "over",
        }
    }

    /// Who decides; None before the dice and when the game is over.
    #[getter]
    fn who(&self) -> Option<u8> {
        self.0.who()
    }

    /// Who is on roll.
    #[getter]
    fn player(&self) -> u8 {
        self.0.board.player
    }

    /// The board, as the player on roll sees it.
    #[getter]
    fn position(&self) -> Backgammon {
        Backgammon(self.0.board.position)
    }

    /// The dice that are to be played.
    #[getter]
    fn dice(&self) -> Option<(u8, u8)> {
        let [a, b] = self.0.board.dice;
        (a > 0).then_some((a, b))
    }

    /// Points that win the match; 0 for money.
    #[getter]
    fn length(&self) -> u16 {
        self.0.stakes.length
    }

    /// Points of both players before this game.
    #[getter]
    fn scores(&self) -> (u16, u16) {
        (self.0.stakes.scores[0], self.0.stakes.scores[1])
    }

    /// Whether this is the Crawford game.
    #[getter]
    fn crawford(&self) -> bool {
        self.0.stakes.crawford
    }

    /// The value of the cube.
    #[getter]
    fn cube(&self) -> u16 {
        self.0.stakes.cube
    }

    /// Whose cube it is; None while it is in the middle.
    #[getter]
    fn owner(&self) -> Option<u8> {
        self.0.stakes.owner
    }

    /// GNU Backgammon's id of cube, score and dice; that of the board is `position.position_id`.
    #[getter]
    fn match_id(&self) -> String {
        MatchId::of(&self.0).id()
    }

    /// Who won the game and how many points; None while it goes on.
    #[getter]
    fn result(&self) -> Option<(u8, u16)> {
        self.0.won().map(|won| (won.player, won.points))
    }

    /// All that can be decided: "roll", "double", "take", "drop", or plays such as "8/5 6/5".
    fn decisions(&self) -> Vec<String> {
        let (mut plays, mut all) = (Plays::default(), Vec::new());
        self.0.decisions(&mut plays, &mut all);
        all.into_iter().map(name).collect()
    }

    /// The state after a decision.
    fn apply(&self, decision: &str) -> PyResult<Self> {
        let decision = match decision {
            "roll" => Decision::Roll,
            "double" => Decision::Double,
            "take" => Decision::Take,
            "drop" => Decision::Drop,
            text if self.0.phase == Phase::Play => {
                let Match { board, .. } = self.0;
                let plays = found(board.position, (board.dice[0], board.dice[1]))?;
                Decision::Play(*plays.named(board.position, text).map_err(raise)?)
            }
            text => return Err(PyValueError::new_err(format!("{text:?}: wanted one of {:?}", self.decisions()))),
        };
        self.0.after(decision).map(Self).map_err(raise)
    }

    /// The state after the dice.
    fn roll(&self, dice: (u8, u8)) -> PyResult<Self> {
        self.0.rolled([dice.0, dice.1]).map(Self).map_err(raise)
    }

    /// The next game, which player `first` begins; None while this one goes on, and when it won the match.
    #[pyo3(signature = (first=0))]
    fn next_game(&self, first: u8) -> PyResult<Option<Self>> {
        let first = begins(first)?;
        Ok(self.0.next_stakes().map(|stakes| Self(Match::begin(stakes, first))))
    }

    fn __repr__(&self) -> String {
        let (position, id) = (self.0.board.position.id(), self.match_id());
        format!("BackgammonMatch(position_id=\"{position}\", match_id=\"{id}\")")
    }
}

/// Fields of [`Stakes`].
type CopiedStakes = (u16, [u16; 2], bool, bool, u16, Option<u8>);
/// Fields of [`State`], with the position's id.
type CopiedBoard = (String, [u8; 2], u8, bool);
/// Fields of [`Won`].
type CopiedEnd = Option<(u8, u16, Option<u8>)>;
/// What [`BackgammonMatch::__reduce__`] gives to [`copied_match`]: stakes, board, phase, and how the game ended.
type Copied = (CopiedStakes, CopiedBoard, String, CopiedEnd);

/// The state that was pickled or copied.
#[pyfunction]
pub(crate) fn copied_match(
    stakes: CopiedStakes,
    board: CopiedBoard,
    phase: &str,
    over: CopiedEnd,
) -> PyResult<BackgammonMatch> {
    let damaged = |what: String| PyValueError::new_err(format!("a pickled match with {what}; pickle it again"));
    let (length, scores, crawford, jacoby, cube, owner) = stakes;
    let stakes = Stakes { length, scores, crawford, jacoby, cube, owner };
    stakes.check().map_err(raise)?;
    let (position, dice, player, first) = board;
    if player > 1 || owner.is_some_and(|owner| owner > 1) || dice.iter().any(|&die| die > 6) {
        return Err(damaged(format!("player {player}, owner {owner:?}, dice {dice:?}")));
    }
    let position = Position::from_id(&position).map_err(raise)?;
    let phase = match (phase, over) {
        ("cube", None) => Phase::Cube,
        ("offered", None) => Phase::Offered,
        ("roll", None) => Phase::Roll,
        ("play", None) if !dice.contains(&0) => Phase::Play,
        ("over", Some((player @ 0..=1, points, by))) => {
            let named =
                |by: u8| [Points::Single, Points::Gammon, Points::Backgammon].into_iter().find(|&p| p as u8 == by);
            let known = by.map(|by| named(by).ok_or_else(|| damaged(format!("a win by {by}")))).transpose()?;
            Phase::Over(Won { player, points, by: known })
        }
        _ => return Err(damaged(format!("phase {phase:?}"))),
    };
    Ok(BackgammonMatch(Match { stakes, board: State { position, dice, player, first }, phase }))
}

fn begins(first: u8) -> PyResult<u8> {
    match first {
        0 | 1 => Ok(first),
        _ => Err(PyValueError::new_err(format!("first = {first}: wanted player 0 or 1"))),
    }
}

fn name(decision: Decision) -> String {
    match decision {
        Decision::Roll => "roll".into(),
        Decision::Double => "double".into(),
        Decision::Take => "take".into(),
        Decision::Drop => "drop".into(),
        Decision::Play(play) => play.text(),
    }
}
