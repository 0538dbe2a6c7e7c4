//! From a graph to steps: dead ops dropped, activations fused, gradients added, steps sorted into stages, buffers placed.

use super::super::graph::{Call, Graph, Node, Part, Source};
use super::super::op::{Act, DynOp, Kind, Op, Packing, Type, Types};
use super::super::ops::{MOST_LAYERS, Tower};
use super::branches::Branches;
use super::memory::{ALIGN, Demand, pack};
use operant_base::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Number of a buffer.
pub(super) type Buffer = usize;

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The caller's slice of this number.
    Feed(usize),
    /// Offset among parameters.
    Param(usize),
    /// Offset in a worker's arena, which holds one tile.
    Tile(usize),
    /// Offset in memory that holds the whole batch.
    Full(usize),
    /// Offset among sums over the batch: gradients of parameters first, laid out like them.
    Sum(usize),
}

/// A buffer: where, and how many numbers per row (in all, for buffers without rows).
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) len: usize,
    pub(super) kind: Kind,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    Forward {
        call: usize,
    },
    Backward {
        call: usize,
        add: u32,
    },
    /// `to += from`.
    Add,
    /// Begins the gradient of a loss: weight / rows.
    Seed {
        weight: f32,
    },
    /// Adds up the rows of a tensor.
    Total,
}

/// A step with its buffers. A forward step has x and y, a backward step x, y, dy and dx; `Add` has from in `x` and to
/// in `y`, `Seed` the gradient in `y`, `Total` the rows in `x` and the sum in `y`.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) work: Work,
    pub(super) name: String,
    pub(super) x: Vec<Option<Buffer>>,
    pub(super) y: Vec<Option<Buffer>>,
    pub(super) dy: Vec<Option<Buffer>>,
    pub(super) dx: Vec<Option<Buffer>>,
    /// Bit k: it is the first to write the sum `dx[k]`, and can overwrite it.
    pub(super) begin: u32,
    pub(super) stage: usize,
}

/// The bodies of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Forward,
    Backward,
}

impl Step {
    fn new(work: Work, name: String) -> Self {
        Self { work, name, x: vec![], y: vec![], dy: vec![], dx: vec![], begin: 0, stage: 0 }
    }

    /// The node whose body it runs, and which.
    pub(super) fn body(&self) -> Option<(usize, Body)> {
        match self.work {
            Work::Forward { call } => Some((call, Body::Forward)),
            Work::Backward { call, .. } => Some((call, Body::Backward)),
            _ => None,
        }
    }

    fn is_backward(&self) -> bool {
        matches!(self.work, Work::Backward { .. })
    }

    pub(super) fn reads(&self) -> impl Iterator<Item = Buffer> + '_ {
        let y = if self.is_backward() { &self.y[..] } else { &[] };
        let to = if self.work == Work::Add { &self.y[..] } else { &[] };
        let added = self.dx.iter().enumerate().filter(|(i, _)| match self.work {
            Work::Backward { add, .. } => add >> i & 1 == 1,
            _ => false,
        });
        let added = added.filter_map(|(_, buffer)| *buffer);
        self.x.iter().chain(y).chain(to).chain(&self.dy).filter_map(|buffer| *buffer).chain(added)
    }

    pub(super) fn writes(&self) -> impl Iterator<Item = Buffer> + '_ {
        let y = if self.is_backward() { &[] } else { &self.y[..] };
        y.iter().chain(&self.dx).filter_map(|buffer| *buffer)
    }
}

/// One op after fusion.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) op: Arc<dyn DynOp>,
    pub(super) name: String,
    pub(super) types: Types,
    pub(super) packings: Vec<Packing>,
    pub(super) flops: u64,
    /// See [`Graph::under`].
    pub(super) part: Option<Part>,
    /// See [`Graph::following`].
    pub(super) follows: Option<u32>,
    /// Buffers of inputs without rows.
    pub(super) x: Vec<Option<Buffer>>,
}

/// What is wanted of a plan. With a loss it is a training plan: dropout drops, gradients are computed.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Tensors to be read after a run.
    pub outputs: Vec<Node>,
    /// Losses with their weights: one number per row each.
    pub losses: Vec<(Node, f32)>,
    /// Tensors whose mean over rows is wanted.
    pub metrics: Vec<Node>,
}

