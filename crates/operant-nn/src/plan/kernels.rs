//! Which kernels the ops of a plan have on a GPU, which of its tensors hold bf16, and where kernels are compiled.

use super::build::{Buffer, Place, Planned, Recipe, Step, Work};
use crate::cuda::{Args, Form, Launch, Text, Twin};
use crate::op::{Kind, Type};
use crate::precision::Precision;
use operant_base::{Error, Result};
use operant_device::cuda::{Gpu, Kernel, Module};
use operant_lanes::Math;
use std::sync::Arc;

/// What kernels are chosen for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) form: Form,
    /// Bytes of shared memory that a block may have.
    pub(super) shared: usize,
}

impl Target {
    pub(super) fn new(precision: Precision, gpu: &Gpu) -> Self {
        Self { form: form_of(precision), shared: gpu.info().shared_bytes }
    }

    /// For any GPU.
    pub(super) fn any(precision: Precision) -> Self {
        Self { form: form_of(precision), shared: 0 }
    }
}

/// An op's launches.
pub(super) fn chosen(node: &Planned, target: Target, max_rows: usize) -> Option<Twin> {
    let narrow = target.form == Form::Bf16 && narrow_op(node);
    let rare = node.part.is_some_and(|part| part.rare);
    node.op.twin(&node.types, max_rows).map(|twin| twin.chosen(narrow, rare, target.shared))
}

/// Those of all ops.
pub(super) fn twins_of(recipe: &Recipe, target: Target) -> Vec<Twin> {
    recipe.nodes.iter().map(|node| chosen(node, target, recipe.max_rows).unwrap_or_default()).collect()
}

/// Whether a tensor holds bf16 in a plan of that precision.
pub(super) fn several(ty: &Type) -> bool {
    ty.kind == Kind::Rows && ty.shape.len() > 1
}

/// Whether an op has such tensors.
pub(super) fn narrow_op(node: &Planned) -> bool {
    node.types.x.iter().chain(node.types.y.first()).any(several)
}

/// Which buffers hold bf16, or the op that takes one for f32: a view of something else, or what another op has beside its result.
pub(super) fn narrow_buffers(recipe: &Recipe, form: Form) -> Result<Vec<bool>, String> {
    let mut narrow: Vec<Option<bool>> = vec![None; recipe.slots.len()];
    if form != Form::Bf16 {
        return Ok(vec![false; narrow.len()]);
    }
    for step in &recipe.steps {
        let (Work::Forward { call } | Work::Backward { call, .. }) = step.work else { continue };
        let types = &recipe.nodes[call].types;
        let x = types.x.iter().map(several);
        let y = types.y.iter().enumerate().map(|(k, ty)| k == 0 && several(ty));
        let inputs = step.x.iter().zip(x.clone()).chain(step.dx.iter().zip(x));
        let outputs = step.y.iter().zip(y.clone()).chain(step.dy.iter().zip(y));
        for (buffer, is) in inputs.chain(outputs) {
            if buffer.is_some_and(|buffer| *narrow[buffer].get_or_insert(is) != is) {
                return Err(step.name.clone());
            }
        }
    }
    Ok(narrow.into_iter().map(|is| is == Some(true)).collect())
}

/// Ops of a plan that have no kernels, by the names of their calls.
pub(super) fn missing(recipe: &Recipe, target: Target) -> Vec<String> {
    let form = target.form;
    let served = |twin: &Twin, form| twin.forward.iter().chain(&twin.backward).all(|launch| launch.text.serves(form));
    let none = |step: &&Step| match step.work {
        Work::Forward { call } => {
            let node = &recipe.nodes[call];
            let narrow = form == Form::Bf16 && narrow_op(node);
            chosen(node, target, recipe.max_rows).is_none_or(|twin| narrow && !served(&twin, form))
        }
        _ => false,
    };
    let name = |step: &Step| match step.work {
        Work::Forward { call } => format!("{} \"{}\"", recipe.nodes[call].op.name(), step.name),
        _ => step.name.clone(),
    };
    recipe.steps.iter().filter(none).map(name).collect()
}

/// Channels of an input that all its readers can have as pixels of four numbers.
pub(super) fn pixels_of(recipe: &Recipe, twins: &[Twin], feed: usize) -> Option<usize> {
    let is = |buffer: &Option<Buffer>| buffer.is_some_and(|buffer| recipe.slots[buffer].place == Place::Feed(feed));
    let mut channels = None;
    for step in recipe.steps.iter().filter(|step| step.x.iter().chain(&step.y).any(is)) {
        let (Work::Forward { call } | Work::Backward { call, .. }) = step.work else { return None };
        let first = recipe.nodes[call].types.x.first()?;
        if !twins[call].pixels || step.x[1..].iter().any(is) || !several(first) {
            return None;
        }
        channels = first.shape.last().copied();
    }
    channels
}

/// Kernels for a precision.
fn form_of(precision: Precision) -> Form {
    match precision {
        Precision::F32 => Form::F32,
        Precision::Bf16 => Form::Bf16,
        Precision::Tf32 | Precision::F16 => Form::Tf32,
    }
}

/// Compiles texts when a kernel of them is wanted for the first time.
pub(super) struct Loader<'a> {
    gpu: &'a Arc<Gpu>,
    /// Kernels of the plan's own.
    chains: &'a str,
    modules: Vec<((Text, Form), Module)>,
    /// With their bytes of shared memory.
    names: Vec<((Text, Form), String, usize)>,
    pub(super) kernels: Vec<Kernel<Args>>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(gpu: &'a Arc<Gpu>, chains: &'a str) -> Self {
        Self { gpu, chains, modules: Vec::new(), names: Vec::new(), kernels: Vec::new() }
    }

    pub(super) fn kernel(&mut self, launch: &Launch, form: Form) -> Result<usize> {
        let (text, name, shared) = (launch.text, &launch.kernel, launch.shared);
        let same = |(of, known, bytes): &((Text, Form), String, usize)| {
            *of == (text, form) && known == name && *bytes == shared
        };
        if let Some(found) = self.names.iter().position(same) {
            return Ok(found);
        }
        if !self.modules.iter().any(|(known, _)| *known == (text, form)) {
            let mut source = text.source(form);
            if text == Text::Chains {
                source.push_str(self.chains);
            }
            let module = self.gpu.load(text.name(), &source, Math::Fast)?;
            self.modules.push(((text, form), module));
        }
        let module = self.modules.iter().find(|(known, _)| *known == (text, form)).map(|(_, module)| module);
        let mut kernel = module.ok_or_else(|| Error::Device(format!("no kernels {}", text.name())))?.kernel(name)?;
        if shared > 0 {
            kernel = kernel.with_shared(shared)?;
        }
        self.names.push(((text, form), name.clone(), shared));
        self.kernels.push(kernel);
        Ok(self.kernels.len() - 1)
    }
}
