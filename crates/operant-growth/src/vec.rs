//! The envs of growth as one: their hosts train in one body, so that a step first does what every env chose, then trains all, then
//! measures all. To those above it is what [`HostVec`](operant_env::HostVec) is to other envs, and it saves the same bytes.

use super::bodies::Bodies;
use super::cohort::Cohort;
use super::episode::{Choice, Frame};
use super::{Growth, HostAction, HostEnv, Param, Params, Spec, Told, episode_seed, picture, saved};
use operant_base::{Error, Result};
use operant_env::host_vec::{Clock, OWN_COLUMNS};
use operant_env::saved::{self as vector, Header};
use operant_env::{Actions, AutoReset, Canvas, Options, Row, Seeds, VecEnv, check_columns};
use operant_lanes::{Column, Kind};
use std::sync::Arc;

/// Parameters that the networks were made with: another value wants other networks.
const FIXED: [&str; 12] = [
    "task",
    "host",
    "train_samples",
    "val_samples",
    "side",
    "modes",
    "fresh",
    "augment",
    "task_seed",
    "batch",
    "learning_rate",
    "precision",
];

/// N envs whose hosts train together.
pub struct GrowthVec<B> {
    env: Growth,
    spec: Spec,
    frame: Arc<Frame>,
    columns: [Column; 1],
    first_env: u32,
    autoreset: AutoReset,
    clocks: Vec<Clock>,
    /// What nobody has asked for yet.
    told: Vec<Told>,
    cohort: Cohort<B>,
    failure: Option<String>,
}

impl<B: Bodies> GrowthVec<B> {
    /// Envs of these parameters over networks that were made for them. Call `reset` before the first step.
    pub fn new(env: Growth, bodies: B, options: &Options) -> Result<Self> {
        let mut spec = env.spec();
        if let Some(limit) = options.time_limit {
            spec.time_limit = limit;
        }
        options.check(&spec, size_of::<Clock>() + size_of::<Told>())?;
        let count = options.num_envs;
        Ok(Self {
            frame: env.frame()?,
            env,
            spec,
            columns: [Column { name: "elapsed", kind: Kind::I32 }],
            first_env: options.first_env,
            autoreset: options.autoreset,
            clocks: vec![Clock::default(); count],
            told: vec![Told::default(); count],
            cohort: Cohort::new(count, bodies),
            failure: None,
        })
    }

    /// The episodes and their networks.
    pub fn cohort_mut(&mut self) -> &mut Cohort<B> {
        &mut self.cohort
    }

    fn number(&self, env: usize) -> u32 {
        self.first_env.wrapping_add(env as u32)
    }

    /// Begins the next episodes of these envs.
    fn begin_next(&mut self, envs: &[usize]) -> Result<()> {
        let mut new = Vec::new();
        for &env in envs {
            let number = self.number(env);
            let mut rng = self.clocks[env].begin_next(number);
            new.push((env, episode_seed(&mut rng, self.frame.rules.same_host)));
        }
        self.cohort.begin(&self.frame, &new)
    }

    fn publish(&self, out: &mut Row<'_>) {
        let (width, choices) = (self.spec.observation.len(), self.spec.action.choices());
        for env in 0..self.clocks.len() {
            let (obs, legal) = (&mut out.obs[env * width..][..width], &mut out.legal[env * choices..][..choices]);
            match self.cohort.episode(env) {
                Some(episode) => {
                    episode.observe(obs);
                    episode.legal(legal);
                }
                None => {
                    obs.fill(0.0);
                    legal.fill(1);
                }
            }
        }
    }

    fn tell(&mut self, env: usize) {
        if let Some(episode) = self.cohort.episode(env) {
            episode.tell(&mut self.told[env]);
        }
    }

    fn try_step(&mut self, actions: Actions<'_>, out: &mut Row<'_>) -> Result<()> {
        let (dims, width) = (self.spec.action.dims(), self.spec.observation.len());
        let choices: Vec<Option<Choice>> = (0..self.clocks.len())
            .map(|env| {
                let action = HostAction::new(actions, env * dims);
                (!self.clocks[env].pending).then(|| Choice::of(|head| action.index(head)))
            })
            .collect();
        let given = self.cohort.step(&choices)?;
        let mut over = Vec::new();
        for (env, given) in given.into_iter().enumerate() {
            let Some((reward, terminated)) = given else {
                (out.reward[env], out.terminated[env], out.truncated[env]) = (0.0, 0, 0);
                over.push(env);
                continue;
            };
            let number = self.number(env);
            self.clocks[env].step(number);
            self.tell(env);
            if !self.clocks[env].note(reward, terminated, self.spec.time_limit, env, out) {
                continue;
            }
            if let Some(episode) = self.cohort.episode(env) {
                episode.observe(&mut out.final_obs[env * width..][..width]);
            }
            match self.autoreset {
                AutoReset::SameStep => over.push(env),
                AutoReset::NextStep => self.clocks[env].pending = true,
                AutoReset::Disabled => {}
            }
        }
        self.begin_next(&over)
    }