impl Wanted {
    fn training(&self) -> bool {
        !self.losses.is_empty()
    }

    fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.outputs.iter().chain(&self.metrics).chain(self.losses.iter().map(|(node, _)| node)).copied()
    }
}

/// Which ops become one.
pub(super) struct Merging<'a> {
    /// Whether fully connected layers that follow each other do.
    pub(super) towers: bool,
    /// Whether an op can add another tensor to its result.
    pub(super) takes_sum: &'a dyn Fn(&Planned) -> bool,
    /// When steps run, where that is not one by one.
    pub(super) timing: &'a dyn Fn(&Recipe) -> Option<Timing>,
}

/// When steps run, and what needs no memory.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    /// The first and the last step whose memory each step's must not be.
    pub(super) at: Vec<(usize, usize)>,
    /// Buffers that lie nowhere.
    pub(super) nowhere: Vec<bool>,
}

/// Everything about a plan that does not change when it runs.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) nodes: Vec<Planned>,
    pub(super) steps: Vec<Step>,
    pub(super) slots: Vec<Slot>,
    pub(super) stages: usize,
    /// Elements of a worker's arena, of whole-batch memory, of sums, of parameters.
    pub(super) tile_len: usize,
    pub(super) full_len: usize,
    pub(super) sums_len: usize,
    pub(super) params_len: usize,
    /// The same in a training plan, else 0.
    pub(super) grads_len: usize,
    /// Sums that a later stage reads: reduced after their stage.
    pub(super) early_sums: Vec<(usize, Buffer)>,
    /// Sums that no step begins: cleared before the first.
    pub(super) cleared: Vec<Range<usize>>,
    /// What two threads of a CPU can have one each of where there are few rows.
    pub(super) branches: Option<Branches>,
    pub(super) tile_rows: usize,
    /// Rows below which a tile is not cut for the sake of more groups.
    pub(super) least_rows: usize,
    pub(super) max_rows: usize,
    /// Buffers of values that can be read after a run, of their gradients, of losses and metrics.
    pub(super) readable: Vec<(Node, Buffer)>,
    pub(super) gradients: Vec<(Node, Buffer)>,
    pub(super) losses: Vec<(Buffer, f32)>,
    pub(super) metrics: Vec<(Node, Buffer)>,
    pub(super) feeds: Vec<(String, usize, Kind)>,
    pub(super) flops: u64,
    pub(super) training: bool,
}

struct Builder<'g> {
    graph: &'g Graph,
    slots: Vec<Slot>,
    steps: Vec<Step>,
    /// Value buffer and gradient buffer of each root value.
    value: Vec<Option<Buffer>>,
    grad: Vec<Option<Buffer>>,
    root: Vec<usize>,
    /// Of each root the one whose value it has: another where an op passes it on.
    passed: Vec<usize>,
    sums_len: usize,
}

/// Unplaced buffers carry this until memory is planned.
const UNPLACED: Place = Place::Tile(usize::MAX);

impl Builder<'_> {
    fn buffer(&mut self, place: Place, len: usize, kind: Kind) -> Buffer {
        self.slots.push(Slot { place, len, kind });
        self.slots.len() - 1
    }

    fn sum(&mut self, len: usize) -> Buffer {
        let at = self.sums_len;
        self.sums_len = (at + len).next_multiple_of(ALIGN);
        self.buffer(Place::Sum(at), len, Kind::Whole)
    }

    fn value(&mut self, node: Node, offsets: &[usize]) -> Buffer {
        let root = self.passed[self.root[node.index()]];
        if let Some(buffer) = self.value[root] {
            return buffer;
        }
        let value = &self.graph.values[root];
        let (len, kind) = (value.ty.len(), value.ty.kind);
        let buffer = match value.source {
            Source::Input { number, .. } => self.buffer(Place::Feed(number), len, kind),
            Source::Param { number, .. } => self.buffer(Place::Param(offsets[number]), len, kind),
            Source::Op { .. } if kind == Kind::Whole => self.sum(len),
            Source::Op { .. } => self.buffer(UNPLACED, len, kind),
        };
        self.value[root] = Some(buffer);
        buffer
    }

    /// A buffer for a new part of a gradient: the gradient itself for the first, a temporary one for the others, which
    /// `true` announces.
    fn part_of_gradient(&mut self, root: usize, offsets: &[usize]) -> (Buffer, bool) {
        if let Some(buffer) = self.grad[root] {
            return (buffer, true);
        }
        let value = &self.graph.values[root];
        let (len, kind) = (value.ty.len(), value.ty.kind);
        let buffer = match value.source {
            Source::Param { number, .. } => self.buffer(Place::Sum(offsets[number]), len, kind),
            _ if kind == Kind::Whole => self.sum(len),
            _ => self.buffer(UNPLACED, len, kind),
        };
        self.grad[root] = Some(buffer);
        (buffer, false)
    }
}

