//! Mean and standard error of what several runs gave.

use crate::format;
use serde_json::json;

/// Mean and standard error of what is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) error: f64,
}

impl Spread {
    pub(crate) fn of(numbers: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let numbers: Vec<f64> = numbers.flatten().collect();
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let squares = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        // No number of one run, which has no spread.
        let error = (squares / (count - 1.0) / count).sqrt();
        (!numbers.is_empty()).then_some(Self { mean, error })
    }

    pub(crate) fn json(spread: Option<Self>) -> serde_json::Value {
        spread.map_or(serde_json::Value::Null, |Self { mean, error }| json!({ "mean": mean, "standard_error": error }))
    }

    /// With two digits.
    pub(crate) fn shown(spread: Option<Self>) -> String {
        spread.map_or("none".into(), |Self { mean, error }| format!("{mean:.2} ± {}", format::error(error, 2)))
    }

    /// In about five characters each, as tables have it.
    pub(crate) fn cell(spread: Option<Self>) -> String {
        spread.map_or("–".into(), |Self { mean, error }| {
            format!("{} ± {}", format::number(mean), format::number(error))
        })
    }
}

/// The mean of several lines with its standard error, as points (x, mean, error). Between its points a line is straight; before its first and
/// after its last it has no part in the mean. At most `limit` points.
pub(crate) fn band(lines: &[Vec<(f64, f64)>], limit: usize) -> Vec<(f64, f64, f64)> {
    let mut places: Vec<f64> = lines.iter().flatten().map(|point| point.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let count = places.len();
    let kept = count.min(limit.max(1));
    // The first and the last stay.
    let chosen = (0..kept).map(|i| if kept < 2 { 0 } else { i * (count - 1) / (kept - 1) });
    let at = |x: f64| Spread::of(lines.iter().map(|line| height(line, x))).map(|spread| (x, spread.mean, spread.error));
    chosen.filter_map(|i| at(places[i])).collect()
}

/// A line's height at x, if it reaches there.
fn height(line: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = line.partition_point(|point| point.0 < x);
    let right = *line.get(after)?;
    if right.0 == x {
        return Some(right.1);
    }
    let left = *line.get(after.checked_sub(1)?)?;
    Some(left.1 + (right.1 - left.1) * (x - left.0) / (right.0 - left.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        let of = |numbers: &[Option<f64>]| Spread::of(numbers.iter().copied());
        assert_eq!(of(&[None]), None);
        assert_eq!(Spread::shown(of(&[Some(3.0), None])), "3.00 ± –");
        // Variance 1 over three numbers.
        let three = of(&[Some(1.0), Some(2.0), Some(3.0)]).unwrap();
        assert!((three.mean - 2.0).abs() < 1e-12 && (three.error - (1.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::shown(Some(three)), "2.00 ± 0.58");
    }

    #[test]
    fn bands_are_means_of_the_lines_that_reach_there() {
        let lines = [vec![(0.0, 0.0), (10.0, 10.0)], vec![(0.0, 2.0), (5.0, 7.0), (20.0, 9.0)]];
        let got = band(&lines, 100);
        // Halfway the first line is at 5; after 10 only the second is left.
        let wanted = [(0.0, 1.0, 1.0), (5.0, 6.0, 1.0)];
        assert_eq!(got[..2], wanted);
        assert!(got.len() == 4 && got[3].1 == 9.0 && got[3].2.is_nan(), "{got:?}");
        let thinned = band(&lines, 2);
        assert_eq!(thinned.iter().map(|point| point.0).collect::<Vec<_>>(), [0.0, 20.0]);
        assert!(band(&[], 10).is_empty() && band(&[Vec::new()], 10).is_empty());
    }
}
