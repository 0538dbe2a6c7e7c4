//! Weights of the kinds of first fields, and of the words that parameters of operators choose from: those that were given, over the defaults.

use crate::initial::KINDS;
use crate::{Map, Space};
use operant_base::config::{Table, Value};
use operant_base::{Error, Result};

/// The weight of every word that is not named.
const OTHERS: &str = "others";

/// Lays weights over the default, in which all kinds weigh 1.
pub(super) fn completed(given: &Table) -> Result<Table> {
    if given.is_empty() {
        return Ok(Table::new());
    }
    let known: Vec<(String, f64)> = KINDS.iter().map(|kind| (kind.name.to_owned(), 1.0)).collect();
    laid_over("initial", &known, given, unknown)
}

/// Lays tables of weights over those of the parameters that choose from words; a word that weighs 0 is left out.
pub(super) fn completed_space(given: &Table, space: &Space) -> Result<Table> {
    let complete = |(name, value): (&String, &Value)| {
        let parameter = space.parameters.iter().find(|parameter| parameter.name == name.as_str());
        let value = match (parameter.map(|parameter| &parameter.map), value) {
            (Some(Map::Choice(words)), Value::Table(weights)) if !weights.is_empty() => {
                let path = format!("space.{name}");
                let known = || words.iter().map(|(word, _)| word.as_str()).chain([OTHERS]);
                let unknown =
                    |word: &str| Error::unknown(&path, word, known(), &known().collect::<Vec<_>>().join(", "));
                let mut full = laid_over(&path, words, weights, unknown)?;
                full.retain(|_, value| weight(&path, value).map_or(true, |weight| weight > 0.0));
                Value::Table(full)
            }
            _ => value.clone(),
        };
        Ok((name.clone(), value))
    };
    given.iter().map(complete).collect()
}

/// A table of weights over known ones. `others` is the weight of the words that are not named.
fn laid_over(path: &str, known: &[(String, f64)], given: &Table, unknown: impl Fn(&str) -> Error) -> Result<Table> {
    let others = given.get(OTHERS).map(|value| weight(path, value)).transpose()?;
    let mut full: Table =
        known.iter().map(|(word, weight)| (word.clone(), Value::Float(others.unwrap_or(*weight)))).collect();
    for (word, value) in given.iter().filter(|(word, _)| *word != OTHERS) {
        if !full.contains_key(word) {
            return Err(unknown(word));
        }
        full.insert(word.clone(), value.clone());
    }
    Ok(full)
}

/// Places in [`KINDS`] with their weights; all alike if none is given. A kind that a table leaves out has none.
pub(super) fn of(table: &Table) -> Result<Vec<(usize, f64)>> {
    if table.is_empty() {
        return Ok((0..KINDS.len()).map(|place| (place, 1.0)).collect());
    }
    let place = |name: &str| KINDS.iter().position(|kind| kind.name == name).ok_or_else(|| unknown(name));
    let mixture: Vec<(usize, f64)> = table
        .iter()
        .map(|(name, value)| Ok((place(name)?, weight(&format!("initial.{name}"), value)?)))
        .collect::<Result<_>>()?;
    match mixture.iter().any(|(_, weight)| *weight > 0.0) {
        true => Ok(mixture),
        false => Err(Error::Invalid("initial: every kind weighs 0; wanted a weight above 0 for one of them".into())),
    }
}

fn weight(path: &str, value: &Value) -> Result<f64> {
    let number = value.as_float().or_else(|| value.as_integer().map(|x| x as f64));
    number
        .filter(|weight| *weight >= 0.0 && weight.is_finite())
        .ok_or_else(|| Error::Invalid(format!("{path} = {value}: wanted a weight of 0 or more, such as 1")))
}

fn unknown(name: &str) -> Error {
    let known = KINDS.iter().map(|kind| kind.name).chain([OTHERS]);
    Error::unknown("kind of first field", name, known, "operant field list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_base::config;

    fn given(words: &[&str]) -> Table {
        let mut table = Table::new();
        words.iter().for_each(|word| config::assign(&mut table, word).unwrap());
        table
    }

    #[test]
    fn a_weight_lies_over_those_of_all_kinds() {
        let weights = |words: &[&str]| of(&completed(&given(words)).unwrap()).unwrap();
        let without = weights(&["structured=0"]);
        assert_eq!(without.len(), KINDS.len());
        for (place, weight) in without {
            assert_eq!(weight, if KINDS[place].name == "structured" { 0.0 } else { 1.0 }, "{}", KINDS[place].name);
        }
        let only: Vec<_> = weights(&["others=0", "mixed=3"]).into_iter().filter(|(_, weight)| *weight > 0.0).collect();
        assert!(only.len() == 1 && KINDS[only[0].0].name == "mixed" && only[0].1 == 3.0, "{only:?}");
        assert_eq!(weights(&[]).len(), KINDS.len());
    }

    #[test]
    fn a_weight_of_a_word_lies_over_those_of_the_others() {
        let space = Space::default();
        let norm = |words: &[&str]| completed_space(&given(words), &space).map(|table| table["norm"].clone());
        let known = space.parameters.iter().find(|parameter| parameter.name == "norm").unwrap();
        let Map::Choice(words) = &known.map else { panic!("{known:?}") };
        let without = norm(&["norm.layer=0"]).unwrap();
        assert_eq!(without.as_table().unwrap().len(), words.len() - 1, "{without}");
        let only = norm(&["norm.others=0", "norm.layer=2"]).unwrap();
        assert_eq!(only, Value::Table(Table::from_iter([("layer".to_owned(), Value::Integer(2))])));
        assert!(norm(&["norm.layr=1"]).unwrap_err().to_string().contains("did you mean \"layer\"?"));
        assert_eq!(norm(&["norm=layer"]).unwrap(), Value::String("layer".into()));
    }

    /// A file of a store names all kinds that it has.
    #[test]
    fn a_table_that_stands_alone_has_only_its_kinds() {
        assert_eq!(of(&given(&["structured=2"])).unwrap().len(), 1);
        assert!(of(&given(&["structured=0"])).unwrap_err().to_string().contains("wanted a weight above 0"));
        assert!(completed(&given(&["mixed=-1"])).and_then(|table| of(&table)).is_err());
    }
}
