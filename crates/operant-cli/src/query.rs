//! `operant query`: SQL over the tables of a run or of a batch, which are read into memory; nothing is written.

mod statistics;

use crate::export::quoted;
use crate::format::table;
use crate::found::Found;
use crate::output::{Failure, print};
use crate::run_folder::{RUNS, RunFolder, flat};
use crate::{growth_log, live};
use operant::telemetry::Event;
use rusqlite::config::DbConfig;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Tables: metrics, events, episodes, settings; of growth also changes and outcomes; and one per other .jsonl file. \
                  Tables of a batch have a column seed. Names with a slash stand in double quotes.\n\
                  Aggregates beside SQLite's own: median(x), quantile(x, q), stddev(x) and variance(x), of a sample.\n\nExamples:\n  operant query runs/RUN \"select * from metrics limit 5\"\n  \
                  operant query runs/RUN 'select step, \"loss/value\" from metrics order by 2 desc limit 3'\n  \
                  operant query runs/RUN \"select kind, count(*) from events group by kind\" --json\n  \
                  operant query runs/RUN \"select median(return), quantile(length, 0.9), stddev(return) from episodes\"\n  \
                  operant query runs/BATCH \"select seed, max(return) from metrics group by seed\"\n  \
                  operant query runs/RUN \"select * from events where severity <> 'info'\" --parquet events.parquet"
)]
pub(crate) struct Args {
    /// A run's folder, or that of a batch of seeds, or its name below --dir.
    run: String,
    /// A statement in SQL, as SQLite knows it; without one, the tables and their columns are shown.
    sql: Option<String>,
    /// Print an array of JSON objects.
    #[arg(long, conflicts_with_all = ["csv", "parquet"])]
    json: bool,
    /// Print comma-separated values.
    #[arg(long, conflicts_with = "parquet")]
    csv: bool,
    /// Write an Apache Parquet file, which pandas, polars and DuckDB read.
    #[arg(long, value_name = "FILE", requires = "sql")]
    parquet: Option<PathBuf>,
    /// Where runs are.
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    dir: PathBuf,
}

/// Most columns that a table can have (SQLite's limit).
const MOST_COLUMNS: usize = 2000;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let tables = Tables::of(&Found::find(&args.run, &args.dir)?)?;
    let Some(sql) = &args.sql else { return print(&tables.described()) };
    let answer = tables.ask(sql)?;
    if let Some(path) = &args.parquet {
        let bytes = crate::parquet::file(&answer.names, &answer.rows).map_err(Failure::Run)?;
        written_whole(path, &bytes)?;
        return print(&format!("{}: {} rows\n", path.display(), answer.rows.len()));
    }
    print(&if args.json {
        answer.json()
    } else if args.csv {
        answer.csv()
    } else {
        answer.text()
    })
}

/// Writes a file beside its place and moves it there, so that nobody sees half of it.
fn written_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        let path = path.display();
        Failure::Run(format!("cannot write {path}: {error}; name a file that you may write with --parquet"))
    })
}

/// Tables of a run, or of all runs of a batch.
struct Tables {
    connection: Connection,
    /// Names of tables and of their columns.
    known: Vec<(String, Vec<String>)>,
}

/// Rows of named columns.
struct Answer {
    names: Vec<String>,
    rows: Vec<Vec<Value>>,
}

fn broken(error: rusqlite::Error) -> Failure {
    Failure::Run(format!("SQLite: {error}"))
}

/// A name as SQL takes it.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A number that is known, or null.
fn real(x: f64) -> Value {
    if x.is_finite() { Value::Real(x) } else { Value::Null }
}

fn integer(x: impl TryInto<i64>) -> Value {
    x.try_into().map_or(Value::Null, Value::Integer)
}

/// A table before SQLite has it.
struct Gathered {
    name: String,
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
}

/// Tables that every run has; files of other names are tables of their own.
const OWN: [&str; 6] = ["metrics", "events", "episodes", "settings", "changes", "outcomes"];

