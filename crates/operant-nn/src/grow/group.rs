//! Many networks that grow, side by side on a GPU.
//!
//! One graph holds the host and in each slot every blueprint ([`Graft`](crate::ops::Graft)); which seeds a network has, how they are blended and their α
//! are numbers in the GPU's memory, so surgery uploads a few tensors and plans nothing. All networks take one step in one recorded
//! graph of launches; what no network has is not in it, what some have not ends at once for these. The result of a network does
//! not depend on the others.

mod judging;
mod surgery;

use super::{Blueprint, Host, Seed, Topology, Training, belongs, gate, prefix};
use crate::cuda::EARLY;
use crate::ops::{Blend, Valve};
use crate::{CudaPlan, Graph, Method, Networks, Node, Params, Precision, Setup, Shared, Wanted};
use judging::{JudgeArgs, Told};
use operant_base::{Error, Result};
use operant_device::cuda::{Buffer, DevicePtr, Gpu, Graph as Recorded, Kernel, Params as Argument};
use operant_lanes::{CUDA_PRELUDE, Math};
use std::fmt::Write as _;
use std::sync::Arc;

/// Threads of a block, and blocks of a group that add up squares: as in the text.
const THREADS: usize = 256;
const NORM_BLOCKS: usize = 64;
/// Blueprints that may be chosen: all but the first.
const CHOICES: usize = Blueprint::ALL.len() - 1;
/// Parts of a slot: whether it has a seed, whether that has a gate, and each blueprint.
const SLOT_PARTS: usize = 2 + CHOICES;
/// Networks that are judged at once, at most.
const JUDGED_AT_ONCE: usize = 512;
/// Words of a network's draws: two of the seed, and the epoch.
const DRAW_WORDS: usize = 3;
/// Memory of the plan that judges, at most, in bytes.
const JUDGE_BYTES: usize = 8 << 30;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct BatchArgs {
    images: DevicePtr,
    targets: DevicePtr,
    order: DevicePtr,
    steps: DevicePtr,
    draws: DevicePtr,
    to_images: DevicePtr,
    to_targets: DevicePtr,
    rows: DevicePtr,
    count: u32,
    batch: u32,
    own: u32,
    augment: u32,
    height: u32,
    width: u32,
    channels: u32,
    narrow: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct SgdArgs {
    values: DevicePtr,
    momentum: DevicePtr,
    sums: DevicePtr,
    kinds: DevicePtr,
    absent: DevicePtr,
    squares: DevicePtr,
    losses: DevicePtr,
    broken: DevicePtr,
    steps: DevicePtr,
    rows: DevicePtr,
    groups: u32,
    len: u32,
    stride: u32,
    loss_at: u32,
    blocks: u32,
    count: u32,
    batch: u32,
    unused: u32,
    rate: f32,
    keep: f32,
    decay: f32,
    longest: f32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct SizesArgs {
    sums: DevicePtr,
    owners: DevicePtr,
    absent: DevicePtr,
    kinds: DevicePtr,
    sizes: DevicePtr,
    groups: u32,
    len: u32,
    stride: u32,
    count: u32,
}

impl Argument for BatchArgs {}
impl Argument for SgdArgs {}
impl Argument for SizesArgs {}

/// The kernels' text.
pub fn group_source() -> String {
    let sizes = [
        ("BATCH_BYTES", size_of::<BatchArgs>()),
        ("SGD_BYTES", size_of::<SgdArgs>()),
        ("SIZES_BYTES", size_of::<SizesArgs>()),
        ("JUDGE_BYTES", size_of::<JudgeArgs>()),
    ];
    let mut text = format!("{CUDA_PRELUDE}\n{EARLY}");
    for (name, value) in sizes {
        let _ = writeln!(text, "#define {name} {value}");
    }
    text.push_str(include_str!("../cuda/ops/grown.cu"));
    text.push_str(include_str!("../cuda/ops/lessons.cu"));
    text
}

#[derive(Debug)]
struct Kernels {
    gather: Kernel<BatchArgs>,
    squares: Kernel<SgdArgs>,
    descend: Kernel<SgdArgs>,
    sizes: Kernel<SizesArgs>,
    judge: Kernel<JudgeArgs>,
}

/// Samples: images one behind the other, and their classes.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// Pixels.
    pub images: &'a [f32],
    /// Classes.
    pub targets: &'a [i32],
}

/// What all networks of a group have alike.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The host.
    pub host: Host,
    /// Height, width and channels of images.
    pub image: [usize; 3],
    /// Classes.
    pub classes: usize,
    /// To train on.
    pub train: Samples<'a>,
    /// To validate on.
    pub validation: Samples<'a>,
    /// How networks learn: by SGD.
    pub training: Training,
    /// Precision: f32, bf16, or anything else for products of TF32.
    pub precision: Precision,
    /// Whether each network has samples to train on of its own, as many as there are here ([`GrownGroup::set_samples`]).
    pub own_samples: bool,
    /// Whether samples to train on are cropped and mirrored by chance ([`GrownGroup::set_draws`]).
    pub augment: bool,
}

