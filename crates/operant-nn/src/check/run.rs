//! The checks: cases drawn, run in f64 and on every instruction set, and compared.

use super::{Case, Given, Random, Values, rows, shapes};
use crate::graph::{Graph, Node};
use crate::init::Init;
use crate::op::{Kind, Op};
use crate::plan::{Feed, Gradients, Options, Plan, Wanted};
use operant_base::Result;
use operant_lanes::Backend;
use operant_lanes::rng::HostRng;

fn draw(given: &Given, count: usize, stream: u32) -> Vec<f64> {
    let mut rng = HostRng::new(17, stream, 0, 0);
    let len = given.ty.len().max(1);
    let mut out: Vec<f64> = (0..count)
        .map(|i| match given.values {
            // A multiple of 1/1024: the same number in f32 and f64.
            Values::Normal => f64::from(rng.normal() * 1024.0).round() / 1024.0,
            Values::Positive => (f64::from(rng.unit()) * 1843.0).round() / 1024.0 + 0.2001953125,
            Values::Unit => (f64::from(rng.unit()) * 990.0).round() / 1024.0 + 0.0166015625,
            Values::AwayFromZero => {
                let x = f64::from(rng.normal() * 1024.0).round() / 1024.0;
                if x.abs() < 0.05 { x + 0.125f64.copysign(x) } else { x }
            }
            Values::Distinct => (i * 7919 % len) as f64 / 32.0 - len as f64 / 64.0,
            Values::Mask(_) => f64::from(rng.below(2)),
            Values::Below(n) => f64::from(rng.below(n as u32)),
        })
        .collect();
    if given.values == Values::Distinct {
        // 7919 is a prime above any row here, so a row holds each step once; rows differ by a turn.
        out.chunks_mut(len).for_each(|row| row.rotate_left(rng.below(len as u32) as usize));
    }
    if let Values::Mask(group) = given.values {
        for group in out.chunks_mut(group.max(1)) {
            if group.iter().all(|x| *x == 0.0) {
                let i = rng.below(group.len() as u32) as usize;
                group[i] = 1.0;
            }
        }
    }
    out
}

pub(super) struct Setting {
    pub(super) graph: Graph,
    pub(super) inputs: Vec<Node>,
    pub(super) outputs: Vec<Node>,
    loss: Node,
    /// Feeds: reals, and integers beside them.
    pub(super) reals: Vec<Vec<f64>>,
    pub(super) ints: Vec<Option<Vec<i32>>>,
    pub(super) params: Vec<f64>,
}

impl Setting {
    pub(super) fn new(case: &Case) -> Result<Self> {
        let mut graph = Graph::new();
        let (mut reals, mut ints, mut whole) = (Vec::new(), Vec::new(), Vec::new());
        let mut inputs = Vec::new();
        for (i, given) in case.inputs.iter().enumerate() {
            let (name, shape) = (format!("x{i}"), given.ty.shape.clone());
            let node = match given.ty.kind {
                Kind::Rows if given.fixed => graph.input(&name, shape),
                Kind::Rows => graph.input_with_gradient(&name, shape),
                Kind::Ints => graph.input_ints(&name, shape),
                Kind::Whole if given.fixed => graph.buffer(&name, shape, Init::Zeros),
                Kind::Whole => graph.param(&name, shape, Init::Zeros),
            };
            inputs.push(node);
            if given.ty.kind == Kind::Whole {
                whole.push((name, draw(given, given.ty.len(), i as u32)));
                continue;
            }
            let values = draw(given, given.ty.len() * case.rows, i as u32);
            ints.push((given.ty.kind == Kind::Ints).then(|| values.iter().map(|&x| x as i32).collect()));
            reals.push(values);
        }
        let outputs = (case.build)(&mut graph, &inputs)?;
        // The loss weighs every output number by a random one, so that no gradient is all zeros or all ones.
        let mut parts = Vec::new();
        for (i, &output) in
            outputs.iter().enumerate().filter(|(_, output)| graph.ty(**output).kind == Kind::Rows).collect::<Vec<_>>()
        {
            let shape = graph.shape(output).to_vec();
            let len = graph.ty(output).len();
            let weight = graph.input(&format!("weight of output {i}"), shape);
            reals.push(draw(&rows([len]), len * case.rows, 1000 + i as u32));
            ints.push(None);
            let product = graph.mul(output, weight)?;
            parts.push(graph.sum(product, 9)?);
        }
        let mut loss = parts[0];
        for &part in &parts[1..] {
            loss = graph.add(loss, part)?;
        }
        let layout = graph.params(0)?;
        let mut params: Vec<f64> = layout.values().iter().map(|&x| f64::from(x)).collect();
        for (name, values) in whole {
            params[layout.spec(&name)?.range()].copy_from_slice(&values);
        }
        let outputs = outputs.into_iter().filter(|output| graph.ty(*output).kind == Kind::Rows).collect();
        Ok(Self { graph, inputs, outputs, loss, reals, ints, params })
    }

