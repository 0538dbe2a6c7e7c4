//! Positions as a network's training plan reads them.

use super::samples::{KEPT, Sample};
use crate::game::{Game, Turn};
use crate::search::policy::{Choice, Share};
use operant_lanes::rng::HostRng;
use operant_nn::Feed;

/// Rows of a batch: what is seen, and what is to be said of it.
pub(super) struct Batch<G: Game> {
    /// `[B, O]`, `[B, POLICY]`, `[B, POLICY]`, `[B, HEADS]`
    obs: Vec<f32>,
    policy: Vec<f32>,
    legal: Vec<f32>,
    heads: Vec<f32>,
    /// Rows that are filled, and how many of them are decisions.
    rows: usize,
    decisions: usize,
    /// Rows that a teacher valued.
    taught: Vec<usize>,
    room: G::Room,
    found: Vec<G::Action>,
    /// The same in an image of the state.
    imaged: Vec<G::Action>,
    shares: Vec<Share>,
}

impl<G: Game> Batch<G> {
    /// Room for so many rows.
    pub(super) fn new(size: usize) -> Self {
        Self {
            obs: vec![0.0; size * G::OBSERVATION],
            policy: vec![0.0; size * G::POLICY],
            legal: vec![0.0; size * G::POLICY],
            heads: vec![0.0; size * G::HEADS],
            rows: 0,
            decisions: 0,
            taught: Vec::with_capacity(size),
            room: G::Room::default(),
            found: Vec::with_capacity(4096),
            imaged: Vec::with_capacity(4096),
            shares: Vec::with_capacity(KEPT),
        }
    }

    /// Most rows.
    pub(super) fn size(&self) -> usize {
        self.heads.len() / G::HEADS
    }

    /// Rows that are decisions.
    pub(super) fn decisions(&self) -> usize {
        self.decisions
    }

    /// Rows that a teacher valued.
    pub(super) fn taught(&self) -> &[usize] {
        &self.taught
    }

    /// What value heads should say of a row.
    pub(super) fn heads(&self, row: usize) -> &[f32] {
        &self.heads[row * G::HEADS..][..G::HEADS]
    }

    /// Takes all rows out.
    pub(super) fn clear(&mut self) {
        (self.rows, self.decisions) = (0, 0);
        self.taught.clear();
    }

    /// Adds a position in one of its images.
    pub(super) fn add(&mut self, sample: &Sample<G>, rng: &mut HostRng) {
        let row = self.rows;
        self.rows += 1;
        let symmetry = if G::SYMMETRIES > 1 { rng.below(G::SYMMETRIES as u32) as usize } else { 0 };
        let state = G::image(&sample.state, symmetry);
        G::observe(&state, &mut self.obs[row * G::OBSERVATION..][..G::OBSERVATION]);
        let heads = &mut self.heads[row * G::HEADS..][..G::HEADS];
        match sample.taught {
            Some(taught) => {
                heads.copy_from_slice(&taught[..G::HEADS]);
                self.taught.push(row);
            }
            None => G::heads_of(sample.points, heads),
        }
        let policy = &mut self.policy[row * G::POLICY..][..G::POLICY];
        let legal = &mut self.legal[row * G::POLICY..][..G::POLICY];
        policy.fill(0.0);
        if G::turn(&state) != Turn::Decision || sample.kept == 0 {
            legal.fill(1.0);
            return;
        }
        self.decisions += 1;
        legal.fill(0.0);
        G::actions(&sample.state, &mut self.room, &mut self.found);
        if symmetry > 0 {
            // An action's image is the action of the image that leads to the image of what it leads to.
            G::actions(&state, &mut self.room, &mut self.imaged);
            for action in &mut self.found {
                let after = G::image(&G::after(&sample.state, action), symmetry);
                let image = self.imaged.iter().find(|image| G::after(&state, image) == after);
                *action = *image.unwrap_or(action);
            }
        }
        self.shares.clear();
        self.shares.extend(
            sample.policy[..usize::from(sample.kept)]
                .iter()
                .map(|&(action, share)| (G::policy_index(&state, &self.found[usize::from(action)]), share)),
        );
        let choice = Choice::draw(&self.shares, rng);
        for action in &self.found {
            if let Some(output) = choice.output(G::policy_index(&state, action)) {
                legal[output] = 1.0;
            }
        }
        choice.add_target(&self.shares, policy);
    }

    /// What a plan is fed, and how many rows: a policy's target is scaled so that its mean loss is one over decisions alone.
    pub(super) fn feeds(&mut self) -> ([Feed<'_>; 4], usize) {
        let rows = self.rows;
        if self.decisions > 0 && self.decisions < rows {
            let scale = rows as f32 / self.decisions as f32;
            self.policy[..rows * G::POLICY].iter_mut().for_each(|share| *share *= scale);
        }
        let feeds = [
            &self.obs[..rows * G::OBSERVATION],
            &self.policy[..rows * G::POLICY],
            &self.legal[..rows * G::POLICY],
            &self.heads[..rows * G::HEADS],
        ];
        (feeds.map(Feed::Real), rows)
    }
}
