//! Neural operators on fields: even parameters, every one of which acts; noise with its law and spectrum; rollouts that do not
//! depend on their batch; first fields with their spectrum; features equal to their NumPy twins.

mod field_twins;

use operant_base::config;
use operant_device::{CpuPool, cpu_seconds};
use operant_field::features::{self, Describer, FRAME_LEN};
use operant_field::fft::{Complex, Fft, frequency};
use operant_field::initial::{KINDS, Kind, Shape};
use operant_field::{
    Afno, After, Architecture, Map, NAMES, Norm, Operator, Rollout, Schedule, Space, UAFNO_NAMES, Update,
};
use operant_field::{Evenness, Sobol};
use operant_nn::ops::{KeyedNoise, NoiseLaw};
use operant_nn::{Act, Feed, Graph, Options, Plan, Precision};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

fn golden(key: &str) -> Vec<f64> {
    let all: Value = serde_json::from_str(include_str!("golden/field.json")).unwrap();
    match &all[key] {
        Value::Array(values) => values.iter().map(|x| x.as_f64().unwrap()).collect(),
        value => vec![value.as_f64().unwrap()],
    }
}

#[test]
fn sobol_points_are_those_of_scipy() {
    let points = Sobol::plain(20).unwrap().points(64);
    assert_eq!(points, golden("sobol"));
    let points = Sobol::plain(14).unwrap().points(256);
    let got = Evenness::of(&points, 14).centred_discrepancy;
    assert!((got - golden("discrepancy")[0]).abs() < 1e-12, "{got}");
    assert!(Sobol::plain(0).is_err() && Sobol::plain(21).is_err());
}

#[test]
fn scrambled_points_are_even_and_follow_their_seed() {
    let start = cpu_seconds();
    let points = Sobol::scrambled(14, 7).unwrap().points(10_000);
    assert!(cpu_seconds() - start < 2.0);
    let evenness = Evenness::of(&points, 14);
    assert!(evenness.holds(), "{evenness:?}");
    // Points on a line are as uneven as it gets, and are found.
    let line: Vec<f64> = (0..1000).flat_map(|i| [f64::from(i) / 1000.0; 14]).collect();
    assert!(!Evenness::of(&line, 14).holds());
    let other = Sobol::scrambled(14, 8).unwrap().points(256);
    assert!(points[..256 * 14].iter().zip(&other).filter(|(a, b)| a == b).count() < 3);
    // Every interval of length 1/256 holds one of the first 256 points, in every dimension, for every seed.
    for dimension in 0..14 {
        let mut cells: Vec<usize> = other.iter().skip(dimension).step_by(14).map(|x| (x * 256.0) as usize).collect();
        cells.sort_unstable();
        assert_eq!(cells, (0..256).collect::<Vec<_>>(), "dimension {dimension}");
    }
}

#[test]
fn units_become_values_within_their_ranges() {
    let space = Space::default();
    assert_eq!(space.parameters.len(), 14);
    for parameter in &space.parameters {
        let values: Vec<f64> = (0..2000).map(|i| parameter.map.value((f64::from(i) + 0.5) / 2000.0)).collect();
        let (low, high) = (values[0], values[1999]);
        assert!(values.is_sorted(), "{}", parameter.name);
        match &parameter.map {
            Map::Integer { low: l, high: h } => {
                assert_eq!((low, high), (*l as f64, *h as f64));
                let first = values.iter().filter(|&&x| x == low).count() as f64 / 2000.0;
                assert!((first - 1.0 / (h - l + 1) as f64).abs() < 1e-3, "{}: {first}", parameter.name);
            }
            Map::Choice(words) => {
                let total: f64 = words.iter().map(|(_, weight)| weight).sum();
                for (place, (word, weight)) in words.iter().enumerate() {
                    let share = values.iter().filter(|&&x| x as usize == place).count() as f64 / 2000.0;
                    assert!((share - weight / total).abs() < 1e-3, "{word}: {share}");
                }
            }
            Map::Log { low: l, high: h } => {
                assert!((low / l - 1.0).abs() < 0.01 && (high / h - 1.0).abs() < 0.01);
                assert!((values[1000] / (l * h).sqrt() - 1.0).abs() < 0.01);
            }
            Map::Linear { low: l, high: h } => assert!((low - l).abs() < 1e-3 && (high - h).abs() < 1e-3),
            Map::ZeroOr { chance, high: h, .. } => {
                assert!((values.iter().filter(|&&x| x == 0.0).count() as f64 / 2000.0 - chance).abs() < 1e-3);
                assert!((high - h).abs() < 1e-3);
            }
        }
    }
    let narrowed = |text: &str| Space::default().narrowed(&config::parse(text, "test").unwrap(), "space");
    let space =
        narrowed("layers = 3\nnoise_scale = [0.1, 0.2]\nnorm = [\"group\"]\ngrid = [16, 32]\npolicy = { convex = 1 }")
            .unwrap();
    let values = space.values(&[0.999; 14]);
    let (operator, update) = space.operator(&values, 2);
    assert_eq!((operator.layers, operator.norm, operator.grid), (3, Norm::Group, 32));
    assert!(matches!(update, Update::Convex { alpha } if (alpha - 0.949).abs() < 1e-3));
    let message = |text: &str| narrowed(text).unwrap_err().to_string();
    assert_eq!(message("layer = 3"), "unknown key \"space.layer\"; did you mean \"space.layers\"?");
    assert!(message("layers = [2, 9]").contains("within 2..=5"));
    assert!(message("norm = \"grop\"").contains("did you mean \"group\"?"));
    assert!(message("grid = 48").contains("power of two"));
}

