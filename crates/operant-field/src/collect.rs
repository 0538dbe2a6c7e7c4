//! `collect field`: the loop without a learner. Operators are sampled, rolled out, described and stored, each a record that
//! is a function of (settings, number): in any order, on any number of threads, again after a kill, with the same bits.
//!
//! Threads take operators by number and hand records to one writer, which is never waited for unless it is several
//! records behind.

mod failed;
mod mixture;
mod stats;
mod work;

pub use failed::{FailedOperator, FailedOperators};
pub use work::Progress;

use crate::cuda::{self, CudaRollout, Member};
use crate::features::{self, ARCHITECTURE, Describer, FRAME_LEN, METRICS, TRAJECTORY_LEN};
use crate::initial::{KINDS, Kind, Shape};
use crate::shards::{ArraySpec, Dtype, Layout, Record, Shards, crc32c, half_bits, write_whole};
use crate::{After, AnyRollout, Architecture, Operator, Rollout, STEPS_AT_ONCE, Space, Update};
use crate::{Codec, Evenness, Sobol, mix};
use operant_base::config::{self, Table, Value};
use operant_base::{Error, Result};
use operant_device::cuda::Gpu;
use operant_device::{self, CpuPool};
use operant_nn::{Options, Precision};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether fields are stored, and in which precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Not: they are made again by `operant field replay`.
    #[default]
    None,
    /// In single precision.
    F32,
    /// In half precision.
    F16,
}

/// Precision of stored series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Width {
    /// Single.
    #[default]
    F32,
    /// Half: numbers beyond ±65504 become infinite.
    F16,
}

/// Settings of a collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Operators.
    pub count: u32,
    /// Of everything that is drawn.
    pub seed: u64,
    /// Kind of operators: cnn or uafno.
    pub operator: Architecture,
    /// C of fields.
    pub channels: usize,
    /// M, stochastic realisations of an operator.
    pub realisations: u32,
    /// T, steps of a realisation.
    pub steps: u32,
    /// f32, bf16 or f16.
    pub precision: String,
    /// Steps between frames that are described in full; metrics are of every step.
    pub frames_every: u32,
    /// Brings every channel to mean 0 and standard deviation 1 after each step.
    pub normalise: bool,
    /// Keeps numbers within ± this after each step; 0 for no limit.
    pub clamp: f32,
    /// Whether fields are stored.
    pub trajectories: Kept,
    /// Steps between stored fields.
    pub trajectory_every: u32,
    /// Precision of what is stored of every step and frame (`metrics`, `frames`).
    pub series: Width,
    /// How chunks are compressed: blosc (shuffled bytes, zlib) or none.
    pub compression: Codec,
    /// Records of a shard.
    pub per_shard: usize,
    /// Shares of the training, validation and test sets.
    pub splits: [f64; 3],
    /// Length scale of Gaussian random fields, a share of the side.
    pub length_scale: f64,
    /// Their variance.
    pub variance: f64,
    /// Weights of kinds of first fields; all alike if empty. [`Collection::read`] lays them over those, `others` for all that are not named.
    pub initial: Table,
    /// Ranges of sampled parameters where they are narrower than the table's.
    pub space: Table,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            count: 100,
            seed: 1,
            operator: Architecture::Cnn,
            channels: 3,
            realisations: 5,
            steps: 500,
            precision: "f32".into(),
            frames_every: 10,
            normalise: false,
            clamp: 0.0,
            trajectories: Kept::None,
            trajectory_every: 1,
            series: Width::F32,
            compression: Codec::Blosc,
            per_shard: 64,
            splits: [0.8, 0.1, 0.1],
            length_scale: 0.05,
            variance: 1.0,
            initial: Table::new(),
            space: Table::new(),
        }
    }
}

/// Settings that were checked, and what follows from them.
#[derive(Clone, Debug)]
pub struct Collection {
    /// As given.
    pub settings: Settings,
    /// What is sampled.
    pub space: Space,
    precision: Precision,
    mixture: Vec<(usize, f64)>,
    sobol: Sobol,
    /// Where operators run, if not on the CPU.
    gpu: Option<Arc<Gpu>>,
    /// Whether operators that fail are left out.
    skip_failed: bool,
}

