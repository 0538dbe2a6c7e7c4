//! Networks of every kind, trained by one, two and four threads: the same bits; and in every precision: near f32.

use super::cut::Cut;
use super::{Feed, Gradients, Options, Plan};
use crate::ops::{Conv2d, NormOptions};
use crate::{Act, Graph, Kind, Memory, Method, Node, Optimizer, Precision};
use operant_base::Result;
use operant_device::CpuPool;
use operant_device::gemm::amx;
use operant_lanes::rng::HostRng;
use std::sync::Arc;

const CLASSES: usize = 9;
/// Small gradients are 0 in f16 without it.
const LOSS_SCALE: f32 = 1024.0;

fn classified(g: &mut Graph, features: Node) -> Result<Node> {
    let class = g.input_ints("class", [1]);
    let logits = g.linear("head", features, CLASSES)?;
    g.cross_entropy(logits, class, 0.1, None)
}

fn images(g: &mut Graph) -> Result<Node> {
    let x = g.input("x", [12, 12, 3]);
    let h = g.conv2d("conv", x, Conv2d::new(32, 3).padding(1))?;
    let h = g.batch_norm("norm", h)?;
    let h = g.relu(h)?;
    let h = g.dropout(h, 0.2)?;
    let h = g.conv2d("depthwise", h, Conv2d::new(32, 3).groups(32).stride(2).padding(1))?;
    let h = g.conv2d("wide", h, Conv2d::new(32, 3).padding(1))?;
    let h = g.squeeze_excite("squeeze", h, 4)?;
    let h = g.max_pool(h, 2, 2, 0)?;
    let h = g.flatten(h)?;
    classified(g, h)
}

fn fields(g: &mut Graph) -> Result<Node> {
    let x = g.input("x", [8, 8, 32]);
    let waves = g.spectral("spectral", x, 32, [3, 3])?;
    let near = g.conv2d("conv", x, Conv2d::new(32, 3).circular(1))?;
    let h = g.add(waves, near)?;
    let options = NormOptions { act: Act::Gelu, noise: Some(0.1), ..NormOptions::default() };
    let h = g.instance_norm("norm", h, options)?;
    let h = g.upsample_bilinear(h, 2)?;
    let target = g.input("target", [16, 16, 32]);
    g.mse_loss(h, target)
}

fn sequences(g: &mut Graph) -> Result<Node> {
    let x = g.input("x", [8, 16]);
    let memory = Memory::default();
    let h = g.lstm("lstm", x, 24, 2, &memory)?.y;
    let h = g.layer_norm("norm", h)?;
    let h = g.gru("gru", h, 16, 1, &memory)?.y;
    let h = g.min_gru("min_gru", h, 16, false, &memory)?.y;
    let h = g.flatten(h)?;
    classified(g, h)
}

fn tokens(g: &mut Graph) -> Result<Node> {
    let x = g.input_ints("x", [8]);
    let h = g.embedding("embedding", x, CLASSES, 32)?;
    let mixed = g.attention("attention", h, 4, true, None)?;
    let h = g.add(h, mixed)?;
    let h = g.layer_norm("norm", h)?;
    let h = g.linear("fc", h, 64)?;
    let h = g.silu(h)?;
    let h = g.gaussian_noise(h, 0.1, false)?;
    let h = g.max(h, 1)?;
    classified(g, h)
}

enum Data {
    Real(Vec<f32>),
    Ints(Vec<i32>),
}

type Build = fn(&mut Graph) -> Result<Node>;

const KINDS: [(&str, Build); 4] =
    [("images", images), ("fields", fields), ("sequences", sequences), ("tokens", tokens)];

/// Other precisions than f32 that this CPU multiplies in.
fn narrow() -> impl Iterator<Item = Precision> {
    let bf16 = amx::available_to_tests().then_some(Precision::Bf16);
    bf16.into_iter().chain([Precision::F16])
}

/// Gradients of the first of a few steps; losses of all and the parameters after them, as bits.
fn train(build: Build, precision: Precision, pool: Arc<CpuPool>) -> (Vec<f32>, Vec<u32>) {
    let rows = 200;
    let mut g = Graph::new();
    let loss = build(&mut g).unwrap();
    let mut rng = HostRng::new(5, 0, 0, 0);
    let data = g.inputs().iter().map(|&input| {
        let count = g.ty(input).len() * rows;
        match g.ty(input).kind {
            Kind::Ints => Data::Ints((0..count).map(|_| rng.below(CLASSES as u32) as i32).collect()),
            _ => Data::Real((0..count).map(|_| rng.normal()).collect()),
        }
    });
    let data: Vec<Data> = data.collect();
    let feeds = data.iter().map(|data| match data {
        Data::Real(x) => Feed::Real(x),
        Data::Ints(x) => Feed::Ints(x),
    });
    let feeds: Vec<Feed> = feeds.collect();
    let mut params = g.params(1).unwrap();
    let options = Options { precision, pool, ..Options::default() };
    let mut plan = Plan::training(&g, loss, rows, &options).unwrap();
    let groups = Cut::new(&plan.recipe, rows, 4).groups;
    assert!(groups >= 4, "{groups} groups for four threads");
    let mut optimizer = Optimizer::new(Method::default(), &params, Some(1.0), options.backend).unwrap();
    let (mut losses, mut first) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let outcome = plan.train(&params, rows, &feeds, LOSS_SCALE, Gradients::Replace);
        plan.update_buffers(&mut params);
        if first.is_empty() {
            first = plan.gradients().iter().map(|x| x / LOSS_SCALE).collect();
        }
        let step = optimizer.step_scaled(&mut params, plan.gradients(), 1e-2, LOSS_SCALE);
        assert!(outcome.finite && step.finite && step.grad_norm > 0.0);
        losses.push(outcome.loss);
    }
    (first, losses.iter().chain(params.values()).map(|x| x.to_bits()).collect())
}

#[test]
fn bits_do_not_depend_on_threads_whatever_is_trained() {
    let pools = [1, 2, 4].map(|threads| Arc::new(CpuPool::new(threads)));
    for (name, build) in KINDS {
        for precision in narrow().chain([Precision::F32]) {
            let [one, two, four] = pools.each_ref().map(|pool| train(build, precision, Arc::clone(pool)).1);
            assert!(one == two, "{name}, {precision:?}, 2 threads");
            assert!(one == four, "{name}, {precision:?}, 4 threads");
        }
    }
}

#[test]
fn gradients_in_less_precision_stay_near_those_in_f32() {
    let size = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    let pool = Arc::new(CpuPool::new(2));
    for (name, build) in KINDS {
        let wanted = train(build, Precision::F32, Arc::clone(&pool)).0;
        for precision in narrow() {
            let got = train(build, precision, Arc::clone(&pool)).0;
            let error = size(&mut got.iter().zip(&wanted).map(|(a, b)| a - b)) / size(&mut wanted.iter().copied());
            // Rounded numbers may be on the other side of a ReLU, or another one the largest of a pool.
            let most = if precision == Precision::Bf16 { 8e-2 } else { 1e-2 };
            assert!(error < most, "{name}, {precision:?}: off by {error:.1e}");
            assert!(error > 0.0, "{name}, {precision:?}: computed in f32");
        }
    }
}