fn operator() -> Operator {
    Operator {
        channels: 2,
        grid: 16,
        layers: 2,
        base_channels: 16,
        kernel: 3,
        flat: false,
        activation: Act::Gelu,
        dropout: 0.1,
        noise: NoiseLaw::Gaussian,
        noise_scale: 0.3,
        schedule: Schedule::Constant,
        correlation: 0.1,
        norm: Norm::Instance,
        afno: None,
    }
}

fn first(operator: &Operator) -> Vec<f32> {
    let shape = Shape { grid: operator.grid, channels: operator.channels, length: 0.05, variance: 1.0 };
    KINDS[0].field(shape, 3)
}

fn build(operator: &Operator, update: Update, realisations: std::ops::Range<u32>, options: &Options) -> Rollout {
    Rollout::new(operator, update, After::default(), 9, realisations, 50, &first(operator), options).unwrap()
}

fn rolled(operator: &Operator, update: Update, steps: u32) -> Vec<f32> {
    let mut rollout = build(operator, update, 0..2, &Options::default());
    (0..steps).for_each(|_| rollout.step());
    rollout.state().to_vec()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    let (mut apart, mut size) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        apart += f64::from(a - b).powi(2);
        size += f64::from(*b).powi(2);
    }
    (apart / size).sqrt()
}

/// Each parameter of the space, changed alone, changes the field; and the same parameters give the same bits.
#[test]
fn every_parameter_acts() {
    let convex = Update::Convex { alpha: 0.3 };
    let base = operator();
    let wanted = rolled(&base, convex, 3);
    assert_eq!(rolled(&base, convex, 3), wanted);
    let mut seen = vec!["policy", "alpha", "dt", "grid"];
    let mut acts = |name: &'static str, changed: Operator| {
        let got = rolled(&changed, convex, 3);
        assert!(got.iter().all(|x| x.is_finite()) && distance(&got, &wanted) > 1e-3, "{name} does not act");
        seen.push(name);
    };
    acts("layers", Operator { layers: 3, ..base.clone() });
    acts("layers", Operator { layers: 4, ..base.clone() });
    acts("base_channels", Operator { base_channels: 20, ..base.clone() });
    acts("kernel", Operator { kernel: 5, ..base.clone() });
    for activation in [Act::Relu, Act::Silu, Act::Tanh, Act::Sigmoid] {
        acts("activation", Operator { activation, ..base.clone() });
    }
    acts("dropout", Operator { dropout: 0.0, ..base.clone() });
    acts("dropout", Operator { dropout: 0.12, ..base.clone() });
    for noise in [NoiseLaw::Laplace, NoiseLaw::Drop, NoiseLaw::Multiplicative] {
        acts("noise", Operator { noise, ..base.clone() });
    }
    acts("noise_scale", Operator { noise_scale: 0.35, ..base.clone() });
    for schedule in [Schedule::Annealing, Schedule::Periodic] {
        acts("schedule", Operator { schedule, ..base.clone() });
    }
    for norm in [Norm::Batch, Norm::Group, Norm::Layer, Norm::None] {
        acts("norm", Operator { norm, ..base.clone() });
    }
    // Scale, schedule and correlation act whatever the noise is.
    for noise in NoiseLaw::ALL {
        let plain = Operator { noise, ..base.clone() };
        for (what, changed) in [
            ("correlation", Operator { correlation: 0.0, ..plain.clone() }),
            ("correlation", Operator { correlation: 0.2, ..plain.clone() }),
            ("noise_scale", Operator { noise_scale: 0.1, ..plain.clone() }),
            ("schedule", Operator { schedule: Schedule::Annealing, noise_scale: 0.3, ..plain.clone() }),
        ] {
            // Annealing takes 1/50 a step: of dropout only few numbers change sides.
            let least = if what == "schedule" { 1e-5 } else { 1e-3 };
            let apart = distance(&rolled(&changed, convex, 8), &rolled(&plain, convex, 8));
            assert!(apart > least, "{what} does not act on {noise:?}: {apart}");
        }
    }
    acts("correlation", Operator { correlation: 0.15, ..base.clone() });
    let of = |update| rolled(&base, update, 3);
    let updates = [
        Update::Autoregressive,
        Update::Residual { dt: 0.1 },
        Update::Residual { dt: 0.12 },
        convex,
        Update::Convex { alpha: 0.33 },
    ];
    for (i, a) in updates.iter().enumerate() {
        for b in &updates[..i] {
            assert!(distance(&of(*a), &of(*b)) > 1e-3, "{a:?} and {b:?}");
        }
    }
    assert_eq!(of(Update::Convex { alpha: 0.0 }), of(Update::Autoregressive));
    assert_eq!(rolled(&Operator { grid: 32, ..base.clone() }, convex, 1).len(), 2 * 32 * 32 * 2);
    assert!(NAMES.iter().all(|name| seen.contains(name)), "{seen:?}");
}

