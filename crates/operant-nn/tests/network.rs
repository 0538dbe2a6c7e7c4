//! Plans as a whole: the same bits for any number of threads, saving, sharing, bad numbers, precision.

use operant_device::CpuPool;
use operant_device::gemm::amx;
use operant_lanes::Backend;
use operant_lanes::rng::HostRng;
use operant_nn::ops::{Linear, Scale};
use operant_nn::{
    Act, Feed, Gradients, Graph, Init, LossScale, Metadata, Method, Node, Optimizer, Options, Params, Plan, Precision,
    Wanted, nets,
};
use std::sync::Arc;

/// Precisions of which this CPU has its own products.
fn served(precisions: &[Precision]) -> impl Iterator<Item = Precision> {
    precisions.iter().copied().filter(|&precision| precision != Precision::Bf16 || amx::available_to_tests())
}

fn normals(count: usize, stream: u32) -> Vec<f32> {
    let mut rng = HostRng::new(3, stream, 0, 0);
    (0..count).map(|_| rng.normal()).collect()
}

/// A network with a tanh and a residual part, and a squared error: input 0 is x, input 1 the target.
struct Task {
    graph: Graph,
    output: Node,
    loss: Node,
}

const INPUTS: usize = 6;
const OUTPUTS: usize = 5;

fn task(width: usize) -> Task {
    let mut g = Graph::new();
    let x = g.input("x", [INPUTS]);
    let target = g.input("target", [OUTPUTS]);
    let h = nets::residual(&mut g, "trunk", x, width, 2).unwrap();
    let output = nets::mlp(&mut g, "head", h, &[width, OUTPUTS], Act::Tanh, 1.0).unwrap();
    let difference = g.sub(output, target).unwrap();
    let square = g.mul(difference, difference).unwrap();
    let loss = g.mean(square, 1).unwrap();
    Task { graph: g, output, loss }
}

fn data(rows: usize) -> [Vec<f32>; 2] {
    [normals(rows * INPUTS, 1), normals(rows * OUTPUTS, 2)]
}

fn feeds(data: &[Vec<f32>; 2]) -> [Feed<'_>; 2] {
    [Feed::Real(&data[0]), Feed::Real(&data[1])]
}

/// Trains and gives the losses and the parameters.
fn train(options: &Options, rows: usize, steps: usize) -> (Vec<f32>, Params) {
    train_of(64, options, rows, steps)
}

/// The same of layers of this width.
fn train_of(width: usize, options: &Options, rows: usize, steps: usize) -> (Vec<f32>, Params) {
    let task = task(width);
    let mut params = task.graph.params(1).unwrap();
    let mut plan = Plan::training(&task.graph, task.loss, rows, options).unwrap();
    let mut optimizer = Optimizer::new(Method::default(), &params, Some(1.0), options.backend).unwrap();
    let data = data(rows);
    let losses = (0..steps)
        .map(|_| {
            let outcome = plan.train(&params, rows, &feeds(&data), 1.0, Gradients::Replace);
            optimizer.step(&mut params, plan.gradients(), 3e-3);
            outcome.loss
        })
        .collect();
    (losses, params)
}

#[test]
fn training_learns() {
    let (losses, _) = train(&Options::default(), 700, 60);
    assert!(losses[59] < 0.7 * losses[0], "loss went from {} to {}", losses[0], losses[59]);
}

#[test]
fn bits_do_not_depend_on_threads() {
    for precision in served(&[Precision::F32, Precision::Bf16, Precision::F16]) {
        let run = |threads| train(&Options { precision, ..Options::threads(threads) }, 2000, 4);
        let (losses, params) = run(1);
        for threads in [2, 3, 4] {
            let (other_losses, other) = run(threads);
            assert_eq!(losses, other_losses, "{precision:?}, {threads} threads");
            assert!(params.values() == other.values(), "{precision:?}, {threads} threads");
        }
    }
}

#[test]
fn outputs_do_not_depend_on_threads_or_the_size_of_a_plan() {
    const ROWS: usize = 700;
    let Task { graph, output, .. } = task(96);
    let (params, data) = (graph.params(1).unwrap(), data(ROWS));
    for precision in served(&[Precision::F32, Precision::Bf16, Precision::F16]) {
        let outputs = |threads, most, rows| {
            let options = Options { precision, ..Options::threads(threads) };
            let mut plan = Plan::inference(&graph, &[output], most, &options).unwrap();
            plan.forward(&params, rows, &feeds(&data));
            plan.output(output).to_vec()
        };
        let wanted = outputs(1, ROWS, ROWS);
        for (threads, most, rows) in [(2, ROWS, ROWS), (3, ROWS, ROWS), (5, ROWS, 333), (2, 333, 333), (3, 64, 16)] {
            let got = outputs(threads, most, rows);
            assert!(got == wanted[..rows * OUTPUTS], "{precision:?}, {threads} threads, {rows} rows");
        }
    }
}

