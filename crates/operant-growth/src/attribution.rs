//! What each seed is worth: contributions, Shapley values and interactions from scores of coalitions.
//!
//! A coalition is a set of bits; f(S) is the score with exactly the seeds S on.

use operant_lanes::rng::HostRng;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// Most seeds whose every coalition is looked at.
pub const EXACT: usize = 8;

/// Shapley values (Shapley, "A value for n-person games", 1953).
#[derive(Clone, Debug, PartialEq)]
pub struct Shapley {
    /// One value per seed; their sum is f(all) − f(∅).
    pub values: Vec<f64>,
    /// Standard errors; all 0 where every coalition was looked at.
    pub errors: Vec<f64>,
    /// Coalitions that were scored.
    pub scored: usize,
}

/// What the seeds of an epoch that are heard are worth, in points.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worth {
    /// Slot, Shapley value of its seed, and the value's standard error where orders were drawn.
    pub shapley: Vec<(usize, f32, Option<f32>)>,
    /// Two slots, the lower first, and the interaction of their seeds; none where orders were drawn.
    pub pairs: Vec<(usize, usize, f32)>,
}

impl Worth {
    /// By the scores of every coalition of the seeds in these slots.
    pub fn exact(slots: &[usize], table: &[f64]) -> Self {
        let values = slots.iter().zip(exact(table).values);
        let pairs = (0..slots.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
        Self {
            shapley: values.map(|(&slot, value)| (slot, value as f32, None)).collect(),
            pairs: pairs.map(|(i, j)| (slots[i], slots[j], interaction(table, i, j) as f32)).collect(),
        }
    }

    /// By orders that were drawn.
    pub fn drawn(slots: &[usize], drawn: &Shapley) -> Self {
        let values = drawn.values.iter().zip(&drawn.errors);
        let known = |error: &f64| error.is_finite().then_some(*error as f32);
        let shapley = slots.iter().zip(values).map(|(&slot, (value, error))| (slot, *value as f32, known(error)));
        Self { shapley: shapley.collect(), pairs: Vec::new() }
    }

    /// Value of a slot's seed and its standard error.
    pub fn of(&self, slot: usize) -> Option<(f32, Option<f32>)> {
        self.shapley.iter().find(|(known, ..)| *known == slot).map(|(_, value, error)| (*value, *error))
    }

    /// Interaction of two slots' seeds, the lower first.
    pub fn between(&self, i: usize, j: usize) -> Option<f32> {
        self.pairs.iter().find(|(a, b, _)| (*a, *b) == (i, j)).map(|(.., points)| *points)
    }
}

impl fmt::Display for Worth {
    /// `slot 0 3.20, slot 1 -0.50 ± 0.10 (Shapley, points); 0-1 0.40 (interactions)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = |error: &Option<f32>| error.map_or_else(String::new, |error| format!(" ± {error:.2}"));
        let values: Vec<String> =
            self.shapley.iter().map(|(slot, value, e)| format!("slot {slot} {value:.2}{}", error(e))).collect();
        write!(f, "{} (Shapley, points)", values.join(", "))?;
        let pairs: Vec<String> = self.pairs.iter().map(|(i, j, points)| format!("{i}-{j} {points:.2}")).collect();
        if pairs.is_empty() { Ok(()) } else { write!(f, "; {} (interactions)", pairs.join(", ")) }
    }
}

/// Scores of all 2ⁿ coalitions of up to [`EXACT`] seeds.
pub fn table(n: usize, mut f: impl FnMut(u32) -> f64) -> Vec<f64> {
    assert!(n <= EXACT, "{n} seeds: at most {EXACT} can be looked at in every coalition");
    (0..1u32 << n).map(&mut f).collect()
}

/// f(all) − f(all without i), for each i.
pub fn contributions(table: &[f64]) -> Vec<f64> {
    let (n, all) = (table.len().ilog2(), table.len() - 1);
    (0..n).map(|i| table[all] - table[all & !(1 << i)]).collect()
}

/// f(ij) − f(i) − f(j) + f(∅).
pub fn interaction(table: &[f64], i: usize, j: usize) -> f64 {
    table[1 << i | 1 << j] - table[1 << i] - table[1 << j] + table[0]
}

/// Exact values: Σ over S without i of |S|!(n−|S|−1)!/n! · (f(S ∪ i) − f(S)).
pub fn exact(table: &[f64]) -> Shapley {
    let n = table.len().ilog2() as usize;
    let mut values = vec![0.0; n];
    // 1/(n·C(n−1, s)).
    let mut weights = vec![1.0 / n.max(1) as f64; n];
    for s in 1..n {
        weights[s] = weights[s - 1] * s as f64 / (n - s) as f64;
    }
    for (i, value) in values.iter_mut().enumerate() {
        for s in (0..table.len()).filter(|s| s >> i & 1 == 0) {
            *value += weights[s.count_ones() as usize] * (table[s | 1 << i] - table[s]);
        }
    }
    Shapley { values, errors: vec![0.0; n], scored: table.len() }
}

/// Values for any number of seeds up to 32: marginal gains along random orders, each followed by its reverse (Castro, Gómez &
/// Tejada, 2009; antithetic as in Mitchell et al., 2022), until the largest standard error is at most `error`, or `most`
/// pairs of orders were walked. Scores are asked for once per coalition.
pub fn permutations(n: usize, error: f64, most: usize, seed: u64, mut f: impl FnMut(u32) -> f64) -> Shapley {
    assert!(n <= 32, "{n} seeds: at most 32 fit in a coalition's bits");
    let mut known: HashMap<u32, f64> = HashMap::new();
    let mut score = |s: u32| *known.entry(s).or_insert_with(|| f(s));
    let (mut sums, mut squares) = (vec![0.0; n], vec![0.0; n]);
    let mut rng = HostRng::new(seed, 0, 0, 0);
    let mut order: Vec<usize> = (0..n).collect();
    let mut pairs = 0;
    let mut errors = vec![f64::INFINITY; n];
    while pairs < most && errors.iter().any(|e| *e > error) {
        for i in (1..n).rev() {
            order.swap(i, rng.below(i as u32 + 1) as usize);
        }
        let mut gains = vec![0.0; n];
        for _ in 0..2 {
            let mut s = 0;
            let mut before = score(0);
            for &i in &order {
                s |= 1 << i;
                let after = score(s);
                gains[i] += 0.5 * (after - before);
                before = after;
            }
            order.reverse();
        }
        pairs += 1;
        for i in 0..n {
            sums[i] += gains[i];
            squares[i] += gains[i] * gains[i];
            if pairs > 1 {
                let mean = sums[i] / pairs as f64;
                let variance = (squares[i] / pairs as f64 - mean * mean).max(0.0);
                errors[i] = (variance / (pairs - 1) as f64).sqrt();
            }
        }
    }
    Shapley { values: sums.iter().map(|sum| sum / pairs.max(1) as f64).collect(), errors, scored: known.len() }
}
