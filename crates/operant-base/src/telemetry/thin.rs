//! How many samples a file gets: all of a short run, and of a long fast one as many as a plot can show.

use super::Metric;

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

/// Which metrics of a sample a file gets: those that are set every time, and the rare ones when they were set anew.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    /// Bits of the last value of each rare metric.
    last: Vec<Option<u64>>,
    /// Whether a rare one has changed: they are set together, and one that stayed the same is news too.
    fresh: bool,
}

impl News {
    pub(super) fn new(metrics: &[Metric]) -> Self {
        let last = metrics.iter().map(|metric| metric.rare.then_some(f64::NAN.to_bits())).collect();
        Self { last, fresh: false }
    }

    /// Looks at a sample that is about to be written.
    pub(super) fn look(&mut self, values: &[f64]) {
        self.fresh = false;
        for (last, value) in self.last.iter_mut().zip(values) {
            let bits = value.to_bits();
            self.fresh |= last.as_mut().is_some_and(|last| std::mem::replace(last, bits) != bits);
        }
    }

    /// Whether a metric of that sample is written.
    pub(super) fn keeps(&self, metric: usize, value: f64) -> bool {
        !value.is_nan() && (self.fresh || self.last[metric].is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_metrics_are_kept_where_they_are_new() {
        let rare = |name: &str| Metric::rare(name.into(), "");
        let metrics = [Metric::new("return", "", ""), rare("gradient/w/norm"), rare("gradient/w/zeros")];
        assert_eq!(metrics[1].name.as_ptr(), Metric::rare("gradient/w/norm".into(), "").name.as_ptr(), "kept once");
        let mut news = News::new(&metrics);
        let mut kept = |norm, zeros| {
            news.look(&[1.0, norm, zeros]);
            [news.keeps(0, 1.0), news.keeps(1, norm), news.keeps(2, zeros)]
        };
        assert_eq!(kept(f64::NAN, f64::NAN), [true, false, false]);
        assert_eq!(kept(1.0, f64::NAN), [true, true, false]);
        assert_eq!(kept(1.0, 0.0), [true, true, true]);
        assert_eq!(kept(1.0, 0.0), [true, false, false]);
        assert_eq!(kept(2.0, 0.0), [true, true, true], "the share of zeros was seen again");
    }

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
