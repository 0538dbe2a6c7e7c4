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

/// Which metrics of a sample a file gets: those that are set every time, and of rare ones those that are new.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    /// Bits of the last value of each rare metric; those of NaN for none.
    last: Vec<Option<u64>>,
}

impl News {
    pub(super) fn new(metrics: &[Metric]) -> Self {
        Self { last: metrics.iter().map(|metric| metric.rare.then_some(f64::NAN.to_bits())).collect() }
    }

    /// Whether a metric's value is to be kept.
    pub(super) fn is_new(&mut self, metric: usize, value: f64) -> bool {
        let bits = value.to_bits();
        let known = self.last.get_mut(metric).and_then(Option::as_mut);
        !value.is_nan() && known.is_none_or(|last| std::mem::replace(last, bits) != bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_metrics_are_kept_where_they_are_new() {
        let metrics = [Metric::new("return", "", ""), Metric::rare("gradient/w/norm".into(), "")];
        assert_eq!(metrics[1].name.as_ptr(), Metric::rare("gradient/w/norm".into(), "").name.as_ptr(), "kept once");
        let mut news = News::new(&metrics);
        let mut kept = |value| [news.is_new(0, value), news.is_new(1, value)];
        assert_eq!(kept(f64::NAN), [false, false]);
        assert_eq!(kept(1.0), [true, true]);
        assert_eq!(kept(1.0), [true, false]);
        assert_eq!(kept(2.0), [true, true]);
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