/// Two networks that meet in a loss, of which each thread has one where there are few rows.
#[test]
fn bits_do_not_depend_on_branches() {
    const MOST: usize = 2500;
    let mut g = Graph::new();
    let x = g.input("x", [INPUTS]);
    let target = g.input("target", [2]);
    let actor = nets::mlp(&mut g, "actor", x, &[64, 64, 2], Act::Tanh, 1.0).unwrap();
    let critic = nets::mlp(&mut g, "critic", x, &[64, 96, 1], Act::Tanh, 1.0).unwrap();
    let noisy = g.dropout(actor, 0.2).unwrap();
    let both = g.concat(&[noisy, critic]).unwrap();
    let sum = g.sum(both, 1).unwrap();
    let difference = g.sub(actor, target).unwrap();
    let square = g.mul(difference, difference).unwrap();
    let error = g.mean(square, 1).unwrap();
    let (weighted, metric) = (g.mul(sum, error).unwrap(), critic);
    let loss = g.add(weighted, error).unwrap();
    let wanted = Wanted { outputs: vec![actor], losses: vec![(loss, 1.0)], metrics: vec![metric] };
    let params = g.params(0).unwrap();
    let data = [normals(MOST * INPUTS, 1), normals(MOST * 2, 2)];
    let feeds = [Feed::Real(&data[0]), Feed::Real(&data[1])];
    for precision in served(&[Precision::F32, Precision::Bf16]) {
        let pools = [1, 2, 4].map(|threads| Arc::new(CpuPool::new(threads)));
        let plan = |pool: &Arc<CpuPool>, backend| {
            let options = Options { precision, backend, pool: Arc::clone(pool), ..Options::default() };
            Plan::new(&g, &wanted, MOST, &options).unwrap()
        };
        for backend in ["amx", "avx512", "avx2", "portable"].into_iter().filter_map(|name| Backend::named(name).ok()) {
            let run = |plan: &mut Plan, rows: usize, gradients: Gradients| {
                let outcome = plan.train(&params, rows, &feeds, 1.0, gradients);
                let metric: Vec<f64> = plan.metric(metric).collect();
                (outcome.loss, metric, plan.output(actor).to_vec(), plan.gradients().to_vec())
            };
            let [mut one, mut two, mut four] = pools.each_ref().map(|pool| plan(pool, backend));
            assert!(two.to_string().contains("2 branches"), "{two}");
            for rows in [5, 256, 300, 511, 512, 777, 1024, 1025, MOST] {
                for gradients in [Gradients::Replace, Gradients::Add] {
                    let wanted = run(&mut one, rows, gradients);
                    assert!(wanted.0.is_finite() && wanted.3.iter().any(|g| *g != 0.0));
                    let what = format!("{rows} rows, {gradients:?}, {precision:?}, {}", backend.name());
                    assert!(run(&mut two, rows, gradients) == wanted, "{what}, 2 threads");
                    assert!(run(&mut four, rows, gradients) == wanted, "{what}, 4 threads");
                }
                // One thread alone, since the pool is at work: what is of the other comes after all that is of the first.
                let wanted = run(&mut one, rows, Gradients::Replace);
                let alone = std::sync::Mutex::new(None);
                pools[1].for_each_mut(&mut [Some(&mut two), None], |_, plan| {
                    if let Some(plan) = plan {
                        *alone.lock().unwrap() = Some(run(plan, rows, Gradients::Replace));
                    }
                });
                let got = alone.into_inner().unwrap().unwrap();
                assert!(got == wanted, "{rows} rows, {precision:?}, {}, alone", backend.name());
                // Dropout goes on with each run.
                assert!(run(&mut four, rows, Gradients::Replace) == wanted, "{rows} rows, {precision:?}, 4 threads");
            }
        }
    }
}

/// How a network trains and steps.
enum Way {
    TwoCalls,
    /// In one section of the pool.
    AtOnce,
    /// The same while the pool is at work, so that one thread does all: what is of the other comes after all that is of the first.
    AtOnceAlone,
}

