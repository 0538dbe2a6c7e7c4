//! Running means and variances (Welford; batches merged as in Chan, Golub & LeVeque, 1979), and what they scale:
//! observations, and rewards by the spread of the discounted return.

/// Added to a variance before its root, as Gymnasium's wrappers do.
const EPSILON: f64 = 1e-8;

/// Mean and variance of every column seen so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    count: f64,
    mean: Vec<f64>,
    /// Sum of squared distances from the mean.
    squares: Vec<f64>,
    /// What [`Running::normalise`] subtracts and multiplies by.
    shift: Vec<f32>,
    factor: Vec<f32>,
    /// Sums of a batch.
    sums: Vec<f64>,
}

impl Running {
    /// Nothing seen of so many columns: scales by one.
    pub fn new(columns: usize) -> Self {
        Self {
            count: 0.0,
            mean: vec![0.0; columns],
            squares: vec![0.0; columns],
            shift: vec![0.0; columns],
            factor: vec![1.0; columns],
            sums: vec![0.0; columns],
        }
    }

    /// Rows seen.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// Means.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Variance of a column: 1 before anything was seen.
    pub fn variance(&self, column: usize) -> f64 {
        if self.count > 0.0 { self.squares[column] / self.count } else { 1.0 }
    }

    /// Takes dense rows into account.
    pub fn update(&mut self, rows: &[f32]) {
        let columns = self.mean.len();
        let count = (rows.len() / columns.max(1)) as f64;
        if count == 0.0 {
            return;
        }
        let total = self.count + count;
        self.sums.fill(0.0);
        for row in rows.chunks_exact(columns) {
            self.sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
        }
        for j in 0..columns {
            let mean = self.sums[j] / count;
            let squares: f64 = rows[j..].iter().step_by(columns).map(|&x| (f64::from(x) - mean).powi(2)).sum();
            let distance = mean - self.mean[j];
            self.squares[j] += squares + distance * distance * self.count * count / total;
            self.mean[j] += distance * count / total;
        }
        self.count = total;
        self.settle();
    }

    fn settle(&mut self) {
        for j in 0..self.mean.len() {
            self.shift[j] = self.mean[j] as f32;
            self.factor[j] = (1.0 / (self.variance(j) + EPSILON).sqrt()) as f32;
        }
    }

    /// Makes rows have mean 0 and variance 1, limited to ±`limit`.
    pub fn normalise(&self, rows: &mut [f32], limit: f32) {
        for row in rows.chunks_exact_mut(self.mean.len()) {
            for ((x, shift), factor) in row.iter_mut().zip(&self.shift).zip(&self.factor) {
                *x = ((*x - shift) * factor).clamp(-limit, limit);
            }
        }
    }

    /// What [`Running::normalise`] subtracts, then multiplies by.
    pub fn scaling(&self) -> [&[f32]; 2] {
        [&self.shift, &self.factor]
    }

    /// As numbers for a checkpoint: count, means, sums of squares.
    pub fn to_numbers(&self) -> Vec<f64> {
        std::iter::once(self.count).chain(self.mean.iter().copied()).chain(self.squares.iter().copied()).collect()
    }

    /// Takes back [`Running::to_numbers`]; `None` if they are not of so many columns.
    pub fn from_numbers(numbers: &[f64], columns: usize) -> Option<Self> {
        let (&count, rest) = numbers.split_first()?;
        (rest.len() == 2 * columns).then(|| {
            let mut running = Self::new(columns);
            running.count = count;
            running.mean.copy_from_slice(&rest[..columns]);
            running.squares.copy_from_slice(&rest[columns..]);
            if count > 0.0 {
                running.settle();
            }
            running
        })
    }
}

/// Scales rewards by the standard deviation of the discounted return.
#[derive(Clone, Debug, PartialEq)]
pub struct ReturnScale {
    /// `[N]` discounted return of each env so far.
    returns: Vec<f32>,
    running: Running,
}

impl ReturnScale {
    /// For so many envs.
    pub fn new(num_envs: usize) -> Self {
        Self { returns: vec![0.0; num_envs], running: Running::new(1) }
    }

    /// Envs.
    pub fn num_envs(&self) -> usize {
        self.returns.len()
    }

