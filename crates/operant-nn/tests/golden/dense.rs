//! Shapes, functions, losses and distributions against PyTorch; `golden_nn/generate_dense.py` made the data.

use crate::torch::Golden;
use operant_base::Result;
use operant_nn::ops::{Blend, Graft, PpoCoefficients, PpoTargets, Valve};
use operant_nn::{Graph, Init, Node};

const TOLERANCE: f64 = 3e-6;

fn build(case: &str, g: &mut Graph, x: &[Node]) -> Result<Vec<Node>> {
    let one = |node: Result<Node>| node.map(|node| vec![node]);
    let two = |nodes: Result<(Node, Node)>| nodes.map(|(a, b)| vec![a, b]);
    let targets = |x: &[Node]| PpoTargets {
        action: x[0],
        old_log_prob: x[1],
        advantage: x[2],
        returns: x[3],
        old_value: x[4],
        factors: None,
    };
    let ppo = PpoCoefficients::default();
    let heads = [3, 4, 2];
    match case {
        "linear" => one(g.linear("layer", x[0], 5)),
        "linear_wide" => one(g.linear_with("layer", x[0], 17, Init::Zeros, None)),
        "tower" => {
            let h = g.linear("layer.0", x[0], 32)?;
            let h = g.tanh(h)?;
            let h = g.linear("layer.2", h, 32)?;
            let h = g.tanh(h)?;
            one(g.linear("layer.4", h, 3))
        }
        "add" => one(g.add(x[0], x[1])),
        "sub" => one(g.sub(x[0], x[1])),
        "mul" => one(g.mul(x[0], x[1])),
        "add_relu" => {
            let sum = g.add(x[0], x[1])?;
            one(g.relu(sum))
        }
        "scale" => one(g.scale(x[0], -0.75)),
        "relu" => one(g.relu(x[0])),
        "tanh" => one(g.tanh(x[0])),
        "sigmoid" => one(g.sigmoid(x[0])),
        "gelu" => one(g.gelu(x[0])),
        "silu" => one(g.silu(x[0])),
        "sum" => one(g.sum(x[0], 1)),
        "sum_axes" => one(g.sum(x[0], 2)),
        "sum_all" => one(g.sum(x[0], 9)),
        "mean" => one(g.mean(x[0], 1)),
        "mean_axes" => one(g.mean(x[0], 2)),
        "mean_all" => one(g.mean(x[0], 9)),
        "max" => one(g.max(x[0], 1)),
        "max_axes" => one(g.max(x[0], 2)),
        "max_all" => one(g.max(x[0], 9)),
        "detach" => {
            let still = g.detach(x[0])?;
            one(g.mul(still, x[1]))
        }
        "embedding_sum" | "embedding_sum_real" => one(g.embedding_sum("emb", x[0], 5, 18)),
        "probability_floor" => one(g.probability_floor(x[0], &heads, &[0.05, 0.0, 0.9], Some(x[1]))),
        "entropy_floor" => one(g.entropy_floor(x[0], &heads, &[0.7, 0.0, 0.9], Some(x[1]))),
        "blend_add" | "blend_silent_add" => {
            let alpha = g.buffer("alpha", [1], Init::Zeros);
            one(g.blend(Blend::Add, x[0], x[1], None, alpha))
        }
        "blend_multiply" | "blend_silent_multiply" => {
            let alpha = g.buffer("alpha", [1], Init::Zeros);
            one(g.blend(Blend::Multiply, x[0], x[1], Some(x[2]), alpha))
        }
        "blend_gate" | "blend_silent_gate" => {
            let alpha = g.buffer("alpha", [1], Init::Zeros);
            one(g.blend(Blend::Gate, x[0], x[1], Some(x[2]), alpha))
        }
        "graft_pooled" => {
            let control = g.buffer("control", [2], Init::Zeros);
            one(g.apply("", Graft { pooled: true, lazy: false }, &[x[0], x[1], x[2], control, x[3], x[4]]))
        }
        "valve_open" | "valve_closed" => {
            let open = g.buffer("open", [1], Init::Zeros);
            let through = g.apply("", Valve, &[x[0], open])?;
            one(g.mul(through, x[0]))
        }
        "bias" => one(g.bias("layer", x[0], Init::Zeros)),
        "expand" => {
            let token = g.param("token", [2, 3], Init::Zeros);
            let token = g.expand(token)?;
            one(g.add(x[0], token))
        }
        "concat" => one(g.concat(&[x[0], x[1], x[0]])),
        "concat_axis" => one(g.concat_axis(x, 0)),
        "slice" => one(g.slice(x[0], 2, 3)),
        "slice_axis" => one(g.slice_axis(x[0], 0, 1, 2)),
        "split" => g.split(x[0], &[1, 4, 2]),
        "reshape" => {
            let y = g.square(x[0])?;
            one(g.reshape(y, [4, 3]))
        }
        "gather" | "gather_many" => one(g.gather(x[0], x[1])),
        "embedding" => one(g.embedding("emb", x[0], 5, 18)),
        "broadcast_add" => one(g.broadcast_add(x[0], x[1])),
        "broadcast_mul" => one(g.broadcast_mul(x[0], x[1])),
        "dueling" | "dueling_atoms" => one(g.dueling(x[0], x[1])),
        "clip" => one(g.clip(x[0], -0.7, 0.5)),
        "exp" => one(g.exp(x[0])),
        "log" => one(g.log(x[0])),
        "square" => one(g.square(x[0])),
        "abs" => one(g.abs(x[0])),
        "sqrt" => one(g.sqrt(x[0])),
        "neg" => one(g.neg(x[0])),
        "softplus" => one(g.softplus(x[0])),
        "softmax" | "softmax_masked" => one(g.softmax(x[0], x.get(1).copied())),
        "log_softmax" | "log_softmax_masked" => one(g.log_softmax(x[0], x.get(1).copied())),
        "dropout_off" => one(g.dropout(x[0], 0.5)),
        "mse" | "mse_one" => one(g.mse_loss(x[0], x[1])),
        "huber" => one(g.huber_loss(x[0], x[1], 0.8)),
        "bce" | "bce_weighted" => one(g.bce_with_logits_loss(x[0], x[1], x.get(2).copied())),
        "cross_entropy" | "cross_entropy_masked" => one(g.cross_entropy(x[0], x[1], 0.0, x.get(2).copied())),
        "cross_entropy_smooth" => one(g.cross_entropy(x[0], x[1], 0.1, None)),
        "soft_cross_entropy" => one(g.soft_cross_entropy(x[0], x[1], None)),
        "kl" => one(g.kl_divergence(x[0], x[1])),
        "quantile" => one(g.quantile_loss(x[0], x[1], 1.0, None)),
        "quantile_levels" => one(g.quantile_loss(x[0], x[1], 0.5, Some(x[2]))),
        "categorical" => two(g.categorical(x[0], x[1], &[7], None)),
        "categorical_heads" | "categorical_masked" => two(g.categorical(x[0], x[1], &[3, 5, 2], x.get(2).copied())),
        "gaussian" => {
            let log_std = g.param("log_std", [3], Init::Zeros);
            two(g.gaussian(x[0], log_std, x[1]))
        }
        "gaussian_rows" => two(g.gaussian(x[0], x[1], x[2])),
        "squashed" => two(g.squashed_gaussian(x[0], x[1], x[2])),
        "ppo" => two(g.ppo_categorical(x[0], x[1], targets(&x[2..]), &[2], None, ppo)),
        "ppo_free_value" => {
            let ppo = PpoCoefficients { clip_value: false, ..ppo };
            two(g.ppo_categorical(x[0], x[1], targets(&x[2..]), &[2], None, ppo))
        }
        "ppo_heads" => {
            let ppo = PpoCoefficients { clip: 0.1, value: 1.0, entropy: 0.05, clip_value: true };
            two(g.ppo_categorical(x[0], x[1], targets(&x[2..]), &[2, 4], Some(x[7]), ppo))
        }
        "ppo_gaussian" => {
            let log_std = g.param("log_std", [3], Init::Zeros);
            two(g.ppo_gaussian(x[0], log_std, x[1], targets(&x[2..]), ppo))
        }
        other => panic!("no graph for case {other}"),
    }
}

#[test]
fn ops_match_pytorch() {
    let golden = Golden::open("dense.safetensors");
    let cases = golden.cases();
    assert!(cases.len() > 40, "{cases:?}");
    for case in cases {
        // Its ratio is e to a difference of two numbers near 30, each rounded to f32.
        let tolerance = if case == "ppo_gaussian" { 1e-5 } else { TOLERANCE };
        golden.check(&case, tolerance, |g, x| build(&case, g, x));
    }
}