/// Inputs that a call reads in this kind of plan.
fn read_inputs<'a>(call: &'a Call, wanted: &Wanted) -> impl Iterator<Item = &'a Node> {
    let training = wanted.training();
    call.inputs.iter().enumerate().filter(move |(k, _)| call.op.reads(*k, training)).map(|(_, node)| node)
}

/// Fuses activations into the ops before them and drops ops that nothing wanted depends on.
fn simplify(graph: &Graph, wanted: &Wanted, towers: bool) -> Vec<Call> {
    let ends: Vec<Node> = wanted.nodes().collect();
    let mut needed = vec![false; graph.values.len()];
    ends.iter().for_each(|node| needed[node.index()] = true);
    let mut calls: Vec<Option<Call>> = graph.calls.iter().cloned().map(Some).collect();
    for call in calls.iter_mut().rev() {
        let live = call.as_ref().is_some_and(|call| call.outputs.iter().any(|node| needed[node.index()]));
        match call {
            Some(call) if live => read_inputs(call, wanted).for_each(|node| needed[node.index()] = true),
            _ => *call = None,
        }
    }
    let mut uses = vec![0; graph.values.len()];
    for node in calls.iter().flatten().flat_map(|call| read_inputs(call, wanted)).chain(&ends) {
        uses[node.index()] += 1;
    }
    let mut producer: Vec<Option<usize>> = vec![None; graph.values.len()];
    for i in 0..calls.len() {
        let Some(call) = calls[i].clone() else { continue };
        let source = call.inputs.first().map(|node| node.index());
        if let (Some(act), Some(source)) = (call.op.activation(), source)
            && uses[source] == 1
            && call.follows.is_none()
            && let Some(before) = producer[source]
            && let Some(previous) = &mut calls[before]
            && previous.outputs[0].index() == source
            && let Some(fused) = previous.op.fuse(act, wanted.training())
        {
            previous.op = fused;
            previous.outputs[0] = call.outputs[0];
            producer[call.outputs[0].index()] = Some(before);
            calls[i] = None;
            continue;
        }
        call.outputs.iter().for_each(|node| producer[node.index()] = Some(i));
    }
    let calls = calls.into_iter().flatten().collect();
    if towers { merge_layers(graph, &uses, calls) } else { calls }
}

/// Makes one op of fully connected layers that follow each other, where [`Tower`] can be had: it needs every hidden
/// layer for itself.
fn merge_layers(graph: &Graph, uses: &[usize], mut calls: Vec<Call>) -> Vec<Call> {
    let mut producer: Vec<Option<usize>> = vec![None; graph.values.len()];
    let mut merged = vec![false; calls.len()];
    for i in 0..calls.len() {
        calls[i].outputs.iter().for_each(|node| producer[node.index()] = Some(i));
        if calls[i].op.layer() != Some(Act::Identity) {
            continue;
        }
        let mut layers = vec![i];
        let mut act = None;
        loop {
            let source = calls[layers[0]].inputs[0].index();
            let before = producer[source].filter(|_| uses[source] == 1 && layers.len() < MOST_LAYERS);
            let Some(before) = before else { break };
            match calls[before].op.layer() {
                Some(found) if *act.get_or_insert(found) == found => layers.insert(0, before),
                _ => break,
            }
        }
        // A chain that is too long keeps its last layers.
        let Some(act) = act else { continue };
        let mut inputs = vec![calls[layers[0]].inputs[0]];
        inputs.extend(layers.iter().flat_map(|&layer| &calls[layer].inputs[1..]));
        // Gradients of a tensor that is there twice can't be two outputs of one op.
        if (1..inputs.len()).any(|k| inputs[..k].contains(&inputs[k])) {
            continue;
        }
        let types: Vec<Type> = inputs.iter().map(|&node| graph.ty(node).clone()).collect();
        let tower = Tower { act };
        if Op::outputs(&tower, &types).is_err() {
            continue;
        }
        let hidden = layers[..layers.len() - 1].iter().map(|&layer| calls[layer].outputs[0]);
        let outputs: Vec<Node> = std::iter::once(calls[i].outputs[0]).chain(hidden).collect();
        layers[..layers.len() - 1].iter().for_each(|&layer| merged[layer] = true);
        let name = name_of_all(&calls[layers[0]].name, &calls[i].name);
        calls[i] = Call { name, op: Arc::new(tower), inputs, outputs, part: None, follows: None };
    }
    let mut number = 0..;
    calls.retain(|_| !merged[number.next().expect("endless")]);
    calls
}

