//! A network as a graph: inputs, parameters, ops. Built once, planned for a batch size, run many times.

use super::init::Init;
use super::op::{DynOp, Kind, MAX_INPUTS, MAX_OUTPUTS, Op, Type};
use super::params::{ParamSpec, Params};
use operant_base::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A tensor of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    number: u32,
    graph: GraphId,
}

impl Node {
    pub(super) fn index(self) -> usize {
        self.number as usize
    }
}

/// Tells graphs apart; a clone has the same, since it has the same tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct GraphId(u32);

impl Default for GraphId {
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Fed at every run, in order.
    Input { number: usize, gradient: bool },
    /// A parameter or buffer, in order.
    Param { number: usize, trainable: bool },
    /// An output of an op.
    Op { op: usize },
}

#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) source: Source,
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) op: Arc<dyn DynOp>,
    pub(super) inputs: Vec<Node>,
    pub(super) outputs: Vec<Node>,
    /// See [`Graph::under`].
    pub(super) part: Option<Part>,
    /// See [`Graph::following`].
    pub(super) follows: Option<u32>,
}

/// A part of a graph that some groups of a plan do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) number: u32,
    /// Whether few groups have it, so that its kernels are small.
    pub(super) rare: bool,
}

/// A network under construction. Layers are methods, each in the file of its op under `nn/ops/`.
///
/// ```
/// use operant_nn::{Graph, Options, Plan};
///
/// let mut g = Graph::new();
/// let x = g.input("x", [4]);
/// let h = g.linear("fc1", x, 64)?;
/// let h = g.tanh(h)?;
/// let y = g.linear("fc2", h, 2)?;
/// let params = g.params(0)?;
/// let mut plan = Plan::inference(&g, &[y], 8, &Options::default())?;
/// plan.forward(&params, 3, &[(&[0.5; 12][..]).into()]);
/// assert_eq!(plan.output(y).len(), 3 * 2);
/// # Ok::<(), operant_base::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(super) values: Vec<Value>,
    pub(super) calls: Vec<Call>,
    pub(super) params: Vec<ParamSpec>,
    pub(super) inputs: Vec<Node>,
    part: Option<Part>,
    follows: Option<u32>,
    id: GraphId,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    fn value(&mut self, name: String, ty: Type, source: Source) -> Node {
        self.values.push(Value { name, ty, source });
        Node { number: self.values.len() as u32 - 1, graph: self.id }
    }

    fn any_input(&mut self, name: &str, ty: Type, gradient: bool) -> Node {
        let source = Source::Input { number: self.inputs.len(), gradient };
        let node = self.value(name.to_owned(), ty, source);
        self.inputs.push(node);
        node
    }

    /// An input of so many numbers per sample. Inputs are fed in the order in which they were declared.
    pub fn input(&mut self, name: &str, shape: impl Into<Vec<usize>>) -> Node {
        self.any_input(name, Type::rows(shape), false)
    }

    /// An input whose gradient can be read after a training run.
    pub fn input_with_gradient(&mut self, name: &str, shape: impl Into<Vec<usize>>) -> Node {
        self.any_input(name, Type::rows(shape), true)
    }

    /// An input of integers: classes, actions, tokens.
    pub fn input_ints(&mut self, name: &str, shape: impl Into<Vec<usize>>) -> Node {
        self.any_input(name, Type::ints(shape), false)
    }

    /// An input of numbers that all rows share, such as a coefficient that changes as training goes on.
    pub fn input_whole(&mut self, name: &str, shape: impl Into<Vec<usize>>) -> Node {
        self.any_input(name, Type::whole(shape), false)
    }

    /// A trained parameter.
    pub fn param(&mut self, name: &str, shape: impl Into<Vec<usize>>, init: Init) -> Node {
        self.any_param(ParamSpec::new(name, &shape.into(), init))
    }

    /// A tensor that is saved with the parameters but has no gradient.
    pub fn buffer(&mut self, name: &str, shape: impl Into<Vec<usize>>, init: Init) -> Node {
        self.any_param(ParamSpec::buffer(name, &shape.into(), init))
    }

    fn any_param(&mut self, spec: ParamSpec) -> Node {
        let source = Source::Param { number: self.params.len(), trainable: spec.trainable };
        let node = self.value(spec.name.clone(), Type::whole(spec.shape.clone()), source);
        self.params.push(spec);
        node
    }

    /// The parameter of this name.
    pub fn find_param(&self, name: &str) -> Option<Node> {
        let is = |value: &Value| matches!(value.source, Source::Param { .. }) && value.name == name;
        self.values.iter().position(is).map(|place| Node { number: place as u32, graph: self.id })
    }

    /// Adds an op; `name` is for messages, and may be empty.
    pub fn add_op<O: Op>(&mut self, name: &str, op: O, inputs: &[Node]) -> Result<Vec<Node>> {
        self.add_dyn_op(name, Arc::new(op), inputs)
    }

    /// [`add_op`](Self::add_op), compiled once for all ops.
    fn add_dyn_op(&mut self, name: &str, op: Arc<dyn DynOp>, inputs: &[Node]) -> Result<Vec<Node>> {
        let number = self.calls.len();
        let name = if name.is_empty() { format!("{}_{number}", op.name()) } else { name.to_owned() };
        for node in inputs {
            self.check(*node, &name)?;
        }
        let types: Vec<Type> = inputs.iter().map(|node| self.values[node.index()].ty.clone()).collect();
        let describe = |node: &Node| format!("{} {}", self.values[node.index()].name, self.values[node.index()].ty);
        let fail = |reason: String| {
            let inputs: Vec<String> = inputs.iter().map(describe).collect();
            Error::Invalid(format!("{} \"{name}\" of {}: {reason}", op.name(), inputs.join(", ")))
        };
        if inputs.len() > MAX_INPUTS {
            return Err(fail(format!("at most {MAX_INPUTS} inputs")));
        }
        let twice = |i: usize| types[i].kind == Kind::Whole && inputs[..i].contains(&inputs[i]);
        if let Some(i) = (0..inputs.len()).find(|&i| twice(i)) {
            return Err(fail(format!("takes {} twice", self.name(inputs[i]))));
        }
        let outputs = op.outputs(&types).map_err(fail)?;
        debug_assert!(outputs.len() <= MAX_OUTPUTS);
        let many = outputs.len() > 1;
        let outputs: Vec<Node> = outputs
            .into_iter()
            .enumerate()
            .map(|(i, ty)| {
                let name = if many && i > 0 { format!("{name}.{i}") } else { name.clone() };
                self.value(name, ty, Source::Op { op: number })
            })
            .collect();
        let (part, follows) = (self.part, self.follows);
        self.calls.push(Call { name, op, inputs: inputs.to_vec(), outputs: outputs.clone(), part, follows });
        Ok(outputs)
    }

    /// Ops that are added from now on belong to a part of this number, which a [`CudaPlan`](super::CudaPlan) leaves out for the
    /// groups that are told so; `None` ends this. Other plans know nothing of parts.
    pub fn under(&mut self, part: Option<u32>) {
        self.part = part.map(|number| Part { number, rare: true });
    }

    /// The same for a part that most groups have: kernels are chosen as for what all have.
    pub fn under_common(&mut self, part: u32) {
        self.part = Some(Part { number: part, rare: false });
    }

    /// Ops that are added from now on read tensors with rows of the group that a table of this number names in place of their own
    /// group's ([`CudaPlan::leaders`](super::CudaPlan::leaders)); `None` ends this. Only in plans on a GPU that do not learn.
    pub fn following(&mut self, table: Option<u32>) {
        self.follows = table;
    }

    /// Adds an op and gives its first output.
    pub fn apply<O: Op>(&mut self, name: &str, op: O, inputs: &[Node]) -> Result<Node> {
        self.add_op(name, op, inputs).map(|outputs| outputs[0])
    }

    /// Inputs in the order in which they are fed.
    pub fn inputs(&self) -> &[Node] {
        &self.inputs
    }

    /// Whether a tensor is of this graph. Those of clones that went on by themselves are not told apart.
    fn is_own(&self, node: Node) -> bool {
        node.graph == self.id && node.index() < self.values.len()
    }

    /// An error if a tensor is of another graph; `user` is what wants it.
    pub(super) fn check(&self, node: Node, user: &str) -> Result<()> {
        self.is_own(node).then_some(()).ok_or_else(|| {
            let next = "wanted one that this graph's own methods gave";
            Error::Invalid(format!("\"{user}\" takes tensor {} of another graph; {next}", node.number))
        })
    }

    fn value_of(&self, node: Node) -> &Value {
        assert!(self.is_own(node), "tensor {} is of another graph", node.number);
        &self.values[node.index()]
    }

    /// Type of a tensor. Panics if it is of another graph.
    pub fn ty(&self, node: Node) -> &Type {
        &self.value_of(node).ty
    }

    /// Shape of a tensor without its batch axis.
    pub fn shape(&self, node: Node) -> &[usize] {
        &self.ty(node).shape
    }

    /// Name of a tensor, for messages. Panics if it is of another graph.
    pub fn name(&self, node: Node) -> &str {
        &self.value_of(node).name
    }

    /// The last axis of a tensor with rows, or a message that names the layer that wanted one.
    pub(super) fn features(&self, layer: &str, x: Node) -> Result<usize> {
        self.check(x, layer)?;
        let ty = self.ty(x);
        match ty.shape.last() {
            Some(&features) if ty.kind == Kind::Rows && features > 0 => Ok(features),
            _ => Err(Error::Invalid(format!(
                "\"{layer}\" of {} {ty}: wanted an input with rows and at least one axis",
                self.name(x)
            ))),
        }
    }

    /// Parameters and buffers with their first values.
    pub fn params(&self, seed: u64) -> Result<Params> {
        let mut params = Params::new(self.params.clone())?;
        params.initialise(seed);
        Ok(params)
    }
}
