//! Cubes, of 2×2×2 or 3×3×3, solved by search over what a run learned: values of states, or a policy.

use crate::cube::{Cubies, Pocket, parse_facelets, parse_moves, print_moves};
use crate::puzzle::{CubePuzzle, PocketPuzzle, Puzzle};
use crate::search::{AstarSettings, Evaluator, PuzzleName, Solution, ValueFile, Values, astar, beam, greedy};
use crate::{PolicyValues, Rewards};
use operant_base::{Error, Result};
use operant_device::threads_available;
use operant_nn::{Options, Params};
use operant_rl::Catalogue;
use operant_rl::algo::{self, Parts, Policy};
use operant_rl::run::{Checkpoints, Config};
use std::path::Path;
use std::sync::Arc;

/// A puzzle that is a cube.
pub trait Cube: Puzzle {
    /// Stickers along an edge.
    const SIZE: usize;
    /// The state of these pieces.
    fn of_cubies(&self, cube: &Cubies) -> Result<Self::State>;
    /// Moves in the usual notation.
    fn print(moves: &[u8]) -> String;

    /// The state of a scramble: moves from the solved state, or facelets.
    fn scrambled(&self, text: &str) -> Result<Self::State> {
        let count = text.chars().filter(|c| !c.is_whitespace()).count();
        // Facelets of the other cube are facelets too, and are refused as such.
        let letters = [24, 54].contains(&count);
        // Moves one by one are no facelets, even if they are as many.
        let one_by_one = text.split_whitespace().all(|word| word.len() == 1);
        let cube = match letters && !one_by_one && !text.contains(['\'', '2', '3']) {
            true => parse_facelets(text, Self::SIZE)?,
            false => turned(text)?,
        };
        self.of_cubies(&cube)
    }
}

/// The solved cube after moves in the usual notation.
fn turned(moves: &str) -> Result<Cubies> {
    let moves = parse_moves(moves)?;
    Ok(moves.iter().fold(Cubies::SOLVED, |cube, &(face, quarters)| cube.turned(face, quarters)))
}

impl Cube for PocketPuzzle {
    const SIZE: usize = 2;

    fn of_cubies(&self, cube: &Cubies) -> Result<u32> {
        Pocket::index_of_any(cube)
    }

    fn print(moves: &[u8]) -> String {
        print_moves(&moves.iter().map(|&m| Pocket::action_move(usize::from(m))).collect::<Vec<_>>())
    }
}

impl Cube for CubePuzzle {
    const SIZE: usize = 3;

    fn of_cubies(&self, cube: &Cubies) -> Result<[i32; 4]> {
        Ok(Self::of_cubies(cube))
    }

    fn print(moves: &[u8]) -> String {
        print_moves(&moves.iter().map(|&m| Self::action_move(usize::from(m))).collect::<Vec<_>>())
    }
}

/// How values are searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Search {
    /// Always to the best state beside the present one.
    Greedy {
        /// Most moves of a solution.
        most_moves: usize,
        /// Whether a walk may come back to where it was.
        revisits: bool,
    },
    /// The best states of each number of moves.
    Beam {
        /// States that are kept.
        width: usize,
        /// Most moves of a solution.
        most_moves: usize,
    },
    /// Weighted A*.
    Astar(AstarSettings),
}

/// States that are searched at once, if each keeps one at a time; beams keep all that they have been at.
const TOGETHER: usize = 1024;

impl Search {
    /// Solves states.
    pub fn solve<P: Puzzle>(
        &self,
        puzzle: &P,
        values: &mut dyn Values<P::State>,
        starts: &[P::State],
    ) -> Vec<Solution> {
        let together = match self {
            Self::Beam { width, .. } => (8 * TOGETHER / width.max(&1)).clamp(1, TOGETHER),
            _ => TOGETHER,
        };
        let mut solutions = Vec::with_capacity(starts.len());
        for starts in starts.chunks(together) {
            solutions.extend(match *self {
                Self::Greedy { most_moves, revisits } => greedy(puzzle, values, starts, most_moves, revisits),
                Self::Beam { width, most_moves } => beam(puzzle, values, starts, width, most_moves),
                Self::Astar(settings) => starts.iter().map(|&start| astar(puzzle, values, start, settings)).collect(),
            });
        }
        solutions
    }
}

/// What a run learned of a puzzle.
#[derive(Debug)]
pub enum Learned {
    /// Values of states.
    Values(ValueFile, Params),
    /// A policy, whose network values states or actions.
    Policy(Policy),
}