/// `actor.0` and `actor.4` as `actor.0..4`.
fn name_of_all(first: &str, last: &str) -> String {
    let same = first.rfind('.').filter(|&dot| last.rfind('.') == Some(dot) && first[..dot] == last[..dot]);
    format!("{first}..{}", same.map_or(last, |dot| &last[dot + 1..]))
}

impl Recipe {
    /// Whether a backward step makes the gradient of this node's first input.
    pub(super) fn wants_first_gradient(&self, node: usize) -> bool {
        let of_node = |step: &&Step| matches!(step.work, Work::Backward { call, .. } if call == node);
        self.steps.iter().filter(of_node).any(|step| step.dx.first().is_some_and(Option::is_some))
    }

    /// Where a node's input lies among the parameters, if it is one.
    pub(super) fn param(&self, node: usize, input: usize) -> Option<std::ops::Range<usize>> {
        let slot = self.slots[self.nodes[node].x[input]?];
        if let Place::Param(at) = slot.place { Some(at..at + slot.len) } else { None }
    }

    /// Plans a graph. `offsets` are those of the parameters, `params_len` their length with padding.
    pub(super) fn new(
        graph: &Graph,
        wanted: &Wanted,
        offsets: &[usize],
        params_len: usize,
        max_rows: usize,
        merging: &Merging,
        tile_rows: impl FnOnce(usize, usize) -> usize,
    ) -> Result<Self> {
        wanted.nodes().try_for_each(|node| graph.check(node, "plan"))?;
        for (node, _) in &wanted.losses {
            let ty = graph.ty(*node);
            if ty.kind != Kind::Rows || ty.len() != 1 {
                return Err(Error::Invalid(format!(
                    "loss {} {ty}: wanted one number per row; reduce it with mean or sum",
                    graph.name(*node)
                )));
            }
        }
        let grads_len = if wanted.training() { params_len } else { 0 };
        let calls = simplify(graph, wanted, merging.towers);
        if let Some(node) = wanted.outputs.iter().find(|node| graph.ty(**node).kind != Kind::Rows) {
            let (name, ty) = (graph.name(*node), graph.ty(*node));
            return Err(Error::Invalid(format!("output {name} {ty}: wanted a tensor with rows")));
        }
        let mut root: Vec<usize> = (0..graph.values.len()).collect();
        for call in calls.iter().filter(|call| call.op.is_view()) {
            root[call.outputs[0].index()] = root[call.inputs[0].index()];
        }
        let computed = |node: &Node| matches!(graph.values[root[node.index()]].source, Source::Op { .. });
        if let Some(node) = wanted.outputs.iter().find(|node| !computed(node)) {
            let name = graph.name(*node);
            return Err(Error::Invalid(format!("output {name} is an input: wanted a tensor that an op makes")));
        }
        let mut passed: Vec<usize> = (0..graph.values.len()).collect();
        for call in calls.iter().filter(|call| call.op.passes() && computed(&call.inputs[0])) {
            passed[root[call.outputs[0].index()]] = passed[root[call.inputs[0].index()]];
        }
        let mut b = Builder {
            graph,
            slots: Vec::new(),
            steps: Vec::new(),
            value: vec![None; graph.values.len()],
            grad: vec![None; graph.values.len()],
            root,
            passed,
            sums_len: grads_len,
        };
        let nodes: Vec<Planned> = calls.iter().map(|call| b.node(call, offsets)).collect();
        let used: Vec<bool> = b.used(&calls, wanted);
        for (i, call) in calls.iter().enumerate().filter(|(_, call)| !call.op.is_view()) {
            let to = b.root[call.outputs[0].index()];
            if b.passed[to] != to {
                continue;
            }
            let mut step = Step::new(Work::Forward { call: i }, nodes[i].name.clone());
            let read = |k: usize| call.op.reads(k, wanted.training());
            step.x = call.inputs.iter().enumerate().map(|(k, &n)| read(k).then(|| b.value(n, offsets))).collect();
            step.y =
                call.outputs.iter().map(|&node| used[b.root[node.index()]].then(|| b.value(node, offsets))).collect();
            b.steps.push(step);
        }
        let total = |b: &mut Builder, node: Node| {
            let value = b.value(node, offsets);
            let sum = b.sum(graph.ty(node).len());
            let mut step = Step::new(Work::Total, format!("mean of {}", graph.name(node)));
            (step.x, step.y) = (vec![Some(value)], vec![Some(sum)]);
            b.steps.push(step);
            sum
        };
        let losses: Vec<(Buffer, f32)> =
            wanted.losses.iter().map(|&(node, weight)| (total(&mut b, node), weight)).collect();
        let metrics: Vec<(Node, Buffer)> = wanted.metrics.iter().map(|&node| (node, total(&mut b, node))).collect();
        if wanted.training() {
            b.differentiate(&calls, &nodes, wanted, offsets);
        }
        let readable: Vec<(Node, Buffer)> = wanted.outputs.iter().map(|&node| (node, b.value(node, offsets))).collect();
        let with_gradient = graph.inputs.iter().filter(|node| {
            matches!(graph.values[node.index()].source, Source::Input { gradient: true, .. }) && wanted.training()
        });
        let gradients: Vec<(Node, Buffer)> =
            with_gradient.filter_map(|&node| Some((node, b.grad[node.index()]?))).collect();
        let keep: Vec<Buffer> = readable.iter().chain(&gradients).map(|(_, buffer)| *buffer).collect();
        let flops = nodes.iter().map(|node| node.flops).sum();
        let feeds = graph.inputs.iter().map(|node| {
            let value = &graph.values[node.index()];
            (value.name.clone(), value.ty.len(), value.ty.kind)
        });
        let mut recipe = Self {
            nodes,
            steps: b.steps,
            slots: b.slots,
            stages: 0,
            tile_len: 0,
            full_len: 0,
            sums_len: b.sums_len,
            params_len,
            grads_len,
            cleared: Vec::new(),
            branches: None,
            early_sums: Vec::new(),
            tile_rows: 0,
            least_rows: 1,
            max_rows,
            readable,
            gradients,
            losses,
            metrics,
            feeds: feeds.collect(),
            flops,
            training: wanted.training(),
        };
        recipe.merge_sums(&keep, merging.takes_sum);
        recipe.sort_into_stages();
        recipe.begin_sums();
        let timing = (merging.timing)(&recipe);
        recipe.place(&keep, timing.as_ref(), tile_rows);
        Ok(recipe)
    }

