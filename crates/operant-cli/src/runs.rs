//! `operant runs`: the runs that there are, how they stand and what came of them.

use crate::format::{self, duration, number};
use crate::output::{Failure, grouped, print};
use crate::run_folder::{RUNS, RunFolder, Status, env_name, setting};
use operant::telemetry::unix_time;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  operant runs\n  operant runs --sort return --filter cartpole")]
pub(crate) struct Args {
    /// What to sort by: newest, or largest, or first in the alphabet comes first.
    #[arg(long, value_enum, value_name = "KEY", default_value_t = Key::Age)]
    sort: Key,
    /// Only runs whose id, algorithm, env or status holds this; several words must all be there.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Where runs are.
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Key {
    Age,
    Id,
    Algo,
    Env,
    Steps,
    Return,
    Status,
    Wall,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    path: PathBuf,
    algo: String,
    env: String,
    pub(crate) status: Status,
    pub(crate) steps: Option<f64>,
    pub(crate) mean_return: Option<f64>,
    pub(crate) solved: Option<bool>,
    wall: Option<f64>,
    age: f64,
}

impl Row {
    pub(crate) fn read(folder: RunFolder, now: f64) -> Self {
        let status = folder.status();
        let config = folder.config().unwrap_or_default();
        // The results of a run that goes on again are those of its first part.
        let results = folder.results().filter(|_| status != Status::Running).unwrap_or_default();
        let newest = if results.is_empty() { folder.last_sample().unwrap_or_default() } else { Default::default() };
        let no_numbers = results.get("numbers").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
        let known = |key: &str, metric: &str| results.get(key).or_else(|| newest.get(metric)).and_then(Value::as_f64);
        Self {
            algo: setting(&config, "algo").unwrap_or_else(|| "–".into()),
            env: env_name(&config).unwrap_or_else(|| "–".into()),
            steps: known("steps", "step"),
            mean_return: known("mean_return", "return"),
            // A run that plays no episodes can't be.
            solved: results.get("solved").and_then(Value::as_bool).filter(|_| no_numbers),
            wall: known("wall_s", "seconds"),
            age: (now - folder.started()).max(0.0),
            status,
            id: folder.id,
            path: folder.path,
        }
    }

    fn holds(&self, word: &str) -> bool {
        [&self.id, &self.algo, &self.env, self.status.name()].iter().any(|text| text.contains(word))
    }

    fn json(&self) -> Value {
        json!({ "id": self.id, "path": self.path.display().to_string(), "algo": self.algo, "env": self.env, "status": self.status.name(),
                "steps": self.steps, "return": self.mean_return, "solved": self.solved, "wall_s": self.wall,
                "age_s": self.age })
    }
}

/// Largest first; what is not known last.
fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(f64::NEG_INFINITY).total_cmp(&a.unwrap_or(f64::NEG_INFINITY))
}

fn sort(rows: &mut [Row], key: Key) {
    rows.sort_by(|a, b| match key {
        Key::Age => a.age.total_cmp(&b.age),
        Key::Id => a.id.cmp(&b.id),
        Key::Algo => a.algo.cmp(&b.algo),
        Key::Env => a.env.cmp(&b.env),
        Key::Status => a.status.name().cmp(b.status.name()),
        Key::Steps => descending(a.steps, b.steps),
        Key::Return => descending(a.mean_return, b.mean_return),
        Key::Wall => descending(a.wall, b.wall),
    });
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let now = unix_time();
    let mut rows: Vec<Row> =
        RunFolder::all(&args.dir)?.into_iter().rev().map(|folder| Row::read(folder, now)).collect();
    let all = rows.len();
    if let Some(filter) = &args.filter {
        rows.retain(|row| filter.split_whitespace().all(|word| row.holds(word)));
    }
    sort(&mut rows, args.sort);
    if args.json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        return print(&format!("{}\n", json!({ "runs": rows })));
    }
    if let (true, Some(filter)) = (rows.is_empty() && all > 0, &args.filter) {
        return print(&format!("none of {all} runs holds {filter:?}; without --filter all are listed\n"));
    }
    if rows.is_empty() {
        return print("no runs; train one: operant train ppo cartpole\n");
    }
    print(&table(&rows))
}

/// What a table of runs shows of each.
pub(crate) const HEADER: [&str; 9] = ["run", "algo", "env", "status", "steps", "return", "solved", "time", "age"];

impl Row {
    /// The row under [`HEADER`].
    pub(crate) fn cells(&self) -> [String; HEADER.len()] {
        let dash = || "–".to_owned();
        [
            self.id.clone(),
            self.algo.clone(),
            self.env.clone(),
            self.status.name().to_owned(),
            self.steps.map_or_else(dash, grouped),
            self.mean_return.map_or_else(dash, number),
            self.solved.map_or_else(dash, |solved| if solved { "yes" } else { "no" }.to_owned()),
            self.wall.map_or_else(dash, duration),
            duration(self.age),
        ]
    }
}

fn table(rows: &[Row]) -> String {
    let rows: Vec<Vec<String>> =
        std::iter::once(HEADER.map(str::to_owned)).chain(rows.iter().map(Row::cells)).map(Vec::from).collect();
    format::table(&rows, &[false, false, false, false, true, true, false, true, true])
}