#[test]
fn steps_are_their_formulas() {
    let operator = operator();
    let x = [first(&operator), first(&operator)].concat();
    for update in [Update::Autoregressive, Update::Residual { dt: 0.25 }, Update::Convex { alpha: 0.75 }] {
        let mut rollout = build(&operator, update, 0..2, &Options::default());
        let o = rollout.apply(&x).to_vec();
        rollout.step();
        for ((got, x), o) in rollout.state().iter().zip(&x).zip(&o) {
            let wanted = match update {
                Update::Autoregressive => *o,
                Update::Residual { dt } => x + dt * o,
                Update::Convex { alpha } => alpha * x + (1.0 - alpha) * o,
            };
            assert!((got - wanted).abs() < 1e-6);
        }
    }
    let scale = |schedule: Schedule, t| schedule.scale(2.0, t, 10);
    assert_eq!([0, 5, 10].map(|t| scale(Schedule::Annealing, t)), [2.0, 1.0, 0.0]);
    assert!((scale(Schedule::Periodic, 25) - 3.0).abs() < 1e-6 && (scale(Schedule::Periodic, 75) - 1.0).abs() < 1e-6);
    assert_eq!(scale(Schedule::Constant, 7), 2.0);
    let after = After { normalise: true, clamp: 0.5 };
    let build =
        || Rollout::new(&operator, Update::Autoregressive, after, 9, 0..1, 50, &x[..x.len() / 2], &Options::default());
    let mut rollout = build().unwrap();
    rollout.step();
    let most = rollout.state().iter().fold(0.0f32, |most, x| most.max(x.abs()));
    assert_eq!(most, 0.5);
}

/// Realisations together, apart and in other company, on one thread and on two, in every norm and precision.
#[test]
fn batches_do_not_matter() {
    for (norm, precision, layers) in
        [(Norm::Instance, Precision::F32, 2), (Norm::Batch, Precision::F32, 4), (Norm::Group, Precision::Bf16, 2)]
    {
        let operator = Operator { norm, layers, ..operator() };
        let update = Update::Convex { alpha: 0.2 };
        let states = |cuts: &[u32], threads: usize| {
            let options = Options { pool: Arc::new(CpuPool::new(threads)), precision, ..Options::default() };
            let mut all = Vec::new();
            for cut in cuts.windows(2) {
                let mut rollout = build(&operator, update, cut[0]..cut[1], &options);
                (0..4).for_each(|_| rollout.step());
                all.extend_from_slice(rollout.state());
            }
            all
        };
        let wanted = states(&[0, 6], 1);
        let len = operator.field_len();
        assert_ne!(wanted[..len], wanted[len..2 * len], "realisations are alike");
        assert_eq!(states(&[0, 1, 3, 6], 1), wanted, "{norm:?}");
        assert_eq!(states(&[0, 6], 2), wanted, "{norm:?}");
        assert_eq!(states(&[4, 6], 1), wanted[4 * len..], "{norm:?}");
    }
}

/// Rounding to bf16 stays small over a residual trajectory; and one step is near whatever the policy.
#[test]
fn half_precision_follows_single() {
    let operator = Operator { noise_scale: 0.01, dropout: 0.0, base_channels: 32, ..operator() };
    for (update, steps) in [(Update::Residual { dt: 0.01 }, 100), (Update::Autoregressive, 1)] {
        let run = |precision| {
            let mut rollout = build(&operator, update, 0..1, &Options { precision, ..Options::default() });
            (0..steps).for_each(|_| rollout.step());
            rollout.state().to_vec()
        };
        let exact = run(Precision::F32);
        for (precision, tolerance) in [(Precision::Bf16, 2e-2), (Precision::F16, 2e-3)] {
            let error = distance(&run(precision), &exact);
            assert!(error < tolerance, "{update:?} {precision:?}: {error}");
        }
    }
}

fn uafno() -> Operator {
    let afno = Some(Afno { levels: 1, blocks: 2, modes: 0.5 });
    Operator { layers: 1, base_channels: 20, afno, ..operator() }
}