    /// Lets an op that can do so add what a sum would add to its result: that is then the step's last input. On the way back both
    /// have the gradient of the sum, and one of them the memory.
    fn merge_sums(&mut self, keep: &[Buffer], takes_sum: &dyn Fn(&Planned) -> bool) {
        let mut at = 0;
        while at < self.steps.len() {
            at += 1;
            let sum = &self.steps[at - 1];
            let (Work::Forward { call }, &[Some(other), Some(part)], &[Some(to)]) = (sum.work, &sum.x[..], &sum.y[..])
            else {
                continue;
            };
            let node = &self.nodes[call];
            let by = self.steps[..at - 1].iter().rposition(|step| step.writes().any(|buffer| buffer == part));
            let readers = self.steps.iter().filter(|step| step.reads().any(|buffer| buffer == part)).count();
            let (Some(by), 1, true, false) = (by, readers, node.op.is_sum(), other == part || keep.contains(&part))
            else {
                continue;
            };
            let fits = |step: &Step| match step.work {
                Work::Forward { call } => {
                    takes_sum(&self.nodes[call]) && self.nodes[call].part == node.part && node.follows.is_none()
                }
                _ => false,
            };
            // What is added must be there already.
            let early = !self.steps[by..at - 1].iter().any(|step| step.writes().any(|buffer| buffer == other));
            if !fits(&self.steps[by]) || !early {
                continue;
            }
            self.steps[by].x.push(Some(other));
            self.steps[by].y[0] = Some(to);
            at -= 1;
            self.steps.remove(at);
            self.share_gradient(call, keep);
        }
    }

