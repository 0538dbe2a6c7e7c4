//! Runs a graph on inputs that PyTorch was given, and compares outputs and gradients with PyTorch's.
//!
//! A case in a golden file is `<case>/x0`, `<case>/x1` … (inputs, batch first; integers become integer inputs),
//! `<case>/p.<name>` (parameters and buffers), `<case>/y0` … (outputs), `<case>/w0` … (the gradient of the summed loss with
//! respect to each output), `<case>/dx0` … and `<case>/dp.<name>` (gradients where PyTorch gave one).
#![allow(dead_code, reason = "each test that includes this file uses a part of it")]

pub(crate) mod covered;

use covered::{Held, VIEW};
use operant_base::Result;
use operant_nn::ops::OPS;
use operant_nn::{Feed, Gradients, Graph, Kind, Node, Options, Plan, Wanted};
use safetensors::{Dtype, SafeTensors};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

pub(crate) struct Golden {
    name: String,
    bytes: Vec<u8>,
}

enum Data {
    Real(Vec<f32>),
    Ints(Vec<i32>),
}

thread_local! {
    /// Cases that this thread has checked.
    static CHECKED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

impl Golden {
    /// Every case is checked by one of these tests, which are run once more.
    pub(crate) fn has_tests(&self, tests: &[fn()]) {
        CHECKED.with_borrow_mut(BTreeSet::clear);
        tests.iter().for_each(|test| test());
        assert_eq!(CHECKED.take(), self.cases().into_iter().collect());
    }

    /// A file in `tests/golden_nn/`.
    pub(crate) fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_nn").join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { name: name.to_owned(), bytes }
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap()
    }

    /// Names of all cases.
    pub(crate) fn cases(&self) -> Vec<String> {
        let tensors = self.tensors();
        let mut names: Vec<String> =
            tensors.names().iter().filter_map(|name| name.split_once('/').map(|(case, _)| case.to_owned())).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Shape and values of a float tensor, if it is there.
    pub(crate) fn get(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let (shape, data) = self.any(name)?;
        match data {
            Data::Real(values) => Some((shape, values)),
            Data::Ints(_) => None,
        }
    }

    fn any(&self, name: &str) -> Option<(Vec<usize>, Data)> {
        let tensors = self.tensors();
        let tensor = tensors.tensor(name).ok()?;
        let (shape, bytes) = (tensor.shape().to_vec(), tensor.data());
        let data = match tensor.dtype() {
            Dtype::F32 => {
                Data::Real(bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect())
            }
            Dtype::I32 => {
                Data::Ints(bytes.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect())
            }
            other => panic!("{name}: {other:?}"),
        };
        Some((shape, data))
    }

    /// Builds the graph of a case, runs it and compares everything, relative to the largest number of each tensor.
    pub(crate) fn check(&self, case: &str, tolerance: f64, build: impl Fn(&mut Graph, &[Node]) -> Result<Vec<Node>>) {
        CHECKED.with_borrow_mut(|checked| checked.insert(case.to_owned()));
        let mut graph = Graph::new();
        let (mut inputs, mut data, mut rows) = (Vec::new(), Vec::new(), 0);
        while let Some((shape, values)) = self.any(&format!("{case}/x{}", inputs.len())) {
            let name = format!("x{}", inputs.len());
            rows = shape[0];
            let has_gradient = self.get(&format!("{case}/d{name}")).is_some();
            inputs.push(match values {
                Data::Ints(_) => graph.input_ints(&name, &shape[1..]),
                Data::Real(_) if has_gradient => graph.input_with_gradient(&name, &shape[1..]),
                Data::Real(_) => graph.input(&name, &shape[1..]),
            });
            data.push(values);
        }
        assert!(rows > 0, "no case {case}; run the generator again");
        let outputs = build(&mut graph, &inputs).unwrap();
        let mut losses = Vec::new();
        for (i, &output) in outputs.iter().enumerate() {
            let Some((shape, weights)) = self.get(&format!("{case}/w{i}")) else { continue };
            assert_eq!(graph.ty(output).kind, Kind::Rows);
            assert_eq!(graph.shape(output), &shape[1..], "{case}: shape of output {i}");
            let weight = graph.input(&format!("w{i}"), &shape[1..]);
            data.push(Data::Real(weights));
            let product = graph.mul(output, weight).unwrap();
            losses.push((graph.sum(product, 9).unwrap(), 1.0));
        }
        let mut params = graph.params(0).unwrap();
        let names: Vec<String> = params.specs().iter().map(|spec| spec.name.clone()).collect();
        for name in &names {
            let (shape, values) =
                self.get(&format!("{case}/p.{name}")).unwrap_or_else(|| panic!("{case}: no parameter {name}"));
            assert_eq!(params.spec(name).unwrap().shape, shape, "{case}: shape of {name}");
            params.set(name, &values).unwrap();
        }
        let wanted = Wanted { outputs: outputs.clone(), losses: losses.clone(), metrics: Vec::new() };
        let mut plan: Plan = Plan::new(&graph, &wanted, rows, &Options::default()).unwrap();
        for entry in OPS.iter().filter(|entry| Held::by(entry.name) == Held::Golden(&self.name, case)) {
            let runs = entry.name == VIEW || plan.steps().any(|step| step.op == entry.label);
            assert!(runs, "{case}: the list says that it holds {}, which does not run here", entry.name);
        }
        let feeds: Vec<Feed> = data
            .iter()
            .map(|data| match data {
                Data::Real(x) => Feed::Real(x),
                Data::Ints(x) => Feed::Ints(x),
            })
            .collect();
        if losses.is_empty() {
            plan.forward(&params, rows, &feeds);
        } else {
            plan.train(&params, rows, &feeds, 1.0, Gradients::Replace);
        }
        for (i, &output) in outputs.iter().enumerate() {
            if let Some((_, wanted)) = self.get(&format!("{case}/y{i}")) {
                close(&format!("{case}: output {i}"), plan.output(output), &wanted, 1.0, tolerance);
            }
        }
        for (i, &input) in inputs.iter().enumerate() {
            if let Some((_, wanted)) = self.get(&format!("{case}/dx{i}")) {
                let got = plan.input_gradient(input).unwrap_or_else(|| panic!("{case}: no gradient of input {i}"));
                close(&format!("{case}: gradient of input {i}"), got, &wanted, rows as f32, tolerance);
            }
        }
        for name in &names {
            if let Some((_, wanted)) = self.get(&format!("{case}/dp.{name}")) {
                let got = &plan.gradients()[params.spec(name).unwrap().range()];
                close(&format!("{case}: gradient of {name}"), got, &wanted, rows as f32, tolerance);
            }
        }
    }
}

/// Compares `got · factor` with what is wanted: a plan's gradients are of the mean over rows, PyTorch's here of the sum.
pub(crate) fn close(what: &str, got: &[f32], wanted: &[f32], factor: f32, tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let scale = wanted.iter().filter(|x| x.is_finite()).fold(1e-3f64, |most, &x| most.max(f64::from(x).abs()));
    for (i, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let got = got * factor;
        let error = if got == wanted { 0.0 } else { f64::from(got - wanted).abs() / scale };
        assert!(error <= tolerance, "{what}[{i}]: got {got}, PyTorch {wanted}: off by {error:.1e} of {scale:.3}");
    }
}
