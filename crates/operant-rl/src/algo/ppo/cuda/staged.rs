//! Envs that the host steps for networks on the GPU, in two parts where the envs allow it: while the host steps one, the GPU decides for
//! the other. Rows and actions lie in memory of the host that kernels reach, so nothing is copied twice.

use super::playing::{Network, THREADS};
use super::*;
use operant_device::cuda::HostBuffer;
use operant_env::{Actions, Row};

/// `Staged` of `playing.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct StagedPointers {
    obs: DevicePtr,
    reward: DevicePtr,
    final_obs: DevicePtr,
    episode_return: DevicePtr,
    episode_length: DevicePtr,
    terminated: DevicePtr,
    truncated: DevicePtr,
    legal: DevicePtr,
    action: DevicePtr,
    first: u32,
    count: u32,
    warp: u32,
    unused: u32,
}

/// `A` is what kernels are told beside.
#[derive(Clone, Copy)]
#[repr(C)]
struct StageArgs<A> {
    act: A,
    staged: StagedPointers,
}

impl<A: Copy> KernelParams for StageArgs<A> {}

/// Envs that are stepped together.
struct Part<P> {
    first: usize,
    count: usize,
    /// The first warp of theirs that adds up for the normaliser.
    warp: usize,
    /// What runs the networks on their rows.
    pass: P,
    /// Set when their actions are drawn.
    decided: Event,
}

/// What a step of all envs gives, `[N, …]`.
struct Rows {
    width: usize,
    choices: usize,
    obs: HostBuffer<f32>,
    reward: HostBuffer<f32>,
    final_obs: HostBuffer<f32>,
    episode_return: HostBuffer<f32>,
    episode_length: HostBuffer<i32>,
    terminated: HostBuffer<u8>,
    truncated: HostBuffer<u8>,
    legal: HostBuffer<u8>,
}

impl Rows {
    fn new(gpu: &Arc<Gpu>, n: usize, spec: &Spec) -> Result<Self> {
        let (width, choices) = (spec.observation.len(), spec.legal_width());
        Ok(Self {
            width,
            choices,
            legal: HostBuffer::new(gpu, n * choices, "legal choices")?,
            obs: HostBuffer::new(gpu, n * width, "observations")?,
            reward: HostBuffer::new(gpu, n, "rewards")?,
            final_obs: HostBuffer::new(gpu, n * width, "last observations")?,
            episode_return: HostBuffer::new(gpu, n, "returns of episodes")?,
            episode_length: HostBuffer::new(gpu, n, "lengths of episodes")?,
            terminated: HostBuffer::new(gpu, n, "ends of episodes")?,
            truncated: HostBuffer::new(gpu, n, "ends of episodes")?,
        })
    }

    /// Those of `count` envs from `first` on.
    fn row(&mut self, first: usize, count: usize) -> Row<'_> {
        let (envs, obs) = (first..first + count, first * self.width..(first + count) * self.width);
        Row {
            obs: &mut self.obs.slice_mut()[obs.clone()],
            reward: &mut self.reward.slice_mut()[envs.clone()],
            terminated: &mut self.terminated.slice_mut()[envs.clone()],
            truncated: &mut self.truncated.slice_mut()[envs.clone()],
            final_obs: &mut self.final_obs.slice_mut()[obs],
            episode_return: &mut self.episode_return.slice_mut()[envs.clone()],
            episode_length: &mut self.episode_length.slice_mut()[envs],
            legal: &mut self.legal.slice_mut()[first * self.choices..(first + count) * self.choices],
        }
    }

    /// Whether an episode of these envs was cut short.
    fn cut(&self, first: usize, count: usize) -> bool {
        let envs = first..first + count;
        let mut flags = self.terminated.slice()[envs.clone()].iter().zip(&self.truncated.slice()[envs]);
        flags.any(|(&terminated, &truncated)| truncated > terminated)
    }
}

/// Rows and actions of all envs, and the kernels that use them.
pub(super) struct Staging<A, P> {
    gpu: Arc<Gpu>,
    parts: Vec<Part<P>>,
    dims: usize,
    /// Threads of an env in `begin` and `take`.
    threads: usize,
    rows: Rows,
    /// One of the two; the other is empty.
    choices: HostBuffer<i32>,
    numbers: HostBuffer<f32>,
    begin: Kernel<StageArgs<A>>,
    sample: Kernel<StageArgs<A>>,
    take: Kernel<StageArgs<A>>,
}

/// First env and count of each part: two of about the same size where the envs can be stepped so.
fn parts_of(num_envs: usize, part_size: usize) -> Vec<(usize, usize)> {
    // Whole tiles: products want their rows at round addresses.
    let first = (num_envs / 2).next_multiple_of(part_size.max(TILE)).min(num_envs);
    let parts = [(0, first), (first, num_envs - first)];
    parts.into_iter().filter(|&(_, count)| count > 0).collect()
}

/// Warps of `take` for envs in such parts.
pub(super) fn warps(env: &dyn VecEnv) -> usize {
    parts_of(env.num_envs(), env.part_size()).iter().map(|(_, count)| count.div_ceil(32)).sum()
}

