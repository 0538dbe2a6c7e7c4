//! A plan on a GPU, for many networks at once: groups.
//!
//! All groups have the same steps. Group g's activations, gradients and sums lie g strides behind the first one's, so a step is
//! one launch whatever the number of groups. A group has a network's parameters by one index and samples by another: several
//! groups may share either. Its rows may be fewer than the most, and parts of the graph ([`Graph::under`]) may be left out of it:
//! blocks of such groups end at once. Memory is planned and allocated once, a run launches and does nothing else, so that it can
//! be recorded; sums have a fixed order, and so the same numbers give the same bits on the same GPU, alone or among others.

use super::beside::{Beside, Lanes};
use super::build::{Buffer, Merging, Place, Planned, Recipe, Slot, Wanted, Work};
use super::chains::Chains;
use super::kernels::{Loader, Target, chosen, missing, narrow_buffers, narrow_op, pixels_of, twins_of};
use crate::cuda::{Args, COLLAPSE, Form, Launch, PIXELS, Tensor, Text, Twin};
use crate::graph::{Call, Graph, Node};
use crate::op::{Kind, MAX_INPUTS, MAX_OUTPUTS};
use crate::params::Params;
use crate::precision::Precision;
use operant_base::{Error, Result};
use operant_device::cuda::{self, DevicePtr, Gpu, Kernel};
use std::sync::Arc;

/// Parameters of several networks of one layout, one behind the other in a GPU's memory.
#[derive(Debug)]
pub struct Networks {
    gpu: Arc<Gpu>,
    values: cuda::Buffer<f32>,
    len: usize,
    count: usize,
}

impl Networks {
    /// Zeros for `count` networks with the parameters of a graph.
    pub fn new(gpu: &Arc<Gpu>, graph: &Graph, count: usize) -> Result<Arc<Self>> {
        let len = Params::new(graph.params.clone())?.len();
        let values = cuda::Buffer::new(gpu, count * len, "networks' parameters", "num_envs")?;
        Ok(Arc::new(Self { gpu: Arc::clone(gpu), values, len, count }))
    }

    /// Numbers of one network, padding included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether they have no parameters.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many networks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where they lie.
    pub fn values(&self) -> &cuda::Buffer<f32> {
        &self.values
    }
}

/// An input that lies in memory of the caller: group g's rows begin at its samples' index times `stride` numbers.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// Number of the input, in the order in which they were declared.
    pub input: usize,
    /// Where sample 0 lies.
    pub at: DevicePtr,
    /// Numbers from one index to the next.
    pub stride: usize,
}

/// How a plan is cut.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Groups.
    pub groups: usize,
    /// Most rows of each.
    pub max_rows: usize,
    /// Parts of the graph: numbers given to [`Graph::under`] are below this.
    pub parts: usize,
    /// f32 for its accuracy, bf16 for tensors of several axes that hold it, anything else for TF32 operands.
    pub precision: Precision,
    /// Inputs that are not the plan's own.
    pub shared: &'a [Shared],
    /// Whether images that are read as pixels of four bf16 numbers are written as such by the caller ([`CudaPlan::pixels`]).
    pub pixels: bool,
    /// How many tables of groups that others follow ([`Graph::following`]) there are.
    pub leaders: usize,
    /// The family of each part, if it has one: launches of one family's parts may run at once, so a group must not have two of
    /// them. May be empty.
    pub apart: &'a [Option<u32>],
    /// Whether ops that go number by number are one launch where they follow each other. No bit of a result depends on it.
    pub fuse: bool,
}

/// One launch with its arguments.
#[derive(Debug)]
struct Started {
    kernel: usize,
    blocks: u32,
    threads: u32,
    part: Option<u32>,
    args: Args,
}

/// Parts of a gradient that are added up with those of other ops, in a few launches behind all others: `Sums` of `between.cu`.
#[derive(Debug)]
struct Deferred {
    blocks: usize,
    part: Option<u32>,
    words: [u64; 7],
}

/// Numbers of scratch memory of a group up to which an op has its own, so that its parts may wait; and how many ops may have.
const OWN_SCRATCH: usize = 1 << 18;
const DEFERRED: usize = 1 << 12;