/// What an epoch of a network found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// Mean loss, each before the step on its minibatch; what was not finite counts as 0.
    pub loss: f32,
    /// Whether all losses and gradients were finite.
    pub finite: bool,
}

#[derive(Debug)]
struct Memory {
    images: Buffer<f32>,
    targets: Buffer<i32>,
    /// Read by the plan that judges.
    _validation: Buffer<f32>,
    validation_targets: Buffer<i32>,
    order: Buffer<u32>,
    steps: Buffer<u32>,
    draws: Buffer<u32>,
    momentum: Buffer<f32>,
    kinds: Buffer<u32>,
    owners: Buffer<u32>,
    sizes: Buffer<f32>,
    squares: Buffer<f64>,
    losses: Buffer<f64>,
    broken: Buffer<u32>,
    judged_losses: Buffer<f64>,
    judged_right: Buffer<u32>,
}

/// A recorded graph and the parts that are in it.
#[derive(Debug)]
struct Recording {
    parts: Vec<bool>,
    graph: Recorded,
}

/// Weights that were kept, of every network.
#[derive(Debug)]
struct Kept {
    values: Buffer<f32>,
    momentum: Buffer<f32>,
    /// Seeds and steps of each, once it was kept.
    of: Vec<Option<(Vec<Option<Seed>>, u64)>>,
}

/// Networks of one host on a GPU, each with seeds of its own.
#[derive(Debug)]
pub struct GrownGroup {
    topologies: Vec<Topology>,
    alphas: Vec<Vec<f32>>,
    steps: Vec<u64>,
    shapes: Vec<Vec<usize>>,
    training: Training,
    sgd: [f32; 2],
    layout: Params,
    networks: Arc<Networks>,
    trainer: CudaPlan,
    judge: CudaPlan,
    judged_logits: Node,
    kernels: Kernels,
    memory: Memory,
    kept: Option<Kept>,
    image: [usize; 3],
    count: usize,
    own_samples: bool,
    augment: bool,
    validated: usize,
    trains: Option<Recording>,
    judges: Option<Recording>,
    gpu: Arc<Gpu>,
}

/// Number of a part of a slot.
fn part(slot: usize, which: usize) -> usize {
    slot * SLOT_PARTS + which
}

/// Name of the tensors of a blueprint in a slot, where all of them are.
fn place(slot: usize, blueprint: Blueprint) -> String {
    format!("{}.{}", prefix(slot), blueprint.name())
}

/// Inputs of the graph: images, and for each slot its control and whether gradients go back through its input.
const IMAGES: usize = 0;
fn control(slot: usize) -> usize {
    1 + 2 * slot
}

