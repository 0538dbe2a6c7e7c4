//! `operant eval` of a run that learned values of a puzzle: how many states it solves by search, and how short.

use crate::output::{Failure, grouped, warn};
use operant::env::cube::{Cubies, DistanceTable, Metric, Pocket};
use operant::env::puzzle::{CubePuzzle, PocketPuzzle, Puzzle, Walk};
use operant::lanes::rng::HostRng;
use operant::run::Config;
use operant::run::cubes::{Cube, Learned, Search};
use operant::search::{AstarSettings, HeldOut, Solution};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// More states than this are a mistake, or would not fit in memory.
pub(crate) const MOST_STATES: usize = 10_000_000;

#[derive(Debug, clap::Args)]
pub(crate) struct SolveArgs {
    /// Solve states this many moves from solved: 7, 1..14 or random (all states alike) [default: random]. On cube3, walks of so many moves.
    #[arg(long, value_name = "DEPTH", conflicts_with = "scrambles")]
    depth: Option<String>,
    /// States to solve, of each depth [default: 1000].
    #[arg(long, value_parser = crate::output::count::<usize>, allow_negative_numbers = true)]
    count: Option<usize>,
    /// Solve the scrambles of this file: moves or facelets, one per line.
    #[arg(long, value_name = "FILE")]
    scrambles: Option<PathBuf>,
    /// How values are searched [default: greedy].
    #[arg(long, value_enum)]
    search: Option<SearchName>,
    /// States of each depth that a beam keeps; states that astar expands at once [default: 8].
    #[arg(long, value_parser = crate::output::count::<usize>, allow_negative_numbers = true)]
    width: Option<usize>,
    /// Most moves of a solution, for greedy and beam [default: 50].
    #[arg(long, value_parser = crate::output::count::<usize>, allow_negative_numbers = true)]
    most_moves: Option<usize>,
    /// Weight of moves made, for astar [default: 1].
    #[arg(long, allow_negative_numbers = true)]
    weight: Option<f32>,
    /// Most states that astar expands [default: 100000].
    #[arg(long, value_parser = crate::output::count::<usize>, allow_negative_numbers = true)]
    most_expanded: Option<usize>,
    /// Let greedy walks come back to states that they have been at.
    #[arg(long)]
    revisits: bool,
    /// Draw only states that were held out of training.
    #[arg(long)]
    held_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SearchName {
    Greedy,
    Beam,
    Astar,
}

impl SolveArgs {
    /// Words that only a puzzle's values answer to, as far as they were given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let words = [
            ("--depth", self.depth.is_some()),
            ("--count", self.count.is_some()),
            ("--scrambles", self.scrambles.is_some()),
            ("--search", self.search.is_some()),
            ("--width", self.width.is_some()),
            ("--most-moves", self.most_moves.is_some()),
            ("--weight", self.weight.is_some()),
            ("--most-expanded", self.most_expanded.is_some()),
            ("--revisits", self.revisits),
            ("--held-out", self.held_out),
        ];
        words.into_iter().filter(|(_, given)| *given).map(|(word, _)| word).collect()
    }

    /// Refuses words that would change nothing beside others.
    fn check(&self) -> Result<(), Failure> {
        let search = self.search.unwrap_or(SearchName::Greedy);
        let from_file = self.scrambles.is_some();
        let rules = [
            (self.width.is_some() && search == SearchName::Greedy, "--width", "--search beam or astar"),
            (self.most_moves.is_some() && search == SearchName::Astar, "--most-moves", "--search greedy or beam"),
            (self.revisits && search != SearchName::Greedy, "--revisits", "--search greedy"),
            (self.weight.is_some() && search != SearchName::Astar, "--weight", "--search astar"),
            (self.most_expanded.is_some() && search != SearchName::Astar, "--most-expanded", "--search astar"),
            (self.count.is_some() && from_file, "--count", "states that are drawn, not those of --scrambles"),
            (self.held_out && from_file, "--held-out", "states that are drawn, not those of --scrambles"),
        ];
        match rules.iter().find(|(wrong, ..)| *wrong) {
            Some((_, word, what)) => Err(Failure::Usage(format!("{word} is for {what}"))),
            None => Ok(()),
        }
    }
}

/// What is known of the run.
pub(crate) struct Of<'a> {
    pub(crate) run: String,
    pub(crate) folder: &'a Path,
    pub(crate) checkpoint: &'a str,
    pub(crate) seed: u64,
    pub(crate) json: bool,
}

/// Results in a run's folder, one JSON object per line, for its report.
pub(crate) const SOLVED: &str = "solved.jsonl";

/// Adds a result to the run's; a folder that may not be written loses no more than that.
fn keep(path: &Path, result: &serde_json::Value) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(format!("{result}\n").as_bytes())) {
        warn(&format!("cannot write {}: {error}; the run's report will not show this result", path.display()));
    }
}