/// What a U-AFNO has beyond a convolutional operator acts, and so does the rest; a batch does not.
#[test]
fn every_parameter_of_a_uafno_acts() {
    let (base, convex) = (uafno(), Update::Convex { alpha: 0.3 });
    let wanted = rolled(&base, convex, 3);
    assert_eq!(rolled(&base, convex, 3), wanted);
    let afno = base.afno.unwrap();
    let with = |afno: Afno| Operator { afno: Some(afno), ..base.clone() };
    for (name, changed) in [
        ("levels", with(Afno { levels: 2, ..afno })),
        ("blocks", with(Afno { blocks: 1, ..afno })),
        ("modes", with(Afno { modes: 0.75, ..afno })),
        ("modes", with(Afno { modes: 0.25, ..afno })),
        ("layers", Operator { layers: 2, ..base.clone() }),
        ("base_channels", Operator { base_channels: 16, ..base.clone() }),
        ("kernel", Operator { kernel: 5, ..base.clone() }),
        ("activation", Operator { activation: Act::Tanh, ..base.clone() }),
        ("dropout", Operator { dropout: 0.0, ..base.clone() }),
        ("noise", Operator { noise: NoiseLaw::Laplace, ..base.clone() }),
        ("noise_scale", Operator { noise_scale: 0.35, ..base.clone() }),
        ("correlation", Operator { correlation: 0.0, ..base.clone() }),
        ("norm", Operator { norm: Norm::Batch, ..base.clone() }),
        ("norm", Operator { norm: Norm::None, ..base.clone() }),
    ] {
        let got = rolled(&changed, convex, 3);
        assert!(got.iter().all(|x| x.is_finite()) && distance(&got, &wanted) > 1e-3, "{name} does not act");
    }
    let later = |schedule| rolled(&Operator { schedule, ..base.clone() }, convex, 8);
    assert!(distance(&later(Schedule::Annealing), &later(Schedule::Constant)) > 1e-5);
    let states = |cuts: &[u32], threads: usize| {
        let options = Options { pool: Arc::new(CpuPool::new(threads)), ..Options::default() };
        let one = |cut: &[u32]| {
            let mut rollout = build(&base, convex, cut[0]..cut[1], &options);
            (0..3).for_each(|_| rollout.step());
            rollout.state().to_vec()
        };
        cuts.windows(2).flat_map(one).collect::<Vec<f32>>()
    };
    let together = states(&[0, 6], 1);
    assert_eq!(states(&[0, 1, 3, 6], 1), together);
    assert_eq!(states(&[0, 6], 2), together);
    assert_eq!(together[..wanted.len()], wanted);
    let space = Space::of(Architecture::Uafno);
    let names: Vec<&str> = space.parameters.iter().map(|parameter| parameter.name).collect();
    assert_eq!(names, [&NAMES[..], &UAFNO_NAMES].concat());
    let (sampled, _) = space.operator(&space.values(&[0.999; 17]), 2);
    assert_eq!(sampled.afno.map(|afno| (afno.levels, afno.blocks)), Some((3, 4)));
    let narrowed = |text: &str| space.narrowed(&config::parse(text, "test").unwrap(), "space");
    let message = narrowed("grid = [16, 64]").unwrap_err().to_string();
    assert!(message.contains("a grid of 16 halved 3 times leaves 2 pixels: wanted 7"), "{message}");
    assert!(narrowed("grid = 16\nlevels = 1\nkernel = 3").is_ok());
    let widest = Operator { base_channels: 64, grid: 64, ..with(Afno { levels: 3, blocks: 1, modes: 1.0 }) };
    assert!(widest.network().is_ok());
    let short = with(Afno { levels: 3, ..afno });
    assert!(short.network().unwrap_err().to_string().contains("U-AFNO"));
}

/// The innermost frequencies are mixed up to `modes`, of both signs, and none is dropped: waves of every kind come out moved.
#[test]
fn a_uafno_lets_every_frequency_through() {
    let quiet = Operator { dropout: 0.0, noise_scale: 0.0, norm: Norm::None, activation: Act::Gelu, ..uafno() };
    let quiet = Operator { afno: Some(Afno { levels: 1, blocks: 1, modes: 1.0 }), ..quiet };
    let n = quiet.grid;
    let of = |fields: &[f32]| {
        let mut rollout = build(&quiet, Update::Autoregressive, 0..1, &Options::default());
        rollout.apply(fields).to_vec()
    };
    let still = vec![0.0; n * n * 2];
    let plain = of(&still);
    for (down, across) in [(1, 0), (0, 1), (1, 1), (1, -1), (4, 3), (3, -4), (-2, 2), (7, 1), (0, 8)] {
        let wave = |i: usize| {
            let (y, x) = ((i / 2 / n) as f64, (i / 2 % n) as f64);
            (std::f64::consts::TAU * (f64::from(down) * y + f64::from(across) * x) / n as f64).cos() as f32 * 0.1
        };
        let moved = of(&(0..n * n * 2).map(wave).collect::<Vec<f32>>());
        assert!(distance(&moved, &plain) > 1e-4, "({down}, {across}) makes no difference");
    }
    assert_eq!(quiet.afno.unwrap().frequencies(16), [4, 5]);
    assert_eq!(Afno { levels: 1, blocks: 1, modes: 0.01 }.frequencies(256), [1, 2]);
    assert_eq!(Afno { levels: 1, blocks: 1, modes: 1.0 }.frequencies(256), [16, 17]);
}