/// Part of the host from the blend in a slot on, up to the next one's; the first is what comes before all slots.
fn stretch(slots: usize, number: usize) -> u32 {
    (slots * SLOT_PARTS + number) as u32
}

/// The host with every blueprint in every slot; gives the logits and the shapes of what enters slots. Where it is judged, what lies
/// between slots is in parts, and a network may take what enters a slot, and its seeds, from another one.
fn padded(host: Host, image: [usize; 3], classes: usize, judged: bool) -> Result<(Graph, Node, Vec<Vec<usize>>)> {
    if host.reads_tokens() {
        let name = host.name;
        return Err(Error::Invalid(format!("host {name} has no kernels for a GPU yet; take another, or --device cpu")));
    }
    let mut g = Graph::new();
    let images = g.input("images", image.to_vec());
    let inputs: Vec<[Node; 2]> = (0..host.slots())
        .map(|slot| {
            [g.input_whole(&format!("control of slot {slot}"), [2]), g.input_whole(&format!("way of slot {slot}"), [1])]
        })
        .collect();
    let mut shapes = Vec::new();
    let from_here = |g: &mut Graph, number: usize| match judged {
        true => g.under_common(stretch(host.slots(), number)),
        false => g.under(None),
    };
    from_here(&mut g, 0);
    let logits = host.add(&mut g, images, classes, &mut |g, slot, h, pooled| {
        shapes.push(g.shape(h).to_vec());
        let [control, open] = inputs[slot];
        let under = |which: usize| Some(part(slot, which) as u32);
        g.under(under(0));
        let x = g.apply("", Valve, &[h, open])?;
        let mut seeds = Vec::new();
        for (blueprint, _) in &Blueprint::ALL[1..] {
            g.under(under(1 + blueprint.index()));
            seeds.push(blueprint.add(g, &place(slot, *blueprint), x)?);
        }
        g.under(under(1));
        let gate = gate(g, slot, x)?;
        from_here(g, slot + 1);
        g.following(judged.then_some(slot as u32));
        let out = g.graft(pooled, [h, x, gate, control], &seeds);
        g.following(None);
        out
    })?;
    Ok((g, logits, shapes))
}

/// Parts of a slot that such a seed is made of.
fn has(seed: Option<Seed>, which: usize) -> bool {
    seed.is_some_and(|seed| match which {
        0 => true,
        1 => seed.blend == Blend::Gate,
        _ => which - 1 == seed.blueprint.index(),
    })
}

impl GrownGroup {
    /// Whether such hosts can be trained side by side.
    pub fn check(host: Host, image: [usize; 3], classes: usize) -> Result<()> {
        padded(host, image, classes, false).map(drop)
    }

