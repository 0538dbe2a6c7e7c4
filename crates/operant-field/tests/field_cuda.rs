//! Field operators on a GPU. Without one: their kernels compile. On a Hopper GPU (`cargo test --test field_cuda -- --ignored
//! --test-threads=1`): steps agree with the CPU's within each precision's rounding, residual trajectories stay near, rows do not know
//! each other, and a rollout has the same bits again.

use operant_device::cuda::{self, Gpu};
use operant_field::Sobol;
use operant_field::cuda::{CudaRollout, Member, source};
use operant_field::initial::{KINDS, Shape};
use operant_field::{After, Norm, Operator, Rollout, Schedule, Space, Update};
use operant_lanes::Math;
use operant_nn::ops::NoiseLaw;
use operant_nn::{Act, Options, Precision};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(target_os = "linux")]
#[test]
fn kernels_compile() {
    // Tf32 differs from f32 in how numbers are rounded alone.
    std::thread::scope(|scope| {
        for precision in [Precision::Bf16, Precision::F16, Precision::F32] {
            scope.spawn(move || {
                let cubin = cuda::compile("field", &source(precision), "sm_90a", Math::Fast).unwrap();
                assert!(cubin.starts_with(b"\x7fELF"));
            });
        }
    });
}

/// A thread's own, since its graphs are recorded from what it alone launches.
fn gpu() -> Arc<Gpu> {
    thread_local!(static GPU: Arc<Gpu> = Gpu::open(0).unwrap());
    GPU.with(Arc::clone)
}

fn plain() -> Operator {
    Operator {
        channels: 3,
        grid: 64,
        layers: 2,
        base_channels: 24,
        kernel: 3,
        flat: false,
        activation: Act::Gelu,
        dropout: 0.1,
        noise: NoiseLaw::Gaussian,
        noise_scale: 0.1,
        schedule: Schedule::Periodic,
        correlation: 0.0,
        norm: Norm::Instance,
        afno: None,
    }
}

/// The operators of `operant bench field`.
fn bench(flat: bool) -> Operator {
    let schedule = Schedule::Constant;
    Operator { grid: 128, layers: 4, base_channels: 64, flat, schedule, ..plain() }
}

fn first(operator: &Operator) -> Vec<f32> {
    KINDS[0].field(Shape { grid: operator.grid, channels: operator.channels, length: 0.05, variance: 1.0 }, 1)
}

fn on_gpu(operator: &Operator, update: Update, rows: std::ops::Range<u32>, precision: Precision) -> CudaRollout {
    let first = first(operator);
    let member = Member { operator, update, seed: 9, first: &first };
    CudaRollout::new(&gpu(), &[member], After::default(), rows, 500, precision, 0).unwrap()
}

fn on_cpu(operator: &Operator, update: Update, rows: std::ops::Range<u32>) -> Rollout {
    Rollout::new(operator, update, After::default(), 9, rows, 500, &first(operator), &Options::default()).unwrap()
}

fn error(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let (mut above, mut below) = (0.0, 0.0);
    for (f, w) in found.iter().zip(wanted) {
        above += square(f64::from(*f) - f64::from(*w));
        below += square(f64::from(*w));
    }
    (above / below).sqrt()
}

const LIMITS: [(Precision, f64); 4] =
    [(Precision::F32, 2e-5), (Precision::Tf32, 3e-3), (Precision::F16, 3e-3), (Precision::Bf16, 2e-2)];