/// A graph settled for a GPU.
#[derive(Debug)]
pub struct CudaPlan {
    gpu: Arc<Gpu>,
    recipe: Recipe,
    groups: usize,
    parts: usize,
    /// Buffers that hold bf16.
    narrow: Vec<bool>,
    networks: Arc<Networks>,
    kernels: Vec<Kernel<Args>>,
    launches: Vec<Started>,
    feeds: Vec<Option<cuda::Buffer<f32>>>,
    /// Inputs as bf16.
    narrowed: Vec<Option<cuda::Buffer<f32>>>,
    /// Which of these are the caller's to write.
    given: Vec<bool>,
    deferred: Vec<Deferred>,
    /// What the last launches add up: [`Deferred`].
    _table: cuda::Buffer<u64>,
    /// Adds up all of it.
    collapse: Started,
    rows: cuda::Buffer<u32>,
    network_of: cuda::Buffer<u32>,
    samples_of: cuda::Buffer<u32>,
    absent: cuda::Buffer<u32>,
    leaders: cuda::Buffer<u32>,
    beside: Beside,
    /// The seed's halves and the number of the run.
    draws: cuda::Buffer<u32>,
    memory: Memory,
}

#[derive(Debug)]
struct Memory {
    /// Activations and their gradients: `[groups, arena]`.
    arena: cuda::Buffer<f32>,
    arena_len: usize,
    sums: cuda::Buffer<f32>,
    scratch: cuda::Buffer<f32>,
    own: cuda::Buffer<u32>,
}

/// Which index tells a group's part: `index` of `plan.cu`.
const BY_GROUP: u32 = 0;
const BY_NETWORK: u32 = 1;
const BY_SAMPLES: u32 = 2;
const BY_LEADER: u32 = 3;

fn recipe_of(graph: &Graph, wanted: &Wanted, max_rows: usize, target: Target, fuse: bool) -> Result<Recipe> {
    if max_rows == 0 {
        return Err(Error::Invalid("a plan for 0 rows: wanted at least 1".into()));
    }
    let params = Params::new(graph.params.clone())?;
    let offsets: Vec<usize> = params.specs().iter().map(|spec| spec.offset).collect();
    let takes_sum = |node: &Planned| {
        let first = |twin: Twin| twin.forward.first().is_some_and(|launch| launch.text == Text::Octets);
        target.form == Form::Bf16 && narrow_op(node) && chosen(node, target, max_rows).is_some_and(first)
    };
    let timing = |recipe: &Recipe| Some(chains_of(recipe, target, fuse).into_timing());
    let merging = Merging { towers: false, takes_sum: &takes_sum, timing: &timing };
    Recipe::new(graph, wanted, &offsets, params.len(), max_rows, &merging, |_, _| max_rows)
}

fn chains_of(recipe: &Recipe, target: Target, fuse: bool) -> Chains {
    let narrow = narrow_buffers(recipe, target.form).unwrap_or_else(|_| vec![false; recipe.slots.len()]);
    Chains::find(recipe, &twins_of(recipe, target), &narrow, fuse)
}

impl CudaPlan {
    /// Kernels that a plan of such a graph prints for itself on a GPU with the least shared memory, as a whole text. Needs no GPU.
    pub fn printed(graph: &Graph, wanted: &Wanted, setup: &Setup) -> Result<String> {
        let target = Target::any(setup.precision);
        let recipe = recipe_of(graph, wanted, setup.max_rows, target, setup.fuse)?;
        Ok(Text::Chains.source(target.form) + &chains_of(&recipe, target, setup.fuse).text)
    }

    /// Ops of a graph that have no kernels; where there are any, [`CudaPlan::new`] fails with their names. Needs no GPU.
    pub fn missing(graph: &Graph, wanted: &Wanted, precision: Precision) -> Result<Vec<String>> {
        let target = Target::any(precision);
        let recipe = recipe_of(graph, wanted, 1, target, false)?;
        let mut missing = missing(&recipe, target);
        missing.extend(narrow_buffers(&recipe, target.form).err());
        Ok(missing)
    }