    /// Hosts without seeds, one for each number, which draws its first weights: the same as those of [`super::Grown`].
    pub fn new(gpu: &Arc<Gpu>, task: &Task, seeds: &[u64]) -> Result<Self> {
        let Method::Sgd { momentum, nesterov: false, weight_decay } = task.training.method else {
            return Err(Error::Invalid("networks that grow on a GPU learn by SGD without nesterov".into()));
        };
        let (groups, batch) = (seeds.len(), task.training.batch);
        let (graph, logits, shapes) = padded(task.host, task.image, task.classes, false)?;
        let (judged, judged_logits, _) = padded(task.host, task.image, task.classes, true)?;
        let pixels = task.image.iter().product::<usize>();
        let (count, validated) = (task.train.targets.len(), task.validation.targets.len());
        let fits =
            |samples: &Samples| samples.images.len() == samples.targets.len() * pixels && !samples.targets.is_empty();
        if groups == 0 || batch == 0 || !fits(&task.train) || !fits(&task.validation) {
            let text = format!(
                "{groups} networks, minibatches of {batch}, {count} and {validated} samples of {pixels} numbers"
            );
            return Err(Error::Invalid(format!("{text}: wanted at least one of each, and as many images as classes")));
        }
        let mut targets = task.train.targets.iter().chain(task.validation.targets);
        if let Some(other) = targets.find(|target| !(0..task.classes as i32).contains(*target)) {
            return Err(Error::Invalid(format!("a class {other}: wanted 0 to {}", task.classes.saturating_sub(1))));
        }
        let slots = task.host.slots();
        let networks = Networks::new(gpu, &graph, groups)?;
        // A slot has one seed.
        let apart: Vec<Option<u32>> = (0..slots * SLOT_PARTS)
            .map(|part| Some((part / SLOT_PARTS) as u32).filter(|_| part % SLOT_PARTS > 1))
            .collect();
        let setup = Setup {
            groups,
            max_rows: batch,
            parts: slots * SLOT_PARTS,
            precision: task.precision,
            shared: &[],
            pixels: true,
            leaders: 0,
            apart: &apart,
            fuse: true,
        };
        let mut learning = graph.clone();
        let target = learning.input_ints("target", []);
        let loss = learning.cross_entropy(logits, target, 0.0, None)?;
        let wanted = Wanted { losses: vec![(loss, 1.0)], outputs: vec![logits], ..Wanted::default() };
        let trainer = CudaPlan::new(&learning, &wanted, &networks, &setup)?;
        trainer.network_of().upload(&(0..groups as u32).collect::<Vec<_>>())?;
        let setting = "num_envs or train_samples";
        let validation =
            Buffer::new(gpu, validated.next_multiple_of(batch) * pixels, "images to validate on", setting)?;
        validation.upload(task.validation.images)?;
        let shared = [Shared { input: IMAGES, at: validation.pointer(), stride: batch * pixels }];
        let wanted = Wanted { outputs: vec![judged_logits], ..Wanted::default() };
        let judge = |groups: usize| {
            let parts = stretch(slots, slots + 1) as usize;
            let judging = Setup { groups, parts, shared: &shared, pixels: false, leaders: slots, ..setup };
            CudaPlan::new(&judged, &wanted, &networks, &judging)
        };
        // All coalitions of a few seeds are asked at once.
        let most = groups * validated.div_ceil(batch) * (1 + slots).max(1 << slots.min(3));
        let (one, room) = (judge(1)?.bytes(), JUDGE_BYTES.min(gpu.memory()?.0 / 4));
        let judge = judge(JUDGED_AT_ONCE.min(most).min(room / one.max(1)).max(1))?;
        let judges = judge.groups();
        let copies = if task.own_samples { groups } else { 1 };
        let layout = graph.params(0)?;
        let (kinds, owners) = kinds(&layout, slots);
        let memory = Memory {
            images: Buffer::new(gpu, copies * task.train.images.len(), "images to train on", setting)?,
            targets: Buffer::new(gpu, copies * count, "classes", setting)?,
            _validation: validation,
            validation_targets: Buffer::new(gpu, validated.next_multiple_of(batch), "classes", setting)?,
            order: Buffer::new(gpu, groups * count, "orders of samples", setting)?,
            steps: Buffer::new(gpu, groups, "counts", setting)?,
            draws: Buffer::new(gpu, groups * DRAW_WORDS, "seeds of draws", setting)?,
            momentum: Buffer::new(gpu, groups * networks.len(), "momentum", setting)?,
            kinds: Buffer::new(gpu, kinds.len(), "kinds of tensors", setting)?,
            owners: Buffer::new(gpu, owners.len(), "owners of tensors", setting)?,
            sizes: Buffer::new(gpu, groups * (1 + slots), "sizes of gradients", setting)?,
            squares: Buffer::new(gpu, groups * NORM_BLOCKS, "squares", setting)?,
            losses: Buffer::new(gpu, groups, "losses", setting)?,
            broken: Buffer::new(gpu, groups, "counts", setting)?,
            judged_losses: Buffer::new(gpu, judges, "losses", setting)?,
            judged_right: Buffer::new(gpu, judges, "counts", setting)?,
        };
        for copy in 0..copies {
            memory.images.upload_at(copy * task.train.images.len(), task.train.images)?;
            memory.targets.upload_at(copy * count, task.train.targets)?;
        }
        memory.validation_targets.upload(task.validation.targets)?;
        memory.kinds.upload(&kinds)?;
        memory.owners.upload(&owners)?;
        let module = gpu.load("grown", &group_source(), Math::Fast)?;
        let kernels = Kernels {
            gather: module.kernel("gather")?,
            squares: module.kernel("squares")?,
            descend: module.kernel("descend")?,
            sizes: module.kernel("gradient_sizes")?,
            judge: module.kernel("judge")?,
        };
        for (network, seed) in seeds.iter().enumerate() {
            let params = graph.params(*seed)?;
            networks.values().upload_at(network * networks.len(), params.values())?;
        }
        Ok(Self {
            topologies: vec![Topology::new(task.host, task.image, task.classes); groups],
            alphas: vec![vec![0.0; slots]; groups],
            steps: vec![0; groups],
            shapes,
            training: task.training,
            sgd: [momentum as f32, weight_decay as f32],
            layout,
            networks,
            trainer,
            judge,
            judged_logits,
            kernels,
            memory,
            kept: None,
            image: task.image,
            count,
            own_samples: task.own_samples,
            augment: task.augment,
            validated,
            trains: None,
            judges: None,
            gpu: Arc::clone(gpu),
        })
    }