    pub(super) fn wanted(&self) -> Wanted {
        Wanted { outputs: self.outputs.clone(), losses: vec![(self.loss, 1.0)], metrics: Vec::new() }
    }

    fn feeds<'a, R>(&'a self, reals: &'a [Vec<R>]) -> Vec<Feed<'a, R>> {
        reals
            .iter()
            .zip(&self.ints)
            .map(|(x, ints)| ints.as_ref().map_or(Feed::Real(x), |ints| Feed::Ints(ints)))
            .collect()
    }
}

/// Outputs, gradients of parameters and of inputs, as f64, each with a name.
pub(super) type Found = Vec<(String, Vec<f64>)>;

fn run_f32(setting: &Setting, rows: usize, options: &Options) -> Result<Found> {
    let mut plan = Plan::<f32>::new(&setting.graph, &setting.wanted(), rows, options)?;
    let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let reals: Vec<Vec<f32>> = setting.reals.iter().map(|x| narrow(x)).collect();
    plan.execute_with(&narrow(&setting.params), rows, &setting.feeds(&reals), Gradients::Replace);
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let mut found: Found =
        setting.outputs.iter().map(|&node| (setting.graph.name(node).to_owned(), wide(plan.output(node)))).collect();
    for &node in &setting.inputs {
        if let Some(gradient) = plan.input_gradient(node) {
            found.push((format!("gradient of {}", setting.graph.name(node)), wide(gradient)));
        }
    }
    found.push(("gradients of parameters".into(), wide(plan.gradients())));
    Ok(found)
}

pub(super) fn run_f64(plan: &mut Plan<f64>, setting: &Setting, rows: usize, params: &[f64], reals: &[Vec<f64>]) -> f64 {
    plan.execute_with(params, rows, &setting.feeds(reals), Gradients::Replace);
    plan.loss() * rows as f64
}

pub(super) fn close(name: &str, got: &[f64], wanted: &[f64], tolerance: f64) -> Result<(), String> {
    let scale = wanted.iter().fold(1e-3f64, |most, x| most.max(x.abs()));
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        // Infinities that agree are fine: masked log-probabilities.
        let error = if got == wanted { 0.0 } else { (got - wanted).abs() / scale };
        if error.is_nan() || error > tolerance {
            return Err(format!("{name}[{i}] is {got}, wanted {wanted}: off by {error:.1e} of {scale:.3}"));
        }
    }
    Ok(())
}

