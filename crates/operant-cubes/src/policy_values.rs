//! What a policy's network says of a puzzle's states, for search: how many moves its values of actions promise.
//!
//! The run's own env shows the states, so that whatever observation it was trained on is the one that is seen here.

use crate::puzzle::Puzzle;
use crate::search::Values;
use operant_base::{Error, Result};
use operant_env::{self as env, Entry, RowBuf, Seeds, VecEnv};
use operant_nn::Options;
use operant_rl::algo::{Actor, Policy};
use std::sync::Arc;

/// States that a network sees at once, and as many as a narrow search asks for, since all envs are written to show some.
const ROWS: usize = 4096;
const FEW_ROWS: usize = 256;

/// Powers of γ below this stand for more moves than any puzzle needs.
const LEAST_POWER: f64 = 1e-9;

/// What turns and solving earn, and the discount: how many moves a value stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rewards {
    /// Of every move, 0 or less.
    pub step: f64,
    /// Of the last one beside that, 0 or more.
    pub solved: f64,
    /// γ.
    pub gamma: f64,
}

impl Rewards {
    /// The number of moves d for which `step·(1 + γ + … + γᵈ⁻¹) + solved·γᵈ⁻¹` is this value; where rewards say nothing of moves, a number
    /// that is less for larger values.
    pub fn moves(&self, value: f64) -> f64 {
        let Self { step, solved, gamma } = *self;
        if gamma >= 1.0 {
            return if step < 0.0 { (value - solved) / step } else { -value };
        }
        let scale = solved * (1.0 - gamma) / gamma - step;
        let power = (value * (1.0 - gamma) - step) / scale;
        if scale <= 0.0 {
            return -value;
        }
        // The value of never solving it is that of d → ∞; noise goes beyond, where less is still further.
        power.max(LEAST_POWER).ln() / gamma.ln() + (LEAST_POWER - power).max(0.0)
    }
}

/// Envs that show the states that are written to them.
struct Shown {
    envs: Box<dyn VecEnv>,
    row: RowBuf,
    /// `[columns, rows]` words of states.
    words: Vec<Vec<i32>>,
}

/// Values by a policy's network.
pub struct PolicyValues<'a, P: Puzzle> {
    puzzle: Arc<P>,
    policy: &'a Policy,
    actor: Actor,
    rewards: Rewards,
    few: Shown,
    many: Shown,
}

impl<'a, P: Puzzle> PolicyValues<'a, P> {
    /// For states of the env with these parameters.
    pub fn new(
        puzzle: Arc<P>,
        policy: &'a Policy,
        env: &Entry,
        params: &[(&str, f64)],
        rewards: Rewards,
        options: &Options,
    ) -> Result<Self> {
        let columns = puzzle.words(puzzle.solved()).as_ref().len();
        let build = |rows: usize| -> Result<Shown> {
            let mut envs = env.build(params, &env::Options::new(rows))?;
            let mut row = RowBuf::new(envs.spec(), rows);
            envs.reset(Seeds::One(0), None, row.row());
            Ok(Shown { envs, row, words: vec![vec![0; rows]; columns] })
        };
        let (few, many) = (build(FEW_ROWS)?, build(ROWS)?);
        let (inputs, shown) = (policy.architecture.inputs(), many.envs.spec().observation.len());
        if inputs != shown {
            return Err(Error::Invalid(format!(
                "the policy sees {inputs} numbers, {} shows {shown}: wanted the same",
                env.spec().name
            )));
        }
        Ok(Self { actor: policy.actor(ROWS, options)?, puzzle, policy, rewards, few, many })
    }
}

impl<P: Puzzle> Values<P::State> for PolicyValues<'_, P> {
    fn values(&mut self, states: &[P::State], out: &mut Vec<f32>) {
        out.clear();
        for states in states.chunks(ROWS) {
            let Shown { envs, row, words: all } = if states.len() <= FEW_ROWS { &mut self.few } else { &mut self.many };
            for (i, &state) in states.iter().enumerate() {
                let words = self.puzzle.words(state);
                all.iter_mut().zip(words.as_ref()).for_each(|(column, &word)| column[i] = word);
            }
            let columns: Vec<(usize, &[i32])> = all.iter().map(|words| &words[..]).enumerate().collect();
            envs.write(&columns).expect("a puzzle's words are states of its env");
            envs.observe(row.row());
            let seen = &mut row.obs[..states.len() * self.policy.architecture.inputs()];
            self.policy.normalise(seen);
            self.actor.forward(&self.policy.params, states.len(), seen);
            let (values, solved) = (self.actor.values(), self.puzzle.solved());
            let actions = self.actor.logits().len() / states.len();
            for (i, &state) in states.iter().enumerate() {
                // A critic's value, or that of the best action.
                let best = match values.get(i) {
                    Some(&value) => value,
                    None => self.actor.logits()[i * actions..][..actions].iter().copied().fold(f32::MIN, f32::max),
                };
                out.push(if state == solved { 0.0 } else { self.rewards.moves(f64::from(best)) as f32 });
            }
        }
    }
}