/// O(x) against the CPU's in f32, with the same noise.
fn compare(what: &str, operator: &Operator, limits: &[(Precision, f64)], wrong: &mut Vec<String>) {
    let mut cpu = on_cpu(operator, Update::Autoregressive, 3..5);
    let fields = cpu.state().to_vec();
    let wanted = cpu.apply(&fields).to_vec();
    for &(precision, limit) in limits {
        let found = on_gpu(operator, Update::Autoregressive, 3..5, precision).apply(&fields).unwrap();
        let error = error(&found, &wanted);
        println!("{what}: {} {error:.2e}", precision.name());
        if error.is_nan() || error >= limit {
            wrong.push(format!("{what} in {}: {error:.2e}, limit {limit:.0e}", precision.name()));
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_step_is_the_cpus() {
    let p = plain;
    let quiet = |operator: Operator| Operator { dropout: 0.0, noise_scale: 0.0, ..operator };
    let mut wrong = Vec::new();
    let wide = |base_channels| Operator { base_channels, ..quiet(p()) };
    let cases = [
        ("16 channels, no norm", Operator { norm: Norm::None, activation: Act::Identity, ..wide(16) }),
        ("quiet", quiet(p())),
        ("64 channels", wide(64)),
        ("odd channels", wide(37)),
        ("dropout", Operator { noise_scale: 0.0, ..p() }),
        ("noise", Operator { dropout: 0.0, ..p() }),
        ("both, odd channels", Operator { base_channels: 19, ..p() }),
        ("kernel 5, group norm, relu", Operator { kernel: 5, norm: Norm::Group, activation: Act::Relu, ..p() }),
        ("kernel 7, layer norm, silu", Operator { kernel: 7, norm: Norm::Layer, activation: Act::Silu, ..p() }),
        ("batch norm, tanh", Operator { norm: Norm::Batch, activation: Act::Tanh, ..p() }),
        ("no norm, sigmoid", Operator { norm: Norm::None, activation: Act::Sigmoid, ..p() }),
        ("laplace", Operator { noise: NoiseLaw::Laplace, ..p() }),
        ("multiplicative", Operator { noise: NoiseLaw::Multiplicative, ..p() }),
        ("channel dropout", Operator { noise: NoiseLaw::Drop, noise_scale: 0.3, ..p() }),
        ("correlated", Operator { correlation: 0.05, noise_scale: 0.5, ..p() }),
        ("grid 16", Operator { grid: 16, ..p() }),
        ("64 channels, grid 16", Operator { base_channels: 64, grid: 16, layers: 3, ..p() }),
        (
            "64 channels, laplace, kernel 5, silu, one channel of fields",
            Operator {
                base_channels: 64,
                noise: NoiseLaw::Laplace,
                kernel: 5,
                activation: Act::Silu,
                channels: 1,
                ..p()
            },
        ),
        (
            "32 channels, multiplicative, group norm, relu, five channels of fields",
            Operator {
                base_channels: 32,
                layers: 3,
                noise: NoiseLaw::Multiplicative,
                norm: Norm::Group,
                activation: Act::Relu,
                channels: 5,
                ..p()
            },
        ),
        (
            "64 channels, multiplicative, kernel 7, layer norm, tanh, four channels of fields",
            Operator {
                base_channels: 64,
                flat: true,
                noise: NoiseLaw::Multiplicative,
                kernel: 7,
                norm: Norm::Layer,
                activation: Act::Tanh,
                channels: 4,
                ..p()
            },
        ),
        (
            "64 channels, channel dropout",
            Operator { base_channels: 64, noise: NoiseLaw::Drop, noise_scale: 0.3, ..p() },
        ),
        ("64 channels, correlated", Operator { base_channels: 64, correlation: 0.05, noise_scale: 0.5, ..p() }),
        (
            "64 channels, grid 256, silu",
            Operator { base_channels: 64, grid: 256, layers: 1, activation: Act::Silu, ..p() },
        ),
        ("64 channels, two channels of fields", Operator { base_channels: 64, channels: 2, layers: 1, ..p() }),
        ("residual", Operator { layers: 4, ..p() }),
        ("flat bench", bench(true)),
        ("residual bench", bench(false)),
    ];
    for (what, operator) in cases {
        compare(what, &operator, &LIMITS, &mut wrong);
    }
    // Kernels of their own for 1×1 convolutions past blocks and for wide last layers, in numbers of two bytes.
    let widening =
        Operator { base_channels: 64, layers: 4, kernel: 5, activation: Act::Silu, norm: Norm::Group, ..p() };
    for (what, noise) in
        [("64 to 256 channels", NoiseLaw::Gaussian), ("64 to 256 channels, laplace", NoiseLaw::Laplace)]
    {
        compare(what, &Operator { noise, ..widening.clone() }, &LIMITS[2..], &mut wrong);
    }
    let widening = Operator { base_channels: 32, layers: 4, ..p() };
    compare("32 to 128 channels", &widening, &LIMITS[2..], &mut wrong);
    // A 1×1 convolution of its own lies between a convolution and what makes norms of its sums.
    let small = Operator { base_channels: 64, layers: 4, grid: 32, ..p() };
    compare("64 to 256 channels, grid 32", &small, &LIMITS[2..], &mut wrong);
    // With one channel less of the roundings cancels: tf32, which has other kernels, is at 3.3e-3 here, as f16 is.
    let one = Operator { base_channels: 64, grid: 128, channels: 1, ..p() };
    compare("64 channels, grid 128, one channel of fields", &one, &[(Precision::F16, 4e-3), LIMITS[3]], &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Operators drawn from the whole space of collections, `count` of each seed. Every other one has channels that are a multiple of
/// eight, for which there are kernels of their own, and kernels that read eight channels at a time.
/// `OPERANT_DRAW=300x5` draws 300 operators of each of five seeds instead.
fn drawn(count: u32) -> Vec<(Operator, Update)> {
    let wanted = std::env::var("OPERANT_DRAW").unwrap_or_else(|_| format!("{count}x1"));
    let (count, seeds) = wanted.split_once('x').expect("OPERANT_DRAW is OPERATORSxSEEDS");
    let (count, seeds) = (count.parse().expect("operators"), seeds.parse::<u64>().expect("seeds"));
    (35..35 + seeds).flat_map(|seed| drawn_of(seed, count)).collect()
}

fn drawn_of(seed: u64, count: u32) -> Vec<(Operator, Update)> {
    let space = Space::default();
    let sobol = Sobol::scrambled(space.parameters.len(), seed).unwrap();
    let mut unit = vec![0.0; space.parameters.len()];
    let mut one = |k: u32| {
        sobol.point(k, &mut unit);
        let (mut operator, update) = space.operator(&space.values(&unit), 3);
        if k % 2 == 1 {
            operator.base_channels = operator.base_channels.next_multiple_of(8);
        }
        (operator, update)
    };
    (0..count).map(&mut one).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn drawn_operators_step_as_on_the_cpu() {
    // Deep operators of few channels add up more roundings than those that `LIMITS` were found by.
    let limits = LIMITS.map(|(precision, limit)| (precision, 3.0 * limit));
    let mut wrong = Vec::new();
    for (k, (operator, _)) in drawn(48).iter().enumerate() {
        compare(&format!("operator {k}, {operator:?}"), operator, &limits, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs a GPU"]
fn drawn_operators_have_the_same_bits_in_any_batch() {
    let (drawn, next) = (drawn(48), AtomicUsize::new(0));
    let work = || {
        loop {
            let k = next.fetch_add(1, Ordering::Relaxed);
            let Some((operator, update)) = drawn.get(k) else { return };
            has_the_same_bits_in_any_batch(k, operator, *update);
            if k % 100 == 99 {
                println!("{} of {} operators", k + 1, drawn.len());
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(12);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
}

fn has_the_same_bits_in_any_batch(k: usize, operator: &Operator, update: Update) {
    let precision = LIMITS[k % LIMITS.len()].0;
    let (first, len) = (first(operator), operator.field_len());
    let state = |members: &[Member], rows: std::ops::Range<u32>| {
        let mut rollout = CudaRollout::new(&gpu(), members, After::default(), rows, 500, precision, 0).unwrap();
        (0..3).for_each(|_| rollout.step().unwrap());
        rollout.state().unwrap()
    };
    let other = Operator { dropout: 0.25, noise_scale: 0.5, ..operator.clone() };
    let member = |operator, seed| Member { operator, update, seed, first: &first };
    let bits = |fields: &[f32]| fields.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let several = state(&[member(&other, 3), member(operator, 9)], 0..3);
    let alone = state(&[member(operator, 9)], 1..2);
    assert!(bits(&several[4 * len..5 * len]) == bits(&alone), "operator {k}, {operator:?} in {}", precision.name());
}

/// What collections describe operators by: a small change of a field does what it does on the CPU.
#[test]
#[ignore = "needs a GPU"]
fn rounded_weights_keep_small_changes() {
    let operator = Operator { layers: 4, base_channels: 64, ..plain() };
    let mut cpu = on_cpu(&operator, Update::Autoregressive, 3..5);
    let fields = cpu.state().to_vec();
    let moved: Vec<f32> = fields.iter().enumerate().map(|(i, x)| x + if i % 7 < 3 { 1e-3 } else { -1e-3 }).collect();
    let change = |after: &[f32], before: &[f32]| after.iter().zip(before).map(|(a, b)| a - b).collect::<Vec<f32>>();
    let plain = cpu.apply(&fields).to_vec();
    let wanted = change(cpu.apply(&moved), &plain);
    let first = first(&operator);
    let member = Member { operator: &operator, update: Update::Autoregressive, seed: 9, first: &first };
    let mut gpu = CudaRollout::with_rounded_weights(&gpu(), &[member], After::default(), 3..5, 500).unwrap();
    let found = gpu.apply(&fields).unwrap();
    let errors = [error(&found, &plain), error(&change(&gpu.apply(&moved).unwrap(), &found), &wanted)];
    println!("rounded weights: {:.2e}, of a change {:.2e}", errors[0], errors[1]);
    assert!(errors[0] < 2e-3 && errors[1] < 1e-2, "{errors:?}");
}

#[test]
#[ignore = "needs a GPU"]
fn residual_trajectories_stay_near() {
    let operator = bench(false);
    let update = Update::Residual { dt: 0.01 };
    let run = |precision| {
        let mut rollout = on_gpu(&operator, update, 0..5, precision);
        (0..500).for_each(|_| rollout.step().unwrap());
        rollout.state().unwrap()
    };
    let exact = run(Precision::F32);
    for (precision, limit) in [(Precision::Tf32, 2e-3), (Precision::F16, 2e-3), (Precision::Bf16, 2e-2)] {
        let error = error(&run(precision), &exact);
        println!("after 500 residual steps: {} {error:.2e}", precision.name());
        assert!(error < limit, "{}: {error:.2e}", precision.name());
    }
}

#[test]
#[ignore = "needs a GPU"]
fn rows_do_not_know_each_other_and_replay() {
    for (operator, precision) in [
        (plain(), Precision::Bf16),
        (bench(false), Precision::Bf16),
        (bench(true), Precision::F16),
        (bench(true), Precision::Bf16),
        (plain(), Precision::F32),
    ] {
        let update = Update::Convex { alpha: 0.5 };
        let run = |rows: std::ops::Range<u32>| {
            let mut rollout = on_gpu(&operator, update, rows, precision);
            (0..20).for_each(|_| rollout.step().unwrap());
            rollout.state().unwrap()
        };
        let (whole, len) = (run(0..5), operator.field_len());
        assert!(whole == run(0..5), "the same bits again");
        assert!(whole[2 * len..4 * len] == run(2..4), "realisations 2 and 3 alone");
        let first = first(&operator);
        // Beside others of its shape, whose dropout is their own.
        let others = [0.3, 0.0].map(|dropout| Operator { dropout, ..operator.clone() });
        let member = |operator, seed| Member { operator, update, seed, first: &first };
        let members = [member(&others[0], 3), member(&operator, 9), member(&others[1], 4)];
        let mut several = CudaRollout::new(&gpu(), &members, After::default(), 0..5, 500, precision, 4).unwrap();
        (0..20).for_each(|_| several.step().unwrap());
        let state = several.state().unwrap();
        assert!(state[5 * len..10 * len] == whole, "beside two other operators");
        let mut trace = Vec::new();
        several.trace(4, &mut trace).unwrap();
        assert!(trace[3 * state.len()..] == state, "the last traced state is the state");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn what_follows_a_step_is_the_cpus() {
    let operator = plain();
    for after in [After { normalise: true, clamp: 1.5 }, After { normalise: false, clamp: 0.2 }] {
        let first = first(&operator);
        let update = Update::Residual { dt: 0.1 };
        let member = Member { operator: &operator, update, seed: 9, first: &first };
        let mut cpu = Rollout::new(&operator, update, after, 9, 0..2, 50, &first, &Options::default()).unwrap();
        let mut found = CudaRollout::new(&gpu(), &[member], after, 0..2, 50, Precision::F32, 2).unwrap();
        for _ in 0..3 {
            cpu.step();
            found.step().unwrap();
        }
        let error = error(&found.state().unwrap(), cpu.state());
        assert!(error < 1e-4, "{after:?}: {error:.2e}");
    }
}

/// More rows than blocks run at once: blocks then have whole rows, one after the other.
#[test]
#[ignore = "needs a GPU"]
fn many_rows_have_the_bits_of_few() {
    let operator = Operator { grid: 32, base_channels: 64, flat: true, ..plain() };
    let wider = Operator { flat: false, ..operator.clone() };
    for (operator, count) in [(operator, 1700), (wider, 900)] {
        let run = |rows: std::ops::Range<u32>| {
            let mut rollout = on_gpu(&operator, Update::Convex { alpha: 0.5 }, rows, Precision::Bf16);
            (0..3).for_each(|_| rollout.step().unwrap());
            rollout.state().unwrap()
        };
        let (whole, len) = (run(0..count), operator.field_len());
        for row in [0, 795, count - 1] {
            assert!(whole[row as usize * len..][..len] == run(row..row + 1), "row {row} of {count}");
        }
    }
}

/// A norm over an image takes what is no number everywhere, also where its sums are whole numbers; other rows do not know.
#[test]
#[ignore = "needs a GPU"]
fn what_is_no_number_stays_in_its_row() {
    for operator in [bench(true), bench(false)] {
        let mut rollout = on_gpu(&operator, Update::Autoregressive, 0..2, Precision::Bf16);
        let (mut fields, len) = (first(&operator).repeat(2), operator.field_len());
        let without = rollout.apply(&fields).unwrap();
        fields[5] = f32::NAN;
        let found = rollout.apply(&fields).unwrap();
        assert!(found[..len].iter().all(|x| x.is_nan()));
        assert!(found[len..] == without[len..] && without.iter().all(|x| x.is_finite()));
        fields[5] = 0.0;
        assert!(rollout.apply(&fields).unwrap().iter().all(|x| x.is_finite()), "and no longer than that");
    }
}
