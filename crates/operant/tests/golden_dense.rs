//! Shapes, functions, losses and distributions against PyTorch; `golden_nn/generate_dense.py` made the data.

mod torch;

use operant::Result;
use operant::nn::ops::{PpoCoefficients, PpoTargets};
use operant::nn::{Graph, Init, Node};
use torch::Golden;

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
    match case {
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