#[test]
fn work_is_counted_as_plans_count_it() {
    for levels in [1, 2] {
        let afno = Some(Afno { levels, blocks: 3, modes: 0.6 });
        let operator = Operator { layers: 2, base_channels: 20, afno, ..operator() };
        let rollout = build(&operator, Update::Autoregressive, 0..1, &Options::default());
        assert_eq!(operator.flops(), rollout.flops());
    }
    for (layers, flat, correlation) in [(2, false, 0.0), (4, false, 0.2), (4, true, 0.05)] {
        let operator = Operator { layers, flat, correlation, ..operator() };
        let rollout = build(&operator, Update::Autoregressive, 0..1, &Options::default());
        assert_eq!(operator.flops(), rollout.flops());
    }
    // The operators that are measured.
    let measured = Operator { channels: 3, grid: 128, layers: 4, base_channels: 64, correlation: 0.0, ..operator() };
    assert!((measured.flops() as f64 * 1e-9 - 78.7).abs() < 0.1);
    assert!((Operator { flat: true, ..measured }.flops() as f64 * 1e-9 - 4.9).abs() < 0.01);
}

/// Noise of `rows` rows on a field of ones: `[rows, n, n, c]`.
fn noise(law: NoiseLaw, n: usize, c: usize, length: f32, scale: f32, rows: usize) -> Vec<f32> {
    let mut g = Graph::new();
    let (x, keys, s) = (g.input("x", [n, n, c]), g.input_ints("keys", [4]), g.input("s", [1]));
    let y = g.keyed_noise(x, keys, s, KeyedNoise::new(law, 1, [n, n], length)).unwrap();
    let params = g.params(0).unwrap();
    let mut plan = Plan::inference(&g, &[y], rows, &Options::default()).unwrap();
    let keys: Vec<i32> = (0..rows as i32).flat_map(|m| [5, 6, m, 7]).collect();
    let (x, s) = (vec![1.0; rows * n * n * c], vec![scale; rows]);
    plan.forward(&params, rows, &[Feed::Real(&x), Feed::Ints(&keys), Feed::Real(&s)]);
    plan.output(y).to_vec()
}

fn moments(x: impl Iterator<Item = f64> + Clone) -> (f64, f64, f64) {
    let n = x.clone().count() as f64;
    let mean = x.clone().sum::<f64>() / n;
    let m = |p: i32| x.clone().map(|x| (x - mean).powi(p)).sum::<f64>() / n;
    (mean, m(2), m(4) / m(2).powi(2))
}

#[test]
fn noise_has_its_law() {
    let of = |law, length, scale| noise(law, 32, 4, length, scale, 50);
    let values = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    // 204,800 numbers: standard errors of the variance are below 0.4 % (white) and 1.1 % (Laplace).
    let (mean, variance, kurtosis) = moments(values(&of(NoiseLaw::Gaussian, 0.0, 0.5)).into_iter());
    assert!((mean - 1.0).abs() < 0.01 && (variance - 0.25).abs() < 0.005 && (kurtosis - 3.0).abs() < 0.1);
    for length in [0.0, 1.0] {
        let (mean, variance, kurtosis) = moments(values(&of(NoiseLaw::Laplace, length, 0.5)).into_iter());
        assert!((mean - 1.0).abs() < 0.02 && (variance - 0.5).abs() < 0.03, "{length}: {mean} {variance}");
        assert!((kurtosis - 6.0).abs() < 0.6, "{length}: {kurtosis}");
    }
    let (mean, variance, _) = moments(values(&of(NoiseLaw::Multiplicative, 0.0, 0.5)).into_iter());
    assert!((mean - 1.0).abs() < 0.01 && (variance - 0.25).abs() < 0.005);
    // Whole channels: 200 of them, a quarter dropped, within four standard errors.
    let dropped = of(NoiseLaw::Drop, 0.0, 0.25);
    let mut channels = 0;
    for image in dropped.chunks_exact(32 * 32 * 4) {
        for c in 0..4 {
            let zeros = image.iter().skip(c).step_by(4).filter(|&&x| x == 0.0).count();
            assert!(zeros == 0 || zeros == 32 * 32);
            channels += usize::from(zeros > 0);
            assert!(image.iter().skip(c).step_by(4).all(|&x| x == 0.0 || (x - 4.0 / 3.0).abs() < 1e-6));
        }
    }
    assert!((channels as f64 - 50.0).abs() < 4.0 * 6.2, "{channels} of 200 channels");
    // Patches: the same share of pixels, in connected regions.
    let patches = of(NoiseLaw::Drop, 1.5, 0.25);
    let share = patches.iter().filter(|&&x| x == 0.0).count() as f64 / patches.len() as f64;
    assert!((share - 0.25).abs() < 0.02, "{share}");
    let alike = patches.chunks_exact(32 * 4).flat_map(|row| row.windows(5).map(|w| (w[0] == 0.0) == (w[4] == 0.0)));
    let alike = alike.clone().filter(|&same| same).count() as f64 / alike.count() as f64;
    assert!(alike > 0.75, "neighbours agree in {alike}; independent ones in 0.625");
}

