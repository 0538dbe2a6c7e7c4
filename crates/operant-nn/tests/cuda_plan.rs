//! Kernels of plans: compiled everywhere, held to the CPU where there is a GPU.

#[cfg(target_os = "linux")]
mod compiled;

#[cfg(target_os = "linux")]
use compiled::{ARCHS, compile};
use operant_device::cuda::Gpu;
use operant_lanes::rng::HostRng;
use operant_nn::cuda::{Form, Text};
use operant_nn::grow::{Blueprint, Grown, GrownGroup, Host, Samples, Seed, Task, Topology, Training, group_source};
use operant_nn::ops::{Blend, OPS};
use operant_nn::{
    CudaPlan, Feed, Gradients, Graph, Init, Memory, Networks, Node, Options, Plan, Precision, Setup, Wanted,
};

#[cfg(target_os = "linux")]
#[test]
fn every_kernel_compiles() {
    let mut work: Vec<(String, &str, String)> = Vec::new();
    for text in Text::ALL {
        let tiles = matches!(text, Text::Products | Text::Patches | Text::Recurrent);
        for form in [Form::F32, Form::Tf32, Form::Bf16] {
            if text.serves(form) && (tiles || form != Form::Tf32) {
                work.extend(ARCHS.map(|arch| (text.name().to_owned(), arch, text.source(form))));
            }
        }
    }
    work.extend(ARCHS.map(|arch| ("grown".into(), arch, group_source())));
    let printed = [Precision::F32, Precision::Bf16, Precision::F32];
    for (seed, precision) in printed.into_iter().enumerate() {
        let drawn = Drawn::new(seed as u64, [5, 8]);
        let text = CudaPlan::printed(&drawn.graph, &drawn.wanted(), &setup(precision, true)).unwrap();
        work.extend(ARCHS.map(|arch| ("chains".into(), arch, text.clone())));
    }
    compile(&work);
}

fn setup(precision: Precision, fuse: bool) -> Setup<'static> {
    Setup { groups: 2, max_rows: 7, parts: 1, precision, shared: &[], pixels: false, leaders: 0, apart: &[], fuse }
}

/// A graph of many ops that go number by number, of one shape, with other ops between them.
struct Drawn {
    graph: Graph,
    inputs: Vec<Node>,
    output: Node,
    /// A tensor of a part of the graph that nothing else reads.
    apart: Node,
    loss: Node,
}

impl Drawn {
    fn new(seed: u64, shape: [usize; 2]) -> Self {
        let mut rng = HostRng::new(seed, 0, 0, 0);
        let mut g = Graph::new();
        let inputs: Vec<Node> = ["a", "b"].map(|name| g.input_with_gradient(name, shape)).to_vec();
        let vector = g.input_with_gradient("vector", [shape[1]]);
        let mut last = inputs.clone();
        for number in 0..24 {
            let pick = |rng: &mut HostRng| last[last.len() - 1 - rng.below(last.len().min(4) as u32) as usize];
            let (x, other) = (pick(&mut rng), pick(&mut rng));
            let y = match (number + seed) % 14 {
                0 => g.tanh(x),
                1 => g.add(x, other),
                2 => g.gelu(x),
                3 => g.mul(x, other),
                4 => g.silu(x),
                5 => g.sub(x, other),
                6 => g.sigmoid(x),
                7 => g.softplus(x),
                8 => g.bias(&format!("bias{number}"), x, Init::Normal { std: 0.5 }),
                9 => g.broadcast_mul(x, vector),
                10 => g.relu(x),
                11 => g.abs(x).and_then(|x| g.neg(x)).and_then(|x| g.exp(x)),
                12 => g.layer_norm(&format!("norm{number}"), x),
                _ => g.square(x).and_then(|x| g.scale(x, 0.125)),
            };
            last.push(y.unwrap());
        }
        let output = *last.last().unwrap();
        g.under(Some(0));
        let apart = g.tanh(inputs[0]).and_then(|x| g.scale(x, 3.0)).unwrap();
        g.under(None);
        let tail = last[last.len() - 4..].to_vec();
        let sum = tail[1..].iter().fold(tail[0], |sum, x| g.add(sum, *x).unwrap());
        let loss = g.mean(sum, 9).unwrap();
        Self { graph: g, inputs: [inputs, vec![vector]].concat(), output, apart, loss }
    }