#[test]
fn learning_has_the_bits_of_training_and_stepping() {
    const MOST: usize = 1100;
    // Of the first, threads step what they have; of the second, which is one network by its names, also what the other has.
    let branched = [["actor", "critic"], ["net.actor", "net.critic"]].map(|names| {
        let mut g = Graph::new();
        let x = g.input("x", [INPUTS]);
        let target = g.input("target", [3]);
        let actor = nets::mlp(&mut g, names[0], x, &[64, 64, 2], Act::Tanh, 1.0).unwrap();
        let critic = nets::mlp(&mut g, names[1], x, &[64, 64, 3], Act::Tanh, 1.0).unwrap();
        let error = g.mse_loss(critic, target).unwrap();
        let sum = g.sum(actor, 1).unwrap();
        let other = g.mul(error, sum).unwrap();
        let loss = g.add(error, other).unwrap();
        (g, loss)
    });
    let [first, second] = &branched;
    let narrow = task(32);
    let wide = task(640);
    let data = [normals(MOST * INPUTS, 1), normals(MOST * OUTPUTS, 2)];
    let methods = [Method::default(), Method::SGD, Method::MUON];
    let two = [(&first.0, first.1, MOST, true), (&second.0, second.1, MOST, true)];
    let one = [(&narrow.graph, narrow.loss, MOST, false), (&wide.graph, wide.loss, 300, false)];
    for (graph, loss, most, branches) in two.into_iter().chain(one) {
        let two_bytes = served(&[Precision::Bf16, Precision::F16]).map(|precision| (precision, 2));
        for (precision, threads) in [1, 2, 3, 4].map(|threads| (Precision::F32, threads)).into_iter().chain(two_bytes) {
            // Muon's products take long for wide layers.
            let methods = methods.iter().filter(|&&method| method != Method::MUON || most == MOST);
            for (&method, limit) in methods.flat_map(|method| [(method, None), (method, Some(0.01))]) {
                let options = Options { precision, ..Options::threads(threads) };
                let mut ways = [Way::TwoCalls, Way::AtOnce, Way::AtOnceAlone].map(|way| {
                    let params = graph.params(3).unwrap();
                    let plan = Plan::training(graph, loss, most, &options).unwrap();
                    let optimizer = Optimizer::new(method, &params, limit, options.backend).unwrap().on(&options.pool);
                    let policy = Plan::inference(graph, &[loss], 5, &options).unwrap();
                    (way, params, plan, optimizer, policy)
                });
                assert_eq!(ways[0].2.to_string().contains("2 branches"), branches, "{}", ways[0].2);
                let mut bad = data[0].clone();
                bad[7] = f32::NAN;
                for (step, rows) in [256, 5, 300, 256, 64, 512, 256, most].into_iter().enumerate() {
                    let rows = rows.min(most);
                    // A gradient that is no number moves nothing.
                    let inputs = if step == 3 { &bad } else { &data[0] };
                    let feeds = [Feed::Real(inputs), Feed::Real(&data[1])];
                    let found = ways.each_mut().map(|(way, params, plan, optimizer, policy)| {
                        let before = params.clone();
                        let (outcome, report) = match way {
                            Way::TwoCalls => {
                                let outcome = plan.train(params, rows, &feeds, 2.0, Gradients::Replace);
                                (outcome, optimizer.step_scaled(params, plan.gradients(), 1e-2, 2.0))
                            }
                            Way::AtOnce => plan.learn(params, rows, &feeds, optimizer, 1e-2, 2.0),
                            Way::AtOnceAlone => {
                                let mut found =
                                    [(Some((&mut *plan, &mut *params, &mut *optimizer)), None), (None, None)];
                                options.pool.for_each_mut(&mut found, |_, (own, found)| {
                                    *found = own.as_mut().map(|(plan, params, optimizer)| {
                                        plan.learn(params, rows, &feeds, optimizer, 1e-2, 2.0)
                                    });
                                });
                                found[0].1.unwrap()
                            }
                        };
                        // Another plan sees the new weights.
                        policy.forward(params, 5, &[Feed::Real(&data[0]), Feed::Real(&data[1])]);
                        assert_eq!(
                            (outcome.finite, report.finite, before != *params),
                            (step != 3, step != 3, step != 3)
                        );
                        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                        let numbers = [outcome.loss, report.grad_norm];
                        let all = [&numbers, plan.gradients(), params.values(), policy.output(loss)].map(bits);
                        (all, optimizer.to_bytes())
                    });
                    let what =
                        format!("step {step}, {rows} rows, {precision:?}, {threads} threads, {method:?}, {limit:?}");
                    assert!(found[0] == found[1], "{what}");
                    assert!(found[0] == found[2], "{what}, alone");
                }
            }
        }
    }
}

/// Wide layers: weights that threads share instead of a copy each, and gradients of which few groups are kept.
#[test]
fn bits_of_many_weights_do_not_depend_on_threads() {
    let run = |threads| train_of(640, &Options::threads(threads), 520, 2);
    let (losses, params) = run(1);
    for threads in [2, 3] {
        let (other_losses, other) = run(threads);
        assert!(losses == other_losses && params.values() == other.values(), "{threads} threads");
    }
}

/// Weights that are new to a thread with one tile of rows are packed before each op, others all at once: with the same result.
#[test]
fn bits_do_not_depend_on_when_weights_are_packed() {
    const ROWS: [usize; 4] = [7, 300, 2000, 40];
    let bf16 = served(&[Precision::Bf16]).map(|precision| (precision, 2));
    for (precision, threads) in [1, 2, 5].map(|threads| (Precision::F32, threads)).into_iter().chain(bf16) {
        let Task { graph, loss, .. } = task(96);
        let data = data(ROWS[2]);
        let sets = [1, 2].map(|seed| graph.params(seed).unwrap());
        let options = Options { precision, ..Options::threads(threads) };
        let plan = || Plan::training(&graph, loss, ROWS[2], &options).unwrap();
        let gradients = |plan: &mut Plan, set: usize, rows: usize| {
            plan.train(&sets[set], rows, &feeds(&data), 1.0, Gradients::Replace);
            plan.gradients().to_vec()
        };
        let wanted = [0, 1].map(|set| ROWS.map(|rows| gradients(&mut plan(), set, rows)));
        assert_ne!(wanted[0], wanted[1]);
        let mut plan = plan();
        for turn in 0..48 {
            // The same weights up to three times, with numbers of rows that go round.
            let (set, place) = (turn / 3 % 2, turn / 2 % ROWS.len());
            let got = gradients(&mut plan, set, ROWS[place]);
            assert_eq!(got, wanted[set][place], "{} rows, {threads} threads, {precision:?}, turn {turn}", ROWS[place]);
            if turn % 5 == 0 {
                assert_eq!(plan.first_non_finite(&sets[set], ROWS[place], &feeds(&data)), None);
            }
        }
    }
}

