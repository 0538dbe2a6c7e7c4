//! Distributions against torch.distributions (data from `golden_nn/generate_optim.py`), their samples against their own densities.

mod golden_nn;

use golden_nn::{Golden, backends};
use operant_lanes::{Backend, Math, Width};
use operant_nn::dist::{Categorical, CausalMask, DiagGaussian, Draws, Factored, SquashedGaussian};

const ROWS: usize = 37;
const HEADS: [usize; 3] = [3, 7, 2];
const WIDTH: usize = 12;
const DIMS: usize = 3;
const DRAWS: Draws = Draws { seed: 5, first_row: 0, step: 0 };

fn strict() -> Backend {
    Backend::new(Width::Auto, Math::Strict)
}

fn assert_close(got: &[f32], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let same = f64::from(got) == wanted || (f64::from(got) - wanted).abs() <= tolerance * wanted.abs().max(1.0);
        assert!(same, "{what}[{i}]: {got}, wanted {wanted}");
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Columns `from..from + size` of rows of `width`.
fn columns<T: Copy>(x: &[T], width: usize, from: usize, size: usize) -> Vec<T> {
    x.chunks_exact(width).flat_map(|row| row[from..from + size].to_vec()).collect()
}

struct Choices {
    golden: Golden,
    logits: Vec<f32>,
    others: Vec<f32>,
    legal: Vec<u8>,
    actions: Vec<i32>,
}

fn choices() -> Choices {
    let golden = Golden::open("dist");
    Choices {
        logits: golden.f32("logits"),
        others: golden.f32("others"),
        legal: golden.get("legal").iter().map(|&x| x as u8).collect(),
        actions: golden.get("actions").iter().map(|&x| x as i32).collect(),
        golden,
    }
}

#[test]
fn categorical_agrees_with_pytorch() {
    let Choices { golden, logits, others, legal, actions } = choices();
    for backend in backends() {
        for (name, legal) in [("plain", None), ("masked", Some(&legal))] {
            let mut start = 0;
            for (head, &size) in HEADS.iter().enumerate() {
                let legal = legal.map(|legal| columns(legal, WIDTH, start, size));
                let (logits, others) = (columns(&logits, WIDTH, start, size), columns(&others, WIDTH, start, size));
                let p = Categorical::new(&logits, size, legal.as_deref(), backend).unwrap();
                let q = Categorical::new(&others, size, legal.as_deref(), backend).unwrap();
                let mut out = vec![0.0; ROWS];
                let wanted = |key: &str| columns(&golden.get(&format!("{name}.{key}")), 3, head, 1);
                p.log_prob(&columns(&actions, 3, head, 1), &mut out);
                assert_close(&out, &wanted("log_prob"), 1e-6, "log_prob");
                p.entropy(&mut out);
                assert_close(&out, &wanted("entropy"), 1e-6, "entropy");
                p.kl(&q, &mut out);
                assert_close(&out, &wanted("kl"), 2e-6, "kl");
                start += size;
            }
        }
    }
    let infinite = golden.get("masked.log_prob").iter().filter(|x| x.is_infinite()).count();
    assert!(infinite > 10, "the data asks for masked actions");
}

#[test]
fn factored_agrees_with_pytorch() {
    let Choices { golden, logits, others, legal, actions } = choices();
    for backend in backends() {
        for (name, legal) in [("plain", None), ("masked", Some(legal.as_slice()))] {
            let p = Factored::new(&logits, &HEADS, legal, backend).unwrap();
            let q = Factored::new(&others, &HEADS, legal, backend).unwrap();
            let wanted = |key: &str| {
                let heads = golden.get(&format!("{name}.{key}"));
                heads.chunks_exact(3).map(|heads| heads.iter().sum()).collect::<Vec<f64>>()
            };
            let mut out = vec![0.0; ROWS];
            p.log_prob(&actions, &mut out);
            assert_close(&out, &wanted("log_prob"), 1e-6, "log_prob");
            p.entropy(&mut out);
            assert_close(&out, &wanted("entropy"), 1e-6, "entropy");
            p.kl(&q, &mut out);
            assert_close(&out, &wanted("kl"), 2e-6, "kl");
        }
    }
}

/// Probabilities in f64, by the definition.
fn softmax(logits: &[f32], legal: &[u8]) -> Vec<f64> {
    let weights = logits.iter().zip(legal).map(|(&x, &legal)| if legal == 0 { 0.0 } else { f64::from(x).exp() });
    let total: f64 = weights.clone().sum();
    weights.map(|w| w / total).collect()
}

/// Pearson's χ²; what can't happen must not have happened.
fn chi2(counts: &[u32], probabilities: &[f64]) -> f64 {
    let all = f64::from(counts.iter().sum::<u32>());
    let term = |(&count, &p): (&u32, &f64)| {
        if p == 0.0 {
            assert_eq!(count, 0, "an action without probability was drawn");
            return 0.0;
        }
        (f64::from(count) - all * p).powi(2) / (all * p)
    };
    counts.iter().zip(probabilities).map(term).sum()
}

/// More actions than are worked on together, in rows that do not fill the lanes.
#[test]
fn many_actions_agree_with_the_definition() {
    let (rows, actions) = (21, 150);
    let logits: Vec<f32> = (0..rows * actions).map(|i| (i * 7919 % 1009) as f32 * 0.01 - 5.0).collect();
    let legal: Vec<u8> = (0..rows * actions).map(|i| u8::from(i * 31 % 7 < 4)).collect();
    for backend in backends() {
        let dist = Categorical::new(&logits, actions, Some(&legal), backend).unwrap();
        let (mut sampled, mut log_probs) = (vec![0; rows], vec![0.0; rows]);
        let (mut entropies, mut modes) = (vec![0.0; rows], vec![0; rows]);
        dist.sample(DRAWS, &mut sampled, &mut log_probs);
        dist.entropy(&mut entropies);
        dist.mode(&mut modes);
        for row in 0..rows {
            let range = row * actions..(row + 1) * actions;
            let p = softmax(&logits[range.clone()], &legal[range]);
            assert!((f64::from(log_probs[row]) - p[sampled[row] as usize].ln()).abs() < 3e-6);
            let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
            assert!((f64::from(entropies[row]) - entropy).abs() < 5e-6, "{} {entropy}", entropies[row]);
            assert!(p.iter().all(|&other| other <= p[modes[row] as usize]));
        }
    }
}

/// Four degrees of freedom: 99.99 % of χ² lie under 23.5.
#[test]
fn samples_have_their_probabilities() {
    let logits = [0.3, -1.0, 5.0, 2.0, 1.1, f32::NEG_INFINITY, 0.0, -2.5];
    let legal = [1, 1, 0, 1, 1, 1, 0, 1];
    let rows = 200_000;
    let (all_logits, all_legal) = (logits.repeat(rows), legal.repeat(rows));
    let wanted = softmax(&logits, &legal);
    for backend in [strict(), Backend::new(Width::Auto, Math::Fast), Backend::portable(Width::One)] {
        let dist = Categorical::new(&all_logits, logits.len(), Some(&all_legal), backend).unwrap();
        let (mut actions, mut log_probs) = (vec![0; rows], vec![0.0; rows]);
        dist.sample(DRAWS, &mut actions, &mut log_probs);
        let mut counts = [0; 8];
        actions.iter().for_each(|&a| counts[a as usize] += 1);
        assert!(chi2(&counts, &wanted) < 23.5, "{counts:?}");
        let expected: Vec<f64> = actions.iter().map(|&a| wanted[a as usize].ln()).collect();
        assert_close(&log_probs, &expected, 1e-6, "log_prob of samples");
    }
    // Each step's draws are new, and rows of one step do not follow each other.
    let mut counts = [0; 64];
    let dist = Categorical::new(&all_logits[..16], logits.len(), Some(&all_legal[..16]), strict()).unwrap();
    for step in 0..100_000 {
        let (mut actions, mut log_probs) = ([0; 2], [0.0; 2]);
        dist.sample(Draws { step, ..DRAWS }, &mut actions, &mut log_probs);
        counts[(actions[0] * 8 + actions[1]) as usize] += 1;
    }
    let pairs: Vec<f64> = wanted.iter().flat_map(|p| wanted.iter().map(move |q| p * q)).collect();
    // 24 degrees of freedom.
    assert!(chi2(&counts, &pairs) < 60.0, "{counts:?}");
}

#[test]
fn draws_depend_on_seed_row_and_step_only() {
    let logits = vec![0.0; 100 * 1000];
    let sample = |rows: usize, draws| {
        let dist = Categorical::new(&logits[..rows * 1000], 1000, None, strict()).unwrap();
        let (mut actions, mut log_probs) = (vec![0; rows], vec![0.0; rows]);
        dist.sample(draws, &mut actions, &mut log_probs);
        actions
    };
    let all = sample(100, DRAWS);
    assert_eq!(sample(1, Draws { first_row: 77, ..DRAWS }), all[77..78]);
    assert_eq!(sample(20, Draws { first_row: 50, ..DRAWS }), all[50..70]);
    for other in [Draws { seed: 6, ..DRAWS }, Draws { step: 1, ..DRAWS }, Draws { step: 1 << 32, ..DRAWS }] {
        let same = sample(100, other).iter().zip(&all).filter(|(a, b)| a == b).count();
        assert!(same < 5, "{other:?}");
    }
}

#[test]
fn strict_mode_gives_the_same_bits_on_every_width() {
    let Choices { golden, logits, legal, .. } = choices();
    let (mean, log_std) = (golden.f32("mean"), golden.f32("per_row.log_std"));
    let mut reference = None;
    for backend in backends().into_iter().filter(|backend| backend.math() == Math::Strict) {
        let choices = Factored::new(&logits, &HEADS, Some(&legal), backend).unwrap();
        let (mut actions, mut out) = (vec![0; ROWS * 3], vec![0.0; ROWS]);
        let mut floats = Vec::new();
        choices.sample(DRAWS, &mut actions, &mut out);
        floats.extend(bits(&out));
        choices.log_prob(&actions, &mut out);
        floats.extend(bits(&out));
        choices.entropy(&mut out);
        floats.extend(bits(&out));
        let squashed = SquashedGaussian::new(&mean, &log_std, DIMS, backend).unwrap();
        let (mut raw, mut squeezed) = (vec![0.0; ROWS * DIMS], vec![0.0; ROWS * DIMS]);
        squashed.sample(DRAWS, &mut raw, &mut squeezed, &mut out);
        [&raw, &squeezed, &out].iter().for_each(|x| floats.extend(bits(x)));
        squashed.log_prob(&squeezed, &mut out);
        floats.extend(bits(&out));
        let all = (actions, floats);
        assert!(*reference.get_or_insert(all.clone()) == all, "{backend:?}");
    }
}

#[test]
fn modes_are_legal_and_first() {
    let logits = [1.0, 3.0, 3.0, 9.0, 0.0, -1.0, -2.0, -3.0];
    let legal = [1, 1, 1, 0, 0, 0, 1, 1];
    let mut actions = [0; 2];
    Categorical::new(&logits, 4, Some(&legal), strict()).unwrap().mode(&mut actions);
    assert_eq!(actions, [1, 2]);
    Categorical::new(&logits, 4, None, strict()).unwrap().mode(&mut actions);
    assert_eq!(actions, [3, 0]);
}

#[test]
fn edges_of_categorical() {
    let logits = [1.0, 2.0, 3.0, 4.0];
    let refused =
        |heads: &[usize], legal: Option<&[u8]>| Factored::new(&logits, heads, legal, strict()).unwrap_err().to_string();
    assert!(refused(&[2], Some(&[1, 1, 0, 0])).contains("row 1 has no legal action in head 0"));
    assert!(refused(&[2, 2], Some(&[1, 1, 0, 0])).contains("row 0 has no legal action in head 1"));
    assert!(refused(&[3], None).contains("4 logits"));
    assert!(refused(&[2], Some(&[1, 1, 1])).contains("3 entries, wanted 4"));
    assert!(refused(&[2, 0], None).contains("[2, 0]") && refused(&[], None).contains("[]"));
    assert!(Categorical::new(&logits, 0, None, strict()).is_err());
    let dist = Categorical::new(&logits, 4, None, strict()).unwrap();
    let mut out = [0.0];
    for no_action in [-1, 4, i32::MIN] {
        dist.log_prob(&[no_action], &mut out);
        assert_eq!(out, [f32::NEG_INFINITY]);
    }
    let masked = Categorical::new(&logits, 4, Some(&[1, 1, 1, 0]), strict()).unwrap();
    dist.kl(&masked, &mut out);
    assert_eq!(out, [f32::INFINITY]);
    masked.kl(&dist, &mut out);
    assert!(out[0].is_finite() && out[0] > 0.0);
    // One legal action: certain, without entropy. Huge logits: no overflow.
    let certain = Categorical::new(&logits, 4, Some(&[0, 0, 1, 0]), strict()).unwrap();
    let mut action = [0];
    certain.sample(DRAWS, &mut action, &mut out);
    assert_eq!((action, out), ([2], [0.0]));
    certain.entropy(&mut out);
    assert_eq!(out, [0.0]);
    let huge = Categorical::new(&[3e38, -3e38, 3e38], 3, None, strict()).unwrap();
    huge.entropy(&mut out);
    assert!((out[0] - std::f32::consts::LN_2).abs() < 1e-6);
    // NaN logits give NaN, but never an illegal action.
    let broken = Categorical::new(&[f32::NAN; 3], 3, Some(&[0, 1, 0]), strict()).unwrap();
    broken.sample(DRAWS, &mut action, &mut out);
    assert_eq!((action, out[0].is_nan()), ([1], true));
    // No rows at all.
    Categorical::new(&[], 3, None, strict()).unwrap().sample(DRAWS, &mut [], &mut []);
}

/// The second head may not repeat the first; the third takes what is left.
struct Permutation;

impl CausalMask for Permutation {
    fn legal(&self, _row: usize, chosen: &[i32], legal: &mut [u8]) {
        for (action, legal) in legal.iter_mut().enumerate() {
            *legal = u8::from(!chosen.contains(&(action as i32)));
        }
    }
}

#[test]
fn causal_masks_make_one_joint_distribution() {
    let logits = [0.5, -0.3, 1.2, 0.1, 0.9, -1.0, 0.4, 0.0, -0.6];
    let heads = [3, 3, 3];
    let joint = |a: usize, b: usize, c: usize| {
        let free = |taken: &[usize]| (0..3).map(|action| u8::from(!taken.contains(&action))).collect::<Vec<u8>>();
        let (p, q) = (softmax(&logits[..3], &free(&[])), softmax(&logits[3..6], &free(&[a])));
        p[a] * q[b] * softmax(&logits[6..], &free(&[a, b]))[c]
    };
    let mut scratch = [0; 3];
    let one = Factored::new(&logits, &heads, None, strict()).unwrap();
    let (mut total, mut mean_entropy, mut joint_entropy) = (0.0, 0.0, 0.0);
    let mut probabilities = vec![];
    for (a, b, c) in (0..27).map(|i| (i / 9, i / 3 % 3, i % 3)) {
        let (mut log_prob, mut entropy) = ([0.0], [0.0]);
        let actions = [a as i32, b as i32, c as i32];
        one.log_prob_causal(&Permutation, &mut scratch, &actions, &mut log_prob, &mut entropy).unwrap();
        let wanted = if a != b && b != c && a != c { joint(a, b, c) } else { 0.0 };
        assert!((f64::from(log_prob[0]).exp() - wanted).abs() < 1e-6, "{actions:?}");
        probabilities.push(wanted);
        total += wanted;
        if wanted > 0.0 {
            mean_entropy += wanted * f64::from(entropy[0]);
            joint_entropy -= wanted * wanted.ln();
        }
    }
    assert!((total - 1.0).abs() < 1e-12 && (mean_entropy - joint_entropy).abs() < 1e-6);

    let rows = 100_000;
    let all = logits.repeat(rows);
    let many = Factored::new(&all, &heads, None, strict()).unwrap();
    let (mut actions, mut log_probs) = (vec![0; 3 * rows], vec![0.0; rows]);
    many.sample_causal(&Permutation, &mut scratch, DRAWS, &mut actions, &mut log_probs).unwrap();
    let mut counts = [0; 27];
    for (actions, &log_prob) in actions.chunks_exact(3).zip(&log_probs) {
        let place = (actions[0] * 9 + actions[1] * 3 + actions[2]) as usize;
        counts[place] += 1;
        assert!((f64::from(log_prob) - probabilities[place].ln()).abs() < 1e-5);
    }
    // Five degrees of freedom: 99.99 % of χ² lie under 25.7.
    assert!(chi2(&counts, &probabilities) < 25.7, "{counts:?}");

    let mut mode = [0; 3];
    one.mode_causal(&Permutation, &mut scratch, &mut mode).unwrap();
    assert_eq!(mode, [2, 1, 0]);
}

#[test]
fn causal_masks_agree_with_plain_ones() {
    struct All;
    impl CausalMask for All {
        fn legal(&self, _: usize, _: &[i32], legal: &mut [u8]) {
            legal.fill(1);
        }
    }
    struct Nothing;
    impl CausalMask for Nothing {
        fn legal(&self, row: usize, chosen: &[i32], legal: &mut [u8]) {
            legal.fill(u8::from((row, chosen.len()) != (2, 1)));
        }
    }
    let logits = choices().logits;
    let dist = Factored::new(&logits, &HEADS, None, strict()).unwrap();
    let mut scratch = [0; 7];
    let (mut actions, mut log_probs) = (vec![0; ROWS * 3], vec![0.0; ROWS]);
    let (mut causal, mut causal_log_probs) = (actions.clone(), log_probs.clone());
    dist.sample(DRAWS, &mut actions, &mut log_probs);
    dist.sample_causal(&All, &mut scratch, DRAWS, &mut causal, &mut causal_log_probs).unwrap();
    assert_eq!((actions, bits(&log_probs)), (causal.clone(), bits(&causal_log_probs)));
    let message = dist.sample_causal(&Nothing, &mut scratch, DRAWS, &mut causal, &mut causal_log_probs).unwrap_err();
    assert!(message.to_string().contains("row 2 has no legal action in head 1"), "{message}");
}

#[test]
fn gaussians_agree_with_pytorch() {
    let golden = Golden::open("dist");
    let (mean, other_mean, raw) = (golden.f32("mean"), golden.f32("other_mean"), golden.f32("raw"));
    for backend in backends() {
        for name in ["shared", "per_row"] {
            let (log_std, other) =
                (golden.f32(&format!("{name}.log_std")), golden.f32(&format!("{name}.other_log_std")));
            let wanted = |key: &str| golden.get(&format!("{name}.{key}"));
            let p = DiagGaussian::new(&mean, &log_std, DIMS, backend).unwrap();
            let q = DiagGaussian::new(&other_mean, &other, DIMS, backend).unwrap();
            let mut out = vec![0.0; ROWS];
            p.log_prob(&raw, &mut out);
            assert_close(&out, &wanted("log_prob"), 1e-6, "log_prob");
            p.entropy(&mut out);
            assert_close(&out, &wanted("entropy"), 1e-6, "entropy");
            p.kl(&q, &mut out);
            assert_close(&out, &wanted("kl"), 2e-6, "kl");
            let p = SquashedGaussian::new(&mean, &log_std, DIMS, backend).unwrap();
            let q = SquashedGaussian::new(&other_mean, &other, DIMS, backend).unwrap();
            p.log_prob_raw(&raw, &mut out);
            assert_close(&out, &wanted("squashed_log_prob"), 1e-6, "squashed log_prob");
            p.kl(&q, &mut out);
            assert_close(&out, &wanted("kl"), 2e-6, "squashed kl");
        }
    }
}

#[test]
fn gaussian_samples_have_their_moments() {
    let rows = 100_000;
    let (mean, log_std) = ([0.7f32, -2.0], [-1.0f32, 0.5]);
    let means = mean.repeat(rows);
    let dist = DiagGaussian::new(&means, &log_std, 2, strict()).unwrap();
    let (mut actions, mut log_probs) = (vec![0.0; 2 * rows], vec![0.0; rows]);
    dist.sample(DRAWS, &mut actions, &mut log_probs);
    let noise: Vec<[f64; 2]> = actions
        .chunks_exact(2)
        .map(|a| [0, 1].map(|i| f64::from(a[i] - mean[i]) / f64::from(log_std[i]).exp()))
        .collect();
    let average = |f: &dyn Fn(&[f64; 2]) -> f64| noise.iter().map(f).sum::<f64>() / rows as f64;
    for i in 0..2 {
        assert!(average(&|z| z[i]).abs() < 0.015);
        assert!((average(&|z| z[i] * z[i]) - 1.0).abs() < 0.02);
        assert!((average(&|z| z[i].powi(4)) - 3.0).abs() < 0.15);
    }
    assert!(average(&|z| z[0] * z[1]).abs() < 0.015, "dimensions are independent");
    let mut again = vec![0.0; rows];
    dist.log_prob(&actions, &mut again);
    assert_close(&again, &log_probs.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(), 1e-5, "log_prob of samples");
    // The mean of −log_prob is the entropy.
    let mut entropy = vec![0.0; rows];
    dist.entropy(&mut entropy);
    let estimate = -log_probs.iter().map(|&x| f64::from(x)).sum::<f64>() / rows as f64;
    assert!((estimate - f64::from(entropy[0])).abs() < 0.02);
    let mut mode = vec![0.0; 2 * rows];
    dist.mode(&mut mode);
    assert_eq!(mode, means);
}

/// Entropy of tanh(x) is that of x plus the mean of ln(1 − tanh²x): here by the midpoint rule in f64.
#[test]
fn squashed_samples_and_entropy() {
    let (mean, log_std) = (0.4f64, -0.2f64);
    let std = log_std.exp();
    let step = 1e-3;
    let mut exact = 0.5 * (std::f64::consts::TAU * std::f64::consts::E).ln() + log_std;
    for i in -8000..8000 {
        let z = (f64::from(i) + 0.5) * step;
        let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
        exact += step * density * (1.0 - (mean + std * z).tanh().powi(2)).ln();
    }
    let rows = 100_000;
    let (means, log_std) = (vec![mean as f32; rows], [log_std as f32]);
    let dist = SquashedGaussian::new(&means, &log_std, 1, strict()).unwrap();
    let mut estimates = vec![0.0; rows];
    dist.entropy_estimate(DRAWS, &mut estimates);
    let estimate = estimates.iter().map(|&x| f64::from(x)).sum::<f64>() / rows as f64;
    assert!((estimate - exact).abs() < 0.01, "{estimate}, wanted {exact}");

    let (mut raw, mut actions, mut log_probs) = (vec![0.0; rows], vec![0.0; rows], vec![0.0; rows]);
    dist.sample(DRAWS, &mut raw, &mut actions, &mut log_probs);
    assert_close(&actions, &raw.iter().map(|&x| f64::from(x).tanh()).collect::<Vec<_>>(), 1e-6, "tanh");
    assert_eq!(bits(&log_probs), estimates.iter().map(|x| (-x).to_bits()).collect::<Vec<_>>());
    let log_probs: Vec<f64> = log_probs.iter().map(|&x| f64::from(x)).collect();
    let mut again = vec![0.0; rows];
    dist.log_prob_raw(&raw, &mut again);
    assert_close(&again, &log_probs, 1e-5, "log_prob of raw");
    dist.log_prob(&actions, &mut again);
    assert_close(&again, &log_probs, 2e-3, "log_prob of actions");
    dist.mode(&mut again);
    assert!((f64::from(again[0]) - mean.tanh()).abs() < 1e-6);
}

#[test]
fn far_actions_stay_finite() {
    let (mean, log_std) = ([0.0; 4], [0.0]);
    let dist = SquashedGaussian::new(&mean, &log_std, 1, strict()).unwrap();
    let mut out = [0.0; 4];
    let raw = [20.0f32, -20.0, 60.0, 1000.0];
    dist.log_prob_raw(&raw, &mut out);
    // ln(1 − tanh²x) is 2·(ln 2 − |x|) there.
    let wanted = raw.map(|x| {
        let x = f64::from(x.abs());
        -0.5 * x * x - 0.918_938_533_2 - 2.0 * (std::f64::consts::LN_2 - x)
    });
    assert_close(&out, &wanted, 1e-6, "far");
    dist.log_prob(&[1.0, -1.0, 0.0, 0.999_999], &mut out);
    assert!(out.iter().all(|x| x.is_finite()), "{out:?}");
}

#[test]
fn edges_of_gaussians() {
    let refused =
        |mean: &[f32], log_std: &[f32], dims| DiagGaussian::new(mean, log_std, dims, strict()).unwrap_err().to_string();
    assert!(refused(&[0.0; 5], &[0.0; 2], 2).contains("5 means"));
    assert!(refused(&[0.0; 6], &[0.0; 3], 2).contains("3 log_std, wanted 2 (shared) or 6 (per row)"));
    assert!(refused(&[], &[], 0).contains("0 dimensions"));
}

/// A head left with one legal action is certain: nothing of its logits is in the log-probability or the entropy. PPO relies on
/// it for heads that do not matter.
#[test]
fn a_head_with_one_legal_action_has_no_part() {
    let heads = [2, 3];
    let legal = [1, 1, 0, 1, 0];
    let of = |logits: &[f32]| {
        let dist = Factored::new(logits, &heads, Some(&legal), Backend::fast()).unwrap();
        let (mut log_prob, mut entropy) = ([0.0], [0.0]);
        dist.log_prob(&[1, 1], &mut log_prob);
        dist.entropy(&mut entropy);
        (log_prob[0], entropy[0], [dist.head_entropy(0, 0), dist.head_entropy(0, 1)])
    };
    let (log_prob, entropy, by_head) = of(&[0.0, 1.0, 0.5, -2.0, 3.0]);
    let p = 1.0 / (1.0 + (-1.0f32).exp());
    assert!((log_prob - p.ln()).abs() < 1e-5, "{log_prob}");
    let wanted = -p * p.ln() - (1.0 - p) * (1.0 - p).ln();
    assert!((entropy - wanted).abs() < 1e-5 && (by_head[0] - wanted).abs() < 1e-5 && by_head[1].abs() < 1e-6);
    assert_eq!(of(&[0.0, 1.0, -5.0, 7.0, 0.0]).0, log_prob, "other logits of that head change nothing");
}