/// An operator with all that its rollout depends on.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Its place in the unit cube.
    pub unit: Vec<f64>,
    /// Its parameters.
    pub values: Vec<f64>,
    /// Its shape.
    pub operator: Operator,
    /// How it makes the next field.
    pub update: Update,
    /// Of weights, noise and first field.
    pub key: u64,
    /// Place in [`KINDS`].
    pub kind: usize,
}

/// Bits of a record's flags.
pub mod flags {
    /// A field was not finite.
    pub const NOT_FINITE: u8 = 1;
    /// Frames of the last tenth are alike: their lag-1 correlation is above 0.9999 and their energy stays within a
    /// hundredth, or they are constant.
    pub const STATIONARY: u8 = 2;
    /// Every channel of the last frames is constant.
    pub const CONSTANT: u8 = 4;
}

/// What a rollout gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// [M, T + 1]
    pub metrics: Vec<Vec<[f64; METRICS.len()]>>,
    /// [M, frames, F]
    pub frames: Vec<Vec<Vec<f64>>>,
    /// [M, F]
    pub trajectories: Vec<Vec<f64>>,
    /// `[M]`: of all fields' bits.
    pub digests: Vec<u64>,
    /// See [`flags`].
    pub flags: u8,
    /// `[M, kept, H, W, C]`, if fields are stored.
    pub fields: Vec<f32>,
}