/// Reads runs into tables. Rows of a batch begin with the seed of their run.
#[derive(Default)]
struct Gatherer {
    tables: Vec<Gathered>,
    seed: Option<u64>,
}

impl Gatherer {
    fn run(&mut self, folder: &RunFolder) -> Result<(), Failure> {
        self.metrics(folder)?;
        let (_, data) = live::Source::open(folder)?;
        let events = folder.events();
        let of_event = |event: &Event| {
            let text = |text: String| Value::Text(text);
            let [severity, topic] = [event.kind.severity().name(), event.kind.topic()].map(|name| text(name.into()));
            let first = [integer(event.step), real(event.unix_time), text(event.kind.to_string())];
            first.into_iter().chain([severity, topic, text(event.text.clone())]).collect()
        };
        self.add("events", &["step", "time", "kind", "severity", "topic", "text"], events.iter().map(of_event));
        let episodes = data
            .episodes
            .iter()
            .map(|e| vec![integer(e.step), integer(e.env), real(e.episode_return), integer(e.length)]);
        self.add("episodes", &["step", "env", "return", "length"], episodes);
        let settings = flat(&folder.config().unwrap_or_default());
        let settings = settings.into_iter().map(|(key, value)| vec![Value::Text(key), Value::Text(value)]);
        self.add("settings", &["key", "value"], settings);
        if data.env == "growth" {
            self.growth(&events);
        }
        self.other_files(folder);
        Ok(())
    }

    fn metrics(&mut self, folder: &RunFolder) -> Result<(), Failure> {
        let history = folder.history(usize::MAX)?;
        let columns: Vec<&[f64]> = history.names().iter().filter_map(|name| history.column(name)).collect();
        let names: Vec<&str> =
            ["step", "seconds"].into_iter().chain(history.names().iter().map(String::as_str)).collect();
        let row = |i: usize| {
            let first = [integer(history.steps()[i]), real(history.seconds()[i])];
            first.into_iter().chain(columns.iter().map(|column| real(column[i]))).collect()
        };
        self.add("metrics", &names, (0..history.len()).map(row));
        Ok(())
    }

    fn growth(&mut self, events: &[Event]) {
        let changes =
            events.iter().filter_map(|event| Some((event.step, growth_log::change(event)?))).map(|(step, c)| {
                let blueprint = c.blueprint.map_or(Value::Null, Value::Text);
                let [from, to] = [c.from, c.to].map(Value::Text);
                vec![integer(step), integer(c.env), integer(c.epoch), integer(c.slot), from, to, blueprint]
            });
        self.add("changes", &["step", "env", "epoch", "slot", "before", "after", "blueprint"], changes);
        let outcomes = events.iter().filter_map(|event| Some((event.step, growth_log::outcome(event)?)));
        let outcomes = outcomes.map(|(step, o)| {
            vec![integer(step), integer(o.env), real(o.accuracy), integer(o.fossils), integer(o.parameters)]
        });
        self.add("outcomes", &["step", "env", "accuracy", "fossils", "parameters"], outcomes);
    }