    /// Takes one step's rewards into account and scales them, limited to ±`limit`.
    pub fn scale(&mut self, reward: &mut [f32], done: impl Fn(usize) -> bool, gamma: f32, limit: f32) {
        for (total, &reward) in self.returns.iter_mut().zip(&*reward) {
            *total = *total * gamma + reward;
        }
        self.running.update(&self.returns);
        for (env, total) in self.returns.iter_mut().enumerate() {
            if done(env) {
                *total = 0.0;
            }
        }
        let factor = self.running.factor[0];
        reward.iter_mut().for_each(|reward| *reward = (*reward * factor).clamp(-limit, limit));
    }

    /// New episodes begin in all envs.
    pub fn forget(&mut self) {
        self.returns.fill(0.0);
    }

    /// As numbers for a checkpoint.
    pub fn to_numbers(&self) -> Vec<f64> {
        let returns = self.returns.iter().map(|&x| f64::from(x));
        self.running.to_numbers().into_iter().chain(returns).collect()
    }

    /// Takes back [`ReturnScale::to_numbers`].
    pub fn from_numbers(numbers: &[f64], num_envs: usize) -> Option<Self> {
        let (running, returns) = numbers.split_at_checked(3)?;
        (returns.len() == num_envs).then_some(())?;
        let returns = returns.iter().map(|&x| x as f32).collect();
        Some(Self { returns, running: Running::from_numbers(running, 1)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_lanes::rng::HostRng;

    #[test]
    fn batches_merge_to_the_whole() {
        let mut rng = HostRng::new(1, 0, 0, 0);
        let rows: Vec<f32> = (0..3000).map(|i| rng.normal() * 3.0 + if i % 3 == 0 { 1000.0 } else { 2.0 }).collect();
        let mut running = Running::new(3);
        let mut at = 0;
        for size in [1, 7, 200, 500, 292] {
            running.update(&rows[at * 3..(at + size) * 3]);
            at += size;
        }
        assert_eq!((at, running.count()), (1000, 1000.0));
        for j in 0..3 {
            let column: Vec<f64> = rows.iter().skip(j).step_by(3).map(|&x| f64::from(x)).collect();
            let mean = column.iter().sum::<f64>() / 1000.0;
            let variance = column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1000.0;
            assert!((running.mean()[j] - mean).abs() < 1e-9 && (running.variance(j) - variance).abs() < 1e-6);
        }
        let mut normal = rows.clone();
        running.normalise(&mut normal, 10.0);
        let again = {
            let mut r = Running::new(3);
            r.update(&normal);
            r
        };
        assert!((0..3).all(|j| again.mean()[j].abs() < 1e-4 && (again.variance(j) - 1.0).abs() < 1e-4));
        assert_eq!(Running::from_numbers(&running.to_numbers(), 3).unwrap().to_numbers(), running.to_numbers());
        assert!(Running::from_numbers(&running.to_numbers(), 2).is_none());
    }

    #[test]
    fn rewards_scale_by_the_spread_of_returns() {
        let mut scale = ReturnScale::new(2);
        let mut returns: Vec<f64> = Vec::new();
        let mut totals = [0.0_f64; 2];
        let mut rng = HostRng::new(2, 0, 0, 0);
        for step in 0..50 {
            let mut reward = [rng.normal() * 5.0, rng.normal()];
            let raw = reward;
            let done = |env: usize| step % 10 == 9 && env == 0;
            scale.scale(&mut reward, done, 0.9, 1e9);
            for env in 0..2 {
                totals[env] = totals[env] * 0.9 + f64::from(raw[env]);
                returns.push(totals[env]);
                totals[env] *= f64::from(u8::from(!done(env)));
            }
            let mean = returns.iter().sum::<f64>() / returns.len() as f64;
            let variance = returns.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / returns.len() as f64;
            for env in 0..2 {
                let wanted = f64::from(raw[env]) / (variance + EPSILON).sqrt();
                assert!((f64::from(reward[env]) - wanted).abs() < 1e-3 * (1.0 + wanted.abs()), "step {step}");
            }
        }
        assert_eq!(ReturnScale::from_numbers(&scale.to_numbers(), 2).unwrap().to_numbers(), scale.to_numbers());
    }
}