fn fold(digest: u64, field: &[f32]) -> u64 {
    field
        .iter()
        .fold(digest, |hash, x| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

impl Collection {
    /// Checks settings.
    pub fn new(settings: Settings) -> Result<Self> {
        let s = &settings;
        let fail = |text: String| Err(Error::Invalid(text));
        if s.count == 0 || s.realisations == 0 || s.steps == 0 || s.channels == 0 {
            return fail("count, realisations, steps and channels: wanted at least 1 of each".into());
        }
        if s.channels > 64 || s.realisations > 4096 || s.steps > 1_000_000 || s.count > 100_000_000 {
            return fail("wanted at most 64 channels, 4096 realisations, 1e6 steps and 1e8 operators".into());
        }
        if s.frames_every == 0 || s.trajectory_every == 0 || s.per_shard == 0 || s.per_shard > 65_536 {
            return fail("frames_every, trajectory_every: wanted at least 1; per_shard: wanted 1..=65536".into());
        }
        if !(s.length_scale > 0.0 && s.length_scale <= 1.0 && s.variance > 0.0 && s.variance.is_finite()) {
            return fail("wanted a length_scale above 0 and up to 1, and a variance above 0".into());
        }
        if !(s.clamp >= 0.0 && s.clamp.is_finite()) {
            return fail(format!("clamp {}: wanted 0 or more", s.clamp));
        }
        if s.splits.iter().any(|share| !(0.0..=1.0).contains(share))
            || (s.splits.iter().sum::<f64>() - 1.0).abs() > 1e-9
        {
            return fail(format!("splits {:?}: wanted three shares that add up to 1", s.splits));
        }
        let mixture = mixture::of(&s.initial)?;
        let space = Space::of(s.operator).narrowed(&s.space, "space")?;
        let precision = s.precision.parse()?;
        let sobol = Sobol::scrambled(space.parameters.len(), s.seed)?;
        Ok(Self { settings, space, precision, mixture, sobol, gpu: None, skip_failed: false })
    }

    /// Settings from a table, over the defaults.
    pub fn read(table: &Table) -> Result<Self> {
        let settings: Settings = config::read(table, "")?;
        let initial = mixture::completed(&settings.initial)?;
        let space = mixture::completed_space(&settings.space, &Space::of(settings.operator))?;
        Self::new(Settings { initial, space, ..settings })
    }

    /// Points of operators in the unit cube, looked at: the first ones, since time grows with the square of their number.
    pub fn evenness(&self) -> Evenness {
        const MOST: u32 = 16_384;
        Evenness::of(&self.sobol.points(self.settings.count.min(MOST)), self.space.parameters.len())
    }

    /// Operator number k.
    pub fn sampled(&self, k: u32) -> Sampled {
        let mut unit = vec![0.0; self.space.parameters.len()];
        self.sobol.point(k, &mut unit);
        let values = self.space.values(&unit);
        let (operator, update) = self.space.operator(&values, self.settings.channels);
        let key = mix(mix(self.settings.seed ^ 0x6669_656c_6400).wrapping_add(u64::from(k)));
        Sampled { unit, values, operator, update, key, kind: Kind::of_mixture(&self.mixture, key) }
    }

    /// The first field of an operator, `[H, W, C]`.
    pub fn first_field(&self, sampled: &Sampled) -> Vec<f32> {
        let s = &self.settings;
        let grid = sampled.operator.grid;
        let shape = Shape { grid, channels: s.channels, length: s.length_scale, variance: s.variance };
        KINDS[sampled.kind].field(shape, sampled.key)
    }

    fn options(&self) -> Options {
        Options { pool: Arc::new(CpuPool::new(1)), precision: self.precision, ..Options::default() }
    }

    /// The precision that products run in here, and why if it is not the one asked for.
    pub fn precision(&self) -> (Precision, Option<&'static str>) {
        if self.gpu.is_some() { (self.precision, None) } else { self.precision.served() }
    }

    /// The same on a GPU, or on the CPU and why if that GPU serves no operator.
    pub fn on_gpu(mut self, index: usize) -> Result<(Self, Option<String>)> {
        if let Some(why) = cuda::refused(&self.sampled(0).operator) {
            return Err(Error::Device(format!("{why}; take --device cpu")));
        }
        let gpu = Gpu::open(index)?;
        let none = cuda::unserved(&gpu, &self.sampled(0).operator).filter(|_| gpu.info().capability != (9, 0));
        if let Some(why) = none {
            return Ok((self, Some(format!("cuda was asked for, but {why}: computing on the CPU"))));
        }
        self.gpu = Some(gpu);
        Ok((self, None))
    }

    /// `cpu` or `cuda`.
    pub fn device(&self) -> &'static str {
        if self.gpu.is_some() { "cuda" } else { "cpu" }
    }

    /// Why an operator of a collection on a GPU runs on the CPU, if it does.
    pub fn falls_back(&self, sampled: &Sampled) -> Option<String> {
        self.gpu.as_ref().and_then(|gpu| cuda::unserved(gpu, &sampled.operator))
    }

    /// Realisations of operators at time 0, where this collection runs: on a GPU of one shape, on the CPU one operator. To be
    /// `probed` they are in f32: what a change of 1e-3 does is below the rounding of shorter numbers.
    fn any_rollout(&self, group: &[Sampled], probed: bool) -> Result<AnyRollout> {
        let s = &self.settings;
        let precision = if probed { Precision::F32 } else { self.precision };
        let after = After { normalise: s.normalise, clamp: s.clamp };
        let fields: Vec<Vec<f32>> = group.iter().map(|sampled| self.first_field(sampled)).collect();
        let Some(gpu) = self.gpu.as_ref().filter(|_| self.falls_back(&group[0]).is_none()) else {
            let Sampled { operator, update, key, .. } = &group[0];
            let options = Options { precision, ..self.options() };
            let (first, steps) = (&fields[0], s.steps);
            let rollout = Rollout::new(operator, *update, after, *key, 0..s.realisations, steps, first, &options)?;
            return Ok(AnyRollout::Cpu(Box::new(rollout)));
        };
        // A stream of its own, so that operators of several threads run beside each other.
        let gpu = Gpu::open(gpu.info().index)?;
        let member = |(sampled, first)| {
            let Sampled { operator, update, key, .. }: &Sampled = sampled;
            let first: &Vec<f32> = first;
            Member { operator, update: *update, seed: *key, first }
        };
        let members: Vec<Member> = group.iter().zip(&fields).map(member).collect();
        let (rows, steps) = (0..s.realisations, s.steps);
        // Fields that were rolled out with rounded weights are described with less rounded ones.
        let rollout = if probed && self.precision != Precision::F32 {
            CudaRollout::with_rounded_weights(&gpu, &members, after, rows, steps)?
        } else {
            CudaRollout::new(&gpu, &members, after, rows, steps, precision, STEPS_AT_ONCE)?
        };
        Ok(AnyRollout::Cuda { rollout: Box::new(rollout), ahead: 0 })
    }

    /// Realisations of an operator, at time 0.
    pub fn rollout(&self, sampled: &Sampled, realisations: std::ops::Range<u32>) -> Result<Rollout> {
        let after = After { normalise: self.settings.normalise, clamp: self.settings.clamp };
        let (operator, update, steps) = (&sampled.operator, sampled.update, self.settings.steps);
        let first = self.first_field(sampled);
        Rollout::new(operator, update, after, sampled.key, realisations, steps, &first, &self.options())
    }

    /// Rolls operator `sampled` out and describes it; `None` when `stop` was set on the way.
    pub fn outcome(&self, sampled: &Sampled, stop: &AtomicBool) -> Result<Option<Outcome>> {
        Ok(self.outcomes(std::slice::from_ref(sampled), stop)?.and_then(|mut all| all.pop()))
    }

    /// The same of operators that run at once (see [`Self::any_rollout`]).
    fn outcomes(&self, group: &[Sampled], stop: &AtomicBool) -> Result<Option<Vec<Outcome>>> {
        let s = &self.settings;
        let mut rollout = self.any_rollout(group, false)?;
        let Operator { grid, .. } = group[0].operator;
        let (m, len) = (s.realisations as usize, group[0].operator.field_len());
        let rows = group.len() * m;
        let mut describer = Describer::new(grid, s.channels);
        let mut metrics = vec![Vec::with_capacity(s.steps as usize + 1); rows];
        let (mut frames, mut digests, mut kept) = (vec![Vec::new(); rows], vec![0; rows], vec![Vec::new(); rows]);
        let mut describe = |t: u32, fields: &[f32], before: Option<&[f32]>| {
            for (i, field) in fields.chunks_exact(len).enumerate() {
                let last = before.map(|before| &before[i * len..][..len]);
                metrics[i].push(describer.metrics(field, last));
                digests[i] = fold(digests[i], field);
                if t.is_multiple_of(s.frames_every) {
                    let mut frame = vec![0.0; FRAME_LEN];
                    describer.frame(field, &mut frame);
                    frames[i].push(frame);
                }
                if s.trajectories != Kept::None && t.is_multiple_of(s.trajectory_every) {
                    kept[i].extend_from_slice(field);
                }
            }
        };
        let (mut before, mut fields, mut t) = (rollout.state()?, Vec::new(), 0);
        let first = before.clone();
        describe(0, &before, None);
        while t < s.steps {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let count = rollout.advance(s.steps - t, &mut fields)?;
            assert_eq!(fields.len(), count as usize * rows * len, "fields of all realisations come at once");
            for field in fields.chunks_exact(rows * len) {
                t += 1;
                describe(t, field, Some(&before));
                before.copy_from_slice(field);
            }
        }
        drop(rollout);
        let mut outcomes = Vec::new();
        for (place, sampled) in group.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let own = place * m..(place + 1) * m;
            let (metrics, frames) = (metrics[own.clone()].to_vec(), frames[own.clone()].to_vec());
            let sensitivity = self.sensitivity(sampled, &first[own.start * len..own.end * len])?;
            let described = |((metrics, frames), sensitivity): ((&Vec<_>, &Vec<Vec<f64>>), Vec<f64>)| {
                let [mean, ..] = features::aggregate(frames);
                [mean, features::trajectory(metrics, frames), sensitivity].concat()
            };
            outcomes.push(Outcome {
                trajectories: metrics.iter().zip(&frames).zip(sensitivity).map(described).collect(),
                flags: judged(&metrics),
                metrics,
                frames,
                digests: digests[own.clone()].to_vec(),
                fields: kept[own].concat(),
            });
        }
        Ok(Some(outcomes))
    }

    /// Of every realisation, at its first field.
    fn sensitivity(&self, sampled: &Sampled, first: &[f32]) -> Result<Vec<Vec<f64>>> {
        let mut exact = self.any_rollout(std::slice::from_ref(sampled), true)?;
        let mut failed = None;
        let mut apply = |fields: &[f32]| {
            exact.apply(fields).unwrap_or_else(|error| {
                failed = Some(error);
                vec![f32::NAN; fields.len()]
            })
        };
        let found =
            features::sensitivity(&mut apply, first, sampled.operator.grid, self.settings.channels, sampled.key);
        failed.map_or(Ok(found), Err)
    }

    /// Refuses records that do not fit in memory: one per thread, as numbers and as bytes.
    pub fn check_room(&self, threads: usize) -> Result<()> {
        let s = &self.settings;
        let arrays = self.layout().arrays;
        let bytes_of = |array: &ArraySpec| array.bytes() as u64;
        // A record has fields of one size of grid: one of the arrays that are alone.
        let fields = arrays.iter().filter(|array| array.alone).map(bytes_of).max().unwrap_or(0);
        let bytes = fields + arrays.iter().filter(|array| !array.alone).map(bytes_of).sum::<u64>();
        let what = format!("{threads} records of {} realisations and {} steps at once", s.realisations, s.steps);
        operant_device::check_room(&what, 3 * bytes * threads as u64, "lower realisations, steps or --threads")
    }

    /// Times at which fields are stored.
    fn kept(&self) -> usize {
        (self.settings.steps / self.settings.trajectory_every) as usize + 1
    }

    /// Arrays of the store.
    pub fn layout(&self) -> Layout {
        let s = &self.settings;
        let (m, t) = (s.realisations as usize, s.steps as usize + 1);
        let frames = (s.steps / s.frames_every) as usize + 1;
        let (new, parameters) = (ArraySpec::new, self.space.parameters.len());
        let series = match s.series {
            Width::F32 => Dtype::Float32,
            Width::F16 => Dtype::Float16,
        };
        let mut arrays = vec![
            new("unit", Dtype::Float64, &[parameters], &["parameter"]),
            new("parameters", Dtype::Float64, &[parameters], &["parameter"]),
            new("key", Dtype::Uint64, &[], &[]),
            new("architecture", Dtype::Float64, &[ARCHITECTURE.len()], &["descriptor"]),
            new("initial", Dtype::Uint8, &[], &[]),
            new("initial_features", Dtype::Float32, &[FRAME_LEN], &["feature"]),
            new("flags", Dtype::Uint8, &[], &[]),
            new("features", Dtype::Float32, &[3, TRAJECTORY_LEN], &["statistic", "feature"]),
            new("trajectory_features", Dtype::Float32, &[m, TRAJECTORY_LEN], &["realisation", "feature"]),
            new("metrics", series, &[m, t, METRICS.len()], &["realisation", "time", "metric"]),
            new("frames", series, &[m, frames, FRAME_LEN], &["realisation", "frame", "feature"]),
            new("digest", Dtype::Uint64, &[m], &["realisation"]),
        ];
        let dtype = match s.trajectories {
            Kept::None => None,
            Kept::F32 => Some(Dtype::Float32),
            Kept::F16 => Some(Dtype::Float16),
        };
        for grid in self.grids() {
            let Some(dtype) = dtype else { continue };
            let shape = [m, self.kept(), s.channels, grid, grid];
            let axes = ["realisation", "time", "channel", "y", "x"];
            arrays.push(ArraySpec { alone: true, ..new(&format!("trajectories_{grid}"), dtype, &shape, &axes) });
        }
        Layout { count: s.count as usize, per_shard: s.per_shard, arrays, codec: s.compression }
    }

    /// Sides that are sampled.
    fn grids(&self) -> Vec<usize> {
        let grid = self.space.parameters.iter().find(|parameter| parameter.name == "grid");
        let Some(crate::Map::Choice(words)) = grid.map(|grid| &grid.map) else { return Vec::new() };
        words.iter().filter_map(|(word, _)| word.parse().ok()).collect()
    }

    fn record(&self, layout: &Layout, sampled: &Sampled, outcome: &Outcome) -> Result<Record> {
        let architecture = features::architecture(&sampled.operator)?;
        let f64s = |x: &[f64]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let f32s = |x: &mut dyn Iterator<Item = f64>| x.flat_map(|x| (x as f32).to_le_bytes()).collect::<Vec<u8>>();
        let halves =
            |x: &mut dyn Iterator<Item = f64>| x.flat_map(|x| half_bits(x as f32).to_le_bytes()).collect::<Vec<u8>>();
        let series = |dtype: Dtype, x: &mut dyn Iterator<Item = f64>| match dtype {
            Dtype::Float16 => halves(x),
            _ => f32s(x),
        };
        let own = format!("trajectories_{}", sampled.operator.grid);
        let part = |array: &ArraySpec| {
            Some(match array.name.as_str() {
                "unit" => f64s(&sampled.unit),
                "parameters" => f64s(&sampled.values),
                "key" => sampled.key.to_le_bytes().to_vec(),
                "architecture" => f64s(&architecture),
                "initial" => vec![sampled.kind as u8],
                // All realisations begin with the same field.
                "initial_features" => f32s(&mut outcome.frames[0][0].iter().copied()),
                "flags" => vec![outcome.flags],
                "features" => f32s(&mut features::aggregate(&outcome.trajectories).into_iter().flatten()),
                "trajectory_features" => f32s(&mut outcome.trajectories.iter().flatten().copied()),
                "metrics" => series(array.dtype, &mut outcome.metrics.iter().flatten().flatten().copied()),
                "frames" => series(array.dtype, &mut outcome.frames.iter().flatten().flatten().copied()),
                "digest" => outcome.digests.iter().flat_map(|digest| digest.to_le_bytes()).collect(),
                name if name == own => self.fields(&outcome.fields, sampled.operator.field_len()),
                _ => return None,
            })
        };
        Ok(layout.arrays.iter().map(part).collect())
    }

    /// Fields `[…, H, W, C]` as bytes of `[…, C, H, W]`.
    fn fields(&self, fields: &[f32], len: usize) -> Vec<u8> {
        let (channels, mut out) = (self.settings.channels, Vec::with_capacity(fields.len() * 4));
        for field in fields.chunks_exact(len) {
            for c in 0..channels {
                let plane = field.iter().skip(c).step_by(channels);
                match self.settings.trajectories {
                    Kept::F16 => plane.for_each(|&x| out.extend(half_bits(x).to_le_bytes())),
                    _ => plane.for_each(|&x| out.extend(x.to_le_bytes())),
                }
            }
        }
        out
    }

    /// Makes a store with its settings, names and splits.
    pub fn create(&self, folder: &Path) -> Result<Shards> {
        let table = |names: &[&str]| names.iter().map(|name| json!(name)).collect::<Vec<_>>();
        let parameters: Vec<_> = self
            .space
            .parameters
            .iter()
            .map(|p| json!({"name": p.name, "range": p.map.range(), "meaning": p.meaning}))
            .collect();
        let (precision, _) = self.precision();
        let attributes = json!({
            "format": "operant field collection",
            "parameters": parameters,
            "features": features::names(),
            "statistics": ["mean", "std", "range"],
            "frame_features": features::names()[..FRAME_LEN],
            "metrics": table(&METRICS.map(|metric| metric.name)),
            "architecture": table(&ARCHITECTURE.map(|descriptor| descriptor.name)),
            "initial_kinds": table(&KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>()),
            "flags": {"not_finite": flags::NOT_FINITE, "stationary": flags::STATIONARY, "constant": flags::CONSTANT},
            "precision": precision.name(),
            "device": self.device(),
        });
        let machine = self.gpu.as_ref().map_or_else(operant_device::describe, |gpu| gpu.describe());
        let notes = BTreeMap::from([
            ("machine".to_owned(), machine),
            ("device".to_owned(), self.device().to_owned()),
            ("precision".to_owned(), precision.name().to_owned()),
            ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            (DRAWS.0.to_owned(), DRAWS.1.to_owned()),
            (SETTINGS_SUM.to_owned(), self.settings_sum()),
        ]);
        std::fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, &error))?;
        // Before the manifest, which makes the folder a store: one that is there can be gone on with.
        Shards::check_free(folder)?;
        write_whole(&folder.join(SETTINGS), config_text(&self.settings).as_bytes())?;
        write_whole(&folder.join("splits.json"), self.splits().to_string().as_bytes())?;
        Shards::create(folder, self.layout(), &attributes, notes)
    }

    /// A checksum of all settings.
    fn settings_sum(&self) -> String {
        format!("{:08x}", crc32c(config_text(&self.settings).as_bytes()))
    }

    /// Refuses a store that was begun with other settings; those of earlier versions do not say.
    fn check_settings(&self, store: &Shards) -> Result<()> {
        if store.notes().get(SETTINGS_SUM).is_none_or(|sum| *sum == self.settings_sum()) {
            return Ok(());
        }
        Err(Error::Saved(format!(
            "{}: its {SETTINGS} is not what it was begun with; put back what was changed, or collect again into another folder",
            store.folder().display()
        )))
    }

    /// Which operators are for training, validation and test: by a shuffle of the seed.
    pub fn splits(&self) -> serde_json::Value {
        let s = &self.settings;
        let mut order: Vec<u32> = (0..s.count).collect();
        order.sort_by_key(|&k| mix(mix(s.seed ^ 0x7370_6c69_7400).wrapping_add(u64::from(k))));
        let end = |share: f64| (f64::from(s.count) * share).round() as usize;
        let (a, b) = (end(s.splits[0]), end(s.splits[0] + s.splits[1]));
        let sorted = |part: &[u32]| {
            let mut part = part.to_vec();
            part.sort_unstable();
            part
        };
        json!({"train": sorted(&order[..a]), "valid": sorted(&order[a..b]), "test": sorted(&order[b..])})
    }

    /// Refuses a store whose numbers were drawn otherwise than they would be now.
    pub fn check_draws(&self, store: &Shards) -> Result<()> {
        let (name, wanted) = DRAWS;
        // Stores from before there was a second way do not say.
        let found = store.notes().get(name).map_or("1", String::as_str);
        if found == wanted {
            return Ok(());
        }
        let folder = store.folder().display();
        Err(Error::Saved(format!(
            "{folder}: its numbers were made in way {found}, here it is {wanted}: what is stored can be read, but not made again or \
             added to; take the version that made it, or collect again into another folder"
        )))
    }

    /// Runs operator k of a store again and names what differs; nothing if all bits are the same.
    pub fn replay(&self, store: &Shards, k: u32) -> Result<Vec<String>> {
        self.check_draws(store)?;
        let sampled = self.sampled(k);
        let Some(outcome) = self.outcome(&sampled, &AtomicBool::new(false))? else { return Ok(Vec::new()) };
        let record = self.record(store.layout(), &sampled, &outcome)?;
        let mut differing = Vec::new();
        for (array, part) in store.layout().arrays.iter().zip(record) {
            match (store.read(&array.name, k as usize)?, part) {
                (None, None) => {}
                (Some(stored), Some(part)) if stored == part => {}
                (None, Some(_)) => differing.push(format!("{} is not in the store", array.name)),
                _ => differing.push(array.name.clone()),
            }
        }
        Ok(differing)
    }
}

