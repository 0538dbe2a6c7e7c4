//! Episodes that go on side by side: each decides for itself, then all train, then all are measured.

use super::bodies::{Apart, Bodies, Saved};
use super::episode::{Choice, Episode, Frame, STYLES, State};
use super::lifecycle::Stage;
use operant_base::{Error, Result};
use operant_nn::grow::{Blueprint, Grown, Seed};
use std::sync::Arc;

/// Episodes and their networks, by place.
#[derive(Clone, Debug)]
pub struct Cohort<B> {
    episodes: Vec<Option<Episode>>,
    bodies: B,
}

impl<B: Bodies> Cohort<B> {
    /// So many places in which nothing has begun.
    pub fn new(count: usize, bodies: B) -> Self {
        Self { episodes: vec![None; count], bodies }
    }

    /// The episode of a place, once it began.
    pub fn episode(&self, place: usize) -> Option<&Episode> {
        self.episodes[place].as_ref()
    }

    /// Begins episodes in places, each with its seed.
    pub fn begin(&mut self, frame: &Arc<Frame>, new: &[(usize, u64)]) -> Result<()> {
        for &(place, seed) in new {
            self.bodies.renew(place, seed)?;
            self.episodes[place] = Some(Episode::new(Arc::clone(frame), seed));
        }
        let places: Vec<usize> = new.iter().map(|(place, _)| *place).collect();
        self.bodies.keep(&places)?;
        self.measure(&places, false)
    }

    /// One step of the places that have a choice: reward, and whether the episode is over. Places without one must begin anew
    /// before they take a step.
    pub fn step(&mut self, choices: &[Option<Choice>]) -> Result<Vec<Option<(f32, bool)>>> {
        let mut turns = Vec::new();
        for (place, choice) in choices.iter().enumerate() {
            let (Some(episode), Some(choice)) = (&mut self.episodes[place], choice) else { continue };
            turns.push((place, episode.act(choice, &mut self.bodies, place)?));
        }
        let places: Vec<usize> = turns.iter().map(|(place, _)| *place).collect();
        let episodes = &mut self.episodes;
        let mut lessons: Vec<_> =
            places.iter().filter_map(|&place| Some(episodes[place].as_ref()?.lesson(place))).collect();
        let trained = self.bodies.train(&mut lessons)?;
        for (&place, trained) in places.iter().zip(&trained) {
            if let Some(episode) = &mut self.episodes[place] {
                episode.learned(trained);
            }
        }
        self.measure(&places, true)?;
        let (mut calm, mut back) = (Vec::new(), Vec::new());
        for (&place, trained) in places.iter().zip(&trained) {
            let Some(episode) = &mut self.episodes[place] else { continue };
            match episode.look(trained.finite) {
                Some(panic) => {
                    episode.set_back(panic, &mut self.bodies, place)?;
                    back.push(place);
                }
                None if episode.state.governor.is_calm() => calm.push(place),
                None => {}
            }
        }
        self.bodies.keep(&calm)?;
        // Of the gradients of weights that were set back nothing is known.
        self.measure(&back, false)?;
        let mut given = vec![None; choices.len()];
        for (place, turn) in &turns {
            given[*place] = self.episodes[*place].as_mut().map(|episode| episode.pay(turn, back.contains(place)));
        }
        Ok(given)
    }

