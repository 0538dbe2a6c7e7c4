//! `operant bench nn --device cuda`: the same question of a network on a GPU.

use super::nn::{Args, Choice};
use crate::output::{Failure, grouped, print};
use operant::device::cuda::{Buffer, Event, Gpu, Graph};
use operant::device::{self, Device};
use operant::lanes::rng::HostRng;
use operant::nn::cuda::{Adam, Layout, Mlp};
use operant::nn::{Act, Precision, nets::Architecture};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

/// Runs of a graph until so many seconds have passed, and the GPU's seconds for one: the best of several parts counts.
fn measure(gpu: &Arc<Gpu>, seconds: f64, body: impl Fn() -> operant::Result<()>) -> operant::Result<f64> {
    // The first run loads code, which a graph cannot.
    body()?;
    let graph = Graph::record(gpu, body)?;
    let (before, after) = (Event::new(gpu)?, Event::new(gpu)?);
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed().as_secs_f64() < seconds || best.is_infinite() {
        before.record()?;
        for _ in 0..PART {
            graph.launch()?;
        }
        after.record()?;
        best = best.min(after.seconds_since(&before)? / f64::from(PART));
    }
    Ok(best)
}

/// Runs that are timed together.
const PART: u32 = 20;

pub(super) fn run(args: &Args, batch: usize, precision: Precision) -> Result<(), Failure> {
    let failed = |error: operant::Error| Failure::Run(error.to_string());
    let name = args.net_name();
    let Device::Cuda(gpu) = Device::named(&args.device).map_err(failed)? else {
        return Err(Failure::Usage(format!("--device {}: wanted cuda or cuda:i", args.device)));
    };
    if args.net != Choice::Mlp {
        let next = "wanted --net mlp or --device cpu; operant bench growth measures convolutions there, operant bench ppo networks with a memory";
        return Err(Failure::Usage(format!("--net {name}: networks of layers alone are timed on a GPU; {next}")));
    }
    let architecture = Choice::mlp(args.hidden());
    let Architecture::ActorCritic { inputs, actions, .. } = architecture else {
        return Err(Failure::Run("a network without actor and critic".into()));
    };
    let report = measured(args, &gpu, &architecture, [batch, inputs, actions], precision).map_err(failed)?;
    let Report { forward_s, train_s, peak, forward_flops, train_flops, parameters, workspace_bytes } = report;
    let [forward, train] = [forward_flops / forward_s * 1e-9, train_flops / train_s * 1e-9];
    if args.json {
        let object = json!({
            "net": name, "batch": batch, "precision": precision.name(), "threads": 1, "forward_gflops": forward,
            "train_gflops": train, "allocs": 0, "workspace_bytes": workspace_bytes, "forward_us": forward_s * 1e6,
            "train_us": train_s * 1e6, "peak_gflops": peak, "forward_share": forward / peak, "train_share": train / peak,
            "parameters": parameters, "tile_rows": batch, "backend": "cuda",
            "note": "peak: products of the largest layers by themselves", "ops": [], "device": gpu.describe(),
            "machine": device::describe(),
        });
        return print(&format!("{object}\n"));
    }
    let line = |what: &str, gflops: f64, s: f64| {
        let share = 100.0 * gflops / peak;
        format!(
            "{what:<19}{gflops:.0} GFLOP/s, {share:.0} % of {peak:.0} that products of its largest layers reach alone, {:.1} µs per batch\n",
            s * 1e6
        )
    };
    print(&format!(
        "{name}  {} parameters, batch {}, {}, {}\nmachine            {}\n{}{}workspace          {} bytes\n",
        grouped(parameters as f64),
        grouped(batch as f64),
        precision.name(),
        args.device,
        gpu.describe(),
        line("forward", forward, forward_s),
        line("forward+back+Adam", train, train_s),
        grouped(workspace_bytes as f64),
    ))
}

struct Report {
    forward_s: f64,
    train_s: f64,
    /// Of the largest layers' products by themselves, in GFLOP/s.
    peak: f64,
    forward_flops: f64,
    train_flops: f64,
    parameters: usize,
    workspace_bytes: usize,
}

fn measured(
    args: &Args,
    gpu: &Arc<Gpu>,
    architecture: &Architecture,
    [batch, inputs, actions]: [usize; 3],
    precision: Precision,
) -> operant::Result<Report> {
    let net = architecture.build()?;
    let params = net.graph.params(0)?;
    let mlp = Mlp::new(gpu, Layout::new(&params, &["actor", "critic"], &[])?, Act::Tanh, precision)?;
    let zeros = vec![0.0; params.len()];
    mlp.send(params.values(), [&zeros, &zeros])?;
    let before = gpu.memory()?.0;
    let workspace = mlp.workspace(batch, true, "--batch")?;
    let workspace_bytes = before.saturating_sub(gpu.memory()?.0);
    let (forward, train) = (mlp.pass(batch, false)?, mlp.pass(batch, true)?);
    let mut rng = HostRng::new(0, 0, 0, 0);
    let mut random = |len: usize| -> operant::Result<Buffer<f32>> {
        let numbers: Vec<f32> = (0..len).map(|_| rng.normal()).collect();
        let buffer = Buffer::new(gpu, len, "a batch", "--batch")?;
        buffer.upload(&numbers)?;
        Ok(buffer)
    };
    let (obs, logits, values) = (random(batch * inputs)?, random(batch * actions)?, random(batch)?);
    let (how, norm) = (
        Buffer::<u32>::new(gpu, Adam::WORDS, "settings", "--batch")?,
        Buffer::<f32>::new(gpu, 1, "a norm", "--batch")?,
    );
    let share = 1.0 / batch as f32;
    how.upload(
        &Adam { learning_rate: 1e-4, beta1: 0.9, beta2: 0.999, eps: 1e-8, max_norm: 0.0, share, step: 0 }.words(),
    )?;
    mlp.encode(&workspace, obs.pointer(), batch)?;
    let forward_s = measure(gpu, args.seconds, || mlp.forward(&workspace, &forward, workspace.input()))?;
    let train_s = measure(gpu, args.seconds, || {
        mlp.forward(&workspace, &train, workspace.input())?;
        mlp.squared_error(&workspace, &train, 0, actions, logits.pointer())?;
        mlp.squared_error(&workspace, &train, 1, 1, values.pointer())?;
        mlp.backward(&workspace, &train, workspace.input(), false)?;
        mlp.step(&workspace, batch, &[], how.pointer(), norm.pointer(), 0)
    })?;
    let products_flops = mlp.largest_products(&workspace, &train)?;
    let products_s = measure(gpu, args.seconds, || mlp.largest_products(&workspace, &train).map(drop))?;
    // A product of a weight is a multiplication and an addition; as much again for each of two gradients.
    let weights: usize = params.specs().iter().filter(|spec| spec.shape.len() == 2).map(|spec| spec.count()).sum();
    let forward_flops = 2.0 * (weights * batch) as f64;
    Ok(Report {
        forward_s,
        train_s,
        peak: products_flops / products_s * 1e-9,
        forward_flops,
        train_flops: 3.0 * forward_flops,
        parameters: params.count(),
        workspace_bytes,
    })
}