    /// How many networks.
    pub fn count(&self) -> usize {
        self.topologies.len()
    }

    /// What a network is made of.
    pub fn topology(&self, network: usize) -> &Topology {
        &self.topologies[network]
    }

    /// Shape of what enters a slot, without the batch axis.
    pub fn slot_shape(&self, slot: usize) -> &[usize] {
        &self.shapes[slot]
    }

    /// α of each slot of a network.
    pub fn alphas(&self, network: usize) -> &[f32] {
        &self.alphas[network]
    }

    /// Sets the α of a slot.
    pub fn set_alpha(&mut self, network: usize, slot: usize, alpha: f32) {
        self.alphas[network][slot] = alpha;
    }

    /// Bytes of the plans' memory on the GPU.
    pub fn bytes(&self) -> usize {
        self.trainer.bytes() + self.judge.bytes()
    }

    /// Launches of one step of all networks.
    pub fn launches(&self) -> usize {
        let parts = self.parts_of_all();
        3 + self.trainer.launches(|part| parts[part as usize])
    }

    /// Which parts some network has.
    fn parts_of_all(&self) -> Vec<bool> {
        let any = |slot: usize, which: usize| self.topologies.iter().any(|topology| has(topology.seeds[slot], which));
        self.parts(any)
    }

    fn parts(&self, any: impl Fn(usize, usize) -> bool) -> Vec<bool> {
        (0..self.shapes.len() * SLOT_PARTS).map(|number| any(number / SLOT_PARTS, number % SLOT_PARTS)).collect()
    }

    fn sgd_args(&self) -> SgdArgs {
        let [keep, decay] = self.sgd;
        let len = self.networks.len();
        SgdArgs {
            values: self.networks.values().pointer(),
            momentum: self.memory.momentum.pointer(),
            sums: self.trainer.sums().pointer(),
            kinds: self.memory.kinds.pointer(),
            absent: self.trainer.absent().pointer(),
            squares: self.memory.squares.pointer(),
            losses: self.memory.losses.pointer(),
            broken: self.memory.broken.pointer(),
            steps: self.memory.steps.pointer(),
            rows: self.trainer.rows().pointer(),
            groups: self.count() as u32,
            len: len as u32,
            stride: self.trainer.sums_len() as u32,
            loss_at: self.trainer.loss_place().unwrap_or(0) as u32,
            blocks: len.div_ceil(4 * THREADS) as u32,
            count: self.count as u32,
            batch: self.training.batch as u32,
            unused: 0,
            rate: self.training.learning_rate,
            keep,
            decay,
            longest: self.training.max_grad_norm,
        }
    }

