//! Playing with a trained policy: returns of whole episodes, without learning.

use crate::algo::{ActionsMut, Actor, GpuActor, Policy};
use crate::data::ActionColumn;
use operant_base::{Error, Result};
use operant_device::{CpuPool, Device};
use operant_env::{self as env, Actions, AutoReset, Canvas, RowBuf, Seeds, VecEnv};
use operant_lanes::{Backend, Math, Width};
use operant_nn::Options;
use operant_nn::dist::Draws;
use serde::Serialize;
use std::sync::Arc;

/// Sets evaluation apart from training with the same seed.
const EVALUATION: u64 = 0x6576_616c_0000_0000;
/// Most envs that play at once.
const MAX_ENVS: usize = 256;

/// What to play; by default nothing, on one thread of the CPU.
#[derive(Clone, Debug, Default)]
pub struct Play {
    /// Episodes.
    pub episodes: usize,
    /// Seed of envs and of sampled actions.
    pub seed: u64,
    /// Take the most probable action in place of a sample.
    pub deterministic: bool,
    /// Threads.
    pub threads: usize,
    /// Where networks run; envs live there too if they have kernels.
    pub device: Device,
}

/// Who plays.
enum Player {
    Cpu(Box<Actor>),
    Gpu(Box<GpuActor>),
}

impl Player {
    fn new(policy: &Policy, rows: usize, device: &Device, pool: Arc<CpuPool>) -> Result<Self> {
        Ok(match device {
            Device::Cpu => Self::Cpu(Box::new(policy.actor(rows, &Options { pool, ..Options::default() })?)),
            Device::Cuda(gpu) => Self::Gpu(Box::new(GpuActor::new(gpu, policy, rows)?)),
        })
    }

    /// Actions for rows of observations: samples, or without `draws` the most probable.
    fn act(
        &mut self,
        policy: &Policy,
        row: &RowBuf,
        legal: Option<&[u8]>,
        draws: Option<Draws>,
        actions: ActionsMut<'_>,
        log_prob: &mut [f32],
    ) -> Result<()> {
        match self {
            Self::Cpu(actor) => {
                actor.forward(&policy.params, log_prob.len(), &row.obs);
                match draws {
                    Some(draws) => actor.sample(&policy.params, legal, draws, actions, log_prob),
                    None => actor.mode(&policy.params, legal, actions),
                }
                actor.remember();
                Ok(())
            }
            Self::Gpu(actor) => {
                actor.forward(&row.obs)?;
                actor.act(legal, draws, actions, log_prob)
            }
        }
    }

    /// Forgets the state of an env whose episode ended.
    fn forget(&mut self, env: usize) {
        if let Self::Cpu(actor) = self {
            actor.forget(env);
        }
    }
}

/// Returns and lengths of the episodes that were played.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Undiscounted returns.
    pub returns: Vec<f32>,
    /// Lengths in steps.
    pub lengths: Vec<i32>,
}

impl Evaluation {
    /// Mean return.
    pub fn mean(&self) -> f64 {
        self.returns.iter().map(|&x| f64::from(x)).sum::<f64>() / self.returns.len() as f64
    }

    /// Standard deviation of returns.
    pub fn std(&self) -> f64 {
        let mean = self.mean();
        (self.returns.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / self.returns.len() as f64).sqrt()
    }

    /// Standard error of the mean return; 0 of a single episode, which says nothing of it.
    pub fn error(&self) -> f64 {
        self.std() / (self.returns.len() as f64 - 1.0).max(1.0).sqrt()
    }

    /// Mean length.
    pub fn mean_length(&self) -> f64 {
        self.lengths.iter().map(|&x| f64::from(x)).sum::<f64>() / self.lengths.len() as f64
    }
}

/// Envs and a player for so many episodes side by side, from one evaluation to the next.
pub(super) struct Stage {
    envs: Box<dyn VecEnv>,
    player: Player,
    row: RowBuf,
    actions: ActionColumn,
    log_prob: Vec<f32>,
}

/// What [`Stage::play`] plays.
pub(super) struct Quota {
    pub(super) episodes: usize,
    pub(super) seed: u64,
    pub(super) deterministic: bool,
    /// Steps of each env after which no more are taken, for envs whose episodes may have no end.
    pub(super) most_steps: Option<u64>,
}

impl Stage {
    pub(super) fn new(policy: &Policy, envs: Box<dyn VecEnv>, decides: &Device, pool: Arc<CpuPool>) -> Result<Self> {
        check_fits(policy, envs.as_ref())?;
        let n = envs.num_envs();
        Ok(Self {
            player: Player::new(policy, n, decides, pool)?,
            row: RowBuf::new(envs.spec(), n),
            actions: ActionColumn::new(policy.head.continuous(), n * policy.head.dims()),
            log_prob: vec![0.0; n],
            envs,
        })
    }

    /// Envs side by side.
    pub(super) fn num_envs(&self) -> usize {
        self.envs.num_envs()
    }

    /// What each env is.
    pub(super) fn spec(&self) -> &env::Spec {
        self.envs.spec()
    }

