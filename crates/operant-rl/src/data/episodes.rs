//! The last episodes of a run.

/// Episodes over which a mean return is taken, as Gymnasium's thresholds are defined.
pub(super) const WINDOW: usize = 100;

/// Returns and lengths of the last 100 episodes, and how many there were in all.
#[derive(Clone, Debug, PartialEq)]
pub struct Episodes {
    returns: Vec<f32>,
    lengths: Vec<i32>,
    count: u64,
    /// Episodes that are not in the window because nobody told of them one by one.
    untold: u64,
}

impl Default for Episodes {
    fn default() -> Self {
        Self { returns: vec![0.0; WINDOW], lengths: vec![0; WINDOW], count: 0, untold: 0 }
    }
}

impl Episodes {
    /// Notes an episode that ended.
    pub fn push(&mut self, total: f32, length: i32) {
        let at = (self.count % WINDOW as u64) as usize;
        (self.returns[at], self.lengths[at]) = (total, length);
        self.count += 1;
    }

    /// Counts episodes of which nothing else is known.
    pub fn count_untold(&mut self, episodes: u64) {
        self.untold += episodes;
    }

    /// Empties the window: what comes next is not to be compared with what was.
    pub fn forget(&mut self) {
        self.untold += self.count;
        self.count = 0;
    }

    /// Episodes ended so far.
    pub fn count(&self) -> u64 {
        self.count + self.untold
    }

    /// Whether the window is full.
    pub fn is_full(&self) -> bool {
        self.count >= WINDOW as u64
    }

    fn held(&self) -> usize {
        self.count.min(WINDOW as u64) as usize
    }

    /// Mean return of the window; NaN before the first episode.
    pub fn mean_return(&self) -> f64 {
        self.returns[..self.held()].iter().map(|&x| f64::from(x)).sum::<f64>() / self.held() as f64
    }

    /// Mean length of the window; NaN before the first episode.
    pub fn mean_length(&self) -> f64 {
        self.lengths[..self.held()].iter().map(|&x| f64::from(x)).sum::<f64>() / self.held() as f64
    }

    /// As numbers for a checkpoint: count, then returns, then lengths, then those that were not told.
    pub fn to_numbers(&self) -> Vec<f64> {
        let returns = self.returns.iter().map(|&x| f64::from(x));
        let lengths = self.lengths.iter().map(|&x| f64::from(x));
        std::iter::once(self.count as f64).chain(returns).chain(lengths).chain([self.untold as f64]).collect()
    }

    /// Takes back [`Episodes::to_numbers`]; `None` if they are not that many.
    pub fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let (&count, rest) = numbers.split_first()?;
        let (returns, rest) = rest.split_at_checked(WINDOW)?;
        let (lengths, untold) = rest.split_at_checked(WINDOW)?;
        // The last number may be absent.
        (untold.len() <= 1 && count >= 0.0).then(|| Self {
            returns: returns.iter().map(|&x| x as f32).collect(),
            lengths: lengths.iter().map(|&x| x as i32).collect(),
            count: count as u64,
            untold: untold.first().map_or(0, |&x| x as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_moves() {
        let mut episodes = Episodes::default();
        assert!(episodes.mean_return().is_nan() && !episodes.is_full());
        for i in 0..150 {
            episodes.push(i as f32, i);
            assert_eq!(episodes.is_full(), i >= 99);
        }
        // 50..150.
        assert_eq!((episodes.mean_return(), episodes.mean_length(), episodes.count()), (99.5, 99.5, 150));
        episodes.count_untold(7);
        assert_eq!((episodes.mean_return(), episodes.count()), (99.5, 157));
        assert_eq!(Episodes::from_numbers(&episodes.to_numbers()).unwrap(), episodes);
        assert!(Episodes::from_numbers(&[1.0, 2.0]).is_none());
        episodes.forget();
        assert!(!episodes.is_full() && episodes.mean_return().is_nan() && episodes.count() == 157);
    }
}