impl Learned {
    /// What a checkpoint holds.
    pub fn of_parts(parts: &Parts) -> Result<Self> {
        if let Some(bytes) = parts.get("value.safetensors") {
            let (file, params) = ValueFile::from_bytes(bytes)?;
            return Ok(Self::Values(file, params));
        }
        Ok(Self::Policy(Policy::from_bytes(algo::part(parts, "policy.safetensors")?)?))
    }

    /// Which puzzle it is of.
    pub fn puzzle(&self, config: &Config) -> PuzzleName {
        match self {
            Self::Values(file, _) => file.puzzle.clone(),
            Self::Policy(_) => PuzzleName::of_env(&config.env, |name| parameter(config, name)),
        }
    }

    /// Values of states; networks are planned for all threads of the machine.
    pub fn values<P: Puzzle>(&self, puzzle: &Arc<P>, config: &Config) -> Result<Box<dyn Values<P::State> + '_>> {
        let options = Options { precision: config.precision()?, ..Options::threads(threads_available()) };
        let puzzle = Arc::clone(puzzle);
        match self {
            Self::Values(file, params) => Ok(Box::new(Evaluator::new(puzzle, &file.net, params.clone(), &options)?)),
            Self::Policy(policy) => {
                let gamma = config.own_number("gamma").unwrap_or(1.0);
                let (step, solved) = (parameter(config, "step_reward"), parameter(config, "solved_reward"));
                let rewards = Rewards { step, solved, gamma };
                let env = config.registered()?;
                Ok(Box::new(PolicyValues::new(puzzle, policy, env, &config.params(), rewards, &options)?))
            }
        }
    }
}

/// A parameter of the run's env, as it was set or by default.
fn parameter(config: &Config, name: &str) -> f64 {
    let set = config.env_params.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
    let default = || {
        let entry = config.registered().ok()?;
        entry.params().into_iter().find(|param| param.name == name).map(|param| param.value)
    };
    set.or_else(default).unwrap_or(0.0)
}

/// A solver of cubes by the values of a run's checkpoint.
#[derive(Debug)]
pub struct CubeSolver {
    config: Config,
    learned: Learned,
    checkpoint: String,
}

/// What a search found of a scramble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solved {
    /// Moves in the usual notation, if the search came to an end.
    pub moves: Option<String>,
    /// States whose successors were looked at.
    pub expanded: usize,
}

impl CubeSolver {
    /// By a run's checkpoint: the one of this name, `best`, or the newest.
    pub fn open(catalogue: &'static Catalogue, run: &Path, checkpoint: Option<&str>) -> Result<Self> {
        let checkpoints = Checkpoints::new(run, 1);
        let checkpoint = checkpoints.pick(checkpoint)?;
        let parts = checkpoints.load(&checkpoint)?;
        let text = String::from_utf8_lossy(algo::part(&parts, "run.toml")?);
        let config = Config::from_text(catalogue, &text, &format!("run.toml of {checkpoint}"))?;
        if !["cube2", "cube3"].contains(&config.env.as_str()) {
            let (run, algo, env) = (run.display(), &config.algo, &config.env);
            return Err(Error::Invalid(format!("{run} is a run of {algo} on {env}: wanted one on cube2 or cube3")));
        }
        Ok(Self { learned: Learned::of_parts(&parts)?, config, checkpoint })
    }

    /// The env of the cube: cube2 or cube3.
    pub fn env(&self) -> &str {
        &self.config.env
    }

    /// The checkpoint that was taken.
    pub fn checkpoint(&self) -> &str {
        &self.checkpoint
    }

    /// Solves scrambles, each as moves from the solved state or as facelets.
    pub fn solve(&self, scrambles: &[String], search: &Search) -> Result<Vec<Solved>> {
        let name = self.learned.puzzle(&self.config);
        match (name.pocket(), name.cube()) {
            (Some(puzzle), _) => self.solve_in(puzzle, scrambles, search),
            (None, Some(puzzle)) => self.solve_in(puzzle?, scrambles, search),
            (None, None) => Err(Error::Invalid(format!("{}: wanted a run on cube2 or cube3", name.env))),
        }
    }

    fn solve_in<P: Cube>(&self, puzzle: P, scrambles: &[String], search: &Search) -> Result<Vec<Solved>> {
        let puzzle = Arc::new(puzzle);
        let starts: Vec<P::State> = scrambles.iter().map(|text| puzzle.scrambled(text)).collect::<Result<_>>()?;
        let mut values = self.learned.values(&puzzle, &self.config)?;
        let solutions = search.solve(&*puzzle, &mut *values, &starts);
        let solved = |solution: Solution| Solved {
            moves: solution.moves.map(|moves| P::print(&moves)),
            expanded: solution.expanded,
        };
        Ok(solutions.into_iter().map(solved).collect())
    }
}
