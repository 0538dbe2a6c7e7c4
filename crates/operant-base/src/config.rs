//! Settings as tables of TOML: read from files and from `key=value` words, checked against the defaults of a typed
//! struct, written back in full.
//!
//! Invariant: a struct's default says which keys there are and of what kind. An unknown key is an error that names the
//! nearest known one; a whole number may be written `2e6`.

mod aliases;

pub use aliases::{Meaning, aliases};

use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
pub use toml::{Table, Value};

/// Reads a table from text; `origin` is for the message.
pub fn parse(text: &str, origin: &str) -> Result<Table> {
    text.parse::<Table>().map_err(|error| {
        let reason = error.to_string();
        Error::Invalid(format!("{origin} is not valid TOML: {}", reason.trim_end().replace('\n', "; ")))
    })
}

/// Applies `a.b=value`, as given on a command line. A value that is no TOML is text.
pub fn assign(table: &mut Table, assignment: &str) -> Result<()> {
    let Some((path, text)) = assignment.split_once('=') else {
        return Err(Error::Invalid(format!("\"{assignment}\": wanted key=value, as in ppo.learning_rate=1e-3")));
    };
    let (path, text) = (path.trim(), text.trim());
    let literal = format!("value = {text}").parse::<Table>().ok().and_then(|mut parsed| parsed.remove("value"));
    insert(table, path, literal.unwrap_or_else(|| Value::String(text.to_owned())))
}

/// Puts a value at a dotted path, making tables on the way; a table is laid over the one that is there.
pub fn insert(table: &mut Table, path: &str, value: Value) -> Result<()> {
    let mut keys = path.split('.').peekable();
    let mut at = table;
    while let Some(key) = keys.next() {
        if key.is_empty() {
            return Err(Error::Invalid(format!("key \"{path}\": wanted names with single dots between them")));
        }
        if keys.peek().is_none() {
            merge(at, Table::from_iter([(key.to_owned(), value)]));
            return Ok(());
        }
        let next = at.entry(key).or_insert_with(|| Value::Table(Table::new()));
        at = next.as_table_mut().ok_or_else(|| Error::Invalid(format!("key \"{path}\": \"{key}\" is not a table")))?;
    }
    Ok(())
}

/// Lays `over` on `base`, table by table.
pub fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// The struct's default as a table.
pub fn defaults<T: Default + Serialize>() -> Table {
    to_table(&T::default())
}

/// A struct as a table.
pub fn to_table<T: Serialize>(settings: &T) -> Table {
    Table::try_from(settings).expect("settings are numbers, texts and lists")
}

/// A struct from a table: keys that are absent keep their default. `prefix` is the table's own path, for messages.
pub fn read<T: Default + Serialize + DeserializeOwned>(table: &Table, prefix: &str) -> Result<T> {
    let known = defaults::<T>();
    let (mut full, mut given) = (known.clone(), Vec::new());
    take(table, &known, prefix, "", &mut given)?;
    for Given { inner, value, .. } in &given {
        insert(&mut full, inner, value.clone())?;
    }
    full.try_into().map_err(|error: toml::de::Error| {
        // Which key it was: the first that is refused among defaults.
        let refused = given.iter().find_map(|Given { path, inner, value, default }| {
            let mut alone = known.clone();
            insert(&mut alone, inner, value.clone()).ok()?;
            let error = alone.try_into::<T>().err()?;
            if (value.is_integer() || value.is_float()) && default.is_str() && !reads_numbers::<T>(&known, inner) {
                return Some(format!("{path} = {value}: wanted a text, such as {default}"));
            }
            if default.is_str() {
                return Some(format!("{path} = {value}: {}", wanted_words(value, error.message())));
            }
            if value.as_integer().or_else(|| Some(value.as_float()? as i64)).is_some_and(|x| x < 0) {
                return Some(format!("{path} = {value}: wanted a whole number of 0 or more, such as {default}"));
            }
            if let Some(most) = most_of(error.message()) {
                return Some(format!("{path} = {value}: wanted a whole number of at most {most}, such as {default}"));
            }
            let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let whole = list(default).first().is_some_and(Value::is_integer);
            if whole && list(value).iter().any(|x| x.as_integer().is_some_and(|x| x < 0)) {
                return Some(format!("{path} = {value}: wanted whole numbers of 0 or more, such as {default}"));
            }
            Some(format!("{path} = {value}: {}", wanted_words(value, error.message())))
        });
        Error::Invalid(refused.unwrap_or_else(|| error.message().to_owned()))
    })
}

/// Whether a key whose default is a text also takes numbers.
fn reads_numbers<T: DeserializeOwned>(known: &Table, inner: &str) -> bool {
    let mut alone = known.clone();
    insert(&mut alone, inner, Value::Integer(1)).is_ok() && alone.try_into::<T>().is_ok()
}

/// A key that a table gives.
struct Given<'a> {
    /// Its path from the top, and from the table that is read.
    path: String,
    inner: String,
    value: Value,
    default: &'a Value,
}