    /// Plays whole episodes, and says how many env steps that took. Every env plays the same number (or one more), so that
    /// short episodes do not crowd out long ones. Fewer episodes than asked for come back where the steps did not do.
    pub(super) fn play(
        &mut self,
        policy: &Policy,
        quota: &Quota,
        mut watch: Option<&mut dyn FnMut(Canvas)>,
    ) -> Result<(Evaluation, u64)> {
        let Self { envs, player, row, actions, log_prob } = self;
        let (n, masked, dims) = (envs.num_envs(), envs.spec().masked, policy.head.dims());
        let quotas: Vec<usize> = (0..n).map(|env| quota.episodes / n + usize::from(env < quota.episodes % n)).collect();
        let mut done: Vec<Vec<(f32, i32)>> = vec![Vec::new(); n];
        (0..n).for_each(|env| player.forget(env));
        envs.reset(Seeds::One(quota.seed ^ EVALUATION), None, row.row());
        check_whole(envs.as_ref())?;
        let mut step = 0;
        while done.iter().zip(&quotas).any(|(done, quota)| done.len() < *quota)
            && quota.most_steps.is_none_or(|most| step < most)
        {
            if done[0].is_empty()
                && let Some(watch) = &mut watch
                && let Some(canvas) = envs.draw(0)
            {
                watch(canvas);
            }
            policy.normalise(&mut row.obs);
            let legal = masked.then_some(&row.legal[..]);
            let all = actions.slice_mut(0..n * dims);
            let draws = Draws { seed: quota.seed ^ EVALUATION, first_row: 0, step };
            player.act(policy, row, legal, (!quota.deterministic).then_some(draws), all, log_prob)?;
            let chosen = match &*actions {
                ActionColumn::Choices(actions) => Actions::I32(actions),
                ActionColumn::Numbers(actions) => Actions::F32(actions),
            };
            envs.step(chosen, row.row());
            check_whole(envs.as_ref())?;
            for env in 0..n {
                if row.terminated[env] | row.truncated[env] == 0 {
                    continue;
                }
                player.forget(env);
                if row.episode_length[env] > 0 && done[env].len() < quotas[env] {
                    done[env].push((row.episode_return[env], row.episode_length[env]));
                }
            }
            step += 1;
        }
        let (returns, lengths) = done.into_iter().flatten().unzip();
        Ok((Evaluation { returns, lengths }, step * n as u64))
    }
}

fn check_whole(envs: &dyn VecEnv) -> Result<()> {
    envs.failure().map_or(Ok(()), |failure| Err(Error::Device(failure)))
}

/// Envs that play beside those of a run, with same-step auto-reset.
pub(super) fn build_envs(
    entry: &env::Entry,
    params: &[(&str, f64)],
    n: usize,
    device: &Device,
    pool: &Arc<CpuPool>,
) -> Result<Box<dyn VecEnv>> {
    let on_gpu = entry.door() == env::Door::Lanes || entry.works_on_gpu();
    let options = env::Options {
        device: if on_gpu { device.clone() } else { Device::Cpu },
        pool: Arc::clone(pool),
        backend: Backend::new(Width::Auto, Math::Strict),
        autoreset: AutoReset::SameStep,
        ..env::Options::new(n)
    };
    entry.build(params, &options)
}

/// Envs that play so many episodes at once.
pub(super) fn side_by_side(episodes: usize) -> usize {
    episodes.min(MAX_ENVS)
}

/// Plays whole episodes. `watch` is shown the first env after every step, until its first episode ends.
pub fn evaluate(
    policy: &Policy,
    env: &env::Entry,
    params: &[(&str, f64)],
    play: &Play,
    watch: Option<&mut dyn FnMut(Canvas)>,
) -> Result<Evaluation> {
    if play.episodes == 0 {
        return Err(Error::Invalid("0 episodes: wanted at least 1".into()));
    }
    let pool = Arc::new(CpuPool::new(play.threads.max(1)));
    let envs = build_envs(env, params, side_by_side(play.episodes), &play.device, &pool)?;
    // Where a GPU does the envs' own work, the CPU decides, as it does in training.
    let decides = if env.works_on_gpu() { &Device::Cpu } else { &play.device };
    let mut stage = Stage::new(policy, envs, decides, pool)?;
    let Play { episodes, seed, deterministic, .. } = *play;
    let quota = Quota { episodes, seed, deterministic, most_steps: None };
    Ok(stage.play(policy, &quota, watch)?.0)
}

fn check_fits(policy: &Policy, envs: &dyn VecEnv) -> Result<()> {
    let spec = envs.spec();
    let wanted = crate::algo::Head::new(spec);
    let inputs = policy.architecture.inputs();
    if wanted != policy.head || inputs != spec.observation.len() {
        return Err(Error::Invalid(format!(
            "the policy sees {inputs} numbers and acts by {:?}; {} shows {} and takes {wanted:?}",
            policy.head,
            spec.name,
            spec.observation.len()
        )));
    }
    Ok(())
}
