//! The table of `bench-peers env`: for people and as JSON.

use crate::bench_envs::NUM_ENVS;
use crate::bench_peers::{header, json_document, quoted};
use std::fmt::Write;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// Env steps per CPU-second.
    pub(crate) per_cpu_s: f64,
    /// Env steps per second.
    pub(crate) per_s: f64,
    /// CPU microseconds of one `step` call.
    pub(crate) us_per_call: f64,
}

/// The best cell of every task, library and number of envs.
pub(crate) struct Table {
    tasks: Vec<String>,
    libraries: Vec<String>,
    /// `[task][library][number of envs]`
    cells: Vec<Vec<[Option<Cell>; NUM_ENVS.len()]>>,
}

impl Table {
    pub(crate) fn new(tasks: &[&str], libraries: &[&str]) -> Self {
        Self {
            tasks: tasks.iter().map(|&task| task.to_owned()).collect(),
            libraries: libraries.iter().map(|&library| library.to_owned()).collect(),
            cells: vec![vec![[None; NUM_ENVS.len()]; libraries.len()]; tasks.len()],
        }
    }

    /// Keeps the cell if it is the best so far; each of its figures has its own best repeat.
    pub(crate) fn offer(&mut self, task: usize, library: usize, num_envs: usize, new: Cell) {
        let Some(column) = NUM_ENVS.iter().position(|&n| n == num_envs) else { return };
        let cell = &mut self.cells[task][library][column];
        *cell = Some(cell.map_or(new, |old| Cell {
            per_cpu_s: old.per_cpu_s.max(new.per_cpu_s),
            per_s: old.per_s.max(new.per_s),
            us_per_call: old.us_per_call.min(new.us_per_call),
        }));
    }

    /// The table with its conditions above and notes below.
    pub(crate) fn text(&self, conditions: &[(&str, String)], notes: &[String]) -> String {
        let mut text = "env steps per CPU-second, random actions, auto-reset\n".to_owned();
        text += &header(conditions);
        _ = write!(text, "\n{:<12} {:<24}", "task", "library");
        for n in NUM_ENVS {
            _ = write!(text, " {:>10}", format!("{n} env{}", if n == 1 { "" } else { "s" }));
        }
        text.push_str("  µs/step call at 1 env\n");
        for (task, libraries) in self.tasks.iter().zip(&self.cells) {
            // A library that does not have the task has no line; one that failed has a note.
            let measured = self.libraries.iter().zip(libraries).filter(|(_, cells)| cells.iter().any(Option::is_some));
            for (library, cells) in measured {
                _ = write!(text, "{task:<12} {library:<24}");
                for cell in cells {
                    _ = write!(text, " {:>10}", cell.map_or("-".to_owned(), |cell| short(cell.per_cpu_s)));
                }
                _ = writeln!(text, "  {}", cells[0].map_or("-".to_owned(), |cell| format!("{:.2}", cell.us_per_call)));
            }
        }
        for note in notes {
            _ = writeln!(text, "{note}");
        }
        text
    }

    /// The same as one JSON object.
    pub(crate) fn json(&self, conditions: &[(&str, String)], notes: &[String]) -> String {
        let mut rows = Vec::new();
        for (task, libraries) in self.tasks.iter().zip(&self.cells) {
            for (library, cells) in self.libraries.iter().zip(libraries) {
                for (n, cell) in NUM_ENVS.iter().zip(cells) {
                    let Some(Cell { per_cpu_s, per_s, us_per_call }) = cell else { continue };
                    rows.push(format!(
                        "    {{\"task\": {}, \"library\": {}, \"num_envs\": {n}, \"steps_per_cpu_s\": {per_cpu_s}, \
                         \"steps_per_s\": {per_s}, \"cpu_us_per_call\": {us_per_call}}}",
                        quoted(task),
                        quoted(library)
                    ));
                }
            }
        }
        json_document(conditions, &rows, notes)
    }
}

/// Three digits and a unit: `30.6 M`.
fn short(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n >= 999.5e6 => (n / 1e9, " G"),
        n if n >= 999.5e3 => (n / 1e6, " M"),
        n if n >= 999.5 => (n / 1e3, " k"),
        n => (n, ""),
    };
    let digits = match scaled {
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        assert_eq!(short(30_640_000.0), "30.6 M");
        assert_eq!(short(1_350_000.0), "1.35 M");
        assert_eq!(short(483_200_000.0), "483 M");
        assert_eq!(short(999_700.0), "1.00 M");
        assert_eq!(short(22_640.0), "22.6 k");
        assert_eq!(short(12.0), "12.0");
    }

    #[test]
    fn keeps_the_best_and_prints_it() {
        let mut table = Table::new(&["CartPole"], &["A \"b\"", "C"]);
        table.offer(0, 0, 1, Cell { per_cpu_s: 1e6, per_s: 9e5, us_per_call: 1.0 });
        table.offer(0, 0, 1, Cell { per_cpu_s: 2e6, per_s: 8e5, us_per_call: 0.5 });
        table.offer(0, 0, 7, Cell { per_cpu_s: 9e9, per_s: 9e9, us_per_call: 0.1 });
        let text = table.text(&[("machine", "here".to_owned())], &["C: not installed: offline".to_owned()]);
        assert!(text.contains("2.00 M") && text.contains("0.50\n"), "{text}");
        assert!(text.ends_with("C: not installed: offline\n"), "{text}");
        let json = table.json(&[], &[]);
        assert!(json.contains(r#""library": "A \"b\"", "num_envs": 1, "steps_per_cpu_s": 2000000, "#), "{json}");
        assert!(json.contains("\"notes\": []"), "{json}");
    }
}
