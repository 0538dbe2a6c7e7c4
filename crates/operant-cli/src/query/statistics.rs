//! Aggregates that SQLite lacks: `median`, `quantile`, `stddev` and `variance`. Rows without a number are left out, as by `avg`.

use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};

/// Makes them known.
pub(super) fn add(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_aggregate_function("median", 1, flags, Statistic::Median)?;
    connection.create_aggregate_function("quantile", 2, flags, Statistic::Quantile)?;
    connection.create_aggregate_function("stddev", 1, flags, Statistic::Deviation)?;
    connection.create_aggregate_function("variance", 1, flags, Statistic::Variance)
}

#[derive(Clone, Copy)]
enum Statistic {
    Median,
    Quantile,
    Deviation,
    Variance,
}

/// Numbers of a group, and which quantile is wanted.
struct Group {
    numbers: Vec<f64>,
    share: f64,
}

fn number(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Integer(x) => Some(x as f64),
        ValueRef::Real(x) => Some(x),
        _ => None,
    }
}

impl Aggregate<Group, Option<f64>> for Statistic {
    fn init(&self, _: &mut Context<'_>) -> Result<Group> {
        Ok(Group { numbers: Vec::new(), share: 0.5 })
    }

    fn step(&self, context: &mut Context<'_>, group: &mut Group) -> Result<()> {
        if let Self::Quantile = self {
            let share = number(context.get_raw(1)).filter(|share| (0.0..=1.0).contains(share));
            group.share = share.ok_or_else(|| {
                Error::UserFunctionError("quantile(x, q): wanted a q from 0 to 1, such as 0.9".into())
            })?;
        }
        group.numbers.extend(number(context.get_raw(0)));
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, group: Option<Group>) -> Result<Option<f64>> {
        let Some(Group { numbers, share }) = group else { return Ok(None) };
        Ok(match self {
            Self::Median | Self::Quantile => quantile(numbers, share),
            Self::Variance => variance(&numbers),
            Self::Deviation => variance(&numbers).map(f64::sqrt),
        })
    }
}

/// Between neighbours the quantile is linear (type 7 of Hyndman and Fan, 1996), as in NumPy.
fn quantile(mut numbers: Vec<f64>, share: f64) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let place = share * numbers.len().checked_sub(1)? as f64;
    let (low, high) = (numbers[place.floor() as usize], numbers[place.ceil() as usize]);
    Some(low + (high - low) * place.fract())
}

/// Of a sample, over n − 1: none of one number.
fn variance(numbers: &[f64]) -> Option<f64> {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|x| (x - mean).powi(2)).sum();
    (numbers.len() > 1).then(|| squares / (count - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(expression: &str) -> Result<Option<f64>> {
        let connection = Connection::open_in_memory().unwrap();
        add(&connection).unwrap();
        let numbers = "create table t (x, y); insert into t values (4, 'a'), (1, 'a'), (null, 'a'), (2.5, 'b'), ('text', 'b'), (10, 'b')";
        connection.execute_batch(numbers).unwrap();
        connection.query_row(&format!("select {expression} from t"), [], |row| row.get(0))
    }

    #[test]
    fn statistics_are_those_of_numpy() {
        assert_eq!(ask("median(x)"), Ok(Some(3.25)));
        assert_eq!((ask("quantile(x, 0)"), ask("quantile(x, 1)")), (Ok(Some(1.0)), Ok(Some(10.0))));
        let close = |expression: &str, wanted: f64| {
            let got = ask(expression).unwrap().unwrap();
            assert!((got - wanted).abs() < 1e-12, "{expression}: {got}");
        };
        // numpy.quantile([1, 2.5, 4, 10], 0.9), numpy.var(…, ddof=1)
        close("quantile(x, 0.9)", 8.2);
        close("variance(x)", 15.5625);
        close("stddev(x)", 15.5625_f64.sqrt());
        assert_eq!((ask("median(y)"), ask("stddev(case when x = 4 then x end)")), (Ok(None), Ok(None)));
        assert!(ask("quantile(x, 1.5)").unwrap_err().to_string().contains("wanted a q from 0 to 1"));
    }
}