    /// Gives the second input of a sum the gradient of its result, where nothing else adds to it.
    fn share_gradient(&mut self, call: usize, keep: &[Buffer]) {
        let is = |step: &Step| matches!(step.work, Work::Backward { call: of, .. } if of == call);
        let Some(at) = self.steps.iter().position(is) else { return };
        let (Some(from), Some(to)) = (self.steps[at].dy[0], self.steps[at].dx[1]) else { return };
        let writers = self.steps.iter().filter(|step| step.writes().any(|buffer| buffer == to)).count();
        if writers != 1 || keep.contains(&to) || keep.contains(&from) {
            return;
        }
        self.steps[at].dx[1] = None;
        for step in &mut self.steps {
            for buffer in step.dy.iter_mut().filter(|buffer| **buffer == Some(to)) {
                *buffer = Some(from);
            }
        }
        if self.steps[at].dx.iter().all(Option::is_none) {
            self.steps.remove(at);
        }
    }

    /// A step that reads a sum over the batch runs in a stage after all that add to it.
    fn sort_into_stages(&mut self) {
        let mut written: Vec<Option<usize>> = vec![None; self.slots.len()];
        for step in &mut self.steps {
            let is_sum = |buffer: Buffer| matches!(self.slots[buffer].place, Place::Sum(_));
            let after = |buffer: Buffer| written[buffer].map(|stage| stage + usize::from(is_sum(buffer)));
            step.stage = step.reads().filter_map(after).max().unwrap_or(0);
            for buffer in step.writes().collect::<Vec<_>>() {
                written[buffer] = Some(written[buffer].unwrap_or(0).max(step.stage));
            }
        }
        self.steps.sort_by_key(|step| step.stage);
        self.stages = self.steps.last().map_or(0, |step| step.stage + 1);
        let mut early: Vec<(usize, Buffer)> = Vec::new();
        for step in &self.steps {
            for buffer in step.reads() {
                if matches!(self.slots[buffer].place, Place::Sum(_))
                    && let Some(stage) = written[buffer]
                    && !early.contains(&(stage, buffer))
                {
                    early.push((stage, buffer));
                }
            }
        }
        self.early_sums = early;
    }

