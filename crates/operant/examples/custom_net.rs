//! A network of one's own: build it, plan it, train it, save it, load it.
//!
//! `cargo run --release --package operant --example custom_net`

use operant::Result;
use operant::lanes::rng::HostRng;
use operant::nn::{Feed, Graph, Metadata, Method, Optimizer, Options, Plan};

const ROWS: usize = 256;

/// Builds a network, trains it, saves and loads it.
pub fn main() -> Result<()> {
    // y = sin(3a)·b, from two numbers.
    let mut g = Graph::new();
    let x = g.input("x", [2]);
    let h = g.linear("fc1", x, 64)?;
    let h = g.tanh(h)?;
    let h = g.linear("fc2", h, 64)?;
    let h = g.tanh(h)?;
    let y = g.linear("fc3", h, 1)?;
    let target = g.input("target", [1]);
    let loss = g.mse_loss(y, target)?;

    let options = Options::default();
    let mut params = g.params(0)?;
    let mut plan = Plan::training(&g, loss, ROWS, &options)?;
    let mut adam = Optimizer::new(Method::default(), &params, Some(1.0), options.backend)?;

    let mut rng = HostRng::new(0, 0, 0, 0);
    let (mut inputs, mut targets) = (vec![0.0; ROWS * 2], vec![0.0; ROWS]);
    for step in 0..=2000 {
        for (x, target) in inputs.chunks_exact_mut(2).zip(&mut targets) {
            (x[0], x[1]) = (rng.unit() * 2.0 - 1.0, rng.unit() * 2.0 - 1.0);
            *target = (3.0 * x[0]).sin() * x[1];
        }
        let feeds = [Feed::Real(&inputs), Feed::Real(&targets)];
        let (outcome, _) = plan.learn(&mut params, ROWS, &feeds, &mut adam, 3e-3, 1.0);
        if step % 500 == 0 {
            println!("step {step:>4}  loss {:.6}", outcome.loss);
        }
    }

    let path = std::env::temp_dir().join("custom_net.safetensors");
    params.save(&path, &Metadata::default())?;
    let mut loaded = g.params(1)?;
    loaded.load(&path)?;

    let mut policy = Plan::inference(&g, &[y], 1, &options)?;
    policy.forward(&loaded, 1, &[Feed::Real(&[0.5, 1.0]), Feed::Real(&[0.0])]);
    println!("f(0.5, 1) = {:.3}, wanted {:.3}", policy.output(y)[0], 1.5f32.sin());
    Ok(())
}
