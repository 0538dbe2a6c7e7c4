//! LSTM, GRU, minimal GRU, attention and the spectral layer against PyTorch.

use crate::torch::Golden;
use operant_base::Result;
use operant_nn::{Feed, Gradients, Graph, Memory, Node, Options, Plan, Precision};

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
fn single_steps() {
    let golden = Golden::open("sequence.safetensors");
    golden.check("lstm_cell", TOLERANCE, |g, x| {
        let memory = Memory { h0: &x[1..2], c0: &x[2..3], resets: None };
        let found = g.lstm("rnn", x[0], 17, 1, &memory)?;
        Ok(vec![found.y, found.h[0], found.c[0]])
    });
    golden.check("gru_cell", TOLERANCE, |g, x| {
        let memory = Memory { h0: &x[1..2], c0: &[], resets: None };
        let found = g.gru("rnn", x[0], 17, 1, &memory)?;
        Ok(vec![found.y, found.h[0]])
    });
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

/// Gradients of parameters of a recurrent layer's squared outputs.
fn gradients(lstm: bool, precision: Precision, tile_rows: Option<usize>) -> Vec<f32> {
    let (rows, steps, features, hidden) = (37, 9, 40, 33);
    let mut g = Graph::new();
    let x = g.input("x", [steps, features]);
    let resets = Some(g.input("resets", [steps]));
    let memory = Memory { resets, ..Memory::default() };
    let found = if lstm { g.lstm("rnn", x, hidden, 1, &memory) } else { g.gru("rnn", x, hidden, 1, &memory) };
    let y = found.unwrap().y;
    let square = g.mul(y, y).unwrap();
    let loss = g.sum(square, 2).unwrap();
    let options = Options { precision, tile_rows, ..Options::default() };
    let mut plan = Plan::training(&g, loss, rows, &options).unwrap();
    let x: Vec<f32> = (0..rows * steps * features).map(|i| (i * 7919 % 1009) as f32 / 500.0 - 1.0).collect();
    let resets: Vec<f32> = (0..rows * steps).map(|i| if i % 11 == 3 { 1.0 } else { 0.0 }).collect();
    plan.train(&g.params(5).unwrap(), rows, &[Feed::Real(&x), Feed::Real(&resets)], 1.0, Gradients::Replace);
    plan.gradients().to_vec()
}

/// Products in less precision read strided gates and states; an error there would not be of the size of a rounding.
#[test]
fn narrow_precisions_stay_near_f32() {
    let length = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    for lstm in [true, false] {
        let wanted = gradients(lstm, Precision::F32, None);
        for (precision, tolerance) in [(Precision::F32, 1e-5), (Precision::F16, 2e-3), (Precision::Bf16, 2e-2)] {
            for tile_rows in [None, Some(20)] {
                let got = gradients(lstm, precision, tile_rows);
                let error = length(&mut got.iter().zip(&wanted).map(|(a, b)| a - b));
                let error = error / length(&mut wanted.iter().copied());
                assert!(error < tolerance, "{precision:?}, lstm {lstm}, tiles of {tile_rows:?}: off by {error:.1e}");
            }
        }
    }
}

#[test]
fn no_case_is_forgotten() {
    let tests = [recurrent_layers, single_steps, minimal_gru, attention, spectral];
    Golden::open("sequence.safetensors").has_tests(&tests);
}
