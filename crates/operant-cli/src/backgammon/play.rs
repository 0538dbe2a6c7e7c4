//! `operant play`: games against a trained network, in the terminal or through a pipe, with a cube if it is asked for.

use super::analyse::listed;
use super::board::board;
use super::cube_text::{cube_lines, listed_in, stakes_line};
use super::{Game, ModelArgs};
use crate::output::{Failure, count, print};
use operant::env::backgammon::{Decision, Match, MatchId, Phase, Plays, Stakes, roll};
use operant::lanes::rng::HostRng;
use operant::search::backgammon::{ByValue, CubePlayer, cubeful};
use std::io::BufRead;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The game.
    #[arg(value_enum)]
    game: Game,
    /// A match to so many points, with the cube and the Crawford game.
    #[arg(long = "match", value_name = "POINTS", value_parser = count::<u16>, allow_negative_numbers = true)]
    match_to: Option<u16>,
    /// Games for money with the cube, one after the other until you quit.
    #[arg(long, conflicts_with = "match_to")]
    money: bool,
    /// One game for money with the cube.
    #[arg(long, conflicts_with_all = ["match_to", "money"])]
    cube: bool,
    /// For money: gammons count once while the cube was not turned.
    #[arg(long, conflicts_with = "match_to")]
    jacoby: bool,
    #[command(flatten)]
    model: ModelArgs,
    /// Seed of the dice.
    #[arg(long, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: Option<u64>,
}

const HELP: &str = "type a play as 8/5 6/5 (bar/20, 6/off, 13/7(2)), or: hint, plays, id, help, quit\n";
const CUBE_HELP: &str = "before the roll: r to roll, d to double; when doubled: t to take, p to pass\n";

/// The numbers of the players.
const YOU: u8 = 0;

/// A game at the terminal.
struct Seat<L> {
    lines: L,
    player: ByValue,
    plays: Plays,
    decisions: Vec<Decision>,
    with_cube: bool,
}

impl<L: Iterator<Item = std::io::Result<String>>> Seat<L> {
    /// Asks until something that can be decided is named; nothing if no more lines come.
    fn ask(&mut self, state: &Match) -> Result<Option<Decision>, Failure> {
        loop {
            print("> ")?;
            let Some(line) = self.lines.next() else { return Ok(None) };
            let line = line.map_err(|error| Failure::Run(format!("can't read a play: {error}")))?;
            let line = line.trim().to_lowercase();
            let word = match (state.phase, line.as_str()) {
                (_, "quit" | "q" | "exit") => return Ok(None),
                (_, "help" | "?") => {
                    print(HELP)?;
                    print(if self.with_cube { CUBE_HELP } else { "" })?;
                    continue;
                }
                (_, "id") => {
                    print(&self.id(state))?;
                    continue;
                }
                (_, "hint" | "h") => {
                    let hint = self.hint(state);
                    print(&hint)?;
                    continue;
                }
                (Phase::Cube, "r" | "roll" | "") => Decision::Roll,
                (Phase::Cube, "d" | "double") => Decision::Double,
                (Phase::Offered, "t" | "take") => Decision::Take,
                (Phase::Offered, "p" | "pass" | "drop") => Decision::Drop,
                (Phase::Cube | Phase::Offered, _) => {
                    print(CUBE_HELP)?;
                    continue;
                }
                (_, "") => continue,
                (_, "plays") => {
                    print(&self.plays.iter().map(|play| play.text() + "\n").collect::<String>())?;
                    continue;
                }
                (_, text) => match self.plays.named(state.board.position, text) {
                    Ok(play) => Decision::Play(*play),
                    Err(error) => {
                        print(&format!("{error}\n"))?;
                        continue;
                    }
                },
            };
            return Ok(Some(word));
        }
    }

    fn id(&self, state: &Match) -> String {
        let id = state.board.position.id();
        if self.with_cube { format!("{id}:{}\n", MatchId::of(state).id()) } else { format!("{id}\n") }
    }

    fn hint(&mut self, state: &Match) -> String {
        match state.phase {
            Phase::Play if self.with_cube => {
                listed_in(&self.player.judge_in(state, &self.plays), &state.stakes, &self.plays, 5)
            }
            Phase::Play => listed(&self.player.judge(state.board.position, &self.plays), &self.plays, 5),
            _ => cube_lines(state, &cubeful(&mut self.player, state)),
        }
    }

