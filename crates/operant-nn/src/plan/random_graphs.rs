//! Random graphs planned and looked at: what the executor's unsafe code relies on.

use super::super::graph::{Graph, Node};
use super::build::{Place, Recipe, Slot, Wanted};
use super::{Feed, Gradients, Options, Plan};
use crate::{Kind, Params};
use operant_lanes::rng::HostRng;
use proptest::prelude::*;

const WIDTH: usize = 4;

/// A graph of random ops over tensors of one width, with random outputs and losses.
fn random_graph(seed: u64, ops: usize) -> (Graph, Wanted) {
    let mut rng = HostRng::new(seed, 0, 0, 0);
    let mut g = Graph::new();
    let mut nodes: Vec<Node> = vec![g.input("a", [WIDTH]), g.input_with_gradient("b", [WIDTH])];
    for i in 0..ops {
        let mut pick = || nodes[rng.below(nodes.len() as u32) as usize];
        let (x, y) = (pick(), pick());
        let node = match rng.below(9) {
            0 | 1 => g.linear(&format!("linear{i}"), x, WIDTH),
            2 => g.tanh(x),
            3 => g.relu(x),
            4 => g.add(x, y),
            5 => g.mul(x, y),
            6 => {
                let both = g.concat(&[x, y]).unwrap();
                g.linear(&format!("narrow{i}"), both, WIDTH)
            }
            7 => {
                let square = g.reshape(x, [2, WIDTH / 2]).unwrap();
                let square = g.scale(square, 0.5).unwrap();
                g.reshape(square, [WIDTH])
            }
            _ => g.batch_norm(&format!("norm{i}"), x),
        };
        nodes.push(node.unwrap());
    }
    let made = nodes[2..].to_vec();
    let some = |count: u32, rng: &mut HostRng| -> Vec<Node> {
        (0..count).map(|_| made[rng.below(made.len() as u32) as usize]).collect()
    };
    let losses = some(2, &mut rng).into_iter().map(|node| (g.mean(node, 1).unwrap(), 0.5)).collect();
    let mut outputs: Vec<Node> = some(2, &mut rng);
    outputs.sort();
    outputs.dedup();
    let metrics = some(1, &mut rng);
    (g, Wanted { outputs, losses, metrics })
}

/// First and last element of a buffer in its arena, for so many rows.
fn span(slot: Slot, rows: usize) -> Option<(usize, usize, usize)> {
    let (arena, at, rows) = match slot.place {
        Place::Tile(at) => (0, at, rows),
        Place::Full(at) => (1, at, rows),
        Place::Sum(at) => (2, at, 1),
        Place::Feed(_) | Place::Param(_) => return None,
    };
    let rows = if slot.kind == Kind::Whole { 1 } else { rows };
    Some((arena, at, at + slot.len * rows))
}

fn check(recipe: &Recipe) {
    let count = recipe.slots.len();
    let mut life: Vec<Option<(usize, usize)>> = vec![None; count];
    let mut written_in: Vec<Option<usize>> = vec![None; count];
    for (i, step) in recipe.steps.iter().enumerate() {
        assert!(i == 0 || recipe.steps[i - 1].stage <= step.stage);
        for buffer in step.reads() {
            match recipe.slots[buffer].place {
                Place::Feed(_) | Place::Param(_) => {}
                // A sum is finished only when its stage is.
                Place::Sum(_) => {
                    assert!(written_in[buffer].unwrap() < step.stage, "{}: reads an unfinished sum", step.name)
                }
                _ => assert!(written_in[buffer].is_some(), "{}: reads what was not written", step.name),
            }
        }
        for buffer in step.reads().chain(step.writes()) {
            let (_, last) = life[buffer].get_or_insert((i, i));
            *last = i;
        }
        for buffer in step.writes() {
            written_in[buffer] = Some(step.stage);
        }
        // A step never writes what it reads, unless it says that it adds.
        let adds = step.reads().filter(|buffer| step.writes().any(|written| written == *buffer));
        assert!(adds.count() == 0 || step.name.contains("gradient"), "{}", step.name);
    }
    for (_, buffer) in recipe.readable.iter().chain(&recipe.gradients) {
        if let Some((_, last)) = &mut life[*buffer] {
            *last = recipe.steps.len();
        }
        assert!(matches!(recipe.slots[*buffer].place, Place::Full(_)));
    }
    let stage = |step: usize| recipe.steps.get(step).map_or(recipe.stages, |step| step.stage);
    for a in 0..count {
        for b in 0..a {
            let (Some(life_a), Some(life_b)) = (life[a], life[b]) else { continue };
            let rows = |buffer: usize| match recipe.slots[buffer].place {
                Place::Tile(_) => recipe.tile_rows,
                _ => recipe.max_rows,
            };
            let (Some(x), Some(y)) = (span(recipe.slots[a], rows(a)), span(recipe.slots[b], rows(b))) else { continue };
            let memory = x.0 == y.0 && x.1 < y.2 && y.1 < x.2;
            let together = match x.0 {
                0 => life_a.0 <= life_b.1 && life_b.0 <= life_a.1,
                // Tiles of one stage run in any order, so whole-batch memory is shared between stages only.
                1 => stage(life_a.0) <= stage(life_b.1) && stage(life_b.0) <= stage(life_a.1),
                _ => true,
            };
            assert!(!(memory && together), "buffers {a} and {b} share memory and time");
            if x.0 == 0 {
                assert_eq!(stage(life_a.0), stage(life_a.1), "a tile's buffer outlives its stage");
            }
        }
    }
}

/// Outputs and gradients.
fn run(g: &Graph, wanted: &Wanted, params: &Params, options: &Options) -> Vec<f32> {
    let rows = 23;
    let mut plan: Plan = Plan::new(g, wanted, rows, options).unwrap();
    let feed: Vec<f32> = (0..rows * WIDTH).map(|i| ((i * 37 % 41) as f32 - 20.0) / 20.0).collect();
    let other: Vec<f32> = (0..rows * WIDTH).map(|i| ((i * 29 % 43) as f32 - 21.0) / 20.0).collect();
    plan.train(params, rows, &[Feed::Real(&feed), Feed::Real(&other)], 1.0, Gradients::Replace);
    let mut found: Vec<f32> = wanted.outputs.iter().flat_map(|&node| plan.output(node).to_vec()).collect();
    found.extend(plan.gradients());
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn live_buffers_never_share_memory(seed in 0u64..1 << 40, ops in 1usize..18, tile_rows in 1usize..9) {
        let (g, wanted) = random_graph(seed, ops);
        let options = Options { tile_rows: Some(tile_rows), ..Options::default() };
        for wanted in [wanted.clone(), Wanted { losses: Vec::new(), metrics: Vec::new(), ..wanted.clone() }] {
            let plan: Plan = Plan::new(&g, &wanted, 23, &options).unwrap();
            check(&plan.recipe);
        }
        // Tiles change the order of sums and nothing else.
        let params = g.params(seed).unwrap();
        let (tiled, whole) = (run(&g, &wanted, &params, &options), run(&g, &wanted, &params, &Options::default()));
        let most = whole.iter().fold(1.0f32, |most, x| most.max(x.abs()));
        prop_assert!(tiled.iter().zip(&whole).all(|(a, b)| (a - b).abs() <= 1e-3 * most || a.is_nan() == b.is_nan() && a.is_nan()));
    }
}
