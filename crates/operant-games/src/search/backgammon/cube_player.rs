//! Who decides in games with a cube, and sessions of such games.

use super::cube::{Cubeful, efficiency};
use super::network::Evaluator;
use super::player::{ByValue, Judged, RuleOfThumb};
use crate::backgammon::{
    Backgammon, Decision, Doubled, Match, OUTCOMES, Outcome, Phase, Plays, Position, Record, Stakes, State, Turn, roll,
};
use crate::search::game_net::GameNet;
use crate::search::versus::{Player, Random};
use operant_base::Result;
use operant_lanes::rng::HostRng;

/// Decides everything that a game with a cube asks.
pub trait CubePlayer {
    /// What it is called in reports.
    fn name(&self) -> String;
    /// Which of these decisions, which are all that the state has; `plays` are those of the dice, where it asks for a play.
    fn decide(&mut self, state: &Match, decisions: &[Decision], plays: &Plays, rng: HostRng) -> Result<usize>;
}

/// Says how games end.
pub trait Values {
    /// For the player on roll, before the roll.
    fn outcome(&mut self, position: Position) -> Outcome;
}

impl Values for Evaluator {
    fn outcome(&mut self, position: Position) -> Outcome {
        self.value(position)
    }
}

impl Values for ByValue {
    fn outcome(&mut self, position: Position) -> Outcome {
        self.value(position)
    }
}

impl Values for GameNet<Backgammon> {
    fn outcome(&mut self, position: Position) -> Outcome {
        let mut heads = [0.0; OUTCOMES];
        self.heads(&State { position, dice: [0; 2], player: 0, first: false }, &mut heads);
        Outcome::from_array(heads).within_rules(position)
    }
}

/// What a state before the roll is worth to the player on roll, by these values.
pub fn cubeful(values: &mut dyn Values, state: &Match) -> Cubeful<'static> {
    let position = state.board.position;
    Cubeful::new(values.outcome(position), state.stakes, state.board.player, efficiency(position))
}

/// Whether to double, or to take: the number of a decision about the cube.
fn about_the_cube(values: &mut dyn Values, state: &Match) -> usize {
    let choice = cubeful(values, state).choice();
    usize::from(if state.phase == Phase::Offered { !choice.takes() } else { choice.doubles() })
}

/// A play with what it is worth at the score and with the cube.
#[derive(Clone, Copy, Debug)]
pub struct JudgedPlay {
    /// The play and how games after it end.
    pub judged: Judged,
    /// Worth to who makes it, in points or as a chance to win the match.
    pub worth: f64,
    /// The same in units of the cube.
    pub equity: f64,
}

impl ByValue {
    /// All plays of a state's dice, best first by what they are worth there.
    pub fn judge_in(&mut self, state: &Match, plays: &Plays) -> Vec<JudgedPlay> {
        let Match { stakes, board, .. } = *state;
        let worth = |judged: Judged| {
            let after = plays[judged.play].result(board.position);
            let theirs = Cubeful::new(judged.outcome.swapped(), stakes, 1 - board.player, efficiency(after));
            let worth = theirs.to_other(theirs.on_roll());
            let mine = Cubeful::new(judged.outcome, stakes, board.player, 0.0);
            JudgedPlay { judged, worth, equity: mine.equity(worth) }
        };
        let mut all: Vec<JudgedPlay> = self.judge(board.position, plays).into_iter().map(worth).collect();
        // Those that were looked at further come first: values of unlike depths are not comparable.
        all.sort_by(|a, b| b.judged.rolls.cmp(&a.judged.rolls).then(b.worth.total_cmp(&a.worth)));
        all
    }
}

impl CubePlayer for ByValue {
    fn name(&self) -> String {
        Player::name(self)
    }

    fn decide(&mut self, state: &Match, decisions: &[Decision], plays: &Plays, _: HostRng) -> Result<usize> {
        Ok(match state.phase {
            Phase::Play if decisions.len() == 1 => 0,
            Phase::Play => self.judge_in(state, plays)[0].judged.play,
            _ => about_the_cube(self, state),
        })
    }
}

impl CubePlayer for Random {
    fn name(&self) -> String {
        Player::<Backgammon>::name(self)
    }