/// Steps that are the first to add to a gradient overwrite it: nothing is left of the run before, whatever it found, of layers that
/// become one, narrow ones, weights that two layers share, and rows without a gradient.
#[test]
fn gradients_do_not_depend_on_the_run_before() {
    const ROWS: usize = 2000;
    let mut g = Graph::new();
    let x = g.input("x", [INPUTS]);
    let weight = g.input("weight", [1]);
    let tower = nets::mlp(&mut g, "tower", x, &[64, 64, 2], Act::Tanh, 1.0).unwrap();
    let narrow = g.linear("narrow", x, 64).unwrap();
    let shared = [g.param("shared.weight", [64, 64], Init::HeUniform), g.param("shared.bias", [64], Init::Zeros)];
    let layer = Linear { bias: true, act: Act::Relu };
    let once = g.apply("once", layer, &[narrow, shared[0], shared[1]]).unwrap();
    let twice = g.apply("twice", layer, &[once, shared[0], shared[1]]).unwrap();
    let all = g.concat(&[tower, twice]).unwrap();
    let loss = g.mean(all, 1).unwrap();
    let loss = g.mul(loss, weight).unwrap();
    let params = g.params(0).unwrap();
    let x = normals(ROWS * INPUTS, 1);
    let bad = vec![f32::NAN; ROWS * INPUTS];
    let [ones, zeros] = [1.0, 0.0].map(|weight| vec![weight; ROWS]);
    let some: Vec<f32> = (0..ROWS).map(|row| if row % 3 == 0 { 1.0 } else { 0.0 }).collect();
    let narrow = served(&[Precision::Bf16, Precision::F16]).map(|precision| (precision, 2));
    for (precision, threads) in [1, 2].map(|threads| (Precision::F32, threads)).into_iter().chain(narrow) {
        let options = Options { precision, ..Options::threads(threads) };
        let plan = || Plan::training(&g, loss, ROWS, &options).unwrap();
        let mut used = plan();
        for rows in [1, 300, 1030] {
            for weights in [&ones, &some, &zeros] {
                let feeds = [Feed::Real(&x), Feed::Real(weights)];
                let mut new = plan();
                new.train(&params, rows, &feeds, 1.0, Gradients::Replace);
                assert!(weights == &zeros || new.gradients().iter().any(|g| *g != 0.0));
                used.train(&params, ROWS, &[Feed::Real(&bad), Feed::Real(&ones)], 1.0, Gradients::Replace);
                assert!(used.gradients().iter().any(|g| g.is_nan()));
                used.train(&params, rows, &feeds, 1.0, Gradients::Replace);
                assert!(used.gradients() == new.gradients(), "{rows} rows, {threads} threads, {precision:?}");
                used.train(&params, rows, &feeds, 1.0, Gradients::Add);
                let twice = |(new, used): (&f32, &f32)| (2.0 * new - used).abs() <= 1e-5 * new.abs().max(1e-3);
                assert!(new.gradients().iter().zip(used.gradients()).all(twice), "{rows} rows, {precision:?}");
            }
        }
    }
}

/// f64 arithmetic by hand for one small layer: the plan agrees.
#[test]
fn one_layer_agrees_with_arithmetic() {
    let mut g = Graph::new();
    let x = g.input_with_gradient("x", [2]);
    let y = g.linear("layer", x, 1).unwrap();
    let mut params = g.params(0).unwrap();
    params.set("layer.weight", &[2.0, -3.0]).unwrap();
    params.set("layer.bias", &[0.5]).unwrap();
    let wanted = Wanted { outputs: vec![y], losses: vec![(y, 2.0)], metrics: vec![y] };
    let mut plan: Plan = Plan::new(&g, &wanted, 4, &Options::default()).unwrap();
    let input = [1.0, 1.0, 2.0, 0.0, 0.0, -1.0];
    let outcome = plan.train(&params, 3, &[Feed::Real(&input)], 1.0, Gradients::Replace);
    assert_eq!(plan.output(y), [-0.5, 4.5, 3.5]);
    assert_eq!(outcome.loss, 5.0); // twice the mean
    assert_eq!(plan.metric(y).collect::<Vec<_>>(), [2.5]);
    let gradient = |name: &str| &plan.gradients()[params.spec(name).unwrap().range()];
    assert_eq!(gradient("layer.weight"), [2.0, 0.0]); // 2/3·Σ x
    assert_eq!(gradient("layer.bias"), [2.0]);
    assert_eq!(plan.input_gradient(x).unwrap().len(), 6);
    assert!((plan.input_gradient(x).unwrap()[1] + 2.0).abs() < 1e-6);
    // Gradients add up when asked to.
    plan.train(&params, 3, &[Feed::Real(&input)], 1.0, Gradients::Add);
    assert_eq!(plan.gradients()[params.spec("layer.bias").unwrap().range()], [4.0]);
}