    /// Lets the first step that adds to a parameter's gradient overwrite it, where it can.
    fn begin_sums(&mut self) {
        let (mut written, mut begun) = (vec![false; self.slots.len()], Vec::new());
        for step in &mut self.steps {
            let writes: Vec<Buffer> = step.writes().collect();
            let can = match step.work {
                Work::Backward { call, .. } => self.nodes[call].op.begins(&self.nodes[call].types),
                _ => 0,
            };
            for (k, buffer) in step.dx.iter().enumerate().filter_map(|(k, buffer)| buffer.map(|buffer| (k, buffer))) {
                let once = !written[buffer] && writes.iter().filter(|other| **other == buffer).count() == 1;
                let Slot { place: Place::Sum(at), len, .. } = self.slots[buffer] else { continue };
                if can >> k & 1 == 1 && once && at + len <= self.grads_len {
                    step.begin |= 1 << k;
                    // What fills it up to a whole line is zero from the start.
                    begun.push(at..(at + len).next_multiple_of(ALIGN));
                }
            }
            writes.into_iter().for_each(|buffer| written[buffer] = true);
        }
        begun.sort_by_key(|range| range.start);
        let ends = begun.iter().map(|range| range.start).chain([self.sums_len]);
        let starts = [0].into_iter().chain(begun.iter().map(|range| range.end));
        self.cleared = starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty()).collect();
    }

    /// Gives every unplaced buffer its place: in the tile if one stage uses it, else in memory for the whole batch.
    fn place(&mut self, keep: &[Buffer], timing: Option<&Timing>, tile_rows: impl FnOnce(usize, usize) -> usize) {
        let mut life: Vec<Option<(usize, usize)>> = vec![None; self.slots.len()];
        for (i, step) in self.steps.iter().enumerate() {
            let (begins, ends) = timing.map_or((i, i), |timing| timing.at[i]);
            for buffer in step.reads().chain(step.writes()) {
                let (first, last) = life[buffer].get_or_insert((begins, ends));
                (*first, *last) = ((*first).min(begins), (*last).max(ends));
            }
        }
        let nowhere = |buffer: Buffer| timing.is_some_and(|timing| timing.nowhere[buffer]);
        let unplaced = |buffer: Buffer| self.slots[buffer].place == UNPLACED && !nowhere(buffer);
        let (mut tile, mut full) = (Vec::new(), Vec::new());
        for buffer in (0..self.slots.len()).filter(|&buffer| unplaced(buffer)) {
            let kept = keep.contains(&buffer);
            let (first, last) = life[buffer].unwrap_or((0, 0));
            if kept || self.steps[first].stage != self.steps[last].stage {
                let last = if kept { self.steps.len() } else { last };
                full.push((buffer, first, last));
            } else {
                tile.push((buffer, first, last));
            }
        }
        let slots = &mut self.slots;
        let demands = |list: &[(Buffer, usize, usize)], slots: &[Slot], rows: usize| -> Vec<Demand> {
            list.iter().map(|&(buffer, first, last)| Demand { len: slots[buffer].len * rows, first, last }).collect()
        };
        let per_row = pack(&demands(&tile, slots, 1)).1;
        let least = self.nodes.iter().map(|node| node.op.least_rows(&node.types)).max().unwrap_or(1);
        self.tile_rows = tile_rows(per_row, least).clamp(1, self.max_rows.max(1));
        self.least_rows = least.min(self.tile_rows);
        let (offsets, len) = pack(&demands(&tile, slots, self.tile_rows));
        for ((buffer, ..), offset) in tile.iter().zip(offsets) {
            slots[*buffer].place = Place::Tile(offset);
        }
        self.tile_len = len;
        // A stage reads and writes whole-batch memory in tiles, so buffers of one stage never share it.
        let stage_span = |&(buffer, first, last): &(Buffer, usize, usize)| {
            let stage = |step: usize| self.steps.get(step).map_or(self.stages, |step| step.stage);
            (buffer, stage(first), stage(last))
        };
        let full: Vec<(Buffer, usize, usize)> = full.iter().map(stage_span).collect();
        let (offsets, len) = pack(&demands(&full, slots, self.max_rows));
        for ((buffer, ..), offset) in full.iter().zip(offsets) {
            slots[*buffer].place = Place::Full(offset);
        }
        self.full_len = len;
    }
}

