//! Backgammon on the command line: its models, who plays whom, the outside judge, and the verbs `play`, `analyse` and `backgammon`.

mod analyse;
mod annotate;
mod board;
mod cube_games;
mod cube_text;
mod gnubg;
mod judge;
mod luck;
mod play;
mod stack;

pub(crate) use analyse::{Args as AnalyseArgs, run as analyse};
pub(crate) use judge::{Of, judge_file, run as judge};
pub(crate) use play::{Args as PlayArgs, run as play};

use crate::output::{Failure, print, write_whole};
use operant::CATALOGUE;
use operant::algo::Parts;
use operant::env::backgammon::Bearoff;
use operant::nn::{Options, Precision};
use operant::run::{Checkpoints, Config};
use operant::search::backgammon::{BackgammonFile, ByValue, Depth, Evaluator, SHIPPED};
use operant::search::game_net;
use operant::search::mcts::{self, ChanceMode};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The part of a checkpoint that plays.
pub(crate) const PART: &str = "backgammon.safetensors";

/// That of a run of alphazero, whose value heads analyse and play without a search.
const NETWORK_PART: &str = "network.safetensors";

/// The only game so far that can be played and analysed.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Game {
    Backgammon,
}

/// Networks that play.
#[derive(Debug, clap::Args)]
pub(crate) struct ModelArgs {
    /// Who values positions: the folder of a run of td or alphazero, or a .safetensors file of one [default: the network that comes with the program].
    #[arg(long, value_name = "RUN")]
    model: Option<PathBuf>,
    /// How far it looks ahead, with plays and with the cube: 1 to 3 rolls, that of a play included; before a roll 1 takes values as they are.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3), allow_negative_numbers = true)]
    plies: u8,
    /// Exact endings (see `operant backgammon table`).
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

impl ModelArgs {
    fn player(&self) -> Result<ByValue, Failure> {
        let evaluator = match &self.model {
            Some(path) => load(path)?,
            None => evaluator(SHIPPED)?,
        };
        Ok(by_value("operant", with_table(evaluator, self.table.as_deref())?, self.plies))
    }
}

fn by_value(name: &str, evaluator: Evaluator, plies: u8) -> ByValue {
    let depth = Depth::of_rolls(plies).unwrap_or(Depth::Three);
    ByValue::new(name, evaluator, depth)
}

fn with_table(evaluator: Evaluator, table: Option<&Path>) -> Result<Evaluator, Failure> {
    Ok(match table {
        Some(path) => evaluator.with_table(Arc::new(Bearoff::load(path)?)),
        None => evaluator,
    })
}

/// Plans networks from the bytes of a file; products read f32, whatever they were trained with.
fn evaluator(bytes: &[u8]) -> Result<Evaluator, Failure> {
    evaluator_in(bytes, Precision::F32)
}

fn evaluator_in(bytes: &[u8], precision: Precision) -> Result<Evaluator, Failure> {
    let (net, weights) = BackgammonFile::from_bytes(bytes)?;
    Ok(Evaluator::new(&net, &weights, &Options { precision, ..Options::default() })?)
}

/// How value networks are searched: values differ by a few hundredths of a point, priors already say so, and the dice of a visit are the
/// one that is furthest behind its chance.
const SEARCH: mcts::Settings =
    mcts::Settings { c_puct: 0.1, chance: ChanceMode::Widen, widening: 8.0, ..mcts::Settings::PLAIN };

/// The parts of a run's last checkpoint, or of a file of value networks as such a checkpoint has it.
fn parts_of(path: &Path) -> Result<Parts, Failure> {
    if path.is_file() {
        return Ok(Parts::from([(PART.to_owned(), read(path)?)]));
    }
    let failed = |error: operant::Error| Failure::Run(error.to_string());
    let below = Path::new("runs").join(path);
    let folder = if path.exists() || !below.exists() { path } else { &below };
    let checkpoints = Checkpoints::new(folder, 1);
    let name = checkpoints.pick(None).map_err(failed)?;
    checkpoints.load(&name).map_err(failed)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        Failure::Run(format!("can't read {}: {error}; name a run or a file of networks", path.display()))
    })
}

/// The networks of a run's checkpoint, or of a file.
fn load(path: &Path) -> Result<Evaluator, Failure> {
    let bytes = saved(path)?;
    let searches = game_net::game_of(&bytes).is_ok();
    let loaded = if searches {
        Evaluator::of_search(&bytes, &Options::default()).map_err(Failure::from)
    } else {
        evaluator(&bytes)
    };
    loaded.map_err(|failure| match failure {
        Failure::Run(text) => Failure::Run(format!("{}: {text}", path.display())),
        usage => usage,
    })
}

/// The bytes of those.
fn saved(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.is_file() {
        return read(path);
    }
    let mut parts = parts_of(path)?;
    let text = parts.get("run.toml").map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default();
    let config = Config::from_text(&CATALOGUE, &text, "run.toml").ok();
    let searches = config.as_ref().is_some_and(|config| config.algo == "alphazero" && config.env == "backgammon");
    parts.remove(if searches { NETWORK_PART } else { PART }).ok_or_else(|| {
        let what =
            config.map_or_else(|| "something else".into(), |config| format!("{} on {}", config.algo, config.env));
        Failure::Usage(format!("{} is a run of {what}; wanted one of td or alphazero on backgammon", path.display()))
    })
}

/// `operant backgammon`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Compute exact endings, and write them to a file for --table.
    Table(TableArgs),
    /// Make one network of several that play better together: the mean of their logits.
    Stack(stack::Args),
}

#[derive(Debug, clap::Args)]
struct TableArgs {
    /// Where to write the table.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Measure this network by the exact endings: the folder of a run of td or alphazero, or a .safetensors file of one.
    #[arg(long, value_name = "RUN")]
    model: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Table(args) => table(args),
        What::Stack(args) => stack::run(args),
    }
}

fn table(args: &TableArgs) -> Result<(), Failure> {
    let evaluator = args.model.as_deref().map(load).transpose()?;
    let begun = Instant::now();
    let table = Bearoff::build();
    let (seconds, checksum) = (begun.elapsed().as_secs_f64(), format!("{:016x}", table.checksum()));
    if let Some(path) = &args.out {
        write_whole(path, &table.to_bytes())?;
    }
    let measured = evaluator.map(|mut values| table.measure(|positions, out| values.evaluate(positions, out)));
    if args.json {
        let out = args.out.as_ref().map(|path| path.display().to_string());
        let [mean, most] = measured.map_or([None; 2], |errors| errors.map(Some));
        let report = json!({
            "seconds": seconds, "checksum": checksum, "out": out, "mean_win_error": mean, "largest_win_error": most
        });
        return print(&format!("{report}\n"));
    }
    let mut text = format!(
        "two-sided: 924 x 924 positions of up to 6 checkers each, exact\n\
         one-sided: 54,264 positions of up to 15 checkers, rolls needed\n\
         checksum {checksum}, computed in {seconds:.1} s\n"
    );
    if let Some(path) = &args.out {
        text += &format!("written to {}\n", path.display());
    }
    if let (Some([mean, most]), Some(path)) = (measured, &args.model) {
        text += &format!("{}: chances to win are off by {mean:.4} on average, {most:.4} at most\n", path.display());
    }
    print(&text)
}
