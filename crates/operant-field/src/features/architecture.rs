//! Descriptors of an operator's architecture, beyond the parameters that were sampled.

use super::Feature;
use crate::Operator;
use operant_base::Result;

const fn f(name: &'static str, formula: &'static str) -> Feature {
    Feature { name, formula }
}

/// In the order of [`architecture`].
pub const ARCHITECTURE: [Feature; 6] = [
    f("parameters", "trainable numbers: weights, biases, and gains and offsets of norms"),
    f("flops", "products and sums of one application's convolutions, Fourier blocks and correlated noise"),
    f("convolutions", "convolutions one after the other on the longest way"),
    f("widest", "most channels of a layer"),
    f("receptive_field", "side of the pixels that convolutions bring to a pixel, at most the grid; norms are left out"),
    f("receptive_share", "that side / the grid's"),
];

/// Descriptors of an operator.
pub fn architecture(operator: &Operator) -> Result<[f64; ARCHITECTURE.len()]> {
    let parameters = operator.network()?.graph.params(0)?.count();
    let layers = operator.layers * if operator.is_residual() { 2 } else { 1 };
    let (convolutions, last, reach) = match operator.afno {
        // Every pixel of the innermost grid depends on all of them.
        Some(afno) => (2 * afno.levels * operator.layers + 2 + 2 * afno.blocks, afno.levels, operator.grid),
        None => (layers + 2, operator.layers - 1, 1 + (operator.kernel - 1) * (layers + 1)),
    };
    let widest = (0..=last).map(|i| operator.width(i)).max().unwrap_or(0);
    let reach = reach.min(operator.grid) as f64;
    let share = reach / operator.grid as f64;
    Ok([parameters as f64, operator.flops() as f64, convolutions as f64, widest as f64, reach, share])
}