    /// A plan of all that is wanted. Groups begin with all rows, network 0, samples 0 and every part.
    pub fn new(graph: &Graph, wanted: &Wanted, networks: &Arc<Networks>, setup: &Setup) -> Result<Self> {
        let target = Target::new(setup.precision, &networks.gpu);
        let form = target.form;
        let recipe = recipe_of(graph, wanted, setup.max_rows, target, setup.fuse)?;
        let missing = missing(&recipe, target);
        if !missing.is_empty() {
            let precision = setup.precision.name();
            return Err(Error::Invalid(format!("no CUDA kernels in {precision} for {}", missing.join(", "))));
        }
        let narrow = narrow_buffers(&recipe, form)
            .map_err(|name| Error::Invalid(format!("\"{name}\" takes for f32 what is bf16: take tf32")))?;
        let (gpu, groups) = (&networks.gpu, setup.groups);
        let longest = recipe.slots.iter().map(|slot| slot.len * setup.max_rows).max().unwrap_or(0);
        if longest > i32::MAX as usize || networks.len != recipe.params_len || groups == 0 {
            return Err(Error::Invalid(format!(
                "a plan of {groups} groups with tensors of {longest} numbers and {} parameters for networks of {}: wanted at \
                 least one group, fewer than 2³¹ numbers and the networks of this graph",
                recipe.params_len, networks.len
            )));
        }
        let parts = recipe.nodes.iter().filter_map(|node| node.part.map(|part| part.number));
        let most = |what: &str, number: Option<u32>, all: usize| match number {
            Some(number) if number as usize >= all => {
                Err(Error::Invalid(format!("{what} {number} of a graph: wanted less than the {all} of the plan")))
            }
            _ => Ok(()),
        };
        most("part", parts.max(), setup.parts)?;
        let copies = |call: &&Call| call.follows.is_some() && (call.op.is_view() || call.op.passes());
        if let Some(call) = graph.calls.iter().find(copies) {
            let name = &call.name;
            return Err(Error::Invalid(format!("\"{name}\" copies nothing, so it can't read what other groups have")));
        }
        most("table", recipe.nodes.iter().filter_map(|node| node.follows).max(), setup.leaders)?;
        let setting = "num_envs or the minibatch";
        let of = |len: usize, what: &str| cuda::Buffer::<f32>::new(gpu, len, what, setting);
        let ids = |len: usize, what: &str| cuda::Buffer::<u32>::new(gpu, len, what, setting);
        let shared = |input: usize| setup.shared.iter().find(|shared| shared.input == input);
        let mut feeds = Vec::new();
        for (number, (name, len, kind)) in recipe.feeds.iter().enumerate() {
            let rows = if *kind == Kind::Whole { 1 } else { setup.max_rows };
            let own = shared(number).is_none();
            feeds.push(if own { Some(of(groups * rows * len, &format!("input {name}"))?) } else { None });
        }
        let twins = twins_of(&recipe, target);
        let chains = Chains::find(&recipe, &twins, &narrow, setup.fuse);
        // Kernels of bf16 read inputs of several axes from a copy; those that all readers can have as pixels, as such.
        let pixels: Vec<Option<usize>> = (0..recipe.feeds.len()).map(|feed| pixels_of(&recipe, &twins, feed)).collect();
        let (mut narrowed, mut given) = (Vec::new(), Vec::new());
        for (number, (name, len, _)) in recipe.feeds.iter().enumerate() {
            let is = |(slot, narrow): (&Slot, &bool)| *narrow && slot.place == Place::Feed(number);
            let copied = recipe.slots.iter().zip(&narrow).any(is);
            let len = pixels[number].map_or(*len, |channels| len / channels * 4);
            let half = (setup.max_rows * len).next_multiple_of(8) / 2;
            narrowed.push(if copied { Some(of(groups * half, &format!("input {name} in bf16"))?) } else { None });
            given.push(copied && setup.pixels && pixels[number].is_some());
        }
        // Only ways back add up parts. Ops whose parts wait for those of others have memory of their own behind what all others share.
        let waits = |twin: &Twin| {
            let collapses = twin.backward.iter().any(|launch| launch.kernel == COLLAPSE);
            recipe.training && collapses && twin.scratch <= OWN_SCRATCH
        };
        let shares = |twin: &&Twin| (recipe.training || twin.scratch_forward) && !waits(twin);
        let shared_scratch = twins.iter().filter(shares).map(|twin| twin.scratch).max();
        let mut scratch_len = shared_scratch.unwrap_or(0).next_multiple_of(8);
        let mut own_scratch: Vec<Option<usize>> = vec![None; twins.len()];
        for (own, twin) in own_scratch.iter_mut().zip(&twins).filter(|(_, twin)| waits(twin)).take(DEFERRED) {
            *own = Some(scratch_len);
            scratch_len += twin.scratch.next_multiple_of(8);
        }
        let arena_len = recipe.tile_len + recipe.full_len;
        let most_blocks =
            twins.iter().flat_map(|twin| twin.forward.iter().chain(&twin.backward)).map(|l| l.blocks).max();
        let strides = setup.shared.iter().map(|shared| shared.stride).chain([arena_len, scratch_len, recipe.sums_len]);
        // Kernels number these in 32 bits.
        if let Some(most) = strides.chain(most_blocks.map(|most| most * groups)).find(|most| *most > u32::MAX as usize)
        {
            return Err(Error::Invalid(format!(
                "a plan of {most} numbers or blocks: wanted less than 2³²; lower {setting}"
            )));
        }
        let memory = Memory {
            arena: of(groups * arena_len, "activations")?,
            arena_len,
            sums: of(groups * recipe.sums_len, "gradients")?,
            scratch: of(groups * scratch_len, "partial sums")?,
            own: ids(groups, "groups")?,
        };
        memory.own.upload(&(0..groups as u32).collect::<Vec<_>>())?;
        let rows = ids(groups, "rows")?;
        rows.upload(&vec![setup.max_rows as u32; groups])?;
        let (network_of, samples_of) = (ids(groups, "networks")?, ids(groups, "samples")?);
        let absent = ids(setup.parts * groups, "parts")?;
        let leaders = ids(setup.leaders * groups, "groups that others follow")?;
        leaders.upload(&(0..setup.leaders).flat_map(|_| 0..groups as u32).collect::<Vec<_>>())?;
        let draws = ids(3, "random numbers")?;
        let blank = Args {
            x: [Tensor::default(); MAX_INPUTS],
            y: [Tensor::default(); MAX_OUTPUTS],
            dy: [Tensor::default(); MAX_OUTPUTS],
            dx: [Tensor::default(); MAX_INPUTS],
            scratch: Tensor { at: memory.scratch.pointer(), stride: scratch_len as u32, of: BY_GROUP },
            index: [memory.own.pointer(), network_of.pointer(), samples_of.pointer(), memory.own.pointer()],
            rows: rows.pointer(),
            skip: DevicePtr::NONE,
            blocks: 1,
            add: 0,
            numbers: [0; _],
            factors: [0.0; 4],
        };
        let feed = |number: usize| match (shared(number), &feeds[number]) {
            (Some(shared), _) => Tensor { at: shared.at, stride: shared.stride as u32, of: BY_SAMPLES },
            (None, Some(own)) => Tensor { at: own.pointer(), stride: (own.len() / groups) as u32, of: BY_GROUP },
            (None, None) => unreachable!("an input is the plan's or shared"),
        };
        let tensor = |buffer: Buffer| -> Tensor {
            let slot = recipe.slots[buffer];
            let at = |base: DevicePtr, offset: usize, stride: usize, of: u32| Tensor {
                at: base.offset(4 * offset),
                stride: stride as u32,
                of,
            };
            match slot.place {
                Place::Feed(number) => match &narrowed[number] {
                    Some(copy) => at(copy.pointer(), 0, copy.len() / groups, BY_GROUP),
                    None => feed(number),
                },
                Place::Param(offset) => at(networks.values.pointer(), offset, networks.len, BY_NETWORK),
                Place::Tile(offset) => at(memory.arena.pointer(), offset, arena_len, BY_GROUP),
                Place::Full(offset) => at(memory.arena.pointer(), recipe.tile_len + offset, arena_len, BY_GROUP),
                Place::Sum(offset) => at(memory.sums.pointer(), offset, recipe.sums_len, BY_GROUP),
            }
        };
        let mut loader = Loader::new(gpu, &chains.text);
        let mut launches = Vec::new();
        // What has no tensor of bf16 has the accuracy of f32: it is little.
        let form_for = |narrow: bool| match form {
            Form::Bf16 if !narrow => Form::F32,
            form => form,
        };
        let mut start = |launch: &Launch, narrow: bool, part: Option<u32>, args: Args| -> Result<()> {
            let skip = part.map_or(DevicePtr::NONE, |part| absent.pointer().offset(4 * part as usize * groups));
            let (mut numbers, factors, blocks) = (launch.numbers, launch.factors, launch.blocks as u32);
            // By the arguments' own: whether the first input has four numbers a pixel.
            if launch.text == Text::Octets {
                numbers[PIXELS] = args.numbers[PIXELS];
            }
            launches.push(Started {
                kernel: loader.kernel(launch, form_for(narrow))?,
                blocks: blocks * groups as u32,
                threads: launch.threads as u32,
                part,
                args: Args { skip, blocks, numbers, factors, ..args },
            });
            Ok(())
        };
        let fill = |to: &mut [Tensor], from: &[Option<Buffer>]| {
            for (to, buffer) in to.iter_mut().zip(from) {
                *to = buffer.map_or(Tensor::default(), tensor);
            }
        };
        if chains.draws() {
            let mut args = blank;
            args.y[0] = Tensor { at: draws.pointer(), ..Tensor::default() };
            start(&Launch::blocks(Text::Between, "plan_next_run", 1), false, None, args)?;
        }
        if recipe.sums_len > 0 {
            let sums = Tensor { at: memory.sums.pointer(), stride: recipe.sums_len as u32, of: BY_GROUP };
            let mut args = blank;
            args.y[0] = sums;
            let launch = Launch::each(Text::Between, "plan_clear", recipe.sums_len).numbers([recipe.sums_len]);
            start(&launch, false, None, args)?;
        }
        for (number, copy) in narrowed.iter().enumerate() {
            let Some(copy) = copy.as_ref().filter(|_| !given[number]) else { continue };
            let len = recipe.feeds[number].1;
            let mut args = blank;
            args.x[0] = feed(number);
            args.y[0] = Tensor { at: copy.pointer(), stride: (copy.len() / groups) as u32, of: BY_GROUP };
            let launch = match pixels[number] {
                None => Launch::each(Text::Narrow, "narrowed", setup.max_rows * len / 4).numbers([len]),
                Some(channels) => Launch::each(Text::Narrow, "narrowed_pixels", setup.max_rows * len / channels)
                    .numbers([len / channels, channels]),
            };
            // Only for groups that have what reads it.
            let is = |buffer: Buffer| recipe.slots[buffer].place == Place::Feed(number);
            let readers = recipe.steps.iter().zip(&chains.parts).filter(|(step, _)| step.reads().any(is));
            let mut parts = readers.map(|(_, part)| *part);
            let first = parts.next().flatten();
            start(&launch, true, first.filter(|_| parts.all(|part| part == first)), args)?;
        }
        let mut deferred: Vec<Deferred> = Vec::new();
        for (at, step) in recipe.steps.iter().enumerate() {
            let part = chains.parts[at];
            for chain in chains.list.iter().filter(|chain| chain.at == at) {
                let mut args = blank;
                args.scratch = Tensor { at: draws.pointer(), ..Tensor::default() };
                args.x.iter_mut().zip(&chain.loads).for_each(|(to, from)| *to = tensor(*from));
                args.dx.iter_mut().zip(&chain.stores).for_each(|(to, from)| *to = tensor(*from));
                start(&chain.launch, true, part, args)?;
            }
            let mut args = blank;
            fill(&mut args.x, &step.x);
            fill(&mut args.y, &step.y);
            fill(&mut args.dy, &step.dy);
            fill(&mut args.dx, &step.dx);
            let len = |buffers: &[Option<Buffer>]| buffers[0].map_or(0, |buffer| recipe.slots[buffer].len);
            let read = step.x.first().copied().flatten().map(|buffer| recipe.slots[buffer].place);
            if let Some(Place::Feed(number)) = read
                && pixels[number].is_some()
            {
                args.numbers[PIXELS] = 4;
            }
            match step.work {
                Work::Forward { call } => {
                    let node = &recipe.nodes[call];
                    if let Some(table) = node.follows {
                        if recipe.training || twins[call].formula.is_some() {
                            let name = &step.name;
                            return Err(Error::Invalid(format!(
                                "\"{name}\" can't read what other groups have: only ops with kernels of their own can, in plans that do not learn"
                            )));
                        }
                        args.index[BY_LEADER as usize] = leaders.pointer().offset(4 * table as usize * groups);
                        let rows = args.x.iter_mut().zip(&node.types.x).filter(|(_, ty)| ty.kind == Kind::Rows);
                        rows.filter(|(x, _)| x.of == BY_GROUP).for_each(|(x, _)| x.of = BY_LEADER);
                    }
                    for launch in &twins[call].forward {
                        start(launch, narrow_op(&recipe.nodes[call]), part, args)?;
                    }
                }
                Work::Backward { call, add } => {
                    args.add = add;
                    for sum in chains.direct.iter().filter(|sum| sum.of == at) {
                        args.dx[sum.input] = tensor(sum.to);
                        args.add |= 1 << sum.input;
                    }
                    if let Some(own) = own_scratch[call] {
                        args.scratch.at = args.scratch.at.offset(4 * own);
                    }
                    let printed =
                        |i: usize| twins[call].formula.as_ref().is_some_and(|formula| formula.gradient_of(i).is_some());
                    let launched = |(i, dx): (usize, &Option<Buffer>)| u32::from(dx.is_some() && !printed(i)) << i;
                    let wanted = step.dx.iter().enumerate().map(launched).fold(0, std::ops::BitOr::bitor);
                    // No step reads gradients of parameters.
                    let last = |i: &i32| match step.dx[*i as usize].map(|buffer| recipe.slots[buffer].place) {
                        Some(Place::Sum(at)) => at < recipe.grads_len,
                        other => other.is_none(),
                    };
                    for launch in twins[call].backward.iter().filter(|launch| launch.makes & wanted != 0) {
                        let to = || launch.numbers[3..5].iter().filter(|i| (**i as usize) < step.dx.len());
                        if own_scratch[call].is_some() && launch.kernel == COLLAPSE && to().all(last) {
                            let skip =
                                part.map_or(0, |part| absent.pointer().offset(4 * part as usize * groups).address());
                            let [len, places, chunk, first, second, before, few] =
                                [0, 1, 2, 3, 4, 5, 6].map(|i| launch.numbers[i] as u64);
                            let [first, second] = [first, second].map(|i| args.dx[i as usize].at.address());
                            let from = args.scratch.at.address();
                            let words = [from, first, second, skip, len | places << 32, chunk | before << 32, few];
                            deferred.push(Deferred { blocks: launch.blocks, part, words });
                            continue;
                        }
                        start(launch, narrow_op(&recipe.nodes[call]), part, args)?;
                    }
                }
                Work::Add | Work::Seed { .. } => {}
                Work::Total => {
                    let len = len(&step.x);
                    let launch = Launch::blocks(Text::Between, "plan_total", len).numbers([len]);
                    start(&launch, false, None, args)?;
                }
            }
        }
        let table = cuda::Buffer::<u64>::new(gpu, 7 * deferred.len(), "sums", setting)?;
        table.upload(&deferred.iter().flat_map(|one| one.words).collect::<Vec<_>>())?;
        let mut args = blank;
        args.x[0] = Tensor { at: table.pointer(), ..Tensor::default() };
        args.y[0].stride = scratch_len as u32;
        args.dy[0].stride = recipe.sums_len as u32;
        start(&Launch::blocks(Text::Between, "plan_collapse_all", 1), false, None, args)?;
        let collapse = launches.pop().ok_or_else(|| Error::Device("no launch that adds up parts".into()))?;
        let kernels = loader.kernels;
        Ok(Self {
            gpu: Arc::clone(gpu),
            recipe,
            groups,
            parts: setup.parts,
            narrow,
            networks: Arc::clone(networks),
            kernels,
            launches,
            feeds,
            narrowed,
            given,
            deferred,
            _table: table,
            collapse,
            rows,
            network_of,
            samples_of,
            absent,
            leaders,
            draws,
            beside: Beside::new(gpu, setup.apart)?,
            memory,
        })
    }

