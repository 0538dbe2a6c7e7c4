//! What keeps a policy of several choices from closing doors too early: floors of its heads, and a time in which values alone learn.

use super::Settings;
use crate::algo::policy::Head;
use operant_base::{Error, Result};
use operant_nn::ops::raise_to_floors;
use operant_nn::{Graph, Node, Params};
use std::ops::Range;

/// Floors of the heads of choices; none by default.
#[derive(Clone, Debug, Default)]
pub(super) struct Floors {
    heads: Vec<usize>,
    /// Of probabilities and of entropies, one per head; empty where no head has one.
    probabilities: Vec<f32>,
    entropies: Vec<f32>,
    /// Weight of what entropies lack.
    weight: f32,
    /// Logits of the rows that act.
    raised: Vec<f32>,
}

impl Floors {
    /// Those of the settings, for so many rows that act at once.
    pub(super) fn new(settings: &Settings, head: &Head, rows: usize) -> Result<Self> {
        let heads = if let Head::Choices(heads) = head { heads.as_slice() } else { &[] };
        let of = |key: &str, floors: &[f64]| {
            if floors.len() > heads.len() {
                let (given, known) = (floors.len(), heads.len());
                return Err(Error::Invalid(format!(
                    "ppo.{key} = {floors:?}: {given} floors for {known} heads of choices; wanted at most one per head"
                )));
            }
            let mut all: Vec<f32> = floors.iter().map(|floor| *floor as f32).collect();
            if all.iter().any(|floor| *floor > 0.0) {
                all.resize(heads.len(), 0.0);
            } else {
                all.clear();
            }
            Ok(all)
        };
        let probabilities = of("prob_floors", &settings.prob_floors)?;
        let entropies = of("ent_floors", &settings.ent_floors)?;
        let acting = if probabilities.is_empty() { 0 } else { rows * heads.iter().sum::<usize>() };
        let weight = settings.ent_floor_coef as f32;
        Ok(Self { heads: heads.to_vec(), probabilities, entropies, weight, raised: vec![0.0; acting] })
    }

    /// Logits of the policy that acts.
    pub(super) fn raise(&self, g: &mut Graph, logits: Node, mask: Option<Node>) -> Result<Node> {
        if self.probabilities.is_empty() {
            return Ok(logits);
        }
        g.probability_floor(logits, &self.heads, &self.probabilities, mask)
    }

    /// A loss with what entropies lack added to it.
    pub(super) fn add_lack(&self, g: &mut Graph, loss: Node, logits: Node, mask: Option<Node>) -> Result<Node> {
        if self.entropies.is_empty() {
            return Ok(loss);
        }
        let lack = g.entropy_floor(logits, &self.heads, &self.entropies, mask)?;
        let lack = g.scale(lack, self.weight)?;
        g.add(loss, lack)
    }

    /// [`Floors::raise`] of rows that are about to act.
    pub(super) fn raise_rows<'a>(&'a mut self, logits: &'a [f32], legal: Option<&[u8]>) -> &'a [f32] {
        if self.probabilities.is_empty() {
            return logits;
        }
        let raised = &mut self.raised[..logits.len()];
        raised.copy_from_slice(logits);
        raise_to_floors(&self.heads, &self.probabilities, raised, legal);
        raised
    }
}

/// Gives the biases of the policy's last layer their first values.
pub(super) fn begin_with(logits: &[f64], layer: &str, head: &Head, params: &mut Params) -> Result<()> {
    let heads = if let Head::Choices(heads) = head { heads.as_slice() } else { &[] };
    // Whole heads: numbers for other sizes would speak for other choices than they were meant for.
    let fits: Vec<usize> = (0..=heads.len()).map(|count| heads[..count].iter().sum()).collect();
    if !fits.contains(&logits.len()) {
        let (given, choices) = (logits.len(), fits.last().copied().unwrap_or(0));
        let sizes = fits[1..].iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        return Err(Error::Invalid(format!(
            "ppo.first_logits: {given} numbers for {choices} choices; wanted one for each choice of the first heads, side by side: {sizes} \
             of them, or none"
        )));
    }
    if !logits.is_empty() {
        let biases = params.get_mut(&format!("{layer}.bias"))?;
        biases.iter_mut().zip(logits).for_each(|(bias, logit)| *bias = *logit as f32);
    }
    Ok(())
}

/// Gradients of the critic's own layers, with zeros in place of all others.
#[derive(Debug)]
pub(super) struct CriticAlone {
    ranges: Vec<Range<usize>>,
    gradients: Vec<f32>,
}

impl CriticAlone {
    /// For a network with these parameters.
    pub(super) fn new(params: &Params) -> Self {
        let own = params.specs().iter().filter(|spec| spec.name.starts_with("critic."));
        Self { ranges: own.map(|spec| spec.range()).collect(), gradients: vec![0.0; params.values().len()] }
    }

    /// What is left of these gradients.
    pub(super) fn of(&mut self, gradients: &[f32]) -> &[f32] {
        for range in &self.ranges {
            self.gradients[range.clone()].copy_from_slice(&gradients[range.clone()]);
        }
        &self.gradients
    }
}
