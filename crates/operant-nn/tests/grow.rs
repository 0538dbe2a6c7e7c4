//! Growing networks: what surgery and blending promise of the host.

use operant_nn::grow::{Blueprint, Grown, HOSTS, Seed, Topology, Training};
use operant_nn::ops::Blend;

const IMAGE: [usize; 3] = [8, 8, 3];
const CLASSES: usize = 5;
const ROWS: usize = 24;

fn data() -> (Vec<f32>, Vec<i32>) {
    let pixels = IMAGE.iter().product::<usize>();
    let images = (0..ROWS * pixels).map(|i| ((i * 7919 % 1013) as f32 / 506.5 - 1.0) * 1.5).collect();
    (images, (0..ROWS).map(|i| (i * 3 % CLASSES) as i32).collect())
}

fn host(name: &str) -> Grown {
    let host = HOSTS.into_iter().find(|host| host.name == name).unwrap();
    Grown::new(Topology::new(host, IMAGE, CLASSES), Training { batch: ROWS, ..Training::default() }, 3).unwrap()
}

fn logits(grown: &mut Grown, images: &[f32]) -> Vec<u32> {
    let alphas = grown.alphas().to_vec();
    grown.logits(images, ROWS, &alphas).iter().map(|x| x.to_bits()).collect()
}

fn host_gradients(grown: &Grown) -> Vec<f32> {
    let names = grown.params().specs().iter().map(|spec| spec.name.clone()).filter(|name| name.starts_with("host."));
    names.flat_map(|name| grown.gradient(&name).unwrap().to_vec()).collect()
}

/// Distance of two gradients, as a share of the first's length. Sums over tiles of other sizes round otherwise.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let length = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    length(&mut a.iter().zip(b).map(|(a, b)| a - b)) / length(&mut a.iter().copied())
}

fn seed(blueprint: Blueprint, blend: Blend) -> Seed {
    Seed { blueprint, blend, detached: true }
}

/// Every blueprint in every way of blending: the host's bits at α = 0 before and after training of the seed, the host's
/// gradients as if it were alone, another function at α = 1, and the host's bits again when it is taken out.
#[test]
fn a_seed_at_alpha_zero_is_not_there() {
    let (images, targets) = data();
    for (blueprint, name) in Blueprint::ALL {
        for blend in [Blend::Add, Blend::Multiply, Blend::Gate] {
            let (mut alone, mut grown) = (host("baseline"), host("baseline"));
            let wanted = logits(&mut alone, &images);
            grown.germinate(1, seed(blueprint, blend), 9).unwrap();
            assert!(logits(&mut grown, &images) == wanted, "{name}, {blend:?}");
            alone.gradients(&images, &targets);
            grown.gradients(&images, &targets);
            let off = distance(&host_gradients(&alone), &host_gradients(&grown));
            assert!(off < 1e-6, "{name}, {blend:?}: host gradients are {off} apart");
            let (host_size, sizes) = grown.gradient_sizes();
            assert!(host_size > 0.0);
            if blueprint != Blueprint::Noop {
                assert!(sizes[1] > 0.0 && sizes[0] == 0.0, "{name}, {blend:?}: a seed learns at alpha 0");
            }
            // Clipping sees the gradient of both, so steps are compared by what the seed leaves of the host's function.
            for _ in 0..5 {
                grown.train(&images, &targets);
            }
            let trained = logits(&mut grown, &images);
            let off = grown.alphas().to_vec();
            let on: Vec<f32> = (0..3).map(|slot| f32::from(u8::from(slot == 1))).collect();
            let full: Vec<u32> = grown.logits(&images, ROWS, &on).iter().map(|x| x.to_bits()).collect();
            assert_eq!(full == trained, blueprint == Blueprint::Noop, "{name}, {blend:?}");
            assert_eq!(off, [0.0; 3]);
            grown.set_alpha(1, 0.5);
            grown.prune(1).unwrap();
            assert!(logits(&mut grown, &images) == trained, "{name}, {blend:?}");
            assert!(grown.params().specs().iter().all(|spec| spec.name.starts_with("host.")));
        }
    }
}

/// A seed whose weights are not numbers does no harm at α = 0.
#[test]
fn a_broken_seed_at_alpha_zero_does_no_harm() {
    let (images, _) = data();
    let mut grown = host("baseline");
    let wanted = logits(&mut grown, &images);
    grown.germinate(0, seed(Blueprint::ConvLight, Blend::Add), 1).unwrap();
    grown.params_mut().get_mut("seed.0.last.bias").unwrap().fill(f32::NAN);
    assert_eq!(logits(&mut grown, &images), wanted);
}