impl<A: Copy, P> Staging<A, P> {
    /// `pass` makes what runs the networks on so many envs from one on.
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        module: &Module,
        env: &dyn VecEnv,
        threads: usize,
        pass: impl Fn(usize, usize) -> Result<P>,
    ) -> Result<Self> {
        let (n, spec) = (env.num_envs(), env.spec());
        let (dims, discrete) = (spec.action.dims(), spec.action.choices() > 0);
        let mut parts = Vec::new();
        let mut warp = 0;
        for (first, count) in parts_of(n, env.part_size()) {
            parts.push(Part { first, count, warp, pass: pass(first, count)?, decided: Event::new(gpu)? });
            warp += count.div_ceil(32);
        }
        Ok(Self {
            rows: Rows::new(gpu, n, spec)?,
            choices: HostBuffer::new(gpu, if discrete { n * dims } else { 0 }, "actions")?,
            numbers: HostBuffer::new(gpu, if discrete { 0 } else { n * dims }, "actions")?,
            begin: module.kernel("begin")?,
            sample: module.kernel("sample")?,
            take: module.kernel("take")?,
            gpu: Arc::clone(gpu),
            parts,
            dims,
            threads,
        })
    }

    fn args(&self, part: usize, act: &A) -> StageArgs<A> {
        let (Part { first, count, warp, .. }, rows) = (&self.parts[part], &self.rows);
        let (first, count, warp) = (*first, *count, *warp);
        let action = if self.numbers.slice().is_empty() { self.choices.pointer() } else { self.numbers.pointer() };
        StageArgs {
            act: *act,
            staged: StagedPointers {
                obs: rows.obs.pointer().offset(4 * first * rows.width),
                reward: rows.reward.pointer().offset(4 * first),
                final_obs: rows.final_obs.pointer().offset(4 * first * rows.width),
                episode_return: rows.episode_return.pointer().offset(4 * first),
                episode_length: rows.episode_length.pointer().offset(4 * first),
                terminated: rows.terminated.pointer().offset(first),
                truncated: rows.truncated.pointer().offset(first),
                legal: rows.legal.pointer().offset(first * rows.choices),
                action: action.offset(4 * first * self.dims),
                first: first as u32,
                count: count as u32,
                warp: warp as u32,
                unused: 0,
            },
        }
    }

    fn launch(&self, kernel: &Kernel<StageArgs<A>>, part: usize, act: &A, threads: usize) -> Result<()> {
        let blocks = (self.parts[part].count * threads).div_ceil(THREADS) as u32;
        kernel.launch(blocks, THREADS as u32, &self.args(part, act))
    }

    /// Plays T steps of all envs, part by part: while one part steps, the GPU is at work for the other.
    pub(super) fn play(&mut self, network: &impl Network<A, P>, now: &Now<'_>, env: &mut dyn VecEnv) -> Result<()> {
        if env.failure().is_some() {
            now.normaliser.forget_episodes()?;
        }
        self.observe(env)?;
        let parts = self.parts.len();
        for part in 0..parts {
            self.launch(&self.begin, part, &network.args(now, &self.parts[part].pass, 0), self.threads)?;
        }
        (0..parts).try_for_each(|part| self.decide(network, now, part, 0))?;
        let steps = now.settings.num_steps;
        for t in 0..steps {
            for part in 0..parts {
                let cut = self.step(part, env, &network.args(now, &self.parts[part].pass, t))?;
                let pass = &self.parts[part].pass;
                network.remember(now, pass, t)?;
                if cut {
                    network.settle_cut(now, pass, 0)?;
                }
                if part + 1 == parts {
                    now.normaliser.merge(1)?;
                }
                if t + 1 < steps {
                    self.decide(network, now, part, t + 1)?;
                }
            }
        }
        self.parts.iter().try_for_each(|part| {
            network.forward(&part.pass)?;
            network.settle(now, &part.pass)
        })
    }

    /// Has the host write what the envs show. Envs that failed begin anew.
    fn observe(&mut self, env: &mut dyn VecEnv) -> Result<()> {
        // Kernels of a rollout that was broken off may still read rows.
        self.gpu.synchronize()?;
        let n = env.num_envs();
        match env.failure() {
            None => env.observe(self.rows.row(0, n)),
            Some(_) => env.reset(Seeds::Keep, None, self.rows.row(0, n)),
        }
        env.failure().map_or(Ok(()), |why| Err(Error::Invalid(why)))
    }

    /// Draws the actions of a part's step t.
    fn decide(&self, network: &impl Network<A, P>, now: &Now<'_>, part: usize, t: usize) -> Result<()> {
        let Part { pass, decided, .. } = &self.parts[part];
        network.forward(pass)?;
        self.launch(&self.sample, part, &network.args(now, pass, t), 1)?;
        decided.record()
    }

    /// Steps a part as was decided, and has the GPU take what it gave. Tells whether an episode was cut short.
    fn step(&mut self, part: usize, env: &mut dyn VecEnv, act: &A) -> Result<bool> {
        let (first, count) = (self.parts[part].first, self.parts[part].count);
        self.parts[part].decided.wait()?;
        let range = first * self.dims..(first + count) * self.dims;
        let actions = match self.numbers.slice().is_empty() {
            true => Actions::I32(&self.choices.slice()[range]),
            false => Actions::F32(&self.numbers.slice()[range]),
        };
        env.step_part(first, actions, self.rows.row(first, count));
        env.failure().map_or(Ok(()), |why| Err(Error::Invalid(why)))?;
        self.launch(&self.take, part, act, self.threads)?;
        Ok(self.rows.cut(first, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_envs() {
        assert_eq!(parts_of(64, 16), [(0, 32), (32, 32)]);
        assert_eq!(parts_of(48, 16), [(0, 32), (32, 16)]);
        assert_eq!(parts_of(16, 16), [(0, 16)]);
        assert_eq!(parts_of(48, 1), [(0, 32), (32, 16)]);
        assert_eq!(parts_of(48, 48), [(0, 48)]);
    }
}
