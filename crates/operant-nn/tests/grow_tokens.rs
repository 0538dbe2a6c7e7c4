//! Seeds in a host that reads tokens: what is true of images, and that no place learns of a later one.

use operant_lanes::rng::HostRng;
use operant_nn::grow::{Blueprint, Grown, Host, Seed, Topology, Training};
use operant_nn::ops::Blend;

const CONTEXT: usize = 12;
const CLASSES: usize = 20;
const ROWS: usize = 6;
const BLENDS: [Blend; 3] = [Blend::Add, Blend::Multiply, Blend::Gate];

fn data() -> (Vec<f32>, Vec<i32>) {
    let token = |i: usize| i * 7919 % 1013 % CLASSES;
    let tokens = (0..ROWS * CONTEXT).map(|i| token(i) as f32).collect();
    (tokens, (0..ROWS * CONTEXT).map(|i| token(i + 1) as i32).collect())
}

fn host() -> Grown {
    let topology = Topology::new(Host::find("transformer").unwrap(), [CONTEXT, 1, 1], CLASSES);
    Grown::new(topology, Training { batch: ROWS, ..Training::default() }, 3).unwrap()
}

fn bits(grown: &mut Grown, tokens: &[f32], alphas: &[f32]) -> Vec<u32> {
    grown.logits(tokens, ROWS, alphas).iter().map(|x| x.to_bits()).collect()
}

/// Blueprints that take tokens.
fn fitting() -> impl Iterator<Item = (Blueprint, &'static str)> {
    let grown = host();
    let shape = grown.slot_shape(0).to_vec();
    assert_eq!(shape, [CONTEXT, 32]);
    Blueprint::ALL.into_iter().filter(move |(blueprint, _)| blueprint.fits(&shape))
}

#[test]
fn blueprints_of_images_say_that_they_do_not_fit() {
    let names: Vec<&str> = fitting().map(|(_, name)| name).collect();
    let wanted = ["noop", "se_attention", "norm", "lora_8", "lora_32", "mlp_small", "mlp", "flex_attention"];
    assert_eq!(names, wanted);
    let mut grown = host();
    for (blueprint, name) in Blueprint::ALL.into_iter().filter(|(_, name)| !wanted.contains(name)) {
        let seed = Seed { blueprint, blend: Blend::Add, detached: true };
        let message = grown.germinate(0, seed, 1).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("does not fit: wanted an image"), "{message}");
    }
}

/// Another token at place t changes logits at t and perhaps later, and no bit of those before: whatever has grown, with any weights.
#[test]
fn no_place_learns_of_a_later_one() {
    let (tokens, _) = data();
    for (blueprint, name) in fitting() {
        for blend in BLENDS {
            let mut grown = host();
            for slot in 0..3 {
                grown.germinate(slot, Seed { blueprint, blend, detached: false }, 5 + slot as u64).unwrap();
            }
            // Last layers begin at 0, and would hide what passes through them.
            let mut rng = HostRng::new(1, 0, 0, 0);
            for spec in grown.params().specs().to_vec() {
                let values = grown.params_mut().get_mut(&spec.name).unwrap();
                values.iter_mut().for_each(|x| *x += 0.2 * rng.normal());
            }
            let alphas = [1.0, 0.7, 1.0];
            let before = bits(&mut grown, &tokens, &alphas);
            for place in 0..CONTEXT {
                let mut other = tokens.clone();
                for row in other.chunks_exact_mut(CONTEXT) {
                    row[place] = (row[place] + 1.0) % CLASSES as f32;
                }
                let after = bits(&mut grown, &other, &alphas);
                for (a, b) in before.chunks_exact(CONTEXT * CLASSES).zip(after.chunks_exact(CONTEXT * CLASSES)) {
                    let (from, to) = (place * CLASSES, (place + 1) * CLASSES);
                    assert!(a[..from] == b[..from], "{name}, {blend:?}: place {place} is seen before it");
                    assert!(a[from..to] != b[from..to], "{name}, {blend:?}: place {place} does not see itself");
                }
            }
        }
    }
}

#[test]
fn a_seed_at_alpha_zero_is_not_there() {
    let (tokens, targets) = data();
    let gradients = |grown: &Grown| -> Vec<f32> {
        let names =
            grown.params().specs().iter().map(|spec| spec.name.clone()).filter(|name| name.starts_with("host."));
        names.flat_map(|name| grown.gradient(&name).unwrap().to_vec()).collect()
    };
    let length = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    for (blueprint, name) in fitting() {
        for blend in BLENDS {
            let (mut alone, mut grown) = (host(), host());
            let wanted = bits(&mut alone, &tokens, &[0.0; 3]);
            grown.germinate(1, Seed { blueprint, blend, detached: true }, 9).unwrap();
            assert!(bits(&mut grown, &tokens, &[0.0; 3]) == wanted, "{name}, {blend:?}");
            alone.gradients(&tokens, &targets);
            grown.gradients(&tokens, &targets);
            let (a, b) = (gradients(&alone), gradients(&grown));
            let off = length(&mut a.iter().zip(&b).map(|(a, b)| a - b)) / length(&mut a.iter().copied());
            assert!(off < 1e-6, "{name}, {blend:?}: host gradients are {off} apart");
            let (_, sizes) = grown.gradient_sizes();
            assert!(blueprint == Blueprint::Noop || sizes[1] > 0.0, "{name}, {blend:?}: a seed learns at alpha 0");
            for _ in 0..5 {
                grown.train(&tokens, &targets);
            }
            let trained = bits(&mut grown, &tokens, &[0.0; 3]);
            let full = bits(&mut grown, &tokens, &[0.0, 1.0, 0.0]);
            assert_eq!(full == trained, blueprint == Blueprint::Noop, "{name}, {blend:?}");
            grown.prune(1).unwrap();
            assert!(bits(&mut grown, &tokens, &[0.0; 3]) == trained, "{name}, {blend:?}");
            assert!(grown.params().specs().iter().all(|spec| spec.name.starts_with("host.")));
        }
    }
}

/// A score over several batches is the mean over all places, and training lowers it.
#[test]
fn scores_are_means_over_places() {
    let (tokens, targets) = data();
    let mut grown = host();
    let whole = grown.score(&tokens, &targets, &[0.0; 3]);
    let chance = (CLASSES as f32).ln();
    assert!((whole.loss - chance).abs() < 0.5 * chance, "{whole:?}");
    let parts: Vec<f32> = tokens
        .chunks(2 * CONTEXT)
        .zip(targets.chunks(2 * CONTEXT))
        .map(|(tokens, targets)| grown.score(tokens, targets, &[0.0; 3]).loss)
        .collect();
    assert!((whole.loss - parts.iter().sum::<f32>() / parts.len() as f32).abs() < 1e-4);
    let (first, fine) = grown.train(&tokens, &targets);
    assert!(
        fine && (first - whole.loss).abs() < 1e-3,
        "{first} and {whole:?}: one number per sample, in nats per token"
    );
    for _ in 0..60 {
        grown.train(&tokens, &targets);
    }
    let last = grown.score(&tokens, &targets, &[0.0; 3]);
    assert!(last.loss < 0.5 * whole.loss && last.accuracy > 0.7, "{last:?}");
    assert!(grown.trained_accuracy(&targets) > 0.7);
}