#[test]
fn saved_parameters_give_the_same_outputs() {
    let task = task(32);
    let params = task.graph.params(7).unwrap();
    let path = std::env::temp_dir().join(format!("operant-network-{}.safetensors", std::process::id()));
    params.save(&path, &Metadata::default()).unwrap();
    let mut loaded = task.graph.params(8).unwrap();
    assert!(params.values() != loaded.values());
    loaded.load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let rows = 50;
    let data = data(rows);
    let output = |params: &Params| {
        let mut plan = Plan::inference(&task.graph, &[task.output], rows, &Options::default()).unwrap();
        plan.forward(params, rows, &feeds(&data));
        plan.output(task.output).to_vec()
    };
    assert_eq!(output(&params), output(&loaded));
}

#[test]
fn workers_see_whole_sets_of_published_weights() {
    let task = task(32);
    let rows = 40;
    let [x, _] = data(rows);
    let target = vec![0.0; rows * OUTPUTS];
    let sets: Vec<Params> = (0..2).map(|seed| task.graph.params(seed).unwrap()).collect();
    let plan = Plan::inference(&task.graph, &[task.output], rows, &Options::default()).unwrap();
    let shared = plan.share(&sets[0]);
    let expected: Vec<Vec<f32>> = sets
        .iter()
        .map(|params| {
            let mut plan = Plan::inference(&task.graph, &[task.output], rows, &Options::default()).unwrap();
            plan.forward(params, rows, &[Feed::Real(&x), Feed::Real(&target)]);
            plan.output(task.output).to_vec()
        })
        .collect();
    assert_ne!(expected[0], expected[1]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut worker = plan.fork(&shared);
            let (x, target, expected, sets, task) = (&x, &target, &expected, &sets, &task);
            scope.spawn(move || {
                for _ in 0..300 {
                    let version = worker.forward_shared(rows, &[Feed::Real(x), Feed::Real(target)]);
                    let set = sets.iter().position(|params| params.version() == version).unwrap();
                    assert!(worker.output(task.output) == expected[set], "weights of two sets were mixed");
                }
            });
        }
        for i in 0..400 {
            shared.publish(&sets[i % 2]);
        }
    });
}

#[test]
fn a_bad_number_is_traced_to_its_op() {
    let task = task(32);
    let rows = 300;
    let data = data(rows);
    let mut params = task.graph.params(0).unwrap();
    let mut plan = Plan::training(&task.graph, task.loss, rows, &Options::default()).unwrap();
    assert!(plan.train(&params, rows, &feeds(&data), 1.0, Gradients::Replace).finite);
    assert_eq!(plan.first_non_finite(&params, rows, &feeds(&data)), None);
    params.get_mut("trunk.1.0.bias").unwrap()[3] = f32::NAN;
    let outcome = plan.train(&params, rows, &feeds(&data), 1.0, Gradients::Replace);
    assert!(!outcome.finite);
    let name = plan.first_non_finite(&params, rows, &feeds(&data)).unwrap();
    assert_eq!(name, "trunk.1.0");
    let mut optimizer = Optimizer::new(Method::default(), &params, None, Options::default().backend).unwrap();
    assert!(!optimizer.step(&mut params, plan.gradients(), 1e-3).finite, "gradients are still bad");
}

/// A loss of 0 whose gradient overflows on its way back.
#[test]
fn a_bad_gradient_is_traced_to_its_op() {
    let mut g = Graph::new();
    let x = g.input("x", [2]);
    let y = g.linear("layer", x, 1).unwrap();
    let large = g.apply("large", Scale(1e30), &[y]).unwrap();
    let larger = g.apply("larger", Scale(1e30), &[large]).unwrap();
    let loss = g.mean(larger, 1).unwrap();
    let mut params = g.params(0).unwrap();
    params.set("layer.bias", &[0.0]).unwrap();
    let mut plan = Plan::training(&g, loss, 3, &Options::default()).unwrap();
    let feeds = [Feed::Real(&[0.0; 6])];
    let outcome = plan.train(&params, 3, &feeds, 1.0, Gradients::Replace);
    assert_eq!(outcome.loss, 0.0);
    let mut optimizer = Optimizer::new(Method::default(), &params, None, Options::default().backend).unwrap();
    assert!(!optimizer.step(&mut params, plan.gradients(), 1e-3).finite);
    assert_eq!(plan.first_non_finite(&params, 3, &feeds).as_deref(), Some("gradient of large"));
}

#[test]
fn plans_are_for_some_rows_and_not_for_any_number() {
    let task = task(32);
    for (rows, wanted) in [(0, "at least 1"), (usize::MAX, "at most 4294967295"), (1 << 62, "at most 4294967295")] {
        let error = Plan::<f32>::training(&task.graph, task.loss, rows, &Options::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("a plan for {rows} rows: wanted {wanted}")), "{error}");
    }
}

