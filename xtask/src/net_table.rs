//! The table of `bench-peers nn`: for people and as JSON.

use crate::bench_nets::{Case, PASSES};
use crate::bench_peers::{header, json_document, quoted};
use std::fmt::Write;

/// One measurement.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Of one batch.
    pub(crate) microseconds: f64,
    /// Which of the library's ways to the result was the fastest.
    pub(crate) way: String,
}

/// The best cell of every case, pass and library.
pub(crate) struct Table {
    cases: Vec<&'static Case>,
    libraries: Vec<String>,
    /// The library that the others are compared with.
    yardstick: Option<usize>,
    /// `[case][pass][library]`
    cells: Vec<[Vec<Option<Cell>>; PASSES.len()]>,
}

/// One line of the table.
struct Line<'a> {
    case: &'static Case,
    pass: &'static str,
    library: &'a str,
    cell: &'a Cell,
    gflops: f64,
    /// How many times as fast as the yardstick.
    times: Option<f64>,
}

impl Table {
    pub(crate) fn new(cases: Vec<&'static Case>, libraries: &[&str], yardstick: Option<usize>) -> Self {
        let none = || vec![None; libraries.len()];
        Self {
            cells: cases.iter().map(|_| [none(), none()]).collect(),
            libraries: libraries.iter().map(|&library| library.to_owned()).collect(),
            cases,
            yardstick,
        }
    }

    pub(crate) fn cases(&self) -> &[&'static Case] {
        &self.cases
    }

    /// Keeps the cell if it is the best so far.
    pub(crate) fn offer(&mut self, case: usize, library: usize, pass: usize, new: Cell) {
        let cell = &mut self.cells[case][pass][library];
        if cell.as_ref().is_none_or(|old| new.microseconds < old.microseconds) {
            *cell = Some(new);
        }
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        for (&case, passes) in self.cases.iter().zip(&self.cells) {
            for (pass, cells) in passes.iter().enumerate() {
                let yardstick = self.yardstick.and_then(|library| cells[library].as_ref());
                for (library, cell) in self.libraries.iter().zip(cells) {
                    let Some(cell) = cell else { continue };
                    let gflops = case.flops(pass) / cell.microseconds * 1e-3;
                    let times = yardstick.map(|yardstick| yardstick.microseconds / cell.microseconds);
                    lines.push(Line { case, pass: PASSES[pass], library, cell, gflops, times });
                }
            }
        }
        lines
    }

    /// The table with its conditions above and notes below.
    pub(crate) fn text(&self, conditions: &[(&str, String)], notes: &[String]) -> String {
        let mut text = "one batch of a network; train is forward, backward and Adam\n".to_owned();
        text += &header(conditions);
        _ = writeln!(
            text,
            "\n{:<10} {:>5} {:<5} {:<8} {:<24} {:>11} {:>9} {:>9}  way",
            "net", "batch", "in", "pass", "library", "µs/batch", "GFLOP/s", "× PyTorch"
        );
        for Line { case, pass, library, cell, gflops, times } in self.lines() {
            let times = times.map_or("-".to_owned(), |times| format!("{times:.2}"));
            _ = writeln!(
                text,
                "{:<10} {:>5} {:<5} {pass:<8} {library:<24} {:>11.1} {gflops:>9.2} {times:>9}  {}",
                case.net, case.batch, case.precision, cell.microseconds, cell.way
            );
        }
        for note in notes {
            _ = writeln!(text, "{note}");
        }
        text
    }

    /// The same as one JSON object.
    pub(crate) fn json(&self, conditions: &[(&str, String)], notes: &[String]) -> String {
        let row = |Line { case, pass, library, cell, gflops, times }: Line| {
            format!(
                "    {{\"net\": {}, \"batch\": {}, \"precision\": {}, \"pass\": {}, \"library\": {}, \
                 \"us_per_batch\": {}, \"gflops\": {gflops}, \"times_pytorch\": {}, \"way\": {}}}",
                quoted(case.net),
                case.batch,
                quoted(case.precision),
                quoted(pass),
                quoted(library),
                cell.microseconds,
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
    use crate::bench_nets::CASES;

    fn cell(microseconds: f64) -> Cell {
        Cell { microseconds, way: "-".to_owned() }
    }

    #[test]
    fn keeps_the_best_and_compares() {
        let mut table = Table::new(vec![&CASES[0]], &["ours", "torch"], Some(1));
        table.offer(0, 0, 0, cell(50.0));
        table.offer(0, 0, 0, cell(80.0));
        table.offer(0, 1, 0, Cell { microseconds: 100.0, way: "fused \"Adam\"".to_owned() });
        table.offer(0, 0, 1, cell(200.0));
        let lines = table.lines();
        assert_eq!(lines.len(), 3);
        assert_eq!((lines[0].cell.microseconds, lines[0].times), (50.0, Some(2.0)));
        assert_eq!(lines[1].times, Some(1.0));
        assert_eq!((lines[2].pass, lines[2].times), ("train", None));
        // 8192 rows of 17 792 operations in 50 µs.
        assert!((lines[0].gflops - 8192.0 * 17_792.0 / 50e-6 * 1e-9).abs() < 1e-6, "{}", lines[0].gflops);
        let text = table.text(&[], &["torch: a note".to_owned()]);
        assert!(text.contains("2.00") && text.ends_with("torch: a note\n"), "{text}");
        let json = table.json(&[], &[]);
        assert!(json.contains(r#""times_pytorch": null, "way": "-"}"#), "{json}");
        assert!(json.contains(r#""way": "fused \"Adam\""}"#), "{json}");
    }
}