    /// A table of each other file of JSON objects, with the columns of all its lines; what is no number or text stays JSON.
    fn other_files(&mut self, folder: &RunFolder) {
        let entries = std::fs::read_dir(&folder.path).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
        files.sort();
        for path in files {
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if OWN.contains(&name.as_str()) {
                continue;
            }
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
            let parse = |line: &str| serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line).ok();
            let objects: Vec<_> = text.lines().filter_map(parse).collect();
            let mut names: Vec<&str> = Vec::new();
            for key in objects.iter().flat_map(|object| object.keys()) {
                if !names.contains(&key.as_str()) {
                    names.push(key);
                }
            }
            let value = |value: Option<&serde_json::Value>| match value {
                None | Some(serde_json::Value::Null) => Value::Null,
                Some(serde_json::Value::String(text)) => Value::Text(text.clone()),
                Some(serde_json::Value::Bool(holds)) => Value::Integer(i64::from(*holds)),
                Some(serde_json::Value::Number(x)) => {
                    x.as_i64().map_or_else(|| real(x.as_f64().unwrap_or(f64::NAN)), Value::Integer)
                }
                Some(other) => Value::Text(other.to_string()),
            };
            let rows = objects.iter().map(|object| names.iter().map(|name| value(object.get(*name))).collect());
            self.add(&name, &names, rows);
        }
    }

    /// Adds rows to a table, which gets the columns that it lacks.
    fn add(&mut self, name: &str, columns: &[&str], rows: impl Iterator<Item = Vec<Value>>) {
        let seed = self.seed.map(integer);
        // Some files have a seed of their own, such as that of an evaluation.
        let key = if columns.contains(&"seed") { "run_seed" } else { "seed" };
        let columns: Vec<&str> = seed.iter().map(|_| key).chain(columns.iter().copied()).collect();
        let at = self.tables.iter().position(|table| table.name == name).unwrap_or_else(|| {
            self.tables.push(Gathered { name: name.to_owned(), columns: Vec::new(), rows: Vec::new() });
            self.tables.len() - 1
        });
        let table = &mut self.tables[at];
        let place = |column: &&str| {
            table.columns.iter().position(|known| known == column).unwrap_or_else(|| {
                table.columns.push((*column).to_owned());
                table.columns.len() - 1
            })
        };
        let places: Vec<usize> = columns.iter().map(place).collect();
        let width = table.columns.len();
        table.rows.extend(rows.map(|row| {
            let mut full = vec![Value::Null; width];
            places.iter().zip(seed.iter().cloned().chain(row)).for_each(|(place, value)| full[*place] = value);
            full
        }));
    }
}

impl Tables {
    fn of(found: &Found) -> Result<Self, Failure> {
        let connection = Connection::open_in_memory().map_err(broken)?;
        // Else a column's name with a slip in it would be a text.
        for option in [DbConfig::SQLITE_DBCONFIG_DQS_DML, DbConfig::SQLITE_DBCONFIG_DQS_DDL] {
            connection.set_db_config(option, false).map_err(broken)?;
        }
        statistics::add(&connection).map_err(broken)?;
        let mut gatherer = Gatherer::default();
        for (seed, folder) in found.seeded() {
            gatherer.seed = seed;
            gatherer.run(folder)?;
        }
        let mut tables = Self { connection, known: Vec::new() };
        gatherer
            .tables
            .into_iter()
            .filter(|table| !table.columns.is_empty())
            .try_for_each(|table| tables.add(table))?;
        Ok(tables)
    }

    fn add(&mut self, table: Gathered) -> Result<(), Failure> {
        let Gathered { name, mut columns, rows } = table;
        if columns.len() > MOST_COLUMNS {
            crate::output::warn(&format!("{name} has {} columns; the first {MOST_COLUMNS} are shown", columns.len()));
        }
        columns.truncate(MOST_COLUMNS);
        let listed = columns.iter().map(|column| identifier(column)).collect::<Vec<_>>().join(", ");
        let marks = vec!["?"; columns.len()].join(", ");
        let name_in_sql = identifier(&name);
        let begun = self.connection.unchecked_transaction().map_err(broken)?;
        begun.execute_batch(&format!("create table {name_in_sql} ({listed})")).map_err(broken)?;
        {
            let mut insert = begun.prepare(&format!("insert into {name_in_sql} values ({marks})")).map_err(broken)?;
            for mut row in rows {
                // Rows from before a column was known end earlier.
                row.resize(columns.len(), Value::Null);
                insert.execute(params_from_iter(row)).map_err(broken)?;
            }
        }
        begun.commit().map_err(broken)?;
        self.known.push((name, columns));
        Ok(())
    }