    fn wanted(&self) -> Wanted {
        Wanted { outputs: vec![self.output, self.apart], losses: vec![(self.loss, 1.0)], ..Wanted::default() }
    }
}

/// What a small plan prints: values pass on in registers, and what the way back needs is stored.
#[test]
fn chains_are_printed() {
    let mut g = Graph::new();
    let (x, h) = (g.input_with_gradient("x", [3, 8]), g.input_with_gradient("h", [3, 8]));
    let y = g.sigmoid(x).and_then(|gate| g.mul(gate, h)).and_then(|y| g.bias("b", y, Init::Zeros)).unwrap();
    let y = g.sub(h, y).and_then(|y| g.scale(y, 0.5)).and_then(|y| g.square(y)).unwrap();
    let loss = g.mean(y, 2).unwrap();
    let wanted = Wanted { losses: vec![(loss, 1.0)], ..Wanted::default() };
    for (name, precision, form) in
        [("chains_in_f32", Precision::F32, Form::F32), ("chains_in_bf16", Precision::Bf16, Form::Bf16)]
    {
        let text = CudaPlan::printed(&g, &wanted, &setup(precision, true)).unwrap();
        insta::assert_snapshot!(name, text[Text::Chains.source(form).len()..]);
        let alone = CudaPlan::printed(&g, &wanted, &setup(precision, false)).unwrap();
        let kernels = |text: &str| text.matches("KERNEL(chain_").count();
        assert!(kernels(&alone) > 2 * kernels(&text), "{} alone, {} in chains", kernels(&alone), kernels(&text));
    }
}