    /// What is added up behind all others, as many at once as a launch has numbers for: numbers and blocks of each launch.
    fn sums_of(&self, anywhere: impl Fn(u32) -> bool) -> Vec<(Vec<i32>, u32)> {
        let there = |one: &&Deferred| one.part.is_none_or(&anywhere);
        let of = |(number, one): (usize, &Deferred)| (number as u32 | (one.blocks as u32) << 12) as i32;
        let all: Vec<(usize, &Deferred)> = self.deferred.iter().enumerate().filter(|(_, one)| there(one)).collect();
        all.chunks(self.collapse.args.numbers.len())
            .map(|some| {
                (some.iter().map(|one| of(*one)).collect(), some.iter().map(|(_, one)| one.blocks as u32).sum())
            })
            .collect()
    }

    /// Runs all groups after all work that came before, of which the last launch may not write what first kernels read before they wait: rows,
    /// parts and parameters. `anywhere` says which parts some group has: others are not even launched. Tells whether a launch may come
    /// early behind it.
    pub fn run(&self, anywhere: impl Fn(u32) -> bool) -> Result<bool> {
        let mut lanes = self.beside.lanes(&self.gpu);
        let launched = self.launch_all(&mut lanes, anywhere);
        // Also where that failed: nothing is left of a run that the next one does not wait for.
        let joined = lanes.of(None).map(|lane| lane.early());
        launched.and(joined)
    }

