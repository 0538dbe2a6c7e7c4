//! Layers that carry a state as launches of `ops/recurrent.cu`, one for every step.

use super::twin::{Launch, Text, Twin};

/// Rows and terms of a block, as in `ops/mma.cu`.
const TILE: usize = 128;
const TERMS: usize = 32;
/// Places (a row's step) whose share of a weight's gradient one block adds up, and its columns.
const SPLIT: usize = 2048;
const WEIGHT_COLUMNS: usize = 32;
const GATES: usize = 4;

/// Sizes that the text has too.
pub(super) fn sizes() -> String {
    format!(
        "static_assert(TILE == {TILE} && TERMS == {TERMS}, \"nn/cuda/recurrent.rs has the same\");\n\
         #define SPLIT {SPLIT}\n#define GATES {GATES}\n#define WEIGHT_COLUMNS {WEIGHT_COLUMNS}\n"
    )
}
/// Blocks that give each multiprocessor of a large GPU something to do: where there would be fewer, each has fewer columns.
const ENOUGH: usize = 128;

/// An LSTM or a GRU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecurrentLayer {
    pub(crate) steps: usize,
    pub(crate) features: usize,
    pub(crate) hidden: usize,
    pub(crate) gru: bool,
    /// Whether a first state is given.
    pub(crate) state: bool,
    /// The input that says where episodes begin.
    pub(crate) resets: Option<usize>,
}

impl RecurrentLayer {
    /// Its launches for up to `rows` rows of a group.
    pub(crate) fn twin(&self, rows: usize) -> Twin {
        let Self { steps, features, hidden, gru, state, resets } = *self;
        let tiles = rows.div_ceil(TILE);
        // The widest blocks of which there are enough.
        let columns = |tiles: usize, width: usize, choices: &[usize]| {
            let enough = |columns: &&usize| tiles * width.div_ceil(**columns) >= ENOUGH;
            choices.iter().find(enough).or(choices.last()).copied().unwrap_or(8)
        };
        let numbers = |step: usize| {
            let [gru, state] = [gru, state].map(usize::from);
            [steps, features, hidden, gru, step, state, resets.unwrap_or(0), rows]
        };
        let launch = |kernel: String, blocks: usize, step: usize| {
            Launch::blocks(Text::Recurrent, kernel, blocks).numbers(numbers(step))
        };
        let wide = columns(tiles, hidden, &[16, 8]);
        let forward = |t| launch(format!("step_forward_{wide}"), tiles * hidden.div_ceil(wide), t);
        let back = columns(tiles, hidden, &[32, 16, 8]);
        let backward = |after| launch(format!("step_backward_{back}"), tiles * hidden.div_ceil(back), after);
        let (terms, gates) = (features + hidden + 1, GATES * hidden);
        let splits = (rows * steps).div_ceil(SPLIT);
        let weight_blocks = splits * terms.div_ceil(TERMS) * gates.div_ceil(WEIGHT_COLUMNS);
        let collapse = Launch::each(Text::Recurrent, "layer_collapse", terms * gates).numbers(numbers(0));
        let places = (rows * steps).div_ceil(TILE);
        let side = columns(places, features, &[32, 8]);
        let mut back_launches: Vec<Launch> = (1..=steps).rev().map(backward).collect();
        if state {
            back_launches.push(backward(0).makes(0b110_0000));
        }
        back_launches.push(launch("layer_weight".into(), weight_blocks, 0).makes(0b1_1110));
        back_launches.push(collapse.makes(0b1_1110));
        let input = launch(format!("layer_input_{side}"), places * features.div_ceil(side), 0);
        back_launches.push(input.makes(1));
        let states = if gru { 1 } else { 2 };
        let carried = if steps > 1 { 2 * states * rows * hidden } else { 0 };
        Twin::new((0..steps).map(forward).collect::<Vec<_>>(), back_launches)
            .scratch((rows * hidden + splits * terms * gates).max(carried))
            .scratch_forward(carried > 0)
    }
}