/// In f32 and in bf16, of rows that are whole vectors and of others: as on the CPU, and the same bits whether ops are one launch or many.
#[test]
#[ignore = "needs a GPU"]
fn chains_agree_with_the_cpu_and_with_single_ops() {
    let gpu = Gpu::open(0).unwrap();
    for (seed, shape) in [(0, [5, 8]), (1, [3, 4]), (2, [3, 7]), (3, [4, 16]), (4, [1, 24]), (5, [2, 12])] {
        let drawn = Drawn::new(seed, shape);
        let rows = 7;
        let mut rng = HostRng::new(seed, 1, 0, 0);
        let whole = |x: f32| f32::from_bits(x.to_bits() & 0xFFFF_0000);
        let len = |node: &Node| drawn.graph.shape(*node).iter().product::<usize>();
        let feeds: Vec<Vec<f32>> =
            drawn.inputs.iter().map(|node| (0..rows * len(node)).map(|_| whole(rng.normal())).collect()).collect();
        let params = drawn.graph.params(seed).unwrap();
        let mut cpu: Plan = Plan::new(&drawn.graph, &drawn.wanted(), rows, &Options::default()).unwrap();
        let given: Vec<Feed> = feeds.iter().map(|feed| Feed::Real(feed)).collect();
        cpu.train(&params, rows, &given, 1.0, Gradients::Replace);
        let mut wanted = vec![cpu.output(drawn.output).to_vec(), cpu.output(drawn.apart).to_vec()];
        wanted.extend(drawn.inputs.iter().map(|node| cpu.input_gradient(*node).unwrap_or(&[]).to_vec()));
        wanted.push(cpu.gradients().to_vec());
        for precision in [Precision::F32, Precision::Bf16] {
            let run = |fuse: bool| {
                let networks = Networks::new(&gpu, &drawn.graph, 1).unwrap();
                networks.values().upload(params.values()).unwrap();
                let plan = CudaPlan::new(&drawn.graph, &drawn.wanted(), &networks, &setup(precision, fuse)).unwrap();
                for (input, feed) in feeds.iter().enumerate() {
                    plan.feed(input).unwrap().upload(&[feed.clone(), feed.clone()].concat()).unwrap();
                }
                plan.rows().upload(&[rows as u32, 3]).unwrap();
                // The second group has no part 0.
                plan.absent().upload(&[0u32, 1]).unwrap();
                for _ in 0..2 {
                    plan.run(|_| true).unwrap();
                }
                let read = |node: Node, gradient: bool, group: usize, rows: usize| {
                    plan.read(node, gradient, group, rows).unwrap().unwrap_or_default()
                };
                let of = |group: usize, rows: usize| {
                    let mut found = vec![read(drawn.output, false, group, rows), read(drawn.apart, false, group, rows)];
                    found.extend(drawn.inputs.iter().map(|node| read(*node, true, group, rows)));
                    found.push(plan.read_gradients(group).unwrap());
                    found
                };
                (of(0, rows), of(1, 3), plan.launches(|_| true), plan.bytes())
            };
            let (fused, alone) = (run(true), run(false));
            let what = format!("graph {seed} in {precision:?}");
            assert!((&fused.0, &fused.1) == (&alone.0, &alone.1), "{what}: other bits in chains than alone");
            assert!(fused.1[1].iter().all(|x| *x == 0.0), "{what}: a part that is left out wrote something");
            assert!(fused.2 < alone.2, "{what}: {} launches for {}", fused.2, alone.2);
            println!("{what}: {} launches, {} bytes; alone {}, {}", fused.2, fused.3, alone.2, alone.3);
            // What bf16 loses in so many ops in a row says nothing; single ops are held to the CPU in it too.
            let wanted = if precision == Precision::F32 { &wanted[..] } else { &[] };
            for (number, (found, wanted)) in fused.0.iter().zip(wanted).enumerate() {
                let scale = wanted.iter().fold(0.05f32, |most, x| most.max(x.abs()));
                let off = found.iter().zip(wanted).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
                assert!(
                    found.len() == wanted.len() && off <= 1e-4 * scale,
                    "{what}, tensor {number}: {off} of {scale}"
                );
            }
        }
    }
}

/// Ops without kernels, and those of whose cases some have none.
const WITHOUT: &[&str] =
    &["EntropyFloor", "ProbabilityFloor", "SquashedGaussian", "KeyedNoise", "MixedNoise", "Spectral", "Tower"];
const PARTLY: &[&str] = &[];

#[test]
fn ops_without_kernels_are_known() {
    let (mut without, mut partly) = (Vec::new(), Vec::new());
    for entry in OPS {
        let served = (entry.served)().unwrap();
        if served.with == 0 {
            without.push(entry.name);
        } else if served.without > 0 {
            partly.push(entry.name);
        }
    }
    assert_eq!((without.as_slice(), partly.as_slice()), (WITHOUT, PARTLY));
}