    /// What the network decides, and what it says of it.
    fn answer(&mut self, state: &Match) -> Result<(Decision, String), Failure> {
        let [a, b] = state.board.dice;
        if state.phase == Phase::Play && !self.with_cube {
            let best = self.player.judge(state.board.position, &self.plays)[0];
            let (play, equity) = (self.plays[best.play], best.outcome.equity());
            let text = format!("operant rolls {a} {b} and plays {} (equity {equity:+.3})\n", play.text());
            return Ok((Decision::Play(play), text));
        }
        let number = self.player.decide(state, &self.decisions, &self.plays, HostRng::new(0, 0, 0, 0))?;
        let decision = self.decisions[number];
        let text = match decision {
            Decision::Play(play) => format!("operant rolls {a} {b} and plays {}\n", play.text()),
            Decision::Double => format!("operant doubles to {}\n", 2 * state.stakes.cube),
            Decision::Take => format!("operant takes: the cube is at {}\n", 2 * state.stakes.cube),
            Decision::Drop => "operant passes\n".to_owned(),
            Decision::Roll => String::new(),
        };
        Ok((decision, text))
    }

    /// Plays a game; `None` if it was left.
    fn game(&mut self, stakes: Stakes, first: u8, seed: u64, number: u32) -> Result<Option<Match>, Failure> {
        let mut state = Match::begin(stakes, first);
        let mut turn = 0;
        while state.won().is_none() {
            let mine = state.who() == Some(YOU);
            state.decisions(&mut self.plays, &mut self.decisions);
            let [a, b] = state.board.dice;
            let decision = match state.phase {
                Phase::Roll => {
                    let dice = roll(&mut HostRng::new(seed, 1, number, turn), state.board.first);
                    turn += 1;
                    state = state.rolled(dice)?;
                    continue;
                }
                Phase::Cube if !self.with_cube => Decision::Roll,
                _ if !mine => {
                    let (decision, text) = self.answer(&state)?;
                    print(&text)?;
                    decision
                }
                Phase::Play => {
                    print(&format!("{}your roll: {a} {b}\n", board(state.board.position)))?;
                    if let [only] = self.decisions[..] {
                        print(&format!("only play: {}\n", self.plays[0].text()))?;
                        only
                    } else {
                        let Some(decision) = self.ask(&state)? else { return Ok(None) };
                        decision
                    }
                }
                _ => {
                    // Who doubled is on roll, and positions are seen by who is.
                    let (position, question) = match state.phase {
                        Phase::Offered => (state.board.position.swapped(), "take or pass? (t, p)\n"),
                        _ => (state.board.position, "roll or double? (r, d)\n"),
                    };
                    print(&(board(position) + &stakes_line(&state.stakes, YOU) + question))?;
                    let Some(decision) = self.ask(&state)? else { return Ok(None) };
                    decision
                }
            };
            state = state.after(decision)?;
        }
        Ok(Some(state))
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Game::Backgammon = args.game;
    let with_cube = args.match_to.is_some() || args.money || args.cube;
    if args.jacoby && !with_cube {
        return Err(Failure::Usage("--jacoby is a rule of the cube: name --money or --cube too".into()));
    }
    let stakes = args.match_to.map_or(Ok(Stakes::money(args.jacoby)), Stakes::match_to)?;
    let seed = args.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as u64)
    });
    let mut seat = Seat {
        lines: std::io::stdin().lock().lines(),
        player: args.model.player()?,
        plays: Plays::default(),
        decisions: Vec::new(),
        with_cube,
    };
    print(&format!("you are X and move from 24 to 1; seed {seed}\n{HELP}{}", if with_cube { CUBE_HELP } else { "" }))?;
    let mut next = Some(stakes);
    for number in 0.. {
        let Some(stakes) = next else { break };
        let first = HostRng::new(seed, 0, number, 0).below(2) as u8;
        let Some(end) = seat.game(stakes, first, seed, number)? else { return print("game left\n") };
        let Some(won) = end.won() else { break };
        let (who, points) = (if won.player == YOU { "you win" } else { "operant wins" }, won.points);
        print(&format!("{who} {points} point{}\n", if points == 1 { "" } else { "s" }))?;
        next = end.next_stakes().filter(|_| args.money || args.match_to.is_some());
        match &next {
            Some(stakes) => print(&format!("next game: {}", stakes_line(stakes, YOU)))?,
            None if args.match_to.is_some() => print(&format!("{who} the match\n"))?,
            None => {}
        }
    }
    Ok(())
}