#[test]
fn keyed_dropout_keeps_the_mean_and_drops_its_share() {
    let (n, rows) = (1024, 40);
    for p in [0.25f32, 0.9] {
        let mut g = Graph::new();
        let (x, keys) = (g.input("x", [n]), g.input_ints("keys", [4]));
        let y = g.keyed_dropout(x, keys, p, 3).unwrap();
        let params = g.params(0).unwrap();
        let mut plan = Plan::inference(&g, &[y], rows, &Options::default()).unwrap();
        let keys: Vec<i32> = (0..rows as i32).flat_map(|m| [5, 6, m, 7]).collect();
        let ones = vec![1.0; rows * n];
        plan.forward(&params, rows, &[Feed::Real(&ones), Feed::Ints(&keys)]);
        let kept = 1.0 / (1.0 - p);
        assert!(plan.output(y).iter().all(|&y| y == 0.0 || (y / kept - 1.0).abs() < 1e-4));
        // Four standard errors of the share of 40,960 numbers.
        let zeros = plan.output(y).iter().filter(|&&y| y == 0.0).count() as f32 / (rows * n) as f32;
        assert!((zeros - p).abs() < 4.0 * (p * (1.0 - p) / (rows * n) as f32).sqrt(), "{zeros}, wanted {p}");
    }
}

/// Power by wave number, averaged over planes `[n, n]`, as a share of all.
fn spectrum(planes: impl Iterator<Item = Vec<f64>>, n: usize) -> Vec<f64> {
    let mut sum = vec![0.0; n * n];
    let mut fft = Fft::new(n);
    for plane in planes {
        let mut x: Vec<Complex> = plane.into_iter().map(|x| [x, 0.0]).collect();
        fft.forward_square(&mut x);
        sum.iter_mut().zip(x).for_each(|(sum, [re, im])| *sum += re * re + im * im);
    }
    let total: f64 = sum.iter().sum();
    sum.iter().map(|x| x / total).collect()
}

/// Powers of low modes against exp(−k²l²), l in pixels.
fn assert_gaussian_spectrum(power: &[f64], n: usize, length: f64, with_mean: bool, tolerance: f64) {
    let k2 = |i: usize| {
        let (u, v) = (frequency(i / n, n), frequency(i % n, n));
        (std::f64::consts::TAU / n as f64).powi(2) * (u * u + v * v)
    };
    let wanted = |i: usize| if i == 0 && !with_mean { 0.0 } else { (-k2(i) * length * length).exp() };
    let total: f64 = (0..n * n).map(wanted).sum();
    // Rings of modes with the same |k|², so that few draws suffice.
    let mut rings: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (i, power) in power.iter().enumerate() {
        let ring = rings.entry((k2(i) * 1e9) as u64).or_default();
        *ring = (ring.0 + power, ring.1 + wanted(i) / total);
    }
    for (k, (got, wanted)) in rings.into_iter().filter(|(_, (_, wanted))| *wanted > 0.01) {
        assert!((got / wanted - 1.0).abs() < tolerance, "k² {k}: {got} for {wanted}");
    }
}