    /// Validates, and scores coalitions of the seeds that are heard; looks at gradients if they are of the networks as they are.
    fn measure(&mut self, places: &[usize], with_gradients: bool) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let mut asked = Vec::new();
        let mut counts = Vec::new();
        for &place in places {
            let asks = self.episodes[place].as_ref().map_or_else(Vec::new, Episode::asks);
            counts.push(asks.len());
            asked.extend(asks.into_iter().map(|alphas| (place, alphas)));
        }
        let scores = self.bodies.score(&asked)?;
        let sizes = if with_gradients { Some(self.bodies.gradient_sizes()?) } else { None };
        let mut rest = &scores[..];
        for (&place, count) in places.iter().zip(counts) {
            let (own, others) = rest.split_at(count);
            rest = others;
            if let Some(episode) = &mut self.episodes[place] {
                episode.judged(own, sizes.as_ref().map(|sizes| &sizes[place][..]));
                let bodies = &mut self.bodies;
                episode.draw_worth(|alphas| Ok(bodies.score(&[(place, alphas)])?[0]))?;
            }
        }
        Ok(())
    }

    /// Scores of coalitions of slots with α forced to 1 for those in it and 0 for the others, in points.
    pub fn forced_scores(&mut self, place: usize, slots: &[usize], coalitions: &[u32]) -> Result<Vec<f64>> {
        let Some(count) = self.episode(place).map(|episode| episode.state.slots.len()) else { return Ok(Vec::new()) };
        let alphas = |coalition: &u32| {
            let mut alphas = vec![0.0; count];
            for (i, &slot) in slots.iter().enumerate() {
                alphas[slot] = (coalition >> i & 1) as f32;
            }
            (place, alphas)
        };
        let asked: Vec<_> = coalitions.iter().map(alphas).collect();
        Ok(self.bodies.score(&asked)?.iter().map(|score| f64::from(100.0 * score.accuracy)).collect())
    }

    /// All of an episode: its state and its tensors.
    pub(super) fn save(&self, place: usize) -> Result<Option<(&State, Saved)>> {
        let episode = self.episode(place);
        episode.map(|episode| Ok((&episode.state, self.bodies.saved(place)?))).transpose()
    }

    /// Leaves a place without an episode.
    pub(super) fn forget(&mut self, place: usize) {
        self.episodes[place] = None;
    }

    /// Goes on from what was saved of a place.
    pub(super) fn load(&mut self, place: usize, frame: &Arc<Frame>, mut state: State, saved: &Saved) -> Result<()> {
        let damaged = || Error::Saved("saved growth episode is damaged; load one that save() gave".into());
        let mut topology = frame.bare();
        let slots = topology.seeds.len();
        // Older states do not tell.
        if state.data != 0 && state.data != frame.task.digest {
            let (then, now) = (state.data, frame.task.digest);
            return Err(Error::Saved(format!(
                "it was trained on other data: the files' checksum was {then:016x}, here it is {now:016x}; name those files by task_data (--task-data)"
            )));
        }
        state.data = frame.task.digest;
        if [state.slots.len(), state.planted.len(), state.born.len()] != [slots; 3] {
            return Err(damaged());
        }
        for (slot, planted) in state.planted.iter().enumerate() {
            let Some(planted) = planted else { continue };
            let blueprint = Blueprint::from_index(planted.blueprint).ok_or_else(damaged)?;
            let &(_, blend, _) = STYLES.get(planted.style).ok_or_else(damaged)?;
            let detached = matches!(state.slots[slot].stage, Stage::Germinated | Stage::Training);
            topology.seeds[slot] = Some(Seed { blueprint, blend, detached });
        }
        let alphas: Vec<f32> = state.slots.iter().map(|slot| slot.alpha.value).collect();
        self.bodies.restore(place, &topology, &alphas, saved)?;
        self.episodes[place] = Some(Episode { state, frame: Arc::clone(frame) });
        Ok(())
    }

    /// Makes a host's weights infinite, as an accident would: for tests of the governor.
    #[doc(hidden)]
    pub fn poison(&mut self, place: usize) -> Result<()> {
        let mut weights = self.bodies.saved(place)?.now;
        let head = weights.tensors.iter_mut().filter(|(name, _)| name == "host.head.bias");
        head.for_each(|(_, [values, ..])| values.fill(f32::INFINITY));
        self.bodies.take(place, &weights)
    }
}

impl Cohort<Apart> {
    /// The network of a place.
    pub fn network(&self, place: usize) -> &Grown {
        self.bodies.network(place)
    }
}