/// Holds one case to everything and gives how many gradients other than 0 it compared; the message says where it fails.
pub fn case(case: &Case) -> Result<usize, String> {
    let fail = |what: &str, error: String| format!("{case:?}: {what}: {error}");
    let setting = Setting::new(case).map_err(|error| fail("building", error.to_string()))?;
    let rows = case.rows;
    let mut plan = Plan::<f64>::new(&setting.graph, &setting.wanted(), rows, &Options::default())
        .map_err(|error| fail("planning", error.to_string()))?;
    run_f64(&mut plan, &setting, rows, &setting.params, &setting.reals);
    let mut wanted: Found =
        setting.outputs.iter().map(|&node| (setting.graph.name(node).to_owned(), plan.output(node).to_vec())).collect();
    // Gradients of the mean; finite differences are of the sum.
    let scale = rows as f64;
    let mut input_gradients = Vec::new();
    for &node in &setting.inputs {
        if let Some(gradient) = plan.input_gradient(node) {
            wanted.push((format!("gradient of {}", setting.graph.name(node)), gradient.to_vec()));
            input_gradients.push((node, gradient.to_vec()));
        }
    }
    wanted.push(("gradients of parameters".into(), plan.gradients().to_vec()));
    let param_gradients = plan.gradients().to_vec();

    // Central differences: errors of order ε² and 1e-16/ε meet near 1e-5.
    let epsilon = 1e-5;
    let mut compared = 0;
    let mut compare = |what: String, analytic: f64, numeric: f64| {
        let error = (analytic - numeric).abs() / (1.0 + numeric.abs());
        if error.is_nan() || error > 1e-6 {
            return Err(fail("gradient", format!("{what}: {analytic}, by finite differences {numeric}")));
        }
        compared += usize::from(numeric != 0.0);
        Ok(())
    };
    let mut params = setting.params.clone();
    let real: Vec<usize> = {
        let layout = setting.graph.params(0).map_err(|error| fail("parameters", error.to_string()))?;
        layout.specs().iter().filter(|spec| spec.trainable).flat_map(|spec| spec.range()).collect()
    };
    for &i in sample(&real, 60).iter() {
        let mut side = |delta: f64| {
            params[i] = setting.params[i] + delta;
            let loss = run_f64(&mut plan, &setting, rows, &params, &setting.reals);
            params[i] = setting.params[i];
            loss
        };
        let numeric = (side(epsilon) - side(-epsilon)) / (2.0 * epsilon);
        compare(format!("parameter {i}"), param_gradients[i] * scale, numeric)?;
    }
    let mut reals = setting.reals.clone();
    for (node, gradient) in &input_gradients {
        let feed = setting.graph.inputs.iter().position(|input| input == node).expect("is an input");
        for &i in sample(&(0..gradient.len()).collect::<Vec<_>>(), 60).iter() {
            let mut side = |delta: f64| {
                reals[feed][i] = setting.reals[feed][i] + delta;
                let loss = run_f64(&mut plan, &setting, rows, &setting.params, &reals);
                reals[feed][i] = setting.reals[feed][i];
                loss
            };
            let numeric = (side(epsilon) - side(-epsilon)) / (2.0 * epsilon);
            compare(format!("{}[{i}]", setting.graph.name(*node)), gradient[i] * scale, numeric)?;
        }
    }

    for name in ["portable", "avx2", "avx512", "amx"] {
        let Ok(backend) = Backend::named(name) else { continue };
        for tile_rows in [None, Some(3)] {
            let options = Options { backend, tile_rows, ..Options::default() };
            let found = run_f32(&setting, rows, &options).map_err(|error| fail(name, error.to_string()))?;
            for ((what, got), (_, wanted)) in found.iter().zip(&wanted) {
                let place = format!("f32 on {name}, tiles of {tile_rows:?}");
                close(what, got, wanted, case.tolerance).map_err(|error| fail(&place, error))?;
            }
        }
    }
    Ok(compared)
}

/// At most `count` of a list, evenly spread.
fn sample(list: &[usize], count: usize) -> Vec<usize> {
    let step = list.len().div_ceil(count).max(1);
    list.iter().step_by(step).copied().collect()
}

/// Holds an op to all its cases, over several draws of their shapes, and to refusing others.
pub fn op<O: Op>() -> Result<(), String> {
    let (mut compared, mut many, mut refused) = (0, false, 0);
    for seed in 0..3 {
        let cases = O::cases(&mut Random::new(seed));
        if cases.is_empty() {
            return Err(format!("{} has no cases", O::NAME));
        }
        for one in &cases {
            compared += case(one)?;
            many |= one.inputs.len() > 1;
            refused += shapes::refused(one)?;
        }
    }
    if compared == 0 {
        return Err(format!("no case of {} has a gradient", O::NAME));
    }
    if many && refused == 0 {
        return Err(format!("{} takes inputs of any shapes together", O::NAME));
    }
    Ok(())
}