/// More moves than this scramble no further.
const MOST_DEPTH: usize = 1000;

/// States to solve at a depth: a number, or `None` for random ones.
type Depths = Vec<Option<usize>>;

fn depths(text: &str) -> Result<Depths, Failure> {
    let wrong = || {
        Failure::Usage(format!("--depth {text}: wanted a number up to {MOST_DEPTH}, a range such as 1..14, or random"))
    };
    let number = |word: &str| word.parse().ok().filter(|depth| *depth <= MOST_DEPTH).ok_or_else(wrong);
    match text.split_once("..") {
        _ if text == "random" => Ok(vec![None]),
        None => Ok(vec![Some(number(text)?)]),
        Some((low, high)) => {
            let (low, high) = (number(low)?, number(high.trim_start_matches('='))?);
            if low > high { Err(wrong()) } else { Ok((low..=high).map(Some).collect()) }
        }
    }
}

/// A cube as this verb needs it.
trait Scored: Cube {
    /// States of a depth.
    fn draw(&self, depth: Option<usize>, count: usize, seed: u64) -> operant::Result<Vec<Self::State>>;
    /// Moves of a shortest solution, if they are known.
    fn distance(&self, state: Self::State) -> Option<usize>;
}

/// The 2×2×2 cube with all its distances.
struct Known {
    puzzle: PocketPuzzle,
    table: DistanceTable,
}

impl Puzzle for Known {
    type State = u32;
    type Words = [i32; 2];
    fn words(&self, state: u32) -> [i32; 2] {
        self.puzzle.words(state)
    }
    fn moves(&self) -> usize {
        self.puzzle.moves()
    }
    fn inverse(&self, m: usize) -> usize {
        self.puzzle.inverse(m)
    }
    fn solved(&self) -> u32 {
        self.puzzle.solved()
    }
    fn turned(&self, state: u32, m: usize) -> u32 {
        self.puzzle.turned(state, m)
    }
    fn representative(&self, state: u32) -> u32 {
        self.puzzle.representative(state)
    }
    fn features(&self) -> operant::env::puzzle::Features {
        self.puzzle.features()
    }
    fn encode(&self, state: u32, out: &mut [i32]) {
        self.puzzle.encode(state, out);
    }
    fn state(&self, words: &[i32]) -> u32 {
        self.puzzle.state(words)
    }
    fn states(&self) -> Option<usize> {
        self.puzzle.states()
    }
    fn number(&self, state: u32) -> usize {
        self.puzzle.number(state)
    }
    fn distances(&self) -> Option<Vec<u8>> {
        self.puzzle.distances()
    }
}

impl Cube for Known {
    const SIZE: usize = PocketPuzzle::SIZE;

    fn of_cubies(&self, cube: &Cubies) -> operant::Result<u32> {
        self.puzzle.of_cubies(cube)
    }

    fn print(moves: &[u8]) -> String {
        PocketPuzzle::print(moves)
    }
}

impl Scored for Known {
    fn draw(&self, depth: Option<usize>, count: usize, seed: u64) -> operant::Result<Vec<u32>> {
        match depth {
            Some(depth) => self.table.draw(depth, count, seed),
            None => {
                let mut rng = HostRng::new(seed, 1, 0, 0);
                Ok((0..count).map(|_| Pocket::random(&mut rng)).collect())
            }
        }
    }

    fn distance(&self, state: u32) -> Option<usize> {
        Some(self.table.distance(state))
    }
}

/// Moves of a walk that counts as random on the 3×3×3.
const LONG_WALK: usize = 100;

impl Scored for CubePuzzle {
    fn draw(&self, depth: Option<usize>, count: usize, seed: u64) -> operant::Result<Vec<[i32; 4]>> {
        let depth = depth.unwrap_or(LONG_WALK);
        let walk = |row: u32| {
            let mut rng = HostRng::new(seed, row, depth as u32, 0);
            let mut walk = Walk::new(self);
            (0..depth).for_each(|_| walk.step(self, &mut rng));
            walk.state
        };
        Ok((0..count as u32).map(walk).collect())
    }

    fn distance(&self, _: [i32; 4]) -> Option<usize> {
        None
    }
}

/// A mean, if there is something to take it of.
fn per(sum: usize, count: usize) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// What was found of the states of one distance.
#[derive(Default)]
struct Score {
    states: usize,
    solved: usize,
    /// Moves of solutions, and of shortest ones for the same states.
    moves: usize,
    shortest: usize,
    optimal: usize,
    expanded: usize,
    most_expanded: usize,
}