    fn record_training(&self, parts: &[bool]) -> Result<Recorded> {
        let (groups, batch) = (self.count() as u32, self.training.batch as u32);
        let feed = |input: usize| self.trainer.feed(input).map_or(DevicePtr::NONE, Buffer::pointer);
        let pixels = self.trainer.pixels(IMAGES).map(Buffer::pointer);
        let targets = control(self.shapes.len());
        let samples = BatchArgs {
            images: self.memory.images.pointer(),
            targets: self.memory.targets.pointer(),
            order: self.memory.order.pointer(),
            steps: self.memory.steps.pointer(),
            draws: self.memory.draws.pointer(),
            to_images: pixels.unwrap_or(feed(IMAGES)),
            to_targets: feed(targets),
            rows: self.trainer.rows().pointer(),
            count: self.count as u32,
            batch,
            own: u32::from(self.own_samples),
            augment: u32::from(self.augment),
            height: self.image[0] as u32,
            width: self.image[1] as u32,
            channels: self.image[2] as u32,
            narrow: u32::from(pixels.is_some()),
        };
        let sgd = self.sgd_args();
        Recorded::record(&self.gpu, || {
            self.kernels.gather.launch(groups * batch, THREADS as u32, &samples)?;
            let near = self.trainer.run(|part| parts[part as usize])?;
            let blocks = groups * NORM_BLOCKS as u32;
            self.kernels.squares.launch_on(&self.gpu, near, blocks, THREADS as u32, &sgd)?;
            self.kernels.descend.launch_early(groups * sgd.blocks, THREADS as u32, &sgd)
        })
    }

    /// Samples to train on of each network.
    pub fn samples(&self) -> usize {
        self.count
    }

    /// Gives a network samples of its own from the next epoch on, where the task says that they have such.
    pub fn set_samples(&mut self, network: usize, samples: &Samples<'_>) -> Result<()> {
        let (got, numbers) = (samples.targets.len(), self.image.iter().product::<usize>());
        if !self.own_samples || got != self.count || samples.images.len() != got * numbers {
            return Err(Error::Invalid(format!("{got} samples of one network: wanted {} of its own", self.count)));
        }
        self.memory.images.upload_at(network * self.count * numbers, samples.images)?;
        self.memory.targets.upload_at(network * self.count, samples.targets)
    }

    /// Seed and epoch by which each network's samples are cropped and mirrored in the next epoch, where the task says that they are.
    pub fn set_draws(&mut self, drawn_by: &[(u64, u32)]) -> Result<()> {
        assert_eq!(drawn_by.len(), self.count(), "a seed and an epoch for each network");
        let words = drawn_by.iter().flat_map(|&(seed, epoch)| [seed as u32, (seed >> 32) as u32, epoch]);
        self.memory.draws.upload(&words.collect::<Vec<u32>>())
    }