#[test]
#[ignore = "needs a GPU"]
fn kernels_agree_with_the_cpu() {
    let gpu = Gpu::open(0).unwrap();
    let wanted = std::env::var("OPERANT_OP").ok();
    let chosen = |name: &str| wanted.as_deref().is_none_or(|wanted| name.eq_ignore_ascii_case(wanted));
    let failures: Vec<String> = OPS
        .iter()
        .filter(|entry| chosen(entry.name))
        .filter_map(|entry| (entry.check_cuda)(&gpu).err().map(|error| format!("{}: {error}", entry.name)))
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Layers with a state that are large enough for the widest blocks of each kernel, with episodes that begin on the way.
#[test]
#[ignore = "needs a GPU"]
fn large_layers_with_a_state_agree_with_the_cpu() {
    let gpu = Gpu::open(0).unwrap();
    let (rows, steps, features, hidden) = (4096, 3, 64, 128);
    for lstm in [true, false] {
        let mut g = Graph::new();
        let x = g.input_with_gradient("x", [steps, features]);
        let resets = g.input("resets", [steps]);
        let memory = Memory { resets: Some(resets), ..Memory::default() };
        let found = if lstm { g.lstm("layer", x, hidden, 1, &memory) } else { g.gru("layer", x, hidden, 1, &memory) };
        let y = found.unwrap().y;
        let loss = g.square(y).and_then(|y| g.mean(y, 2)).unwrap();
        let wanted = Wanted { outputs: vec![y], losses: vec![(loss, 1.0)], ..Wanted::default() };
        let mut rng = HostRng::new(1, 0, 0, 0);
        let feeds = [
            (0..rows * steps * features).map(|_| rng.normal()).collect::<Vec<f32>>(),
            (0..rows * steps).map(|_| f32::from(u8::from(rng.below(4) == 0))).collect(),
        ];
        let params = g.params(1).unwrap();
        let mut cpu: Plan = Plan::new(&g, &wanted, rows, &Options::default()).unwrap();
        cpu.train(&params, rows, &feeds.each_ref().map(|feed| Feed::Real(feed)), 1.0, Gradients::Replace);
        let networks = Networks::new(&gpu, &g, 1).unwrap();
        networks.values().upload(params.values()).unwrap();
        let setup = Setup { groups: 1, max_rows: rows, ..setup(Precision::F32, true) };
        let plan = CudaPlan::new(&g, &wanted, &networks, &setup).unwrap();
        feeds.iter().enumerate().for_each(|(input, feed)| plan.feed(input).unwrap().upload(feed).unwrap());
        plan.run(|_| true).unwrap();
        let read = |node: Node, gradient: bool| plan.read(node, gradient, 0, rows).unwrap().unwrap();
        let tensors = [
            ("output", read(y, false), cpu.output(y).to_vec()),
            ("gradient of the input", read(x, true), cpu.input_gradient(x).unwrap().to_vec()),
            ("gradients of parameters", plan.read_gradients(0).unwrap(), cpu.gradients().to_vec()),
        ];
        for (what, found, wanted) in tensors {
            let scale = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let off = found.iter().zip(&wanted).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(
                scale > 0.0 && found.len() == wanted.len() && off <= 1e-4 * scale,
                "lstm {lstm}, {what}: {off} of {scale}"
            );
        }
    }
}

/// Small images and their classes.
fn samples(count: usize, pixels: usize, classes: usize, turn: usize) -> (Vec<f32>, Vec<i32>) {
    let mut rng = HostRng::new(turn as u64, 0, 0, 0);
    let targets: Vec<i32> = (0..count).map(|_| rng.below(classes as u32) as i32).collect();
    let images = targets.iter().flat_map(|&target| {
        let level = target as f32 / classes as f32 - 0.5;
        (0..pixels).map(|_| level + rng.normal()).collect::<Vec<f32>>()
    });
    (images.collect(), targets)
}

/// Every blueprint in some slot, blended in every way, with open and closed ways back, among networks that have others.
fn seeds_of(network: usize, slots: usize) -> Vec<(usize, Seed, f32)> {
    let blends = [Blend::Add, Blend::Multiply, Blend::Gate];
    let one = |slot: usize| {
        let blueprint = Blueprint::ALL[1 + (network + 5 * slot) % 12].0;
        let seed =
            Seed { blueprint, blend: blends[(network + slot) % 3], detached: (network + slot).is_multiple_of(2) };
        (slot, seed, [0.0, 0.5, 1.0, 0.7][(network / 3 + slot) % 4])
    };
    (0..slots).filter(|slot| network > 0 && (network + slot) % 3 != 1).map(one).collect()
}

/// Five classes; samples to train on and to validate on.
fn task_of<'a>(
    host: Host,
    image: [usize; 3],
    samples: [(&'a [f32], &'a [i32]); 2],
    training: Training,
    precision: Precision,
) -> Task<'a> {
    let [train, validation] = samples.map(|(images, targets)| Samples { images, targets });
    Task { host, image, classes: 5, train, validation, training, precision, own_samples: false, augment: false }
}

