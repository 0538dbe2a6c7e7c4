//! Words of `operant eval` for runs that learned a game: against whom it is played, and how.

use crate::output::{Failure, count};
use std::path::PathBuf;

/// Whether results are also shown less the luck of the dice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Luck {
    On,
    Off,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MatchArgs {
    /// Games: against whom: random, another run; backgammon also rules (of thumb), gnubg:PLIES; connect4 also solver [default: random].
    #[arg(long, value_name = "WHOM")]
    pub(crate) against: Option<String>,
    /// Games: how many are played.
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    pub(crate) games: Option<usize>,
    /// Simulations per decision [default: alphazero: those that it was trained with; td: none, it looks --plies ahead].
    #[arg(long, value_name = "S", value_parser = count::<usize>, allow_negative_numbers = true)]
    pub(crate) simulations: Option<usize>,
    /// connect4 against its solver: random moves of openings, an even number [default: 8].
    #[arg(long, value_name = "MOVES", value_parser = count::<usize>, allow_negative_numbers = true)]
    pub(crate) opening: Option<usize>,
    /// Backgammon: play against itself and have gnubg analyse the games: error per decision times 500.
    #[arg(long, conflicts_with = "against")]
    pub(crate) error_rate: bool,
    /// td: rolls that are looked ahead, 1 to 3 [default: 1].
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3), allow_negative_numbers = true)]
    pub(crate) plies: Option<u8>,
    /// td: exact endings, from operant backgammon table.
    #[arg(long, value_name = "FILE")]
    pub(crate) table: Option<PathBuf>,
    /// Backgammon: play matches to so many points, with the cube and the Crawford game; --games says how many.
    #[arg(long = "match", value_name = "POINTS", value_parser = count::<u16>, allow_negative_numbers = true, conflicts_with = "cube")]
    pub(crate) match_to: Option<u16>,
    /// Backgammon: play games for money, with the cube.
    #[arg(long)]
    pub(crate) cube: bool,
    /// With --cube: gammons count once while the cube was not turned.
    #[arg(long, requires = "cube")]
    pub(crate) jacoby: bool,
    /// Backgammon: also show results less the luck of the dice: same mean, and between players alike in strength a fifth of the standard
    /// error [default: on with --plies 2 or 3, with search and against gnubg; off at one ply, where it takes ten times as long as the games].
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "on", conflicts_with = "error_rate")]
    pub(crate) luck: Option<Luck>,
    /// Backgammon: write the games as a .mat file; of several matches FILE-1.mat, FILE-2.mat and so on.
    #[arg(long, value_name = "FILE")]
    pub(crate) mat: Option<PathBuf>,
    /// Backgammon: write the games as an .sgf file, several matches likewise.
    #[arg(long, value_name = "FILE")]
    pub(crate) sgf: Option<PathBuf>,
}

impl MatchArgs {
    /// Refuses words that would change nothing: all but these.
    pub(crate) fn refuse(&self, all_but: &[&str], why: &str) -> Result<(), Failure> {
        let words = [
            ("--against", self.against.is_some(), "runs that learned a game"),
            ("--games", self.games.is_some(), "runs that learned a game"),
            ("--simulations", self.simulations.is_some(), "runs that learned a game"),
            ("--opening", self.opening.is_some(), "connect4 against its solver"),
            ("--error-rate", self.error_rate, "runs that learned backgammon"),
            ("--plies", self.plies.is_some(), "runs of td on backgammon"),
            ("--table", self.table.is_some(), "runs of td on backgammon"),
            ("--match", self.match_to.is_some(), "runs that learned backgammon"),
            ("--cube", self.cube, "runs that learned backgammon"),
            ("--luck", self.luck.is_some(), "runs that learned backgammon"),
            ("--mat", self.mat.is_some(), "runs that learned backgammon"),
            ("--sgf", self.sgf.is_some(), "runs that learned backgammon"),
        ];
        match words.iter().find(|(word, given, _)| *given && !all_but.contains(word)) {
            Some((word, _, what)) => Err(Failure::Usage(format!("{word} is for {what}; {why}"))),
            None => Ok(()),
        }
    }
}
