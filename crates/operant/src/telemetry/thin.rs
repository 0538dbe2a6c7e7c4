//! How many samples a file gets: all of a short run, and of a long fast one as many as a plot can show.

/// A bucket of samples that refills at a steady rate: files of a loop with thousands of iterations a second stay small.
#[derive(Clone, Copy, Debug)]
pub struct Thin {
    tokens: f64,
    capacity: f64,
    per_second: f64,
    /// Seconds of the last sample.
    last: Option<f64>,
}

impl Thin {
    /// `capacity` samples at any rate, then `per_second`.
    pub fn new(capacity: u32, per_second: f64) -> Self {
        Self { tokens: f64::from(capacity), capacity: f64::from(capacity), per_second, last: None }
    }

    /// Whether the sample at `seconds` is kept.
    pub fn keep(&mut self, seconds: f64) -> bool {
        let passed = self.last.map_or(0.0, |last| seconds - last).max(0.0);
        self.last = Some(seconds);
        self.tokens = (self.tokens + passed * self.per_second).min(self.capacity);
        let keep = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(keep));
        keep
    }
}

impl Default for Thin {
    /// Ten thousand at any rate, then ten a second: a day makes a file of a few hundred megabytes at most.
    fn default() -> Self {
        Self::new(10_000, 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_all_of_short_runs_and_a_steady_rate_of_long_ones() {
        let kept = |samples: u32, per_second: f64| {
            let mut thin = Thin::new(100, 10.0);
            (0..samples).filter(|i| thin.keep(f64::from(*i) / per_second)).count()
        };
        assert_eq!(kept(100, 2000.0), 100);
        assert_eq!(kept(500, 5.0), 500, "slower than the rate");
        // Twenty seconds: the bucket and 10 a second.
        let long = kept(40_000, 2000.0);
        assert!((298..=301).contains(&long), "{long}");
    }
}
