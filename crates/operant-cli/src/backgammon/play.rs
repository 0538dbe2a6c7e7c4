//! `operant play`: a game against a trained network, in the terminal or through a pipe.

use super::analyse::listed;
use super::board::board;
use super::{Game, ModelArgs};
use crate::output::{Failure, count, print};
use operant::env::backgammon::{Plays, Position, roll};
use operant::lanes::rng::HostRng;
use std::io::BufRead;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The game.
    #[arg(value_enum)]
    game: Game,
    #[command(flatten)]
    model: ModelArgs,
    /// Seed of the dice.
    #[arg(long, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: Option<u64>,
}

const HELP: &str = "type a play as 8/5 6/5 (bar/20, 6/off, 13/7(2)), or: hint, plays, id, help, quit\n";

/// What a line asks for.
enum Answer {
    Play(usize),
    Quit,
}

/// Asks until a legal play is named, or no more lines come.
fn ask(
    lines: &mut dyn Iterator<Item = std::io::Result<String>>,
    player: &mut operant::search::backgammon::ByValue,
    position: Position,
    plays: &Plays,
) -> Result<Answer, Failure> {
    loop {
        print("> ")?;
        let Some(line) = lines.next() else { return Ok(Answer::Quit) };
        let line = line.map_err(|error| Failure::Run(format!("can't read a play: {error}")))?;
        match line.trim().to_lowercase().as_str() {
            "" => {}
            "quit" | "q" | "exit" => return Ok(Answer::Quit),
            "help" | "?" => print(HELP)?,
            "id" => print(&format!("{}\n", position.id()))?,
            "hint" | "h" => print(&listed(&player.judge(position, plays), plays, 5))?,
            "plays" => print(&plays.iter().map(|play| play.text() + "\n").collect::<String>())?,
            text => match plays.named(position, text) {
                Ok(play) => {
                    let chosen = plays.iter().position(|other| other == play).expect("one of these plays");
                    return Ok(Answer::Play(chosen));
                }
                Err(error) => print(&format!("{error}\n"))?,
            },
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Game::Backgammon = args.game;
    let mut player = args.model.player()?;
    let seed = args.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as u64)
    });
    let mut lines = std::io::stdin().lock().lines();
    let mut plays = Plays::default();
    let mut position = Position::START;
    let mut mine = HostRng::new(seed, 0, 0, 0).below(2) == 0;
    print(&format!("you are X and move from 24 to 1; seed {seed}\n{HELP}"))?;
    for turn in 0.. {
        let dice = roll(&mut HostRng::new(seed, 1, 0, turn), turn == 0);
        plays.find(position, dice);
        let chosen = if mine {
            print(&format!("{}your roll: {} {}\n", board(position), dice[0], dice[1]))?;
            if plays.len() == 1 {
                print(&format!("only play: {}\n", plays[0].text()))?;
                0
            } else {
                match ask(&mut lines, &mut player, position, &plays)? {
                    Answer::Play(chosen) => chosen,
                    Answer::Quit => return print("game left\n"),
                }
            }
        } else {
            let best = player.judge(position, &plays)[0];
            let (text, equity) = (plays[best.play].text(), best.outcome.equity());
            print(&format!("operant rolls {} {} and plays {text} (equity {equity:+.3})\n", dice[0], dice[1]))?;
            best.play
        };
        position = plays[chosen].result(position);
        if let Some(points) = position.lost() {
            let (who, points) = (if mine { "you win" } else { "operant wins" }, points as u8);
            return print(&format!("{who} {points} point{}\n", if points == 1 { "" } else { "s" }));
        }
        mine = !mine;
    }
    Ok(())
}