    fn launch_all(&self, lanes: &mut Lanes<'_>, anywhere: impl Fn(u32) -> bool) -> Result<()> {
        for launch in self.launches.iter().filter(|launch| launch.part.is_none_or(&anywhere)) {
            let (kernel, on) = (&self.kernels[launch.kernel], lanes.of(launch.part)?);
            on.start(kernel, launch.blocks, launch.threads, &launch.args)?;
        }
        for (numbers, blocks) in self.sums_of(anywhere) {
            let Started { kernel, threads, mut args, .. } = self.collapse;
            args.numbers[..numbers.len()].copy_from_slice(&numbers);
            args.blocks = blocks;
            lanes.of(None)?.start(&self.kernels[kernel], blocks * self.groups as u32, threads, &args)?;
        }
        Ok(())
    }

    /// How many launches a run with these parts has.
    pub fn launches(&self, anywhere: impl Fn(u32) -> bool) -> usize {
        let own = self.launches.iter().filter(|launch| launch.part.is_none_or(&anywhere)).count();
        own + self.sums_of(anywhere).len()
    }

    /// Groups.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Most rows of a group.
    pub fn max_rows(&self) -> usize {
        self.recipe.max_rows
    }

    /// Its networks.
    pub fn networks(&self) -> &Arc<Networks> {
        &self.networks
    }

