//! Running plans, stepping optimisers and publishing weights never allocate. One test: the count is of the process.

use operant_device::alloc::{CountingAllocator, allocations};
use operant_nn::{Act, Feed, Gradients, Graph, Method, Optimizer, Options, Plan, Precision, nets};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn running_plans_never_allocates() {
    let mut g = Graph::new();
    let x = g.input("x", [6]);
    let target = g.input("target", [5]);
    let h = nets::residual(&mut g, "trunk", x, 48, 2).unwrap();
    let output = nets::mlp(&mut g, "head", h, &[32, 5], Act::Tanh, 1.0).unwrap();
    let difference = g.sub(output, target).unwrap();
    let square = g.mul(difference, difference).unwrap();
    let loss = g.mean(square, 1).unwrap();
    let rows = 700;
    let (x, target) = (vec![0.5; rows * 6], vec![0.25; rows * 5]);
    let feeds = [Feed::Real(&x), Feed::Real(&target)];
    for (threads, precision) in [(1, Precision::F32), (3, Precision::F32), (2, Precision::Bf16), (1, Precision::F16)] {
        let options = Options { precision, ..Options::threads(threads) };
        let mut params = g.params(0).unwrap();
        let mut plan = Plan::training(&g, loss, rows, &options).unwrap();
        let mut inference = Plan::inference(&g, &[output], rows, &options).unwrap();
        let optimizer = Optimizer::new(Method::default(), &params, Some(1.0), options.backend).unwrap();
        let mut optimizer = optimizer.on(&options.pool);
        let shared = inference.share(&params);
        let mut worker = inference.fork(&shared);
        let mut step = |rows: usize| {
            plan.train(&params, rows, &feeds, 1.0, Gradients::Replace);
            optimizer.step(&mut params, plan.gradients(), 3e-3);
            plan.learn(&mut params, rows, &feeds, &mut optimizer, 3e-3, 1.0);
            inference.forward(&params, rows, &feeds);
            shared.publish(&params);
            worker.forward_shared(rows, &feeds);
        };
        (0..3).for_each(|_| step(rows));
        let before = allocations();
        // Any number of rows up to the planned one.
        (0..40).for_each(|i| step(if i % 2 == 0 { rows } else { 1 + 11 * i }));
        assert_eq!(allocations() - before, 0, "{threads} threads, {precision:?}");
    }
    let mut g = Graph::new();
    let x = g.input("x", [4]);
    let two = ["actor", "critic"].map(|name| nets::mlp(&mut g, name, x, &[64, 64, 1], Act::Tanh, 1.0).unwrap());
    let loss = g.mul(two[0], two[1]).unwrap();
    let options = Options::threads(2);
    let mut params = g.params(0).unwrap();
    let mut plan = Plan::training(&g, loss, 256, &options).unwrap();
    assert!(plan.to_string().contains("2 branches"), "{plan}");
    let mut optimizer = Optimizer::new(Method::default(), &params, None, options.backend).unwrap().on(&options.pool);
    let mut step = || _ = plan.learn(&mut params, 256, &feeds[..1], &mut optimizer, 3e-3, 1.0);
    (0..3).for_each(|_| step());
    let before = allocations();
    (0..40).for_each(|_| step());
    assert_eq!(allocations() - before, 0, "branches");
}
