//! Numbers from envs that nothing can be learned from: those that are not finite, and those too large for `f32` sums.

/// The largest size of a reward or an observation. Its square, as a loss takes it, still fits `f32` with room for a sum.
pub const MOST: f32 = 1e18;

/// Which number of a step is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A component of the observation that the env showed after the step.
    Observation(usize),
    /// A component of the last observation of an episode that the step ended.
    LastObservation(usize),
    /// The reward of the step.
    Reward,
}

/// A number that nothing can be learned from, and where it came from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unfit {
    /// Steps of each env when it came; 0 for the first observation.
    pub step: u64,
    /// Number of the env.
    pub env: usize,
    /// Which number.
    pub place: Place,
    /// The number.
    pub value: f32,
}

impl Unfit {
    /// The first unfit number of an observation column `[N, O]` after so many steps.
    pub fn in_observations(rows: &[f32], width: usize, step: u64) -> Option<Self> {
        let at = first_unfit(rows)?;
        Some(Self { step, env: at / width, place: Place::Observation(at % width), value: rows[at] })
    }

    /// The first unfit number of a reward column `[N]` of step number `step`.
    pub fn in_rewards(rewards: &[f32], step: u64) -> Option<Self> {
        let env = first_unfit(rewards)?;
        Some(Self { step, env, place: Place::Reward, value: rewards[env] })
    }

    /// The first unfit number of a rollout: observations `[T + 1, N, O]` and rewards `[T, N]` of N envs; `before` is how many steps
    /// each env had made. There is none if an unfit action `[T, N, A]` came first (empty for choices): then the policy is the
    /// cause, and the envs only passed it on.
    pub fn of_rollout(seen: &[f32], paid: &[f32], actions: &[f32], envs: usize, before: u64) -> Option<Self> {
        let samples = paid.len();
        let obs = seen.len() / (samples + envs);
        let seen = first_unfit(seen).and_then(|at| {
            let t = at / (envs * obs);
            Self::in_observations(&seen[t * envs * obs..][..envs * obs], obs, before + t as u64)
        });
        let paid = first_unfit(paid).and_then(|at| {
            let t = at / envs;
            Self::in_rewards(&paid[t * envs..][..envs], before + t as u64 + 1)
        });
        let found = seen.map(|seen| seen.earlier(paid)).or(paid)?;
        // The action of row t makes step t + 1.
        let acted = first_unfit(actions).map(|at| before + (at * samples / actions.len() / envs) as u64);
        acted.is_none_or(|row| row >= found.step).then_some(found)
    }

    /// Which of two came first; of one step, observations come first, since rewards follow from what they show.
    pub fn earlier(self, other: Option<Self>) -> Self {
        match other {
            Some(other) if (other.step, other.place, other.env) < (self.step, self.place, self.env) => other,
            _ => self,
        }
    }
}

/// Where the first number is that is not finite or larger than [`MOST`].
pub fn first_unfit(values: &[f32]) -> Option<usize> {
    let unfit = |x: &f32| x.is_nan() | (x.abs() > MOST);
    // Without a way out in the middle, a block is a few vector instructions.
    let block = values.chunks(256).position(|block| block.iter().fold(false, |bad, x| bad | unfit(x)))?;
    values[block * 256..].iter().position(unfit).map(|at| block * 256 + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_found_wherever_it_lies() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2e18, -2e18] {
            for at in [0, 1, 255, 256, 700] {
                let mut values = vec![MOST; 701];
                values[at] = bad;
                values[700] = bad;
                assert_eq!(first_unfit(&values), Some(at));
            }
        }
        assert_eq!(first_unfit(&[MOST, -MOST, 0.0, f32::MIN_POSITIVE]), None);
    }

    #[test]
    fn an_unfit_action_that_came_first_is_the_cause() {
        // Three steps of two envs that show two numbers and take two.
        let (mut seen, mut paid, good) = (vec![0.0; 16], vec![0.0; 6], vec![0.0; 12]);
        assert_eq!(Unfit::of_rollout(&seen, &paid, &good, 2, 10), None);
        seen[4 * 2 + 3] = f32::NAN;
        let found = Unfit { step: 12, env: 1, place: Place::Observation(1), value: f32::NAN };
        let of = |seen: &[f32], paid: &[f32], actions: &[f32]| {
            Unfit::of_rollout(seen, paid, actions, 2, 10).map(|unfit| (unfit.step, unfit.env, unfit.place))
        };
        let wanted = Some((found.step, found.env, found.place));
        assert_eq!((of(&seen, &paid, &good), of(&seen, &paid, &[])), (wanted, wanted));
        for (at, cause) in [(0, None), (4 + 3, None), (2 * 4, wanted), (11, wanted)] {
            let mut actions = good.clone();
            actions[at] = f32::INFINITY;
            assert_eq!(of(&seen, &paid, &actions), cause, "action {at}");
        }
        paid[2] = f32::INFINITY;
        assert_eq!(of(&seen, &paid, &good), wanted);
        paid[1] = f32::INFINITY;
        assert_eq!(of(&seen, &paid, &good), Some((11, 1, Place::Reward)));
    }

    #[test]
    fn of_two_the_earlier_counts() {
        let seen = Unfit::in_observations(&[0.0, 1.0, 2.0, f32::NAN], 2, 7).unwrap();
        let paid = Unfit::in_rewards(&[f32::NAN], 7).unwrap();
        assert_eq!((seen.env, seen.place), (1, Place::Observation(1)));
        assert_eq!((paid.earlier(Some(seen)).place, seen.earlier(Some(paid)).place), (seen.place, seen.place));
        let before = Unfit { step: 6, ..paid };
        assert_eq!((seen.earlier(Some(before)).step, before.earlier(None).step), (6, 6));
    }
}
