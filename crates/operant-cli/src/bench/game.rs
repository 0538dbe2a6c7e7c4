//! `operant bench game`: games of random plays, plays found and positions valued, per second of CPU time.

use crate::output::{Failure, count, grouped, print};
use clap::ValueEnum;
use operant::device::{self, alloc};
use operant::env::backgammon::{Outcome, Plays, Position};
use operant::lanes::rng::HostRng;
use operant::nn::{Act, Options, Precision};
use operant::search::backgammon::{BackgammonNet, Evaluator, Kind};
use serde_json::json;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The game.
    #[arg(value_enum)]
    name: Game,
    /// How long to measure each.
    #[arg(long, default_value_t = 2.0, allow_negative_numbers = true)]
    seconds: f64,
    /// Seed of dice and plays.
    #[arg(long, default_value_t = 0, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: u64,
    /// Units of the hidden layer of networks that value positions.
    #[arg(long, default_value_t = 256, value_parser = count::<usize>, allow_negative_numbers = true)]
    hidden: usize,
    /// What their products read: f32, bf16 or auto.
    #[arg(long, default_value = "auto")]
    precision: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Game {
    Backgammon,
}

/// Every game that can be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum GameName {
    Backgammon,
    Connect4,
    #[value(name = "2048")]
    Twenty48,
}

impl GameName {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Backgammon => "backgammon",
            Self::Connect4 => "connect4",
            Self::Twenty48 => "2048",
        }
    }
}

/// An expression for the rules of a game that is known by name.
macro_rules! with_game {
    ($name:expr, $game:ident => $do:expr) => {
        match $name {
            $crate::bench::game::GameName::Backgammon => {
                type $game = operant::env::backgammon::Backgammon;
                $do
            }
            $crate::bench::game::GameName::Connect4 => {
                type $game = operant::env::connect4::Connect4;
                $do
            }
            $crate::bench::game::GameName::Twenty48 => {
                type $game = operant::env::twenty48::Twenty48;
                $do
            }
        }
    };
}
pub(super) use with_game;

/// Words of randomness, many at a time: drawing them is not what is measured.
struct Dice {
    words: Vec<u32>,
    next: usize,
}

impl Dice {
    fn new(seed: u64) -> Self {
        let mut rng = HostRng::new(seed, 0, 0, 0);
        Self { words: (0..1 << 16).map(|_| rng.word()).collect(), next: 0 }
    }

    fn below(&mut self, n: usize) -> usize {
        self.next = (self.next + 1) % self.words.len();
        // Mixed with the count of uses, so that the second round differs from the first.
        let word = u64::from(self.words[self.next].wrapping_mul(self.next as u32 | 1));
        ((word * n as u64) >> 32) as usize
    }

    fn roll(&mut self) -> [u8; 2] {
        [1 + self.below(6) as u8, 1 + self.below(6) as u8]
    }
}

/// Calls per second of CPU time.
fn per_cpu_second(seconds: f64, mut call: impl FnMut()) -> f64 {
    let (start, cpu) = (Instant::now(), device::cpu_seconds());
    let mut calls = 0_u64;
    while start.elapsed().as_secs_f64() < seconds {
        for _ in 0..64 {
            call();
        }
        calls += 64;
    }
    calls as f64 / (device::cpu_seconds() - cpu)
}

/// Positions that games of random plays come to, with what could have been played there.
fn afterstates(dice: &mut Dice, plays: &mut Plays, wanted: usize) -> Vec<Position> {
    let mut found = Vec::new();
    while found.len() < wanted {
        let mut position = Position::START;
        while position.lost().is_none() {
            plays.find(position, dice.roll());
            found.extend(plays.iter().map(|play| play.result(position)));
            position = found[found.len() - 1 - dice.below(plays.len())];
        }
    }
    found.truncate(wanted);
    found
}

/// Inputs written, and positions valued, per second of CPU time.
fn evaluations(args: &Args, positions: &[Position]) -> Result<(f64, f64, Precision), Failure> {
    let precision = Precision::named(&args.precision)?;
    let net = BackgammonNet { hidden: args.hidden, activation: Act::Tanh };
    let options = Options { precision, ..Options::default() };
    let mut evaluator = Evaluator::new(&net, &net.params(args.seed)?, &options)?;
    let contact: Vec<Position> = positions.iter().copied().filter(|&at| Kind::of(at) == Kind::Contact).collect();
    let mut room = vec![0.0; INPUT_ROWS * Kind::Contact.inputs()];
    let rows = INPUT_ROWS.min(contact.len());
    let inputs =
        per_cpu_second(args.seconds, || Kind::Contact.write_inputs(options.backend, &contact[..rows], &mut room));
    let mut outcomes = vec![Outcome::default(); positions.len()];
    let batches = per_cpu_second(args.seconds, || evaluator.evaluate(positions, &mut outcomes));
    Ok((inputs * rows as f64, batches * positions.len() as f64, precision))
}

/// Rows of inputs that are written at a time.
const INPUT_ROWS: usize = 256;
/// Positions that are valued again and again.
const VALUED: usize = 4096;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !(args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(Failure::Usage(format!("--seconds {}: wanted more than 0 and at most 3600", args.seconds)));
    }
    let Game::Backgammon = args.name;
    let (mut dice, mut plays) = (Dice::new(args.seed), Plays::default());
    let allocated = alloc::allocations();
    let (mut turns, mut games) = (0_u64, 0_u64);
    let games_per_cpu_s = per_cpu_second(args.seconds, || {
        let mut position = Position::START;
        games += 1;
        while position.lost().is_none() {
            plays.find(position, dice.roll());
            position = plays[dice.below(plays.len())].result(position);
            turns += 1;
        }
    });
    let allocs_per_game = (alloc::allocations() - allocated) as f64 / games as f64;
    let play_sets_per_cpu_s = per_cpu_second(args.seconds, || plays.find(Position::START, dice.roll()));
    let positions = afterstates(&mut dice, &mut plays, VALUED);
    let (inputs_per_cpu_s, evaluations_per_cpu_s, precision) = evaluations(args, &positions)?;
    let turns_per_game = turns as f64 / games as f64;
    if args.json {
        let report = json!({
            "game": "backgammon",
            "games_per_cpu_s": games_per_cpu_s,
            "turns_per_game": turns_per_game,
            "play_sets_per_cpu_s": play_sets_per_cpu_s,
            "allocs_per_game": allocs_per_game,
            "inputs_per_cpu_s": inputs_per_cpu_s,
            "evaluations_per_cpu_s": evaluations_per_cpu_s,
            "hidden": args.hidden,
            "precision": precision.name(),
            "machine": device::describe(),
        });
        return print(&format!("{report}\n"));
    }
    print(&format!(
        "backgammon, random plays, one thread\n\
         machine            {}\n\
         games/CPU-s        {} ({turns_per_game:.0} turns each)\n\
         plays of a roll    {} sets/CPU-s (opening position, random dice)\n\
         allocations/game   {allocs_per_game}\n\
         inputs written     {} positions/CPU-s\n\
         valued             {} positions/CPU-s, inputs included ({} hidden units, {})\n",
        device::describe(),
        grouped(games_per_cpu_s),
        grouped(play_sets_per_cpu_s),
        grouped(inputs_per_cpu_s),
        grouped(evaluations_per_cpu_s),
        args.hidden,
        precision.name(),
    ))
}