    /// Rows of each group.
    pub fn rows(&self) -> &cuda::Buffer<u32> {
        &self.rows
    }

    /// The network of each group.
    pub fn network_of(&self) -> &cuda::Buffer<u32> {
        &self.network_of
    }

    /// The index of each group's samples.
    pub fn samples_of(&self) -> &cuda::Buffer<u32> {
        &self.samples_of
    }

    /// Whether a part is left out of a group: `[parts, groups]`, not 0 where it is.
    pub fn absent(&self) -> &cuda::Buffer<u32> {
        &self.absent
    }

    /// The group whose tensors each one reads where ops follow ([`Graph::following`]): `[tables, groups]`, at first its own. What is read
    /// there must be of a group that has these parts.
    pub fn leaders(&self) -> &cuda::Buffer<u32> {
        &self.leaders
    }

    /// Has dropout and noise draw by this seed from now on, as a plan on a CPU does that begins.
    pub fn draw_by(&self, seed: u64) -> Result<()> {
        self.draws.upload(&[seed as u32, (seed >> 32) as u32, 0])
    }

    /// Parts of its graph.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Memory of an input: `[groups, max_rows, …]`, `[groups, …]` for one without rows, bits of i32 for integers. `None` if it is
    /// the caller's.
    pub fn feed(&self, input: usize) -> Option<&cuda::Buffer<f32>> {
        self.feeds[input].as_ref()
    }

