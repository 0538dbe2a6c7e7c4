//! Ten steps of Adam on each of the benchmarked networks end where PyTorch ends, on every instruction set.

use crate::torch::Golden;
use operant_base::Result;
use operant_device::gemm::amx;
use operant_lanes::Backend;
use operant_nn::nets::{self, Architecture};
use operant_nn::ops::{Conv2d, NormOptions};
use operant_nn::{Act, Feed, Gradients, Graph, Kind, Memory, Method, Node, Optimizer, Options, Plan, Precision};

const STEPS: usize = 10;
/// Small gradients are 0 in f16 without it; a power of two changes nothing in f32.
const LOSS_SCALE: f32 = 256.0;
const RATE: f64 = 1e-3;
/// Most that a tensor's end is off, as a share of the way that it went.
const TOLERANCE: f64 = 1e-4;
/// The same for a tensor of which a third, the bias of keys, should not move: gradients of it are 0 but for rounding.
const PARTLY_STILL: (&str, f64) = ("attention.in_proj_bias", 2e-3);
/// The same for tensors that should not move, as a share of the farthest way.
const STILL: f64 = 1e-2;
/// Products of each tensor's way with vectors of the hash; see `generate_training.py`.
const PRODUCTS: usize = 4;
const SALT: u64 = 1000;

/// Numbers in [−0.5, 0.5), the same in `generate_training.py`.
fn hashed(count: usize, salt: u64) -> Vec<f32> {
    (0..count as u64)
        .map(|i| {
            let mut x = (i + salt * 1_000_003).wrapping_mul(2_654_435_761) & 0xffff_ffff;
            x ^= x >> 15;
            x = x.wrapping_mul(2_246_822_519) & 0xffff_ffff;
            x ^= x >> 13;
            (x as f64 / 4_294_967_296.0 - 0.5) as f32
        })
        .collect()
}

fn squared_error(g: &mut Graph, output: Node) -> Result<Node> {
    let target = g.input("target", g.shape(output).to_vec());
    g.mse_loss(output, target)
}

struct Task {
    name: &'static str,
    rows: usize,
    /// Integer inputs take values below this.
    classes: usize,
    build: fn(&mut Graph) -> Result<Node>,
}

fn described(architecture: &Architecture, g: &mut Graph) -> Result<Node> {
    let net = architecture.build()?;
    *g = net.graph;
    let mut loss = None;
    for (_, output) in net.outputs {
        let part = squared_error(g, output)?;
        loss = Some(match loss {
            None => part,
            Some(loss) => g.add(loss, part)?,
        });
    }
    Ok(loss.expect("has outputs"))
}

const TASKS: &[Task] = &[
    Task {
        name: "mlp",
        rows: 48,
        classes: 0,
        build: |g| {
            described(
                &Architecture::ActorCritic {
                    inputs: 4,
                    hidden: vec![64, 64],
                    actions: 2,
                    activation: Act::Tanh,
                    continuous: false,
                    memory: None,
                    image: None,
                },
                g,
            )
        },
    },
    Task {
        name: "dueling",
        rows: 64,
        classes: 12,
        build: |g| {
            let x = g.input("x", [144]);
            let action = g.input_ints("action", [1]);
            let q = nets::dueling(g, x, &[256, 128], 64, 12)?;
            let chosen = g.gather(q, action)?;
            let target = g.input("target", [1]);
            g.huber_loss(chosen, target, 1.0)
        },
    },
    Task {
        name: "resnet",
        rows: 16,
        classes: 0,
        build: |g| {
            described(
                &Architecture::Residual {
                    inputs: 198,
                    width: 128,
                    blocks: 3,
                    policy: 1156,
                    value_hidden: 64,
                    value: 6,
                },
                g,
            )
        },
    },
    Task {
        name: "conv",
        rows: 8,
        classes: 10,
        build: |g| {
            let x = g.input("x", [32, 32, 3]);
            let class = g.input_ints("class", [1]);
            let h = g.conv2d("conv1", x, Conv2d::new(8, 3).padding(1))?;
            let h = g.relu(h)?;
            let h = g.conv2d("conv2", h, Conv2d::new(16, 3).stride(2).padding(1))?;
            let h = g.relu(h)?;
            let h = g.conv2d("conv3", h, Conv2d::new(32, 3).stride(2).padding(1))?;
            let h = g.relu(h)?;
            let h = g.global_average_pool(h)?;
            let logits = g.linear("head", h, 10)?;
            g.cross_entropy(logits, class, 0.0, None)
        },
    },
    Task {
        name: "field",
        rows: 2,
        classes: 0,
        build: |g| {
            let x = g.input("x", [16, 16, 64]);
            let h = g.conv2d("conv", x, Conv2d::new(64, 3).circular(1))?;
            let y = g.instance_norm("norm", h, NormOptions { act: Act::Gelu, ..NormOptions::default() })?;
            squared_error(g, y)
        },
    },
    Task {
        name: "lstm",
        rows: 6,
        classes: 0,
        build: |g| {
            let x = g.input("x", [64, 128]);
            let y = g.lstm("lstm", x, 128, 1, &Memory::default())?.y;
            squared_error(g, y)
        },
    },
    Task {
        name: "attention",
        rows: 5,
        classes: 0,
        build: |g| {
            let x = g.input("x", [32, 64]);
            let y = g.attention("attention", x, 4, false, None)?;
            squared_error(g, y)
        },
    },
];

enum Data {
    Real(Vec<f32>),
    Ints(Vec<i32>),
}