impl Builder<'_> {
    fn node(&mut self, call: &Call, offsets: &[usize]) -> Planned {
        let ty = |node: &Node| self.graph.ty(*node).clone();
        let types = Types { x: call.inputs.iter().map(ty).collect(), y: call.outputs.iter().map(ty).collect() };
        let whole = |node: &&Node| self.graph.ty(**node).kind == Kind::Whole;
        let wholes: Vec<Option<Node>> = call.inputs.iter().map(|node| whole(&node).then_some(*node)).collect();
        Planned {
            name: call.name.clone(),
            packings: call.op.packings(&types),
            flops: call.op.flops(&types),
            part: call.part,
            follows: call.follows,
            op: Arc::clone(&call.op),
            types,
            x: wholes.into_iter().map(|node| node.map(|node| self.value(node, offsets))).collect(),
        }
    }

    /// Roots that something reads.
    fn used(&self, calls: &[Call], wanted: &Wanted) -> Vec<bool> {
        let mut used = vec![false; self.graph.values.len()];
        let mut mark = |node: &Node| used[self.root[node.index()]] = true;
        calls.iter().flat_map(|call| &call.inputs).for_each(&mut mark);
        wanted
            .outputs
            .iter()
            .chain(&wanted.metrics)
            .chain(wanted.losses.iter().map(|(node, _)| node))
            .for_each(&mut mark);
        if wanted.training() {
            for call in calls {
                let ty = |node: &Node| self.graph.ty(*node).clone();
                let types = Types { x: call.inputs.iter().map(ty).collect(), y: call.outputs.iter().map(ty).collect() };
                let needs = call.op.needs(&types);
                let outputs = call.outputs.iter().enumerate().filter(|(i, _)| needs.outputs >> i & 1 == 1);
                outputs.for_each(|(_, node)| mark(node));
            }
        }
        used
    }

    /// Adds the steps of reverse-mode differentiation.
    fn differentiate(&mut self, calls: &[Call], nodes: &[Planned], wanted: &Wanted, offsets: &[usize]) {
        let mut wants: Vec<bool> = self
            .graph
            .values
            .iter()
            .map(|value| {
                matches!(value.source, Source::Input { gradient: true, .. } | Source::Param { trainable: true, .. })
            })
            .collect();
        for call in calls {
            let flows = |(k, node): (usize, &Node)| wants[node.index()] && call.op.differentiable(k);
            if call.inputs.iter().enumerate().any(flows) {
                call.outputs.iter().for_each(|node| wants[node.index()] = true);
            }
        }
        for &(node, weight) in &wanted.losses {
            let root = self.root[node.index()];
            if !wants[node.index()] {
                continue;
            }
            let (gradient, add) = self.part_of_gradient(root, offsets);
            let name = format!("gradient of {}", self.graph.name(node));
            let target = if add { self.buffer(UNPLACED, 1, Kind::Rows) } else { gradient };
            let mut step = Step::new(Work::Seed { weight }, name.clone());
            step.y = vec![Some(target)];
            self.steps.push(step);
            if add {
                self.add(target, gradient, name);
            }
        }
        for (i, call) in calls.iter().enumerate().rev().filter(|(_, call)| !call.op.is_view()) {
            let gradient = |b: &Self, node: &Node| b.grad[b.root[node.index()]];
            if call.outputs.iter().all(|node| gradient(self, node).is_none()) {
                continue;
            }
            let needs = nodes[i].op.needs(&nodes[i].types);
            let name = format!("gradient of {}", nodes[i].name);
            let mut step = Step::new(Work::Backward { call: i, add: 0 }, name.clone());
            let always = |node: Node| self.graph.ty(node).kind != Kind::Rows;
            let reads: Vec<bool> =
                call.inputs.iter().enumerate().map(|(k, &node)| needs.inputs >> k & 1 == 1 || always(node)).collect();
            step.x =
                call.inputs.iter().zip(reads).map(|(&node, read)| read.then(|| self.value(node, offsets))).collect();
            let kept = |k: usize| needs.outputs >> k & 1 == 1;
            step.y =
                call.outputs.iter().enumerate().map(|(k, &node)| kept(k).then(|| self.value(node, offsets))).collect();
            step.dy = call.outputs.iter().map(|node| gradient(self, node)).collect();
            let mut additions = Vec::new();
            let mut add_mask = 0;
            for (k, node) in call.inputs.iter().enumerate() {
                let root = self.root[node.index()];
                let ty = &self.graph.values[root].ty;
                if !wants[root] || ty.kind == Kind::Ints || !nodes[i].op.differentiable(k) {
                    step.dx.push(None);
                    continue;
                }
                let (gradient, again) = self.part_of_gradient(root, offsets);
                let whole = ty.kind == Kind::Whole;
                // An op that takes the same tensor twice can't hold its gradient twice.
                let twice = step.dx.contains(&Some(gradient));
                if again && !whole && (twice || !nodes[i].op.adds()) {
                    let part = self.buffer(UNPLACED, ty.len(), ty.kind);
                    additions.push((part, gradient));
                    step.dx.push(Some(part));
                } else {
                    add_mask |= u32::from(again && !whole) << k;
                    step.dx.push(Some(gradient));
                }
            }
            step.work = Work::Backward { call: i, add: add_mask };
            self.steps.push(step);
            for (part, gradient) in additions {
                self.add(part, gradient, name.clone());
            }
        }
    }

    fn add(&mut self, from: Buffer, to: Buffer, name: String) {
        let mut step = Step::new(Work::Add, format!("{name}, added"));
        (step.x, step.y) = (vec![Some(from)], vec![Some(to)]);
        self.steps.push(step);
    }
}