/// The path of a key in the table at `prefix`.
pub fn below(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

/// Finds the keys of a table and of those in it, each in the kind that its default has.
fn take<'a>(table: &Table, known: &'a Table, prefix: &str, inner: &str, given: &mut Vec<Given<'a>>) -> Result<()> {
    for (key, value) in table {
        let (path, inner) = (below(prefix, key), below(inner, key));
        let Some(default) = known.get(key) else {
            return Err(unknown_key(&path, key, known.keys().map(String::as_str), prefix));
        };
        match (value, default) {
            // An empty table is one whose keys are not known here; who reads it checks them.
            (Value::Table(value), Value::Table(default)) if !default.is_empty() => {
                take(value, default, &path, &inner, given)?;
            }
            _ => given.push(Given { value: convert(value, default, &path)?, path, inner, default }),
        }
    }
    Ok(())
}

/// The largest number that a setting takes, where serde says that one does not fit.
fn most_of(message: &str) -> Option<u64> {
    let (_, kind) = message.strip_prefix("invalid value: integer ")?.split_once(", expected ")?;
    [("u8", u64::from(u8::MAX)), ("u16", u64::from(u16::MAX)), ("u32", u64::from(u32::MAX))]
        .into_iter()
        .find_map(|(name, most)| (kind == name).then_some(most))
}

/// What serde says about a text that is none of some words, in ours: `wanted solved or steps; did you mean "steps"?`.
fn wanted_words(value: &Value, message: &str) -> String {
    let words = message.split_once(", expected ").filter(|_| message.starts_with("unknown variant"));
    let (Some((_, words)), Some(got)) = (words, value.as_str()) else { return message.to_owned() };
    // Each word is between two backticks.
    let words: Vec<&str> = words.split('`').skip(1).step_by(2).collect();
    let listed = match &words[..] {
        [] => return message.to_owned(),
        [only] => (*only).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    };
    let near = crate::error::nearest(got, words).map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
    format!("wanted {listed}{near}")
}

/// An error for a key that does not exist, with the nearest that does.
pub fn unknown_key<'a>(path: &str, key: &str, known: impl IntoIterator<Item = &'a str>, prefix: &str) -> Error {
    let known: Vec<&str> = known.into_iter().collect();
    let next = format!("known: {}", known.join(", "));
    match crate::error::nearest(key, known.iter().copied()) {
        Some(near) => {
            let near = below(prefix, near);
            Error::Unknown(format!("unknown key \"{path}\"; did you mean \"{near}\"?"))
        }
        None => Error::Unknown(format!("unknown key \"{path}\" ({next})")),
    }
}

/// The largest whole number that a setting may be, below the limit of TOML's integers.
const MOST_INTEGER: f64 = 9.2e18;

/// Whether this is a whole number beyond [`MOST_INTEGER`]; TOML gives one with many digits as text.
fn is_too_large(value: &Value) -> bool {
    let digits = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.as_float().or_else(|| value.as_str().filter(digits)?.parse().ok());
    number.is_some_and(|x| x.is_finite() && x > MOST_INTEGER)
}