fn check(golden: &Golden, task: &Task, backend: Backend, precision: Precision) {
    let mut g = Graph::new();
    let loss = (task.build)(&mut g).unwrap();
    let mut params = g.params(0).unwrap();
    let mut names: Vec<String> = params.specs().iter().map(|spec| spec.name.clone()).collect();
    names.sort();
    for (salt, name) in names.iter().enumerate() {
        let spec = params.spec(name).unwrap().clone();
        let fan_in = spec.shape[1..].iter().product::<usize>() as f32;
        let scale = if spec.shape.len() > 1 { 3.0 / fan_in.sqrt() } else { 0.2 };
        let values: Vec<f32> = hashed(spec.count(), 100 + salt as u64).iter().map(|x| x * scale).collect();
        params.set(name, &values).unwrap();
    }
    let first = params.values().to_vec();
    let data: Vec<Data> = g
        .inputs()
        .iter()
        .enumerate()
        .map(|(i, &input)| {
            let values = hashed(g.ty(input).len() * task.rows, i as u64 + 1);
            match g.ty(input).kind {
                Kind::Ints => Data::Ints(values.iter().map(|x| ((x + 0.5) * task.classes as f32) as i32).collect()),
                _ => Data::Real(values.iter().map(|x| x * 2.0).collect()),
            }
        })
        .collect();
    let feeds: Vec<Feed> = data
        .iter()
        .map(|data| match data {
            Data::Real(x) => Feed::Real(x),
            Data::Ints(x) => Feed::Ints(x),
        })
        .collect();
    let options = Options { backend, precision, ..Options::threads(2) };
    let mut plan = Plan::training(&g, loss, task.rows, &options).unwrap();
    let mut adam = Optimizer::new(Method::default(), &params, None, backend).unwrap();
    let place = format!("{} on {} in {}", task.name, backend.name(), precision.name());
    let (most, most_of_descent) = match precision {
        Precision::Bf16 => (2e-2, 0.1),
        Precision::F16 => (2e-3, 0.02),
        _ => (2e-4, 2e-3),
    };
    let (_, losses) = golden.get(&format!("{}/losses", task.name)).unwrap();
    let mut found = Vec::new();
    for (step, wanted) in losses.iter().enumerate().take(STEPS) {
        let got = plan.train(&params, task.rows, &feeds, LOSS_SCALE, Gradients::Replace).loss;
        adam.step_scaled(&mut params, plan.gradients(), RATE as f32, LOSS_SCALE);
        // Rounding of operands moves a small loss as far as a large one.
        let of = if precision == Precision::F32 { *wanted } else { losses[0] };
        let error = (got - wanted).abs() / of.abs();
        found.push(got);
        assert!(error < most, "{place}: loss {step} is {got}, PyTorch's {wanted}");
    }
    let descent = |losses: &[f32]| losses[0] - losses[STEPS - 1];
    let error = (descent(&found) - descent(&losses)).abs() / descent(&losses).abs();
    assert!(
        error < most_of_descent,
        "{place}: the loss falls by {}, PyTorch's by {}",
        descent(&found),
        descent(&losses)
    );
    if precision != Precision::F32 {
        // Adam's first steps have the size of the rate whatever the gradient's: where that is near 0, rounding turns them round.
        return;
    }
    for name in &names {
        let (_, wanted) = golden.get(&format!("{}/{name}", task.name)).unwrap();
        let (length, products) = wanted.split_first().unwrap();
        assert_eq!(products.len(), PRODUCTS);
        let spec = params.spec(name).unwrap();
        let moved: Vec<f64> = params
            .get(name)
            .unwrap()
            .iter()
            .zip(&first[spec.range()])
            .map(|(&x, &x0)| f64::from(x) - f64::from(x0))
            .collect();
        let norm = moved.iter().map(|x| x * x).sum::<f64>().sqrt();
        let farthest = STEPS as f64 * RATE * (moved.len() as f64).sqrt();
        let place = format!("{} on {}: {name}", task.name, backend.name());
        if f64::from(*length) < 1e-6 * farthest {
            // Its gradient is 0 but for rounding, which Adam makes larger.
            assert!(norm < STILL * farthest, "{place} moved by {norm:.1e}, and PyTorch's did not");
            continue;
        }
        let along = products.iter().zip(SALT..).map(|(&product, salt)| {
            let got: f64 = moved.iter().zip(hashed(moved.len(), salt)).map(|(x, r)| x * f64::from(r)).sum();
            (got, product)
        });
        for (got, wanted) in along.chain([(norm, *length)]) {
            let error = (got - f64::from(wanted)).abs() / f64::from(*length);
            let most = if name == PARTLY_STILL.0 { PARTLY_STILL.1 } else { TOLERANCE };
            assert!(error < most, "{place} ends off by {error:.1e} of its way");
        }
    }
}

#[test]
fn ten_steps_end_where_pytorch_ends() {
    let golden = Golden::open("training.safetensors");
    for task in TASKS {
        for backend in ["portable", "avx2", "avx512", "amx"] {
            if let Ok(backend) = Backend::named(backend) {
                check(&golden, task, backend, Precision::F32);
            }
        }
    }
}

#[test]
fn ten_steps_have_pytorchs_losses_in_less_precision() {
    let golden = Golden::open("training.safetensors");
    let bf16 = amx::available_to_tests().then_some(Precision::Bf16);
    for precision in bf16.into_iter().chain([Precision::F16]) {
        TASKS.iter().for_each(|task| check(&golden, task, Backend::fast(), precision));
    }
}
