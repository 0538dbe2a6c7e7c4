//! LSTM, GRU, minimal GRU, attention and the spectral layer against PyTorch.

mod torch;

use operant::Result;
use operant::nn::{Graph, Memory, Node};
use torch::Golden;

const TOLERANCE: f64 = 2e-5;

/// The outputs in PyTorch's order: y, every layer's h, every layer's c.
fn recurrent(case: &str, g: &mut Graph, x: &[Node]) -> Result<Vec<Node>> {
    let (kind, how) = case.split_once('_').unwrap();
    let layers = how.parse().unwrap_or(1);
    let states = x.len() - 1 - usize::from(how == "resets");
    let memory = Memory {
        h0: if states > 0 { &x[1..2] } else { &[] },
        c0: if states > 1 { &x[2..3] } else { &[] },
        resets: (how == "resets").then(|| x[x.len() - 1]),
    };
    let found = match kind {
        "lstm" => g.lstm("rnn", x[0], 17, layers, &memory)?,
        _ => g.gru("rnn", x[0], 17, layers, &memory)?,
    };
    Ok([vec![found.y], found.h, found.c].concat())
}

#[test]
fn recurrent_layers() {
    let golden = Golden::open("sequence.safetensors");
    for kind in ["lstm", "gru"] {
        for how in ["1", "2", "resets"] {
            let case = format!("{kind}_{how}");
            golden.check(&case, TOLERANCE, |g, x| recurrent(&case, g, x));
        }
    }
}

#[test]
fn minimal_gru() {
    let golden = Golden::open("sequence.safetensors");
    for (case, positive) in [("min_gru_False", false), ("min_gru_True", true)] {
        golden.check(case, TOLERANCE, |g, x| {
            let memory = Memory { h0: &x[1..2], c0: &[], resets: Some(x[2]) };
            let found = g.min_gru("rnn", x[0], 18, positive, &memory)?;
            Ok(vec![found.y, found.h[0]])
        });
    }
}

#[test]
fn attention() {
    let golden = Golden::open("sequence.safetensors");
    for (case, causal) in [
        ("attention_all_open", false),
        ("attention_all_masked", false),
        ("attention_causal_open", true),
        ("attention_causal_masked", true),
    ] {
        golden.check(case, TOLERANCE, |g, x| Ok(vec![g.attention("attention", x[0], 4, causal, x.get(1).copied())?]));
    }
}

#[test]
fn spectral() {
    let golden = Golden::open("sequence.safetensors");
    for (case, outputs, modes) in
        [("spectral_8x10", 4, [3, 4]), ("spectral_6x7", 2, [3, 4]), ("spectral_4x4", 3, [2, 3])]
    {
        golden.check(case, TOLERANCE, |g, x| Ok(vec![g.spectral("spectral", x[0], outputs, modes)?]));
    }
}

/// Every case in the file is checked by a test above.
#[test]
fn no_case_is_forgotten() {
    assert_eq!(Golden::open("sequence.safetensors").cases().len(), 6 + 2 + 4 + 3);
}