/// Surgery elsewhere carries weights and the optimiser's memory: training goes on as if nothing had happened.
#[test]
fn surgery_carries_weights_and_momentum() {
    let (images, targets) = data();
    let (mut alone, mut grown) = (host("baseline"), host("baseline"));
    for _ in 0..3 {
        alone.train(&images, &targets);
        grown.train(&images, &targets);
    }
    let momentum = |grown: &Grown| grown.weights().tensors.iter().map(|(_, [_, m, _])| m.clone()).collect::<Vec<_>>();
    assert!(momentum(&grown).iter().flatten().any(|x| *x != 0.0));
    grown.germinate(2, seed(Blueprint::Noop, Blend::Add), 5).unwrap();
    for _ in 0..3 {
        alone.train(&images, &targets);
        grown.train(&images, &targets);
    }
    assert!(alone.weights() == grown.weights(), "a noop has no tensors, so all of them are the host's");
    grown.germinate(0, seed(Blueprint::Mlp, Blend::Gate), 5).unwrap();
    grown.train(&images, &targets);
    let before = grown.weights();
    grown.germinate(1, seed(Blueprint::Lora8, Blend::Add), 6).unwrap();
    let after = grown.weights();
    for tensor in &before.tensors {
        assert!(after.tensors.contains(tensor), "{}", tensor.0);
    }
    assert_eq!(before.steps, after.steps);
}

/// Once gradients may pass, a seed at α = 1 hands them on to the blocks before it.
#[test]
fn an_attached_seed_passes_gradients_on() {
    let (images, targets) = data();
    let mut grown = host("baseline");
    grown.germinate(2, seed(Blueprint::ConvLight, Blend::Add), 2).unwrap();
    grown.set_alpha(2, 1.0);
    grown.gradients(&images, &targets);
    assert!(grown.gradient("host.0.conv.weight").unwrap().iter().all(|x| *x == 0.0), "detached: nothing passes");
    let before = logits(&mut grown, &images);
    grown.set_detached(2, false).unwrap();
    assert_eq!(logits(&mut grown, &images), before);
    grown.gradients(&images, &targets);
    assert!(grown.gradient("host.0.conv.weight").unwrap().iter().any(|x| *x != 0.0));
}

/// Counts by hand for C channels at the second slot of the baseline, C = 16.
#[test]
fn blueprints_have_the_parameters_they_should() {
    let grown = host("baseline");
    assert_eq!(grown.slot_shape(1), [4, 4, 16]);
    let c = 16;
    let (q, conv) = (c / 4, |i: usize, o: usize, k: usize| i * o * k * k + o);
    let wanted = [
        0,
        2 * c + conv(c, c, 3),
        conv(c, q, 1) + conv(q, c, 1),
        2 * c,
        conv(1, c, 3) + conv(c, c, 1),
        conv(c, q, 1) + conv(q, q, 3) + conv(q, c, 1),
        conv(c, c, 1),
        2 * conv(c, c, 3) + 2 * c,
        2 * 8 * c,
        2 * 32 * c,
        conv(c, 2 * c, 1) + conv(2 * c, c, 1),
        conv(c, 4 * c, 1) + conv(4 * c, c, 1),
        2 * c + conv(c, 3 * c, 1) + conv(c, c, 1) + conv(c, c, 1),
    ];
    for ((blueprint, name), wanted) in Blueprint::ALL.into_iter().zip(wanted) {
        assert_eq!(blueprint.parameters(grown.slot_shape(1)).unwrap(), wanted, "{name}");
    }
    // conv 3→8, 8→16, 16→32 with norms, and the head.
    let host = conv(3, 8, 3) + conv(8, 16, 3) + conv(16, 32, 3) + 2 * (8 + 16 + 32) + 32 * CLASSES + CLASSES;
    assert_eq!(grown.parameters(), (host, vec![0; 3]));
}

/// Every host plans, trains and takes a seed in its last slot.
#[test]
fn every_host_trains_and_grows() {
    let (images, targets) = data();
    for each in HOSTS.into_iter().filter(|host| !host.reads_tokens()) {
        let mut grown = host(each.name);
        let first = grown.train(&images, &targets).0;
        grown.germinate(each.slots() - 1, seed(Blueprint::ConvSmall, Blend::Add), 1).unwrap();
        for _ in 0..12 {
            grown.train(&images, &targets);
        }
        let alphas = grown.alphas().to_vec();
        let last = grown.score(&images, &targets, &alphas);
        assert!(last.loss < first && last.loss.is_finite(), "{}: {first} then {last:?}", each.name);
    }
}
