//! A step of an optimiser and a sample of actions allocate nothing.

use operant_device::alloc::{CountingAllocator, allocations};
use operant_lanes::{Backend, Math, Width};
use operant_nn::dist::{Categorical, Draws, SquashedGaussian};
use operant_nn::{Ema, Init, Method, Optimizer, ParamSpec, Params};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// One test in this file: allocations of another test's thread would be counted too.
#[test]
fn updates_and_samples_do_not_allocate() {
    let counted = allocations();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert!(allocations() > counted, "the counter counts");
    let backend = Backend::new(Width::Auto, Math::Strict);
    let mut params = Params::new(vec![
        ParamSpec::new("weight", &[40, 20], Init::HeNormal),
        ParamSpec::new("bias", &[40], Init::Zeros),
    ])
    .unwrap();
    params.initialise(0);
    let grads = params.clone();
    let mut ema = Ema::new(&params, backend);
    let methods = [Method::SGD, Method::default(), Method::ADAMW, Method::MUON];
    let mut optimizers = methods.map(|method| Optimizer::new(method, &params, Some(1.0), backend).unwrap());
    let (mut actions, mut raw, mut squashed, mut log_probs) = ([0; 40], [0.0; 40], [0.0; 40], [0.0; 40]);
    let legal = [1; 800];
    let before = allocations();
    for step in 0..3 {
        for optimizer in &mut optimizers {
            optimizer.step(&mut params, grads.values(), 1e-3);
        }
        ema.update(&params, 0.99);
        let draws = Draws { seed: 0, first_row: 0, step };
        let weight = grads.get("weight").unwrap();
        let choices = Categorical::new(weight, 20, Some(&legal), backend).unwrap();
        choices.sample(draws, &mut actions, &mut log_probs);
        choices.entropy(&mut log_probs);
        let gaussian = SquashedGaussian::new(&weight[..40], &[0.0], 1, backend).unwrap();
        gaussian.sample(draws, &mut raw, &mut squashed, &mut log_probs);
    }
    assert_eq!(allocations() - before, 0);
}
