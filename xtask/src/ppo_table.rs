//! The table of `bench-peers ppo`: for people and as JSON.

use crate::bench_peers::{header, json_document, quoted};
use std::fmt::Write;

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    /// Env steps per CPU-second.
    pub(crate) per_cpu_s: f64,
    /// Env steps per second.
    pub(crate) per_s: f64,
    /// How the library was used.
    pub(crate) way: String,
}

/// The best cell of every recipe and library.
pub(crate) struct Table {
    recipes: Vec<String>,
    libraries: Vec<String>,
    /// Which libraries are ours, by place.
    ours: Vec<bool>,
    /// `[recipe][library]`
    cells: Vec<Vec<Option<Cell>>>,
}

/// One line of the table.
struct Line<'a> {
    recipe: &'a str,
    library: &'a str,
    cell: &'a Cell,
    /// How many times as fast as the fastest peer.
    times: Option<f64>,
}

impl Table {
    pub(crate) fn new(recipes: &[&str], libraries: &[&str], ours: Vec<bool>) -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Self {
            cells: vec![vec![None; libraries.len()]; recipes.len()],
            recipes: owned(recipes),
            libraries: owned(libraries),
            ours,
        }
    }

    /// Keeps the cell if it is the best so far.
    pub(crate) fn offer(&mut self, recipe: usize, library: usize, new: Cell) {
        let cell = &mut self.cells[recipe][library];
        if cell.as_ref().is_none_or(|old| new.per_cpu_s > old.per_cpu_s) {
            *cell = Some(new);
        }
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        for (recipe, cells) in self.recipes.iter().zip(&self.cells) {
            let peers = cells.iter().zip(&self.ours).filter(|(_, ours)| !**ours);
            let best = peers.filter_map(|(cell, _)| Some(cell.as_ref()?.per_cpu_s)).reduce(f64::max);
            for (library, cell) in self.libraries.iter().zip(cells) {
                let Some(cell) = cell else { continue };
                lines.push(Line { recipe, library, cell, times: best.map(|best| cell.per_cpu_s / best) });
            }
        }
        lines
    }

    /// The table with its conditions above and notes below.
    pub(crate) fn text(&self, conditions: &[(&str, String)], notes: &[String]) -> String {
        let mut text = "PPO on CartPole, whole iterations: env steps per CPU-second\n".to_owned();
        text += &header(conditions);
        _ = writeln!(
            text,
            "\n{:<10} {:<24} {:>12} {:>12} {:>11}  way",
            "recipe", "library", "steps/CPU-s", "steps/s", "× best peer"
        );
        for Line { recipe, library, cell, times } in self.lines() {
            let times = times.map_or("-".to_owned(), |times| format!("{times:.2}"));
            _ = writeln!(
                text,
                "{recipe:<10} {library:<24} {:>12.0} {:>12.0} {times:>11}  {}",
                cell.per_cpu_s, cell.per_s, cell.way
            );
        }
        for note in notes {
            _ = writeln!(text, "{note}");
        }
        text
    }

    /// The same as one JSON object.
    pub(crate) fn json(&self, conditions: &[(&str, String)], notes: &[String]) -> String {
        let row = |Line { recipe, library, cell, times }: Line| {
            format!(
                "    {{\"recipe\": {}, \"library\": {}, \"steps_per_cpu_s\": {}, \"steps_per_s\": {}, \
                 \"times_best_peer\": {}, \"way\": {}}}",
                quoted(recipe),
                quoted(library),
                cell.per_cpu_s,
                cell.per_s,
                times.map_or("null".to_owned(), |times| times.to_string()),
                quoted(&cell.way)
            )
        };
        let rows: Vec<String> = self.lines().into_iter().map(row).collect();
        json_document(conditions, &rows, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(per_cpu_s: f64) -> Cell {
        Cell { per_cpu_s, per_s: per_cpu_s, way: "-".to_owned() }
    }

    #[test]
    fn keeps_the_best_and_compares_with_the_best_peer() {
        let mut table = Table::new(&["purejaxrl", "puffer"], &["ours", "jax", "torch"], vec![true, false, false]);
        for (library, speed) in [(0, 300.0), (0, 400.0), (0, 100.0), (1, 50.0), (2, 80.0), (1, 100.0)] {
            table.offer(0, library, cell(speed));
        }
        table.offer(1, 0, cell(7.0));
        let lines = table.lines();
        assert_eq!(lines.iter().map(|line| line.times).collect::<Vec<_>>(), [Some(4.0), Some(1.0), Some(0.8), None]);
        let text = table.text(&[], &["jax: a note".to_owned()]);
        assert!(text.contains("4.00") && text.ends_with("jax: a note\n"), "{text}");
        let json = table.json(&[], &[]);
        assert!(json.contains(r#""steps_per_cpu_s": 7, "steps_per_s": 7, "times_best_peer": null"#), "{json}");
    }
}