    /// Memory of images as pixels of four bf16 numbers, `[groups, max_rows, pixels, 4]`, which the caller writes in place of
    /// [`Self::feed`]; `None` where that is to be written.
    pub fn pixels(&self, input: usize) -> Option<&cuda::Buffer<f32>> {
        self.narrowed[input].as_ref().filter(|_| self.given[input])
    }

    /// Gradients of parameters, laid out like them, and behind them other sums: `[groups, sums_len]`.
    pub fn sums(&self) -> &cuda::Buffer<f32> {
        &self.memory.sums
    }

    /// Numbers from one group's sums to the next one's.
    pub fn sums_len(&self) -> usize {
        self.recipe.sums_len
    }

    /// Where the sum over rows of the losses' first lies among a group's sums.
    pub fn loss_place(&self) -> Option<usize> {
        match self.recipe.slots[self.recipe.losses.first()?.0].place {
            Place::Sum(at) => Some(at),
            _ => None,
        }
    }

    /// Where the sums over rows of a metric's numbers lie among a group's sums.
    pub fn metric_place(&self, node: Node) -> Option<usize> {
        let (_, buffer) = self.recipe.metrics.iter().find(|(other, _)| *other == node)?;
        match self.recipe.slots[*buffer].place {
            Place::Sum(at) => Some(at),
            _ => None,
        }
    }

