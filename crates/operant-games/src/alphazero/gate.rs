//! Which weights play: those that learned, unless they are worse than the ones in use on positions that are held back from learning.

use super::batch::Batch;
use super::samples::{Sample, read_all, take, write_all};
use super::settings::Settings;
use crate::game::Game;
use operant_base::{Error, Result};
use operant_lanes::rng::HostRng;
use operant_nn::{Graph, Node, Options, Params, Plan, Wanted};

/// Of every so many games that are played side by side one is held back, until there are enough positions.
const EVERY: u32 = 16;
/// Sets choices among a position's images apart from all else with the same seed.
const HELD_BACK: u64 = 0x6865_6c64_0000_0000;

/// Positions that nobody learns from.
struct HeldBack<G: Game> {
    set: Vec<Sample<G>>,
    batch: Batch<G>,
    plan: Plan,
    losses: [Node; 2],
    value_weight: f64,
    seed: u64,
}

impl<G: Game> HeldBack<G> {
    /// The loss that is learned by, over all positions.
    fn mean_loss(&mut self, params: &Params) -> f64 {
        let mut sum = 0.0;
        for (number, samples) in self.set.chunks(self.batch.size()).enumerate() {
            // The same images of the same positions each time.
            let mut rng = HostRng::new(self.seed ^ HELD_BACK, number as u32, 0, 0);
            self.batch.clear();
            samples.iter().for_each(|sample| self.batch.add(sample, &mut rng));
            let (feeds, rows) = self.batch.feeds();
            self.plan.forward(params, rows, &feeds);
            let [policy, value] = self.losses.map(|loss| self.plan.metric(loss).sum::<f64>());
            sum += (policy + self.value_weight * value) * rows as f64;
        }
        sum / self.set.len() as f64
    }
}

/// The weights in use, and what others have to be no worse on.
pub(super) struct Gate<G: Game> {
    held_back: HeldBack<G>,
    /// Positions that are to be held back.
    size: usize,
    margin: f64,
    in_use: Params,
    /// Loss of the weights in use; not known before all positions are there.
    loss: f64,
}

impl<G: Game> Gate<G> {
    /// For a graph with losses of a policy and of values.
    pub(super) fn new(
        settings: &Settings,
        graph: &Graph,
        losses: [Node; 2],
        params: &Params,
        options: &Options,
    ) -> Result<Self> {
        let wanted = Wanted { metrics: losses.to_vec(), ..Wanted::default() };
        let rows = settings.batch_size.min(settings.held_back);
        Ok(Self {
            held_back: HeldBack {
                set: Vec::with_capacity(settings.held_back),
                batch: Batch::new(rows),
                plan: Plan::new(graph, &wanted, rows, options)?,
                losses,
                value_weight: f64::from(settings.value_weight),
                seed: options.seed,
            },
            size: settings.held_back,
            margin: settings.gate_margin,
            in_use: params.clone(),
            loss: f64::NAN,
        })
    }

    /// The weights that play.
    pub(super) fn in_use(&self) -> &Params {
        &self.in_use
    }

    /// Their loss on positions that are held back.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// Keeps a position of a game if it is to be held back.
    pub(super) fn keeps(&mut self, place: u32, sample: &Sample<G>) -> bool {
        let keeps = place.is_multiple_of(EVERY) && self.held_back.set.len() < self.size;
        if keeps {
            self.held_back.set.push(*sample);
        }
        keeps
    }

    /// Takes these weights into use, unless they are worse; tells whether it did.
    pub(super) fn promotes(&mut self, params: &Params) -> bool {
        let mut loss = f64::NAN;
        if self.held_back.set.len() == self.size {
            if self.loss.is_nan() {
                self.loss = self.held_back.mean_loss(&self.in_use);
            }
            loss = self.held_back.mean_loss(params);
            // Not a number is worse than any.
            if loss.is_nan() || loss > self.loss + self.margin * self.loss.abs() {
                return false;
            }
        }
        self.in_use.values_mut().copy_from_slice(params.values());
        self.loss = loss;
        true
    }

    /// What a checkpoint keeps beside the weights.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.loss.to_bits().to_le_bytes().to_vec();
        write_all(self.held_back.set.iter(), &mut out);
        out
    }

    pub(super) fn load(&mut self, network: &[u8], mut bytes: &[u8]) -> Result<()> {
        let damaged = || Error::Saved("checkpoint's gate.bin does not fit this run; take another".into());
        self.in_use.from_bytes(network)?;
        self.loss = f64::from_bits(u64::from_le_bytes(take(&mut bytes).ok_or_else(damaged)?));
        read_all(&mut bytes, self.size, &mut self.held_back.set).ok_or_else(damaged)?;
        if bytes.is_empty() { Ok(()) } else { Err(damaged()) }
    }
}