impl Score {
    fn add(&mut self, solution: &Solution, distance: Option<usize>) {
        self.states += 1;
        self.expanded += solution.expanded;
        self.most_expanded = self.most_expanded.max(solution.expanded);
        if let Some(moves) = &solution.moves {
            self.solved += 1;
            self.moves += moves.len();
            self.shortest += distance.unwrap_or(0);
            self.optimal += usize::from(distance == Some(moves.len()));
        }
    }

    fn json(&self, distance: Option<usize>, exact: bool) -> serde_json::Value {
        json!({
            "distance": distance, "states": self.states, "solved": self.solved,
            "solve_rate": per(self.solved, self.states), "mean_length": per(self.moves, self.solved),
            "ratio_to_optimal": exact.then(|| per(self.moves, self.shortest)).flatten(),
            "optimal_share": exact.then(|| per(self.optimal, self.solved)).flatten(),
            "mean_expanded": per(self.expanded, self.states), "most_expanded": self.most_expanded,
        })
    }

    fn line(&self, name: &str, exact: bool) -> String {
        let cell = |x: Option<f64>, digits: usize| x.map_or_else(|| "-".into(), |x| format!("{x:.digits$}"));
        let ratio = exact.then(|| per(self.moves, self.shortest)).flatten();
        format!(
            "{name:>8} {:>8} {:>9} {:>12} {:>9} {:>10} {:>7}\n",
            grouped(self.states as f64),
            cell(per(100 * self.solved, self.states), 2),
            cell(per(self.moves, self.solved), 2),
            cell(ratio, 4),
            cell(per(self.expanded, self.states), 1),
            grouped(self.most_expanded as f64),
        )
    }
}

/// Tells states that training never saw.
fn held_out_of<P: Puzzle>(learned: &Learned, puzzle: &P, config: &Config) -> HeldOut<P::State> {
    match learned {
        Learned::Values(file, _) => file.held_out(puzzle),
        Learned::Policy(_) => {
            let (share, beyond) = (config.own_number("held_out"), config.own_number("held_out_beyond"));
            HeldOut::new(puzzle, share.unwrap_or(0.0), beyond.unwrap_or(0.0) as u32)
        }
    }
}

/// Solves what was asked for with what a run learned.
pub(crate) fn run(args: &SolveArgs, learned: &Learned, config: &Config, of: &Of<'_>) -> Result<String, Failure> {
    args.check()?;
    // Before tables are built.
    depths(args.depth.as_deref().unwrap_or("random"))?;
    let name = learned.puzzle(config);
    if let Some(puzzle) = name.pocket() {
        let metric = if name.half_turns { Metric::Half } else { Metric::Quarter };
        let table = DistanceTable::build(puzzle.pocket(), metric);
        return solve(args, learned, config, of, Known { puzzle, table });
    }
    match name.cube() {
        Some(puzzle) => solve(args, learned, config, of, puzzle?),
        None => Err(Failure::Usage(format!(
            "--depth, --scrambles, --search: {} is no puzzle; wanted cube2 or cube3",
            name.env
        ))),
    }
}

/// Reads scrambles: moves or facelets, one per line; what follows # is a remark.
fn read_scrambles<P: Scored>(puzzle: &P, path: &PathBuf) -> Result<Vec<P::State>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("can't read {}: {error}; check the path", path.display())))?;
    let mut states = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let state = puzzle.scrambled(line);
        let at = |error| Failure::Usage(format!("{} line {}: {error}", path.display(), number + 1));
        states.push(state.map_err(at)?);
    }
    if states.is_empty() {
        return Err(Failure::Usage(format!("{} holds no scramble: wanted one per line", path.display())));
    }
    Ok(states)
}