#[test]
#[ignore = "needs a GPU"]
fn networks_side_by_side_learn_as_they_do_alone() {
    let gpu = Gpu::open(0).unwrap();
    let (image, classes, networks) = ([8, 8, 3], 5, 13);
    let host = Host::find("baseline").unwrap();
    let ((images, targets), (val, val_targets)) = (samples(40, 192, classes, 1), samples(22, 192, classes, 2));
    let training = Training { batch: 16, learning_rate: 0.02, ..Training::default() };
    let task = task_of(host, image, [(&images, &targets), (&val, &val_targets)], training, Precision::F32);
    let run = |numbers: &[u64]| {
        let mut group = GrownGroup::new(&gpu, &task, numbers).unwrap();
        for (place, &number) in numbers.iter().enumerate() {
            for (slot, seed, alpha) in seeds_of(number as usize, host.slots()) {
                group.germinate(place, slot, seed, 100 + number).unwrap();
                group.set_alpha(place, slot, alpha);
            }
        }
        let order: Vec<u32> = numbers.iter().flat_map(|&n| (0..40).map(move |i| (i * 7 + n as u32) % 40)).collect();
        let first = group.epoch(&order).unwrap();
        let second = group.epoch(&order).unwrap();
        let asked: Vec<(usize, Vec<f32>)> =
            (0..numbers.len()).flat_map(|n| [(n, group.alphas(n).to_vec()), (n, vec![0.0; host.slots()])]).collect();
        let scores = group.score(&asked).unwrap();
        let weights: Vec<_> = (0..numbers.len()).map(|n| group.weights(n).unwrap()).collect();
        (first, second, scores, weights, group.gradient_sizes().unwrap())
    };
    let numbers: Vec<u64> = (0..networks).collect();
    let (first, second, scores, weights, sizes) = run(&numbers);
    for &number in &numbers {
        let n = number as usize;
        let mut alone = Grown::new(Topology::new(host, image, classes), training, number).unwrap();
        for (slot, seed, alpha) in seeds_of(n, host.slots()) {
            alone.germinate(slot, seed, 100 + number).unwrap();
            alone.set_alpha(slot, alpha);
        }
        let near = |what: &str, got: f32, wanted: f32, tolerance: f32| {
            let error = (got - wanted).abs() / (1.0 + wanted.abs());
            assert!(error < tolerance, "network {n}, {:?}: {what} is {got}, wanted {wanted}", seeds_of(n, 3));
        };
        for found in [&first, &second] {
            let order: Vec<usize> = (0..40).map(|i| (i * 7 + n) % 40).collect();
            let mut sum = 0.0;
            for rows in order.chunks(16) {
                let images: Vec<f32> = rows.iter().flat_map(|&row| images[row * 192..][..192].to_vec()).collect();
                let targets: Vec<i32> = rows.iter().map(|&row| targets[row]).collect();
                sum += alone.train(&images, &targets).0 * rows.len() as f32;
            }
            near("loss", found[n].loss, sum / 40.0, 2e-4);
            assert!(found[n].finite);
        }
        for (name, [wanted, momentum, _]) in &alone.weights().tensors {
            let (_, [values, moved, _]) = weights[n].tensors.iter().find(|(known, _)| known == name).unwrap();
            let scale = wanted.iter().fold(0.02f32, |most, x| most.max(x.abs()));
            values.iter().zip(wanted).for_each(|(got, wanted)| near(name, got / scale, wanted / scale, 2e-3));
            let scale = momentum.iter().fold(0.1f32, |most, x| most.max(x.abs()));
            moved.iter().zip(momentum).for_each(|(got, wanted)| near(name, got / scale, wanted / scale, 1e-2));
        }
        assert_eq!(weights[n].tensors.len(), alone.weights().tensors.len());
        let (host_size, slot_sizes) = alone.gradient_sizes();
        near("gradient of the host", sizes[n][0], host_size, 1e-3);
        slot_sizes.iter().zip(&sizes[n][1..]).for_each(|(wanted, got)| near("gradient of a seed", *got, *wanted, 1e-3));
        let alphas = alone.alphas().to_vec();
        for (got, alphas) in scores[2 * n..][..2].iter().zip([alphas, vec![0.0; host.slots()]]) {
            let wanted = alone.score(&val, &val_targets, &alphas);
            near("validation loss", got.loss, wanted.loss, 1e-3);
            near("accuracy", got.accuracy, wanted.accuracy, 0.05);
        }
    }
    // To the bit whoever else is there.
    let (.., few, _) = run(&[3, 0, 11]);
    for (place, number) in [3, 0, 11].into_iter().enumerate() {
        assert_eq!(few[place], weights[number], "network {number} among others");
    }
}