/// Drawn behind the 1×1 convolution, noise has the covariance that noise before it would have: s²·WWᵀ, also where W has dependent rows.
#[test]
fn noise_behind_a_product_has_the_law_of_noise_before_it() {
    let (n, c, rows, scale) = (32, 3, 50, 0.5f32);
    let weight = [0.6f32, -0.2, 0.9, 0.1, 0.3, 0.5, -0.4, 0.8, 1.2, -0.4, 1.8, 0.2];
    for length in [0.0, 1.0] {
        let mut g = Graph::new();
        let (x, keys, s) = (g.input("x", [n, n, c]), g.input_ints("keys", [4]), g.input("s", [1]));
        let w = g.input_whole("w", [c, 4]);
        let noise = KeyedNoise::new(NoiseLaw::Gaussian, 1, [n, n], length);
        let y = g.mixed_noise(x, keys, s, w, noise).unwrap();
        let params = g.params(0).unwrap();
        let mut plan = Plan::inference(&g, &[y], rows, &Options::default()).unwrap();
        let keys: Vec<i32> = (0..rows as i32).flat_map(|m| [5, 6, m, 7]).collect();
        let (x, s) = (vec![1.0; rows * n * n * c], vec![scale; rows]);
        let feeds = [Feed::Real(&x), Feed::Ints(&keys), Feed::Real(&s), Feed::Real(&weight)];
        plan.forward(&params, rows, &feeds);
        let pixels = plan.output(y).chunks_exact(c);
        let count = pixels.len() as f64;
        for (i, j) in [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)] {
            let product = |a: usize, b: usize| -> f64 {
                weight[a * 4..][..4].iter().zip(&weight[b * 4..][..4]).map(|(a, b)| f64::from(a * b)).sum()
            };
            let part = |x: f32| f64::from(x) - 1.0;
            let got = pixels.clone().map(|pixel| part(pixel[i]) * part(pixel[j])).sum::<f64>() / count;
            let wanted = f64::from(scale * scale) * product(i, j);
            // 51,200 pixels, an eighth of them independent at length 1: a standard error is 0.6 or 1.8 % of the variances.
            let slack = 0.25 * 0.08 * (product(i, i) * product(j, j)).sqrt();
            assert!((got - wanted).abs() < slack, "{length}, channels {i} and {j}: {got}, wanted {wanted}");
        }
    }
}

#[test]
fn correlated_noise_has_its_spectrum_and_unit_variance() {
    let (n, c, rows) = (32, 4, 200);
    for length in [0.7, 2.0, 6.0] {
        let x = noise(NoiseLaw::Gaussian, n, c, length, 1.0, rows);
        let (mean, variance, _) = moments(x.iter().map(|&x| f64::from(x)));
        // Of long correlations there are few independent numbers.
        let slack = 0.02 + 0.02 * f64::from(length);
        assert!((mean - 1.0).abs() < slack && (variance - 1.0).abs() < slack, "{length}: {mean} {variance}");
        let plane = |i: usize| {
            let image = &x[i / c * n * n * c..][..n * n * c];
            image.iter().skip(i % c).step_by(c).map(|&x| f64::from(x) - 1.0).collect()
        };
        let power = spectrum((0..rows * c).map(plane), n);
        assert_gaussian_spectrum(&power, n, f64::from(length), true, 0.2);
    }
}

#[test]
fn random_fields_have_the_length_scale_and_variance_asked_for() {
    let n = 64;
    for (length, variance) in [(0.03, 1.0), (0.08, 4.0)] {
        let shape = Shape { grid: n, channels: 4, length, variance };
        let fields: Vec<Vec<f32>> = (0..60).map(|key| KINDS[0].field(shape, key)).collect();
        let (mean, got, _) = moments(fields.iter().flatten().map(|&x| f64::from(x)));
        assert!(mean.abs() < 1e-5 && (got / variance - 1.0).abs() < 0.06, "{mean} {got}");
        let plane = |i: usize| fields[i / 4].iter().skip(i % 4).step_by(4).map(|&x| f64::from(x)).collect();
        let power = spectrum((0..240).map(plane), n);
        assert_gaussian_spectrum(&power, n, length * n as f64, false, 0.3);
    }
}

#[test]
fn first_fields_are_drawn_by_their_key() {
    let shape = Shape { grid: 32, channels: 2, length: 0.05, variance: 1.0 };
    let fields: Vec<Vec<f32>> = KINDS.iter().map(|kind| kind.field(shape, 5)).collect();
    for (i, (kind, field)) in KINDS.iter().zip(&fields).enumerate() {
        assert!(field.iter().all(|x| x.is_finite()), "{}", kind.name);
        for c in 0..2 {
            let (mean, variance, _) = moments(field.iter().skip(c).step_by(2).map(|&x| f64::from(x)));
            let wanted = if i == 0 { 0.5..2.0 } else { 0.999..1.001 };
            assert!(mean.abs() < 1e-3 && wanted.contains(&variance), "{}: {mean} {variance}", kind.name);
        }
        assert_eq!(&kind.field(shape, 5), field, "{}", kind.name);
        assert!(distance(&kind.field(shape, 6), field) > 0.1, "{} does not follow its key", kind.name);
        for (other, earlier) in KINDS.iter().zip(&fields[..i]) {
            assert!(distance(field, earlier) > 0.05, "{} is {}", kind.name, other.name);
        }
    }
    let mixture = [(0, 3.0), (2, 1.0), (4, 0.0)];
    let drawn: Vec<usize> = (0..4000).map(|key| Kind::of_mixture(&mixture, key)).collect();
    let share = drawn.iter().filter(|&&kind| kind == 0).count() as f64 / 4000.0;
    assert!((share - 0.75).abs() < 0.03 && !drawn.contains(&4), "{share}");
}