/// A store's note of the checksum of its settings.
const SETTINGS_SUM: &str = "settings";

/// Which builds make the same numbers of the same settings, as stores note it: 2 since Gaussian noise is drawn behind the last
/// convolution, 3 to 5 since kernels of GPUs round otherwise in half precision.
const DRAWS: (&str, &str) = ("draws", "5");

/// The file of settings in a store.
pub const SETTINGS: &str = "collect.toml";

fn config_text(settings: &Settings) -> String {
    Value::Table(config::to_table(settings)).as_table().map_or_else(String::new, ToString::to_string)
}

/// The collection that a store was made by.
pub fn of_store(folder: &Path) -> Result<Collection> {
    let path = folder.join(SETTINGS);
    let text = std::fs::read_to_string(&path).map_err(|error| Error::io("read", &path, &error))?;
    // Not `read`: a store's own weights stand alone.
    Collection::new(config::read(&config::parse(&text, &path.display().to_string())?, "")?)
}

fn judged(metrics: &[Vec<[f64; METRICS.len()]>]) -> u8 {
    let mut found = 0;
    let last = |rows: &[[f64; METRICS.len()]]| rows[rows.len() - (rows.len() / 10).max(1)..].to_vec();
    let ends: Vec<_> = metrics.iter().flat_map(|rows| last(rows)).collect();
    // As they are stored: a number that f32 can't hold is lost.
    if metrics.iter().flatten().flatten().any(|x| !(*x as f32).is_finite()) {
        return flags::NOT_FINITE;
    }
    // Entropy of a frame is 0 if it is constant.
    let constant = ends.iter().all(|row| row[1] == 0.0);
    if constant {
        found |= flags::CONSTANT;
    }
    // Slow steps are alike too: what moves away bit by bit is not at rest.
    let steady = |rows: &Vec<[f64; METRICS.len()]>| {
        let energies = last(rows).into_iter().map(|row| row[0]);
        let (least, most) = energies.fold((f64::INFINITY, 0.0f64), |(least, most), x| (least.min(x), most.max(x)));
        most - least <= 0.01 * most
    };
    if constant || (ends.iter().all(|row| row[2] > 0.9999) && metrics.iter().all(steady)) {
        found |= flags::STATIONARY;
    }
    found
}
