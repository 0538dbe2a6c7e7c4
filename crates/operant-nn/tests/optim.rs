//! Optimisers against torch.optim: data from `golden_nn/generate_optim.py`, every lane width.

mod golden_nn;

use golden_nn::{Golden, backends};
use operant_device::CpuPool;
use operant_lanes::{Backend, Math, Width};
use operant_nn::{Init, Method, MuonScale, Optimizer, ParamSpec, Params};

const LEARNING_RATE: f32 = 0.01;
const STEPS: usize = 10;
const SHAPES: [(&str, &[usize]); 6] = [
    ("wide.weight", &[6, 20]),
    ("wide.bias", &[6]),
    ("tall.weight", &[33, 9]),
    ("tall.bias", &[33]),
    ("conv.weight", &[4, 3, 2, 2]),
    ("log_std", &[]),
];

fn strict() -> Backend {
    Backend::new(Width::Auto, Math::Strict)
}

/// The golden parameters, with a buffer among them.
fn start(golden: &Golden) -> Params {
    let mut specs: Vec<ParamSpec> =
        SHAPES.iter().map(|(name, shape)| ParamSpec::new(*name, shape, Init::Zeros)).collect();
    specs.insert(2, ParamSpec::buffer("norm.mean", &[5], Init::Constant(7.0)));
    let mut params = Params::new(specs).unwrap();
    params.initialise(0);
    for (name, _) in SHAPES {
        params.set(name, &golden.f32(&format!("start.{name}"))).unwrap();
    }
    params
}

/// Gradients of one step in the layout of the parameters; the buffer's is NaN, and must not matter.
fn grads(golden: &Golden, params: &Params, step: usize) -> Vec<f32> {
    let mut grads = vec![0.0; params.len()];
    for (name, _) in SHAPES {
        let spec = params.spec(name).unwrap();
        let all = golden.f32(&format!("grad.{name}"));
        grads[spec.range()].copy_from_slice(&all[step * spec.count()..][..spec.count()]);
    }
    grads[params.spec("norm.mean").unwrap().range()].fill(f32::NAN);
    grads
}

fn method(name: &str) -> Method {
    let sgd = |momentum, nesterov, weight_decay| Method::Sgd { momentum, nesterov, weight_decay };
    let muon = |scale| Method::Muon { momentum: 0.95, weight_decay: 0.1, scale, beta1: 0.9, beta2: 0.999, eps: 1e-8 };
    match name {
        "sgd" => Method::SGD,
        "momentum" => sgd(0.9, false, 0.05),
        "nesterov" => sgd(0.9, true, 0.05),
        "adam" => Method::default(),
        "adam_large_eps" => Method::Adam { beta1: 0.8, beta2: 0.95, eps: 0.1 },
        "adam_clipped" => Method::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-3 },
        "adamw" => Method::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1 },
        "muon_original" => muon(MuonScale::Original),
        "muon_match_adamw" => muon(MuonScale::MatchAdamW),
        other => panic!("{other}"),
    }
}

const METHODS: [&str; 9] = [
    "sgd",
    "momentum",
    "nesterov",
    "adam",
    "adam_large_eps",
    "adam_clipped",
    "adamw",
    "muon_original",
    "muon_match_adamw",
];

fn optimizer(name: &str, params: &Params, backend: Backend) -> Optimizer {
    let limit = (name == "adam_clipped").then_some(0.5);
    Optimizer::new(method(name), params, limit, backend).unwrap()
}

/// Ten steps agree with PyTorch in f64. Weights are about 1 and move by about 0.1: rounding of weights and of what moves them
/// leaves an error below 1e-6; Newton–Schulz enlarges rounding of small singular values some ten times.
#[test]
fn steps_agree_with_pytorch() {
    let golden = Golden::open("optim");
    for name in METHODS {
        let tolerance = if name.starts_with("muon") { 2e-5 } else { 1e-6 };
        let norms = golden.get(&format!("{name}.norms"));
        for backend in backends() {
            let mut params = start(&golden);
            let mut optimizer = optimizer(name, &params, backend);
            for (step, norm) in norms.iter().enumerate() {
                let grads = grads(&golden, &params, step);
                let report = optimizer.step(&mut params, &grads, LEARNING_RATE);
                assert!(report.finite && (f64::from(report.grad_norm) / norm - 1.0).abs() < 1e-6, "{name} {step}");
                let moment = match step {
                    0 => "first",
                    9 => "last",
                    _ => continue,
                };
                for (tensor, _) in SHAPES {
                    let wanted = golden.get(&format!("{name}.{moment}.{tensor}"));
                    for (i, (&got, wanted)) in params.get(tensor).unwrap().iter().zip(wanted).enumerate() {
                        let error = (f64::from(got) - wanted).abs();
                        assert!(
                            error < tolerance,
                            "{name} {moment} {tensor}[{i}]: {got}, wanted {wanted} ({backend:?})"
                        );
                    }
                }
            }
            assert_eq!(params.get("norm.mean").unwrap(), [7.0; 5], "a buffer is left alone");
            let mut padding = params.values().to_vec();
            params.specs().iter().for_each(|spec| padding[spec.range()].fill(0.0));
            assert!(padding.iter().all(|x| x.to_bits() == 0), "padding stays 0");
        }
    }
}

