//! Actions: the best by value, random ones, and for how long those are held.

use operant_lanes::rng::HostRng;

/// Whether an action is legal; all are where there is no mask.
pub(super) fn allowed(action: usize, legal: &[u8]) -> bool {
    legal.is_empty() || legal[action] != 0
}

/// The legal action of the largest value, the first of several.
pub(super) fn best(q: &[f32], legal: &[u8]) -> usize {
    let mut best: Option<usize> = None;
    for action in (0..q.len()).filter(|&action| allowed(action, legal)) {
        if best.is_none_or(|best| q[action] > q[best]) {
            best = Some(action);
        }
    }
    best.expect("an env promises a legal action")
}

/// A legal action, each as likely as another.
pub(super) fn any(rng: &mut HostRng, actions: usize, legal: &[u8]) -> usize {
    if legal.is_empty() {
        return rng.below(actions as u32) as usize;
    }
    let count = legal.iter().filter(|&&bit| bit != 0).count();
    let chosen = rng.below(count.max(1) as u32) as usize;
    let mut places = (0..actions).filter(|&action| legal[action] != 0);
    places.nth(chosen).expect("an env promises a legal action")
}

/// For how many further steps a random action is held: n steps in all have a chance in proportion to 1/n² (Dabney et al.,
/// "Temporally-extended ε-greedy exploration", arXiv:2006.01782).
#[derive(Clone, Debug)]
pub(super) struct Repeats {
    /// Chance of n steps or fewer, from 1 on.
    up_to: Vec<f32>,
}

impl Repeats {
    /// Up to `most` steps in all.
    pub(super) fn new(most: u32) -> Self {
        let weight = |n: u32| 1.0 / f64::from(n).powi(2);
        let total: f64 = (1..=most).map(weight).sum();
        let sums = (1..=most).scan(0.0, |sum, n| {
            *sum += weight(n) / total;
            Some(*sum as f32)
        });
        Self { up_to: sums.collect() }
    }

    /// Further steps.
    pub(super) fn draw(&self, rng: &mut HostRng) -> u32 {
        let at = rng.unit();
        self.up_to.partition_point(|&chance| chance <= at).min(self.up_to.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_stretches_are_as_rare_as_they_should_be() {
        let repeats = Repeats::new(4);
        let mut counts = [0_u32; 4];
        for i in 0..41_000 {
            counts[repeats.draw(&mut HostRng::new(3, i, 0, 0)) as usize] += 1;
        }
        // 1 + 1/4 + 1/9 + 1/16 = 205/144.
        for (n, &count) in counts.iter().enumerate() {
            let wanted = 41_000.0 * 144.0 / 205.0 / f64::from(n as u32 + 1).powi(2);
            assert!((f64::from(count) - wanted).abs() < 5.0 * wanted.sqrt(), "{n}: {count} {wanted}");
        }
        assert_eq!(Repeats::new(1).draw(&mut HostRng::new(3, 0, 0, 0)), 0);
    }
}