/// Networks share what is alike of what is asked of them, and seeds that only another one hears: to the bit as if each were asked alone.
#[test]
#[ignore = "needs a GPU"]
fn counterfactuals_score_as_they_do_alone() {
    let gpu = Gpu::open(0).unwrap();
    let (image, classes, networks) = ([16, 16, 3], 5, 7u64);
    let ((images, targets), (val, val_targets)) = (samples(32, 768, classes, 1), samples(39, 768, classes, 2));
    for (name, precision) in
        [("baseline", Precision::Bf16), ("baseline", Precision::F32), ("post_pool", Precision::Tf32)]
    {
        let host = Host::find(name).unwrap();
        let task = task_of(
            host,
            image,
            [(&images, &targets), (&val, &val_targets)],
            Training { batch: 16, learning_rate: 0.02, ..Training::default() },
            precision,
        );
        let numbers: Vec<u64> = (0..networks).collect();
        let mut group = GrownGroup::new(&gpu, &task, &numbers).unwrap();
        for network in 0..networks as usize {
            for slot in 0..host.slots() {
                let (blueprint, _) = Blueprint::ALL[1 + (network * 3 + slot) % (Blueprint::ALL.len() - 1)];
                let blend = [Blend::Add, Blend::Multiply, Blend::Gate][(network + slot) % 3];
                group.germinate(network, slot, Seed { blueprint, blend, detached: false }, 9).unwrap();
                group.set_alpha(network, slot, 0.5);
            }
        }
        let order: Vec<u32> = numbers.iter().flat_map(|_| 0..32).collect();
        group.epoch(&order).unwrap();
        // All coalitions of α = 0, ½ and 1, from another one on in every network.
        let levels = |code: usize| vec![code % 3, code / 3 % 3, code / 9 % 3];
        let all =
            (0..networks as usize).flat_map(|network| (0..27).map(move |code| (network, (code + 5 * network) % 27)));
        let asked: Vec<(usize, Vec<f32>)> = all
            .map(|(network, code)| (network, levels(code).into_iter().map(|level| level as f32 / 2.0).collect()))
            .collect();
        let together = group.score(&asked).unwrap();
        let again: Vec<_> = asked.iter().flat_map(|one| [one.clone(), asked[0].clone(), one.clone()]).collect();
        for (found, three) in together.iter().zip(group.score(&again).unwrap().chunks(3)) {
            assert_eq!([found, &together[0], found], [&three[0], &three[1], &three[2]], "what is asked twice");
        }
        let mut distinct = 0;
        for (asked, found) in asked.iter().zip(&together) {
            let alone = group.score(std::slice::from_ref(asked)).unwrap();
            assert_eq!(alone[0], *found, "{name} in {precision:?}: network {} with {:?}", asked.0, asked.1);
            distinct += usize::from(together.iter().filter(|other| *other == found).count() == 1);
        }
        // Seeds are heard: most scores differ.
        assert!(distinct * 4 > together.len() * 3, "{name} in {precision:?}: {distinct} of {} differ", together.len());
    }
}