#[test]
fn strict_mode_gives_the_same_bits_on_every_width() {
    let golden = Golden::open("optim");
    for name in METHODS {
        let mut reference: Option<Params> = None;
        for backend in backends().into_iter().filter(|backend| backend.math() == Math::Strict) {
            let mut params = start(&golden);
            let mut optimizer = optimizer(name, &params, backend);
            for step in 0..STEPS {
                let grads = grads(&golden, &params, step);
                optimizer.step(&mut params, &grads, LEARNING_RATE);
            }
            let reference = reference.get_or_insert(params.clone());
            assert!(*reference == params, "{name} {backend:?}");
        }
    }
}

#[test]
fn a_saved_optimiser_goes_on_as_if_nothing_happened() {
    let golden = Golden::open("optim");
    for name in METHODS {
        let mut params = start(&golden);
        let mut first = optimizer(name, &params, strict());
        for step in 0..4 {
            let grads = grads(&golden, &params, step);
            first.step(&mut params, &grads, LEARNING_RATE);
        }
        let bytes = first.to_bytes();
        let mut restored = optimizer(name, &params, strict());
        restored.from_bytes(&bytes).unwrap();
        assert_eq!((restored.steps(), restored.to_bytes() == bytes), (4, true));
        let mut other = params.clone();
        for step in 4..STEPS {
            let grads = grads(&golden, &params, step);
            first.step(&mut params, &grads, LEARNING_RATE);
            restored.step(&mut other, &grads, LEARNING_RATE);
        }
        assert!(params == other, "{name}");
    }
}

#[test]
fn an_unfit_save_changes_nothing() {
    let golden = Golden::open("optim");
    let params = start(&golden);
    let sgd = optimizer("momentum", &params, strict());
    let mut adam = optimizer("adam", &params, strict());
    let message = adam.from_bytes(&sgd.to_bytes()).unwrap_err().to_string();
    for part in ["missing adam.m.wide.weight [6, 20]", "missing adam.v.log_std []", "extra sgd.momentum.tall.bias [33]"]
    {
        assert!(message.contains(part), "{message}");
    }
    let without_steps = params.to_bytes(&Default::default());
    assert!(adam.from_bytes(&without_steps).is_err() && adam.from_bytes(b"").is_err());
    assert_eq!(adam.steps(), 0);
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let golden = Golden::open("optim");
    for name in METHODS {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut params = start(&golden);
            let mut optimizer = optimizer(name, &params, strict());
            let good = grads(&golden, &params, 0);
            optimizer.step(&mut params, &good, LEARNING_RATE);
            let (before, state) = (params.clone(), optimizer.to_bytes());
            for tensor in ["wide.weight", "tall.bias", "log_std"] {
                let mut grads = good.clone();
                grads[params.spec(tensor).unwrap().range().end - 1] = bad;
                let report = optimizer.step(&mut params, &grads, LEARNING_RATE);
                assert!(!report.finite && !report.grad_norm.is_finite());
                assert!(params == before && optimizer.to_bytes() == state, "{name} {bad} in {tensor}");
            }
        }
    }
}

/// Squares that leave the range of f32 are no reason to refuse a gradient.
#[test]
fn huge_gradients_are_clipped() {
    let mut params = Params::new(vec![ParamSpec::new("w", &[40], Init::Zeros)]).unwrap();
    let mut optimizer = Optimizer::new(Method::SGD, &params, Some(1.0), strict()).unwrap();
    let mut grads = vec![0.0; params.len()];
    (grads[0], grads[39]) = (3e30, -4e30);
    let report = optimizer.step(&mut params, &grads, 1.0);
    assert!(report.finite && (report.grad_norm / 5e30 - 1.0).abs() < 1e-6);
    let w = params.get("w").unwrap();
    assert!((w[0] + 0.6).abs() < 1e-6 && (w[39] - 0.8).abs() < 1e-6, "{w:?}");
}

#[test]
fn a_loss_scale_is_taken_out() {
    let golden = Golden::open("optim");
    let (mut plain, mut scaled) = (start(&golden), start(&golden));
    let mut optimizers = [optimizer("adam_clipped", &plain, strict()), optimizer("adam_clipped", &plain, strict())];
    for step in 0..STEPS {
        let mut grads = grads(&golden, &plain, step);
        let report = optimizers[0].step(&mut plain, &grads, LEARNING_RATE);
        grads.iter_mut().for_each(|g| *g *= 1024.0);
        assert_eq!(optimizers[1].step_scaled(&mut scaled, &grads, LEARNING_RATE, 1024.0), report);
    }
    assert!(plain == scaled, "a power of two leaves every bit as it was");
}