#[test]
fn bf16_and_f16_train_to_the_same_loss() {
    // Few steps: later on the batch is learnt by heart, and the smallest difference in rounding leads elsewhere.
    let (f32_losses, _) = train(&Options::default(), 600, 60);
    for precision in served(&[Precision::Bf16, Precision::F16]) {
        let (losses, _) = train(&Options { precision, ..Options::default() }, 600, 60);
        // One forward pass: operands have 8 (bf16) or 11 (f16) bits.
        let first = f64::from((losses[0] - f32_losses[0]).abs() / f32_losses[0]);
        assert!(first < 5e-3, "{precision:?}: first losses differ by {first:.1e}");
        let ratio = losses[59] / f32_losses[59];
        assert!((0.96..1.04).contains(&ratio), "{precision:?}: {} against {}", losses[59], f32_losses[59]);
    }
}

/// Layers that a plan makes one op of: gradients of every tensor in bf16 agree with those in f32, whole tiles or not, and
/// rows whose gradient is zero change nothing: without them, f32 gives the same.
#[test]
fn merged_layers_have_the_same_gradients_in_bf16() {
    // Without tiles, what is left is that rows of zeros change nothing.
    amx::available_to_tests();
    for (inputs, outputs, act) in [(4, 1, Act::Tanh), (4, 2, Act::Tanh), (20, 3, Act::Relu), (48, 4, Act::Tanh)] {
        let mut g = Graph::new();
        let x = g.input("x", [inputs]);
        let target = g.input("target", [outputs]);
        let weight = g.input("weight", [outputs]);
        let y = nets::mlp(&mut g, "net", x, &[64, 96, outputs], act, 1.0).unwrap();
        let difference = g.sub(y, target).unwrap();
        let square = g.mul(difference, difference).unwrap();
        let weighted = g.mul(square, weight).unwrap();
        let loss = g.mean(weighted, 1).unwrap();
        let params = g.params(5).unwrap();
        for rows in [7, 300, 1000] {
            let (x, target) = (normals(rows * inputs, 1), normals(rows * outputs, 2));
            for live in [1, 3, usize::MAX] {
                let weight: Vec<f32> =
                    (0..rows * outputs).map(|i| f32::from(u8::from((i / outputs + 1).is_multiple_of(live)))).collect();
                let gradients = |precision, data: [&[f32]; 3]| {
                    let (options, rows) = (Options { precision, ..Options::default() }, data[1].len() / outputs);
                    let mut plan = Plan::training(&g, loss, rows, &options).unwrap();
                    assert!(plan.to_string().contains("tower"), "{plan}");
                    assert!(plan.train(&params, rows, &data.map(Feed::Real), 1.0, Gradients::Replace).finite);
                    plan.gradients().to_vec()
                };
                let all = [&x[..], &target, &weight];
                let (exact, rounded) = (gradients(Precision::F32, all), gradients(Precision::Bf16, all));
                if live > rows {
                    assert!(exact.iter().chain(&rounded).all(|x| *x == 0.0), "gradients where none is wanted");
                    continue;
                }
                let live_only = |x: &[f32], width: usize| -> Vec<f32> {
                    x.chunks(width).skip(live - 1).step_by(live).flatten().copied().collect()
                };
                let some = [live_only(&x, inputs), live_only(&target, outputs), live_only(&weight, outputs)];
                let alone = gradients(Precision::F32, some.each_ref().map(Vec::as_slice));
                // Losses are means over rows.
                let share = (rows / live) as f32 / rows as f32;
                for spec in params.specs() {
                    let range = spec.offset..spec.offset + spec.shape.iter().product::<usize>();
                    let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x * x)).sum::<f64>().sqrt();
                    let size = norm(&mut range.clone().map(|i| exact[i]));
                    let error = norm(&mut range.clone().map(|i| exact[i] - rounded[i])) / size;
                    let name = &spec.name;
                    let of_zeros = norm(&mut range.clone().map(|i| exact[i] - share * alone[i])) / size;
                    assert!(of_zeros < 2e-6, "{name} of {rows} rows, one in {live}: zeros change it by {of_zeros:.1e}");
                    // A rounded ReLU may be on where the exact one is off.
                    let most = if act == Act::Relu { 6e-2 } else { 1.5e-2 };
                    assert!(error < most, "{name} of {rows} rows, one in {live}, {act:?}: off by {error:.1e}");
                }
            }
        }
    }
}

/// The gradients of a loss that is a multiple of the task's.
fn gradients_of(times: f32, precision: Precision, loss_scale: f32) -> Vec<f32> {
    let Task { mut graph, loss, .. } = task(32);
    let loss = graph.scale(loss, times).unwrap();
    let params = graph.params(0).unwrap();
    let mut plan = Plan::training(&graph, loss, 64, &Options { precision, ..Options::default() }).unwrap();
    plan.train(&params, 64, &feeds(&data(64)), loss_scale, Gradients::Replace);
    plan.gradients().iter().map(|x| x / loss_scale).collect()
}