    fn decide(&mut self, _: &Match, decisions: &[Decision], _: &Plays, mut rng: HostRng) -> Result<usize> {
        Ok(rng.below(decisions.len() as u32) as usize)
    }
}

/// The lead in pips, as a share of the leader's own, with which to double and with which a double can be taken: the rule of 8, 9 and 12 for
/// races, without redoubles, since pips say little of endings. Of games with contact they say less: there it never doubles, and takes the
/// first double alone.
const DOUBLE_AT: f64 = 0.08;
const TAKE_TO: f64 = 0.12;

impl CubePlayer for RuleOfThumb {
    fn name(&self) -> String {
        Player::name(self)
    }

    fn decide(&mut self, state: &Match, _: &[Decision], _: &Plays, rng: HostRng) -> Result<usize> {
        let Position { mover, other } = state.board.position;
        let lead = (f64::from(other.pips()) - f64::from(mover.pips())) / f64::from(mover.pips().max(1));
        Ok(match state.phase {
            Phase::Play => chosen(self, state, rng)?,
            Phase::Offered if state.board.position.contact() => usize::from(state.stakes.cube > 1),
            Phase::Offered => usize::from(lead > TAKE_TO),
            _ => usize::from(lead >= DOUBLE_AT && state.stakes.owner.is_none() && !state.board.position.contact()),
        })
    }
}

/// The play that a player of games without a cube chooses.
fn chosen(player: &mut dyn Player<Backgammon>, state: &Match, rng: HostRng) -> Result<usize> {
    let mut out = Vec::with_capacity(1);
    player.choose(&[state.board], &[rng], &mut out)?;
    Ok(out[0])
}

/// Plays as a player of games without a cube does, and turns the cube by values.
pub struct WithCube {
    /// Who plays.
    pub player: Box<dyn Player<Backgammon>>,
    /// What decides about the cube.
    pub values: Box<dyn Values>,
}

impl CubePlayer for WithCube {
    fn name(&self) -> String {
        self.player.name()
    }

    fn decide(&mut self, state: &Match, _: &[Decision], _: &Plays, rng: HostRng) -> Result<usize> {
        Ok(match state.phase {
            Phase::Play => chosen(&mut *self.player, state, rng)?,
            _ => about_the_cube(&mut *self.values, state),
        })
    }
}

/// Sets choices apart from luck.
const CHOICES: u64 = 0x6375_6265_0000_0000;

/// Plays a match to its end, or so many games for money. Sessions `2k` and `2k + 1` have the same dice, for the other player each.
pub fn play_session(
    players: [&mut dyn CubePlayer; 2],
    stakes: Stakes,
    most_games: usize,
    seed: u64,
    session: u32,
) -> Result<Vec<Record>> {
    let (luck, swapped) = (session / 2, session as u8 % 2);
    let (mut records, mut plays, mut decisions) = (Vec::new(), Plays::default(), Vec::new());
    let [one, two] = players;
    let mut next = Some(stakes);
    while let Some(stakes) = next.filter(|_| records.len() < most_games) {
        let game = records.len() as u32;
        let first = HostRng::new(seed, luck, game, u32::MAX).below(2) as u8 ^ swapped;
        let mut record = Record { stakes, with_cube: true, first: usize::from(first), ..Record::default() };
        let (mut state, mut decided) = (Match::begin(stakes, first), 0);
        while state.won().is_none() {
            let turn = record.turns.len();
            let Some(who) = state.who() else {
                state = state.rolled(roll(&mut HostRng::new(seed, luck, game, turn as u32), state.board.first))?;
                continue;
            };
            state.decisions(&mut plays, &mut decisions);
            let rng = HostRng::new(seed ^ CHOICES, session, game, decided);
            decided += 1;
            let player = if who == 0 { &mut *one } else { &mut *two };
            let decision = decisions[player.decide(&state, &decisions, &plays, rng)?];
            match decision {
                Decision::Take | Decision::Drop => {
                    record.doubles.push(Doubled { turn, taken: decision == Decision::Take });
                }
                Decision::Play(play) => record.turns.push(Turn { dice: state.board.dice, play }),
                Decision::Roll | Decision::Double => {}
            }
            state = state.after(decision)?;
        }
        next = state.next_stakes();
        records.push(record);
    }
    Ok(records)
}
