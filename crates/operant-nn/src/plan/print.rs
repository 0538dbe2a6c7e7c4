//! Plans and profiles as text.

use super::super::op::{Kind, Type};
use super::build::{Buffer, Place, Recipe, Step, Work};
use super::{Plan, Real};
use std::fmt;

/// Time spent in one kind of op.
#[derive(Clone, Debug, PartialEq)]
pub struct OpTime {
    /// The op, with "(backward)" for gradients.
    pub op: String,
    /// Steps of that kind in the plan.
    pub steps: usize,
    /// Nanoseconds.
    pub nanoseconds: u64,
}

/// What a step of a plan is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepName<'a> {
    /// Of the layer or the node, where it has one.
    pub name: &'a str,
    /// The op.
    pub op: &'a str,
    /// Whether it belongs to the gradient.
    pub backward: bool,
}

impl<'a> StepName<'a> {
    pub(super) fn new(recipe: &'a Recipe, step: &'a Step) -> Self {
        let (op, backward) = match step.work {
            Work::Forward { call } => (recipe.nodes[call].op.name(), false),
            Work::Backward { call, .. } => (recipe.nodes[call].op.name(), true),
            Work::Add => ("add gradients", true),
            Work::Seed { .. } => ("begin gradients", true),
            Work::Total => ("mean", false),
        };
        Self { name: &step.name, op, backward }
    }
}

/// Time by op, longest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile(pub Vec<OpTime>);

impl Profile {
    pub(super) fn new(recipe: &Recipe, spent: impl Fn(usize) -> u64) -> Self {
        let mut times: Vec<OpTime> = Vec::new();
        for (i, step) in recipe.steps.iter().enumerate() {
            let StepName { op, .. } = StepName::new(recipe, step);
            let op = match step.work {
                Work::Backward { .. } => format!("{op} (backward)"),
                _ => op.to_owned(),
            };
            match times.iter_mut().find(|time| time.op == op) {
                Some(time) => (time.steps, time.nanoseconds) = (time.steps + 1, time.nanoseconds + spent(i)),
                None => times.push(OpTime { op, steps: 1, nanoseconds: spent(i) }),
            }
        }
        times.sort_by_key(|time| std::cmp::Reverse(time.nanoseconds));
        Self(times)
    }
}

impl Recipe {
    /// The shape of a buffer as a step's op sees it.
    fn shape(&self, step: &Step, buffer: Buffer) -> Option<&Type> {
        let types = &self.nodes[step.body()?.0].types;
        let sides = [(&step.x, &types.x), (&step.dx, &types.x), (&step.y, &types.y), (&step.dy, &types.y)];
        let mut pairs = sides.into_iter().flat_map(|(buffers, types)| buffers.iter().zip(types));
        pairs.find_map(|(one, ty)| (*one == Some(buffer)).then_some(ty))
    }
}

impl<R: Real> fmt::Display for Plan<R> {
    /// Nodes, shapes, offsets, bytes and products, one line per step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recipe = &*self.recipe;
        let kind = if recipe.training { "training" } else { "inference" };
        writeln!(
            f,
            "{kind} plan: up to {} rows in tiles of {}, {} stage{}{}, {} steps, {}, {}",
            recipe.max_rows,
            recipe.tile_rows,
            recipe.stages,
            if recipe.stages == 1 { "" } else { "s" },
            if recipe.branches.is_some() { ", 2 branches" } else { "" },
            recipe.steps.len(),
            self.compute.precision.name(),
            self.compute.backend.name(),
        )?;
        let bytes = |elements: usize| elements * size_of::<R>();
        writeln!(
            f,
            "{} FLOP per row forward; bytes: tile {}, whole batch {}, sums {}, packed weights {}, in all {}",
            recipe.flops,
            bytes(recipe.tile_len),
            bytes(recipe.full_len),
            bytes(recipe.sums_len),
            self.workers.iter().map(|worker| worker.packs.bytes()).sum::<usize>() + self.packs.bytes(),
            self.workspace_bytes(),
        )?;
        let buffer = |step: &Step, buffer: Buffer| {
            let slot = recipe.slots[buffer];
            let ty = recipe.shape(step, buffer).cloned().unwrap_or(Type { shape: vec![slot.len], kind: slot.kind });
            let each = if slot.kind == Kind::Ints { size_of::<i32>() } else { size_of::<R>() };
            let per = if slot.kind == Kind::Whole { "" } else { "/row" };
            let place = match slot.place {
                Place::Feed(number) => format!("feed {number}"),
                Place::Param(at) => format!("param@{}", bytes(at)),
                Place::Tile(at) => format!("tile@{}", bytes(at)),
                Place::Full(at) => format!("full@{}", bytes(at)),
                Place::Sum(at) => format!("sum@{}", bytes(at)),
            };
            format!("{ty} {} B{per} {place}", slot.len * each)
        };
        for step in &recipe.steps {
            let (what, flops) = match step.work {
                Work::Forward { call } => (recipe.nodes[call].op.name().to_owned(), recipe.nodes[call].flops),
                Work::Backward { call, .. } => {
                    (format!("{} (backward)", recipe.nodes[call].op.name()), 2 * recipe.nodes[call].flops)
                }
                Work::Add => ("add".into(), 0),
                Work::Seed { .. } => ("seed".into(), 0),
                Work::Total => ("mean".into(), 0),
            };
            let list = |all: Vec<Buffer>| all.into_iter().map(|one| buffer(step, one)).collect::<Vec<_>>().join(", ");
            let (from, to) = (list(step.reads().collect()), list(step.writes().collect()));
            writeln!(f, "{} {:<25} {:<28} {flops:>9} FLOP  {from} → {to}", step.stage, what, step.name)?;
        }
        Ok(())
    }
}