    /// One epoch of every network over the training samples in an order of its own: all samples' numbers, network by network.
    pub fn epoch(&mut self, orders: &[u32]) -> Result<Vec<Trained>> {
        let groups = self.count();
        assert_eq!(orders.len(), groups * self.count, "an order of all samples for each network");
        assert!(orders.iter().all(|sample| (*sample as usize) < self.count), "numbers of samples");
        self.memory.order.upload(orders)?;
        self.memory.steps.zero()?;
        self.trainer.rows().upload(&vec![self.training.batch.min(self.count) as u32; groups])?;
        self.memory.losses.zero()?;
        self.memory.broken.zero()?;
        let told = |group: usize| Told { network: group, alphas: &self.alphas[group], follows: None };
        self.tell(&self.trainer, true, |group| Some(told(group)))?;
        let parts = self.parts_of_all();
        if self.trains.as_ref().is_none_or(|recording| recording.parts != parts) {
            let graph = self.record_training(&parts)?;
            self.trains = Some(Recording { parts, graph });
        }
        let steps = self.count.div_ceil(self.training.batch);
        for _ in 0..steps {
            self.trains.as_ref().map_or(Ok(()), |recording| recording.graph.launch())?;
        }
        let (mut losses, mut broken) = (vec![0.0f64; groups], vec![0u32; groups]);
        self.memory.losses.download(0, &mut losses)?;
        self.memory.broken.download(0, &mut broken)?;
        self.steps.iter_mut().zip(&broken).for_each(|(all, broken)| *all += steps as u64 - u64::from(*broken));
        let found = losses.iter().zip(&broken);
        Ok(found
            .map(|(sum, broken)| Trained { loss: (sum / self.count as f64) as f32, finite: *broken == 0 })
            .collect())
    }

    /// Root of the mean square of every network's last gradient: of the host, then of each slot's seed (0 where there is none).
    pub fn gradient_sizes(&self) -> Result<Vec<Vec<f32>>> {
        let owners = 1 + self.shapes.len();
        let args = SizesArgs {
            sums: self.trainer.sums().pointer(),
            owners: self.memory.owners.pointer(),
            absent: self.trainer.absent().pointer(),
            kinds: self.memory.kinds.pointer(),
            sizes: self.memory.sizes.pointer(),
            groups: self.count() as u32,
            len: self.networks.len() as u32,
            stride: self.trainer.sums_len() as u32,
            count: owners as u32,
        };
        self.kernels.sizes.launch((self.count() * owners) as u32, THREADS as u32, &args)?;
        let mut sizes = vec![0.0; self.count() * owners];
        self.memory.sizes.download(0, &mut sizes)?;
        for (sizes, topology) in sizes.chunks_mut(owners).zip(&self.topologies) {
            // What was pruned since had one.
            let empty = sizes[1..].iter_mut().zip(&topology.seeds).filter(|(_, seed)| seed.is_none());
            empty.for_each(|(size, _)| *size = 0.0);
        }
        Ok(sizes.chunks(owners).map(<[f32]>::to_vec).collect())
    }

    /// The last gradient of a tensor of a network, by its name in [`super::Grown`].
    pub fn gradient(&self, network: usize, name: &str) -> Result<Vec<f32>> {
        let here = self.tensors(&self.topologies[network].seeds).find(|(known, _)| known == name).map(|(_, here)| here);
        let range = self.layout.spec(here.as_deref().unwrap_or(name))?.range();
        Ok(self.trainer.read_gradients(network)?[range].to_vec())
    }
}

/// Of every 16 numbers: whether they decay and learn and whose part they are; and who owns them, with how many are numbers.
fn kinds(layout: &Params, slots: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut kinds, mut owners) = (vec![0; layout.len() / 16], vec![0; layout.len() / 16]);
    for spec in layout.specs() {
        let slot = (0..slots).find(|slot| belongs(&spec.name, *slot));
        let of = slot.map(|slot| {
            let is =
                |(blueprint, _): &&(Blueprint, &str)| spec.name.starts_with(&format!("{}.", place(slot, *blueprint)));
            let which = Blueprint::ALL[1..].iter().find(is).map_or(1, |(blueprint, _)| 1 + blueprint.index());
            part(slot, which) as u32 + 1
        });
        let kind = u32::from(spec.decay) | u32::from(spec.trainable) << 1 | of.unwrap_or(0) << 2;
        let range = spec.range();
        for at in (range.start..range.end).step_by(16) {
            kinds[at / 16] = kind;
            owners[at / 16] = slot.map_or(0, |slot| 1 + slot as u32) | ((range.end - at).min(16) as u32) << 8;
        }
    }
    (kinds, owners)
}