    fn saved_as(&self) -> Header {
        Header {
            id: self.spec.id,
            num_envs: self.clocks.len(),
            columns: OWN_COLUMNS,
            first_env: self.first_env,
            autoreset: self.autoreset,
            time_limit: self.spec.time_limit,
            params: self.env.params(),
        }
    }

    fn note_failure(&mut self, result: Result<()>) {
        self.failure = result.err().map(|error| error.to_string());
    }
}

impl<B: Bodies + Send> VecEnv for GrowthVec<B> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn num_envs(&self) -> usize {
        self.clocks.len()
    }

    fn reset(&mut self, seeds: Seeds<'_>, which: Option<&[u8]>, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.clocks.len());
        let mut new = Vec::new();
        for env in (0..self.clocks.len()).filter(|&env| which.is_none_or(|which| which[env] != 0)) {
            let number = self.number(env);
            let mut rng = self.clocks[env].begin_by(seeds, env, number);
            new.push((env, episode_seed(&mut rng, self.frame.rules.same_host)));
        }
        let begun = self.cohort.begin(&self.frame, &new);
        self.note_failure(begun);
        (0..self.clocks.len()).for_each(|env| self.tell(env));
        self.publish(&mut out);
    }

    fn step(&mut self, actions: Actions<'_>, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.clocks.len());
        let (got, wanted) = (actions.len(), self.clocks.len() * self.spec.action.dims());
        assert!(got == wanted, "{got} action numbers for {}, wanted {wanted}", self.spec.name);
        let stepped = self.try_step(actions, &mut out);
        self.note_failure(stepped);
        self.publish(&mut out);
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    fn take_told(&mut self, told: &mut Told) {
        for (env, own) in self.told.iter_mut().enumerate() {
            told.take(env, own);
        }
    }

    fn observe(&self, mut out: Row<'_>) {
        out.assert_fits(&self.spec, self.clocks.len());
        self.publish(&mut out);
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn read(&self, _: usize, out: &mut [i32]) {
        out.iter_mut().zip(&self.clocks).for_each(|(word, clock)| *word = clock.elapsed as i32);
    }

    fn write(&mut self, columns: &[(usize, &[i32])]) -> Result<()> {
        check_columns(&self.columns, self.clocks.len(), columns)?;
        for (env, clock) in self.clocks.iter_mut().enumerate() {
            if let Some((_, words)) = columns.last() {
                clock.elapsed = words[env] as u32;
            }
            (clock.pending, clock.returned) = (false, 0.0);
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        let rests = (0..self.clocks.len()).map(|env| {
            match self.cohort.save(env) {
                Ok(saved) => saved.map_or_else(Vec::new, |(state, tensors)| saved::pack(state, &tensors)),
                // Tensors that can't be fetched leave nothing to go on from: `load` says that this is damaged.
                Err(_) => vec![0],
            }
        });
        vector::pack_with(&self.saved_as(), self.clocks.iter().flat_map(Clock::words), rests)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<()> {
        let (words, rests) = vector::unpack_with(&self.saved_as(), bytes)?;
        // An env that had not begun yet left nothing.
        let begun = |rest: &Vec<u8>| (!rest.is_empty()).then(|| saved::unpack(rest)).transpose();
        let episodes: Vec<_> = rests.iter().map(begun).collect::<Result<_>>()?;
        for (env, saved) in episodes.into_iter().enumerate() {
            match saved {
                Some((state, tensors)) => self.cohort.load(env, &self.frame, state, &tensors)?,
                None => self.cohort.forget(env),
            }
        }
        let clocks = words.chunks_exact(OWN_COLUMNS).map(Clock::from_words);
        self.clocks.iter_mut().zip(clocks).for_each(|(to, from)| *to = from);
        self.failure = None;
        Ok(())
    }

    fn draw(&self, env: usize) -> Option<Canvas> {
        self.cohort.episode(env).map(picture::draw)
    }

    fn params(&self) -> Vec<Param> {
        self.env.params()
    }

    fn set_param(&mut self, name: &str, value: f64) -> Result<()> {
        let mut changed = self.env.clone();
        changed.set(name, value)?;
        let before = self.env.params().into_iter().find(|param| param.name == name);
        if FIXED.contains(&name) && before.is_some_and(|param| param.value != value) {
            return Err(Error::Invalid(format!(
                "parameter {name} = {value}: networks that train side by side were made with another; build the envs anew"
            )));
        }
        self.spec.check_unchanged(&changed.spec(), name)?;
        self.frame = changed.frame()?;
        self.env = changed;
        Ok(())
    }
}