    /// Tables with their columns, one per line.
    fn described(&self) -> String {
        let rows = self.known.iter().map(|(table, columns)| {
            let names: Vec<String> = columns.iter().map(|name| shown(name)).collect();
            format!("{table}: {}\n", names.join(", "))
        });
        rows.collect()
    }

    fn ask(&self, sql: &str) -> Result<Answer, Failure> {
        let wrong = |error: rusqlite::Error| Failure::Usage(self.explained(&error));
        let mut statement = self.connection.prepare(sql).map_err(wrong)?;
        let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
        if names.is_empty() || !statement.readonly() {
            return Err(Failure::Usage("the statement selects nothing: wanted select … from …".into()));
        }
        let mut rows = statement.query([]).map_err(wrong)?;
        let mut answer = Answer { names, rows: Vec::new() };
        while let Some(row) = rows.next().map_err(wrong)? {
            let cells = (0..answer.names.len()).map(|i| row.get_ref(i).map(owned));
            answer.rows.push(cells.collect::<Result<_, _>>().map_err(wrong)?);
        }
        Ok(answer)
    }

    /// What SQLite says, with the names that there are.
    fn explained(&self, error: &rusqlite::Error) -> String {
        let text = match error {
            rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
            other => other.to_string(),
        };
        if let Some(name) = text.strip_prefix("no such table: ") {
            let names = self.known.iter().map(|(table, _)| table.as_str());
            return operant::Error::unknown("table", name, names, "operant query RUN").to_string();
        }
        if let Some(name) = text.strip_prefix("no such column: ") {
            let name =
                name.rsplit('.').next().unwrap_or(name).split(" - should").next().unwrap_or(name).trim_matches('"');
            let names = self.known.iter().flat_map(|(_, columns)| columns).map(String::as_str);
            let mut said = operant::Error::unknown("column", name, names, "operant query RUN").to_string();
            let with_slash = |column: &&String| column.split('/').any(|part| part == name);
            if let Some(column) = self.known.iter().flat_map(|(_, columns)| columns).find(with_slash) {
                said += &format!("; names with a slash stand in double quotes: {}", shown(column));
            }
            return said;
        }
        text
    }
}

/// A column's name as it is written in a statement.
fn shown(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(plain) { name.to_owned() } else { identifier(name) }
}

fn owned(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(x) => Value::Integer(x),
        ValueRef::Real(x) => Value::Real(x),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

impl Answer {
    fn cell(value: &Value) -> String {
        match value {
            Value::Null | Value::Blob(_) => String::new(),
            Value::Integer(x) => x.to_string(),
            Value::Real(x) => format!("{x}"),
            Value::Text(text) => text.clone(),
        }
    }

    /// Columns side by side, numbers to the right.
    fn text(&self) -> String {
        let number = |i: usize| self.rows.iter().all(|row| !matches!(row[i], Value::Text(_)));
        let right: Vec<bool> = (0..self.names.len()).map(number).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(Self::cell).collect());
        table(&[self.names.clone()].into_iter().chain(rows).collect::<Vec<_>>(), &right)
    }

    fn csv(&self) -> String {
        let line = |cells: Vec<String>| cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",") + "\n";
        let rows = self.rows.iter().map(|row| line(row.iter().map(Self::cell).collect()));
        line(self.names.clone()) + &rows.collect::<String>()
    }

    fn json(&self) -> String {
        let value = |value: &Value| match value {
            Value::Null | Value::Blob(_) => serde_json::Value::Null,
            Value::Integer(x) => json!(x),
            Value::Real(x) => json!(x),
            Value::Text(text) => json!(text),
        };
        let rows = self.rows.iter().map(|row| {
            let cells = self.names.iter().cloned().zip(row.iter().map(value));
            serde_json::Value::Object(cells.collect())
        });
        format!("{}\n", serde_json::Value::Array(rows.collect()))
    }
}
