//! Kernels of ops against the CPU in f64: values and gradients, in groups that have networks and numbers of rows of their own.

use super::run::{Found, Setting, close, run_f64};
use super::{Case, Random};
use crate::op::Op;
use crate::plan::{CudaPlan, Networks, Options, Plan, Setup, Wanted};
use crate::precision::Precision;
use operant_device::cuda::Gpu;
use std::sync::Arc;

/// How many cases have kernels, and how many have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// With kernels.
    pub with: usize,
    /// Without.
    pub without: usize,
}

/// Which of an op's cases have kernels. Needs no GPU.
pub fn served<O: Op>() -> Result<Served, String> {
    let mut served = Served::default();
    for case in &O::cases(&mut Random::new(0)) {
        let setting = Setting::new(case).map_err(|error| format!("{case:?}: {error}"))?;
        let missing = CudaPlan::missing(&setting.graph, &setting.wanted(), Precision::F32)
            .map_err(|error| format!("{case:?}: {error}"))?;
        *(if missing.is_empty() { &mut served.with } else { &mut served.without }) += 1;
    }
    Ok(served)
}

/// Holds an op's kernels to all its cases that have some, over several draws of their shapes, in f32 and in bf16.
pub fn op<O: Op>(gpu: &Arc<Gpu>) -> Result<(), String> {
    let failures: Vec<String> = (0..3)
        .flat_map(|seed| O::cases(&mut Random::new(seed)))
        .flat_map(|one| {
            [Precision::F32, Precision::Bf16].map(|precision| (case(gpu, &one, precision), one.clone(), precision))
        })
        .filter_map(|(done, one, precision)| done.err().map(|error| format!("{one:?} in {precision:?}: {error}")))
        .collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// What the CPU finds in f64.
fn reference(setting: &Setting, wanted: &Wanted, rows: usize, params: &[f64]) -> operant_base::Result<Found> {
    let mut plan = Plan::<f64>::new(&setting.graph, wanted, rows, &Options::default())?;
    run_f64(&mut plan, setting, rows, params, &setting.reals);
    let name = |node| setting.graph.name(node).to_owned();
    let mut found: Found = setting.outputs.iter().map(|&node| (name(node), plan.output(node).to_vec())).collect();
    for &node in &setting.inputs {
        if let Some(gradient) = plan.input_gradient(node) {
            found.push((format!("gradient of {}", name(node)), gradient.to_vec()));
        }
    }
    if !wanted.losses.is_empty() {
        found.push(("gradients of parameters".into(), plan.gradients().to_vec()));
    }
    Ok(found)
}

/// What a group of the GPU's plan found, with gradients if it trains.
fn found(setting: &Setting, plan: &CudaPlan, group: usize, rows: usize, trains: bool) -> operant_base::Result<Found> {
    let wide = |x: Vec<f32>| x.into_iter().map(f64::from).collect::<Vec<f64>>();
    let name = |node| setting.graph.name(node).to_owned();
    let mut found = Found::new();
    for &node in &setting.outputs {
        found.extend(plan.read(node, false, group, rows)?.map(|x| (name(node), wide(x))));
    }
    for &node in &setting.inputs {
        found.extend(plan.read(node, true, group, rows)?.map(|x| (format!("gradient of {}", name(node)), wide(x))));
    }
    if trains {
        found.push(("gradients of parameters".into(), wide(plan.read_gradients(group)?)));
    }
    Ok(found)
}

/// Of the largest number of a tensor: what bf16 loses in an op or two.
const NARROW_TOLERANCE: f64 = 2e-2;

fn case(gpu: &Arc<Gpu>, case: &Case, precision: Precision) -> Result<(), String> {
    let mut setting = Setting::new(case).map_err(|error| error.to_string())?;
    if precision == Precision::Bf16 {
        // Numbers that bf16 has: what is largest stays so.
        let round = |x: &mut f64| *x = f64::from(f32::from_bits((*x as f32).to_bits() & 0xFFFF_0000));
        setting.reals.iter_mut().flatten().chain(&mut setting.params).for_each(round);
    }
    // With a way back, and without, where ops may keep less of the way forward.
    let forward = Wanted { outputs: setting.outputs.clone(), ..Wanted::default() };
    for (way, wanted) in [("both ways", setting.wanted()), ("forward", forward)] {
        let missing = CudaPlan::missing(&setting.graph, &wanted, precision).map_err(|error| error.to_string())?;
        if missing.is_empty() {
            let checked = check(gpu, case, &setting, &wanted, precision).map_err(|error| error.to_string());
            checked.and_then(|done| done).map_err(|error| format!("{way}: {error}"))?;
        }
    }
    Ok(())
}

fn check(
    gpu: &Arc<Gpu>,
    case: &Case,
    setting: &Setting,
    wanted: &Wanted,
    precision: Precision,
) -> operant_base::Result<Result<(), String>> {
    let rows = case.rows;
    let halved: Vec<f64> = setting.params.iter().map(|x| 0.5 * x).collect();
    let networks = Networks::new(gpu, &setting.graph, 2)?;
    let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    networks.values().upload(&[narrow(&halved), narrow(&setting.params)].concat())?;
    // The last group repeats the first.
    let groups = [(1usize, rows), (0, (rows - 1).max(1)), (1, rows)];
    let setup = Setup {
        groups: groups.len(),
        max_rows: rows,
        parts: 0,
        precision,
        shared: &[],
        pixels: false,
        leaders: 0,
        apart: &[],
        fuse: true,
    };
    let plan = CudaPlan::new(&setting.graph, wanted, &networks, &setup)?;
    plan.network_of().upload(&groups.map(|(network, _)| network as u32))?;
    plan.rows().upload(&groups.map(|(_, rows)| rows as u32))?;
    for (input, (reals, ints)) in setting.reals.iter().zip(&setting.ints).enumerate() {
        let Some(feed) = plan.feed(input) else { continue };
        match ints {
            Some(ints) => feed.upload(&vec![ints.clone(); groups.len()].concat())?,
            None => feed.upload(&vec![narrow(reals); groups.len()].concat())?,
        }
    }
    // Twice: nothing may be left over from a run.
    for _ in 0..2 {
        plan.draw_by(Options::default().seed)?;
        plan.run(|_| true)?;
    }
    let all: Vec<Found> = groups
        .iter()
        .enumerate()
        .map(|(group, (_, rows))| found(setting, &plan, group, *rows, !wanted.losses.is_empty()))
        .collect::<operant_base::Result<_>>()?;
    for (group, (params, got)) in [&setting.params, &halved].into_iter().zip(&all).enumerate() {
        let reference = reference(setting, wanted, groups[group].1, params)?;
        assert_eq!(got.len(), reference.len(), "as many tensors from both");
        for ((what, got), (_, wanted)) in got.iter().zip(&reference) {
            // Functions of the GPU may be off by a few of the last bits.
            let tolerance = if precision == Precision::Bf16 { NARROW_TOLERANCE } else { 4.0 * case.tolerance };
            if let Err(error) = close(what, got, wanted, tolerance) {
                return Ok(Err(format!("group {group}: {error}")));
            }
        }
    }
    let bits = |found: &Found| found.iter().flat_map(|(_, x)| x.iter().map(|x| x.to_bits())).collect::<Vec<_>>();
    Ok(if bits(&all[0]) == bits(&all[2]) { Ok(()) } else { Err("two groups alike have other bits".into()) })
}