    /// Where group 0's rows of an output lie, and the numbers from one group to the next; `None` if the plan was not built to give it,
    /// or if it is not f32.
    pub fn output(&self, node: Node) -> Option<(DevicePtr, usize)> {
        let (_, buffer) = self.recipe.readable.iter().find(|(other, _)| *other == node)?;
        if self.narrow[*buffer] {
            return None;
        }
        Some((self.memory.arena.pointer().offset(4 * self.offset(*buffer)), self.memory.arena_len))
    }

    fn offset(&self, buffer: Buffer) -> usize {
        match self.recipe.slots[buffer].place {
            Place::Tile(at) => at,
            Place::Full(at) => self.recipe.tile_len + at,
            _ => unreachable!("what is kept has memory for the whole batch"),
        }
    }

    /// An output of a group, or with `gradient` the gradient of an input, copied to the host: `rows` rows.
    pub fn read(&self, node: Node, gradient: bool, group: usize, rows: usize) -> Result<Option<Vec<f32>>> {
        let list = if gradient { &self.recipe.gradients } else { &self.recipe.readable };
        let Some((_, buffer)) = list.iter().find(|(other, _)| *other == node) else { return Ok(None) };
        let len = rows * self.recipe.slots[*buffer].len;
        let mut out = vec![0.0f32; if self.narrow[*buffer] { len.div_ceil(2) } else { len }];
        self.memory.arena.download(group * self.memory.arena_len + self.offset(*buffer), &mut out)?;
        if self.narrow[*buffer] {
            // Two in the place of one.
            let both = |x: &f32| [f32::from_bits(x.to_bits() << 16), f32::from_bits(x.to_bits() & 0xFFFF_0000)];
            out = out.iter().flat_map(both).take(len).collect();
        }
        Ok(Some(out))
    }

    /// A group's gradients of parameters, copied to the host.
    pub fn read_gradients(&self, group: usize) -> Result<Vec<f32>> {
        let mut out = vec![0.0; self.recipe.grads_len];
        self.memory.sums.download(group * self.recipe.sums_len, &mut out)?;
        Ok(out)
    }

    /// Bytes of its memory on the GPU.
    pub fn bytes(&self) -> usize {
        let feeds: usize = self.feeds.iter().chain(&self.narrowed).flatten().map(cuda::Buffer::len).sum();
        4 * (self.memory.arena.len() + self.memory.sums.len() + self.memory.scratch.len() + feeds)
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}