/// Means of gradients that no longer come end at 0, not among the slow floats next to it.
#[test]
fn means_fade_to_zero() {
    let golden = Golden::open("optim");
    let sgd = Method::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    for method in [sgd, Method::default(), Method::ADAMW, Method::MUON] {
        let mut params = start(&golden);
        let mut optimizer = Optimizer::new(method, &params, None, strict()).unwrap();
        let first = grads(&golden, &params, 0);
        optimizer.step(&mut params, &first, LEARNING_RATE);
        let zeros = vec![0.0; params.len()];
        (0..1500).for_each(|_| assert!(optimizer.step(&mut params, &zeros, LEARNING_RATE).finite));
        let bytes = optimizer.to_bytes();
        let saved = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        for (tensor, view) in saved.tensors().into_iter().filter(|(tensor, _)| !tensor.starts_with("adam.v")) {
            assert!(view.data().iter().all(|&byte| byte == 0), "{method:?} {tensor}");
        }
    }
}

#[test]
fn mistakes_are_refused() {
    let params = Params::new(vec![ParamSpec::new("w", &[4, 4], Init::Zeros)]).unwrap();
    let refused = |method, limit| Optimizer::new(method, &params, limit, strict()).unwrap_err().to_string();
    assert!(refused(Method::Adam { beta1: 1.0, beta2: 0.9, eps: 1e-8 }, None).contains("beta1 is 1"));
    assert!(refused(Method::Adam { beta1: 0.9, beta2: 0.9, eps: 0.0 }, None).contains("eps is 0"));
    assert!(refused(Method::Sgd { momentum: 0.0, nesterov: true, weight_decay: 0.0 }, None).contains("nesterov"));
    assert!(refused(Method::default(), Some(f32::NAN)).contains("max_grad_norm is NaN"));
    assert!(refused(Method::default(), Some(0.0)).contains("max_grad_norm is 0"));
}

/// Newton–Schulz leaves singular values near 1: for an update U, the mean of ‖U‖² / min(m, n) lies within 0.5 and 1.5, also for
/// sizes with several tiles and gradients of very unequal rows.
#[test]
fn muon_moves_all_directions_alike() {
    for shape in [[40, 100], [100, 40], [64, 64]] {
        let mut params = Params::new(vec![ParamSpec::new("w", &shape, Init::Zeros)]).unwrap();
        let method = Method::Muon {
            momentum: 0.0,
            weight_decay: 0.0,
            scale: MuonScale::Original,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
        };
        let mut optimizer = Optimizer::new(method, &params, None, strict()).unwrap();
        let mut drawn = Params::new(vec![ParamSpec::new("g", &shape, Init::Normal { std: 1.0 })]).unwrap();
        drawn.initialise(5);
        let mut grads = drawn.values().to_vec();
        grads[..shape[1]].iter_mut().for_each(|g| *g *= 30.0);
        optimizer.step(&mut params, &grads, 1.0);
        let squares: f64 = params.values().iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let scale = (shape[0] as f64 / shape[1] as f64).max(1.0);
        let mean = squares / scale / shape[0].min(shape[1]) as f64;
        assert!((0.5..1.5).contains(&mean), "{shape:?}: {mean}");
        let first: f64 = params.values()[..shape[1]].iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        assert!(first / squares < 3.0 / shape[0] as f64, "the large row does not rule: {first} of {squares}");
    }
}

/// Large tensors are shared among threads in chunks that do not depend on their number.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for name in ["momentum", "adam", "adamw", "muon_original"] {
        let specs = [("a.weight", vec![300, 200]), ("a.bias", vec![70_000]), ("b.weight", vec![5, 9])];
        let mut params =
            Params::new(specs.iter().map(|(name, shape)| ParamSpec::new(*name, shape, Init::Zeros)).collect()).unwrap();
        params.initialise(0);
        let run = |threads: Option<usize>| {
            let mut params = params.clone();
            let mut optimizer = Optimizer::new(method(name), &params, Some(0.5), Backend::fast()).unwrap();
            if let Some(threads) = threads {
                optimizer = optimizer.on(&std::sync::Arc::new(CpuPool::new(threads)));
            }
            for step in 0..3 {
                let mut grads = vec![0.0; params.len()];
                for spec in params.specs() {
                    let value = |i: usize| ((i * 7 + step * 31) % 101) as f32 / 50.0 - 1.0;
                    grads[spec.range()].iter_mut().enumerate().for_each(|(i, to)| *to = value(spec.offset + i));
                }
                assert!(optimizer.step(&mut params, &grads, LEARNING_RATE).finite);
            }
            params.values().to_vec()
        };
        let alone = run(None);
        assert!(alone.iter().any(|x| *x != 0.0));
        for threads in [1, 2, 3, 4] {
            assert!(run(Some(threads)) == alone, "{name}: other bits on {threads} threads");
        }
    }
}
