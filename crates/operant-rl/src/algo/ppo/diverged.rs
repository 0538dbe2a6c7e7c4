//! Why training can't go on: numbers of the envs that nothing can be learned from, or else the loss itself.

use super::Ppo;
use crate::algo::Report;
use crate::data::ActionColumn;
use operant_env::{Place, Unfit, first_unfit};

impl Ppo {
    /// Steps of each env before this iteration.
    pub(super) fn steps_before(&self) -> u64 {
        u64::from(self.iteration) * self.settings.num_steps as u64
    }

    /// Whether the actions of step `t` are fit: a policy that broke breaks envs.
    fn acts_soundly(&self, t: usize) -> bool {
        let row = self.rollout.shape.envs * self.rollout.shape.dims;
        match &self.rollout.actions {
            ActionColumn::Choices(_) => true,
            ActionColumn::Numbers(actions) => first_unfit(&actions[t * row..][..row]).is_none(),
        }
    }

    /// An unfit number of step `t` that a later look at the rollout would not find: what is normalised in place spreads to
    /// all envs, and last observations are not kept. Nothing is looked at where neither is the case.
    pub(super) fn unfit_step(&self, t: usize) -> Option<Unfit> {
        let (n, obs) = (self.rollout.shape.envs, self.rollout.shape.obs);
        let step = self.steps_before() + t as u64 + 1;
        let seen = || Unfit::in_observations(self.rollout.row_of_obs(t + 1), obs, step);
        let paid = || Unfit::in_rewards(&self.rollout.reward[t * n..][..n], step);
        let last = |env: &usize| {
            let found = Unfit::in_observations(&self.final_obs[env * obs..][..obs], obs, step)?;
            let Place::Observation(j) = found.place else { return None };
            Some(Unfit { env: *env, place: Place::LastObservation(j), ..found })
        };
        let seen = self.obs_normaliser.as_ref().and_then(|_| seen());
        let seen = seen.or_else(|| self.truncated_envs.iter().find_map(last));
        let found = seen.or_else(|| self.return_scale.as_ref().and_then(|_| paid()));
        found.filter(|_| self.acts_soundly(t))
    }

    /// Where something was not finite, looks at what the envs gave in an iteration that began after so many steps of each
    /// env: an unfit number there is the cause.
    pub(super) fn find_cause(&self, before: u64, report: &mut Report) {
        if report.diverged.is_none() {
            return;
        }
        if let Some(unfit) = self.rollout.unfit(before) {
            (report.diverged, report.failed) = (None, Some(self.env.spec().complaint(&unfit)));
        }
    }
}