/// A value in the kind that its default has.
fn convert(value: &Value, default: &Value, path: &str) -> Result<Value> {
    let wanted = match default {
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        _ => "a table",
    };
    match (value, default) {
        (Value::Float(x), Value::Integer(_)) if x.fract() == 0.0 && x.abs() <= MOST_INTEGER => {
            Ok(Value::Integer(*x as i64))
        }
        (value, Value::Integer(_)) if is_too_large(value) => {
            let got = value.as_float().map_or_else(|| value.to_string(), |x| format!("{x:e}"));
            Err(Error::Invalid(format!(
                "{path} = {got}: wanted a whole number of at most {MOST_INTEGER:e}, such as {default}"
            )))
        }
        (Value::Integer(x), Value::Float(_)) => Ok(Value::Float(*x as f64)),
        // Some keys take a word or a number; which of them do, only the struct itself knows.
        (Value::Float(x), Value::String(word)) if word == "auto" && x.fract() == 0.0 && x.abs() < 9e15 => {
            Ok(Value::Integer(*x as i64))
        }
        (Value::Integer(_) | Value::Float(_), Value::String(word)) if word == "auto" => Ok(value.clone()),
        // A default may be none, for what must be given.
        (Value::Float(x), Value::Float(default)) if !x.is_finite() && x != default => {
            Err(Error::Invalid(format!("{path} = {x}: wanted a finite number, such as {default}")))
        }
        (a, b) if a.same_type(b) => Ok(a.clone()),
        _ => Err(Error::Invalid(format!("{path} = {value}: wanted {wanted}, such as {default}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Learning {
        learning_rate: f64,
        epochs: u32,
        hidden: Vec<usize>,
        name: String,
        anneal: bool,
        order: Order,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Order {
        Shuffled,
        InTurn,
        Reversed,
    }

    impl Default for Learning {
        fn default() -> Self {
            Self {
                learning_rate: 1e-3,
                epochs: 4,
                hidden: vec![64],
                name: "adam".into(),
                anneal: true,
                order: Order::Shuffled,
            }
        }
    }

    fn with(assignments: &[&str]) -> Result<Learning> {
        let mut table = Table::new();
        assignments.iter().try_for_each(|text| assign(&mut table, text))?;
        read(&table, "ppo")
    }

    #[test]
    fn words_become_settings() {
        let words =
            ["learning_rate=1", "epochs = 2e1", "hidden=[32, 16]", "name=muon", "anneal=false", "order=in_turn"];
        let got = with(&words).unwrap();
        let (hidden, name) = (vec![32, 16], "muon".into());
        let wanted = Learning { learning_rate: 1.0, epochs: 20, hidden, name, anneal: false, order: Order::InTurn };
        assert_eq!(got, wanted);
        assert_eq!(with(&[]).unwrap(), Learning::default());
    }

    #[test]
    fn mistakes_say_what_was_wanted() {
        let message = |words: &[&str]| with(words).unwrap_err().to_string();
        assert_eq!(
            message(&["learning_rat=1"]),
            "unknown key \"ppo.learning_rat\"; did you mean \"ppo.learning_rate\"?"
        );
        assert_eq!(message(&["epochs=1.5"]), "ppo.epochs = 1.5: wanted a whole number, such as 4");
        assert_eq!(message(&["epochs=many"]), "ppo.epochs = \"many\": wanted a whole number, such as 4");
        let order = "ppo.order = \"shufled\": wanted shuffled, in_turn or reversed; did you mean \"shuffled\"?";
        assert_eq!(message(&["order=shufled"]), order);
        assert_eq!(message(&["order=best"]), "ppo.order = \"best\": wanted shuffled, in_turn or reversed");
        assert_eq!(message(&["anneal=1"]), "ppo.anneal = 1: wanted true or false, such as true");
        assert_eq!(message(&["epochs=-1"]), "ppo.epochs = -1: wanted a whole number of 0 or more, such as 4");
        assert_eq!(message(&["epochs=1e30"]), "ppo.epochs = 1e30: wanted a whole number of at most 9.2e18, such as 4");
        let digits = "ppo.epochs = \"99999999999999999999\": wanted a whole number of at most 9.2e18, such as 4";
        assert_eq!(message(&["epochs=99999999999999999999"]), digits);
        let most = "ppo.epochs = 5000000000: wanted a whole number of at most 4294967295, such as 4";
        assert_eq!(message(&["epochs=5e9"]), most);
        let hidden = "ppo.hidden = [32, -1]: wanted whole numbers of 0 or more, such as [64]";
        assert_eq!(message(&["hidden=[32, -1]"]), hidden);
        assert_eq!(message(&["learning_rate=nan"]), "ppo.learning_rate = NaN: wanted a finite number, such as 0.001");
        assert_eq!(message(&["epochs"]), "\"epochs\": wanted key=value, as in ppo.learning_rate=1e-3");
        assert!(parse("a = ", "x.toml").unwrap_err().to_string().starts_with("x.toml is not valid TOML"));
    }

    /// Numbers in both widths.
    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Numbers {
        wide: Vec<f64>,
        narrow: Vec<f32>,
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn numbers_read_back_with_all_their_bits(
            wide in proptest::collection::vec(any::<f64>(), 200),
            narrow in proptest::collection::vec(any::<f32>(), 200),
        ) {
            let bits = |x: &Numbers| -> (Vec<u64>, Vec<u32>) {
                (x.wide.iter().map(|x| x.to_bits()).collect(), x.narrow.iter().map(|x| x.to_bits()).collect())
            };
            let written = Numbers { wide, narrow };
            let text = toml::to_string(&to_table(&written)).unwrap();
            let found: Numbers = parse(&text, "text").unwrap().try_into().unwrap();
            prop_assert_eq!(bits(&found), bits(&written));
        }
    }

    #[test]
    fn tables_go_there_and_back() {
        let settings = with(&["epochs=7"]).unwrap();
        let text = toml::to_string(&to_table(&settings)).unwrap();
        assert_eq!(read::<Learning>(&parse(&text, "text").unwrap(), "").unwrap(), settings);
        let mut base = parse("a = 1\n[t]\nx = 1\ny = 2", "base").unwrap();
        merge(&mut base, parse("b = 2\n[t]\ny = 3", "over").unwrap());
        assert_eq!(base, parse("a = 1\nb = 2\n[t]\nx = 1\ny = 3", "wanted").unwrap());
        let mut table = Table::new();
        assign(&mut table, "ppo.epochs=3").unwrap();
        assert!(assign(&mut table, "ppo.epochs.deep=3").unwrap_err().to_string().contains("not a table"));
        assert!(assign(&mut table, "ppo..epochs=3").is_err());
        assign(&mut table, "ppo={gamma = 0.5}").unwrap();
        assert_eq!(table, parse("ppo = { epochs = 3, gamma = 0.5 }", "wanted").unwrap());
    }
}