/// Numbers below 6e-8 are 0 in f16: only a loss that is scaled has gradients then.
#[test]
fn loss_scaling_keeps_small_gradients() {
    let exact = gradients_of(1e-7, Precision::F32, 1.0);
    let size = exact.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let error = |got: &[f32]| got.iter().zip(&exact).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / size;
    let (plain, scaled) =
        (gradients_of(1e-7, Precision::F16, 1.0), gradients_of(1e-7, Precision::F16, LossScale::default().scale()));
    assert!(error(&plain) > 0.05, "off by {:.1e} unscaled", error(&plain));
    assert!(error(&scaled) < 5e-3, "off by {:.1e} scaled", error(&scaled));
}

/// Gradients too large for f16 are found and halve the scale, until training goes on.
#[test]
fn loss_scaling_recovers_from_overflow() {
    let Task { mut graph, loss, .. } = task(32);
    let loss = graph.scale(loss, 1e4).unwrap();
    let rows = 64;
    let data = data(rows);
    let options = Options { precision: Precision::F16, ..Options::default() };
    let mut params = graph.params(0).unwrap();
    let mut plan = Plan::training(&graph, loss, rows, &options).unwrap();
    let mut scale = LossScale::default();
    let mut optimizer = Optimizer::new(Method::default(), &params, None, options.backend).unwrap();
    let (mut skipped, mut losses) = (0, Vec::new());
    let mut gradients = vec![0.0; params.len()];
    for _ in 0..60 {
        losses.push(plan.train(&params, rows, &feeds(&data), scale.scale(), Gradients::Replace).loss);
        let unscale = 1.0 / scale.scale();
        gradients.iter_mut().zip(plan.gradients()).for_each(|(to, from)| *to = from * unscale);
        let report = optimizer.step(&mut params, &gradients, 3e-3);
        skipped += i32::from(!report.finite);
        scale.update(report.finite);
    }
    assert!(losses[59] < 0.8 * losses[0], "{} to {}", losses[0], losses[59]);
    assert!((1..20).contains(&skipped), "{skipped} steps were left out");
    assert_eq!(scale.scale(), LossScale::default().scale() / 2f32.powi(skipped));
}

#[test]
fn every_backend_trains_alike() {
    let (wanted, _) = train(&Options { backend: Backend::named("portable").unwrap(), ..Options::default() }, 300, 10);
    for name in ["avx2", "avx512", "amx"] {
        let Ok(backend) = Backend::named(name) else { continue };
        let (losses, _) = train(&Options { backend, ..Options::default() }, 300, 10);
        for (a, b) in losses.iter().zip(&wanted) {
            assert!((a - b).abs() < 1e-3 * b, "{name}: {losses:?} {wanted:?}");
        }
    }
}

#[test]
fn tensors_of_another_graph_are_refused() {
    let (mut one, mut other) = (Graph::new(), Graph::new());
    let (x, foreign) = (one.input("x", [3]), other.input("y", [3]));
    let loss = one.mean(x, 1).unwrap();
    for refused in [
        one.tanh(foreign).unwrap_err(),
        one.linear("fc", foreign, 2).unwrap_err(),
        one.concat(&[x, foreign]).unwrap_err(),
        one.slice(foreign, 0, 1).unwrap_err(),
        one.flatten(foreign).unwrap_err(),
        one.embedding_sum("sum", foreign, 3, 2).unwrap_err(),
        Plan::inference(&one, &[foreign], 1, &Options::default()).unwrap_err(),
        Plan::training(&one, foreign, 1, &Options::default()).unwrap_err(),
    ] {
        assert!(refused.to_string().contains("of another graph"), "{refused}");
    }
    // A clone has the same tensors.
    Plan::training(&one.clone(), loss, 1, &Options::default()).unwrap();
}

#[test]
#[should_panic(expected = "a plan without a loss cannot train")]
fn inference_plans_do_not_train() {
    let Task { graph, output, .. } = task(32);
    let mut plan = Plan::inference(&graph, &[output], 4, &Options::default()).unwrap();
    plan.train(&graph.params(0).unwrap(), 4, &feeds(&data(4)), 1.0, Gradients::Replace);
}

/// What `learn` can't do is found before anything is run.
#[test]
fn learning_what_does_not_fit_changes_nothing() {
    let (narrow, wide) = (task(16), task(32));
    let options = Options::default();
    let learner = Plan::training(&narrow.graph, narrow.loss, 8, &options).unwrap();
    let player = Plan::inference(&wide.graph, &[wide.output], 8, &options).unwrap();
    for (mut plan, wanted) in [(learner, "wanted the graph's own"), (player, "a plan without a loss cannot train")] {
        let mut params = wide.graph.params(0).unwrap();
        let mut optimizer = Optimizer::new(Method::default(), &params, None, options.backend).unwrap();
        let (before, data) = (params.clone(), data(8));
        let learn = || plan.learn(&mut params, 8, &feeds(&data), &mut optimizer, 1e-3, 1.0);
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(learn)).unwrap_err();
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        assert!(said.unwrap().contains(wanted), "{said:?}");
        assert!(params == before && optimizer.steps() == 0);
    }
}

