//! Counts of tests, read from the closing lines of `cargo test` and pytest.

use std::fmt;
use std::ops::AddAssign;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s`, or what a test itself says:
    /// `skipped: what and why`.
    pub(crate) fn of_cargo(line: &str) -> Option<Self> {
        if line.starts_with("skipped: ") {
            return Some(Self { skipped: 1, ..Self::default() });
        }
        let counts = line.trim().strip_prefix("test result: ")?;
        Some(Self::of_pairs(counts))
    }

    /// `2 failed, 3 passed, 1 skipped in 0.12s`, with or without a border of `=`.
    pub(crate) fn of_pytest(line: &str) -> Option<Self> {
        let line = line.trim_matches(|c| c == '=' || c == ' ');
        let (counts, seconds) = line.rsplit_once(" in ")?;
        if !seconds.starts_with(|c: char| c.is_ascii_digit()) || !counts.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        Some(Self::of_pairs(counts))
    }

    fn of_pairs(counts: &str) -> Self {
        let mut tally = Self::default();
        let words: Vec<&str> = counts.split([' ', ';', ',', '.']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" | "xpassed" => tally.passed += count,
                "failed" | "error" | "errors" => tally.failed += count,
                "ignored" | "skipped" | "xfailed" => tally.skipped += count,
                _ => {}
            }
        }
        tally
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64, skipped: u64) -> Option<Tally> {
        Some(Tally { passed, failed, skipped })
    }

    #[test]
    fn reads_cargo() {
        let line = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s";
        assert_eq!(Tally::of_cargo(line), tally(3, 0, 1));
        let line = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(Tally::of_cargo(line), tally(1, 2, 0));
        assert_eq!(Tally::of_cargo("test result_is_ok ... ok"), None);
        assert_eq!(Tally::of_cargo("skipped: products on tiles: this CPU has none"), tally(0, 0, 1));
    }

    #[test]
    fn reads_pytest() {
        assert_eq!(Tally::of_pytest("==== 2 failed, 3 passed, 1 skipped in 0.12s ===="), tally(3, 2, 1));
        assert_eq!(Tally::of_pytest("5 passed, 2 warnings, 1 error in 61.20s (0:01:01)"), tally(5, 1, 0));
        assert_eq!(Tally::of_pytest("1 passed, 4 deselected, 1 xfailed, 1 xpassed in 0.01s"), tally(2, 0, 1));
        assert_eq!(Tally::of_pytest("SKIPPED [1] test_x.py:3: not in 3 steps"), None);
        assert_eq!(Tally::of_pytest("4 steps in order"), None);
    }

    #[test]
    fn closing_line() {
        assert_eq!(Tally { passed: 12, failed: 0, skipped: 1 }.to_string(), "12 passed, 0 failed, 1 skipped");
    }
}