/// A loss, and a gradient by the names of its tensors.
type Gradient = (f32, Vec<(String, Vec<f32>)>);

/// Every network's first loss and gradient.
fn first_gradient(gpu: &std::sync::Arc<Gpu>, task: &Task, numbers: &[u64]) -> Vec<Gradient> {
    let mut group = GrownGroup::new(gpu, task, numbers).unwrap();
    for (place, &number) in numbers.iter().enumerate() {
        for (slot, seed, alpha) in seeds_of(number as usize, task.host.slots()) {
            group.germinate(place, slot, seed, 100 + number).unwrap();
            group.set_alpha(place, slot, alpha);
        }
    }
    let count = task.train.targets.len() as u32;
    let order: Vec<u32> = numbers.iter().flat_map(|_| 0..count).collect();
    let losses = group.epoch(&order).unwrap();
    let momentum =
        |n: usize| group.weights(n).unwrap().tensors.into_iter().map(|(name, [_, momentum, _])| (name, momentum));
    losses.iter().enumerate().map(|(n, found)| (found.loss, momentum(n).collect())).collect()
}

/// Tensors of bf16 lose little, whoever is there: a minibatch so large that sums go over several splits of tiles.
#[test]
#[ignore = "needs a GPU"]
fn networks_in_bf16_learn_nearly_as_in_f32() {
    let gpu = Gpu::open(0).unwrap();
    let (image, classes, batch) = ([16, 16, 3], 5, 96);
    let pixels = image.iter().product();
    let ((images, targets), (val, val_targets)) = (samples(batch, pixels, classes, 1), samples(8, pixels, classes, 2));
    for (base, networks) in [(8, 13u64), (32, 4)] {
        let host = Host { base, ..Host::find("baseline").unwrap() };
        let of = |precision: Precision, numbers: &[u64]| {
            let task = task_of(
                host,
                image,
                [(&images, &targets), (&val, &val_targets)],
                Training { batch, ..Training::default() },
                precision,
            );
            first_gradient(&gpu, &task, numbers)
        };
        let numbers: Vec<u64> = (0..networks).collect();
        let (wanted, found) = (of(Precision::F32, &numbers), of(Precision::Bf16, &numbers));
        for (n, ((loss, gradient), (wanted_loss, wanted))) in found.iter().zip(&wanted).enumerate() {
            let square = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>();
            let (mut error, mut all, mut told) = (0.0, 0.0, String::new());
            for ((name, got), (_, wanted)) in gradient.iter().zip(wanted) {
                let off = square(&mut got.iter().zip(wanted).map(|(got, wanted)| got - wanted));
                let size = square(&mut wanted.iter().copied());
                (error, all) = (error + off, all + size);
                told += &format!(" {name} {:.4}", (off / size).sqrt());
                // Nothing is chosen between the last layer and the loss.
                let head = name.starts_with("host.head");
                assert!(!head || off < 0.03f64.powi(2) * size, "base {base}, network {n}:{told}");
            }
            let share = (error / all).sqrt();
            println!("base {base}, network {n}: off by {share:.4}, loss {loss} for {wanted_loss}:{told}");
            // Most of it where rounding chooses another of two pixels of a pool that are nearly alike: rounding as much in PyTorch on
            // a CPU gives 1.4 to 3.9 % for such hosts, 8 to 13 % in the first layer and less from layer to layer.
            assert!(share < 0.12, "base {base}, network {n}: gradient off by {share}:{told}");
            assert!((loss - wanted_loss).abs() < 1e-2, "base {base}, network {n}: loss {loss}, wanted {wanted_loss}");
        }
        assert_eq!(of(Precision::Bf16, &[2, 0]), [found[2].clone(), found[0].clone()], "among others, to the bit");
    }
}