#[test]
fn features_of_what_stands_still_are_finite() {
    let (mut describer, mut frame) = (Describer::new(32, 3), vec![0.0; FRAME_LEN]);
    describer.frame(&vec![2.5; 32 * 32 * 3], &mut frame);
    assert!(frame.iter().all(|x| x.is_finite()), "{frame:?}");
    for steps in [1, 8, 20, 30] {
        let still = vec![[2.0, 0.0, 1.0, 0.0, 2.0]; steps];
        assert!(features::trajectory(&still, &[frame.clone()]).iter().all(|x| x.is_finite()), "{steps} steps");
    }
    let counts = features::FAMILIES.map(|family| (family.name, family.features.len()));
    let wanted = [("spatial", 34), ("spectral", 31), ("cross", 12), ("temporal", 44), ("nonlinear", 8)];
    assert_eq!(counts, [&wanted[..], &[("causality", 15), ("drift", 20), ("sensitivity", 12)]].concat()[..]);
    let [mean, std, range] = features::aggregate(&[vec![1.0, 5.0], vec![3.0, 5.0]]);
    assert_eq!((mean, std, range), (vec![2.0, 5.0], vec![1.0, 0.0], vec![2.0, 0.0]));
}

/// Series whose causes are known: entropy that repeats energy two steps later, and a saw that rises slowly and falls at once.
#[test]
fn causality_of_known_series() {
    let of = |energy: &dyn Fn(usize) -> f64| {
        let row = |t: usize| [energy(t + 3), energy(t + 1), 0.5 + 0.1 * energy(7 * t), 1.0, 1.0];
        let all = features::trajectory(&(0..300).map(row).collect::<Vec<_>>(), &[vec![0.0; FRAME_LEN]]);
        let names = features::names();
        move |name: &str| all[names.iter().position(|other| other == name).unwrap() - FRAME_LEN]
    };
    let drawn = of(&|t| f64::from((t as u32).wrapping_mul(747_796_405).wrapping_mul((t * t) as u32 | 1) >> 8) / 1e7);
    assert_eq!(drawn("causality.energy_entropy_lead"), 2.0);
    let (forth, back) = (drawn("causality.energy_to_entropy"), drawn("causality.entropy_to_energy"));
    assert!(forth > 20.0 && back < 0.1, "{forth} and {back}");
    assert!(drawn("causality.ordinal_irreversibility") < 0.02, "{}", drawn("causality.ordinal_irreversibility"));
    let saw = of(&|t| (t % 7) as f64);
    assert!((saw("causality.rises") - 5.0 / 7.0).abs() < 0.02, "{}", saw("causality.rises"));
    assert!(saw("causality.ordinal_irreversibility") > 0.3 && saw("causality.reversal1").abs() > 0.01);
    // The logistic map parts what is near at ln 2 a step.
    let chaotic: Vec<f64> = std::iter::successors(Some(0.37), |x| Some(4.0 * x * (1.0 - x))).take(400).collect();
    let exponent = of(&|t| chaotic[t % 400])("temporal.lyapunov");
    assert!((0.3..0.9).contains(&exponent), "{exponent}");
}

/// Operators whose answers are known: three times a field, a square, a shift of the mean.
#[test]
fn sensitivity_of_known_operators() {
    let x = first(&operator());
    let of = |apply: &mut dyn FnMut(&[f32]) -> Vec<f32>| features::sensitivity(apply, &x, 16, 2, 4).remove(0);
    let linear = of(&mut |x| x.iter().map(|x| 3.0 * x).collect());
    for (i, got) in linear[..8].iter().enumerate() {
        assert!((got - 3.0).abs() < 2e-3, "gain {i} is {got}");
    }
    assert!(linear[8..11].iter().all(|got| got.abs() < 1e-4) && (linear[11] - 3.0).abs() < 1e-5, "{linear:?}");
    let square = of(&mut |x| x.iter().map(|x| x * x).collect());
    // (2x)² − 2x² = 2x² of 4x²; (x + c)² − x² = 2cx + c², of size 2c|x|.
    assert!((square[9] - 0.5).abs() < 1e-5, "{}", square[9]);
    let size = (x.iter().map(|x| f64::from(x * x)).sum::<f64>() / x.len() as f64).sqrt();
    assert!((square[7] / (2.0 * size) - 1.0).abs() < 0.02, "{} {size}", square[7]);
    // (x + w)² − x² − w² = 2xw of (x + w)²: neither is small.
    assert!(square[8] > 0.01 && square[10] > 0.3, "{square:?}");
    // A filter that leaves only the mean lets no wave through.
    let means = of(&mut |x| vec![x.iter().sum::<f32>() / x.len() as f32; x.len()]);
    assert!((means[7] - 1.0).abs() < 1e-3 && means[3..7].iter().all(|gain| gain.abs() < 1e-3), "{means:?}");
    assert_eq!(
        linear.len() + FRAME_LEN + features::trajectory(&[[0.0; 5]; 20], &[vec![0.0; FRAME_LEN]]).len(),
        features::names().len()
    );
}