fn solve<P: Scored>(
    args: &SolveArgs,
    learned: &Learned,
    config: &Config,
    of: &Of<'_>,
    puzzle: P,
) -> Result<String, Failure> {
    let search = args.search.unwrap_or(SearchName::Greedy);
    let (count, width) = (args.count.unwrap_or(1000), args.width.unwrap_or(8));
    let (most_moves, weight) = (args.most_moves.unwrap_or(50), args.weight.unwrap_or(1.0));
    let most_expanded = args.most_expanded.unwrap_or(100_000);
    let least = [("--most-moves", most_moves), ("--most-expanded", most_expanded)];
    if let Some((flag, _)) = least.iter().find(|(_, number)| *number == 0) {
        return Err(Failure::Usage(format!("{flag} 0: wanted at least 1")));
    }
    for (flag, number) in [("--count", count), ("--width", width)] {
        if !(1..=MOST_STATES).contains(&number) {
            return Err(Failure::Usage(format!("{flag} {number}: wanted 1..={MOST_STATES}")));
        }
    }
    if !(weight.is_finite() && weight >= 0.0) {
        return Err(Failure::Usage(format!("--weight {weight}: wanted a number of 0 or more")));
    }
    let puzzle = Arc::new(puzzle);
    let (held_out, mut entries) = (held_out_of(learned, &*puzzle, config), vec![0; puzzle.features().shown]);
    if args.held_out && held_out.is_empty() {
        let why = match config.algo.as_str() {
            algo @ ("davi" | "dqn") => format!("{algo}.held_out = 0"),
            _ => "only davi and dqn can".into(),
        };
        return Err(Failure::Usage(format!("--held-out: this run held nothing out ({why})")));
    }
    let mut held = |state: P::State| {
        let representative = puzzle.representative(state);
        puzzle.encode(representative, &mut entries);
        held_out.holds(representative, &entries)
    };
    // A state and the depth that was asked for.
    let mut states: Vec<(P::State, Option<usize>)> = Vec::new();
    match &args.scrambles {
        Some(path) => states.extend(read_scrambles(&*puzzle, path)?.into_iter().map(|state| (state, None))),
        None => {
            for depth in depths(args.depth.as_deref().unwrap_or("random"))? {
                let mut wanted = count;
                // Draws more than enough where only some of them count.
                let rounds = if args.held_out { 1000 } else { 1 };
                for round in 0..rounds {
                    let drawn = puzzle.draw(depth, count, of.seed.wrapping_add(round << 32))?;
                    let taken = drawn.into_iter().filter(|&state| !args.held_out || held(state)).take(wanted);
                    let before = states.len();
                    states.extend(taken.map(|state| (state, depth)));
                    wanted -= states.len() - before;
                    if wanted == 0 || round == 20 && wanted == count {
                        break;
                    }
                }
                if wanted > 0 {
                    let where_ = depth.map_or_else(String::new, |depth| format!(" at depth {depth}"));
                    warn(&format!("only {} of {count} states held out of training were found{where_}", count - wanted));
                }
            }
        }
    }
    let share = states.iter().filter(|(state, _)| held(*state)).count() as f64 / states.len().max(1) as f64;
    if states.is_empty() {
        return Err(Failure::Usage("--held-out: none of these states was held out; wanted others with --depth".into()));
    }
    let mut values = learned.values(&puzzle, config)?;
    let values = &mut *values;
    let begun = Instant::now();
    let mut scores: BTreeMap<Option<usize>, Score> = BTreeMap::new();
    let mut all = Score::default();
    let mut found: Vec<Option<String>> = Vec::new();
    let starts: Vec<P::State> = states.iter().map(|(state, _)| *state).collect();
    let by = match search {
        SearchName::Greedy => Search::Greedy { most_moves, revisits: args.revisits },
        SearchName::Beam => Search::Beam { width, most_moves },
        SearchName::Astar => Search::Astar(AstarSettings { weight, batch: width, most_expanded }),
    };
    for (&(state, depth), solution) in states.iter().zip(&by.solve(&*puzzle, values, &starts)) {
        let distance = puzzle.distance(state);
        if args.scrambles.is_some() {
            found.push(solution.moves.as_ref().map(|moves| P::print(moves)));
        }
        scores.entry(distance.or(depth)).or_default().add(solution, distance);
        all.add(solution, distance);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let exact = P::SIZE == 2;
    let name = format!("{search:?}").to_lowercase();
    let rows: Vec<_> = scores.iter().map(|(distance, score)| score.json(*distance, exact)).collect();
    let scrambles = args.scrambles.as_ref().map(|path| path.display().to_string());
    let object = json!({
        "run": of.run, "checkpoint": of.checkpoint, "env": config.env, "search": name,
        "width": (search != SearchName::Greedy).then_some(width), "revisits": args.revisits,
        "metric": if puzzle.moves().is_multiple_of(9) { "htm" } else { "qtm" }, "most_moves": most_moves, "weight": weight,
        "most_expanded": (search == SearchName::Astar).then_some(most_expanded),
        "depth": scrambles.is_none().then(|| args.depth.as_deref().unwrap_or("random")), "scrambles": scrambles, "only_held_out": args.held_out,
        "seed": of.seed, "held_out_share": share, "seconds": seconds, "by_distance": rows,
        "all": all.json(None, exact), "solutions": found,
    });
    keep(&of.folder.join(SOLVED), &object);
    if of.json {
        return Ok(format!("{object}\n"));
    }
    let first = if exact { "distance" } else { "walk" };
    let mut text = format!("{first:>8}   states  solved %  mean length   × best   expanded    most\n");
    for (distance, score) in &scores {
        text += &score.line(&distance.map_or_else(|| "-".into(), |distance| distance.to_string()), exact);
    }
    text += &all.line("all", exact);
    text += &format!(
        "{name}{}, {seconds:.1} s, {:.1} % of these states held out of training, checkpoint {}\n",
        if search == SearchName::Greedy { String::new() } else { format!(", width {width}") },
        100.0 * share,
        of.checkpoint
    );
    Ok(text)
}