#[test]
#[should_panic(expected = "runs with shared weights: `Plan::forward_shared`")]
fn forks_run_with_shared_weights() {
    let task = task(16);
    let params = task.graph.params(0).unwrap();
    let plan = Plan::inference(&task.graph, &[task.output], 8, &Options::default()).unwrap();
    let data = data(8);
    plan.fork(&plan.share(&params)).forward(&params, 8, &[Feed::Real(&data[0]), Feed::Real(&data[1])][..1]);
}

#[test]
#[should_panic(expected = "a loss scale of -1")]
fn optimisers_refuse_loss_scales_that_turn_gradients_round() {
    let mut params = task(16).graph.params(0).unwrap();
    let mut optimizer = Optimizer::new(Method::default(), &params, Some(1.0), Backend::fast()).unwrap();
    let gradients = vec![0.1; params.len()];
    optimizer.step_scaled(&mut params, &gradients, 1e-3, -1.0);
}

#[test]
#[should_panic(expected = "a learning rate of NaN")]
fn optimisers_refuse_learning_rates_that_are_no_numbers() {
    let mut params = task(32).graph.params(0).unwrap();
    let gradients = vec![0.0; params.len()];
    let mut optimizer = Optimizer::new(Method::default(), &params, None, Backend::fast()).unwrap();
    optimizer.step(&mut params, &gradients, f32::NAN);
}

#[test]
fn mistakes_are_explained() {
    let mut g = Graph::new();
    let x = g.input("x", [3]);
    let y = g.input("y", [4]);
    let message = g.add(x, y).unwrap_err().to_string();
    assert_eq!(message, "arithmetic \"arithmetic_0\" of x [B, 3], y [B, 4]: wanted two inputs with rows of one shape");
    let h = g.linear("fc", x, 5).unwrap();
    let message = Plan::training(&g, h, 8, &Options::default()).unwrap_err().to_string();
    assert_eq!(message, "loss fc [B, 5]: wanted one number per row; reduce it with mean or sum");
    let message = Plan::inference(&g, &[x], 8, &Options::default()).unwrap_err().to_string();
    assert_eq!(message, "output x is an input: wanted a tensor that an op makes");
    assert!(Plan::inference(&g, &[h], 0, &Options::default()).is_err());
    g.linear("fc", x, 5).unwrap();
    assert!(g.params(0).unwrap_err().to_string().contains("\"fc.weight\""));
}

#[test]
fn a_plan_prints_itself() {
    let task = task(32);
    let plan = Plan::training(&task.graph, task.loss, 100, &Options::default()).unwrap();
    let text = plan.to_string();
    for part in ["training plan: up to 100 rows", "linear (backward)", "tile@", "sum@", "FLOP per row forward"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    // Shapes as an op sees them, with what they take.
    for part in ["[B, 6] 24 B/row feed 0", "[32, 6] 768 B param@", "[B, 32] 128 B/row tile@"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let inference = Plan::inference(&task.graph, &[task.output], 100, &Options::default()).unwrap();
    assert!(inference.workspace_bytes() < plan.workspace_bytes());
}

#[test]
fn pools_are_shared() {
    let pool = Arc::new(CpuPool::new(2));
    let options = Options { pool: Arc::clone(&pool), ..Options::default() };
    let (a, _) = train(&options, 500, 2);
    let (b, _) = train(&options, 500, 2);
    assert_eq!(a, b);
}

#[test]
fn a_damaged_description_is_refused_before_anything_is_made_of_it() {
    let architecture = nets::Architecture::Dueling { inputs: 6, hidden: vec![8], stream: 4, actions: 3 };
    let params = architecture.build().unwrap().graph.params(0).unwrap();
    let from = |text: &str| {
        let notes = Metadata::from([("operant.architecture".to_owned(), text.to_owned())]);
        nets::Architecture::from_bytes(&params.to_bytes(&notes)).map(|(found, ..)| found)
    };
    let whole = architecture.to_json();
    assert_eq!(from(&whole).unwrap(), architecture);
    let changed = |from: &str, to: &str| whole.replacen(from, to, 1);
    for (text, wanted) in [
        (String::new(), "EOF"),
        (whole[..whole.len() - 1].to_owned(), "EOF"),
        (changed("\"actions\":3", "\"actions\":0"), "actions = 0: wanted 1..=16777216"),
        (changed("\"actions\":3", "\"actions\":18446744073709551615"), "actions = 18446744073709551615: wanted"),
        (changed("[8]", "[8,99999999]"), "hidden = 99999999: wanted"),
        (changed("[8]", "[16777216,16777216]"), "fewer than 2³² elements"),
        (changed("\"actions\":3", "\"actions\":4"), "advantage.2.weight has shape [3, 4], wanted [4, 4]"),
        (
            r#"{"kind":"residual","inputs":6,"width":8,"blocks":999999999,"policy":1,"value_hidden":1,"value":1}"#
                .to_owned(),
            "blocks = 999999999: wanted 0..=4096",
        ),
    ] {
        let message = from(&text).unwrap_err().to_string();
        assert!(message.contains(wanted), "{text}: {message}");
    }
}
